"""Every page of the console, with the same text wherever others can write one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint.console.index import Alarm, Done, Page, Row, Spot, Status
from safepoint.console.pages import render
from safepoint.console.signing import Signature, Signed, Subject
from safepoint.core.errors import ConfigurationError
from safepoint.core.names import Head, stamp
from safepoint.resume.answers import Order
from safepoint.resume.approval import Approver, Approvers, Question
from safepoint.shared.desk import Wait

HOME: Final = "/k3v9Qx0aB7cD2eF5gH8jLm"
NOW: Final = datetime.now(UTC)
HOUR: Final = timedelta(hours=1)
KEY: Final = SigningKey.generate()
LEDGER: Final = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=Keyring(KEY))
DIGEST: Final = f"sha256:{'3f9a' * 16}"
COUNTS: Final = {"waiting": 4, "held": 1}
LONG: Final = "refund-of-a-very-long-name-for-a-customer-who-called-twice-today"


def question(action: str = "pay", hours: float = 3, **given: Any) -> Question:
    """Return what a run asks, with a deadline from now."""
    head = Head(3, f"sha256:{'a' * 64}")
    until = stamp(NOW + hours * HOUR) if hours else ""
    usual = {"app": "invoice@2", "reasons": ("asked",), "arguments": {"amount": 42, "to": "ACME"}}
    rest = {"action": action, "tools": f"sha256:{'b' * 64}", "until": until, **usual, **given}
    return Question("invoices", "order-7", head, head, **rest)


def rows(text: str | None) -> dict[str, list[Row]]:
    """Return what waits, by its state."""
    denial = Approvers({"erin": KEY.public}).open(Approver("erin", KEY).deny(question()))
    why, ops = text or "the payee is not in our books", text or "ops"
    wait = Wait(LEDGER, question(), NOW - HOUR)
    hold = Order("hold", ops, "0" * 16, NOW, why, DIGEST, "")
    other = {"app": "rollout@14", "reasons": ("tools-added", "version-changed")}
    asked = question("deploy.production/eu-central", 0, arguments={}, **other)
    refund = question("refund", 26, app="refund@1")
    said = question(arguments={"to": text or "ACME"}, next=(text or "")[:99])
    bills, refunds = partial(Spot, "invoices"), partial(Spot, "refunds")
    return {
        "waiting": [
            Row(Spot(*[text or "7"] * 3), wait._replace(question=said, needed=2, yes=(ops,))),
            Row(bills("acme", "order-8"), wait),
            Row(refunds("", LONG), wait._replace(question=refund, needed=3, yes=("a", "b"))),
            Row(refunds("", "r-14"), wait._replace(question=asked)),
        ],
        "held": [Row(bills("", "order-4"), wait._replace(holds=(hold,)))],
        "denied": [Row(bills("", "order-9"), wait._replace(no=(replace(denial, why=why),)))],
        "expired": [Row(refunds("acme", "order-1"), wait._replace(question=question(hours=-30)))],
    }


def lists(text: str | None) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the lists in each of their states: the template, and what it shows."""
    broken = "The record of order-13/3 is not what was sealed. Nothing of it was decoded."
    where = Spot(*(text or each for each in ("invoices", "", "order-13")))
    alarms = [Alarm(where, text or "SealBroken", text or broken)]
    alarms.append(Alarm(Spot("refunds", "acme", "r-2"), "RolledBack", text or "It ends.", True))
    away = Alarm(Spot(text or "payroll"), "Unavailable", text or "It is not there.")
    ended = Status(10_000, 10_000, 3, NOW - timedelta(seconds=12))
    nothing, found = Page([], 1, 1), rows(text)

    def shows(page: Page, active: str = "waiting", **given: Any) -> tuple[str, dict[str, Any]]:
        usual = {"active": active, "dark": [], "broken": [], "looked": ended, "is_calm": False}
        usual |= {"find": "", "order": "deadline"}
        return "waiting", {"page": page, **usual, **given}

    return {
        "waiting": shows(Page(found["waiting"], 1, 3), dark=[away], broken=alarms, find=text or ""),
        "unfound": shows(nothing, find=text or "acme", is_calm=True),
        "held": shows(Page(found["held"], 1, 1), "held"),
        "away": shows(nothing, dark=[away]),
        "many": shows(nothing, broken=alarms, most=1),
        "empty": shows(nothing, is_calm=True),
        "unheld": shows(nothing, "held", is_calm=True),
        "begun": shows(Page(found["waiting"], 2, 3), looked=Status(3_200, 10_000), refresh=30),
    }


def done(text: str | None) -> list[Done]:
    """Return what was answered, or ended."""
    found, why = rows(text), text or "the payee is not in our books"
    place, asked = found["waiting"][0].spot, found["waiting"][0].wait.question
    over = found["expired"][0]
    return [
        Done(place, asked, "approved", NOW, text or "dana", is_open=False),
        Done(place, question(), "denied", NOW - HOUR, text or "erin", why),
        Done(over.spot, over.wait.question, "expired", NOW - 30 * HOUR),
    ]


def others(text: str | None) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what is done, signatures and refusals."""
    place = text or "invoices", text or "acme", text or "order-7"
    why = text or "the payee is not in our books"
    asked = Signature(Subject("approve", *place, question(), "", why), text or "dana", place=3)
    put = text or "It was put with the answers of invoices."
    said = Signed(put, text or Approver("dana", KEY).approve(question()), NOW + HOUR)
    hold = asked._replace(subject=Subject("release", *place, None, text or DIGEST))
    error = text or "The key opal.key cannot be read: the passphrase is wrong. Type it again."
    given_up = Signed(text or "No passphrase was typed. Nothing was signed.")
    refused = ConfigurationError(text or "The run has moved on since.", text or "Open it again.")
    links = {"error": refused, "status": 409, "run": f"{HOME}/run/a/b", "came": f"{HOME}/x"}
    looked = {
        "active": "done",
        "looked": Status(9, 9, 1, NOW),
        "find": text or "",
        "mine": {"dana": 1},
    }
    signatures = {
        "asking": asked,
        "signed": asked._replace(state="signed", said=said),
        "unsigned": hold._replace(state="refused", said=Signed(error)),
        "given-up": hold._replace(state="refused", said=given_up),
        "unknown": hold._replace(state="unknown", said=Signed(error)),
    }
    unread = {
        text or "refunds": text or "2 answers cannot be shown. They do not verify.",
        "invoices": "",
    }
    return {
        "done": ("done", {"rows": done(text), "unread": unread, **looked}),
        "undone": ("done", {"rows": [], "unread": {}, **looked, "find": ""}),
        **{
            name: ("signature", {"found": each, "next": Spot(*place)})
            for name, each in signatures.items()
        },
        "refusal": ("refusal", links),
    }


def every_page(text: str | None = None) -> dict[str, str]:
    """Return each page, whole, with samples or with one text in every place of others."""
    signers, title = f"{text or 'dana'}, approves", f"Page {text}" if text else "Page"
    frame = {"signers": signers, "counts": COUNTS}
    return {
        name: render(template, HOME, title, **{**frame, **given})
        for name, (template, given) in {**lists(text), **others(text)}.items()
    }
