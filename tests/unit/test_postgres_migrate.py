"""migrate: the schema and its roles are made once, whole, and leave no right behind."""

# ruff: noqa: S608  the SQL of these tests is put together from names of their own

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from safepoint.journal.postgres import PostgresJournal

from safepoint import Keyring, SigningKey
from safepoint.anchor.postgres import PostgresAnchor
from safepoint.errors import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    JournalUnavailable,
    StorageRefused,
    StorageUnavailable,
)
from safepoint.storage.postgres import PARTS, PostgresCheckpointStorage, migrate, statements
from safepoint.testing.postgres import Server
from tests.unit.postgres_helpers import ROOT, SCHEMAS, catalog, refusal

NUMBERS = itertools.count(1)
ROLES = [
    "anchor",
    "anchor_operator",
    "auditor",
    "journal",
    "operator",
    "owner",
    "reader",
    "writer",
]


@pytest.fixture(scope="module", params=[18, 16], ids=["PostgreSQL 18", "PostgreSQL 16"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(version=request.param, settings={"fsync": "off"}) as started:
        yield started


@pytest.fixture
def name(server: Server) -> str:
    """A database, which is also the prefix of the roles that a test makes."""
    new = f"m{next(NUMBERS)}"
    server.database(new)
    return new


def roles(server: Server, prefix: str) -> list[str]:
    found = server.psql(
        f"select rolname from pg_roles where rolname like '{prefix}\\_%' order by 1"
    )
    return [role.removeprefix(f"{prefix}_") for role in found.split()]


def schemas(server: Server, database: str) -> list[str]:
    found = server.psql(
        f"select nspname from pg_namespace where nspname in {SCHEMAS} order by 1",
        database=database,
    )
    return found.split()


def test_it_makes_all_of_it_and_the_second_time_nothing(server: Server, name: str) -> None:
    dsn = server.dsn(database=name)
    assert migrate(dsn, prefix=name) == ("store", "anchor", "journal")
    made = catalog(server, name)
    assert migrate(dsn, prefix=name) == ()
    assert catalog(server, name) == made
    assert roles(server, name) == ROLES
    assert schemas(server, name) == ["safepoint", "safepoint_anchor", "safepoint_journal"]


def test_nobody_is_in_the_role_of_the_owner_and_no_role_logs_in(server: Server, name: str) -> None:
    migrate(server.dsn(database=name), prefix=name)
    assert (
        server.psql(
            "select count(*) from pg_auth_members where roleid::regrole::text like"
            f" '{name}\\_%' or member::regrole::text like '{name}\\_%'"
        )
        == "0"
    )
    assert (
        server.psql(
            f"select count(*) from pg_roles where rolname like '{name}\\_%' and (rolcanlogin or"
            " rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls)"
        )
        == "0"
    )


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_made_by_itself(server: Server, name: str, part: str) -> None:
    dsn = server.dsn(database=name)
    assert migrate(dsn, parts=(part,), prefix=name) == (part,)
    assert len(schemas(server, name)) == 1
    rest = tuple(each for each in PARTS if each != part)
    assert migrate(dsn, prefix=name) == rest


def test_the_parts_made_one_by_one_are_those_made_at_once(server: Server, name: str) -> None:
    for part in reversed(PARTS):
        migrate(server.dsn(database=name), parts=(part,), prefix=name)
    other = f"{name}_b"
    server.database(other)
    migrate(server.dsn(database=other), prefix=name)
    assert catalog(server, name) == catalog(server, other)


def test_what_is_printed_makes_the_same_through_psql(server: Server, name: str) -> None:
    migrate(server.dsn(database=name), prefix=name)
    other = f"{name}_b"
    server.database(other)
    server.psql(statements(prefix=name), database=other)
    assert catalog(server, other) == catalog(server, name)
    assert "safepoint.keep" in catalog(server, other)


def test_two_stores_on_one_server_have_roles_of_their_own(server: Server, name: str) -> None:
    """A worker of one store is a stranger in the database of the other."""
    other = f"{name}_b"
    server.database(other)
    migrate(server.dsn(database=name), prefix=name)
    migrate(server.dsn(database=other), prefix=other)
    worker = server.login(f"{name}_worker", f"{name}_writer", database=name)
    with PostgresCheckpointStorage(worker) as storage:
        storage.append("t", 1, b"one")
    there = server.dsn(f"{name}_worker", other)
    assert refusal(StorageRefused, PostgresCheckpointStorage, there) == (
        f"Database '{other}' (login '{name}_worker') refuses that: permission denied for schema"
        " safepoint. Nothing was done. Use a login that is for workers alone, in the role that"
        " migrate made for that, safepoint_writer unless you chose another prefix: grant"
        " safepoint_writer to LOGIN"
    )


def test_the_longest_prefix_leaves_room_for_each_role(server: Server, name: str) -> None:
    """A name has 63 bytes. What is longer the server would cut, and two roles could be one."""
    prefix = name.ljust(47, "x")
    migrate(server.dsn(database=name), prefix=prefix)
    assert roles(server, prefix) == ROLES


# Who runs it


@pytest.fixture
def team(server: Server, name: str) -> str:
    """The DSN of a login that may create roles, and schemas in this database, and is no more."""
    dsn = server.login(f"dba_{name}", database=name)
    server.psql(f"alter role dba_{name} createrole")
    server.psql(f"grant create on database {name} to dba_{name}")
    return dsn


def test_a_login_that_may_create_roles_is_enough_and_keeps_no_right(
    server: Server, name: str, team: str
) -> None:
    import psycopg

    assert migrate(team, prefix=name) == PARTS
    assert migrate(team, prefix=name) == ()
    worker = server.login(f"{name}_worker", f"{name}_writer", database=name)
    with PostgresCheckpointStorage(worker) as storage:
        storage.append("t", 1, b"one")
    denied = [
        "select * from safepoint.checkpoints",
        "update safepoint.version set number = 2",
        "insert into safepoint_anchor.heads values ('s', 't', 1, 'x')",
        "alter table safepoint.checkpoints disable trigger all",
        "drop schema safepoint cascade",
        f"set role {name}_owner",
    ]
    with psycopg.connect(team, autocommit=True) as connection:
        for statement in denied:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
        kept = connection.execute(
            "select pg_has_role(rolname, 'usage') or pg_has_role(rolname, 'set')"
            " from pg_roles where rolname = %s",
            (f"{name}_owner",),
        )
        assert kept.fetchall() == [(False,)]


def test_a_login_that_may_not_create_roles_is_refused_and_nothing_is_made(
    server: Server, name: str
) -> None:
    dsn = server.login(f"app_{name}", database=name)
    server.psql(f"grant create on database {name} to app_{name}")
    assert refusal(StorageRefused, lambda: migrate(dsn, prefix=name)) == (
        f"Database '{name}' (login 'app_{name}') refuses that: permission denied to create role."
        " Nothing was done. Use a login of the role that may do it, and keep it where only that"
        " job runs."
    )
    assert (roles(server, name), schemas(server, name)) == ([], [])


def test_a_login_that_may_not_create_schemas_is_refused_and_nothing_is_made(
    server: Server, name: str, team: str
) -> None:
    server.psql(f"revoke create on database {name} from dba_{name}")
    assert refusal(StorageRefused, lambda: migrate(team, prefix=name)) == (
        f"Database '{name}' (login 'dba_{name}') refuses that: permission denied for database"
        f" {name}. Nothing was done. Use a login of the role that may do it, and keep it where only"
        " that job runs."
    )
    assert (roles(server, name), schemas(server, name)) == ([], [])


def test_a_worker_cannot_run_it(server: Server, name: str) -> None:
    migrate(server.dsn(database=name), prefix=name)
    made = catalog(server, name)
    worker = server.login(f"{name}_worker", f"{name}_writer", database=name)
    assert "permission denied to create role" in refusal(
        StorageRefused, lambda: migrate(worker, prefix=f"{name}x")
    )
    assert "permission denied to" in refusal(StorageRefused, lambda: migrate(worker, prefix=name))
    assert catalog(server, name) == made


# All or nothing


def test_a_failure_in_the_last_part_leaves_nothing(server: Server, name: str) -> None:
    """The server fails once two of three parts are made."""
    server.psql(
        """
        create function public.fail() returns event_trigger language plpgsql as $$
        begin
          if to_regnamespace('safepoint_journal') is not null then
            raise exception 'no more schemas here';
          end if;
        end $$;
        create event trigger fail on ddl_command_end when tag in ('CREATE SCHEMA')
          execute function public.fail();
        """,
        database=name,
    )
    dsn = server.dsn(database=name)
    assert refusal(StorageUnavailable, lambda: migrate(dsn, prefix=name)) == (
        f"The server of database '{name}' (login 'postgres') could not do that: no more schemas"
        " here (SQLSTATE P0001). Nothing was done. Look at the server's log."
    )
    assert (roles(server, name), schemas(server, name)) == ([], [])
    server.psql("drop event trigger fail", database=name)
    assert migrate(dsn, prefix=name) == PARTS


@pytest.mark.parametrize(
    "made",
    [
        "",
        "create table safepoint_journal.version (v text)",
        "create table safepoint_journal.version (number text)",
    ],
    ids=["nothing in it", "another table of that name", "even a column of that name"],
)
def test_a_schema_of_another_application_is_left_alone(
    server: Server, name: str, made: str
) -> None:
    server.psql(f"create schema safepoint_journal; {made}", database=name)
    there = catalog(server, name)
    assert refusal(StorageUnavailable, lambda: migrate(server.dsn(database=name), prefix=name)) == (
        f"In database '{name}' (login 'postgres') there is a schema safepoint_journal that is not"
        " of safepoint. Nothing was made. Create a database of its own for the checkpoints:"
        " createdb checkpoints"
    )
    assert catalog(server, name) == there
    assert roles(server, name) == []


def at_once(*acts: Callable[[], object]) -> list[object]:
    """Do them all at once, and return what came of each."""
    told: list[object] = [None] * len(acts)
    start = threading.Barrier(len(acts))

    def do(number: int, act: Callable[[], object]) -> None:
        start.wait()
        try:
            told[number] = act()
        except BaseException as error:  # noqa: BLE001  told below
            told[number] = error

    threads = [threading.Thread(target=do, args=each) for each in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def test_two_at_the_same_time_make_it_once(server: Server, name: str) -> None:
    dsn = server.dsn(database=name)
    told = at_once(*[lambda: migrate(dsn, prefix=name)] * 4)
    assert sorted(told, key=str) == [PARTS, (), (), ()]


def test_two_databases_of_one_server_can_be_made_at_the_same_time(
    server: Server, name: str
) -> None:
    """They share the roles, which one of the two makes."""
    names = [f"{name}_{letter}" for letter in "abcd"]
    for each in names:
        server.database(each)

    def make(database: str) -> Callable[[], object]:
        return lambda: migrate(server.dsn(database=database), prefix=name)

    assert at_once(*map(make, names)) == [PARTS] * 4


# Versions

OPENED: dict[str, tuple[Callable[..., Any], type[CheckpointError], str]] = {
    "storage": (PostgresCheckpointStorage, StorageUnavailable, "safepoint"),
    "anchor": (PostgresAnchor, AnchorUnavailable, "safepoint_anchor"),
    "journal": (
        lambda dsn: PostgresJournal(dsn, keys=Keyring(SigningKey.generate())),
        JournalUnavailable,
        "safepoint_journal",
    ),
}


@pytest.mark.parametrize(("opened", "error", "schema"), OPENED.values(), ids=OPENED)
def test_a_newer_version_is_refused(
    server: Server,
    name: str,
    opened: Callable[..., Any],
    error: type[CheckpointError],
    schema: str,
) -> None:
    dsn = server.dsn(database=name)
    migrate(dsn, prefix=name)
    server.psql(f"update {schema}.version set number = 2", database=name)
    assert refusal(error, opened, dsn) == (
        f"The schema in database '{name}' (login 'postgres') has version 2, and this safepoint"
        " works with version 1. Upgrade safepoint: pip install -U safepoint"
    )
    assert refusal(StorageUnavailable, lambda: migrate(dsn, prefix=name)) == (
        f"Schema {schema} in database '{name}' (login 'postgres') has version 2, and this"
        " safepoint makes version 1. Nothing was made. Upgrade safepoint: pip install -U safepoint"
    )


CHANGED = "Somebody changed it: restore the database from a backup, and find out who did."


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("update {0}.version set number = 0", "version 0"),
        ("update {0}.version set number = -1", "version -1"),
        ("delete from {0}.version", "no version"),
        (
            "alter table {0}.version alter number type text; update {0}.version set number = 'v3'",
            "version 'v3'",
        ),
    ],
    ids=["0", "-1", "none", "text"],
)
@pytest.mark.parametrize(("opened", "error", "schema"), OPENED.values(), ids=OPENED)
def test_a_version_that_nobody_made_was_changed(
    server: Server,
    name: str,
    opened: Callable[..., Any],
    error: type[CheckpointError],
    schema: str,
    change: str,
    found: str,
) -> None:
    """Who opens it and who migrates it read the same, so that nobody is sent in a circle."""
    dsn = server.dsn(database=name)
    migrate(dsn, prefix=name)
    server.psql(change.format(schema), database=name)
    assert refusal(error, opened, dsn) == (
        f"The schema in database '{name}' (login 'postgres') has {found}, and this safepoint works"
        f" with version 1. {CHANGED}"
    )
    made = catalog(server, name)
    assert refusal(StorageUnavailable, lambda: migrate(dsn, prefix=name)) == (
        f"Schema {schema} in database '{name}' (login 'postgres') has {found}, and this safepoint"
        f" makes version 1. Nothing was made. {CHANGED}"
    )
    assert catalog(server, name) == made


def test_a_schema_of_ours_without_its_version_was_changed(server: Server, name: str) -> None:
    dsn = server.dsn(database=name)
    migrate(dsn, prefix=name)
    server.psql("drop table safepoint.version", database=name)
    assert refusal(StorageUnavailable, lambda: migrate(dsn, prefix=name)) == (
        f"Schema safepoint in database '{name}' (login 'postgres') has no version, and this"
        f" safepoint makes version 1. Nothing was made. {CHANGED}"
    )


@pytest.mark.parametrize(("opened", "error", "schema"), OPENED.values(), ids=OPENED)
def test_a_version_that_is_no_number_is_refused(
    server: Server,
    name: str,
    opened: Callable[..., Any],
    error: type[CheckpointError],
    schema: str,
) -> None:
    server.psql(
        f"create schema {schema}; create table {schema}.version (number text);"
        f" insert into {schema}.version values ('v3')",
        database=name,
    )
    assert refusal(error, opened, server.dsn(database=name)) == (
        f"The schema in database '{name}' (login 'postgres') has version 'v3', and this safepoint"
        f" works with version 1. {CHANGED}"
    )


# Arguments


@pytest.mark.parametrize(
    "parts", [(), ("stores",), "store", None, ("store", 5), {"store"}, ("store", "'")]
)
def test_what_are_no_parts_is_refused(parts: Any) -> None:
    shown = ascii(parts)
    for call in (lambda: migrate("host=h", parts=parts), lambda: statements(parts=parts)):
        assert refusal(ConfigurationError, call) == (
            f"{shown} are not parts of a schema. Write parts=('store', 'anchor', 'journal'), or"
            " some of them."
        )


@pytest.mark.parametrize(
    "prefix", ["", "A", "1a", "a-b", 'a"', "a b", "pg_x", "a" * 48, "a\n", "é", None, 5, "x_anchor"]
)
def test_what_cannot_begin_the_name_of_a_role_is_refused(prefix: Any) -> None:
    for call in (lambda: migrate("host=h", prefix=prefix), lambda: statements(prefix=prefix)):
        assert refusal(ConfigurationError, call) == (
            f"{prefix!a} cannot begin the names of roles. Use 1 to 47 of a-z, 0-9 and '_', begin"
            " with a letter and not with pg_, and do not end with _anchor."
        )


def test_two_stores_never_share_the_operators_of_an_anchor() -> None:
    """The operators of a store "x_anchor" would have been those of the anchor of a store "x"."""
    made = {f"x_{role}" for role in ROLES}
    assert "x_anchor_operator" in made
    with pytest.raises(ConfigurationError):
        statements(prefix="x_anchor")
    assert made.isdisjoint(f"xanchor_{role}" for role in ROLES)


# The connection


def test_what_the_string_says_about_the_session_counts(server: Server, name: str) -> None:
    import psycopg

    dsn = psycopg.conninfo.make_conninfo(
        server.dsn(database=name), options="-c default_transaction_read_only=on"
    )
    assert refusal(StorageUnavailable, lambda: migrate(dsn, prefix=name)).startswith(
        f"Database '{name}' (login 'postgres') takes no writes: "
    )
    assert (roles(server, name), schemas(server, name)) == ([], [])


@pytest.mark.parametrize(("given", "waits"), [("", "10"), (" connect_timeout=3", "3")])
def test_it_does_not_wait_for_ever_for_a_server(
    given: str, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    asked: list[Any] = []

    def connect(dsn: str, **chosen: Any) -> None:
        asked.append(chosen["connect_timeout"])
        raise psycopg.OperationalError("timeout expired")

    monkeypatch.setattr(psycopg, "connect", connect)
    with pytest.raises(StorageUnavailable, match="does not answer"):
        migrate(f"host=h dbname=d{given}")
    assert asked == [waits]


# The command line


def command(*arguments: str, **environ: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "safepoint", "postgres", *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_makes_it_and_says_so(server: Server, name: str) -> None:
    dsn = server.dsn(database=name)
    prefix = ["--prefix", name]
    assert command("migrate", dsn, *prefix, "--part", "anchor") == (0, "Made: anchor.\n", "")
    assert command("migrate", dsn, *prefix) == (0, "Made: store, journal.\n", "")
    assert command("migrate", dsn, *prefix) == (0, "All of it is there already.\n", "")


def test_the_command_takes_the_password_from_a_file(server: Server, name: str) -> None:
    done = command("migrate", "user=postgres", "--prefix", name, **server.environ(name))
    assert done == (0, "Made: store, anchor, journal.\n", "")


def test_the_command_prints_what_it_would_run(server: Server, name: str) -> None:
    code, said, wrong = command("sql", "--prefix", name, "--part", "store", "--part", "anchor")
    assert (code, wrong) == (0, "")
    assert said == f"{statements(parts=('store', 'anchor'), prefix=name)}\n"
    server.psql(said, database=name)
    assert schemas(server, name) == ["safepoint", "safepoint_anchor"]


def test_the_command_says_in_one_line_what_is_wrong(server: Server, name: str) -> None:
    server.psql("create schema safepoint", database=name)
    code, said, wrong = command("migrate", server.dsn(database=name), "--prefix", name)
    assert (code, said) == (2, "")
    assert wrong.startswith(f"In database '{name}' (login 'postgres') there is a schema safepoint")
    assert wrong.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["migrate", "x y z"], 2, "This is not a connection string for PostgreSQL. Write "),
        (["sql", "--prefix", "A"], 2, "'A' cannot begin the names of roles. "),
        (["migrate"], 2, "the following arguments are required: DSN. Try: "),
        (["sql", "--part", "all"], 2, "argument --part: invalid choice: "),
        (["drop"], 2, "invalid choice: "),
        ([], 2, "the following arguments are required: COMMAND. Try: "),
    ],
    ids=str,
)
def test_the_command_refuses_what_it_does_not_know(
    arguments: list[str], code: int, said: str
) -> None:
    status, out, wrong = command(*arguments)
    assert (status, out, wrong.count("\n")) == (code, "", 1)
    assert said in wrong


