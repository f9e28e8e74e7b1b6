"""Containers: list, tuple, set, frozenset and dict.

The order of a set or a dict is not kept, so that equal states have equal bytes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from safepoint._codec.writer import Refusal, Revive, Write, Writer, is_plain, refuse
from safepoint.errors import LimitExceeded

_SHARED_HASHES: Final = 1000


def _list(writer: Writer, value: list[Any]) -> str:
    writer.enter(len(value))
    text = ",".join(_in_order(writer, value))
    writer.depth += 1
    return f"[{text}]"


def _tuple(writer: Writer, value: tuple[Any, ...]) -> str:
    writer.enter(len(value) + 1)
    text = ",".join(_in_order(writer, value))
    writer.depth += 1
    return f'{{"$tuple":[{text}]}}'


def _in_order(writer: Writer, values: Collection[Any]) -> list[str]:
    texts: list[str] = []
    find = writer.find
    try:
        for value in values:
            texts.append(find(type(value), refuse)(writer, value))  # noqa: PERF401 - for its length
    except Refusal as refusal:
        refusal.steps.append(f"[{len(texts)}]")
        raise
    return texts


def _any_order(tag: str) -> Write:
    def write_set(writer: Writer, value: Collection[Any]) -> str:
        writer.enter(len(value) + 1)
        check_hashes(value)
        try:
            text = ",".join(sorted(map(writer.write, value)))
        except Refusal as refusal:
            refusal.steps.append("[…]")
            raise
        writer.depth += 1
        return f'{{"${tag}":[{text}]}}'

    return write_set


def _dict(writer: Writer, value: dict[Any, Any]) -> str:
    for key in value:
        if type(key) is not str or key[:1] == "$":
            return _pairs(writer, value)
    writer.enter(len(value))
    texts = []
    find = writer.find
    string = writer.string
    key = None
    try:
        for key in sorted(value):
            item = value[key]
            texts.append(f"{string(key)}:{find(type(item), refuse)(writer, item)}")
    except Refusal as refusal:
        refusal.steps.append(_step(key))
        raise
    writer.depth += 1
    return f"{{{','.join(texts)}}}"


def _pairs(writer: Writer, value: dict[Any, Any]) -> str:
    writer.enter(3 * len(value) + 1)
    check_hashes(value)
    texts = []
    step = ""
    try:
        for key, item in value.items():
            step = ".keys()[…]"
            name = writer.write(key)
            step = _step(key)
            texts.append((name, writer.write(item)))
    except Refusal as refusal:
        refusal.steps.append(step)
        raise
    writer.depth += 1
    return '{"$dict":[' + ",".join(f"[{name},{item}]" for name, item in sorted(texts)) + "]}"


def _step(key: object) -> str:
    return f"['{key}']" if is_plain(key) else "[…]"


def check_hashes(values: Collection[Any]) -> None:
    """Refuse keys that were chosen to share one hash, which makes a set or dict take forever."""
    if len(values) > _SHARED_HASHES and len(values) - len(set(map(hash, values))) > _SHARED_HASHES:
        raise LimitExceeded(
            f"More than {_SHARED_HASHES} items of one set or dict share a hash.",
            "Save a list instead of a set or of the keys of a dict.",
        )


def _revive_set(items: list[Any]) -> set[Any]:
    check_hashes(items)
    return set(items)


def _revive_frozenset(items: list[Any]) -> frozenset[Any]:
    check_hashes(items)
    return frozenset(items)


def _revive_dict(pairs: list[list[Any]]) -> dict[Any, Any]:
    check_hashes([key for key, _ in pairs])
    return dict(pairs)


CONTAINER_WRITERS: Final[dict[type, Write]] = {
    list: _list,
    dict: _dict,
    tuple: _tuple,
    set: _any_order("set"),
    frozenset: _any_order("frozenset"),
}

CONTAINER_REVIVERS: Final[dict[str, Revive]] = {
    "tuple": tuple,
    "set": _revive_set,
    "frozenset": _revive_frozenset,
    "dict": _revive_dict,
}
