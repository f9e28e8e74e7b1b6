"""The sealed record, where the vectors do not reach: each byte, what is written, and the words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from safepoint import CheckpointError, Keyring, SigningKey
from safepoint.core.errors import InvalidId
from safepoint.core.names import digest_of
from safepoint.core.record import Place, open_sealed, seal

KEY = SigningKey(bytes(range(32)))
KEYS = Keyring(KEY)
PLACE = Place("invoices", "", "order-7", 2)
PAYLOAD = b'{"amount":42}'
CREATED = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
PREVIOUS = digest_of(b"the one before")
RECORD = seal(PAYLOAD, PLACE, KEY, created=CREATED, previous=PREVIOUS, app="invoice")[0]


@pytest.mark.parametrize("use", [{}, {"digest": open_sealed(RECORD, PLACE, KEYS).digest}])
def test_every_changed_cut_or_inserted_byte_is_refused(use: dict[str, Any]) -> None:
    """A digest vouches for header and state; which signature is above them, it cannot say."""
    signature = range(len("safepoint/1 0123456789abcdef "), RECORD.index(b"\n")) if use else ()
    for n in range(len(RECORD)):
        flips = [bytes([RECORD[n] ^ 1 << bit]) + RECORD[n + 1 :] for bit in range(8)]
        for rest in [b"", *([] if n in signature else [b"0" + RECORD[n:], *flips])]:
            with pytest.raises(CheckpointError):
                open_sealed(RECORD[:n] + rest, PLACE, KEYS, **use)


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
