"""Stores as their users have them, each opened in a folder: what `safepoint attack` is aimed at.

An adversary can write the folder. What is beside it they cannot: keys and anchors are there. A
framework is imported by whoever opens its store: it takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
)
from safepoint.attacks import Target
from safepoint.attacks.home_made import MacPlaceTarget
from safepoint.attacks.naive import NaiveLedger

_KEY = secrets.token_bytes(32)


class Naive:
    """The unsafe twin."""

    def __init__(self, folder: Path) -> None:
        self._ledger = NaiveLedger(folder)

    def save(self, thread: str, state: dict[str, Any]) -> None:
        self._ledger.save(thread, state)

    def load(self, thread: str) -> Any:
        return self._ledger.latest(thread).state


class Pickles:
    """One pickle per thread, written over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, thread: str, state: dict[str, Any]) -> None:
        Path(self.folder, thread).write_bytes(pickle.dumps(state))

    def load(self, thread: str) -> Any:
        return pickle.loads(Path(self.folder, thread).read_bytes())


class PickleRows:
    """Pickles in a table without a rowid, which a trigger is to protect."""

    def __init__(self, folder: Path) -> None:
        self._rows = sqlite3.connect(folder / "my state.db")
        self._rows.executescript(
            'CREATE TABLE IF NOT EXISTS "my states" ("the thread" TEXT, n INT, state,'
            ' PRIMARY KEY ("the thread", n)) WITHOUT ROWID;'
            'CREATE TRIGGER IF NOT EXISTS "no edits" BEFORE UPDATE ON "my states"'
            " BEGIN SELECT RAISE(ABORT, 'no'); END"
        )

    def save(self, thread: str, state: dict[str, Any]) -> None:
        count = 'SELECT count(*) FROM "my states"'
        ((number,),) = self._rows.execute(count).fetchall()
        row = (thread, number, pickle.dumps(state))
        self._rows.execute('INSERT INTO "my states" VALUES (?, ?, ?)', row)
        self._rows.commit()

    def load(self, thread: str) -> Any:
        query = 'SELECT state FROM "my states" WHERE "the thread" = ? ORDER BY n DESC LIMIT 1'
        found = self._rows.execute(query, (thread,)).fetchone()
        return found and pickle.loads(found[0])

    def close(self) -> None:
        self._rows.close()


class MacPlace:
    """A home-made HMAC over the place and the state, as the ladder has it."""

    def __init__(self, folder: Path) -> None:
        self._rung = MacPlaceTarget(folder.parent)
        self._rung.keys = [_KEY]

    def save(self, thread: str, state: dict[str, Any]) -> None:
        self._rung.save(thread, state)

    def load(self, thread: str) -> Any:
        return self._rung.latest(thread)


class Sealed:
    """A ledger in files, with an anchor."""

    def __init__(self, folder: Path) -> None:
        self.ledger = ledger_in(folder, FileCheckpointStorage(folder))

    def save(self, thread: str, state: dict[str, Any]) -> None:
        self.ledger.save(thread, state)

    def load(self, thread: str) -> Any:
        return self.ledger.latest(thread).state

    def delete(self, thread: str) -> None:
        self.ledger.delete(thread)


@contextmanager
def sealed_sqlite(folder: Path) -> Iterator[Sealed]:
    """The same in SQLite: a context manager is entered and left."""
    with SQLiteCheckpointStorage(folder / "checkpoints.db") as storage:
        store = Sealed.__new__(Sealed)
        store.ledger = ledger_in(folder, storage)
        yield store


def ledger_in(folder: Path, storage: Any) -> Ledger:
    key = SigningKey.from_file(folder.parent / "writer.key", create=True)
    anchor = SQLiteAnchor(folder.parent / "anchor/heads.db", create=True)
    return Ledger(storage, store="invoices", keys=Keyring(key), anchor=anchor)


class Graphs:
    """A graph of LangGraph on a saver."""

    def __init__(self, saver: Any) -> None:
        from langgraph.graph import START, StateGraph

        class State(TypedDict, total=False):
            order: dict[str, Any]

        builder = StateGraph(State)
        builder.add_node("step", lambda state: state)
        builder.add_edge(START, "step")
        self._graph = builder.compile(checkpointer=saver)

    def save(self, thread: str, state: dict[str, Any]) -> None:
        self._graph.update_state(_config(thread), {"order": state}, as_node="step")

    def load(self, thread: str) -> Any:
        return self._graph.get_state(_config(thread)).values.get("order")


def _config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


@contextmanager
def langgraph_sqlite(folder: Path) -> Iterator[Graphs]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(folder / "graphs.db")) as saver:
        yield Graphs(saver)


@contextmanager
def langgraph_sealed(folder: Path) -> Iterator[Graphs]:
    from safepoint.langgraph import SealedSaver

    with SQLiteCheckpointStorage(folder / "graphs.db") as storage:
        yield Graphs(SealedSaver(ledger_in(folder, storage)))


class Agents:
    """Agent Framework's checkpoints in some storage. A thread is the name of a workflow."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def save(self, thread: str, state: dict[str, Any]) -> None:
        import agent_framework

        made = agent_framework.WorkflowCheckpoint(
            workflow_name=thread, graph_signature_hash="", state=state
        )
        asyncio.run(self._storage.save(made))

    def load(self, thread: str) -> Any:
        found = asyncio.run(self._storage.get_latest(workflow_name=thread))
        return found and found.state


def agent_framework_files(folder: Path) -> Agents:
    import agent_framework

    return Agents(agent_framework.FileCheckpointStorage(folder))


def agent_framework_sealed(folder: Path) -> Agents:
    from safepoint.agent_framework import SealedCheckpointStorage

    return Agents(SealedCheckpointStorage(ledger_in(folder, FileCheckpointStorage(folder))))


class PlainTarget(Target):
    """A whole target, for which nothing has to be guessed."""

    name = "plain"
    refusals = (ValueError,)

    def save(self, thread: str, state: dict[str, Any]) -> None:
        number = len(self.records(thread)) + 1
        self.medium.write(f"{thread}.{number:04}.json", json.dumps(state).encode())

    def latest(self, thread: str) -> Any:
        return json.loads(self.medium.read(self.records(thread)[-1]))

    def records(self, thread: str) -> list[str]:
        return [name for name in self.medium.names() if name.startswith(f"{thread}.")]


# What cannot be attacked.


def raises(folder: Path) -> Any:
    raise OSError("the disk\nis gone")


class Nowhere(Naive):
    """Writes elsewhere."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.parent / "elsewhere")


class ReadOnly(Naive):
    """Cannot save."""

    def save(self, thread: str, state: dict[str, Any]) -> None:
        raise PermissionError("read-only")


class Forgetful(Naive):
    """Loads something else than what was saved."""

    def load(self, thread: str) -> Any:
        return {**super().load(thread), "amount": 0}


class Control(Naive):
    """Works on the thread of the control, and on no other."""

    def load(self, thread: str) -> Any:
        return {"control": super().load(thread)}[thread]


class First(Naive):
    """Works on the first names that somebody tries."""

    def load(self, thread: str) -> Any:
        if thread not in ("control", "victim", "attacker"):
            raise KeyError(thread)
        return super().load(thread)


def dies(folder: Path) -> Any:
    raise SystemExit(3)


NOT_CALLABLE = 7
