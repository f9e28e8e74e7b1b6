"""What holds for every page, beyond that its blocks run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.blocks import ROOT, find_blocks

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COLUMNS = 72


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_is_narrow_enough_for_a_phone_on_its_side(page: Path) -> None:
    """Only what is printed may be wider: an error is one line, however long."""
    blocks = find_blocks(page.read_text(encoding="utf-8"), page)
    wide = [
        line
        for block in blocks
        if block.language in ("python", "bash")
        for line in block.text.splitlines()
        if len(line) > COLUMNS and not line.lstrip().startswith("#>")
    ]
    assert wide == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_does_not_shout_or_belittle(page: Path) -> None:
    """The style guide's short list of words, outside of code."""
    text = page.read_text(encoding="utf-8")
    for block in find_blocks(text, page):
        text = text.replace(block.text, "")
    for word in ("simply", "obviously", " just ", "!!! danger", "easily"):
        assert word not in text.lower()


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/security").glob("*.md")), ids=lambda p: p.name
)
def test_a_security_page_has_the_page_form(page: Path) -> None:
    """Attack, refusal, fix, where it stops helping, checklist: in this order."""
    text = page.read_text(encoding="utf-8")
    parts = [
        "<!-- rule SP",
        "## The attack",
        "## The refusal",
        "## What to write",
        "## Where it stops helping",
        "## Checklist",
        "- [ ] ",
        "**Tested by** `tests/",
        "python -m safepoint.attacks",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_the_examples_page_lists_every_snippet() -> None:
    text = (ROOT / "docs/examples.md").read_text(encoding="utf-8")
    for snippet in (ROOT / "snippets").glob("*.py"):
        assert f"| `{snippet.name}` |" in text
