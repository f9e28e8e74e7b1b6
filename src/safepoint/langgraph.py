"""SealedSaver: a LangGraph checkpointer on a ledger. Two lines change in an application.

One `thread_id` with all its namespaces is one thread of the ledger, so one head covers subgraphs
and pending writes. A `put` is a state, labelled with the checkpoint's id; a `put_writes` is a note.
Newest is what stands last in the chain. A parent is sealed data, so forks fit an append-only chain.

| label | record |
|---|---|
| `c/<id>`, in a subgraph `c/<id>@<hash>` | a checkpoint, with the writes that came early |
| `w/<id>`, and so on | writes of one task to that checkpoint |
| `d` | which checkpoints are hidden from now on |
| `spent/` | what people signed, used up by the node that asked them |
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import re
import secrets
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from safepoint.core.codec import Codec, Converter
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    EncodeError,
    NotFound,
    ResumeRefused,
    ThreadDeleted,
    ThreadHeld,
    WrongPlace,
    missing,
    quoted,
)
from safepoint.core.ledger import Ledger, Link, with_codec
from safepoint.core.names import Head, digest_of, spelled, thread_name
from safepoint.core.record import Checkpoint as Record
from safepoint.resume.approval import Approval, Question, Reason, ends, signable
from safepoint.resume.asking import Approved, Asking, check_held, check_journal, check_wait
from safepoint.resume.gate import Gate
from safepoint.resume.tools import ToolSet
from safepoint.tenancy import Tenanted, for_one

try:
    from langchain_core import messages
    from langchain_core.documents import Document
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_metadata,
    )
    from langgraph.config import get_config
    from langgraph.errors import GraphInterrupt
    from langgraph.runtime import ExecutionInfo, get_runtime
    from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy, interrupt
    from pydantic import AfterValidator, ValidationError
except ImportError as _missing:
    raise missing("SealedSaver needs the package langgraph.", "langgraph") from _missing

_T = TypeVar("_T")
_FITS: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_NUMBERED: Final = re.compile(r"~[0-9]+\Z")
_DROP: Final = "d"
_RUN: Final = "__pregel_runtime"  # in the config of a run, and not in that of a look
_WROTE: Final = ("task", "path", "writes")
_TRIES: Final = 8
_LOCKS: Final = 256
_REMEMBERED: Final = 1000  # threads of which it is known what was walked
_PATIENCE: Final = 30.0  # seconds until a checkpoint that a task runs from must be saved
_ASKING: Final = 10_000  # runs of nodes that may ask at once
_POOL: Final = 8
_KEPT: Final = 64  # links that a walk keeps, so that they are not read again

# --- values

_TYPES: Final = {
    "langgraph.Command": Command,
    "langgraph.Interrupt": Interrupt,
    "langgraph.Overwrite": Overwrite,
    "langgraph.TimeoutPolicy": TimeoutPolicy,
}
_MESSAGES: Final = (
    *(messages.AIMessage, messages.AIMessageChunk, messages.ChatMessage),
    *(messages.ChatMessageChunk, messages.FunctionMessage, messages.FunctionMessageChunk),
    *(messages.HumanMessage, messages.HumanMessageChunk, messages.RemoveMessage),
    *(messages.SystemMessage, messages.SystemMessageChunk),
    *(messages.ToolMessage, messages.ToolMessageChunk),
)
_ADDRESSES: Final = (
    *(IPv4Address, IPv4Interface, IPv4Network),
    *(IPv6Address, IPv6Interface, IPv6Network),
)


def _model(tag: str, cls: Any) -> Converter:
    """Return what keeps a class of LangChain: by its fields, and by what else it was given."""
    names = [name for name in cls.model_fields if name != "type"]  # which the class says

    def to(value: Any) -> dict[str, Any]:
        return {name: getattr(value, name) for name in names} | (value.model_extra or {})

    return Converter(tag, cls, to, lambda saved: cls(**saved))


def _named(tag: str, cls: Any) -> Converter:
    """Return what keeps a named tuple."""
    return Converter(tag, cls, lambda value: value._asdict(), lambda saved: cls(**saved))


_CONVERTERS: Final = (
    *(_model(f"langchain.{cls.__name__}", cls) for cls in (*_MESSAGES, Document)),
    *(Converter(f"net.{cls.__name__}", cls, str, cls) for cls in _ADDRESSES),
    Converter(
        "langgraph.Send",
        Send,
        lambda send: [send.node, send.arg, send.timeout],
        lambda saved: Send(saved[0], saved[1], timeout=saved[2]),
    ),
    Converter(
        "collections.deque",
        deque,
        lambda value: [[*value], value.maxlen],
        lambda saved: deque(saved[0], saved[1]),
    ),
)


def graph_codec(
    types: Iterable[type] | Mapping[str, type] = (),
    converters: Iterable[Converter] = (),
    **options: Any,
) -> Codec:
    """Return a codec that knows LangChain's and LangGraph's own types, and yours.

    Args:
        types: as `Codec` takes them, and named tuples, and message classes of your own.
        converters: for types that are not yours to register.
        options: `limits`, as `Codec` takes them.
    """
    given = types if isinstance(types, Mapping) else {cls.__name__: cls for cls in types}
    listed, more = dict(_TYPES), [*_CONVERTERS, *converters]
    for tag, cls in given.items():
        if isinstance(cls, type) and issubclass(cls, messages.BaseMessage):
            more.append(_model(tag, cls))
        elif isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields"):
            more.append(_named(tag, cls))
        else:
            listed[tag] = cls
    return Codec(listed, converters=more, **options)


# --- what was walked


class _Key(NamedTuple):
    """A checkpoint of a thread, as its label says it."""

    ident: str
    space: str

    @classmethod
    def of(cls, space: str, ident: str) -> _Key:
        hashed = hashlib.sha256(space.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        if not _FITS.match(ident):
            data = ident.encode("utf-8", "surrogatepass")
            ident = f"sha256:{hashlib.sha256(data).hexdigest()}"
        return cls(ident, f"@{hashed}" if space else "")

    @classmethod
    def read(cls, label: str) -> _Key:
        ident, at, space = label[2:].partition("@")
        return cls(ident, at + space)

    def label(self, kind: str) -> str:
        return f"{kind}/{self.ident}{self.space}"


class _At(NamedTuple):
    sequence: int
    digest: str


class _Whose(NamedTuple):
    tenant: str
    thread: str


@dataclass
class _Index:
    """What is known of a thread. All of it hangs by links on a head that was verified.

    Attributes:
        name: of the ledger's thread.
        generation: how often the `thread_id` was deleted before.
        low: the record that the walk has come to.
        high: the last record, or None before the first.
        state: the sequence of the last state.
        complete: the walk has come to the thread's beginning.
        tops: the newest checkpoint of each namespace, of those that are known.
        addressed: checkpoints of the past that were asked for by name, to go on from.
        mine: what was saved from here. A second beginning is a conflict if the first is another's.
        waits: checkpoints from which a task asked, was answered or failed: the next may come late.
    """

    name: str
    generation: int = 0
    low: int = 0
    high: _At | None = None
    state: int = 0
    complete: bool = False
    checkpoints: dict[_Key, _At] = field(default_factory=dict)
    tops: dict[str, _Key] = field(default_factory=dict)
    writes: dict[_Key, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    dropped: dict[_Key, int] = field(default_factory=dict)
    addressed: set[_Key] = field(default_factory=set)
    mine: set[_Key] = field(default_factory=set)
    waits: set[_Key] = field(default_factory=set)

    def take(self, record: Link | Record) -> None:
        """Take in a record, in any order, and any number of times."""
        at = _At(record.sequence, record.digest)
        if record.kind == "state":
            self.state = max(self.state, at.sequence)
        if record.label == _DROP:
            for label in record.state["hidden"]:
                key = _Key.read(label)
                self.dropped[key] = max(at.sequence, self.dropped.get(key, 0))
                if key in self.checkpoints and self.checkpoints[key].sequence < at.sequence:
                    del self.checkpoints[key]
                    if self.tops[key.space] == key:
                        del self.tops[key.space]
                        for other in self.checkpoints:
                            self._rank(other)
                kept = {n: digest for n, digest in self.writes[key].items() if n > at.sequence}
                self.writes[key] = kept
        elif record.label[:2] in ("c/", "w/"):
            key = _Key.read(record.label)
            if self.dropped.get(key, 0) > at.sequence:
                return
            if record.kind == "note":
                self.writes[key][at.sequence] = at.digest
            elif key not in self.checkpoints or self.checkpoints[key].sequence < at.sequence:
                self.checkpoints[key] = at
                self._rank(key)

    def _rank(self, key: _Key) -> None:
        top = self.tops.setdefault(key.space, key)
        if self.checkpoints[top].sequence < self.checkpoints[key].sequence:
            self.tops[key.space] = key


class _Place(NamedTuple):
    """What a LangGraph config names."""

    thread: str
    space: str
    ident: str | None

    @classmethod
    def of(cls, config: RunnableConfig) -> _Place:
        given = config["configurable"]
        space, ident = (given.get(name) for name in ("checkpoint_ns", "checkpoint_id"))
        return cls(str(given["thread_id"]), str(space or ""), None if ident is None else str(ident))

    def config(self, ident: str) -> RunnableConfig:
        named = {"thread_id": self.thread, "checkpoint_ns": self.space, "checkpoint_id": ident}
        return {"configurable": named}


class SealedSaver(Tenanted, BaseCheckpointSaver[int]):
    """A checkpointer whose every record is sealed, chained and, with an anchor, pinned elsewhere.

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

    When `put` returned, the checkpoint is durable, and so are the writes that came before it.
    Writes that come before their checkpoint wait for it in memory, and are sealed in its record.

    Args:
        ledger: where to. Its codec is not used, but for its limits.
        types: classes of yours in the state: dataclasses, Enums, pydantic models, named tuples,
            messages. What is in none of the lists is refused when it is saved.
        converters: for types that are not yours to register.
        app: what writes, a name and a version. It is sealed, and a checkpoint of another app is not
            served to a graph.
        tools: the tool set in force, the same.
        resumes: names of other apps, and digests of other tool sets, whose checkpoints this one
            goes on from; "" for those without.
        time_travel: serve a checkpoint that is not the newest, if a graph asks for it by its id.
        gate: who may answer what a node asks with `ask`.
        tenant: returns whose request is being served, such as `get` of a ContextVar that you set
            where you authenticate it. It is asked at each operation, which then sees the threads of
            that tenant alone. Nothing in a config, which a client may fill, chooses a tenant.

    Raises:
        ConfigurationError: there is a `tenant`, and the ledger is of one already.
        KeyRefused: an approver's key is on the keyring of the ledger.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        types: Iterable[type] | Mapping[str, type] = (),
        converters: Iterable[Converter] = (),
        app: str = "",
        tools: ToolSet | None = None,
        resumes: Collection[str] = (),
        time_travel: bool = False,
        gate: Gate | None = None,
        tenant: Callable[[], str] | None = None,
    ) -> None:
        BaseCheckpointSaver.__init__(self)
        codec = graph_codec(types, converters, limits=ledger.codec.limits)
        Tenanted.__init__(self, with_codec(ledger, codec), tenant)
        self.app: Final = app
        self.tools: Final = None if tools is None else tools.digest
        self.resumes: Final = frozenset([resumes] if isinstance(resumes, str) else resumes)
        self.time_travel: Final = time_travel
        self.gate: Final = gate or Gate()
        self.gate.check_apart(ledger.keys)
        self._reads_only = False
        self._began: Final = f"__safepoint_{secrets.token_hex(8)}"
        # By tenant, too: several may have a thread of one id.
        self._early: dict[tuple[_Whose, _Key], builtins.list[dict[str, Any]]] = defaultdict(list)
        self._indexes: dict[_Whose, _Index] = {}
        self._refused: Final[dict[_Whose, Exception]] = {}
        self._asked: Final[dict[int, tuple[ExecutionInfo, Counter[str]]]] = {}
        # Of its own: whoever waits for a checkpoint must not keep the thread that saves it.
        self._pool: Final = ThreadPoolExecutor(_POOL, thread_name_prefix="safepoint")
        self._locks: Final = [threading.RLock() for _ in range(_LOCKS)]
        self._guard: Final = threading.Lock()

    def reading(self) -> SealedSaver:
        """Return a saver that serves all apps, tool sets and ids, to look at, and writes nothing.

        Compile a graph with it for `get_state` and `get_state_history` of the past.
        """
        reader = copy(self)
        vars(reader)["_reads_only"] = True
        return reader

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> SealedSaver:
        """Return this saver: what it decodes is what you listed."""
        del extra_allowlist
        return self

    # --- the way back

    @staticmethod
    def _name(thread: str, generation: int) -> str:
        """Return the ledger's name of a `thread_id` that was deleted so many times."""
        if generation or _NUMBERED.search(thread):
            thread = f"{thread}~{generation}"
        return thread_name(thread)

    def _index(
        self, thread: str, wanted: Callable[[_Index], object] | None = None
    ) -> tuple[_Index, dict[int, Link]]:
        """Return what is known of a thread once its end was verified, and links of that walk.

        Args:
            thread: the `thread_id`.
            wanted: the walk ends where this is true. None goes to the beginning.
        """
        whose = self._whose(thread)
        index = self._indexes.get(whose) or _Index(self._name(thread, 0))
        while True:
            try:
                links = self._walk(index, thread, wanted)
                break
            except ThreadDeleted:  # a signed tombstone says so
                number = index.generation + 1
                index = _Index(self._name(thread, number), number)
            except NotFound:
                if index.high:
                    raise
                index.complete, links = True, {}
                break
        with self._guard:
            self._indexes.pop(whose, None)
            self._indexes[whose] = index
            if len(self._indexes) > _REMEMBERED:
                del self._indexes[next(iter(self._indexes))]
        return index, links

    def _whose(self, thread: str) -> _Whose:
        return _Whose(self.ledger.tenant_name, thread)

    def _begin(self, run: dict[str, Any]) -> None:
        """Let a run be the tenant's for whom it asks for its checkpoint here, as `_of_run` does."""
        if self.ledger.tenant_name and _RUN in run:  # LangGraph's dict, and of this run alone
            if self._of_run(run).ledger.tenant_name != self.ledger.tenant_name:
                raise WrongPlace(
                    "The graph around this one began for another tenant.",
                    "Read a stream to its end in the request that began it, and let no node call a"
                    " graph for another tenant.",
                )
            run[self._began] = self

    def _of_run(self, run: dict[str, Any]) -> SealedSaver:
        """Return this saver for the tenant that a run began for, without asking again.

        LangGraph writes from callbacks that have no context, and when a stream is closed, which may
        be while another's request is served. No client knows the name, or can send a saver.
        """
        began = run.get(self._began)
        return began if isinstance(began, SealedSaver) else self._scoped()

    def _lock(self, thread: str) -> threading.RLock:
        """Return the lock of a thread: LangGraph puts from several threads of its own."""
        return self._locks[hash(thread) % _LOCKS]

    def _walk(
        self, index: _Index, thread: str, wanted: Callable[[_Index], object] | None
    ) -> dict[int, Link]:
        links: dict[int, Link] = {}
        known, top = index.high, None
        index.complete &= known is not None
        for link in self.ledger.back(index.name):
            here = _At(link.sequence, link.digest)
            if top is None:
                if known and here.sequence < known.sequence:  # an operator accepted a loss
                    return self._anew(index, thread, wanted)
                top = here
            if known and here.sequence == known.sequence and here != known:
                return self._anew(index, thread, wanted)
            if len(links) < _KEPT:
                links[link.sequence] = link
            if not known or not index.low <= here.sequence <= known.sequence:
                index.take(link)
            joined = not known or here.sequence <= known.sequence
            if joined and (index.complete or (wanted and wanted(index))):
                index.low = min(index.low, here.sequence) if known else here.sequence
                break
        else:
            index.complete = True
        if top and top != known:
            self._check(thread, links[top.sequence].state)
            index.high = top
        return links

    def _anew(
        self, index: _Index, thread: str, wanted: Callable[[_Index], object] | None
    ) -> dict[int, Link]:
        vars(index).update(vars(_Index(index.name, index.generation)))
        return self._walk(index, thread, wanted)

    @staticmethod
    def _check(thread: str, value: Any) -> None:
        if type(value) is not dict or value.get("thread") != thread:
            raise WrongPlace(
                f"The record is not one of the LangGraph thread {quoted(thread)}.",
                "Give each adapter, and each workflow, a store of its own.",
            )

    def _load(self, index: _Index, links: dict[int, Link], at: _At, thread: str) -> Record:
        """Return a record that the walk has seen."""
        link = links.get(at.sequence)
        record = link.checkpoint if link else self.ledger.load(index.name, Head(*at))
        self._check(thread, record.state)
        return record

    # --- write

    def _refuse_reader(self) -> None:
        if self._reads_only:
            raise ConfigurationError(
                "This saver is for reading, and writes nothing.",
                "Compile the graph with the saver that you called reading() of.",
            )

    @contextmanager
    def _writing(self, thread: str) -> Iterator[None]:
        """Hold the lock of a thread, and tell a refusal again, until a graph begins anew.

        LangGraph drops what a subgraph's save raised if that subgraph asks a person: the graph
        would go on without it. The next write is one of the graph around it, which is told.
        """
        whose = self._whose(thread)
        with self._lock(thread):
            if refused := self._refused.get(whose):
                raise refused
            try:
                yield
            except Exception as error:
                with self._guard:
                    self._refused[whose] = error
                    if len(self._refused) > _REMEMBERED:
                        del self._refused[next(iter(self._refused))]
                raise

    def _append(
        self, thread: str, index: _Index, value: dict[str, Any], key: _Key | None, **options: Any
    ) -> None:
        """Seal one record, and take it in."""
        kind = options.pop("kind")
        label = key.label("c" if kind == "state" else "w") if key else _DROP
        value = {"thread": thread, **value}
        try:
            if kind == "state":
                options.update(app=self.app, tools=self.tools, after=index.state)
                saved = self.ledger.save(index.name, value, label=label, **options)
            else:
                saved = self.ledger.note(index.name, value, label=label, **options)
        except EncodeError as error:
            line = error.do.replace("Codec([", "SealedSaver(ledger, types=[")
            raise EncodeError(error.what, line) from None
        before = index.high
        if saved.previous == (before and before.digest):
            index.take(saved)
            index.high = _At(saved.sequence, saved.digest)
            index.low = index.low or saved.sequence
        else:
            self._walk(index, thread, lambda _: True)  # what others wrote meanwhile

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Seal a checkpoint, with the writes that came before it.

        Raises:
            Conflict: its parent is not the newest of its namespace, so another worker went on from
                there; and it is no fork and no update.
            EncodeError: it holds a type that is in none of the lists. The message says where.
            CheckpointError: what `Ledger.save` refuses.

        If an operator holds the thread, it is saved, and LangGraph drains the run.
        """
        del new_versions  # each record holds all channels
        own = self._of_run(config["configurable"])
        return own._put(config, checkpoint, metadata)  # noqa: SLF001 - the same class

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> RunnableConfig:
        self._refuse_reader()
        place = _Place.of(config)
        if metadata.get("counters_since_delta_snapshot"):
            raise ConfigurationError(
                "The graph has a DeltaChannel, which LangGraph has in beta, and which SealedSaver"
                " does not keep.",
                "Use a channel whose value is in each checkpoint.",
            )
        key = _Key.of(place.space, checkpoint["id"])
        parent = _Key.of(place.space, place.ident) if place.ident else None
        value = {
            "ns": place.space,
            "id": checkpoint["id"],
            "parent": place.ident,
            "checkpoint": dict(checkpoint),
            "metadata": dict(get_checkpoint_metadata(config, metadata)),
        }
        branches = metadata.get("source") in ("fork", "update")
        if _RUN not in config["configurable"]:  # somebody updates the state
            self._check_held(place.thread)
        with self._writing(place.thread):
            index = self._known(place.thread, key)
            early = self._early.pop((self._whose(place.thread), key), [])
            if again := self._found(index, {}, key, place.thread):  # its writes count on
                own, notes = again
                wrote = [{each: note.state[each] for each in _WROTE} for note in notes]
                early = [*own.state["early"], *wrote, *early]
            mine = index.mine
            for left in reversed(range(_TRIES)):
                newest = index.tops.get(key.space)
                begins = not parent and (newest in mine or (place.space and self.time_travel))
                free = branches or begins or parent in index.addressed
                if not free and newest not in (parent, key):
                    raise Conflict(
                        f"{index.name} has a newer checkpoint in this namespace than the parent of"
                        " the one to save.",
                        "Another worker went on from there. Nothing was overwritten: invoke the"
                        " graph again, or let one worker alone have the thread.",
                    )
                try:
                    self._append(place.thread, index, {**value, "early": early}, key, kind="state")
                    break
                except Conflict:
                    if not left:
                        raise
                    self._index(place.thread, lambda known: known.tops.get(key.space))
            mine.add(key)
        try:
            self._check_held(place.thread, index.name)
        except ThreadHeld as error:
            # It is saved. LangGraph saves while it runs the next step, so it is told to end before
            # another one, and to save what this one does; what a save raises would lose that.
            control = getattr(config["configurable"].get(_RUN), "control", None)
            if control is None:
                raise
            control.request_drain(str(error))
        return place.config(checkpoint["id"])

    def _check_held(self, thread: str, name: str = "") -> None:
        """Refuse to go on with a thread that an operator holds, as `check_held` does.

        They know it by its id. If that was deleted and is used again, the ledger has another name.
        """
        if self.gate.operators.keys:
            with self._lock(thread):
                name = name or self._index(thread, lambda _: True)[0].name
                for each in dict.fromkeys((name, self._name(thread, 0))):
                    check_held(self.gate, self.ledger, each, {"thread": thread})

    def _known(self, thread: str, key: _Key) -> _Index:
        """Return what is known of a thread, if that says what is the newest of a namespace."""
        index = self._indexes.get(self._whose(thread))
        if index and (index.complete or index.tops.get(key.space)):
            return index
        return self._index(thread, lambda known: known.tops.get(key.space))[0]

    def _sought(self, thread: str, key: _Key, ident: str) -> _Index:
        """Return what is known of a thread once it was looked for a checkpoint."""
        index = self._known(thread, key)
        if key in index.checkpoints:
            return index
        newest = index.tops.get(key.space)
        # LangGraph's ids grow, so that one above the newest is new. Hashed ones do not.
        grown = newest and _FITS.match(newest.ident) and key.ident == ident > newest.ident
        return self._index(thread, lambda known: grown or key in known.checkpoints)[0]

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Seal what a task wrote, for the checkpoint that it ran from.

        If that is not saved yet, they wait, and its `put` seals them. Questions, answers and errors
        are anchored at once, and so is what comes after them: the run may wait there. The rest is
        anchored with the next checkpoint.

        Raises:
            EncodeError: as `put`.
        """
        own = self._of_run(config["configurable"])
        own._put_writes(config, writes, task_id, task_path)  # noqa: SLF001 - the same class

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, path: str
    ) -> None:
        self._refuse_reader()
        place = _Place.of(config)
        ident = place.ident or ""
        key = _Key.of(place.space, ident)
        rows = [
            [WRITES_IDX_MAP.get(channel, number), channel, _plain(value)]
            for number, (channel, value) in enumerate(writes)
        ]
        made = {"task": task_id, "path": path, "writes": rows}
        with self._writing(place.thread):
            index = self._sought(place.thread, key, ident)
            if any(row[0] < 0 for row in rows):
                index.waits.add(key)
            if key not in index.checkpoints:
                self._early[self._whose(place.thread), key].append(made)
                return
            value = {"ns": place.space, "id": ident, **made}
            self._append(
                place.thread, index, value, key, kind="note", rides_along=key not in index.waits
            )

    @for_one
    def release(self, thread_id: str) -> None:
        """Let another worker have a thread that this one holds."""
        index = self._indexes.get(self._whose(str(thread_id)))
        self.ledger.owners.release(index.name if index else self._name(str(thread_id), 0))

    # --- ask people

    def ask(
        self,
        action: str,
        arguments: Mapping[str, Any],
        *,
        within: timedelta | None = None,
        tell: Sequence[str] = (),
    ) -> Approved:
        """Ask people, in the node that acts, and return what they signed.

        The graph stops as with `interrupt`, whose value is the question, as its `text`. Resume it
        with `Command(resume=text)` of what `Approver.approve` gave, or with a list of such texts.
        When this returns, the answer is spent: sealed, and anchored. A node that runs again, after
        a crash, is given the same arguments and the same key.

        Act with what it returns, in this node: whoever may call the graph can go around another one
        that asks. Build the arguments from the state alone: with a clock or a random number the
        node would ask something else when it runs again, and no answer would fit.

        Args:
            action: what will be done, as one word.
            arguments: with what: a few plain values.
            within: how long people may take, from the checkpoint on that the node runs from. After
                that whoever resumes the graph gets WaitEnded.
            tell: whom to tell when that ends soon, for whoever reads the question.

        Raises:
            ResumeRefused: somebody said no, or the wait has ended. Catch it, if the graph goes on
                without.
            ThreadHeld: an operator holds the thread.
            ApprovalNeeded: more people have to approve it.
            ApprovalError: the answer does not count. The graph still waits for one that does.
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
        return self._ask(_running(), action, arguments, within, tell)

    async def aask(
        self,
        action: str,
        arguments: Mapping[str, Any],
        *,
        within: timedelta | None = None,
        tell: Sequence[str] = (),
    ) -> Approved:
        """Do what `ask` does, in an async node."""
        return await asyncio.to_thread(self._ask, _running(), action, arguments, within, tell)

    @for_one
    def _ask(
        self,
        info: ExecutionInfo,
        action: str,
        arguments: Mapping[str, Any],
        within: timedelta | None,
        tell: Sequence[str],
    ) -> Approved:
        asking = self._asking(info, action, arguments, within, tell)
        refused = list[CheckpointError]()

        def spent(given: object) -> tuple[Approval, ...]:
            try:
                return asking.spend(given)
            except CheckpointError as error:
                refused.append(error)
                raise ValueError from None

        try:
            # LangGraph keeps an answer for good, unless it does not fit the schema.
            schema: Any = Annotated[Any, AfterValidator(spent)]
            said: tuple[Approval, ...] = interrupt(asking.question.text, response_schema=schema)
        except ValidationError as error:
            vars(refused[0]).update(vars(error))  # LangGraph's mark, that it was the answer
            raise refused[0] from None
        except GraphInterrupt:
            asked = asking.question
            self.ledger.notes.write("pause", "done", asked.thread, asked.checkpoint, asked.action)
            raise
        return asking.approved(said)

    def _asking(
        self,
        info: ExecutionInfo,
        action: str,
        arguments: Mapping[str, Any],
        within: timedelta | None,
        tell: Sequence[str],
    ) -> Asking:
        """Return a question that is the same whenever this task asks: all of it is sealed."""
        self._refuse_reader()
        if self.gate.approvers is None:
            raise ConfigurationError(
                "A node asks people, and the saver knows nobody who may approve.",
                'Write SealedSaver(..., gate=Gate(approvers=Approvers({"dana": key}))).',
            )
        check_journal(self.ledger, "A node can ask people", anchor=True)
        check_wait(within, tell)
        thread = str(info.thread_id)
        name, at = self._saved(thread, info)
        self._check_held(thread, name)
        until = ends(self.ledger.load(name, at).created, within) if within else None
        question = Question(
            store=self.ledger.store,
            tenant=self.ledger.tenant_name,
            thread=name,
            checkpoint=at,
            head=at,
            app=self.app,
            tools=self.tools or ToolSet().digest,
            reasons=(Reason.ASKED,),
            action=action,
            arguments=signable(action, dict(arguments)),
            next=info.checkpoint_ns.rpartition("|")[2].partition(":")[0],
            scope=info.checkpoint_ns,
            until=spelled(until) if until else "",
            tell=tuple(tell),
        )
        with self._guard:  # what a node asks twice is two questions
            asked = self._asked.setdefault(id(info), (info, Counter()))[1]
            text = digest_of(question.text.encode())
            number = asked[text]
            asked[text] += 1
            if len(self._asked) > _ASKING:
                del self._asked[next(iter(self._asked))]
        question = replace(question, scope=f"{question.scope}#{number}")

        ran = get_config()["configurable"].get("checkpoint_map", {})
        ours = {_Key.of(space, ident) for space, ident in ran.items()}
        spaces = {_Key.of(space, "").space for space in _around(info)}

        def is_over(link: Link) -> bool:
            """Tell whether this graph, or one around it, went on from elsewhere."""
            key = _Key.read(link.label)
            return link.kind == "state" and key.space in spaces and key not in ours

        return Asking(self.ledger, self.gate, question, is_over, {"thread": thread})

    def _saved(self, thread: str, info: ExecutionInfo) -> tuple[str, Head]:
        """Return where a checkpoint stands, once it is saved: LangGraph does not wait for that."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with self._lock(thread):
                for space in _around(info):
                    key = _Key.of(space, info.checkpoint_id)
                    index = self._sought(thread, key, info.checkpoint_id)
                    if at := index.checkpoints.get(key):
                        return index.name, Head(*at)
                if refused := self._refused.get(self._whose(thread)):
                    raise refused
            time.sleep(0.005)
        raise ConfigurationError(
            f"The checkpoint that this node runs from was not saved in {_PATIENCE:.0f} seconds.",
            "Compile the graph with this very saver, and its subgraphs without"
            ' checkpointer=False; and do not run it with durability="exit".',
        )

    # --- read

    @for_one
    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes: the newest, or that of an id.

        With a ledger that claims threads this claims, too: a graph runs tasks before it saves.

        Raises:
            ResumeRefused: it is of another app, of other tools, or not the newest.
            ThreadHeld: an operator holds the thread, and a graph is to go on with it.
            NotOwner: another worker holds the thread.
            CheckpointError: the thread does not verify.
        """
        place = _Place.of(config)
        self._begin(config["configurable"])
        key = _Key.of(place.space, place.ident) if place.ident else None
        space = _Key.of(place.space, "").space

        def wanted(known: _Index) -> object:
            return key in known.checkpoints if key else known.tops.get(space)

        with self._lock(place.thread):
            if not place.space and not self._reads_only:
                with self._guard:
                    self._refused.pop(self._whose(place.thread), None)
            index, links = self._index(place.thread, wanted)
            if self.ledger.owners.held.worker is not None and not self._reads_only:
                self.ledger.owners.keep(index.name)  # before a task runs, and not after it
                index, links = self._index(place.thread, wanted)
            if self.gate.operators.keys and _RUN in config["configurable"]:
                self._check_held(place.thread, index.name)
                index, links = self._index(place.thread, wanted)
            newest = index.tops.get(space)
            found = self._found(index, links, key or newest, place.thread)
            if found is None:
                return None
            own, notes = found
            if not self._reads_only:
                if index.high and index.high.sequence - own.sequence < own.state.get("left", 0):
                    from safepoint.moving import half_moved

                    raise half_moved(index.name)
                self._admit(own, newest == _Key.read(own.label))
                if key and key != newest:
                    index.addressed.add(key)
            return self._tuple(place, own, notes)

    def _found(
        self, index: _Index, links: dict[int, Link], key: _Key | None, thread: str
    ) -> tuple[Record, builtins.list[Record]] | None:
        at = index.checkpoints.get(key) if key else None
        if key is None or at is None:
            return None
        notes = sorted(index.writes.get(key, {}).items())
        return self._load(index, links, at, thread), [
            self._load(index, links, _At(*note), thread) for note in notes if note[0] > at.sequence
        ]

    def _admit(self, record: Record, newest: bool) -> None:
        """Refuse what a graph must not go on from by accident. Its tasks run before any `put`."""
        where = f"The checkpoint of {record.thread}"
        look = "To look at it, use reading()"
        if not newest and not self.time_travel:
            raise ResumeRefused(
                f"{where} is not the newest of its namespace.",
                f"{look}. To go on from it, write SealedSaver(..., time_travel=True).",
            )
        if record.app != self.app and record.app not in self.resumes:
            raise ResumeRefused(
                f"{where} is of the app {quoted(record.app)}, and this is {quoted(self.app)}.",
                f"{look}. If this app can go on from it, write SealedSaver(..., "
                f"resumes=[{quoted(record.app)}]).",
            )
        if record.tools != self.tools and (record.tools or "") not in self.resumes:
            raise ResumeRefused(
                f"{where} was written with {'other' if record.tools else 'no'} tools.",
                f"{look}. If a person approved the change, write SealedSaver(..., "
                f"resumes=['{record.tools or ''}']).",
            )

    @staticmethod
    def _tuple(place: _Place, own: Record, notes: Iterable[Record]) -> CheckpointTuple:
        saved = own.state
        rows: dict[tuple[str, int], tuple[str, str, int, str, Any]] = {}
        for each in (*saved["early"], *(note.state for note in notes)):
            for number, channel, value in each["writes"]:
                # Of a channel's writes the first counts; of questions, answers, errors the last.
                if number < 0 or (each["task"], number) not in rows:
                    row = each["path"], each["task"], number, channel, value
                    rows[each["task"], number] = row
        ordered = sorted(rows.values(), key=lambda row: row[:3])  # as its tasks are applied
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
        """Yield checkpoints, newest first. It walks the whole thread, and is for looking.

        But by the one before another LangGraph finds where a subgraph goes on from, in the past.
        That is served as `get_tuple` serves it.
        """
        given = (config or {}).get("configurable", {})
        goes_on = before and limit == 1 and given.get("checkpoint_ns") and not self._reads_only
        older = (before or {}).get("configurable", {}).get("checkpoint_id")
        for thread in [str(given["thread_id"])] if config else self._threads():
            with self._lock(thread):
                index, links = self._index(thread)
                keys = sorted(index.checkpoints.items(), key=lambda item: -item[1].sequence)
            for key, _ in keys:
                if limit is not None and limit <= 0:
                    return
                found = self._found(index, links, key, thread)
                if found is None:
                    continue
                shown = self._tuple(_Place(thread, "", None), *found)
                ident = shown.checkpoint["id"]
                if (
                    given.get("checkpoint_ns", found[0].state["ns"]) != found[0].state["ns"]
                    or (given.get("checkpoint_id") or ident) != ident
                    or (older and ident >= older)
                    or any(shown.metadata.get(k) != v for k, v in (filter or {}).items())
                ):
                    continue
                if goes_on:
                    self._admit(found[0], key == index.tops.get(key.space))
                    index.addressed.add(key)
                limit = None if limit is None else limit - 1
                yield shown

    def _threads(self) -> builtins.list[str]:
        """Return each `thread_id` that is not deleted. A long one is in the record alone."""
        found = set()
        for name in self.ledger.threads():
            try:
                value = self.ledger.latest(name).state
            except NotFound:
                continue
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
        """Return what a checkpoint of another saver becomes here: the fields of an `Unsigned`."""
        place = _Place.of(config)
        index, _ = self._index(place.thread, lambda _: True)
        state = {
            "thread": place.thread,
            "ns": place.space,
            "id": checkpoint["id"],
            "parent": parent,
            "checkpoint": dict(checkpoint),
            "metadata": dict(metadata),
            "early": early,
        }
        label = _Key.of(place.space, checkpoint["id"]).label("c")
        return {"thread": index.name, "state": state, "label": label}

    # --- forget

    @for_one
    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread and erase its records. A signed tombstone stays, and nothing else.

        The id can be used again: a new thread begins. A backup may still hold the old one.
        Interrupted, it can be called again, and finishes.

        Raises:
            ThreadHeld: an operator holds the thread.
            StorageRefused: this login may not erase. The thread is deleted.
        """
        self._refuse_reader()
        thread = str(thread_id)
        with self._lock(thread):
            self._check_held(thread)
            index, _ = self._index(thread, lambda _: True)
            self._indexes.pop(self._whose(thread), None)
            if index.high:
                self.ledger.delete(index.name)
            last = index.generation + bool(index.high)
            for number in range(max(last - 2, 0), last):  # the one before may be unfinished
                self.ledger.erase(self._name(thread, number))

    @for_one
    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Hide the checkpoints of runs, by a sealed note. They stay in the chain, readable.

        What was hidden is erased by `prune` once nothing older is kept, or by `delete_thread`.
        """
        self._refuse_reader()
        for thread in self._threads() if run_ids else ():
            gone = [
                _Key.of(shown.config["configurable"]["checkpoint_ns"], shown.checkpoint["id"])
                for shown in self.list({"configurable": {"thread_id": thread}})
                if shown.metadata.get("run_id") in run_ids
            ]
            self._hide(thread, gone)

    def _hide(self, thread: str, keys: Sequence[_Key]) -> None:
        with self._lock(thread):
            if keys:
                hidden = {"hidden": [key.label("c") for key in keys]}
                self._append(thread, self._index(thread)[0], hidden, None, kind="note")

    @for_one
    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Seal all checkpoints and writes of a thread anew, as another one.

        Raises:
            ThreadHeld: an operator holds the thread.
            Conflict: there is a thread of that id.
        """
        self._refuse_reader()
        source, target = str(source_thread_id), str(target_thread_id)
        first, second = sorted([source, target], key=lambda thread: hash(thread) % _LOCKS)
        with self._lock(first), self._lock(second):
            self._check_held(source)
            index, _ = self._index(source)
            copied, _ = self._index(target)
            self._indexes.pop(self._whose(target), None)
            if copied.high and index.high:
                raise Conflict(
                    f"There is a thread {quoted(target)} already.",
                    "Nothing was copied. Choose another id, or delete that thread.",
                )
            for record in reversed([*self.ledger.back(index.name)] if index.high else []):
                self._check(source, record.state)
                value = {**record.state, "thread": target}
                if record.kind == "note":
                    self.ledger.note(copied.name, value, label=record.label)
                else:
                    app, tools = record.header.app, record.header.tools
                    self.ledger.save(copied.name, value, label=record.label, app=app, tools=tools)

    @for_one
    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace, or with `"delete"` none.

        What is older than all of those that are kept is erased. What stands between them is hidden
        by a sealed note, and erased by a later `prune`.
        """
        self._refuse_reader()
        if strategy not in ("keep_latest", "delete"):
            raise ConfigurationError(
                f"{quoted(strategy)} is no way to prune.", 'Write "keep_latest" or "delete".'
            )
        for thread in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread)
                continue
            with self._lock(thread):
                index, _ = self._index(thread)
                keep = {*index.tops.values()}
                if not keep:
                    continue
                oldest = min(index.checkpoints[key].sequence for key in keep)
                hidden = [
                    key
                    for key, at in index.checkpoints.items()
                    if key not in keep and at.sequence > oldest
                ]
                self._hide(thread, hidden)
                self.ledger.prune(index.name, keep=1, since=oldest)
                self._indexes.pop(self._whose(thread), None)

    # --- from an event loop

    async def _aside(self, call: Callable[..., _T], *given: Any, **options: Any) -> _T:
        loop = asyncio.get_running_loop()
        asked = partial(copy_context().run, call, *given, **options)  # whose request it is
        return await loop.run_in_executor(self._pool, asked)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Do what `get_tuple` does, in a thread."""
        return await self._aside(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  as LangGraph names it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do what `list` does, in threads."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (each := await self._aside(next, found, None)) is not None:
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do what `put` does, in a thread."""
        return await self._aside(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Do what `put_writes` does, in a thread."""
        await self._aside(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Do what `delete_thread` does, in a thread."""
        await self._aside(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Do what `delete_for_runs` does, in a thread."""
        await self._aside(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Do what `copy_thread` does, in a thread."""
        await self._aside(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Do what `prune` does, in a thread."""
        await self._aside(self.prune, thread_ids, strategy=strategy)


def _running() -> ExecutionInfo:
    """Return which task runs."""
    info = None
    with suppress(RuntimeError):
        info = get_runtime().execution_info
    if info is None or info.thread_id is None:
        raise ConfigurationError("No node of a graph runs here.", "Call ask in a node.")
    return info


def _around(info: ExecutionInfo) -> builtins.list[str]:
    """Return the namespaces around a task, the nearest first: a `@task` has no graph of its own."""
    parts = info.checkpoint_ns.split("|")
    return ["|".join(parts[:count]) for count in range(len(parts) - 1, -1, -1)]


def _plain(value: Any) -> Any:
    """Return what is kept of a write: of an exception its text, as LangGraph's own savers do."""
    return repr(value) if isinstance(value, BaseException) else value
