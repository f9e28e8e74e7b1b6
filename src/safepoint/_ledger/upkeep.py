"""What an operator does with a ledger: verify, anchor, prune, delete, copy, accept a loss."""

from __future__ import annotations

from collections.abc import Iterable

from safepoint._ledger import anchoring, guards, retention, transfer
from safepoint._ledger.noting import READING
from safepoint._ledger.parts import Parts
from safepoint._ledger.walk import Progress, span_of, verify
from safepoint.errors import ConfigurationError
from safepoint.header import Place
from safepoint.heads import Head, Heads
from safepoint.ids import check_name


class Upkeep(Parts):
    """The half of a ledger that looks after what is kept, and never changes what it says."""

    def verify(
        self, thread: str, *, progress: Progress | None = None, every_signature: bool = False
    ) -> int:
        """Verify each checkpoint of a thread and each link, without decoding any state.

        Up to the anchored head, the digests prove that header and state are the ones that were
        sealed, and the signatures above them are not looked at.

        Args:
            thread: the thread.
            progress: called with how many are done and how many there are, as `Bar` takes it.
            every_signature: check those, too.

        Returns:
            How many there are; 0 for a thread that nobody has seen.

        Raises:
            SealError: one does not verify, or does not follow the one before it.
            AnchorError: the storage contradicts the anchor, or that cannot be asked.
        """
        check_name("thread", thread)
        with self._notes.watching("verify", thread):
            return verify(self._view, thread, progress, every_signature=every_signature)

    def threads(self) -> list[str]:
        """Return the names of the threads that the storage has or the anchor knows, sorted.

        Names are not verified; a thread that somebody removed is listed if it was anchored.
        """
        with guards.storage_errors("list", "the threads"):
            names = guards.texts(self.storage.threads())
        if self.anchor is not None:
            with guards.anchor_errors("list", "the threads"):
                names |= guards.texts(self.anchor.threads(self.store))
        return sorted(names)

    def anchor_now(self, thread: str) -> Head:
        """Verify a whole thread and move the anchor to its head, as after turning anchoring on.

        Raises:
            ConfigurationError: there is no anchor.
            NotFound: the thread has no checkpoint.
            CheckpointError: the thread does not verify, or the anchor cannot be written.
        """
        check_name("thread", thread)
        with self._notes.watching("verify", thread):
            return anchoring.anchor_now(self._view, thread)

    def settle(self, thread: str) -> None:
        """Let the anchor see the newest checkpoint, if there is an anchor and it has not yet.

        A workflow does this before it goes on: what a step acts upon cannot be cut off unnoticed.

        Raises:
            CheckpointError: the newest checkpoint does not verify, or the anchor cannot move.
        """
        check_name("thread", thread)
        with self._notes.watching("verify", thread, quiet=READING):
            anchoring.settle(self._view, thread)

    def prune(self, thread: str, *, keep: int) -> int:
        """Verify a thread, then remove all but the newest `keep` checkpoints.

        A signed base says where the thread begins now, so that what is left still verifies.

        Returns:
            How many were removed.

        Raises:
            ConfigurationError: the storage cannot remove records, or `keep` is not 1 or more.
            NotFound: the thread has no checkpoint.
            CheckpointError: the thread does not verify. Nothing was removed.
        """
        guards.check_count("keep", keep)
        retention.retaining(self._view)
        if self.anchor is None:
            self.verify(thread)
            head = self._view.latest(thread).header.sequence
        else:
            head = self.anchor_now(thread).sequence  # so that the anchored record stays
        begins = span_of(self._view, thread).first
        first = max(head - keep + 1, begins)  # an interrupted prune to the same place is finished
        if first == 1:
            return 0
        with self._notes.doing("prune", thread, detail=f"keep from #{first} on"):
            return retention.cut(self._view, thread, first)

    def delete(self, thread: str) -> Head:
        """Delete a thread, and leave a signed record that says so. Its name stays taken.

        Interrupted, it can be called again, and finishes.

        Raises:
            NotFound: the thread has no checkpoint.
            ConfigurationError: the storage cannot remove records.
            CheckpointError: the thread does not verify. Nothing was removed.
        """
        retention.retaining(self._view)
        self.verify(thread)
        opened = self._view.latest(thread)
        if opened.header.kind != "deleted":
            anchored = self._view.anchored(thread)
            place = Place(self.store, thread, opened.header.sequence + 1)
            record, opened = retention.statement(self._view, place, "deleted", opened.digest)
            self._notes.write("delete", "intended", thread, opened.head)
            with self._notes.watching("delete", thread, opened.head):
                self._append(thread, record, opened, anchored, now=self.anchor is not None)
        elif self.anchor is not None:
            self.anchor_now(thread)  # whoever wrote it may have died before this
        with self._notes.watching("delete", thread, opened.head):
            retention.cut(self._view, thread, opened.header.sequence)
        self._notes.write("delete", "done", thread, opened.head)
        return opened.head

    def copy_to(
        self,
        target: Upkeep,
        *,
        threads: Iterable[str] | None = None,
        up_to: Heads | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Verify each thread, and copy it into the target's storage, sealed by the target's key.

        The links do not depend on the key, so the anchor stays right; a target with an anchor of
        its own moves that. What is there already is compared and left alone, so an interrupted
        copy goes on where it was. Stop the writers first.

        Args:
            target: where to.
            threads: which; all, if you leave it out.
            up_to: an anchor as it stood before a key was stolen. Each thread is copied up to the
                head that it knows, and a thread that it does not know is left out.
            progress: called with how many are done and how many there are, as `Bar` takes it.

        Returns:
            How many records there were to copy.

        Raises:
            ConfigurationError: the target is another store, or the same storage, or an argument
                is of the wrong kind.
            Conflict: the target has another record at some place.
            CheckpointError: a thread does not verify. Unless somebody changed it meanwhile, nothing
                of it was copied.
        """
        guards.check_kind("target", target, Upkeep, "Ledger(FileCheckpointStorage(path), ...)")
        if target.store != self.store:
            raise ConfigurationError(
                f"A record of store {self.store} means nothing in store {target.store}.",
                f"Open the target with store={self.store!r}.",
            )
        guards.check_other(self.storage, target.storage)
        if isinstance(threads, str) or not isinstance(threads, (Iterable, type(None))):
            raise ConfigurationError(
                f"copy_to was given {type(threads).__name__} as threads.",
                'Write threads=["order-7"].',
            )
        if up_to is not None:
            guards.check_methods("an anchor as up_to", up_to, ("read",), "FileAnchor(anchor_path)")
        names = self.threads() if threads is None else [check_name("thread", t) for t in threads]
        done = 0
        for thread in names:
            with self._notes.doing("copy", thread, detail=f"to {target!r}"):
                done += transfer.copy_thread(self._view, target._view, thread, progress, up_to)
        return done

    def accept_loss(self, thread: str) -> tuple[Head | None, Head | None]:
        """Verify what the storage has of a thread, and set the anchor back to that.

        For an operator who restored a backup and knows what is missing: from now on nobody will
        notice that there ever was more, not even that the thread had been deleted. Stop the
        writers first, and save once afterwards: until then, what was lost still fits, if somebody
        kept it. A base that a revoked key sealed is sealed anew.

        Returns:
            What the anchor had seen, and what it says now.

        Raises:
            ConfigurationError: there is no anchor, or it cannot be set back.
            CheckpointError: what is there does not verify.
        """
        check_name("thread", thread)
        with self._notes.doing("accept-loss", thread):
            return anchoring.accept_loss(self._view, thread)
