"""The text of an approval: one spelling, signed by an approver, and nothing else opens."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from safepoint import (
    ApprovalError,
    ApprovalMalformed,
    ApprovalUntrusted,
    Codec,
    Keyring,
    RecordMalformed,
    SealBroken,
    SigningKey,
)
from safepoint.approval import Approvers
from safepoint.record import Place, open_sealed, seal
from tests.unit.approval_helpers import (
    APPROVERS,
    CAP,
    DANA,
    DANA_KEY,
    ERIN_KEY,
    HOUR,
    NO_BLANKS,
    NOW,
    QUESTION,
    TEXT,
    WRITER,
    Untouched,
    as_it_arrives,
    ask,
    body_of,
    resign,
    sign,
)

SEND = "Send what Approver.approve or Approver.deny gave, unchanged."
NOT_ONE = f"The text is not an approval. {SEND}"
CHANGED = (
    "The approval was changed after dana signed it, or dana never did."
    " Do not use it: find out where it comes from, then ask again."
)
RELEASE = "Check that the approver runs a released version of safepoint with the same format."


def refused(text: Any) -> str:
    with pytest.raises(ApprovalMalformed) as error:
        APPROVERS.open(text)
    return str(error.value)


def signed_malformed(text: str) -> str:
    """The one sentence in the middle of a refusal of what the holder of a key signed."""
    message = refused(text)
    begin = f"Key {DANA_KEY.id} signed an approval that this release does not write. "
    assert message.startswith(begin)
    assert message.endswith(f" {RELEASE}")
    return message.removeprefix(begin).removesuffix(f" {RELEASE}")


def untrusted(text: str, approvers: Approvers = APPROVERS) -> str:
    with pytest.raises(ApprovalUntrusted) as error:
        approvers.open(text)
    return str(error.value)


def test_what_an_approver_signs_opens_as_what_it_says() -> None:
    approval = APPROVERS.open(TEXT)
    assert approval.approver == "dana"
    assert approval.key == DANA_KEY.id
    assert approval.verdict == "approved"
    assert approval.issued == NOW
    assert approval.expires == NOW + HOUR
    assert approval.question == QUESTION
    assert approval.text == TEXT
    assert APPROVERS.open(DANA.deny(QUESTION, now=NOW)).verdict == "denied"


def test_the_text_is_two_lines_that_a_person_can_read() -> None:
    line_1, line_2, end = TEXT.split("\n")
    assert line_1.split(" ")[:2] == ["safepoint-approval/1", DANA_KEY.id]
    assert end == ""
    nonce = APPROVERS.open(TEXT).nonce
    assert json.loads(line_2) == {
        "action": "pay",
        "app": "invoice@2",
        "approver": "dana",
        "arguments": {"amount": 42, "to": "ACME"},
        "checkpoint": {"digest": f"sha256:{'a' * 64}", "sequence": 3},
        "details": [],
        "expires": "2026-11-15T13:00:00.000000Z",
        "head": {"digest": f"sha256:{'b' * 64}", "sequence": 4},
        "issued": "2026-11-15T12:00:00.000000Z",
        "nonce": nonce,
        "reasons": ["old-checkpoint", "asked"],
        "store": "invoices",
        "thread": "order-7",
        "tools": f"sha256:{'c' * 64}",
        "verdict": "approved",
    }


def test_no_two_approvals_have_one_nonce() -> None:
    nonces = {APPROVERS.open(DANA.approve(QUESTION, now=NOW)).nonce for _ in range(50)}
    assert len(nonces) == 50
    assert {len(nonce) for nonce in nonces} == {32}


def test_every_changed_character_is_refused() -> None:
    """All but the last line end, for which there are other spellings: see below."""
    others = ["\0", "\n", "\r", "\r\n", "\t", " ", "0", "a", "A", "=", "~", "\x7f", "\x80"]
    others += ["\ud800", "\uff11", "\xa0", "\u2028"]
    same = {(TEXT.index("\n"), "\r\n")}
    for position, old in enumerate(TEXT[:-1]):
        for new in {*others, chr(ord(old) ^ 1)} - {old}:
            if (position, new) not in same:
                with pytest.raises(ApprovalError):
                    APPROVERS.open(TEXT[:position] + new + TEXT[position + 1 :])
    for new in {*others, *NO_BLANKS} - {"\n", "\r", "\r\n", "\t", " "}:
        with pytest.raises(ApprovalError):
            APPROVERS.open(TEXT[:-1] + new)


def test_every_text_that_is_cut_is_refused() -> None:
    """All but one that lacks its last line end and nothing else."""
    for length in range(len(TEXT) - 1):
        # A signature that lost its first letters, or a body that lost its last, is not the signed.
        for cut in (TEXT[:length], TEXT[:length] + "\n", TEXT[:length] + TEXT[length + 1 :]):
            with pytest.raises(ApprovalError):
                APPROVERS.open(cut)
        with pytest.raises(ApprovalMalformed):
            APPROVERS.open(TEXT[length + 1 :])


@pytest.mark.parametrize("blank", [" ", "\t", "\r", "\n", "\r\n", "\n ", "=\r\n", "\n> "])
def test_every_blank_or_line_break_inside_is_refused(blank: str) -> None:
    """A mail client that wraps long lines changes what was signed."""
    end = TEXT.index("\n")
    for position in range(1, len(TEXT) - 1):
        if (position, blank) == (end, "\r"):
            continue  # that is CRLF
        with pytest.raises(ApprovalError):
            APPROVERS.open(TEXT[:position] + blank + TEXT[position:])


@pytest.mark.parametrize("arrived", as_it_arrives(TEXT).values(), ids=as_it_arrives(TEXT))
def test_other_line_ends_and_blanks_around_it_open_as_the_same_approval(arrived: str) -> None:
    """One answer has one text and one nonce, so that another spelling is no second answer."""
    approval = APPROVERS.open(arrived)
    assert approval.text == TEXT
    assert approval.nonce == APPROVERS.open(TEXT).nonce
    assert approval == APPROVERS.open(TEXT)


@pytest.mark.parametrize("more", [*NO_BLANKS, "x", ">", "> ", "{}", "-- \n", "\ud800", TEXT])
def test_anything_else_before_or_after_is_refused(more: str) -> None:
    for given in (more + TEXT, more + "\n" + TEXT, "\n" + more + TEXT):
        assert refused(given) == NOT_ONE
    for given in (TEXT + more, TEXT + more + "\n"):
        assert refused(given) == NOT_ONE
    for given in (TEXT[:-1] + more, TEXT[:-1] + more + "\n"):
        with pytest.raises(ApprovalError) as error:
            APPROVERS.open(given)
        printable = more.isascii() and more.strip("\n").isprintable()
        assert str(error.value) == (CHANGED if printable else NOT_ONE)


def test_an_approval_that_was_quoted_in_a_mail_is_refused() -> None:
    line_1, line_2, _ = TEXT.split("\n")
    assert refused(f"> {line_1}\n> {line_2}\n") == NOT_ONE
    assert refused(f"> {line_1}\n{line_2}\n") == NOT_ONE
    assert refused(f"On Sunday, Dana wrote:\n\n{TEXT}") == NOT_ONE
    assert refused(f"{TEXT}\n-- \nDana\n") == NOT_ONE
    assert untrusted(f"{line_1}\n> {line_2}\n") == CHANGED


def test_lines_in_another_order_or_apart_are_refused() -> None:
    line_1, line_2, _ = TEXT.split("\n")
    assert refused(f"{line_2}\n{line_1}\n") == NOT_ONE
    assert refused(f"{line_2}\r\n{line_1}\r\n") == NOT_ONE
    for between in ("\n\n", "\r\n\r\n", "\n\r\n", "\r\r\n", "\n\r", "\r", " \n", "\t\r\n", " ", ""):
        assert refused(f"{line_1}{between}{line_2}\n") == NOT_ONE
    for between in NO_BLANKS:
        assert refused(f"{line_1}{between}{line_2}{between}") == NOT_ONE
        assert refused(f"{line_1}{between}\n{line_2}\n") == NOT_ONE
    assert untrusted(f"{line_1}\n {line_2}\n") == CHANGED


def test_a_text_over_the_cap_is_refused_before_anything_else() -> None:
    """Blanks count, and neither the format nor the key is looked at."""
    assert APPROVERS.open(TEXT.ljust(CAP)) == APPROVERS.open(TEXT)
    assert APPROVERS.open(TEXT.rjust(CAP, "\n")) == APPROVERS.open(TEXT)
    message = f"The approval is {CAP + 1} characters, over the limit of {CAP}. {SEND}"
    for given in (TEXT, resign(WRITER), TEXT.replace("approval/1", "approval/2", 1), ""):
        for fill in (" ", "\n", "\xa0"):
            assert refused(Untouched(given.ljust(CAP + 1, fill))) == message
            assert refused(Untouched(given.rjust(CAP + 1, fill))) == message
    with pytest.raises(AssertionError, match="looked at"):
        APPROVERS.open(Untouched(TEXT.ljust(CAP)))


def test_a_text_over_the_cap_without_its_last_line_end_is_refused() -> None:
    """What is kept is the text with it, and that has to open again."""
    assert refused("x" * CAP) == (
        f"The approval is {CAP + 1} characters, over the limit of {CAP}. {SEND}"
    )
    assert refused("x" * (CAP - 1)) == NOT_ONE


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (TEXT.encode(), f"An approval is text, and not bytes. {SEND}"),
        (None, f"An approval is text, and not NoneType. {SEND}"),
        ("", NOT_ONE),
        ("approved", NOT_ONE),
        ("yes\0", NOT_ONE),
        ("\ud800" * 100, NOT_ONE),
        (TEXT.replace("dana", "d\u00e4na"), NOT_ONE),
        (TEXT.replace("dana", "\uff44ana"), NOT_ONE),
        ("[" * 60_000, NOT_ONE),
        ("x" * 1_000_000, f"The approval is 1000000 characters, over the limit of 65536. {SEND}"),
        (QUESTION.text, NOT_ONE),
        (TEXT.upper(), NOT_ONE),
        (TEXT.replace("approval/1", "approval/0", 1), NOT_ONE),
        (" \t\r\n" * 9, NOT_ONE),
        (
            "\r\n " + TEXT.replace("approval/1", "approval/2", 1),
            (
                "The approval says that it is of format safepoint-approval/2, not"
                " safepoint-approval/1. If a newer safepoint wrote it, upgrade here too."
            ),
        ),
    ],
    ids=range(15),
)
def test_what_is_not_an_approval_is_refused(given: object, message: str) -> None:
    assert refused(given) == message


def test_one_signature_has_one_spelling() -> None:
    """The last letter of a base64 text has bits to spare: all but one spelling are refused."""
    signature = TEXT.split("\n")[0].split(" ")[2]
    same = [
        signature[:85] + letter + "=="
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        if base64.b64decode(signature[:85] + letter + "==") == base64.b64decode(signature)
    ]
    assert len(same) == 16
    for other in same:
        if other != signature:
            assert refused(TEXT.replace(signature, other)) == NOT_ONE


def test_an_edited_amount_is_refused() -> None:
    assert untrusted(TEXT.replace('"amount":42', '"amount":5000000')) == CHANGED


def test_an_edited_detail_is_refused() -> None:
    """What a person was told is as fixed as what they were asked."""
    text = DANA.approve_at_time(ask(details=("The tool mail is new.",)), NOW)
    assert APPROVERS.open(text).question.details == ("The tool mail is new.",)
    for old, new in (("new", "old"), ('"The tool mail is new."', ""), ("mail is", "mail  is")):
        assert untrusted(text.replace(old, new)) == CHANGED


def test_an_approval_of_nobody_known_is_refused() -> None:
    """The writer of the store signs its own approval."""
    assert untrusted(resign(WRITER)) == (
        f"The approval names key {WRITER.id}, which is no approver's. If that person may"
        " approve, add their public key to Approvers; if not, treat it as forged."
    )


def test_the_name_of_an_approvers_key_over_the_writers_signature_is_refused() -> None:
    assert untrusted(resign(WRITER).replace(WRITER.id, DANA_KEY.id)) == CHANGED


def test_the_signature_of_another_approver_is_refused() -> None:
    assert untrusted(resign(ERIN_KEY).replace(ERIN_KEY.id, DANA_KEY.id)) == CHANGED


def test_an_hmac_under_the_id_of_an_approver_is_refused() -> None:
    """Not even one whose secret is the approver's public key, which everybody knows."""
    for secret in (bytes(32), DANA_KEY.public._public.raw):
        mac = SigningKey(secret).sign(b"safepoint-approval/1\n" + body_of())
        line_2 = body_of().decode()
        for forged, message in ((mac, NOT_ONE), (mac + mac, CHANGED)):
            spelled = base64.b64encode(forged).decode()
            text = f"safepoint-approval/1 {DANA_KEY.id} {spelled}\n{line_2}\n"
            with pytest.raises(ApprovalError) as error:
                APPROVERS.open(text)
            assert str(error.value) == message


