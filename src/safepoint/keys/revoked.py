"""A key that no longer counts, and the point up to which it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from safepoint.errors import AnchorUnavailable, CheckpointError, InvalidId, KeyRefused
from safepoint.heads import Head, Heads
from safepoint.keys.base import Key


class RevokedKey(Key):
    """A revoked key as its ring shows it: to look at, and not to trust on another ring."""

    __slots__ = ()

    noun: ClassVar[str] = "A revoked key"

    def __init__(self, key: Key) -> None:
        super().__init__(key._verifier)  # noqa: SLF001 - the same key, seen from its ring
        self.path = key.path


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Revoked:
    """A key that somebody else may hold by now. What it sealed counts up to a point alone.

    A thief can sign anything, with any date. So the point is not a time: it is where each thread
    stood, as an anchor saw it before the theft. What is below the point is vouched for by the
    ledger's own anchor; where that knows less of a thread than the point does, keep what you trust
    with `Ledger.copy_to(..., up_to=before)`, which follows every link from the point.

    ```python
    from safepoint import Keyring, Revoked, SigningKey

    stolen, new = SigningKey.generate(), SigningKey.generate()
    keys = Keyring(new, revoked=Revoked(stolen, until=None))  # nothing that it sealed counts
    print(keys.revoked(stolen.id) is not None, keys.revoked(new.id))
    #> True None
    ```

    Attributes:
        key: the key.
        until: where each thread stood: a copy of the anchor from before the theft, such as
            `FileAnchor("anchor-before")`, that nobody moves any more. Never the anchor that a
            ledger still moves: the point would move with it, over whatever the thief sealed.
            None if nothing that the key sealed counts.

    Raises:
        KeyRefused: the key is no key, or `until` has no `read`.
    """

    key: Key
    until: Heads | None

    def __post_init__(self) -> None:
        if not isinstance(self.key, Key):
            raise KeyRefused(
                f"A key is revoked, and {type(self.key).__name__} is none.",
                'Write Revoked(SigningKey.from_file(path), until=FileAnchor("anchor-before")).',
            )
        if self.until is not None and not callable(getattr(self.until, "read", None)):
            raise KeyRefused(
                f"Key {self.key.id} is revoked until {type(self.until).__name__}, which has no"
                " method read.",
                'Give a copy of the anchor from before the theft, FileAnchor("anchor-before"), or'
                " None to let nothing count.",
            )

    def head(self, store: str, thread: str) -> Head | None:
        """Return the last checkpoint of the thread up to which the key counts, or None.

        Raises:
            AnchorUnavailable: `until` failed.
            CheckpointError: whatever error of this package `until` raised.
        """
        if self.until is None:
            return None
        try:
            head = self.until.read(store, thread)
        except CheckpointError:
            raise
        except Exception as error:
            raise AnchorUnavailable(
                f"How far revoked key {self.key.id} counts cannot be read: {type(error).__name__}.",
                "Nothing is loaded without it. See the error that it came from.",
            ) from error
        if head is None:
            return None
        if type(head) is not Head:
            raise self._answered(type(head).__name__)
        try:
            # One that was unpickled, or copied by hand, was never looked at.
            return Head(head.sequence, head.digest)
        except (InvalidId, AttributeError):
            raise self._answered("a Head that is none") from None

    def _answered(self, what: str) -> AnchorUnavailable:
        return AnchorUnavailable(
            f"How far key {self.key.id} counts was answered with {what}.",
            "Return a safepoint.Head, or None for a thread in which it does not count at all.",
        )

    def __repr__(self) -> str:
        key_id = getattr(self.key, "id", None)  # None if it was refused while it was made
        until = None if self.until is None else type(self.until).__name__
        return f"Revoked({key_id!r}, until={until})"
