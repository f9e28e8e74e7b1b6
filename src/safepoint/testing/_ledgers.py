"""LedgerClaims: what a storage does for the only one that talks to it."""

from __future__ import annotations

from typing import Any

from safepoint.anchor import InMemoryAnchor
from safepoint.errors import NotOwner, ThreadDeleted
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.storage import InMemoryCheckpointStorage
from safepoint.testing._suite import Suite, refused, same


class LedgerClaims(Suite):
    """Save, latest, history, verify, prune, delete, copy and own."""

    def test_a_ledger_saves_and_verifies(self) -> None:
        """What a ledger has saved, another one on the same records verifies and restores."""
        keys, anchor = Keyring(SigningKey.generate()), InMemoryAnchor()
        storage = self.storage()
        ledger = _ledger(storage, keys, anchor)
        for number in range(1, 4):
            ledger.save("a", {"number": number, "text": "\xe4\0"})
        second = _ledger(self.another() if self.shared else storage, keys, anchor)
        same(second.latest("a").state, {"number": 3, "text": "\xe4\0"}, "The latest is restored.")
        numbers = [each.state["number"] for each in second.history("a")]
        same(numbers, [1, 2, 3], "The history must be whole.")
        same(second.verify("a", every_signature=True), 3, "Each record must verify.")
        same(second.threads(), ["a"], "The thread must be listed.")
        second.save("a", {"number": 4}, after=3)
        same(ledger.latest("a").sequence, 4, "The first ledger must see it.")

    def test_a_ledger_prunes_a_thread(self) -> None:
        """What is left after a prune verifies, and goes on."""
        keys = Keyring(SigningKey.generate())
        ledger = _ledger(self.forgetting(), keys, InMemoryAnchor())
        for number in range(1, 6):
            ledger.save("a", number)
        same(ledger.prune("a", keep=2), 3, "Three of five must be removed.")
        ledger.save("a", 6)
        same([each.state for each in ledger.history("a")], [4, 5, 6], "The rest must be there.")
        same(ledger.verify("a"), 3, "What is left must verify.")

    def test_a_ledger_deletes_a_thread(self) -> None:
        """Its records go, and a signed one that says so stays."""
        keys = Keyring(SigningKey.generate())
        storage = self.forgetting()
        ledger = _ledger(storage, keys, InMemoryAnchor())
        for number in range(1, 4):
            ledger.save("a", number)
        same(ledger.delete("a").sequence, 4, "The signed record must come last.")
        refused(ThreadDeleted, "The latest of a deleted thread", ledger.latest, "a")
        refused(ThreadDeleted, "A save to a deleted thread", ledger.save, "a", 5)
        same(storage.base("a")[0], 4, "Its records must be gone.")

    def test_a_pruned_thread_is_copied_into_it(self) -> None:
        """A store can move here, also if it does not begin at 1 any more."""
        keys = Keyring(SigningKey.generate())
        source = _ledger(InMemoryCheckpointStorage(), keys, InMemoryAnchor())
        for number in range(1, 6):
            source.save("a", number)
        source.prune("a", keep=3)
        storage = self.forgetting()
        target = _ledger(storage, keys, InMemoryAnchor())
        same(source.copy_to(target), 3, "Three records must be copied.")
        same([each.state for each in target.history("a")], [3, 4, 5], "The copy must be whole.")
        again = _ledger(self.another() if self.shared else storage, keys, InMemoryAnchor())
        same(again.verify("a"), 3, "The copy must verify.")

    def test_a_ledger_owns_a_thread(self) -> None:
        """While one ledger owns a thread, another one saves nothing there."""
        keys, anchor = Keyring(SigningKey.generate()), InMemoryAnchor()
        storage = self.leasing()
        owner = _ledger(storage, keys, anchor)
        other = _ledger(self.another() if self.shared else storage, keys, anchor)
        with owner.own("a", "worker-a"):
            owner.save("a", 1)
            refused(NotOwner, "A save by another ledger", other.save, "a", 2)
            refused(NotOwner, "Another worker", other.own, "a", "worker-b")
            same(other.owner("a"), "worker-a", "The owner must be known.")
        other.save("a", 2)
        same(owner.latest("a").state, 2, "A thread that was released takes records again.")


def _ledger(storage: Any, keys: Keyring, anchor: InMemoryAnchor) -> Ledger:
    return Ledger(storage, store="conformance", keys=keys, anchor=anchor)
