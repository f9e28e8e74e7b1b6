"""save_checkpoint, seal_model and convert: what comes back, what is refused, and no half saves."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install '.[torch]'")

from argparse import Namespace
from collections import deque
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from safepoint.core.errors import (
    ConfigurationError,
    Conflict,
    LimitExceeded,
    ModelRefused,
    NotFound,
    Unavailable,
)
from safepoint.models import ModelLimits, convert, load_checkpoint, save_checkpoint, seal_model
from safepoint.models.packing import TensorRef, pack, unpack
from safepoint.models.tensors import CODES
from tests.harness.crash import failed, killed
from tests.harness.optional import Late
from tests.unit.models_helpers import KEY, KEYS, bits, saved, state_dict

np, torch, corpus = Late("numpy"), Late("torch"), Late("tests.corpus.honest")
PAIR = ["model.safetensors", "model.safetensors.seal"]

STATES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "an empty dict": dict,
    "all types": lambda: {
        name: torch.zeros(3, dtype=getattr(torch, name)) for name, _ in CODES.values()
    },
    "nested": lambda: {"a": [torch.ones(1), (torch.zeros(2), {"b": torch.ones(3)})], "epoch": 7},
    "1 and '1'": lambda: {1: torch.ones(1), "1": torch.zeros(1), "x": 0},
    "keys of pairs": lambda: {(0, 1): torch.ones(1), (1, 2): {None: torch.zeros(1)}},
    "a path twice": lambda: {"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}},
    "not finite": lambda: {"best": float("inf"), "worst": [float("-inf")]},
    "conjugate": lambda: {"a": torch.tensor([1 + 2j]).conj()},
}


def state() -> dict[str, Any]:
    return {**state_dict(), "log": "x" * 300}


@pytest.mark.parametrize("case", STATES)
def test_a_state_comes_back_as_it_was(tmp_path: Path, case: str) -> None:
    """None came back as {}, and two tensors of one path were refused."""
    state = STATES[case]()
    save_checkpoint(tmp_path / "run.safetensors", state, key=KEY)
    assert corpus.equal(load_checkpoint(tmp_path / "run.safetensors", keys=KEYS), state)


def test_values_of_libraries_become_plain_ones(tmp_path: Path) -> None:
    """A training state with one `numpy.float64` in it could not be converted."""
    kinds = [(0, torch.float32), (1, torch.int64), (2, torch.uint8)]  # empty ones, soon forgotten
    empty = [torch.empty(0, n, dtype=dtype) for n, dtype in kinds]
    ones = [np.array([each]) for each in range(2000)]  # each lives for a moment as a tensor
    state = {
        "best": np.float64(0.5),
        "random": np.arange(3, dtype="u4"),
        "device": torch.device("cuda:1"),
        "dtype": torch.bfloat16,
        "paths": [PurePosixPath("a/b"), bytearray(b"raw")],
        "losses": deque([1.5, np.bool_(True)]),
        "empty": [each.numpy() for each in empty],
        "part": torch.arange(4.0)[::2][:1],
        "ones": ones,
    }
    torch.save(state, tmp_path / "old.pt")
    convert(tmp_path / "old.pt", tmp_path / "run.safetensors", key=KEY)
    found = load_checkpoint(tmp_path / "run.safetensors", keys=KEYS)
    random = torch.arange(3).to(torch.uint32)
    texts = {"device": "cuda:1", "dtype": "torch.bfloat16", "paths": ["a/b", b"raw"]}
    plain = {"best": 0.5, "random": random, **texts, "losses": [1.5, True], "empty": empty}
    made = {"part": torch.zeros(1), "ones": [*map(torch.tensor, ones)]}
    assert corpus.equal(found, {**plain, **made})


def test_the_file_is_what_the_safetensors_package_writes(tmp_path: Path) -> None:
    need("safetensors", "needs safepoint[torch]")
    from blake3 import blake3
    from safetensors.torch import load_file, save_file

    state = {
        f"{name}.{n}": torch.ones(n + 1).to(getattr(torch, name))
        for n in range(3)
        for name in ("float32", "uint8", "bfloat16", "int64")
    }
    digest = save_checkpoint(tmp_path / "ours.safetensors", state, key=KEY)
    save_file(state, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    ours, theirs = ((tmp_path / f"{who}.safetensors").read_bytes() for who in ("ours", "theirs"))
    assert ours == theirs
    assert digest == f"blake3:{blake3(theirs).hexdigest()}"
    assert load_file(tmp_path / "ours.safetensors").keys() == state.keys()
    assert load_checkpoint(tmp_path / "theirs.safetensors").keys() == state.keys()


def test_a_third_truth_value_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a.safetensors", {"a": torch.tensor([True])}, key=KEY)
    data = bytearray((tmp_path / "a.safetensors").read_bytes())
    data[-1] = 2
    (tmp_path / "b.safetensors").write_bytes(data)
    with pytest.raises(ModelRefused, match="neither true nor false"):
        load_checkpoint(tmp_path / "b.safetensors")


def _subclass(kind: Any) -> Any:
    return torch.ones(1).as_subclass(type("Sub", (kind,), {}))


UNSUPPORTED: dict[str, tuple[Callable[[], Any], str]] = {
    "sparse": (lambda: {"w": torch.eye(2).to_sparse()}, "only dense ones"),
    "meta": (lambda: {"w": torch.ones(1, device="meta")}, "has no values"),
    "a subclass": (lambda: {"w": _subclass(torch.Tensor)}, "a subclass of Tensor"),
    "overlapping": (lambda: {"a": (w := torch.ones(4))[:2], "b": w[1:]}, "share memory but"),
    "an object": (lambda: {"x": object()}, "does not know"),
    "a matrix": (lambda: {"x": np.array([[0.1]]).view(np.matrix)}, "is not saved"),
    "a name": (lambda: {"../w": torch.ones(1)}, "looks like a way out"),
    "a stand-in": (lambda: {"w": TensorRef("w")}, "is not saved"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_cannot_be_kept_is_named_and_nothing_is_written(tmp_path: Path, case: str) -> None:
    make, word = UNSUPPORTED[case]
    with pytest.raises(ModelRefused, match=word):
        save_checkpoint(tmp_path / "run.safetensors", make(), key=KEY)
    assert list(tmp_path.iterdir()) == []


def test_a_rest_of_other_tensors_is_refused() -> None:
    _, rest = pack({"a": torch.ones(1)})
    for tensors, bytes_ in (({"b": torch.ones(1)}, rest), ({}, rest), (pack({})[0], b"no")):
        with pytest.raises(ModelRefused, match="is not of these tensors"):
            unpack(tensors, bytes_)
    with pytest.raises(ModelRefused, match="is not of these tensors"):
        unpack({"a": torch.ones(1), "spare": torch.ones(1)}, rest)


def test_what_is_too_deep_or_too_large_is_refused(tmp_path: Path) -> None:
    deep: Any = []
    deep.append(deep)
    for state in ({"a": deep}, {"rest": "x" * (64 << 20)}):
        with pytest.raises(LimitExceeded):
            save_checkpoint(tmp_path / "run.safetensors", state, key=KEY)
    assert list(tmp_path.iterdir()) == []
    two = {"a": torch.ones(1), "b": torch.ones(2)}
    assert len(pack(two, ModelLimits(tensors=2))[0]) == 2
    with pytest.raises(LimitExceeded, match="more than 1 tensors"):
        pack(two, ModelLimits(tensors=1))


def test_nothing_is_overwritten_and_a_place_is_checked(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / PAIR[0], state(), key=KEY)
    before = (tmp_path / PAIR[0]).read_bytes()
    with pytest.raises(Conflict, match="never overwritten"):
        save_checkpoint(tmp_path / PAIR[0], {}, key=KEY)
    with pytest.raises(Conflict, match="has a seal already"):
        seal_model(tmp_path / PAIR[0], key=KEY)
    assert (tmp_path / PAIR[0]).read_bytes() == before
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    for path, error in (("a.pt", ConfigurationError), ("no/a.safetensors", Unavailable)):
        with pytest.raises(error):
            save_checkpoint(tmp_path / path, state(), key=KEY)
    (tmp_path / "link.safetensors").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Conflict):
        save_checkpoint(tmp_path / "link.safetensors", state(), key=KEY)


def save(folder: Path) -> None:
    save_checkpoint(folder / PAIR[0], state(), key=KEY)


def test_sigkill_after_each_step_of_a_save(tmp_path: Path) -> None:
    """There is a whole pair that verifies, or no model. The next save works, and cleans up."""
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    (prepared / (".safepoint-model-" + "a" * 32)).write_bytes(b"of another crash")
    (prepared / PAIR[1]).write_bytes(b"a seal without a model")
    for left in killed(save, tmp_path, prepared=prepared):
        path = left.folder / PAIR[0]
        if "link" in left.steps:  # of the model, behind its seal
            assert corpus.equal(load_checkpoint(path, keys=KEYS), state())
            with pytest.raises(Conflict):
                save(left.folder)
        else:
            with pytest.raises(NotFound):
                load_checkpoint(path, keys=KEYS)
            save(left.folder)
            assert sorted(each.name for each in left.folder.iterdir()) == PAIR
            assert corpus.equal(load_checkpoint(path, keys=KEYS), state())
        save_checkpoint(left.folder / "next.safetensors", state(), key=KEY)
        assert list(left.folder.glob(".safepoint-model-*")) == []


@pytest.mark.deep
def test_a_step_of_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """What raised is not there; what cannot be removed stays under a name that nobody loads."""
    for left in failed(save, tmp_path):
        found = sorted(path.name for path in left.folder.glob("model*"))
        assert found == ([] if left.error else PAIR), left


def test_convert_keeps_each_bit_and_the_original(tmp_path: Path) -> None:
    state = {"model": {"w": torch.tensor([float("nan"), 1.0])}, "epoch": 7, "args": Namespace(n=3)}
    for legacy in (False, True):
        path = saved(tmp_path / "old.pt", state, legacy=legacy)
        new = tmp_path / f"new-{int(legacy)}.safetensors"
        done = convert(path, new, key=KEY)
        assert (done.tensors, done.size) == (1, new.stat().st_size)
        loaded = load_checkpoint(new, keys=KEYS)
        assert (loaded["epoch"], loaded["args"]) == (7, {"n": 3})
        assert bits(loaded["model"]["w"]) == bits(state["model"]["w"])  # type: ignore[index]
    with pytest.raises(Conflict):
        convert(path, new, key=KEY)