@pytest.mark.parametrize(
    ("made", "what"),
    [
        ("create role {0} login", "can log in."),
        ("create role {0} superuser", "can do anything."),
    ],
)
def test_an_owner_as_whom_somebody_can_act_is_refused(
    server: Server, name: str, made: str, what: str
) -> None:
    owner = f"{name}_owner"
    server.psql(made.format(owner))
    with pytest.raises(StorageUnavailable) as caught:
        migrate(server.dsn(database=name), prefix=name)
    assert str(caught.value) == (
        f"The role {owner} is there already, and {what}"
        f" Nothing was made. Run: alter role {owner} nologin nosuperuser"
    )
    assert schemas(server, name) == []


def test_an_owner_that_has_a_member_is_refused(server: Server, name: str) -> None:
    owner, member = f"{name}_owner", f"{name}_member"
    server.psql(f"create role {owner}; create role {member} in role {owner}")
    with pytest.raises(StorageUnavailable) as caught:
        migrate(server.dsn(database=name), prefix=name)
    assert str(caught.value) == (
        f"The role {owner} is there already, and '{member}' can act as it."
        f" Nothing was made. Run: revoke {owner} from the member, or choose another prefix."
    )
    assert schemas(server, name) == []


def test_a_schema_of_other_roles_is_left_alone(server: Server, name: str) -> None:
    migrate(server.dsn(database=name), prefix=name)
    made = catalog(server, name)
    with pytest.raises(StorageUnavailable) as caught:
        migrate(server.dsn(database=name), prefix=f"{name}_b")
    assert str(caught.value) == (
        f"Schema safepoint in database '{name}' (login 'postgres') belongs to the role"
        f" '{name}_owner', not to {name}_b_owner."
        " Nothing was made. Give the prefix with which it was made, or another database."
    )
    assert (catalog(server, name), roles(server, f"{name}_b")) == (made, [])


