"""What a pickle would import and call, told by its instructions. Nothing is run or built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from safepoint.errors import PickleRefused
from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits
from safepoint.pickles.opcodes import Op, named, read_opcodes

_MARK: Final = object()
_TOLD: Final = 1_000
_TEXTS: Final = frozenset(
    [
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
    ]
)
_CALLS: Final = frozenset(["REDUCE", "NEWOBJ", "NEWOBJ_EX", "BUILD", "INST", "OBJ"])
# How many values an instruction takes, where it is a fixed number, and whether it leaves one.
_TAKES: Final[Mapping[str, tuple[int, bool]]] = {
    "POP": (1, False),
    "APPEND": (1, False),
    "SETITEM": (2, False),
    "BUILD": (1, False),
    "TUPLE1": (1, True),
    "TUPLE2": (2, True),
    "TUPLE3": (3, True),
    "REDUCE": (2, True),
    "NEWOBJ": (2, True),
    "NEWOBJ_EX": (3, True),
    "STACK_GLOBAL": (2, True),
    "BINPERSID": (1, True),
    "READONLY_BUFFER": (1, True),
}
# What takes everything above the last mark, and whether it leaves one.
_TO_MARK: Final[Mapping[str, bool]] = {
    "POP_MARK": False,
    "APPENDS": False,
    "SETITEMS": False,
    "ADDITEMS": False,
    "LIST": True,
    "TUPLE": True,
    "DICT": True,
    "FROZENSET": True,
    "OBJ": True,
    "INST": True,
}
_ASKS: Final = frozenset(["GLOBAL", "INST", "STACK_GLOBAL"])
_NUMBERED: Final = frozenset(["EXT1", "EXT2", "EXT4"])
_NOTHING: Final = frozenset(["PROTO", "FRAME", "STOP"])
_PUTS: Final = frozenset(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"])
_GETS: Final = frozenset(["GET", "BINGET", "LONG_BINGET"])


class Asked(NamedTuple):
    """A name that a pickle asks for.

    Attributes:
        module: its module.
        name: its name there.
        position: the byte at which it is asked for.
    """

    module: str
    name: str
    position: int

    def __str__(self) -> str:
        return named(self.module, self.name)


@dataclass(frozen=True, slots=True)
class Scan:
    """What the instructions of one pickle say.

    Attributes:
        asked: the names that it asks for, each where it does so first.
        unclear: what else it asks for: a name that is only known when it runs.
        opcodes: how many instructions it has.
        protocol: the one that it names, 0 if it names none.
        calls: whether it would call something.
        end: where it ends, or where it cannot be read further.
        broken: why it cannot be read further. What is above has run by then.
    """

    asked: tuple[Asked, ...]
    unclear: tuple[str, ...]
    opcodes: int
    protocol: int
    calls: bool
    end: int
    broken: PickleRefused | None = None

    @property
    def imports(self) -> tuple[str, ...]:
        """What it asks for, as text, sorted."""
        return tuple(sorted({*map(str, self.asked), *self.unclear}))


def scan(data: bytes, start: int = 0, *, limits: PickleLimits = DEFAULT_PICKLE_LIMITS) -> Scan:
    r"""Look at the pickle that begins at `start`.

    ```python
    from safepoint.pickles.scanning import scan

    print(scan(b"cos\nsystem\n(S'id'\ntR.").imports)
    #> ('os.system',)
    ```

    Raises:
        LimitExceeded: it has too many instructions, or is too large.
    """
    stack = _Stack()
    asked: dict[tuple[str, str], Asked] = {}
    unclear: dict[str, None] = {}
    count, protocol, calls, end = 0, 0, False, start
    broken: PickleRefused | None = None
    try:
        for op in read_opcodes(data, limits, start):
            count, end = count + 1, op.end
            calls = calls or op.name in _CALLS
            if op.name == "PROTO":
                protocol = max(protocol, op.argument)
            elif op.name in _ASKS:
                module, name = op.argument if op.name != "STACK_GLOBAL" else stack.top(2)
                if len(asked) + len(unclear) > _TOLD:
                    unclear[f"more than {_TOLD} names"] = None
                elif isinstance(module, str) and isinstance(name, str):
                    asked.setdefault((module, name), Asked(module, name, op.position))
                else:
                    unclear[f"a name that is made while it runs (byte {op.position})"] = None
            elif op.name in _NUMBERED and len(unclear) <= _TOLD:
                unclear[f"number {op.argument} of copyreg's extensions"] = None
            stack.follow(op)
    except PickleRefused as error:
        broken = error
    return Scan(tuple(asked.values()), tuple(unclear), count, protocol, calls, end, broken)


class _Stack:
    """The texts on the stack of a pickle, as far as they can be told. The rest is None."""

    def __init__(self) -> None:
        self._values: list[object] = []
        self._memo: dict[int, object] = {}

    def top(self, count: int) -> list[object]:
        """Return the last values, None for each that is not there."""
        found = self._values[-count:]
        return [None] * (count - len(found)) + found

    def follow(self, op: Op) -> None:
        """Do to the stack what an instruction does."""
        values = self._values
        if op.name in _TEXTS:
            values.append(op.argument)
        elif op.name == "MARK":
            values.append(_MARK)
        elif op.name == "DUP":
            values += self.top(1)
        elif op.name in _PUTS:
            index = len(self._memo) if op.argument is None else op.argument
            self._memo[index] = self.top(1)[0]
        elif op.name in _GETS:
            values.append(self._memo.get(op.argument))
        elif op.name in _TO_MARK:
            while values and values.pop() is not _MARK:
                pass
            values += [None] * _TO_MARK[op.name]
        elif op.name in _TAKES:
            count, leaves = _TAKES[op.name]
            del values[-count:]
            values += [None] * leaves
        elif op.name not in _NOTHING:
            values.append(None)
