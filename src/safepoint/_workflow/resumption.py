"""Resuming: look at what there is, let the gate decide, and write it down before a step runs.

An approval is bound to the exact end of its thread. A resume that needed one appends a record right
after that end, and an append has one winner. So that record is what spends the approval: two
workers cannot both use it, and one that dies has either written it or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NoReturn

from safepoint._ledger.noting import RESUMING, Notes
from safepoint._workflow.granted import granted
from safepoint._workflow.granting import accept, decided
from safepoint._workflow.ledgers import SavesAndLoads
from safepoint._workflow.looking import Resumption, look
from safepoint._workflow.payload import Payload, Resumed
from safepoint._workflow.plan import Plan
from safepoint._workflow.run import Run
from safepoint.approval import Approval
from safepoint.errors import (
    ApprovalSpent,
    ConfigurationError,
    Conflict,
    ResumeRefused,
    WorkflowMismatch,
)
from safepoint.gate import MAX_APPROVERS
from safepoint.heads import Head
from safepoint.journal import Actor, Outcome
from safepoint.reasons import Reason


def resume(
    workflow: Plan,
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
    notes = Notes.of(ledger)
    with notes.watching("resume", thread, quiet=RESUMING):
        given, moment = _listed(approvals), _aware(now)
        if workflow.gate.approvers is not None and ledger.keys is not None:
            workflow.gate.approvers.check_apart(ledger.keys)
        wanted = look(workflow, ledger, thread, sequence)
    with notes.watching("resume", thread, wanted.at, quiet=RESUMING):
        if wanted.is_over:
            accept(wanted, ledger, given, moment)
            ledger.settle(thread)  # as below: a denial that is cut off would be undone
            return _run(wanted, ledger)
        accepted = decided(wanted, ledger, given, moment)
        if _is_no(accepted) and not _ends(wanted):
            return _denied(wanted, accepted[0], notes)
        if wanted.decision.reasons:
            return _through(wanted, ledger, accepted, notes)
        _check_steps(wanted, wanted.payload.done)
        ledger.settle(thread)  # a crash may have come between the last save and its anchor
        notes.write("resume", "done", thread, wanted.head, " ".join(wanted.decision.notes))
        return _run(wanted, ledger)


def _run(wanted: Resumption, ledger: SavesAndLoads) -> Run:
    return Run(
        wanted.workflow,
        ledger,
        wanted.checkpoint.thread,
        wanted.payload,
        at=wanted.latest,
        approved=wanted.approved,
        notes=wanted.decision.notes,
    )


def _is_no(accepted: tuple[Approval, ...]) -> bool:
    return any(approval.verdict == "denied" for approval in accepted)


def _ends(wanted: Resumption) -> bool:
    """Tell whether a no ends the run: if it waits at its end for an answer to what a step asked.

    A no to anything else, such as a wider tool set or a way back, leaves the run as it is.
    """
    return wanted.payload.asked is not None and wanted.checkpoint is wanted.latest


def _denied(wanted: Resumption, denial: Approval, notes: Notes) -> NoReturn:
    _note_answers(wanted, (denial,), notes, "done")
    raise ResumeRefused(
        f"{denial.approver} denied it: {wanted} is not resumed.",
        "The run stays as it was. Ask again only if something has changed.",
    )


def _note_answers(
    wanted: Resumption, accepted: tuple[Approval, ...], notes: Notes, outcome: Outcome
) -> None:
    """Write down who said yes or no."""
    for approval in accepted:
        notes.write(
            "deny" if approval.verdict == "denied" else "approve",
            outcome,
            wanted.checkpoint.thread,
            wanted.at,
            approval.question.action,
            actor=Actor(approval.approver, f"signature of key {approval.key}"),
        )


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
    denied, into = _is_no(accepted), f"{wanted.checkpoint.app} to {workflow.app}"
    migrates = not denied and wanted.version in workflow.migrations.sources
    said = [f"{each.verdict} by {each.approver}, nonce {each.nonce}." for each in accepted]
    detail = " ".join((f"{into}: {', '.join(decision.reasons)}.", *said, *decision.notes))
    notes.write("resume", "intended", thread, wanted.at, detail)
    _note_answers(wanted, accepted, notes, "intended")
    if migrates:
        notes.write("migrate", "intended", thread, wanted.at, into)
    run = Run(workflow, ledger, thread, payload, at=wanted.latest, notes=decision.notes)
    try:
        written = run.record(app=wanted.checkpoint.app if denied else workflow.app)
    except Conflict as conflict:
        if not accepted:
            raise
        raise ApprovalSpent(
            f"Another worker resumed {thread} first, so this approval is spent.",
            "Let that worker go on. If it died, resume without approvals.",
        ) from conflict
    head = Head(written.sequence, written.digest)
    _note_answers(wanted, accepted, notes, "done")
    if migrates:
        notes.write("migrate", "done", thread, head, into)
    notes.write("resume", "refused" if denied else "done", thread, head, detail)
    grant = granted(workflow.gate, written, payload)
    run.approved = None if grant is None else grant.approved
    return run


def _following(wanted: Resumption, accepted: tuple[Approval, ...], notes: Notes) -> Payload:
    """Return what the record of the resumption holds.

    Raises:
        WorkflowError: the state cannot be carried to the workflow of today.
    """
    workflow, checkpoint, payload = wanted.workflow, wanted.checkpoint, wanted.payload
    denial = accepted[0].text if _is_no(accepted) else None
    reasons, texts = wanted.decision.reasons, tuple(approval.text for approval in accepted)
    state, done = payload.state, payload.done
    if denial is None:
        with notes.watching("migrate", checkpoint.thread, wanted.at):
            if wanted.version in workflow.migrations.sources:
                state, done = workflow.migrations.carry(wanted.version, state, done)
            _check_steps(wanted, done)
    # Going back is meant to repeat what was done. Anything else must not.
    again = Reason.OLD_CHECKPOINT in reasons
    return Payload(
        state=state,
        done=done,
        tools=payload.tools if denial is not None else workflow.tools,
        approved=texts if wanted.asked is not None and denial is None else (),
        denied=denial,
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


def _aware(now: object) -> datetime:
    if not isinstance(now, datetime) or now.utcoffset() is None:
        raise ConfigurationError(
            "The time of a resume has no time zone, or is no time.", "Write now=datetime.now(UTC)."
        )
    return now


def _listed(approvals: Iterable[str]) -> list[str]:
    """Return what was given, each once.

    Raises:
        ConfigurationError: it is no list, or too long for one.
    """
    if isinstance(approvals, (str, bytes)) or not isinstance(approvals, Iterable):
        raise ConfigurationError(
            f"The approvals were given as {type(approvals).__name__}.",
            "Give a list of what the approvers signed: approvals=[text].",
        )
    given: list[str] = []
    for text in approvals:
        if text not in given:
            given.append(text)
        if len(given) > MAX_APPROVERS:
            raise ConfigurationError(
                f"More than {MAX_APPROVERS} approvals were given.",
                "Give one of each person whom the policy asks for.",
            )
    return given