def test_a_login_that_inherits_nothing_can_migrate_twice(server: Server, name: str) -> None:
    server.login(f"{name}_dba")
    server.psql(
        f"alter role {name}_dba createrole noinherit; grant create on database {name} to {name}_dba"
    )
    dsn = server.dsn(f"{name}_dba", name)
    assert migrate(dsn, prefix=name) == PARTS
    assert migrate(dsn, prefix=name) == ()


@pytest.mark.parametrize(
    ("role", "made"),
    [
        ("writer", "create role {0} login"),
        ("operator", "create role {0} createrole"),
        ("reader", "create role {0} in role pg_write_all_data"),
        ("anchor_operator", "create role {0} bypassrls"),
    ],
)
def test_a_role_that_can_more_than_its_part_is_refused(
    server: Server, name: str, role: str, made: str
) -> None:
    named = f"{name}_{role}"
    server.psql(made.format(named))
    with pytest.raises(StorageUnavailable) as caught:
        migrate(server.dsn(database=name), prefix=name)
    assert str(caught.value) == (
        f"The role {named} is there already, and can more than its part."
        f" Nothing was made. Run: alter role {named} nologin nosuperuser nocreaterole nocreatedb"
        " noreplication nobypassrls; and revoke from it what it is a member of."
    )
    assert schemas(server, name) == []


