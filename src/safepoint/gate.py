"""Gate: who may resume what, into what.

A decision is a pure function of what was verified, what wants to resume it, and a policy. Nothing
here reads, writes or asks anyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from safepoint.approval import Approvers, Reason
from safepoint.errors import ConfigurationError, quoted
from safepoint.names import Head
from safepoint.record import Checkpoint
from safepoint.tools import ToolSet

MAX_APPROVERS: Final = 16
MAX_LIFETIME: Final = timedelta(days=90)
_STRICT: Final[Mapping[Reason, int | None]] = {
    Reason.OLD_CHECKPOINT: 1,
    Reason.VERSION_CHANGED: 0,
    Reason.NO_MIGRATION: None,
    Reason.TOOLS_ADDED: 1,
    Reason.TOOL_CHANGED: 1,
    Reason.PERMISSIONS_WIDENED: 1,
    Reason.ASKED: 1,
    Reason.OWNED_BY_ANOTHER: None,
}


class Policy:
    """How many people each reason needs. What you do not name is as strict as the default.

    ```python
    from safepoint import Policy
    from safepoint.approval import Reason

    policy = Policy({Reason.PERMISSIONS_WIDENED: 2, Reason.OLD_CHECKPOINT: None})
    print(policy.needs(Reason.PERMISSIONS_WIDENED), policy.needs(Reason.OLD_CHECKPOINT))
    #> 2 None
    ```

    Args:
        approvers: for a reason, the number of distinct people who have to approve, 0 if the resume
            goes on by itself, or None if nobody can approve it.
        lifetime: the longest that an approval may be valid, up to 90 days.

    Raises:
        ConfigurationError: a reason is unknown, a number is none, or it would open what stays
            shut: `OWNED_BY_ANOTHER` is never approved, `ASKED` always is.
    """

    __slots__ = ("_needs", "lifetime")

    def __init__(
        self,
        approvers: Mapping[Reason, int | None] | None = None,
        *,
        lifetime: timedelta = timedelta(hours=24),
    ) -> None:
        self._needs = dict(_STRICT)
        for reason, number in (approvers or {}).items():
            _check_need(reason, number)
            self._needs[reason] = number
        if not timedelta(0) < lifetime <= MAX_LIFETIME:
            raise ConfigurationError(
                f"The lifetime of an approval is {quoted(lifetime)}, and must be a timedelta above"
                f" 0 and of at most {MAX_LIFETIME.days} days.",
                "Write lifetime=timedelta(hours=24).",
            )
        self.lifetime: Final = lifetime

    def needs(self, *reasons: Reason) -> int | None:
        """Return how many people such a resume needs: 0 if none, None if nobody can approve it."""
        found = [self._needs[reason] for reason in reasons]
        return None if None in found else max((number or 0 for number in found), default=0)

    def __repr__(self) -> str:
        needs = {str(reason): people for reason, people in self._needs.items()}
        return f"Policy({needs}, lifetime={self.lifetime})"


def _check_need(reason: Reason, number: int | None) -> None:
    if reason not in _STRICT:
        raise ConfigurationError(
            f"{quoted(reason)} is not a reason.", f"The reasons are {', '.join(Reason)}."
        )
    if reason == Reason.OWNED_BY_ANOTHER and number is not None:
        raise ConfigurationError(
            f"A resume that is {reason} is refused, and no policy changes that.",
            "Leave Reason.OWNED_BY_ANOTHER out of the policy.",
        )
    if number is not None and (type(number) is not int or not 0 <= number <= MAX_APPROVERS):
        raise ConfigurationError(
            f"The number of approvers for {reason} is {quoted(number)}, and must be a whole"
            f" number from 0 to {MAX_APPROVERS}, or None.",
            f"Write Reason.{Reason(reason).name}: 1 for one person, or None for never.",
        )
    if reason == Reason.ASKED and number == 0:
        raise ConfigurationError(
            "A step that asks for a person's yes does not go on without one.",
            "Write Reason.ASKED: 1 or more, or leave it out of the policy.",
        )


@dataclass(frozen=True, slots=True)
class Situation:
    """A resume that somebody wants.

    Attributes:
        checkpoint: the verified checkpoint to resume from.
        head: the verified end of the thread.
        had: the tools that were in force at the checkpoint.
        has: the tools that the run would have.
        app: what wants to resume it: "name" or "name@version".
        migrates_from: the versions from which a chain of migrations leads to that one.
        asked: whether the run paused there for a person's answer.
        owner: who holds the lease on the thread, or None if nobody does.
        worker: the name under which the one who wants it owns threads, or None.
    """

    checkpoint: Checkpoint
    head: Head
    had: ToolSet
    has: ToolSet
    app: str
    migrates_from: frozenset[str] = frozenset()
    asked: bool = False
    owner: str | None = None
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate says.

    Attributes:
        reasons: all that was found, in the order of `Reason`, also what goes on by itself.
        approvers: how many distinct people have to approve; 0 if it is allowed, None if nobody can
            approve it.
        details: one sentence for each concrete finding.
        notes: one sentence for each thing that is less than it was. That never stops a resume.
    """

    reasons: tuple[Reason, ...]
    approvers: int | None
    details: tuple[str, ...]
    notes: tuple[str, ...]


