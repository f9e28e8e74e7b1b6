"""When an approval counts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from safepoint.approval.statement import Approval, noun
from safepoint.errors import ApprovalExpired
from safepoint.times import spelled

SKEW: Final = timedelta(seconds=60)


def check_valid(approval: Approval, now: datetime, lifetime: timedelta) -> None:
    """Refuse an approval that does not count at this time.

    Clocks may differ by a minute. That excuses an approval from the future, never an expired one.

    Raises:
        ApprovalExpired: it is too late, too early, or the approval is valid for too long.
    """
    if now >= approval.expires:
        raise ApprovalExpired(
            f"{noun(approval)} expired at {spelled(approval.expires)}, and it is {spelled(now)}.",
            f"Ask {approval.approver} again.",
        )
    if approval.issued - now > SKEW:
        raise ApprovalExpired(
            f"{noun(approval)} was issued at {spelled(approval.issued)}, and it is only"
            f" {spelled(now)}: that is more than the {SKEW.seconds} seconds by which clocks"
            " may differ.",
            f"Set the clocks of this machine and of {approval.approver} right, then ask again.",
        )
    valid = approval.expires - approval.issued
    if valid > lifetime:
        raise ApprovalExpired(
            f"{noun(approval)} is valid for {valid}, and the policy allows {lifetime}.",
            f"Ask {approval.approver} again, for a shorter time: approve(question, lifetime=...).",
        )
