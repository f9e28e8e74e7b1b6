"""Rungs 4 and 5: a MAC over the state alone, and one over the state and its place."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from pathlib import Path
from typing import Any

from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import Miss
from safepoint.attacks.rungs import plain
from safepoint.attacks.rungs.numbered import Numbered, Refused
from safepoint.attacks.target import Trick

_DEVELOPMENT = b"development"


class MacTarget(Numbered):
    """HMAC over the state, with the three habits that usually come with it.

    The record says which key and which algorithm to check it with, and the key for development is
    still on the ring. A record without a MAC is an old one, from before there were any. And what
    is checked is not what is stored, but the state written again.
    """

    name = "mac"
    title = "MAC without context"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self.keys = {"development": _DEVELOPMENT, "2025": secrets.token_bytes(32)}
        self.signing = "2025"

    def pack(self, thread: str, number: int, state: dict[str, Any]) -> bytes:
        """Write key, algorithm and MAC next to the state."""
        del thread, number
        return _with_mac(state, self.signing, self.keys[self.signing])

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Check the MAC if there is one, as the record says."""
        fields = plain.decode(record)
        if not isinstance(fields, dict) or "state" not in fields:
            raise Refused(f"{thread} {number} is not a record")
        if "mac" in fields and not self._is_right(fields):
            raise Refused(f"{thread} {number} has a wrong MAC")
        return fields["state"]

    def _is_right(self, fields: dict[str, Any]) -> bool:
        try:
            if fields["algorithm"] == "none":
                return True
            mac = _mac(fields["state"], self.keys[fields["key"]], fields["algorithm"])
            return hmac.compare_digest(mac, fields["mac"])
        except (KeyError, TypeError, ValueError):
            return False

    def rotate(self) -> None:
        """Sign with a new key. What the old one signed stays good: so much of it is stored."""
        self.keys = {**self.keys, "2026": secrets.token_bytes(32)}
        self.signing = "2026"

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Leave the MAC out, sign with the key that everybody knows, or name no algorithm."""
        del record
        if trick in ("best", "unsigned"):
            return b'{"state": ' + payload + b"}"
        if trick == "own-key":
            return _with_mac(json.loads(payload), "development", _DEVELOPMENT)
        return b'{"algorithm": "none", "mac": "", "state": ' + payload + b"}"


class MacPlaceTarget(Numbered):
    """HMAC over the store, the thread, the number and the stored bytes. No fallback.

    The keys are pinned, and they are all there is: a record says nothing about them. Nothing
    links one record to the next, and nothing says how many there were.
    """

    name = "mac-place"
    title = "MAC with place"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self.keys = [secrets.token_bytes(32)]

    def pack(self, thread: str, number: int, state: dict[str, Any]) -> bytes:
        """Write the MAC above the state."""
        return self._with_place(thread, number, plain.encode(state))

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Check the MAC of this place, then decode."""
        mac, _, payload = record.partition(b"\n")
        macs = [self._mac(key, thread, number, payload) for key in self.keys]
        if not any(hmac.compare_digest(mac, right) for right in macs):
            raise Refused(f"{thread} {number} has a wrong MAC")
        return plain.decode(payload)

    def smuggle(self, thread: str, payload: bytes) -> None:
        """Compute its MAC like any other."""
        number = self.following(thread)
        self.medium.write(self.place(thread, number), self._with_place(thread, number, payload))

    def _with_place(self, thread: str, number: int, payload: bytes) -> bytes:
        return self._mac(self.keys[-1], thread, number, payload) + b"\n" + payload

    def numbers(self, thread: str) -> list[int]:
        """Return the numbers, which have no gap."""
        found = super().numbers(thread)
        if found != list(range(1, len(found) + 1)):
            raise Refused(f"a record of {thread} is missing")
        return found

    def _mac(self, key: bytes, thread: str, number: int, payload: bytes) -> bytes:
        place = json.dumps([self.store, thread, number]).encode()
        return hmac.digest(key, place + b"\n" + payload, hashlib.sha256).hex().encode()

    def rotate(self) -> None:
        """Sign with a new key. What the old one signed stays good: so much of it is stored."""
        self.keys = [*self.keys, secrets.token_bytes(32)]

    def forge(self, record: bytes, payload: bytes, trick: Trick = "best") -> bytes:
        """Use a key of one's own, a hash in place of the MAC, or none."""
        del record
        if trick == "unsigned":
            return payload
        if trick == "no-algorithm":
            return hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload
        if trick in ("best", "own-key"):
            return self._mac(_DEVELOPMENT, "victim", 1, payload) + b"\n" + payload
        raise Miss


def _with_mac(state: Any, key_id: str, key: bytes) -> bytes:
    mac = _mac(state, key, "sha256")
    fields = {"algorithm": "sha256", "key": key_id, "mac": mac, "state": state}
    return plain.encode(fields)


def _mac(state: Any, key: bytes, algorithm: str) -> str:
    return hmac.new(key, json.dumps(state, sort_keys=True).encode(), algorithm).hexdigest()
