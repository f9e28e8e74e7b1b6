"""SealedSaver: a LangGraph checkpointer on a ledger. Two lines change in an application.

One `thread_id` with all its namespaces is one thread of the ledger, so one head covers subgraphs
and pending writes. A `put` is a state, labelled with the checkpoint's id; a `put_writes` is a note.
The last one in the chain is the newest. A parent is sealed data, so the chain can have forks.

| label | record |
|---|---|
| `c/<id>`, in a subgraph `c/<id>@<hash>` | a checkpoint, with the writes that came before it |
| `w/<id>`, and so on | a task's writes to that checkpoint |
| `d` | the checkpoints that are hidden from now on |
| `spent/` | signed answers; the journal says whether the asking node has used them |
"""

from __future__ import annotations

import asyncio
import builtins
import ipaddress
import re
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, cast
from weakref import finalize, ref

from safepoint.aio import Tenanted, for_one, half_moved, in_thread, remember
from safepoint.core.codec import Codec, Converter
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    NotFound,
    NotOwner,
    ResumeRefused,
    SealBroken,
    ThreadDeleted,
    missing,
    quoted,
)
from safepoint.core.ledger import Ledger, Link, with_codec
from safepoint.core.names import Head, Limits, digest_of, thread_name
from safepoint.core.record import Checkpoint as Record
from safepoint.resume.approval import QUESTION, Answer, Question, Reason, end_of, signable
from safepoint.resume.asking import SPENT, Approved, Asking, check_askable, check_held, check_wait
from safepoint.resume.gate import Gate, ToolSet

try:
    from langchain_core import agents, messages
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.documents import Document
    from langchain_core.messages.base import TextAccessor
    from langchain_core.runnables import RunnableConfig
    from langchain_core.runnables.utils import AddableDict
    from langchain_core.tracers.context import register_configure_hook
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.types import INTERRUPT, _DeltaSnapshot
    from langgraph.config import get_config
    from langgraph.errors import GraphInterrupt
    from langgraph.runtime import ExecutionInfo, RunControl, get_runtime
    from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy, interrupt
    from pydantic import AfterValidator, ValidationError
except ImportError as _missing:
    raise missing("SealedSaver needs the package langgraph.", "langgraph") from _missing

_T = TypeVar("_T")
_Whose = tuple[str, str]  # a tenant and its `thread_id`
_FITS: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_NUMBERED: Final = re.compile(r"~[0-9]+\Z")
_HIDES: Final = "d"
_WROTE: Final = ("task", "path", "writes")
_TRIES: Final = 8
_LOCKS: Final = 256
_PATIENCE: Final = 30.0  # seconds to wait until a task's checkpoint is saved
_IN_LINE: Final = 60.0  # seconds to wait for another run of the thread
_AT_ONCE: Final = 10_000  # nodes that ask, checkpoints not saved yet; of runs ten times as many
_POOL: Final = 8

# --- values

_LANGCHAIN: Final = (
    *(agents.AgentAction, agents.AgentActionMessageLog, agents.AgentFinish, agents.AgentStep),
    *(messages.AIMessage, messages.AIMessageChunk, messages.ChatMessage),
    *(messages.ChatMessageChunk, messages.FunctionMessage, messages.FunctionMessageChunk),
    *(messages.HumanMessage, messages.HumanMessageChunk, messages.RemoveMessage),
    *(messages.SystemMessage, messages.SystemMessageChunk),
    *(messages.ToolMessage, messages.ToolMessageChunk, Document),
)
_ADDRESSES: Final = (
    *(ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network),
    *(ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network),
)


def _by_fields(tag: str, cls: Any) -> Converter:
    """Return a converter that stores a value by its fields, and a message with its extra fields."""
    if issubclass(cls, tuple):
        names = cls._fields
    elif hasattr(cls, "model_fields"):
        names = [name for name in cls.model_fields if name != "type"]  # the class implies it
    else:
        names = cls.__slots__

    def to(value: Any) -> dict[str, Any]:
        more = getattr(value, "model_extra", None) or {}
        return {name: getattr(value, name) for name in names} | more

    return Converter(tag, cls, to, lambda saved: cls(**saved))


class Asked(str):
    """The text of a question. Only `ask` makes one, so no text of a client is taken for it."""

    __slots__ = ()


_CONVERTERS: Final = (
    Converter(QUESTION, Asked, str, Asked),
    *(_by_fields(f"langchain.{cls.__name__}", cls) for cls in _LANGCHAIN),
    Converter("langchain.TextAccessor", TextAccessor, str, TextAccessor),  # a message's `text`
    Converter("langchain.AddableDict", AddableDict, dict, AddableDict),
    *(
        _by_fields(f"langgraph.{cls.__name__.strip('_')}", cls)
        for cls in (Command, Interrupt, Overwrite, Send, TimeoutPolicy, _DeltaSnapshot)
    ),
    *(Converter(f"net.{cls.__name__}", cls, str, cls) for cls in _ADDRESSES),
    Converter("deque", deque, lambda value: [[*value], value.maxlen], lambda saved: deque(*saved)),
)


def _graph_codec(types: Iterable[type] | Mapping[str, type], limits: Limits) -> Codec:
    """Return a codec for LangChain's and LangGraph's own types and yours."""
    tagged = types.items() if isinstance(types, Mapping) else [(cls.__name__, cls) for cls in types]
    rest, more = [], [*_CONVERTERS]
    for tag, cls in tagged:
        named = hasattr(cls, "_fields") or hasattr(cls, "model_fields")
        if named and isinstance(cls, type) and issubclass(cls, (messages.BaseMessage, tuple)):
            more.append(_by_fields(tag, cls))
        else:
            rest.append((tag, cls))
    own = dict(rest) if isinstance(types, Mapping) else [cls for _, cls in rest]
    return Codec(own, converters=more, limits=limits)


# --- runs of this process


