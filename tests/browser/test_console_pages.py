"""The console's pages in a real browser, with the policy that its door sends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from safepoint.console import pages
from tests.browser.html import html_problems
from tests.browser.site import WIDTHS, visitor
from tests.browser.visit import Visit
from tests.harness.optional import need
from tests.unit.console_pages import HOME, every_page
from tests.unit.console_runs import every_run

need("playwright", "the browser tests need playwright; make test installs it")

from playwright.sync_api import Browser

POLICY: Final = (
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
HOSTILE: Final = "<script>alert(1)</script><b onclick=x>\u202e  pa\u200by \n" + "x" * 300
SAMPLES: Final = {**every_page(), **every_run(HOME)}
FILES: Final = {
    **SAMPLES,
    **{f"{name}-hostile": page for name, page in every_page(HOSTILE).items()},
    "style.css": Path(pages.__file__).with_name("style.css").read_text(encoding="ascii"),
}
NAMES: Final = [name for name in FILES if name != "style.css"]
OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PRINTED: Final = """() => [...document.querySelectorAll("nav, form, .skip, button")]
  .filter((part) => part.checkVisibility()).map((part) => part.outerHTML.slice(0, 80))"""


class Handler(BaseHTTPRequestHandler):
    """Answers with a page and the policy."""

    def do_GET(self) -> None:
        name = self.path.removeprefix(f"{HOME}/").partition("?")[0]
        body = FILES.get(name, "").encode()
        self.send_response(200 if body else 404)
        kind = "text/css" if name == "style.css" else "text/html; charset=utf-8"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the base class
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{HOME}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.deep
def test_every_page_fits_obeys_the_policy_and_prints_the_record_alone(
    address: str, browser: Browser
) -> None:
    """Nothing to scroll sideways, nothing refused, nothing on paper that cannot be clicked."""
    with visitor(browser) as context:
        visit = Visit(context, f"{address}/refusal")
        page = visit.page
        for name in NAMES:
            visit.asked.clear()
            page.goto(f"{address}/{name}")
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate(OVERFLOW) == 0, (name, width)
            assert page.locator("script, [style], img").count() == 0
            assert {each.rpartition("/")[2] for each in visit.asked} == {name, "style.css"}
            assert (visit.complaints, visit.violations) == ([], []), name
            page.emulate_media(media="print")
            assert page.evaluate(PRINTED) == [], name
            page.emulate_media(media="screen")


@pytest.mark.parametrize("name", NAMES)
def test_the_html_is_whole(name: str) -> None:
    assert html_problems(FILES[name]) == []
