"""SP10: a record chooses neither how it is decoded nor how it is verified."""

from __future__ import annotations

import base64
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from safepoint import CheckpointError, Codec, Keyring, SealBroken
from safepoint import SigningKey as Key
from safepoint.attacks.payload import marker_pickle
from safepoint.errors import DecodeError, KeyRefused, RecordMalformed
from safepoint.keys import VerifyingKey
from tests.attacks.helpers import THREAD, Shop, refused

MARKS = ["$pickle", "__pickled__", "__type__", "py/object", "$os.system", "__reduce__", "lc"]
"""By which codecs of this world recognise what they should build."""


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, Key.generate("ed25519"), anchored=False)
    shop.fill([{"amount": 42}])
    return shop


def public_bytes(key: Key, folder: Path) -> bytes:
    key.public.to_file(folder / "reader.key")
    return base64.b64decode((folder / "reader.key").read_text().split()[2])


def test_tag_in_a_genuine_state_selects_nothing(shop: Shop, tmp_path: Path) -> None:
    """By a holder of the key, who writes past the codec."""

    class Anything(Codec):
        def encode(self, value: object) -> bytes:
            return json.dumps({"$pickle": value}).encode().replace(b" ", b"")

    payload = base64.b64encode(marker_pickle(tmp_path / "marker")).decode()
    shop.fill([payload], codec=Anything())
    said = refused(DecodeError, lambda: shop.ledger().latest(THREAD))
    assert said.startswith("The encoded state holds the tag 'pickle', which this codec does not")
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("mark", MARKS)
def test_input_that_looks_like_a_mark_comes_back_as_it_was(shop: Shop, mark: str) -> None:
    inputs: list[dict[str, Any]] = [{mark: "x"}, {mark: "x", "b": 1}, {"a": [{mark: {}}]}]
    for typed in inputs:
        shop.fill([typed])
        assert shop.ledger().latest(THREAD).state == typed


@pytest.mark.parametrize("word", [b"none", b"hmac-sha256", b"ed25519", b"NONE"])
def test_record_that_names_an_algorithm_is_refused(shop: Shop, word: bytes) -> None:
    genuine = shop.file(1).read_bytes()
    signature = genuine.split(b" ")[2].split(b"\n")[0]
    for content in (
        genuine.replace(b" ", b" " + word + b" ", 1),
        genuine.replace(b"safepoint/1", word, 1),
        genuine.replace(signature, word, 1),
    ):
        shop.file(1).write_bytes(content)
        said = refused(RecordMalformed, lambda: shop.ledger().latest(THREAD))
        assert "is not a sealed record" in said


def test_algorithm_in_the_header_is_refused(shop: Shop) -> None:
    """Unsigned it breaks the seal. Signed it is no header."""
    line_1, line_2, rest = shop.file(1).read_bytes().split(b"\n", 2)
    named = b'{"alg":"none",' + line_2[1:]
    signature = base64.b64encode(shop.key.sign(b"safepoint/1 record\n" + named))
    signed = b" ".join([*line_1.split(b" ")[:2], signature])
    for first, error in ((line_1, SealBroken), (signed, RecordMalformed)):
        shop.file(1).write_bytes(b"\n".join([first, named, rest]))
        refused(error, lambda: shop.ledger().latest(THREAD))


def test_hmac_under_the_public_key_is_refused(shop: Shop, tmp_path: Path) -> None:
    """The forger knows the public key, and signs by HMAC as if it were a secret."""
    public = public_bytes(shop.key, tmp_path)
    line_1, line_2, rest = shop.file(1).read_bytes().split(b"\n", 2)
    mac = hmac.digest(public, b"safepoint/1 record\n" + line_2, "sha256")
    assert Key(public).verify(b"safepoint/1 record\n" + line_2, mac)
    forged = b" ".join([*line_1.split(b" ")[:2], base64.b64encode(mac)])
    shop.file(1).write_bytes(b"\n".join([forged, line_2, rest]))
    for keys in (Keyring(shop.key), Keyring(verify=shop.key.public)):
        refused(SealBroken, shop.ledger(keys=keys).latest, THREAD)


@pytest.mark.parametrize("by", [0, 1])
def test_signature_of_the_other_algorithm_is_refused(tmp_path: Path, by: int) -> None:
    """Both keys are trusted; each counts by its own algorithm alone."""
    keys = [Key.generate(), Key.generate("ed25519")]
    shop = Shop(tmp_path, keys[by])
    shop.fill([1])
    content = shop.file(1).read_bytes()
    shop.file(1).write_bytes(content.replace(keys[by].id.encode(), keys[1 - by].id.encode(), 1))
    refused(SealBroken, lambda: shop.ledger(keys=Keyring(verify=keys)).latest(THREAD))


def test_key_file_of_another_algorithm_is_refused(shop: Shop, tmp_path: Path) -> None:
    """Nor can a file turn a public key into a secret, or a reader's key into a writer's."""
    tmp_path.chmod(0o700)
    text = base64.b64encode(public_bytes(shop.key, tmp_path)).decode()
    file = tmp_path / "confused.key"
    for first in ("safepoint-public-key/1 hmac-sha256", "safepoint-public-key/1 none"):
        file.write_text(f"{first} {text}\n")
        file.chmod(0o600)
        refused(KeyRefused, lambda: VerifyingKey.from_file(file))
    said = refused(KeyRefused, lambda: Key.from_file(tmp_path / "reader.key"))
    assert "holds a public key, and the secret half" in said


def test_a_refusal_leads_to_no_second_decoder(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands there, the codec is asked once or not at all."""
    asked: list[bytes] = []
    monkeypatch.setattr(Codec, "decode", lambda self, data: asked.append(data))
    genuine = shop.file(1).read_bytes()
    shop.ledger().latest(THREAD)
    for content in (b"", b"{}", genuine[:-1], genuine.replace(b"42", b"43"), b"\x80\x04N."):
        shop.file(1).write_bytes(content)
        with pytest.raises(CheckpointError):
            shop.ledger().latest(THREAD)
    assert asked == [b'{"amount":42}']
