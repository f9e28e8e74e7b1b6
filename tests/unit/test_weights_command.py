"""`python -m safepoint.weights`: exit statuses, and one line for each refusal."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from safepoint import Keyring, SigningKey
from safepoint.errors import UnsafeRuntime
from safepoint.weights import __main__ as command
from safepoint.weights import load_checkpoint
from safepoint.weights.digest import digest
from tests.unit.killed import ROOT
from tests.unit.weights_helpers import hostile, listed, same, saved, state_dict


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the command runs. It holds a key and a model."""
    monkeypatch.chdir(tmp_path)
    SigningKey.generate("ed25519").to_file("model.key")
    saved(tmp_path / "model.pt")
    return tmp_path


Said = pytest.CaptureFixture[str]


def run(said: Said, *arguments: str) -> tuple[int, str, str]:
    """Run the command; return its status, what it printed, and what it complained about."""
    try:
        status = command.main(arguments)
    except SystemExit as end:
        status = int(str(end.code))
    return status, *said.readouterr()


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("inspect", "-h"), ("convert", "-h"), ("seal", "-h"), ("verify", "-h")],
    ids=" ".join,
)
def test_help(capsys: Said, arguments: tuple[str, ...]) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    assert out.startswith("usage: python -m safepoint.weights")


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "safepoint.weights", "--help"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("inspect", "convert", "seal", "verify", "exit status: 0 done"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("load", "x"), "argument COMMAND: invalid choice: 'load'"),
        (("inspect",), "the following arguments are required: FILE"),
        (("convert", "a"), "the following arguments are required: NEW, --key"),
        (("seal", "a"), "the following arguments are required: --key"),
        (("inspect", "a", "--what\n"), "unrecognized arguments: --what\\n"),
    ],
    ids=" ".join,
)
def test_usage(capsys: Said, arguments: tuple[str, ...], complaint: str) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert complaint.replace("'", "") in err.replace("'", "").replace("\\\\", "\\")
    assert "Try: python -m safepoint.weights" in err
    assert err.count("\n") == 1


def test_inspect(here: Path, capsys: Said) -> None:
    size = (here / "model.pt").stat().st_size
    tensors = "  bias float32 (2,)\n  weight float32 (2, 3)\n"
    printed = f"model.pt is a PyTorch archive: {size:,} bytes, 2 tensors\n{tensors}"
    assert run(capsys, "inspect", "model.pt") == (0, printed, "")


def test_inspect_more(here: Path, capsys: Said) -> None:
    """The older format, safetensors, many tensors, and names that a terminal would obey."""
    saved(here / "old.pt", legacy=True)
    status, out, _ = run(capsys, "inspect", "old.pt")
    assert (status, out.splitlines()[1]) == (0, "  bias float32 (2,)")
    assert out.startswith("old.pt is a PyTorch file of the format before 1.6: ")
    save_file(state_dict(), here / "model.safetensors")
    status, out, _ = run(capsys, "inspect", "model.safetensors")
    assert (status, out.count("\n")) == (0, 3)
    saved(here / "many.pt", {f"layer {n}\x1b": torch.ones(1) for n in range(30)})
    status, out, _ = run(capsys, "inspect", "many.pt")
    assert status == 0
    assert out.splitlines()[1] == r"  $'layer 0\x1b' float32 (1,)"
    assert out.splitlines()[-1] == "  and 10 more"
    assert len(out.splitlines()) == 22


def test_inspect_runs_nothing(here: Path, capsys: Said) -> None:
    hostile(here / "bad.pt", here / "marker")
    status, out, err = run(capsys, "inspect", "bad.pt")
    assert (status, out) == (1, "")
    assert err == (
        "bad.pt wants posix.mkdir, which is not data. Nothing of it was run. Do not load it. If you"
        " made it, save the state_dict and plain values instead.\n"
    )
    assert not (here / "marker").exists()


