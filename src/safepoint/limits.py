"""The limits that bound work before any parsing begins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a checkpoint may be. Everything above is refused with `LimitExceeded`.

    Attributes:
        state_bytes: the encoded state.
        depth: nesting of containers in the state.
        items: values in the encoded state.
    """

    state_bytes: int = 16 * 1024 * 1024
    depth: int = 64
    items: int = 1_000_000

    @property
    def record_bytes(self) -> int:
        """The whole record: the state and the two lines above it."""
        return self.state_bytes + 4096


DEFAULT_LIMITS = Limits()
