"""Charts that are drawn on the server, each with the same figures as a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from safepoint.console.html import Html, moment, table, tag, visible
from safepoint.journal import Entry

_WIDE, _HIGH = 1000, 100
_ERROR: Final = re.compile(r"([A-Z][A-Za-z]{2,40}): ")
_LISTED: Final = 200


def waiting_over_time(points: Sequence[tuple[datetime, int]]) -> Html:
    """Draw how many runs waited, and list it."""
    if len(points) < 2 or points[0][0] >= points[-1][0]:
        return tag("p", "There is nothing to draw yet: that takes two moments.", class_="quiet")
    (first, now), (last, _) = points[0], points[-1]
    most = max(number for _, number in points)
    steps = list[str]()
    for at, number in points:  # it stays as it is until it changes
        x = (at - first) / (last - first) * _WIDE
        steps += (f"{x:.1f},{_y(now, most)}", f"{x:.1f},{_y(number, most)}")
        now = number
    curve = " ".join(steps)
    told = f"At most {most:,} waited at the same time, and {now:,} at the end."
    drawn = tag(
        "svg",
        tag("title", "Runs that waited, over time", id="over-time"),
        tag("desc", told, id="over-time-told"),
        tag("line", x1=0, x2=_WIDE, y1=_HIGH, y2=_HIGH, class_="grid"),
        tag("line", x1=0, x2=_WIDE, y1=0, y2=0, class_="grid"),
        tag("polygon", points=f"0,{_HIGH} {curve} {_WIDE},{_HIGH}", class_="area"),
        tag("polyline", points=curve, class_="curve", vector_effect="non-scaling-stroke"),
        viewBox=f"0 0 {_WIDE} {_HIGH}",
        preserveAspectRatio="none",
        role="img",
        aria_labelledby="over-time over-time-told",
    )
    listed = points[: -_LISTED - 1 : -1]
    rows = ((moment(at), f"{number:,}") for at, number in listed)
    same = f"The newest {len(listed)} of {len(points):,} changes as a table"
    return tag(
        "figure",
        tag("figcaption", told),
        tag("p", f"{most:,}", class_="quiet scale"),
        drawn,
        tag("p", moment(first), moment(last), class_="quiet bar"),
        tag("details", tag("summary", same), table(told, ["When", "Waited"], rows)),
        class_="chart",
    )


def _y(number: int, most: int) -> str:
    return f"{_HIGH - number / max(most, 1) * _HIGH:.1f}"


def reasons(entries: Iterable[Entry]) -> Counter[str]:
    """Count what was refused, by the error that the journal names, or by what was tried."""
    refused = (each for each in entries if each.outcome == "refused")
    return Counter(
        found.group(1) if (found := _ERROR.match(each.detail)) else each.what for each in refused
    )


def refusals(counts: Mapping[str, int]) -> Html:
    """Draw how often something was refused for each reason: a table with bars in it."""
    if not counts:
        return tag("p", "The journal tells of no refusal.", class_="quiet")
    most = max(counts.values())
    rows = (
        (visible(reason), f"{number:,}", _bar(number / most))
        for reason, number in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    )
    return table("Refusals by reason", ["Reason", "How often", "Of the most"], rows)


def _bar(share: float) -> Html:
    return tag(
        "svg",
        tag("rect", width="100%", height="100%", class_="track"),
        tag("rect", width=f"{share:.1%}", height="100%", class_="fill"),
        class_="one",
        aria_hidden="true",
    )
