"""Try something on many files, in a child that they may break.

One process imports what is slow to import, then forks: whatever a file does, it does to a child.
Payloads that are expected to run get a child each. The other files share one, and if it dies, the
next file gets a new one: a fork of a process that has PyTorch takes longer than most files.
`python -m tests.corpus.forked MODULES` imports them, and reads what to do from its standard input,
one order in a line; `attempt` is how a test asks for it.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.harness.blocks import ROOT

GIB = 1024**3
_ANSWER = 1 << 16
_LONGEST = 20_000
_SHORT, _LONG = 1.0, 600.0  # seconds for what runs in the background: where it has to, it does


class Tried(NamedTuple):
    """What came of one file.

    Attributes:
        ran: whether something is in the folder where the payload leaves its marker.
        said: what the function returned, as text, or "" if it raised or did not answer.
        error: the raised exception: its type, and those it derives from.
        message: its message.
        ended: how the process ended that tried it: 0, or the negative number of a signal.
    """

    ran: bool
    said: str
    error: tuple[str, ...]
    message: str
    ended: int


class Limits(NamedTuple):
    """What a file may use beyond what the child already has."""

    memory: int = 2 * GIB
    cpu: int = 20
    seconds: int = 600  # for one that only waits: machines differ, and may be busy


def attempt(
    act: str,
    files: Mapping[str, Path],
    *,
    imports: Iterable[str] = (),
    limits: Limits = Limits(),  # noqa: B008  a constant
    runs: bool = False,
) -> dict[str, Tried]:
    """Call the function `act` with each path, in a child, and tell what came of it.

    Args:
        act: "module:function"; it gets the path, and its result is kept as text.
        files: each file, in a folder of its own next to a folder `left` for what it leaves.
        imports: modules to import before the first child.
        limits: for each file.
        runs: whether payloads are expected to run; then each has a child of its own, and it waits
            for those in the background.
    """
    order: dict[str, Any] = {"act": act, "limits": list(limits), "runs": runs}
    order["files"] = {name: str(path) for name, path in files.items()}
    parent = _parent(tuple(imports))
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(json.dumps(order) + "\n")
    parent.stdin.flush()
    said = parent.stdout.readline()
    if not said:
        raise RuntimeError(f"the process ended that was to try {act}")
    answers: dict[str, list[Any]] = json.loads(said)
    return {
        name: Tried(ran, said, tuple(kinds), message, ended)
        for name, (ran, said, kinds, message, ended) in answers.items()
    }


@cache
def _parent(imports: tuple[str, ...]) -> subprocess.Popen[str]:
    """Start a process that has these modules, and keep it for the next order."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.corpus.forked", *imports],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    atexit.register(process.communicate)  # the end of its input is its end
    return process


def left(path: Path) -> Path:
    """Return the folder in which a file's payload leaves its marker."""
    return path.parent / "left"


def main(modules: Iterable[str]) -> None:
    """Do what the standard input asks for, until its end."""
    for module in modules:
        importlib.import_module(module)
    while line := sys.stdin.readline():
        sys.stdout.write(json.dumps(_answers(json.loads(line))) + "\n")
        sys.stdout.flush()


def _answers(order: Mapping[str, Any]) -> dict[str, list[Any]]:
    module, _, attribute = order["act"].partition(":")
    act = getattr(importlib.import_module(module), attribute)
    limits = Limits(*order["limits"])
    files = {name: Path(path) for name, path in order["files"].items()}
    answers: dict[str, list[Any]] = {}
    while names := [name for name in files if name not in answers]:
        some = names[:1] if order["runs"] else names
        said = _in_child(act, [files[name] for name in some], limits, order["runs"])
        answers.update(zip(some, said, strict=False))
    deadline = time.monotonic() + (_LONG if order["runs"] else _SHORT)
    while time.monotonic() < deadline and not all(map(_ran, files.values())):
        time.sleep(0.02)
    return {name: [_ran(files[name]), *answers[name]] for name in files}


def _ran(path: Path) -> bool:
    return any(left(path).iterdir())


def _in_child(
    act: Callable[[Path], Any], paths: Sequence[Path], limits: Limits, runs: bool
) -> list[list[Any]]:
    """Return what the child said of each path, up to the one that it died of, if it did."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        try:
            _confine()
            for path in paths:
                os.write(writer, json.dumps(_try(act, path, limits, runs)).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    said, in_time = _read(reader, limits.seconds)
    if not in_time:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(reader)
    # A payload that forks makes two of the child, and both say something.
    answers = [[*json.loads(line), 0] for line in said.splitlines()[: len(paths)]]
    died = ["", [], "", os.waitstatus_to_exitcode(status)]
    return answers if len(answers) == len(paths) else [*answers, died]


def _read(reader: int, seconds: float) -> tuple[bytes, bool]:
    """Return what comes through the pipe, and whether it went on in time until its end."""
    said = b""
    while select.select([reader], [], [], seconds)[0]:
        part = os.read(reader, _ANSWER)
        if not part:
            return said[: said.rfind(b"\n") + 1], True
        said += part
    return said[: said.rfind(b"\n") + 1], False


def _confine() -> None:
    os.setpgid(0, 0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    _limit(resource.RLIMIT_CORE, 0)


def _try(act: Callable[[Path], Any], path: Path, limits: Limits, runs: bool) -> list[Any]:
    os.chdir(path.parent)
    _limit(resource.RLIMIT_AS, _used() + limits.memory)
    _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + limits.cpu)
    try:
        said = str(act(path))[:_LONGEST]
    except BaseException as error:  # noqa: BLE001  whatever it is, the parent wants to know
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return ["", kinds, str(error)[:_LONGEST]]
    finally:
        # A thread that the payload started ends with this process.
        deadline = time.monotonic() + (_LONG if runs else 0.0)
        while time.monotonic() < deadline and not _ran(path):
            time.sleep(0.005)
    return [said, [], ""]


def _limit(kind: int, most: int) -> None:
    """Set the limit that the next file may have raised again."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _used() -> int:
    """Return how much address space this process has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main(sys.argv[1:])
