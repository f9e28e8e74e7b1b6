"""From the stores of LangGraph and Agent Framework to sealed threads, read as data.

Their rows and files name classes, and their own loaders import them. Here a name is looked up in
the list of what the adapter keeps, which the operator wrote. Nothing is imported because a row says
so, and nothing is unpickled. Of a thread, all is sealed or nothing.
"""

from __future__ import annotations

import argparse
import io
import os
import sqlite3
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import is_dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path, PurePath
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, Unpack
from uuid import UUID

from safepoint._command import add, counted, flag, imported
from safepoint.core.codec import Codec
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    DecodeError,
    EncodeError,
    LimitExceeded,
    NotFound,
    PickleRefused,
    StorageUnavailable,
    quoted,
    shell,
)
from safepoint.core.journal import Actor
from safepoint.core.ledger import Ledger, with_codec
from safepoint.core.names import DEFAULT_LIMITS, Limits, digest_of
from safepoint.migrate import (
    OF_THE_SOURCE,
    REFUSED,
    SEALED,
    THERE_ALREADY,
    Moved,
    Sealer,
    Unsigned,
    check_vouched,
    json_files,
    listed,
    read_file,
    strict_json,
)
from safepoint.models.look import Kind, identified
from safepoint.models.machine import Class, Collect, Functions
from safepoint.models.migration import Files, Link, check_elsewhere, migrate_pickles
from safepoint.models.plain import functions_for
from safepoint.settings import database_in, is_database, read

if TYPE_CHECKING:
    from safepoint.agent_framework import SealedCheckpointStorage
    from safepoint.langgraph import SealedSaver

__all__ = ["MOVED", "Vouching", "move_file_storage", "move_postgres_saver", "move_sqlite_saver"]

MOVED: Final = "moved/in"
"""The label of the note that says who vouched."""
_NOTHING: Final = "Nothing of this thread was sealed."
_GONE: Final = f"{_NOTHING} If it was removed on purpose, pass allow_missing_past=True."
_MOST: Final = 10**9


class Vouching(TypedDict, total=False):
    """What each of the functions here takes, beside a report.

    Attributes:
        vouched_by: your name. It is sealed with each thread.
        allow_unsigned_migration: True, that you vouch for these states. There is no default yes.
        dry_run: write nothing, and say what would happen. It needs neither of the two.
        allow_missing_past: take a checkpoint that follows one which is gone.
    """

    vouched_by: str
    allow_unsigned_migration: bool
    dry_run: bool
    allow_missing_past: bool


_States = Callable[[], Iterator[Unsigned]]


def _move(
    ledger: Ledger,
    origin: str,
    threads: Callable[[bool], Iterable[tuple[str, _States | CheckpointError]]],
    report: str | os.PathLike[str],
    *,
    vouched_by: str = "",
    allow_unsigned_migration: bool = False,
    dry_run: bool = False,
    allow_missing_past: bool = False,
) -> list[Moved]:
    """Seal each thread, and go on after one that is refused."""
    dry_run, said = dry_run is True, {"vouched_by": vouched_by, "from": origin}
    if not dry_run:
        check_vouched(allow_unsigned_migration)
        named = type(vouched_by) is str and vouched_by.isprintable() and len(vouched_by) <= 256
        if not vouched_by or not named:
            raise ConfigurationError(
                "Nobody vouches for these states.", 'Say who you are: vouched_by="your name".'
            )
    done = []
    with Sealer(ledger, report, dry_run=dry_run) as sealer:
        for source, states in threads(allow_missing_past is True):
            try:
                if isinstance(states, CheckpointError):
                    done.append(sealer.refuse(source, states))
                else:
                    done.append(_seal(sealer, ledger, states, {"thread": source, **said}, dry_run))
            except OF_THE_SOURCE as error:
                done.append(sealer.refuse(source, error))
    return done


