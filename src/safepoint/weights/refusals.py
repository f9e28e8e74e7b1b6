"""The two refusals of a model file that say the same next step wherever they are raised."""

from __future__ import annotations

from typing import Final

from safepoint.errors import LimitExceeded, ModelMalformed

AGAIN: Final = "Get the file again, or write it again with torch.save. Nothing was loaded."


def malformed(what: str) -> ModelMalformed:
    """Return the error for a file that `torch.save` does not write like this."""
    return ModelMalformed(what, AGAIN)


def over_limit(what: str, limit: str, meant: str = "be that large") -> LimitExceeded:
    """Return the error for a file that is over the limit of that name."""
    return LimitExceeded(what, f"If it is meant to {meant}, raise ModelLimits.{limit}.")
