"""Workflow: steps, the state between them, and a checkpoint after each.

A checkpoint says which steps are done and what people are asked. A resume is `Wanted`: it verifies
a checkpoint and calls the gate. A note after the thread's last state holds people's answers, and
the journal says whether they were used, as in the adapters (`asking.py`). The state itself is never
copied: the run continues from the same record that people signed.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from safepoint.core.codec import Codec, inspect_state
from safepoint.core.errors import (
    ApprovalNeeded,
    ApprovalRefused,
    CheckpointError,
    ConfigurationError,
    Conflict,
    DecodeError,
    EncodeError,
    ResumeRefused,
    Unavailable,
    quoted,
)
from safepoint.core.ledger import RESUMING, Ledger
from safepoint.core.names import Head, Limits, check_name, check_sequence, digest_of, with_tenant
from safepoint.core.record import Checkpoint, check_word
from safepoint.resume.approval import Question, Reason, end_of, signable
from safepoint.resume.asking import (
    SHOW,
    Approved,
    Asking,
    anchor_end,
    check_askable,
    check_held,
    check_wait,
)
from safepoint.resume.gate import Decision, Gate, Tool, ToolSet

_PLAIN: Final = Codec()


@dataclass(slots=True)
class Ask:
    """The result of a step that makes the run wait for people.

    The step counts as done. The run is saved and pauses. It continues with the next step when
    enough people have approved exactly this action with exactly these arguments. Only that step
    gets what they approved.

    ```python
    from safepoint import Ask

    def ask(state):
        return Ask("pay", {"amount": state["amount"], "payee": state["payee"]})
    ```

    Args:
        action: what will be done, as one word.
        arguments: a few plain values for the action. The step that acts gets them from the signed
            approval, not from here.
        within: how long the run waits, in whole seconds, from the checkpoint on. After that, no
            approval counts, and the run ends as if it was denied. Without it, the run waits until
            somebody answers.

    Raises:
        ConfigurationError: the action is not a word, an argument has no name, or the wait is too
            short or too long.
        EncodeError: an argument could not be restored faithfully, so nobody could sign it.
        LimitExceeded: they are more than a person could read.
    """

    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    within: timedelta | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_wait(self.within)
        self.arguments = signable(self.action, dict(self.arguments))


@dataclass(frozen=True, slots=True)
class Call:
    """The second argument of a step.

    Attributes:
        thread: the name of the thread.
        step: the name of the step.
        sequence: the checkpoint that the step builds on.
        key: an idempotency key, made of store, tenant, thread, the last checkpoint, the older one
            that the run went back to, and step. It is the same if the step runs again after a
            crash, in another process, after an approval, or in a later version in which it has the
            same name and still comes next. Pass it to the service that acts, which should ignore a
            key that it has seen.
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
        """The approved action, from the texts that people signed. Only this step gets it.

        Raises:
            ConfigurationError: nobody was asked.
        """
        if self._approved is None:
            raise ConfigurationError(
                f"Nobody was asked to approve the step {self.step}.",
                "Return an Ask from the step right before it.",
            )
        return self._approved._replace(arguments=copy.deepcopy(self._approved.arguments))


@dataclass(frozen=True, slots=True)
class Payload:
    """A workflow's state as stored in a checkpoint.

    Attributes:
        state: the state of the steps.
        done: the names of the steps that finished.
        tools: the current tool set.
        asked: what the run waits for, or None.
        next: the step that would run after people have answered, or "" if none is left. Programs
            that ask people without the workflow use it.
    """

    state: dict[str, Any] = field(repr=False)
    done: tuple[str, ...] = ()
    tools: ToolSet = field(default_factory=ToolSet)
    asked: Ask | None = None
    next: str = field(default="", compare=False)

    def pack(self) -> dict[str, Any]:
        """Return it as plain values, without empty fields."""
        asked = self.asked
        packed: dict[str, Any] = {"done": list(self.done), "state": self.state}
        if self.tools:
            packed["tools"] = self.tools.described
        if asked:
            packed["asked"] = {
                "action": asked.action,
                "arguments": dict(asked.arguments),
                "next": self.next,
                "within": int(asked.within.total_seconds()) if asked.within else 0,
            }
        return packed

    @classmethod
    def unpack(cls, checkpoint: Checkpoint) -> Payload:
        """Return a workflow's data from a checkpoint.

        Raises:
            ResumeRefused: it holds something else.
        """
        try:
            saved, asked, following = checkpoint.state, None, ""
            tools = ToolSet.from_described(saved.get("tools", []))
            if packed := saved.get("asked"):
                within = timedelta(seconds=packed["within"]) if packed["within"] else None
                asked = Ask(packed["action"], packed["arguments"], within)
                following = packed["next"]
            found = cls(saved["state"], tuple(saved["done"]), tools, asked, following)
            names, is_state = (*found.done, following), checkpoint.kind == "state"
            are_words = type(found.state) is dict and all(type(each) is str for each in names)
            is_sealed = checkpoint.tools == (tools.digest if tools else None)
            if is_state and are_words and is_sealed and found.pack() == saved:
                return found
        except (CheckpointError, AttributeError, KeyError, TypeError, OverflowError):
            pass
        raise ResumeRefused(
            f"{checkpoint.thread} #{checkpoint.sequence} does not hold a workflow's state.",
            "Load it with Ledger.load, if you wrote it with Ledger.save.",
        )


