"""Approvers: whose answer counts, to which question, and when."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any

import pytest

from safepoint import (
    ApprovalExpired,
    ApprovalMismatch,
    ApprovalUntrusted,
    Codec,
    ConfigurationError,
    Head,
    InvalidId,
    KeyRefused,
    Keyring,
    Revoked,
    SigningKey,
)
from safepoint.approval import Approval, Approver, Approvers, Question
from safepoint.names import digest_of
from tests.unit.approval_helpers import (
    APPROVERS,
    DANA,
    DANA_KEY,
    DIGEST,
    ERIN,
    ERIN_KEY,
    HOUR,
    NOW,
    QUESTION,
    TEXT,
    WRITER,
    as_it_arrives,
    ask,
    resign,
)

SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
APPROVAL = APPROVERS.open(TEXT)
MAC = SigningKey(bytes(32))


def check(
    text: str = TEXT,
    question: Question = QUESTION,
    now: Any = NOW,
    lifetime: Any = HOUR,
) -> None:
    APPROVERS.check_at_time(APPROVERS.open(text), question, now, lifetime=lifetime)


def expired(**given: Any) -> str:
    with pytest.raises(ApprovalExpired) as error:
        check(**given)
    return str(error.value)


# Who signs


def test_an_approver_has_a_name_and_a_key_and_shows_no_secret() -> None:
    assert (DANA.name, DANA.key) == ("dana", DANA_KEY.id)
    assert repr(DANA) == f"Approver('dana', key='{DANA_KEY.id}')"
    with pytest.raises(KeyRefused):
        pickle.dumps(DANA)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            MAC,
            (
                f"Key {MAC.id} is for hmac-sha256: whoever checks an approval could make one."
                " Make a key for approvals with SigningKey.generate('ed25519')."
            ),
        ),
        (
            DANA_KEY.public,
            (
                "An approver signs with a signing key, not VerifyingKey."
                ' Write Approver("dana", SigningKey.from_file(path)).'
            ),
        ),
        (
            bytes(32),
            (
                "An approver signs with a signing key, not bytes."
                ' Write Approver("dana", SigningKey.from_file(path)).'
            ),
        ),
    ],
)
def test_an_approver_signs_with_an_ed25519_key_alone(key: Any, message: str) -> None:
    with pytest.raises(KeyRefused) as error:
        Approver("dana", key)
    assert str(error.value) == message


@pytest.mark.parametrize("name", ["Dana", "", "dana\n", "d\u0430na", None, 7])
def test_an_approver_has_a_name_of_the_grammar(name: Any) -> None:
    with pytest.raises(InvalidId):
        Approver(name, DANA_KEY)
    with pytest.raises(InvalidId):
        Approvers({name: DANA_KEY.public})


class Subclass(Question):
    """Says one thing and could sign another."""


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (QUESTION.text, "str"),
        (QUESTION.fields, "dict"),
        (None, "NoneType"),
        (APPROVAL, "Approval"),
        (Subclass.from_text(QUESTION.text), "Subclass"),
    ],
)
def test_an_approver_answers_nothing_but_a_question(given: Any, name: str) -> None:
    for answer in (DANA.approve, DANA.deny):
        with pytest.raises(ConfigurationError) as error:
            answer(given)
        assert str(error.value) == (
            f"An approver answers a Question, and was given {name}. Read it first: question ="
            " Question.from_text(text), then question.described."
        )


def test_a_refused_approver_can_be_shown() -> None:
    """A tool that reports the variables of a failed call asks for its repr."""
    assert repr(Approver.__new__(Approver)) == "Approver(None, key=None)"
    assert repr(Approvers.__new__(Approvers)) == "Approvers()"


# When it counts


def test_approve_and_deny_use_the_clock() -> None:
    for answer, verdict in ((DANA.approve, "approved"), (DANA.deny, "denied")):
        before = datetime.now(UTC)
        approval = APPROVERS.open(answer(QUESTION))
        assert before <= approval.issued <= datetime.now(UTC)
        assert approval.expires - approval.issued == HOUR
        assert approval.verdict == verdict
        longer = APPROVERS.open(answer(QUESTION, lifetime=2 * HOUR))
        assert longer.expires - longer.issued == 2 * HOUR


@pytest.mark.parametrize(
    "now", [NOW, NOW + TICK, NOW + HOUR - TICK, NOW - TICK, NOW - timedelta(seconds=60)]
)
def test_an_approval_counts_from_when_it_was_issued_until_just_before_it_expires(
    now: datetime,
) -> None:
    check(now=now)
    check(now=now.astimezone(timezone(timedelta(hours=9))))


def test_an_expired_approval_is_refused() -> None:
    assert expired(now=NOW + HOUR) == (
        "The approval by dana expired at 2026-11-15T13:00:00.000000Z, and it is"
        " 2026-11-15T13:00:00.000000Z. Ask dana again."
    )
    assert expired(now=NOW + HOUR + TICK).endswith(
        " it is 2026-11-15T13:00:00.000001Z. Ask dana again."
    )
    expired(now=NOW + timedelta(days=9999))
    local = (NOW + HOUR).astimezone(timezone(timedelta(hours=-5)))
    expired(now=local)


def test_a_denial_expires_too() -> None:
    text = ERIN.deny(QUESTION, now=NOW)
    check(text, now=NOW + HOUR - TICK)
    assert expired(text=text, now=NOW + HOUR) == (
        "The denial by erin expired at 2026-11-15T13:00:00.000000Z, and it is"
        " 2026-11-15T13:00:00.000000Z. Ask erin again."
    )


def test_an_approval_from_the_future_is_refused() -> None:
    assert expired(now=NOW - timedelta(seconds=60) - TICK) == (
        "The approval by dana was issued at 2026-11-15T12:00:00.000000Z, and it is only"
        " 2026-11-15T11:58:59.999999Z: that is more than the 60 seconds by which clocks may"
        " differ. Set the clocks of this machine and of dana right, then ask again."
    )
    expired(now=datetime.min.replace(tzinfo=UTC))


def test_an_approval_for_longer_than_the_policy_allows_is_refused() -> None:
    check(lifetime=HOUR)
    assert expired(lifetime=HOUR - TICK) == (
        "The approval by dana is valid for 1:00:00, and the policy allows 0:59:59.999999."
        " Ask dana again, for a shorter time: approve(question, lifetime=...)."
    )
    forever = DANA.approve(QUESTION, now=NOW, lifetime=timedelta(days=36500))
    assert expired(text=forever, lifetime=timedelta(days=1)) == (
        "The approval by dana is valid for 36500 days, 0:00:00, and the policy allows 1 day,"
        " 0:00:00. Ask dana again, for a shorter time: approve(question, lifetime=...)."
    )


class NoOffset(tzinfo):
    """A time zone that does not say where it is."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


