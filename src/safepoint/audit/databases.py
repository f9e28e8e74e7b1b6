"""Database: a PostgreSQL as one of its logins sees it, for the checks that look at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from safepoint.errors import quoted

SCHEMAS: Final = {
    "store": "safepoint",
    "anchor": "safepoint_anchor",
    "journal": "safepoint_journal",
}
_OPTIONS: Final = (
    "-c search_path=pg_catalog,pg_temp -c default_transaction_read_only=on"
    " -c default_transaction_isolation=read\\ committed"
    # What a thief sets for the login that they stole must not change what is seen here.
    " -c client_encoding=UTF8 -c DateStyle=ISO -c TimeZone=UTC -c standard_conforming_strings=on"
    " -c quote_all_identifiers=off -c role=none -c idle_session_timeout=0"
    " -c statement_timeout=10000 -c lock_timeout=10000"
    " -c idle_in_transaction_session_timeout=10000"
)
_WHO: Final = (
    "select session_user::text, quote_ident(session_user), current_database()::text,"
    " quote_ident(current_database()), extract(epoch from pg_postmaster_start_time())::text"
)
_MEMBERSHIPS: Final = (
    "select m.rolname::text, r.rolname::text from pg_auth_members a"
    " join pg_roles m on m.oid = a.member join pg_roles r on r.oid = a.roleid order by 1, 2"
)


class Database:
    """What a login sees of a database. It changes nothing: its transactions are read-only.

    Attributes:
        given: what the connection string says.
        connection: the connection.
        login: who has logged in.
        name: the database.
        server: when the server was started, which no two servers share.
    """

    def __init__(self, given: Mapping[str, str], connection: Any) -> None:
        self.given = given
        self.connection = connection
        who = self.rows(_WHO)[0]
        self.login, self.sql_login = str(who[0]), shown(who[1])
        self.name, self.sql_name = str(who[2]), shown(who[3])
        self.server = str(who[4])

    @property
    def version(self) -> int:
        """The version of the server, 180004 for 18.4."""
        return int(self.connection.info.server_version)

    def rows(self, text: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Return the rows of a query."""
        found: list[Any] = self.connection.execute(text, values or None).fetchall()
        return found

    def has_schema(self, part: str) -> bool:
        """Tell whether a part of safepoint is in it."""
        return self.rows("select to_regnamespace(%s) is not null", (SCHEMAS[part],)) == [(True,)]


@contextmanager
def looking(dsn: str) -> Iterator[Database]:
    """Connect, and look at a database for as long as the block lasts.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: it is no connection string.
        StorageError: the server refuses, or is away.
    """
    from safepoint.postgres.connection import parsed, place, refusal  # says what to install

    import psycopg  # isort: skip

    given = parsed(dsn)
    chosen: dict[str, Any] = {
        "options": f"{given.get('options', '')} {_OPTIONS}".strip(),
        "application_name": "safepoint audit",
        "connect_timeout": given.get("connect_timeout", "10"),
    }
    try:
        with psycopg.connect(dsn, autocommit=True, **chosen) as connection:
            yield Database(given, connection)
    except psycopg.Error as error:
        raise refusal(error, place(given)) from error


class Roles:
    """The roles that a login is in, at once or by way of others, whether it inherits or not."""

    def __init__(self, database: Database, login: str) -> None:
        self.login = login
        self._paths: dict[str, tuple[str, ...]] = {login: (login,)}
        above: dict[str, list[str]] = {}
        for member, role in database.rows(_MEMBERSHIPS):
            above.setdefault(member, []).append(role)
        waiting = [login]
        while waiting:
            member = waiting.pop(0)
            for role in above.get(member, []):
                if role not in self._paths:
                    self._paths[role] = (*self._paths[member], role)
                    waiting.append(role)

    def __contains__(self, role: str) -> bool:
        return role in self._paths

    @property
    def names(self) -> list[str]:
        """All of them, the login first."""
        return list(self._paths)

    def by(self, role: str) -> str:
        """Say by which membership the login is that role; nothing if it is the login itself."""
        way = [quoted(name) for name in self._paths[role][1:]]
        return f", as a member of {' and so of '.join(way)}" if way else ""

    def member(self, role: str) -> str:
        """Return who is in the role, on the way from the login to it."""
        return self._paths[role][-2]


def shown(name: str) -> str:
    """Return a name as SQL has it, if it can be shown as it is."""
    return name if name.isascii() and name.isprintable() and len(name) < 200 else quoted(name)
