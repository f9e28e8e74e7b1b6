"""save_checkpoint: tensors as safetensors, the rest as JSON, and one seal over both."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from safepoint import Keyring, SigningKey
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    InvalidId,
    LimitExceeded,
    ModelUnsupported,
)
from safepoint.weights import ModelLimits, load_checkpoint, save_checkpoint, seal_model
from safepoint.weights.digest import digest
from tests.unit.weights_helpers import KEY, KEYS, listed, refused, same, state_dict


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def test_the_digest_is_that_of_the_file(path: Path) -> None:
    assert save_checkpoint(path, state_dict(), key=KEY) == digest(path.read_bytes())


def test_other_tools_read_it(path: Path) -> None:
    """A flat state dict keeps its names, and safetensors needs nothing of ours."""
    save_checkpoint(path, state_dict(), key=KEY)
    assert same(load_file(path), state_dict())


def test_a_training_state(path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = {
        "model": dict(model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "epoch": 7,
        "best": float("inf"),
        "losses": [0.5, 0.25],
        "shape": (2, 2),
        "raw": b"\x00\xff",
        "note": "ü",
    }
    save_checkpoint(path, state, key=KEY)
    found = load_checkpoint(path, keys=KEYS)
    assert same(found, state)
    optimizer.load_state_dict(found["optimizer"])


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"epoch": 3},
        [torch.ones(2), None],
        torch.ones(2),
        {"empty": torch.empty(0, 3), "scalar": torch.tensor(5)},
        {"nan": torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)},
        {"bfloat16": torch.tensor([1.0, -0.0], dtype=torch.bfloat16), "bool": torch.tensor([True])},
        {"strided": torch.arange(6).reshape(2, 3).T},
    ],
    ids=lambda state: str(state)[:20],
)
def test_other_states(path: Path, state: Any) -> None:
    save_checkpoint(path, state, key=KEY)
    assert same(load_checkpoint(path, keys=KEYS), state)


def test_tied_weights_stay_tied(path: Path) -> None:
    tied = torch.ones(2)
    save_checkpoint(path, {"in": tied, "out": tied}, key=KEY)
    found = load_checkpoint(path, keys=KEYS)
    assert found["in"] is found["out"]
    assert len(load_file(path)) == 1


def test_the_state_stays_as_it_is(path: Path) -> None:
    """A save changes nothing about what is saved: training goes on with it."""
    weight = torch.ones(2, requires_grad=True)
    state = {"weight": weight, "history": [1]}
    save_checkpoint(path, state, key=KEY)
    assert state == {"weight": weight, "history": [1]}
    assert state["weight"] is weight
    assert weight.requires_grad


def test_without_keys_it_is_not_loaded(path: Path) -> None:
    """The rest of the state is in the seal. Without keys it would be missing, in silence."""
    save_checkpoint(path, {**state_dict(), "epoch": 7}, key=KEY)
    with pytest.raises(ConfigurationError, match="has a seal, and no keys were given"):
        load_checkpoint(path)


def test_what_wrote_it_stands_in_the_seal(path: Path) -> None:
    save_checkpoint(path, state_dict(), key=KEY, app="trainer-3.1")
    assert '"app":"trainer-3.1"' in Path(f"{path}.seal").read_text()


def test_another_name_than_the_file(path: Path) -> None:
    save_checkpoint(path, state_dict(), key=KEY, name="run-7")
    assert same(load_checkpoint(path, keys=KEYS, name="run-7"), state_dict())
    with pytest.raises(CheckpointError, match="is sealed as run-7"):
        load_checkpoint(path, keys=KEYS)


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("model.pt", "model.safetensors"),
        ("model", "model.safetensors"),
        ("a.b/c.7", "a.b/c.safetensors"),
    ],
)
def test_another_ending(tmp_path: Path, name: str, better: str) -> None:
    """A name that says PyTorch sends people to torch.load."""
    message = (
        f"{tmp_path}/{name} does not end in .safetensors, which is what it will be. Write"
        f" {tmp_path}/{better}"
    )
    with refused(ConfigurationError, message):
        save_checkpoint(tmp_path / name, state_dict(), key=KEY)
    assert listed(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"key": "secret"}, ConfigurationError),
        ({"key": Keyring(KEY)}, ConfigurationError),
        ({"key": SigningKey.generate("ed25519").public}, ConfigurationError),
        ({"key": KEY, "name": "../x"}, InvalidId),
        ({"key": KEY, "app": "a\nb"}, InvalidId),
        ({"key": KEY, "limits": ModelLimits(tensors=1)}, LimitExceeded),
        ({"key": KEY, "limits": ModelLimits(header_bytes=10)}, LimitExceeded),
        ({"key": KEY, "limits": ModelLimits(file_bytes=10)}, LimitExceeded),
        ({"key": KEY, "state": {"a": torch.eye(2).to_sparse()}}, ModelUnsupported),
        ({"key": KEY, "state": {"a": object()}}, ModelUnsupported),
        ({"key": KEY, "state": {"../a": torch.ones(1)}}, ModelUnsupported),
        ({"key": KEY, "state": torch.nn.Linear(1, 1)}, ModelUnsupported),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_refusal_leaves_nothing(
    path: Path, arguments: dict[str, Any], kind: type[CheckpointError]
) -> None:
    with pytest.raises(kind) as caught:
        save_checkpoint(path, **{"state": state_dict(), **arguments})
    assert "secret" not in str(caught.value)
    assert listed(path.parent) == []


def test_sealing_what_was_made_elsewhere(tmp_path: Path, path: Path) -> None:
    """A plain safetensors file gets a seal, and comes back as it is: it has no rest."""
    save_checkpoint(path, state_dict(), key=KEY)
    Path(f"{path}.seal").unlink()
    assert seal_model(path, key=KEY, app="import") == digest(path.read_bytes())
    assert same(load_checkpoint(path, keys=KEYS), state_dict())
