"""A file is loaded in a process of its own: what it may use, how it may end, and what it may say.

Where the child has to misbehave in a way that no file can bring about, another program stands in
for it: `Child` runs a few lines of Python with the same arguments, descriptors and environment.
"""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save

from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    ModelError,
    ModelMalformed,
    ModelMismatch,
    NotFound,
    StorageUnavailable,
    UnsafeModel,
)
from safepoint.weights import ModelLimits, Schema, TensorSpec, isolated, load_checkpoint
from safepoint.weights.files import open_model
from safepoint.weights.packing import pack
from tests.unit.storage_helpers import descriptors
from tests.unit.weights_helpers import (
    Calls,
    listed,
    refused,
    same,
    saved,
    state_dict,
)

SAY_DONE = 'os.write(1, b"done");'


@pytest.fixture(autouse=True)
def nothing_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever happens, no process, no descriptor and no temporary file is left."""
    folder = tmp_path_factory.mktemp("temporary")
    before = descriptors(), children()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield
    assert listed(folder) == []
    assert (descriptors(), children()) == before


def children() -> list[str]:
    """List the children of this process, dead ones too."""
    found = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())],
        check=False,
        capture_output=True,
        text=True,
    )
    return [line for line in found.stdout.splitlines() if not line.endswith(" ps")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(tmp_path / "model.pt")


Child = Callable[[str], None]


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    """Return a function that puts other lines in the place of the child's."""

    def stand_in(lines: str) -> None:
        start = f"import json, os, signal, sys; task = json.loads(sys.argv[2]); {lines}"
        monkeypatch.setattr(isolated, "_START", start)

    return stand_in


def crashed(path: Path, how: str) -> str:
    return (
        f"{path} crashed the isolated process that read it ({how}). Nothing was loaded, and this"
        " process is unharmed. Do not load it anywhere else."
    )


def busy(path: Path, seconds: int) -> str:
    return (
        f"{path} kept the isolated process busy beyond the limit of {seconds} s. Nothing was"
        " loaded. If it is meant to be that large, raise ModelLimits.cpu_seconds."
    )


