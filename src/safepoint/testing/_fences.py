"""FenceClaims: whose save counts, in a storage that knows which worker owns a thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Event
from time import sleep
from typing import Any

from safepoint.errors import Conflict, NotOwner
from safepoint.storage.base import MAX_TOKEN, Lease
from safepoint.testing._leases import SHORT
from safepoint.testing._suite import Suite, expect, fill, refused, same, taken_over


class FenceClaims(Suite):
    """Append with a token, and without."""

    def test_another_opening_sees_the_owner(self) -> None:
        """Owner and tokens are in the store, and not in the object."""
        storage = self.leasing()
        other = self.another()
        lease = storage.acquire("a", "worker-a", 60)
        same(other.lease("a"), lease, "Another opening must see the owner.")
        refused(NotOwner, "Another worker", other.acquire, "a", "worker-b", 60)
        refused(NotOwner, "A save without a token", other.append, "a", 1, b"late")
        fill(other, 1, fence=lease.token)
        other.release(lease)
        refused(NotOwner, "A token that was released", storage.append, "a", 2, b"", fence=1)
        self.closed(storage)
        again = self.another().acquire("a", "worker-b", 60)
        expect(again.token > lease.token, "A new opening must go on with higher tokens.")

    def test_a_save_without_a_token_is_refused(self) -> None:
        """While a thread has an owner, also after its lease has ended: nobody released it."""
        storage = self.leasing()
        for thread, seconds in (("a", 60), ("b", SHORT)):
            lease = storage.acquire(thread, "worker-a", seconds)
            refused(NotOwner, "A save without a token", storage.append, thread, 1, b"late")
            same(storage.head(thread), 0, "A refused save must leave nothing.")
            fill(storage, 1, thread=thread, fence=lease.token)

    def test_a_save_with_another_token_is_refused(self) -> None:
        """Lower or higher, and nothing is left of it."""
        storage = self.leasing()
        storage.acquire("a", "worker-a", 60)
        lease = storage.acquire("a", "worker-a", 60)
        for fence in (lease.token - 1, lease.token + 1, MAX_TOKEN):
            refused(NotOwner, "Another token", storage.append, "a", 1, b"late", fence=fence)
        same((storage.head("a"), list(storage.threads())), (0, []), "Nothing must be left of it.")
        fill(storage, 1, fence=lease.token)

    def test_a_token_of_no_owner_is_refused(self) -> None:
        """A thread that is free takes records without a token alone."""
        storage = self.leasing()
        refused(NotOwner, "A token of no owner", storage.append, "a", 1, b"late", fence=1)
        lease = storage.acquire("a", "worker-a", 60)
        storage.release(lease)
        what = "A token that was released"
        refused(NotOwner, what, storage.append, "a", 1, b"late", fence=lease.token)
        same(storage.head("a"), 0, "A refused save must leave nothing.")
        fill(storage, 1)

    def test_an_owner_goes_on_if_nobody_came(self) -> None:
        """The token decides whose save counts, and the clock does not."""
        storage = self.leasing()
        lease = storage.acquire("a", "worker-a", SHORT)
        end = storage.acquire("b", "worker-b", SHORT)
        taken_over(storage, "b", "worker-c")  # by now, both have ended
        expect(end.expires >= lease.expires, "A later lease of the same length ends later.")
        fill(storage, 1, fence=lease.token)
        same(storage.lease("a"), lease, "A lease that has ended counts until somebody comes.")
        renewed = storage.renew(lease, 60)
        same(renewed.token, lease.token, "A lease that has ended can be renewed.")
        refused(NotOwner, "Another worker", storage.acquire, "a", "worker-b", 60)

    def test_an_owner_overwrites_nothing_either(self) -> None:
        """A token lets a worker write the next record, and no other."""
        storage = self.leasing()
        lease = storage.acquire("a", "worker-a", 60)
        fill(storage, 2, fence=lease.token)
        what = "A second record at a place"
        refused(Conflict, what, storage.append, "a", 1, b"late", fence=lease.token)
        same(storage.read("a", 1), b"record 1", "The first record must stay.")

    def test_a_former_owner_can_do_nothing(self) -> None:
        """Once another worker has the thread: no save, no renewal, no release."""
        storage = self.leasing()
        old = storage.acquire("a", "worker-a", SHORT)
        new = taken_over(storage, "a", "worker-b")
        fill(storage, 1, fence=new.token)
        for sequence in (1, 2):
            what = "A save by the former owner"
            refused(NotOwner, what, storage.append, "a", sequence, b"old", fence=old.token)
        refused(NotOwner, "A renewal by the former owner", storage.renew, old, 60)
        refused(NotOwner, "A release by the former owner", storage.release, old)
        same((storage.lease("a"), storage.head("a")), (new, 1), "It must change nothing.")

    def test_a_restarted_worker_fences_off_its_former_self(self) -> None:
        """It need not wait, and gets a token of its own: the name alone saves nothing."""
        storage = self.leasing()
        old = storage.acquire("a", "worker-a", 60)
        new = storage.acquire("a", "worker-a", 60)
        expect(new.token > old.token, "The same worker must get a new token.")
        what = "A save by the former self"
        refused(NotOwner, what, storage.append, "a", 1, b"old", fence=old.token)
        refused(NotOwner, "A renewal by the former self", storage.renew, old, 60)
        refused(NotOwner, "A release by the former self", storage.release, old)
        fill(storage, 1, fence=new.token)

    def test_nothing_of_a_former_owner_lands_after_a_takeover(self) -> None:
        """Token and record are looked at in one step: no save slips in between the two."""
        storage = self.leasing()
        for thread in ("a", "b", "c"):
            old = storage.acquire(thread, "worker-a", SHORT)
            saved, before = self.race(2, _takeover(thread, old), self.rivals(storage))
            same(saved, before, "After a takeover, nothing of the former owner may land.")
            head = storage.head(thread)
            found = [storage.read(thread, sequence) for sequence in range(1, head + 1)]
            same(found, [b"old"] * before + [b"new"] * 3, "What was acknowledged must be there.")


def _takeover(thread: str, old: Lease) -> Callable[[int, Any], int]:
    """Let racer 0 save under the old token for as long as it can, and racer 1 take the thread."""
    taken, ended = Event(), Event()

    def former(storage: Any) -> int:
        saved, last = 0, False
        try:
            with suppress(NotOwner):
                while not last:
                    last = taken.is_set()
                    with suppress(Conflict):
                        storage.append(thread, storage.head(thread) + 1, b"old", fence=old.token)
                        saved += 1
        finally:
            ended.set()
        return saved

    def new(storage: Any) -> int:
        try:
            while storage.head(thread) < 2 and not ended.is_set():
                sleep(0)
            lease = taken_over(storage, thread, "worker-b")
            before: int = storage.head(thread)
            for sequence in range(before + 1, before + 4):
                storage.append(thread, sequence, b"new", fence=lease.token)
        except Conflict:
            raise AssertionError("A former owner's record landed after the takeover.") from None
        else:
            return before
        finally:
            taken.set()

    return lambda number, storage: new(storage) if number else former(storage)
