"""What a store holds, as far as it can be vouched for: seals, links, and what the anchor says.

It writes nothing. The anchor is always asked before the storage. A save writes the storage first,
so a save at the same moment, or one that was killed between its two writes, can only make the
storage longer than the anchor, and that is no alarm. A prune moves the anchor first and removes
records after it, so what is missed while the anchor moves is looked for again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from safepoint.core.anchor import Anchor
from safepoint.core.errors import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    DecodeError,
    JournalUnavailable,
    KeyRefused,
    KeyRevoked,
    NotFound,
    RecordsMissing,
    SealError,
    StorageUnavailable,
    ThreadDeleted,
    WrongPlace,
    shell,
)
from safepoint.core.keys import Keyring
from safepoint.core.names import Head, Heads, Limits, check_tenant
from safepoint.core.record import (
    ANCHOR,
    PROCESS,
    Cipher,
    Opened,
    Place,
    Use,
    check_follows,
    check_is,
    check_reaches,
    open_sealed,
)
from safepoint.core.storage import CheckpointStorage

_End = tuple[int, bytes | None]
"""The last sequence of a thread, and the record there, if the storage gave it along."""

_REMEMBERED = 1024
_ATTEMPTS = 5
_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Translated:
    """Turns whatever custom code raises in the block into an error of the tree."""

    __slots__ = ("_do", "_to", "_what")

    def __init__(self, to: type[CheckpointError], do: str, *what: object) -> None:
        self._to, self._do, self._what = to, do, what

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, CheckpointError):
            what = " ".join(map(str, self._what))
            raise self._to(f"{what}: it raised {type(error).__name__}.", self._do) from error


def storage_errors(doing: str, what: object) -> _Translated:
    """Turn whatever a custom storage raises into an error of the tree."""
    do = "See the error it came from, and make the storage raise errors of safepoint.core.errors."
    return _Translated(StorageUnavailable, do, "The storage could not", doing, what)


def anchor_errors(doing: str, what: str) -> _Translated:
    """Turn whatever a custom anchor raises into an error of the tree."""
    do = "Nothing is loaded without it. See the error it came from, and mend the anchor."
    return _Translated(AnchorUnavailable, do, "The anchor could not", doing, what)


def journal_errors() -> _Translated:
    """Turn whatever a custom journal raises into an error of the tree."""
    do = "Nothing is done without it. See the error it came from, and mend the journal."
    return _Translated(JournalUnavailable, do, "The journal could not be written")


def cipher_errors(to: type[CheckpointError], doing: str) -> _Translated:
    """Turn whatever a cipher raises into an error of the tree."""
    do = "See the error it came from, and give the ledger a cipher that has the key."
    return _Translated(to, do, "The cipher could not", doing, "the state")


def plain_of(opened: Opened, cipher: Cipher | None) -> bytes:
    """Return what the codec wrote. Whether that is encrypted says the reader, not the record.

    Raises:
        DecodeError: the record says otherwise, or the cipher cannot read it.
    """
    key, shown = opened.header.cipher, opened.header.place
    if cipher is None:
        if key is not None:
            raise DecodeError(
                f"{shown} is encrypted under key {key}, and this ledger has no cipher.",
                "Nothing was decoded. Open the ledger with the cipher of this store.",
            )
        return opened.payload
    if key is None:
        raise DecodeError(
            f"{shown} is not encrypted, and this ledger has a cipher.",
            "Nothing was decoded: a record never chooses plaintext. Find out who wrote it.",
        )
    with cipher_errors(DecodeError, "decrypt"):
        plain = cipher.open(opened.payload, key, opened.header.place)
        if type(plain) is not bytes:
            raise TypeError
    return plain


def scoped(value: Any, tenant: str) -> Any:
    """Return what a storage or an anchor keeps of one tenant.

    Raises:
        ConfigurationError: it keeps no tenants apart.
    """
    if not all(callable(getattr(value, method, None)) for method in ("tenant", "tenants")):
        raise ConfigurationError(
            f"{type(value).__name__} knows no tenants.",
            "Add the methods tenant and tenants of safepoint.core.storage to it.",
        )
    return value.tenant(tenant)


class Seen(NamedTuple):
    """The end of a thread as this process last saw it.

    Attributes:
        head: its last record.
        anchored: what the anchor said at the time.
        state: the sequence of its newest state; None if notes follow that, and nobody looked.
    """

    head: Head
    anchored: Head | None
    state: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """What there is of a thread.

    Attributes:
        first: the first sequence that is kept.
        head: the last one; lower than `first` if there is none.
        previous: the digest that the first record must name.
        anchored: what the anchor has seen.
    """

    first: int
    head: int
    previous: str | None
    anchored: Head | None


def _settled(
    look: Callable[Concatenate[View, str, Head | None, _P], _T],
) -> Callable[Concatenate[View, str, _P], _T]:
    """Ask the anchor, then look at the storage; again if a prune came between the two."""

    @wraps(look)
    def looked(self: View, thread: str, /, *args: _P.args, **options: _P.kwargs) -> _T:
        anchored, first = self.anchored(thread), 1
        for _ in range(_ATTEMPTS):
            try:
                return look(self, thread, anchored, *args, **options)
            except (NotFound, RecordsMissing):
                before = anchored, first
                anchored, first = self.anchored(thread), self.first(thread)
                if before == (anchored, first):
                    raise
        return look(self, thread, anchored, *args, **options)

    return looked


class View:
    """Reads records and vouches for them.

    Args:
        storage: where they are.
        store: the name of the store.
        keys: which keys to trust.
        anchor: what has seen the end of each thread, if anything has.
        limits: how large a record may be.
        use: what they were signed as.
        tenant: whose they are, or "". Storage and anchor are that tenant's.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        store: str,
        keys: Keyring,
        anchor: Anchor | None,
        limits: Limits,
        use: Use = "record",
        tenant: str = "",
    ) -> None:
        self.storage = storage
        self.store = store
        self.keys = keys
        self.anchor = anchor
        self.limits = limits
        self.use = use
        self.tenant = tenant
        self._seen: dict[str, Seen] = {}

    def of(self, tenant: str) -> View:
        """Return what is seen of one tenant.

        Raises:
            ConfigurationError: the storage or the anchor knows no tenants, or this is another
                tenant's view.
        """
        if tenant == self.tenant:
            return self
        check_tenant(tenant, self.tenant)
        storage, anchor = scoped(self.storage, tenant), self.anchor and scoped(self.anchor, tenant)
        return View(storage, self.store, self.keys, anchor, self.limits, self.use, tenant)

    def threads(self) -> list[str]:
        """Return the names that the storage has or the anchor knows: one that is gone shows."""
        with storage_errors("list", "the threads"):
            names = set(self.storage.threads())
        if self.anchor is not None:
            with anchor_errors("list", "the threads"):
                names.update(self.anchor.threads(self.store))
        return sorted(names)

    def tenants(self) -> list[str]:
        """Return the names of the tenants that the storage has or the anchor knows."""
        with storage_errors("list", "the tenants"):
            names = set(map(check_tenant, getattr(self.storage, "tenants", list)()))
        if self.anchor is not None:
            with anchor_errors("list", "the tenants"):
                known = getattr(self.anchor, "tenants", lambda _: ())
                names.update(map(check_tenant, known(self.store)))
        return sorted(names)

    # --- the end of a thread

    def anchored(self, thread: str) -> Head | None:
        """Return what the anchor has seen of a thread."""
        return None if self.anchor is None else head_in(self.anchor, self.store, thread)

    @_settled
    def tip(self, thread: str, anchored: Head | None) -> Seen | None:
        """Return where a thread ends and what the anchor has seen, None for a new thread.

        Raises:
            ThreadDeleted: the thread was deleted.
            CheckpointError: its end does not verify, or does not extend what the anchor has seen.
        """
        number = self.reach(thread, anchored)
        if not number:
            return None
        seen = self._seen.get(thread)
        if seen and seen.head.sequence == number and anchored in (seen.anchored, seen.head):
            return seen._replace(anchored=anchored)  # this process made or verified it
        opened = self._end(thread, (number, None), anchored)
        refuse_deleted(opened)
        return Seen(opened.head, anchored, _state_in(opened))

    def remembered(self, thread: str) -> Seen | None:
        """Return the same without a look at the storage, or None if this process does not know.

        It is for whoever appends next, to a storage that takes a record after the last one alone.
        """
        seen = self._seen.get(thread)
        if seen is None:
            return None
        anchored = self.anchored(thread)
        known = anchored in (seen.anchored, seen.head)
        return seen._replace(anchored=anchored) if known else None

    @_settled
    def latest(
        self, thread: str, anchored: Head | None, *, anew: bool = False, state: bool = False
    ) -> Opened:
        """Return the newest record, verified, as one that extends what the anchor has seen.

        Args:
            thread: the thread.
            anchored: what the anchor has seen of it.
            anew: whether to follow links, too, that this process has followed before.
            state: whether to follow them back over notes, to the newest record that is none.

        Raises:
            NotFound: the thread has none.
            CheckpointError: it does not verify, or does not extend what the anchor has seen.
        """
        end = self._reach(thread, anchored, whole=True)
        if end[0]:
            opened = self._end(thread, end, anchored, anew=anew)
            if not state or opened.header.kind != "note":
                return opened
            for before in self._before(opened):
                if before.header.kind != "note":
                    return before
        raise NotFound(
            f"There is no checkpoint of {thread} in {self.place(thread, 1).owner}.",
            "Check the name of the thread and the storage's path. If both are right, nothing was"
            " saved yet.",
        )

    def back(self, thread: str, *, anew: bool = False) -> Iterator[Opened]:
        """Return each record, newest first, by the digest that the one after it names.

        Args:
            thread: the thread.
            anew: as in `latest`.

        Raises:
            CheckpointError: one does not verify. Those after it were already handed out.
        """
        opened = self.latest(thread, anew=anew)
        yield opened
        yield from self._before(opened)

    def _before(self, opened: Opened) -> Iterator[Opened]:
        thread = opened.header.thread
        base = self.base(thread)
        first = 1 if base is None else base.header.sequence
        for place, record in self._records(
            thread, range(opened.header.sequence - 1, first - 1, -1)
        ):
            opened = self._open(record, place, digest=opened.header.previous)
            yield opened
        if opened.header.sequence == first:  # or it was pruned meanwhile, further than this
            check_follows(opened, base.header.previous if base else None)

    def _end(self, thread: str, end: _End, anchored: Head | None, *, anew: bool = False) -> Opened:
        """Open the record at the end, and check that it extends what is known."""
        number, record = end
        if record is None:
            opened = self._kept(thread, number, number)
        else:
            opened = self._open(record, self.place(thread, number))
        seen, head = self._seen.get(thread), opened.head
        if seen is not None and seen.head.sequence == number:
            check_is(opened, seen.head, PROCESS)
        state = seen.state if seen and seen.head == head else _state_in(opened)
        if anchored is not None and (anew or seen != (head, anchored, state)):
            self._check_extends(opened, anchored)
        if opened.header.kind != "deleted":
            self.remember(thread, head, anchored, state)
        return opened

    def reach(self, thread: str, anchored: Head | None) -> int:
        """Return the last sequence in the storage, 0 if there is none.

        Raises:
            RolledBack: the anchor, or this process, has seen more.
        """
        return self._reach(thread, anchored)[0]

    def _reach(self, thread: str, anchored: Head | None, *, whole: bool = False) -> _End:
        """Return the same with the record there, if the storage has a method that gives both."""
        seen = self._seen.get(thread)  # before asking the storage: others may save meanwhile
        with storage_errors("find the latest of", thread):
            newest = getattr(self.storage, "newest", None) if whole else None
            head, record = newest(thread) if newest else (self.storage.head(thread), None)
            if type(head) is not int or head < 0 or not isinstance(record, (bytes, NoneType)):
                raise TypeError
        check_reaches(thread, head, anchored, ANCHOR)
        check_reaches(thread, head, seen and seen.head, PROCESS)
        return head, record

    def remember(
        self, thread: str, head: Head, anchored: Head | None, state: int | None = None
    ) -> None:
        """Keep in mind where a thread ends, so that it cannot shrink unnoticed."""
        if len(self._seen) >= _REMEMBERED:
            for oldest in list(self._seen)[: _REMEMBERED // 2]:
                self._seen.pop(oldest, None)
        self._seen.pop(thread, None)
        self._seen[thread] = Seen(head, anchored, state)

    def forget(self, thread: str) -> None:
        """Drop what this process remembers of a thread."""
        self._seen.pop(thread, None)

    # --- one record

    def place(self, thread: str, sequence: int) -> Place:
        """Return where a record of this view belongs."""
        return Place(self.store, self.tenant, thread, sequence)

    @_settled
    def at(self, thread: str, anchored: Head | None, sequence: int) -> Opened:
        """Return the record at `sequence`, verified.

        Raises:
            NotFound: there is none.
            ThreadDeleted: the thread was deleted.
            CheckpointError: it does not verify, or contradicts what the anchor has seen.
        """
        number = self.reach(thread, anchored)
        if number > sequence:
            self._refuse_ended(thread, number, anchored)
        opened = self._kept(thread, sequence, number)
        if anchored is not None and anchored.sequence <= sequence:
            self._check_extends(opened, anchored)
        return opened

    def linked(self, thread: str, sequence: int) -> Opened:
        """Return one record after following every link from the thread's end back to it."""
        self.at(thread, sequence)  # whether there is such a record, in the words of a plain load
        for opened in self.back(thread, anew=True):
            if opened.header.sequence == sequence:
                return opened
        raise _pruned_meanwhile(thread)

    @_settled
    def refuse_ended(self, thread: str, anchored: Head | None) -> None:
        """Refuse a thread that was deleted, before anything older of it is handed out.

        Raises:
            ThreadDeleted: it was.
            CheckpointError: the record that the anchor has seen does not verify.
        """
        self._refuse_ended(thread, self.reach(thread, anchored), anchored)

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
            raise _pruned_beyond(thread, anchored) from None
        check_is(opened, anchored, ANCHOR)
        refuse_deleted(opened)
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
            raise _gone(thread, sequence) from None

    def open(self, thread: str, sequence: int, *, digest: str | None = None) -> Opened:
        """Return one record, verified by its seal alone, or by a digest that is known."""
        place = self.place(thread, sequence)
        with storage_errors("read", place):
            record = self.storage.read(thread, sequence)
            if type(record) is not bytes:
                raise TypeError
        return self._open(record, place, digest=digest)

    def _open(
        self, record: bytes, place: Place, *, digest: str | None = None, base: bool = False
    ) -> Opened:
        return open_sealed(
            record, place, self.keys, base=base, digest=digest, limits=self.limits, use=self.use
        )

    # --- the beginning

    def base(self, thread: str) -> Opened | None:
        """Return what `prune` left of a thread's beginning, verified, or None if all is there."""
        found = self._stored_base(thread)
        if found is None:
            return None
        first, record = found
        return self._open(record, self.place(thread, first), base=True)

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

    # --- the whole thread

    @_settled
    def span(self, thread: str, anchored: Head | None) -> Span:
        """Find where a thread begins and ends, by what the base and the anchor vouch for.

        Raises:
            CheckpointError: the base does not verify, or the thread ends before it or the anchor.
        """
        try:
            base = self.base(thread)
        except SealError:
            self.reach(thread, anchored)  # that something was cut off matters more
            raise
        head = self.reach(thread, anchored)
        if base is None:
            return Span(1, head, None, anchored)
        span = Span(base.header.sequence, head, base.header.previous, anchored)
        if anchored is not None and anchored.sequence < span.first:
            raise _pruned_beyond(thread, anchored)
        if head < span.first:
            raise RecordsMissing(
                f"{thread} was pruned to begin at #{span.first}, and ends before it.",
                "Checkpoints were cut off, or the base is of a longer copy. Restore both from a"
                " copy that verifies.",
            )
        return span

    def walk(self, thread: str, *, end: Head | None = None) -> Iterator[Opened]:
        """Return each record, oldest first, after its seal and its link were checked.

        Args:
            thread: the thread.
            end: the record to end with. What follows it is not looked at.

        Raises:
            CheckpointError: one does not verify. Those before it were already handed out.
        """
        span = self.span(thread)
        if end is not None:
            check_reaches(thread, span.head, end, ANCHOR)
            if end.sequence < span.first:
                raise _pruned_beyond(thread, end)
            span = replace(span, head=end.sequence)
        for opened in self.along(thread, span):
            if end is not None and opened.header.sequence == end.sequence:
                check_is(opened, end, ANCHOR)
            yield opened

    def along(self, thread: str, span: Span) -> Iterator[Opened]:
        """Return each record of a span, after its seal and its link were checked."""
        previous = span.previous
        for place, record in self._records(thread, range(span.first, span.head + 1)):
            opened = self._open(record, place)
            check_follows(opened, previous)
            _check_last_words(opened, span)
            if span.anchored is not None and place.sequence == span.anchored.sequence:
                check_is(opened, span.anchored, ANCHOR)
            previous = opened.digest
            yield opened

    @_settled
    def verify(self, thread: str, _: Head | None, *, every_signature: bool = False) -> int:
        """Check each record and each link of a thread, and return how many records there are.

        Where the head is anchored, the links carry the proof: the anchor vouches for one digest,
        that record names the one before it, and so on back to the first. Signatures are checked at
        the head and on what is newer than the anchor.

        Raises:
            CheckpointError: one does not verify.
        """
        span = self.span(thread)
        if every_signature or span.anchored is None:
            return sum(1 for _ in self.along(thread, span))
        return self._verify_links(thread, span, span.anchored)

    def _verify_links(self, thread: str, span: Span, anchored: Head) -> int:
        """Follow the links from the anchored record to the first."""
        with suppress(ThreadDeleted):  # what follows a tombstone is found below
            self.latest(thread, anew=True)
        digest: str | None = anchored.digest
        found = self._records(thread, range(anchored.sequence, span.first - 1, -1))
        for place, record in found:
            opened = self._open(record, place, digest=digest)
            _check_last_words(opened, span)
            digest = opened.header.previous
        check_follows(opened, span.previous)
        return span.head - span.first + 1

    def _records(self, thread: str, sequences: range) -> Iterator[tuple[Place, bytes]]:
        """Return the records of a range that must all be there, as fast as the storage can.

        Raises:
            RecordsMissing: one is gone.
            NotFound: one was pruned meanwhile.
        """
        sequence = 0
        try:
            with storage_errors("read", thread):
                scan = getattr(self.storage, "scan", None)
                found = (
                    scan(thread, sequences[0], sequences[-1])
                    if sequences and callable(scan)
                    else (self.storage.read(thread, sequence) for sequence in sequences)
                )
                following = iter(found)
                for sequence in sequences:
                    record = next(following)
                    if type(record) is not bytes:
                        raise TypeError
                    yield self.place(thread, sequence), record
        except NotFound as error:
            base = self.base(thread)
            if base is not None and sequence < base.header.sequence:
                raise _pruned_meanwhile(thread) from error
            raise _gone(thread, sequence) from error


def head_in(heads: Heads, store: str, thread: str) -> Head | None:
    """Return what an anchor, or a copy of one, has seen of a thread.

    Raises:
        AnchorError: it cannot be asked, or is the anchor of another store.
    """
    with anchor_errors("be asked about", thread):
        head = heads.read(store, thread)
        if head is None or (type(head) is Head and head.seen and head.seen.tzinfo is UTC):
            return head
        seen = None if head.seen is None else head.seen.astimezone(UTC)
        return Head(head.sequence, head.digest, seen)


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


def _state_in(opened: Opened) -> int | None:
    return None if opened.header.kind == "note" else opened.header.sequence


def _gone(thread: str, sequence: int) -> RecordsMissing:
    """Say that a record is missing that nothing signed says was pruned."""
    return RecordsMissing(
        f"{thread} #{sequence} is gone, and nothing signed says that it was pruned.",
        "Somebody removed it. Restore it from a copy that verifies.",
    )


def _pruned_meanwhile(thread: str) -> NotFound:
    return NotFound(f"{thread} was pruned while it was read.", "Nothing is wrong: read it again.")


def _pruned_beyond(thread: str, anchored: Head) -> RecordsMissing:
    """Say that the record that the anchor vouches for is no longer there."""
    return RecordsMissing(
        f"{thread} {anchored}, which the anchor has seen, is not in the storage, and later ones"
        " are.",
        "Restore it from a backup. If a ledger without the anchor pruned it, accept that by name"
        " with Ledger.accept_loss.",
    )


def _check_last_words(opened: Opened, span: Span) -> None:
    header = opened.header
    if header.kind == "deleted" and header.sequence != span.head:
        raise WrongPlace(
            f"{header.thread} #{header.sequence} says that the thread was deleted, and others"
            " follow it.",
            "Whoever wrote those had the key and not this package. Replace the key.",
        )


def check_apart(storage: Any, keys: Keyring, anchor: Any, journal: Any = None) -> None:
    """Refuse a key, an anchor or a journal that whoever can write the storage could write too.

    Raises:
        KeyRefused: a key's file is inside the storage folder, or one is the journal's, too.
        ConfigurationError: the anchor or the journal is inside the storage folder, or around it.
    """
    journals = {key.id for key in getattr(journal, "keys", ())}
    for key in keys:
        if key.id in journals:
            raise KeyRefused(
                f"Key {key.id} is the ledger's and the journal's.",
                "Whoever has it could write down what nobody did. Give the journal a key of its"
                " own.",
            )
    folder = _home(storage)
    if folder is None:
        return
    for key in keys:
        if key.path is not None and key.path.resolve().is_relative_to(folder):
            raise KeyRefused(
                f"The key {shell(str(key.path))} is inside the storage folder.",
                "Whoever reads the storage would hold the key. Move it to a folder of its own, and"
                " replace it if anyone may have read it.",
            )
    points = [revoked.until for revoked in map(keys.revoked, (key.id for key in keys)) if revoked]
    others = [("anchor", _home(each)) for each in (anchor, *points)]
    for name, apart in [*others, ("journal", _home(journal))]:
        if apart and (apart.is_relative_to(folder) or folder.is_relative_to(apart)):
            raise ConfigurationError(
                f"The {name} {shell(str(apart))} is in one place with the storage"
                f" {shell(str(folder))}.",
                f"Whoever changes or rolls back one could do so to the other. Give the {name} a"
                " folder elsewhere, best of another user or machine.",
            )


def check_other(storage: object, target: object) -> None:
    """Refuse to copy a storage into itself, where every record would be left as it is.

    Raises:
        ConfigurationError: both are one.
    """
    folder = _folder(storage)
    if storage is target or (folder is not None and folder == _folder(target)):
        raise ConfigurationError(
            "Source and target are one storage, so nothing would be sealed anew.",
            "Copy into a new, empty storage, and use that one from then on.",
        )


def check_frozen(keys: Keyring, anchor: Any) -> None:
    """Refuse an anchor that moves as the point up to which a revoked key counts.

    Raises:
        ConfigurationError: a key is revoked until the ledger's own anchor, or there is none.
    """
    for key in keys:
        revoked = keys.revoked(key.id)
        until = None if revoked is None else revoked.until
        if until is None:
            continue
        if anchor is None:
            raise ConfigurationError(
                f"Key {key.id} is revoked from a point on, and this ledger has no anchor.",
                "Without one, a thief could rewrite what is before the point. Write Ledger(...,"
                " anchor=SQLiteAnchor(path)).",
            )
        folder = _folder(anchor)
        if until is anchor or (folder is not None and folder == _folder(until)):
            raise ConfigurationError(
                f"Key {key.id} is revoked until the anchor that this ledger moves.",
                "Each save would move the point, too. Give a copy that nobody writes any more:"
                ' until=SQLiteAnchor("before/heads.db").',
            )


def _folder(value: object) -> Path | None:
    """Return the folder that a storage or an anchor of ours is in; others keep theirs to them."""
    path = getattr(value, "path", None)
    return Path(path).resolve() if isinstance(path, (str, os.PathLike)) else None


def _home(storage: object) -> Path | None:
    """Return the folder in which whoever can write the storage can write: of a file, its own."""
    path = _folder(storage)
    return path.parent if path is not None and path.is_file() else path
