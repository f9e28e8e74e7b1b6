"""Every attack, in the order of the rules."""

from __future__ import annotations

from safepoint.attacks import location, payload, records, resuming, thief
from safepoint.attacks.kit import EVERY, Attack

MODULES = (records, location, payload, thief, resuming)
"""Where they are defined, by what they touch."""

_ALL = sorted(EVERY.values(), key=lambda attack: attack.rule)

ATTACKS: dict[str, Attack] = {each.id: each for each in _ALL if not each.residue}
"""Every attack by its id."""

RESIDUE: dict[str, Attack] = {each.id: each for each in _ALL if each.residue}
"""What nothing in a store can detect, by its id."""
