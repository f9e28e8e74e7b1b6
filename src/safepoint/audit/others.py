"""What others may do to the schemas of safepoint, and how the sessions of its logins begin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from importlib.resources import files
from itertools import product
from typing import Final

from safepoint.audit.databases import SCHEMAS, Database, shown
from safepoint.audit.finding import Finding
from safepoint.audit.grants import EVERYBODY, Grant, granted, grouped, joined, revoked, spelled
from safepoint.audit.ownerships import Names
from safepoint.errors import quoted

_GRANT: Final = re.compile(r"^grant (?P<what>.*?) on (?P<on>.*?)\s+to (?P<to>[^;]+);", re.M | re.S)
_PRIVILEGE: Final = re.compile(r"(\w+)(?: \(([^)]*)\))?")
_ON: Final = re.compile(r"safepoint\w*(?:\.\w+)?(?:\([^)]*\))?")
_READS: Final = ("SELECT", "USAGE")
# Those that decide what a session sees, what it writes, and whether what it wrote is kept.
_TOUCHES: Final = frozenset(
    {
        "bytea_output",
        "client_encoding",
        "datestyle",
        "default_transaction_deferrable",
        "default_transaction_isolation",
        "default_transaction_read_only",
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
        "local_preload_libraries",
        "lock_timeout",
        "quote_all_identifiers",
        "role",
        "row_security",
        "search_path",
        "session_preload_libraries",
        "session_replication_role",
        "standard_conforming_strings",
        "statement_timeout",
        "synchronous_commit",
        "timezone",
        "transaction_timeout",
    }
)
_REPLICA: Final = "session_replication_role"
_SETTINGS: Final = """
select coalesce(r.rolname::text, ''), coalesce(quote_ident(r.rolname), ''),
  coalesce(quote_ident(d.datname), ''), setting
from pg_db_role_setting s left join pg_roles r on r.oid = s.setrole
left join pg_database d on d.oid = s.setdatabase, unnest(s.setconfig) setting
where (s.setdatabase = 0 or d.datname = current_database()) and (s.setrole = 0
  or r.rolname = any(%(named)s) or r.rolcanlogin and exists (select from pg_roles o
  where o.rolname = any(%(ours)s) and pg_has_role(r.oid, o.oid, 'MEMBER') and not r.rolsuper))
order by 1, 3, 4
"""


def strangers(database: Database, names: Names, named: AbstractSet[str]) -> Iterator[Finding]:
    """Yield what was granted to a role that is none of ours, and to ours beyond what migrate gives.

    Args:
        database: where to look.
        names: the roles of the store.
        named: the logins that the audit was told of, and their roles. Those are looked at by what
            their jobs need.
    """
    given = _given()
    for kind, name, grantee, group in grouped(granted(database)):
        if grantee == EVERYBODY or grantee in named or kind == "database" or name == "public":
            continue
        role = names.roles.get(grantee)
        more = [each for each in group if (role, *_key(each)) not in given or each.passes_on]
        if not more:
            continue
        what = joined(spelled(more))
        reads = all(each.privilege in _READS and not each.passes_on for each in more)
        cascade = " cascade" if any(each.passes_on for each in more) else ""
        why = "which migrate does not give it" if role else "and is no role of safepoint's"
        yield Finding(
            "SP05",
            "warning" if reads else "error",
            f"{'Role ' if role else ''}{quoted(grantee)} has {what} on {kind} {shown(name)},"
            f" {why}.",
            f"Run, as its owner: {revoked(spelled(more), kind, name, shown(more[0].sql_grantee))}"
            f"{cascade}",
            name,
        )


def beginnings(database: Database, names: Names, named: AbstractSet[str]) -> Iterator[Finding]:
    """Yield what is set for the sessions of the logins. A login can set most of it for itself."""
    values = {"named": sorted(named), "ours": list(names.roles)}
    for login, sql_login, name, setting in database.rows(_SETTINGS, values):
        key, _, value = setting.partition("=")
        if key.lower() not in _TOUCHES or (key == _REPLICA and (not login or login in named)):
            continue
        who = f"login {quoted(login)}" if login else "every login"
        where = f" in database {shown(name)}" if name else ""
        if login:
            at = f"role {shown(sql_login)}{where}"
        else:
            at = f"database {shown(name)}" if name else "role all"
        yield Finding(
            "SP05",
            "error" if key == _REPLICA else "note",
            f"The sessions of {who}{where} begin with {key} = {quoted(value)}"
            f"{', so triggers do not fire' if key == _REPLICA else ''}.",
            f"If it was not you who set that, find out who did; then: alter {at} reset {key}",
            login or database.name,
        )


def _given() -> set[tuple[str | None, str, str, str | None, str]]:
    """Return what migrate grants: to which role, on what, in which column, what."""
    given = set[tuple[str | None, str, str, str | None, str]]()
    for part in SCHEMAS:
        text = files("safepoint.postgres").joinpath(f"{part}.sql").read_text(encoding="utf-8")
        for each in _GRANT.finditer(text):
            kind = each["on"].partition(" ")[0].strip()
            kind = kind if kind in ("schema", "function") else "table"
            for name, (privilege, columns), role in product(
                _ON.findall(each["on"]),
                _PRIVILEGE.findall(each["what"]),
                re.findall(r"\{(\w+)\}", each["to"]),
            ):
                for column in columns.split(", "):
                    place = kind, name.replace(", ", ","), column or None
                    given.add((role, *place, privilege.upper()))
    return given


def _key(grant: Grant) -> tuple[str, str, str | None, str]:
    return grant.kind, grant.name, grant.column, grant.privilege
