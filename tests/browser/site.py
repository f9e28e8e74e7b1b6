"""Serve the built site below a sub-path of a local address, and open a Chromium on it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from publish.project import Project
from tests.harness.shared import SUB_PATH

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

PATIENCE: Final = 600_000
"""How many milliseconds to wait for what has to come. Only what is broken takes that long."""
# Each window would draw the list below its address bar, which no test looks at, and take twice as
# long. The others are those that Playwright leaves out; it has no way to add to them.
LEFT_OUT: Final = (
    *("WebUIOmniboxPopup", "WebUIOmniboxFullPopup", "WebUIOmniboxAimPopup"),
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
    *("HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding"),
    *("ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "AimEnabled"),
    *("OptimizationHints", "NetworkTimeServiceQuerying", "PreconnectToSearch"),
)
NOT_FOUND: Final = "404.html"
WIDTHS: Final = (1440, 390)
Scheme = Literal["light", "dark"]
SCHEMES: Final[dict[Scheme, str]] = {"light": "default", "dark": "slate"}
"""What the system can ask for, and what the theme calls it."""
PAGES: Final = [*(page.url for page in Project().pages.values()), NOT_FOUND]
"""All pages that a person can meet, the one that says that there is none among them."""
KINDS: Final = (
    *("", "guide/", "security/pickle/", "ladder/", "errors/", "verified/", "checklists/"),
    *("reference/anchor/", NOT_FOUND),
)
"""The home page and one of each kind."""
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True)
class Site:
    """The site on disk, and where it is served."""

    folder: Path
    address: str

    def file(self, url: str) -> Path | None:
        """Return the file that an address of this site stands for, or None."""
        path = urlsplit(url).path
        if not path.startswith(SUB_PATH):
            return None
        file = self.folder / path.removeprefix(SUB_PATH)
        file = file / "index.html" if file.is_dir() else file
        return file if file.is_file() else None


def chromium_path() -> str | None:
    """Return the Chromium of this machine, if it has one."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def serving(folder: Path) -> Iterator[Site]:
    """Serve a built site while the block runs."""
    handler = partial(_Handler, directory=str(folder))
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield Site(folder, f"http://127.0.0.1:{server.server_port}{SUB_PATH}")
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a Chromium with a profile of its own, which can reach this machine alone."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    arguments = [
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--disable-features={','.join(LEFT_OUT)}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visitor(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """Somebody who was never here, with a wide window unless the options say otherwise."""
    wide = {"width": 1440, "height": 900}
    context = browser.new_context(**{"viewport": wide, "reduced_motion": "reduce", **options})
    context.set_default_timeout(PATIENCE)
    try:
        yield context
    finally:
        context.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the browser went away: no news
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        inside = path.removeprefix(SUB_PATH) if path.startswith(SUB_PATH) else "\0"
        return super().translate_path("/" + inside)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        if code != HTTPStatus.NOT_FOUND:
            super().send_error(code, message, explain)
            return
        body = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the base class
        pass
