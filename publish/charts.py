"""The chart that the build makes from a table on a page."""

from __future__ import annotations

import re
from html import escape
from typing import Final, NamedTuple

from publish.project import Project

PAGE: Final = "security/scanners.md"
CHART: Final = "assets/scanners.svg"
TITLE: Final = "What scanners find, and what they suspect in vain"
BREAK: Final = "For comparison, what loads by an allow-list:"
WIDTH: Final = 360
BAR: Final = 190
THICK: Final = 13
# Each colour is the page's, and outside of a page one that can be read on light and dark.
QUIET: Final = "var(--sp-ink-2, currentColor)"
FAINT: Final = "var(--sp-line, #8a9499)"
ACCENT: Final = "var(--sp-accent, #2a8094)"
WARNING: Final = "var(--sp-warning, #94690f)"
FONTS: Final = (
    "var(--sp-sans, -apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Noto Sans',"
    " 'Liberation Sans', Arial, sans-serif)"
)
STYLE: Final = """  <style>
    /* As an image of its own it has no page to take its colours from. */
    svg:root { color: #1d2428; --sp-ink-2: #566065; --sp-line: #cdc8bb; --sp-accent: #0b5b70; --sp-warning: #7a5100; }
    @media (prefers-color-scheme: dark) {
      svg:root { color: #dde3e3; --sp-ink-2: #a4b0b4; --sp-line: #46535a; --sp-accent: #82c9d9; --sp-warning: #e0b968; }
    }
  </style>"""  # noqa: E501

_HEAD: Final = re.compile(r"^\| (?P<kind>tool|loader) \| ", re.MULTILINE)
_ROW: Final = re.compile(
    r"^\| (?P<tool>[^|]+?) \| (?P<found>\d+)\sof\s(?P<gadgets>\d+):[^|]*"
    r"\| (?P<false>\d+)\sof\s(?P<honest>\d+):[^|]*\| \d+ \|$",
    re.MULTILINE,
)


class Bars(NamedTuple):
    """What one tool found, and what it suspected in vain: so many of so many.

    One that loads does not say what it thinks of a file: it refuses it.
    """

    tool: str
    found: tuple[int, int]
    false: tuple[int, int]
    loads: bool = False


def generated(project: Project) -> dict[str, str]:
    """Return the chart by its path below `docs/`, if its page is there."""
    page = project.pages.get(PAGE)
    return {CHART: draw_bars(read_bars(page.text))} if page else {}


def read_bars(page: str) -> list[Bars]:
    """Return the rows of the tables on the page.

    Raises:
        ValueError: the page has no such tables.
    """
    heads = [*_HEAD.finditer(page)]
    bars = [
        Bars(
            row["tool"].replace("`", ""),
            (int(row["found"]), int(row["gadgets"])),
            (int(row["false"]), int(row["honest"])),
            [head["kind"] for head in heads if head.start() < row.start()][-1:] == ["loader"],
        )
        for row in _ROW.finditer(page)
    ]
    if not bars:
        raise ValueError("there is no table of scanners on the page; write it anew")
    return bars


def draw_bars(bars: list[Bars], name: str = "scanners", title: str = TITLE) -> str:
    """Return the chart as an SVG: the same text each time."""
    parts: list[str] = []
    y = 18
    for number, one in enumerate(bars):
        if one.loads and (number == 0 or not bars[number - 1].loads):
            parts.append(f'<path d="M0 {y}H{WIDTH}" stroke="{FAINT}" stroke-width="1"/>')
            parts.append(f'<text x="0" y="{y + 22}" fill="{QUIET}">{BREAK}</text>')
            y += 54
        found, false = ("refused", "honest refused") if one.loads else ("found", "false alarms")
        words = f'font-size="15" font-weight="650">{escape(one.tool)}'
        parts.append(f'<text x="0" y="{y}" {words}</text>')
        parts += _bar(y + 9, one.found, ACCENT, found)
        parts += _bar(y + 9 + THICK + 5, one.false, WARNING, false)
        y += 70
    about = " ".join(_sentence(one) for one in bars)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" class="{name}" viewBox="0 0 {WIDTH} {y - 22}" \
role="img" aria-labelledby="{name}-title {name}-desc" font-family="{FONTS}" \
font-size="14" fill="currentColor">
  <title id="{name}-title">{escape(title)}</title>
  <desc id="{name}-desc">{escape(about)}</desc>
{STYLE}
{chr(10).join(f"  {part}" for part in parts)}
</svg>
"""


def _sentence(bars: Bars) -> str:
    found, false = _percent(bars.found), _percent(bars.false)
    if bars.loads:
        return f"{bars.tool}: {found} of the gadgets refused, and {false} of the honest files."
    return f"{bars.tool}: {found} of the gadgets found, {false} of the honest files suspected."


def _percent(share: tuple[int, int]) -> str:
    return f"{100 * share[0] / share[1]:.0f} %"


def _bar(y: int, share: tuple[int, int], colour: str, word: str) -> list[str]:
    """Draw a bar on its track, and say beside it what it says: colour alone says nothing."""
    long = round(BAR * share[0] / share[1], 1)
    label = f'<tspan font-weight="650">{_percent(share)}</tspan> {word}'
    track = f'<rect x="0" y="{y}" width="{BAR}" height="{THICK}" rx="2" fill="none"'
    return [
        f'{track} stroke="{FAINT}" stroke-width="1"/>',
        f'<rect x="0" y="{y}" width="{long}" height="{THICK}" rx="2" fill="{colour}"/>',
        f'<text x="{BAR + 10}" y="{y + 11}" fill="{colour}">{label}</text>',
    ]
