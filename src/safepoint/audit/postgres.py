"""A store in PostgreSQL: what is there, compared with what our SQL makes, and who may do what."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, cached_property
from importlib.resources import files
from itertools import combinations, product
from typing import Any, Final, NamedTuple

from safepoint.audit.finding import CATALOGUE, Finding, Severity, finding
from safepoint.audit.profiles import recognise_tables
from safepoint.core.errors import Unavailable, quoted

# Of each part: its schema, the rule that its triggers hold, and the roles that do its work.
PARTS: Final = {
    "store": ("safepoint", "SP13", ("writer", "reader", "auditor")),
    "anchor": ("safepoint_anchor", "SP15", ("anchor",)),
    "journal": ("safepoint_journal", "SP20", ("journal",)),
    "answers": ("safepoint_answers", "SP19", ("approver",)),
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
    "select session_user::text, current_database()::text,"
    " extract(epoch from pg_postmaster_start_time())::text"
)
_WHOSE: Final = "select coalesce((select serves from {0}.logins where login = session_user), '')"
_ROLES: Final = (
    "select rolname::text, quote_ident(rolname), rolcanlogin, rolsuper, rolcreaterole,"
    " rolreplication, rolcreatedb, rolbypassrls from pg_roles order by 1"
)
# Before PostgreSQL 16 a member always has all that the role has.
_MEMBERS: Final = (
    "select m.rolname::text, r.rolname::text, quote_ident(r.rolname), quote_ident(m.rolname)"
    " from pg_auth_members a join pg_roles r on r.oid = a.roleid"
    " join pg_roles m on m.oid = a.member where coalesce((to_jsonb(a)->>'set_option')::boolean,"
    " true) or coalesce((to_jsonb(a)->>'inherit_option')::boolean, true) order by 2, 1"
)
_HELD: Final = """
with thing (kind, name, col, owner, acl) as (
  select 'schema', quote_ident(nspname), null, nspowner, coalesce(nspacl, acldefault('n', nspowner))
  from pg_namespace where nspname = any(%(schemas)s) or nspname = 'public'
  union all select 'table', c.oid::regclass::text, null, relowner, relacl
  from pg_class c join pg_namespace n on n.oid = relnamespace
  where nspname = any(%(schemas)s) and relkind not in ('i', 'I', 't', 'c')
  union all select 'table', c.oid::regclass::text, quote_ident(attname), relowner, attacl
  from pg_attribute join pg_class c on c.oid = attrelid join pg_namespace n on n.oid = relnamespace
  where nspname = any(%(schemas)s) and attnum > 0 and not attisdropped
  union all select 'function', p.oid::regprocedure::text, null, proowner,
    coalesce(proacl, acldefault('f', proowner))
  from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = any(%(schemas)s)
  union all select 'domain', format_type(t.oid, null), null, typowner, null
  from pg_type t join pg_namespace n on n.oid = typnamespace
  where nspname = any(%(schemas)s) and typtype = 'd'
  union all select 'database', quote_ident(datname), null, datdba,
    coalesce(datacl, acldefault('d', datdba))
  from pg_database where datname = current_database())
select kind, name, col, pg_get_userbyid(owner)::text, '', 'OWNER', false from thing
where col is null
union all select kind, name, col, coalesce(g.rolname::text, 'PUBLIC'),
  coalesce(quote_ident(g.rolname), 'public'), privilege_type, is_grantable
from thing, aclexplode(acl) left join pg_roles g on g.oid = grantee where grantee <> owner
union all select 'new ' || case defaclobjtype when 'r' then 'tables' when 'S' then 'sequences'
    when 'f' then 'functions' when 'T' then 'types' when 'n' then 'schemas'
    else 'large objects' end,
  quote_ident(o.rolname) || coalesce(' in schema ' || quote_ident(nspname), ''), null,
  coalesce(g.rolname::text, 'PUBLIC'), coalesce(quote_ident(g.rolname), 'public'),
  string_agg(privilege_type, ', ' order by privilege_type), bool_or(is_grantable)
