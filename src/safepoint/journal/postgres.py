"""PostgresJournal: signed, chained lines in a table, under a login that can only add to it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final, Self

from safepoint._postgres.connections import Connections
from safepoint._postgres.driver import driver
from safepoint.anchor import Anchor
from safepoint.errors import ConfigurationError, JournalUnavailable, StorageError
from safepoint.journal import _text
from safepoint.journal._anchoring import Anchored
from safepoint.journal._asked import check_count, matches
from safepoint.journal._chain import Chain, refused
from safepoint.journal.event import Entry, Event
from safepoint.keys import Keyring
from safepoint.names import Head, check_name

if TYPE_CHECKING:
    from safepoint._postgres.driver import Connection

_VERSION: Final = "select max(number) from safepoint_journal.version"
_LAST: Final = "select max(number) from safepoint_journal.lines where journal = %s"
_LINES: Final = (
    "select number, case when octet_length(line) <= 32768 then line else '' end"
    " from safepoint_journal.lines where journal = %s and number >= %s order by number limit 500"
)
_WRITE: Final = "insert into safepoint_journal.lines (journal, number, line) values (%s, %s, %b)"
_TAKEN: Final = frozenset(["23505", "SP004"])
_WINDOW: Final = 16
"""How many of the newest lines a writer verifies when it has not seen the journal before."""


class PostgresJournal:
    """Appends signed, chained lines to a table, for workers on many machines.

    Give it a login in the role that `migrate` made for journals: the database lets it add a line
    after the last one and read, and lets nobody change or remove one. The chain and the signatures
    show what somebody did who administers the server; that the newest lines were cut off shows
    with an anchor, on another server.

    An entry is committed when `record` returns. If it cannot be, `record` raises: then do not do
    what could not be written down. If the answer was lost on the way, the entry may be there.

    Args:
        dsn: a connection string as libpq takes it. What it leaves out comes from the environment.
        keys: the key that signs, and older ones that verify. A ring that only verifies reads.
        name: the journal's name, which each entry carries, and under which an anchor knows it.
        anchor: where the number and digest of the newest entry are kept.
        connections: how many connections the threads of this process share.
        wait_seconds: how long to try if the server is away or busy.

    Raises:
        MissingPackage: psycopg is not installed.
        JournalUnavailable: the server cannot be used. The message says what to run.
        InvalidId: the name is outside the grammar.
        ConfigurationError: an argument is of the wrong kind.
    """

    def __init__(
        self,
        dsn: str,
        *,
        keys: Keyring,
        name: str = "journal",
        anchor: Anchor | None = None,
        connections: int = 4,
        wait_seconds: float = 10.0,
    ) -> None:
        if not isinstance(keys, Keyring):
            raise ConfigurationError(
                f"A journal was given {type(keys).__name__} as keys.",
                "Write keys=Keyring(SigningKey.from_file(path)).",
            )
        self._name = check_name("journal", name)
        self._keys = keys
        self._anchored = Anchored(anchor, self._name)
        self._lock = Lock()
        self._seen: Head | None = None
        with _translated():
            self._server = Connections(dsn, _VERSION, most=connections, wait_seconds=wait_seconds)
        self._error: type[Exception] = driver().Error
        self._wait = float(wait_seconds)
        self._where = f"the journal in {self._server.where()}"

    def __repr__(self) -> str:
        return f"PostgresJournal(<{self._server!r}>, name={self._name!r})"

    def record(self, event: Event) -> Entry:
        """Write an event down, committed when this returns.

        Raises:
            JournalBroken: the end of the journal does not verify. Nothing was written.
            JournalUnavailable: it could not be written, or its anchor could not be moved.
            KeyRefused: no key on the ring signs.
            ConfigurationError: `event` is not an event.
        """
        return self.record_at_time(event, datetime.now(UTC))

    def record_at_time(self, event: Event, now: datetime) -> Entry:
        """Write an event down as of `now`. It is what `record` does, for tests of time."""
        key = self._keys.signing
        event, at = _text.check(event, now)
        tried: dict[bytes, Entry] = {}
        since = 0
        end = time.monotonic() + self._wait

        def write(connection: Connection) -> Entry:
            nonlocal since
            while True:
                lines, head = self._newest(connection, since)
                for line in lines:
                    if line in tried:
                        return tried[line]  # an earlier try had arrived, and its answer was lost
                # What other threads have seen meanwhile may lie behind what this one tried.
                since = since or (head.sequence if head else 1)
                line, entry = _text.write(self._name, event, head, at, key)
                tried[line] = entry
                try:
                    connection.execute(_WRITE, (self._name, entry.number, line))
                except self._error as error:
                    if getattr(error, "sqlstate", None) not in _TAKEN:
                        raise
                    if time.monotonic() > end:
                        raise self._crowded() from error
                else:
                    return entry

        with _translated():
            entry = self._server.run(write)
        head = Head(entry.number, entry.digest_of_entry)
        self._remember(head)
        self._anchored.advance(head)
        return entry

    def show(
        self, *, store: str | None = None, thread: str | None = None, what: str | None = None
    ) -> Iterator[Entry]:
        """Yield the entries, oldest first, each verified with all before it.

        Args:
            store: only those about this store.
            thread: only those about this thread.
            what: only those of this kind.

        Raises:
            JournalBroken: a line was edited, moved or removed, or the journal ends before what
                the anchor has seen.
            JournalUnavailable: it cannot be read.
            InvalidId: a name is outside the grammar.
            ConfigurationError: there is no such kind.
        """
        return filter(matches(store, thread, what), self._all(None))

    def tail(self, count: int = 10) -> list[Entry]:
        """Return the last entries, oldest first. Those before them are not verified.

        Raises:
            JournalBroken: one was edited, moved or removed, or the journal ends before what the
                anchor has seen.
            JournalUnavailable: it cannot be read.
            ConfigurationError: `count` is not a whole number from 1 up.
        """
        check_count(count)
        known = self._anchored.read()
        first = max(1, self._last() - count + 1)
        if known is not None:
            first = min(first, known.sequence)
        chain = Chain(self._name, self._keys, known=known, anywhere=first > 1)
        found = deque(self._entries(chain, first), maxlen=count)
        chain.check_end()
        return list(found)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Verify every line and every link. Return how many entries there are.

        Args:
            progress: called with how many are done and how many there are, as `Bar` takes it.

        Raises:
            JournalBroken: a line was edited, moved or removed, or the journal ends before what
                the anchor has seen.
            JournalUnavailable: it cannot be read.
        """
        return sum(1 for _ in self._all(progress))

    def close(self) -> None:
        """Close the connections. The next call opens one again."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self, progress: Callable[[int, int], None] | None) -> Iterator[Entry]:
        # Asked before the table is looked at: what it has seen by now must be there.
        chain = Chain(self._name, self._keys, known=self._anchored.read())
        last = self._last()
        for done, entry in enumerate(self._entries(chain, 1), start=1):
            if progress is not None:
                progress(done, max(done, last))
            yield entry
        chain.check_end()

    def _entries(self, chain: Chain, first: int) -> Iterator[Entry]:
        while True:
            with _translated():
                found = self._server.run(
                    lambda connection, first=first: self._lines(connection, first)  # type: ignore[misc]
                )
            for number, line in found:
                yield self._follow(chain, number, line)
            if not found:
                return
            first += len(found)

    def _newest(self, connection: Connection, since: int) -> tuple[list[bytes], Head | None]:
        """Return the lines since this process looked last, and the head, verified.

        Args:
            connection: where to ask.
            since: the number of a line that must be among them, if it is there; 0 for none.
        """
        with self._lock:
            seen = self._seen
        known, witness = self._anchored.read(), "the anchor"
        if seen is not None:
            first = seen.sequence
            if known is None or known.sequence < seen.sequence:
                known, witness = seen, "this process"
        else:
            first = max(1, self._end(connection) - _WINDOW + 1)
            if known is not None:
                first = min(first, known.sequence)
        first = min(first, since or first)
        chain = Chain(self._name, self._keys, known=known, witness=witness, anywhere=first > 1)
        lines: list[bytes] = []
        while found := self._lines(connection, first + len(lines)):
            for number, line in found:
                self._follow(chain, number, line)
            lines += [line for _, line in found]
        if not lines and first > 1:  # it ends before that, and `check_end` says where
            for number, line in self._lines(connection, self._end(connection)):
                self._follow(chain, number, line)
        chain.check_end()
        self._remember(chain.head)
        return lines, chain.head

    def _crowded(self) -> JournalUnavailable:
        return JournalUnavailable(
            f"Others write to {self._where} all the time: for {self._wait:g} seconds each place at"
            " its end was taken before this line was there.",
            "Nothing was written. Wait for longer with wait_seconds=, or let fewer writers share"
            " one journal: name= tells them apart.",
        )

    def _remember(self, head: Head | None) -> None:
        with self._lock:
            if head is not None and (self._seen is None or head.sequence > self._seen.sequence):
                self._seen = head

    def _lines(self, connection: Connection, first: int) -> list[tuple[int, bytes]]:
        rows = connection.execute(_LINES, (self._name, first), binary=True).fetchall()
        return [(row[0], bytes(row[1])) for row in rows]

    def _follow(self, chain: Chain, number: int, line: bytes) -> Entry:
        entry = chain.follow(line, self._where)
        if entry.number != number:
            raise refused(f"Line {number} of {self._where} is entry {entry.number}.")
        return entry

    def _end(self, connection: Connection) -> int:
        [(last,)] = connection.execute(_LAST, (self._name,)).fetchall()
        return last or 0

    def _last(self) -> int:
        with _translated():
            return self._server.run(self._end)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise JournalUnavailable(error.what, error.do) from error
