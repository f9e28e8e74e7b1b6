"""Stores of other projects as targets of our attacks: real packages, used as their guides say.

Where a store can be judged in two ways, it is judged kindly. An error that stops the load counts
as a refusal, whatever it was meant for, and so does a store that says that it has nothing.

Each is also under a run that reserves, asks a person, and pays if that is within a limit.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import make_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypedDict, TypeVar

import agent_framework as af
import psycopg
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from ormsgpack import Ext, packb, unpackb

from safepoint import SigningKey
from safepoint.agent_framework import NotCheckpointed, SealedCheckpointStorage
from safepoint.attacks import SealedTarget, Target
from safepoint.attacks.medium import Disk, Medium
from safepoint.attacks.outcome import HONEST, Miss
from safepoint.attacks.target import Trick
from safepoint.core.errors import CheckpointError
from safepoint.core.names import digest_of
from safepoint.core.record import Header, Place, seal
from safepoint.langgraph import SealedSaver

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

_T = TypeVar("_T")
LIMIT: Final = Decimal(100)
"""The most that a run may pay. JSON has no such type, so that each store writes a tag for it."""


class Nothing(Exception):
    """The store says that it has no checkpoint, and the victim knows that there was one."""


class Run(Target):
    """A store under a run of its framework.

    Attributes:
        reserved: what the run has reserved. Twice is once too often.
    """

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self.reserved: list[object] = []

    def stranger(self) -> Run:
        """Return what the adversary has at home: the same application, with a key of their own."""
        folder = self.folder / "stranger"
        folder.mkdir(mode=0o700)
        return type(self)(folder)

    # What the victim does.

    @abstractmethod
    def pause(self, thread: str, order: dict[str, Any] = HONEST) -> None:
        """A run comes to its question."""

    @abstractmethod
    def go_on(self, thread: str, *, yes: bool = False) -> Any:
        """A run goes on, with an answer or without one. Returns what it paid, or None."""

    @abstractmethod
    def parent(self, thread: str) -> str:
        """A reader asks which checkpoint the newest came from."""

    @abstractmethod
    def metadata(self, thread: str) -> Any:
        """A reader asks for the metadata of the newest."""

    # What the adversary does, who can write the store.

    @abstractmethod
    def answer(self, thread: str) -> Any:
        """Take the answer that a person gave out of a thread."""

    @abstractmethod
    def give(self, thread: str, answer: Any, *, forged: bool) -> None:
        """Put an answer into a thread: a genuine one of another thread, or one of one's own."""

    @abstractmethod
    def drop(self, thread: str) -> None:
        """Take out what the task that reserves has written."""

    @abstractmethod
    def attach(self, thread: str) -> None:
        """Say that the task that asks has written it."""

    @abstractmethod
    def reparent(self, thread: str) -> str:
        """Let the newest checkpoint come from the first one, and return that one's id."""

    @abstractmethod
    def remark(self, thread: str) -> None:
        """Let the metadata of the newest name the user mally."""

    @abstractmethod
    def retag(self, thread: str) -> None:
        """Change the tag that says of which type the limit is."""


