"""The crash driver: the same work again and again, killed one step later each time.

    def save(folder: Path, text: str) -> None:         # a function of a module, not a closure
        FileCheckpointStorage(folder / "store").append("a", 1, text.encode())

    def test_a_killed_save(tmp_path: Path) -> None:
        for left in killed(save, tmp_path, "hello"):    # or killed(…, prepared=a_folder_to_copy)
            storage = FileCheckpointStorage(left.folder / "store")
            assert storage.head("a") == ("link" in left.steps)

A step is a call of `os` that changes a folder or a file, or a statement of SQLite that does. Other
calls and statements change nothing, so a kill after them shows nothing new; the same goes for a
sync, because a killed process loses nothing that it wrote. What goes through `open()` is not seen.
`failed` lets each step raise an OSError in place of the kill: what raised, left nothing behind.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.harness.optional import Late

ROOT = Path(__file__).resolve().parents[2]
CHANGING: Final = (
    *("chmod", "copy_file_range", "fchmod", "ftruncate", "link", "mkdir", "open", "remove"),
    *("posix_fallocate", "pwrite", "pwritev", "rename", "replace", "rmdir", "symlink"),
    *("truncate", "unlink", "utime", "write", "writev"),
)
READING: Final = re.compile(
    r"select|begin|commit|--|pragma (?!journal_mode|user_version|wal)", re.IGNORECASE
)
"""How statements of SQLite begin that change no file, or that end what did not."""
PIECE = 200  # bytes that one write takes, or a quarter: what is written in pieces can tear


@dataclass(frozen=True)
class Left:
    """What a run left.

    Attributes:
        folder: that it worked in.
        steps: that it did, in order; the last one is the one that it was killed after, or that
            failed.
        whole: whether it came to its end, and neither was killed nor raised.
        error: the name and the message of what it raised, or "".
    """

    folder: Path
    steps: tuple[str, ...]
    whole: bool
    error: str


class _Order(NamedTuple):
    """What the driver does: a function of a module, its arguments, and where."""

    module: str
    name: str
    arguments: Sequence[str | int]
    ground: str
    prepared: str
    code: int = 0
    stride: int = 1


def killed(
    act: Callable[..., object],
    ground: Path,
    *arguments: str | int,
    prepared: Path | None = None,
    code: int = 0,
    stride: int = 1,
) -> list[Left]:
    """Kill `act` after its first step, after its second, and so on.

    Args:
        act: a function of a module, which gets a folder of its own and the arguments.
        ground: an existing folder for those folders.
        arguments: for `act`.
        prepared: what each folder is a copy of. They are empty without it.
        code: the number of an error, to fail with it in place of each step and not to kill.
        stride: 3 for each third step, where `make deep` takes each.

    Returns:
        What each run left. The last one was not killed.
    """
    named, copied = (act.__module__, act.__qualname__), str(prepared or "")
    order = _Order(*named, arguments, str(ground), copied, code, stride)
    runs = [Left(Path(path), tuple(steps), *rest) for path, steps, *rest in _driven(order)]
    assert runs[-1].whole, f"{act.__qualname__} fails by itself: {runs[-1].error}"
    assert len(runs) > 1, f"{act.__qualname__} did no step that this driver sees"
    return runs


failed: Final = partial(killed, code=errno.ENOSPC)
"""Let the first step of `act` raise an OSError, then the second, and so on; syncs count."""


def _driven(order: _Order) -> list[Any]:
    # One driver forks a child per run: that costs a fork and not a start of Python, and a process
    # of its own has no threads that a fork would cut off.
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(order)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stdout[-9_000:] + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _drive(order: _Order) -> Iterator[tuple[str, list[str], bool, str]]:
    # Before anything is watched: modules ask what the system can do when they are imported.
    module = importlib.import_module(order.module)
    for each in vars(module).values():
        if isinstance(each, Late):
            importlib.import_module(each.late)
    act = attrgetter(order.name)(module)
    ground = Path(order.ground)
    first = len(list(ground.glob("run-*"))) + 1
    for number in range(first, first + 100_000):
        folder, last = ground / f"run-{number}", (number - first) * order.stride + 1
        if order.prepared:
            shutil.copytree(order.prepared, folder, symlinks=True)
        else:
            folder.mkdir(mode=0o700)
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reader)
            _child(order, partial(act, folder), last, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            steps = pipe.readline().decode().split()
            said = pipe.read().decode()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status not in (0, -signal.SIGKILL):
            sys.exit(f"Nobody killed it, and it ended with {status}.\n{said}")
        hit = status != 0 or len(steps) >= last
        yield str(folder), steps, not status and not said, said
        if not hit:
            return


def _child(order: _Order, act: Callable[..., object], last: int, writer: int) -> None:
    """Do the work in a forked process, and tell the steps and what was raised through a pipe."""
    say, kill, count, code = os.write, os.kill, 0, order.code
    changed = written = False

    def before(name: str) -> None:
        """Fail in place of the chosen step."""
        if code and count + 1 == last:
            after(name)
            raise OSError(code, os.strerror(code))

    def after(name: str) -> None:
        """Tell a step, and die after the chosen one."""
        nonlocal count
        count += 1
        say(writer, f"{name} ".encode())
        if count == last and not code:
            kill(os.getpid(), signal.SIGKILL)

    def watch(place: Any, name: str) -> None:
        real = getattr(place, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            if place is os and name == "open" and not args[1] & (os.O_CREAT | os.O_TRUNC):
                return real(*args, **kwargs)
            if place is os and name in ("write", "pwrite"):
                args = (args[0], args[1][: max(PIECE, len(args[1]) // 4)], *args[2:])
            before(name)
            result = real(*args, **kwargs)
            after(name)
            return result

        setattr(place, name, step)

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = real_connect(*args, **kwargs)
        connection.set_trace_callback(statement)
        return connection

    def statement(text: str) -> None:
        """Begin one: a kill here is one after the statement before it, if that changed a file."""
        nonlocal changed, written
        if changed:
            after("sql")
        reads, ends = READING.match(text.lstrip()), text.lower().startswith("commit")
        changed = not reads or (ends and written)
        written = not reads or (written and not ends)

    for name in (*CHANGING, *(["fsync", "fdatasync"] if code else [])):
        if hasattr(os, name):
            watch(os, name)
    if not code:
        os.fsync = os.fdatasync = lambda fd: None
        real_connect, sqlite3.connect = sqlite3.connect, connect  # type: ignore[assignment]
    try:
        act(*order.arguments)
        say(writer, b"\n")
    except BaseException as error:  # noqa: BLE001  told to the caller, which knows what it may be
        say(writer, f"\n{type(error).__name__}: {error}".encode())
    os._exit(0)


if __name__ == "__main__":
    given = _Order(*json.loads(sys.argv[1]))
    for run in _drive(given):
        print(json.dumps(run), flush=True)
