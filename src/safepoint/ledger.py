"""Ledger: a storage with its keys and its anchor, and all that an application talks to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, Literal

from safepoint._ledger import anchoring, guards, retention, transfer
from safepoint._ledger.noting import READING, Notes
from safepoint._ledger.owning import Owned, Owner
from safepoint._ledger.view import View, refuse_deleted
from safepoint._ledger.walk import Progress, span_of, verify, walk
from safepoint._ledger.walk import linked as walk_back
from safepoint.anchor import Anchor
from safepoint.checkpoint import Checkpoint
from safepoint.codec import Codec
from safepoint.errors import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    Conflict,
    Forked,
    KeyRefused,
    quoted,
)
from safepoint.header import Place
from safepoint.heads import Head, Heads
from safepoint.ids import check_name, check_sequence
from safepoint.journal import Actor, Journal
from safepoint.keys import Keyring
from safepoint.seal import Opened, seal
from safepoint.storage.base import CheckpointStorage


class Ledger:
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
        self.codec: Final = codec if codec is not None else Codec()
        self.anchor_every: Final = anchor_every
        limits = self.codec.limits
        self._view = View(storage, check_name("store", store), keys, anchor, limits)
        self._notes = Notes(journal, actor, store)
        self._owner = Owner(storage, self._notes)

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
        with self._notes.watching("save", thread):
            payload = self.codec.encode(state)
            head, anchored = self._view.tip(thread)
            number = head.sequence if head else 0
            if after is not None and after != number:
                raise Conflict(
                    f"{thread} is at #{number}, and this save builds on #{quoted(after)}.",
                    "Nothing was overwritten. Load the latest, and decide again.",
                )
            record, opened = seal(
                payload,
                Place(self.store, thread, number + 1),
                self.keys.signing,
                created=datetime.now(UTC),
                previous=head.digest if head else None,
                app=app,
                tools=tools,
            )
            self._notes.write("save", "intended", thread, opened.head)
            self._append(thread, record, opened, anchored, now=anchor == "now")
        return _checkpoint(opened, state)

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
            found = walk_back(self._view, thread, sequence) if linked else None
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
        target: Ledger,
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
        guards.check_kind("target", target, Ledger, "Ledger(FileCheckpointStorage(path), ...)")
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

    def own(self, thread: str, worker: str, *, seconds: float = 60.0) -> Owned:
        """Own a thread: from now on the storage refuses what anybody else saves to it.

        Use it in a `with`. The storage counts the owners, and knows a former one, who was paused
        or cut off, by the number that comes with each of its saves. A step of a workflow renews
        the lease before it runs.

        Args:
            thread: the thread, which may be new.
            worker: the name of this worker. It is for messages: the same name in two processes
                does not make them one owner.
            seconds: after how long without renewal another worker may take the thread.

        Raises:
            NotOwner: another worker owns it.
            ConfigurationError: the storage knows no owners, or `seconds` is no time.
            JournalError: it cannot be written down.
        """
        return self._owner.acquire(check_name("thread", thread), worker, seconds)

    def owner(self, thread: str) -> str | None:
        """Return the name of the worker that owns a thread now, or None if it is free."""
        return self.owner_at_time(thread, datetime.now(UTC))

    def owner_at_time(self, thread: str, now: datetime) -> str | None:
        """Return the name of the worker that owns a thread at that time, or None."""
        return self._owner.holder_at_time(check_name("thread", thread), now)

    def worker(self, thread: str) -> str | None:
        """Return under which name this ledger owns a thread, or None if it never did."""
        lease = self._owner.held(thread)
        return None if lease is None else lease.owner

    def keep(self, thread: str) -> None:
        """Renew the lease on a thread, if this ledger has one.

        Raises:
            NotOwner: another worker owns it by now.
        """
        self._owner.keep(thread)

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
        gone = ", ".join(key.id for key in keys if keys.revoked(key.id) is not None)
        detail = f"from {_signing(self.keys)} to {_signing(keys)}, revoked: {gone or 'none'}"
        self._notes.write("rotate", "done", detail=detail)
        return following

    def __repr__(self) -> str:
        anchor = "" if self.anchor is None else f", anchor={type(self.anchor).__name__}"
        storage = type(self.storage).__name__
        return f"Ledger(store={self.store!r}, storage={storage}{anchor}, {self.keys!r})"

    def _decoded(self, opened: Opened) -> Checkpoint:
        refuse_deleted(opened)
        return _checkpoint(opened, self.codec.decode(opened.payload))

    def _append(
        self, thread: str, record: bytes, opened: Opened, anchored: Head | None, *, now: bool
    ) -> None:
        head = opened.head
        fence = self._owner.fence(thread)
        owned: dict[str, Any] = {} if fence is None else {"fence": fence}
        with guards.storage_errors("keep", thread):
            self.storage.append(thread, head.sequence, record, **owned)
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


def _signing(keys: Keyring) -> str:
    try:
        return keys.signing.id
    except KeyRefused:
        return "none"


def _checkpoint(opened: Opened, state: Any) -> Checkpoint:
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
