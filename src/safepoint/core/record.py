"""The one sealed envelope: seal, open, link. These functions decide about bytes they are given."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

from safepoint.core.errors import InvalidId, LimitExceeded, RolledBack, SealBroken, quoted
from safepoint.core.keys import Key, Keyring, SigningKey
from safepoint.core.names import (
    DEFAULT_LIMITS,
    Head,
    Limits,
    check_name,
    check_sequence,
    digest_of,
    is_digest,
    stamp,
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that a ledger returned. Its seal, place and digest were verified.

    The `repr` omits the state, so that a log line cannot leak it.

    Attributes:
        store: the store that the ledger was opened for.
        tenant: the tenant, or "" if the store has none.
        thread: one run of one workflow.
        sequence: 1, 2, 3 … in the thread. It gives the order; the clock does not.
        app: what wrote it, as passed to `Ledger.save`.
        created: when it was written, in UTC, by the writer's clock. For people, not for ordering.
        previous: the digest of the checkpoint before it, or None for the first.
        digest: the digest of its sealed header, which covers everything else.
        tools: the digest of the tool set in use, or None.
        kind: "state"; or "note", for a record of the chain that is not a state.
        label: a word chosen by its writer, or "".
        state: the decoded state. It is yours: changing it changes nothing stored.
    """

    store: str
    tenant: str
    thread: str
    sequence: int
    app: str
    created: datetime
    previous: str | None
    digest: str
    tools: str | None
    kind: Kind
    label: str
    state: Any = field(repr=False)


Kind = Literal["state", "note", "base", "deleted"]
"""A state, a note between states, the base of a pruned thread, or a tombstone."""


_NAME: Final = "[a-z0-9][a-z0-9_-]{0,63}"
_DIGEST: Final = "sha256:[0-9a-f]{64}"
_WORD: Final = re.compile("[A-Za-z0-9._@/+:-]{0,128}")
KEY_ID: Final = re.compile("[0-9a-f]{16}")
_DAY, _TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}", r"(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"
_FIELDS: Final = {
    "app": f'"({_WORD.pattern})"',
    "cipher": f'(?:null|"({KEY_ID.pattern})")',
    "created": f'"({_DAY}T{_TIME})"',
    "digest": f'"({_DIGEST})"',
    "kind": f'"({"|".join(get_args(Kind))})"',
    "label": f'"({_WORD.pattern})"',
    "previous": f'(?:null|"({_DIGEST})")',
    "sequence": "([1-9][0-9]{0,9})",
    "store": f'"({_NAME})"',
    "tenant": f'"((?:{_NAME})?)"',
    "thread": f'"({_NAME})"',
    "tools": f'(?:null|"({_DIGEST})")',
}
"""The fields of line 2, and the grammar of each."""
_LINE_2 = re.compile("{" + ",".join(f'"{name}":{text}' for name, text in _FIELDS.items()) + "}")


_to_json: Final = json.JSONEncoder(separators=(",", ":")).encode


class Place(NamedTuple):
    """The place where the reader expects a record. The tenant may be empty."""

    store: str
    tenant: str
    thread: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.thread} #{self.sequence}"

    @property
    def scope(self) -> str:
        """The store and the tenant, for a message."""
        return f"store {self.store}" + (self.tenant and f", tenant {self.tenant}")


