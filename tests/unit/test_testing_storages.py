"""The suite for storages can fail: each claim is kept by a sound storage, and broken by another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from safepoint.core.errors import Conflict, NotFound, NotOwner, RolledBack
from safepoint.core.storage import InMemoryCheckpointStorage, Lease
from safepoint.testing import StorageSuite, storages
from tests.unit.storage_helpers import CLAIMS, try_claim


class Sound(InMemoryCheckpointStorage):
    """Keeps every claim. Each opening of a folder sees the same records."""

    worlds: dict[Path, dict[str, Any]] = {}  # noqa: RUF012
    looked = 0

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.__dict__ = self.worlds.setdefault(folder, self.__dict__)

    def read(self, thread: str, sequence: int) -> bytes:
        self.looked = sequence
        return super().read(thread, sequence)


BROKEN: dict[str, tuple[str, type[Sound]]] = {}


def until(came: Callable[[], bool]) -> None:
    """Wait for another racer, however busy the machine is; but not for ever."""
    end = monotonic() + 20
    while not came() and monotonic() < end:
        sleep(0.001)


def meet(self: Any, *where: Any) -> None:
    """Go on once two racers are here."""
    here = self.__dict__.setdefault(f"at {where}", [])
    here.append(self)
    until(lambda: len(here) > 1)


def breaks(claim: str, method: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Keep a storage in which one method is wrong: it gets the sound one, and what was given."""

    def keep(wrong: Callable[..., Any]) -> Callable[..., Any]:
        real = getattr(Sound, method)

        def call(self: Any, *given: Any, **options: Any) -> Any:
            return wrong(self, partial(real, self), *given, **options)

        BROKEN[wrong.__name__] = f"test_{claim}", type(wrong.__name__, (Sound,), {method: call})
        return wrong

    return keep


BROKEN["leases without renewal"] = (
    "test_methods_come_in_whole_sets",
    type("WithoutRenew", (Sound,), {"renew": None}),
)
BROKEN["the newest is not the last"] = (
    "test_a_record_goes_behind_the_last_alone",
    type("Newest", (Sound,), {"newest": lambda self, thread: (1, self.read(thread, 1))}),
)
BROKEN["keeps all to itself"] = (
    "test_another_opening_goes_on",
    type("Apart", (Sound,), {"__init__": lambda self, _: InMemoryCheckpointStorage.__init__(self)}),
)


@breaks("tenants_do_not_mix", "tenant")
def has_one_tenant(self: Any, real: Any, name: str) -> Any:
    real(name)
    return self


@breaks("tenants_do_not_mix", "tenants")
def leaves_a_tenant_out(_: Any, real: Any) -> Any:
    return real()[1:]


@breaks("a_record_comes_back_byte_for_byte", "read")
def changes_line_ends(_: Any, real: Any, *place: Any) -> Any:
    return real(*place).replace(b"\r\n", b"\n")


@breaks("a_record_comes_back_byte_for_byte", "append")
def aliases(self: Any, real: Any, thread: str, sequence: int, record: Any, **options: Any) -> None:
    real(thread, sequence, record, **options)
    self._records[self._tenant, thread][sequence] = record


@breaks("a_second_record_at_a_place_is_refused", "append")
def overwrites(
    self: Any, real: Any, thread: str, sequence: int, *more: Any, **options: Any
) -> None:
    if self._records.get((self._tenant, thread), {}).pop(sequence, None) is not None:
        self._heads[self._tenant, thread] = sequence - 1
    real(thread, sequence, *more, **options)


@breaks("a_second_record_at_a_place_is_refused", "append")
def takes_the_same_bytes_again(
    self: Any, real: Any, thread: str, sequence: int, record: bytes, **options: Any
) -> None:
    if self._records.get((self._tenant, thread), {}).get(sequence) != record:
        real(thread, sequence, record, **options)


@breaks("a_second_record_at_a_place_is_refused", "append")
def shows_the_record(
    self: Any, real: Any, thread: str, sequence: int, record: bytes, **options: Any
) -> None:
    if sequence in self._records.get((self._tenant, thread), ()):
        raise Conflict(f"There is no room for {record!r}.", "Look again.")
    real(thread, sequence, record, **options)


@breaks("a_second_record_at_a_place_is_refused", "append")
def says_it_on_two_lines(
    self: Any, real: Any, thread: str, sequence: int, *more: Any, **options: Any
) -> None:
    if sequence in self._records.get((self._tenant, thread), ()):
        raise Conflict("It is taken.\nBy somebody.", "Look again.")
    real(thread, sequence, *more, **options)


