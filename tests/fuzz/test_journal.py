"""A journal in the hands of somebody who can write its files: the truth, or a refusal."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safepoint import InMemoryAnchor, Keyring, SigningKey
from safepoint.errors import CheckpointError, JournalBroken
from safepoint.journal import Actor, Event, FileJournal, InMemoryJournal
from safepoint.journal.event import OUTCOMES, WHATS

KEYS = Keyring(SigningKey.generate(), verify=SigningKey.generate("ed25519"))
LENGTH = 6


def build(detail: str) -> InMemoryJournal:
    journal = InMemoryJournal(KEYS)
    for number in range(1, LENGTH + 1):
        event = Event("save", "done", Actor("ana", "login"), "invoices", "t", number, detail=detail)
        journal.record(event)
    return journal


OURS = build("ours")
THEIRS = build("theirs")
ENTRIES = list(OURS.show())
ANCHOR = InMemoryAnchor()
with tempfile.TemporaryDirectory() as _folder:
    _anchored = FileJournal(Path(_folder, "journal"), keys=KEYS, anchor=ANCHOR, create=True)
    for _entry in ENTRIES:
        _anchored.record(Event("save", "done", _entry.actor, "invoices", "t", _entry.sequence))
    ANCHORED = (Path(_folder, "journal", "journal.000001.jsonl")).read_bytes()

TEXTS = st.text() | st.text(st.characters(categories=["Cs", "Cc", "Zl", "Zp"]))


@given(st.data())
def test_any_byte_of_a_line_that_is_changed_is_refused(data: st.DataObject) -> None:
    lines = list(OURS.lines)
    number = data.draw(st.integers(0, LENGTH - 1))
    at = data.draw(st.integers(0, len(lines[number]) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != lines[number][at]))
    lines[number] = lines[number][:at] + bytes([byte]) + lines[number][at + 1 :]
    try:
        written(b"".join(lines), None)
    except JournalBroken:
        return
    raise AssertionError(f"line {number}, byte {at}: {byte}")


@given(st.lists(st.sampled_from([*OURS.lines, *THEIRS.lines]), max_size=LENGTH + 2))
def test_any_other_order_of_genuine_lines_is_refused(lines: list[bytes]) -> None:
    """What is left is the beginning of one journal or the other."""
    try:
        found = written(b"".join(lines), None)
    except JournalBroken:
        assert lines not in (OURS.lines[: len(lines)], THEIRS.lines[: len(lines)])
        return
    assert lines in (OURS.lines[: len(lines)], THEIRS.lines[: len(lines)])
    assert len(found) == len(lines)


@given(st.data())
def test_with_an_anchor_only_the_whole_journal_is_the_truth(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(ANCHORED)))
    end = data.draw(st.integers(start, len(ANCHORED)))
    changed = ANCHORED[:start] + data.draw(st.binary(max_size=30)) + ANCHORED[end:]
    try:
        found = written(changed, ANCHOR)
    except JournalBroken:
        assert changed != ANCHORED
        return
    assert len(found) == LENGTH
    assert changed.startswith(ANCHORED), "what follows is an unfinished line"


def written(content: bytes, anchor: InMemoryAnchor | None) -> list[Any]:
    """Read the content as the file of a journal."""
    with tempfile.TemporaryDirectory() as folder:
        journal = FileJournal(Path(folder, "journal"), keys=KEYS, anchor=anchor, create=True)
        (journal.path / "journal.000001.jsonl").write_bytes(content)
        return list(journal.show())


@given(TEXTS, TEXTS, TEXTS, st.sampled_from(WHATS), st.sampled_from(OUTCOMES))
def test_whatever_is_recorded_is_one_line_and_comes_back(
    name: str, how: str, detail: str, what: Any, outcome: Any
) -> None:
    journal = InMemoryJournal(KEYS)
    try:
        event = Event(what, outcome, Actor(name, how), "invoices", detail=detail)
    except CheckpointError:
        return
    entry = journal.record(event)
    (line,) = journal.lines
    assert re.fullmatch(rb"[ -~]+\n", line)
    assert json.loads(line)["entry"]["actor"] == {"how": how, "name": name}
    assert list(journal.show()) == [entry]
    assert str(entry).isascii()
    assert str(entry).isprintable()