def _seal(
    sealer: Sealer, ledger: Ledger, states: _States, said: dict[str, Any], dry_run: bool
) -> Moved:
    """Read a thread to its end, and then once more to seal it: one state is in memory at a time.

    Each says how many records are to come, so that no adapter goes on from half a thread.
    """
    name, digests, outcome = "", [], THERE_ALREADY
    for each in states():
        try:
            ledger.codec.encode(each.state | {"left": _MOST})
        except (EncodeError, LimitExceeded) as error:
            raise type(error)(f"{quoted(each.source)}: {error.what}", error.do) from None
        name = each.thread
        digests.append(each.digest)
    last = len(digests) + 1
    for sequence, each in enumerate(states(), 1):
        if sealer.seal(replace(each, state=each.state | {"left": last - sequence})) == SEALED:
            outcome = SEALED
    if not dry_run:
        said["digest"] = digest_of("\n".join(digests).encode())
        said["checkpoints"] = len(digests)
        try:
            if ledger.load(name, last).label != MOVED:
                raise Conflict(f"{name} went on before it was moved in.", "Look at both.")
        except NotFound:
            detail = f"{said['thread']} from {said['from']}, vouched for by {said['vouched_by']}"
            ledger.notes.write("migrate", "intended", name, detail=detail)
            ledger.note(name, said, label=MOVED)
        sealer.add({"outcome": "moved", "store": ledger.store, **said, "thread": name})
    return Moved(said["thread"], outcome, name, last)


# --- LangGraph


