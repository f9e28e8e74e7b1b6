"""Small things that a reader trips over: copying on a phone, ticking, printing, getting lost."""

from __future__ import annotations

from typing import Final

from tests.browser.site import Site
from tests.browser.visit import Visit
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")

from playwright.sync_api import BrowserContext, Page, ViewportSize, expect

WAYS: Final = ["guide/", "frameworks/", "rules/", "attacks/", "errors/"]
PHONE: Final = ViewportSize(width=390, height=844)


def opened(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address, wait_until="networkidle")
    return page


def test_a_phone_has_a_copy_button_that_covers_no_code(site: Site, context: BrowserContext) -> None:
    """Nobody has to touch the block first."""
    page = opened(context, f"{site.address}guide/")
    page.set_viewport_size(PHONE)
    buttons = page.locator("article .md-code__button:visible")
    wrong: list[str] = buttons.evaluate_all(
        """buttons => buttons.filter(button => {
          button.scrollIntoView({ block: "center" });
          const { left, right, top, bottom } = button.getBoundingClientRect();
          const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
          const code = button.closest("pre").querySelector("code").getBoundingClientRect();
          const covers = top < code.bottom - 1 && bottom > code.top + 1;
          return covers || hit !== button || getComputedStyle(button.parentElement).opacity !== "1";
        }).map(button => button.closest("pre").textContent.slice(0, 60))"""
    )
    assert buttons.count() > 5
    assert wrong == []


def test_short_code_stays_on_one_line(site: Site, context: BrowserContext) -> None:
    """A name breaks at no hyphen and a command at no space, on a phone and elsewhere."""
    pages = [
        opened(context, f"{site.address}{name}") for name in ("examples/", "ladder/", "advisories/")
    ]
    for page in pages:
        for width in (390, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            broken: list[str] = page.locator("article :is(p, li) > code:visible").evaluate_all(
                "codes => codes.filter(code => code.textContent.length <= 26"
                " && code.getClientRects().length > 1).map(code => code.textContent)"
            )
            assert broken == [], f"{page.url}, {width} px"


def test_what_an_item_says_ticks_it_and_a_link_in_it_leads_on(
    site: Site, context: BrowserContext
) -> None:
    """Nor does a click that ends a selection tick it."""
    page = opened(context, f"{site.address}checklists/builder/")
    item = page.locator(".checklist .task-list-item").first
    box = item.locator("input")
    item.click(position={"x": 60, "y": 12})
    expect(box).to_be_checked()
    expect(page.locator(".checklist__state")).to_contain_text("1 of")
    item.locator("code").first.click()
    expect(box).not_to_be_checked()
    item.locator("label").click()
    expect(box).to_be_checked()

    item.evaluate(
        "item => { getSelection().selectAllChildren(item);"
        " item.dispatchEvent(new MouseEvent('click', { bubbles: true })); }"
    )
    expect(box).to_be_checked()
    link = item.locator("a").first
    link.evaluate("link => link.addEventListener('click', (event) => event.preventDefault())")
    link.click()
    expect(box).to_be_checked()


def test_paper_has_no_links_to_what_is_not_on_it(site: Site, context: BrowserContext) -> None:
    page = opened(context, f"{site.address}checklists/builder/")
    expect(page.locator(".page-foot")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.locator(".page-foot")).not_to_be_visible()


def test_a_missing_page_offers_the_search_and_the_ways_of_the_home_page(
    site: Site, context: BrowserContext
) -> None:
    home = opened(context, site.address)
    links: list[str] = home.locator(".paths a").evaluate_all("links => links.map(a => a.href)")
    ways = [link for link in links if link.removeprefix(site.address) in WAYS]
    visit = Visit(context, f"{site.address}nothing-here/")
    leads: list[str] = visit.page.locator("article a").evaluate_all("all => all.map(a => a.href)")

    assert [way.removeprefix(site.address) for way in ways] == WAYS
    assert leads == [*ways, site.address]
    field = visit.page.get_by_role("textbox", name="Search")
    for size in (ViewportSize(width=1440, height=900), PHONE):
        visit.page.set_viewport_size(size)
        visit.page.locator("article").get_by_role("button", name="Search").click()
        expect(field).to_be_focused()
        visit.page.keyboard.press("Escape")
        expect(field).not_to_be_focused()
    assert visit.page.evaluate("document.body.scrollHeight") < 2 * PHONE["height"]


def test_on_its_own_page_a_rule_says_what_the_heading_does_not(
    site: Site, context: BrowserContext
) -> None:
    """Its title is there for whoever reads no style sheet, and takes no room."""
    page = opened(context, f"{site.address}security/seal/")
    callout = page.locator("h1 + .rule")
    expect(callout).to_contain_text("Sign every checkpoint, bound to its place")
    shown: list[str] = callout.locator("p").evaluate_all(
        """parts => parts.map(part => getComputedStyle(part, "::before").content
          + part.textContent.slice(0, 6) + getComputedStyle(part, "::after").content)"""
    )
    assert shown[0] == '"·\u00a0"Danger" if ignored"'
    severity, title = (callout.locator("p").nth(n).bounding_box() for n in (0, 1))
    assert severity
    assert title
    assert title["x"] + title["width"] <= severity["x"]
    assert abs(title["y"] - severity["y"]) < 2
    assert title["width"] < 60

    other = opened(context, f"{site.address}security/scanners/").locator(".rule p").nth(1)
    box = other.bounding_box()
    assert box
    assert box["width"] > 60
