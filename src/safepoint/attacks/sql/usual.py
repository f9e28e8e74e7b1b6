"""UNSAFE: the tables as most applications have them. One login owns them, and writes with that.

The ledger on top is the same, sealed and anchored; what is missing is all that a server can do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import psycopg

from safepoint.errors import StorageUnavailable
from safepoint.storage.base import Lease, Leasing, Ownership, missing, taken

TABLES: Final = """
create schema safepoint;
create table safepoint.threads (
  thread text primary key, first bigint not null default 1, base bytea,
  token bigint not null default 0, owner text, expires timestamptz,
  login name not null default session_user
);
create table safepoint.checkpoints (
  thread text, sequence bigint, record bytea not null, fence bigint,
  login name not null default session_user, written timestamptz not null default now(),
  primary key (thread, sequence)
);
create table safepoint.takings (
  thread text, token bigint, owner text, login name default session_user,
  taken timestamptz default now()
);
create table safepoint.prunings (
  thread text, first bigint, removed bigint, login name default session_user,
  pruned timestamptz default now()
);
create table safepoint.discarded (
  thread text, sequence bigint, record bytea, login name default session_user,
  discarded timestamptz default now()
);
create schema safepoint_anchor;
create table safepoint_anchor.version (number integer);
insert into safepoint_anchor.version values (1);
create table safepoint_anchor.heads (
  store text, thread text, sequence bigint, digest text, primary key (store, thread)
);
create table safepoint_anchor.rewinds (
  store text, thread text, from_sequence bigint, to_sequence bigint,
  login name default session_user, rewound timestamptz default now()
);
create schema safepoint_journal;
create table safepoint_journal.records (
  journal text, sequence bigint, record bytea, login name default session_user,
  written timestamptz default now(), primary key (journal, sequence)
);
"""

TRACES: Final = """
insert into safepoint.discarded (thread, sequence, record) values ('mended', 3, 'x');
insert into safepoint_anchor.rewinds (store, thread, from_sequence, to_sequence)
  values ('orders', 'mended', 3, 2);
insert into safepoint_journal.records (journal, sequence, record) values ('journal', 1, 'x');
"""
"""What it wrote down about a loss that was accepted, as ours does."""

_BASE: Final = (
    "insert into safepoint.threads (thread, first, base) values (%s, %s, %b)"
    " on conflict (thread) do update set first = excluded.first, base = excluded.base"
)
_OWN: Final = (
    "insert into safepoint.threads (thread, token, owner, expires) values (%s, %s, %s, %s)"
    " on conflict (thread) do update"
    " set token = excluded.token, owner = excluded.owner, expires = excluded.expires"
)


class UsualStorage(Leasing):
    """UNSAFE: keeps records in tables of its own, and looks at leases before it writes.

    Args:
        dsn: the one login.
        seconds: how long to wait for the server.
    """

    def __init__(self, dsn: str, seconds: float) -> None:
        limit = round(seconds * 1000)
        options = f"-c statement_timeout={limit} -c lock_timeout={limit}"
        self._error: type[Exception] = psycopg.Error
        self._connection = self._said(
            lambda: psycopg.connect(dsn, autocommit=True, options=options)
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Insert a row."""
        self._ownership(thread).check_fence(fence)
        if self.head(thread) >= sequence:
            raise taken(thread, sequence, 0)
        insert = "insert into safepoint.checkpoints (thread, sequence, record) values (%s, %s, %b)"
        self._ask(insert, thread, sequence, record)

    def read(self, thread: str, sequence: int) -> bytes:
        """Select a row."""
        query = "select record from safepoint.checkpoints where thread = %s and sequence = %s"
        rows = self._ask(query, thread, sequence)
        if not rows:
            raise missing(thread, sequence, 0)
        return bytes(rows[0][0])

    def head(self, thread: str) -> int:
        """Return the highest number that there is."""
        query = "select coalesce(max(sequence), 0) from safepoint.checkpoints where thread = %s"
        return int(self._ask(query, thread)[0][0])

    def threads(self) -> list[str]:
        """Return the names of the threads with a record."""
        return [row[0] for row in self._ask("select distinct thread from safepoint.checkpoints")]

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return what a prune left."""
        query = "select first, base from safepoint.threads where thread = %s and base is not null"
        rows = self._ask(query, thread)
        return (int(rows[0][0]), bytes(rows[0][1])) if rows else None

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Delete rows, and note that."""
        self._ask(_BASE, thread, first, base)
        delete = "delete from safepoint.checkpoints where thread = %s and sequence < %s returning 1"
        removed = len(self._ask(delete, thread, first))
        note = "insert into safepoint.prunings (thread, first, removed) values (%s, %s, %s)"
        self._ask(note, thread, first, removed)
        return removed

    def _ownership(self, thread: str) -> Ownership:
        query = "select token, owner, expires from safepoint.threads where thread = %s"
        rows = self._ask(query, thread)
        token, owner, expires = rows[0] if rows else (0, None, None)
        holder = None if owner is None else Lease(thread, owner, token, expires)
        return Ownership(thread, token, holder)

    def _change_ownership(self, thread: str, step: Callable[[Ownership], Ownership]) -> Ownership:
        after = step(self._ownership(thread))
        holder = after.holder
        owner = (None, None) if holder is None else (holder.owner, holder.expires)
        self._ask(_OWN, thread, after.token, *owner)
        note = "insert into safepoint.takings (thread, token, owner) values (%s, %s, %s)"
        self._ask(note, thread, after.token, owner[0])
        return after

    def _ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        done = self._said(lambda: self._connection.execute(statement, values, binary=True))
        return [] if done.description is None else list(done.fetchall())

    def _said(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except self._error as error:
            raise StorageUnavailable(
                f"The server could not do that: {type(error).__name__}.", "Look at its log."
            ) from error
