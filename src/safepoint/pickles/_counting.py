"""How large a drawn value is once it is written out, counted when its parts are put into it."""

from __future__ import annotations

from typing import Any

from safepoint.errors import LimitExceeded, PickleRefused
from safepoint.pickles._nodes import Form, Name, Node
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.opcodes import INTACT


def join(node: Node, form: Form, parts: list[Any], limits: PickleLimits) -> None:
    """Count the parts of a value. From now on they do not change any more.

    Args:
        node: the value.
        form: what it is to these parts: a call can be filled as a dict is.
        parts: what it holds, keys and values in turn if it is a dict.
        limits: what is too large, too deep or too many.

    Raises:
        PickleRefused: a part can be no part, or no key, or the value is part of another one.
        LimitExceeded: the value is too large, too deep or has too many parts.
    """
    for position, part in enumerate(parts):
        if type(part) is Name and form == "tuple":
            node.name = part
            continue
        check_value(part)
        if form in ("set", "frozenset") or (form == "dict" and position % 2 == 0):
            _check_key(part, limits)
        if type(part) is Node:
            part.used = True
            node.nodes += part.nodes
            node.text += part.text
            node.depth = max(node.depth, part.depth + 1)
            node.mutable |= form == "tuple" and part.mutable
        else:
            node.nodes += 1
            node.text += _weight(part)
        _check_size(node, limits)
    if node.used:  # by another value, or by now because it is one of its own parts
        raise PickleRefused(
            "The pickle changes a value that is part of another one by then. One that contains"
            " itself does that.",
            "Save a state without circles: with ids in place of objects.",
        )


def check_value(value: Any) -> None:
    """Refuse a name where a value has to be."""
    name = value if type(value) is Name else value.name if type(value) is Node else None
    if name is not None:
        raise PickleRefused(
            f"The pickle holds {name} itself, which is no data.",
            "Save a word of your own in its place.",
        )


def too_many(limits: PickleLimits) -> LimitExceeded:
    """Return the error for too many values."""
    return LimitExceeded(
        f"The pickle holds more than {limits.nodes} values, written out.",
        "Split what it holds, or raise PickleLimits.nodes.",
    )


def _check_key(part: Any, limits: PickleLimits) -> None:
    if type(part) is not Node:
        return
    if part.mutable:
        raise PickleRefused(
            "The pickle has a key that can change: a list, a dict or a set, or one within.",
            INTACT,
        )
    if part.nodes > limits.key_nodes:
        raise LimitExceeded(
            f"The pickle has a key of more than {limits.key_nodes} values.",
            "Use shorter keys, or raise PickleLimits.key_nodes.",
        )


def _check_size(node: Node, limits: PickleLimits) -> None:
    if node.nodes > limits.nodes:
        raise too_many(limits)
    if node.text > limits.text_bytes:
        raise LimitExceeded(
            f"The pickle holds more than {limits.text_bytes} bytes of text, written out.",
            "Split what it holds, or raise PickleLimits.text_bytes.",
        )
    if node.depth > limits.depth:
        raise LimitExceeded(
            f"The pickle is nested deeper than {limits.depth} levels.",
            "Save a flatter state, or raise PickleLimits.depth.",
        )


def _weight(value: Any) -> int:
    if type(value) in (str, bytes):
        return len(value)
    return value.bit_length() // 8 if type(value) is int else 0