@pytest.mark.parametrize(
    ("name", "content", "status", "complaint"),
    [
        ("empty.pt", b"", 1, "empty.pt is empty."),
        ("pickle.pkl", b"\x80\x04N.", 1, "pickle.pkl is a pickle, which is not loaded."),
        ("random.pt", b"\x01\x02" * 50, 1, "random.pt is of no format that is known here."),
        ("pickle.safetensors", b"\x80\x04]q\x00.", 1, "pickle.safetensors is a pickle, whatever"),
    ],
)
def test_inspect_refuses(
    here: Path, capsys: Said, name: str, content: bytes, status: int, complaint: str
) -> None:
    (here / name).write_bytes(content)
    found, out, err = run(capsys, "inspect", name)
    assert (found, out, err.count("\n")) == (status, "", 1)
    assert err.startswith(complaint)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("inspect", "missing.pt"), "There is no file missing.pt."),
        (("inspect", "."), ". is a folder."),
        (("inspect", "a\nb"), r"There is no file $'a\x0ab'."),
        (("seal", "model.pt", "--key", "missing.key"), ""),
        (("seal", "model.pt", "--key", "model.pt"), ""),
        (("seal", "model.pt", "--key", "model.key", "--name", "A"), "'A' is not a model name."),
        (("verify", "model.pt", "--key", "model.key"), "model.pt has no seal"),
        (("convert", "model.pt", "new.pt", "--key", "model.key"), "new.pt does not end in"),
        (("convert", "model.pt", "model.safetensors", "--key", "missing.key"), ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done(
    here: Path, capsys: Said, arguments: tuple[str, ...], complaint: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(complaint)
    assert listed(here) == ["model.key", "model.pt"]


def test_seal_and_verify(here: Path, capsys: Said) -> None:
    hash_of = digest((here / "model.pt").read_bytes())
    assert run(capsys, "seal", "model.pt", "--key", "model.key") == (0, f"{hash_of}\n", "")
    verified = f"model.pt is the model that was sealed as model\n{hash_of}\n"
    assert run(capsys, "verify", "model.pt", "--key", "model.key") == (0, verified, "")
    SigningKey.from_file("model.key").public.to_file("model.pub")
    assert run(capsys, "verify", "model.pt", "--key", "model.pub") == (0, verified, "")

    status, _, err = run(capsys, "seal", "model.pt", "--key", "model.key")
    assert (status, err.startswith("model.pt has a seal already.")) == (2, True)

    status, _, err = run(capsys, "verify", "model.pt", "--key", "model.key", "--name", "other")
    assert (status, err.startswith("model.pt is sealed as model. If you renamed it")) == (1, True)

    SigningKey.generate().to_file("other.key")
    status, _, err = run(capsys, "verify", "model.pt", "--key", "other.key")
    assert (status, err.startswith("The seal of model.pt cannot be verified.")) == (1, True)
    keys = ("--key", "other.key", "--key", "model.key")
    assert run(capsys, "verify", "model.pt", *keys) == (0, verified, "")

    with (here / "model.pt").open("ab") as file:
        file.write(b"x")
    status, _, err = run(capsys, "verify", "model.pt", "--key", "model.key")
    assert (status, err.count("\n")) == (1, 1)


def test_convert(here: Path, capsys: Said) -> None:
    """Of a sealed file, whose seal is verified with the same key."""
    run(capsys, "seal", "model.pt", "--key", "model.key")
    status, out, err = run(capsys, "convert", "model.pt", "model.safetensors", "--key", "model.key")
    size = (here / "model.safetensors").stat().st_size
    assert (status, err) == (0, "")
    assert out == (
        f"model.safetensors: 2 tensors, {size:,} bytes, equal to the last bit\n"
        f"{digest((here / 'model.safetensors').read_bytes())}\n"
    )
    keys = Keyring(SigningKey.from_file("model.key"))
    assert same(load_checkpoint("model.safetensors", keys=keys), state_dict())
    again = run(capsys, "convert", "model.pt", "model.safetensors", "--key", "model.key")
    assert again[:2] == (2, "")
    assert again[2].startswith("model.safetensors exists, and a checkpoint is never overwritten.")

    (here / "model.safetensors").unlink()
    hostile(here / "model.pt", here / "marker")
    trusted = ("convert", "model.pt", "new.safetensors", "--key", "model.key", "--trusted")
    status, _, err = run(capsys, *trusted)
    assert (status, err.startswith("model.pt is not the file that was sealed")) == (1, True)
    assert not (here / "marker").exists()


def test_convert_a_trusted_file(here: Path, capsys: Said) -> None:
    """It runs, because --trusted said so; there is no second warning."""
    hostile(here / "made.pt", here / "marker")
    arguments = ("convert", "made.pt", "new.safetensors", "--key", "model.key", "--trusted")
    assert run(capsys, *arguments)[::2] == (0, "")
    assert (here / "marker").exists()


def test_an_interrupt(here: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "convert", interrupt)
    arguments = ("convert", "model.pt", "model.safetensors", "--key", "model.key")
    assert run(capsys, *arguments) == (130, "", "Interrupted. The original is as it was.\n")


def test_a_runtime_that_is_unsafe(
    here: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is not the fault of the file, so it is not refused."""

    def refuse(*_: object, **__: object) -> None:
        raise UnsafeRuntime("PyTorch is old.", "Upgrade.")

    monkeypatch.setattr(command, "convert", refuse)
    arguments = ("convert", "model.pt", "model.safetensors", "--key", "model.key")
    assert run(capsys, *arguments) == (2, "", "PyTorch is old. Upgrade.\n")
