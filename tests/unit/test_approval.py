"""Approvals: the vectors, what is shown and what is signed, whose keys count, and how long."""

from __future__ import annotations

import json
import pickle
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from safepoint import Approver, Approvers, Keyring, LimitExceeded, VerifyingKey
from safepoint.core.codec import write_json
from safepoint.core.errors import (
    ApprovalRefused,
    ConfigurationError,
    EncodeError,
    InvalidId,
    Unsafe,
)
from safepoint.core.names import Head
from safepoint.resume.approval import SKEW, Question, peek, signable
from tests.house import refused
from tests.unit.approval_helpers import (
    APPROVERS,
    DANA,
    DANA_KEY,
    DIGEST,
    ERIN,
    ERIN_KEY,
    EXPIRED,
    HOUR,
    MALFORMED,
    MISMATCH,
    NOW,
    QUESTION,
    TEXT,
    UNTRUSTED,
    WRITER,
    ask,
    sign,
)
from tests.vectors import FOLDER

KEYS = json.loads((FOLDER / "keys.json").read_text())["keys"]
PUBLISHED = json.loads((FOLDER / "approvals.json").read_text())
TICK = timedelta(microseconds=1)


# ---------------------------------------------------------------- what opens


def told(question: Question) -> dict[str, Any]:
    names = ("tenant", "thread", "next", "scope", "until")
    arguments = write_json(question.arguments, 2**20).decode()
    shown = {name: getattr(question, name) for name in names}
    return {**shown, "done": list(question.done), "arguments": arguments}


@pytest.mark.parametrize("vector", PUBLISHED["questions"], ids=lambda vector: vector["name"])
def test_a_question_is_read_or_refused_as_the_vectors_say(vector: dict[str, Any]) -> None:
    if "refused" in vector:
        assert vector["refused"] == "ApprovalRefused form"
        refused(MALFORMED, Question.from_text, vector["text"])
    else:
        assert told(Question.from_text(vector["text"])) == vector["opens"]


@pytest.mark.parametrize("vector", PUBLISHED["vectors"], ids=lambda vector: vector["name"])
def test_an_approval_opens_or_is_refused_as_the_vectors_say(vector: dict[str, Any]) -> None:
    public = {"dana": VerifyingKey.from_text(KEYS["dana"]["public"])}
    people = Approvers(
        {name: [public[key] for key in keys] for name, keys in vector["approvers"].items()},
        revoked=[public[name] for name in vector.get("revoked", [])],
    )
    if "refused" in vector:
        with pytest.raises(ApprovalRefused) as caught:
            people.open(vector["text"])
        assert vector["refused"] == " ".join(filter(None, ("ApprovalRefused", caught.value.kind)))
        return
    opened = people.open(vector["text"])
    assert vector["opens"] == {
        "key": opened.key,
        "approver": opened.approver,
        "verdict": opened.verdict,
        "issued": f"{opened.issued:%Y-%m-%dT%H:%M:%S.%f}Z",
        "expires": f"{opened.expires:%Y-%m-%dT%H:%M:%S.%f}Z",
        "nonce": opened.nonce,
        **told(opened.question),
    }


@pytest.mark.parametrize(
    "given",
    [None, b"bytes", "\ud800", "é", "a\nb\nc", "x" * 65537, "{}", "[]", QUESTION.text.upper()],
)
def test_what_is_no_text_of_an_approval_or_question_is_malformed(given: Any) -> None:
    refused(MALFORMED, APPROVERS.open, given)
    refused(MALFORMED, Question.from_text, given)


def test_a_time_that_no_clock_can_tell_is_malformed() -> None:
    line, time = TEXT.split("\n")[1], f"{NOW:%Y-%m-%dT%H:%M:%S.%fZ}"
    text = sign(line.replace(time, "0001-01-01T00:00:00.000000+23:59").encode())
    assert time in line
    refused(MALFORMED, APPROVERS.open, text)


def test_a_genuine_answer_says_who_answered_what_and_when() -> None:
    approval = APPROVERS.open(TEXT)
    assert (approval.approver, approval.key) == ("dana", DANA_KEY.id)
    assert (approval.issued, approval.expires) == (NOW, NOW + HOUR)
    assert approval.question == QUESTION
    assert approval.text == TEXT
    assert APPROVERS.open(TEXT.replace("\n", "\r\n").strip()).text == TEXT
    assert APPROVERS.open(ERIN.deny(QUESTION)).verdict == "denied"
    said = [peek(text).get("verdict") for text in (ERIN.deny(QUESTION), TEXT, "", "x\n[]")]
    assert said == ["denied", "approved", None, None]
    assert APPROVERS.open(DANA.approve(QUESTION)).issued - datetime.now(UTC) < SKEW
    nonces = {APPROVERS.open(DANA.approve(QUESTION)).nonce for _ in range(9)}
    assert len(nonces) == 9
    assert TEXT not in repr(approval)
    assert "ACME" not in repr(approval)


