"""Every attack, in the order in which a reader meets the rules."""

from __future__ import annotations

from safepoint.attacks import location, payload, records, resuming, thief
from safepoint.attacks.kit import EVERY, Attack

_ORDER = """
edit-state plant-record swap-threads time-of-check pickle-payload pickle-right-type traverse-id
plant-symlink plant-hard-link plant-temp open-folder case-fold-id unicode-id device-name-id
newline-id retired-key thief-prunes unknown-type duplicate-keys not-a-number secret-in-error
row-chooses-decoder oversized-record deep-nesting flip-byte edit-and-rehash other-bytes
trailing-bytes strip-signature algorithm-downgrade key-substitution swap-stores replay-old-on-top
torn-record fast-forward backdate-clock aliasing forged-base reorder delete-middle cut-oldest
splice-branches cut-newest cut-all-but-first restore-snapshot freeze delete-thread undelete-thread
undelete-by-number stolen-key-undelete fork stolen-key-rewrite former-owner second-writer
old-checkpoint rollback-denial other-version wider-tools changed-tool wider-permissions ride-along
forge-approval stranger-approval self-approval swap-request change-request replay-approval
reuse-approval race-approval expired-approval journal-down journal-edit journal-cut journal-inject
journal-plant everything-in-one-folder
cut-unanchored stolen-key-append compromised-worker unprune-thread
"""
MODULES = (records, location, payload, thief, resuming)
"""Where they are defined, by what they touch."""

_ALL = [EVERY[name] for name in _ORDER.split()]

ATTACKS: dict[str, Attack] = {each.id: each for each in _ALL if not each.residue}
"""Every attack by its id."""

RESIDUE: dict[str, Attack] = {each.id: each for each in _ALL if each.residue}
"""What nothing in a store can detect, by its id."""
