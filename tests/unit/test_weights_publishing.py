"""A model and its seal appear together, or not at all, and never over another."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import errno
import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from safepoint.errors import Conflict, StorageFull, StorageUnavailable
from safepoint.weights import load_checkpoint, save_checkpoint, seal_model
from safepoint.weights.publishing import publish_seal, slot
from tests.unit.storage_helpers import descriptors, fail
from tests.unit.weights_helpers import (
    KEY,
    KEYS,
    listed,
    refused,
    same,
    saved,
    state_dict,
)

PAIR = ["model.safetensors", "model.safetensors.seal"]
LEFT = ".safepoint-model-" + "0" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def taken(path: Path) -> str:
    return (
        f"{path} exists, and a checkpoint is never overwritten. Nothing was saved. Give the new one"
        " a name of its own, with the epoch or the date in it."
    )


def test_both_appear(path: Path) -> None:
    before = descriptors()
    with slot(str(path)) as place:
        place.file.write(b"model")
        assert not path.exists()
        place.publish(b"seal")
    assert listed(path.parent) == PAIR
    assert (path.read_bytes(), Path(f"{path}.seal").read_bytes()) == (b"model", b"seal")
    assert path.stat().st_nlink == 1
    assert descriptors() == before


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
def test_nobody_else_can_read_them(path: Path, umask: int) -> None:
    """Weights may be a secret. Whoever wants to share them says so."""
    old = os.umask(umask)
    try:
        save_checkpoint(path, state_dict(), key=KEY)
    finally:
        os.umask(old)
    assert [Path(f"{path}{end}").stat().st_mode & 0o777 for end in ("", ".seal")] == [0o600] * 2
    assert same(load_checkpoint(path, keys=KEYS), state_dict())


def test_nothing_appears_without_publish(path: Path) -> None:
    with slot(str(path)) as place:
        place.file.write(b"model")
    assert listed(path.parent) == []


def test_nothing_appears_after_an_error(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), slot(str(path)) as place:
        place.file.write(b"model" * (1 // 0))
    assert listed(path.parent) == []


def test_never_over_another(path: Path) -> None:
    save_checkpoint(path, state_dict(), key=KEY)
    before = [Path(f"{path}{end}").read_bytes() for end in ("", ".seal")]
    with refused(Conflict, taken(path)):
        save_checkpoint(path, {"other": torch.ones(1)}, key=KEY)
    assert [Path(f"{path}{end}").read_bytes() for end in ("", ".seal")] == before
    assert listed(path.parent) == PAIR


@pytest.mark.parametrize("what", ["a folder", "a link to nowhere", "an empty file"])
def test_never_over_anything(path: Path, what: str) -> None:
    if what == "a folder":
        path.mkdir()
    elif what == "an empty file":
        path.touch()
    else:
        path.symlink_to("nowhere")
    with refused(Conflict, taken(path)):
        save_checkpoint(path, state_dict(), key=KEY)
    assert listed(path.parent) == ["model.safetensors"]
    assert not (path.parent / "nowhere").exists()


def test_a_pair_that_appears_meanwhile(path: Path) -> None:
    """Of another saver, who was quicker: it keeps its model and its seal."""
    with refused(Conflict, taken(path)), slot(str(path)) as place:
        save_checkpoint(path, state_dict(), key=KEY)
        place.publish(b"seal")
    assert listed(path.parent) == PAIR
    assert same(load_checkpoint(path, keys=KEYS), state_dict())


def test_a_file_that_appears_at_the_last_moment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By somebody who knows of no lock. It stays, and no seal of ours is put beside it."""
    real = os.link

    def link(*arguments: Any, **keywords: Any) -> None:
        real(*arguments, **keywords)
        path.write_bytes(b"another")

    monkeypatch.setattr(os, "link", link)
    with refused(Conflict, taken(path)), slot(str(path)) as place:
        place.publish(b"seal")
    assert (listed(path.parent), path.read_bytes()) == (["model.safetensors"], b"another")


