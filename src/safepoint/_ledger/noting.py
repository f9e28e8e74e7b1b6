"""Writing down what a ledger does: before it is done, and if it was refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from safepoint.errors import (
    ApprovalMismatch,
    CheckpointError,
    ConfigurationError,
    InvalidId,
    JournalError,
    JournalUnavailable,
    NotFound,
)
from safepoint.heads import Head
from safepoint.journal import Actor, Event, Journal, Outcome, What

NO_NEWS = (InvalidId, ConfigurationError, JournalError)
"""What a caller got wrong, or what the journal itself says: neither is about the store."""

READING = (*NO_NEWS, NotFound)
"""What is no news where somebody only reads."""

RESUMING = (InvalidId, JournalError)
"""What is no news about a resume, of which every refusal counts."""


class Journalled(Protocol):
    """A ledger, as far as its journal goes."""

    @property
    def store(self) -> str:
        """The name of the store."""

    @property
    def journal(self) -> Journal | None:
        """Where it is written down what happens."""

    @property
    def actor(self) -> Actor | None:
        """Who acts."""


class Notes:
    """A journal with the store and the actor filled in. Without a journal, nothing is written.

    Args:
        journal: where to write, or None.
        actor: who acts.
        store: the name of the store.
    """

    def __init__(self, journal: Journal | None, actor: Actor | None, store: str) -> None:
        self.journal = journal
        self.actor = actor if actor is not None or journal is None else Actor.process()
        self.store = store

    @classmethod
    def of(cls, ledger: Journalled) -> Notes:
        """Return the notes of a ledger."""
        return cls(ledger.journal, ledger.actor, ledger.store)

    def write(
        self,
        what: What,
        outcome: Outcome,
        thread: str | None = None,
        at: Head | None = None,
        detail: str = "",
        *,
        actor: Actor | None = None,
    ) -> None:
        """Write one line.

        Raises:
            JournalError: that is not possible, so what was intended must not happen.
        """
        who = actor or self.actor
        if self.journal is None or who is None:
            return
        sequence, digest = (None, None) if at is None else (at.sequence, at.digest)
        event = Event(what, outcome, who, self.store, thread, sequence, digest, detail)
        try:
            self.journal.record(event)
        except CheckpointError:
            raise
        except Exception as error:
            raise JournalUnavailable(
                f"The journal could not be written: it raised {type(error).__name__}.",
                "Nothing is done without it. See the error it came from, and mend the journal.",
            ) from error

    def refused(
        self, what: What, error: CheckpointError, thread: str | None = None, at: Head | None = None
    ) -> None:
        """Write that something was refused. The refusal stands, whether or not this succeeds."""
        # What differs between two questions is for whoever asked: it may be an argument's value.
        why = "it answers another question." if isinstance(error, ApprovalMismatch) else error.what
        with suppress(CheckpointError):
            self.write(what, "refused", thread, at, f"{type(error).__name__}: {why}")

    @contextmanager
    def watching(
        self,
        what: What,
        thread: str | None = None,
        at: Head | None = None,
        quiet: tuple[type[CheckpointError], ...] = NO_NEWS,
    ) -> Iterator[None]:
        """Write down each refusal of what is done in this block, but for the `quiet` ones."""
        try:
            yield
        except CheckpointError as error:
            if not isinstance(error, quiet):
                self.refused(what, error, thread, at)
            raise

    @contextmanager
    def doing(
        self, what: What, thread: str | None = None, at: Head | None = None, detail: str = ""
    ) -> Iterator[None]:
        """Write that something is intended, do it in this block, and write how it ended.

        Raises:
            JournalError: it cannot be written down, so it does not happen. At the end of the
                block, that it happened cannot be.
        """
        self.write(what, "intended", thread, at, detail)
        with self.watching(what, thread, at):
            yield
        self.write(what, "done", thread, at, detail)
