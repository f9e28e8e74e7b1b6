"""A pickle read as data: nothing in it is imported, and only functions of a list are called.

It works in three steps, each of which has its own bounds.

1. `opcodes.rewritten` follows the instructions, builds nothing, and refuses what data does not
   need: other instructions, bytes behind the end, large numbers. What would make a dict or a set,
   call a class or follow an id is rewritten as a persistent id, so that Python's unpickler hashes
   nothing and calls no class.
2. Python's unpickler makes a drawing of what is left: lists, tuples, texts and numbers, and one
   kind of stand-in for everything else. Its `find_class` hands out names, and imports none.
3. `Builder` counts the drawing, and builds it from the functions that the caller gave.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import partial
from types import NoneType
from typing import Any, Final, NamedTuple

from safepoint.core.errors import CheckpointError, DecodeError, LimitExceeded
from safepoint.models.limits import DEFAULT_PICKLE_LIMITS, PickleLimits, over
from safepoint.models.opcodes import (
    FORMS,
    INTACT,
    NOT_DATA,
    OURS,
    Ref,
    Scan,
    named,
    odd,
    rewritten,
    unpickled,
)

_UNLISTED: Final = (
    "If it is a dataclass, an Enum or a pydantic model of yours, list it as a type. If it is a"
    " value of a library, save its numbers and texts. If not, do not load it: safepoint scan lists"
    " what it asks for."
)


@dataclass(eq=False, slots=True)
class Name:
    """A name of the caller's list, such as `builtins.list`, handed to a function as an argument.

    Attributes:
        key: the module and the name.
        entry: what the caller's list says of it.
    """

    key: Ref
    entry: Any = None

    def __str__(self) -> str:
        return named(*self.key)

    def __call__(self, *arguments: Any) -> Drawn:
        """Draw a call of it."""
        if len(arguments) > _SOME:  # which can be the same ones for a million calls
            raise odd(f"gives {self} more than {_SOME} arguments")
        return Drawn("call", self, arguments)

    def __setstate__(self, state: object) -> None:
        raise odd(f"sets attributes of {self}")


class Constant(NamedTuple):
    """An entry that stands for a value and is not called: `Constant("float32")`."""

    value: Any


class Collect(NamedTuple):
    """An entry that makes a set, or a dict, of one list, as pickles before protocol 4 do.

    Attributes:
        form: which of them.
        plain: the same, for one without attributes.
    """

    form: type[set[Any] | frozenset[Any] | dict[Any, Any]]
    plain: type[dict[Any, Any]] | None = None


class Class(NamedTuple):
    """An entry that a pickle may call and may also hold as a value: a class of the caller's."""

    value: Any
    make: Callable[..., Any]

    def __call__(self, *given: Any) -> Any:
        """Call it, as the pickle does."""
        return self.make(*given)


class Raw(NamedTuple):
    """An entry that gets its arguments as they are drawn, and builds them itself."""

    make: Callable[..., Any]


Functions = Mapping[Ref, Any]
"""What may stand behind a name. A function whose result has `__build__` gets the state of BUILD."""


class Drawn:
    """What is drawn and not built: a call, an id, a dict or a set.

    Attributes:
        form: which of them.
        target: the name that is called.
        parts: arguments, or what is in a set.
        pairs: keys and values in turn.
        items: what is appended to what a call returns.
        state: what BUILD gives to what the call returns.
        sizes: how long each list and dict among the arguments was when it was handed over.
    """

    __slots__ = ("form", "items", "pairs", "parts", "sizes", "state", "target")

    def __init__(self, form: str, target: Name | None = None, parts: Any = ()) -> None:
        self.form, self.target = form, target
        self.parts = parts  # no copy: there may be a million of these
        self.pairs: Any = ()
        self.items: Any = ()
        self.state: Any = None
        self.sizes = self.measured() if parts and target else ()

    def measured(self) -> tuple[int, ...]:
        """Return how long each list and each dict among the arguments is by now."""
        lists = [part.pairs if type(part) is Drawn else part for part in self.parts]
        return tuple([len(part) for part in lists if type(part) is list])

    def add(self, item: Any) -> None:
        """Put an item into a set."""
        self._only("set")
        self.parts = self.parts or []
        self.parts.append(item)

    def extend(self, items: Any) -> None:
        """Append items to what a call returns, such as a deque."""
        self._only("call")
        self.items = self.items or []
        self.items += items

    def __setstate__(self, state: Any) -> None:
        if type(state) is Drawn and state.form == "pairs":
            self._only("dict", "call")
            self.pairs = self.pairs or []
            self.pairs += state.parts
            return
        self._only("call")
        if self.state is not None or state is None:
            raise odd("sets attributes twice, or none")
        self.state = state

    def _only(self, *forms: str) -> None:
        if self.form not in forms:
            raise odd("changes or sets attributes of what has none")