def test_the_order_of_the_calls(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is on disk before the name of the model is: its bytes, its seal, the seal's name."""
    log: list[str] = []

    def logged(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            log.append(name)
            return real(*arguments, **keywords)

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "rename", "link", "unlink", "write"):
        logged(name)
    with slot(str(path)) as place:
        place.publish(b"seal")
    model, seal, named = ["fsync"], ["write", "fsync", "link", "fsync", "unlink"], ["link", "fsync"]
    assert log == [*model, *seal, *named, "unlink"]


def test_what_a_crash_left_is_removed(path: Path) -> None:
    """A save that died: its file and its seal, one of them linked to a model already."""
    (path.parent / LEFT).write_bytes(b"half a model")
    (path.parent / LEFT.replace("0", "f")).write_bytes(b"half a seal")
    Path(f"{path}.seal").write_bytes(b"a seal without a model")
    others = [".safepoint-model-", ".safepoint-model-x", LEFT + "0", "x" + LEFT]
    for name in others:
        (path.parent / name).touch()
    save_checkpoint(path, state_dict(), key=KEY)
    (aside,) = path.parent.glob("*.seal.*")
    assert aside.read_bytes() == b"a seal without a model"
    assert listed(path.parent) == sorted([*others, *PAIR, aside.name])
    assert same(load_checkpoint(path, keys=KEYS), state_dict())


def test_what_another_saver_is_writing_is_not_removed(path: Path) -> None:
    other = path.with_name("other.safetensors")
    with slot(str(other)) as place:
        place.file.write(b"half of it")
        save_checkpoint(path, state_dict(), key=KEY)
        place.publish(b"seal")
    assert listed(path.parent) == [*PAIR, "other.safetensors", "other.safetensors.seal"]


def test_a_link_with_the_name_of_a_leftover(path: Path, tmp_path: Path) -> None:
    """Planted by somebody who wants something removed that the link leads to."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"dear")
    (path.parent / LEFT).symlink_to(victim)
    save_checkpoint(path, state_dict(), key=KEY)
    assert victim.read_bytes() == b"dear"


def test_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "model.safetensors"
    message = (
        f"The folder {tmp_path}/runs cannot be opened (No such file or directory). Make it first:"
        f" mkdir -p -m 700 {tmp_path}/runs"
    )
    with refused(StorageUnavailable, message):
        save_checkpoint(path, state_dict(), key=KEY)
    (tmp_path / "runs").touch()
    with pytest.raises(StorageUnavailable, match=r"cannot be opened \(Not a directory\)"):
        save_checkpoint(path, state_dict(), key=KEY)


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_checkpoint("model.safetensors", state_dict(), key=KEY)
    assert listed(tmp_path) == PAIR


@pytest.mark.parametrize(
    "name", ["a\nb.safetensors", "it's.safetensors", "\udcff.safetensors", "ü.safetensors"]
)
def test_odd_characters(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    save_checkpoint(path, state_dict(), key=KEY, name="odd")
    assert same(load_checkpoint(path, keys=KEYS, name="odd"), state_dict())
    assert len(listed(tmp_path)) == 2


@contextmanager
def file_size(limit: int) -> Iterator[None]:
    """Let the kernel refuse to write more than that into any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 100, 5_000, 50_000])
def test_a_full_disk(path: Path, room: int) -> None:
    """The model does not fit. Nothing is left of it, and there is no seal."""
    state = {"weight": torch.zeros(100_000)}
    message = (
        f"There is no room left for {path} (EFBIG), so nothing was saved. Free some space, or raise"
        " the quota or the file size limit, and try again."
    )
    with refused(StorageFull, message), file_size(room):
        save_checkpoint(path, state, key=KEY)
    assert listed(path.parent) == []
    save_checkpoint(path, state, key=KEY)


def test_a_disk_that_is_full_when_the_seal_comes(path: Path) -> None:
    """The tensors fit, and the rest does not."""
    state = {"weight": torch.zeros(10), "log": "x" * 50_000}
    with pytest.raises(StorageFull, match=r"model.safetensors \(EFBIG\)"), file_size(5_000):
        save_checkpoint(path, state, key=KEY)
    assert listed(path.parent) == []


