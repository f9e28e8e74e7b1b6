"""Workflow: steps, the state between them, and a checkpoint after each.

Small on purpose: enough to show what resuming means, and what it trusts. A resume is a
`Resumption`: what is verified and what the gate says of it, what people answered to that, and the
one append that spends their answers; only then a `Run` goes on. Where the gate finds nothing, there
is nothing to append, and only the anchor is settled.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, cast

from safepoint.core.codec import Codec, inspect_state
from safepoint.core.errors import (
    AnchorUnavailable,
    ApprovalExpired,
    ApprovalMismatch,
    ApprovalNeeded,
    ApprovalSpent,
    CheckpointError,
    ConfigurationError,
    Conflict,
    DecodeError,
    EncodeError,
    Forked,
    MigrationFailed,
    NotFound,
    NotOwner,
    ResumeRefused,
    ThreadHeld,
    WaitEnded,
    WorkflowError,
    WorkflowMismatch,
    quoted,
)
from safepoint.core.journal import RESUMING
from safepoint.core.ledger import Ledger, Link
from safepoint.core.names import Head, Limits, check_name, check_sequence, spelled
from safepoint.core.record import Checkpoint, check_app
from safepoint.resume.approval import THEN, Approval, Question, Reason, ends, is_denial, signable
from safepoint.resume.asking import (
    PUT,
    Approved,
    accepted,
    answers,
    approved,
    check_clock,
    check_held,
    check_journal,
    check_wait,
    contradicted,
    note_answers,
    note_late,
    noted,
)
from safepoint.resume.gate import Gate
from safepoint.resume.tools import Tool, ToolSet

_NOBODY: Final = (
    'Say who may approve: Workflow(..., gate=Gate(approvers=Approvers({"dana": key}))).'
)
_SHOW: Final = (
    "Show them this error's question, and pass what they sign: resume(..., approvals=[text])."
)
_FEWER: Final = "Fewer people approved it than the policy asks for now."
_OTHER_STEP: Final = "Another step comes next by now."
_TOO_LATE: Final = "Nothing shows that it was used before it expired."
_LAPSED: Final = ("", _FEWER, _OTHER_STEP, _TOO_LATE)
_PLAIN: Final = Codec()
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
        within: how long the run waits, in whole seconds, from the checkpoint on. After that no
            approval counts any more. Without it, the run waits for as long as nobody answers.
        tell: whom to tell when the wait ends soon: names for `Workflow.end_waits`.
        then: what happens at the end of the wait. "deny" ends the run, as somebody's no does.
            "continue" goes on with the next step, which finds `Call.expired`, and nothing approved.

    Raises:
        WorkflowError: the action is no word, or the arguments cannot be kept exactly; or the wait
            is no time.
    """

    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    within: timedelta | None = field(default=None, compare=False)
    tell: tuple[str, ...] = field(default=(), compare=False)
    then: Literal["deny", "continue"] = field(default="deny", compare=False)

    def __post_init__(self) -> None:
        check_wait(self.within, self.tell)
        if self.then not in THEN:
            raise WorkflowError(
                f"A wait, and then {quoted(self.then)}, cannot be used.",
                f"Write then={' or '.join(map(repr, THEN))}.",
            )
        try:
            arguments = signable(self.action, dict(self.arguments))
        except CheckpointError as error:
            raise WorkflowError(
                f"What {quoted(self.action)} is asked with cannot be signed. {error.what}", error.do
            ) from error
        object.__setattr__(self, "arguments", arguments)