def test_a_signature_of_nothing_is_refused() -> None:
    blank = base64.b64encode(bytes(64)).decode()
    text = f"safepoint-approval/1 {DANA_KEY.id} {blank}\n{body_of().decode()}\n"
    assert untrusted(text) == CHANGED


def test_a_sealed_record_is_no_approval_and_an_approval_is_no_record() -> None:
    """One key for both is refused elsewhere; even so, neither signature stands in for the other."""
    place = Place("invoices", "order-7", 1)
    record, _ = seal(body_of(), place, DANA_KEY, created=NOW)
    assert refused(record.decode()) == NOT_ONE
    assert untrusted(sign(body_of(), label=b"safepoint/1\n")) == CHANGED
    assert untrusted(sign(body_of(), label=b"")) == CHANGED
    line_1, line_2, _ = record.split(b"\n", 2)
    moved = line_1.replace(b"safepoint/1", b"safepoint-approval/1") + b"\n" + line_2 + b"\n"
    assert untrusted(moved.decode()) == CHANGED
    keys = Keyring(verify=[DANA_KEY.public])
    with pytest.raises(RecordMalformed):
        open_sealed(TEXT.encode(), place, keys)
    with pytest.raises(SealBroken):
        open_sealed(TEXT.replace("safepoint-approval/1", "safepoint/1").encode(), place, keys)


