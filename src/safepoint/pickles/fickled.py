"""fickling, wrapped: what it says about a pickle, without a way for the pickle to act.

fickling reads a pickle and writes it down as Python. It works in a process of its own here, with
limits on its memory and time, and with every import, file and call into the system switched off.

What it says is a hint. A verdict of no findings does not make a pickle safe to load.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from safepoint.errors import (
    CheckpointError,
    LimitExceeded,
    MissingPackage,
    PickleRefused,
    StorageUnavailable,
)
from safepoint.pickles._fickling import MISSING, OUT_OF_TIME, TEXT
from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits
from safepoint.pickles.scanning import scan
from safepoint.pickles.taking import take

Mode = Literal["decompile", "trace", "check"]

SEVERITIES: Final = (
    "LIKELY_SAFE",
    "POSSIBLY_UNSAFE",
    "SUSPICIOUS",
    "LIKELY_UNSAFE",
    "LIKELY_OVERTLY_MALICIOUS",
    "OVERTLY_MALICIOUS",
)
"""What fickling may say, from the mildest on."""

_WORKER: Final = Path(__file__).with_name("_fickling.py")
_MEMORY: Final = 2 * 1024 * 1024 * 1024
_SECONDS: Final = 20
_LONGEST: Final = 300
_KILLED: Final = 9
_HOSTILE: Final = "Nothing was run. Treat it as hostile: do not load it, and ask who wrote it."
_LIMITS: Final = {
    "memory": "fickling needs more memory for {} than it may use.",
    "depth": "{} is nested deeper than fickling can follow.",
    "size": "{} becomes more text than anybody reads.",
    "time": f"fickling needs more than {_SECONDS} seconds for {{}}.",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What fickling's checks say.

    Attributes:
        severity: one of `SEVERITIES`, the worst of all pickles in the file.
        reasons: why, each on one line, behind the place of its pickle.
    """

    severity: str
    reasons: tuple[str, ...]

    @property
    def suspicious(self) -> bool:
        """Whether there is anything to look at. That there is not does not make it safe."""
        return self.severity != SEVERITIES[0]


def decompile(
    source: str | os.PathLike[str] | bytes, *, limits: PickleLimits = DEFAULT_PICKLE_LIMITS
) -> str:
    r"""Return the Python code that does what the pickles in a file would do.

    ```python
    from safepoint.pickles.fickled import decompile

    print(decompile(b"cos\nsystem\n(S'id'\ntR."))
    #> from os import system
    #> _var0 = system('id')
    #> result = _var0
    ```

    Args:
        source: a path, or the bytes of a file: a pickle, several, a PyTorch archive, JSON.
        limits: how large a pickle may be.

    Raises:
        PickleRefused: there is no pickle in it, or fickling cannot make sense of one.
        LimitExceeded: one is too large or deep, or takes too long.
        MissingPackage: fickling is not installed.
        NotFound: there is no such file.
        StorageUnavailable: it cannot be read.
    """
    return _texts("decompile", source, limits)


def trace(
    source: str | os.PathLike[str] | bytes, *, limits: PickleLimits = DEFAULT_PICKLE_LIMITS
) -> str:
    """Return what each instruction of the pickles in a file would do to the stack.

    Args:
        source: a path, or the bytes of a file.
        limits: how large a pickle may be.

    Raises:
        PickleRefused: there is no pickle in it, or fickling cannot make sense of one.
        LimitExceeded: one is too large or deep, or takes too long.
        MissingPackage: fickling is not installed.
        NotFound: there is no such file.
        StorageUnavailable: it cannot be read.
    """
    return _texts("trace", source, limits)


