"""Safe use of SQLite: a file that only this package uses, read within limits.

The storage, the anchor and the journal use it. The threads of a process take turns on one
connection, and SQLite's own locks coordinate processes. A transaction that writes starts with BEGIN
IMMEDIATE. It waits for other writers in short steps, so that Ctrl-C works.

An attacker with write access can put anything into the file. So the length of a value and the work
of a statement are limited, and each transaction checks that the schema is unchanged.

A connection cannot be used after a fork, because SQLite's locks belong to the parent process. So it
is refused in a child process.
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
from typing import Any, Final, TypeVar
from urllib.parse import quote

from safepoint.core.errors import CheckpointError, LimitExceeded, Unavailable, quoted, shell
from safepoint.core.storage import Closing
from safepoint.stores import disk

_T = TypeVar("_T")
_Files = list[tuple[int, ...]]
BESIDE: Final = ("", "-wal", "-shm", "-journal")
_STEPS: Final = 1000  # instructions of SQLite's virtual machine: a unit of work
_LOOK: Final = 100  # to open the file and check its schema
_WORK: Final = 100_000
_PER_UNIT: Final = 200  # bytes of the file: reading or pruning the whole file needs less
_SLACK: Final = 4096  # a row is longer than the longest value in it
_PATIENCE: Final = 30.0
"""How many seconds to wait for other writers."""
_STEP: Final = 0.1
"""How many seconds SQLite waits for other writers before Python can handle Ctrl-C."""
_SETTINGS: Final = (
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "synchronous = FULL",
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
    "secure_delete = ON",
    # Temporary data contains records, and SQLite would write it to the system's /tmp.
    "temp_store = MEMORY",
)
_PARTS: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
# The error of the system, by SQLite's extended or primary result code.
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
"""For each connection: the process that opened the file, and the file's inode and device."""


