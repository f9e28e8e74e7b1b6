"""What a connection does but read and write: settings, the tables of a new database, the log.

Nothing is written to a database before it is known to be ours, or nobody's.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from urllib.parse import quote

from safepoint.errors import StorageUnavailable, shell
from safepoint.storage._sqlite import schema

_SETTINGS = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA secure_delete = ON",
    # What SQLite puts aside for a moment holds records, and would go to the system's /tmp.
    "PRAGMA temp_store = MEMORY",
)
_WAL = "PRAGMA journal_mode = WAL"
_PATIENCE = 0.1


def connect(path: str, seconds: float) -> sqlite3.Connection:
    """Open a database that exists.

    Args:
        path: the file, absolute.
        seconds: how long SQLite waits for others.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode=rw",
        timeout=seconds,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    try:
        connection.text_factory = _text
        if sys.version_info >= (3, 12):
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        for setting in _SETTINGS:
            connection.execute(setting)
    except BaseException:
        connection.close()
        raise
    return connection


def create_tables(connection: sqlite3.Connection) -> None:
    """Make the tables, unless somebody else has made some meanwhile.

    Raises:
        sqlite3.Error: a step failed. The database is as it was.
    """
    if schema.blank(connection):
        connection.execute(_WAL)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if schema.blank(connection):
            schema.create(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database that is not exactly ours, and let it have its log.

    Raises:
        StorageUnavailable: it is not, or it cannot have one.
        sqlite3.Error: it cannot be read.
    """
    schema.check(connection, path)
    mode = connection.execute(_WAL).fetchone()[0]
    if mode != "wal":
        raise StorageUnavailable(
            f"{shell(path)} cannot have a write-ahead log here, only '{mode}'.",
            "Name a file on a local file system such as ext4, XFS or APFS.",
        )
    connection.execute("SELECT 1 FROM threads LIMIT 1").fetchone()  # opens the files beside it


def empty_log(connection: sqlite3.Connection, seconds: float) -> None:
    """Move what is in the log into the database, and cut the log off, unless others read it.

    Nobody writes while it waits for readers, so it does not wait for long.

    Args:
        connection: the database, outside a transaction.
        seconds: how long SQLite waits for others at any other time.

    Raises:
        sqlite3.Error: the disk fails.
    """
    try:
        connection.execute(f"PRAGMA busy_timeout = {int(min(_PATIENCE, seconds) * 1000)}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")


def _text(data: bytes) -> str:
    """Read a text that may be somebody else's: what is not UTF-8 is no name of ours."""
    return data.decode("utf-8", "replace")
