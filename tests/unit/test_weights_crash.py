"""A save that is killed at any step, and savers that race for one name."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from safepoint import Keyring, SigningKey
from safepoint.errors import Conflict, NotFound
from safepoint.weights import load_checkpoint, save_checkpoint, seal_model
from tests.unit.killed import ROOT, kill_after_each_step
from tests.unit.weights_helpers import listed, same, saved, state_dict

KEY = SigningKey(bytes(range(32)))  # the same in each process
KEYS = Keyring(KEY)
STATE = {**state_dict(), "log": "x" * 300}
PAIR = ["model.safetensors", "model.safetensors.seal"]
TEMPORARY = ".safepoint-model-*"


def save(folder: Path) -> None:
    save_checkpoint(folder / "model.safetensors", STATE, key=KEY)


def put_seal(folder: Path) -> None:
    seal_model(folder / "model.pt", key=KEY)


def test_sigkill_after_each_step_of_a_save(tmp_path: Path) -> None:
    """There is a whole pair that verifies, or no model. The next save works, and cleans up."""
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    (prepared / (".safepoint-model-" + "a" * 32)).write_bytes(b"of another crash")
    (prepared / PAIR[1]).write_bytes(b"a seal without a model")
    steps, folders = kill_after_each_step(save, prepared, tmp_path)
    _, linked = (number for number, step in enumerate(steps, start=1) if step == "link")
    left = 0
    for killed_after, folder in enumerate(folders, start=1):
        path = folder / PAIR[0]
        left += len(list(folder.glob(TEMPORARY)))
        if killed_after >= linked:
            assert same(load_checkpoint(path, keys=KEYS), STATE)
            with pytest.raises(Conflict):
                save(folder)
        else:
            assert not path.exists()
            with pytest.raises(NotFound):
                load_checkpoint(path, keys=KEYS)
            save(folder)
            # A seal without a model is set aside: nobody knows what it was of.
            assert [name for name in listed(folder) if ".seal." not in name] == PAIR
            assert same(load_checkpoint(path, keys=KEYS), STATE)
        save_checkpoint(folder / "next.safetensors", STATE, key=KEY)
        assert list(folder.glob(TEMPORARY)) == []
        assert path.stat().st_nlink == 1
    # It was killed amid the tensors, amid the seal, between the two names, and after both.
    assert Counter(steps)["write"] >= 5
    assert left >= 8
    assert steps[linked:] == ["unlink"]


def test_sigkill_after_each_step_of_a_seal(tmp_path: Path) -> None:
    """The file has a whole seal or none, and stays as it is."""
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    content = saved(prepared / "model.pt").read_bytes()
    steps, folders = kill_after_each_step(put_seal, prepared, tmp_path)
    linked = steps.index("link") + 1
    for killed_after, folder in enumerate(folders, start=1):
        path = folder / "model.pt"
        assert path.read_bytes() == content
        if killed_after < linked:
            with pytest.raises(NotFound):
                load_checkpoint(path, keys=KEYS)
            put_seal(folder)
        assert same(load_checkpoint(path, keys=KEYS), state_dict())
    assert len(steps) >= 4


# Many savers for each name. They start together, and each says how many it got.
RACE = """
import os, sys
from tests.unit.test_weights_crash import save_numbered
folder, savers, names = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
gate, go = os.pipe()
pids = []
for number in range(savers):
    pid = os.fork()
    if not pid:
        os.close(go)
        os.read(gate, 1)
        os._exit(save_numbered(folder, number, names))
    pids.append(pid)
os.close(gate)
os.close(go)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
"""


def save_numbered(folder: str, number: int, names: int) -> int:
    """Save a state with this number under each name, and return how many names it got."""
    won = 0
    for name in range(names):
        state = {"weight": torch.full((500,), float(number)), "number": number}
        try:
            save_checkpoint(Path(folder) / f"run-{name}.safetensors", state, key=KEY)
        except Conflict:
            continue
        won += 1
    return won


def test_savers_race_for_each_name(tmp_path: Path) -> None:
    """One wins, and its model has its own seal. Nobody removes what another is writing."""
    savers, names = 4, 30
    done = subprocess.run(
        [sys.executable, "-c", RACE, str(tmp_path), str(savers), str(names)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    won = json.loads(done.stdout)
    assert sum(won) == names
    for name in range(names):
        found = load_checkpoint(tmp_path / f"run-{name}.safetensors", keys=KEYS)
        assert found["weight"].unique().tolist() == [found["number"]]
    assert len(listed(tmp_path)) == 2 * names


# Dies while the isolated process works.
CONVERSION = """
import os, signal, sys
from safepoint.weights import convert
from tests.unit.test_weights_crash import KEY
def progress(done, total):
    os.kill(os.getpid(), signal.SIGKILL)
convert(sys.argv[1], sys.argv[2], key=KEY, progress=progress)
"""


def test_sigkill_during_a_conversion(tmp_path: Path) -> None:
    """Nothing appears, the original stays, and the next save removes what was left."""
    source = saved(tmp_path / "model.pt")
    content = source.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", CONVERSION, str(source), str(tmp_path / PAIR[0])],
        cwd=ROOT,
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert source.read_bytes() == content
    (left,) = tmp_path.glob(TEMPORARY)
    assert listed(tmp_path) == [left.name, "model.pt"]
    # The isolated process holds what was left until it ends.
    deadline = time.monotonic() + 60
    while left.exists() and time.monotonic() < deadline:
        save_checkpoint(tmp_path / f"run-{time.monotonic_ns()}.safetensors", STATE, key=KEY)
        time.sleep(0.1)
    assert list(tmp_path.glob(TEMPORARY)) == []
    assert os.path.lexists(tmp_path / PAIR[0]) is False
