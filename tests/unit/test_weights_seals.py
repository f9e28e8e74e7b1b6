"""The seal of a model: whose it is, of which file and which name, and what does not pass for it."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    Revoked,
    SigningKey,
    VerifyingKey,
)
from safepoint.errors import (
    ConfigurationError,
    Conflict,
    InvalidId,
    KeyRevoked,
    LimitExceeded,
    NotFound,
    RecordMalformed,
    SealBroken,
    SealError,
    StorageUnavailable,
    UnknownKey,
    WrongPlace,
)
from safepoint.record import Place, seal
from safepoint.weights import load_checkpoint, save_checkpoint, seal_model
from safepoint.weights.digest import digest
from safepoint.weights.seals import REST_BYTES, STORE, Sealed, make_seal, name_of, read_seal
from tests.unit.storage_helpers import descriptors
from tests.unit.weights_helpers import (
    KEY,
    KEYS,
    hostile,
    listed,
    refused,
    same,
    saved,
    state_dict,
)

DISTRUST = (
    "Nothing was decoded. Do not use it: find out who can write the store, then restore a copy that"
    " verifies."
)
NO_DIGEST = "sha256-tree:" + "0" * 64
NEWER = "Nothing was decoded. If a newer safepoint wrote it, upgrade here too."


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a sealed checkpoint."""
    path = tmp_path / "run-7.safetensors"
    save_checkpoint(path, {**state_dict(), "epoch": 7}, key=KEY)
    return path


def seal_of(path: Path) -> Path:
    return path.with_name(path.name + ".seal")


def test_it_is_text_beside_the_file(model: Path) -> None:
    """Three lines that a person can read. The last one names the digest of the whole file."""
    first, second, third = seal_of(model).read_text().splitlines()
    assert first.startswith(f"safepoint/1 {KEY.id} ")
    assert '"store":"safepoint-models","thread":"run-7"' in second
    content = model.read_bytes()
    assert third.startswith(f'{{"bytes":{len(content)},"digest":"{digest(content)}","rest":{{')
    assert '"epoch":7' in third
    assert listed(model.parent) == ["run-7.safetensors", "run-7.safetensors.seal"]
    assert seal_of(model).stat().st_mode & 0o777 == 0o600


def test_what_it_says(model: Path) -> None:
    sealed = read_seal(str(model), KEYS)
    content = model.read_bytes()
    assert (sealed.name, sealed.size, sealed.digest) == ("run-7", len(content), digest(content))
    assert "epoch" not in repr(sealed)


def test_a_public_key_verifies_and_cannot_seal(tmp_path: Path) -> None:
    key = SigningKey.generate("ed25519")
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, state_dict(), key=key)
    public = key.public
    assert isinstance(public, VerifyingKey)
    assert same(load_checkpoint(path, keys=Keyring(verify=[public])), state_dict())
    message = (
        f"A model is sealed with a SigningKey, not with {type(public).__name__}. Write"
        ' key=SigningKey.from_file("model.key").'
    )
    with refused(ConfigurationError, message):
        seal_model(path, key=public)  # type: ignore[arg-type]


def not_the_file(path: Path) -> str:
    return (
        f"{path} is not the file that was sealed as {path.stem}. Nothing was loaded. Find out who"
        " can write it, then restore the one that verifies."
    )


def test_one_bit_of_a_weight(model: Path) -> None:
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    with refused(SealBroken, not_the_file(model)):
        load_checkpoint(model, keys=KEYS)


def test_another_file_with_this_name(model: Path) -> None:
    """Genuine, sealed by the same key, of the same size: and not this one."""
    other = model.with_name("run-8.safetensors")
    save_checkpoint(other, {**state_dict(), "weight": torch.ones(2, 3), "epoch": 8}, key=KEY)
    shutil.copy(other, model)
    with refused(SealBroken, not_the_file(model)):
        load_checkpoint(model, keys=KEYS)


def test_another_file_with_its_own_seal(model: Path) -> None:
    """Both are genuine, and are run-8: an older or weaker model cannot pass for run-7."""
    other = model.with_name("run-8.safetensors")
    save_checkpoint(other, {**state_dict(), "epoch": 8}, key=KEY)
    shutil.copy(other, model)
    shutil.copy(seal_of(other), seal_of(model))
    message = (
        f"{model} is sealed as run-8. If you renamed it, pass name='run-8'. If not, somebody put it"
        " there: restore the one that belongs there."
    )
    with refused(WrongPlace, message):
        load_checkpoint(model, keys=KEYS)


