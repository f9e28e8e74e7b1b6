"""FileJournal: signed lines in numbered files, in a folder apart from the storage."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from safepoint.anchor import Anchor
from safepoint.errors import ConfigurationError, quoted
from safepoint.journal import _folder, _text
from safepoint.journal._anchoring import Anchored
from safepoint.journal._asked import check_count, matches
from safepoint.journal._lines import put, take_back
from safepoint.journal._walk import (
    BEGINNING,
    WINDOW,
    Progress,
    Spot,
    Tail,
    Walker,
    listed_of,
    stamp_of,
)
from safepoint.journal.actor import Actor
from safepoint.journal.event import Entry, Event
from safepoint.keys import Keyring, SigningKey
from safepoint.names import Head, check_name

MAX_BYTES: Final = 64 * 1024 * 1024


class FileJournal:
    """Appends signed, chained lines to a file in a folder that you name.

    ```python
    from safepoint import Keyring, SigningKey
    from safepoint.journal import Actor, Event, FileJournal

    keys = Keyring(SigningKey.from_file("keys/journal.key", create=True))
    journal = FileJournal("journal", keys=keys, create=True)
    ana = Actor("ana", how="login")
    journal.record(Event("save", "intended", ana, "invoices", "order-7", 1))
    journal.record(Event("resume", "refused", ana, "invoices", "order-8"))
    for entry in journal.show(thread="order-8"):
        print(entry.number, entry.what, entry.outcome, entry.actor)
        #> 2 resume refused 'ana' (by 'login')
    ```

    An entry is on disk when `record` returns. If it cannot be, `record` raises and the files are
    as before: then do not do what could not be written down.

    An edit, a removed line and a moved one show, to whoever has the key. That the newest lines
    were cut off shows with an anchor alone. A writer checks the newest lines before it appends;
    `verify` checks them all.

    The folder has the rules of `FileAnchor`. Any number of processes may share it; those that
    write take turns. No file stays open between calls. Reading needs no right to write.

    Args:
        path: the folder, for this journal alone.
        keys: the key that signs, and older ones that verify. A ring that only verifies reads.
        name: the journal's name, which each entry carries, and under which an anchor knows it.
        anchor: where the number and digest of the newest entry are kept, out of reach of whoever
            writes the folder. One of its own: a `FileAnchor` is of one store.
        max_bytes: begin a new file when the next line would make this one larger. The chain and
            the numbers go on.
        create: begin a new journal if the folder is missing or empty. Pass it once, when you set
            the store up: a wrong path is then refused ever after instead of being begun anew.

    Raises:
        JournalUnavailable: there is no journal at that path, or it cannot be made or opened.
        JournalBroken: a file is missing.
        UnsafeLocation: others could change what is stored there. The message says what to run.
        InvalidId: the name is outside the grammar.
        ConfigurationError: `keys` or `max_bytes` is of the wrong kind.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keys: Keyring,
        name: str = "journal",
        anchor: Anchor | None = None,
        max_bytes: int = MAX_BYTES,
        create: bool = False,
    ) -> None:
        if not isinstance(keys, Keyring):
            raise ConfigurationError(
                f"A journal was given {type(keys).__name__} as keys.",
                "Write keys=Keyring(SigningKey.from_file(path)).",
            )
        if type(max_bytes) is not int or max_bytes < 1:
            raise ConfigurationError(
                f"{quoted(max_bytes)} is not a size for a file.",
                "Give a whole number of bytes, from 1 up.",
            )
        self._name = check_name("journal", name)
        self._keys = keys
        self._anchored = Anchored(anchor, self._name)
        self._max_bytes = max_bytes
        self._folder = _folder.Folder(path, self._name, create=create)
        self._walker = Walker(self._folder, self._name, keys)
        self._tail: Tail | None = None

    def __repr__(self) -> str:
        return f"FileJournal({self._folder.path!r}, name={self._name!r})"

    @property
    def path(self) -> Path:
        """The folder, absolute."""
        return Path(self._folder.path)

    def record(self, event: Event) -> Entry:
        """Write an event down, on disk when this returns.

        If a writer died in the middle of a line, an entry "recover" comes first.

        Raises:
            JournalBroken: the end of the journal does not verify. Nothing was written.
            JournalUnavailable: it could not be written, or others could change what is stored
                there by now. The files are as before.
            KeyRefused: no key on the ring signs.
            ConfigurationError: `event` is not an event.
        """
        return self.record_at_time(event, datetime.now(UTC))

    def record_at_time(self, event: Event, now: datetime) -> Entry:
        """Write an event down as of `now`. It is what `record` does, for tests of time."""
        key = self._keys.signing
        event, at = _text.check(event, now)
        with self._folder.locked() as root:
            known = self._anchored.read()
            tail = self._walker.newest(root, self._tail, known)
            if tail.torn:
                dropped = f"{len(tail.torn)} bytes of an unfinished line were dropped."
                recovery = Event("recover", "done", Actor.process(), self._name, detail=dropped)
                tail, _ = self._append(root, tail, recovery, at, key)
            return self._append(root, tail, event, at, key)[1]

    def show(
        self, *, store: str | None = None, thread: str | None = None, what: str | None = None
    ) -> Iterator[Entry]:
        """Yield the entries, oldest first, each verified with all before it.

        They are those that are there when the first one is asked for. Nothing is loaded whole.

        Args:
            store: only those about this store.
            thread: only those about this thread.
            what: only those of this kind.

        Raises:
            JournalBroken: a line was edited, moved or removed, or the journal ends before what
                the anchor has seen.
            JournalUnavailable: it cannot be read, or others could change what is stored there.
            InvalidId: a name is outside the grammar.
            ConfigurationError: there is no such kind.
        """
        return filter(matches(store, thread, what), self._all(None))

    def tail(self, count: int = 10) -> list[Entry]:
        """Return the last entries, oldest first. Those before them are not verified.

        Raises:
            JournalBroken: one was edited, moved or removed, or the journal ends before what the
                anchor has seen.
            JournalUnavailable: it cannot be read, or others could change what is stored there.
            ConfigurationError: `count` is not a whole number from 1 up.
        """
        check_count(count)
        known = self._anchored.read()
        with self._folder.root("read the journal in") as root:
            end = Spot(*self._folder.settled(root))
            window = WINDOW
            while True:
                start = self._walker.back(root, end, window)
                chain = self._walker.chain(start, known)
                found = deque(self._walker.entries(root, start, end, chain), maxlen=count)
                if len(found) == count or start == BEGINNING:
                    chain.check_end()
                    return list(found)
                window *= 4

    def verify(self, progress: Progress | None = None) -> int:
        """Verify every line and every link. Return how many entries there are.

        Args:
            progress: called with how many bytes are done and how many there are, as `Bar` takes it.

        Raises:
            JournalBroken: a line was edited, moved or removed, or the journal ends before what
                the anchor has seen.
            JournalUnavailable: it cannot be read, or others could change what is stored there.
        """
        return sum(1 for _ in self._all(progress))

    def _all(self, progress: Progress | None) -> Iterator[Entry]:
        # Asked before the files are looked at: what it has seen by now must be there.
        known = self._anchored.read()
        with self._folder.root("read the journal in") as root:
            end = Spot(*self._folder.settled(root))
            chain = self._walker.chain(BEGINNING, known)
            yield from self._walker.entries(root, BEGINNING, end, chain, progress=progress)
            chain.check_end()

    def _append(
        self, root: int, tail: Tail, event: Event, at: datetime, key: SigningKey
    ) -> tuple[Tail, Entry]:
        line, entry = _text.write(self._name, event, tail.head, at, key)
        number, offset = tail.end
        # An unfinished line is written over where it stands, even if that makes the file too large.
        is_new = not tail.torn and offset > 0 and offset + len(line) > self._max_bytes
        if is_new:
            number, offset = number + 1, 0
            self._folder.add(root, number)
        head = Head(entry.number, entry.digest_of_entry)
        try:
            with self._folder.opened(root, number, _folder.WRITE) as fd:
                stamp = self._put(root, fd, Spot(number, offset), line, tail.torn, head)
        except BaseException:
            if is_new and self._anchored.lacks(head):
                self._folder.remove(root, number)
            raise
        end = Spot(number, offset + len(line))
        self._tail = Tail(end, b"", head, stamp, listed_of(root))
        return self._tail, entry

    def _put(
        self, root: int, fd: int, spot: Spot, line: bytes, torn: bytes, head: Head
    ) -> tuple[int, ...]:
        """Write a line, and let the anchor see it, or leave the file as it was."""
        where = self._folder.shown(spot.file)
        put(fd, spot.offset, line, torn, where)
        try:
            if spot.offset == 0:
                os.fsync(root)  # the name of a new file is in the folder
            self._anchored.advance(head)
        except BaseException:
            # A line that the anchor may have seen stays: cut off, it would raise an alarm.
            if self._anchored.lacks(head):
                take_back(fd, spot.offset, torn, where)
            raise
        return stamp_of(os.fstat(fd))
