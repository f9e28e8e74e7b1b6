"""SQLite done right, once: a file that is ours alone, whose every answer has a bound.

Under the storage, the anchor and the journal. The threads of a process take turns on one
connection, and SQLite's own locks keep the order among processes. A transaction that writes begins
with BEGIN IMMEDIATE, and waits for others in short steps, so that Ctrl-C is heard.

Whoever can write the file can put anything into it. So no value is read that is longer than ours
can be, no statement works for longer than ours have to, and each transaction looks whether the
schema is still the one that we made.

A connection does not survive a fork: SQLite's locks are the parent's. So a child is refused.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from threading import RLock
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

from safepoint.core.errors import CheckpointError, LimitExceeded, StorageUnavailable, quoted, shell
from safepoint.stores import disk

_T = TypeVar("_T")
_Files = list[tuple[int, ...] | None]
BESIDE: Final = ("", "-wal", "-shm", "-journal")
_STEPS: Final = 1000  # of SQLite's machine: a unit of work
_LOOK: Final = 100  # to open it, and to look at its schema
_WORK: Final = 100_000
_PER_UNIT: Final = 200  # bytes of the file: whoever reads or prunes all of it needs less
_SLACK: Final = 4096  # a row is longer than the longest value in it
_STEP: Final = 0.1
"""How many seconds SQLite waits for others before Python looks whether Ctrl-C was pressed."""
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
# What the system has said to SQLite, by SQLite's exact code or by its primary one.
_ERRNOS: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR_WRITE: errno.ENOSPC,  # a quota, a limit on the size of a file
    sqlite3.SQLITE_IOERR_SHMSIZE: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_PROTOCOL: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
}
_OPEN: Final[dict[int, tuple[int, tuple[int, ...]]]] = {}
"""In which process each file is open, and its number and device, by the connection."""


@cache
def _made(schema: str) -> tuple[frozenset[tuple[Any, ...]], bytes]:
    """Return the parts of a new database as SQLite writes them down, and its bytes."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        new.executescript(schema)
        image = new.serialize()
        return frozenset(new.execute(_PARTS)), image[:18] + b"\2\2" + image[20:]  # with a log


class _Connection:
    """The connection of a process. It is closed when nobody uses it any more."""

    cookie: int | None = None

    def __init__(self, sql: sqlite3.Connection, files: _Files) -> None:
        self.sql, self.files, self.process = sql, files, os.getpid()
        _OPEN[id(self)] = self.process, _number(files)

    def __del__(self) -> None:
        if self.process == os.getpid():  # a child must not close what its parent has open
            _OPEN.pop(id(self), None)
            self.sql.close()


class _Shared:
    """What a database and its tenants share: the connection, and which file it is.

    One thread uses it at a time. SQLite has one writer at a time anyway, and a framework that runs
    each step in a new thread would open the file anew for each.
    """

    def __init__(self) -> None:
        self.lock, self.process = RLock(), os.getpid()
        self.opened: _Connection | None = None
        self.is_closed = False
        self.main: tuple[int, ...] | None = None