def run(data: bytes, *, functions: Functions, limits: PickleLimits = DEFAULT_PICKLE_LIMITS) -> Any:
    """Return what a pickle describes, built from plain data and from `functions` alone.

    Args:
        data: the pickle and nothing behind it.
        functions: what may stand behind a name: a function that you vetted, which is called with
            the arguments of the pickle and has to check them; or an entry of this module. A
            function gets plain data, results of other functions, and a `Name` where the pickle
            passes one of the names on.
        limits: what is too large, too deep or too many.

    Raises:
        DecodeError: the pickle is malformed, or asks for more than data and `functions`.
        LimitExceeded: it is too large, too deep or has too many values.
        CheckpointError: what a function raised, if it is one of this tree.
    """
    value, end = Builder(functions, limits).read(data)
    if end != len(data):
        raise DecodeError(
            f"The pickle ends, and something else follows at byte {end}.",
            "Find out what it is: it is not part of the state.",
        )
    return value


def _takes_none(does: str) -> DecodeError:
    return DecodeError(f"The pickle {does}, which takes none.", NOT_DATA)


def _drawn(identifier: Any) -> Drawn:
    """Draw what was rewritten."""
    if type(identifier) is not tuple or len(identifier) != 3 or identifier[2] is not OURS:
        return Drawn("id", None, identifier)
    value, number, _ = identifier
    form = FORMS[number]
    if form in ("dict", "pairs") and len(value) % 2:
        raise odd("has a key without a value")
    if form == "dict":
        drawn = Drawn("dict")
        drawn.pairs = [*value]
        return drawn
    return Drawn(form.removeprefix("new "), None, value or ())


_NOT_TAKEN: Final = (
    "It may be damaged, or hold more than data. If you made it, save plain values in its place."
)
_SIZED: Final = frozenset([bytes, str])
_NUMBERS: Final = frozenset([NoneType, bool, int, float])
_LEAVES: Final = _SIZED | _NUMBERS
_OPEN: Final = object()
# Python hashes these with a secret of the process.
_UNPREDICTABLE: Final = frozenset({str, bytes, datetime, date, time})
_SOME: Final = 64
# Keys of a dict, or items of a set, whose hash anybody can predict: numbers above all. An attacker
# can choose them so that they get into each other's way, and the time goes with the square of their
# number. So many small dicts count little.
_NUMBER_KEYS: Final = 50_000
_KEYS: Final = "Nothing was loaded. If you made it, save a list, or use texts as keys."


