"""The keys and the records that vectors are made of."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final

from safepoint.core.keys import SigningKey
from safepoint.core.names import digest_of
from safepoint.core.record import Kind, Opened, Place, seal

Vector = dict[str, Any]

# Seeds that say what they are, and the first test key of RFC 8032.
SECRETS: Final = {
    "writer": b"published test key: do not use!!",
    "other": b"another published key: no secret",
    "dana": bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"),
}
WRITER: Final = SigningKey(SECRETS["writer"])
OTHER: Final = SigningKey(SECRETS["other"])
DANA: Final = SigningKey(SECRETS["dana"])
PUBLIC: Final = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")

STATE: Final = b"\x81\xa5payee\xa5alice"
FIRST: Final = Place("invoices", "", "order-7", 1)
SECOND: Final = Place("invoices", "", "order-7", 2)
THIRD: Final = Place("invoices", "", "order-7", 3)
OF_ACME: Final = Place("invoices", "acme", "order-7", 1)


def sealed(
    place: Place,
    key: SigningKey = WRITER,
    *,
    payload: bytes = STATE,
    kind: Kind = "state",
    previous: str | None = None,
    app: str = "invoice/1.4",
    created: datetime | None = None,
    **more: Any,
) -> tuple[bytes, Opened]:
    """Return a record as the implementation writes it, a minute later at each sequence."""
    created = created or datetime(2026, 11, 15, 12, place.sequence, tzinfo=UTC)
    return seal(payload, place, key, created=created, kind=kind, previous=previous, app=app, **more)


def stateless(kind: Kind, previous: str) -> tuple[bytes, Opened]:
    """Return a base or a tombstone, at #2."""
    return sealed(SECOND, kind=kind, previous=previous, payload=b"\xc0", app="")


def signed(line_2: bytes, rest: bytes, *, message: bytes | None = None) -> bytes:
    """Return what another program that holds the key could write: any line 2, truly signed."""
    covered = b"safepoint/1 record\n" + line_2 if message is None else message
    signature = base64.b64encode(WRITER.sign(covered))
    return b"safepoint/1 %b %b\n%b\n%b" % (WRITER.id.encode(), signature, line_2, rest)


def with_signature(record: bytes, signature: bytes) -> bytes:
    """Return the record under another signature."""
    line_1, _, rest = record.partition(b"\n")
    magic, key_id = line_1.split(b" ")[:2]
    return b"%b %b %b\n%b" % (magic, key_id, base64.b64encode(signature), rest)


def signature_of(record: bytes) -> bytes:
    """Return the signature, as it is written."""
    return record.partition(b"\n")[0].split(b" ")[2]


ONE, OPENED_ONE = sealed(FIRST)
TWO, OPENED_TWO = sealed(
    SECOND, previous=OPENED_ONE.digest, payload=STATE.replace(b"alice", b"bella")
)
THREE, OPENED_THREE = sealed(
    THIRD, previous=OPENED_TWO.digest, payload=STATE.replace(b"alice", b"carol")
)
ACME, OPENED_ACME = sealed(OF_ACME, label="fetch:1/2")
NOTE, OPENED_NOTE = sealed(SECOND, kind="note", previous=OPENED_ONE.digest, payload=b"\xa4held")
OTHER_TWO, _ = sealed(SECOND, previous=OPENED_ONE.digest, payload=b"\x90")
BASE, OPENED_BASE = stateless("base", OPENED_ONE.digest)
DELETED, OPENED_DELETED = stateless("deleted", OPENED_ONE.digest)
ELSEWHERE: Final = digest_of(b"another record")


def head(opened: Opened) -> Vector:
    """Return what an anchor would remember."""
    return {"sequence": opened.header.sequence, "digest": opened.digest}


def published_keys() -> Vector:
    """Return the keys, by the names that vectors use."""
    pairs = {"writer": WRITER, "other": OTHER, "dana": DANA}
    return {
        name: {"id": key.id, "seed": _text(SECRETS[name]), "public": f"{key.public.text}\n"}
        for name, key in pairs.items()
    }


def refused_keys() -> list[Vector]:
    """Return lines that are no public key, or one under which anybody can sign."""
    good, rsa = _line(PUBLIC), b"\0\0\0\x07ssh-rsa\0\0\0\x03\1\0\1\0\0\0\x02\0\xc1"
    zeros = "A point of small order: anybody can sign for it."
    security_key = _string(b"sk-ssh-ed25519@openssh.com") + _string(PUBLIC) + _string(b"ssh:")
    found = [
        ("empty", "Nothing.", ""),
        ("bare", "No type.", good.split()[1]),
        ("rsa", "Another type.", f"ssh-rsa {_text(rsa)}"),
        ("rsa-inside", "It says one type, and holds another.", f"ssh-ed25519 {_text(rsa)}"),
        ("security-key", "A key in hardware.", f"sk-ssh-ed25519@openssh.com {_text(security_key)}"),
        ("certificate", "Of a type of its own.", good.replace("9 ", "9-cert-v01@openssh.com ")),
        ("type-inside", "Of the same length, and another type.",
         good.replace("ZDI1NTE5", "ZDI1NTE4")),
        ("31-bytes", "A key of 31 bytes.", _line(PUBLIC[1:])),
        ("33-bytes", "A key of 33 bytes.", _line(PUBLIC + b"\0")),
        ("more", "A byte behind the key.", f"ssh-ed25519 {_text(_blob(PUBLIC) + bytes(3))}"),
        ("base64-url", "The other alphabet.", _line(PUBLIC[::-1]).replace("/", "_")),
        ("options", "With options, as in authorized_keys.", f"no-pty {good}"),
        ("two-lines", "A second line.", f"{good}\n{good}"),
        ("comment-first", "A line before it.", f"# dana\n{good}"),
        ("carriage-return", "A line that ends in CR LF.", f"{good}\r\n"),
        *((f"small-order-{number}", zeros, _line(point.to_bytes(32, "little")))
          for number, point in enumerate(_SMALL_ORDER, 1)),
    ]  # fmt: skip
    return [
        {"name": name, "about": about, "public": text, "refused": "Unsafe"}
        for name, about, text in found
    ]


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _blob(public: bytes) -> bytes:
    return _string(b"ssh-ed25519") + _string(public)


def _line(public: bytes) -> str:
    return f"ssh-ed25519 {_text(_blob(public))} name"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_P: Final = 2**255 - 19
_Y: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
# Seven spellings of y, the last two of them not reduced, and each with either top bit.
_SMALL_ORDER: Final = [
    y | sign for sign in (0, 1 << 255) for y in (0, 1, _P - 1, _Y, _P - _Y, _P, _P + 1)
]
