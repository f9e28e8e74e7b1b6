"""Rung 2: encryption only. Nobody can read it, and anybody can change it."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import HONEST, Miss
from safepoint.attacks.rungs import plain
from safepoint.attacks.rungs.numbered import Numbered, Refused
from safepoint.attacks.target import Trick

_NONCE = 16


class EncryptedTarget(Numbered):
    """AES-256 in counter mode, with a fresh nonce per record, around the strict decoder.

    In this mode a flipped bit of the ciphertext flips the same bit of the state. Whoever knows
    what a record says, or only how it begins, can make it say something else of that length.

    AES-GCM refuses that edit. Without associated data it refuses nothing more: a record of
    another thread, of another store or of last week decrypts as well as it ever did. It then
    stands where a MAC without context stands, two rungs up.
    """

    name = "encrypted"
    title = "encryption only"

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self.key = secrets.token_bytes(32)

    def pack(self, thread: str, number: int, state: dict[str, Any]) -> bytes:
        """Encrypt the state."""
        del thread, number
        return self._encrypted(plain.encode(state))

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Decrypt the state, and decode what comes out."""
        del thread, number
        if len(record) < _NONCE:
            raise Refused("too short")
        return plain.decode(self._crypt(record[:_NONCE], record[_NONCE:]))

    def smuggle(self, thread: str, payload: bytes) -> None:
        """Encrypt it like any other."""
        name = self.place(thread, self.following(thread))
        self.medium.write(name, self._encrypted(payload))

    def _encrypted(self, payload: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._crypt(nonce, payload)

    def _crypt(self, nonce: bytes, data: bytes) -> bytes:
        return Cipher(algorithms.AES(self.key), modes.CTR(nonce)).encryptor().update(data)

    def edit(self, record: bytes, old: bytes, new: bytes) -> bytes:
        """Flip the bits in which `old` and `new` differ, where the format has them."""
        offset = plain.encode(HONEST).find(old)
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
        del record
        nonce = secrets.token_bytes(_NONCE)
        cipher = Cipher(algorithms.AES(secrets.token_bytes(32)), modes.CTR(nonce))
        return nonce + cipher.encryptor().update(payload)
