"""Settings: the parts of a store, written once in a file, so that commands need no options.

    [stores.invoices]             # a store by its name
    storage = "/srv/state/invoices.db"
    key = ["/etc/keys/invoices.pub"]
    anchor = "/srv/anchor/heads.db"

    [audit]                       # what `safepoint audit` checks if no path is named
    paths = ["models", "src"]
    fail-on = "warning"           # or error, or note

A store that the file does not name, or names without a storage, is in its default places. Paths are
relative to the file's folder. A part in PostgreSQL has a connection string in place of a path, as
for psql: `dbname=app`, or `postgresql://db/app`. Keep secrets in the environment, not in this file:
`storage = "env:DATABASE_URL"`; or in the file that PGPASSFILE names.

The author of the file decides where denials and holds are stored. So it must be named, by
`--config` or by SAFEPOINT_CONFIG, or be the user's own: `~/.config/safepoint/safepoint.toml`. A
`safepoint.toml` that the audit finds in this folder or above may only contain `[audit]`.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, TypeGuard

from safepoint.core.anchor import Anchor
from safepoint.core.errors import ConfigurationError, NotFound, Unavailable, quoted, shell
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

PLACES: Final = (
    *("storage", "anchor", "answers"),
    *("answers_anchor", "journal", "journal_anchor"),
)
"""The parts of a store that are on disk or in PostgreSQL."""
_CONNECTION: Final = re.compile(r"env:|postgres(ql)?://|[a-z_]+ *=")
# The options whose values are paths.
_PATHS: Final = (
    *(each.replace("_", "-") for each in PLACES),
    *("key", "journal-key", "approvers", "operators", "paths"),
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Store:
    """The places of a store's parts, none of them opened yet.

    In a file, each is an option of the same name with `-` for `_`.

    Attributes:
        store: the name of the store.
        storage: a folder of files, an SQLite file, or the connection string of your workers.
        key: the key files that sealed the records, secret or public, newest first.
        revoked: `FILE=PATH`: a stolen key, and a copy of the anchor from before the theft.
        anchor: the file of the anchor, which detects a rollback, or its connection string.
        tenant: the tenant, if not all threads.
        approvers: the folder with the public keys of those who may approve: NAME.pub, and below
            `revoked` the keys that no longer count.
        operators: the folder with the public keys of those who may hold a run, likewise.
        people: how many different people must approve what a step asks.
        app: `NAME@VERSION`: what runs today, so that threads of another version are found.
        answers: the file of signed answers and holds, or its connection string.
        answers_anchor: the anchor of the answers.
        journal: the file of the journal, or its connection string.
        journal_key: the key files that sign the journal, secret or public, newest first.
        journal_anchor: the journal's own anchor.
    """

    store: str | None = None
    storage: str | None = None
    key: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()
    anchor: str | None = None
    tenant: str = ""
    approvers: str | None = None
    operators: str | None = None
    people: int = 1
    app: tuple[str, ...] = ()
    answers: str | None = None
    answers_anchor: str | None = None
    journal: str | None = None
    journal_key: tuple[str, ...] = ()
    journal_anchor: str | None = None

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
        for name in PLACES:
            if is_connection(parts.get(name)):
                parts[name] = connection_string(name.replace("_", "-"), parts[name])
        return cls(**parts)

    @property
    def databases(self) -> dict[str, str]:
        """The connection strings of the parts that are in PostgreSQL."""
        places = {each: getattr(self, each) for each in PLACES}
        return {each: value for each, value in places.items() if is_connection(value)}

    def opened(self, stack: ExitStack, *, write: bool = False) -> Ledger:
        """Open the store as a ledger, only for reading unless `write` is set.

        Raises:
            ConfigurationError: it has no name, no storage or no key.
            CheckpointError: a part refuses.
        """
        if self.store is None or self.storage is None:
            raise ConfigurationError("That is no store.", "Name it, and where its storage is.")
        ledger = Ledger(
            self.storage_of(stack, write=write),
            store=self.store,
            keys=keyring_of(self.key, self.revoked, signs=write),
            anchor=open_anchor(self.anchor, stack, write=write),
            journal=self.journal_of(stack) if write else None,
        )
        return ledger.tenant(self.tenant) if self.tenant else ledger

    def storage_of(self, stack: ExitStack, *, write: bool = False) -> CheckpointStorage:
        """Open the storage: a database, recognized by its first bytes, or a folder of files."""
        if is_connection(self.storage):
            from safepoint.stores.postgres import PostgresCheckpointStorage

            return stack.enter_context(PostgresCheckpointStorage(self.storage))
        return _storage(str(self.storage), stack, write=write)

    def journal_of(self, stack: ExitStack, *, write: bool = True) -> Journal | None:
        """Open the journal, or return None if there is none."""
        if self.journal is None:
            return None
        keys = keyring_of(self.journal_key, signs=write)
        anchor = open_anchor(self.journal_anchor, stack, write=write)
        if is_connection(self.journal):
            from safepoint.stores.postgres import PostgresJournal

            return stack.enter_context(PostgresJournal(self.journal, keys=keys, anchor=anchor))
        file = database_in(self.journal)
        made = SQLiteJournal(file, keys=keys, anchor=anchor, read_only=not write)
        return stack.enter_context(made)

    def answers_of(self, stack: ExitStack, *, write: bool = False) -> Answers | None:
        """Open the signed answers, or return None if there are none."""
        if self.answers is None:
            return None
        storage: CheckpointStorage
        if is_connection(self.answers):
            from safepoint.stores.postgres import PostgresAnswers

            storage = stack.enter_context(PostgresAnswers(self.answers))
        else:
            storage = _storage(self.answers, stack, write=write)
        anchor = open_anchor(self.answers_anchor, stack, write=write)
        if anchor is None:
            raise ConfigurationError(
                "The answers have no anchor, so nobody would see that a no was removed.",
                "Name it: answers-anchor.",
            )
        return Answers(storage, anchor)

    def gate_of(self, answers: Answers | None = None) -> Gate | None:
        """Return a gate for the approvers and operators, or None if there are none."""
        approvers, operators = people_in(self.approvers), people_in(self.operators)
        if not (approvers.names or operators.keys):
            return None
        return Gate(
            Policy({Reason.ASKED: self.people}),
            approvers if approvers.names else None,
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
        if self.says(name, "storage"):
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
        is_path = option in _PATHS and value and not is_connection(value)
        return self._path(value) if is_path else value

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
        approvers=str(found.approvers) if found.approvers.exists() else None,
        operators=str(found.operators) if found.operators.exists() else None,
        journal=str(found.journal_file) if signs else None,
        journal_key=tuple(map(str, signs)),
        journal_anchor=str(found.journal_anchor) if signs else None,
        answers=str(found.answers_file) if answers else None,
        answers_anchor=str(found.answers_anchor) if answers else None,
    )


def people_in(folder: str | None) -> Approvers:
    """Return those whose public keys are in a folder, NAME.pub, and in its subfolder `revoked`.

    Raises:
        Unavailable: the folder cannot be read.
        Unsafe: a file is no public key, or two people have one key.
    """
    if folder is None:
        return Approvers({})
    current, revoked = _keys_in(Path(folder)), _keys_in(Path(folder, REVOKED))
    keys: dict[str, list[VerifyingKey]] = {}
    for name, key in (*current, *revoked):
        keys.setdefault(name, []).append(key)
    return Approvers(keys, revoked=[key for _, key in revoked])


def _keys_in(folder: Path) -> list[tuple[str, VerifyingKey]]:
    try:
        files = sorted(folder.iterdir())
    except OSError as error:
        if isinstance(error, FileNotFoundError) and folder.name == REVOKED:
            return []
        raise Unavailable(
            f"{shell(str(folder))} cannot be read ({error.strerror}).",
            "Whose word counts is not known without it. Run this as the owner of the store.",
        ) from None
    public = [each for each in files if each.suffix == ".pub"]
    return [(each.name.partition(".")[0], VerifyingKey.from_file(each)) for each in public]


def _check(name: str, values: Sequence[Any], *, is_many: bool) -> None:
    if name == "people":
        good, want = type(values[0]) is int and values[0] > 0, "1 or more"
    else:
        good, want = all(map(_is_text, values)), "a list of strings" if is_many else "a string"
    if not good:
        raise ConfigurationError(f"{name.replace('_', '-')} is something else.", f"Write {want}.")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def is_connection(value: str | None) -> TypeGuard[str]:
    """Tell a connection string, or `env:NAME`, from a path."""
    return value is not None and _CONNECTION.match(value) is not None


def connection_string(option: str, value: str) -> str:
    """Return a connection string as given, or from an environment variable.

    Raises:
        ConfigurationError: it contains a password, or the variable has no connection string.
    """
    if value.startswith("env:"):
        found = os.environ.get(value[4:], "")
        if found.startswith("env:") or not is_connection(found):
            raise ConfigurationError(
                f"{option} is in the variable {quoted(value[4:])}, which has no connection string.",
                "Set it, as for psql: postgresql://db/app",
            )
        return found
    from safepoint.stores.postgres.connection import parsed

    if any(map(parsed(value).get, _SECRETS)):
        raise ConfigurationError(
            f"{option} shows a password to whoever lists processes or reads the settings.",
            f'Write "env:NAME" for {option}, or name a PGPASSFILE.',
        )
    return value


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


def open_anchor(place: str | None, stack: ExitStack, *, write: bool = False) -> Anchor | None:
    """Open an anchor by its file or its connection string, or return None if there is none."""
    if place is None:
        return None
    if is_connection(place):
        from safepoint.stores.postgres import PostgresAnchor

        return stack.enter_context(PostgresAnchor(place))
    return stack.enter_context(SQLiteAnchor(database_in(place), read_only=not write))
