"""What the parts of a ledger share: where everything is, and how a record is added."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from safepoint._ledger import anchoring, guards
from safepoint._ledger.noting import Notes
from safepoint._ledger.owning import Owner
from safepoint._ledger.view import View, refuse_deleted
from safepoint.anchor import Anchor
from safepoint.checkpoint import Checkpoint
from safepoint.codec import Codec
from safepoint.errors import AnchorUnavailable, CheckpointError, Forked
from safepoint.heads import Head
from safepoint.journal import Actor, Journal
from safepoint.keys import Keyring
from safepoint.seal import Opened
from safepoint.storage.base import CheckpointStorage, FollowingStorage


class Parts:
    """A storage, its keys, its anchor and its journal, put together by `Ledger`."""

    codec: Codec
    anchor_every: int
    _view: View
    _notes: Notes
    _owner: Owner

    @property
    def storage(self) -> CheckpointStorage:
        """Where sealed bytes are kept."""
        return self._view.storage

    @property
    def store(self) -> str:
        """The name of this store."""
        return self._view.store

    @property
    def keys(self) -> Keyring:
        """The key that seals and the keys that are trusted."""
        return self._view.keys

    @property
    def anchor(self) -> Anchor | None:
        """What remembers the head of each thread."""
        return self._view.anchor

    @property
    def journal(self) -> Journal | None:
        """Where it is written down what this ledger does."""
        return self._notes.journal

    @property
    def actor(self) -> Actor | None:
        """Who acts, for the journal."""
        return self._notes.actor

    def _decoded(self, opened: Opened) -> Checkpoint:
        refuse_deleted(opened)
        return checkpoint_of(opened, self.codec.decode(opened.payload))

    def _append(
        self, thread: str, record: bytes, opened: Opened, anchored: Head | None, *, now: bool
    ) -> None:
        with guards.storage_errors("keep", thread):
            self.storage.append(thread, opened.header.sequence, record, **self._fence(thread))
        self._appended(thread, opened, anchored, now=now)

    def _follow(
        self, thread: str, record: bytes, opened: Opened, anchored: Head | None, *, now: bool
    ) -> bool:
        """Append if the thread still ends where this process saw it end, and tell if it did."""
        with guards.storage_errors("keep", thread):
            storage = cast("FollowingStorage", self.storage)
            kept = storage.follow(thread, opened.header.sequence, record, **self._fence(thread))
            if type(kept) is not bool:
                raise TypeError  # it may have kept the record, and nobody could tell
        if not kept:
            return False
        self._appended(thread, opened, anchored, now=now)
        return True

    def _fence(self, thread: str) -> dict[str, Any]:
        fence = self._owner.fence(thread)
        return {} if fence is None else {"fence": fence}

    def _appended(self, thread: str, opened: Opened, anchored: Head | None, *, now: bool) -> None:
        head = opened.head
        due = anchored is None or head.sequence - anchored.sequence >= self.anchor_every
        if self.anchor is not None and (now or due):
            try:
                anchoring.move(self._view, thread, head)
            except Forked:
                raise
            except CheckpointError as error:
                raise AnchorUnavailable(
                    f"{thread} {head} is saved, but not anchored. {error.what}",
                    "Nothing is lost. Mend the anchor; the next save, or Ledger.anchor_now, moves"
                    " it.",
                ) from error
            anchored = head
        if opened.header.kind == "state":
            self._view.remember(thread, head, anchored)


def checkpoint_of(opened: Opened, state: Any) -> Checkpoint:
    header = opened.header
    return Checkpoint(
        store=header.store,
        thread=header.thread,
        sequence=header.sequence,
        app=header.app,
        created=datetime.fromisoformat(header.created),
        previous=header.previous,
        digest=opened.digest,
        tools=header.tools,
        state=state,
    )
