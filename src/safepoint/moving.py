"""The only import for unsealed states: they are read as data, vouched for, sealed and reported.

A ledger never loads an unsigned record. This module reads such states once: JSON and pickles, and
the stores of LangGraph and Agent Framework. Their rows and files name classes, and their own
loaders import these. Here a name is looked up in a list that the operator wrote: no source can
cause an import, nothing is unpickled and no source is changed. If a state of a thread cannot be
read, nothing of that thread is sealed, but the other threads are.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import sqlite3
import stat
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby
from pathlib import Path, PurePath
from types import GenericAlias
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from safepoint.core.codec import Codec
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    DecodeError,
    EncodeError,
    InvalidId,
    LimitExceeded,
    ModelRefused,
    NotFound,
    ThreadDeleted,
    Unavailable,
    quoted,
    shell,
)
from safepoint.core.files import open_regular
from safepoint.core.journal import Actor
from safepoint.core.ledger import Ledger, with_codec
from safepoint.core.names import digest_of, thread_name
from safepoint.models.limits import DEFAULT_PICKLE_LIMITS as LIMITS
from safepoint.models.look import PICKLED, Format, identified, unbased
from safepoint.models.machine import Class, Collect, Functions, run
from safepoint.models.plain import Types, functions_for, strict_json
from safepoint.places import is_database
from safepoint.settings import read
from safepoint.shared.terminal import add, counted, flag, imported
from safepoint.stores.disk import write_all

if TYPE_CHECKING:
    from safepoint.agent_framework import SealedCheckpointStorage
    from safepoint.langgraph import SealedSaver

MOVED: Final = "moved/in"
"""The label of the note that names the person who vouched."""
SEALED: Final = "sealed"
THERE_ALREADY: Final = "there already"
REFUSED: Final = "refused"
WOULD_BE_SEALED: Final = "would be sealed"
# What is wrong with a thread. Anything else is wrong with the ledger.
_OF_THE_THREAD: Final = (EncodeError, DecodeError, LimitExceeded, InvalidId, Conflict, NotFound)
_PLAIN: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_LINE: Final = b'{"outcome": "'  # each line of a report begins with this
_NOTHING: Final = "Nothing of this thread was sealed."
_GONE: Final = f"{_NOTHING} If you removed it: allow_missing_past=True, or --allow-missing-past."
_VERSION: Final = "1.0"  # of Agent Framework's checkpoints


@dataclass(frozen=True, slots=True)
class Unsigned:
    """An unsigned state and its origin.

    Attributes:
        thread: the thread that it becomes part of.
        state: the state, which you have already decoded.
        source: its name in the report, such as a file name.
        digest: the sha256 of the bytes that it was read from.
        app: the app that wrote it, for the checkpoint.
        tools: the digest of its tool set, for the checkpoint.
        label: the label by which an adapter finds the checkpoint.
        waits: whether a run waits there for an answer that nobody has to sign.
    """

    thread: str
    state: Any = field(repr=False)
    source: str = ""
    digest: str = ""
    app: str = ""
    tools: str | None = None
    label: str = ""
    waits: bool = False


class Moved(NamedTuple):
    """The result for a thread, or the expected result. The report has a line with the same data.

    Attributes:
        source: its name in the source: a file, a thread or a workflow.
        outcome: `"sealed"`, `"there already"`, `"would be sealed"` or `"refused"`.
        thread: its name in the ledger; empty if it was refused.
        checkpoints: how many checkpoints it has.
        digest: the sha256 of their digests.
        reason: why it was refused, and what to do.
        waits: whether its newest checkpoint waits for an answer that nobody has to sign.
    """

    source: str
    outcome: str
    thread: str = ""
    checkpoints: int = 0
    digest: str = ""
    reason: str = ""
    waits: bool = False


_States = Callable[[], Iterator[Unsigned]]
_Threads = Iterable[tuple[str, _States]]
_Source = AbstractContextManager[tuple[str | Path, _Threads]]
"""An open source: its name or path, and each of its threads with its states."""
_Into = TypeVar("_Into", bound="Ledger | SealedSaver | SealedCheckpointStorage")


def move(
    source: Callable[[_Into], _Source] | Iterable[Unsigned],
    into: _Into,
    *,
    report: str | os.PathLike[str],
    vouched_by: str = "",
    only: str | Sequence[str] = (),
) -> list[Moved]:
    r"""Seal unsigned states as new threads, if somebody vouches for them.

    A seal only proves that nothing changed since the move. Anyone who could write the source
    controls its content, so check it first: without `vouched_by`, nothing is written, and you see
    what would happen. With your name, each thread is sealed and ends with a note that names you.

    Nothing is added to an existing thread. After an interruption, run it again: it recognizes what
    it sealed before. Until then, an adapter refuses to resume an incomplete thread.

    ```python
    import json
    from pathlib import Path

    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.moving import move, state_files

    Path("old").mkdir()
    Path("old/order-7.json").write_text('{"amount": 42}')
    Path("old/order-8.pkl").write_bytes(b"cos\nsystem\n(S'id'\ntR.")

    keys = Keyring(SigningKey.generate())
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
    for each in move(state_files("old"), ledger, report="moved.jsonl"):
        print(each.source, each.outcome)
        #> order-7.json would be sealed
        #> order-8.pkl refused
    print(ledger.threads(), Path("moved.jsonl").exists())
    #> [] False

    move(state_files("old"), ledger, report="moved.jsonl", vouched_by="dora")
    print(ledger.latest("order-7").state)
    #> {'amount': 42}
    for line in Path("moved.jsonl").read_text().splitlines():
        entry = json.loads(line)
        print(entry["source"], entry["outcome"])
        #> order-7.json begun
        #> order-7.json sealed
        #> order-8.pkl refused
    ```

    Args:
        source: what to read: `state_files`, `sqlite_saver`, `postgres_saver`, `file_storage`, or
            your own states, grouped by thread.
        into: the target: a ledger; for a framework's store the sealed saver or storage, whose
            `types` list the classes that may be built.
        report: a file of JSON lines that this appends to: one line, on disk, before each thread is
            sealed, one after it, and one for each refused thread.
        vouched_by: your name, if you vouch for all of these states.
        only: which threads, by their names in the source or by patterns such as `acme-*`. If a
            database has threads of several tenants, move those of each into that tenant's ledger.

    Returns:
        The result for each thread.

    Raises:
        ConfigurationError: the report is in the folder that is read, or a file of another kind; or
            the name is none.
        Unavailable: the source cannot be read, or the report cannot be written. What the
            report does not name is not sealed.
        CheckpointError: the ledger refuses. The report names the threads that were sealed before.
    """
    if type(vouched_by) is not str or not vouched_by.isprintable() or len(vouched_by) > 256:
        raise ConfigurationError(
            "vouched_by is not the name of a person.", 'Say who you are: vouched_by="your name".'
        )
    ledger: Ledger = into if isinstance(into, Ledger) else into.ledger
    opened = source(into) if callable(source) else _grouped(source)
    done = []
    with opened as (origin, threads), ExitStack() as stack:
        said = {"vouched_by": vouched_by, "from": _elsewhere(origin, report)}
        file = stack.enter_context(_report(os.fspath(report))) if vouched_by else None
        mover = _Mover(ledger, file, said, counts=callable(source) and into is not ledger)
        names = [only] if isinstance(only, str) else only
        for name, states in threads:
            if only and not any(name == each or fnmatchcase(name, each) for each in names):
                continue
            try:
                moved = mover.take(name, states)
            except _OF_THE_THREAD as error:
                moved = Moved(name, REFUSED, reason=str(error))
            mover.write_down(moved)
            done.append(moved)
    return done


@contextmanager
def _grouped(states: Iterable[Unsigned]) -> Iterator[tuple[str, _Threads]]:
    groups = ([*group] for _, group in groupby(states, key=lambda each: each.thread))
    yield "the caller", ((each[0].source or each[0].thread, partial(iter, each)) for each in groups)


def _elsewhere(origin: str | Path, report: str | os.PathLike[str]) -> str:
    """Return the name of the source for notes, if the report is not in its folder."""
    if isinstance(origin, str):
        return origin
    folder = Path(os.path.realpath(origin))
    if folder in Path(os.path.realpath(report)).parents:
        raise ConfigurationError(
            f"The report {shell(os.fspath(report))} would be in the folder that is read.",
            "Nothing was sealed. Name a file elsewhere: the originals stay as they are.",
        )
    return folder.name


@dataclass(frozen=True)
class _Mover:
    """Moves threads into a ledger.

    Attributes:
        ledger: the target.
        report: the open report; None if nobody vouches, so that nothing is written.
        said: who vouches, and the name of the source.
        counts: whether each state says how many records follow, so that no adapter resumes an
            incomplete thread.
    """

    ledger: Ledger
    report: IO[bytes] | None
    said: dict[str, str]
    counts: bool

    def take(self, name: str, states: _States) -> Moved:
        """Read a thread to its end, then read it again and seal it, one state at a time.

        Raises:
            CheckpointError: it cannot be moved.
        """
        thread, digests, waits = self._look(name, states)
        last, digest = len(digests) + 1, digest_of("\n".join(digests).encode())
        there, had = self._there(thread, last), {*self.ledger.owners.threads}
        outcome = THERE_ALREADY if last in there else SEALED if self.report else WOULD_BE_SEALED
        moved = Moved(name, outcome, thread, len(digests), digest, waits=waits)
        if self.report:
            self.write_down(moved._replace(outcome="begun"))
            detail = "{} from {from}, vouched for by {vouched_by}".format(quoted(name), **self.said)
            self.ledger.log.write("move", "intended", thread, detail=detail)
        for sequence, each in enumerate(states() if self.report or there else (), 1):
            if each.digest != digests[sequence - 1]:
                raise Conflict(
                    f"{shell(each.source)} changed while it was read.",
                    "Stop whatever writes it, and move it in again.",
                )
            state = self._state(each, last - sequence)
            label = each.label if self.counts else MOVED
            if sequence in there:
                # Compare bytes, because 1, 1.0 and True are equal in Python.
                made = "state", label, each.app, self.ledger.codec.encode(state)
                self._check_same(thread, sequence, there[sequence] == made)
            elif self.report:
                more: dict[str, Any] = {"app": each.app, "tools": each.tools, "label": label}
                self.ledger.save(thread, state, after=sequence - 1, **more)
        if last in there:
            self._check_same(thread, last, there[last][:2] == ("note", MOVED))
        elif self.report:
            note = {"thread": name, "checkpoints": moved.checkpoints, "digest": digest}
            self.ledger.note(thread, {**note, **self.said}, label=MOVED)
        # Or nobody could resume it for a minute. A lease from before is not the move's to end.
        if self.report and self.ledger.owners.worker and self.ledger.owners.at(thread) not in had:
            self.ledger.owners.release(thread)
        return moved

    def write_down(self, moved: Moved) -> None:
        """Append a line to the report, on disk."""
        if self.report:
            line = {"outcome": moved.outcome, "store": self.ledger.store, **self.said}
            with _explained(self.report.name):
                written = json.dumps({**line, **moved._asdict()}).encode() + b"\n"
                write_all(self.report.fileno(), written)
                os.fsync(self.report.fileno())

    def _look(self, name: str, states: _States) -> tuple[str, list[str], bool]:
        """Return a thread's new name, its states' digests and whether it waits, if it can move."""
        thread, digests, waits = "", [], False
        for each in states():
            thread, waits = each.thread, each.waits
            digests.append(each.digest)
            try:
                self.ledger.codec.encode(self._state(each, 10**9))  # more follow nowhere
            except (EncodeError, DecodeError, LimitExceeded) as error:
                where = "" if each.source in ("", name) else f"{quoted(each.source)}: "
                raise type(error)(f"{where}{error.what}", error.do) from None
        return thread, digests, waits

    def _state(self, each: Unsigned, left: int) -> Any:
        return {**each.state, "left": left} if self.counts else each.state

    def _there(self, thread: str, last: int) -> dict[int, tuple[str, str, str, bytes]]:
        """Return the kind, label, app and state of each existing record of a thread."""
        encode = self.ledger.codec.encode
        try:
            return {
                link.sequence: (link.kind, link.label, link.header.app, encode(link.state))
                for link in self.ledger.back(thread)
                if link.sequence <= last
            }
        except ThreadDeleted:
            raise
        except NotFound:
            return {}

    def _check_same(self, thread: str, sequence: int, same: bool) -> None:
        if not same:
            raise Conflict(
                f"{thread} exists in store {self.ledger.store}, with another record #{sequence}.",
                "Nothing was overwritten, since only new threads are made. Find out which of the"
                " two counts.",
            )


@contextmanager
def _report(path: str) -> Iterator[IO[bytes]]:
    """Open a file of JSON lines for appending, accessible only to its owner."""
    with ExitStack() as stack:
        with _explained(path):
            file = stack.enter_context(open(path, "ab+", opener=_plainly))
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            file.seek(0)
            head = file.read(len(_LINE))
            if not _LINE.startswith(head):
                raise ConfigurationError(
                    f"{shell(path)} exists but is not the report of a move.",
                    "It may be an original. Name a new file, or an earlier report.",
                )
            if len(head) < len(_LINE):  # a crash cut the first line short
                os.ftruncate(file.fileno(), 0)
            elif file.seek(-1, os.SEEK_END) and file.read(1) != b"\n":
                write_all(file.fileno(), b"\n")
        yield file


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"The report {shell(path)} cannot be written ({error.strerror}).",
            "Nothing more was sealed. Name a file in a folder that this user can write.",
        ) from error


# --- files: JSON and pickles


def _plainly(path: str, flags: int) -> int:
    """Open a file without following a link or waiting for a pipe."""
    return os.open(path, flags | _PLAIN, 0o600)


def _content(path: Path) -> bytes:
    """Return the bytes of a regular file, up to one more than the limit."""
    try:
        with open_regular(path) as file:
            return file.read(LIMITS.data_bytes + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "not a path")
    raise DecodeError(
        f"{shell(str(path))} cannot be read ({why}).",
        "Name a file that this user can read. Links are not followed.",
    )


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"{shell(str(folder))} cannot be read ({getattr(error, 'strerror', 'not a path')}).",
            "Name a folder or SQLite file that you can read. For PostgreSQL: postgres_saver(dsn).",
        ) from None


def _json(data: bytes, revive: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    return strict_json(data, LIMITS.data_bytes, LIMITS.nodes, revive)


def state_files(
    folder: str | os.PathLike[str],
    *,
    types: Types = (),
    thread: Callable[[str], str] = thread_name,
    app: str = "",
) -> Callable[[Ledger], _Source]:
    """Read a folder of files, JSON or pickles by their content. Each file becomes one thread.

    A file that is neither, or that cannot be read, is refused by name.

    Args:
        folder: the folder. Links in it are not followed.
        types: your dataclasses, Enums, Flags and pydantic models that pickles may contain. Pass a
            mapping for types that had another name: `{"old.module.Invoice": Invoice}`. The
            ledger's codec must know the same types.
        thread: returns the name of the thread for a file's name without its extension.
        app: the app that wrote them, for the checkpoints.

    Raises:
        ConfigurationError: these are not types.
        Unavailable: the folder cannot be read.
    """
    return partial(_files, Path(folder), functions_for(types), thread, app)


@contextmanager
def _files(
    folder: Path, functions: Functions, thread: Callable[[str], str], app: str, _: Ledger
) -> Iterator[tuple[Path, _Threads]]:
    names = {path: thread(path.stem) for path in _listed(folder)}
    count = Counter(names.values())

    def states(path: Path, name: str) -> Iterator[Unsigned]:
        if count[name] > 1:
            raise Conflict(
                f"{shell(path.name)} and another file would both become {name}.",
                "Give each its own name.",
            )
        yield _state(path, name, functions, app)

    yield folder, ((path.name, partial(states, path, name)) for path, name in names.items())


def read_state(
    path: str | os.PathLike[str], *, thread: str, types: Types = (), app: str = ""
) -> Unsigned:
    """Read one file as `state_files` does, for a folder with another layout.

    Raises:
        DecodeError: it cannot be read, or is neither strict JSON nor a pickle; or it is a pickle
            that is more than data. The message says what.
        LimitExceeded: it is too large, too deep or has too many values.
        ConfigurationError: these are not types.
    """
    return _state(Path(path), thread, functions_for(types), app)


def _state(path: Path, thread: str, functions: Functions, app: str) -> Unsigned:
    data = _content(path)
    try:
        kind, _ = identified(io.BytesIO(data))
    except ModelRefused as error:
        raise DecodeError(error.what, error.do) from None
    if kind is Format.PICKLE:
        state = run(data, functions=functions)
    elif kind is Format.JSON:
        state = _json(data)
    else:
        raise DecodeError(
            f"It is {kind.sentence}, and neither strict JSON nor a pickle.",
            "Repair it, or move it elsewhere if it does not belong here.",
        )
    return Unsigned(thread, state, path.name, digest_of(data), app)


# --- LangGraph


def sqlite_saver(
    path: str | os.PathLike[str], *, allow_missing_past: bool = False
) -> Callable[[SealedSaver], _Source]:
    """Read a LangGraph `SqliteSaver` database, in one snapshot.

    Checkpoints, parents, namespaces, metadata and pending writes are moved, so that a graph
    continues where it was.

    Args:
        path: the file.
        allow_missing_past: accept a checkpoint whose predecessor is gone.
    """
    return partial(_sqlite, Path(path), allow_missing_past is True)


def postgres_saver(
    dsn: str, *, allow_missing_past: bool = False
) -> Callable[[SealedSaver], _Source]:
    """Read a LangGraph `PostgresSaver` database, as `sqlite_saver` does.

    Args:
        dsn: the argument of `PostgresSaver.from_conn_string`. The login must read three tables.
        allow_missing_past: accept a checkpoint whose predecessor is gone.
    """
    return partial(_postgres, dsn, allow_missing_past is True)


class _Rows(NamedTuple):
    """A read-only snapshot of a database.

    Attributes:
        ask: returns the rows of a query.
        split: whether the values of channels have their own table, as in `PostgresSaver`.
        path: the column of a task's path, or an expression in its place.
    """

    ask: Callable[..., list[tuple[Any, ...]]]
    split: bool = False
    path: str = "task_path"

    def threads(self, saver: SealedSaver, without_past: bool) -> Iterator[tuple[str, _States]]:
        """Yield each `thread_id` with its checkpoints, without listing all of them at once."""
        query = "SELECT min(thread_id) FROM checkpoints WHERE thread_id {} ?"
        ((thread,),) = self.ask(query.format(">="), "")
        while thread is not None:
            yield str(thread), partial(_graph, self, saver, thread, without_past)
            ((thread,),) = self.ask(query.format(">"), thread)

    def of(self, what: str, table: str, *where: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a table for a thread, or for one of its checkpoints."""
        keys = ("thread_id", "checkpoint_ns", "checkpoint_id")[: len(where)]
        test = " AND ".join(f"{key} = ?" for key in keys)
        try:
            return self.ask(f"SELECT {what} FROM {table} WHERE {test}", *where)  # noqa: S608
        except _UNREADABLE as error:
            what = f"A row of it cannot be read ({quoted(str(error))})."
            raise DecodeError(what, _NOTHING) from None

    def checkpoint(
        self, values: _Values, *where: str
    ) -> tuple[Any, Any, list[dict[str, Any]], str]:
        """Return a checkpoint, its metadata, its writes, and the digest of everything."""
        text, blob = ("::text", "blob") if self.split else ("", "value")
        columns = f"type, checkpoint{text}, metadata{text}"
        rows = self.of(columns, "checkpoints", *where)
        if len(rows) != 1:  # the table treats two ids as one
            raise DecodeError("Others have the same id.", _NOTHING)
        tag, data, said = rows[0]
        found = values.json(data) if self.split else values.read(tag, data)
        if self.split:
            versions = _dict(found, "channel_versions")
            wanted = [*versions], [*map(str, versions.values())]
            rows += (blobs := sorted(self.ask(_BLOBS, *wanted, *where[:2]), key=repr))
            blob_values = {name: values.read(*each) for name, *each in blobs if each[0] != "empty"}
            _dict(found, "channel_values").update(blob_values)
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
    """Yield the checkpoints of a thread in LangGraph's order, which is by id."""
    values = _Values(saver.ledger.codec)
    places = rows.of("checkpoint_id, checkpoint_ns, parent_checkpoint_id", "checkpoints", thread)
    known = {row[:2] for row in places}
    ids = [each for ident, space, parent in places for each in (ident, space, parent or "")]
    if any(type(each) is not str for each in (thread, *ids)):
        raise DecodeError("An id in it is not text.", _NOTHING)
    if len(known) != len(places):
        raise Conflict("Two checkpoints in it have one id.", _NOTHING)
    waits = False
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
        fields = saver.unsigned(config, found, metadata, parent or None, early)
        fields |= {"app": saver.app, "tools": saver.tools, "digest": digest}
        if not space:
            waits = any(row[1] == "__interrupt__" for each in early for row in each["writes"])
        yield Unsigned(**fields, source=f"{thread} {space} {ident}", waits=waits)
    if values.unlisted:
        raise values.refusal()


