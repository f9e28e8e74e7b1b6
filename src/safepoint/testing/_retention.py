"""RetentionClaims: what holds for a storage that can forget the beginning of a thread."""

from __future__ import annotations

from typing import Any

from safepoint.errors import Conflict, EncodeError, InvalidId, NotFound
from safepoint.names import MAX_SEQUENCE
from safepoint.testing._records import NOT_BYTES, ODD_NAMES, ODD_SEQUENCES
from safepoint.testing._suite import NotOffered, Suite, expect, fill, refused, same


class RetentionClaims(Suite):
    """Base and prune."""

    def test_a_thread_has_no_base_at_first(self) -> None:
        """Until it is pruned, a thread has no base, be it there or not."""
        storage = self.forgetting()
        fill(storage, 2)
        same(storage.base("a"), None, "A thread that was never pruned has no base.")
        same(storage.base("b"), None, "A thread that is not there has no base.")

    def test_prune_removes_what_is_below(self) -> None:
        """Below the base there is nothing to read; above it, and beside it, all is as it was."""
        storage = self.forgetting()
        fill(storage, 12)
        fill(storage, 3, thread="b")
        same(storage.prune("a", 10, b"base"), 9, "Prune must say how many it removed.")
        same(storage.base("a"), (10, b"base"), "The base must be what prune left.")
        for sequence in (1, 9):
            refused(NotFound, "A read below the base", storage.read, "a", sequence)
        kept = [storage.read("a", sequence) for sequence in (10, 11, 12)]
        same(kept, [b"record 10", b"record 11", b"record 12"], "What is above must stay.")
        same(storage.read("b", 1), b"record 1", "Other threads must stay.")
        same(sorted(storage.threads()), ["a", "b"], "A pruned thread must stay listed.")

    def test_the_head_stays_after_a_prune(self) -> None:
        """Pruning moves the beginning of a thread, and never its end."""
        storage = self.forgetting()
        fill(storage, 5)
        for first in (3, 5):
            storage.prune("a", first, b"base")
            same(storage.head("a"), 5, "The head must stay where it is.")

    def test_a_pruned_thread_goes_on(self) -> None:
        """The next record follows the head, and the thread can be pruned again."""
        storage = self.forgetting()
        fill(storage, 3)
        storage.prune("a", 3, b"base")
        fill(storage, 6, first=4)
        same(storage.head("a"), 6, "A pruned thread must go on.")
        same(storage.prune("a", 5, b"newer"), 2, "Prune must say how many it removed.")
        same(storage.base("a"), (5, b"newer"), "The base must be the newer one.")

    def test_nothing_is_appended_below_the_base(self) -> None:
        """A place that was pruned stays taken."""
        storage = self.forgetting()
        fill(storage, 5)
        storage.prune("a", 4, b"base")
        for sequence in (1, 3, 4):
            what = "A record below the base, or at it"
            refused(Conflict, what, storage.append, "a", sequence, b"late")
        same(storage.read("a", 4), b"record 4", "The first record must stay.")
        same(storage.base("a"), (4, b"base"), "The base must stay.")

    def test_a_thread_never_moves_backwards(self) -> None:
        """A prune to an earlier place changes nothing."""
        storage = self.forgetting()
        fill(storage, 5)
        storage.prune("a", 4, b"base")
        for first in (3, 1):
            same(storage.prune("a", first, b"older"), 0, "There is nothing to remove.")
            same(storage.base("a"), (4, b"base"), "A thread must never move backwards.")
        same(storage.read("a", 4), b"record 4", "The first record must stay.")

    def test_a_base_can_be_sealed_anew(self) -> None:
        """A prune to the same place puts the new base there, and again, and removes nothing."""
        storage = self.forgetting()
        fill(storage, 5)
        storage.prune("a", 4, b"base")
        for _ in range(2):
            same(storage.prune("a", 4, b"anew"), 0, "There is nothing to remove.")
            same(storage.base("a"), (4, b"anew"), "The new base must take the old one's place.")
        kept = [storage.read("a", sequence) for sequence in (4, 5)]
        same(kept, [b"record 4", b"record 5"], "A new base must remove nothing.")

    def test_a_base_before_no_record_is_refused(self) -> None:
        """It would leave a thread that begins with nothing."""
        storage = self.forgetting()
        fill(storage, 3)
        for thread, first in (("a", 4), ("b", 1)):
            what = "A prune to where no record is"
            refused(NotFound, what, storage.prune, thread, first, b"base")
            same(storage.base(thread), None, "A refused prune must leave no base.")
        kept = [storage.read("a", sequence) for sequence in (1, 2, 3)]
        same(kept, [b"record 1", b"record 2", b"record 3"], "A refused prune removes nothing.")
        same(list(storage.threads()), ["a"], "A refused prune must not make a thread.")

    def test_a_base_comes_back_byte_for_byte(self) -> None:
        """A base is bytes that nobody else can change, also if it is empty."""
        storage = self.forgetting()
        fill(storage, 2)
        for base in (b"", b"\n", b"0000000009\n", bytes(range(256)) * 20):
            storage.prune("a", 2, base)
            same(storage.base("a"), (2, base), "A base must come back exactly.")
        buffer = bytearray(b"base")
        try:
            storage.prune("a", 2, buffer)
        except EncodeError:
            return  # to refuse a buffer is as safe
        buffer[:] = b"EVIL"
        same(storage.base("a"), (2, b"base"), "A buffer must be kept as a copy, in bytes.")

    def test_odd_arguments_of_a_prune_are_refused(self) -> None:
        """Names, sequences and bases that are none touch nothing."""
        storage = self.guarding(self.forgetting())
        fill(storage, 2)
        for name in ODD_NAMES:
            refused(InvalidId, f"The name {ascii(name)[:70]}", storage.base, name)
            refused(InvalidId, f"The name {ascii(name)[:70]}", storage.prune, name, 1, b"")
        for first in ODD_SEQUENCES:
            refused(InvalidId, f"The sequence {first!r}", storage.prune, "a", first, b"")
        for base in NOT_BYTES:
            what = f"A base of the type {type(base).__name__}"
            refused(EncodeError, what, storage.prune, "a", 2, base)
        same(storage.base("a"), None, "A refused prune must leave no base.")
        same(storage.read("a", 1), b"record 1", "A refused prune must remove nothing.")

    def test_a_thread_may_begin_at_any_sequence(self) -> None:
        """A copy of a pruned thread begins where that does, and goes on from there."""
        storage = self.forgetting()
        for thread, first in (("a", 7), ("b", 2**31), ("c", MAX_SEQUENCE - 1)):
            storage.append(thread, first, b"first")
            same(storage.prune(thread, first, b"base"), 0, "There is nothing to remove.")
            storage.append(thread, first + 1, b"second")
            same(storage.base(thread), (first, b"base"), "The base must be where it begins.")
            same(storage.head(thread), first + 1, "A thread must go on from where it begins.")
            same(storage.read(thread, first), b"first", "The first record must be there.")
            refused(Conflict, "A record below", storage.append, thread, first - 1, b"late")

    def test_another_opening_sees_the_prune(self) -> None:
        """What one opening has pruned is gone for another, and stays gone."""
        storage = self.forgetting()
        other = self.another()
        fill(storage, 5)
        same(other.head("a"), 5, "Another opening must see the head.")
        storage.prune("a", 4, b"base")
        for each in (other, self.another()):
            same(each.base("a"), (4, b"base"), "Another opening must see the base.")
            same(each.head("a"), 5, "Another opening must see the head.")
            refused(NotFound, "A read below the base", each.read, "a", 3)
            refused(Conflict, "A record below the base", each.append, "a", 3, b"late")

    def test_of_prunes_that_race_the_highest_counts(self) -> None:
        """Whatever their order: the base is the highest, and nothing above it is gone."""
        storage = self.forgetting()
        fill(storage, 12)
        wanted = (3, 9, 5, 7)

        def run(number: int, storage: Any) -> int:
            first = wanted[number]
            removed: int = storage.prune("a", first, b"base %d" % first)
            return removed

        removed = self.race(4, run, self.rivals(storage))
        same(sum(removed), 8, "Each record must be removed once.")
        same(storage.base("a"), (9, b"base 9"), "The highest base must count.")
        kept = [storage.read("a", sequence) for sequence in range(9, 13)]
        same(kept, [b"record %d" % n for n in range(9, 13)], "What is above must stay.")


