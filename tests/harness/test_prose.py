"""The lint of prose: each planted fault is found on its line, and the pages have none."""

from __future__ import annotations

import pytest

from tests.harness.prose import main, problems
from tests.harness.testing import page

LONG = "one long word " * 15
TOO_LONG = "a sentence of 46 words; make two of it, or a list"
FAULTS = [
    (f"Short. {LONG}ends.", 1, TOO_LONG),
    (f"x\n\nShort.\n{LONG}\n`x`.", 3, TOO_LONG),
    (f"| a | {LONG}ends. |", 1, TOO_LONG),
    ("[Click here](a.md) to go on.", 1, "the link 'Click here' does not say where it leads"),
    ("# A title\n\n## It ends. { #x }", 3, "the heading ends with '.'; leave that out"),
    ("You simply save.", 1, "'simply' shouts or belittles; leave it out"),
    ("- a\n- Just save.", 2, "'just' shouts or belittles; leave it out"),
    ("'''bash\n# FIXME\n'''", 2, "a TODO is left; write what it asks for, and remove it"),
    ("---\ntitle: x\n---\n\nJust so.", 5, "'just' shouts or belittles; leave it out"),
    ("'''python\nx\n'''\n\nJust", 5, "'just' shouts or belittles; leave it out"),
]
RIGHT = [
    "'''python\nx = simply\n'''",
    "The attribute `simply`, https://example.org/simply and [it](simply.md).",
    "<!-- simply --> It says `TODO`, is justified, and unjust.",
    "[Read about anchors](a.md), or [what is here](b.md).",
    f"{LONG.strip()}; {LONG.strip()}.",
    '<div class="rule rule--danger" markdown>',
]


@pytest.mark.parametrize(("text", "line", "what"), FAULTS)
def test_a_fault_is_found_on_its_line(text: str, line: int, what: str) -> None:
    [problem] = problems(page(text), "README.md")
    assert problem.startswith(f"README.md:{line}: {what}")


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_is_left_alone(text: str) -> None:
    assert problems(page(text), "README.md") == []


def test_the_pages_have_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    status = main()
    assert (status, capsys.readouterr().out) == (0, "")
