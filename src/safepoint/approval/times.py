"""Times: in UTC, never without a time zone, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from safepoint.errors import ConfigurationError, quoted


def utc(moment: object) -> datetime:
    """Return an aware datetime in UTC.

    Raises:
        ConfigurationError: it is none, or has no time zone.
    """
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise ConfigurationError(
            "The time is not a datetime with a time zone.", "Write datetime.now(UTC)."
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ConfigurationError(
            "The time is outside of the years 1 to 9999 in UTC.", "Write datetime.now(UTC)."
        ) from None


def check_lifetime(lifetime: object) -> timedelta:
    """Return how long something is valid.

    Raises:
        ConfigurationError: it is not a time, or not above zero.
    """
    if not isinstance(lifetime, timedelta) or lifetime <= timedelta():
        raise ConfigurationError(
            f"The lifetime {quoted(lifetime)} is not a timedelta above zero.",
            "Write lifetime=timedelta(hours=1).",
        )
    return lifetime
