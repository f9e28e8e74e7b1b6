"""Attacks on the console's door, byte by byte, each beside the request that is let in."""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from safepoint.core.errors import ConfigurationError
from tests.harness.optional import need

need("uvicorn", "the console needs uvicorn; make test installs it")

from safepoint.console import door
from safepoint.console.door import (
    CONNECTIONS,
    HEADERS,
    SESSION_SECONDS,
    WRONG_PER_MINUTE,
    listening,
)
from tests.unit.door_helpers import PATIENCE, Answered, Asked, Console, console

Change = Callable[[Asked], Asked | bytes]
NOT_HTTP = b"Invalid HTTP request received."
"""The server's own text, for what it cannot read."""

CSRF = "CSRF: a page makes the browser act for whoever is signed in (Prefect, GHSA-4hh5-2678-83fx)"
SOCKET = "A WebSocket without authentication (Prefect, CVE-2026-7723)"
HEALTH = 'Any path that ends in "health" skips the check (Prefect, CVE-2026-3514)'
IN_URL = "A token stolen through a URL's parameter, on localhost too (OpenClaw, CVE-2026-25253)"
HOST_URL = "A malformed Host makes the checked path another than the one that runs (CVE-2026-48710)"
REBINDING = "DNS rebinding: another site's name that leads to 127.0.0.1"
FRAMING = "Clickjacking: the page in an invisible frame under somebody else's buttons"
TOSSING = "Cookies do not know ports: another server on localhost sets one that stands in for ours"
READINGS = "A path, or a request, that two programs read in two ways"
HOLDING = "Requests that are too large or never end hold the server"
GUESSING = "A link or a cookie that is guessed, or used again"


class Attack(NamedTuple):
    name: str
    good: Callable[[Console], Asked]
    bad: Change
    status: int
    flaw: str


def headers(**changed: str) -> Change:
    """Replace headers; an empty value removes one."""
    pairs = [(name.replace("_", "-"), value) for name, value in changed.items()]
    return lambda good: good.but(*pairs)


def also(**added: str) -> Change:
    pairs = [(name.replace("_", "-"), value) for name, value in added.items()]
    return lambda good: good.and_also(*pairs)


def method(name: str) -> Change:
    return lambda good: good.but(method=name)


def path(changed: Callable[[str], str]) -> Change:
    return lambda good: good.but(path=changed(good.path))


def value(good: Asked, name: str) -> str:
    return dict(good.headers)[name]


def cookie(changed: Callable[[str, str], str]) -> Change:
    """Change the cookie, given its name and its value."""

    def change(good: Asked) -> Asked:
        name, _, secret = value(good, "Cookie").partition("=")
        return good.but(("Cookie", changed(name, secret)))

    return change


page, style, form, link = Console.page, Console.style, Console.form, Console.link
TYPES = ("text/plain", "application/json")
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13"}

