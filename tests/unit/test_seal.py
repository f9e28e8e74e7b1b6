"""The sealed record: what it binds, and that nothing else opens."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import (
    CheckpointError,
    InvalidId,
    Keyring,
    LimitExceeded,
    Limits,
    RecordMalformed,
    SealBroken,
    SigningKey,
    UnknownKey,
    WrongPlace,
)
from safepoint.seal import Opened, Place, digest_of, open_sealed, seal

KEY = SigningKey(bytes(range(32)))
KEYS = Keyring(KEY)
PLACE = Place("invoices", "order-7", 2)
PAYLOAD = b'{"amount":42}'
CREATED = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
PREVIOUS = digest_of(b"the one before")
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
    signature = base64.b64encode(key.sign(b"safepoint/1\n" + header))
    return b"safepoint/1 %b %b\n%b\n%b" % (key.id.encode(), signature, header, rest)


def test_a_sealed_record_opens_to_what_was_sealed() -> None:
    record, sealed = seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, app="invoice")
    assert open_sealed(record, PLACE, KEYS) == sealed
    assert sealed.payload == PAYLOAD
    assert sealed.header.app == "invoice"


def test_the_record_is_three_lines_of_ascii_that_a_person_can_read() -> None:
    record = make()
    lines = record.decode("ascii").splitlines()
    assert record.endswith(b"\n")
    assert lines[0].startswith(f"safepoint/1 {KEY.id} ")
    assert lines[1] == (
        '{"app":"invoice","created":"2026-11-15T12:00:00.000000+00:00",'
        f'"digest":"{digest_of(PAYLOAD + chr(10).encode())}","previous":"{PREVIOUS}",'
        '"sequence":2,"store":"invoices","thread":"order-7","tools":null}'
    )
    assert lines[2] == PAYLOAD.decode()


def test_the_digest_for_the_next_link_does_not_depend_on_the_key() -> None:
    other = SigningKey.generate()
    by_one = open_sealed(make(), PLACE, KEYS)
    by_other = open_sealed(make(key=other), PLACE, Keyring(other))
    assert by_one.digest == by_other.digest


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_refused(bit: int) -> None:
    record = make()
    for index in range(len(record)):
        changed = bytearray(record)
        changed[index] ^= 1 << bit
        with pytest.raises(CheckpointError):
            open_sealed(bytes(changed), PLACE, KEYS)


def test_every_truncation_is_refused() -> None:
    record = make()
    for length in range(len(record)):
        with pytest.raises(CheckpointError):
            open_sealed(record[:length], PLACE, KEYS)


@pytest.mark.parametrize("extra", [b"\n", b" ", b"\0", b"A", b"0", b"="])
def test_every_inserted_byte_is_refused(extra: bytes) -> None:
    record = make()
    for index in range(len(record) + 1):
        with pytest.raises(CheckpointError):
            open_sealed(record[:index] + extra + record[index:], PLACE, KEYS)


@given(st.binary(max_size=400))
def test_no_bytes_raise_anything_outside_the_tree(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        open_sealed(data, PLACE, KEYS)


@given(st.dictionaries(st.sampled_from(["app", "created", "digest", "x"]), st.text() | st.none()))
def test_a_header_signed_by_the_key_but_malformed_is_refused(change: dict[str, object]) -> None:
    record = resign(make(), change)
    try:
        opened = open_sealed(record, PLACE, KEYS)
    except CheckpointError:
        return
    assert isinstance(opened, Opened)
    assert record == _sign(bytes(opened.header), PAYLOAD + b"\n")


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 2.0},
        {"sequence": True},
        {"sequence": "2"},
        {"previous": None},
        {"previous": "sha256:00"},
        {"digest": None},
        {"digest": 7},
        {"created": "2026-11-15T12:00:00"},
        {"created": "yesterday"},
        {"created": None},
        {"app": "a b"},
        {"app": None},
        {"tools": "none"},
        {"extra": 1},
    ],
)
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


def test_a_signed_header_in_another_spelling_is_refused() -> None:
    line_2 = make().split(b"\n")[1]
    spaced = line_2.replace(b'"sequence":2', b'"sequence": 2')
    with pytest.raises(RecordMalformed):
        open_sealed(_sign(spaced, PAYLOAD + b"\n"), PLACE, KEYS)


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
        else "Open the ledger with the name of its own store, unless somebody moved it here."
    )
    assert str(refusal.value) == (
        f"The record at order-7 #2 of store invoices is the one of {named}. {do}"
    )


def test_a_record_by_another_key_is_refused() -> None:
    other = SigningKey(bytes(32))
    with pytest.raises(UnknownKey) as refusal:
        open_sealed(make(key=other), PLACE, KEYS)
    assert str(refusal.value) == (
        f"order-7 #2 cannot be verified. It names key '{other.id}', which is not on this keyring. "
        "If that key is one of yours, add it with Keyring(..., verify=[key]); "
        "if not, treat the record as forged."
    )


def test_a_record_that_borrows_a_trusted_key_id_is_refused() -> None:
    forged = make(key=SigningKey(bytes(32)))
    forged = forged.replace(SigningKey(bytes(32)).id.encode(), KEY.id.encode())
    with pytest.raises(SealBroken) as refusal:
        open_sealed(forged, PLACE, KEYS)
    assert str(refusal.value) == (
        f"order-7 #2 was changed after it was sealed, or was never sealed. {DISTRUST}"
    )


def test_an_edited_state_is_refused() -> None:
    with pytest.raises(SealBroken) as refusal:
        open_sealed(make().replace(b'"amount":42', b'"amount":43'), PLACE, KEYS)
    what = "The state of order-7 #2 is not the one that was sealed."
    assert str(refusal.value) == f"{what} {DISTRUST}"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"", f"order-7 #2 is empty. {DISTRUST}"),
        (b'{"amount":42}\n', f"order-7 #2 is not a sealed record. {DISTRUST}"),
        (
            b"safepoint/2 " + b"0" * 16,
            (
                "order-7 #2 says that it is of format safepoint/2, not safepoint/1. "
                "Nothing was decoded. If a newer safepoint wrote it, upgrade here too."
            ),
        ),
    ],
)
def test_what_is_not_a_sealed_record_is_told_apart(record: bytes, message: str) -> None:
    with pytest.raises(RecordMalformed) as refusal:
        open_sealed(record, PLACE, KEYS)
    assert str(refusal.value) == message


def test_a_header_without_an_end_is_refused() -> None:
    line_1 = make().split(b"\n")[0]
    with pytest.raises(RecordMalformed, match="is cut short: its second line does not end"):
        open_sealed(line_1 + b"\n" + b"x" * 100_000, PLACE, KEYS)


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
    assert opened.header.created == "2026-11-15T12:00:00.000000+00:00"


@pytest.mark.parametrize("app", ["a b", "a\nb", "x" * 129, "é"])
def test_an_app_name_outside_the_grammar_is_refused_on_writing(app: str) -> None:
    with pytest.raises(InvalidId, match="is not an app name"):
        seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, app=app)


@pytest.mark.parametrize("tools", [5, "", "sha256:", b"x"])
def test_a_tools_digest_outside_the_grammar_is_refused_on_writing(tools: Any) -> None:
    with pytest.raises(InvalidId, match="is not a digest"):
        seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, tools=tools)


def test_the_first_checkpoint_has_no_previous_one() -> None:
    with pytest.raises(InvalidId, match="The first checkpoint has no previous one"):
        seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=None)
