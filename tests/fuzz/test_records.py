"""Opening a record and decoding a state: a refusal of the tree or the truth, in bounded memory."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ormsgpack import OPT_PASSTHROUGH_BIG_INT, packb

from safepoint import CheckpointError, Codec, Keyring, Limits, SigningKey
from safepoint.core.names import digest_of
from safepoint.core.record import Kind, Opened, Place, open_sealed, seal
from tests.unit.codec_types import TYPES

KEY = SigningKey.generate()
KEYS = Keyring(KEY)
PLACE = Place("invoices", "", "order-7", 2)
LIMITS = Limits(state_bytes=32 * 1024, depth=16, items=2_000)
CREATED = datetime(2026, 11, 15, tzinfo=UTC)
# What Python may need for a state of that size: it decodes to objects, each larger than its text.
MEMORY = 100 * LIMITS.record_bytes


def sealed(kind: Kind, payload: bytes = b'{"amount":42}') -> tuple[bytes, Opened]:
    previous = digest_of(b"the one before")
    return seal(payload, PLACE, KEY, created=CREATED, kind=kind, previous=previous)


GENUINE = [sealed(kind) for kind in ("state", "base", "deleted")]
PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"\n", b" ", b"\0", b"=", b"null", b'"', b"{}", b"safepoint/1 ", b"\xff"]),
    st.sampled_from(GENUINE).flatmap(
        lambda given: st.sampled_from(given[0].splitlines(keepends=True))
    ),
)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[bytes, Opened]:
    """A genuine record with one to four pieces cut out, put in or replaced."""
    record, opened = draw(st.sampled_from(GENUINE))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(record)))
        end = draw(st.integers(start, min(len(record), start + draw(st.integers(0, 60)))))
        record = record[:start] + draw(PIECES) + record[end:]
    return record, opened


@given(mutated(), st.booleans(), st.booleans())
def test_a_changed_record_is_refused_or_is_the_same(
    given_record: tuple[bytes, Opened], base: bool, linked: bool
) -> None:
    record, genuine = given_record
    digest = genuine.digest if linked else None
    try:
        opened = open_sealed(record, PLACE, KEYS, base=base, digest=digest, limits=LIMITS)
    except CheckpointError:
        return
    # A link vouches for the header and the state; the signature is not looked at then.
    if linked:
        assert (opened.header, opened.payload) == (genuine.header, genuine.payload)
    else:
        assert record in [whole for whole, _ in GENUINE]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["$Invoice", "1e999", ""]),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(["$Invoice", "$dict", "$set", "$tuple", "$"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)
NESTED = st.builds(
    lambda opening, count: opening * count,
    st.sampled_from([b"\x91", b"\x81\xa1a", b"\x92\xc0", b"\xc7\xff\x09\x91", b"\xdc\x00\x01"]),
    st.integers(0, 5_000),
)
STATES = st.one_of(
    st.binary(max_size=2_000),
    JSON.map(lambda value: packb(value, default=str, option=OPT_PASSTHROUGH_BIG_INT)),
    NESTED,
    st.integers(1, 40_000).map(lambda count: b"\xdd" + count.to_bytes(4) + b"\x80" * count),
    st.integers(1, 60_000).map(lambda size: b"\xc8" + size.to_bytes(2) + b"\x01" + b"9" * size),
)


@given(STATES)
def test_a_holder_of_the_key_can_write_nothing_that_breaks_a_reader(payload: bytes) -> None:
    record, _ = sealed("state", payload)
    codec = Codec(TYPES, limits=LIMITS)
    tracemalloc.start()
    try:
        opened = open_sealed(record, PLACE, KEYS, limits=LIMITS)
        state: Any = codec.decode(opened.payload)
    except CheckpointError:
        state = None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MEMORY
    if state is not None:
        assert codec.encode(state) == payload, "one state has one spelling"
