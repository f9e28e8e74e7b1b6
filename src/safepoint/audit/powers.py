"""What a login may do that no grant on a table tells: its attributes, its roles, what it owns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from safepoint.audit.databases import SCHEMAS, Database, Roles, shown
from safepoint.audit.finding import Finding, Severity
from safepoint.errors import quoted

_ATTRIBUTES: Final = (
    "select rolname::text, quote_ident(rolname), rolsuper, rolcreaterole, rolreplication,"
    " rolcreatedb, rolbypassrls from pg_roles where rolname = any(%s)"
)
_POWERS: Final[tuple[tuple[str, Severity, str], ...]] = (
    ("createrole", "error", "may create roles, and change or join others"),
    ("replication", "error", "may copy the whole server, with every database in it"),
    ("createdb", "warning", "may create databases"),
    ("bypassrls", "warning", "is not held by row-level security"),
)
_PREDEFINED: Final[dict[str, tuple[Severity, str]]] = {
    "pg_execute_server_program": ("error", "may run programs as the server's own user"),
    "pg_write_server_files": ("error", "may write the server's own files"),
    "pg_read_server_files": ("error", "may read the server's own files, every database included"),
    "pg_write_all_data": ("error", "may write every table"),
    "pg_create_subscription": ("warning", "may let another server write tables here"),
    "pg_maintain": ("warning", "may lock every table"),
    "pg_read_all_data": ("warning", "may read every table"),
    "pg_signal_backend": ("warning", "may end the sessions of other logins"),
}
_OWNERS: Final = (
    "select pg_get_userbyid(nspowner)::text, 'schema', quote_ident(nspname) from pg_namespace"
    " where nspname = any(%(schemas)s)"
    " union all select pg_get_userbyid(relowner)::text, case relkind when 'v' then 'view'"
    " when 'm' then 'materialized view' when 'S' then 'sequence' when 'f' then 'foreign table'"
    " else 'table' end, c.oid::regclass::text from pg_class c"
    " join pg_namespace n on n.oid = relnamespace"
    " where nspname = any(%(schemas)s) and relkind in ('r', 'p', 'v', 'm', 'S', 'f')"
    " union all select pg_get_userbyid(proowner)::text, 'function', p.oid::regprocedure::text"
    " from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = any(%(schemas)s)"
    " union all select pg_get_userbyid(datdba)::text, 'database', quote_ident(datname)"
    " from pg_database where datname = current_database()"
)
# Whoever made the roles may grant them to themselves, and is in none of them until they do.
_RUNNERS: Final = (
    "select distinct on (l.rolname) l.rolname::text, r.rolname::text from pg_proc p"
    " join pg_namespace n on n.oid = p.pronamespace,"
    " aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a"
    " join pg_roles r on r.oid = a.grantee"
    " join pg_roles l on l.rolcanlogin and not l.rolsuper"
    " and (pg_has_role(l.oid, r.oid, 'USAGE') or pg_has_role(l.oid, r.oid, %s))"
    " where n.nspname = %s and p.proname = %s and a.grantee <> p.proowner"
    " order by l.rolname, r.rolname"
)
_MD5: Final = "select rolname::text from pg_authid where rolpassword like 'md5%' order by 1"
_KINDS: Final = ("schema", "table", "function")


def is_superuser(database: Database, login: str) -> bool:
    """Tell whether nothing holds for a login."""
    return any(row[2] for row in database.rows(_ATTRIBUTES, ([login],)))


def powers(database: Database, roles: Roles) -> Iterator[Finding]:
    """Yield each attribute that an application's login does not need, also by a role it is in."""
    login = quoted(roles.login)
    rows = {row[0]: row[1:] for row in database.rows(_ATTRIBUTES, (roles.names,))}
    for role in roles.names:
        name, superuser, *has = rows[role]
        if superuser:
            yield Finding(
                "SP05",
                "error",
                f"Login {login} is a superuser{roles.by(role)}: nothing that the server refuses"
                " others is refused to it.",
                "Let the application use a login of its own: create role worker_1 login in role"
                " safepoint_writer"
                if role == roles.login
                else leave(database, roles, role),
                roles.login,
            )
        for held, (attribute, severity, may) in zip(has, _POWERS, strict=True):
            if held and not superuser:
                do = f"Run: alter role {shown(name)} no{attribute}"
                yield Finding(
                    "SP05", severity, f"Login {login} {may}{roles.by(role)}.", do, roles.login
                )
        if role in _PREDEFINED and role != roles.login:
            severity, may = _PREDEFINED[role]
            what = f"Login {login} {may}{roles.by(role)}."
            yield Finding("SP05", severity, what, leave(database, roles, role), roles.login)