from pg_default_acl join pg_roles o on o.oid = defaclrole
left join pg_namespace n on n.oid = defaclnamespace, aclexplode(defaclacl)
left join pg_roles g on g.oid = grantee
where defaclrole in (select nspowner from pg_namespace where nspname = any(%(schemas)s))
  and grantee <> defaclrole
  and not (grantee = 0 and defaclobjtype in ('f', 'T') and defaclnamespace = 0)
group by 1, 2, 4, 5 order by kind, name, 4, 6, col
"""
# Tables, columns, constraints, indexes, triggers, rules, policies and functions, as they are.
_SHAPE: Final = """
with relation as (select c.*, nspname || '.' || relname as name
  from pg_class c join pg_namespace n on n.oid = relnamespace
  where nspname = any(%(schemas)s) and relkind <> 'i')
select 'table ' || name, concat_ws(' ', relkind, relpersistence, reloptions::text,
  relrowsecurity, relforcerowsecurity) from relation
union all select 'column ' || name || '.' || attname, concat_ws(' ',
  format_type(atttypid, atttypmod), attnotnull, attstorage, pg_get_expr(adbin, adrelid))
from relation r join pg_attribute on attrelid = r.oid and attnum > 0 and not attisdropped
left join pg_attrdef on (adrelid, adnum) = (attrelid, attnum)
union all select 'constraint ' || coalesce(nullif(conrelid, 0)::regclass::text,
  contypid::regtype::text) || ' ' || conname, pg_get_constraintdef(c.oid)
from pg_constraint c join pg_namespace n on n.oid = connamespace
where nspname = any(%(schemas)s) and contype <> 'n'
union all select 'index ' || schemaname || '.' || indexname, indexdef
from pg_indexes where schemaname = any(%(schemas)s)
union all select 'trigger ' || name || ' ' || tgname,
  concat_ws(' ', tgenabled, pg_get_triggerdef(t.oid))
from pg_trigger t join relation r on r.oid = tgrelid where not tgisinternal
union all select 'rule ' || schemaname || '.' || tablename || ' ' || rulename, definition
from pg_rules where schemaname = any(%(schemas)s)
union all select 'policy ' || schemaname || '.' || tablename || ' ' || policyname,
  concat_ws(' ', permissive, cmd, roles::text, 'using ' || qual, 'check ' || with_check)
from pg_policies where schemaname = any(%(schemas)s)
union all select 'function ' || p.oid::regprocedure::text,
  case prokind when 'a' then 'aggregate' else pg_get_functiondef(p.oid) end
from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = any(%(schemas)s)
order by 1
"""
_MAY_SET: Final = """
select 'parameter', parname, null, coalesce(g.rolname::text, 'PUBLIC'),
  coalesce(quote_ident(g.rolname), 'public'), privilege_type, is_grantable
from pg_parameter_acl, aclexplode(paracl) left join pg_roles g on g.oid = grantee
where parname = 'session_replication_role' and grantee <> grantor order by 4, 6
"""
_SETTINGS: Final = """
select coalesce(r.rolname::text, ''), setting from pg_db_role_setting s
left join pg_roles r on r.oid = s.setrole left join pg_database d on d.oid = s.setdatabase,
unnest(s.setconfig) setting where s.setdatabase = 0 or d.datname = current_database()
union select '', name || '=' || setting from pg_settings
where name || '=' || setting = any(%(unsafe)s)
  and source not in ('database', 'user', 'database user') order by 1, 2
