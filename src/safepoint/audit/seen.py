"""Seen: what the checks of a command found, and which of them failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from safepoint.audit.finding import Finding
from safepoint.errors import CheckpointError

Check = Callable[[], Iterable[Finding]]


class Seen:
    """What the checks found. One that fails does not keep the others from being made.

    Attributes:
        findings: each by its words: two rules may speak of one thing in the same ones, and the
            first is enough to mend it.
        failures: one line for each check that was not made, or not to its end.
    """

    def __init__(self) -> None:
        self.findings: dict[str, Finding] = {}
        self.failures: dict[str, None] = {}

    def add(self, name: str, check: Check) -> None:
        """Make a check, and keep what it finds."""
        try:
            for finding in check():
                self.findings.setdefault(finding.what, finding)
        except CheckpointError as refusal:
            self.failures[str(refusal)] = None
        except Exception as error:  # noqa: BLE001  whoever wrote the store may have meant it to
            line = f"The check of {name} failed: {type(error).__name__}. Report it."
            self.failures[line] = None
