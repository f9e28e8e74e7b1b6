"""Who is attacked: two workers on one database, the login of one of them in the wrong hands.

Two are built in: one login for everything, and one for each job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from safepoint.attacks.outcome import step
from safepoint.attacks.rows_postgres import (
    ANCHOR,
    ANCHOR_OPERATOR,
    JOURNAL,
    OPERATOR,
    READER,
    WORKER,
    WORKER_2,
    Trial,
)
from safepoint.errors import CheckpointError, StorageUnavailable
from safepoint.journal import Actor, Event
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.names import Head, digest_of
from safepoint.postgres import PostgresAnchor, PostgresCheckpointStorage, PostgresJournal
from safepoint.postgres.connection import psycopg
from safepoint.record import Header, Place, seal
from safepoint.storage.base import Lease, Leasing, Ownership, missing, taken

_HASH: Final = "select md5(coalesce(string_agg(x::text, '|' order by x::text), '')) from {} x"
_TABLES: Final = (
    "safepoint.checkpoints",
    "safepoint.threads",
    "safepoint.discarded",
    "safepoint.takings",
    "safepoint.prunings",
    "safepoint_anchor.heads",
    "safepoint_anchor.rewinds",
    "safepoint_journal.records",
    "pg_catalog.pg_auth_members",
    "pg_catalog.pg_authid",
    "pg_catalog.pg_db_role_setting",
    "pg_catalog.pg_default_acl",
    "pg_catalog.pg_largeobject_metadata",
)
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
    *(_HASH.format(table) for table in _TABLES),
    *(_OURS + _HASH.format(f"({rule})") for rule in _RULES.split(";")),
)
"""Queries of one value each. They leave out what belongs to a session and ends with it."""


TABLES: Final = """
create schema safepoint;
create table safepoint.threads (
  thread text primary key, first bigint not null default 1, base bytea,
  token bigint not null default 0, owner text, expires timestamptz,
  login name not null default session_user
);
create table safepoint.checkpoints (
  thread text, sequence bigint, record bytea not null, fence bigint,
  login name not null default session_user, written timestamptz not null default now(),
  primary key (thread, sequence)
);
create table safepoint.takings (
  thread text, token bigint, owner text, login name default session_user,
  taken timestamptz default now()
);
create table safepoint.prunings (
  thread text, first bigint, removed bigint, login name default session_user,
  pruned timestamptz default now()
);
create table safepoint.discarded (
  thread text, sequence bigint, record bytea, login name default session_user,
  discarded timestamptz default now()
);
create schema safepoint_anchor;
create table safepoint_anchor.version (number integer);
insert into safepoint_anchor.version values (1);
create table safepoint_anchor.heads (
  store text, thread text, sequence bigint, digest text, primary key (store, thread)
);
create table safepoint_anchor.rewinds (
  store text, thread text, from_sequence bigint, to_sequence bigint,
  login name default session_user, rewound timestamptz default now()
);
create schema safepoint_journal;
create table safepoint_journal.records (
  journal text, sequence bigint, record bytea, login name default session_user,
  written timestamptz default now(), primary key (journal, sequence)
);
"""

TRACES: Final = """
insert into safepoint.discarded (thread, sequence, record) values ('mended', 3, 'x');
insert into safepoint_anchor.rewinds (store, thread, from_sequence, to_sequence)
  values ('orders', 'mended', 3, 2);
