"""What holds for every page, beyond that its blocks run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.blocks import ROOT, find_blocks

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COLUMNS = 72
OTHER_SOFTWARE = ("agent-framework-core", "fickling")

_VERSION = r"(?P<version>\d+(?:\.\d+)+\w*)"
_TITLE = re.compile(rf"(?P<name>[a-z][a-z0-9._-]*) {_VERSION}")
_MENTION = re.compile(
    rf"\b(?P<name>{'|'.join(OTHER_SOFTWARE)})`?(?:\]\([^)]*\))?\s+(?:version )?v?{_VERSION}"
)


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
        "safepoint attack",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def named_versions(text: str, page: Path) -> Iterator[tuple[str, str]]:
    """Yield each distribution that a page names with a version, in a title or in its text."""
    for block in find_blocks(text, page):
        title = _TITLE.fullmatch(block.attributes.get("title", ""))
        if title:
            yield title["name"], title["version"]
    for mention in _MENTION.finditer(text):
        yield mention["name"], mention["version"]


@pytest.mark.parametrize(
    "text",
    [
        '```{ .python title="fickling 0.0.1" }\n1\n```',
        '```python title="fickling 0.0.1"\n1\n```',
        "It ran on fickling 0.0.1.",
        "It ran on `fickling`\n0.0.1.",
        "It ran on [`fickling`](https://example.org) v0.0.1, which",
    ],
)
def test_a_version_is_found_however_it_is_written(text: str) -> None:
    assert set(named_versions(text, Path("docs/x.md"))) == {("fickling", "0.0.1")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_version_on_a_page_is_the_one_that_ran(page: Path) -> None:
    for name, version in named_versions(page.read_text(encoding="utf-8"), page):
        assert (name, version) == (name, metadata.version(name))


def test_the_pages_say_which_versions_of_other_software_ran() -> None:
    named = [n for page in PAGES for n, _ in named_versions(page.read_text("utf-8"), page)]
    assert set(OTHER_SOFTWARE) <= set(named)


def missing_tests(text: str) -> list[str]:
    """List the files that the `Tested by` line names and that are not there."""
    (line,) = re.findall(r"^\*\*Tested by\*\* (.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    named = re.findall(r"tests/[^\s`:]*", line)
    assert named
    return [name for name in named if not (name.endswith(".py") and (ROOT / name).is_file())]


def test_a_test_that_is_not_there_is_missed() -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    text = f"**Tested by** `{here}::test_x` and\n`tests/no.py`. Try:\n\n`tests/later.py`\n"
    assert missing_tests(text) == ["tests/no.py"]


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/security").glob("*.md")), ids=lambda p: p.name
)
def test_the_tests_that_a_security_page_names_are_there(page: Path) -> None:
    assert missing_tests(page.read_text(encoding="utf-8")) == []


class _Config(yaml.SafeLoader):
    """Reads mkdocs.yml, whose `!ENV` is of no interest here."""


_Config.add_constructor("!ENV", lambda *_: "")


def test_the_reference_shows_a_return_of_two_lines_as_one() -> None:
    config: Any = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _Config)  # noqa: S506
    (plugin,) = [p["mkdocstrings"] for p in config["plugins"] if "mkdocstrings" in p]
    options = plugin["handlers"]["python"]["options"]
    assert options["docstring_options"] == {"returns_multiple_items": False}


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/reference").glob("*.md")), ids=lambda p: p.name
)
def test_a_module_without_a_heading_is_not_in_the_contents(page: Path) -> None:
    objects = page.read_text(encoding="utf-8").split("\n::: ")[1:]
    assert objects
    for text in objects:
        without_heading = "show_root_heading: false\n" in text
        assert without_heading == ("show_root_toc_entry: false\n" in text)


def test_the_examples_page_lists_every_snippet() -> None:
    text = (ROOT / "docs/examples.md").read_text(encoding="utf-8")
    for snippet in (ROOT / "snippets").glob("*.py"):
        assert f"| [`{snippet.name}`](examples/{snippet.name}) |" in text