def move_sqlite_saver(
    path: str | os.PathLike[str],
    saver: SealedSaver,
    *,
    report: str | os.PathLike[str],
    **vouching: Unpack[Vouching],
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
        vouching: `vouched_by` and so on, as `Vouching` says.

    Returns:
        What became of each thread.

    Raises:
        ConfigurationError: you did not say that you vouch for them, or the report is a file of
            another kind.
        StorageUnavailable: the source cannot be read, or the report cannot be written. What the
            report does not name is not sealed.
        CheckpointError: the ledger refuses. What was sealed before is in the report.
    """
    with _sqlite(Path(path), saver.ledger.codec.limits) as rows:
        graphs = partial(rows.graphs, saver)
        return _move(saver.ledger, rows.origin, graphs, report, **vouching)


def move_postgres_saver(
    dsn: str,
    saver: SealedSaver,
    *,
    report: str | os.PathLike[str],
    **vouching: Unpack[Vouching],
) -> list[Moved]:
    """Seal the threads of a database of LangGraph's `PostgresSaver`, as `move_sqlite_saver` does.

    Args:
        dsn: what you gave to `PostgresSaver.from_conn_string`. The login has to read three tables.
        saver: where to.
        report: a file of JSON lines that this adds to.
        vouching: as `Vouching` says.

    Raises:
        MissingPackage: psycopg is not installed.
        CheckpointError: as `move_sqlite_saver`.
    """
    with _postgres(dsn, saver.ledger.codec.limits) as rows:
        graphs = partial(rows.graphs, saver)
        return _move(saver.ledger, rows.origin, graphs, report, **vouching)


class _Rows(NamedTuple):
    """A database in one snapshot, for reading alone.

    Attributes:
        origin: what the vouching calls it.
        ask: returns the rows of a query.
        split: values of channels have a table of their own, as `PostgresSaver` has it.
        path: the column of a task's path, or what stands for it.
    """

    origin: str
    ask: Callable[..., list[tuple[Any, ...]]]
    split: bool = False
    path: str = "task_path"

    def graphs(self, saver: SealedSaver, without_past: bool) -> Iterator[tuple[str, _States]]:
        """Yield each `thread_id` with its checkpoints, one at a time, however many there are."""
        query = "SELECT min(thread_id) FROM checkpoints WHERE thread_id {} ?"
        ((thread,),) = self.ask(query.format(">="), "")
        while thread is not None:
            yield str(thread), partial(_graph, self, saver, thread, without_past)
            ((thread,),) = self.ask(query.format(">"), thread)

    def of(self, what: str, table: str, *where: Any) -> list[tuple[Any, ...]]:
        """Return what a table has of a thread, or of one checkpoint of it."""
        keys = ("thread_id", "checkpoint_ns", "checkpoint_id")[: len(where)]
        test = " AND ".join(f"{key} = ?" for key in keys)
        try:
            return self.ask(f"SELECT {what} FROM {table} WHERE {test}", *where)  # noqa: S608
        except sqlite3.Error as error:
            raise DecodeError(f"A row of it cannot be read ({error}).", _NOTHING) from None

    def checkpoint(
        self, values: _Values, *where: str
    ) -> tuple[Any, Any, list[dict[str, Any]], str]:
        """Return a checkpoint, its metadata, the writes to it, and the digest of all."""
        text, blob = ("::text", "blob") if self.split else ("", "value")
        columns = f"type, checkpoint{text}, metadata{text}"
        rows = self.of(columns, "checkpoints", *where)
        if len(rows) != 1:  # in a table that takes two ids for one
            raise DecodeError("Its id is that of others, too.", _NOTHING)
        tag, data, said = rows[0]
        found = values.json(data) if self.split else values.read(tag, data)
        if self.split:
            versions = _dict(found, "channel_versions")
            wanted = [*versions], [*map(str, versions.values())]
            rows += (blobs := self.ask(_BLOBS, *wanted, *where[:2]))
            held = {name: values.read(*each) for name, *each in blobs if each[0] != "empty"}
            _dict(found, "channel_values").update(held)
        columns = f"task_id, {self.path}, idx, channel, type, {blob}"
        table = "checkpoint_writes" if self.split else "writes"
        wrote = self.of(columns, table, *where)
        if any([*map(type, row[:4])] != [str, str, int, str] for row in wrote):
            raise DecodeError("A write in it has an id of another type.", _NOTHING)
        rows += (wrote := sorted(wrote, key=lambda row: row[:3]))
        tasks: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for task, path, number, channel, *each in wrote:
            tasks[task, path].append([number, channel, values.read(*each)])
        early = [{"task": task, "path": path, "writes": w} for (task, path), w in tasks.items()]
        metadata = {} if said is None else values.json(said)
        return found, metadata, early, digest_of(repr(rows).encode())


_BLOBS: Final = (
    "SELECT channel, type, blob FROM checkpoint_blobs"
    " JOIN unnest(?::text[], ?::text[]) AS wanted (channel, version) USING (channel, version)"
    " WHERE thread_id = ? AND checkpoint_ns = ?"
)


def _graph(rows: _Rows, saver: SealedSaver, thread: str, without_past: bool) -> Iterator[Unsigned]:
    """Yield the checkpoints of a thread in the order in which LangGraph takes them: by their id."""
    values = _Values(saver.ledger.codec)
    places = rows.of("checkpoint_id, checkpoint_ns, parent_checkpoint_id", "checkpoints", thread)
    known = {row[:2] for row in places}
    ids = [each for ident, space, parent in places for each in (ident, space, parent or "")]
    if any(type(each) is not str for each in (thread, *ids)):
        raise DecodeError("An id in it is no text.", _NOTHING)
    if len(known) != len(places):
        raise Conflict("Two checkpoints in it have one id.", _NOTHING)
    for ident, space, parent in sorted(places, key=lambda row: row[:2]):
        where = f"{quoted(ident)} in {quoted(space)}" if space else quoted(ident)
        if parent and not without_past and (parent, space) not in known:
            raise Conflict(f"{where} follows {quoted(parent)}, which is not there.", _GONE)
        try:
            found, metadata, early, digest = rows.checkpoint(values, thread, space, ident)
            _check(found, metadata, ident, oldest=4 if rows.split else 1)
        except (DecodeError, LimitExceeded) as error:
            raise type(error)(f"{where}: {error.what}", error.do) from None
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": space}}
        each = saver.unsigned(config, found, metadata, parent or None, early)
        yield replace(each, source=f"{thread} {space} {ident}", digest=digest)


def _check(found: Any, metadata: Any, ident: str, oldest: int) -> None:
    """Refuse what is no checkpoint of that id; count its versions as `SealedSaver` does.

    Before version 4 `PostgresSaver` keeps tasks that were sent with the checkpoint before.
    """
    _dict(found, "channel_values")
    versions, seen = _dict(found, "channel_versions"), _dict(found, "versions_seen")
    if found.get("id") != ident or found.get("v") not in range(oldest, 5):
        raise DecodeError("It is of another id, or of another LangGraph than 0.5 to 1.", _NOTHING)
    if type(metadata) is not dict or "counters_since_delta_snapshot" in metadata:
        raise DecodeError("It has a DeltaChannel, or no metadata.", _NOTHING)
    for each in (versions, *(_dict(seen, name) for name in seen)):
        for channel, version in each.items():
            # A text such as 00000003.0.4133 is a count, and then random.
            count = str(version).partition(".")[0] if type(version) in (int, str) else ""
            if not count.isdecimal() or len(count) > 40:
                raise DecodeError("It counts versions of a channel in another way.", _NOTHING)
            each[channel] = int(count)


def _dict(value: Any, name: str) -> dict[str, Any]:
    found = value.get(name) if type(value) is dict else None
    if type(found) is not dict:
        raise DecodeError(f"It has no {name}, and is no checkpoint.", _NOTHING)
    return found


_ONE: Final = (UUID, Decimal, set, frozenset, deque)
_SEVERAL: Final = (PurePath, timedelta, date, timezone)
_BROKEN: Final = (
    "A value in it is no msgpack, is nested too deep, or is large and has keys that are no text."
)
_NUMBERED: Final = 256 * 1024  # bytes of a value in which a dict may have keys that are no text
_CONTAINERS: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])


class _Values:
    """What LangGraph's serializer wrote, read with a list of what may be built."""

    def __init__(self, codec: Codec) -> None:
        import ormsgpack

        self._unpackb, self._option = ormsgpack.unpackb, ormsgpack.OPT_NON_STR_KEYS
        self._limits, self._depth = codec.limits, 0
        self._wrong: CheckpointError | None = None
        self._known: dict[tuple[str, str], type | None] = {}
        for cls in (*codec.types, timezone):
            key = cls.__module__.removesuffix("._local"), cls.__name__
            self._known[key] = None if key in self._known else cls  # which of two, no row says

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
            what = f"A value in it is written as {quoted(tag)}, and msgpack alone is read."
            raise DecodeError(what, _NOTHING)
        if tag == "bytes":
            return data
        containers = len(data) - len(data.translate(None, _CONTAINERS))
        if len(data) > self._limits.state_bytes or containers > self._limits.items:
            raise LimitExceeded("A value in it is over the limits of the ledger.", _NOTHING)
        # Anybody can predict the hash of a key that is no text: few of them do no harm.
        for option in (0, self._option) if len(data) <= _NUMBERED else (0,):
            self._unpack = partial(self._unpackb, ext_hook=self._hook, option=option)
            self._wrong = None
            try:
                return self._unpack(data)
            except (ValueError, RecursionError, MemoryError):  # they do not say what a hook raised
                broken = DecodeError(_BROKEN, _NOTHING)
        raise self._wrong or broken

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
        if cls is None:
            what = f"It wants {quoted(f'{module}.{name}')}, which is not listed."
            raise DecodeError(what, f"If it is a type of yours, list it in types=[…]. {_NOTHING}")
        if code == 0 and (cls in _ONE or issubclass(cls, Enum) or module == "ipaddress"):
            if cls in (set, frozenset) and len(given) > 8 + 2 * len({*map(hash, given)}):
                raise LimitExceeded("Too many items of a set share a hash.", _NOTHING)
            return cls(given)
        if code == 1 and issubclass(cls, _SEVERAL):
            return cls(*given)
        if code == 1 and (module, name) == ("langgraph.types", "Send"):
            return cls(*given[:2], timeout=given[2] if given[2:] else None)
        if code == 2 and (cls is time or is_dataclass(cls) or hasattr(cls, "_fields")):
            return cls(**given)
        if code == 3 and cls is datetime:
            return cls.fromisoformat(given)
        if code == 5 and hasattr(cls, "model_fields"):
            lost = given.keys() - cls.model_fields.keys()
            if not lost or cls.model_config.get("extra") == "allow":
                return cls.model_validate(given, by_name=True, by_alias=False)
        raise DecodeError(f"It holds a {quoted(name)} in a way that is not read.", _NOTHING)


_TOO_MUCH: Final = "A thread has more in one place than the ledger takes."
# A virtual table has no page, and may read what never ends. So may a column that is computed.
_KINDS: Final = (
    "SELECT s.name, type, rootpage > 0, (SELECT total(hidden) FROM pragma_table_xinfo(s.name))"
    " FROM sqlite_schema AS s WHERE s.name IN ('checkpoints', 'writes')"
)
_ODD: Final = "SELECT 1 FROM checkpoints WHERE typeof(thread_id) NOT IN ('text', 'blob') LIMIT 1"
_PLAIN: Final = [("checkpoints", "table", 1, 0.0), ("writes", "table", 1, 0.0)]
_RELATIONS: Final = (
    "SELECT count(*) FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') AND oid IN"
    " (to_regclass('checkpoints'), to_regclass('checkpoint_blobs'),"
    " to_regclass('checkpoint_writes'))"
)


def _unreadable(
    place: str, why: str = "it has not the tables of a saver", login: str = ""
) -> StorageUnavailable:
    return StorageUnavailable(
        f"{shell(place)} cannot be read ({why}).",
        f"Name the database that your saver writes{login}.",
    )


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

    if not os.path.isfile(path):  # noqa: PTH113  that of Path may raise
        raise _unreadable(str(path), "there is no such file")
    try:
        # Without a log beside it nothing has to be shared, and nothing is left there.
        beside = path.with_name(f"{path.name}-wal")
        alone = "" if beside.exists() and beside.stat().st_size else "&immutable=1"
        uri = f"{path.absolute().as_uri()}?mode=ro{alone}"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.state_bytes)
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("BEGIN")  # one snapshot
            # In UTF-16 a broken text may sort before itself, so that the threads never end.
            if sorted(ask(_KINDS)) != _PLAIN or ask("PRAGMA encoding") != [("UTF-8",)]:
                raise _unreadable(str(path))
            if ask(_ODD):
                raise _unreadable(str(path), "a thread_id in it is no text")
            columns = ask("SELECT name FROM pragma_table_info('writes')")
            pathed = ("task_path",) in columns  # an old database has none
            yield _Rows(path.name, ask, path="task_path" if pathed else "''")
    except sqlite3.Error as error:
        raise _unreadable(str(path), str(error)) from None