# ---------------------------------------------------------------- what is asked


def test_a_question_travels_as_one_line_and_comes_back_equal() -> None:
    assert QUESTION.text.count("\n") == 1
    for text in (QUESTION.text, f"\r\n {QUESTION.text.strip()}\r\n\t"):
        assert Question.from_text(text) == QUESTION
    assert len({QUESTION, Question.from_text(QUESTION.text)}) == 1
    assert pickle.loads(pickle.dumps(QUESTION)) == QUESTION
    assert QUESTION.text != QUESTION


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *((InvalidId, each) for each in ({"store": "a/b"}, {"app": "a b"}, {"tenant": "Acme"})),
        (ConfigurationError, {"tools": "sha256:a"}),
        *((ConfigurationError, {"reasons": each}) for each in ((), ("asked", "as ked"))),
        *((ConfigurationError, {"action": each}) for each in ("pay\n", "x" * 129)),
        *((ConfigurationError, {"arguments": each}) for each in ([1], {1: 2})),
        *((ConfigurationError, {"details": (each,)}) for each in ("two\nlines", "cr\xe8me")),
        (ConfigurationError, {"details": (f"New.{' ' * 76}argument 'amount': 42",)}),
        *((ConfigurationError, each) for each in ({"next": None}, {"done": (1,)})),
        (EncodeError, {"arguments": {"amount": object()}}),
        *((LimitExceeded, {"arguments": {"m": each}}) for each in ("x" * 62_000, [1] * 40_000)),
    ],
)
def test_what_could_not_be_shown_or_signed_is_not_asked(kind: Any, changes: Any) -> None:
    refused(kind, ask, **changes)


def test_what_was_looked_at_is_what_is_signed() -> None:
    """Nobody who holds the arguments, or what was read of them, changes them afterwards."""
    given = {"order": {"amount": 42}}
    question = ask(arguments=given)
    given["order"]["amount"] = 5_000_000
    question.arguments["order"]["amount"] = 5_000_000
    assert APPROVERS.open(DANA.approve(question)).question.arguments == {"order": {"amount": 42}}
    assert "argument 'order': {'amount': 42}" in question.described


def test_what_is_shown_is_all_of_it_on_lines_of_its_own() -> None:
    tricky = "42\n\u202e thread: x    more" + "y" * 9_000
    odd = {"a\u2028b": tricky, "big": 10**50, "when": date(2026, 1, 2), "by": Decimal("1.0")}
    question = ask(arguments=odd, details=("The tool mail is new.",))
    lines = question.described
    assert lines == [
        "action: 'pay'",
        "arguments: 4",
        r"argument 'a\u2028b': '42\n\u202e thread: x\x20\x20\x20\x20more" + "y" * 9_000 + "'",
        f"argument 'big': {10**50}",
        "argument 'by': Decimal('1.0')",
        "argument 'when': datetime.date(2026, 1, 2)",
        "next: 'pay'",
        "done: 'fetch', 'ask'",
        "scope: (none)",
        "until: (none)",
        "thread: order-7",
        "tenant: (none)",
        "store: invoices",
        "app: invoice@2",
        "reasons: old-checkpoint, asked",
        "detail: The tool mail is new.",
        f"checkpoint: #3 {DIGEST['a']}",
        f"head: #4 {DIGEST['b']}",
        f"tools: {DIGEST['c']}",
    ]
    assert all(line.isascii() and line.isprintable() for line in lines)
    none = ask(action="", arguments={}, app="", next="", done=()).described
    empty = [line.partition(":")[0] for line in none if line.endswith(": (none)")]
    assert " ".join(empty) == "action arguments next done scope until tenant app"
    assert "ACME" not in repr(QUESTION)


def test_no_two_questions_look_the_same_however_long_they_are() -> None:
    alike: list[Any] = [1, True, 1.0, "1", Decimal(1), Decimal("1.0"), [1]]
    alike += [0.0, -0.0, "a  b", "a\\x20\\x20b", "\u202ea", "\\u202ea", "a", "\u200ba", "a\xad"]
    alike += [{"1": 1}, 10**50, 10**50 + 1]
    long = "\u202e\u200b\xad\U000e0041" * 1636  # of 30 bytes each, and so about 48 KiB
    alike += [f"{long}{end}" for end in ("", "x", "\u2062")]
    refused(LimitExceeded, signable, "pay", {"memo": long + "x" * 99})
    asked = [ask(arguments=signable("pay", {"memo": each})) for each in alike]
    assert len({tuple(each.described) for each in asked}) == len(asked)
    for question in asked:
        assert APPROVERS.open(DANA.approve(question)).question.described == question.described
    assert asked[-1].described[2] == f"argument 'memo': {alike[-1]!a}"


# ---------------------------------------------------------------- what it answers


