"""Opening an approval: a refusal of the tree or the truth, whatever stands in the text."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from safepoint.core.errors import ApprovalRefused
from safepoint.resume.approval import Question
from tests.unit.approval_helpers import APPROVERS, DANA, DANA_KEY, ERIN, NOW, QUESTION, TEXT, sign

GENUINE = [TEXT, DANA.deny(QUESTION, now=NOW), ERIN.approve(QUESTION, now=NOW)]
LINE_2 = TEXT.split("\n")[1]
PIECES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["\n", " ", "\0", "=", "null", '"', "{}", "[]", "safepoint/1 ", "\ud800"]),
    st.sampled_from(
        ["\r\n", "\r", "\t", "\x0b", "\x85", "\u2028", "\u202e", "\ufeff", "1e5", "-0"]
    ),
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


def lines(text: str) -> list[str]:
    """The lines that were sent, whatever line ends and blanks around them they arrived with."""
    return re.split(r"\r?\n", re.sub(r"\A[ \t\r\n]+|[ \t\r\n]+\Z", "", text))


@given(mutated(GENUINE))
def test_a_changed_approval_is_refused_or_is_the_same(text: str) -> None:
    try:
        approval = APPROVERS.open(text)
    except ApprovalRefused:
        return
    assert approval.text in GENUINE
    assert lines(text) == lines(approval.text)


@given(mutated([LINE_2]))
def test_a_holder_of_the_key_can_sign_nothing_that_breaks_a_reader(line_2: str) -> None:
    text = sign(line_2.encode("latin-1", "replace"), DANA_KEY)
    try:
        approval = APPROVERS.open(text)
    except ApprovalRefused:
        return
    assert lines(text) == lines(approval.text)
    assert approval.approver == "dana"
    assert Question.from_text(approval.question.text) == approval.question


@given(mutated([QUESTION.text]))
def test_a_question_from_outside_is_refused_or_has_one_spelling(text: str) -> None:
    try:
        question = Question.from_text(text)
    except ApprovalRefused:
        return
    assert lines(text) == lines(question.text)
    assert Question.from_text(question.text) == question
    assert all(line.isascii() and line.isprintable() for line in question.described)