class Cipher(Protocol):
    """Encrypts the encoded state before it is sealed, and decrypts it after verification.

    The seal covers the ciphertext and its place. The reader decides whether a store is encrypted; a
    record never does. This package has no cipher. A minimal sound one:

    ```python
    import os

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey


    class OneKey:
        def __init__(self, key):
            self.box = AESGCM(key)

        def close(self, plain, place):
            nonce = os.urandom(12)
            text = self.box.encrypt(nonce, plain, repr(place).encode())
            return "0123456789abcdef", nonce + text

        def open(self, text, key, place):
            return self.box.decrypt(text[:12], text[12:], repr(place).encode())


    keys, storage = Keyring(SigningKey.generate()), InMemoryCheckpointStorage()
    cipher = OneKey(AESGCM.generate_key(256))
    ledger = Ledger(storage, store="invoices", keys=keys, cipher=cipher)
    ledger.save("order-7", {"amount": 42})
    print(b"amount" in storage.read("order-7", 1), ledger.latest("order-7").state)
    #> False {'amount': 42}
    ```
    """

    def close(self, plain: bytes, place: Place) -> tuple[str, bytes]:
        """Return the id of the key, 16 lowercase hex digits, and the ciphertext.

        The ciphertext is at most 2,048 bytes longer and never the same twice. The place tells
        which key to use, if each tenant or thread has its own.
        """

    def open(self, text: bytes, key: str, place: Place) -> bytes:
        """Return the plaintext for that place, using the key with that id, which may be old."""


class Header(NamedTuple):
    """Line 2 of a record."""

    app: str
    cipher: str | None
    created: str
    digest: str
    kind: Kind
    label: str
    previous: str | None
    sequence: int
    store: str
    tenant: str
    thread: str
    tools: str | None

    @property
    def place(self) -> Place:
        """The place that it names."""
        return Place(self.store, self.tenant, self.thread, self.sequence)

    def __bytes__(self) -> bytes:
        return _to_json(self._asdict()).encode()

    @classmethod
    def parse(cls, line: bytes) -> Header | None:
        """Return the header in `line`, or None if it is malformed."""
        # Latin-1 never fails, and what it makes of a byte above 127 is in no grammar below.
        found = _LINE_2.fullmatch(line.decode("latin-1"))
        if found is None:
            return None
        fields: list[Any] = list(found.groups())
        fields[7] = int(fields[7])
        header = cls._make(fields)
        try:
            datetime.fromisoformat(header.created)
        except ValueError:
            return None
        if (header.sequence == 1) != (header.previous is None):
            return None
        if (header.label or header.cipher) and header.kind in ("base", "deleted"):  # no state
            return None
        return header


def check_word(word: object, called: str = "an app name") -> str:
    """Return the name of an app, or the label of a record, if it is valid.

    Raises:
        InvalidId: it is outside the grammar.
    """
    if not isinstance(word, str) or not _WORD.fullmatch(word):
        raise InvalidId(
            f"{quoted(word)} is not {called}.",
            "Use up to 128 of A-Z, a-z, 0-9 and . _ @ / + : -",
        )
    return word


FORMAT: Final = "safepoint/1"
Use = Literal["record", "journal", "approval", "order", "model"]
"""The use of an envelope. The signature covers it, so that none opens as another.

An `order` is an answer or a hold in the answers store.
"""

# A signature has 64 bytes. Its last letter has no bits to spare, so that it has one spelling.
_LINE_1 = re.compile(rb"safepoint/1 ([0-9a-f]{16}) ([A-Za-z0-9+/]{85}[AQgw]==)\n")
_MAX_HEADER: Final = 2048


