"""The instructions of a pickle, read one after another. Nothing is run and nothing is built.

What they mean together is the business of `safepoint.pickles.machine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from safepoint.errors import LimitExceeded, PickleRefused, quoted
from safepoint.pickles._arguments import CUT, INTACT, TABLE, cut
from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits

__all__ = ["CUT", "INTACT", "Op", "named", "read_opcodes", "too_large"]

STOP: Final = 0x2E


class Op(NamedTuple):
    """One instruction.

    Attributes:
        code: its byte.
        name: its name, as in `pickletools`.
        argument: None, an int, a float, a str, bytes, or a pair (module, name).
        position: where it begins.
        end: where the next one begins.
        protocol: the first protocol that has it.
    """

    code: int
    name: str
    argument: Any
    position: int
    end: int
    protocol: int


def read_opcodes(
    data: bytes, limits: PickleLimits = DEFAULT_PICKLE_LIMITS, start: int = 0
) -> Iterator[Op]:
    r"""Yield the instructions of the one pickle that begins at `start`, up to its STOP.

    All instructions are read, those that only an attack uses, too. What stands behind STOP is not
    looked at: compare the last `end` with the length of the data.

    ```python
    from safepoint.pickles.opcodes import read_opcodes

    for op in read_opcodes(b"cos\nsystem\n(S'id'\ntR."):
        print(op.position, op.name, op.argument)
        #> 0 GLOBAL ('os', 'system')
        #> 11 MARK None
        #> 12 STRING id
        #> 18 TUPLE None
        #> 19 REDUCE None
        #> 20 STOP None
    ```

    Raises:
        PickleRefused: there is no such instruction, or the data ends within it.
        LimitExceeded: there are too many, or a number is too large.
    """
    position, size = start, len(data)
    for _ in range(limits.opcodes):
        if position >= size:
            raise cut()
        code = data[position]
        entry = TABLE.get(code)
        if entry is None:
            raise PickleRefused(
                f"There is no instruction {code:#04x} in a pickle, as at byte {position}.", INTACT
            )
        name, protocol, read = entry
        if read is None:
            argument, end = None, position + 1
        else:
            argument, end = read(data, position + 1, limits)
        if end - start > limits.data_bytes:
            raise too_large(limits)
        yield Op(code, name, argument, position, end, protocol)
        if code == STOP:
            return
        position = end
    raise LimitExceeded(
        f"The pickle has more than {limits.opcodes} instructions.",
        "Split what it holds, or raise PickleLimits.opcodes.",
    )


def too_large(limits: PickleLimits) -> LimitExceeded:
    """Return the error for too many bytes."""
    return LimitExceeded(
        f"The pickle is larger than {limits.data_bytes} bytes.",
        "Split what it holds, or raise PickleLimits.data_bytes.",
    )


def named(module: str, name: str) -> str:
    """Return `module.name` for a message: as it is if it is a name, and quoted if it is not."""
    full = f"{module}.{name}"
    is_name = full.isascii() and all(word.isidentifier() for word in full.split("."))
    return full if is_name and len(full) <= 100 else quoted(full)
