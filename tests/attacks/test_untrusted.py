"""SP01, SP02, SP03, SP10: what nobody vouched for is refused before anything decodes it."""

from __future__ import annotations

import base64
import hmac
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safepoint import CheckpointError, Codec, Keyring, SealBroken, SigningKey, Workflow
from safepoint.attacks import MARKER
from safepoint.attacks.payload import marker_pickle
from tests.attacks.helpers import THREAD, Shop
from tests.house import refused

PREFIX = b"safepoint/1 record\n"


def with_signature(record: bytes, line_2: bytes, signature: bytes) -> bytes:
    """The record with another header, under a signature and the id of the genuine key."""
    line_1, _, rest = record.split(b"\n", 2)
    words = [*line_1.split(b" ")[:2], base64.b64encode(signature)]
    return b"\n".join([b" ".join(words), line_2, rest])


def planted(shop: Shop, folder: Path) -> list[tuple[bytes, type[CheckpointError]]]:
    """What somebody without the key can put in the place of a record, and the refusal."""
    genuine = shop.file(1).read_bytes()
    line_2 = genuine.split(b"\n", 2)[1]
    forger = Shop(folder / "forged")
    staging = Shop(folder / "staging", shop.key, store="staging")
    for each, thread in ((forger, THREAD), (shop, "order-8"), (staging, THREAD)):
        each.fill([{"amount": 5_000_000}], thread)
    shop.key.public.to_file(folder / "reader.key")
    public = base64.b64decode((folder / "reader.key").read_text().split()[1])[-32:]
    named = b'{"alg":"none",' + line_2[1:]
    junk = [b"", b"\n", b"\0" * 1000, b"safepoint/1 ", b"safepoint/9 x y\n", b'{"amount": 42}\n']
    junk += [b"PK\x03\x04" + b"\0" * 100, "ｓafepoint/1".encode(), bytes(range(256)) * 40]
    junk += [marker_pickle(folder / MARKER), b"pickle\n" + marker_pickle(folder / MARKER)]
    junk += [genuine.replace(b" ", b" none ", 1), genuine.replace(b"safepoint/1", b"none", 1)]
    return [
        *((each, SealBroken) for each in junk),
        (forger.file(1).read_bytes(), SealBroken),
        (shop.file(1, "order-8").read_bytes(), SealBroken),
        (staging.file(1).read_bytes(), SealBroken),
        (genuine.replace(b"\x2a", b"\x2b"), SealBroken),
        (genuine.replace(line_2, named), SealBroken),
        (with_signature(genuine, named, shop.key.sign(PREFIX + named)), SealBroken),
        # The forger knows the public key, and makes a MAC with it as if it were a secret.
        (
            with_signature(genuine, line_2, hmac.digest(public, PREFIX + line_2, "sha256")),
            SealBroken,
        ),
        (
            with_signature(genuine, line_2, hmac.digest(public, PREFIX + line_2, "sha512")),
            SealBroken,
        ),
    ]


def test_what_nobody_vouched_for_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no refusal leads to a second decoder."""
    tmp_path.chmod(0o700)
    shop = Shop(tmp_path, SigningKey.generate())
    shop.fill([{"amount": 42}])
    contents = planted(shop, tmp_path)
    asked: list[bytes] = []
    monkeypatch.setattr(Codec, "decode", lambda self, data: asked.append(data))
    shop.ledger().latest(THREAD)
    for content, error in contents:
        shop.file(1).write_bytes(content)
        said = refused(error, lambda: shop.ledger(anchor=None).latest(THREAD))
        assert said.isascii()
        assert "\n" not in said
    assert asked == [b"\x81\xa6amount\x2a"]
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("by", [0, 1])
def test_signature_of_another_trusted_key_is_refused(tmp_path: Path, by: int) -> None:
    """Both keys are trusted; the id that a record names is the key that it is verified with."""
    keys = [SigningKey.generate(), SigningKey.generate()]
    shop = Shop(tmp_path, keys[by])
    shop.fill([1])
    content = shop.file(1).read_bytes()
    shop.file(1).write_bytes(content.replace(keys[by].id.encode(), keys[1 - by].id.encode(), 1))
    refused(SealBroken, lambda: shop.ledger(keys=Keyring(verify=keys)).latest(THREAD))


@pytest.mark.parametrize(
    ("sequence", "old", "new"),
    [
        (2, b"amount\x2a", b"amount\x7f"),
        # Which step comes next is state, too: editing it would repeat or skip a payment.
        (3, b"\x92\xa5fetch\xa3pay", b"\x91\xa5fetch"),
    ],
)
def test_edited_state_is_refused_and_pays_nobody(
    sequence: int, old: bytes, new: bytes, tmp_path: Path
) -> None:
    paid: list[int] = []

    def fetch(state: dict[str, Any]) -> dict[str, Any]:
        return {"amount": 42}

    def pay(state: dict[str, Any]) -> None:
        paid.append(state["amount"])

    shop, invoice = Shop(tmp_path), Workflow("invoice", [fetch, pay])
    run = invoice.begin(shop.ledger(), thread=THREAD)
    for _ in range(sequence - 1):
        run.step()
    paid.clear()
    shop.edit(sequence, old, new)
    refused(SealBroken, lambda: invoice.resume(shop.ledger(), thread=THREAD))
    assert paid == []


def test_payload_only_leaves_a_marker(tmp_path: Path) -> None:
    """Under plain pickle.loads, in a process of its own."""
    (tmp_path / "payload").write_bytes(marker_pickle(tmp_path / MARKER))
    code = "import pickle, sys; pickle.loads(open('payload', 'rb').read())"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, "payload"]
