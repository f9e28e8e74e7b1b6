"""Granting: which of the approvals that were given count, and what people approved with them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from safepoint._workflow.ledgers import SavesAndLoads
from safepoint._workflow.looking import Resumption
from safepoint._workflow.payload import Payload
from safepoint.approval import SKEW, Approval, Question
from safepoint.errors import (
    ApprovalExpired,
    ApprovalMismatch,
    ApprovalNeeded,
    ApprovalSpent,
    CheckpointError,
    ConfigurationError,
    ResumeRefused,
)
from safepoint.gate import Verdict
from safepoint.reasons import Reason

_INSTEAD = {
    Reason.NO_MIGRATION: "Register a migration from the version that wrote it, or resume it with"
    " that version.",
    Reason.OWNED_BY_ANOTHER: "Let that worker go on with it, or own it once the lease has ended.",
}


_NOBODY = 'Say who may approve: Workflow(..., gate=Gate(approvers=Approvers({"dana": key}))).'


def check_not_refused(wanted: Resumption) -> None:
    """Refuse what nobody can approve.

    Raises:
        ResumeRefused: the gate says no.
    """
    decision, policy = wanted.decision, wanted.workflow.gate.policy
    if decision.verdict is Verdict.REFUSED:
        never = [reason for reason in decision.reasons if policy.needs(reason) is None]
        raise ResumeRefused(
            f"{wanted} cannot be resumed. {' '.join(decision.details)}",
            _INSTEAD.get(
                never[-1], "The policy lets nobody approve that. Start a new thread instead."
            ),
        )


def decided(
    wanted: Resumption, ledger: SavesAndLoads, given: Sequence[str], now: datetime
) -> tuple[Approval, ...]:
    """Return the approvals that let it through, or the one denial.

    Raises:
        ResumeRefused: the gate says no.
        ApprovalError: one of them does not count.
        ApprovalNeeded: there are too few.
    """
    check_not_refused(wanted)
    accepted = accept(wanted, ledger, given, now)
    denials = [approval for approval in accepted if approval.verdict == "denied"]
    if denials:
        return (denials[0],)
    if wanted.question is not None:
        _check_enough(wanted, wanted.question, accepted)
    return accepted


def accept(
    wanted: Resumption, ledger: SavesAndLoads, given: Sequence[str], now: datetime
) -> tuple[Approval, ...]:
    """Return the approvals that count, one of each person.

    Raises:
        ApprovalError: one does not count.
        ConfigurationError: the workflow has no approvers.
    """
    if not given:
        return ()
    gate = wanted.workflow.gate
    question = None if wanted.is_over else wanted.question
    if gate.approvers is None:
        raise ConfigurationError(
            f"{wanted} was given an approval, and its workflow has no approvers.",
            _NOBODY,
        )
    if now < wanted.latest.created - SKEW:
        raise ApprovalExpired(
            f"It is {now:%Y-%m-%d %H:%M} by this worker's clock, and {wanted.head} was written"
            f" {wanted.latest.created:%Y-%m-%d %H:%M}.",
            "So what has expired cannot be told. Set the clock that is wrong. If it is the one that"
            f" wrote {wanted.head}, save that state anew with Ledger.save, and ask again.",
        )
    accepted: dict[tuple[str, str], Approval] = {}
    for text in given:
        approval = gate.approvers.open(text)
        _check_unspent(wanted, ledger, approval)
        if question is None:
            raise ApprovalMismatch(
                f"{wanted} needs no approval, and was given one of {approval.approver}.",
                "Somebody may have answered another question. Resume it without.",
            )
        gate.approvers.check_at_time(approval, question, now, lifetime=gate.policy.lifetime)
        accepted.setdefault((approval.approver, approval.verdict), approval)
    return tuple(accepted.values())


def _check_enough(wanted: Resumption, question: Question, accepted: Sequence[Approval]) -> None:
    needed, approvers = wanted.decision.approvers, wanted.workflow.gate.approvers
    found = 0 if approvers is None else approvers.count(accepted)
    if found >= needed:
        return
    people = "one person" if needed == 1 else f"{needed} people"
    have = f" {found} of them approved so far." if found else ""
    raise ApprovalNeeded(
        f"{wanted} needs the approval of {people}. {' '.join(wanted.decision.details)}{have}",
        _NOBODY
        if approvers is None
        else "Show them this error's question, and pass what they sign: resume(...,"
        " approvals=[text]).",
        question,
    )


def _check_unspent(wanted: Resumption, ledger: SavesAndLoads, approval: Approval) -> None:
    """Refuse an approval that was given for an earlier end of this thread.

    Raises:
        ApprovalSpent: it was.
    """
    question, thread = approval.question, wanted.checkpoint.thread
    place = wanted.checkpoint.store, thread
    if (question.store, question.thread) != place or question.head == wanted.head:
        return
    after = question.head.sequence + 1
    if after > wanted.latest.sequence:
        return  # of another history, which the comparison with the question tells
    try:
        following = Payload.unpack(ledger.load(thread, after))
    except CheckpointError:
        following = None  # pruned, or not of a workflow
    resumed = None if following is None else following.resumed
    if resumed is not None and approval.text in resumed.statements:
        raise ApprovalSpent(
            f"This approval of {approval.approver} was used for {thread} #{after}.",
            "An approval counts once. If that run was interrupted, resume it without approvals.",
        )
    raise ApprovalSpent(
        f"{approval.approver} answered about {thread} {question.head}, and it is at {wanted.head}"
        " by now.",
        "Look at what happened since, and ask again.",
    )
