"""Looking at what is to be resumed: verified, and judged by the gate. Nothing is written."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from safepoint._workflow.asking import Approved, Ask
from safepoint._workflow.granted import Granted, check_denial, check_source, granted
from safepoint._workflow.ledgers import SavesAndLoads
from safepoint._workflow.payload import Payload
from safepoint._workflow.plan import Plan
from safepoint.approval import Question
from safepoint.checkpoint import Checkpoint
from safepoint.errors import CheckpointError, NotFound, ResumeRefused, WorkflowMismatch, quoted
from safepoint.gate import Decision, Runtime, Situation, Verdict
from safepoint.header import digest_of
from safepoint.heads import Head
from safepoint.ids import check_sequence

_LONG: Final = 200
_MANY: Final = 24


@dataclass(frozen=True, slots=True)
class Resumption:
    """A resume that somebody wants: from where, into what, and what the gate says.

    Attributes:
        workflow: what wants to resume.
        checkpoint: from where.
        latest: the end of the thread.
        payload: what the workflow kept in the checkpoint.
        grant: what people had approved before that.
        asked: what people are asked to approve now, or None.
        decision: what the gate says.
    """

    workflow: Plan
    checkpoint: Checkpoint
    latest: Checkpoint
    payload: Payload
    grant: Granted | None
    asked: Ask | None
    decision: Decision

    @property
    def approved(self) -> Approved | None:
        """What people approved, for the step that comes next, unless they are asked again."""
        return None if self.grant is None or self.asked is not None else self.grant.approved

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
    def is_over(self) -> bool:
        """Whether nothing is left to do: the thread ends with a denial, or with its last step."""
        if self.checkpoint is not self.latest:
            return False
        finished = self.payload.done == tuple(self.workflow.steps) and self.payload.asked is None
        return self.payload.denied is not None or (
            finished and self.checkpoint.app == self.workflow.app
        )

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
            details=_folded(self.decision.details),
            action="" if self.asked is None else self.asked.action,
            arguments={} if self.asked is None else dict(self.asked.arguments),
        )

    def __str__(self) -> str:
        return f"{self.checkpoint.thread} #{self.checkpoint.sequence}"


def look(
    workflow: Plan,
    ledger: SavesAndLoads,
    thread: str,
    sequence: int | None,
    *,
    to_ask: bool = False,
) -> Resumption:
    """Verify what is to be resumed, and let the gate decide.

    Args:
        workflow: what wants to resume.
        ledger: where the thread is.
        thread: the thread.
        sequence: an older checkpoint, or None for the latest.
        to_ask: whether somebody only wants to know what to ask, whoever owns the thread now.

    Raises:
        CheckpointError: it does not verify, or belongs to another workflow.
    """
    latest = checkpoint = ledger.latest(thread)
    if sequence is not None and check_sequence(sequence) != latest.sequence:
        checkpoint = ledger.load(thread, sequence, linked=True)
    wanted = judge(workflow, None if to_ask else ledger, checkpoint, latest)
    if wanted.grant is not None:
        question = wanted.grant.question
        with suppress(NotFound):  # it was pruned
            source = ledger.load(thread, question.checkpoint.sequence)
            check_source(question, checkpoint, wanted.payload, source)
    return wanted


def judge(
    workflow: Plan, ledger: SavesAndLoads | None, checkpoint: Checkpoint, latest: Checkpoint
) -> Resumption:
    """Let the gate decide on a resume of what was verified already.

    Args:
        workflow: what wants to resume.
        ledger: who owns the thread; None if that does not matter.
        checkpoint: from where.
        latest: the end of the thread.

    Raises:
        WorkflowMismatch: it belongs to another workflow.
        ResumeRefused: it is a denial that others followed.
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
    check_denial(workflow.gate, checkpoint, payload)
    if payload.denied is not None and checkpoint.sequence < latest.sequence:
        raise ResumeRefused(
            f"{thread} #{checkpoint.sequence} is a denial, so nothing goes on from there.",
            "Name a checkpoint before it.",
        )
    grant, asked = granted(workflow.gate, checkpoint, payload), payload.asked
    situation = Situation(
        checkpoint=checkpoint,
        head=Head(latest.sequence, latest.digest),
        tools=payload.tools,
        asked=asked is not None,
        owner=None if ledger is None else ledger.holder(thread),
        runtime=Runtime(
            app=workflow.app,
            tools=workflow.tools,
            worker=None if ledger is None else ledger.worker(thread),
            migrates_from=workflow.migrations.sources,
        ),
    )
    decision = workflow.gate.decide(situation)
    if grant is not None and (decision.reasons or grant.lapsed):
        # An approval counts once, and for what was to be resumed then. Who goes back to before it
        # was acted upon, or on with something else, has to ask again.
        asked = Ask(grant.approved.action, grant.approved.arguments)
        again = workflow.gate.decide(replace(situation, asked=True))
        details = (*decision.details, _asked_again(checkpoint, grant.lapsed))
        decision = replace(again, details=details)
    if checkpoint.sequence < latest.sequence:
        decision = replace(decision, details=(*decision.details, *_denials(workflow, latest)))
    return Resumption(workflow, checkpoint, latest, payload, grant, asked, decision)


def _asked_again(checkpoint: Checkpoint, lapsed: str | None) -> str:
    said = f"It was approved before, at #{checkpoint.sequence}, and may have been done already."
    return said if lapsed is None else f"{said} {lapsed}"


def _denials(workflow: Plan, latest: Checkpoint) -> list[str]:
    """Say that the end of the thread, from which somebody wants to go back, is a denial."""
    try:
        denial = Payload.unpack(latest).denied
    except WorkflowMismatch:
        return []
    if denial is None:
        return []
    try:
        approvers = workflow.gate.approvers
        name = approvers.open(denial, revoked=True).approver if approvers else ""
    except CheckpointError:
        name = ""
    return [f"{name or 'Somebody'} denied it at #{latest.sequence}."]


def _folded(details: tuple[str, ...]) -> tuple[str, ...]:
    """Return no more than a person reads. What is left out is bound by the digest of the tools."""
    short = tuple(
        each if len(each) <= _LONG else f"{each[:_LONG]}... ({len(each)} characters)"
        for each in details
    )
    if len(short) <= _MANY:
        return short
    rest = digest_of("\n".join(details[_MANY - 1 :]).encode())
    return (*short[: _MANY - 1], f"And {len(details) - _MANY + 1} more like these: {rest}.")