def test_a_dot_in_the_name_is_part_of_it(tmp_path: Path) -> None:
    """Else model.v1 with its seal would pass for model.v2."""
    first, second = tmp_path / "model.v1.safetensors", tmp_path / "model.v2.safetensors"
    message = (
        f"The name of {first} cannot be that of a model. Pass one, when you save and when you load:"
        " name=… Use 1 to 64 of a-z, 0-9, '-' and '_', and start with a letter or digit."
    )
    with refused(InvalidId, message):
        save_checkpoint(first, state_dict(), key=KEY)
    assert listed(tmp_path) == []
    save_checkpoint(first, state_dict(), key=KEY, name="model-v1")
    first.rename(second)
    seal_of(first).rename(seal_of(second))
    assert same(load_checkpoint(second, keys=KEYS, name="model-v1"), state_dict())
    with pytest.raises(WrongPlace):
        load_checkpoint(second, keys=KEYS, name="model-v2")
    with pytest.raises(InvalidId):
        load_checkpoint(second, keys=KEYS)


@pytest.mark.parametrize("name", ["", "Model", "a b", "../x", "a.b", "con", 7, "a\n", "x" * 65])
def test_a_name_outside_the_grammar(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidId):
        save_checkpoint(tmp_path / "model.safetensors", state_dict(), key=KEY, name=name)
    assert listed(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/run-7.safetensors", "run-7"),
        ("model", "model"),
        ("/x/m.pt", "m"),
        ("m.SafeTensors", "m"),
    ],
)
def test_the_name_of_a_file(path: str, name: str) -> None:
    assert name_of(path, None) == name
    assert name_of(path, "given") == "given"


def test_another_key(model: Path) -> None:
    message = (
        f"The seal of {model} cannot be verified. It names key '{KEY.id}', which is not on this"
        " keyring. If that key is one of yours, add it with Keyring(..., verify=[key]); if not,"
        " treat the record as forged."
    )
    with refused(UnknownKey, message):
        load_checkpoint(model, keys=Keyring(SigningKey.generate()))


def test_an_older_key_still_counts(model: Path) -> None:
    keys = Keyring(SigningKey.generate(), verify=[KEY])
    assert load_checkpoint(model, keys=keys)["epoch"] == 7


def test_a_revoked_key(model: Path) -> None:
    """Whoever stole the key may have sealed this."""
    keys = Keyring(SigningKey.generate(), revoked=[Revoked(KEY, None)])
    message = (
        f"{model} is sealed by key {KEY.id}, which was revoked and does not count here. Whoever"
        " stole that key may have written it. Restore what was there before, and save with the new"
        " key."
    )
    with refused(KeyRevoked, message):
        load_checkpoint(model, keys=keys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            b'"epoch":7',
            b'"epoch":8',
            f"The state in the seal of MODEL is not the one that was sealed. {DISTRUST}",
        ),
        (
            b'"thread":"run-7"',
            b'"thread":"run-8"',
            f"The seal of MODEL was changed after it was sealed, or was never sealed. {DISTRUST}",
        ),
        (
            b"safepoint/1 ",
            b"safepoint/2 ",
            f"The seal of MODEL says that it is of format safepoint/2, not safepoint/1. {NEWER}",
        ),
    ],
    ids=["the rest", "the name", "the format"],
)
def test_an_edited_seal(model: Path, old: bytes, new: bytes, message: str) -> None:
    content = seal_of(model).read_bytes()
    assert content.count(old) == 1
    seal_of(model).write_bytes(content.replace(old, new))
    with pytest.raises(SealError) as caught:
        load_checkpoint(model, keys=KEYS)
    assert str(caught.value) == message.replace("MODEL", str(model))


def test_every_byte_of_a_seal_counts(model: Path) -> None:
    """Every third, to save time; and no byte may be added or missing."""
    content = seal_of(model).read_bytes()
    for at in range(0, len(content), 3):
        seal_of(model).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(SealError):
            read_seal(str(model), KEYS)
    for edited in (content + b"\n", content[:-1], content[1:], b"", content * 2):
        seal_of(model).write_bytes(edited)
        with pytest.raises(SealError):
            read_seal(str(model), KEYS)


