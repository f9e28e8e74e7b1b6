"""What the site promises to everyone: the cheap checks on every page, all on one of each kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import pytest

from tests.browser.axe import COLOURS, axe, bring
from tests.browser.keyboard import walk
from tests.browser.site import KINDS, PAGES, SCHEMES, WIDTHS, Scheme, Site, visitor
from tests.browser.visit import Visit, copied
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")

from playwright.sync_api import Browser, BrowserContext, Page, expect

DEEP: Final = pytest.mark.deep
WALKED: Final = ("checklists/",)
"""What a keyboard goes through: the others have more links, and nothing else to reach."""
JUDGED: Final = ("", "guide/", "ladder/")
"""Those that are read without scripts, and the first two by axe. `make deep` takes all."""
TALLEST: Final = 12_000
"""How many pixels high a page may be at a width of 1,440: lists are folded, or split."""
MENU: Final = ".md-sidebar--primary"
OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LOADED: Final = """() => Promise.all([...document.images].map(image => {
  image.loading = "eager";  // what is far below waits until a reader comes near
  return image.decode().catch(() => null);
}))"""
LOOK: Final = """() => ({
  images: [...document.images].filter((image) => !image.naturalWidth).map((image) => image.src),
  blocks: [...document.querySelectorAll("article .highlight")].map((block) => {
    const code = block.querySelector("code");
    return {
      text: code.textContent.trim().split("\\n")[0],
      isUnsafe: block.classList.contains("unsafe"),
      label: getComputedStyle(block, "::before").content,
      buttons: block.querySelectorAll("button").length,
      isOutput: block.matches(".language-text"),
      isDrawn: /[\u2500-\u257f]/.test(code.textContent),
      space: getComputedStyle(code).whiteSpace,
    };
  }),
})"""
CODE: Final = """blocks => blocks.map(block => {
  const style = getComputedStyle(block);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const room = block.clientWidth - parseFloat(style.paddingLeft);
  const isFree = block.checkVisibility()
    && block.matches(":is(article, .doc-contents) > .highlight > pre > code");
  const characters = Math.floor(room / pen.measureText("m").width);
  const isBad = parseFloat(style.fontSize) < 12 || (isFree && characters < 48);
  return isBad ? `${style.fontSize}, ${characters}: ${block.textContent.slice(0, 60)}` : null;
}).filter(Boolean)"""


PARTED: Final = """codes => codes.filter(code => code.getClientRects().length > 1)
  .map(code => code.textContent)"""
"""Short names and commands that a line break parts."""


def odd(block: dict[str, Any]) -> bool:
    """Tell whether an unsafe block has no label or can be copied, or output wraps wrongly."""
    return (block["isUnsafe"] and (block["label"], block["buttons"]) != ('"UNSAFE"', 0)) or (
        block["isOutput"] and (block["space"] == "pre") != block["isDrawn"]
    )


@pytest.fixture(scope="module")
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """One visitor for all pages, in one tab, who has loaded the styles before."""
    with visitor(browser) as one:
        yield Visit(one, site.address)


@pytest.mark.parametrize(
    "name", [*KINDS, *(pytest.param(n, marks=DEEP) for n in PAGES if n not in KINDS)]
)
def test_a_page_is_quiet_and_fits(site: Site, visit: Visit, name: str) -> None:
    """Its HTML is read, on every page, by `tests/publish/test_html.py`."""
    page = visit.page
    page.goto("about:blank")  # has nothing to lay out anew when the window shrinks
    page.set_viewport_size({"width": 390, "height": 900})
    visit.go(site.address + name, until="load")
    assert page.evaluate(OVERFLOW) == 0
    assert page.locator("article pre code").evaluate_all(CODE) == []
    assert page.locator("article .whole:visible").evaluate_all(PARTED) == []
    page.set_viewport_size({"width": 1440, "height": 900})
    assert page.evaluate(OVERFLOW) == 0
    assert page.evaluate("document.documentElement.scrollHeight") <= TALLEST
    page.evaluate(LOADED)
    seen: dict[str, Any] = page.evaluate(LOOK)
    assert seen["images"] == []
    assert [block for block in seen["blocks"] if odd(block)] == []
    assert (visit.status, visit.complaints, visit.violations) == (200, [], [])
    assert visit.elsewhere(site) == []


@pytest.mark.parametrize(
    ("name", "looks"),
    [
        *((name, [(1440, "light"), (390, "dark")]) for name in JUDGED[:2]),
        *(pytest.param(name, [*product(WIDTHS, SCHEMES)], marks=DEEP) for name in PAGES),
    ],
)
def test_axe_finds_nothing_wide_or_narrow_light_or_dark(
    site: Site, context: BrowserContext, name: str, looks: list[tuple[int, Scheme]]
) -> None:
    page = Visit(context, site.address + name).page
    bring(page)
    found = []
    for width, scheme in looks:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", SCHEMES[scheme])
        rules = () if scheme == "light" else COLOURS
        found += [f"{width} px, {scheme}: {problem}" for problem in axe(page, rules)]
    assert found == []


def test_axe_would_find_a_pale_word_among_many_and_an_image_without_words(
    site: Site, context: BrowserContext
) -> None:
    """The test above says nothing if the program does not run."""
    page = Visit(context, f"{site.address}guide/").page
    bring(page)
    for place in ("article pre code", "nav a"):
        page.locator(f"{place}:visible").last.evaluate(
            """words => {
              const pale = Object.assign(document.createElement("i"), { id: "pale" });
              pale.textContent = "pale";
              Object.assign(pale.style, { background: "#aaa", color: "#999" });
              words.append(pale);
            }"""
        )
        [problem] = axe(page, COLOURS)
        assert problem.startswith("color-contrast (1)"), place
        page.evaluate("document.getElementById('pale').remove()")
    page.evaluate("document.querySelector('article p').append(document.createElement('img'))")
    [problem] = axe(page, ("image-alt",))
    assert problem.startswith("image-alt (1)")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=DEEP if n != "guide/" else ()) for n in PAGES]
)
def test_copy_puts_exactly_the_block_on_the_clipboard(
    site: Site, context: BrowserContext, name: str
) -> None:
    page = Visit(context, site.address + name).page
    wrong = []
    for block in page.locator("article .highlight:not(.no-copy, .language-text):visible").all():
        if block.evaluate("block => !!block.closest('.doc-signature')"):
            continue
        text = (block.locator("code").text_content() or "").removesuffix("\n")
        page.evaluate("navigator.clipboard.writeText('nothing was copied')")
        block.locator("button[data-clipboard-target]").click()
        got = copied(page, instead_of="nothing was copied").removesuffix("\n")
        wrong += [] if got == text else [f"{got[:60]!r} instead of {text[:60]!r}"]
    assert wrong == []


@pytest.mark.parametrize("names", [JUDGED, pytest.param(PAGES, marks=DEEP)])
def test_a_page_fits_a_phone_without_scripts(
    site: Site, browser: Browser, names: Sequence[str]
) -> None:
    narrow = {"width": 390, "height": 900}
    with visitor(browser, java_script_enabled=False, viewport=narrow) as context:
        page = context.new_page()
        for name in names:
            page.goto(site.address + name)
            assert page.locator("html.no-js").count() == 1
            assert page.evaluate(OVERFLOW) == 0, name


@pytest.mark.parametrize(
    ("name", "widths"),
    [*((name, [1440]) for name in WALKED), *(pytest.param(n, WIDTHS, marks=DEEP) for n in PAGES)],
)
def test_everything_is_reached_by_tab_and_shows_its_focus(
    site: Site, context: BrowserContext, name: str, widths: Sequence[int]
) -> None:
    page = Visit(context, site.address + name).page
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        walked = walk(page)
        assert walked.total > 5
        assert (walked.unreached, walked.unringed, walked.came_round) == ([], [], True), width


def open_menu(page: Page) -> None:
    """Open it with the keyboard."""
    page.set_viewport_size({"width": 390, "height": 900})
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Menu")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(f"{MENU} .md-nav__link:visible").first).to_be_in_viewport()


def test_the_menu_opens_and_closes_and_tab_begins_at_a_link_that_skips_it(
    site: Site, context: BrowserContext
) -> None:
    page = Visit(context, f"{site.address}guide/").page
    page.keyboard.press("Tab")
    skip = page.locator(".md-skip")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    expect(skip).to_have_css("opacity", "1")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.address}guide/#{page.locator('h1').get_attribute('id')}")

    page = Visit(context, f"{site.address}guide/").page
    words = page.locator(".md-nav--primary a", has_text=re.compile(r"^\s*Choosing a store\s*$"))
    open_menu(page)
    expect(words).to_be_visible()
    page.keyboard.press("Escape")
    expect(words).not_to_be_visible()
    expect(page.get_by_role("button", name="Menu")).to_be_focused()


def test_a_link_to_a_place_in_a_fold_opens_it(site: Site, context: BrowserContext) -> None:
    """Also from an old address."""
    for name, place in (
        ("errors/", "invalidid"),
        ("attacks/", "edit-state"),
        ("advisories/", "cve-2025-67644"),
    ):
        page = context.new_page()
        page.goto(f"{site.address}{name}#{place}")
        expect(
            page.locator(f"details[open]:is([id='{place}'], :has([id='{place}']))")
        ).to_be_visible()


def test_the_policy_refuses_what_was_not_there_when_it_was_built(
    site: Site, context: BrowserContext
) -> None:
    page = Visit(context, site.address).page
    page.evaluate(
        """() => {
          const add = (html) => document.body.append(document.createRange()
            .createContextualFragment(html));
          add("<script>window.injected = true</script>");
          add("<img src=x onerror='window.injected = true'>");
          add("<script src='https://example.org/x.js'></" + "script>");
        }"""
    )
    # Not wait_for_function: what it does later is an eval, which the policy refuses.
    while not page.evaluate("window.violations?.length > 2 || window.injected"):
        page.wait_for_timeout(20)
    assert page.evaluate("window.injected") is None
    assert len(page.evaluate("window.violations")) == 3


def test_a_mark_opens_and_says_when_on_what_and_as_which_test(
    site: Site, context: BrowserContext
) -> None:
    page = Visit(context, f"{site.address}guide/").page
    mark = page.locator("article details.proof").first
    expect(mark.locator("p")).not_to_be_visible()
    mark.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(mark.locator("p")).to_have_text(
        re.compile(
            r"\d{4}-\d\d-\d\d \d\d:\d\d UTC · Python 3\.\d+\.\d+.* · "
            r"test docs/guide\.md::\d+-\w+ · no commit"
        )
    )


def test_the_home_page_shows_what_it_is_and_four_ways_in_on_the_first_screen(
    site: Site, context: BrowserContext
) -> None:
    """A wide screen also has the edit, and its refusal."""
    page = context.new_page()
    for width, height in ((390, 844), (1440, 900)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(site.address)
        ways = page.locator(".start li a")
        expect(ways).to_have_count(4)
        for part in (page.locator("h1"), page.locator(".hero__lead"), *ways.all()):
            expect(part).to_be_in_viewport()
    expect(page.get_by_text("#> {'payee': 'alice', 'amount': 42}")).to_be_in_viewport()
    expect(page.get_by_text("SealBroken: The state of order-7")).to_be_in_viewport(ratio=1)
