"""What the page about scanners says is what a fresh run gives; and its chart shows that."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scanners
from benchmarks.rates import Found, Share, Verdict, on_page, tables
from tests.corpus.gadgets import GADGETS
from tests.harness.optional import need


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
    for one in found[:5]:
        rate = one.detected.part / one.detected.total
        false = one.false_alarms.part / one.false_alarms.total
        assert (rate > 0.95 and false > 0.5) or (rate < 0.84 and false < 0.1), one.tool
    assert [one.detected.part for one in found[5:]] == [len(GADGETS)] * 2


def test_a_tool_that_scanned_nothing_has_missed_it(tmp_path: Path) -> None:
    """modelscan is asked about a name that it does not know."""
    need("modelscan", "needs safepoint[test], and a Python before 3.13")
    path = tmp_path / "state.unknown"
    path.write_bytes(GADGETS[0].pickle(tmp_path / "marker"))
    assert scanners._modelscan(path) is Verdict.NONE
    one = Found("x", {"a": [Verdict.NONE, Verdict.DANGEROUS]}, {"b": [Verdict.CLEAN]})
    assert (one.detected, one.false_alarms, one.silent) == (Share(1, 2), Share(0, 1), 1)
