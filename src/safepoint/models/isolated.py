"""A process of its own for `convert(safe=False)`, in which a file may run code.

The file is trusted. Even so, its code does not get to the key that seals the result, and nothing
that it leaves behind runs here. What the process hands back is read like any file of a stranger's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import IO, Final, NoReturn

from safepoint.core.errors import CheckpointError, ModelRefused, Unavailable
from safepoint.core.names import DEFAULT_LIMITS
from safepoint.models.loading import ModelFile, unrestricted
from safepoint.models.look import Format
from safepoint.models.packing import write_packed
from safepoint.stores.disk import write_all

_START: Final = (
    "import sys, json; path, task = map(json.loads, sys.argv[1:]); sys.path[:] = path;"
    " from safepoint.models.isolated import main; main(*task)"
)
# The process says one of them before the rest. A status of 0 alone says nothing: code can exit.
_DONE: Final = b"done"
_REFUSED: Final = b"refused"
_LONGEST: Final = 2_000


def load_apart(model: ModelFile, tensors: IO[bytes]) -> bytes:
    """Load a trusted file in a process of its own, which writes the tensors; return the rest.

    Raises:
        ModelRefused: it could not be loaded, or holds what safetensors cannot.
        Unavailable: there is no way to start a process here.
    """
    with tempfile.TemporaryFile() as answer:
        files = [each.fileno() for each in (model.file, tensors, answer)]
        path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100
        task = json.dumps([model.path, model.kind.name, *files])
        try:
            status = subprocess.call(  # noqa: S603 -- our own module, and nothing of the file's
                [sys.executable, "-I", "-c", _START, path, task],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=files,
                env={"PATH": os.defpath},
                cwd="/",
            )
        except OSError as error:
            raise Unavailable(
                f"The process for {model.shown} cannot be started ({error.strerror}).",
                "Free memory or processes, and try again.",
            ) from None
        answer.seek(0)
        said = answer.read(len(_DONE) + DEFAULT_LIMITS.state_bytes + 1)
    if not status and said.startswith(_DONE):
        return said.removeprefix(_DONE)
    lines = said.removeprefix(_REFUSED).decode("utf-8", "replace").split("\n")
    if said.startswith(_REFUSED) and len(lines) == 2 and len(said) < _LONGEST:
        what, do = (line if line.isprintable() else ascii(line) for line in lines)
        raise ModelRefused(what, do)
    raise ModelRefused(
        f"{model.shown} crashed the process that loaded it (status {status}).",
        "Nothing was kept, and this process is unharmed. Do not load it anywhere else.",
    )


def main(path: str, kind: str, source: int, tensors: int, answer: int) -> NoReturn:
    """Load what is behind a descriptor, write what it held, and end this process."""
    with os.fdopen(source, "rb") as file, os.fdopen(tensors, "r+b") as target:
        try:
            size = os.fstat(source).st_size
            model = ModelFile(path, file, size, Format[kind])
            write_all(answer, _DONE + write_packed(unrestricted(model), target))
        except CheckpointError as error:
            write_all(answer, _REFUSED + f"{error.what}\n{error.do}".encode())
        finally:
            # Nothing of what the file left behind gets to run: no destructor, no atexit.
            os._exit(0)
