"""SQLite done right, once: a file that is ours alone, whose every answer has a bound.

Under the storage and the anchor. A thread has a connection of its own, so SQLite's own locks keep
the order; when it ends, the next one gets that. A transaction that writes begins with BEGIN
IMMEDIATE, and waits in steps that grow, as SQLite's own do, but so that Ctrl-C is heard.

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
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from threading import RLock, local
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote
from weakref import WeakValueDictionary

from safepoint.core.errors import CheckpointError, LimitExceeded, StorageUnavailable, quoted, shell
from safepoint.stores import disk

_T = TypeVar("_T")
BESIDE: Final = ("", "-wal", "-shm", "-journal")
_STEPS: Final = 1000  # of SQLite's machine: a unit of work
_LOOK: Final = 100  # to open it, and to look at its schema
_WORK: Final = 100_000
_PER_UNIT: Final = 200  # bytes of the files: whoever reads or prunes all of them needs less
_SLACK: Final = 4096  # a row is longer than the longest value in it
_TURN: Final = (0.001, 0.1)
"""How long a writer sleeps between two looks whether it is its turn: as long as it has waited."""
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


@dataclass(frozen=True)
class Schema:
    """What is in a database of ours, and by which number it says that it is ours."""

    application: int
    version: int
    sql: str

    @cached_property
    def parts(self) -> frozenset[tuple[Any, ...]]:
        """The tables, indexes and triggers, as SQLite writes them down."""
        with closing(self._made()) as connection:
            return frozenset(connection.execute(_PARTS))

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


class _Shared:
    """What a database and its tenants share: whether it is closed, and which file it is."""

    closed = False
    main: tuple[int, ...] | None = None


class _Slot:
    """The connection of one thread. A fork in another thread takes it away between two uses."""

    def __init__(self, database: _Shared) -> None:
        self.database, self.lock, self.busy = database, RLock(), False
        self.connection: sqlite3.Connection | None = None
        self.process = 0
        self.cookie: int | None = None  # any number may stand in the file
        self.files: list[tuple[int, ...] | None] = []
        self.holds = 0  # how many blocks want it kept open, though it only looks
        self.read: object = None  # what the files were when it was opened to look

    def drop(self) -> None:
        """Close the connection; the next call opens another one."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    __del__ = drop


