"""StorageSuite: what every storage must do, as tests that you run on your own."""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, Literal, TypeVar
from unittest import SkipTest

from safepoint.anchor import InMemoryAnchor
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    EncodeError,
    InvalidId,
    NotFound,
    NotOwner,
    ThreadDeleted,
    quoted,
)
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.names import MAX_SEQUENCE
from safepoint.storage import InMemoryCheckpointStorage
from safepoint.storage.base import MAX_SECONDS, MAX_TOKEN, Lease

T = TypeVar("T")
Outcome = Literal["passed", "failed", "not offered"]

PATIENCE = 60.0
"""After how many seconds a storage that does not answer has failed."""
REQUIRED: Final = ("append", "read", "head", "threads")
PRUNING: Final = ("base", "prune")
LEASING: Final = ("acquire", "renew", "release", "lease")
SHORT: Final = 0.001
LARGE: Final = 1_000_000
RACERS: Final = 8
PLACES: Final = 20
# Names that a query, a file system or a loose column type may take for one another.
NAMES: Final = ("a", "a-", "a_b", "a-b", "axb", "0", "00", "1", "01", "1e0", "null", "a" * 64)
ODD_NAMES: Final[tuple[Any, ...]] = (
    *("", ".", "..", "../x", "a/b", "a\\b", "a\0", "a\n", "A", "-x", "_x", " ", "con", "com1"),
    *("\u0430", "\xe4", "a" * 65, "a'b", 'a"b', "a%", "a;b", None, 7, b"a", True),
)
ODD_SEQUENCES: Final[tuple[Any, ...]] = (0, -1, True, 1.0, "1", None, MAX_SEQUENCE + 1, 2**64)
NOT_BYTES: Final[tuple[Any, ...]] = ("text", None, 7, [1], {"a": 1})
ODD_TOKENS: Final[tuple[Any, ...]] = (0, -1, True, "1", 1.0, b"1", MAX_TOKEN + 1)
ODD_SECONDS: Final[tuple[Any, ...]] = (
    *(0, -1, True, "60", None, float("nan"), float("inf"), MAX_SECONDS + 1, 10**400),
)
NO_LEASES: Final[tuple[Any, ...]] = (None, 1, "worker-a", ("a", "worker-a", 1))


class NotOffered(SkipTest):
    """The storage does not offer what a claim is about. A test runner takes it for a skip."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of the suite, and what became of it.

    Attributes:
        name: the name of its method, without `test_`.
        sentence: what it claims.
        outcome: `passed`, `failed`, or `not offered`: the storage lacks what it is about.
        message: why it failed, or what is not offered.
    """

    name: str
    sentence: str
    outcome: Outcome
    message: str = ""

    def __str__(self) -> str:
        return f"{self.outcome:<11}  {self.name}{self.message and ': '}{self.message}"


@dataclass(frozen=True, slots=True)
class Report:
    """What became of each claim. It prints as a table.

    Attributes:
        claims: each of them, in the order of the suite.
    """

    claims: tuple[Claim, ...]

    @property
    def failed(self) -> tuple[Claim, ...]:
        """The claims that the storage does not keep."""
        return self.that("failed")

    @property
    def exit_code(self) -> int:
        """1 if a claim failed, 0 if none did."""
        return int(bool(self.failed))

    def that(self, outcome: Outcome) -> tuple[Claim, ...]:
        """Return the claims with this outcome."""
        return tuple(claim for claim in self.claims if claim.outcome == outcome)

    def __str__(self) -> str:
        outcomes: tuple[Outcome, ...] = ("passed", "failed", "not offered")
        counts = ", ".join(f"{len(self.that(each))} {each}" for each in outcomes)
        return "\n".join([*map(str, self.claims), f"{len(self.claims)} claims: {counts}"])


