from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urldefrag

import pytest

from tests.browser.site import WIDTHS, Site, every_page, visitor, written_pages
from tests.browser.visit import Visit, copied
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")

from playwright.sync_api import Browser, BrowserContext, Page, expect

PAGES: Final = written_pages()
OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class _Ids(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {value for key, value in attrs if value and key in {"id", "name"}}


@cache
def ids(file: Path) -> set[str]:
    return _Ids(file.read_text(encoding="utf-8")).found


def test_the_sitemap_has_every_page_that_was_written(site: Site) -> None:
    assert sorted(site.pages) == PAGES


def test_page_loads_whole_quiet_and_from_here_alone(site: Site, visit: Visit) -> None:
    headings = visit.page.locator("h1").all_inner_texts()

    assert visit.status == 200
    assert visit.complaints == []
    assert visit.elsewhere(site) == []
    assert len(headings) == 1
    assert headings[0].strip("¶\n ")
    assert "Safepoint" in visit.page.title()
    assert visit.page.locator("meta[name=description]").get_attribute("content")


def test_headings_go_down_one_level_at_a_time(visit: Visit) -> None:
    levels: list[int] = visit.page.locator("article :is(h1, h2, h3, h4, h5, h6)").evaluate_all(
        "headings => headings.map(heading => Number(heading.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels)), levels


def test_every_link_anchor_and_image_resolves(site: Site, visit: Visit) -> None:
    links: list[str] = visit.page.evaluate(
        "[...document.querySelectorAll('[href], [src]')]"
        ".filter(element => !(element instanceof SVGElement))"
        ".map(element => element.href || element.src)"
    )
    broken = []
    for link in dict.fromkeys(links):
        url, anchor = urldefrag(link)
        if not url.startswith(site.address):
            if not link.startswith(("https://", "mailto:")):
                broken.append(f"{link}: leaves the site, and not by https")
        elif (file := site.file(url)) is None:
            broken.append(f"{link}: no such file")
        elif anchor and file.suffix == ".html" and unquote(anchor) not in ids(file):
            broken.append(f"{link}: no such anchor")
    images = visit.page.locator("img")
    undrawn: list[str] = images.evaluate_all(
        "images => images.filter(image => !image.naturalWidth).map(image => image.src)"
    )
    unnamed: list[str] = images.evaluate_all(
        "images => images.filter(image => !image.alt).map(image => image.src)"
    )
    assert broken == []
    assert undrawn == []
    assert unnamed == []


def test_copy_puts_exactly_the_block_on_the_clipboard(visit: Visit) -> None:
    page = visit.page
    wrong = []
    for block in page.locator("article .highlight:not(.no-copy, .language-text):visible").all():
        button = block.locator("button[data-clipboard-target]")
        if block.evaluate("block => !!block.closest('.doc-signature')"):
            continue
        text = (block.locator("code").text_content() or "").removesuffix("\n")
        if not button.is_visible():
            wrong.append(f"no copy button: {text[:60]!r}")
            continue
        page.evaluate("navigator.clipboard.writeText('nothing was copied')")
        button.click()
        got = copied(page, instead_of="nothing was copied")
        if got.removesuffix("\n") != text:
            wrong.append(f"{got[:60]!r} instead of {text[:60]!r}")
    assert wrong == []


def test_unsafe_blocks_say_so_and_have_no_copy_button(visit: Visit) -> None:
    blocks: list[dict[str, Any]] = visit.page.locator("article .highlight").evaluate_all(
        """blocks => blocks.map(block => ({
          first: block.querySelector("code").textContent.trim().split("\\n")[0],
          isUnsafe: block.classList.contains("unsafe"),
          label: getComputedStyle(block, "::before").content,
          buttons: block.querySelectorAll("button").length,
        }))"""
    )
    for block in blocks:
        assert block["isUnsafe"] == ("UNSAFE" in block["first"]), f"class and text differ: {block}"
        if block["isUnsafe"]:
            assert block["label"] == '"UNSAFE"', block
            assert block["buttons"] == 0, block


def test_page_fits_wide_and_narrow_and_a_phone_shows_48_characters_of_code(visit: Visit) -> None:
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 900})
    too_wide = [page.evaluate(OVERFLOW)]
    blocks: list[dict[str, Any]] = page.locator("article pre code").evaluate_all(
        """blocks => blocks.map(block => {
          const style = getComputedStyle(block);
          const pen = document.createElement("canvas").getContext("2d");
          pen.font = `${style.fontSize} ${style.fontFamily}`;
          const room = block.clientWidth - parseFloat(style.paddingLeft);
          return {
            isFree: block.checkVisibility()
              && block.matches(":is(article, .doc-contents) > .highlight > pre > code"),
            characters: Math.floor(room / pen.measureText("m").width),
            size: parseFloat(style.fontSize),
            text: block.textContent.slice(0, 60),
          };
        })"""
    )
    page.set_viewport_size({"width": 1440, "height": 900})
    too_wide.append(page.evaluate(OVERFLOW))

    assert too_wide == [0, 0]
    assert [block for block in blocks if block["size"] < 12] == []
    assert [block for block in blocks if block["isFree"] and block["characters"] < 48] == []


