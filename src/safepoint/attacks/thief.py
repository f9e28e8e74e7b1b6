"""Attacks with the genuine key, which somebody copied; and what nothing in a store can detect.

The latter run as well, so that nobody claims otherwise. The rule that each names is the one that
helps elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from safepoint.attacks.kit import Look, attacks, loads, save_steps
from safepoint.attacks.outcome import WANTED, step
from safepoint.attacks.target import Target

thief = attacks("Attacks with the genuine key, which somebody copied.", attacker="key")
residue = attacks("Attacks that no rung detects.", residue=True)


@thief("stolen-key-rewrite", "SP15")
def stolen_key_rewrite(target: Target) -> Iterator[Look]:
    """A thief of the key writes another past, complete and correctly sealed."""
    save_steps(target, 2)
    other = target.twin(target.medium.beside())
    for state in (step(1), step(2), WANTED):
        other.save("victim", state)
    for name in other.medium.names():
        target.medium.write(name, other.medium.read(name))
    yield loads(target, WANTED)


@thief("retired-key", "SP08")
def retired_key(target: Target) -> Iterator[Look]:
    """The key was replaced after a theft, and what the thief seals with the old one counts."""
    save_steps(target, 2)
    other = target.twin(target.medium)
    target.rotate()
    other.save("victim", WANTED)
    yield loads(target, WANTED)


@thief("thief-prunes", "SP08")
def thief_prunes(target: Target) -> Iterator[Look]:
    """The key was replaced after a theft, and the thief prunes with it what is in the way."""
    for thread in ("victim-1", "victim-2"):
        save_steps(target, 3, thread)
    other = target.twin(target.medium)
    target.rotate()
    other.prune("victim-1", 1)
    other.prune("victim-2", 2)
    yield lambda: target.history("victim-1") == [step(3)]
    yield lambda: target.history("victim-2") == [step(2), step(3)]


@thief("stolen-key-undelete", "SP13")
def stolen_key_undelete(target: Target) -> Iterator[Look]:
    """A thief of the key puts a record after the tombstone, and the deleted thread goes on."""
    save_steps(target, 2)
    target.delete("victim")
    target.smuggle("victim", json.dumps(WANTED, separators=(",", ":")).encode())
    yield loads(target, WANTED)
    yield lambda: bool(target.history("victim")[-1] == WANTED)


@residue("cut-unanchored", "SP15")
def cut_unanchored(target: Target) -> Iterator[Look]:
    """The anchor moves after every hundredth record, and the ones since then are deleted."""
    target.anchor_every = 100
    target.medium.delete(save_steps(target, 3)[-1])
    yield loads(target, step(2))


@residue("stolen-key-append", "SP08")
def stolen_key_append(target: Target) -> Iterator[Look]:
    """A thief of the key appends a new record, and nobody knows yet that it was stolen."""
    target.save("victim", step(1))
    target.twin(target.medium).save("victim", WANTED)
    yield loads(target, WANTED)


@residue("compromised-worker", "SP19")
def compromised_worker(target: Target) -> Iterator[Look]:
    """The worker runs the attacker's code, and seals and anchors what it is told to."""
    target.save("victim", step(1))
    target.save("victim", WANTED)
    yield loads(target, WANTED)


@residue("unprune-thread", "SP13")
def unprune_thread(target: Target) -> Iterator[Look]:
    """Old steps that were dropped on purpose come back out of a copy, genuine as they are."""
    save_steps(target, 3)
    snapshot = target.medium.copy()
    target.prune("victim", 1)
    target.medium.restore(snapshot)
    yield lambda: bool(target.history("victim")[0] == step(1))
