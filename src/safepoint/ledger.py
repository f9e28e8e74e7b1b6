"""Ledger: a storage with its keys and its anchor, and all that an application talks to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from safepoint._ledger import anchoring, guards
from safepoint._ledger.noting import READING, Notes
from safepoint._ledger.ownership import Ownership
from safepoint._ledger.owning import Owner
from safepoint._ledger.parts import checkpoint_of
from safepoint._ledger.upkeep import Upkeep
from safepoint._ledger.view import View
from safepoint._ledger.walk import linked_record, walk
from safepoint.anchor import Anchor
from safepoint.checkpoint import Checkpoint
from safepoint.codec import Codec
from safepoint.errors import ConfigurationError, Conflict, KeyRefused, quoted
from safepoint.header import Place
from safepoint.heads import Head
from safepoint.ids import check_name, check_sequence, check_store
from safepoint.journal import Actor, Journal
from safepoint.keys import Keyring
from safepoint.seal import Opened, seal
from safepoint.storage.base import CheckpointStorage


class Ledger(Upkeep, Ownership):
    """Saves and loads checkpoints. Nothing that it returns was decoded before it was verified.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey

    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
    )
    ledger.save("order-7", {"amount": 42})
    print(ledger.latest("order-7").state)
    #> {'amount': 42}
    ```

    Args:
        storage: where sealed bytes are kept. Any object with the four methods of
            `CheckpointStorage`.
        store: the name of this store. It is sealed into every record, so that a record of another
            store is refused here. It comes from you, never from the storage.
        keys: the key that seals and the keys that are trusted.
        codec: turns state into bytes and back. Give it your own types: `Codec([Invoice])`.
        anchor: remembers the head of each thread where the storage's writer cannot write. Without
            one, nobody notices that the newest checkpoints were cut off.
        anchor_every: after how many checkpoints a save moves the anchor. What is newer than the
            anchor could be cut off unnoticed.
        journal: where each save and each refusal is written down. If it cannot be written, nothing
            is saved.
        actor: who acts, for the journal; the user of this process if you leave it out.

    Raises:
        ConfigurationError: an argument is of the wrong kind, or the anchor or the journal is in one
            place with the storage.
        InvalidId: `store` is outside the grammar.
        KeyRefused: a key lies inside the storage folder.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        *,
        store: str,
        keys: Keyring,
        codec: Codec | None = None,
        anchor: Anchor | None = None,
        anchor_every: int = 1,
        journal: Journal | None = None,
        actor: Actor | None = None,
    ) -> None:
        guards.check_kind("keys", keys, Keyring, "Keyring(SigningKey.from_file(path))")
        guards.check_kind("codec", codec, (Codec, type(None)), "Codec([Invoice])")
        guards.check_count("anchor_every", anchor_every)
        guards.check_methods(
            "a storage", storage, guards.STORAGE, "FileCheckpointStorage(storage_path)"
        )
        if anchor is not None:
            guards.check_methods("an anchor", anchor, guards.ANCHOR, "FileAnchor(anchor_path)")
        if journal is not None:
            guards.check_methods(
                "a journal", journal, guards.JOURNAL, "FileJournal(path, keys=...)"
            )
        guards.check_kind("actor", actor, (Actor, type(None)), 'Actor("worker-1", "its login")')
        guards.check_apart(storage, keys, anchor, journal)
        guards.check_frozen(keys, anchor)
        self.codec = codec if codec is not None else Codec()
        self.anchor_every = anchor_every
        limits = self.codec.limits
        self._view = View(storage, check_store(store), keys, anchor, limits)
        self._notes = Notes(journal, actor, store)
        self._owner = Owner(storage, self._notes)

    def save(
        self,
        thread: str,
        state: Any,
        *,
        app: str = "",
        tools: str | None = None,
        after: int | None = None,
        anchor: Literal["now"] | None = None,
    ) -> Checkpoint:
        """Seal `state` as the thread's next checkpoint. When this returns, it is durable.

        The checkpoint that it returns carries the very object that you gave as its state.

        Args:
            thread: one run of one workflow.
            state: anything the codec can restore faithfully.
            app: what writes it: a name, a version.
            tools: the digest of the tool set in force.
            after: the sequence that you built on, 0 for a new thread. If the thread has moved on
                since, the save is refused and nothing is lost.
            anchor: `"now"` before a step that cannot be undone: when this returns, the checkpoint
                is anchored too, whatever `anchor_every` says.

        Raises:
            InvalidId: the thread, `app` or `tools` is outside its grammar.
            EncodeError: the state holds something that could not be restored.
            LimitExceeded: the state is too large, too deep or has too many values.
            Conflict: another writer was first.
            ThreadDeleted: the thread was deleted.
            SealError: the checkpoint to build on does not verify. This process does not look again
                at one that it saved itself.
            AnchorError: the storage contradicts the anchor, or that cannot be asked.
            StorageError: the storage refused. Nothing was saved.
            NotOwner: another worker owns the thread.
            JournalError: the journal cannot be written. Nothing was saved.
            AnchorUnavailable: the anchor cannot be read, and nothing was saved; or it cannot be
                written, and the message says that the checkpoint is saved.
        """
        check_name("thread", thread)
        if anchor is not None:
            anchoring.required(self._view)
            if anchor != "now":
                raise ConfigurationError(
                    f"A save was given {quoted(anchor)} as anchor.", 'Write anchor="now".'
                )
        if after is not None and type(after) is not int:
            raise ConfigurationError(
                f"A save was given {type(after).__name__} as after.",
                "Write after=checkpoint.sequence, or after=0 for a new thread.",
            )

        def sealed(head: Head | None) -> tuple[bytes, Opened]:
            return seal(
                payload,
                Place(self.store, thread, head.sequence + 1 if head else 1),
                self.keys.signing,
                created=datetime.now(UTC),
                previous=head.digest if head else None,
                app=app,
                tools=tools,
            )

        now = anchor == "now"
        with self._notes.watching("save", thread):
            payload = self.codec.encode(state)
            known = self._known(thread)
            if known is not None and after in (None, known[0].sequence):
                record, opened = sealed(known[0])
                if self._follow(thread, record, opened, known[1], now=now):
                    return checkpoint_of(opened, state)
            head, anchored = self._view.tip(thread)
            number = head.sequence if head else 0
            if after is not None and after != number:
                raise Conflict(
                    f"{thread} is at #{number}, and this save builds on #{quoted(after)}.",
                    "Nothing was overwritten. Load the latest, and decide again.",
                )
            record, opened = sealed(head)
            self._notes.write("save", "intended", thread, opened.head)
            self._append(thread, record, opened, anchored, now=now)
        return checkpoint_of(opened, state)

    def _known(self, thread: str) -> tuple[Head, Head | None] | None:
        """Return where a thread ends if the storage need not be asked before a save.

        With a journal it is: what is written down first must be what is done.
        """
        if self._notes.journal is not None or not guards.has_methods(self.storage, ("follow",)):
            return None
        return self._view.remembered(thread)

    def load(self, thread: str, sequence: int, *, linked: bool = False) -> Checkpoint:
        """Return the checkpoint at `sequence`, verified.

        An old one is verified by its own seal. A thief of the key can rewrite it: `verify` and
        `history` notice, because they follow every link.

        Args:
            thread: the thread.
            sequence: which of its checkpoints.
            linked: follow the links from the newest checkpoint back to this one, too. It costs a
                read of each one between.

        Raises:
            InvalidId: the thread or the sequence is outside its grammar.
            NotFound: there is none.
            ThreadDeleted: the thread was deleted.
            SealError: it does not verify. Nothing in it was decoded.
            AnchorError: the storage contradicts the anchor, or that cannot be asked.
            DecodeError: it holds a type that this ledger's codec does not know.
        """
        check_name("thread", thread)
        check_sequence(sequence)
        with self._notes.watching("verify", thread, quiet=READING):
            found = linked_record(self._view, thread, sequence) if linked else None
            return self._decoded(found or self._view.at(thread, sequence))

    def latest(self, thread: str) -> Checkpoint:
        """Return the newest checkpoint, verified. It never falls back to an older one.

        Raises:
            NotFound: the thread has no checkpoint.
            SealError: the newest one does not verify.
            AnchorError: it does not extend what the anchor has seen, or that cannot be asked.
        """
        check_name("thread", thread)
        with self._notes.watching("verify", thread, quiet=READING):
            return self._decoded(self._view.latest(thread))

    def history(self, thread: str) -> Iterator[Checkpoint]:
        """Return each checkpoint, oldest first, after its seal and its link were verified.

        Raises:
            SealError: one does not verify. Those before it were already handed out.
            NotFound: the next one was pruned while you looked at the last.
            AnchorError: the storage contradicts the anchor, or that cannot be asked.
        """
        check_name("thread", thread)
        with self._notes.watching("verify", thread, quiet=READING):
            self._view.refuse_ended(thread)  # a tombstone comes last, and must be heard first
            for opened in walk(self._view, thread):
                yield self._decoded(opened)

    def rotated(self, keys: Keyring) -> Ledger:
        """Return a ledger of the same store with another keyring, and write that down.

        Raises:
            KeyRefused: a key lies inside the storage folder.
            JournalError: it cannot be written down.
        """
        following = Ledger(
            self.storage,
            store=self.store,
            keys=keys,
            codec=self.codec,
            anchor=self.anchor,
            anchor_every=self.anchor_every,
            journal=self.journal,
            actor=self.actor,
        )
        following._owner = self._owner  # what this ledger owns, it goes on owning
        gone = ", ".join(key.id for key in keys if keys.revoked(key.id) is not None)
        detail = f"from {_signing(self.keys)} to {_signing(keys)}, revoked: {gone or 'none'}"
        with self._notes.doing("rotate", detail=detail):
            return following

    def __repr__(self) -> str:
        anchor = "" if self.anchor is None else f", anchor={type(self.anchor).__name__}"
        storage = type(self.storage).__name__
        return f"Ledger(store={self.store!r}, storage={storage}{anchor}, {self.keys!r})"


def _signing(keys: Keyring) -> str:
    try:
        return keys.signing.id
    except KeyRefused:
        return "none"
