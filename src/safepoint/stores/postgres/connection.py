"""How a server is asked: on a pool of connections, for so many seconds, and what it refuses."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, Final, NamedTuple, Self, TypedDict, TypeVar

from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    NotFound,
    NotOwner,
    RecordsMissing,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
    missing,
    quoted,
)
from safepoint.core.storage import Tenants

try:
    import psycopg as psycopg  # noqa: PLC0414  for those who get it from here
    from psycopg.adapt import Transformer
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.generators import execute
    from psycopg.pq import ExecStatus, Format
    from psycopg_pool import ConnectionPool, PoolTimeout
except ImportError as _missing:
    raise missing(
        "PostgreSQL needs the packages psycopg and psycopg_pool.", "postgres"
    ) from _missing

_T = TypeVar("_T")
Row = tuple[Any, ...]

PINNED: Final = (
    "-c search_path=pg_catalog,pg_temp -c default_transaction_isolation=read\\ committed"
    # What a login may set for itself must not change how we read what the server says.
    " -c client_encoding=UTF8 -c DateStyle=ISO -c TimeZone=UTC -c standard_conforming_strings=on"
)
"""The settings of a session that no login and no connection string changes."""
# The tenant that the login serves; `*` is every one.
_WHOSE: Final = "select coalesce((select serves from {0}.logins where login = session_user), '')"
# `off` acknowledges a save that is on no disk. What a session has set, a reload does not change.
_BEGIN: Final = (
    f"{_WHOSE}, set_config('synchronous_commit',"
    " coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)"
)
_PAUSE: Final = 0.05
"""For how many seconds what was cut off may go on in the server before it is asked again."""
_TURN: Final = 1.0
"""For how many seconds to wait for a connection before the pool is asked to make one again."""
_SELDOM: Final = 5
"""How many times a statement is asked before it is prepared, as the driver does it."""
_ENDED: Final = frozenset(["57P01", "57P02", "57P05"])  # by an administrator, a crash, for idling


class _Refusal(NamedTuple):
    kind: type[CheckpointError]
    what: str
    do: str


_NOT_YOURS: Final = _Refusal(
    NotOwner,
    "{Said}.",
    "Nothing was done. Stop this run if another one took it over. Or wait, acquire the thread, load"
    " its latest checkpoint, and decide again from there.",
)
_NOT_NEXT: Final = (
    "Nothing was overwritten. Load the latest checkpoint and decide again from there."
)
_OTHER: Final = _Refusal(
    StorageUnavailable,
    "The server of {where} could not do that: {said} (SQLSTATE {code}).",
    "Nothing was done. Look at the server's log.",
)
# By SQLSTATE. Those that begin with SP are what the functions of the schema say.
_REFUSALS: Final[dict[str | None, _Refusal]] = {
    # Before there is a session libpq tells no SQLSTATE: then its words are handed on.
    None: _Refusal(
        StorageUnavailable,
        "The server of {where} cannot be used: {said}.",
        "Look at the connection string, at the login and at the server's log. Do not lower"
        " sslmode.",
    ),
    "42P01": _Refusal(
        StorageUnavailable,
        "There is no schema of safepoint in {where}.",
        "Make it, as one who may create roles: safepoint postgres create DSN",
    ),
    "42501": _Refusal(
        StorageRefused,
        "{Where} refuses that: {said}.",
        "Nothing was done. Use a login of the role that may do it, and keep it where only that job"
        " runs.",
    ),
    "53100": _Refusal(
        StorageFull,
        "The server of {where} has no room.",
        "Nothing was saved. Make room on its volume, then save again.",
    ),
    "55P03": _Refusal(
        StorageUnavailable,
        "Another session of {where} holds what this waited for, in a transaction that it has not"
        " ended.",
        "Nothing was done. Let an administrator see who it is, and end it: select pid, usename,"
        " xact_start from pg_stat_activity where state like 'idle in transaction%'",
    ),
    "SP001": _NOT_YOURS,
    "SP002": _NOT_YOURS,
    "SP003": _Refusal(Conflict, "{Said}.", _NOT_NEXT),
    "SP004": _Refusal(RecordsMissing, "{Said}.", _NOT_NEXT),
    "SP005": _Refusal(
        NotFound, "{Said}.", "Nothing was done. Check the names: threads() lists them."
    ),
}

# What fails is raised here. The pool's own warnings are for whoever has set up logging.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class Connection(psycopg.Connection[Row]):
    """A connection that ends if a server stands still: TCP and the server's limits see nothing."""

    seconds: float | None = None
    whose = ""
    """The tenant that its login serves, as it was last seen; `*` is every one."""

    @cached_property
    def _state(self) -> tuple[Counter[str], Any]:
        return Counter(), Transformer(self)

    def ask(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Return what a statement finds, with `$1` for the first value; prepared if it comes often.

        Every save asks so, in half of the time that a cursor takes.
        """
        uses, loading = self._state
        given = [v if v is None or type(v) is bytes else str(v).encode() for v in values]
        formats = [int(type(v) is bytes) for v in values]
        name, query = b"%d" % hash(statement), statement.encode()
        uses[statement] += 1
        if uses[statement] <= _SELDOM:
            self.pgconn.send_query_params(query, given, None, formats, Format.BINARY)
        else:
            if uses[statement] == _SELDOM + 1:
                self.pgconn.send_prepare(name, query)
                self._answer()
            self.pgconn.send_query_prepared(name, given, formats, Format.BINARY)
        found = self._answer()
        loading.set_pgresult(found)
        rows: list[Row] = loading.load_rows(0, found.ntuples, tuple)
        return rows

    def _answer(self) -> Any:
        try:
            [found] = self.wait(execute(self.pgconn), timeout=self.seconds)
        except psycopg.OperationalError:
            self.close()  # it is lost, or took too long: what it says now answers no question
            raise
        if found.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise psycopg.errors.error_from_result(found)
        return found


class Options(TypedDict, total=False):
    """How many connections the threads of a process share, and how long to try each time."""

    connections: int
    wait_seconds: float


class Server(Tenants):
    """A server with a schema of ours, as one login sees it, for the threads of a process.

    Every statement runs by itself, as a transaction of its own. If the connection is lost, what was
    asked is asked again on another one, until `wait_seconds` are over.

    Args:
        dsn: a connection string as libpq takes it.
        schema: the name of the schema.
        connections: how many connections this process opens at most.
        wait_seconds: how long to try, if the server is away or busy.

    Raises:
        ConfigurationError: `dsn` is no connection string.
        StorageError: the server cannot be used. The message says what to run.
    """

    def __init__(
        self, dsn: str, schema: str, *, connections: int = 4, wait_seconds: float = 10.0
    ) -> None:
        given = parsed(dsn)
        self._where = place(given)
        self._most, self._seconds = connections, wait_seconds
        # A lock that somebody holds is told from a server that is slow, and both from one that
        # hangs, for which we wait ourselves.
        lock, statement = (max(1, round(wait_seconds * share)) for share in (400, 900))
        limits = f" -c lock_timeout={lock} -c statement_timeout={statement}"
        self._conninfo = make_conninfo(
            **{
                "application_name": "safepoint",
                "connect_timeout": str(max(2, round(wait_seconds))),
                # A copy that lags behind would look like a store that was rolled back.
                "target_session_attrs": "read-write",
                **given,
                "options": f"{given.get('options', '')} {PINNED}{limits}".strip(),
            }
        )
        self._schema = schema
        # One for each process: a child must not talk on its parent's connections, nor close them.
        self._pools: dict[int, ConnectionPool[Connection]] = {}
        self._look()  # so that what is wrong is said here, and at once

    def __repr__(self) -> str:
        tenant = f", tenant {self._tenant!r}" if self._tenant else ""
        return f"{type(self).__name__}(<{self._where}>{tenant})"

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
                connection = pool.getconn(min(left, _TURN))
                if connection.whose not in (self._tenant, "*"):
                    self._check_tenant(connection)
                return act(connection)
            except PoolTimeout as error:
                if left <= _TURN:
                    self._look()  # a pool does not say why it has none
                    raise StorageUnavailable(
                        f"None of the {self._most} connections to {self._where} was free for"
                        f" {self._seconds:g} seconds.",
                        "Nothing was done. Allow more with connections=, or let fewer threads"
                        " share them.",
                    ) from error
            except psycopg.Error as error:
                lost = connection is None or is_lost(connection, error)
                if not lost or time.monotonic() > end:
                    raise refusal(error, self._where) from error
                pool.drain()  # the others were to the same server: nobody tries each of them
                time.sleep(_PAUSE)
            finally:
                if connection is not None:
                    pool.putconn(connection)

    def _rows(self, statement: str, *values: object) -> list[Row]:
        """Return what a query finds; nothing, if the login sees the threads that it asks for."""

        def find(connection: Connection) -> list[Row]:
            rows = connection.ask(statement, values)
            if not rows:
                self._check_tenant(connection)
            return rows

        return self._run(find)

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
            _OPEN.add(self)
        return pool

    def _look(self) -> None:
        """Connect once, without the pool.

        Raises:
            StorageError: that is not possible. The message says why.
        """
        try:
            with Connection.connect(self._conninfo, autocommit=True) as connection:
                self._check(connection)
        except psycopg.Error as error:
            raise refusal(error, self._where) from error

    def _check(self, connection: Connection) -> None:
        connection.seconds = self._seconds
        [(connection.whose, _)] = connection.ask(_BEGIN.format(self._schema))

    def _check_tenant(self, connection: Connection) -> None:
        """Ask the server whose threads the login sees now, before an absence is believed.

        To another login a thread that is there looks like one that never was.

        Raises:
            StorageRefused: not those that it is asked for.
        """
        [(whose,)] = connection.ask(_WHOSE.format(self._schema))
        connection.whose = whose
        if whose not in (self._tenant, "*"):
            its, asked = (
                f"tenant {quoted(name)}" if name else "no tenant" for name in (whose, self._tenant)
            )
            raise StorageRefused(
                f"{_capitalized(self._where)} has the threads of {its} for this login, and not"
                f" those of {asked}.",
                "Nothing was done. Use a login of that tenant, or let an administrator assign this"
                " one: safepoint postgres assign --help",
            )


_OPEN: Final = weakref.WeakSet[Server]()


@atexit.register
def _close_all() -> None:
    """Close the pools while their threads still run: from Python 3.13 on it waits for them else."""
    for server in list(_OPEN):
        server.close()


def is_lost(connection: Connection, error: psycopg.Error) -> bool:
    """Tell whether the session ended with this error, so that nobody knows what it did."""
    return connection.closed or error.sqlstate in _ENDED


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
    found: dict[str, str] = {}
    with suppress(psycopg.Error, UnicodeError):
        if isinstance(dsn, str) and "\0" not in dsn:
            given = conninfo_to_dict(dsn)
            found = {key: str(value) for key, value in given.items() if value is not None}
    # In postgresql://me:a/b@host the part after a slash of the password is the database.
    if not found or any("@" in found.get(key, "") for key in ("host", "port", "dbname")):
        raise ConfigurationError(
            "This is not a connection string for PostgreSQL.",
            'Write "host=db.internal dbname=checkpoints user=worker_1", or postgresql://…, and keep'
            " the password, whose '/' and '@' mean something there, in a file that PGPASSFILE"
            " names.",
        )
    return found


def place(given: Mapping[str, str]) -> str:
    """Say which database and which login a connection string is for, with nothing else of it."""
    database = given.get("dbname") or os.environ.get("PGDATABASE")
    user = given.get("user") or os.environ.get("PGUSER")
    shown = f"database {quoted(database)}" if database else "the database"
    return f"{shown} (login {quoted(user)})" if user else shown


def refusal(error: psycopg.Error, where: str) -> CheckpointError:
    """Return what to raise in place of an error of the driver, by its SQLSTATE."""
    said = ascii(" ".join((error.diag.message_primary or str(error)).split()))[1:-1].rstrip(".")
    said = said if len(said) <= 300 else f"{said[:297]}..."
    kind, what, do = _REFUSALS.get(error.sqlstate, _OTHER)
    shown = {"where": where, "said": said}
    shown |= {name.capitalize(): _capitalized(text) for name, text in shown.items()}
    return kind(what.format(**shown, code=error.sqlstate), do)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
