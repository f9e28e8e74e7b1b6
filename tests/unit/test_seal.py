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
    ConfigurationError,
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

MOVE_IN = "If it is yours, from before there were seals, see safepoint.migrate."


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
    "header",
    [b"", b"[]", b"null", b"7", b'{"app":"x"}', b"{" * 900, b'{"a":1,"a":1}', b"\xff\xfe", b"NaN"],
)
def test_a_signed_header_that_is_not_a_header_is_refused(header: bytes) -> None:
    with pytest.raises(RecordMalformed):
        open_sealed(_sign(header, PAYLOAD + b"\n"), PLACE, KEYS)


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
    do = (
        "Somebody moved it: restore the record that belongs here, and find out who can write."
        if place.store == PLACE.store
        else "Somebody may have moved it here. Only if you mistyped the name of the store, open the"
        " ledger with the right one."
    )
    assert str(refusal.value) == (
        f"The record at order-7 #2 of store invoices is the one of {named}. {do}"
    )


STRANGER = SigningKey(bytes(32))
BASE = seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, kind="base")[0]


def revoked(head: Head | None) -> Keyring:
    return Keyring(STRANGER, revoked=[Revoked(KEY, until=Frozen(head))])


def counts(where: str) -> str:
    return f"order-7 #2 is sealed by key {KEY.id}, which was revoked and does not count {where}."


@pytest.mark.parametrize(
    ("record", "error", "told", "options"),
    [
        (
            make(key=STRANGER),
            UnknownKey,
            (
                f"order-7 #2 cannot be verified. It names key '{STRANGER.id}', which is not on this"
                " keyring. If that key is one of yours, add it with Keyring(..., verify=[key]);"
                " if not, treat the record as forged."
            ),
            {},
        ),
        (
            make(key=STRANGER).replace(STRANGER.id.encode(), KEY.id.encode()),
            SealBroken,
            f"order-7 #2 was changed after it was sealed, or was never sealed. {DISTRUST}",
            {},
        ),
        (
            make().replace(b"42", b"43"),
            SealBroken,
            f"The state of order-7 #2 is not the one that was sealed. {DISTRUST}",
            {},
        ),
        (
            BASE.replace(b"42", b"43"),
            SealBroken,
            f"The state of order-7 base #2 is not the one that was sealed. {DISTRUST}",
            {"base": True},
        ),
        (
            make(),
            SealBroken,
            "order-7 #2 is not the one that #3 was sealed upon.",
            {"digest": digest_of(b"another")},
        ),
        (make(), KeyRevoked, counts("here"), {"keys": revoked(None)}),
        (make(), KeyRevoked, counts("after #1"), {"keys": revoked(Head(1, PREVIOUS))}),
        (make(), KeyRevoked, counts("after #2"), {"keys": revoked(Head(2, PREVIOUS))}),
        (b"", RecordMalformed, f"order-7 #2 is empty. {DISTRUST}", {}),
        (PAYLOAD, RecordMalformed, f"order-7 #2 is not a sealed record. {DISTRUST} {MOVE_IN}", {}),
        (
            b"safepoint/2 " + b"0" * 16,
            RecordMalformed,
            (
                "order-7 #2 says that it is of format safepoint/2, not safepoint/1. Nothing was"
                " decoded. If a newer safepoint wrote it, upgrade here too."
            ),
            {},
        ),
    ],
)
def test_a_refusal_says_what_to_do(
    record: bytes, error: type[CheckpointError], told: str, options: dict[str, Any]
) -> None:
    with pytest.raises(error) as refusal:
        open_sealed(record, PLACE, **{"keys": KEYS, **options})
    assert str(refusal.value).startswith(told)


def test_a_record_over_the_limit_is_refused_before_anything_else() -> None:
    limits = Limits(state_bytes=100)
    with pytest.raises(LimitExceeded) as refusal:
        open_sealed(b"x" * 5000, PLACE, KEYS, limits=limits)
    assert str(refusal.value) == (
        "order-7 #2 is 5000 bytes, over the limit of 4196. "
        "If you meant to store that much, raise Limits.state_bytes for readers and writers."
    )


def test_times_are_kept_in_utc() -> None:
    berlin = datetime(2026, 11, 15, 13, 0, tzinfo=timezone(timedelta(hours=1)))
    _, opened = seal(PAYLOAD, PLACE, KEY, created=berlin, previous=PREVIOUS)
    assert opened.header.created == "2026-11-15T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *(({"app": app}, "is not an app name") for app in ("a b", "a\nb", "x" * 129, "é")),
        *(({"tools": tools}, "is not a digest") for tools in (5, "", "sha256:", b"x")),
        ({"previous": None}, "The first checkpoint has no previous one"),
        ({"created": CREATED.replace(tzinfo=None)}, "no time zone. Give an aware datetime"),
        ({"kind": "other"}, "'other' is no kind of record. Write records with a Ledger"),
    ],
)
def test_what_is_outside_the_grammar_is_not_written(options: dict[str, Any], told: str) -> None:
    with pytest.raises((InvalidId, ConfigurationError), match=told):
        seal(PAYLOAD, PLACE, KEY, **{"created": CREATED, "previous": PREVIOUS, **options})
