"""Ledger: a storage with its keys and its anchor, and all that an application talks to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, Self, cast

from safepoint.anchor import Anchor
from safepoint.codec import Codec
from safepoint.errors import (
    AnchorUnavailable,
    ApprovalMismatch,
    CheckpointError,
    ConfigurationError,
    Conflict,
    Forked,
    InvalidId,
    JournalError,
    JournalUnavailable,
    KeyRefused,
    KeyRevoked,
    NotFound,
    NotOwner,
    quoted,
)
from safepoint.journal import Actor, Event, Journal, Outcome, What
from safepoint.keys import Keyring
from safepoint.names import Head, Heads, check_name, check_sequence, check_store
from safepoint.record import Checkpoint, Kind, Opened, Place, reseal, seal
from safepoint.storage.base import (
    CheckpointStorage,
    Lease,
    LeasingStorage,
    RetentionStorage,
)
from safepoint.verify import (
    ANCHOR_GUARDS,
    JOURNAL,
    RETENTION,
    STORAGE,
    Progress,
    Span,
    View,
    anchor_errors,
    check_apart,
    check_count,
    check_frozen,
    check_kind,
    check_methods,
    check_other,
    check_span,
    has_methods,
    head_in,
    linked_record,
    refuse_deleted,
    span_of,
    storage_errors,
    texts,
    verify,
    walk,
)

NO_NEWS = (InvalidId, ConfigurationError, JournalError)
"""What a caller got wrong, or what the journal itself says: neither is about the store."""

READING = (*NO_NEWS, NotFound)
"""What is no news where somebody only reads."""

RESUMING = (InvalidId, JournalError)
"""What is no news about a resume, of which every refusal counts."""


class Journalled(Protocol):
    """A ledger, as far as its journal goes."""

    @property
    def store(self) -> str:
        """The name of the store."""

    @property
    def journal(self) -> Journal | None:
        """Where it is written down what happens."""

    @property
    def actor(self) -> Actor | None:
        """Who acts."""


class Notes:
    """A journal with the store and the actor filled in. Without a journal, nothing is written.

    Args:
        journal: where to write, or None.
        actor: who acts.
        store: the name of the store.
    """

    def __init__(self, journal: Journal | None, actor: Actor | None, store: str) -> None:
        self.journal = journal
        self.actor = actor if actor is not None or journal is None else Actor.process()
        self.store = store

    @classmethod
    def of(cls, ledger: Journalled) -> Notes:
        """Return the notes of a ledger."""
        return cls(ledger.journal, ledger.actor, ledger.store)

    def write(
        self,
        what: What,
        outcome: Outcome,
        thread: str | None = None,
        at: Head | None = None,
        detail: str = "",
        *,
        actor: Actor | None = None,
    ) -> None:
        """Write one line.

        Raises:
            JournalError: that is not possible, so what was intended must not happen.
        """
        who = actor or self.actor
        if self.journal is None or who is None:
            return
        sequence, digest = (None, None) if at is None else (at.sequence, at.digest)
        event = Event(what, outcome, who, self.store, thread, sequence, digest, detail)
        try:
            self.journal.record(event)
        except CheckpointError:
            raise
        except Exception as error:
            raise JournalUnavailable(
                f"The journal could not be written: it raised {type(error).__name__}.",
                "Nothing is done without it. See the error it came from, and mend the journal.",
            ) from error

    def refused(
        self, what: What, error: CheckpointError, thread: str | None = None, at: Head | None = None
    ) -> None:
        """Write that something was refused. The refusal stands, whether or not this succeeds."""
        # What differs between two questions is for whoever asked: it may be an argument's value.
        why = "it answers another question." if isinstance(error, ApprovalMismatch) else error.what
        with suppress(CheckpointError):
            self.write(what, "refused", thread, at, f"{type(error).__name__}: {why}")

    @contextmanager
    def watching(
        self,
        what: What,
        thread: str | None = None,
        at: Head | None = None,
        quiet: tuple[type[CheckpointError], ...] = NO_NEWS,
    ) -> Iterator[None]:
        """Write down each refusal of what is done in this block, but for the `quiet` ones."""
        try:
            yield
        except CheckpointError as error:
            if not isinstance(error, quiet):
                self.refused(what, error, thread, at)
            raise

    @contextmanager
    def doing(
        self, what: What, thread: str | None = None, at: Head | None = None, detail: str = ""
    ) -> Iterator[None]:
        """Write that something is intended, do it in this block, and write how it ended.

        Raises:
            JournalError: it cannot be written down, so it does not happen. At the end of the
                block, that it happened cannot be.
        """
        self.write(what, "intended", thread, at, detail)
        with self.watching(what, thread, at):
            yield
        self.write(what, "done", thread, at, detail)


NOTHING: Final = b"null"
"""The state of a record that has none: a base, a tombstone."""


def retaining(view: View) -> RetentionStorage:
    """Return the storage as one that can forget.

    Raises:
        ConfigurationError: it cannot.
    """
    if not has_methods(view.storage, RETENTION):
        raise ConfigurationError(
            f"{type(view.storage).__name__} cannot remove records.",
            f"Add the methods {', '.join(RETENTION)} of RetentionStorage to it.",
        )
    return cast("RetentionStorage", view.storage)


def statement(view: View, place: Place, kind: Kind, previous: str | None) -> tuple[bytes, Opened]:
    """Seal a record that has no state."""
    return seal(
        NOTHING, place, view.keys.signing, created=datetime.now(UTC), kind=kind, previous=previous
    )


def seal_base_anew(view: View, thread: str) -> None:
    """Put a base of our own key in the place of one whose key was revoked.

    Raises:
        CheckpointError: what it stands before does not verify. It is left as it is then.
    """
    try:
        view.base(thread)
    except KeyRevoked:
        first = view.first(thread)
        previous = view.open(thread, first).header.previous
        check_span(view, thread, Span(first, view.reach(thread, None), previous, None))
        cut(view, thread, first)


def cut(view: View, thread: str, first: int) -> int:
    """Leave a signed base at `first`, and remove what is before it.

    Returns:
        How many records were removed: none if another process has pruned further already.
    """
    storage = retaining(view)
    try:
        previous = view.open(thread, first).header.previous
    except NotFound:
        further = view.base(thread)
        if further is None or further.header.sequence <= first:
            raise
        return 0
    base, _ = statement(view, Place(view.store, thread, first), "base", previous)
    with storage_errors("prune", thread):
        return storage.prune(thread, first, base)


def required(view: View) -> Anchor:
    """Return the anchor.

    Raises:
        ConfigurationError: there is none.
    """
    if view.anchor is None:
        raise ConfigurationError(
            "This ledger has no anchor.", "Write Ledger(..., anchor=FileAnchor(path))."
        )
    return view.anchor


def move(view: View, thread: str, head: Head) -> None:
    """Tell the anchor where a thread ends now.

    Raises:
        AnchorError: it cannot be written, or has seen another record there.
    """
    with anchor_errors("be moved for", thread):
        required(view).advance(view.store, thread, head)


def anchor_now(view: View, thread: str) -> Head:
    """Verify a whole thread, and move the anchor to its head.

    Raises:
        ConfigurationError: there is no anchor.
        CheckpointError: there is no such thread, it does not verify, or the anchor cannot move.
    """
    required(view)
    verify(view, thread)
    head = view.latest(thread).head
    move(view, thread, head)
    return head


def settle(view: View, thread: str) -> None:
    """Let the anchor see the newest record, if there is an anchor and it has not yet.

    Raises:
        CheckpointError: the newest record does not verify, or the anchor cannot move.
    """
    if view.anchor is None:
        return
    anchored = view.anchored(thread)
    if anchored is None:
        anchor_now(view, thread)  # nothing vouches for the past yet, so all of it is looked at
        return
    head = view.latest(thread).head
    if head != anchored:
        move(view, thread, head)


def accept_loss(view: View, thread: str) -> tuple[Head | None, Head | None]:
    """Verify what there is of a thread, and set the anchor back to that.

    Raises:
        ConfigurationError: there is no anchor, or it cannot be set back.
        CheckpointError: what is there does not verify.
    """
    anchor = required(view)
    rewind = getattr(anchor, "rewind", None)
    if not callable(rewind):
        raise ConfigurationError(
            f"{type(anchor).__name__} cannot be set back.", "Do it where the anchor is kept."
        )
    before = view.anchored(thread)
    bare = View(view.storage, view.store, view.keys, None, view.limits)
    seal_base_anew(bare, thread)
    after = None
    for opened in walk(bare, thread):
        after = opened.head
    with anchor_errors("be set back for", thread):
        rewind(view.store, thread, after)
    view.forget(thread)
    return before, after


def copy_thread(
    source: View, target: View, thread: str, progress: Progress | None, up_to: Heads | None
) -> int:
    """Verify a thread, then copy each record under the target's key, up to a head if one is given.

    What is there already is compared and left alone, so an interrupted copy goes on where it was.

    Returns:
        How many records there are to copy.

    Raises:
        Conflict: the target has another record at some place.
        CheckpointError: the source does not verify. Unless somebody changed it meanwhile, nothing
            of this thread was copied then.
    """
    end = None if up_to is None else head_in(up_to, source.store, thread)
    if up_to is not None and end is None:
        return 0
    for _ in walk(source, thread, end=end):
        pass  # each signature, too: with links alone, one that is broken would show half-way
    count = 0
    for count, opened in enumerate(walk(source, thread, progress, end=end), start=1):
        if count == 1 and opened.header.sequence > 1:
            _put_first(target, thread, opened)
        else:
            _put(target, thread, opened)
        last = opened.head
    if count and target.anchor is not None:
        move(target, thread, last)
    return count


def _put_first(target: View, thread: str, opened: Opened) -> None:
    """Copy the record that a pruned thread begins with, and leave a base of our own there."""
    storage, first = retaining(target), opened.header.sequence
    _put(target, thread, opened)
    place = Place(target.store, thread, first)
    record, _ = statement(target, place, "base", opened.header.previous)
    with storage_errors("prune", thread):
        storage.prune(thread, first, record)


def _put(target: View, thread: str, opened: Opened) -> None:
    sequence = opened.header.sequence
    try:
        with storage_errors("keep", thread):
            target.storage.append(thread, sequence, reseal(opened, target.keys.signing))
    except Conflict:
        try:
            same = target.open(thread, sequence).digest == opened.digest
        except NotFound:  # it was pruned there
            same = False
        if not same:
            raise Conflict(
                f"{thread} #{sequence} is another record in the storage to copy to, or was pruned"
                " there.",
                "Nothing was overwritten. Copy into a new, empty storage.",
            ) from None


LEASING = ("acquire", "renew", "release", "lease")


class Owner:
    """The leases that a ledger holds.

    Args:
        storage: where the leases are, if it knows of any.
        notes: where to write that a thread was taken.
    """

    def __init__(self, storage: CheckpointStorage, notes: Notes) -> None:
        self._storage = storage
        self._notes = notes
        self._held: dict[str, Lease] = {}
        self._seconds: dict[str, float] = {}

    def fence(self, thread: str) -> int | None:
        """Return the token that a save to this thread must carry, or None if it has no owner."""
        lease = self._held.get(thread)
        return None if lease is None else lease.token

    def held(self, thread: str) -> Lease | None:
        """Return the lease that this ledger holds on a thread, or held when it last looked."""
        return self._held.get(thread)

    def holder_at_time(self, thread: str, now: datetime) -> str | None:
        """Return who owns the thread: this ledger's worker, another one, or None."""
        lease = self._holder(thread)
        own = self._held.get(thread)
        if lease is None:
            return None
        if own is not None and own.token == lease.token:
            return own.owner
        return lease.owner if lease.expires > now else None

    def other(self, thread: str) -> str | None:
        """Return who else holds a thread, also if their lease has ended; None if nobody does.

        The storage refuses what anybody but the holder saves, until another one takes the thread.
        """
        lease = self._holder(thread)
        own = self._held.get(thread)
        if lease is None or (own is not None and own.token == lease.token):
            return None
        return lease.owner

    def _holder(self, thread: str) -> Lease | None:
        if not has_methods(self._storage, LEASING):
            return None
        with storage_errors("find the owner of", thread):
            return cast("LeasingStorage", self._storage).lease(thread)

    def acquire(self, thread: str, worker: str, seconds: float) -> Owned:
        """Take a thread that is free, expired or the worker's own."""
        storage = self._leasing()
        if thread in self._held:
            raise ConfigurationError(
                f"This ledger owns {thread} already.",
                "Use what own returned, or release it first.",
            )
        with self._notes.watching("own", thread), storage_errors("lease", thread):
            lease = storage.acquire(thread, worker, seconds)
        try:
            detail = f"{lease.owner} with token {lease.token}"
            self._notes.write("own", "done", thread, detail=detail)
        except BaseException:
            storage.release(lease)
            raise
        self._held[thread], self._seconds[thread] = lease, seconds
        return Owned(self, thread)

    def keep(self, thread: str) -> None:
        """Renew the lease on a thread, if this ledger holds one.

        Raises:
            NotOwner: another worker holds it.
        """
        if thread in self._held:
            self.renew(thread)
            return
        other = self.other(thread)
        if other is not None:
            raise NotOwner(
                f"Thread '{thread}' is held by worker '{other}', and this ledger does not own it.",
                "Own it first: what you save would be refused.",
            )
        if has_methods(self._storage, ("foreign",)):
            with storage_errors("find the owner of", thread):
                foreign = cast("Any", self._storage).foreign(thread)
            if foreign:
                raise NotOwner(
                    f"Thread '{thread}' was written by another login, and this one has not acquired"
                    " it.",
                    "Own it first: what you save would be refused.",
                )

    def renew(self, thread: str) -> Lease:
        """Keep a thread for as long again, unless another worker has it by now.

        Raises:
            NotOwner: another worker has.
        """
        lease = self._held.get(thread)
        if lease is None:
            raise NotOwner(
                f"This ledger does not own {thread}.",
                'Take it first: with ledger.own("order-7", worker="worker-1").',
            )
        with self._notes.watching("own", thread), storage_errors("lease", thread):
            self._held[thread] = self._leasing().renew(lease, self._seconds[thread])
        return self._held[thread]

    def release(self, thread: str) -> None:
        """Let a thread go. If another worker has it by now, it stays theirs."""
        lease = self._held.pop(thread, None)
        if lease is None:
            return
        try:
            with storage_errors("release", thread):
                self._leasing().release(lease)
        except NotOwner:
            return

    def _leasing(self) -> LeasingStorage:
        if not has_methods(self._storage, LEASING):
            raise ConfigurationError(
                f"{type(self._storage).__name__} knows no owners.",
                f"Add the methods {', '.join(LEASING)} of LeasingStorage to it.",
            )
        return cast("LeasingStorage", self._storage)