@dataclass(frozen=True, slots=True)
class Call:
    """What a step that takes a second argument is told.

    Attributes:
        thread: the name of the thread.
        step: the name of the step.
        sequence: the checkpoint that the step builds on.
        key: a name for what this step does now, an idempotency key: store, tenant, thread, the
            checkpoint that the last step left, and step. It is the same if the step runs again
            after a crash, in another process, after an approval, or in a next version in which it
            has the same name and still comes next. Give it to whatever acts, and let that drop what
            it has seen.
        expired: whether the step before this one asked people, and the wait for them ended.
    """

    thread: str
    step: str
    sequence: int
    key: str
    _approved: Approved | None = field(default=None, repr=False)
    expired: bool = False

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


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from a version to a later one.

    ```python
    from safepoint.resume.workflow import Migration

    def with_currency(state):
        return {**state, "currency": "EUR"}

    Migration("1", "2", with_currency, steps={"fetch": "load"})
    ```

    Args:
        before: the version that wrote the checkpoint.
        after: the version that it is for.
        change: takes the state and returns the whole state of the next version, the same one each
            time: it is compared when a run that people let through goes on after a crash.
        steps: new names of steps that are done; None for one that is no more.
    """

    before: str
    after: str
    change: Callable[[dict[str, Any]], Mapping[str, Any]]
    steps: Mapping[str, str | None] = field(default_factory=dict)

    def carry(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state, as the next version has it.

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
        return dict(returned)


class Resumed(NamedTuple):
    """Where a resumption came from, and why it was let through.

    Attributes:
        app: what wrote the checkpoint that was resumed.
        digest: the digest of that checkpoint.
        reasons: what the gate had to say.
        sequence: its sequence.
        statements: what people answered, as they signed it: approvals, or one denial.
    """

    app: str
    digest: str
    reasons: tuple[str, ...]
    sequence: int
    statements: tuple[str, ...]


_SHAPE: Final[dict[str, Any]] = {
    "state": dict,
    "done": [str],
    "tools": list,
    "asked": {
        "action": str,
        "arguments": dict,
        "next": str,
        "tell": [str],
        "then": str,
        "within": int,
    },
    "resumed": {
        "app": str,
        "digest": str,
        "reasons": [str],
        "sequence": int,
        "statements": [str],
    },
    "origin": int,
    "expired": str,
}


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, type):
        return type(value) is shape
    if type(value) is not type(shape):
        return False
    if isinstance(shape, list):
        return all(type(item) is shape[0] for item in value)
    return value.keys() == shape.keys() and all(_fits(value[name], shape[name]) for name in shape)


@dataclass(frozen=True, slots=True)
class Payload:
    """A workflow's state as a checkpoint holds it.

    Attributes:
        state: what the steps work on.
        done: the names of the steps that finished.
        tools: the tool set in force.
        asked: what the run waits for, or None.
        resumed: where this checkpoint came from, if it was resumed through the gate.
        origin: the checkpoint at which the last step ended, if that is an earlier one.
        expired: what happened because nobody approved in time: "deny", "continue", or "".
        next: the step that would run once people have answered, for whoever asks them without the
            workflow. "" if none is left.
    """

    state: dict[str, Any] = field(repr=False)
    done: tuple[str, ...] = ()
    tools: ToolSet = field(default_factory=ToolSet)
    asked: Ask | None = None
    resumed: Resumed | None = None
    origin: int | None = None
    expired: str = ""
    next: str = field(default="", compare=False)

    @property
    def is_over(self) -> bool:
        """Whether a no ended the run: somebody's, or that nobody approved in time."""
        return self.denied is not None or self.expired == "deny"

    @property
    def denied(self) -> str | None:
        """The signed denial that ended the run, or None."""
        texts = self.resumed.statements if self.resumed else ()
        return next(filter(is_denial, texts), None)

    @property
    def approved(self) -> tuple[str, ...]:
        """The signed approvals of what was asked last, for the step that follows."""
        resumed = self.resumed
        if resumed is None or self.denied or Reason.ASKED not in resumed.reasons:
            return ()
        return resumed.statements

    def pack(self) -> dict[str, Any]:
        """Return it as plain values, without what there is nothing to say about."""
        asked, resumed = self.asked, self.resumed
        packed = {
            "tools": self.tools.described,
            "asked": asked
            and {
                "action": asked.action,
                "arguments": dict(asked.arguments),
                "next": self.next,
                "tell": list(asked.tell),
                "then": asked.then,
                "within": int(asked.within.total_seconds()) if asked.within else 0,
            },
            "resumed": resumed
            and {
                **resumed._asdict(),
                "reasons": list(resumed.reasons),
                "statements": list(resumed.statements),
            },
            "origin": self.origin,
            "expired": self.expired,
        }
        said = {name: value for name, value in packed.items() if value}
        return {"done": list(self.done), "state": copy.deepcopy(self.state), **said}

    @classmethod
    def unpack(cls, checkpoint: Checkpoint) -> Payload:
        """Return what a workflow kept in a checkpoint.

        Raises:
            WorkflowMismatch: it holds something else.
        """
        is_state = checkpoint.kind == "state" and type(checkpoint.state) is dict
        saved = checkpoint.state if is_state else {}
        if {"state", "done"} <= saved.keys() <= _SHAPE.keys() and all(
            _fits(value, _SHAPE[name]) for name, value in saved.items()
        ):
            with suppress(ConfigurationError, WorkflowError, OverflowError):
                tools = ToolSet.from_described(saved.get("tools", []))
                asked, resumed = saved.get("asked"), saved.get("resumed")
                if resumed:
                    texts = {name: tuple(resumed[name]) for name in ("reasons", "statements")}
                    resumed = Resumed(**{**resumed, **texts})
                if checkpoint.tools == (tools.digest if tools else None):
                    return cls(
                        state=saved["state"],
                        done=tuple(saved["done"]),
                        tools=tools,
                        asked=asked and _unpacked(asked),
                        resumed=resumed,
                        origin=saved.get("origin"),
                        expired=saved.get("expired", ""),
                        next=asked["next"] if asked else "",
                    )
        raise WorkflowMismatch(
            f"{checkpoint.thread} #{checkpoint.sequence} does not hold a workflow's state.",
            "Load it with Ledger.load, if you wrote it with Ledger.save.",
        )


def _unpacked(asked: dict[str, Any]) -> Ask:
    within = timedelta(seconds=asked["within"]) if asked["within"] else None
    return Ask(asked["action"], asked["arguments"], within, tuple(asked["tell"]), asked["then"])


def without_state(payload: bytes, limits: Limits) -> Any:
    """Return what a workflow keeps besides the state, whose types only the application knows.

    It is for `Payload.unpack`, and None if no workflow wrote it.

    Raises:
        LimitExceeded: it is too deep, or too much.
    """
    try:
        found = inspect_state(payload, limits)
        if type(found) is not dict or type(found.get("state")) is not dict:
            return None
        return _PLAIN.decode(_PLAIN.encode({**found, "state": {}}))
    except (DecodeError, EncodeError):
        return None


def _head(checkpoint: Checkpoint) -> Head:
    return Head(checkpoint.sequence, checkpoint.digest)


_INSTEAD: Final = {
    Reason.NO_MIGRATION: "Register a migration from the version that wrote it, or resume it with"
    " that version.",
    Reason.OWNED_BY_ANOTHER: "Let that worker go on with it, or own it once the lease has ended.",
}