class Sealed(Run, SealedTarget):
    """A store on a ledger with an anchor, in files that the adversary can write."""

    refusals = (CheckpointError, Nothing)
    user = ""

    def client(self, name: str) -> Self:
        """Let the server say whose request it is, as the adapters ask for it."""
        other = self.on(self.medium)
        other.user = name
        return other

    def open(self, kind: Callable[..., _T]) -> _T:
        """Open the ledger, for whoever is logged in."""
        return self.use(partial(kind, tenant=(lambda: self.user) if self.user else None))

    def document(self, name: str) -> Any:
        """Return the state that a record holds, its extension types as they are."""
        return _unpacked(self.medium.read(name).split(b"\n", 2)[2])

    def put(self, name: str, document: Any) -> None:
        """Write another state into a record."""
        self.fill(name, packb(document))

    def fill(self, name: str, payload: bytes) -> None:
        """Write other bytes into a record, and mend what can be mended without the key."""
        line_1, line_2, _ = self.medium.read(name).split(b"\n", 2)
        header = Header.parse(line_2)
        if header is None:
            raise Miss
        mended = line_2.replace(header.digest.encode(), digest_of(payload).encode())
        self.medium.write(name, b"\n".join((line_1, mended, payload)))

    def append(
        self, thread: str, payload: bytes, key: SigningKey, label: str | None = None
    ) -> None:
        """Write a record of one's own after the last, like the last in all else."""
        name = SealedTarget.records(self, thread)[-1]
        line = self.medium.read(name).split(b"\n", 2)[1]
        last = Header.parse(line)
        if last is None:
            raise Miss
        record, _ = seal(
            payload,
            Place(self.store, last.tenant, thread, last.sequence + 1),
            key,
            created=datetime.now(UTC),
            kind=last.kind if label is None else "note",
            previous=digest_of(line),
            app=last.app,
            label=last.label if label is None else label,
        )
        self.medium.write(self.place(thread, last.sequence + 1), record)

    def smuggle(self, thread: str, payload: bytes) -> None:
        """Seal it with the genuine key, in the place of the state in the newest record."""
        record = self.medium.read(SealedTarget.records(self, thread)[-1]).split(b"\n", 2)[2]
        if packb(HONEST) not in record:
            raise Miss
        self.append(thread, record.replace(packb(HONEST), payload), self.keys.signing)

    def retag(self, thread: str) -> None:
        """Change the codec's tag, where the state has it last."""
        for name in reversed(SealedTarget.records(self, thread)):
            payload = self.medium.read(name).split(b"\n", 2)[2]
            if b"\x02100" in payload:  # the code of a Decimal, and its text
                self.fill(name, payload.replace(b"\x02100", b"\x07100"))
                return
        raise Miss


def _unpacked(payload: bytes) -> Any:
    return unpackb(payload, ext_hook=Ext)


# --- Agent Framework


class Payment(af.Executor):
    """Asks a person, and pays."""

    @af.handler
    async def ask(self, amount: int, ctx: af.WorkflowContext) -> None:
        """Keep what is asked in the state."""
        ctx.set_state("order", {"amount": amount, "limit": LIMIT})
        await ctx.request_info("Pay?", bool, request_id="pay")

    @af.response_handler
    async def pay(self, asked: str, yes: bool, ctx: af.WorkflowContext[None, int]) -> None:
        """Pay what the state says."""
        order = ctx.get_state("order")
        if yes and order["amount"] <= order["limit"]:
            await ctx.yield_output(order["amount"])


class Agents(Run):
    """A workflow of Agent Framework on some storage. A thread is the name of a workflow."""

    @abstractmethod
    def storage(self) -> Any:
        """Open the storage."""

    @abstractmethod
    def document(self, name: str) -> Any:
        """Return the JSON in a record."""

    @abstractmethod
    def put(self, name: str, document: Any) -> None:
        """Write other JSON into a record."""

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Save under an id that the application made of the thread's name."""
        checkpoint = af.WorkflowCheckpoint(
            workflow_name=thread,
            graph_signature_hash="",
            state=state,
            checkpoint_id=f"{thread}.{len(self.records(thread)) + 1:04}",
        )
        self._ask(lambda storage: storage.save(checkpoint))

    def latest(self, thread: str) -> Any:
        """Ask for the latest, as a worker does that resumes."""
        return self._newest(thread).state

    def history(self, thread: str) -> list[Any]:
        """List them all."""
        found = self._ask(lambda storage: storage.list_checkpoints(workflow_name=thread))
        return [each.state for each in sorted(found, key=lambda each: str(each.timestamp))]

    def load(self, thread: str, sequence: int) -> Any:
        """Load by id."""
        return self._ask(lambda storage: storage.load(f"{thread}.{sequence:04}")).state

    def pause(self, thread: str, order: dict[str, Any] = HONEST) -> None:
        """Run up to the request."""
        self._ask(lambda storage: _payments(thread, storage).run(order["amount"]))

    def go_on(self, thread: str, *, yes: bool = False) -> Any:
        """Resume from the newest checkpoint."""
        known, said = self._newest(thread).checkpoint_id, {"pay": True} if yes else None

        def resume(storage: Any) -> Any:
            return _payments(thread, storage).run(checkpoint_id=known, responses=said)

        try:
            return next(iter(self._ask(resume).get_outputs()), None)
        except RuntimeError as refusal:  # no such request: `get_latest` went back to an older one
            raise Nothing from refusal

    def parent(self, thread: str) -> str:
        """Return what the newest names."""
        return str(self._newest(thread).previous_checkpoint_id)

    def metadata(self, thread: str) -> Any:
        """Return what the newest holds."""
        return self._newest(thread).metadata

    def answer(self, thread: str) -> Any:
        """Take the messages of the checkpoint in which it was delivered, the last but one."""
        return self._held(thread)[-2][1]["messages"]

    def give(self, thread: str, answer: Any, *, forged: bool) -> None:
        """Let them be the messages of the newest."""
        self._set(thread, messages=answer)

    def drop(self, thread: str) -> None:
        """Miss: what is pending is part of the one state."""
        raise Miss

    attach = drop

    def reparent(self, thread: str) -> str:
        """Set the field."""
        first = str(self._held(thread)[0][1]["checkpoint_id"])
        self._set(thread, previous_checkpoint_id=first)
        return first

    def remark(self, thread: str) -> None:
        """Set the field."""
        self._set(thread, metadata={"user": "mally"})

    def _held(self, thread: str) -> list[tuple[str, Any]]:
        found = [(name, self.document(name)) for name in self._names(thread)]
        mine = [each for each in found if each[1]["workflow_name"] == thread]
        return sorted(mine, key=lambda each: str(each[1]["timestamp"]))

    def _names(self, thread: str) -> list[str]:
        return self.records(thread)

    def _set(self, thread: str, **fields: Any) -> None:
        name, document = self._held(thread)[-1]
        self.put(name, {**document, **fields})

    def _newest(self, thread: str) -> Any:
        found = self._ask(lambda storage: storage.get_latest(workflow_name=thread))
        if found is None:
            raise Nothing
        return found

    def _ask(self, what: Callable[[Any], Any]) -> Any:
        async def answer() -> Any:
            return await what(self.storage())

        try:
            return asyncio.run(answer())
        except af.WorkflowCheckpointException as refusal:
            raise Nothing from refusal
        except NotCheckpointed as stop:
            raise Nothing from stop


