"""Rungs 0 to 5: how people keep checkpoints, each as short as they really write it."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
import secrets
from abc import abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from safepoint.attacks import naive
from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import HONEST, Miss
from safepoint.attacks.target import Target, Trick


class Refused(Exception):
    """The refusal of a home-made store."""


class Numbered(Target):
    """A store that keeps record 7 of thread `order` as `order.7.record`.

    A rung says how a state becomes a record and back. Where records lie, and who may put what
    there, none of these rungs asks.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = (Refused,)
    ending: ClassVar[str] = "record"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self.keys = [secrets.token_bytes(32)]  # for the rungs that have a use for one
        self.column = ""

    @abstractmethod
    def pack(self, thread: str, number: int, payload: bytes) -> bytes:
        """Return the record of an encoded state."""

    @abstractmethod
    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Return the state in a record, or refuse it."""

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Write the record under a temporary name, then rename it."""
        number = self.following(thread)
        name = self.place(thread, number)
        self.medium.write(f"{name}.tmp", self.pack(thread, number, encode(state)))
        self.medium.rename(f"{name}.tmp", name)

    def smuggle(self, thread: str, payload: bytes) -> None:
        """Write it like any other."""
        number = self.following(thread)
        self.medium.write(self.place(thread, number), self.pack(thread, number, payload))

    def following(self, thread: str) -> int:
        """Return the number of the next record."""
        return max(self.numbers(thread), default=0) + 1

    def latest(self, thread: str) -> Any:
        """Open the record with the highest number."""
        return self.load(thread, self.numbers(thread)[-1])

    def history(self, thread: str) -> list[Any]:
        """Open every record."""
        return [self.load(thread, number) for number in self.numbers(thread)]

    def load(self, thread: str, sequence: int) -> Any:
        """Open the record with that number."""
        return self.unpack(thread, sequence, self.medium.read(self.place(thread, sequence)))

    def tenant(self, name: str) -> Self:
        """Keep the tenant as a column does: next to each record, and in none."""
        other = copy.copy(self)
        other.column = f"@{name}."
        return other

    def numbers(self, thread: str) -> list[int]:
        """Return the numbers of the thread's records, in order."""
        return self._found(thread)

    def records(self, thread: str) -> list[str]:
        """Return the names of the thread's records, in order."""
        return [self.place(thread, number) for number in self._found(thread)]

    def _found(self, thread: str) -> list[int]:
        parts = [name.rsplit(".", 2) for name in self.medium.names()]
        ends = [f"{self.column}{thread}", self.ending]
        return sorted(int(part[1]) for part in parts if part[::2] == ends)

    def place(self, thread: str, sequence: int) -> str:
        """Return the name of a record."""
        return f"{self.column}{thread}.{sequence}.{self.ending}"

    def ahead(self, thread: str) -> list[str]:
        """Return the next temporary name, and the name after it."""
        (name,) = super().ahead(thread)
        return [f"{name}.tmp", name]


class NaiveTarget(Numbered):
    """The unsafe twin. It has no refusals of its own; its type check is all there is.

    It keeps the objects themselves at hand, for anyone who asks next for the same record.
    """

    name = "naive"
    title = "no protection"
    refusals = (TypeError,)
    ending = "json"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self._at_hand: dict[bytes, Any] = {}

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Write the record where it belongs at once."""
        number = self.following(thread)
        record = naive.record(thread, number, naive.encode(state))
        self._at_hand[record] = state
        self.medium.write(self.place(thread, number), record)

    def ahead(self, thread: str) -> list[str]:
        """Return the next name."""
        return super().ahead(thread)[1:]

    def pack(self, thread: str, number: int, payload: bytes) -> bytes:
        """Write what the unsafe twin writes, around whatever it is."""
        return naive.record(thread, number, 0).replace(b'"state": 0', b'"state": ' + payload)

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Decode as the unsafe twin does."""
        if record in self._at_hand:
            return self._at_hand[record]
        return naive.decode(json.loads(record)["state"])

    def pickled(self, pickle: bytes, type_name: str) -> bytes:
        """Embed the pickle where the twin looks for one."""
        encoded = base64.b64encode(pickle).decode()
        return naive.record("victim", 1, {"__pickled__": encoded, "__type__": type_name})


def encode(state: Any) -> bytes:
    """Return plain JSON.

    Raises:
        Refused: the state would not come back as it is.
    """
    data = json.dumps(state).encode()
    if decode(data) != state:
        raise Refused("not a plain state")
    return data


