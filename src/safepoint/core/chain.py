"""Chains of sealed records: one walk, back from the verified end, and one append.

To verify the end of a thread, the anchor is read before the storage. A save writes the storage
first. So a concurrent save, or a save that was killed between its two writes, can only make the
storage longer than the anchor.
That is not an alarm: the next save anchors both. A prune moves the anchor first and removes records
afterwards, so a record that is missing while the anchor moves is looked for again.

A pruned thread begins with a base: a sealed record without a state. It says at which sequence the
thread begins, and which digest the record there names as its predecessor. So an attacker without
the key cannot remove the beginning unnoticed; a thief of the key can.

A thief of the key who can write the storage can append to a thread until somebody notices. The
thief cannot change what the anchor has seen: the walk back from the end finds another digest there.
The operator takes the key off the keyring, and keeps what an older copy of the anchor has seen,
sealed by a new key (`Ledger.copy_to`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from safepoint.core.anchor import Anchor
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    DecodeError,
    NotFound,
    RolledBack,
    SealBroken,
    ThreadDeleted,
    Unavailable,
    Unsafe,
    quoted,
    shell,
)
from safepoint.core.keys import Keyring
from safepoint.core.names import Head, Limits, check_tenant, read_head, translated
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
    check_signed,
    open_sealed,
)
from safepoint.core.storage import (
    CheckpointStorage,
    RetentionStorage,
    ScanningStorage,
    TenantStorage,
    no_record,
)

_REMEMBERED: Final = 1024
TRIES: Final = 1000  # of a record that others come before
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _retried(
    method: Callable[Concatenate[View, str, _P], _T],
) -> Callable[Concatenate[View, str, _P], _T]:
    """Read a thread again if a record that is missing was pruned in the meantime."""

    @wraps(method)
    def retry(view: View, thread: str, /, *args: _P.args, **options: _P.kwargs) -> _T:
        before: object = None
        for _ in range(TRIES):
            try:
                return method(view, thread, *args, **options)
            except (NotFound, RolledBack):
                now = view.anchored(thread), view._stored_base(thread)  # noqa: SLF001  of our own kind
                if now == before:
                    raise
                before = now
        return method(view, thread, *args, **options)

    return retry


def storage_errors(doing: str, what: object) -> AbstractContextManager[None]:
    """Turn an exception of a custom storage into an error of this package."""
    return translated(f"The storage could not {doing} {what}")


def anchor_errors(doing: str, what: str) -> AbstractContextManager[None]:
    """Turn an exception of a custom anchor into an error of this package."""
    return translated(f"The anchor could not {doing} {what}", "anchor")


def plain_of(opened: Opened, cipher: Cipher | None) -> bytes:
    """Return what the codec wrote. The reader, not the record, decides whether it is encrypted.

    Raises:
        DecodeError: the record says otherwise, or the cipher cannot read it.
    """
    key, shown = opened.header.cipher, opened.header.place
    if cipher is None:
        if key is not None:
            raise DecodeError(
                f"{shown} is encrypted under key {key}, and this ledger has no cipher.",
                "Open the ledger with the cipher of this store.",
            )
        return opened.payload
    if key is None:
        raise DecodeError(f"{shown} is not encrypted, and this ledger has a cipher.")
    with translated("The cipher could not decrypt the state", to=DecodeError):
        plain = cipher.open(opened.payload, key, opened.header.place)
        if type(plain) is not bytes:
            raise TypeError
    return plain


def require(value: Any, part: type[Any], lacks: str) -> Any:
    """Return a storage or an anchor that has an optional part.

    Args:
        value: the storage or the anchor.
        part: the protocol of the part.
        lacks: what it does without the part, for the message.

    Raises:
        ConfigurationError: it does not have the part.
    """
    if not isinstance(value, part):
        name = type(value).__name__
        raise ConfigurationError(f"{name} is not a {part.__name__}, so it {lacks}.")
    return value


def scoped(value: Any, tenant: str) -> Any:
    """Return the part of a storage or an anchor that belongs to one tenant."""
    return require(value, TenantStorage, "knows no tenants").tenant(tenant)


class End(NamedTuple):
    """The end of a thread as this process last read or wrote it.

    Attributes:
        head: its last record.
        anchored: the anchor's head at that time.
        state: the sequence of its newest state; None if notes follow it and it was not looked up.
        is_deleted: whether the last record is a tombstone.
    """

    head: Head
    anchored: Head | None
    state: int | None
    is_deleted: bool


@dataclass(eq=False)
class View:
    """Reads and verifies the records of a store, and appends to them.

    A read goes back from the end. The newest record is verified by its seal and against the anchor.
    Each earlier one is verified by the digest that its successor names, and the one that is
    returned by its seal as well: its key may have come off the ring since. So loading an old record
    costs a read of all records after it, unless the caller names it by a `Head` that it trusts.

    Args:
        storage: where the records are.
        store: the name of the store.
        keys: the trusted keys.
        anchor: the heads of the threads, if there is an anchor.
        limits: how large a record may be.
        use: the use that the signatures name.
        tenant: the tenant that storage and anchor are scoped to, or "".
        anchored_as: the name of the store in the anchor, if it is another one.

    Attributes:
        known: the end of each thread, as this process last saw it.
    """

    storage: CheckpointStorage
    store: str
    keys: Keyring
    anchor: Anchor | None
    limits: Limits
    use: Use = "record"
    tenant: str = ""
    anchored_as: str = ""
    known: dict[str, End] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.anchored_as = self.anchored_as or self.store
        self._scanning = self.storage if isinstance(self.storage, ScanningStorage) else None

    def for_tenant(self, tenant: str) -> View:
        """Return the same for one tenant.

        Raises:
            ConfigurationError: the storage or the anchor knows no tenants, or this is another
                tenant's view.
        """
        if tenant == self.tenant:
            return self
        check_tenant(tenant, self.tenant)
        storage = scoped(self.storage, tenant)
        anchor = None if self.anchor is None else scoped(self.anchor, tenant)
        return replace(self, storage=storage, anchor=anchor, tenant=tenant)

    def threads(self) -> list[str]:
        """Return the threads of the storage and of the anchor, so that a missing one is listed."""
        with storage_errors("list", "the threads"):
            names = set(self.storage.threads())
        if self.anchor is not None:
            with anchor_errors("list", "the threads"):
                names.update(self.anchor.threads(self.anchored_as))
        return sorted(names)

    def tenants(self) -> list[str]:
        """Return the tenants of the storage and of the anchor."""
        names = set[str]()
        if isinstance(self.storage, TenantStorage):
            with storage_errors("list", "the tenants"):
                names.update(map(check_tenant, self.storage.tenants()))
        anchor: object = self.anchor
        if isinstance(anchor, TenantStorage):
            with anchor_errors("list", "the tenants"):
                names.update(map(check_tenant, anchor.tenants(self.anchored_as)))
        return sorted(names)

    def anchored(self, thread: str) -> Head | None:
        """Return the anchor's head of a thread."""
        return None if self.anchor is None else read_head(self.anchor, self.anchored_as, thread)

    # --- the walk

    def back(
        self,
        thread: str,
        *,
        end: Head | None = None,
        every_signature: bool = False,
    ) -> Iterator[Opened]:
        """Return each record of a thread, newest first.

        Args:
            thread: the thread.
            end: the record to start from instead of the newest. Later ones are not read.
            every_signature: check every signature, not only the newest record's. Without it, the
                `key` of the others is the unsigned hint of their line 1.

        Raises:
            CheckpointError: one does not verify. Those after it were already handed out.
            NotFound: the next one was pruned meanwhile.
        """
        if end is None:
            opened, _ = self._end(thread)
        else:
            opened = self._read_known(thread, end, ANCHOR)
        if opened is None:
            return
        yield opened
        base = self.base(thread)
        begins = base.header.sequence if base else 1
        if opened.header.sequence < begins:
            if self._newest(thread)[0] >= begins:
                raise _pruned_meanwhile(thread)
            raise RolledBack(f"{thread} was pruned to begin at #{begins}, but ends before that.")
        last = opened
        for last in self._predecessors(opened, begins, every_signature=every_signature):
            yield last
        check_follows(last, base.header.previous if base else None)

    def forward(self, thread: str, digests: dict[int, str] | None = None) -> Iterator[Opened]:
        """Return the same, oldest first, once the whole thread and each signature is verified.

        The records are read a second time, because only their digests are kept in memory.

        Args:
            thread: the thread.
            digests: what a walk back has verified, by sequence: then there is no other walk.
        """
        found = self._digests(thread) if digests is None else digests
        sequences = range(min(found, default=1), max(found, default=0) + 1)
        for place, record in self._records(thread, sequences):
            opened = self._open(record, place)
            check_is(opened, Head(place.sequence, found[place.sequence]), PROCESS)
            yield opened

    @_retried
    def _digests(self, thread: str) -> dict[int, str]:
        return digests_of(self.back(thread, every_signature=True))

    @_retried
    def at(self, thread: str, sequence: int | Head | None = None) -> Opened:
        """Return the record at `sequence`, or the newest one that is not a note.

        A record that this process verified before can be named by its `Head`: then its digest is
        checked and no later record is read.

        Raises:
            NotFound: there is none.
            ThreadDeleted: the thread was deleted.
            CheckpointError: it, or one on the way to it, does not verify.
        """
        if isinstance(sequence, Head):
            return self._read_known(thread, sequence, PROCESS)
        for opened in self.back(thread):
            refuse_deleted(opened)
            number, kind = opened.header.sequence, opened.header.kind
            if number == sequence or (sequence is None and kind != "note"):
                return check_signed(opened, self.keys, self.use)
            if sequence is not None and number < sequence:
                break
        if sequence is not None:
            first, _ = self._stored_base(thread) or (1, b"")
            raise no_record(thread, sequence, first)
        raise NotFound(f"There is no checkpoint of {thread} in {self._place(thread, 1).scope}.")

    @_retried
    def verify(self, thread: str, *, anchor: bool = False) -> int:
        """Check each signature and each link of a thread, and return how many records there are.

        Args:
            thread: the thread.
            anchor: move the anchor to the verified end.

        Raises:
            CheckpointError: one does not verify, or the anchor cannot move.
        """
        head, count = None, 0
        for opened in self.back(thread, every_signature=True):
            head, count = head or opened.head, count + 1
        if anchor and head is not None:
            self._move(thread, head)
        return count

    def anchor_end(self, thread: str) -> None:
        """Verify a thread from where the anchor is, and move the anchor to its end.

        Raises:
            CheckpointError: a record does not verify, or the anchor cannot move.
        """
        opened, anchored = self._end(thread)
        if anchored is None:  # nothing vouches for the past yet, so all of it is looked at
            self.verify(thread, anchor=True)
        elif opened is not None:
            self._move(thread, opened.head)

    @_retried
    def first_to_keep(self, thread: str, states: int, since: int) -> Opened | None:
        """Return the first record of the newest `states` that are anchored, or None.

        Args:
            thread: the thread.
            states: how many states to keep.
            since: the sequence that it may not be above.
        """
        anchored = self.anchored(thread)
        for opened in self.back(thread):
            header = opened.header
            seen = anchored is None or header.sequence <= anchored.sequence
            states -= header.kind != "note" and seen and states > 0
            if not states and header.sequence <= since:
                return opened
        return None

    def base(self, thread: str) -> Opened | None:
        """Return the verified base of a pruned thread, or None if it was never pruned."""
        found = self._stored_base(thread)
        if found is None:
            return None
        first, record = found
        return self._open(record, self._place(thread, first), base=True)

    def _place(self, thread: str, sequence: int) -> Place:
        return Place(self.store, self.tenant, thread, sequence)

    @_retried
    def _end(self, thread: str) -> tuple[Opened | None, Head | None]:
        """Return the newest record, verified, and the anchor's head as read before it."""
        anchored, known = self.anchored(thread), self.known.get(thread)
        number, record = self._newest(thread)
        check_reaches(thread, number, anchored, ANCHOR)
        check_reaches(thread, number, known and known.head, PROCESS)
        if not number:
            return None, anchored
        place = self._place(thread, number)
        opened = self._read(thread, number) if record is None else self._open(record, place)
        head, kind = opened.head, opened.header.kind
        if known is not None and known.head.sequence == number:
            check_is(opened, known.head, PROCESS)
        if anchored is not None and (known is None or known[:2] != (head, anchored)):
            self._check_extends(opened, anchored)
        remembered = known.state if known and known.head == head else None
        state = number if kind == "state" else remembered
        self._remember(thread, End(head, anchored, state, kind == "deleted"))
        return opened, anchored

    def _check_extends(self, opened: Opened, anchored: Head) -> None:
        """Follow the links from the newest record back to the anchored one."""
        last = opened
        try:
            for last in self._predecessors(opened, anchored.sequence):  # noqa: B007
                pass
        except NotFound:
            raise _pruned_beyond(opened.header.thread, anchored) from None
        check_is(last, anchored, ANCHOR)

    def _read_known(self, thread: str, known: Head, witness: str) -> Opened:
        """Return a record whose digest is known."""
        try:
            opened = self._read(thread, known.sequence)
        except (NotFound, RolledBack):
            check_reaches(thread, self._newest(thread)[0], known, witness)
            if witness == PROCESS:
                raise
            raise _pruned_beyond(thread, known) from None
        check_is(opened, known, witness)
        return opened

    def _predecessors(
        self, opened: Opened, first: int, *, every_signature: bool = False
    ) -> Iterator[Opened]:
        """Return the records before one, down to `first`, each checked against its successor."""
        thread, last = opened.header.thread, opened.header.sequence - 1
        for place, record in self._records(thread, range(last, first - 1, -1)):
            previous = None if every_signature else opened.header.previous
            before = self._open(record, place, digest=previous)
            check_follows(opened, before.digest)
            opened = before
            if opened.header.kind == "deleted":
                raise SealBroken(
                    f"{thread} #{place.sequence} says that the thread was deleted, and others"
                    " follow it.",
                    "Replace the key: the writer of those records had it.",
                    "chain",
                )
            yield opened

    def _newest(self, thread: str) -> tuple[int, bytes | None]:
        with storage_errors("find the latest of", thread):
            if self._scanning is None:
                head, record = self.storage.head(thread), None
            else:
                head, record = self._scanning.newest(thread)
            if type(head) is not int or head < 0 or not isinstance(record, (bytes, NoneType)):
                raise TypeError
            return head, record

    def _read(self, thread: str, sequence: int) -> Opened:
        """Return one record that must exist, verified by its seal."""
        [(place, record)] = self._records(thread, range(sequence, sequence + 1))
        return self._open(record, place)

    def _records(self, thread: str, sequences: range) -> Iterator[tuple[Place, bytes]]:
        """Return the records of a range, which must all exist, as fast as the storage can.

        Raises:
            RolledBack: one is gone.
            NotFound: one was pruned meanwhile.
        """
        sequence = sequences.start
        try:
            with storage_errors("read", thread):
                if self._scanning is not None and len(sequences) > 1:
                    found = self._scanning.scan(thread, sequences[0], sequences[-1])
                else:
                    found = (self.storage.read(thread, each) for each in sequences)
                for sequence in sequences:
                    record = next(found)
                    if type(record) is not bytes:
                        raise TypeError
                    yield self._place(thread, sequence), record
        except NotFound as error:
            base = self.base(thread)
            if base is not None and sequence < base.header.sequence:
                raise _pruned_meanwhile(thread) from error
            what = f"{thread} #{sequence} is gone, but no seal says that it was pruned."
            raise RolledBack(what, kind="missing") from error

    def _open(self, record: bytes, place: Place, **options: Any) -> Opened:
        return open_sealed(record, place, self.keys, limits=self.limits, use=self.use, **options)

    def _stored_base(self, thread: str) -> tuple[int, bytes] | None:
        """Return where a thread begins according to the storage, and its base, or None."""
        if not isinstance(self.storage, RetentionStorage):
            return None
        with storage_errors("read the base of", thread):
            found = self.storage.base(thread)
            if found is None:
                return None
            first, record = found
            if type(first) is not int or type(record) is not bytes:
                raise TypeError
            return first, record

    # --- the append

    def append(
        self,
        thread: str,
        write: Callable[[Place, str | None], tuple[bytes, Opened]],
        *,
        after: int | Head | None = None,
        fence: int | None = None,
        rides_along: bool = False,
    ) -> Opened:
        """Append a record to a thread and move the anchor to it.

        If this process knows the end, and the storage and the anchor agree with it, no record is
        read first: the storage accepts a record only at the next sequence. If another writer was
        faster, it reads the end and tries again.

        Args:
            thread: the thread.
            write: seals the record for a place and the digest of its predecessor. It is called once
                per try.
            after: the sequence of the newest state to build on, or the head of the record to
                follow; None to follow any record.
            fence: the token of a lease.
            rides_along: do not move the anchor; the next record will.

        Raises:
            Conflict: the thread has another state than `after`, or others were faster.
            ThreadDeleted: the thread was deleted.
            CheckpointError: its end does not verify, or the storage or the anchor refused.
        """
        options = {} if fence is None else {"fence": fence}
        end = self._recall(thread)
        if end is None or after not in (None, end.state, end.head):
            end = self._end_to_build_on(thread, after)
        for tried in range(1, TRIES + 1):
            place = self._place(thread, end.head.sequence + 1 if end else 1)
            record, opened = write(place, end.head.digest if end else None)
            try:
                with storage_errors("keep", place):
                    self.storage.append(thread, place.sequence, record, **options)
                break
            except (Conflict, RolledBack):  # others saved, pruned, deleted or cut
                if tried == TRIES:
                    raise
                end = self._end_to_build_on(thread, after)
        anchored, kind = end and end.anchored, opened.header.kind
        if self.anchor is not None and not rides_along:
            self._move_after(thread, opened.head)
            anchored = opened.head
        state = place.sequence if kind == "state" else end and end.state
        self._remember(thread, End(opened.head, anchored, state, kind == "deleted"))
        return opened

    @_retried
    def _end_to_build_on(self, thread: str, after: int | Head | None) -> End | None:
        """Return the verified end of a thread, if `after` allows to build on it."""
        opened, anchored = self._end(thread)
        base = self.base(thread)
        if base and base.header.sequence > (opened.header.sequence if opened else 0):
            raise RolledBack(f"{thread} ends before its base.", kind="missing")
        number, head = 0, None
        if opened is not None:
            refuse_deleted(opened)
            head = opened.head
            if self.anchor is not None and anchored is None:
                self.verify(thread)  # nothing vouches for the past yet, so all of it is looked at
            if after is not None:
                number = self.at(thread).header.sequence
        if after not in (None, number, head):
            at = f"{thread} is at #{number}, and this save builds on #{quoted(after)}."
            is_head = isinstance(after, Head)
            raise Conflict(f"{thread} does not end at {after} any more." if is_head else at)
        return None if opened is None else End(opened.head, anchored, number or None, False)

    def _move_after(self, thread: str, head: Head) -> None:
        """Move the anchor to the record that was just saved."""
        saved = f"{thread} {head} is saved, but not anchored."
        try:
            self._move(thread, head)
        except RolledBack as error:
            raise RolledBack(f"{saved} {error.what}", error.do, error.kind) from error
        except CheckpointError as error:
            raise Unavailable(
                f"{saved} {error.what}",
                "Nothing is lost. Repair the anchor: the next save moves it.",
                "anchor",
            ) from error

    def _move(self, thread: str, head: Head) -> None:
        if self.anchor is not None:
            with anchor_errors("be moved for", thread):
                self.anchor.advance(self.anchored_as, thread, head)

    # --- what this process knows of its threads: it spares a read, and shows what is cut off

    def _recall(self, thread: str) -> End | None:
        if (known := self.known.get(thread)) is None or known.is_deleted:
            return None
        anchored = self.anchored(thread)
        agrees = self.anchor is None or (anchored and anchored in (known.head, known.anchored))
        with storage_errors("find the latest of", thread):
            agrees = agrees and self.storage.head(thread) == known.head.sequence
        return known._replace(anchored=anchored) if agrees else None

    def _remember(self, thread: str, end: End) -> None:
        if len(self.known) >= _REMEMBERED and thread not in self.known:
            self.known.clear()
        self.known[thread] = end