@dataclass(frozen=True, slots=True)
class Opened:
    """A verified record: its header, its digest for the next link, and the encoded state.

    Attributes:
        header: line 2.
        digest: the digest of line 2, which the next record names. It is independent of the key.
        key: the id of the key that sealed it, or while that is unchecked, the hint of line 1.
        payload: the encoded state, or its ciphertext.
        unchecked: its signature, if it was verified by `digest` alone.
    """

    header: Header
    digest: str
    key: str
    payload: bytes = field(repr=False)
    unchecked: bytes = field(default=b"", repr=False)

    @property
    def head(self) -> Head:
        """The head of its thread if this is the last record."""
        return Head(self.header.sequence, self.digest)

    def checkpoint(self, state: Any) -> Checkpoint:
        """Return the checkpoint for this record and its decoded state."""
        header = self.header
        created = datetime.fromisoformat(header.created)
        links = header.previous, self.digest, header.tools
        return Checkpoint(
            *header.place, header.app, created, *links, header.kind, header.label, state
        )


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
    label: str = "",
    cipher: str | None = None,
    use: Use = "record",
) -> tuple[bytes, Opened]:
    """Return the record that binds `payload` to `place`, as bytes and as `open_sealed` returns it.

    Raises:
        InvalidId: a name, the sequence or another field is outside its grammar.
    """
    if tools is not None and not is_digest(tools):
        raise InvalidId(
            f"{quoted(tools)} is not the digest of a tool set.",
            "Pass ToolSet(...).digest, or None.",
        )
    header = Header(
        app=check_word(app),
        cipher=cipher,
        created=stamp(created),
        digest=digest_of(payload),
        kind=kind,
        label=check_word(label, "a label"),
        previous=previous,
        sequence=check_sequence(place.sequence),
        store=check_name("store", place.store),
        tenant=place.tenant and check_name("tenant", place.tenant),
        thread=check_name("thread", place.thread),
        tools=tools,
    )
    line_2 = bytes(header)
    if created.tzinfo is None or Header.parse(line_2) != header:
        raise InvalidId(
            "The header of a record is outside its grammar: a kind, a digest, the id of a"
            " cipher, a time without a zone, or a first record that has a previous one.",
            "Write records with Ledger.save.",
        )
    return _compose(line_2, payload, key, use), Opened(header, digest_of(line_2), key.id, payload)


def reseal(opened: Opened, key: SigningKey, use: Use = "record") -> bytes:
    """Return the record resealed by `key`. Its digest and every link to it stay the same."""
    return _compose(bytes(opened.header), opened.payload, key, use)


def _compose(line_2: bytes, payload: bytes, key: SigningKey, use: Use) -> bytes:
    return b"%b\n%b\n%b" % (sign_line(line_2, key, use), line_2, payload)


def sign_line(line_2: bytes, key: SigningKey, use: Use) -> bytes:
    """Return line 1 of an envelope: the format, the key's id, and the signature of line 2."""
    signature = base64.b64encode(key.sign(_prefix(line_2, use)))
    return b"%b %b %b" % (FORMAT.encode(), key.id.encode(), signature)


def read_line(line_1: bytes) -> tuple[str, bytes] | None:
    """Return the key id and the signature in line 1, or None if it is malformed."""
    found = _LINE_1.fullmatch(line_1 + b"\n")
    return None if found is None else (found[1].decode(), base64.b64decode(found[2]))


def is_signed(line_2: bytes, signature: bytes, key: Key, use: Use) -> bool:
    """Tell whether `key` signed line 2 for this use."""
    return key.verify(_prefix(line_2, use), signature)


def check_signed(opened: Opened, keys: Keyring, use: Use) -> Opened:
    """Return a record whose signature is checked, even if it was verified by `digest` alone.

    Raises:
        SealBroken: no key that counts signed it.
    """
    line_2, signature = bytes(opened.header), opened.unchecked
    if signature and not is_signed(line_2, signature, keys.find(opened.key), use):
        raise _unsigned(opened.header.place)
    return replace(opened, unchecked=b"") if signature else opened


def _unsigned(shown: object) -> SealBroken:
    return SealBroken(f"{shown} was changed after it was sealed, or was never sealed.")


