"""Storages with one mistake each, and the claims that must notice it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

from safepoint.errors import Conflict, NotFound, NotOwner, RecordsMissing
from safepoint.storage import InMemoryCheckpointStorage
from safepoint.storage.base import Lease, Ownership

BROKEN: dict[str, tuple[type[Any], tuple[str, ...]]] = {}


def caught_by(*claims: str) -> Any:
    """Keep a storage with the claims that must fail on it."""

    def keep(storage: type[Any]) -> type[Any]:
        BROKEN[storage.__name__] = storage, claims
        return storage

    return keep


class Sound(InMemoryCheckpointStorage):
    """Keeps every claim. Each opening of a folder sees the same records."""

    worlds: dict[Path, dict[str, Any]] = {}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.__dict__ = self.worlds.setdefault(folder, self.__dict__)


# Appending and reading.


@caught_by("a_second_record_at_a_place_is_refused", "an_owner_overwrites_nothing_either")
class Overwrites(Sound):
    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        self._records.get(thread, {}).pop(sequence, None)
        super().append(thread, sequence, record, **options)


@caught_by("a_second_record_at_a_place_is_refused")
class TakesTheSameBytesAgain(Sound):
    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        if self._records.get(thread, {}).get(sequence) != record:
            super().append(thread, sequence, record, **options)


@caught_by("a_refused_record_leaves_nothing", "a_second_record_at_a_place_is_refused")
class MovesTheHeadFirst(Sound):
    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        self._heads[thread] = self._heads.get(thread, 0) + 1
        super().append(thread, sequence, record, **options)


@caught_by("a_refusal_shows_no_record")
class ShowsTheRecord(Sound):
    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        if sequence in self._records.get(thread, ()):
            raise Conflict(f"There is no room for {record!r}.", "Look again.")
        super().append(thread, sequence, record, **options)


@caught_by("a_second_record_at_a_place_is_refused")
class SaysItOnTwoLines(Sound):
    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        if sequence in self._records.get(thread, ()):
            raise Conflict("It is taken.\nBy somebody.", "Look again.")
        super().append(thread, sequence, record, **options)


@caught_by("a_record_comes_back_byte_for_byte")
class ChangesLineEnds(Sound):
    def read(self, thread: str, sequence: int) -> bytes:
        return super().read(thread, sequence).replace(b"\r\n", b"\n")


@caught_by("a_record_comes_back_byte_for_byte", "a_buffer_is_copied", "a_reader_sees_whole_records")
class CutsOff(Sound):
    def read(self, thread: str, sequence: int) -> bytes:
        return super().read(thread, sequence)[:50_000]


@caught_by("a_record_comes_back_byte_for_byte", "a_second_record_at_a_place_is_refused")
class ReturnsABytearray(Sound):
    def read(self, thread: str, sequence: int) -> Any:
        return bytearray(super().read(thread, sequence))


@caught_by("a_buffer_is_copied")
class Aliases(Sound):
    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        super().append(thread, sequence, record, **options)
        self._records[thread][sequence] = record

    def read(self, thread: str, sequence: int) -> bytes:
        return bytes(super().read(thread, sequence))


@caught_by("threads_do_not_mix", "each_thread_has_an_owner_of_its_own")
class TakesNamesForNumbers(Sound):
    """As a column without a strict type does; and `_` for any character, as LIKE does."""

    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        super().append(_loose(thread), sequence, record, **options)

    def read(self, thread: str, sequence: int) -> bytes:
        return super().read(_loose(thread), sequence)

    def head(self, thread: str) -> int:
        return super().head(_loose(thread))

    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        return super().acquire(_loose(thread), owner, seconds)

    def lease(self, thread: str) -> Lease | None:
        return super().lease(_loose(thread))


def _loose(thread: str) -> str:
    return str(int(thread)) if thread.isdigit() else thread.replace("_", "x")


@caught_by("the_head_is_the_highest_sequence", "a_ledger_saves_and_verifies")
class CountsFromZero(Sound):
    def head(self, thread: str) -> int:
        return max(super().head(thread) - 1, 0)


@caught_by("the_head_is_the_highest_sequence", "it_is_all_there_when_it_is_opened_again")
class OrdersNumbersAsText(Sound):
    def head(self, thread: str) -> int:
        return int(max(map(str, self._records.get(thread, {0: b""}))))


@caught_by("each_thread_is_listed_once")
class ListsAThreadForEachRecord(Sound):
    def threads(self) -> list[str]:
        return [thread for thread, records in self._records.items() for _ in records]


@caught_by("each_thread_is_listed_once", "what_is_not_there_is_not_found")
class RaisesAKeyError(Sound):
    def read(self, thread: str, sequence: int) -> bytes:
        return self._records[thread][sequence]


@caught_by("what_is_not_there_is_not_found", "a_refusal_shows_no_record")
class ReturnsNone(Sound):
    def read(self, thread: str, sequence: int) -> Any:
        return self._records.get(thread, {}).get(sequence)


@caught_by(
    "odd_names_are_refused", "odd_sequences_are_refused", "what_is_not_bytes_is_refused",
    "odd_arguments_of_a_prune_are_refused", "odd_arguments_of_a_scan_are_refused",
    "odd_arguments_of_a_lease_are_refused",
)  # fmt: skip
class TakesAnything(Sound):
    def append(self, thread: Any, sequence: Any, record: Any, *, fence: Any = None) -> None:
        self._owners.get(thread, Ownership("a")).check_fence(fence)
        self._records.setdefault(thread, {})[sequence] = record
        self._heads[thread] = sequence

    def read(self, thread: Any, sequence: Any) -> bytes:
        return self._read(thread, sequence)

    def prune(self, thread: Any, first: Any, base: Any) -> int:
        self._bases[thread] = first, base
        return 0

    def base(self, thread: Any) -> Any:
        return self._bases.get(thread)

    def scan(self, thread: Any, first: Any, last: Any) -> Iterator[bytes]:
        return iter([])


@caught_by("odd_arguments_of_a_lease_are_refused")
class TakesTrueForTheTokenOne(Sound):
    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        super().append(thread, sequence, record, fence=None if fence is None else int(fence))


@caught_by("a_place_out_of_order_is_refused")
class RefusesAGapTooLate(Sound):
    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        gap = sequence > self.head(thread) + 1
        super().append(thread, sequence, record, **options)
        if gap:
            raise RecordsMissing("There is a gap.", "Close it.")


class Own(Sound):
    """Has a place that belongs to the opening, and not to the store."""

    __slots__ = ("mine",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mine: dict[str, Any] = {}


@caught_by("another_opening_sees_each_record")
class RemembersTheHead(Own):
    def head(self, thread: str) -> int:
        if thread not in self.mine:
            self.mine[thread] = super().head(thread)
        return int(self.mine[thread])

    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        super().append(thread, sequence, record, **options)
        self.mine[thread] = sequence


@caught_by("it_is_all_there_when_it_is_opened_again")
class ForgetsWhenItIsClosed(Sound):
    def close(self) -> None:
        self._heads.clear()
        self._records.clear()


@caught_by("methods_come_in_whole_sets")
class LeasesWithoutRenewal(Sound):
    renew: Any = None


@caught_by("methods_come_in_whole_sets")
class PrunesWithoutABase(Sound):
    base: Any = None


# Several at once.


@caught_by(
    "one_of_two_racers_gets_a_place", "openings_that_race_leave_no_gap",
    "threads_that_race_leave_no_gap", "nothing_of_a_former_owner_lands_after_a_takeover",
)  # fmt: skip
class LooksAndThenWrites(Sound):
    def append(self, thread: str, sequence: int, record: bytes, *, fence: Any = None) -> None:
        self._owners.get(thread, Ownership(thread)).check_fence(fence)
        if sequence in self._records.get(thread, ()):
            raise Conflict("It is taken.", "Look again.")
        sleep(0.001)
        self._records.setdefault(thread, {})[sequence] = record
        self._heads[thread] = max(sequence, self._heads.get(thread, 0))


@caught_by("one_of_two_racers_gets_a_place")
class LosesARacer(Sound):
    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        try:
            super().append(thread, sequence, record, **options)
        except Conflict:
            return


@caught_by("a_reader_sees_whole_records")
class ShowsTheHeadTooEarly(Sound):
    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        self._heads[thread] = max(sequence, self._heads.get(thread, 0))
        sleep(0.002)
        super().append(thread, sequence, record, **options)


# Forgetting.


@caught_by("a_thread_has_no_base_at_first")
class HasABaseFromTheStart(Sound):
    def base(self, thread: str) -> tuple[int, bytes] | None:
        return super().base(thread) or (1, b"")


@caught_by("prune_removes_what_is_below", "another_opening_sees_the_prune")
class OnlyKeepsABase(Sound):
    def prune(self, thread: str, first: int, base: bytes) -> int:
        self._bases[thread] = first, base
        return first - 1


@caught_by("prune_removes_what_is_below", "a_ledger_prunes_a_thread")
class RemovesOneTooMany(Sound):
    def prune(self, thread: str, first: int, base: bytes) -> int:
        removed = super().prune(thread, first, base)
        self._records[thread].pop(first, None)
        return removed


@caught_by("the_head_stays_after_a_prune", "a_pruned_thread_goes_on")
class CountsTheRecords(Sound):
    def head(self, thread: str) -> int:
        return len(self._records.get(thread, ()))


@caught_by("nothing_is_appended_below_the_base", "a_thread_may_begin_at_any_sequence")
class FillsWhatWasPruned(Sound):
    def _first(self, thread: str) -> int:
        return 0


@caught_by("a_thread_never_moves_backwards", "of_prunes_that_race_the_highest_counts")
class MovesBackwards(Sound):
    def prune(self, thread: str, first: int, base: bytes) -> int:
        sleep(0.01 * (12 - first))  # the lowest comes last
        removed = super().prune(thread, first, base)
        self._bases[thread] = first, base
        return removed


@caught_by("a_base_can_be_sealed_anew")
class KeepsTheOldBase(Sound):
    def prune(self, thread: str, first: int, base: bytes) -> int:
        if self._first(thread) == first:
            return 0
        return super().prune(thread, first, base)


@caught_by("a_base_before_no_record_is_refused")
class BeginsWithNothing(Sound):
    def prune(self, thread: str, first: int, base: bytes) -> int:
        try:
            return super().prune(thread, first, base)
        except NotFound:
            self._bases[thread] = first, base
            raise


@caught_by("a_base_comes_back_byte_for_byte")
class StripsABase(Sound):
    def base(self, thread: str) -> tuple[int, bytes] | None:
        found = super().base(thread)
        return found and (found[0], found[1].strip())


@caught_by("a_base_comes_back_byte_for_byte")
class AliasesABase(Sound):
    def prune(self, thread: str, first: int, base: bytes) -> int:
        removed = super().prune(thread, first, base)
        self._bases[thread] = first, base
        return removed


@caught_by("a_thread_may_begin_at_any_sequence", "a_pruned_thread_is_copied_into_it")
class BeginsAtOneAlone(Sound):
    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        if sequence > self.head(thread) + 1:
            raise RecordsMissing("There is a gap.", "Close it.")
        super().append(thread, sequence, record, **options)


@caught_by("a_thread_may_begin_at_any_sequence")
class CountsIn32Bits(Sound):
    def head(self, thread: str) -> int:
        return super().head(thread) & 0x7FFFFFFF


@caught_by("another_opening_sees_the_prune")
class KeepsBasesToItself(Own):
    def base(self, thread: str) -> Any:
        return self.mine.get(thread)

    def prune(self, thread: str, first: int, base: bytes) -> int:
        removed = super().prune(thread, first, base)
        self.mine[thread] = super().base(thread)
        return removed


@caught_by("of_prunes_that_race_the_highest_counts")
class PrunesWithoutALock(Sound):
    def prune(self, thread: str, first: int, base: bytes) -> int:
        below = [sequence for sequence in self._records[thread] if sequence < first]
        sleep(0.01)
        super().prune(thread, first, base)
        return len(below)


@caught_by("a_ledger_deletes_a_thread", "the_head_stays_after_a_prune")
class ForgetsAThreadThatWasPruned(Sound):
    def prune(self, thread: str, first: int, base: bytes) -> int:
        removed = super().prune(thread, first, base)
        if first == self._heads[thread]:
            del self._heads[thread], self._records[thread], self._bases[thread]
        return removed


@caught_by("a_scan_goes_up_and_down")
class ScansUpwardsAlone(Sound):
    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        return super().scan(thread, min(first, last), max(first, last))


@caught_by("a_scan_stops_at_what_is_not_there", "a_scan_stops_at_the_base")
class EndsAScanInSilence(Sound):
    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        records = super().scan(thread, first, last)

        def handed_out() -> Iterator[bytes]:
            try:
                yield from records
            except NotFound:
                return

        return handed_out()


@caught_by("a_scan_that_a_prune_overtakes_tells_no_lie", "a_scan_stops_at_what_is_not_there")
class SkipsWhatIsMissing(Sound):
    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        return (
            self._records[thread][sequence]
            for sequence in range(first, last + 1)
            if sequence in self._records.get(thread, ())
        )


# Owning.


class Changed(Sound):
    """Has a place to go wrong in whenever the owner of a thread changes."""

    def change(self, old: Ownership, new: Ownership) -> Ownership:
        return new

    def _change_ownership(self, thread: str, step: Any) -> Ownership:
        return super()._change_ownership(thread, lambda old: self.change(old, step(old)))


@caught_by("a_storage_tells_who_owns_a_thread", "to_renew_keeps_the_token")
class TellsAnotherEnd(Sound):
    def lease(self, thread: str) -> Lease | None:
        found = super().lease(thread)
        return found and replace(found, expires=found.expires + timedelta(seconds=1))


@caught_by("to_own_a_thread_is_not_to_have_a_record")
class ListsWhatIsOwned(Sound):
    def threads(self) -> list[str]:
        return sorted({*super().threads(), *self._owners})


@caught_by("a_thread_that_is_owned_is_not_taken", "one_of_many_racers_owns_a_thread")
class LetsAnybodyIn(Sound):
    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        try:
            return super().acquire(thread, owner, seconds)
        except NotOwner:
            self._owners[thread] = replace(self._owners[thread], holder=None)
            return self.acquire(thread, owner, seconds)


@caught_by("a_lease_that_has_ended_is_taken_over")
class NeverEnds(Sound):
    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        return super().acquire(thread, owner, max(seconds, 3600) if seconds > 0 else seconds)


@caught_by("a_thread_that_was_released_can_be_taken", "a_ledger_owns_a_thread")
class NeverReleases(Sound):
    def release(self, lease: Lease) -> None:
        return None


@caught_by("a_token_is_never_given_twice", "another_opening_sees_the_owner")
class BeginsTokensAnew(Changed):
    def change(self, old: Ownership, new: Ownership) -> Ownership:
        return new if new.holder else Ownership(new.thread)


@caught_by("tokens_go_on_after_a_prune")
class ForgetsTheOwnerWithTheRecords(Sound):
    def prune(self, thread: str, first: int, base: bytes) -> int:
        self._owners.pop(thread, None)
        return super().prune(thread, first, base)


@caught_by("another_opening_sees_the_owner")
class KeepsOwnersToItself(Own):
    def _ownership(self, thread: str) -> Ownership:
        mine: Ownership = self.mine.get(thread, Ownership(thread))
        return mine

    def _change_ownership(self, thread: str, step: Any) -> Ownership:
        after: Ownership = step(self._ownership(thread))
        self.mine[thread] = after
        return after

    def append(self, thread: str, sequence: int, record: bytes, *, fence: Any = None) -> None:
        self._ownership(thread).check_fence(fence)
        super().append(thread, sequence, record)


class Fenced(Sound):
    """Looks at the token in its own way."""

    def look(self, ownership: Ownership, fence: int | None) -> None:
        ownership.check_fence(fence)

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        ownership = self._ownership(thread)
        self.look(ownership, fence)
        token = ownership.holder.token if ownership.holder else None
        try:
            super().append(thread, sequence, record, fence=token)
        except NotOwner:  # somebody took the thread since: what counts is the look above alone
            self.append(thread, sequence, record, fence=fence)


@caught_by(
    "a_save_without_a_token_is_refused", "a_save_with_another_token_is_refused",
    "a_token_of_no_owner_is_refused", "a_former_owner_can_do_nothing",
    "a_restarted_worker_fences_off_its_former_self", "a_ledger_owns_a_thread",
    "nothing_of_a_former_owner_lands_after_a_takeover",
)  # fmt: skip
class ForgetsTheFence(Fenced):
    def look(self, ownership: Ownership, fence: int | None) -> None:
        return None


@caught_by("a_save_without_a_token_is_refused", "another_opening_sees_the_owner")
class ComparesATokenIfThereIsOne(Fenced):
    def look(self, ownership: Ownership, fence: int | None) -> None:
        if fence is not None:
            ownership.check_fence(fence)


@caught_by("a_save_with_another_token_is_refused")
class TakesAHigherToken(Fenced):
    def look(self, ownership: Ownership, fence: int | None) -> None:
        if not (fence and ownership.holder and fence > ownership.token):
            ownership.check_fence(fence)


@caught_by("an_owner_goes_on_if_nobody_came")
class GoesByTheClock(Fenced):
    def look(self, ownership: Ownership, fence: int | None) -> None:
        ownership.check_fence(fence)
        if ownership.holder and ownership.holder.expires < datetime.now(UTC):
            raise NotOwner("Your lease has ended.", "Acquire the thread.")


@caught_by("to_renew_keeps_the_token")
class RenewsWithANewToken(Sound):
    def renew(self, lease: Lease, seconds: float) -> Lease:
        return self.acquire(lease.thread, lease.owner, seconds)


@caught_by("to_renew_keeps_the_token")
class DoesNotRenew(Sound):
    def renew(self, lease: Lease, seconds: float) -> Lease:
        super().renew(lease, 60)
        return lease


@caught_by("a_former_owner_can_do_nothing", "a_lease_of_another_name_is_nobodys")
class ReleasesForAnybody(Sound):
    def release(self, lease: Lease) -> None:
        self._owners[lease.thread] = replace(self._ownership(lease.thread), holder=None)


@caught_by("a_restarted_worker_fences_off_its_former_self", "a_token_is_never_given_twice")
class KnowsAWorkerByItsName(Changed):
    def change(self, old: Ownership, new: Ownership) -> Ownership:
        if old.holder and new.holder and old.holder.owner == new.holder.owner:
            return replace(new, token=old.token, holder=replace(new.holder, token=old.token))
        return new


@caught_by("a_lease_of_another_name_is_nobodys")
class GoesByTheNumberAlone(Sound):
    def renew(self, lease: Lease, seconds: float) -> Lease:
        holder = self.lease(lease.thread)
        same = holder is not None and holder.token == lease.token
        return super().renew(holder if holder is not None and same else lease, seconds)


@caught_by("to_release_twice_does_nothing")
class RefusesASecondRelease(Sound):
    def release(self, lease: Lease) -> None:
        if self.lease(lease.thread) is None:
            raise NotOwner("It is free already.", "Do nothing.")
        super().release(lease)


@caught_by("to_release_twice_does_nothing")
class RenewsWhatWasReleased(Sound):
    def renew(self, lease: Lease, seconds: float) -> Lease:
        if self.lease(lease.thread) is None:
            return self.acquire(lease.thread, lease.owner, seconds)
        return super().renew(lease, seconds)


@caught_by("one_of_many_racers_owns_a_thread")
class LooksAndThenOwns(Sound):
    def _change_ownership(self, thread: str, step: Any) -> Ownership:
        after: Ownership = step(self._ownership(thread))
        sleep(0.01)
        self._owners[thread] = after
        return after


# Under a ledger.


@caught_by(
    "a_ledger_saves_and_verifies", "a_ledger_prunes_a_thread", "a_ledger_deletes_a_thread",
    "a_pruned_thread_is_copied_into_it",
)  # fmt: skip
class EditsARecord(Sound):
    def read(self, thread: str, sequence: int) -> bytes:
        return super().read(thread, sequence).replace(b'"sequence":3', b'"sequence":2')
