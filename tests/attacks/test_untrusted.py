"""SP02: what nobody vouched for is refused before anything decodes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint import CheckpointError, Codec
from safepoint.attacks.payload import marker_pickle
from safepoint.errors import RecordMalformed, UnknownKey, WrongPlace
from tests.attacks.helpers import THREAD, Shop, refused


class NoDecoding(Codec):
    """A codec that must not be reached."""

    def decode(self, data: bytes) -> object:
        raise AssertionError("decoded before it was verified")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, codec=NoDecoding())
    shop.fill([{"amount": 42}])
    return shop


def test_forged_or_swapped_record_is_refused_before_it_is_decoded(
    shop: Shop, tmp_path: Path
) -> None:
    forger = Shop(tmp_path / "forged")
    forger.fill([{"amount": 5_000_000}])
    shop.fill([{"amount": 99}], "order-8")
    for other, error in ((forger.file(1), UnknownKey), (shop.file(1, "order-8"), WrongPlace)):
        shop.file(1).write_bytes(other.read_bytes())
        refused(error, lambda: shop.ledger().latest(THREAD))


@pytest.mark.parametrize(
    "content",
    [
        b'{"amount": 42}\n',
        b"",
        b"\n",
        b"\0" * 1000,
        b"safepoint/1 ",
        b"safepoint/9 x y\n",
        b"PK\x03\x04" + b"\0" * 100,
        "ｓafepoint/1".encode(),
        bytes(range(256)) * 40,
        marker_pickle(Path("marker")),
        b"pickle\n" + marker_pickle(Path("marker")),
    ],
)
def test_planted_or_damaged_file_is_refused_with_one_clear_error(
    shop: Shop, content: bytes
) -> None:
    shop.file(1).write_bytes(content)
    with pytest.raises(CheckpointError) as refusal:
        shop.ledger().latest(THREAD)
    assert type(refusal.value) in (RecordMalformed, UnknownKey)
    message = str(refusal.value)
    assert message.startswith("order-7 #1 ")
    assert "Nothing was decoded." in message
    assert "\n" not in message
    assert not Path("marker").exists()
