"""The keys that a reader trusts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from safepoint.errors import KeyRefused, UnknownKey, quoted
from safepoint.heads import Heads
from safepoint.keys.base import Key
from safepoint.keys.revoked import Revoked, RevokedKey
from safepoint.keys.signing import SigningKey

_T = TypeVar("_T")


class Keyring:
    """The keys to trust: one that signs, older ones that still verify, and revoked ones.

    ```python
    from safepoint import Keyring, SigningKey

    old, new = SigningKey.generate(), SigningKey.generate()
    keys = Keyring(new, verify=[old])  # seals with `new`, still opens what `old` sealed
    ```

    A ring never changes. To rotate, make the next one from it:

    ```python
    from safepoint import Keyring, SigningKey

    keys = Keyring(SigningKey.generate())
    keys = keys.rotated(SigningKey.generate("ed25519"))
    print([key.algorithm for key in keys])
    #> ['hmac-sha256', 'ed25519']
    ```

    Args:
        signing: the key that seals. Leave it out for a reader that must not write.
        verify: keys whose records are opened too, oldest first.
        revoked: keys whose records are opened up to a point alone. One that is also in `verify`
            is revoked.

    Raises:
        KeyRefused: there is no key at all, something is no key, the signing key is revoked, a key
            is revoked twice, a key of `verify` was taken off a ring on which it is revoked, or
            two keys have one id.
    """

    __slots__ = ("_keys", "_revoked", "_signing")

    def __init__(
        self,
        signing: SigningKey | None = None,
        *,
        verify: Key | Iterable[Key] = (),
        revoked: Revoked | Iterable[Revoked] = (),
    ) -> None:
        older = _listed(verify, Key, "verify=[key], or keyring.rotated(key) to keep a whole ring")
        gone = _listed(
            revoked, Revoked, 'revoked=[Revoked(key, until=FileAnchor("anchor-before"))]'
        )
        if signing is not None:
            _check_signs(signing)
        self._signing: Final = signing
        self._revoked: Final = _revoked(gone, signing)
        _check_counts(older, self._revoked)
        self._keys: Final = _ordered(older, gone, signing)

    @property
    def signing(self) -> SigningKey:
        """The key that seals.

        Raises:
            KeyRefused: this ring only verifies.
        """
        if self._signing is None:
            raise KeyRefused(
                "This keyring only verifies: no key on it signs.",
                "Save where the signing key is, with Keyring(SigningKey.from_file(path)).",
            )
        return self._signing

    @property
    def all(self) -> tuple[Key, ...]:
        """Every key, oldest to newest, the signing key last.

        A revoked one is a `RevokedKey`, which another ring takes only if it is revoked there too.
        """
        return tuple(
            RevokedKey(key) if key.id in self._revoked else key for key in self._keys.values()
        )

    def find(self, key_id: str) -> Key:
        """Return the key of that id. Ask `revoked` too: a revoked key is found as well.

        Raises:
            UnknownKey: no key of this ring has that id.
        """
        key = self._keys.get(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise UnknownKey(
                f"It names key {quoted(key_id)}, which is not on this keyring.",
                "If that key is one of yours, add it with Keyring(..., verify=[key]); "
                "if not, treat the record as forged.",
            )
        return key

    def revoked(self, key_id: str) -> Revoked | None:
        """Return how far the key of that id counts, or None if it is not revoked."""
        return self._revoked.get(key_id) if isinstance(key_id, str) else None

    def rotated(self, signing: SigningKey) -> Keyring:
        """Return a ring that signs with a new key and verifies with all that are on this one.

        Raises:
            KeyRefused: it is no signing key, or is revoked.
        """
        _check_signs(signing)
        return Keyring(signing, verify=self._keys.values(), revoked=self._revoked.values())

    def revoking(self, key: Key | str, *, until: Heads | None) -> Keyring:
        """Return a ring on which a key counts up to a point alone. Rotate first, if it signs.

        ```python
        from safepoint import Keyring, SigningKey

        stolen = SigningKey.generate()
        keys = Keyring(stolen).rotated(SigningKey.generate()).revoking(stolen, until=None)
        ```

        Args:
            key: the key, or the id of one that is on this ring.
            until: where each thread stood when the key was still yours alone, as `Revoked` takes
                it. None if nothing that it sealed counts.

        Raises:
            KeyRefused: the key signs on this ring, or is revoked already.
            UnknownKey: no key of this ring has that id.
        """
        gone = Revoked(self.find(key) if isinstance(key, str) else key, until)
        revoked = [*self._revoked.values(), gone]
        return Keyring(self._signing, verify=self._keys.values(), revoked=revoked)

    def __iter__(self) -> Iterator[Key]:
        return iter(self.all)

    def __repr__(self) -> str:
        if not hasattr(self, "_keys"):  # refused while it was made
            return "<Keyring>"
        signing = None if self._signing is None else self._signing.id
        trusted = [key_id for key_id in self._keys if key_id not in self._revoked]
        return f"Keyring(signing={signing!r}, trusted={trusted}, revoked={list(self._revoked)})"


def _check_signs(key: object) -> None:
    if not isinstance(key, SigningKey):
        raise KeyRefused(
            f"A keyring signs with a signing key, not {type(key).__name__}.",
            "Write Keyring(SigningKey.from_file(path)), or Keyring(verify=[key]) for a reader.",
        )


def _listed(value: object, kind: type[_T], example: str) -> list[_T]:
    found: list[Any] = [value]
    # A ring is no list of keys: its revoked ones would count again.
    if isinstance(value, Iterable) and not isinstance(value, Keyring):
        found = list(value)
    for item in found:
        if not isinstance(item, kind):
            raise KeyRefused(
                f"A keyring was given {type(item).__name__} among its keys.", f"Write {example}."
            )
    return found


def _check_counts(older: list[Key], gone: dict[str, Revoked]) -> None:
    """Refuse keys that were taken off a ring on which they are revoked: they would count again."""
    for key in older:
        if isinstance(key, RevokedKey) and key.id not in gone:
            raise KeyRefused(
                f"Key {key.id} is revoked on the keyring that it was taken from.",
                "Keep that with keyring.rotated(key), or revoke it here too:"
                " revoked=[old_keyring.revoked(key.id)].",
            )


def _revoked(gone: list[Revoked], signing: SigningKey | None) -> dict[str, Revoked]:
    found: dict[str, Revoked] = {}
    for entry in gone:
        if entry.key.id in found:
            raise KeyRefused(
                f"Key {entry.key.id} is revoked twice, so how far it counts is not clear.",
                "Keep the entry that lets less count.",
            )
        found[entry.key.id] = entry
    if signing is not None and signing.id in found:
        raise KeyRefused(
            f"Key {signing.id} is revoked, so it cannot sign.",
            "Sign with a new one first: keyring.rotated(SigningKey.generate()).",
        )
    return found


def _ordered(older: list[Key], gone: list[Revoked], signing: SigningKey | None) -> dict[str, Key]:
    listed = {key.id for key in older}
    revoked = [entry.key for entry in gone]
    keys = [*(key for key in revoked if key.id not in listed), *older, *revoked]
    if signing is not None:
        keys.append(signing)
    found: dict[str, Key] = {}
    for key in keys:
        if not found.setdefault(key.id, key).is_same_as(key):
            raise KeyRefused(
                f"Two different keys have the id {key.id}.", "Replace one of them with a new key."
            )
    if signing is not None:
        del found[signing.id]  # to stand last, and as the half that signs
        found[signing.id] = signing
    if not found:
        raise KeyRefused(
            "A keyring without a key trusts nothing.",
            "Write Keyring(SigningKey.from_file(path, create=True)).",
        )
    return found
