"""A store in PostgreSQL: how it differs from what our SQL makes, who may do what, and the way."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, cached_property
from importlib.resources import files
from ipaddress import ip_address
from itertools import combinations
from typing import Any, Final

from safepoint.audit.finding import CATALOGUE, Finding, finding
from safepoint.core.errors import Unavailable, quoted

# Of each part: its schema, the rule that its triggers hold, and the roles that do its work.
PARTS: Final = {
    "store": ("safepoint", "SP13", ("writer", "reader", "auditor", "approver")),
    "anchor": ("safepoint_anchor", "SP15", ("anchor", "auditor", "approver")),
    "journal": ("safepoint_journal", "SP20", ("journal", "auditor")),
    "answers": ("safepoint_answers", "SP19", ("approver",)),
}
_SCHEMAS: Final = {"schemas": [schema for schema, *_ in PARTS.values()]}
# What a thief sets for the login that they stole must not change what is seen here.
_OPTIONS: Final = (
    "-c default_transaction_read_only=on"
    " -c quote_all_identifiers=off -c role=none -c idle_session_timeout=0"
    " -c statement_timeout=10000 -c lock_timeout=10000"
    " -c idle_in_transaction_session_timeout=10000"
)
_WHO: Final = (
    "select session_user::text, current_database()::text,"
    " extract(epoch from pg_postmaster_start_time())::text"
)
_ROLES: Final = (
    "select rolname::text, rolcanlogin, rolsuper, rolcreaterole, rolreplication, rolcreatedb,"
    " rolbypassrls from pg_roles order by 1"
)
# Before PostgreSQL 16 a member always has all that the role has.
_MEMBERS: Final = (
    "select m.rolname::text, r.rolname::text"
    " from pg_auth_members a join pg_roles r on r.oid = a.roleid"
    " join pg_roles m on m.oid = a.member where coalesce((to_jsonb(a)->>'set_option')::boolean,"
    " true) or coalesce((to_jsonb(a)->>'inherit_option')::boolean, true) order by 2, 1"
)
# Of each schema what is in it, who owns that, what was granted, and what a new one would be.
_SHAPE: Final = """
with relation as (select c.*, nspname as schema, nspname || '.' || quote_ident(relname) as name
  from pg_class c join pg_namespace n on n.oid = relnamespace
  where nspname = any(%(schemas)s) and relkind <> 'i'),
thing (schema, kind, name, col, owner, acl) as (
  select nspname, 'schema ', nspname::text, null, nspowner,
    coalesce(nspacl, acldefault('n', nspowner))
  from pg_namespace where nspname = any(%(schemas)s)
  union all select schema, 'table ', name, null, relowner, relacl
  from relation where relkind not in ('I', 't', 'c')
  union all select schema, 'table ', name, quote_ident(attname), relowner, attacl
  from relation r join pg_attribute on attrelid = r.oid where attnum > 0 and not attisdropped
  union all select nspname, 'function ', p.oid::regprocedure::text, null, proowner,
    coalesce(proacl, acldefault('f', proowner))
  from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = any(%(schemas)s)
  union all select nspname, 'domain ', format_type(t.oid, null), null, typowner, null
  from pg_type t join pg_namespace n on n.oid = typnamespace
  where nspname = any(%(schemas)s) and typtype = 'd')
select schema, 'owner ' || kind || name, quote_ident(pg_get_userbyid(owner)) from thing
where col is null
union all select schema, concat('grant ', privilege, ' on ', kind, name, ' to ', who,
    case when is_grantable then ' with grant option' end), ''
from thing, aclexplode(acl) left join pg_roles g on g.oid = grantee,
lateral (select lower(privilege_type) || coalesce(' (' || col || ')', '') as privilege,
  coalesce(quote_ident(g.rolname), 'public') as who) _ where grantee <> owner
union all select schema, 'table ' || name, concat_ws(' ', relkind, relpersistence,
  reloptions::text, relrowsecurity, relforcerowsecurity) from relation
union all select schema, 'column ' || name || '.' || attname, concat_ws(' ',
  format_type(atttypid, atttypmod), attnotnull, attstorage, pg_get_expr(adbin, adrelid))
from relation r join pg_attribute on attrelid = r.oid and attnum > 0 and not attisdropped
left join pg_attrdef on (adrelid, adnum) = (attrelid, attnum)
union all select nspname, 'constraint ' || coalesce(nullif(conrelid, 0)::regclass::text,
  contypid::regtype::text) || ' ' || conname, pg_get_constraintdef(c.oid)
