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
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import make_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from safepoint.attacks import Target
from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import Miss
from safepoint.attacks.target import Trick


class Nothing(Exception):
    """The store says that it has no checkpoint, and the victim knows that there was one."""


class AgentFramework(Target):
    """`FileCheckpointStorage` of agent-framework-core. A thread is the name of a workflow."""

    name = "agent-framework"
    refusals = (Nothing,)

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        import agent_framework

        super().__init__(folder, medium)
        self.package = agent_framework

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Save under an id that the application made of the thread's name."""
        checkpoint = self.package.WorkflowCheckpoint(
            workflow_name=thread,
            graph_signature_hash="",
            state=state,
            checkpoint_id=f"{thread}.{len(self.records(thread)) + 1:04}",
        )
        self._ask(lambda storage: storage.save(checkpoint))

    def latest(self, thread: str) -> Any:
        """Ask for the latest, as a worker does that resumes."""
        return self._found(self._ask(lambda storage: storage.get_latest(workflow_name=thread)))

    def history(self, thread: str) -> list[Any]:
        """List them all."""
        found = self._ask(lambda storage: storage.list_checkpoints(workflow_name=thread))
        return [each.state for each in sorted(found, key=lambda each: each.timestamp)]

    def load(self, thread: str, sequence: int) -> Any:
        """Load by id."""
        return self._found(self._ask(lambda storage: storage.load(f"{thread}.{sequence:04}")))

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
                record = json.loads(self.medium.read(name))
            except ValueError:
                continue
            record |= {
                "workflow_name": thread,
                "checkpoint_id": name.removesuffix(".json"),
                "timestamp": (datetime.now(UTC) + timedelta(seconds=number)).isoformat(),
            }
            self.medium.write(name, json.dumps(record).encode())

    def pickled(self, pickle: bytes, type_name: str) -> bytes:
        """Use the mark that the package itself writes."""
        state = {"__pickled__": base64.b64encode(pickle).decode(), "__type__": type_name}
        record = self.medium.read(self.records("victim")[-1])
        return self.forge(record, json.dumps(state).encode())

    def _ask(self, what: Any) -> Any:
        async def answer() -> Any:
            return await what(self.package.FileCheckpointStorage(self.path))

        try:
            return asyncio.run(answer())
        except self.package.WorkflowCheckpointException as refusal:
            raise Nothing from refusal

    @staticmethod
    def _found(checkpoint: Any) -> Any:
        if checkpoint is None:
            raise Nothing
        return checkpoint.state


def _is_of(name: str, thread: str) -> bool:
    return name.rsplit(".", 2)[::2] == [thread, "json"]


class Rows(Medium):
    """The rows of `SqliteSaver`, in the hands of somebody who can write the file.

    A record is the type tag, a line break and the bytes; its name is `thread/checkpoint id`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(str(path)) as saver:
            saver.setup()

    def names(self) -> list[str]:
        """Return every row."""
        query = "select thread_id || '/' || checkpoint_id from checkpoints order by checkpoint_id"
        return [name for (name,) in self._ask(query)]

    def _read(self, name: str) -> bytes:
        query = "select type, checkpoint from checkpoints where thread_id = ? and checkpoint_id = ?"
        [(kind, record)] = self._ask(query, *name.split("/"))
        return f"{kind}\n".encode() + bytes(record)

    def write(self, name: str, data: bytes) -> None:
        """Write over a row."""
        kind, _, record = data.partition(b"\n")
        query = (
            "update checkpoints set type = ?, checkpoint = ?"
            " where thread_id = ? and checkpoint_id = ?"
        )
        self._ask(query, kind.decode(), record, *name.split("/"))

    def delete(self, name: str) -> None:
        """Delete a row, and what was written for the step after it."""
        for table in ("checkpoints", "writes"):
            query = f"delete from {table} where thread_id = ? and checkpoint_id = ?"  # noqa: S608
            self._ask(query, *name.split("/"))

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

    def _ask(self, query: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(query, values).fetchall()


class State(TypedDict):
    """The state of the victim's graph."""

    order: dict[str, Any]


class LangGraph(Target):
    """A graph of LangGraph with `SqliteSaver`, as it is made."""

    name = "langgraph"

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
        return _row(json.loads(payload))

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
        self.medium.write(name, _row(_spelled(json.loads(payload))))

    @contextmanager
    def _graph(self) -> Iterator[Any]:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import END, START, StateGraph

        assert isinstance(self.medium, Rows)
        builder = StateGraph(State)
        builder.add_node("step", lambda state: state)
        builder.add_edge(START, "step")
        builder.add_edge("step", END)
        with closing(sqlite3.connect(self.medium.path, check_same_thread=False)) as connection:
            saver = SqliteSaver(connection, serde=self.serializer())
            yield builder.compile(checkpointer=saver)


class LangGraphStrict(LangGraph):
    """The same, with the strict allow-list of types."""

    name = "langgraph-strict"

    def serializer(self) -> Any:
        """Return what `LANGGRAPH_STRICT_MSGPACK=true` makes the default."""
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

        return JsonPlusSerializer(allowed_msgpack_modules=None)


class LangGraphEncrypted(LangGraph):
    """The same, strict and encrypted with AES-GCM."""

    name = "langgraph-encrypted"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self._key = AESGCM.generate_key(256)

    def serializer(self) -> Any:
        """Return its EncryptedSerializer around the strict one."""
        from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

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


def _config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}}


def _row(state: Any) -> bytes:
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"order": state}
    checkpoint["channel_versions"] = {"order": "2"}
    kind, record = JsonPlusSerializer().dumps_typed(checkpoint)
    return f"{kind}\n".encode() + record


def _spelled(state: Any) -> Any:
    """Return an object of the class that `__type__` names, which need not exist here."""
    if not isinstance(state, dict) or "__type__" not in state or "__pickled__" in state:
        return state
    module, _, name = state["__type__"].partition(":")
    kind = make_dataclass(name, [])
    kind.__module__ = module
    return kind()
