"""Report: what an audit looked at, found, and could not look at; and the exit status of that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from safepoint.audit.finding import WORST_FIRST, Finding, Severity

FAILED: Final = "audit.failed"
"""The id of a check that could not be made. Nobody knows what it would have found."""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of an audit, complete, for people and for programs.

    Attributes:
        looked: what was looked at, each with what it was found to be.
        findings: all of them, the worst first; those that somebody accepted are among them.
        settings: the file that said what to look at and what to accept, None if there is none.
    """

    looked: tuple[str, ...]
    findings: tuple[Finding, ...]
    settings: Path | None = None

    def status(self, fail_on: Severity = "warning") -> int:
        """Return the exit status: 0 nothing to do, 1 findings, 2 it could not look.

        It is never 0 if nothing was looked at, or if something that was named was not seen.
        """
        if not self.looked or any(each.id == FAILED for each in self.findings):
            return 2
        open_ones = [each for each in self.findings if each.accepted is None]
        most = WORST_FIRST.index(fail_on)
        if any(WORST_FIRST.index(each.severity) <= most for each in open_ones):
            return 1
        return 0 if all(each.seen for each in open_ones) else 2
