"""The command line, without a process of its own."""

from __future__ import annotations

from collections.abc import Sequence

from safepoint.cli import main


def audit(arguments: Sequence[str]) -> int:
    """Run `safepoint audit`."""
    return main(["audit", *arguments])


def storage_suite(arguments: Sequence[str]) -> int:
    """Run `safepoint test-storage`."""
    return main(["test-storage", *arguments])
