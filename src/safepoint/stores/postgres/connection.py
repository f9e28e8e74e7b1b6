"""Connections to a server: a pool, time limits, retries, and errors of this package."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, NamedTuple, TypedDict, TypeVar

from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    ErrorKind,
    NotFound,
    NotOwner,
    Unavailable,
    missing,
    quoted,
)
from safepoint.core.storage import Closing, Tenants

try:
    import psycopg as psycopg  # noqa: PLC0414  other modules import it from here
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
Cells = tuple[Any, ...]

PINNED: Final = (
    "-c search_path=pg_catalog,pg_temp -c default_transaction_isolation=read\\ committed"
    # A login's own settings must not change how this package reads the server's results.
    " -c client_encoding=UTF8 -c DateStyle=ISO -c TimeZone=UTC -c standard_conforming_strings=on"
)
"""Session settings that neither a login nor a connection string can change."""
# The tenant that the login serves; `*` means all tenants.
WHOSE: Final = "select coalesce((select serves from {0}.logins where login = session_user), '')"
# `off` acknowledges a save before it is on disk. A reload does not change a session's own setting.
_BEGIN: Final = (
    f"{WHOSE}, set_config('synchronous_commit',"
    " coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)"
)
_PAUSE: Final = 0.05
"""How many seconds to wait after a lost connection before the next try."""
_TURN: Final = 1.0
"""How many seconds to wait for a connection before asking the pool for one again."""
_SELDOM: Final = 5
"""How many times a statement runs before it is prepared. The driver's default is the same."""
_ENDED: Final = frozenset(["57P01", "57P02", "57P05"])  # by an administrator, a crash, idle time


class _Refusal(NamedTuple):
    kind: type[CheckpointError]
    what: str
    do: str | None = None
    which: ErrorKind | None = None


_OTHER: Final = _Refusal(
    Unavailable,
    "The server of {where} could not do that: {said} (SQLSTATE {code}).",
    "Look at the server's log.",
)
# By SQLSTATE. Codes that begin with SP come from the functions of the schema.
_REFUSALS: Final[dict[str | None, _Refusal]] = {
    # Without a session libpq has no SQLSTATE, so its message is included.
    None: _Refusal(
        Unavailable,
        "The server of {where} cannot be used: {said}.",
        "Look at the connection string and at the server's log. Do not lower sslmode.",
    ),
    "42P01": _Refusal(
        Unavailable,
        "Safepoint's schema is missing in {where}.",
        "Make it, as one who may create roles: safepoint postgres DSN",
    ),
    "42501": _Refusal(
        Unavailable,
        "{Where} refuses that: {said}.",
        "Use a login of the role that may do it.",
        "refused",
    ),
    "53100": _Refusal(Unavailable, "The server of {where} has no room, so nothing was saved."),
    "55P03": _Refusal(
        Unavailable,
        "Another session of {where} holds what this waited for, in an open transaction.",
        "Let an administrator find and end it: select pid, usename, xact_start from"
        " pg_stat_activity where state like 'idle in transaction%'",
    ),
    "SP001": _Refusal(NotOwner, "{Said}."),
    "SP002": _Refusal(NotOwner, "{Said}."),
    "SP003": _Refusal(Conflict, "{Said}."),
    "SP004": _Refusal(Conflict, "{Said}."),
    "SP005": _Refusal(NotFound, "{Said}."),
}

