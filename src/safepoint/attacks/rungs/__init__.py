"""The ladder: nine ways to keep a checkpoint, each as short as people really write it.

Every rung but the top falls to an attack that the next one refuses.
"""

from __future__ import annotations

from safepoint.attacks.rungs.gated import GatedTarget
from safepoint.attacks.rungs.home_made import (
    AllowListTarget,
    EncryptedTarget,
    HashChainTarget,
    MacPlaceTarget,
    MacTarget,
    NaiveTarget,
)
from safepoint.attacks.rungs.sealed import SealedTarget, SignedChainTarget
from safepoint.attacks.target import Target

TARGETS: dict[str, type[Target]] = {
    target.name: target
    for target in (
        NaiveTarget,
        AllowListTarget,
        EncryptedTarget,
        HashChainTarget,
        MacTarget,
        MacPlaceTarget,
        SignedChainTarget,
        SealedTarget,
        GatedTarget,
    )
}
"""The built-in targets by name, from the bottom of the ladder to its top."""

TOP = GatedTarget.name
"""The name of the top rung."""

__all__ = [
    "TARGETS",
    "TOP",
    "AllowListTarget",
    "EncryptedTarget",
    "GatedTarget",
    "HashChainTarget",
    "MacPlaceTarget",
    "MacTarget",
    "NaiveTarget",
    "SealedTarget",
    "SignedChainTarget",
]
