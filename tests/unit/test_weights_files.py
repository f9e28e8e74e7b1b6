"""Opening a model file: once, whole, a regular file, and the same bytes for everybody after."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import io
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from safepoint.errors import (
    ConfigurationError,
    LimitExceeded,
    ModelMalformed,
    NotFound,
    StorageUnavailable,
    shell,
)
from safepoint.pickles.kinds import Kind
from safepoint.weights import (
    DEFAULT_MODEL_LIMITS,
    ModelLimits,
    load_checkpoint,
    loading,
    reading,
    save_checkpoint,
)
from safepoint.weights.digest import digest
from safepoint.weights.files import is_private, open_model
from safepoint.weights.plan import read_plan
from tests.unit.storage_helpers import descriptors
from tests.unit.weights_helpers import (
    KEY,
    KEYS,
    Mark,
    hostile,
    refused,
    same,
    saved,
    state_dict,
)

LIMITS = DEFAULT_MODEL_LIMITS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(tmp_path / "model.pt")


def test_a_private_file_is_used_as_it_is(path: Path) -> None:
    path.chmod(0o600)
    with open_model(path, LIMITS) as model:
        assert (model.path, model.private, model.kind) == (str(path), True, Kind.TORCH_ZIP)
        assert model.file.fileno() > 2
        assert model.size == path.stat().st_size
        assert model.digest() == digest(path.read_bytes())
    assert model.file.closed


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_can_write_is_copied(path: Path, mode: int) -> None:
    """From then on, nobody can change what was looked at."""
    content = path.read_bytes()
    path.chmod(mode)
    with open_model(path, LIMITS) as model:
        path.write_bytes(b"edited")
        assert isinstance(model.file, io.BytesIO)
        assert not model.private
        assert (model.file.getvalue(), model.size) == (content, len(content))
        assert model.digest() == digest(content)


@pytest.mark.parametrize(
    ("mode", "private"), [(0o600, True), (0o644, True), (0o664, False), (0o646, False)]
)
def test_what_is_private(path: Path, mode: int, private: bool) -> None:
    path.chmod(mode)
    with path.open("rb") as file:
        assert is_private(file.fileno()) is private


def test_a_file_of_another_user_is_not_private(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner can write it, and give others the right to. Root could anyway."""
    path.chmod(0o644)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with path.open("rb") as file:
        assert not is_private(file.fileno())


def test_swapping_the_name_changes_nothing(tmp_path: Path, path: Path) -> None:
    """The name is looked up once. What it means later is of no interest."""
    content = path.read_bytes()
    other = hostile(tmp_path / "other.pt", tmp_path / "marker")
    with open_model(path, LIMITS) as model:
        other.replace(path)
        assert model.file.read() == content
        assert model.digest() == digest(content)


