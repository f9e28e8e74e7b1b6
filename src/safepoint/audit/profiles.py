"""What others keep: the audit knows it by tables, columns and keys, never by a name alone.

LangGraph, CrewAI, OpenAI Agents, Agent Framework, OpenClaw with Lobster, and caches of Hugging
Face. Nothing is decoded beyond JSON, nothing is changed, and of what looks like a secret only the
count is said. The databases stand in `profiles.toml`, as data.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from safepoint.audit.finding import (
    Closed,
    Finding,
    content,
    files,
    finding,
    guarded,
    listed,
    refused,
    unseen,
    worst_first,
)
from safepoint.audit.folder import around, record_file, surroundings
from safepoint.audit.models import judge
from safepoint.core.errors import quoted
from safepoint.models import Verdict
from safepoint.rules import package_toml
from safepoint.stores.database import BESIDE
from safepoint.stores.disk import absolute, folder_refusals, location_refusals

if sys.platform != "win32":
    import grp
    import pwd
if TYPE_CHECKING:
    from safepoint.audit.postgres import Database

_PROFILES: Final = package_toml("audit/profiles.toml")
_ADVISORIES: Final = package_toml("audit/advisories.toml")["advisory"]
_SQLITE: Final = b"SQLite format 3\0"
_OURS: Final = ({"thread", "sequence", "record"}, {"thread", "sequence", "digest", "seen"})
_MOST: Final = 1024 * 1024
_SEARCHED: Final = 64 * _MOST
_LONGEST: Final = 16 * _MOST
_SECONDS: Final = 30.0
_FILES: Final = 10_000
_SECRETS: Final = {
    "private keys": re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[^-]{0,99}"),
    "API keys": re.compile(
        rb"(?<![A-Za-z0-9_-])(?:sk-[A-Za-z0-9_-]{20,200}+|AIza[A-Za-z0-9_-]{35}|AKIA[A-Z0-9]{16})"
        rb"(?![A-Za-z0-9_-])"
    ),
    "tokens": re.compile(
        rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,99}|xox[abprs]-[A-Za-z0-9-]{20,99}"
        rb"|hf_[A-Za-z0-9]{34}|[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"
        rb"|(?<!-)eyJ[A-Za-z0-9_-]{10,999}+\.eyJ[A-Za-z0-9_-]{10,4999}+\.[A-Za-z0-9_-]{10,999})"
    ),
}
_RELEASE: Final = re.compile(r"(\d{4})\.(\d{1,2})\.(\d{1,3})(-[a-z])?")
# Its settings are JSON5: names may stand without quotes, and comments anywhere.
_TOUCHED: Final = re.compile(
    rb"\blastTouchedVersion[\"']?\s*:\s*[\"']([0-9][0-9A-Za-z.-]{4,40})[\"']"
)
_OPENCLAW: Final = ("*", "state/*", "agents/*/agent/*", "agents/*/sessions/*")
_CHECKPOINT: Final = {"checkpoint_id", "workflow_name", "graph_signature_hash", "state", "messages"}
_MARKS: Final = re.compile(rb'"(resumeAtIndex|graph_signature_hash|session|defaults|agents)"')
_ASKS: Final = re.compile(rb'"(askFallback|allowlist|security)"')
_COMMIT: Final = re.compile(rb"[0-9a-f]{40}\s*")

UNREAD: Final = "an SQLite database that cannot be read"
"""The name of one whose tables SQLite does not find."""
Query = Callable[[str], Iterable[tuple[Any, ...]]]


class Recognised(NamedTuple):
    """What a path holds that others wrote.

    Attributes:
        name: what it is, to go behind "is".
        findings: what is wrong with it, the worst first.
        files: the files and folders that were looked at here, and need no other look.
        said: files that something is said of, and that hold more than was looked at here.
    """

    name: str
    findings: list[Finding]
    files: frozenset[str] = frozenset()
    said: frozenset[str] = frozenset()


# --- databases


def recognise_database(path: str) -> Recognised | None:
    """Look at a file of SQLite that is no store of this package. It is not changed or locked.

    Returns:
        What it is; None if it is no database, or one that this package made, whatever was done
        to it since.
    """
    place = absolute(path)
    try:
        begins = content(place, 100)
    except OSError as error:
        return Recognised("a file that cannot be read", [unseen("SP02", place, error.strerror)])
    if begins is None or not begins[0].startswith(_SQLITE) or begins[0][68:71] == b"SFP":
        return None  # by the number of an application, which is ours
    name, found = UNREAD, [*_beside(place)]
    try:
        with closing(_opened(place)) as connection:
            tables = _tables(connection)
            if any(columns <= {*each} for columns in _OURS for each in tables.values()):
                return None
            known = _known("sqlite", tables)
            name = "an SQLite database that is not known here"
            if known is None:
                found.append(_unknown(place, tables, connection.execute))
            else:
                name = known["name"]
                found += _judged_rows(known, place, tables, connection.execute)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # it may quote a schema, which is no text
        found.append(unseen("SP02", place, f"SQLite says: {quoted(str(error))}"))
    found += guarded("SP04", place, around(place, path))
    return Recognised(name, worst_first(found))


def recognise_tables(database: Database) -> Recognised | None:
    """Look for LangGraph's tables in a PostgreSQL database, beside the schemas of this package.

    Args:
        database: as `audit.postgres.looking(dsn)` gives it.

    Returns:
        What it holds; None if these tables are not there.
    """
    import psycopg

    found: dict[str, dict[str, list[str]]] = {}
    for schema, table, column in database.rows(
        "select quote_ident(nspname), relname::text, attname::text from pg_attribute"
        " join pg_class c on c.oid = attrelid join pg_namespace n on n.oid = relnamespace"
        " where relkind in ('r', 'p') and attnum > 0 and not attisdropped"
        " and relname like 'checkpoint%'"
    ):
        found.setdefault(schema, {}).setdefault(table, []).append(column)
    for schema, tables in sorted(found.items()):
        known = _known("postgres", tables)
        if known is None:
            continue
        where = schema + ".checkpoints"
        findings = [*_logins(database, where)]
        try:
            rows = database.connection.cursor().stream  # row by row: there may be many
            findings += _judged_rows(known, where, tables, rows, f"{schema}.")
        except psycopg.Error as error:
            findings.append(unseen("SP02", where, f"{error}".splitlines()[0]))
        return Recognised(known["name"], worst_first(findings))
    return None


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


def _known(kind: str, tables: Mapping[str, list[str]]) -> Mapping[str, Any] | None:
    for profile in _PROFILES[kind].values():
        wanted: Mapping[str, str] = profile["tables"]
        if all({*columns.split()} <= {*tables.get(name, ())} for name, columns in wanted.items()):
            return dict(profile)
    return None


def _beside(path: str) -> Iterator[Finding]:
    """Yield that newer rows were not seen, which a program that is at work has put beside it."""
    for suffix in ("-wal", "-journal"):
        with suppress(OSError):
            if Path(path + suffix).lstat().st_size:
                yield unseen("SP02", path, f"its newest rows are in {Path(path + suffix).name}")


def _unknown(path: str, tables: Mapping[str, list[str]], rows: Query) -> Finding:
    ask = "SELECT count(*) FROM {}".format
    count = sum(number for name in tables for (number,) in rows(ask(_named(name))))
    names = listed([quoted(name) for name in sorted(tables)]) or "none"
    return finding("SP02.foreign-database", path, tables=len(tables), rows=count, names=names)


def _judged_rows(
    known: Mapping[str, Any],
    where: str,
    tables: Mapping[str, list[str]],
    rows: Query,
    schema: str = "",
) -> Iterator[Finding]:
    """Yield what is wrong with the rows of a database that is known."""

    def ask(column: str, what: str, more: str = "") -> Iterable[tuple[Any, ...]]:
        """Ask for what a question mark stands for, if there is such a column, or table."""
        table, _, name = column.partition(".")
        if table not in tables or (name and name not in tables[table]):
            return ()
        return rows(f"SELECT {what.replace('?', name)} FROM {schema}{table}{more}")  # noqa: S608

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
    pickles = sum(number for kind, number in types.items() if "pickle" in kind)
    if pickles:
        yield finding("SP03.pickle-rows", where, count=pickles)
    waits = sum(
        number
        for table, which in known.get("waits", {}).items()
        for (number,) in ask(table, "count(*)", f" WHERE {which}")
    )
    if waits:
        yield finding("SP19.unsigned-approvals", where, count=waits)
    search = _Search()
    for column in known.get("texts", ()):
        search.add(value for (value,) in ask(column, "?"))
    yield from search.found(where)
    if "version" in known:
        yield from _advisories(where, [str(each) for (each,) in ask(known["version"], "?")])


class _Search:
    """Counts what looks like a secret, each of them once. It keeps none longer than it counts."""

    def __init__(self) -> None:
        self._seen: dict[str, set[int]] = {kind: set() for kind in _SECRETS}
        self._left = _SEARCHED

    def add(self, values: Iterable[Any]) -> None:
        """Search some texts, until too much was searched."""
        for value in values:
            data = value.encode("utf-8", "replace") if isinstance(value, str) else value
            if not isinstance(data, (bytes, memoryview)):
                continue
            self._left -= len(data)
            if self._left < 0:
                return
            for kind, pattern in _SECRETS.items():
                self._seen[kind].update(hash(bytes(each[0])) for each in pattern.finditer(data))

    def found(self, where: str) -> Iterator[Finding]:
        """Yield the counts, and that there was more than is searched."""
        counts = [f"{len(seen)} {kind}" for kind, seen in self._seen.items() if seen]
        if counts:
            yield finding("SP08.likely-secrets", where, counts=", ".join(counts))
        if self._left < 0:
            yield unseen("SP08", where, f"only {_SEARCHED >> 20} MiB are searched for secrets")


def _logins(database: Database, table: str) -> Iterator[Finding]:
    """Yield who may write a table, and so decides what is resumed."""
    able = database.rows(
        "select rolname::text from pg_roles where rolcanlogin and"
        " has_table_privilege(oid, %s, 'INSERT, UPDATE') order by 1",
        (table,),
    )
    who = listed([quoted(name) for (name,) in able])
    yield finding("SP19.resumers", table, severity="note", who=who or "nobody who can log in")


# --- folders


def recognise_folder(path: str, *, without: Container[str] = ()) -> Recognised | None:
    """Look at a folder that is no store of this package.

    Args:
        path: the folder.
        without: what something was said of before, as part of a folder above it.

    Returns:
        What it is; None if nothing in it is known here.
    """
    root = absolute(path)
    if not os.path.isdir(root) or os.path.islink(root):  # noqa: PTH112, PTH114  Path's may raise
        return None
    cache, kept = _cache(root, without), _Kept(root, without)
    if not kept.by_kind:
        return cache
    found = Recognised(kept.name, worst_first(kept.findings(path)), kept.files, kept.said)
    if cache is None:
        return found
    both = worst_first([*found.findings, *cache.findings])
    name = f"{found.name} with {cache.name}"
    return Recognised(name, both, found.files | cache.files, found.said | cache.said)


def _entries(folder: str, closed: Closed) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        closed.add(folder, error)
        return []


def _matching(folder: str, pattern: list[str], closed: Closed) -> Iterator[os.DirEntry[str]]:
    """Yield the files, and the links, that a pattern names, without following any link."""
    for entry in _entries(folder, closed):
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and pattern[1:] and fnmatchcase(entry.name, pattern[0]):
            yield from _matching(entry.path, pattern[1:], closed)
        elif not is_folder and not pattern[1:]:
            yield entry


class _Kept:
    """What a folder of OpenClaw, of Lobster or of Agent Framework keeps, by kinds.

    Attributes:
        by_kind: the files of each kind.
        name: what all of it is.
    """

    _NAMES: Final = {
        "settings": "a folder of OpenClaw",
        "approvals": "a folder of OpenClaw",
        "database": "a folder of OpenClaw",
        "transcript": "a folder of an agent's session transcripts, as OpenClaw's are",
        "resume": "a folder of Lobster's resume states",
        "checkpoint": "a folder of Agent Framework's FileCheckpointStorage",
    }

    def __init__(self, root: str, without: Container[str]) -> None:
        self.root, self._closed, self._search = root, Closed(), _Search()
        self.by_kind: dict[str, list[str]] = {}
        self._versions: list[str] = []
        self._databases: list[Finding] = []
        self._approvals: dict[str, int] = {}
        self._pickled, self._whole = 0, set[str]()
        found = (
            each for where in _OPENCLAW for each in _matching(root, where.split("/"), self._closed)
        )
        for number, entry in enumerate(each for each in found if each.path not in without):
            if number == _FILES:
                self._closed[root] = f"it has more than {_FILES} files"
                break
            try:
                kind = self._kind(entry)
            except OSError as error:
                self._closed.add(entry.path, error)
                continue
            if kind is not None:
                self.by_kind.setdefault(kind, []).append(entry.path)

    @property
    def files(self) -> frozenset[str]:
        """What was looked at as a whole: databases, checkpoints; and what could not be read."""
        return frozenset(self._closed).union(self.by_kind.get("database", ()), self._whole)

    @property
    def said(self) -> frozenset[str]:
        """Texts that are known by a part of them. What else they hold is not looked at here."""
        return frozenset().union(*self.by_kind.values()) - self.files

    @property
    def name(self) -> str:
        """What the folder is, by what says most."""
        return next(name for kind, name in self._NAMES.items() if kind in self.by_kind)

    def _kind(self, entry: os.DirEntry[str]) -> str | None:
        """Say what a file is, by what it holds, and read what is to be known of it."""
        if entry.is_symlink():
            if entry.is_file():
                self._closed[entry.path] = "links are not followed"
            return None
        begins = content(entry.path, 64)
        data = b"" if begins is None else begins[0].lstrip(b"\xef\xbb\xbf \t\r\n")
        if data.startswith(_SQLITE):
            found = recognise_database(entry.path)
            if found is None or "OpenClaw" not in found.name:
                return None
            self._databases += (
                each for each in found.findings if each.rule not in ("SP01", "SP04")
            )
            return "database"
        if not data.startswith((b"{", b"/")):
            return None
        data = (content(entry.path, _MOST) or (b"", 0))[0]
        touched = _TOUCHED.search(data)
        if touched:
            self._versions.append(touched[1].decode())
            return "settings"
        if not _MARKS.search(data):
            return None
        data = (content(entry.path, _SEARCHED + 1) or (b"", 0))[0]
        kind = _kind_of(data)
        if kind == "approvals":
            self._approvals[entry.path] = max(1, data.count(b'"pattern"'))
        elif kind is not None:
            self._search.add([data])
            self._pickled += b'"__pickled__"' in data
            if kind == "checkpoint" and data.rstrip().endswith(b"}") and _is_json(data):
                self._whole.add(entry.path)
        return kind

    def findings(self, named: str) -> Iterator[Finding]:
        """Yield what is wrong with all of it."""
        root, kept = self.root, self.by_kind
        yield from guarded("SP04", root, self._modes(named))
        for each in self._databases:
            if each.id != "SP19.advisories" or "settings" not in kept:
                yield each
        if "checkpoint" in kept:
            said = f"{len(kept['checkpoint'])} checkpoints"
            do = "Seal them: safepoint init NAME, then safepoint move FOLDER NAME."
            yield finding("SP12.unsealed-state", root, name=self.name, said=said, do=do)
        if self._pickled:
            yield finding("SP03.pickle-rows", root, count=self._pickled)
        if "resume" in kept:
            yield finding("SP12.unsigned-resume", root, count=len(kept["resume"]))
        if "transcript" in kept:
            yield finding("SP13.transcripts", root, count=len(kept["transcript"]))
        for file, count in self._approvals.items():
            yield finding("SP19.unsigned-approvals", file, count=count)
        yield from _resumers(root, [str(Path(each).parent) for each in kept.get("resume", ())])
        yield from self._search.found(root)
        for file in kept.get("settings", ()):
            yield from _advisories(file, self._versions)
            yield finding("SP22.gateway", file)
        yield from self._closed.findings("SP02")

    def _modes(self, named: str) -> Iterator[Finding]:
        """Yield who else gets to it. In a folder that is closed to others, nobody does."""
        yield from (refused("SP04", each, self.root) for each in location_refusals(self.root))
        yield from surroundings(self.root, named=named)
        if Path(self.root).lstat().st_mode & 0o077:
            kept = sorted(each for found in self.by_kind.values() for each in found)
            for folder in sorted({above for file in kept for above in Path(file).parents}):
                if folder.is_relative_to(self.root) and str(folder) != self.root:
                    yield from guarded("SP04", str(folder), _folder(folder))
            for file in kept:
                for suffix in BESIDE:
                    each = file + suffix
                    yield from guarded("SP04", each, record_file(Path(each), None))


def _folder(folder: Path) -> Iterator[Finding]:
    found = folder_refusals(str(folder), folder.lstat())
    yield from (refused("SP04", each, str(folder)) for each in found)


def _kind_of(data: bytes) -> str | None:
    """Say what JSON is, or lines of it, by the keys of the object that it begins with."""
    first = data.split(b"\n", 1)[0]
    for text in (first, data if len(data) <= _LONGEST else b""):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not isinstance(found, dict):
            return None
        keys = found.keys()
        if text is first and found.get("type") == "session" and {"id", "timestamp"} <= keys:
            return "transcript"
        if {"resumeAtIndex", "createdAt"} <= keys and ({"pipeline", "filePath"} & keys):
            return "resume"
        if keys >= _CHECKPOINT:
            return "checkpoint"
        if "version" in keys and {"defaults", "agents"} & keys and _ASKS.search(data):
            return "approvals"
    return None


def _is_json(data: bytes) -> bool:
    with suppress(ValueError, RecursionError):
        return len(data) <= _LONGEST and json.loads(data) is not None
    return False


def _resumers(root: str, folders: list[str]) -> Iterator[Finding]:
    """Yield who can write where runs wait: they decide what is resumed."""
    for folder in sorted({root, *folders}):
        with suppress(OSError):
            info = Path(folder).lstat()
            mode = stat.S_IMODE(info.st_mode)
            others = mode & (stat.S_IWGRP | stat.S_IWOTH)
            severity = "error" if others else "note"
            yield finding("SP19.resumers", folder, severity=severity, who=", ".join(_who(info)))


def _who(info: os.stat_result) -> Iterator[str]:
    """Yield who can write something, by name: its owner, its group, and all others."""
    if sys.platform == "win32":
        yield "whoever its list of permissions names"
        return
    name = str(info.st_uid)
    with suppress(KeyError):
        name = pwd.getpwuid(info.st_uid).pw_name
    yield f"user {quoted(name)}"
    if info.st_mode & stat.S_IWGRP:
        group, members = str(info.st_gid), list[str]()
        with suppress(KeyError):
            group, _, _, members = grp.getgrgid(info.st_gid)
        named = f" ({listed([quoted(each) for each in members])})" if members else ""
        yield f"group {quoted(group)}{named}"
    if info.st_mode & stat.S_IWOTH:
        yield "every user of this machine"


def _advisories(where: str, versions: Iterable[str]) -> Iterator[Finding]:
    """Yield the published advisories that are mended in releases after the one that was here."""
    newest = max(versions, key=_order, default="")
    missing = [each for each in _ADVISORIES if () < _order(newest) < _order(each["fixed"])]
    if missing:
        least = max((each["fixed"] for each in missing), key=_order)
        ids = listed([each["id"] for each in missing], 3)
        values = {"version": newest, "count": len(missing), "ids": ids, "least": least}
        yield finding("SP19.advisories", where, **values)


def _order(release: str) -> tuple[int, ...]:
    """Return a release as numbers; a beta of it comes before. Of what is none, nothing."""
    found = _RELEASE.match(release)
    return (*map(int, found.groups()[:3]), not found[4]) if found else ()


# --- caches of Hugging Face


def _cache(root: str, without: Container[str]) -> Recognised | None:
    """Look at a cache of models, or at one model in it: by its links, which lead to its blobs."""
    closed, seen, said = Closed(), set[str](), set[str]()
    repos = [root] if Path(root).name.startswith("models--") else []
    repos += [each.path for each in _entries(root, closed) if each.name.startswith("models--")]
    repos = [each for each in repos if each not in without and _is_repo(each)]
    if not repos:
        return None
    found, count = list[Finding](), 0
    for repo in repos:
        for entry in files(f"{repo}/snapshots", closed):
            target = os.path.realpath(entry)
            if not target.startswith(f"{repo}/blobs/"):
                if os.path.islink(entry):  # noqa: PTH114  that of Path may raise
                    found.append(finding("SP25.outside-cache", entry))
                    continue
                target = entry
            judged = judge(target, entry, closed)
            if judged is not None:
                count += 1
                found += judged[1]
                is_model = judged[0].verdict is not Verdict.NOT_A_MODEL
                (seen if is_model else said).update((entry, target))
        said.update(str(each) for each in Path(repo, "refs").iterdir())
    found += closed.findings("SP25")
    found += guarded("SP01", root, surroundings(root))
    found.append(finding("SP25.cache", root, count=count, repos=len(repos)))
    judged_here = frozenset(seen.union(repos, closed))
    return Recognised("a cache of Hugging Face", worst_first(found), judged_here, frozenset(said))


def _is_repo(path: str) -> bool:
    """Tell whether a folder is one of the cache: a ref in it holds a commit."""
    with suppress(OSError):
        if all(Path(path, name).is_dir() for name in ("blobs", "refs", "snapshots")):
            refs = [content(str(each), 64) for each in Path(path, "refs").iterdir()]
            return any(each is not None and _COMMIT.fullmatch(each[0]) for each in refs)
    return False