def test_a_question_cannot_pass_for_what_was_signed() -> None:
    assert untrusted(sign(body_of(), label=b"safepoint-question/1\n")) == CHANGED


def test_a_revoked_key_is_refused_and_it_says_whose_it_was() -> None:
    keys = {"dana": DANA_KEY.public, "erin": ERIN_KEY.public}
    message = (
        f"The approval names key {DANA_KEY.id} of dana, which was revoked. Whoever stole"
        " that key may have written it. Ask again, and let them sign with a key that counts."
    )
    for revoked in ([DANA_KEY], [DANA_KEY.public], [DANA_KEY.id], DANA_KEY.id, DANA_KEY):
        approvers = Approvers(keys, revoked=revoked)
        assert untrusted(TEXT, approvers) == message
        assert untrusted(TEXT.replace(":42", ":43"), approvers) == message


def test_nobody_signs_in_the_name_of_somebody_else() -> None:
    assert untrusted(resign(approver="erin")) == (
        f"The approval says that it is by 'erin', and key {DANA_KEY.id} is the key of dana."
        " Nobody signs for somebody else: let each person sign with their own key."
    )


def test_a_name_that_is_no_name_cannot_reach_a_terminal() -> None:
    assert untrusted(resign(approver="\x1b[2Kerin\n")).startswith(
        r"The approval says that it is by '\x1b[2Kerin\n', and key "
    )


