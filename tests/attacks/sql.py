"""The adversary who has a worker's SQL login, and nothing else: no key, and no other login.

Two workers are on one database, and the login of one of them is in the wrong hands. Two such
databases are built in: one login for everything, and one for each job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from safepoint.attacks.outcome import step
from safepoint.core.errors import CheckpointError
from safepoint.core.journal import Actor, Event
from safepoint.core.keys import Keyring, SigningKey
from safepoint.core.ledger import Ledger
from safepoint.core.names import Head, digest_of
from safepoint.core.record import Header, Place, seal

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

Try = tuple[str, ...]
_SHORT: Final = {
    "put ": "insert into safepoint.records (thread, sequence, record, fence) values ",
    "edit": "update safepoint.records set record = 'x' where thread = 'theirs'",
}


class SqlOutcome(StrEnum):
    """How an attack ended, from the best to the worst."""

    NO_EFFECT = "no effect"
    """The server did what was asked, and nothing came of it."""
    REFUSED = "refused"
    """The server did nothing of it, and said why."""
    DETECTED = "detected"
    """The server did it, and the ledger with its anchor says so. What was there may be lost."""
    CRASHED = "crashed"
    """The victim did not work even before."""
    ACCEPTED = "accepted"
    """The server did it, and nobody can tell."""


@dataclass(frozen=True)
class SqlAttack:
    """One thing that somebody can do in SQL who has a worker's login, and nothing else.

    Attributes:
        id: a stable name.
        rule: the rule that it shows the reason for.
        story: what happens, in one line.
        tries: ways to do it, each as statements that one connection runs in turn. The worst of
            them counts.
        special: `answer` if it is after an answer, and not after another database than before;
            `block` if the honest workers should stand still for as long as the connection is there;
            `residue` if a server with least privilege lets it happen, as the pages say; `spoils`
            if the honest worker with the same login has to be given another one.
    """

    id: str
    rule: str
    story: str
    tries: tuple[Try, ...]
    special: tuple[str, ...] = ()

    @property
    def residue(self) -> bool:
        """Whether a server with least privilege lets it happen."""
        return "residue" in self.special

    def run(self, victim: Victim) -> SqlOutcome:
        """Let the victim work without an attack, then strike, and tell how it ended."""
        if not victim.works():
            return SqlOutcome.CRASHED
        known, found = victim.known(), SqlOutcome.NO_EFFECT
        for statements in self.tries:
            ended = self._attempt(victim, statements, known)
            found = max(found, ended, key=list(SqlOutcome).index)
            if found is SqlOutcome.ACCEPTED:
                break
        return found

    def _attempt(self, victim: Victim, statements: Try, known: dict[str, Any]) -> SqlOutcome:
        import psycopg

        before, refused = victim.fingerprint(), False
        try:
            with victim.leaked() as connection:
                answers = [_execute(connection, statement, known) for statement in statements]
                if "answer" in self.special:
                    return SqlOutcome.ACCEPTED if answers[-1] else SqlOutcome.NO_EFFECT
                if "block" in self.special:
                    return SqlOutcome.NO_EFFECT if victim.works() else SqlOutcome.ACCEPTED
        except psycopg.Error as error:
            refused = True
            victim.refused.append(f"{error.sqlstate}: {error.diag.message_primary or error}")
        if victim.fingerprint() == before:
            return SqlOutcome.REFUSED if refused else SqlOutcome.NO_EFFECT
        try:
            victim.look()
        except CheckpointError as error:
            victim.refused.append(f"{type(error).__name__}: {error}")
            return SqlOutcome.DETECTED
        return SqlOutcome.ACCEPTED


def _execute(connection: Any, statement: str, known: dict[str, Any]) -> bool:
    """Run a statement, and tell whether there was an answer."""
    for short, whole in _SHORT.items():
        statement = whole + statement[len(short) :] if statement.startswith(short) else statement
    if statement.startswith("copy") and "from stdin" in statement:
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write_row(("theirs", 99, known["theirs"]))
        return False
    done = connection.execute(statement, known if "%(" in statement else None)
    return done.description is not None and any(map(any, done.fetchall()))


def _attacks() -> Iterator[SqlAttack]:
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for part in re.split(r"^-- # ", text, flags=re.MULTILINE)[1:]:
        heading, *lines = part.splitlines()
        name, rule, *special = heading.split()
        told = takewhile(lambda line: line.startswith("--"), lines)
        story = " ".join(line.removeprefix("-- ") for line in told)
        body = "\n".join(line for line in lines if not line.startswith("--")).strip()
        tries = [re.split(r";\n|;$", block) for block in re.split(r"\n\s*\n", body)]
        yield SqlAttack(
            name,
            rule,
            story,
            tuple(tuple(each.strip() for each in one if each.strip()) for one in tries),
            tuple(special),
        )


SQL_ATTACKS: Final = {each.id: each for each in _attacks()}
"""Every attack by its id, in the order of the file in which they stand as SQL."""

_HASH: Final = "select md5(coalesce(string_agg(x::text, '|' order by x::text), '')) from {} x"
_TABLES: Final = """
safepoint.records safepoint.threads safepoint.discarded safepoint.actions
safepoint_anchor.heads safepoint_anchor.rewinds safepoint_journal.records
pg_catalog.pg_auth_members pg_catalog.pg_authid pg_catalog.pg_db_role_setting
pg_catalog.pg_default_acl pg_catalog.pg_largeobject_metadata
"""
_RULES: Final = """
select n.oid, n.nspname, n.nspowner, n.nspacl from ours n;
select c.oid, c.relname, c.relowner, c.relacl, c.relhasrules, c.relrowsecurity
  from pg_class c join ours n on n.oid = c.relnamespace where c.relkind <> 'i';