def question_of(
    checkpoint: Checkpoint,
    head: Head,
    decision: Decision,
    payload: Payload,
    *,
    app: str,
    details: tuple[str, ...] = (),
) -> Question:
    """Return the question to people before a thread continues from a checkpoint.

    Args:
        checkpoint: the checkpoint.
        head: the end of the thread.
        decision: what the gate said.
        payload: the question in the checkpoint, with the steps and tools of `app`.
        app: the program that would run it.
        details: further sentences.
    """
    asked, at, until = payload.asked, _head(checkpoint), ""
    if asked and asked.within and at == head:  # whoever goes back is asked anew
        until = end_of(checkpoint.created, asked.within)
    return Question(
        store=checkpoint.store,
        tenant=checkpoint.tenant,
        thread=checkpoint.thread,
        checkpoint=at,
        head=head,
        app=app,
        tools=payload.tools.digest,
        reasons=tuple(map(str, decision.reasons)),
        details=(*decision.details, *details),
        action=asked.action if asked else "",
        arguments=dict(asked.arguments) if asked else {},
        next=payload.next,
        done=payload.done,
        until=until,
    )


def without_state(payload: bytes, limits: Limits) -> Any:
    """Return a workflow's data without the state, whose types only the application knows.

    It is for `Payload.unpack`. It is None if no workflow wrote the data.

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


class Wanted:
    """A requested resume: the checkpoint, the workflow, and the gate's decision.

    Args:
        workflow: the workflow that resumes.
        ledger: the ledger of the thread.
        thread: the thread.
        sequence: an older checkpoint to go back to; by default the latest.

    Raises:
        CheckpointError: it does not verify, or belongs to another workflow.
    """

    def __init__(
        self,
        workflow: Workflow,
        ledger: Ledger,
        thread: str,
        sequence: int | None = None,
    ) -> None:
        self.workflow, self.ledger, self.thread, self.gate = workflow, ledger, thread, workflow.gate
        self.latest = self.checkpoint = ledger.latest(thread)
        if sequence is not None and check_sequence(sequence) != self.latest.sequence:
            self.checkpoint = ledger.load(thread, sequence)
        self.at = _head(self.checkpoint)
        if self.checkpoint.app.partition("@")[0] != workflow.name:
            raise ResumeRefused(
                f"{self} was not written by the workflow {workflow.name} but by"
                f" {quoted(self.checkpoint.app)}.",
                "Resume it with the workflow that wrote it.",
            )
        self.saved = Payload.unpack(self.checkpoint)
        self.decision = self.gate.decide(
            self.checkpoint,
            _head(self.latest),
            had=self.saved.tools,
            has=workflow.tools,
            app=workflow.app,
            migrates_from=workflow.migrations,
            asked=self.saved.asked is not None,
        )

    def __str__(self) -> str:
        return f"{self.thread} #{self.checkpoint.sequence}"

    @property
    def is_latest(self) -> bool:
        """Whether the checkpoint is the newest state of its thread."""
        return self.checkpoint is self.latest

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do: the thread ends with its last step."""
        finished = self.saved.done == tuple(self.workflow.steps) and self.saved.asked is None
        return finished and self.is_latest and self.checkpoint.app == self.workflow.app

    @cached_property
    def payload(self) -> Payload:
        """The checkpoint's content, migrated to the current workflow.

        Raises:
            ResumeRefused: other steps are done than those that the workflow begins with; or a
                migration failed.
        """
        workflow, done, steps = self.workflow, self.saved.done, [*self.workflow.steps]
        if [*done] != steps[: len(done)]:
            raise ResumeRefused(
                f"{self} was written when {workflow.name} had other steps.",
                "Resume it with the code that wrote it.",
            )
        state, tools, following = self._migrate(), workflow.tools, [*steps[len(done) :], ""][0]
        return replace(self.saved, state=state, tools=tools, next=following)

    def _migrate(self) -> dict[str, Any]:
        """Return the checkpoint's state for the version of the current workflow."""
        before, now = self.checkpoint.app.partition("@")[2], self.workflow.version
        change = self.workflow.migrations.get(before)
        if change is None or before == now:
            return self.saved.state
        try:
            return {**change(copy.deepcopy(self.saved.state))}
        except CheckpointError:
            raise
        except Exception as error:
            raise ResumeRefused(
                f"The migration from {quoted(before)} to {quoted(now)} failed"
                f" ({type(error).__name__}).",
                "The checkpoint is as it was. Fix the migration, then resume again.",
            ) from error

    def question(self) -> Question | None:
        """Return the question for the journal, and for people if they must approve it.

        It is None if the gate finds nothing, or if nothing is left to do.

        Raises:
            ResumeRefused: nobody can approve it.
        """
        decision, details, app = self.decision, list[str](), self.workflow.app
        if self.is_finished or not decision.reasons:
            return None
        if decision.people is None:
            raise ResumeRefused(
                f"{self} cannot be resumed. {' '.join(decision.details)}",
                "Register a migration from the version that wrote it, or resume it with that"
                " version."
                if Reason.NO_MIGRATION in decision.reasons
                else "The policy lets nobody approve that. Start a new thread instead.",
            )
        if self.checkpoint.app != app:  # the next process has to make the same of it
            state = digest_of(self.ledger.codec.encode(self.payload.state))
            details.append(f"Its state becomes {state}.")
        if not self.is_latest:
            details += self._denial()
        head = _head(self.latest)
        return question_of(
            self.checkpoint, head, decision, self.payload, app=app, details=tuple(details)
        )

    def _denial(self) -> Iterator[str]:
        """Say that the end of the thread, from which somebody wants to go back, is a denial."""
        with suppress(CheckpointError):
            end = Wanted(self.workflow, self.ledger, self.thread)
            question = end.question()
            answers = end.asking(question).find_answer() if question and question.action else None
            if answers == ():
                yield f"Nobody approved it in time, at {end.at}."
            elif answers and answers[0].verdict == "denied":
                yield f"{answers[0].approver} denied it at {end.at}."

    def asking(self, question: Question) -> Asking:
        """Return how that question is answered: once, at this end of the thread."""
        return Asking(self.ledger, self.gate, question, refuses_repeats=True)

    def open_question(self) -> Question | None:
        """Return what people must still approve, or None if nothing.

        Raises:
            ResumeRefused: nobody can approve it.
        """
        question = self.question()
        if question and self.decision.people and self.asking(question).find_answer() is None:
            return question
        return None

    def run(self, signed: list[str], now: datetime | None) -> Run:
        """Spend answers, if some are needed, and return the run that continues.

        Raises:
            ResumeRefused: they are too few, do not count, or are a denial.
        """
        self.ledger.owners.keep(self.thread)
        ledger, question, detail = self.ledger, self._match(signed), ""
        run = Run(self.workflow, ledger, self.thread, self.saved, self.latest)
        run.back_to = 0 if self.is_latest else self.at.sequence
        if question is not None:
            asking = self.asking(question)
            answers = asking.spend(signed, now)
            run.denied = run.expired = not answers and question.until != ""
            if run.expired and signed:
                asking.check_approved(answers)  # which refuses what came too late
            if answers and answers[0].verdict == "denied":
                # A no ends the run if it answers what a step asked. A no to anything else, such as
                # a wider tool set or a way back, leaves the run as it is.
                run.denied = question.action != "" and self.is_latest
                if not run.denied:
                    asking.check_approved(answers)
            elif answers and question.action:
                run.approved = Approved.of(answers)
            by = "".join(f" {each.verdict} by {each.approver}." for each in answers)
            change = f"{self.checkpoint.app} to {question.app}: {', '.join(question.reasons)}."
            detail = f"{change}{by}"
        else:
            check_held(self.gate, ledger, self.thread)
            anchor_end(ledger, self.thread)  # a crash may have come between the save and its anchor
        if not run.denied and not self.is_finished:
            run.payload = replace(self.payload, asked=None)
            ledger.log.write("resume", "done", self.thread, self.at, detail)
        return run

    def _match(self, signed: list[str]) -> Question | None:
        """Return the question, unless somebody brings answers to none, or to an earlier one.

        Raises:
            ApprovalRefused: they are about an earlier end of this thread; or nothing is asked.
        """
        opened = [self.gate.approvers.open(text, revoked=True) for text in signed]
        ours = self.latest.store, self.latest.tenant, self.thread
        for each in opened:
            asked = each.question
            is_ours = (asked.store, asked.tenant, asked.thread) == ours
            if is_ours and asked.head.sequence < self.latest.sequence:
                self.asking(asked).find_answer()  # which refuses it: the run went on from there
        question = self.question()
        if question is None and opened:
            raise ApprovalRefused(
                f"{self} needs no approval but was given one from {opened[0].approver}.",
                "Somebody may have answered another question. Resume it without.",
                "mismatch",
            )
        return question


