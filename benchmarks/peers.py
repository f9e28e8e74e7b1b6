"""What we are measured against: pickle with fsync, and Agent Framework's files."""

from __future__ import annotations

import asyncio
import os
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass
class Line:
    """A typical item of state: text, a number, a time."""

    item: str
    amount: int
    due: datetime


def state_of(size: int) -> dict[str, Any]:
    """Return a state whose encoding is about `size` bytes."""
    due = datetime(2026, 12, 1, tzinfo=UTC)
    return {"lines": [Line(f"item {n}", n, due) for n in range(max(1, size // 110))]}


def plain_of(size: int) -> dict[str, Any]:
    """Return a state of as many bytes that is dicts, lists, texts and numbers alone."""
    count = max(1, size // 110)
    return {
        "lines": [
            {"item": f"item {n}", "amount": n, "price": n / 4, "open": True, "tags": ["a", "b"]}
            for n in range(count)
        ]
    }


@dataclass
class Message:
    """What was said in a chat."""

    role: str
    content: str
    at: datetime
    calls: list[dict[str, Any]]


def chat_of(messages: int) -> dict[str, Any]:
    """Return the state of a chat, about 20 KB for 30 messages."""
    text = "Invoice 7 is due on the first. I would pay it, unless you say that it is not ours. "
    call = {"name": "pay", "id": "call_7", "args": {"invoice": 7, "amount": 42.5}}
    return {
        "messages": [
            Message("ai", text * 7, datetime(2026, 12, 1, 9, n, tzinfo=UTC), [call] * (n % 2))
            for n in range(messages)
        ]
    }


class SyncedPickle:
    """`pickle.dump` to a file, whole or not at all, and on disk when it returns."""

    name = "pickle + fsync"

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.file = folder / "state.pickle"

    def save(self, state: Any) -> None:
        """Write beside it, sync, rename, sync the folder."""
        temp = self.file.with_suffix(".tmp")
        with temp.open("wb") as file:
            pickle.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        temp.rename(self.file)
        folder = os.open(self.file.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def load(self) -> Any:
        """Read it back."""
        with self.file.open("rb") as file:
            return pickle.load(file)  # noqa: S301  ours, written above


class Checkpoints:
    """A checkpoint storage of Agent Framework, whichever, as one workflow uses it."""

    def __init__(self, storage: Any) -> None:
        from agent_framework import WorkflowCheckpoint

        self.storage = storage
        self._checkpoint = WorkflowCheckpoint
        self._loop = asyncio.new_event_loop()
        self._last = ""

    def save(self, state: Any) -> None:
        """Save a checkpoint of a workflow."""
        saved = self._checkpoint(workflow_name="t", graph_signature_hash="", state=state)
        self._last = str(self._loop.run_until_complete(self.storage.save(saved)))

    def load(self) -> Any:
        """Load the checkpoint that was saved last, by its id."""
        return self._loop.run_until_complete(self.storage.load(self._last)).state

    def latest(self) -> Any:
        """Find the newest checkpoint of the workflow."""
        return self._loop.run_until_complete(self.storage.get_latest(workflow_name="t"))

    def list(self) -> Any:
        """Load all of them."""
        return self._loop.run_until_complete(self.storage.list_checkpoints(workflow_name="t"))

    def close(self) -> None:
        """End the event loop."""
        self._loop.close()


class AgentFramework(Checkpoints):
    """Agent Framework's file storage, which pickles the same dataclasses. It does not sync."""

    name = "agent-framework-core"

    def __init__(self, folder: Path) -> None:
        from agent_framework import FileCheckpointStorage

        types = [f"{c.__module__}:{c.__qualname__}" for c in (Line, Message)]
        super().__init__(FileCheckpointStorage(folder, allowed_checkpoint_types=types))
