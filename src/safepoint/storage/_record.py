"""What every storage says about a record, in the same words."""

from __future__ import annotations

from safepoint.errors import Conflict, EncodeError, LimitExceeded, NotFound, RecordsMissing


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


def too_large(size: int, limit: int) -> LimitExceeded:
    """Say that a record is over the limit."""
    return LimitExceeded(
        f"The record has {size} bytes or more, and the limit is {limit}.",
        "Keep large data outside the state, or pass Limits(state_bytes=...) with a higher limit.",
    )


def taken(thread: str, sequence: int) -> Conflict:
    """Say that another writer was first."""
    return Conflict(
        f"Thread '{thread}' already has a checkpoint {sequence}.",
        "Nothing was overwritten. Load the latest checkpoint and decide again from there.",
    )


def gap(thread: str, sequence: int, behind: int) -> RecordsMissing:
    """Say that a record is gone from the middle of a thread."""
    return RecordsMissing(
        f"Thread '{thread}' has checkpoint {behind} but not {sequence}.",
        "Somebody removed it. Put it back from a backup; until then nothing is loaded or saved.",
    )


def missing(thread: str, sequence: int) -> NotFound:
    """Say that there is no such record."""
    return NotFound(
        f"Thread '{thread}' has no checkpoint {sequence}.",
        "Check the thread's name; its head is the highest sequence that it has.",
    )
