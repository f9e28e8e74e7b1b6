"""A pickle read as data: an interpreter that builds from a list of yours, and imports nothing.

It works in two steps. First the instructions are followed to the end, and give a drawing of what
the pickle describes: nothing is called. Then, if all of it is allowed, the drawing is built.

* An instruction that is not needed for data is refused: there is a list of those that are needed.
* A name such as `os.system` is looked up in the functions that the caller gave. It is never
  imported.
* A value may not change once it is part of another one. So no value contains itself, and its
  size is known before it is built, however often it is referred to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from safepoint.core.errors import CheckpointError, DecodeError, LimitExceeded
from safepoint.models.limits import DEFAULT_PICKLE_LIMITS, PickleLimits, over
from safepoint.models.opcodes import INSTRUCTIONS, INTACT, Import, Op, Scan, named, read_opcode

NOT_DATA: Final = "Do not load it with pickle. If you wrote it, save plain data in its place."

_UNLISTED: Final = (
    "If it is a dataclass, an Enum or a pydantic model of yours, list it as a type. If not, do not"
    " load it: safepoint scan --decompile shows what it does."
)

Form = Literal["list", "tuple", "dict", "set", "frozenset", "call", "id", "constant"]


@dataclass(eq=False, slots=True)
class Name:
    """A name of the caller's list, such as `builtins.list`, handed to a function as an argument.

    Attributes:
        key: the module and the name.
        entry: what the caller's list says of it.
    """

    key: tuple[str, str]
    entry: Any = None

    def __str__(self) -> str:
        return named(*self.key)


class Constant(NamedTuple):
    """An entry that stands for a value, and is not called: `Constant("float32")`."""

    value: Any


class Collect(NamedTuple):
    """An entry that makes a set, or a dict, of one list, as pickles before protocol 4 do."""

    form: Literal["set", "frozenset", "dict"]


class Class(NamedTuple):
    """An entry that a pickle may call, and may also hold as a value: a class of the caller's."""

    value: Any
    make: Callable[..., Any]

    def __call__(self, *given: Any) -> Any:
        """Call it, as the pickle does."""
        return self.make(*given)


class RefusedEntry(NamedTuple):
    """An entry that is refused, with a hint of its own."""

    do: str


Functions = Mapping[tuple[str, str], Callable[..., Any] | Constant | Class | Collect | RefusedEntry]
"""What may stand behind a name. A function whose result has `__build__` gets the state of BUILD."""


class Node:
    """A value that is drawn and not built.

    Attributes:
        form: of which type it is, or how it is made.
        target: what is called.
        parts: what it holds: items, keys and values in turn, or arguments.
        pairs: keys and values in turn that are put into what the call returns.
        state: what BUILD gives to what the call returns.
        nodes: how many values it is, written out.
        text: how many bytes of text, written out.
        depth: how many levels.
        used: it is part of another value, so it does not change any more.
        mutable: it is a tuple with something that can change in it.
        name: a name among its parts: it can only be the arguments of a call.
        value: what was built, once `built` is true.
    """

    # Of the class until they differ: there are many, and most have few of them.
    pairs: list[Any] | tuple[()] = ()
    state: Any = None
    nodes = 1
    text = 0
    depth = 1
    used = False
    mutable = False
    name: Name | None = None
    value: Any = None
    built = False

    def __init__(self, form: Form, target: Name | None, parts: list[Any]) -> None:
        self.form: Form = form
        self.target = target
        self.parts = parts


