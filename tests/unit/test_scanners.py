"""What the page about scanners says is what a fresh run gives; and its chart shows that."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import scanners
from benchmarks.rates import Found, Share, Verdict, on_page, tables, written
from publish.charts import BREAK, CHART, PAGE, WIDTH, Bars, draw_bars, generated, read_bars
from publish.project import Project
from tests.corpus.gadgets import GADGETS
from tests.harness.optional import need
from tests.harness.svg import svg_problems

SMALLEST_TEXT = 13
LETTER = 0.56  # of the font's size, on average over a short line


@pytest.fixture(scope="module")
def page() -> str:
    return scanners.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def found() -> list[Found]:
    for package in ("torch", "fickling", "picklescan", "modelscan"):
        need(package, "needs safepoint[test]")
    return scanners.measure()


@pytest.mark.deep
def test_the_numbers_on_the_page_are_those_of_a_fresh_run(page: str, found: list[Found]) -> None:
    for place, table in tables(found).items():
        assert on_page(page, place) == table


@pytest.mark.deep
def test_what_the_page_says_about_the_numbers_is_so(found: list[Found]) -> None:
    """Nearly everything is found at the price of half of the honest files; else one in six not."""
    for one in found[:4]:
        rate = one.detected.part / one.detected.total
        false = one.false_alarms.part / one.false_alarms.total
        assert (rate > 0.95 and false > 0.5) or (rate < 0.84 and false < 0.1), one.tool
    assert [one.detected.part for one in found[4:]] == [len(GADGETS)] * 2


@pytest.mark.deep
def test_no_gadget_is_named_with_what_a_tool_said(found: list[Found]) -> None:
    """The tables give rates. A list of what passes would be a recipe."""
    cells = {cell for table in tables(found).values() for cell in table.split(" | ")}
    named = {f"{kind}: {name}" for kind, name in ((g.family, g.name) for g in GADGETS)}
    assert cells.isdisjoint(named | {g.name for g in GADGETS})
    assert sum(len(table) for table in tables(found).values()) < 3000


@pytest.mark.parametrize(
    ("share", "low", "high"),
    [(Share(0, 10), 0.0, 0.278), (Share(10, 10), 0.722, 1.0), (Share(5, 10), 0.237, 0.763)],
)
def test_intervals_are_wilsons(share: Share, low: float, high: float) -> None:
    """The values are those of the literature; no rate is certain, however even it is."""
    assert share.interval == pytest.approx((low, high), abs=0.0006)


def test_a_tool_that_scanned_nothing_has_missed_it(tmp_path: Path) -> None:
    """modelscan is asked about a name that it does not know."""
    need("modelscan", "needs safepoint[test], and a Python before 3.13")
    path = tmp_path / "state.unknown"
    path.write_bytes(GADGETS[0].pickle(tmp_path / "marker"))
    assert scanners._modelscan(path) is Verdict.NONE
    one = Found("x", {"a": [Verdict.NONE, Verdict.DANGEROUS]}, {"b": [Verdict.CLEAN]})
    assert (one.detected, one.false_alarms, one.silent) == (Share(1, 2), Share(0, 1), 1)


def test_a_tool_that_raises_has_missed_it(tmp_path: Path) -> None:
    def raises(path: Path) -> Verdict:
        raise ValueError(path)

    assert scanners._one_by_one(raises)([tmp_path]) == [Verdict.NONE]


def test_tables_are_written_to_their_places_alone() -> None:
    before = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\n<!-- /y -->\nc"
    after = written(before, {"x": "new", "y": "other"})
    assert (on_page(after, "x"), on_page(after, "y")) == ("new", "other")
    assert written(after, {"x": "new", "y": "other"}) == after
    assert re.sub(r"<!-- (\w) -->.*?<!-- /\1 -->", "", after, flags=re.DOTALL) == "a\n\nb\n\nc"
    with pytest.raises(ValueError, match="substring not found"):
        written(before, {"z": "new"})


BARS = [Bars("a <b>", (50, 100), (0, 10)), Bars("c", (100, 100), (10, 10))]


def test_the_chart_shows_the_table(page: str) -> None:
    bars = read_bars(page)
    assert [(one.tool, one.found, one.false) for one in bars][:2] == [
        ("fickling 0.1.12, is_likely_safe", (190, 196), (130, 171)),
        ("picklescan 1.0.5", (163, 196), (8, 171)),
    ]
    assert [one.loads for one in bars] == [False] * 4 + [True] * 2


def test_the_chart_is_as_every_drawing_should_be(page: str) -> None:
    for bars in (BARS, read_bars(page)):
        svg = draw_bars(bars)
        assert svg_problems(svg) == []
        assert svg == draw_bars(bars)


def test_the_length_of_a_bar_is_its_share() -> None:
    svg = ET.fromstring(draw_bars(BARS))  # noqa: S314
    wide = [float(e.get("width", "")) for e in svg.iter() if e.tag.endswith("}rect")]
    track = wide[0]
    assert wide[1::2] == [track / 2, 0, track, track]


def test_the_chart_can_be_read_on_a_phone_and_without_colours(page: str) -> None:
    """It is as wide as a phone's column, so its sizes are pixels; each bar says what it is."""
    svg = draw_bars(read_bars(page))
    texts = [e for e in ET.fromstring(svg).iter() if e.tag.endswith("}text")]  # noqa: S314
    said = ["".join(e.itertext()) for e in texts]
    assert [line for line in said[:12] if "%" not in line] == said[:12:3]
    assert all(line.endswith("% found") for line in said[1:12:3])
    assert all(line.endswith("% false alarms") for line in said[2:12:3])
    assert said[12] == BREAK
    assert all(line.endswith("% refused") for line in said[14::3])
    assert all(line.endswith("% honest refused") for line in said[15::3])
    assert len(said) == 19
    for element, line in zip(texts, said, strict=True):
        size = int(element.get("font-size", "14"))
        assert size >= SMALLEST_TEXT
        assert float(element.get("x", "0")) + len(line) * size * LETTER <= WIDTH, line


def test_whoever_cannot_see_the_chart_is_told(page: str) -> None:
    svg = draw_bars(read_bars(page))
    told = "picklescan 1.0.5: 83 % of the gadgets found, 5 % of the honest files suspected."
    assert told in svg


def test_a_page_without_the_table_stops_the_build() -> None:
    with pytest.raises(ValueError, match="there is no table of scanners on the page"):
        read_bars("# Scanners")


def test_the_build_draws_it_from_the_page(tmp_path: Path, page: str) -> None:
    (tmp_path / "docs/security").mkdir(parents=True)
    (tmp_path / "docs" / PAGE).write_text(page, encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text("nav: []\n", encoding="utf-8")
    assert generated(Project(tmp_path))[CHART] == draw_bars(read_bars(page))
