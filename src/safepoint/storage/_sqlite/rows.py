"""What the rows of the database say, if they say what this package writes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from safepoint.errors import (
    CheckpointError,
    RecordsMissing,
    StorageUnavailable,
    shell,
)
from safepoint.names import MAX_SEQUENCE, spelled
from safepoint.storage.base import MAX_TOKEN, Lease, Ownership, is_whole


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """What is kept of a thread besides its records.

    Attributes:
        head: its highest sequence, or 0.
        first: where it begins if it was pruned, or 0.
        ownership: who owns it.
    """

    head: int
    first: int
    ownership: Ownership


def thread_row(path: str, thread: str, row: tuple[Any, ...] | None) -> ThreadRow:
    """Return what a row of `statements.THREAD` says; the thread is new if there is none.

    Raises:
        StorageUnavailable: it says something that this package never writes.
    """
    if row is None:
        return ThreadRow(0, 0, Ownership(thread))
    head, first, token, owner, expires = row
    with suppress(CheckpointError, TypeError, ValueError):
        numbers = (
            is_whole(head, MAX_SEQUENCE) and is_whole(first, head) and is_whole(token, MAX_TOKEN)
        )
        if numbers and owner is None and expires is None:
            return ThreadRow(head, first, Ownership(thread, token))
        end = datetime.fromisoformat(expires)
        if numbers and spelled(end) == expires:
            lease = Lease(thread, owner, token, end)
            return ThreadRow(head, first, Ownership(thread, token, lease))
    raise _malformed(path, thread)


def number_of(path: str, thread: str, number: object) -> int:
    """Return where a thread begins or ends, or 0.

    Raises:
        StorageUnavailable: that is no number of a record, and not 0.
    """
    if type(number) is int and is_whole(number, MAX_SEQUENCE):
        return number
    raise _malformed(path, thread)


def _malformed(path: str, thread: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"{shell(path)} does not say where thread '{thread}' ends or who owns it, so nothing of the"
        " thread is saved.",
        "Somebody else wrote it, or the disk failed. Put the database back from a backup.",
    )


def cut(thread: str, head: int, last: int) -> RecordsMissing:
    """Say that a thread does not end where its records do."""
    return RecordsMissing(
        f"Thread '{thread}' ends at checkpoint {head}, and the last one that is there is {last}.",
        "Somebody removed some, or put later ones there. Put the database back from a backup;"
        " until then nothing is loaded or saved.",
    )
