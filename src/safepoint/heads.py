"""Heads: how far a thread had come when somebody looked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from safepoint.errors import InvalidId, quoted
from safepoint.header import is_digest
from safepoint.ids import check_sequence


@dataclass(frozen=True, slots=True, order=True)
class Head:
    """The end of a thread as somebody saw it: its last sequence, and that record's digest.

    Raises:
        InvalidId: the sequence or the digest is outside its grammar.
    """

    sequence: int
    digest: str

    def __post_init__(self) -> None:
        check_sequence(self.sequence)
        if not is_digest(self.digest):
            raise InvalidId(
                f"{quoted(self.digest)} is not a digest.",
                "Digests are 'sha256:' and 64 hex digits.",
            )

    def __str__(self) -> str:
        return f"#{self.sequence}"


class Heads(Protocol):
    """Anything that remembers how far a thread had come: an anchor, or a copy of one."""

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was."""
