"""load_checkpoint: content and not the name, one look at one file, and a child that may die."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install '.[torch]'")

import os
import pickle
import re
import shlex
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from safepoint import Keyring, SigningKey
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    ModelRefused,
    NotFound,
    SealBroken,
    Unavailable,
    Unsafe,
)
from safepoint.models import (
    ModelLimits,
    UnrestrictedLoad,
    convert,
    inspect,
    load_checkpoint,
    load_tensors,
    save_checkpoint,
    seal_model,
)
from safepoint.models.look import Verdict, identified
from safepoint.models.runtime import check_runtime
from tests.harness.optional import Late
from tests.unit.archive_helpers import archive, proto
from tests.unit.models_helpers import KEY, KEYS, mark, saved, state_dict

torch, corpus = Late("torch"), Late("tests.corpus.honest")


def test_a_payload_runs_only_where_it_is_trusted_and_is_said(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.pt", {**state_dict(), "extra": mark(tmp_path / "marker")})
    with pytest.raises(ModelRefused, match=r"wants posix\.mkdir, which is not data"):
        load_checkpoint(path)
    for false in (None, 0, "", object()):  # only the literal False is a yes to code
        with pytest.raises(ModelRefused):
            load_checkpoint(path, safe=false)  # type: ignore[arg-type]
    assert not (tmp_path / "marker").exists()
    with pytest.warns(UnrestrictedLoad, match="its author was not verified"):
        load_checkpoint(path, safe=False)
    assert (tmp_path / "marker").is_dir()


JOBLIB = b"\x80\x04cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}b" + b"\xff" * 16 + b"."
NAMES: list[tuple[str, bytes, type[CheckpointError], str]] = [
    ("a.safetensors", b"", ModelRefused, "is an empty file"),
    ("a.safetensors", b"PK\3\4", ModelRefused, "does not end as one"),
    ("a.safetensors", b"\xff\0\0\0\0\0\0\0{}", ModelRefused, "ends before its header does"),
    ("a.pt", b"\2\0\0\0\0\0\0\0{}", ModelRefused, "whatever its name says"),
    ("a", JOBLIB, ModelRefused, "is a joblib file, .* Ask for skops or safetensors"),
    ("a", zlib.compress(JOBLIB, 3), ModelRefused, "If joblib wrote it, ask for skops"),
    ("a", b'{"a": 1}', ModelRefused, "is JSON, and is not loaded"),
]


@pytest.mark.parametrize(("name", "content", "error", "word"), NAMES)
def test_a_file_that_is_no_model(
    tmp_path: Path, name: str, content: bytes, error: type[CheckpointError], word: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(error, match=word) as refusal:
        load_checkpoint(path)
    assert refusal.value.what.startswith(shlex.quote(str(path)))
    with pytest.raises(error, match=word):
        load_checkpoint(path, safe=False)


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_honest_checkpoints_are_what_pytorch_loads(tmp_path: Path) -> None:
    """Or they are of the few kinds that are no data. A page has the sums."""
    refused, sums = set[str](), [0] * 4
    files = dict(corpus.honest())
    for name, data in files.items():
        path = tmp_path / "model.pt"
        path.write_bytes(data)
        path.chmod(0o600)
        theirs = None
        with suppress(pickle.UnpicklingError):
            theirs = torch.load(path, weights_only=True)
            sums[0] += 1
        with suppress(ModelRefused, LimitExceeded):
            convert(path, tmp_path / f"{len(refused) + sums[1]}.safetensors", key=KEY)
            sums[3] += 1
        try:
            ours = load_checkpoint(path)
        except (ModelRefused, LimitExceeded):
            refused.add(name)
            with suppress(ModelRefused, LimitExceeded):
                sums[2] += bool(load_tensors(path))
            continue
        sums[1] += 1
        found, whole = inspect(path), "sparse" not in name
        assert found.plain == whole, name
        assert found.do.startswith("Load it with load_checkpoint. To keep it as safetensors: ")
        if theirs is not None:
            assert corpus.equal(theirs, ours), name
    assert refused == NO_DATA
    page = (Path(__file__).parents[2] / "docs/security/scanners.md").read_text(encoding="utf-8")
    assert [*map(int, re.findall(rf"\| (\d+) of {len(files)} \|", page))] == sums


def test_a_quantized_tensor_is_loaded_without_the_warning_of_pytorch(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(dict(corpus.honest())["a quantized tensor"])
    torch.set_warn_always(True)  # otherwise it warns once in a process
    try:
        assert load_checkpoint(path).is_quantized
    finally:
        torch.set_warn_always(False)


NO_DATA = {
    *("a nested tensor", "a type of tensor", "a list that holds itself", "a module, old format"),
    *("a NumPy array of objects", "a dataclass beside tensors", "a module", "an optimizer"),
    "a module and its optimizer",
}


def test_a_scan_says_that_it_does_not_see_past_an_array() -> None:
    """It said nothing of `os.system` there, which joblib calls."""
    found = inspect(JOBLIB[:-1] + b"cos\nsystem\n(S'id'\ntR.")
    says = "It was not looked at beyond its first array, but joblib runs the rest."
    assert (found.pickles[0].reason, found.plain) == (says, False)


def test_the_tensors_of_what_is_no_data_are_kept_by_name(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    state = {"model": model, "act": torch.nn.functional.relu}
    items = model.state_dict().items()
    named = {f"model/{key.replace('.', '/')}": item.tolist() for key, item in items}
    for old in (False, True):  # which has the classes of modules as ids, with their source
        found = load_tensors(saved(tmp_path / "whole.pt", state, legacy=old))
        assert {k: v.tolist() for k, v in found.items()} == named
        assert found.left["torch.nn.functional.relu"] == 1
    assert [each.plain for each in inspect(tmp_path / "whole.pt").pickles].count(False) == 1
    path = saved(tmp_path / "bad.pt", {**state_dict(), "extra": mark(tmp_path / "marker")})
    found = load_tensors(path)
    assert (sorted(found), found.left) == (["bias", "weight"], {"posix.mkdir": 1})
    assert not (tmp_path / "marker").exists()


def test_a_model_under_the_name_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match="is a PyTorch archive, whatever its name says"):
        load_checkpoint(saved(tmp_path / "a.safetensors"))
    with pytest.raises(NotFound):
        load_checkpoint(tmp_path / "missing.pt")
    with pytest.raises(Unavailable, match=r"Is a directory\)\. .* scan lists"):
        load_checkpoint(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unavailable, match="not a regular file"):
        load_checkpoint(tmp_path / "pipe")


@pytest.mark.parametrize("whose", ["of everybody", "of another user"])
def test_a_file_that_changes_while_it_is_read_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    path = saved(tmp_path / "model.pt", {"weight": torch.ones(1 << 18)})
    if whose == "of everybody":
        path.chmod(0o666)
    elif os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)

    def swapped(*arguments: Any, **named: Any) -> Any:
        found = genuine(*arguments, **named)
        path.write_bytes(b"x" * path.stat().st_size)
        return found

    genuine = identified
    monkeypatch.setattr("safepoint.models.loading.identified", swapped)
    with pytest.raises(ModelRefused, match="of an unknown format"):
        load_checkpoint(path)


def test_limits_hold_before_anything_is_loaded(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.pt")
    for limits in (ModelLimits(file_bytes=1000), ModelLimits(tensors=1)):
        with pytest.raises(LimitExceeded, match=r"raise ModelLimits"):
            load_checkpoint(path, limits=limits)


def test_a_runtime_that_cannot_keep_the_promise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The regression test in tests/utils has the releases. These are the ways to hide."""
    import torch  # itself, to be patched

    check_runtime(torch)
    for version in ("", "two", "2.10.0.dev1"):
        with monkeypatch.context() as patch:
            patch.setattr(torch, "__version__", version)
            with pytest.raises(Unsafe):
                check_runtime(torch)

    class Load:
        __code__ = torch.load.__code__
        __signature__ = __import__("inspect").signature(torch.load)

        def __call__(self) -> None:
            raise AssertionError

    path = saved(tmp_path / "model.pt")
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", Load())
        with pytest.raises(Unsafe, match="PyTorch's own"):
            load_checkpoint(path)
    with torch.serialization.skip_data():  # torch.load would hand out whatever is in memory
        assert corpus.equal(load_checkpoint(path), state_dict())