from pg_constraint c join pg_namespace n on n.oid = connamespace
where nspname = any(%(schemas)s) and contype <> 'n'
union all select schemaname, 'index ' || schemaname || '.' || indexname, indexdef
from pg_indexes where schemaname = any(%(schemas)s)
union all select schema, 'trigger ' || name || ' ' || tgname,
  concat_ws(' ', tgenabled, pg_get_triggerdef(t.oid))
from pg_trigger t join relation r on r.oid = tgrelid where not tgisinternal
union all select schemaname, 'rule ' || schemaname || '.' || tablename || ' ' || rulename,
  definition from pg_rules where schemaname = any(%(schemas)s)
union all select schemaname, 'policy ' || schemaname || '.' || tablename || ' ' || policyname,
  concat_ws(' ', permissive, cmd, roles::text, 'using ' || qual, 'check ' || with_check)
from pg_policies where schemaname = any(%(schemas)s)
union all select nspname, 'function ' || p.oid::regprocedure::text,
  case prokind when 'a' then 'aggregate' else
    encode(sha256(convert_to(pg_get_functiondef(p.oid), 'UTF8')), 'hex') end
from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = any(%(schemas)s)
union all select nspname, 'default privileges ' || nspname || '.' || defaclobjtype::text,
  defaclacl::text