def test_what_a_program_says_wraps_and_a_drawn_tree_does_not(visit: Visit) -> None:
    blocks: list[dict[str, Any]] = visit.page.locator(
        "article .highlight:is(.language-text, .language-console) code"
    ).evaluate_all(
        """blocks => blocks.map(block => ({
          isDrawn: /[\u2500-\u257f]/.test(block.textContent),
          space: getComputedStyle(block).whiteSpace,
          text: block.textContent.slice(0, 60),
        }))"""
    )
    wrong = [block for block in blocks if (block["space"] == "pre") != block["isDrawn"]]
    assert wrong == []


def test_some_page_shows_an_attack(site: Site) -> None:
    """Without one, the test of unsafe blocks would hold for the wrong reason."""
    pages = [site.file(site.address + name) for name in PAGES]
    assert any(page and ' unsafe no-copy highlight"' in page.read_text("utf-8") for page in pages)


def test_pages_fit_a_phone_without_scripts(site: Site, browser: Browser) -> None:
    narrow = {"width": 390, "height": 900}
    with visitor(browser, java_script_enabled=False, viewport=narrow) as context:
        page = context.new_page()
        for name in every_page():
            page.goto(site.address + name)
            assert page.locator("html.no-js").count() == 1
            assert page.evaluate(OVERFLOW) == 0, f"{name}: scrolls sideways"


@pytest.mark.parametrize("width", WIDTHS)
def test_search_finds_a_rule_by_its_id(site: Site, context: BrowserContext, width: int) -> None:
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(site.address, wait_until="networkidle")
    page.keyboard.press("/")
    page.keyboard.type("SP03")
    results = page.locator(".md-search-result__item a.md-search-result__link")
    # The answers to the first letters come first; the one to the whole words takes their place.
    expect(results.first).to_have_attribute("href", re.compile(r"h=sp03\b", re.IGNORECASE))
    expect(results.and_(page.locator("[href*='security/pickle/']")).first).to_be_visible()
    results.first.click()
    page.wait_for_url(re.compile(r"h="))
    expect(page.locator("article")).to_contain_text("SP03")