JSON = "Its second line is not JSON as the codec writes it."
FIELDS_DIFFER = "A question has fields of its own, and these are others."


@pytest.mark.parametrize(
    "body",
    [
        body_of().replace(b',"app"', b', "app"'),
        body_of().replace(b"{", b"{ ", 1),
        body_of().replace(b'"pay"', b'"\\u0070ay"'),
        body_of().replace(b'"amount":42', b'"amount":4.2e1'),
        body_of().replace(b'"amount":42', b'"amount":42,"amount":42'),
        body_of().replace(b'"action":"pay"', b'"action":"pay","action":"pay"'),
        body_of().replace(b'"amount":42', b'"amount":{"$os.system":"id"}'),
        body_of().replace(b'"amount":42', b'"amount":NaN'),
        body_of().replace(b'"amount":42', b'"amount":' + b"[" * 5000 + b"]" * 5000),
        body_of().replace(b'"amount":42', b'"amount":[' + b"0," * 9000 + b"0]"),
        body_of().replace(b'"amount":42', b'"amount":' + b"9" * 5000),
        body_of().replace(b'"ACME"', b'"\\ud800"'),
        b"{",
        b"null and void",
    ],
    ids=range(14),
)
def test_another_spelling_is_refused_even_if_it_is_signed(body: bytes) -> None:
    assert body != body_of()
    assert signed_malformed(sign(body)) == JSON


