"""What an answer is bound to: the first field in which two questions differ, in words."""

from __future__ import annotations

from typing import Final

from safepoint.approval.arguments import digest_of_value, shown
from safepoint.approval.question import Question
from safepoint.errors import quoted
from safepoint.header import is_digest
from safepoint.heads import Head

_PLAIN: Final = (
    "store",
    "thread",
    "checkpoint",
    "head",
    "app",
    "tools",
    "reasons",
    "details",
    "action",
)


def difference(answered: Question, asked: Question) -> str | None:
    """Say in which field two questions differ, and both values, or return None if in none.

    A value that is too long to be shown is shown by its beginning, its length and its digest, so
    that two of them never look the same.
    """
    if answered == asked:
        return None
    for field in _PLAIN:
        ours, theirs = getattr(answered, field), getattr(asked, field)
        if ours != theirs:
            return f"the {field} {_told(ours)}, and the question has {_told(theirs)}"
    return _arguments(answered, asked)


def _arguments(answered: Question, asked: Question) -> str:
    ours, theirs = answered.arguments, asked.arguments
    # By their bytes: 1 == True in Python, and nobody who approves the one approves the other.
    left, right = (
        {name: digest_of_value(value) for name, value in each.items()} for each in (ours, theirs)
    )
    name = min(name for name in {*left, *right} if left.get(name) != right.get(name))
    shown_name = _told(name)
    if name not in ours:
        return f"no argument {shown_name}, and the question has {_told(theirs[name])}"
    there = _told(theirs[name]) if name in theirs else "none"
    return f"the argument {shown_name}: {_told(ours[name])}, and the question has {there}"


def _told(value: object) -> str:
    if isinstance(value, Head):
        return f"{value} {value.digest}"
    if is_digest(value):
        return str(value)
    text = quoted(value)
    if text == shown(value):
        return text
    return f"{text} ({len(shown(value))} characters, {digest_of_value(value)})"
