"""check_privileges: what the logins of a store in PostgreSQL may do, each provoked on a server."""

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

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from safepoint.audit import check_privileges
from safepoint.postgres import PostgresAnchor, PostgresCheckpointStorage, migrate
from safepoint.testing.postgres import Server
from tests.harness.postgres import Database
from tests.unit.commands import audit as main

_NUMBERS = itertools.count(1)
CLOSE = (
    "revoke connect, temporary on database {db} from public;"
    "grant connect on database {db} to safepoint_writer, safepoint_reader, safepoint_anchor,"
    " safepoint_journal, safepoint_auditor, safepoint_operator, safepoint_anchor_operator"
)
SAME_SERVER = (
    "SP05 note: The anchor is on the server of the store: a stolen login of the store cannot move"
    " it, but whoever administers the server, or restores its backup, takes back both. If you fear"
    " that, keep it on another server: migrate(dsn, parts=('anchor',))."
)


class Deployed:
    """A database that is closed to others, with logins of its own whose passwords are in a file."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.number = next(_NUMBERS)
        self.run(CLOSE.format(db=database.name))

    def run(self, sql: str) -> None:
        self.database.server.psql(sql, database=self.database.name)

    def login(self, job: str = "writer") -> str:
        """A new login, whose name is `<job>_case_<number>`."""
        return self.dsn(f"{job}_case_{self.number}", f"safepoint_{job}")

    def dsn(self, name: str, *roles: str) -> str:
        given = conninfo_to_dict(self.database.dsn(name, *roles))
        del given["password"]
        return make_conninfo("", **given, passfile=str(self.database.server.passfile))


@pytest.fixture(autouse=True)
def _no_other_operators(postgres: Server) -> Iterator[None]:
    """Roles belong to the whole server, and who is in them is told: tests before left some."""
    found = (
        "select r.rolname || ' {0} ' || quote_ident(m.rolname) from pg_auth_members a"
        " join pg_roles r on r.oid = a.roleid join pg_roles m on m.oid = a.member"
        " where r.rolname in ('safepoint_operator', 'safepoint_anchor_operator')"
    )
    back = postgres.psql(found.format("to")).splitlines()
    postgres.psql(";".join(f"revoke {e}" for e in postgres.psql(found.format("from")).splitlines()))
    yield
    postgres.psql(";".join(f"revoke {e}" for e in postgres.psql(found.format("from")).splitlines()))
    postgres.psql(";".join(f"grant {each}" for each in back))


@pytest.fixture
def deployed(database: Database) -> Deployed:
    return Deployed(database)


def lines(*dsn: str, **others: str) -> list[str]:
    return [str(finding) for finding in check_privileges(*dsn, **others)]


@pytest.mark.parametrize("job", ["writer", "reader", "auditor"])
def test_what_migrate_made_has_no_findings(deployed: Deployed, job: str) -> None:
    assert lines(deployed.login(job)) == []


def test_store_anchor_and_journal_each_with_a_login_of_its_own(deployed: Deployed) -> None:
    found = lines(
        deployed.login(), anchor=deployed.login("anchor"), journal=deployed.login("journal")
    )
    assert found == [SAME_SERVER]


def test_an_old_server_is_looked_at_too() -> None:
    """PostgreSQL 16 has no MAINTAIN, and other defaults."""
    with Server(version=16) as server:
        server.database("checkpoints")
        migrate(server.dsn(database="checkpoints"))
        server.login("worker_1", "safepoint_writer")
        server.psql("grant truncate on safepoint.threads to worker_1", database="checkpoints")
        found = [each.what for each in check_privileges(server.dsn("worker_1", "checkpoints"))]
    assert found[1:] == [
        (
            "Login 'worker_1' may TRUNCATE in safepoint.threads; there a worker needs no more than"
            " to read."
        ),
        "Every login of the server has CONNECT and TEMPORARY on database checkpoints.",
    ]


CASES = [
    (
        "alter role {login} superuser",
        (
            "SP05 error: Login '{login}' is a superuser: nothing that the server refuses others is"
            " refused to it. Let the application use a login of its own: create role worker_1"
            " login in role safepoint_writer"
        ),
    ),
    (
        "create role chief_{login} superuser; grant chief_{login} to {login}",
        (
            "SP05 error: Login '{login}' is a superuser, as a member of 'chief_{login}': nothing"
            " that the server refuses others is refused to it. Run: revoke chief_{login} from"
            " {login}"
        ),
    ),
    (
        "alter role {login} createrole",
        (
            "SP05 error: Login '{login}' may create roles, and change or join others. Run: alter"
            " role {login} nocreaterole"
        ),
    ),
    (
        "alter role {login} replication",
        (
            "SP05 error: Login '{login}' may copy the whole server, with every database in it. Run:"
            " alter role {login} noreplication"
        ),
    ),
    (
        "alter role {login} createdb",
        "SP05 warning: Login '{login}' may create databases. Run: alter role {login} nocreatedb",
    ),
    (
        "alter role {login} bypassrls",
        (
            "SP05 warning: Login '{login}' is not held by row-level security. Run: alter role"
            " {login} nobypassrls"
        ),
    ),
    # Neither an attribute nor a right is safe in a role that is not inherited: SET ROLE is enough.
    (
        "create role ops_{login} createrole; grant ops_{login} to {login} with inherit false",
        (
            "SP05 error: Login '{login}' may create roles, and change or join others, as a member"
            " of 'ops_{login}'. Run: alter role ops_{login} nocreaterole"
        ),
    ),
    (
        (
            "create role mid_{login}; grant mid_{login} to {login};"
            " grant pg_execute_server_program to mid_{login}"
        ),
        (
            "SP05 error: Login '{login}' may run programs as the server's own user, as a member of"
            " 'mid_{login}' and so of 'pg_execute_server_program'. Run: revoke"
            " pg_execute_server_program from mid_{login}"
        ),
    ),
    (
        "grant pg_write_all_data to {login}",
        (
            "SP05 error: Login '{login}' may write every table, as a member of 'pg_write_all_data'."
            " Run: revoke pg_write_all_data from {login}"
        ),
    ),
    (
        "grant safepoint_owner to {login}",
        (
            "SP05 error: Login '{login}' owns schema safepoint and {others} more, as a member of"
            " 'safepoint_owner': an owner can drop what it owns, and turn off what protects it."
            " Run: revoke safepoint_owner from {login}"
        ),
    ),
    (
        "create role in_{login}; grant safepoint_owner to in_{login}; grant in_{login} to {login}",
        (
            "SP05 error: Login '{login}' owns schema safepoint and {others} more, as a member of"
            " 'in_{login}' and so of 'safepoint_owner': an owner can drop what it owns, and turn"
            " off what protects it. Run: revoke safepoint_owner from in_{login}"
        ),
    ),
    (
        "alter table safepoint.prunings owner to {login}",
        (
            "SP05 error: Login '{login}' owns table safepoint.prunings: an owner can drop what it"
            " owns, and turn off what protects it. Give it to a role that nobody is in: alter"
            " table safepoint.prunings owner to safepoint_owner"
        ),
    ),
    (
        "alter database {db} owner to {login}",
        (
            "SP05 error: Login '{login}' owns database {db}: an owner can drop what it owns, and"
            " turn off what protects it. Give it to a role that nobody is in: alter database {db}"
            " owner to safepoint_owner"
        ),
    ),
    (
        "grant update, delete, truncate, trigger, references on safepoint.checkpoints to {login}",
        (
            "SP05 error: Login '{login}' may DELETE, REFERENCES, TRIGGER, TRUNCATE and UPDATE in"
            " safepoint.checkpoints; there a worker needs no more than SELECT and INSERT (thread,"
            " sequence, record, fence). Run, as its owner: revoke delete, references, trigger,"
            " truncate, update on safepoint.checkpoints from {login}"
        ),
    ),
    (
        "grant update (owner, expires) on safepoint.threads to {login}",
        (
            "SP05 error: Login '{login}' may UPDATE (expires, owner) in safepoint.threads; there a"
            " worker needs no more than to read. Run, as its owner: revoke update (expires, owner)"
            " on safepoint.threads from {login}"
        ),
    ),
    (
        "grant insert (login, written) on safepoint.checkpoints to {login}",
        (
            "SP05 error: Login '{login}' may INSERT (login, written) in safepoint.checkpoints;"
            " there a worker needs no more than SELECT and INSERT (thread, sequence, record,"
            " fence). Run, as its owner: revoke insert (login, written) on safepoint.checkpoints"
            " from {login}"
        ),
    ),
    (
        "grant insert on safepoint.checkpoints to safepoint_writer",
        (
            "SP05 error: Login '{login}' may INSERT in safepoint.checkpoints, as a member of"
            " 'safepoint_writer'; there a worker needs no more than SELECT and INSERT (thread,"
            " sequence, record, fence). Run, as its owner: revoke insert on safepoint.checkpoints"
            " from safepoint_writer; grant insert (thread, sequence, record, fence) on"
            " safepoint.checkpoints to safepoint_writer"
        ),
    ),
    (
        "grant select on safepoint.threads to {login} with grant option",
        (
            "SP05 error: Login '{login}' may grant others what it may do in safepoint.threads."
            " Run, as its owner: revoke grant option for all on safepoint.threads from {login}"
        ),
    ),
    (
        "grant create on schema safepoint to {login}",
        (
            "SP05 error: Login '{login}' may create things in schema safepoint, where others may"
            " take them for the real ones. Run, as its owner: revoke create on schema safepoint"
            " from {login}"
        ),
    ),
    (
        "grant create on schema public to {login}",
        (
            "SP05 warning: Login '{login}' may create things in schema public, where others may"
            " take them for the real ones. Run, as its owner: revoke create on schema public from"
            " {login}"
        ),
    ),
    (
        "grant create on database {db} to {login}",
        (
            "SP05 warning: Login '{login}' may create things in database {db}, where others may"
            " take them for the real ones. Run, as its owner: revoke create on database {db} from"
            " {login}"
        ),
    ),
    (
        "grant execute on function safepoint.prune to {login}",
        (
            "SP05 error: Login '{login}' may run safepoint.prune(text,bigint,bytea), and a worker"
            " does not need it. Run, as its owner: revoke execute on function"
            " safepoint.prune(text,bigint,bytea) from {login}"
        ),
    ),
    (
        "grant safepoint_anchor to {login}",
        (
            "SP05 error: Login '{login}' may INSERT and UPDATE (digest, sequence) in"
            " safepoint_anchor.heads, as a member of 'safepoint_anchor'; there a worker needs no"
            " more than to read. Run: revoke safepoint_anchor from {login}"
        ),
    ),
    (
        "grant set on parameter session_replication_role to {login}",
        (
            "SP05 error: Login '{login}' may set session_replication_role, and triggers do not"
            " fire for whoever sets it to replica. Run, as a superuser: revoke set on parameter"
            " session_replication_role from {login}"
        ),
    ),
    (
        "alter role {login} in database {db} set session_replication_role = replica",
        (
            "SP05 error: session_replication_role is not origin for login '{login}', so triggers"
            " do not fire. See where it is set, and reset it there, with alter role or alter"
            " database: select * from pg_db_role_setting"
        ),
    ),
    (
        "alter database {db} set password_encryption = md5",
        (
            "SP05 warning: The server keeps new passwords as MD5: whoever copies such a hash can"
            " log in with it. Set password_encryption = 'scram-sha-256', then set each password"
            " anew."
        ),
    ),
    (
        "grant usage on schema safepoint to public",
        (
            "SP05 error: Every login of the server has USAGE on schema safepoint. Run, as its"
            " owner: revoke usage on schema safepoint from public"
        ),
    ),
    (
        "grant select on safepoint.checkpoints to public",
        (
            "SP05 error: Every login of the server has SELECT on table safepoint.checkpoints. Run,"
            " as its owner: revoke select on safepoint.checkpoints from public"
        ),
    ),
    (
        "grant execute on function safepoint.acquire to public",
        (
            "SP05 error: Every login of the server has EXECUTE on function"
            " safepoint.acquire(text,text,double precision). Run, as its owner: revoke execute on"
            " function safepoint.acquire(text,text,double precision) from public"
        ),
    ),
    (
        "grant create on schema public to public",
        (
            "SP05 warning: Every login of the server has CREATE on schema public. Run, as its"
            " owner: revoke create on schema public from public"
        ),
    ),
]


@pytest.mark.parametrize(("sql", "line"), CASES, ids=[sql[:60] for sql, _ in CASES])
def test_each_thing_that_is_wrong_is_said_and_what_it_says_to_run_mends_it(
    deployed: Deployed, sql: str, line: str
) -> None:
    dsn, name = deployed.login(), deployed.database.name
    login = f"writer_case_{deployed.number}"
    deployed.run(sql.format(login=login, db=name))
    found = lines(dsn)
    others = re.search(r" and ([0-9]+) more", found[0])
    assert found == [line.format(login=login, db=name, others=others and others[1])]
    # What another test would meet again: roles belong to the whole server.
    mend = re.search(r"(?:Run|Run, as (?:its owner|a superuser)|then|is in): (.*)", found[0])
    if mend is None:
        deployed.run(f"alter role {login} nosuperuser")
    else:
        deployed.run(mend[1])
        assert lines(dsn) == []


def test_an_operators_login_is_not_for_a_worker(deployed: Deployed) -> None:
    dsn = deployed.login("operator")
    login = f"operator_case_{deployed.number}"
    by = "as a member of 'safepoint_operator', and a worker does not need it."
    do = f"Run: revoke safepoint_operator from {login}"
    assert errors(dsn) == [
        f"SP05 error: Login '{login}' may run safepoint.break_lease(text), {by} {do}",
        f"SP05 error: Login '{login}' may run safepoint.discard(text,bigint), {by} {do}",
        f"SP05 error: Login '{login}' may run safepoint.prune(text,bigint,bytea), {by} {do}",
    ]


@pytest.mark.parametrize(("job", "is_for"), [("writer", "a worker"), ("anchor", "an anchor")])
def test_a_login_of_every_day_does_not_set_the_anchor_back(
    deployed: Deployed, job: str, is_for: str
) -> None:
    dsn, login = deployed.login(job), f"{job}_case_{deployed.number}"
    deployed.run(f"grant safepoint_anchor_operator to {login}")
    others = {"anchor": dsn} if job == "anchor" else {}
    found = errors(deployed.login(), **others)
    assert found == [
        (
            f"SP05 error: Login '{login}' may run safepoint_anchor.rewind(text,text,bigint,text),"
            f" as a member of 'safepoint_anchor_operator', and {is_for} does not need it. Run:"
            f" revoke safepoint_anchor_operator from {login}"
        ),
        *([SAME_SERVER] if others else []),
    ]


def both(login: str, one: str, other: str, do: str) -> str:
    return (
        f"SP05 error: Login '{login}' may discard records of the store{one}, and set its anchor"
        f" back{other}: whoever steals it undoes work, and nobody can tell. {do}. Set the anchor"
        " back with a login that does nothing else."
    )


OF_STORE = ", as a member of 'safepoint_operator'"
OF_ANCHOR = ", as a member of 'safepoint_anchor_operator'"


def errors(dsn: str, **others: str) -> list[str]:
    """What is wrong, without the notes of who the operators are."""
    return [line for line in lines(dsn, **others) if not line.startswith("SP05 note: Who can ")]


def test_who_discards_does_not_set_the_anchor_back(deployed: Deployed) -> None:
    """Any login of the server, not only those that the application uses."""
    ops = f"ops_{deployed.number}"
    deployed.dsn(ops, "safepoint_operator", "safepoint_anchor_operator")
    do = f"Run: revoke safepoint_anchor_operator from {ops}"
    assert errors(deployed.login()) == [both(ops, OF_STORE, OF_ANCHOR, do)]
    deployed.run(do.removeprefix("Run: "))
    assert errors(deployed.login()) == []


def test_nor_by_way_of_another_role_or_a_grant_of_its_own(deployed: Deployed) -> None:
    ops, team = f"ops_{deployed.number}", f"team_{deployed.number}"
    deployed.dsn(ops, "safepoint_operator")
    deployed.run(
        f"create role {team} in role safepoint_anchor_operator; alter role {ops} noinherit;"
        f" grant {team} to {ops}"
    )
    by = f", as a member of '{team}' and so of 'safepoint_anchor_operator'"
    do = f"Run: revoke safepoint_anchor_operator from {team}"
    assert errors(deployed.login()) == [both(ops, OF_STORE, by, do)]
    deployed.run(f"{do.removeprefix('Run: ')}; alter role {ops} inherit")
    deployed.run(
        f"grant execute on function safepoint_anchor.rewind to {ops};"
        f" grant usage on schema safepoint_anchor to {ops}"
    )
    do = f"revoke execute on function safepoint_anchor.rewind from {ops}"
    found = errors(deployed.login())
    assert found[0] == both(ops, OF_STORE, "", f"Run, as its owner: {do}")
    assert [line.partition(",")[0] for line in found[1:]] == [
        (
            f"SP05 error: '{ops}' has EXECUTE on function"
            " safepoint_anchor.rewind(text"  # up to the first comma
        ),
        f"SP05 warning: '{ops}' has USAGE on schema safepoint_anchor",
    ]
    deployed.run(f"{do}; revoke usage on schema safepoint_anchor from {ops}")
    assert errors(deployed.login()) == []


def test_nor_if_the_anchor_is_in_another_database(deployed: Deployed, postgres: Server) -> None:
    name, ops = f"apart_{deployed.number}", f"ops_{deployed.number}"
    deployed.run("drop schema safepoint_anchor cascade")
    postgres.database(name)
    try:
        migrate(postgres.dsn(database=name), parts=("anchor",))
        postgres.psql(CLOSE.format(db=name))
        anchor = make_conninfo(deployed.login("anchor"), dbname=name)
        deployed.dsn(ops, "safepoint_operator", "safepoint_anchor_operator")
        do = f"Run: revoke safepoint_anchor_operator from {ops}"
        assert errors(deployed.login(), anchor=anchor) == [
            SAME_SERVER,
            both(ops, OF_STORE, OF_ANCHOR, do),
        ]
    finally:
        postgres.psql(f"drop database {name} with (force); drop role {ops}")


def test_who_made_the_roles_is_in_none_of_them(tmp_path: Path) -> None:
    """From PostgreSQL 16 on it may grant them; that is what its own page is about."""
    with Server() as server:
        server.database("checkpoints")
        server.login("dba")
        server.psql("alter role dba createrole; grant create on database checkpoints to dba")
        migrate(server.dsn("dba", "checkpoints"))
        server.login("worker_1", "safepoint_writer")
        found = check_privileges(server.dsn("worker_1", "checkpoints"))
    assert [each.what for each in found if each.severity == "error"] == []


def test_a_login_with_a_name_that_needs_quotes(deployed: Deployed) -> None:
    """What is to be run can be run, and no name breaks out of its line."""
    name = f'Eve"; drop\n{deployed.number}'
    plain = f"Eve {deployed.number}"
    deployed.dsn(plain, "safepoint_writer")
    deployed.run(f'grant delete on safepoint.checkpoints to "{plain}"')
    [line] = lines(deployed.dsn(plain))
    assert line.startswith(f"SP05 error: Login '{plain}' may DELETE in safepoint.checkpoints; ")
    assert line.endswith(f' from "{plain}"')
    deployed.run(f'create role "{name.replace(chr(34), chr(34) * 2)}"')
    deployed.run(
        f'grant delete on safepoint.threads to "{name.replace(chr(34), chr(34) * 2)}";'
        f' grant "{name.replace(chr(34), chr(34) * 2)}" to "{plain}"'
    )
    assert all(line.isprintable() and line.isascii() for line in lines(deployed.dsn(plain)))


def test_what_everybody_may_do_by_default_is_said(database: Database) -> None:
    """A new database lets every login in. What it says to run keeps the store's own logins."""
    given = conninfo_to_dict(database.worker(1))
    del given["password"]
    dsn = make_conninfo("", **given, passfile=str(database.server.passfile))
    do = (
        f"revoke connect, temporary on database {database.name} from public; grant connect on"
        f" database {database.name} to safepoint_anchor, safepoint_anchor_operator,"
        " safepoint_auditor, safepoint_journal, safepoint_operator, safepoint_reader,"
        " safepoint_writer"
    )
    assert lines(dsn) == [
        (
            f"SP05 warning: Every login of the server has CONNECT and TEMPORARY on database"
            f" {database.name}. Run, as its owner: {do}"
        )
    ]
    database.server.psql(do)
    assert lines(dsn) == []
    database.server.login(f"stranger_{database.name}")
    with pytest.raises(StorageUnavailable):
        check_privileges(database.server.dsn(f"stranger_{database.name}", database.name))