def digests_of(records: Iterable[Opened]) -> dict[int, str]:
    """Return the digest of each record by its sequence."""
    return {each.header.sequence: each.digest for each in records}


def refuse_deleted(opened: Opened) -> None:
    """Refuse to return a tombstone as a checkpoint.

    Raises:
        ThreadDeleted: the record says that the thread was deleted.
    """
    header = opened.header
    if header.kind == "deleted":
        raise ThreadDeleted(
            f"{header.thread} was deleted on {header.created}, by a record that is signed."
        )


def _pruned_meanwhile(thread: str) -> NotFound:
    return NotFound(f"{thread} was pruned while it was read.", "Nothing is wrong: read it again.")


def _pruned_beyond(thread: str, anchored: Head) -> RolledBack:
    return RolledBack(
        f"{thread} {anchored}, which the anchor has seen, is not in the storage, and later ones"
        " are.",
        kind="missing",
    )


def check_apart(storage: Any, keys: Keyring, anchor: Any, journal: Any = None) -> None:
    """Refuse a key, an anchor or a journal that a writer of the storage could also change.

    Raises:
        Unsafe: a key's file is inside the storage folder, or one is the journal's as well.
        ConfigurationError: the anchor or the journal is inside the storage folder, or around it.
    """
    home, journals = _home(storage), {key.id for key in journal.keys} if journal else set()
    anchors = anchor, journal and journal.anchor
    places = [("journal", _home(journal)), *(("anchor", _home(each)) for each in anchors)]
    for key in keys:
        if key.id in journals:
            raise Unsafe(
                f"The ledger and the journal both have key {key.id}.",
                "Give the journal a key of its own.",
            )
        if home and key.path is not None and key.path.resolve().is_relative_to(home):
            raise Unsafe(
                f"The key {shell(str(key.path))} is inside the storage folder.",
                "Move it to a folder of its own, and replace it if anyone may have read it.",
            )
    for name, apart in places:
        if home and apart and (apart.is_relative_to(home) or home.is_relative_to(apart)):
            raise ConfigurationError(
                f"The {name} {shell(str(apart))} is in the same place as the storage"
                f" {shell(str(home))}.",
                f"Give the {name} a folder elsewhere, best of another user or machine.",
            )


def is_same(one: object, other: object) -> bool:
    """Tell whether two storages or anchors are the same object, or use the same path."""
    path = _path(one)
    return one is other or (path is not None and path == _path(other))


def _path(value: object) -> Path | None:
    """Return the path of a storage or an anchor, if it has one."""
    path = getattr(value, "path", None)
    return Path(path).resolve() if isinstance(path, (str, os.PathLike)) else None


def _home(value: object) -> Path | None:
    """Return the folder of a storage or an anchor: for a file, the folder that contains it."""
    path = _path(value)
    return path.parent if path is not None and path.is_file() else path