def _payments(thread: str, storage: Any) -> Any:
    start = Payment("payment")
    return af.WorkflowBuilder(name=thread, start_executor=start, checkpoint_storage=storage).build()


class AgentFramework(Agents):
    """`FileCheckpointStorage` of agent-framework-core."""

    name = "agent-framework"
    refusals = (Nothing,)

    def storage(self) -> Any:
        """Open the folder."""
        return af.FileCheckpointStorage(self.path)

    def document(self, name: str) -> Any:
        """Parse a file."""
        return json.loads(self.medium.read(name))

    def put(self, name: str, document: Any) -> None:
        """Write a file."""
        self.medium.write(name, json.dumps(document).encode())

    def records(self, thread: str) -> list[str]:
        """Return its files."""
        return sorted(name for name in self.medium.names() if _is_of(name, thread))

    def _names(self, thread: str) -> list[str]:
        return self.medium.names()  # a run names them at random

    def place(self, thread: str, sequence: int) -> str:
        """Return the name of a file."""
        return f"{thread}.{sequence:04}.json"

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Put another state into the file."""
        if trick != "best":
            raise Miss
        return json.dumps({**json.loads(record), "state": json.loads(payload)}).encode()

    def relink(self, thread: str) -> None:
        """Let each file name the workflow, the id and the time that fit its place."""
        for number, name in enumerate(self.records(thread)):
            try:
                record = self.document(name)
            except ValueError:
                continue
            record |= {
                "workflow_name": thread,
                "checkpoint_id": name.removesuffix(".json"),
                "timestamp": (datetime.now(UTC) + timedelta(seconds=number)).isoformat(),
            }
            self.put(name, record)

    def pickled(self, pickle: bytes, type_name: str) -> bytes:
        """Use the mark that the package itself writes."""
        state = {"__pickled__": base64.b64encode(pickle).decode(), "__type__": type_name}
        record = self.medium.read(self.records("victim")[-1])
        return self.forge(record, json.dumps(state).encode())

    def retag(self, thread: str) -> None:
        """Change the mark beside the pickle."""
        name, document = self._held(thread)[-1]
        text = json.dumps(document).replace('"decimal:Decimal"', '"builtins:float"')
        self.put(name, json.loads(text))


def _is_of(name: str, thread: str) -> bool:
    return name.rsplit(".", 2)[::2] == [thread, "json"]


class AgentFrameworkSealed(Agents, Sealed):
    """`SealedCheckpointStorage` of this guide, in the same workflow."""

    name = "agent-framework-sealed"
    document, put = Sealed.document, Sealed.put

    def storage(self) -> Any:
        """Open the ledger."""
        return self.open(SealedCheckpointStorage)


# --- LangGraph


class State(TypedDict, total=False):
    """The state of the victim's graphs."""

    order: dict[str, Any]
    limit: Decimal
    paid: int