@contextmanager
def _postgres(dsn: str, limits: Limits) -> Iterator[_Rows]:
    from safepoint.stores.postgres.connection import parsed, place, psycopg, refusal

    given = parsed(dsn)

    def ask(sql: str, *values: Any) -> list[tuple[Any, ...]]:
        sql = sql.replace("?", "%s")
        total = f"SELECT sum(octet_length(each::text)) FROM ({sql}) AS each"  # noqa: S608
        ((size,),) = database.execute(total.encode(), values)
        if (size or 0) > 4 * limits.state_bytes:  # a byte is two letters there
            raise LimitExceeded(_TOO_MUCH, _NOTHING)
        return database.execute(sql.encode(), values).fetchall()

    try:
        options: dict[str, Any] = {"connect_timeout": 10, **given}
        with closing(psycopg.connect(**options)) as database:
            database.read_only = True
            database.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # one snapshot
            # What a policy would leave out, or somebody has locked, is an error and not a wait.
            database.execute("SELECT set_config('row_security', 'off', true)")
            database.execute("SELECT set_config('lock_timeout', '10s', true)")
            origin = f"{database.info.dbname} at {database.info.host}"
            if ask(_RELATIONS) != [(3,)]:
                raise _unreadable(origin, login=", and a login that may read its tables")
            yield _Rows(origin, ask, split=True)
    except psycopg.Error as error:
        raise refusal(error, place(given)) from None