def test_a_password_in_the_string_is_said_and_not_shown(deployed: Deployed) -> None:
    deployed.login()
    login = f"writer_case_{deployed.number}"
    dsn = deployed.database.dsn(login)
    [line] = lines(dsn)
    assert line == (
        f"SP05 warning: The connection string of the store holds the password of login '{login}',"
        " and goes wherever the string goes. Take it out, put it into a file of mode 0600, and name"
        " that with passfile= or PGPASSFILE. Change it if the string was ever logged."
    )
    assert str(conninfo_to_dict(dsn)["password"]) not in line


def test_passwords_that_are_kept_as_md5_show_to_whoever_may_see_them(deployed: Deployed) -> None:
    dsn, login = deployed.login(), f"writer_case_{deployed.number}"
    other = f"old_{deployed.number}"
    deployed.run(f"set password_encryption = md5; create role {other} login password 'x'")
    try:
        assert lines(dsn) == []
        deployed.run(f"grant select on pg_authid to {login}")
        assert lines(dsn) == [
            (
                f"SP05 warning: The password of login '{other}' is kept as MD5: whoever copies the"
                " hash can log in with it. Set it anew, with password_encryption ="
                " 'scram-sha-256'."
            )
        ]
    finally:
        deployed.run(f"drop role {other}")


