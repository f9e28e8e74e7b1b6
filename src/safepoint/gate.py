"""Gate: who may resume what, into what.

A decision is a pure function of what was verified, what wants to resume it, and a policy. Nothing
here reads, writes or asks anyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import NoneType
from typing import Final

from safepoint.approval import Approvers, Reason
from safepoint.errors import ConfigurationError, quoted
from safepoint.names import Head, check_name
from safepoint.record import Checkpoint
from safepoint.tools import ToolSet


@dataclass(frozen=True, slots=True)
class Runtime:
    """What wants to resume.

    Attributes:
        app: "name" or "name@version".
        tools: the tools that the run would have.
        worker: the name under which it owns threads, or None if it owns none.
        migrates_from: the versions from which a chain of migrations leads to this one.

    Raises:
        ConfigurationError: one is of another kind.
        InvalidId: `worker` is outside the grammar.
    """

    app: str
    tools: ToolSet
    worker: str | None = None
    migrates_from: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_kind("Runtime", "app", self.app, str)
        check_kind("Runtime", "tools", self.tools, ToolSet)
        # In a text, every part of it is found: "1" in "12".
        check_kind("Runtime", "migrates_from", self.migrates_from, frozenset)
        if self.worker is not None:
            check_name("worker", self.worker)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the gate decides on.

    Attributes:
        checkpoint: the verified checkpoint to resume from, or None if it did not verify.
        head: the verified end of the thread, or None if it did not verify.
        tools: the tools that were in force at the checkpoint.
        asked: whether the run paused there for a person's answer.
        owner: who holds the lease on the thread, or None if nobody does.
        runtime: what wants to resume.

    Raises:
        ConfigurationError: one is of another kind.
    """

    checkpoint: Checkpoint | None
    head: Head | None
    tools: ToolSet
    asked: bool
    owner: str | None
    runtime: Runtime

    def __post_init__(self) -> None:
        check_kind("Situation", "checkpoint", self.checkpoint, Checkpoint, NoneType)
        check_kind("Situation", "head", self.head, Head, NoneType)
        check_kind("Situation", "tools", self.tools, ToolSet)
        check_kind("Situation", "asked", self.asked, bool)
        check_kind("Situation", "owner", self.owner, str, NoneType)
        check_kind("Situation", "runtime", self.runtime, Runtime)


def check_kind(where: str, name: str, value: object, *kinds: type) -> None:
    """Refuse an argument of another kind.

    Raises:
        ConfigurationError: it is.
    """
    if not isinstance(value, kinds):
        names = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise ConfigurationError(
            f"{where} was given {type(value).__name__} as {name}.",
            f"Give it {names}.",
        )


def find(situation: Situation) -> Iterator[tuple[Reason, str]]:
    """Yield each concrete finding with its reason."""
    checkpoint, head = situation.checkpoint, situation.head
    worker = situation.runtime.worker
    if situation.owner not in (None, worker):
        who = "a worker without a name" if worker is None else f"worker {worker!a}"
        yield (
            Reason.OWNED_BY_ANOTHER,
            f"Worker {situation.owner!a} owns the thread, and {who} wants to resume it.",
        )
    # What was not verified is not looked into: nothing else is said about it.
    if checkpoint is None:
        yield Reason.UNVERIFIED, "The checkpoint was not verified."
    elif head is None:
        yield Reason.UNVERIFIED, "The end of the thread was not verified."
    elif checkpoint.sequence > head.sequence:
        yield (
            Reason.UNVERIFIED,
            f"Checkpoint #{checkpoint.sequence} is beyond the end of the thread, {head}.",
        )
    elif checkpoint.sequence == head.sequence and checkpoint.digest != head.digest:
        yield Reason.UNVERIFIED, f"Another record than this checkpoint ends the thread at {head}."
    else:
        if checkpoint.sequence < head.sequence:
            yield (
                Reason.OLD_CHECKPOINT,
                f"The run would go back from {head} to #{checkpoint.sequence}.",
            )
        yield from _versions(checkpoint.app, situation.runtime)
        yield from _tools(situation.runtime.tools, situation.tools)
        if situation.asked:
            yield (
                Reason.ASKED,
                f"The run paused at #{checkpoint.sequence} for a person's answer.",
            )


def _versions(app: str, runtime: Runtime) -> Iterator[tuple[Reason, str]]:
    before, now = (text.partition("@")[2] for text in (app, runtime.app))
    if before == now:
        return
    old, new = (_version(text, "an unnamed version") for text in (before, now))
    yield (
        Reason.VERSION_CHANGED,
        f"The checkpoint was written by {old}, and would be resumed by {new}.",
    )
    if before not in runtime.migrates_from:
        yield Reason.NO_MIGRATION, f"No migration leads from {old} to {new}."


