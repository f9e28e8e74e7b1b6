"""Every page of the console, with the same text wherever others can write one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint.answers import Order
from safepoint.approval import Approver, Approvers, Question
from safepoint.console import charts, pages
from safepoint.console.html import Html
from safepoint.console.index import Alarm, Filter, Page, Row, Status
from safepoint.desk import Wait
from safepoint.errors import JournalBroken
from safepoint.journal import Actor, Entry
from safepoint.names import Head, spelled

HOME: Final = "/k3v9Qx0aB7cD2eF5gH8jLm"
NOW: Final = datetime.now(UTC)
KEY: Final = SigningKey.generate("ed25519")
LEDGER: Final = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=Keyring(KEY))
STORES: Final = ["invoices", "refunds"]
CHOICES: Final = (STORES, ["invoice@2", "refund@1"], ["asked", "tools-added"])
DIGEST: Final = f"sha256:{'3f9a' * 16}"


def question(
    action: str = "pay", app: str = "invoice@2", hours: float = 3, **more: Any
) -> Question:
    head = Head(3, f"sha256:{'a' * 64}")
    until = spelled(NOW + timedelta(hours=hours)) if hours else ""
    more = {"arguments": {"amount": 42, "to": "ACME"}, "reasons": ("asked",), **more}
    tools = f"sha256:{'b' * 64}"
    return Question(
        "invoices", "order-7", head, head, app, tools, action=action, until=until, **more
    )


def rows(text: str | None, state: str = "waiting") -> list[Row]:
    """Return what waits: several kinds, or one that has the text of others."""
    denial = Approvers({"erin": KEY.public}).open(Approver("erin", KEY).deny(question()))
    why = "the payee is not in our books" if text is None else text
    vars_of = {name: getattr(denial, name) for name in denial.__slots__}
    no = (type(denial)(**{**vars_of, "why": why}),)
    holds = (Order("hold", "ops" if text is None else why, "0" * 16, NOW, why, DIGEST, ""),)
    since = NOW - timedelta(minutes=50)
    if state == "denied":
        return [
            Row(
                "invoices",
                text or "",
                text or "order-9",
                Wait(LEDGER, question(), since, 2, ("dana",), no),
            )
        ]
    if state == "held":
        return [
            Row(
                "invoices", "", text or "order-4", Wait(LEDGER, question(), since, 1, (), (), holds)
            )
        ]
    if state == "expired":
        return [
            Row(
                "refunds",
                "acme",
                text or "order-1",
                Wait(LEDGER, question(hours=-30), since, 2, ("dana",)),
            )
        ]
    if text is not None:
        waits = Wait(LEDGER, question(arguments={"to": text}, next=text), since, 2, (text,))
        return [Row(text, text, text, waits)]
    wide = question(
        "deploy.production/eu-central",
        "rollout@14",
        0,
        arguments={},
        reasons=("tools-added", "version-changed"),
    )
    return [
        Row("invoices", "", "order-7", Wait(LEDGER, question(hours=0.4), since, 2, ("dana",))),
        Row("invoices", "acme", "order-8", Wait(LEDGER, question(), since)),
        Row(
            "refunds",
            "",
            "refund-of-a-very-long-name-for-a-customer-who-called-twice-today",
            Wait(LEDGER, question("refund", "refund@1", 26), since, 3, ("dana", "erin")),
        ),
        Row(
            "refunds",
            "globex",
            "release-14",
            Wait(LEDGER, wide, NOW - timedelta(days=6), 2, is_answerable=False),
        ),
    ]


def alarms(text: str | None) -> list[Alarm]:
    if text is not None:
        return [Alarm(text, text, text, text, text, is_hidden=True)]
    return [
        Alarm(
            "invoices",
            "",
            "order-13",
            "SealBroken",
            "The record of order-13/3 is not what was sealed. Nothing of it was decoded. Keep this copy, and find out who can write the storage.",
        ),
        Alarm(
            "refunds",
            "acme",
            "order-2",
            "RolledBack",
            "order-2 ends at #4, and its anchor has seen #6. Restore what is missing.",
            is_hidden=True,
        ),
    ]


def entries(text: str | None) -> list[Entry]:
    told: list[tuple[Any, Any, str | None, str]] = [
        ("save", "intended", "order-7", ""),
        ("pause", "intended", "order-7", "pay"),
        ("approve", "done", "order-7", "by dana, key 5d0f2f61a8b7c3e4"),
        ("resume", "refused", "order-8", "ApprovalSpent: it was used already."),
        ("resume", "refused", "order-13", "SealBroken: The record is not what was sealed."),
        ("hold", "done", "order-4", "the bank called"),
        ("deny", "refused", "order-9", "denied by erin"),
        ("rotate", "done", None, "from Keyring(5d0f2f61a8b7c3e4) to Keyring(0aa0c4e2b1f3d597)"),
        ("resume", "refused", "order-13", "SealBroken: The record is not what was sealed."),
    ]
    actor = (
        Actor("worker-3@pay.internal", "login of PostgreSQL")
        if text is None
        else Actor(text[:200] or "x", text[:200] or "x")
    )
    return [
        Entry(
            what,
            outcome,
            actor,
            "invoices",
            thread,
            3 if thread else None,
            None,
            text or detail,
            number=number,
            at=NOW - timedelta(hours=20 - number),
        )
        for number, (what, outcome, thread, detail) in enumerate(told)
    ]


def every_page(text: str | None = None) -> dict[str, Html]:
    """Return each page, whole, with samples or with one text in every place of others."""
    done = Status(10_000, 10_000, 3, NOW - timedelta(seconds=12), 8.0)
    begun = Status(3_200, 10_000, 0, None, 0.0)
    counts: Any = {"waiting": 4, "held": 1, "denied": 1, "expired": 1}
    given = text or ""
    found, journal = alarms(text), entries(text)
    broken = JournalBroken(
        text or "Entry 4 of order-7 is not what was signed.",
        "Nothing is appended to it. Restore one that verifies.",
    )
    many = (STORES, CHOICES[1], CHOICES[2]) if text is None else ([text],) * 3
    points = [(NOW - timedelta(hours=48 - at), (at * 7919) % 13) for at in range(48)]
    health = pages.Health(
        given or "invoices",
        [
            ("Storage", f"SQLite: {given or '/srv/safepoint/invoices.db'}"),
            ("Anchor", "PostgreSQL"),
            ("Answers", "PostgreSQL"),
            ("Journal", "None. Nobody could say who did what."),
        ],
        [
            ("5d0f2f61a8b7c3e4", "ed25519", "records", False),
            ("0aa0c4e2b1f3d597", "hmac-sha256", "records", True),
            ("77aa00bb11cc22dd", "hmac-sha256", "journal", False),
        ],
        [
            (given or "dana", "9b1c2d3e4f5a6b7c", "approves", False),
            ("erin", "1f2e3d4c5b6a7988", "approves", True),
            ("ops", "aabbccddeeff0011", "holds", False),
        ],
    )
    subject = pages.Subject(
        "approve", given or "invoices", given or "acme", given or "order-7", given or DIGEST
    )
    signed_text = text or Approver("dana", KEY).approve(question())
    signed = pages.Signed(
        given or "dana",
        signed_text,
        given or "It was put with the answers of invoices.",
        NOW + timedelta(hours=1),
    )
    verified = pages.Verification(10_000, 10_000, 0, NOW - timedelta(seconds=95), NOW)
    running = pages.Verification(4_211, 10_000, 2, NOW)
    failed = pages.Verification(10_000, 10_000, 2, NOW - timedelta(seconds=95), NOW, given)
    bodies: dict[str, tuple[str, str, Html]] = {
        "waiting": (
            "Waiting",
            "waiting",
            pages.waiting(
                HOME, Page(rows(text), 1, 3, 120), Filter(given), counts, found, done, many
            ),
        ),
        "calm": (
            "Waiting",
            "waiting",
            pages.waiting(
                HOME, Page(rows(text), 2, 3, 120), Filter(), counts, [], begun, many, refresh=30
            ),
        ),
        "empty": (
            "Waiting",
            "waiting",
            pages.waiting(HOME, Page([], 1, 1, 0), Filter(), {}, [], done, ([], [], [])),
        ),
        "unfit": (
            "Waiting",
            "waiting",
            pages.waiting(
                HOME, Page([], 1, 1, 0), Filter(given or "refunds"), counts, [], done, many
            ),
        ),
        "journal": (
            "Journal",
            "journal",
            pages.journal(
                HOME,
                [given or "invoices", "refunds"],
                given or "invoices",
                journal,
                thread=given,
                number=2,
            ),
        ),
        "long-journal": (
            "Journal",
            "journal",
            pages.journal(HOME, STORES, "invoices", [*journal] * 40, what="save", number=2),
        ),
        "broken-journal": (
            "Journal",
            "journal",
            pages.journal(HOME, STORES, "invoices", broken),
        ),
        "no-journal": ("Journal", "journal", pages.journal(HOME, STORES, "refunds", None)),
        "store": (
            "Store health",
            "store",
            pages.store(
                HOME,
                [given or "invoices", "refunds"],
                health,
                verified,
                "f" * 22,
                points,
                charts.reasons(entries(None)) if text is None else {text: 3},
            ),
        ),
        "verifying": (
            "Store health",
            "store",
            pages.store(HOME, STORES, health, running, None, points[:1], None),
        ),
        "failed": (
            "Store health",
            "store",
            pages.store(HOME, STORES, health._replace(people=[]), failed, "f" * 22, [], broken),
        ),
        "asking": ("Sign", "", pages.signature(HOME, subject, number=3)),
        "signed": ("Signed", "", pages.signature(HOME, subject, signed)),
        "unsigned": (
            "Not signed",
            "",
            pages.signature(
                HOME,
                subject,
                given
                or "WrongPassphrase: The passphrase does not open the key. Nothing was signed.",
            ),
        ),
        "refusal": (
            "Not found",
            "",
            pages.refusal(
                HOME,
                404,
                given or "That form was used already",
                given or "The run has moved on since this page was shown.",
                given or "Open it again, and look at what it asks now.",
            ),
        ),
    }
    for state in ("held", "denied", "expired"):
        bodies[state] = (
            "Waiting",
            "waiting",
            pages.waiting(
                HOME, Page(rows(text, state), 1, 1, 1), Filter(state=state), counts, [], done, many
            ),
        )
    return {
        name: pages.layout(
            HOME, f"{title} {given}", body, user=given or "dana", active=active, stores=STORES
        )
        for name, (title, active, body) in bodies.items()
    }