def run(
    data: bytes,
    *,
    functions: Functions,
    persistent: Callable[[Any], Any] | None = None,
    instructions: frozenset[str] | None = None,
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
    nodes_per_id: int = 0,
    told: list[Scan] | None = None,
) -> Any:
    r"""Return what a pickle describes, built from plain data and from `functions` alone.

    Args:
        data: the pickle, and nothing behind it.
        functions: what may stand behind a name: a function that you vetted, which is called with
            the arguments of the pickle; a `Constant`; or a `Refused` with a hint. A function gets
            plain data, results of other functions, and a `Name` where the pickle passes one of
            the names on. It must check them.
        persistent: what turns a persistent id into a value. Without it, such ids are refused.
        instructions: which may occur; left out, all that data needs.
        limits: what is too large, too deep or too many.
        nodes_per_id: how many more values there may be for each persistent id.
        told: gets what `scan` would tell of it, if it is data: that saves a second look.

    Raises:
        DecodeError: the pickle is malformed, or asks for more than data and `functions`.
        LimitExceeded: it is too large, too deep or has too many values.
        CheckpointError: what a function raised, if it is one of this tree.
    """
    if len(data) > limits.data_bytes:
        raise over(limits, "data_bytes")
    drawing = _Drawing(functions, limits, None if persistent is None else nodes_per_id)
    try:
        root = drawing.read(data, instructions)
        value = _Building(functions, persistent, limits).build(root)
        if told is not None:
            # Names that are made while it runs, frames that are crossed and the like are refused.
            names, count = tuple(Import(*key, 0) for key in drawing.names), drawing.count
            told.append(Scan(names, (), count, bool(names), True, True, len(data), None, True))
    except (RecursionError, MemoryError):
        problem = LimitExceeded(
            "The pickle needs more memory than this process has.",
            "Let the process use more, or lower the limits to what it can hold.",
        )
    else:
        return value
    raise problem


_SCALARS: Final = frozenset(
    [
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    ]
)
_LITERALS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PUTS: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_GETS: Final = frozenset({"GET", "BINGET", "LONG_BINGET"})
_MAKES: Final[Mapping[str, Form]] = {
    **dict.fromkeys(("EMPTY_LIST", "LIST"), "list"),
    **dict.fromkeys(("EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE"), "tuple"),
    **dict.fromkeys(("EMPTY_DICT", "DICT"), "dict"),
    "EMPTY_SET": "set",
    "FROZENSET": "frozenset",
}
_GROWS: Final[Mapping[str, Form]] = {
    **dict.fromkeys(("APPEND", "APPENDS"), "list"),
    **dict.fromkeys(("SETITEM", "SETITEMS"), "dict"),
    "ADDITEMS": "set",
}
_INSTEAD: Final = {
    **dict.fromkeys(("NEXT_BUFFER", "READONLY_BUFFER", "BYTEARRAY8"), "Save bytes in its place."),
    "LONG4": "Save an integer of more than 2039 bits as text or as bytes.",
    **dict.fromkeys(("POP", "POP_MARK"), "Save a state in which no tuple contains itself."),
    **dict.fromkeys(("BINPERSID", "PERSID"), "Read it with the program that knows its ids."),
}


# Of the instructions that are followed quickly: what each does, and what a tuple takes.
_CODES: Final = {info.name: code for code, info in INSTRUCTIONS.items()}
_TEXT, _PUT, _GET, _NUMBER, _MARK, _TUPLE, _LITERAL, _ID, _CALL = range(1, 10)
_KINDS: Final = bytearray(256)
_MEMOIZE: Final = _CODES["MEMOIZE"]
for _kind, _names in {
    _TEXT: ("SHORT_BINUNICODE", "BINUNICODE"),
    _PUT: ("MEMOIZE", "BINPUT", "LONG_BINPUT"),
    _GET: ("BINGET", "LONG_BINGET"),
    _NUMBER: ("BININT1", "BININT2", "BININT"),
    _MARK: ("MARK",),
    _TUPLE: ("EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE"),
    _LITERAL: tuple(_LITERALS),
    _ID: ("BINPERSID",),
    _CALL: ("REDUCE",),
}.items():
    for _name in _names:
        _KINDS[_CODES[_name]] = _kind


@cache
def _quick(protocol: int, allowed: frozenset[str] | None) -> tuple[int, ...]:
    """Return how many bytes each instruction has that is followed quickly, 0 for the others."""
    return tuple(
        INSTRUCTIONS[code].length
        if _KINDS[code]
        and INSTRUCTIONS[code].protocol <= protocol
        and (allowed is None or INSTRUCTIONS[code].name in allowed)
        else 0
        for code in range(256)
    )