class Resumption:
    """A resume that somebody wants: from where, into what, and what the gate says.

    In order: what is verified and judged is here once it was made; `question` is what people are
    asked; `answered` is what they said to that; `go_on` is the one append that spends it.

    Args:
        workflow: what wants to resume.
        ledger: where the thread is.
        checkpoint: from where, verified.
        latest: the end of the thread, verified.
        to_ask: whether somebody only wants to know what to ask, whoever owns the thread now.
        now: the time, if not that of the clock.

    Raises:
        WorkflowMismatch: it belongs to another workflow.
        ResumeRefused: it is a denial that others followed.
        ApprovalError: what people are said to have approved is not what they signed.
    """

    def __init__(
        self,
        workflow: Workflow,
        ledger: Ledger,
        checkpoint: Checkpoint,
        latest: Checkpoint,
        *,
        to_ask: bool = False,
        now: datetime | None = None,
    ) -> None:
        self.workflow, self.ledger, self.gate = workflow, ledger, workflow.gate
        self.checkpoint, self.latest, self.thread = checkpoint, latest, latest.thread
        if checkpoint.app.partition("@")[0] != workflow.name:
            raise WorkflowMismatch(
                f"{self} was not written by the workflow {workflow.name} but by"
                f" {quoted(checkpoint.app)}.",
                "Resume it with the workflow that wrote it.",
            )
        self.payload = payload = Payload.unpack(checkpoint)
        self.granted = granted = _granted(self.gate, ledger, checkpoint, payload)
        is_old = checkpoint is not latest
        if payload.is_over and is_old:
            raise ResumeRefused(
                f"{self} is a denial, so nothing goes on from there.",
                "Name a checkpoint before it.",
            )
        lapsed = self._lapsed(now or datetime.now(UTC)) if granted else None
        decision = self.gate.decide(
            checkpoint,
            self.head,
            had=payload.tools,
            has=workflow.tools,
            app=workflow.app,
            migrates_from=workflow.migrations,
            asked=payload.asked is not None,
            lapsed=lapsed,
            owner=None if to_ask else ledger.owners.other(self.thread),
        )
        self.asked, self.has_lapsed = payload.asked, bool(lapsed)
        if granted and Reason.ASKED in decision.reasons:
            # Who goes back to before it was acted upon, or on with something else, asks again.
            self.asked = _ask(granted)
        if is_old and (denial := _denial(self.gate, latest)):
            decision = replace(decision, details=(*decision.details, denial))
        self.decision = decision

    @classmethod
    def look(
        cls,
        workflow: Workflow,
        ledger: Ledger,
        thread: str,
        sequence: int | None = None,
        *,
        to_ask: bool = False,
        now: datetime | None = None,
    ) -> Resumption:
        """Verify what is to be resumed: the latest, or an older checkpoint that somebody names.

        Raises:
            CheckpointError: it does not verify, or belongs to another workflow.
        """
        latest = checkpoint = ledger.latest(thread)
        if sequence is not None and check_sequence(sequence) != latest.sequence:
            checkpoint = ledger.load(thread, sequence)
        wanted = cls(workflow, ledger, checkpoint, latest, to_ask=to_ask, now=now)
        if wanted.granted and checkpoint is latest:  # who goes back is asked anew
            wanted.check_source()
        return wanted

    def __str__(self) -> str:
        return f"{self.thread} #{self.checkpoint.sequence}"

    @property
    def at(self) -> Head:
        """The checkpoint, as the end that it once was."""
        return _head(self.checkpoint)

    @property
    def head(self) -> Head:
        """The end of the thread, which an approval is bound to."""
        return _head(self.latest)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do: the thread ends with a denial, or with its last step."""
        payload, workflow = self.payload, self.workflow
        finished = payload.done == tuple(workflow.steps) and payload.asked is None
        return self.checkpoint is self.latest and (
            payload.is_over or (finished and self.checkpoint.app == workflow.app)
        )

    @cached_property
    def until(self) -> datetime | None:
        """When the wait for people ends, None if it does not. Whoever goes back is asked anew.

        A yes that does not count does not end a wait, unless a step acted upon it.
        """
        if self.checkpoint is not self.latest:
            return None
        if self.has_lapsed and not self._is_acted_upon():
            until = self.granted[0].question.until
            return datetime.fromisoformat(until) if until else None
        asked = self.payload.asked
        return ends(self.checkpoint.created, asked.within) if asked and asked.within else None

    def has_ended(self, now: datetime) -> bool:
        """Whether the wait for people is over.

        Raises:
            ApprovalExpired: the clock is behind the checkpoint, so that cannot be told.
        """
        if self.until is None:
            return False
        check_clock(now, self.latest.created, self.head)
        return now >= self.until

    @property
    def done(self) -> tuple[str, ...]:
        """The steps that are done, as the workflow of today has them."""
        return self.workflow.renamed(self.checkpoint.app, self.payload.done)

    @property
    def next(self) -> str:
        """The step that would run, "" if none is left."""
        return next(iter(list(self.workflow.steps)[len(self.done) :]), "")

    def check_source(self) -> None:
        """Refuse a record that goes on from elsewhere than where people let it go on.

        Raises:
            ApprovalMismatch: it skips a step, changes the state or the key of what is done, or does
                what they were not asked; or what they were asked about is gone.
        """
        asked, same = self.granted[0].question, False
        with suppress(WorkflowMismatch):
            try:
                source = self.ledger.load(self.thread, asked.checkpoint.sequence)
                end = self.ledger.load(self.thread, asked.head.sequence)
            except NotFound:
                raise ApprovalMismatch(
                    f"{self} goes on from {asked.checkpoint}, and what people were asked about"
                    " there is gone.",
                    "Ledger.prune keeps it. Restore it from a backup; or go back to a checkpoint"
                    " that is there, which people are asked about.",
                ) from None
            before, app = Payload.unpack(source), self.checkpoint.app
            encode = self.ledger.codec.encode
            opened = tuple(self.gate.people.open(text, revoked=True) for text in before.approved)
            done = self.workflow.renamed(source.app, before.done)
            back = Reason.OLD_CHECKPOINT in asked.reasons
            denial = _denial(self.gate, end) if back else ""
            lapses = [None] if before.asked else [*_LAPSED, *map(_revoked, opened)]
            # What the gate may have said of it then. They were shown each word.
            said = [
                self.gate.decide(
                    source,
                    asked.head,
                    had=before.tools,
                    has=self.payload.tools,
                    app=app,
                    migrates_from=self.workflow.migrations,
                    asked=before.asked is not None,
                    lapsed=lapsed,
                )
                for lapsed in lapses
            ]
            shown = [(each.reasons, tuple(filter(None, (*each.details, denial)))) for each in said]
            wait = None if back or before.asked is None else before.asked.within
            until = {spelled(ends(source.created, wait)) if wait else ""}
            until |= {each.question.until for each in opened if not back}  # who is asked again
            # If yet another version is to run it, people are asked anew.
            is_this, state = app == self.workflow.app, before.state
            if is_this:
                state = self.workflow.carried(source.app, state)
            same = (
                (_head(source), _head(end)) == (asked.checkpoint, asked.head)
                and "note" not in (source.kind, end.kind)
                and (before.asked or _ask(opened)) == _ask(self.granted)
                and asked.until in until
                and (not is_this or done == self.payload.done)
                and (not is_this or (asked.reasons, asked.details) in shown)
                and self.payload.origin == (None if back else before.origin or source.sequence)
            )
            differs = encode(state) != encode(self.payload.state)
            if same and differs and is_this and app != source.app:
                raise ApprovalMismatch(
                    f"{self} is not what the migrations make of {asked.checkpoint}.",
                    "If you changed one of them since, go back to that checkpoint, which people are"
                    " asked about. If not, replace the writer's key: whoever wrote it had that.",
                )
            same = same and not (differs and app == source.app)
        if not same:
            raise ApprovalMismatch(
                f"{self} goes on from another place than people let it go on from.", _THIEF
            )

    def _lapsed(self, now: datetime) -> str:
        """Say why what people approved no longer counts, or "" if it does.

        It was used when the journal was told so: whoever has the writer's key can write any time.
        If it was not told yet, it is used now.
        """
        gate, granted, used = self.gate, self.granted, self.checkpoint.created
        if self.checkpoint is not self.latest:
            return ""  # it is asked about as it is
        revoked = [each for each in granted if each.key in gate.people.revoked]
        if revoked:
            return _revoked(revoked[0])
        asked = granted[0].question  # whose reasons are the true ones, as check_source sees to
        needed = gate.policy.needs(*(each for each in Reason if each in asked.reasons))
        try:
            names = {each.approver for each in granted}
            if needed is None or gate.lacks(asked, names, needed):
                return _FEWER
        except ResumeRefused:
            return _FEWER  # nobody may approve it any more
        if asked.next != self.next:
            return _OTHER_STEP
        now = noted(self.ledger, granted, "done") or now
        try:
            for each in granted:
                each.check_time(max(used, now), gate.policy.lifetime)
        except ApprovalExpired:
            return _TOO_LATE
        return ""

    def question(self) -> Question:
        """Return what people are asked to approve.

        Raises:
            WorkflowMismatch: other steps are done than those that the workflow begins with.
        """
        self.check_steps()
        return Question(
            store=self.checkpoint.store,
            tenant=self.checkpoint.tenant,
            thread=self.thread,
            checkpoint=self.at,
            head=self.head,
            app=self.workflow.app,
            tools=self.workflow.tools.digest,
            reasons=self.decision.reasons,
            details=self.decision.details,
            action="" if self.asked is None else self.asked.action,
            arguments={} if self.asked is None else dict(self.asked.arguments),
            next=self.next,
            done=self.done,
            until=spelled(self.until) if self.until else "",
            tell=self.asked.tell if self.asked and self.until else (),
            then=self.asked.then if self.asked and self.until else "deny",
        )

    def open_question(self) -> Question | None:
        """Return what people must approve, or None if nothing.

        Raises:
            ResumeRefused: nobody can approve it.
        """
        decision, policy = self.decision, self.gate.policy
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

    def answered(self, given: Iterable[str], now: datetime) -> tuple[Approval, ...]:
        """Return the approvals that let it through, one of each person, or the one denial.

        Raises:
            ApprovalError: one of them does not count.
            ApprovalNeeded: there are too few.
            ResumeRefused: nobody can approve it.
        """
        question, opened = self.open_question(), list[Approval]()
        for text in dict.fromkeys(given):
            check_clock(now, self.latest.created, self.head)
            approval = self.gate.people.open(text)
            self._check_unspent(approval)
            if question is None:
                raise ApprovalMismatch(
                    f"{self} needs no approval, and was given one from {approval.approver}.",
                    "Somebody may have answered another question. Resume it without.",
                )
            opened.append(approval)
        if question is None:
            return ()
        do = _NOBODY
        if self.gate.approvers is not None:
            do = PUT if self.gate.answers is not None else _SHOW
        put = answers(self.gate, question)
        if put:
            check_clock(now, self.latest.created, self.head)
        return accepted(self.gate, question, opened, put, now, self.decision.approvers or 0, do)

    def denial(self) -> Approval | None:
        """Return a no to what was approved here, if it was put before anybody acted upon that.

        One that came later is written down as late.
        """
        if not self.granted or self.checkpoint is not self.latest:
            return None
        found = contradicted(self.gate, self.granted[0].question)
        if found is not None and self._is_acted_upon():
            note_late(self.ledger, found)
            return None
        return found

    def note_late(self) -> None:
        """Write down a no to what was approved last, in a run that is over."""
        if self.gate.answers is None:
            return
        for link in self.ledger.back(self.thread):
            said = Payload.unpack(link.checkpoint).approved if link.kind == "state" else ()
            if said:
                asked = self.gate.people.open(said[0], revoked=True).question
                if denial := contradicted(self.gate, asked):
                    note_late(self.ledger, denial)
                return

    def _is_acted_upon(self) -> bool:
        """Whether the journal was told that a step goes on from here with what people approved."""
        journal, at = self.ledger.journal, self.at
        tenant = self.ledger.tenant_name
        acts = journal.show(thread=self.thread, what="act", tenant=tenant) if journal else ()
        return any((each.sequence, each.digest) == (at.sequence, at.digest) for each in acts)

    def _check_unspent(self, approval: Approval) -> None:
        """Refuse an approval that was given for an earlier end of this thread.

        Raises:
            ApprovalSpent: it was.
        """
        question, latest = approval.question, self.latest
        ours = latest.store, latest.tenant, latest.thread
        place = (question.store, question.tenant, question.thread) == ours
        if not place or question.head.sequence >= latest.sequence:
            return  # of another history, if any, which the comparison with the question tells
        following, resumed = None, None
        with suppress(CheckpointError):  # pruned, or not of a workflow
            following = _following(self.ledger, self.thread, question.head)
            resumed = Payload.unpack(following.checkpoint).resumed if following else None
        if following and resumed and approval.text in resumed.statements:
            raise ApprovalSpent(
                f"This approval of {approval.approver} was used for {self.thread}"
                f" #{following.sequence}.",
                "An approval counts once. If that run was interrupted, resume it without"
                " approvals.",
            )
        raise ApprovalSpent(
            f"{approval.approver} answered about {self.thread} {question.head}, and it is at"
            f" {self.head} by now.",
            "Look at what happened since, and ask again.",
        )

    def go_on(self, accepted: tuple[Approval, ...]) -> Run:
        """Append the record that spends the answers, and return the run that goes on from it.

        It is written down before, and again after. Where a no ended the run, nothing is carried
        over: not to another version, not to other tools.
        """
        workflow, checkpoint, decision = self.workflow, self.checkpoint, self.decision
        payload, ledger, note = self.payload, self.ledger, self.ledger.notes.write
        check_journal(ledger, f"{self} can be resumed")
        denied = any(each.verdict == "denied" for each in accepted)
        state, done, tools, app = payload.state, payload.done, payload.tools, checkpoint.app
        if not denied:
            tools, app, done = workflow.tools, workflow.app, self.done
            state = workflow.carried(checkpoint.app, payload.state)
            encode = ledger.codec.encode
            if encode(state) != encode(workflow.carried(checkpoint.app, payload.state)):
                raise MigrationFailed(
                    f"{self} becomes another state each time that it is migrated.",
                    "Take the clock and random numbers out of the migrations: a step can ask them.",
                )
            self.check_steps()
        resumed = Resumed(
            app=checkpoint.app,
            digest=checkpoint.digest,
            reasons=tuple(map(str, decision.reasons)),
            sequence=checkpoint.sequence,
            statements=tuple(each.text for each in accepted),
        )
        # Going back is meant to repeat what was done. Anything else must not.
        again = Reason.OLD_CHECKPOINT in decision.reasons
        origin = None if again else payload.origin or checkpoint.sequence
        ended = "" if denied else payload.expired  # the step that comes next is told so, still
        following = Payload(state, done, tools, None, resumed, origin, ended)

        said = [f"{each.verdict} by {each.approver}." for each in accepted]
        change = f"{checkpoint.app} to {workflow.app}: {', '.join(decision.reasons)}."
        detail = " ".join((change, *said, *decision.notes))
        note("resume", "intended", self.thread, self.at, detail)
        note_answers(ledger, accepted, "intended")
        run = Run(workflow, ledger, self.thread, following, at=self.latest, notes=decision.notes)
        try:
            written = run.record(following, app=app)
        except Conflict as conflict:
            if not accepted or ledger.latest(self.thread).digest == self.latest.digest:
                raise
            raise ApprovalSpent(
                f"Another worker resumed {self.thread} first, so this approval is spent.",
                "Let that worker go on. If it died, resume without approvals.",
            ) from conflict
        note_answers(ledger, accepted, "done")
        note("resume", "refused" if denied else "done", self.thread, _head(written), detail)
        # Held to what was signed once more, as by whoever comes after a crash.
        held = Resumption(workflow, ledger, written, written, to_ask=True)
        if held.granted and held.asked is not None:
            raise ApprovalExpired(
                f"{self.thread} {held.head} goes on too late. {' '.join(held.decision.details)}",
                "No step ran. Resume it without approvals, and ask again.",
            )
        if denial := held.denial():  # put between our look and the record that spends the yes
            return held.go_on((denial,))
        run.approved = approved(held.granted) if held.granted else None
        return run

    def end(self) -> None:
        """Append that the wait has ended: one winner decides between that and an approval.

        Raises:
            Conflict: the run went on before.
        """
        payload, checkpoint, note = self.payload, self.checkpoint, self.ledger.notes.write
        asked = cast("Ask", self.asked)
        origin, detail = payload.origin or checkpoint.sequence, f"{asked.action}: {asked.then}"
        following = replace(payload, asked=None, resumed=None, origin=origin, expired=asked.then)
        note("expire", "intended", self.thread, self.at, detail)
        run = Run(self.workflow, self.ledger, self.thread, following, at=self.latest)
        written = run.record(following, app=checkpoint.app)
        note("expire", "done", self.thread, _head(written), detail)

    def settle(self) -> None:
        """Anchor what the run goes on from, and write down that it does.

        A crash may have come between that record and its anchor, or before the journal was told.
        """
        ledger = self.ledger
        anchored = ledger.anchored(self.thread)
        if ledger.anchor and (anchored is None or anchored.sequence < self.latest.sequence):
            ledger.verify(self.thread, anchor=True)
        if self.granted and self.asked is None and not noted(ledger, self.granted, "done"):
            note_answers(ledger, self.granted, "done")

    def check_steps(self) -> None:
        """Refuse a run that has done something else than the workflow of today begins with.

        Raises:
            WorkflowMismatch: it has.
        """
        if list(self.done) != list(self.workflow.steps)[: len(self.done)]:
            raise WorkflowMismatch(
                f"{self} was written by other steps than those of {self.workflow.name} today.",
                "Resume it with the code that wrote it, or give the workflow a new version and a"
                " migration that says which steps are done.",
            )


def _granted(
    gate: Gate, ledger: Ledger, checkpoint: Checkpoint, payload: Payload
) -> tuple[Approval, ...]:
    """Return what people approved, out of what they signed, for the step after a record.

    The record is sealed by the writer. That is not enough: whoever has the writer's key must not
    be able to say what a person approved, nor to say it twice, nor for something else. So what
    they signed must be about the very state that this one follows, and name what this one is: its
    app, its tools, and what is done. A denial that ended the run is held to what was signed
    likewise.

    Raises:
        ApprovalError: the statements do not bear it out.
    """
    yes = payload.denied is None
    texts = payload.approved if payload.denied is None else (payload.denied,)
    approvals = tuple(gate.people.open(text, revoked=True) for text in texts)
    head = approvals[0].question.head if approvals else None
    first = _following(ledger, checkpoint.thread, head) if head else None
    if first is not None and not yes and payload.resumed and payload.resumed.digest == first.digest:
        # The no came before anybody acted upon a yes to the same question.
        said = Payload.unpack(first.checkpoint).approved
        spent = {gate.people.open(text, revoked=True).question for text in said}
        if spent == {approvals[0].question}:
            first = _following(ledger, checkpoint.thread, Head(first.sequence, first.digest))
    right: dict[str, Any] = {"store": checkpoint.store, "thread": checkpoint.thread}
    right |= {"tenant": checkpoint.tenant, "scope": ""}
    if yes:
        right |= {"app": checkpoint.app, "tools": payload.tools.digest, "done": payload.done}
    for each in approvals:
        asked, why = each.question, ""
        try:
            each.check_answers(replace(asked, **right))
            if (
                (each.verdict == "approved") is yes
                and asked == approvals[0].question
                and (Reason.ASKED in asked.reasons or not yes)
                and first is not None
                and first.digest == checkpoint.digest
            ):
                continue
        except ApprovalMismatch as error:
            why = f" {error.what}"
        raise ApprovalMismatch(
            f"{checkpoint.thread} #{checkpoint.sequence} goes on from an answer to something"
            f" else.{why}",
            _THIEF,
        )
    return approvals if yes else ()


def _following(ledger: Ledger, thread: str, head: Head) -> Link | None:
    """Return the first state after a record, None if there is none, or no such record."""
    found = None
    for link in ledger.back(thread):
        found = link if link.kind == "state" else found
        if link.sequence <= head.sequence + 1:
            return found if link.header.previous == head.digest else None
    return None


def _ask(granted: tuple[Approval, ...]) -> Ask | None:
    if not granted:
        return None
    asked = granted[0].question
    then = cast('Literal["deny", "continue"]', asked.then)
    return Ask(asked.action, asked.arguments, tell=asked.tell, then=then)


def _revoked(approval: Approval) -> str:
    return f"The key with which {approval.approver} approved it was revoked since."


def _denial(gate: Gate, latest: Checkpoint) -> str:
    """Say that the end of the thread, from which somebody wants to go back, is a denial."""
    with suppress(CheckpointError):
        ended = Payload.unpack(latest)
        if ended.expired == "deny":
            return f"Nobody approved it in time, at #{latest.sequence}."
        if ended.denied:
            name = gate.people.open(ended.denied, revoked=True).approver
            return f"{name} denied it at #{latest.sequence}."
    return ""


@dataclass(repr=False, eq=False)
class Run:
    """One run of a workflow: its state, what is done, and what comes next.

    Iterating over it runs one step at a time and yields the checkpoint after each. It stops at the
    end, and where a step asks people.

    Attributes:
        workflow: the workflow.
        ledger: where its checkpoints are.
        thread: the name of the thread.
        payload: all that the next checkpoint would hold.
        at: the thread's latest checkpoint, or None.
        head: its sequence, or 0.
        approved: what people approved, for the step that comes next, or None.
        notes: what the run can do less than before, as the gate says it.
    """

    workflow: Workflow
    ledger: Ledger
    thread: str
    payload: Payload
    at: Checkpoint | None = None
    approved: Approved | None = None
    notes: tuple[str, ...] = ()
    _at_odds: bool = field(default=False, init=False)

    @property
    def head(self) -> int:  # noqa: D102  among the attributes above
        return 0 if self.at is None else self.at.sequence

    @property
    def state(self) -> dict[str, Any]:
        """The state after the last step that finished."""
        return self.payload.state

    @property
    def done(self) -> tuple[str, ...]:
        """The names of the steps that finished."""
        return self.payload.done

    @property
    def next(self) -> str | None:
        """The name of the step that runs next, or None at the end and after a denial."""
        left = list(self.workflow.steps)[len(self.done) :]
        return left[0] if left and not self.denied else None

    @property
    def paused(self) -> bool:
        """Whether the run waits for people."""
        return self.payload.asked is not None

    @property
    def denied(self) -> bool:
        """Whether a no ended the run: somebody's, or that nobody approved in time."""
        return self.payload.is_over

    @property
    def expired(self) -> bool:
        """Whether the wait for people ended, and no step ran since."""
        return self.payload.expired != ""

    @property
    def question(self) -> Question | None:
        """What people are asked to approve or deny, exactly, or None if the run does not wait."""
        if not self.paused or self.at is None:
            return None
        return Resumption(self.workflow, self.ledger, self.at, self.at, to_ask=True).question()

    def step(self) -> Checkpoint:
        """Run the next step and capture its result.

        A step that raises changes nothing: the state and the last checkpoint stay.

        Raises:
            WorkflowError: there is no step left, or the step did not return what changes.
            ApprovalNeeded: the run waits for people.
            NotOwner: another worker owns the thread by now. The step did not run.
            ThreadHeld: an operator holds the thread. The step did not run.
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
            how = "has run every step"
            if self.denied:
                how = "was not approved in time" if self.expired else "was denied"
            raise WorkflowError(f"{self.thread} {how}.", "Start a new thread to run it again.")
        self.ledger.owners.keep(self.thread)
        check_held(self.workflow.gate, self.ledger, self.thread)
        if self.approved is not None:
            self._check_still_here(name)
        given = copy.deepcopy(self.state)
        returned = self.workflow.call(name, given, self._call(name))
        asked = returned if isinstance(returned, Ask) else None
        changes = _changes(name, None if asked else returned, given, self.state)
        if asked is not None:
            self._check_answerable(name)
            at = None if self.at is None else _head(self.at)
            self.ledger.notes.write("pause", "intended", self.thread, at, asked.action)
        done = (*self.done, name)
        payload = Payload(
            state={**self.state, **copy.deepcopy(dict(changes))},
            done=done,
            tools=self.workflow.tools,
            asked=asked,
            next=next(iter(list(self.workflow.steps)[len(done) :]), ""),
        )
        checkpoint = self.record(payload)
        self.approved = None
        return checkpoint

    def record(self, payload: Payload, *, app: str | None = None) -> Checkpoint:
        """Save a payload as the thread's next checkpoint; it is for the workflow's own use.

        Args:
            payload: all that the checkpoint holds.
            app: what wrote it, if not this workflow.
        """
        before, self.payload = self.payload, payload
        resumed = payload.resumed
        needs = f"needs/{resumed.sequence}" if resumed and resumed.statements else ""
        try:
            self.at = self.ledger.save(
                self.thread,
                payload.pack(),
                app=self.workflow.app if app is None else app,
                tools=payload.tools.digest if payload.tools else None,
                after=self.head,
                label=needs,
            )
        except (AnchorUnavailable, Forked):
            self._at_odds = True  # it may be saved, so this run does not know where it is
            raise
        except BaseException:
            self.payload = before
            raise
        return self.at

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
        return f"Run({self.workflow.name!r}, {self.thread!r}, next={self.next!r}{how})"

    def _call(self, name: str) -> Call:
        store = "" if self.at is None else self.at.store
        if self.at is not None and self.at.tenant:  # each may have a thread of that name
            store += f"/@{self.at.tenant}"
        key = f"{store}/{self.thread}/{self.payload.origin or self.head}/{name}"
        return Call(self.thread, name, self.head, key, self.approved, self.expired)

    def _check_still_here(self, name: str) -> None:
        """Write down that a step is about to act, unless the thread has moved on.

        Raises:
            Conflict: it has, or somebody said no since.
            JournalError: it cannot be written down, so the step does not act.
        """
        latest = self.ledger.latest(self.thread)
        if self.at is None or latest.digest != self.at.digest:
            raise Conflict(
                f"{self.thread} is at #{latest.sequence} by now, and this run is at #{self.head}.",
                f"The step {name} did not run. Rehydrate the run, and decide again.",
            )
        acts = self.approved is not None and self.workflow.gate.answers is not None
        if acts and (
            no := Resumption(self.workflow, self.ledger, self.at, self.at, to_ask=True).denial()
        ):
            raise Conflict(
                f"{no.approver} denied {self.thread} #{self.head} after others had approved it.",
                f"The step {name} did not run. Resume the run, which ends it.",
            )
        self.ledger.notes.write("act", "intended", self.thread, _head(latest), name)

    def _check_answerable(self, name: str) -> None:
        """Refuse to wait for people whose answer could not be used.

        Raises:
            ConfigurationError: the workflow knows no approvers, or the ledger has no journal.
            KeyRefused: an approver has the writer's key.
        """
        approvers = self.workflow.gate.approvers
        if approvers is None:
            raise ConfigurationError(
                f"The step {name} asks people, and the workflow has no approvers.", _NOBODY
            )
        self.workflow.gate.check_apart(self.ledger.keys)
        check_journal(self.ledger, f"The step {name} can ask people", anchor=True)


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

    Raises:
        WorkflowError: the steps are none, not plain functions, or two of one name.
        InvalidId: the name or the version is outside its grammar.
        ConfigurationError: the migrations lead elsewhere.
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
    ) -> None:
        self.name = check_name("workflow", name)
        named = [(_step_name(step), step) for step in steps]
        self.steps = dict(named)
        if not named or len(self.steps) < len(named):
            raise WorkflowError(
                f"The workflow {name} needs one or more steps with different names.",
                "Give each step a function of its own.",
            )
        self._told = frozenset(name for name, step in named if _is_told(step))
        self.tools = tools if isinstance(tools, ToolSet) else ToolSet(tools)
        self.gate: Final = gate or Gate()
        self.version = version
        check_app(self.app)
        given = list(migrations)
        self.migrations = {each.before: each for each in given}
        if len(self.migrations) < len(given):
            raise ConfigurationError(
                f"Two migrations of the workflow {name} begin at one version.",
                "Keep one: which of them to take would be a guess.",
            )
        self._paths = {before: self._path(before) for before in self.migrations}

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
        self.gate.check_apart(ledger.keys)
        run = Run(self, ledger, thread, Payload(copy.deepcopy(state), tools=self.tools))
        try:
            run.record(run.payload)
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
            ResumeRefused: the gate says no, or the approval came after the wait had ended.
            ApprovalError: an approval does not count.
            ThreadHeld: an operator holds the thread.
            AnswersError: the place of the answers cannot vouch for what people said.
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
        notes, given, moment = ledger.notes, list(approvals), now or datetime.now(UTC)
        with notes.watching("resume", thread, quiet=RESUMING):
            self.gate.check_apart(ledger.keys)
            wanted = Resumption.look(self, ledger, thread, sequence, now=now)
        with notes.watching("resume", thread, wanted.at, quiet=RESUMING):
            check_held(self.gate, ledger, thread)
            if wanted.has_ended(moment):
                ended = wanted.until
                if self.gate.answers and (no := contradicted(self.gate, wanted.question())):
                    return wanted.go_on((no,))  # that nobody answered would not be true
                wanted.end()
                if given:
                    raise WaitEnded(
                        f"{thread} waited for an approval until {ended:%Y-%m-%d %H:%M:%S} UTC.",
                        "What people approve after that does not count. See what the run did"
                        " instead.",
                    )
                return self.rehydrate(ledger, thread, now=now)
            if denial := wanted.denial():
                return wanted.go_on((denial,))
            accepted = wanted.answered(given, moment)
            waits_here = wanted.asked is not None and wanted.checkpoint is wanted.latest
            if accepted and accepted[0].verdict == "denied" and not waits_here:
                # A no ends the run if it answers what a step asked. A no to anything else, such as
                # a wider tool set or a way back, leaves the run as it is.
                note_answers(ledger, accepted, "done")
                raise ResumeRefused(
                    f"{accepted[0].approver} denied it: {wanted} is not resumed.",
                    "The run stays as it was. Ask again only if something has changed.",
                )
            if not wanted.is_over:
                if wanted.decision.reasons:
                    return wanted.go_on(accepted)
                wanted.check_steps()
            wanted.settle()
            less = wanted.decision.notes
            if wanted.is_over:
                wanted.note_late()
            else:
                notes.write("resume", "done", thread, wanted.head, " ".join(less))
            granted = () if wanted.asked else wanted.granted
            yes = approved(granted) if granted else None
            return Run(self, ledger, thread, wanted.payload, wanted.latest, yes, less)

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
        return Resumption.look(self, ledger, thread, sequence, to_ask=True).open_question()

    def waiting(self, ledger: Ledger) -> Iterator[Question]:
        """Return the question of each thread of this workflow that waits for people.

        When a wait ends, `Question.until` tells. Nothing is written: `end_waits` ends it.
        If there are tenants, ask for each: `waiting(ledger.tenant(name))`.
        A thread that does not verify, or is of another workflow, is left out: `Ledger.verify` tells
        about the first.
        """
        for thread in ledger.threads():
            with suppress(CheckpointError):
                found = Resumption.look(self, ledger, thread, to_ask=True)
                question = found.open_question()
                if found.asked is not None and question is not None:
                    yield question

    def end_waits(
        self,
        ledger: Ledger,
        *,
        remind: Callable[[Question], object] | None = None,
        before: timedelta = timedelta(hours=1),
        now: datetime | None = None,
    ) -> list[Run]:
        """End each wait whose time is over, and return these runs; remind people of the others.

        Call it from whatever runs at times: nothing here keeps a clock. A wait that another worker
        ended or owns, or that an operator holds, is left to them. If one run raises something, that
        is raised when the round is over.

        Args:
            ledger: where the threads are.
            remind: what to call with each question whose wait ends soon: it tells `question.tell`.
            before: how soon that is.
            now: the time, if not that of the clock.
        """
        ended, problems = list[Run](), list[Exception]()
        for question in self.waiting(ledger):
            left = question.left(now)
            try:
                if left is not None and left <= timedelta(0):
                    with suppress(Conflict, NotOwner, ThreadHeld):
                        run = self.rehydrate(ledger, question.thread, now=now)
                        if run.expired:  # if not, another worker goes on with it
                            ended.append(run.finish())
                elif left is not None and remind is not None and left <= before:
                    remind(question)
            except Exception as error:  # noqa: BLE001 - of one run, and the others have to end
                problems.append(error)
        for problem in problems:
            raise problem
        return ended

    def call(self, name: str, state: dict[str, Any], call: Call) -> Mapping[str, Any] | Ask | None:
        """Run one step, and return what it returned."""
        step = self.steps[name]
        return step(state, call) if name in self._told else step(state)

    def carried(self, app: str, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state of `app` as this version has it.

        Raises:
            MigrationFailed: a migration failed.
        """
        for migration in self._paths.get(app.partition("@")[2], ()):
            state = migration.carry(state)
        return state

    def renamed(self, app: str, done: tuple[str, ...]) -> tuple[str, ...]:
        """Return what is done in `app` as this version has it."""
        for migration in self._paths.get(app.partition("@")[2], ()):
            names = (migration.steps.get(name, name) for name in done)
            done = tuple(name for name in names if name is not None)
        return done

    def _path(self, before: str) -> list[Migration]:
        """Return the migrations from a version to this one, in order; none if it is this one.

        Raises:
            ConfigurationError: no chain of them leads there.
        """
        found: list[Migration] = []
        while before != self.version:
            if before not in self.migrations or len(found) > len(self.migrations):
                raise ConfigurationError(
                    f"The migrations from version {quoted(before)} do not lead to"
                    f" {quoted(self.version)}.",
                    "Register one for each version on the way.",
                )
            found.append(self.migrations[before])
            before = found[-1].after
        return found


def _step_name(step: Step) -> str:
    name = getattr(step, "__name__", "")
    if not str(name).isidentifier() or inspect.iscoroutinefunction(step):
        raise WorkflowError(
            f"{quoted(name)} cannot be a step.",
            "Use plain functions that were defined with def: call asyncio.run inside them.",
        )
    return str(name)


def _is_told(step: Step) -> bool:
    """Tell whether a step takes a `Call` besides the state."""
    try:
        given = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return False  # some built-in functions do not say
    positional = [each for each in given if each.kind <= each.POSITIONAL_OR_KEYWORD]
    return sum(each.default is each.empty for each in positional) > 1
