"""Each statement that the SQLite storage runs: constant text, with parameters."""

from __future__ import annotations

from typing import Final

THREAD: Final = "SELECT head, first, token, owner, expires FROM threads WHERE thread = ?"
APPEND: Final = "INSERT INTO checkpoints (thread, sequence, record) VALUES (?, ?, ?)"
THERE: Final = "SELECT 1 FROM checkpoints WHERE thread = ? AND sequence = ?"
# A record over the limit is not read into memory: length() looks at the row's own header.
READ: Final = (
    "SELECT t.first, length(c.record), CASE WHEN length(c.record) <= ?3 THEN c.record END"
    " FROM threads t LEFT JOIN checkpoints c ON c.thread = t.thread AND c.sequence = ?2"
    " AND c.sequence >= t.first WHERE t.thread = ?1"
)
UP: Final = (
    "SELECT sequence, length(record), CASE WHEN length(record) <= ?4 THEN record END"
    " FROM checkpoints WHERE thread = ?1 AND sequence BETWEEN ?2 AND ?3"
    " AND sequence >= (SELECT first FROM threads WHERE thread = ?1)"
    " ORDER BY sequence LIMIT ?5"
)
DOWN: Final = UP.replace("ORDER BY sequence", "ORDER BY sequence DESC")
HEAD: Final = (
    "SELECT head, first, (SELECT max(sequence) FROM checkpoints WHERE thread = ?1),"
    " EXISTS (SELECT 1 FROM checkpoints c WHERE c.thread = ?1 AND c.sequence = first)"
    " FROM threads WHERE thread = ?1"
)
THREADS: Final = "SELECT thread FROM threads WHERE head > 0"
BASE: Final = (
    "SELECT first, length(base), CASE WHEN length(base) <= ?2 THEN base END FROM threads"
    " WHERE thread = ?1 AND base IS NOT NULL"
)
PRUNE: Final = "UPDATE threads SET first = ?2, base = ?3 WHERE thread = ?1"
BELOW: Final = "SELECT count(*) FROM checkpoints WHERE thread = ? AND sequence < ?"
NEW: Final = "INSERT INTO threads (thread, token, owner, expires) VALUES (?1, ?2, ?3, ?4)"
OWN: Final = "UPDATE threads SET token = ?2, owner = ?3, expires = ?4 WHERE thread = ?1"
