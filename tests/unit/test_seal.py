"""The sealed record, where the vectors do not reach: each byte, what is written, and the words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from safepoint import CheckpointError, Keyring, LimitExceeded, Limits, SigningKey
from safepoint.errors import (
    InvalidId,
    WrongPlace,
)
from safepoint.names import digest_of
from safepoint.record import Opened, Place, open_sealed, seal

KEY = SigningKey(bytes(range(32)))
PAIR = SigningKey.generate("ed25519")
KEYS = Keyring(KEY)
Reader = Callable[[bytes], Opened]
PLACE = Place("invoices", "order-7", 2)
PAYLOAD = b'{"amount":42}'
CREATED = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
PREVIOUS = digest_of(b"the one before")
LINK = open_sealed(
    seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, app="invoice")[0], PLACE, KEYS
).digest


def make(place: Place = PLACE, key: SigningKey = KEY, payload: bytes = PAYLOAD) -> bytes:
    previous = PREVIOUS if place.sequence > 1 else None
    return seal(payload, place, key, created=CREATED, previous=previous, app="invoice")[0]


def read_by_seal(key: SigningKey) -> Reader:
    keys = Keyring(key)
    return lambda record: open_sealed(record, PLACE, keys)


def read_by_link(record: bytes) -> Opened:
    """As `verify` reads what is older than the anchor: by the digest that the next one names."""
    return open_sealed(record, PLACE, KEYS, digest=LINK)


def is_refused(reader: Reader, changed: bytes) -> bool:
    try:
        reader(changed)
    except CheckpointError:
        return True
    return False


@pytest.mark.parametrize("key", [KEY, PAIR], ids=["hmac-sha256", "ed25519"])
def test_every_changed_byte_is_refused(key: SigningKey) -> None:
    """Each byte, to each of the 255 other values with a MAC, and by each bit with a signature."""
    record, reader = make(key=key), read_by_seal(key)
    changes = range(1, 256) if key is KEY else [1 << bit for bit in range(8)]
    through = [
        (index, change)
        for index in range(len(record))
        for change in changes
        if not is_refused(
            reader, record[:index] + bytes([record[index] ^ change]) + record[index + 1 :]
        )
    ]
    assert through == []


@pytest.mark.parametrize("key", [KEY, PAIR], ids=["hmac-sha256", "ed25519"])
def test_every_truncation_is_refused(key: SigningKey) -> None:
    record, reader = make(key=key), read_by_seal(key)
    assert [n for n in range(len(record)) if not is_refused(reader, record[:n])] == []
    assert [n for n in range(1, len(record)) if not is_refused(reader, record[n:])] == []


@pytest.mark.parametrize("key", [KEY, PAIR], ids=["hmac-sha256", "ed25519"])
def test_every_inserted_byte_is_refused(key: SigningKey) -> None:
    """At each place, each of the 256 values with a MAC, and some with a signature."""
    record, reader = make(key=key), read_by_seal(key)
    values = range(256) if key is KEY else b"\n \0A0="
    through = [
        (index, value)
        for index in range(len(record) + 1)
        for value in values
        if not is_refused(reader, record[:index] + bytes([value]) + record[index:])
    ]
    assert through == []


def test_every_flipped_bit_outside_the_signature_is_refused_by_a_link() -> None:
    """The digest vouches for header and state; which signature stands above them, it cannot say."""
    record = make()
    signed = range(len("safepoint/1 0123456789abcdef "), record.index(b"\n"))
    through = {
        index
        for index in range(len(record))
        for bit in range(8)
        if not is_refused(
            read_by_link, record[:index] + bytes([record[index] ^ (1 << bit)]) + record[index + 1 :]
        )
    }
    assert through <= set(signed)


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (Place("invoices", "order-8", 2), "order-8 #2 of store invoices"),
        (Place("invoices", "order-7", 3), "order-7 #3 of store invoices"),
        (Place("refunds", "order-7", 2), "order-7 #2 of store refunds"),
    ],
)
def test_a_genuine_record_of_another_place_is_refused(place: Place, named: str) -> None:
    with pytest.raises(WrongPlace) as refusal:
        open_sealed(make(place), PLACE, KEYS)
    assert f"The record at order-7 #2 of store invoices is the one of {named}." in str(
        refusal.value
    )
    moved = "Somebody moved it" if place.store == PLACE.store else "Only if you mistyped the name"
    assert moved in refusal.value.do


def test_a_record_over_the_limit_is_refused_before_anything_else() -> None:
    limits = Limits(state_bytes=100)
    with pytest.raises(LimitExceeded, match="5000 bytes, over the limit of 4196"):
        open_sealed(b"x" * 5000, PLACE, KEYS, limits=limits)


def test_times_are_kept_in_utc() -> None:
    berlin = datetime(2026, 11, 15, 13, 0, tzinfo=timezone(timedelta(hours=1)))
    _, opened = seal(PAYLOAD, PLACE, KEY, created=berlin, previous=PREVIOUS)
    assert opened.header.created == "2026-11-15T12:00:00.000000Z"


WRONG: list[dict[str, Any]] = [
    *({"app": app} for app in ("a b", "a\nb", "x" * 129, "é")),
    *({"tools": tools} for tools in (5, "", "sha256:")),
    {"previous": None},
    {"created": CREATED.replace(tzinfo=None)},
    {"kind": "other"},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_outside_the_grammar_is_not_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidId, match=r"is not an app name|is outside its grammar"):
        seal(PAYLOAD, PLACE, KEY, **{"created": CREATED, "previous": PREVIOUS, **wrong})
