"""A process of its own in which a file is loaded, under limits. It hands back safetensors.

"Safe" means that no code of the file runs. It does not mean that the loader survives: a file can
ask for all the memory, compute for hours, or crash the process. Here it only takes down a child.
What the child hands back is read like any file of a stranger's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

import safepoint.core.errors
from safepoint.core.errors import (
    CheckpointError,
    LimitExceeded,
    ModelRefused,
    Unavailable,
    shell,
)
from safepoint.core.files import write_all
from safepoint.core.names import DEFAULT_LIMITS
from safepoint.models.limits import ModelLimits
from safepoint.models.packing import pack
from safepoint.models.tensors import open_tensors, package, write_into
from safepoint.stores.disk import translate

if TYPE_CHECKING:
    from safepoint.models.loading import ModelFile

_START: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    " from safepoint.models.isolated import main; main(sys.argv[2])"
)
DONE: Final = b"done"
"""What the child says before the rest. A status of 0 alone says nothing: code can exit, too."""

_PATIENCE: Final = 60
_ANSWER: Final = 64 * 1024
_LONGEST: Final = 2_000


def load_apart(
    model: ModelFile, tensors: IO[bytes], *, limits: ModelLimits, safe: bool = True
) -> bytes:
    """Load a model in a child, let it write the tensors into an open file, and return the rest.

    Args:
        model: the model file, open.
        tensors: where the tensors go, as safetensors.
        limits: what the child may use.
        safe: whether it loads restricted.

    Returns:
        What `unpack` takes besides the tensors, if it is that.

    Raises:
        LimitExceeded: it needed more memory or time than the limits.
        ModelRefused: it wants more than data, or crashed the child.
        CheckpointError: whatever else the child refused.
        Unavailable: there is no way to start a child here.
    """
    if os.name != "posix" or not sys.executable:
        raise Unavailable(
            "An isolated load needs a POSIX system, and a Python that it can start.",
            "Load on Linux or macOS, or in a container.",
        )
    with tempfile.TemporaryFile() as answer:
        files = [each.fileno() for each in (model.file, tensors, answer)]
        code = _run(task_of(model.path, files, limits, safe), files, limits)
        answer.seek(0)
        said = answer.read(len(DONE) + DEFAULT_LIMITS.state_bytes + 1)
    if code or not said.startswith(DONE):
        raise _error_of(said[:_ANSWER]) or _failure(model.shown, code, limits)
    return said.removeprefix(DONE)


def task_of(path: str, files: Sequence[int], limits: ModelLimits, safe: bool) -> str:
    """Return what the child is to do: load what is behind a descriptor, and write what it held."""
    task = dict(zip(("source", "tensors", "answer"), files, strict=True))
    return json.dumps({**task, "path": path, "safe": safe is not False, "limits": asdict(limits)})


def _run(task: str, descriptors: Sequence[int], limits: ModelLimits) -> int:
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100
    try:
        child = subprocess.Popen(  # noqa: S603 -- our own module, and nothing of the file's
            [sys.executable, "-I", "-c", _START, path, task],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=descriptors,
            env={"OMP_NUM_THREADS": "1", "PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(
            f"The isolated process cannot be started ({error.strerror}).",
            "Free memory or processes, and try again.",
        ) from None
    with child:
        try:
            # What it may compute is limited inside. This is for a child that only waits.
            return child.wait(_PATIENCE + 2 * limits.cpu_seconds)
        except subprocess.TimeoutExpired:
            return -signal.SIGXCPU
        finally:  # the child, and whatever it started
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                child.kill()


def _failure(shown: str, code: int, limits: ModelLimits) -> CheckpointError:
    if code == -signal.SIGKILL:
        return LimitExceeded(
            f"The isolated process that read {shown} was killed from outside.",
            "Nothing was loaded. Find out whether the machine ran out of memory, and load it where"
            " there is more.",
        )
    if code == -signal.SIGXCPU:
        return LimitExceeded(
            f"{shown} kept the isolated process busy beyond the limit of {limits.cpu_seconds} s.",
            "Nothing was loaded. If it is meant to be that large, raise ModelLimits.cpu_seconds.",
        )
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit {code}"
    return ModelRefused(
        f"{shown} crashed the isolated process that read it ({name}).",
        "Nothing was loaded, and this process is unharmed. Do not load it anywhere else.",
    )


def _error_of(answer: bytes) -> CheckpointError | None:
    """Return the error that the child reports, if it is one of ours and reads like one."""
    try:
        told: Any = json.loads(answer)
        kind = getattr(safepoint.core.errors, told["error"])
        what, do = str(told["what"]), str(told["do"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    ours = isinstance(kind, type) and issubclass(kind, CheckpointError)
    plain = all(len(text) < _LONGEST and text.isprintable() for text in (what, do))
    return kind(what, do) if ours and plain else None


# What runs in the child.


def main(text: str) -> NoReturn:
    """Do the task that `text` describes, and end the process."""
    from safepoint.models.loading import wants_memory

    task = json.loads(text)
    limits = ModelLimits(**task["limits"])
    shown = shell(task["path"])
    too_much = LimitExceeded(
        f"{shown} needs more memory than the {limits.memory_bytes:,} bytes that the isolated"
        " process may use beyond PyTorch itself and three times the file.",
        "Nothing was loaded. If it is meant to be that large, raise ModelLimits.memory_bytes.",
    )
    problem: CheckpointError
    try:
        package()  # before the limits: it alone maps gigabytes
        _confine(limits, os.fstat(task["source"]).st_size)
        rest = _work(task, limits)
    except CheckpointError as error:
        problem = too_much if error.kind == "memory" else error
    except Exception as error:
        if wants_memory(error):
            problem = too_much
        elif isinstance(error, OSError):
            problem = translate(error, "write down what it found in", task["path"])
        else:
            raise
    else:
        write_all(task["answer"], DONE + rest)
        # Nothing of what the file left behind gets to run: no destructor, no atexit.
        os._exit(0)
    told = {"error": type(problem).__name__, "what": problem.what, "do": problem.do}
    os.write(task["answer"], json.dumps(told).encode())
    os._exit(1)


def _confine(limits: ModelLimits, size: int) -> None:
    import resource

    # What an honest file takes: its tensors, once as loaded and once as read back, and some more.
    for what, most, grace in (
        (resource.RLIMIT_AS, _mapped() + 3 * size + limits.memory_bytes, 0),
        # The first signal says which limit it was, and the next one kills.
        (resource.RLIMIT_CPU, int(time.process_time()) + 1 + limits.cpu_seconds, 1),
        (resource.RLIMIT_FSIZE, 2 * limits.file_bytes, 0),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        soft, hard = (
            sys.maxsize if now == resource.RLIM_INFINITY else now
            for now in resource.getrlimit(what)
        )
        resource.setrlimit(what, (min(most, soft), min(most + grace, hard)))


def _mapped() -> int:
    """Return how much address space this process has by now."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 16 << 30


