"""The console's pages in a real browser, with the policy that its door sends."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import pytest

from safepoint.console import pages
from tests.browser.html import html_problems
from tests.browser.site import WIDTHS, visitor
from tests.browser.visit import Visit
from tests.harness.optional import need
from tests.unit.console_pages import HOME, every_page
from tests.unit.console_runs import every_run

need("playwright", "the browser tests need playwright; make test installs it")

from playwright.sync_api import Browser, Route

ADDRESS: Final = f"http://127.0.0.1{HOME}"

POLICY: Final = (
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
HOSTILE: Final = "<script>alert(1)</script><b onclick=x>\u202e  pa\u200by \n" + "x" * 300
OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PRINTED: Final = """() => [...document.querySelectorAll("nav, form, .skip, button")]
  .filter((part) => part.checkVisibility()).map((part) => part.outerHTML.slice(0, 80))"""


@cache
def files() -> dict[str, str]:
    """Return each page by its name."""
    hostile = {f"{name}-hostile": page for name, page in every_page(HOSTILE).items()}
    return {**every_page(), **every_run(HOME), **hostile}


def answer(route: Route) -> None:
    """Answer with a page and the policy."""
    name = route.request.url.removeprefix(f"{ADDRESS}/").partition("?")[0]
    kind = "text/css" if name == "style.css" else "text/html; charset=utf-8"
    headers = {"Content-Type": kind, "Content-Security-Policy": POLICY}
    style = Path(pages.__file__).with_name("style.css").read_text(encoding="ascii")
    body = {**files(), "style.css": style}.get(name, "")
    route.fulfill(status=200 if body else 404, headers=headers, body=body)


@pytest.mark.deep
def test_every_page_fits_obeys_the_policy_and_prints_the_record_alone(browser: Browser) -> None:
    """Nothing to scroll sideways, nothing refused, nothing on paper that cannot be clicked."""
    with visitor(browser) as context:
        context.route("**/*", answer)
        visit = Visit(context, f"{ADDRESS}/refusal")
        page = visit.page
        for name in files():
            visit.asked.clear()
            page.goto(f"{ADDRESS}/{name}")
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate(OVERFLOW) == 0, (name, width)
            assert page.locator("script, [style], img").count() == 0
            assert {each.rpartition("/")[2] for each in visit.asked} == {name, "style.css"}
            assert (visit.complaints, visit.violations) == ([], []), name
            page.emulate_media(media="print")
            assert page.evaluate(PRINTED) == [], name
            page.emulate_media(media="screen")


def test_the_html_is_whole() -> None:
    found = {name: html_problems(page) for name, page in files().items()}
    assert {name: problems for name, problems in found.items() if problems} == {}