@pytest.mark.parametrize("blank", [b" ", b"\t", b"\r", b"\n", b"\r\n"])
def test_a_blank_at_the_end_of_what_was_signed_is_refused(blank: bytes) -> None:
    """It is taken off on the way, so that the signature is for something else."""
    assert untrusted(sign(body_of() + blank)) == CHANGED


def test_a_blank_at_the_beginning_of_what_was_signed_is_refused() -> None:
    assert signed_malformed(sign(b" " + body_of())) == JSON
    for blank in (b"\t", b"\r", b"\n", b"\r\n"):
        assert refused(sign(blank + body_of())) == NOT_ONE


@pytest.mark.parametrize("body", [b"null", b"[]", b"{}", b'"approved"', b"1", b'{"$tuple":[]}'])
def test_something_else_than_fields_is_refused_even_if_it_is_signed(body: bytes) -> None:
    assert signed_malformed(sign(body)) == "It lacks fields that every approval has."


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"nonce": ...}, "It lacks fields that every approval has."),
        ({"verdict": ...}, "It lacks fields that every approval has."),
        ({"thread": ...}, FIELDS_DIFFER),
        ({"arguments": ...}, FIELDS_DIFFER),
        ({"details": ...}, FIELDS_DIFFER),
        ({"scope": "everything"}, FIELDS_DIFFER),
        ({"approver": 1}, "It does not say who answered what."),
        ({"approver": None}, "It does not say who answered what."),
        ({"verdict": "yes"}, "It does not say who answered what."),
        ({"verdict": True}, "It does not say who answered what."),
        ({"verdict": ["approved"]}, "It does not say who answered what."),
        ({"nonce": "0" * 31}, "Its nonce is not 32 hex digits."),
        ({"nonce": "A" * 32}, "Its nonce is not 32 hex digits."),
        ({"nonce": 7}, "Its nonce is not 32 hex digits."),
        ({"issued": "2026-11-15T12:00:00Z"}, "Its times are not written as they should be."),
        ({"issued": "2026-02-31T12:00:00.000000Z"}, "Its times are not written as they should be."),
        ({"issued": "2026-11-14T24:00:00.000000Z"}, "Its times are not written as they should be."),
        (
            {"expires": datetime(2026, 11, 15, 13, tzinfo=UTC)},
            "Its times are not written as they should be.",
        ),
        ({"expires": 1_800_000_000}, "Its times are not written as they should be."),
        ({"expires": None}, "Its times are not written as they should be."),
        ({"expires": "2026-11-15T12:00:00.000000Z"}, "It expires before it is issued."),
        ({"expires": "2026-11-15T11:00:00.000000Z"}, "It expires before it is issued."),
        ({"thread": "../x"}, "'../x' is not a thread name."),
        ({"store": 7}, "7 is not a store name."),
        ({"app": "a b"}, "'a b' is not an app name."),
        ({"tools": None}, "None is not a digest."),
        ({"reasons": ("asked",)}, "The reasons are not a list."),
        ({"reasons": "asked"}, "The reasons are not a list."),
        ({"reasons": []}, "[] are not the reasons of a question."),
        ({"reasons": ["asked", "asked"]}, "['asked', 'asked'] are not the reasons of a question."),
        ({"reasons": [True]}, "[True] are not the reasons of a question."),
        ({"details": ("asked",)}, "The details are not a list."),
        ({"details": "asked"}, "The details are not a list."),
        ({"details": ["a\nb"]}, r"['a\nb'] are not the details of a question."),
        ({"details": [True]}, "[True] are not the details of a question."),
        ({"head": 4}, "The head is not a sequence and a digest."),
        ({"checkpoint": {"sequence": 3}}, "The checkpoint is not a sequence and a digest."),
        (
            {"head": {"digest": f"sha256:{'b' * 64}", "sequence": True}},
            "True is not a sequence number.",
        ),
        (
            {"head": {"digest": f"sha256:{'b' * 64}", "sequence": 4.0}},
            "4.0 is not a sequence number.",
        ),
        ({"head": {"digest": "b", "sequence": 4}}, "'b' is not a digest."),
        (
            {"head": {"digest": f"sha256:{'b' * 64}", "sequence": 2}},
            "The checkpoint #3 does not come before the head #2, nor is it that head.",
        ),
        ({"arguments": []}, "The arguments of a question are a dict, and not list."),
        ({"arguments": {1: 2}}, "1 is not the name of an argument."),
        (
            {"arguments": {"x": "y" * 50_000}},
            "The arguments of a question are more than a person could read.",
        ),
        ({"action": ""}, "A question has arguments, and no action that they belong to."),
        ({"action": True}, "True is not an action."),
    ],
    ids=str,
)
def test_a_field_that_is_not_one_is_refused_even_if_it_is_signed(
    changes: dict[str, Any], why: str
) -> None:
    assert signed_malformed(resign(**changes)) == why