@pytest.mark.parametrize(
    ("call", "at"),
    [("fsync", 1), ("fsync", 2), ("fsync", 3), ("fsync", 4), ("link", 1), ("link", 2)],
)
def test_a_step_that_fails(path: Path, monkeypatch: pytest.MonkeyPatch, call: str, at: int) -> None:
    """Whichever it is: an error, nothing visible, and the next save works."""
    with monkeypatch.context() as patch:
        fail(patch, call, 5, at, once=True)
        message = (
            f"The system could not save to {path} (EIO), so nothing was saved. Look at the system's"
            " log for the cause before you try again."
        )
        with refused(StorageUnavailable, message):
            save_checkpoint(path, state_dict(), key=KEY)
    assert listed(path.parent) == []
    save_checkpoint(path, state_dict(), key=KEY)
    assert same(load_checkpoint(path, keys=KEYS), state_dict())


@pytest.mark.parametrize("call", ["fsync", "link", "write", "fchmod"])
def test_an_interrupt_at_any_step(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, interrupt)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(path, state_dict(), key=KEY)
    assert listed(path.parent) == []
    assert descriptors() == before


def test_a_folder_where_the_seal_goes(path: Path) -> None:
    Path(f"{path}.seal").mkdir()
    with pytest.raises(StorageUnavailable, match="so nothing was saved"):
        save_checkpoint(path, state_dict(), key=KEY)
    assert listed(path.parent) == ["model.safetensors.seal"]


def test_sealing_on_a_full_disk(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.pt")
    with pytest.raises(StorageFull, match=r"model.pt.seal \(EFBIG\)"), file_size(100):
        seal_model(path, key=KEY)
    assert listed(tmp_path) == ["model.pt"]


def test_a_seal_is_never_overwritten(path: Path) -> None:
    path.touch()
    publish_seal(str(path), b"one")
    with pytest.raises(Conflict, match="has a seal already"):
        publish_seal(str(path), b"two")
    assert Path(f"{path}.seal").read_bytes() == b"one"
    assert listed(path.parent) == PAIR


def test_a_folder_that_somebody_holds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever keeps the lock keeps savers waiting for a minute, and not for ever."""
    monkeypatch.setattr("safepoint.weights.publishing._PATIENCE", 0.01)
    holder = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(StorageUnavailable, match=r"could not save to .* \(EBUSY\)"):
        save_checkpoint(path, state_dict(), key=KEY)
    os.close(holder)
    save_checkpoint(path, state_dict(), key=KEY)


@pytest.mark.parametrize("ending", ["/", "/.", "//", "/./"])
def test_a_slash_behind_the_name_of_a_model_harms_nothing(path: Path, ending: str) -> None:
    """The system takes `model.safetensors/` for a folder that is not there."""
    save_checkpoint(path, {**state_dict(), "epoch": 7}, key=KEY)
    with refused(Conflict, taken(path)):
        save_checkpoint(f"{path}{ending}", state_dict(), key=KEY)
    assert listed(path.parent) == PAIR
    assert load_checkpoint(path, keys=KEYS)["epoch"] == 7


def test_a_folder_that_leads_elsewhere_by_now_harms_nothing(tmp_path: Path) -> None:
    """What counts is the folder that was opened, also if the path meanwhile names another."""
    first, second, current = tmp_path / "a", tmp_path / "b", tmp_path / "current"
    first.mkdir()
    second.mkdir()
    current.symlink_to("a")
    with slot(str(current / PAIR[0])) as place:
        save_checkpoint(first / PAIR[0], {**state_dict(), "epoch": 7}, key=KEY)
        current.unlink()
        current.symlink_to("b")
        with pytest.raises(Conflict):
            place.publish(b"seal")
    assert (listed(first), listed(second)) == (PAIR, [])
    assert load_checkpoint(first / PAIR[0], keys=KEYS)["epoch"] == 7


def test_a_seal_that_was_set_aside_is_put_back_if_the_save_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal = Path(f"{path}.seal")
    seal.write_bytes(b"dear")
    real, calls = os.link, iter([1, 2])

    def link(*arguments: Any, **keywords: Any) -> None:
        if next(calls, 3) == 2:
            raise OSError(errno.EIO, "broken")
        real(*arguments, **keywords)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StorageUnavailable), slot(str(path)) as place:
        place.publish(b"new")
    assert (listed(path.parent), seal.read_bytes()) == ([PAIR[1]], b"dear")