insert into safepoint_journal.records (journal, sequence, record) values ('journal', 1, 'x');
"""
"""What it wrote down about a loss that was accepted, as ours does."""

_BASE: Final = (
    "insert into safepoint.threads (thread, first, base) values (%s, %s, %b)"
    " on conflict (thread) do update set first = excluded.first, base = excluded.base"
)
_OWN: Final = (
    "insert into safepoint.threads (thread, token, owner, expires) values (%s, %s, %s, %s)"
    " on conflict (thread) do update"
    " set token = excluded.token, owner = excluded.owner, expires = excluded.expires"
)


class UsualStorage(Leasing):
    """UNSAFE: keeps records in tables of its own, and looks at leases before it writes.

    Args:
        dsn: the one login.
        seconds: how long to wait for the server.
    """

    def __init__(self, dsn: str, seconds: float) -> None:
        limit = round(seconds * 1000)
        options = f"-c statement_timeout={limit} -c lock_timeout={limit}"
        self._error: type[Exception] = psycopg.Error
        self._connection = self._said(
            lambda: psycopg.connect(dsn, autocommit=True, options=options)
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Insert a row."""
        self._ownership(thread).check_fence(fence)
        if self.head(thread) >= sequence:
            raise taken(thread, sequence, 0)
        insert = "insert into safepoint.checkpoints (thread, sequence, record) values (%s, %s, %b)"
        self._ask(insert, thread, sequence, record)

    def read(self, thread: str, sequence: int) -> bytes:
        """Select a row."""
        query = "select record from safepoint.checkpoints where thread = %s and sequence = %s"
        rows = self._ask(query, thread, sequence)
        if not rows:
            raise missing(thread, sequence, 0)
        return bytes(rows[0][0])

    def head(self, thread: str) -> int:
        """Return the highest number that there is."""
        query = "select coalesce(max(sequence), 0) from safepoint.checkpoints where thread = %s"
        return int(self._ask(query, thread)[0][0])

    def threads(self) -> list[str]:
        """Return the names of the threads with a record."""
        return [row[0] for row in self._ask("select distinct thread from safepoint.checkpoints")]

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return what a prune left."""
        query = "select first, base from safepoint.threads where thread = %s and base is not null"
        rows = self._ask(query, thread)
        return (int(rows[0][0]), bytes(rows[0][1])) if rows else None

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Delete rows, and note that."""
        self._ask(_BASE, thread, first, base)
        delete = "delete from safepoint.checkpoints where thread = %s and sequence < %s returning 1"
        removed = len(self._ask(delete, thread, first))
        note = "insert into safepoint.prunings (thread, first, removed) values (%s, %s, %s)"
        self._ask(note, thread, first, removed)
        return removed

    def _ownership(self, thread: str) -> Ownership:
        query = "select token, owner, expires from safepoint.threads where thread = %s"
        rows = self._ask(query, thread)
        token, owner, expires = rows[0] if rows else (0, None, None)
        holder = None if owner is None else Lease(thread, owner, token, expires)
        return Ownership(thread, token, holder)

    def _change_ownership(self, thread: str, step: Callable[[Ownership], Ownership]) -> Ownership:
        after = step(self._ownership(thread))
        holder = after.holder
        owner = (None, None) if holder is None else (holder.owner, holder.expires)
        self._ask(_OWN, thread, after.token, *owner)
        note = "insert into safepoint.takings (thread, token, owner) values (%s, %s, %s)"
        self._ask(note, thread, after.token, owner[0])
        return after

    def _ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        done = self._said(lambda: self._connection.execute(statement, values, binary=True))
        return [] if done.description is None else list(done.fetchall())

    def _said(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except self._error as error:
            raise StorageUnavailable(
                f"The server could not do that: {type(error).__name__}.", "Look at its log."
            ) from error


MINE: Final = "mine"
"""The thread of the worker whose login leaked. Its lease runs."""
THEIRS: Final = "theirs"
"""The thread of the other worker. Its lease runs, too."""
FREE: Final = "free"
"""A thread that the other worker is done with: nobody holds a lease on it."""
MENDED: Final = "mended"
"""A thread of which an operator discarded what did not verify."""
STORE: Final = "orders"
SECONDS: Final = 2.0
"""How long an honest worker waits for the server."""
DATABASE: Final = "attacked"
_NEWEST: Final = (
    "select sequence, record from safepoint.checkpoints where thread = %s"
    " order by sequence desc limit 2"
)
_TOKEN: Final = "select token from safepoint.threads where thread = %s"  # noqa: S105
_SESSIONS: Final = "select pid from pg_stat_activity where datname = %s and application_name = %s"


class SqlVictim(ABC):
    """A database with two honest workers, and an attacker who has the login of one of them.

    The attacker has no key, and no other login. The victim is made anew for each attack; use it in
    a `with`.

    Attributes:
        name: what it is called in tables.
        leaks: the login of one worker, which the attacker has as well.
        other: the login of the other worker.
        refused: what the server said, and the ledger, each time that one of them refused.
    """

    name: ClassVar[str]
    leaks: ClassVar[str]
    other: ClassVar[str]

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.refused: list[str] = []
        self.keys = Keyring(SigningKey.generate())
        self._opened: list[Any] = []
        self._observer: Any = None

    def __enter__(self) -> Self:
        self.drop()
        self.create()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._opened:
            self._opened.pop().close()
        self.drop()

    @abstractmethod
    def create(self) -> None:
        """Make the database, with its tables."""

    @abstractmethod
    def storage(self, login: str) -> Any:
        """Open the storage."""

    @property
    @abstractmethod
    def reading(self) -> tuple[str, str, str]:
        """The logins of one who looks: at the records, at the anchor; and of one who prunes."""

    @abstractmethod
    def leave_traces(self) -> None:
        """Let honest people discard a record, set the anchor back, and write a journal."""

    def drop(self) -> None:
        """Remove the database, and what was done to the login."""
        with self.superuser("postgres") as connection:
            connection.execute(f"drop database if exists {DATABASE} with (force)")
            if self.leaks in self.trial.server.logins:
                given = psycopg.conninfo.conninfo_to_dict(self.trial.server.dsn(self.leaks))
                text = psycopg.sql.SQL("alter role {} password {}")
                name = psycopg.sql.Identifier(self.leaks)
                connection.execute(text.format(name, psycopg.sql.Literal(given["password"])))
                connection.execute(psycopg.sql.SQL("alter role {} reset all").format(name))

    def begin(self) -> None:
        """Let the honest workers begin."""
        for login, threads in ((self.leaks, (MINE,)), (self.other, (THEIRS, FREE))):
            ledger = self.ledger(login)
            for thread in threads:
                for number in (1, 2, 3):
                    ledger.save(thread, step(number))
        self.ledger(self.reading[2]).prune(FREE, keep=2)
        self.leave_traces()

    def works(self, *threads: str) -> bool:
        """Let both workers go on in new processes, and tell whether they can."""
        workers = {MINE: self.leaks, THEIRS: self.other}
        return all(self._works(thread, workers[thread]) for thread in threads or workers)

    def look(self) -> None:
        """Let somebody honest verify everything against the anchor.

        Raises:
            CheckpointError: something was changed.
        """
        ledger = self.ledger(self.reading[0])
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
        with self.superuser() as connection:
            for thread, prefix in ((MINE, ""), (THEIRS, "their_"), (FREE, "free_")):
                newest, before = connection.execute(_NEWEST, (thread,)).fetchall()
                token = connection.execute(_TOKEN, (thread,)).fetchone()
                known[thread] = _forged(thread, newest[1])
                known[f"{prefix}next"] = newest[0] + 1
                known[f"{prefix}token"] = token[0]
                if thread == THEIRS:
                    known["digest"] = _parsed(before[1])[1]
            others = connection.execute(_SESSIONS, (DATABASE, "other")).fetchall()
            known["others"] = [pid for (pid,) in others]
        return known

    def ledger(self, login: str) -> Ledger:
        """Open the ledger as a new process does."""
        anchor = PostgresAnchor(self.dsn(self.reading[1]), connections=1, wait_seconds=SECONDS)
        storage = self.storage(login)
        self._opened += [anchor, storage]
        return Ledger(storage, store=STORE, keys=self.keys, anchor=anchor)

    def dsn(self, login: str) -> str:
        """Return the connection string of a login."""
        named = "other" if login == self.other else "safepoint"
        dsn: str = psycopg.conninfo.make_conninfo(
            self.trial.server.dsn(login, DATABASE), application_name=named
        )
        return dsn

    def leaked(self) -> Any:
        """Connect as the attacker, who chooses what a client can choose."""
        return psycopg.connect(self.trial.server.dsn(self.leaks, DATABASE), autocommit=True)

    def fingerprint(self) -> list[Any]:
        """Return what tells one database from another: rows, rules, rights and roles."""
        if self._observer is None:
            self._observer = self.superuser()
            self._opened.append(self._observer)
        found: list[Any] = []
        for query in FINGERPRINT:
            try:
                found += self._observer.execute(query).fetchone()
            except psycopg.errors.UndefinedTable:
                found.append(None)
        return found

    def _works(self, thread: str, login: str) -> bool:
        try:
            ledger = self.ledger(login)
            ledger.own(thread, f"worker-of-{thread}", seconds=3600)  # the lease goes on running
            number = ledger.latest(thread).sequence + 1
            ledger.save(thread, step(number))
            done: bool = ledger.latest(thread).state == step(number)
        except CheckpointError:
            return False
        return done

    def superuser(self, database: str = DATABASE) -> Any:
        """Connect as one who sees everything, and is no part of the attack."""
        return psycopg.connect(self.trial.server.dsn(database=database), autocommit=True)


def _forged(thread: str, newest: bytes) -> bytes:
    """Write the record that would come next, as well as one can without the key."""
    header, digest = _parsed(newest)
    place = Place(header.store, thread, header.sequence + 1)
    now, key = datetime.now(UTC), SigningKey.generate()
    forged, _ = seal(b'{"payee":"mally"}', place, key, created=now, previous=digest)
    return forged


def _parsed(record: bytes) -> tuple[Header, str]:
    line = bytes(record).split(b"\n", 2)[1]
    header = Header.parse(line)
    if header is None:
        raise ValueError(line)
    return header, digest_of(line)


class OneRole(SqlVictim):
    """UNSAFE: the login that the application writes with owns the tables, the anchor's too."""

    name = "one-role"
    leaks = other = "app"

    def create(self) -> None:
        """Make the tables as the application itself."""
        if self.leaks not in self.trial.server.logins:
            self.trial.server.login(self.leaks)
        with self.superuser("postgres") as connection:
            connection.execute(f"create database {DATABASE} owner {self.leaks}")
        with psycopg.connect(self.dsn(self.leaks)) as connection:
            connection.execute(TABLES)

    def storage(self, login: str) -> Any:
        """Open the tables."""
        return UsualStorage(self.dsn(login), SECONDS)

    @property
    def reading(self) -> tuple[str, str, str]:
        """The same login, for everybody."""
        return self.leaks, self.leaks, self.leaks

    def leave_traces(self) -> None:
        """Write rows into the tables that are there for it."""
        with psycopg.connect(self.dsn(self.leaks)) as connection:
            connection.execute(TRACES)


class LeastPrivilege(SqlVictim):
    """What `migrate` makes, and a login for each worker and each job."""

    name = "least-privilege"
    leaks = WORKER
    other = WORKER_2

    def create(self) -> None:
        """Copy a database in which `migrate` has run."""
        with self.superuser("postgres") as connection:
            connection.execute(f"create database {DATABASE} template {self.trial.template}")

    def storage(self, login: str) -> Any:
        """Open the storage."""
        return PostgresCheckpointStorage(self.dsn(login), connections=1, wait_seconds=SECONDS)

    @property
    def reading(self) -> tuple[str, str, str]:
        """A reader's, the anchor's and an operator's."""
        return READER, ANCHOR, OPERATOR

    def leave_traces(self) -> None:
        """Let two operators undo a step, one in the store and one in the anchor, and note it."""
        ledger = self.ledger(self.other)
        kept, lost = (ledger.save(MENDED, step(number)) for number in (1, 2))
        with self.storage(OPERATOR) as storage:
            storage.discard(MENDED, kept.sequence)
        with PostgresAnchor(self.dsn(ANCHOR_OPERATOR), connections=1) as anchor:
            anchor.rewind(STORE, MENDED, Head(kept.sequence, kept.digest))
        actor = Actor(OPERATOR, how="login")
        with PostgresJournal(self.dsn(JOURNAL), keys=self.keys, connections=1) as journal:
            journal.record(Event("accept-loss", "done", actor, STORE, MENDED, lost.sequence))