class _Drawing:
    """The first step: the stack, the marks and the memo of one pickle. Nothing is called.

    Args:
        functions: what may stand behind a name.
        limits: what is too large.
        per_id: how many more values there may be for each persistent id; None if there are no ids.

    Attributes:
        names: those that the pickle asks for.
        count: how many instructions it has.
    """

    def __init__(self, functions: Functions, limits: PickleLimits, per_id: int | None) -> None:
        self._functions = functions
        self._limits = limits
        self._per_id = per_id
        self._most = limits.nodes
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self.names: dict[tuple[str, str], Name | Node] = {}
        self._made = self.count = 0

    def read(self, data: bytes, allowed: frozenset[str] | None) -> Any:
        """Return the drawing of a pickle."""
        protocol, frame, end, count, name = 1, 0, 0, 0, ""
        quick = _quick(protocol, allowed)
        while name != "STOP":
            # What is in no frame, or in one that ends later.
            most = min(frame, len(data)) if end < frame else len(data)
            end, seen = self._quickly(data, end, most, self._limits.opcodes - count, quick)
            if count + seen >= self._limits.opcodes:
                raise over(self._limits, "opcodes")
            op = read_opcode(data, end, 0, self._limits, lenient=False)
            name, _, position, end, info = op
            count += seen + 1
            if allowed is not None and name not in allowed:
                raise DecodeError(
                    f"The pickle in the file uses {name}, which a file of tensors does not need.",
                    "Save it again with torch.save, without pickle_protocol.",
                )
            if name == "PROTO":
                if position or not 2 <= op.argument <= 5:
                    raise _odd(op, "is no beginning of protocol 2, 3, 4 or 5")
                protocol = op.argument
                quick = _quick(protocol, allowed)
                continue
            if info.protocol > protocol:
                raise _odd(op, f"is newer than the pickle's protocol, {protocol}")
            if position < frame and (end > frame or name == "FRAME"):
                raise _odd(op, "does not fit into its frame")
            if name == "FRAME":
                frame = end + op.argument
            elif name != "STOP":
                self._follow(op)
        if frame > end:
            raise DecodeError("The pickle ends before its last frame does.", INTACT)
        if len(self._stack) != 1 or self._marks:
            raise DecodeError("The pickle does not end with one value.", INTACT)
        if end != len(data):
            raise DecodeError(
                f"The pickle ends, and something else follows at byte {end}.",
                "Find out what it is: it is no part of the state.",
            )
        _check_value(self._stack[0])
        self.count = count
        return self._stack[0]

    def _quickly(
        self, data: bytes, at: int, most: int, left: int, quick: Sequence[int]
    ) -> tuple[int, int]:
        """Do what `_follow` does with what most data is made of, up to what is odd or another.

        Args:
            data: the pickle.
            at: where to begin.
            most: where to end at the latest.
            left: how many instructions to follow at most.
            quick: how many bytes those have that may be followed here, by their codes.

        Returns:
            Where it came to, and how many there were.
        """
        stack, marks, memo, count = self._stack, self._marks, self._memo, 0
        memo_limit, memoize = self._limits.memo, _MEMOIZE if quick[_MEMOIZE] else None
        floor = marks[-1] if marks else 0
        while at < most and count < left:
            code = data[at]
            end = at + quick[code]
            if end == at or end > most:
                break
            size = end - at
            kind, number = _KINDS[code], data[at + 1] if size == 2 else 0
            if size > 2:
                number = int.from_bytes(data[at + 1 : end], "little")
            if kind == _TEXT:
                begin, end = end, end + number
                if end > most:
                    break
                try:
                    stack.append(data[begin:end].decode())
                except ValueError:
                    break
                if end < most and data[end] == memoize and count + 1 < left:  # as most are
                    index = len(memo)
                    if index not in memo and index < memo_limit:
                        memo[index] = stack[-1]
                        end, count = end + 1, count + 1
            elif kind == _PUT:
                index = len(memo) if size == 1 else number
                if len(stack) <= floor or index in memo or index >= memo_limit:
                    break
                memo[index] = stack[-1]
            elif kind == _GET:
                if number not in memo:
                    break
                stack.append(memo[number])
            elif kind == _NUMBER:
                stack.append(number if size < 5 or number < 2**31 else number - 2**32)
            elif kind == _MARK:
                floor = len(stack)
                marks.append(floor)
            elif kind == _TUPLE:
                info = INSTRUCTIONS[code]
                first = floor if info.to_mark else len(stack) - info.takes
                if first < floor or (info.to_mark and not marks):
                    break
                if info.to_mark:
                    marks.pop()
                    floor = marks[-1] if marks else 0
                parts = stack[first:]
                del stack[first:]
                stack.append(self._make("tuple", parts))
            elif kind == _ID:
                if len(stack) <= floor or self._per_id is None:
                    break
                self._most += self._per_id
                stack.append(self._make("id", [stack.pop()]))
            elif kind == _CALL:
                if len(stack) - 2 < floor or not self._is_call(*stack[-2:]):
                    break
                arguments, target = stack.pop(), stack.pop()
                stack.append(self._called(target, arguments.parts))
            else:
                stack.append(_LITERALS[INSTRUCTIONS[code].name])
            at, count = end, count + 1
        return at, count

    def _follow(self, op: Op) -> None:
        name, argument, stack = op.name, op.argument, self._stack
        if name in _SCALARS:
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
            items = _paired(op, _MAKES[name], self._take(op))
            stack.append(self._make(_MAKES[name], items))
        elif name in _GROWS:
            items = self._take(op, op.info.takes - 1)
            self._grow(op, self._top(op), _GROWS[name], items)
        elif name == "GLOBAL":
            stack.append(self._named(*argument))
        elif name == "STACK_GLOBAL":
            module, qualified = self._take(op)
            if type(module) is not str or type(qualified) is not str:
                raise _odd(op, "takes a name that is no text")
            stack.append(self._named(module, qualified))
        elif name in ("REDUCE", "NEWOBJ"):
            stack.append(self._call(op, *self._take(op)))
        elif name == "BUILD":
            (state,) = self._take(op, 1)
            self._set_state(op, self._top(op), state)
        elif name == "BINPERSID" and self._per_id is not None:
            self._most += self._per_id
            stack.append(self._make("id", self._take(op)))
        else:
            raise DecodeError(
                f"The pickle uses {name}, which plain data does not need.",
                _INSTEAD.get(name, NOT_DATA),
            )

    def _top(self, op: Op) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise _odd(op, "wants a value that is not there")
        return self._stack[-1]

    def _take(self, op: Op, count: int | None = None) -> list[Any]:
        """Take what an instruction takes off the stack, or those above the last mark."""
        first = len(self._stack) - (op.info.takes if count is None else count)
        if op.info.to_mark:
            if not self._marks:
                raise _odd(op, "wants a mark that is not there")
            first = self._marks.pop()
        elif first < (self._marks[-1] if self._marks else 0):
            raise _odd(op, "wants a value that is not there")
        taken = self._stack[first:]
        del self._stack[first:]
        return taken

    def _remember(self, op: Op, index: int) -> None:
        if index >= self._limits.memo:
            raise over(self._limits, "memo")
        if index in self._memo:
            raise _odd(op, "puts a second value in one place")
        self._memo[index] = self._top(op)

    def _named(self, module: str, name: str) -> Name | Node:
        entry = self._functions.get((module, name))
        if entry is None or isinstance(entry, RefusedEntry):
            raise DecodeError(
                f"The pickle wants {named(module, name)}, which is not on the list of what may be"
                " built.",
                _UNLISTED if entry is None else entry.do,
            )
        if (module, name) not in self.names:
            made: Name | Node = Name((module, name), entry)
            if isinstance(entry, Constant):
                made = Node("constant", None, [])
                made.value, made.built = entry.value, True
            self.names[module, name] = made
        return self.names[module, name]

    def _new(self, form: Form, target: Name | None, parts: list[Any]) -> Node:
        self._made += 1
        if self._made > self._most:
            raise over(self._limits, "nodes", self._most)
        return Node(form, target, parts)

    def _make(self, form: Form, parts: list[Any]) -> Node:
        node = self._new(form, None, parts)
        self._join(node, form, parts)
        return node

    def _grow(self, op: Op, node: Any, form: Form, items: list[Any]) -> None:
        called = type(node) is Node and node.form == "call" and form == "dict"
        if type(node) is not Node or not (called or node.form == form) or node.state is not None:
            raise _odd(op, f"wants a {form} that is not there")
        self._join(node, form, _paired(op, form, items))
        if called:
            node.pairs = node.pairs or []
            node.pairs.extend(items)
        else:
            node.parts.extend(items)

    def _call(self, op: Op, target: Any, arguments: Any) -> Node:
        if type(target) is not Name:
            raise _odd(op, "calls what is no name of the list")
        if type(arguments) is not Node or arguments.form != "tuple":
            raise _odd(op, f"calls {target} without a tuple of arguments")
        entry, parts = self._functions[target.key], arguments.parts
        if isinstance(entry, Collect):
            if parts and not (len(parts) == 1 and getattr(parts[0], "form", "") == "list"):
                raise _odd(op, f"gives {target} something else than one list")
            items = parts[0].parts if parts else []
            if entry.form == "dict":
                pair = [getattr(item, "form", "") in ("list", "tuple") for item in items]
                if not all(pair) or any(len(item.parts) != 2 for item in items):
                    raise _odd(op, f"gives {target} something else than pairs")
                items = [part for item in items for part in item.parts]
            return self._make(entry.form, items)
        return self._called(target, parts)

    def _is_call(self, target: Any, arguments: Any) -> bool:
        """Tell whether it is a call of a function, as most are."""
        is_call = type(target) is Name and type(arguments) is Node and arguments.form == "tuple"
        return is_call and type(target.entry) is not Collect

    def _called(self, target: Name, parts: list[Any]) -> Node:
        node = self._new("call", target, parts)
        self._join(node, "call", [part for part in parts if type(part) is not Name])
        return node

    def _set_state(self, op: Op, node: Any, state: Any) -> None:
        if type(node) is not Node or node.form != "call" or node.state is not None:
            raise _odd(op, "sets attributes of what has none")
        if state is None:
            raise _odd(op, "sets no attributes")
        self._join(node, "call", [state])
        node.state = state

    def _join(self, node: Node, form: Form, parts: list[Any]) -> None:
        """Count the parts of a value: from now on they do not change any more."""
        hashed = form in ("set", "frozenset")
        nodes, text = node.nodes + len(parts), node.text
        for position, part in enumerate(parts):
            kind = type(part)
            if kind is str or kind is bytes:
                text += len(part)
            elif kind is int:
                text += part.bit_length() // 8
            elif kind is Node:
                _check_value(part)
                if hashed or (form == "dict" and position % 2 == 0):
                    self._check_key(part)
                part.used = True
                nodes, text = nodes + part.nodes - 1, text + part.text
                node.depth = max(node.depth, part.depth + 1)
                if form == "tuple" and _is_mutable(part):
                    node.mutable = True
            elif kind is Name and form == "tuple" and type(part.entry) is not Class:
                node.name = part
                nodes -= 1
            else:
                _check_value(part)
        node.nodes, node.text = nodes, text
        self._check_size(node)
        if node.used:  # by another value, or by now because it is one of its own parts
            raise DecodeError(
                "The pickle changes a value that is part of another one by then. One that contains"
                " itself does that.",
                "Save a state without circles: with ids in place of objects.",
            )

    def _check_key(self, part: Node) -> None:
        if _is_mutable(part):
            raise DecodeError(
                "The pickle has a key that can change: a list, a dict or a set, or one within.",
                INTACT,
            )
        if part.nodes > self._limits.key_nodes:
            raise over(self._limits, "key_nodes")

    def _check_size(self, node: Node) -> None:
        if node.nodes > self._most:
            raise over(self._limits, "nodes", self._most)
        if node.text > self._limits.text_bytes:
            raise over(self._limits, "text_bytes")
        if node.depth > self._limits.depth:
            raise over(self._limits, "depth")


