"""View: what a storage holds, as far as the keys and the anchor vouch for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from safepoint._ledger.guards import anchor_errors, storage_errors
from safepoint.anchor import Anchor
from safepoint.chain import ANCHOR, PROCESS, check_follows, check_is, check_reaches
from safepoint.errors import (
    AnchorUnavailable,
    KeyRevoked,
    NotFound,
    RecordsMissing,
    SealError,
    ThreadDeleted,
)
from safepoint.header import Place
from safepoint.heads import Head, Heads
from safepoint.keys import Keyring
from safepoint.limits import Limits
from safepoint.seal import Opened, open_sealed
from safepoint.storage.base import CheckpointStorage

_REMEMBERED = 1024
ATTEMPTS = 5
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Seen:
    """The end of a thread as this process last saw it, and what the anchor said at the time."""

    head: Head
    anchored: Head | None


class View:
    """Reads records and vouches for them. It writes nothing.

    The anchor is always asked before the storage. A save writes the storage first, so a save at
    the same moment, or one that was killed between its two writes, can only make the storage
    longer than the anchor, and that is no alarm. A prune moves the anchor first and removes records
    after it, so what is missed while the anchor moves is looked for again.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        store: str,
        keys: Keyring,
        anchor: Anchor | None,
        limits: Limits,
    ) -> None:
        self.storage = storage
        self.store = store
        self.keys = keys
        self.anchor = anchor
        self.limits = limits
        self._seen: dict[str, Seen] = {}

    def anchored(self, thread: str) -> Head | None:
        """Return what the anchor has seen of a thread.

        Raises:
            AnchorError: it cannot be asked, or is the anchor of another store.
        """
        return None if self.anchor is None else head_in(self.anchor, self.store, thread)

    def settled(self, thread: str, look: Callable[[Head | None], _T]) -> _T:
        """Ask the anchor, then look at the storage; again if a prune came between the two.

        Raises:
            CheckpointError: the anchor cannot be asked, or `look` refused.
        """
        anchored, first = self.anchored(thread), 1
        for _ in range(ATTEMPTS):
            try:
                return look(anchored)
            except (NotFound, RecordsMissing):
                before = anchored, first
                anchored, first = self.anchored(thread), self.first(thread)
                if before == (anchored, first):
                    raise
        return look(anchored)

    def reach(self, thread: str, anchored: Head | None) -> int:
        """Return the last sequence in the storage, 0 if there is none.

        Raises:
            RolledBack: the anchor, or this process, has seen more.
        """
        seen = self._seen.get(thread)  # before asking the storage: others may save meanwhile
        with storage_errors("find the latest of", thread):
            head = self.storage.head(thread)
            if type(head) is not int or head < 0:
                raise TypeError
        check_reaches(thread, head, anchored, ANCHOR)
        check_reaches(thread, head, None if seen is None else seen.head, PROCESS)
        return head

    def tip(self, thread: str) -> tuple[Head | None, Head | None]:
        """Return where the thread ends and what the anchor has seen, None for a new thread.

        Raises:
            ThreadDeleted: the thread was deleted.
            CheckpointError: its end does not verify, or does not extend what the anchor has seen.
        """
        return self.settled(thread, lambda anchored: self._tip(thread, anchored))

    def _tip(self, thread: str, anchored: Head | None) -> tuple[Head | None, Head | None]:
        number = self.reach(thread, anchored)
        if not number:
            return None, anchored
        seen = self._seen.get(thread)
        if (
            seen is not None
            and seen.head.sequence == number
            and anchored in (seen.anchored, seen.head)
        ):
            return seen.head, anchored  # this process made or verified it
        opened = self._end(thread, number, anchored)
        refuse_deleted(opened)
        return opened.head, anchored

    def remembered(self, thread: str) -> tuple[Head, Head | None] | None:
        """Return the same without a look at the storage, or None if this process does not know.

        It is for whoever then saves after that record and no other.

        Raises:
            AnchorError: the anchor cannot be asked, or is the anchor of another store.
        """
        seen = self._seen.get(thread)
        if seen is None:
            return None
        anchored = self.anchored(thread)
        return (seen.head, anchored) if anchored in (seen.anchored, seen.head) else None

    def latest(self, thread: str, *, anew: bool = False) -> Opened:
        """Return the newest record, verified, as one that extends what the anchor has seen.

        Args:
            thread: the thread.
            anew: whether to follow links, too, that this process has followed before.

        Raises:
            NotFound: the thread has none.
            CheckpointError: it does not verify, or does not extend what the anchor has seen.
        """
        return self.settled(thread, lambda anchored: self._latest(thread, anchored, anew=anew))

    def _latest(self, thread: str, anchored: Head | None, *, anew: bool) -> Opened:
        number = self.reach(thread, anchored)
        if not number:
            raise self.no_thread(thread)
        return self._end(thread, number, anchored, anew=anew)

    def at(self, thread: str, sequence: int) -> Opened:
        """Return the record at `sequence`, verified.

        Raises:
            NotFound: there is none.
            ThreadDeleted: the thread was deleted.
            CheckpointError: it does not verify, or contradicts what the anchor has seen.
        """
        return self.settled(thread, lambda anchored: self._at(thread, sequence, anchored))

    def _at(self, thread: str, sequence: int, anchored: Head | None) -> Opened:
        number = self.reach(thread, anchored)
        if number > sequence:
            self._refuse_ended(thread, number, anchored)
        opened = self._kept(thread, sequence, number)
        if anchored is not None and anchored.sequence <= sequence:
            self._check_extends(opened, anchored)
        return opened

    def refuse_ended(self, thread: str) -> None:
        """Refuse a thread that was deleted, before anything older of it is handed out.

        Raises:
            ThreadDeleted: it was.
            CheckpointError: the record that the anchor has seen does not verify.
        """
        self.settled(
            thread,
            lambda anchored: self._refuse_ended(thread, self.reach(thread, anchored), anchored),
        )

    def _refuse_ended(self, thread: str, number: int, anchored: Head | None) -> None:
        """However genuine an old record is: whether its thread was deleted, the end says."""
        if anchored is not None:
            try:
                self._check_anchored(thread, anchored)
            except KeyRevoked:
                # What a thief wrote deletes nothing, if it is what was anchored, and not over it.
                with suppress(KeyRevoked):
                    self.open(thread, anchored.sequence, digest=anchored.digest)
        if number and (anchored is None or number > anchored.sequence):
            try:
                end = self.open(thread, number)
            except (SealError, NotFound):
                return  # it deletes nothing, and is refused where it is asked for
            refuse_deleted(end)

    def _check_anchored(self, thread: str, anchored: Head) -> Opened:
        """Open the record that the anchor has seen, which is there and no tombstone."""
        try:
            opened = self.open(thread, anchored.sequence)
        except NotFound:
            raise pruned_beyond(thread, anchored) from None
        check_is(opened, anchored, ANCHOR)
        refuse_deleted(opened)
        return opened

    def _kept(self, thread: str, sequence: int, number: int) -> Opened:
        """Open a record that must be there unless a signed base, or the end, says otherwise."""
        try:
            return self.open(thread, sequence)
        except NotFound:
            if sequence > number:
                raise
            base = self.base(thread)
            if base is not None and sequence < base.header.sequence:
                raise
            raise gone(thread, sequence) from None

    def open(self, thread: str, sequence: int, *, digest: str | None = None) -> Opened:
        """Return one record, verified by its seal alone, or by a digest that is known."""
        place = Place(self.store, thread, sequence)
        with storage_errors("read", str(place)):
            record = self.storage.read(thread, sequence)
            if type(record) is not bytes:
                raise TypeError
        return open_sealed(record, place, self.keys, digest=digest, limits=self.limits)

    def base(self, thread: str) -> Opened | None:
        """Return what `prune` left of a thread's beginning, verified, or None if all is there.

        Raises:
            CheckpointError: it does not verify.
        """
        found = self._stored_base(thread)
        if found is None:
            return None
        first, record = found
        place = Place(self.store, thread, first)
        return open_sealed(record, place, self.keys, base=True, limits=self.limits)

    def first(self, thread: str) -> int:
        """Return where the storage says that a thread begins, 1 if nothing was pruned."""
        found = self._stored_base(thread)
        return 1 if found is None else found[0]

    def _stored_base(self, thread: str) -> tuple[int, bytes] | None:
        with storage_errors("read the base of", thread):
            found = getattr(self.storage, "base", lambda _: None)(thread)
            if found is None:
                return None
            first, record = found
            if type(first) is not int or type(record) is not bytes:
                raise TypeError
            return first, record

    def no_thread(self, thread: str) -> NotFound:
        """Say that there is no such thread."""
        return NotFound(
            f"There is no checkpoint of {thread} in store {self.store}.",
            "Start the workflow, or check the name of the thread and the storage's path.",
        )

    def remember(self, thread: str, head: Head, anchored: Head | None) -> None:
        """Keep in mind where a thread ends, so that it cannot shrink unnoticed."""
        if len(self._seen) >= _REMEMBERED:
            for oldest in list(self._seen)[: _REMEMBERED // 2]:
                self._seen.pop(oldest, None)
        self._seen.pop(thread, None)
        self._seen[thread] = Seen(head, anchored)

    def forget(self, thread: str) -> None:
        """Drop what this process remembers of a thread."""
        self._seen.pop(thread, None)

    def _end(
        self, thread: str, number: int, anchored: Head | None, *, anew: bool = False
    ) -> Opened:
        """Open the record at the end, and check that it extends what is known."""
        opened = self._kept(thread, number, number)
        seen = self._seen.get(thread)
        if seen is not None and seen.head.sequence == number:
            check_is(opened, seen.head, PROCESS)
        if anchored is not None and (anew or seen != Seen(opened.head, anchored)):
            self._check_extends(opened, anchored)
        if opened.header.kind == "state":
            self.remember(thread, opened.head, anchored)
        return opened

    def _check_extends(self, opened: Opened, anchored: Head) -> None:
        """Follow the links from the anchored record to this one."""
        thread = opened.header.thread
        if anchored.sequence == opened.header.sequence:
            check_is(opened, anchored, ANCHOR)
            return
        link = self._check_anchored(thread, anchored)
        for sequence in range(anchored.sequence + 1, opened.header.sequence):
            following = self._kept(thread, sequence, opened.header.sequence)
            check_follows(following, link.digest)
            refuse_deleted(following)
            link = following
        check_follows(opened, link.digest)


def head_in(heads: Heads, store: str, thread: str) -> Head | None:
    """Return what an anchor, or a copy of one, has seen of a thread.

    Raises:
        AnchorError: it cannot be asked, or is the anchor of another store.
    """
    with anchor_errors("be asked about", thread):
        head = heads.read(store, thread)
    if head is not None and type(head) is not Head:
        raise AnchorUnavailable(
            f"The anchor answered with {type(head).__name__} about {thread}.",
            "Return a safepoint.Head, or None for a thread that was never anchored.",
        )
    with anchor_errors("be asked about", thread):
        return None if head is None else Head(head.sequence, head.digest)


def refuse_deleted(opened: Opened) -> None:
    """Refuse to hand out a tombstone as a checkpoint.

    Raises:
        ThreadDeleted: the record says that the thread was deleted.
    """
    header = opened.header
    if header.kind == "deleted":
        raise ThreadDeleted(
            f"{header.thread} was deleted on {header.created}, by a record that is signed.",
            "Its name stays taken, so that nobody can pass another thread off as this one. Start a"
            " thread of another name.",
        )


def gone(thread: str, sequence: int) -> RecordsMissing:
    """Say that a record is missing that nothing signed says was pruned."""
    return RecordsMissing(
        f"{thread} #{sequence} is gone, and nothing signed says that it was pruned.",
        "Somebody removed it. Restore it from a copy that verifies.",
    )


def pruned_beyond(thread: str, anchored: Head) -> RecordsMissing:
    """Say that the record that the anchor vouches for is no longer there."""
    return RecordsMissing(
        f"{thread} {anchored}, which the anchor has seen, is not in the storage, and later ones"
        " are.",
        "Restore it from a backup. If a ledger without the anchor pruned it, accept that by name"
        " with Ledger.accept_loss.",
    )