"""
_UNSAFE: Final = {
    "session_replication_role=replica": "SP05.replica",
    "password_encryption=md5": "SP05.md5",
}
_POWERS: Final[dict[str, tuple[Severity, str]]] = {
    "login": ("error", "can log in"),
    "superuser": ("error", "is a superuser"),
    "createrole": ("error", "may create roles, and change or join others"),
    "replication": ("error", "may copy the whole server, with every database in it"),
    "createdb": ("warning", "may create databases"),
    "bypassrls": ("error", "is not held by row-level security: it meets every tenant's threads"),
}
_OPERATES: Final = {
    "operator": "prune threads, discard records and break leases",
    "anchor_operator": "set the anchor back",
    "approver": "put answers where workers find them",
}
_RELATIONS: Final = {"r": "Table", "v": "View", "m": "Materialized view", "S": "Sequence"}
_ON: Final = ("constraint", "trigger", "rule", "policy")
# One that nobody made unique, of columns as they are, changes nothing but how fast it is.
_PLAIN: Final = re.compile(r"CREATE INDEX \S+ ON [\w.]+ USING btree \([\w, ]+\)")


class Held(NamedTuple):
    """What somebody was granted, or owns. The names of SQL are quoted as it wants them."""

    kind: str
    name: str
    column: str | None
    holder: str
    sql_holder: str
    privilege: str
    passes_on: bool

    @property
    def is_outside(self) -> bool:
        """Whether it is of what create_schema finds there, and does not make."""
        return self.kind == "database" or self.name == "public"


class Member(NamedTuple):
    """A membership: who can act as which role, and both as SQL wants them."""

    member: str
    role: str
    sql_role: str
    sql_member: str


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
        self.login, self.name, self.server = self.rows(_WHO)[0]

    def rows(self, text: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Return the rows of a query."""
        found: list[Any] = self.connection.execute(text, values or None).fetchall()
        return found

    @cached_property
    def parts(self) -> list[str]:
        """The parts of safepoint that are in it."""
        there = "select to_regnamespace(%s) is not null"
        return [part for part in PARTS if self.rows(there, (PARTS[part][0],)) == [(True,)]]

    @cached_property
    def held(self) -> list[Held]:
        """What was granted in it, and what belongs to whom."""
        schemas = [schema for schema, _, _ in PARTS.values()]
        rows = self.rows(_HELD, {"schemas": schemas})
        if self.connection.info.server_version >= 150000:
            rows += self.rows(_MAY_SET)
        return [Held(*row) for row in rows]

    @cached_property
    def roles(self) -> dict[str, str]:
        """The roles of the store, by the names that they have on its server, each with its job."""
        from safepoint.stores.postgres.schema import ROLES

        # Most of them still have their names, whatever else was given away.
        pattern = re.compile(rf"(.+)_({'|'.join(sorted(ROLES, key=len, reverse=True))})")
        names = {each.holder for each in self.held if not each.is_outside}
        votes = Counter(match[1] for name in sorted(names) if (match := pattern.fullmatch(name)))
        prefix = votes.most_common(1)[0][0] if votes else "safepoint"
        return {f"{prefix}_{job}": job for job in ROLES}

    @cached_property
    def shape(self) -> dict[str, str]:
        """What is in the schemas, with each role by its job; of a function, the digest."""
        ours = re.compile(rf"\b({'|'.join(sorted(self.roles, key=len, reverse=True))})\b(?!\.)")
        found = {}
        for key, text in self.rows(_SHAPE, {"schemas": [schema for schema, *_ in PARTS.values()]}):
            if key.startswith("function "):
                found[key] = hashlib.sha256(text.encode()).hexdigest()
            else:
                found[key] = ours.sub(lambda match: f"{{{self.roles[match[1]]}}}", text)
        return found

    def role(self, job: str) -> str:
        """Return the name of the role that does a job."""
        return next(role for role, each in self.roles.items() if each == job)

    @cached_property
    def powers(self) -> dict[str, tuple[str, list[str]]]:
        """Each role of the server: its name in SQL, and the attributes that it has."""
        return {
            name: (shown(sql), [key for key, each in zip(_POWERS, has, strict=True) if each])
            for name, sql, *has in self.rows(_ROLES)
        }

    @cached_property
    def members(self) -> list[Member]:
        """Who can act as which role."""
        return [Member(*row[:2], *map(shown, row[2:])) for row in self.rows(_MEMBERS)]

    def paths(self, login: str) -> dict[str, list[Member]]:
        """Return the roles as which a login can act, each with the way to it."""
        found: dict[str, list[Member]] = {login: []}
        for member in (waiting := [login]):
            for each in self.members:
                if each.member == member and each.role not in found:
                    found[each.role] = [*found[member], each]
                    waiting.append(each.role)
        return found

    def whose(self, part: str) -> str | None:
        """Return the tenant whose rows of a part the login sees; `*` is every one.

        None if the server does not say: then another check finds what is wrong with the table.
        """
        import psycopg

        with suppress(psycopg.Error):
            return str(self.rows(_WHOSE.format(PARTS[part][0]))[0][0])
        return None

    def inside(self, role: str) -> dict[str, list[Member]]:
        """Return the logins that can act as a role, each with the way; superusers are left out."""
        able = [name for name, (_, has) in self.powers.items() if "login" in has]
        plain = [name for name in able if "superuser" not in self.powers[name][1]]
        found = {name: self.paths(name).get(role) for name in plain}
        return {name: way for name, way in found.items() if way}


