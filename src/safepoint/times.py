"""Times: written in one way, wherever somebody may compare them."""

from __future__ import annotations

from datetime import UTC, datetime


def spelled(moment: datetime) -> str:
    """Return an aware time in UTC as records, approvals, leases and journals write it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)
