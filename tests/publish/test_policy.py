"""A page may run what it was built with, and nothing that somebody adds to it."""

from __future__ import annotations

import hashlib

import pytest

from publish import policy as module
from publish.policy import ForeignScript, NoHead, policy, with_policy, without_styles

PAGE = (
    '<head><meta charset="utf-8"><script src="a.js"></script><script>go()</script>'
    '<script id="c" type="application/json">{"a": 1}</script></head>'
)


@pytest.fixture(autouse=True)
def theme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the scripts of these pages for the theme's."""
    scripts = ("go()", "ours()", 'here=new URL("",location)')
    known = frozenset(hashlib.sha256(script.encode()).hexdigest() for script in scripts)
    monkeypatch.setattr(module, "THEME", known)


def test_the_policy_names_the_inline_script_by_its_digest() -> None:
    assert policy(PAGE) == (
        "default-src 'none'; "
        "script-src 'self' 'sha256-5KYv+PUboo5h+0+YAtGRPbwv5d/QxzHslP4YGnUaxRw='; "
        "style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'self'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_it_stands_before_the_first_script() -> None:
    html = with_policy(PAGE)
    assert html.index("Content-Security-Policy") < html.index("<script")


def test_another_script_has_another_digest() -> None:
    assert policy(PAGE) != policy(PAGE.replace("go()", "evil()"))


def test_html_without_a_head_is_refused() -> None:
    with pytest.raises(NoHead, match="charset"):
        with_policy("<p>words</p>")


def test_alignment_needs_no_inline_style() -> None:
    assert without_styles('<td style="text-align: right;">1</td>') == '<td class="to-right">1</td>'
    assert without_styles('<p style="color: red">') == '<p style="color: red">'


def test_a_script_in_the_text_of_a_page_is_refused() -> None:
    """It may have come with a line of the changelog: the policy must not name it."""
    with pytest.raises(ForeignScript, match="a script in the text of the page; put it into docs/"):
        with_policy(f"{PAGE}<article><p><SCRIPT>evil()</SCRIPT></article><script>ours()</script>")
    assert "sha256" in with_policy(f"{PAGE}<article><p>&lt;script&gt;</article>")


@pytest.mark.parametrize("root", [".", "..", "../..", "/", "/docs/a-b/"])
def test_the_themes_script_knows_where_its_page_is(root: str) -> None:
    assert "sha256" in with_policy(PAGE.replace("go()", f'here=new URL("{root}",location)'))


@pytest.mark.parametrize("root", ["https://evil.example", "//evil.example/", '"+evil()+"'])
def test_and_nothing_else_passes_for_that(root: str) -> None:
    with pytest.raises(ForeignScript, match="that the theme did not have before"):
        with_policy(PAGE.replace("go()", f'here=new URL("{root}",location)'))
