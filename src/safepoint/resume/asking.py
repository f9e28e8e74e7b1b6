"""Spends the answers of people, and stops runs that an operator holds.

A workflow, a LangGraph graph and an Agent Framework workflow spend an answer in the same way:

1. A worker writes to the journal that it intends to, appends a note with the signed answer to the
   end of the thread, and anchors it. If another worker was faster, it looks again.
2. It writes to the journal that the answer is used: `approve done`, `deny done` or `expire done`,
   with the digest of the note, and anchors that. The first such entry decides which note is the
   answer.
3. It hands out the signed arguments.

An approval in a note that was never used counts only if it would count now, and a denial comes
before it: one in a note does not expire. So it does not matter who held a note back, or who moved
the anchor over it, unless they have the journal's key as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from safepoint.core.chain import TRIES
from safepoint.core.errors import (
    ApprovalNeeded,
    ApprovalRefused,
    ConfigurationError,
    Conflict,
    DecodeError,
    NotOwner,
    ResumeRefused,
    quoted,
)
from safepoint.core.journal import Actor, Entry, EventOutcome, What
from safepoint.core.ledger import RESUMING, Ledger, Link
from safepoint.core.names import Head, digest_of, with_tenant
from safepoint.resume.answers import in_force
from safepoint.resume.approval import Answer, Question, Reason
from safepoint.resume.gate import MAX_APPROVERS, Gate

MAX_WAIT: Final = timedelta(days=3660)
_REFUSED: Final = (ResumeRefused, ApprovalNeeded, ApprovalRefused)
SPENT: Final = "spent/"  # no checkpoint of anybody has this label
NOBODY: Final = (
    'Say who may approve: gate=Gate(approvers=Approvers({"dana": key})). With from_settings:'
    " safepoint people STORE --add PERSON FILE, and start again."
)
SHOW: Final = "Show them this error's question, and resume with every signed answer."
_PUT: Final = (
    "Show them this error's question. Resume again once they have signed it: safepoint approve,"
    " or answers.put."
)


class Approved(NamedTuple):
    """An approved action, read from the statements that people signed.

    Attributes:
        action: the action.
        arguments: its exact arguments.
        by: the names of the people who approved it.
        key: an idempotency key, in a framework's node: the digest of what is asked. It is the same
            if the node runs again, also in another version of the app. Pass it to the service that
            acts, which should ignore a key that it has seen. It is "" in a step of a `Workflow`:
            see `Call.key`.
    """

    action: str
    arguments: dict[str, Any]
    by: tuple[str, ...]
    key: str = ""

    @classmethod
    def of(cls, answers: tuple[Answer, ...], key: str = "") -> Approved:
        """Return what these approvals of one question allow."""
        question, people = answers[0].question, dict.fromkeys(each.approver for each in answers)
        return cls(question.action, question.arguments, tuple(people), key)

    def __repr__(self) -> str:
        return f"Approved({self.action!r}, by={self.by!r})"


class _Spent(NamedTuple):
    """An answer in a note. It counts as used once the journal says so.

    Attributes:
        note: the note with it.
        answers: the answers in it: enough approvals, or one denial, or none.
        used: the journal's first entry that it was used, or None.
    """

    note: Link
    answers: tuple[Answer, ...]
    used: Entry | None

    def rank(self) -> tuple[int, int]:
        """Return its place among others: the first that was used, a denial, the first note."""
        if self.used:
            return 0, self.used.number
        return 1 if _is_denied(self.answers) else 2, self.note.sequence


def read_note(value: object) -> tuple[str, list[str]]:
    """Return what a note about an answer says: the question's text, and what people signed.

    Nobody signed it if the wait ended, or if nobody had to approve.

    Raises:
        DecodeError: it is not what a worker writes.
    """
    match value:
        case {"question": str(question), "statements": list(texts)}:
            if all(isinstance(text, str) for text in texts):
                return question, texts
    raise DecodeError("A note about an answer cannot be read.", "Find out who wrote it.")


def _is_denied(answers: Iterable[Answer]) -> bool:
    return any(each.verdict == "denied" for each in answers)


def require_journal(ledger: Ledger, why: str, *, anchor: bool = False) -> None:
    """Refuse a ledger without a journal.

    Args:
        ledger: the ledger of the thread.
        why: the refused action, as the beginning of a sentence.
        anchor: also refuse a ledger without an anchor: an older copy of the store does not have
            the later notes about spent answers.

    Raises:
        ConfigurationError: it has none.
    """
    if anchor and ledger.anchor is None:
        raise ConfigurationError(
            f"{why} only where an anchor sees what they answered, but the ledger has none.",
            "Write Ledger(..., anchor=SQLiteAnchor(path)), or take open_ledger, which has one.",
        )
    journal = ledger.anchored_journal if anchor else ledger.journal
    if any(ledger.keys) and journal is None:
        raise ConfigurationError(
            f"{why} only where that is written down, but the ledger has no journal.",
            "Write Ledger(..., journal=SQLiteJournal(path, keys=...)).",
        )


def check_askable(gate: Gate, ledger: Ledger, who: str) -> None:
    """Refuse to ask people whose answer could not be used.

    Raises:
        ConfigurationError: nobody may approve, or the ledger has no journal or no anchor.
        Unsafe: an approver has the writer's key.
    """
    if not gate.approvers:
        raise ConfigurationError(f"{who} asks people, and the gate has no approvers.", NOBODY)
    gate.check_apart(ledger.keys)
    require_journal(ledger, f"{who} can ask people", anchor=True)


def check_wait(within: timedelta | None) -> None:
    """Refuse a wait that is too short or too long.

    Raises:
        ConfigurationError: it is.
    """
    if within is not None and not timedelta(seconds=1) <= within <= MAX_WAIT:
        raise ConfigurationError(
            f"A wait of {quoted(within)} cannot be used.",
            f"Write within=timedelta(hours=24), from a second to {MAX_WAIT.days} days.",
        )


def check_held(gate: Gate, ledger: Ledger, thread: str) -> None:
    """Refuse to continue a thread that an operator holds, and write that to the journal.

    Raises:
        NotOwner: it is held.
        SealBroken: the place of the orders does not verify.
    """
    if gate.answers is None or not gate.operators.keys:
        return
    store, tenant, operators = ledger.store, ledger.tenant_name, gate.operators
    for each in in_force(gate.answers.orders(store, thread, operators, tenant=tenant), operators):
        who = Actor(each.by, f"signature of key {each.key}")
        ledger.log.write("hold", "done", thread, detail=str(each), actor=who)
        raise NotOwner(
            f"{each.by} has held {thread} since {each.at:%Y-%m-%d %H:%M} UTC"
            f"{f': {each.why!a}' if each.why else ''}.",
            f"No step runs. An operator ends it: safepoint release {store}"
            f" {with_tenant(tenant, thread)} --key KEY --digest {each.hold}, or answers.release.",
            "held",
        )


def anchor_end(ledger: Ledger, thread: str) -> None:
    """Move the anchor to the end of a thread, if its writer died before that."""
    anchored = ledger.anchored(thread)
    if ledger.anchor is not None and anchored != next(ledger.back(thread)).opened.head:
        ledger.verify(thread, anchor=True)


class Asking(NamedTuple):
    """A question in a thread, and how its answer is spent.

    Attributes:
        ledger: the ledger of the thread.
        gate: who may answer, and how many people must approve.
        question: the question.
        is_over: tells for a record after the question whether the run has continued. Then the
            question can no longer be answered. By default, any state does.
        tag: fields by which an adapter recognizes its notes.
        refuses_repeats: refuse answers to a question that is already answered. A graph runs a node
            again with the same answer; a worker that resumes a workflow with one expects to be the
            first.
    """

    ledger: Ledger
    gate: Gate
    question: Question
    is_over: Callable[[Link], bool] = lambda link: link.kind == "state"
    tag: dict[str, Any] = {}  # noqa: RUF012  nothing writes it
    refuses_repeats: bool = False

    @property
    def _where(self) -> str:
        return f"{self.question.thread} {self.question.checkpoint}"

    def use(self, signed: object) -> Approved:
        """Spend what people signed, and return what they approved.

        If it was spent before, by a worker that died, this returns the same.

        Args:
            signed: the text that one person signed, or a list of such texts; or None to look only
                in the place of the answers.

        Raises:
            ApprovalRefused: one of them does not count, or the run has continued since.
            ApprovalNeeded: there are too few.
            ResumeRefused: somebody denied it, or the wait has ended.
            NotOwner: an operator holds the thread.
        """
        return self.check_approved(self.spend(signed))

    def check_approved(self, answers: tuple[Answer, ...]) -> Approved:
        """Return what people approved.

        Raises:
            ResumeRefused: somebody denied it, or the wait has ended.
        """
        final = (
            "That is final for this question. Catch this error where the run continues without it."
        )
        if not answers:
            raise ResumeRefused(
                f"The wait for {self.question.action} at {self._where} ended at"
                f" {self.question.until}, and nobody had approved it.",
                final,
                "ended",
            )
        if _is_denied(answers):
            asked = self.question.action or "to continue"
            by, stored = answers[0].approver, self._read_stored()
            denied = ResumeRefused(f"{by} denied it: {asked} at {self._where}.", final)
            denied.by, denied.reason = by, next((no.why for no in stored if no == answers[0]), "")
            raise denied
        return Approved.of(answers, digest_of(self.question.subject.encode()))

    def spend(self, signed: object, now: datetime | None = None) -> tuple[Answer, ...]:
        """Spend what people signed, unless the question is answered, and return the answers.

        These are enough approvals, or one denial; or none, if the wait ended or nobody had to
        approve. It raises the same errors as `use`, but returns a denial.

        Args:
            signed: as in `use`.
            now: the time, instead of the clock's.
        """
        thread, at = self.question.thread, self.question.checkpoint
        watching = self.ledger.log.watching("resume", thread, at, quiet=RESUMING)
        with nullcontext() if self.refuses_repeats else watching:
            try:
                return self._spend(signed, now or datetime.now(UTC))
            except _REFUSED as error:
                error.question = self.question
                raise

    def check_answered(self) -> None:
        """Refuse if `use("")` would, because no answer is there. It writes nothing."""
        now = datetime.now(UTC)
        if self._find_end(now)[1] is None:
            self._decide("", now)

    def has_answer(self) -> bool:
        """Tell whether `use("")` would find an answer, a denial included. It writes nothing."""
        try:
            self.check_answered()
        except _REFUSED:
            return False
        return True

    def find_answer(self) -> tuple[Answer, ...] | None:
        """Return the answer that a note has, used or not, or None if the question is open."""
        spent = self._find_end(datetime.now(UTC))[1]
        return spent.answers if spent and (spent.used or spent.answers) else None

    def verdict_in(self, notes: list[Link]) -> Literal["approved", "denied", "ended", ""]:
        """Return how one of these notes, newest first, answers the question; "" if none does.

        Only a journal knows that an answer was used before it expired, or a denial before its key
        was revoked.
        """
        spent = self._find_spent(notes[::-1], datetime.now(UTC))
        if spent is None:
            return ""
        return spent.answers[0].verdict if spent.answers else "ended"

    def _spend(self, signed: object, now: datetime) -> tuple[Answer, ...]:
        """Append a note with the answer, or find one, and tell the journal before it is used."""
        thread, ours, mine = self.question.thread, tuple[Answer, ...](), ""
        for tried in range(1, TRIES + 1):
            self.ledger.owners.keep(thread)
            check_held(self.gate, self.ledger, thread)
            end, spent = self._find_end(now)
            if spent is not None and not self._is_overruled(spent, signed, now):
                break
            ours = self._decide(signed, now)
            asks = Reason.ASKED in self.question.reasons or bool(ours)
            require_journal(self.ledger, f"{self._where} can be resumed", anchor=asks)
            self._log(ours, "intended", self.question.checkpoint)
            texts = {"question": self.question.text, "statements": [each.text for each in ours]}
            try:
                mine = self.ledger.note(thread, self.tag | texts, label=SPENT, after=end).digest
                spent = self._find_end(now)[1]
                break
            except Conflict:  # others were faster, and what they wrote may be an answer
                if tried == TRIES:
                    raise
        if spent is not None and spent.note.digest != mine:
            if ours and spent.answers != ours:
                self._log(ours, "refused", self.question.checkpoint)
            if self.refuses_repeats and (ours or (spent.answers and signed)):
                raise self._too_late(spent.answers)
        anchor_end(self.ledger, thread)
        spent = self._find_again(spent, now)  # a denial may have come meanwhile, or a hold
        check_held(self.gate, self.ledger, thread)
        if spent is not None and spent.used is None:
            self._log(spent.answers, "done", spent.note.opened.head)
            spent = self._find_again(spent, now)  # another worker may have been first
        if spent is None:
            raise ApprovalRefused(
                f"{self._where} continues too late: before the journal had the answer, it expired,"
                " somebody denied it, or another one was used."
            )
        if journal := self.ledger.anchored_journal:
            journal.anchor_end(thread)  # or an entry about an answer could be cut off
        return spent.answers

    def _is_overruled(self, spent: _Spent, signed: object, now: datetime) -> bool:
        """Tell whether a denial was brought before the journal has that an approval was used."""
        with suppress(*_REFUSED):
            is_open = spent.used is None and not _is_denied(spent.answers)
            return is_open and _is_denied(self._decide(signed, now))
        return False

    def _find_again(self, spent: _Spent | None, now: datetime) -> _Spent | None:
        """Return an answer as the journal has it now, or None if it no longer counts."""
        if spent is None or spent.used is not None:
            return spent
        found = self._find_end(now)[1]
        return found if found and found.note.digest == spent.note.digest else None

    def _log(self, answers: tuple[Answer, ...], outcome: EventOutcome, at: Head) -> None:
        """Write to the journal who approved or denied it, or that the wait ended."""
        action, thread, log = self.question.action, self.question.thread, self.ledger.log
        if not answers and self.question.until:
            log.write("expire", outcome, thread, at, action)
        for each in answers:
            what: What = "deny" if each.verdict == "denied" else "approve"
            who = Actor(each.approver, f"signature of key {each.key}")
            log.write(what, outcome, thread, at, f"{action} nonce {each.nonce}".lstrip(), actor=who)

    def _too_late(self, answers: tuple[Answer, ...]) -> ApprovalRefused:
        how = "the wait has ended"
        if answers:
            how = f"{answers[0].verdict} by {', '.join(each.approver for each in answers)}"
        return ApprovalRefused(
            f"The question at {self._where} was already answered: {how}.",
            "An approval counts once. If that run was interrupted, resume it without approvals.",
            "used",
        )

    def _decide(self, signed: object, now: datetime) -> tuple[Answer, ...]:
        """Return enough approvals, or one denial; nothing if the wait has ended.

        A denial in the place of the answers does not expire. It comes before any approval and
        before the end of the wait.
        """
        stored = self._read_stored()
        for each in stored:
            if each.verdict == "denied":
                return (each,)
        if self.question.is_over(now):
            return ()
        return self._check_enough(signed, stored, now)

    def _check_enough(
        self, signed: object, stored: list[Answer], now: datetime
    ) -> tuple[Answer, ...]:
        """Return enough approvals, one of each person, or a denial among what was signed.

        A stored approval that does not count is skipped. One that the caller brought is refused.
        """
        gate, question = self.gate, self.question
        needed = gate.policy.needs(*map(Reason, question.reasons))
        opened = [gate.approvers.open(text) for text in self._texts(signed)]
        if needed is None:
            raise ResumeRefused(
                f"{self._where} cannot continue: the policy lets nobody approve what a step asks.",
                "Write Policy({Reason.ASKED: 1}), or use no step that asks.",
            )
        found, skipped = dict[str, Answer](), ""
        for each in sorted(opened, key=lambda each: each.verdict == "approved"):  # denials first
            each.check_answers(question)
            each.check_time(now, gate.policy.lifetime)
            if each.verdict == "denied":
                return (each,)
            found.setdefault(each.approver, each)
        for each in stored:
            try:
                each.check_time(now, gate.policy.lifetime)
                found.setdefault(each.approver, each)
            except ApprovalRefused as error:
                skipped = f" {error.what}"
        if lacks := gate.lacks(question, found, needed):
            have = f" So far approved by {', '.join(found)}." if found else skipped
            details = "".join(f" {each}" for each in question.details)
            raise ApprovalNeeded(
                f"{self._where} needs the approval of {lacks}.{details}{have}",
                (SHOW if gate.answers is None else _PUT) if gate.approvers else NOBODY,
                question,
            )
        return tuple(found.values())[:MAX_APPROVERS]  # as many as a note is read with

    def _texts(self, signed: object) -> list[str]:
        """Return each signed text once, from a caller or from a note."""
        texts: Any = [signed] if signed and isinstance(signed, str) else signed
        if not texts and (self.refuses_repeats or self.gate.answers is not None):
            return []  # nobody answered yet, or all answers are in their place
        is_list = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        if not is_list or not 0 < len(texts) <= MAX_APPROVERS:
            raise ApprovalRefused(
                "The answer is neither a text that somebody signed, nor a list of such texts.",
                "Show people the question. Answer with what approver.approve(question) returns.",
                "form",
            )
        return list(dict.fromkeys(texts))

    def _find_end(self, now: datetime) -> tuple[Head, _Spent | None]:
        """Return the end of the thread, and the note whose answer counts, if there is one.

        Raises:
            ApprovalRefused: the run continued since the question, or the question is not of this
                thread.
        """
        asked, notes, over, end = self.question.head, list[Link](), None, None
        for link in self.ledger.back(self.question.thread):
            end = end or link.opened.head
            if link.sequence <= asked.sequence:
                if link.opened.head != asked:
                    break
                if over is not None:
                    raise ApprovalRefused(
                        f"The run continued from {self._where} to #{over.sequence}, so it takes no"
                        " more answers there.",
                        "See what was done since. If somebody went back on purpose, ask again: a"
                        " fork is another question.",
                        self.kind_of(notes),
                    )
                return end, self._find_spent(notes[::-1], now)
            if link.label == SPENT and link.kind == "note":
                notes.append(link)
            elif over is None and self.is_over(link):
                over = link
        raise ApprovalRefused(
            f"{self._where} was pruned, or is of another history.",
            kind="used" if self._find_used() else "moved",
        )

    def kind_of(self, notes: Iterable[Link]) -> Literal["used", "moved"]:
        """Return "used" if the journal says that one of these notes answered this, else "moved"."""
        used = self._find_used()
        texts = (read_note(each.state)[0] for each in notes if each.digest in used)
        asks = (Question.from_text(each).subject for each in texts)
        return "used" if self.question.subject in asks else "moved"

    def _find_spent(self, notes: list[Link], now: datetime) -> _Spent | None:
        """Return the note whose answer counts: the first that was used, or one that counts now.

        A note that nobody used has released nothing, and an attacker who can write the storage may
        have held it back, so a denial comes before it.
        """
        used, found = self._find_used() if notes else {}, list[_Spent]()
        for note in notes:
            entry = used.get(note.digest)
            answers = self._judge(note, entry.at if entry else now, is_used=entry is not None)
            if answers is not None:
                found.append(_Spent(note, answers, entry))
        first = min(found, key=_Spent.rank, default=None)
        is_open = first and not first.used and not _is_denied(first.answers)
        return None if is_open and _is_denied(self._read_stored()) else first

    def _read_stored(self) -> list[Answer]:
        """Return the answers of people in the place of the answers."""
        answers = self.gate.answers
        return [] if answers is None else answers.about(self.question, self.gate.approvers)

    def _find_used(self) -> dict[str | None, Entry]:
        """Return the entry that first says that an answer was used, by the digest of its note."""
        found: dict[str | None, Entry] = {}
        asked, journal = self.question, self.ledger.anchored_journal
        for entry in journal.back(asked.thread) if journal else ():
            if (entry.what, entry.digest) == ("save", asked.head.digest):
                break
            if entry.what in ("approve", "deny", "expire") and entry.outcome == "done":
                found[entry.digest] = entry
        return found

    def _judge(self, note: Link, now: datetime, *, is_used: bool) -> tuple[Answer, ...] | None:
        """Return the answer in a note, if it is about this question and counts at that time.

        A thief of the writer's key can write a note, so only what people signed counts. A denial
        stays one if another version of the workflow asked for the same; and if its key was revoked
        after the journal had it.
        """
        approvers, asked = self.gate.approvers, self.question
        try:
            question, texts = read_note(note.state)
            if len(texts) == 1:
                denial = approvers.open(texts[0], revoked=is_used)
                if denial.verdict == "denied" and denial.question.subject == asked.subject:
                    return (denial,)
            if question != asked.text:
                return None
            if not texts and asked.until:
                return () if is_used or asked.is_over(now) else None
            return self._check_enough(texts, [], now)
        except DecodeError:
            return None
        except _REFUSED as error:
            if is_used and error.kind == "key":  # its owner may have denied it
                raise
            return None
