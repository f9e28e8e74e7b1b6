"""SP10: a record chooses neither how it is decoded nor how it is verified."""

from __future__ import annotations

import base64
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    CheckpointError,
    Codec,
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SealBroken,
    SigningKey,
)
from safepoint.attacks.payload import marker_pickle
from safepoint.errors import DecodeError, KeyRefused, RecordMalformed
from safepoint.keys import VerifyingKey

MARKS = ["$pickle", "__pickled__", "__type__", "py/object", "$os.system", "__reduce__", "lc"]
"""By which codecs of this world recognise what they should build."""


@pytest.fixture
def key() -> SigningKey:
    return SigningKey.generate("ed25519")


@pytest.fixture
def ledger(tmp_path: Path, key: SigningKey) -> Ledger:
    storage = FileCheckpointStorage(tmp_path / "state")
    ledger = Ledger(storage, store="invoices", keys=Keyring(key))
    ledger.save("order-7", {"amount": 42})
    return ledger


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "state/order-7/0000000001.checkpoint"


def reader(tmp_path: Path, *keys: VerifyingKey | SigningKey) -> Ledger:
    """A new process that trusts these keys."""
    storage = FileCheckpointStorage(tmp_path / "state")
    return Ledger(storage, store="invoices", keys=Keyring(verify=keys))


def public_bytes(key: SigningKey, folder: Path) -> bytes:
    key.public.to_file(folder / "reader.key")
    return base64.b64decode((folder / "reader.key").read_text().split()[2])


@pytest.mark.parametrize("tag", [b"pickle", b"json", b"msgpack", b"safepoint/1"])
def test_row_that_selects_pickle_is_not_decoded(
    ledger: Ledger, record: Path, tmp_path: Path, tag: bytes
) -> None:
    payload = marker_pickle(tmp_path / "marker")
    for content in (payload, tag + b" " + payload, tag + b"\n" + payload):
        record.write_bytes(content)
        with pytest.raises(RecordMalformed) as refusal:
            ledger.latest("order-7")
        assert refusal.value.what == "order-7 #1 is not a sealed record."
    assert not (tmp_path / "marker").exists()


def test_tag_in_a_genuine_state_selects_nothing(tmp_path: Path, key: SigningKey) -> None:
    """By a holder of the key, who writes past the codec."""

    class Anything(Codec):
        def encode(self, value: object) -> bytes:
            return json.dumps({"$pickle": value}).encode().replace(b" ", b"")

    payload = base64.b64encode(marker_pickle(tmp_path / "marker")).decode()
    storage = FileCheckpointStorage(tmp_path / "state")
    Ledger(storage, store="invoices", keys=Keyring(key), codec=Anything()).save("order-7", payload)
    with pytest.raises(DecodeError) as refusal:
        reader(tmp_path, key.public).latest("order-7")
    assert refusal.value.what == (
        "The encoded state holds the tag 'pickle', which this codec does not know."
    )
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("mark", MARKS)
def test_input_that_looks_like_a_mark_comes_back_as_it_was(
    ledger: Ledger, tmp_path: Path, mark: str
) -> None:
    payload = base64.b64encode(marker_pickle(tmp_path / "marker")).decode()
    inputs: list[dict[str, Any]] = [{mark: payload}, {mark: payload, "b": 1}, {"a": [{mark: {}}]}]
    for typed in inputs:
        ledger.save("order-7", typed)
        assert ledger.latest("order-7").state == typed
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("word", [b"none", b"hmac-sha256", b"ed25519", b"NONE"])
def test_record_that_names_an_algorithm_is_refused(
    ledger: Ledger, record: Path, word: bytes
) -> None:
    genuine = record.read_bytes()
    for content in (
        genuine.replace(b" ", b" " + word + b" ", 1),
        genuine.replace(b"safepoint/1", word, 1),
        genuine.replace(genuine.split(b" ")[2].split(b"\n")[0], word, 1),
    ):
        record.write_bytes(content)
        with pytest.raises(RecordMalformed, match="is not a sealed record"):
            ledger.latest("order-7")


