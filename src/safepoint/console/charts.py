"""Charts that are drawn on the server, each with the same figures as a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from safepoint.console.html import Html, moment, table, tag, visible
from safepoint.core.journal import Entry

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
        ys = (_HIGH - each / max(most, 1) * _HIGH for each in (now, number))
        steps += [f"{x:.1f},{y:.1f}" for y in ys]
        now = number
    curve = " ".join(steps)
    told = f"At most {most:,} waited at the same time, and {now:,} at the end."
    area = tag("polygon", points=f"0,{_HIGH} {curve} {_WIDE},{_HIGH}", class_="area")
    line = tag("polyline", points=curve, class_="curve", vector_effect="non-scaling-stroke")
    look = {"viewBox": f"0 0 {_WIDE} {_HIGH}", "preserveAspectRatio": "none"}
    drawn = tag("svg", area, line, role="img", aria_label=f"Over time: {told}", **look)
    ends = tag("p", moment(first), moment(last), class_="quiet bar")
    newest = points[: -_LISTED - 1 : -1]
    rows = table(told, ["When", "Waited"], ((moment(at), f"{number:,}") for at, number in newest))
    same = tag("summary", f"The newest {len(newest)} of {len(points):,} changes as a table")
    figures = tag("details", same, rows)
    return tag("figure", tag("figcaption", told), drawn, ends, figures, class_="chart")


def reasons(entries: Iterable[Entry]) -> Counter[str]:
    """Count what was refused, by the error that the journal names, or by what was tried."""
    refused = [each for each in entries if each.outcome == "refused"]
    named = ((_ERROR.match(each.detail), each.what) for each in refused)
    return Counter(found.group(1) if found else what for found, what in named)


def refusals(counts: Mapping[str, int]) -> Html:
    """Draw how often something was refused for each reason: a table with bars in it."""
    if not counts:
        return tag("p", "The journal tells of no refusal.", class_="quiet")
    most = max(counts.values())
    often = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    rows = ((visible(reason), f"{number:,}", _bar(number / most)) for reason, number in often)
    return table("Refusals by reason", ["Reason", "How often", "Of the most"], rows)


def _bar(share: float) -> Html:
    track = tag("rect", width="100%", height="100%", class_="track")
    fill = tag("rect", width=f"{share:.1%}", height="100%", class_="fill")
    return tag("svg", track, fill, class_="one", aria_hidden="true")