def _check(found: Any, metadata: Any, ident: str, oldest: int) -> None:
    """Refuse a value that is not a checkpoint of that id; number versions as `SealedSaver` does.

    Before version 4, `PostgresSaver` stores sent tasks with the previous checkpoint.
    """
    _dict(found, "channel_values")
    versions, seen = _dict(found, "channel_versions"), _dict(found, "versions_seen")
    if found.get("id") != ident or found.get("v") not in range(oldest, 5):
        raise DecodeError("It is of another id, or of another LangGraph than 0.5 to 1.", _NOTHING)
    _dict({"metadata": metadata}, "metadata")
    for each in (versions, *(_dict(seen, name) for name in seen)):
        for channel, version in each.items():
            # A text such as 00000003.0.4133 is a count followed by a random part.
            count = str(version).partition(".")[0] if type(version) in (int, str) else ""
            if not count.isdecimal() or len(count) > 40:
                raise DecodeError("It counts versions of a channel in another way.", _NOTHING)
            each[channel] = int(count)


def _dict(value: Any, name: str) -> dict[str, Any]:
    found = value.get(name) if type(value) is dict else None
    if type(found) is not dict:
        raise DecodeError(f"It has no {name}, so it is not a checkpoint.", _NOTHING)
    return found


_ONE: Final = (UUID, Decimal, set, frozenset, deque)
_SEVERAL: Final = (PurePath, timedelta, date, timezone)
_BROKEN: Final = (
    "A value in it is not msgpack, is nested too deep, or is large and has keys that are not text."
)
_CONTAINERS: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])