def _tools(now: ToolSet, before: ToolSet) -> Iterator[tuple[Reason, str]]:
    changes = now.changes_from(before)
    for name in changes.added:
        yield Reason.TOOLS_ADDED, f"The tool {name} is new."
        if words := now[name].permissions:
            yield Reason.TOOLS_ADDED, f"The tool {name} comes with {_listed(words)}."
    for name in changes.changed:
        old, new = before[name], now[name]
        if old.version != new.version:
            has, had = (_version(tool.version, "no version") for tool in (new, old))
            yield Reason.TOOL_CHANGED, f"The tool {name} has {has}, and had {had}."
        if old.schema != new.schema:
            yield Reason.TOOL_CHANGED, f"The tool {name} has another schema."
    for name, words in changes.widened:
        yield Reason.PERMISSIONS_WIDENED, f"The tool {name} gains {_listed(words)}."


def find_narrower(situation: Situation) -> Iterator[str]:
    """Yield what the run could do at the checkpoint, and can do no more."""
    changes = situation.runtime.tools.changes_from(situation.tools)
    for name in changes.removed:
        yield f"The tool {name} is gone."
    for name, words in changes.narrowed:
        yield f"The tool {name} loses {_listed(words)}."


def _version(text: str, otherwise: str) -> str:
    return f"version {text!a}" if text else otherwise


def _listed(permissions: Iterable[str]) -> str:
    words = list(permissions)
    return f"the permission{'s' * (len(words) > 1)} {', '.join(words)}"


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
    Reason.UNVERIFIED: None,
}
_NEVER: Final = frozenset({Reason.OWNED_BY_ANOTHER, Reason.UNVERIFIED})


class Policy:
    """How many people each reason needs. What you do not name is as strict as the default.

    ```python
    from safepoint.gate import Policy
    from safepoint.approval import Reason

    policy = Policy({Reason.PERMISSIONS_WIDENED: 2, Reason.OLD_CHECKPOINT: None})
    print(policy.needs(Reason.PERMISSIONS_WIDENED), policy.needs(Reason.OLD_CHECKPOINT))
    #> 2 None
    ```

    Args:
        approvers: for a reason, the number of distinct people who have to approve, 0 if the resume
            goes on by itself, or None if nobody can approve it.
        lifetime: the longest that an approval may be valid.

    Raises:
        ConfigurationError: a reason is unknown, a number is none, or it would open what stays
            shut: `UNVERIFIED` and `OWNED_BY_ANOTHER` are never approved, `ASKED` always is.
    """

    __slots__ = ("_lifetime", "_needs")

    def __init__(
        self,
        approvers: Mapping[Reason, int | None] | None = None,
        *,
        lifetime: timedelta = timedelta(hours=24),
    ) -> None:
        if approvers is not None and not isinstance(approvers, Mapping):
            raise ConfigurationError(
                f"Policy takes a mapping of reasons, and was given {type(approvers).__name__}.",
                "Write Policy({Reason.TOOLS_ADDED: 2}).",
            )
        self._needs = {**_STRICT, **dict(_overrides(approvers or {}))}
        if not isinstance(lifetime, timedelta) or not timedelta(0) < lifetime <= MAX_LIFETIME:
            raise ConfigurationError(
                f"The lifetime of an approval is {quoted(lifetime)}, and must be a timedelta above"
                f" 0 and of at most {MAX_LIFETIME.days} days.",
                "Write lifetime=timedelta(hours=24).",
            )
        self._lifetime = lifetime

    def __repr__(self) -> str:
        needs = {str(reason): people for reason, people in self._needs.items()}
        return f"Policy({needs}, lifetime={self._lifetime})"

    @property
    def lifetime(self) -> timedelta:
        """The longest that an approval may be valid."""
        return self._lifetime

    def needs(self, reason: Reason) -> int | None:
        """Return how many people a reason needs: 0 if none, None if nobody can approve it."""
        return self._needs[reason]


