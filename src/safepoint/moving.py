"""From the stores of LangGraph and Agent Framework to sealed threads, read as data.

Their rows and files name classes, and their own loaders import them. Here a name is looked up in
the list of what the adapter keeps, which the operator wrote. Nothing is imported because a row says
so, and nothing is unpickled. Of a thread, all is sealed or nothing.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, is_dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path, PurePath
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from safepoint.codec import Codec
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    DecodeError,
    EncodeError,
    LimitExceeded,
    MissingPackage,
    NotFound,
    PickleRefused,
    StorageUnavailable,
    quoted,
    shell,
)
from safepoint.ledger import Ledger
from safepoint.migrate import (
    OF_THE_SOURCE,
    SEALED,
    THERE_ALREADY,
    Moved,
    Sealer,
    Unsigned,
    check_vouched,
    listed,
    strict_json,
)
from safepoint.models.machine import Class, Constant, Functions
from safepoint.models.migration import Files, Link
from safepoint.models.plain import functions_for
from safepoint.names import Limits, digest_of

if TYPE_CHECKING:
    from safepoint.agent_framework import SealedCheckpointStorage
    from safepoint.langgraph import SealedSaver

MOVED: Final = "moved/in"  # the label of the note that says who vouched
_MOST: Final = 10**9
_NOTHING: Final = "Nothing of this thread was sealed."
_LIST: Final = f"If it is a type of yours, list it in types=[...]. {_NOTHING}"


_States = Callable[[], Iterator[Unsigned]] | CheckpointError


class _Vouched(NamedTuple):
    """Who vouches for what, and where it is written down."""

    ledger: Ledger
    report: str | os.PathLike[str]
    by: str
    origin: str
    dry_run: bool


def _move(vouched: _Vouched, threads: Iterable[tuple[str, _States]]) -> list[Moved]:
    """Seal each thread, and go on after one that is refused."""
    done = []
    with Sealer(vouched.ledger, vouched.report, dry_run=vouched.dry_run) as sealer:
        for source, states in threads:
            if isinstance(states, CheckpointError):
                done.append(sealer.refuse(source, states))
                continue
            try:
                done.append(_seal(sealer, vouched, source, states))
            except OF_THE_SOURCE as error:
                done.append(sealer.refuse(source, error))
    return done


def _seal(
    sealer: Sealer, vouched: _Vouched, source: str, states: Callable[[], Iterator[Unsigned]]
) -> Moved:
    """Read a thread to its end, and then once more to seal it: one state is in memory at a time."""
    ledger, name, digests = vouched.ledger, "", []
    for each in states():
        try:
            ledger.codec.encode(each.state | {"left": _MOST})
        except (EncodeError, LimitExceeded) as error:
            raise type(error)(f"{quoted(each.source)}: {error.what}", error.do) from None
        name = each.thread
        digests.append(each.digest)
    last, outcome = len(digests) + 1, THERE_ALREADY
    for number, each in enumerate(states()):
        sealed = sealer.seal(replace(each, state=each.state | {"left": last - 1 - number}))
        outcome = SEALED if sealed == SEALED else outcome
    if vouched.dry_run:
        return Moved(source, outcome, name, last)
    said = {
        "thread": source,
        "vouched_by": vouched.by,
        "from": vouched.origin,
        "digest": digest_of("\n".join(digests).encode()),
        "checkpoints": len(digests),
    }
    try:
        there = ledger.load(name, last)
    except NotFound:
        ledger.note(name, said, label=MOVED, anchor=None if ledger.anchor is None else "now")
    else:
        if there.label != MOVED:
            raise Conflict(f"{name} has another record at #{last}.", "Nothing was overwritten.")
    sealer.add({"outcome": "moved", "store": ledger.store, **said, "thread": name})
    return Moved(source, outcome, name, last)


def _vouched(
    ledger: Ledger, report: str | os.PathLike[str], by: str, dry_run: bool, allow: bool
) -> _Vouched:
    if dry_run is not True:
        check_vouched(allow)
        if not by:
            raise ConfigurationError(
                "Nobody vouches for these states.", 'Say who you are: vouched_by="your name".'
            )
    return _Vouched(ledger, report, by, "", dry_run is True)


# --- LangGraph


def move_sqlite_saver(
    path: str | os.PathLike[str],
    saver: SealedSaver,
    *,
    report: str | os.PathLike[str],
    vouched_by: str = "",
    dry_run: bool = False,
    allow_unsigned_migration: bool = False,
    allow_missing_past: bool = False,
) -> list[Moved]:
    """Seal the threads of a database of LangGraph's `SqliteSaver`. The file stays as it is.

    Checkpoints, parents, namespaces, metadata and pending writes come over, so that a graph goes
    on where it was. All is read in one snapshot. A thread that is refused does not stop the others.
    After an interrupt, run it again with the same report: until then the saver refuses to go on
    from a thread that is there in part.

    Args:
        path: the file.
        saver: where to. Its `types` are what may be built, its `app` and `tools` are sealed.
        report: a file of JSON lines that this adds to: one before each checkpoint is sealed, on
            disk, one after it, one for each thread that is moved, and one for each refused.
        vouched_by: your name. It is sealed with each thread.
        dry_run: write nothing, and say what would happen.
        allow_unsigned_migration: that you vouch for these states. There is no default yes, and a
            dry run needs none.
        allow_missing_past: take a checkpoint whose parent is gone.

    Returns:
        What became of each thread.

    Raises:
        ConfigurationError: you did not say that you vouch for them, or the report is a file of
            another kind.
        StorageUnavailable: the source cannot be read, or the report cannot be written. What the
            report does not name is not sealed.
        CheckpointError: the ledger refuses. What was sealed before is in the report.
    """
    vouched = _vouched(saver.ledger, report, vouched_by, dry_run, allow_unsigned_migration)
    with _sqlite(Path(path), saver.ledger.codec.limits) as rows:
        return _move_graphs(vouched, rows, saver, allow_missing_past)


def move_postgres_saver(
    dsn: str,
    saver: SealedSaver,
    *,
    report: str | os.PathLike[str],
    vouched_by: str = "",
    dry_run: bool = False,
    allow_unsigned_migration: bool = False,
    allow_missing_past: bool = False,
) -> list[Moved]:
    """Seal the threads of a database of LangGraph's `PostgresSaver`. It is read and not written.

    All but the first argument is as for `move_sqlite_saver`.

    Args:
        dsn: what you gave to `PostgresSaver.from_conn_string`.
        saver: where to.
        report: a file of JSON lines that this adds to.
        vouched_by: your name.
        dry_run: write nothing, and say what would happen.
        allow_unsigned_migration: that you vouch for these states.
        allow_missing_past: take a checkpoint whose parent is gone.

    Raises:
        MissingPackage: psycopg is not installed.
        CheckpointError: as `move_sqlite_saver`.
    """
    vouched = _vouched(saver.ledger, report, vouched_by, dry_run, allow_unsigned_migration)
    with _postgres(dsn, saver.ledger.codec.limits) as rows:
        return _move_graphs(vouched, rows, saver, allow_missing_past)


def _move_graphs(
    vouched: _Vouched, rows: _Rows, saver: SealedSaver, without_past: bool
) -> list[Moved]:
    threads = (
        (str(thread), partial(_graph, rows, saver, thread, without_past))
        for thread in rows.threads()
    )
    return _move(vouched._replace(origin=rows.origin), threads)


@dataclass
class _Rows:
    """A database in one snapshot, for reading alone.

    Attributes:
        origin: what the vouching calls it.
        ask: returns the rows of a query.
        split: values of channels have a table of their own, as `PostgresSaver` has it.
        path: the column of a task's path, or what stands for it.
    """

    origin: str
    ask: Callable[..., list[tuple[Any, ...]]]
    split: bool
    path: str = "task_path"

    def threads(self) -> Iterator[str]:
        """Yield each `thread_id`, one at a time, however many there are."""
        last: Any = ""
        comparison = ">="
        while True:
            sql = f"SELECT min(thread_id) FROM checkpoints WHERE thread_id {comparison} ?"  # noqa: S608
            ((last,),) = self.ask(sql, last)
            if last is None:
                return
            comparison = ">"
            yield last

    def of(self, what: str, table: str, *where: Any) -> list[tuple[Any, ...]]:
        """Return what a table has of a thread, or of one checkpoint of it."""
        keys = ("thread_id", "checkpoint_ns", "checkpoint_id")[: len(where)]
        test = " AND ".join(f"{key} = ?" for key in keys)
        try:
            return self.ask(f"SELECT {what} FROM {table} WHERE {test}", *where)  # noqa: S608
        except sqlite3.Error as error:
            problem = DecodeError(f"A row of it cannot be read ({error}).", _NOTHING)
        raise problem

    def checkpoint(
        self, values: _Values, *where: str
    ) -> tuple[Any, Any, list[dict[str, Any]], str]:
        """Return a checkpoint, its metadata, the writes to it, and the digest of all."""
        if self.split:
            columns, table, value = "checkpoint::text, metadata::text", "checkpoint_writes", "blob"
        else:
            columns, table, value = "checkpoint, metadata, type", "writes", "value"
        (row,) = self.of(columns, "checkpoints", *where)
        wrote = self.of(f"task_id, {self.path}, idx, channel, type, {value}", table, *where)
        blobs = []
        if self.split:
            found = values.json(row[0])
            versions = _dict(found, "channel_versions")
            blobs = self.ask(_BLOBS, [*versions], [*map(str, versions.values())], *where[:2])
            held = _dict(found, "channel_values")
            held |= {channel: values.read(*blob) for channel, *blob in blobs if blob[0] != "empty"}
        else:
            found = values.read(row[2], row[0])
        tasks: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for task, path, number, channel, *blob in sorted(wrote, key=lambda row: row[:3]):
            tasks[task, path].append([number, channel, values.read(*blob)])
        early = [{"task": task, "path": path, "writes": w} for (task, path), w in tasks.items()]
        metadata = {} if row[1] is None else values.json(row[1])
        return found, metadata, early, _digest([row, *blobs, *wrote])


_BLOBS: Final = (
    "SELECT channel, type, blob FROM checkpoint_blobs"
    " JOIN unnest(?::text[], ?::text[]) AS wanted (channel, version) USING (channel, version)"
    " WHERE thread_id = ? AND checkpoint_ns = ?"
)


def _digest(rows: Iterable[Iterable[Any]]) -> str:
    hashed = hashlib.sha256()
    for each in (each for row in rows for each in row):
        hashed.update(each if isinstance(each, bytes) else str(each).encode())
        hashed.update(b"\0")
    return f"sha256:{hashed.hexdigest()}"


def _dict(value: Any, name: str) -> dict[str, Any]:
    """Return a part of a checkpoint that has to be a dict."""
    found = value.get(name) if type(value) is dict else None
    if type(found) is not dict:
        raise DecodeError(f"It has no {name}, and is no checkpoint.", _NOTHING)
    return found


def _graph(rows: _Rows, saver: SealedSaver, thread: str, without_past: bool) -> Iterator[Unsigned]:
    """Yield the checkpoints of a thread in the order in which LangGraph takes them: by their id."""
    values = _Values(saver.ledger.codec)
    columns = "checkpoint_ns, checkpoint_id, parent_checkpoint_id"
    places = rows.of(columns, "checkpoints", thread)
    if not all(
        type(each) is str for row in [(thread,), *places] for each in row if each is not None
    ):
        raise DecodeError("An id in it is no text.", _NOTHING)
    known = {row[:2] for row in places}
    if len(known) != len(places):
        raise Conflict("Two checkpoints in it have one id.", _NOTHING)
    for space, ident, parent in sorted(places, key=lambda row: (row[1], row[0])):
        where = f"{quoted(ident)} in {quoted(space)}" if space else quoted(ident)
        if parent and not without_past and (space, parent) not in known:
            raise Conflict(
                f"{where} follows {quoted(parent)}, which is not there.",
                f"{_NOTHING} If it was removed on purpose, pass allow_missing_past=True.",
            )
        try:
            found, metadata, early, digest = rows.checkpoint(values, thread, space, ident)
            _check(found, metadata, ident)
            if rows.split and parent and found["v"] < 4:
                _check_sends(rows.of("channel", "checkpoint_writes", thread, space, parent))
        except (DecodeError, LimitExceeded) as error:
            raise type(error)(f"{where}: {error.what}", error.do) from None
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": space}}
        each = saver.unsigned(config, found, metadata, parent or None, early)
        yield replace(each, source=f"{thread} {space} {ident}", digest=digest)


def _check(found: Any, metadata: Any, ident: str) -> None:
    """Refuse what is no checkpoint of that id; count its versions as `SealedSaver` does."""
    _dict(found, "channel_values")
    versions, seen = _dict(found, "channel_versions"), _dict(found, "versions_seen")
    if found.get("id") != ident or type(found.get("v")) is not int or found["v"] > 4:
        raise DecodeError("It is of another id, or of a newer LangGraph.", _NOTHING)
    if type(metadata) is not dict or "counters_since_delta_snapshot" in metadata:
        raise DecodeError("It has a DeltaChannel, or no metadata.", _NOTHING)
    for each in (versions, *(_dict(seen, name) for name in seen)):
        for channel, version in each.items():
            each[channel] = _version(version)


def _version(version: Any) -> int:
    """Return the count in a version such as `00000003.0.4133`: the rest of it is random."""
    if type(version) is str and version.partition(".")[0].isdecimal():
        return int(version.partition(".")[0])
    if type(version) is not int:
        raise DecodeError("It counts the versions of a channel in another way.", _NOTHING)
    return version


def _check_sends(wrote: list[tuple[Any, ...]]) -> None:
    if ("__pregel_tasks",) in wrote:
        raise DecodeError(
            "It is of a LangGraph before 0.5, with tasks that were sent before it.",
            f"{_NOTHING} Let a current LangGraph finish that run first.",
        )


_ONE: Final = (UUID, Decimal, set, frozenset, deque)
_SEVERAL: Final = (PurePath, timedelta, date, timezone)
_CONTAINERS: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])


class _Values:
    """What LangGraph's serializer wrote, read with a list of what may be built."""

    def __init__(self, codec: Codec) -> None:
        try:
            import ormsgpack
        except ImportError:
            raise MissingPackage(
                "LangGraph's rows are read with the package ormsgpack.",
                "Run: pip install 'safepoint[langgraph]'",
            ) from None
        option = ormsgpack.OPT_NON_STR_KEYS
        self._unpack = partial(ormsgpack.unpackb, ext_hook=self._hook, option=option)
        self._limits, self._depth = codec.limits, 0
        self._wrong: CheckpointError | None = None
        self._known: dict[tuple[str, str], type | None] = {}
        for cls in (*codec.types, timezone):
            key = cls.__module__.removesuffix("._local"), cls.__name__
            self._known[key] = None if key in self._known else cls  # which of them, no row says

    def json(self, text: Any) -> Any:
        """Return what JSON in a row says."""
        data = text.encode() if type(text) is str else text
        if type(data) is not bytes:
            raise DecodeError("It has no JSON where that should be.", _NOTHING)
        return strict_json(data, "It", self._limits.state_bytes, self._limits.items)

    def read(self, tag: Any, data: Any) -> Any:
        """Return the value in a row.

        Raises:
            DecodeError: it is written in another way, or holds a type that is not on the list.
            LimitExceeded: it is too large or too deep.
        """
        if tag == "null":
            return None
        if tag not in ("bytes", "msgpack") or type(data) is not bytes:
            raise DecodeError(
                f"A value in it is written as {quoted(tag)}, and msgpack alone is read.", _NOTHING
            )
        if tag == "bytes":
            return data
        containers = len(data) - len(data.translate(None, _CONTAINERS))
        if len(data) > self._limits.state_bytes or containers > self._limits.items:
            raise LimitExceeded("A value in it is over the limits of the ledger.", _NOTHING)
        self._wrong = None
        try:
            return self._unpack(data)
        except (ValueError, RecursionError, MemoryError):  # which say nothing of what a hook raised
            problem = self._wrong or DecodeError(
                "A value in it is no msgpack, or nested too deep.", _NOTHING
            )
        raise problem

    def _hook(self, code: int, data: bytes) -> Any:
        self._depth += 1
        try:
            return self._made(code, *self._unpack(data))
        except Exception as error:
            unfit = DecodeError("A value in it is not what its type takes.", _NOTHING)
            wrong = error if isinstance(error, CheckpointError) else unfit
            self._wrong = self._wrong or wrong
            raise
        finally:
            self._depth -= 1

    def _made(self, code: int, module: str, name: str, given: Any = None, *_: Any) -> Any:
        """Return the value of a type on the list, in the one way in which LangGraph writes it."""
        if self._depth > self._limits.depth:
            raise LimitExceeded("A value in it is nested too deep.", _NOTHING)
        cls: Any = self._known.get((module.removesuffix("._local"), name))
        if cls is None or code > 5:
            raise DecodeError(f"It wants {quoted(f'{module}.{name}')}, which is not listed.", _LIST)
        if code == 0 and (cls in _ONE or issubclass(cls, Enum) or module == "ipaddress"):
            return cls(given)
        if code == 1 and issubclass(cls, _SEVERAL):
            return cls(*given)
        if code == 1 and (module, name) == ("langgraph.types", "Send"):
            node, arg, *timeout = given
            return cls(node, arg, timeout=timeout[0] if timeout else None)
        if code == 2 and (cls is time or is_dataclass(cls) or hasattr(cls, "_fields")):
            return cls(**given)
        if code == 3 and cls is datetime:
            return cls.fromisoformat(given)
        if code == 5 and hasattr(cls, "model_fields"):
            lost = given.keys() - cls.model_fields.keys()
            if lost and cls.model_config.get("extra") != "allow":
                raise DecodeError(f"{name} has a field that its class does not have.", _NOTHING)
            return cls.model_validate(given, by_name=True, by_alias=False)
        raise DecodeError(f"It holds a {quoted(name)} in a way that is not read.", _NOTHING)


