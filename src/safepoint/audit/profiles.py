"""What others keep: the audit knows it by tables, columns and keys, never by a name alone.

Databases of LangGraph and OpenClaw, which are in `profiles.toml` as data; the JSON of Agent
Framework, OpenClaw and Lobster. Nothing is decoded beyond JSON and nothing is changed.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from safepoint.audit.contents import has_pickle, runs
from safepoint.audit.finding import Finding, content, finding, listed, unseen, worst_first
from safepoint.core.errors import quoted
from safepoint.models import inspect
from safepoint.rules import package_toml
from safepoint.stores.disk import absolute

_PROFILES: Final = package_toml("audit/profiles.toml")
_SQLITE: Final = b"SQLite format 3\0"
_OURS: Final = ({"thread", "sequence", "record"}, {"thread", "sequence", "digest", "seen"})
_LONGEST: Final = 16 * 1024 * 1024
_SECONDS: Final = 30.0
# Its settings are JSON5: names may stand without quotes, and comments anywhere.
_TOUCHED: Final = re.compile(rb"\blastTouchedVersion[\"']?\s*:\s*[\"'][0-9]")
_CHECKPOINT: Final = {"checkpoint_id", "workflow_name", "graph_signature_hash", "state", "messages"}
_MARKS: Final = re.compile(rb'"(resumeAtIndex|graph_signature_hash|session|defaults|agents)"')
_NO_PICKLE: Final = re.compile(rb"[\x81\x85-\x87\x90-\x94\x98-\xdf]|\Z")  # as MessagePack begins
_ASKS: Final = re.compile(rb'"(askFallback|allowlist|security)"')

KEPT: Final = {
    "Agent Framework checkpoint": "SP12.unsealed-state",
    "Lobster resume state": "SP12.unsigned-resume",
    "session transcript": "SP13.transcripts",
    "OpenClaw approval list": "SP19.unsigned-approvals",
    "OpenClaw settings file": "SP22.gateway",
}
"""Each kind of file that others keep, and what is said of those in a folder."""
Query = Callable[[str], Iterable[tuple[Any, ...]]]


class Recognised(NamedTuple):
    """What a path holds that others wrote.

    Attributes:
        name: what it is, to go behind "is".
        findings: what is wrong with it, the worst first.
    """

    name: str
    findings: list[Finding]


# --- databases


def recognise_database(path: str) -> Recognised | None:
    """Look at a file of SQLite that is not a store of this package. It is not changed or locked.

    Returns:
        What it is; None if it is not a database, or one that this package made, whatever was done
        to it since.
    """
    place = absolute(path)
    try:
        begins = content(place, 100)
    except OSError as error:
        return Recognised("a file that cannot be read", [unseen("SP02", place, error.strerror)])
    if begins is None or not begins[0].startswith(_SQLITE) or begins[0][68:71] == b"SFP":
        return None  # by the number of an application, which is ours
    name, found = "an SQLite database that cannot be read", [*_beside(place)]
    try:
        with closing(_opened(place)) as connection:
            tables = _tables(connection)
            if any(columns <= {*each} for columns in _OURS for each in tables.values()):
                return None
            known = _known_by(tables)
            name = "an SQLite database that is not known here"
            if known is None:
                found.append(_unknown(place, tables, connection.execute))
            else:
                name = known["name"]
                found += _judged(known, place, tables, connection.execute)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # it may quote a schema, which is no text
        found.append(unseen("SP02", place, f"SQLite says: {quoted(str(error))}"))
    return Recognised(name, worst_first(found))


def _opened(path: str) -> sqlite3.Connection:
    """Open a database that anybody may have written: for reading, without locks, with bounds."""
    uri = f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    ends = time.monotonic() + _SECONDS
    connection.set_progress_handler(lambda: int(time.monotonic() > ends), 10_000)
    for setting in ("trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _tables(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the columns of each table. Views and virtual tables are code, and left alone."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
    names = [name for name, sql in rows if not re.match(r"(?i)create\s+virtual|\Z", sql or "")]
    return {
        name: [row[1] for row in connection.execute(f"PRAGMA table_info({_named(name)})")]
        for name in names
        if not name.startswith("sqlite_")
    }


def _named(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _known_by(tables: Mapping[str, list[str]]) -> Mapping[str, Any] | None:
    """Return the profile whose tables are all there, if there is one."""
    for profile in _PROFILES.values():
        wanted: Mapping[str, str] = profile["tables"]
        if all({*columns.split()} <= {*tables.get(name, ())} for name, columns in wanted.items()):
            return dict(profile)
    return None


def _beside(path: str) -> Iterator[Finding]:
    """Yield that newer rows were not seen, which a program that is at work has put next to it."""
    for suffix in ("-wal", "-journal"):
        with suppress(OSError):
            if Path(path + suffix).lstat().st_size:
                yield unseen("SP02", path, f"its newest rows are in {Path(path + suffix).name}")


def _unknown(path: str, tables: Mapping[str, list[str]], rows: Query) -> Finding:
    count = sum(n for name in tables for (n,) in rows(f"SELECT count(*) FROM {_named(name)}"))  # noqa: S608
    names = listed([quoted(name) for name in sorted(tables)]) or "none"
    return finding("SP02.foreign-database", path, tables=len(tables), rows=count, names=names)


def _judged(
    known: Mapping[str, Any], where: str, tables: Mapping[str, list[str]], rows: Query
) -> Iterator[Finding]:
    """Yield what is wrong with the rows of a database that is known."""

    def ask(column: str, what: str, more: str = "") -> Iterable[tuple[Any, ...]]:
        """Ask for what a question mark stands for, if there is such a column, or table."""
        table, _, name = column.partition(".")
        if table not in tables or (name and name not in tables[table]):
            return ()
        return rows(f"SELECT {what.replace('?', name)} FROM {table}{more}")  # noqa: S608

    asked = [(*known["runs"], "count(DISTINCT ?)")] if "runs" in known else []
    asked += [(table, noun, "count(*)") for table, noun in known["holds"].items()]
    said = [
        f"{number} {noun.removesuffix('s') if number == 1 else noun}"
        for column, noun, what in asked
        for (number,) in ask(column, what)
    ]
    yield finding(
        "SP12.unsealed-state", where, name=known["name"], said=", ".join(said), do=known["do"]
    )
    types: Counter[str] = Counter()
    for column in known.get("types", ()):
        types.update(
            {str(kind): number for kind, number in ask(column, "?, count(*)", " GROUP BY 1")}
        )
    if types:
        shown = listed([f"{number} as {quoted(kind)}" for kind, number in types.most_common()])
        yield finding("SP10.row-types", where, shown=shown)
    blob = "CAST(coalesce(?, '') AS BLOB), type LIKE '%pickle%'"
    values = (row for column in known.get("values", ()) for row in ask(column, blob))
    seen = ((inspect(data), says) for data, says in values if says or not _NO_PICKLE.match(data))
    if pickles := [runs(found) for found, says in seen if says or has_pickle(found)]:
        yield finding("SP03.pickle-rows", where, count=len(pickles))
    if names := sorted({name for each in pickles for name in each}):
        yield finding("SP03.runs-code", where, carries="holds a pickle", names=listed(names))
    waits = sum(
        number
        for table, which in known.get("waits", {}).items()
        for (number,) in ask(table, "count(*)", f" WHERE {which}")
    )
    if waits:
        yield finding("SP19.unsigned-approvals", where, count=waits)


# --- files


def kept_by_others(data: bytes) -> str | None:
    """Say which of `KEPT` a text is, by the keys of the object that it begins with."""
    if _TOUCHED.search(data):
        return "OpenClaw settings file"
    first = data.split(b"\n", 1)[0]
    for text in (first, data) if _MARKS.search(data) else ():
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        keys = found.keys() if isinstance(found, dict) else set[str]()
        if text is first and {"id", "timestamp"} <= keys and found.get("type") == "session":
            return "session transcript"
        if {"resumeAtIndex", "createdAt"} <= keys and ({"pipeline", "filePath"} & keys):
            return "Lobster resume state"
        if keys >= _CHECKPOINT:
            return "Agent Framework checkpoint"
        if "version" in keys and {"defaults", "agents"} & keys and _ASKS.search(data):
            return "OpenClaw approval list"
    return None
