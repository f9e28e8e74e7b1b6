"""Go through a page with Tab alone, and tell what was not reached and what showed no focus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from playwright.sync_api import Page

_WATCH: Final = """(within) => {
  const start = document.querySelector(within);
  const all = [...start.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0']")];
  window.tabbed?.abort();
  window.tabbed = new AbortController();
  window.unreached = new Set(all.filter((element) =>
    element.checkVisibility({ visibilityProperty: true, opacityProperty: false })
    && !element.closest("[hidden], .md-search__output, [data-md-component=top]")
    // Tab reaches the radio button that is chosen; the arrows reach the others.
    && element.tabIndex >= 0 && !element.disabled
    && (element.type !== "radio" || element.checked)));
  const total = window.unreached.size;
  const isNew = !start.hasAttribute("tabindex");
  if (isNew) start.tabIndex = -1;
  start.focus();
  if (isNew) start.removeAttribute("tabindex");
  window.unringed = [];
  window.rounds = 0;
  let first = null;
  const ringed = (part, pseudo) => {
    const style = getComputedStyle(part, pseudo);
    return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  };
  addEventListener("focusin", ({ target }) => {
    first ??= target;
    if (target === first) window.rounds += 1;
    window.unreached.delete(target);
    // A hidden radio button or checkbox shows its focus on what is drawn instead of it.
    const group = target.matches("input")
      && target.closest(".md-header__option, .task-list-control");
    const drawn = group ? group.querySelectorAll("label, span") : [];
    if (![target, ...drawn].some((part) => ringed(part) || ringed(part, "::before")))
      window.unringed.push(target.outerHTML.slice(0, 120));
  }, { signal: window.tabbed.signal });
  return total;
}"""

_FOUND: Final = """() => ({
  unreached: [...window.unreached].map((element) => element.outerHTML.slice(0, 120)),
  unringed: [...new Set(window.unringed)],
  rounds: window.rounds,
})"""


@dataclass(frozen=True)
class Walk:
    """What Tab came to: `total` things were there to reach."""

    total: int
    unreached: list[str]
    unringed: list[str]
    came_round: bool


def walk(page: Page, within: str = "body") -> Walk:
    """Press Tab until the focus comes round, or, in a part of the page, all of it was reached.

    What is drawn there now has to be reached; what a click would bring is not counted.
    """
    total: int = page.evaluate(_WATCH, within)
    found: dict[str, Any] = {}
    # What scrolls takes the focus too, so there are more stops than these.
    for _ in range(0, 2 * total + 100, 20):
        for _ in range(20):
            page.keyboard.down("Tab")  # held down: half the messages of as many presses
        page.keyboard.up("Tab")
        found = page.evaluate(_FOUND)
        if found["rounds"] > 1 or (within != "body" and not found["unreached"]):
            break
    return Walk(total, found["unreached"], found["unringed"], found["rounds"] > 1)
