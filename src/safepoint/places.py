"""The default places of a store: each part in its own folder, accessible only to its owner.

              a user on Linux                           a service
    storage   ~/.local/state/safepoint/<store>/storage  /var/lib/safepoint/<store>/storage
    journal   ~/.local/state/safepoint/<store>/journal  /var/log/safepoint/<store>/journal
    anchor    ~/.local/state/safepoint-anchor/<store>   /var/lib/safepoint-anchor/<store>
    keys      ~/.local/share/safepoint-keys/<store>     /etc/safepoint-keys/<store>

Back up `safepoint` as a whole. The anchor and the keys are elsewhere, so that a restore of the
storage does not restore the anchor, and its backup does not contain the keys.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Literal

from safepoint.core import files
from safepoint.core.codec import Codec
from safepoint.core.errors import (
    ConfigurationError,
    Unavailable,
    Unsafe,
    quoted,
    shell,
)
from safepoint.core.journal import Actor, Journal
from safepoint.core.keys import Keyring, SigningKey
from safepoint.core.ledger import Ledger
from safepoint.core.names import ANSWERS, JOURNAL, check_name, check_store
from safepoint.resume.answers import Answers
from safepoint.stores import disk
from safepoint.stores.sqlite import SQLiteAnchor, SQLiteCheckpointStorage, SQLiteJournal

_LOG = logging.getLogger("safepoint")
_KEY = re.compile(r"(signing|journal)(?:-([2-9]|[1-9][0-9]{1,3}|next))?\.key")
_PARTS = ("storage", "keys", "anchor", "journal")
_HEADS = "heads.db"
_LOST = (
    "Nothing was made in its place, so that the loss shows. Mount its volume, or put its own backup"
    " back. An anchor that is lost for good is begun anew by name, once the storage verifies:"
    " SQLiteAnchor(path, create=True)."
)


@dataclass
class Locations:
    """The folders of a store. None of them is inside another.

    `default_locations` chooses them. To move one, for example to a separate volume, replace it:

    ```python
    from dataclasses import replace
    from pathlib import Path

    from safepoint.places import default_locations

    usual = default_locations("invoices", service=True, environ={})
    print(usual.anchor)
    #> /var/lib/safepoint-anchor/invoices
    moved = replace(usual, anchor=Path("/mnt/witness/invoices"))
    print(moved.anchor)
    #> /mnt/witness/invoices
    ```

    Attributes:
        store: the name of the store.
        storage: the folder of the storage.
        keys: the folder of the key files.
        anchor: the folder of the anchor.
        journal: the folder of the journal, if you keep one.
        roots: this package's folders within the platform's. `create` also creates the missing
            folders between a root and the folders above.
        home: the user's home. In it, `create` also creates missing folders above the roots.
        storage_file: the database of the storage, in its folder.
        anchor_file: the database of the anchor, in its folder.
        key_file: the file of the signing key, in the folder of the keys.
        journal_file: the database of the journal, in its folder.
        journal_key: the key that signs the journal, so that a writer of records cannot rewrite it.
        journal_anchor: the journal's anchor, next to the store's. No store can have its name.
        answers_file: the database of signed answers and holds, next to the storage's folder.
        answers_anchor: the anchor of the answers, next to the store's.
        approvers: the folder with the approvers' public keys: NAME.pub.
        operators: the folder with the public keys of operators, who may hold a run: NAME.pub.

    Raises:
        InvalidId: the name of the store is outside the grammar.
        ConfigurationError: a path is relative, or one folder is inside another.
        Unavailable: a path cannot be one.
    """

    store: str
    storage: Path
    keys: Path
    anchor: Path
    journal: Path
    roots: frozenset[Path] = field(default=frozenset(), repr=False)
    home: Path | None = field(default=None, repr=False)
    storage_file: Path = field(init=False, repr=False)
    anchor_file: Path = field(init=False, repr=False)
    key_file: Path = field(init=False, repr=False)
    journal_file: Path = field(init=False, repr=False)
    journal_key: Path = field(init=False, repr=False)
    journal_anchor: Path = field(init=False, repr=False)
    answers_file: Path = field(init=False, repr=False)
    answers_anchor: Path = field(init=False, repr=False)
    approvers: Path = field(init=False, repr=False)
    operators: Path = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_name("store", self.store)
        for name in _PARTS:
            path = disk.as_named(getattr(self, name), f"The folder for the {name}")
            if path != getattr(self, name) or path.name in ("", ".."):
                raise ConfigurationError(
                    f"The folder for the {name}, {quoted(str(getattr(self, name)))}, is relative,"
                    " or no folder of its own.",
                    "Name an absolute path, to a folder that is for this store alone.",
                )
        self.storage_file, self.anchor_file = self.storage / "checkpoints.db", self.anchor / _HEADS
        self.key_file, self.journal_key = self.keys / "signing.key", self.keys / "journal.key"
        self.journal_file = self.journal / "journal.db"
        self.journal_anchor = self.anchor.with_name(f"{self.anchor.name}.journal") / _HEADS
        self.answers_file = self.storage.with_name("answers") / "answers.db"
        self.answers_anchor = self.anchor.with_name(f"{self.anchor.name}.answers") / _HEADS
        self.approvers, self.operators = self.keys / "approvers", self.keys / "operators"
        _check_apart(self._folders())

    def key_files(self, of: Literal["signing", "journal"] = "signing") -> list[Path]:
        """Return the existing key files: first the one that signs, then the others.

        A new store has `signing.key`. Each rotation adds another, `signing-2.key` and so on, and
        the newest signs. The others only verify, as does `signing-next.key`, which does not sign
        yet.

        Args:
            of: the keys of the records, or of the journal.
        """
        found: dict[int, Path] = {}
        with disk.translated("list", str(self.keys)), suppress(FileNotFoundError):
            for file in self.keys.iterdir():
                if (name := _KEY.fullmatch(file.name)) and name[1] == of:
                    found[0 if name[2] == "next" else int(name[2] or 1)] = file
        return [found[number] for number in sorted(found, reverse=True)] if any(found) else []

    def next_key(self, of: Literal["signing", "journal"] = "signing") -> Path:
        """The file of a key that only verifies until every worker has it."""
        return self.keys / f"{of}-next.key"

    def create(self, *, journal: bool = True, answers: bool = False) -> None:
        """Create each missing folder with mode 0700, regardless of the umask, and check the others.

        No link is followed below the platform's own folders. Existing folders are not changed, so
        this can run at every start.

        Args:
            journal: also the folders of a journal and its anchor.
            answers: also the folders of the answers and their anchor.

        Raises:
            Unsafe: a folder belongs to somebody else or is open to others, or others could
                replace it. The message says what to run.
            Unavailable: a folder cannot be made, or the system is not POSIX; or there is no room.
            ConfigurationError: a link leads from one folder into another.
        """
        disk.require_posix()
        folders = self._folders()
        _check_apart(
            {name: Path(os.path.realpath(p.parent), p.name) for name, p in folders.items()}
        )
        for name, path in folders.items():
            if (journal or "journal" not in name) and (answers or "answers" not in name):
                with disk.translated("create", str(path)):
                    self._create(path)

    def _folders(self) -> dict[str, Path]:
        parts = {name: getattr(self, name) for name in _PARTS}
        return {
            **parts,
            "journal's anchor": self.journal_anchor.parent,
            "answers": self.answers_file.parent,
            "anchor of the answers": self.answers_anchor.parent,
        }

    def _create(self, path: Path) -> None:
        """Create a folder and the missing folders above it, and check each of them.

        Links are followed only up to the last folder that must already exist, and only if they are
        root's or this user's. Nobody else can write in a checked folder, so it is still the same
        folder when the next one is created in it.
        """
        top = next((root.parent for root in self.roots if root in path.parents), path.parent)
        # The XDG specification: a missing folder of the user is created, only for that user.
        while self.home in top.parents and not os.path.lexists(top):
            top = top.parent
        names = path.relative_to(top).parts
        here = Path(disk.absolute(top / names[0])).parent
        disk.enforce(files.replaceable_refusals(str(top)))
        for number, name in enumerate(names, 1):
            here /= name
            disk.create_root(str(here))
            disk.enforce(_refusals(str(here), here.lstat(), own=number == len(names)))


def _refusals(path: str, info: os.stat_result, *, own: bool) -> Iterator[Unavailable]:
    """Yield what is wrong with a folder of the store, or one around it.

    The first is this user's and closed to others; the second may be root's, and readable.
    """
    if own or not stat.S_ISDIR(info.st_mode):
        yield from disk.folder_refusals(path, info)
    else:
        yield from files.stranger_refusals(path, info)
    shown, mode = shell(path), f"{stat.S_IMODE(info.st_mode):04o}"
    if own and info.st_mode & 0o777 != 0o700:
        what = f"{shown} has mode {mode}, and should have 0700."
        yield Unsafe(what, f"Run: chmod 700 {shown}")
    if not own and info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        what = f"{shown} has mode {mode}, so others can write it."
        yield Unsafe(what, f"Run: chmod go-w {shown}")


def _check_apart(folders: Mapping[str, Path]) -> None:
    for (one, first), (other, second) in combinations(folders.items(), 2):
        if first.is_relative_to(second) or second.is_relative_to(first):
            raise ConfigurationError(
                f"The folder for the {one} {shell(str(first))} is in one place with that for the"
                f" {other} {shell(str(second))}.",
                "Whoever can write one could write the other. Give each a folder of its own.",
            )


def default_locations(
    store: str, *, service: bool | None = None, environ: Mapping[str, str] | None = None
) -> Locations:
    """Choose the folders of a store by the platform's conventions.

    ```python
    from safepoint.places import default_locations

    locations = default_locations("invoices", service=True, environ={})
    print(locations.storage)
    #> /var/lib/safepoint/invoices/storage
    print(locations.key_file)
    #> /etc/safepoint-keys/invoices/signing.key
    ```

    A user's state is below `XDG_STATE_HOME`. The keys are below `XDG_DATA_HOME`, because many
    people publish their `XDG_CONFIG_HOME`. On macOS everything is below
    `~/Library/Application Support`. A service uses the folders that systemd passes in
    `STATE_DIRECTORY`, `LOGS_DIRECTORY` and `CONFIGURATION_DIRECTORY` (the first of several), or
    `/var/lib`, `/var/log` and `/etc`. The second folder of `STATE_DIRECTORY` is for the anchors, so
    that a restore of the first does not restore them: `StateDirectory=invoices invoices-anchor`. An
    empty or relative value counts as not set.

    It only reads the environment and creates nothing.

    Args:
        store: the name of the store.
        service: whether this is a service or a user's own program. If None, it is a service if
            `STATE_DIRECTORY` is set.
        environ: the variables to read instead of `os.environ`.

    Raises:
        InvalidId: the name of the store is outside the grammar.
        ConfigurationError: the environment puts one folder inside another.
        Unavailable: the user has no home, systemd made one folder for the storage and its
            anchor, or the system is not POSIX.
    """
    disk.require_posix()
    check_name("store", store)
    given = os.environ if environ is None else environ
    if service is None:
        service = _folder(given, "STATE_DIRECTORY") is not None
    home = None if service else _home(given)
    state, anchors, logs, keys = _of_a_service(given) if home is None else _of_a_user(given, home)
    stored, logged = state / "safepoint", logs / "safepoint"
    anchored, secret = anchors / "safepoint-anchor", keys / "safepoint-keys"
    return Locations(
        store=store,
        storage=stored / store / "storage",
        keys=secret / store,
        anchor=anchored / store,
        journal=logged / store / "journal",
        roots=frozenset([stored, logged, anchored, secret]),
        home=home,
    )


def _of_a_service(environ: Mapping[str, str]) -> tuple[Path, Path, Path, Path]:
    """Return the folders that systemd created for a service, or the standard ones.

    People back up and restore a folder of systemd as a whole, so the anchors need another one.
    """
    state, anchors = _folder(environ, "STATE_DIRECTORY"), _folder(environ, "STATE_DIRECTORY", 1)
    if state is None:
        state = anchors = Path("/var/lib")
    elif anchors is None or anchors.is_relative_to(state) or state.is_relative_to(anchors):
        raise Unavailable(
            f"systemd gave one folder for state, {shell(str(state))}, so that the storage and its"
            " anchor would be restored together.",
            "Name two in the unit: StateDirectory=invoices invoices-anchor",
        )
    logs = _folder(environ, "LOGS_DIRECTORY") or Path("/var/log")
    return state, anchors, logs, _folder(environ, "CONFIGURATION_DIRECTORY") or Path("/etc")


def _of_a_user(environ: Mapping[str, str], home: Path) -> tuple[Path, Path, Path, Path]:
    """Return the folders of a user, by the XDG specification or by macOS's conventions.

    Keys are data, not configuration, because many people publish their `.config`.
    """
    if sys.platform == "darwin":
        library = home / "Library" / "Application Support"
        return library, library, library, library
    state = _absolute(environ.get("XDG_STATE_HOME", "")) or home / ".local" / "state"
    data = _absolute(environ.get("XDG_DATA_HOME", "")) or home / ".local" / "share"
    return state, state, state, data


def settings_file() -> Path | None:
    """Return where a user keeps the settings of their own, None for one without a home."""
    home = _absolute(os.environ.get("HOME", ""))
    if home is None:
        return None
    usual = home / ("Library/Application Support" if sys.platform == "darwin" else ".config")
    return (_absolute(os.environ.get("XDG_CONFIG_HOME", "")) or usual) / "safepoint/safepoint.toml"


def _folder(environ: Mapping[str, str], name: str, index: int = 0) -> Path | None:
    """Return one folder of a list in systemd's format, or None."""
    return _absolute("".join(environ.get(name, "").split(":")[index : index + 1]))


