"""StoredSQLite: an SQLite storage for those who only look."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, NoReturn
from urllib.parse import quote

from safepoint.errors import ConfigurationError, StorageUnavailable, shell
from safepoint.names import DEFAULT_LIMITS, Limits
from safepoint.storage._sqlite import schema
from safepoint.storage._sqlite.database import Database
from safepoint.storage._sqlite.place import Place
from safepoint.storage.sqlite import SQLiteCheckpointStorage

_SETTINGS = (
    "PRAGMA query_only = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA temp_store = MEMORY",
)
_SECONDS = 5.0
_State = tuple[int, ...]


class StoredSQLite(SQLiteCheckpointStorage):
    """Reads what a `SQLiteCheckpointStorage` wrote, by the same rules, and changes nothing.

    The storage itself makes the database if it is missing, and SQLite puts two files beside it. If
    nobody uses the database, this makes neither. If somebody does, it reads what is in the log as
    well, and takes part in SQLite's locks, as every reader must.

    Args:
        path: the file.
        limits: how large a record may be.

    Raises:
        UnsafeLocation: others could change what is stored there.
        StorageUnavailable: the file is missing or cannot be opened, is no database, one of another
            application or of a newer version, or somebody changed its schema.
    """

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limit = limits.record_bytes
        self._database = _Found(Place(path))

    def append(self, *_: object, **__: object) -> NoReturn:
        """Refuse.

        Raises:
            ConfigurationError: always.
        """
        raise _refusal()

    def prune(self, *_: object, **__: object) -> NoReturn:
        """Refuse.

        Raises:
            ConfigurationError: always.
        """
        raise _refusal()

    def token(self, thread: str) -> int:
        """Return the highest token that was ever handed out for a thread, 0 if none was."""
        return self._ownership(thread).token

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query, for an audit.

        Raises:
            StorageError: the database cannot be read.
        """
        with self._database.reading() as connection:
            return connection.execute(statement, values).fetchall()

    def _change_ownership(self, *_: object, **__: object) -> NoReturn:
        raise _refusal()


class _Found(Database):
    """One connection that reads."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.seconds = _SECONDS
        self._mutex = Lock()
        self._open: tuple[_State, sqlite3.Connection] | None = None
        if not os.path.lexists(place.path):
            raise StorageUnavailable(
                f"{shell(place.path)} does not exist.",
                "Name the file of your SQLiteCheckpointStorage.",
            )
        with self.reading():
            pass

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._faults("read from"), self._mutex:
            try:
                yield self._now()
            except sqlite3.Error:
                self._drop()
                raise

    def writing(self, _: str = "") -> NoReturn:
        raise _refusal()

    def close(self) -> None:
        with self._mutex:
            self._drop()

    def _drop(self) -> None:
        found, self._open = self._open, None
        if found is not None:
            with suppress(sqlite3.Error):
                found[1].close()

    def _now(self) -> sqlite3.Connection:
        """Return a connection to what is there at this moment."""
        self.place.check()
        state = self._state()
        if self._open is not None and self._open[0] == state:
            return self._open[1]
        self._drop()
        # Without a log nobody has it open. To read it as a file that does not change, which is
        # looked at each time, leaves no log behind. With a log SQLite itself keeps the order.
        unused = "&immutable=1" if len(state) > 2 else ""
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self.place.path))}?mode=ro{unused}",
            timeout=self.seconds,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            connection.text_factory = _text
            for setting in _SETTINGS:
                connection.execute(setting)
            schema.check(connection, self.place.path)
        except BaseException:
            connection.close()
            raise
        self._open = (state, connection)
        return connection

    def _state(self) -> _State:
        info = os.lstat(self.place.path)
        if any(os.path.lexists(self.place.path + each) for each in ("-wal", "-journal")):
            return info.st_dev, info.st_ino
        return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _refusal() -> ConfigurationError:
    return ConfigurationError(
        "This only looks, and changes nothing.", "Write with a SQLiteCheckpointStorage of your own."
    )
