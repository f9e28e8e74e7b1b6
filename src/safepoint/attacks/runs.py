"""Runs on a store, and the people around them, the way they are usually written.

A request and the yes to it are fields of the state, whoever resumes is let in, and what happened
goes to a text file. A target of three methods gets all of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

from safepoint.attacks import naive
from safepoint.attacks.medium import Disk
from safepoint.tools import Tool

TOOLS: Final = (Tool("mail", version="1", permissions=["read"]),)
"""What a run has when it begins."""

VERSION: Final = "1"
"""The version of the code that begins a run."""

_LOG: Final = "journal.log"


class Runs(ABC):
    """What a workflow does on a store when it is interrupted, asks people, and goes on.

    Override these if your application has something better than a field of its state. Where one
    refuses, let it raise one of the target's `refusals`.

    Attributes:
        folder: a temporary folder.
        journal: what was written down, in the adversary's hands: the files below
            `folder / "journal"`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.journal = Disk(self.folder / "journal")

    @abstractmethod
    def save(self, thread: str, state: dict[str, Any]) -> None:
        """The victim saves a state."""

    @abstractmethod
    def latest(self, thread: str) -> Any:
        """The victim, in a new process, loads the newest state."""

    @abstractmethod
    def records(self, thread: str) -> list[str]:
        """The adversary finds the names of a thread's records in the medium, oldest first."""

    @abstractmethod
    def load(self, thread: str, sequence: int) -> Any:
        """The victim loads an older state, by its number."""

    def begin(self, thread: str, arguments: dict[str, Any]) -> None:
        """A run begins, with `TOOLS` and as `VERSION`, and its worker dies before it acts."""
        self.save(thread, {"pending": arguments})
        self.note(thread, "worker", "begin")

    def ask(self, thread: str, arguments: dict[str, Any]) -> None:
        """A run, new or going on, comes to a step that asks a person first, and waits."""
        state = self.latest(thread) if self.records(thread) else {}
        self.save(thread, naive.asked(state, arguments))
        self.note(thread, "worker", "ask")

    def approve(
        self,
        thread: str,
        who: str = "dana",
        *,
        shown: dict[str, Any] | None = None,
        ago: timedelta = timedelta(0),
    ) -> bytes:
        """A person looks at what a run asks, and says yes.

        Args:
            thread: the thread.
            who: the person. Only dana and erin may.
            shown: what they see, if somebody came between; what is asked, if not.
            ago: how long ago that was.

        Returns:
            What travels to the worker; nothing where the yes is a field of the state.
        """
        del shown, ago  # a flag does not say to what, nor since when
        self.save(thread, naive.answered(self.latest(thread), who, yes=True))
        self.note(thread, who, "approve")
        return b""

    def deny(self, thread: str, who: str = "erin") -> None:
        """A person says no, and a worker hears of it."""
        self.save(thread, naive.answered(self.latest(thread), who, yes=False))
        self.note(thread, who, "deny")

    def resume(
        self,
        thread: str,
        approval: bytes = b"",
        *,
        tools: Iterable[Tool] = TOOLS,
        version: str = VERSION,
        sequence: int | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> Any:
        """A worker in a new process goes on with a run, and acts if it may.

        Args:
            thread: the thread.
            approval: what an approver's yes came as.
            tools: what this process has.
            version: the version of its code.
            sequence: the checkpoint from which to go on; the newest, if not.
            meanwhile: what happens elsewhere after this worker has made up its mind.

        Returns:
            The arguments with which it acted, or None if it did not.
        """
        del approval, tools, version  # nobody asks what it wakes up as
        state = self.latest(thread) if sequence is None else self.load(thread, sequence)
        arguments = naive.due(state)
        if meanwhile is not None:
            meanwhile()
        if arguments is not None:
            self.save(thread, naive.acted(state))
            self.note(thread, "worker", "resume")
        return arguments

    def own(self, thread: str, worker: str) -> Self:
        """A worker takes a thread over, because the one before it did not answer any more.

        Returns:
            The store as that worker has it open.
        """
        del thread, worker  # whoever writes, writes
        return self

    def self_approve(self, thread: str, arguments: dict[str, Any]) -> Iterable[bytes]:
        """The worker, which holds whatever key the store has, says yes in a person's name.

        Yields:
            What it hands on, once for each way that there is.
        """
        del arguments
        self.save(thread, naive.answered(self.latest(thread), "dana", yes=True))
        yield b""

    def note(self, thread: str, who: str, what: str) -> None:
        """Write down who did what. If that fails, it fails."""
        line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {who} {what} {thread}\n"
        with suppress(OSError):
            before = self.journal.read(_LOG) if _LOG in self.journal.names() else b""
            self.journal.write(_LOG, before + line.encode())

    def journalled(self, thread: str) -> list[str]:
        """An auditor reads who did what to a thread, oldest first, one line each."""
        if _LOG not in self.journal.names():
            return []
        lines = self.journal.read(_LOG).decode().splitlines()
        return [line for line in lines if line.split(" ")[-1] == thread]