class Deployed:
    """The parts of a store, each as its login sees it.

    Attributes:
        parts: the database of each part, seen with the login of that part.
        databases: each database once.
        told: the logins that the application uses, and the roles that they are in, by server.
    """

    def __init__(self, parts: dict[str, Database]) -> None:
        self.parts = parts
        seen: dict[tuple[str, str], Database] = {}
        self.told: dict[str, set[str]] = {}
        for each in parts.values():
            seen.setdefault((each.server, each.name), each)
            self.told.setdefault(each.server, set()).update(each.paths(each.login))
        self.databases = list(seen.values())


def check_privileges(
    dsn: str, *, anchor: str | None = None, journal: str | None = None
) -> list[Finding]:
    """Look at what the logins of a store may do, and at what the server would refuse them.

    Each connection string is the one that the application uses: the check logs in with it, reads
    the catalogs, compares them with what `create_schema` makes, and changes nothing.

    ```python
    from safepoint.audit import check_privileges
    from safepoint.stores.postgres import create_schema
    from safepoint.testing.postgres import Server

    with Server() as server:
        server.database("checkpoints")
        create_schema(server.dsn(database="checkpoints"))
        server.login("worker_1", "safepoint_writer")
        dsn = server.dsn("worker_1", "checkpoints")
        print([each.id for each in check_privileges(dsn) if each.severity == "error"])
        #> []
        server.psql("grant delete on safepoint.records to worker_1", database="checkpoints")
        for finding in check_privileges(dsn):
            if finding.severity == "error":
                print(finding.rule, finding.what.split(",")[0])
                #> SP05 'worker_1' has DELETE on table safepoint.records
    ```

    Args:
        dsn: with which workers reach the store.
        anchor: with which they reach the anchor, if it is in PostgreSQL.
        journal: with which they reach the journal, if it is in PostgreSQL.

    Returns:
        Under SP05, an error for a superuser, an owner, each role that a login does not need, each
        privilege beyond those of `create_schema` that changes what is kept, and for a session
        in which no trigger fires; a warning for one that only reads, for what every login of the
        server may do, for a password in a connection string, and for passwords kept as MD5; a note
        of who the operators and approvers are, of a login that serves every tenant, of what is set
        for the sessions of the logins, and if the anchor is on the server of the store. Under SP13,
        SP15, SP20 and SP19, an error for each function, trigger, table, policy, column and
        constraint of store, anchor, journal and answers that is not as it was made: also if
        row-level security is off, or not forced. If LangGraph's tables are in the database, with a
        schema of safepoint or without, what is known of those.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: an argument is no connection string.
        Unavailable: there is no server, it does not let the login in, or there is no schema
            of safepoint in the database.
    """
    named = {"store": dsn, "anchor": anchor, "journal": journal}
    with ExitStack() as stack:
        seen = {
            part: stack.enter_context(looking(each))
            for part, each in named.items()
            if each is not None
        }
        for part, database in seen.items():
            if part not in database.parts:
                foreign = recognise_tables(database) if part == "store" else None
                if foreign is None:
                    raise _no_schema(part, database)
                return foreign.findings
        place = Deployed(seen)
        found = [each for check in _CHECKS for each in check(place)]
        beside = recognise_tables(seen["store"])  # last: what it may not read ends a transaction
        found += [] if beside is None else beside.findings
    return list({each.what: each for each in found}.values())