class ScanClaims(Suite):
    """Scan."""

    def test_a_scan_goes_up_and_down(self) -> None:
        """It hands out each record from the first to the last, in that order, as bytes."""
        storage = self.scanning()
        fill(storage, 12)
        for first, last, step in ((1, 12, 1), (9, 11, 1), (5, 5, 1), (12, 1, -1), (11, 9, -1)):
            wanted = [b"record %d" % sequence for sequence in range(first, last + step, step)]
            same(list(storage.scan("a", first, last)), wanted, "A scan must keep its order.")

    def test_a_scan_stops_at_what_is_not_there(self) -> None:
        """It hands out what is before that, and says `NotFound`: an end would look like the end."""
        storage = self.scanning()
        fill(storage, 3)
        records = iter(storage.scan("a", 2, 5))
        same([next(records), next(records)], [b"record 2", b"record 3"], "Those before come first.")
        refused(NotFound, "A scan behind the head", next, records, None)
        refused(NotFound, "A scan of no thread", lambda: list(storage.scan("b", 1, 2)))

    def test_a_scan_stops_at_the_base(self) -> None:
        """What was pruned is not handed out, in either direction."""
        storage = self._pruning()
        fill(storage, 5)
        storage.prune("a", 4, b"base")
        same(list(storage.scan("a", 4, 5)), [b"record 4", b"record 5"], "The rest must be there.")
        refused(NotFound, "A scan from below the base", lambda: list(storage.scan("a", 3, 5)))
        records = iter(storage.scan("a", 5, 3))
        same([next(records), next(records)], [b"record 5", b"record 4"], "Those before come first.")
        refused(NotFound, "A scan to below the base", next, records, None)

    def test_a_scan_that_a_prune_overtakes_tells_no_lie(self) -> None:
        """It hands out the right records, or says `NotFound`, and never skips one."""
        storage = self._pruning()
        fill(storage, 9)
        records = iter(storage.scan("a", 1, 9))
        found = [next(records)]
        storage.prune("a", 5, b"base")
        try:
            found.extend(records)
        except NotFound:
            pass
        else:
            expect(len(found) == 9, "A scan that ends early must say NotFound.")
        wanted = [b"record %d" % sequence for sequence in range(1, len(found) + 1)]
        same(found, wanted, "A scan must skip nothing.")

    def test_odd_arguments_of_a_scan_are_refused(self) -> None:
        """Names and sequences that are none reach no file and no query."""
        storage = self.guarding(self.scanning())
        fill(storage, 1)
        for name in ODD_NAMES:
            what = f"The name {ascii(name)[:70]}"
            refused(InvalidId, what, lambda name=name: list(storage.scan(name, 1, 1)))
        for odd in ODD_SEQUENCES:
            for first, last in ((odd, 1), (1, odd)):
                refused(
                    InvalidId,
                    f"The sequence {odd!r}",
                    lambda first=first, last=last: list(storage.scan("a", first, last)),
                )

    def _pruning(self) -> Any:
        storage = self.scanning()
        if not callable(getattr(storage, "prune", None)):
            raise NotOffered("It has no prune.")
        return storage
