"""Rates, as a page shows them: so many of so many, with an interval, by tool and by class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

_Z = 1.959963984540054  # a normal distribution holds 95 % within this many deviations


class Verdict(Enum):
    """What a tool says of a file. An error, or a look at nothing, is no verdict."""

    DANGEROUS = auto()
    CLEAN = auto()
    NONE = auto()


class Share(NamedTuple):
    """So many of so many."""

    part: int
    total: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        if not self.total:
            return 0.0, 1.0
        rate, square = self.part / self.total, _Z * _Z / self.total
        middle = rate + square / 2
        spread = _Z * math.sqrt(rate * (1 - rate) / self.total + square / self.total / 4)
        return (
            max(0.0, (middle - spread) / (1 + square)),
            min(1.0, (middle + spread) / (1 + square)),
        )

    def __str__(self) -> str:
        low, high = self.interval
        figures = (
            f"{self.part} of {self.total}:",
            f"{100 * self.part / self.total:.0f} %",
            f"({100 * low:.0f} to {100 * high:.0f})",
        )
        return " ".join(each.replace(" ", "\xa0") for each in figures)  # where a cell may break


class Found(NamedTuple):
    """What one tool said of the whole corpus. One that loads says it by refusing."""

    tool: str
    gadgets: dict[str, list[Verdict]]
    benign: dict[str, list[Verdict]]
    loads: bool = False

    @property
    def detected(self) -> Share:
        """The gadgets that it calls dangerous."""
        return _share(self.gadgets, Verdict.DANGEROUS)

    @property
    def false_alarms(self) -> Share:
        """The honest files that it calls dangerous."""
        return _share(self.benign, Verdict.DANGEROUS)

    @property
    def silent(self) -> int:
        """The files on which it gave no verdict."""
        return sum(_share(verdicts, Verdict.NONE).part for verdicts in (self.gadgets, self.benign))


def _share(parts: dict[str, list[Verdict]], verdict: Verdict) -> Share:
    given = [one for part in parts.values() for one in part]
    return Share(given.count(verdict), len(given))


def tables(found: Sequence[Found]) -> dict[str, str]:
    """Return what was measured, as Markdown, by its place on the page."""
    heads = {
        False: ("measured", ["tool", "detected", "false alarms", "no verdict"]),
        True: ("loaders", ["loader", "refused", "honest ones refused", "no verdict"]),
    }
    measured = {}
    for loads, (place, head) in heads.items():
        rows = [
            [one.tool, str(one.detected), str(one.false_alarms), str(one.silent)]
            for one in found
            if one.loads is loads
        ]
        measured[place] = _table(head, rows)
    for title, part in (("detected", "gadgets"), ("false alarms", "benign")):
        families = list(getattr(found[0], part))
        rows = [[one.tool, *_percents(getattr(one, part), families)] for one in found]
        measured[f"{title} by class"] = _table([f"{title}, %", *families], rows)
    return measured


def _percents(parts: dict[str, list[Verdict]], families: Iterable[str]) -> Iterator[str]:
    for family in families:
        given = parts.get(family)
        yield f"{100 * given.count(Verdict.DANGEROUS) / len(given):.0f}" if given else "n/a"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


def on_page(page: str, place: str) -> str:
    """Return what stands on the page, at one of its places for what is measured.

    Raises:
        ValueError: the page has no such place.
    """
    return _split(page, place)[1].strip()


def written(page: str, measured: Mapping[str, str]) -> str:
    """Return the page with what was measured at its places.

    Raises:
        ValueError: the page lacks a place.
    """
    for place, table in measured.items():
        before, _, after = _split(page, place)
        page = f"{before}\n\n{table}\n\n{after}"
    return page


def _split(page: str, place: str) -> tuple[str, str, str]:
    begin, end = f"<!-- {place} -->", f"<!-- /{place} -->"
    start, stop = page.index(begin) + len(begin), page.index(end)
    return page[:start], page[start:stop], page[stop:]
