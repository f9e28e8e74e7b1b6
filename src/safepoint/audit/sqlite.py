"""Is the database of an SQLite storage private, whole, and only ever added to?

What `SQLiteCheckpointStorage` refuses is asked of the very functions that it asks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from safepoint._files import absolute, location_refusals, require_posix
from safepoint.audit.contents import SEALED, has_pickle
from safepoint.audit.finding import Finding, finding, guarded, refused, worst_first
from safepoint.audit.folder import record_file, surroundings
from safepoint.errors import (
    CheckpointError,
    LimitExceeded,
    NotFound,
    StorageError,
    StorageUnavailable,
    quoted,
    shell,
)
from safepoint.models import classify
from safepoint.names import DEFAULT_LIMITS, Limits
from safepoint.storage.base import gap, is_thread
from safepoint.storage.sqlite import SQLiteCheckpointStorage

BESIDE: Final = ("", "-wal", "-shm", "-journal")
_NAMES: Final = "SELECT DISTINCT thread FROM checkpoints UNION SELECT thread FROM threads"
_GAPS: Final = (
    "SELECT c.thread, min(c.sequence) + 1, t.head FROM checkpoints c JOIN threads t"
    " ON t.thread = c.thread WHERE c.sequence + 1 < t.head AND NOT EXISTS (SELECT 1"
    " FROM checkpoints n WHERE n.thread = c.thread AND n.sequence = c.sequence + 1)"
    " GROUP BY c.thread"
)
_UNWRITTEN: Final = (
    "SELECT thread, first FROM threads t WHERE first > 0 AND NOT EXISTS"
    " (SELECT 1 FROM prunings p WHERE p.thread = t.thread AND p.first = t.first)"
)
_LEFT: Final = (
    "SELECT c.thread, t.first, count(*) FROM checkpoints c JOIN threads t ON t.thread = c.thread"
    " WHERE c.sequence < t.first GROUP BY c.thread"
)
_KEPT: Final = "SELECT sequence FROM checkpoints WHERE thread = ? ORDER BY sequence"


def check_database(
    path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS
) -> list[Finding]:
    """Look at the file of an SQLite storage. Nothing is changed.

    ```python
    import sqlite3

    from safepoint import SQLiteCheckpointStorage
    from safepoint.audit import check_database

    with SQLiteCheckpointStorage("state/checkpoints.db") as storage:
        storage.append("order-7", 1, b"safepoint/1 ...")
    with sqlite3.connect("state/checkpoints.db") as thief:
        thief.execute("drop trigger checkpoints_update")
    thief.close()
    for finding in check_database("state/checkpoints.db"):
        if finding.severity == "error":
            print(finding.rule, finding.what.split(": ")[1])
            #> SP13 the trigger 'checkpoints_update' is gone.
    ```

    Args:
        path: the file.
        limits: how large a record may be.

    Returns:
        Under SP04, an error for each reason why the storage refuses the place, and for a file that
        others can read; under SP01, a warning for a place that others can read or replace, that is
        temporary, or in a git work tree. Under SP13, an error if the schema was changed, the
        database is damaged, or a thread has a gap; a warning for what this package does not write.
        Under SP10 and SP03, a warning for each record that is not sealed, or is a pickle; under
        SP11, an error for each that is over the limit.

    Raises:
        StorageUnavailable: there is no such file, or the system is not POSIX.
        UnsafeLocation: what is above it is not a folder.
    """
    require_posix()
    place = absolute(path)
    if not os.path.lexists(place):
        raise StorageUnavailable(
            f"{shell(place)} does not exist.", "Name the file of your SQLiteCheckpointStorage."
        )
    found = [*guarded("SP04", place, _place(place))]
    try:
        with SQLiteCheckpointStorage(path, limits=limits, read_only=True) as storage:
            found += worst_first(_contents(storage))
    except StorageError as refusal:
        found.append(refused("SP13", refusal, place))
    unique: dict[str, Finding] = {}
    for each in found:
        unique.setdefault(each.what, each)  # what the place is like, it says once
    return list(unique.values())


def _place(place: str) -> Iterator[Finding]:
    folder = str(Path(place).parent)
    yield from (refused("SP04", refusal, folder) for refusal in location_refusals(folder))
    yield from surroundings(folder)
    for suffix in BESIDE:
        yield from guarded("SP04", place + suffix, record_file(Path(place + suffix), None))


def _contents(storage: SQLiteCheckpointStorage) -> Iterator[Finding]:
    where = str(storage.path)
    [(state,)] = storage.rows("PRAGMA integrity_check(1)")
    if state != "ok":
        yield finding("SP13.damaged", where)
        return
    odd = [name for (name,) in storage.rows(_NAMES) if not is_thread(name)]
    if odd:
        yield finding("SP13.odd-names", where, count=len(odd))
    for thread, missing, head in _shown(storage.rows(_GAPS)):
        yield refused("SP13", gap(thread, missing, head), thread)
    for thread, first, count in _shown(storage.rows(_LEFT)):
        yield finding("SP13.left", thread, first=first, count=count)
    for thread, first in _shown(storage.rows(_UNWRITTEN)):
        yield finding("SP13.not-pruned", thread, first=first)
    for thread in storage.threads():
        yield from _thread(storage, thread)


def _shown(rows: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Make of each name and number what a message can hold: the file may hold any type."""
    for row in rows:
        yield tuple(each if type(each) is int or is_thread(each) else quoted(each) for each in row)


def _thread(storage: SQLiteCheckpointStorage, thread: str) -> Iterator[Finding]:
    try:
        storage.head(thread)
        storage.base(thread)
    except CheckpointError as refusal:
        yield refused("SP13", refusal, thread)
        return
    for (sequence,) in storage.rows(_KEPT, (thread,)):
        shown = sequence if type(sequence) is int else quoted(sequence)
        try:
            record = storage.read(thread, sequence)
        except NotFound:
            continue  # it was pruned by now
        except CheckpointError as refusal:
            rule = "SP11" if isinstance(refusal, LimitExceeded) else "SP10"
            yield finding(
                f"{rule}.record-refused", thread, sequence=shown, why=refusal.what, do=refusal.do
            )
            continue
        if SEALED.match(record):
            continue
        if has_pickle(classify(record)):
            yield finding("SP03.record", thread, sequence=shown)
        else:
            yield finding("SP10.record", thread, sequence=shown)