class _Held:
    """A thread's hold on its slot. It goes with the thread, and leaves the slot to the next one."""

    def __init__(self, slot: _Slot, free: list[_Slot]) -> None:
        self.slot, self._free = slot, free

    def __del__(self) -> None:
        self._free.append(self.slot)


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
        self._here, self._shared = local(), _Shared()
        self._free: list[_Slot] = []
        self._file = place_of(path)
        self._folder = str(Path(self._file).parent)
        self._watched = *(self._file + suffix for suffix in BESIDE[:3]), self._folder
        self._schema, self._longest, self._seconds = schema, longest, wait_seconds
        self._read_only = read_only
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
        self._shared.closed = True
        for slot in _slots():
            if slot.database is self._shared:
                with slot.lock:
                    slot.drop()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let this thread look many times with one connection, for as long as no file changes.

        A database that is opened to read alone is opened anew for each call otherwise. A writer
        that closes it meanwhile leaves its log beside it, as after a crash.
        """
        slot = self._slot()
        slot.holds += 1
        try:
            yield
        finally:
            slot.holds -= 1
            if self._read_only and not slot.holds:
                with slot.lock:
                    slot.drop()

    @property
    def path(self) -> Path:
        """The file: absolute, with the links above its folder resolved."""
        return Path(self._file)

    def _run(
        self,
        act: Callable[[sqlite3.Connection], _T],
        doing: str = "read from",
        *,
        write: bool = False,
        many: bool = False,
    ) -> _T:
        """Return what `act` reads in one transaction, or writes in one: on disk then, or undone.

        Args:
            act: what to do with the connection.
            doing: what that is, before a path.
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
                        f"This thread is in the middle of another call on {shell(self._file)}.",
                        "Do not use a storage or an anchor in the handler of a signal.",
                    )
                connection, written = self._opened(slot), False
                try:
                    slot.busy = True
                    work = self._work() if many else _WORK
                    self._begin(slot, connection, "BEGIN IMMEDIATE" if write else "BEGIN", work)
                    done = act(connection)
                    written = write
                    connection.execute("COMMIT")
                except BaseException as error:
                    self._undo(slot, connection, error, written=written)
                    raise
                else:
                    return done
                finally:
                    slot.busy = False
                    if self._read_only and not slot.holds:
                        slot.drop()  # whether anybody writes is asked each time
        except (OSError, UnicodeDecodeError, sqlite3.Error) as error:
            raise self._told(error, doing) from error

    def _begin(self, slot: _Slot, connection: sqlite3.Connection, begin: str, work: int) -> None:
        """Begin a transaction, with files and a schema that are ours. Wait while others write."""
        begun = 0.0
        while True:
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # a signal's handler raised in the last one
            _bound(connection, work)
            try:
                connection.execute(begin)
                self._look(slot)
                if _cookie(connection) != slot.cookie:
                    _bound(connection, _LOOK)
                    self._check_schema(slot, connection)
                    _bound(connection, work)
            except sqlite3.OperationalError as error:
                now = time.monotonic()
                begun = begun or now
                if _code(error) != sqlite3.SQLITE_BUSY or now >= begun + self._seconds:
                    raise
            else:
                return
            time.sleep(min(max(_TURN[0], now - begun), _TURN[1]))

    def _empty_log(self) -> bool:
        """Move what is in the log into the database, and cut the log off, unless others read it.

        Nobody writes while it waits for readers, so it does not wait for long.

        Returns:
            Whether the log is empty.
        """
        slot = self._slot()
        with slot.lock, suppress(sqlite3.Error, CheckpointError, OSError):
            connection = self._opened(slot)
            _bound(connection, self._work())
            try:
                connection.execute("PRAGMA busy_timeout = 100")
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                return not busy
            finally:
                connection.execute("PRAGMA busy_timeout = 0")
        return False

    # --- the connection

    def _slot(self) -> _Slot:
        held: _Held | None = getattr(self._here, "held", None)
        if held is None:
            with _LOCK:
                slot = self._free.pop() if self._free else _Slot(self._shared)
                _SLOTS[id(slot)] = slot
                held = self._here.held = _Held(slot, self._free)
        return held.slot

    def _opened(self, slot: _Slot) -> sqlite3.Connection:
        process = os.getpid()
        if self._shared.closed:
            raise StorageUnavailable(
                f"This storage on {shell(self._file)} was closed.", "Construct it again to go on."
            )
        now = self._files_now() if self._read_only else None
        if slot.connection is not None and slot.process == process:
            if slot.read == now:
                return slot.connection
            slot.drop()
        if any(each.connection and each.process != process for each in _slots()):
            raise StorageUnavailable(
                f"This process was forked while {shell(self._file)} was in use, in a way that"
                " Python could not prepare for.",
                "SQLite cannot lock it here. Construct the storage after the fork.",
            )
        self._check_place()
        # Without a log nobody has it open, and to read it as a file that does not change leaves no
        # log behind. With a log SQLite itself keeps the order.
        used = any(os.path.lexists(self._file + each) for each in ("-wal", "-journal"))
        mode = "rw" if not self._read_only else "ro" if used else "ro&immutable=1"
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self._file))}?mode={mode}",
            timeout=self._seconds,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            self._set_up(slot, connection)
            slot.files = self._state()
            self._shared.main = self._shared.main or slot.files[0]
        except BaseException:
            connection.close()
            raise
        slot.connection, slot.process, slot.read = connection, process, now
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
        self._check_schema(slot, connection)
        if not self._read_only:
            if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                raise OSError(errno.ENOTSUP, "this file system has no memory to share")
            connection.execute(_PARTS).fetchone()  # opens the files beside it
        connection.execute("PRAGMA busy_timeout = 0")  # from now on, who begins waits

    def _check_schema(self, slot: _Slot, connection: sqlite3.Connection) -> None:
        """Refuse a database that is not exactly ours."""
        cookie = _cookie(connection)
        shown, ours = shell(self._file), self._schema
        # Not by a SELECT: a view may have the name of any function.
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        if (application, version) != (ours.application, ours.version):
            raise StorageUnavailable(
                f"{shown} is a database of another application or version (application_id"
                f" {application}, schema {version}).",
                "Nothing in it was changed. Name another file: one that does not exist yet is made."
                " If it was yours, somebody changed it: put it back from a backup.",
            )
        wrong, left = "", set(ours.parts)
        for part in connection.execute(_PARTS):
            if part not in left:
                wrong = f"{quoted(part[1])} was added or changed"
                break
            left.remove(part)
        else:
            wrong = next((f"the {kind} {quoted(name)} is gone" for kind, name, *_ in left), "")
        if wrong:
            raise StorageUnavailable(
                f"{shown} does not have the schema that safepoint made: {wrong}.",
                "Somebody changed the database, and may have changed records. Put it back from a"
                f" backup, and see who can write it: ls -l {shown}",
            )
        slot.cookie = cookie

    def _undo(
        self, slot: _Slot, connection: sqlite3.Connection, error: BaseException, *, written: bool
    ) -> None:
        code, exact = _code(error), getattr(error, "sqlite_errorcode", 0)
        # After these a connection is as good as before, and nothing of a commit is in the log.
        kept = code in (None, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)
        kept = kept or exact == sqlite3.SQLITE_IOERR_WRITE
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if written and not kept:
                # Nobody sees the record now. But if all of it got into the log and the sync failed,
                # whoever opens that after a crash would take it for saved: write over it.
                connection.execute(f"PRAGMA busy_timeout = {int(self._seconds * 1000)}")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(f"PRAGMA user_version = {self._schema.version}")
                connection.execute("COMMIT")
        except sqlite3.Error:
            kept = False
        finally:
            if not kept:
                slot.drop()

    # --- the files

    def _prepare(self) -> None:
        """Make the folder and the file, if they are missing: all of it, or nothing."""
        folder = self._folder
        kind = disk.network_file_system(folder)
        if kind is not None:
            raise StorageUnavailable(
                f"{shell(folder)} is on a file system that machines share ({kind}), and the"
                " processes that use an SQLite database must share memory.",
                "Name a folder on a local disk, or use PostgresCheckpointStorage, which is for"
                " many machines.",
            )
        if not disk.SUPPORTED:
            Path(folder).mkdir(exist_ok=True)
            if not Path(self._file).exists():
                Path(f"{self._file}-new").write_bytes(self._schema.image)
                Path(f"{self._file}-new").rename(self._file)
            return
        disk.enforce(disk.location_refusals(folder))
        disk.create_root(folder)
        if os.path.lexists(self._file):
            return  # without the lock, which whoever can list the folder can hold
        with disk.opened(folder, disk.FOLDER) as fd, disk.locked(fd, folder):
            if not os.path.lexists(self._file):
                disk.put(self._file, fd, self._schema.image, over=True)

    def _check_place(self) -> None:
        """Refuse a place where others could change the database or a file beside it."""
        os.lstat(self._file)  # if it is gone, the system says so
        if not disk.SUPPORTED:
            return
        disk.enforce(disk.location_refusals(self._folder))
        for suffix in BESIDE:
            path = Path(self._file + suffix)
            with suppress(FileNotFoundError):
                disk.enforce(disk.record_refusals(str(path), path.lstat()))
                disk.enforce(disk.hard_link_refusals(str(path), path.lstat))

    def _look(self, slot: _Slot) -> None:
        """Refuse to go on with files that somebody has put others in the place of.

        SQLite would not notice: it goes on with what it has open, which nobody else can find.
        """
        found = self._state()
        if found == slot.files and found[0] == self._shared.main:
            return
        self._check_place()
        known = self._shared.main, *slot.files[1:]
        for suffix, now, before in zip(BESIDE, found, known, strict=False):
            if now is None or before is None or now[1:3] != before[1:3]:
                raise StorageUnavailable(
                    f"{shell(self._file + suffix)} was removed or replaced while it was in use, so"
                    " nothing more is saved.",
                    "What was saved last may be gone with it. Stop every process that uses the"
                    " database, and construct the storage again: the ledger's anchor tells what is"
                    " missing.",
                )
        slot.files, self._shared.main = found, found[0]

    def _state(self) -> list[tuple[int, ...] | None]:
        """Return what tells each file, and last the folder, from another, and who may write it."""
        if self._read_only or not disk.SUPPORTED:
            return [None]
        return [_identity(name) for name in self._watched]

    def _files_now(self) -> list[tuple[int, ...] | None]:
        """Return the same for whoever only looks, and when the file itself was written last."""
        names = [self._file + suffix for suffix in ("", "-wal", "-journal")]
        with suppress(FileNotFoundError):
            main = os.lstat(self._file)
            return [(main.st_mtime_ns, main.st_size), *map(_identity, names)]
        return []

    def _work(self) -> int:
        """Return how much it takes to go through all that is there."""
        size = 0
        for suffix in BESIDE:
            with suppress(FileNotFoundError):
                size += os.stat(self._file + suffix).st_size  # noqa: PTH116  at each call
        return _WORK + size // _PER_UNIT

    def _told(
        self, error: OSError | UnicodeDecodeError | sqlite3.Error, doing: str
    ) -> CheckpointError:
        """Return what went wrong in our words, by SQLite's code."""
        if isinstance(error, OSError):
            return disk.translate(error, doing, self._file)
        shown, code = shell(self._file), _code(error)
        exact = getattr(error, "sqlite_errorcode", 0)
        if number := _ERRNOS.get(exact, _ERRNOS.get(code or 0)):
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
            "Name the file itself, state/checkpoints.db, or use InMemoryCheckpointStorage() for a"
            " test.",
        )
    return str(Path(disk.absolute(named.parent, "path"), named.name))


