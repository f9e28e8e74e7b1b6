"""Workflow: steps, the state between them, and a checkpoint after each.

Small on purpose: enough to show what resuming means, and what it trusts. A resume goes through
`look` (what is verified, and what the gate says), `_accepted` (whose answers count) and `_through`
(the one append that spends them); only then a `Run` goes on.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from safepoint.approval import SKEW, Approval, Question, Reason, signable
from safepoint.errors import (
    AnchorUnavailable,
    ApprovalExpired,
    ApprovalMismatch,
    ApprovalNeeded,
    ApprovalSpent,
    ApprovalUntrusted,
    CheckpointError,
    ConfigurationError,
    Conflict,
    MigrationFailed,
    NotFound,
    ResumeRefused,
    WorkflowError,
    WorkflowMismatch,
    quoted,
)
from safepoint.gate import Decision, Gate, Situation
from safepoint.journal import RESUMING, Actor, Notes, Outcome
from safepoint.ledger import Ledger
from safepoint.names import Head, check_name, check_sequence, digest_of
from safepoint.record import Checkpoint
from safepoint.tools import Tool, ToolSet

_ACTION: Final = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_VERSION: Final = re.compile(r"[A-Za-z0-9._+-]{0,40}")
_NOBODY: Final = (
    'Say who may approve: Workflow(..., gate=Gate(approvers=Approvers({"dana": key}))).'
)
_THIEF: Final = "Whoever wrote it had the writer's key. Do not use it; replace that key."


@dataclass(frozen=True, slots=True)
class Ask:
    """What a step returns to let the run wait for people.

    The step counts as done. The run is captured and pauses; it goes on with the next step when
    enough people have approved exactly this action with exactly these arguments. That next step,
    and no other, is told what they approved.

    ```python
    from safepoint import Ask

    def ask(state):
        return Ask("pay", {"amount": state["amount"], "payee": state["payee"]})
    ```

    Args:
        action: what will be done, as one word.
        arguments: with what: a few plain values. The step that acts gets them from the signed
            approval, not from here.
        changes: what changes in the state.
    """

    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    changes: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def checked(self) -> Ask:
        """Return it as it can be signed.

        Raises:
            WorkflowError: the action is no word, or the arguments cannot be kept exactly.
        """
        if not isinstance(self.action, str) or not _ACTION.fullmatch(self.action):
            raise WorkflowError(
                f"{quoted(self.action)} cannot name what is asked.",
                "Use 1 to 128 of A-Z, a-z, 0-9 and . _ : / -",
            )
        try:
            return replace(self, arguments=signable(dict(self.arguments)))
        except CheckpointError as error:
            raise WorkflowError(
                f"What {self.action} is asked with cannot be signed. {error.what}",
                "Ask with a few plain values: text, numbers, Decimal, dates, lists and dicts.",
            ) from error


class Approved(NamedTuple):
    """What people approved, out of the statements that they signed.

    Attributes:
        action: what may be done.
        arguments: with what, exactly.
        by: the names of those who approved it.
    """

    action: str
    arguments: dict[str, Any]
    by: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Approved({self.action!r}, by={self.by!r})"


@dataclass(frozen=True, slots=True)
class Call:
    """What a step that takes a second argument is told.

    Attributes:
        thread: the name of the thread.
        step: the name of the step.
        sequence: the checkpoint that the step builds on.
        key: a name for what this step does now, an idempotency key: store, thread, the checkpoint
            that the last step left, and step. It is the same if the step runs again after a crash,
            in another process, after an approval, or in a next version in which it has the same
            name and still comes next. Give it to whatever acts, and let that drop what it has seen.
    """

    thread: str
    step: str
    sequence: int
    key: str
    _approved: Approved | None = field(default=None, repr=False)

    @property
    def was_approved(self) -> bool:
        """Whether people approved what the step before this one asked for."""
        return self._approved is not None

    @property
    def approved(self) -> Approved:
        """What people approved, out of what they signed. It is for this step alone.

        Raises:
            WorkflowError: nobody was asked.
        """
        if self._approved is None:
            raise WorkflowError(
                f"Nobody was asked to approve the step {self.step}.",
                "Let the step right before it return an Ask.",
            )
        return self._approved._replace(arguments=copy.deepcopy(self._approved.arguments))


_Carried = tuple[dict[str, Any], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from a version to a later one.

    ```python
    from safepoint.workflow import Migration

    def with_currency(state):
        return {**state, "currency": "EUR"}

    Migration("1", "2", with_currency, steps={"fetch": "load"})
    ```

    Args:
        before: the version that wrote the checkpoint.
        after: the version that it is for.
        change: takes the state and returns the whole state of the next version.
        steps: new names of steps that are done; None for one that is no more.
    """

    before: str
    after: str
    change: Callable[[dict[str, Any]], Mapping[str, Any]]
    steps: Mapping[str, str | None] = field(default_factory=dict)

    def carry(self, state: dict[str, Any], done: tuple[str, ...]) -> _Carried:
        """Return the state and what is done, as the next version has it.

        Raises:
            MigrationFailed: the function raised, or returned something else than a state.
        """
        shown = f"The migration from {quoted(self.before)} to {quoted(self.after)}"
        try:
            returned = self.change(copy.deepcopy(state))
        except CheckpointError:
            raise
        except Exception as error:
            raise MigrationFailed(
                f"{shown} raised {type(error).__name__}.",
                "The checkpoint is as it was. Mend the migration, and resume again.",
            ) from error
        if not isinstance(returned, Mapping):
            raise MigrationFailed(
                f"{shown} returned {type(returned).__name__}.", "Return the whole state, as a dict."
            )
        names = (self.steps.get(name, name) for name in done)
        return dict(returned), tuple(name for name in names if name is not None)