class StorageSuite:
    """The claims that every storage keeps, one `test_` method each.

    Write a class whose name begins with `Test`, and pytest runs them all:

    ```python
    from safepoint import FileCheckpointStorage
    from safepoint.testing import StorageSuite


    class TestMyStorage(StorageSuite):
        def open(self, folder):
            return FileCheckpointStorage(folder / "store")


    report = TestMyStorage.check()  # without pytest
    print([claim.name for claim in report.failed])
    #> []
    ```

    What a storage does not have, such as `prune` or leases, is skipped, with a reason; the four
    methods are required. A class that says `in_order = True` takes a record behind the last one
    alone, and is held to that.

    Attributes:
        shared: whether another opening, in another process say, sees the same records.
        threadsafe: whether several threads may use one opening.
        guarded: whether it refuses names, sequences and values that are none by itself, and does
            not leave that to the ledger.
        folder: the folder that `open` is given; new for each claim.
    """

    shared: bool = True
    threadsafe: bool = True
    guarded: bool = True
    folder: Path

    def open(self, folder: Path) -> Any:
        """Return the storage. Called again, it returns another opening of the same records."""
        raise NotImplementedError

    def close(self, storage: Any) -> None:
        """Let go of what `open` returned: calls its `close`, if it has one."""
        close = getattr(storage, "close", None)
        if callable(close):
            close()

    @classmethod
    def check(cls) -> Report:
        """Try each claim in a temporary folder of its own.

        Raises:
            ConfigurationError: `open` raises, or what it returns is no storage.
        """
        suite = cls()
        suite.setup_method()
        try:
            storage = suite._storage()
            lacking = [name for name in REQUIRED if not _has(storage, name)]
        except CheckpointError as error:
            raise ConfigurationError(
                f"The storage could not be opened. {_line(error.what)}", _line(error.do)
            ) from error
        except Exception as error:
            raise ConfigurationError(
                f"The storage could not be opened: it raised {type(error).__name__}.",
                "Write a function that takes a folder and returns a storage.",
            ) from error
        finally:
            suite.teardown_method()
        if lacking:
            raise ConfigurationError(
                f"{type(storage).__name__} is no storage: it has no {', no '.join(lacking)}.",
                f"Write a class with the methods {', '.join(REQUIRED)}.",
            )
        return Report(tuple(cls._tried(name) for name in claims()))

    @classmethod
    def _tried(cls, name: str) -> Claim:
        suite = cls()
        suite.setup_method()
        sentence = _line(getattr(StorageSuite, f"test_{name}").__doc__ or "")
        try:
            try:
                getattr(suite, f"test_{name}")()
            finally:
                suite.teardown_method()
        except NotOffered as lack:
            return Claim(name, sentence, "not offered", _line(str(lack)))
        except AssertionError as error:
            return Claim(name, sentence, "failed", _line(str(error)) or sentence)
        except Exception as error:  # noqa: BLE001  the storage is yours, and may raise anything
            return Claim(
                name, sentence, "failed", f"{type(error).__name__} came: {_line(str(error))}"
            )
        return Claim(name, sentence, "passed")

    def setup_method(self) -> None:
        """Make a folder; pytest calls this before each claim."""
        self._temp = tempfile.TemporaryDirectory(prefix="safepoint-")
        self._opened: list[Any] = []
        self.folder = Path(self._temp.name) / "folder"
        self.folder.mkdir()

    def teardown_method(self) -> None:
        """Close what was opened, and remove the folder."""
        try:
            while self._opened:
                self.close(self._opened.pop())
        finally:
            self._temp.cleanup()

    def _storage(self, *methods: str) -> Any:
        """Open the storage, if it has these methods."""
        storage = self.open(self.folder)
        self._opened.append(storage)
        if lacking := [method for method in methods if not _has(storage, method)]:
            raise NotOffered(f"It has no {' and no '.join(lacking)}.")
        return storage

    def _another(self) -> Any:
        """Open it once more, as another process would."""
        if not self.shared:
            raise NotOffered("It lives in one process: shared = False.")
        return self._storage()

    def _closed(self, storage: Any) -> None:
        self._opened.remove(storage)
        self.close(storage)

    def _rivals(self, storage: Any) -> Any:
        """Return what racers share: nothing if each can open it, else this opening."""
        if not self.shared and not self.threadsafe:
            raise NotOffered("One thread of one process uses it: nobody can race.")
        return None if self.shared else storage

    def _race(self, count: int, run: Callable[[int, Any], T], one: Any = None) -> list[T]:
        """Let threads run at once, each with its number and an opening of its own, or this one."""
        start = threading.Barrier(count)
        results: dict[int, T] = {}
        errors: list[BaseException] = []

        def compete(number: int) -> None:
            storage = one
            try:
                # Opened and closed here: some connections belong to the thread that made them.
                if one is None:
                    storage = self.open(self.folder)
                start.wait(PATIENCE)
                results[number] = run(number, storage)
            except BaseException as error:  # noqa: BLE001  it is raised again where it is seen
                start.abort()
                errors.append(error)
            finally:
                if one is None and storage is not None:
                    self.close(storage)

        racers = [threading.Thread(target=compete, args=(n,), daemon=True) for n in range(count)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)  # so that threads meet within what takes microseconds
        try:
            for racer in racers:
                racer.start()
            end = monotonic() + PATIENCE
            for racer in racers:
                racer.join(max(0.0, end - monotonic()))
        finally:
            sys.setswitchinterval(interval)
        # A racer that found the barrier broken says less than the one that broke it.
        for error in sorted(errors, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
            raise error
        _expect(len(results) == count, f"Racers must come to an end within {PATIENCE:.0f} seconds.")
        return [results[number] for number in range(count)]

    # Append, read, head and threads.

    def test_methods_come_in_whole_sets(self) -> None:
        """It has the four methods, and of pruning and leasing all methods or none."""
        storage = self._storage()
        for methods in (REQUIRED, PRUNING, LEASING):
            found = [method for method in methods if _has(storage, method)]
            _expect(
                (not found and methods != REQUIRED) or len(found) == len(methods),
                f"A storage that has {', '.join(found)} must have all of {', '.join(methods)}.",
            )

    def test_a_record_comes_back_byte_for_byte(self) -> None:
        """What was appended is read back as `bytes`, exactly, also empty or a megabyte long."""
        storage = self._storage()
        every = bytes(range(256))
        records = [b"", every, b"\r\n\0\n\x1a", "\ufeff\xe4".encode(), (every * 4000)[:LARGE]]
        for sequence, record in enumerate(records, start=1):
            storage.append("a", sequence, record)
        for sequence, record in enumerate(records * 2):
            found = storage.read("a", sequence % len(records) + 1)
            _expect(
                type(found) is bytes and found == record,
                f"A record of {len(record)} bytes must come back exactly, as bytes.",
            )

    def test_a_second_record_at_a_place_is_refused(self) -> None:
        """Not even by the same bytes; a refusal leaves nothing, and shows no record."""
        storage = self._storage()
        _fill(storage, 2)
        for sequence, again in ((1, b"canary"), (1, b"record 1"), (1, b""), (2, b"late")):
            said = _refused(
                Conflict, "A second record at a place", storage.append, "a", sequence, again
            )
            _expect("canary" not in said, "A refusal must not show a record.")
        _same(storage.head("a"), 2, "A refused record must not move the head.")
        _same(sorted(storage.threads()), ["a"], "A refused record must not make a thread.")
        _fill(storage, 3, first=3)
        _records(storage, "a", 1, 3, "The first records must stay, and the next be taken.")

    def test_threads_do_not_mix(self) -> None:
        """Each thread has its own records and its own head, however alike the names are."""
        storage = self._storage()
        for number, name in enumerate(NAMES):
            _fill(storage, 1 + number % 3, thread=name)
            storage.append(name, 2 + number % 3, name.encode())
        for number, name in enumerate(NAMES):
            last = 2 + number % 3
            _same(storage.head(name), last, f"The head of thread {name} must be its own.")
            _same(storage.read(name, last), name.encode(), f"Thread {name} must keep its own.")
        _same(sorted(storage.threads()), sorted(NAMES), "Each thread must be listed by its name.")

    def test_the_head_is_the_highest_sequence(self) -> None:
        """It is 0 for a thread without a record, and a number, not a text, above."""
        storage = self._storage()
        _same(storage.head("a"), 0, "The head of a thread without a record is 0.")
        for sequence in range(1, 13):
            _fill(storage, sequence, first=sequence)
            _same(storage.head("a"), sequence, "The head must be the highest sequence.")

    def test_each_thread_is_listed_once(self) -> None:
        """A thread is listed from its first record on, and not because somebody asked for it."""
        storage = self._storage()
        _same(list(storage.threads()), [], "An empty storage has no thread.")
        storage.head("asked")
        _refused(NotFound, "A read of what is not there", storage.read, "asked", 1)
        for name in ("b", "a", "c"):
            _fill(storage, 3, thread=name)
        _same(sorted(storage.threads()), ["a", "b", "c"], "Each thread must be listed once.")

    def test_what_is_not_there_is_not_found(self) -> None:
        """A read of no record is `NotFound`: not None, not a `KeyError`."""
        storage = self._storage()
        _fill(storage, 2)
        for thread, sequence in (("a", 3), ("a", MAX_SEQUENCE), ("b", 1)):
            _refused(NotFound, "A read of what is not there", storage.read, thread, sequence)

    def test_a_buffer_is_copied(self) -> None:
        """Who changes a buffer after `append`, or uses it again, changes nothing stored."""
        storage = self._storage()
        buffer = bytearray(LARGE)
        try:
            for sequence, view in ((1, buffer), (2, memoryview(buffer))):
                buffer[:] = b"%d" % sequence * LARGE
                storage.append("a", sequence, view)
            buffer[:] = b"x" * LARGE
        except EncodeError:
            return  # to refuse a buffer is as safe
        for sequence in (1, 2):
            found = storage.read("a", sequence)
            _expect(
                type(found) is bytes and found == b"%d" % sequence * LARGE,
                "A buffer that was appended must be kept as a copy, in bytes.",
            )

    def test_odd_arguments_are_refused(self) -> None:
        """Names, sequences, tokens, seconds and values that are none reach no file and no query."""
        if not self.guarded:
            raise NotOffered("It leaves such arguments to the ledger: guarded = False.")
        storage = self._storage()
        for kind, odd, calls in (
            (InvalidId, ODD_NAMES, ("append * 1 .", "read * 1", "head *", "base *", "lease *")),
            (InvalidId, ODD_NAMES, ("prune * 1 .", "scan * 1 1", "acquire * w 60", "acquire a *")),
            (InvalidId, ODD_SEQUENCES, ("append a * .", "read a *", "prune a * .")),
            (InvalidId, ODD_SEQUENCES, ("scan a * 1", "scan a 1 *")),
            (EncodeError, NOT_BYTES, ("append a 1 *", "prune a 1 *")),
            (ConfigurationError, ODD_SECONDS, ("acquire a w *", "renew L *")),
            (ConfigurationError, NO_LEASES, ("renew * 60", "release *")),
        ):
            for call in calls:
                method, *rest = call.split()
                for value in odd if _has(storage, method) else ():
                    what = f"{method} with {ascii(value)[:70]}"
                    _refused(kind, what, _call, storage, method, rest, value)
        if _has(storage, "acquire"):
            for fence in ODD_TOKENS:
                what = f"The token {fence!r}"
                _refused(ConfigurationError, what, storage.append, "b", 1, b"", fence=fence)
        _same(list(storage.threads()), [], "What is refused must not make a thread.")
        beside = [path.name for path in self.folder.parent.iterdir()]
        _same(beside, [self.folder.name], "What is refused must not make a file.")

    def test_a_place_out_of_order_is_refused(self) -> None:
        """A record goes behind the last one alone. Without `in_order`, the ledger may see to it."""
        storage = self._storage()
        _fill(storage, 2)
        for sequence in (4, MAX_SEQUENCE):
            try:
                storage.append("a", sequence, b"after a gap")
            except CheckpointError:
                _refused(NotFound, "A read of what was refused", storage.read, "a", sequence)
                _same(storage.head("a"), 2, "A refused record must not move the head.")
            else:
                _expect(not getattr(storage, "in_order", False), "in_order = True is not true.")
                raise NotOffered(
                    "It keeps a record at any free place: the ledger sees to the order."
                )
        _fill(storage, 3, first=3)
        _records(storage, "a", 1, 3, "It must go on behind the last record.")

    def test_another_opening_sees_each_record(self) -> None:
        """What one opening has appended, another sees at once, and the other way round."""
        storage, other = self._storage(), self._another()
        for sequence, (writer, reader) in enumerate(((storage, other), (other, storage)), start=1):
            _fill(writer, sequence, first=sequence)
            _same(reader.head("a"), sequence, "Another opening must see the new head.")
            _records(reader, "a", sequence, sequence, "Another opening must see the record.")
            _same(list(reader.threads()), ["a"], "Another opening must see the thread.")
            what = "A place that another opening has filled"
            _refused(Conflict, what, reader.append, "a", sequence, b"late")

    def test_it_is_all_there_when_it_is_opened_again(self) -> None:
        """Nothing depends on the object, or on how it was closed."""
        storage = self._storage()
        _fill(storage, 12)
        if self.shared:
            self._closed(storage)
        again = self._another()
        _same(again.head("a"), 12, "A new opening must find the head.")
        _records(again, "a", 12, 12, "A new opening must find the record.")
        _fill(again, 13, first=13)
        _same(again.head("a"), 13, "A new opening must go on.")

    # Several at once.

    def test_one_of_two_racers_gets_a_place(self) -> None:
        """Of two that want one place, one gets it, and the other is told of a `Conflict`."""
        storage = self._storage()
        _won(storage, self._race(2, _each_place, self._rivals(storage)))

    def test_openings_that_race_leave_no_gap(self) -> None:
        """Eight openings that save after the head fill each place once, and none is lost."""
        storage = self._storage()
        self._another()
        _won(storage, self._race(RACERS, _after_the_head))

    def test_threads_that_race_leave_no_gap(self) -> None:
        """Eight threads that share one opening fill each place once, and none is lost."""
        if not self.threadsafe:
            raise NotOffered("One thread uses an opening: threadsafe = False.")
        storage = self._storage()
        _won(storage, self._race(RACERS, _after_the_head, storage))

    def test_a_reader_sees_whole_records(self) -> None:
        """What the head names can be read, and is whole, while somebody writes."""
        storage = self._storage()
        _fill(storage, 1, thread="b")
        done = threading.Event()

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
                _expect(whole, "A reader must see whole records.")

        self._race(2, lambda number, each: (write, look)[number](each), self._rivals(storage))

    # Base and prune.

    def test_prune_removes_what_is_below(self) -> None:
        """Below the base there is nothing to read; above it, and beside it, all is as it was."""
        storage = self._storage(*PRUNING)
        _fill(storage, 12)
        _fill(storage, 3, thread="b")
        _same((storage.base("a"), storage.base("c")), (None, None), "There is no base at first.")
        for first, removed in ((10, 9), (12, 2)):
            _same(storage.prune("a", first, b"base"), removed, "Prune says how many it removed.")
            _same(storage.base("a"), (first, b"base"), "The base must be what prune left.")
            _same(storage.head("a"), 12, "The head must stay where it is.")
            for sequence in (1, first - 1):
                _refused(NotFound, "A read below the base", storage.read, "a", sequence)
            _records(storage, "a", first, 12, "What is above must stay.")
        _records(storage, "b", 1, 3, "Other threads must stay.")
        _same(sorted(storage.threads()), ["a", "b"], "A pruned thread must stay listed.")

    def test_a_pruned_thread_goes_on(self) -> None:
        """The next record follows the head, what is at the base or below stays taken."""
        storage = self._storage(*PRUNING)
        _fill(storage, 3)
        storage.prune("a", 3, b"base")
        _fill(storage, 6, first=4)
        _same(storage.head("a"), 6, "A pruned thread must go on.")
        _same(storage.prune("a", 5, b"newer"), 2, "Prune must say how many it removed.")
        for sequence in (1, 4, 5):
            what = "A record below the base, or at it"
            _refused(Conflict, what, storage.append, "a", sequence, b"late")
        _records(storage, "a", 5, 6, "What is above must stay.")
        _same(storage.base("a"), (5, b"newer"), "The base must be the newer one.")

    def test_a_thread_never_moves_backwards(self) -> None:
        """A prune to an earlier place changes nothing; one to the same place seals it anew."""
        storage = self._storage(*PRUNING)
        _fill(storage, 5)
        storage.prune("a", 4, b"base")
        for first, base, kept in (
            (3, b"older", b"base"),
            (1, b"older", b"base"),
            (4, b"anew", b"anew"),
            (4, b"anew", b"anew"),
        ):
            _same(storage.prune("a", first, base), 0, "There is nothing to remove.")
            _same(storage.base("a"), (4, kept), "A base is the newest of the highest place.")
        _records(storage, "a", 4, 5, "A new base must remove nothing.")

    def test_a_base_before_no_record_is_refused(self) -> None:
        """It would leave a thread that begins with nothing."""
        storage = self._storage(*PRUNING)
        _fill(storage, 3)
        for thread, first in (("a", 4), ("b", 1)):
            what = "A prune to where no record is"
            _refused(NotFound, what, storage.prune, thread, first, b"base")
            _same(storage.base(thread), None, "A refused prune must leave no base.")
        _records(storage, "a", 1, 3, "A refused prune removes nothing.")
        _same(list(storage.threads()), ["a"], "A refused prune must not make a thread.")

    def test_a_base_comes_back_byte_for_byte(self) -> None:
        """A base is bytes that nobody else can change, also if it is empty."""
        storage = self._storage(*PRUNING)
        _fill(storage, 2)
        for base in (b"", b"\n", b"0000000009\n", bytes(range(256)) * 20):
            storage.prune("a", 2, base)
            _same(storage.base("a"), (2, base), "A base must come back exactly.")
        buffer = bytearray(b"base")
        with suppress(EncodeError):  # to refuse a buffer is as safe
            storage.prune("a", 2, buffer)
            buffer[:] = b"EVIL"
            _same(storage.base("a"), (2, b"base"), "A buffer must be kept as a copy, in bytes.")

    def test_a_thread_may_begin_at_any_sequence(self) -> None:
        """A copy of a pruned thread begins where that does, and goes on from there."""
        storage = self._storage(*PRUNING)
        for thread, first in (("a", 7), ("b", 2**31), ("c", MAX_SEQUENCE - 1)):
            storage.append(thread, first, b"first")
            _same(storage.prune(thread, first, b"base"), 0, "There is nothing to remove.")
            storage.append(thread, first + 1, b"second")
            _same(storage.base(thread), (first, b"base"), "The base must be where it begins.")
            _same(storage.head(thread), first + 1, "A thread must go on from where it begins.")
            _same(storage.read(thread, first), b"first", "The first record must be there.")
            _refused(Conflict, "A record below", storage.append, thread, first - 1, b"late")

    def test_another_opening_sees_the_prune(self) -> None:
        """What one opening has pruned is gone for another, and stays gone."""
        storage, other = self._storage(*PRUNING), self._another()
        _fill(storage, 5)
        _same(other.head("a"), 5, "Another opening must see the head.")
        storage.prune("a", 4, b"base")
        for each in (other, self._another()):
            _same(each.base("a"), (4, b"base"), "Another opening must see the base.")
            _same(each.head("a"), 5, "Another opening must see the head.")
            _refused(NotFound, "A read below the base", each.read, "a", 3)
            _refused(Conflict, "A record below the base", each.append, "a", 3, b"late")

    def test_of_prunes_that_race_the_highest_counts(self) -> None:
        """Whatever their order: the base is the highest, and nothing above it is gone."""
        storage = self._storage(*PRUNING)
        _fill(storage, 12)
        wanted = (3, 9, 5, 7)

        def run(number: int, storage: Any) -> int:
            return int(storage.prune("a", wanted[number], b"base %d" % wanted[number]))

        removed = self._race(4, run, self._rivals(storage))
        _same(sum(removed), 8, "Each record must be removed once.")
        _same(storage.base("a"), (9, b"base 9"), "The highest base must count.")
        _records(storage, "a", 9, 12, "What is above must stay.")

    # Scan.

    def test_a_scan_goes_up_and_down(self) -> None:
        """It hands out each record from the first to the last, in that order, as bytes."""
        storage = self._storage("scan")
        _fill(storage, 12)
        for first, last, step in ((1, 12, 1), (9, 11, 1), (5, 5, 1), (12, 1, -1), (11, 9, -1)):
            wanted = [b"record %d" % sequence for sequence in range(first, last + step, step)]
            _same(list(storage.scan("a", first, last)), wanted, "A scan must keep its order.")

    def test_a_scan_stops_at_what_is_not_there(self) -> None:
        """It hands out what is before that, and says `NotFound`: an end would look like the end."""
        storage = self._storage("scan")
        _fill(storage, 3)
        _scanned(storage, 2, 5, [2, 3])
        _refused(NotFound, "A scan of no thread", lambda: list(storage.scan("b", 1, 2)))

    def test_a_scan_stops_at_the_base(self) -> None:
        """What was pruned is not handed out, in either direction."""
        storage = self._storage("scan", "prune")
        _fill(storage, 5)
        storage.prune("a", 4, b"base")
        found = list(storage.scan("a", 4, 5))
        _same(found, [b"record 4", b"record 5"], "The rest must be there.")
        _scanned(storage, 3, 5, [])
        _scanned(storage, 5, 3, [5, 4])

    def test_a_scan_that_a_prune_overtakes_tells_no_lie(self) -> None:
        """It hands out the right records, or says `NotFound`, and never skips one."""
        storage = self._storage("scan", "prune")
        _fill(storage, 9)
        records = iter(storage.scan("a", 1, 9))
        found = [next(records)]
        storage.prune("a", 5, b"base")
        try:
            found.extend(records)
        except NotFound:
            pass
        else:
            _expect(len(found) == 9, "A scan that ends early must say NotFound.")
        wanted = [b"record %d" % sequence for sequence in range(1, len(found) + 1)]
        _same(found, wanted, "A scan must skip nothing.")

    # Acquire, renew, release and lease.

    def test_a_storage_tells_who_owns_a_thread(self) -> None:
        """`lease` returns what `acquire` returned; to own a thread is not to have a record."""
        storage = self._storage(*LEASING)
        _same(storage.lease("a_b"), None, "A thread that nobody took is free.")
        first = storage.acquire("a_b", "worker-a", 60)
        second = storage.acquire("a-b", "worker-b", 60)
        _same((first.thread, first.owner), ("a_b", "worker-a"), "A lease names thread and worker.")
        found = [storage.lease(thread) for thread in ("a_b", "a-b", "axb")]
        _same(found, [first, second, None], "Each thread must have its own owner.")
        _same((storage.head("a_b"), list(storage.threads())), (0, []), "There is no record yet.")
        _fill(storage, 1, thread="axb")
        _fill(storage, 1, thread="a_b", fence=first.token)
        _same(sorted(storage.threads()), ["a_b", "axb"], "There is a record now.")

    def test_a_thread_that_is_owned_is_not_taken(self) -> None:
        """Another worker is refused until the lease was released, or has ended."""
        storage = self._storage(*LEASING)
        lease = storage.acquire("a", "worker-a", 60)
        _refused(NotOwner, "Another worker", storage.acquire, "a", "worker-b", 60)
        _same(storage.lease("a"), lease, "A refused worker must change nothing.")
        _fill(storage, 1, fence=lease.token)
        storage.release(lease)
        _same(storage.lease("a"), None, "A thread that was released is free.")
        _same(storage.acquire("a", "worker-b", 60).owner, "worker-b", "It can be taken.")
        old = storage.acquire("b", "worker-a", SHORT)
        new = _taken_over(storage, "b", "worker-b")
        _expect(new.token > old.token, "A takeover must give a higher token.")
        _fill(storage, 1, thread="b", fence=new.token)

    def test_a_token_is_never_given_twice(self) -> None:
        """Each token is higher than the one before, also after a release, an end or a restart."""
        storage = self._storage(*LEASING)
        tokens = [storage.acquire("a", "worker-a", 60).token]
        for _ in range(2):
            tokens.append(storage.acquire("a", "worker-a", 60).token)
            storage.release(storage.lease("a"))
            _fill(storage, storage.head("a") + 1, first=storage.head("a") + 1)
            tokens.append(storage.acquire("a", "worker-b", SHORT).token)
            lease = _taken_over(storage, "a", "worker-c")
            tokens.append(lease.token)
            storage.release(storage.renew(lease, 60))
        _same(tokens, sorted(set(tokens)), "Tokens must grow.")

    def test_tokens_go_on_after_a_prune(self) -> None:
        """Forgetting records forgets no owner and no token, and needs none."""
        storage = self._storage(*LEASING, "prune")
        lease = storage.acquire("a", "worker-a", 60)
        _fill(storage, 3, fence=lease.token)
        _same(storage.prune("a", 3, b"base"), 2, "A prune needs no token: it writes no state.")
        _same(storage.lease("a"), lease, "A prune must leave the owner.")
        _fill(storage, 4, first=4, fence=lease.token)
        storage.release(lease)
        again = storage.acquire("a", "worker-a", 60)
        _expect(again.token > lease.token, "A token must be higher than those before the prune.")

    def test_to_renew_keeps_the_token(self) -> None:
        """And moves the end, for everybody who looks."""
        storage = self._storage(*LEASING)
        lease = storage.acquire("a", "worker-a", 60)
        renewed = storage.renew(lease, 3600)
        _same(renewed.token, lease.token, "To renew must keep the token.")
        _expect(renewed.expires > lease.expires, "To renew must move the end.")
        _same(storage.lease("a"), renewed, "The lease that counts must be the renewed one.")
        _fill(storage, 1, fence=renewed.token)

    def test_a_lease_of_another_name_is_nobodys(self) -> None:
        """The number alone is not the lease."""
        storage = self._storage(*LEASING)
        lease = storage.acquire("a", "worker-a", 60)
        stranger = replace(lease, owner="worker-b")
        _refused(NotOwner, "A renewal under another name", storage.renew, stranger, 60)
        _refused(NotOwner, "A release under another name", storage.release, stranger)
        _same(storage.lease("a"), lease, "It must change nothing.")

    def test_to_release_twice_does_nothing(self) -> None:
        """Who does not know whether the first try counted tries again, and renews nothing."""
        storage = self._storage(*LEASING)
        lease = storage.acquire("a", "worker-a", 60)
        storage.release(lease)
        storage.release(lease)
        _same(storage.lease("a"), None, "The thread must stay free.")
        _refused(NotOwner, "A renewal after the release", storage.renew, lease, 60)
        _same(storage.lease("a"), None, "The thread must stay free.")

    def test_one_of_many_racers_owns_a_thread(self) -> None:
        """Eight workers want a free thread: one gets it, and seven are told."""
        storage = self._storage(*LEASING)

        def run(number: int, storage: Any) -> Lease | None:
            with suppress(NotOwner):
                lease: Lease = storage.acquire("a", f"worker-{number}", 60)
                return lease
            return None

        won = [lease for lease in self._race(RACERS, run, self._rivals(storage)) if lease]
        _same(len(won), 1, "One racer must own the thread.")
        _same(storage.lease("a"), won[0], "The lease that counts must be the winner's.")

    # Append with a token, and without.

    def test_another_opening_sees_the_owner(self) -> None:
        """Owner and tokens are in the store, and not in the object."""
        storage, other = self._storage(*LEASING), self._another()
        lease = storage.acquire("a", "worker-a", 60)
        _same(other.lease("a"), lease, "Another opening must see the owner.")
        _refused(NotOwner, "Another worker", other.acquire, "a", "worker-b", 60)
        _refused(NotOwner, "A save without a token", other.append, "a", 1, b"late")
        _fill(other, 1, fence=lease.token)
        other.release(lease)
        _refused(NotOwner, "A token that was released", storage.append, "a", 2, b"", fence=1)
        self._closed(storage)
        again = self._another().acquire("a", "worker-b", 60)
        _expect(again.token > lease.token, "A new opening must go on with higher tokens.")

    def test_a_save_without_the_token_is_refused(self) -> None:
        """Without one, with a lower or a higher one, also after the lease has ended."""
        storage = self._storage(*LEASING)
        for thread, seconds in (("a", 60), ("b", SHORT)):
            storage.acquire(thread, "worker-a", seconds)
            token = storage.acquire(thread, "worker-a", seconds).token
            for fence in (None, token - 1, token + 1, MAX_TOKEN):
                what = f"A save with the token {fence}"
                _refused(NotOwner, what, storage.append, thread, 1, b"late", fence=fence)
            _same(storage.head(thread), 0, "A refused save must leave nothing.")
            _fill(storage, 1, thread=thread, fence=token)
            what = "A second record at a place, by the owner"
            _refused(Conflict, what, storage.append, thread, 1, b"late", fence=token)
            _records(storage, thread, 1, 1, "The first record must stay.")

    def test_a_token_of_no_owner_is_refused(self) -> None:
        """A thread that is free takes records without a token alone."""
        storage = self._storage(*LEASING)
        _refused(NotOwner, "A token of no owner", storage.append, "a", 1, b"late", fence=1)
        lease = storage.acquire("a", "worker-a", 60)
        storage.release(lease)
        what = "A token that was released"
        _refused(NotOwner, what, storage.append, "a", 1, b"late", fence=lease.token)
        _same(storage.head("a"), 0, "A refused save must leave nothing.")
        _fill(storage, 1)

    def test_an_owner_goes_on_if_nobody_came(self) -> None:
        """The token decides whose save counts, and the clock does not."""
        storage = self._storage(*LEASING)
        lease = storage.acquire("a", "worker-a", SHORT)
        end = storage.acquire("b", "worker-b", SHORT)
        _taken_over(storage, "b", "worker-c")  # by now, both have ended
        _expect(end.expires >= lease.expires, "A later lease of the same length ends later.")
        _fill(storage, 1, fence=lease.token)
        _same(storage.lease("a"), lease, "A lease that has ended counts until somebody comes.")
        renewed = storage.renew(lease, 60)
        _same(renewed.token, lease.token, "A lease that has ended can be renewed.")
        _refused(NotOwner, "Another worker", storage.acquire, "a", "worker-b", 60)

    def test_a_former_owner_can_do_nothing(self) -> None:
        """Once another worker has the thread, or the same one anew: no save, renewal, release."""
        storage = self._storage(*LEASING)
        for thread, old, new in (
            ("a", storage.acquire("a", "worker-a", SHORT), _taken_over(storage, "a", "worker-b")),
            ("b", storage.acquire("b", "worker-a", 60), storage.acquire("b", "worker-a", 60)),
        ):
            _expect(new.token > old.token, "A new owner must get a new token.")
            _fill(storage, 1, thread=thread, fence=new.token)
            for sequence in (1, 2):
                what = "A save by the former owner"
                _refused(NotOwner, what, storage.append, thread, sequence, b"old", fence=old.token)
            _refused(NotOwner, "A renewal by the former owner", storage.renew, old, 60)
            _refused(NotOwner, "A release by the former owner", storage.release, old)
            found = storage.lease(thread), storage.head(thread)
            _same(found, (new, 1), "It must change nothing.")

    def test_nothing_of_a_former_owner_lands_after_a_takeover(self) -> None:
        """Token and record are looked at in one step: no save slips in between the two."""
        storage = self._storage(*LEASING)
        for thread in ("a", "b", "c"):
            old = storage.acquire(thread, "worker-a", SHORT)
            saved, before = self._race(2, _takeover(thread, old), self._rivals(storage))
            _same(saved, before, "After a takeover, nothing of the former owner may land.")
            head = storage.head(thread)
            found = [storage.read(thread, sequence) for sequence in range(1, head + 1)]
            _same(found, [b"old"] * before + [b"new"] * 3, "What was acknowledged must be there.")

    # Under a ledger.

    def test_a_ledger_saves_and_verifies(self) -> None:
        """What a ledger has saved, another one on the same records verifies and restores."""
        storage = self._storage()
        ledger, second = self._ledgers(storage)
        for number in range(1, 4):
            ledger.save("a", {"number": number, "text": "\xe4\0"})
        _same(second.latest("a").state, {"number": 3, "text": "\xe4\0"}, "The latest is restored.")
        numbers = [each.state["number"] for each in second.history("a")]
        _same(numbers, [1, 2, 3], "The history must be whole.")
        _same(second.verify("a", every_signature=True), 3, "Each record must verify.")
        _same(second.threads(), ["a"], "The thread must be listed.")
        second.save("a", {"number": 4}, after=3)
        _same(ledger.latest("a").sequence, 4, "The first ledger must see it.")

    def test_a_ledger_prunes_and_deletes_a_thread(self) -> None:
        """What is left after a prune goes on; after a deletion a signed record says so."""
        storage = self._storage(*PRUNING)
        ledger, _ = self._ledgers(storage)
        for number in range(1, 6):
            ledger.save("a", number)
        _same(ledger.prune("a", keep=2), 3, "Three of five must be removed.")
        ledger.save("a", 6)
        _same([each.state for each in ledger.history("a")], [4, 5, 6], "The rest must be there.")
        _same(ledger.verify("a"), 3, "What is left must verify.")
        _same(ledger.delete("a").sequence, 7, "The signed record must come last.")
        _refused(ThreadDeleted, "The latest of a deleted thread", ledger.latest, "a")
        _refused(ThreadDeleted, "A save to a deleted thread", ledger.save, "a", 8)
        _same(storage.base("a")[0], 7, "Its records must be gone.")

    def test_a_pruned_thread_is_copied_into_it(self) -> None:
        """A store can move here, also if it does not begin at 1 any more."""
        target, again = self._ledgers(self._storage(*PRUNING))
        source = Ledger(
            InMemoryCheckpointStorage(),
            store=target.store,
            keys=target.keys,
            anchor=InMemoryAnchor(),
        )
        for number in range(1, 6):
            source.save("a", number)
        source.prune("a", keep=3)
        _same(source.copy_to(target), 3, "Three records must be copied.")
        _same([each.state for each in target.history("a")], [3, 4, 5], "The copy must be whole.")
        _same(again.verify("a"), 3, "The copy must verify.")

    def test_a_ledger_owns_a_thread(self) -> None:
        """While one ledger owns a thread, another one saves nothing there."""
        owner, other = self._ledgers(self._storage(*LEASING))
        with owner.own("a", "worker-a"):
            owner.save("a", 1)
            _refused(NotOwner, "A save by another ledger", other.save, "a", 2)
            _refused(NotOwner, "Another worker", other.own, "a", "worker-b")
            _same(other.owner("a"), "worker-a", "The owner must be known.")
        other.save("a", 2)
        _same(owner.latest("a").state, 2, "A thread that was released takes records again.")

    def _ledgers(self, storage: Any) -> tuple[Ledger, Ledger]:
        """Return two ledgers of one key and anchor, on two openings if there can be two."""
        keys, anchor = Keyring(SigningKey.generate()), InMemoryAnchor()
        second = self._another() if self.shared else storage
        return (
            Ledger(storage, store="conformance", keys=keys, anchor=anchor),
            Ledger(second, store="conformance", keys=keys, anchor=anchor),
        )


def check_storage(
    open: Callable[[Path], Any],  # noqa: A002  as the suite calls it
    *,
    shared: bool = True,
    threadsafe: bool = True,
    guarded: bool = True,
) -> Report:
    """Try each claim of `StorageSuite` on a storage, without a test runner.

    ```python
    from safepoint import InMemoryCheckpointStorage
    from safepoint.testing import check_storage

    report = check_storage(
        lambda folder: InMemoryCheckpointStorage(), shared=False
    )
    print(report.exit_code)
    #> 0
    ```

    Args:
        open: takes a folder, and returns the storage; again, another opening of the same records.
        shared: whether another opening sees the same records.
        threadsafe: whether several threads may use one opening.
        guarded: whether it refuses names, sequences and values that are none by itself.

    Raises:
        ConfigurationError: `open` cannot be called or raises, or what it returns is no storage.
    """
    if not callable(open):
        raise ConfigurationError(
            f"{quoted(open)} cannot be called.",
            "Write a function that takes a folder and returns a storage.",
        )

    class Checked(StorageSuite):
        def open(self, folder: Path) -> Any:
            return opening(folder)

    opening = open
    Checked.shared, Checked.threadsafe, Checked.guarded = shared, threadsafe, guarded
    return Checked.check()


def claims() -> list[str]:
    """Return the name of each claim, in order."""
    return [name.removeprefix("test_") for name in vars(StorageSuite) if name.startswith("test_")]


def _has(storage: Any, method: str) -> bool:
    return callable(getattr(storage, method, None))


def _line(text: str) -> str:
    """Return a text on one line, in ASCII, at most 300 characters of it."""
    return re.sub(r"\s+", " ", text.encode("ascii", "backslashreplace").decode())[:300].strip()


def _expect(condition: bool, sentence: str) -> None:
    """Fail with the sentence unless the condition holds. It works under `python -O` as well."""
    if not condition:
        raise AssertionError(sentence)


def _same(found: object, wanted: object, sentence: str) -> None:
    """Fail with the sentence unless both are equal and of one type, and so is what is in them."""
    _expect(
        found == wanted and _kinds(found) == _kinds(wanted),
        f"{sentence} Wanted {quoted(wanted)}, found {quoted(found)}.",
    )


def _kinds(value: object) -> object:
    inner = [_kinds(each) for each in value] if isinstance(value, (list, tuple)) else []
    return type(value), inner


def _refused(
    kind: type[CheckpointError], what: str, call: Callable[..., object], *args: Any, **options: Any
) -> str:
    """Return the message of a refusal; fail if there is none, or it is another one."""
    try:
        call(*args, **options)
    except kind as error:
        said = str(error)
        worded = all(isinstance(part, str) and part.strip() for part in (error.what, error.do))
        _expect(
            worded and said.isprintable(),
            f"A refusal must say on one line what happened and what to do: {quoted(said)}.",
        )
        return said
    except Exception as error:
        raise AssertionError(
            f"{what} must be refused with {kind.__name__}, and {type(error).__name__} came."
        ) from error
    raise AssertionError(f"{what} must be refused with {kind.__name__}, and was accepted.")


def _fill(storage: Any, last: int, first: int = 1, thread: str = "a", **options: Any) -> None:
    """Append records that tell their places."""
    for sequence in range(first, last + 1):
        storage.append(thread, sequence, b"record %d" % sequence, **options)


def _records(storage: Any, thread: str, first: int, last: int, sentence: str) -> None:
    """Fail unless the records are there that tell their places."""
    places = range(first, last + 1)
    found = [storage.read(thread, sequence) for sequence in places]
    _same(found, [b"record %d" % sequence for sequence in places], sentence)


def _scanned(storage: Any, first: int, last: int, wanted: list[int]) -> None:
    """Fail unless a scan hands out these, and then says `NotFound`."""
    found: list[bytes] = []

    def scan() -> None:
        for record in storage.scan("a", first, last):
            found.append(record)  # noqa: PERF402  what came before the refusal counts

    _refused(NotFound, "A scan of what is gone", scan)
    _same(found, [b"record %d" % place for place in wanted], "Those before come first.")


def _call(storage: Any, method: str, rest: list[str], value: Any) -> object:
    """Call a method with an odd value where `*` stands: `.` is bytes, and L a genuine lease."""
    known = {"*": value, ".": b"", "L": None, "1": 1, "60": 60}
    if "L" in rest:
        known["L"] = storage.acquire("l", "w", 60)
    arguments = [known.get(word, word) for word in rest]
    if method == "acquire" and len(arguments) == 2:
        arguments.append(60)
    done = getattr(storage, method)(*arguments)
    return list(done) if method == "scan" else done


def _taken_over(storage: Any, thread: str, owner: str) -> Lease:
    """Acquire a thread whose lease is about to end."""
    end = monotonic() + PATIENCE
    while monotonic() <= end:
        with suppress(NotOwner):
            lease: Lease = storage.acquire(thread, owner, 60)
            return lease
        sleep(0.002)
    raise AssertionError("A lease that has ended must be taken over.")


def _takeover(thread: str, old: Lease) -> Callable[[int, Any], int]:
    """Let racer 0 save under the old token for as long as it can, and racer 1 take the thread."""
    taken, ended = threading.Event(), threading.Event()

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
            lease = _taken_over(storage, thread, "worker-b")
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


def _each_place(number: int, storage: Any) -> list[int]:
    won = []
    for sequence in range(1, PLACES + 1):
        with suppress(Conflict):
            storage.append("a", sequence, b"%d" % number)
            won.append(sequence)
    return won


def _after_the_head(number: int, storage: Any) -> list[int]:
    won = []
    while (sequence := storage.head("a") + 1) <= PLACES:
        try:
            storage.append("a", sequence, b"%d" % number)
        except Conflict:
            _expect(storage.head("a") >= sequence, "Who is told of a Conflict must see the head.")
        else:
            won.append(sequence)
    return won


def _won(storage: Any, won: list[list[int]]) -> None:
    places = sorted(place for each in won for place in each)
    _same(places, [*range(1, PLACES + 1)], "Each place must be acknowledged to one racer.")
    _same(storage.head("a"), PLACES, "The head must be the last place.")
    for number, each in enumerate(won):
        for place in each:
            found = storage.read("a", place)
            _same(found, b"%d" % number, "The record must be of the racer that was acknowledged.")
