"""The whole console in a real browser, as a new approver tries it: by keyboard, on any screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.browser.axe import COLOURS, axe, bring
from tests.browser.keyboard import walk
from tests.browser.site import Scheme, visitor
from tests.browser.visit import Visit
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")
need("uvicorn", "the console needs uvicorn; make test installs it")

from playwright.sync_api import Browser, Page, expect

from safepoint import Ask
from safepoint.core.errors import NotOwner
from tests.unit.console_driver import Terminal, console
from tests.unit.test_console_app import DANA, OPAL, locked
from tests.unit.test_deciding import Office

OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LOOKS: Final[tuple[tuple[int, Scheme, tuple[str, ...]], ...]] = (
    (1440, "light", ()),
    (390, "dark", COLOURS),
)


class Seat(NamedTuple):
    """Somebody at a terminal and a browser."""

    office: Office
    terminal: Terminal
    visit: Visit

    @property
    def page(self) -> Page:
        return self.visit.page

    def reach(self, text: str) -> None:
        """Press Tab until something has the focus, and press Enter."""
        for _ in range(200):
            focused = self.page.locator(":focus")
            if focused.count() and text in (focused.first.text_content() or ""):
                self.page.keyboard.press("Enter")
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(text)

    def go(self, text: str, title: str) -> None:
        """Follow a link or press a button, to a page that has this title."""
        self.reach(text)
        expect(self.page.locator("h1")).to_have_text(title)

    def open(self, thread: str) -> None:
        """Go to a run, from the list of what waits."""
        self.go("Waiting", "Waiting for people")
        while not self.page.get_by_role("link", name=thread, exact=True).count():
            self.refresh()  # until it was found, and verified
        self.go(thread, f"Run {thread}")

    def refresh(self) -> None:
        with self.page.expect_navigation():
            self.reach("Refresh")

    def sign(self, ends: str = "Signed") -> None:
        """Type the passphrase on the terminal, and wait until the page has seen it."""
        expect(self.page.locator("h1")).to_have_text("Type your passphrase on the terminal")
        self.terminal.sign()
        expect(self.page.locator("h1")).to_have_text(ends)

    def look(self, name: str) -> None:
        """Hold a page against what everybody needs: wide and light, narrow and dark, the policy."""
        page = self.page
        bring(page)
        for width, scheme, rules in LOOKS:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(OVERFLOW) == 0, (name, width)
            assert axe(page, rules) == [], (name, width, scheme)
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1440, "height": 900})
        assert (self.visit.complaints, self.visit.violations) == ([], []), name


@pytest.fixture
def office(tmp_path: Path) -> Office:
    made = Office(tmp_path)
    made.keep_journal()
    locked(made, "dana", "opal")
    note = "\n".join(f"line {number}: as agreed by mail" for number in range(80))
    made.start("order-7", Ask("pay", {"amount": 42, "payee": "alice", "note": note}))
    for thread in ("order-8", "order-9", "order-10"):
        made.start(thread)
    return made


@pytest.fixture
def dana(office: Office, browser: Browser) -> Iterator[Seat]:
    with console(office.folder, *DANA) as terminal, visitor(browser) as context:
        yield Seat(office, terminal, Visit(context, terminal.link()))


@pytest.fixture
def opal(office: Office, browser: Browser) -> Iterator[Seat]:
    with console(office.folder, *OPAL) as terminal, visitor(browser) as context:
        yield Seat(office, terminal, Visit(context, terminal.link()))


def test_a_new_approver(dana: Seat, opal: Seat) -> None:
    """From the printed link to a paid order; one denied, one held, one that was tampered with."""
    office, page = dana.office, dana.page
    dana.open("order-7")
    expect(page.locator(":focus")).to_have_text("Deny")
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    expect(page.locator(":focus")).to_be_in_viewport()
    expect(page.locator(".asks").get_by_text("42", exact=True)).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("button", name="Approve")).not_to_be_in_viewport()
    dana.look("run")
    assert walk(page).unringed == []
    page.reload()
    dana.reach("Approve")
    dana.sign()
    dana.look("signed")
    assert office.flow().resume(office.ledger(), "order-7").state["paid"] == 42
    dana.go("Back to the run", "Run order-7")
    expect(page.get_by_text("It waits for nobody.")).to_be_visible()

    dana.go("Waiting", "Waiting for people")
    page.locator("#find").fill("action:pay ORDER-9")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="order-8")).to_have_count(0)
    dana.go("order-9", "Run order-9")
    dana.open("order-8")
    page.keyboard.press("Shift+Tab")  # from Deny back to its reason
    page.keyboard.type("alice is not our supplier")
    dana.reach("Deny")
    dana.sign()
    dana.go("Back to the run", "Run order-8")
    expect(page.get_by_text("alice is not our supplier").first).to_be_visible()
    assert office.flow().resume(office.ledger(), "order-8").denied

    opal.open("order-9")
    opal.page.locator("#why-hold").focus()
    opal.page.keyboard.type("wait for the bank")
    opal.reach("Hold")
    opal.sign()
    with pytest.raises(NotOwner, match="has held"):
        office.flow().resume(office.ledger(), "order-9")
    opal.go("Back to the run", "Run order-9")
    expect(opal.page.get_by_text("by opal: wait for the bank")).to_be_visible()
    opal.look("held")
    opal.go("Held", "Held by operators")
    opal.go("order-9", "Run order-9")
    opal.reach("Release")
    opal.sign()
    opal.go("Back to the run", "Run order-9")
    expect(opal.page.get_by_text("Nobody holds it.")).to_be_visible()

    file = office.folder / "state" / "order-10" / "0000000002.checkpoint"
    file.write_bytes(file.read_bytes().replace(b"amount\x2a", b"amount\x2b"))
    dana.go("Waiting", "Waiting for people")
    while not page.get_by_role("heading", name="Does not verify: cannot be approved").count():
        dana.refresh()
    dana.look("waiting")
    dana.go("order-10", "Run order-10")
    expect(page.get_by_role("heading", name="This run does not verify")).to_be_visible()
    expect(page.get_by_role("button")).to_have_count(0)
    dana.look("tampered")

    dana.go("Done", "Done")
    expect(page.get_by_role("cell", name="alice is not our supplier")).to_be_visible()
    dana.look("done")
    dana.visit.page.goto(f"{page.url.removesuffix('/done')}/nothing")
    dana.go("Go on", "Nothing is here")