ATTACKS = [
    # Another server's page.
    Attack("link from another port", page, headers(Sec_Fetch_Site="same-site"), 403, CSRF),
    Attack("link from another site", page, headers(Sec_Fetch_Site="cross-site"), 403, CSRF),
    Attack("address typed", page, headers(Sec_Fetch_Site="none"), 403, CSRF),
    Attack("form of another port", form, headers(Sec_Fetch_Site="same-site"), 403, CSRF),
    Attack("form of another site", form, headers(Sec_Fetch_Site="cross-site"), 403, CSRF),
    Attack("other origin", form, headers(Origin="http://127.0.0.1:1"), 403, CSRF),
    Attack("origin of a sandbox", form, headers(Origin="null"), 403, CSRF),
    Attack("no origin", form, headers(Origin=""), 403, CSRF),
    Attack("two origins", form, also(Origin="http://127.0.0.1:1"), 400, CSRF),
    *(Attack(f"form as {t}", form, headers(Content_Type=t), 415, CSRF) for t in TYPES),
    Attack("frame", page, headers(Sec_Fetch_Dest="iframe"), 403, FRAMING),
    Attack("script", style, headers(Sec_Fetch_Dest="script"), 403, CSRF),
    Attack("fetch", style, headers(Sec_Fetch_Mode="cors", Sec_Fetch_Dest="empty"), 403, CSRF),
    Attack("question before CORS", page, method("OPTIONS"), 405, CSRF),
    Attack("WebSocket", page, headers(**UPGRADE), 400, SOCKET),
    # Another name.
    Attack("other host", page, headers(Host="evil.example"), 421, REBINDING),
    Attack("two hosts", page, also(Host="evil.example"), 400, REBINDING),
    Attack("no host", page, lambda good: good.but(("Host", ""), version="1.0"), 421, REBINDING),
    Attack(
        *("host with a path", page),
        lambda good: good.but(("Host", value(good, "Host") + "/health?")),
        *(421, HOST_URL),
    ),
    # Another path.
    Attack("health beside", page, path(lambda home: f"{home[:-1]}x/health"), 404, HEALTH),
    Attack(
        *("health without a cookie", page),
        lambda good: good.but(("Cookie", ""), path=f"{good.path}health"),
        *(403, HEALTH),
    ),
    Attack("style without a cookie", style, headers(Cookie=""), 403, HEALTH),
    Attack("escape", page, path(lambda home: f"/%{ord(home[1]):x}{home[2:]}"), 400, READINGS),
    Attack("doubled slash", page, path(lambda home: f"{home}/"), 400, READINGS),
    Attack("way up", page, path(lambda home: f"{home}..{home}"), 400, READINGS),
    Attack("backslash", page, path(lambda home: f"{home}\\"), 400, READINGS),
    Attack("parameter", page, path(lambda home: f"{home};health"), 400, READINGS),
    Attack("whole URL", page, path(lambda home: f"http://127.0.0.1{home}"), 400, READINGS),
    Attack("control sign", page, path(lambda home: f"{home}\x01"), 400, READINGS),
    # Another kind of request.
    *(
        Attack(name, page, method(name), 405, READINGS)
        for name in ("HEAD", "PUT", "CONNECT", "get")
    ),
    *(
        Attack(f"{name} of a form", form, headers(**{name: "DELETE"}), 400, READINGS)
        for name in ("X_HTTP_Method_Override", "X_HTTP_Method", "X_Method_Override")
    ),
    Attack("page with a body", page, headers(Content_Length="5"), 400, READINGS),
    Attack("two lengths", form, also(Content_Length="1"), 400, READINGS),
    Attack(
        *("chunks", form),
        lambda good: good.but(
            ("Content-Length", ""), ("Transfer-Encoding", "chunked"), body=b"1\r\nx\r\n0\r\n\r\n"
        ),
        *(400, READINGS),
    ),
    Attack(
        "no length", form, lambda good: good.but(("Content-Length", ""), body=b""), 411, HOLDING
    ),
    Attack("long form", form, headers(Content_Length="8193"), 413, HOLDING),
    # The cookie.
    Attack("no cookie", page, headers(Cookie=""), 403, GUESSING),
    Attack("wrong cookie", page, cookie(lambda name, _: f"{name}={'x' * 43}"), 403, GUESSING),
    Attack("other name", page, cookie(lambda _, it: f"safepoint={it}"), 403, TOSSING),
    Attack("tossed first", page, cookie(lambda n, it: f"{n}=x; {n}={it}"), 403, TOSSING),
    Attack("same twice", page, cookie(lambda n, it: f"{n}={it}; {n}={it}"), 403, TOSSING),
    Attack("two cookie headers", page, also(Cookie="a=b"), 400, TOSSING),
    Attack(
        *("token in the query", page),
        lambda good: good.but(("Cookie", ""), path=f"{good.path}?token={value(good, 'Cookie')}"),
        *(403, IN_URL),
    ),
    # The link.
    Attack("link loaded ahead", link, headers(Sec_Purpose="prefetch"), 403, GUESSING),
    Attack("link looked at by a chat", link, headers(Sec_Fetch_Site=""), 403, IN_URL),
    Attack("link on another page", link, headers(Sec_Fetch_Site="cross-site"), 403, IN_URL),
    Attack("link as a form", link, method("POST"), 403, GUESSING),
    Attack("link with a query", link, path(lambda it: f"{it}?to=//evil.example"), 403, IN_URL),
    Attack("token elsewhere", link, path(lambda it: it[it.index("/enter") :]), 404, GUESSING),
]


@pytest.fixture(scope="module")
def own() -> Iterator[Console]:
    with console() as running:
        yield running


def is_in(served: Console, answered: Answered) -> bool:
    """Tell whether a request reached the application, or got a cookie."""
    reached = bool(served.behind.reached)
    served.behind.reached.clear()
    return reached or bool(answered.cookie)


def is_strict(answered: Answered) -> bool:
    """Tell whether each header is there once, and none that says who serves or lets others read."""
    names = [name for name, _ in answered.headers]
    return (
        all(names.count(name) == 1 for name in HEADERS)
        and HEADERS.items() <= dict(answered.headers).items()
        and not any(name == b"server" or name.startswith(b"access-control") for name in names)
    )


@pytest.mark.parametrize("attack", [pytest.param(each, id=each.name) for each in ATTACKS])
def test_an_attack_is_refused_and_without_its_one_thing_gets_in(
    attack: Attack, own: Console
) -> None:
    """The attack comes first, so it is also shown to spend nothing: no link, no session."""
    own.seconds[0] += 61
    good = attack.good(own)
    own.behind.reached.clear()
    refused = own.send(attack.bad(good))
    assert (refused.status, is_in(own, refused)) == (attack.status, False)
    assert refused.body == NOT_HTTP or is_strict(refused)
    admitted = own.send(good)
    assert is_in(own, admitted)
    assert is_strict(admitted)


def test_the_cookie_is_strict(own: Console) -> None:
    answered = own.send(own.link())
    [cookie] = [it.decode() for name, it in answered.headers if name == b"set-cookie"]
    home = own.door.home
    assert cookie.split("; ")[1:] == ["HttpOnly", "SameSite=Strict", f"Path={home}"]
    assert cookie.startswith(f"safepoint-{home[1:]}=")  # nobody else knows its name
    assert f'content="0; url={home}/"'.encode() in answered.body