def test_no_seal(model: Path) -> None:
    """Keys ask for a seal. Without one nothing is loaded."""
    seal_of(model).unlink()
    message = (
        f"{model} has no seal: there is no {model}.seal. Nothing was loaded. Bring the seal along"
        " with the model, or ask whoever made it to seal it. If that was you: python -m"
        f" safepoint.weights seal {model} --key KEY"
    )
    with refused(NotFound, message):
        load_checkpoint(model, keys=KEYS)


@pytest.mark.parametrize("safe", [True, False])
def test_a_seal_and_no_keys(model: Path, safe: bool) -> None:
    """Somebody forgot the keys: that must not turn the seal off."""
    message = (
        f"{model} has a seal, and no keys were given to verify it. Pass keys=Keyring(…). To do"
        f" without, move {model}.seal away."
    )
    with refused(ConfigurationError, message):
        load_checkpoint(model, safe=safe)
    seal_of(model).unlink()
    seal_of(model).symlink_to("nowhere")
    with refused(ConfigurationError, message):
        load_checkpoint(model, safe=safe)


def test_a_seal_where_a_link_leads_and_no_keys(tmp_path: Path, model: Path) -> None:
    """Through a link it is the same model. Its seal is not left out because it is elsewhere."""
    folder, link = tmp_path / "links", tmp_path / "links" / "model.safetensors"
    folder.mkdir()
    link.symlink_to(model)
    (tmp_path / "folder").symlink_to(tmp_path, target_is_directory=True)
    for path, seal_path in (
        (link, f"{model}.seal"),
        (tmp_path / "folder" / model.name, f"{tmp_path}/folder/{model.name}.seal"),
    ):
        message = (
            f"{path} has a seal, and no keys were given to verify it. Pass keys=Keyring(…). To do"
            f" without, move {seal_path} away."
        )
        with refused(ConfigurationError, message):
            load_checkpoint(path)
    seal_of(model).unlink()
    assert load_checkpoint(link).keys() == state_dict().keys()


