"""The desk: what waits for people, verified, and what they sign about it.

An approver runs none of the worker's code: a question is read from verified records. The terminal
and the console both are on this, so that an approval means the same in both: right before it is
signed, the thread and its live anchor are verified again, and the question is still the one that
was shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, NamedTuple

from safepoint.core.errors import (
    ApprovalRefused,
    ConfigurationError,
    NotFound,
    ResumeRefused,
    RolledBack,
    quoted,
)
from safepoint.core.ledger import Ledger
from safepoint.core.names import digest_of, thread_name, thread_text, with_tenant
from safepoint.places import Store
from safepoint.resume.answers import Answers, Order, in_force
from safepoint.resume.approval import Answer, Approver, Question, Reason, shown
from safepoint.resume.gate import Gate
from safepoint.shared.questions import find_asked
from safepoint.shared.states import brief
from safepoint.shared.terminal import when

Verb = Literal["approve", "deny"]
Role = Literal["approver", "operator"]
State = Literal["waiting", "held", "denied", "expired", "approved, not finished"]
_LOOK: Final = "Nothing was signed. Look at the run again."
_NO_ANSWERS: Final = "Name them in its settings: answers and answers-anchor."


def thread_shown(ledger: Ledger, thread: str) -> str:
    """Return a thread as a list shows it: its id in a framework, quoted if that could mislead."""
    return with_tenant(ledger.tenant_name, brief(thread_text(thread) or thread))


class Wait(NamedTuple):
    """A question that waits, and what people said to it so far.

    Attributes:
        ledger: the store, in the scope of its tenant.
        question: what is asked, in full.
        since: when the worker asked.
        needed: how many different people have to approve it by the settings here. The worker's
            own policy decides.
        yes: those who did, as far as their yes counts now.
        no: the denials, each with its reason.
        holds: the holds of its thread that nobody has released.
        is_approved: whether a worker used the approval, and its step has not ended.
    """

    ledger: Ledger
    question: Question
    since: datetime
    needed: int = 1
    yes: tuple[str, ...] = ()
    no: tuple[Answer, ...] = ()
    holds: tuple[Order, ...] = ()
    is_approved: bool = False

    @property
    def digest(self) -> str:
        """The digest of all that would be signed."""
        return digest_of(self.question.text.encode())

    @property
    def name(self) -> str:
        """The thread as people write it."""
        return with_tenant(self.ledger.tenant_name, self.question.thread)

    @property
    def state(self) -> State:
        """Where it belongs in a list: what stops it first."""
        if self.is_approved:
            return "approved, not finished"
        if self.no:
            return "denied"
        if self.question.is_over():
            return "expired"
        return "held" if self.holds else "waiting"

    @property
    def said(self) -> Iterator[str]:
        """The thread as its application names it, and what people said so far, in lines."""
        if (text := thread_text(self.question.thread)) and text != self.question.thread:
            yield f"the application calls this thread {shown(text)}"
        by = f": {', '.join(self.yes)}" if self.yes else ""
        go_on = ", not finished: resume the run, and its step gets the same key" * self.is_approved
        yield f"{len(self.yes)} of {self.needed} approved{by}{go_on}"
        for no in self.no:
            yield f"denied by {no.approver}{f': {shown(no.why)}' if no.why else ''}"
        yield from (f"held by {hold.by}: {shown(hold.why)}" for hold in self.holds)

    @property
    def lines(self) -> Iterator[str]:
        """All of it, for a terminal."""
        asked = self.question
        until = asked.until and when(datetime.fromisoformat(asked.until))
        end = f"until {until}" if until else "for as long as nobody answers"
        yield f"{self.name} wants {shown(asked.action)}"
        yield f"    since {when(self.since)}, {end}{', which is over' * asked.is_over()}"
        yield from (f"    {each}" for each in (*self.said, *asked.described))
        yield f"    digest: {self.digest}"


@dataclass(frozen=True, slots=True)
class Desk:
    """A store that is open for reading, and the place of its answers, which may be for writing.

    Attributes:
        ledger: the store, in the scope of a tenant or of none.
        answers: where people put what they sign.
        gate: who may approve and hold.
    """

    ledger: Ledger
    answers: Answers
    gate: Gate

    @classmethod
    def open(cls, store: Store, stack: ExitStack, *, write: bool = False) -> Desk:
        """Open a store as people do who approve.

        Args:
            store: what it is made of.
            stack: what closes it again.
            write: whether something is to be put with the answers.

        Raises:
            ConfigurationError: the store has no place for answers.
            CheckpointError: what a part refuses.
        """
        ledger, answers = store.opened(stack), store.answers_of(stack, write=write)
        if answers is None:
            raise ConfigurationError(f"{ledger.store} has no place for answers.", _NO_ANSWERS)
        gate = store.gate_of(answers) or Gate()
        gate.check_apart(ledger.keys)
        return cls(ledger, answers, gate)

    def of(self, tenant: str) -> Desk:
        """Return the desk for the threads of one tenant, or this one."""
        if tenant in ("", self.ledger.tenant_name):
            return self
        return replace(self, ledger=self.ledger.tenant(tenant))

    def scopes(self) -> Iterator[Desk]:
        """Yield this desk, and one for each tenant."""
        yield self
        yield from map(self.of, self.ledger.tenants())

    # --- look

    def thread(self, named: str) -> str:
        """Return a thread that there is, by its name here or by its id in a framework.

        Raises:
            NotFound: there is none.
        """
        for name in dict.fromkeys((named, thread_name(named))):
            if name in self.ledger.threads():
                return name
        whole = with_tenant(self.ledger.tenant_name, named)
        raise NotFound(
            f"There is no thread {quoted(whole)} in {self.ledger.store}.",
            "Name it as safepoint waiting lists it.",
        )

    def waits(self, thread: str, *, whole: bool = True, approved: bool = False) -> list[Wait]:
        """Return what a thread waits for, with its live anchor.

        Args:
            thread: the thread.
            whole: verify everything first, each signature included. If not, the records that the
                question is read from are verified, and that they extend what the anchor has seen;
                a thread where that takes long is refused.
            approved: also return what was approved and is not finished. Nobody can answer that.

        Raises:
            CheckpointError: it does not verify.
        """
        asked = find_asked(self.ledger, thread, self.gate, bounded=not whole)
        found = [each for each in asked if approved or not each[-1]]
        if not found:
            return []
        if whole:
            self.ledger.verify(thread)
        holds = tuple(self.holds(thread))
        return [self._wait(each, holds) for each in found]

    def _wait(self, asked: tuple[Question, datetime, bool], holds: tuple[Order, ...]) -> Wait:
        question, since, is_approved = asked
        needed = self.gate.policy.needs(Reason.ASKED) or 1
        found = self.answers.about(question, self.gate.approvers)
        yes = tuple(sorted({each.approver for each in found if self._counts(each)}))
        no = tuple(each for each in found if each.verdict == "denied")
        return Wait(self.ledger, question, since, needed, yes, no, holds, is_approved)

    def _counts(self, answer: Answer) -> bool:
        with suppress(ApprovalRefused):
            answer.check_time(datetime.now(answer.issued.tzinfo), self.gate.policy.lifetime)
            return answer.verdict == "approved" and answer.key not in self.gate.approvers.revoked
        return False

    def holds(self, thread: str) -> list[Order]:
        """Return the holds of a thread that nobody has released."""
        store, tenant, people = self.ledger.store, self.ledger.tenant_name, self.gate.operators
        return in_force(self.answers.orders(store, thread, people, tenant=tenant), people)

    # --- sign

    def owner(self, key: str, what: Role, name: str | None = None) -> str:
        """Return whose key it is. If a name is given, it has to be theirs.

        Raises:
            ApprovalRefused: it is nobody's, somebody else's, or revoked.
        """
        people = self.gate.approvers if what == "approver" else self.gate.operators
        owner = people.keys.get(key, ("",))[0]
        if key in people.revoked or owner not in people.names or name not in (None, owner):
            raise ApprovalRefused(
                f"Key {key} is not one that an {what} of {self.ledger.store} is known by.",
                "Nothing was signed. Name the secret half of a public key that is listed. Those"
                f" who are: {', '.join(people.names) or 'nobody'}.",
            )
        return owner

    def choose(self, thread: str, digest: str | None) -> Wait:
        """Return what a thread waits for, which has this digest if one is named.

        Raises:
            ResumeRefused: it waits for nobody.
            ApprovalRefused: it asks something else, or several things and none was named.
            CheckpointError: it does not verify.
        """
        waits, named = self.waits(thread), thread_shown(self.ledger, thread)
        fitting = [each for each in waits if digest in (None, each.digest)]
        if len(fitting) == 1:
            return fitting[0]
        if not waits:
            raise ResumeRefused(f"{named} waits for nobody.", "Nothing was signed.")
        asks = f"something else than {quoted(digest)}" if digest else f"{len(waits)} things"
        raise ApprovalRefused(
            f"{named} asks {asks}.",
            "Nothing was signed. Look at what it asks now, and name one by its --digest:"
            f" safepoint waiting {self.ledger.store} {waits[0].name}",
            "mismatch",
        )

    def check_open(self, wait: Wait, verb: Verb, name: str) -> None:
        """Refuse an answer that comes too late, or that was given before.

        Raises:
            ResumeRefused: the deadline has passed, and it is an approval.
            ApprovalRefused: they said so before; or somebody has denied it, and it is an approval.
            ConfigurationError: there is no anchor, and it is an approval.
            RolledBack: the anchor does not know the thread, and it is an approval.
        """
        if verb == "approve" and wait.question.is_over():
            raise ResumeRefused(
                f"The wait of {wait.question.thread} ended at {wait.question.until}.",
                "Nothing was signed. It is too late to approve.",
                "ended",
            )
        noes = [each.approver for each in wait.no]
        same = name in noes and self._is_settled(wait.question, name)
        if same or (noes and verb == "approve"):
            who = name if name in noes else noes[0]
            raise ApprovalRefused(f"{who} has denied it already.", _LOOK, "used")
        if verb == "deny":
            return
        if self.ledger.anchor is None:
            raise ConfigurationError(
                f"{self.ledger.store} has no anchor, so nobody could tell an old question from"
                " today's.",
                "Nothing was signed. Name it in its settings: anchor. You can deny without it.",
            )
        if self.ledger.anchored(wait.question.thread) is None:
            raise RolledBack(
                f"The anchor has not seen {wait.question.thread}, so nobody could tell an old"
                " question from today's.",
                "Nothing was signed. Find out why: the anchor was lost, or is another one. You"
                " can deny without it.",
            )
        if name in wait.yes and self._is_settled(wait.question, name):
            raise ApprovalRefused(
                f"{name} has approved it already. No worker has continued it yet.", _LOOK, "used"
            )

    def _is_settled(self, question: Question, name: str) -> bool:
        """Tell whether what somebody said is anchored. If not, they sign again to mend that."""
        keys = [key for owner, key in self.gate.approvers.keys.values() if owner == name]
        return all(self.answers.is_settled(question, key) for key in keys)

    def recheck(self, shown: Question, verb: Verb, name: str) -> None:
        """Refuse an answer if the question that was shown is not asked any more.

        Raises:
            CheckpointError: as `choose` and `check_open`.
        """
        wait = self.choose(shown.thread, digest_of(shown.text.encode()))
        self.check_open(wait, verb, name)

    def answer(self, shown: Question, verb: Verb, person: Approver, *, why: str = "") -> Answer:
        """Sign the very question that was shown and put that with the answers.

        The thread and its live anchor are verified again before that.

        Args:
            shown: what the person looked at.
            verb: what they say to it.
            person: who, with their own key.
            why: a reason, for people.

        Raises:
            CheckpointError: as `recheck` and `owner`; or the answer could not be put. The
                message says whether it was signed.
        """
        self.recheck(shown, verb, person.name)
        self.owner(person.key.id, "approver", person.name)
        sign = person.approve if verb == "approve" else person.deny
        signed = self.gate.approvers.open(sign(shown))
        self.answers.put(person, signed.text, why=why)
        return signed

    def hold(self, thread: str, operator: Approver, *, why: str) -> Order:
        """Hold a thread: no worker continues with it."""
        self.owner(operator.key.id, "operator", operator.name)
        store, tenant = self.ledger.store, self.ledger.tenant_name
        return self.answers.hold(operator, store, thread, tenant=tenant, why=why)

    def release(self, thread: str, operator: Approver, digest: str | None = None) -> Order:
        """End a hold: the only one, or that of a digest.

        Raises:
            ResumeRefused: there is no such hold, or there are several.
        """
        holds = self.holds(thread)
        self.owner(operator.key.id, "operator", operator.name)
        fitting = [each for each in holds if digest in (None, each.hold)]
        if len(fitting) != 1:
            raise ResumeRefused(
                f"{thread} has {len(fitting)} such holds: {'; '.join(map(str, holds)) or 'none'}.",
                "Nothing was released. Name one by its --digest, as hold printed it.",
            )
        store, tenant = self.ledger.store, self.ledger.tenant_name
        return self.answers.release(operator, store, thread, fitting[0].hold, tenant=tenant)
