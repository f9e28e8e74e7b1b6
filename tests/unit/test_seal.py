"""The sealed record, where the vectors do not reach: each byte, what is written, and the words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from safepoint import CheckpointError, Keyring, SigningKey
from safepoint.core.errors import InvalidId
from safepoint.core.names import digest_of
from safepoint.core.record import Opened, Place, open_sealed, seal

KEY = SigningKey(bytes(range(32)))
KEYS = Keyring(KEY)
Reader = Callable[[bytes], Opened]
PLACE = Place("invoices", "", "order-7", 2)
PAYLOAD = b'{"amount":42}'
CREATED = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
PREVIOUS = digest_of(b"the one before")
RECORD = seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, app="invoice")[0]
LINK = open_sealed(RECORD, PLACE, KEYS).digest


def read_by_seal(record: bytes) -> Opened:
    return open_sealed(record, PLACE, KEYS)


def read_by_link(record: bytes) -> Opened:
    """As `verify` reads what is older than the anchor: by the digest that the next one names."""
    return open_sealed(record, PLACE, KEYS, digest=LINK)


def is_refused(reader: Reader, changed: bytes) -> bool:
    try:
        reader(changed)
    except CheckpointError:
        return True
    return False


@pytest.mark.parametrize(
    "all_values",
    [False, pytest.param(True, marks=pytest.mark.deep)],
    ids=["some values", "all values"],
)
def test_every_changed_cut_or_inserted_byte_is_refused(all_values: bool) -> None:
    """At each place: each bit, and some values; or each of the 256 values."""
    record, reader = RECORD, read_by_seal
    flips = range(1, 256) if all_values else [1 << bit for bit in range(8)]
    values = range(256) if all_values else b"\n \0A0="
    for n in range(len(record)):
        before, byte, after = record[:n], record[n], record[n + 1 :]
        changed = [before + bytes([byte ^ flip]) + after for flip in flips]
        changed += [before + bytes([value]) + record[n:] for value in values]
        changed += [before, *([record[n:]] if n else [])]
        assert [each for each in changed if not is_refused(reader, each)] == []
    assert [v for v in values if not is_refused(reader, record + bytes([v]))] == []


def test_every_flipped_bit_outside_the_signature_is_refused_by_a_link() -> None:
    """The digest vouches for header and state; which signature stands above them, it cannot say."""
    record = RECORD
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


def test_times_are_kept_in_utc() -> None:
    berlin = datetime(2026, 11, 15, 13, 0, tzinfo=timezone(timedelta(hours=1)))
    _, opened = seal(PAYLOAD, PLACE, KEY, created=berlin, previous=PREVIOUS)
    assert opened.header.created == "2026-11-15T12:00:00.000000Z"


WRONG: list[dict[str, Any]] = [
    *({"app": app} for app in ("a b", "a\nb", "x" * 129, "é")),
    *({"label": label} for label in ("a b", "x" * 129, None)),
    *({"cipher": cipher} for cipher in ("none", "0123456789ABCDEF")),
    *({"kind": kind, "label": "x"} for kind in ("base", "deleted")),
    *({"tools": tools} for tools in (5, "", "sha256:", "é", "v1")),
    {"previous": None},
    {"created": CREATED.replace(tzinfo=None)},
    {"kind": "other"},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_outside_the_grammar_is_not_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidId, match=r"is not an app name|is not a label|is not the digest|is outside its gramm"
    ):
        seal(PAYLOAD, PLACE, KEY, **{"created": CREATED, "previous": PREVIOUS, **wrong})
