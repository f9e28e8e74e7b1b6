"""Checks and errors that all stores share."""

from __future__ import annotations

from safepoint.core.errors import LimitExceeded, RolledBack, SealBroken, quoted, shell
from safepoint.core.names import MAX_SEQUENCE


def gap(thread: str, sequence: int, behind: int) -> RolledBack:
    """Return the error for a record that is missing in the middle of a thread."""
    return RolledBack(
        f"Thread '{thread}' has checkpoint {behind} but not {sequence}.", kind="missing"
    )


def first_gone(thread: str, first: int) -> RolledBack:
    """Return the error for a pruned thread whose first record is missing."""
    what = f"Thread '{thread}' was pruned to begin at checkpoint {first}, and that one is gone."
    return RolledBack(what, kind="missing")


def malformed_base(path: str) -> SealBroken:
    """Return the error for a base that does not say where its thread begins."""
    return SealBroken(
        f"{shell(path)} does not say at which checkpoint its thread begins.", kind="form"
    )


def sequence_of(thread: str, found: int) -> int:
    """Return a sequence that was read from a database, if it is one that a record can have.

    Raises:
        SealBroken: it is too large or too small.
    """
    if 1 <= found <= MAX_SEQUENCE:
        return found
    raise SealBroken(f"Thread '{thread}' has a checkpoint {quoted(found)}.", kind="form")


def sized(record: bytes, limit: int) -> bytes:
    """Return the record as immutable `bytes`, if it is within the limit.

    Raises:
        LimitExceeded: it is too large.
    """
    if len(data := bytes(record)) > limit:
        raise too_large(len(data), limit)
    return data


def record_of(thread: str, sequence: int, size: object, record: object, limit: int) -> bytes:
    """Return a record that was read from a database, if it is within the limit.

    Raises:
        LimitExceeded: it has more bytes than a record may have.
        SealBroken: it is not bytes.
    """
    if type(record) is bytes:
        return record
    if record is None and type(size) is int and size > limit:
        raise too_large(size, limit)
    raise SealBroken(f"Checkpoint {sequence} of thread '{thread}' is not bytes.", kind="form")


def too_large(size: int, limit: int) -> LimitExceeded:
    """Return the error for a record that is over the limit."""
    return LimitExceeded(f"The record has {size} bytes or more, and the limit is {limit}.")
