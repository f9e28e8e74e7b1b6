"""The sealed record, where the vectors do not reach: each byte, what is written, and the words."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from safepoint import CheckpointError, Keyring, LimitExceeded, Limits, SealBroken, SigningKey
from safepoint.errors import (
    InvalidId,
    KeyRevoked,
    RecordMalformed,
    UnknownKey,
    WrongPlace,
)
from safepoint.keys import Revoked
from safepoint.names import Head, digest_of
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
DISTRUST = (
    "Nothing was decoded. Do not use it: find out who can write the store, "
    "then restore a copy that verifies."
)


def make(place: Place = PLACE, key: SigningKey = KEY, payload: bytes = PAYLOAD) -> bytes:
    previous = PREVIOUS if place.sequence > 1 else None
    return seal(payload, place, key, created=CREATED, previous=previous, app="invoice")[0]


def resign(record: bytes, change: dict[str, object], key: SigningKey = KEY) -> bytes:
    """Load, modify, re-sign: what a buggy or malicious holder of the key could write."""
    _, line_2, rest = record.split(b"\n", 2)
    fields = {**json.loads(line_2), **change}
    header = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return _sign(header, rest, key)


def _sign(header: bytes, rest: bytes, key: SigningKey = KEY) -> bytes:
    signature = base64.b64encode(key.sign(b"safepoint/1 record\n" + header))
    return b"safepoint/1 %b %b\n%b\n%b" % (key.id.encode(), signature, header, rest)


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


class Frozen:
    """The heads as they were when a key was revoked."""

    def __init__(self, head: Head | None) -> None:
        self.head = head

    def read(self, store: str, thread: str) -> Head | None:
        return self.head if (store, thread) == ("invoices", "order-7") else None


WRONG_FIELDS: list[dict[str, Any]] = [
    *({"sequence": wrong} for wrong in (True, "2", 10_000_000_000)),
    *({"previous": wrong} for wrong in (None, "sha256:00")),
    *({"digest": wrong} for wrong in (None, 7)),
    *({"created": wrong} for wrong in (None, "yesterday", "2026-11-15T12:00:00")),
    *({"kind": wrong} for wrong in (None, "State")),
    *({"app": wrong} for wrong in (None, "a b")),
    {"tools": "none"},
]


@pytest.mark.parametrize("change", WRONG_FIELDS)
def test_a_signed_header_with_a_wrong_field_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RecordMalformed) as refusal:
        open_sealed(resign(make(), change), PLACE, KEYS)
    assert refusal.value.what == "order-7 #2 has a header that this release did not write."


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


OTHER_STATE = "The state of order-7 #2 is not the one that was sealed."
STRANGER = SigningKey(bytes(32))
BASE = seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, kind="base")[0]


def revoked(head: Head | None) -> Keyring:
    return Keyring(STRANGER, revoked=[Revoked(KEY, until=Frozen(head))])


def counts(where: str) -> str:
    return f"order-7 #2 is sealed by key {KEY.id}, which was revoked and does not count {where}."


REFUSED: list[tuple[bytes, type[CheckpointError], str, dict[str, Any]]] = [
    (make(key=STRANGER), UnknownKey, f"It names key '{STRANGER.id}', which is not on this", {}),
    (
        make(key=STRANGER).replace(STRANGER.id.encode(), KEY.id.encode()),
        SealBroken,
        f"was changed after it was sealed, or was never sealed. {DISTRUST}",
        {},
    ),
    (make().replace(b"42", b"43"), SealBroken, f"{OTHER_STATE} {DISTRUST}", {}),
    (BASE.replace(b"42", b"43"), SealBroken, "The state of order-7 base #2 is", {"base": True}),
    (make(), SealBroken, "not the one that #3 was sealed upon.", {"digest": digest_of(b"else")}),
    (make(), KeyRevoked, counts("here"), {"keys": revoked(None)}),
    (make(), KeyRevoked, counts("after #1"), {"keys": revoked(Head(1, PREVIOUS))}),
    (make(), KeyRevoked, counts("after #2"), {"keys": revoked(Head(2, PREVIOUS))}),
    (b"", RecordMalformed, f"order-7 #2 is empty. {DISTRUST}", {}),
    (PAYLOAD, RecordMalformed, f"is not a sealed record. {DISTRUST} If it is yours, from", {}),
    (b"safepoint/2 " + b"0" * 16, RecordMalformed, "of format safepoint/2, not safepoint/1.", {}),
]


@pytest.mark.parametrize(("record", "error", "told", "options"), REFUSED)
def test_a_refusal_says_what_to_do(
    record: bytes, error: type[CheckpointError], told: str, options: dict[str, Any]
) -> None:
    with pytest.raises(error) as refusal:
        open_sealed(record, PLACE, **{"keys": KEYS, **options})
    assert told in str(refusal.value)


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
    *({"tools": tools} for tools in (5, "", "sha256:", b"x")),
    {"previous": None},
    {"created": CREATED.replace(tzinfo=None)},
    {"kind": "other"},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_outside_the_grammar_is_not_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidId, match=r"is not an app name|is outside its grammar"):
        seal(PAYLOAD, PLACE, KEY, **{"created": CREATED, "previous": PREVIOUS, **wrong})
