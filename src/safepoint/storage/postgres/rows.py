"""What the rows of the database say, if they say what its functions write."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from safepoint.errors import CheckpointError, StorageUnavailable
from safepoint.names import MAX_SEQUENCE, check_sequence
from safepoint.storage.base import MAX_TOKEN, Lease, Ownership, is_whole


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """What is kept of a thread besides its records.

    Attributes:
        head: its highest sequence, or 0.
        first: where it begins: 1, or later if it was pruned.
        ownership: who owns it.
        own: whether the login that wrote or took it last is this one.
    """

    head: int
    first: int
    ownership: Ownership
    own: bool


def thread_row(where: str, thread: str, row: tuple[Any, ...] | None) -> ThreadRow:
    """Return what a row of `queries.THREAD` says; the thread is new if there is none.

    Raises:
        StorageUnavailable: it says something that the functions of the schema never write.
    """
    if row is None:
        return ThreadRow(0, 1, Ownership(thread), own=True)
    head, first, token, owner, expires, endless, own = row
    with suppress(CheckpointError):
        numbers = (
            head_of(where, thread, head) >= 0
            and first_of(where, thread, first) <= max(head, 1)
            and is_whole(token, MAX_TOKEN)
        )
        if numbers and owner is None and endless is True and type(own) is bool:
            return ThreadRow(head, first, Ownership(thread, token), own)
        if numbers and type(own) is bool:
            holder = Lease(thread, owner, token, expires)
            return ThreadRow(head, first, Ownership(thread, token, holder), own)
    raise _malformed(where, thread)


def head_of(where: str, thread: str, head: object) -> int:
    """Return where a thread ends.

    Raises:
        StorageUnavailable: that is no number of a record, and not 0.
    """
    if type(head) is int and is_whole(head, MAX_SEQUENCE):
        return head
    raise _malformed(where, thread)


def first_of(where: str, thread: str, first: object) -> int:
    """Return where a thread begins.

    Raises:
        StorageUnavailable: that is no number of a record.
    """
    with suppress(CheckpointError):
        return check_sequence(first)
    raise _malformed(where, thread)


def _malformed(where: str, thread: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"{where[:1].upper()}{where[1:]} does not say where thread '{thread}' begins and ends or"
        " who owns it, so nothing of the thread is saved.",
        "Somebody else wrote it, or the disk failed. Put the database back from a backup.",
    )