class _Values:
    """Reads the output of LangGraph's serializer, with a list of the types that may be built."""

    def __init__(self, codec: Codec) -> None:
        import ormsgpack

        self._unpackb, self._option = ormsgpack.unpackb, ormsgpack.OPT_NON_STR_KEYS
        self._limits, self._depth = codec.limits, 0
        self._wrong: CheckpointError | None = None
        self.unlisted = dict[str, str]()
        self._snapshot = next(each for each in codec.types if each.__name__ == "_DeltaSnapshot")
        self._known: dict[tuple[str, str], type | None] = {}
        for cls in (*codec.types, timezone):
            for module in {cls.__module__.removesuffix("._local"), "__main__"}:  # a script's own
                key = module, cls.__name__
                self._known[key] = None if key in self._known else cls  # None if it is ambiguous

    def json(self, text: Any) -> Any:
        """Return the value of JSON in a row."""
        data = text.encode() if type(text) is str else text
        if type(data) is not bytes:
            raise DecodeError("It has no JSON where that should be.", _NOTHING)
        return _json(data)

    def read(self, tag: Any, data: Any) -> Any:
        """Return the value in a row.

        Raises:
            DecodeError: it has another format, or contains a type that is not on the list.
            LimitExceeded: it is too large or too deep.
        """
        if tag == "null":
            return None
        if tag not in ("bytes", "msgpack") or type(data) is not bytes:
            what = f"A value in it is written as {quoted(tag)}, and only msgpack is read."
            raise DecodeError(what, _NOTHING)
        if tag == "bytes":
            return data
        containers = len(data) - len(data.translate(None, _CONTAINERS))
        if len(data) > self._limits.state_bytes or containers > self._limits.items:
            raise LimitExceeded("A value in it is over the limits of the ledger.", _NOTHING)
        # An attacker can predict the hash of a non-text key; a small number of them is harmless.
        for option in (0, self._option) if len(data) <= 256 * 1024 else (0,):
            self._unpack = partial(self._unpackb, ext_hook=self._hook, option=option)
            self._wrong = None
            try:
                return self._unpack(data)
            except (ValueError, RecursionError, MemoryError):  # they hide the hook's error
                broken = DecodeError(_BROKEN, _NOTHING)
        raise self.refusal() if self.unlisted else self._wrong or broken

    def refusal(self) -> DecodeError:
        """Return the error that names the types that are not listed."""
        what = f"It wants {', '.join(map(quoted, self.unlisted))}, not listed in types=[…]."
        do = f"If these are types of yours, list them: {' '.join(self.unlisted.values())}."
        return DecodeError(what, f"{do} {_NOTHING}")

    def _hook(self, code: int, data: bytes) -> Any:
        self._depth += 1
        try:
            if self._depth > self._limits.depth:
                _refuse(LimitExceeded("A value in it is nested too deep.", _NOTHING))
            inside = self._unpack(data)
            return self._snapshot(inside) if code == 7 else self._made(code, *inside)
        except Exception as error:
            unfit = DecodeError("A value in it is not what its type takes.", _NOTHING)
            self._wrong = self._wrong or (error if isinstance(error, CheckpointError) else unfit)
            raise
        finally:
            self._depth -= 1

    def _made(self, code: int, module: str, name: str, given: Any = None, *_: Any) -> Any:
        """Return the value of a type on the list, if LangGraph writes that type in this way."""
        cls: Any = self._known.get((module.removesuffix("._local"), name))
        if cls is None:  # read on, to name all that are not listed, or the first of many
            if len(self.unlisted) < 16:
                known_as = "MODULE" if module == "__main__" else module
                self.unlisted[f"{module}.{name}"] = f"--type {shell(f'{known_as}:{name}')}"
            return None
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


