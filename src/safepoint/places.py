"""Where state lives when nobody says where: each part in a folder of its own, for its owner alone.

              a user on Linux                           a service
    storage   ~/.local/state/safepoint/<store>/storage  /var/lib/safepoint/<store>/storage
    journal   ~/.local/state/safepoint/<store>/journal  /var/log/safepoint/<store>/journal
    anchor    ~/.local/state/safepoint-anchor/<store>   /var/lib/safepoint-anchor/<store>
    keys      ~/.local/share/safepoint-keys/<store>     /etc/safepoint-keys/<store>

What a backup takes together is below `safepoint`. The anchor and the keys are elsewhere, so that
nobody restores the first with the storage, or finds the second in the storage's backup.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path
from typing import Final

from safepoint._files import (
    FOLDER,
    Descriptor,
    absolute,
    as_named,
    enforce,
    folder_refusals,
    group_refusals,
    make_folder,
    replaceable_refusals,
    require_posix,
    stranger_refusals,
    translated,
)
from safepoint.anchor import FileAnchor
from safepoint.codec import Codec
from safepoint.errors import (
    ConfigurationError,
    StorageError,
    StorageUnavailable,
    UnsafeLocation,
    quoted,
    shell,
)
from safepoint.journal import Actor, FileJournal
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.names import check_name
from safepoint.storage import FileCheckpointStorage

if sys.platform != "win32":
    import pwd

_MAC: Final = Path("Library", "Application Support")


@dataclass(frozen=True, slots=True)
class Bases:
    """Where a program keeps its state, anchors, logs and keys; and the home of its user, if any."""

    state: Path
    anchors: Path
    logs: Path
    keys: Path
    home: Path | None = None


def is_service(environ: Mapping[str, str]) -> bool:
    """Tell whether this looks like a service: root runs it, or systemd gave it a folder."""
    return os.geteuid() == 0 or _folder(environ, "STATE_DIRECTORY") is not None


def of_a_service(environ: Mapping[str, str]) -> Bases:
    """Return the folders that systemd made for a service, or those that every system has.

    A folder that systemd made is what people back up and restore. So the anchors need another one.

    Raises:
        StorageUnavailable: systemd made a folder for state, and none apart from it for the anchors.
    """
    state, anchors = _folder(environ, "STATE_DIRECTORY"), _folder(environ, "STATE_DIRECTORY", 1)
    if state is None:
        state = anchors = Path("/var/lib")
    elif anchors is None or anchors.is_relative_to(state) or state.is_relative_to(anchors):
        raise StorageUnavailable(
            f"systemd gave one folder for state, {shell(str(state))}, so that the storage and its"
            " anchor would be restored together.",
            "Name two in the unit: StateDirectory=invoices invoices-anchor",
        )
    return Bases(
        state=state,
        anchors=anchors,
        logs=_folder(environ, "LOGS_DIRECTORY") or Path("/var/log"),
        keys=_folder(environ, "CONFIGURATION_DIRECTORY") or Path("/etc"),
    )


def of_a_user(environ: Mapping[str, str], platform: str = sys.platform) -> Bases:
    """Return the folders of a user, by the XDG specification or as macOS has them.

    Keys are data and no configuration: many people publish their `.config`.

    Raises:
        StorageUnavailable: the user has no home.
    """
    home = _home(environ)
    if platform == "darwin":
        return Bases(home / _MAC, home / _MAC, home / _MAC, home / _MAC, home)
    state = _absolute(environ.get("XDG_STATE_HOME", "")) or home / ".local" / "state"
    data = _absolute(environ.get("XDG_DATA_HOME", "")) or home / ".local" / "share"
    return Bases(state, state, state, data, home)


def _folder(environ: Mapping[str, str], name: str, index: int = 0) -> Path | None:
    """Return one folder of a list, as systemd writes them, or None."""
    return _absolute("".join(environ.get(name, "").split(":")[index : index + 1]))


def _absolute(value: str) -> Path | None:
    """Return a path, unless it is relative or empty: then the variable counts as not set."""
    path = Path(value)
    return path if path.is_absolute() else None


def _home(environ: Mapping[str, str]) -> Path:
    named = _absolute(environ.get("HOME", ""))
    if named is not None:
        return named
    with suppress(KeyError):
        known = _absolute(pwd.getpwuid(os.geteuid()).pw_dir)
        if known is not None:
            return known
    raise StorageUnavailable(
        f"User {os.geteuid()} has no home folder.",
        "Set HOME to an absolute path, or pass service=True.",
    )


_Refusals = Callable[[str, os.stat_result], Iterator[StorageError]]


def make_folders(path: Path, top: Path) -> None:
    """Make a folder and those above it that are missing, each with mode 0700 whatever the umask.

    What exists is looked at and not changed. Up to `top`, links are followed if they are root's
    or this user's; below it, none is.

    Args:
        path: the folder.
        top: the last folder above it that must be there.

    Raises:
        UnsafeLocation: a folder belongs to somebody else or is open to others, or others could
            replace it.
        StorageUnavailable: a folder cannot be made or opened.
        StorageFull: there is no room.
    """
    names = path.relative_to(top).parts
    start = Path(absolute(top / names[0])).parent
    with translated("create", str(path)):
        enforce(
            chain(
                replaceable_refusals(str(top)),
                group_refusals(str(top)),
                group_refusals(str(start)),
            )
        )
        _descend(start, names)


def _descend(start: Path, names: tuple[str, ...]) -> None:
    path = start.joinpath(*names)
    with ExitStack() as opened:
        fd = opened.enter_context(_open(str(start), None, str(start), _above))
        for number, name in enumerate(names, 1):
            here = str(start.joinpath(*names[:number]))
            try:
                if make_folder(name, fd):
                    os.fsync(fd)
            except PermissionError as error:
                raise StorageUnavailable(
                    f"This process may not create {shell(str(path))}.",
                    f"Run: sudo install -d -m 700 -o {os.geteuid()} {shell(str(path))}",
                ) from error
            refusals = _own_refusals if number == len(names) else _parent_refusals
            fd = opened.enter_context(_open(name, fd, here, refusals))


def _open(name: str, dir_fd: int | None, path: str, refusals: _Refusals) -> Descriptor:
    try:
        fd = os.open(name, FOLDER, dir_fd=dir_fd)
    except OSError as error:
        # The code depends on the system (a link: ELOOP, ENOTDIR, EMLINK). Look what it is.
        enforce(refusals(path, os.stat(name, dir_fd=dir_fd, follow_symlinks=False)))
        if isinstance(error, PermissionError):
            raise StorageUnavailable(
                f"This process may not look into {shell(path)}.",
                f"Run: sudo chmod go+rx {shell(path)}",
            ) from error
        raise
    found = Descriptor(fd, os.fstat(fd))
    try:
        # What counts is what was opened, not what the name meant a moment before or after.
        enforce(refusals(path, found.info))
    except BaseException:
        os.close(fd)
        raise
    return found


def _above(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield nothing: what is not ours to make was asked about before it was opened."""
    del path, info
    yield from ()


