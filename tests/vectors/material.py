"""The keys and the records that vectors are made of."""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from safepoint.core.keys import Hidden, SigningKey, lock
from safepoint.core.names import digest_of
from safepoint.core.record import Kind, Opened, Place, seal

Vector = dict[str, Any]

# 32 bytes that say what they are, and the first test key of RFC 8032.
SECRETS: Final = {
    "hmac": b"published test key: do not use!!",
    "hmac-2": b"another published key: no secret",
    "ed25519": bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"),
}
HMAC: Final = SigningKey(SECRETS["hmac"])
HMAC_2: Final = SigningKey(SECRETS["hmac-2"])
ED25519: Final = SigningKey(SECRETS["ed25519"], "ed25519")
PUBLIC: Final = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")

STATE: Final = b"\x81\xa5payee\xa5alice"
FIRST: Final = Place("invoices", "", "order-7", 1)
SECOND: Final = Place("invoices", "", "order-7", 2)
THIRD: Final = Place("invoices", "", "order-7", 3)
OF_ACME: Final = Place("invoices", "acme", "order-7", 1)


def sealed(
    place: Place,
    key: SigningKey = HMAC,
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
    signature = base64.b64encode(HMAC.sign(covered))
    return b"safepoint/1 %b %b\n%b\n%b" % (HMAC.id.encode(), signature, line_2, rest)


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
    found: Vector = {}
    for name, key in (("hmac", HMAC), ("hmac-2", HMAC_2), ("ed25519", ED25519)):
        secret = _text(SECRETS[name])
        found[name] = {
            "algorithm": key.algorithm,
            "id": key.id,
            "secret": secret,
            "file": f"safepoint-key/1 {key.algorithm} {secret}\n",
        }
    found["ed25519"]["public"] = _text(PUBLIC)
    found["ed25519"]["public_file"] = f"safepoint-public-key/1 ed25519 {_text(PUBLIC)}\n"
    return found


def refused_keys() -> list[Vector]:
    """Return key files that hold no key, or a public key for which anybody can sign."""
    zeros = _text(bytes(32))
    found = [
        ("empty", "Nothing.", ""),
        ("format-2", "Another format.", f"safepoint-key/2 hmac-sha256 {zeros}\n"),
        ("algorithm", "An unknown algorithm.", f"safepoint-key/1 none {zeros}\n"),
        ("bare", "No format and no algorithm.", f"{zeros}\n"),
        ("short", "31 bytes.", f"safepoint-key/1 hmac-sha256 {_text(bytes(31))}\n"),
        ("two-lines", "A second line.", f"safepoint-key/1 hmac-sha256 {zeros}\nhello\n"),
        ("public-hmac", "It has no public half.", f"safepoint-public-key/1 hmac-sha256 {zeros}\n"),
        *(
            (
                f"public-small-order-{number}",
                "A point of small order: anybody can sign for it.",
                f"safepoint-public-key/1 ed25519 {_text(point.to_bytes(32, 'little'))}\n",
            )
            for number, point in enumerate(_SMALL_ORDER, 1)
        ),
    ]
    return [
        {"name": name, "about": about, "file": text, "refused": "KeyRefused"}
        for name, about, text in found
    ]


PASSPHRASE: Final = "cr\u00e8me br\u00fbl\u00e9e, twice"  # noqa: S105  published
_SALT: Final = b"published salt!!"


@cache
def locked_keys() -> list[Vector]:
    """Return files of locked keys, each with a passphrase: some that open, and some that do not."""
    good = lock(ED25519, Hidden(PASSPHRASE.encode()), _SALT).reveal().decode()
    magic, algorithm, public, salt, box = good.split()
    other = _text(SigningKey(SECRETS["hmac"], "ed25519").public._public)
    costs = {"n": 2**17, "r": 8, "p": 1, "maxmem": 2**28, "dklen": 32}
    key = hashlib.scrypt(PASSPHRASE.encode(), salt=_SALT, **costs)
    before = f"{magic} {algorithm} {public} {salt} "
    foreign = ChaCha20Poly1305(key).encrypt(bytes(12), SECRETS["hmac"], before.encode())
    flipped = base64.b64decode(box)
    flipped = bytes([flipped[0] ^ 1]) + flipped[1:]
    opens = [
        ("locked", "Typed as it was.", PASSPHRASE),
        ("decomposed", "Typed as letters and accents.", unicodedata.normalize("NFD", PASSPHRASE)),
    ]
    refused = [
        ("passphrase", "Another passphrase.", good, PASSPHRASE.upper()),
        ("public", "Another key's public half.", good.replace(public, other)),
        ("salt", "Another salt.", good.replace(salt, _text(_SALT[::-1]))),
        ("box", "One bit of the box.", f"{before}{_text(flipped)}\n"),
        ("half", "Truly locked: the seed of another key.", f"{before}{_text(foreign)}\n"),
        ("cut", "A box of 45 bytes.", f"{before}{box[:-4]}\n"),
        ("salt-15", "A salt of 15 bytes.", good.replace(salt, _text(_SALT[1:]))),
        ("costs", "It names costs of its own.", f"{before}1024 8 1 {box}\n"),
        ("algorithm", "An HMAC key is not locked.", good.replace(algorithm, "hmac-sha256")),
        ("format-2", "Another format.", good.replace("key/1", "key/2")),
        ("open", "It is not locked.", f"safepoint-key/1 ed25519 {_text(SECRETS['ed25519'])}\n"),
        ("two-lines", "A second line.", f"{good}{good}"),
    ]
    secret = _text(SECRETS["ed25519"])
    return [
        *(
            {"name": n, "about": a, "passphrase": p, "file": good, "opens": {"secret": secret}}
            for n, a, p in opens
        ),
        *(
            {
                "name": name,
                "about": about,
                "passphrase": typed[0] if typed else PASSPHRASE,
                "file": text,
                "refused": "KeyRefused",
            }
            for name, about, text, *typed in refused
        ),
    ]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_P: Final = 2**255 - 19
_Y: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
# Seven spellings of y, the last two of them not reduced, and each with either top bit.
_SMALL_ORDER: Final = [
    y | sign for sign in (0, 1 << 255) for y in (0, 1, _P - 1, _Y, _P - _Y, _P, _P + 1)
]
