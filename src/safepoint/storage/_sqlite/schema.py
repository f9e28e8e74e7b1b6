"""The tables of the SQLite storage, and the triggers that keep them append-only.

A trigger is a rule for everybody who uses SQL. Whoever can write the file can drop it, edit a row
and put it back; that the rules are in place is looked at when the database is opened, and what
the row says is for the seal.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from typing import Final

from safepoint.errors import StorageUnavailable, quoted, shell

APPLICATION: Final = 0x53465054
"""The application_id of the file: "SFPT"."""
VERSION: Final = 1

_TABLES = (
    """CREATE TABLE checkpoints (
        thread TEXT NOT NULL,
        sequence INTEGER NOT NULL CHECK (sequence > 0),
        record BLOB NOT NULL,
        PRIMARY KEY (thread, sequence)
    ) STRICT""",
    """CREATE TABLE threads (
        thread TEXT NOT NULL PRIMARY KEY,
        head INTEGER NOT NULL DEFAULT 0,
        first INTEGER NOT NULL DEFAULT 0,
        base BLOB,
        token INTEGER NOT NULL DEFAULT 0 CHECK (token >= 0),
        owner TEXT,
        expires TEXT,
        CHECK (first BETWEEN 0 AND head),
        CHECK ((base IS NULL) = (first = 0)),
        CHECK ((owner IS NULL) = (expires IS NULL))
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE prunings (
        number INTEGER NOT NULL PRIMARY KEY,
        thread TEXT NOT NULL,
        first INTEGER NOT NULL,
        removed INTEGER NOT NULL,
        pruned TEXT NOT NULL
    ) STRICT""",
)
# BEFORE INSERT, too: INSERT OR REPLACE removes a row and fires no trigger of DELETE.
_TRIGGERS = (
    """CREATE TRIGGER checkpoints_insert BEFORE INSERT ON checkpoints
    WHEN EXISTS (
        SELECT 1 FROM threads
        WHERE thread = NEW.thread AND head > 0 AND head + 1 <> NEW.sequence
    )
    BEGIN SELECT RAISE(ABORT, 'a record follows upon the last one'); END""",
    """CREATE TRIGGER checkpoints_inserted AFTER INSERT ON checkpoints
    BEGIN
        INSERT INTO threads (thread) SELECT NEW.thread
        WHERE NOT EXISTS (SELECT 1 FROM threads WHERE thread = NEW.thread);
        UPDATE threads SET head = NEW.sequence WHERE thread = NEW.thread;
    END""",
    """CREATE TRIGGER checkpoints_update BEFORE UPDATE ON checkpoints
    BEGIN SELECT RAISE(ABORT, 'a record never changes'); END""",
    """CREATE TRIGGER checkpoints_delete BEFORE DELETE ON checkpoints
    WHEN NOT EXISTS (
        SELECT 1 FROM threads WHERE thread = OLD.thread AND OLD.sequence < first
    )
    BEGIN SELECT RAISE(ABORT, 'a record goes only when its thread is pruned'); END""",
    """CREATE TRIGGER threads_insert BEFORE INSERT ON threads
    WHEN NEW.head <> 0 OR NEW.first <> 0
        OR EXISTS (SELECT 1 FROM threads WHERE thread = NEW.thread)
    BEGIN SELECT RAISE(ABORT, 'a thread begins once, and empty'); END""",
    """CREATE TRIGGER threads_update BEFORE UPDATE ON threads
    WHEN NEW.thread IS NOT OLD.thread OR NEW.first < OLD.first OR NEW.token < OLD.token
        OR (NEW.head <> OLD.head AND OLD.head <> 0 AND NEW.head <> OLD.head + 1)
        OR (NEW.head <> OLD.head AND NOT EXISTS (
            SELECT 1 FROM checkpoints WHERE thread = NEW.thread AND sequence = NEW.head))
        OR (NEW.first <> OLD.first AND NOT EXISTS (
            SELECT 1 FROM checkpoints WHERE thread = NEW.thread AND sequence = NEW.first))
    BEGIN SELECT RAISE(ABORT, 'a thread never moves back'); END""",
    """CREATE TRIGGER threads_delete BEFORE DELETE ON threads
    BEGIN SELECT RAISE(ABORT, 'a thread never goes'); END""",
    """CREATE TRIGGER threads_pruned AFTER UPDATE OF first, base ON threads
    WHEN NEW.first <> OLD.first OR NEW.base IS NOT OLD.base
    BEGIN
        INSERT INTO prunings (number, thread, first, removed, pruned)
        SELECT
            coalesce(max(number), 0) + 1,
            NEW.thread,
            NEW.first,
            (SELECT count(*) FROM checkpoints
                WHERE thread = NEW.thread AND sequence < NEW.first),
            strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
        FROM prunings;
        DELETE FROM checkpoints WHERE thread = NEW.thread AND sequence < NEW.first;
    END""",
    """CREATE TRIGGER prunings_insert BEFORE INSERT ON prunings
    WHEN NEW.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM prunings)
    BEGIN SELECT RAISE(ABORT, 'a pruning follows upon the last one'); END""",
    """CREATE TRIGGER prunings_update BEFORE UPDATE ON prunings
    BEGIN SELECT RAISE(ABORT, 'a pruning never changes'); END""",
    """CREATE TRIGGER prunings_delete BEFORE DELETE ON prunings
    BEGIN SELECT RAISE(ABORT, 'a pruning never goes'); END""",
)
_HEADER = "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version"
_PARTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
Parts = dict[tuple[str, str], tuple[str, str | None]]


def blank(connection: sqlite3.Connection) -> bool:
    """Tell whether this is a database that nobody has put anything into."""
    return _header(connection) == (0, 0) and not _parts(connection)


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, inside the transaction of the caller."""
    for statement in (*_TABLES, *_TRIGGERS):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def check(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database whose tables and triggers are not exactly those that `create` makes.

    Args:
        connection: the database.
        path: its file, for the message.

    Raises:
        StorageUnavailable: it is of another application, of a newer version, or was changed.
        sqlite3.Error: it cannot be read.
    """
    shown = shell(path)
    application, version = _header(connection)
    if application != APPLICATION:
        raise StorageUnavailable(
            f"{shown} is a database of another application (application_id {application}).",
            "Nothing in it was changed. Name another file: one that does not exist yet is made.",
        )
    if version > VERSION:
        raise StorageUnavailable(
            f"{shown} was written by a newer version of safepoint (its schema is {version}, and"
            f" this one knows {VERSION}).",
            "Use that version: pip install --upgrade safepoint",
        )
    found, ours = _parts(connection), _ours()
    for kind, name in sorted({*found, *ours}, key=lambda part: (part in ours, part)):
        before, after = ours.get((kind, name)), found.get((kind, name))
        if before != after:
            what = "was added" if before is None else "is gone" if after is None else "was changed"
            raise StorageUnavailable(
                f"{shown} does not have the schema that safepoint made: the {kind} {quoted(name)}"
                f" {what}.",
                "Somebody changed the database, and may have changed records. Put it back from a"
                f" backup, and see who can write it: ls -l {shown}",
            )
    if version != VERSION:
        raise StorageUnavailable(
            f"{shown} says that its schema is {version}, and it is {VERSION}.",
            "Somebody changed the database. Put it back from a backup, and see who can write it:"
            f" ls -l {shown}",
        )


def _header(connection: sqlite3.Connection) -> tuple[int, int]:
    application, version = connection.execute(_HEADER).fetchone()
    return application, version


def _parts(connection: sqlite3.Connection) -> Parts:
    rows = connection.execute(_PARTS).fetchall()
    return {(str(kind), str(name)): (str(table), sql) for kind, name, table, sql in rows}


@cache
def _ours() -> Parts:
    with closing(sqlite3.connect(":memory:")) as connection:
        create(connection)
        return _parts(connection)
