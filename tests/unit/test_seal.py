"""The sealed record: what it binds, and that nothing else opens."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import (
    CheckpointError,
    InvalidId,
    KeyRevoked,
    Keyring,
    LimitExceeded,
    Limits,
    RecordMalformed,
    SealBroken,
    SigningKey,
    UnknownKey,
    WrongPlace,
)
from safepoint.keys import Revoked
from safepoint.names import Head, digest_of
from safepoint.record import Kind, Opened, Place, open_sealed, seal

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
        '{"app":"invoice","created":"2026-11-15T12:00:00.000000Z",'
        f'"digest":"{digest_of(PAYLOAD + chr(10).encode())}","kind":"state",'
        f'"previous":"{PREVIOUS}",'
        '"sequence":2,"store":"invoices","thread":"order-7","tools":null}'
    )
    assert lines[2] == PAYLOAD.decode()


def test_the_digest_for_the_next_link_does_not_depend_on_the_key() -> None:
    other = SigningKey.generate()
    by_one = open_sealed(make(), PLACE, KEYS)
    by_other = open_sealed(make(key=other), PLACE, Keyring(other))
    assert by_one.digest == by_other.digest


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


@pytest.mark.parametrize(("key", "other"), [(KEY, PAIR), (PAIR, KEY)])
def test_a_signature_of_the_other_algorithm_is_refused(key: SigningKey, other: SigningKey) -> None:
    """The key says which algorithm counts, whatever the record offers."""
    signature = make(key=other).split(b"\n")[0].split(b" ")[2]
    line_1, rest = make(key=key).split(b"\n", 1)
    forged = b" ".join([*line_1.split(b" ")[:2], signature]) + b"\n" + rest
    with pytest.raises(SealBroken):
        open_sealed(forged, PLACE, Keyring(key, verify=[other]))


def test_a_link_to_another_record_is_refused() -> None:
    with pytest.raises(SealBroken) as refusal:
        open_sealed(make(), PLACE, KEYS, digest=digest_of(b"another"))
    assert refusal.value.what == "order-7 #2 is not the one that #3 was sealed upon."


@pytest.mark.parametrize("kind", ["state", "deleted"])
def test_a_record_in_the_place_of_a_base_is_refused(kind: Kind) -> None:
    record, _ = seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, kind=kind)
    open_sealed(record, PLACE, KEYS)
    with pytest.raises(WrongPlace, match=f"order-7 #2 is of the kind {kind}, which does not"):
        open_sealed(record, PLACE, KEYS, base=True)


def test_a_base_in_the_place_of_a_record_is_refused() -> None:
    record, _ = seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, kind="base")
    open_sealed(record, PLACE, KEYS, base=True)
    with pytest.raises(WrongPlace, match="order-7 #2 is of the kind base"):
        open_sealed(record, PLACE, KEYS)


class Frozen:
    """The heads as they were when a key was revoked."""

    def __init__(self, head: Head | None) -> None:
        self.head = head

    def read(self, store: str, thread: str) -> Head | None:
        return self.head if (store, thread) == ("invoices", "order-7") else None


@pytest.mark.parametrize(
    ("until", "last"),
    [
        (None, "here"),
        (Head(1, PREVIOUS), "after #1"),
        (Head(2, digest_of(b"another #2")), "after #2"),
    ],
)
def test_a_record_of_a_revoked_key_is_refused_from_its_point_on(
    until: Head | None, last: str
) -> None:
    keys = Keyring(SigningKey.generate(), revoked=[Revoked(KEY, until=Frozen(until))])
    with pytest.raises(KeyRevoked) as refusal:
        open_sealed(make(), PLACE, keys)
    assert refusal.value.what == (
        f"order-7 #2 is sealed by key {KEY.id}, which was revoked and does not count {last}."
    )


@pytest.mark.parametrize("until", [Head(2, LINK), Head(3, digest_of(b"a later one"))])
def test_a_record_before_the_point_of_revocation_still_counts(until: Head) -> None:
    keys = Keyring(SigningKey.generate(), revoked=[Revoked(KEY, until=Frozen(until))])
    assert open_sealed(make(), PLACE, keys).key == KEY.id


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
        {"created": "2026-13-15T12:00:00.000000Z"},
        {"created": "2026-11-15T25:00:00.000000Z"},
        {"created": "0000-11-15T12:00:00.000000Z"},
        {"created": "2026-11-15T12:00:00.000000+00:00"},
        {"created": "yesterday"},
        {"kind": "State"},
        {"kind": None},
        {"sequence": 10_000_000_000},
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
        else "Somebody may have moved it here. Only if you mistyped the name of the store, open the"
        " ledger with the right one."
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
        (b'{"amount":42}\n', f"order-7 #2 is not a sealed record. {DISTRUST} {MOVE_IN}"),
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
    assert opened.header.created == "2026-11-15T12:00:00.000000Z"


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


def test_a_damaged_base_is_not_taken_for_the_record_of_its_number() -> None:
    record, _ = seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, kind="base")
    with pytest.raises(SealBroken, match="The state of order-7 base #2 is not the one"):
        open_sealed(record.replace(b"42", b"43"), PLACE, KEYS, base=True)
