"""Reading many records: a chunk at a time, with nothing held in between.

A read that stays open keeps SQLite from emptying its log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from safepoint.storage._sqlite import statements as sql
from safepoint.storage._sqlite.database import Database
from safepoint.storage.base import in_portions

_RECORDS: Final = 256
_BYTES: Final = 1 << 20
Row = tuple[int, object, object]


def scan(
    database: Database,
    thread: str,
    sequences: range,
    limit: int,
    read: Callable[[str, int], bytes],
) -> Iterator[bytes]:
    """Return the records at these sequences, in their order: see `in_portions`."""
    return in_portions(
        thread, sequences, lambda rest: _chunk(database, thread, rest, limit), read, limit
    )


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
            size += len(row[2]) if type(row[2]) is bytes else 0  # the file may hold any type
            if size >= _BYTES:
                break
    return rows
