"""Whose the schemas are, and who else can act as their owner: also logins that nobody named."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from importlib.resources import files
from typing import Final

from safepoint.audit.databases import SCHEMAS, Database, shown
from safepoint.audit.finding import Finding
from safepoint.errors import quoted

_MADE: Final = re.compile(r"^create (?:schema|table|domain|function) ([a-z_.]+)", re.M)
_OWNERS: Final = """
select pg_get_userbyid(owner)::text, kind, name from (
  select 1 as place, nspowner as owner, 'schema' as kind, quote_ident(nspname) as name
  from pg_namespace n where n.oid = any(%(schemas)s::regnamespace[])
  union all
  select 2, relowner, case relkind when 'v' then 'view' when 'm' then 'materialized view'
    when 'S' then 'sequence' when 'f' then 'foreign table' when 'c' then 'type' else 'table' end,
    c.oid::regclass::text
  from pg_class c where relnamespace = any(%(schemas)s::regnamespace[])
  and relkind not in ('i', 'I', 't')
  union all
  select 3, proowner, case prokind when 'p' then 'procedure' when 'a' then 'aggregate'
    else 'function' end, p.oid::regprocedure::text
  from pg_proc p where pronamespace = any(%(schemas)s::regnamespace[])
  union all
  select 4, typowner, case typtype when 'd' then 'domain' else 'type' end, format_type(t.oid, null)
  from pg_type t where typnamespace = any(%(schemas)s::regnamespace[]) and typtype in ('d', 'e')
) owned order by place, kind, name
"""
_GRANTEES: Final = """
select distinct pg_get_userbyid(a.grantee)::text from (
  select relacl as acl from pg_class where relnamespace = any(%(schemas)s::regnamespace[])
  union all select nspacl from pg_namespace n where n.oid = any(%(schemas)s::regnamespace[])
  union all select proacl from pg_proc where pronamespace = any(%(schemas)s::regnamespace[])
) granted, aclexplode(acl) a where a.grantee <> 0
"""
_ATTRIBUTES: Final = (
    "select rolname::text, quote_ident(rolname), rolcanlogin, rolsuper, rolcreaterole,"
    " rolreplication, rolcreatedb, rolbypassrls from pg_roles where rolname = any(%s) order by 1"
)
_CAN: Final = {
    "login": "can log in",
    "superuser": "is a superuser",
    "createrole": "may create roles",
    "replication": "may copy the server",
    "createdb": "may create databases",
    "bypassrls": "is not held by row-level security",
}
# Before PostgreSQL 16 a member always has all that the role has, and nobody asks who let it in.
_MEMBERS: Final = (
    "select r.rolname::text, m.rolname::text, quote_ident(r.rolname), quote_ident(m.rolname),"
    " coalesce((to_jsonb(a)->>'set_option')::boolean, true)"
    " or coalesce((to_jsonb(a)->>'inherit_option')::boolean, true),"
    " case when to_jsonb(a) ? 'set_option' and a.grantor <> 10"
    " then ' granted by ' || quote_ident(pg_get_userbyid(a.grantor)) else '' end"
    " || case when a.admin_option and exists (select from pg_auth_members o"
    " where o.roleid = a.roleid and o.grantor = a.member) then ' cascade' else '' end"
    " from pg_auth_members a join pg_roles r on r.oid = a.roleid"
    " join pg_roles m on m.oid = a.member order by 1, 2, 6"
)
_INSIDE: Final = (
    "select l.rolname::text from pg_roles l join pg_roles r on r.rolname = %s"
    " and pg_has_role(l.oid, r.oid, 'MEMBER') where l.rolcanlogin and not l.rolsuper order by 1"
)
_DEFAULTS: Final = """
select case d.defaclobjtype when 'r' then 'tables' when 'S' then 'sequences'
  when 'f' then 'functions' when 'T' then 'types' when 'n' then 'schemas' else 'large objects' end,
  coalesce(' in schema ' || quote_ident(n.nspname), ''), coalesce(quote_ident(g.rolname), 'public'),
  string_agg(a.privilege_type, ', ' order by a.privilege_type)
from pg_default_acl d join pg_roles r on r.oid = d.defaclrole
left join pg_namespace n on n.oid = d.defaclnamespace, aclexplode(d.defaclacl) a
left join pg_roles g on g.oid = a.grantee
where r.rolname = %s and a.grantee <> d.defaclrole
  and not (a.grantee = 0 and d.defaclobjtype in ('f', 'T') and d.defaclnamespace = 0)