def check(
    source: str | os.PathLike[str] | bytes, *, limits: PickleLimits = DEFAULT_PICKLE_LIMITS
) -> Verdict:
    """Return what fickling's checks say about all pickles in a file.

    fickling's own `is_likely_safe` raises on a PyTorch archive. Here the pickles are taken out
    first.

    Args:
        source: a path, or the bytes of a file.
        limits: how large a pickle may be.

    Raises:
        PickleRefused: there is no pickle in it, or fickling cannot make sense of one.
        LimitExceeded: one is too large or deep, or takes too long.
        MissingPackage: fickling is not installed.
        NotFound: there is no such file.
        StorageUnavailable: it cannot be read.
    """
    worst, reasons = 0, []
    for where, said in _asked("check", source, limits):
        worst = max(worst, SEVERITIES.index(said["severity"]))
        place = f"{where}: " if where else ""
        reasons += [f"{place}{_line(reason)}" for reason in said["reasons"]]
    return Verdict(SEVERITIES[worst], tuple(reasons))


def _texts(mode: Mode, source: str | os.PathLike[str] | bytes, limits: PickleLimits) -> str:
    return "\n\n".join(
        (f"# {where}\n" if where else "") + str(said["text"]).rstrip("\n")
        for where, said in _asked(mode, source, limits)
    )


def _asked(
    mode: Mode, source: str | os.PathLike[str] | bytes, limits: PickleLimits
) -> list[tuple[str, dict[str, Any]]]:
    taken = take(source, limits=limits)
    if not taken.pieces:
        raise PickleRefused(
            f"It is {taken.kind.sentence}, and no pickle was found in it.",
            " ".join(taken.unseen[:3]) or "There is nothing for fickling to read.",
        )
    if taken.unseen:
        raise PickleRefused(taken.unseen[0], "Unpack it, and look at what is in it.")
    answers = []
    for piece in taken.pieces:
        found = scan(piece.data, limits=limits)
        if found.broken is not None:
            raise PickleRefused(f"{found.broken.what}{_so_far(found.imports)}", _HOSTILE)
        if found.end != len(piece.data):
            raise PickleRefused(
                f"{piece.where or 'The pickle'} has {len(piece.data) - found.end} bytes behind its"
                " end.",
                _HOSTILE,
            )
        answers.append((piece.where, _run(mode, piece.data, piece.where)))
    return answers


def _so_far(imports: tuple[str, ...]) -> str:
    return f" Before that, it asks for {', '.join(imports[:5])}." if imports else ""


def _run(mode: Mode, data: bytes, where: str) -> dict[str, Any]:
    shown = where or "The pickle"
    # By its path, and without the folder that this process is in: it may hold anything.
    command = [sys.executable, "-P", str(_WORKER), mode, str(_MEMORY), str(_SECONDS)]
    try:
        done = subprocess.run(  # noqa: S603
            command,
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.path.abspath(os.sep),  # noqa: PTH100
            timeout=3 * _SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        problem: CheckpointError = _over("time", shown)
    except OSError as error:
        problem = StorageUnavailable(
            f"The process that fickling works in cannot be started ({error.strerror}).",
            "Free memory or processes, and try again.",
        )
    else:
        return _answer(done, shown)
    raise problem


def _answer(done: subprocess.CompletedProcess[bytes], shown: str) -> dict[str, Any]:
    if done.returncode == MISSING:
        raise MissingPackage(
            "safepoint.pickles.fickled needs fickling, which is not installed.",
            "Install it: pip install 'safepoint[pickle]'",
        )
    try:
        said: dict[str, Any] = json.loads(done.stdout[: 8 * TEXT])
    except ValueError:
        slow = done.returncode in (OUT_OF_TIME, -_KILLED)
        said = {"limit": "time"} if slow else {"refused": "the process of fickling crashed"}
    if "limit" in said:
        raise _over(said["limit"], shown)
    if "refused" in said:
        raise PickleRefused(f"{shown}: {_line(said['refused'])}.", _HOSTILE)
    return said


def _over(what: str, shown: str) -> LimitExceeded:
    return LimitExceeded(_LIMITS[what].format(shown), _HOSTILE)


def _line(text: str) -> str:
    """Return a sentence of fickling's, which quotes the pickle, as one line of ASCII."""
    line = ascii(text)[1:-1].replace("\\'", "'")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