select a.attrelid, a.attname, a.atttypid, a.attacl
  from pg_attribute a join pg_class c on c.oid = a.attrelid join ours n on n.oid = c.relnamespace;
select p.oid, p.proname, p.proowner, p.proacl, p.prosrc, p.proconfig
  from pg_proc p join ours n on n.oid = p.pronamespace;
select t.tgrelid, t.tgname, t.tgenabled, t.tgfoid
  from pg_trigger t join pg_class c on c.oid = t.tgrelid join ours n on n.oid = c.relnamespace;
select o.oid, o.oprname, o.oprcode from pg_operator o join ours n on n.oid = o.oprnamespace;
select p.polrelid, p.polname from pg_policy p
"""
_OURS: Final = "with ours as (select * from pg_namespace where nspname !~ '^(pg_|information_)') "
FINGERPRINT: Final = (
    *(_HASH.format(table) for table in _TABLES.split()),
    *(_OURS + _HASH.format(f"({rule})") for rule in _RULES.split(";")),
)
"""Queries of one value each. They leave out what belongs to a session and ends with it."""

STORE: Final = "orders"
SECONDS: Final = 8.0
"""How long an honest worker waits for the server."""
_NEWEST: Final = (
    "select sequence, record from safepoint.records where thread = %s"
    " order by sequence desc limit 2"
)
_TOKEN: Final = "select token from safepoint.threads where thread = %s"  # noqa: S105
_SESSIONS: Final = "select pid from pg_stat_activity where datname = 'attacked' and usename = %s"


class Victim:
    """What `create_schema` makes, and a login for each worker and each job. One of them leaks.

    It is made anew for each attack, as a copy of one that the honest workers have begun with; use
    it in a `with`. The thread `mine` is that of the worker
    whose login leaked, `theirs` that of the other one. Nobody holds a lease on `free`, which was
    pruned, and of `mended` an operator discarded what did not verify.

    Attributes:
        name: what it is called in tables.
        leaks: the login of one worker, which the attacker has as well.
        refused: what the server said, and the ledger, each time that one of them refused.
    """

    name: ClassVar[str] = "least-privilege"
    leaks: ClassVar[str] = "worker_1"
    keys: ClassVar[Keyring] = Keyring(SigningKey.generate())

    def __init__(self, server: Server) -> None:
        from tests.harness.postgres import Database

        self.server = server
        self.database = Database(server, "attacked")
        self.refused: list[str] = []
        self._opened: list[Any] = []
        self._observer: Any = None

    def __enter__(self) -> Self:
        from tests.harness.postgres import TEMPLATE

        self._drop()
        begun = f"begun_{self.leaks}"
        with self.superuser("postgres") as connection:
            asked = connection.execute("select 1 from pg_database where datname = %s", (begun,))
            if not asked.fetchone():
                self._copy(connection, TEMPLATE)
                self.create()
                self.begin()
                self._close()
                connection.execute(f"alter database attacked rename to {begun}")
            self._copy(connection, begun)
        self._observer = self.superuser()
        self._opened.append(self._observer)
        return self

    @staticmethod
    def _copy(connection: Any, template: str) -> None:
        connection.execute(f"create database attacked template {template} strategy file_copy")

    def _close(self) -> None:
        while self._opened:
            self._opened.pop().close()

    def __exit__(self, *_: object) -> None:
        self._close()
        self._drop()

    def create(self) -> None:
        """Do what else is done to a database in which `create_schema` has run."""

    def login(self, job: str) -> str:
        """Return the connection string of whoever has a job."""
        if job == "other":
            return self.database.worker(2)
        return self.database.worker(1) if job == "mine" else str(getattr(self.database, job))

    def _drop(self) -> None:
        """Remove the database, and what was done to the login."""
        from psycopg import conninfo, sql

        with self.superuser("postgres") as connection:
            connection.execute("drop database if exists attacked with (force)")
            if self.leaks in self.server.logins:
                given = conninfo.conninfo_to_dict(self.server.dsn(self.leaks))["password"]
                name, password = sql.Identifier(self.leaks), sql.Literal(given)
                connection.execute(sql.SQL("alter role {} password {}").format(name, password))
                connection.execute(sql.SQL("alter role {} reset all").format(name))

    def begin(self) -> None:
        """Let the honest workers begin, and operators undo a step and note it."""
        from safepoint.stores.postgres import PostgresJournal

        for job, threads in (("mine", ["mine"]), ("other", ["theirs", "free"])):
            ledger = self.ledger(job)
            for thread in threads:
                for number in (1, 2, 3):
                    ledger.save(thread, step(number))
        operator = self.ledger("operator")
        operator.prune("free", keep=2)
        kept, lost = (self.ledger("other").save("mended", step(number)) for number in (1, 2))
        operator.storage.discard("mended", kept.sequence)  # type: ignore[attr-defined]
        rewinding = self.ledger("operator", "anchor_operator").anchor
        rewinding.rewind(STORE, "mended", Head(kept.sequence, kept.digest))  # type: ignore[union-attr]
        actor = Actor("operator", how="login")
        with PostgresJournal(self.login("journal"), keys=self.keys, connections=1) as journal:
            journal.record(Event("accept-loss", "done", actor, STORE, "mended", lost.sequence))

    def works(self, *threads: str) -> bool:
        """Let both workers go on in new processes, and tell whether they can."""
        try:
            for thread in threads or ("mine", "theirs"):
                ledger = self.ledger("mine" if thread == "mine" else "other")
                ledger.own(thread, f"worker-of-{thread}", seconds=3600)  # the lease goes on running
                number = ledger.latest(thread).sequence + 1
                ledger.save(thread, step(number))
                assert ledger.latest(thread).state == step(number)
        except CheckpointError:
            return False
        return True

    def look(self) -> None:
        """Let somebody honest verify everything against the anchor."""
        ledger = self.ledger("reader")
        for thread in ledger.threads():
            ledger.verify(thread)

    def known(self) -> dict[str, Any]:
        """Return what the attacker can find out, or make up without the key.

        `mine`, `theirs` and `free` are records that would come next there, perfect but for the
        key; `next` and `token`, `their_next` and `their_token`, `free_next` what goes with them.
        `digest` is that of the newest record but one of `theirs`, and `others` are the sessions of
        the other worker.
        """
        known: dict[str, Any] = {}
        ask = self._observer.execute
        for thread, prefix in (("mine", ""), ("theirs", "their_"), ("free", "free_")):
            newest, before = ask(_NEWEST, (thread,)).fetchall()
            known[thread] = _forged(thread, newest[1])
            known[f"{prefix}next"] = newest[0] + 1
            known[f"{prefix}token"] = ask(_TOKEN, (thread,)).fetchone()[0]
            if thread == "theirs":
                known["digest"] = digest_of(before[1].split(b"\n", 2)[1])
        other = "app" if self.leaks == "app" else "worker_2"
        known["others"] = [pid for (pid,) in ask(_SESSIONS, (other,)).fetchall()]
        return known

    def ledger(self, job: str, anchor: str = "anchor") -> Ledger:
        """Open the ledger as a new process does."""
        from safepoint.stores.postgres import PostgresAnchor, PostgresCheckpointStorage

        heads = PostgresAnchor(self.login(anchor), connections=1, wait_seconds=SECONDS)
        storage = PostgresCheckpointStorage(self.login(job), connections=1, wait_seconds=SECONDS)
        self._opened += [heads, storage]
        return Ledger(storage, store=STORE, keys=self.keys, anchor=heads)

    def leaked(self) -> Any:
        """Connect as the attacker, who chooses what a client can choose."""
        import psycopg

        return psycopg.connect(self.server.dsn(self.leaks, "attacked"), autocommit=True)

    def fingerprint(self) -> list[Any]:
        """Return what tells one database from another: rows, rules, rights and roles."""
        import psycopg

        found: list[Any] = []
        for query in FINGERPRINT:
            try:
                found += self._observer.execute(query).fetchone()
            except psycopg.errors.UndefinedTable:
                found.append(None)
        return found

    def superuser(self, database: str = "attacked") -> Any:
        """Connect as one who sees everything, and is no part of the attack."""
        import psycopg

        return psycopg.connect(self.server.dsn(database=database), autocommit=True)


_ONE_ROLE: Final = """
reassign owned by safepoint_owner to app;
create or replace function safepoint.keep() returns trigger language plpgsql as $$ begin
  insert into safepoint.threads (tenant, thread) values (new.tenant, new.thread)
    on conflict (tenant, thread) do nothing;
  return new;