@dataclass(repr=False, eq=False)
class Run:
    """One run of a workflow: its state, what is done, and what comes next.

    Iterating over it runs one step at a time and yields the checkpoint after each. It stops at the
    end, and where a step asks people.

    Attributes:
        workflow: the workflow.
        ledger: the ledger of its checkpoints.
        thread: the name of the thread.
        payload: the content of the next checkpoint.
        at: the thread's latest checkpoint.
        head: the sequence of that checkpoint.
        approved: what people approved, for the step that comes next, or None.
        expired: whether the run ended because nobody approved in time.
        denied: whether it ended by a denial, or because nobody approved in time.
        back_to: the sequence that the run went back to, or 0. The next step starts from there.
    """

    workflow: Workflow
    ledger: Ledger
    thread: str
    payload: Payload
    at: Checkpoint
    approved: Approved | None = None
    expired: bool = False
    denied: bool = False
    back_to: int = 0

    @property
    def head(self) -> int:  # noqa: D102  among the attributes above
        return self.at.sequence

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
        remaining = list(self.workflow.steps)[len(self.done) :]
        return remaining[0] if remaining and not self.denied else None

    @property
    def paused(self) -> bool:
        """Whether the run waits for people."""
        return self.payload.asked is not None and not self.denied

    @property
    def question(self) -> Question | None:
        """The exact question to people, or None if the run does not wait."""
        if not self.paused:
            return None
        return Wanted(self.workflow, self.ledger, self.thread).question()

    def step(self) -> Checkpoint:
        """Run the next step and capture its result.

        A step that raises changes nothing: the state and the last checkpoint stay.

        Raises:
            ResumeRefused: every step has run.
            ConfigurationError: the step did not return what changes.
            ApprovalNeeded: the run waits for people.
            NotOwner: another worker owns the thread by now, or an operator holds it. The step did
                not run.
            CheckpointError: the checkpoint was refused.
        """
        name = self.next
        if self.paused:
            raise ApprovalNeeded(
                f"{self.thread} waits for people at #{self.head}.", SHOW, self.question
            )
        if name is None:
            how = "has run every step"
            if self.denied:
                how = "was not approved in time" if self.expired else "was denied"
            raise ResumeRefused(f"{self.thread} {how}.")
        self.ledger.owners.keep(self.thread)
        check_held(self.workflow.gate, self.ledger, self.thread)
        self._check_still_here(name)
        state = copy.deepcopy(self.state)
        returned = self.workflow.call(name, state, self._call(name))
        asked = returned if isinstance(returned, Ask) else None
        if isinstance(returned, Mapping):
            state.update(returned)
        elif returned is not asked:
            raise ConfigurationError(
                f"The step {name} returned {type(returned).__name__}.",
                "Return a dict of what changes in the state, nothing, or an Ask.",
            )
        if asked is not None:
            check_askable(self.workflow.gate, self.ledger, f"The step {name}")
            self.ledger.log.write("pause", "intended", self.thread, _head(self.at), asked.action)
        done = (*self.done, name)
        payload = Payload(
            state=copy.deepcopy(state),
            done=done,
            tools=self.workflow.tools,
            asked=asked,
            next=next(iter(list(self.workflow.steps)[len(done) :]), ""),
        )
        self.at = self.workflow.save(self.ledger, self.thread, payload, self.head)
        self.payload, self.approved, self.back_to = payload, None, 0
        return self.at

    def finish(self) -> Run:
        """Run every step that is left, up to the end or a pause, and return the run itself."""
        for _ in self:
            pass
        if self.approved is not None:  # what the last step asked, and no step follows
            self.at = self.workflow.save(self.ledger, self.thread, self.payload, self.head)
            self.approved = None
        return self

    def __iter__(self) -> Iterator[Checkpoint]:
        while self.next is not None and not self.paused:
            yield self.step()

    def __repr__(self) -> str:
        how = ", paused" if self.paused else ", denied" if self.denied else ""
        return f"Run({self.workflow.name!r}, {self.thread!r}, next={self.next!r}{how})"

    def _call(self, name: str) -> Call:
        thread = with_tenant(self.at.tenant, self.thread)
        fork = f"-from-{self.back_to}" if self.back_to else ""
        key = f"{self.at.store}/{thread}/{self.head}{fork}/{name}"
        return Call(self.thread, name, self.head, key, self.approved)

    def _check_still_here(self, name: str) -> None:
        """Refuse a step if the thread moved on; write to the journal that one acts on an approval.

        Raises:
            Conflict: it has, or this run does not know whether its last step was saved.
            Unavailable: it cannot be written down, so the step does not act.
        """
        newest = next(each for each in self.ledger.back(self.thread) if each.kind == "state")
        if newest.opened.head != _head(self.at):
            raise Conflict(
                f"{self.thread} is at #{newest.sequence} now, but this run is at #{self.head}.",
                f"The step {name} did not run. Rehydrate the run, and decide again.",
            )
        if self.approved is not None:
            self.ledger.log.write("act", "intended", self.thread, _head(self.at), name)


