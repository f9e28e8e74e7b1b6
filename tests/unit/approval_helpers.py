"""People, a question, and "load, modify, re-sign" for the tests of approvals."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from safepoint import Codec, Head, SigningKey
from safepoint.approval import Approver, Approvers, Question

DANA_KEY = SigningKey(bytes(range(32)), "ed25519")
ERIN_KEY = SigningKey(bytes(range(1, 33)), "ed25519")
WRITER = SigningKey(bytes(range(2, 34)), "ed25519")
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
}
CAP = 65536
# What `str.strip` and `str.splitlines` would take for blanks or line ends, and what looks like one.
NO_BLANKS = [
    *("\0", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x7f", "\x85", "\xa0", "\xad"),
    *("\u1680", "\u2003", "\u200b", "\u2028", "\u2029", "\u202e", "\u2060", "\u3000", "\ufeff"),
]


def ask(**changes: Any) -> Question:
    return Question(**{**FIELDS, **changes})


QUESTION = ask()
TEXT = DANA.approve(QUESTION, now=NOW)


class Untouched(str):
    """A text that says when somebody works on it."""

    __slots__ = ()

    def _touched(self, *_: object, **__: object) -> Any:
        raise AssertionError("the text was looked at")

    __str__ = replace = strip = _touched


def as_it_arrives(text: str) -> dict[str, str]:
    """The text as mail, forms and shells deliver it: nothing inside of a line is different."""
    line_1, line_2, _ = text.split("\n")
    return {
        "unchanged": text,
        "the last line end stripped": f"{line_1}\n{line_2}",
        "CRLF": f"{line_1}\r\n{line_2}\r\n",
        "CRLF, and the last one stripped": f"{line_1}\r\n{line_2}",
        "CRLF, and half of the last one": f"{line_1}\r\n{line_2}\r",
        "CRLF, then LF": f"{line_1}\r\n{line_2}\n",
        "LF, then CRLF": f"{line_1}\n{line_2}\r\n",
        "blanks before": f" \t {text}",
        "blanks after": f"{line_1}\n{line_2} \t ",
        "blanks after the last line end": f"{text} \t ",
        "blank lines before": f"\n\r\n \n\r{text}",
        "blank lines after": f"{text}\n\r\n \n\r",
        "everything at once": f"\r\n\t {line_1}\r\n{line_2} \t\r\n\n",
    }


def sign(body: bytes, key: SigningKey = DANA_KEY, label: bytes = b"safepoint-approval/1\n") -> str:
    """What a holder of `key` could write: any body, with a signature that is theirs."""
    signature = base64.b64encode(key.sign(label + body)).decode()
    return f"safepoint-approval/1 {key.id} {signature}\n{body.decode('latin-1')}\n"


def body_of(text: str = TEXT) -> bytes:
    return text.split("\n")[1].encode()


def resign(key: SigningKey = DANA_KEY, **changes: Any) -> str:
    """Load, modify, re-sign: what a buggy or malicious approver could send."""
    values = {**Codec().decode(body_of()), **changes}
    kept = {name: value for name, value in values.items() if value is not ...}
    return sign(Codec().encode(kept), key)
