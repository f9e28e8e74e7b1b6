"""The policy: how many people each reason needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from safepoint.errors import ConfigurationError, quoted
from safepoint.reasons import Reason

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
    from safepoint.reasons import Reason

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
