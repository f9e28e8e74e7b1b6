"""PostgreSQL and bad input: each gets one error that says what to run, and shows no password."""

from __future__ import annotations

import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from safepoint import InMemoryAnchor, Keyring, Limits, SigningKey
from safepoint.anchor.postgres import PostgresAnchor
from safepoint.errors import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    EncodeError,
    InvalidId,
    JournalUnavailable,
    LimitExceeded,
    MissingPackage,
    StorageRefused,
    StorageUnavailable,
)
from safepoint.journal.postgres import PostgresJournal
from safepoint.storage.postgres import PostgresCheckpointStorage, migrate, statements
from safepoint.testing.postgres import Server
from safepoint.testing.postgres._process import free_port
from tests.harness.postgres import Database
from tests.unit.postgres_helpers import MAKE, MIGRATE, TRY, refusal

KEYS = Keyring(SigningKey.generate())
SECRET = "hunter2-correct-horse"  # noqa: S105  nobody's
IN_ROLE = "create role worker_1 login in role safepoint_writer"
RIGHTS = (
    "Nothing was done. Use a login of the role that may do it, and keep it where only that job"
    " runs."
)


def storage(dsn: Any, **options: Any) -> PostgresCheckpointStorage:
    return PostgresCheckpointStorage(dsn, **{"wait_seconds": 1.0, **options})


def anchor(dsn: Any, **options: Any) -> PostgresAnchor:
    return PostgresAnchor(dsn, **{"wait_seconds": 1.0, **options})


def journal(dsn: Any, **options: Any) -> PostgresJournal:
    return PostgresJournal(dsn, **{"keys": KEYS, "wait_seconds": 1.0, **options})


OPENED: dict[str, Callable[..., Any]] = {"storage": storage, "anchor": anchor, "journal": journal}
each_one = pytest.mark.parametrize("opened", OPENED.values(), ids=OPENED)


def changed(dsn: str, **words: str) -> str:
    return make_conninfo(dsn, **words)


def said(error: type[CheckpointError], dsn: Any) -> str:
    """What the storage says; the anchor and the journal say the same, in their own errors."""
    told = refusal(error, storage, dsn)
    assert refusal(AnchorUnavailable, anchor, dsn) == told
    assert refusal(JournalUnavailable, journal, dsn) == told
    return told


# The connection string

NO_DSN = (
    "This is not a connection string for PostgreSQL. Write"
    ' "host=db.internal dbname=checkpoints user=worker_1", or postgresql://…, and keep the password'
    " in a file that PGPASSFILE names."
)
AT = (
    "This connection string has an '@' where none belongs: in a host or a database. Keep the"
    " password in a file that PGPASSFILE names, or write its '/' as %2F and its '@' as %40."
)


@pytest.mark.parametrize("opened", [*OPENED.values(), migrate], ids=[*OPENED, "migrate"])
@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        (f"x y {SECRET}", NO_DSN),
        (f"host=h passwort={SECRET}", NO_DSN),
        (f"host=h password=a {SECRET}", NO_DSN),
        (f"postgresql://me:{SECRET}%zz@h/db", NO_DSN),
        (f"mysql://me:{SECRET}@h/db", NO_DSN),
        (f"host=h password={SECRET}\0", NO_DSN),
        (f"host=h password={SECRET}\ud800", NO_DSN),
        (f"postgresql://me:a/{SECRET}@h/db", AT),
        (f"postgresql://me:a@{SECRET}@h/db", AT),
    ],
)
def test_what_is_no_connection_string_is_refused_and_not_shown(
    opened: Callable[..., Any], dsn: str, told: str
) -> None:
    """Nor is it in the errors below: what libpq says would quote a part of the password."""
    with pytest.raises(ConfigurationError) as caught:
        opened(dsn)
    assert str(caught.value) == told
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert SECRET not in shown
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("opened", [*OPENED.values(), migrate], ids=[*OPENED, "migrate"])
@pytest.mark.parametrize("dsn", [None, 5, b"host=h", ["host=h"], {"host": "h"}])
def test_a_connection_string_is_text(opened: Callable[..., Any], dsn: object) -> None:
    assert refusal(ConfigurationError, opened, dsn) == (
        f"A connection string was asked for, and {type(dsn).__name__} was given."
        ' Write "host=db.internal dbname=checkpoints user=worker_1".'
    )


