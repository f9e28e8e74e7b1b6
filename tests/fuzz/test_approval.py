"""Opening an approval: a refusal of the tree or the truth, whatever stands in the text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import ApprovalError, ApprovalMalformed
from safepoint.approval import Question
from tests.unit.approval_helpers import (
    APPROVERS,
    DANA,
    ERIN,
    NO_BLANKS,
    NOW,
    QUESTION,
    TEXT,
    body_of,
    sign,
)

GENUINE = [TEXT, DANA.deny(QUESTION, now=NOW), ERIN.approve(QUESTION, now=NOW)]
PIECES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["\n", " ", "\0", "=", "null", '"', "{}", "safepoint-approval/1 ", "\ud800"]),
    st.sampled_from(["\r\n", "\r", "\t", "> ", *NO_BLANKS]),
    st.sampled_from(GENUINE).flatmap(lambda text: st.sampled_from(text.splitlines(keepends=True))),
)


@st.composite
def mutated(draw: st.DrawFn, whole: list[str]) -> str:
    """One of the texts with one to four pieces cut out, put in or replaced."""
    text = draw(st.sampled_from(whole))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + draw(st.integers(0, 60)))))
        text = text[:start] + draw(PIECES) + text[end:]
    return text


BLANKS = st.text(" \t\r\n", max_size=12)
LINE_ENDS = st.sampled_from(["\n", "\r\n"])


def lines(text: str) -> list[str]:
    """The lines that were sent, whatever line ends and blanks around them they arrived with."""
    return re.split(r"\r?\n", re.sub(r"\A[ \t\r\n]+|[ \t\r\n]+\Z", "", text))


@given(mutated(GENUINE))
def test_a_changed_approval_is_refused_or_is_the_same(text: str) -> None:
    try:
        approval = APPROVERS.open(text)
    except ApprovalError:
        return
    assert approval.text in GENUINE
    assert lines(text) == approval.text.removesuffix("\n").split("\n")


@given(st.sampled_from(GENUINE), BLANKS, LINE_ENDS, BLANKS)
def test_blanks_around_an_approval_change_nothing(
    text: str, before: str, end: str, after: str
) -> None:
    arrived = before + text.removesuffix("\n").replace("\n", end) + after
    assert APPROVERS.open(arrived) == APPROVERS.open(text)


@given(BLANKS, st.text(min_size=1, max_size=9).filter(lambda text: text.strip(" \t\r\n")), BLANKS)
def test_anything_but_blanks_around_an_approval_is_refused(
    before: str, more: str, after: str
) -> None:
    for text in (before + more + after + TEXT, TEXT + before + more + after):
        with pytest.raises(ApprovalMalformed):
            APPROVERS.open(text)


@given(mutated([body_of().decode()]))
def test_a_holder_of_the_key_can_sign_nothing_that_breaks_a_reader(body: str) -> None:
    text = sign(body.encode("latin-1", "replace"))
    try:
        approval = APPROVERS.open(text)
    except ApprovalError:
        return
    assert approval.text == text
    assert approval.approver == "dana"
    assert Question.from_text(approval.question.text) == approval.question


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(st.sampled_from(sorted(json.loads(body_of()))), VALUES)
def test_a_field_of_any_kind_is_refused_or_kept(field: str, value: Any) -> None:
    values = {**json.loads(body_of()), field: value}
    body = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    try:
        approval = APPROVERS.open(sign(body))
    except ApprovalError:
        return
    assert body == body_of(approval.text)


@given(mutated([QUESTION.text]))
def test_a_question_from_outside_is_refused_or_has_one_spelling(text: str) -> None:
    try:
        question = Question.from_text(text)
    except ApprovalMalformed:
        return
    assert lines(text) == question.text.removesuffix("\n").split("\n")
    assert Question.from_text(question.text) == question
    assert all(line.isascii() and line.isprintable() for line in question.described)
