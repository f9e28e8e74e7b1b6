"""The matrix of attacks and rungs, computed; and a process for each attack."""

from __future__ import annotations

import os
import select
import signal
import tempfile
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

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
    return (ATTACKS | RESIDUE)[attack].run(kind(folder, Memory() if in_memory else None))


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


_PATIENCE: Final = 60.0
_LONGEST: Final = 64


def isolated_outcome_of(attack: str, target: str, *, in_memory: bool = False) -> Outcome:
    """Run one attack in a process and a temporary folder of its own.

    See `in_a_process`.
    """
    return in_a_process(lambda folder: run_in(folder, attack, target, in_memory=in_memory))


def in_a_process(strike: Callable[[str], Outcome]) -> Outcome:
    """Run something in a process of its own, with a temporary folder, and return what it returns.

    A process that dies, or does not come to an end, has crashed. Where the system cannot fork,
    it runs in this process.
    """
    with scratch() as folder:
        if not hasattr(os, "fork"):
            return strike(folder)
        receive, send = os.pipe()
        child = os.fork()
        if not child:
            _run(send, folder, strike)
        os.close(send)
        try:
            return _received(receive)
        finally:
            os.close(receive)
            _end(child)


def _run(send: int, folder: str, strike: Callable[[str], Outcome]) -> None:
    """Run as the child: say how it ended, and leave without a word or a farewell."""
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os.write(send, strike(folder).encode())
    finally:
        os._exit(0)


def _received(receive: int) -> Outcome:
    ready, _, _ = select.select([receive], [], [], _PATIENCE)
    said = os.read(receive, _LONGEST).decode() if ready else ""
    return Outcome(said) if said else Outcome.CRASHED


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)  # it has said all that it will say
    os.waitpid(child, 0)
