"""A file journal with its key, and each way to use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint import Keyring, SigningKey
from safepoint.errors import CheckpointError
from safepoint.journal import Actor, Entry, Event, FileJournal, Journal

KEY = SigningKey.generate()
KEYS = Keyring(KEY)
ANA = Actor("ana", how="login")
RESTORE = (
    "Nothing is appended to it. Keep this copy, find out who can write the journal, and restore"
    " one that verifies."
)


def event(number: int = 1, **fields: Any) -> Event:
    return Event("save", "intended", ANA, "invoices", "order-7", number, **fields)


def fill(journal: Journal, count: int) -> list[Entry]:
    return [journal.record(event(number)) for number in range(1, count + 1)]


def opened(path: Path, **options: Any) -> FileJournal:
    return FileJournal(path, **{"keys": KEYS, **options})


def files(path: Path) -> dict[str, bytes]:
    """Return what each file holds, but for the lock."""
    return {file.name: file.read_bytes() for file in sorted(path.iterdir()) if file.name != ".lock"}


def refusal(error: type[CheckpointError], call: Callable[..., object], *arguments: Any) -> str:
    """Return what is said when a call is refused, by exactly this error."""
    with pytest.raises(error) as caught:
        call(*arguments)
    assert type(caught.value) is error
    return str(caught.value)


CALLS: dict[str, Callable[[FileJournal], object]] = {
    "record": lambda journal: journal.record(event()),
    "show": lambda journal: list(journal.show()),
    "verify": lambda journal: journal.verify(),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
