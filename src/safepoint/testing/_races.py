"""RaceClaims: what holds for every storage while several use it."""

from __future__ import annotations

from threading import Event
from typing import Any

from safepoint.errors import Conflict
from safepoint.testing._suite import NotOffered, Suite, expect, fill, same

RACERS = 8
PLACES = 20


class RaceClaims(Suite):
    """Several writers, and a reader beside a writer."""

    def test_one_of_two_racers_gets_a_place(self) -> None:
        """Of two that want one place, one gets it, and the other is told of a `Conflict`."""
        storage = self.storage()
        won = self.race(2, _each_place, self.rivals(storage))
        same(sorted([*won[0], *won[1]]), [*range(1, PLACES + 1)], "Each place must go to one.")
        _check_records(storage, won)

    def test_openings_that_race_leave_no_gap(self) -> None:
        """Eight openings that save after the head fill each place once, and none is lost."""
        if not self.shared:
            raise NotOffered("It lives in one process: shared = False.")
        storage = self.storage()
        _check_records(storage, self.race(RACERS, _after_the_head))

    def test_threads_that_race_leave_no_gap(self) -> None:
        """Eight threads that share one opening fill each place once, and none is lost."""
        if not self.threadsafe:
            raise NotOffered("One thread uses an opening: threadsafe = False.")
        storage = self.storage()
        _check_records(storage, self.race(RACERS, _after_the_head, storage))

    def test_a_reader_sees_whole_records(self) -> None:
        """What the head names can be read, and is whole, while somebody writes."""
        storage = self.storage()
        fill(storage, 1, thread="b")

        done = Event()

        def write(storage: Any) -> None:
            try:
                for sequence in range(1, PLACES + 1):
                    storage.append("a", sequence, b"%03d" % sequence * 20_000)
            finally:
                done.set()

        def look(storage: Any) -> None:
            last = False
            while not last:
                last = done.is_set()
                head = storage.head("a")
                whole = not head or storage.read("a", head) == b"%03d" % head * 20_000
                expect(whole, "A reader must see whole records.")

        self.race(2, lambda number, each: (write, look)[number](each), self.rivals(storage))


def _each_place(number: int, storage: Any) -> list[int]:
    won = []
    for sequence in range(1, PLACES + 1):
        try:
            storage.append("a", sequence, b"%d" % number)
        except Conflict:
            continue
        won.append(sequence)
    return won


def _after_the_head(number: int, storage: Any) -> list[int]:
    won = []
    while (sequence := storage.head("a") + 1) <= PLACES:
        try:
            storage.append("a", sequence, b"%d" % number)
        except Conflict:
            expect(storage.head("a") >= sequence, "Who is told of a Conflict must see the head.")
        else:
            won.append(sequence)
    return won


def _check_records(storage: Any, won: list[list[int]]) -> None:
    places = sorted(place for each in won for place in each)
    same(places, [*range(1, PLACES + 1)], "Each place must be acknowledged to one racer.")
    same(storage.head("a"), PLACES, "The head must be the last place.")
    for number, each in enumerate(won):
        for place in each:
            found = storage.read("a", place)
            same(found, b"%d" % number, "The record must be of the racer that was acknowledged.")
