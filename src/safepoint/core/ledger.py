"""Ledger: a storage with its keys and its anchor, and all that an application talks to."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, cast

from safepoint.core.anchor import Anchor
from safepoint.core.chain import (
    Seen,
    Span,
    View,
    anchor_errors,
    check_apart,
    check_frozen,
    check_other,
    cipher_errors,
    head_in,
    plain_of,
    refuse_deleted,
    scoped,
    storage_errors,
)
from safepoint.core.codec import Codec, check_shape
from safepoint.core.errors import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    Conflict,
    EncodeError,
    Forked,
    InvalidId,
    KeyRevoked,
    LimitExceeded,
    NotFound,
    NotOwner,
    RecordsMissing,
    quoted,
)
from safepoint.core.journal import NO_NEWS, READING, Actor, Journal, Notes, What
from safepoint.core.keys import Keyring
from safepoint.core.names import Head, Heads, check_name, check_sequence, check_store, check_tenant
from safepoint.core.record import (
    KEY_ID,
    Checkpoint,
    Cipher,
    Kind,
    Opened,
    Place,
    check_app,
    reseal,
    seal,
)
from safepoint.core.storage import (
    CheckpointStorage,
    Lease,
    LeasingStorage,
    RetentionStorage,
)

if TYPE_CHECKING:
    from safepoint.places import Locations

_NOTHING: Final = b"null"  # the state of a record that has none: a base, a tombstone
_RETENTION: Final = ("base", "prune")
_LEASING: Final = ("acquire", "renew", "release", "lease")
_TRIES: Final = 1000  # of a save that others come before


@dataclass(frozen=True, slots=True)
class Claim:
    """The policy that the first write to a thread takes its lease, where nobody can call `own`.

    Another ledger gets NotOwner until this one calls `release`, or has not written for so long that
    the lease ended. Who lost a thread in that way gets NotOwner until it calls `release`, too, so
    that a run that was overtaken does not go on. Release a thread when its run is over.

    What `tenant`, `with_codec` and `rotated` give of a ledger is one owner with it. Any other
    ledger is another one, in one process as in two.

    Attributes:
        worker: the name of this worker, and of no other live one; one that no other ledger has, if
            you leave it out. Give the same name after a restart, and the thread is yours at once.
        seconds: how long the lease lasts. A write renews it once half of that has passed.
    """

    worker: str | None = None
    seconds: float = 60.0
    _other: str = field(default_factory=lambda: secrets.token_hex(8), init=False, repr=False)

    @property
    def owner(self) -> str:
        """The name that stands in the lease. A process that was forked has another one."""
        return self.worker or f"{self._other}-{os.getpid()}"


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
        cipher: encrypts what the codec wrote, before it is sealed. A ledger with one loads nothing
            that is not encrypted, and a ledger without loads nothing that is.
        anchor: remembers the head of each thread where the storage's writer cannot write. Without
            one, nobody notices that the newest checkpoints were cut off.
        anchor_every: after how many records a save moves the anchor, notes counted; or "step":
            each state moves it, and notes ride along until the next one. What is newer than the
            anchor could be cut off unnoticed: with "step", the notes after the newest state, and
            that state too if the writer died before the anchor moved.
        journal: where each save and each refusal is written down. If it cannot be written, nothing
            is saved.
        actor: who acts, for the journal; the user of this process if you leave it out.
        tenant: whose threads these are. Storage, anchor and journal are asked for that tenant's,
            and the name is sealed into every record. `tenant` gives the same of a ledger that is
            open.
        ownership: who may write a thread that nobody has called `own` for. `"unowned"`: anybody,
            until somebody owns it. `"claim"`: whoever writes first, as `Claim` says.

    Raises:
        ConfigurationError: `keys` or `anchor` is of the wrong kind, the anchor or the journal is in
            one place with the storage, or the storage knows no owners and is to claim threads.
        InvalidId: `store` is outside the grammar.
        KeyRefused: a key lies inside the storage's `path`, if it says one.
    """

    places: Locations
    """Where things are, in a ledger that `open_ledger` gave."""

    def __init__(
        self,
        storage: CheckpointStorage,
        *,
        store: str,
        keys: Keyring,
        codec: Codec | None = None,
        cipher: Cipher | None = None,
        anchor: Anchor | None = None,
        anchor_every: int | Literal["step"] = 1,
        journal: Journal | None = None,
        actor: Actor | None = None,
        tenant: str = "",
        ownership: Claim | Literal["unowned", "claim"] = "unowned",
    ) -> None:
        if not isinstance(keys, Keyring) or not (anchor is None or _has(anchor, ("advance",))):
            raise ConfigurationError(
                "A ledger takes a Keyring as keys, and an anchor that is open.",
                "Write Ledger(..., keys=Keyring(key), anchor=SQLiteAnchor(path)).",
            )
        check_apart(storage, keys, anchor, journal)
        check_frozen(keys, anchor)
        self._whole: Final = storage, anchor, journal
        if tenant:
            storage, anchor = scoped(storage, tenant), anchor and scoped(anchor, tenant)
            journal = journal and journal.tenant(tenant)
        self.storage: Final = storage
        self.store: Final = check_store(store)
        self.tenant_name: Final = tenant
        self.keys: Final = keys
        self.codec: Final = codec if codec is not None else Codec()
        self.cipher: Final = cipher
        self.anchor: Final = anchor
        self.anchor_every: Final[int | Literal["step"]] = (
            anchor_every if anchor_every == "step" else _count("anchor_every", anchor_every)
        )
        self.journal: Final = journal
        self.notes: Final = Notes(journal, actor, store, tenant)
        self._view: Final = self._look(anchor)
        policy = Claim() if ownership == "claim" else ownership
        # Anew: ledgers that were given one and the same policy are not one owner.
        self.ownership: Final = replace(policy) if isinstance(policy, Claim) else policy
        self._held: dict[tuple[str, str], Owned] = {}  # by tenant and thread
        self._claiming: Final = Lock()
        if isinstance(self.ownership, Claim):
            self._require(_LEASING, "knows no owners")
        elif ownership != "unowned":
            raise ConfigurationError(
                f"{quoted(ownership)} is no policy of ownership.", 'Write "unowned" or "claim".'
            )

    def _watching(
        self, what: What, thread: str, quiet: tuple[type[CheckpointError], ...] = NO_NEWS
    ) -> AbstractContextManager[None]:
        """Write down what is refused in this block, if there is a journal."""
        return self.notes.watching(what, thread, quiet=quiet) if self.journal else nullcontext()

    def __repr__(self) -> str:
        anchor = "" if self.anchor is None else f", anchor={type(self.anchor).__name__}"
        storage = type(self.storage).__name__
        tenant = f", tenant={self.tenant_name!r}" if self.tenant_name else ""
        return f"Ledger(store={self.store!r}{tenant}, storage={storage}{anchor}, {self.keys!r})"

    def _look(self, anchor: Anchor | None) -> View:
        limits, tenant = self.codec.limits, self.tenant_name
        return View(self.storage, self.store, self.keys, anchor, limits, tenant=tenant)

    def tenant(self, name: str) -> Ledger:
        """Return the ledger of one tenant, with the same keys, codec, journal and options.

        It sees that tenant's threads alone, and refuses a record of another tenant. It is no access
        right: whoever has this ledger opens any tenant.

        Raises:
            InvalidId: the name is outside the grammar.
            ConfigurationError: the storage, the anchor or the journal knows no tenants, or this is
                the ledger of a tenant already.
        """
        return self._like(tenant=check_tenant(name, self.tenant_name))

    def with_codec(self, codec: Codec) -> Ledger:
        """Return a ledger of the same store that writes and reads states by another codec.

        An adapter takes it, to add the types of its framework. Both are one owner of a thread.
        """
        return self._like(codec=codec)

    def _like(self, **changes: Any) -> Ledger:
        storage, anchor, journal = self._whole
        given: dict[str, Any] = {
            "store": self.store,
            "keys": self.keys,
            "codec": self.codec,
            "cipher": self.cipher,
            "anchor": anchor,
            "anchor_every": self.anchor_every,
            "journal": journal,
            "actor": self.notes.actor,
            "tenant": self.tenant_name,
            "ownership": self.ownership,
        }
        made = Ledger(storage, **(given | changes))
        shared = {"places", "ownership", "_held", "_claiming"}  # both are one owner
        vars(made).update((k, v) for k, v in vars(self).items() if k in shared)
        return made

    # --- save

    def save(
        self,
        thread: str,
        state: Any,
        *,
        app: str = "",
        tools: str | None = None,
        label: str = "",
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
            label: what it can be found by. Whoever can read the storage reads it.
            after: the sequence of the state that you built on, 0 for a new thread. If the thread
                has another state since, the save is refused and nothing is lost. A note in between
                is no other state. Without it, this one comes after whatever is there.
            anchor: `"now"` before a step that cannot be undone: when this returns, the checkpoint
                is anchored too, whatever `anchor_every` says.

        Raises:
            InvalidId: the thread, `app`, `tools` or `label` is outside its grammar.
            ConfigurationError: `anchor` is something else, or there is no anchor.
            EncodeError: the state holds something that could not be restored.
            LimitExceeded: the state is too large, too deep or has too many values.
            Conflict: the thread has another state than the one that you built on.
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
        said = _Said("state", app, tools, label)
        return self._keep(thread, state, said, after, anchor)

    def note(
        self,
        thread: str,
        value: Any,
        *,
        label: str = "",
        after: int | None = None,
        anchor: Literal["now"] | None = None,
    ) -> Checkpoint:
        """Seal `value` as the thread's next record, which is no new state.

        It is a link of the chain like any other: nobody swaps, drops or repeats it unnoticed.
        `latest` and `history` pass over it, `back`, `find` and `load` show it, and `verify` counts
        it. The arguments are as in `save`, and so are the errors. With `anchor="now"` it is a turn
        of its own, from which on the anchor counts its time; else it leaves that as it is.

        Raises:
            NotFound: the thread has no state to note anything about.
        """
        return self._keep(thread, value, _Said("note", label=label), after, anchor)

    def _keep(
        self, thread: str, value: Any, said: _Said, after: int | None, anchor: str | None
    ) -> Checkpoint:
        check_name("thread", thread)
        if anchor not in (None, "now"):
            raise ConfigurationError(
                f"{quoted(anchor)} is no time to anchor.", 'Write anchor="now", or leave it out.'
            )
        now = anchor == "now"
        if now:
            self._anchor()
        with self._watching("save", thread):
            payload = self.codec.encode(value)
            end = self._view.remembered(thread)
            if end is None or after not in (None, end.state):
                end = self._built_on(thread, after, said)
            for _ in range(_TRIES):
                try:
                    return self._append(thread, payload, end, said, now=now).checkpoint(value)
                except (Conflict, RecordsMissing) as error:  # others saved, pruned, deleted or cut
                    # What is written down must be what is done: that one was not.
                    self.notes.refuse("save", thread, error)
                    end = self._built_on(thread, after, said)
            return self._append(thread, payload, end, said, now=now).checkpoint(value)

    def _built_on(self, thread: str, after: int | None, said: _Said) -> Seen | None:
        """Return where a thread ends, if its newest state is the one that a save builds on."""
        end = self._view.tip(thread)
        number = end.state if end else 0
        if number is None and after is not None:
            number = self._view.latest(thread, state=True).header.sequence
        if after not in (None, number):
            raise Conflict(
                f"{thread} is at #{number}, and this save builds on #{quoted(after)}.",
                "Nothing was overwritten. Load the latest, and decide again.",
            )
        if end is None and said.kind == "note":
            raise NotFound(
                f"{thread} has no state yet, so there is nothing to note.",
                "Save its first state, then note what belongs to it.",
            )
        return end and end._replace(state=number)

    def _append(
        self,
        thread: str,
        payload: bytes,
        end: Seen | None,
        said: _Said,
        *,
        now: bool = False,
    ) -> Opened:
        """Seal a record after the end of a thread, keep it, and let the anchor see it."""
        owned = self._claimed(thread)
        head = end and end.head
        place = self._view.place(thread, head.sequence + 1 if head else 1)
        record, opened = self._seal(payload, place, said, head.digest if head else None)
        if self.journal is not None:
            what: What = "delete" if said.kind == "deleted" else "save"
            self.notes.write(what, "intended", thread, opened.head)
        # What the storage need not know of, it is not told.
        options: dict[str, Any] = {} if owned is None else {"fence": owned.lease.token}
        self._store(thread, place.sequence, record, said.label, options)
        anchored = end and end.anchored
        if self.anchor_every == "step":
            due = said.kind != "note"
        else:
            due = anchored is None or place.sequence - anchored.sequence >= self.anchor_every
        if self.anchor is not None and (now or due):
            try:
                # If a note of ours is all that is new to the anchor, its time stays what it was.
                same = anchored if said.kind == "note" and not now and head == anchored else None
                self._move(thread, replace(opened.head, seen=same.seen) if same else opened.head)
            except Forked as error:
                saved = f"{thread} {opened.head} is saved, but not anchored."
                raise Forked(f"{saved} {error.what}", error.do) from error
            except CheckpointError as error:
                raise AnchorUnavailable(
                    f"{thread} {opened.head} is saved, but not anchored. {error.what}",
                    "Nothing is lost. Mend the anchor; the next save, or Ledger.anchor_now, moves"
                    " it.",
                ) from error
            anchored = opened.head
        if said.kind != "deleted":
            state = place.sequence if said.kind == "state" else end and end.state
            self._view.remember(thread, opened.head, anchored, state)
        return opened

    def _store(
        self, thread: str, sequence: int, record: bytes, label: str, options: dict[str, Any]
    ) -> None:
        if label and _has(self.storage, ("find",)):
            options = {**options, "label": label}
        with storage_errors("keep", thread):
            self.storage.append(thread, sequence, record, **options)

    def _seal(
        self, payload: bytes, place: Place, said: _Said, previous: str | None
    ) -> tuple[bytes, Opened]:
        key, now, options = self.keys.signing, datetime.now(UTC), said._asdict()
        if self.cipher is not None and said.kind in ("state", "note"):
            options["cipher"], payload = self._closed(payload, place)
        return seal(payload, place, key, created=now, previous=previous, **options)

    def _closed(self, plain: bytes, place: Place) -> tuple[str, bytes]:
        most, closed = self.codec.limits.state_bytes + 2048, ("", plain)
        with cipher_errors(EncodeError, "encrypt"):
            if self.cipher is not None:
                closed = self.cipher.close(plain, place)
            if type(closed[1]) is not bytes or not KEY_ID.fullmatch(closed[0]):
                raise TypeError
        if len(closed[1]) > most:
            raise LimitExceeded(
                f"{place} has {len(closed[1])} bytes once it is encrypted, over the limit of"
                f" {most}.",
                "Nothing was saved. Use a cipher that adds less.",
            )
        return closed

    # --- load

    def load(self, thread: str, sequence: int, *, linked: bool = False) -> Checkpoint:
        """Return the record at `sequence`, verified: a state or a note, as its `kind` says.

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
        with self._watching("verify", thread, READING):
            found = self._view.linked(thread, sequence) if linked else None
            return self._decoded(found or self._view.at(thread, sequence))

    def latest(self, thread: str) -> Checkpoint:
        """Return the newest state, verified. It never falls back to an older one.

        If notes follow it, each of them is verified, too, and named by the one after it, from the
        end of the thread back to the state.

        Raises:
            NotFound: the thread has no checkpoint.
            SealError: the newest one does not verify.
            AnchorError: it does not extend what the anchor has seen, or that cannot be asked.
        """
        check_name("thread", thread)
        with self._watching("verify", thread, READING):
            return self._decoded(self._view.latest(thread, state=True))

    def history(self, thread: str) -> Iterator[Checkpoint]:
        """Return each state, oldest first, after its seal and its link were verified.

        Notes are verified with them, and not returned: `back` returns both.

        Raises:
            SealError: one does not verify. Those before it were already handed out.
            NotFound: the next one was pruned while you looked at the last.
            AnchorError: the storage contradicts the anchor, or that cannot be asked.
        """
        check_name("thread", thread)
        with self._watching("verify", thread, READING):
            self._view.refuse_ended(thread)  # a tombstone comes last, and must be heard first
            for opened in self._view.walk(thread):
                if opened.header.kind != "note":
                    yield self._decoded(opened)

    def back(self, thread: str) -> Iterator[Link]:
        """Return each state and note, newest first, each named by the one after it.

        It begins at the verified end, and reads headers. A state is decoded when you ask for it,
        so that to look for a record costs little.

        ```python
        from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey

        keys = Keyring(SigningKey.generate())
        ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
        ledger.save("order-7", {"amount": 42}, label="fetch-1")
        ledger.note("order-7", {"mail": "pending"})
        for link in ledger.back("order-7"):
            print(link.sequence, link.kind, link.label, link.state)
            #> 2 note  {'mail': 'pending'}
            #> 1 state fetch-1 {'amount': 42}
        print(ledger.latest("order-7").state, ledger.find("order-7", "fetch-1").sequence)
        #> {'amount': 42} 1
        ```

        Raises:
            NotFound: the thread has none, or the next one was pruned meanwhile.
            SealError: one does not verify. Those after it were already handed out.
            AnchorError: the storage contradicts the anchor, or that cannot be asked.
        """
        check_name("thread", thread)
        with self._watching("verify", thread, READING):
            for opened in self._view.back(thread):
                refuse_deleted(opened)
                yield Link(opened, self._decoded)

    def find(self, thread: str, label: str) -> Checkpoint:
        """Return the newest state or note of a label, looked for as `back` does.

        Raises:
            NotFound: there is none.
            CheckpointError: as `back`.
        """
        check_name("thread", thread)
        if not check_app(label, "a label"):
            raise InvalidId("A label to look for is not empty.", "Use latest, or back.")
        with self._watching("verify", thread, READING):
            for opened in self._view.back(thread):
                refuse_deleted(opened)
                if opened.header.label == label:
                    return self._decoded(opened)
        raise NotFound(
            f"{thread} has no record of the label {label}.",
            "Check the label. It may have been pruned.",
        )

    def threads(self) -> list[str]:
        """Return the names of the threads that the storage has or the anchor knows, sorted.

        Names are not verified; a thread that somebody removed is listed if it was anchored.
        """
        return self._view.threads()

    def tenants(self) -> list[str]:
        """Return the names of the tenants that the storage has or the anchor knows, sorted.

        As with `threads`, one whose records somebody removed is listed if it was anchored. The
        ledger of a tenant has none.
        """
        return self._view.tenants()

    def _decoded(self, opened: Opened) -> Checkpoint:
        refuse_deleted(opened)
        return opened.checkpoint(self.codec.decode(plain_of(opened, self.cipher)))

    # --- verify and anchor

    def verify(self, thread: str, *, every_signature: bool = False) -> int:
        """Verify each record of a thread and each link, notes too, without decoding any.

        Up to the anchored head, the digests prove that header and state are the ones that were
        sealed, and the signatures above them are not looked at.

        Args:
            thread: the thread.
            every_signature: check those, too.

        Returns:
            How many there are; 0 for a thread that nobody has seen.

        Raises:
            SealError: one does not verify, or does not follow the one before it.
            AnchorError: the storage contradicts the anchor, or that cannot be asked.
        """
        check_name("thread", thread)
        with self.notes.watching("verify", thread):
            return self._view.verify(thread, every_signature=every_signature)

    def anchor_now(self, thread: str) -> Head:
        """Verify a whole thread and move the anchor to its head, as after turning anchoring on.

        Raises:
            ConfigurationError: there is no anchor.
            NotFound: the thread has no checkpoint.
            CheckpointError: the thread does not verify, or the anchor cannot be written.
        """
        self._anchor()
        head = self._verified(thread).head
        self._move(thread, head)
        return head

    def _verified(self, thread: str) -> Opened:
        """Verify a whole thread, let the anchor see its end, and return that."""
        self.verify(thread)
        opened = self._view.latest(thread)
        self.settle(thread)
        return opened

    def anchored(self, thread: str) -> Head | None:
        """Return what the anchor has seen of a thread, and since when; None if there is none.

        Raises:
            AnchorError: it cannot be asked.
        """
        return self._view.anchored(check_name("thread", thread))

    def settle(self, thread: str) -> None:
        """Let the anchor see the newest checkpoint, if there is an anchor and it has not yet.

        A workflow does this before it goes on: what a step acts upon cannot be cut off unnoticed.

        Raises:
            CheckpointError: the newest checkpoint does not verify, or the anchor cannot move.
        """
        check_name("thread", thread)
        if self.anchor is None:
            return
        with self._watching("verify", thread, READING):
            anchored = self._view.anchored(thread)
            if anchored is None:  # nothing vouches for the past yet, so all of it is looked at
                self._view.verify(thread)
            # Once a step, notes ride along, and so do not move the time either.
            head = self._view.latest(thread, state=self.anchor_every == "step").head
            if anchored is None or head.sequence > anchored.sequence:
                self._move(thread, head)

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
        anchor = self._anchor()
        rewind = getattr(anchor, "rewind", None)
        if not callable(rewind):
            raise ConfigurationError(
                f"{type(anchor).__name__} has no method rewind, so this cannot set it back.",
                "Set it back with the tools of whatever keeps it, or give the class a rewind.",
            )
        with self.notes.doing("accept-loss", thread):
            before, after = self._view.anchored(thread), None
            bare = self._look(None)
            self._seal_base_anew(bare, thread)
            for opened in bare.walk(thread):
                after = opened.head
            with anchor_errors("be set back for", thread):
                rewind(self.store, thread, after)
            self._view.forget(thread)
            return before, after

    def _seal_base_anew(self, bare: View, thread: str) -> None:
        """Put a base of our own key in the place of one whose key was revoked."""
        try:
            bare.base(thread)
        except KeyRevoked:
            first = bare.first(thread)
            previous = bare.open(thread, first).header.previous
            for _ in bare.along(thread, Span(first, bare.reach(thread, None), previous, None)):
                pass  # what it stands before has to verify
            self._cut(thread, first)

    def _anchor(self) -> Anchor:
        if self.anchor is None:
            raise ConfigurationError(
                "This ledger has no anchor.", "Write Ledger(..., anchor=SQLiteAnchor(path))."
            )
        return self.anchor

    def _move(self, thread: str, head: Head) -> None:
        with anchor_errors("be moved for", thread):
            self._anchor().advance(self.store, thread, head)

    # --- forget

    def prune(
        self, thread: str, *, keep: int, since: int | None = None, dry_run: bool = False
    ) -> int:
        """Verify a thread, then remove all but the newest `keep` states and what follows them.

        A signed base says where the thread begins now, so that what is left still verifies. More
        is kept where a workflow goes on from what people approved: up to the record that they were
        asked about, without which their approval does not count. A question about going back, which
        nobody has acted upon yet, keeps nothing: what it names may be gone, and people are asked
        about another.

        Args:
            thread: the thread.
            keep: how many states, the newest at that moment.
            since: a sequence, from which on all is kept, however many others save meanwhile.
            dry_run: change nothing, and say how many would be removed.

        Returns:
            How many were removed.

        Raises:
            ConfigurationError: the storage cannot remove records, or `keep` is not 1 or more.
            NotFound: the thread has no checkpoint.
            DecodeError: the newest state is encrypted, and this ledger cannot read it, so it cannot
                tell what people answered about. Nothing was removed.
            CheckpointError: the thread does not verify. Nothing was removed.
        """
        _count("keep", keep)
        self._require(_RETENTION, "cannot remove records")
        if dry_run:
            self.verify(thread)
        # What is verified is anchored, and so the anchored record stays.
        end = self._view.latest(thread) if dry_run else self._verified(thread)
        head = end.header.sequence
        first, left, needed = 1, keep, head
        with suppress(NotFound):  # another process prunes, too, and further
            for opened in self._view.back(thread):
                if opened.header.kind != "note" and opened.header.sequence <= head:
                    if left == keep and opened.header.kind == "state":
                        needed = self._asked_about(opened) or head
                    left -= 1
                    if not left:
                        first = opened.header.sequence
                        break
        begins = self._view.span(thread).first
        # Not before `begins`: an interrupted prune to there is finished.
        first = max(min(first, needed, since or first), begins)
        if first == 1 or dry_run:
            return first - begins
        with self.notes.doing("prune", thread, detail=f"keep from #{first} on"):
            return self._cut(thread, first)

    def _asked_about(self, newest: Opened) -> int | None:
        """Return the record that people answered about, if a workflow's newest state has an answer.

        Its state may be of types that this ledger does not know, so it is not decoded.
        """
        plain = plain_of(newest, self.cipher)
        with suppress(CheckpointError, ValueError, KeyError, TypeError):
            check_shape(plain, self.codec.limits)
            resumed = json.loads(plain)["resumed"]
            if resumed["statements"] and type(resumed["sequence"]) is int:
                return max(resumed["sequence"], 1)
        return None

    def delete(self, thread: str) -> Head:
        """Delete a thread: end it with a signed record that says so, and is anchored at once.

        Whoever may write the thread may; on PostgreSQL, whoever does not own it must own it first.
        Nobody loads or continues it from then on, and its name stays taken. Nothing is removed:
        until `erase`, whoever reads the storage can read what came before. Interrupted, it can be
        called again, and finishes.

        Returns:
            Where the thread ends now: at its tombstone.

        Raises:
            NotFound: the thread has no checkpoint.
            CheckpointError: the thread does not verify, or the tombstone could not be written. It
                is not deleted.
            AnchorUnavailable: the tombstone is saved, and not anchored.
        """
        self.verify(thread)
        opened = self._view.latest(thread)
        if opened.header.kind == "deleted":
            self.settle(thread)  # whoever wrote it may have died before this
            return opened.head
        end = Seen(opened.head, self._view.anchored(thread))
        with self.notes.watching("delete", thread, opened.head):
            return self._append(thread, _NOTHING, end, _Said("deleted"), now=True).head

    def erase(self, thread: str) -> int:
        """Remove what came before the tombstone of a deleted thread, and what was set aside of it.

        When this returns, the storage holds the tombstone and a base, and no state of it any more;
        a backup, a replica or a disk may. A storage may leave that to an operator: then nothing is
        erased, and the thread stays deleted. Interrupted, it can be called again, and finishes.

        Returns:
            How many records were removed.

        Raises:
            ConfigurationError: the thread is not deleted, or the storage cannot remove records.
            NotFound: the thread has no checkpoint.
            StorageRefused: this login may not.
            StorageUnavailable: the records are removed, and their bytes are still in the log of an
                SQLite database that another program uses. The message says what to do.
            CheckpointError: the thread does not verify. Nothing was removed.
        """
        self._require(_RETENTION, "cannot remove records")
        opened = self._verified(thread)  # and the anchor points to nothing that is removed
        if opened.header.kind != "deleted":
            raise ConfigurationError(
                f"{thread} is not deleted, so nothing of it is erased.",
                "Call Ledger.delete first; to shorten a thread that goes on, Ledger.prune.",
            )
        with self.notes.doing("erase", thread, opened.head):
            removed = self._cut(thread, opened.header.sequence)
            if _has(self.storage, ("purge",)):
                with storage_errors("purge", thread):
                    removed += cast("Any", self.storage).purge(thread)
            return removed

    def _cut(self, thread: str, first: int) -> int:
        """Leave a signed base at `first`, and remove what is before it.

        Returns:
            How many records were removed: none if another process has pruned further already.
        """
        try:
            previous = self._view.open(thread, first).header.previous
        except NotFound:
            further = self._view.base(thread)
            if further is None or further.header.sequence <= first:
                raise
            return 0
        base, _ = self._seal(_NOTHING, self._view.place(thread, first), _Said("base"), previous)
        with storage_errors("prune", thread):
            return cast("RetentionStorage", self.storage).prune(thread, first, base)

    # --- keys, and copies under another key

    def rotated(self, keys: Keyring) -> Ledger:
        """Return a ledger of the same store with another keyring, and write that down.

        Raises:
            KeyRefused: a key lies inside the storage folder.
            JournalError: it cannot be written down.
        """
        following = self._like(keys=keys)  # what this ledger owns, it goes on owning
        detail = f"from {self.keys!r} to {keys!r}"
        with self.notes.doing("rotate", detail=detail):
            return following

    def copy_to(
        self,
        target: Ledger,
        *,
        threads: Iterable[str] | None = None,
        up_to: Heads | None = None,
    ) -> int:
        """Verify each thread, and copy it into the target's storage, sealed by the target's key.

        The links do not depend on the key, so the anchor stays right; a target with an anchor of
        its own moves that. What is there already is compared and left alone, so an interrupted
        copy goes on where it was. Stop the writers first.

        Args:
            target: where to. What is encrypted is copied as it is: give it the same cipher.
            threads: which of this ledger's own; all, and those of each tenant, if you leave it out.
            up_to: an anchor as it stood before a key was stolen. Each thread is copied up to the
                head that it knows, and a thread that it does not know is left out.

        Returns:
            How many records there were to copy.

        Raises:
            ConfigurationError: the target is another store, or the same storage.
            Conflict: the target has another record at some place.
            CheckpointError: a thread does not verify. Unless somebody changed it meanwhile, nothing
                of it was copied.
        """
        ours, theirs = (Place(each.store, each.tenant_name, "", 0) for each in (self, target))
        if theirs != ours:
            raise ConfigurationError(
                f"A record of {ours.owner} means nothing in {theirs.owner}.",
                "Open the target for the same store, and for the same tenant.",
            )
        check_other(self.storage, target.storage)
        if up_to is not None and self.tenant_name:
            up_to = scoped(up_to, self.tenant_name)
        names = self.threads() if threads is None else [check_name("thread", t) for t in threads]
        tenants = self.tenants() if threads is None else []
        scopes = [(self.tenant(name), target.tenant(name)) for name in tenants]
        done = 0
        for thread in names:
            with self.notes.doing("copy", thread, detail=f"to {target!r}"):
                done += self._copy(target, thread, up_to)
        return done + sum(scope.copy_to(other, up_to=up_to) for scope, other in scopes)

    def _copy(self, target: Ledger, thread: str, up_to: Heads | None) -> int:
        """Verify a thread, then copy each record, up to a head if one is given."""
        end = None if up_to is None else head_in(up_to, self.store, thread)
        if up_to is not None and end is None:
            return 0
        for _ in self._view.walk(thread, end=end):
            pass  # each signature, too: with links alone, one that is broken would show half-way
        count, last = 0, None
        for opened in self._view.walk(thread, end=end):
            target._take(thread, opened, begins=not count and opened.header.sequence > 1)
            count, last = count + 1, opened.head
        if last is not None and target.anchor is not None:
            target._move(thread, last)
        return count

    def _take(self, thread: str, opened: Opened, *, begins: bool) -> None:
        """Keep a record of another storage under our key; if a thread begins there, with a base."""
        if begins:
            self._require(_RETENTION, "cannot remove records")
        sequence = opened.header.sequence
        try:
            record = reseal(opened, self.keys.signing)
            self._store(thread, sequence, record, opened.header.label, {})
        except Conflict:
            try:
                same = self._view.open(thread, sequence).digest == opened.digest
            except NotFound:  # it was pruned there
                same = False
            if not same:
                raise Conflict(
                    f"{thread} #{sequence} is another record in the storage to copy to, or was"
                    " pruned there.",
                    "Nothing was overwritten. Copy into a new, empty storage.",
                ) from None
        if begins:
            self._cut(thread, sequence)

    # --- who writes a thread

    def own(self, thread: str, worker: str, *, seconds: float = 60.0) -> Owned:
        """Own a thread: from now on the storage refuses what anybody else saves to it.

        Use it in a `with`. The storage counts the owners, and knows a former one, who was paused
        or cut off, by the number that comes with each of its saves. A step of a workflow renews
        the lease before it runs.

        Args:
            thread: the thread, which may be new.
            worker: the name of this worker, and of no other live one: whoever gives the same name
                takes the thread at once, with a new token.
            seconds: after how long without renewal another worker may take the thread.

        Raises:
            NotOwner: another worker owns it.
            ConfigurationError: the storage knows no owners, or `seconds` is no time.
            JournalError: it cannot be written down.
        """
        self._require(_LEASING, "knows no owners")
        storage = cast("LeasingStorage", self.storage)
        at = self.tenant_name, check_name("thread", thread)
        if at in self._held:
            raise ConfigurationError(
                f"This ledger owns {thread} already.",
                "Use what own returned, or release it first.",
            )
        with self.notes.watching("own", thread), storage_errors("lease", thread):
            lease = storage.acquire(thread, worker, seconds)
        try:
            detail = f"{lease.owner} with token {lease.token}"
            self.notes.write("own", "done", thread, detail=detail)
        except BaseException:
            storage.release(lease)
            raise
        self._held[at] = owned = Owned(self, lease, seconds)
        return owned

    def disown(self, owned: Owned) -> None:
        """Let a thread go, once."""
        thread = owned.lease.thread
        if self._held.get((self.tenant_name, thread)) is owned:
            del self._held[self.tenant_name, thread]
            if owned.process != os.getpid():
                return  # it is that of the process that this one was forked from
            with suppress(NotOwner), storage_errors("release", thread):
                cast("LeasingStorage", self.storage).release(owned.lease)

    def release(self, thread: str | None = None) -> None:
        """Let a thread go that this ledger owns or has claimed; all of them, if you name none.

        If another worker has it by now, it stays theirs.
        """
        for (tenant, name), owned in list(self._held.items()):
            if tenant == self.tenant_name and thread in (None, name):
                self.disown(owned)

    def owner(self, thread: str) -> str | None:
        """Return the name of the worker whose lease on a thread counts, None if it is free.

        A lease that has ended counts until somebody owns the thread after it: until then the
        storage refuses what anybody else saves.
        """
        lease = self._lease(thread)
        return None if lease is None else lease.owner

    def holder(self, thread: str) -> str | None:
        """Return the same, if that is another worker than this ledger's.

        A ledger that claims threads takes one over whose lease has ended.
        """
        lease, owned = self._lease(thread), self._mine(thread)
        if lease is None or (owned is not None and owned.lease.token == lease.token):
            return None
        if self.ownership != "unowned" and owned is None and lease.expires <= datetime.now(UTC):
            return None
        return lease.owner

    def keep(self, thread: str) -> None:
        """Renew the lease on a thread, if this ledger has one or claims one, before a step acts.

        Raises:
            NotOwner: another worker holds it.
        """
        if owned := self._mine(thread):
            self._renew(owned)
            return
        if self._claimed(thread) is not None:
            return
        other = self.holder(thread)
        held = other and f"is held by worker '{other}', and this ledger does not own it"
        with storage_errors("find the owner of", thread):
            foreign = getattr(self.storage, "foreign", None)  # of PostgreSQL, which knows logins
            if other is None and callable(foreign) and foreign(thread):
                held = "was written by another login, and this one has not acquired it"
        if held:
            raise NotOwner(
                f"Thread '{thread}' {held}.", "Own it first: what you save would be refused."
            )

    def _claimed(self, thread: str) -> Owned | None:
        """Return what this ledger owns of a thread, claimed or renewed if that is the policy."""
        owned, claim = self._mine(thread), self.ownership
        if not isinstance(claim, Claim):
            return owned
        if owned is None:
            with self._claiming:  # or two threads of this process would fence each other off
                if (owned := self._held.get((self.tenant_name, thread))) is None:
                    return self.own(thread, claim.owner, seconds=claim.seconds)
        if time.monotonic() - owned.renewed > owned.seconds / 2:
            self._renew(owned)
        return owned

    def _mine(self, thread: str) -> Owned | None:
        """Return what this ledger holds of a thread. What was claimed before a fork is left."""
        owned = self._held.get((self.tenant_name, thread))
        if owned and owned.process != os.getpid() and isinstance(self.ownership, Claim):
            self._held.pop((self.tenant_name, thread), None)
            return None
        return owned

    def _renew(self, owned: Owned) -> None:
        thread, storage = owned.lease.thread, cast("LeasingStorage", self.storage)
        with self.notes.watching("own", thread), storage_errors("lease", thread):
            owned.lease = storage.renew(owned.lease, owned.seconds)
        owned.renewed = time.monotonic()

    def _lease(self, thread: str) -> Lease | None:
        check_name("thread", thread)
        if not _has(self.storage, _LEASING):
            return None
        with storage_errors("find the owner of", thread):
            return cast("LeasingStorage", self.storage).lease(thread)

    def _require(self, methods: tuple[str, ...], said: str) -> None:
        if not _has(self.storage, methods):
            raise ConfigurationError(
                f"{type(self.storage).__name__} {said}.",
                f"Add the methods {', '.join(methods)} of safepoint.core.storage to it.",
            )


class _Said(NamedTuple):
    """What a record says of itself, besides its place, its time and its link."""

    kind: Kind
    app: str = ""
    tools: str | None = None
    label: str = ""


class Link:
    """A record on the way back: its header is verified, its state is decoded when you ask.

    Attributes:
        header: all of line 2: `app`, `created`, `previous`, `tools` and the rest.
        digest: the digest of it, which the record after it names.
        sequence: its place in the thread.
        kind: `state` or `note`.
        label: what it can be found by, or "".
        opened: the record, verified, with the bytes that the codec wrote.
    """

    def __init__(self, opened: Opened, decode: Callable[[Opened], Checkpoint]) -> None:
        self.header = header = opened.header
        self.sequence, self.kind, self.label = header.sequence, header.kind, header.label
        self.digest = opened.digest
        self.opened, self._decode = opened, decode

    def __repr__(self) -> str:
        return f"Link({self.header.place}, {self.kind}, label={self.label!r})"

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The whole of it, decoded once.

        Raises:
            DecodeError: it holds a type that the ledger's codec does not know.
        """
        return self._decode(self.opened)

    @property
    def state(self) -> Any:
        """The state, or what was noted, decoded once."""
        return self.checkpoint.state


@dataclass(eq=False)
class Owned:
    """A thread that a ledger owns, until the end of a `with`.

    Attributes:
        ledger: the ledger.
        lease: the lease as it was last renewed.
        seconds: for how long it is renewed before each step.
    """

    ledger: Ledger
    lease: Lease
    seconds: float
    renewed: float = field(default_factory=time.monotonic, init=False, repr=False)
    process: int = field(default_factory=os.getpid, init=False, repr=False)

    def release(self) -> None:
        """Let the thread go. If another worker has it by now, it stays theirs."""
        self.ledger.disown(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _has(value: object, methods: tuple[str, ...]) -> bool:
    return all(callable(getattr(value, method, None)) for method in methods)


def _count(name: str, value: int) -> int:
    if type(value) is not int or value < 1:
        raise ConfigurationError(
            f"{name} is {quoted(value)}, and must be a whole number from 1 up.",
            f"Write {name}=1, or more" + (', or "step".' if name == "anchor_every" else "."),
        )
    return value