# An SQLite error quotes the schema, which may be invalid text or have many lines.
_UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
_TOO_MUCH: Final = "A thread has more in one place than the ledger takes."
# A virtual table has no page and may never end. The same is true of a computed column.
_KINDS: Final = (
    "SELECT s.name, type, rootpage > 0, (SELECT total(hidden) FROM pragma_table_xinfo(s.name))"
    " FROM sqlite_schema AS s WHERE s.name IN ('checkpoints', 'writes')"
)
_ODD: Final = "SELECT 1 FROM checkpoints WHERE typeof(thread_id) NOT IN ('text', 'blob') LIMIT 1"
_TABLES: Final = [("checkpoints", "table", 1, 0.0), ("writes", "table", 1, 0.0)]
_RELATIONS: Final = (
    "SELECT count(*) FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') AND oid IN"
    " (to_regclass('checkpoints'), to_regclass('checkpoint_blobs'),"
    " to_regclass('checkpoint_writes'))"
)


def _unreadable(place: str, why: str = "it does not have the tables of a saver") -> Unavailable:
    return Unavailable(
        f"{shell(place)} cannot be read ({why}).",
        "Name the database that your saver writes, as a user or a login that may read it.",
    )


@contextmanager
def _sqlite(path: Path, without_past: bool, saver: SealedSaver) -> Iterator[tuple[Path, _Threads]]:
    """Open an untrusted database, only for reading."""
    most = saver.ledger.codec.limits.state_bytes

    def ask(sql: str, *given: Any) -> list[tuple[Any, ...]]:
        found, size = [], 0
        for row in database.execute(sql, given):
            size += sum(len(each) for each in row if isinstance(each, str | bytes))
            if size > 2 * most:
                raise LimitExceeded(_TOO_MUCH, _NOTHING)
            found.append(row)
        return found

    if not os.path.isfile(path):  # noqa: PTH113  that of Path may raise
        raise _unreadable(str(path), "it does not exist")
    try:
        # Without a log, the file can be opened as immutable, which leaves no log behind.
        beside = path.with_name(f"{path.name}-wal")
        alone = "" if beside.exists() and beside.stat().st_size else "&immutable=1"
        uri = f"{path.absolute().as_uri()}?mode=ro{alone}"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("BEGIN")  # one snapshot
            # In UTF-16, broken text may sort before itself, so that the list of threads never ends.
            if sorted(ask(_KINDS)) != _TABLES or ask("PRAGMA encoding") != [("UTF-8",)]:
                raise _unreadable(str(path))
            if ask(_ODD):
                raise _unreadable(str(path), "a thread_id in it is not text")
            columns = ask("SELECT name FROM pragma_table_info('writes')")
            pathed = ("task_path",) in columns  # an old database has none
            rows = _Rows(ask, path="task_path" if pathed else "''")
            yield path, rows.threads(saver, without_past)
    except _UNREADABLE as error:
        raise _unreadable(str(path), quoted(str(error))) from None


