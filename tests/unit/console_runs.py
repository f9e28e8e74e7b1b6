"""Pages of the console as a browser reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safepoint import Ask, Tool
from safepoint.console.pages import render
from safepoint.console.record import Record, record_of
from safepoint.settings import read
from safepoint.shared.desk import Desk
from tests.unit.console_driver import Parsed
from tests.unit.test_deciding import Office

HOSTILE = "\u202e<script>alert('x')</script> \"><b onclick=x>\x1b[2J\u200b  &amp; \u0430 "


def shown(record: Record, who: str = "dana", operator: str = "opal") -> tuple[Parsed, list[Any]]:
    """Return a run's page, and the forms that the server would hold."""
    held = list[Any]()

    def form(subject: Any, verb: str) -> str:
        held.append((verb, subject))
        return f"form{len(held)}"

    return Parsed(page(record, form, who, operator)), held


def page(
    record: Record,
    form: Callable[[Any, str], str],
    who: str = "dana",
    operator: str = "opal",
    home: str = "/k3v9",
) -> str:
    """Return a run's page."""
    given = {"record": record, "form": form, "who": who, "operator": operator, "next": None}
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
        opal = ("waiting", "--key", "opal.key", "--reason", HOSTILE)
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
