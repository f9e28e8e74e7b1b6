"""A process that is killed after each of its steps: one driver for whatever it does.

A step is a call that changes what is in a folder or a file. After any other call all is as it was
before it, so a kill there shows nothing new. That goes for a sync, too: a killed process loses
nothing that it wrote, so here nobody waits for the disk.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STEPS = (
    "chmod",
    "fchmod",
    "ftruncate",
    "link",
    "mkdir",
    "open",
    "pwrite",
    "rename",
    "unlink",
    "write",
)
Act = Callable[[Path], None]


def kill_after_each_step(act: Act, prepared: Path, ground: Path) -> tuple[list[str], list[Path]]:
    """Let `act` work on a copy of `prepared` again and again, and kill it one step later each time.

    One driver forks a child per step, so that this costs a fork and not a start of Python.

    Args:
        act: a function of a module, which gets the path of its copy.
        prepared: the folder to copy.
        ground: where the copies go.

    Returns:
        The steps, and the copy that a kill after each one left. Nobody was killed in the last one.
    """
    names = [act.__module__, act.__name__, str(prepared), str(ground)]
    done = subprocess.run(
        [sys.executable, "-m", __name__, *names],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    steps: list[str] = json.loads(done.stdout)
    return steps, [ground / str(number) for number in range(1, len(steps) + 2)]


def no_sync(fd: object) -> None:
    """Do what a sync does for a process that may be killed: nothing."""


def _killed(act: Act, path: Path, last: int) -> list[str]:
    """Do it, and die right after the given step; return the steps if there are fewer."""
    log: list[str] = []

    def hook(name: str) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            if name in ("write", "pwrite"):
                args = (args[0], args[1][:200], *args[2:])  # what is written in pieces can tear
            try:
                return real(*args, **kwargs)
            finally:
                log.append(name)
                if len(log) == last:
                    os.kill(os.getpid(), signal.SIGKILL)

        setattr(os, name, step)

    for name in STEPS:
        hook(name)
    os.fsync = no_sync
    act(path)
    return log


def _drive(act: Act, prepared: Path, ground: Path) -> list[str]:
    last = 0
    while True:
        last += 1
        path = ground / str(last)
        shutil.copytree(prepared, path)
        reader, writer = os.pipe()
        say = os.write
        pid = os.fork()
        if not pid:
            try:
                said = json.dumps(_killed(act, path, last)).encode()
                while said:
                    said = said[say(writer, said) :]
            except BaseException as error:  # noqa: BLE001  told below, by the exit code
                sys.excepthook(type(error), error, error.__traceback__)
                os._exit(99)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == 0:
            steps: list[str] = json.loads(said)
            return steps
        if code != -signal.SIGKILL:
            sys.exit(code)


if __name__ == "__main__":
    module, name, prepared, ground = sys.argv[1:]
    found = getattr(importlib.import_module(module), name)
    print(json.dumps(_drive(found, Path(prepared), Path(ground))))
