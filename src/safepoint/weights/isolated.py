"""A process of its own in which a file is loaded, under limits. It hands back safetensors.

"Safe" means that no code of the file runs. It does not mean that the loader survives: a file can
ask for all the memory, compute for hours, or crash the process. Here it only takes down a child.
What the child hands back is read like any file of a stranger's.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO, Any, BinaryIO, Final

import safepoint.errors
from safepoint import _files as _posix
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    ModelError,
    StorageUnavailable,
    UnsafeModel,
)
from safepoint.weights.files import ModelFile
from safepoint.weights.limits import ModelLimits

_START: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    " from safepoint.weights._worker import main; main(sys.argv[2])"
)
DONE: Final = b"done"
"""What the child says at the end. A status of 0 alone says nothing: code can exit, too."""

_PAUSE: Final = 0.02
_PATIENCE: Final = 60
_ANSWER: Final = 64 * 1024
_LONGEST: Final = 2_000


@dataclass(frozen=True, slots=True)
class Task:
    """What the child is to do: load what is behind a descriptor, and write what it held.

    Attributes:
        source: the descriptor of the model file.
        path: where it is, for messages.
        kind: what it is.
        safe: whether to load it restricted.
        tensors: the descriptor of the file for the tensors.
        rest: the descriptor of the file for the rest.
        limits: those of the model.
    """

    source: int
    path: str
    kind: str
    safe: bool
    tensors: int
    rest: int
    limits: ModelLimits

    def __str__(self) -> str:
        return json.dumps(asdict(self))


def load_apart(
    model: ModelFile,
    tensors: BinaryIO,
    rest: BinaryIO,
    *,
    limits: ModelLimits,
    safe: bool = True,
    watch: Callable[[], None] | None = None,
) -> None:
    """Load a model in a child, and let it write its tensors and the rest into two open files.

    Args:
        model: the model file, open.
        tensors: where the tensors go, as safetensors.
        rest: where the rest goes, as canonical JSON.
        limits: what the child may use.
        safe: whether it loads restricted.
        watch: called a few times a second while it works.

    Raises:
        LimitExceeded: it needed more memory or time than the limits.
        UnsafeModel: it wants more than data, or crashed the child.
        CheckpointError: whatever else the child refused.
        StorageUnavailable: there is no way to start a child here.
    """
    if os.name != "posix":
        raise StorageUnavailable(
            "An isolated load needs a POSIX system.", "Load on Linux or macOS, or in a container."
        )
    with _descriptor_of(model) as source:
        task = Task(source, model.path, model.kind, safe, tensors.fileno(), rest.fileno(), limits)
        descriptors = (source, tensors.fileno(), rest.fileno())
        code, answer = _run(task, descriptors, watch)
    if code or answer != DONE:
        raise _failure(model.shown, code, answer, limits)


@contextmanager
def _descriptor_of(model: ModelFile) -> Iterator[int]:
    """Return a descriptor of the bytes of a model, also if they are a copy in memory."""
    if not isinstance(model.file, io.BytesIO):
        yield model.file.fileno()
        return
    with _unnamed() as file, model.file.getbuffer() as copy:
        _posix.write_all(file.fileno(), copy)
        yield file.fileno()


def _unnamed() -> IO[bytes]:
    """Return a file without a name: in memory, where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("model"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _run(
    task: Task, descriptors: Sequence[int], watch: Callable[[], None] | None
) -> tuple[int, bytes]:
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100
    if not sys.executable:
        raise ConfigurationError(
            "This process does not know its own Python, so it cannot start another.",
            "Load without isolated=True, or run it with a regular Python.",
        )
    # What it may compute is limited inside. This is for a child that only waits.
    deadline = time.monotonic() + _PATIENCE + 2 * task.limits.cpu_seconds
    try:
        child = subprocess.Popen(  # noqa: S603 -- our own module, and nothing of the file's
            [sys.executable, "-I", "-c", _START, path, str(task)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=descriptors,
            env={"OMP_NUM_THREADS": "1", "PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise StorageUnavailable(
            f"The isolated process cannot be started ({error.strerror}).",
            "Free memory or processes, and try again.",
        ) from None
    answer = b""
    with child:
        try:
            while child.poll() is None:
                if time.monotonic() > deadline:
                    return -signal.SIGXCPU, b""
                answer += _heard(child)
                if len(answer) > _ANSWER:
                    return 1, b""
                if watch is not None:
                    watch()
                time.sleep(_PAUSE)
            answer += _heard(child)
        finally:
            _kill(child)
    return child.returncode, answer


def _heard(child: subprocess.Popen[bytes]) -> bytes:
    """Return what the child has said since, without waiting: what it started may hold the pipe."""
    if child.stdout is None:
        return b""
    pipe = child.stdout.fileno()
    os.set_blocking(pipe, False)
    try:
        return os.read(pipe, _ANSWER + 1)
    except BlockingIOError:
        return b""


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        child.kill()
    child.wait()


def _failure(shown: str, code: int, answer: bytes, limits: ModelLimits) -> CheckpointError:
    told = _told(answer)
    if told is not None:
        return told
    if code == -signal.SIGKILL:
        return LimitExceeded(
            f"The isolated process that read {shown} was killed from outside.",
            "Nothing was loaded. Look whether the machine ran out of memory, and load it where"
            " there is more.",
        )
    if code == -signal.SIGXCPU:
        return LimitExceeded(
            f"{shown} kept the isolated process busy beyond the limit of {limits.cpu_seconds} s.",
            "Nothing was loaded. If it is meant to be that large, raise ModelLimits.cpu_seconds.",
        )
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit {code}"
    return UnsafeModel(
        f"{shown} crashed the isolated process that read it ({name}).",
        "Nothing was loaded, and this process is unharmed. Do not load it anywhere else.",
    )


def _told(answer: bytes) -> CheckpointError | None:
    """Return the error that the child reports, if it is one of ours and reads like one."""
    try:
        told: Any = json.loads(answer)
        kind = getattr(safepoint.errors, told["error"])
        what, do = str(told["what"]), str(told["do"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not (isinstance(kind, type) and issubclass(kind, CheckpointError)):
        return None
    if not all(len(text) < _LONGEST and text.isprintable() for text in (what, do)):
        return None
    return kind(what, do) if kind is not CheckpointError else ModelError(what, do)