class Owned:
    """A thread that this ledger owns, until the end of a `with`.

    Attributes:
        thread: the thread.
    """

    def __init__(self, owner: Owner, thread: str) -> None:
        self._owner: Final = owner
        self.thread: Final = thread

    @property
    def lease(self) -> Lease:
        """The lease as it is now.

        Raises:
            NotOwner: it was released.
        """
        lease = self._owner.held(self.thread)
        if lease is None:
            raise NotOwner(f"{self.thread} was released.", "Own it again.")
        return lease

    def renew(self) -> Lease:
        """Keep the thread for as long again, from now on.

        Raises:
            NotOwner: another worker has it by now. Stop: what you save is refused.
        """
        return self._owner.renew(self.thread)

    def release(self) -> None:
        """Let the thread go."""
        self._owner.release(self.thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


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
        with storage_errors("keep", thread):
            self.storage.append(thread, opened.header.sequence, record, **self._fence(thread))
        self._appended(thread, opened, anchored, now=now)

    def _follow(
        self, thread: str, record: bytes, opened: Opened, anchored: Head | None, *, now: bool
    ) -> bool:
        """Append if the thread still ends where this process saw it end, and tell if it did."""
        with storage_errors("keep", thread):
            storage = cast("Any", self.storage)
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
                move(self._view, thread, head)
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
    """Return what a ledger hands out for a record that was opened."""
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


class Ownership(Parts):
    """The part of a ledger that says who writes a thread."""

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
        return self._owner.acquire(check_name("thread", thread), worker, seconds)

    def owner(self, thread: str) -> str | None:
        """Return the name of the worker that owns a thread now, or None if it is free."""
        return self.owner_at_time(thread, datetime.now(UTC))

    def owner_at_time(self, thread: str, now: datetime) -> str | None:
        """Return the name of the worker that owns a thread at that time, or None."""
        return self._owner.holder_at_time(check_name("thread", thread), now)

    def holder(self, thread: str) -> str | None:
        """Return the name of another worker whose lease on a thread counts, also if it has ended.

        Until somebody owns the thread after it, the storage refuses what anybody else saves.
        """
        return self._owner.other(check_name("thread", thread))

    def worker(self, thread: str) -> str | None:
        """Return under which name this ledger owns a thread, or None if it does not."""
        lease = self._owner.held(thread)
        return None if lease is None else lease.owner

    def keep(self, thread: str) -> None:
        """Renew the lease on a thread, if this ledger has one, before a step acts.

        Raises:
            NotOwner: another worker holds it.
        """
        self._owner.keep(thread)


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
        with storage_errors("list", "the threads"):
            names = texts(self.storage.threads())
        if self.anchor is not None:
            with anchor_errors("list", "the threads"):
                names |= texts(self.anchor.threads(self.store))
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
            return anchor_now(self._view, thread)

    def settle(self, thread: str) -> None:
        """Let the anchor see the newest checkpoint, if there is an anchor and it has not yet.

        A workflow does this before it goes on: what a step acts upon cannot be cut off unnoticed.

        Raises:
            CheckpointError: the newest checkpoint does not verify, or the anchor cannot move.
        """
        check_name("thread", thread)
        with self._notes.watching("verify", thread, quiet=READING):
            settle(self._view, thread)

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
        check_count("keep", keep)
        retaining(self._view)
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
            return cut(self._view, thread, first)

    def delete(self, thread: str) -> Head:
        """Delete a thread, and leave a signed record that says so. Its name stays taken.

        Interrupted, it can be called again, and finishes.

        Raises:
            NotFound: the thread has no checkpoint.
            ConfigurationError: the storage cannot remove records.
            CheckpointError: the thread does not verify. Nothing was removed.
        """
        retaining(self._view)
        self.verify(thread)
        opened = self._view.latest(thread)
        if opened.header.kind != "deleted":
            anchored = self._view.anchored(thread)
            place = Place(self.store, thread, opened.header.sequence + 1)
            record, opened = statement(self._view, place, "deleted", opened.digest)
            self._notes.write("delete", "intended", thread, opened.head)
            with self._notes.watching("delete", thread, opened.head):
                self._append(thread, record, opened, anchored, now=self.anchor is not None)
        elif self.anchor is not None:
            self.anchor_now(thread)  # whoever wrote it may have died before this
        with self._notes.watching("delete", thread, opened.head):
            cut(self._view, thread, opened.header.sequence)
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
        check_kind("target", target, Upkeep, "Ledger(FileCheckpointStorage(path), ...)")
        if target.store != self.store:
            raise ConfigurationError(
                f"A record of store {self.store} means nothing in store {target.store}.",
                f"Open the target with store={self.store!r}.",
            )
        check_other(self.storage, target.storage)
        if isinstance(threads, str) or not isinstance(threads, (Iterable, type(None))):
            raise ConfigurationError(
                f"copy_to was given {type(threads).__name__} as threads.",
                'Write threads=["order-7"].',
            )
        if up_to is not None:
            check_methods("an anchor as up_to", up_to, ("read",), "FileAnchor(anchor_path)")
        names = self.threads() if threads is None else [check_name("thread", t) for t in threads]
        done = 0
        for thread in names:
            with self._notes.doing("copy", thread, detail=f"to {target!r}"):
                done += copy_thread(self._view, target._view, thread, progress, up_to)
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
            return accept_loss(self._view, thread)


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
        check_kind("keys", keys, Keyring, "Keyring(SigningKey.from_file(path))")
        check_kind("codec", codec, (Codec, type(None)), "Codec([Invoice])")
        check_count("anchor_every", anchor_every)
        check_methods("a storage", storage, STORAGE, "FileCheckpointStorage(storage_path)")
        if anchor is not None:
            check_methods("an anchor", anchor, ANCHOR_GUARDS, "FileAnchor(anchor_path)")
        if journal is not None:
            check_methods("a journal", journal, JOURNAL, "FileJournal(path, keys=...)")
        check_kind("actor", actor, (Actor, type(None)), 'Actor("worker-1", "its login")')
        check_apart(storage, keys, anchor, journal)
        check_frozen(keys, anchor)
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
            required(self._view)
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
        if self._notes.journal is not None or not has_methods(self.storage, ("follow",)):
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