class Graphs(Run):
    """Graphs of LangGraph on some saver."""

    @abstractmethod
    def saver(self) -> AbstractContextManager[Any]:
        """Open the saver."""

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Let a step set the state."""
        with self._graph() as graph:
            graph.update_state(_config(thread), {"order": state}, as_node="step")

    def latest(self, thread: str) -> Any:
        """Ask for the state, as a worker does that resumes."""
        with self._graph() as graph:
            values = graph.get_state(_config(thread)).values
        if "order" not in values:
            raise Nothing
        return values["order"]

    def history(self, thread: str) -> list[Any]:
        """Ask for the history."""
        with self._graph() as graph:
            found = list(graph.get_state_history(_config(thread)))
        return [each.values["order"] for each in reversed(found)]

    def pause(self, thread: str, order: dict[str, Any] = HONEST) -> None:
        """Run up to the interrupt."""
        self._invoke(thread, {"order": order})

    def go_on(self, thread: str, *, yes: bool = False) -> Any:
        """Resume from the newest checkpoint."""
        return self._invoke(thread, Command(resume=True) if yes else None).get("paid")

    def parent(self, thread: str) -> str:
        """Return what the newest names."""
        with self._graph() as graph:
            found = graph.get_state(_config(thread)).parent_config
        return str(found and found["configurable"]["checkpoint_id"])

    def metadata(self, thread: str) -> Any:
        """Return what the newest holds."""
        with self._graph() as graph:
            return graph.get_state(_config(thread)).metadata

    def _invoke(self, thread: str, what: Any) -> Any:
        """Run the payment: two tasks side by side, of which one asks, and then a third."""

        def reserve(state: State) -> State:
            self.reserved.append(thread)
            return {"limit": LIMIT}

        def ask(state: State) -> None:
            if not interrupt(state["order"]):
                raise ValueError

        def pay(state: State) -> State:
            amount, limit = state["order"]["amount"], state.get("limit")
            return {} if limit and amount > limit else {"paid": amount}

        builder = StateGraph(State)
        for node in (reserve, ask):
            builder.add_node(node)
            builder.add_edge(START, node.__name__)
            builder.add_edge(node.__name__, "pay")
        builder.add_node(pay)
        config: Any = _config(thread) | {"metadata": {"user": "alice"}}
        with self.saver() as saver:
            return builder.compile(checkpointer=saver).invoke(what, config, durability="sync")

    @contextmanager
    def _graph(self) -> Iterator[Any]:
        builder = StateGraph(State)
        builder.add_node("step", lambda state: state)
        builder.add_edge(START, "step")
        builder.add_edge("step", END)
        with self.saver() as saver:
            yield builder.compile(checkpointer=saver)


class Rows(Medium):
    """The rows of `SqliteSaver`, in the hands of somebody who can write the file.

    A record is the type tag, a line break and the bytes; its name is `thread/checkpoint id`.

    Attributes:
        writes: the table of pending writes.
        value: the column of their bytes.
    """

    writes, value = "writes", "value"

    def __init__(self, path: Path) -> None:
        self.path = path
        with SqliteSaver.from_conn_string(str(path)) as saver:
            saver.setup()

    def names(self) -> list[str]:
        """Return every row."""
        query = "select thread_id || '/' || checkpoint_id from checkpoints order by checkpoint_id"
        return [name for (name,) in self.ask(query)]

    def _read(self, name: str) -> bytes:
        query = "select type, checkpoint from checkpoints where thread_id = ? and checkpoint_id = ?"
        [(kind, record)] = self.ask(query, *name.split("/"))
        return f"{kind}\n".encode() + bytes(record)

    def write(self, name: str, data: bytes) -> None:
        """Write over a row."""
        kind, _, record = data.partition(b"\n")
        query = (
            "update checkpoints set type = ?, checkpoint = ?"
            " where thread_id = ? and checkpoint_id = ?"
        )
        self.ask(query, kind.decode(), record, *name.split("/"))

    def delete(self, name: str) -> None:
        """Delete a row, and what was written for the step after it."""
        for table in ("checkpoints", self.writes):
            query = f"delete from {table} where thread_id = ? and checkpoint_id = ?"  # noqa: S608
            self.ask(query, *name.split("/"))

    def beside(self) -> Rows:
        """Return a new file next to this one."""
        return Rows(self.path.with_name(f"{secrets.token_hex(4)}.sqlite"))

    def restore(self, snapshot: Medium) -> None:
        """Put a copy of the file in its place."""
        assert isinstance(snapshot, Rows)
        with (
            closing(sqlite3.connect(snapshot.path)) as old,
            closing(sqlite3.connect(self.path)) as new,
        ):
            old.backup(new)

    def ask(self, query: str, *values: Any) -> list[Any]:
        """Run a statement."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(query, values).fetchall()


