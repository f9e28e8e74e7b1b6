"""The codec: size, depth and count, which are bounded before anything is parsed."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, localcontext
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from safepoint.codec import Codec
from safepoint.errors import ConfigurationError, DecodeError, EncodeError, LimitExceeded
from safepoint.names import DEFAULT_LIMITS, Limits
from tests.unit.codec_types import CODEC, VALUES, Point, assert_carries_nothing, same

MIB = 1024 * 1024
NESTINGS: dict[str, Callable[[Any], Any]] = {
    "list": lambda inner: [inner],
    "dict": lambda inner: {"k": inner},
    "pairs": lambda inner: {1: inner},
    "tuple": lambda inner: (inner,),
    "frozenset": lambda inner: frozenset([inner]),
    "dataclass": lambda inner: Point(x=inner),
}
TOO_DEEP = (
    "The state is nested deeper than 64 levels, or contains itself. "
    "Save a flatter state, with ids in place of objects inside objects."
)


@pytest.mark.parametrize("kind", NESTINGS)
def test_64_levels_are_kept_and_65_are_refused(kind: str) -> None:
    value: Any = timedelta(1)
    for _ in range(64):
        value = NESTINGS[kind](value)
    assert same(CODEC.decode(CODEC.encode(value)), value)
    with pytest.raises(LimitExceeded) as caught:
        CODEC.encode(NESTINGS[kind](value))
    assert str(caught.value) == TOO_DEEP
    deeper = Codec(CODEC.types, limits=Limits(depth=65)).encode(NESTINGS[kind](value))
    with pytest.raises(LimitExceeded) as caught:
        CODEC.decode(deeper)
    assert "nested deeper than 64 levels" in caught.value.what


def test_a_state_that_contains_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["self"] = [state]
    with pytest.raises(LimitExceeded) as caught:
        CODEC.encode(state)
    assert str(caught.value) == TOO_DEEP


def count(plain_json: Any) -> int:
    """The number of values in a JSON document below its root: the oracle for `items`."""
    inner = plain_json.values() if isinstance(plain_json, dict) else plain_json
    if not isinstance(plain_json, dict | list):
        return 0
    return sum(1 + count(value) for value in inner)


@pytest.mark.parametrize("value", [value for value, _ in VALUES], ids=lambda v: ascii(v)[:40])
def test_items_are_counted_alike_on_save_and_on_load(value: Any) -> None:
    """What is just within the limit can be saved and loaded; one less, and neither."""
    data = CODEC.encode([value])
    items = count(json.loads(data))
    enough = Codec(CODEC.types, limits=Limits(items=items))
    assert enough.encode([value]) == data
    assert same(enough.decode(data), [value])
    short = Codec(CODEC.types, limits=Limits(items=items - 1))
    with pytest.raises(LimitExceeded) as caught:
        short.encode([value])
    assert str(caught.value) == (
        f"The state holds more than {items - 1} values. "
        "Keep large data elsewhere and save a reference to it, or raise Limits.items."
    )
    with pytest.raises(LimitExceeded) as caught:
        short.decode(data)
    assert str(caught.value) == (
        f"The encoded state holds more than {items - 1} values. "
        "Restore an earlier checkpoint, or raise Limits.items if you expect this many."
    )


@pytest.mark.parametrize("value", ["x" * 100, b"x" * 75, 16**100, [0] * 50, {"x" * 97: 0}])
def test_size_is_limited_alike_on_save_and_on_load(value: Any) -> None:
    data = CODEC.encode(value)
    enough = Codec(limits=Limits(state_bytes=len(data)))
    assert enough.decode(enough.encode(value)) == value
    short = Codec(limits=Limits(state_bytes=len(data) - 1))
    with pytest.raises(LimitExceeded) as caught:
        short.encode(value)
    assert str(caught.value) == (
        f"The state takes more than {len(data) - 1} bytes when encoded. "
        "Keep large data elsewhere and save a reference to it, or raise Limits.state_bytes."
    )
    with pytest.raises(LimitExceeded) as caught:
        short.decode(data)
    assert str(caught.value) == (
        f"The encoded state has {len(data)} bytes, and the limit is {len(data) - 1}. "
        "Restore an earlier checkpoint, or raise Limits.state_bytes if you expect this size."
    )


def test_limits_beyond_the_stack_of_the_process_end_in_one_error() -> None:
    codec = Codec(limits=Limits(depth=10**6))
    value: Any = []
    for _ in range(100_000):
        value = [value]
    for attempt in (lambda: codec.encode(value), lambda: codec.decode(b"[" * 99999 + b"]" * 99999)):
        with pytest.raises(LimitExceeded) as caught:
            attempt()
        assert str(caught.value) == (
            "The state is nested too deep, or is too large, for this process. "
            "Save a flatter or smaller state, or lower the limits to what the process can hold."
        )
        assert_carries_nothing(caught.value)
    while value:
        value = value.pop()


def tenfold() -> Any:
    value: Any = []
    for _ in range(60):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    "make",
    [
        tenfold,
        lambda: ["x" * MIB] * 400,
        lambda: ["é" * MIB] * 400,
        lambda: [b"x" * MIB] * 400,
        lambda: [1 << (8 * MIB)] * 400,
        lambda: [{"x" * MIB: 1}] * 400,
    ],
    ids=["lists", "str", "unicode", "bytes", "int", "keys"],
)
def test_a_small_state_that_would_write_hundreds_of_megabytes_is_refused_early(
    make: Callable[[], Any],
) -> None:
    codec = Codec(limits=Limits(items=50_000))
    state = make()
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded):
            codec.encode(state)
        assert tracemalloc.get_traced_memory()[1] < 100 * MIB
    finally:
        tracemalloc.stop()


SIZE = DEFAULT_LIMITS.state_bytes
HOSTILE: dict[str, Callable[[], bytes]] = {
    "empty lists": lambda: b"[" + b"[]," * (SIZE // 3 - 1) + b"0]",
    "empty strings": lambda: b"[" + b'"",' * (SIZE // 3 - 1) + b"0]",
    "zeros": lambda: b"[" + b"0," * (SIZE // 2 - 2) + b"0]",
    "objects": lambda: b"[" + b'{"":{}},' * (SIZE // 8 - 1) + b"0]",
    "open lists": lambda: b"[" * SIZE,
    "deep lists": lambda: b"[" * 999_999 + b"]" * 999_999,
    "quotes": lambda: b'"' * SIZE,
    "backslashes": lambda: b'"' + b"\\" * (SIZE - 1),
    "escaped quotes": lambda: b'"' + b'\\"' * (SIZE // 2 - 1),
    "bare escaped quotes": lambda: b'\\"' * (SIZE // 2),
    "open strings": lambda: b'"\\"[' * (SIZE // 4),
    "digits": lambda: b"1" * SIZE,
    "spaces": lambda: b" " * SIZE,
    "colliding ints": lambda: (
        b'{"$set":['
        + b",".join(b'{"$int":"%#x"}' % (n * (2**61 - 1)) for n in range(99, 300_000))
        + b"]}"
    ),
    "colliding keys": lambda: (
        b'{"$dict":['
        + b",".join(
            b'[{"$uuid":"%s"},0]' % str(UUID(int=n * (2**61 - 1))).encode() for n in range(99_999)
        )
        + b"]}"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_16_mib_input_is_refused_in_linear_time(name: str) -> None:
    """The square of it would not end."""
    data = HOSTILE[name]()
    assert len(data) <= SIZE
    with pytest.raises((DecodeError, LimitExceeded)):
        CODEC.decode(data)


def test_shared_hashes_are_limited_alike_on_save_and_on_load() -> None:
    """What cannot be loaded in reasonable time is not saved either."""
    values = list(product((-1, -2), repeat=10))  # -1 and -2 share a hash, and so do all of these
    assert CODEC.decode(CODEC.encode(set(values[:1001]))) == set(values[:1001])
    for state in (set(values), frozenset(values), dict.fromkeys(values)):
        with pytest.raises(LimitExceeded) as caught:
            CODEC.encode(state)
        assert str(caught.value) == (
            "Too many items of one set or dict share a hash. "
            "Save a list instead of a set or of the keys of a dict."
        )


@dataclass(frozen=True, slots=True)
class Slotted:
    number: int


def test_long_numbers_that_share_a_hash_are_refused_before_they_are_compared() -> None:
    """To compare an int with a Decimal takes the square of their length: 8 s for 250 kB."""
    number = 16**2000 + 5
    with localcontext(prec=3000):
        near = Decimal(10) ** 2000
        twin = near + (hash(number) - hash(near)) % (2**61 - 1)
    assert hash(twin) == hash(number)
    texts = sorted([f'{{"$decimal":"{twin:f}"}}', f'{{"$int":"{number:#x}"}}'])
    for inner in (
        f"[{','.join(texts)}]",
        "[" + ",".join(f'{{"$tuple":[{t}]}}' for t in texts) + "]",
    ):
        with pytest.raises(LimitExceeded, match="share a hash"):
            CODEC.decode(f'{{"$set":{inner}}}'.encode())
    with pytest.raises(LimitExceeded, match="share a hash"):
        CODEC.encode({(number, 1), (number + 2**61 - 1, 1)})
    with pytest.raises(LimitExceeded, match="share a hash"):
        Codec([Slotted]).encode({Slotted(number), Slotted(number + 2**61 - 1)})
    assert CODEC.decode(CODEC.encode({number, number + 1, Decimal(7)})) == {number, number + 1, 7}


def test_a_path_that_no_system_could_follow_is_refused() -> None:
    with pytest.raises(EncodeError, match="is a path that no system could follow"):
        CODEC.encode(Path("a/" * 17_000))
    with pytest.raises(DecodeError, match="malformed path"):
        CODEC.decode(f'{{"$path":"{"a/" * 17_000}a"}}'.encode())


@pytest.mark.parametrize("length", [1, 64 * 1024 - 3, 64 * 1024 - 2, 64 * 1024 - 1, 200_001])
def test_a_string_counts_before_it_is_parsed(length: int) -> None:
    """Cut out without a trace, it would leave an empty list."""
    with pytest.raises(LimitExceeded, match="The encoded state holds more than 0 values"):
        Codec(limits=Limits(items=0)).decode(b'["' + b"a" * length + b'"]')


@pytest.mark.parametrize("filler", ["[,{", '"', "\\", '\\"', '[\\",', "é[", "]"])
def test_a_string_full_of_structure_is_one_value(filler: str) -> None:
    """Wherever the windows of the scan fall."""
    codec = Codec(limits=Limits(items=4, depth=1))
    for length in (1, 2, 1000, 64 * 1024 - 3, 64 * 1024 - 2, 64 * 1024 - 1, 200_001):
        state = [filler * length, "[", filler]
        assert codec.decode(codec.encode(state)) == state


@pytest.mark.parametrize("limits", [None, 7, {"depth": 3}, Limits])
def test_what_are_no_limits_is_refused(limits: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Codec(limits=limits)
    assert str(refusal.value) == (
        f"Codec takes limits, and was given {type(limits).__name__}. "
        "Write limits=Limits(state_bytes=...), or leave it out."
    )