@contextmanager
def looking(dsn: str) -> Iterator[Database]:
    """Connect, and look at a database for as long as the block lasts.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: it is no connection string.
        Unavailable: the server refuses, or is away.
    """
    from safepoint.stores.postgres.connection import parsed, place, refusal  # says what to install

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


def shown(name: str) -> str:
    """Return a name as SQL has it, if it can be shown as it is."""
    return name if name.isascii() and name.isprintable() and len(name) < 200 else quoted(name)


def _no_schema(part: str, database: Database) -> Unavailable:
    from safepoint.stores.postgres.connection import place

    return Unavailable(
        f"There is no schema {PARTS[part][0]} in {place(database.given)}.",
        f"Correct the connection string of the {part}, or make it, as one who may create roles:"
        " safepoint postgres create DSN",
    )


def _logins(place: Deployed) -> Iterator[Finding]:
    """Look at what each login, and each role of the store, may do by itself and by its roles."""
    for part, database in place.parts.items():
        if database.given.get("password"):
            yield finding("SP05.password", database.login, part=part)
        here = [each for each in place.databases if each.server == database.server]
        ours = {role: job for each in here for role, job in each.roles.items()}
        needed = {
            job
            for part, each in place.parts.items()
            if (each.server, each.login) == (database.server, database.login)
            for job in PARTS[part][2]
        }
        yield from _able(database, database.login, ours, needed)
        for role, job in database.roles.items():
            if role in database.powers and role not in place.told[database.server]:
                yield from _able(database, role, ours, {job})


def _able(
    database: Database, who: str, ours: dict[str, str], needed: set[str]
) -> Iterator[Finding]:
    for role, way in database.paths(who).items():
        sql, powers = database.powers[role]
        names = " and so of ".join(quoted(each.role) for each in way)
        by = f", as a member of {names}" if way else ""
        for power in ["superuser"] if "superuser" in powers else powers:
            severity, may = _POWERS[power]
            if power != "login" or role in ours:
                values = {"sql": sql, "power": power, "may": may, "severity": severity}
                yield finding("SP05.power", who, by=by, **values)
        if not way:
            continue
        if f"SP05.in-{role}" in CATALOGUE:
            yield finding(f"SP05.in-{role}", who, by=by, last=way[-1])
        elif role in ours and ours[role] not in needed:
            yield finding("SP05.needless", who, by=by, last=way[-1])


def _together(place: Deployed) -> Iterator[Finding]:
    for (one, first), (other, second) in combinations(place.parts.items(), 2):
        if first.server == second.server and first.login == second.login:
            yield finding("SP05.one-login", first.login, one=one, other=other)
    apart = place.parts.get("anchor")
    if apart is not None and apart.server == place.parts["store"].server:
        yield finding("SP05.one-server", apart.name)