@breaks("threads_do_not_mix", "_first")
def takes_names_for_numbers(self: Any, real: Any, thread: str) -> Any:
    """As a column without a strict type does."""
    if thread.isdigit() and str(int(thread)) != thread:
        number = self._tenant, str(int(thread))
        self._records[self._tenant, thread] = self._records.setdefault(number, {})
    return real(thread)


@breaks("a_record_goes_behind_the_last_alone", "head")
def orders_numbers_as_text(self: Any, _: Any, thread: str) -> int:
    return int(max(map(str, self._records.get((self._tenant, thread), {0: b""}))))


@breaks("a_record_goes_behind_the_last_alone", "read")
def raises_a_key_error(self: Any, _: Any, thread: str, sequence: int) -> Any:
    return self._records[self._tenant, thread][sequence]


@breaks("odd_arguments_are_refused", "head")
def takes_any_name(self: Any, _: Any, thread: Any) -> Any:
    return self._heads.get((self._tenant, thread), 0)


@breaks("a_record_goes_behind_the_last_alone", "append")
def refuses_a_gap_too_late(
    self: Any, real: Any, thread: str, sequence: int, *more: Any, **options: Any
) -> None:
    if sequence <= self.head(thread) + 1:
        real(thread, sequence, *more, **options)
        return
    self._records.setdefault((self._tenant, thread), {})[sequence] = more[0]
    raise RolledBack("There is a gap.", "Close it.")


@breaks("a_record_goes_behind_the_last_alone", "append")
def keeps_a_record_at_any_free_place(
    self: Any, real: Any, thread: str, sequence: int, record: bytes, **options: Any
) -> None:
    if sequence <= self.head(thread) + 1:
        real(thread, sequence, record, **options)
    self._records[self._tenant, thread][sequence] = record
    self._heads[self._tenant, thread] = max(self._records[self._tenant, thread])


@breaks("racers_fill_each_place_once", "append")
def looks_and_then_writes(
    self: Any, _: Any, thread: str, sequence: int, record: bytes, **options: Any
) -> None:
    if sequence in self._records.get((self._tenant, thread), ()):
        raise Conflict("It is taken.", "Look again.")
    meet(self, sequence)
    self._records.setdefault((self._tenant, thread), {})[sequence] = record
    self._heads[self._tenant, thread] = max(sequence, self._heads.get((self._tenant, thread), 0))


@breaks("a_reader_sees_whole_records", "append")
def shows_the_head_too_early(
    self: Any, real: Any, thread: str, sequence: int, *more: Any, **options: Any
) -> None:
    self._heads[self._tenant, thread] = max(sequence, self._heads.get((self._tenant, thread), 0))
    until(lambda: self.looked > 0)
    real(thread, sequence, *more, **options)


@breaks("prune_removes_what_is_below", "prune")
def only_keeps_a_base(self: Any, _: Any, thread: str, first: int, base: bytes) -> int:
    self._bases[self._tenant, thread] = first, base
    return first - 1


@breaks("a_thread_never_moves_backwards", "prune")
def moves_backwards(self: Any, real: Any, thread: str, first: int, base: bytes) -> Any:
    removed = real(thread, first, base)
    self._bases[self._tenant, thread] = first, base
    return removed


@breaks("a_thread_begins_where_its_base_says", "append")
def begins_anywhere(
    self: Any, real: Any, thread: str, sequence: int, *more: Any, **options: Any
) -> None:
    if (self._tenant, thread) in self._bases and not self.head(thread):
        self._bases[self._tenant, thread] = sequence, self._bases[self._tenant, thread][1]
    real(thread, sequence, *more, **options)


@breaks("a_thread_never_moves_backwards", "base")
def strips_a_base(_: Any, real: Any, thread: str) -> Any:
    found = real(thread)
    return found and (found[0], found[1].strip())


@breaks("a_thread_begins_where_its_base_says", "head")
def counts_in_32_bits(_: Any, real: Any, thread: str) -> Any:
    return real(thread) & 0x7FFFFFFF


@breaks("of_prunes_that_race_the_highest_counts", "prune")
def prunes_without_a_lock(self: Any, real: Any, thread: str, first: int, base: bytes) -> int:
    below = [sequence for sequence in self._records[self._tenant, thread] if sequence < first]
    meet(self)
    real(thread, first, base)
    return len(below)


@breaks("a_scan_goes_up_and_down", "scan")
def scans_upwards_alone(_: Any, real: Any, thread: str, first: int, last: int) -> Any:
    return real(thread, min(first, last), max(first, last))


