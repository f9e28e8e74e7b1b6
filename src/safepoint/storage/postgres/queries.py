"""The SQL of the storage. It is constant: what differs from call to call is a parameter."""

from __future__ import annotations

from typing import Final

VERSION: Final = "select max(number) from safepoint.version"
APPEND: Final = (
    "insert into safepoint.checkpoints (thread, sequence, record, fence)"
    " values (%s, %s, %b, %s::bigint)"
)
FOLLOW: Final = (
    "insert into safepoint.checkpoints (thread, sequence, record, fence)"
    " select thread, %s, %b, %s::bigint from safepoint.threads where thread = %s and head = %s"
)
READ: Final = (
    "select octet_length(record), case when octet_length(record) <= %s then record end"
    " from safepoint.checkpoints where thread = %s and sequence = %s"
)
# A portion ends with the record that makes it a megabyte.
_SCAN: Final = (
    "select sequence, size, case when size <= %s then record end from ("
    "select sequence, record, octet_length(record) as size, sum(octet_length(record)) over"
    " (order by sequence {0} rows between unbounded preceding and 1 preceding) as before"
    " from safepoint.checkpoints where thread = %s and sequence between %s and %s"
    " order by sequence {0} limit 256) portion"
    " where before is null or before < 1048576 order by sequence {0}"
)
UP: Final = _SCAN.format("asc")
DOWN: Final = _SCAN.format("desc")
HEAD: Final = "select head from safepoint.threads where thread = %s"
THREADS: Final = "select thread from safepoint.threads where head > 0 order by thread"
BASE: Final = (
    "select first, octet_length(base), case when octet_length(base) <= %s then base end"
    " from safepoint.threads where thread = %s and base is not null"
)
# PostgreSQL has times that Python has not: infinity, and years before 1 and after 9999.
THREAD: Final = (
    "select head, first, token, owner, case when expires >= '0001-01-02 00:00:00+00'"
    " and expires < '9999-12-31 00:00:00+00' then expires end, expires is null,"
    " login = session_user from safepoint.threads where thread = %s"
)
PRUNE: Final = "select safepoint.prune(%s, %s, %b)"
DISCARD: Final = "select safepoint.discard(%s, %s)"
ACQUIRE: Final = "select token, expires from safepoint.acquire(%s, %s, %s)"
RENEW: Final = "select safepoint.renew(%s, %s, %s, %s)"
RELEASE: Final = "select safepoint.release(%s, %s, %s)"
BREAK: Final = "select safepoint.break_lease(%s)"
