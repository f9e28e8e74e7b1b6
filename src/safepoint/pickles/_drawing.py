"""The first step of reading a pickle: its instructions are followed, and nothing is called.

What comes out is a drawing. A value in it does not change once it is part of another one, so that
no value contains itself, and the size of each is known when it is put into the next.
"""

from __future__ import annotations

from typing import Any, Final

from safepoint.errors import LimitExceeded, PickleRefused
from safepoint.pickles._counting import check_value, join, too_many
from safepoint.pickles._nodes import (
    NOT_DATA,
    Collect,
    Constant,
    Form,
    Functions,
    Name,
    Node,
    Refused,
    constant,
)
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.opcodes import INTACT, Op, named, read_opcodes

_SCALARS: Final = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    }
)
_LITERALS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PUTS: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_GETS: Final = frozenset({"GET", "BINGET", "LONG_BINGET"})
_MAKES: Final[dict[str, tuple[Form, int | None]]] = {
    "EMPTY_LIST": ("list", 0),
    "EMPTY_TUPLE": ("tuple", 0),
    "EMPTY_DICT": ("dict", 0),
    "EMPTY_SET": ("set", 0),
    "TUPLE1": ("tuple", 1),
    "TUPLE2": ("tuple", 2),
    "TUPLE3": ("tuple", 3),
    "TUPLE": ("tuple", None),
    "LIST": ("list", None),
    "DICT": ("dict", None),
    "FROZENSET": ("frozenset", None),
}
_GROWS: Final[dict[str, tuple[Form, int | None]]] = {
    "APPEND": ("list", 1),
    "APPENDS": ("list", None),
    "SETITEM": ("dict", 2),
    "SETITEMS": ("dict", None),
    "ADDITEMS": ("set", None),
}
_INSTEAD: Final = {
    "BYTEARRAY8": "Save bytes(value) in place of a bytearray.",
    "NEXT_BUFFER": "Save bytes in place of a buffer that is kept outside of the pickle.",
    "READONLY_BUFFER": "Save bytes in place of a buffer that is kept outside of the pickle.",
    "LONG4": "Save an integer of more than 2039 bits as text or as bytes.",
    "POP": "Save a state in which no tuple contains itself.",
    "POP_MARK": "Save a state in which no tuple contains itself.",
    "BINPERSID": "Read it with the program that knows what its persistent ids stand for.",
    "PERSID": "Read it with the program that knows what its persistent ids stand for.",
}


