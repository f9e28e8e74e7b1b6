"""Search leads to what is pasted into it: an error, a rule or an advisory, by any of its names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from publish import advisories
from publish.project import Project
from safepoint.rules import RULES
from safepoint.shared.explanations import EXPLANATIONS
from tests.browser.site import PATIENCE, Site, visitor
from tests.browser.visit import Visit
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")

from playwright.sync_api import Browser, BrowserContext, Page, expect

FIELD: Final = "[data-md-component=search-query]"
LINKS: Final = ".md-search-result__item a.md-search-result__link"
ERRORS: Final = {
    name: f"errors/#{found.error.__module__}.{name}" for name, found in EXPLANATIONS.items()
}
PAGES: Final = {
    rule.id: f"{rule.page.removesuffix('.md')}/" for rule in RULES.values() if rule.page
}
ADVISORIES: Final = {
    name: f"affected/#{each.anchor}"
    for each in advisories.read(Project())
    for name in (each.id, *each.also)
}
QUERIES: Final = {
    "guide/": ["quickstart", "getting started", "idempotency key"],
    "speed/": ["performance", "benchmark", "overhead"],
    "security/credentials/": ["RBAC", "least privilege"],
    "security/strict/": ["allowlist"],
    "threat-model/": ["threat model", "CWE-502", "OWASP", "encryption"],
    "model-file/": [
        *("pt file", "load model safely", "untrusted model", "malicious model"),
        *("yolo", "ultralytics", "sklearn", "huggingface", "h5"),
    ],
    "security/model-loading/": ["torch.load", "weights_only"],
    "security/safetensors/": ["safetensors"],
    "console/": ["operator UI", "approve in browser"],
    "security/journal/": ["audit trail", "audit log"],
    "security/approvals/": ["human-in-the-loop", "approval workflow", "replay"],
    "security/waiting/": ["deny by default", "timeout"],
    "security/anchor/": ["rollback"],
    "security/append-only/": ["tamper-evident", "hash chain"],
    "security/seal/": ["signature", "HMAC"],
    "security/rotation/": ["key rotation", "stolen key", "lost key", "backup restore"],
    "security/location/": ["path traversal"],
    "tenants/": ["multi-tenant", "IDOR"],
    "security/ownership/": ["race condition"],
    "security/bounds/": ["denial of service"],
    "security/scanners/": ["zip bomb"],
    "langgraph/": ["LangGraph checkpointer", "SqliteSaver", "ToolNode", "FastAPI"],
    "agent-framework/": ["Agent Framework FileCheckpointStorage"],
    "moving-in/": ["migrate existing checkpoints"],
    "command/ci/": ["pre-commit hook", "GitHub Action"],
    "security/linting/": ["bandit"],
    "affected/": ["am I affected"],
    "words/": ["glossary"],
    "checklists/": ["checklist"],
}
"""What people type, by the page that answers it."""
# The theme writes how many were found each time that an answer comes, also when it is the same.
ASK: Final = """async ([field, links, base, words, limit]) => {
  const input = document.querySelector(field);
  const found = () => [...document.querySelectorAll(links)].map((link) => {
    const url = new URL(link.href);
    url.search = "";
    return [
      url.href.replace(base, ""),
      Number(link.firstElementChild.dataset.mdScore),
      link.closest("li").matches(":first-child"),
    ];
  });
  const answered = new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`no answer to ${words.slice(0, 60)}`)), limit);
    const observer = new MutationObserver(() => { observer.disconnect(); resolve(found()); });
    observer.observe(document.querySelector(".md-search-result__meta"), { childList: true });
  });
  input.value = words;
  input.dispatchEvent(new InputEvent("input", { bubbles: true }));
  return answered;
}"""


@dataclass(frozen=True)
class Search:
    """A page on which somebody searches."""

    site: Site
    visit: Visit

    def links(self, words: str) -> list[tuple[str, float, bool]]:
        """Return each answer: where it leads, how good it is, and whether it is in the first."""
        page = self.visit.page
        found: list[tuple[str, float, bool]] = page.evaluate(
            ASK, [FIELD, LINKS, self.site.address, f"{words} ", PATIENCE]
        )
        return found

    def first(self, words: str) -> str:
        """Return where the Enter key would lead: the best of the first page.

        The theme shows the name of that page above it, so it is the first or second link.
        """
        links = self.links(words)
        if not links:
            return "nothing"
        place, _, in_first = max(links, key=lambda link: link[1])
        assert in_first
        assert place in [link[0] for link in links[:2]]
        return place

    def wrong(self, wanted: dict[str, str]) -> dict[str, str]:
        """Return the words that lead elsewhere, with where they lead."""
        found = {words: self.first(words) for words in wanted}
        return {words: place for words, place in found.items() if place != wanted[words]}


def begun(page: Page) -> None:
    page.locator(FIELD).focus()
    page.keyboard.type("seal")
    expect(page.locator(LINKS).first).to_be_visible()


@pytest.fixture(scope="module")
def search(site: Site, browser: Browser) -> Iterator[Search]:
    with visitor(browser) as context:
        visit = Visit(context, f"{site.address}guide/")
        begun(visit.page)
        yield Search(site, visit)


@pytest.mark.parametrize("share", [9, pytest.param(1, marks=pytest.mark.deep)])
def test_the_name_of_an_error_or_an_advisory_leads_to_it(search: Search, share: int) -> None:
    """In whatever letters, and among other words."""
    names = dict([*(ERRORS | ADVISORIES).items()][::share])
    assert search.wrong(names) == {}
    assert search.wrong({name.lower(): place for name, place in names.items()}) == {}
    assert search.first("what to do about SealBroken today") == ERRORS["SealBroken"]
    assert search.first("the page of SP04 please") == PAGES["SP04"]
    assert search.first("is CVE-2025-32434 fixed?") == ADVISORIES["CVE-2025-32434"]
    assert search.links("CVE-2025-99999") == []
    assert search.links("GHSA-g48c-2wqr-0000") == []


def test_a_paste_searches_without_a_key(site: Site, context: BrowserContext) -> None:
    page = Visit(context, site.address).page
    begun(page)
    page.locator(FIELD).select_text()
    page.keyboard.insert_text("safepoint.core.errors.InvalidId: '../keys' is not a thread name.")
    answer = page.locator(f"{LINKS}[href$='#safepoint.core.errors.InvalidId']")
    expect(answer).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**/errors/?h=invalidid#safepoint.core.errors.InvalidId")


@pytest.mark.deep
def test_search_is_loaded_when_somebody_searches_and_then_leads_there(
    site: Site, context: BrowserContext
) -> None:
    visit = Visit(context, site.address)
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 900})
    index = f"{site.address}search/all.json"
    assert index not in visit.asked
    assert page.workers == []
    page.keyboard.press("/")
    page.keyboard.type("SP03")
    results = page.locator(LINKS)
    # The answers to the first letters come first; the one to the whole words takes their place.
    expect(results.first).to_have_attribute("href", re.compile(r"h=sp03\b", re.IGNORECASE))
    assert visit.asked.count(index) == 1
    results.first.click()
    page.wait_for_url(re.compile(r"/security/pickle/\?h="))
    expect(page.locator("article")).to_contain_text("SP03")
    assert visit.elsewhere(site) == []
    assert visit.violations == []


@pytest.mark.deep
def test_what_people_type_leads_to_the_page_that_answers_it_among_the_first_three(
    search: Search,
) -> None:
    missed = set()
    for page, queries in QUERIES.items():
        for words in queries:
            found = [place.partition("#")[0] for place, _, _ in search.links(words)]
            if page not in [*dict.fromkeys(found)][:3]:
                missed.add(words)
    assert missed == set()