def _identity(path: str) -> tuple[int, ...] | None:
    """Return its mode, its number, its device, how many names it has, and its owner."""
    try:
        return os.lstat(path)[:5]
    except FileNotFoundError:
        return None


def _bound(connection: sqlite3.Connection, work: int) -> None:
    """Interrupt what takes more work.

    No Python runs in between, so that no signal is lost there: its handler runs as soon as the
    statement has ended.
    """
    connection.set_progress_handler(chain(repeat(0, work), repeat(1)).__next__, _STEPS)


def _cookie(connection: sqlite3.Connection) -> Any:
    """Return the number by which SQLite tells one schema of a database from another."""
    return connection.execute("PRAGMA schema_version").fetchone()[0]


def _text(data: bytes) -> str:
    """Read a text that may be somebody else's: what is not UTF-8 is no name of ours."""
    return data.decode("utf-8", "replace")


def _code(error: BaseException) -> int | None:
    """Return SQLite's primary code, 0 if it has none, None if the error is no fault of SQLite."""
    if not isinstance(error, (sqlite3.Error, UnicodeDecodeError)):
        return None
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


_LOCK: Final = RLock()
"""Held while a slot is added, and during a fork."""
_SLOTS: Final[WeakValueDictionary[int, _Slot]] = WeakValueDictionary()
_HELD: Final = ExitStack()


def _slots() -> list[_Slot]:
    # Not by iterating, nor under the lock: another thread may add one, or fork, meanwhile.
    return [slot for ref in _SLOTS.valuerefs() if (slot := ref()) is not None]


def is_open(path: str) -> bool:
    """Tell whether this process has a file open as a database that it writes.

    Whoever opens and closes such a file otherwise lets go of the locks that SQLite has on it.
    """
    with suppress(OSError, ValueError):  # of what is no path of a file
        found = _identity(path)
        mains = [slot.database.main for slot in _slots() if slot.connection is not None]
        return found is not None and any(main and main[1:3] == found[1:3] for main in mains)
    return False


def _before_fork() -> None:
    _HELD.enter_context(_LOCK)
    for slot in _slots():
        _HELD.enter_context(slot.lock)
        slot.drop()


def _after_fork() -> None:
    try:
        _HELD.close()
    except BaseException:  # a signal's handler raised, here where nobody hears of it
        _HELD.close()
        raise


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