_NAME: Final = "Name the database that your saver writes, and a login that may read its tables."
_TOO_MUCH: Final = "A thread has more in one place than the ledger takes."
_KINDS: Final = "SELECT name, type FROM sqlite_schema WHERE name IN ('checkpoints', 'writes')"
_RELATIONS: Final = (
    "SELECT count(*) FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') AND oid IN"
    " (to_regclass('checkpoints'), to_regclass('checkpoint_blobs'),"
    " to_regclass('checkpoint_writes'))"
)


def _unreadable(place: str, why: str) -> StorageUnavailable:
    return StorageUnavailable(f"{shell(place)} cannot be read ({why}).", _NAME)


@contextmanager
def _sqlite(path: Path, limits: Limits) -> Iterator[_Rows]:
    def ask(sql: str, *given: Any) -> list[tuple[Any, ...]]:
        found, size = [], 0
        for row in database.execute(sql, given):
            size += sum(len(each) for each in row if isinstance(each, str | bytes))
            if size > 2 * limits.state_bytes:
                raise LimitExceeded(_TOO_MUCH, _NOTHING)
            found.append(row)
        return found

    if not path.is_file():
        raise _unreadable(str(path), "there is no such file")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.state_bytes)
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("BEGIN")  # one snapshot
            if dict(ask(_KINDS)) != {"checkpoints": "table", "writes": "table"}:
                raise _unreadable(str(path), "it has not the tables of a saver")
            columns = {row[0] for row in ask("SELECT name FROM pragma_table_info('writes')")}
            yield _Rows(path.name, ask, False, "task_path" if "task_path" in columns else "''")
    except sqlite3.Error as error:
        raise _unreadable(str(path), str(error)) from None


