"""Walking a whole thread: each record, each link, and what the anchor says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from safepoint._ledger.guards import storage_errors
from safepoint._ledger.view import ATTEMPTS, View, gone, pruned_beyond
from safepoint.chain import ANCHOR, check_follows, check_is, check_reaches
from safepoint.errors import NotFound, RecordsMissing, SealError, ThreadDeleted, WrongPlace
from safepoint.header import Place
from safepoint.heads import Head
from safepoint.seal import Opened, open_sealed

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
