"""A visit to one page: what it asked for and complained about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tests.browser.site import PATIENCE, Site

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

# Told by the page itself, whether or not the console says it.
_REPORT = """addEventListener("securitypolicyviolation", (event) => {
  (window.violations ||= []).push(`${event.violatedDirective}: ${event.blockedURI}`);
})"""


_COPIED = """async ([before, limit]) => {
  const end = performance.now() + limit;
  for (;;) {
    const text = await navigator.clipboard.readText();
    if (text !== before || performance.now() > end) return text;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}"""


def copied(page: Page, *, instead_of: str) -> str:
    """Return what is on the clipboard, as soon as it is something else than before."""
    text: str = page.evaluate(_COPIED, [instead_of, PATIENCE])
    return text


class Visit:
    """A page, with all that it asked for and complained about."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page: Page = context.new_page()
        self.page.add_init_script(_REPORT)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self._heard(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(request.url))
        self.go(url)

    def go(self, url: str, until: Literal["load", "networkidle"] = "networkidle") -> None:
        """Go to another page in the same tab, and forget what the last one did."""
        self.asked.clear()
        self.complaints.clear()
        response = self.page.goto(url)
        # The network can be idle before a slow machine has read the page.
        self.page.wait_for_load_state(until)
        self.status = response.status if response else None

    def _heard(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(text)

    @property
    def violations(self) -> list[str]:
        """What its policy refused."""
        found: list[str] = self.page.evaluate("window.violations || []")
        return found

    def elsewhere(self, site: Site) -> list[str]:
        """What it asked of anyone but this site."""
        here = (site.address, "data:", "blob:")
        return [url for url in self.asked if not url.startswith(here)]
