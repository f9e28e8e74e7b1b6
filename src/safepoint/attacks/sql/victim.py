"""Who is attacked: two workers on one database, the login of one of them in the wrong hands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, ClassVar, Final, Self

import psycopg

from safepoint.attacks.outcome import step
from safepoint.attacks.rows_postgres import Trial
from safepoint.attacks.sql.fingerprint import FINGERPRINT
from safepoint.errors import CheckpointError
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.names import digest_of
from safepoint.postgres import PostgresAnchor
from safepoint.record import Header, Place, seal

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
