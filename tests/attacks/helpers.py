"""What the tests of the pages share: a store in files, and the refusal of an act."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safepoint import FileCheckpointStorage, Keyring, Ledger, SQLiteAnchor
from safepoint import SigningKey as Key

THREAD = "order-7"


class Shop:
    """A store in files. Its ledger is opened anew for each use, as a new process does.

    Args:
        path: a folder, for the folders `state` and, if there is an anchor, `anchor`.
        key: its key, if it should not have one of its own.
        anchored: whether it has an anchor.
        options: what its ledger gets besides.
    """

    def __init__(
        self, path: Path, key: Key | None = None, *, anchored: bool = True, **options: Any
    ) -> None:
        self.path = path
        self.key = key or Key.generate()
        path.mkdir(exist_ok=True)
        anchor = SQLiteAnchor(path / "anchor/heads.db", create=True) if anchored else None
        self.options = {"anchor": anchor, "store": "invoices", **options}

    def ledger(self, **options: Any) -> Ledger:
        given = {"keys": Keyring(self.key), **self.options, **options}
        return Ledger(FileCheckpointStorage(self.path / "state"), **given)

    def fill(self, states: Iterable[Any], thread: str = THREAD, **options: Any) -> None:
        for state in states:
            self.ledger(**options).save(thread, state)

    def file(self, sequence: int, thread: str = THREAD) -> Path:
        return self.path / "state" / thread / f"{sequence:010}.checkpoint"

    def edit(self, sequence: int, old: bytes, new: bytes) -> None:
        file = self.file(sequence)
        record = file.read_bytes()
        assert old in record
        file.write_bytes(record.replace(old, new))