Step = Callable[..., Mapping[str, Any] | Ask | None]
"""A function of the state, or of the state and a `Call`."""


class Workflow:
    """A name and a list of steps. A step takes the state, and changes it or returns what changes.

    A step is a plain function. It gets a copy of the state, which is kept if the step succeeds. It
    may run again, after a crash or by another worker at the same time: what it does outside of the
    state must bear that. A step with a second argument gets a `Call`, which has a key for that.

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
        steps: functions, in order. A checkpoint stores their names.
        version: the version of the steps. The gate decides on a checkpoint of another version.
        tools: the tools of the run. The gate decides if a checkpoint had a narrower set.
        migrations: for each older version, a function from its whole state to this version's. It
            must be deterministic, because people approve its result.
        gate: decides who must approve a resume. The default is strict and has no approvers.

    Raises:
        ConfigurationError: the steps are none, not plain functions, or two of one name.
        InvalidId: the name or the version is outside its grammar.
    """

    def __init__(
        self,
        name: str,
        steps: Iterable[Step],
        *,
        version: str = "",
        tools: ToolSet | Iterable[Tool] = (),
        migrations: Mapping[str, Callable[[dict[str, Any]], Mapping[str, Any]]] | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.name = check_name("workflow", name)
        named = [(_step_name(step), step) for step in steps]
        self.steps = dict(named)
        if not named or len(self.steps) < len(named):
            raise ConfigurationError(
                f"The workflow {name} needs one or more steps with different names.",
                "Give each step a function of its own.",
            )
        self._takes_call = frozenset(name for name, step in named if _takes_call(step))
        self.tools = tools if isinstance(tools, ToolSet) else ToolSet(tools)
        self.gate: Final = gate or Gate()
        self.version = version
        check_word(self.app)
        self.migrations = dict(migrations or {})

    @property
    def app(self) -> str:
        """The app in its checkpoints: the name, and the version if there is one."""
        return f"{self.name}@{self.version}" if self.version else self.name

    def start(self, ledger: Ledger, /, thread: str, **state: Any) -> Run:
        """Start a new thread with `state`, and run every step up to the end or a pause.

        Raises:
            Conflict: the thread exists. Resume it, or choose another name.
            CheckpointError: a checkpoint was refused; the steps stop there.
        """
        return self.begin(ledger, thread, **state).finish()

    def begin(self, ledger: Ledger, /, thread: str, **state: Any) -> Run:
        """Start a new thread and save its first checkpoint, without running a step yet.

        Raises:
            Conflict: the thread exists. Resume it, or choose another name.
            CheckpointError: the checkpoint was refused.
        """
        self.gate.check_apart(ledger.keys)
        payload = Payload(copy.deepcopy(state), tools=self.tools)
        try:
            return Run(self, ledger, thread, payload, self.save(ledger, thread, payload, 0))
        except Conflict:
            raise Conflict(
                f"{thread} has started already.",
                "Nothing was overwritten. Continue with resume, or start a thread of another name.",
            ) from None

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
        """Continue from the latest checkpoint, or from the given one, and run the remaining steps.

        Args:
            ledger: the ledger of the thread.
            thread: the thread.
            sequence: an older checkpoint to go back to. The gate asks for a person's approval.
            approvals: signed texts, if the gate asks for approval.
            now: the time for checking approvals, instead of the clock's.

        Raises:
            ApprovalNeeded: the gate wants people to approve it. The error has the question.
            ResumeRefused: the gate says no, or the approval came after the wait had ended.
            ApprovalRefused: an approval does not count.
            NotOwner: an operator holds the thread.
            SealBroken: the place of the answers cannot vouch for what people said.
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
        """Restore a run from a checkpoint, in any process, without running a step yet.

        It passes the same gate as `resume`, with the same arguments and errors.
        """
        watching, quiet = ledger.log.watching, RESUMING
        with watching("resume", thread, quiet=quiet):
            self.gate.check_apart(ledger.keys)
            wanted = Wanted(self, ledger, thread, sequence)
        with watching("resume", thread, wanted.at, quiet=quiet):
            return wanted.run(list(approvals), now)

    def question(
        self, ledger: Ledger, /, thread: str, sequence: int | None = None
    ) -> Question | None:
        """Return what people must approve before such a resume, or None if nothing.

        It is for the approver's own process: it reads the verified store and does not depend on the
        worker, which may still own the thread.

        Raises:
            ResumeRefused: nobody can approve it.
            CheckpointError: the checkpoint was refused, or belongs to another workflow.
        """
        return Wanted(self, ledger, thread, sequence).open_question()

    def waiting(self, ledger: Ledger) -> Iterator[Question]:
        """Return the question of each thread of this workflow that waits for people.

        Nothing is written: `resume` ends a wait that `Question.is_over`.
        If there are tenants, call it for each: `waiting(ledger.tenant(name))`.
        A thread that does not verify, or that belongs to another workflow, is left out:
        `Ledger.verify` reports the former.

        Raises:
            CheckpointError: the store, its anchor or its journal cannot be asked, so nobody could
                tell who waits.
        """
        for thread in ledger.threads():
            try:
                question = Wanted(self, ledger, thread).open_question()
            except Unavailable:
                raise
            except CheckpointError:
                continue
            if question is not None and question.action:
                yield question

    def call(self, name: str, state: dict[str, Any], call: Call) -> Mapping[str, Any] | Ask | None:
        """Run one step, and return what it returned."""
        step = self.steps[name]
        return step(state, call) if name in self._takes_call else step(state)

    def save(self, ledger: Ledger, thread: str, payload: Payload, after: int) -> Checkpoint:
        """Save the content of a run as the next checkpoint of its thread."""
        tools = payload.tools.digest if payload.tools else None
        state = copy.deepcopy(payload.pack())
        return ledger.save(thread, state, app=self.app, tools=tools, after=after)


def _step_name(step: Step) -> str:
    name = getattr(step, "__name__", "")
    if not str(name).isidentifier() or inspect.iscoroutinefunction(step):
        raise ConfigurationError(
            f"{quoted(name)} cannot be a step.",
            "Use plain functions that were defined with def: call asyncio.run inside them.",
        )
    return str(name)


def _takes_call(step: Step) -> bool:
    """Tell whether a step takes a `Call` in addition to the state."""
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return False  # some built-in functions do not say
    positional = [each for each in parameters if each.kind <= each.POSITIONAL_OR_KEYWORD]
    return sum(each.default is each.empty for each in positional) > 1
