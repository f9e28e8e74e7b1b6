"""How a server is asked: on a pool of connections, for so many seconds, and what it refuses."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar

from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    MissingPackage,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
    quoted,
)

try:
    import psycopg as psycopg  # noqa: PLC0414  for those who get it from here
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg_pool import ConnectionPool, PoolTimeout
except ImportError as _missing:
    raise MissingPackage(
        "PostgreSQL needs the packages psycopg and psycopg_pool.",
        "Run: pip install 'safepoint[postgres]'",
    ) from _missing

_T = TypeVar("_T")

VERSION: Final = 1
"""The version of the schema that this package works with."""
MIGRATE: Final = "safepoint postgres migrate"
PINNED: Final = (
    "-c search_path=pg_catalog,pg_temp -c default_transaction_isolation=read\\ committed"
    # What a login may set for itself must not change how we read what the server says.
    " -c client_encoding=UTF8 -c DateStyle=ISO -c TimeZone=UTC -c standard_conforming_strings=on"
)
"""The settings of a session that no login and no connection string changes."""
# A lock that somebody holds is told from a server that is slow, and both from one that hangs.
_LIMITS: Final = {
    "lock_timeout": 0.4,
    "statement_timeout": 0.9,
    "idle_in_transaction_session_timeout": 1.0,
}
# `off` acknowledges a save that is on no disk. What a session has set, a reload does not change.
_VERSION_OF: Final = (
    "select max(number), set_config('synchronous_commit',"
    " case current_setting('synchronous_commit') when 'off' then 'on'"
    " else current_setting('synchronous_commit') end, false) from {}.version"
)
_PAUSE: Final = 0.05
"""For how many seconds what was cut off may go on in the server before it is asked again."""
_TURN: Final = 1.0
"""For how many seconds to wait for a connection before the pool is asked to make one again."""
_ROLLED_BACK: Final = frozenset(["40001", "40P01"])  # serialization failure, deadlock
_ENDED: Final = frozenset(["57P01", "57P02", "57P05"])  # by an administrator, a crash, for idling


class _Refusal(NamedTuple):
    what: str
    do: str
    kind: type[StorageError] = StorageUnavailable


_NO_SCHEMA: Final = _Refusal(
    "There is no schema of safepoint in {where}.",
    f"Make it, as one who may create roles: {MIGRATE} DSN",
)
_OTHER: Final = _Refusal(
    "The server of {where} could not do that: {said} (SQLSTATE {code}).",
    "Nothing was done. Look at the server's log.",
)
# Before there is a session libpq tells no SQLSTATE: then its words are handed on.
_NO_SESSION: Final = _Refusal(
    "The server of {where} cannot be used: {said}.",
    "Look at the connection string, at the login and at the server's log. Do not lower sslmode. To"
    " try one out: safepoint try-postgres FOLDER",
)
_REFUSALS: Final = {
    None: _NO_SESSION,
    "42P01": _NO_SCHEMA,
    "3F000": _NO_SCHEMA,
    "42883": _NO_SCHEMA,
    "42501": _Refusal(
        "{Where} refuses that: {said}.",
        "Nothing was done. Use a login of the role that may do it, and keep it where only that job"
        " runs.",
        StorageRefused,
    ),
    "42703": _Refusal(
        "A schema in {where} has the name of safepoint's, and not its columns.",
        "If it is another application's, create a database of its own for the checkpoints: createdb"
        " checkpoints. If somebody changed it, restore it from a backup.",
    ),
    "25006": _Refusal(
        "{Where} takes no writes: it is a copy, or set to read-only.",
        "Name the primary as host, or end the read-only mode: alter database … set"
        " default_transaction_read_only = off",
    ),
    "53100": _Refusal(
        "The server of {where} has no room.",
        "Nothing was saved. Make room on its volume, then save again.",
        StorageFull,
    ),
    "57014": _Refusal(
        "The server of {where} took too long: {said}.",
        "Nothing was done. See what it is busy with: select * from pg_stat_activity",
    ),
    "55P03": _Refusal(
        "Another session of {where} holds what this waited for, in a transaction that it has not"
        " ended.",
        "Nothing was done. Let an administrator see who it is, and end it: select pid, usename,"
        " xact_start from pg_stat_activity where state like 'idle in transaction%'",
    ),
}

# What fails is raised here. The pool's own warnings are for whoever has set up logging.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits no longer than until `deadline`, on the monotonic clock.

    The kernel of a server that hangs acknowledges what we send, so TCP does not notice, and the
    server's own timeouts hang with it.
    """

    deadline: float | None = None

    def lost(self, error: psycopg.Error) -> bool:
        """Tell whether the session ended with this error, so that nobody knows what it did."""
        return self.closed or error.sqlstate in _ENDED

    def wait(self, gen: Generator[Any, Any, _T], *rest: Any, **named: Any) -> _T:
        """Wait as the driver does, until the deadline."""
        return super().wait(self._limited(gen), *rest, **named)

    def _limited(self, gen: Generator[Any, Any, _T]) -> Generator[Any, Any, _T]:
        ready = None
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as done:
                result: _T = done.value
                return result
            ready = yield wanted
            if not ready and self.deadline is not None and time.monotonic() > self.deadline:
                self.close()  # whatever it still says belongs to no question of ours
                raise psycopg.OperationalError("timeout expired: no answer from the server")


