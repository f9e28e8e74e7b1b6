"""Settings: the parts of a store, written once in a file, so that commands need no options.

    [stores.invoices]             # a store by its name
    storage = "/srv/state/invoices.db"
    key = ["/etc/keys/invoices.pub"]
    anchor = "/srv/anchor/heads.db"

    [audit]                       # what `safepoint audit` checks if no path is named
    paths = ["models", "src"]
    fail-on = "warning"           # or error, or note

A store that the file does not name, or names without a storage, is in its default places. Paths are
relative to the file's folder. Keep secrets in the environment, not in this file:
`postgres = "env:DATABASE_URL"`; or in the file that PGPASSFILE names.

The author of the file decides where denials and holds are stored. So it must be named, by
`--config` or by SAFEPOINT_CONFIG, or be the user's own: `~/.config/safepoint/safepoint.toml`. A
`safepoint.toml` that the audit finds in this folder or above may only contain `[audit]`.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from safepoint.core.anchor import Anchor
from safepoint.core.errors import ConfigurationError, NotFound, quoted, shell
from safepoint.core.files import replaceable_refusals
from safepoint.core.journal import Journal
from safepoint.core.keys import VerifyingKey
from safepoint.core.ledger import Ledger
from safepoint.core.names import check_name
from safepoint.core.storage import CheckpointStorage
from safepoint.places import default_locations, settings_file
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Approvers, Reason
from safepoint.resume.gate import Gate, Policy
from safepoint.shared.terminal import beginning, keyring_of
from safepoint.stores.database import BESIDE, is_open
from safepoint.stores.files import FileCheckpointStorage
from safepoint.stores.sqlite import SQLiteAnchor, SQLiteCheckpointStorage, SQLiteJournal

REVOKED: Final = "revoked"
"""The subfolder of revoked keys, in a folder of people's public keys."""
VARIABLE: Final = "SAFEPOINT_CONFIG"
FILE: Final = "safepoint.toml"
AUDIT: Final = ("paths", "fail-on", "accept")
SEVERITIES: Final = ("error", "warning", "note")
_MOST: Final = 64 * 1024
_DOTS: Final = 64  # in a line; the time to parse a dotted key grows with the square of the dots
_NAME_IT: Final = "If that file counts, name it by --config."
_SECRETS: Final = ("password", "sslpassword", "oauth_client_secret")
_SQLITE: Final = b"SQLite format 3\0"
# The first bytes of a log, of its index in either byte order, and of a journal.
_BESIDE: Final = (b"7\x7f\x06", b"\x18\xe2-\0", b"\0-\xe2\x18", b"\xd9\xd5\x05\xf9 \xa1c\xd7")