OTHERS: list[dict[str, Any]] = [
    *({"store": "refunds"}, {"thread": "order-8"}, {"tenant": "acme"}, {"app": "invoice@3"}),
    *({"checkpoint": Head(2, DIGEST["a"])}, {"head": Head(4, DIGEST["d"])}),
    *({"tools": DIGEST["d"]}, {"reasons": ("asked",)}, {"details": ("a",)}, {"next": "refund"}),
    *({"done": ("fetch",)}, {"scope": "a#0"}, {"until": "2026-11-15T13:00:00.000000Z"}),
    *({"action": "refund"}, {"arguments": {"amount": 42}}),
    {"arguments": {"amount": Decimal(42), "to": "ACME"}},
    {"arguments": {"amount": 42, "fee": 1, "to": "ACME"}},
]


def test_an_answer_to_another_question_says_what_differs() -> None:
    approval = APPROVERS.open(TEXT)
    approval.check_answers(ask())
    for changes in OTHERS:
        other = ask(**changes)
        told = refused(MISMATCH, approval.check_answers, other)
        assert told.startswith("The approval by dana has ")
        for one, two in ((QUESTION, other), (other, QUESTION)):
            assert next((x for x in one.described if x not in two.described), "") in told


def test_one_is_not_true_and_two_long_values_never_look_the_same() -> None:
    one = APPROVERS.open(ERIN.deny(ask(arguments={"amount": 1})))
    assert "'amount': 1, but the question has argument 'amount': True." in refused(
        MISMATCH, one.check_answers, ask(arguments={"amount": True})
    )
    long = APPROVERS.open(DANA.approve(ask(arguments={"memo": "x" * 99 + "a"})))
    said = refused(MISMATCH, long.check_answers, ask(arguments={"memo": "x" * 99 + "b"}))
    ours, theirs = re.findall(r"sha256:\w+", said)
    assert ours != theirs
    assert said.count("(119 characters, sha256:") == 2


# ---------------------------------------------------------------- how long it counts


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (NOW, None),
        (NOW + HOUR - TICK, None),
        (NOW - SKEW, None),
        (NOW + HOUR, "expired at 2026-11-15T13:00:00.000000Z, and it is 2026-11-15T13:00:00.0"),
        (NOW - SKEW - TICK, "was issued at 2026-11-15T12:00:00.000000Z, and it is only 2026-11"),
    ],
)
def test_an_approval_counts_from_a_minute_before_it_was_given_and_not_at_its_end(
    now: datetime, said: str | None
) -> None:
    approval = APPROVERS.open(TEXT)
    if said is None:
        approval.check_time(now, HOUR)
        refused(EXPIRED, approval.check_time, now, HOUR - TICK)  # the policy allows less
    else:
        assert said in refused(EXPIRED, approval.check_time, now, HOUR)


# ---------------------------------------------------------------- whose answer counts


def test_a_key_belongs_to_one_person_with_a_name_and_is_public() -> None:
    refused(InvalidId, Approver, "Dana Scully", DANA_KEY)
    refused(InvalidId, Approvers, {"d\n": DANA_KEY.public})
    refused(Unsafe, Approvers, {"dana": DANA_KEY.public, "erin": DANA_KEY.public})
    refused(Unsafe, Approvers, {"dana": DANA_KEY})
    both = Approvers({"erin": [ERIN_KEY.public, WRITER.public], "dana": DANA_KEY.public})
    assert (len(both), repr(both)) == (2, "Approvers(['dana', 'erin'])")
    for key in (ERIN_KEY, WRITER):
        assert both.open(Approver("erin", key).approve(QUESTION)).key == key.id


def test_a_revoked_key_no_longer_counts_whatever_date_it_writes() -> None:
    public = {"dana": DANA_KEY.public, "erin": ERIN_KEY.public}
    for gone in (DANA_KEY.id, DANA_KEY.public):
        left = Approvers(public, revoked=[gone])
        assert (left.names, left.revoked) == (("erin",), frozenset([DANA_KEY.id]))
        said = refused(UNTRUSTED, left.open, TEXT)
        assert said.startswith(f"The answer names key {DANA_KEY.id} of dana, which was revoked.")
        assert left.open(TEXT, revoked=True).approver == "dana"
        assert left.open(ERIN.approve(QUESTION)).approver == "erin"
    refused(Unsafe, Approvers, public, revoked=["0" * 16])
    refused(Unsafe, Approvers, public, revoked=DANA_KEY.id)


def test_a_writer_does_not_approve_its_own_work() -> None:
    refused(Unsafe, APPROVERS.check_apart, Keyring(WRITER, verify=[DANA_KEY.public]))
    APPROVERS.check_apart(Keyring(WRITER))
    refused(UNTRUSTED, APPROVERS.open, Approver("dana", WRITER).approve(QUESTION))
    refused(UNTRUSTED, APPROVERS.open, Approver("dana", ERIN_KEY).approve(QUESTION))
