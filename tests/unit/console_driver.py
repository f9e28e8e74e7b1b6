"""The console as people have it: a terminal of its own, and tabs of a browser."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from tests.unit.commands import settled
from tests.unit.terminal import is_shown, show

PATIENCE: Final = 600
"""How many seconds to wait for what has to come. Only what is broken takes that long."""
PASSPHRASE: Final = "four words for tests"  # noqa: S105
PROMPT: Final = "or Enter to give up: "


def until(what: Callable[[], Any]) -> Any:
    """Return what is true at last."""
    end = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return found


class Terminal:
    """A console on a terminal, which somebody types on."""

    def __init__(self, folder: Path, *arguments: str, begin: str = "") -> None:
        code = f"{begin}\nimport sys\nfrom safepoint.command.cli import main\nsys.exit(main())"
        self._ours, theirs = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "console", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=settled(folder),
            start_new_session=True,
        )
        os.close(theirs)
        self.screen, self._seen = "", 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # of a terminal that nobody has any more
            while new := os.read(self._ours, 65536):
                self.screen += new.decode().replace("\r\n", "\n")

    def wait(self, pattern: str) -> re.Match[str]:
        """Wait for what the terminal has not shown before, and go on behind it."""

        def found() -> re.Match[str] | None:
            is_over = not self._reader.is_alive()
            at = re.compile(pattern).search(self.screen, self._seen)
            assert at or not is_over, (pattern, self.screen)
            return at

        match: re.Match[str] = until(found)
        self._seen = match.end()
        return match

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def link(self) -> str:
        """Return the link that was printed last, and not used."""
        return self.wait(r"http://127\.0\.0\.1:\d+/\S+").group()

    def sign(self, passphrase: str = PASSPHRASE) -> None:
        self.wait(PROMPT)
        self.type(f"{passphrase}\n")

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed."""
        return is_shown(self._ours)

    def go_on(self) -> None:
        """Do what a shell does after Ctrl-Z, at `fg`."""
        show(self._ours)
        self.process.send_signal(signal.SIGCONT)

    def end(self, number: int = signal.SIGINT) -> int:
        """End it, and return its status."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Return the status of one that ends by itself."""
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.end()
        os.close(self._ours)


@contextmanager
def console(folder: Path, *arguments: str, begin: str = "") -> Iterator[Terminal]:
    """Run a console while the block runs."""
    with closing(Terminal(folder, *arguments, begin=begin)) as terminal:
        yield terminal


VOID = {"br", "hr", "input", "link", "meta"}


@dataclass
class Form:
    """A form: where it is sent, its fields, and what its button says."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)
    button: str = ""
    required: list[str] = field(default_factory=list)


class Parsed(HTMLParser):
    """What a page holds. `seen` is what matters, in the order of the document."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines, self.copied, self.forms = list[str](), list[str](), list[Form]()
        self.tags, self.attributes, self.seen = set[str](), set[str](), list[str]()
        self.focus, self.links, self.text = list[str](), list[str](), ""
        self._open = list[str]()
        self.feed(page)
        assert self._open == []

    @property
    def verbs(self) -> list[str]:
        return [each.fields["verb"] for each in self.forms]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes |= given.keys()
        look = given.get("class", "")
        if tag == "form":
            self.forms.append(Form(given.get("action", "")))
        if tag == "a":
            self.links.append(given["href"])
        if tag in ("input", "textarea", "button") and "name" in given:
            self.forms[-1].fields[given["name"]] = given.get("value", "")
            self.forms[-1].required += [given["name"]] * ("required" in given)
            self.seen += [given.get("value", "")] * (given["name"] == "verb")
        if "autofocus" in given:
            self.focus.append(self.forms[-1].fields["verb"])
        if tag not in VOID:
            self._open.append("lines" if "lines" in look.split() else tag)
        if tag == "li" and "lines" in self._open:
            self.lines.append("")
            self.seen.append("line")
        if tag == "pre":
            self.copied.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() in (tag, "lines")

    def handle_data(self, data: str) -> None:
        self.text += data
        if "lines" in self._open:
            self.lines[-1] += data
        if "pre" in self._open:
            self.copied[-1] += data
        if "button" in self._open:
            self.forms[-1].button += data


class Answer:
    """What a server sent."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers = response.status, response.headers
        self.body = response.read().decode()
        self._page = page = Parsed(self.body)
        self.forms, self.links, self.codes = page.forms, page.links, page.copied

    @property
    def text(self) -> str:
        """What people read, with each row of spaces as one."""
        return " ".join(self._page.text.split())

    def form(self, verb: str) -> Form:
        """Return the one form for something."""
        (found,) = (each for each in self.forms if each.fields.get("verb") == verb)
        return found

    @property
    def verbs(self) -> list[str]:
        return [each.fields["verb"] for each in self.forms if "verb" in each.fields]


class Tab:
    """A tab of a browser, which sends what a browser sends.

    Args:
        link: the one that the terminal printed.
    """

    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        self.host, self.home, self.cookie = parts.netloc, "/".join(parts.path.split("/")[:2]), ""
        entered = self.get(parts.path, Sec_Fetch_Site="none")
        assert entered.status == 200, entered.body
        self.cookie = entered.headers["Set-Cookie"].split(";")[0]

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, None, headers)

    def post(self, form: Form, /, **fields: str) -> Answer:
        """Send a form, with what somebody filled in."""
        return self.send("POST", form.action, {**form.fields, **fields}, {"Origin": self.origin})

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    def send(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str] | str | None,
        headers: Mapping[str, str],
    ) -> Answer:
        given = {
            "Cookie": self.cookie,
            "Sec-Fetch-Site": "same-origin",
            "Sec-Fetch-Mode": "navigate",
            "Sec-Fetch-Dest": "document",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        body = None
        if fields is not None:
            given["Content-Type"] = "application/x-www-form-urlencoded"
            body = fields if isinstance(fields, str) else urlencode(fields)
        connection = http.client.HTTPConnection(self.host, timeout=PATIENCE)
        try:
            where = path if path.startswith(self.home) else self.home + path
            connection.request(method, where, body, {n: v for n, v in given.items() if v})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def follow(self, answer: Answer) -> Answer:
        """Go where an answer leads, and stay until what was asked for has come to an end."""
        assert answer.status == 303, (answer.status, answer.text)
        where = answer.headers["Location"]
        return until(lambda: self._done(where))  # type: ignore[no-any-return]

    def _done(self, where: str) -> Answer | None:
        answer = self.get(where)
        return None if 'http-equiv="refresh"' in answer.body else answer
