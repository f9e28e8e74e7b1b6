"""Place: the file of a database, the files that SQLite puts beside it, and who can change them.

Nothing here opens the database or its `-shm`. SQLite's locks belong to the process: closing any
descriptor of such a file lets go of all of them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Lock
from typing import Final

from safepoint import _files as _posix
from safepoint._files import (
    absolute,
    as_named,
    enforce,
    folder_refusals,
    hard_link_refusals,
    location_refusals,
    network_file_system,
    record_refusals,
)
from safepoint.errors import StorageUnavailable, UnsafeLocation, quoted, shell

LOCK: Final = "-lock"
_BESIDE: Final = ("-wal", "-shm")
_ALL: Final = ("", *_BESIDE, "-journal", LOCK)
_URIS: Final = ("file:", "sqlite:")
OPENING = Lock()
"""Held while a file is made, so that nobody in this process has it open when it is closed."""

Identity = tuple[tuple[int, int] | None, ...]


class Place:
    """Where a database is. On a system that is not POSIX, who can write there is not looked at.

    Args:
        path: the file, as somebody named it. Its folder may be missing.

    Raises:
        StorageUnavailable: it is not a path, is that of a folder, or cannot be reached.
        UnsafeLocation: what is above it is not a folder.
    """

    __slots__ = ("_files", "folder", "path")

    def __init__(self, path: object) -> None:
        _refuse_spelling(path)
        named = as_named(path, "path", "file")
        shown = shell(str(named))
        if named.name in ("", "..") or named.is_dir():
            raise StorageUnavailable(
                f"{shown} is a folder, and a database is one file.",
                f"Name a file in it: {shell(str(named / 'checkpoints.db'))}",
            )
        self.folder = absolute(named.parent, "path")
        self.path = str(Path(self.folder, named.name))
        self._files = tuple(self.path + suffix for suffix in ("", *_BESIDE))

    def prepare(self) -> None:
        """Make the folder with mode 0700 and an empty file with mode 0600, if they are missing.

        Raises:
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: it is on a file system that machines share, or this user may not
                make it.
            OSError: a step failed.
        """
        kind = network_file_system(self.folder)
        if kind is not None:
            raise StorageUnavailable(
                f"{shell(self.folder)} is on a file system that machines share ({kind}), and the"
                " processes that use an SQLite database must share memory.",
                "Name a folder on a local disk, or use PostgresCheckpointStorage, which is for"
                " many machines.",
            )
        if _posix.SUPPORTED:
            enforce(location_refusals(self.folder))
            _posix.create_root(self.folder)
        elif not Path(self.folder).is_dir():
            Path(self.folder).mkdir(mode=0o700)
        self.check()
        with OPENING:
            self._create()

    def check(self) -> None:
        """Refuse a place where others could change the database or a file beside it.

        Raises:
            UnsafeLocation: they could, or one of the files is not what SQLite makes.
        """
        if not _posix.SUPPORTED:
            return
        enforce(location_refusals(self.folder))
        for suffix in _ALL:
            path = Path(self.path + suffix)
            try:
                enforce(record_refusals(str(path), path.lstat()))
                enforce(hard_link_refusals(str(path), path.lstat, None))
            except FileNotFoundError:
                pass

    def identity(self) -> Identity:
        """Return what tells the database and the files beside it from any others."""
        if not _posix.SUPPORTED:
            return ()
        return tuple(map(_number, self._files))

    def look(self, identity: Identity) -> None:
        """Refuse to go on with files that somebody has put others in the place of.

        SQLite would not notice: it goes on with what it has open, which nobody else can find.

        Args:
            identity: what `identity` returned when SQLite had just opened them.

        Raises:
            UnsafeLocation: the database was replaced, or others can write it by now.
            StorageUnavailable: a file beside it was removed or replaced.
            OSError: one is gone.
        """
        if not _posix.SUPPORTED:
            return
        folder, info = os.lstat(self.folder), os.lstat(self.path)
        if not _posix.private(folder, stat.S_IFDIR):
            enforce(folder_refusals(self.folder, folder))
        if not _posix.private(info, stat.S_IFREG):
            enforce(record_refusals(self.path, info))
        log, shared = self._files[1:]
        found = ((info.st_dev, info.st_ino), _number(log), _number(shared))
        if found == identity:
            return
        shown = shell(self.path)
        if found[0] != identity[0]:
            raise UnsafeLocation(
                f"{shown} is not the file that this storage was opened on.",
                "Find out who replaced it, and construct the storage again if that is right:"
                f" ls -l {shown}",
            )
        lost = self.path + _BESIDE[0 if found[1] != identity[1] else 1]
        raise StorageUnavailable(
            f"{shell(lost)} was removed or replaced while it was in use, so nothing more is saved.",
            "What was saved last may be gone with it. Stop every process that uses the database,"
            " and construct the storage again: the ledger's anchor tells what is missing.",
        )

    def _create(self) -> None:
        try:
            fd = os.open(self.path, _posix.CREATE, 0o600)
        except FileExistsError:
            return
        try:
            if _posix.SUPPORTED:
                os.fchmod(fd, 0o600)  # the umask took bits that SQLite needs
        finally:
            os.close(fd)
        if _posix.SUPPORTED:
            with _posix.opened(self.folder, _posix.FOLDER) as folder:
                os.fsync(folder)


def _number(path: str) -> tuple[int, int] | None:
    """Return what tells a file from any other, or None if there is none."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


def _refuse_spelling(path: object) -> None:
    """Refuse what SQLite or a library above it would not take for the name of a file."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if text == ":memory:":
        raise StorageUnavailable(
            "':memory:' is no file, and this storage keeps its records in one.",
            "Use InMemoryCheckpointStorage() for a test, or name a file.",
        )
    if isinstance(text, str) and text.lower().startswith(_URIS):
        raise StorageUnavailable(
            f"{quoted(text)} is a URI, and this storage takes the path of a file.",
            "Name the file itself: state/checkpoints.db",
        )
