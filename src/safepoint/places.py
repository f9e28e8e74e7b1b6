"""Where the parts of a store are, and how they are opened.

The default places:

              a user                                    a service of systemd
    storage   ~/.local/state/safepoint/<store>/storage  STATE_DIRECTORY/safepoint/<store>/storage
    journal   ~/.local/state/safepoint/<store>/journal  LOGS_DIRECTORY/safepoint/<store>/journal
    anchor    ~/.local/state/safepoint-anchor/<store>   the second folder of STATE_DIRECTORY
    keys      ~/.local/share/safepoint-keys/<store>     CONFIGURATION_DIRECTORY/safepoint-keys/…

Back up `safepoint` as a whole. The anchor and the keys are elsewhere, so that a restore of the
storage does not restore the anchor, and its backup does not contain the keys.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TypeGuard, TypeVar, cast

from safepoint.core.anchor import Anchor
from safepoint.core.codec import Codec
from safepoint.core.errors import ConfigurationError, NotFound, Unavailable, Unsafe, quoted, shell
from safepoint.core.files import replaceable_refusals
from safepoint.core.journal import Actor, Journal
from safepoint.core.keys import SigningKey, VerifyingKey
from safepoint.core.ledger import Ledger
from safepoint.core.names import ANSWERS, DEFAULT_LIMITS, JOURNAL, Limits, check_name, check_store
from safepoint.core.storage import CheckpointStorage
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Approvers, Reason
from safepoint.resume.gate import Gate, Policy
from safepoint.shared.terminal import beginning, keyring_of
from safepoint.stores import disk
from safepoint.stores.database import BESIDE, is_open
from safepoint.stores.files import FileCheckpointStorage
from safepoint.stores.sqlite import SQLiteAnchor, SQLiteCheckpointStorage, SQLiteJournal

_T = TypeVar("_T")
REVOKED: Final = "revoked"
"""The subfolder of revoked keys, in a folder of people's public keys."""
PLACES: Final = ("storage", "anchor", "answers", "answers_anchor", "journal", "journal_anchor")
"""The parts of a store that are on disk or in PostgreSQL."""
_CONNECTION: Final = re.compile(r"env:|[a-z][a-z0-9+.-]*://|[a-z_]+ *=")
_SECRETS: Final = ("password", "sslpassword", "oauth_client_secret")
_SQLITE: Final = b"SQLite format 3\0"
# The first bytes of a log, of its index in either byte order, and of a journal.
_BESIDE: Final = (b"7\x7f\x06", b"\x18\xe2-\0", b"\0-\xe2\x18", b"\xd9\xd5\x05\xf9 \xa1c\xd7")
_LOST: Final = (
    "No replacement was created, so that the loss is noticed. Mount its volume, or restore its own"
    " backup. If an anchor is lost for good, create a new one by name, once the storage verifies:"
    " SQLiteAnchor(path, create=True). If a key is: safepoint explain Unsafe."
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Store:
    """The places of a store's parts, none of them opened yet.

    `default_places` chooses them, or a file of settings, where each is an option of the same name
    with `-` for `_`. To move one, for example to a separate volume, replace it:

    ```python
    from dataclasses import replace

    from safepoint.places import default_places

    usual = default_places("invoices", {"HOME": "/home/you"})
    print(usual.anchor)
    #> /home/you/.local/state/safepoint-anchor/invoices/heads.db
    moved = replace(usual, anchor="/mnt/witness/invoices/heads.db")
    print(moved.anchor)
    #> /mnt/witness/invoices/heads.db
    ```

    Attributes:
        store: the name of the store.
        storage: a folder of files, an SQLite file, or the connection string of your workers.
        key: the key files that sealed the records, secret or public, newest first.
        anchor: the file of the anchor, which detects a rollback, or its connection string.
        tenant: the tenant, if not all threads.
        approvers: the folder with the public keys of those who may approve: NAME.pub, and below
            `revoked` the keys that no longer count.
        operators: the folder with the public keys of those who may hold a run, likewise.
        people: how many different people must approve what a step asks.
        answers: the file of signed answers and holds, or its connection string.
        answers_anchor: the anchor of the answers.
        journal: the file of the journal, or its connection string.
        journal_key: the key files that sign the journal, secret or public, newest first. A writer
            of records does not need them, and then cannot rewrite the journal.
        journal_anchor: the journal's own anchor.
    """

    store: str | None = None
    storage: str | None = None
    key: tuple[str, ...] = ()
    anchor: str | None = None
    tenant: str = ""
    approvers: str | None = None
    operators: str | None = None
    people: int = 1
    answers: str | None = None
    answers_anchor: str | None = None
    journal: str | None = None
    journal_key: tuple[str, ...] = ()
    journal_anchor: str | None = None

    @property
    def databases(self) -> dict[str, str]:
        """The connection strings of the parts that are in PostgreSQL."""
        places = {each: getattr(self, each) for each in PLACES}
        return {each: value for each, value in places.items() if is_connection(value)}

    def opened(
        self, stack: ExitStack, *, write: bool = False, codec: Codec | None = None, **more: Any
    ) -> Ledger:
        """Open the store as a ledger, only for reading unless `write` is set.

        Raises:
            ConfigurationError: it has no name, no storage or no key.
            CheckpointError: a part refuses.
        """
        if self.store is None or self.storage is None:
            raise ConfigurationError("That is not a store.", "Name it, and where its storage is.")
        limits = DEFAULT_LIMITS if codec is None else codec.limits
        ledger = Ledger(
            self.storage_of(stack, write=write, limits=limits),
            store=self.store,
            keys=keyring_of(self.key, signs=write),
            codec=codec,
            anchor=open_anchor(self.anchor, stack, write=write),
            **{"journal": self.journal_of(stack) if write else None, **more},
        )
        return ledger.tenant(self.tenant) if self.tenant else ledger

    def storage_of(
        self, stack: ExitStack, *, write: bool = False, limits: Limits = DEFAULT_LIMITS
    ) -> CheckpointStorage:
        """Open the storage: a database, recognized by its first bytes, or a folder of files."""
        if is_connection(self.storage):
            from safepoint.stores.postgres import PostgresCheckpointStorage

            return stack.enter_context(PostgresCheckpointStorage(self.storage))
        return _storage(str(self.storage), stack, write=write, limits=limits)

    def journal_of(self, stack: ExitStack, *, write: bool = True) -> Journal | None:
        """Open the journal, or return None if there is none."""
        if self.journal is None:
            return None
        keys = keyring_of(self.journal_key, signs=write)
        anchor = open_anchor(self.journal_anchor, stack, write=write)
        if is_connection(self.journal):
            from safepoint.stores.postgres import PostgresJournal

            return stack.enter_context(PostgresJournal(self.journal, keys=keys, anchor=anchor))
        made = SQLiteJournal(self.journal, keys=keys, anchor=anchor, read_only=not write)
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
                "The answers have no anchor, so nobody would see that a denial was removed.",
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

    def create(self, *parts: str) -> None:
        """Create the missing folders of its files with mode 0700, and check those that are there.

        Existing folders are not changed, so this can run at every start.

        Args:
            parts: of which: "key", "storage", "anchor" and so on; of all if there are none.

        Raises:
            Unsafe: a folder belongs to somebody else or is open to others, or others could
                replace it. The message says what to run.
            Unavailable: a folder cannot be made, or the system is not POSIX; or there is no room.
            ConfigurationError: one folder is inside another.
        """
        disk.require_posix()
        files = {"key": self.key[0], **{each: getattr(self, each) for each in PLACES}}
        named = {each: disk.as_named(file, each, "file").parent for each, file in files.items()}
        real = {each: Path(os.path.realpath(p.parent), p.name) for each, p in named.items()}
        for (one, first), (other, second) in combinations(real.items(), 2):
            if first.is_relative_to(second) or second.is_relative_to(first):
                raise ConfigurationError(
                    f"The folder for the {one} {shell(str(first))} is in the same place as that"
                    f" for the {other} {shell(str(second))}.",
                    "Anyone who can write one could write the other. Give each its own folder.",
                )
        for each in parts or named:
            with disk.translated("create", str(named[each])):
                _create(named[each])


def _create(path: Path) -> None:
    """Create a folder and those that are missing above it, where nobody else can replace them."""
    missing = [each for each in (path, *path.parents) if not os.path.lexists(each)]
    top = missing[-1].parent if missing else path.parent
    disk.enforce(replaceable_refusals(str(top)))
    names, path = path.relative_to(top).parts, Path(os.path.realpath(top))
    for name in names:
        path /= name
        disk.create_root(str(path))
    info, shown = path.lstat(), shell(str(path))
    disk.enforce(disk.folder_refusals(str(path), info))
    if (mode := stat.S_IMODE(info.st_mode)) != 0o700:
        what = f"{shown} has mode {mode:04o}, and should have 0700."
        raise Unsafe(what, f"Run: chmod 700 {shown}")


# --- where


def default_places(store: str, environ: Mapping[str, str] | None = None) -> Store:
    """Choose the places of a store by the conventions of XDG, or of systemd.

    ```python
    from safepoint.places import default_places

    places = default_places("invoices", {"HOME": "/home/you"})
    print(places.storage)
    #> /home/you/.local/state/safepoint/invoices/storage/checkpoints.db
    print(places.key)
    #> ('/home/you/.local/share/safepoint-keys/invoices/signing.key',)
    ```

    A user's state is below `XDG_STATE_HOME`. The keys are below `XDG_DATA_HOME`, because many
    people publish their `XDG_CONFIG_HOME`. A service has a `STATE_DIRECTORY`, and uses the folders
    that systemd passes in it, in `LOGS_DIRECTORY` and in `CONFIGURATION_DIRECTORY` (the first of
    several), or `/var/log` and `/etc`. The second folder of `STATE_DIRECTORY` is for the anchors,
    so that a restore of the first does not restore them: `StateDirectory=invoices invoices-anchor`.
    An empty or relative value counts as not set.

    It only reads the environment and creates nothing.

    Args:
        store: the name of the store.
        environ: the variables to read instead of `os.environ`.

    Raises:
        InvalidId: the name of the store is outside the grammar.
        Unavailable: the user has no home, systemd made one folder for the storage and its
            anchor, or the system is not POSIX.
    """
    disk.require_posix()
    check_name("store", store)
    variables = os.environ if environ is None else environ
    state, anchors = _folder(variables, "STATE_DIRECTORY"), _folder(variables, "STATE_DIRECTORY", 1)
    if state is None:
        home = _absolute(variables.get("HOME"))
        if home is None:
            raise Unavailable(
                f"User {os.geteuid()} has no home folder.", "Set HOME to an absolute path."
            )
        state = anchors = logs = _absolute(variables.get("XDG_STATE_HOME")) or home / ".local/state"
        keys = _absolute(variables.get("XDG_DATA_HOME")) or home / ".local/share"
    elif anchors is None or anchors.is_relative_to(state) or state.is_relative_to(anchors):
        raise Unavailable(
            f"systemd gave one folder for state, {shell(str(state))}, so that the storage and its"
            " anchor would be restored together.",
            "Name two in the unit: StateDirectory=invoices invoices-anchor",
        )
    else:
        logs = _folder(variables, "LOGS_DIRECTORY") or Path("/var/log")
        keys = _folder(variables, "CONFIGURATION_DIRECTORY") or Path("/etc")
    stored, anchored = f"{state}/safepoint/{store}", f"{anchors}/safepoint-anchor/{store}"
    secret = f"{keys}/safepoint-keys/{store}"
    return Store(
        store=store,
        storage=f"{stored}/storage/checkpoints.db",
        key=(f"{secret}/signing.key",),
        anchor=f"{anchored}/heads.db",
        approvers=f"{secret}/approvers",
        operators=f"{secret}/operators",
        answers=f"{stored}/answers/answers.db",
        answers_anchor=f"{anchored}.answers/heads.db",
        journal=f"{logs}/safepoint/{store}/journal/journal.db",
        journal_key=(f"{secret}/journal.key",),
        journal_anchor=f"{anchored}.journal/heads.db",
    )


def settings_file() -> Path | None:
    """Return where a user keeps the settings of their own, None for one without a home."""
    home = _absolute(os.environ.get("HOME"))
    if home is None:
        return None
    usual = _absolute(os.environ.get("XDG_CONFIG_HOME")) or home / ".config"
    return usual / "safepoint/safepoint.toml"


def _folder(environ: Mapping[str, str], name: str, index: int = 0) -> Path | None:
    """Return one folder of a list in systemd's format, or None."""
    return _absolute("".join(environ.get(name, "").split(":")[index : index + 1]))


def _absolute(value: str | None) -> Path | None:
    """Return a path, unless it is relative or empty: then the variable counts as not set."""
    path = Path(value or "")
    return path if path.is_absolute() else None


def key_files(first: str) -> list[str]:
    """Return the files of a key in the default places: the one that signs, then the others.

    A new store has `signing.key`. Each rotation adds another, `signing-2.key` and so on, and the
    newest signs. The others only verify, as does `signing-next.key`, which does not sign yet.
    """
    folder, found = Path(first).parent, dict[int, str]()
    name = re.compile(Path(first).stem + r"(?:-([2-9]|[1-9][0-9]{1,3}|next))?\.key")
    with disk.translated("list", str(folder)), suppress(FileNotFoundError):
        for file in folder.iterdir():
            if match := name.fullmatch(file.name):
                found[0 if match[1] == "next" else int(match[1] or 1)] = str(file)
    return [found[number] for number in sorted(found, reverse=True)] if any(found) else []


def in_default_places(name: str) -> Store:
    """Return a store in the default places, with the parts that exist.

    Raises:
        NotFound: it does not exist.
    """
    found = default_places(name)
    keys, signs = key_files(found.key[0]), key_files(found.journal_key[0])
    if not os.path.lexists(str(found.storage)) and not keys:
        raise NotFound(
            f"There is no store {name}: no settings name it, and {shell(str(found.storage))} does"
            " not exist.",
            f"Make it: safepoint init {name}. Or name its parts in a file, and that by --config.",
        )
    parts, both = ("approvers", "operators"), ("answers", "answers_anchor")  # or one was lost
    lacking = [each for each in parts if not os.path.lexists(getattr(found, each))]
    lacking += () if any(os.path.lexists(getattr(found, each)) for each in both) else both
    lacking += [] if signs else ["journal", "journal_anchor"]
    without: Any = dict.fromkeys(lacking)
    return replace(found, key=tuple(keys) or found.key, journal_key=tuple(signs), **without)


# --- to begin a store, and to open it


def open_ledger(
    store: str,
    *,
    places: Store | None = None,
    codec: Codec | None = None,
    journal: Journal | None = None,
    actor: Actor | None = None,
    worker: str | None = None,
) -> Ledger:
    """Open a sealed and anchored ledger in the default places. The first call creates it.

    ```python
    from safepoint import open_ledger

    ledger = open_ledger("invoices")
    ledger.save("order-7", {"amount": 42})
    print(ledger.latest("order-7").state)
    #> {'amount': 42}
    ```

    It consists of a `SQLiteCheckpointStorage`, a `SQLiteAnchor` and an Ed25519 key, each in its own
    folder; `ledger.places` has the paths. They are created only if none of them was ever used,
    because a killed first call may leave some. Otherwise a missing part was lost, which is refused.
    Creating a store is logged as a warning: if you did not expect it, all three parts are gone.

    Any number of processes may call it at the same time, even the first time: all get one ledger.

    Args:
        store: the name of the store.
        places: where to keep it, instead of `default_places(store)`.
        codec: turns state into bytes and back, with your own types.
        journal: records each save and each refusal.
        actor: who acts, for the journal.
        worker: the name under which the first write to a thread takes its lease, as in `Ledger`.

    Raises:
        Unavailable: some of key, anchor and storage are there, and some are gone.
        CheckpointError: what `Store.create` or one of the parts refuses.
    """
    found = _places(store, places)
    if _begin(found, "storage", store):
        import logging  # which most runs do not need, and which takes a while to import

        logging.getLogger("safepoint").warning(
            "A new store %s was created: storage %s, anchor %s, key %s. If you expected one that is"
            " there already, look at HOME, XDG_STATE_HOME and STATE_DIRECTORY before you save.",
            store,
            found.storage,
            found.anchor,
            found.key[0],
        )
    more: Any = {"codec": codec, "journal": journal, "actor": actor, "worker": worker}
    alone = replace(found, journal=None)  # the caller opens it
    ledger = _open(alone, lambda now: now.opened(ExitStack(), write=True, **more))
    ledger.places = found
    return ledger


def open_journal(store: str, *, places: Store | None = None, create: bool = False) -> Journal:
    """Open the journal of a store in the default places, with its own key and anchor.

    ```python
    from safepoint import open_ledger
    from safepoint.places import open_journal

    journal = open_journal("invoices", create=True)  # safepoint init does that
    ledger = open_ledger("invoices", journal=journal)
    ledger.save("order-7", {"amount": 42})
    print([entry.what for entry in open_journal("invoices").show()])
    #> ['save']
    ```

    Args:
        store: the name of the store.
        places: where it is, instead of `default_places(store)`.
        create: create it if it is missing.

    Raises:
        Unavailable: there is none; or it has entries, and its key is gone.
        CheckpointError: what `Store.create` or one of the parts refuses.
    """
    found = _places(store, places)
    _begin(found, "journal", JOURNAL, create=create)
    return cast("Journal", _open(found, lambda now: now.journal_of(ExitStack())))


def open_answers(store: str, *, places: Store | None = None, create: bool = False) -> Answers:
    """Open the answers and holds that people sign, in the default places, with their anchor.

    ```python
    from safepoint.places import open_answers

    answers = open_answers("invoices", create=True)  # safepoint init does that
    ```

    Args:
        store: the name of the store.
        places: where they are, instead of `default_places(store)`.
        create: create them if they are missing, with the folders for the signers' keys.

    Raises:
        Unavailable: there is none; or there are answers, and their anchor is gone.
        CheckpointError: what `Store.create` or one of the parts refuses.
    """
    found = _places(store, places)
    _begin(found, "answers", ANSWERS, create=create)
    return cast("Answers", found.answers_of(ExitStack(), write=True))


def _places(store: str, places: Store | None) -> Store:
    found = default_places(check_store(store)) if places is None else places
    if found.store != store or found.databases:
        raise ConfigurationError(
            f"These are not the places of store {quoted(store)} on disk.",
            "Choose them by its name: default_places.",
        )
    return found


def _open(places: Store, opens: Callable[[Store], _T]) -> _T:
    """Open it with the keys that are there by now."""
    keys = [tuple(key_files(each[0])) or each for each in (places.key, places.journal_key)]
    try:
        return opens(replace(places, key=keys[0], journal_key=keys[1]))
    except Unsafe:
        if all(key_files(each[0]) in ([], [*each]) for each in keys):
            raise
        return _open(places, opens)  # a rotation renamed a key in the meantime


def _begin(places: Store, part: str, name: str, *, create: bool = True) -> bool:
    """Make a part that is to be begun, with its anchor. What is made last is a key, or a folder.

    Raises:
        Unavailable: it was begun, and some of it is gone; or it is not to be made here.
    """
    beside = "anchor" if part == "storage" else f"{part}_anchor"
    file, anchor = str(getattr(places, part)), str(getattr(places, beside))
    keys = {"storage": places.key, "journal": places.journal_key}.get(part)
    last = str(keys[0] if keys else places.operators)

    def is_begun() -> bool:
        return bool(key_files(last)) if keys else os.path.lexists(last)

    if is_begun() or _is_used(file, anchor, name):
        # Asked for once more: another process may have begun it meanwhile.
        gone = [shell(each) for each in (file, anchor) if not os.path.lexists(each)]
        if gone := [*gone, *([] if is_begun() else [shell(last)])]:
            what = f"Store {places.store} was created with its {part} and has lost"
            raise Unavailable(f"{what} {' and '.join(gone)}.", _LOST)
        return False
    if not create:
        do = f"Make it: safepoint init {places.store}"
        raise Unavailable(f"Store {places.store} has no {part} yet.", do)
    places.create(part, beside, "key")
    SQLiteCheckpointStorage(file).close()
    SQLiteAnchor(anchor, create=True).close()
    if keys:
        SigningKey.from_file(last, create=True)
    else:
        disk.create_root(str(places.approvers))
        disk.create_root(last)
    return True


def _is_used(file: str, anchor: str, name: str) -> bool:
    """Tell whether a database has records, or its anchor has heads."""
    if os.path.lexists(file):
        with SQLiteCheckpointStorage(file, read_only=True) as storage:
            if storage.threads() or storage.tenants():
                return True
    if not os.path.lexists(anchor):
        return False
    with SQLiteAnchor(anchor, read_only=True) as heads:
        return bool(heads.threads(name) or heads.tenants(name))


# --- what stands for a part


def people_in(folder: str | None) -> Approvers:
    """Return those whose public keys are in a folder, NAME.pub, and in its subfolder `revoked`.

    Raises:
        Unavailable: the folder cannot be read.
        Unsafe: a file is not a public key, or two people have one key.
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
        names = sorted(folder.iterdir())
    except OSError as error:
        if isinstance(error, FileNotFoundError) and folder.name == REVOKED:
            return []
        raise Unavailable(
            f"{shell(str(folder))} cannot be read ({error.strerror}).",
            "Without it, nobody knows whose keys count. Run this as the owner of the store.",
        ) from None
    public = [each for each in names if each.suffix == ".pub"]
    return [(each.name.partition(".")[0], VerifyingKey.from_file(each)) for each in public]


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
            f"{option} shows a password to anyone who lists processes or reads the settings.",
            f'Write "env:NAME" for {option}, or name a PGPASSFILE.',
        )
    return value


def is_database(path: str) -> bool:
    """Tell whether a file is an SQLite database, by its first bytes."""
    return is_open(path) or beginning(path, len(_SQLITE)) == _SQLITE


def is_beside(path: str) -> bool:
    """Tell whether a file is SQLite's log, index or journal, by its name and first bytes.

    An empty file, or a file that begins with zeros, also counts: SQLite leaves such files.
    """
    database = next((path.removesuffix(end) for end in BESIDE[1:] if path.endswith(end)), None)
    with suppress(OSError, ValueError):
        if database is not None and is_database(database) and stat.S_ISREG(os.lstat(path).st_mode):
            begins = beginning(path, 8)
            return not begins.strip(b"\0") or begins.startswith(_BESIDE)
    return False


def _storage(
    path: str, stack: ExitStack, *, write: bool, limits: Limits = DEFAULT_LIMITS
) -> CheckpointStorage:
    if not os.path.lexists(path):
        raise Unavailable(f"The storage {shell(path)} does not exist.", _LOST)
    if is_database(path):
        made = SQLiteCheckpointStorage(path, read_only=not write, limits=limits)
        return stack.enter_context(made)
    return FileCheckpointStorage(path, read_only=not write, limits=limits)


def open_anchor(place: str | None, stack: ExitStack, *, write: bool = False) -> Anchor | None:
    """Open an anchor by its file or its connection string, or return None if there is none."""
    if place is None:
        return None
    if is_connection(place):
        from safepoint.stores.postgres import PostgresAnchor

        return stack.enter_context(PostgresAnchor(place))
    return stack.enter_context(SQLiteAnchor(place, read_only=not write))