@pytest.mark.parametrize(
    "now",
    [
        NOW.replace(tzinfo=None),
        NOW.replace(tzinfo=NoOffset()),
        NOW.date(),
        NOW.timestamp(),
        "2026-11-15T12:00:00Z",
        None,
    ],
)
def test_a_time_without_a_zone_is_refused(now: Any) -> None:
    for use in (
        lambda: check(now=now),
        lambda: DANA.approve(QUESTION, now=now),
        lambda: DANA.deny(QUESTION, now=now),
    ):
        with pytest.raises(ConfigurationError) as error:
            use()
        assert str(error.value) == (
            "The time is not a datetime with a time zone. Write datetime.now(UTC)."
        )


def test_a_time_that_utc_does_not_have_is_refused() -> None:
    before_all = datetime.min.replace(tzinfo=timezone(HOUR))
    with pytest.raises(ConfigurationError) as error:
        check(now=before_all)
    assert str(error.value) == (
        "The time is outside of the years 1 to 9999 in UTC. Write datetime.now(UTC)."
    )


@pytest.mark.parametrize(
    ("lifetime", "shown"),
    [
        (timedelta(), "datetime.timedelta(0)"),
        (-HOUR, "datetime.timedelta(days=-1, seconds=82800)"),
        (3600, "3600"),
        (None, "None"),
    ],
)
def test_a_lifetime_is_above_zero(lifetime: Any, shown: str) -> None:
    for use in (
        lambda: check(lifetime=lifetime),
        lambda: DANA.approve(QUESTION, lifetime=lifetime),
        lambda: DANA.deny(QUESTION, lifetime=lifetime),
    ):
        with pytest.raises(ConfigurationError) as error:
            use()
        assert str(error.value) == (
            f"The lifetime {shown} is not a timedelta above zero."
            " Write lifetime=timedelta(hours=1)."
        )


