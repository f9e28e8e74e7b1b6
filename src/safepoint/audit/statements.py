"""Statements: which of the approvals in a record count, whenever one looks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from safepoint._workflow.looking import Resumption
from safepoint.approval import Approval, Approvers, Question
from safepoint.approval.validity import SKEW, check_valid
from safepoint.audit.finding import Finding
from safepoint.audit.replay import Link
from safepoint.errors import ApprovalError, ApprovalExpired, CheckpointError, ConfigurationError
from safepoint.gate import Gate, Verdict
from safepoint.keys import VerifyingKey
from safepoint.reasons import Reason

WIDER: Final = frozenset({Reason.TOOLS_ADDED, Reason.TOOL_CHANGED, Reason.PERMISSIONS_WIDENED})
_MANY: Final = 10
FORGED: Final = "Whoever wrote it had the writer's key. Do not resume it; replace that key."


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
        self.keys = list(gate.approvers._keys.values())  # noqa: SLF001  only an audit looks back
        self.revoked = gate.approvers._revoked  # noqa: SLF001
        people = {name: [key for who, key in self.keys if who == name] for name, _ in self.keys}
        self.gate = Gate(gate.policy, Approvers(people))

    def statements(self, link: Link, question: Question | None) -> list[Statement]:
        """Return what is in a record, each with whether it answers the question."""
        texts = () if link.resumed is None else link.resumed.statements
        return [self._opened(text, question) for text in texts]

    def _opened(self, text: str, question: Question | None) -> Statement:
        approvers = self.gate.approvers
        if approvers is None:
            return Statement(text, None, "There are no approvers to check it.")
        try:
            approval = approvers.open(text)
            if question is not None:
                approvers.check_bound(approval, question)
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
        people = 0 if self.gate.approvers is None else self.gate.approvers.count(approvals)
        if decision.verdict is Verdict.REFUSED:
            what = f"{shown} The policy lets nobody approve that."
        elif people < decision.approvers:
            what = f"{shown} It needed {decision.approvers} to approve it, and {people} did."
        else:
            return
        do = f"{FORGED} If your policy was looser at the time, give this check that one."
        yield Finding(rule, "warning" if people else "error", what, do, thread)


def impossible(link: Link, refusal: CheckpointError, rule: str) -> Finding:
    """Say that no workflow could have written a resumption."""
    what = f"{link.entry} could not have been resumed. {refusal.what}"
    return Finding(rule, "error", what, FORGED, link.entry.checkpoint.thread)


def outside(approval: Approval, created: datetime, lifetime: timedelta) -> str | None:
    """Return why an approval was not valid when the record was written, give or take a minute."""
    # Nothing is taken off `created`: whoever wrote it may have put the first day there is.
    just_late = timedelta() <= created - approval.expires < SKEW
    try:
        check_valid(approval, approval.issued if just_late else created, lifetime)
    except ApprovalExpired as refusal:
        return refusal.what
    return None