class Server:
    """A server with a schema of ours, as one login sees it, for the threads of a process.

    Every statement runs by itself, as a transaction of its own. If the connection is lost, what was
    asked is asked again on another one, until `wait_seconds` are over.

    Args:
        dsn: a connection string as libpq takes it.
        schema: the name of the schema, whose version is looked at on each new connection.
        connections: how many connections this process opens at most.
        wait_seconds: how long to try, if the server is away or busy.

    Raises:
        ConfigurationError: `dsn` is no connection string.
        StorageError: the server cannot be used. The message says what to run.
    """

    def __init__(self, dsn: str, schema: str, *, connections: int, wait_seconds: float) -> None:
        given = parsed(dsn)
        self._where = place(given)
        self._most, self._seconds = connections, wait_seconds
        seconds = str(max(2, round(wait_seconds)))
        limits = "".join(
            f" -c {name}={max(1, round(wait_seconds * share * 1000))}"
            for name, share in _LIMITS.items()
        )
        self._conninfo = make_conninfo(
            **{
                "application_name": "safepoint",
                "connect_timeout": seconds,
                # A copy that lags behind would look like a store that was rolled back.
                "target_session_attrs": "read-write",
                # A network that swallows all says nothing. Without these a call waits for hours.
                "keepalives_idle": seconds,
                "keepalives_interval": seconds,
                "keepalives_count": "2",
                "tcp_user_timeout": str(max(1, round(wait_seconds * 1000))),
                **given,
                "options": f"{given.get('options', '')} {PINNED}{limits}".strip(),
            }
        )
        self._check = partial(_check, schema, self._where, wait_seconds)
        # One for each process: a child must not talk on its parent's connections, nor close them.
        self._pools: dict[int, ConnectionPool[Connection]] = {}
        self._look(self._conninfo)  # so that what is wrong is said here, and at once

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<{self._where}>)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, act: Callable[[Connection], _T]) -> _T:
        """Return what `act` makes of a connection. It is called again if the connection is lost.

        So `act` must be something that can be done twice.

        Raises:
            StorageError: the server refused, or was away for too long.
        """
        end = time.monotonic() + self._seconds
        while True:
            pool, connection = self._pool(), None
            left = end - time.monotonic()
            try:
                # Not `pool.connection()`, which ends a transaction: no statement leaves one open.
                connection = pool.getconn(timeout=min(left, _TURN))
                connection.deadline = end
                return act(connection)
            except PoolTimeout as error:
                if left <= _TURN:
                    # A pool does not say why it has none.
                    self._look(make_conninfo(self._conninfo, connect_timeout="2"))
                    raise StorageUnavailable(
                        f"None of the {self._most} connections to {self._where} was free for"
                        f" {self._seconds:g} seconds.",
                        "Nothing was done. Allow more with connections=, or let fewer threads"
                        " share them.",
                    ) from error
            except psycopg.Error as error:
                lost = connection is None or connection.lost(error)
                if not (lost or error.sqlstate in _ROLLED_BACK) or time.monotonic() > end:
                    raise refusal(error, self._where) from error
                if lost:
                    pool.drain()  # the others were to the same server: nobody tries each of them
                    time.sleep(_PAUSE)
            finally:
                if connection is not None:
                    pool.putconn(connection)

    def _rows(
        self, statement: str, values: Sequence[object] = (), *, binary: bool = False
    ) -> list[tuple[Any, ...]]:
        """Return what a query finds."""
        query = statement.encode()
        return self._run(
            lambda connection: connection.execute(query, values, binary=binary).fetchall()
        )

    def close(self) -> None:
        """Close the connections. The next call opens one again."""
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close()

    def _pool(self) -> ConnectionPool[Connection]:
        pool = self._pools.get(os.getpid())
        if pool is None:
            made = ConnectionPool(
                self._conninfo,
                connection_class=Connection,
                kwargs={"autocommit": True},
                configure=self._check,
                min_size=0,
                max_size=self._most,
                reconnect_timeout=0,  # `_run` decides for how long to try
                num_workers=1,
                open=False,
            )
            pool = self._pools.setdefault(os.getpid(), made)
            pool.open()
        return pool

    def _look(self, conninfo: str) -> None:
        """Connect once, without the pool.

        Raises:
            StorageError: that is not possible. The message says why.
        """
        try:
            with Connection.connect(conninfo, autocommit=True) as connection:
                self._check(connection)
        except psycopg.Error as error:
            raise refusal(error, self._where) from error


