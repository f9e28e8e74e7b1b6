"""Slot: a place for one connection."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from threading import Lock

from safepoint.storage._sqlite.place import Identity


class Slot:
    """A place for one connection, with a lock on it and what was true when it was opened."""

    def __init__(self) -> None:
        self.mutex = Lock()
        self.connection: sqlite3.Connection | None = None
        self.process = 0
        self.cookie = 0
        self.identity: Identity = ()

    def drop(self) -> None:
        """Close the connection."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def leak(self) -> None:
        """Keep the connection from ever being closed, not even when the interpreter ends.

        The library would take itself for the last user of the database, and remove its log.
        """
        connection, self.connection = self.connection, None
        if connection is not None:
            import ctypes  # here: it takes long, and is hardly ever needed

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
