"""Every page of the console, with the same text wherever others can write one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint.command.desk import State, Wait
from safepoint.console import charts, pages
from safepoint.console.html import Html
from safepoint.console.index import Alarm, Filter, Page, Row, Status
from safepoint.console.signing import Signature, Signed, Subject
from safepoint.core.errors import JournalBroken
from safepoint.core.journal import Actor, Entry
from safepoint.core.names import Head, spelled
from safepoint.resume.answers import Order
from safepoint.resume.approval import Approver, Approvers, Question
from safepoint.settings import Store

HOME: Final = "/k3v9Qx0aB7cD2eF5gH8jLm"
NOW: Final = datetime.now(UTC)
HOUR: Final = timedelta(hours=1)
KEY: Final = SigningKey.generate()
LEDGER: Final = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=Keyring(KEY))
STORES: Final = ["invoices", "refunds"]
DIGEST: Final = f"sha256:{'3f9a' * 16}"
COUNTS: Final[Mapping[State, int]] = {"waiting": 4, "held": 1, "denied": 1, "expired": 1}
LONG: Final = "refund-of-a-very-long-name-for-a-customer-who-called-twice-today"
TOLD: Final[list[tuple[Any, Any, str | None, str]]] = [
    ("save", "intended", "order-7", ""),
    ("pause", "intended", "order-7", "pay"),
    ("approve", "done", "order-7", "by dana, key 5d0f2f61a8b7c3e4"),
    ("resume", "refused", "order-8", "ApprovalSpent: it was used already."),
    ("resume", "refused", "order-13", "SealBroken: The record is not what was sealed."),
    ("deny", "refused", "order-9", "denied by erin"),
    ("rotate", "done", None, "from Keyring(5d0f2f61a8b7c3e4) to Keyring(0aa0c4e2b1f3d597)"),
    ("resume", "refused", "order-13", "SealBroken: The record is not what was sealed."),
]


def question(action: str = "pay", hours: float = 3, **given: Any) -> Question:
    """Return what a run asks, with a deadline from now."""
    head = Head(3, f"sha256:{'a' * 64}")
    until = spelled(NOW + hours * HOUR) if hours else ""
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
    return {
        "waiting": [
            Row(*3 * (text or "order-7",), wait._replace(question=said, needed=2, yes=(ops,))),
            Row("invoices", "acme", "order-8", wait),
            Row("refunds", "", LONG, wait._replace(question=refund, needed=3, yes=("a", "b"))),
            Row("refunds", "", "r-14", wait._replace(question=asked, is_answerable=False)),
        ],
        "held": [Row("invoices", "", "order-4", wait._replace(holds=(hold,)))],
        "denied": [Row("invoices", "", "order-9", wait._replace(no=(replace(denial, why=why),)))],
        "expired": [Row("refunds", "acme", "order-1", wait._replace(question=question(hours=-30)))],
    }


def entries(text: str | None) -> list[Entry]:
    """Return what a journal says."""
    actor = Actor((text or "worker-3@pay.internal")[:200], (text or "login of PostgreSQL")[:200])
    return [
        Entry(
            *(what, outcome, actor, "invoices", thread, 3 if thread else None, None),
            detail=text or detail,
            number=number,
            at=NOW - (20 - number) * HOUR,
        )
        for number, (what, outcome, thread, detail) in enumerate(TOLD)
    ]


def waiting(text: str | None) -> dict[str, Html]:
    """Return the list in each of its states."""
    broken = "The record of order-13/3 is not what was sealed. Nothing of it was decoded."
    names = (text or each for each in ("invoices", "", "order-13", "SealBroken", broken))
    alarms = [Alarm._make((*names, False, False))]
    alarms.append(Alarm("refunds", "acme", "order-2", "RolledBack", text or "It ends at #4.", True))
    away = Alarm(text or "payroll", "", "", "StorageUnavailable", text or "It is not there.", False)
    done = Status(10_000, 10_000, 3, NOW - timedelta(seconds=12), 8.0)
    begun = Status(3_200, 10_000, 0, None, 0.0)
    choices = [text or "invoices"], [text or "invoice@2"], [text or "asked"]
    nothing, found = Page([], 1, 1, 0), rows(text)
    lists: dict[str, tuple[Any, ...]] = {
        name: (Page(found[name], 1, 1, 1), Filter(state=name), COUNTS, [], done, choices)
        for name in ("held", "denied", "expired")
    }
    lists |= {
        "waiting": (
            Page(found["waiting"], 1, 3, 120),
            Filter(),
            COUNTS,
            [away, *alarms],
            done,
            choices,
        ),
        "away": (nothing, Filter(), {}, [away], done, ([], [], [])),
        "empty": (nothing, Filter(), {}, [], done, ([], [], [])),
        "unfit": (nothing, Filter(text or "refunds"), COUNTS, [], done, choices),
    }
    calm: Any = Page(found["waiting"], 2, 3, 120), Filter(), COUNTS, [], begun, choices
    return {
        "calm": pages.waiting(HOME, *calm, refresh=30),
        **{name: pages.waiting(HOME, *given) for name, given in lists.items()},
    }


def others(text: str | None) -> dict[str, Html]:
    """Return the journals, the health of stores, signatures and refusals."""
    stores = [text or "invoices", "refunds"]
    broken = JournalBroken(text or "Entry 4 is not what was signed.", "Restore one that verifies.")
    told = entries(text)
    kept = Store(store=stores[0], storage=text or "/srv/invoices.db", anchor="/srv/anchor")
    bare = Store(store="refunds", postgres="secret")
    good = pages.Verification(10_000, 10_000, 0, NOW - timedelta(seconds=95), NOW)
    found = Alarm(*3 * (text or "order-13",), "SealBroken", text or "It was edited.")
    whole = found._replace(thread="", error="JournalBroken")
    bad = good._replace(alarms=102, found=(found, whole), beside=", journal with 9 entries")
    runs = pages.Verification(4_211, 10_000, 1, NOW)
    points = [(NOW - (48 - at) * HOUR, at * 7919 % 13) for at in range(48)]
    refused = charts.reasons(entries(None)) if text is None else {text: 3, "deny": 1}
    place = text or "invoices", text or "acme", text or "order-7"
    why = text or "the payee is not in our books"
    asked = Signature(Subject("approve", *place, question(), "", why), text or "dana", place=3)
    put = text or "It was put with the answers of invoices."
    said = Signed(put, text or Approver("dana", KEY).approve(question()), NOW + HOUR)
    hold = asked._replace(subject=Subject("release", *place, None, text or DIGEST))
    error = text or "The key opal.key cannot be read: the passphrase is wrong. Type it again."
    given_up = Signed(text or "No passphrase was typed. Nothing was signed.")
    refusal = "That form was used already", "The run has moved on since.", "Open it again."
    return {
        "journal": pages.journal(HOME, stores, stores[0], told, thread=text or ""),
        "long-journal": pages.journal(HOME, STORES, "refunds", told * 30, what="save", number=2),
        "broken-journal": pages.journal(HOME, STORES, "invoices", broken),
        "no-journal": pages.journal(HOME, STORES, "refunds", None),
        "store": pages.store(HOME, stores, kept, good, "f" * 22, points, refused),
        "verifying": pages.store(HOME, STORES, kept, runs, None, points[:1], None),
        "failed": pages.store(HOME, STORES, bare, bad, "f" * 22, [], broken),
        "asking": pages.signature(HOME, asked),
        "signed": pages.signature(HOME, asked._replace(state="signed", said=said)),
        "unsigned": pages.signature(HOME, hold._replace(state="refused", said=Signed(error))),
        "given-up": pages.signature(HOME, hold._replace(state="refused", said=given_up)),
        "unknown": pages.signature(HOME, hold._replace(state="unknown", said=Signed(error))),
        "refusal": pages.refusal(HOME, 409, *(text or each for each in refusal)),
    }


def every_page(text: str | None = None) -> dict[str, Html]:
    """Return each page, whole, with samples or with one text in every place of others."""
    active = {"journal": "journal", "store": "store", "waiting": "waiting"}
    who, title = text or "dana", f"Page {text}" if text else "Page"
    return {
        name: pages.layout(HOME, title, body, who=who, active=active.get(name, ""), stores=STORES)
        for name, body in {**waiting(text), **others(text)}.items()
    }
