"""The door of the console: who may come in, and the headers of every answer.

It is for one person on their own machine. They open a link that the terminal printed; it works
once, for a minute, and gives the browser a cookie. There is no path that it leaves unchecked.

Cookies do not know ports, so another server on 127.0.0.1 is the attacker to think of. Everything is
below a random path, the home, which is also the path of the cookie and part of its name: that other
server knows neither. So a browser never sends it our cookie, and it cannot set one that is in
for ours. What its pages send here carries our cookie, and the browser marks it as `same-site`.

What Chromium 156 says in Sec-Fetch-Site, as a test in it found: `none` for an address that no page
led to; `same-origin` for a click, a form, the redirect after it and a meta refresh; nothing for a
WebSocket. A page that is loaded again, or gone back or forward to, is asked for as it was the first
time. The link is answered by a page that refreshes to the home, so all that follows is
`same-origin`, reload and Back included; and no entry of the history leads to the used link. A typed
address below the home is refused by a page that has a link to continue: the click is `same-origin`.

Two answers are the server's own, fixed texts without our headers: 400 for what is not HTTP, and 503
above the limit of connections. Any program on this machine can connect, whoever runs it. What says
nothing makes room for who comes next and is never told of on the terminal, where a passphrase may
be asked for. What remains: who connects without an end makes the pages slow.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from safepoint.core.errors import ConfigurationError, missing

try:
    import uvicorn
    from starlette.responses import HTMLResponse, Response
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as _missing:
    raise missing("The console needs starlette, uvicorn and jinja2.", "console") from _missing

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LINK_SECONDS: Final = 60
LINK_TRIES: Final = 5
"""After as many wrong tokens the link is dead."""
WRONG_PER_MINUTE: Final = 20
"""After as many wrong cookies nobody comes in until a minute has passed since."""
SESSION_SECONDS: Final = 8 * 60 * 60
"""After as long without a click the cookie is worth nothing."""
BODY_BYTES: Final = 8 * 1024
PATIENCE: Final = 10
"""How many seconds a request may take to come in: its head, and then its body."""
CONNECTIONS: Final = 64
"""How many are kept open. Above that, one that has asked for nothing yet is closed."""
HEADERS: Final = {
    b"content-security-policy": b"default-src 'none'; style-src 'self'; form-action 'self';"
    b" base-uri 'none'; frame-ancestors 'none'",
    b"x-frame-options": b"DENY",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",  # with no-referrer, the Origin of our own forms is null
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
    b"permissions-policy": b"camera=(), display-capture=(), geolocation=(), microphone=(),"
    b" payment=(), publickey-credentials-get=(), usb=()",
    b"connection": b"close",  # one request each: nothing to smuggle behind it, none left idle
}
"""On every answer, in place of what the application says there."""

_PATH: Final = re.compile(r"(/(?!\.{1,2}(/|\Z))[A-Za-z0-9_.@~-]+)*/?")
_PAGE: Final = ("navigate", "document")
_STYLE: Final = ("no-cors", "style")
# No browser sends them with a page or a form. Each asks to treat a request as what it is not.
_NEVER: Final = (
    *("upgrade", "transfer-encoding"),
    *("x-http-method", "x-http-method-override", "x-method-override"),
)
_TERMINAL: Final = "Press Enter on the terminal that started the console, and open the new link."
_ENDED: Final = (
    "The console was opened elsewhere by a newer link, or nobody used it for"
    f" {SESSION_SECONDS // 3600} hours."
)
_BROWSERS: Final = (
    "It does not say where a request is from. Chrome and Edge do so since 80, Firefox since 90,"
    " Safari since 16.4."
)


class _Reply(Exception):
    """What the door itself answers: a refusal, or the page that the link leads to."""

    def __init__(self, status: int, title: str, text: str, *, to: str = "", **headers: str) -> None:
        super().__init__(status, title)
        self.status, self.title, self.text, self.to, self.headers = status, title, text, to, headers

    @property
    def page(self) -> Response:
        """The same as a page, which has no style sheet."""
        title, to = escape(self.title), escape(self.to)
        refresh = f'<meta http-equiv="refresh" content="0; url={to}">' if self.status == 200 else ""
        page = (
            '<!doctype html><html lang="en"><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width">{refresh}<title>{title}</title>'
            f"<main><h1>{title}</h1><p>{escape(self.text)}</p>"
            + (f'<p><a href="{to}">Go on</a></p>' if to else "")
            + "</main></html>"
        )
        headers = {name.replace("_", "-"): value for name, value in self.headers.items()}
        return HTMLResponse(page, self.status, headers)


class _Request(NamedTuple):
    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]

    def one(self, name: str) -> str:
        """Return a header's value, "" if it is not there. Of two, neither counts."""
        values = [value for key, value in self.headers if key == name]
        if len(values) > 1:
            raise _Reply(400, "Refused", f"The request has two headers {name}.")
        return values[0] if values else ""


