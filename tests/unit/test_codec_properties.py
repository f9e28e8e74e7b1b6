"""The codec, against values and bytes that nobody thought of."""

from __future__ import annotations

import json
from datetime import UTC, timedelta, timezone
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safepoint.errors import CheckpointError
from tests.unit.codec_types import CODEC, Colour, Invoice, Level, Note, Point, Rights, Swapped, same

QUICK = settings(
    max_examples=300,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
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
KEYS = WORDS | WORDS.map(lambda word: "$" + word) | st.sampled_from(["$dict", "$Invoice", "$"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(2**62, 2**66),
    st.integers(-(2**200), 2**200),
    st.floats(allow_nan=False, allow_infinity=False),
    KEYS,
    st.binary(max_size=12),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.uuids(),
    st.dates(),
    TIMES,
    DATETIMES,
    st.timedeltas(),
    WORDS.map(Path),
    WORDS.map(PurePosixPath),
    st.from_regex(r"([a-z]:)?[\\/]?[a-z]{0,3}([\\/][a-z.]{1,3}){0,3}", fullmatch=True).map(
        PureWindowsPath
    ),
    st.sampled_from(list(Colour) + list(Level)),
    st.integers(0, 3).map(Rights),
)
HASHABLE = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(Point, x=inner, y=st.integers()),
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


@QUICK
@given(STATES)
def test_every_state_comes_back_equal_and_of_the_same_types(state: Any) -> None:
    """And nothing is in the text that json would not write, sorted and without spaces."""
    data = CODEC.encode(state)
    assert json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode() == data
    assert same(CODEC.decode(data), state)


@QUICK
@given(st.dictionaries(HASHABLE, SCALARS, max_size=6), st.randoms(use_true_random=False))
def test_equal_dicts_have_equal_bytes_in_whatever_order(state: dict[Any, Any], random: Any) -> None:
    items = list(state.items())
    random.shuffle(items)
    assert CODEC.encode(dict(items)) == CODEC.encode(state)
    keys = list(state)
    random.shuffle(keys)
    assert CODEC.encode(set(keys)) == CODEC.encode(set(state))


def accepts_nothing_but_its_own(data: bytes) -> None:
    """Any bytes are either refused by an error of the tree, or are exactly what encode writes."""
    refusal = None
    try:
        state = CODEC.decode(data)
    except CheckpointError as error:
        refusal = error
    if refusal is None:
        assert CODEC.encode(state) == data
    else:
        assert refusal.__context__ is None
        assert str(refusal).isprintable()


TOKENS = [*'[]{}",:\\$0 \n', *("[]", "{}", '""', '\\"', "\\u", "\\ud800", "null", "true", "NaN")]
TOKENS += ["1e999", "-0", "99999999999999999999", '{"$dict":[[', '{"$tuple":', '{"$Point":{"x":']


@QUICK
@given(STATES, st.data())
def test_a_damaged_encoding_is_refused_or_canonical(state: Any, draw: st.DataObject) -> None:
    """One to three edits: a byte flipped, something put in, something cut out or doubled."""
    data = bytearray(CODEC.encode(state))
    for _ in range(draw.draw(st.integers(1, 3))):
        start = draw.draw(st.integers(0, len(data)))
        end = min(len(data), start + draw.draw(st.integers(0, 8)))
        match draw.draw(st.sampled_from(["flip", "insert", "delete", "double"])):
            case "flip" if start < len(data):
                data[start] ^= 1 << draw.draw(st.integers(0, 7))
            case "insert":
                data[start:start] = draw.draw(
                    st.sampled_from(TOKENS).map(str.encode) | st.binary(max_size=3)
                )
            case "delete":
                del data[start:end]
            case _:
                data[start:start] = data[start:end]
    accepts_nothing_but_its_own(bytes(data))