end $$;
do $$ declare statement text; begin
  for statement in
    select format('drop trigger %I on %s', tgname, tgrelid::regclass) from pg_trigger
      where not tgisinternal and tgfoid <> 'safepoint.keep'::regproc
    union all select case contypid when 0 then format('alter table %s', conrelid::regclass)
        else format('alter domain %s', contypid::regtype) end
        || format(' drop constraint %I', conname)
      from pg_constraint where contype = 'c' and connamespace::regnamespace::text ~ '^safepoint'
    union all select format('alter table %s disable row level security', oid::regclass)
      from pg_class where relrowsecurity and relnamespace::regnamespace::text ~ '^safepoint'
    union all select format('alter table %s alter %I set default %s', attrelid::regclass, attname,
        case atttypid when 'name'::regtype then 'session_user' else 'now()' end)
      from pg_attribute join pg_class c on c.oid = attrelid
      where atttypid in ('name'::regtype, 'timestamptz'::regtype) and attnotnull
        and relkind = 'r' and relnamespace::regnamespace::text ~ '^safepoint'
  loop execute statement; end loop;
end $$;
"""
"""What an application makes for itself: tables of its own, and nothing that guards them."""


class OneRole(Victim):
    """UNSAFE: the login that the application writes with owns the tables, the anchor's too."""

    name = "one-role"
    leaks = "app"

    def create(self) -> None:
        """Give everything to the application, and take every guard away."""
        if self.leaks not in self.server.logins:
            self.server.login(self.leaks)
        with self.superuser() as connection:
            connection.execute(_ONE_ROLE)

    def login(self, job: str) -> str:
        """The same login, for everybody."""
        del job
        return self.server.dsn(self.leaks, "attacked")


SQL_VICTIMS: Final[dict[str, type[Victim]]] = {each.name: each for each in (OneRole, Victim)}
"""Who is attacked, by name."""


def _forged(thread: str, newest: bytes) -> bytes:
    """Write the record that would come next, as well as one can without the key."""
    line = newest.split(b"\n", 2)[1]
    header = Header.parse(line)
    assert header is not None
    place = Place(header.store, header.tenant, thread, header.sequence + 1)
    now, key = datetime.now(UTC), SigningKey.generate()
    payload = b'{"payee":"mally"}'
    return seal(payload, place, key, created=now, previous=digest_of(line))[0]