def _tenants(place: Deployed) -> Iterator[Finding]:
    """Find logins that nobody holds to one tenant, and those that are held to different ones."""
    whose = {part: database.whose(part) for part, database in place.parts.items()}
    for part, database in place.parts.items():
        if whose[part] == "*":
            yield finding("SP05.every-tenant", database.login, part=part)
        elif None not in whose.values() and whose["store"] not in ("*", whose[part]):
            values = {"part": part, "its": _tenant(whose[part]), "store": _tenant(whose["store"])}
            yield finding("SP05.tenants", database.login, **values)


def _tenant(name: str | None) -> str:
    return f"tenant {quoted(name)}" if name else "no tenant"


def tenant_of(dsn: str) -> str | None:
    """Return the tenant that a login of the store serves: `*` is every one, and "" none.

    Returns:
        None if there is no store of this package in the database.

    Raises:
        CheckpointError: as `check_privileges` does.
    """
    with looking(dsn) as database:
        return (database.whose("store") or "") if "store" in database.parts else None


def unseen_tenants(name: str, whose: str) -> list[Finding]:
    """Say which threads a login does not see, unless it serves every tenant."""
    if whose == "*":
        return []
    return [finding("SP30.unseen-tenants", name, whose=_tenant(whose))]


def _operators(place: Deployed) -> Iterator[Finding]:
    """Find who can act as the owner, and who can discard records or set the anchor back."""
    for store, anchor in product(place.databases, repeat=2):
        are_there = "store" in store.parts and "anchor" in anchor.parts
        if store.server != anchor.server or not are_there:
            continue
        discards, rewinds = store.role("operator"), anchor.inside(anchor.role("anchor_operator"))
        for login in sorted(store.inside(discards).keys() & rewinds):
            yield finding("SP05.undoes", login, last=rewinds[login][-1])
    for database in place.databases:
        told = place.told[database.server]
        for login, way in database.inside(database.role("owner")).items():
            if login not in told:
                yield finding("SP05.owner-member", login, owner=way[-1].role, member=way[-1])
        for job, does in _OPERATES.items():
            role = database.role(job)
            names = sorted(database.inside(role).keys() - told)
            if names:
                listed = ", ".join(map(quoted, names))
                yield finding("SP05.operators", role, can=does, names=listed)


def _grants(place: Deployed) -> Iterator[Finding]:
    """Compare what was granted, and what belongs to whom, with what create_schema makes."""
    for database in place.databases:
        told, owner = place.told[database.server], database.role("owner")
        for each in database.held:
            public, owns = each.holder == "PUBLIC", each.privilege == "OWNER"
            if each.is_outside:
                loose = ["CREATE", "OWNER"]
                loose += ["CONNECT", "TEMPORARY"] if public and each.kind == "database" else []
                is_more = each.privilege in loose and (public or each.holder in told)
            else:
                how, what = _entry(database, each)
                is_made = what in _made()["held"].get(how, "").split("; ")
                is_more = (
                    each.holder != owner and is_made if owns else not is_made or each.passes_on
                )
            if is_more and owns:
                name, holder = shown(each.name), quoted(each.holder)
                values = {"kind": each.kind, "name": name, "holder": holder, "owner": owner}
                yield finding("SP05.owner", each.name, Kind=each.kind.capitalize(), **values)
            elif is_more:
                yield _more(database, each)


def _more(database: Database, held: Held) -> Finding:
    """Say what was granted beyond what create_schema gives, and how to take it back."""
    kind, name, public = held.kind, shown(held.name), held.holder == "PUBLIC"
    column = f" ({shown(held.column)})" if held.column else ""
    new, whom = kind.startswith("new "), "a superuser" if kind == "parameter" else "its owner"
    on = name if kind == "table" else kind[4:] if new else f"{kind} {name}"
    do = f"revoke {held.privilege.lower()}{column} on {on} from {shown(held.sql_holder)}"
    do += " cascade" * held.passes_on
    if new:
        do, name = f"alter default privileges for role {name} {do}", f"of {name}"
    elif held.privilege == "CONNECT":
        ours = {each.sql_holder for each in database.held if each.holder in database.roles}
        do += f"; grant connect on {on} to {', '.join(sorted(ours - {''}))}"
    elif held.holder in database.roles:
        do += "; and grant again what create_schema does, which this prints: safepoint postgres sql"
    reads = held.privilege in ("SELECT", "USAGE") and not (held.passes_on or public)
    severity = "warning" if reads or held.is_outside else "error"
    who = "Every login of the server" if public else quoted(held.holder)
    values = {"severity": severity, "who": who, "kind": kind, "name": name, "do": do, "whom": whom}
    return finding("SP05.granted", held.name, what=held.privilege + column, **values)