@breaks("a_scan_goes_up_and_down", "scan")
def ends_a_scan_in_silence(_: Any, real: Any, *given: Any) -> Iterator[bytes]:
    try:
        yield from real(*given)
    except NotFound:
        return


@breaks("a_scan_that_a_prune_overtakes_tells_no_lie", "scan")
def skips_what_is_missing(self: Any, _: Any, thread: str, first: int, last: int) -> Any:
    records = self._records[self._tenant, thread]
    return (records[each] for each in range(first, last + 1) if each in records)


@breaks("a_thread_that_is_owned_is_not_taken", "threads")
def lists_what_is_owned(self: Any, real: Any) -> list[str]:
    return sorted({*real(), *(thread for _, thread in self._leases)})


@breaks("a_thread_that_is_owned_is_not_taken", "acquire")
def lets_anybody_in(self: Any, real: Any, thread: str, owner: str, seconds: float) -> Any:
    self._leases[self._tenant, thread] = replace(self._last_lease(thread), owner="")
    return real(thread, owner, seconds)


@breaks("a_token_is_never_given_twice", "release")
def begins_tokens_anew(self: Any, real: Any, lease: Any) -> None:
    real(lease)
    self._leases.pop((self._tenant, lease.thread))


@breaks("to_renew_keeps_the_token", "renew")
def renews_with_a_new_token(self: Any, _: Any, lease: Any, seconds: float) -> Any:
    return self.acquire(lease.thread, lease.owner, seconds)


@breaks("one_of_many_racers_owns_a_thread", "_change_lease")
def looks_and_then_owns(self: Any, _: Any, thread: str, step: Any) -> Any:
    after = step(self._last_lease(thread))
    meet(self)
    self._leases[self._tenant, thread] = after
    return after


def looked(self: Any, real: Any, given: tuple[Any, ...], look: Callable[[Lease], None]) -> None:
    """Save under whatever token counts, once the storage has looked in its own way."""
    last = self._last_lease(given[0])
    look(last)
    try:
        real(*given, fence=last.token if last.owner else None)
    except NotOwner:  # somebody took the thread since: what counts is the look above alone
        looked(self, real, given, look)


@breaks("a_save_without_the_token_is_refused", "append")
def compares_a_token_if_there_is_one(
    self: Any, real: Any, *given: Any, fence: int | None = None
) -> None:
    looked(self, real, given, lambda known: known.check_fence(fence) if fence else None)


@breaks("an_owner_goes_on_if_nobody_came", "append")
def goes_by_the_clock(self: Any, real: Any, thread: str, *given: Any, **options: Any) -> None:
    holder = self.lease(thread)
    if holder and holder.expires < datetime.now(UTC):
        raise NotOwner("Your lease has ended.", "Acquire the thread.")
    real(thread, *given, **options)


@breaks("a_former_owner_can_do_nothing", "release")
def releases_for_anybody(self: Any, _: Any, lease: Any) -> None:
    self._leases[self._tenant, lease.thread] = replace(self._last_lease(lease.thread), owner="")


@breaks("nothing_of_a_former_owner_lands_after_a_takeover", "append")
def looks_at_the_token_and_then_writes(
    self: Any, real: Any, thread: str, sequence: int, record: bytes, *, fence: int | None = None
) -> None:
    self._last_lease(thread).check_fence(fence)
    if record == b"old" and sequence > 2:  # by now, somebody takes the thread, and saves
        until(lambda: self.head(thread) >= sequence)
    while True:
        with suppress(Conflict):
            given = thread, self.head(thread) + 1, record
            return looked(self, real, given, lambda _: None)


@breaks("a_ledger_saves_and_verifies", "read")
def edits_a_record(_: Any, real: Any, *place: Any) -> Any:
    return real(*place).replace(b'"sequence":3', b'"sequence":2')


def suite_of(storage: Callable[[Path], Any]) -> type[StorageSuite]:
    return type("Suite", (StorageSuite,), {"open": lambda _, folder: storage(folder)})


@pytest.fixture(autouse=True)
def _a_world_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """And little patience with a storage that never lets go."""
    monkeypatch.setattr(Sound, "worlds", {})
    monkeypatch.setattr(storages, "PATIENCE", 1.0)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_storage_is_caught(name: str) -> None:
    claim, storage = BROKEN[name]
    with pytest.raises(Exception) as caught:
        try_claim(suite_of(storage), claim)
    assert "Barrier" not in str(caught.value)


def test_each_claim_has_a_storage_that_breaks_it() -> None:
    assert {claim for claim, _ in BROKEN.values()} == {*CLAIMS}