# --- Agent Framework


def move_file_storage(
    folder: str | os.PathLike[str],
    storage: SealedCheckpointStorage,
    *,
    report: str | os.PathLike[str],
    **vouching: Unpack[Vouching],
) -> list[Moved]:
    """Seal the checkpoints in a folder of `FileCheckpointStorage`. The files stay as they are.

    The pickles in them are read as data, with a list: the framework's own messages and events, and
    the `types` of the storage. All checkpoints of a workflow are one thread, in the order of their
    times. A workflow that is refused does not stop the others; but a file of which nobody can say
    whose it is stops all, since it may be the newest of any.

    Args:
        folder: where they are. Links in it are not followed.
        storage: where to.
        report: a file of JSON lines that this adds to, elsewhere than in the folder.
        vouching: as `Vouching` says.

    Returns:
        What became of each workflow, and of each file that is none's.

    Raises:
        CheckpointError: as `move_sqlite_saver`.
    """
    check_elsewhere(report, folder)
    threads = partial(_workflows, Path(folder), storage)
    return _move(storage.ledger, Path(folder).name, threads, report, **vouching)


def _workflows(
    folder: Path, storage: SealedCheckpointStorage, without_past: bool
) -> Iterator[tuple[str, _States | CheckpointError]]:
    files = Files(folder, _builders(storage))
    runs: dict[str, list[Link]] = defaultdict(list)
    stopped: CheckpointError | None = None
    for path in listed(folder):
        try:
            if link := files.look(path):
                runs[link.workflow].append(link)
            else:
                alone = "It is a pickle, and no checkpoint of the framework."
                yield path.name, PickleRefused(alone, "Read it with migrate_pickles.")
        except CheckpointError as error:
            yield path.name, error
            if path.suffix == ".json":
                stopped = Conflict(
                    f"{shell(path.name)} was refused, and may be the newest of any workflow.",
                    f"{_NOTHING} Repair that file; or decide to do without it, and move it away.",
                )
    for name, links in sorted(runs.items()):
        yield name, stopped or partial(_workflow, files, storage, links, without_past)