class Resumed(NamedTuple):
    """Where a resumption came from, and why it was let through.

    Attributes:
        app: what wrote the checkpoint that was resumed.
        digest: the digest of that checkpoint.
        reasons: what the gate had to say.
        sequence: its sequence.
        statements: the approvals, as they were signed.
    """

    app: str
    digest: str
    reasons: tuple[str, ...]
    sequence: int
    statements: tuple[str, ...]


_KINDS: Final = {
    "state": dict,
    "done": list,
    "tools": list,
    "asked": dict,
    "approved": list,
    "denied": str,
    "resumed": dict,
    "origin": int,
}


@dataclass(frozen=True, slots=True)
class Payload:
    """A workflow's state as a checkpoint holds it.

    Attributes:
        state: what the steps work on.
        done: the names of the steps that finished.
        tools: the tool set in force.
        asked: what the run waits for, or None.
        approved: the signed approvals of what was asked last, for the steps that follow.
        denied: the signed denial that ended the run, or None.
        resumed: where this checkpoint came from, if it was resumed through the gate.
        origin: the checkpoint at which the last step ended, if that is an earlier one.
    """

    state: dict[str, Any] = field(repr=False)
    done: tuple[str, ...] = ()
    tools: ToolSet = field(default_factory=ToolSet)
    asked: Ask | None = None
    approved: tuple[str, ...] = ()
    denied: str | None = None
    resumed: Resumed | None = None
    origin: int | None = None

    def pack(self) -> dict[str, Any]:
        """Return it as plain values, without what there is nothing to say about."""
        asked, resumed = self.asked, self.resumed
        packed = {
            "tools": self.tools.described,
            "asked": asked and {"action": asked.action, "arguments": dict(asked.arguments)},
            "approved": list(self.approved),
            "denied": self.denied,
            "resumed": resumed
            and {
                **resumed._asdict(),
                "reasons": list(resumed.reasons),
                "statements": list(resumed.statements),
            },
            "origin": self.origin,
        }
        said = {name: value for name, value in packed.items() if value}
        return {"done": list(self.done), "state": copy.deepcopy(self.state), **said}

    @classmethod
    def unpack(cls, checkpoint: Checkpoint) -> Payload:
        """Return what a workflow kept in a checkpoint.

        Raises:
            WorkflowMismatch: it holds something else.
        """
        try:
            payload = cls._unpacked(dict(checkpoint.state))
            if checkpoint.tools == (payload.tools.digest if payload.tools else None):
                return payload
        except (CheckpointError, KeyError, TypeError, ValueError):
            pass
        raise WorkflowMismatch(
            f"{checkpoint.thread} #{checkpoint.sequence} does not hold a workflow's state.",
            "Load it with Ledger.load, if you wrote it with Ledger.save.",
        )

    @classmethod
    def _unpacked(cls, saved: dict[str, Any]) -> Payload:
        for name, value in saved.items():
            _a(_KINDS[name], value)
        if "asked" in saved:
            saved["asked"] = asked = Ask(**saved["asked"])
            _a(str, asked.action), _a(dict, asked.arguments)
        if "resumed" in saved:
            given = saved["resumed"]
            lists = {name: _texts(given[name]) for name in ("reasons", "statements")}
            saved["resumed"] = resumed = Resumed(**{**given, **lists})
            _a(str, resumed.app), _a(str, resumed.digest), _a(int, resumed.sequence)
        return cls(
            **{
                **saved,
                "state": saved["state"],
                "done": _texts(saved["done"]),
                "tools": ToolSet.from_described(saved.get("tools", [])),
                "approved": _texts(saved.get("approved", [])),
            }
        )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_a(str, item) for item in _a(list, value))