def wrong(what: str, where: str = "database 'checkpoints'") -> str:
    return (
        f"The connection string of {where} cannot be used: {what}. Correct the connection string."
    )


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("port=abc", 'invalid integer value "abc" for connection option "port"'),
        ("port=99999", 'invalid port number: "99999"'),
        ("port=1,2", "could not match 2 port numbers to 1 hosts"),
        ("hostaddr=abc", 'could not parse network address "abc"'),
        ("sslmode=banana", 'invalid sslmode value: "banana"'),
        ("ssl_min_protocol_version=x", 'invalid "ssl_min_protocol_version" value: "x"'),
        ("target_session_attrs=x", 'invalid target_session_attrs value: "x"'),
        ("connect_timeout=soon", "bad value for connect_timeout: 'soon'"),
        ("service=nope", 'definition of service "nope" not found'),
    ],
)
def test_a_word_of_it_that_means_nothing_is_refused(word: str, told: str) -> None:
    dsn = f"host=127.0.0.1 dbname=checkpoints {word}"
    assert said(StorageUnavailable, dsn) == wrong(told)
    assert refusal(StorageUnavailable, migrate, dsn) == wrong(told)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("-c nonsense=1", 'unrecognized configuration parameter "nonsense"'),
        ("-c work_mem=abc", 'invalid value for parameter "work_mem": "abc"'),
        ("-Z", "invalid command-line argument for server process: -Z"),
        ("--x", "--x requires a value"),
        ("-c fsync=off", 'parameter "fsync" cannot be changed now'),
        ("-c session_replication_role=replica", "permission denied to set parameter"),
    ],
)
def test_options_that_the_server_refuses(database: Database, options: str, told: str) -> None:
    where = f"database '{database.name}' (login 'worker_1')"
    if told.endswith("parameter"):
        told += ' "session_replication_role"'
    dsn = changed(database.worker(1), options=options)
    assert said(StorageUnavailable, dsn) == wrong(told, where)
    assert refusal(StorageUnavailable, migrate, dsn) == wrong(told, where)


# The server


def test_no_server() -> None:
    dsn = f"host=127.0.0.1 port={free_port()} dbname=checkpoints user=w password={SECRET}"
    told = f"The server of database 'checkpoints' (login 'w') does not answer. {TRY}"
    assert said(StorageUnavailable, dsn) == told
    assert refusal(StorageUnavailable, migrate, dsn) == told


def test_no_server_on_a_socket() -> None:
    assert said(StorageUnavailable, "host=/nowhere dbname=checkpoints") == (
        f"The server of database 'checkpoints' does not answer. {TRY}"
    )


def test_an_unknown_host() -> None:
    assert said(StorageUnavailable, "host=db.invalid dbname=checkpoints user=w") == (
        "The server of database 'checkpoints' (login 'w') cannot be found. Correct the host in the"
        " connection string."
    )


