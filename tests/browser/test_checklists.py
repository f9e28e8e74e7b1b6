"""The checklists keep their ticks, in this browser alone, and can be taken elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.browser.site import Site
from tests.harness.blocks import ROOT
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")

from playwright.sync_api import BrowserContext, Page, expect

SOURCE: Final = ROOT / "docs/checklists.md"
ITEMS: Final = SOURCE.read_text("utf-8").count("- [ ]")

Open = Callable[[], Page]


@pytest.fixture
def opened(context: BrowserContext, site: Site) -> Open:
    def go() -> Page:
        page = context.new_page()
        page.goto(f"{site.address}checklists/")
        return page

    return go


def boxes(page: Page) -> list[bool]:
    found: list[bool] = page.locator(".checklist input").evaluate_all(
        "boxes => boxes.map(box => box.checked)"
    )
    return found


def tick(page: Page, *places: int) -> None:
    for place in places:
        page.locator(".checklist .task-list-control").nth(place).click()


def ticked(page: Page) -> list[int]:
    return [place for place, is_ticked in enumerate(boxes(page)) if is_ticked]


def test_a_tick_is_there_after_a_reload_and_in_a_second_tab_and_nowhere_else(
    opened: Open,
) -> None:
    page = opened()
    tick(page, 0, 4)
    expect(page.get_by_role("status").first).to_have_text(f"2 of {ITEMS} done.")
    tick(page, 0)

    page.reload()
    assert ticked(page) == [4]
    expect(page.locator(".checklist__state")).to_have_text(f"1 of {ITEMS} done.")
    expect(page.locator(".checklist__note")).to_have_text("Ticks stay in this browser.")
    other = opened()
    tick(page, 1)
    expect(other.locator(".checklist input").nth(1)).to_be_checked()