def _a(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


class Granted(NamedTuple):
    """What a record goes on from.

    Attributes:
        approved: what people approved.
        question: what they were asked.
        lapsed: why it no longer counts, or "".
    """

    approved: Approved
    question: Question
    lapsed: str


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
        raise ApprovalMismatch(f"{shown} goes on from an approval of something else.", _THIEF)
    people = tuple(dict.fromkeys(approval.approver for approval in approvals))
    revoked = [each.approver for each in approvals if each.key in approvers.revoked]
    lapsed = ""
    if revoked:
        lapsed = f"The key with which {revoked[0]} approved it was revoked since."
    elif len(people) < (gate.policy.needs(Reason.ASKED) or 1):
        lapsed = "Fewer people approved it than the policy asks for now."
    return Granted(Approved(question.action, question.arguments, people), question, lapsed)


def check_source(grant: Granted, checkpoint: Checkpoint, payload: Payload, ledger: Ledger) -> None:
    """Refuse a record that goes on from elsewhere than where people let it go on.

    Raises:
        ApprovalMismatch: it skips a step, or does what they were not asked.
    """
    asked = grant.question
    try:
        source = ledger.load(checkpoint.thread, asked.checkpoint.sequence)
        before = Payload.unpack(source)
    except NotFound:
        return  # it was pruned
    except WorkflowMismatch:
        same = False
    else:
        same = (
            source.digest == asked.checkpoint.digest
            and (source.app != checkpoint.app or before.done == payload.done)
            and (
                before.asked is None
                or (before.asked.action, before.asked.arguments) == (asked.action, asked.arguments)
            )
        )
    if not same:
        raise ApprovalMismatch(
            f"{checkpoint.thread} #{checkpoint.sequence} goes on from another place than people let"
            " it go on from.",
            _THIEF,
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
            _THIEF,
        )


def _follows(question: Question, checkpoint: Checkpoint) -> bool:
    """Tell whether a record stands right after the one that a question is about."""
    place = checkpoint.store, checkpoint.thread, checkpoint.sequence - 1, checkpoint.previous
    head = question.head
    return (question.store, question.thread, head.sequence, head.digest) == place


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

    workflow: Workflow
    checkpoint: Checkpoint
    latest: Checkpoint
    payload: Payload
    grant: Granted | None
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
    def is_over(self) -> bool:
        """Whether nothing is left to do: the thread ends with a denial, or with its last step."""
        payload, workflow = self.payload, self.workflow
        finished = payload.done == tuple(workflow.steps) and payload.asked is None
        return self.checkpoint is self.latest and (
            payload.denied is not None or (finished and self.checkpoint.app == workflow.app)
        )

    def question(self) -> Question:
        """Return what people are asked to approve."""
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

    def open_question(self) -> Question | None:
        """Return what people must approve, or None if nothing.

        Raises:
            ResumeRefused: nobody can approve it.
        """
        decision, policy = self.decision, self.workflow.gate.policy
        if self.is_over or decision.approvers == 0:
            return None
        if decision.approvers is None:
            never = [reason for reason in decision.reasons if policy.needs(reason) is None]
            raise ResumeRefused(
                f"{self} cannot be resumed. {' '.join(decision.details)}",
                _INSTEAD.get(
                    never[-1], "The policy lets nobody approve that. Start a new thread instead."
                ),
            )
        return self.question()

    def __str__(self) -> str:
        return f"{self.checkpoint.thread} #{self.checkpoint.sequence}"


_INSTEAD: Final = {
    Reason.NO_MIGRATION: "Register a migration from the version that wrote it, or resume it with"
    " that version.",
    Reason.OWNED_BY_ANOTHER: "Let that worker go on with it, or own it once the lease has ended.",
}


def _folded(details: tuple[str, ...]) -> tuple[str, ...]:
    """Return no more than a person reads. What is left out is bound by the digest of the tools."""
    short = [
        each if len(each) <= 200 else f"{each[:200]}... ({len(each)} characters)"
        for each in details
    ]
    if len(short) > 24:
        rest = digest_of("\n".join(details[23:]).encode())
        short[23:] = [f"And {len(details) - 23} more like these: {rest}."]
    return tuple(short)


def look(
    workflow: Workflow,
    ledger: Ledger,
    thread: str,
    sequence: int | None = None,
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
        check_source(wanted.grant, checkpoint, wanted.payload, ledger)
    return wanted


def judge(
    workflow: Workflow, ledger: Ledger | None, checkpoint: Checkpoint, latest: Checkpoint
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
    thread, gate, is_old = checkpoint.thread, workflow.gate, checkpoint.sequence < latest.sequence
    if checkpoint.app.partition("@")[0] != workflow.name:
        raise WorkflowMismatch(
            f"{thread} #{checkpoint.sequence} was not written by the workflow {workflow.name} but"
            f" by {quoted(checkpoint.app)}.",
            "Resume it with the workflow that wrote it.",
        )
    payload = Payload.unpack(checkpoint)
    check_denial(gate, checkpoint, payload)
    if payload.denied is not None and is_old:
        raise ResumeRefused(
            f"{thread} #{checkpoint.sequence} is a denial, so nothing goes on from there.",
            "Name a checkpoint before it.",
        )
    grant, asked = granted(gate, checkpoint, payload), payload.asked
    situation = Situation(
        checkpoint=checkpoint,
        head=Head(latest.sequence, latest.digest),
        had=payload.tools,
        has=workflow.tools,
        app=workflow.app,
        migrates_from=frozenset(workflow.migrations),
        asked=asked is not None,
        owner=None if ledger is None else ledger.holder(thread),
        worker=None if ledger is None else ledger.worker(thread),
    )
    decision = gate.decide(situation)
    if grant is not None and (decision.reasons or grant.lapsed):
        # An approval counts once, and for what was to be resumed then. Who goes back to before it
        # was acted upon, or on with something else, has to ask again.
        asked = Ask(grant.approved.action, grant.approved.arguments)
        said = f"It was approved before, at #{checkpoint.sequence}, and may have been done already."
        details = (*decision.details, f"{said} {grant.lapsed}".rstrip())
        decision = replace(gate.decide(replace(situation, asked=True)), details=details)
    if is_old and (denial := _denial(workflow, latest)):
        decision = replace(decision, details=(*decision.details, denial))
    return Resumption(workflow, checkpoint, latest, payload, grant, asked, decision)


def _denial(workflow: Workflow, latest: Checkpoint) -> str:
    """Say that the end of the thread, from which somebody wants to go back, is a denial."""
    try:
        denial = Payload.unpack(latest).denied
    except WorkflowMismatch:
        return ""
    name, approvers = "Somebody", workflow.gate.approvers
    if denial is None:
        return ""
    if approvers is not None:
        with suppress(CheckpointError):
            name = approvers.open(denial, revoked=True).approver
    return f"{name} denied it at #{latest.sequence}."


def _accepted(
    wanted: Resumption,
    ledger: Ledger,
    question: Question | None,
    given: Iterable[str],
    now: datetime,
) -> tuple[Approval, ...]:
    """Return the approvals that let it through, one of each person, or the one denial.

    Raises:
        ApprovalError: one of them does not count.
        ApprovalNeeded: there are too few.
        ConfigurationError: the workflow has no approvers.
    """
    gate, accepted = wanted.workflow.gate, dict[str, Approval]()
    for text in dict.fromkeys(given):
        if gate.approvers is None:
            raise ConfigurationError(
                f"{wanted} was given an approval, and its workflow has no approvers.", _NOBODY
            )
        _check_clock(wanted, now)
        approval = gate.approvers.open(text)
        _check_unspent(wanted, ledger, approval)
        if question is None:
            raise ApprovalMismatch(
                f"{wanted} needs no approval, and was given one of {approval.approver}.",
                "Somebody may have answered another question. Resume it without.",
            )
        approval.check_answers(question)
        approval.check_time(now, gate.policy.lifetime)
        if approval.approver not in accepted or approval.verdict == "denied":
            accepted[approval.approver] = approval
    denials = [approval for approval in accepted.values() if approval.verdict == "denied"]
    needed = wanted.decision.approvers or 0
    if denials or question is None or len(accepted) >= needed:
        return tuple(denials[:1] or accepted.values())
    people = "one person" if needed == 1 else f"{needed} people"
    have = f" {len(accepted)} of them approved so far." if accepted else ""
    raise ApprovalNeeded(
        f"{wanted} needs the approval of {people}. {' '.join(wanted.decision.details)}{have}",
        _NOBODY
        if gate.approvers is None
        else "Show them this error's question, and pass what they sign: resume(...,"
        " approvals=[text]).",
        question,
    )


def _check_clock(wanted: Resumption, now: datetime) -> None:
    """Refuse to tell what has expired by a clock that is behind the last record.

    Raises:
        ApprovalExpired: it is.
    """
    created = wanted.latest.created
    if now < created - SKEW:
        raise ApprovalExpired(
            f"It is {now:%Y-%m-%d %H:%M} by this worker's clock, and {wanted.head} was written"
            f" {created:%Y-%m-%d %H:%M}.",
            "So what has expired cannot be told. Set the clock that is wrong. If it is the one that"
            f" wrote {wanted.head}, save that state anew with Ledger.save, and ask again.",
        )


def _check_unspent(wanted: Resumption, ledger: Ledger, approval: Approval) -> None:
    """Refuse an approval that was given for an earlier end of this thread.

    Raises:
        ApprovalSpent: it was.
    """
    question, thread = approval.question, wanted.checkpoint.thread
    after = question.head.sequence + 1
    if (
        (question.store, question.thread) != (wanted.checkpoint.store, thread)
        or question.head == wanted.head
        or after > wanted.latest.sequence
    ):
        return  # of another history, which the comparison with the question tells
    resumed = None
    with suppress(CheckpointError):  # pruned, or not of a workflow
        resumed = Payload.unpack(ledger.load(thread, after)).resumed
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


def _through(
    wanted: Resumption, ledger: Ledger, accepted: tuple[Approval, ...], notes: Notes
) -> Run:
    """Append the record that spends the approvals, and return the run that goes on from it."""
    workflow, thread, decision = wanted.workflow, wanted.checkpoint.thread, wanted.decision
    if any(ledger.keys) and ledger.journal is None:
        raise ConfigurationError(
            f"{wanted} can be resumed only where that is written down."
            f" {' '.join(decision.details)}",
            "Write Ledger(..., journal=FileJournal(path, keys=...)).",
        )
    payload = _following(wanted, accepted, notes)
    denied, into = payload.denied is not None, f"{wanted.checkpoint.app} to {workflow.app}"
    migrates = not denied and wanted.checkpoint.app.partition("@")[2] in workflow.migrations
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
    grant = granted(workflow.gate, written, payload)  # held to what was signed once more
    run.approved = None if grant is None else grant.approved
    return run


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


def _following(wanted: Resumption, accepted: tuple[Approval, ...], notes: Notes) -> Payload:
    """Return what the record of the resumption holds.

    Raises:
        WorkflowError: the state cannot be carried to the workflow of today.
    """
    workflow, checkpoint, payload = wanted.workflow, wanted.checkpoint, wanted.payload
    reasons, texts = wanted.decision.reasons, tuple(approval.text for approval in accepted)
    denial = next((each.text for each in accepted if each.verdict == "denied"), None)
    state, done = payload.state, payload.done
    if denial is None:
        with notes.watching("migrate", checkpoint.thread, wanted.at):
            state, done = workflow.carried(checkpoint.app, state, done)
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
            reasons=tuple(map(str, reasons)),
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
        workflow: Workflow,
        ledger: Ledger,
        thread: str,
        payload: Payload,
        *,
        at: Checkpoint | None = None,
        approved: Approved | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.workflow = workflow
        self.thread = thread
        self.approved = approved
        self.notes = notes
        self._ledger = ledger
        self._payload = payload
        self._at = at
        self._at_odds = False

    @property
    def head(self) -> int:  # noqa: D102  among the attributes above
        return 0 if self._at is None else self._at.sequence

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
        left = list(self.workflow.steps)[len(self.done) :]
        return left[0] if left and not self.denied else None

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
        if not self.paused or self._at is None:
            return None
        return judge(self.workflow, None, self._at, self._at).question()

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
        acts = self.approved is not None or name in self.workflow.anchor_before
        if acts:
            self._check_still_here(name)
        before, given = self._payload, copy.deepcopy(self.state)
        returned = self.workflow.call(name, given, self._call(name))
        asked = returned.checked() if isinstance(returned, Ask) else None
        if asked is not None:
            self._check_answerable(name)
        changes = _changes(name, asked.changes if asked else returned, given, self.state)
        self._payload = Payload(
            state={**self.state, **copy.deepcopy(dict(changes))},
            done=(*self.done, name),
            tools=self.workflow.tools,
            asked=asked,
        )
        try:
            if asked is not None:
                notes = self._ledger.notes
                notes.write("pause", "intended", self.thread, self._head, asked.action)
            checkpoint = self.record(at_once=acts)
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

    def record(self, *, at_once: bool = False, app: str | None = None) -> Checkpoint:
        """Save the run with all that it carries; it is for the workflow's own use.

        Args:
            at_once: whether the anchor must see it at once, as it must see each turning point.
            app: what wrote it, if not this workflow.
        """
        payload = self._payload
        turns = payload.asked is not None or payload.resumed is not None
        now = self._ledger.anchor is not None and (at_once or turns)
        try:
            self._at = self._ledger.save(
                self.thread,
                payload.pack(),
                app=self.workflow.app if app is None else app,
                tools=payload.tools.digest if payload.tools else None,
                after=self.head,
                anchor="now" if now or self.next in self.workflow.anchor_before else None,
            )
        except AnchorUnavailable:
            self._at_odds = True  # it may be saved, so this run does not know where it is
            raise
        return self._at

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

    @property
    def _head(self) -> Head | None:
        return None if self._at is None else Head(self._at.sequence, self._at.digest)

    def _call(self, name: str) -> Call:
        store = "" if self._at is None else self._at.store
        key = f"{store}/{self.thread}/{self._payload.origin or self.head}/{name}"
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
        self._ledger.notes.write("act", "intended", self.thread, self._head, name)

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
        approvers.check_apart(keys)
        if any(keys) and self._ledger.journal is None:
            raise ConfigurationError(
                f"The step {name} asks people, and the ledger has no journal to write the answer"
                " down.",
                "Write Ledger(..., journal=FileJournal(path, keys=...)).",
            )


def _changes(
    name: str, returned: object, given: dict[str, Any], before: dict[str, Any]
) -> Mapping[str, Any]:
    """Return what a step changed, unless it changed what it was given and did not say so."""
    changes = {} if returned is None else returned
    if not isinstance(changes, Mapping):
        raise WorkflowError(
            f"The step {name} returned {type(returned).__name__}.",
            "Return a dict of what changes in the state, nothing, or an Ask.",
        )
    for key in {*given, *before} - set(changes):
        # A class without a comparison of its own differs from any copy, changed or not.
        if (key in given) != (key in before) or (
            given[key] != before[key] and copy.deepcopy(before[key]) == before[key]
        ):
            raise WorkflowError(
                f"The step {name} changed the state in place, which is not kept.",
                'Return what changes instead: return {"amount": 42}',
            )
    return changes


Step = Callable[..., Mapping[str, Any] | Ask | None]
"""A function of the state, or of the state and a `Call`."""


class Workflow:
    """A name and a list of steps. A step takes the state and returns what changes in it.

    A step is a plain function. If it was interrupted, or another worker took the thread at the
    same time, it runs again: what it does outside of the state must bear that. A step with a second
    argument gets a `Call`, which has a key for that.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey, Workflow

    def fetch(state):
        return {"amount": 42}

    def pay(state):
        return {"paid": state["amount"]}

    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
    )
    run = Workflow("invoice", [fetch, pay]).start(ledger, thread="order-7", order=7)
    print(run.state)
    #> {'order': 7, 'amount': 42, 'paid': 42}
    ```

    Args:
        name: the workflow's name; a checkpoint of another workflow is refused.
        steps: functions, in order. Their names are what a checkpoint remembers.
        version: of the steps. A checkpoint of another version goes through the gate.
        tools: what the run can use. A wider set than a checkpoint's goes through the gate.
        migrations: how the state of an older version becomes one of this version.
        gate: who may resume into what. The default is strict, and knows nobody who approves.
        anchor_before: the steps that cannot be undone. The checkpoint before each of them is
            anchored at once, whatever the ledger's interval.

    Raises:
        WorkflowError: the steps are none, not plain functions, or two of one name.
        ConfigurationError: a version is outside its grammar, or the migrations lead elsewhere.
    """

    def __init__(
        self,
        name: str,
        steps: Iterable[Step],
        *,
        version: str = "",
        tools: ToolSet | Iterable[Tool] = (),
        migrations: Iterable[Migration] = (),
        gate: Gate | None = None,
        anchor_before: Iterable[Step] = (),
    ) -> None:
        self.name = check_name("workflow", name)
        named = [(_step_name(step), step) for step in steps]
        self.steps = dict(named)
        if not named or len(self.steps) != len(named):
            raise WorkflowError(
                f"The workflow {name} needs one or more steps with different names.",
                "Give each step a function of its own.",
            )
        self._told = frozenset(name for name, step in named if _is_told(name, step))
        self.anchor_before = frozenset(_step_name(step) for step in anchor_before)
        if not self.anchor_before <= set(self.steps):
            raise WorkflowError(
                f"The workflow {name} has no step to anchor before.",
                "Name steps of this workflow in anchor_before.",
            )
        self.tools = tools if isinstance(tools, ToolSet) else ToolSet(tools)
        self.gate: Final = gate or Gate()
        self.version = version
        self.migrations: dict[str, Migration] = {}
        for migration in migrations:
            if migration.before in self.migrations:
                raise ConfigurationError(
                    f"Two migrations begin at version {quoted(migration.before)}.",
                    "Keep one: which of them to take would be a guess.",
                )
            self.migrations[migration.before] = migration
        for before in (version, *self.migrations):
            if not _VERSION.fullmatch(before):
                raise ConfigurationError(
                    f"{quoted(before)} is not a version.",
                    'Use up to 40 of A-Z, a-z, 0-9 and . _ + -, such as version="2".',
                )
            self._path(before)

    @property
    def app(self) -> str:
        """What its checkpoints say wrote them: the name, and the version if there is one."""
        return f"{self.name}@{self.version}" if self.version else self.name

    def start(self, ledger: Ledger, /, thread: str, **state: Any) -> Run:
        """Begin a new thread with `state`, and run every step up to the end or a pause.

        Raises:
            Conflict: the thread exists. Resume it, or choose another name.
            CheckpointError: a checkpoint was refused; the steps stop there.
        """
        return self.begin(ledger, thread, **state).finish()

    def begin(self, ledger: Ledger, /, thread: str, **state: Any) -> Run:
        """Begin a new thread and capture its first checkpoint, without running a step yet.

        Raises:
            Conflict: the thread exists. Resume it, or choose another name.
            CheckpointError: the checkpoint was refused.
        """
        run = Run(self, ledger, thread, Payload(copy.deepcopy(state), tools=self.tools))
        try:
            run.record()
        except Conflict:
            raise Conflict(
                f"{thread} has started already.",
                "Nothing was overwritten. Go on with resume, or start a thread of another name.",
            ) from None
        return run

    def resume(
        self,
        ledger: Ledger,
        /,
        thread: str,
        sequence: int | None = None,
        *,
        approvals: Iterable[str] = (),
        now: datetime | None = None,
    ) -> Run:
        """Go on from the latest checkpoint, or from the one that you name, and run what is left.

        Args:
            ledger: where the thread is.
            thread: the thread.
            sequence: an older checkpoint to go back to. The gate asks for a person's approval.
            approvals: what people signed, if the gate asks for them.
            now: the time by which approvals end, if not that of the clock.

        Raises:
            ApprovalNeeded: the gate wants people to approve it. The error has the question.
            ResumeRefused: the gate says no.
            ApprovalError: an approval does not count.
            CheckpointError: the checkpoint was refused, or belongs to another workflow.
        """
        return self.rehydrate(ledger, thread, sequence, approvals=approvals, now=now).finish()

    def rehydrate(
        self,
        ledger: Ledger,
        /,
        thread: str,
        sequence: int | None = None,
        *,
        approvals: Iterable[str] = (),
        now: datetime | None = None,
    ) -> Run:
        """Rebuild a run from a checkpoint, in any process, without running anything yet.

        It passes the same gate as `resume`, and takes and raises the same.
        """
        notes = ledger.notes
        with notes.watching("resume", thread, quiet=RESUMING):
            if isinstance(approvals, str):
                raise ConfigurationError(
                    "The approvals were given as str.",
                    "Give a list of what the approvers signed: approvals=[text].",
                )
            if self.gate.approvers is not None:
                self.gate.approvers.check_apart(ledger.keys)
            wanted = look(self, ledger, thread, sequence)
        with notes.watching("resume", thread, wanted.at, quiet=RESUMING):
            question = wanted.open_question()
            moment = now or datetime.now(UTC)
            accepted = _accepted(wanted, ledger, question, approvals, moment)
            waits_here = wanted.payload.asked is not None and wanted.checkpoint is wanted.latest
            if accepted and accepted[0].verdict == "denied" and not waits_here:
                # A no ends the run if it answers what a step asked. A no to anything else, such as
                # a wider tool set or a way back, leaves the run as it is.
                _note_answers(wanted, accepted, notes, "done")
                raise ResumeRefused(
                    f"{accepted[0].approver} denied it: {wanted} is not resumed.",
                    "The run stays as it was. Ask again only if something has changed.",
                )
            goes_on = not wanted.is_over
            if goes_on and wanted.decision.reasons:
                return _through(wanted, ledger, accepted, notes)
            if goes_on:
                _check_steps(wanted, wanted.payload.done)
            ledger.settle(thread)  # a crash may have come between the last save and its anchor
            if goes_on:
                notes.write("resume", "done", thread, wanted.head, " ".join(wanted.decision.notes))
            return Run(
                self,
                ledger,
                thread,
                wanted.payload,
                at=wanted.latest,
                approved=wanted.grant.approved if wanted.grant and not wanted.asked else None,
                notes=wanted.decision.notes,
            )

    def question(
        self, ledger: Ledger, /, thread: str, sequence: int | None = None
    ) -> Question | None:
        """Return what people must approve before such a resume, or None if nothing.

        It is for the approver's own process: it reads the verified store, and needs no word of the
        worker, who may still own the thread.

        Raises:
            ResumeRefused: nobody can approve it.
            CheckpointError: the checkpoint was refused, or belongs to another workflow.
        """
        return look(self, ledger, thread, sequence, to_ask=True).open_question()

    def waiting(self, ledger: Ledger) -> Iterator[Question]:
        """Return the question of each thread of this workflow that waits for people.

        A thread that does not verify, or is of another workflow, is left out: `Ledger.verify` tells
        about the first.
        """
        for thread in ledger.threads():
            with suppress(CheckpointError):
                found = look(self, ledger, thread, to_ask=True)
                question = found.open_question()
                if found.asked is not None and question is not None:
                    yield question

    def call(self, name: str, state: dict[str, Any], call: Call) -> Mapping[str, Any] | Ask | None:
        """Run one step, and return what it returned."""
        step = self.steps[name]
        return step(state, call) if name in self._told else step(state)

    def carried(self, app: str, state: dict[str, Any], done: tuple[str, ...]) -> _Carried:
        """Return the state and what is done, as this version has it.

        Raises:
            MigrationFailed: a migration failed.
        """
        before = app.partition("@")[2]
        for migration in self._path(before) if before in self.migrations else ():
            state, done = migration.carry(state, done)
        return state, done

    def _path(self, before: str) -> list[Migration]:
        """Return the migrations from a version to this one, in order; none if it is this one.

        Raises:
            ConfigurationError: no chain of them leads there.
        """
        found: list[Migration] = []
        at = before
        while at != self.version:
            migration = self.migrations.get(at)
            if migration is None or len(found) > len(self.migrations):
                raise ConfigurationError(
                    f"The migrations from version {quoted(before)} do not lead to"
                    f" {quoted(self.version)}.",
                    "Register one for each version on the way.",
                )
            found.append(migration)
            at = migration.after
        return found


def _step_name(step: Step) -> str:
    name = getattr(step, "__name__", "")
    if not isinstance(name, str) or not name.isidentifier():
        raise WorkflowError(
            f"{quoted(name)} cannot name a step.", "Use functions that were defined with def."
        )
    if inspect.iscoroutinefunction(step):
        raise WorkflowError(
            f"The step {name} is async.", "Steps are plain functions: call asyncio.run inside it."
        )
    return name


def _is_told(name: str, step: Step) -> bool:
    """Tell whether a step takes a `Call` besides the state."""
    try:
        signature = inspect.signature(step)
    except (TypeError, ValueError):
        return False  # some built-in functions do not say
    required = [
        each
        for each in signature.parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if len(required) in (1, 2) and required[-1].kind is not inspect.Parameter.KEYWORD_ONLY:
        return len(required) == 2
    raise WorkflowError(
        f"The step {name} takes other arguments than a step does.",
        "Define it as def step(state), or def step(state, call).",
    )