class Database:
    """One file of SQLite, for all threads and processes of a machine.

    Args:
        path: the file, as somebody named it.
        schema: the SQL that makes what is in it.
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
        schema: str,
        *,
        longest: int,
        wait_seconds: float = 30.0,
        create: bool = True,
        read_only: bool = False,
    ) -> None:
        self._file, self._shared = place_of(path), _Shared()
        self._folder = str(Path(self._file).parent)
        self._watched = *(self._file + suffix for suffix in BESIDE[:3]), self._folder
        self._schema, self._longest = schema, longest
        self._seconds, self._read_only = wait_seconds, read_only
        if create and not read_only:
            with disk.translated("open", self._file):
                self._prepare()
        self._run(lambda _: None, "open")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._file!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. What is on disk stays; to close twice does nothing."""
        self._shared.is_closed, self._shared.opened = True, None

    @property
    def path(self) -> Path:
        """The file: absolute, with the links above its folder resolved."""
        return Path(self._file)

    def select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._run(lambda sql: sql.execute(statement, values).fetchall())

    def _run(
        self,
        act: Callable[[sqlite3.Connection], _T],
        doing: str = "read from",
        *,
        write: bool = False,
    ) -> _T:
        """Return what `act` reads in one transaction, or writes in one: on disk then, or undone.

        Args:
            act: what to do with the connection.
            doing: what that is, before a path.
            write: whether to write.

        Raises:
            StorageFull: there is no room. All is as it was.
            LimitExceeded: a value is longer than any of ours.
            StorageError: the database cannot be used. All is as it was.
        """
        if self._shared.process != os.getpid():  # before the lock, which its parent may hold
            raise self._forked()
        try:
            with self._shared.lock:
                return self._act(act, write=write)
        except (OSError, UnicodeDecodeError, sqlite3.Error) as error:
            raise self._translate(error, doing) from error

    def _act(self, act: Callable[[sqlite3.Connection], _T], *, write: bool) -> _T:
        opened, written = self._opened(), False
        try:
            self._begin(opened, "BEGIN IMMEDIATE" if write else "BEGIN")
            done = act(opened.sql)
            written = write
            opened.sql.execute("COMMIT")
        except BaseException as error:
            self._undo(opened.sql, error, written=written)
            raise
        return done

    def _begin(self, opened: _Connection, begin: str) -> None:
        """Begin a transaction, with files and a schema that are ours. Wait while others write."""
        sql, end = opened.sql, 0.0
        while True:
            _bound(sql, _WORK + os.stat(self._file).st_size // _PER_UNIT)  # noqa: PTH116  each call
            try:
                if not sql.in_transaction:
                    sql.execute(begin)
                if not self._read_only:
                    self._check_files(opened)
                [cookie] = sql.execute("PRAGMA schema_version").fetchone()
                if cookie != opened.cookie:
                    self._check_schema(sql)
                    opened.cookie = cookie
            except sqlite3.OperationalError as error:
                end = end or time.monotonic() + self._seconds
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                    raise
            else:
                return

    def _undo(self, sql: sqlite3.Connection, error: BaseException, *, written: bool) -> None:
        failed = isinstance(error, (sqlite3.Error, UnicodeDecodeError))
        with suppress(sqlite3.Error):
            if sql.in_transaction:
                sql.execute("ROLLBACK")
            if written and failed:
                # Nobody sees the record now. But if all of it got into the log and the sync failed,
                # whoever opens that after a crash would take it for saved: write over it.
                sql.execute("BEGIN IMMEDIATE")
                sql.execute("PRAGMA user_version = 1")
                sql.execute("COMMIT")
        if failed and _code(error) != sqlite3.SQLITE_BUSY:
            self._shared.opened = None

    def _empty_log(self) -> bool:
        """Move what is in the log into the database, and cut the log off, unless others read it.

        Returns:
            Whether the log is empty.
        """
        with suppress(sqlite3.Error, CheckpointError, OSError), self._shared.lock:
            sql = self._opened().sql
            return not sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return False

    # --- the connection

    def _opened(self) -> _Connection:
        if self._shared.is_closed:
            raise StorageUnavailable(
                f"This storage on {shell(self._file)} was closed.", "Construct it again to go on."
            )
        found = self._shared.opened
        # One in a transaction is that of a call which a signal has interrupted. Whether anybody
        # writes is asked each time by whoever only reads.
        if (
            found is None
            or found.sql.in_transaction
            or (self._read_only and found.files != self._state())
        ):
            found = self._shared.opened = self._open()
        return found

    def _open(self) -> _Connection:
        self._check_place()
        files = self._state()
        if any(main == _number(files) and pid != os.getpid() for pid, main in [*_OPEN.values()]):
            raise self._forked()
        self._shared.main = self._shared.main or _number(files)
        if _number(files) != self._shared.main and not self._read_only:
            raise self._replaced(self._file)
        # Without a log nobody has it open, and to read it as a file that does not change leaves no
        # log behind. With a log SQLite itself keeps the order.
        used = any(os.path.lexists(self._file + each) for each in ("-wal", "-journal"))
        mode = "rw" if not self._read_only else "ro" if used else "ro&immutable=1"
        sql = sqlite3.connect(
            f"file:{quote(os.fsencode(self._file))}?mode={mode}",
            timeout=min(_STEP, self._seconds),
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            self._set_up(sql)
            return _Connection(sql, files if self._read_only else [files[0], *self._state()[1:]])
        except BaseException:
            sql.close()
            raise

    def _set_up(self, sql: sqlite3.Connection) -> None:
        """Nothing is written to a database before it is known to be ours."""
        sql.text_factory = lambda data: data.decode("utf-8", "replace")  # it may be anybody's
        sql.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._longest + _SLACK)
        if sys.version_info >= (3, 12):
            sql.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        _bound(sql, _LOOK)
        for setting in _SETTINGS:
            sql.execute(f"PRAGMA {setting}")
        self._check_schema(sql)
        if not self._read_only:
            if sql.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                raise OSError(errno.ENOTSUP, "this file system has no memory to share")
            sql.execute(_PARTS).fetchone()  # opens the files beside it

    def _check_schema(self, sql: sqlite3.Connection) -> None:
        """Refuse a database that is not exactly ours."""
        ours, _ = _made(self._schema)
        others = ours ^ {*sql.execute(_PARTS).fetchmany(len(ours) + 1)}
        if others:
            shown, wrong = shell(self._file), min(str(name) for _, name, *_ in others)
            raise StorageUnavailable(
                f"{shown} does not have the schema that safepoint made: {quoted(wrong)} is missing,"
                " new or changed.",
                "If it is another program's, name another file. If it was yours, somebody changed"
                f" it: put it back from a backup, and see who can write it: ls -l {shown}",
            )

    # --- the files

    def _prepare(self) -> None:
        """Make the folder and the file, if they are missing: all of it, or nothing."""
        folder, (_, image) = self._folder, _made(self._schema)
        kind = disk.network_file_system(folder)
        if kind is not None:
            raise StorageUnavailable(
                f"{shell(folder)} is on a file system that machines share ({kind}), and the"
                " processes that use an SQLite database must share memory.",
                "Name a folder on a local disk, or use PostgreSQL, which is for many machines.",
            )
        if not disk.SUPPORTED:
            Path(folder).mkdir(exist_ok=True)
            with suppress(FileExistsError), Path(self._file).open("xb") as new:
                new.write(image)
            return
        disk.enforce(disk.location_refusals(folder))
        disk.create_root(folder)
        if os.path.lexists(self._file):
            return  # without the lock, which whoever can list the folder can hold
        with disk.opened(folder, disk.FOLDER) as fd, disk.locked(fd, folder):
            if not os.path.lexists(self._file):
                disk.put(self._file, fd, image, over=True)

    def _check_place(self) -> None:
        """Refuse a place where others could change the database or a file beside it."""
        os.lstat(self._file)  # if it is gone, the system says so
        if disk.SUPPORTED:
            disk.enforce(disk.location_refusals(self._folder))
            for path in (Path(self._file + suffix) for suffix in BESIDE):
                with suppress(FileNotFoundError):
                    disk.enforce(disk.record_refusals(str(path), path.lstat()))
                    disk.enforce(disk.hard_link_refusals(str(path), path.lstat))

    def _check_files(self, opened: _Connection) -> None:
        """Refuse to go on with files that somebody has put others in the place of.

        SQLite would not notice: it goes on with what it has open, which nobody else can find.
        """
        found = self._state()
        if found == opened.files:
            return
        self._check_place()
        for path, now, before in zip(self._watched[:3], found, opened.files, strict=False):
            if now is None or before is None or now[1:3] != before[1:3]:
                raise self._replaced(path)
        opened.files = found

    def _state(self) -> _Files:
        """Return what tells each file, and the folder, from another, and who may write it.

        For whoever only reads, also when the database itself was written last.
        """
        found: _Files = [_identity(name) for name in self._watched]
        if self._read_only:
            main = os.lstat(self._file)
            found.append((main.st_mtime_ns, main.st_size))
        return found

    # --- what went wrong

    def _forked(self) -> StorageUnavailable:
        return StorageUnavailable(
            f"{shell(self._file)} was open when this process was forked, so SQLite cannot lock it"
            " here.",
            "Close it before the fork, and construct it after the fork.",
        )

    def _replaced(self, path: str) -> StorageUnavailable:
        return StorageUnavailable(
            f"{shell(path)} was removed or replaced while it was in use, so nothing more is saved.",
            "What was saved last may be gone with it. Stop every process that uses the database,"
            " and construct the storage again: the ledger's anchor tells what is missing.",
        )

    def _translate(
        self, error: OSError | UnicodeDecodeError | sqlite3.Error, doing: str
    ) -> CheckpointError:
        """Return what went wrong in our words, by SQLite's code."""
        shown, code = shell(self._file), _code(error)
        exact = getattr(error, "sqlite_errorcode", 0)
        if isinstance(error, OSError):
            return disk.translate(error, doing, self._file)
        if number := _ERRNOS.get(exact, _ERRNOS.get(code)):
            return disk.translate(OSError(number, ""), doing, self._file)
        backup = f"Put it back from a backup, and see who can write it: ls -l {shown}"
        if code == sqlite3.SQLITE_TOOBIG and doing != "open":
            return LimitExceeded(
                f"A value in {shown} has more than {self._longest} bytes, so it was neither read"
                " nor saved.",
                "Keep large data outside the state, or pass Limits(state_bytes=...) with a higher"
                f" limit. If you never saved that much, somebody changed the database. {backup}",
            )
        if code == sqlite3.SQLITE_BUSY:
            return StorageUnavailable(
                f"Another program has held {shown} for {self._seconds:g} s.",
                f"Nothing was saved. Find it, let it end, and try again: fuser -v {shown}",
            )
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return StorageUnavailable(
            f"{shown} does not hold what safepoint writes ({name}).",
            f"Nothing was saved. Somebody changed it, or the disk failed. {backup}",
        )


def place_of(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of the file that a database is in, or would be.

    Raises:
        StorageUnavailable: it is not the path of a file, or cannot be reached.
        UnsafeLocation: what is above it is not a folder.
    """
    named = disk.as_named(path, "path", "file")
    remote = str(path).lower().startswith((":memory:", "file:", "sqlite:"))
    is_folder = os.path.isdir(named)  # noqa: PTH112  Path's raises where a name is too long
    if remote or named.name in ("", "..") or is_folder:
        raise StorageUnavailable(
            f"{quoted(str(path))} is not the path of a file.",
            "Name the file itself, state/checkpoints.db, or use what is in memory for a test.",
        )
    return str(Path(disk.absolute(named.parent, "path"), named.name))


def is_open(path: str) -> bool:
    """Tell whether this process has a file open as a database.

    Whoever opens and closes such a file otherwise lets go of the locks that SQLite has on it.
    """
    with suppress(OSError, ValueError):  # of what is no path of a file
        return (os.getpid(), _number([_identity(path)])) in [*_OPEN.values()]
    return False


def _identity(path: str) -> tuple[int, ...] | None:
    """Return its mode, its number, its device, how many names it has, and its owner."""
    try:
        return os.lstat(path)[:5]
    except FileNotFoundError:
        return None


def _number(files: _Files) -> tuple[int, ...]:
    """Return the number and the device of the database itself."""
    return (files[0] or ())[1:3]


def _bound(sql: sqlite3.Connection, work: int) -> None:
    """Interrupt what takes more work.

    No Python runs in between, so that no signal is lost there: its handler runs as soon as the
    statement has ended.
    """
    sql.set_progress_handler(chain(repeat(0, work), repeat(1)).__next__, _STEPS)


def _code(error: BaseException) -> int:
    """Return SQLite's primary code, 0 if there is none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