@pytest.mark.parametrize("mode", [0o600, 0o666], ids=["private", "shared"])
def test_swapped_between_the_plan_and_the_load(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """What was checked is what is loaded, whoever puts another file there in between."""
    other = hostile(tmp_path / "other.pt", tmp_path / "marker")
    path.chmod(mode)
    real = read_plan

    def read_and_swap(*arguments: object) -> object:
        plan = real(*arguments)  # type: ignore[arg-type]
        other.replace(path)
        return plan

    monkeypatch.setattr(reading, "read_plan", read_and_swap)
    assert same(load_checkpoint(path), state_dict())
    assert not other.exists()
    assert not (tmp_path / "marker").exists()


def test_edited_between_the_plan_and_the_load(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others can write this file, and do so in place: one bit of a weight, at the worst moment."""
    path.chmod(0o666)
    real = read_plan

    def read_and_edit(*arguments: object) -> object:
        plan = real(*arguments)  # type: ignore[arg-type]
        with path.open("r+b") as file:
            at = path.read_bytes().index(state_dict()["weight"].numpy().tobytes())
            file.seek(at)
            file.write(b"\xff" * 24)
        return plan

    monkeypatch.setattr(reading, "read_plan", read_and_edit)
    assert same(load_checkpoint(path), state_dict())
    monkeypatch.undo()
    assert not same(torch.load(path, weights_only=True), state_dict())


def test_sealed_bytes_are_the_loaded_ones(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Swapped after its seal was verified: the file that was verified is loaded."""
    model = path.with_name("model.safetensors")
    save_checkpoint(model, state_dict(), key=KEY)
    other = path.with_name("other.safetensors")
    save_checkpoint(other, {"weight": torch.full((2, 3), 9.0)}, key=KEY)
    real = loading.verified

    def verify_and_swap(*arguments: object) -> object:
        sealed = real(*arguments)  # type: ignore[arg-type]
        other.replace(model)
        return sealed

    monkeypatch.setattr(loading, "verified", verify_and_swap)
    assert same(load_checkpoint(model, keys=KEYS), state_dict())
    assert not other.exists()


def test_a_change_of_a_tensor_stays_in_memory(tmp_path: Path) -> None:
    """Training goes on in place on what was loaded. The file must not follow."""
    path = tmp_path / "model.safetensors"
    save_file(state_dict(), path)
    before = path.read_bytes()
    tensors = load_checkpoint(path)
    tensors["weight"].fill_(7)
    assert path.read_bytes() == before
    assert same(load_checkpoint(path), state_dict())


def test_a_file_that_is_too_large(path: Path) -> None:
    size = path.stat().st_size
    with open_model(path, ModelLimits(file_bytes=size)):
        pass
    message = (
        f"{path} is {size} bytes, over the limit of {size - 1}. If it is meant to be that large,"
        " raise ModelLimits.file_bytes."
    )
    with refused(LimitExceeded, message):
        load_checkpoint(path, limits=ModelLimits(file_bytes=size - 1))


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """A hole of a terabyte, which others can write: it is refused by its size alone."""
    path = tmp_path / "hole.pt"
    path.touch()
    os.truncate(path, 1 << 40)
    path.chmod(0o666)
    with pytest.raises(LimitExceeded, match="1099511627776 bytes, over the limit"):
        load_checkpoint(path)


def test_missing(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    message = f"There is no file {path}. Check the path. Nothing was loaded."
    with refused(NotFound, message):
        load_checkpoint(path)
    path.symlink_to("nowhere")
    with refused(NotFound, message):
        load_checkpoint(path)


def test_a_folder(tmp_path: Path) -> None:
    before = descriptors()
    message = f"{tmp_path} is a folder. Name the file of the model in it."
    with refused(StorageUnavailable, message):
        load_checkpoint(tmp_path)
    assert descriptors() == before


def test_a_pipe(tmp_path: Path) -> None:
    """Opening a pipe would wait for somebody who writes."""
    path = tmp_path / "model.pt"
    os.mkfifo(path)
    message = f"{path} is not a regular file. Name a file; nothing else is read."
    with refused(StorageUnavailable, message):
        load_checkpoint(path)


def test_a_device() -> None:
    message = "/dev/zero is not a regular file. Name a file; nothing else is read."
    with refused(StorageUnavailable, message):
        load_checkpoint("/dev/zero")


def test_not_a_folder_on_the_way(path: Path) -> None:
    message = f"{path}/x cannot be read (ENOTDIR). Name a file that this user can read."
    with refused(StorageUnavailable, message):
        load_checkpoint(path / "x")


def test_a_loop_of_links(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.symlink_to(path)
    message = f"{path} cannot be read (ELOOP). Name a file that this user can read."
    with refused(StorageUnavailable, message):
        load_checkpoint(path)


def test_no_permission(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read all, so here the call itself refuses."""

    def denied(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    message = f"{path} cannot be read (EACCES). Name a file that this user can read."
    with refused(StorageUnavailable, message):
        load_checkpoint(path)


def test_a_name_that_is_too_long() -> None:
    with pytest.raises(StorageUnavailable, match=r"cannot be read \(ENAMETOOLONG\)"):
        load_checkpoint("a" * 5000)


@pytest.mark.parametrize("path", [7, None, b"model.pt", ["model.pt"]], ids=repr)
def test_no_path(path: object) -> None:
    message = (
        f"A model's path is a text or a Path, not {type(path).__name__}. Write"
        ' load_checkpoint("model.safetensors").'
    )
    with refused(ConfigurationError, message):
        load_checkpoint(path)  # type: ignore[arg-type]


class Bytes(os.PathLike[bytes]):
    def __fspath__(self) -> bytes:
        return b"model.pt"


@pytest.mark.parametrize("path", ["", "a\0b", Bytes()], ids=["empty", "a null", "bytes"])
def test_no_path_either(path: str) -> None:
    message = 'This cannot be the path of a file. Write load_checkpoint("model.safetensors").'
    with refused(ConfigurationError, message):
        load_checkpoint(path)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ""])
def test_empty(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.touch()
    message = f"{path} is empty. Copy it again: the save or the copy did not finish."
    with refused(ModelMalformed, message):
        load_checkpoint(path)


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("name", ["model.safetensors", "MODEL.SafeTensors"])
def test_a_pickle_with_the_name_of_safetensors(tmp_path: Path, name: str, safe: bool) -> None:
    """People trust a file by its ending, and so do tools. Not even safe=False goes on."""
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Mark(tmp_path / "marker")))
    message = (
        f"{path} is a pickle, whatever its name says. Nothing was loaded. Ask who named it; if"
        " that was you, give it the right ending."
    )
    with refused(ModelMalformed, message):
        load_checkpoint(path, safe=safe)
    assert not (tmp_path / "marker").exists()


def test_an_archive_with_the_name_of_safetensors(tmp_path: Path, path: Path) -> None:
    path = path.rename(tmp_path / "model.safetensors")
    message = (
        f"{path} is a PyTorch archive, whatever its name says. Nothing was loaded. Ask who named"
        " it; if that was you, give it the right ending."
    )
    with refused(ModelMalformed, message):
        load_checkpoint(path)


@pytest.mark.parametrize("ending", [".pt", ".PTH", ".ckpt", ".bin"])
def test_safetensors_with_the_name_of_pytorch(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"model{ending}"
    save_file(state_dict(), path)
    message = (
        f"{path} is a safetensors file, whatever its name says. Nothing was loaded. Ask who named"
        " it; if that was you, give it the right ending."
    )
    with refused(ModelMalformed, message):
        load_checkpoint(path)


def test_another_ending_says_nothing(tmp_path: Path, path: Path) -> None:
    """`model.7`, or none at all: then the content alone decides."""
    for name in ("model", "model.7", "model.pt.backup"):
        path = path.rename(tmp_path / name)
        assert same(load_checkpoint(path), state_dict())


@pytest.mark.parametrize(
    "name", ["a\nb.pt", "it's.pt", '"$(x)".pt', "\udcff\udc80.pt", "ü é.pt", " -rf", "a;b.pt"]
)
def test_odd_characters(tmp_path: Path, name: str) -> None:
    """Any name that a file can have works, and stays on one line of ASCII in a message."""
    path = saved(tmp_path / "plain.pt").rename(tmp_path / name)
    assert same(load_checkpoint(path), state_dict())
    whole = path.read_bytes()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("plain/more", b"")
    for content in (b"", whole[:-1], path.read_bytes(), pickle.dumps([1])):
        path.write_bytes(content)
        with pytest.raises(ModelMalformed) as caught:
            load_checkpoint(path)
        said = str(caught.value)
        assert said.startswith(shell(str(path)))
        assert said.isascii()
        assert said.isprintable()


def test_a_file_that_shrinks_while_it_is_read(path: Path) -> None:
    """Its own user cut it off: an error, and not a crash by a signal."""
    path.chmod(0o600)
    with open_model(path, LIMITS) as model:
        os.truncate(path, 10)
        message = (
            f"{path} became shorter while it was read. Nothing was loaded. Wait until whoever"
            " writes it is done."
        )
        with refused(ModelMalformed, message):
            model.digest()


def test_a_disk_that_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> Kind:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("safepoint.weights.files.identify", broken)
    message = f"{path} cannot be read (EIO). Name a file that this user can read."
    with refused(StorageUnavailable, message):
        load_checkpoint(path)
