"""What people approved, read out of what they signed and of nothing else."""

from __future__ import annotations

from safepoint._workflow.asking import Approved
from safepoint._workflow.payload import Payload
from safepoint.checkpoint import Checkpoint
from safepoint.errors import ApprovalMismatch, ApprovalUntrusted
from safepoint.gate import Gate
from safepoint.reasons import Reason


def granted(gate: Gate, checkpoint: Checkpoint, payload: Payload) -> Approved | None:
    """Return what people approved, out of what they signed, or None if there is nothing.

    The record that carries it is sealed by the writer. That is not enough: whoever has the writer's
    key must not be able to say what a person approved, nor to say it twice. So what they signed
    must be about the very record that this one follows.

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
    approvals = [approvers.open(text) for text in payload.approved]
    question = approvals[0].question
    for approval in approvals:
        approvers.check_bound(approval, question)
    end = checkpoint.sequence - 1, checkpoint.previous
    if (
        (question.store, question.thread) != (checkpoint.store, checkpoint.thread)
        or (question.head.sequence, question.head.digest) != end
        or Reason.ASKED not in question.reasons
        or any(approval.verdict != "approved" for approval in approvals)
    ):
        raise ApprovalMismatch(
            f"{shown} goes on from an approval of something else.",
            "Whoever wrote it had the writer's key. Do not use it; replace that key.",
        )
    if approvers.count(approvals) < (gate.policy.needs(Reason.ASKED) or 1):
        raise ApprovalUntrusted(
            f"{shown} goes on from an approval by fewer people than the policy asks for.",
            "Go back to the checkpoint that asked, and let them approve it.",
        )
    names = tuple(dict.fromkeys(approval.approver for approval in approvals))
    return Approved(question.action, dict(question.arguments), names)


def check_denial(gate: Gate, checkpoint: Checkpoint, payload: Payload) -> None:
    """Refuse a denial that nobody signed, or that was signed for something else.

    Raises:
        ApprovalError: it is one.
    """
    if payload.denied is None or gate.approvers is None:
        return
    denial = gate.approvers.open(payload.denied)
    question = denial.question
    if (
        denial.verdict != "denied"
        or (question.store, question.thread) != (checkpoint.store, checkpoint.thread)
        or (question.head.sequence, question.head.digest)
        != (checkpoint.sequence - 1, checkpoint.previous)
    ):
        raise ApprovalMismatch(
            f"{checkpoint.thread} #{checkpoint.sequence} ends with a denial of something else.",
            "Whoever wrote it had the writer's key. Do not use it; replace that key.",
        )