@pytest.mark.parametrize("keys", [KEY, "key", [KEY]], ids=lambda keys: type(keys).__name__)
def test_keys_that_are_none(model: Path, keys: object) -> None:
    message = (
        f"A seal is verified with a Keyring, not with {type(keys).__name__}. Write"
        " keys=Keyring(SigningKey.from_file(…)), or for a public key"
        " Keyring(verify=[VerifyingKey.from_file(…)])."
    )
    with refused(ConfigurationError, message):
        load_checkpoint(model, keys=keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("store", ["models", "weights"])
def test_a_record_of_a_ledger(model: Path, tmp_path: Path, store: str) -> None:
    """The same key, thread and sequence. It says what a seal says, and is of another store."""
    state = {"bytes": model.stat().st_size, "digest": digest(model.read_bytes()), "rest": None}
    storage = FileCheckpointStorage(tmp_path / "store")
    with pytest.raises(InvalidId, match="is kept for this package"):
        Ledger(storage, store=STORE, keys=KEYS)
    Ledger(storage, store=store, keys=KEYS).save("run-7", state)
    seal_of(model).write_bytes(storage.read("run-7", 1))
    message = (
        f"The seal of {model} is a genuine record, and not one of a model. Nothing was loaded."
        " Somebody put it there: restore the model's own seal."
    )
    with refused(WrongPlace, message):
        load_checkpoint(model, keys=KEYS)


@pytest.mark.parametrize(
    "state",
    [
        b"{}",
        b'{"amount":42}',
        b'{"bytes":0,"digest":"sha256-tree:%b","rest":null}' % (b"0" * 64),
        b'{"bytes":1,"digest":"sha256:%b","rest":null}' % (b"0" * 64),
        b'{"bytes":1,"digest":"sha256-tree:%b"}' % (b"0" * 64),
        b' {"bytes":1,"digest":"sha256-tree:%b","rest":null}' % (b"0" * 64),
    ],
)
def test_a_genuine_record_that_is_no_seal(model: Path, state: bytes) -> None:
    """A ledger with the name `weights` wrote it, with the same key. It does not speak of models."""
    record, _ = seal(state, Place(STORE, "run-7", 1), KEY, created=datetime.now(UTC))
    seal_of(model).write_bytes(record)
    message = (
        f"The seal of {model} does not speak of a model. Nothing was loaded. Seal the model anew"
        " with save_checkpoint or seal_model."
    )
    with refused(RecordMalformed, message):
        load_checkpoint(model, keys=KEYS)


@pytest.mark.parametrize("waiting", [False, True], ids=["alone", "with a writer that waits"])
def test_a_pipe_in_the_place_of_the_seal(model: Path, waiting: bool) -> None:
    """It neither waits for a writer, nor takes silence for a seal."""
    seal_of(model).unlink()
    os.mkfifo(seal_of(model))
    writer = os.open(seal_of(model), os.O_RDWR) if waiting else None
    before = descriptors()
    message = f"{model}.seal is not a regular file. Mend that, and load again."
    with refused(StorageUnavailable, message):
        load_checkpoint(model, keys=KEYS)
    assert descriptors() == before
    if writer is not None:
        os.close(writer)


def test_a_folder_in_the_place_of_the_seal(model: Path) -> None:
    seal_of(model).unlink()
    seal_of(model).mkdir()
    before = descriptors()
    message = f"{model}.seal is not a regular file. Mend that, and load again."
    with refused(StorageUnavailable, message):
        load_checkpoint(model, keys=KEYS)
    assert descriptors() == before


def test_a_link_that_leads_nowhere_else(model: Path) -> None:
    seal_of(model).unlink()
    seal_of(model).symlink_to(seal_of(model))
    with pytest.raises(StorageUnavailable, match=r"cannot be read \(Too many levels"):
        load_checkpoint(model, keys=KEYS)


def test_a_seal_without_end(model: Path) -> None:
    """It is read up to the limit, and not further."""
    os.truncate(seal_of(model), 1 << 40)
    with pytest.raises(LimitExceeded, match="over the limit"):
        load_checkpoint(model, keys=KEYS)


def test_sealing_a_file_that_is_there(tmp_path: Path) -> None:
    """It stays as it is, byte for byte, and gets a seal."""
    path = saved(tmp_path / "model.pt")
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert seal_model(path, key=KEY) == digest(before[0])
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert same(load_checkpoint(path, keys=KEYS), state_dict())
    message = (
        f"{path} has a seal already. Verify it instead; to seal the file anew, move"
        f" {path}.seal away."
    )
    with refused(Conflict, message):
        seal_model(path, key=KEY)


def test_a_seal_does_not_make_a_file_safe(tmp_path: Path) -> None:
    """Whoever sealed it vouches for it. safe=True refuses it all the same."""
    path = hostile(tmp_path / "model.pt", tmp_path / "marker")
    seal_model(path, key=KEY)
    with pytest.raises(RuntimeError, match=r"posix\.mkdir"):
        load_checkpoint(path, keys=KEYS)
    assert not (tmp_path / "marker").exists()


def test_sealing_what_its_name_does_not_say(tmp_path: Path) -> None:
    path = saved(tmp_path / "plain.pt").rename(tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match="whatever its name says"):
        seal_model(path, key=KEY)
    assert listed(tmp_path) == ["model.safetensors"]


def test_a_rest_that_is_too_large(tmp_path: Path) -> None:
    """What readers would refuse is not written."""
    message = (
        f"Besides its tensors the checkpoint holds over {REST_BYTES} bytes. Save large arrays of"
        " numbers as tensors."
    )
    fits = b'"%b"' % (b"x" * (REST_BYTES - 2))
    (tmp_path / "a.pt.seal").write_bytes(make_seal(Sealed("a", NO_DIGEST, 8, fits), KEY))
    assert read_seal(str(tmp_path / "a.pt"), KEYS).rest == fits
    with refused(LimitExceeded, message):
        make_seal(Sealed("a", NO_DIGEST, 8, fits + b" "), KEY)
    state = {"log": ["x" * 1000] * (REST_BYTES // 1000)}
    with refused(LimitExceeded, message):
        save_checkpoint(tmp_path / "model.safetensors", state, key=KEY)
    assert listed(tmp_path) == ["a.pt.seal"]
