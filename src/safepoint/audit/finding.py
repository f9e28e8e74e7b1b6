"""Finding: one thing that a check saw, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["error", "warning", "note"]

_WORST_FIRST: Final[tuple[Severity, ...]] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of one rule.

    Attributes:
        rule: the id of the rule, for example "SP04".
        severity: "error" if it is unsafe, "warning" if it may be, "note" if you should know.
        what: what was found, as one sentence on one line.
        do: what to do, with the command to run where there is one.
        where: the path, or the thread, that it is about, as it is.
    """

    rule: str
    severity: Severity
    what: str
    do: str
    where: str

    def __str__(self) -> str:
        return f"{self.rule} {self.severity}: {self.what} {self.do}"


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return errors before warnings before notes, and otherwise as they were found."""
    return sorted(findings, key=lambda finding: _WORST_FIRST.index(finding.severity))