@contextmanager
def _postgres(dsn: str, without_past: bool, saver: SealedSaver) -> Iterator[tuple[str, _Threads]]:
    from safepoint.stores.postgres.connection import parsed, place, psycopg, refusal

    given = parsed(dsn)

    def ask(sql: str, *values: Any) -> list[tuple[Any, ...]]:
        sql = sql.replace("?", "%s")
        total = f"SELECT sum(octet_length(each::text)) FROM ({sql}) AS each"  # noqa: S608
        ((size,),) = database.execute(total.encode(), values)
        if (size or 0) > 4 * saver.ledger.codec.limits.state_bytes:  # a byte is two letters there
            raise LimitExceeded(_TOO_MUCH, _NOTHING)
        return database.execute(sql.encode(), values).fetchall()

    try:
        options: dict[str, Any] = {"connect_timeout": 10, **given}
        with closing(psycopg.connect(**options)) as database:
            database.read_only = True
            database.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # one snapshot
            # Rows that a policy would hide cause an error, and so does a lock after 10 seconds.
            database.execute("SELECT set_config('row_security', 'off', true)")
            database.execute("SELECT set_config('lock_timeout', '10s', true)")
            origin = f"{database.info.dbname} at {database.info.host}"
            if ask(_RELATIONS) != [(3,)]:
                raise _unreadable(origin)
            yield origin, _Rows(ask, split=True).threads(saver, without_past)
    except psycopg.Error as error:
        raise refusal(error, place(given)) from None


