"""Draw the pictures of the console and of the terminal for docs/console.md: `make screenshots`."""

from __future__ import annotations

from base64 import b64decode
from datetime import timedelta
from decimal import Decimal
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from safepoint import Ask
from tests.browser.site import SCHEMES, chromium, visitor
from tests.unit.console_driver import PROMPT, console
from tests.unit.test_console_app import DANA, locked
from tests.unit.test_deciding import Office

if TYPE_CHECKING:
    from playwright.sync_api import Page

ASSETS: Final = Path(__file__).parents[2] / "docs/assets"
SIZE: Final = {"width": 1000, "height": 640}
RUNS: Final[dict[str, tuple[str, float, dict[str, Any]]]] = {
    "ticket-13": ("acme", 3, {"amount": Decimal("39.0"), "customer": "ann@acme.example"}),
    "ticket-14": ("acme", 5, {"amount": Decimal("1250.00"), "customer": "bo@acme.example"}),
    "ticket-9": ("globex", 26, {"amount": Decimal("12.5"), "customer": "\u0430nn@globex.example"}),
}
SHEET: Final = """:root { color-scheme: light dark }
body { background: light-dark(#f5f3ee, #14191c); color: light-dark(#1d2428, #dde3e3); margin: 1rem }
pre { font: 11px/1.5 "DejaVu Sans Mono", monospace }"""


def prepared(folder: Path) -> Office:
    """Return a store in which three refunds wait, and one run was tampered with."""
    office = Office(folder)
    locked(office, "dana")
    for thread, (tenant, hours, given) in RUNS.items():
        order = {**given, "order": int(thread.partition("-")[2])}
        flow = office.flow(Ask("refund", order, timedelta(hours=hours)), version="3")
        flow.start(office.ledger().tenant(tenant), thread)
    office.start("ticket-7")
    file = min((folder / "state" / "ticket-7").iterdir())
    file.write_bytes(file.read_bytes() + b"x")
    return office


def draw(page: Page, name: str) -> None:
    """Write what a page looks like now, light and dark."""
    session = page.context.new_cdp_session(page)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        picture = session.send("Page.captureScreenshot", {"format": "webp", "quality": 60})
        (ASSETS / f"console-{name}-{scheme}.webp").write_bytes(b64decode(picture["data"]))


def main() -> None:
    """Draw all of them from a real console."""
    with TemporaryDirectory() as name, chromium() as browser:
        office = prepared(Path(name))
        listed = office.run("waiting", "invoices")[1].partition("ALARM")[0]
        with console(office.folder, *DANA) as terminal, visitor(browser, viewport=SIZE) as context:
            page = context.new_page()
            page.goto(terminal.link())
            page.get_by_role("heading", name="Waiting for people").wait_for()
            while not page.get_by_role("heading", name="Does not verify").count():
                page.get_by_role("link", name="Waiting").click()
            draw(page, "waiting")
            page.get_by_role("link", name="ticket-7").click()
            draw(page, "alarm")
            page.go_back()
            page.get_by_role("link", name="ticket-13").click()
            draw(page, "run")
            page.get_by_role("button", name="Approve").click()
            terminal.wait(PROMPT)
            draw(page, "sign")
            asked = terminal.screen[terminal.screen.index("APPROVE") :]
            terminal.type("\n")
            text = f"$ safepoint waiting invoices\n{listed}\n$ safepoint console --key dana.key\n"
            page = context.new_page()  # which has no policy that refuses a style
            page.set_viewport_size({"width": 1180, "height": 560})
            page.set_content(f"<style>{SHEET}</style><pre>{escape(text + asked)}</pre>")
            draw(page, "terminal")


if __name__ == "__main__":
    main()