from pg_default_acl d join pg_namespace n on defaclrole = nspowner
where nspname = any(%(schemas)s) and defaclnamespace in (0, n.oid)
order by 1, 2
"""
_MAY_SET: Final = """
select 'safepoint', concat('grant set on parameter ', parname, ' to ', who), ''
from pg_parameter_acl, aclexplode(paracl) left join pg_roles g on g.oid = grantee,
lateral (select coalesce(quote_ident(g.rolname), 'public') as who) _
where parname = 'session_replication_role' and grantee <> grantor
"""
# What a role may do whatever was granted to it, in the order of _ROLES.
_ATTRIBUTES: Final = ("login", "superuser", "createrole", "replication", "createdb", "bypassrls")
_BY_JOB: Final = re.compile(r"\{[a-z_]+\}")
# One that nobody made unique, of columns as they are, changes nothing but how fast it is.
_PLAIN: Final = re.compile(r"CREATE INDEX \S+ ON [\w.]+ USING btree \([\w, ]+\)")


class LoginView:
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
    def _rows(self) -> list[tuple[str, str, str]]:
        rows = self.rows(_SHAPE, _SCHEMAS)
        newer = self.connection.info.server_version >= 150000
        return rows + (self.rows(_MAY_SET) if newer else [])

    @cached_property
    def roles(self) -> dict[str, str]:
        """The roles of the store, by the names that they have on its server, each with its job."""
        from safepoint.stores.postgres.schema import ROLES

        # Most of them still have their names, whatever else was given away.
        jobs = "|".join(sorted(ROLES, key=len, reverse=True))
        pattern = re.compile(rf"grant .* to (.+)_({jobs})")
        found = (pattern.fullmatch(key) for _, key, _ in self._rows)
        votes = Counter(match[1] for match in found if match)
        prefix = votes.most_common(1)[0][0] if votes else "safepoint"
        return {f"{prefix}_{job}": job for job in ROLES}

    @cached_property
    def shape(self) -> dict[str, dict[str, str]]:
        """What is in each schema, who owns it, and what was granted, with each role by its job."""
        ours = re.compile(
            rf"(?<!schema )\b({'|'.join(sorted(self.roles, key=len, reverse=True))})\b(?!\.)"
        )
        found: dict[str, dict[str, str]] = {}
        for schema, *row in self._rows:
            key, text = (ours.sub(lambda match: f"{{{self.roles[match[1]]}}}", s) for s in row)
            if not (key.startswith("index ") and _PLAIN.fullmatch(text)):
                found.setdefault(schema, {})[key] = text
        return found

    def role(self, job: str) -> str:
        """Return the name of the role that does a job."""
        return next(role for role, each in self.roles.items() if each == job)

    @cached_property
    def powers(self) -> dict[str, list[str]]:
        """Each role of the server, with the attributes that it has."""
        return {
            name: [power for power, each in zip(_ATTRIBUTES, has, strict=True) if each]
            for name, *has in self.rows(_ROLES)
        }

    @cached_property
    def _members(self) -> list[tuple[str, str]]:
        return self.rows(_MEMBERS)

    def paths(self, login: str) -> dict[str, list[str]]:
        """Return the roles as which a login can act, each with the way to it, itself first."""
        found = {login: [login]}
        for member in (waiting := [login]):
            for each, role in self._members:
                if each == member and role not in found:
                    found[role] = [*found[member], role]
                    waiting.append(role)
        return found

    @cached_property
    def serves(self) -> str | None:
        """The tenant that the login serves: `*` is every one, and "" none. None without a store."""
        import psycopg

        from safepoint.stores.postgres.connection import WHOSE

        with suppress(psycopg.Error):  # then another check finds what is wrong with the table
            if "store" in self.parts:
                return str(self.rows(WHOSE.format(PARTS["store"][0]))[0][0])
        return "" if "store" in self.parts else None


def check_postgres(parts: Mapping[str, str]) -> list[Finding]:
    """Look at the logins of a store, at what the server would refuse them, and at the way to it."""
    with ExitStack() as stack:
        seen = {part: stack.enter_context(looking(dsn)) for part, dsn in parts.items()}
        found = [each for database in seen.values() for each in _way(database)]
        seen.pop("answers", None)  # which workers reach as they like
        for part, database in seen.items():
            if part not in database.parts:
                raise _no_schema(part, database)
        databases = {(each.server, each.name): each for each in reversed(seen.values())}
        for database in databases.values():
            found += [*_owners(database), *_changed(database)]
        found += [*_logins(seen), *_shared(seen), *_tenants(seen["store"])]
    return list({each.what: each for each in found}.values())


@contextmanager
def looking(dsn: str) -> Iterator[LoginView]:
    """Connect, and look at a database for as long as the block lasts.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: it is not a connection string.
        Unavailable: the server refuses, or is away.
    """
    # It says what to install.
    from safepoint.stores.postgres.connection import PINNED, parsed, place, refusal

    import psycopg  # isort: skip

    given = parsed(dsn)
    chosen: dict[str, Any] = {
        "options": f"{given.get('options', '')} {PINNED} {_OPTIONS}".strip(),
        "application_name": "safepoint audit",
        "connect_timeout": given.get("connect_timeout", "10"),
    }
    try:
        with psycopg.connect(dsn, autocommit=True, **chosen) as connection:
            yield LoginView(given, connection)
    except psycopg.Error as error:
        raise refusal(error, place(given)) from error


def tenant_of(dsn: str) -> str | None:
    """Return the tenant that a login of the store serves, as `Database.serves` does."""
    with looking(dsn) as database:
        return database.serves


def shown(name: str) -> str:
    """Return a name as SQL has it, if it can be shown as it is."""
    return name if name.isascii() and name.isprintable() and len(name) < 200 else quoted(name)


def _no_schema(part: str, database: LoginView) -> Unavailable:
    from safepoint.stores.postgres.connection import place

    return Unavailable(
        f"There is no schema {PARTS[part][0]} in {place(database.given)}.",
        f"Correct the connection string of the {part}, or make it, as one who may create roles:"
        " safepoint postgres DSN",
    )


def _way(database: LoginView) -> Iterator[Finding]:
    """Look at whether the way to the server is private, and proven. A socket is not a network."""
    info, pgconn = database.connection.info, database.connection.pgconn
    mode = b"".join(each.val or b"" for each in pgconn.info if each.keyword == b"sslmode").decode()
    yield from judged(info.host, "" if info.host.startswith("/") else info.hostaddr, mode)


def judged(host: str, address: str, mode: str) -> Iterator[Finding]:
    """Yield what is wrong with a way, by its host, the address of that, and its sslmode."""
    if not address or ip_address(address).is_loopback:
        return
    to = f"{quoted(host)} ({address})" if host != address else address
    if f"SP06.sslmode-{mode}" in CATALOGUE:
        yield finding(f"SP06.sslmode-{mode}", address, to=to)
    if ip_address(address).is_global:
        yield finding("SP06.public", address, to=to)


def _tenants(store: LoginView) -> Iterator[Finding]:
    """Say whose threads the login sees, and which were not seen."""
    if store.serves == "*":
        yield finding("SP05.every-tenant", store.login)
        return
    from safepoint.stores.postgres.connection import place

    whose = f"tenant {quoted(store.serves)}" if store.serves else "no tenant"
    yield finding("SP30.unseen-tenants", place(store.given), whose=whose)


def _logins(seen: Mapping[str, LoginView]) -> Iterator[Finding]:
    """Look at what each login, and each role of the store, may do by itself and by its roles."""
    for database in seen.values():
        same = [part for part in seen if _is_same(seen[part], database)]
        yield from _able(database, database.login, [job for part in same for job in PARTS[part][2]])
        for role, job in database.roles.items():
            yield from _able(database, role, (job,)) if role in database.powers else ()


def _able(database: LoginView, who: str, needed: Sequence[str]) -> Iterator[Finding]:
    for role, way in database.paths(who).items():
        powers, job = database.powers[role], database.roles.get(role)
        names = " and so of ".join(map(quoted, way[1:]))
        by = f", as a member of {names}" if names else ""
        for power in ["superuser"] if "superuser" in powers else powers:
            if power != "login" or job:
                yield finding("SP05.power", who, power=power, by=by, sql=_sql(role))
        if names and (job not in needed if job else role.startswith("pg_")):
            yield finding("SP05.needless", who, by=by, do=_revoked(way))


def _shared(seen: Mapping[str, LoginView]) -> Iterator[Finding]:
    """Find one login of two parts, unless its role is for both, and one server."""
    for (one, first), (other, second) in combinations(seen.items(), 2):
        jobs = {each.roles.get(who) for each in (first, second) for who in each.paths(first.login)}
        if _is_same(first, second) and jobs not in ({None, "auditor"}, {None, "approver"}):
            role = _sql(second.role(PARTS[other][2][0]))
            yield finding("SP05.one-login", first.login, one=one, other=other, role=role)
    if "anchor" in seen and seen["anchor"].server == seen["store"].server:
        yield finding("SP05.one-server", seen["anchor"].name)


def _is_same(one: LoginView, other: LoginView) -> bool:
    return (one.server, one.login) == (other.server, other.login)


def _revoked(way: Sequence[str]) -> str:
    return f"revoke {_sql(way[-1])} from {_sql(way[-2])}"


def _sql(name: str) -> str:
    """Return the name of a role as SQL has it."""
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name)
    return name if plain else shown('"' + name.replace('"', '""') + '"')


def _owners(database: LoginView) -> Iterator[Finding]:
    """Find who can act as the owner."""
    owner = database.role("owner")
    for login, powers in database.powers.items():
        way = database.paths(login).get(owner)
        if way and "login" in powers and "superuser" not in powers and login != database.login:
            yield finding("SP05.owner-member", login, owner=owner, do=_revoked(way))


@cache
def _made() -> dict[str, dict[str, str]]:
    """Return what create_schema makes, as `Database.shape` says it."""
    text = files("safepoint.audit").joinpath("schema.json").read_text(encoding="utf-8")
    made: dict[str, dict[str, str]] = json.loads(text)
    return made


def _revoke(granted: str) -> str:
    """Return what takes back what was granted."""
    what, _, who = granted.removeprefix("grant ").rpartition(" to ")
    return f"revoke {what} from {who.replace(' with grant option', ' cascade')}"


def _changed(database: LoginView) -> Iterator[Finding]:
    """Compare each schema with what create_schema makes."""
    roles = {f"{{{job}}}": role for role, job in database.roles.items()}

    def named(text: str) -> str:
        """Return a text with the roles by their names again, if it can be shown."""
        return shown(_BY_JOB.sub(lambda job: roles.get(job[0], job[0]), text))

    for part in database.parts:
        schema, rule, _ = PARTS[part]
        found, made = database.shape[schema], _made()[schema]
        for key in sorted(found.keys() | made.keys()):
            kind, _, name = key.partition(" ")
            if found.get(key) == made.get(key):
                continue
            if kind == "grant" and key in found:
                reads = name.startswith(("select", "usage")) and not name.endswith(" to public")
                values = {"severity": "warning" if reads else "error", "do": named(_revoke(key))}
                yield finding("SP05.granted", key, granted=named(name), **values)
            elif kind == "owner" and key in found and key in made:
                values = {"holder": named(found[key]), "owner": roles["{owner}"]}
                yield finding("SP05.owner", key, name=named(name), **values)
            elif kind not in ("grant", "owner"):
                how = "is not as create_schema made it" if key in made else "was added"
                how = how if key in found else "is missing"
                yield finding(f"{rule}.changed", key, named=f"{kind} {named(name)}", how=how)