# --- Agent Framework


def file_storage(
    folder: str | os.PathLike[str], *, allow_missing_past: bool = False
) -> Callable[[SealedCheckpointStorage], _Source]:
    """Read an Agent Framework `FileCheckpointStorage` folder.

    The pickles in the files are read as data, with an allowlist: the framework's own messages and
    events, and the `types` of the storage. The checkpoints of a workflow become one thread, ordered
    by time. If a file does not say which workflow it belongs to, no workflow is moved, because it
    may be the newest checkpoint of any.

    Args:
        folder: the folder. Links in it are not followed.
        allow_missing_past: accept a checkpoint whose predecessor is gone.
    """
    return partial(_workflows, Path(folder), allow_missing_past is True)


@contextmanager
def _workflows(
    folder: Path, without_past: bool, storage: SealedCheckpointStorage
) -> Iterator[tuple[Path, _Threads]]:
    paths = _listed(folder)

    def threads() -> Iterator[tuple[str, _States]]:
        runs: dict[str, list[_Point]] = defaultdict(list)
        stopped: CheckpointError | None = None
        for path in paths:
            try:
                link = _link(path)
                runs[link.workflow].append(link)
            except CheckpointError as error:
                yield path.name, partial(_refuse, error)
                if path.suffix == ".json":
                    stopped = Conflict(
                        f"{shell(path.name)} was refused, but could be the newest of any workflow.",
                        f"{_NOTHING} Repair that file; or decide to do without it, and move it"
                        " away.",
                    )
        functions = _builders(storage)
        for name, links in sorted(runs.items()):
            states = partial(_workflow, links, functions, storage, without_past)
            yield name, partial(_refuse, stopped) if stopped else states

    yield folder, threads()