class _Run(BaseCallbackHandler):
    """A run of a graph or of a node, as LangChain's callbacks tell it. Each has one of its own.

    LangGraph does not tell a checkpointer when a run ends. Nor does a callback, if one of the
    application raised before it or the event loop is closed; but only callbacks hold a `_Run`, so
    it also ends when Python collects the run.

    Attributes:
        outer: the run that continues in the same context, around this one or left in the middle.
        given: the input.
        control: what a graph's run shares with its subgraphs, once it has joined a line.
        refused: why a save of it was refused.
        leaves: what to call when it ends, once.
        ended: whether it has.
    """

    run_inline = True  # in the task that starts the run
    ignore_chat_model = True

    def __init__(self) -> None:
        self.outer: Callable[[], _Run | None] = _RUN.get()
        self.given: object = None
        self.control: RunControl | None = None
        self.refused: Exception | None = None
        self.leaves: list[finalize[..., _Run]] = []
        self.ended: bool = False

    def on_chain_start(self, *given: Any, **_: Any) -> None:
        self.given = given[1]
        _RUN.set(ref(self))

    def on_chain_end(self, *_: Any, **__: Any) -> None:
        with _LINES_LOCK:
            self.ended = True
            left = [leave() for leave in self.leaves]
        wait(each for each in left if isinstance(each, Future))  # before the run's answer goes out

    on_chain_error = on_chain_end

    def call_at_end(self, call: Callable[..., object], *args: object) -> None:
        self.leaves.append(finalize(self, call, *args))
        self.leaves[-1].atexit = False


class _EachRun:
    """In the place of a ContextVar: gives each run that LangChain configures its own callback."""

    get = staticmethod(_Run)


_RUN: Final = ContextVar["Callable[[], _Run | None]"]("safepoint_run", default=lambda: None)
_LINES_LOCK: Final = threading.RLock()  # a run that is collected in here ends in here
register_configure_hook(cast("ContextVar[Any]", _EachRun), inheritable=False)


class _Lines:
    """The runs of each thread in this process: one continues, others wait for it."""

    def __init__(self) -> None:
        self._lines: dict[_Whose, dict[ref[_Run], Future[None]]] = {}

    def join(
        self, whose: _Whose, control: RunControl | None, leave: Callable[[], object]
    ) -> Future[None]:
        """Put the run of this context in line, and return what is done when it is its turn."""
        run, free = _RUN.get()(), Future[None]()
        free.set_result(None)
        with _LINES_LOCK:
            line = self._lines.get(whose, {})
            if run is None or control is None or run.ended:
                return free
            around: _Run | None = run
            while around:
                at = ref(around)
                if at in line and around.control is control:
                    return line[at] if around is run else free
                line.pop(at, None)  # it was left in the middle: nobody can wait for themselves
                around = around.outer()
            self._lines[whose], run.control = line, control
            turn = line[ref(run)] = Future()
            run.run_inline = False  # its end waits for a lease, and an event loop does not
            run.call_at_end(self._leave, whose, ref(run))
            run.call_at_end(leave)
            self._call(line)
            return turn

    def first(self, whose: _Whose) -> _Run | None:
        """Return the run of a thread that continues."""
        with _LINES_LOCK:
            return next(iter(self._lines.get(whose, ())), lambda: None)()

    def _leave(self, whose: _Whose, run: ref[_Run]) -> None:
        with _LINES_LOCK:
            line = self._lines.get(whose, {})
            line.pop(run, None)
            self._call(line)
            if not line:
                self._lines.pop(whose, None)

    def _call(self, line: dict[ref[_Run], Future[None]]) -> None:
        turn = next(iter(line.values()), None)
        if turn and not turn.done():
            turn.set_result(None)


# --- the walk


class _Label(NamedTuple):
    """A checkpoint of a thread, as its label names it."""

    ident: str
    space: str

    @classmethod
    def of(cls, space: str, ident: str) -> _Label:
        if not _FITS.match(ident):
            ident = digest_of(ident.encode("utf-8", "surrogatepass"))
        hashed = space and digest_of(space.encode("utf-8", "surrogatepass"))
        return cls(ident, hashed.replace("sha256:", "@")[:33])

    @classmethod
    def read(cls, label: str) -> _Label:
        ident, at, space = label[2:].partition("@")
        return cls(ident, at + space)

    def label(self, kind: str) -> str:
        return f"{kind}/{self.ident}{self.space}"


@dataclass
class _Walk:
    """The part of a ledger's thread that was read, back from a verified head.

    Attributes:
        ledger: the ledger.
        ident: its `thread_id`.
        generation: how often that `thread_id` was deleted before.
        high: the last record, or None if there is none.
        state: the sequence of the last state.
        complete: whether the walk has reached the thread's beginning.
        tops: the newest known checkpoint of each namespace.
        writes: the notes with the tasks' writes.
        hidden: the sequence of the note that hid a checkpoint.
        addressed: older checkpoints that a graph asked for by id, to continue from them.
        mine: the checkpoints of this saver. A second beginning after another saver's is a conflict.
        asks: whether a task asked, was answered or failed: the next checkpoint may come late.
        fresh: the last record as the walk has read it, to be handed out once.
    """

    ledger: Ledger
    ident: str
    generation: int = 0
    high: Head | None = None
    state: int = 0
    complete: bool = False
    checkpoints: dict[_Label, Head] = field(default_factory=dict)
    tops: dict[str, _Label] = field(default_factory=dict)
    writes: dict[_Label, set[Head]] = field(default_factory=lambda: defaultdict(set))
    hidden: dict[_Label, int] = field(default_factory=dict)
    addressed: set[_Label] = field(default_factory=set)
    mine: set[_Label] = field(default_factory=set)
    asks: dict[_Label, bool] = field(default_factory=dict)
    fresh: dict[Head, Link] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """Its name in the ledger."""
        return _name(self.ident, self.generation)

    def walk(self, wanted: _Wanted | None = None) -> _Walk:
        """Verify the end of the thread, read back from there, and return the thread.

        Args:
            wanted: the walk stops when this is true. None walks to the beginning.
        """
        known, top, joined, self.fresh = self.high, None, self.high is None, {}
        self.complete &= not joined
        try:
            for link in self.ledger.back(self.name):
                here = link.opened.head
                if top is None and here != known:
                    self.check(link.state)
                top, self.fresh = top or here, self.fresh or {here: link}
                if known and not joined and here.sequence <= known.sequence:
                    if here != known:  # an operator accepted a loss: another history
                        return _Walk(self.ledger, self.ident, self.generation).walk(wanted)
                    joined = True
                self._take(link)
                if joined and (self.complete or (wanted and wanted(self))):
                    break
            else:
                self.complete = True
        except ThreadDeleted:  # a signed tombstone says so
            return _Walk(self.ledger, self.ident, self.generation + 1).walk(wanted)
        except NotFound:
            if known:
                raise
            self.complete = True
        self.high = top
        return self

    def check(self, value: Any) -> None:
        """Refuse a record of another thread, or one that no saver wrote."""
        if type(value) is not dict or value.get("thread") != self.ident:
            raise SealBroken(
                f"The record does not belong to the LangGraph thread {quoted(self.ident)}.",
                "Give each adapter, and each workflow, a store of its own.",
            )

    def find(self, key: _Label | None) -> tuple[Record, list[Record]] | None:
        """Return a checkpoint that the walk has seen, and the tasks' later writes."""
        at = self.checkpoints.get(key) if key else None
        if key is None or at is None:
            return None
        wrote = sorted(each for each in self.writes[key] if each > at)
        own, *notes = [
            fresh.checkpoint if fresh else self.ledger.load(self.name, each)
            for each in (at, *wrote)
            for fresh in [self.fresh.pop(each, None)]
        ]
        for record in (own, *notes):
            self.check(record.state)
        self.asks[key] = _asks([*own.state["early"], *(note.state for note in notes)])
        return own, notes

    def add(self, saved: Record) -> _Walk:
        """Add the saved record, and records that others saved before it."""
        if saved.previous != (self.high and self.high.digest):
            return self.walk(lambda _: True)
        self._take(saved)
        self.high, self.fresh = Head(saved.sequence, saved.digest), {}
        return self

    def _take(self, record: Link | Record) -> None:
        """Add a record, in any order and any number of times."""
        at = Head(record.sequence, record.digest)
        if record.kind == "state":
            self.state = max(self.state, at.sequence)
        if record.label == _HIDES:
            for label in record.state["hidden"]:
                self._hide(_Label.read(label), at.sequence)
        elif record.label[:2] in ("c/", "w/"):
            key = _Label.read(record.label)
            if self.hidden.get(key, 0) > at.sequence:
                return
            if record.kind == "note":
                if at not in self.writes[key]:
                    self.asks.pop(key, None)
                self.writes[key].add(at)
            elif key not in self.checkpoints or self.checkpoints[key] < at:
                self.checkpoints[key] = at
                self._rank(key)

    def _hide(self, key: _Label, sequence: int) -> None:
        self.hidden[key] = max(sequence, self.hidden.get(key, 0))
        self.writes[key] = {each for each in self.writes[key] if each.sequence > sequence}
        if key in self.checkpoints and self.checkpoints[key].sequence < sequence:
            del self.checkpoints[key]
            if self.tops[key.space] == key:
                del self.tops[key.space]
                for other in self.checkpoints:
                    self._rank(other)

    def _rank(self, key: _Label) -> None:
        top = self.tops.get(key.space, key)
        self.tops[key.space] = max(top, key, key=self.checkpoints.__getitem__)


