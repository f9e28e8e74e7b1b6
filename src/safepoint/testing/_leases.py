"""LeaseClaims: what holds for a storage that knows which worker owns a thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from safepoint.errors import ConfigurationError, InvalidId, NotOwner
from safepoint.storage.base import MAX_SECONDS, MAX_TOKEN, Lease
from safepoint.testing._records import ODD_NAMES
from safepoint.testing._suite import NotOffered, Suite, expect, fill, refused, same, taken_over

SHORT: Final = 0.001
ODD_TOKENS: Final[tuple[Any, ...]] = (0, -1, True, "1", 1.0, b"1", MAX_TOKEN + 1)
ODD_SECONDS: Final[tuple[Any, ...]] = (
    *(0, -1, True, "60", None, float("nan"), float("inf"), MAX_SECONDS + 1, 10**400),
)


class LeaseClaims(Suite):
    """Acquire, renew, release and lease."""

    def test_a_storage_tells_who_owns_a_thread(self) -> None:
        """`lease` returns what `acquire` returned, and None for a thread that is free."""
        storage = self.leasing()
        same(storage.lease("a"), None, "A thread that nobody took is free.")
        lease = storage.acquire("a", "worker-a", 60)
        same((lease.thread, lease.owner), ("a", "worker-a"), "A lease names thread and worker.")
        same(storage.lease("a"), lease, "The lease that counts must be the one handed out.")

    def test_to_own_a_thread_is_not_to_have_a_record(self) -> None:
        """A thread can be owned before its first record, and is not listed for that."""
        storage = self.leasing()
        lease = storage.acquire("a", "worker-a", 60)
        same((storage.head("a"), list(storage.threads())), (0, []), "There is no record yet.")
        fill(storage, 1, fence=lease.token)
        same((storage.head("a"), list(storage.threads())), (1, ["a"]), "There is a record now.")

    def test_each_thread_has_an_owner_of_its_own(self) -> None:
        """A lease on one thread says nothing of another."""
        storage = self.leasing()
        first = storage.acquire("a_b", "worker-a", 60)
        second = storage.acquire("a-b", "worker-b", 60)
        found = [storage.lease(thread) for thread in ("a_b", "a-b", "axb")]
        same(found, [first, second, None], "Each thread must have its own owner.")
        fill(storage, 1, thread="axb")

    def test_a_thread_that_is_owned_is_not_taken(self) -> None:
        """Another worker is refused until the lease has ended."""
        storage = self.leasing()
        lease = storage.acquire("a", "worker-a", 60)
        refused(NotOwner, "Another worker", storage.acquire, "a", "worker-b", 60)
        same(storage.lease("a"), lease, "A refused worker must change nothing.")
        fill(storage, 1, fence=lease.token)

    def test_a_lease_that_has_ended_is_taken_over(self) -> None:
        """A worker that died does not block its thread for ever."""
        storage = self.leasing()
        old = storage.acquire("a", "worker-a", SHORT)
        new = taken_over(storage, "a", "worker-b")
        expect(new.token > old.token, "A takeover must give a higher token.")
        fill(storage, 1, fence=new.token)

    def test_a_thread_that_was_released_can_be_taken(self) -> None:
        """A release needs nobody to wait."""
        storage = self.leasing()
        storage.release(storage.acquire("a", "worker-a", 60))
        same(storage.lease("a"), None, "A thread that was released is free.")
        same(storage.acquire("a", "worker-b", 60).owner, "worker-b", "It can be taken.")

    def test_a_token_is_never_given_twice(self) -> None:
        """Each token is higher than the one before, also after a release, an end or a restart."""
        storage = self.leasing()
        tokens = [storage.acquire("a", "worker-a", 60).token]
        for _ in range(2):
            tokens.append(storage.acquire("a", "worker-a", 60).token)
            storage.release(storage.lease("a"))
            fill(storage, storage.head("a") + 1, first=storage.head("a") + 1)
            tokens.append(storage.acquire("a", "worker-b", SHORT).token)
            lease = taken_over(storage, "a", "worker-c")
            tokens.append(lease.token)
            storage.release(storage.renew(lease, 60))
        same(tokens, sorted(set(tokens)), "Tokens must grow.")

    def test_tokens_go_on_after_a_prune(self) -> None:
        """Forgetting records forgets no owner and no token, and needs none."""
        storage = self.leasing()
        if not callable(getattr(storage, "prune", None)):
            raise NotOffered("It has no prune.")
        lease = storage.acquire("a", "worker-a", 60)
        fill(storage, 3, fence=lease.token)
        same(storage.prune("a", 3, b"base"), 2, "A prune needs no token: it writes no state.")
        same(storage.lease("a"), lease, "A prune must leave the owner.")
        fill(storage, 4, first=4, fence=lease.token)
        storage.release(lease)
        again = storage.acquire("a", "worker-a", 60)
        expect(again.token > lease.token, "A token must be higher than those before the prune.")

    def test_to_renew_keeps_the_token(self) -> None:
        """And moves the end, for everybody who looks."""
        storage = self.leasing()
        lease = storage.acquire("a", "worker-a", 60)
        renewed = storage.renew(lease, 3600)
        same(renewed.token, lease.token, "To renew must keep the token.")
        expect(renewed.expires > lease.expires, "To renew must move the end.")
        same(storage.lease("a"), renewed, "The lease that counts must be the renewed one.")
        fill(storage, 1, fence=renewed.token)

    def test_a_lease_of_another_name_is_nobodys(self) -> None:
        """The number alone is not the lease."""
        storage = self.leasing()
        lease = storage.acquire("a", "worker-a", 60)
        stranger = replace(lease, owner="worker-b")
        refused(NotOwner, "A renewal under another name", storage.renew, stranger, 60)
        refused(NotOwner, "A release under another name", storage.release, stranger)
        same(storage.lease("a"), lease, "It must change nothing.")

    def test_to_release_twice_does_nothing(self) -> None:
        """Who does not know whether the first try counted tries again, and renews nothing."""
        storage = self.leasing()
        lease = storage.acquire("a", "worker-a", 60)
        storage.release(lease)
        storage.release(lease)
        same(storage.lease("a"), None, "The thread must stay free.")
        refused(NotOwner, "A renewal after the release", storage.renew, lease, 60)
        same(storage.lease("a"), None, "The thread must stay free.")

    def test_odd_arguments_of_a_lease_are_refused(self) -> None:
        """Names, tokens, seconds and leases that are none; `True` is not the token 1."""
        storage = self.guarding(self.leasing())
        for name in ODD_NAMES:
            what = f"The name {ascii(name)[:70]}"
            refused(InvalidId, what, storage.acquire, name, "worker-a", 60)
            refused(InvalidId, what, storage.acquire, "a", name, 60)
            refused(InvalidId, what, storage.lease, name)
        lease = storage.acquire("a", "worker-a", 60)
        for fence in ODD_TOKENS:
            what = f"The token {fence!r}"
            refused(ConfigurationError, what, storage.append, "a", 1, b"", fence=fence)
        for seconds in ODD_SECONDS:
            what = "A number of seconds that no lease lasts"
            refused(ConfigurationError, what, storage.acquire, "a", "worker-a", seconds)
            refused(ConfigurationError, what, storage.renew, lease, seconds)
        for odd in (None, 1, "worker-a", ("a", "worker-a", 1)):
            refused(ConfigurationError, "What is no lease", storage.renew, odd, 60)
            refused(ConfigurationError, "What is no lease", storage.release, odd)
        same((storage.lease("a"), storage.head("a")), (lease, 0), "It must change nothing.")

    def test_one_of_many_racers_owns_a_thread(self) -> None:
        """Eight workers want a free thread: one gets it, and seven are told."""
        storage = self.leasing()

        def run(number: int, storage: Any) -> Lease | None:
            try:
                lease: Lease = storage.acquire("a", f"worker-{number}", 60)
            except NotOwner:
                return None
            return lease

        won = [lease for lease in self.race(8, run, self.rivals(storage)) if lease]
        same(len(won), 1, "One racer must own the thread.")
        same(storage.lease("a"), won[0], "The lease that counts must be the winner's.")