# Failures are raised here. The pool's own warnings appear only if the application logs them.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class Connection(psycopg.Connection[Cells]):
    """A connection that closes if the server stops answering, which TCP does not notice."""

    seconds: float | None = None
    whose = ""
    """The tenant that its login served when last checked; `*` means all tenants."""

    @cached_property
    def _state(self) -> tuple[Counter[str], Any]:
        return Counter(), Transformer(self)

    def ask(self, statement: str, values: Sequence[object] = ()) -> list[Cells]:
        """Return the rows of a statement, with `$1` for the first value; prepare frequent ones.

        Every save uses this, because it takes half the time of a cursor.
        """
        uses, loading = self._state
        encoded = [v if v is None or type(v) is bytes else str(v).encode() for v in values]
        formats = [int(type(v) is bytes) for v in values]
        name, query = b"%d" % hash(statement), statement.encode()
        uses[statement] += 1
        if uses[statement] <= _SELDOM:
            self.pgconn.send_query_params(query, encoded, None, formats, Format.BINARY)
        else:
            if uses[statement] == _SELDOM + 1:
                self.pgconn.send_prepare(name, query)
                self._answer()
            self.pgconn.send_query_prepared(name, encoded, formats, Format.BINARY)
        found = self._answer()
        loading.set_pgresult(found)
        rows: list[Cells] = loading.load_rows(0, found.ntuples, tuple)
        return rows

    def _answer(self) -> Any:
        try:
            [found] = self.wait(execute(self.pgconn), timeout=self.seconds)
        except psycopg.OperationalError:
            self.close()  # it is lost, or took too long: a late answer must not be read
            raise
        if found.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise psycopg.errors.error_from_result(found)
        return found


class Options(TypedDict, total=False):
    """How many connections the threads of a process share, and how long a call keeps trying."""

    connections: int
    wait_seconds: float


class Session(Tenants, Closing):
    """A schema of this package on a server, as one login sees it, for the threads of a process.

    Each statement is a transaction of its own. If the connection is lost, the statement is tried
    again on another connection, until `wait_seconds` have passed.

    Args:
        dsn: a libpq connection string.
        schema: the name of the schema.
        connections: the maximum number of connections of this process.
        wait_seconds: how long to keep trying while the server is away or busy.

    Raises:
        ConfigurationError: `dsn` is not a connection string.
        Unavailable: the server cannot be used. The message says what to run.
    """

    def __init__(
        self, dsn: str, schema: str, *, connections: int = 4, wait_seconds: float = 10.0
    ) -> None:
        fields = parsed(dsn)
        self._where = place(fields)
        self._most, self._seconds = connections, wait_seconds
        # These limits distinguish a lock that somebody holds, a slow server, and a server that
        # hangs; only the last is timed on this side.
        lock, statement = (max(1, round(wait_seconds * share)) for share in (400, 900))
        limits = f" -c lock_timeout={lock} -c statement_timeout={statement}"
        self._conninfo = make_conninfo(
            **{
                "application_name": "safepoint",
                "connect_timeout": str(max(2, round(wait_seconds))),
                # A standby that lags behind would look like a store that was rolled back.
                "target_session_attrs": "read-write",
                **fields,
                "options": f"{fields.get('options', '')} {PINNED}{limits}".strip(),
            }
        )
        self._schema = schema
        # One per process: a child must neither use nor close its parent's connections.
        self._pools: dict[int, ConnectionPool[Connection]] = {}
        self._look()  # so that a problem is reported here, immediately

    def __repr__(self) -> str:
        tenant = f", tenant {self._tenant!r}" if self._tenant else ""
        return f"{type(self).__name__}(<{self._where}>{tenant})"

    def _run(self, act: Callable[[Connection], _T]) -> _T:
        """Call `act` with a connection and return its result.

        It is called again if the connection is lost, so it must be safe to run twice.

        Raises:
            Unavailable: the server refused, or was away for too long.
        """
        end = time.monotonic() + self._seconds
        while True:
            pool, connection = self._pool(), None
            remaining = end - time.monotonic()
            try:
                # Not `pool.connection()`, which ends a transaction: there is none to end.
                connection = pool.getconn(min(remaining, _TURN))
                if connection.whose not in (self._tenant, "*"):
                    self._check_tenant(connection)
                return act(connection)
            except PoolTimeout as error:
                if remaining <= _TURN:
                    self._look()  # a pool does not say why it has no connection
                    raise Unavailable(
                        f"None of the {self._most} connections to {self._where} was free for"
                        f" {self._seconds:g} seconds.",
                        "Allow more with connections=, or let fewer threads share them.",
                    ) from error
            except psycopg.Error as error:
                lost = connection is None or is_lost(connection, error)
                if not lost or time.monotonic() > end:
                    raise refusal(error, self._where) from error
                pool.drain()  # the other connections are probably lost as well
                time.sleep(_PAUSE)
            finally:
                if connection is not None:
                    pool.putconn(connection)

    def _rows(self, statement: str, *values: object) -> list[Cells]:
        """Return the rows of a query; if there are none, check that the login may see them."""

        def find(connection: Connection) -> list[Cells]:
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
                reconnect_timeout=0,  # `_run` decides how long to try
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
            Unavailable: it cannot connect. The message says why.
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
        """Check that the login sees this tenant's threads, before an absence is believed.

        To a login of another tenant, an existing thread looks as if it had never existed.

        Raises:
            Unavailable: the login does not serve this tenant.
        """
        connection.whose = whose = connection.ask(WHOSE.format(self._schema))[0][0]
        if whose not in (self._tenant, "*"):
            its, asked = (
                f"tenant {quoted(name)}" if name else "no tenant" for name in (whose, self._tenant)
            )
            raise Unavailable(
                f"{_capitalized(self._where)} has the threads of {its} for this login, not"
                f" of {asked}.",
                "Use a login of that tenant, or assign this one: safepoint postgres DSN --assign"
                " LOGIN --tenant NAME, or --every-tenant",
                "refused",
            )


