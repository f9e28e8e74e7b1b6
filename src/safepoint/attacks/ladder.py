"""The matrix of attacks and rungs, computed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from safepoint.attacks.catalogue import ATTACKS, RESIDUE
from safepoint.attacks.medium import Memory
from safepoint.attacks.outcome import Outcome
from safepoint.attacks.rungs import TARGETS

Matrix = dict[str, dict[str, Outcome]]
"""Attack, then target, then how it ended."""


def outcome_of(attack: str, target: str, *, in_memory: bool = False) -> Outcome:
    """Run one attack on a built-in target, in this process and in a temporary folder of its own."""
    with scratch() as folder:
        return run_in(folder, attack, target, in_memory=in_memory)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder for one attack, in memory where the system has such a place.

    What a save costs is to wait for the disk, and no attack asks whether it did.
    """
    quick = Path("/dev/shm")  # noqa: S108  the folder in it is made by tempfile
    usable = quick.is_dir() and os.access(quick, os.W_OK | os.X_OK)
    return tempfile.TemporaryDirectory(prefix="safepoint-attack-", dir=quick if usable else None)


def run_in(folder: str, attack: str, target: str, *, in_memory: bool) -> Outcome:
    """Run one attack on a built-in target, in this process and in that folder."""
    kind = TARGETS[target]
    if in_memory and Memory not in kind.media:
        return Outcome.NOT_APPLICABLE
    strike = (ATTACKS | RESIDUE)[attack]()
    return strike.run(kind(folder, Memory() if in_memory else None))


def matrix(
    attacks: Iterable[str] = ATTACKS, targets: Iterable[str] = TARGETS, *, in_memory: bool = False
) -> Matrix:
    """Run every attack on every target."""
    columns = list(targets)
    return {
        attack: {target: outcome_of(attack, target, in_memory=in_memory) for target in columns}
        for attack in attacks
    }


def defeats(outcomes: Mapping[str, Mapping[str, Outcome]] | None = None) -> dict[str, list[str]]:
    """Return for each rung below the top the attacks that it falls to and the next one detects.

    Args:
        outcomes: a matrix over the whole ladder; without it, one is computed.
    """
    computed = matrix() if outcomes is None else outcomes
    rungs = list(TARGETS)
    return {
        rung: [
            attack
            for attack, row in computed.items()
            if row[rung].succeeded and row[following] is Outcome.DETECTED
        ]
        for rung, following in pairwise(rungs)
    }
