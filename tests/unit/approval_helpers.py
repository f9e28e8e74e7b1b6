"""People and a question, for the tests of approvals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from safepoint import Approver, Approvers, SigningKey
from safepoint.core.names import Head
from safepoint.core.record import sign_line
from safepoint.resume.approval import Question

# Why a run is not resumed, or an answer does not count, as the message says it.
MALFORMED = r"not an? (answer|question)|is no (answer|question)|neither a text|does not write"
UNTRUSTED = r"not an approver's|was revoked|was changed after|says that it is by|did not sign"
EXPIRED = r"expired at|came too late|was issued at|is valid for|continues too late"
MISMATCH = r"^The \w+ by \w+ has |needs no approval but|has this question of"
USED = r"already answered|continued from|was pruned, or is of another"

DANA_KEY = SigningKey(bytes(range(32)))
ERIN_KEY = SigningKey(bytes(range(1, 33)))
WRITER = SigningKey(bytes(range(2, 34)))
DANA = Approver("dana", DANA_KEY)
ERIN = Approver("erin", ERIN_KEY)
APPROVERS = Approvers({"dana": DANA_KEY.public, "erin": ERIN_KEY.public})
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DIGEST = {letter: f"sha256:{letter * 64}" for letter in "abcdef"}
FIELDS: dict[str, Any] = {
    "store": "invoices",
    "thread": "order-7",
    "checkpoint": Head(3, DIGEST["a"]),
    "head": Head(4, DIGEST["b"]),
    "app": "invoice@2",
    "tools": DIGEST["c"],
    "reasons": ("old-checkpoint", "asked"),
    "action": "pay",
    "arguments": {"amount": 42, "to": "ACME"},
    "next": "pay",
    "done": ("fetch", "ask"),
}


def ask(**changes: Any) -> Question:
    return Question(**{**FIELDS, **changes})


QUESTION = ask()
TEXT = DANA.approve(QUESTION, now=NOW)


def sign(line_2: bytes, key: SigningKey = DANA_KEY) -> str:
    """What a holder of `key` could write: any line, with a signature that is theirs."""
    return (b"%b\n%b\n" % (sign_line(line_2, key, "approval"), line_2)).decode("latin-1")
