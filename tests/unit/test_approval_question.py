"""The question: it says everything, hides nothing, and keeps its arguments exactly."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from dataclasses import FrozenInstanceError, dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import (
    ApprovalMalformed,
    CheckpointError,
    Codec,
    ConfigurationError,
    EncodeError,
    Head,
    InvalidId,
    LimitExceeded,
)
from safepoint.approval import Question, checked_arguments, difference
from safepoint.errors import quoted
from safepoint.names import digest_of
from tests.unit.approval_helpers import (
    APPROVERS,
    CAP,
    DANA,
    DIGEST,
    FIELDS,
    NO_BLANKS,
    NOW,
    QUESTION,
    TEXT,
    Untouched,
    as_it_arrives,
    ask,
)

SEND = "Send what Question.text gave, unchanged."
NOT_ONE = f"The text is not a question. {SEND}"
JSON = "Its second line is not JSON as the codec writes it."
EVERY_TYPE: dict[str, Any] = {
    "none": None,
    "bool": True,
    "int": 1,
    "large": 2**70,
    "float": -0.0,
    "text": "42",
    "decimal": Decimal("42.00"),
    "date": date(2026, 1, 31),
    "moment": datetime(2026, 1, 31, 9, 30, tzinfo=UTC),
    "time": time(9, 30),
    "delta": timedelta(days=1, microseconds=1),
    "uuid": UUID(int=7),
    "bytes": b"\0\xff",
    "path": PurePosixPath("a/b"),
    "nested": [{"$tuple": (1, (True, 1.0))}, {1: "one", (2,): {3}}, frozenset({4})],
}


def exact(value: object) -> str:
    """A value with all of its types: 1, True and 1.0 are equal, and not the same."""
    if isinstance(value, dict):
        return repr(sorted((exact(key), exact(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return f"{type(value)}{[exact(item) for item in value]}"
    if isinstance(value, set | frozenset):
        return f"{type(value)}{sorted(exact(item) for item in value)}"
    return f"{type(value)}{value!r}"


def test_arguments_survive_exactly_through_signing() -> None:
    question = ask(arguments=EVERY_TYPE)
    travelled = Question.from_text(question.text)
    opened = APPROVERS.open(DANA.approve(travelled, now=NOW)).question
    for each in (question, travelled, opened):
        assert exact(each.arguments) == exact(EVERY_TYPE)
        assert each == question
    assert exact(checked_arguments(EVERY_TYPE)) == exact(EVERY_TYPE)


def test_arguments_are_copied_in_and_out() -> None:
    lines = [{"amount": 42}]
    question = ask(arguments={"lines": lines})
    text = DANA.approve(question, now=NOW)
    lines[0]["amount"] = 5_000_000
    question.arguments["lines"][0]["amount"] = 5_000_000
    question.fields["arguments"]["lines"].clear()
    question.fields["head"]["sequence"] = 9
    assert question.arguments == {"lines": [{"amount": 42}]}
    assert question == ask(arguments={"lines": [{"amount": 42}]})
    opened = APPROVERS.open(text)
    opened.question.arguments["lines"].append("more")
    assert opened.question.arguments == {"lines": [{"amount": 42}]}
    copied = checked_arguments({"lines": lines})
    lines.clear()
    assert copied == {"lines": [{"amount": 5_000_000}]}


def test_reasons_are_copied_in() -> None:
    reasons = ["asked"]
    question = ask(reasons=reasons)
    reasons.append("old-checkpoint")
    assert question.reasons == ("asked",)


@dataclass
class Payment:
    amount: int


PLAIN = "Ask with plain values: text, numbers, Decimals, dates, bytes, and lists and dicts of them."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"payment": Payment(42)},
            (
                "arguments['payment'] is of the type tests.unit.test_approval_question.Payment,"
                f" which this codec does not know. {PLAIN}"
            ),
        ),
        (
            {"lines": [OrderedDict()]},
            (
                "arguments['lines'][0] is of the type collections.OrderedDict, which this codec"
                f" does not know. {PLAIN}"
            ),
        ),
        ({"state": float("nan")}, f"arguments['state'] is a float that is not finite. {PLAIN}"),
        (
            {"to": "\ud800"},
            f"arguments['to'] holds a lone surrogate, which is half a character. {PLAIN}",
        ),
        (
            {"\udfff": 1},
            f"arguments[…] holds a lone surrogate, which is half a character. {PLAIN}",
        ),
    ],
)
def test_an_argument_that_could_not_be_restored_is_refused_at_once(
    arguments: dict[str, Any], message: str
) -> None:
    for refuse in (lambda: ask(arguments=arguments), lambda: checked_arguments(arguments)):
        with pytest.raises(EncodeError) as error:
            refuse()
        assert str(error.value) == message


def test_arguments_that_nobody_could_read_are_refused() -> None:
    around: list[Any] = []
    around.append(around)
    for value in ("x" * 50_000, [0] * 5000, around, 1 << 400_000):
        with pytest.raises(LimitExceeded) as error:
            ask(arguments={"value": value})
        assert str(error.value) == (
            "The arguments of a question are more than a person could read. Keep them within 49152"
            " bytes, 32 levels and 4096 values: ask about a digest of what is larger."
        )


NAME = "Name each argument with a text of 1 to 128 characters."
DICT = 'Write arguments={"amount": 42}, or {} if there are none.'
REASONS = "Give a tuple of 1 to 16 different words, such as ('old-checkpoint',)."
ACTION = "Say what is asked for in a text of up to 256 whole characters."
DIGESTS = "Digests are 'sha256:' and 64 hex digits."


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"store": "In voices"},
            InvalidId,
            (
                "'In voices' is not a store name. Use 1 to 64 of a-z, 0-9, '-' and '_', and start"
                " with a letter or digit."
            ),
        ),
        (
            {"thread": None},
            InvalidId,
            (
                "None is not a thread name. Use 1 to 64 of a-z, 0-9, '-' and '_', and start with a"
                " letter or digit."
            ),
        ),
        (
            {"checkpoint": 3},
            ConfigurationError,
            (
                "The checkpoint of a question is a Head, and not int."
                " Write Head(checkpoint.sequence, checkpoint.digest)."
            ),
        ),
        (
            {"head": None},
            ConfigurationError,
            (
                "The head of a question is a Head, and not NoneType."
                " Write Head(checkpoint.sequence, checkpoint.digest)."
            ),
        ),
        (
            {"checkpoint": Head(5, DIGEST["a"])},
            ConfigurationError,
            (
                "The checkpoint #5 does not come before the head #4, nor is it that head."
                " Ask about a checkpoint of the thread as it is now."
            ),
        ),
        (
            {"checkpoint": Head(4, DIGEST["a"])},
            ConfigurationError,
            (
                "The checkpoint #4 does not come before the head #4, nor is it that head."
                " Ask about a checkpoint of the thread as it is now."
            ),
        ),
        (
            {"app": "pay\n"},
            InvalidId,
            r"'pay\n' is not an app name. Use up to 128 of A-Z, a-z, 0-9 and . _ @ / + : -",
        ),
        (
            {"app": None},
            InvalidId,
            "None is not an app name. Use up to 128 of A-Z, a-z, 0-9 and . _ @ / + : -",
        ),
        ({"tools": ""}, InvalidId, f"'' is not a digest. {DIGESTS}"),
        ({"tools": None}, InvalidId, f"None is not a digest. {DIGESTS}"),
        (
            {"reasons": "asked"},
            ConfigurationError,
            f"'asked' are not the reasons of a question. {REASONS}",
        ),
        ({"reasons": ()}, ConfigurationError, f"() are not the reasons of a question. {REASONS}"),
        (
            {"reasons": ("asked", "asked")},
            ConfigurationError,
            f"('asked', 'asked') are not the reasons of a question. {REASONS}",
        ),
        (
            {"reasons": ("a, b",)},
            ConfigurationError,
            f"('a, b',) are not the reasons of a question. {REASONS}",
        ),
        (
            {"reasons": ("asked", 1)},
            ConfigurationError,
            f"('asked', 1) are not the reasons of a question. {REASONS}",
        ),
        ({"action": None}, ConfigurationError, f"None is not an action. {ACTION}"),
        ({"action": "\ud800"}, ConfigurationError, rf"'\ud800' is not an action. {ACTION}"),
        (
            {"action": "x" * 257},
            ConfigurationError,
            f"'{'x' * 56}... is not an action. {ACTION}",
        ),
        (
            {"action": ""},
            ConfigurationError,
            (
                "A question has arguments, and no action that they belong to. Name what is asked"
                ' for: action="pay".'
            ),
        ),
        (
            {"arguments": None},
            ConfigurationError,
            f"The arguments of a question are a dict, and not NoneType. {DICT}",
        ),
        (
            {"arguments": OrderedDict()},
            ConfigurationError,
            f"The arguments of a question are a dict, and not OrderedDict. {DICT}",
        ),
        ({"arguments": {1: 2}}, ConfigurationError, f"1 is not the name of an argument. {NAME}"),
        ({"arguments": {"": 2}}, ConfigurationError, f"'' is not the name of an argument. {NAME}"),
        (
            {"arguments": {"n" * 129: 2}},
            ConfigurationError,
            f"'{'n' * 56}... is not the name of an argument. {NAME}",
        ),
    ],
    ids=str,
)
def test_a_field_of_the_wrong_kind_is_refused(
    changes: dict[str, Any], error: type[CheckpointError], message: str
) -> None:
    with pytest.raises(error) as raised:
        ask(**changes)
    assert type(raised.value) is error
    assert str(raised.value) == message


def test_a_head_that_nobody_looked_at_is_looked_at() -> None:
    head = Head(4, DIGEST["b"])
    object.__setattr__(head, "sequence", True)
    with pytest.raises(InvalidId, match=r"^True is not a sequence number"):
        ask(head=head)


class Reason(StrEnum):
    ASKED = "asked"


def test_members_of_an_enum_are_signed_as_what_they_say() -> None:
    words = StrEnum("words", {"DIGEST": DIGEST["a"], "NAME": "orders"})
    digest, name = words["DIGEST"], words["NAME"]
    head = Head(4, digest)
    question = Question(
        name, name, head, head, name, digest, (Reason.ASKED,), Reason.ASKED, {"amount": 42}
    )
    said = [question.store, question.thread, question.app, question.action, question.tools]
    said += [*question.reasons, question.head.digest, question.checkpoint.digest]
    assert said == [*["orders"] * 3, "asked", DIGEST["a"], "asked", DIGEST["a"], DIGEST["a"]]
    assert {type(each) for each in said} == {str}


def test_the_end_of_a_thread_can_be_asked_about() -> None:
    head = Head(4, DIGEST["b"])
    assert ask(checkpoint=head, head=head, action="", arguments={}).checkpoint == head


def test_described_says_every_field_and_begins_with_what_is_asked_for() -> None:
    details = ("The tool mail is new.", "The tool pay is gone.")
    assert ask(details=details).described == [
        "action: 'pay'",
        "arguments: 2",
        "argument 'amount': 42",
        "argument 'to': 'ACME'",
        "thread: order-7",
        "store: invoices",
        "app: invoice@2",
        "reasons: old-checkpoint, asked",
        "detail: The tool mail is new.",
        "detail: The tool pay is gone.",
        f"checkpoint: #3 sha256:{'a' * 64}",
        f"head: #4 sha256:{'b' * 64}",
        f"tools: sha256:{'c' * 64}",
    ]
    empty = ask(app="", action="", arguments={}).described
    assert empty[:5] == [
        *("action: (none)", "arguments: (none)", "thread: order-7", "store: invoices"),
        "app: (none)",
    ]
    assert ask(app="none", action="(none)").described[0:7:6] == ["action: '(none)'", "app: none"]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("x\nargument 'amount': 1", r"""argument 'v': "x\nargument 'amount': 1" """.strip()),
        ("\r\x1b[2Kargument", r"argument 'v': '\r\x1b[2Kargument'"),
        ("\x9b2K\x7f\0", r"argument 'v': '\x9b2K\x7f\x00'"),
        ("\u202e42\u2069\u200b", r"argument 'v': '\u202e42\u2069\u200b'"),
        ("p\u0430ypal", r"argument 'v': 'p\u0430ypal'"),
        ("\u2028\u0085", r"argument 'v': '\u2028\x85'"),
        ("\U000e0041", r"argument 'v': '\U000e0041'"),
        ("a   b c", r"argument 'v': 'a\x20\x20\x20b c'"),
        (r"a\x20b", r"argument 'v': 'a\\x20b'"),
        (["\n", {"\u202e": b"\n"}], r"argument 'v': ['\n', {'\u202e': b'\n'}]"),
        (PurePosixPath("a\nb"), r"argument 'v': PurePosixPath('a\nb')"),
        ("42", "argument 'v': '42'"),
        (Decimal("42.00"), "argument 'v': Decimal('42.00')"),
        (True, "argument 'v': True"),
    ],
)
def test_nothing_hides_in_a_value(value: object, line: str) -> None:
    assert ask(arguments={"v": value}).described[2:3] == [line]


def test_nothing_hides_in_a_name_or_an_action() -> None:
    lines = ask(action="pay\nstore: x", arguments={"a\n\u202e  'b": 1}).described
    assert lines[0] == r"action: 'pay\nstore: x'"
    assert lines[2:3] == [r"""argument "a\n\u202e\x20\x20'b": 1"""]


def test_a_value_that_is_cut_says_so_before_it_begins() -> None:
    """At the end, a value could say of itself that it is whole."""
    value = "a" * 1990 + "\u202e" * 10
    (line,) = ask(arguments={"memo": value}).described[2:3]
    digest = digest_of(Codec().encode(value))
    shown = "'" + "a" * 1990 + r"\u202e\u2"
    assert line == (
        f"argument 'memo', of which these are 2000 of 2052 characters, in full {digest}: {shown}"
    )
    assert len(shown) == 2000
    (whole,) = ask(arguments={"memo": "a" * 1998}).described[2:3]
    assert whole == f"argument 'memo': '{'a' * 1998}'"


def test_a_number_that_python_does_not_print_is_shown_as_it_is_signed() -> None:
    number = 10**5000
    text = f'JSON [{{"$int":"{number:#x}"}}]'
    (line,) = ask(arguments={"n": [number]}).described[2:3]
    assert line == (
        f"argument 'n', of which these are 2000 of {len(text)} characters, in full"
        f" {digest_of(Codec().encode([number]))}: {text[:2000]}"
    )


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
ARGUMENTS = st.dictionaries(st.text(min_size=1, max_size=20), VALUES, max_size=4)


@given(ARGUMENTS, st.text(min_size=1, max_size=40))
def test_every_line_for_a_person_is_one_line_of_printable_ascii(
    arguments: dict[str, Any], action: str
) -> None:
    lines = ask(arguments=arguments, action=action, details=("a", "b")).described
    assert len(lines) == 11 + len(arguments)
    kinds = [line.split(" ")[0].rstrip(":") for line in lines]
    assert kinds == [
        *("action", "arguments", *["argument"] * len(arguments), "thread", "store", "app"),
        *("reasons", "detail", "detail", "checkpoint", "head", "tools"),
    ]
    for line in lines:
        assert line.isascii()
        assert line.isprintable()


@given(ARGUMENTS)
def test_any_arguments_survive_exactly(arguments: dict[str, Any]) -> None:
    question = ask(arguments=arguments)
    assert exact(Question.from_text(question.text).arguments) == exact(arguments)


@given(ARGUMENTS, ARGUMENTS)
def test_questions_are_equal_if_their_arguments_are_the_same(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert (ask(arguments=one) == ask(arguments=other)) == (exact(one) == exact(other))


def test_equal_values_of_other_types_make_another_question() -> None:
    questions = [
        ask(arguments={"v": value})
        for value in (1, True, 1.0, Decimal(1), Decimal("1.0"), "1", (1,), [1], 0.0, -0.0, 0)
    ]
    assert len(set(questions)) == 11
    other: object = QUESTION.text
    assert other != QUESTION


def test_a_question_does_not_change_and_shows_no_arguments() -> None:
    with pytest.raises(FrozenInstanceError):
        QUESTION.thread = "order-8"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        QUESTION.arguments = {}  # type: ignore[misc]
    assert "ACME" not in repr(QUESTION)
    assert repr(QUESTION) == (
        "Question(store='invoices', thread='order-7',"
        f" checkpoint=Head(sequence=3, digest='sha256:{'a' * 64}'),"
        f" head=Head(sequence=4, digest='sha256:{'b' * 64}'), app='invoice@2',"
        f" tools='sha256:{'c' * 64}', reasons=('old-checkpoint', 'asked'), action='pay',"
        " details=())"
    )


def test_a_copy_is_equal_and_is_looked_at_again() -> None:
    for same in (
        copy.copy(QUESTION),
        copy.deepcopy(QUESTION),
        replace(QUESTION),
        pickle.loads(pickle.dumps(QUESTION)),
        Question.from_text(QUESTION.text),
        Question(**FIELDS),
    ):
        assert same == QUESTION
        assert hash(same) == hash(QUESTION)
    assert replace(QUESTION, thread="order-8") == ask(thread="order-8") != QUESTION


def test_every_cut_or_changed_question_is_refused_or_another() -> None:
    """Nobody vouches for a question. It may be another one, and never two at once."""
    text = QUESTION.text
    others = {"\0", "\n", "\r", "\t", " ", "1", "a", "~", "\x7f", "\x80", "\xa0", "\ud800"}
    for position in range(len(text) - 1):
        for cut in (text[:position], text[:position] + "\n", text[position + 1 :]):
            with pytest.raises(ApprovalMalformed):
                Question.from_text(cut)
        for new in others - {text[position]}:
            changed = text[:position] + new + text[position + 1 :]
            try:
                question = Question.from_text(changed)
            except ApprovalMalformed:
                continue
            assert question.text == changed
            assert question != QUESTION


def not_one(text: str) -> str:
    with pytest.raises(ApprovalMalformed) as error:
        Question.from_text(text)
    return str(error.value)


@pytest.mark.parametrize("arrived", as_it_arrives(QUESTION.text).values(), ids=as_it_arrives(TEXT))
def test_other_line_ends_and_blanks_around_it_are_the_same_question(arrived: str) -> None:
    question = Question.from_text(arrived)
    assert question == QUESTION
    assert question.text == QUESTION.text
    approval = APPROVERS.open(DANA.approve(question, now=NOW))
    APPROVERS.check_bound(approval, QUESTION)


@pytest.mark.parametrize("more", [*NO_BLANKS, "x", ">", "> ", "{}", "-- \n", QUESTION.text])
def test_anything_else_before_or_after_a_question_is_refused(more: str) -> None:
    text = QUESTION.text
    for arrived in (more + text, more + "\n" + text, "\n" + more + text):
        assert not_one(arrived) == NOT_ONE
    for arrived in (text + more, text + more + "\n"):
        assert not_one(arrived) == NOT_ONE
    for arrived in (text[:-1] + more, text[:-1] + more + "\n"):
        assert not_one(arrived) in (NOT_ONE, f"The question is malformed. {JSON} {SEND}")


@pytest.mark.parametrize("blank", ["\t", "\r", "\n", "\r\n", "\n ", "\n> "])
def test_every_line_break_inside_of_a_question_is_refused(blank: str) -> None:
    text, end = QUESTION.text, QUESTION.text.index("\n")
    for position in range(1, len(text) - 1):
        if (position, blank) == (end, "\r"):
            continue  # that is CRLF
        with pytest.raises(ApprovalMalformed):
            Question.from_text(text[:position] + blank + text[position:])


def test_lines_of_a_question_in_another_order_quoted_or_apart_are_refused() -> None:
    line_1, line_2, _ = QUESTION.text.split("\n")
    assert not_one(f"{line_2}\n{line_1}\n") == NOT_ONE
    assert not_one(f"> {line_1}\n> {line_2}\n") == NOT_ONE
    for between in ("\n\n", "\r\n\r\n", "\r\r\n", "\n\r", "\r", " \n", " ", "", *NO_BLANKS):
        assert not_one(f"{line_1}{between}{line_2}\n") == NOT_ONE
    for before in (" ", "> "):
        assert not_one(f"{line_1}\n{before}{line_2}\n") == (
            f"The question is malformed. {JSON} {SEND}"
        )


def test_a_question_over_the_cap_is_refused_before_anything_else() -> None:
    assert Question.from_text(QUESTION.text.ljust(CAP)) == QUESTION
    assert Question.from_text(QUESTION.text.rjust(CAP, "\n")) == QUESTION
    message = f"The question is {CAP + 1} characters, over the limit of {CAP}. {SEND}"
    for sent in (QUESTION.text, TEXT, ""):
        for fill in (" ", "\n", "\xa0"):
            assert not_one(Untouched(sent.ljust(CAP + 1, fill))) == message
            assert not_one(Untouched(sent.rjust(CAP + 1, fill))) == message
    with pytest.raises(AssertionError, match="looked at"):
        Question.from_text(Untouched(QUESTION.text.ljust(CAP)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, f"A question is text, and not NoneType. {SEND}"),
        (QUESTION.text.encode(), f"A question is text, and not bytes. {SEND}"),
        ("", NOT_ONE),
        (" \t\r\n" * 9, NOT_ONE),
        (TEXT, NOT_ONE),
        (QUESTION.text + QUESTION.text, NOT_ONE),
        ("x" * 70_000, f"The question is 70000 characters, over the limit of 65536. {SEND}"),
        (
            "safepoint-question/1\n" + "[" * 60_000 + "\n",
            f"The question is malformed. {JSON} {SEND}",
        ),
        (
            QUESTION.text.replace("42", "042"),
            f"The question is malformed. {JSON} {SEND}",
        ),
        (
            QUESTION.text.replace("order-7", "Order 7"),
            f"The question is malformed. 'Order 7' is not a thread name. {SEND}",
        ),
        (
            QUESTION.text.replace('"action"', '"acting"'),
            (
                "The question is malformed. A question has fields of its own, and these are others."
                f" {SEND}"
            ),
        ),
        (
            "safepoint-question/1\n[]\n",
            (
                "The question is malformed. A question has fields of its own, and these are others."
                f" {SEND}"
            ),
        ),
    ],
    ids=range(12),
)
def test_what_is_not_a_question_is_refused(text: Any, message: str) -> None:
    with pytest.raises(ApprovalMalformed) as error:
        Question.from_text(text)
    assert str(error.value) == message


def test_the_details_are_shown_signed_and_one_line_each() -> None:
    question = replace(QUESTION, details=("The tool mail is new.",))
    assert question.described[8] == "detail: The tool mail is new."
    assert QUESTION.described == [each for each in question.described if "detail: " not in each]
    assert question != QUESTION
    assert Question.from_text(question.text) == question
    assert difference(question, QUESTION) == (
        "the details ('The tool mail is new.',), and the question has ()"
    )


@pytest.mark.parametrize(
    "details",
    [
        *("The tool", ("a\nb",), ("\u202e",), ("\x1b[2K",), ("\xa0",), (7,), ("x" * 1001,)),
        *(("x",) * 65, ("x" * 1000,) * 9, None, {"a": 1}),
    ],
)
def test_details_that_could_hide_something_are_refused(details: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        replace(QUESTION, details=details)
    assert str(refusal.value) == (
        f"{quoted(details)} are not the details of a question."
        " Give a tuple of up to 64 sentences, each on one line, in ASCII, and 8192 characters"
        " together."
    )
    assert str(refusal.value).isascii()


def test_as_many_and_as_long_details_as_there_may_be() -> None:
    details = ("x" * 1000,) * 8 + ("",) * 14
    assert Question.from_text(ask(details=details).text).details == details


def test_details_are_copied_in() -> None:
    details = ["The tool mail is new."]
    question = ask(details=details)
    details.append("The tool pay is gone.")
    assert question.details == ("The tool mail is new.",)