def _workflow(
    files: Files, storage: SealedCheckpointStorage, links: list[Link], without_past: bool
) -> Iterator[Unsigned]:
    """Yield the checkpoints of a workflow, by their times."""
    from agent_framework import WorkflowCheckpoint, WorkflowCheckpointException

    there = {link.identity for link in links}
    before: set[str | None] = {None}
    for link in sorted(links, key=lambda link: (_when(link), link.iteration)):
        shown = shell(link.source)
        if link.previous not in before and link.previous in there:
            raise Conflict(f"{shown} follows one that says it is newer.", _NOTHING)
        if link.previous not in before and not without_past:
            what = f"{shown} follows {quoted(link.previous)}, which is not in the folder."
            raise Conflict(what, _GONE)
        before.add(link.identity)
        read = files.unsigned("", link.source, "")
        try:
            checkpoint = WorkflowCheckpoint.from_dict(read.state)
            unsigned = storage.unsigned(checkpoint, link.source, read.digest)
        except (WorkflowCheckpointException, TypeError, ValueError):
            raise DecodeError(f"{shown} has not the fields of a checkpoint.", _NOTHING) from None
        yield unsigned


def _when(link: Link) -> datetime:
    with suppress(ValueError):
        if (found := datetime.fromisoformat(link.timestamp)).tzinfo:
            return found
    raise DecodeError(f"{shell(link.source)} says no time that can be compared.", _NOTHING)


