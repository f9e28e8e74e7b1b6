"""Filling in callouts: from the rules, idempotent, and refused with page and line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from safepoint.rules import LEGS, Rule, Severity
from tests.harness.callouts import CalloutError, filled, index_markdown, main
from tests.harness.testing import page

RULES = {
    "SP01": Rule(
        "SP01",
        "Storage",
        "A boundary",
        "danger",
        "own",
        "Guard it.",
        None,
        {**dict.fromkeys(LEGS, ()), "attack": ("edit",)},
    )
}
EMPTY = "# T\n\n<!-- rule SP01 -->\n<!-- /rule -->\n\nMore.\n"
FULL = """\
# T

<!-- rule SP01 -->
<div class="rule rule--danger" markdown>

Danger

**[SP01](../rules.md#sp01) · A boundary**

Guard it.
</div>
<!-- /rule -->

More.
"""


def test_a_callout_is_filled_in_and_stays_as_it_is() -> None:
    """With the link relative to the page; an old text is replaced."""
    assert filled(EMPTY, "docs/security/x.md", RULES) == FULL
    assert filled(FULL, "docs/security/x.md", RULES) == FULL
    assert filled(FULL.replace("Guard it.", "Old."), "docs/security/x.md", RULES) == FULL


@pytest.mark.parametrize(
    ("severity", "word"), [("danger", "Danger"), ("warning", "Warning"), ("info", "Note")]
)
def test_a_callout_says_in_words_how_much_it_matters(severity: Severity, word: str) -> None:
    """In a paragraph of its own, so that it is there without any style sheet."""
    rules = {"SP01": replace(RULES["SP01"], severity=severity)}
    text = filled(EMPTY, "docs/x.md", rules)
    assert f'<div class="rule rule--{severity}" markdown>\n\n{word}\n\n**[SP01](' in text
    assert f"*{word}; from own.*" in index_markdown(rules)


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("docs/x.md", "rules.md"),
        ("README.md", "docs/rules.md"),
        ("docs/a/b/x.md", "../../rules.md"),
    ],
)
def test_the_link_leads_to_the_rules_page(name: str, link: str) -> None:
    """From wherever the page is."""
    assert f"**[SP01]({link}#sp01) " in filled(EMPTY, name, RULES)


@pytest.mark.parametrize(
    ("name", "link"), [("docs/index.md", "a/b.md"), ("docs/a/b.md", "../rules.md#sp01")]
)
def test_the_link_leads_to_the_page_of_the_rule(name: str, link: str) -> None:
    """Except on that page itself."""
    rules = {"SP01": replace(RULES["SP01"], page="a/b.md")}
    assert f"**[SP01]({link}) " in filled(EMPTY, name, rules)


def test_a_callout_keeps_the_indent_of_its_marker() -> None:
    """So that it can stand in a list."""
    text = filled("- x\n\n    <!-- rule SP01 -->\n    <!-- /rule -->\n", "docs/x.md", RULES)
    inside = text.split("\n")[3:-2]
    assert all(line.startswith("    ") for line in inside if line)
    assert "    Guard it." in inside


def test_the_index_lists_every_rule_with_its_legs() -> None:
    """A leg that is missing is planned, visibly."""
    index = (
        "| rule | what it says | severity |\n|:---|:---|:---|\n"
        "| [SP01](#sp01) | A boundary "
        "| *danger*{ .severity--danger }, defence, test, check planned |\n\n"
        "## Storage\n\n### SP01 · A boundary { #sp01 }\n\nGuard it. *Danger; from own.*\n\n"
        "- Attack: [`edit`](attacks.md#edit)\n- Planned: defence, test, check"
    )
    assert index_markdown(RULES) == index
    text = filled("<!-- rules index -->\nold\n<!-- /rules index -->\n", "docs/rules.md", RULES)
    assert text == f"<!-- rules index -->\n{index}\n<!-- /rules index -->\n"


def test_the_index_leads_to_what_a_rule_stands_on_and_says_only_what_is_missing() -> None:
    """A test is not on the site, so it has a name and no link."""
    legs = {
        "attack": ("edit",),
        "defence": ("snippets/own.py",),
        "test": ("tests/x.py::test_edit",),
        "check": ("safepoint.audit:check_it",),
    }
    index = index_markdown({"SP01": replace(RULES["SP01"], legs=legs)})
    assert "| *danger*{ .severity--danger } |\n" in index
    assert index.endswith(
        "- Attack: [`edit`](attacks.md#edit)\n"
        "- Defence: [`own.py`](examples/own.py)\n"
        "- Test: `test_edit`\n"
        "- Check: [`check_it`](reference/audit.md#safepoint.audit.check_it)"
    )
    none = replace(RULES["SP01"], legs=dict.fromkeys(LEGS, ()))
    assert "| *danger*{ .severity--danger }, planned |" in index_markdown({"SP01": none})


def test_markers_inside_a_block_are_left_alone() -> None:
    """A page may show how to write one."""
    text = page("'''text\n<!-- rule SP99 -->\n'''")
    assert filled(text, "docs/x.md", RULES) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n<!-- rule SP99 -->\n<!-- /rule -->", "docs/x.md:2: there is no rule SP99"),
        ("<!-- rule SP01 -->\n", "docs/x.md:1: this callout has no end"),
        ("<!-- rule SP01 -->\n<!-- rule SP01 -->", "docs/x.md:1: this callout has no end"),
        ("x\n<!-- /rule -->", "docs/x.md:2: this ends no callout"),
        ("<!-- rule SP01 -->\n<!-- /rules index -->", "docs/x.md:2: this ends no callout"),
    ],
)
def test_a_bad_marker_is_refused_with_page_and_line(text: str, message: str) -> None:
    """Each in one line."""
    with pytest.raises(CalloutError) as error:
        filled(text, "docs/x.md", RULES)
    assert str(error.value).startswith(message)


def test_the_command_checks_fills_in_and_then_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--check` changes nothing."""
    file = tmp_path / "docs" / "security" / "x.md"
    file.parent.mkdir(parents=True)
    file.write_text(EMPTY, encoding="utf-8")
    assert main(["--check"], root=tmp_path, rules=RULES) == 1
    assert (
        "docs/security/x.md: what is filled in is out of date. Run make fix"
        in capsys.readouterr().out
    )
    assert file.read_text(encoding="utf-8") == EMPTY
    assert main([], root=tmp_path, rules=RULES) == 0
    assert file.read_text(encoding="utf-8") == FULL
    assert main(["--check"], root=tmp_path, rules=RULES) == 0
    file.write_text("<!-- rule SP99 -->\n<!-- /rule -->\n", encoding="utf-8")
    assert main([], root=tmp_path, rules=RULES) == 1
