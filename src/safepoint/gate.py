"""Gate: who may resume what, into what.

A decision is a pure function of what was verified, what wants to resume it, and a policy. Nothing
here reads, writes or asks anyone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from safepoint._gate.findings import find, find_narrower
from safepoint._gate.policy import MAX_APPROVERS, MAX_LIFETIME, Policy
from safepoint._gate.situation import Runtime, Situation, check_kind
from safepoint.approval import Approvers
from safepoint.errors import ConfigurationError
from safepoint.reasons import Reason

__all__ = [
    "DEFAULT_POLICY",
    "MAX_APPROVERS",
    "MAX_LIFETIME",
    "Decision",
    "Gate",
    "Policy",
    "Runtime",
    "Situation",
    "Verdict",
    "decide",
]


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