class Drawing:
    """The stack, the marks and the memo of one pickle.

    Args:
        functions: the names that may occur.
        limits: what is too large, too deep or too many.
        ids: whether persistent ids may occur.
    """

    def __init__(self, functions: Functions, limits: PickleLimits, *, ids: bool) -> None:
        self._functions = functions
        self._limits = limits
        self._ids = ids
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._names: dict[tuple[str, str], Name | Node] = {}
        self._made = 0

    def read(self, data: bytes, start: int) -> tuple[Any, int]:
        """Return the drawing of the pickle that begins at `start`, and where the pickle ends.

        Raises:
            PickleRefused: it is malformed, or uses what plain data does not need.
            LimitExceeded: it is too large, too deep or has too many values.
        """
        protocol, frame, end = 1, start, start
        for op in read_opcodes(data, self._limits, start):
            end = op.end
            if op.name == "PROTO":
                if op.position != start or not 2 <= op.argument <= 5:
                    raise _odd(op, "is no beginning of protocol 2, 3, 4 or 5")
                protocol = op.argument
                continue
            if op.protocol > protocol:
                raise _odd(op, f"is newer than the pickle's protocol, {protocol}")
            if op.position < frame and (end > frame or op.name == "FRAME"):
                raise _odd(op, "does not fit into its frame")
            if op.name == "FRAME":
                frame = end + op.argument
            elif op.name != "STOP":
                self._follow(op)
        if frame > end:
            raise PickleRefused("The pickle ends before its last frame does.", INTACT)
        if len(self._stack) != 1 or self._marks:
            raise PickleRefused("The pickle does not end with one value.", INTACT)
        check_value(self._stack[0])
        return self._stack[0], end

    def _follow(self, op: Op) -> None:
        name, argument, stack = op.name, op.argument, self._stack
        if name in _SCALARS:
            if type(argument) is str and not argument.isascii():
                _check_text(argument)
            stack.append(argument)
        elif name in _PUTS:
            self._remember(op, len(self._memo) if argument is None else argument)
        elif name in _GETS:
            if argument not in self._memo:
                raise _odd(op, "gets what was never put")
            stack.append(self._memo[argument])
        elif name in _LITERALS:
            stack.append(_LITERALS[name])
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name in _MAKES:
            form, count = _MAKES[name]
            stack.append(self._make(op, form, self._take(op, count)))
        elif name in _GROWS:
            form, count = _GROWS[name]
            items = self._take(op, count)
            self._grow(op, self._top(op), form, items)
        elif name == "GLOBAL":
            stack.append(self._named(*argument))
        elif name == "STACK_GLOBAL":
            module, qualified = self._take(op, 2)
            if type(module) is not str or type(qualified) is not str:
                raise _odd(op, "takes a name that is no text")
            stack.append(self._named(module, qualified))
        elif name in ("REDUCE", "NEWOBJ"):
            stack.append(self._call(op, *self._take(op, 2)))
        elif name == "BUILD":
            (state,) = self._take(op, 1)
            self._set_state(op, self._top(op), state)
        elif name == "BINPERSID" and self._ids:
            stack.append(self._make(op, "id", self._take(op, 1)))
        else:
            raise PickleRefused(
                f"The pickle uses {name}, which plain data does not need.",
                _INSTEAD.get(name, NOT_DATA),
            )

    def _top(self, op: Op) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise _odd(op, "wants a value that is not there")
        return self._stack[-1]

    def _take(self, op: Op, count: int | None) -> list[Any]:
        """Take so many values off the stack, or those above the last mark."""
        if count is None:
            if not self._marks:
                raise _odd(op, "wants a mark that is not there")
            first = self._marks.pop()
        else:
            first = len(self._stack) - count
            if first < (self._marks[-1] if self._marks else 0):
                raise _odd(op, "wants a value that is not there")
        taken = self._stack[first:]
        del self._stack[first:]
        return taken

    def _remember(self, op: Op, index: int) -> None:
        if index >= self._limits.memo:
            raise LimitExceeded(
                f"The pickle numbers a value above the limit of {self._limits.memo}.",
                "Split what it holds, or raise PickleLimits.memo.",
            )
        if index in self._memo:
            raise _odd(op, "puts a second value in one place")
        self._memo[index] = self._top(op)

    def _named(self, module: str, name: str) -> Name | Node:
        entry = self._functions.get((module, name))
        if entry is None or isinstance(entry, Refused):
            raise PickleRefused(
                f"The pickle wants {named(module, name)}, which is not on the list of what may be"
                " built.",
                NOT_DATA if entry is None else entry.do,
            )
        if (module, name) not in self._names:
            made = constant(entry.value) if isinstance(entry, Constant) else Name((module, name))
            self._names[module, name] = made
        return self._names[module, name]

    def _new(self, form: Form, target: Name | None = None) -> Node:
        self._made += 1
        if self._made > self._limits.nodes:
            raise too_many(self._limits)
        return Node(form, target)

    def _make(self, op: Op, form: Form, parts: list[Any]) -> Node:
        node = self._new(form)
        self._join(op, node, form, parts)
        node.parts = parts
        return node

    def _grow(self, op: Op, node: Any, form: Form, items: list[Any]) -> None:
        called = type(node) is Node and node.form == "call" and form == "dict"
        if type(node) is not Node or not (called or node.form == form) or node.state is not None:
            raise _odd(op, f"wants a {form} that is not there")
        self._join(op, node, form, items)
        (node.pairs if called else node.parts).extend(items)

    def _call(self, op: Op, target: Any, arguments: Any) -> Node:
        if type(target) is not Name:
            raise _odd(op, "calls what is no name of the list")
        if type(arguments) is not Node or arguments.form != "tuple":
            raise _odd(op, f"calls {target} without a tuple of arguments")
        entry, parts = self._functions[target.key], arguments.parts
        if isinstance(entry, Collect):
            return self._collect(op, entry, target, parts)
        node = self._new("call", target)
        self._join(op, node, "call", [part for part in parts if type(part) is not Name])
        node.parts = parts
        return node

    def _collect(self, op: Op, entry: Collect, target: Name, parts: list[Any]) -> Node:
        if not parts:
            return self._make(op, entry.form, [])
        if len(parts) != 1 or type(parts[0]) is not Node or parts[0].form != "list":
            raise _odd(op, f"gives {target} something else than one list")
        return self._make(op, entry.form, parts[0].parts)

    def _join(self, op: Op, node: Node, form: Form, parts: list[Any]) -> None:
        if form == "dict" and len(parts) % 2:
            raise _odd(op, "has a key without a value")
        join(node, form, parts, self._limits)

    def _set_state(self, op: Op, node: Any, state: Any) -> None:
        if type(node) is not Node or node.form != "call" or node.state is not None:
            raise _odd(op, "sets attributes of what has none")
        if state is None:
            raise _odd(op, "sets no attributes")
        self._join(op, node, "call", [state])
        node.state = state


def _odd(op: Op, what: str) -> PickleRefused:
    return PickleRefused(f"{op.name} at byte {op.position} of the pickle {what}.", INTACT)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        problem = PickleRefused(
            "The pickle holds text that is none: half a character, or bytes of Python 2.",
            "Save it as bytes, or replace it, as with text.encode(errors='replace').decode().",
        )
    else:
        return
    raise problem
