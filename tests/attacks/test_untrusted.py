"""SP02: what nobody vouched for is refused before anything decodes it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from safepoint import CheckpointError, Codec, FileCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint.errors import RecordMalformed, UnknownKey, WrongPlace


class NoDecoding(Codec):
    """A codec that must not be reached."""

    def decode(self, data: bytes) -> object:
        raise AssertionError("decoded before it was verified")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def ledger(store: Path) -> Ledger:
    keys = Keyring(SigningKey.generate())
    storage = FileCheckpointStorage(store)
    Ledger(storage, store="invoices", keys=keys).save("order-7", {"amount": 42})
    return Ledger(storage, store="invoices", keys=keys, codec=NoDecoding())


def record_of(store: Path, thread: str = "order-7") -> Path:
    return store / thread / "0000000001.checkpoint"


def test_planted_json_is_refused(ledger: Ledger, store: Path) -> None:
    record_of(store).write_bytes(b'{"amount": 42}\n')
    with pytest.raises(RecordMalformed):
        ledger.latest("order-7")


def test_forged_record_of_another_key_is_refused(
    ledger: Ledger, store: Path, tmp_path: Path
) -> None:
    forger = Ledger(
        FileCheckpointStorage(tmp_path / "forged"),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
    )
    forger.save("order-7", {"amount": 5_000_000})
    shutil.copyfile(record_of(tmp_path / "forged"), record_of(store))
    with pytest.raises(UnknownKey):
        ledger.latest("order-7")


def test_swapped_thread_is_refused(ledger: Ledger, store: Path) -> None:
    ledger.save("order-8", {"amount": 99})
    shutil.copyfile(record_of(store, "order-8"), record_of(store))
    with pytest.raises(WrongPlace):
        ledger.latest("order-7")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\0" * 1000,
        b"safepoint/1 ",
        b"safepoint/9 x y\n",
        b"PK\x03\x04" + b"\0" * 100,
        "ｓafepoint/1".encode(),
        bytes(range(256)) * 40,
    ],
)
def test_damaged_file_is_refused_with_one_clear_error(
    ledger: Ledger, store: Path, content: bytes
) -> None:
    record_of(store).write_bytes(content)
    with pytest.raises(CheckpointError) as refusal:
        ledger.latest("order-7")
    message = str(refusal.value)
    assert message.startswith("order-7 #1 ")
    assert "Nothing was decoded." in message
    assert "\n" not in message


def test_named_type_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag that looks like a module path is a tag that nobody registered."""
    (tmp_path / "sentinel_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CheckpointError):
        Codec().decode(b'{"$sentinel_module.Thing":{}}')
    assert "sentinel_module" not in sys.modules
