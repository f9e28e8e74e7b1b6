"""The schema and its roles, which a login that may create roles creates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from safepoint.core.errors import ConfigurationError, Unavailable, quoted
from safepoint.core.names import check_tenant
from safepoint.stores.postgres.connection import parsed, place, refusal


class _Part(NamedTuple):
    """The readers and writers of a part; its largest record, and the test for a first record."""

    readers: str
    writers: str
    largest: int = 0
    begins: str = "new.sequence = 1"


_PARTS: Final = {
    "store": _Part(
        "writer reader approver operator auditor",
        "writer operator",
        256 * 1024 * 1024,
        "safepoint.begins(new)",
    ),
    "anchor": _Part("anchor approver anchor_operator operator auditor", "anchor approver"),
    "journal": _Part("journal auditor", "journal", 64 * 1024),
    "answers": _Part("approver writer reader operator auditor", "approver", 128 * 1024),
}
PARTS: Final = tuple(_PARTS)
ROLES: Final = (
    "owner",
    *sorted({role for part in _PARTS.values() for role in part.readers.split()}),
)
SCHEMAS: Final = {part: f"safepoint_{part}" for part in PARTS} | {"store": "safepoint"}
LARGEST: Final = {name: part.largest for name, part in _PARTS.items()}
"""How many bytes a record of each part may have in the database."""
# The longest role name still has at most 63 bytes. And with the prefix "x_anchor", the role of
# store operators would be the role of anchor operators of the prefix "x".
_PREFIX: Final = re.compile(r"(?!pg_)(?![a-z0-9_]*_anchor\Z)[a-z][a-z0-9_]{0,46}\Z")
_LOCK: Final = 0x53465054
_OPTIONS: Final = "-c search_path=pg_catalog,pg_temp -c lock_timeout=10s"
_MAKE_ROLE: Final = (
    "do $$ begin create role {0} nologin;"
    " exception when duplicate_object or unique_violation then null; end $$;"
)


def create_schema(
    dsn: str, *, parts: tuple[str, ...] = PARTS, prefix: str = "safepoint"
) -> tuple[str, ...]:
    """Create the schema and the roles in a database, unless they exist.

    Everything happens in one transaction. The roles cannot log in: create a login for each job, in
    one of the roles. An existing role of that name is used as it is: the audit reports it if it has
    members, or rights beyond its part.

    Run it with a login that may create roles and schemas; it need not be a superuser. Afterwards
    that login has no rights of the owner, but in PostgreSQL 16 and newer it may grant them to
    itself, because it created the roles. Drop it, or protect it like a superuser's login.

    Args:
        dsn: a libpq connection string.
        parts: the parts to create. Put the anchor on another server, out of reach of this
            server's administrator.
        prefix: the beginning of the roles' names. All databases of a server share roles, so give
            each store its own prefix if a server has several.

    Returns:
        The parts that were created; none if all existed.

    Raises:
        ConfigurationError: a part is unknown, or no role can have that prefix.
        Unavailable: this login may not create roles or schemas. Nothing was created; or the server
            is away, the schema belongs to other roles, or somebody held a lock on it for more than
            10 seconds.
    """
    chosen, roles = _checked(parts), _roles(prefix)
    with _changing(dsn, roles) as connection:
        made = tuple(part for part in chosen if not _is_there(connection, part, prefix))
        for part in made:
            connection.execute(_text(part, roles))
        return made


def assign(
    dsn: str,
    login: str,
    tenant: str = "",
    *,
    every_tenant: bool = False,
    prefix: str = "safepoint",
) -> tuple[str, ...]:
    """Assign a login to one tenant, or to all tenants: it sees and writes only their threads.

    A login without an assignment sees only the threads without a tenant. Assign each login of a
    tenant's worker, anchor, journal and approvers, in each database that has such a part. Run this
    with the login that runs `create_schema`. It takes effect with the next statement. Remove the
    assignment before you drop or rename a login, because it is bound to the name.

    Args:
        dsn: a libpq connection string.
        login: the login's name on the server.
        tenant: the tenant that the login serves; "" for the threads without a tenant, which
            removes an earlier assignment.
        every_tenant: without `tenant`, it serves all tenants and the threads without one: for
            an operator, an auditor, or a worker that is trusted to separate tenants.
        prefix: as for `create_schema`.

    Returns:
        The parts in which it was assigned: all parts in this database.

    Raises:
        InvalidId: no tenant can have that name.
        ConfigurationError: the login does not exist.
        Unavailable: this login may not act as the owner of the schema. Nothing was changed; or the
            server is away, or has no schema with roles of that prefix.
    """
    whose = check_tenant(tenant) if tenant else "*" * every_tenant
    roles = _roles(prefix)
    with _changing(dsn, roles) as connection:
        there = tuple(part for part in PARTS if _is_there(connection, part, prefix))
        if not there:
            raise psycopg.errors.UndefinedTable  # `refusal` writes the message
        logins = connection.execute("select rolname from pg_roles where rolcanlogin").fetchall()
        if (login,) not in logins:
            raise ConfigurationError(
                f"That server has no login {quoted(login)}.",
                f"Create it first, in its role: create role … login in role {prefix}_writer",
            )
        connection.execute(sql.SQL("set local role {}").format(roles["owner"]))
        for part in there:
            table = sql.Identifier(SCHEMAS[part], "logins")
            connection.execute(sql.SQL("delete from {} where login = %s").format(table), (login,))
            if whose:
                line = sql.SQL("insert into {} values (%s, %s)").format(table)
                connection.execute(line, (login, whose))
        connection.execute("reset role")
        return there


@contextmanager
def _changing(dsn: str, roles: dict[str, sql.Identifier]) -> Iterator[psycopg.Connection[Any]]:
    """Connect for one transaction that may act as the owner, and exclude others who change it."""
    values, (before, after) = parsed(dsn), _frame(roles)
    try:
        with psycopg.connect(
            dsn,
            options=f"{values.get('options', '')} {_OPTIONS}".strip(),
            application_name="safepoint create",
            connect_timeout=values.get("connect_timeout", "10"),
        ) as connection:
            connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
            connection.execute(before)
            yield connection
            connection.execute(after)
    except psycopg.Error as error:
        raise refusal(error, place(values)) from error


def statements(*, parts: tuple[str, ...] = PARTS, prefix: str = "safepoint") -> str:
    """Return the SQL that `create_schema` runs, to read it or to run it by hand.

    Raises:
        ConfigurationError: a part is unknown, or no role can have that prefix.
    """
    roles = _roles(prefix)
    before, after = _frame(roles)
    texts = [before, *(_text(part, roles) for part in _checked(parts)), after]
    return "\n\n".join(["begin;", *(text.as_string(None).strip() for text in texts), "commit;"])


def _checked(parts: tuple[str, ...]) -> tuple[str, ...]:
    if not parts or not set(parts) <= set(PARTS):
        raise ConfigurationError(
            f"{quoted(parts)} are not parts of a schema.",
            f"Write parts=({', '.join(repr(part) for part in PARTS)}), or some of them.",
        )
    return tuple(part for part in PARTS if part in parts)


def _roles(prefix: str) -> dict[str, sql.Identifier]:
    if not _PREFIX.match(prefix):
        raise ConfigurationError(
            f"{quoted(prefix)} cannot begin the names of roles.",
            "Use 1 to 47 of a-z, 0-9 and '_', not pg_ at the start or _anchor at the end.",
        )
    return {role: sql.Identifier(f"{prefix}_{role}") for role in ROLES}


def _frame(roles: dict[str, sql.Identifier]) -> tuple[sql.Composed, sql.Composed]:
    """Return the SQL that creates the roles and makes this login the owner, and its reversal."""
    making = [sql.SQL(_MAKE_ROLE).format(role) for role in roles.values()]
    entering = sql.SQL("grant {} to current_user;").format(roles["owner"])
    leaving = sql.SQL("revoke {} from current_user;").format(roles["owner"])
    return sql.SQL("\n").join([*making, entering]), leaving


def _text(name: str, roles: dict[str, sql.Identifier]) -> sql.Composed:
    part, folder = _PARTS[name], files("safepoint.stores.postgres")
    names = ["begin", *["records"] * bool(part.largest), name, "end"]
    sources = [folder.joinpath(f"{each}.sql") for each in names]
    text = "\n".join(each.read_text(encoding="utf-8") for each in sources if each.is_file())
    return sql.SQL(text).format(
        schema=sql.Identifier(SCHEMAS[name]),
        largest=sql.Literal(part.largest),
        begins=sql.SQL(part.begins),
        readers=sql.SQL(", ").join(roles[role] for role in part.readers.split()),
        writers=sql.SQL(", ").join(roles[role] for role in part.writers.split()),
        **roles,
    )


def _is_there(connection: psycopg.Connection[Any], part: str, prefix: str) -> bool:
    """Tell whether a part exists with these roles."""
    made_by = "select pg_get_userbyid(nspowner) from pg_namespace where nspname = %s"
    found = connection.execute(made_by, (SCHEMAS[part],)).fetchone()
    if found is not None and found[0] != f"{prefix}_owner":
        raise Unavailable(
            f"The schema {SCHEMAS[part]} belongs to the role {quoted(found[0])}, not to"
            f" {prefix}_owner.",
            "Give the prefix with which it was made, or use another database: createdb checkpoints",
        )
    return found is not None
