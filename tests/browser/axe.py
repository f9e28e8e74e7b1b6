"""Ask axe-core what is wrong with a page, in the look that it has now."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from tests.harness.optional import need

need("axe_playwright_python", "the test of accessibility needs axe-playwright-python")

if TYPE_CHECKING:
    from playwright.sync_api import Page

COLOURS: Final = ("color-contrast", "link-in-text-block")
"""What depends on colours, which is all that the scheme can change."""
AXE: Final = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
# axe judges no contrast on a gradient, and none of a sign such as a tick unless it is told to. Ours
# are bars and shadows at an edge; where words stand on one, they get its colour as a whole. What is
# drawn when somebody scrolls to it is drawn at once.
PLAIN: Final = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`*, ::before, ::after { background-image: none !important }
    .bar { background-color: var(--bar) !important }
    summary::after { display: none !important }  /* stands beside the words, not behind them */
    .ladder tr { content-visibility: visible !important }`);
  document.adoptedStyleSheets = [sheet];
  const { options } = axe._audit.checks["color-contrast"];
  const signs = { ...options, ignoreUnicode: false };
  axe.configure({
    checks: [{ id: "color-contrast", options: signs }],
    rules: [{ id: "color-contrast", selector: "[data-judged]" }],
  });
}"""
# Of all texts with the same letters on the same ground three are judged: those furthest to the
# left, since what is cut off at the right cannot be.
CHOOSE: Final = """() => {
  const grounds = new Map();
  const ground = (part) => {
    if (!part) return "";
    if (!grounds.has(part)) {
      const { backgroundColor, opacity } = getComputedStyle(part);
      const isClear = backgroundColor === "rgba(0, 0, 0, 0)" && opacity === "1";
      const own = isClear ? "" : `${backgroundColor} ${opacity} `;
      grounds.set(part, ground(part.parentElement) + own);
    }
    return grounds.get(part);
  };
  const alike = new Map();
  for (const part of document.body.querySelectorAll("*")) {
    delete part.dataset.judged;
    if (![...part.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const { left, width } = part.getBoundingClientRect();
    if (!width || left < 0) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(part);
    const look = [color, fontSize, fontWeight, ground(part)].join();
    alike.set(look, [...(alike.get(look) ?? []), { part, left }]);
  }
  for (const parts of alike.values())
    for (const { part } of parts.sort((one, other) => one.left - other.left).slice(0, 3))
      part.dataset.judged = "";
  return alike.size;
}"""
# What is cut off at an edge is not judged, and that is no fault. What the theme says for a moment
# after a copy is left out, as it would be by now.
RUN: Final = """async ([rules, within]) => {
  const resultTypes = ["violations", "incomplete"];
  const options = { resultTypes, ...(rules.length && { runOnly: rules }) };
  const parts = { include: within, exclude: ".md-dialog" };
  const { violations, incomplete } = await axe.run(parts, options);
  const isCut = ({ any: [{ data }] }) => /Obscur/.test(data.messageKey)
    || (data.messageKey === "shortTextContent" && !data.contrastRatio);
  const unjudged = incomplete.filter(({ id }) => id === "color-contrast").map((rule) => ({
    id: "contrast not judged",
    nodes: rule.nodes.filter((node) => !isCut(node)),
  }));
  return [...violations, ...unjudged].filter(({ nodes }) => nodes.length).map(
    (v) => `${v.id} (${v.nodes.length}): ${v.nodes[0].html.slice(0, 160)}`);
}"""


def bring(page: Page) -> None:
    """Bring the program to a page."""
    page.evaluate(AXE)
    page.evaluate(PLAIN)


def axe(page: Page, rules: Sequence[str] = (), within: str = "body") -> list[str]:
    """Return each violation, and what could not be judged, with the first element that shows it."""
    assert page.evaluate(CHOOSE) > 2
    found: list[str] = page.evaluate(RUN, [list(rules), within])
    return found
