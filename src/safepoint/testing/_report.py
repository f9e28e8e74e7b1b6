"""Report: which claims a storage keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Outcome = Literal["passed", "failed", "not offered"]
PASSED: Final = "passed"
FAILED: Final = "failed"
NOT_OFFERED: Final = "not offered"


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of the suite, and what became of it.

    Attributes:
        name: the name of its method, without `test_`.
        sentence: what it claims.
        outcome: `passed`, `failed`, or `not offered`: the storage lacks what it is about.
        message: why it failed, or what is not offered.
    """

    name: str
    sentence: str
    outcome: Outcome
    message: str = ""

    def __str__(self) -> str:
        return f"{self.outcome:<11}  {self.name}{self.message and ': '}{self.message}"


@dataclass(frozen=True, slots=True)
class Report:
    """What became of each claim. It prints as a table.

    Attributes:
        claims: each of them, in the order of the suite.
    """

    claims: tuple[Claim, ...]

    @property
    def failed(self) -> tuple[Claim, ...]:
        """The claims that the storage does not keep."""
        return self.that(FAILED)

    @property
    def exit_code(self) -> int:
        """1 if a claim failed, 0 if none did."""
        return int(bool(self.failed))

    def that(self, outcome: Outcome) -> tuple[Claim, ...]:
        """Return the claims with this outcome."""
        return tuple(claim for claim in self.claims if claim.outcome == outcome)

    def __str__(self) -> str:
        counts = (f"{len(self.that(each))} {each}" for each in (PASSED, FAILED, NOT_OFFERED))
        return "\n".join(
            [*map(str, self.claims), f"{len(self.claims)} claims: {', '.join(counts)}"]
        )