def test_an_approval_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigurationError) as error:
        DANA.approve(QUESTION, now=NOW, lifetime=timedelta.max)
    assert str(error.value) == (
        "The approval would end after the year 9999. Write lifetime=timedelta(hours=1)."
    )


def test_times_are_kept_to_the_microsecond_in_every_year() -> None:
    for year in (1, 999, 9998):
        moment = datetime(year, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
        approval = APPROVERS.open(DANA.approve(QUESTION, now=moment, lifetime=TICK))
        assert (approval.issued, approval.expires) == (moment, moment + TICK)


# What it answers


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"store": "wages"}, "the store 'invoices', and the question has 'wages'"),
        ({"thread": "order-8"}, "the thread 'order-7', and the question has 'order-8'"),
        (
            {"checkpoint": Head(2, DIGEST["a"])},
            f"the checkpoint #3 {DIGEST['a']}, and the question has #2 {DIGEST['a']}",
        ),
        (
            {"checkpoint": Head(3, DIGEST["d"])},
            f"the checkpoint #3 {DIGEST['a']}, and the question has #3 {DIGEST['d']}",
        ),
        (
            {"head": Head(5, DIGEST["b"])},
            f"the head #4 {DIGEST['b']}, and the question has #5 {DIGEST['b']}",
        ),
        (
            {"head": Head(4, DIGEST["d"])},
            f"the head #4 {DIGEST['b']}, and the question has #4 {DIGEST['d']}",
        ),
        ({"app": "invoice@3"}, "the app 'invoice@2', and the question has 'invoice@3'"),
        ({"app": ""}, "the app 'invoice@2', and the question has ''"),
        (
            {"tools": DIGEST["d"]},
            f"the tools {DIGEST['c']}, and the question has {DIGEST['d']}",
        ),
        (
            {"reasons": ("asked",)},
            "the reasons ('old-checkpoint', 'asked'), and the question has ('asked',)",
        ),
        (
            {"reasons": ("asked", "old-checkpoint")},
            (
                "the reasons ('old-checkpoint', 'asked'), and the question has ('asked',"
                " 'old-checkpoint')"
            ),
        ),
        (
            {"details": ("The tool mail is new.",)},
            "the details (), and the question has ('The tool mail is new.',)",
        ),
        ({"action": "pay\n"}, r"the action 'pay', and the question has 'pay\n'"),
        (
            {"arguments": {"amount": 5_000_000, "to": "ACME"}},
            "the argument 'amount': 42, and the question has 5000000",
        ),
        (
            {"arguments": {"amount": 42, "to": "ACME\u202e"}},
            r"the argument 'to': 'ACME', and the question has 'ACME\u202e'",
        ),
        (
            {"arguments": {"amount": 42.0, "to": "ACME"}},
            "the argument 'amount': 42, and the question has 42.0",
        ),
        (
            {"arguments": {"amount": Decimal(42), "to": "ACME"}},
            "the argument 'amount': 42, and the question has Decimal('42')",
        ),
        (
            {"arguments": {"amount": 42}},
            "the argument 'to': 'ACME', and the question has none",
        ),
        (
            {"arguments": {"amount": 42, "to": "ACME", "fee\n": None}},
            r"no argument 'fee\n', and the question has None",
        ),
        (
            {"arguments": {}},
            "the argument 'amount': 42, and the question has none",
        ),
    ],
    ids=str,
)
def test_an_approval_of_something_else_is_refused(changes: dict[str, Any], difference: str) -> None:
    """One user's genuine approval, replayed for another; 42 approved, 5,000,000 paid."""
    other = ask(**changes)
    uses: list[Callable[[], None]] = [
        lambda: APPROVERS.check_bound(APPROVAL, other),
        lambda: check(question=other),
        lambda: check(question=other, now=NOW + 9 * HOUR),
    ]
    for use in uses:
        with pytest.raises(ApprovalMismatch) as error:
            use()
        assert str(error.value) == (
            f"The approval by dana has {difference}. It does not count here."
            " Ask dana this question."
        )
    APPROVERS.check_bound(APPROVERS.open(DANA.approve(other, now=NOW)), other)


def test_a_denial_of_something_else_is_refused() -> None:
    denial = APPROVERS.open(ERIN.deny(ask(thread="order-8"), now=NOW))
    with pytest.raises(ApprovalMismatch) as error:
        APPROVERS.check_bound(denial, QUESTION)
    assert str(error.value) == (
        "The denial by erin has the thread 'order-8', and the question has 'order-7'."
        " It does not count here. Ask erin this question."
    )