class LangGraph(Graphs):
    """A graph of LangGraph with `SqliteSaver`, as it is made."""

    name = "langgraph"
    medium: Rows

    # What unpackb and loads_typed raise for what they do not decode, and what a cipher raises.
    refusals: ClassVar[tuple[type[Exception], ...]] = (
        Nothing,
        NotImplementedError,
        ValueError,
        InvalidTag,
    )

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium or Rows(Path(folder, "checkpoints.sqlite")))

    def serializer(self) -> Any:
        """Return what the saver is given, or None."""
        return None

    @contextmanager
    def saver(self) -> Iterator[Any]:
        """Open the file."""
        with closing(sqlite3.connect(self.medium.path, check_same_thread=False)) as connection:
            yield SqliteSaver(connection, serde=self.serializer())

    def records(self, thread: str) -> list[str]:
        """Return its rows."""
        return [name for name in self.medium.names() if name.startswith(f"{thread}/")]

    def edit(self, record: bytes, old: bytes, new: bytes) -> bytes:
        """Replace the word; where it cannot be seen, change bits in the middle."""
        if old in record:
            return record.replace(old, new)
        middle = len(record) // 2
        changed = bytes(a ^ b ^ c for a, b, c in zip(record[middle:], old, new, strict=False))
        return record[:middle] + changed + record[middle + len(changed) :]

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Write a checkpoint of one's own, in the clear: it takes nothing but the package."""
        if trick != "best":
            raise Miss
        return _row(self.stored(json.loads(payload)))

    def stored(self, state: Any) -> Any:
        """Return what a record of this saver holds."""
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"order": state}
        checkpoint["channel_versions"] = {"order": "2"}
        return checkpoint

    def pickled(self, pickle: bytes, type_name: str) -> bytes:
        """Change the tag of the row.

        Raises:
            Miss: the pickle calls nothing, and only names a class. `smuggle` does that better.
        """
        if not pickle.endswith(b"R."):
            raise Miss
        return b"pickle\n" + pickle

    def smuggle(self, thread: str, payload: bytes) -> None:
        """Name a class as the package itself does, where the payload names one."""
        self.save(thread, {})
        name = self.records(thread)[-1]
        self.medium.write(name, _row(self.stored(_spelled(json.loads(payload)))))

    def answer(self, thread: str) -> Any:
        """Take the row that `Command(resume=…)` left."""
        columns = f"task_id, idx, channel, type, {self.medium.value}"
        query = f"select {columns} from {self.medium.writes}"  # noqa: S608
        where = " where thread_id = ? and channel = '__resume__' order by task_id"
        return self.medium.ask(query + where, thread)[0]

    def give(self, thread: str, answer: Any, *, forged: bool) -> None:
        """Insert it for the newest checkpoint."""
        columns = "thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type"
        self.medium.ask(
            f"insert into {self.medium.writes} ({columns}, {self.medium.value})"  # noqa: S608
            " values (?, '', ?, ?, ?, ?, ?, ?)",
            *self.records(thread)[-1].split("/"),
            *answer,
        )

    def drop(self, thread: str) -> None:
        """Delete its rows."""
        tasks = self._task("limit")
        query = f"delete from {self.medium.writes} where task_id in ({tasks})"  # noqa: S608
        self.medium.ask(query, thread)

    def attach(self, thread: str) -> None:
        """Change the id of the task in the row that says what comes next. The limit stays."""
        asks = self._task("__interrupt__")
        self._update(f"task_id = ({asks})", "branch:to:pay", thread, thread)

    def retag(self, thread: str) -> None:
        """Say that there is no value."""
        self._update("type = 'null'", "limit", thread)

    def reparent(self, thread: str) -> str:
        """Set the column."""
        names = [name.partition("/")[2] for name in self.records(thread)]
        query = "update checkpoints set parent_checkpoint_id = ? where checkpoint_id = ?"
        self.medium.ask(query, names[0], names[-1])
        return names[0]

    def remark(self, thread: str) -> None:
        """Edit the column."""
        newest = self.records(thread)[-1].partition("/")[2]
        query = "select metadata from checkpoints where checkpoint_id = ?"
        [(metadata,)] = self.medium.ask(query, newest)
        parsed = metadata if isinstance(metadata, dict) else json.loads(metadata)
        edited = json.dumps({**parsed, "user": "mally"})
        query = "update checkpoints set metadata = ? where checkpoint_id = ?"
        self.medium.ask(query, edited if parsed is metadata else edited.encode(), newest)

    def _update(self, what: str, channel: str, *threads: str) -> None:
        query = f"update {self.medium.writes} set {what}"  # noqa: S608
        self.medium.ask(f"{query} where channel = '{channel}' and thread_id = ?", *threads)

    def _task(self, channel: str) -> str:
        """Return what finds the task of a thread that wrote to a channel."""
        query = f"select task_id from {self.medium.writes}"  # noqa: S608
        return f"{query} where channel = '{channel}' and thread_id = ?"


