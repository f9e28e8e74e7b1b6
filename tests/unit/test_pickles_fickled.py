"""fickling, wrapped: it says what a pickle would do, and neither of them does anything."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint import LimitExceeded, NotFound, PickleRefused
from safepoint.errors import MissingPackage, StorageUnavailable
from safepoint.pickles import _fickling, fickled
from safepoint.pickles.fickled import SEVERITIES, Verdict, check, decompile, trace
from safepoint.pickles.limits import PickleLimits

pytest.importorskip("fickling")

ACTS = b"cos\nsystem\n(S'id'\ntR."
EACH: list[Callable[..., Any]] = [decompile, trace, check]
each_function = pytest.mark.parametrize("function", EACH, ids=lambda each: each.__name__)


class Payload:
    """Leaves a folder where a pickle of it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def archive(name: str, data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(name, data)
        made.writestr("m/version", "3\n")
    return file.getvalue()


def in_json(data: bytes) -> bytes:
    marked = {"__pickled__": base64.b64encode(data).decode(), "__type__": "a:B"}
    return json.dumps({"state": {"x": marked}}).encode()


# Nothing runs


@each_function
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_is_not_run(tmp_path: Path, function: Callable[..., Any], protocol: int) -> None:
    marker = tmp_path / "marker"
    acts = pickle.dumps(Payload(marker), protocol)
    file = tmp_path / "model.pt"
    file.write_bytes(archive("m/data.pkl", acts))
    for source in (acts, pickle.dumps(1) + acts, file, in_json(acts)):
        assert "mkdir" in str(function(source))
    assert not marker.exists()
    pickle.loads(acts)  # it would have been
    assert marker.exists()


@each_function
def test_no_module_of_the_folder_is_imported(
    tmp_path: Path, function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of downloads may hold a fickling.py, or a json.py."""
    for name in ("fickling", "json", "ast", "resource", "typing_extensions"):
        (tmp_path / f"{name}.py").write_text("import os; os.mkdir('marker')")
    (tmp_path / "x.pkl").write_bytes(ACTS)
    monkeypatch.chdir(tmp_path)
    assert "system" in str(function("x.pkl"))
    assert not (tmp_path / "marker").exists()


def test_whatever_fickling_would_do_is_stopped(tmp_path: Path) -> None:
    """The process of fickling can neither import, nor write, nor start anything."""
    marker = tmp_path / "marker"
    for act in (
        f"os.mkdir({str(marker)!r})",
        f"open({str(marker)!r}, 'w')",
        "os.system('true')",
        "__import__('this')",
        "exec('1')",
        "eval('1')",
        "__import__('socket').socket()",
    ):
        code = (
            "import os, sys, socket; sys.argv[1:] = ['check', str(2 << 30), '20'];"
            "import fickling.fickle as f, fickling.analysis as a;"
            "real, seen = a.check_safety, [];"
            f"a.check_safety = lambda pickled: {act} if seen else seen.append(1) or real(pickled);"
            f"sys.path.insert(0, {str(Path(_fickling.__file__).parent)!r});"
            "import _fickling; sys.exit(_fickling.main())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], input=ACTS, capture_output=True, check=False, timeout=60
        )
        assert done.stdout.startswith(b'{"refused": "fickling was about to act ('), (act, done)
    assert not marker.exists()


# What it says


def test_the_code_of_a_pickle() -> None:
    assert decompile(ACTS) == "from os import system\n_var0 = system('id')\nresult = _var0"


def test_the_code_of_each_pickle_in_a_file() -> None:
    assert decompile(pickle.dumps(1) + pickle.dumps("two")) == (
        "# pickle 1 (byte 0)\nresult = 1\n\n# pickle 2 (byte 5)\nresult = 'two'"
    )
    assert decompile(in_json(pickle.dumps((1, 2)))) == "# state.x\nresult = (1, 2)"


def test_the_steps_of_a_pickle() -> None:
    assert trace(b"\x80\x02cos\nsystem\n.") == (
        "PROTO\nGLOBAL\n\tfrom os import system\n\tPushed system\nSTOP\n\tresult = system\n"
        "\tPopped system"
    )


def test_the_verdict() -> None:
    assert check(pickle.dumps([1, 2])) == Verdict("LIKELY_SAFE", ())
    assert not check(pickle.dumps([1, 2])).suspicious
    verdict = check(ACTS)
    assert verdict.severity == "LIKELY_OVERTLY_MALICIOUS"
    assert verdict.suspicious
    assert verdict.reasons[0] == (
        "`from os import system` is suspicious and indicative of an overtly malicious pickle file"
    )


def test_the_worst_of_several_counts() -> None:
    verdict = check(pickle.dumps(1) + ACTS + pickle.dumps(2))
    assert verdict.severity == "LIKELY_OVERTLY_MALICIOUS"
    assert all(reason.startswith("pickle 2 (byte 5): ") for reason in verdict.reasons)


def test_the_severities_are_those_of_fickling() -> None:
    from fickling.analysis import Severity

    assert tuple(each.name for each in sorted(Severity, key=lambda each: each.value)) == SEVERITIES


def test_a_pytorch_archive_is_read_where_fickling_itself_raises(tmp_path: Path) -> None:
    import fickling
    from fickling.fickle import EmptyPickleError

    torch = pytest.importorskip("torch", exc_type=ImportError)
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.zeros(2)}, path)
    with pytest.raises(EmptyPickleError):
        fickling.is_likely_safe(str(path))
    assert "_rebuild_tensor_v2" in decompile(path)
    assert check(path).severity in SEVERITIES


# What would fool a reader


@pytest.mark.parametrize("function", [decompile, trace])
def test_a_name_cannot_forge_a_line_of_code(function: Callable[..., str]) -> None:
    name = b"system\nresult = 'harmless'"
    with pytest.raises(PickleRefused, match="Treat it as hostile"):
        function(b"\x80\x04\x8c\x02os\x8c" + bytes([len(name)]) + name + b"\x93.")
    lookalike = b"\x80\x04\x8c\x03\xd0\xbes\x8c\x06system\x93."  # a Cyrillic o
    for data in (b"cos\nsystem; result = 'harmless' #\n.", b"cos\n\x1b[2J\n.", lookalike):
        with pytest.raises(PickleRefused) as refusal:
            function(data)
        assert str(refusal.value) == (
            "The pickle: it asks for a name that no Python name is like. Nothing was run. Treat it"
            " as hostile: do not load it, and ask who wrote it."
        )


def test_a_text_cannot_speak_to_the_terminal() -> None:
    assert decompile(pickle.dumps("\x1b[2J\u202e\r")) == "result = '\\x1b[2J\\u202e\\r'"
    for reason in check(b"cos\n\x1b[2J\n.").reasons:
        assert reason.isascii()
        assert reason.isprintable()


# Bad input


@each_function
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "It is an empty file, and no pickle was found in it. There is nothing for fickling"),
        (b"{}", "It is JSON, and no pickle was found in it."),
        (
            b"\x1f\x8b\x08" + bytes(30),
            "It is compressed data (gzip), and no pickle was found in it. It is compressed data",
        ),
        (
            b"\x80\x04cos\nsystem\n)R",
            "The pickle is cut short. Before that, it asks for os.system. Nothing was run.",
        ),
        (archive("m/data.pkl", ACTS + b"PK"), "m/data.pkl has 2 bytes behind its end."),
    ],
    ids=["empty", "no pickle", "compressed", "cut", "more behind it"],
)
def test_what_is_no_whole_pickle_is_refused(
    function: Callable[..., Any], data: bytes, message: str
) -> None:
    with pytest.raises(PickleRefused) as refusal:
        function(data)
    assert str(refusal.value).startswith(message)


@each_function
def test_what_is_not_entered_is_not_passed_over(function: Callable[..., Any]) -> None:
    inner = archive("state", ACTS)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("a.pkl", pickle.dumps(1))
        made.writestr("inner", inner)
    with pytest.raises(PickleRefused) as refusal:
        function(file.getvalue())
    assert str(refusal.value) == (
        "inner is an archive in the archive, which is not entered. Unpack it, and look at what is"
        " in it."
    )


@each_function
def test_a_path_that_is_none(tmp_path: Path, function: Callable[..., Any]) -> None:
    with pytest.raises(NotFound):
        function(tmp_path / "nothing")
    with pytest.raises(StorageUnavailable):
        function(tmp_path)


def doubled(times: int) -> bytes:
    value: list[Any] = ["x"]
    for _ in range(times):
        value = [value, value]
    return pickle.dumps(value)


@each_function
def test_a_pickle_that_grows_when_it_is_written_down(function: Callable[..., Any]) -> None:
    with pytest.raises(LimitExceeded) as refusal:
        function(doubled(40))
    assert refusal.value.what == "The pickle becomes more text than anybody reads."


@pytest.mark.parametrize("function", [decompile, trace])
def test_a_pickle_that_is_nested_deep(function: Callable[..., Any]) -> None:
    with pytest.raises(LimitExceeded) as refusal:
        function(b"\x80\x04" + b"]" * 1500 + b"a" * 1499 + b".")
    assert refusal.value.what == "The pickle is nested deeper than fickling can follow."


def test_a_pickle_that_takes_too_long_or_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fickled, "_SECONDS", 1)
    memo = (b"K\x01r" + number.to_bytes(4, "little") + b"0" for number in range(20_000))
    with pytest.raises(LimitExceeded) as refusal:
        trace(b"\x80\x04" + b"".join(memo) + b"N.")
    assert refusal.value.what == "fickling needs more than 20 seconds for The pickle."
    monkeypatch.setattr(fickled, "_SECONDS", 20)
    monkeypatch.setattr(fickled, "_MEMORY", 128 * 1024 * 1024)
    with pytest.raises(LimitExceeded) as refusal:
        decompile(pickle.dumps("x" * 50_000_000))
    assert refusal.value.what.startswith(("fickling needs more ", "The pickle becomes more text"))


@each_function
def test_a_pickle_over_the_limits_never_reaches_fickling(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fickled, "_WORKER", Path("nowhere"))
    with pytest.raises(LimitExceeded):
        function(pickle.dumps(list(range(100))), limits=PickleLimits(opcodes=50))


@each_function
def test_without_fickling_one_line_says_so(
    function: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of that name that cannot be imported stands for one that is not there."""
    (tmp_path / "fickling.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(MissingPackage) as refusal:
        function(ACTS)
    assert str(refusal.value) == (
        "safepoint.pickles.fickled needs fickling, which is not installed. Install it: pip install"
        " 'safepoint[pickle]'"
    )
