"""Database: what the parts of the PostgreSQL storage share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from safepoint._postgres.connections import Connections
from safepoint._postgres.driver import driver
from safepoint.errors import NotOwner
from safepoint.names import spelled
from safepoint.storage.base import Ownership
from safepoint.storage.postgres import queries as sql
from safepoint.storage.postgres.rows import ThreadRow, thread_row

if TYPE_CHECKING:
    from safepoint._postgres.driver import Connection

LARGEST: Final = 256 * 1024 * 1024
"""How many bytes the database takes in a record."""


class Database:
    """A server with the schema of a store, as one login sees it."""

    def __init__(self, dsn: str, limit: int, *, connections: int, wait_seconds: float) -> None:
        self._limit = min(limit, LARGEST)
        self._server = Connections(dsn, sql.VERSION, most=connections, wait_seconds=wait_seconds)
        self._error: type[Exception] = driver().Error

    def _thread(self, connection: Connection, thread: str) -> ThreadRow:
        return thread_row(self._server.where(), thread, row_of(connection, sql.THREAD, (thread,)))


def row_of(
    connection: Connection, statement: str, values: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    """Return the first row that a statement gives, if there is one."""
    return connection.execute(statement, values, binary=True).fetchone()


def code_of(error: Exception) -> str | None:
    """Return the SQLSTATE of an error, if the server said one."""
    return getattr(error, "sqlstate", None)


def of_another_login(held: Ownership) -> NotOwner:
    """Say that a thread is another login's."""
    holder = held.holder
    if holder is None:
        return NotOwner(
            f"Thread '{held.thread}' was written by another login, and this one has not acquired"
            " it.",
            "Nothing was saved. Acquire the thread, load its latest checkpoint, and decide again"
            " from there.",
        )
    return NotOwner(
        f"Thread '{held.thread}' is owned by worker '{holder.owner}' under another login until"
        f" {spelled(holder.expires)}.",
        "Nothing was saved. Wait until then, or let that worker release it.",
    )
