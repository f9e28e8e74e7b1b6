"""What people answered, and what they ordered: whether a run goes on.

`accepted` tells which answers let a run through, `check_held` whether an operator stopped it. Both
look into the place of the answers, if the gate knows one.

A graph or a workflow of somebody else asks in the middle of a step, and the step runs again when
the answer is there. So the answer is spent by a note of its own, sealed and anchored before anybody
is given the arguments. That it was not spent before is known by a walk from the thread's end back
to the record that the question names, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from safepoint.core.errors import (
    ApprovalError,
    ApprovalExpired,
    ApprovalMalformed,
    ApprovalNeeded,
    ApprovalSpent,
    ConfigurationError,
    NotFound,
    ResumeError,
    ResumeRefused,
    ThreadHeld,
    WaitEnded,
    WorkflowError,
    quoted,
)
from safepoint.core.journal import RESUMING, Actor, Outcome, What
from safepoint.core.ledger import Ledger, Link
from safepoint.core.names import Head, digest_of
from safepoint.resume.answers import Order, held
from safepoint.resume.approval import SKEW, Approval, Question, Reason, is_denial
from safepoint.resume.gate import MAX_APPROVERS, Gate

MAX_WAIT: Final = timedelta(days=3660)
MAX_TELL: Final = 4000
SPENT: Final = "spent/"  # no checkpoint of anybody has these labels
ORDERED: Final = "ordered/"
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


def check_wait(within: timedelta | None, tell: Iterable[str]) -> None:
    """Refuse a wait of no time, and one that no question could tell of.

    Raises:
        WorkflowError: it is one.
    """
    told = sum(len(ascii(each)) for each in tell)
    lasts = within is None or timedelta(seconds=1) <= within <= MAX_WAIT
    if not lasts or told > MAX_TELL:
        raise WorkflowError(
            f"A wait of {quoted(within)}, with {told} characters of whom to tell, cannot be used.",
            f"Write within=timedelta(hours=24), from a second to {MAX_WAIT.days} days, and tell a"
            f" few names, of {MAX_TELL} characters at most.",
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


def accepted(
    gate: Gate,
    question: Question,
    given: Iterable[Approval],
    put: Iterable[Approval],
    now: datetime,
    needed: int,
    do: str,
) -> tuple[Approval, ...]:
    """Return the approvals that let a run through, one of each person, or the one denial.

    A no in the place of the answers stays one: it does not expire, and comes before any yes. A yes
    there that does not count is passed over; one that was given here is refused.

    Args:
        gate: who may answer.
        question: what they were asked.
        given: what they signed, as far as somebody brought it here.
        put: what of it is in the place of the answers.
        now: the time.
        needed: how many people its reasons take.
        do: what to do if there are too few.

    Raises:
        ApprovalError: one that was given does not count.
        ApprovalNeeded: there are too few.
        ResumeRefused: nobody may approve it.
    """
    found, passed = dict[str, Approval](), ""
    for each in put:
        if each.verdict == "denied":
            return (each,)
    for each in sorted(given, key=lambda each: each.verdict == "approved"):  # a no first
        each.check_answers(question)
        each.check_time(now, gate.policy.lifetime)
        if each.verdict == "denied":
            return (each,)
        found.setdefault(each.approver, each)
    for each in put:
        try:
            gate.people.open(each.text)  # its key may be revoked
            each.check_time(now, gate.policy.lifetime)
            found.setdefault(each.approver, each)
        except ApprovalError as error:
            passed = f" {error.what}"
    lacks = gate.lacks(question, found, needed)
    if lacks:
        have = f" So far approved by {', '.join(found)}." if found else passed
        details = "".join(f" {each}" for each in question.details)
        raise ApprovalNeeded(
            f"{question.thread} {question.checkpoint} needs the approval of {lacks}."
            f"{details}{have}",
            do,
            question,
        )
    return tuple(found.values())


def answers(gate: Gate, question: Question) -> list[Approval]:
    """Return what people put where their answers are, none if the gate knows no such place.

    Raises:
        AnswersError: the place cannot vouch for what is there.
    """
    return [] if gate.answers is None else gate.answers.about(question, gate.people)


def contradicted(gate: Gate, question: Question) -> Approval | None:
    """Return the first no to a question in the place of the answers."""
    return next((each for each in answers(gate, question) if each.verdict == "denied"), None)


def note_late(ledger: Ledger, denial: Approval) -> None:
    """Write down, once, that a no came after what it answers had been used."""
    thread, tenant = denial.question.thread, ledger.tenant_name
    for entry in ledger.journal.show(thread=thread, tenant=tenant) if ledger.journal else ():
        if (entry.what, entry.outcome, entry.detail) == ("deny", "refused", said(denial)):
            return
    note_answers(ledger, (denial,), "refused")


def check_held(
    gate: Gate, ledger: Ledger, thread: str, value: Mapping[str, Any] | None = None
) -> None:
    """Refuse to go on with a thread that an operator holds.

    What they ordered is copied into the thread, as a note, and written down, once. So whoever reads
    the thread sees why it stood still.

    Args:
        gate: who may hold it, and where their orders are.
        ledger: where the thread is.
        thread: the thread.
        value: what else the note says, so that an adapter knows it for its own.

    Raises:
        ThreadHeld: it is held.
        AnswersError: the place of the orders cannot vouch for what is there.
    """
    if gate.answers is None or not gate.operators.keys:
        return
    tenant, operators = ledger.tenant_name, gate.operators
    orders = gate.answers.orders(ledger.store, thread, operators, tenant=tenant)
    holding = held(orders, operators)
    with suppress(NotFound):  # what was never begun is held all the same
        _copy_new(ledger, thread, orders, holding, value or {})
    for each in holding[:1]:
        whose = f" --tenant {tenant}" if tenant else ""
        raise ThreadHeld(
            f"{each.by} has held {thread} since {each.at:%Y-%m-%d %H:%M} UTC"
            f"{f': {each.why!a}' if each.why else ''}.",
            f"No step runs. An operator ends it: safepoint release {ledger.store} {thread}{whose}"
            f" --digest {each.hold}, or answers.release in code.",
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
    ledger.notes.write(order.what, "intended", thread, detail=str(order), actor=who)
    ledger.note(thread, {**value, "order": order.text}, label=ORDERED)
    ledger.notes.write(order.what, "done", thread, detail=str(order), actor=who)


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
            given: the text that one person signed, or a list of such texts; or None, to look into
                the place of the answers.

        Raises:
            ApprovalError: one of them does not count, or the run has gone on since.
            ApprovalNeeded: there are too few.
            ResumeRefused: somebody said no, or the wait has ended.
            ThreadHeld: an operator holds the thread.
        """
        return self.approved(self.spend(given))

    def approved(self, spent: tuple[Approval, ...]) -> Approved:
        """Return what they approved.

        Raises:
            ResumeRefused: somebody said no, or the wait has ended.
        """
        if not spent:
            raise WaitEnded(
                f"The wait for {self.question.action} at {self._where} ended at"
                f" {self.question.until}, and nobody had approved it.",
                "That is final for this question. Catch this error where the run goes on without"
                " it.",
            )
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
        check_held(self.gate, self.ledger, self.question.thread, self.value)
        spent = self._spent(now)
        if spent is None:
            # What is not in time is no answer, whatever was signed.
            left = self.question.left(now)
            put = answers(self.gate, self.question)
            no = any(each.verdict == "denied" for each in put)
            ended = left is not None and left <= timedelta(0) and not no
            enough = () if ended else self._accepted(given, put, now)
            note_answers(self.ledger, enough, "intended")
            if ended:
                self._note("expire", "intended")
            self._append(enough)
            spent = self._spent(now) or ()  # of two who answer at once, the first one did
            if enough and (spent != enough or enough[0].verdict == "denied"):
                note_answers(self.ledger, enough, "done" if spent == enough else "refused")
            if ended:
                self._note("expire", "refused" if spent else "done")
        if not spent or spent[0].verdict == "denied":
            return spent
        denial = contradicted(self.gate, self.question)
        if noted(self.ledger, spent, "done") is None:
            # Nobody was given it yet: whoever wrote the note may have died before the journal was
            # told that it is used. So a no that came since is in time.
            if denial is not None:
                self._append((denial,), {"instead": True})
                note_answers(self.ledger, (denial,), "done")
                return (denial,)
            note_answers(self.ledger, spent, "done")
            # Told too late, it is not used: another worker may have ended the wait meanwhile.
            used = self._spent(datetime.now(UTC))
            if used is None:
                raise ApprovalExpired(
                    f"{self._where} goes on too late: what people approved expired before the"
                    " journal was told that it is used.",
                    "Nothing was done. Ask them again, if the question still waits.",
                )
            return used
        if denial is not None:
            note_late(self.ledger, denial)
        return spent

    @property
    def _where(self) -> str:
        return f"{self.question.thread} {self.question.checkpoint}"

    def _append(self, enough: tuple[Approval, ...], more: dict[str, Any] | None = None) -> None:
        texts = {"question": self.question.text, "statements": [each.text for each in enough]}
        said = self.value | texts | (more or {})
        self.ledger.note(self.question.thread, said, label=SPENT)

    def _note(self, what: What, outcome: Outcome) -> None:
        asked = self.question
        self.ledger.notes.write(what, outcome, asked.thread, asked.checkpoint, asked.action)

    def _accepted(self, given: object, put: list[Approval], now: datetime) -> tuple[Approval, ...]:
        """Return the approvals that let it through, one of each person, or the one denial."""
        texts = [given] if given and isinstance(given, str) else given
        if self.gate.answers is not None and not texts:
            texts = []  # they are all where the answers are
        elif (
            not isinstance(texts, list)
            or not 0 < len(texts) <= MAX_APPROVERS
            or not all(isinstance(text, str) for text in texts)
        ):
            raise ApprovalMalformed(
                "The answer is neither a text that somebody signed, nor a list of such texts.",
                "Show people the question, and answer with what approver.approve(question) gave.",
            )
        needed = self.gate.policy.needs(Reason.ASKED)
        opened = [self.gate.people.open(text) for text in dict.fromkeys(texts)]
        if needed is None:
            raise ResumeRefused(
                f"{self._where} cannot go on: the policy lets nobody approve what a step asks.",
                "Write Policy({Reason.ASKED: 1}), or let no step ask.",
            )
        do = (
            "Show this error's question to the others, and answer with the list of all that they"
            " signed."
            if self.gate.answers is None
            else PUT
        )
        return accepted(self.gate, self.question, opened, put, now, needed, do)

    def _spent(self, now: datetime) -> tuple[Approval, ...] | None:
        """Return what was spent here first, of what counts; None if nothing was.

        It is () if the wait ended before. A no that followed before anybody was given the yes comes
        before that.

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
                found = None
                for note in reversed(notes):
                    counting = self._counting(note, now)
                    if counting is None or (found is not None and not self._undoes(note, found)):
                        continue
                    self._anchor(note)
                    found = counting
                return found
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
            self.ledger.verify(self.question.thread, anchor=True)

    def _undoes(self, note: Link, found: tuple[Approval, ...]) -> bool:
        """Tell whether a note is the no that came before anybody was given this yes."""
        no = note.state.get("instead") is True and is_denial(note.state["statements"][0])
        yes = bool(found) and found[0].verdict == "approved"
        return no and yes and noted(self.ledger, found, "done") is None

    def _counting(self, note: Link, now: datetime) -> tuple[Approval, ...] | None:
        """Return what a note spends, if it is about this question and was enough, and in time.

        Whoever has the writer's key can write a note, and any time into it. So what people signed
        must bear it out, and the journal that it was used before it expired. A no stays one.
        """
        state, people = note.state, self.gate.people
        if type(state) is not dict or state.get("question") != self.question.text:
            return None
        texts: Any = state.get("statements")
        if texts == [] and self.question.until and "instead" not in state:
            return ()  # whoever wrote it too early wrote a no
        with suppress(ResumeError):
            if isinstance(texts, list) and len(texts) == 1:
                said_no = people.open(texts[0], revoked=True)
                if said_no.verdict == "denied" and said_no.question == self.question:
                    return (said_no,)
            try:
                return self._accepted(texts, [], now)
            except ApprovalExpired:
                at = noted(self.ledger, tuple(map(people.open, texts)), "done")
                return self._accepted(texts, [], at) if at else None
        return None