def _sessions(place: Deployed) -> Iterator[Finding]:
    """Find what is set for the sessions of the logins. A login can set most of it for itself."""
    for database in place.databases:
        named = place.told[database.server].union(*map(database.inside, database.roles))
        for login, setting in database.rows(_SETTINGS, {"unsafe": [*_UNSAFE]}):
            which = _UNSAFE.get(setting.lower(), "SP05.session")
            whose = f"login {quoted(login)}" if login else "every login"
            if login in named or not login or which != "SP05.session":
                yield finding(which, database.name, whose=whose, setting=quoted(setting))


@cache
def _made() -> dict[str, dict[str, str]]:
    """Return what create_schema makes, as `described` says it."""
    text = files("safepoint.audit").joinpath("schema.json").read_text(encoding="utf-8")
    made: dict[str, dict[str, str]] = json.loads(text)
    return made


def described(database: Database) -> dict[str, dict[str, str]]:
    """Return the shape of what is there, and what each job was granted or owns."""
    held: dict[str, str] = {}
    for each in database.held:
        if not each.is_outside:
            how, what = _entry(database, each)
            held[how] = f"{held[how]}; {what}" if how in held else what
    return {"held": held, "shape": database.shape}


def _entry(database: Database, held: Held) -> tuple[str, str]:
    job = "owner" if held.privilege == "OWNER" else database.roles.get(held.holder)
    return f"{job} {held.privilege} {held.kind}", f"{held.name} {held.column or ''}".strip()


def _schemas(place: Deployed) -> Iterator[Finding]:
    """Compare each schema with what create_schema makes. Owners and grants are compared apart."""
    for database, part in product(place.databases, PARTS):
        schema, rule, _ = PARTS[part]
        if part not in database.parts:
            continue
        found, made = (_compared(each, schema) for each in (database.shape, _made()["shape"]))
        changed = sorted(key for key in found.keys() | made if found.get(key) != made.get(key))
        whole = {key[6:] for key in found.keys() ^ made.keys() if key.startswith("table ")}
        for key in changed:
            which = f"{rule}.changed" if key in made else f"{rule}.not-made"
            which = which if key in found else f"{rule}.dropped"
            relation, named = _named(key, found.get(key) or made[key])
            if relation not in whole:
                yield finding(which, key, named=named)


def _compared(shape: dict[str, str], schema: str) -> dict[str, str]:
    return {
        key: text
        for key, text in shape.items()
        if key.split(" ")[1].partition(".")[0] == schema
        and not (key.startswith("index ") and _PLAIN.fullmatch(text))
    }


def _named(key: str, text: str) -> tuple[str | None, str]:
    """Return of which table a thing is a part, and what to call it."""
    kind, _, name = key.partition(" ")
    if kind == "column":
        table, _, column = name.rpartition(".")
        return table, f"Column {shown(column)} of table {shown(table)}"
    if kind in _ON:
        on, _, name = name.partition(" ")
        return on, f"{kind.capitalize()} {shown(name)} on {shown(on)}"
    if kind == "table":
        return None, f"{_RELATIONS.get(text[:1], 'Relation')} {shown(name)}"
    return None, f"{kind.capitalize()} {shown(name)}"


_CHECKS: Final = (_logins, _together, _tenants, _operators, _grants, _sessions, _schemas)