_OPEN: Final = weakref.WeakSet[Session]()


@atexit.register
def _close_all() -> None:
    """Close the pools at exit while their threads run: Python 3.13 would wait for the threads."""
    for server in list(_OPEN):
        server.close()


def is_lost(connection: Connection, error: psycopg.Error) -> bool:
    """Tell whether the session ended with this error, so that its effect is unknown."""
    return connection.closed or error.sqlstate in _ENDED


def parsed(dsn: object) -> dict[str, str]:
    """Return the values of a connection string. No message shows the string or its password.

    Raises:
        ConfigurationError: it is not a connection string.
    """
    found: dict[str, str] = {}
    with suppress(psycopg.Error, UnicodeError):
        if isinstance(dsn, str) and "\0" not in dsn:
            values = conninfo_to_dict(dsn)
            found = {key: str(value) for key, value in values.items() if value is not None}
    # In postgresql://me:a/b@host, the slash in the password makes "b@host" the database.
    if not found or any("@" in found.get(key, "") for key in ("host", "port", "dbname")):
        raise ConfigurationError(
            "This is not a connection string for PostgreSQL.",
            'Write "host=db.internal dbname=checkpoints", and keep the password in a PGPASSFILE.',
        )
    return found


def place(fields: Mapping[str, str]) -> str:
    """Return only the database and the login of a connection string, for messages."""
    database = fields.get("dbname") or os.environ.get("PGDATABASE")
    user = fields.get("user") or os.environ.get("PGUSER")
    shown = f"database {quoted(database)}" if database else "the database"
    return f"{shown} (login {quoted(user)})" if user else shown


def refusal(error: psycopg.Error, where: str) -> CheckpointError:
    """Return the error of this package for an error of the driver, by its SQLSTATE."""
    said = ascii(" ".join((error.diag.message_primary or str(error)).split()))[1:-1].rstrip(".?")
    said = said if len(said) <= 300 else f"{said[:297]}..."
    kind, what, do, which = _REFUSALS.get(error.sqlstate, _OTHER)
    shown = {"where": where, "said": said}
    shown |= {name.capitalize(): _capitalized(text) for name, text in shown.items()}
    return kind(what.format(**shown, code=error.sqlstate), do, which)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
