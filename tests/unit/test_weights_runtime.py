"""Which PyTorch keeps the promise of weights_only, and what is said of one that does not."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import functools
import importlib
import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from safepoint.errors import UnsafeRuntime
from safepoint.weights import load_checkpoint
from safepoint.weights.runtime import check_runtime, has_flag
from tests.unit.weights_helpers import NEW_LOAD, OLD_LOAD, Mark, refused, saved, stand_in

VARIABLE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
UPGRADE = "Nothing was loaded. Upgrade: pip install 'torch>=2.10'"
BYPASS = "CVE-2025-32434 (a file runs code in spite of it; fixed in 2.6.0)"
MEMORY = "CVE-2026-24747 (a file corrupts memory in spite of it; fixed in 2.10.0)"
REPLACED = (
    "torch.load is not PyTorch's own: something in this process replaced it. Nothing was loaded."
    " Find who assigns torch.load, or load in a process of its own: load_checkpoint(path,"
    " isolated=True)."
)


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def safe_globals() -> Iterator[None]:
    """Put the process-wide list back as it was."""
    before = torch.serialization.get_safe_globals()
    yield
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(before)


def test_the_installed_pytorch_keeps_it() -> None:
    """No alarm on a plain installation, or nobody would keep the check."""
    check_runtime(torch)


@pytest.mark.parametrize(
    "version", ["2.10.0", "2.10", "2.10.1", "2.10.0+cu126", "2.13.0+cpu", "2.14.0a0", "3.0.0"]
)
def test_a_release_from_the_floor_on_passes(version: str) -> None:
    check_runtime(stand_in(version))


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("1.13.1", f"{BYPASS} and {MEMORY}"),
        ("2.5.1", f"{BYPASS} and {MEMORY}"),
        ("2.6.0", MEMORY),
        ("2.9.1", MEMORY),
        ("2.9.1+cu128", MEMORY),
    ],
)
def test_a_release_that_breaks_the_promise(version: str, why: str) -> None:
    """Having the flag is not enough. The message names what is wrong with it."""
    message = f"PyTorch {version} does not keep the promise of weights_only: {why}. {UPGRADE}"
    with refused(UnsafeRuntime, message):
        check_runtime(stand_in(version))


@pytest.mark.parametrize("version", ["2.10.0a0", "2.10.0rc1", "2.10.0.dev20251101", "2.10.0b2+x"])
def test_a_build_from_before_the_floor(version: str) -> None:
    """A nightly or a candidate may lack the fix."""
    with refused(UnsafeRuntime, f"PyTorch {version} is from before the release 2.10.0. {UPGRADE}"):
        check_runtime(stand_in(version))


@pytest.mark.parametrize("version", ["", "nonsense", "v2.13.0", "two", "2", "99999.1"])
def test_a_version_that_is_none(version: str) -> None:
    """What cannot be compared is not taken for new."""
    message = f"PyTorch {version!r} does not say which release it is. {UPGRADE}"
    with refused(UnsafeRuntime, message):
        check_runtime(stand_in(version))


def test_a_version_that_is_missing() -> None:
    torch_like = stand_in("2.13.0")
    del torch_like.__version__
    message = f"PyTorch 'of an unknown version' does not say which release it is. {UPGRADE}"
    with refused(UnsafeRuntime, message):
        check_runtime(torch_like)


def test_no_flag() -> None:
    """1.12 takes any keyword, and has no such parameter."""
    torch_like = stand_in("1.12.1", OLD_LOAD)
    assert not has_flag(torch_like)
    message = f"The torch.load of PyTorch 1.12.1 has no weights_only. {UPGRADE}"
    with refused(UnsafeRuntime, message):
        check_runtime(torch_like)
    assert torch_like.calls == []


@pytest.mark.parametrize("load", [None, 7, "load"], ids=repr)
def test_no_function_at_all(load: object) -> None:
    torch_like = stand_in("2.13.0")
    torch_like.load = load
    with refused(UnsafeRuntime, f"The torch.load of PyTorch 2.13.0 has no weights_only. {UPGRADE}"):
        check_runtime(torch_like)
    del torch_like.load
    with refused(UnsafeRuntime, f"The torch.load of PyTorch 2.13.0 has no weights_only. {UPGRADE}"):
        check_runtime(torch_like)


@pytest.mark.parametrize("version", ["1.12.1", "2.5.1"])
def test_an_old_pytorch_loads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Nothing is tried out: its torch.load is not called once."""
    path = saved(tmp_path / "model.pt")
    torch_like = stand_in(version, OLD_LOAD if version == "1.12.1" else NEW_LOAD)
    monkeypatch.setattr("safepoint.weights._packages.torch", lambda: torch_like)
    with pytest.raises(RuntimeError, match=version):
        load_checkpoint(path)
    assert torch_like.calls == []


@pytest.mark.parametrize(
    ("version", "source", "call"),
    [
        ("1.12.1", OLD_LOAD, {"map_location": "cpu"}),
        ("2.5.1", NEW_LOAD, {"map_location": "cpu", "weights_only": False}),
    ],
)
def test_an_old_pytorch_and_a_trusted_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    source: str,
    call: dict[str, Any],
) -> None:
    """safe=False asks nothing of the runtime. Where there is a flag, it is named."""
    path = saved(tmp_path / "model.pt")
    torch_like = stand_in(version, source)
    monkeypatch.setattr("safepoint.weights._packages.torch", lambda: torch_like)
    with pytest.warns(UserWarning, match="without restriction"):
        assert load_checkpoint(path, safe=False) == {"loaded": True}
    assert torch_like.calls == [call]


