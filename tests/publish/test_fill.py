"""A page that is broken stops the build, with its name, the line, and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from publish.broken import BrokenPage
from publish.check import check
from publish.fill import FILLS, broken_lines, fill
from publish.project import Project
from tests.harness.blocks import ROOT

BROKEN = {
    "an unknown rule": ("See SP99.", "3: there is no rule SP99; see src/safepoint/rules.toml"),
    "an unknown fill": ("<!-- fill nothing -->", "3: nothing fills in 'nothing'; known: "),
    "a missing include": ('```python\n--8<-- "gone.py"\n```', "4: "),
    "a fence without an end": ("```python\n1", "3: this fence is never closed; add ``` at "),
    "an unknown language": ("```klingon\nqapla\n```", "3: "),
}


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_page_is_refused_with_its_line(text: str, said: str) -> None:
    [problem] = broken_lines("page.md", f"# Page\n\n{text}\n", Project())
    assert problem.startswith(f"docs/page.md:{said}")


def built(tmp_path: Path, pages: Mapping[str, str], link: str = "") -> str:
    """Build a site of these pages, which fails; return what was said."""
    for folder in ("docs", "snippets", "overrides"):
        (tmp_path / folder).mkdir()
    for name, text in pages.items():
        (tmp_path / "docs" / name).write_text(f"# Page\n\n{text}\n", encoding="utf-8")
    if link:
        (tmp_path / "docs" / link).symlink_to(tmp_path / "private")
    hooks = [str(ROOT / "publish/hooks.py")]
    settings = {"site_name": "x", "hooks": hooks, "plugins": [], "nav": [{"Home": "index.md"}]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_build_ends_with_those_lines_of_all_pages(tmp_path: Path) -> None:
    pages = {f"{number}.md": text for number, (text, _) in enumerate(BROKEN.values())}
    said = built(tmp_path, {"index.md": "x", **pages})
    for number, (_, problem) in enumerate(BROKEN.values()):
        assert f"docs/{number}.md:{problem}" in said


def test_the_build_ends_at_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    said = built(tmp_path, {"index.md": "[x](gone.md)"})
    assert "docs/index.md:3: there is no page gone.md" in said


def test_the_build_ends_at_a_file_that_nobody_meant(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("private", encoding="utf-8")
    said = built(tmp_path, {"index.md": "x"}, link="leak.png")
    assert "docs/leak.png: a link, and what it leads to would be published" in said


def test_every_page_of_this_site_is_whole() -> None:
    check(Project())


def test_every_fill_is_used_and_writes_something() -> None:
    project = Project()
    text = "\n".join(page.text for page in project.pages.values())
    for name, write in FILLS.items():
        assert f"<!-- fill {name} -->\n" in text
        assert write(project).strip(), name


def test_what_is_filled_in_holds_no_block() -> None:
    """Nobody would have run it."""
    project = Project()
    for name, write in FILLS.items():
        assert "```" not in write(project), name


def test_a_marker_becomes_what_it_stands_for() -> None:
    project = Project()
    filled = fill("# Errors\n\n<!-- fill errors -->\n\nThe end", project)
    assert filled.startswith("# Errors\n\n")
    assert "SealBroken" in filled
    assert "<!-- fill" not in filled


@pytest.mark.parametrize(
    "text",
    [
        "- <script>alert(1)</script>",
        "<!--><pre>hidden = 1</pre><!-- x -->",
        '<meta http-equiv="refresh" content="0">',
        "```python\n1\n```",
    ],
    ids=["a script", "a comment that ends early", "a redirect", "a block"],
)
def test_what_is_filled_in_may_not_hold_what_a_page_may_not(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It comes from other files: the changelog, the evidence, tables."""
    monkeypatch.setattr("publish.fill.FILLS", {"changes": lambda _: text})
    with pytest.raises(BrokenPage, match=r"^docs/\(filled in by changes\)"):
        fill("<!-- fill changes -->", Project())
