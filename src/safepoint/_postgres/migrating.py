"""Making the schema and its roles, under a login that may create roles."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from safepoint._postgres.driver import Address, driver
from safepoint._postgres.refusals import refusal
from safepoint._postgres.versions import VERSION, wrong_version
from safepoint.errors import ConfigurationError, StorageUnavailable, quoted

if TYPE_CHECKING:
    import psycopg

PARTS: Final = ("store", "anchor", "journal")
ROLES: Final = (
    "owner",
    "writer",
    "reader",
    "operator",
    "anchor",
    "anchor_operator",
    "journal",
    "auditor",
)
OLDEST: Final = 140000
# The longest role still fits into the 63 bytes of a name. And the operators of a store "x_anchor"
# would be those of the anchor of a store "x".
_PREFIX: Final = re.compile(r"(?!pg_)(?![a-z0-9_]*_anchor\Z)[a-z][a-z0-9_]{0,46}\Z")
_SCHEMAS: Final = {
    "store": "safepoint",
    "anchor": "safepoint_anchor",
    "journal": "safepoint_journal",
}
_LOCK: Final = 0x53465054
_OPTIONS: Final = "-c search_path=pg_catalog,pg_temp -c lock_timeout=10s"
_SCHEMA_OWNER: Final = (
    "select pg_get_userbyid(n.nspowner), (select a.atttypid = 'integer'::regtype from pg_class c"
    " join pg_attribute a on a.attrelid = c.oid where c.relnamespace = n.oid"
    " and c.relname = 'version' and a.attname = 'number')"
    " from pg_namespace n where n.nspname = %s"
)
_ABLE: Final = (
    "select rolname from pg_roles r where rolname = any(%s) and (rolcanlogin or rolsuper"
    " or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls"
    " or exists (select from pg_auth_members m where m.member = r.oid)) order by rolname"
)
_GIVEN: Final = "select from pg_default_acl where defaclrole = to_regrole(%s)"
_MADE: Final = (
    "select count(*) from pg_class where relnamespace = to_regnamespace(%s) and relkind = 'r'"
    " and relname = any(%s) and relowner = to_regrole(%s)"
)
_TABLES: Final = {
    "store": ["checkpoints", "discarded", "prunings", "takings", "threads", "version"],
    "anchor": ["heads", "rewinds", "version"],
    "journal": ["lines", "version"],
}
# Before PostgreSQL 16 a member always has all that the role has.
_OWNER: Final = (
    "select rolcanlogin, rolsuper, (select min(pg_get_userbyid(m.member)) from pg_auth_members m"
    " where m.roleid = r.oid and (coalesce((to_jsonb(m)->>'set_option')::boolean, true)"
    " or coalesce((to_jsonb(m)->>'inherit_option')::boolean, true)))"
    " from pg_roles r where rolname = %s"
)


def migrate(
    dsn: str, *, parts: tuple[str, ...] = PARTS, prefix: str = "safepoint"
) -> tuple[str, ...]:
    """Make the schema and the roles in a database, or leave them if they are there.

    All of it happens in one transaction, or none. The roles let nobody in by themselves: create
    logins, and put each in one of them. Run it with a login that may create roles and schemas;
    no superuser is needed. That login is left with no right of the owner's, but as the one who
    made the roles it may take them again (PostgreSQL 16 and newer): end it, or keep it as you
    would keep a superuser's.

    Args:
        dsn: a connection string as libpq takes it.
        parts: what to make there. An anchor in another database, best on another server, is out
            of reach of whoever administers this one.
        prefix: how the names of the roles begin. Roles are shared by all databases of a server:
            give each store its own prefix if two are on one server.

    Returns:
        The parts that were made; none if all were there.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: an argument is of the wrong kind.
        StorageRefused: this login may not create roles or schemas. Nothing was made.
        StorageUnavailable: there is no server, the schema there is of another version or of other
            roles, somebody can log in as its owner, or somebody holds what it has to change for
            more than 10 seconds.
    """
    address, chosen = Address(dsn), _checked(parts)
    psycopg = driver()
    roles = _roles(prefix)
    try:
        with psycopg.connect(
            dsn,
            options=f"{address.get('options')} {_OPTIONS}".strip(),
            application_name="safepoint migrate",
            connect_timeout=address.get("connect_timeout", "10"),
        ) as connection:
            connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
            _check_server(connection)
            owner = f"{prefix}_owner"
            for text in _preparing(roles):
                connection.execute(text)
            _check_owner(connection, owner)
            _check_roles(connection, prefix)
            connection.execute(_entering(roles))
            made = tuple(part for part in chosen if not _is_there(connection, part, owner, address))
            for part in made:
                connection.execute(_text(part, roles))
            connection.execute(_leaving(roles))
            return made
    except psycopg.Error as error:
        raise refusal(error, address.known()) from error


def statements(*, parts: tuple[str, ...] = PARTS, prefix: str = "safepoint") -> str:
    """Return the SQL that `migrate` runs, for whoever wants to read it or run it by hand.

    Raises:
        ConfigurationError: an argument is of the wrong kind.
        MissingPackage: psycopg is not installed.
    """
    roles = _roles(prefix)
    texts = [
        *_preparing(roles),
        _entering(roles),
        *(_text(part, roles) for part in _checked(parts)),
        _leaving(roles),
    ]
    return "\n\n".join(["begin;", *(text.as_string(None).strip() for text in texts), "commit;"])


def _checked(parts: object) -> tuple[str, ...]:
    if not isinstance(parts, (tuple, list)) or not parts or not set(parts) <= set(PARTS):
        raise ConfigurationError(
            f"{quoted(parts)} are not parts of a schema.",
            f"Write parts=({', '.join(repr(part) for part in PARTS)}), or some of them.",
        )
    return tuple(part for part in PARTS if part in parts)


def _roles(prefix: object) -> dict[str, Any]:
    if not isinstance(prefix, str) or not _PREFIX.match(prefix):
        raise ConfigurationError(
            f"{quoted(prefix)} cannot begin the names of roles.",
            "Use 1 to 47 of a-z, 0-9 and '_', begin with a letter and not with pg_, and do not end"
            " with _anchor.",
        )
    identifier = driver().sql.Identifier
    return {role: identifier(f"{prefix}_{role}") for role in ROLES}


def _preparing(roles: dict[str, Any]) -> list[Any]:
    """Return what makes the roles that are missing."""
    sql = driver().sql
    return [
        sql.SQL(
            "do $$ begin create role {0} nologin;"
            " exception when duplicate_object or unique_violation then null; end $$;"
        ).format(role)
        for role in roles.values()
    ]


def _entering(roles: dict[str, Any]) -> Any:
    """Return what lets this login act as the owner."""
    return driver().sql.SQL("grant {0} to current_user;").format(roles["owner"])


def _leaving(roles: dict[str, Any]) -> Any:
    return driver().sql.SQL("revoke {0} from current_user;").format(roles["owner"])


def _text(part: str, roles: dict[str, Any]) -> Any:
    text = files("safepoint._postgres").joinpath(f"{part}.sql").read_text(encoding="utf-8")
    return driver().sql.SQL(text).format(**roles)


def _check_server(connection: psycopg.Connection[Any]) -> None:
    version = connection.info.server_version
    if version < OLDEST:
        raise StorageUnavailable(
            f"The server is PostgreSQL {version // 10000}, and this needs 14 or newer.",
            "Upgrade the server. Nothing was made.",
        )


def _check_owner(connection: psycopg.Connection[Any], owner: str) -> None:
    """Refuse an owner as whom somebody could act: it was there before us, and is not as we make it.

    Raises:
        StorageUnavailable: it can log in, is a superuser, or has a member.
    """
    logs_in, rules_all, member = connection.execute(_OWNER, (owner,)).fetchall()[0]
    if logs_in or rules_all:
        raise StorageUnavailable(
            f"The role {owner} is there already, and can {'log in' if logs_in else 'do anything'}.",
            f"Nothing was made. Run: alter role {owner} nologin nosuperuser",
        )
    if member is not None:
        raise StorageUnavailable(
            f"The role {owner} is there already, and {quoted(member)} can act as it.",
            f"Nothing was made. Run: revoke {owner} from the member, or choose another prefix.",
        )


def _check_roles(connection: psycopg.Connection[Any], prefix: str) -> None:
    """Refuse roles that were there before us and can more than we give them.

    Raises:
        StorageUnavailable: one can log in, create, or act as another; or what the owner makes
            would be granted to somebody at once.
    """
    names = [f"{prefix}_{role}" for role in ROLES]
    able = connection.execute(_ABLE, (names,)).fetchone()
    if able is not None:
        raise StorageUnavailable(
            f"The role {able[0]} is there already, and can more than its part.",
            f"Nothing was made. Run: alter role {able[0]} nologin nosuperuser nocreaterole"
            " nocreatedb noreplication nobypassrls; and revoke from it what it is a member of.",
        )
    if connection.execute(_GIVEN, (f"{prefix}_owner",)).fetchone() is not None:
        raise StorageUnavailable(
            f"What the role {prefix}_owner makes is granted to somebody at once.",
            "Nothing was made. Take that back: alter default privileges for role"
            f" {prefix}_owner … revoke; \\ddp in psql lists them.",
        )


def _is_there(connection: psycopg.Connection[Any], part: str, owner: str, address: Address) -> bool:
    """Tell whether a part is there in this version, with these roles.

    Raises:
        StorageUnavailable: it is there in another one, or something else has its name.
    """
    schema = _SCHEMAS[part]
    found = connection.execute(_SCHEMA_OWNER, (schema,)).fetchone()
    if found is None:
        return False
    made_by, has_number = found
    if made_by != owner and not has_number:
        raise StorageUnavailable(
            f"In {address.known(connection)} there is a schema {schema} that is not of safepoint.",
            "Nothing was made. Create a database of its own for the checkpoints: createdb"
            " checkpoints",
        )
    if made_by != owner:
        raise StorageUnavailable(
            f"Schema {schema} in {address.known(connection)} belongs to the role"
            f" {quoted(made_by)}, not to {owner}.",
            "Nothing was made. Give the prefix with which it was made, or another database.",
        )
    version = None
    if has_number is not None:
        sql = driver().sql
        connection.execute(sql.SQL("set local role {}").format(sql.Identifier(owner)))
        text = sql.SQL("select max(number) from {}.version").format(sql.Identifier(schema))
        [(version,)] = connection.execute(text).fetchall()
        connection.execute("reset role")
    if version != VERSION:
        shown, do = wrong_version(version)
        raise StorageUnavailable(
            f"Schema {schema} in {address.known(connection)} has {shown}, and this safepoint makes"
            f" version {VERSION}.",
            f"Nothing was made. {do}",
        )
    wanted = _TABLES[part]
    if connection.execute(_MADE, (schema, wanted, owner)).fetchone() != (len(wanted),):
        raise StorageUnavailable(
            f"Schema {schema} in {address.known(connection)} is not as migrate makes it: a table is"
            " missing, or is somebody else's.",
            "Nothing was made. Somebody changed it: restore the database from a backup, and find"
            " out who did.",
        )
    return True
