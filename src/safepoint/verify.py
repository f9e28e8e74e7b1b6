"""Walking a whole thread: each record, each link, and what the anchor says of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from safepoint.anchor import Anchor
from safepoint.errors import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    KeyRefused,
    KeyRevoked,
    NotFound,
    RecordsMissing,
    SealError,
    StorageUnavailable,
    ThreadDeleted,
    WrongPlace,
    quoted,
    shell,
)
from safepoint.keys import Keyring
from safepoint.names import Head, Heads, Limits
from safepoint.record import (
    ANCHOR,
    PROCESS,
    Opened,
    Place,
    check_follows,
    check_is,
    check_reaches,
    open_sealed,
)
from safepoint.storage.base import CheckpointStorage

STORAGE = ("append", "read", "head", "threads")
RETENTION = ("base", "prune")
ANCHOR_GUARDS = ("read", "advance", "threads")
JOURNAL = ("record",)


@contextmanager
def storage_errors(doing: str, what: str) -> Iterator[None]:
    """Turn whatever a custom storage raises into an error of the tree."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise StorageUnavailable(
            f"The storage could not {doing} {what}: it raised {type(error).__name__}.",
            "See the error it came from, and make the storage raise errors of safepoint.errors.",
        ) from error


@contextmanager
def anchor_errors(doing: str, what: str) -> Iterator[None]:
    """Turn whatever a custom anchor raises into an error of the tree."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise AnchorUnavailable(
            f"The anchor could not {doing} {what}: it raised {type(error).__name__}.",
            "Nothing is loaded without it. See the error it came from, and mend the anchor.",
        ) from error


def texts(names: Iterable[object]) -> set[str]:
    """Return names as a set, if each is one.

    Raises:
        TypeError: one is something else.
    """
    found = set()
    for name in names:
        if type(name) is not str:
            raise TypeError
        found.add(name)
    return found


def check_kind(name: str, value: object, kind: type | tuple[type, ...], example: str) -> None:
    """Refuse an argument that is of another type.

    Raises:
        ConfigurationError: it is.
    """
    if not isinstance(value, kind):
        raise ConfigurationError(
            f"Ledger was given {type(value).__name__} as {name}.", f"Write {name}={example}."
        )


def check_count(name: str, value: object) -> None:
    """Refuse anything but a whole number from 1 up.

    Raises:
        ConfigurationError: it is something else.
    """
    if type(value) is not int or value < 1:
        raise ConfigurationError(
            f"{name} is {quoted(value)}, and must be a whole number from 1 up.",
            f"Write {name}=1, or more.",
        )


def has_methods(value: object, methods: tuple[str, ...]) -> bool:
    """Tell whether an object has all of the methods."""
    try:
        return all(callable(getattr(value, method, None)) for method in methods)
    except Exception:  # noqa: BLE001  a proxy whose other end is away
        return False


def check_methods(name: str, value: object, methods: tuple[str, ...], example: str) -> None:
    """Refuse an object that lacks one of the methods.

    Raises:
        ConfigurationError: it does.
    """
    if not has_methods(value, methods):
        raise ConfigurationError(
            f"Ledger takes {name}, and was given {type(value).__name__}.",
            f"Give it an object with the methods {', '.join(methods)}: {example}.",
        )


def check_apart(storage: Any, keys: Keyring, anchor: Any, journal: Any = None) -> None:
    """Refuse a key, an anchor or a journal that whoever can write the storage could write too.

    Raises:
        KeyRefused: a key's file is inside the storage folder.
        ConfigurationError: the anchor or the journal is inside the storage folder, or around it.
    """
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
    for apart in filter(None, map(_folder, [anchor, *points])):
        if apart.is_relative_to(folder) or folder.is_relative_to(apart):
            raise ConfigurationError(
                f"The anchor {shell(str(apart))} is in one place with the storage"
                f" {shell(str(folder))}.",
                "Whoever rolls back one would roll back the other. Give the anchor a folder"
                " elsewhere, best of another user or machine.",
            )
    notes = _folder(journal)
    if notes is not None and (notes.is_relative_to(folder) or folder.is_relative_to(notes)):
        raise ConfigurationError(
            f"The journal {shell(str(notes))} is in one place with the storage"
            f" {shell(str(folder))}.",
            "Whoever changes one could change the other. Give the journal a folder of its own.",
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
                " anchor=FileAnchor(path)).",
            )
        folder = _folder(anchor)
        if until is anchor or (folder is not None and folder == _folder(until)):
            raise ConfigurationError(
                f"Key {key.id} is revoked until the anchor that this ledger moves.",
                "Each save would move the point, too. Give a copy that nobody writes any more:"
                ' until=FileAnchor("anchor-before").',
            )


def _folder(value: object) -> Path | None:
    """Return the folder that a storage or an anchor of ours is in; others keep theirs to them."""
    try:
        path = getattr(value, "path", None)
        return Path(path).resolve() if isinstance(path, (str, os.PathLike)) else None
    except Exception:  # noqa: BLE001  a proxy, an odd path: then there is nothing to compare
        return None


def _home(storage: object) -> Path | None:
    """Return the folder in which whoever can write the storage can write: of a file, its own."""
    path = _folder(storage)
    with suppress(OSError):
        return path.parent if path is not None and path.is_file() else path
    return path


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


Progress = Callable[[int, int], object]
"""Called with how many records are done, and how many there are."""


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

    def __len__(self) -> int:
        return self.head - self.first + 1


def span_of(view: View, thread: str) -> Span:
    """Find where a thread begins and ends, by what the base and the anchor vouch for.

    Raises:
        CheckpointError: the base does not verify, or the thread ends before it or the anchor.
    """
    return view.settled(thread, lambda anchored: _span(view, thread, anchored))


def _span(view: View, thread: str, anchored: Head | None) -> Span:
    try:
        base = view.base(thread)
    except SealError:
        view.reach(thread, anchored)  # that something was cut off matters more
        raise
    head = view.reach(thread, anchored)
    if base is None:
        return Span(1, head, None, anchored)
    span = Span(base.header.sequence, head, base.header.previous, anchored)
    if anchored is not None and anchored.sequence < span.first:
        raise pruned_beyond(thread, anchored)
    if head < span.first:
        raise RecordsMissing(
            f"{thread} was pruned to begin at #{span.first}, and ends before it.",
            "Checkpoints were cut off, or the base is of a longer copy. Restore both from a copy"
            " that verifies.",
        )
    return span


def walk(
    view: View, thread: str, progress: Progress | None = None, *, end: Head | None = None
) -> Iterator[Opened]:
    """Return each record, oldest first, after its seal and its link were checked.

    Args:
        view: what there is.
        thread: the thread.
        progress: called after each record.
        end: the record to end with. What follows it is not looked at.

    Raises:
        CheckpointError: one does not verify. Those before it were already handed out.
    """
    span = span_of(view, thread)
    if end is not None:
        check_reaches(thread, span.head, end, ANCHOR)
        if end.sequence < span.first:
            raise pruned_beyond(thread, end)
        span = replace(span, head=end.sequence)
    for opened in _walk(view, thread, span, progress):
        if end is not None and opened.header.sequence == end.sequence:
            check_is(opened, end, ANCHOR)
        yield opened


def check_span(view: View, thread: str, span: Span, progress: Progress | None = None) -> int:
    """Check each seal and each link of a span, and return how many records it has.

    Raises:
        CheckpointError: one does not verify.
    """
    return sum(1 for _ in _walk(view, thread, span, progress))


def verify(
    view: View, thread: str, progress: Progress | None = None, *, every_signature: bool = False
) -> int:
    """Check each record and each link of a thread, and return how many records there are.

    Where the head is anchored, the links carry the proof: the anchor vouches for one digest, that
    record names the one before it, and so on back to the first. Signatures are checked at the
    head and on what is newer than the anchor.

    Raises:
        CheckpointError: one does not verify.
    """
    attempts = iter(range(ATTEMPTS))
    while True:
        span = span_of(view, thread)
        try:
            return _verify(view, thread, span, progress, every_signature=every_signature)
        except NotFound:
            if next(attempts, None) is None or span_of(view, thread).first == span.first:
                raise  # and otherwise it was pruned meanwhile


def _verify(
    view: View, thread: str, span: Span, progress: Progress | None, *, every_signature: bool
) -> int:
    if every_signature or span.anchored is None:
        return check_span(view, thread, span, progress)
    with suppress(ThreadDeleted):  # what follows a tombstone is found below
        view.latest(thread, anew=True)
    digest = _walk_back(view, thread, span, span.anchored, progress)
    if digest != span.previous:
        raise WrongPlace(
            f"{thread} #{span.first} does not follow what the base of the thread says.",
            "One of the two was replaced. Restore both from a copy that verifies.",
        )
    return len(span)


def linked_record(view: View, thread: str, sequence: int) -> Opened:
    """Return one record after following every link from the thread's end back to it.

    Raises:
        CheckpointError: it is not there, or a record or a link on the way does not verify.
    """
    view.at(thread, sequence)  # whether there is such a record, in the words of a plain load
    opened = view.latest(thread, anew=True)
    places = range(opened.header.sequence - 1, sequence - 1, -1)
    for place, record in records(view, thread, places):
        digest = opened.header.previous
        opened = open_sealed(record, place, view.keys, digest=digest, limits=view.limits)
    return opened


def _walk(view: View, thread: str, span: Span, progress: Progress | None) -> Iterator[Opened]:
    previous = span.previous
    for done, (place, record) in enumerate(
        records(view, thread, range(span.first, span.head + 1)), start=1
    ):
        opened = open_sealed(record, place, view.keys, limits=view.limits)
        check_follows(opened, previous)
        _check_last_words(opened, span)
        if span.anchored is not None and place.sequence == span.anchored.sequence:
            check_is(opened, span.anchored, ANCHOR)
        previous = opened.digest
        if progress is not None:
            progress(done, len(span))
        yield opened


def _walk_back(
    view: View, thread: str, span: Span, anchored: Head, progress: Progress | None
) -> str | None:
    """Follow the links from the anchored record to the first, and return what that one names."""
    digest: str | None = anchored.digest
    newer = span.head - anchored.sequence
    for done, (place, record) in enumerate(
        records(view, thread, range(anchored.sequence, span.first - 1, -1)), start=1
    ):
        opened = open_sealed(record, place, view.keys, digest=digest, limits=view.limits)
        _check_last_words(opened, span)
        digest = opened.header.previous
        if progress is not None:
            progress(newer + done, len(span))
    return digest


def _check_last_words(opened: Opened, span: Span) -> None:
    header = opened.header
    if header.kind == "deleted" and header.sequence != span.head:
        raise WrongPlace(
            f"{header.thread} #{header.sequence} says that the thread was deleted, and others"
            " follow it.",
            "Whoever wrote those had the key and not this package. Replace the key.",
        )


def records(view: View, thread: str, sequences: range) -> Iterator[tuple[Place, bytes]]:
    """Return the records of a range that must all be there, as fast as the storage can.

    Raises:
        RecordsMissing: one is gone.
        NotFound: one was pruned meanwhile.
    """
    store, sequence = view.store, 0
    try:
        with storage_errors("read", thread):
            scan = getattr(view.storage, "scan", None)
            found = (
                scan(thread, sequences[0], sequences[-1])
                if sequences and callable(scan)
                else (view.storage.read(thread, sequence) for sequence in sequences)
            )
            following = iter(found)
            for sequence in sequences:
                record = next(following)
                if type(record) is not bytes:
                    raise TypeError
                yield Place(store, thread, sequence), record
    except NotFound as error:
        base = view.base(thread)
        if base is not None and sequence < base.header.sequence:
            raise NotFound(
                f"{thread} was pruned while it was read.", "Nothing is wrong: read it again."
            ) from error
        raise gone(thread, sequence) from error
