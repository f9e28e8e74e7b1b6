"""Attacks that write a record of their own."""

from __future__ import annotations

import json
from typing import ClassVar

from safepoint.attacks.kit import Attack, got
from safepoint.attacks.outcome import WANTED, Outcome
from safepoint.attacks.target import Target, Trick


class PlantRecord(Attack):
    """Put a well-formed record of one's own where the newest belongs."""

    id = "plant-record"
    rule = "SP02"
    threat = 12
    story = "A checkpoint that the application never wrote is loaded as if it had."
    trick: ClassVar[Trick] = "best"

    def prepare(self, target: Target) -> None:
        """Overwrite the record with a forged one."""
        super().prepare(target)
        name = target.records("victim")[-1]
        payload = json.dumps(WANTED, separators=(",", ":")).encode()
        target.medium.write(name, target.forge(target.medium.read(name), payload, self.trick))
        target.relink("victim")

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == WANTED)


class KeySubstitution(PlantRecord):
    """Sign with another key, and let the record say which."""

    id = "key-substitution"
    rule = "SP12"
    threat = 10
    story = "The record names the key to check it with, and names one that the attacker has."
    trick = "own-key"


class AlgorithmDowngrade(PlantRecord):
    """Let the record name an algorithm that protects nothing."""

    id = "algorithm-downgrade"
    rule = "SP12"
    threat = 11
    story = "The record says that its signature is of the kind 'none', and is believed."
    trick = "no-algorithm"


class StripSignature(PlantRecord):
    """Leave the signature out."""

    id = "strip-signature"
    rule = "SP12"
    threat = 12
    story = "A record without a signature is taken for an old one, from before there were any."
    trick = "unsigned"
