"""The drawings that the build makes: as good as those that are kept, and part of the site."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from publish.drawings import (
    LOGINS,
    RESUME,
    Drawing,
    Grid,
    Lane,
    Row,
    Signed,
    Step,
    draw,
    draw_grid,
)
from publish.generated import generated
from publish.paper import WIDTH
from publish.project import Project
from tests.harness.svg import svg_problems

SMALLEST_TEXT = 13
DRAWN = {"resume": draw(RESUME), "logins": draw_grid(LOGINS)}
LETTER = 0.52  # of the font's size, on average over a line: more than the fonts of the list need


def texts(svg: str) -> list[ET.Element]:
    """List the lines of text."""
    return [e for e in ET.fromstring(svg).iter() if e.tag.endswith("}text")]  # noqa: S314


def said(element: ET.Element) -> str:
    return "".join(element.itertext())


@pytest.mark.parametrize("svg", DRAWN.values(), ids=DRAWN)
def test_it_is_as_every_drawing_should_be(svg: str) -> None:
    assert svg_problems(svg) == []


def test_it_is_the_same_each_time() -> None:
    assert {"resume": draw(RESUME), "logins": draw_grid(LOGINS)} == DRAWN


@pytest.mark.parametrize("svg", DRAWN.values(), ids=DRAWN)
def test_text_is_large_enough_on_a_phone_and_stays_inside(svg: str) -> None:
    """The drawing is as wide as a phone's column, so its sizes are pixels there."""
    (height,) = re.findall(rf'viewBox="0 0 {WIDTH} (\d+)"', svg)
    (default,) = re.findall(r'^<svg [^>]*font-size="(\d+)"', svg)
    assert len(texts(svg)) > 20
    for element in texts(svg):
        size = int(element.get("font-size", default))
        wide = len(said(element)) * size * LETTER
        left = float(element.get("x", "0"))
        if element.get("text-anchor") == "end":
            left -= wide
        assert size >= SMALLEST_TEXT, said(element)
        assert left >= 0, said(element)
        assert left + wide <= WIDTH, said(element)
        assert 0 < float(element.get("y", "0")) < int(height), said(element)


def test_whoever_cannot_see_it_is_told_each_signature_and_the_order() -> None:
    """The description names what the drawing shows, from top to bottom."""
    order = (
        ("Pause:", "journal", "record 2", "writer's key"),
        ("Approve:", "approver's key", "digest of record 2", "arguments", "expiry"),
        (
            "Resume:",
            "gate",
            "journal",
            "record 3",
            "writer's key",
            "anchored",
            "spend",
            "pays",
            "call.key",
        ),
    )
    at = 0
    for words in (word for phase in order for word in phase):
        at = RESUME.about.index(words, at) + len(words)


def test_whoever_cannot_see_it_is_told_what_each_login_may() -> None:
    """The description names each row, from top to bottom."""
    at = 0
    for row in LOGINS.rows:
        if isinstance(row, Row):
            who = row.who.replace("\n", "")
            at = LOGINS.about.index(who, at) + len(who)


def test_nothing_stands_where_a_login_may_do_nothing() -> None:
    """A dash is a line, and a row without one names all that it may."""
    dashes = [cell for row in LOGINS.rows if isinstance(row, Row) for cell in row.cells].count("-")
    assert draw_grid(LOGINS).count("h8") == dashes == 9


def test_a_cell_stays_in_its_column() -> None:
    """As far as its text is as wide as most are."""
    wide = (WIDTH - 93) // 3 - 12
    for row in LOGINS.rows:
        for cell in row.cells if isinstance(row, Row) else ():
            for line in cell.split("\n"):
                assert len(line.lstrip("!~")) * 13 * LETTER <= wide, line


def test_a_text_of_a_table_cannot_add_markup() -> None:
    svg = draw_grid(Grid("g", "<t>", "<d>", ("<c>",), ("<h>", Row("<r>", ("!<x>\n&y",)))))
    assert svg_problems(svg) == []
    assert [said(e) for e in texts(svg)] == ["<c>", "<h>", "<r>", "<x>", "&y"]


def test_a_text_cannot_add_markup() -> None:
    lanes = (Lane("a<b", "&c"),)
    story = (Step("<script>", "a<b"), Signed("<x>", "<y>", "a<b", "a<b", "<z>"))
    svg = draw(Drawing("d", "<t>", "<d>", lanes, story))
    assert svg_problems(svg) == []
    assert [said(e) for e in texts(svg)] == ["a<b &c", "<script>", "<x>", "<y>", "<z>"]


def test_a_step_in_no_lane_is_refused() -> None:
    with pytest.raises(KeyError):
        draw(Drawing("d", "t", "d", (Lane("a", ""),), (Step("x", "b"),)))


def test_the_build_adds_it_to_the_site() -> None:
    files = generated(Project())
    assert {name: files[f"assets/{name}.svg"] for name in DRAWN} == DRAWN