def test_re_signing_without_a_change_opens() -> None:
    """Otherwise the refusals above would prove nothing."""
    assert APPROVERS.open(resign()) == APPROVERS.open(TEXT)


def test_the_largest_question_still_fits_into_an_approval() -> None:
    question = ask(
        store="s" * 64,
        thread="t" * 64,
        app="a" * 128,
        reasons=tuple("abcdefghijklmnop"[n] * 64 for n in range(16)),
        action="\U0001f600" * 256,
        arguments={"memo": "x" * (48 * 1024 - 11)},
    )
    assert len(Codec().encode(question.arguments)) == 48 * 1024
    assert APPROVERS.open(DANA.approve(question, now=NOW)).question == question


def test_the_deepest_and_the_most_arguments_still_open() -> None:
    deep: Any = 1
    for _ in range(31):
        deep = (deep,)
    for arguments in ({"deep": deep}, {"many": [0] * 4094}):
        question = ask(arguments=arguments)
        assert APPROVERS.open(DANA.approve(question, now=NOW)).question.arguments == arguments


def test_a_refusal_shows_nothing_of_what_was_signed() -> None:
    secret = ask(arguments={"token": "hunter2"})
    text = DANA.approve(secret, now=NOW)
    for broken in (text[:-2], text.replace("pay", "pax"), text + "x", "> " + text):
        with pytest.raises(ApprovalError) as error:
            APPROVERS.open(broken)
        assert "hunter2" not in str(error.value)
        assert error.value.__context__ is None
    assert "hunter2" not in repr(APPROVERS.open(text))