def test_a_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a thread, of a file that others can write, with a name that has everything.

    This process has a torch.load that was replaced and a variable that weakens it. The other one
    does not know of either.
    """
    shared = torch.ones(3)
    state = {
        "model": {"weight": torch.tensor([float("nan"), -0.0]), "tied": shared, "again": shared},
        "steps": [1, 2.5, "three", None, (True, b"\x00")],
        "best": float("inf"),
        3: torch.arange(4),
    }
    path = saved(tmp_path / "model.pt", state).rename(tmp_path / 'it\'s\n"odd"\udcff.pt')
    path.chmod(0o666)
    monkeypatch.setattr(torch, "load", print)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    schema = Schema(
        {
            "model/weight": TensorSpec("float32", (2,)),
            "model/tied": TensorSpec("float32", (3,)),
            "model/again": TensorSpec("float32", (3,)),
            "3": TensorSpec("int64", (None,)),
        }
    )
    found: list[Any] = []

    def work() -> None:
        found.append(load_checkpoint(path, isolated=True, schema=schema))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert same(found[0], state)
    assert found[0]["model"]["tied"] is found[0]["model"]["again"]


def test_a_trusted_file_runs_there(tmp_path: Path) -> None:
    """What it runs has your rights, and another process. It may print what it likes."""
    state = {"pid": Calls(os.getpid), "said": Calls(print, "x" * 10**6)}
    path = saved(tmp_path / "model.pt", state)
    with pytest.warns(UserWarning, match="without restriction"):
        found = load_checkpoint(path, isolated=True, safe=False)
    assert found["pid"] != os.getpid()
    assert found["said"] is None


@pytest.mark.filterwarnings("ignore::safepoint.weights.UnrestrictedLoad")
def test_too_much_memory(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.pt", {"zeros": Calls(bytearray, 256 << 20)})
    message = (
        f"{path} needs more memory than the 67,108,864 bytes that the isolated process may use"
        " besides. Nothing was loaded. If it is meant to be that large, raise"
        " ModelLimits.memory_bytes."
    )
    with refused(LimitExceeded, message):
        load_checkpoint(path, isolated=True, safe=False, limits=ModelLimits(memory_bytes=64 << 20))


def test_an_honest_file_fits_whatever_its_size(tmp_path: Path) -> None:
    """What its own tensors take is not what the limit is about."""
    state = {"weight": torch.zeros(256 << 20, dtype=torch.uint8)}
    path = saved(tmp_path / "model.pt", state)
    found = load_checkpoint(path, isolated=True, limits=ModelLimits(memory_bytes=64 << 20))
    assert found["weight"].shape == (256 << 20,)


@pytest.mark.filterwarnings("ignore::safepoint.weights.UnrestrictedLoad")
def test_too_much_time(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.pt", {"sum": Calls(sum, range(10**15))})
    with refused(LimitExceeded, busy(path, 1)):
        load_checkpoint(path, isolated=True, safe=False, limits=ModelLimits(cpu_seconds=1))


@pytest.mark.filterwarnings("ignore::safepoint.weights.UnrestrictedLoad")
@pytest.mark.parametrize(
    ("call", "how"),
    [(Calls(ctypes.string_at, 0), "SIGSEGV"), (Calls(os._exit, 0), "exit 0")],
    ids=["SIGSEGV", "exit 0"],
)
def test_a_file_that_ends_the_process(tmp_path: Path, call: Calls, how: str) -> None:
    """Also if it ends as if all were well: the child has to say that it is done."""
    path = saved(tmp_path / "model.pt", {"call": call})
    with refused(UnsafeModel, crashed(path, how)):
        load_checkpoint(path, isolated=True, safe=False)


@pytest.mark.parametrize(
    ("lines", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
        ("sys.exit(7)", "exit 7"),
        ("raise KeyError", "exit 1"),
        ("", "exit 0"),
        ('os.write(1, b"Done")', "exit 0"),
        ('os.write(1, b"done done")', "exit 0"),
        (SAY_DONE + "sys.exit(3)", "exit 3"),
        (SAY_DONE + "os.kill(os.getpid(), signal.SIGBUS)", "SIGBUS"),
    ],
)
def test_a_child_that_ends_otherwise(path: Path, child: Child, lines: str, how: str) -> None:
    child(lines)
    with refused(UnsafeModel, crashed(path, how)):
        load_checkpoint(path, isolated=True)


def test_a_child_that_is_killed(path: Path, child: Child) -> None:
    """By the system, when the memory of the machine ends: that is not the time that ran out."""
    child("os.kill(os.getpid(), signal.SIGKILL)")
    message = (
        f"The isolated process that read {path} was killed from outside. Nothing was loaded. Look"
        " whether the machine ran out of memory, and load it where there is more."
    )
    with refused(LimitExceeded, message):
        load_checkpoint(path, isolated=True)


@pytest.mark.parametrize("lines", ["", "os.close(1);", SAY_DONE], ids=["silent", "closed", "done"])
def test_a_child_that_waits(
    path: Path, child: Child, monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    """It computes nothing, so no limit inside would end it. It is ended from here."""
    monkeypatch.setattr(isolated, "_PATIENCE", -1.7)  # that, and two seconds for each of the limit
    child(lines + "signal.pause()")
    with refused(LimitExceeded, busy(path, 1)):
        load_checkpoint(path, isolated=True, limits=ModelLimits(cpu_seconds=1))


def test_an_answer_without_end(path: Path, child: Child) -> None:
    """It is not kept, and nobody waits for its end."""
    child('exec("while True: os.write(1, bytes(100000))")')
    with refused(UnsafeModel, crashed(path, "exit 1")):
        load_checkpoint(path, isolated=True)


def test_a_process_that_the_child_leaves_behind(tmp_path: Path, path: Path, child: Child) -> None:
    """It left the group, and holds the pipe. This process does not wait for it."""
    left = tmp_path / "left"
    child(
        "import subprocess;"
        "other = subprocess.Popen(['sleep', '600'], start_new_session=True);"
        f"open({str(left)!r}, 'w').write(str(other.pid));"
        "os._exit(5)"
    )
    with refused(UnsafeModel, crashed(path, "exit 5")):
        load_checkpoint(path, isolated=True)
    os.kill(int(left.read_text()), signal.SIGKILL)  # it was there still, or this raises


def test_a_process_in_the_group_of_the_child(tmp_path: Path, path: Path, child: Child) -> None:
    """Whatever the child started is ended with it."""
    left = tmp_path / "left"
    child(
        "import subprocess; other = subprocess.Popen(['sleep', '600']);"
        f"open({str(left)!r}, 'w').write(str(other.pid)); sys.exit(5)"
    )
    with refused(UnsafeModel, crashed(path, "exit 5")):
        load_checkpoint(path, isolated=True)
    deadline = time.monotonic() + 60
    while alive(left.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)  # a signal takes its time on a busy machine
    assert not alive(left.read_text())


def alive(pid: str) -> bool:
    seen = subprocess.run(["ps", "-o", "stat=", "-p", pid], check=False, capture_output=True)
    return seen.stdout.strip()[:1] not in (b"", b"Z")


def telling(answer: object) -> str:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return f"os.write(1, {text!r}.encode()); sys.exit(3)"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("NotFound", NotFound), ("UnsafeModel", UnsafeModel), ("CheckpointError", ModelError)],
)
def test_an_error_of_the_child_is_raised_here(
    path: Path, child: Child, name: str, kind: type[CheckpointError]
) -> None:
    child(telling({"error": name, "what": "What.", "do": "Do."}))
    with refused(kind, "What. Do."):
        load_checkpoint(path, isolated=True)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "no JSON",
        "{",
        "[1, 2]",
        "7",
        "[" * 10_000,
        '{"error": 1' + "0" * 5000 + "}",
        {"error": "NotFound"},
        {"error": "NotFound", "what": "What."},
        {"error": "SystemExit", "what": "What.", "do": "Do."},
        {"error": "os", "what": "What.", "do": "Do."},
        {"error": "Any", "what": "What.", "do": "Do."},
        {"error": "quoted", "what": "What.", "do": "Do."},
        {"error": "__name__", "what": "What.", "do": "Do."},
        {"error": ["NotFound"], "what": "What.", "do": "Do."},
        {"error": "NotFound", "what": "two\nlines", "do": "Do."},
        {"error": "NotFound", "what": "\x1b[31mred", "do": "Do."},
        {"error": "NotFound", "what": "What.", "do": "\udcff"},
        {"error": "NotFound", "what": "What.", "do": "x" * 2000},
    ],
    ids=lambda answer: str(answer)[:30],
)
def test_an_answer_that_is_no_error_of_ours(path: Path, child: Child, answer: object) -> None:
    """Whatever it says: one error of the tree, on one line, with nothing of the answer in it."""
    child(telling(answer))
    with refused(UnsafeModel, crashed(path, "exit 3")):
        load_checkpoint(path, isolated=True)


def handing(tensors: Path, rest: Path) -> str:
    """Return lines that hand back what is in these files."""
    return (
        f"os.write(task['tensors'], open({str(tensors)!r}, 'rb').read());"
        f"os.write(task['rest'], open({str(rest)!r}, 'rb').read()); {SAY_DONE}"
    )


@pytest.fixture
def handed(tmp_path: Path, child: Child) -> Callable[[bytes, bytes], None]:
    def hand(tensors: bytes, rest: bytes) -> None:
        (tmp_path / "tensors").write_bytes(tensors)
        (tmp_path / "rest").write_bytes(rest)
        child(handing(tmp_path / "tensors", tmp_path / "rest"))

    return hand


def test_what_is_handed_back(path: Path, handed: Callable[[bytes, bytes], None]) -> None:
    """The tests below change one thing each about this one."""
    handed(save(state_dict()), pack(state_dict()).rest)
    assert same(load_checkpoint(path, isolated=True), state_dict())


NOT_OURS = "Nothing was loaded. Load what save_checkpoint wrote, with its own files."


@pytest.mark.parametrize(
    ("tensors", "rest", "what"),
    [
        (b"", b"{}", "model.pt is empty."),
        (b"\xff" * 100, b"{}", "The header of the safetensors file takes"),
        (save(state_dict())[:-1], pack(state_dict()).rest, "model.pt ends before"),
        (save(state_dict()), b"", "not JSON"),
        (save(state_dict()), b"\x80\x04N.", "not "),
        (save({"other": torch.ones(1)}), pack(state_dict()).rest, "which is not in the file"),
        (save(state_dict()), b"{}", "which is not part of the state"),
    ],
    ids=["nothing", "garbage", "cut", "no rest", "a pickle", "other tensors", "one too many"],
)
def test_a_child_that_hands_back_something_else(
    path: Path,
    handed: Callable[[bytes, bytes], None],
    tensors: bytes,
    rest: bytes,
    what: str,
) -> None:
    """It is read like the file of a stranger."""
    handed(tensors, rest)
    with pytest.raises((ModelMalformed, LimitExceeded), match=what):
        load_checkpoint(path, isolated=True)


def test_a_rest_without_end(path: Path, child: Child) -> None:
    child(f"os.truncate(task['rest'], 1 << 40); {SAY_DONE} os.write(task['tensors'], b'x')")
    with pytest.raises((ModelMalformed, LimitExceeded)):
        load_checkpoint(path, isolated=True)


def test_the_schema_is_held_against_what_came_back(
    path: Path, handed: Callable[[bytes, bytes], None]
) -> None:
    handed(save(state_dict()), pack(state_dict()).rest)
    schema = Schema({"weight": TensorSpec("float32", (2, 4))}, extra=True)
    message = (
        f"{path}: The tensor 'weight' is float32 (2, 3), and the schema says float32 (2, 4). Load"
        " the file that belongs to this model."
    )
    with refused(ModelMismatch, message):
        load_checkpoint(path, isolated=True, schema=schema)


def test_what_the_child_gets(
    tmp_path: Path, path: Path, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No variable, no folder, no input and no descriptor of this process but those of the task."""
    for name in ("PYTHONPATH", "LD_PRELOAD_NOT", "AWS_SECRET_ACCESS_KEY", "HOME", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setattr(sys, "path", ["", "relative", *sys.path])
    seen = tmp_path / "seen"
    with seen.open("wb") as extra:
        os.set_inheritable(extra.fileno(), True)
        child(
            "told = dict(environment=dict(os.environ), folder=os.getcwd(),"
            " isolated=sys.flags.isolated, leads=os.getsid(0) == os.getpid(),"
            " path=json.loads(sys.argv[1]), input=os.readlink('/proc/self/fd/0'),"
            " errors=os.readlink('/proc/self/fd/2'),"
            " open=[int(fd) for fd in os.listdir('/proc/self/fd')],"
            " given=[task['source'], task['tensors'], task['rest']]);"
            f"open({str(seen)!r}, 'w').write(json.dumps(told))"
        )
        with pytest.raises(UnsafeModel):
            load_checkpoint(path, isolated=True)
    told = json.loads(seen.read_text())
    # Python itself sets the first one where there is no locale.
    told["environment"].pop("LC_CTYPE", None)
    assert told["environment"] == {"OMP_NUM_THREADS": "1", "PATH": os.defpath}
    assert (told["folder"], told["isolated"], told["leads"]) == ("/", 1, True)
    # It runs in another folder, so each entry is where it is from here.
    assert told["path"][:2] == [str(Path.cwd()), str(Path.cwd() / "relative")]
    assert told["path"] == [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100
    assert (told["input"], told["errors"]) == ("/dev/null", "/dev/null")
    others = set(told["open"]) - {0, 1, 2, *told["given"]}
    assert len(others) <= 1  # the listing itself


def test_watching(path: Path, child: Child) -> None:
    """An interrupt while the child works ends it. That it ended, the fixture above checks."""
    child("signal.pause()")
    calls: list[int] = []

    def watch() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with (
        open_model(path, ModelLimits()) as model,
        tempfile.TemporaryFile() as tensors,
        tempfile.TemporaryFile() as rest,
        pytest.raises(KeyboardInterrupt),
    ):
        isolated.load_apart(model, tensors, rest, limits=ModelLimits(), watch=watch)
    assert len(calls) == 3


def test_an_application_that_ignores_its_children(path: Path, child: Child) -> None:
    """Then the system keeps no exit status. The child's word counts."""
    child("sys.exit(9)")
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with refused(UnsafeModel, crashed(path, "exit 0")):
            load_checkpoint(path, isolated=True)
    finally:
        signal.signal(signal.SIGCHLD, old)


def test_no_way_to_start_a_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    message = (
        "The isolated process cannot be started (Cannot allocate memory). Free memory or processes,"
        " and try again."
    )
    with refused(StorageUnavailable, message):
        load_checkpoint(path, isolated=True)


def test_no_python_to_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    message = (
        "This process does not know its own Python, so it cannot start another. Load without"
        " isolated=True, or run it with a regular Python."
    )
    with refused(ConfigurationError, message):
        load_checkpoint(path, isolated=True)


def test_another_system(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "os", SimpleNamespace(name="nt"))
    message = "An isolated load needs a POSIX system. Load on Linux or macOS, or in a container."
    with refused(StorageUnavailable, message):
        load_checkpoint(path, isolated=True)
