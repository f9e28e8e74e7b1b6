"""The way to a tensor is never long: a key above many tensors would be copied for each."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from safepoint.errors import LimitExceeded
from safepoint.pickles.kinds import Kind
from safepoint.weights import ModelLimits, Schema, TensorSpec, load_checkpoint
from safepoint.weights.digest import digest
from safepoint.weights.loading import named_tensors
from safepoint.weights.outline import TensorRef, codec_for
from safepoint.weights.packing import unpack
from safepoint.weights.paths import LONGEST, checked_path, joined
from safepoint.weights.plan import read_plan
from safepoint.weights.seals import Sealed, make_seal
from tests.unit.archive_helpers import archive, opened, proto, tensor, text
from tests.unit.weights_helpers import KEY, KEYS, refused

TOO_LONG = (
    "The way to a tensor in the state is longer than 4096 characters. Use shorter keys, or fewer"
    " levels."
)
KEY_LENGTH = 1_000_000
TIMES = 2_000
FOUR = bytes(16)
SPECS = Schema({"weight": TensorSpec("float32", (4,))})


@contextmanager
def small() -> Iterator[None]:
    """Expect that what is taken meanwhile is far below one key for each tensor."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * KEY_LENGTH < KEY_LENGTH * TIMES


def bomb(key: bytes) -> bytes:
    """Return a file with one tensor, which is in a list many times, under a key."""
    many = b"](" + tensor() + b"r\0\1\0\0" + b"j\0\1\0\0" * TIMES + b"e"
    return archive(proto(b"}" + key + many + b"s"), {"0": FOUR})


def test_the_bomb_is_one_but_for_its_key() -> None:
    plan = read_plan(opened(bomb(text("key"))), Kind.TORCH_ZIP)
    assert len(plan.tensors) == TIMES + 1
    assert f"key/{TIMES}" in plan.tensors


@pytest.mark.parametrize(
    "key",
    [text("k" * KEY_LENGTH), text("k" * KEY_LENGTH) + b"\x85"],
    ids=["a text", "a tuple"],
)
def test_a_long_key_above_many_tensors(tmp_path: Path, key: bytes) -> None:
    """A megabyte of a file would take two gigabytes of names."""
    path = tmp_path / "model.pt"
    path.write_bytes(bomb(key))
    for schema in (None, SPECS):
        with small(), refused(LimitExceeded, f"{path}: {TOO_LONG}"):
            load_checkpoint(path, schema=schema)


def led_to() -> bytes:
    """Return the rest of a checkpoint that leads to one tensor often. No save writes that."""
    outline = {"short": TensorRef("short"), "k" * KEY_LENGTH: [TensorRef("short")] * TIMES}
    return bytes(codec_for(ModelLimits()).encode(outline))


def test_the_same_in_a_state_that_was_put_together() -> None:
    state = unpack({"short": torch.ones(4)}, led_to())
    with small(), refused(LimitExceeded, TOO_LONG):
        SPECS.check(dict(named_tensors(state)))


def test_the_same_in_a_sealed_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"short": torch.ones(4)}, path)
    content = path.read_bytes()
    sealed = Sealed("model", digest(content), len(content), led_to())
    (tmp_path / "model.safetensors.seal").write_bytes(make_seal(sealed, KEY))
    with refused(LimitExceeded, f"{path}: {TOO_LONG}"):
        load_checkpoint(path, keys=KEYS, schema=SPECS)
    assert len(load_checkpoint(path, keys=KEYS)) == 2, "without a schema nobody needs the names"


def test_a_long_key_with_no_tensor_below(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    state = {"weight": torch.ones(4), "k" * KEY_LENGTH: [1, 2]}
    torch.save(state, path)
    assert load_checkpoint(path, schema=SPECS).keys() == state.keys()


def test_the_longest() -> None:
    """What a dict may be called, names of any depth share."""
    way = joined("", "a" * (LONGEST - 1))
    assert checked_path(way) == "a" * (LONGEST - 1)
    half = joined("b" * (LONGEST // 2), "c" * (LONGEST // 2 - 1))
    assert len(checked_path(half)) == LONGEST
    for over in (joined("", "a" * LONGEST), joined(way, "1"), joined(joined(way, "1"), "2")):
        with refused(LimitExceeded, TOO_LONG):
            checked_path(over)


@pytest.mark.parametrize("key", ["\0", "/", "", "ü" * 100])
def test_a_key_that_is_odd_is_not_long(tmp_path: Path, key: str) -> None:
    path = tmp_path / "model.pt"
    torch.save({key: torch.ones(4)}, path)
    schema = Schema({key or "tensor": TensorSpec("float32", (4,))})
    assert load_checkpoint(path, schema=schema).keys() == {key}