def owned(database: Database, roles: Roles) -> Iterator[Finding]:
    """Yield what a login owns, also by a role it is in: an owner can do all to its own."""
    if is_superuser(database, roles.login):
        return
    rows = sorted(
        database.rows(_OWNERS, {"schemas": list(SCHEMAS.values())}),
        key=lambda row: (row[1] not in _KINDS or _KINDS.index(row[1]), row[2]),
    )
    keeper = next((row[0] for row in rows if row[0] != roles.login), "safepoint_owner")
    for role in roles.names:
        of = [f"{kind} {shown(name)}" for owner, kind, name in rows if owner == role]
        if of:
            more = f" and {len(of) - 1} more" if len(of) > 1 else ""
            yield Finding(
                "SP05",
                "error",
                f"Login {quoted(roles.login)} owns {of[0]}{more}{roles.by(role)}: an owner can drop"
                " what it owns, and turn off what protects it.",
                f"Give {'each' if more else 'it'} to a role that nobody is in: alter {of[0]} owner"
                f" to {shown(keeper)}"
                if role == roles.login
                else leave(database, roles, role),
                roles.login,
            )


def operators(store: Database, anchor: Database) -> Iterator[Finding]:
    """Yield each login that can discard records and set the anchor back, so that nobody sees it.

    Args:
        store: the database with the store.
        anchor: the database with its anchor, on the same server.
    """
    able = "SET" if store.version >= 160000 else "MEMBER"
    rewinds = dict(anchor.rows(_RUNNERS, (able, SCHEMAS["anchor"], "rewind")))
    for login, one in store.rows(_RUNNERS, (able, SCHEMAS["store"], "discard")):
        other = rewinds.get(login)
        if other is None:
            continue
        roles = Roles(store, login)
        do = (
            "Run, as its owner: revoke execute on function safepoint_anchor.rewind from"
            f" {_sql(anchor, login)}"
            if other == login
            else leave(anchor, roles, other)
        )
        yield Finding(
            "SP05",
            "error",
            f"Login {quoted(login)} may discard records of the store{roles.by(one)}, and set its"
            f" anchor back{roles.by(other)}: whoever steals it undoes work, and nobody can tell.",
            f"{do}. Set the anchor back with a login that does nothing else.",
            login,
        )


def settings(database: Database, roles: Roles) -> Iterator[Finding]:
    """Yield settings with which triggers do not fire, and passwords are kept badly."""
    login = quoted(roles.login)
    if database.version >= 150000 and not is_superuser(database, roles.login):
        for role in roles.names:
            if database.rows(
                "select has_parameter_privilege(%s::name, 'session_replication_role', 'SET')",
                (role,),
            ) == [(True,)] and not is_superuser(database, role):
                yield Finding(
                    "SP05",
                    "error",
                    f"Login {login} may set session_replication_role{roles.by(role)}, and triggers"
                    " do not fire for whoever sets it to replica.",
                    "Run, as a superuser: revoke set on parameter session_replication_role from"
                    f" {_sql(database, role)}",
                    roles.login,
                )
    if database.rows("show session_replication_role") != [("origin",)]:
        yield Finding(
            "SP05",
            "error",
            f"session_replication_role is not origin for login {login}, so triggers do not fire.",
            "See where it is set, and reset it there, with alter role or alter database: select *"
            " from pg_db_role_setting",
            roles.login,
        )
    if database.rows("show password_encryption") == [("md5",)]:
        yield Finding(
            "SP05",
            "warning",
            "The server keeps new passwords as MD5: whoever copies such a hash can log in with it.",
            "Set password_encryption = 'scram-sha-256', then set each password anew.",
            database.name,
        )
    if database.rows("select has_table_privilege('pg_authid', 'SELECT')") == [(True,)]:
        for (name,) in database.rows(_MD5):
            yield Finding(
                "SP05",
                "warning",
                f"The password of login {quoted(name)} is kept as MD5: whoever copies the hash can"
                " log in with it.",
                "Set it anew, with password_encryption = 'scram-sha-256'.",
                name,
            )


def leave(database: Database, roles: Roles, role: str) -> str:
    """Say how the login leaves a role."""
    return f"Run: revoke {_sql(database, role)} from {_sql(database, roles.member(role))}"


def _sql(database: Database, role: str) -> str:
    return shown(database.rows("select quote_ident(%s)", (role,))[0][0])