def decode(data: bytes) -> Any:
    """Return what plain JSON holds: no type by name, no key twice, no NaN.

    Its depth and its size are whatever they are.

    Raises:
        Refused: it is something else.
    """
    try:
        return json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except ValueError as error:
        raise Refused(f"not JSON: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) or any(key.startswith(("__", "$")) for key in found):
        # The usual slip: a message that helps to find the mistake, and shows the state.
        raise Refused(f"a key is there twice, or is reserved: {pairs}")
    return found


def _constant(name: str) -> NoReturn:
    raise Refused(f"{name} is not a number")


def _fields(record: bytes, *names: str) -> dict[str, Any]:
    found = decode(record)
    if not isinstance(found, dict) or not {*names} <= set(found):
        raise Refused("not a record")
    return found


class AllowListTarget(Numbered):
    """Decodes strictly, so that nothing runs. Takes the record with the newest date for the latest.

    It believes every word, because any word could be its own.
    """

    name = "allow-list"
    title = "allow-list only"

    def pack(self, thread: str, number: int, payload: bytes) -> bytes:
        """Write the state next to the time."""
        created = datetime.now(UTC).isoformat(timespec="microseconds").encode()
        return b'{"created": "%b", "state": %b}' % (created, payload)

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Return the state."""
        return _fields(record, "created", "state")["state"]

    def latest(self, thread: str) -> Any:
        """Return the state with the newest date."""
        found = [self.medium.read(self.place(thread, number)) for number in self.numbers(thread)]
        records = [_fields(record, "created", "state") for record in found]
        return max(records, key=lambda record: str(record["created"]))["state"]


_NONCE = 16


class EncryptedTarget(Numbered):
    """AES-256 in counter mode, with a fresh nonce per record, around the strict decoder.

    In this mode a flipped bit of the ciphertext flips the same bit of the state. Anyone who knows
    what a record says, or only how it begins, can make it say something else of that length.

    AES-GCM refuses that edit. Without associated data it refuses nothing more: a record of
    another thread, of another store or of last week decrypts as well as it ever did. It then
    is where a MAC without context stands, two rungs up.
    """

    name = "encrypted"
    title = "encryption only"

    def pack(self, thread: str, number: int, payload: bytes) -> bytes:
        """Encrypt the state."""
        return _encrypted(self.keys[-1], payload)

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Decrypt the state, and decode what comes out."""
        if len(record) < _NONCE:
            raise Refused("too short")
        return decode(_crypt(self.keys[-1], record[:_NONCE], record[_NONCE:]))

    def edit(self, record: bytes, old: bytes, new: bytes) -> bytes:
        """Flip the bits in which `old` and `new` differ, where the format has them."""
        offset = encode(HONEST).find(old)
        if offset < 0 or len(old) != len(new):
            raise Miss
        edited = bytearray(record)
        for index, (before, after) in enumerate(zip(old, new, strict=True), _NONCE + offset):
            edited[index] ^= before ^ after
        return bytes(edited)

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Encrypt under a key of one's own: a whole record from nothing is out of reach here."""
        if trick != "best":
            raise Miss
        return _encrypted(secrets.token_bytes(32), payload)


def _encrypted(key: bytes, payload: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE)
    return nonce + _crypt(key, nonce, payload)


def _crypt(key: bytes, nonce: bytes, data: bytes) -> bytes:
    return Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor().update(data)


_START = "0" * 64


class HashChainTarget(Numbered):
    """Each record names the hash of the one before it, and its own. Anybody can compute both.

    It checks the whole chain first and reads the newest record afterwards. That is two reads, and
    the adversary may come in between.
    """

    name = "hash-chain"
    title = "hash chain"

    def pack(self, thread: str, number: int, payload: bytes) -> bytes:
        """Write the own hash, the previous one, and the state."""
        previous = _START
        if number > 1:
            previous = _split(self.medium.read(self.place(thread, number - 1)))[0]
        return _linked(previous, payload)

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Return the state."""
        return decode(_split(record)[2])

    def load(self, thread: str, sequence: int) -> Any:
        """Check the chain, then open one record."""
        previous = _START
        for name in self.records(thread):
            record = self.medium.read(name)
            own, link, payload = _split(record)
            if link != previous or _linked(link, payload) != record:
                raise Refused(f"{name} breaks the chain")
            previous = own
        return super().load(thread, sequence)

    def relink(self, thread: str) -> None:
        """Compute the chain again. It takes no secret."""
        previous = _START
        for name in self.records(thread):
            record = _linked(previous, _split(self.medium.read(name))[2])
            self.medium.write(name, record)
            previous = _split(record)[0]


def _linked(previous: str, payload: bytes) -> bytes:
    rest = previous.encode() + b"\n" + payload
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def _split(record: bytes) -> tuple[str, str, bytes]:
    own, _, rest = record.partition(b"\n")
    previous, _, payload = rest.partition(b"\n")
    return own.decode("latin-1"), previous.decode("latin-1"), payload


_DEVELOPMENT = b"development"


class Keyed(Numbered):
    """A store that verifies with each key that it ever had."""

    def rotate(self) -> None:
        """Sign with a new key. What the old one signed stays good: so much of it is stored."""
        self.keys = [*self.keys, secrets.token_bytes(32)]


class MacTarget(Keyed):
    """HMAC over the state, with the three habits that usually come with it.

    The record says which key and which algorithm to check it with, and the key for development is
    still on the ring. A record without a MAC is an old one, from before there were any. And what
    is checked is not what is stored, but the state written again.
    """

    name = "mac"
    title = "MAC without context"

    def pack(self, thread: str, number: int, payload: bytes) -> bytes:
        """Write key, algorithm and MAC next to the state."""
        return _with_mac(decode(payload), len(self.keys), self.keys[-1])

    smuggle = Target.smuggle  # around what has no MAC: it takes bytes that are no JSON as well

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Check the MAC if there is one, as the record says."""
        fields = _fields(record, "state")
        if "mac" in fields and not self._is_right(fields):
            raise Refused(f"{thread} {number} has a wrong MAC")
        return fields["state"]

    def _is_right(self, fields: dict[str, Any]) -> bool:
        try:
            if fields["algorithm"] == "none":
                return True
            key = [_DEVELOPMENT, *self.keys][fields["key"]]
            mac = _mac(fields["state"], key, fields["algorithm"])
            return hmac.compare_digest(mac, fields["mac"])
        except (LookupError, TypeError, ValueError):
            return False

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Leave the MAC out, sign with the key that everybody knows, or name no algorithm."""
        if trick == "own-key":
            return _with_mac(json.loads(payload), 0, _DEVELOPMENT)
        none = b'"algorithm": "none", "mac": "", ' if trick == "no-algorithm" else b""
        return b"{" + none + b'"state": ' + payload + b"}"


def _with_mac(state: Any, number: int, key: bytes) -> bytes:
    mac = _mac(state, key, "sha256")
    return encode({"algorithm": "sha256", "key": number, "mac": mac, "state": state})


def _mac(state: Any, key: bytes, algorithm: str) -> str:
    return hmac.new(key, json.dumps(state, sort_keys=True).encode(), algorithm).hexdigest()


class MacPlaceTarget(Keyed):
    """HMAC over the store, the thread, the number and the stored bytes. No fallback.

    The keys are pinned, and they are all there is: a record says nothing about them. Nothing
    links one record to the next and nothing says how many there were.
    """

    name = "mac-place"
    title = "MAC with place"

    def pack(self, thread: str, number: int, payload: bytes) -> bytes:
        """Write the MAC above the state."""
        return self._sealed(self.keys[-1], thread, number, payload)

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Check the MAC of this place, then decode."""
        payload = record.partition(b"\n")[2]
        right = [self._sealed(key, thread, number, payload) for key in self.keys]
        if not any(hmac.compare_digest(record, each) for each in right):
            raise Refused(f"{thread} {number} has a wrong MAC")
        return decode(payload)

    def numbers(self, thread: str) -> list[int]:
        """Return the numbers, which have no gap."""
        found = super().numbers(thread)
        if found != list(range(1, len(found) + 1)):
            raise Refused(f"a record of {thread} is missing")
        return found

    def _sealed(self, key: bytes, thread: str, number: int, payload: bytes) -> bytes:
        place = json.dumps([self.store, thread, number]).encode()
        mac = hmac.digest(key, place + b"\n" + payload, hashlib.sha256)
        return mac.hex().encode() + b"\n" + payload

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Use a key of one's own, a hash in place of the MAC, or none."""
        if trick == "unsigned":
            return payload
        if trick == "no-algorithm":
            return hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload
        return self._sealed(_DEVELOPMENT, "victim", 1, payload)
