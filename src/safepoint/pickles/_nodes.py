"""What a pickle is made of, once it is drawn: names and nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

from safepoint.pickles.opcodes import named

NOT_DATA: Final = "Do not load it with pickle. If you wrote it, save plain data in its place."

Form = Literal["list", "tuple", "dict", "set", "frozenset", "call", "id", "constant"]


class Name:
    """A name of the caller's list, such as `builtins.list`, handed to a function as an argument.

    Attributes:
        key: the module and the name.
    """

    __slots__ = ("key",)

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key

    def __str__(self) -> str:
        return named(*self.key)


class Constant(NamedTuple):
    """An entry that stands for a value, and is not called: `Constant("float32")`."""

    value: Any


class Collect(NamedTuple):
    """An entry that makes a set or frozenset of one list, as pickles before protocol 4 do."""

    form: Literal["set", "frozenset"]


class Refused(NamedTuple):
    """An entry that is refused, with a hint of its own."""

    do: str


class Buildable(Protocol):
    """What a function returns if it wants the state that BUILD gives to its result."""

    def __build__(self, state: Any) -> Any:
        """Return the finished value. The state is None if the pickle gives none."""


Functions = Mapping[tuple[str, str], Callable[..., Any] | Constant | Collect | Refused]


class Node:
    """A value that is drawn and not built.

    Attributes:
        form: of which type it is, or how it is made.
        parts: what it holds: items, keys and values in turn, or arguments.
        target: what is called.
        pairs: keys and values in turn that are put into what the call returns.
        state: what BUILD gives to what the call returns.
        nodes: how many values it is, written out.
        text: how many bytes of text, written out.
        depth: how many levels.
        used: it is part of another value, so it does not change any more.
        mutable: it can be no key.
        name: a name among its parts: it can only be the arguments of a call.
        value: what was built, once `built` is true.
    """

    __slots__ = (
        *("built", "depth", "form", "mutable", "name", "nodes", "pairs", "parts", "state"),
        *("target", "text", "used", "value"),
    )

    def __init__(self, form: Form, target: Name | None = None) -> None:
        self.form = form
        self.parts: list[Any] = []
        self.target = target
        self.pairs: list[Any] = []
        self.state: Any = None
        self.nodes = 1
        self.text = 0
        self.depth = 1
        self.used = False
        self.mutable = form in ("list", "dict", "set")
        self.name: Name | None = None
        self.value: Any = None
        self.built = False


def constant(value: Any) -> Node:
    """Return a node that was built by the caller."""
    node = Node("constant")
    node.value, node.built = value, True
    return node
