"""Filling in callouts: from the rules, idempotent, and refused with page and line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from safepoint.rules import LEGS, Rule
from tests.harness.callouts import CalloutError, filled, index_markdown, main
from tests.harness.testing import page

NO_LEGS: dict[str, tuple[str, ...]] = dict.fromkeys(LEGS, ())
RULE = Rule("SP01", "Storage", "A boundary", "danger", "own", "Guard it.", None, NO_LEGS)
RULES = {"SP01": RULE}
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
    """It says in words how much it matters, replaces an old text, and keeps a list's indent."""
    for text in (EMPTY, FULL, FULL.replace("Guard it.", "Old.")):
        assert filled(text, "docs/security/x.md", RULES) == FULL
    info = {"SP01": replace(RULE, severity="info")}
    assert '<div class="rule rule--info" markdown>\n\nNote\n\n' in filled(EMPTY, "docs/x.md", info)
    text = filled("- x\n\n    <!-- rule SP01 -->\n    <!-- /rule -->\n", "docs/x.md", RULES)
    assert "\n    Guard it.\n    </div>\n" in text
    shown = page("'''text\n<!-- rule SP99 -->\n'''")
    assert filled(shown, "docs/x.md", RULES) == shown, "a page may show how to write one"


@pytest.mark.parametrize(
    ("name", "its_page", "link"),
    [
        ("README.md", None, "docs/rules.md#sp01"),
        ("docs/a/b/x.md", None, "../../rules.md#sp01"),
        ("docs/index.md", "a/b.md", "a/b.md"),
        ("docs/a/b.md", "a/b.md", "../rules.md#sp01"),
    ],
)
def test_the_link_leads_to_the_page_of_the_rule_or_to_the_list(
    name: str, its_page: str | None, link: str
) -> None:
    assert f"**[SP01]({link}) " in filled(EMPTY, name, {"SP01": replace(RULE, page=its_page)})


def test_the_index_leads_to_what_a_rule_stands_on_and_says_what_is_missing() -> None:
    """A test is not on the site, so it has a name and no link."""
    legs = {
        "attack": ("edit",),
        "defence": ("snippets/own.py",),
        "test": ("tests/x.py::test_edit",),
        "check": (),
    }
    index = index_markdown({"SP01": replace(RULE, legs=legs)})
    assert index == (
        "| rule | what it says | severity |\n|:---|:---|:---|\n"
        "| [SP01](#sp01) | A boundary | *danger*{ .severity--danger }, check planned |\n\n"
        "## Storage\n\n### SP01 · A boundary { #sp01 }\n\nGuard it. *Danger; from own.*\n\n"
        "- Attack: [`edit`](attacks.md#edit)\n"
        "- Defence: [`own.py`](examples/own.py)\n"
        "- Test: `test_edit`\n"
        "- Planned: check"
    )
    whole = replace(RULE, legs={**legs, "check": ("safepoint.audit:check_it",)})
    assert "- Check: [`check_it`](reference/audit.md#safepoint.audit.check_it)" in index_markdown(
        {"SP01": whole}
    )
    text = filled("<!-- rules index -->\nold\n<!-- /rules index -->\n", "docs/rules.md", RULES)
    assert text == f"<!-- rules index -->\n{index_markdown(RULES)}\n<!-- /rules index -->\n"


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
    with pytest.raises(CalloutError) as error:
        filled(text, "docs/x.md", RULES)
    assert str(error.value).startswith(message)


def test_the_command_checks_without_a_change_and_then_fills_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "docs" / "security" / "x.md"
    file.parent.mkdir(parents=True)
    file.write_text(EMPTY, encoding="utf-8")
    assert main(["--check"], root=tmp_path, rules=RULES) == 1
    said = "docs/security/x.md: what is filled in is out of date. Run make fix\n"
    assert (capsys.readouterr().out, file.read_text(encoding="utf-8")) == (said, EMPTY)
    assert main([], root=tmp_path, rules=RULES) == 0
    assert file.read_text(encoding="utf-8") == FULL
    assert main(["--check"], root=tmp_path, rules=RULES) == 0
    file.write_text("<!-- rule SP99 -->\n<!-- /rule -->\n", encoding="utf-8")
    assert main([], root=tmp_path, rules=RULES) == 1