def test_colours_follow_the_system_until_they_are_chosen_and_then_stay(
    site: Site, context: BrowserContext
) -> None:
    page = context.new_page()
    body = page.locator("body")
    choose = page.locator("form[data-md-component=palette] label:visible")

    def has(scheme: str) -> None:
        expect(body).to_have_attribute("data-md-color-scheme", scheme)

    page.goto(site.address, wait_until="networkidle")
    has("default")
    light = body.evaluate("body => getComputedStyle(body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    has("slate")
    assert body.evaluate("body => getComputedStyle(body).backgroundColor") != light

    choose.click()
    has("default")
    page.reload(wait_until="networkidle")
    has("default")
    choose.click()
    has("slate")
    page.emulate_media(color_scheme="light")
    page.goto(f"{site.address}guide/", wait_until="networkidle")
    has("slate")
    choose.click()
    has("default")
    page.emulate_media(color_scheme="dark")
    has("slate")


def focused(page: Page) -> dict[str, Any]:
    """What has the focus, and whether a person can see that."""
    found: dict[str, Any] = page.evaluate(
        """() => {
          const element = document.activeElement;
          // A hidden radio button or checkbox shows its focus on what is drawn instead of it.
          const group = element.matches("input")
            && element.closest(".md-header__option, .task-list-control");
          const drawn = group ? group.querySelectorAll("label, span") : [];
          const ringed = (part, pseudo) => {
            const style = getComputedStyle(part, pseudo);
            return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
          };
          return {
            isBody: element === document.body,
            isSkip: element.matches(".md-skip"),
            isSeen: [element, ...drawn].some((part) => ringed(part) || ringed(part, "::before")),
            what: element.outerHTML.slice(0, 120),
          };
        }"""
    )
    return found


def test_the_first_tab_reaches_the_skip_link_and_it_works(
    site: Site, context: BrowserContext
) -> None:
    page = context.new_page()
    page.goto(f"{site.address}guide/", wait_until="networkidle")
    page.keyboard.press("Tab")
    assert focused(page)["isSkip"]
    assert focused(page)["isSeen"]
    expect(page.locator(".md-skip")).to_be_in_viewport()
    expect(page.locator(".md-skip")).to_have_css("opacity", "1")
    page.keyboard.press("Enter")
    heading = page.locator("h1").get_attribute("id")
    page.wait_for_url(f"{site.address}guide/#{heading}")


def test_the_menu_opens_and_closes_by_keyboard_on_a_phone(
    site: Site, context: BrowserContext
) -> None:
    page = context.new_page()
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{site.address}guide/", wait_until="networkidle")
    words = page.locator(".md-nav--primary a", has_text=re.compile(r"^\s*Words\s*$"))
    expect(words).not_to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Menu")).to_be_focused()
    page.keyboard.press("Enter")
    expect(words).to_be_visible()
    page.keyboard.press("Escape")
    expect(words).not_to_be_visible()
    expect(page.get_by_role("button", name="Menu")).to_be_focused()


@pytest.mark.parametrize("name", ["ladder/", "frameworks/"])
def test_on_a_phone_the_heads_of_a_ladder_stay_above_its_last_row(
    site: Site, context: BrowserContext, name: str
) -> None:
    """Far down, a row of marks says nothing to somebody who cannot see the heads."""
    page = context.new_page()
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(site.address + name)
    ladders = page.locator(".ladder")
    assert ladders.count() > 1
    for ladder in ladders.all():
        ladder.locator("tbody tr").last.evaluate("row => row.scrollIntoView({ block: 'end' })")
        expect(ladder.locator("thead th").last).to_be_in_viewport(ratio=1)


def test_on_a_phone_a_row_of_a_ladder_is_drawn_when_it_comes_near(
    site: Site, context: BrowserContext
) -> None:
    """And a link to what is below all of them leads there all the same."""
    page = context.new_page()
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{site.address}ladder/")
    last = page.locator(".ladder tbody tr").last
    drawn = "row => row.firstElementChild.checkVisibility({ contentVisibilityAuto: true })"
    assert not last.evaluate(drawn)
    below = page.locator("#what-remains-at-the-top")
    page.locator("article a[href='#what-remains-at-the-top']").first.click()
    expect(below).to_be_in_viewport(ratio=1)
    last.scroll_into_view_if_needed()
    page.wait_for_function(drawn, arg=last.element_handle())


@pytest.mark.parametrize("name", ["ladder/", "frameworks/"])
def test_the_heads_of_a_ladder_do_not_touch(site: Site, context: BrowserContext, name: str) -> None:
    page = context.new_page()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(site.address + name)
        gaps: list[float] = page.locator(".ladder thead tr").evaluate_all(
            """rows => rows.flatMap((row) => {
              const heads = [...row.cells].slice(1).map((cell) => {
                const words = document.createRange();
                words.selectNodeContents(cell);
                return words.getBoundingClientRect();
              });
              return heads.slice(1).map((head, n) => head.left - heads[n].right);
            })"""
        )
        assert gaps
        assert min(gaps) >= 4, f"{width} px"


@pytest.mark.parametrize("missing", ["nothing-here/", "security/deep/down/nothing.html"])
def test_a_missing_page_says_so_and_leads_back(
    site: Site, context: BrowserContext, missing: str
) -> None:
    visit = Visit(context, site.address + missing)
    assert visit.status == 404
    assert visit.elsewhere(site) == []
    # Chromium itself says that the page was not found; a stylesheet or script must not be.
    assert [text for text in visit.complaints if "404" not in text] == []
    assert len([text for text in visit.complaints if "404" in text]) == 1
    expect(visit.page.locator("h1")).to_be_visible()
    links = visit.page.locator("article a")
    leads: list[str] = links.evaluate_all("links => links.map(link => link.href)")
    assert len(leads) > 3
    assert {link.removeprefix(site.address) for link in leads} <= set(PAGES)
    assert site.address in leads
    links.last.click()
    visit.page.wait_for_url(leads[-1])


def test_print_has_no_navigation_and_no_cut_lines(site: Site, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{site.address}guide/", wait_until="networkidle")
    page.set_viewport_size({"width": 640, "height": 900})
    page.emulate_media(media="print")
    for part in (".md-header", ".md-sidebar--primary", ".md-sidebar--secondary", ".md-footer"):
        expect(page.locator(part)).not_to_be_visible()
    cut: list[str] = page.locator("article pre code").evaluate_all(
        "blocks => blocks.filter(block => block.scrollWidth > block.clientWidth + 1)"
        ".map(block => block.textContent.slice(0, 60))"
    )
    assert cut == []
