"""What people answered inside of a thread, and the one note that uses it up.

A graph or a workflow of somebody else asks in the middle of a step, and the step runs again when
the answer is there. So the answer is spent by a note of its own, sealed and anchored before anybody
is given the arguments. That it was not spent before is known by a walk from the thread's end back
to the record that the question names, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from safepoint.approval import SKEW, Approval, Question, Reason
from safepoint.errors import (
    ApprovalExpired,
    ApprovalMalformed,
    ApprovalNeeded,
    ApprovalSpent,
    ConfigurationError,
    ResumeError,
    ResumeRefused,
)
from safepoint.gate import MAX_APPROVERS, Gate
from safepoint.journal import RESUMING, Actor, Outcome, What
from safepoint.ledger import Ledger, Link
from safepoint.names import Head, digest_of

SPENT: Final = "spent/"  # no checkpoint of anybody has this label


class Approved(NamedTuple):
    """What people approved, out of the statements that they signed.

    Attributes:
        action: what may be done.
        arguments: with what, exactly.
        by: the names of those who approved it.
        key: an idempotency key, in a framework's node: the digest of the question. Whoever runs the
            node again gets the same. Give it to whatever acts, and let that drop what it has seen.
            In a step of a `Workflow` it is "": there, `Call.key` is that.
    """

    action: str
    arguments: dict[str, Any]
    by: tuple[str, ...]
    key: str = ""

    def __repr__(self) -> str:
        return f"Approved({self.action!r}, by={self.by!r})"


def approved(granted: tuple[Approval, ...], key: str = "") -> Approved:
    """Return what these approvals, of one question, allow."""
    question, people = granted[0].question, dict.fromkeys(each.approver for each in granted)
    return Approved(question.action, question.arguments, tuple(people), key)


def check_journal(ledger: Ledger, why: str, *, anchor: bool = False) -> None:
    """Refuse what must be written down, where there is no journal.

    Args:
        ledger: where the thread is.
        why: what could not be done, as the beginning of a sentence.
        anchor: whether there must be an anchor as well: an older copy of the store has no note of
            what was spent since.

    Raises:
        ConfigurationError: there is none.
    """
    if anchor and ledger.anchor is None:
        raise ConfigurationError(
            f"{why} only where an anchor sees what they answered, and the ledger has none.",
            "Write Ledger(..., anchor=FileAnchor(path)), or take open_ledger, which has one.",
        )
    if any(ledger.keys) and ledger.journal is None:
        raise ConfigurationError(
            f"{why} only where that is written down, and the ledger has no journal.",
            "Write Ledger(..., journal=FileJournal(path, keys=...)).",
        )


def check_clock(now: datetime, created: datetime, where: object) -> None:
    """Refuse to tell what has expired by a clock that is behind a record.

    Raises:
        ApprovalExpired: it is.
    """
    if now < created - SKEW:
        raise ApprovalExpired(
            f"It is {now:%Y-%m-%d %H:%M} by this worker's clock, and {where} was written"
            f" {created:%Y-%m-%d %H:%M}.",
            "So what has expired cannot be told. Set the clock that is wrong. If it is the one"
            f" that wrote {where}, find out who did, and let the run save anew before you ask"
            " again.",
        )


def note_answers(ledger: Ledger, accepted: Iterable[Approval], outcome: Outcome) -> None:
    """Write down who said yes or no."""
    for each in accepted:
        what: What = "deny" if each.verdict == "denied" else "approve"
        who = Actor(each.approver, f"signature of key {each.key}")
        asked = each.question
        ledger.notes.write(what, outcome, asked.thread, asked.checkpoint, said(each), actor=who)


def said(approval: Approval) -> str:
    """Name an answer, as the journal does: in an entry of its own, which is never cut."""
    return f"{approval.question.action} nonce {approval.nonce}".lstrip()


def noted(ledger: Ledger, granted: tuple[Approval, ...], outcome: Outcome) -> datetime | None:
    """Return when the journal was told so of the last of these answers, None if never."""
    found: dict[str, datetime] = {}
    thread = granted[0].question.thread
    for entry in ledger.journal.show(thread=thread) if ledger.journal else ():
        for each in granted:
            if (entry.what, entry.outcome, entry.detail) == ("approve", outcome, said(each)):
                found.setdefault(each.nonce, entry.at)
    return max(found.values()) if len(found) == len(granted) else None


class Asking(NamedTuple):
    """A question that stands in a thread, and how it is answered once.

    Attributes:
        ledger: where the thread is.
        gate: who may answer, and how many have to.
        question: what they are asked.
        is_over: tells of a record after the question's whether the run went on, so that nothing is
            answered there any more.
        value: what else the note says, so that the adapter knows it for its own.
    """

    ledger: Ledger
    gate: Gate
    question: Question
    is_over: Callable[[Link], bool]
    value: dict[str, Any]

    @property
    def key(self) -> str:
        """The digest of the question."""
        return digest_of(self.question.text.encode())

    def answered(self, given: object) -> Approved:
        """Spend what people signed, and return what they approved.

        Whoever runs it again, after a crash, is given what was spent then.

        Args:
            given: the text that one person signed, or a list of such texts.

        Raises:
            ApprovalError: one of them does not count, or the run has gone on since.
            ApprovalNeeded: there are too few.
            ResumeRefused: somebody said no.
        """
        return self.approved(self.spend(given))

    def approved(self, spent: tuple[Approval, ...]) -> Approved:
        """Return what they approved.

        Raises:
            ResumeRefused: somebody said no.
        """
        if spent[0].verdict == "denied":
            raise ResumeRefused(
                f"{spent[0].approver} denied it: {self.question.action} at {self._where}.",
                "That is final for this question. Catch this error where the run goes on without"
                " it.",
            )
        return approved(spent, self.key)

    def spend(self, given: object) -> tuple[Approval, ...]:
        """Spend what people signed, unless that was done, and return what counts: yes, or one no.

        It raises what `answered` raises, but for a no.
        """
        thread, at = self.question.thread, self.question.checkpoint
        with self.ledger.notes.watching("resume", thread, at, quiet=RESUMING):
            try:
                return self._decided(given, datetime.now(UTC))
            except ResumeError as error:
                error.question = self.question
                raise

    def _decided(self, given: object, now: datetime) -> tuple[Approval, ...]:
        if spent := self._spent(now):
            # Whoever wrote the note may have died before the journal was told that it is used.
            if spent[0].verdict == "approved" and noted(self.ledger, spent, "done") is None:
                note_answers(self.ledger, spent, "done")
            return spent
        accepted = self._accepted(given, now)
        note_answers(self.ledger, accepted, "intended")
        self._append(accepted)
        spent = self._spent(now)  # of two who answer at once, the first one did
        note_answers(self.ledger, accepted, "done" if spent == accepted else "refused")
        return spent

    @property
    def _where(self) -> str:
        return f"{self.question.thread} {self.question.checkpoint}"

    def _append(self, accepted: tuple[Approval, ...]) -> None:
        texts = {"question": self.question.text, "statements": [each.text for each in accepted]}
        # At once: until the anchor has seen it, it could be cut off and spent again.
        self.ledger.note(self.question.thread, self.value | texts, label=SPENT, anchor="now")

    def _accepted(self, given: object, now: datetime) -> tuple[Approval, ...]:
        """Return the approvals that let it through, one of each person, or the one denial."""
        texts = [given] if isinstance(given, str) else given
        if (
            not isinstance(texts, list)
            or not 0 < len(texts) <= MAX_APPROVERS
            or not all(isinstance(text, str) for text in texts)
        ):
            raise ApprovalMalformed(
                "The answer is neither a text that somebody signed, nor a list of such texts.",
                "Show people the question, and answer with what approver.approve(question) gave.",
            )
        found: dict[str, Approval] = {}
        opened = map(self.gate.people.open, dict.fromkeys(texts))
        for each in sorted(opened, key=lambda each: each.verdict == "approved"):  # a no first
            each.check_answers(self.question)
            each.check_time(now, self.gate.policy.lifetime)
            if each.verdict == "denied":
                return (each,)
            found.setdefault(each.approver, each)
        needed = self.gate.policy.needs(Reason.ASKED)
        if needed is None:
            raise ResumeRefused(
                f"{self._where} cannot go on: the policy lets nobody approve what a step asks.",
                "Write Policy({Reason.ASKED: 1}), or let no step ask.",
            )
        if len(found) < needed:
            raise ApprovalNeeded(
                f"{self._where} needs the approval of {needed} people. {len(found)} of them"
                " approved so far.",
                "Show this error's question to the others, and answer with the list of all that"
                " they signed.",
            )
        return tuple(found.values())

    def _spent(self, now: datetime) -> tuple[Approval, ...]:
        """Return what was spent here first, of what counts; () if nothing was.

        Raises:
            ApprovalSpent: the run went on since the question, or that is not of this thread.
        """
        asked, notes, over = self.question.checkpoint, list[Link](), None
        for link in self.ledger.back(self.question.thread):
            if link.sequence <= asked.sequence:
                if Head(link.sequence, link.digest) != asked:
                    break
                check_clock(now, datetime.fromisoformat(link.header.created), self._where)
                if over is not None:
                    raise ApprovalSpent(
                        f"The run went on from {self._where} to #{over.sequence}, so nothing is"
                        " answered there any more.",
                        "See what was done since. If somebody went back on purpose, let them ask"
                        " again: a fork is another question.",
                    )
                for note in reversed(notes):
                    if counting := self._counting(note, now):
                        self._anchor(note)
                        return counting
                return ()
            if link.label == SPENT and link.kind == "note":
                notes.append(link)
            elif over is None and self.is_over(link):
                over = link
        raise ApprovalSpent(
            f"{self._where} is no record of the thread by now.",
            "It was pruned, or the question is of another history. Ask again.",
        )

    def _anchor(self, note: Link) -> None:
        """See to it that the anchor knows a note: who wrote it may have died before."""
        head = self.ledger.anchored(self.question.thread)
        if head is None or head.sequence < note.sequence:
            self.ledger.anchor_now(self.question.thread)

    def _counting(self, note: Link, now: datetime) -> tuple[Approval, ...]:
        """Return what a note spends, if it is about this question and was enough, and in time.

        Whoever has the writer's key can write a note, and any time into it. So what people signed
        must bear it out, and the journal that it was used before it expired. A no stays one.
        """
        state, people = note.state, self.gate.people
        if type(state) is not dict or state.get("question") != self.question.text:
            return ()
        texts: Any = state.get("statements")
        with suppress(ResumeError):
            if isinstance(texts, list) and len(texts) == 1:
                said_no = people.open(texts[0], revoked=True)
                if said_no.verdict == "denied" and said_no.question == self.question:
                    return (said_no,)
            try:
                return self._accepted(texts, now)
            except ApprovalExpired:
                at = noted(self.ledger, tuple(map(people.open, texts)), "done")
                return self._accepted(texts, at) if at else ()
        return ()
