"""For the mains of pickles and weights, until `safepoint.models.command` takes their place."""

from __future__ import annotations

from collections.abc import Iterable

from safepoint.cli import Parser, keyring_of

__all__ = ["Parser", "keyring_of", "print_lines"]


def print_lines(lines: Iterable[str]) -> None:
    """Print."""
    for line in lines:
        print(line, flush=True)
