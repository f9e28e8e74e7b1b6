"""Pages of the console as a browser reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safepoint import Ask, Tool
from safepoint.console.pages import render
from safepoint.console.record import Record, record_of
from safepoint.settings import read
from safepoint.shared.desk import Desk
from tests.unit.test_deciding import Office

HOSTILE = "\u202e<script>alert('x')</script> \"><b onclick=x>\x1b[2J\u200b  &amp; \u0430 "
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
        self.focus, self.text = list[str](), ""
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
            self.forms.append(Form(given["action"]))
        if tag == "input" and "name" in given:
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


def shown(
    record: Record, who: str | None = "dana", operator: str | None = "opal"
) -> tuple[Parsed, list[Any]]:
    """Return a run's page, and the forms that the server would hold."""
    held = list[Any]()

    def form(subject: Any, verb: str) -> str:
        held.append((verb, subject))
        return f"form{len(held)}"

    return Parsed(page(record, form, who, operator)), held


def page(
    record: Record,
    form: Callable[[Any, str], str],
    who: str | None = "dana",
    operator: str | None = "opal",
    home: str = "/k3v9",
) -> str:
    """Return a run's page."""
    given = {"record": record, "form": form, "who": who, "operator": operator}
    return render("run", home, f"Run {record.thread}", signers="dana, approves", **given)


@contextmanager
def opened(folder: Path) -> Iterator[Desk]:
    """Open a store as the console does: by the settings in a folder, with public keys."""
    with ExitStack() as stack:
        yield Desk.open(read(folder / "safepoint.toml").store("invoices"), stack)


def told(folder: Path, thread: str, tenant: str = "") -> Record:
    """Look at a run. What is open closes with what was found."""
    desk = Desk.open(read(folder / "safepoint.toml").store("invoices"), ExitStack())
    return record_of(desk.of(tenant), thread)


def every_run(home: str) -> dict[str, str]:
    """Return a page of each kind of run: one that waits, a long one, a done and a tampered one."""
    found = dict[str, str]()
    with TemporaryDirectory() as name:
        folder = Path(name)
        office = Office(folder)
        hostile = Ask("pay", {"to": HOSTILE, HOSTILE: "x" * 999}, timedelta(hours=4))
        long = Ask("pay", {f"line {number}": " " * number for number in range(120)})
        office.flow(hostile, tools=[Tool("bank", permissions=["pay"])]).start(
            office.ledger(), thread="waiting", token=HOSTILE
        )
        opal = ("waiting", "--as", "opal", "--key", "opal.key", "--reason", HOSTILE)
        assert office.run("hold", "invoices", *opal)[0] == 0
        for thread, asked in (("long", long), ("done", None), ("tampered", None)):
            office.start(thread, asked)
        assert office.say("approve", "done")[0] == 0
        office.flow().resume(office.ledger(), "done")
        file = min((folder / "state" / "tampered").iterdir())
        file.write_bytes(file.read_bytes() + b"x")
        for thread in ("waiting", "long", "done", "tampered"):
            record = told(folder, thread)
            found[f"run-{thread}"] = page(record, lambda _, verb: f"form-{verb}", home=home)
    return found
