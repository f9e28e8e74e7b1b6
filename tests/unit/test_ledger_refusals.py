"""Refusals of the ledger and its parts, word for word: they are what people read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    CheckpointError,
    ConfigurationError,
    Head,
    InMemoryAnchor,
    InvalidId,
    Ledger,
    WrongPlace,
)
from safepoint.migrate import Unsigned, json_files, migrate
from safepoint.record import Place, seal
from tests.unit.tampered import KEY, KEYS, STORE, THREAD, Files, Memory, base_of, fill, opened

WITHOUT_ZONE = datetime(2026, 11, 15)  # noqa: DTZ001  that is what is refused
UTC_TIME = datetime.fromisoformat("2026-11-15T00:00:00Z")


class Fixed:
    """An anchor with the three methods that are asked for, and no way back."""

    def read(self, store: str, thread: str) -> Head | None:
        return None

    def advance(self, store: str, thread: str, head: Head) -> None:
        pass

    def threads(self, store: str) -> list[str]:
        return []


def no_way_back() -> object:
    return Ledger(Memory(), store=STORE, keys=KEYS, anchor=Fixed()).accept_loss(THREAD)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda: opened(Memory()).anchor_now(THREAD),
            "This ledger has no anchor. Write Ledger(..., anchor=FileAnchor(path)).",
        ),
        (no_way_back, "Fixed cannot be set back. Do it where the anchor is kept."),
        (
            lambda: opened(Memory()).prune(THREAD, keep=0),
            "keep is 0, and must be a whole number from 1 up. Write keep=1, or more.",
        ),
        (
            lambda: list(json_files(None)),  # type: ignore[arg-type]
            'None is not the path of a folder. Write json_files("old").',
        ),
        (
            lambda: list(json_files("a\0b")),
            "'a\\x00b' is not the path of a folder. Write json_files(\"old\").",
        ),
        (
            lambda: seal(b"1", Place(STORE, THREAD, 1), KEY, created=WITHOUT_ZONE),
            "The creation time has no time zone. Give an aware datetime.",
        ),
        (
            lambda: seal(
                b"1",
                Place(STORE, THREAD, 1),
                KEY,
                created=UTC_TIME,
                kind="other",  # type: ignore[arg-type]
            ),
            "'other' is no kind of record. Write records with a Ledger.",
        ),
        (
            lambda: Head(1, "sha256:0"),
            "'sha256:0' is not a digest. Digests are 'sha256:' and 64 hex digits.",
        ),
    ],
)
def test_a_refusal_says_what_to_do(use: Callable[[], object], message: str) -> None:
    with pytest.raises(CheckpointError) as refusal:
        use()
    assert isinstance(refusal.value, (ConfigurationError, InvalidId))
    assert str(refusal.value) == message


def test_a_source_that_is_no_text_is_refused_before_anything_is_sealed(tmp_path: Path) -> None:
    ledger = opened(Memory())
    odd: Any = object()
    with pytest.raises(ConfigurationError) as refusal:
        migrate(
            [Unsigned(THREAD, 1, source=odd)],
            ledger,
            report=tmp_path / "report.jsonl",
            allow_unsigned_migration=True,
        )
    assert str(refusal.value) == (
        "The source and the digest of an Unsigned state are texts."
        ' Write Unsigned(thread, state, source="order-7.json").'
    )
    assert ledger.threads() == []


def test_a_base_of_another_branch_is_refused(storage: Memory | Files) -> None:
    """It is genuine and of the right place; what it stands before is of another history."""
    anchor, branch = InMemoryAnchor(), Memory()
    fill(opened(storage, anchor), 3)
    other = opened(branch)
    for number in (7, 8, 9):
        other.save(THREAD, {"n": number})
    other.prune(THREAD, keep=2)
    opened(storage, anchor).prune(THREAD, keep=2)
    storage.put_base(THREAD, *base_of(branch))
    with pytest.raises(WrongPlace) as refusal:
        opened(storage, anchor).verify(THREAD)
    assert str(refusal.value) == (
        "order-7 #2 does not follow what the base of the thread says. One of the two was replaced."
        " Restore both from a copy that verifies."
    )
