"""Whoever can write a database can write its folder: keys, anchors and journals are elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from safepoint import (
    ConfigurationError,
    FileAnchor,
    FileCheckpointStorage,
    FileJournal,
    KeyRefused,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteCheckpointStorage,
)
from tests.unit.tampered import KEYS, STORE, fill, opened


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SQLiteCheckpointStorage]:
    with SQLiteCheckpointStorage(tmp_path / "state/checkpoints.db") as opened:
        yield opened


def test_a_key_beside_the_database_is_refused(
    storage: SQLiteCheckpointStorage, tmp_path: Path
) -> None:
    for name in ("state/signing.key", "state/keys/signing.key"):
        file = tmp_path / name
        file.parent.mkdir(mode=0o700, exist_ok=True)
        keys = Keyring(SigningKey.from_file(file, create=True))
        with pytest.raises(KeyRefused) as caught:
            Ledger(storage, store=STORE, keys=keys)
        assert str(caught.value) == (
            f"The key {file} is inside the storage folder. Whoever reads the storage would hold the"
            " key. Move it to a folder of its own, and replace it if anyone may have read it."
        )


@pytest.mark.parametrize("place", ["state", "state/anchor", "."])
def test_an_anchor_beside_the_database_is_refused(tmp_path: Path, place: str) -> None:
    if place == "state/anchor":
        (tmp_path / "state").mkdir(mode=0o700)
    anchor = FileAnchor(tmp_path / place, create=True)
    with (
        SQLiteCheckpointStorage(tmp_path / "state/checkpoints.db") as storage,
        pytest.raises(ConfigurationError) as caught,
    ):
        Ledger(storage, store=STORE, keys=KEYS, anchor=anchor)
    assert str(caught.value) == (
        f"The anchor {anchor.path} is in one place with the storage {tmp_path}/state. Whoever rolls"
        " back one would roll back the other. Give the anchor a folder elsewhere, best of another"
        " user or machine."
    )


def test_a_journal_beside_the_database_is_refused(
    storage: SQLiteCheckpointStorage, tmp_path: Path
) -> None:
    journal = FileJournal(
        tmp_path / "state/journal", keys=Keyring(SigningKey.generate()), create=True
    )
    with pytest.raises(ConfigurationError) as caught:
        Ledger(storage, store=STORE, keys=KEYS, journal=journal)
    assert str(caught.value) == (
        f"The journal {tmp_path}/state/journal is in one place with the storage {tmp_path}/state."
        " Whoever changes one could change the other. Give the journal a folder of its own."
    )


def test_elsewhere_they_are_welcome(storage: SQLiteCheckpointStorage, tmp_path: Path) -> None:
    """Also where a name begins like that of the database's folder."""
    (tmp_path / "state-keys").mkdir(mode=0o700)
    keys = Keyring(SigningKey.from_file(tmp_path / "state-keys/signing.key", create=True))
    journal = FileJournal(
        tmp_path / "state-journal", keys=Keyring(SigningKey.generate()), create=True
    )
    ledger = Ledger(
        storage,
        store=STORE,
        keys=keys,
        anchor=FileAnchor(tmp_path / "state-anchor", create=True),
        journal=journal,
    )
    fill(ledger, 2)


def test_two_databases_in_one_folder_are_two_storages(
    storage: SQLiteCheckpointStorage, tmp_path: Path
) -> None:
    """And one that was opened twice is one."""
    source = opened(storage)
    fill(source, 3)
    with SQLiteCheckpointStorage(tmp_path / "state/copy.db") as target:
        assert source.copy_to(opened(target)) == 3
    assert source.copy_to(opened(FileCheckpointStorage(tmp_path / "state"))) == 3
    with (
        SQLiteCheckpointStorage(tmp_path / "state/checkpoints.db") as again,
        pytest.raises(ConfigurationError, match="Source and target are one storage"),
    ):
        source.copy_to(opened(again))
