"""Judges: what a gate says of a resumption, and which of the approvals in it count, later on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from safepoint.approval import SKEW, Approval, Approvers, Question, Reason
from safepoint.audit.finding import Finding
from safepoint.audit.reading import Entry, Link
from safepoint.errors import (
    ApprovalError,
    ApprovalExpired,
    CheckpointError,
    ConfigurationError,
    WorkflowMismatch,
)
from safepoint.gate import Gate, Policy
from safepoint.keys import VerifyingKey
from safepoint.names import Head
from safepoint.workflow import Migration, Resumption, Workflow, judge

WIDER: Final = frozenset({Reason.TOOLS_ADDED, Reason.TOOL_CHANGED, Reason.PERMISSIONS_WIDENED})
_MANY: Final = 10
_UNCOUNTED: Final = Policy(dict.fromkeys(Reason))
UNEXPLAINED: Final = "{} says that it was resumed, and not why."
FORGED: Final = "Whoever wrote it had the writer's key. Do not resume it; replace that key."

STOLEN: Final = "If it was stolen after that, nothing is wrong. If not, look at what the run did."


class Statement(NamedTuple):
    """An approval or a denial in a record.

    Attributes:
        text: what is in the record.
        approval: what it says, if one of these people signed it for this; None if not.
        why: why not.
    """

    text: str
    approval: Approval | None
    why: str = ""


class Judges:
    """A gate for looking back: whoever has a key today, or had one.

    Attributes:
        gate: the policy, and everybody, those included whose key was revoked since.
        revoked: the ids of those keys.

    Raises:
        ConfigurationError: it was given something else than a gate.
    """

    def __init__(self, gate: Gate) -> None:
        if not isinstance(gate, Gate):
            raise ConfigurationError(
                f"The check was given {type(gate).__name__} as gate.",
                "Give it the gate of your workflow: workflow.gate.",
            )
        self.keys: list[tuple[str, VerifyingKey]] = []
        self.revoked: frozenset[str] = frozenset()
        self.gate = gate
        if gate.approvers is None:
            return
        self.keys = list(gate.approvers.keys.values())
        self.revoked = gate.approvers.revoked
        self.gate = Gate(gate.policy, self._approvers())

    def judged(self, link: Link) -> tuple[Resumption, Question | None]:
        """Return what the policy says of a resumption, and what people had to be asked then.

        Whether an approval from before still counted was for the people and the policy of that
        time to say, so each answer that they may have given is tried.

        Raises:
            CheckpointError: no workflow could have resumed it.
        """
        signed = [each.approval for each in self.statements(link, None) if each.approval]
        denials = [approval for approval in signed if approval.verdict == "denied"]
        if denials:
            wanted, question = _denied(link, self._gates(link)[0], denials[0].question)
        else:
            app = link.entry.checkpoint.app
            judged = [_judged(link, gate, app) for gate in self._gates(link)]
            reasons = None if link.resumed is None else link.resumed.reasons
            same = [each for each in judged if each[0].decision.reasons == reasons]
            answered = [each for each in same if signed and each[1] == signed[0].question]
            wanted, question = (answered or same or judged)[0]
        people = self.gate.policy.needs(*wanted.decision.reasons)
        return replace(wanted, decision=replace(wanted.decision, approvers=people)), question

    def _gates(self, link: Link) -> list[Gate]:
        """Return gates for which what people approved before a resumption counts, or lapsed."""
        approvers = self.gate.approvers
        gates = [Gate(_UNCOUNTED, approvers)]
        texts = () if link.source is None else link.source.payload.approved
        if approvers is None or not texts:
            return gates
        opened = [each.approval for each in map(self._open, texts) if each.approval is not None]
        keys = dict.fromkeys(approval.key for approval in opened)
        gates += [Gate(_UNCOUNTED, self._approvers(revoked=[key])) for key in keys]
        more = len({each.approver for each in opened}) + 1
        if more <= len(approvers):
            asks = Policy({**dict.fromkeys(Reason), Reason.ASKED: more})
            gates.append(Gate(asks, approvers))
        return gates

    def _approvers(self, **options: list[str]) -> Approvers:
        people = {name: [key for who, key in self.keys if who == name] for name, _ in self.keys}
        return Approvers(people, **options)

    def statements(self, link: Link, question: Question | None) -> list[Statement]:
        """Return what is in a record, each with whether it answers the question."""
        texts = () if link.resumed is None else link.resumed.statements
        return [self._open(text, question) for text in texts]

    def _open(self, text: str, question: Question | None = None) -> Statement:
        approvers = self.gate.approvers
        if approvers is None:
            return Statement(text, None, "There are no approvers to check it.")
        try:
            approval = approvers.open(text)
            if question is not None:
                approval.check_answers(question)
        except ApprovalError as refusal:
            return Statement(text, None, refusal.what)
        return Statement(text, approval)

    def missing(
        self, link: Link, wanted: Resumption, approvals: list[Approval], rule: str
    ) -> Iterator[Finding]:
        """Say whether too few people approved a resumption."""
        decision, thread = wanted.decision, link.entry.checkpoint.thread
        details, more = decision.details[:_MANY], len(decision.details) - _MANY
        shown = f"{link.entry} was resumed from {wanted.at}. {' '.join(details)}"
        shown += f" And {more} more like these." if more > 0 else ""
        people = len({each.approver for each in approvals if each.verdict == "approved"})
        if decision.approvers is None:
            what = f"{shown} The policy lets nobody approve that."
        elif people < decision.approvers:
            what = f"{shown} It needed {decision.approvers} to approve it, and {people} did."
        else:
            return
        do = f"{FORGED} If your policy was looser at the time, give this check that one."
        yield Finding(rule, "warning" if people else "error", what, do, thread)


def _judged(link: Link, gate: Gate, app: str) -> tuple[Resumption, Question | None]:
    """Return what a gate says of the resumption by an app, and what people had to be asked.

    Raises:
        CheckpointError: no workflow could have resumed it.
    """
    source, last = link.source, link.last
    if source is None or last is None:
        raise WorkflowMismatch(f"{link.entry} was not resumed.", "Judge one that was.")
    name, _, version = app.partition("@")
    old = source.checkpoint.app.partition("@")[2]
    as_it_was = Workflow(
        name,
        [_nothing],
        version=version,
        tools=link.entry.payload.tools,
        migrations=[] if old == version else [Migration(old, version, dict)],
        gate=gate,
    )
    # Who owned the thread at the time, nobody knows any more.
    wanted = judge(as_it_was, None, source.checkpoint, last)
    if not wanted.decision.reasons:
        return wanted, None
    # Whatever the policy is today: if people were asked, this is what they were asked.
    return wanted, wanted.question()


def _nothing(state: dict[str, Any]) -> None:
    """Stand in for the steps, which nobody runs."""


def _denied(link: Link, gate: Gate, signed: Question) -> tuple[Resumption, Question | None]:
    """Judge a no. The run keeps the app and the tools that it had, and not those that were denied.

    Of those tools there is no more than the digest, so which of them are new is as it was signed.
    """
    wanted, question = _judged(link, gate, signed.app)
    if question is None or signed.tools == question.tools:
        return wanted, question
    question = replace(question, tools=signed.tools)
    others = tuple(reason for reason in signed.reasons if reason not in WIDER)
    if others == question.reasons != signed.reasons:
        question = replace(question, reasons=signed.reasons, details=signed.details)
        reasons = tuple(Reason(reason) for reason in signed.reasons)
        wanted = replace(wanted, decision=replace(wanted.decision, reasons=reasons))
    return wanted, question


def impossible(link: Link, refusal: CheckpointError, rule: str) -> Finding:
    """Say that no workflow could have written a resumption."""
    what = f"{link.entry} could not have been resumed. {refusal.what}"
    return Finding(rule, "error", what, FORGED, link.entry.checkpoint.thread)


def is_here(entry: Entry, approval: Approval) -> bool:
    """Tell whether people were asked about the end that a record follows, and to go on as it."""
    place, question = entry.checkpoint, approval.question
    follows = None if place.previous is None else Head(place.sequence - 1, place.previous)
    if (place.store, place.thread, follows) != (question.store, question.thread, question.head):
        return False
    if approval.verdict == "denied":  # what was denied may be another version, with other tools
        return question.app.partition("@")[0] == place.app.partition("@")[0]
    return (place.app, entry.payload.tools.digest) == (question.app, question.tools)


def outside(approval: Approval, created: datetime, lifetime: timedelta) -> str | None:
    """Return why an approval was not valid when the record was written, give or take a minute."""
    # Nothing is taken off `created`: whoever wrote it may have put the first day there is.
    just_late = timedelta() <= created - approval.expires < SKEW
    try:
        approval.check_time(approval.issued if just_late else created, lifetime)
    except ApprovalExpired as refusal:
        return refusal.what
    return None