class _New:
    """An object of the framework that has no fields yet."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __build__(self, state: Any) -> Any:
        given = dict(state[1] if type(state) is tuple else state)  # a pair, of a class with slots
        if given.get("type") == "request_info" and hasattr(self._cls, "request_info"):
            names = ("_request_id", "_source_executor_id", "data", "_response_type")
            return self._cls.request_info(*(given[name] for name in names))
        if given.get("_value") is not None:
            given["value"] = given["_value"]
        given.pop("raw_representation", None)
        return self._cls(**{name: each for name, each in given.items() if name[0] != "_"})


def _builders(storage: SealedCheckpointStorage) -> Functions:
    """Return what may stand behind a name: what the storage keeps, to be called, or to be held."""
    from agent_framework import WorkflowEvent, WorkflowMessage

    enums = type(WorkflowMessage(None, "").type), type(WorkflowEvent("started").origin)
    found: dict[tuple[str, str], Any] = dict(functions_for([*storage.types, *enums]))
    for cls in (*storage.ledger.codec.types, object):
        key = cls.__module__, cls.__qualname__
        if cls.__module__.startswith("agent_framework."):
            found[key] = Class(cls, partial(_New, cls))
        elif key in found and not (isinstance(found[key], Collect) or issubclass(cls, Enum)):
            found[key] = Class(cls, found[key])
    return found | {("types", "GenericAlias"): GenericAlias}


# --- the command


def commands(sub: Any) -> None:
    """Add `safepoint migrate`."""
    what = "seal states that nobody signed: JSON, pickles, LangGraph's SQLite, Agent Framework's"
    move = add(sub, "migrate", what, _migrate)
    move.add_argument("source", metavar="FROM", help="the folder, or the file of SQLite")
    move.add_argument("name", metavar="NAME", help="the name of the store")
    move.add_argument("--config", metavar="FILE", help="settings, in place of those found")
    move.add_argument("--report", metavar="FILE", help="where it says what it did (FROM.moved)")
    move.add_argument("--app", default="", metavar="NAME", help="what wrote them")
    move.add_argument(
        "--type",
        metavar="MODULE:CLASS",
        action="append",
        default=[],
        help="a dataclass, an Enum or a pydantic model of yours that is in the states; its module"
        " is imported, and so runs; again for each",
    )
    flag(move, "--dry-run", "write nothing, and say what would happen")
    flag(move, "--allow-missing-past", "take a checkpoint whose past is gone for the first")
    what = "that you vouch for these states: nobody signed them, so whoever could write them"
    flag(move, "--allow-unsigned-migration", f"{what} decides what they say")


def _migrate(options: argparse.Namespace) -> int:
    dry, source = options.dry_run, database_in(options.source)
    if not os.path.lexists(source):
        raise NotFound(f"{shell(source)} does not exist.", "Check the path.")
    what = _kind(source)
    if not (dry or options.allow_unsigned_migration):
        raise ConfigurationError(
            "These states carry no seal, so whoever could write them decides what they say.",
            "Look at them first, with --dry-run. If you vouch for them, add"
            " --allow-unsigned-migration",
        )
    options.report = options.report or f"{os.path.abspath(options.source)}.moved"  # noqa: PTH100  no links
    settings = read(options.config, "change")
    store = settings.to_change(options.name)
    with ExitStack() as stack:
        done = _moved(what, source, store.opened(stack, write=not dry), options)
    print(settings.line(options.name), end="")
    for each in done:
        if each.outcome == REFUSED:
            path = each.source if what == "thread" else str(Path(source, each.source))
            print(f"{shell(path)}: {each.reason}", file=sys.stderr)
        elif dry:
            will = "would be sealed as" if each.outcome == SEALED else "is there already as"
            print(f"{shell(each.source)} {will} {each.thread}, up to #{each.sequence}.")
    count = Counter(each.outcome for each in done)
    would, nothing = ("would be ", " Nothing was written.") if dry else ("", "")
    print(
        f"{counted(len(done), what.split()[-1])}: {count[SEALED]:,} {would}sealed,"
        f" {count[THERE_ALREADY]:,} sealed before, {count[REFUSED]:,} refused.{nothing}"
    )
    if not dry:
        print(
            f"What was done is in {shell(options.report)}: keep it. Keep the originals elsewhere,"
        )
        print("where nobody takes them for the state of today.")
    return int(count[REFUSED] > 0)


def _kind(source: str) -> str:
    """Tell what is in a file or a folder, by its content."""
    if is_database(source):
        with _sqlite(Path(source), DEFAULT_LIMITS):  # which refuses what is none of a saver
            return "thread"
    pickles = False
    for file in listed(source):
        with suppress(CheckpointError):  # which whoever reads it says
            data = read_file(file, DEFAULT_LIMITS.state_bytes + 1)
            kind, _ = identified(io.BytesIO(data))
            pickles = pickles or kind is Kind.PICKLE
            if kind is Kind.JSON:
                said = strict_json(data, "It", DEFAULT_LIMITS.state_bytes, DEFAULT_LIMITS.items)
                if type(said) is dict and {"checkpoint_id", "workflow_name"} <= said.keys():
                    return "workflow"
    return "pickled file" if pickles else "file"


def _moved(what: str, source: str, ledger: Ledger, options: argparse.Namespace) -> list[Moved]:
    types = [imported(each, "--type app.models:Invoice") for each in options.type]
    vouching: dict[str, Any] = {
        "report": options.report,
        "dry_run": options.dry_run,
        "allow_unsigned_migration": options.allow_unsigned_migration,
        "allow_missing_past": options.allow_missing_past,
    }
    by = Actor.process().name
    if what == "thread":
        from safepoint.langgraph import SealedSaver

        saver = SealedSaver(ledger, types=types, app=options.app)
        return move_sqlite_saver(source, saver, vouched_by=by, **vouching)
    if what == "workflow":
        from safepoint.agent_framework import SealedCheckpointStorage

        storage = SealedCheckpointStorage(ledger, types=types)
        return move_file_storage(source, storage, vouched_by=by, **vouching)
    if what == "pickled file":
        typed = with_codec(ledger, Codec(types))
        return migrate_pickles(source, typed, types=types, app=options.app, **vouching)
    check_elsewhere(options.report, source)
    # All of them are read, before the first one is sealed.
    if not sum(1 for _ in json_files(source)):
        raise NotFound(
            f"There is nothing in {shell(source)} that this can seal.",
            "Name a folder of JSON files, of pickles or of Agent Framework, or the database of"
            " LangGraph's SqliteSaver.",
        )
    done = []
    with Sealer(ledger, options.report, dry_run=options.dry_run) as sealer:
        for each in json_files(source, app=options.app):
            try:
                done.append(Moved(each.source, sealer.seal(each), each.thread, 1))
            except OF_THE_SOURCE as error:
                done.append(sealer.refuse(each.source, error))
    return done
