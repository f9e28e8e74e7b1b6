r"""The sealed record: verified before it is decoded.

A record is three lines that a person can read with `cat`:

    safepoint/1 <key id> <signature, base64>
    {"app":…,"created":…,"digest":"sha256:…","previous":…,"sequence":7,"store":…,"thread":…,"tools":…}
    {…the state…}

The signature covers `safepoint/1\n` and the bytes of line 2, which hold the digest of the rest.
Nothing is re-encoded to be verified, and nothing is decoded before it is.

These functions decide; they touch no disk.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from safepoint.errors import (
    CheckpointError,
    InvalidId,
    LimitExceeded,
    RecordMalformed,
    SealBroken,
    UnknownKey,
    WrongPlace,
    quoted,
)
from safepoint.ids import check_name, check_sequence
from safepoint.keys import Keyring, SigningKey
from safepoint.limits import DEFAULT_LIMITS, Limits

FORMAT: Final = "safepoint/1"
_LINE_1 = re.compile(rb"safepoint/1 ([0-9a-f]{16}) ([A-Za-z0-9+/]{43}=)\n")
_OTHER_FORMAT = re.compile(rb"safepoint/([0-9]{1,3}) ")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_APP = re.compile(r"[A-Za-z0-9._@/+:-]{0,128}\Z")
_MAX_HEADER: Final = 2048


@dataclass(frozen=True, slots=True)
class Place:
    """Where the reader expects a record to belong."""

    store: str
    thread: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.thread} #{self.sequence}"


@dataclass(frozen=True, slots=True)
class Header:
    """Line 2 of a record: what the signature binds the state to."""

    app: str
    created: str
    digest: str
    previous: str | None
    sequence: int
    store: str
    thread: str
    tools: str | None

    def __bytes__(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True, slots=True)
class Opened:
    """A record that passed: its header, its digest for the next link, and the encoded state."""

    header: Header
    digest: str
    payload: bytes = field(repr=False)


def digest_of(data: bytes) -> str:
    """Return the digest of `data` as records write it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def seal(
    payload: bytes,
    place: Place,
    key: SigningKey,
    *,
    created: datetime,
    previous: str | None = None,
    app: str = "",
    tools: str | None = None,
) -> tuple[bytes, Opened]:
    """Return the record that binds `payload` to `place`, and the same as `open_sealed` gives it.

    Raises:
        InvalidId: a name, the sequence, `app` or `tools` is outside its grammar.
    """
    rest = payload + b"\n"
    header = Header(
        app=app,
        created=created.astimezone(UTC).isoformat(timespec="microseconds"),
        digest=digest_of(rest),
        previous=previous,
        sequence=place.sequence,
        store=place.store,
        thread=place.thread,
        tools=tools,
    )
    _check_fields(header)
    line_2 = bytes(header)
    signature = base64.b64encode(key.sign(_signed(line_2)))
    record = b"%b %b %b\n%b\n%b" % (
        FORMAT.encode(),
        key.id.encode(),
        signature,
        line_2,
        rest,
    )
    return record, Opened(header, digest_of(line_2), payload)


