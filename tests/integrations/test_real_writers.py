"""What honest files are to us that Lightning, Keras and others write: run for real."""

from __future__ import annotations

import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.harness.optional import need

need("torch", "needs safepoint[torch]")

import torch

from safepoint.models import inspect, load_checkpoint
from safepoint.models.look import Verdict
from tests.corpus import writers

CODE, UNSEEN = Verdict.NEEDS_CODE, Verdict.NOT_LOOKED_INTO
VERDICTS = {
    "lightning.ckpt": Verdict.TORCH,
    "bert/model.safetensors": Verdict.SAFETENSORS,
    "bert/config.json": Verdict.NOT_A_MODEL,
    "training_args.bin": CODE,
    "plain.joblib": CODE,
    "zlib.joblib": UNSEEN,
    "pipeline.pkl": CODE,
    "pipeline.skops": UNSEEN,
    "frame.pkl": CODE,
    "model.keras": UNSEEN,
    "lambda.keras": Verdict.RUNS_CODE,
    "model.h5": UNSEEN,
    "model.weights.h5": UNSEEN,
    "data.h5": UNSEEN,
    "model.onnx": UNSEEN,
    "model.gguf": UNSEEN,
}


@pytest.mark.deep
def test_each_real_writers_file_is_what_it_is(tmp_path: Path) -> None:
    """The environment has what this one has, and what writes the files."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv/bin/python")
    packages = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")})
    Path(packages, "ours.pth").write_text(sysconfig.get_path("purelib"))
    files = tmp_path / "files"
    files.mkdir()
    for command in (["-m", "pip", "install", "-qq", *writers.PACKAGES], [writers.__file__, files]):
        subprocess.run([python, *command], check=True, cwd=tmp_path)
    assert {name: inspect(files / name).verdict for name in VERDICTS} == VERDICTS
    assert {path.name for path in files.iterdir()} - {"kept"} == {*writers.WRITERS}
    ours, theirs = load_checkpoint(files / "lightning.ckpt"), torch.load(files / "lightning.ckpt")
    assert torch.equal(ours.pop("state_dict")["layer.bias"], theirs.pop("state_dict")["layer.bias"])
    assert ours.keys() == theirs.keys()