_Wanted = Callable[[_Walk], object]


def _name(thread: str, generation: int) -> str:
    """Return the ledger's name for a `thread_id` that was deleted so many times."""
    if generation or _NUMBERED.search(thread):
        thread = f"{thread}~{generation}"
    return thread_name(thread)


class _Address(NamedTuple):
    """The thread, namespace and checkpoint that a LangGraph config names."""

    thread: str
    space: str
    ident: str | None

    @classmethod
    def of(cls, config: RunnableConfig) -> _Address:
        named = config["configurable"]
        if named.get("thread_id") is None:
            raise ConfigurationError("The thread_id is None.", "Name the thread of this request.")
        space, ident = (named.get(name) for name in ("checkpoint_ns", "checkpoint_id"))
        return cls(str(named["thread_id"]), str(space or ""), None if ident is None else str(ident))

    def config(self, ident: str) -> RunnableConfig:
        named = {"thread_id": self.thread, "checkpoint_ns": self.space, "checkpoint_id": ident}
        return {"configurable": named}


class SealedSaver(Tenanted, BaseCheckpointSaver[int]):
    """A checkpointer that seals and chains every record and, with an anchor, anchors the head.

    ```python
    from typing import TypedDict

    from langgraph.graph import START, StateGraph

    from safepoint import open_ledger
    from safepoint.langgraph import SealedSaver


    class Order(TypedDict):
        amount: int


    builder = StateGraph(Order)
    builder.add_node("double", lambda order: {"amount": 2 * order["amount"]})
    builder.add_edge(START, "double")
    graph = builder.compile(checkpointer=SealedSaver(open_ledger("invoices")))
    run = {"configurable": {"thread_id": "Order #7"}}
    print(graph.invoke({"amount": 21}, run))
    #> {'amount': 42}
    ```

    When `put` returns, the checkpoint is durable, and so are the writes that came before it. Writes
    that come before their checkpoint wait for it in memory and are sealed in its record.

    Args:
        ledger: the ledger. Of its codec, only the limits are used.
        types: your classes in the state: dataclasses, Enums, pydantic models, named tuples,
            messages. Saving an unlisted type is refused.
        app: a name and a version. It is sealed. A graph does not get another app's checkpoint.
        tools: the current tool set. It is sealed and checked in the same way.
        resumes: names of other apps, and digests of other tool sets, whose checkpoints this app may
            resume; "" for checkpoints without a name or tools.
        time_travel: return a checkpoint that is not the newest if a graph asks for it by id.
        gate: who may answer when a node calls `ask`.
        busy: what happens to a request for a thread of which this process runs another one already.
            "refuse" raises Conflict before a task runs: only your application knows whether a
            second request repeats the first, and waiting would do it twice. "wait" runs one after
            the other, in the order in which they came, and refuses after a minute.
        tenant: returns the tenant whose request is being served, such as the `get` of a ContextVar
            that you set where you authenticate requests. Each operation calls it and sees only that
            tenant's threads. A config, which a client may control, cannot choose a tenant.

    Raises:
        ConfigurationError: a type could not be restored faithfully, or two have one name; or there
            is a `tenant`, and the ledger is of one already.
        Unsafe: an approver's key is on the keyring of the ledger.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        types: Iterable[type] | Mapping[str, type] = (),
        app: str = "",
        tools: ToolSet | None = None,
        resumes: Iterable[str] = (),
        time_travel: bool = False,
        gate: Gate | None = None,
        busy: Literal["refuse", "wait"] = "refuse",
        tenant: Callable[[], str] | None = None,
    ) -> None:
        if not hasattr(ledger, "codec"):
            raise ConfigurationError("It is not a ledger.", 'Write SealedSaver(open_ledger("x")).')
        BaseCheckpointSaver.__init__(self)
        codec = _graph_codec(types, ledger.codec.limits)
        Tenanted.__init__(self, with_codec(ledger, codec), tenant)
        self.app: Final = app
        self.tools: Final = None if tools is None else tools.digest
        self.resumes: Final = frozenset([resumes] if isinstance(resumes, str) else resumes)
        self.time_travel: Final = time_travel
        self.gate: Final = gate or Gate()
        self.gate.check_apart(ledger.keys)
        self._in_line: Final = _IN_LINE if busy == "wait" else 0.0
        self._reads_only = False
        # The tenant of each run. It is not in the config, which LangGraph gives to stream readers.
        self._runs: Final[dict[int, tuple[RunControl, SealedSaver]]] = {}
        # Also by tenant, because tenants may have threads with the same id.
        self._early: Final[dict[tuple[_Whose, _Label], builtins.list[dict[str, Any]]]] = {}
        self._threads: dict[_Whose, _Walk] = {}
        self._lines: Final = _Lines()
        self._asked: Final[dict[int, tuple[ExecutionInfo, Counter[str]]]] = {}
        # A separate pool: a call that waits for a checkpoint must not block the thread that saves.
        self._pool: Final = ThreadPoolExecutor(_POOL, thread_name_prefix="safepoint")
        self._locks: Final = [threading.RLock() for _ in range(_LOCKS)]
        self._guard: Final = threading.Lock()

    def reading(self) -> SealedSaver:
        """Return a read-only saver that serves the checkpoints of all apps, tool sets and ids.

        Compile a graph with it to call `get_state` and `get_state_history` for the past.
        """
        reader = copy(self)
        reader._reads_only = True  # noqa: SLF001 - the same class
        return reader

    # --- threads and tenants

    def _thread(self, ident: str, wanted: _Wanted | None = None) -> _Walk:
        """Return a thread whose end was verified, as `_Walk.walk` does."""
        whose = self._whose(ident)
        known = (self._threads.get(whose) or _Walk(self.ledger, ident)).walk(wanted)
        with self._guard:
            return remember(self._threads, whose, known)

    def _whose(self, thread: str) -> _Whose:
        return self.ledger.tenant_name, thread

    def _begin(self, config: RunnableConfig) -> None:
        """Bind a run to the tenant for which it first reads a checkpoint, for `_of_run`."""
        control = _control(config)
        if self.ledger.tenant_name and control is not None:
            with self._guard:
                _, began = self._runs.get(id(control), (control, self))
                remember(self._runs, id(control), (control, began), 10 * _AT_ONCE)
            if began.ledger.tenant_name != self.ledger.tenant_name:
                raise ConfigurationError(
                    "The graph around this one began for another tenant.",
                    "Read a stream to its end in the request that began it, and call no graph for"
                    " another tenant in a node.",
                )

    def _of_run(self, config: RunnableConfig) -> SealedSaver:
        """Return this saver for the tenant of a run, without calling `tenant` again.

        LangGraph writes from callbacks that have no context, and when a stream is closed, possibly
        while another tenant's request is served.
        """
        control = _control(config)
        if self._tenant is None or control is None:
            return self._scoped()
        with self._guard:
            if id(control) not in self._runs:
                raise ConfigurationError(
                    "A run is to be saved, and this saver does not know which tenant it began for.",
                    "Nothing was saved. Invoke the graph again, in the request that it is for.",
                )
            return remember(self._runs, id(control), self._runs[id(control)], 10 * _AT_ONCE)[1]

    @contextmanager
    def _lock(self, thread: str) -> Iterator[None]:
        """Hold the lock of a thread, because LangGraph calls `put` from several OS threads.

        If the ledger has a worker's name, let go of the lease unless a run of the thread continues.
        """
        with self._locks[hash(thread) % _LOCKS]:
            try:
                yield
            finally:
                at, owners = self._whose(thread), self.ledger.owners
                if owners.worker is not None and not self._lines.first(at):
                    known = self._threads.get(at)
                    owners.release(known.name if known else _name(thread, 0))

    def _let_go(self, thread: str) -> None:
        with self._lock(thread):
            pass

    # --- write

    @contextmanager
    def _writing(self, thread: str, control: RunControl | None) -> Iterator[None]:
        """Hold the lock of a thread; a run that was refused once is refused until it ends.

        LangGraph drops the error of a subgraph's save if that subgraph asks a person, and would
        continue without the save. The next write is the parent graph's, which gets the error.
        """
        self._refuse_reader()
        with self._lock(thread):
            self._check_run(thread, control)
            try:
                yield
            except Exception as error:
                if control and (run := self._lines.first(self._whose(thread))):
                    run.refused = error
                raise

    def _check_run(self, thread: str, control: RunControl | None) -> None:
        run = self._lines.first(self._whose(thread))
        if run and control and run.control is not control:
            raise _busy(thread, "has taken over, and tasks of this one may have run")
        if run and control and run.refused:
            raise run.refused

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002  each record holds all channels
    ) -> RunnableConfig:
        """Seal a checkpoint with the writes that came before it.

        Raises:
            Conflict: its parent is not the newest checkpoint of its namespace, because another
                worker continued from there, and it is neither a fork nor an update.
            EncodeError: it contains an unlisted type. The message says where.
            CheckpointError: `Ledger.save` refuses.

        If an operator holds the thread, the checkpoint is saved and LangGraph drains the run.
        """
        return self._of_run(config)._put(config, checkpoint, metadata)  # noqa: SLF001

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> RunnableConfig:
        place = _Address.of(config)
        key = _Label.of(place.space, checkpoint["id"])
        parent = _Label.of(place.space, place.ident) if place.ident else None
        value = _value(place, checkpoint, get_checkpoint_metadata(config, metadata))
        control = _control(config)
        if control is None:  # somebody updates the state
            self._check_free(place.thread)
        with self._writing(place.thread, control):
            thread = self._known(place.thread, key)
            early = self._early.pop((self._whose(place.thread), key), [])
            if before := thread.find(key):  # keep its writes
                record, notes = before
                wrote = [{each: note.state[each] for each in _WROTE} for note in notes]
                early = [*record.state["early"], *wrote, *early]
            value["early"] = early
            for left in reversed(range(_TRIES)):
                newest = thread.tops.get(key.space)
                own = newest in thread.mine and (key.space or control is None)
                begins = not parent and (own or (key.space and self.time_travel))
                branches = begins or metadata.get("source") in ("fork", "update")
                if not (branches or parent in thread.addressed or newest in (parent, key)):
                    raise _busy(place.thread, "continued first, and tasks of this one may have run")
                how: Any = {"app": self.app, "tools": self.tools, "after": thread.state}
                try:
                    saved = self.ledger.save(thread.name, value, label=key.label("c"), **how)
                    break
                except Conflict:
                    if not left:
                        raise
                    thread = self._thread(place.thread, lambda known: known.tops.get(key.space))
            thread = thread.add(saved)
            thread.mine.add(key)
            thread.asks[key] = _asks(early)
        try:
            self._check_free(place.thread, thread.name)
        except NotOwner as error:
            # It is saved. LangGraph saves while it runs the next step, so it is told to end before
            # another one, and to save what this one does; what a save raises would lose that.
            if control is None:
                raise
            control.request_drain(str(error))
        return place.config(checkpoint["id"])

    def _refuse_reader(self) -> None:
        if self._reads_only:
            raise ConfigurationError(
                "This saver is for reading, and writes nothing.",
                "Compile the graph with the saver that you called reading() of.",
            )

    def _check_free(self, thread: str, name: str = "") -> None:
        """Refuse if an operator holds the thread, as `check_held` does, or if this is a reader.

        Operators hold a thread by its id. If a deleted id is used again, both names are checked.
        """
        self._refuse_reader()
        if self.gate.operators.keys:
            with self._lock(thread):
                name = name or self._thread(thread, lambda _: True).name
                for each in dict.fromkeys((name, _name(thread, 0))):
                    check_held(self.gate, self.ledger, each)

    def _known(self, ident: str, key: _Label) -> _Walk:
        """Return a thread of which the newest checkpoint of a namespace is known."""
        thread = self._threads.get(self._whose(ident))
        if thread and (thread.complete or thread.tops.get(key.space)):
            return thread
        return self._thread(ident, lambda known: known.tops.get(key.space))

    def _seek(self, ident: str, key: _Label, control: RunControl | None = None) -> _Walk:
        """Return a thread after looking for a checkpoint in it."""
        thread = self._known(ident, key)
        newest = thread.tops.get(key.space)
        # LangGraph's ids grow, so an id above the newest is new. Hashed ids, with a colon, do not.
        grown = newest and ":" not in newest.ident + key.ident and key.ident > newest.ident
        # A run has read its checkpoint here, or is about to save it here.
        if key in thread.checkpoints or (control and (grown or not newest)):
            return thread
        return self._thread(ident, lambda known: grown or key in known.checkpoints)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Seal a task's writes for the checkpoint that it ran from.

        If that checkpoint is not saved yet, the writes wait for its `put`. Questions, answers and
        errors are anchored immediately, with later writes, because the run may wait there. Other
        writes are anchored with the next checkpoint.

        Raises:
            EncodeError: as for `put`.
        """
        self._of_run(config)._put_writes(config, writes, task_id, task_path)  # noqa: SLF001

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, path: str
    ) -> None:
        place = _Address.of(config)
        control = _control(config)
        if control is None:
            self._check_free(place.thread)
        ident = place.ident or ""
        key = _Label.of(place.space, ident)
        rows = [
            [WRITES_IDX_MAP.get(channel, number), channel, _plain(value)]
            for number, (channel, value) in enumerate(writes)
        ]
        made = {"task": task_id, "path": path, "writes": rows}
        with self._writing(place.thread, control):
            self.ledger.codec.encode({channel: value for _, channel, value in rows})  # names it
            thread = self._seek(place.thread, key, control)
            if key not in thread.checkpoints:
                at = self._whose(place.thread), key
                with self._guard:  # a run that was given up never saves its checkpoint
                    remember(self._early, at, [*self._early.get(at, []), made], _AT_ONCE)
                return
            if key not in thread.asks:
                thread.find(key)
            asks = thread.asks[key] or _asks([made])
            value = {"thread": place.thread, "ns": place.space, "id": ident, **made}
            how: Any = {"label": key.label("w"), "rides_along": not asks}
            thread.add(self.ledger.note(thread.name, value, **how)).asks[key] = asks

    # --- ask people

    def ask(
        self, action: str, arguments: Mapping[str, Any], *, within: timedelta | None = None
    ) -> Approved:
        """Ask people in the node that acts, and return what they approved.

        The graph stops as with `interrupt`. Its value is the question's `text`. Resume it with
        `Command(resume=text)`, where `text` is the result of `Approver.approve`, or with a list of
        such texts. When this returns, the answer is spent: sealed and anchored. If the node runs
        again after a crash, it gets the same arguments and the same key.

        Act in this node, with the returned arguments: a caller of the graph can skip a separate
        node that asks. Build the arguments only from the state: with a clock or a random number,
        the node would ask another question when it runs again and no answer would match.

        Args:
            action: what will be done, as one word.
            arguments: a few plain values for the action.
            within: how long people may take, from the checkpoint on that the node runs from. After
                that anyone who resumes the graph gets ResumeRefused.

        Raises:
            ResumeRefused: somebody said no, or the wait has ended. Catch it, if the graph continues
                without.
            NotOwner: an operator holds the thread.
            ApprovalNeeded: more people have to approve it.
            ApprovalRefused: the answer does not count. The graph still waits for one that does.
            ConfigurationError: nobody may approve, or nothing is written down; or the graph does
                not save its checkpoints here as it goes.
        """
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise ConfigurationError(
                "ask would stop the event loop, which has to save the checkpoint first.",
                "In an async node write await saver.aask(...). If the node is not, invoke the graph"
                " in a thread of its own.",
            )
        return self._ask(_task(), action, arguments, within)

    async def aask(
        self, action: str, arguments: Mapping[str, Any], *, within: timedelta | None = None
    ) -> Approved:
        """Do what `ask` does, in an async node."""
        return await asyncio.to_thread(self._ask, _task(), action, arguments, within)

    @for_one
    def _ask(self, info: ExecutionInfo, *asked: Any) -> Approved:
        asking = self._ask_at(info, *asked)
        refused = list[CheckpointError]()

        def spend(signed: object) -> tuple[Answer, ...]:
            try:
                return asking.spend(signed)
            except CheckpointError as error:
                refused.append(error)
                raise ValueError from None

        # LangGraph keeps an answer for good unless it does not match the schema. One that it keeps
        # may be to a question of another version, so a newer one is looked for behind it.
        schema: Any = Annotated[Any, AfterValidator(spend)]
        while True:
            try:
                return asking.check_approved(
                    interrupt(Asked(asking.question.text), response_schema=schema)
                )
            except ValidationError as error:
                for name, mark in vars(error).items():  # that the answer was wrong
                    setattr(refused[-1], name, mark)
            except GraphInterrupt:
                waits = asking.question
                if refused and not self._waits_plainly(info):
                    raise refused[-1] from None
                self.ledger.log.write("pause", "done", waits.thread, waits.checkpoint, waits.action)
                raise

    @for_one
    def waiting(self, thread_id: str) -> builtins.list[tuple[Question, bool]]:
        """Return what a thread asks people, and whether its answer is there. It writes nothing.

        An answer is there if `Command(resume="")` would continue: enough people have put an
        approval where the gate looks, or one has put a denial; or the wait has ended; or an answer
        was used, and the node died.
        """
        found = self.reading().get_tuple({"configurable": {"thread_id": thread_id}})
        return [(each.question, each.has_answer()) for each in self._asked_in(found)]

    def _asked_in(self, found: CheckpointTuple | None) -> builtins.list[Asking]:
        """Return the open questions of a checkpoint."""
        texts = [each for each in _interrupts(found) if type(each) is Asked]
        questions = map(Question.from_text, texts)
        return [Asking(self.ledger, self.gate, each, lambda _: False) for each in questions]

    def _waits_plainly(self, info: ExecutionInfo) -> bool:
        """Tell whether a run waited where nobody signs, as one does that was moved in."""
        at = get_config()["configurable"].get("checkpoint_map", {}).get("")
        config = {"configurable": {"thread_id": info.thread_id, "checkpoint_id": at}}
        found = self.reading().get_tuple(cast("RunnableConfig", config))
        return any(type(each) is not Asked for each in _interrupts(found))

    def _ask_at(
        self,
        info: ExecutionInfo,
        action: str,
        arguments: Mapping[str, Any],
        within: timedelta | None,
    ) -> Asking:
        """Return a question that is the same each time this task asks, built from sealed data."""
        check_askable(self.gate, self.ledger, "A node")
        check_wait(within)
        thread = str(info.thread_id)
        ran = get_config()["configurable"].get("checkpoint_map", {})
        ours = {_Label.of(space, ident) for space, ident in ran.items()}
        name, at = self._await(thread, ours)
        self._check_free(thread, name)
        question = Question(
            store=self.ledger.store,
            tenant=self.ledger.tenant_name,
            thread=name,
            checkpoint=at,
            head=at,
            app=self.app,
            tools=self.tools or ToolSet().digest,
            reasons=(Reason.ASKED.value,),
            action=action,
            arguments=signable(action, {**arguments}),
            next=info.checkpoint_ns.rpartition("|")[2].partition(":")[0],
            scope=info.checkpoint_ns,
            until=end_of(self.ledger.load(name, at).created, within) if within else "",
        )
        with self._guard:  # asking the same twice in a node makes two questions
            counted = self._asked.get(id(info), (info, Counter[str]()))
            _, asked = remember(self._asked, id(info), counted, _AT_ONCE)
            text = digest_of(question.text.encode())
            number = asked[text]
            asked[text] += 1
        question = replace(question, scope=f"{question.scope}#{number}")

        spaces = {_Label.of(space, "").space for space in _around(info)}

        def is_over(link: Link) -> bool:
            """Tell whether this graph or its parent graph continued from another checkpoint."""
            key = _Label.read(link.label)
            return link.kind == "state" and key.space in spaces and key not in ours

        return Asking(self.ledger, self.gate, question, is_over, {"thread": thread})

    def _await(self, thread: str, ours: set[_Label]) -> tuple[str, Head]:
        """Wait until checkpoints are saved, as LangGraph does not, and return the newest's place.

        A subgraph's may be saved before that of the graph around it. A `@task` has none of its own,
        and is named with that of its entrypoint.
        """
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with self._lock(thread):
                for key in ours:
                    known = self._seek(thread, key)
                found = known.checkpoints.keys() & ours
                if {key.ident for key in found} == {key.ident for key in ours}:
                    return known.name, max(known.checkpoints[key] for key in found)
                self._check_run(thread, _control(get_config()))
            time.sleep(0.005)
        raise ConfigurationError(
            f"The checkpoint that this node runs from was not saved in {_PATIENCE:.0f} seconds.",
            "Compile the graph with this very saver, and its subgraphs without"
            ' checkpointer=False; and do not run it with durability="exit".',
        )

    # --- read

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the next version of a channel. Another saver may have counted in text."""
        if not isinstance(current, str):
            return super().get_next_version(current, channel)
        return f"{int(current.partition('.')[0]) + 1:032}"

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes: the newest, or the one with the given id.

        If the ledger has a worker's name, a run takes the lease here, before its first task, and
        lets go of it when it ends.

        Raises:
            Conflict: another run of the thread continues in this process; its kind is "busy".
            ResumeRefused: it is of another app, of other tools, or not the newest.
            NotOwner: another worker holds the thread; or an operator does, and a graph is to go
                on with it.
            CheckpointError: the thread does not verify.
        """
        turn = self._join(config)
        with suppress(TimeoutError):
            turn.result(self._in_line)
        return self._found(turn, config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Do what `get_tuple` does, in threads."""
        turn = await self._aside(partial(self._join, config))
        if not turn.done():  # a cancelled request leaves the line when its run ends
            await asyncio.wait([asyncio.wrap_future(turn)], timeout=self._in_line)
        return await self._aside(partial(self._found, turn, config))

    @for_one
    def _join(self, config: RunnableConfig) -> Future[None]:
        """Return what is done once no other run of the thread continues in this process."""
        place, control = _Address.of(config), _control(config)
        if place.space or control is None or self._reads_only:
            control = None
        leave = partial(self._pool.submit, self._let_go, place.thread)
        return self._lines.join(self._whose(place.thread), control, leave)

    @for_one
    def _found(self, turn: Future[None], config: RunnableConfig) -> CheckpointTuple | None:
        place = _Address.of(config)
        if not turn.done():
            raise _busy(place.thread, "is still running")
        self._begin(config)
        given = self._input(config)
        key = _Label.of(place.space, place.ident) if place.ident else None
        space = _Label.of(place.space, "").space

        def wanted(known: _Walk) -> object:
            return key in known.checkpoints if key else known.tops.get(space)

        with self._lock(place.thread):
            if _control(config) is not None:  # before a task runs, not after it
                self._check_free(place.thread)
                if (owners := self.ledger.owners).worker is not None:
                    name = self._thread(place.thread, lambda _: True).name
                    try:
                        owners.keep(name)
                    except NotOwner:  # the lease of a run before, which ended or was overtaken
                        owners.release(name)
                        owners.keep(name)
            thread = self._thread(place.thread, wanted)
            newest = thread.tops.get(space)
            found = thread.find(key or newest)
            if found is None:
                return None
            own, notes = found
            if not self._reads_only:
                if thread.high and thread.high.sequence - own.sequence < own.state.get("left", 0):
                    raise half_moved(thread.name)
                self._admit(own, newest == _Label.read(own.label))
                if key and key != newest:
                    thread.addressed.add(key)
            shown = self._tuple(place, own, notes)
            for asking in self._asked_in(shown) if given == Command(resume="") else ():
                asking.check_answered()  # or it would be saved that nobody has answered
            return shown

    def _input(self, config: RunnableConfig) -> object:
        """Return what a run that begins was given, if it can be saved: its tasks run before it is.

        Raises:
            EncodeError: it contains an unlisted type.
        """
        run, control = _RUN.get()(), _control(config)
        if run is None or control is None or run.control is not control:
            return None
        self.ledger.codec.encode(run.given)
        return run.given

    @for_one
    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what was written to each `DeltaChannel` since its last snapshot, oldest first.

        The first call for a thread walks it to its beginning, once per process.

        Raises:
            NotFound: a checkpoint that this needs was hidden or pruned.
            CheckpointError: the thread does not verify.
        """
        place = _Address.of(config)
        history: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
        with self._lock(place.thread):
            thread = self._thread(place.thread)
            for own, notes in self._since(thread, place, {*channels}):
                shown = self._tuple(place, own, notes)
                for name, entry in history.items():
                    if "seed" not in entry:
                        wrote = [row for row in shown.pending_writes or () if row[1] == name]
                        entry["writes"] = [*wrote, *entry["writes"]]
                        if name in shown.checkpoint["channel_values"]:
                            entry["seed"] = shown.checkpoint["channel_values"][name]
        return history

    def _since(
        self, thread: _Walk, place: _Address, channels: set[str]
    ) -> Iterator[tuple[Record, builtins.list[Record]]]:
        """Yield the checkpoints before one, newest first, until each channel has had a value."""
        found = thread.find(_Label.of(place.space, place.ident or ""))
        while channels and found and (parent := found[0].state["parent"]):
            found = thread.find(_Label.of(place.space, parent))
            if found is None:
                raise NotFound(
                    f"A DeltaChannel of {thread.name} needs earlier checkpoints, and some were"
                    " hidden or pruned.",
                    "Continue from another checkpoint, or restore a copy.",
                )
            yield found
            channels = channels - found[0].state["checkpoint"]["channel_values"].keys()

    def _admit(self, record: Record, newest: bool) -> None:
        """Refuse a checkpoint that a graph must not resume by accident: tasks run before `put`."""
        if not newest and not self.time_travel:
            why, when = "is not the newest of its namespace", "To continue from it"
            option = "time_travel=True"
        elif record.app not in (self.app, *self.resumes):
            why = f"is of the app {quoted(record.app)}, and this is {quoted(self.app)}"
            when, option = "If this app can continue from it", f"resumes=[{quoted(record.app)}]"
        elif record.tools != self.tools and (record.tools or "") not in self.resumes:
            why = f"was written with {'other' if record.tools else 'no'} tools"
            when, option = "If a person approved the change", f"resumes=['{record.tools or ''}']"
        else:
            return
        raise ResumeRefused(
            f"The checkpoint of {record.thread} {why}.",
            f"To look at it, use reading(). {when}, write SealedSaver(..., {option}).",
        )

    @staticmethod
    def _tuple(place: _Address, own: Record, notes: Iterable[Record]) -> CheckpointTuple:
        saved = own.state
        rows: dict[tuple[str, int], tuple[str, str, int, str, Any]] = {}
        for each in (*saved["early"], *(note.state for note in notes)):
            for number, channel, value in each["writes"]:
                # The first write to a channel counts, but the last question, answer or error.
                if number < 0 or (each["task"], number) not in rows:
                    rows[each["task"], number] = each["path"], each["task"], number, channel, value
        ordered = sorted(rows.values(), key=lambda row: row[:3])  # the order of its tasks
        place = place._replace(space=saved["ns"])
        return CheckpointTuple(
            place.config(saved["id"]),
            saved["checkpoint"],
            saved["metadata"],
            place.config(saved["parent"]) if saved["parent"] else None,
            [(task, channel, value) for _, task, _, channel, value in ordered],
        )

    @for_one
    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  as LangGraph names it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first, for inspection. It walks the whole thread.

        LangGraph also uses it to find the checkpoint from which a subgraph continues in time
        travel. That call is checked like `get_tuple`.
        """
        named = (config or {}).get("configurable", {})
        goes_on = before and limit == 1 and named.get("checkpoint_ns") and not self._reads_only
        older = (before or {}).get("configurable", {}).get("checkpoint_id")
        for ident in [str(named["thread_id"])] if config else self._idents():
            with self._lock(ident):
                thread = self._thread(ident)
                keys = sorted(thread.checkpoints, key=thread.checkpoints.__getitem__, reverse=True)
            for key in keys:
                if limit is not None and limit <= 0:
                    return
                found = thread.find(key)
                if found is None:
                    continue
                shown = self._tuple(_Address(ident, "", None), *found)
                at = shown.checkpoint["id"]
                if (
                    named.get("checkpoint_ns", found[0].state["ns"]) != found[0].state["ns"]
                    or (named.get("checkpoint_id") or at) != at
                    or (older and at >= older)
                    or any(shown.metadata.get(k) != v for k, v in (filter or {}).items())
                ):
                    continue
                if goes_on:
                    self._admit(found[0], key == thread.tops.get(key.space))
                    thread.addressed.add(key)
                limit = None if limit is None else limit - 1
                yield shown

    def _idents(self) -> builtins.list[str]:
        """Return each `thread_id` that is not deleted. Only the record has a long one in full."""
        found = set[str]()
        for name in self.ledger.threads():
            with suppress(NotFound):
                value = self.ledger.latest(name).state
                if type(value) is dict and "thread" in value:
                    found.add(value["thread"])
        return sorted(found)

    @for_one
    def unsigned(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        parent: str | None,
        early: builtins.list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Return another saver's checkpoint in this saver's format, as fields of an `Unsigned`."""
        place = _Address.of(config)._replace(ident=parent)
        state = {**_value(place, checkpoint, metadata), "early": early}
        name = self._thread(place.thread, lambda _: True).name
        label = _Label.of(place.space, checkpoint["id"]).label("c")
        return {"thread": name, "state": state, "label": label}

    # --- forget

    @for_one
    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread and erase its records. Only a signed tombstone stays.

        The id can be used again, for a new thread. A backup may still contain the old one. After an
        interruption, call it again to finish.

        Raises:
            NotOwner: an operator holds the thread.
            Unavailable: this login may not erase. The thread is deleted.
        """
        thread = str(thread_id)
        with self._lock(thread):
            self._check_free(thread)
            known = self._thread(thread, lambda _: True)
            self._threads.pop(self._whose(thread), None)
            if known.high:
                self.ledger.delete(known.name)
            last = known.generation + bool(known.high)
            for number in range(max(last - 2, 0), last):  # the one before may be unfinished
                self.ledger.erase(_name(thread, number))

    @for_one
    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Hide the checkpoints of runs with a sealed note. They stay readable in the chain.

        `prune` erases them once nothing older is kept; `delete_thread` also erases them.

        Raises:
            NotOwner: an operator holds a thread of theirs, which is as it was.
        """
        self._refuse_reader()
        for thread in self._idents() if run_ids else ():
            gone = [
                _Label.of(shown.config["configurable"]["checkpoint_ns"], shown.checkpoint["id"])
                for shown in self.list({"configurable": {"thread_id": thread}})
                if shown.metadata.get("run_id") in run_ids
            ]
            self._hide(thread, gone)

    def _hide(self, thread: str, keys: Sequence[_Label]) -> None:
        with self._lock(thread):
            if keys:
                self._check_free(thread)
                known, hidden = self._thread(thread), [key.label("c") for key in keys]
                value = {"thread": thread, "hidden": hidden}
                known.add(self.ledger.note(known.name, value, label=_HIDES))

    @for_one
    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread to another id, with new seals for all checkpoints and writes.

        Raises:
            NotOwner: an operator holds the thread.
            Conflict: there is a thread of that id.
        """
        source, target = str(source_thread_id), str(target_thread_id)
        first, second = sorted([source, target], key=lambda thread: hash(thread) % _LOCKS)
        with self._lock(first), self._lock(second):
            self._check_free(source)
            known, name = self._thread(source), self._thread(target, lambda _: True).name
            self._threads.pop(self._whose(target), None)
            links = [*self.ledger.back(known.name)] if known.high else []
            for number, link in enumerate(reversed(links)):
                known.check(link.state)
                value = {**link.state, "thread": target}
                if link.kind != "note":
                    # After 0: the target must not exist.
                    app, tools, at = link.header.app, link.header.tools, None if number else 0
                    self.ledger.save(name, value, label=link.label, app=app, tools=tools, after=at)
                elif link.label != SPENT:  # which is about the source alone
                    self.ledger.note(name, value, label=link.label)

    @for_one
    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace; with `"delete"`, keep none.

        Records older than all kept ones are erased. Checkpoints between kept ones are hidden by a
        sealed note, and a later `prune` erases them.

        Raises:
            NotOwner: an operator holds a thread. It is as it was, and so are those after it.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ConfigurationError(
                f"{quoted(strategy)} is not a way to prune.", 'Write "keep_latest" or "delete".'
            )
        for thread in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread)
                continue
            with self._lock(thread):
                self._check_free(thread)
                known = self._thread(thread)
                keep = {*known.tops.values()}
                if not keep:
                    continue
                for key in [*keep]:  # and those that hold the rest of its delta channels
                    own = known.find(key)[0].state  # type: ignore[index]  # it is the newest
                    spread = {*own["metadata"].get("counters_since_delta_snapshot", ())}
                    place = _Address(thread, own["ns"], own["id"])
                    older = self._since(known, place, spread)
                    keep |= {_Label.read(record.label) for record, _ in older}
                oldest = min(known.checkpoints[key].sequence for key in keep)
                between = {key for key, at in known.checkpoints.items() if at.sequence > oldest}
                self._hide(thread, [*between - keep])
                self.ledger.prune(known.name, keep=1, since=oldest)
                self._threads.pop(self._whose(thread), None)

    # --- from an event loop

    async def _aside(self, call: Callable[[], _T]) -> _T:
        """Call it in this saver's thread pool, in the context of the request."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, copy_context().run, call)

    async def alist(
        self, config: RunnableConfig | None, **how: Any
    ) -> AsyncIterator[CheckpointTuple]:
        """Do what `list` does, in threads."""
        found = self.list(config, **how)
        while (each := await self._aside(partial(next, found, None))) is not None:
            yield each

    aput = in_thread(put)
    aput_writes = in_thread(put_writes)
    aget_delta_channel_history = in_thread(get_delta_channel_history)
    adelete_thread = in_thread(delete_thread)
    adelete_for_runs = in_thread(delete_for_runs)
    awaiting = in_thread(waiting)
    acopy_thread = in_thread(copy_thread)
    aprune = in_thread(prune)


def _busy(thread: str, why: str) -> Conflict:
    """Return the error for a request whose thread another run has."""
    return Conflict(
        f"Another run of the thread {quoted(thread)} {why}.",
        "Nothing of this one is kept. Answer its request with status 409, or let requests to one"
        ' process wait: SealedSaver(..., busy="wait"). Name each of several processes: worker=...',
        "busy",
    )


def _task() -> ExecutionInfo:
    """Return the running task."""
    info = None
    with suppress(RuntimeError):
        info = get_runtime().execution_info
    if info is None or info.thread_id is None:
        raise ConfigurationError("No node of a graph runs here.", "Call ask in a node.")
    return info


def _interrupts(found: CheckpointTuple | None) -> builtins.list[Any]:
    """Return the values at which a checkpoint waits."""
    rows = (found.pending_writes if found else None) or ()
    return [each.value for row in rows if row[1] == INTERRUPT for each in row[2]]


def _around(info: ExecutionInfo) -> builtins.list[str]:
    """Return the namespaces around a task, nearest first: a `@task` has no graph of its own."""
    parts = info.checkpoint_ns.split("|")
    return ["|".join(parts[:count]) for count in range(len(parts) - 1, -1, -1)]


def _plain(value: Any) -> Any:
    """Return a write as it is saved: for an exception its text, as LangGraph's own savers do."""
    return repr(value) if isinstance(value, BaseException) else value


def _value(place: _Address, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return the saved form of a checkpoint whose parent is at a place."""
    return {
        "thread": place.thread,
        "ns": place.space,
        "id": checkpoint["id"],
        "parent": place.ident,
        "checkpoint": dict(checkpoint),
        "metadata": dict(metadata),
    }


def _asks(wrote: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether the tasks' writes contain a question, an answer or an error."""
    return any(row[0] < 0 for each in wrote for row in each["writes"])


def _control(config: RunnableConfig) -> RunControl | None:
    """Return the object that a run shares with its subgraphs; None for a read or a state update.

    No client can send it, and stream events do not contain it.
    """
    control = getattr(config["configurable"].get("__pregel_runtime"), "control", None)
    return control if isinstance(control, RunControl) else None