def test_a_typed_address_leads_on_by_a_click_and_an_old_browser_to_a_newer_one(
    own: Console,
) -> None:
    typed = own.page().but(("Sec-Fetch-Site", "none"))
    asked = typed.but(path=f'{typed.path}?store="><script>alert(1)</script>')
    answered = own.send(asked)
    assert f'<a href="{typed.path}?store=&quot;&gt;&lt;script'.encode() in answered.body
    assert b"<script" not in answered.body
    assert b"Go on" not in own.send(typed.but(("Cookie", ""))).body
    assert b"Firefox since 90" in own.send(typed.but(("Sec-Fetch-Site", ""))).body


def test_a_link_is_dead_after_one_use_a_minute_a_newer_one_or_five_wrong_tries(
    own: Console,
) -> None:
    def gets_in(link: Asked) -> bool:
        return bool(own.send(link).cookie)

    used = own.link()
    assert [gets_in(used), gets_in(used)] == [True, False]

    in_time, late = own.link(), own.seconds[0] + 60
    own.seconds[0] = late - 0.1
    assert gets_in(in_time)
    slow = own.link()
    own.seconds[0] += 60
    assert not gets_in(slow)

    older, newer = own.link(), own.link()
    assert [gets_in(older), gets_in(newer)] == [False, True]

    for wrong, then in ((4, True), (5, False)):
        guessed = own.link()
        tries = [gets_in(guessed.but(path=f"{guessed.path}{n}")) for n in range(wrong)]
        assert not any(tries)
        assert gets_in(guessed) is then


def test_a_session_ends_by_a_newer_link_that_is_used_and_after_hours_without_a_click(
    own: Console,
) -> None:
    def says(page: Asked) -> bytes:
        answered = own.send(page)
        return b"in" if answered.status == 200 else answered.body

    first = own.page()
    unused = own.link()
    assert says(first) == b"in"
    second = own.page()
    assert says(second) == b"in"
    for _ in range(WRONG_PER_MINUTE + 1):  # a page that refreshes itself locks nobody out
        assert b"opened elsewhere by a newer link" in says(first)
    assert says(second) == b"in"
    assert not own.send(unused).cookie

    clicked = second.and_also(("Sec-Fetch-User", "?1"))
    for page, then in ((clicked, b"in"), (second, b"in"), (second, b"nobody used it for 8 hours")):
        own.seconds[0] += SESSION_SECONDS - 1 if page is clicked else SESSION_SECONDS / 2
        assert then in says(page)
    assert b"nobody used it" in says(clicked)
    assert says(own.page()) == b"in"


def test_who_connects_and_says_nothing_makes_room(own: Console) -> None:
    page = own.page()
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", own.port), PATIENCE))
            for _ in range(3 * CONNECTIONS)
        ]
        assert own.send(page).status == 200
        closed, _, _ = select.select(silent, [], [], 0)
        assert len(closed) >= CONNECTIONS
    assert logging.getLogger("asyncio").disabled  # or others write on the terminal


def test_guessing_cookies_is_bounded_and_missing_ones_lock_nobody_out(own: Console) -> None:
    own.seconds[0] += 61
    page = own.page()
    name = value(page, "Cookie").partition("=")[0]
    absent = page.but(("Cookie", ""))
    assert {own.send(absent).status for _ in range(30)} == {403}
    assert own.send(page).status == 200
    wrong = [own.send(page.but(("Cookie", f"{name}={n}"))).status for n in range(21)]
    assert wrong == [403] * 20 + [429]
    assert own.send(page).status == 429  # the right one is not told from the next guess
    own.seconds[0] += 60
    assert own.send(page).status == 200


def test_a_stolen_cookie_is_worth_nothing_after_a_restart(own: Console) -> None:
    stolen = own.page()
    with console() as again:
        here = stolen.but(("Host", again.host))
        assert again.send(here).status == 404
        home = again.door.home
        renamed = f"safepoint-{home[1:]}={value(stolen, 'Cookie').partition('=')[2]}"
        assert again.send(here.but(("Cookie", renamed), path=f"{home}/")).status == 403
        assert again.behind.reached == []


def test_a_slow_request_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with console() as served:
        form = served.form()
        monkeypatch.setattr(door, "PATIENCE", 0.2)
        served.behind.reached.clear()
        slow = served.send(bytes(form)[:-1])  # the rest never comes
        assert (slow.status, is_strict(slow), served.behind.reached) == (408, True, [])
        with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as connection:
            connection.sendall(bytes(form)[:20])
            assert connection.recv(100) == b""


def test_a_second_request_behind_the_first_is_not_read(own: Console) -> None:
    page = own.page()
    own.behind.reached.clear()
    own.send(bytes(page) + bytes(page))
    assert len(own.behind.reached) == 1


def test_a_port_belongs_to_one_console() -> None:
    with listening() as bound:
        assert bound.getsockname()[0] == "127.0.0.1"
        with pytest.raises(ConfigurationError, match=str(bound.getsockname()[1])):
            listening(bound.getsockname()[1])