def _refuse(error: CheckpointError) -> NoReturn:
    raise error


class _Point(NamedTuple):
    """The place of a framework's checkpoint according to its fields, and its file."""

    path: Path
    digest: str
    identity: str
    previous: str | None
    iteration: int
    workflow: str
    timestamp: str


def _link(path: Path) -> _Point:
    """Read the fields of a framework's checkpoint, but not its pickles."""
    data = _content(path)
    said = _json(data)
    said = said if type(said) is dict else {}
    identity, previous = said.get("checkpoint_id"), said.get("previous_checkpoint_id")
    iteration, workflow = said.get("iteration_count"), said.get("workflow_name")
    if not (
        type(identity) is type(workflow) is str
        and type(iteration) is int
        and (previous is None or (type(previous) is str and previous))
        and said.get("version") == _VERSION
    ):
        raise DecodeError(
            f"It is not a checkpoint of Agent Framework in version {_VERSION}.",
            "Move it elsewhere if it does not belong here.",
        )
    if path.name != f"{identity}.json":
        raise DecodeError(
            f"It says that it is the checkpoint {quoted(identity)}, and its name says otherwise.",
            "Find out who wrote it.",
        )
    timestamp = str(said.get("timestamp"))
    return _Point(path, digest_of(data), identity, previous, iteration, workflow, timestamp)


def _workflow(
    links: list[_Point], functions: Functions, storage: SealedCheckpointStorage, without_past: bool
) -> Iterator[Unsigned]:
    """Yield the checkpoints of a workflow, ordered by time."""
    from agent_framework import WorkflowCheckpoint, WorkflowCheckpointException

    there = {link.identity for link in links}
    before: set[str | None] = {None}
    for link in sorted(links, key=lambda link: (_when(link), link.iteration)):
        shown = shell(link.path.name)
        if link.previous not in before and link.previous in there:
            raise Conflict(f"{shown} follows one that says it is newer.", _NOTHING)
        if link.previous not in before and not without_past:
            what = f"{shown} follows {quoted(link.previous)}, which is not in the folder."
            raise Conflict(what, _GONE)
        before.add(link.identity)
        data = _content(link.path)
        if digest_of(data) != link.digest:
            raise Conflict(f"{shown} changed while it was read.", _NOTHING)
        said = _json(data, partial(_revived, functions, shown))
        try:
            checkpoint = WorkflowCheckpoint.from_dict(said)
            fields = storage.unsigned(checkpoint)
        except (WorkflowCheckpointException, TypeError, ValueError):
            raise DecodeError(f"{shown} lacks fields of a checkpoint.", _NOTHING) from None
        yield Unsigned(**fields, source=link.path.name, digest=link.digest)


def _when(link: _Point) -> datetime:
    with suppress(ValueError):
        if (found := datetime.fromisoformat(link.timestamp)).tzinfo:
            return found
    raise DecodeError(f"{shell(link.path.name)} has no time that can be compared.", _NOTHING)


