"""Drawings: each defect is named, and a good one passes."""

from __future__ import annotations

import pytest

from tests.harness.svg import svg_problems

GOOD = (
    '<svg xmlns="http://www.w3.org/2000/svg"><title>T</title>'
    '<use href="#a" fill="currentColor"/><text fill="url(#b)">x</text></svg>'
)


def test_a_good_drawing_has_no_problems() -> None:
    """Also with references within itself."""
    assert svg_problems(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("</svg>", "", "is not well-formed"),
        ("<title>T</title>", "", "has no <title>"),
        ("<title>T", "<title> ", "has no <title>"),
        ("<text", "<script>x</script><text", "has <script>"),
        ("<text", "<SCRIPT>x</SCRIPT><text", "has <SCRIPT>"),
        ("<text", "<set attributeName='href' to='x'/><text", "has <set>"),
        ("url(#b)", "URL(//example.org/b)", "refers to something outside itself"),
        ("<text", "<style>@\\69mport 'x'</style><text", "refers to something outside itself"),
        ("<text", "<text onload='x()'", "has an event handler onload"),
        ("#a", "https://example.org/a", "refers to something outside itself"),
        ("#a", "a.svg", "refers to something outside itself"),
        ("url(#b)", "url(//example.org/b)", "refers to something outside itself"),
        ("currentColor", "#123", "has text in fixed colours"),
        ("url(#b)", "#000", "uses fixed black"),
        ("url(#b)", "black", "uses fixed black"),
        ("<svg", '<!DOCTYPE svg [<!ENTITY a "b">]><svg', "declares entities"),
        ("svg", "g", "has no <svg> at its root"),
    ],
)
def test_a_defect_is_named(old: str, new: str, problem: str) -> None:
    """One change, one problem."""
    (found,) = svg_problems(GOOD.replace(old, new))
    assert found.startswith(problem)
