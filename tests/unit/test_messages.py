"""Every refusal is one line that says what happened and what to do, in words that people read."""

from __future__ import annotations

import re

import pytest

from tests.harness.messages import SNAPSHOT, Message, messages, snapshot

LONGEST = 300
"""Characters of a template: what a log line and a phone can still show."""
FOUND = messages()


def test_what_the_errors_say_is_what_somebody_has_read() -> None:
    """To repair: run make fix, and read what changed in tests/messages.txt."""
    now = snapshot(FOUND).splitlines()
    read = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    new, gone = (
        [line for line in now if line not in read],
        [line for line in read if line not in now],
    )
    assert (new, gone) == ([], []), "run make fix, and read the difference"
    assert now == read, "run make fix"


def faults(said: Message) -> list[str]:
    """Tell what is wrong with the form of a message."""
    text = str(said)
    return [
        fault
        for fault, is_so in {
            "is not one line": "\n" in text,
            "does not say what to do": not said.do.strip(),
            "does not end": not re.search(r"([.})]|: \S.*|\b(Run|Write|add) .*)$", said.do),
            "says what happened without an end": not re.search(r"[.})]$", said.what),
            "is long": len(text) > LONGEST,
        }.items()
        if is_so
    ]


def test_a_message_is_one_line_that_ends_and_says_what_to_do() -> None:
    assert {
        f"{said.module}:{said.lines.start} {wrong}" for said in FOUND for wrong in faults(said)
    } == set()
    assert len(FOUND) > 200


@pytest.mark.parametrize(
    ("what", "do"),
    [
        ("It broke", "Mend it."),
        ("It broke.", ""),
        ("It broke.\nSo.", "Mend it."),
        ("A.", "x" * 400),
    ],
)
def test_a_message_of_another_form_would_be_found(what: str, do: str) -> None:
    assert faults(Message("m", range(1), "E", what, do))