def _parent_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a folder around the store's own. It may be root's, or readable."""
    yield from _kind_refusals(path, info)
    yield from stranger_refusals(path, info)
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield _mode(path, info)


def _own_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a folder of the store: it is this user's, and closed to others."""
    yield from _kind_refusals(path, info)
    user = os.geteuid()
    if info.st_uid != user:
        yield UnsafeLocation(
            f"{shell(path)} belongs to user {info.st_uid}, and this process is user {user}.",
            f"If what is inside is yours, run: sudo chown {user} {shell(path)}",
        )
    if info.st_mode & 0o777 != 0o700:
        yield _mode(path, info)


def _kind_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    if not stat.S_ISDIR(info.st_mode):
        yield from folder_refusals(path, info)


def _mode(path: str, info: os.stat_result) -> UnsafeLocation:
    return UnsafeLocation(
        f"{shell(path)} has mode {stat.S_IMODE(info.st_mode):04o}, and should have 0700.",
        f"Run: chmod 700 {shell(path)}",
    )


KEY: Final = "signing.key"
JOURNAL_KEY: Final = "journal.key"
_PARTS: Final = ("storage", "keys", "anchor", "journal")


@dataclass(frozen=True, slots=True)
class Locations:
    """The folders of a store. None of them lies inside another.

    `default_locations` chooses them. To move one, for example to a volume of its own, replace it:

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
        storage: for `FileCheckpointStorage`.
        keys: for the key files.
        anchor: for `FileAnchor`.
        journal: for `FileJournal`.
        roots: the folders of this package among the platform's. In these, `create` makes what is
            missing between them and the folders above.
        home: the user's home. In it, `create` also makes what is missing above the roots.

    Raises:
        InvalidId: the name of the store is outside the grammar.
        ConfigurationError: a path is relative, or one folder is inside another.
        StorageUnavailable: a path cannot be one.
    """

    store: str
    storage: Path
    keys: Path
    anchor: Path
    journal: Path
    roots: frozenset[Path] = field(default=frozenset(), repr=False)
    home: Path | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_name("store", self.store)
        for name in _PARTS:
            path = as_named(getattr(self, name), f"The folder for the {name}")
            if path != Path(getattr(self, name)):
                raise ConfigurationError(
                    f"The folder for the {name} is a relative path, which leads elsewhere as soon"
                    " as the process starts elsewhere.",
                    "Name an absolute path.",
                )
            if path.name in ("", ".."):
                raise ConfigurationError(
                    f"The folder for the {name} is {quoted(str(path))}, which is no folder of its"
                    " own.",
                    "Name one that is for this store alone.",
                )
            object.__setattr__(self, name, path)
        _check_apart(self._folders())

    @property
    def key_file(self) -> Path:
        """The file of the signing key, in the folder of the keys."""
        return self.keys / KEY

    @property
    def journal_key(self) -> Path:
        """The file of the key that signs the journal: whoever writes records cannot rewrite it."""
        return self.keys / JOURNAL_KEY

    @property
    def journal_anchor(self) -> Path:
        """For the `FileAnchor` of the journal, beside the other. No store can have its name."""
        return self.anchor.with_name(f"{self.anchor.name}.journal")

    def create(self) -> None:
        """Make each folder that is missing, with mode 0700 whatever the umask, and check the rest.

        No link is followed below the platform's own folders. What exists is not changed, so this
        can run at every start. Keys are not made here: `SigningKey.from_file` does that.

        Raises:
            UnsafeLocation: a folder belongs to somebody else or is open to others, or others could
                replace it. The message says what to run.
            StorageUnavailable: a folder cannot be made, or the system is not POSIX.
            StorageFull: there is no room.
            ConfigurationError: a link leads from one folder into another.
        """
        require_posix()
        folders = self._folders()
        _check_apart({name: _resolved(path) for name, path in folders.items()})
        for path in folders.values():
            self._create(path)

    def ledger(
        self, *, create: bool = False, codec: Codec | None = None, actor: Actor | None = None
    ) -> Ledger:
        """Open the store: files, a key and an anchor for them, and a journal with its own.

        For a ring of several keys, or parts of your own, construct the `Ledger` yourself.

        Args:
            create: make the folders, the keys, the anchors and the journal that are missing. Pass
                it once, when you set the store up: what is gone later is then refused, and not
                begun anew.
            codec: turns state into bytes and back, with your own types.
            actor: who acts, for the journal; the user of this process if you leave it out.

        Raises:
            CheckpointError: what `create`, `SigningKey.from_file`, `FileAnchor`, `FileJournal`,
                `FileCheckpointStorage` or `Ledger` refuses.
        """
        if create:
            self.create()
        keys = Keyring(SigningKey.from_file(self.key_file, create=create))
        journal = FileJournal(
            self.journal,
            keys=Keyring(SigningKey.from_file(self.journal_key, create=create)),
            name=self.store,
            anchor=FileAnchor(self.journal_anchor, create=create),
            create=create,
        )
        anchor = FileAnchor(self.anchor, create=create)
        return Ledger(
            FileCheckpointStorage(self.storage),
            store=self.store,
            keys=keys,
            codec=codec,
            anchor=anchor,
            journal=journal,
            actor=actor,
        )

    def _folders(self) -> dict[str, Path]:
        return {
            "storage": self.storage,
            "keys": self.keys,
            "anchor": self.anchor,
            "journal": self.journal,
            "journal's anchor": self.journal_anchor,
        }

    def _create(self, path: Path) -> None:
        top = next((root.parent for root in self.roots if root in path.parents), path.parent)
        # The XDG specification: a folder of the user's that is missing is made, for them alone.
        while self.home in top.parents and not os.path.lexists(top):
            top = top.parent
        make_folders(path, top)


