"""Opening a record: a refusal of the tree or the truth, whatever stands in it."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from safepoint import CheckpointError, Keyring, Limits, SigningKey
from safepoint.core.names import digest_of
from safepoint.core.record import Kind, Opened, Place, open_sealed, seal

KEY = SigningKey.generate()
KEYS = Keyring(KEY)
PLACE = Place("invoices", "", "order-7", 2)
LIMITS = Limits(state_bytes=32 * 1024, depth=16, items=2_000)
CREATED = datetime(2026, 11, 15, tzinfo=UTC)


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