def test_a_seal_is_asked_before_the_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "My model.safetensors"
    save_checkpoint(path, {"model": state_dict(), "epoch": 7}, key=KEY)
    assert load_checkpoint(path, keys=KEYS)["epoch"] == 7
    with pytest.raises(ConfigurationError, match="has a seal, but no keys"):
        load_checkpoint(path)
    with pytest.raises(SealBroken, match="not on this keyring"):
        load_checkpoint(path, keys=Keyring(SigningKey.generate()))
    with pytest.raises(SealBroken, match="is sealed as 'My model' in"):
        load_checkpoint(path, keys=KEYS, name="other")
    renamed = path.rename(tmp_path / "other.safetensors")
    seal = Path(f"{path}.seal").rename(f"{renamed}.seal")
    assert load_checkpoint(renamed, keys=KEYS, name="My model")
    seal.unlink()
    with pytest.raises(NotFound, match=r"safepoint seal-model \S+/other\.safetensors --key"):
        load_checkpoint(renamed, keys=KEYS, name="My model")


@pytest.mark.parametrize("data", [b"GGUF\3\0\0\0" + bytes(9), b"text", b"PK\3\4", b""])
def test_the_seal_of_any_file_is_verified_before_its_format(tmp_path: Path, data: bytes) -> None:
    """Of a GGUF that was changed behind its seal, it said: "Load it with llama.cpp"."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF\3\0\0\0" + bytes(8) + b"\1")
    seal_model(path, key=KEY)
    path.write_bytes(data)
    with pytest.raises(SealBroken, match=r"is not the file that was sealed\."):
        load_checkpoint(path, keys=KEYS)


def test_what_runs_code_is_named_first_and_never_left_out(tmp_path: Path) -> None:
    """Behind a few classes, os.system fell into "and 4 more", and the advice was load_tensors."""
    known, strangers = ([f"{at}.C{n}" for n in range(5)] for at in ("ultralytics.nn.x", "aaa"))
    path = tmp_path / "yolo.pt"
    for names, rest in ((known, [*known[:2], "and 3 more"]), (strangers, strangers)):
        asked = "".join(f"c{each.replace('.C', chr(10) + 'C')}\n" for each in names).encode()
        path.write_bytes(archive(proto(b"(" + asked + b"cposix\nmkdir\n(S'x'\ntRl"), {}))
        first = ", ".join(["posix.mkdir", *rest]).replace(", and", " and")
        with pytest.raises(ModelRefused, match=f"wants {first}, which are not data") as refusal:
            load_checkpoint(path)
        found = inspect(path)
        assert found.what.endswith(f"asks for {first}.")
        assert found.pickles[0].imports[0] == "posix.mkdir"
        assert found.do == refusal.value.do == NO
    assert "load_tensors" not in inspect(b"caaa\nA\n.").do  # it refuses a bare pickle
    for module, whose in (("ultralytics.nn.x", "ultralytics"), ("__main__", "the script that")):
        path.write_bytes(archive(proto(f"c{module}\nC0\n".encode()), {}))
        with pytest.raises(ModelRefused, match=f"is not data: it needs the code of {whose}"):
            load_checkpoint(path)
        assert f"needs the code of {whose}" in inspect(path).what


NO = (
    "Nothing of it was run. Do not load it; tell the sender. If you made it, save the state_dict"
    " and plain values instead."
)


def test_a_file_that_others_can_write_is_not_copied_before_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file of half a GiB took more than that before anybody asked what it was."""
    path = tmp_path / "sparse.safetensors"
    with path.open("wb") as file:
        file.truncate(1 << 29)
    path.chmod(0o666)
    monkeypatch.setattr("safepoint.models.loading.copied", None)
    with pytest.raises(ModelRefused, match=r"unknown format, .* Get it again"):
        load_checkpoint(path)
    assert inspect(path).verdict is Verdict.NOT_A_MODEL
