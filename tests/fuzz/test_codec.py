"""The codec: no state that comes back as another, and no bytes that do more than be refused."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safepoint import CheckpointError
from safepoint.core.codec import inspect_state
from tests.unit.codec_types import CODEC, same
from tests.unit.test_codec import STATES, TOKENS

SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats(-1e9, 1e9)
PLAIN = st.dictionaries(st.text(), SCALARS | st.lists(st.integers()), min_size=9)


def check(data: bytes) -> None:
    """Whatever the bytes are: our errors alone, or the one way to write a value."""
    try:
        value = CODEC.decode(data)
    except CheckpointError:
        return
    assert CODEC.encode(value) == data
    inspect_state(data)


@given(STATES | PLAIN)
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