def _is_mutable(node: Node) -> bool:
    return node.mutable or node.form in ("list", "dict", "set")


def _check_value(value: Any) -> None:
    """Refuse a name where a value has to be."""
    name = value if type(value) is Name else value.name if type(value) is Node else None
    if name is not None and type(name.entry) is not Class:
        raise DecodeError(
            f"The pickle holds {name} itself, which is no data.",
            "Save a word of your own in its place.",
        )


def _paired(op: Op, form: Form, items: list[Any]) -> list[Any]:
    if form == "dict" and len(items) % 2:
        raise _odd(op, "has a key without a value")
    return items


def _odd(op: Op, what: str) -> DecodeError:
    return DecodeError(f"{op.name} at byte {op.position} of the pickle {what}.", INTACT)


# Python hashes these with a secret of the process.
_UNPREDICTABLE: Final = frozenset({str, bytes, datetime, date, time})
_SOME: Final = 64


class _Building:
    """The second step: what was drawn is built, from the inside out."""

    def __init__(
        self,
        functions: Functions,
        persistent: Callable[[Any], Any] | None,
        limits: PickleLimits,
    ) -> None:
        self._functions = functions
        self._persistent = persistent
        self._limits = limits
        self._effort = limits.number_keys**2

    def build(self, root: Any) -> Any:
        """Return what was drawn. What is shared in the drawing is one object."""
        waiting = [root] if type(root) is Node else []
        while waiting:
            node = waiting[-1]
            inner = []
            if node.depth > 1:  # else it has no inner ones
                inner = [part for part in node.parts if type(part) is Node and not part.built]
            if node.form == "call":
                more = (*node.pairs, node.state)
                inner += [part for part in more if type(part) is Node and not part.built]
            if inner and not node.built:
                waiting += inner
                continue
            if not node.built:
                node.value = self._built(node)
                node.built = True
            waiting.pop()
        return _value(root)

    def _built(self, node: Node) -> Any:
        parts = _values(node.parts)
        if node.form == "list":
            return parts
        if node.form == "tuple":
            return tuple(parts)
        if node.form == "dict":
            return self._fill({}, parts)
        if node.form == "set":
            return self._distinct(parts)
        if node.form == "frozenset":
            return frozenset(self._distinct(parts))
        if node.form == "id":
            return _called("a persistent id", self._persistent, parts)
        return self._call(node, parts)

    def _call(self, node: Node, parts: list[Any]) -> Any:
        target: Any = node.target
        value = _called(target, self._functions[target.key], parts)
        if node.pairs:
            if not isinstance(value, dict):
                raise DecodeError(
                    f"The pickle puts items into {target}, which takes none.", NOT_DATA
                )
            self._fill(value, _values(node.pairs))
        build = getattr(type(value), "__build__", None)
        if build is not None:
            value = _called(target, build, [value, _value(node.state)])
        elif node.state is not None:
            raise DecodeError(
                f"The pickle sets attributes of {target}, which takes none.", NOT_DATA
            )
        if type(value) is Name:
            raise DecodeError(f"The pickle holds {value} itself, which is no data.", NOT_DATA)
        return value

    def _fill(self, value: dict[Any, Any], pairs: list[Any]) -> dict[Any, Any]:
        self._distinct(pairs[::2])
        dict.update(value, zip(pairs[::2], pairs[1::2], strict=True))
        return value

    def _distinct(self, keys: list[Any]) -> set[Any]:
        """Return the set of what is about to be keys, once that is known to be quick."""
        try:
            hashes = [*map(hash, keys)]
        except (RecursionError, MemoryError):
            raise
        except Exception:  # noqa: BLE001  a class of the caller may raise anything
            hashes = None
        if hashes is None:
            raise DecodeError("The pickle has a key that cannot be one.", INTACT)
        kinds = Counter(map(type, keys))
        numbers = len(keys) - sum(kinds[each] for each in _UNPREDICTABLE)
        self._effort -= numbers**2
        pairs = 0
        if len({*hashes}) < len(hashes):
            pairs = sum(count * (count - 1) // 2 for count in Counter(hashes).values())
        if self._effort < 0 or pairs > 4 * len(keys) + _SOME:
            raise over(self._limits, "number_keys")
        found = set(keys)
        if len(found) != len(keys):
            raise DecodeError("The pickle has one key twice.", INTACT)
        return found


_DRAWN: Final = frozenset({Node, Name})


def _values(parts: Sequence[Any]) -> list[Any]:
    return [_value(part) if type(part) in _DRAWN else part for part in parts]


def _value(part: Any) -> Any:
    if type(part) is Name and type(part.entry) is Class:
        return part.entry.value
    return part.value if type(part) is Node else part


def _called(name: object, function: Any, arguments: list[Any]) -> Any:
    """Return what a vetted function makes of its arguments.

    The cause of a refusal is left out on purpose: it would carry the values.
    """
    try:
        return function(*arguments)
    except (CheckpointError, RecursionError, MemoryError):
        raise
    except Exception:  # noqa: BLE001  each type has its own way to say that it is malformed
        problem = DecodeError(f"The pickle gives {name} what it does not take.", INTACT)
    raise problem
