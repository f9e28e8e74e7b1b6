"""A console's door on a real server, and requests to it byte by byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from safepoint.console.door import Door, listening, serving

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PATIENCE = 600
"""How many seconds to wait for what has to come."""
# A careless application: each of these would weaken the door's own.
WEAK = [
    (b"content-type", b"text/html"),
    (b"X-Frame-Options", b"ALLOWALL"),
    (b"content-security-policy", b"default-src *"),
    (b"access-control-allow-origin", b"*"),
]
PAGE = (
    '<link rel="stylesheet" href="{home}/style.css"><a href="{home}/run/orders/o-1">a run</a>'
    '<form method="post" action="{home}/sign"><button name="verb" value="deny">Deny</button></form>'
)


@dataclass
class Behind:
    """The application behind the door. It writes down who reached it."""

    home: str = ""
    reached: list[tuple[str, str, bytes]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = (await receive())["body"]
        self.reached.append((scope["method"], scope["path"], body))
        is_post = scope["method"] == "POST"
        headers = [*WEAK, *([(b"location", f"{self.home}/done".encode())] if is_post else [])]
        start = {"type": "http.response.start", "status": 303 if is_post else 200}
        await send({**start, "headers": headers})
        page = PAGE.format(home=self.home) if not scope["path"].endswith(".css") else ""
        await send({"type": "http.response.body", "body": page.encode()})


@dataclass(frozen=True)
class Asked:
    """A request: change one thing, and send it."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    version: str = "1.1"

    def __bytes__(self) -> bytes:
        lines = [f"{self.method} {self.path} HTTP/{self.version}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body

    def but(self, *more: tuple[str, str], **changed: Any) -> Asked:
        """Replace headers by those of the same name, an empty value removing one; or fields."""
        names = {name for name, _ in more}
        kept = [pair for pair in self.headers if pair[0] not in names]
        return replace(self, headers=(*kept, *(pair for pair in more if pair[1])), **changed)

    def and_also(self, *more: tuple[str, str]) -> Asked:
        """Add headers, of a name that is there as well."""
        return replace(self, headers=(*self.headers, *more))


@dataclass(frozen=True)
class Answered:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def cookie(self) -> str:
        """The cookie that it sets, without its attributes, or ""."""
        found = [value for name, value in self.headers if name == b"set-cookie"]
        return found[0].decode().partition(";")[0] if found else ""


@dataclass
class Console:
    """A door, what is behind it, where it is served, and requests that it lets in."""

    port: int
    door: Door
    behind: Behind
    seconds: list[float]
    asked: list[tuple[str, str, str]]
    """Method, path and Sec-Fetch-Site of whatever came to the door."""

    def send(self, request: Asked | bytes) -> Answered:
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
            connection.sendall(bytes(request))
            return answer(connection)

    def link(self) -> Asked:
        path = self.door.link().removeprefix(f"http://{self.host}")
        return self._asked("GET", path, ("Sec-Fetch-Site", "none"))

    def page(self) -> Asked:
        cookie = self.send(self.link()).cookie
        site = ("Sec-Fetch-Site", "same-origin")
        return self._asked("GET", f"{self.door.home}/", site, ("Cookie", cookie))

    def style(self) -> Asked:
        path = f"{self.door.home}/style.css"
        return self.page().but(
            ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "style"), path=path
        )

    def form(self) -> Asked:
        body = b"verb=deny"
        return (
            self.page()
            .but(method="POST", path=f"{self.door.home}/sign", body=body)
            .and_also(
                ("Origin", f"http://{self.host}"),
                ("Content-Type", "application/x-www-form-urlencoded"),
                ("Content-Length", str(len(body))),
            )
        )

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _asked(self, method: str, path: str, *headers: tuple[str, str]) -> Asked:
        page = ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")
        return Asked(method, path, (("Host", self.host), *page, *headers))


def answer(connection: socket.socket) -> Answered:
    """Read until the server closes: it says that each answer is the last of its connection."""
    connection.settimeout(PATIENCE)
    raw = b""
    while more := connection.recv(65536):
        raw += more
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    pairs = [line.partition(b": ") for line in lines]
    return Answered(int(first.split()[1]), [(name.lower(), it) for name, _, it in pairs], body)


@contextmanager
def console() -> Iterator[Console]:
    """Serve a console with its door while the block runs."""
    bound, behind, seconds = listening(), Behind(), [0.0]
    port = bound.getsockname()[1]
    door = Door(behind, f"127.0.0.1:{port}", now=lambda: seconds[0])
    behind.home = door.home
    asked: list[tuple[str, str, str]] = []

    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            site = dict(scope["headers"]).get(b"sec-fetch-site", b"").decode()
            asked.append((scope["method"], scope["path"], site))
        await door(scope, receive, send)

    with running(noted, bound):
        yield Console(port, door, behind, seconds, asked)


@contextmanager
def running(app: ASGIApp, bound: socket.socket) -> Iterator[None]:
    server = serving(app)
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        yield  # the socket listens already, so whoever connects waits until it serves
    finally:
        server.should_exit = True
        thread.join()
