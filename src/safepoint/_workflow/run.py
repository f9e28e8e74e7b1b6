"""Run: one run of a workflow, step by step."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from safepoint._ledger.noting import Notes
from safepoint._workflow.asking import Approved, Ask, Call
from safepoint._workflow.changes import changes_of
from safepoint._workflow.ledgers import SavesAndLoads
from safepoint._workflow.looking import judge
from safepoint._workflow.payload import Payload
from safepoint._workflow.plan import Plan
from safepoint.approval import Question
from safepoint.checkpoint import Checkpoint
from safepoint.errors import (
    AnchorUnavailable,
    ApprovalNeeded,
    ConfigurationError,
    Conflict,
    WorkflowError,
)
from safepoint.heads import Head


class Run:
    """One run of a workflow: its state, what is done, and what comes next.

    Iterating over it runs one step at a time and yields the checkpoint after each. It stops at the
    end, and where a step asks people.

    Attributes:
        workflow: the workflow.
        thread: the name of the thread.
        head: the sequence of the thread's latest checkpoint.
        approved: what people approved, for the step that comes next, or None.
        notes: what the run can do less than before, as the gate says it.
    """

    def __init__(
        self,
        workflow: Plan,
        ledger: SavesAndLoads,
        thread: str,
        payload: Payload,
        *,
        at: Checkpoint | None = None,
        approved: Approved | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.workflow = workflow
        self.thread = thread
        self.head = 0 if at is None else at.sequence
        self.approved = approved
        self.notes = notes
        self._ledger = ledger
        self._payload = payload
        self._at = at
        self._at_odds = False

    @property
    def state(self) -> dict[str, Any]:
        """The state after the last step that finished."""
        return self._payload.state

    @property
    def done(self) -> tuple[str, ...]:
        """The names of the steps that finished."""
        return self._payload.done

    @property
    def next(self) -> str | None:
        """The name of the step that runs next, or None at the end and after a denial."""
        names = list(self.workflow.steps)
        return names[len(self.done)] if len(self.done) < len(names) and not self.denied else None

    @property
    def paused(self) -> bool:
        """Whether the run waits for people."""
        return self._payload.asked is not None

    @property
    def denied(self) -> bool:
        """Whether somebody denied what the run asked for, which ended it."""
        return self._payload.denied is not None

    @property
    def question(self) -> Question | None:
        """What people are asked to approve or deny, exactly, or None if the run does not wait."""
        if self._payload.asked is None or self._at is None:
            return None
        return judge(self.workflow, None, self._at, self._at).question

    def step(self) -> Checkpoint:
        """Run the next step and capture its result.

        A step that raises changes nothing: the state and the last checkpoint stay.

        Raises:
            WorkflowError: there is no step left, or the step did not return what changes.
            ApprovalNeeded: the run waits for people.
            NotOwner: another worker owns the thread by now. The step did not run.
            CheckpointError: the checkpoint was refused.
        """
        name = self.next
        if self._at_odds:
            raise WorkflowError(
                f"{self.thread} may or may not be captured after #{self.head}.",
                "Resume it: what is saved tells how far it came.",
            )
        if self.paused:
            raise ApprovalNeeded(
                f"{self.thread} waits for people at #{self.head}.",
                "Show them run.question, and pass what they sign: resume(..., approvals=[text]).",
                self.question,
            )
        if name is None:
            how = "was denied" if self.denied else "has run every step"
            raise WorkflowError(f"{self.thread} {how}.", "Start a new thread to run it again.")
        self._ledger.keep(self.thread)
        acted = self.approved is not None or name in self.workflow.anchor_before
        if acted:
            self._check_still_here(name)
        before = self._payload
        given = copy.deepcopy(self.state)
        returned = self.workflow.call(name, given, self._call(name))
        asked = returned if isinstance(returned, Ask) else None
        if asked is not None:
            self._check_answerable(name)
        changes = changes_of(name, asked.changes if asked else returned, given, self.state)
        self._payload = replace(
            before,
            state={**self.state, **copy.deepcopy(dict(changes))},
            done=(*self.done, name),
            tools=self.workflow.tools,
            asked=asked,
            approved=(),
            resumed=None,
            origin=None,
        )
        try:
            if asked is not None:
                notes = Notes.of(self._ledger)
                notes.write("pause", "intended", self.thread, self._head, asked.action)
            checkpoint = self.record(turning=acted)
        except AnchorUnavailable:
            raise  # it may be saved by now
        except BaseException:
            self._payload = before
            raise
        self.approved = None
        return checkpoint

    def capture(self) -> Checkpoint:
        """Save the run as it is now, as the thread's next checkpoint.

        Raises:
            WorkflowError: the run was denied, or goes on from an approval, which is for its next
                step alone.
            CheckpointError: the checkpoint was refused.
        """
        if self.denied:
            raise WorkflowError(f"{self.thread} was denied.", "There is nothing to capture.")
        if self.approved is not None:
            raise WorkflowError(
                f"{self.thread} goes on from an approval, which is for the step {self.next} alone.",
                "Run that step: it is captured by itself.",
            )
        # No step ran, so the next one has the key that it had.
        origin = self._payload.origin or self.head
        self._payload = replace(self._payload, resumed=None, origin=origin)
        return self.record()

    def record(self, *, turning: bool = False, app: str | None = None) -> Checkpoint:
        """Save the run with all that it carries; it is for the workflow's own use.

        Args:
            turning: whether the anchor must see it at once.
            app: what wrote it, if not this workflow.
        """
        tools, anchored = self._payload.tools, self._ledger.anchor is not None
        turning = turning or self._is_turning_point()
        now = self.next in self.workflow.anchor_before or (anchored and turning)
        try:
            checkpoint = self._ledger.save(
                self.thread,
                self._payload.pack(),
                app=self.workflow.app if app is None else app,
                tools=tools.digest if tools else None,
                after=self.head,
                anchor="now" if now else None,
            )
        except AnchorUnavailable:
            self._at_odds = True  # it may be saved, so this run does not know where it is
            raise
        self.head = checkpoint.sequence
        self._at = checkpoint
        return checkpoint

    def finish(self) -> Run:
        """Run every step that is left, up to the end or a pause, and return the run itself."""
        for _ in self:
            pass
        return self

    def __iter__(self) -> Iterator[Checkpoint]:
        while self.next is not None and not self.paused:
            yield self.step()

    def __repr__(self) -> str:
        how = ", paused" if self.paused else ", denied" if self.denied else ""
        return (
            f"Run({self.workflow.name!r}, {self.thread!r}, done={self.done!r},"
            f" next={self.next!r}{how})"
        )

    def _is_turning_point(self) -> bool:
        payload = self._payload
        return payload.asked is not None or payload.resumed is not None or self.denied

    @property
    def _head(self) -> Head | None:
        return None if self._at is None else Head(self._at.sequence, self._at.digest)

    def _call(self, name: str) -> Call:
        origin = self._payload.origin or self.head
        store = "" if self._at is None else self._at.store
        key = f"{store}/{self.thread}/{origin}/{name}"
        return Call(self.thread, name, self.head, key, self.approved)

    def _check_still_here(self, name: str) -> None:
        """Write down that a step is about to act, unless the thread has moved on.

        Raises:
            Conflict: it has.
            JournalError: it cannot be written down, so the step does not act.
        """
        latest = self._ledger.latest(self.thread)
        if self._at is None or latest.digest != self._at.digest:
            raise Conflict(
                f"{self.thread} is at #{latest.sequence} by now, and this run is at #{self.head}.",
                f"The step {name} did not run. Rehydrate the run, and decide again.",
            )
        Notes.of(self._ledger).write("act", "intended", self.thread, self._head, name)

    def _check_answerable(self, name: str) -> None:
        """Refuse to wait for people whose answer could not be used.

        Raises:
            ConfigurationError: the workflow knows no approvers, or the ledger has no journal.
            KeyRefused: an approver has the writer's key.
        """
        approvers, keys = self.workflow.gate.approvers, self._ledger.keys
        if approvers is None:
            raise ConfigurationError(
                f"The step {name} asks people, and the workflow {self.workflow.name} has no"
                " approvers.",
                'Write Workflow(..., gate=Gate(approvers=Approvers({"dana": key}))).',
            )
        if keys is None:
            return
        approvers.check_apart(keys)
        if self._ledger.journal is None:
            raise ConfigurationError(
                f"The step {name} asks people, and the ledger has no journal to write the answer"
                " down.",
                "Write Ledger(..., journal=FileJournal(path, keys=...)).",
            )
