"""Connections: a few open connections to one server, shared by the threads of a process."""

from __future__ import annotations

import os
import random
import time
import weakref
from collections.abc import Callable
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final, TypeVar

from safepoint._postgres.driver import Address, driver
from safepoint._postgres.patient import connect
from safepoint._postgres.refusals import comes_back, refusal
from safepoint._postgres.versions import VERSION, wrong_version
from safepoint.errors import ConfigurationError, StorageUnavailable, quoted

if TYPE_CHECKING:
    from safepoint._postgres.driver import Connection

_T = TypeVar("_T")

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_OPTIONS: Final = (
    "-c search_path=pg_catalog,pg_temp"
    " -c default_transaction_isolation=read\\ committed"
    # What a login may set for itself must not change how we read what the server says.
    " -c client_encoding=UTF8 -c DateStyle=ISO -c TimeZone=UTC -c standard_conforming_strings=on"
    " -c statement_timeout={0} -c lock_timeout={0} -c idle_in_transaction_session_timeout={0}"
)
_forked: Final[list[object]] = []
_all: Final[weakref.WeakSet[Connections]] = weakref.WeakSet()


class Connections:
    """Opens connections when they are needed, keeps them, and replaces those that are lost.

    Every statement runs by itself, as a transaction of its own. If the server goes away, what was
    asked is asked again on a new connection, until `wait_seconds` are over.

    Args:
        dsn: a connection string as libpq takes it.
        version_of: the statement that tells the version of the schema.
        most: how many connections this process opens at most.
        wait_seconds: how long to try, if the server is away or busy.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: an argument is of the wrong kind.
        StorageError: the server cannot be used. The message says what to run.
    """

    def __init__(self, dsn: object, version_of: str, *, most: int, wait_seconds: float) -> None:
        if type(most) is not int or not 1 <= most <= 1000:
            raise ConfigurationError(
                f"connections is {quoted(most)}.", "Write a whole number from 1 to 1000."
            )
        if type(wait_seconds) not in (int, float) or not 0 < wait_seconds <= 3600:
            raise ConfigurationError(
                f"wait_seconds is {quoted(wait_seconds)}.", "Write a number from above 0 to 3600."
            )
        self.address = Address(dsn)
        self._version_of = version_of
        self._most = most
        self._wait = float(wait_seconds)
        self._error: type[Exception] = driver().Error
        self._ready: int = driver().pq.TransactionStatus.IDLE
        self._where = self.address.known()
        self._begin()
        _all.add(self)
        try:
            self._give_back(self._borrowed(0.0))  # so that what is wrong is said here, and at once
        except self._error as error:
            raise refusal(error, self.where()) from error

    def __repr__(self) -> str:
        return self.where()

    def where(self) -> str:
        """Say which database this is, and as which login. There is no password in it."""
        return self._where

    def run(self, act: Callable[[Connection], _T]) -> _T:
        """Return what `act` makes of a connection. It is called again if the connection is lost.

        So `act` must be something that can be done twice.

        Raises:
            StorageError: the server refused, or was away for too long.
        """
        end, pause = time.monotonic() + self._wait, _FIRST_PAUSE
        while True:
            try:
                connection = self._borrowed(end)
                try:
                    return act(connection)
                finally:
                    self._give_back(connection)
            except self._error as error:
                if not comes_back(error) or time.monotonic() + pause > end:
                    raise refusal(error, self.where()) from error
            # Many workers lost the same server: they must not all come back at one moment.
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  no secret
            pause = min(2 * pause, _LONGEST_PAUSE)

    def close(self) -> None:
        """Close what is open. The next call opens a connection again."""
        with self._lock:
            _close(self._idle, self._process)

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._idle: list[Connection] = []
        self._free = self._most
        self._given_back = Condition(self._lock)
        # Whoever lets a storage go need not remember that it had connections.
        weakref.finalize(self, _close, self._idle, self._process)

    def _borrowed(self, end: float) -> Connection:
        with self._lock:
            while not self._free:
                left = max(0.0, end - time.monotonic())
                if not self._given_back.wait(left) and not self._free:
                    raise StorageUnavailable(
                        f"All {self._most} connections to {self.where()} are in use.",
                        "Nothing was done. Allow more with connections=, or let fewer threads share"
                        " them.",
                    )
            self._free -= 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._opened()
        except BaseException:
            self._let_go()
            raise

    def _give_back(self, connection: Connection) -> None:
        kept = None
        try:
            if connection.pgconn.transaction_status == self._ready:
                kept = connection
                return
            if connection.broken:
                self.close()  # those that wait were to the same server: nobody tries each of them
            connection.close()
        finally:
            self._let_go(kept)

    def _let_go(self, connection: Connection | None = None) -> None:
        with self._lock:
            if connection is not None:
                self._idle.append(connection)
            self._free += 1
            self._given_back.notify()

    def _opened(self) -> Connection:
        """Connect, and look whether this is a server and a schema that we can work with."""
        given, limit = self.address, max(1, round(self._wait * 1000))
        seconds = max(2, round(self._wait))
        chosen = {
            "options": f"{given.get('options')} {_OPTIONS.format(limit)}".strip(),
            "application_name": given.get("application_name", "safepoint"),
            "connect_timeout": given.get("connect_timeout", str(seconds)),
            # A copy that lags behind would look like a store that was rolled back.
            "target_session_attrs": given.get("target_session_attrs", "read-write"),
            # A network that swallows all says nothing. Without these a call would wait for hours.
            "keepalives_idle": given.get("keepalives_idle", str(seconds)),
            "keepalives_interval": given.get("keepalives_interval", str(seconds)),
            "keepalives_count": given.get("keepalives_count", "2"),
            "tcp_user_timeout": given.get("tcp_user_timeout", str(limit)),
        }
        connection = connect(given.conninfo, self._wait, chosen)
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: Connection) -> None:
        self._where = self.address.known(connection)
        [(found,)] = connection.execute(self._version_of).fetchall()
        if found != VERSION:
            shown, do = wrong_version(found)
            raise StorageUnavailable(
                f"The schema in {self.where()} has {shown}, and this safepoint works with version"
                f" {VERSION}.",
                do,
            )
        # Set in any case: what a session has set, a reload of the server does not change.
        connection.execute(
            "select set_config('synchronous_commit', case current_setting('synchronous_commit')"
            " when 'off' then 'on' else current_setting('synchronous_commit') end, false)"
        )


def _close(connections: list[Connection], process: int) -> None:
    """Close them, unless they are of the process that this one was forked from."""
    while connections and process == os.getpid():
        connections.pop().close()


def _in_child() -> None:
    """Begin anew: a child must not talk on its parent's connections, nor close them."""
    for each in list(_all):
        _forked.extend(each._idle)  # noqa: SLF001
        each._begin()  # noqa: SLF001


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