def open_sealed(
    record: bytes,
    place: Place,
    keys: Keyring,
    *,
    base: bool = False,
    digest: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    use: Use = "record",
) -> Opened:
    """Verify a record in the one order that is safe, and return it still encoded.

    Args:
        record: the bytes from the storage.
        place: the place that they must name.
        keys: the trusted keys.
        base: whether this must be the base of a pruned thread instead of a checkpoint.
        digest: the digest that a verified record names. A header that has it is genuine, because
            nobody can make another one with the same digest. Who sealed it is left unchecked:
            whoever returns its state calls `check_signed`.
        limits: how large it may be.
        use: the use that the signature must name.

    Raises:
        LimitExceeded: it is larger than the limit.
        SealBroken: it is not what was sealed for that place, by a key that counts there.
    """
    shown = f"{place.thread} base #{place.sequence}" if base else place

    # 1. size
    if len(record) > limits.record_bytes:
        raise LimitExceeded(
            f"{shown} is {len(record)} bytes, over the limit of {limits.record_bytes}."
        )

    # 2. the grammar of line 1
    line_1 = _LINE_1.match(record)
    if line_1 is None:
        raise SealBroken(
            f"{shown} is not a sealed record.",
            f"{SealBroken.do} If it is yours, from before there were seals, see safepoint.moving.",
            "form",
        )
    key_id, signature = line_1.groups()

    # 3. the signature, by a key that the caller trusts
    end = record.find(b"\n", line_1.end(), line_1.end() + _MAX_HEADER + 1)
    if end < 0:
        raise SealBroken(f"{shown} is cut short: its second line does not end.", kind="form")
    line_2 = record[line_1.end() : end]
    try:
        key = keys.find(key_id.decode())
    except SealBroken as unknown:
        raise SealBroken(f"{shown} cannot be verified. {unknown.what}", unknown.do, "key") from None
    own_digest, unchecked = digest_of(line_2), base64.b64decode(signature)
    if own_digest != digest:
        if not is_signed(line_2, unchecked, key, use):
            raise _unsigned(shown)
        unchecked = b""

    # 4. line 2: from here on, written by a holder of the key
    header = Header.parse(line_2)
    if header is None:
        raise SealBroken(f"{shown} has a header that this release did not write.", kind="form")

    # 5. its place
    found = header.store, header.tenant, header.thread, header.sequence
    if found != place or (header.kind == "base") != base:
        raise _misplaced(header.kind, header.place, place)

    # 6. the state's digest
    rest = record[end + 1 :]
    if digest_of(rest) != header.digest:
        raise SealBroken(f"The state of {shown} is not the one that was sealed.")
    return Opened(header, own_digest, key.id, rest, unchecked)


_PREFIX: Final = {use: f"{FORMAT} {use}\n".encode() for use in get_args(Use)}


def _prefix(line_2: bytes, use: Use) -> bytes:
    return _PREFIX[use] + line_2


def _misplaced(kind: Kind, found: Place, place: Place) -> SealBroken:
    what = f"is the one of {found} of {found.scope}."
    at = f"The record at {place} of {place.scope}"
    do = None
    if found == place:
        what, at = f"is of the kind {kind}, which does not belong there.", f"The record at {place}"
    elif found[:2] != place[:2]:
        do = "If you did not mistype the store or the tenant, find out who moved it here."
    return SealBroken(f"{at} {what}", do, "place" if found.tenant == place.tenant else "tenant")


ANCHOR: Final = "the anchor"
PROCESS: Final = "this process"


def check_reaches(thread: str, head: int, known: Head | None, witness: str) -> None:
    """Refuse a thread that ends before a known head.

    Args:
        thread: the thread, for the message.
        head: the last sequence in the storage, read after `known`.
        known: the known head.
        witness: who saw it.

    Raises:
        RolledBack: records were cut off, or an older copy was restored.
    """
    if known is not None and head < known.sequence:
        gone = f"ends at #{head}" if head else "is gone"
        raise RolledBack(f"{thread} {gone}, and {witness} has seen {known}.")


def check_is(opened: Opened, known: Head, witness: str) -> None:
    """Refuse a record that is not the known one at its place.

    Raises:
        RolledBack: another genuine record is there, so there are two histories.
    """
    if opened.digest != known.digest:
        raise RolledBack(
            f"{opened.header.thread} {known} is not the record that {witness} has seen there.",
            kind="other",
        )


def check_follows(opened: Opened, previous: str | None) -> None:
    """Refuse a record whose predecessor is not the one before it, or the base.

    Raises:
        SealBroken: one of the two was replaced.
    """
    header = opened.header
    if header.previous != previous:
        raise SealBroken(
            f"{header.thread} #{header.sequence} does not follow the #{header.sequence - 1} that"
            " is stored, or that its base names.",
            kind="chain",
        )