def _absolute(value: str) -> Path | None:
    """Return a path, unless it is relative or empty: then the variable counts as not set."""
    path = Path(value)
    return path if path.is_absolute() else None


def _home(environ: Mapping[str, str]) -> Path:
    found = _absolute(environ.get("HOME", ""))
    if found is None:
        raise Unavailable(
            f"User {os.geteuid()} has no home folder.",
            "Set HOME to an absolute path, or pass service=True.",
        )
    return found


def open_ledger(
    store: str,
    *,
    places: Locations | None = None,
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
    folder; `ledger.places` has the paths. They are created only if none of them exists, or if the
    existing ones were never used, because a killed first call may leave some. Otherwise a missing
    part was lost, which is refused. Creating a store is logged as a warning: if you did not expect
    it, all three parts are gone.

    Any number of processes may call it at the same time, even the first time: all get one ledger.

    Args:
        store: the name of the store.
        places: where to keep it, instead of `default_locations(store)`.
        codec: turns state into bytes and back, with your own types.
        journal: records each save and each refusal.
        actor: who acts, for the journal.
        worker: the name under which the first write to a thread takes its lease, as in `Ledger`.

    Raises:
        Unavailable: some of key, anchor and storage are there, and some are gone.
        CheckpointError: what `Locations.create` or one of the parts refuses.
    """
    found = _places(store, places)
    # A second look: while another process began the store, the first one saw half of that.
    if _lost(found) and (lost := _lost(found)):
        raise lost
    limits = (codec or Codec()).limits
    new = not found.key_files()
    if new:
        found.create(journal=False)
    # The key comes last: if it exists, every part did.
    storage = SQLiteCheckpointStorage(found.storage_file, limits=limits)
    anchor = SQLiteAnchor(found.anchor_file, create=new)
    keys = _ring(found, create=new)
    if new:
        _LOG.warning(
            "A new store %s was begun: storage %s, anchor %s, key %s. If you expected one that is"
            " there already, look at HOME, XDG_STATE_HOME and STATE_DIRECTORY before you save.",
            store,
            found.storage_file,
            found.anchor_file,
            found.key_file,
        )
    ledger = Ledger(
        storage,
        store=store,
        keys=keys,
        codec=codec,
        anchor=anchor,
        journal=journal,
        actor=actor,
        worker=worker,
    )
    ledger.places = found
    return ledger


def open_journal(
    store: str, *, places: Locations | None = None, create: bool = False
) -> SQLiteJournal:
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
        places: where it is, instead of `default_locations(store)`.
        create: create it if it is missing.

    Raises:
        Unavailable: there is none; or it has entries, and its key is gone.
        CheckpointError: what `Locations.create` or one of the parts refuses.
    """
    found = _places(store, places)
    new = create and not found.key_files("journal")
    if new:
        found.create()
        if _is_used(found.journal_file, found.journal_anchor, JOURNAL):
            raise _begun("journal", store, found.journal_key)
        SQLiteCheckpointStorage(found.journal_file).close()
    # The key comes last here as well: if it exists, every part did.
    anchor = SQLiteAnchor(found.journal_anchor, create=new)
    keys = _ring(found, "journal", create=new)
    return SQLiteJournal(found.journal_file, keys=keys, anchor=anchor)


def open_answers(store: str, *, places: Locations | None = None, create: bool = False) -> Answers:
    """Open the answers and holds that people sign, in the default places, with their anchor.

    ```python
    from safepoint.places import open_answers

    answers = open_answers("invoices", create=True)  # safepoint init does that
    ```

    Args:
        store: the name of the store.
        places: where they are, instead of `default_locations(store)`.
        create: create them if they are missing, with the folders for the signers' keys.

    Raises:
        Unavailable: there is none; or there are answers, and their anchor is gone.
        CheckpointError: what `Locations.create` or one of the parts refuses.
    """
    found = _places(store, places)
    new = create and not os.path.lexists(found.operators)  # it is created last
    if new:
        found.create(journal=False, answers=True)
        there = os.path.lexists(found.answers_anchor)
        if not there and _is_used(found.answers_file, found.answers_anchor, ANSWERS):
            raise _begun("answers", store, found.answers_anchor)
    anchor = SQLiteAnchor(found.answers_anchor, create=new)
    storage = SQLiteCheckpointStorage(found.answers_file)
    if new:
        for folder in (found.approvers, found.operators):
            disk.create_root(str(folder))
    return Answers(storage, anchor)


def _places(store: str, places: Locations | None) -> Locations:
    found = default_locations(check_store(store)) if places is None else places
    if found.store != store:
        raise ConfigurationError(
            f"The places are of store {found.store}, and store {quoted(store)} was asked for.",
            "Choose the places by the name of the store.",
        )
    return found


def _ring(
    places: Locations, of: Literal["signing", "journal"] = "signing", *, create: bool = False
) -> Keyring:
    """Load the keys of a store, or create the first one."""
    files = places.key_files(of) or [places.keys / f"{of}.key"]
    try:
        key = SigningKey.from_file(files[0], create=create)
        return Keyring(key, verify=[SigningKey.from_file(each) for each in files[1:]])
    except Unsafe:
        if places.key_files(of) in ([], files):
            raise
        return _ring(places, of)  # a rotation renamed a key in the meantime


def _begun(what: str, store: str, gone: Path) -> Unavailable:
    return Unavailable(
        f"The {what} of store {store} was begun, and is without {shell(str(gone))}.", _LOST
    )


def _lost(places: Locations) -> Unavailable | None:
    """Return what to say if some of key, anchor and storage were lost, and None if none was."""
    files = {
        "storage": places.storage_file,
        "anchor": places.anchor_file,
        "key": places.key_file,
    }
    missing = {name: path for name, path in files.items() if not os.path.lexists(path)}
    if places.key_files():  # the first one may be locked away
        missing.pop("key", None)
    # The storage is created first, and a killed first call leaves parts that were never used.
    fresh = "key" in missing and ("storage" not in missing or "anchor" in missing)
    if not missing or (
        fresh and not _is_used(places.storage_file, places.anchor_file, places.store)
    ):
        return None
    gone = " and ".join(f"the {name} {shell(str(path))}" for name, path in missing.items())
    there = " and ".join(f"the {name}" for name in files if name not in missing)
    return Unavailable(
        f"Store {places.store} was begun, and is without {gone}. It has {there}.",
        _LOST,
    )


def _is_used(file: Path, anchor: Path, name: str) -> bool:
    """Tell whether a database has records, or its anchor has heads."""
    if os.path.lexists(file):
        with SQLiteCheckpointStorage(file, read_only=True) as storage:
            if storage.threads() or storage.tenants():
                return True
    if not os.path.lexists(anchor):
        return False
    with SQLiteAnchor(anchor, read_only=True) as heads:
        return bool(heads.threads(name) or heads.tenants(name))