class Gate:
    """A policy, and the people who can approve what it asks for.

    Without approvers it still decides; what needs approval then stays shut.

    Args:
        policy: how many people each reason needs.
        approvers: who they are.

    Raises:
        ConfigurationError: the policy asks for more people than there are.
    """

    __slots__ = ("approvers", "policy")

    def __init__(self, policy: Policy | None = None, approvers: Approvers | None = None) -> None:
        self.policy: Final = policy or Policy()
        self.approvers: Final = approvers
        for reason in Reason if approvers is not None else ():
            needed, people = self.policy.needs(reason) or 0, len(approvers or ())
            if needed > people:
                raise ConfigurationError(
                    f"The number of approvers is {people}, and the policy wants {needed} for"
                    f" {reason}.",
                    "Want fewer in the policy, or add people to Approvers.",
                )

    def decide(self, situation: Situation) -> Decision:
        """Decide on a resume: how many people the reason takes that wants the most.

        ```python
        from safepoint import Gate, InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
        from safepoint import Tool, ToolSet
        from safepoint.names import Head
        from safepoint.gate import Situation

        keys = Keyring(SigningKey.generate())
        ledger = Ledger(InMemoryCheckpointStorage(), store="agents", keys=keys)
        last = ledger.save("run-1", {}, app="agent@1")
        head, more = Head(last.sequence, last.digest), ToolSet([Tool("bank")])
        decision = Gate().decide(Situation(last, head, ToolSet(), more, "agent@1"))
        print(decision.approvers, *decision.details)
        #> 1 The tool bank is new.
        ```
        """
        compared = list(compare(situation.has, situation.had))
        order = list(Reason)
        found = [*_find(situation), *((reason, said) for reason, _, said in compared if reason)]
        found.sort(key=lambda finding: order.index(finding[0]))
        reasons = tuple(dict.fromkeys(reason for reason, _ in found))
        return Decision(
            reasons,
            self.policy.needs(*reasons),
            details=tuple(detail for _, detail in found),
            notes=tuple(said for reason, _, said in compared if reason is None),
        )

    def __repr__(self) -> str:
        names = [] if self.approvers is None else list(self.approvers.names)
        return f"Gate({self.policy!r}, approvers={names})"


def _find(situation: Situation) -> Iterator[tuple[Reason, str]]:
    """Yield each concrete finding with its reason, but for the tools."""
    checkpoint, head, worker = situation.checkpoint, situation.head, situation.worker
    if checkpoint.sequence < head.sequence:
        yield (
            Reason.OLD_CHECKPOINT,
            f"The run would go back from {head} to #{checkpoint.sequence}.",
        )
    before, now = (text.partition("@")[2] for text in (checkpoint.app, situation.app))
    if before != now:
        old, new = (_version(text, "an unnamed version") for text in (before, now))
        yield (
            Reason.VERSION_CHANGED,
            f"The checkpoint was written by {old}, and would be resumed by {new}.",
        )
        if before not in situation.migrates_from:
            yield Reason.NO_MIGRATION, f"No migration leads from {old} to {new}."
    if situation.asked:
        yield Reason.ASKED, f"The run paused at #{checkpoint.sequence} for a person's answer."
    if situation.owner not in (None, worker):
        who = "a worker without a name" if worker is None else f"worker {worker!a}"
        yield (
            Reason.OWNED_BY_ANOTHER,
            f"Worker {situation.owner!a} owns the thread, and {who} wants to resume it.",
        )


def compare(now: ToolSet, before: ToolSet) -> Iterator[tuple[Reason | None, str, str]]:
    """Yield each difference: why it matters, the tool, and a sentence. None is for what is less."""
    for name in sorted({tool.name for tool in (*now, *before)}):
        if name not in before:
            yield Reason.TOOLS_ADDED, name, f"The tool {name} is new."
            if words := now[name].permissions:
                yield Reason.TOOLS_ADDED, name, f"The tool {name} comes with {_listed(words)}."
            continue
        if name not in now:
            yield None, name, f"The tool {name} is gone."
            continue
        old, new = before[name], now[name]
        if old.version != new.version:
            has, had = (_version(tool.version, "no version") for tool in (new, old))
            yield Reason.TOOL_CHANGED, name, f"The tool {name} has {has}, and had {had}."
        if old.schema != new.schema:
            yield Reason.TOOL_CHANGED, name, f"The tool {name} has another schema."
        if more := set(new.permissions).difference(old.permissions):
            yield Reason.PERMISSIONS_WIDENED, name, f"The tool {name} gains {_listed(more)}."
        if less := set(old.permissions).difference(new.permissions):
            yield None, name, f"The tool {name} loses {_listed(less)}."


def _version(text: str, otherwise: str) -> str:
    return f"version {text!a}" if text else otherwise


def _listed(permissions: Iterable[str]) -> str:
    words = sorted(permissions)
    return f"the permission{'s' * (len(words) > 1)} {', '.join(words)}"