# The options whose values are paths, and those with a path after a name.
_PATHS: Final = (
    *("storage", "key", "anchor", "answers", "answers-anchor"),
    *("journal", "journal-key", "journal-anchor", "paths"),
)
_PEOPLE: Final = ("approver", "revoked-approver", "operator", "revoked-operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The places of a store's parts, none of them opened yet.

    In a file, each is an option of the same name with `-` for `_`.

    Attributes:
        store: the name of the store.
        storage: a folder of files, or an SQLite file.
        key: the key files that sealed the records, secret or public, newest first.
        revoked: `FILE=PATH`: a stolen key, and a copy of the anchor from before the theft.
        anchor: the file of the anchor, which detects a rollback.
        tenant: the tenant, if not all threads.
        approver: `NAME=FILE`: who may approve a resume, and the file of their public key.
        revoked_approver: approvers whose keys no longer count: their approvals are warnings.
        operator: `NAME=FILE`: who may hold a run, and the file of their public key.
        revoked_operator: operators who no longer may: what they held stays held.
        people: how many different people must approve what a step asks.
        app: `NAME@VERSION`: what runs today, so that threads of another version are found.
        answers: the file of signed answers and holds.
        answers_anchor: the anchor of the answers.
        journal: the file of the journal.
        journal_key: the key files that sign the journal, secret or public, newest first.
        journal_anchor: the journal's own anchor.
        journal_name: the journal's name; in the default places it is the store's.
        postgres: the connection string of your workers, without a password: use a PGPASSFILE.
        postgres_anchor: the connection string of the anchor, if it is in PostgreSQL.
        postgres_journal: the connection string of the journal.
        postgres_answers: the connection string of the answers.
    """

    store: str | None = None
    storage: str | None = None
    key: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()
    anchor: str | None = None
    tenant: str = ""
    approver: tuple[str, ...] = ()
    revoked_approver: tuple[str, ...] = ()
    operator: tuple[str, ...] = ()
    revoked_operator: tuple[str, ...] = ()
    people: int = 1
    app: tuple[str, ...] = ()
    answers: str | None = None
    answers_anchor: str | None = None
    journal: str | None = None
    journal_key: tuple[str, ...] = ()
    journal_anchor: str | None = None
    journal_name: str = "journal"
    postgres: str | None = field(default=None, repr=False)
    postgres_anchor: str | None = field(default=None, repr=False)
    postgres_journal: str | None = field(default=None, repr=False)
    postgres_answers: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Store:
        """Return a store from options, such as argparse's. None counts as not set.

        Raises:
            ConfigurationError: an option has another type, or contains a password.
        """
        known = {each.name: each.default for each in fields(cls)}
        parts: dict[str, Any] = {}
        for name, value in values.items():
            if name in known and value not in (None, []):
                is_many = isinstance(known[name], tuple)
                several = value if isinstance(value, (list, tuple)) else [value]
                parts[name] = tuple(several) if is_many else value
                _check(name, several if is_many else [value], is_many=is_many)
        for name in [each for each in parts if each.startswith("postgres")]:
            parts[name] = connection_string(name.replace("_", "-"), parts[name])
        return cls(**parts)

    def opened(self, stack: ExitStack, *, write: bool = False) -> Ledger:
        """Open the store as a ledger, only for reading unless `write` is set.

        Raises:
            ConfigurationError: it has no name, no storage or no key.
            CheckpointError: a part refuses.
        """
        if self.store is None or not (self.storage or self.postgres):
            raise ConfigurationError("That is no store.", "Name it, and where its storage is.")
        ledger = Ledger(
            self.storage_of(stack, write=write),
            store=self.store,
            keys=keyring_of(self.key, self.revoked, signs=write),
            anchor=self.anchor_of(stack, write=write),
            journal=self.journal_of(stack) if write else None,
        )
        return ledger.tenant(self.tenant) if self.tenant else ledger

    def storage_of(self, stack: ExitStack, *, write: bool = False) -> CheckpointStorage:
        """Open the storage: a database, recognized by its first bytes, or a folder of files."""
        if self.postgres is not None:
            from safepoint.stores.postgres import PostgresCheckpointStorage

            return stack.enter_context(PostgresCheckpointStorage(self.postgres))
        return _storage(str(self.storage), stack, write=write)

    def anchor_of(self, stack: ExitStack, *, write: bool = False) -> Anchor | None:
        """Open the store's anchor, or return None if it has none."""
        return _anchor(self.anchor, self.postgres_anchor, stack, write=write)

    def journal_of(self, stack: ExitStack, *, write: bool = True) -> Journal | None:
        """Open the journal, or return None if there is none."""
        if not (self.journal or self.postgres_journal):
            return None
        keys = keyring_of(self.journal_key, signs=write)
        anchor = self.journal_anchor_of(stack, write=write)
        if self.postgres_journal is not None:
            from safepoint.stores.postgres import PostgresJournal

            dsn = self.postgres_journal
            made = PostgresJournal(dsn, keys=keys, name=self.journal_name, anchor=anchor)
            return stack.enter_context(made)
        file, name = database_in(str(self.journal)), self.journal_name
        return stack.enter_context(
            SQLiteJournal(file, keys=keys, name=name, anchor=anchor, read_only=not write)
        )

    def journal_anchor_of(self, stack: ExitStack, *, write: bool = False) -> Anchor | None:
        """Open the journal's own anchor, or return None if it has none."""
        return _anchor(self.journal_anchor, None, stack, write=write)

    def answers_of(self, stack: ExitStack, *, write: bool = False) -> Answers | None:
        """Open the signed answers, or return None if there are none."""
        if not (self.answers or self.postgres_answers):
            return None
        storage: CheckpointStorage
        if self.postgres_answers is not None:
            from safepoint.stores.postgres import PostgresAnswers

            storage = stack.enter_context(PostgresAnswers(self.postgres_answers))
        else:
            storage = _storage(str(self.answers), stack, write=write)
        anchor = _anchor(self.answers_anchor, self.postgres_answers, stack, write=write)
        if anchor is None:
            raise ConfigurationError(
                "The answers have no anchor, so nobody would see that a no was removed.",
                "Name it: answers-anchor.",
            )
        return Answers(storage, anchor)

    def gate_of(self, answers: Answers | None = None) -> Gate | None:
        """Return a gate for the approvers and operators, or None if none is named."""
        if not (self.approver or self.operator or self.revoked_operator):
            return None
        approvers = _people_of("approver", self.approver, self.revoked_approver)
        operators = _people_of("operator", self.operator, self.revoked_operator)
        return Gate(
            Policy({Reason.ASKED: self.people}),
            approvers if self.approver else None,
            answers=answers,
            operators=operators if answers else None,
        )


class Settings:
    """The content of a settings file.

    Attributes:
        file: the file, or None if there is none.
        audit: its table `[audit]`.
    """

    def __init__(self, file: Path | None, tables: Mapping[str, Any]) -> None:
        self.file = file
        self.folder = _here() if file is None else file.parent
        unknown = [name for name in tables if name not in ("audit", "stores")]
        if unknown:
            raise self._refusal(f"says {quoted(unknown[0])}, which means nothing", "audit, stores")
        self.audit: Mapping[str, Any] = self._table(tables, "audit")
        for name in self.audit:
            if name not in AUDIT:
                raise self._refusal(f"says {quoted(name)} of the audit", ", ".join(AUDIT))
        stores = self._table(tables, "stores")
        self._stores = {check_name("store", name): self._table(stores, name) for name in stores}

    @property
    def stores(self) -> list[str]:
        """The names of the stores in the file."""
        return list(self._stores)

    @property
    def paths(self) -> list[str]:
        """The paths that the audit checks in addition to the stores."""
        found = self._below("paths", self.audit.get("paths", []))
        if not isinstance(found, list) or not all(map(_is_text, found)):
            raise self._refusal(f"has {quoted(found)} as the paths of the audit", "a list of paths")
        return found

    @property
    def fail_on(self) -> str:
        """The lowest severity of a finding that makes the audit fail."""
        found = self.audit.get("fail-on", "warning")
        if found not in SEVERITIES:
            raise self._refusal(f"has {quoted(found)} as fail-on", ", ".join(SEVERITIES))
        return str(found)

    def says(self, name: str, *options: str) -> bool:
        """Tell whether the file sets any of these options for a store."""
        return not self._stores.get(name, {}).keys().isdisjoint(options)

    def store(self, name: str) -> Store:
        """Return a store by its name: from the file, or from the default places.

        Raises:
            ConfigurationError: the file has an option that no store has.
            NotFound: the file does not name it, and it is not in the default places.
        """
        check_name("store", name)
        if name not in self._stores:
            return in_default_places(name)
        known = [each.name.replace("_", "-") for each in fields(Store) if each.name != "store"]
        parts: dict[str, Any] = {"store": name}
        for option, value in self._stores[name].items():
            if option not in known:
                said = f"says {quoted(option)} of the store {name}"
                raise self._refusal(said, ", ".join(known))
            parts[option.replace("-", "_")] = self._below(option, value)
        store = Store.of(parts)
        if self.says(name, "storage", "postgres"):
            return store
        return replace(in_default_places(name), **{each: getattr(store, each) for each in parts})

    def _below(self, option: str, value: Any) -> Any:
        """Return a path, or a list of paths, relative to the file's folder."""
        if isinstance(value, list):
            return [self._below(option, each) for each in value]
        if not isinstance(value, str):
            return value
        if option == "revoked":
            return "=".join(map(self._path, value.split("=")))
        if option in _PEOPLE:
            name, equals, file = value.partition("=")
            return f"{name}{equals}{self._path(file)}" if file else value
        return self._path(value) if option in _PATHS and value else value

    def _path(self, value: str) -> str:
        return str(self.folder / os.path.expanduser(value))  # noqa: PTH111 - of nobody, as it is

    def _table(self, tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        found = tables.get(name, {})
        if not isinstance(found, dict):
            raise self._refusal(f"has {quoted(name)} as something else than a table", "a table")
        return found

    def _refusal(self, what: str, instead: str) -> ConfigurationError:
        return ConfigurationError(f"{shell(str(self.file))} {what}.", f"It may say: {instead}.")


def read(named: str | os.PathLike[str] | None = None) -> Settings:
    """Read the settings of the named file, of the file in SAFEPOINT_CONFIG, or the user's own.

    Raises:
        ConfigurationError: it cannot be read, has an unknown entry, or is the user's own but others
            could have written it.
    """
    if named := named or os.environ.get(VARIABLE):
        return Settings(_here() / named, _parse(Path(named)))
    file = settings_file()
    if file is None or not os.path.lexists(file):
        return Settings(None, {})
    for refusal in replaceable_refusals(str(file.parent)):
        raise _distrusted(file, refusal.what, refusal.do)
    _check_owner(file, {0, os.geteuid()})
    if file.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _distrusted(file, "Others can write it.", f"Run: chmod go-w {shell(str(file))}")
    return Settings(file, _parse(file))


def read_for_audit(named: str | os.PathLike[str] | None = None) -> Settings:
    """Read the same; or, if no file is named, the table `[audit]` of a file in or above the folder.

    That file may belong to the owner of the current folder, because the audit checks that owner's
    files, and CI jobs run as root on another user's checkout.

    Raises:
        ConfigurationError: as for `read`; or the file is another user's, or names stores.
    """
    here = _here()
    found = [file for each in (here, *here.parents) if os.path.lexists(file := each / FILE)]
    if named or os.environ.get(VARIABLE) or not found:
        return read(named)
    _check_owner(found[0], {0, os.geteuid(), here.stat().st_uid})
    settings = Settings(found[0], _parse(found[0]))
    if settings.stores:
        raise _distrusted(found[0], "It says where stores are.", _NAME_IT)
    return settings


def _check_owner(file: Path, trusted: set[int]) -> None:
    """Refuse a stranger's file before it is read."""
    # The owner of a link decides where it leads.
    strangers = {file.lstat().st_uid, file.stat().st_uid if file.exists() else 0} - trusted
    if strangers:
        raise _distrusted(file, f"It belongs to user {min(strangers)}.", _NAME_IT)


def _distrusted(file: Path, why: str, do: str) -> ConfigurationError:
    what = f"{shell(str(file))} was found, and not named, and may say what somebody else wants."
    return ConfigurationError(f"{what} {why}", f"Nothing was done. {do}")


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigurationError(
            f"The current folder cannot be used ({error.strerror}).", "Go to another: cd"
        ) from None


def _read_text(file: Path) -> str:
    """Return the text of a regular file of at most 64 KiB."""
    # O_NONBLOCK: a FIFO must not wait for its other end.
    with os.fdopen(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ValueError("not a regular file")
        data = opened.read(_MOST + 1)
    if len(data) > _MOST:
        raise ValueError(f"more than {_MOST:,} bytes")
    text = data.decode()
    if any(line.count(".") > _DOTS for line in text.split("\n")):
        raise ValueError(f"a line with more than {_DOTS} dots")
    return text


def _parse(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or f"{error}".splitlines()[0]
        raise ConfigurationError(
            f"{shell(str(file))} cannot be read as settings ({why}).",
            "Correct it, or name another.",
        ) from None


def in_default_places(name: str) -> Store:
    """Return a store in the default places, with the parts that exist.

    Raises:
        NotFound: it does not exist.
    """
    found = default_locations(name)
    keys, signs = found.key_files(), found.key_files("journal")
    if not os.path.lexists(found.storage_file) and not keys:
        raise NotFound(
            f"There is no store {name}: no settings name it, and {shell(str(found.storage_file))}"
            " does not exist.",
            f"Make it: safepoint init {name}. Or name its parts in a file, and that by --config.",
        )
    answers = os.path.lexists(found.answers_file)
    return Store(
        store=name,
        storage=str(found.storage_file),
        key=tuple(map(str, keys or [found.key_file])),
        anchor=str(found.anchor_file),
        approver=tuple(_people(found.approvers)),
        operator=tuple(_people(found.operators)),
        revoked_approver=tuple(_people(found.approvers / REVOKED)),
        revoked_operator=tuple(_people(found.operators / REVOKED)),
        journal=str(found.journal_file) if signs else None,
        journal_key=tuple(map(str, signs)),
        journal_anchor=str(found.journal_anchor) if signs else None,
        journal_name=name if signs else "journal",
        answers=str(found.answers_file) if answers else None,
        answers_anchor=str(found.answers_anchor) if answers else None,
    )


def _people(folder: Path) -> Iterator[str]:
    """Yield the name and the key file of each person whose public key is in a folder."""
    try:
        files = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(
            f"{shell(str(folder))} cannot be read ({error.strerror}).",
            "Whose word counts is not known without it. Run this as the owner of the store.",
        ) from None
    yield from (f"{file.name.split('.')[0]}={file}" for file in files if file.suffix == ".pub")


def _check(name: str, values: Sequence[Any], *, is_many: bool) -> None:
    shown = "something else" if name.startswith("postgres") else quoted(values[0])  # a password
    if name == "people":
        good, want = type(values[0]) is int and values[0] > 0, "1 or more"
    else:
        good, want = all(map(_is_text, values)), "a list of strings" if is_many else "a string"
    if not good:
        raise ConfigurationError(f"{name.replace('_', '-')} is {shown}.", f"Write {want}.")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def connection_string(option: str, value: str) -> str:
    """Return a connection string as given, or from an environment variable.

    Raises:
        ConfigurationError: it contains a password, or the variable is not set.
    """
    how, colon, where = value.partition(":")
    if how == "env" and colon:
        if not os.environ.get(where):
            raise ConfigurationError(
                f"{option} is in the variable {quoted(where)}, which is not set.", "Set it."
            )
        return os.environ[where]
    from safepoint.stores.postgres.connection import parsed

    if any(map(parsed(value).get, _SECRETS)):
        raise ConfigurationError(
            f"{option} shows a password to whoever lists processes or reads the settings.",
            f'Write "env:NAME" for {option}, or name a PGPASSFILE.',
        )
    return value


def named_keys(option: str, people: tuple[str, ...]) -> dict[str, list[VerifyingKey]]:
    """Load public keys by the names of their owners.

    Raises:
        Unsafe: one is no public key.
        ConfigurationError: a name has no file.
    """
    keys: dict[str, list[VerifyingKey]] = {}
    for each in people:
        name, equals, file = each.partition("=")
        if not equals:
            raise ConfigurationError(
                f"{quoted(each)} does not say whose key it is.", f"Write --{option} dana=dana.pub"
            )
        keys.setdefault(name, []).append(VerifyingKey.from_file(file))
    return keys


def _people_of(what: str, named: tuple[str, ...], revoked: tuple[str, ...]) -> Approvers:
    """Return people with their keys, including revoked keys."""
    people, gone = named_keys(what, named), named_keys(f"revoked-{what}", revoked)
    every = {name: [*people.get(name, []), *gone.get(name, [])] for name in [*people, *gone]}
    return Approvers(every, revoked=[key for keys in gone.values() for key in keys])


def database_in(path: str) -> str:
    """Return the database of a folder that contains nothing else, or the path as it is.

    A database next to other files does not change how those are read: they are read as files.
    """
    with suppress(OSError, ValueError):
        found = [str(each) for each in Path(path).iterdir()]
        file = min(found, key=len)
        beside = [each for each in found if each != file]
        ours = {*beside} <= {file + each for each in BESIDE} and all(map(_is_file, beside))
        if ours and is_database(file):
            return file
    return path


def _is_file(path: str) -> bool:
    return stat.S_ISREG(os.lstat(path).st_mode)


def is_database(path: str) -> bool:
    """Tell whether a file is an SQLite database, by its first bytes."""
    return is_open(path) or beginning(path, len(_SQLITE)) == _SQLITE


def is_beside(path: str) -> bool:
    """Tell whether a file is SQLite's log, index or journal, by its name and first bytes.

    An empty file, or a file that begins with zeros, also counts: SQLite leaves such files.
    """
    database = next((path.removesuffix(end) for end in BESIDE[1:] if path.endswith(end)), None)
    with suppress(OSError, ValueError):
        begins = beginning(path, 8)
        known = not begins.strip(b"\0") or begins.startswith(_BESIDE)
        return database is not None and is_database(database) and _is_file(path) and known
    return False


def _storage(path: str, stack: ExitStack, *, write: bool) -> CheckpointStorage:
    found = database_in(path)
    if is_database(found):
        return stack.enter_context(SQLiteCheckpointStorage(found, read_only=not write))
    return FileCheckpointStorage(found, read_only=not write)


def _anchor(path: str | None, dsn: str | None, stack: ExitStack, *, write: bool) -> Anchor | None:
    if dsn is not None:
        from safepoint.stores.postgres import PostgresAnchor

        return stack.enter_context(PostgresAnchor(dsn))
    if path is None:
        return None
    return stack.enter_context(SQLiteAnchor(database_in(path), read_only=not write))
