"""The project as the site sees it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from publish.broken import BrokenPage
from publish.finish import foot
from publish.machine.address import repository
from publish.project import Project

TITLE = 'docs/x.md:2: the title is words on one line, without < > & "'
NEITHER = "docs/x.md:1: neither --- nor a heading; begin with one of them"


def test_every_page_is_in_the_navigation_once() -> None:
    project = Project()
    assert sorted(project.navigation) == sorted(project.pages)
    assert len(set(project.navigation)) == len(project.navigation)


def test_every_page_says_what_it_is() -> None:
    """A title, and a sentence of a length that a search engine shows whole."""
    for page in Project().pages.values():
        assert page.title, page.src
        assert 40 <= len(page.description) <= 170, (page.src, len(page.description))


def test_addresses_are_those_that_mkdocs_makes() -> None:
    pages = Project().pages
    assert (pages["index.md"].url, pages["index.md"].twin) == ("", "index.md")
    assert pages["guide.md"].html == "guide/index.html"
    assert pages["security/seal.md"].twin == "security/seal.md"
    assert pages["reference/index.md"].url == "reference/"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"---\ntitle: x\nbad: [\n---\n# x\n",
            "docs/x.md:3: front matter that is no YAML",
        ),
        (b"---\n- a\n---\n# x\n", "docs/x.md:2: front matter without names; write title: and "),
        (b"# x\n\n\xff\n", "docs/x.md:3: not UTF-8; save the page as UTF-8"),
        (b'---\ntitle: "x\\x3cscript\\x3ego()"\n---\n# x\n', TITLE),
        (b"---\ntitle: [x]\n---\n# x\n", TITLE),
        (
            b"---\ndescription: '0;url=https://evil\" http-equiv=\"refresh'\n---\n# x\n",
            TITLE.replace("title", "description"),
        ),
        (b"---\nauthor: x\n---\n# x\n", "docs/x.md:2: front matter has 'author'; known: descr"),
        (b"title: <b>\n\n# x\n", NEITHER),
        (b"--- \ntitle: <b>\n---\n# x\n", NEITHER),
        (b"\xef\xbb\xbf---\ntitle: <b>\n---\n# x\n", NEITHER),
        (b"\n---\ntitle: <b>\n---\n# x\n", NEITHER),
    ],
    ids=["YAML", "a list", "bytes", *(f"smuggled {number}" for number in range(1, 9))],
)
def test_a_page_that_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/x.md").write_bytes(content)
    (tmp_path / "mkdocs.yml").write_text("nav: []\n", encoding="utf-8")
    with pytest.raises(BrokenPage) as refused:
        _ = Project(tmp_path).pages
    assert str(refused.value).startswith(said)


def test_the_foot_links_the_code_where_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project()
    page = project.pages["guide.md"]
    monkeypatch.delenv("REPO_URL", raising=False)
    assert "The code" not in foot(page, project, Counter())
    monkeypatch.setenv("REPO_URL", "https://code.example/team/safepoint")
    link = '<a href="https://code.example/team/safepoint">The code</a></p>'
    assert foot(page, project, Counter()).endswith(link)


@pytest.mark.parametrize("address", ["javascript:go()", "http://x/", 'https://x/"onclick="go()'])
def test_an_address_of_the_code_that_nobody_could_open_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("REPO_URL", address)
    with pytest.raises(BrokenPage, match="REPO_URL is not an https:// address; correct it, or "):
        repository()
