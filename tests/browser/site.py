"""Build the site, serve it below a sub-path of a local address, and open a Chromium on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from tests.harness.pretend import pretend

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

ROOT: Final = Path(__file__).resolve().parents[2]
# Not the root of the host, so that a link which only works there is found.
SUB_PATH: Final = "/some/folder/"
PATIENCE: Final = 120_000
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
SCHEMES: Final[dict[Literal["light", "dark"], str]] = {"light": "default", "dark": "slate"}
"""What the system can ask for, and what the theme calls it."""
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class BuildFailed(RuntimeError):
    """The site could not be built; the message is what the generator said."""


@dataclass(frozen=True)
class Site:
    """The site on disk, and where it is served."""

    folder: Path
    address: str

    @cached_property
    def pages(self) -> list[str]:
        """The pages of the sitemap, relative to the address: "", "guide/" …"""
        tree = ET.parse(self.folder / "sitemap.xml")  # noqa: S314  written by the build just now
        found = [element.text or "" for element in tree.iter() if element.tag.endswith("}loc")]
        return [page.removeprefix(self.address) for page in found]

    def file(self, url: str) -> Path | None:
        """Return the file that an address of this site stands for, or None."""
        path = urlsplit(url).path
        if not path.startswith(SUB_PATH):
            return None
        file = self.folder / path.removeprefix(SUB_PATH)
        file = file / "index.html" if file.is_dir() else file
        return file if file.is_file() else None


def written_pages() -> list[str]:
    """Return the pages that the sources promise, as the sitemap names them."""
    docs = ROOT / "docs"
    parts = [file.relative_to(docs).with_suffix("").parts for file in docs.rglob("*.md")]
    return sorted(
        "".join(f"{part}/" for part in (path[:-1] if path[-1] == "index" else path))
        for path in parts
    )


def every_page() -> list[str]:
    """Return all pages that a person can meet: those, and the one that says that there is none."""
    return [*written_pages(), NOT_FOUND]


def chromium_path() -> str | None:
    """Return the Chromium of this machine, if it has one."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def serving(folder: Path) -> Iterator[Site]:
    """Build the site into `folder` and serve it while the block runs.

    Raises:
        BuildFailed: the build found something to complain about.
    """
    with _Server(("127.0.0.1", 0), partial(_Handler, directory=str(folder))) as server:
        address = f"http://127.0.0.1:{server.server_port}{SUB_PATH}"
        _build(folder, address)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield Site(folder, address)
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


def _build(folder: Path, address: str) -> None:
    # The pages may run later than these tests, and their marks are part of what is looked at.
    evidence = pretend(folder.with_name("evidence.jsonl"), ROOT)
    done = subprocess.run(
        # Never --quiet: it drops the warnings before --strict can count them.
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={
            **os.environ,
            "SITE_URL": address,
            "EVIDENCE": str(evidence),
            "NO_MKDOCS_2_WARNING": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed((done.stderr or done.stdout).strip())


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