@contextmanager
def _postgres(address: str, limits: Limits) -> Iterator[_Rows]:
    from safepoint.postgres.connection import psycopg

    def ask(sql: str, *given: Any) -> list[tuple[Any, ...]]:
        sql = sql.replace("?", "%s")
        total = f"SELECT sum(octet_length(each::text)) FROM ({sql}) AS each"  # noqa: S608
        ((size,),) = database.execute(total.encode(), given)
        if (size or 0) > 4 * limits.state_bytes:  # a byte is two letters there
            raise LimitExceeded(_TOO_MUCH, _NOTHING)
        return database.execute(sql.encode(), given).fetchall()

    try:
        with closing(psycopg.connect(address, connect_timeout=10)) as database:
            database.read_only = True
            database.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # one snapshot
            # What a policy would leave out, or somebody has locked, is an error and not a wait.
            database.execute("SELECT set_config('row_security', 'off', true)")
            database.execute("SELECT set_config('lock_timeout', '10s', true)")
            origin = f"{database.info.dbname} at {database.info.host}"
            if ask(_RELATIONS) != [(3,)]:
                raise _unreadable(origin, "it has not the tables of a saver")
            yield _Rows(origin, ask, True)
    except psycopg.Error as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise _unreadable("PostgreSQL", said[0]) from None