@contextmanager
def told_as(kind: type[CheckpointError]) -> Iterator[None]:
    """Raise what a server refuses as another kind of error, in the same words."""
    try:
        yield
    except StorageError as error:
        raise kind(error.what, error.do) from error


def parsed(dsn: object) -> dict[str, str]:
    """Return what a connection string says. No message shows the string, nor its password.

    Raises:
        ConfigurationError: it is no connection string.
    """
    try:
        given = conninfo_to_dict(dsn) if isinstance(dsn, str) and "\0" not in dsn else None
    except (psycopg.Error, UnicodeError):
        given = None
    if given is None:
        raise ConfigurationError(
            "This is not a connection string for PostgreSQL.",
            'Write "host=db.internal dbname=checkpoints user=worker_1", or postgresql://…, and'
            " keep the password in a file that PGPASSFILE names.",
        ) from None
    found = {key: str(value) for key, value in given.items() if value is not None}
    # In postgresql://me:a/b@host the part after a slash of the password is the database.
    if any("@" in found.get(key, "") for key in ("host", "port", "dbname")):
        raise ConfigurationError(
            "This connection string has an '@' where none belongs: in a host or a database.",
            "Keep the password in a file that PGPASSFILE names, or write its '/' as %2F and its"
            " '@' as %40.",
        )
    return found


def place(given: Mapping[str, str]) -> str:
    """Say which database and which login a connection string is for, with nothing else of it."""
    database = given.get("dbname") or os.environ.get("PGDATABASE")
    user = given.get("user") or os.environ.get("PGUSER")
    shown = f"database {quoted(database)}" if database else "the database"
    return f"{shown} (login {quoted(user)})" if user else shown


def refusal(error: psycopg.Error, where: str) -> StorageError:
    """Return what to raise in place of an error of the driver, by its SQLSTATE."""
    said = ascii(" ".join((error.diag.message_primary or str(error)).split()))[1:-1].rstrip(".")
    said = said if len(said) <= 300 else f"{said[:297]}..."
    found = _REFUSALS.get(error.sqlstate, _OTHER)
    shown = {"where": where, "Where": where[:1].upper() + where[1:], "said": said}
    return found.kind(found.what.format(**shown, code=error.sqlstate), found.do)


def wrong_version(found: object, what: str, done: str = "") -> StorageUnavailable:
    """Say that a schema is not of this version, and what to do about it."""
    if type(found) is int and found > VERSION:
        do = "Upgrade safepoint: pip install -U safepoint"
    else:
        do = "Somebody changed it: restore the database from a backup, and find out who did."
    shown = "no version" if found is None else f"version {quoted(found)}"
    return StorageUnavailable(
        f"{what} has {shown}, and this safepoint works with version {VERSION}.", f"{done}{do}"
    )


def _check(schema: str, where: str, seconds: float, connection: Connection) -> None:
    connection.deadline = time.monotonic() + seconds
    [(found, _)] = connection.execute(_VERSION_OF.format(schema).encode()).fetchall()
    if found != VERSION:
        raise wrong_version(found, f"The schema in {where}")
