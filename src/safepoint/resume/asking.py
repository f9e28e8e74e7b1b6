"""What people answered, and what they ordered: whether a run goes on.

`Asking` spends answers, `check_held` tells whether an operator stopped the run. Both look into the
place of the answers, if the gate knows one.

Our own workflow, a graph of LangGraph and a workflow of Agent Framework spend an answer in one way:
by a note of its own, sealed and anchored before anybody is given the arguments. It is appended to
the very end of the thread that was looked at, so of several workers one is first, and the first
note that counts is the answer for good. A walk from the end back to the record that asks finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from safepoint.core.errors import (
    ApprovalNeeded,
    ApprovalRefused,
    ConfigurationError,
    Conflict,
    NotFound,
    NotOwner,
    ResumeRefused,
    quoted,
)
from safepoint.core.journal import RESUMING, Actor, Outcome, What
from safepoint.core.ledger import Ledger, Link
from safepoint.core.names import Head, digest_of
from safepoint.resume.answers import Order, in_force
from safepoint.resume.approval import SKEW, Approval, Question, Reason
from safepoint.resume.gate import MAX_APPROVERS, Gate

MAX_WAIT: Final = timedelta(days=3660)
_REFUSED: Final = (ResumeRefused, ApprovalNeeded, ApprovalRefused)
SPENT: Final = "spent/"  # no checkpoint of anybody has these labels
ORDERED: Final = "ordered/"
TRIES: Final = 1000  # of a note that others come before
_ANSWER: Final = (
    "Show this error's question to the others, and answer with the list of all that they signed."
)
PUT: Final = (
    "Show them this error's question, let them sign it (safepoint approve, or answers.put), and"
    " resume again."
)


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
            "Write Ledger(..., anchor=SQLiteAnchor(path)), or take open_ledger, which has one.",
        )
    if any(ledger.keys) and ledger.journal is None:
        raise ConfigurationError(
            f"{why} only where that is written down, and the ledger has no journal.",
            "Write Ledger(..., journal=SQLiteJournal(path, keys=...)).",
        )


def check_wait(within: timedelta | None) -> None:
    """Refuse a wait of no time, and one that no calendar could tell of.

    Raises:
        ConfigurationError: it is one.
    """
    if within is not None and not timedelta(seconds=1) <= within <= MAX_WAIT:
        raise ConfigurationError(
            f"A wait of {quoted(within)} cannot be used.",
            f"Write within=timedelta(hours=24), from a second to {MAX_WAIT.days} days.",
        )


def check_clock(now: datetime, created: datetime, where: object) -> None:
    """Refuse to tell what has expired by a clock that is behind a record.

    Raises:
        ApprovalRefused: it is.
    """
    if now < created - SKEW:
        raise ApprovalRefused(
            f"It is {now:%Y-%m-%d %H:%M} by this worker's clock, and {where} was written"
            f" {created:%Y-%m-%d %H:%M}.",
            "So what has expired cannot be told. Set the clock that is wrong. If it is the one"
            f" that wrote {where}, find out who did, and let the run save anew before you ask"
            " again.",
        )


def check_held(
    gate: Gate, ledger: Ledger, thread: str, value: Mapping[str, Any] | None = None
) -> None:
    """Refuse to go on with a thread that an operator holds.

    A hold that stops the thread, and the release of such a one, is copied into it as a note, and
    written down. So whoever reads the thread sees why it stood still.

    Args:
        gate: who may hold it, and where their orders are.
        ledger: where the thread is.
        thread: the thread.
        value: what else the note says, so that an adapter knows it for its own.

    Raises:
        NotOwner: it is held.
        SealBroken: the place of the orders cannot vouch for what is there.
    """
    if gate.answers is None or not gate.operators.keys:
        return
    tenant, operators = ledger.tenant_name, gate.operators
    orders = gate.answers.orders(ledger.store, thread, operators, tenant=tenant)
    holding = in_force(orders, operators)
    with suppress(NotFound):  # what was never begun is held all the same
        _copy_new(ledger, thread, orders, holding, value or {})
    for each in holding[:1]:
        whose = f" --tenant {tenant}" if tenant else ""
        raise NotOwner(
            f"{each.by} has held {thread} since {each.at:%Y-%m-%d %H:%M} UTC"
            f"{f': {each.why!a}' if each.why else ''}.",
            f"No step runs. An operator ends it: safepoint release {ledger.store} {thread}{whose}"
            f" --digest {each.hold}, or answers.release in code.",
            "held",
        )


def _copy_new(
    ledger: Ledger,
    thread: str,
    orders: list[Order],
    holding: list[Order],
    value: Mapping[str, Any],
) -> None:
    """Copy each hold that stops the thread, and each release of one that did."""
    if not orders:
        return
    known = set[str]()
    for link in ledger.back(thread):
        if link.kind != "note":
            break
        if link.label == ORDERED and type(link.state) is dict:
            # Whoever has the writer's key can write anything there. It stops and frees nothing.
            known.add(str(link.state.get("order")))
    stopped = {each.hold for each in orders if each.text in known}
    ended = stopped - {each.hold for each in holding}
    for each in orders:
        ends = each.what == "release" and each.hold in ended
        if each.text not in known and (ends or each in holding):
            _copy(ledger, thread, each, value)


def _copy(ledger: Ledger, thread: str, order: Order, value: Mapping[str, Any]) -> None:
    who = Actor(order.by, f"signature of key {order.key}")
    ledger.log.write(order.what, "intended", thread, detail=str(order), actor=who)
    ledger.note(thread, {**value, "order": order.text}, label=ORDERED)
    ledger.log.write(order.what, "done", thread, detail=str(order), actor=who)


def log_answers(ledger: Ledger, answers: Iterable[Approval], outcome: Outcome) -> None:
    """Write down who approved or denied it."""
    for each in answers:
        what: What = "deny" if each.verdict == "denied" else "approve"
        who, asked = Actor(each.approver, f"signature of key {each.key}"), each.question
        detail = f"{asked.action} nonce {each.nonce}".lstrip()
        ledger.log.write(what, outcome, asked.thread, asked.checkpoint, detail, actor=who)


def anchor_end(ledger: Ledger, thread: str) -> None:
    """See to it that the anchor knows the end of a thread: who wrote it may have died before."""
    anchored = ledger.anchored(thread)
    if ledger.anchor is not None and anchored != next(ledger.back(thread)).opened.head:
        ledger.verify(thread, anchor=True)


class Asking(NamedTuple):
    """A question that stands in a thread, and how it is answered once.

    Attributes:
        ledger: where the thread is.
        gate: who may answer, and how many have to.
        question: what they are asked.
        is_over: tells of a record after the question's whether the run went on, so that nothing is
            answered there any more.
        value: what else the note says, so that an adapter knows it for its own.
        do: what to do if there are too few answers.
        once: refuse answers that are brought where it is answered already. A graph runs a node
            again with the same answer; a worker that resumes a workflow with one expects to be the
            first.
    """

    ledger: Ledger
    gate: Gate
    question: Question
    is_over: Callable[[Link], bool]
    value: dict[str, Any]
    do: str = ""
    once: bool = False

    @property
    def key(self) -> str:
        """The digest of the question."""
        return digest_of(self.question.text.encode())

    @property
    def _where(self) -> str:
        return f"{self.question.thread} {self.question.checkpoint}"

    def answered(self, given: object) -> Approved:
        """Spend what people signed, and return what they approved.

        Whoever runs it again, after a crash, is given what was spent then.

        Args:
            given: the text that one person signed, or a list of such texts; or None, to look into
                the place of the answers.

        Raises:
            ApprovalRefused: one of them does not count, or the run has gone on since.
            ApprovalNeeded: there are too few.
            ResumeRefused: somebody said no, or the wait has ended.
            NotOwner: an operator holds the thread.
        """
        return self.approved(self.spend(given))

    def approved(self, spent: tuple[Approval, ...]) -> Approved:
        """Return what they approved.

        Raises:
            ResumeRefused: somebody said no, or the wait has ended.
        """
        final = (
            "That is final for this question. Catch this error where the run goes on without it."
        )
        if not spent:
            raise ResumeRefused(
                f"The wait for {self.question.action} at {self._where} ended at"
                f" {self.question.until}, and nobody had approved it.",
                final,
                "ended",
            )
        if spent[0].verdict == "denied":
            asked = self.question.action or "to go on"
            raise ResumeRefused(f"{spent[0].approver} denied it: {asked} at {self._where}.", final)
        return approved(spent, self.key)

    def spend(
        self, given: object, now: datetime | None = None, *, ends: bool = False
    ) -> tuple[Approval, ...]:
        """Spend what people signed, unless that was done, and return what counts.

        That is enough approvals, or one denial. It is nothing if the wait has ended, or if nobody
        has to approve it. It raises what `answered` raises, but for a no.

        Args:
            given: as in `answered`.
            now: the time, if not that of the clock.
            ends: refuse if it is answered already: whoever ends a wait leaves the run to those who
                ended it first.
        """
        thread, at = self.question.thread, self.question.checkpoint
        watching = self.ledger.log.watching("resume", thread, at, quiet=RESUMING)
        with nullcontext() if self.once else watching:
            try:
                return self._spend(given, now or datetime.now(UTC), ends=ends)
            except _REFUSED as error:
                error.question = self.question
                raise

    def spent(self, now: datetime | None = None) -> tuple[Approval, ...] | None:
        """Return what was spent here, None if nothing was: it is still asked."""
        return self._look(now or datetime.now(UTC))[1]

    def _spend(self, given: object, now: datetime, *, ends: bool) -> tuple[Approval, ...]:
        """Return what was spent first: by others before, or now, right after what was looked at."""
        thread, ours = self.question.thread, tuple[Approval, ...]()
        for left in range(TRIES, -1, -1):
            self.ledger.owners.keep(thread)
            check_held(self.gate, self.ledger, thread, self.value)
            end, spent = self._look(now)
            if spent is not None:
                if ours and spent != ours:
                    log_answers(self.ledger, ours, "refused")
                if ends or (self.once and (ours or (spent and given))):
                    raise self._too_late(spent, ours)
                anchor_end(self.ledger, thread)
                return spent
            ours = self._decided(given, now)
            asks = Reason.ASKED in self.question.reasons or bool(ours)
            check_journal(self.ledger, f"{self._where} can be resumed", anchor=asks)
            log_answers(self.ledger, ours, "intended")
            if not ours and self.question.until:
                at, action = self.question.checkpoint, self.question.action
                self.ledger.log.write("expire", "intended", thread, at, action)
            try:
                self._append(ours, end)
                break
            except Conflict:  # others were faster, and what they wrote may be an answer
                if not left:
                    raise
        if self._look(now)[1] is None:
            raise ApprovalRefused(
                f"{self._where} goes on too late: what people approved expired before the"
                " journal was told that it is spent.",
                "Nothing was done. Ask them again, if the question still waits.",
            )
        return ours

    def _too_late(self, spent: tuple[Approval, ...], ours: tuple[Approval, ...]) -> ApprovalRefused:
        if ours:
            return ApprovalRefused(
                f"Another worker resumed {self.question.thread} first, so this approval is spent.",
                "Let that worker go on. If it died, resume without approvals.",
                "used",
            )
        how = "the wait has ended"
        if spent:
            how = f"{spent[0].verdict} by {', '.join(each.approver for each in spent)}"
        return ApprovalRefused(
            f"What {self._where} asks is answered already: {how}.",
            "An approval counts once. If that run was interrupted, resume it without approvals.",
            "used",
        )

    def _append(self, answers: tuple[Approval, ...], end: Head) -> None:
        texts = {"question": self.question.text, "statements": [each.text for each in answers]}
        self.ledger.note(self.question.thread, self.value | texts, label=SPENT, after=end)

    def _decided(self, given: object, now: datetime) -> tuple[Approval, ...]:
        """Return what lets the run go on, or the one denial; nothing if the wait has ended.

        A no in the place of the answers stays one: it does not expire, and comes before any yes,
        and before the end of the wait. What is not in time is no answer, whatever was signed.
        """
        put, left = self._put(), self.question.left(now)
        for each in put:
            if each.verdict == "denied":
                return (each,)
        if left is not None and left <= timedelta(0):
            return ()
        return self._enough(given, put, now)

    def _enough(self, given: object, put: list[Approval], now: datetime) -> tuple[Approval, ...]:
        """Return the approvals that let it through, one of each person, or a denial among them.

        A yes that was put and does not count is passed over; one that was given is refused.
        """
        gate, question = self.gate, self.question
        needed = gate.policy.needs(*map(Reason, question.reasons))
        opened = [gate.people.open(text) for text in self._texts(given)]
        if needed is None:
            raise ResumeRefused(
                f"{self._where} cannot go on: the policy lets nobody approve what a step asks.",
                "Write Policy({Reason.ASKED: 1}), or let no step ask.",
            )
        found, passed = dict[str, Approval](), ""
        for each in sorted(opened, key=lambda each: each.verdict == "approved"):  # a no first
            each.check_answers(question)
            each.check_time(now, gate.policy.lifetime)
            if each.verdict == "denied":
                return (each,)
            found.setdefault(each.approver, each)
        for each in put:
            try:
                each.check_time(now, gate.policy.lifetime)
                found.setdefault(each.approver, each)
            except ApprovalRefused as error:
                passed = f" {error.what}"
        if lacks := gate.lacks(question, found, needed):
            have = f" So far approved by {', '.join(found)}." if found else passed
            details = "".join(f" {each}" for each in question.details)
            raise ApprovalNeeded(
                f"{self._where} needs the approval of {lacks}.{details}{have}",
                self.do or (_ANSWER if gate.answers is None else PUT),
                question,
            )
        return tuple(found.values())[:MAX_APPROVERS]  # as many as a note is read with

    def _texts(self, given: object) -> list[str]:
        """Return each text once that somebody brought, or that a note holds."""
        texts = [given] if given and isinstance(given, str) else given
        if not texts and (self.once or self.gate.answers is not None):
            return []  # nobody answered yet, or it is all where the answers are
        if (
            not isinstance(texts, list)
            or not 0 < len(texts) <= MAX_APPROVERS
            or not all(isinstance(text, str) for text in texts)
        ):
            raise ApprovalRefused(
                "The answer is neither a text that somebody signed, nor a list of such texts.",
                "Show people the question, and answer with what approver.approve(question) gave.",
                "form",
            )
        return list(dict.fromkeys(texts))

    def _look(self, now: datetime) -> tuple[Head, tuple[Approval, ...] | None]:
        """Return the end of the thread, and what was spent here first, of what counts.

        That is None if nothing was, and () if the wait ended before.

        Raises:
            ApprovalRefused: the run went on since the question, or that is not of this thread.
        """
        asked, notes, over, end = self.question.head, list[Link](), None, None
        for link in self.ledger.back(self.question.thread):
            end = end or link.opened.head
            if link.sequence <= asked.sequence:
                if link.opened.head != asked:
                    break
                check_clock(now, datetime.fromisoformat(link.header.created), self._where)
                if over is not None:
                    raise ApprovalRefused(
                        f"The run went on from {self._where} to #{over.sequence}, so nothing is"
                        " answered there any more.",
                        "See what was done since. If somebody went back on purpose, let them ask"
                        " again: a fork is another question.",
                        "used",
                    )
                return end, self._find_spent(notes[::-1], now)
            if link.label == SPENT and link.kind == "note":
                notes.append(link)
            elif over is None and self.is_over(link):
                over = link
        raise ApprovalRefused(
            f"{self._where} is no record of the thread by now.",
            "It was pruned, or the question is of another history. Ask again.",
            "used",
        )

    def _find_spent(self, notes: list[Link], now: datetime) -> tuple[Approval, ...] | None:
        """Return what was spent here, None if nothing that counts.

        A note that the anchor has not seen has released nothing, and an attacker who can write the
        storage may have held it back. So it counts only if it would count now. A worker appends a
        note only if none before it counts, so a later one about this question replaces it.
        """
        told, found = self._journalled() if notes else {}, None
        anchored = self.ledger.anchored(self.question.thread)
        for note in notes:
            when, is_seen = told.get(note.digest), anchored and note.sequence <= anchored.sequence
            spent = self._counting(note, when if is_seen or when is None else now)
            is_new_yes = not is_seen and spent and spent[0].verdict == "approved"
            if spent is None or (is_new_yes and any(e.verdict == "denied" for e in self._put())):
                continue
            if found is None or (when and note.state.get("question") == self.question.text):
                found = spent
        return found

    def _put(self) -> list[Approval]:
        """Return what people put in the place of the answers."""
        answers = self.gate.answers
        return [] if answers is None else answers.about(self.question, self.gate.people)

    def _journalled(self) -> dict[str | None, datetime]:
        """Return when the journal was told of each record after the question, by its digest."""
        found: dict[str | None, datetime] = {}
        asked, journal = self.question, self.ledger.journal
        for entry in journal.back(asked.thread) if journal else ():
            if (entry.what, entry.digest) == ("save", asked.head.digest):
                break
            if (entry.what, entry.outcome) == ("save", "intended"):
                found[entry.digest] = entry.at
        return found

    def _counting(self, note: Link, told: datetime | None) -> tuple[Approval, ...] | None:
        """Return what a note spends, if it is about this question and was enough, and in time.

        Whoever has the writer's key can write a note, and any time into it. So what people signed
        must bear it out, and the journal, which was told of this very record before it was kept. A
        no stays one, also if another version of the workflow asked for the same; and if its key was
        revoked since.
        """
        people, asked = self.gate.people, self.question
        with suppress(*_REFUSED, AttributeError):
            texts: Any = note.state.get("statements")
            if isinstance(texts, list) and len(texts) == 1:
                no = people.open(texts[0], revoked=told is not None)
                if no.verdict == "denied" and no.question.subject == asked.subject:
                    return (no,)
            if told is None or note.state.get("question") != asked.text:
                return None
            return () if texts == [] and asked.until else self._enough(texts, [], told)
        return None
