"""Compare what a page shows with what was printed."""

from __future__ import annotations

from tests.harness.page import Failure


def difference(headline: str, expected: str, got: str) -> str:
    """Say that output differs, with both sides."""
    return f"{headline}\n--- the page\n{expected}\n+++ the run\n{got}"


def check_dots(expected: str, got: str) -> None:
    """Refuse three dots that stand for more than half of the output.

    Raises:
        Failure: the page shows too little of it.
    """
    literal = len("".join(expected.replace("...", "").split()))
    if 2 * literal < len("".join(got.split())):
        raise Failure("... stands for more than half of the output; show more of it")
