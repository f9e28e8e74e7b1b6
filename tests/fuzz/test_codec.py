"""The codec against json and an oracle of its own: no state and no text on which they differ."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safepoint import CheckpointError
from tests.unit.codec_types import CODEC, same
from tests.unit.test_codec import STATES, TOKENS

SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats(-1e9, 1e9)
PLAIN = st.dictionaries(st.text(), SCALARS | st.lists(st.integers()), min_size=9)
"""Enough of it for the C encoder, which takes plain data as a whole."""


@given(STATES | PLAIN)
def test_a_state_is_what_json_writes_and_comes_back_the_same(state: Any) -> None:
    data = CODEC.encode(state)
    assert json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode() == data
    assert same(CODEC.decode(data), state)


@given(st.lists(st.sampled_from(TOKENS), max_size=16).map("".join))
def test_a_text_is_refused_or_is_json_in_its_only_spelling(text: str) -> None:
    try:
        value = CODEC.decode(text.encode())
    except CheckpointError:
        return
    json.loads(text)
    assert CODEC.encode(value) == text.encode()
