"""Database: the connections of one process to one file, and the transactions on them.

A connection does not survive a fork: SQLite's locks are the parent's, and a child that opens the
file anew while the library in it still counts the parent's connections gets none of its own. So
all connections are closed before a fork, and opened anew on either side when they are needed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from safepoint.errors import StorageUnavailable, shell
from safepoint.storage._sqlite import schema
from safepoint.storage._sqlite.faults import Faults, not_withdrawn, unwritten
from safepoint.storage._sqlite.opening import check, connect, create_tables, empty_log
from safepoint.storage._sqlite.place import LOCK, OPENING, Place
from safepoint.storage._sqlite.slot import Slot
from safepoint.storage._sqlite.turns import Turns

_COOKIE = "PRAGMA schema_version"


class Database:
    """One connection that reads and one that writes, opened when they are needed.

    Args:
        place: where the file is. It is made if it is missing.
        seconds: how long to wait for others.

    Raises:
        StorageError: it cannot be made or opened, or is not ours.
    """

    def __init__(self, place: Place, seconds: float) -> None:
        self.place = place
        self.seconds = seconds
        self._turns = Turns(place.path + LOCK)
        self._reads, self._writes = Slot(), Slot()
        self._main: tuple[int, int] | None = None
        self._closed = self._orphaned = False
        _LIVE.add(self)
        try:
            with self._faults("open"):
                place.prepare()
                with self._writes.mutex:
                    self._connection(self._writes, create=True)
        except BaseException:
            self._turns.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Let one statement be read, or a few that need not agree.

        Raises:
            StorageError: the database cannot be read.
        """
        with self._faults("read from"), self._reads.mutex:
            connection = self._connection(self._reads)
            try:
                self.place.look(self._reads.identity)
                yield connection
            except sqlite3.Error:
                self._reads.drop()
                raise

    @contextmanager
    def writing(self, doing: str = "save to") -> Iterator[sqlite3.Connection]:
        """Write in one transaction: on disk at the end of the block, or undone.

        Args:
            doing: what is done, before a path.

        Raises:
            StorageFull: there is no room. All is as it was.
            StorageError: the database cannot be written. All is as it was.
        """
        with (
            self._faults(doing),
            self._turns.turn(self.seconds),
            self._writes.mutex,
            self._transaction() as connection,
        ):
            yield connection

    @contextmanager
    def pruning(self) -> Iterator[sqlite3.Connection]:
        """Write as in `writing`. Then empty the log, which may hold what is gone, if that goes.

        Raises:
            StorageFull: there is no room. All is as it was.
            StorageError: the database cannot be written. All is as it was.
        """
        with self._faults("prune"), self._turns.turn(self.seconds), self._writes.mutex:
            with self._transaction() as connection:
                yield connection
            try:
                empty_log(connection, self.seconds)
            except sqlite3.Error:
                self._writes.drop()  # what was pruned is pruned

    def close(self) -> None:
        """Close the connections. To close twice does nothing."""
        with self._writes.mutex, self._reads.mutex:
            self._closed = True
            if not self._orphaned:
                self._reads.drop()
                self._writes.drop()
        self._turns.close()

    def pause(self) -> bool:
        """Close the connections and keep others from opening them. Return whether that was done."""
        if not self._writes.mutex.acquire(timeout=self.seconds):
            return False
        if not self._reads.mutex.acquire(timeout=self.seconds):
            self._writes.mutex.release()
            return False
        self._reads.drop()
        self._writes.drop()
        return True

    def go_on(self) -> None:
        """End the pause."""
        self._reads.mutex.release()
        self._writes.mutex.release()

    def begin_anew(self, *, paused: bool) -> None:
        """Begin anew in a forked child: nothing that the parent had open is used or closed."""
        self._turns.forget()
        if not paused and (self._reads.connection or self._writes.connection):
            self._orphaned = True
            self._reads.leak()
            self._writes.leak()
        self._reads, self._writes = Slot(), Slot()

    def _faults(self, doing: str) -> Faults:
        return Faults(doing, self.place.path, self.seconds)

    def _connection(self, slot: Slot, *, create: bool = False) -> sqlite3.Connection:
        """Return the connection of a slot whose mutex is held."""
        if slot.connection is not None and slot.process == os.getpid():
            return slot.connection
        shown = shell(self.place.path)
        if self._closed:
            raise StorageUnavailable(
                f"This storage on {shown} was closed.", "Construct it again to go on."
            )
        if slot.connection is not None or any(database.orphaned for database in list(_LIVE)):
            raise StorageUnavailable(
                f"This process was forked while {shown} was in use, in a way that Python could not"
                " prepare for.",
                "SQLite cannot lock it here. Construct the storage after the fork.",
            )
        self.place.check()
        connection = connect(self.place.path, self.seconds)
        try:
            if create and schema.blank(connection):
                with self._turns.turn(self.seconds):
                    create_tables(connection)
            check(connection, self.place.path)
            slot.identity = self.place.identity()
            if self._main is not None and slot.identity:
                # What was opened must be what was opened first, also after a fork.
                self.place.look((self._main, *slot.identity[1:]))
            elif slot.identity:
                self._main = slot.identity[0]
            slot.cookie = connection.execute(_COOKIE).fetchone()[0]
        except BaseException:
            connection.close()
            raise
        slot.connection, slot.process = connection, os.getpid()
        return connection

    @property
    def orphaned(self) -> bool:
        """Whether this process holds connections of the one that it was forked from."""
        return self._orphaned

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection(self._writes)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # a signal's handler raised in the last one's
            connection.execute("BEGIN IMMEDIATE")
            self.place.look(self._writes.identity)
            self._check_rules(connection)
            yield connection
            self._commit(connection)
        except BaseException as error:
            self._roll_back(connection, error)
            raise

    def _check_rules(self, connection: sqlite3.Connection) -> None:
        """Look at the schema again if it has changed: SQLite itself goes by this number."""
        cookie = connection.execute(_COOKIE).fetchone()[0]
        if cookie != self._writes.cookie:
            schema.check(connection, self.place.path)
            self._writes.cookie = cookie

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            try:
                if not unwritten(error):
                    self._withdraw(connection)
            finally:
                self._roll_back(connection, error)
            raise

    def _withdraw(self, connection: sqlite3.Connection) -> None:
        """Write over what a commit that failed has left in the log.

        Nobody sees it now. But if all of it got there and only the sync failed, say, whoever opens
        the database after a crash would take it for saved.
        """
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA user_version = {schema.VERSION}")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if unwritten(error):
                raise not_withdrawn(self.place.path) from error

    def _roll_back(self, connection: sqlite3.Connection, error: BaseException) -> None:
        """Undo what was begun. After an error that says more than "no room", connect anew."""
        drop = isinstance(error, sqlite3.Error) and not unwritten(error)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            drop = True
        if drop:
            self._writes.drop()


_LIVE: WeakSet[Database] = WeakSet()
_PAUSED: list[Database] = []


def _before_fork() -> None:
    OPENING.acquire()
    _PAUSED.extend(database for database in list(_LIVE) if database.pause())


def _after_fork_in_parent() -> None:
    while _PAUSED:
        _PAUSED.pop().go_on()
    OPENING.release()


def _after_fork_in_child() -> None:
    for database in list(_LIVE):
        database.begin_anew(paused=database in _PAUSED)
    _PAUSED.clear()
    if OPENING.locked():
        OPENING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