@cache
def _made(schema: str) -> tuple[frozenset[tuple[Any, ...]], bytes]:
    """Return the schema of a new database as SQLite stores it, and the bytes of the file."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        new.executescript(schema)
        image = new.serialize()
        return frozenset(new.execute(_PARTS)), image[:18] + b"\2\2" + image[20:]  # with a log


class _Handle:
    """The connection of a process. It is closed when it is no longer used."""

    cookie: int | None = None

    def __init__(self, sql: sqlite3.Connection, files: _Files) -> None:
        self.sql, self.files, self.process = sql, files, os.getpid()
        _OPEN[id(self)] = self.process, _number(files)

    def __del__(self) -> None:
        if self.process == os.getpid():  # a child must not close its parent's connection
            _OPEN.pop(id(self), None)
            self.sql.close()


class _Shared:
    """The connection and the file's identity, which a database shares with its tenants.

    One thread uses it at a time. SQLite allows one writer at a time anyway, and a framework that
    runs each step in a new thread would otherwise open the file for each step.
    """

    def __init__(self) -> None:
        self.lock, self.process = RLock(), os.getpid()
        self.opened: _Handle | None = None
        self.is_closed = False
        self.main: tuple[int, ...] | None = None


class Database(Closing):
    """One SQLite file, for all threads and processes of a machine.

    Args:
        path: the file as the caller gave it.
        schema: the SQL that creates its tables.
        longest: how many bytes a value may have.
        create: create a missing file with mode 0600, and its folder with mode 0700.
        read_only: create and change nothing. If nobody uses the database, SQLite does not even
            create its log files.

    Raises:
        Unsafe: others could change what is stored there.
        Unavailable: it cannot be created or opened, or this package did not create it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: str,
        *,
        longest: int,
        create: bool = True,
        read_only: bool = False,
    ) -> None:
        self._file, self._shared = place_of(path), _Shared()
        self._folder = str(Path(self._file).parent)
        self._watched = *(self._file + suffix for suffix in BESIDE[:3]), self._folder
        self._schema, self._longest = schema, longest
        self._read_only = read_only
        if create and not read_only:
            with disk.translated("open", self._file):
                self._prepare()
        self._run(lambda _: None, "open")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._file!r})"

    def close(self) -> None:
        """Close the file. Closing it twice does nothing."""
        self._shared.is_closed, self._shared.opened = True, None

    @property
    def path(self) -> Path:
        """The absolute path of the file, with the links above its folder resolved."""
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
        """Run `act` in one transaction and return its result: on disk, or rolled back.

        Args:
            act: the function that uses the connection.
            doing: the action, for the message.
            write: whether `act` writes.

        Raises:
            Unavailable: there is no room. Nothing was changed; or the database cannot be used.
                Nothing was changed.
            LimitExceeded: a value is longer than this package allows.
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

    def _begin(self, opened: _Handle, begin: str) -> None:
        """Begin a transaction and check the files and the schema. Wait while others write."""
        sql, end = opened.sql, 0.0
        while True:
            try:
                if not sql.in_transaction:
                    sql.execute(begin)
                if not self._read_only:
                    self._check_files(opened)
                _bound(sql, _WORK + opened.files[-1][-1] // _PER_UNIT)
                [cookie] = sql.execute("PRAGMA schema_version").fetchone()
                if cookie != opened.cookie:
                    self._check_schema(sql)
                    opened.cookie = cookie
            except sqlite3.OperationalError as error:
                end = end or time.monotonic() + _PATIENCE
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
                # Nobody sees the record now. But if the log has all of it and only the sync failed,
                # a process that opens the log after a crash would find it: overwrite it.
                sql.execute("BEGIN IMMEDIATE")
                sql.execute("PRAGMA user_version = 1")
                sql.execute("COMMIT")
        if failed and _code(error) != sqlite3.SQLITE_BUSY:
            self._shared.opened = None

    def _empty_log(self) -> bool:
        """Move the log into the database and truncate the log, unless others use the database.

        Returns:
            Whether the log is empty.
        """
        with suppress(sqlite3.Error, CheckpointError, OSError), self._shared.lock:
            sql = self._opened().sql
            return not sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return False

    # --- the connection

    def _opened(self) -> _Handle:
        if self._shared.is_closed:
            raise Unavailable(
                f"This storage on {shell(self._file)} was closed.", "Open it again to continue."
            )
        found = self._shared.opened
        # If it is in a transaction, a signal has interrupted the call that used it. A read-only
        # database checks on each call whether somebody has written.
        if (
            found is None
            or found.sql.in_transaction
            or (self._read_only and found.files != self._state())
        ):
            found = self._shared.opened = self._open()
        return found

    def _open(self) -> _Handle:
        self._check_place()
        files = self._state()
        if any(main == _number(files) and pid != os.getpid() for pid, main in [*_OPEN.values()]):
            raise self._forked()
        self._shared.main = self._shared.main or _number(files)
        if _number(files) != self._shared.main and not self._read_only:
            raise self._replaced(self._file)
        # Without a log nobody has the database open, and reading it as an immutable file creates no
        # log. With a log, SQLite itself coordinates readers and writers.
        used = any(os.path.lexists(self._file + each) for each in ("-wal", "-journal"))
        mode = "rw" if not self._read_only else "ro" if used else "ro&immutable=1"
        sql = sqlite3.connect(
            f"file:{quote(os.fsencode(self._file))}?mode={mode}",
            timeout=_STEP,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            self._set_up(sql)
            return _Handle(sql, files if self._read_only else [files[0], *self._state()[1:]])
        except BaseException:
            sql.close()
            raise

    def _set_up(self, sql: sqlite3.Connection) -> None:
        """Set limits and check the schema before anything is written to the database."""
        sql.text_factory = lambda data: data.decode("utf-8", "replace")  # data of any origin
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
            sql.execute(_PARTS).fetchone()  # opens the log files

    def _check_schema(self, sql: sqlite3.Connection) -> None:
        """Refuse a database whose schema is not exactly the expected one."""
        ours, _ = _made(self._schema)
        others = ours ^ {*sql.execute(_PARTS).fetchmany(len(ours) + 1)}
        if others:
            shown, wrong = shell(self._file), min(str(name) for _, name, *_ in others)
            raise Unavailable(
                f"{shown} does not have the schema that safepoint made: {quoted(wrong)} is missing,"
                " new or changed.",
                f"Name another file, or see who changed this one: ls -l {shown}",
            )

    # --- the files

    def _prepare(self) -> None:
        """Create the folder and the file if they are missing."""
        folder, (_, image) = self._folder, _made(self._schema)
        kind = disk.network_file_system(folder)
        if kind is not None:
            raise Unavailable(
                f"{shell(folder)} is on a file system that machines share ({kind}), and the"
                " processes that use an SQLite database must share memory.",
                "Name a folder on a local disk, or use PostgreSQL.",
            )
        if not disk.SUPPORTED:
            Path(folder).mkdir(exist_ok=True)
            with suppress(FileExistsError), Path(self._file).open("xb") as new:
                new.write(image)
            return
        disk.enforce(disk.location_refusals(folder))
        disk.create_root(folder)
        if os.path.lexists(self._file):
            return  # without the lock, which any user who can list the folder can hold
        with disk.opened(folder, disk.FOLDER) as fd, disk.locked(fd, folder):
            if not os.path.lexists(self._file):
                disk.put(self._file, fd, image, over=True)

    def _check_place(self) -> None:
        """Refuse a place where others could change the database or its log files."""
        os.lstat(self._file)  # raises if it is gone
        if disk.SUPPORTED:
            disk.enforce(disk.location_refusals(self._folder))
            for path in (Path(self._file + suffix) for suffix in BESIDE):
                with suppress(FileNotFoundError):
                    disk.enforce(disk.record_refusals(str(path), path.lstat()))
                    disk.enforce(disk.hard_link_refusals(str(path), path.lstat))

    def _check_files(self, opened: _Handle) -> None:
        """Refuse to continue if somebody has replaced a file.

        SQLite would not notice: it keeps using the old open file, which nobody else can find.
        """
        found = self._state()
        if found[:4] != opened.files[:4]:
            self._check_place()
            for path, now, before in zip(self._watched[:3], found, opened.files, strict=False):
                if not now or now[1:3] != before[1:3]:
                    raise self._replaced(path)
        opened.files = found

    def _state(self) -> _Files:
        """Return the identity and the permissions of each file and of the folder.

        Last, return when the database was last written, and its size.
        """
        main, *others = self._watched
        info = os.lstat(main)
        return [info[:5], *map(_identity, others), (info.st_mtime_ns, info.st_size)]

    # --- errors

    def _forked(self) -> Unavailable:
        return Unavailable(
            f"{shell(self._file)} was open when this process was forked, so SQLite cannot lock it"
            " here.",
            "Construct it after the fork.",
        )

    def _replaced(self, path: str) -> Unavailable:
        return Unavailable(
            f"{shell(path)} was removed or replaced while it was in use, so nothing more is saved.",
            "Stop every process that uses it, and construct the storage again.",
        )

    def _translate(
        self, error: OSError | UnicodeDecodeError | sqlite3.Error, doing: str
    ) -> CheckpointError:
        """Return an error of this package for an error of SQLite or of the system."""
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
                " nor saved."
            )
        if code == sqlite3.SQLITE_BUSY:
            return Unavailable(
                f"Another program has held {shown} for {_PATIENCE:g} s.",
                f"Find it, wait until it ends, and try again: fuser -v {shown}",
            )
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return Unavailable(f"{shown} does not hold what safepoint writes ({name}).", backup)


def place_of(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a database file, which need not exist yet.

    Raises:
        Unavailable: it is not the path of a file, or cannot be reached.
    """
    named = disk.as_named(path, "path", "file")
    remote = str(path).lower().startswith((":memory:", "file:", "sqlite:"))
    is_folder = os.path.isdir(named)  # noqa: PTH112  Path's raises where a name is too long
    if remote or named.name in ("", "..") or is_folder:
        raise Unavailable(
            f"{quoted(str(path))} is not the path of a file.",
            "Name the file itself: state/checkpoints.db",
        )
    return str(Path(disk.absolute(named.parent, "path"), named.name))


def is_open(path: str) -> bool:
    """Tell whether this process has a file open as a database.

    If it does, do not open and close the file in another way: that releases SQLite's locks on it.
    """
    with suppress(OSError, ValueError):  # it is not the path of a file
        return (os.getpid(), _number([_identity(path)])) in [*_OPEN.values()]
    return False


def _identity(path: str) -> tuple[int, ...]:
    """Return the mode, inode, device, number of links and owner of a file; () if it is missing."""
    try:
        return os.lstat(path)[:5]
    except FileNotFoundError:
        return ()


def _number(files: _Files) -> tuple[int, ...]:
    """Return the inode and the device of the database file."""
    return files[0][1:3]


def _bound(sql: sqlite3.Connection, work: int) -> None:
    """Interrupt a statement that needs more work.

    No Python code runs during the statement, so no signal is lost: a signal handler runs as soon as
    the statement has ended.
    """
    sql.set_progress_handler(chain(repeat(0, work), repeat(1)).__next__, _STEPS)


def _code(error: BaseException) -> int:
    """Return SQLite's primary result code, or 0."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
