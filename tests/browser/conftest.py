"""One build and one Chromium for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.browser.site import (
    BuildFailed,
    Site,
    chromium,
    chromium_path,
    every_page,
    serving,
    visitor,
)
from tests.browser.visit import Visit
from tests.harness.optional import need

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
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        try:
            served = stack.enter_context(serving(tmp_path_factory.mktemp("site")))
        except BuildFailed as error:
            raise pytest.fail.Exception(
                f"the site does not build:\n{error}", pytrace=False
            ) from None
        yield served


@pytest.fixture(scope="package", params=every_page(), ids=lambda name: name or "home")
def visit(request: pytest.FixtureRequest, site: Site, browser: Browser) -> Iterator[Visit]:
    """Each page in turn, loaded once for all tests that only look at it."""
    with visitor(browser, permissions=["clipboard-read", "clipboard-write"]) as context:
        yield Visit(context, site.address + request.param)


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A visitor who was never here."""
    with visitor(browser) as fresh:
        yield fresh