class Builder:
    """Builds the value of one pickle after another, within limits for all of them.

    Attributes:
        asked: the names that the pickles ask for.
        start: where the last one begins.
        end: where it ends.

    Args:
        functions: what may stand behind a name.
        limits: what is too large, too deep or too many.
    """

    def __init__(self, functions: Functions, limits: PickleLimits) -> None:
        self.functions, self.limits = functions, limits
        self.asked: dict[Ref, Name] = {}
        self.start = self.end = 0
        self._done: dict[int, Any] = {}
        self._extents: dict[int, Any] = {}  # numbers alone, which no garbage collector visits
        self._nodes = self._text = self._deepest = 0
        self._effort = _NUMBER_KEYS**2

    def read(self, data: bytes, start: int = 0) -> tuple[Any, int]:
        """Return the value of the pickle at `start`, and where the pickle ends."""
        if len(data) - start > self.limits.data_bytes:
            raise over(self.limits, "data_bytes")
        problem: CheckpointError
        try:
            code, self.end = rewritten(data, start, self.limits)
            self.start = start
            drawing = unpickled(code, self._named, self.follow)
            self._done, self._extents = {}, {}
            return self.value(drawing, 1), self.end
        except (RecursionError, MemoryError):
            problem = LimitExceeded(
                "The pickle's values do not fit into memory, or are nested too deeply.",
                "Nothing was loaded. Load it where there is more, or in parts.",
                "memory",
            )
        raise problem

    def scan(self) -> Scan:
        """Return what `scan` finds in the last pickle."""
        asked = tuple(self.asked)
        asks = bool(asked)
        return Scan(asked, (), 0, asks, calls=asks, stopped=True, goes_on=False, end=self.end)

    def _named(self, key: Ref) -> Name:
        if key not in self.asked:
            entry = self.entry(key)
            if entry is None:
                raise DecodeError(
                    f"The pickle wants {named(*key)}, which is not on the list of what may be"
                    " built.",
                    _UNLISTED,
                )
            self.asked[key] = Name(key, entry)
        return self.asked[key]

    follow: Callable[[Any], Any] = staticmethod(_drawn)

    def entry(self, key: Ref) -> Any:
        """Return what stands behind a name, None if nothing does."""
        return self.functions.get(key)

    def persistent(self, identifier: Any) -> Any:  # noqa: ARG002  for those who know ids
        """Return what an id stands for. In plain data there are none."""
        raise DecodeError("The pickle uses BINPERSID, which plain data does not need.", NOT_DATA)

    def value(self, part: Any, depth: int) -> Any:
        """Return what was drawn, built. What is shared in the drawing is one object."""
        kind = type(part)
        if kind in _LEAVES:
            return self.text(part) if kind is str else part
        if kind is Name:
            if type(part.entry) in (Constant, Class):
                return part.entry.value
            raise DecodeError(
                f"The pickle holds {part} itself, which is not data.",
                "Save a word of your own in its place.",
            )
        if kind is tuple and _NUMBERS.issuperset(map(type, part)):
            self._count(1 + len(part), 0, depth + 1)
            return part
        if kind not in (list, tuple, Drawn):  # what `follow` drew of an id
            self._count(1, 0, depth)
            return self.persistent(part)
        at = id(part)
        known = self._extents.get(at)
        if known is _OPEN:
            raise DecodeError(
                "The pickle has a value that contains itself.",
                "Save a state without circles: with ids in place of objects.",
            )
        if known is not None:
            self._count(known[0], known[1], depth + known[2])
            return self._done[at]
        # What it is written out is counted, so that a small file stays small.
        self._extents[at] = _OPEN
        nodes, text, outer, self._deepest = self._nodes, self._text, self._deepest, depth
        self._count(1, 0, depth)
        is_call = kind is Drawn and part.target is not None
        self._done[at] = value = (self._call if is_call else self._made)(part, depth)
        self._extents[at] = self._nodes - nodes, self._text - text, self._deepest - depth
        self._deepest = max(outer, self._deepest)
        return value

    def _count(self, nodes: int, text: int, depth: int) -> None:
        self._nodes += nodes
        self._text += text
        if depth > self._deepest:
            self._deepest = depth
        if self._nodes > self.limits.nodes:
            raise over(self.limits, "nodes")
        if self._text > self.limits.data_bytes:
            raise over(self.limits, "data_bytes")
        if depth > self.limits.depth:
            raise over(self.limits, "depth")

    def text(self, text: str) -> str:
        """Return a text, unless it has half a character in it."""
        try:
            text.encode()
        except UnicodeEncodeError:
            problem = odd("holds a text with half a character in it")
        else:
            return text
        raise problem

    def values(self, parts: Collection[Any], depth: int) -> list[Any]:
        """Return what was drawn, each built."""
        kinds = {*map(type, parts)}
        leaves = parts if kinds <= _LEAVES else [part for part in parts if type(part) in _LEAVES]
        sized = [part for part in leaves if type(part) in _SIZED] if kinds & _SIZED else ()
        self._count(len(leaves), sum(map(len, sized)), depth)
        for part in sized:
            if not part.isascii() and type(part) is str:
                self.text(part)
        if leaves is parts:
            return [*parts]
        return [part if type(part) in _LEAVES else self.value(part, depth) for part in parts]

    def _made(self, part: Any, depth: int) -> Any:
        if type(part) is not Drawn:
            return type(part)(self.values(part, depth + 1))
        if part.form == "dict":
            return self._fill({}, part.pairs, depth)
        if part.form in ("set", "frozenset"):
            found = self._distinct(self.keys(part.parts, depth))
            return found if part.form == "set" else frozenset(found)
        return self.persistent(part)

    def _call(self, drawn: Drawn, depth: int) -> Any:
        target: Any = drawn.target
        entry = target.entry
        if drawn.parts and drawn.sizes != drawn.measured():
            raise odd(f"changes what it gave {target}")
        if type(entry) is Collect:
            form = entry.form if drawn.state is not None else entry.plain or entry.form
            value = self._collected(target, form, drawn.parts, depth)
        elif type(entry) is Raw:
            value = self.called(target, partial(entry.make, depth), drawn.parts)
        else:
            value = self.called(target, entry, self.arguments(drawn.parts, depth))
        return self.finished(drawn, value, depth)

    def finished(self, drawn: Drawn, value: Any, depth: int) -> Any:
        """Give what a call returned its items and its state."""
        if drawn.pairs:
            if not isinstance(value, dict):
                raise _takes_none(f"puts items into {drawn.target}")
            self._fill(value, drawn.pairs, depth)
        if drawn.items:
            if type(value) is not deque:
                raise _takes_none(f"appends items to {drawn.target}")
            value.extend(self.values(drawn.items, depth + 1))
        build = getattr(type(value), "__build__", None)
        if build is not None:
            state = self.value(drawn.state, depth + 1)
            value = self.called(drawn.target, build, [value, state])
        elif drawn.state is not None:
            raise _takes_none(f"sets attributes of {drawn.target}")
        return value

    def arguments(self, parts: Collection[Any], depth: int) -> list[Any]:
        """Return arguments, built. A name may be one and is handed on as it is."""
        if not _SIZED.isdisjoint(map(type, parts)):  # what is called may copy it
            self._count(0, sum(len(part) for part in parts if type(part) in _SIZED), depth)
        return [
            part
            if type(part) in _NUMBERS
            or (type(part) is Name and type(part.entry) not in (Constant, Class))
            else Builder.value(self, part, depth + 1)  # a storage as it is described
            for part in parts
        ]

    def _collected(self, target: Name, form: Any, parts: list[Any], depth: int) -> Any:
        if parts and not (len(parts) == 1 and type(parts[0]) is list):
            raise odd(f"gives {target} something else than one list")
        items = parts[0] if parts else []
        if not issubclass(form, dict):
            return form(self._distinct(self.keys(items, depth)))
        if not items:
            return form()
        if any(type(item) not in (list, tuple) or len(item) != 2 for item in items):
            raise odd(f"gives {target} something else than pairs")
        return self._fill(form(), [part for item in items for part in item], depth)

    def _fill(self, value: dict[Any, Any], pairs: list[Any], depth: int) -> dict[Any, Any]:
        if not pairs:
            return value
        keys = self.keys(pairs[::2], depth)
        self._distinct(keys)
        value.update(zip(keys, self.values(pairs[1::2], depth + 1), strict=True))
        return value

    def keys(self, parts: list[Any], depth: int) -> list[Any]:
        """Return what is about to be hashed: a hash walks through all of a tuple."""
        if _LEAVES.issuperset(map(type, parts)):
            return self.values(parts, depth + 1)
        keys = []
        for part in parts:
            before = self._nodes
            keys += self.values([part], depth + 1)
            if self._nodes - before > _SOME:
                raise LimitExceeded(f"The pickle has a key of more than {_SOME} values.", _KEYS)
        return keys

    def _distinct(self, keys: list[Any]) -> set[Any]:
        """Return the set of what is about to be keys, once that is known to be quick."""
        try:
            hashes = [*map(hash, keys)]
        except (RecursionError, MemoryError):
            raise
        except Exception:  # noqa: BLE001  a class of the caller may raise anything
            hashes = None
        if hashes is None:
            raise DecodeError(
                "The pickle has a key that can change: a list, a dict or a set, or one within.",
                INTACT,
            )
        if len(keys) > 1:
            kinds = Counter(map(type, keys))
            predictable = sum(kinds[kind] for kind in kinds.keys() - _UNPREDICTABLE)
            if kinds.keys() == {int} and keys == [*range(keys[0], keys[0] + len(keys))]:
                predictable = 0  # as a vocabulary has them: each has a place of its own
            self._effort -= predictable**2
            pairs = 0
            if len({*hashes}) < len(hashes):
                pairs = sum(count * (count - 1) // 2 for count in Counter(hashes).values())
            if self._effort < 0 or pairs > 4 * len(keys) + _SOME:
                raise LimitExceeded(
                    "The pickle has too many keys that are numbers, or that share a hash, which"
                    " may be an attack.",
                    _KEYS,
                )
        found = set(keys)
        if len(found) != len(keys):
            raise DecodeError("The pickle has one key twice.", INTACT)
        return found

    def called(self, name: object, function: Any, arguments: list[Any]) -> Any:
        """Return what a vetted function makes of its arguments.

        The cause of a refusal is left out on purpose: it would carry the values.
        """
        try:
            return function(*arguments)
        except (CheckpointError, RecursionError, MemoryError):
            raise
        except Exception:  # noqa: BLE001  each type has its own way to say that it is malformed
            problem = DecodeError(f"The pickle gives {name} what is not taken here.", _NOT_TAKEN)
        raise problem
