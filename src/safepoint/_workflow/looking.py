"""Looking at what is to be resumed: verified, and judged by the gate. Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from safepoint._workflow.asking import Approved, Ask
from safepoint._workflow.granted import granted
from safepoint._workflow.ledgers import SavesAndLoads
from safepoint._workflow.payload import Payload
from safepoint.approval import Question
from safepoint.checkpoint import Checkpoint
from safepoint.errors import CheckpointError, WorkflowMismatch, quoted
from safepoint.gate import Decision, Runtime, Situation, Verdict
from safepoint.heads import Head

if TYPE_CHECKING:
    from safepoint.workflow import Workflow


@dataclass(frozen=True, slots=True)
class Resumption:
    """A resume that somebody wants: from where, into what, and what the gate says.

    Attributes:
        workflow: what wants to resume.
        checkpoint: from where.
        latest: the end of the thread.
        payload: what the workflow kept in the checkpoint.
        approved: what people had approved before that, for the steps that follow.
        asked: what people are asked to approve now, or None.
        decision: what the gate says.
    """

    workflow: Workflow
    checkpoint: Checkpoint
    latest: Checkpoint
    payload: Payload
    approved: Approved | None
    asked: Ask | None
    decision: Decision

    @property
    def at(self) -> Head:
        """The checkpoint, as the end that it once was."""
        return Head(self.checkpoint.sequence, self.checkpoint.digest)

    @property
    def head(self) -> Head:
        """The end of the thread, which an approval is bound to."""
        return Head(self.latest.sequence, self.latest.digest)

    @property
    def version(self) -> str:
        """The version that wrote the checkpoint."""
        return self.checkpoint.app.partition("@")[2]

    @property
    def question(self) -> Question | None:
        """What people are asked to approve, or None if the gate lets it through, or never will."""
        if self.decision.verdict is not Verdict.NEEDS_APPROVAL:
            return None
        return Question(
            store=self.checkpoint.store,
            thread=self.checkpoint.thread,
            checkpoint=self.at,
            head=self.head,
            app=self.workflow.app,
            tools=self.workflow.tools.digest,
            reasons=self.decision.reasons,
            details=self.decision.details,
            action="" if self.asked is None else self.asked.action,
            arguments={} if self.asked is None else dict(self.asked.arguments),
        )

    def __str__(self) -> str:
        return f"{self.checkpoint.thread} #{self.checkpoint.sequence}"


def look(
    workflow: Workflow, ledger: SavesAndLoads, thread: str, sequence: int | None, now: datetime
) -> Resumption:
    """Verify what is to be resumed, and let the gate decide.

    Raises:
        CheckpointError: it does not verify, or belongs to another workflow.
    """
    latest = checkpoint = ledger.latest(thread)
    if sequence is not None and sequence != latest.sequence:
        checkpoint = ledger.load(thread, sequence, linked=True)
    return judge(workflow, ledger, checkpoint, latest, now)


def judge(
    workflow: Workflow,
    ledger: SavesAndLoads,
    checkpoint: Checkpoint,
    latest: Checkpoint,
    now: datetime,
) -> Resumption:
    """Let the gate decide on a resume of what was verified already.

    Raises:
        WorkflowMismatch: it belongs to another workflow.
        ApprovalError: what people are said to have approved is not what they signed.
    """
    thread = checkpoint.thread
    if checkpoint.app.partition("@")[0] != workflow.name:
        raise WorkflowMismatch(
            f"{thread} #{checkpoint.sequence} was not written by the workflow {workflow.name} but"
            f" by {quoted(checkpoint.app)}.",
            "Resume it with the workflow that wrote it.",
        )
    payload = Payload.unpack(checkpoint)
    approved, asked = granted(workflow.gate, checkpoint, payload), payload.asked
    goes_back = checkpoint.sequence < latest.sequence
    if approved is not None and asked is None and (goes_back or checkpoint.app != workflow.app):
        # An approval counts once, and for what it meant to the version that asked. Who goes back
        # to before it was acted upon, or on with another version, has to ask again.
        asked = Ask(approved.action, approved.arguments)
    situation = Situation(
        checkpoint=checkpoint,
        head=Head(latest.sequence, latest.digest),
        tools=payload.tools,
        asked=asked is not None,
        owner=ledger.owner_at_time(thread, now),
        runtime=Runtime(
            app=workflow.app,
            tools=workflow.tools,
            worker=ledger.worker(thread),
            migrates_from=workflow.migrations.sources,
        ),
    )
    decision = workflow.gate.decide(situation)
    if goes_back:
        decision = replace(decision, details=(*decision.details, *_denials(workflow, latest)))
    return Resumption(workflow, checkpoint, latest, payload, approved, asked, decision)


def _denials(workflow: Workflow, latest: Checkpoint) -> list[str]:
    """Say that the end of the thread, from which somebody wants to go back, is a denial."""
    try:
        denial = Payload.unpack(latest).denied
    except WorkflowMismatch:
        return []
    if denial is None:
        return []
    try:
        name = workflow.gate.approvers.open(denial).approver if workflow.gate.approvers else ""
    except CheckpointError:
        name = ""
    return [f"{name or 'Somebody'} denied it at #{latest.sequence}."]
