"""What a newcomer reads first says the same everywhere, and leads to what they came for."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.harness.blocks import ROOT, find_blocks

FOUR: Final = ["SP01", "SP02", "SP03", "SP04"]
PROOF: Final = ("python", "bash", "python", "text")
"""Save, attack, load, and the refusal."""


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def proof(page: str) -> list[str]:
    """Return the first blocks of a page that show a state saved, edited and refused."""
    blocks = find_blocks(read(page), page)
    (first, *_) = [n for n, block in enumerate(blocks) if "    store=" in block.text]
    shown = blocks[first : first + len(PROOF)]
    assert tuple(block.language for block in shown) == PROOF
    return [block.text for block in shown]


def test_home_and_readme_show_the_same_edit_refused() -> None:
    assert proof("docs/index.md") == proof("README.md")
    assert proof("docs/index.md")[-1].startswith("SealBroken: ")


@pytest.mark.parametrize("page", ["docs/guide.md", "docs/agent-framework.md"])
def test_a_page_on_checkpoints_begins_with_the_callouts_that_were_asked_for(page: str) -> None:
    """https://github.com/microsoft/agent-framework/issues/4872 asks for these four, there."""
    text = read(page)
    assert re.findall(r"^<!-- rule (\w+) -->$", text, re.MULTILINE) == FOUR
    first = find_blocks(text, page)[0].text
    assert text.index("SDL") < text.index("<!-- rule SP04 -->") < text.index(first)


def test_the_guide_says_which_folders_to_delete_before_it_runs_again() -> None:
    guide = read("docs/guide.md")
    code = "\n".join(block.text for block in find_blocks(guide, "docs/guide.md"))
    made = set(re.findall(r'"(\w+)[\w/.]*",[^\n"]*create=True', code))
    made |= set(re.findall(r'Storage\("(\w+)/', code))
    (said,) = re.findall(r"delete the folders (.*?), and restart", guide, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", said)) == made