class Door:
    """Lets in anyone who opened the one-time link and nobody else.

    Args:
        app: what is behind it. It sees paths with the home.
        host: `127.0.0.1:PORT`, the only Host that is answered.
        now: seconds of a clock that only goes forward.

    Attributes:
        home: `/` and 22 random characters. All paths begin with it.
    """

    def __init__(self, app: ASGIApp, host: str, now: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self.home: Final = f"/{secrets.token_urlsafe(16)}"
        self._host, self._now = host, now
        self._name, self._cookie = f"safepoint-{self.home[1:]}", secrets.token_urlsafe(32)
        self._used, self._past = now(), deque[str](maxlen=100)
        self._token, self._until, self._tries = "", 0.0, 0
        self._lock = threading.Lock()  # the terminal's thread makes links, the server's takes them
        self._wrong: deque[float] = deque(maxlen=WRONG_PER_MINUTE)

    def link(self) -> str:
        """Return a new link. It works once, for 60 seconds; the one before it is dead."""
        with self._lock:
            self._token, self._tries = secrets.token_urlsafe(32), LINK_TRIES
            self._until = self._now() + LINK_SECONDS
            return f"http://{self._host}{self.home}/enter/{self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask `_admit` first, read the body and put the headers on every answer."""
        if scope["type"] == "lifespan":  # the server starts or stops: not a request
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket, which browsers let any page open
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _strict(send)
        headers = [(name.decode("latin-1"), v.decode("latin-1")) for name, v in scope["headers"]]
        # The raw path: what the server decoded can be another one than what was checked.
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        request = _Request(scope["method"], path, query, headers)
        try:
            self._admit(request)
            body = await _body(request, receive)
        except _Reply as answer:
            await answer.page(scope, receive, send)
        else:
            await self._app(scope, _replay(body, receive), send)

    def _admit(self, request: _Request) -> None:
        """Let a request in, or raise the answer to it."""
        _check_form(request)
        # DNS rebinding: another site's name that leads to this address. HTTP/1.0 has no Host.
        if request.one("host") != self._host:
            text = "The console has another address than the one you opened."
            raise _Reply(421, "Refused", text)
        self._check_home(request)
        site = _site(request)
        if request.path.startswith(f"{self.home}/enter/"):
            self._enter(request, site)
        self._check_cookie(request)
        # Another server's page that links here or posts here: CSRF. Only our own pages may.
        if site == "none" and request.method == "GET":
            again = request.path + (f"?{request.query}" if request.query else "")
            text = "This address was typed, or opened from outside of the console."
            raise _Reply(403, "Do you want to continue?", text, to=again)
        if site != "same-origin":
            raise _Reply(403, "Refused", "The request comes from another page than the console's.")
        # The same again by the older header, should a browser get one of them wrong.
        origin = request.one("origin")
        if origin != f"http://{self._host}" and (origin or request.method == "POST"):
            raise _Reply(403, "Refused", "The form is of another page than the console's.")
        # What a form can send without asking first, but ours do not: text/plain, multipart.
        form = "application/x-www-form-urlencoded"
        if request.method == "POST" and request.one("content-type").lower() != form:
            raise _Reply(415, "Refused", "The console accepts only its own forms.")
        if request.one("sec-fetch-user"):  # by a click, and not by a page that refreshes itself
            self._used = self._now()

    def _check_home(self, request: _Request) -> None:
        """Stop who does not know the home; no path is an exception, such as one for health."""
        start, rest = request.path[: len(self.home)], request.path[len(self.home) :]
        if not hmac.compare_digest(start, self.home) or not rest.startswith("/"):
            raise _Reply(404, "Nothing is here", _TERMINAL)

    def _enter(self, request: _Request, site: str) -> NoReturn:
        """Take the link. Until the token is compared, nothing uses it up."""
        # A browser that loads ahead of the person would use the link up for nobody.
        if request.one("sec-purpose") or request.one("purpose"):
            raise _Reply(403, "Refused", "The link is for a person, not for loading ahead.")
        # A page that got hold of a link could bring a person in without their knowing.
        if (site, request.method, request.query) != ("none", "GET", ""):
            raise _Reply(403, "Refused", "Copy the link into the address bar of the browser.")
        token = request.path.removeprefix(f"{self.home}/enter/")
        with self._lock:  # compared and spent at once: of two that race, one gets in
            is_live = bool(self._token) and self._now() < self._until
            is_right = is_live and hmac.compare_digest(token, self._token)
            self._tries -= 1
            if is_right or self._tries <= 0:  # used, or guessed at too often
                self._token = ""
        if not is_right:
            text = f"It is used or older than {LINK_SECONDS} seconds, or another was made. "
            other = " If somebody else used it, stop the console there with Ctrl-C."
            raise _Reply(403, "This link is dead", text + _TERMINAL + other)
        self._renew()  # whoever was in before, perhaps at another browser, is not any more
        # Not for scripts, not on requests that begin on another site, not for other servers' paths.
        cookie = f"{self._name}={self._cookie}; HttpOnly; SameSite=Strict; Path={self.home}"
        home = f"{self.home}/"
        raise _Reply(200, "Welcome", "The console opens.", to=home, set_cookie=cookie)

    def _renew(self) -> None:
        """End the session, and begin the next one."""
        self._past.append(self._cookie)
        self._cookie, self._used = secrets.token_urlsafe(32), self._now()

    def _check_cookie(self, request: _Request) -> None:
        if self._now() >= self._used + SESSION_SECONDS:
            self._renew()
        # Guessing. A missing cookie is no guess, and would be an easy way to lock the person out.
        now = self._now()
        if len(self._wrong) == WRONG_PER_MINUTE and now < self._wrong[0] + 60:
            raise _Reply(429, "Too many tries", "Wait for a minute.", retry_after="60")
        pairs = [pair.strip().partition("=") for pair in request.one("cookie").split(";")]
        values = [value for name, _, value in pairs if name == self._name]
        # Two of the name: somebody else set one of them (cookie tossing), so neither counts.
        if len(values) != 1:
            raise _Reply(403, "You are not in", _TERMINAL)
        if values[0] in self._past:  # no guess, and worth nothing
            raise _Reply(403, "This session has ended", f"{_ENDED} {_TERMINAL}")
        if not hmac.compare_digest(values[0].encode(), self._cookie.encode()):
            self._wrong.append(now)
            raise _Reply(403, "You are not in", _TERMINAL)


def _check_form(request: _Request) -> None:
    """Stop other methods, paths of two readings, and headers that make it something else."""
    if request.method not in ("GET", "POST"):  # HEAD, TRACE, or OPTIONS, which comes before CORS
        text = "The console answers only GET and POST."
        raise _Reply(405, "Refused", text, allow="GET, POST")
    # Escapes, empty and dotted segments, whole URLs.
    if not _PATH.fullmatch(request.path):
        raise _Reply(400, "Refused", "The path has characters that no path of the console has.")
    for name in _NEVER:
        if any(key == name for key, _ in request.headers):
            raise _Reply(400, "Refused", f"The console takes no header {name}.")
    if request.method == "GET" and request.one("content-length") not in ("", "0"):
        raise _Reply(400, "Refused", "A GET has no body.")


def _site(request: _Request) -> str:
    """Return what the browser says about where a page or our style sheet is asked from."""
    site = request.one("sec-fetch-site")
    if not site:  # an old browser, which would not say that a request is another site's
        raise _Reply(403, "Use a newer browser", _BROWSERS)
    # A frame, a script's fetch, an image, a WebSocket: also of our own page, should it be injected.
    kind = request.one("sec-fetch-mode"), request.one("sec-fetch-dest")
    if kind != _PAGE and (kind != _STYLE or request.method != "GET"):
        raise _Reply(403, "Refused", "Open the console as a page, not inside another.")
    return site


async def _body(request: _Request, receive: Receive) -> bytes:
    """Read a form: at most 8 KiB, of a length that is told before, within 10 seconds."""
    if request.method != "POST":
        return b""
    length = request.one("content-length")
    if not length.isdecimal():
        raise _Reply(411, "Refused", "The form does not say how long it is.")
    size = int(length[:9])  # of more digits, these alone are too many
    if size > BODY_BYTES:
        raise _Reply(413, "The form is too long", f"It may have {BODY_BYTES} bytes.")
    body, is_more = b"", True
    try:
        async with asyncio.timeout(PATIENCE):
            while is_more and len(body) <= size:
                message = await receive()
                body += message.get("body", b"")
                is_more = message.get("more_body", False)
    except TimeoutError:
        raise _Reply(408, "The form came too slowly", "Send it again.") from None
    if len(body) != size:  # the browser went away in the middle
        raise _Reply(400, "Refused", "The form is incomplete.")
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the application the body that was read."""
    unread = [body]

    async def inner() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return inner


def _strict(send: Send) -> Send:
    """Put the headers on an answer and take out what would weaken them, such as CORS."""

    async def inner(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [
                (name, value)
                for name, value in message.get("headers", ())
                if name.lower() not in HEADERS and not name.lower().startswith(b"access-control-")
            ]
            message = {**message, "headers": [*kept, *HEADERS.items()]}
        await send(message)

    return inner


def listening(port: int = 0) -> socket.socket:
    """Bind a port of 127.0.0.1, so that it is known before the door is made and nobody else's.

    Raises:
        ConfigurationError: it is taken, or is not a port.
    """
    try:
        return socket.create_server(("127.0.0.1", port), backlog=128, reuse_port=False)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"The console cannot listen at port {port}: {str(error).rstrip('.')}.",
            "Name another port.",
        ) from None


def serving(app: ASGIApp) -> uvicorn.Server:
    """Return a server. Its `run` takes the socket of `listening`, until `should_exit` is set.

    It says nothing about itself, to browsers or in a log: paths have the home in them. From then on
    asyncio logs nothing in this process, either: anyone who connects could write on the terminal.
    """
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=_Impatient,
        ws="none",
        interface="asgi3",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,  # what a visitor says about where they come from counts for nothing
        server_header=False,
        date_header=False,
        h11_max_incomplete_event_size=64 * 1024,  # of a head, where other servers' cookies are too
        backlog=CONNECTIONS,  # also how many are accepted at once
        limit_concurrency=CONNECTIONS + 1,
        timeout_graceful_shutdown=PATIENCE,
    )
    for name in ("asyncio", "uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).disabled = True
    return uvicorn.Server(config)


class _Impatient(H11Protocol):
    """Hangs up on who opens a connection and does not say what for."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(PATIENCE, self._hang_up)
        if len(self.connections) > CONNECTIONS:
            others = (each for each in self.connections if isinstance(each, _Impatient))
            idle = next((each for each in others if not each.headers and each is not self), self)
            self.connections.discard(idle)  # at once: it is lost a little later
            idle.transport.close()

    def _hang_up(self) -> None:
        if not self.headers:
            self.transport.close()
