"""What a workflow needs of a ledger."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from safepoint.anchor import Anchor
from safepoint.checkpoint import Checkpoint
from safepoint.journal import Actor, Journal
from safepoint.keys import Keyring


class SavesAndLoads(Protocol):
    """A `Ledger`, or its unsafe twin, as a workflow sees it."""

    @property
    def store(self) -> str:
        """The name of the store."""

    @property
    def keys(self) -> Keyring | None:
        """The keys that vouch for what it hands out; None for the twin, which has none."""

    @property
    def anchor(self) -> Anchor | None:
        """What remembers the head of each thread."""

    @property
    def journal(self) -> Journal | None:
        """Where it is written down what happens."""

    @property
    def actor(self) -> Actor | None:
        """Who acts, for the journal."""

    def save(
        self,
        thread: str,
        state: Any,
        *,
        app: str = ...,
        tools: str | None = ...,
        after: int | None = ...,
        anchor: Literal["now"] | None = ...,
    ) -> Checkpoint:
        """Keep `state` as the thread's next checkpoint."""

    def load(self, thread: str, sequence: int, *, linked: bool = ...) -> Checkpoint:
        """Return the checkpoint at `sequence`."""

    def latest(self, thread: str) -> Checkpoint:
        """Return the newest checkpoint."""

    def threads(self) -> list[str]:
        """Return the names of the threads."""

    def settle(self, thread: str) -> None:
        """Let the anchor see the newest checkpoint."""

    def holder(self, thread: str) -> str | None:
        """Return who else holds the thread."""

    def worker(self, thread: str) -> str | None:
        """Return under which name this ledger owns the thread."""

    def keep(self, thread: str) -> None:
        """Renew the lease on the thread, if this ledger has one."""
