"""Resuming: look at what there is, let the gate decide, and write it down before a step runs.

An approval is bound to the exact end of its thread. A resume that needed one appends a record right
after that end, and an append has one winner. So that record is what spends the approval: two
workers cannot both use it, and one that dies has either written it or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from safepoint._ledger.noting import Notes
from safepoint._workflow.granted import granted
from safepoint._workflow.granting import decided
from safepoint._workflow.ledgers import SavesAndLoads
from safepoint._workflow.looking import Resumption, look
from safepoint._workflow.payload import Payload, Resumed
from safepoint._workflow.run import Run
from safepoint.approval import Approval
from safepoint.errors import ApprovalSpent, ConfigurationError, Conflict, WorkflowMismatch
from safepoint.heads import Head
from safepoint.journal import Actor
from safepoint.reasons import Reason

if TYPE_CHECKING:
    from safepoint.workflow import Workflow


def resume(
    workflow: Workflow,
    ledger: SavesAndLoads,
    thread: str,
    sequence: int | None,
    approvals: Iterable[str],
    now: datetime,
) -> Run:
    """Return a run that may go on, after the record that says so was written, if one is due.

    Raises:
        CheckpointError: it was refused. No step ran.
    """
    given = _listed(approvals)
    if workflow.gate.approvers is not None and ledger.keys is not None:
        workflow.gate.approvers.check_apart(ledger.keys)
    notes = Notes.of(ledger)
    with notes.watching("resume", thread):
        wanted = look(workflow, ledger, thread, sequence, now)
        accepted = decided(wanted, ledger, given, now)
        if wanted.decision.reasons and not _is_over(wanted):
            return _through(wanted, ledger, accepted, notes)
        if not _is_over(wanted):
            _check_steps(wanted, wanted.payload.done)
        ledger.settle(thread)  # a crash may have come between the last save and its anchor
        notes.write("resume", "done", thread, wanted.head, " ".join(wanted.decision.notes))
        return Run(
            workflow,
            ledger,
            thread,
            wanted.payload,
            at=wanted.latest,
            approved=wanted.approved,
            notes=wanted.decision.notes,
        )


def _is_over(wanted: Resumption) -> bool:
    """Tell whether the thread ended with a denial, so that there is nothing to go on with."""
    return wanted.payload.denied is not None and wanted.checkpoint is wanted.latest


def _through(
    wanted: Resumption, ledger: SavesAndLoads, accepted: tuple[Approval, ...], notes: Notes
) -> Run:
    """Append the record that spends the approvals, and return the run that goes on from it."""
    workflow, thread, decision = wanted.workflow, wanted.checkpoint.thread, wanted.decision
    if ledger.keys is not None and ledger.journal is None:
        raise ConfigurationError(
            f"{wanted} can be resumed only where that is written down."
            f" {' '.join(decision.details)}",
            "Write Ledger(..., journal=FileJournal(path, keys=...)).",
        )
    payload = _following(wanted, accepted, notes)
    for approval in accepted:
        who = Actor(approval.approver, f"signature of key {approval.key}")
        notes.write(
            "deny" if approval.verdict == "denied" else "approve",
            "done",
            thread,
            wanted.at,
            approval.question.action,
            actor=who,
        )
    into = f"{wanted.checkpoint.app} to {workflow.app}"
    detail = " ".join((f"{into}: {', '.join(decision.reasons)}.", *decision.notes))
    notes.write("resume", "intended", thread, wanted.at, detail)
    run = Run(workflow, ledger, thread, payload, at=wanted.latest, notes=decision.notes)
    try:
        written = run.capture()
    except Conflict as conflict:
        if not accepted:
            raise
        raise ApprovalSpent(
            f"Another worker resumed {thread} first, so this approval is spent.",
            "Let that worker go on. If it died, resume without approvals.",
        ) from conflict
    head = Head(written.sequence, written.digest)
    if Reason.VERSION_CHANGED in decision.reasons:
        notes.write("migrate", "done", thread, head, into)
    notes.write("resume", "done", thread, head, detail)
    run.approved = granted(workflow.gate, written, payload)
    return run


def _following(wanted: Resumption, accepted: tuple[Approval, ...], notes: Notes) -> Payload:
    """Return what the record of the resumption holds.

    Raises:
        WorkflowError: the state cannot be carried to the workflow of today.
    """
    workflow, checkpoint, payload = wanted.workflow, wanted.checkpoint, wanted.payload
    denial = next((each.text for each in accepted if each.verdict == "denied"), None)
    reasons, texts = wanted.decision.reasons, tuple(approval.text for approval in accepted)
    state, done = payload.state, payload.done
    if denial is None:
        with notes.watching("migrate", checkpoint.thread, wanted.at):
            if wanted.version in workflow.migrations.sources:
                state, done = workflow.migrations.carry(wanted.version, state, done)
            _check_steps(wanted, done)
    approved = texts if wanted.asked is not None else payload.approved
    # Going back is meant to repeat what was done. Anything else must not.
    again = Reason.OLD_CHECKPOINT in reasons
    return Payload(
        state=state,
        done=done,
        tools=workflow.tools,
        approved=approved if denial is None else (),
        denied=payload.denied if denial is None else denial,
        resumed=Resumed(
            app=checkpoint.app,
            digest=checkpoint.digest,
            reasons=tuple(str(reason) for reason in reasons),
            sequence=checkpoint.sequence,
            statements=texts,
        ),
        origin=None if again else payload.origin or checkpoint.sequence,
    )


def _check_steps(wanted: Resumption, done: tuple[str, ...]) -> None:
    """Refuse a run that has done something else than the workflow of today begins with.

    Raises:
        WorkflowMismatch: it has.
    """
    if list(done) != list(wanted.workflow.steps)[: len(done)]:
        raise WorkflowMismatch(
            f"{wanted} was written by other steps than those of {wanted.workflow.name} today.",
            "Resume it with the code that wrote it, or give the workflow a new version and a"
            " migration that says which steps are done.",
        )


def _listed(approvals: Iterable[str]) -> list[str]:
    if isinstance(approvals, (str, bytes)) or not isinstance(approvals, Iterable):
        raise ConfigurationError(
            f"The approvals were given as {type(approvals).__name__}.",
            "Give a list of what the approvers signed: approvals=[text].",
        )
    return list(approvals)