def test_long_values_that_differ_at_their_end_do_not_look_the_same() -> None:
    one, other = "a" * 1000 + "1", "a" * 1000 + "2"
    approval = APPROVERS.open(DANA.approve(ask(arguments={"memo": one}), now=NOW))
    with pytest.raises(ApprovalMismatch) as error:
        APPROVERS.check_bound(approval, ask(arguments={"memo": other}))
    shown = [
        f"'{'a' * 56}... (1003 characters, {digest_of(Codec().encode(value))})"
        for value in (one, other)
    ]
    assert error.value.what == (
        f"The approval by dana has the argument 'memo': {shown[0]}, and the question has"
        f" {shown[1]}."
    )


def test_true_is_not_one() -> None:
    for first, second in ((1, True), (0, False), (0.0, -0.0), ([1], (1,)), ({"a": 1}, {"a": True})):
        approval = APPROVERS.open(DANA.approve(ask(arguments={"v": first}), now=NOW))
        with pytest.raises(ApprovalMismatch) as error:
            APPROVERS.check_bound(approval, ask(arguments={"v": second}))
        assert error.value.what == (
            f"The approval by dana has the argument 'v': {first!r}, and the question has"
            f" {second!r}."
        )


def test_an_answer_is_checked_against_a_question_alone() -> None:
    with pytest.raises(ConfigurationError) as error:
        APPROVERS.check_bound(APPROVAL, QUESTION.text)  # type: ignore[arg-type]
    assert str(error.value) == (
        "An approval answers a Question, not str. Give the question that was asked."
    )


# An approval as an object


def test_an_approval_does_not_change_and_shows_no_arguments() -> None:
    with pytest.raises(FrozenInstanceError):
        APPROVAL.verdict = "denied"  # type: ignore[misc]
    assert "ACME" not in repr(APPROVAL)
    assert "approver='dana'" in repr(APPROVAL)
    assert copy.deepcopy(APPROVAL) == APPROVAL