class LangGraphStrict(LangGraph):
    """The same, with the strict allow-list of types."""

    name = "langgraph-strict"

    def serializer(self) -> Any:
        """Return what `LANGGRAPH_STRICT_MSGPACK=true` makes the default."""
        return JsonPlusSerializer(allowed_msgpack_modules=None)


class LangGraphEncrypted(LangGraph):
    """The same, strict and encrypted with AES-GCM."""

    name = "langgraph-encrypted"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self._key = AESGCM.generate_key(256)

    def stranger(self) -> Run:
        """Leave the encryption out."""
        (self.folder / "stranger").mkdir()
        return LangGraphStrict(self.folder / "stranger")

    def serializer(self) -> Any:
        """Return its EncryptedSerializer around the strict one."""
        return EncryptedSerializer(
            _Cipher(self._key), JsonPlusSerializer(allowed_msgpack_modules=None)
        )


class _Cipher:
    """What `from_pycryptodome_aes` makes, on another library: a nonce, a tag, no context."""

    def __init__(self, key: bytes) -> None:
        self._aes = AESGCM(key)

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        nonce = secrets.token_bytes(12)
        return "aes", nonce + self._aes.encrypt(nonce, plaintext, None)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        if ciphername != "aes":
            raise NotImplementedError
        return self._aes.decrypt(ciphertext[:12], ciphertext[12:], None)


