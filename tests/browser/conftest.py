"""One build and one Chromium for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.site import Site, chromium, chromium_path, serving, visitor
from tests.harness.optional import need
from tests.harness.shared import BuildFailed, built

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext


# For this folder and not for the session: while Playwright is up, asyncio.run() fails elsewhere.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    need(
        "playwright", "the browser tests need playwright; run make test, or pip install -e .[test]"
    )
    need(lambda: chromium_path() is not None, "the browser tests need Chromium; install chromium")
    with chromium() as running:
        yield running


@pytest.fixture(scope="package")
def site() -> Iterator[Site]:
    try:
        folder, _ = built()
    except BuildFailed as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    with serving(folder) as served:
        yield served


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A visitor who was never here, whose browser lets a page copy and download."""
    with visitor(browser, permissions=["clipboard-read", "clipboard-write"]) as fresh:
        yield fresh