def test_something_else_that_answers(database: Database) -> None:
    """A web server, as it were."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(3):
                client, _ = listener.accept()
                with client:
                    client.recv(100)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        port = str(listener.getsockname()[1])
        told = said(StorageUnavailable, changed(database.worker(1), port=port))
        thread.join()
    assert told.startswith(
        f"The server of database '{database.name}' (login 'worker_1') cannot be reached: "
    )
    assert told.endswith(" Look at its log, and at the network.")


# Who comes


def test_a_login_that_is_not_there(database: Database) -> None:
    """The server does not say so to a stranger, and neither do we."""
    dsn = changed(database.worker(1), user="nobody_1")
    assert said(StorageRefused, dsn) == (
        f"The server of database '{database.name}' (login 'nobody_1') refuses the password. Put the"
        " login's present password into the file that PGPASSFILE names, with mode 0600, or create"
        f" the login: {IN_ROLE}"
    )


def test_a_wrong_password_is_in_no_message(database: Database) -> None:
    dsn = changed(database.worker(1), password=SECRET)
    told = (
        f"The server of database '{database.name}' (login 'worker_1') refuses the password. Put the"
        " login's present password into the file that PGPASSFILE names, with mode 0600, or create"
        f" the login: {IN_ROLE}"
    )
    assert said(StorageRefused, dsn) == told
    with pytest.raises(StorageRefused) as caught:
        storage(dsn)
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)


def test_no_password_at_all(database: Database) -> None:
    words = psycopg.conninfo.conninfo_to_dict(database.worker(1))
    words["passfile"] = "/dev/null"
    del words["password"]
    assert "refuses the password" in said(StorageRefused, make_conninfo(**words))  # type: ignore[arg-type]


def test_a_role_that_is_no_login(database: Database) -> None:
    """It has a password, so that the server says what is wrong."""
    database.server.psql(f"alter role safepoint_writer password '{SECRET}'")
    dsn = changed(database.worker(1), user="safepoint_writer", password=SECRET)
    told = said(StorageRefused, dsn)
    database.server.psql("alter role safepoint_writer password null")
    assert told == (
        f"The server of database '{database.name}' (login 'safepoint_writer') lets nobody log in as"
        " that role. Its login was ended, or it is a role to be in. Create another login:"
        f" {IN_ROLE}"
    )


@contextmanager
def rules(server: Server, *first: str, others: str = "all") -> Iterator[None]:
    """Put these lines into pg_hba.conf for a while, and after them the one for the others."""
    usual = "host all {} 127.0.0.1/32 scram-sha-256"
    server.hba([*first, usual.format(others)])
    try:
        yield
    finally:
        server.hba([usual.format("all")])


@pytest.mark.parametrize("how", ["reject", "hostssl"])
def test_a_place_that_pg_hba_does_not_name(database: Database, how: str) -> None:
    worker = database.worker(1)
    place = f"{database.name} worker_1 127.0.0.1/32"
    lines = {"reject": f"host {place} reject", "hostssl": f"hostssl {place} scram-sha-256"}
    others = "postgres" if how == "hostssl" else "all"
    with rules(database.server, lines[how], others=others):
        told = said(StorageRefused, worker)
    assert told == (
        f"The server of database '{database.name}' (login 'worker_1') has no rule that lets this"
        " login in from here. Connect from a host and with the TLS that its pg_hba.conf names, or"
        " let its administrator add a line."
    )


def test_a_login_that_the_server_trusts_and_does_not_know(database: Database) -> None:
    with rules(database.server, "host all nobody_2 127.0.0.1/32 trust"):
        told = said(StorageUnavailable, changed(database.worker(1), user="nobody_2"))
    assert told == (
        f"The server of database '{database.name}' (login 'nobody_2') knows no such login. Create"
        f" it, in one of the roles that migrate made: {IN_ROLE}"
    )


@pytest.mark.parametrize("mode", ["require", "verify-full"])
def test_tls_that_the_server_does_not_speak(database: Database, mode: str) -> None:
    dsn = changed(
        database.worker(1), sslmode=mode, sslrootcert="system" if mode != "require" else ""
    )
    assert said(StorageRefused, dsn) == (
        f"The server of database '{database.name}' (login 'worker_1') does not speak TLS, and the"
        " connection string demands it. Turn ssl on in its configuration. Do not lower sslmode."
    )


# The database


def test_a_database_that_is_not_there(database: Database) -> None:
    told = (
        "The server of database 'nope' (login 'postgres') has no such database. Create it, then"
        f" make the schema: createdb checkpoints && {MIGRATE}"
    )
    dsn = changed(database.owner, dbname="nope")
    assert said(StorageUnavailable, dsn) == told
    assert refusal(StorageUnavailable, migrate, dsn) == told


def test_a_database_into_which_the_login_may_not(database: Database) -> None:
    worker = database.worker(1)
    database.server.psql(f"revoke connect on database {database.name} from public")
    assert said(StorageRefused, worker) == (
        f"The server of database '{database.name}' (login 'worker_1') does not let this login into"
        " the database. Let its owner grant that: grant connect on database checkpoints to"
        " safepoint_writer"
    )


@each_one
def test_a_database_without_the_schema(postgres: Server, opened: Callable[..., Any]) -> None:
    with pytest.raises(CheckpointError) as caught:
        opened(postgres.dsn())
    assert str(caught.value) == (
        f"There is no schema of safepoint in database 'postgres' (login 'postgres'). {MAKE}"
    )


def test_a_database_that_takes_no_writes(database: Database) -> None:
    worker = database.worker(1)
    database.server.psql(f"alter database {database.name} set default_transaction_read_only = on")
    told = said(StorageUnavailable, worker)
    assert told == (
        f"The server of database '{database.name}' (login 'worker_1') takes no writes: it is a"
        " copy, or the database or the login is set to read-only. Name the primary as host, or"
        " reset default_transaction_read_only. To read from a copy, write target_session_attrs=any."
    )
    with storage(changed(worker, target_session_attrs="any")) as reading:
        assert reading.head("t") == 0
        assert refusal(StorageUnavailable, lambda: reading.append("t", 1, b"one")) == (
            f"Database '{database.name}' (login 'worker_1') takes no writes: it is a copy, or set"
            " to read-only. Name the primary as host, or end the read-only mode: alter database …"
            " set default_transaction_read_only = off"
        )
        assert reading.head("t") == 0


def test_a_database_that_becomes_read_only_meanwhile(database: Database) -> None:
    with storage(database.worker(1)) as worker:
        worker.append("t", 1, b"one")
        database.server.psql(
            f"alter database {database.name} set default_transaction_read_only = on"
        )
        database.server.psql(
            "select pg_terminate_backend(pid) from pg_stat_activity"  # noqa: S608
            f" where datname = '{database.name}'"
        )
        assert "takes no writes" in refusal(
            StorageUnavailable, lambda: worker.append("t", 2, b"two")
        )
        database.server.psql(f"alter database {database.name} reset default_transaction_read_only")
        worker.append("t", 2, b"two")
        assert worker.head("t") == 2


# Rights


@each_one
def test_a_login_in_no_role(database: Database, opened: Callable[..., Any]) -> None:
    schema, job, role = {
        storage: ("safepoint", "workers", "safepoint_writer"),
        anchor: ("safepoint_anchor", "the anchor", "safepoint_anchor"),
        journal: ("safepoint_journal", "the journal", "safepoint_journal"),
    }[opened]
    with pytest.raises(CheckpointError) as caught:
        opened(database.dsn("stranger"))
    assert str(caught.value) == (
        f"Database '{database.name}' (login 'stranger') refuses that: permission denied for schema"
        f" {schema}. Nothing was done. Use a login that is for {job} alone, in the role that"
        f" migrate made for that, {role} unless you chose another prefix: grant {role} to LOGIN"
    )


@each_one
@pytest.mark.parametrize("made", ["n int", "number_ int"])
def test_a_schema_of_another_application(
    postgres: Server, opened: Callable[..., Any], made: str
) -> None:
    """`migrate` would not help, and is not what is named."""
    schema = {storage: "", anchor: "_anchor", journal: "_journal"}[opened]
    postgres.database("theirs")
    try:
        postgres.psql(
            f"create schema safepoint{schema}; create table safepoint{schema}.version ({made})",
            database="theirs",
        )
        with pytest.raises(CheckpointError) as caught:
            opened(postgres.dsn(database="theirs"))
    finally:
        postgres.psql("drop database theirs with (force)")
    assert str(caught.value) == (
        "A schema in database 'theirs' (login 'postgres') has the name of safepoint's, and not its"
        " columns. If it is another application's, create a database of its own for the"
        " checkpoints: createdb checkpoints. If somebody changed it, restore it from a backup."
    )


def test_each_role_opens_its_own_part_alone(database: Database) -> None:
    may: dict[str, tuple[str, set[Any]]] = {
        "worker": (database.worker(1), {storage}),
        "reader": (database.reader, {storage}),
        "anchor": (database.anchor, {anchor}),
        "journal": (database.journal, {journal}),
        "auditor": (database.auditor, {storage, anchor, journal}),
        "operator": (database.operator, {storage, anchor}),
        "anchor_operator": (database.anchor_operator, {anchor}),
    }
    for role, (dsn, parts) in may.items():
        for name, opened in OPENED.items():
            try:
                opened(dsn).close()
                assert opened in parts, (role, name)
            except CheckpointError as refused:
                assert opened not in parts, (role, name)
                assert "permission denied for schema" in str(refused)  # noqa: PT017


@pytest.mark.parametrize("role", ["reader", "auditor"])
def test_who_may_only_read_cannot_save(database: Database, role: str) -> None:
    with storage(database.worker(1)) as worker, storage(getattr(database, role)) as reading:
        worker.append("t", 1, b"one")
        assert reading.read("t", 1) == b"one"
        shown = f"Database '{database.name}' (login '{role}') refuses that: permission denied for"
        assert refusal(StorageRefused, lambda: reading.append("t", 2, b"two")) == (
            f"{shown} table checkpoints. {RIGHTS}"
        )
        for call, function in (
            (lambda: reading.acquire("t", "w", 60), "acquire"),
            (lambda: reading.prune("t", 1, b"base"), "prune"),
        ):
            assert refusal(StorageRefused, call) == f"{shown} function {function}. {RIGHTS}"
        assert worker.head("t") == 1


def test_a_worker_cannot_prune(database: Database) -> None:
    with storage(database.worker(1)) as worker:
        worker.append("t", 1, b"one")
        worker.append("t", 2, b"two")
        assert refusal(StorageRefused, lambda: worker.prune("t", 2, b"base")) == (
            f"Database '{database.name}' (login 'worker_1') refuses that: permission denied for"
            f" function prune. {RIGHTS}"
        )
        assert worker.read("t", 1) == b"one"


# Arguments


@each_one
@pytest.mark.parametrize("connections", [0, -1, 1001, True, 4.0, "4", None])
def test_how_many_connections(opened: Callable[..., Any], connections: object) -> None:
    call = lambda: opened("host=h", connections=connections)  # noqa: E731
    assert refusal(ConfigurationError, call) == (
        f"connections is {connections!r}. Write a whole number from 1 to 1000."
    )


@each_one
@pytest.mark.parametrize("seconds", [0, -1, 3601, float("nan"), float("inf"), True, "10", None])
def test_how_long_to_wait(opened: Callable[..., Any], seconds: object) -> None:
    call = lambda: opened("host=h", wait_seconds=seconds)  # noqa: E731
    assert refusal(ConfigurationError, call) == (
        f"wait_seconds is {seconds!r}. Write a number from above 0 to 3600."
    )


def test_limits_keys_name_and_anchor_are_what_they_are() -> None:
    assert refusal(ConfigurationError, lambda: storage("host=h", limits=5)) == (
        "PostgresCheckpointStorage takes limits, and was given int. Write"
        " limits=Limits(state_bytes=...), or leave it out."
    )
    assert refusal(ConfigurationError, lambda: journal("host=h", keys=SigningKey.generate())) == (
        "A journal was given SigningKey as keys. Write keys=Keyring(SigningKey.from_file(path))."
    )
    assert refusal(ConfigurationError, lambda: journal("host=h", anchor="a")) == (
        "The anchor of a journal is str, which has no method read. Give a FileAnchor of its own,"
        " another Anchor, or None."
    )
    assert "'A b' is not a journal name." in refusal(InvalidId, lambda: journal("", name="A b"))


BAD_NAMES = ["", "..", "a/b", "A", "a;drop table x", "a'", "é", "a\n", "a\0", "x" * 65, "con", 7]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_outside_the_grammar_never_reaches_the_server(database: Database, name: Any) -> None:
    with storage(database.worker(1)) as worker:
        worker.close()  # a call that asked the server would open a connection
        calls: list[Callable[[], object]] = [
            lambda: worker.append(name, 1, b"x"),
            lambda: worker.read(name, 1),
            lambda: worker.head(name),
            lambda: worker.base(name),
            lambda: worker.prune(name, 1, b"x"),
            lambda: worker.scan(name, 1, 2),
            lambda: worker.acquire(name, "w", 60),
            lambda: worker.acquire("t", name, 60),
            lambda: worker.lease(name),
            lambda: worker.discard(name, 1),
            lambda: worker.break_lease(name),
        ]
        for call in calls:
            with pytest.raises(InvalidId):
                call()
        assert worker._server._idle == []


@pytest.mark.parametrize("sequence", [0, -1, 10_000_000_000, True, 1.0, "1", None])
def test_a_sequence_outside_the_grammar_never_reaches_the_server(
    database: Database, sequence: Any
) -> None:
    with storage(database.worker(1)) as worker:
        for call in (
            lambda: worker.append("t", sequence, b"x"),
            lambda: worker.read("t", sequence),
            lambda: worker.prune("t", sequence, b"x"),
            lambda: worker.scan("t", 1, sequence),
        ):
            with pytest.raises(InvalidId):
                call()
        assert worker.threads() == []


def test_the_other_arguments_of_a_call(database: Database) -> None:
    with storage(database.worker(1), limits=Limits(state_bytes=10)) as worker:
        for record in ("text", None, 5, [1]):
            told = refusal(EncodeError, lambda record=record: worker.append("t", 1, record))
            assert told == (
                f"A record is bytes, and this is {type(record).__name__}. Save through a ledger,"
                " which seals the state into bytes."
            )
        for fence in (0, True, "1", 10**18):
            with pytest.raises(ConfigurationError, match="is not the token of a lease"):
                worker.append("t", 1, b"x", fence=fence)  # type: ignore[arg-type]
        for seconds in (0, -1, float("nan"), 86_401, True, "60", None):
            with pytest.raises(ConfigurationError, match="how many seconds a lease can last"):
                worker.acquire("t", "w", seconds)  # type: ignore[arg-type]
        for lease in (None, 5, "t"):
            with pytest.raises(ConfigurationError, match="is not a lease"):
                worker.renew(lease, 60)  # type: ignore[arg-type]
            with pytest.raises(ConfigurationError, match="is not a lease"):
                worker.release(lease)  # type: ignore[arg-type]
        large = b"x" * (worker._limit + 1)
        for call in (
            lambda: worker.append("t", 1, large),
            lambda: worker.prune("t", 1, large),
        ):
            with pytest.raises(LimitExceeded):
                call()
        assert worker.threads() == []


# The package


def test_without_the_driver_each_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    calls: list[Callable[[], object]] = [
        lambda: storage("host=h"),
        lambda: anchor("host=h"),
        lambda: journal("host=h", anchor=InMemoryAnchor()),
        lambda: migrate("host=h"),
        statements,
    ]
    for call in calls:
        assert refusal(MissingPackage, call) == (
            "PostgreSQL needs the package psycopg. Run: pip install 'safepoint[postgres]'"
        )


def test_nothing_shows_the_password(database: Database) -> None:
    password = psycopg.conninfo.conninfo_to_dict(database.worker(1))["password"]
    with storage(database.worker(1)) as worker:
        assert repr(worker) == (
            f"PostgresCheckpointStorage(<database '{database.name}' (login 'worker_1')>)"
        )
        assert str(password) not in repr(worker._server)
    with anchor(database.anchor) as heads:
        assert repr(heads) == f"PostgresAnchor(<database '{database.name}' (login 'anchor')>)"
    with journal(database.journal) as lines:
        assert repr(lines) == (
            f"PostgresJournal(<database '{database.name}' (login 'journal')>, name='journal')"
        )