def test_algorithm_in_the_header_is_refused(ledger: Ledger, record: Path, key: SigningKey) -> None:
    """Unsigned it breaks the seal. Signed it is no header."""
    line_1, line_2, rest = record.read_bytes().split(b"\n", 2)
    named = b'{"alg":"none",' + line_2[1:]
    record.write_bytes(b"\n".join([line_1, named, rest]))
    with pytest.raises(SealBroken, match="was changed after it was sealed"):
        ledger.latest("order-7")
    signature = base64.b64encode(key.sign(b"safepoint/1 record\n" + named))
    line_1 = b" ".join([*line_1.split(b" ")[:2], signature])
    record.write_bytes(b"\n".join([line_1, named, rest]))
    with pytest.raises(RecordMalformed, match="has a header that this release did not write"):
        ledger.latest("order-7")


def test_hmac_under_the_public_key_is_refused(
    ledger: Ledger, record: Path, key: SigningKey, tmp_path: Path
) -> None:
    """The forger knows the public key, and signs by HMAC as if it were a secret."""
    public = public_bytes(key, tmp_path)
    line_1, line_2, rest = record.read_bytes().split(b"\n", 2)
    mac = hmac.digest(public, b"safepoint/1 record\n" + line_2, "sha256")
    assert SigningKey(public).verify(b"safepoint/1 record\n" + line_2, mac)
    forged = b" ".join([*line_1.split(b" ")[:2], base64.b64encode(mac)])
    record.write_bytes(b"\n".join([forged, line_2, rest]))
    for trusting in (ledger, reader(tmp_path, key.public)):
        with pytest.raises(SealBroken, match="was changed after it was sealed"):
            trusting.latest("order-7")


@pytest.mark.parametrize("by", ["hmac-sha256", "ed25519"])
def test_signature_of_the_other_algorithm_is_refused(tmp_path: Path, by: str) -> None:
    """Both keys are trusted; each counts by its own algorithm alone."""
    keys = {name: SigningKey.generate(name) for name in ("hmac-sha256", "ed25519")}
    other = next(key for name, key in keys.items() if name != by)
    storage = FileCheckpointStorage(tmp_path / "state")
    Ledger(storage, store="invoices", keys=Keyring(keys[by])).save("order-7", 1)
    both = reader(tmp_path, *keys.values())
    assert both.latest("order-7").state == 1
    record = tmp_path / "state/order-7/0000000001.checkpoint"
    record.write_bytes(record.read_bytes().replace(keys[by].id.encode(), other.id.encode(), 1))
    with pytest.raises(SealBroken):
        both.latest("order-7")


def test_key_file_of_another_algorithm_is_refused(tmp_path: Path, key: SigningKey) -> None:
    """Nor can a file turn a public key into a secret, or a reader's key into a writer's."""
    tmp_path.chmod(0o700)
    text = base64.b64encode(public_bytes(key, tmp_path)).decode()
    file = tmp_path / "confused.key"
    for first in ("safepoint-public-key/1 hmac-sha256", "safepoint-public-key/1 none"):
        file.write_text(f"{first} {text}\n")
        file.chmod(0o600)
        with pytest.raises(KeyRefused, match="does not hold a key that this release reads"):
            VerifyingKey.from_file(file)
    with pytest.raises(KeyRefused, match="holds a public key, which cannot sign"):
        SigningKey.from_file(tmp_path / "reader.key")


def test_a_refusal_leads_to_no_second_decoder(
    ledger: Ledger, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands there, the codec is asked once or not at all."""
    asked = []
    monkeypatch.setattr(Codec, "decode", lambda self, data: asked.append(data))
    genuine = record.read_bytes()
    ledger.latest("order-7")
    for content in (b"", b"{}", genuine[:-1], genuine.replace(b"42", b"43"), b"\x80\x04N."):
        record.write_bytes(content)
        with pytest.raises(CheckpointError):
            ledger.latest("order-7")
    assert asked == [b'{"amount":42}']