# --- Agent Framework


def move_file_storage(
    folder: str | os.PathLike[str],
    storage: SealedCheckpointStorage,
    *,
    report: str | os.PathLike[str],
    vouched_by: str = "",
    dry_run: bool = False,
    allow_unsigned_migration: bool = False,
    allow_missing_past: bool = False,
) -> list[Moved]:
    """Seal the checkpoints in a folder of `FileCheckpointStorage`. The files stay as they are.

    The pickles in them are read as data, with a list: the framework's own messages and events, and
    the `types` of the storage. All checkpoints of a workflow are one thread, in the order of their
    times. A workflow that is refused does not stop the others; but a file of which nobody can say
    whose it is stops all, since it may be the newest of any.

    Args:
        folder: where they are. Links in it are not followed.
        storage: where to.
        report: as for `move_sqlite_saver`, and so are the others. It is not in the folder.
        vouched_by: your name. It is sealed with each workflow.
        dry_run: write nothing, and say what would happen.
        allow_unsigned_migration: that you vouch for these states.
        allow_missing_past: take a checkpoint that follows one which is gone.

    Returns:
        What became of each workflow, and of each file that is none's.

    Raises:
        CheckpointError: as `move_sqlite_saver`.
    """
    vouched = _vouched(storage.ledger, report, vouched_by, dry_run, allow_unsigned_migration)
    if Path(folder).resolve() in Path(report).resolve().parents:
        raise ConfigurationError(
            f"The report {shell(os.fspath(report))} would be in the folder that is migrated.",
            "Nothing was sealed. Name a file elsewhere: the originals stay as they are.",
        )
    files = Files(Path(folder), _builders(storage.types))
    runs: dict[str, list[Link]] = defaultdict(list)
    odd: list[tuple[str, _States]] = []
    stopped: CheckpointError | None = None
    for path in listed(folder):
        try:
            link = files.look(path)
            if link is None:
                raise PickleRefused("It is a pickle alone.", "Read it with migrate_pickles.")
            runs[link.workflow].append(link)
        except CheckpointError as error:
            odd.append((path.name, error))
            if path.suffix == ".json":
                stopped = Conflict(
                    f"{shell(path.name)} was refused, and may be the newest of any workflow.",
                    f"{_NOTHING} Repair that file; or decide to do without it, and move it away.",
                )
    threads = [
        (name, stopped or partial(_workflow, files, storage, links, allow_missing_past))
        for name, links in sorted(runs.items())
    ]
    return _move(vouched._replace(origin=Path(folder).name), [*threads, *odd])


