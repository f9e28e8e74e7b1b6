"""SP12: a record is refused where it does not belong, whoever signed it and however well."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from safepoint import (
    Codec,
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SealBroken,
    SealError,
    SigningKey,
)
from safepoint.errors import KeyRefused, RecordMalformed, UnknownKey, WrongPlace
from safepoint.keys import Algorithm

MOVED = "Somebody moved it: restore the record that belongs here, and find out who can write."


class NoDecoding(Codec):
    """A codec that must not be reached."""

    def decode(self, data: bytes) -> object:
        raise AssertionError("decoded before it was verified")


@pytest.fixture(params=["hmac-sha256", "ed25519"])
def key(request: pytest.FixtureRequest) -> SigningKey:
    algorithm: Algorithm = request.param
    return SigningKey.generate(algorithm)


def ledger_at(path: Path, key: SigningKey, store: str = "invoices") -> Ledger:
    return Ledger(FileCheckpointStorage(path), store=store, keys=Keyring(key))


def filled(path: Path, key: SigningKey, store: str = "invoices") -> Path:
    """Save two checkpoints of two threads, and return the folder."""
    ledger = ledger_at(path, key, store)
    for thread, amount in (("order-7", 42), ("order-8", 5_000_000)):
        ledger.save(thread, {"amount": 1})
        ledger.save(thread, {"amount": amount})
    return path


@pytest.fixture
def store(tmp_path: Path, key: SigningKey) -> Path:
    return filled(tmp_path / "state", key)


def record(path: Path, thread: str = "order-7", sequence: int = 2) -> Path:
    return path / thread / f"{sequence:010}.checkpoint"


def refusal_of(store: Path, key: SigningKey, content: bytes) -> SealError:
    """Put `content` where order-7 #2 was, load it, and return the refusal."""
    record(store).write_bytes(content)
    keys = Keyring(key) if key.algorithm == "hmac-sha256" else Keyring(verify=key.public)
    reader = Ledger(FileCheckpointStorage(store), store="invoices", keys=keys, codec=NoDecoding())
    with pytest.raises(SealError) as refusal:
        reader.latest("order-7")
    return refusal.value


def test_swap_of_threads_is_refused(store: Path, key: SigningKey) -> None:
    refusal = refusal_of(store, key, record(store, "order-8").read_bytes())
    assert type(refusal) is WrongPlace
    assert str(refusal) == (
        "The record at order-7 #2 of store invoices is the one of order-8 #2 of store invoices."
        f" {MOVED}"
    )


def test_swap_of_stores_is_refused(store: Path, key: SigningKey, tmp_path: Path) -> None:
    """Even if both stores share a key."""
    other = filled(tmp_path / "other", key, "test-invoices")
    refusal = refusal_of(store, key, record(other).read_bytes())
    assert type(refusal) is WrongPlace
    assert str(refusal) == (
        "The record at order-7 #2 of store invoices is the one of order-7 #2 of store"
        " test-invoices. Somebody may have moved it here. Only if you mistyped the name of the"
        " store, open the ledger with the right one."
    )


def test_replay_of_an_older_record_on_top_is_refused(store: Path, key: SigningKey) -> None:
    refusal = refusal_of(store, key, record(store, sequence=1).read_bytes())
    assert type(refusal) is WrongPlace
    assert str(refusal) == (
        "The record at order-7 #2 of store invoices is the one of order-7 #1 of store invoices."
        f" {MOVED}"
    )


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("thread", b'"thread":"order-7"', b'"thread":"order-8"'),
        ("store", b'"store":"invoices"', b'"store":"invoicez"'),
        ("sequence", b'"sequence":2', b'"sequence":3'),
        ("previous", b'"previous":"sha256:', b'"previous":"sha256:0'),
        ("kind", b'"kind":"state"', b'"kind":"deleted"'),
        ("app", b'"app":""', b'"app":"mallory"'),
        ("tools", b'"tools":null', b'"tools":"sha256:' + b"0" * 64 + b'"'),
        ("created", b'"created":"2', b'"created":"3'),
        ("state", b'"amount":42', b'"amount":43'),
    ],
)
def test_edit_of_what_is_sealed_is_refused(
    store: Path, key: SigningKey, field: str, old: bytes, new: bytes
) -> None:
    genuine = record(store).read_bytes()
    assert old in genuine, field
    refusal = refusal_of(store, key, genuine.replace(old, new, 1))
    assert type(refusal) is SealBroken
    assert str(refusal).endswith(
        "Nothing was decoded. Do not use it: find out who can write the store,"
        " then restore a copy that verifies."
    )


