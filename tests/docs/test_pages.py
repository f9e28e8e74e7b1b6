"""What holds for every page, beyond that its blocks run. One test per claim, with all offenders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from safepoint.command.cli import COMMANDS
from safepoint.rules import RULES
from tests.harness.blocks import ROOT, find_blocks

DOCS = ROOT / "docs"
PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
}
SECURITY = {name: text for name, text in PAGES.items() if name.startswith("docs/security/")}
COLUMNS = 72
OTHER_SOFTWARE = ("agent-framework-core", "fickling")

_VERSION = r"(?P<version>\d+(?:\.\d+)+\w*)"
_TITLE = re.compile(rf"(?P<name>[a-z][a-z0-9._-]*) {_VERSION}")
_MENTION = re.compile(
    rf"\b(?P<name>{'|'.join(OTHER_SOFTWARE)})`?(?:\]\([^)]*\))?\s+(?:version )?v?{_VERSION}"
)


def test_code_is_narrow_enough_for_a_phone_on_its_side() -> None:
    """Only what is printed may be wider: an error is one line, however long."""
    wide = [
        f"{name}: {line}"
        for name, text in PAGES.items()
        for block in find_blocks(text, name)
        if block.language in ("python", "bash")
        for line in block.text.splitlines()
        if len(line) > COLUMNS and not line.lstrip().startswith("#>")
    ]
    assert wide == []


ROWS = tuple(
    rf"\n\| \*\*{row}\*\* \|"
    for row in ("The attack", "The fix", "In your framework", "Still possible")
)
TAUGHT = {f"docs/{rule.page}" for rule in RULES.values()}
FIX = (r"\n## The fix \{ #what-to-write \}", r"\n## What is refused \{ #the-refusal \}")
REST = (
    r"\n## What this does not cover \{ #where-it-stops-helping \}",
    "\n## Checklist",
    r"\n- \[ \] ",
    r"\*\*Tested by\*\* `tests/",
    "safepoint[. ]attack",
)


def has_the_form(name: str, text: str) -> bool:
    head = ("<!-- rule SP", *(ROWS if name in TAUGHT else ()), "\n## The attack")
    forms = [".*?".join((*head, *fix, *REST)) for fix in (FIX, FIX[::-1])]
    return any(re.search(form, text, re.DOTALL) for form in forms)


def test_a_page_of_a_rule_has_the_page_form() -> None:
    """Four rows, attack, fix and what is refused, what it does not cover, checklist, tests."""
    pages = SECURITY | {name: PAGES[name] for name in TAUGHT}
    assert [name for name, text in pages.items() if not has_the_form(name, text)] == []


def named_versions(text: str, page: str) -> Iterator[tuple[str, str]]:
    """Yield each distribution that a page names with a version, in a title or in its text."""
    for block in find_blocks(text, page):
        title = _TITLE.fullmatch(block.attributes.get("title", ""))
        if title:
            yield title["name"], title["version"]
    for mention in _MENTION.finditer(text):
        yield mention["name"], mention["version"]


def test_a_version_on_a_page_is_the_one_that_ran() -> None:
    """And the pages do say which versions of other software ran."""
    named = {pair for name, text in PAGES.items() for pair in named_versions(text, name)}
    assert {(name, metadata.version(name)) for name, _ in named} == named
    assert set(OTHER_SOFTWARE) <= {name for name, _ in named}


def test_the_tests_that_a_page_names_are_there_and_the_command_below_runs_them() -> None:
    below = r"(^\*\*Tested by\*\* `tests/.*?)\n\n```\{ \.bash .*?\n(.*?)\n```"
    for name, text in PAGES.items():
        pairs = re.findall(below, text, re.MULTILINE | re.DOTALL)
        assert len(pairs) == text.count("**Tested by** `tests/"), name
        for pair in pairs:
            named, run = (re.findall(r"tests/[\w/]+/test_\w+\.py", each) for each in pair)
            assert named == run, name
            assert all((ROOT / test).is_file() for test in named), name


def test_the_page_of_rules_lists_every_snippet() -> None:
    listed = re.findall(r"^\| \[`(.*?)`\]\(examples/\1\) \|", PAGES["docs/rules.md"], re.M)
    assert {file.name for file in (ROOT / "snippets").glob("*.py")} <= set(listed)


def test_every_command_is_typed_on_a_page_and_runs_there() -> None:
    """A block with a check is compared with something, and does not run."""
    typed = {
        name
        for page, text in PAGES.items()
        for block in find_blocks(text, page)
        if block.language == "bash" and "data-check" not in block.attributes
        for name in re.findall(r"^(?:.*[|(] *)?safepoint ([a-z-]+)", block.text, re.MULTILINE)
    }
    assert sorted(set(COMMANDS) - typed) == []
