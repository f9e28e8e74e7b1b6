"""What every storage says about a record, in the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from safepoint.errors import (
    ConfigurationError,
    Conflict,
    EncodeError,
    LimitExceeded,
    NotFound,
    RecordMalformed,
    RecordsMissing,
    shell,
)
from safepoint.ids import check_name, check_sequence
from safepoint.lease import check_token
from safepoint.limits import Limits


def frozen(record: object) -> bytes:
    """Return the record as `bytes` that nobody else can change; a `bytearray` is copied.

    Raises:
        EncodeError: it is not bytes.
    """
    if not isinstance(record, (bytes, bytearray, memoryview)):
        raise EncodeError(
            f"A record is bytes, and this is {type(record).__name__}.",
            "Save through a ledger, which seals the state into bytes.",
        )
    return bytes(record)


def span(first: object, last: object) -> range:
    """Return the sequences from `first` to `last`, downwards if `last` is the lower one.

    Raises:
        InvalidId: one of the two is not a sequence.
    """
    start, end = check_sequence(first), check_sequence(last)
    return range(start, end + 1) if start <= end else range(start, end - 1, -1)


def too_large(size: int, limit: int) -> LimitExceeded:
    """Say that a record is over the limit."""
    return LimitExceeded(
        f"The record has {size} bytes or more, and the limit is {limit}.",
        "Keep large data outside the state, or pass Limits(state_bytes=...) with a higher limit.",
    )


def taken(thread: str, sequence: int, first: int) -> Conflict:
    """Say that another writer was first; `first` is where the thread begins."""
    what = f"Thread '{thread}' already has a checkpoint {sequence}."
    if sequence < first:
        what = f"Thread '{thread}' had a checkpoint {sequence}, and begins at {first} by now."
    return Conflict(
        what, "Nothing was overwritten. Load the latest checkpoint and decide again from there."
    )


def gap(thread: str, sequence: int, behind: int) -> RecordsMissing:
    """Say that a record is gone from the middle of a thread."""
    return RecordsMissing(
        f"Thread '{thread}' has checkpoint {behind} but not {sequence}.",
        "Somebody removed it, or put a later one there. Restore it from a backup, or move the later"
        " one away; until then nothing is loaded or saved.",
    )


def beheaded(thread: str, first: int) -> RecordsMissing:
    """Say that the record with which a pruned thread begins is gone."""
    return RecordsMissing(
        f"Thread '{thread}' was pruned to begin at checkpoint {first}, and that one is gone.",
        "Somebody removed it, or put a later one there. Restore it from a backup, or move the later"
        " one away; until then nothing is loaded or saved.",
    )


def withdrawn(thread: str, sequence: int) -> RecordsMissing:
    """Say that the record on which a save was built is gone again."""
    return RecordsMissing(
        f"Checkpoint {sequence} of thread '{thread}' was there a moment ago and is gone, so nothing"
        " was saved after it.",
        "Another save failed, or somebody removed it. Load the latest checkpoint and decide again"
        " from there.",
    )


def missing(thread: str, sequence: int, first: int) -> NotFound:
    """Say that there is no such record; `first` is where the thread begins."""
    if sequence < first:
        return NotFound(
            f"Checkpoint {sequence} of thread '{thread}' was pruned; the thread begins at {first}"
            " now.",
            f"Ask for {first} or a later one, or look for {sequence} in a backup.",
        )
    return NotFound(
        f"Thread '{thread}' has no checkpoint {sequence}.",
        "Check the thread's name; its head is the highest sequence that it has.",
    )


def malformed_base(path: str) -> RecordMalformed:
    """Say that what should tell where a thread begins does not."""
    return RecordMalformed(
        f"{shell(path)} does not say at which checkpoint its thread begins.",
        "It was not written by prune. Put it back from a backup; until then nothing of the thread"
        " is loaded or saved.",
    )


def ahead(thread: str, sequence: int, head: int) -> RecordsMissing:
    """Say that a record does not follow upon the last one."""
    return RecordsMissing(
        f"Thread '{thread}' is at checkpoint {head}, so {sequence} does not follow.",
        "Nothing was saved. Load the latest checkpoint and decide again from there.",
    )


def sized(record: object, limit: int) -> bytes:
    """Return the record as `bytes`, if it is within the limit.

    Raises:
        EncodeError: it is not bytes.
        LimitExceeded: it is too large.
    """
    data = frozen(record)
    if len(data) > limit:
        raise too_large(len(data), limit)
    return data


def record_limit(storage: str, limits: object) -> int:
    """Return how many bytes a record may have.

    Args:
        storage: what was given the limits, for the message.
        limits: the limits.

    Raises:
        ConfigurationError: they are something else.
    """
    if not isinstance(limits, Limits):
        raise ConfigurationError(
            f"{storage} takes limits, and was given {type(limits).__name__}.",
            "Write limits=Limits(state_bytes=...), or leave it out.",
        )
    return limits.record_bytes


def is_whole(value: object, most: int) -> bool:
    """Tell whether a number that was read is one from 0 up to `most`."""
    return type(value) is int and 0 <= value <= most


def check_place(thread: object, sequence: object, fence: object) -> None:
    """Refuse what is not the place of a record, or not the token of a lease.

    Raises:
        InvalidId: the thread or the sequence is outside the grammar.
        ConfigurationError: the fence is neither a token nor None.
    """
    check_name("thread", thread)
    check_sequence(sequence)
    if fence is not None:
        check_token(fence)


def record_of(thread: str, sequence: int, size: object, record: object, limit: int) -> bytes:
    """Return a record as a database gave it, if it was not over the limit.

    Raises:
        LimitExceeded: it has more bytes than a record may have.
        RecordMalformed: it is not bytes.
    """
    if type(record) is bytes:
        return record
    if record is None and type(size) is int and size > limit:
        raise too_large(size, limit)
    raise RecordMalformed(
        f"Checkpoint {sequence} of thread '{thread}' is not bytes.",
        "This storage never keeps anything else. Put the database back from a backup.",
    )


def in_portions(
    thread: str,
    sequences: range,
    portion: Callable[[range], Sequence[tuple[int, object, object]]],
    read: Callable[[str, int], bytes],
    limit: int,
) -> Iterator[bytes]:
    """Return the records at these sequences, in their order, with nothing held in between.

    Args:
        thread: the thread.
        sequences: one after the other, up or down.
        portion: reads on from the first of them: sequence, size and record of a few.
        read: reads one record. It is asked for one that is not there, and says why.
        limit: how many bytes a record may have.

    Raises:
        CheckpointError: as `read` does. The records before that one were handed out.
    """
    while sequences:
        rows = portion(sequences)
        if not rows or rows[0][0] != sequences[0]:
            yield read(thread, sequences[0])
            sequences = sequences[1:]
            continue
        for found, size, record in rows:
            if found != sequences[0]:
                break  # and the next portion begins there
            yield record_of(thread, found, size, record, limit)
            sequences = sequences[1:]
