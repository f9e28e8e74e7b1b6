"""The checklists keep their ticks, in this browser alone, and can be taken elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.browser.site import Site, visitor
from tests.harness.blocks import ROOT
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")

from playwright.sync_api import Browser, BrowserContext, Page, expect

SOURCE: Final = ROOT / "docs/checklists.md"
ITEMS: Final = SOURCE.read_text("utf-8").count("- [ ]")
_LINK: Final = re.compile(r"\]\(([^)]*)\)")

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


def without_targets(text: str) -> str:
    return _LINK.sub("]", " ".join(text.split()))


def written_items() -> list[str]:
    text = SOURCE.read_text(encoding="utf-8")
    return re.findall(r"^- \[ \] .*(?:\n  .*)*", text, re.MULTILINE)


def serve_changed(page: Page, change: Callable[[str], str]) -> None:
    """Let the page come with other text from its next load on."""

    def answer(route: object) -> None:
        response = route.fetch()  # type: ignore[attr-defined]
        route.fulfill(response=response, body=change(response.text()))  # type: ignore[attr-defined]

    page.route(page.url, answer)


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


@pytest.mark.deep
def test_an_item_that_moved_keeps_its_tick_and_one_that_changed_does_not(opened: Open) -> None:
    page = opened()
    tick(page, 2, 3)

    def change(text: str) -> str:
        lists = re.findall(r'<ul class="task-list">.*?</ul>', text, re.DOTALL)
        text = text.replace(lists[0], "").replace(lists[1], lists[1] + lists[0])
        assert "Types of your own" in text
        return text.replace("Types of your own", "Types of others")

    serve_changed(page, change)
    page.reload()
    kept = page.locator(".checklist .task-list-item:has(:checked)")
    expect(kept).to_have_count(1)
    expect(kept).to_contain_text("Size, depth and count")
    assert ticked(page) == [5]


def test_what_is_copied_and_downloaded_is_the_list_with_its_ticks(opened: Open, site: Site) -> None:
    items = written_items()
    assert len({without_targets(item) for item in items}) == len(items)
    page = opened()
    expect(page.locator(".checklist__state")).to_have_text(f"0 of {len(items)} done.")
    tick(page, 1)
    page.get_by_role("button", name="Copy as Markdown").click()
    expect(page.locator(".checklist__state")).to_have_text(
        re.compile(r"^1 of \d+ done\. Copied\.$")
    )
    copied: str = page.evaluate("navigator.clipboard.readText()")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download").click()

    assert waiting.value.suggested_filename == "checklists.md"
    assert Path(waiting.value.path()).read_text(encoding="utf-8") == copied

    text = SOURCE.read_text(encoding="utf-8")
    lines = copied.splitlines()
    today = page.evaluate("new Date().toLocaleDateString('sv')")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", today)
    assert lines[0] == re.findall(r"^# .*", text, re.MULTILINE)[0]
    assert lines[2] == f"1 of {len(items)} done, {today}, <{page.url}>"
    inside = text[text.index('<div class="checklist"') : text.index("</div>")]
    headings = re.findall(r"^(###? .*?)(?: \{.*\})?$", inside, re.MULTILINE)
    assert re.findall(r"^###? .*", copied, re.MULTILINE) == headings
    expected = [without_targets(item) for item in items]
    expected[1] = expected[1].replace("- [ ]", "- [x]")
    assert [without_targets(line) for line in lines if line.startswith("- ")] == expected
    targets = _LINK.findall(copied)
    assert targets
    assert all(target.startswith(site.address) for target in targets)


@pytest.mark.deep
def test_clear_asks_once_and_forgets_the_ticks_of_this_page_alone(opened: Open) -> None:
    page = opened()
    page.evaluate("localStorage.setItem('checklist /elsewhere/ item', '')")
    tick(page, 0)
    clear = page.locator(".checklist__bar button").last
    clear.click()
    expect(clear).to_have_text("Clear 1 tick?")
    tick(page, 1, 2)
    expect(clear).to_have_text("Clear")
    clear.click()
    expect(clear).to_have_text("Clear 3 ticks?")
    clear.click()
    expect(page.locator(".checklist__state")).to_have_text(f"0 of {ITEMS} done. Cleared.")
    page.reload()
    assert ticked(page) == []
    keys: list[str] = page.evaluate("Object.keys(localStorage)")
    assert [key.split()[1] for key in keys if key.startswith("checklist ")] == ["/elsewhere/"]


@pytest.mark.deep
def test_without_scripts_there_is_a_list_and_no_buttons(site: Site, browser: Browser) -> None:
    with visitor(browser, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{site.address}checklists/")
        expect(page.locator(".checklist .task-list-item")).to_have_count(ITEMS)
        expect(page.locator(".checklist button")).to_have_count(0)
        tick(page, 0)
        expect(page.locator(".checklist input").first).to_be_checked()