@pytest.mark.parametrize(
    "changes",
    [
        {"question": ask(arguments={"amount": 5_000_000, "to": "ACME"})},
        {"approver": "erin"},
        {"verdict": "denied"},
        {"expires": NOW + 99 * HOUR},
        {"issued": NOW - HOUR},
        {"nonce": "0" * 32},
        {"key": ERIN_KEY.id},
        {"text": resign(nonce="1" * 32)},
        {"text": TEXT.rstrip("\n")},
        {"text": TEXT.replace("\n", "\r\n")},
        {"text": f" {TEXT}"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_approval_that_was_made_by_hand_does_not_count(changes: dict[str, Any]) -> None:
    forged = replace(APPROVAL, **changes)
    for use in (
        lambda: APPROVERS.check_bound(forged, forged.question),
        lambda: APPROVERS.check_at_time(forged, forged.question, NOW, lifetime=99 * HOUR),
        lambda: APPROVERS.count([forged]),
    ):
        with pytest.raises(ApprovalUntrusted) as error:
            use()
        assert str(error.value) == (
            "The approval is not what its signed text says. Use what approvers.open(text) returns."
        )


def test_an_approval_that_other_approvers_opened_does_not_count() -> None:
    opened = Approvers({"root": WRITER.public}).open(
        Approver("root", WRITER).approve(QUESTION, now=NOW)
    )
    with pytest.raises(ApprovalUntrusted, match="which is no approver's"):
        APPROVERS.check_bound(opened, QUESTION)
    with pytest.raises(ApprovalUntrusted, match="which is no approver's"):
        APPROVERS.count([APPROVAL, opened])


@pytest.mark.parametrize("given", [TEXT, None, "approved"])
def test_a_text_is_opened_before_it_counts(given: Any) -> None:
    for use in (
        lambda: APPROVERS.count([given]),
        lambda: APPROVERS.check_bound(given, QUESTION),
    ):
        with pytest.raises(ConfigurationError) as error:
            use()
        assert str(error.value) == (
            f"This takes an Approval, and was given {type(given).__name__}."
            " Open the text first: approvers.open(text)."
        )


class Text(str):
    """A subclass, which a codec would refuse later."""

    __slots__ = ()


def test_the_text_of_an_approval_is_plain() -> None:
    for arrived in as_it_arrives(TEXT).values():
        approval = APPROVERS.open(Text(arrived))
        assert type(approval.text) is str
        assert approval == APPROVAL


# How many


def opened(*texts: str, approvers: Approvers = APPROVERS) -> Iterator[Approval]:
    return (approvers.open(text) for text in texts)


def test_people_are_counted_once() -> None:
    again, erins = DANA.approve(QUESTION, now=NOW), ERIN.approve(QUESTION, now=NOW)
    assert APPROVERS.count([]) == 0
    assert APPROVERS.count(opened(TEXT)) == 1
    assert APPROVERS.count(opened(TEXT, TEXT, again)) == 1
    assert APPROVERS.count(opened(TEXT, again, erins)) == 2


def test_one_answer_that_arrived_in_many_ways_is_one_answer() -> None:
    found = list(opened(*as_it_arrives(TEXT).values()))
    assert {approval.nonce for approval in found} == {APPROVAL.nonce}
    assert {approval.text for approval in found} == {TEXT}
    assert APPROVERS.count(found) == 1
    for approval in found:
        APPROVERS.check_at_time(approval, QUESTION, NOW, lifetime=HOUR)


def test_a_person_with_two_keys_counts_once() -> None:
    second = SigningKey.generate("ed25519")
    approvers = Approvers({"dana": [DANA_KEY.public, second.public], "erin": [ERIN_KEY.public]})
    texts = [TEXT, Approver("dana", second).approve(QUESTION, now=NOW)]
    found = list(opened(*texts, approvers=approvers))
    assert [approval.key for approval in found] == [DANA_KEY.id, second.id]
    assert approvers.count(found) == 1
    assert len(approvers) == 2
    assert approvers.names == ("dana", "erin")


def test_a_denial_is_no_approval() -> None:
    assert APPROVERS.count(opened(TEXT, ERIN.deny(QUESTION, now=NOW))) == 1
    assert APPROVERS.count(opened(DANA.deny(QUESTION, now=NOW))) == 0


def test_people_without_a_key_that_counts_are_no_approvers() -> None:
    second = SigningKey.generate("ed25519")
    keys: dict[str, Any] = {"erin": ERIN_KEY.public, "dana": [DANA_KEY.public, second.public]}
    assert Approvers(keys, revoked=[DANA_KEY]).names == ("dana", "erin")
    gone: list[Any] = [DANA_KEY, second.id]
    left = Approvers(keys, revoked=iter(gone))
    assert (left.names, len(left)) == (("erin",), 1)
    assert repr(left) == "Approvers(['erin'])"


# Whose keys


PUBLIC = "Give what they sent you of key.public, for a key of SigningKey.generate('ed25519')."
OWNED = "Keep a revoked key under its owner's name, and give the key or its 16 hex digits."
NOBODY = (
    "Approvers are people by name, each with a public key; there are none here."
    ' Write Approvers({"dana": VerifyingKey.from_file(path)}).'
)


@pytest.mark.parametrize(
    ("keys", "revoked", "message"),
    [
        ({}, [], NOBODY),
        (None, [], NOBODY),
        ([DANA_KEY.public], [], NOBODY),
        (
            {"dana": DANA_KEY},
            [],
            (
                "dana is listed with SigningKey, and not with a public key: whoever checks an"
                f" approval could make one. {PUBLIC}"
            ),
        ),
        (
            {"dana": [DANA_KEY.public, MAC]},
            [],
            (
                "dana is listed with SigningKey, and not with a public key: whoever checks an"
                f" approval could make one. {PUBLIC}"
            ),
        ),
        (
            {"dana": DANA_KEY.id},
            [],
            f"dana is listed with str, and not with a public key. {PUBLIC}",
        ),
        ({"dana": None}, [], f"dana is listed with NoneType, and not with a public key. {PUBLIC}"),
        (
            {"dana": Keyring(WRITER).rotated(DANA_KEY).revoking(WRITER, until=None).all[:1]},
            [],
            f"dana is listed with RevokedKey, and not with a public key. {PUBLIC}",
        ),
        (
            {"dana": []},
            [],
            "dana is listed without a key. Give their public key, or leave them out.",
        ),
        (
            {"dana": DANA_KEY.public, "erin": [ERIN_KEY.public, DANA_KEY.public]},
            [],
            (
                f"Key {DANA_KEY.id} is listed for dana and for erin, so it would count as two"
                " people. Give each person a key of their own."
            ),
        ),
        (
            {"dana": DANA_KEY.public},
            [ERIN_KEY],
            f"'{ERIN_KEY.id}' is revoked, and is the key of no approver here. {OWNED}",
        ),
        (
            {"dana": DANA_KEY.public},
            DANA_KEY.id[:-1],
            f"'{DANA_KEY.id[:-1]}' is revoked, and is the key of no approver here. {OWNED}",
        ),
        (
            {"dana": DANA_KEY.public},
            [["dana"]],
            f"['dana'] is revoked, and is the key of no approver here. {OWNED}",
        ),
        (
            {"dana": DANA_KEY.public},
            ["dana"],
            f"'dana' is revoked, and is the key of no approver here. {OWNED}",
        ),
        (
            {"dana": DANA_KEY.public},
            None,
            f"None is revoked, and is the key of no approver here. {OWNED}",
        ),
        (
            {"dana": DANA_KEY.public},
            [Revoked(DANA_KEY, None)],
            (
                f"Revoked('{DANA_KEY.id}', until=None) is revoked, and is the key of no approver"
                f" here. {OWNED}"
            ),
        ),
    ],
    ids=range(16),
)
def test_a_list_of_approvers_that_is_unsafe_is_refused(
    keys: Any, revoked: Any, message: str
) -> None:
    with pytest.raises(KeyRefused) as error:
        Approvers(keys, revoked=revoked)
    assert str(error.value) == message


def test_two_keys_of_one_id_are_refused() -> None:
    twin = ERIN_KEY.public
    twin.id = DANA_KEY.id  # type: ignore[misc]
    for keys in ({"dana": [DANA_KEY.public, twin]}, {"dana": DANA_KEY.public, "erin": twin}):
        with pytest.raises(KeyRefused) as error:
            Approvers(keys)
        assert str(error.value) == (
            f"Two different keys have the id {DANA_KEY.id}. Replace one of them with a new key."
        )


class Name(str):
    """A subclass, which could say something else later."""

    __slots__ = ()


def test_names_are_kept_as_plain_text() -> None:
    name = Name("dana")
    assert type(Approver(name, DANA_KEY).name) is str
    assert type(Approvers({name: DANA_KEY.public}, revoked=[]).names[0]) is str


def test_a_key_that_is_listed_twice_for_one_person_is_one_key() -> None:
    approvers = Approvers({"dana": [DANA_KEY.public, DANA_KEY.public]})
    assert approvers.names == ("dana",)
    assert approvers.open(TEXT) == APPROVAL


def test_the_list_does_not_change_with_what_it_was_made_from() -> None:
    keys: dict[str, Any] = {"dana": [DANA_KEY.public]}
    approvers = Approvers(keys)
    keys["dana"].append(WRITER.public)
    keys["erin"] = ERIN_KEY.public
    assert approvers.names == ("dana",)
    with pytest.raises(ApprovalUntrusted):
        approvers.open(resign(WRITER))


@pytest.mark.parametrize(
    "keyring",
    [
        Keyring(DANA_KEY),
        Keyring(verify=[MAC, DANA_KEY.public]),
        Keyring(WRITER, verify=[DANA_KEY]),
        Keyring(WRITER, revoked=[Revoked(DANA_KEY, None)]),
    ],
    ids=range(4),
)
def test_nobody_approves_with_a_key_that_writes(keyring: Keyring) -> None:
    for approvers in (APPROVERS, Approvers({"dana": DANA_KEY.public}, revoked=DANA_KEY)):
        with pytest.raises(KeyRefused) as error:
            approvers.check_apart(keyring)
        assert str(error.value) == (
            f"Key {DANA_KEY.id} of the approver dana is on the keyring of the ledger, so a writer"
            " could approve its own work. Give the approver a key of their own:"
            " SigningKey.generate('ed25519')."
        )


def test_approvers_apart_from_the_writers_pass() -> None:
    APPROVERS.check_apart(Keyring(WRITER, verify=[MAC]))


def test_approvers_are_held_against_a_keyring() -> None:
    with pytest.raises(KeyRefused) as error:
        APPROVERS.check_apart([WRITER])  # type: ignore[arg-type]
    assert str(error.value) == (
        "Approvers are held against a Keyring, and not list. Give the keyring of the ledger."
    )
