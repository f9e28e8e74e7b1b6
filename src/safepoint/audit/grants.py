"""What was granted on the schemas of safepoint, to whom, and what of it nobody needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from safepoint.audit.databases import SCHEMAS, Database, Roles, shown
from safepoint.audit.finding import Finding
from safepoint.audit.powers import is_superuser, leave
from safepoint.errors import quoted

EVERYBODY: Final = "PUBLIC"
_GRANTS: Final = """
select coalesce(g.rolname::text, 'PUBLIC'), coalesce(quote_ident(g.rolname), 'public'),
       kind, name, col, privilege_type, is_grantable
from (
  select 'table' as kind, c.oid::regclass::text as name, null as col, c.relowner as owner, a.*
  from pg_class c join pg_namespace n on n.oid = c.relnamespace, aclexplode(c.relacl) a
  where n.nspname = any(%(schemas)s)
  union all
  select 'table', c.oid::regclass::text, quote_ident(t.attname), c.relowner, a.*
  from pg_attribute t join pg_class c on c.oid = t.attrelid
  join pg_namespace n on n.oid = c.relnamespace, aclexplode(t.attacl) a
  where n.nspname = any(%(schemas)s) and t.attnum > 0 and not t.attisdropped
  union all
  select 'function', p.oid::regprocedure::text, null, p.proowner, a.*
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace,
  aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
  where n.nspname = any(%(schemas)s)
  union all
  select 'schema', quote_ident(n.nspname), null, n.nspowner, a.*
  from pg_namespace n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
  where n.nspname = any(%(schemas)s) or n.nspname = 'public'
  union all
  select 'database', quote_ident(d.datname), null, d.datdba, a.*
  from pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
  where d.datname = current_database()
) granted left join pg_roles g on g.oid = grantee
where grantee <> owner
order by kind, name, 1, privilege_type, col
"""
_NEEDS: Final[dict[str, dict[str, dict[str, tuple[str, ...]]]]] = {
    "store": {"safepoint.checkpoints": {"INSERT": ("thread", "sequence", "record", "fence")}},
    "anchor": {"safepoint_anchor.heads": {"INSERT": (), "UPDATE": ("sequence", "digest")}},
    "journal": {"safepoint_journal.records": {"INSERT": ("journal", "sequence", "record")}},
}
_RUNS: Final = {"store": ("acquire", "renew", "release"), "anchor": (), "journal": ()}
_ROLES: Final = {
    "store": ("writer", "reader", "auditor"),
    "anchor": ("anchor",),
    "journal": ("journal",),
}
_JOBS: Final = {"store": "a worker", "anchor": "an anchor", "journal": "a journal"}


class Grant(NamedTuple):
    """A privilege that somebody was granted. The names of SQL are quoted as it wants them."""

    grantee: str
    sql_grantee: str
    kind: str
    name: str
    column: str | None
    privilege: str
    passes_on: bool


def excess(database: Database, roles: Roles, part: str) -> Iterator[Finding]:
    """Yield what a login may do to the schemas, and its job does not need."""
    if is_superuser(database, roles.login):
        return
    grants = [each for each in granted(database) if each.grantee in roles]
    for kind, name, grantee, group in grouped(grants):
        if kind == "table":
            yield from _table(database, roles, part, name, grantee, group)
        elif kind == "function":
            yield from _function(database, roles, part, name, grantee, group)
        elif any(each.privilege == "CREATE" for each in group):
            yield _creates(roles, kind, name, grantee, group[0].sql_grantee)


def everybody(database: Database) -> Iterator[Finding]:
    """Yield what every login of the server may do."""
    grants = granted(database)
    insiders = sorted(
        {
            shown(each.sql_grantee)
            for each in grants
            if each.kind == "schema" and each.name != "public" and each.grantee != EVERYBODY
        }
    )
    for kind, name, grantee, group in grouped(grants):
        if grantee != EVERYBODY:
            continue
        privileges = [each.privilege for each in group]
        if kind == "database" or name == "public":
            wanted = ("CONNECT", "CREATE", "TEMPORARY") if kind == "database" else ("CREATE",)
            loose = [each for each in privileges if each in wanted]
            if loose:
                again = (
                    f"; grant connect on database {shown(name)} to {', '.join(insiders)}"
                    if "CONNECT" in loose
                    else ""
                )
                yield Finding(
                    "SP05",
                    "warning",
                    f"Every login of the server has {joined(loose)} on {kind} {shown(name)}.",
                    f"Run, as its owner: {revoked(loose, kind, name, 'public')}{again}",
                    name,
                )
        else:
            listed = spelled(group)
            yield Finding(
                "SP05",
                "error",
                f"Every login of the server has {joined(listed)} on {kind} {shown(name)}.",
                f"Run, as its owner: {revoked(listed, kind, name, 'public')}",
                name,
            )


def granted(database: Database) -> list[Grant]:
    """Return all that was granted to others than the owners."""
    rows = database.rows(_GRANTS, {"schemas": list(SCHEMAS.values())})
    return [Grant(*row) for row in rows]


def grouped(grants: Iterable[Grant]) -> Iterator[tuple[str, str, str, list[Grant]]]:
    """Yield what kind of thing it is, its name, and what one grantee was granted on it."""
    groups: dict[tuple[str, str, str], list[Grant]] = {}
    for each in grants:
        groups.setdefault((each.kind, each.name, each.grantee), []).append(each)
    for (kind, name, grantee), group in groups.items():
        yield kind, name, grantee, group


def _table(
    database: Database, roles: Roles, part: str, name: str, grantee: str, group: list[Grant]
) -> Iterator[Finding]:
    needs = _NEEDS[part].get(name, {})
    more = [each for each in group if each.privilege != "SELECT" and not _needed(each, needs)]
    if more:
        listed = spelled(more)
        allowed = [
            f"{privilege} ({', '.join(columns)})" if columns else privilege
            for privilege, columns in needs.items()
        ]
        do = _take_back(database, roles, part, grantee, revoked(listed, "table", name, ""), more)
        # To revoke a privilege on the table takes it from the columns as well.
        again = [each for each in allowed if each.split(" ")[0] in listed]
        if again and " on " in do:
            do += f"; grant {', '.join(_lower(each) for each in again)} on {shown(name)}"
            do += f" to {shown(more[0].sql_grantee)}"
        yield Finding(
            "SP05",
            "error",
            f"Login {quoted(roles.login)} may {joined(listed)} in {shown(name)}"
            f"{roles.by(grantee)}; there {_JOBS[part]} needs no more than"
            f" {joined(['SELECT', *allowed]) if allowed else 'to read'}.",
            do,
            name,
        )
    passed = [each.privilege for each in group if each.passes_on]
    if passed:
        yield Finding(
            "SP05",
            "error",
            f"Login {quoted(roles.login)} may grant others what it may do in {shown(name)}"
            f"{roles.by(grantee)}.",
            "Run, as its owner: revoke grant option for all on"
            f" {shown(name)} from {shown(group[0].sql_grantee)}",
            name,
        )


def _function(
    database: Database, roles: Roles, part: str, name: str, grantee: str, group: list[Grant]
) -> Iterator[Finding]:
    if name.partition("(")[0] in {f"safepoint.{each}" for each in _RUNS[part]}:
        return
    yield Finding(
        "SP05",
        "error",
        f"Login {quoted(roles.login)} may run {shown(name)}{roles.by(grantee)}, and"
        f" {_JOBS[part]} does not need it.",
        _take_back(
            database, roles, part, grantee, revoked(["EXECUTE"], "function", name, ""), group
        ),
        name,
    )


def _creates(roles: Roles, kind: str, name: str, grantee: str, sql_grantee: str) -> Finding:
    ours = kind == "schema" and name != "public"
    return Finding(
        "SP05",
        "error" if ours else "warning",
        f"Login {quoted(roles.login)} may create things in {kind} {shown(name)}"
        f"{roles.by(grantee)}, where others may take them for the real ones.",
        f"Run, as its owner: {revoked(['CREATE'], kind, name, sql_grantee)}",
        name,
    )


def _take_back(
    database: Database, roles: Roles, part: str, grantee: str, revoke: str, group: list[Grant]
) -> str:
    """Say how a login loses a privilege: it leaves a role of another job, or the role loses it."""
    from safepoint.postgres.schema import ROLES

    # Those of other jobs, by the whole of their names: x_anchor_operator is not x_operator.
    jobs = [job for job in sorted(ROLES, key=len) if grantee.endswith(f"_{job}")]
    if grantee != roles.login and jobs and jobs[-1] not in _ROLES[part]:
        return leave(database, roles, grantee)
    return f"Run, as its owner: {revoke}{shown(group[0].sql_grantee)}"


def _needed(grant: Grant, needs: dict[str, tuple[str, ...]]) -> bool:
    columns = needs.get(grant.privilege)
    return columns is not None and (not columns or grant.column in columns)


def spelled(group: list[Grant]) -> list[str]:
    """Return privileges as SQL has them: INSERT (login, written)."""
    columns: dict[str, list[str]] = {}
    for each in group:
        columns.setdefault(each.privilege, []).extend([each.column] if each.column else [])
    whole = {each.privilege for each in group if each.column is None}
    return [
        privilege if privilege in whole else f"{privilege} ({', '.join(map(shown, names))})"
        for privilege, names in columns.items()
    ]


def _lower(privilege: str) -> str:
    name, space, columns = privilege.partition(" ")
    return f"{name.lower()}{space}{columns}"


def revoked(privileges: list[str], kind: str, name: str, grantee: str) -> str:
    """Return the SQL that takes privileges back."""
    on = shown(name) if kind == "table" else f"{kind} {shown(name)}"
    return f"revoke {', '.join(map(_lower, privileges))} on {on} from {grantee}"


def joined(names: list[str]) -> str:
    """Return a list as a sentence has it."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
