"""SQLite done right, once: a file that is ours alone, whose every answer has a bound.

Under the storage and the anchor. A thread has a connection of its own, so SQLite's own locks keep
the order; a transaction that writes begins with BEGIN IMMEDIATE.

Whoever can write the file can put anything into it. So no value is read that is longer than ours
can be, no statement works for longer than ours have to, and each transaction looks whether the
schema is still the one that we made.

A connection does not survive a fork: SQLite's locks are the parent's, and a child that opens the
file anew while the library in it still counts the parent's connections gets none of its own. So
all connections are closed before a fork, and opened anew on either side when they are needed.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from threading import RLock, local
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakValueDictionary

from safepoint import _files
from safepoint.errors import (
    CheckpointError,
    LimitExceeded,
    StorageUnavailable,
    UnsafeLocation,
    quoted,
    shell,
)

BESIDE: Final = ("", "-wal", "-shm", "-journal")
"""What the names of a database's files end with."""
_STEPS: Final = 1000  # of SQLite's machine: a unit of work
_WORK: Final = 100_000
_PER_UNIT: Final = 200  # bytes of the files: whoever reads or prunes all of them needs less
_LOOK: Final = 100
_SLACK: Final = 4096  # a row is longer than the longest value in it
_SETTINGS: Final = (
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "synchronous = FULL",
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
    "secure_delete = ON",
    # What SQLite puts aside for a moment holds records, and would go to the system's /tmp.
    "temp_store = MEMORY",
)
_PARTS: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
_CHANGED: Final = (
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_TOOBIG,
)
_ERRNOS: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR_WRITE: errno.ENOSPC,  # a quota, a limit on the size of a file
    sqlite3.SQLITE_IOERR_SHMSIZE: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
}
_Files = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True)
class Schema:
    """What is in a database of ours, and by which number it says that it is ours."""

    application: int
    version: int
    sql: str

    @cached_property
    def parts(self) -> dict[tuple[str, str], list[Any]]:
        """The tables, indexes and triggers, as SQLite writes them down."""
        with closing(self._made()) as connection:
            return {(kind, name): rest for kind, name, *rest in connection.execute(_PARTS)}

    @cached_property
    def image(self) -> bytes:
        """The bytes of a new database, which has a write-ahead log."""
        with closing(self._made()) as connection:
            image = connection.serialize()
        return image[:18] + b"\2\2" + image[20:]

    def _made(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.executescript(self.sql)
        connection.execute(f"PRAGMA application_id = {self.application}")
        connection.execute(f"PRAGMA user_version = {self.version}")
        return connection


class _Slot:
    """The connection of one thread. A fork in another thread takes it away between two uses."""

    def __init__(self) -> None:
        self.lock, self.busy = RLock(), False
        self.connection: sqlite3.Connection | None = None
        self.process = 0
        self.cookie: int | None = None  # any number may stand in the file
        self.files: _Files = ()

    def drop(self) -> None:
        """Close the connection; the next call opens another one."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    __del__ = drop


class Database:
    """One file of SQLite, for all threads and processes of a machine.

    Args:
        path: the file, as somebody named it.
        schema: what is in it.
        longest: how many bytes a value may have.
        wait_seconds: how long SQLite waits for others.
        create: make the file if it is missing, with mode 0600, and its folder, with mode 0700.
        read_only: make and change nothing. If nobody uses the database, not even the files that
            SQLite puts beside it are made.

    Raises:
        UnsafeLocation: others could change what is stored there.
        StorageUnavailable: it cannot be made or opened, or is not ours.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        *,
        longest: int,
        wait_seconds: float = 30.0,
        create: bool = True,
        read_only: bool = False,
    ) -> None:
        self._closed, self._here = False, local()
        self._slots: WeakValueDictionary[int, _Slot] = WeakValueDictionary()
        self._main: tuple[int, ...] | None = None
        self.path = place_of(path)
        self._folder = str(Path(self.path).parent)
        self._schema, self._longest, self._seconds = schema, longest, wait_seconds
        self._read_only = read_only
        try:
            if create and not read_only:
                self._prepare()
        except OSError as error:
            raise self._told(error, "open") from error
        with self.transaction("open"):
            pass

    @contextmanager
    def transaction(
        self, doing: str = "read from", *, write: bool = False, many: bool = False
    ) -> Iterator[sqlite3.Connection]:
        """Read in one transaction, or write in one: on disk at the end of the block, or undone.

        Args:
            doing: what is done, before a path.
            write: whether to write.
            many: whether it goes through many rows. It may then take as much work as there are
                bytes for; no statement works for ever, whatever somebody put into the file.

        Raises:
            StorageFull: there is no room. All is as it was.
            LimitExceeded: a value is longer than any of ours.
            StorageError: the database cannot be used. All is as it was.
        """
        slot = self._slot()
        try:
            with slot.lock:
                if slot.busy:
                    raise StorageUnavailable(
                        f"This thread is in the middle of another call on {shell(self.path)}.",
                        "Do not use a storage or an anchor in the handler of a signal.",
                    )
                connection, written = self._opened(slot), False
                try:
                    slot.busy = True
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")  # a signal's handler raised in the last one
                    work = self._work() if many else _WORK
                    _bound(connection, work)
                    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                    self._look(slot)
                    if self._check_schema(slot, connection):
                        _bound(connection, work)
                    yield connection
                    written = write
                    connection.execute("COMMIT")
                except BaseException as error:
                    self._undo(slot, connection, error, written=written)
                    raise
                finally:
                    slot.busy = False
        except (OSError, UnicodeDecodeError, sqlite3.Error) as error:
            raise self._told(error, doing) from error

    def empty_log(self) -> None:
        """Move what is in the log into the database, and cut the log off, unless others read it.

        Nobody writes while it waits for readers, so it does not wait for long.
        """
        slot = self._slot()
        with slot.lock, suppress(sqlite3.Error, CheckpointError, OSError):
            connection = self._opened(slot)
            _bound(connection, self._work())
            try:
                connection.execute(f"PRAGMA busy_timeout = {min(100, int(self._seconds * 1000))}")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(self._seconds * 1000)}")

    def close(self) -> None:
        """Let go of the file. To close twice does nothing."""
        self._closed = True
        for slot in _all(self._slots):
            with slot.lock:
                slot.drop()

    # --- the connection

    def _slot(self) -> _Slot:
        slot: _Slot | None = getattr(self._here, "slot", None)
        if slot is None:
            with _LOCK:
                slot = self._here.slot = _Slot()
                _SLOTS[id(slot)] = self._slots[id(slot)] = slot
        return slot

    def _opened(self, slot: _Slot) -> sqlite3.Connection:
        process = os.getpid()
        if self._closed:
            raise StorageUnavailable(
                f"This storage on {shell(self.path)} was closed.", "Construct it again to go on."
            )
        if slot.connection is not None and slot.process == process:
            if not self._read_only or slot.files == self._state():
                return slot.connection
            slot.drop()
        others = (each for each in _all(_SLOTS) if each.process != process)
        if any(each.connection is not None for each in others):
            raise StorageUnavailable(
                f"This process was forked while {shell(self.path)} was in use, in a way that Python"
                " could not prepare for.",
                "SQLite cannot lock it here. Construct the storage after the fork.",
            )
        self._check_place()
        files = self._state()
        # Without a log nobody has it open. To read it as a file that does not change, which is
        # looked at each time, leaves no log behind. With a log SQLite itself keeps the order.
        mode = "rw" if not self._read_only else "ro" if len(files) < 2 else "ro&immutable=1"
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self.path))}?mode={mode}",
            timeout=self._seconds,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            self._set_up(slot, connection)
            slot.files = files if self._read_only else self._state()
            self._main = self._main or slot.files[0]
        except BaseException:
            connection.close()
            raise
        slot.connection, slot.process = connection, process
        return connection

    def _set_up(self, slot: _Slot, connection: sqlite3.Connection) -> None:
        """Nothing is written to a database before it is known to be ours."""
        connection.text_factory = _text
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._longest + _SLACK)
        if sys.version_info >= (3, 12):
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        _bound(connection, _LOOK)
        for setting in (*_SETTINGS, f"query_only = {int(self._read_only)}"):
            connection.execute(f"PRAGMA {setting}")
        slot.cookie = None
        self._check_schema(slot, connection)
        if not self._read_only:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StorageUnavailable(
                    f"{shell(self.path)} cannot have a write-ahead log here, only '{mode}'.",
                    "Name a file on a local file system such as ext4, XFS or APFS.",
                )
            connection.execute(_PARTS).fetchone()  # opens the files beside it

    def _check_schema(self, slot: _Slot, connection: sqlite3.Connection) -> bool:
        """Refuse a database that is not exactly ours. Return whether that took a look."""
        cookie = connection.execute("PRAGMA schema_version").fetchone()[0]
        if cookie == slot.cookie:
            return False
        _bound(connection, _LOOK)
        shown, ours = shell(self.path), self._schema
        # Not by a SELECT: a view may have the name of any function.
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        if application != ours.application:
            raise StorageUnavailable(
                f"{shown} is a database of another application (application_id {application}).",
                "Nothing in it was changed. Name another file: one that does not exist yet is"
                " made.",
            )
        if version != ours.version:
            raise StorageUnavailable(
                f"{shown} has schema {version}, and this version of safepoint knows"
                f" {ours.version}.",
                "Use the version that wrote it. If that is this one, somebody changed the database:"
                " put it back from a backup.",
            )
        left = dict(ours.parts)
        wrong = ""
        for kind, name, *rest in connection.execute(_PARTS):
            known = left.pop((kind, name), None)
            if known != rest:
                what = "was added" if known is None else "was changed"
                wrong = f"the {kind} {quoted(name)} {what}"
                break
        else:
            wrong = next((f"the {kind} {quoted(name)} is gone" for kind, name in left), "")
        if wrong:
            raise self._not_ours(wrong, ", and may have changed records")
        slot.cookie = cookie
        return True

    def _not_ours(self, what: str, more: str = "") -> StorageUnavailable:
        shown = shell(self.path)
        return StorageUnavailable(
            f"{shown} does not have the schema that safepoint made: {what}.",
            f"Somebody changed the database{more}. Put it back from a backup, and see who can"
            f" write it: ls -l {shown}",
        )

    def _undo(
        self, slot: _Slot, connection: sqlite3.Connection, error: BaseException, *, written: bool
    ) -> None:
        code = _code(error)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if written and isinstance(error, sqlite3.Error) and not _unwritten(error):
                self._withdraw(connection)
        except sqlite3.Error:
            slot.drop()
        # After these a connection is as good as before.
        if code not in (None, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL) and not _unwritten(error):
            slot.drop()

    def _withdraw(self, connection: sqlite3.Connection) -> None:
        """Write over what a commit that failed has left in the log.

        Nobody sees it now. But if all of it got there and only the sync failed, say, whoever opens
        the database after a crash would take it for saved.
        """
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA user_version = {self._schema.version}")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if _unwritten(error):
                raise StorageUnavailable(
                    f"A record was written to {shell(self.path)}, but the disk neither confirmed it"
                    " nor let it go.",
                    "Look at the system's log, and at the head of the thread, before you save"
                    " again.",
                ) from error

    # --- the files

    def _prepare(self) -> None:
        """Make the folder and the file, if they are missing: all of it, or nothing."""
        folder = self._folder
        kind = _files.network_file_system(folder)
        if kind is not None:
            raise StorageUnavailable(
                f"{shell(folder)} is on a file system that machines share ({kind}), and the"
                " processes that use an SQLite database must share memory.",
                "Name a folder on a local disk, or use PostgresCheckpointStorage, which is for"
                " many machines.",
            )
        if not _files.SUPPORTED:
            Path(folder).mkdir(mode=0o700, exist_ok=True)
            if not Path(self.path).exists():
                Path(f"{self.path}-new").write_bytes(self._schema.image)
                Path(f"{self.path}-new").rename(self.path)
            return
        _files.enforce(_files.location_refusals(folder))
        _files.create_root(folder)
        self._check_place()
        if not os.path.lexists(self.path):
            with _files.opened(folder, _files.FOLDER) as fd, _files.locked(fd, folder):
                if not os.path.lexists(self.path):
                    _files.put(self.path, fd, self._schema.image, over=True)

    def _check_place(self) -> None:
        """Refuse a place where others could change the database or a file beside it."""
        if not os.path.lexists(self.path) and self._read_only:
            raise StorageUnavailable(
                f"{shell(self.path)} does not exist.",
                "Name the file of your SQLiteCheckpointStorage.",
            )
        if not _files.SUPPORTED:
            return
        _files.enforce(_files.location_refusals(self._folder))
        for suffix in BESIDE:
            path = Path(self.path + suffix)
            with suppress(FileNotFoundError):
                _files.enforce(_files.record_refusals(str(path), path.lstat()))
                _files.enforce(_files.hard_link_refusals(str(path), path.lstat))

    def _look(self, slot: _Slot) -> None:
        """Refuse to go on with files that somebody has put others in the place of.

        SQLite would not notice: it goes on with what it has open, which nobody else can find.
        """
        if not _files.SUPPORTED or self._read_only:
            return
        folder, info = os.lstat(self._folder), os.lstat(self.path)
        if not _files.private(folder, stat.S_IFDIR):
            _files.enforce(_files.folder_refusals(self._folder, folder))
        if not _files.private(info, stat.S_IFREG):
            _files.enforce(_files.record_refusals(self.path, info))
        found = self._state(info)
        if found == slot.files and found[0] == self._main:
            return
        shown = shell(self.path)
        if found[0] != self._main:
            raise UnsafeLocation(
                f"{shown} is not the file that this storage was opened on.",
                "Find out who replaced it, and construct the storage again if that is right:"
                f" ls -l {shown}",
            )
        lost = self.path + BESIDE[1 if found[1] != slot.files[1] else 2]
        raise StorageUnavailable(
            f"{shell(lost)} was removed or replaced while it was in use, so nothing more is saved.",
            "What was saved last may be gone with it. Stop every process that uses the database,"
            " and construct the storage again: the ledger's anchor tells what is missing.",
        )

    def _state(self, info: os.stat_result | None = None) -> _Files:
        """Return what tells the files from others; for a reader, whether anybody writes them."""
        info = info or os.lstat(self.path)
        file = info.st_dev, info.st_ino
        if not self._read_only:
            return file, _number(f"{self.path}-wal"), _number(f"{self.path}-shm")
        if any(os.path.lexists(self.path + each) for each in ("-wal", "-journal")):
            return (file,)
        return file, (info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    def _work(self) -> int:
        """Return how much it takes to go through all that is there."""
        found = (Path(self.path + suffix) for suffix in BESIDE)
        return _WORK + sum(file.stat().st_size for file in found if file.exists()) // _PER_UNIT

    # --- what went wrong, in our words

    def _told(
        self, error: OSError | UnicodeDecodeError | sqlite3.Error, doing: str
    ) -> CheckpointError:
        shown, code = shell(self.path), _code(error)
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        lost = ", so nothing was saved" if doing == "save to" else ""
        backup = f"Put it back from a backup, and see who can write it: ls -l {shown}"
        if isinstance(error, FileNotFoundError) and doing == "open":
            # What is missing was made a moment ago, or would have been.
            what = f"{shown} cannot be made there (ENOENT)."
            do = "Name a file in a folder where this user can make files."
        elif isinstance(error, OSError):
            return _files.translate(error, doing, self.path)
        elif isinstance(error, UnicodeDecodeError):  # of the schema: SQLite's message quotes it
            return self._not_ours("it is not even text")
        elif code == sqlite3.SQLITE_TOOBIG and doing != "open":
            return LimitExceeded(
                f"A value in {shown} has more than {self._longest} bytes"
                f"{lost or ', so it was not read'}.",
                "Keep large data outside the state, or pass Limits(state_bytes=...) with a higher"
                f" limit. If you never saved that much, somebody changed the database. {backup}",
            )
        elif code == sqlite3.SQLITE_BUSY:
            what = f"Another program has held {shown} for {self._seconds:g} s."
            do = f"Nothing was saved. Find it, let it end, and try again: fuser -v {shown}"
        elif code == sqlite3.SQLITE_NOTADB:
            what = f"{shown} is not an SQLite database."
            do = (
                "Nothing in it was changed. Name another file, or put the database back from a"
                f" backup; see what is there: file {shown}"
            )
        elif code == sqlite3.SQLITE_CORRUPT:
            what = f"{shown} is damaged ({name}){lost}."
            do = (
                "Stop every process that uses it, and put it back from a backup. See what is wrong:"
                f" sqlite3 -readonly {shown} 'PRAGMA integrity_check'"
            )
        elif code in _CHANGED:
            what = f"{shown} does not hold what safepoint writes ({name}){lost}."
            do = f"Somebody changed the database. {backup}"
        else:
            exact = getattr(error, "sqlite_errorcode", 0)
            number = _ERRNOS.get(exact, _ERRNOS.get(code or 0, errno.EIO))
            return _files.translate(OSError(number, ""), doing, self.path)
        return StorageUnavailable(what, do)


def place_of(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of the file that a database is in, or would be.

    Raises:
        StorageUnavailable: it is not a path, is that of a folder, or cannot be reached.
    """
    named = _files.as_named(path, "path", "file")
    if str(path).lower().startswith((":memory:", "file:", "sqlite:")):
        raise StorageUnavailable(
            f"{quoted(str(path))} is not the path of a file.",
            "Name the file itself, state/checkpoints.db, or use InMemoryCheckpointStorage() for a"
            " test.",
        )
    if named.name in ("", "..") or named.is_dir():
        raise StorageUnavailable(
            f"{shell(str(named))} is a folder, and a database is one file.",
            f"Name a file in it: {shell(str(named / 'checkpoints.db'))}",
        )
    return str(Path(_files.absolute(named.parent, "path"), named.name))


def _number(path: str) -> tuple[int, int] | None:
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


def _bound(connection: sqlite3.Connection, work: int) -> None:
    """Interrupt what takes more work.

    No Python runs in between, so that no signal is lost there: its handler runs as soon as the
    statement has ended.
    """
    connection.set_progress_handler(chain(repeat(0, work), repeat(1)).__next__, _STEPS)


def _text(data: bytes) -> str:
    """Read a text that may be somebody else's: what is not UTF-8 is no name of ours."""
    return data.decode("utf-8", "replace")


def _code(error: BaseException) -> int | None:
    """Return SQLite's primary code, 0 if it has none, None if the error is no fault of SQLite."""
    if not isinstance(error, (sqlite3.Error, UnicodeDecodeError)):
        return None
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _unwritten(error: BaseException) -> bool:
    """Tell whether a commit failed before all of it was in the log."""
    exact = getattr(error, "sqlite_errorcode", 0)
    return _code(error) == sqlite3.SQLITE_FULL or exact == sqlite3.SQLITE_IOERR_WRITE


_LOCK = RLock()
"""Held while a slot is added, and during a fork."""
_SLOTS: WeakValueDictionary[int, _Slot] = WeakValueDictionary()
_HELD: list[_Slot] = []


def _all(slots: WeakValueDictionary[int, _Slot]) -> list[_Slot]:
    # Not by iterating: another thread may add one meanwhile.
    return [slot for ref in slots.valuerefs() if (slot := ref()) is not None]


def _before_fork() -> None:
    _LOCK.acquire()
    for slot in _all(_SLOTS):
        _HELD.append(slot)
        slot.lock.acquire()
        slot.drop()


def _after_fork() -> None:
    try:
        _let_go()
    except BaseException:  # a signal's handler raised, here where nobody hears of it
        _let_go()
        raise


def _let_go() -> None:
    while _HELD:
        slot = _HELD.pop()
        with suppress(RuntimeError):  # a handler raised before it was held
            slot.lock.release()
    with suppress(RuntimeError):  # whoever forked did not say so before
        _LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
