"""The situation: what was verified, and what wants to resume it."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType

from safepoint.checkpoint import Checkpoint
from safepoint.errors import ConfigurationError
from safepoint.heads import Head
from safepoint.ids import check_name
from safepoint.tools import ToolSet


@dataclass(frozen=True, slots=True)
class Runtime:
    """What wants to resume.

    Attributes:
        app: "name" or "name@version".
        tools: the tools that the run would have.
        worker: the name under which it owns threads, or None if it owns none.
        migrates_from: the versions from which a chain of migrations leads to this one.

    Raises:
        ConfigurationError: one is of another kind.
        InvalidId: `worker` is outside the grammar.
    """

    app: str
    tools: ToolSet
    worker: str | None = None
    migrates_from: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_kind("Runtime", "app", self.app, str)
        check_kind("Runtime", "tools", self.tools, ToolSet)
        # In a text, every part of it is found: "1" in "12".
        check_kind("Runtime", "migrates_from", self.migrates_from, frozenset)
        if self.worker is not None:
            check_name("worker", self.worker)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the gate decides on.

    Attributes:
        checkpoint: the verified checkpoint to resume from, or None if it did not verify.
        head: the verified end of the thread, or None if it did not verify.
        tools: the tools that were in force at the checkpoint.
        asked: whether the run paused there for a person's answer.
        owner: who holds the lease on the thread, or None if nobody does.
        runtime: what wants to resume.

    Raises:
        ConfigurationError: one is of another kind.
    """

    checkpoint: Checkpoint | None
    head: Head | None
    tools: ToolSet
    asked: bool
    owner: str | None
    runtime: Runtime

    def __post_init__(self) -> None:
        check_kind("Situation", "checkpoint", self.checkpoint, Checkpoint, NoneType)
        check_kind("Situation", "head", self.head, Head, NoneType)
        check_kind("Situation", "tools", self.tools, ToolSet)
        check_kind("Situation", "asked", self.asked, bool)
        check_kind("Situation", "owner", self.owner, str, NoneType)
        check_kind("Situation", "runtime", self.runtime, Runtime)


def check_kind(where: str, name: str, value: object, *kinds: type) -> None:
    """Refuse an argument of another kind.

    Raises:
        ConfigurationError: it is.
    """
    if not isinstance(value, kinds):
        names = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise ConfigurationError(
            f"{where} was given {type(value).__name__} as {name}.",
            f"Give it {names}.",
        )