def _workflow(
    files: Files, storage: SealedCheckpointStorage, links: list[Link], without_past: bool
) -> Iterator[Unsigned]:
    """Yield the checkpoints of a workflow, by their times."""
    from agent_framework import WorkflowCheckpoint

    ordered = sorted(links, key=lambda link: (_when(link), link.iteration))
    there, before = {link.identity for link in links}, set()
    for link in ordered:
        shown = shell(link.source)
        if link.previous in there and link.previous not in before:
            raise Conflict(f"{shown} follows one that says it is newer.", _NOTHING)
        if link.previous and link.previous not in there and not without_past:
            raise Conflict(
                f"{shown} follows {quoted(link.previous)}, which is not in the folder.",
                f"{_NOTHING} If you removed it on purpose, pass allow_missing_past=True.",
            )
        before.add(link.identity)
        read = files.unsigned("", link.source, "")
        try:
            checkpoint = WorkflowCheckpoint.from_dict(read.state)
            unsigned = storage.unsigned(checkpoint, link.source, read.digest)
        except CheckpointError:
            raise
        except Exception:  # noqa: BLE001  a field may be anything, and so its error
            unsigned = None
        if unsigned is None:
            raise DecodeError(f"{shown} has not the fields of a checkpoint.", _NOTHING)
        yield unsigned


