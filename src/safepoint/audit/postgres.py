"""A store in PostgreSQL: what is there, compared with what our SQL makes, and who may do what."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from importlib.resources import files
from itertools import combinations, product
from typing import Any, Final, NamedTuple

from safepoint.audit.finding import CATALOGUE, Finding, Severity, finding
from safepoint.errors import StorageUnavailable, quoted

# Of each part: its schema, the rule that its triggers hold, and the roles that do its work.
PARTS: Final = {
    "store": ("safepoint", "SP13", ("writer", "reader", "auditor")),
    "anchor": ("safepoint_anchor", "SP15", ("anchor",)),
    "journal": ("safepoint_journal", "SP20", ("journal",)),
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
_ROLES: Final = (
    "select rolname::text, quote_ident(rolname), rolcanlogin, rolsuper, rolcreaterole,"
    " rolreplication, rolcreatedb, rolbypassrls from pg_roles order by 1"
)
# Before PostgreSQL 16 a member always has all that the role has, and nobody asks who let it in.
_MEMBERS: Final = (
    "select m.rolname::text, r.rolname::text, quote_ident(r.rolname), quote_ident(m.rolname),"
    " coalesce((to_jsonb(a)->>'set_option')::boolean, true)"
    " or coalesce((to_jsonb(a)->>'inherit_option')::boolean, true),"
    " case when to_jsonb(a) ? 'set_option' and a.grantor <> 10"
    " then ' granted by ' || quote_ident(pg_get_userbyid(a.grantor)) else '' end"
    " || case when a.admin_option and exists (select from pg_auth_members o"
    " where o.roleid = a.roleid and o.grantor = a.member) then ' cascade' else '' end"
    " from pg_auth_members a join pg_roles r on r.oid = a.roleid"
    " join pg_roles m on m.oid = a.member order by 2, 1, 6"
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
order by kind, name, 4, 6, col
"""
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
_SETTINGS: Final = """
select coalesce(r.rolname::text, ''), coalesce(quote_ident(r.rolname), ''),
  coalesce(quote_ident(d.datname), ''), setting
from pg_db_role_setting s left join pg_roles r on r.oid = s.setrole
left join pg_database d on d.oid = s.setdatabase, unnest(s.setconfig) setting
where s.setdatabase = 0 or d.datname = current_database()
union all select '', '', '', name || '=' || setting from pg_settings
where name = 'session_replication_role' and setting <> 'origin'
  and source not in ('database', 'user', 'database user')
order by 1, 3, 4
"""
_REPLICA: Final = "session_replication_role"
_MAY_SET: Final = (
    "select coalesce(quote_ident(g.rolname), 'public') from pg_parameter_acl, aclexplode(paracl) a"
    " left join pg_roles g on g.oid = a.grantee where parname = 'session_replication_role'"
    " and a.privilege_type = 'SET' and a.grantee <> a.grantor order by 1"
)
# What the fingerprint of `migrate` does not tell: it makes none of these.
_MORE: Final = """
select 'Table ' || inhrelid::regclass::text, 'inherits from ' || inhparent::regclass::text
from pg_inherits join pg_class c on c.oid = inhrelid join pg_class p on p.oid = inhparent
where %(schema)s::regnamespace in (c.relnamespace, p.relnamespace) and c.relkind in ('r', 'p', 'f')
union all select 'Domain ' || format_type(oid, null), 'has a default, or is not null'
from pg_type where typnamespace = %(schema)s::regnamespace and typtype = 'd'
  and (typdefault is not null or typnotnull)
union all select 'Table ' || oid::regclass::text, 'has row-level security forced upon it'
from pg_class where relnamespace = %(schema)s::regnamespace and relforcerowsecurity
union all select 'Index ' || indexrelid::regclass::text, 'is not whole'
from pg_index i join pg_class c on c.oid = i.indrelid
where c.relnamespace = %(schema)s::regnamespace and not (indisvalid and indisready and indislive)
order by 1, 2
"""
_POWERS: Final[dict[str, tuple[Severity, str]]] = {
    "login": ("error", "can log in"),
    "superuser": ("error", "is a superuser"),
    "createrole": ("error", "may create roles, and change or join others"),
    "replication": ("error", "may copy the whole server, with every database in it"),
    "createdb": ("warning", "may create databases"),
    "bypassrls": ("warning", "is not held by row-level security"),
}
_OPERATES: Final = {
    "operator": "prune threads, discard records and break leases",
    "anchor_operator": "set the anchor back",
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
        """Whether it is of what migrate finds there, and does not make."""
        return self.kind == "database" or self.name == "public"


class Member(NamedTuple):
    """A membership: who is in which role, whether they can act as it, and how to end that."""

    member: str
    role: str
    sql_role: str
    sql_member: str
    acts: bool
    how: str


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
        return [Held(*row) for row in self.rows(_HELD, {"schemas": schemas})]

    @cached_property
    def roles(self) -> dict[str, str]:
        """The roles of the store, by the names that they have on its server, each with its job."""
        from safepoint.postgres.schema import ROLES

        # Most of them still have their names, whatever else was given away.
        pattern = re.compile(rf"(.+)_({'|'.join(sorted(ROLES, key=len, reverse=True))})")
        names = {each.holder for each in self.held if not each.is_outside}
        votes = Counter(match[1] for name in sorted(names) if (match := pattern.fullmatch(name)))
        prefix = votes.most_common(1)[0][0] if votes else "safepoint"
        return {f"{prefix}_{job}": job for job in ROLES}

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
        """Who is in which role."""
        return [
            Member(member, role, shown(sql_role), shown(sql_member), acts, shown(how))
            for member, role, sql_role, sql_member, acts, how in self.rows(_MEMBERS)
        ]

    def paths(self, login: str, *, acting: bool = False) -> dict[str, list[Member]]:
        """Return the roles that a login is in, inherited or not, each with the way to it.

        Args:
            login: who.
            acting: whether to leave out those as which it cannot act, and may only let others in.
        """
        found: dict[str, list[Member]] = {login: []}
        for member in (waiting := [login]):
            for each in self.members:
                is_on = each.member == member and each.role not in found
                if is_on and (each.acts or not acting):
                    found[each.role] = [*found[member], each]
                    waiting.append(each.role)
        return found

    @cached_property
    def logins(self) -> dict[str, dict[str, list[Member]]]:
        """The roles as which each login can act. Superusers can act as all, and are left out."""
        return {
            name: self.paths(name, acting=True)
            for name, (_, has) in self.powers.items()
            if "login" in has and "superuser" not in has
        }

    def inside(self, role: str) -> set[str]:
        """Return the logins that can act as a role."""
        return {login for login, roles in self.logins.items() if role in roles}


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
    the catalogs, compares them with what `migrate` makes, and changes nothing.

    ```python
    from safepoint.audit import check_privileges
    from safepoint.postgres import migrate
    from safepoint.testing.postgres import Server

    with Server() as server:
        server.database("checkpoints")
        migrate(server.dsn(database="checkpoints"))
        server.login("worker_1", "safepoint_writer")
        server.psql("grant delete on safepoint.checkpoints to worker_1", database="checkpoints")
        for finding in check_privileges(server.dsn("worker_1", "checkpoints")):
            if finding.severity == "error":
                print(finding.rule, finding.what.split(",")[0])
                #> SP05 'worker_1' has DELETE on table safepoint.checkpoints
    ```

    Args:
        dsn: with which workers reach the store.
        anchor: with which they reach the anchor, if it is in PostgreSQL.
        journal: with which they reach the journal, if it is in PostgreSQL.

    Returns:
        Under SP05, an error for a superuser, an owner, each role that a login does not need, and
        each privilege that `migrate` does not give and that changes what is kept; a warning for one
        that only reads, for what every login of the server may do, and for a password in a
        connection string; a note of who the operators are, of what is set for the sessions of the
        logins, and if the anchor is on the server of the store. Under SP13, SP15 and SP20, an error
        for each function, trigger, table, column and constraint of store, anchor and journal that
        is not as `migrate` made it.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: an argument is no connection string.
        StorageUnavailable: there is no server, it does not let the login in, or there is no schema
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
                raise _no_schema(part, database)
        place = Deployed(seen)
        found = [each for check in _CHECKS for each in check(place)]
    return list({each.what: each for each in found}.values())


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


def shown(name: str) -> str:
    """Return a name as SQL has it, if it can be shown as it is."""
    return name if name.isascii() and name.isprintable() and len(name) < 200 else quoted(name)


def _no_schema(part: str, database: Database) -> StorageUnavailable:
    from safepoint.postgres.connection import place

    return StorageUnavailable(
        f"There is no schema {PARTS[part][0]} in {place(database.given)}.",
        f"Correct the connection string of the {part}, or make it, as one who may create roles:"
        " safepoint postgres migrate DSN",
    )


def _passwords(place: Deployed) -> Iterator[Finding]:
    """Look for a password where it is logged, shown by ps, and kept in configuration."""
    for part, database in place.parts.items():
        if database.given.get("password"):
            yield finding("SP05.password", database.login, part=part)
    if place.parts["store"].rows("show password_encryption") == [("md5",)]:
        yield finding("SP05.md5", place.parts["store"].name)


def _logins(place: Deployed) -> Iterator[Finding]:
    """Look at what each login may do by itself, and by each role that it is in."""
    for database in place.parts.values():
        here = [each for each in place.databases if each.server == database.server]
        ours = {role: job for each in here for role, job in each.roles.items()}
        needed = {
            job
            for part, each in place.parts.items()
            if (each.server, each.login) == (database.server, database.login)
            for job in PARTS[part][2]
        }
        for role, way in database.paths(database.login).items():
            sql, powers = database.powers[role]
            names = " and so of ".join(quoted(each.role) for each in way)
            by = f", as a member of {names}" if way else ""
            for power in ["superuser"] if "superuser" in powers else powers:
                severity, may = _POWERS[power]
                if power != "login":
                    values = {"sql": sql, "power": power, "may": may, "severity": severity}
                    yield finding("SP05.power", database.login, by=by, **values)
            do = "Let the application come by a login of its own."
            if way:
                do = f"Run: revoke {way[-1].sql_role} from {way[-1].sql_member}"
            if way and f"SP05.in-{role}" in CATALOGUE:
                yield finding(f"SP05.in-{role}", database.login, by=by, do=do)
            elif ours.get(role) == "owner":
                yield finding("SP05.owns", database.login, role=role, by=by, do=do)
            elif role in ours and ours[role] not in needed:
                yield finding("SP05.needless", database.login, by=by, do=do)


def _together(place: Deployed) -> Iterator[Finding]:
    for (one, first), (other, second) in combinations(place.parts.items(), 2):
        passwords = {each.connection.info.password for each in (first, second)}
        if first.server == second.server and first.login == second.login:
            yield finding("SP05.one-login", first.login, one=one, other=other)
        elif len(passwords) == 1 and all(passwords):
            yield finding("SP05.one-password", second.login, one=one, other=other)
    apart = place.parts.get("anchor")
    if apart is not None and apart.server == place.parts["store"].server:
        yield finding("SP05.one-server", apart.name)


def _operators(place: Deployed) -> Iterator[Finding]:
    """Find who can discard records and set the anchor back, so that nobody sees it."""
    for store, anchor in product(place.databases, repeat=2):
        are_there = "store" in store.parts and "anchor" in anchor.parts
        if store.server != anchor.server or not are_there:
            continue
        discards, rewinds = store.role("operator"), anchor.role("anchor_operator")
        for login in sorted(store.inside(discards) & anchor.inside(rewinds)):
            last = anchor.logins[login][rewinds][-1]
            yield finding("SP05.undoes", login, last=last)
    for database in place.databases:
        for job, does in _OPERATES.items():
            role = database.role(job)
            names = sorted(database.inside(role) - place.told[database.server])
            if names:
                listed = ", ".join(map(quoted, names))
                yield finding("SP05.operators", role, does=does, names=listed)


def _roles(place: Deployed) -> Iterator[Finding]:
    """Look at the roles of the store: what they can by themselves, and who is in the owner's."""
    for database in place.databases:
        owner, told = database.role("owner"), place.told[database.server]
        for name in database.roles:
            sql, held = database.powers.get(name, ("", []))
            if held:
                can = " and ".join(_POWERS[each][1] for each in held)
                no = " ".join(f"no{each}" for each in held)
                yield finding("SP05.role-power", name, can=can, sql=sql, attributes=no)
        for each in database.members:
            is_owner = each.role == owner
            if is_owner and each.acts and each.member not in told:
                yield finding("SP05.owner-member", each.member, owner=owner, member=each)
            elif is_owner and not each.acts:
                yield finding("SP05.owner-maker", each.member, owner=owner, member=each)
            if each.member in database.roles and each.member not in told:
                role = quoted(each.role)
                yield finding("SP05.role-member", each.member, role=role, member=each)


def _grants(place: Deployed) -> Iterator[Finding]:
    """Compare what was granted, and what belongs to whom, with what migrate makes."""
    for database in place.databases:
        told, owner = place.told[database.server], database.role("owner")
        groups: dict[tuple[str, ...], list[Held]] = {}
        key: tuple[str | None, ...]
        for each in database.held:
            if each.is_outside:
                public = each.holder == "PUBLIC"
                loose = ["CREATE", "OWNER"]
                loose += ["CONNECT", "TEMPORARY"] if public and each.kind == "database" else []
                is_more = each.privilege in loose and (public or each.holder in told)
            elif each.privilege == "OWNER":
                key = ("owner", each.kind, each.name, None, "OWNER")
                is_more = key in _made() and each.holder != owner
            else:
                key = (database.roles.get(each.holder), *each[:3], each.privilege)
                is_more = each.passes_on or key not in _made()
            if is_more and each.privilege == "OWNER":
                name, holder = shown(each.name), quoted(each.holder)
                values = {"kind": each.kind, "name": name, "holder": holder, "owner": owner}
                yield finding("SP05.owner", each.name, Kind=each.kind.capitalize(), **values)
            elif is_more:
                groups.setdefault((each.kind, each.name, each.holder), []).append(each)
        for group in groups.values():
            yield _more(database, group)


def _more(database: Database, group: list[Held]) -> Finding:
    """Say what was granted beyond what migrate gives, and how to take it back."""
    first, listed = group[0], _spelled([(each.privilege, each.column) for each in group])
    kind, name, to = first.kind, shown(first.name), shown(first.sql_holder)
    on, passes_on = name if kind == "table" else f"{kind} {name}", any(e.passes_on for e in group)
    do = f"Run, as its owner: revoke {_lower(listed)} on {on} from {to}{' cascade' * passes_on}"
    if "CONNECT" in listed:
        ours = {each.sql_holder for each in database.held if each.holder in database.roles}
        do += f"; grant connect on {on} to {', '.join(sorted(ours - {''}))}"
    # To revoke a privilege on the table takes it from the columns as well.
    whole, role = {e.privilege for e in group if not e.column}, database.roles.get(first.holder)
    again = _spelled(
        (privilege, column)
        for job, _, table, column, privilege in sorted(_made(), key=str)
        if (job, table) == (role, first.name) and column and privilege in whole
    )
    do += f"; grant {_lower(again)} on {on} to {to}" if again else ""
    public = first.holder == "PUBLIC"
    reads = all(e.privilege in ("SELECT", "USAGE") for e in group) and not (passes_on or public)
    severity = "warning" if reads or first.is_outside else "error"
    who = "Every login of the server" if public else quoted(first.holder)
    what = " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))
    values = {"severity": severity, "who": who, "what": what, "kind": kind, "name": name}
    return finding("SP05.granted", first.name, do=do, **values)


def _spelled(privileges: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return privileges as SQL has them: INSERT (login, written)."""
    columns: dict[str, list[str]] = {}
    whole = set[str]()
    for privilege, column in privileges:
        columns.setdefault(privilege, []).extend([shown(column)] if column else [])
        whole |= set() if column else {privilege}
    return [
        privilege if privilege in whole else f"{privilege} ({', '.join(names)})"
        for privilege, names in columns.items()
    ]


def _lower(privileges: list[str]) -> str:
    cut = [each.partition(" ") for each in privileges]
    return ", ".join(f"{name.lower()}{space}{columns}" for name, space, columns in cut)


def _defaults(place: Deployed) -> Iterator[Finding]:
    """Find with what grants the owner would make things from now on."""
    for database in place.databases:
        owner = database.role("owner")
        for kind, where, grantee, privileges in database.rows(_DEFAULTS, (owner,)):
            whom = "every login of the server" if grantee == "public" else shown(grantee)
            values = {"privileges": privileges, "kind": kind, "whom": whom}
            values |= {"schema": shown(where), "grantee": shown(grantee)}
            yield finding("SP05.defaults", owner, **values)


def _sessions(place: Deployed) -> Iterator[Finding]:
    """Find what is set for the sessions of the logins. A login can set most of it for itself."""
    for database in place.databases:
        named = place.told[database.server].union(*map(database.inside, database.roles))
        if database.connection.info.server_version >= 150000:
            for (grantee,) in database.rows(_MAY_SET):
                yield finding("SP05.may-set", grantee, grantee=shown(grantee))
        for login, sql_login, name, setting in database.rows(_SETTINGS):
            key, _, value = setting.partition("=")
            if login and login not in named:
                continue
            where = f" in database {shown(name)}" if name else ""
            at = f"role {shown(sql_login)}{where}"
            if not login:
                at = f"database {shown(name)}" if name else "role all"
            yield finding(
                "SP05.replica" if key == _REPLICA else "SP05.session",
                login or database.name,
                whose=f"login {quoted(login)}" if login else "every login",
                scope=where,
                key=key,
                value=quoted(value),
                alter=at,
            )


@cache
def fingerprint_made() -> dict[str, str]:
    """Return the fingerprint of what migrate makes; of the body of a function, the digest."""
    text = files("safepoint.audit").joinpath("schema.json").read_text(encoding="utf-8")
    made: dict[str, str] = json.loads(text)
    return made


def digested(fingerprint: dict[str, str]) -> dict[str, str]:
    """Return a fingerprint with a digest in the place of each body."""
    return {
        key: hashlib.sha256(text.encode()).hexdigest() if key.startswith("body ") else text
        for key, text in fingerprint.items()
    }


@cache
def _made() -> set[tuple[str | None, ...]]:
    """Return what migrate gives: to which role, the kind of thing and its name, column, what."""
    made = set[tuple[str | None, ...]]()
    kinds = {"relation": "table", "column": "table", "type": "domain"}
    for key, text in fingerprint_made().items():
        kind, name = key.removeprefix("grant ").split(" ", 1)
        table, _, column = name.rpartition(".") if kind == "column" else (name, "", None)
        if text == "owner {owner}":
            made.add(("owner", kinds.get(kind, kind), name, None, "OWNER"))
        elif key.startswith("grant "):
            for role, privilege in re.findall(r"{(\w+)} (\w+)", text):
                made.add((role, kinds.get(kind, kind), table, column, privilege))
    return made


def _schemas(place: Deployed) -> Iterator[Finding]:
    """Compare each schema with what migrate makes. Owners and grants are compared apart."""
    from safepoint.postgres.schema import fingerprint

    for database, part in product(place.databases, PARTS):
        schema, rule, _ = PARTS[part]
        if part not in database.parts:
            continue
        found = _compared(digested(fingerprint(database.connection, parts=(part,))), schema)
        made = _compared(fingerprint_made(), schema)
        changed = sorted(key for key in found.keys() | made if found.get(key) != made.get(key))
        whole = {key[6:] for key in found.keys() ^ made.keys() if key.startswith("table ")}
        for key in changed:
            which = f"{rule}.changed" if key in made else f"{rule}.not-made"
            which = which if key in found else f"{rule}.dropped"
            relation, named = _named(key, found.get(key) or made[key])
            if relation not in whole:
                yield finding(which, key, named=named)
        for name, what in database.rows(_MORE, {"schema": schema}):
            yield finding(f"{rule}.more", name, name=shown(name), what=shown(what))


def _compared(fingerprint: dict[str, str], schema: str) -> dict[str, str]:
    return {
        key: text
        for key, text in fingerprint.items()
        if key.split(" ")[1].partition(".")[0] == schema
        and not text.startswith("owner ")
        and not key.startswith("grant ")
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
    return None, f"{'Function' if kind == 'body' else kind.capitalize()} {shown(name)}"


_CHECKS: Final = (
    _passwords,
    _logins,
    _together,
    _operators,
    _roles,
    _grants,
    _defaults,
    _sessions,
    _schemas,
)