def test_an_owner_whose_tables_would_be_given_away_is_refused(server: Server, name: str) -> None:
    """The attack: somebody was there before migrate, and waits for what it makes."""
    server.psql(
        f"create role {name}_owner; create role {name}_mally;"
        f" alter default privileges for role {name}_owner grant all on tables to {name}_mally",
        database=name,
    )
    with pytest.raises(StorageUnavailable) as caught:
        migrate(server.dsn(database=name), prefix=name)
    assert str(caught.value) == (
        f"What the role {name}_owner makes is granted to somebody at once."
        f" Nothing was made. Take that back: alter default privileges for role {name}_owner …"
        " revoke; \\ddp in psql lists them."
    )
    assert schemas(server, name) == []


def test_a_schema_that_only_says_that_it_is_ours_is_refused(server: Server, name: str) -> None:
    server.psql(
        f"create role {name}_owner; create schema safepoint authorization {name}_owner;"
        " create table safepoint.version (number integer primary key);"
        f" insert into safepoint.version values (1); alter table safepoint.version owner to"
        f" {name}_owner",
        database=name,
    )
    with pytest.raises(StorageUnavailable) as caught:
        migrate(server.dsn(database=name), prefix=name)
    assert str(caught.value) == (
        f"Schema safepoint in database '{name}' (login 'postgres') is not as migrate makes it: a"
        " table is missing, or is somebody else's. Nothing was made. Somebody changed it: restore"
        " the database from a backup, and find out who did."
    )
    assert schemas(server, name) == ["safepoint"]