def _revived(functions: Functions, shown: str, value: dict[str, Any]) -> Any:
    """Return the value of an object in the framework's JSON. A pickle is read as data."""
    if PICKLED not in value:
        return value
    text = value[PICKLED]
    data = unbased(text) if isinstance(text, str) else None
    if data is None or not value.keys() <= {PICKLED, "__type__"}:
        what = f"{shown} marks something as a pickle that is not written like one."
        raise DecodeError(what, _NOTHING)
    try:
        return run(data, functions=functions)
    except (EncodeError, DecodeError) as error:
        raise DecodeError(f"{shown}: {error.what}", error.do) from None


class _New:
    """An object of the framework that has no fields yet."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __build__(self, state: Any) -> Any:
        given = dict(state[1] if type(state) is tuple else state)  # a class with slots has a pair
        if given.get("type") == "request_info" and hasattr(self._cls, "request_info"):
            names = ("_request_id", "_source_executor_id", "data", "_response_type")
            return self._cls.request_info(*(given[name] for name in names))
        if given.get("_value") is not None:
            given["value"] = given["_value"]
        given.pop("raw_representation", None)
        return self._cls(**{name: each for name, each in given.items() if name[0] != "_"})


def _builders(storage: SealedCheckpointStorage) -> Functions:
    """Return the allowed names and their builders: the types that the storage knows."""
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
    """Add `safepoint move`."""
    what = "seal states that nobody signed: JSON, pickles, LangGraph's SQLite, Agent Framework's"
    parser = add(sub, "move", what, _command)
    parser.add_argument("source", metavar="FROM", help="a folder or SQLite file; not PostgreSQL")
    parser.add_argument("name", metavar="NAME", help="the name of the store")
    parser.add_argument("--report", metavar="FILE", help="the file for its report (FROM.moved)")
    parser.add_argument("--app", default="", metavar="NAME", help="what wrote them")
    parser.add_argument("--tenant", default="", metavar="NAME", help="whose threads they become")
    what = "which thread, workflow or file, or those that fit: 'acme-*'; again for each (all)"
    parser.add_argument("--only", metavar="PATTERN", action="append", default=[], help=what)
    what = "a dataclass, Enum or pydantic model in the states, whose module runs; again for each"
    parser.add_argument("--type", metavar="MODULE:CLASS", action="append", default=[], help=what)
    flag(parser, "--allow-missing-past", "accept a checkpoint without its past as the first")
    what = "vouch for these states and seal them: anyone who could write them decides what they say"
    flag(parser, "--vouch", what)


def _command(options: argparse.Namespace) -> int:
    report = options.report or f"{os.path.abspath(options.source)}.moved"  # noqa: PTH100  no links
    with ExitStack() as stack:
        ledger = read(options.config).store(options.name).opened(stack, write=options.vouch)
        ledger = ledger.tenant(options.tenant) if options.tenant else ledger
        what, opened, into = _ends(options.source, ledger, options)
        vouched_by = Actor.process().name if options.vouch else ""
        done = move(opened, into, report=report, vouched_by=vouched_by, only=options.only)
    if options.only and not done:
        options.refuse("nothing there has such a name")
    for each in done:
        if each.outcome == REFUSED:
            print(f"{shell(each.source)}: {each.reason}", file=sys.stderr)
        elif not options.vouch:
            has = counted(each.checkpoints, "checkpoint")
            print(f"{shell(each.source)} {each.outcome} as {each.thread}, with {has}.")
    count = Counter(each.outcome for each in done)
    sealed = SEALED if options.vouch else WOULD_BE_SEALED
    totals = ", ".join(f"{count[each]:,} {each}" for each in (sealed, THERE_ALREADY, REFUSED))
    print(f"{counted(len(done), what)}: {totals}.")
    if waiting := ", ".join(shell(each.source) for each in done if each.waits):
        print(f"These wait for an answer and take it from anyone who resumes them: {waiting}.")
    if options.vouch:
        print(f"Keep the report, {shell(report)}. Keep the originals elsewhere.")
    elif count[WOULD_BE_SEALED]:
        print("Nothing was written. Look at these states: add --vouch if you vouch for them.")
    return int(count[REFUSED] > 0)


def _ends(
    source: str, ledger: Ledger, options: argparse.Namespace
) -> tuple[str, Callable[[Any], _Source], Any]:
    """Return what a file or folder contains, by its content; how to read it; and the target."""
    types = [imported(each, "--type app.models:Invoice") for each in options.type]
    past = options.allow_missing_past
    if is_database(source):
        from safepoint.langgraph import SealedSaver

        saver = SealedSaver(ledger, types=types, app=options.app)
        return "thread", sqlite_saver(source, allow_missing_past=past), saver
    if any(map(_is_workflow, _listed(Path(source)))):
        from safepoint.agent_framework import SealedCheckpointStorage

        storage = SealedCheckpointStorage(ledger, types=types)
        return "workflow", file_storage(source, allow_missing_past=past), storage
    files = state_files(source, types=types, app=options.app)
    return "file", files, with_codec(ledger, Codec(types))


def _is_workflow(path: Path) -> bool:
    with suppress(CheckpointError):  # reading it raises the error later
        said = _json(_content(path))
        return type(said) is dict and {"checkpoint_id", "workflow_name"} <= said.keys()
    return False