def test_a_new_pytorch_gets_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "model.pt")
    torch_like = stand_in("2.13.0")
    monkeypatch.setattr("safepoint.weights._packages.torch", lambda: torch_like)
    assert load_checkpoint(path) == {"loaded": True}
    assert torch_like.calls == [{"map_location": "cpu", "weights_only": True}]


@pytest.mark.parametrize("value", ["1", "true", "TRUE", "y", "Yes", "on", "2", " 1", "whatever"])
def test_the_variable_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Also to what this PyTorch does not understand: the next one may."""
    path = saved(tmp_path / "model.pt")
    monkeypatch.setenv(VARIABLE, value)
    message = (
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, so every load that does not name the flag runs"
        " code. Nothing was loaded. Run: unset TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    )
    with refused(UnsafeRuntime, message):
        load_checkpoint(path)


@pytest.mark.parametrize("value", ["", "0", "n", "No", "false", "FALSE", "off", " 0 "])
def test_the_variable_is_off(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    check_runtime(torch)


def test_what_the_variable_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason for the refusal: a load that does not name the flag runs the file."""
    path = saved(tmp_path / "model.pt", Mark(tmp_path / "marker"))
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.warns(UserWarning, match=VARIABLE):
        torch.load(path)
    assert (tmp_path / "marker").exists()


def more(names: str) -> str:
    return (
        f"In this process torch.load may also build {names}, for every file. Nothing was loaded."
        " Find who calls torch.serialization.add_safe_globals, or load in a process of its own:"
        " load_checkpoint(path, isolated=True)."
    )


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ([eval], "builtins.eval"),
        ([(eval, "my.name")], "builtins.eval"),
        ([Path, (types.CodeType, "x.y")], "builtins.code, pathlib.Path"),
        ([Path, eval, exec, compile], "builtins.compile, builtins.eval, builtins.exec and 1 more"),
        ([functools.partial(eval)], "functools.partial"),
        ([type("a\nb", (), {"__module__": "m"})], r"'m.a\nb'"),
        ([type("C", (), {"__module__": "torch.hub"})], "torch.hub.C"),
    ],
    ids=["a function", "a tuple", "two", "four", "no name", "two lines", "another of torch"],
)
def test_the_list_of_safe_globals(
    tmp_path: Path, safe_globals: None, entries: list[Any], names: str
) -> None:
    """What one part of a process adds to the list holds for every file that another loads."""
    path = saved(tmp_path / "model.pt")
    torch.serialization.add_safe_globals(entries)
    with refused(UnsafeRuntime, more(names)):
        load_checkpoint(path)


def test_within_a_context(tmp_path: Path, safe_globals: None) -> None:
    path = saved(tmp_path / "model.pt")
    with (
        torch.serialization.safe_globals([Mark]),
        refused(UnsafeRuntime, more("tests.unit.weights_helpers.Mark")),
    ):
        load_checkpoint(path)
    load_checkpoint(path)


def test_tensors_without_their_data(tmp_path: Path) -> None:
    """PyTorch would make tensors of the right shape, of whatever was in the memory before."""
    path = saved(tmp_path / "model.pt")
    message = (
        "torch.serialization.skip_data is on, so tensors would hold whatever is in memory. Nothing"
        " was loaded. Load outside of it."
    )
    with torch.serialization.skip_data(), refused(UnsafeRuntime, message):
        load_checkpoint(path)
    load_checkpoint(path)


@pytest.mark.parametrize("module", ["torch.distributed.tensor", "torch.nested", "torch._dynamo"])
def test_what_pytorch_adds_itself(module: str) -> None:
    """These modules put classes on the list when they are imported. That is no alarm."""
    importlib.import_module(module)
    allowed = torch.serialization.get_safe_globals()
    assert any(str(entry.__module__).startswith(module) for entry in allowed)
    check_runtime(torch)


class Proxy:
    """Stands in for a function and shows its attributes, as instrumentation does."""

    def __init__(self, wrapped: Callable[..., Any]) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._wrapped(*arguments, **{**keywords, "weights_only": False})


def wrapped(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def weaker(*arguments: Any, **keywords: Any) -> Any:
        return load(*arguments, **{**keywords, "weights_only": False})

    return weaker


def of_the_same_name(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(f: Any, map_location: Any = None, *, weights_only: bool = False) -> Any:
        return original(f, map_location, weights_only=False)

    return load


def of_a_class(load: Callable[..., Any]) -> Callable[..., Any]:
    class Load:
        __signature__ = inspect.signature(load)
        __code__ = load.__code__
        __module__ = "torch.serialization"

        def __call__(self, *arguments: Any, **keywords: Any) -> Any:
            return load(*arguments, **{**keywords, "weights_only": False})

    return Load()


@pytest.mark.parametrize(
    "replace",
    [
        wrapped,
        of_the_same_name,
        of_a_class,
        Proxy,
        lambda load: functools.partial(load, weights_only=False),
    ],
    ids=["wraps", "the name", "a class", "a proxy", "partial"],
)
def test_another_torch_load(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    replace: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> None:
    """Each of these turns the flag off, and looks as if it had it."""
    path = saved(tmp_path / "model.pt")
    monkeypatch.setattr(torch, "load", replace(torch.load))
    assert has_flag(torch)
    with refused(UnsafeRuntime, REPLACED):
        load_checkpoint(path)