def default_locations(
    store: str, *, service: bool | None = None, environ: Mapping[str, str] | None = None
) -> Locations:
    """Choose where a store keeps its parts, by the conventions of the platform.

    ```python
    from safepoint.places import default_locations

    locations = default_locations("invoices", service=True, environ={})
    print(locations.storage)
    #> /var/lib/safepoint/invoices/storage
    print(locations.key_file)
    #> /etc/safepoint-keys/invoices/signing.key
    ```

    A user's state is below `XDG_STATE_HOME`, and the keys are below `XDG_DATA_HOME`: many people
    publish what is in `XDG_CONFIG_HOME`. On macOS all is below `~/Library/Application Support`.
    A service has what systemd hands it in `STATE_DIRECTORY`, `LOGS_DIRECTORY` and
    `CONFIGURATION_DIRECTORY` (the first, of several), or `/var/lib`, `/var/log` and `/etc`. Of
    `STATE_DIRECTORY` the second folder is for the anchors, so that no restore of the first takes
    them back: `StateDirectory=invoices invoices-anchor`. A value that is empty or relative counts
    as not set.

    Nothing is created, and nothing is looked at but the environment.

    Args:
        store: the name of the store.
        service: whether this is a service, or a user's own program. None decides: it is one if
            root runs it, or `STATE_DIRECTORY` is set.
        environ: what to read in place of `os.environ`.

    Raises:
        InvalidId: the name of the store is outside the grammar.
        ConfigurationError: `service` is not a bool, or the environment puts one folder inside
            another.
        StorageUnavailable: the user has no home, systemd made one folder for the storage and its
            anchor, or the system is not POSIX.
    """
    require_posix()
    check_name("store", store)
    if not isinstance(service, (bool, type(None))):
        raise ConfigurationError(
            f"service is {quoted(service)}.", "Write service=True, service=False, or nothing."
        )
    given = os.environ if environ is None else environ
    if is_service(given) if service is None else service:
        bases = of_a_service(given)
    else:
        bases = of_a_user(given)
    stored, logged = bases.state / "safepoint", bases.logs / "safepoint"
    anchored, secret = bases.anchors / "safepoint-anchor", bases.keys / "safepoint-keys"
    return Locations(
        store=store,
        storage=stored / store / "storage",
        keys=secret / store,
        anchor=anchored / store,
        journal=logged / store / "journal",
        roots=frozenset([stored, logged, anchored, secret]),
        home=bases.home,
    )


def _resolved(path: Path) -> Path:
    """Return where a folder is, or would be. Itself, it must not be a link."""
    return Path(os.path.realpath(path.parent), path.name)


def _check_apart(folders: Mapping[str, Path]) -> None:
    for (one, first), (other, second) in combinations(folders.items(), 2):
        if first.is_relative_to(second) or second.is_relative_to(first):
            raise ConfigurationError(
                f"The folder for the {one} {shell(str(first))} is in one place with that for the"
                f" {other} {shell(str(second))}.",
                "Whoever can write one could write the other. Give each a folder of its own.",
            )
