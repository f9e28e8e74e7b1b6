"""StorageSuite: what every storage must do, as tests that you run on your own."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, TypeVar
from unittest import SkipTest

from safepoint.core.anchor import InMemoryAnchor
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    EncodeError,
    InvalidId,
    NotFound,
    NotOwner,
    quoted,
)
from safepoint.core.keys import Keyring, SigningKey
from safepoint.core.ledger import Ledger
from safepoint.core.names import MAX_SEQUENCE
from safepoint.core.storage import MAX_SECONDS, Lease

T = TypeVar("T")

PATIENCE = 60.0
"""For how many seconds to wait for racers, and for a lease that is about to end."""
REQUIRED: Final = ("append", "read", "head", "threads")
PRUNING: Final = ("base", "prune")
LEASING: Final = ("acquire", "renew", "release", "lease")
SHORT: Final = 0.001
LARGE: Final = 1_000_000
RACERS: Final = 8
PLACES: Final = 20
LATE: Final = b"canary"
"""A record that is to be refused. No message shows it."""
# Names that a query, a file system or a loose column type may take for one another.
NAMES: Final = ("a", "a-", "a_b", "a-b", "axb", "0", "00", "1", "01", "1e0", "null", "a" * 64)
# By the type of an argument as it should be: how others are refused, and which.
ODD: Final[dict[type, tuple[type[CheckpointError], tuple[Any, ...]]]] = {
    str: (
        InvalidId,
        (
            *("", ".", "..", "../x", "a/b", "a\\b", "a\0", "a\n", "A", "-x", "_x", " ", "con"),
            *("com1", "\u0430", "\xe4", "a" * 65, "a'b", 'a"b', "a%", "a;b", None, 7, b"a", True),
        ),
    ),
    int: (InvalidId, (0, -1, True, 1.0, "1", None, MAX_SEQUENCE + 1, 2**64)),
    float: (ConfigurationError, (0, -1, float("nan"), float("inf"), MAX_SECONDS + 1, 10**400)),
}


class Probe:
    """A storage that is asked, and an AssertionError where it does not answer as it must."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    def __getattr__(self, method: str) -> Any:
        return getattr(self.storage, method)

    def has(self, method: str) -> bool:
        """Tell whether it has a method."""
        return callable(getattr(self.storage, method, None))

    def gives(self, wanted: object, method: str, *given: Any, **options: Any) -> None:
        """Ask, and compare what comes back: the value, and its type."""
        found = getattr(self.storage, method)(*given, **options)
        found = sorted(found) if method in ("threads", "tenants") else found
        same(list(found) if method == "scan" else found, wanted, _shown(method, given))

    def refuses(
        self, kind: type[CheckpointError], method: str, *given: Any, **options: Any
    ) -> None:
        """Ask for what must be refused, with an error that says what happened and what to do."""
        call = _shown(method, (*given, *options.values()))
        try:
            found = getattr(self.storage, method)(*given, **options)
            if method == "scan":
                list(found)
        except kind as error:
            said = f"{error.what.strip()}|{error.do.strip()}"
            expect(
                said.isprintable() and not said.startswith("|") and not said.endswith("|"),
                f"A refusal must say on one line what happened and what to do: {quoted(said)}.",
            )
            expect(LATE.decode() not in said, f"The refusal of {call} must not show a record.")
            return
        except Exception as error:
            raise AssertionError(
                f"{call} must be refused with {kind.__name__}, and {type(error).__name__} came."
            ) from error
        raise AssertionError(f"{call} must be refused with {kind.__name__}, and was accepted.")

    def fill(self, thread: str, last: int, first: int = 1, **options: Any) -> None:
        """Append records that tell their places."""
        for sequence in range(first, last + 1):
            self.storage.append(thread, sequence, b"record %d" % sequence, **options)

    def holds(self, thread: str, first: int, last: int) -> None:
        """Look for the records that tell their places, up to the head."""
        for sequence in range(first, last + 1):
            self.gives(b"record %d" % sequence, "read", thread, sequence)
        self.gives(last, "head", thread)
        if self.has("newest"):
            self.gives((last, b"record %d" % last), "newest", thread)

    def taken_over(self, thread: str, owner: str) -> Lease:
        """Acquire a thread whose lease is about to end."""
        end = monotonic() + PATIENCE
        while monotonic() <= end:
            with suppress(NotOwner):
                lease: Lease = self.storage.acquire(thread, owner, 60)
                return lease
            sleep(0.002)
        raise AssertionError("A lease that has ended must be taken over.")


