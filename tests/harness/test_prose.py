"""The lint of prose: each planted fault is found on its line, and the pages have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.prose import main, problems
from tests.harness.testing import page

LONG = "one long word " * 15
DESCRIPTION = "What this page is about, in one sentence of a fair length."
FRONT = f"---\ndescription: {DESCRIPTION}\n---\n\n"

FAULTS = {
    "long": (f"Short. {LONG}ends.", 1, "a sentence of 46 words; make two of it, or a list"),
    "long over lines": (
        f"x\n\nShort.\n{LONG}\n`x`.",
        3,
        "a sentence of 46 words; make two of it, or a list",
    ),
    "long cell": (f"| a | {LONG}ends. |", 1, "a sentence of 46 words; make two of it, or a list"),
    "click here": (
        "[Click here](a.md) to go on.",
        1,
        "the link 'Click here' does not say where it leads; name what is there",
    ),
    "period": ("# A title\n\n## It ends.", 3, "the heading ends with '.'; leave that out"),
    "anchor": ("## It ends. { #x }", 1, "the heading ends with '.'; leave that out"),
    "levels": ("# A\n\n### B", 3, "a heading of level 3 below one of level 1; use 2"),
    "titles": ("# A\n\n# B", 3, "a second title; use ##"),
    "alt": ("![](a.svg)", 1, "an image without a text; say in the brackets what it shows"),
    "belittles": ("You simply save.", 1, "'simply' shouts or belittles; leave it out"),
    "just": ("- a\n- Just save.", 2, "'just' shouts or belittles; leave it out"),
    "left": ("'''bash\n# FIXME\n'''", 2, "a TODO is left; write what it asks for, and remove it"),
    "behind code": ("'''python\nx\n'''\n\nJust", 5, "'just' shouts or belittles; leave it out"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_on_its_line(name: str) -> None:
    text, line, what = FAULTS[name]
    assert problems(page(text), "README.md") == [f"README.md:{line}: {what}"]


@pytest.mark.parametrize(
    "text",
    [
        "'''python\nx = simply\n'''",
        "The attribute `simply`, https://example.org/simply and [it](simply.md).",
        "<!-- simply -->",
        "It says `TODO`.",
        "[Read about anchors](a.md), or [what is here](b.md).",
        f"{LONG.strip()}. {LONG.strip()}.",
        f"{LONG.strip()}; {LONG.strip()}.",
        "It is justified, and unjust.",
        "![a drawing](a.svg)",
        "# A\n\n## B\n\n### C\n\n## D",
        "## What now?",
        '<div class="rule rule--danger" markdown>',
    ],
)
def test_what_is_right_is_left_alone(text: str) -> None:
    assert problems(page(text), "README.md") == []


@pytest.mark.parametrize(
    ("front", "what"),
    [
        ("", "the page has no description; add one to its front matter, between --- lines"),
        ("---\ntitle: X\n---\n", "the page has no description; add one to its front matter, "),
        (
            "---\ndescription: Too short.\n---\n",
            "the description has 10 characters; write 50 to 160",
        ),
        (f"---\ndescription: {'x' * 161}\n---\n", "the description has 161 characters; write 50"),
        (f"---\ndescription: {'x' * 60}\n---\n", "the description is no sentence; end it with a"),
    ],
)
def test_a_page_of_the_site_needs_a_description(front: str, what: str) -> None:
    [problem] = problems(f"{front}# A\n", "docs/a.md")
    assert problem.startswith(f"docs/a.md:1: {what}")
    assert problems(f"{front}# A\n", "README.md") == []


def test_lines_are_counted_from_the_top_of_the_file() -> None:
    assert problems(f"{FRONT}Just so.\n", "docs/a.md") == [
        "docs/a.md:5: 'just' shouts or belittles; leave it out"
    ]


def test_two_pages_have_no_description_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"docs/{name}.md").write_text(f"{FRONT}# A\n")
    assert main(tmp_path) == 1
    assert capsys.readouterr().out == (
        "docs/b.md:1: docs/a.md has the same description; say what this one is about\n"
    )


def test_the_pages_have_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    status = main()
    assert (status, capsys.readouterr().out) == (0, "")