def open_sealed(
    record: bytes, place: Place, keys: Keyring, *, limits: Limits = DEFAULT_LIMITS
) -> Opened:
    """Verify a record in the one order that is safe, and return it still encoded.

    Raises:
        LimitExceeded: it is larger than the limit.
        RecordMalformed: it is not a sealed record of this format.
        UnknownKey: it names a key that is not on the keyring.
        SealBroken: it was changed after it was sealed.
        WrongPlace: it is genuine, and belongs somewhere else.
    """
    # 1. size
    if len(record) > limits.record_bytes:
        raise LimitExceeded(
            f"{place} is {len(record)} bytes, over the limit of {limits.record_bytes}.",
            "If you meant to store that much, raise Limits.state_bytes for readers and writers.",
        )

    # 2. the grammar of line 1
    line_1 = _LINE_1.match(record)
    if line_1 is None:
        raise _not_sealed(record, place)
    key_id, signature_text = line_1.groups()
    signature = base64.b64decode(signature_text)
    if base64.b64encode(signature) != signature_text:
        raise RecordMalformed(f"{place} has a signature that is not canonical base64.", _DISTRUST)

    # 3. the signature, by a key that the caller trusts
    end = record.find(b"\n", line_1.end(), line_1.end() + _MAX_HEADER + 1)
    if end < 0:
        raise RecordMalformed(f"{place} is cut short: its second line does not end.", _DISTRUST)
    line_2 = record[line_1.end() : end]
    try:
        key = keys.find(key_id.decode())
    except UnknownKey as unknown:
        raise UnknownKey(f"{place} cannot be verified. {unknown.what}", unknown.do) from None
    if not key.verify(_signed(line_2), signature):
        raise SealBroken(
            f"{place} was changed after it was sealed, or was never sealed.", _DISTRUST
        )

    # 4. line 2: from here on, written by a holder of the key
    header = _parse_header(line_2, place)

    # 5. its place
    if (header.store, header.thread, header.sequence) != (
        place.store,
        place.thread,
        place.sequence,
    ):
        raise WrongPlace(
            f"The record at {place} of store {place.store} is the one of {header.thread} "
            f"#{header.sequence} of store {header.store}.",
            "Somebody moved it: restore the record that belongs here, and find out who can write."
            if header.store == place.store
            else "Open the ledger with the name of its own store, unless somebody moved it here.",
        )

    # 6. the state's digest
    rest = record[end + 1 :]
    if digest_of(rest) != header.digest or not rest.endswith(b"\n"):
        raise SealBroken(f"The state of {place} is not the one that was sealed.", _DISTRUST)
    return Opened(header, digest_of(line_2), rest[:-1])


_DISTRUST: Final = (
    "Nothing was decoded. Do not use it: find out who can write the store, "
    "then restore a copy that verifies."
)


def _signed(line_2: bytes) -> bytes:
    return FORMAT.encode() + b"\n" + line_2


def _not_sealed(record: bytes, place: Place) -> RecordMalformed:
    other = _OTHER_FORMAT.match(record)
    if other is not None and int(other.group(1)) > 1:
        return RecordMalformed(
            f"{place} says that it is of format safepoint/{int(other.group(1))}, not {FORMAT}.",
            "Nothing was decoded. If a newer safepoint wrote it, upgrade here too.",
        )
    if not record:
        return RecordMalformed(f"{place} is empty.", _DISTRUST)
    return RecordMalformed(f"{place} is not a sealed record.", _DISTRUST)


def _parse_header(line_2: bytes, place: Place) -> Header:
    broken = RecordMalformed(
        f"{place} has a header that this release did not write.",
        "Check that its writer runs a released version of safepoint with the same format.",
    )
    try:
        fields: Any = json.loads(line_2)
        header = Header(**fields)
        _check_fields(header)
    except (ValueError, TypeError, RecursionError, CheckpointError):
        raise broken from None
    if bytes(header) != line_2:
        raise broken
    return header


def _check_fields(header: Header) -> None:
    check_name("store", header.store)
    check_name("thread", header.thread)
    check_sequence(header.sequence)
    if not isinstance(header.app, str) or not _APP.match(header.app):
        raise InvalidId(
            f"{quoted(header.app)} is not an app name.",
            "Use up to 128 of A-Z, a-z, 0-9 and . _ @ / + : -",
        )
    if datetime.fromisoformat(header.created).tzinfo is None:
        raise InvalidId("The creation time has no time zone.", "Give an aware datetime.")
    for digest in (header.digest, header.previous, header.tools):
        if digest is not None and not (isinstance(digest, str) and _DIGEST.match(digest)):
            raise InvalidId(
                f"{quoted(digest)} is not a digest.", "Digests are 'sha256:' and 64 hex digits."
            )
    if header.digest is None:
        raise InvalidId("The header has no digest.", "Write records with safepoint.")
    if (header.sequence == 1) != (header.previous is None):
        raise InvalidId(
            "The first checkpoint has no previous one, and every other has.",
            "Write records with Ledger.save.",
        )
