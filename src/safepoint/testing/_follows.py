"""FollowClaims: a record after one other and no other, in a storage that can do that."""

from __future__ import annotations

from typing import Any

from safepoint.errors import NotOwner
from safepoint.testing._suite import Suite, fill, refused, same


class FollowClaims(Suite):
    """Append where a thread ends, and nowhere else."""

    def test_a_record_follows_upon_the_last_one(self) -> None:
        """It is kept, byte for byte, and the thread ends there."""
        storage = self.following()
        fill(storage, 2)
        same(storage.follow("a", 3, b"three"), True, "The next record must be kept.")
        same((storage.head("a"), storage.read("a", 3)), (3, b"three"), "It must be there.")
        same(storage.follow("a", 4, b"four"), True, "And so must the one after it.")

    def test_nothing_follows_elsewhere(self) -> None:
        """Where a thread ends elsewhere, or has no record at all, nothing is kept or raised."""
        storage = self.following()
        fill(storage, 2)
        before = [storage.read("a", number) for number in (1, 2)]
        for thread, sequence in (("a", 1), ("a", 2), ("a", 4), ("b", 1), ("b", 7)):
            what = f"Nothing follows at {sequence} of thread {thread}."
            same(storage.follow(thread, sequence, b"late"), False, what)
        same([storage.read("a", number) for number in (1, 2)], before, "Nothing must change.")
        heads = storage.head("a"), storage.head("b"), list(storage.threads())
        same(heads, (2, 0, ["a"]), "Nothing must be left of it.")

    def test_of_many_that_follow_one_is_kept(self) -> None:
        """The others are told, and nothing is overwritten."""
        storage = self.following()
        fill(storage, 1)
        one = None if self.shared else storage

        def follow(number: int, other: Any) -> bytes | None:
            record = b"%d" % number
            return record if other.follow("a", 2, record) else None

        kept = [record for record in self.race(4, follow, one) if record is not None]
        same(kept, [storage.read("a", 2)], "One of them must be kept, and only that one told so.")

    def test_who_follows_needs_the_token(self) -> None:
        """As whoever appends does."""
        storage = self.following()
        fill(storage, 1)
        lease = self.leasing_of(storage).acquire("a", "worker-a", 60)
        refused(NotOwner, "Without a token", storage.follow, "a", 2, b"late")
        what, other = "With another token", lease.token + 1
        refused(NotOwner, what, storage.follow, "a", 2, b"late", fence=other)
        same(storage.head("a"), 1, "A refused record must leave nothing.")
        same(storage.follow("a", 2, b"two", fence=lease.token), True, "The owner's must be kept.")
