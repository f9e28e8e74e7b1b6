"""What people approved, read out of what they signed and of nothing else."""

from __future__ import annotations

from typing import NamedTuple

from safepoint._workflow.asking import Approved
from safepoint._workflow.payload import Payload
from safepoint.approval import Approval, Approvers, Question
from safepoint.checkpoint import Checkpoint
from safepoint.errors import ApprovalMismatch, ApprovalUntrusted, CheckpointError
from safepoint.gate import Gate
from safepoint.reasons import Reason


class Granted(NamedTuple):
    """What a record goes on from.

    Attributes:
        approved: what people approved.
        question: what they were asked.
        lapsed: why it no longer counts, or None.
    """

    approved: Approved
    question: Question
    lapsed: str | None


def granted(gate: Gate, checkpoint: Checkpoint, payload: Payload) -> Granted | None:
    """Return what people approved, out of what they signed, or None if there is nothing.

    The record that carries it is sealed by the writer. That is not enough: whoever has the writer's
    key must not be able to say what a person approved, nor to say it twice, nor for something else.
    So what they signed must be about the very record that this one follows, and name what this one
    is: its app and its tools.

    Raises:
        ApprovalError: the statements do not bear it out.
    """
    if not payload.approved:
        return None
    approvers, shown = gate.approvers, f"{checkpoint.thread} #{checkpoint.sequence}"
    if approvers is None:
        raise ApprovalUntrusted(
            f"{shown} goes on from an approval, and this workflow has no approvers to check it.",
            'Write Workflow(..., gate=Gate(approvers=Approvers({"dana": key}))).',
        )
    approvals = [approvers.open(text, revoked=True) for text in payload.approved]
    question = approvals[0].question
    if (
        not _follows(question, checkpoint)
        or (question.app, question.tools) != (checkpoint.app, payload.tools.digest)
        or Reason.ASKED not in question.reasons
        or any(each.verdict != "approved" or each.question != question for each in approvals)
    ):
        raise ApprovalMismatch(
            f"{shown} goes on from an approval of something else.",
            "Whoever wrote it had the writer's key. Do not use it; replace that key.",
        )
    names = tuple(dict.fromkeys(approval.approver for approval in approvals))
    approved = Approved(question.action, dict(question.arguments), names)
    return Granted(approved, question, _lapsed(gate, approvers, approvals))


def _lapsed(gate: Gate, approvers: Approvers, approvals: list[Approval]) -> str | None:
    """Say why approvals that were given no longer count, if they do not."""
    standing = []
    for approval in approvals:
        try:
            standing.append(approvers.open(approval.text))
        except ApprovalUntrusted:
            return f"The key with which {approval.approver} approved it was revoked since."
    if approvers.count(standing) < (gate.policy.needs(Reason.ASKED) or 1):
        return "Fewer people approved it than the policy asks for now."
    return None


def check_source(
    approval: Question, checkpoint: Checkpoint, payload: Payload, source: Checkpoint
) -> None:
    """Refuse a record that goes on from elsewhere than where people let it go on.

    Args:
        approval: what they were asked, and approved.
        checkpoint: the record that goes on from it.
        payload: what that one holds.
        source: the record that they were asked about.

    Raises:
        ApprovalMismatch: it skips a step, or does what they were not asked.
    """
    try:
        before = Payload.unpack(source)
    except CheckpointError:
        before = None
    same = before is not None and (source.app != checkpoint.app or before.done == payload.done)
    if (
        not same
        or before is None
        or source.digest != approval.checkpoint.digest
        or (
            before.asked is not None
            and (before.asked.action, before.asked.arguments)
            != (approval.action, approval.arguments)
        )
    ):
        raise ApprovalMismatch(
            f"{checkpoint.thread} #{checkpoint.sequence} goes on from another place than people let"
            " it go on from.",
            "Whoever wrote it had the writer's key. Do not use it; replace that key.",
        )


def check_denial(gate: Gate, checkpoint: Checkpoint, payload: Payload) -> None:
    """Refuse a denial that nobody signed, or that was signed for something else.

    Raises:
        ApprovalError: it is one.
    """
    if payload.denied is None or gate.approvers is None:
        return
    denial = gate.approvers.open(payload.denied, revoked=True)
    if denial.verdict != "denied" or not _follows(denial.question, checkpoint):
        raise ApprovalMismatch(
            f"{checkpoint.thread} #{checkpoint.sequence} ends with a denial of something else.",
            "Whoever wrote it had the writer's key. Do not use it; replace that key.",
        )


def _follows(question: Question, checkpoint: Checkpoint) -> bool:
    """Tell whether a record stands right after the one that a question is about."""
    place = checkpoint.store, checkpoint.thread, checkpoint.sequence - 1, checkpoint.previous
    head = question.head
    return (question.store, question.thread, head.sequence, head.digest) == place