group by 1, 2, 3 order by 1, 2, 3
"""
_OPERATES: Final = {
    "operator": "prune threads, discard records and break leases",
    "anchor_operator": "set the anchor back",
}


class Names:
    """The roles of a store, by the names that they have on its server.

    Attributes:
        owner: the role that owns all, and that nobody should be in.
        roles: all of them.
    """

    def __init__(self, database: Database) -> None:
        from safepoint.postgres.schema import ROLES

        schemas = {"schemas": present(database)}
        rows = database.rows(_OWNERS, schemas)
        named = {name for (name,) in database.rows(_GRANTEES, schemas)} | {row[0] for row in rows}
        # Most of them still have their names, whatever else was given away.
        votes = Counter(prefix for name in sorted(named) if (prefix := _prefix(name)))
        prefix = votes.most_common(1)[0][0] if votes else "safepoint"
        self.owner = f"{prefix}_owner"
        self.roles = {f"{prefix}_{role}": role for role in ROLES}


def present(database: Database) -> list[str]:
    """Return the schemas of safepoint that are there."""
    return [schema for part, schema in SCHEMAS.items() if database.has_schema(part)]


def owners(database: Database, names: Names, named: AbstractSet[str]) -> Iterator[Finding]:
    """Yield what does not belong to the owner, and as whom one is the owner.

    Args:
        database: where to look.
        names: the roles of the store.
        named: the logins that the audit was told of, and their roles. What they own, and whose
            members they are, is said of them.
    """
    made = {each for part in SCHEMAS for each in _MADE.findall(_text(part))}
    for owner, kind, name in database.rows(_OWNERS, {"schemas": present(database)}):
        is_said = owner in named and kind != "domain"
        if owner != names.owner and name.partition("(")[0] in made and not is_said:
            yield _error(
                f"{kind.capitalize()} {shown(name)} belongs to {quoted(owner)}, not to"
                f" {names.owner}: an owner can drop what it owns, and turn off what protects it.",
                f"Run, as a superuser: alter {kind} {shown(name)} owner to {names.owner}",
                name,
            )
    for name, sql, *has in database.rows(_ATTRIBUTES, (list(names.roles),)):
        held = [each for each, is_so in zip(_CAN, has, strict=True) if is_so]
        if held:
            yield _error(
                f"Role {quoted(name)} {' and '.join(_CAN[each] for each in held)}, and is there for"
                " nothing but to have members.",
                f"Run, as a superuser: alter role {sql} {' '.join(f'no{each}' for each in held)}",
                name,
            )


def members(database: Database, names: Names, named: AbstractSet[str]) -> Iterator[Finding]:
    """Yield who is in the owner's role, what the roles are in, and who the operators are."""
    for role, member, sql_role, sql_member, can_act, how in database.rows(_MEMBERS):
        do = f"Run, as a superuser: revoke {shown(sql_role)} from {shown(sql_member)}{shown(how)}"
        if role == names.owner and can_act and member not in named:
            yield _error(
                f"{quoted(member)} is a member of {role}: it can drop what that owns, and turn off"
                " what protects it.",
                do,
                member,
            )
        elif role == names.owner and not can_act:
            yield Finding(
                "SP05",
                "note",
                f"{quoted(member)} may make itself a member of {role}, as whoever made the role.",
                f"Keep it as you would keep a superuser's, or end that. {do}",
                member,
            )
        if member in names.roles and member not in named:
            yield _error(
                f"Role {quoted(member)} is a member of {quoted(role)}, and so is whoever is in it.",
                do,
                member,
            )
    for role, job in names.roles.items():
        rows = database.rows(_INSIDE, (role,)) if job in _OPERATES else []
        inside = [quoted(each) for (each,) in rows if each not in named]
        if inside:
            yield Finding(
                "SP05",
                "note",
                f"Who can {_OPERATES[job]}, as {role}: {', '.join(inside)}.",
                f"If you do not know one of them, run: revoke {role} from it.",
                role,
            )


def defaults(database: Database, names: Names) -> Iterator[Finding]:
    """Yield what whatever the owner makes from now on is granted to others with."""
    for kind, where, grantee, privileges in database.rows(_DEFAULTS, (names.owner,)):
        whom = "every login of the server" if grantee == "public" else shown(grantee)
        yield _error(
            f"{privileges} on all {kind} that {names.owner} makes{shown(where)} is granted to"
            f" {whom}, by default privileges.",
            f"Run, as a superuser: alter default privileges for role {names.owner}{shown(where)}"
            f" revoke all on {kind} from {shown(grantee)}",
            names.owner,
        )


def _text(part: str) -> str:
    return files("safepoint.postgres").joinpath(f"{part}.sql").read_text(encoding="utf-8")


def _prefix(name: str) -> str | None:
    from safepoint.postgres.schema import ROLES

    for role in sorted(ROLES, key=len, reverse=True):
        if name.endswith(f"_{role}"):
            return name.removesuffix(f"_{role}") or None
    return None


def _error(what: str, do: str, where: str) -> Finding:
    return Finding("SP05", "error", what, do, where)
