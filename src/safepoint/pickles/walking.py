"""How far would an unpickler get that begins here, and would it ask for something by then?

Asked of bytes that may be anything. Unpicklers are lenient where `safepoint.pickles.opcodes` is
strict: they take `I 1`, and `F1` with a zero byte and anything behind it. What breaks the strict
reader at its first byte can therefore act. This goes on wherever an unpickler could.
"""

from __future__ import annotations

import io
from typing import IO, Final, NamedTuple

from safepoint.pickles._steps import (
    INSTRUCTIONS,
    Broken,
    Bytes,
    Cut,
    Info,
    Over,
    argument_of,
)
from safepoint.pickles.limits import PickleLimits

_PROTOCOL: Final = 5
_NAMES: Final = frozenset(["GLOBAL", "INST", "STACK_GLOBAL"])
_TUPLE: Final = object()
_WANTED: Final = object()
_LEFT: Final = {
    **dict.fromkeys(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_TUPLE"), _TUPLE),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"), _WANTED),
    **dict.fromkeys(("PERSID", "BINPERSID", "INST"), _WANTED),
}
# What they change stays on the stack. A text does, too, if there is nothing to change.
_KEEPS: Final = frozenset(["APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"])
_PUTS: Final = frozenset(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"])
_GETS: Final = frozenset(["GET", "BINGET", "LONG_BINGET"])


class Walk(NamedTuple):
    """How far it goes.

    Attributes:
        asks: it asks for a name, or calls what it asked for otherwise, before it breaks.
        stopped: the last instruction is a STOP that has a value.
        opcodes: how many instructions were followed.
        end: where it stops or breaks.
        reached: the last byte that was looked at.
        cut: the bytes end, and it does not break before.
        over: it goes on for longer than was looked at.
    """

    asks: bool = False
    stopped: bool = False
    opcodes: int = 0
    end: int = 0
    reached: int = 0
    cut: bool = False
    over: bool = False


def walk(
    source: IO[bytes] | bytes,
    limits: PickleLimits,
    *,
    size: int | None = None,
    most: int | None = None,
    several: bool = False,
) -> Walk:
    r"""Follow the instructions from the first byte on. What is long is passed over, and not read.

    ```python
    from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS
    from safepoint.pickles.walking import walk

    print(walk(b"I 1\n0cos\nsystem\n(S'id'\ntR", DEFAULT_PICKLE_LIMITS).asks)
    #> True
    ```

    Args:
        source: the bytes, or an open file.
        limits: how many instructions are followed, and how long a line may be.
        size: the bytes of the file. Left out, it is asked.
        most: the byte behind which nothing is looked at.
        several: go on behind a STOP, where another pickle may begin.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    whole = file.seek(0, io.SEEK_END) if size is None else size
    data = Bytes(file, whole, whole if most is None else most, limits.data_bytes)
    walker = _Walker(data)
    cut = over = stopped = False
    try:
        for _ in range(limits.opcodes):
            stopped = walker.step()
            if walker.asks or (stopped and not several):
                break
            if stopped:
                walker.restart()
        else:
            over = True
    except Broken as end:
        cut, over = isinstance(end, Cut), isinstance(end, Over)
    return Walk(walker.asks, stopped, walker.opcodes, walker.position, data.reached, cut, over)


class _Walker:
    """The stack of an unpickler: texts, tuples, and what was asked for. The rest is None."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self._values: list[object] = []
        self._marks: list[int] = []
        self._memo: dict[int, object] = {}
        self.asks = False
        self.opcodes = 0
        self.position = 0

    def restart(self) -> None:
        """Forget everything: another pickle begins."""
        self._values, self._marks, self._memo = [], [], {}

    def step(self) -> bool:
        """Follow one instruction, and tell whether it is a STOP that has a value."""
        if self.position >= self._data.size:
            raise Cut
        code = self._data.get(self.position, 1)[0]
        info = INSTRUCTIONS.get(code)
        if info is None:
            raise Broken
        name = info.name
        if name in _PUTS or name == "DUP":
            self._need(1)
        argument, end = argument_of(info, self._data, self.position)
        if name == "POP" and self._marks and self._marks[-1] == len(self._values):
            self._marks.pop()
        elif name in _PUTS:
            index = argument if isinstance(argument, int) else len(self._memo)
            self._memo[index] = self._values[-1]
        elif name == "DUP":
            self._values.append(self._values[-1])
        elif name in _GETS:
            if not isinstance(argument, int) or argument not in self._memo:
                raise Broken
            self._values.append(self._memo[argument])
        else:
            self._follow(info, argument)
        self.opcodes += 1
        self.position = end
        return name == "STOP"

    def _need(self, count: int) -> None:
        if len(self._values) - count < (self._marks[-1] if self._marks else 0):
            raise Broken

    def _follow(self, info: Info, argument: object) -> None:
        values, name = self._values, info.name
        self.asks = _asks(name, argument)  # before it takes anything, as INST may do
        first = len(values)
        if info.to_mark:
            if not self._marks:
                raise Broken
            first = self._marks.pop()
        gone = values[first:]
        del values[first:]
        self._need(info.takes)
        taken = values[len(values) - info.takes :]
        del values[len(values) - info.takes :]
        if name == "MARK":
            self._marks.append(len(values))
        elif name == "PROTO" and isinstance(argument, int) and argument > _PROTOCOL:
            raise Broken
        called = _calls(name, gone if name == "OBJ" else taken)
        stacked = name == "STACK_GLOBAL" and _asks(name, taken)
        self.asks = self.asks or called or stacked
        left = argument if isinstance(argument, str) else _LEFT.get(name)
        if name in _KEEPS:
            left = taken[0]
        values += [left] * info.leaves


def _asks(name: str, pair: object) -> bool:
    """Tell whether it asks for what may be a name."""
    if name not in _NAMES or not isinstance(pair, (tuple, list)):
        return False
    module, attribute = pair
    is_text = isinstance(module, str) and isinstance(attribute, str)
    return is_text and all(word.isidentifier() for word in module.split("."))


def _calls(name: str, taken: list[object]) -> bool:
    """Tell whether it calls what was asked for by an odd name, by a number or by an id."""
    if not taken or taken[0] is not _WANTED:
        return False
    # BUILD only gives it data, and the bytes of tensors read so now and then.
    return name in ("OBJ", "NEWOBJ_EX") or (name in ("REDUCE", "NEWOBJ") and taken[1] is _TUPLE)
