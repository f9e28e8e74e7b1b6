"""The second step of reading a pickle: what was drawn is built, from the inside out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any, Final

from safepoint.errors import CheckpointError, LimitExceeded, PickleRefused
from safepoint.pickles._nodes import NOT_DATA, Functions, Name, Node
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.opcodes import INTACT

# Python hashes these with a secret of the process.
_UNPREDICTABLE: Final = frozenset({str, bytes, datetime, date, time})
_SOME: Final = 64


class Building:
    """Builds one drawing.

    Args:
        functions: what is called.
        persistent: what is called with persistent ids.
        limits: how much time the keys of sets and dicts may take.
    """

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
        """Return what was drawn. What is shared in the drawing is one object.

        Raises:
            PickleRefused: a function does not take what the pickle gives to it.
            LimitExceeded: the keys of sets and dicts would take too long.
            CheckpointError: what a function raised, if it is one of this tree.
        """
        waiting = [root] if type(root) is Node else []
        while waiting:
            node = waiting[-1]
            inner = [
                part
                for part in (*node.parts, *node.pairs, node.state)
                if type(part) is Node and not part.built
            ]
            if inner and not node.built:
                waiting += inner
                continue
            if not node.built:
                node.value = self._value(node)
                node.built = True
            waiting.pop()
        return _value(root)

    def _value(self, node: Node) -> Any:
        parts = [_value(part) for part in node.parts]
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
        value = _called(str(target), self._functions[target.key], parts)
        if node.pairs:
            if not isinstance(value, dict):
                raise PickleRefused(
                    f"The pickle puts items into {target}, which takes none.", NOT_DATA
                )
            self._fill(value, [_value(part) for part in node.pairs])
        build = getattr(type(value), "__build__", None)
        if build is not None:
            value = _called(str(target), build, [value, _value(node.state)])
        elif node.state is not None:
            raise PickleRefused(
                f"The pickle sets attributes of {target}, which takes none.", NOT_DATA
            )
        if type(value) is Name:
            raise PickleRefused(f"The pickle holds {value} itself, which is no data.", NOT_DATA)
        return value

    def _fill(self, value: dict[Any, Any], pairs: list[Any]) -> dict[Any, Any]:
        self._distinct(pairs[::2])
        for key, item in zip(pairs[::2], pairs[1::2], strict=True):
            dict.__setitem__(value, key, item)
        return value

    def _distinct(self, keys: list[Any]) -> set[Any]:
        """Return the set of what is about to be keys, once that is known to be quick."""
        try:
            hashes = [hash(key) for key in keys]
        except (RecursionError, MemoryError):
            raise
        except Exception:  # noqa: BLE001  a class of the caller may raise anything
            hashes = None
        if hashes is None:
            raise PickleRefused("The pickle has a key that cannot be one.", INTACT)
        numbers = sum(type(key) not in _UNPREDICTABLE for key in keys)
        self._effort -= numbers**2
        pairs = sum(count * (count - 1) // 2 for count in Counter(hashes).values() if count > 1)
        if self._effort < 0 or pairs > 4 * len(keys) + _SOME:
            raise LimitExceeded(
                "The pickle has more numbers as keys than can be told from an attack: more than"
                f" {self._limits.number_keys}, or too many that share a hash.",
                "Save a list in place of a set, or raise PickleLimits.number_keys.",
            )
        found = set(keys)
        if len(found) != len(keys):
            raise PickleRefused("The pickle has one key twice.", INTACT)
        return found


def _value(part: Any) -> Any:
    return part.value if type(part) is Node else part


def _called(name: str, function: Any, arguments: list[Any]) -> Any:
    """Return what a vetted function makes of its arguments.

    The cause of a refusal is left out on purpose: it would carry the values.
    """
    try:
        return function(*arguments)
    except (CheckpointError, RecursionError, MemoryError):
        raise
    except Exception:  # noqa: BLE001  each type has its own way to say that it is malformed
        problem = PickleRefused(f"The pickle gives {name} what it does not take.", INTACT)
    raise problem
