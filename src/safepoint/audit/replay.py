"""Link: a record of a run, and what it goes on from, so that its resumption can be judged again.

The writer's key seals every record, so a seal does not prove that anybody was asked. This goes by
what the records hold, and never by what they say of themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from safepoint.approval import Question
from safepoint.audit.finding import Finding
from safepoint.audit.records import view_of
from safepoint.audit.steps import begins, unbegun
from safepoint.audit.workflows import unverified, without_state
from safepoint.errors import AnchorError, CheckpointError, WorkflowMismatch
from safepoint.gate import Gate
from safepoint.ledger import Ledger
from safepoint.names import Head
from safepoint.record import Checkpoint, Opened
from safepoint.verify import View
from safepoint.workflow import (
    Migration,
    Payload,
    Resumed,
    Resumption,
    Workflow,
    judge,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a run, without the state.

    Attributes:
        checkpoint: the record; the state is left out.
        payload: how far the run came, and what people said.
    """

    checkpoint: Checkpoint
    payload: Payload

    @property
    def head(self) -> Head:
        """The record, as the end that it once was."""
        return Head(self.checkpoint.sequence, self.checkpoint.digest)

    def __str__(self) -> str:
        return f"{self.checkpoint.thread} #{self.checkpoint.sequence}"


@dataclass(frozen=True, slots=True)
class Link:
    """An entry, and what it follows.

    Attributes:
        entry: the entry.
        before: the last one before it that a workflow wrote; None if it is the first that is kept.
        source: what it says that it was resumed from; None if it does not, or if there is no such
            record.
        last: the end of the thread before it, whoever wrote that; None if it is not kept.
        first: the first sequence that is kept.
    """

    entry: Entry
    before: Entry | None
    source: Entry | None
    last: Checkpoint | None
    first: int

    @property
    def resumed(self) -> Resumed | None:
        """Where the entry says that it came from."""
        return self.entry.payload.resumed

    @property
    def is_pruned(self) -> bool:
        """Whether what it was resumed from was pruned, so that nobody can tell any more."""
        resumed = self.resumed
        return resumed is not None and self.source is None and 0 < resumed.sequence < self.first

    def judged(self, gate: Gate, app: str) -> tuple[Resumption, Question | None]:
        """Return what a gate says of the resumption, and what people had to be asked.

        Args:
            gate: the gate.
            app: what resumed it.

        Raises:
            CheckpointError: no workflow could have resumed it.
        """
        source = self.source
        if source is None or self.last is None:
            raise WorkflowMismatch(f"{self.entry} was not resumed.", "Judge one that was.")
        name, _, version = app.partition("@")
        old = source.checkpoint.app.partition("@")[2]
        as_it_was = Workflow(
            name,
            [_nothing],
            version=version,
            tools=self.entry.payload.tools,
            migrations=[] if old == version else [Migration(old, version, dict)],
            gate=gate,
        )
        # Who owned the thread at the time, nobody knows any more.
        wanted = judge(as_it_was, None, source.checkpoint, self.last)
        if not wanted.decision.reasons:
            return wanted, None
        # Whatever the policy is today: if people were asked, this is what they were asked.
        return wanted, wanted.question()


def links(ledger: Ledger, rule: str) -> Iterator[Link | Finding]:
    """Return each record that a workflow wrote, after its seal and its link were verified.

    A thread that no workflow wrote to gives nothing. A record that none wrote, after one that one
    did, gives a finding under the rule, and so do a run that nothing began and a thread that does
    not verify.

    Raises:
        StorageError: the storage cannot be listed.
    """
    try:
        threads = ledger.threads()
    except AnchorError as refusal:
        yield Finding("SP15", "error", refusal.what, refusal.do, ledger.store)
        return
    for thread in threads:
        try:
            yield from _links(view_of(ledger), thread, rule)
        except CheckpointError:
            yield unverified(rule, thread, "tools" if rule == "SP18" else "approvals")


def _links(view: View, thread: str, rule: str) -> Iterator[Link | Finding]:
    digests: dict[int, str] = {}
    before: Entry | None = None
    last: Checkpoint | None = None
    for opened in view.walk(thread):
        checkpoint = _checkpoint(view, opened)
        entry = _entry(checkpoint)
        if opened.header.kind != "state":
            return  # a tombstone
        if entry is not None:
            first = next(iter(digests), checkpoint.sequence)
            comes_from = before or entry.payload.resumed
            if comes_from is None and not begins(entry.payload, checkpoint.sequence, first):
                yield unbegun(rule, entry, thread)
            yield Link(entry, before, _source(view, entry, before, digests), last, first)
            before = entry
        elif before is not None:
            yield Finding(
                rule,
                "warning",
                f"{thread} {opened.head} does not hold a workflow's state, and {before.head} does.",
                "Find out what saved it: in the thread of a workflow, nothing else saves.",
                thread,
            )
        last = checkpoint
        digests[last.sequence] = last.digest


def _checkpoint(view: View, opened: Opened) -> Checkpoint:
    header = opened.header
    return Checkpoint(
        store=header.store,
        thread=header.thread,
        sequence=header.sequence,
        app=header.app,
        created=datetime.fromisoformat(header.created),
        previous=header.previous,
        digest=opened.digest,
        tools=header.tools,
        state=without_state(opened.payload, view.limits),
    )


def _entry(checkpoint: Checkpoint) -> Entry | None:
    try:
        return Entry(checkpoint, Payload.unpack(checkpoint))
    except WorkflowMismatch:
        return None


def _source(
    view: View, entry: Entry, before: Entry | None, digests: dict[int, str]
) -> Entry | None:
    """Return the entry that one was resumed from, if it is the record that it names."""
    resumed = entry.payload.resumed
    if resumed is None or digests.get(resumed.sequence) != resumed.digest:
        return None
    source = before
    if before is None or before.checkpoint.sequence != resumed.sequence:
        thread = entry.checkpoint.thread
        opened = view.open(thread, resumed.sequence, digest=resumed.digest)
        source = _entry(_checkpoint(view, opened))
    return source if source is not None and source.checkpoint.app == resumed.app else None


def _nothing(state: dict[str, Any]) -> None:
    """Stand in for the steps, which nobody runs."""
