"""A pickle read as data: an interpreter that builds from a list of yours, and imports nothing.

It works in two steps. First the instructions are followed to the end, and give a drawing of what
the pickle describes: nothing is called. Then, if all of it is allowed, the drawing is built.

* An instruction that is not needed for data is refused: there is a list of those that are needed.
* A name such as `os.system` is looked up in the functions that the caller gave. It is never
  imported.
* A value may not change once it is part of another one. So no value contains itself, and its
  size is known before it is built, however often it is referred to.

This is for migration and for looking at files. No path that loads a checkpoint uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safepoint.errors import ConfigurationError, LimitExceeded, PickleRefused
from safepoint.pickles._building import Building
from safepoint.pickles._drawing import Drawing
from safepoint.pickles._nodes import Buildable, Collect, Constant, Functions, Name, Refused
from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits
from safepoint.pickles.opcodes import too_large

__all__ = ["Buildable", "Collect", "Constant", "Functions", "Name", "Refused", "run", "run_at"]


def run(
    data: bytes,
    *,
    functions: Functions,
    persistent: Callable[[Any], Any] | None = None,
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
    whole: bool = True,
) -> Any:
    r"""Return what a pickle describes, built from plain data and from `functions` alone.

    ```python
    from safepoint.errors import PickleRefused
    from safepoint.pickles.machine import run

    print(run(b"\x80\x04]\x94(K\x01K\x02e.", functions={}))
    #> [1, 2]
    try:
        run(b"cos\nsystem\n(S'id'\ntR.", functions={})
    except PickleRefused as refusal:
        print(refusal.what)
        #> The pickle wants os.system, which is not on the list of what may be built.
    ```

    Args:
        data: the pickle.
        functions: what may stand behind a name: a function that you vetted, which is called with
            the arguments of the pickle; a `Constant`; or a `Refused` with a hint. A function gets
            plain data, results of other functions, and a `Name` where the pickle passes one of
            the names on. It must check them.
        persistent: what turns a persistent id into a value. Without it, such ids are refused.
        limits: what is too large, too deep or too many.
        whole: refuse bytes behind the end of the pickle.

    Raises:
        PickleRefused: the pickle is malformed, or asks for more than data and `functions`.
        LimitExceeded: it is too large, too deep or has too many values.
        CheckpointError: what a function raised, if it is one of this tree.
    """
    return _run(data, 0, functions, persistent, limits, whole=whole)[0]


def run_at(
    data: bytes,
    start: int,
    *,
    functions: Functions,
    persistent: Callable[[Any], Any] | None = None,
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
) -> tuple[Any, int]:
    """Return what the pickle that begins at `start` describes, and where it ends.

    For files in which something follows. Otherwise as `run`.

    Raises:
        PickleRefused: as for `run`.
        LimitExceeded: as for `run`.
    """
    return _run(data, start, functions, persistent, limits, whole=False)


def _run(
    data: bytes,
    start: int,
    functions: Functions,
    persistent: Callable[[Any], Any] | None,
    limits: PickleLimits,
    *,
    whole: bool,
) -> tuple[Any, int]:
    if type(data) is not bytes:
        raise ConfigurationError("A pickle is read from bytes.", "Give the content of the file.")
    if whole and len(data) - start > limits.data_bytes:
        raise too_large(limits)
    try:
        root, end = Drawing(functions, limits, ids=persistent is not None).read(data, start)
        if whole and end != len(data):
            raise PickleRefused(
                f"The pickle ends, and something else follows at byte {end}.",
                "Find out what it is: it is no part of the state.",
            )
        return Building(functions, persistent, limits).build(root), end
    except (RecursionError, MemoryError):
        problem = LimitExceeded(
            "The pickle needs more memory than this process has.",
            "Lower PickleLimits to what the process can hold, or let it use more.",
        )
    raise problem
