r"""The sealed record: verified before it is decoded.

A record is three lines that a person can read with `cat`:

    safepoint/1 <key id> <signature, base64>
    {"app":…,"created":…,"digest":"sha256:…","kind":"state","previous":…,"sequence":7,"store":…,…}
    {…the state…}

The signature covers `safepoint/1\n` and the bytes of line 2, which hold the digest of the rest.
Nothing is re-encoded to be verified, and nothing is decoded before it is.

These functions decide; they touch no disk.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from safepoint.errors import (
    KeyRevoked,
    LimitExceeded,
    RecordMalformed,
    SealBroken,
    UnknownKey,
    WrongPlace,
)
from safepoint.header import Header, Kind, Place, digest_of
from safepoint.heads import Head
from safepoint.keys import Keyring, Revoked, SigningKey
from safepoint.limits import DEFAULT_LIMITS, Limits

FORMAT: Final = "safepoint/1"
# A signature of 32 bytes (HMAC-SHA256) or 64 (Ed25519); which of them is right, the key says. Its
# last letter has no bits to spare, so that one signature has one spelling.
_LINE_1 = re.compile(
    rb"safepoint/1 ([0-9a-f]{16}) "
    rb"([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/]{85}[AQgw]==)\n"
)
_OTHER_FORMAT = re.compile(rb"safepoint/([0-9]{1,3}) ")
_MAX_HEADER: Final = 2048


@dataclass(frozen=True, slots=True)
class Opened:
    """A record that passed: its header, its digest for the next link, and the encoded state.

    Attributes:
        header: line 2.
        digest: the digest of line 2, which the next record names. It does not depend on the key.
        key: the id of the key that sealed it.
        payload: the encoded state.
    """

    header: Header
    digest: str
    key: str
    payload: bytes = field(repr=False)

    @property
    def head(self) -> Head:
        """This record, as the end of its thread."""
        return Head(self.header.sequence, self.digest)


def seal(
    payload: bytes,
    place: Place,
    key: SigningKey,
    *,
    created: datetime,
    kind: Kind = "state",
    previous: str | None = None,
    app: str = "",
    tools: str | None = None,
) -> tuple[bytes, Opened]:
    """Return the record that binds `payload` to `place`, and the same as `open_sealed` gives it.

    Raises:
        InvalidId: a name, the sequence, `app` or `tools` is outside its grammar.
    """
    header = Header.of(
        place,
        app=app,
        created=created,
        digest=digest_of(payload + b"\n"),
        kind=kind,
        previous=previous,
        tools=tools,
    )
    line_2 = bytes(header)
    return _sealed(line_2, payload, key), Opened(header, digest_of(line_2), key.id, payload)


def reseal(opened: Opened, key: SigningKey) -> bytes:
    """Return the record again, sealed by `key`. Its digest stays, and so does every link to it."""
    return _sealed(bytes(opened.header), opened.payload, key)


def _sealed(line_2: bytes, payload: bytes, key: SigningKey) -> bytes:
    signature = base64.b64encode(key.sign(_signed(line_2)))
    line_1 = b"%b %b %b" % (FORMAT.encode(), key.id.encode(), signature)
    return b"%b\n%b\n%b\n" % (line_1, line_2, payload)


def open_sealed(
    record: bytes,
    place: Place,
    keys: Keyring,
    *,
    base: bool = False,
    digest: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Opened:
    """Verify a record in the one order that is safe, and return it still encoded.

    Args:
        record: the bytes as the storage gave them.
        place: where they must belong.
        keys: which keys to trust.
        base: whether this must be what `prune` left, instead of a checkpoint.
        digest: what a record that you trust already names as the one before it. It stands in for
            the signature, since nobody can make another header of the same digest.
        limits: how large it may be.

    Raises:
        LimitExceeded: it is larger than the limit.
        RecordMalformed: it is not a sealed record of this format.
        UnknownKey: it names a key that is not on the keyring.
        SealBroken: it was changed after it was sealed.
        WrongPlace: it is genuine, and belongs somewhere else.
        KeyRevoked: it is genuine, and its key did not count any more at that place.
    """
    # 1. size
    if len(record) > limits.record_bytes:
        raise LimitExceeded(
            f"{_shown(place, base)} is {len(record)} bytes, over the limit of"
            f" {limits.record_bytes}.",
            "If you meant to store that much, raise Limits.state_bytes for readers and writers.",
        )

    # 2. the grammar of line 1
    line_1 = _LINE_1.match(record)
    if line_1 is None:
        raise _not_sealed(record, _shown(place, base))
    key_id, signature = line_1.groups()

    # 3. the signature, by a key that the caller trusts
    end = record.find(b"\n", line_1.end(), line_1.end() + _MAX_HEADER + 1)
    if end < 0:
        raise RecordMalformed(
            f"{_shown(place, base)} is cut short: its second line does not end.", _DISTRUST
        )
    line_2 = record[line_1.end() : end]
    try:
        key = keys.find(key_id.decode())
    except UnknownKey as unknown:
        raise UnknownKey(
            f"{_shown(place, base)} cannot be verified. {unknown.what}", unknown.do
        ) from None
    own_digest = digest_of(line_2)
    if digest is None and not key.verify(_signed(line_2), base64.b64decode(signature)):
        raise SealBroken(
            f"{_shown(place, base)} was changed after it was sealed, or was never sealed.",
            _DISTRUST,
        )
    if digest is not None and digest != own_digest:
        raise SealBroken(
            f"{_shown(place, base)} is not the one that #{place.sequence + 1} was sealed upon.",
            _DISTRUST,
        )

    # 4. line 2: from here on, written by a holder of the key
    header = Header.parse(line_2)
    if header is None:
        raise RecordMalformed(
            f"{_shown(place, base)} has a header that this release did not write.",
            "Check that its writer runs a released version of safepoint with the same format.",
        )

    # 5. its place
    if (
        header.sequence != place.sequence
        or header.thread != place.thread
        or header.store != place.store
        or (header.kind == "base") != base
    ):
        raise _misplaced(header, place)

    # 6. the state's digest
    rest = record[end + 1 :]
    if digest_of(rest) != header.digest or not rest.endswith(b"\n"):
        raise SealBroken(
            f"The state of {_shown(place, base)} is not the one that was sealed.", _DISTRUST
        )
    opened = Opened(header, own_digest, key.id, rest[:-1])

    # 7. whether its key still counted here
    revoked = keys.revoked(key.id)
    if revoked is not None:
        _check_revoked(opened, revoked)
    return opened


_DISTRUST: Final = (
    "Nothing was decoded. Do not use it: find out who can write the store, "
    "then restore a copy that verifies."
)


def _shown(place: Place, base: bool) -> str:
    return f"{place.thread} base #{place.sequence}" if base else str(place)


def _signed(line_2: bytes) -> bytes:
    return FORMAT.encode() + b"\n" + line_2


def _not_sealed(record: bytes, shown: str) -> RecordMalformed:
    other = _OTHER_FORMAT.match(record)
    if other is not None and int(other.group(1)) > 1:
        return RecordMalformed(
            f"{shown} says that it is of format safepoint/{int(other.group(1))}, not {FORMAT}.",
            "Nothing was decoded. If a newer safepoint wrote it, upgrade here too.",
        )
    if not record:
        return RecordMalformed(f"{shown} is empty.", _DISTRUST)
    return RecordMalformed(
        f"{shown} is not a sealed record.",
        f"{_DISTRUST} If it is yours, from before there were seals, see safepoint.migrate.",
    )


def _misplaced(header: Header, place: Place) -> WrongPlace:
    found = Place(header.store, header.thread, header.sequence)
    if found == place:
        return WrongPlace(
            f"The record at {place} is of the kind {header.kind}, which does not belong there.",
            "Somebody moved it: restore the record that belongs here, and find out who can write.",
        )
    return WrongPlace(
        f"The record at {place} of store {place.store} is the one of {found} of store"
        f" {found.store}.",
        "Somebody moved it: restore the record that belongs here, and find out who can write."
        if found.store == place.store
        else "Somebody may have moved it here. Only if you mistyped the name of the store, open the"
        " ledger with the right one.",
    )


def _check_revoked(opened: Opened, revoked: Revoked) -> None:
    header = opened.header
    if header.kind == "base":
        # The record behind it cannot show whether it was the thief who removed those before.
        raise KeyRevoked(
            f"The base of {header.thread} at #{header.sequence} is sealed by key {opened.key},"
            " which was revoked.",
            "Whoever stole that key may have removed what was before. Restore that; or if it was"
            " you who pruned, seal the base anew with Ledger.accept_loss.",
        )
    until = revoked.head(header.store, header.thread)
    counts = until is not None and (
        header.sequence < until.sequence
        or (header.sequence == until.sequence and opened.digest == until.digest)
    )
    if not counts:
        last = "here" if until is None else f"after {until}"
        raise KeyRevoked(
            f"{header.thread} #{header.sequence} is sealed by key {opened.key}, which was revoked"
            f" and does not count {last}.",
            "Whoever stole that key may have written it. Restore what was there before, and save"
            " with the new key.",
        )
