"""Reading many records: a chunk at a time, with nothing held in between.

A read that stays open keeps SQLite from emptying its log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from safepoint.storage._sqlite import statements as sql
from safepoint.storage._sqlite.database import Database
from safepoint.storage._sqlite.rows import record_of

_RECORDS: Final = 256
_BYTES: Final = 1 << 20
Row = tuple[int, int, bytes | None]


def scan(
    database: Database,
    thread: str,
    sequences: range,
    limit: int,
    read: Callable[[str, int], bytes],
) -> Iterator[bytes]:
    """Return the records at these sequences, in their order.

    Args:
        database: where they are.
        thread: the thread.
        sequences: one after the other, up or down.
        limit: how many bytes a record may have.
        read: reads one record. It is asked for one that is not there, and says why.

    Raises:
        CheckpointError: as `read` does. The records before that one were handed out.
    """
    while sequences:
        rows = _chunk(database, thread, sequences, limit)
        if not rows or rows[0][0] != sequences[0]:
            yield read(thread, sequences[0])
            sequences = sequences[1:]
            continue
        for found, size, record in rows:
            if found != sequences[0]:
                break  # and the next chunk begins there
            yield record_of(thread, found, size, record, limit)
            sequences = sequences[1:]


def _chunk(database: Database, thread: str, sequences: range, limit: int) -> list[Row]:
    """Read on from the first of them, until that is enough."""
    statement = sql.UP if sequences.step > 0 else sql.DOWN
    low, high = sorted((sequences[0], sequences[-1]))
    rows: list[Row] = []
    size = 0
    with (
        database.reading() as connection,
        closing(connection.execute(statement, (thread, low, high, limit, _RECORDS))) as cursor,
    ):
        for row in cursor:
            rows.append(row)
            size += len(row[2] or b"")
            if size >= _BYTES:
                break
    return rows
