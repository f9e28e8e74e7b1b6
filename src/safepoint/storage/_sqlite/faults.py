"""What SQLite reports, in our words: what happened, and what to run."""

from __future__ import annotations

import os
import secrets
import sqlite3
from pathlib import Path

from safepoint import _files as _posix
from safepoint.errors import StorageError, StorageFull, StorageUnavailable, shell
from safepoint.storage._sqlite.turns import held

_PROBE = 1 << 18


class Faults:
    """Turns what SQLite and the system report into the error tree, at the end of a `with`.

    Args:
        doing: what failed, before a path: "save to", "read from", "open" or "prune".
        path: the database.
        seconds: how long SQLite waits for others.

    Raises:
        StorageFull: there is no room.
        StorageUnavailable: anything else.
    """

    __slots__ = ("doing", "path", "seconds")

    def __init__(self, doing: str, path: str, seconds: float) -> None:
        self.doing = doing
        self.path = path
        self.seconds = seconds

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, FileNotFoundError) and self.doing == "open":
            # What is missing was made a moment ago, or would have been.
            raise StorageUnavailable(
                f"{shell(self.path)} cannot be made there (ENOENT).",
                "Name a file in a folder where this user can make files.",
            ) from error
        if isinstance(error, OSError):
            raise _posix.translate(error, self.doing, self.path) from error
        if isinstance(error, sqlite3.Error):
            raise self.translate(error) from error

    def translate(self, error: sqlite3.Error) -> StorageError:
        """Return the error that says what SQLite's one means here, and what to do."""
        shown, folder = shell(self.path), shell(str(Path(self.path).parent))
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        lost = ", so nothing was saved" if self.doing == "save to" else ""
        kind = code(error)
        if kind == sqlite3.SQLITE_IOERR:
            # SQLite keeps the system's own code to itself. So ask the system again.
            full = _no_room(self.path)
            if full is not None:
                return _posix.translate(OSError(full, ""), self.doing, self.path)
        if kind == sqlite3.SQLITE_FULL:
            return StorageFull(
                f"There is no room left for {shown} ({name}){lost}.",
                "Free some space, or raise the quota or the file size limit, and try again.",
            )
        if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return held(self.path, self.seconds)
        if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return StorageUnavailable(
                f"This process may not {self.doing} {shown} ({name}){lost}.",
                "It must be able to write the file, its folder and the files beside it. Run: chmod"
                f" u+rw {shown} && chmod u+rwx {folder}",
            )
        if kind == sqlite3.SQLITE_NOTADB:
            return StorageUnavailable(
                f"{shown} is not an SQLite database.",
                "Nothing in it was changed. Name another file, or put the database back from a"
                f" backup; see what is there: file {shown}",
            )
        if kind == sqlite3.SQLITE_CORRUPT:
            return StorageUnavailable(
                f"{shown} is damaged ({name}){lost}.",
                "Stop every process that uses it, and put it back from a backup. See what is wrong:"
                f" sqlite3 -readonly {shown} 'PRAGMA integrity_check'",
            )
        if kind == sqlite3.SQLITE_CONSTRAINT:
            return StorageUnavailable(
                f"The rules in {shown} do not allow that ({name}){lost}.",
                "Somebody changed its rows by hand. Put it back from a backup, and see who can"
                f" write it: ls -l {shown}",
            )
        if kind in (sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR):
            return StorageUnavailable(
                f"The schema of {shown} was changed while it was open ({name}){lost}.",
                "Construct the storage again: it says what was changed.",
            )
        return StorageUnavailable(
            f"The system could not {self.doing} {shown} ({name}){lost}.",
            "Look at the system's log for the cause before you try again.",
        )


def code(error: sqlite3.Error) -> int:
    """Return SQLite's primary code; 0 if the error is not of SQLite itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _no_room(path: str) -> int | None:
    """Return why the system has no room for more of the database, or None if it has."""
    if not _posix.SUPPORTED:
        return None
    name = f"{path}-{secrets.token_hex(8)}"
    try:
        files = [file for file in (Path(path), Path(f"{path}-wal")) if file.exists()]
        size = max((file.stat().st_size for file in files), default=0)
        with _posix.opened(name, _posix.CREATE) as fd:
            Path(name).unlink()
            _posix.write_all(fd, bytes(_PROBE))
            os.ftruncate(fd, size + _PROBE)  # a limit on the size of a file is asked here
    except OSError as error:
        return error.errno if error.errno in _posix.FULL else None
    return None


def unwritten(error: sqlite3.Error) -> bool:
    """Tell whether a commit failed before all of it was in the log."""
    exact = getattr(error, "sqlite_errorcode", 0)
    return code(error) == sqlite3.SQLITE_FULL or exact == sqlite3.SQLITE_IOERR_WRITE


def not_withdrawn(path: str) -> StorageUnavailable:
    """Say that a record may come back that nobody was told of."""
    return StorageUnavailable(
        f"A record was written to {shell(path)}, but the disk neither confirmed it nor let it go.",
        "Look at the system's log, and at the head of the thread, before you save again.",
    )
