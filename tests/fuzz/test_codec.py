"""The codec: no state that comes back as another, and no bytes that do more than be refused."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safepoint import CheckpointError
from safepoint.core.codec import inspect_state
from tests.unit.codec_types import (
    CODEC,
    Colour,
    Invoice,
    Level,
    Note,
    Point,
    Rights,
    Swapped,
    assert_carries_nothing,
    same,
)

# UTC, fixed offsets to the second, and none.
ZONES = (
    st.none()
    | st.just(UTC)
    | st.integers(-86399, 86399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
)
TIMES = st.times(timezones=ZONES).map(lambda value: value.replace(fold=0))
DATETIMES = st.datetimes(timezones=ZONES).map(lambda value: value.replace(fold=0))
WORDS = st.text(max_size=12)
KEYS = WORDS | st.sampled_from(["$dict", "state", ""])
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(2**62, 2**66)),
    *(st.integers(-(2**200), 2**200), st.floats(allow_nan=False, allow_infinity=False), KEYS),
    *(st.binary(max_size=12), st.decimals(allow_nan=False, allow_infinity=False), st.uuids()),
    *(st.dates(), TIMES, DATETIMES, st.timedeltas(), WORDS.map(Path)),
    st.sampled_from([*Colour, *Level, *Rights]),
)
HASHABLE = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(inner, max_size=3)
        | st.builds(Point, x=inner, y=st.integers())
    ),
    max_leaves=5,
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(WORDS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.sets(HASHABLE, max_size=4),
        st.builds(Invoice, number=inner, customer=WORDS, due=inner, lines=inner),
        st.builds(
            Note,
            title=WORDS,
            count=st.integers(),
            due=st.none() | DATETIMES,
            colour=st.none() | st.sampled_from(Colour),
            tags=st.sets(WORDS, max_size=2),
            pair=st.lists(st.integers(), max_size=2).map(tuple),
            extra=st.dictionaries(KEYS, inner, max_size=2),
            child=st.none() | WORDS.map(lambda word: Note(title=word)),
        ),
        st.builds(lambda a, b: Swapped(a=a, b=b), a=st.integers(), b=st.integers()),
    )


STATES = st.recursive(SCALARS, containers, max_leaves=12)


TOKENS = [bytes([byte]) for byte in (*range(0x7E, 0xB0), *range(0xC0, 0xE2))]
TOKENS += [
    b"\x7f\xf8",
    b"\xff\xff",
    b"\x00\x00",
    b"\xc7\x04\x09\x93",
    b"\xa1a",
    b"\x00\x05Point\x82\xa1x",
]


def check(data: bytes) -> None:
    """Whatever the bytes are: our errors alone, or the one way to write a value."""
    try:
        value = CODEC.decode(data)
    except CheckpointError as error:
        assert_carries_nothing(error)
        return
    assert CODEC.encode(value) == data
    inspect_state(data)  # never fails on what a codec wrote


@given(STATES)
def test_a_state_comes_back_the_same(state: Any) -> None:
    data = CODEC.encode(state)
    assert same(CODEC.decode(data), state)
    check(data)


@given(st.binary(max_size=200))
def test_bytes_are_refused_or_are_the_only_way_to_write_a_value(data: bytes) -> None:
    check(data)


@given(st.lists(st.sampled_from(TOKENS) | st.binary(max_size=4), max_size=24).map(b"".join))
def test_heads_of_messagepack_are_refused_or_are_the_only_way_to_write_a_value(
    data: bytes,
) -> None:
    check(data)


@given(STATES, st.data())
def test_a_changed_encoding_is_refused_or_is_the_only_way_to_write_a_value(
    state: Any, data: st.DataObject
) -> None:
    encoded = bytearray(CODEC.encode(state))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded)))
        put = data.draw(st.sampled_from(TOKENS) | st.binary(max_size=2))
        encoded[at : at + data.draw(st.integers(0, 2))] = put
    check(bytes(encoded))


@given(st.lists(HASHABLE, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_equal_sets_have_equal_bytes_and_a_dict_keeps_its_order(
    keys: list[Any], random: Any
) -> None:
    shuffled = [*keys]
    random.shuffle(shuffled)
    assert CODEC.encode(set(shuffled)) == CODEC.encode(set(keys))
    assert [*CODEC.decode(CODEC.encode(dict.fromkeys(shuffled)))] == shuffled