def _overrides(approvers: Mapping[Reason, int | None]) -> Iterator[tuple[Reason, int | None]]:
    """Yield the overrides of the strict default, each checked.

    Raises:
        ConfigurationError: one is not possible.
    """
    for key, number in approvers.items():
        try:
            reason = Reason(key)
        except ValueError:
            raise ConfigurationError(
                f"{quoted(key)} is not a reason.", f"The reasons are {', '.join(Reason)}."
            ) from None
        if reason in _NEVER and number is not None:
            raise ConfigurationError(
                f"A resume that is {reason} is refused, and no policy changes that.",
                f"Leave Reason.{reason.name} out of the policy.",
            )
        if number is not None and (type(number) is not int or not 0 <= number <= MAX_APPROVERS):
            raise ConfigurationError(
                f"The number of approvers for {reason} is {quoted(number)}, and must be a whole"
                f" number from 0 to {MAX_APPROVERS}, or None.",
                f"Write Reason.{reason.name}: 1 for one person, or None for never.",
            )
        if reason is Reason.ASKED and number == 0:
            raise ConfigurationError(
                "A step that asks for a person's yes does not go on without one.",
                "Write Reason.ASKED: 1 or more, or leave it out of the policy.",
            )
        yield reason, number


class Verdict(StrEnum):
    """How a decision ends."""

    ALLOWED = "allowed"
    NEEDS_APPROVAL = "needs-approval"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate says.

    Attributes:
        verdict: allowed, needs approval, or refused.
        reasons: all that was found, in the order of `Reason`, also what goes on by itself.
        approvers: how many distinct people have to approve; 0 unless it needs approval.
        details: one sentence for each concrete finding.
        notes: one sentence for each thing that is less than it was. That never stops a resume.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    approvers: int
    details: tuple[str, ...]
    notes: tuple[str, ...]


DEFAULT_POLICY = Policy()


def decide(situation: Situation, policy: Policy = DEFAULT_POLICY) -> Decision:
    """Decide on a resume.

    ```python
    from safepoint.gate import Runtime, Situation, decide
    from safepoint.tools import ToolSet

    unverified = Situation(
        checkpoint=None,
        head=None,
        tools=ToolSet(),
        asked=False,
        owner=None,
        runtime=Runtime("invoice@2", ToolSet()),
    )
    decision = decide(unverified)
    print(decision.verdict, [str(reason) for reason in decision.reasons])
    #> refused ['unverified']
    ```

    Refused if a reason can never be approved; else it needs the approval of as many people as the
    reason that wants the most; else it is allowed.

    Raises:
        ConfigurationError: an argument is of another kind.
    """
    check_kind("decide", "situation", situation, Situation)
    check_kind("decide", "policy", policy, Policy)
    order = list(Reason)
    found = sorted(find(situation), key=lambda finding: order.index(finding[0]))
    reasons = tuple(dict.fromkeys(reason for reason, _ in found))
    needed = [policy.needs(reason) for reason in reasons]
    people = max((number for number in needed if number is not None), default=0)
    if None in needed:
        verdict, people = Verdict.REFUSED, 0
    else:
        verdict = Verdict.NEEDS_APPROVAL if people else Verdict.ALLOWED
    verified = Reason.UNVERIFIED not in reasons
    return Decision(
        verdict,
        reasons,
        people,
        details=tuple(detail for _, detail in found),
        notes=tuple(find_narrower(situation)) if verified else (),
    )


class Gate:
    """A policy, and the people who can approve what it asks for.

    Without approvers it still decides; what needs approval then stays shut.

    Args:
        policy: how many people each reason needs.
        approvers: who they are.

    Raises:
        ConfigurationError: the policy asks for more people than there are, or an argument is of
            another kind.
    """

    __slots__ = ("_approvers", "_policy")

    def __init__(self, policy: Policy = DEFAULT_POLICY, approvers: Approvers | None = None) -> None:
        check_kind("Gate", "policy", policy, Policy)
        if approvers is not None:
            if not isinstance(approvers, Approvers):
                raise ConfigurationError(
                    f"Gate was given {type(approvers).__name__} as approvers.",
                    'Write approvers=Approvers({"anna": key}).',
                )
            _check_enough(policy, len(approvers))
        self._policy = policy
        self._approvers = approvers

    def __repr__(self) -> str:
        names = [] if self._approvers is None else sorted(self._approvers.names)
        return f"Gate({self._policy!r}, approvers={names})"

    @property
    def policy(self) -> Policy:
        """How many people each reason needs."""
        return self._policy

    @property
    def approvers(self) -> Approvers | None:
        """Who can approve, or None if nobody can."""
        return self._approvers

    def decide(self, situation: Situation) -> Decision:
        """Decide on a resume by this gate's policy."""
        return decide(situation, self._policy)


def _check_enough(policy: Policy, people: int) -> None:
    """Refuse a policy that nobody could satisfy.

    Raises:
        ConfigurationError: it asks for more people than there are.
    """
    for reason in Reason:
        needed = policy.needs(reason) or 0
        if needed > people:
            raise ConfigurationError(
                f"The number of approvers is {people}, and the policy wants {needed} for {reason}.",
                "Want fewer in the policy, or add people to Approvers.",
            )