def test_one_login_for_two_jobs(deployed: Deployed) -> None:
    dsn, login = deployed.login(), f"writer_case_{deployed.number}"
    deployed.run(f"grant safepoint_anchor to {login}")
    found = lines(dsn, anchor=dsn)
    assert found[1:] == [
        (
            f"SP05 error: The store and the anchor are reached with one login, '{login}': whoever"
            " steals it has both. Make a login for the anchor alone: create role anchor_1 login"
            " in role safepoint_anchor"
        ),
        SAME_SERVER,
    ]
    assert f"'{login}' may INSERT and UPDATE (digest, sequence) in safepoint_anchor" in found[0]


def test_one_password_for_two_logins(deployed: Deployed) -> None:
    store, anchor = deployed.login(), deployed.login("anchor")
    name = f"anchor_case_{deployed.number}"
    server = deployed.database.server
    password = str(conninfo_to_dict(server.dsn(f"writer_case_{deployed.number}"))["password"])
    deployed.run(f"alter role {name} password '{password}'")
    server.remember(name, password)
    assert lines(store, anchor=anchor) == [
        (
            "SP05 error: The logins of the store and the anchor have one password. Whoever steals"
            " one has both. Give each its own: \\password in psql."
        ),
        SAME_SERVER,
    ]


def test_the_writer_may_not_move_an_anchor_in_another_database(
    deployed: Deployed, postgres: Server
) -> None:
    """A grant that lies in the anchor's own database is found with the login of the store."""
    name = f"apart_{deployed.number}"
    postgres.database(name)
    try:
        migrate(postgres.dsn(database=name), parts=("anchor",))
        postgres.psql(CLOSE.format(db=name))
        store, login = deployed.login(), f"writer_case_{deployed.number}"
        anchor = make_conninfo(deployed.login("anchor"), dbname=name)
        assert lines(store, anchor=anchor) == [SAME_SERVER]
        postgres.psql(f"grant update on safepoint_anchor.heads to {login}", database=name)
        assert lines(store, anchor=anchor) == [
            (
                f"SP05 error: Login '{login}' may UPDATE in safepoint_anchor.heads; there a worker"
                " needs no more than to read. Run, as its owner: revoke update on"
                f" safepoint_anchor.heads from {login}"
            ),
            SAME_SERVER,
        ]
    finally:
        postgres.psql(f"drop database {name} with (force)")