def _when(link: Link) -> datetime:
    try:
        found = datetime.fromisoformat(link.timestamp)
    except ValueError:
        found = datetime.min  # noqa: DTZ901 - refused below
    if found.tzinfo is None:
        raise DecodeError(f"{shell(link.source)} says no time that can be compared.", _NOTHING)
    return found


class _New:
    """An object of the framework that has no fields yet."""

    def __init__(self, build: Callable[[dict[str, Any]], Any]) -> None:
        self._build = build

    def __build__(self, state: Any) -> Any:
        if type(state) is tuple:  # of a class with slots
            _, state = state
        return self._build(dict(state))


def _builders(types: list[type]) -> Functions:
    """Return what may stand behind a name in a checkpoint of Agent Framework."""
    import agent_framework as af

    enums = type(af.WorkflowMessage(None, "").type), type(af.WorkflowEvent("started").origin)

    def public(cls: Any, given: dict[str, Any]) -> Any:
        named = {k: v for k, v in given.items() if v is not None and k[0] != "_"}
        named.pop("raw_representation", None)
        if given.get("_value") is not None:
            named["value"] = given["_value"]
        return cls(**named)

    def event(given: dict[str, Any]) -> Any:
        if given["type"] != "request_info":
            raise ValueError
        names = ("_request_id", "_source_executor_id", "data", "_response_type")
        return af.WorkflowEvent.request_info(*(given[name] for name in names))

    def built(cls: Any, given: dict[str, Any]) -> Any:
        return cls(**given)

    found: dict[tuple[str, str], Any] = dict(functions_for([*types, *enums]))
    for cls in types:
        key = cls.__module__, cls.__qualname__
        if not issubclass(cls, Enum):
            found[key] = Class(cls, found[key])
    plain = (
        *(af.AgentExecutorRequest, af.AgentExecutorResponse, af.WorkflowMessage),
        *(af.SubWorkflowRequestMessage, af.SubWorkflowResponseMessage, af.WorkflowCheckpoint),
    )
    makers: dict[Any, Callable[[dict[str, Any]], Any]] = {
        **{cls: partial(public, cls) for cls in (af.Message, af.Content, af.AgentResponse)},
        **{cls: partial(built, cls) for cls in plain},
        af.WorkflowEvent: event,
    }
    for cls, build in makers.items():
        found[cls.__module__, cls.__qualname__] = Class(cls, partial(_New, build))
    for cls in (bool, bytes, dict, float, int, list, object, str, tuple):
        found["builtins", cls.__name__] = Constant(cls)
    return found | {("typing", "Any"): Constant(Any), ("types", "GenericAlias"): GenericAlias}
