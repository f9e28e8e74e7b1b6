"""The console's door in a real browser: its owner gets in, and another server's page does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from tests.browser.site import _Server, visitor
from tests.harness.optional import need

need("playwright", "the browser tests need playwright; make test installs it")
need("uvicorn", "the console needs uvicorn; make test installs it")

from playwright.sync_api import Browser, Page, expect

from tests.unit.door_helpers import Console, console

OURS, NOBODYS, NEIGHBOURS = "same-origin", "none", "same-site"

FRAME = """async (home) => {
  const frame = document.createElement("iframe");
  const loaded = new Promise((done) => frame.addEventListener("load", done));
  frame.src = home;
  document.body.append(frame);
  await loaded;
  try { return frame.contentDocument.body.innerText } catch { return "" }
}"""
READ = """async (home) => {
  try { return await (await fetch(home, {credentials: "include"})).text() } catch { return "" }
}"""
SEND = """async (home) => {
  const sent = {method: "POST", credentials: "include", mode: "no-cors"};
  const body = new URLSearchParams({verb: "approve"});
  try { return await (await fetch(home + "sign", {...sent, body})).text() } catch { return "" }
}"""
SOCKET = """(home) => new Promise((done) => {
  const socket = new WebSocket(home.replace("http", "ws"));
  socket.onopen = () => done("open");
  socket.onerror = () => done("");
})"""
LOAD = """async (home) => {
  for (const [name, attribute] of [["img", "src"], ["script", "src"], ["link", "href"]]) {
    const element = document.createElement(name);
    if (name === "link") element.rel = "stylesheet";
    const failed = new Promise((done) => {
      element.addEventListener("error", () => done(true));
      element.addEventListener("load", () => done(false));
    });
    element[attribute] = home + "style.css";
    document.body.append(element);
    if (!(await failed)) return name;
  }
  return "";
}"""
COOKIE = "() => document.cookie"


@pytest.fixture
def served() -> Iterator[Console]:
    with console() as running:
        yield running


@pytest.fixture
def owner(browser: Browser, served: Console) -> Iterator[Page]:
    """Somebody who opened the link."""
    with visitor(browser) as context:
        page = context.new_page()
        page.goto(served.door.link())
        page.wait_for_url(home_of(served))
        expect(page.get_by_role("link", name="a run")).to_be_visible()
        yield page


def home_of(served: Console) -> str:
    return f"http://{served.host}{served.door.home}/"


def test_the_owner_gets_in_and_stays_in(owner: Page, served: Console) -> None:
    """And Chromium says about each request what the docstring of the door says."""
    home = home_of(served)
    [entered, refreshed] = [site for _, path, site in served.asked if path[-4:] != ".css"]
    assert (entered, refreshed) == (NOBODYS, OURS)

    def said(act: Callable[[], object], *, at: str = home, is_in: bool = True) -> str:
        """Do it, and return what the browser said about the first request that came of it."""
        served.asked.clear()
        act()
        owner.wait_for_url(at)
        there = owner.get_by_role("link", name="a run" if is_in else "Go on")
        expect(there).to_be_visible()
        return served.asked[0][2]

    run, done = f"{home}run/orders/o-1", f"{home}done"
    link = owner.get_by_role("link", name="a run")
    assert said(owner.reload) == OURS
    assert said(link.click, at=run) == OURS
    assert said(owner.reload, at=run) == OURS
    assert said(owner.go_back) == OURS
    assert said(owner.go_forward, at=run) == OURS
    assert said(owner.get_by_role("button", name="Deny").click, at=done) == OURS
    assert said(owner.reload, at=done) == OURS
    assert ("POST", f"{served.door.home}/sign", b"verb=deny") in served.behind.reached
    assert said(lambda: owner.goto(run), at=run, is_in=False) == NOBODYS
    assert said(owner.reload, at=run, is_in=False) == NOBODYS
    assert said(owner.get_by_role("link", name="Go on").click, at=run) == OURS
    history = owner.context.new_cdp_session(owner).send("Page.getNavigationHistory")["entries"]
    assert len(history) > 3
    assert not any("/enter/" in entry["url"] for entry in history)  # so nobody goes back to it


def test_another_server_on_this_machine_gets_nothing(owner: Page, served: Console) -> None:
    """Even one that found out the home. Its pages count as of the same site: cookies are sent."""
    with neighbour() as (address, cookies):
        home, page = home_of(served), owner.context.new_page()
        page.goto(address)
        served.behind.reached.clear()
        for attack in (FRAME, READ, SEND, SOCKET, LOAD):
            served.asked.clear()
            assert page.evaluate(attack, home) == ""
            sites = {site for _, _, site in served.asked}
            assert sites == ({NEIGHBOURS} if attack != SOCKET else {""}), attack
        form = f"<form method=post action={home}sign><button>Win</button></form>"
        for lure in (form, f"<a href={home}>Win</a>"):
            served.asked.clear()
            page.goto(address)
            page.evaluate("(lure) => { document.body.innerHTML = lure }", lure)
            page.get_by_text("Win").click()
            expect(page.get_by_role("heading")).to_have_text("Refused")
            assert served.asked[0][2] == NEIGHBOURS
        assert served.behind.reached == []

        page.goto(address)
        assert page.evaluate(COOKIE) == ""
        [ours] = [it["value"] for it in owner.context.cookies() if it.get("httpOnly")]
        assert cookies
        assert not any(ours in sent for sent in cookies)
        owner.reload()
        assert [path for _, path, _ in served.behind.reached][:1] == [f"{served.door.home}/"]
        # It can set a cookie for us. Without the name it changes nothing, and with it nobody is in.
        for name, title in (("safepoint", ""), (f"safepoint-{served.door.home[1:]}", "You are")):
            page.evaluate("(name) => { document.cookie = `${name}=x; path=/` }", name)
            owner.reload()
            assert owner.title().startswith(title)
            assert bool(owner.title()) == bool(title)


@contextmanager
def neighbour() -> Iterator[tuple[str, list[str]]]:
    """Another server on 127.0.0.1. It writes down the cookies that it is sent."""
    cookies: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Neighbour</title><body>")

        def log_message(self, *arguments: object) -> None:
            pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", cookies
        finally:
            server.shutdown()
            thread.join()