class Tables(Rows):
    """The tables of `PostgresSaver`, in a database of their own on a server that runs.

    A record is the type tag and the bytes of the state that a checkpoint names.
    """

    writes, value = "checkpoint_writes", "blob"

    def __init__(self, server: Server, template: str | None = None) -> None:
        self.server, self.database = server, f"graphs_{secrets.token_hex(8)}"
        server.database(self.database, template=template)
        with PostgresSaver.from_conn_string(self.dsn) as saver:
            saver.setup()

    @property
    def dsn(self) -> str:
        """Who owns the database."""
        return self.server.dsn(database=self.database)

    _named = (
        " from checkpoints c where b.thread_id = c.thread_id and b.channel = 'order' and b.version"
        " = c.checkpoint->'channel_versions'->>'order' and c.thread_id = ? and c.checkpoint_id = ?"
    )

    def _read(self, name: str) -> bytes:
        query = "select b.type, b.blob from checkpoint_blobs b, checkpoints c"
        where = self._named.partition(" where ")[2]
        [(kind, record)] = self.ask(f"{query} where {where}", *name.split("/"))
        return f"{kind}\n".encode() + bytes(record)

    def write(self, name: str, data: bytes) -> None:
        """Write over the state."""
        kind, _, record = data.partition(b"\n")
        query = f"update checkpoint_blobs b set type = ?, blob = ?{self._named}"  # noqa: S608
        self.ask(query, kind.decode(), record, *name.split("/"))

    def copy(self) -> Tables:
        """Copy the database."""
        return Tables(self.server, template=self.database)

    def restore(self, snapshot: Medium) -> None:
        """Put a copy of the database in its place."""
        assert isinstance(snapshot, Tables)
        self.server.psql(f"drop database {self.database} with (force)")
        self.server.database(self.database, template=snapshot.database)

    def ask(self, query: str, *values: Any) -> list[Any]:
        """Run a statement."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            done = connection.execute(query.replace("?", "%s").encode(), values)
            return done.fetchall() if done.description else []


class LangGraphPostgres(LangGraph):
    """`PostgresSaver`, as it is made.

    Attributes:
        server: where it is. It has to run.
    """

    name = "langgraph-postgres"
    server: ClassVar[Server]
    medium: Tables

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium or Tables(self.server))

    @contextmanager
    def saver(self) -> Iterator[Any]:
        """Connect."""
        with PostgresSaver.from_conn_string(self.medium.dsn) as saver:
            yield saver

    def stored(self, state: Any) -> Any:
        """Return the state: it lies beside the checkpoint."""
        return state


class Steps(Disk):
    """Files of a `SealedSaver`. Who deletes a checkpoint deletes what was written for it."""

    def delete(self, name: str) -> None:
        """Delete a record, and the notes after it."""
        names = self.names()
        super().delete(name)
        for after in names[names.index(name) + 1 :]:
            if b'"kind":"note"' not in self._read(after):
                return
            super().delete(after)


class LangGraphSealed(Graphs, Sealed):
    """`SealedSaver` of this guide, in the same graphs."""

    name = "langgraph-sealed"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium or Steps(Path(folder, "store")))

    def saver(self) -> AbstractContextManager[Any]:
        """Open the ledger."""
        return nullcontext(self.open(SealedSaver))

    def records(self, thread: str) -> list[str]:
        """Return those of checkpoints."""
        return [
            name
            for name in super().records(thread)
            if b'"kind":"note"' not in self.medium.read(name)
        ]

    def answer(self, thread: str) -> Any:
        """Take the record of the answer."""
        return self.medium.read(self._wrote(thread, "__resume__")[0])

    def give(self, thread: str, answer: Any, *, forged: bool) -> None:
        """Append it: as it is, or made to fit and signed with a key of one's own."""
        newest = self.document(self.records(thread)[-1])["id"]
        if forged:
            said = _unpacked(answer.split(b"\n", 2)[2])
            payload = packb({**said, "thread": thread, "id": newest})
            self.append(thread, payload, SigningKey.generate(), label=f"w/{newest}")
        else:
            number = len(SealedTarget.records(self, thread)) + 1
            self.medium.write(self.place(thread, number), answer)

    def drop(self, thread: str) -> None:
        """Delete the record, and close the gap."""
        names = SealedTarget.records(self, thread)
        index = names.index(self._wrote(thread, "limit")[0])
        for free, name in zip(names[index:], names[index + 1 :], strict=False):
            self.medium.rename(name, free)
        if index == len(names) - 1:
            self.medium.delete(names[index])

    def attach(self, thread: str) -> None:
        """Copy what comes next into the record of the task that asks."""
        name, asks = self._wrote(thread, "__interrupt__")
        wrote = self._wrote(thread, "limit")[1]["writes"]
        moved = [row for row in wrote if row[1] == "branch:to:pay"]
        self.put(name, {**asks, "writes": [*asks["writes"], *moved]})

    def reparent(self, thread: str) -> str:
        """Edit the record."""
        first, *_, newest = self.records(thread)
        ident = self.document(first)["id"]
        self.put(newest, {**self.document(newest), "parent": ident})
        return str(ident)

    def remark(self, thread: str) -> None:
        """Edit the record."""
        newest = self.records(thread)[-1]
        document = self.document(newest)
        self.put(newest, {**document, "metadata": {**document["metadata"], "user": "mally"}})

    def _wrote(self, thread: str, channel: str) -> tuple[str, Any]:
        """Return the record of a task that wrote to a channel."""
        for name in SealedTarget.records(self, thread):
            document = self.document(name)
            if channel in {row[1] for row in document.get("writes", ())}:
                return name, document
        raise Miss


def _config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}}


def _row(held: Any) -> bytes:
    kind, record = JsonPlusSerializer().dumps_typed(held)
    return f"{kind}\n".encode() + record


def _spelled(state: Any) -> Any:
    """Return an object of the class that `__type__` names, which need not exist here."""
    if not isinstance(state, dict) or "__type__" not in state or "__pickled__" in state:
        return state
    module, _, name = state["__type__"].partition(":")
    kind = make_dataclass(name, [])
    kind.__module__ = module
    return kind()
