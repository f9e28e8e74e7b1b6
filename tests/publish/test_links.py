"""A link, an anchor or an image that leads nowhere is named with its page, its line, and a way."""

from __future__ import annotations

from pathlib import Path

import pytest

from publish.links import broken_links
from publish.project import Project

GUIDE = """\
---
title: Guide
---

# The guide { .big #top }

## What to write
## What to write
## Use `seal` and *more*

A **word**{ #word }, <a id="old"></a> and [a way out](https://example.org/x#y).

[by name]: words/index.md#a-word "A word"
"""
WORDS = "# Words\n\n## A word\n"
FILLED = "# Filled\n\n<!-- fill errors -->\n"
REFERENCE = "# Reference\n\n::: safepoint.ledger\n"

FINE = {
    "a page": "[x](guide.md), [x](./words/index.md) and [x](words/../guide.md)",
    "a heading": "[x](guide.md#top), [x](guide.md#what-to-write), [x](words/index.md#a-word)",
    "a heading that stands twice": "[x](guide.md#what-to-write_1)",
    "a heading with markup": "[x](guide.md#use-seal-and-more)",
    "an anchor of its own": "[x](guide.md#word) and [x](guide.md#old)",
    "an anchor of this page": "[x](#here)\n\n## Here",
    "an image": "![x](assets/a.svg){ width=3 } and [![x](assets/a.svg)](guide.md)",
    "a file with odd letters": "[x](assets/a%20b(1).txt) and [x](<assets/a.svg> 'title')",
    "what the build makes": "[x](llms.txt), [x](examples/one.py) and ![x](assets/resume.svg)",
    "somewhere else": "[x](https://example.org), [x](mailto:a@example.org), [x](//example.org/#x)",
    "what only the build knows": "[x](filled.md#sealbroken) and [x](reference.md#ledger)",
    "a name of the reference": "[Ledger][safepoint.Ledger] and [safepoint.Ledger][]",
    "a note": "[^1] and [up](#fnref:1)\n\n[^1]: nowhere.md",
    "code": "`[x](nowhere.md)`, ``a ` [x](nowhere.md)``, `over\n[x](nowhere.md) lines`",
    "a block": "```text\n[x](nowhere.md)\n```\n\n1. x\n\n    ```text\n    [x](nowhere.md)\n    ```",
    "a comment": "<!-- [x](nowhere.md)\n[x](nowhere.md) -->",
    "brackets that are no link": r"a \[x\](nowhere.md), b[0] (nowhere.md)",
}
BROKEN = {
    "a page": ("[x](nowhere.md)", "3: there is no page nowhere.md; write its path from this page"),
    "a page with another name": ("[x](guid.md)", "3: there is no page guid.md; is it guide.md?"),
    "a page elsewhere": ("\nA [x\ny](../guide.md)", "5: there is no page ../guide.md; is it "),
    "a folder": ("[x](words/)", "3: there is no file words/; "),
    "the built address": ("[x](guide/)", "3: there is no file guide/; is it guide.md?"),
    "an image": ("a\n![x](assets/x.svg)", "4: there is no file assets/x.svg; is it assets/a.svg?"),
    "an image in a link": ("[![x](b.svg)](guide.md)", "3: there is no file b.svg; "),
    "an anchor": (
        "[x](guide.md#nothing-like-it)",
        "3: guide.md has no #nothing-like-it; take one of its headings",
    ),
    "an anchor with another name": (
        "[x](guide.md#what-to-writ)",
        "3: guide.md has no #what-to-writ; is it #what-to-write?",
    ),
    "an anchor in a block": ("[x](#one)\n\n```python\n# One\n```", "3: this page has no #one; "),
    "by a name": ("[x][y]\n\n[y]: nowhere.md", "5: there is no page nowhere.md; "),
    "by a name, an anchor": ("[x][y]\n\n[y]: <guide.md#z>", "5: guide.md has no #z; "),
    "after code": ("`a`\n\n`b\nc` [x](nowhere.md)", "6: there is no page nowhere.md; "),
    "after a lone backtick": ("a ` b\n\n[x](nowhere.md) `", "5: there is no page nowhere.md; "),
    "after a block": ("```text\n`\n```\n[x](nowhere.md)", "6: there is no page nowhere.md; "),
    "with a title": ('[x](nowhere.md "It\'s (this)")', "3: there is no page nowhere.md; "),
    "the root of the host": (
        "[x](/guide/)",
        "3: /guide/ begins at the root of the host; write the path from this page",
    ),
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    for folder in ("docs/assets", "docs/words", "snippets"):
        (tmp_path / folder).mkdir(parents=True)
    pages = {"guide": GUIDE, "words/index": WORDS, "filled": FILLED, "reference": REFERENCE}
    for name, text in pages.items():
        (tmp_path / f"docs/{name}.md").write_text(text, encoding="utf-8")
    for name in ("docs/assets/a.svg", "docs/assets/a b(1).txt", "snippets/one.py"):
        (tmp_path / name).touch()
    (tmp_path / "mkdocs.yml").write_text("nav: []\n", encoding="utf-8")
    return Project(tmp_path)


def write(project: Project, text: str) -> None:
    (project.docs / "page.md").write_text(f"# Page\n\n{text}\n", encoding="utf-8")


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_what_leads_somewhere_is_left_alone(project: Project, text: str) -> None:
    write(project, text)
    assert broken_links(project) == []


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_what_leads_nowhere_is_named_with_its_line(project: Project, text: str, said: str) -> None:
    write(project, text)
    [problem] = broken_links(project)
    assert problem.startswith(f"docs/page.md:{said}")


def test_every_link_is_looked_at_and_front_matter_counts(project: Project) -> None:
    (project.docs / "page.md").write_text(
        "---\ntitle: Page\n---\n\n# Page\n\n[x](a.md) [x](b.md)\n| [x](guide.md) | [x](c.md) |\n",
        encoding="utf-8",
    )
    (project.docs / "words/index.md").write_text("# W\n\n[x](../guide.md) [x](guide.md)\n")
    assert [problem.partition(";")[0] for problem in broken_links(project)] == [
        "docs/guide.md:13: words/index.md has no #a-word",
        "docs/page.md:7: there is no page a.md",
        "docs/page.md:7: there is no page b.md",
        "docs/page.md:8: there is no page c.md",
        "docs/words/index.md:3: there is no page guide.md",
    ]


def test_the_pages_of_this_site_lead_somewhere() -> None:
    assert broken_links(Project()) == []