def test_signature_of_another_record_is_refused(store: Path, key: SigningKey) -> None:
    line_1 = record(store, "order-8").read_bytes().split(b"\n")[0]
    rest = record(store).read_bytes().split(b"\n", 1)[1]
    refusal = refusal_of(store, key, line_1 + b"\n" + rest)
    assert type(refusal) is SealBroken
    assert refusal.what == "order-7 #2 was changed after it was sealed, or was never sealed."


def test_substituted_key_is_refused(store: Path, key: SigningKey, tmp_path: Path) -> None:
    """By its own id, and under the id of the key that the reader trusts."""
    mallory = SigningKey.generate(key.algorithm)
    forged = record(filled(tmp_path / "forged", mallory)).read_bytes()
    refusal = refusal_of(store, key, forged)
    assert type(refusal) is UnknownKey
    assert str(refusal) == (
        f"order-7 #2 cannot be verified. It names key '{mallory.id}', which is not on this"
        " keyring. If that key is one of yours, add it with Keyring(..., verify=[key]); if not,"
        " treat the record as forged."
    )
    renamed = forged.replace(mallory.id.encode(), key.id.encode(), 1)
    assert type(refusal_of(store, key, renamed)) is SealBroken


def test_public_key_used_as_an_hmac_secret_is_refused(tmp_path: Path) -> None:
    """Algorithm downgrade: the reader's key says Ed25519, whatever the record looks like."""
    key = SigningKey.generate("ed25519")
    key.public.to_file(tmp_path / "reader.key")
    public = base64.b64decode((tmp_path / "reader.key").read_text().split()[-1])
    forger = SigningKey(public)
    store = filled(tmp_path / "state", key)
    forged = record(filled(tmp_path / "forged", forger)).read_bytes()
    renamed = forged.replace(forger.id.encode(), key.id.encode(), 1)
    assert type(refusal_of(store, key, renamed)) is SealBroken


@pytest.mark.parametrize("line_1", [b"", b"safepoint/1\n", b"safepoint/1 none \n"])
def test_stripped_signature_is_refused(store: Path, key: SigningKey, line_1: bytes) -> None:
    rest = record(store).read_bytes().split(b"\n", 1)[1]
    refusal = refusal_of(store, key, line_1 + rest)
    assert type(refusal) is RecordMalformed
    assert refusal.what == "order-7 #2 is not a sealed record."


def test_base_put_in_place_of_a_checkpoint_is_refused(store: Path, key: SigningKey) -> None:
    """What prune leaves is sealed for the same place, and is not a state."""
    ledger_at(store, key).prune("order-7", keep=1)
    base = (store / "order-7" / "base").read_bytes()
    refusal = refusal_of(store, key, base[base.index(b"safepoint/1 ") :])
    assert type(refusal) is WrongPlace
    assert str(refusal) == (
        f"The record at order-7 #2 is of the kind base, which does not belong there. {MOVED}"
    )


def test_reader_with_the_public_half_cannot_seal(tmp_path: Path) -> None:
    key = SigningKey.generate("ed25519")
    storage = FileCheckpointStorage(filled(tmp_path / "state", key))
    reader = Ledger(storage, store="invoices", keys=Keyring(verify=key.public))
    assert reader.latest("order-7").state == {"amount": 42}
    with pytest.raises(KeyRefused) as refusal:
        reader.save("order-7", {"amount": 5_000_000})
    assert refusal.value.what == "This keyring only verifies: no key on it signs."
    assert storage.head("order-7") == 2