def _work(task: dict[str, Any], limits: ModelLimits) -> bytes:
    from safepoint.models.loading import ModelFile, restricted, unrestricted
    from safepoint.models.look import identified

    torch = package()
    with os.fdopen(task["source"], "rb") as file:
        size = os.fstat(task["source"]).st_size
        model = ModelFile(task["path"], file, size, *identified(file, model=limits))
        trusted = task["safe"] is False
        state = unrestricted(model, limits) if trusted else restricted(model, None, limits)
        packed = pack(state)
        write_into(task["tensors"], packed.tensors)
    # Read back what was written, and compare it with what was loaded, byte by byte.
    with os.fdopen(task["tensors"], "rb") as back:
        written = open_tensors(back, limits)

    def same(name: str) -> bool:
        mine, its = packed.tensors[name], written[name]
        return (
            mine.dtype == its.dtype
            and mine.shape == its.shape
            # As bytes, a NaN is equal to itself.
            and bool(torch.equal(*(each.reshape(-1).view(torch.uint8) for each in (mine, its))))
        )

    if written.keys() != packed.tensors.keys() or not all(map(same, written)):
        raise ModelRefused(
            f"What was written of {model.shown} is not what was loaded.",
            "Nothing was kept. Try again; if it stays, look for a faulty disk or memory.",
        )
    return packed.rest
