"""How each run of a store was continued: across versions, back in time, with other tools, by whom.

The writer's key seals the records, so a seal does not say that anybody was asked. What a workflow
would have written, and whom its gate would have asked, is worked out again, and compared with what
is there and with what people signed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from safepoint.audit.finding import Finding, finding, listed, of_tenant, refused
from safepoint.audit.reading import Frame, History, Spend, all_threads
from safepoint.core.errors import ApprovalRefused, CheckpointError, ResumeRefused
from safepoint.core.ledger import Ledger
from safepoint.core.names import Head, stamp
from safepoint.resume.answers import in_force
from safepoint.resume.approval import SKEW, Answer, Question, Reason
from safepoint.resume.gate import Decision, Gate, compare
from safepoint.resume.workflow import Payload

_MANY: Final = 10


def holds(ledger: Ledger, gate: Gate) -> Iterator[Finding]:
    """Look into the place of the answers, if there is one, for the holds of each thread."""
    if gate.answers is None or not gate.operators.keys:
        return
    for scope, name in all_threads(ledger)[0]:
        tenant, operators = scope.tenant_name, gate.operators
        found: list[Finding] = []
        try:
            orders = gate.answers.orders(scope.store, name, operators, tenant=tenant)
            found += [finding("SP31.held", name, hold=each) for each in in_force(orders, operators)]
        except CheckpointError as refusal:
            found.append(refused("SP31", refusal, name))
        yield from of_tenant(tenant, found)


@dataclass(frozen=True, slots=True)
class Turn:
    """An entry of a run, and what it follows.

    Attributes:
        entry: the entry.
        before: the last one before it that a workflow wrote; None if it is the first that is kept.
        last: the end of the thread before it, whoever wrote that; None if it is not kept.
        first: the first sequence that is kept.
    """

    entry: Frame
    before: Frame | None
    last: Frame | None
    first: int

    def found(self, which: str, /, **values: object) -> Finding:
        """Return a finding about its entry."""
        return finding(which, self.entry.checkpoint.thread, entry=self.entry, **values)

    @property
    def payload(self) -> Payload:
        """What the run kept in it."""
        return self.entry.payload

    @property
    def head(self) -> Head:
        """The state that it follows. A note in between is no other state and no entry."""
        if self.last is not None:
            return self.last.head
        checkpoint = self.entry.checkpoint
        return Head(checkpoint.sequence - 1, checkpoint.previous or "")

    @property
    def spend(self) -> Spend | None:
        """The last note before it that let a run continue as this one does, if there is one."""
        place, done = self.entry.checkpoint, self.payload.done
        for each in reversed(self.last.spends if self.last is not None and done else []):
            asked = each.question
            right = asked.app, asked.tools, asked.done, asked.head
            if right == (place.app, self.payload.tools.digest, done[:-1], self.head):
                return each
        return None

    def was_denied(self, spend: Spend) -> bool:
        """Whether what that note is about had a no besides."""
        spends, asked = self.last.spends if self.last else [], spend.question
        return any(each.is_no and each.question.subject == asked.subject for each in spends)

    @property
    def end(self) -> int:
        """The sequence that it follows, 0 if there is none."""
        return self.entry.checkpoint.sequence - 1 if self.last is None else self.last.head.sequence


class Runs:
    """Looks at the runs of threads, for all five checks.

    Args:
        gate: the policy, and the people. Without it, approvals are counted and not verified.
    """

    def __init__(self, gate: Gate | None = None) -> None:
        self._verifies = gate is not None
        self._gate = gate or Gate()

    def look(self, thread: History) -> Iterator[Finding]:
        """Yield what is wrong with each record of a thread, and with its end."""
        entries = {entry.checkpoint.sequence: entry for entry in thread.entries}
        before = last = None
        heads = [entry.head for entry in thread.entries]
        for entry in thread.entries:
            yield from _version(entry, last, entries)
            if entry.is_run:
                link = Turn(entry, before, last, min(entries))
                spend = link.spend
                if spend is None:
                    yield from self._stepped(link)
                else:
                    yield from self._resumed(link, spend, entries)
                before = entry
            elif before is not None:
                yield finding("SP16.no-run", thread.name, entry=entry, head=before.head)
            for each in entry.spends if self._verifies else ():
                yield from self._signed(entry, each, [entry.head] if entry.is_run else heads)
            last = entry
        if last is not None and thread.refusal is None and not thread.hidden:
            yield from _waits(last)

    def _signed(self, entry: Frame, spend: Spend, heads: list[Head]) -> Iterator[Finding]:
        """Look at whether people signed what a note says, and were asked about where it stands.

        A framework may save more states while it waits for the answer: its adapter looks at these.
        """
        at, asked = entry.checkpoint, spend.question
        is_ours = (asked.store, asked.tenant, asked.thread) == (at.store, at.tenant, at.thread)
        if is_ours and not entry.is_run and asked.head.sequence < heads[0].sequence:
            yield finding("SP19.pruned", at.thread, entry=spend, source=asked.head.sequence)
        elif not is_ours or asked.head not in heads:
            why = f"It answers what {asked.thread} {asked.head} asked, and follows {entry.head}."
            yield finding("SP19.not-counted", at.thread, entry=spend, why=why)
        for text in spend.texts:
            try:
                approval = self._gate.approvers.open(text, revoked=True)
                approval.check_answers(asked)
            except ApprovalRefused as refusal:
                yield finding("SP19.not-counted", at.thread, entry=spend, why=refusal.what)
            else:
                yield from self._outside(at.thread, spend, approval)

    def _stepped(self, link: Turn) -> Iterator[Finding]:
        """Look at a record that a step left, or that begins a run."""
        payload, before = link.payload, link.before
        if before is None:
            yield from _begun(link)
            return
        was, kept = before.payload, before.checkpoint.sequence
        if any(each.is_no for each in before.spends):
            yield link.found("SP19.denied", head=before.head)
        elif was.asked is not None:
            yield link.found("SP19.unanswered", head=before.head)
        elif kept != link.end or not payload.done or payload.done[:-1] != was.done:
            yield link.found("SP16.no-resume", end=link.end)
        yield from _wider(link)

    def _resumed(self, link: Turn, spend: Spend, entries: dict[int, Frame]) -> Iterator[Finding]:
        """Compare a record with the note that let the run continue, and with what the gate says."""
        asked = spend.question
        source, number = entries.get(asked.checkpoint.sequence), asked.checkpoint.sequence
        if source is None or not source.is_run or source.head != asked.checkpoint:
            which = "SP19.pruned" if number < link.first else "SP16.not-there"
            yield link.found(which, source=number)
            yield from _wider(link)
            return
        if link.was_denied(spend):
            yield link.found("SP19.denied", head=asked.head)
            return
        decision = self._decided(link, source)
        right = _right(link, asked, source)
        if self._verifies:  # without people, a gate finds other reasons
            right = replace(right, reasons=decision.reasons)
        if asked != right:
            wrong = (each.name for each in fields(asked))
            wrong = (each for each in wrong if getattr(asked, each) != getattr(right, each))
            why = f"It answers a question that the run did not ask: another {', '.join(wrong)}."
            yield link.found("SP19.not-counted", why=why)
        names = sorted({each.approver for each in self._opened(spend)})
        people, how = len(names), f"approved by {' and '.join(names)}"
        if not self._verifies:
            people = len(spend.texts)
            how = f"with {people} approval{'s' * (people > 1)}, which nobody verified here"
        few = self._too_few(link, number, decision, people)
        yield from few
        if names and not few:
            yield from self._not_allowed(link, asked, names, people)
        if number < link.end and not few:
            how = how if people else "which your policy lets anybody do"
            yield link.found("SP16.back", end=link.end, source=number, how=how)

    def _opened(self, spend: Spend) -> Iterator[Answer]:
        """Yield what people approved, of what a note says."""
        for text in spend.texts if self._verifies else ():
            with suppress(ApprovalRefused):
                approval = self._gate.approvers.open(text, revoked=True)
                approval.check_answers(spend.question)
                if approval.verdict == "approved":
                    yield approval

    def _decided(self, link: Turn, source: Frame) -> Decision:
        """Return what the gate would have said."""
        return self._gate.decide(
            source.checkpoint,
            link.head,
            had=source.payload.tools,
            has=link.payload.tools,
            app=link.entry.checkpoint.app,
            migrates_from=[source.checkpoint.app.partition("@")[2]],
            asked=source.payload.asked is not None,
        )

    def _outside(self, thread: str, spend: Spend, approval: Answer) -> Iterator[Finding]:
        """Look at whether an answer counts by its key, and when the note was written."""
        denied = approval.verdict == "denied"
        does = "ends with a denial" if denied else "continues from an approval"
        if approval.key in self._gate.approvers.revoked:
            yield finding("SP19.revoked", thread, entry=spend, does=does, approval=approval)
        created = spend.checkpoint.created
        # Nothing is taken off `created`: whoever wrote it may have put the first day there is.
        just_late = timedelta() <= created - approval.expires < SKEW
        try:
            when = approval.issued if just_late else created
            approval.check_time(when, self._gate.policy.lifetime)
        except ApprovalRefused as refusal:
            yield finding("SP19.late", thread, entry=spend, does=does, late=refusal.what)

    def _not_allowed(
        self, link: Turn, asked: Question, names: list[str], people: int
    ) -> Iterator[Finding]:
        """Look at whether so many people may approve that amount."""
        try:
            why = self._gate.lacks(asked, names, people)
        except ResumeRefused as refusal:
            yield link.found("SP19.not-allowed", why=refusal.what)
        else:
            if why:
                yield link.found("SP19.not-allowed", why=f"It needed the approval of {why}.")

    def _too_few(self, link: Turn, source: int, decision: Decision, people: int) -> list[Finding]:
        """Return that too few people approved it. Without people, a way back alone needs them."""
        known = (each for each in decision.reasons if each is Reason.OLD_CHECKPOINT)
        needed = self._gate.policy.needs(*(decision.reasons if self._verifies else known))
        if needed is not None and people >= needed:
            return []
        why = "The policy lets nobody approve that."
        if needed is not None:
            why = f"It needed {needed} to approve it, and {people} did."
        why = " ".join([*decision.details[:_MANY], why])
        severity = "warning" if people else "error"
        return [link.found("SP19.too-few", severity=severity, source=source, why=why)]


def _version(entry: Frame, last: Frame | None, entries: dict[int, Frame]) -> Iterator[Finding]:
    """Look for a change of version, or of workflow, that no note of a resumption explains."""
    if last is None:
        return
    app, was = entry.checkpoint.app, last.checkpoint.app
    for spend in last.spends:
        asked = spend.question
        named = entries.get(asked.checkpoint.sequence, last)
        before = named.checkpoint.app
        same = app.partition("@")[0] == before.partition("@")[0] and asked.app == app
        if same and (before == app or Reason.VERSION_CHANGED in asked.reasons):
            return
    if app != was:
        now, before = (each or "something without a name" for each in (app, was))
        thread = entry.checkpoint.thread
        yield finding("SP17.unexplained", thread, entry=entry, now=now, before=before)


def _right(link: Turn, asked: Question, source: Frame) -> Question:
    """Return what people had to be asked, in the words that they were shown."""
    place, ask = link.entry.checkpoint, source.payload.asked
    over = until(source) if source is link.last else None
    return replace(
        asked,
        store=place.store,
        tenant=place.tenant,
        thread=place.thread,
        scope="",
        action=ask.action if ask else "",
        arguments=dict(ask.arguments) if ask else {},
        next=link.payload.done[-1],
        done=source.payload.done,
        until=stamp(over) if over else "",
    )


def until(entry: Frame) -> datetime | None:
    """Return when a run ends its wait for people, None if it does not."""
    asked = entry.payload.asked
    return entry.checkpoint.created + asked.within if asked and asked.within else None


def _waits(last: Frame) -> Iterator[Finding]:
    """Look at whether a run that waits for people does so forever."""
    if any(each.question.action for each in last.spends):
        return  # people answered, or the wait was ended
    asked, over, thread = last.payload.asked, until(last), last.checkpoint.thread
    if asked is not None and over is None:
        yield finding("SP31.no-end", thread, last=last, action=asked.action)
    elif over is not None and over < datetime.now(UTC):
        yield finding("SP31.over", thread, last=last, over=over)


def _begun(link: Turn) -> Iterator[Finding]:
    """Look at the first record of a run. If what came before was pruned, nobody can tell."""
    payload, pruned = link.payload, link.first > 1
    if link.last is not None or (not pruned and (payload.done or payload.asked is not None)):
        yield link.found("SP16.unbegun")
    passed = payload.done if payload.asked is None else payload.done[:-1]
    if pruned and passed:
        yield link.found("SP19.first-kept")


def _wider(link: Turn) -> Iterator[Finding]:
    """Look at a record that did not go through the gate: it has what the one before it has."""
    before = link.before
    if before is not None:
        compared = compare(link.payload.tools, before.payload.tools)
        wider = sorted({name for _, name, _ in compared})
        if wider:
            yield link.found("SP18.wider", head=before.head, names=listed(wider))
