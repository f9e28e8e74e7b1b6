"""What runs in the isolated process: load one file under limits, and write down what it held."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from safepoint._files import FULL
from safepoint.errors import CheckpointError, LimitExceeded, ModelError, StorageFull, shell
from safepoint.pickles.kinds import Kind
from safepoint.weights import _packages
from safepoint.weights.files import ModelFile
from safepoint.weights.isolated import DONE
from safepoint.weights.limits import ModelLimits
from safepoint.weights.packing import pack
from safepoint.weights.reading import no_memory, restricted, unrestricted, wants_memory
from safepoint.weights.tensorfile import open_tensors
from safepoint.weights.writing import write_into

REFUSED: Final = 3


def main(text: str) -> NoReturn:
    """Do the task that `text` describes, and end the process."""
    task = json.loads(text)
    limits = ModelLimits(**task["limits"])
    pipe = _kept()
    shown = shell(task["path"])
    try:
        _packages.torch()  # before the limits: it alone maps gigabytes
        _confine(limits, os.fstat(task["source"]).st_size)
        _work(task, limits)
    except CheckpointError as error:
        short = str(error) == str(no_memory(shown))
        _refuse(pipe, _too_much(shown, limits) if short else error)
    except Exception as error:
        if wants_memory(error):
            _refuse(pipe, _too_much(shown, limits))
        if isinstance(error, OSError) and error.errno in FULL:
            _refuse(pipe, _no_room(shown, error.errno))
        raise
    os.write(pipe, DONE)
    # Nothing of what the file left behind gets to run: no destructor, no atexit.
    os._exit(0)


def _kept() -> int:
    """Keep the pipe to the parent for the answer alone: a file that is trusted may print."""
    pipe = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return pipe


def _confine(limits: ModelLimits, size: int) -> None:
    import resource

    # What an honest file takes: its tensors, once as loaded and once as read back, and some more.
    _lower(resource.RLIMIT_AS, _mapped() + 3 * size + limits.memory_bytes)
    _lower(resource.RLIMIT_CPU, _computed() + limits.cpu_seconds, grace=1)
    _lower(resource.RLIMIT_FSIZE, 2 * limits.file_bytes)
    _lower(resource.RLIMIT_CORE, 0)


def _lower(what: int, most: int, grace: int = 0) -> None:
    """Set a limit. With grace, the first signal says which limit it was, and the next one kills."""
    import resource

    soft, hard = resource.getrlimit(what)
    last = most + grace
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    if hard != resource.RLIM_INFINITY:
        most, last = min(most, hard), min(last, hard)
    resource.setrlimit(what, (most, last))


def _mapped() -> int:
    """Return how much address space this process has by now."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 16 << 30


def _computed() -> int:
    """Return how many seconds this process has computed by now."""
    import time

    return int(time.process_time()) + 1


def _work(task: dict[str, Any], limits: ModelLimits) -> None:
    with os.fdopen(task["source"], "rb") as file:
        size = os.fstat(task["source"]).st_size
        model = ModelFile(task["path"], file, size, True, Kind(task["kind"]))
        file.seek(0)
        if task["safe"] is True:
            state = restricted(model, None, limits)
        else:
            state = unrestricted(model, limits)
        packed = pack(state)
        write_into(task["tensors"], packed.tensors)
        _compare(task, packed.tensors, limits)
        with os.fdopen(task["rest"], "wb") as rest:
            rest.write(packed.rest)


def _compare(task: dict[str, Any], tensors: Mapping[str, Any], limits: ModelLimits) -> None:
    """Read back what was written, and compare it with what was loaded, byte by byte."""
    torch = _packages.torch()
    with os.fdopen(os.dup(task["tensors"]), "rb", buffering=0) as file:
        written = open_tensors(file, limits, private=True)

    def same(name: str) -> bool:
        mine, its = tensors[name], written[name]
        return (
            mine.dtype == its.dtype
            and mine.shape == its.shape
            and bool(torch.equal(_bytes(torch, mine), _bytes(torch, its)))
        )

    if written.keys() != tensors.keys() or not all(map(same, tensors)):
        raise ModelError(
            f"What was written of {shell(task['path'])} is not what was loaded.",
            "Nothing was kept. Try again; if it stays, look for a faulty disk or memory.",
        )


def _bytes(torch: Any, tensor: Any) -> Any:
    return tensor.reshape(-1).view(torch.uint8)  # as bytes, a NaN is equal to itself


def _too_much(shown: str, limits: ModelLimits) -> LimitExceeded:
    return LimitExceeded(
        f"{shown} needs more memory than the {limits.memory_bytes:,} bytes that the isolated"
        " process may use besides.",
        "Nothing was loaded. If it is meant to be that large, raise ModelLimits.memory_bytes.",
    )


def _no_room(shown: str, code: int) -> StorageFull:
    return StorageFull(
        f"There is no room to write down what {shown} holds ({errno.errorcode[code]}), so nothing"
        " was saved.",
        "Free some space, there and where temporary files go, and try again.",
    )


def _refuse(pipe: int, error: CheckpointError) -> NoReturn:
    told = {"error": type(error).__name__, "what": error.what, "do": error.do}
    os.write(pipe, json.dumps(told).encode())
    os._exit(REFUSED)
