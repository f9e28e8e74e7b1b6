"""Attacks on the bytes of a record: no exploit needed, only write access."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from safepoint.attacks.kit import Attack, got, unnoticed, worst
from safepoint.attacks.outcome import HONEST, WANTED, Outcome, step
from safepoint.attacks.target import Target, spellings


class EditState(Attack):
    """Change one word in a stored state."""

    id = "edit-state"
    rule = "SP01"
    threat = 1
    story = "The payee alice in the store becomes mally, and the workflow pays her."

    def prepare(self, target: Target) -> None:
        """Replace the word where it stands, and nothing else."""
        super().prepare(target)
        name = target.records("victim")[-1]
        edited = target.edit(target.medium.read(name), b"alice", b"mally")
        target.medium.write(name, edited)

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == WANTED)


class EditAndRehash(EditState):
    """Change a stored state, then mend every checksum that takes no key."""

    id = "edit-and-rehash"
    rule = "SP12"
    story = "The hashes are computed again after the edit: a checksum without a key stops nobody."

    def prepare(self, target: Target) -> None:
        """Edit, and mend."""
        super().prepare(target)
        target.relink("victim")


class FlipByte(Attack):
    """Flip one bit in each byte of a record in turn."""

    id = "flip-byte"
    rule = "SP12"
    threat = 1
    story = "One flipped bit, anywhere in the record, is loaded without a word."

    def strike(self, target: Target) -> Outcome:
        """Flip, load, flip back."""
        return worst(target, self._flips(target))

    def _flips(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        name = target.records("victim")[-1]
        record = target.medium.read(name)
        for index in range(len(record)):
            flipped = bytearray(record)
            flipped[index] ^= 1
            target.medium.write(name, bytes(flipped))
            yield lambda: unnoticed(target.latest("victim"))


class OtherBytes(Attack):
    """Write the same state in another way."""

    id = "other-bytes"
    rule = "SP12"
    threat = 28
    story = "The state is written anew to be checked, so bytes that nobody signed pass for signed."

    def prepare(self, target: Target) -> None:
        """Put line breaks into the JSON, where JSON does not mind."""
        super().prepare(target)
        name = target.records("victim")[-1]
        record = target.medium.read(name)
        usual, *others = spellings(HONEST)
        written = next((text for text in others if text in record), usual)
        other = json.dumps(HONEST, indent=1).encode()
        target.medium.write(name, target.edit(record, written, other))
        target.relink("victim")

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return unnoticed(target.latest("victim"))


class TrailingBytes(Attack):
    """Append to a record what its reader overlooks."""

    id = "trailing-bytes"
    rule = "SP12"
    threat = 28
    story = "Bytes after the end of a record are ignored, so nobody vouches for the whole file."

    def prepare(self, target: Target) -> None:
        """Append white space."""
        super().prepare(target)
        name = target.records("victim")[-1]
        target.medium.write(name, target.medium.read(name) + b" \n \n")
        target.relink("victim")

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return unnoticed(target.latest("victim"))


class TornRecord(Attack):
    """Cut the newest record in half, as a full disk or a crash does."""

    id = "torn-record"
    rule = "SP13"
    threat = 22
    story = "Half of the newest record is missing: the worker dies, or goes on from an older one."

    def prepare(self, target: Target) -> None:
        """Cut."""
        target.save("victim", step(1))
        target.save("victim", step(2))
        name = target.records("victim")[-1]
        record = target.medium.read(name)
        target.medium.write(name, record[: len(record) // 2])

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return unnoticed(target.latest("victim"))
