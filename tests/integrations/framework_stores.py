"""Stores of other projects as targets of our attacks: real packages, used as their guides say.

Where a store can be judged in two ways, it is judged kindly. An error that stops the load counts
as a refusal, whatever it was meant for, and so does a store that says that it has nothing.
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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict, TypeVar

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
from ormsgpack import packb

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


class Nothing(Exception):
    """The store says that it has no checkpoint, and the victim knows that there was one."""


class Sealed(SealedTarget):
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

    def smuggle(self, thread: str, payload: bytes) -> None:
        """Seal it with the genuine key, in the place of the state in the newest record."""
        name = SealedTarget.records(self, thread)[-1]
        _, line, state = self.medium.read(name).split(b"\n", 2)
        last = Header.parse(line)
        if last is None or packb(HONEST) not in state:
            raise Miss
        record, _ = seal(
            state.replace(packb(HONEST), payload),
            Place(self.store, last.tenant, thread, last.sequence + 1),
            self.keys.signing,
            created=datetime.now(UTC),
            kind=last.kind,
            previous=digest_of(line),
            app=last.app,
            label=last.label,
        )
        self.medium.write(self.place(thread, last.sequence + 1), record)


# --- Agent Framework


class Agents(Target):
    """A workflow of Agent Framework on some storage. A thread is the name of a workflow."""

    @abstractmethod
    def storage(self) -> Any:
        """Open the storage."""

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


def _is_of(name: str, thread: str) -> bool:
    return name.rsplit(".", 2)[::2] == [thread, "json"]


class AgentFrameworkSealed(Agents, Sealed):
    """`SealedCheckpointStorage` of this guide, in the same workflow."""

    name = "agent-framework-sealed"

    def storage(self) -> Any:
        """Open the ledger."""
        return self.open(SealedCheckpointStorage)


# --- LangGraph


class State(TypedDict, total=False):
    """The state of the victim's graphs."""

    order: dict[str, Any]


class Graphs(Target):
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
    """

    writes = "writes"

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

    writes = "checkpoint_writes"

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