def expect(condition: bool, sentence: str) -> None:
    """Fail with the sentence unless the condition holds. It works under `python -O` as well."""
    if not condition:
        raise AssertionError(sentence)


def same(found: object, wanted: object, what: str) -> None:
    """Fail unless both are equal and look alike: `True` is no 1, and a bytearray no bytes."""
    expect(
        found == wanted and repr(found) == repr(wanted),
        f"{what} must be {quoted(wanted)}, and is {quoted(found)}.",
    )


def _shown(method: str, given: tuple[Any, ...]) -> str:
    return f"{method}({', '.join(quoted(each) for each in given)})"


def claim(*methods: str) -> Callable[[Callable[[Any, Probe], None]], Callable[[Any], None]]:
    """Make a test of a claim: it is given the storage, if that has the methods."""

    def decorate(body: Callable[[Any, Probe], None]) -> Callable[[Any], None]:
        def test(self: StorageSuite) -> None:
            body(self, self._asked(*methods))

        test.__name__, test.__doc__ = body.__name__, body.__doc__
        return test

    return decorate


class StorageSuite:
    """The claims that every storage keeps, one `test_` method each.

    Write a class whose name begins with `Test`, and pytest runs them all:

    ```python
    from safepoint import FileCheckpointStorage
    from safepoint.testing import StorageSuite


    class TestMyStorage(StorageSuite):
        def open(self, folder):
            return FileCheckpointStorage(folder / "store")
    ```

    What a storage does not have, such as `prune` or leases, is skipped, with a reason; the four
    methods are required, and that `append` takes a record behind the last one alone.

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

    def setup_method(self) -> None:
        """Make a folder; pytest calls this before each claim."""
        self._temp = tempfile.TemporaryDirectory(prefix="safepoint-")
        self._opened: list[Any] = []
        self.folder = Path(self._temp.name) / "folder"
        self.folder.mkdir(mode=0o700)

    def teardown_method(self) -> None:
        """Close what was opened, and remove the folder."""
        try:
            while self._opened:
                self.close(self._opened.pop())
        finally:
            self._temp.cleanup()

    def _asked(self, *methods: str) -> Probe:
        """Open the storage, if it has these methods."""
        storage = Probe(self.open(self.folder))
        self._opened.append(storage.storage)
        if lacking := [method for method in methods if not storage.has(method)]:
            raise SkipTest(f"It has no {' and no '.join(lacking)}.")
        return storage

    def _another(self) -> Probe:
        """Open it once more, as another process would."""
        if not self.shared:
            raise SkipTest("It lives in one process: shared = False.")
        return self._asked()

    def _rivals(self, storage: Probe) -> Probe | None:
        """Return what racers share: nothing if each can open it, else this opening."""
        if not self.shared and not self.threadsafe:
            raise SkipTest("One thread of one process uses it: nobody can race.")
        return None if self.shared else storage

    def _race(self, count: int, run: Callable[[int, Probe], T], one: Probe | None) -> list[T]:
        """Let threads run at once, each with its number and an opening of its own, or this one."""
        ready, start = threading.Semaphore(0), threading.Event()

        def compete(number: int) -> T:
            # Opened and closed here: some connections belong to the thread that made them.
            try:
                storage = one or Probe(self.open(self.folder))
            finally:
                ready.release()
            try:
                start.wait()
                return run(number, storage)
            finally:
                if one is None:
                    self.close(storage.storage)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)  # so that threads meet within what takes microseconds
        try:
            with ThreadPoolExecutor(count) as pool:
                racers = [pool.submit(compete, number) for number in range(count)]
                for _ in racers:
                    ready.acquire(timeout=PATIENCE)  # whoever is later than that starts later
                start.set()
                return [each.result() for each in racers]
        finally:
            sys.setswitchinterval(interval)

    # Append, read, head and threads.

    @claim()
    def test_methods_come_in_whole_sets(self, storage: Probe) -> None:
        """It has the four methods, and of pruning and leasing all methods or none."""
        for methods in (REQUIRED, PRUNING, LEASING):
            found = [method for method in methods if storage.has(method)]
            expect(
                len(found) == len(methods) or (not found and methods != REQUIRED),
                f"It has {', '.join(found) or 'none'}, and must have all of {', '.join(methods)}.",
            )

    @claim()
    def test_a_record_comes_back_byte_for_byte(self, storage: Probe) -> None:
        """As `bytes`, also empty or a megabyte long, whatever becomes of the buffer it was in."""
        every = bytes(range(256))
        records = [b"", every, b"\r\n\0\n\x1a", "\ufeff\xe4".encode(), (every * 4000)[:LARGE]]
        for sequence, record in enumerate(records, start=1):
            storage.append("a", sequence, record)
        for sequence, record in enumerate(records, start=1):
            storage.gives(record, "read", "a", sequence)
        buffer = bytearray(b"b" * LARGE)
        with suppress(EncodeError):  # to refuse a buffer is as safe
            storage.append("b", 1, buffer)
            buffer[:] = b"x" * LARGE
            storage.gives(b"b" * LARGE, "read", "b", 1)

    @claim()
    def test_a_second_record_at_a_place_is_refused(self, storage: Probe) -> None:
        """Not even by the same bytes; a refusal leaves nothing, and shows no record."""
        storage.fill("a", 2)
        for sequence, again in ((1, LATE), (1, b"record 1"), (1, b""), (2, LATE)):
            storage.refuses(Conflict, "append", "a", sequence, again)
        storage.gives(2, "head", "a")
        storage.gives(["a"], "threads")
        storage.fill("a", 3, first=3)
        storage.holds("a", 1, 3)

    @claim()
    def test_threads_do_not_mix(self, storage: Probe) -> None:
        """Each has its own records and head, however alike the names, and is listed once."""
        storage.gives([], "threads")
        storage.gives(0, "head", "asked")
        for number, name in enumerate(NAMES):
            storage.fill(name, 1 + number % 3)
            storage.append(name, 2 + number % 3, name.encode())
        for number, name in enumerate(NAMES):
            storage.gives(2 + number % 3, "head", name)
            storage.gives(name.encode(), "read", name, 2 + number % 3)
        storage.gives(sorted(NAMES), "threads")

    @claim()
    def test_the_head_is_the_highest_sequence(self, storage: Probe) -> None:
        """A number, not a text, and 0 without a record; what is not there is `NotFound`."""
        storage.gives(0, "head", "a")
        for sequence in range(1, 13):
            storage.fill("a", sequence, first=sequence)
            storage.holds("a", sequence, sequence)
        for thread, sequence in (("a", 13), ("a", MAX_SEQUENCE), ("b", 1)):
            storage.refuses(NotFound, "read", thread, sequence)

    @claim()
    def test_odd_arguments_are_refused(self, storage: Probe) -> None:
        """Names, sequences and seconds that are none reach no file and no query."""
        if not self.guarded:
            raise SkipTest("It leaves such arguments to the ledger: guarded = False.")
        lease = storage.acquire("l", "w", 60) if storage.has("acquire") else None
        for method, *given in (
            ("append", "a", 1, b""),
            ("read", "a", 1),
            ("head", "a"),
            ("base", "a"),
            ("prune", "a", 1, b""),
            ("scan", "a", 1, 1),
            ("lease", "a"),
            ("acquire", "a", "w", 60.0),
            ("renew", lease, 60.0),
            ("release", lease),
            ("tenant", "a"),
        ):
            for at, right in enumerate(given if storage.has(method) else ()):
                kind, values = ODD.get(type(right), (InvalidId, ()))
                for value in values:
                    storage.refuses(kind, method, *given[:at], value, *given[at + 1 :])
        storage.gives([], "threads")
        beside = [path.name for path in self.folder.parent.iterdir()]
        same(beside, [self.folder.name], "What is beside its folder")

    @claim()
    def test_a_place_out_of_order_is_refused(self, storage: Probe) -> None:
        """A record goes behind the last one alone: a ledger builds on that without a look."""
        for head in (0, 2):
            storage.fill("a", head)
            for sequence in (head + 2, MAX_SEQUENCE):
                storage.refuses(CheckpointError, "append", "a", sequence, b"after a gap")
                storage.refuses(NotFound, "read", "a", sequence)
                storage.gives(head, "head", "a")
        storage.fill("a", 3, first=3)
        storage.holds("a", 1, 3)

    @claim()
    def test_another_opening_sees_each_record(self, storage: Probe) -> None:
        """At once, and the other way round; and so does one that comes after the first closed."""
        other = self._another()
        for sequence, (writer, reader) in enumerate(((storage, other), (other, storage)), start=1):
            writer.fill("a", sequence, first=sequence)
            reader.holds("a", 1, sequence)
            reader.gives(["a"], "threads")
            reader.refuses(Conflict, "append", "a", sequence, LATE)
        other.fill("a", 12, first=3)
        while self._opened:
            self.close(self._opened.pop())
        again = self._another()
        again.holds("a", 1, 12)
        again.fill("a", 13, first=13)
        again.gives(13, "head", "a")

    # Several at once.

    @claim()
    def test_racers_fill_each_place_once(self, storage: Probe) -> None:
        """Eight want each place, with an opening each, or on one that they share: one gets it."""
        rivals = self._rivals(storage)
        _won(storage, self._race(RACERS, partial(_each_place, "a"), rivals), "a")
        if self.threadsafe:
            _won(storage, self._race(RACERS, partial(_each_place, "b"), storage), "b")

    @claim()
    def test_a_reader_sees_whole_records(self, storage: Probe) -> None:
        """What the head names can be read, and is whole, while somebody writes."""
        done = threading.Event()

        def write(storage: Probe) -> None:
            try:
                for sequence in range(1, PLACES + 1):
                    storage.append("a", sequence, b"%03d" % sequence * 20_000)
            finally:
                done.set()

        def look(storage: Probe) -> None:
            last = False
            while not last:
                last = done.is_set()
                head = storage.head("a")
                if head:
                    storage.gives(b"%03d" % head * 20_000, "read", "a", head)

        self._race(2, lambda number, each: (write, look)[number](each), self._rivals(storage))

    # Base and prune.

    @claim(*PRUNING)
    def test_prune_removes_what_is_below(self, storage: Probe) -> None:
        """Nothing is read or saved below the base; above it, and beside it, all goes on."""
        storage.fill("a", 12)
        storage.fill("b", 3)
        storage.gives(None, "base", "a")
        for first, removed in ((10, 9), (12, 2)):
            storage.gives(removed, "prune", "a", first, b"base")
            storage.gives((first, b"base"), "base", "a")
            for sequence in (1, first - 1):
                storage.refuses(NotFound, "read", "a", sequence)
                storage.refuses(Conflict, "append", "a", sequence, LATE)
            storage.refuses(Conflict, "append", "a", first, LATE)
            storage.holds("a", first, 12)
        storage.fill("a", 14, first=13)
        storage.holds("a", 12, 14)
        storage.holds("b", 1, 3)
        storage.gives(["a", "b"], "threads")

    @claim(*PRUNING)
    def test_a_thread_never_moves_backwards(self, storage: Probe) -> None:
        """Nor to where no record is. A prune to the same place seals the base anew."""
        storage.fill("a", 5)
        storage.refuses(NotFound, "prune", "a", 6, b"base")
        storage.gives(None, "base", "a")
        storage.prune("a", 4, b"base")
        for first, base, kept in ((3, b"older", b"base"), (4, b"anew", b"anew")):
            storage.gives(0, "prune", "a", first, base)
            storage.gives((4, kept), "base", "a")
        storage.holds("a", 4, 5)
        storage.gives(["a"], "threads")

    @claim(*PRUNING)
    def test_a_base_comes_back_byte_for_byte(self, storage: Probe) -> None:
        """A base is bytes that nobody else can change, also if it is empty."""
        storage.fill("a", 2)
        for base in (b"", b"\n", b"0000000009\n", bytes(range(256)) * 20):
            storage.prune("a", 2, base)
            storage.gives((2, base), "base", "a")
        buffer = bytearray(b"base")
        with suppress(EncodeError):  # to refuse a buffer is as safe
            storage.prune("a", 2, buffer)
            buffer[:] = b"EVIL"
            storage.gives((2, b"base"), "base", "a")

    @claim(*PRUNING)
    def test_a_thread_begins_where_its_base_says(self, storage: Probe) -> None:
        """A copy of a pruned thread begins where that does, and goes on from there."""
        for thread, first in (("a", 7), ("b", 2**31), ("c", MAX_SEQUENCE - 1)):
            storage.gives(0, "prune", thread, first, b"base")
            storage.refuses(CheckpointError, "append", thread, first + 1, LATE)
            storage.refuses(Conflict, "append", thread, first - 1, LATE)
            storage.fill(thread, first + 1, first=first)
            storage.gives((first, b"base"), "base", thread)
            storage.holds(thread, first, first + 1)

    @claim(*PRUNING)
    def test_another_opening_sees_the_prune(self, storage: Probe) -> None:
        """What one opening has pruned is gone for another, and stays gone."""
        other = self._another()
        storage.fill("a", 5)
        other.gives(5, "head", "a")
        storage.prune("a", 4, b"base")
        for each in (other, self._another()):
            each.gives((4, b"base"), "base", "a")
            each.holds("a", 4, 5)
            each.refuses(NotFound, "read", "a", 3)
            each.refuses(Conflict, "append", "a", 3, LATE)

    @claim(*PRUNING)
    def test_of_prunes_that_race_the_highest_counts(self, storage: Probe) -> None:
        """Whatever their order: the base is the highest, and nothing above it is gone."""
        storage.fill("a", 12)
        wanted = (3, 9, 5, 7)

        def run(number: int, storage: Probe) -> int:
            return int(storage.prune("a", wanted[number], b"base %d" % wanted[number]))

        removed = self._race(4, run, self._rivals(storage))
        same(sum(removed), 8, "How many records the prunes removed")
        storage.gives((9, b"base 9"), "base", "a")
        storage.holds("a", 9, 12)

    # Scan.

    @claim("scan")
    def test_a_scan_goes_up_and_down(self, storage: Probe) -> None:
        """It hands out each record from the first to the last, in that order, as bytes."""
        storage.fill("a", 12)
        for first, last, step in ((1, 12, 1), (9, 11, 1), (5, 5, 1), (12, 1, -1), (11, 9, -1)):
            wanted = [b"record %d" % sequence for sequence in range(first, last + step, step)]
            storage.gives(wanted, "scan", "a", first, last)

    @claim("scan")
    def test_a_scan_stops_at_what_is_not_there(self, storage: Probe) -> None:
        """It hands out what is before that, and says `NotFound`: an end would look like the end."""
        storage.fill("a", 5)
        _scanned(storage, 4, 7, [4, 5])
        storage.refuses(NotFound, "scan", "b", 1, 2)
        if storage.has("prune"):
            storage.prune("a", 4, b"base")
            _scanned(storage, 3, 5, [])
            _scanned(storage, 5, 3, [5, 4])

    @claim("scan", "prune")
    def test_a_scan_that_a_prune_overtakes_tells_no_lie(self, storage: Probe) -> None:
        """It hands out the right records, or says `NotFound`, and never skips one."""
        storage.fill("a", 9)
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
        same(found, wanted, "What a scan hands out")

    # Acquire, renew, release and lease.

    @claim(*LEASING)
    def test_a_storage_tells_who_owns_a_thread(self, storage: Probe) -> None:
        """`lease` returns what `acquire` returned; to own a thread is not to have a record."""
        storage.gives(None, "lease", "a_b")
        first = storage.acquire("a_b", "worker-a", 60)
        second = storage.acquire("a-b", "worker-b", 60)
        same((first.thread, first.owner), ("a_b", "worker-a"), "Thread and worker of the lease")
        for lease, thread in ((first, "a_b"), (second, "a-b"), (None, "axb")):
            storage.gives(lease, "lease", thread)
        storage.gives(0, "head", "a_b")
        storage.gives([], "threads")
        storage.fill("axb", 1)
        storage.fill("a_b", 1, fence=first.token)
        storage.gives(["a_b", "axb"], "threads")

    @claim(*LEASING)
    def test_a_thread_that_is_owned_is_not_taken(self, storage: Probe) -> None:
        """Until the lease has ended, or was released, which may be said twice."""
        lease = storage.acquire("a", "worker-a", 60)
        storage.refuses(NotOwner, "acquire", "a", "worker-b", 60)
        storage.gives(lease, "lease", "a")
        for _ in range(2):
            storage.release(lease)
            storage.gives(None, "lease", "a")
        storage.refuses(NotOwner, "renew", lease, 60)
        storage.gives(None, "lease", "a")
        same(storage.acquire("a", "worker-b", 60).owner, "worker-b", "Who owns it")
        storage.acquire("b", "worker-a", SHORT)
        storage.fill("b", 1, fence=storage.taken_over("b", "worker-b").token)

    @claim(*LEASING)
    def test_a_token_is_never_given_twice(self, storage: Probe) -> None:
        """Each is higher than the one before, also after a release, an end, a restart, a prune."""
        tokens = [storage.acquire("a", "worker-a", 60).token]
        for sequence in (1, 2):
            tokens.append(storage.acquire("a", "worker-a", 60).token)
            storage.release(storage.lease("a"))
            storage.fill("a", sequence, first=sequence)
            tokens.append(storage.acquire("a", "worker-b", SHORT).token)
            lease = storage.taken_over("a", "worker-c")
            tokens.append(lease.token)
            if storage.has("prune"):  # which needs no token: it writes no state
                storage.prune("a", sequence, b"base")
                storage.gives(lease, "lease", "a")
            storage.release(storage.renew(lease, 60))
        same(tokens, sorted(set(tokens)), "Tokens, which grow,")

    @claim(*LEASING)
    def test_to_renew_keeps_the_token(self, storage: Probe) -> None:
        """And moves the end, for everybody who looks, and not under another name."""
        lease = storage.acquire("a", "worker-a", 60)
        renewed = storage.renew(lease, 3600)
        same(renewed.token, lease.token, "The token of a lease that was renewed")
        expect(renewed.expires > lease.expires, "To renew must move the end.")
        stranger = replace(renewed, owner="worker-b")
        storage.refuses(NotOwner, "renew", stranger, 60)
        storage.refuses(NotOwner, "release", stranger)
        storage.gives(renewed, "lease", "a")
        storage.fill("a", 1, fence=renewed.token)

    @claim(*LEASING)
    def test_one_of_many_racers_owns_a_thread(self, storage: Probe) -> None:
        """Eight workers want a free thread: one gets it, and seven are told."""

        def run(number: int, storage: Probe) -> Lease | None:
            with suppress(NotOwner):
                lease: Lease = storage.acquire("a", f"worker-{number}", 60)
                return lease
            return None

        won = [lease for lease in self._race(RACERS, run, self._rivals(storage)) if lease]
        same(len(won), 1, "The number of racers that own the thread")
        storage.gives(won[0], "lease", "a")

    # Append with a token, and without.

    @claim(*LEASING)
    def test_another_opening_sees_the_owner(self, storage: Probe) -> None:
        """Owner and tokens are in the store, and not in the object."""
        other = self._another()
        lease = storage.acquire("a", "worker-a", 60)
        other.gives(lease, "lease", "a")
        other.refuses(NotOwner, "acquire", "a", "worker-b", 60)
        other.refuses(NotOwner, "append", "a", 1, LATE)
        other.fill("a", 1, fence=lease.token)
        other.release(lease)
        storage.refuses(NotOwner, "append", "a", 2, LATE, fence=lease.token)
        again = self._another().acquire("a", "worker-b", 60)
        expect(again.token > lease.token, "A new opening must go on with higher tokens.")

    @claim(*LEASING)
    def test_a_save_without_the_token_is_refused(self, storage: Probe) -> None:
        """Without one, with a lower or a higher one, also after the lease ended or was released."""
        for thread, seconds in (("a", 60), ("b", SHORT)):
            storage.refuses(NotOwner, "append", thread, 1, LATE, fence=1)
            storage.acquire(thread, "worker-a", seconds)
            lease = storage.acquire(thread, "worker-a", seconds)
            for fence in (None, lease.token - 1, lease.token + 1, 10**18):
                storage.refuses(NotOwner, "append", thread, 1, LATE, fence=fence)
            storage.gives(0, "head", thread)
            storage.fill(thread, 1, fence=lease.token)
            storage.refuses(Conflict, "append", thread, 1, LATE, fence=lease.token)
            storage.release(lease)
            storage.refuses(NotOwner, "append", thread, 2, LATE, fence=lease.token)
            storage.fill(thread, 2, first=2)
            storage.holds(thread, 1, 2)

    @claim(*LEASING)
    def test_an_owner_goes_on_if_nobody_came(self, storage: Probe) -> None:
        """The token decides whose save counts, and the clock does not."""
        lease = storage.acquire("a", "worker-a", SHORT)
        storage.acquire("b", "worker-b", SHORT)
        storage.taken_over("b", "worker-c")  # by now, both have ended
        storage.fill("a", 1, fence=lease.token)
        storage.gives(lease, "lease", "a")
        same(storage.renew(lease, 60).token, lease.token, "The token of a lease that was renewed")
        storage.refuses(NotOwner, "acquire", "a", "worker-b", 60)

    @claim(*LEASING)
    def test_a_former_owner_can_do_nothing(self, storage: Probe) -> None:
        """Once another worker has the thread, or the same one anew: no save, renewal, release."""
        for thread, old, new in (
            ("a", storage.acquire("a", "worker-a", SHORT), storage.taken_over("a", "worker-b")),
            ("b", storage.acquire("b", "worker-a", 60), storage.acquire("b", "worker-a", 60)),
        ):
            storage.fill(thread, 1, fence=new.token)
            for sequence in (1, 2):
                storage.refuses(NotOwner, "append", thread, sequence, LATE, fence=old.token)
            storage.refuses(NotOwner, "renew", old, 60)
            storage.refuses(NotOwner, "release", old)
            storage.gives(new, "lease", thread)
            storage.gives(1, "head", thread)

    @claim(*LEASING)
    def test_nothing_of_a_former_owner_lands_after_a_takeover(self, storage: Probe) -> None:
        """Token and record are looked at in one step: no save slips in between the two."""
        for thread in ("a", "b", "c"):
            old = storage.acquire(thread, "worker-a", SHORT)
            saved, before = self._race(2, partial(_takeover, old), self._rivals(storage))
            same(saved, before, "What landed of the former owner")
            head = storage.head(thread)
            found = [storage.read(thread, sequence) for sequence in range(1, head + 1)]
            same(found, [b"old"] * saved + [b"new"] * PLACES, "What was acknowledged, in order,")

    # Tenants.

    @claim("tenant")
    def test_tenants_do_not_mix(self, storage: Probe) -> None:
        """Each sees its own threads alone, also if others have one of the same name."""
        acme, other = (Probe(storage.tenant(name)) for name in ("acme", "acme-2"))
        for number, each in enumerate((storage, acme, other), start=1):
            each.gives([], "threads")
            each.gives(0, "head", "a")
            each.fill("a", number)
        if storage.has("acquire"):
            lease = acme.acquire("a", "worker-a", 60)
            for each in (other, storage):
                each.gives(None, "lease", "a")
            acme.refuses(NotOwner, "append", "a", 3, LATE)
            acme.release(lease)
        if storage.has("prune"):
            other.prune("a", 2, b"base")
            other.gives(0, "prune", "a", 1, b"an earlier base")
            for each, base in ((storage, None), (acme, None), (other, (2, b"base"))):
                each.gives(base, "base", "a")
        first = 2 if storage.has("prune") else 1
        for number, each in enumerate((storage, Probe(storage.tenant("acme")), other), start=1):
            each.gives(["a"], "threads")
            each.holds("a", first if each is other else 1, number)
            each.refuses(NotFound, "read", "a", number + 1)

    @claim("tenant")
    def test_every_tenant_with_a_record_is_listed(self, storage: Probe) -> None:
        """For every opening, so that an audit and a copy leave nobody out. A tenant has none."""
        expect(storage.has("tenants"), "A storage that has tenants must list them: tenants().")
        for name in ("acme", "globex"):
            Probe(storage.tenant(name)).gives([], "threads")
        storage.fill("a", 1)
        storage.gives([], "tenants")
        for name in ("globex", "acme"):
            Probe(storage.tenant(name)).fill("a", 2)
        for each in (storage, self._another() if self.shared else storage):
            each.gives(["acme", "globex"], "tenants")
        Probe(storage.tenant("acme")).gives([], "tenants")

    # Under a ledger.

    @claim()
    def test_a_ledger_saves_and_verifies(self, storage: Probe) -> None:
        """What a ledger has saved, another one on the same records verifies and goes on with."""
        keys, anchor = Keyring(SigningKey.generate()), InMemoryAnchor()
        ledger, second = (
            Ledger(each.storage, store="conformance", keys=keys, anchor=anchor)
            for each in (storage, self._another() if self.shared else storage)
        )
        states = [{"number": number, "text": "\xe4\0"} for number in range(1, 4)]
        for state in states:
            ledger.save("a", state)
        same([each.state for each in second.history("a")], states, "The history")
        same(second.verify("a"), 3, "The number of records that verify")
        second.save("a", {"number": 4}, after=3)
        same(ledger.latest("a").sequence, 4, "The latest for the first ledger")
        if storage.has("acquire"):
            with ledger.own("a", "worker-a"):
                ledger.save("a", 5)
                Probe(second).refuses(NotOwner, "save", "a", 6)
                Probe(second).refuses(NotOwner, "own", "a", "worker-b")
            second.save("a", 6)


def _scanned(storage: Probe, first: int, last: int, wanted: list[int]) -> None:
    """Fail unless a scan hands out these, and then says `NotFound`."""
    found: list[bytes] = []
    try:
        for record in storage.scan("a", first, last):
            found.append(record)  # noqa: PERF402  what came before the refusal counts
    except NotFound:
        same(found, [b"record %d" % place for place in wanted], "What comes before the refusal")
        return
    raise AssertionError("A scan of what is not there must end with NotFound.")


def _takeover(old: Lease, number: int, storage: Probe) -> int:
    """Let racer 0 save under the old token for as long as it can, and racer 1 take the thread."""
    fence, record, saved, before, end = old.token, b"old", 0, 0, monotonic() + PATIENCE
    if number:
        while storage.head(old.thread) < 2 and monotonic() < end:
            sleep(0)
        fence, record = storage.taken_over(old.thread, "worker-b").token, b"new"
        before = storage.head(old.thread)
    with suppress(NotOwner):
        while monotonic() < end and (saved < PLACES or not number):
            with suppress(Conflict):
                storage.append(old.thread, storage.head(old.thread) + 1, record, fence=fence)
                saved += 1
    return before if number else saved


def _each_place(thread: str, number: int, storage: Probe) -> list[int]:
    won = []
    for sequence in range(1, PLACES + 1):
        try:
            storage.append(thread, sequence, b"%d" % number)
        except Conflict:
            expect(storage.head(thread) >= sequence, "Who is told of a Conflict must see the head.")
        else:
            won.append(sequence)
    return won


def _won(storage: Probe, won: list[list[int]], thread: str) -> None:
    places = sorted(place for each in won for place in each)
    same(places, [*range(1, PLACES + 1)], "The places that were acknowledged, each to one racer,")
    storage.gives(PLACES, "head", thread)
    for number, each in enumerate(won):
        for place in each:
            storage.gives(b"%d" % number, "read", thread, place)
