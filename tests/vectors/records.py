"""One record each: some that open, and one for each way to be refused."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from functools import partial
from typing import Any

from blake3 import blake3

from safepoint.core.codec import Codec
from safepoint.core.names import digest_of
from safepoint.core.record import Opened, Place
from tests.vectors.material import (
    ACME,
    BASE,
    DANA,
    DELETED,
    ELSEWHERE,
    FIRST,
    NOTE,
    OF_ACME,
    ONE,
    OPENED_ACME,
    OPENED_BASE,
    OPENED_DELETED,
    OPENED_NOTE,
    OPENED_ONE,
    OPENED_TWO,
    OTHER,
    SECOND,
    STATE,
    TWO,
    WRITER,
    Vector,
    sealed,
    signature_of,
    signed,
    with_signature,
)

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_ORDER = 2**252 + 27742317777372353535851937790883648493


_CIPHERTEXT = sealed(FIRST, payload=b"\x00\n\xff", cipher=OTHER.id)
_WEIGHTS = blake3(b"weights").hexdigest()  # of a file with these 7 bytes
_MODEL = sealed(
    Place("safepoint-models", "", "llm", 1),
    payload=Codec().encode({"bytes": 7, "digest": f"blake3:{_WEIGHTS}"}),
    use="model",
)
_ORDERS = f"{DANA.id}-{hashlib.sha256(b'order invoices/order-7').hexdigest()[:47]}"
_HOLD = sealed(
    Place("answers", "", _ORDERS, 1),
    DANA,
    payload=b'{"order":"hold","store":"invoices","tenant":"","thread":"order-7","why":""}',
    app="",
    use="order",
)
_MOMENTS = [
    ("earliest", "The first moment there is.", datetime(1, 1, 1, tzinfo=UTC)),
    ("latest", "The last.", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("leap-day", "February 29 of a leap year.", datetime(2000, 2, 29, tzinfo=UTC)),
]


def vectors() -> list[Vector]:
    """Return all of them, in the order in which a reader checks."""
    return [
        *_accepted(),
        *_no_records(),
        *_no_headers(),
        *_broken(),
        *_misplaced(),
        *_other(),
        *_not_for_this_reader(),
        *_which_comes_first(),
    ]


def _vector(
    name: str, about: str, record: bytes, place: Place, trusted: str, **more: Any
) -> Vector:
    return {
        "name": name,
        "about": about,
        "keys": trusted.split(),
        "store": place.store,
        "tenant": place.tenant,
        "thread": place.thread,
        "sequence": place.sequence,
        **more,
        "record": record.decode("latin-1"),
    }


def _opens(
    name: str, about: str, record: bytes, opened: Opened, trusted: str = "writer", **more: Any
) -> Vector:
    header = opened.header
    return _vector(name, about, record, header.place, trusted, **more) | {
        "opens": {
            "key": opened.key,
            "digest": opened.digest,
            "kind": header.kind,
            "label": header.label,
            "tenant": header.tenant,
            "cipher": header.cipher,
            "previous": header.previous,
            "state": opened.payload.decode("latin-1"),
        }
    }


def _refused(
    error: str,
    name: str,
    about: str,
    record: bytes,
    place: Place = FIRST,
    trusted: str = "writer",
    **more: Any,
) -> Vector:
    return _vector(name, about, record, place, trusted, **more) | {"refused": error}


def _accepted() -> list[Vector]:
    by_dana, opened_dana = sealed(FIRST, DANA, tools=digest_of(b"search, pay"))
    unread, opened_unread = sealed(FIRST, payload=b"\xc1 no state")
    bare = "In an encrypted store. It has no state that could be."
    pair = "By an Ed25519 key, with a tool set. The public half is enough to verify it."
    return [
        _opens("first", "The first checkpoint of a thread.", ONE, OPENED_ONE),
        _opens("second", "The next one, which names the digest of the first.", TWO, OPENED_TWO),
        _opens("note", "No new state, and a link of the chain.", NOTE, OPENED_NOTE),
        _opens("tenant", "Of a tenant, with a label.", ACME, OPENED_ACME),
        _opens("cipher", "Its state is a ciphertext.", *_CIPHERTEXT, encrypted=True),
        _opens("dana", pair, by_dana, opened_dana, "dana"),
        _opens("base", "What prune left: the thread begins at #2.", BASE, OPENED_BASE, base=True),
        _opens("deleted", "The tombstone of a thread.", DELETED, OPENED_DELETED),
        _opens("base-encrypted", bare, BASE, OPENED_BASE, base=True, encrypted=True),
        _opens("deleted-encrypted", "Nor has this.", DELETED, OPENED_DELETED, encrypted=True),
        _opens("two-keys", "A reader who trusts two keys.", ONE, OPENED_ONE, "dana writer"),
        _opens("unread", "A verifier does not look at the state.", unread, opened_unread),
        *(_opens(name, about, *sealed(FIRST, created=at)) for name, about, at in _MOMENTS),
        _opens("model", "The seal of a model, read as one.", *_MODEL, use="model"),
        _opens("order", "A hold, read as an order.", *_HOLD, "dana", use="order"),
    ]


def _no_records() -> list[Vector]:
    signature = signature_of(ONE)
    # 64 bytes end inside the last letter: four of its bits say nothing, and must be zero.
    last = _LETTERS.index(signature[-3])
    spelled_otherwise = signature[:-3] + _LETTERS[last + 1 : last + 2] + b"=="
    shorter, mac = (base64.b64encode(base64.b64decode(signature)[:size]) for size in (63, 32))
    upper = WRITER.id.upper().encode()
    found = [
        ("empty", "Nothing at all.", b""),
        ("bare", "A state that nobody sealed.", STATE),
        ("format-2", "Another format.", ONE.replace(b"safepoint/1", b"safepoint/2", 1)),
        ("byte-order-mark", "Bytes before the first.", b"\xef\xbb\xbf" + ONE),
        ("carriage-returns", "Lines that end in CR LF.", ONE.replace(b"\n", b"\r\n")),
        ("two-spaces", "One space too many.", ONE.replace(b" ", b"  ", 1)),
        ("no-signature", "Stripped of its signature.", ONE.replace(signature, b"", 1)),
        ("algorithm-named", "No word for an algorithm.", ONE.replace(b" ", b" none ", 1)),
        ("id-upper-case", "Hex digits are lower case.", ONE.replace(WRITER.id.encode(), upper, 1)),
        ("signature-of-63", "A signature of 63 bytes.", ONE.replace(signature, shorter, 1)),
        ("signature-of-32", "One of 32, as a MAC has.", ONE.replace(signature, mac, 1)),
        (
            "base64-not-canonical",
            "The same 64 bytes, spelled otherwise.",
            ONE.replace(signature, spelled_otherwise, 1),
        ),
        ("base64-url", "The other alphabet.", ONE.replace(signature, b"-" + signature[1:], 1)),
        ("cut-in-line-1", "Cut off in line 1.", ONE[:40]),
        ("cut-in-line-2", "Cut off in line 2.", ONE[:200]),
        ("line-2-too-long", "A line 2 of 2049 bytes.", signed(b"x" * 2049, STATE)),
    ]
    return [_refused("SealBroken form", *vector) for vector in found]


def _no_headers() -> list[Vector]:
    """Each is truly signed; a holder of the key wrote it, and no release of the package."""
    _, line_2, rest = ONE.split(b"\n", 2)
    fields = json.loads(line_2)
    _, second, rest_of_second = TWO.split(b"\n", 2)
    upper = b"sha256:" + fields["digest"][7:].upper().encode()

    def at(moment: bytes) -> bytes:
        return line_2.replace(b"2026-11-15T12:01:00.000000Z", moment)

    found = [
        ("header-empty", "Nothing.", b""),
        ("header-spaces", "Spaces.", line_2.replace(b":", b": ")),
        ("header-order", "Another order.", _dumped(dict(reversed(fields.items())))),
        ("header-extra", "One field more.", _dumped({**fields, "zone": "UTC"})),
        ("header-alg", "A field for the algorithm.", _dumped({"alg": "none", **fields})),
        ("header-less", "One field less.", line_2.replace(b'"kind":"state",', b"")),
        ("header-twice", "A field twice.", b'{"app":"",' + line_2[1:]),
        ("header-escape", "A letter as an escape.", line_2.replace(b"invoices", b"\\u0069nvoices")),
        ("header-kind", "An unknown kind.", line_2.replace(b'"state"', b'"draft"')),
        ("header-label", "A space in a label.", line_2.replace(b'"label":""', b'"label":"a b"')),
        ("header-label-long", "A label of 129.", line_2.replace(
            b'"label":""', b'"label":"%b"' % (b"x" * 129))),
        ("header-no-label", "A label is a text.", line_2.replace(b'"label":""', b'"label":null')),
        ("header-tenant", "No name.", line_2.replace(b'"tenant":""', b'"tenant":"@acme"')),
        ("header-no-tenant", "A text, too.", line_2.replace(b'"tenant":""', b'"tenant":null')),
        ("header-cipher", "No key's id.", line_2.replace(b'"cipher":null', b'"cipher":"none"')),
        ("header-cipher-empty", "Nor this.", line_2.replace(b'"cipher":null', b'"cipher":""')),
        ("header-cipher-short", "15 digits.", line_2.replace(
            b'"cipher":null', b'"cipher":"%b"' % WRITER.id[1:].encode())),
        ("header-zero", "Sequence 0.", line_2.replace(b'"sequence":1', b'"sequence":0')),
        ("header-float", "Sequence 1.0.", line_2.replace(b'"sequence":1', b'"sequence":1.0')),
        ("header-octal", "Sequence 01.", line_2.replace(b'"sequence":1', b'"sequence":01')),
        ("header-digest", "Hex digits are lower case.", line_2.replace(
            fields["digest"].encode(), upper)),
        ("header-offset", "An offset in place of Z.", at(b"2026-11-15T12:01:00.000000+00:00")),
        ("header-seconds", "Six digits after the second.", at(b"2026-11-15T12:01:00.000Z")),
        ("header-day", "No such day.", at(b"2026-02-30T12:01:00.000000Z")),
        ("header-leap-day", "2026 is no leap year.", at(b"2026-02-29T12:01:00.000000Z")),
        ("header-century", "1900 was none either.", at(b"1900-02-29T12:01:00.000000Z")),
        ("header-day-0", "Days begin at 01.", at(b"2026-11-00T12:01:00.000000Z")),
        ("header-month", "Months end at 12.", at(b"2026-13-15T12:01:00.000000Z")),
        ("header-month-0", "Months begin at 01.", at(b"2026-00-15T12:01:00.000000Z")),
        ("header-year", "Years begin at 0001.", at(b"0000-11-15T12:01:00.000000Z")),
        ("header-hour", "Hours end at 23.", at(b"2026-11-15T24:00:00.000000Z")),
        ("header-minute", "Minutes end at 59.", at(b"2026-11-15T12:60:00.000000Z")),
        ("header-leap-second", "So do seconds.", at(b"2026-12-31T23:59:60.000000Z")),
        ("header-first", "#1 has no previous.", line_2.replace(
            b'"previous":null', f'"previous":"{ELSEWHERE}"'.encode())),
    ]  # fmt: skip
    no_previous = signed(_dumped({**json.loads(second), "previous": None}), rest_of_second)
    _, tombstone, null = DELETED.split(b"\n", 2)
    labelled = tombstone.replace(b'"label":""', b'"label":"x"')
    enciphered = tombstone.replace(b'"cipher":null', b'"cipher":"%b"' % OTHER.id.encode())
    no_state = [
        ("deleted-label", "What has no state has no label.", labelled),
        ("deleted-cipher", "Nor a cipher.", enciphered),
    ]
    return [
        *(_refused("SealBroken form", name, about, signed(line, null), SECOND)
          for name, about, line in no_state),
        *(
            _refused("SealBroken form", name, about, signed(line, rest))
            for name, about, line in found
        ),
        _refused("SealBroken form", "header-second", "#2 has a previous.", no_previous, SECOND),
    ]  # fmt: skip


def _dumped(fields: Vector) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def signed_as(line_2: bytes, rest: bytes, use: str) -> bytes:
    """Return a record that was truly signed, as something else than a record."""
    return signed(line_2, rest, message=f"safepoint/1 {use}\n".encode() + line_2)


def _broken() -> list[Vector]:
    _, line_2, rest = ONE.split(b"\n", 2)
    signature = base64.b64decode(signature_of(ONE))
    flipped = bytes([signature[0] ^ 1]) + signature[1:]
    borrowed = sealed(FIRST, OTHER)[0].replace(OTHER.id.encode(), WRITER.id.encode(), 1)
    with_line_end = b"safepoint/1 record\n" + line_2 + b"\n"
    second_half = int.from_bytes(signature[32:], "little") + _ORDER
    malleable = signature[:32] + second_half.to_bytes(32, "little")
    spelled = "A second spelling of the signature: its second half plus the group's order."
    alone = signed(line_2, rest, message=line_2)
    found: list[tuple[Any, ...]] = [
        ("header-edited", "An edit of line 2.", ONE.replace(b'"store":"i', b'"store":"j')),
        ("tenant-edited", "Under another tenant's name.", ONE.replace(
            b'"tenant":""', b'"tenant":"acme"')),
        ("note-as-state", "A note, edited into a state.", NOTE.replace(b'"note"', b'"state"'),
         SECOND),
        ("cipher-dropped", "Passed off as plain text.", sealed(FIRST, cipher=OTHER.id)[0].replace(
            f'"{OTHER.id}"'.encode(), b"null", 1)),
        ("signature-edited", "One bit of it.", with_signature(ONE, flipped)),
        ("id-borrowed", "Another key's signature, under a trusted id.", borrowed),
        ("signed-line-2-alone", "Without the line before it.", alone),
        ("signed-line-end", "With the end of line 2.", signed(line_2, rest, message=with_line_end)),
        *((f"signed-as-{use}", "For another use of the envelope.", signed_as(line_2, rest, use))
          for use in ("journal", "approval", "order", "model")),
        ("order-as-record", "A hold is no checkpoint.", _HOLD[0], _HOLD[1].header.place, "dana"),
        ("state-edited", "An edit of the state.", ONE.replace(b"alice", b"mally")),
        ("state-longer", "A byte after the state.", ONE + b"\xc0"),
        ("state-line", "A line end after the state.", ONE + b"\n"),
        ("state-shorter", "Without the last byte.", ONE[:-1]),
        ("signature-not-reduced", spelled, with_signature(ONE, malleable)),
    ]  # fmt: skip
    return [_refused("SealBroken", *vector) for vector in found]


def _misplaced() -> list[Vector]:
    found = [
        ("other-store", "Of store invoices.", ONE, Place("refunds", "", "order-7", 1)),
        ("other-thread", "Of thread order-7.", ONE, Place("invoices", "", "order-8", 1)),
        ("other-sequence", "Of #1.", ONE, SECOND),
        ("base-as-record", "A base is no checkpoint.", BASE, SECOND),
    ]
    return [
        _refused("SealBroken tenant", "other-tenant", "Of tenant acme.", ACME, FIRST),
        _refused("SealBroken tenant", "no-tenant", "Of no tenant.", ONE, OF_ACME),
        *(_refused("SealBroken place", *vector) for vector in found),
        _refused(
            "SealBroken place",
            "order-moved",
            "A hold, in the chain of another thread.",
            _HOLD[0],
            Place("answers", "", _ORDERS[::-1], 1),
            "dana",
            use="order",
        ),
        _refused("SealBroken place", "record-as-base", "Nor the reverse.", TWO, SECOND, base=True),
        _refused("SealBroken place", "tombstone-as-base", "Nor that.", DELETED, SECOND, base=True),
        _refused("SealBroken place", "note-as-base", "Nor a note.", NOTE, SECOND, base=True),
    ]


def _other() -> list[Vector]:
    unknown, _ = sealed(FIRST, OTHER)
    large, _ = sealed(FIRST, payload=b"\xda\x10\x00" + b"x" * 4096)
    return [
        _refused(
            "SealBroken key", "unknown-key", "By a key that the reader does not hold.", unknown
        ),
        _refused(
            "SealBroken key",
            "order-stranger",
            "A hold, by no operator's key.",
            _HOLD[0],
            _HOLD[1].header.place,
            use="order",
        ),
        _refused("LimitExceeded", "too-large", "Over 4100 bytes.", large, record_bytes=4100),
    ]


def _not_for_this_reader() -> list[Vector]:
    """Whether a store is encrypted, the reader knows, and no record chooses."""
    noted = sealed(SECOND, kind="note", previous=OPENED_ONE.digest, cipher=OTHER.id)[0]
    no, where = partial(_refused, "DecodeError"), "Plain where it is encrypted."
    return [
        no("cipher-in-plain-store", "Encrypted where it is plain.", _CIPHERTEXT[0]),
        no("note-cipher-in-plain-store", "A note, too.", noted, SECOND),
        no("plain-in-encrypted-store", where, ONE, encrypted=True),
        no("note-plain-in-encrypted-store", "A note, too.", NOTE, SECOND, encrypted=True),
    ]


def _which_comes_first() -> list[Vector]:
    """Two reasons each."""
    unknown, _ = sealed(FIRST, OTHER)
    edited = unknown.replace(b'"store":"i', b'"store":"j')
    other_state = ONE.replace(b"alice", b"mally")
    no_header = with_signature(signed(b"{}", b"\x80"), bytes(64))
    elsewhere = Place("invoices", "", "order-8", 1)
    return [
        _refused("LimitExceeded", "size-first", "Also no record.", b"x" * 4101, record_bytes=4100),
        _refused("SealBroken form", "line-2-before-key", "Also unknown.", unknown[:200]),
        _refused("SealBroken key", "key-before-signature", "Also edited.", edited),
        _refused("SealBroken", "signature-before-header", "Also no header.", no_header),
        _refused("SealBroken place", "place-before-state", "Also edited.", other_state, elsewhere),
        _refused("SealBroken", "state-before-cipher", "Also plain.", other_state, encrypted=True),
    ]
