"""axe-core finds nothing on any page, wide or narrow, light or dark."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Final, Literal

import pytest

from tests.browser.site import SCHEMES, Site
from tests.browser.visit import Visit
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")
need("axe_playwright_python", "the test of accessibility needs axe-playwright-python")

from playwright.sync_api import BrowserContext, Page, expect

AXE: Final = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
# What depends on colours is all that the scheme can change.
COLOURS: Final = ("color-contrast", "link-in-text-block")
LOOKS: Final[tuple[tuple[int, Literal["light", "dark"], tuple[str, ...]], ...]] = (
    (1440, "light", ()),
    (1440, "dark", COLOURS),
    (390, "dark", ()),
    (390, "light", COLOURS),
)
# axe judges no contrast on a gradient, and none of a sign such as a tick unless it is told to. Ours
# are bars and shadows at an edge; where words stand on one, they get its colour as a whole. What is
# drawn when somebody scrolls to it is drawn at once.
PLAIN: Final = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`*, ::before, ::after { background-image: none !important }
    .bar { background-color: var(--bar) !important }
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


def look(page: Page, width: int, scheme: Literal["light", "dark"]) -> None:
    """Give the page another width and other colours, without loading it again."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", SCHEMES[scheme])


def axe(visit: Visit, rules: Sequence[str] = ()) -> list[str]:
    """Return each violation, and what could not be judged, with the first element that shows it.

    What is cut off at an edge is not judged, and that is no fault. What the theme says for a moment
    after a copy is left out, as it would be by now.
    """
    found: list[str] = visit.page.evaluate(
        """async (rules) => {
          const resultTypes = ["violations", "incomplete"];
          const options = { resultTypes, ...(rules.length && { runOnly: rules }) };
          const { violations, incomplete } = await axe.run({ exclude: ".md-dialog" }, options);
          const isCut = ({ any: [{ data }] }) => /Obscur/.test(data.messageKey)
            || (data.messageKey === "shortTextContent" && !data.contrastRatio);
          const unjudged = incomplete.filter(({ id }) => id === "color-contrast").map((rule) => ({
            id: "contrast not judged",
            nodes: rule.nodes.filter((node) => !isCut(node)),
          }));
          return [...violations, ...unjudged].filter(({ nodes }) => nodes.length).map(
            (v) => `${v.id} (${v.nodes.length}): ${v.nodes[0].html.slice(0, 160)}`);
        }""",
        list(rules),
    )
    return found


def test_axe_finds_nothing_wide_or_narrow_light_or_dark(visit: Visit) -> None:
    page = visit.page
    page.evaluate(AXE)
    page.evaluate(PLAIN)
    found = []
    for width, scheme, rules in LOOKS:
        look(page, width, scheme)
        assert page.evaluate(CHOOSE) > 10
        found += [f"{width} px, {scheme}: {problem}" for problem in axe(visit, rules)]
    look(page, 1440, "light")
    page.evaluate("document.adoptedStyleSheets = []")
    assert found == []


def test_axe_would_find_something(site: Site, context: BrowserContext) -> None:
    """The test above says nothing if the program does not run."""
    visit = Visit(context, site.address)
    visit.page.evaluate(AXE)
    visit.page.evaluate(
        "document.querySelector('article p').insertAdjacentHTML('beforeend', '<img src=x>')"
    )
    assert any(problem.startswith("image-alt") for problem in axe(visit))


@pytest.mark.parametrize(
    "place", ["article p", "article td", "article pre code", "nav a", "footer"]
)
def test_axe_finds_a_pale_word_among_many_that_look_alike(
    site: Site, context: BrowserContext, place: str
) -> None:
    visit = Visit(context, f"{site.address}ladder/")
    visit.page.evaluate(AXE)
    visit.page.evaluate(PLAIN)
    visit.page.locator(f"{place}:visible").last.evaluate(
        """words => {
          const pale = document.createElement("i");
          pale.textContent = "pale";
          Object.assign(pale.style, { background: "#aaa", color: "#999" });
          words.append(pale);
        }"""
    )
    visit.page.evaluate(CHOOSE)
    [problem] = axe(visit, COLOURS)
    assert problem.startswith("color-contrast (1)")
