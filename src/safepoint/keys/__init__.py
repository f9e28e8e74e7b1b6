"""Keys, and the keyring that says which of them to trust.

The algorithm is a property of the key, never of a record. A record names a key only as a hint;
whether that key counts is decided by the caller's keyring.
"""

from __future__ import annotations

from safepoint.keys.algorithms import Algorithm
from safepoint.keys.base import Key
from safepoint.keys.revoked import Revoked
from safepoint.keys.ring import Keyring
from safepoint.keys.signing import SigningKey
from safepoint.keys.verifying import VerifyingKey

__all__ = ["Algorithm", "Key", "Keyring", "Revoked", "SigningKey", "VerifyingKey"]
