"""InMemoryJournal: for tests, and for runs that may be forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Lock

from safepoint.errors import ConfigurationError
from safepoint.journal import _text
from safepoint.journal._asked import check_count, matches
from safepoint.journal._chain import Chain
from safepoint.journal.event import Entry, Event
from safepoint.keys import Keyring, SigningKey
from safepoint.names import check_name

_WHERE = "the journal in memory"


class InMemoryJournal:
    """Keeps the lines in this process until it ends: the same chain, and no disk.

    ```python
    from safepoint.journal import Actor, Event, InMemoryJournal

    journal = InMemoryJournal()
    journal.record(Event("save", "intended", Actor("ana", "login"), "invoices", "order-7", 1))
    print(journal.verify())
    #> 1
    ```

    Several threads of one process may share it.

    Args:
        keys: the key that signs, and older ones. A new key if None.
        name: the journal's name, which each entry carries.

    Attributes:
        lines: the text, line by line.

    Raises:
        InvalidId: the name is outside the grammar.
        ConfigurationError: `keys` are no keyring.
    """

    def __init__(self, keys: Keyring | None = None, *, name: str = "journal") -> None:
        if not isinstance(keys, (Keyring, type(None))):
            raise ConfigurationError(
                f"A journal was given {type(keys).__name__} as keys.",
                "Write keys=Keyring(SigningKey.from_file(path)).",
            )
        self._keys = Keyring(SigningKey.generate()) if keys is None else keys
        self._name = check_name("journal", name)
        self._lock = Lock()
        self.lines: list[bytes] = []

    def __repr__(self) -> str:
        return f"InMemoryJournal(<{len(self.lines)} entries>)"

    def record(self, event: Event) -> Entry:
        """Write an event down.

        Raises:
            JournalBroken: the last line does not verify.
            KeyRefused: no key on the ring signs.
            ConfigurationError: `event` is not an event.
        """
        return self.record_at_time(event, datetime.now(UTC))

    def record_at_time(self, event: Event, now: datetime) -> Entry:
        """Write an event down as of `now`. It is what `record` does, for tests of time."""
        key = self._keys.signing
        event, at = _text.check(event, now)
        with self._lock:
            chain = Chain(self._name, self._keys, anywhere=len(self.lines) > 1)
            for line in self.lines[-1:]:
                chain.follow(line, _WHERE)
            written, entry = _text.write(self._name, event, chain.head, at, key)
            self.lines.append(written)
        return entry

    def show(
        self, *, store: str | None = None, thread: str | None = None, what: str | None = None
    ) -> Iterator[Entry]:
        """Yield the entries, oldest first, each verified with all before it.

        Raises:
            JournalBroken: a line was edited, moved or removed.
        """
        wanted = matches(store, thread, what)
        chain = Chain(self._name, self._keys)
        with self._lock:
            lines = list(self.lines)
        return filter(wanted, (chain.follow(line, _WHERE) for line in lines))

    def tail(self, count: int = 10) -> list[Entry]:
        """Return the last entries, oldest first.

        Raises:
            JournalBroken: a line was edited, moved or removed.
            ConfigurationError: `count` is not a whole number from 1 up.
        """
        return list(deque(self.show(), maxlen=check_count(count)))

    def verify(self) -> int:
        """Verify every line and every link. Return how many entries there are.

        Raises:
            JournalBroken: a line was edited, moved or removed.
        """
        return sum(1 for _ in self.show())
