"""The codec against the one that it replaced: the same bytes, values and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safepoint.codec import Codec
from safepoint.errors import CheckpointError, LimitExceeded
from safepoint.names import Limits
from tests.fuzz import old_codec
from tests.fuzz.test_records import STATES as HOSTILE
from tests.unit.codec_types import (
    CODEC,
    Appender,
    Box,
    Colour,
    Counted,
    Doubler,
    Invoice,
    Limited,
    Note,
    Rights,
    Shouting,
    same,
)
from tests.unit.test_codec import (
    HASHABLE,
    KEYS,
    ODD_TYPES,
    STATES,
    TOKENS,
    Text,
    containers,
    negative,
    stranger,
    with_attribute,
    without_a_field,
)

LIMITS = st.sampled_from([Limits(), Limits(), Limits(depth=3), Limits(items=12), Limits(300, 64)])
ODD = st.one_of(
    st.floats(),
    st.text(st.characters(), max_size=4),
    st.text(st.characters(categories=["Cs", "Lo", "So"]), max_size=4),
    st.sampled_from([1j, Text("a"), bytearray(b"a"), int, float("nan"), "\ud83d\ude00"]),
    st.builds(Doubler, st.integers(-1, 1)),
    st.builds(Appender, st.lists(st.text(max_size=2), max_size=1)),
    st.builds(negative),
    st.builds(without_a_field),
    st.builds(lambda: with_attribute(Invoice(1, "a"), "x")),
    st.builds(lambda: stranger(Rights, _value_=64)),
    st.builds(lambda: stranger(Rights, _value_=True)),
    st.builds(lambda: stranger(Colour, _name_="RED")),
    st.builds(lambda word: Shouting.model_construct(text=word), st.text(max_size=2)),
    st.builds(lambda n: Limited.model_construct(scores={"a": n}), st.integers() | st.text()),
    st.builds(lambda n: Note.model_construct(title="x", ratio=n), st.integers(0, 1) | st.floats()),
)


def more(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        containers(inner),
        st.builds(Box, inner),
        st.builds(Counted, inner),
        st.builds(Invoice, inner, inner, st.sampled_from(Colour), st.floats() | st.datetimes()),
        st.builds(lambda pair: {pair[0]: pair[1], "$x": 1}, st.tuples(HASHABLE, inner)),
        st.builds(lambda value: {Text("a"): value}, inner),
        st.dictionaries(KEYS | st.just("\ud800"), inner, max_size=3),
    )


ANY = st.recursive(STATES | ODD, more, max_leaves=8)


def outcome(act: Callable[[Any], Any], value: Any) -> tuple[type[CheckpointError] | None, Any]:
    try:
        return None, act(value)
    except CheckpointError as error:
        return type(error), error.what


def alike(new: Any, old: Any, limits: Limits) -> bool:
    """The same refusal, or that of a limit for what has something else wrong with it, too."""
    tight = limits != Limits() and new and old
    return new is old or (tight and LimitExceeded in (new, old))


@given(ANY, LIMITS)
def test_the_old_and_the_new_codec_write_the_same(state: Any, limits: Limits) -> None:
    new = outcome(Codec(ODD_TYPES.types, limits=limits).encode, state)
    old = outcome(old_codec.Codec(ODD_TYPES.types, limits=limits).encode, state)
    assert alike(new[0], old[0], limits), (new, old)
    assert new[0] or new == old


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Canonical bytes with up to three pieces cut out, put in or moved."""
    data = CODEC.encode(draw(STATES))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + draw(st.integers(0, 30)))))
        other = draw(st.integers(0, len(data)))
        piece = draw(
            st.sampled_from(TOKENS).map(str.encode)
            | st.just(data[other : other + draw(st.integers(0, 30))])
            | st.binary(max_size=2)
        )
        data = data[:start] + piece + data[end:]
    return data


@given(mutated() | HOSTILE | st.lists(st.sampled_from(TOKENS)).map("".join).map(str.encode), LIMITS)
def test_the_old_and_the_new_codec_read_the_same(data: bytes, limits: Limits) -> None:
    new = outcome(Codec(CODEC.types, limits=limits).decode, data)
    old = outcome(old_codec.Codec(CODEC.types, limits=limits).decode, data)
    assert alike(new[0], old[0], limits), (new, old)
    assert new[0] or same(new[1], old[1])