def test_two_servers_are_not_one(deployed: Deployed) -> None:
    with Server() as other:
        other.database("anchor")
        migrate(other.dsn(database="anchor"), parts=("anchor",))
        other.psql(
            "revoke connect, temporary on database anchor from public;"
            "grant connect on database anchor to safepoint_anchor"
        )
        other.login("anchor_1", "safepoint_anchor")
        given = conninfo_to_dict(other.dsn("anchor_1", "anchor"))
        del given["password"]
        anchor = make_conninfo("", **given, passfile=str(other.passfile))
        assert lines(deployed.login(), anchor=anchor) == []


def test_nothing_is_changed(deployed: Deployed) -> None:
    """The session of the audit is read-only, so that not even a mistake in it could write."""
    from safepoint.audit.databases import looking

    with (
        pytest.raises(StorageUnavailable) as caught,
        looking(deployed.database.owner) as database,
    ):
        database.connection.execute("delete from safepoint.threads")
    assert "takes no writes" in caught.value.what


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"dbname": "postgres"},
            (
                "There is no schema safepoint in database 'postgres' (login '{login}'). Correct"
                " the connection string of the store, or make it, as one who may create roles:"
                " safepoint postgres migrate DSN"
            ),
        ),
        ({"port": "1"}, None),
        ({"dbname": "nowhere"}, None),
    ],
)
def test_a_server_that_cannot_be_looked_at_is_one_line(
    deployed: Deployed, capsys: pytest.CaptureFixture[str], change: Any, line: str | None
) -> None:
    dsn = make_conninfo(deployed.login(), **change)
    with pytest.raises(StorageUnavailable) as caught:
        check_privileges(dsn)
    if line is not None:
        assert str(caught.value) == line.format(login=f"writer_case_{deployed.number}")
    assert main(["--postgres", dsn]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"{caught.value}\n"


def test_what_is_no_connection_string_is_said() -> None:
    with pytest.raises(ConfigurationError):
        check_privileges("nonsense")
    with pytest.raises(ConfigurationError):
        check_privileges(5)  # type: ignore[arg-type]


def test_the_command_looks_and_verifies(
    deployed: Deployed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = SigningKey.from_file(tmp_path / "keys/key", create=True)
    store, anchor = deployed.login(), deployed.login("anchor")
    with PostgresCheckpointStorage(store) as storage, PostgresAnchor(anchor) as heads:
        ledger = Ledger(storage, store="invoices", keys=Keyring(key), anchor=heads)
        for amount in range(3):
            ledger.save("order-7", {"amount": amount})
    sealed = ["--postgres", store, "--store", "invoices", "--key", str(tmp_path / "keys/key")]
    unseen = (
        "pg_hba.conf was not looked at: this login may not read it, as it should be. Give"
        " --postgres-admin."
    )

    def run(*arguments: str) -> tuple[int, list[str]]:
        code = main([*arguments])
        printed = capsys.readouterr()
        assert printed.err == ""
        return code, printed.out.splitlines()

    known = f"database '{deployed.database.name}' (login 'writer_case_{deployed.number}')"
    assert run("--postgres", store) == (
        0,
        [f"No findings: {known} (records not verified: give --key and --store)", unseen],
    )
    assert run(*sealed) == (
        0,
        [f"No findings: {known} (a rollback would not show: give --anchor)", unseen],
    )
    assert run(*sealed, "--postgres-anchor", anchor) == (0, [SAME_SERVER, unseen])
    admin = deployed.dsn("postgres")
    assert run(*sealed, "--postgres-admin", admin) == (
        0,
        [f"No findings: {known} (a rollback would not show: give --anchor)"],
    )
    # An attacker who is the owner cuts off the newest record: the anchor tells.
    deployed.run(
        "set session_replication_role = replica;"
        "delete from safepoint.checkpoints where sequence = 3;"
        "update safepoint.threads set head = 2"
    )
    assert run(*sealed)[0] == 0
    code, found = run(*sealed, "--postgres-anchor", anchor)
    assert code == 1
    assert any(
        line.startswith("SP15 error: order-7 ends at #2, and the anchor has seen #3.")
        for line in found
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["x", "--postgres", "y"], "give PATH or --postgres, and run it again for the other one"),
        (["x", "--postgres-anchor", "y"], "--postgres-anchor needs --postgres"),
        (["x", "--postgres-journal", "y"], "--postgres-journal needs --postgres"),
        (["x", "--postgres-admin", "y"], "--postgres-admin needs --postgres"),
        ([], "give PATH, --postgres, --models or --code"),
        (
            [
                *[
                    "--postgres",
                    "x",
                    "--store",
                    "s",
                    "--key",
                    "k",
                    "--anchor",
                    "a",
                    "--postgres-anchor",
                    "b",
                ]
            ],
            "give --anchor or --postgres-anchor",
        ),
        (
            ["--models", "x", "--store", "s"],
            "--key, --store, --anchor and --journal need PATH or --postgres",
        ),
    ],
)
def test_wrong_options_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == (f"safepoint audit: {line}. Try: safepoint audit --help\n")
