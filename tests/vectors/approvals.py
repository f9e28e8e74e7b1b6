"""Approvals: some that open, one for each way to be refused, and none that opens as a record."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from safepoint.core.codec import write_json
from safepoint.core.record import Use, sign_line
from tests.vectors.material import DANA, ELSEWHERE, FIRST, WRITER, Vector, sealed

HEAD: Final = {"digest": ELSEWHERE, "sequence": 2}
FIELDS: Final[dict[str, Any]] = {
    "action": "pay",
    "app": "invoice@1",
    "approver": "dana",
    "arguments": {"amount": 42, "payee": "alice"},
    "checkpoint": HEAD,
    "details": ["The run paused at #2 for a person's answer."],
    "done": ["ask"],
    "expires": "2026-11-15T13:00:00.000000Z",
    "head": HEAD,
    "issued": "2026-11-15T12:00:00.000000Z",
    "next": "pay",
    "nonce": "00112233445566778899aabbccddeeff",
    "reasons": ["asked"],
    "scope": "",
    "store": "invoices",
    "tenant": "",
    "thread": "order-7",
    "tools": ELSEWHERE,
    "until": "",
    "verdict": "approved",
}
OPENS: Final = (
    "approver",
    "verdict",
    "issued",
    "expires",
    "nonce",
    "tenant",
    "thread",
    "next",
    "done",
    "scope",
    "until",
    "arguments",
)


def signed(line_2: bytes, use: Use = "approval") -> str:
    """Return what a holder of the key could write: any line, truly signed for a use."""
    return (b"%b\n%b\n" % (sign_line(line_2, DANA, use), line_2)).decode("latin-1")


def line(**changes: Any) -> bytes:
    """Return line 2 with other fields; with `...`, without one."""
    fields = {**FIELDS, **changes}
    return write_json({k: v for k, v in fields.items() if v is not ...}, 2**20)


def vectors() -> list[Vector]:
    """Return all of them, in the order in which a reader checks."""
    return [*_accepted(), *_no_approvals(), *_untrusted(), *_no_statements()]


def questions() -> list[Vector]:
    """Return what an approver is sent, before anybody has signed it."""
    asked = dict.fromkeys(("approver", "expires", "issued", "nonce", "verdict"), ...)
    question = line(**asked).decode()
    fields = {name: FIELDS[name] for name in OPENS[5:-1]}
    opens = {**fields, "arguments": write_json(FIELDS["arguments"], 2**20).decode()}
    refused = [
        ("empty", ""),
        ("answered", line().decode()),
        ("verdict", line(**{**asked, "verdict": "approved"}).decode()),
        ("no-scope", line(**asked, scope=...).decode()),
        ("bad-tenant", line(**asked, tenant="Acme").decode()),
        *(
            (f"device-{name}", line(**asked, **{name: "con"}).decode())
            for name in ("store", "tenant", "thread")
        ),
        ("spaces", question.replace(":", ": ")),
        ("two-lines", f"{question}\n{question}\n"),
        ("long", question + " " * 65536),
    ]
    return [
        {"name": "question", "text": f"{question}\n", "opens": opens},
        {"name": "mail", "text": f"\r\n{question}\r\n ", "opens": opens},
        *({"name": n, "text": text, "refused": "ApprovalRefused form"} for n, text in refused),
    ]


def _vector(name: str, about: str, text: str, **outcome: Any) -> Vector:
    people = {"dana": ["dana"]}
    return {"name": name, "about": about, "approvers": people, "text": text, **outcome}


def _accepted() -> list[Vector]:
    found: list[tuple[str, str, dict[str, Any]]] = [
        ("yes", "A yes of dana.", {}),
        ("no", "A no of dana.", {"verdict": "denied"}),
        ("no-action", "Nothing is asked by a step.", {"action": "", "arguments": {}}),
        ("tenant", "A thread of a tenant.", {"tenant": "acme"}),
        ("at-the-end", "No step is left, and none was done.", {"next": "", "done": []}),
        (
            "values",
            "An argument that JSON has no type for.",
            {"arguments": {"of": [Decimal("12.50"), 2**70]}},
        ),
        ("sign", "A name that begins as a tag does.", {"arguments": {"$of": 1, "to": 2}}),
        ("scope", "A part of the thread.", {"scope": "review/task-1"}),
        ("until", "A wait that ends.", {"until": FIELDS["expires"]}),
    ]
    opened = [
        _vector(
            name,
            about,
            signed(line(**changes)),
            opens={
                "key": DANA.id,
                **{field: {**FIELDS, **changes}[field] for field in OPENS[:-1]},
                "arguments": write_json({**FIELDS, **changes}["arguments"], 2**20).decode(),
            },
        )
        for name, about, changes in found
    ]
    carried = {"about": "Mail changed the line ends, and added some.", "name": "mail"}
    mailed = "\r\n" + opened[0]["text"].replace("\n", "\r\n") + " \n"
    return [*opened, {**opened[0], **carried, "text": mailed}]


def _no_approvals() -> list[Vector]:
    yes = signed(line())
    found = [
        ("empty", "Nothing.", ""),
        ("bare", "A statement without a signature.", line().decode() + "\n"),
        ("format-2", "Another format.", yes.replace("safepoint/1", "safepoint/2")),
        ("two-spaces", "Line 1 is not as it is written.", yes.replace(" ", "  ", 1)),
        ("long", "More than 65,536 characters.", yes + " " * 65536),
        ("short", "A signature of 32 bytes.", yes.replace(yes.split()[2], "A" * 43 + "=")),
    ]
    return [_vector(*each, refused="ApprovalRefused form") for each in found]


def _untrusted() -> list[Vector]:
    yes, record = signed(line()), sealed(FIRST, DANA)[0].decode("latin-1")
    found = [
        ("edited", "5,000,000 in place of 42.", yes.replace(":42", ":5000000")),
        ("other-next", "Another step is next.", yes.replace('"next":"pay"', '"next":"refund"')),
        ("other-done", "One more step is done.", yes.replace('["ask"]', '["ask","pay"]')),
        ("other-tenant", "Of a tenant.", yes.replace('"tenant":""', '"tenant":"acme"')),
        (
            "waits",
            "Without an end.",
            signed(line(until=FIELDS["expires"])).replace(
                f'"until":"{FIELDS["expires"]}"', '"until":""'
            ),
        ),
        ("extended", "A year more.", yes.replace('"expires":"2026', '"expires":"2027')),
        ("third-line", "A line more than was signed.", yes + "{}\n"),
        ("as-record", "The line was signed as a record.", signed(line(), "record")),
        ("as-journal", "The line was signed for the journal.", signed(line(), "journal")),
        ("as-model", "The line was signed for a model.", signed(line(), "model")),
        ("as-order", "The line was signed as an order.", signed(line(), "order")),
        ("record", "A record of the approver's key.", record),
        ("as-somebody", "Dana signs as erin.", signed(line(approver="erin"))),
    ]
    revoked = _vector("revoked", "The key no longer counts.", yes, refused="ApprovalRefused")
    other = yes.replace(DANA.id, WRITER.id)
    return [
        _vector("stranger", "A key of nobody here.", other, refused="ApprovalRefused key"),
        *(_vector(*each, refused="ApprovalRefused") for each in found),
        {**revoked, "revoked": ["dana"]},
    ]


def _no_statements() -> list[Vector]:
    """Return what dana could sign, and this release does not write."""
    bad: dict[str, Any] = {
        "verdict": "maybe",
        "approver": 7,
        "nonce": "0011",
        "issued": "2026-11-15 12:00",
        "expires": "2026-02-30T12:00:00.000000Z",
        "store": "..",
        "thread": "Order 7",
        "app": "invoice\n",
        "tools": "sha256:00",
        "action": "pay now",
        "arguments": [],
        "reasons": [],
        "details": ["a line\nmore"],
        "tenant": "Acme",
        "next": 7,
        "scope": None,
        "done": "ask",
        "until": "2026-11-15 13:00",
        "checkpoint": {"digest": ELSEWHERE, "sequence": True},
        "head": {"digest": ELSEWHERE},
    }
    found = [
        ("not-json", "No JSON.", b"pay"),
        ("list", "No object.", b"[]"),
        ("spaces", "Another spelling of the same.", line().replace(b":", b": ")),
        ("twice", "A field twice.", line().replace(b'{"action":"pay",', b'{"action":"pay",' * 2)),
        ("field-more", "A field more.", line(amount=42)),
        *(
            (f"without-{field}", f"No {field}.", line(**{field: ...}))
            for field in ("details", "done", "next", "nonce", "tenant", "thread", "until")
        ),
        *((f"bad-{field}", f"No {field}.", line(**{field: bad[field]})) for field in bad),
        (
            "tag",
            "The arguments are a tag.",
            line(arguments={"d": "2026-01-31"}).replace(b'"d"', b'"$date"'),
        ),
        ("number", "A detail is a number.", line(details=[7])),
        (
            "never",
            "Issued on a day that does not exist.",
            line(issued="2026-02-30T12:00:00.000000Z"),
        ),
        (
            "until-never",
            "A wait until a day that does not exist.",
            line(until="2026-02-30T12:00:00.000000Z"),
        ),
        ("expires", "Until when, in another spelling.", line(expires="2026-11-15 13:00")),
        ("capital", "No name of an approver.", line(approver="Dana")),
        ("digest", "The end has no digest.", line(head={"digest": "sha256:00", "sequence": 2})),
        ("room", "Room inside of a detail for what looks like a line.", line(details=["a  b"])),
        ("reason", "A reason is a word.", line(reasons=["Asked me"])),
        ("half", "Half a character.", line(next="?").replace(b'"?"', rb'"\ud800"')),
        ("fields-first", "Erin's name, and no verdict.", line(approver="erin", verdict="maybe")),
        ("done-number", "A step that is done is a number.", line(done=[7])),
        ("device", "A device of Windows.", line(thread="lpt9")),
        ("device-approver", "An approver with such a name.", line(approver="con")),
    ]
    return [
        _vector(name, about, signed(line_2), refused="ApprovalRefused form")
        for name, about, line_2 in found
    ]
