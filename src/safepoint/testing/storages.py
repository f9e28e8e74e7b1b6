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
    Conflict,
    EncodeError,
    NotFound,
    NotOwner,
    RolledBack,
    quoted,
)
from safepoint.core.keys import Keyring, SigningKey
from safepoint.core.ledger import Ledger
from safepoint.core.names import MAX_SEQUENCE
from safepoint.core.storage import MAX_SECONDS, InMemoryCheckpointStorage, Lease, is_thread

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
# What is none, by the type of an argument as it should be.
ODD: Final[dict[type, tuple[Any, ...]]] = {
    str: (
        *("", ".", "..", "../x", "a/b", "a\\b", "a\0", "a\n", "A", "-x", "_x", " ", "con", "com1"),
        *("\u0430", "\xe4", "a" * 65, "a'b", 'a"b', "a%", "a;b", None, 7, b"a", True),
    ),
    int: (0, -1, True, 1.0, "1", None, MAX_SEQUENCE + 1, 2**64),
    float: (0, -1, float("nan"), float("inf"), MAX_SECONDS + 1, 10**400),
}


class Probe:
    """A storage that is asked what the one in memory is asked, which answers as each must.

    An AssertionError tells where they differ: in what comes back, in how something is refused, or
    in what is there afterwards, as each opening sees it.

    Attributes:
        openings: the storage, opened as often as it can be. The first one is asked.
        sound: the storage in memory.
    """

    def __init__(self, openings: list[Any], sound: Any, family: list[Probe] | None = None) -> None:
        self.openings, self.sound = openings, sound
        self._places: dict[str, set[int]] = {}
        self._family = [] if family is None else family  # with that of each tenant
        self._family.append(self)

    @property
    def storage(self) -> Any:
        """The opening that is asked."""
        return self.openings[0]

    def __getattr__(self, method: str) -> Any:
        return partial(self._ask, method)

    def has(self, method: str) -> bool:
        """Tell whether it has a method."""
        return callable(getattr(self.storage, method, None))

    def fill(self, thread: str, last: int, first: int = 1, **options: Any) -> None:
        """Append records that tell their places."""
        for sequence in range(first, last + 1):
            self.append(thread, sequence, b"%b %d" % (thread.encode(), sequence), **options)

    def tenant(self, name: str) -> Probe:
        """Return that of a tenant."""
        scopes = [each.tenant(name) for each in self.openings]
        return Probe(scopes, self.sound.tenant(name), self._family)

    def taken_over(self, thread: str, owner: str) -> Lease:
        """Acquire a thread whose lease is about to end."""
        lease, _ = (_taken_over(each, thread, owner) for each in (self.storage, self.sound))
        self.look(thread)
        return lease

    def look(self, *threads: str) -> None:
        """Compare what there is of some threads, or of each that was asked for."""
        asks: list[tuple[Any, ...]] = [("threads",), *[("tenants",)] * self.has("tenant")]
        for thread in threads or self._places:
            asks += [(each, thread) for each in ("head", "base", "lease", "newest")]
            asks += [("read", thread, each) for each in sorted(self._places.get(thread, ()))]
        for each in asks if self._places else ():
            wanted = _answer(self.sound, *each)
            for opening in self.openings if self.has(each[0]) or each[0] in REQUIRED else ():
                _compare(each, _answer(opening, *each), wanted)

    def compare(self, method: str, *given: Any, **options: Any) -> Any:
        """Ask both, and look at nothing else."""
        found = _answer(self.storage, method, *given, **options)
        wanted = _answer(self.sound, method, *given, **options)
        _compare((method, *given, *options.values()), found, wanted)
        return found[0]

    def _ask(self, method: str, *given: Any, **options: Any) -> Any:
        found = self.compare(method, *given, **options)
        thread: Any = getattr(given[0], "thread", given[0]) if given else None
        if is_thread(thread):
            known = self._places.setdefault(thread, set())
            if method in ("append", "read"):
                beside = range(given[1] - 1, given[1] + 2)
                known.update(each for each in beside if 0 < each <= MAX_SEQUENCE)
            for each in self._family:
                each.look(thread)
        return found


def _answer(storage: Any, method: str, *given: Any, **options: Any) -> tuple[Any, Exception | None]:
    """Ask; return what came back, of a scan as far as it came, and what was raised."""
    records: list[Any] = []
    try:
        found = getattr(storage, method)(*given, **options)
        if method == "scan":
            for record in found:
                records.append(record)  # noqa: PERF402  what came before a refusal counts
            found = records
        return sorted(found) if method in ("threads", "tenants") else found, None
    except Exception as error:  # noqa: BLE001  it is compared
        return records, error


def _compare(
    call: tuple[Any, ...], found: tuple[Any, Exception | None], wanted: tuple[Any, Exception | None]
) -> None:
    """Fail unless a storage answers as it must: it refuses in words that say what to do."""
    method, *given = call
    shown = f"{method}({', '.join(map(quoted, given))})"
    (value, error), (right, refusal) = found, wanted
    # A storage may take a gap for a loss.
    if refusal is not None and not isinstance(error, (type(refusal), RolledBack)):
        came = "was accepted" if error is None else f"{type(error).__name__} came"
        name = type(refusal).__name__
        raise AssertionError(f"{shown} must be refused with {name}, and {came}.") from error
    if isinstance(error, CheckpointError) and refusal is not None:
        said = f"{error.what.strip()}|{error.do.strip()}"
        expect(
            said.isprintable() and not said.startswith("|") and not said.endswith("|"),
            f"A refusal must say on one line what happened and what to do: {quoted(said)}.",
        )
        expect(LATE.decode() not in said, f"The refusal of {shown} must not show a record.")
    elif error is not None:
        raise AssertionError(
            f"{shown} must be accepted, and {type(error).__name__} came."
        ) from error
    if method == "newest" and value[1] is None:
        right = right[0], None  # which `read` must get
    same(_plain(value), _plain(right), shown)


def _plain(value: Any) -> Any:
    """Return a value without what tells two clocks apart."""
    return (value.thread, value.owner, value.token) if isinstance(value, Lease) else value


def _taken_over(storage: Any, thread: str, owner: str) -> Lease:
    end = monotonic() + PATIENCE
    while monotonic() <= end:
        with suppress(NotOwner):
            lease: Lease = storage.acquire(thread, owner, 60)
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
        f"{what} must be {quoted(wanted)}, but is {quoted(found)}.",
    )


def claim(*methods: str) -> Callable[[Callable[[Any, Probe], None]], Callable[[Any], None]]:
    """Make a test of a claim: it is given the storage, if that has the methods."""

    def decorate(body: Callable[[Any, Probe], None]) -> Callable[[Any], None]:
        def test(self: StorageSuite) -> None:
            storage = self._asked(*methods)
            body(self, storage)
            storage.look()

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

    A claim asks your storage and the one in memory the same. After each call it compares what came
    back, how it was refused, and what is there afterwards, as each opening sees it.

    What a storage does not have, such as `prune` or leases, is skipped, with a reason; the four
    methods are required, and that `append` takes a record behind the last one alone.

    Attributes:
        shared: whether another opening, in another process say, sees the same records.
        threadsafe: whether several threads may use one opening.
        guarded: whether it refuses names, sequences and values that are none by itself and does
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
            self._close_all()
        finally:
            self._temp.cleanup()

    def _asked(self, *methods: str) -> Probe:
        """Open the storage, if it has these methods: twice, if another process could."""
        probe = Probe(self._open_all(), InMemoryCheckpointStorage())
        if lacking := [method for method in methods if not probe.has(method)]:
            raise SkipTest(f"It has no {' and no '.join(lacking)}.")
        return probe

    def _open_all(self) -> list[Any]:
        for _ in range(1 + self.shared):
            self._opened.append(self.open(self.folder))
        return [*self._opened]

    def _close_all(self) -> None:
        while self._opened:
            self.close(self._opened.pop())

    def _race(self, count: int, run: Callable[[int, Any], T], one: Any = None) -> list[T]:
        """Let threads run at once, each with its number and an opening of its own, or this one."""
        if not self.shared and not self.threadsafe:
            raise SkipTest("One thread of one process uses it: nobody can race.")
        ready, start = threading.Semaphore(0), threading.Event()
        one = one or (None if self.shared else self._opened[0])

        def compete(number: int) -> T:
            # Opened and closed here: some connections belong to the thread that made them.
            try:
                storage = one or self.open(self.folder)
            finally:
                ready.release()
            try:
                start.wait()
                return run(number, storage)
            finally:
                if one is None:
                    self.close(storage)

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
        storage.fill("b", 1)
        with suppress(EncodeError):  # to refuse a buffer is as safe
            buffer = bytearray(b"b" * LARGE)
            storage.storage.append("b", 2, buffer)
            buffer[:] = b"x" * LARGE
            storage.sound.append("b", 2, b"b" * LARGE)
            storage.read("b", 2)

    @claim()
    def test_a_second_record_at_a_place_is_refused(self, storage: Probe) -> None:
        """Not even by the same bytes; a refusal leaves nothing and shows no record."""
        storage.fill("a", 2)
        for sequence, again in ((1, LATE), (1, b"a 1"), (1, b""), (2, LATE)):
            storage.append("a", sequence, again)
        storage.fill("a", 3, first=3)

    @claim()
    def test_threads_do_not_mix(self, storage: Probe) -> None:
        """Each has its own records and head, however alike the names and is listed once."""
        storage.head("asked")
        for number, name in enumerate(NAMES):
            storage.fill(name, 2 + number % 3)

    @claim()
    def test_a_record_goes_behind_the_last_alone(self, storage: Probe) -> None:
        """So the head is the highest sequence; a ledger builds on that without a look."""
        for first, last in ((1, 2), (3, 12)):
            for sequence in (first + 1, first + 2, MAX_SEQUENCE):
                storage.append("a", sequence, LATE)
            storage.fill("a", last, first)

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
            ("tenant", "a"),
        ):
            for at, right in enumerate(given if storage.has(method) else ()):
                for value in ODD.get(type(right), ()):
                    storage.compare(method, *given[:at], value, *given[at + 1 :])
        storage.look("a")
        beside = [path.name for path in self.folder.parent.iterdir()]
        same(beside, [self.folder.name], "What is next to its folder")

    @claim()
    def test_another_opening_goes_on(self, storage: Probe) -> None:
        """With the records, the base and the owner: at once, and after the first was closed."""
        if not self.shared:
            raise SkipTest("It lives in one process: shared = False.")
        for sequence in range(1, 7):
            lease = storage.acquire("a", "worker-a", 60) if storage.has("acquire") else None
            storage.append("a", sequence, LATE, **({"fence": lease.token} if lease else {}))
            if storage.has("prune"):
                storage.prune("a", max(1, sequence - 2), b"base")
            storage.openings.reverse()
            if lease:
                storage.release(lease)
            if sequence == 4:
                self._close_all()
                storage.openings[:] = self._open_all()

    # Several at once.

    @claim()
    def test_racers_fill_each_place_once(self, storage: Probe) -> None:
        """Eight want each place, with an opening each, or on one that they share: one gets it."""
        for thread, one in (("a", None), *([("b", storage.storage)] if self.threadsafe else [])):
            won = self._race(RACERS, partial(_each_place, thread), one)
            places = {place: b"%d" % number for number, each in enumerate(won) for place in each}
            same(sum(map(len, won)), len(places), "How many places were acknowledged")
            for place, record in sorted(places.items()):
                storage.sound.append(thread, place, record)
            storage.read(thread, PLACES)
            storage.scan(thread, 1, PLACES) if storage.has("scan") else None

    @claim()
    def test_a_reader_sees_whole_records(self, storage: Probe) -> None:
        """What the head names can be read and is whole, while somebody writes."""
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
                if head:
                    same(storage.read("a", head), b"%03d" % head * 20_000, f"Record {head}")

        self._race(2, lambda number, each: (write, look)[number](each))
        write(storage.sound)
        storage.read("a", PLACES)

    # Base and prune.

    @claim(*PRUNING)
    def test_prune_removes_what_is_below(self, storage: Probe) -> None:
        """Nothing is read or saved below the base; above it, and next to it, all continues."""
        storage.fill("a", 12)
        storage.fill("b", 3)
        for first in (10, 12):
            storage.prune("a", first, b"base")
            for sequence in (1, first - 1, first):
                storage.append("a", sequence, LATE)
        storage.fill("a", 14, first=13)

    @claim(*PRUNING)
    def test_a_thread_never_moves_backwards(self, storage: Probe) -> None:
        """Nor to where no record is. A prune to the same place seals again, byte for byte."""
        storage.fill("a", 5)
        every = bytes(range(256)) * 20
        for first, base in ((6, b""), (4, b"base"), (3, b"older"), (4, b"anew"), (4, b"")):
            storage.prune("a", first, base)
        for base in (b"\n", b"0000000009\n", every):
            storage.prune("a", 4, base)
        with suppress(EncodeError):  # to refuse a buffer is as safe
            buffer = bytearray(b"base")
            storage.storage.prune("a", 4, buffer)
            buffer[:] = b"EVIL"
            storage.sound.prune("a", 4, b"base")

    @claim(*PRUNING)
    def test_a_thread_begins_where_its_base_says(self, storage: Probe) -> None:
        """A copy of a pruned thread begins where that does, and continues from there."""
        for thread, first in (("a", 7), ("b", 2**31), ("c", MAX_SEQUENCE - 1)):
            storage.compare("prune", thread, first, b"base")
            for sequence in (first + 1, first - 1):
                storage.compare("append", thread, sequence, LATE)
            storage.fill(thread, first + 1, first)

    @claim(*PRUNING)
    def test_of_prunes_that_race_the_highest_counts(self, storage: Probe) -> None:
        """Whatever their order: the base is the highest and nothing above it is gone."""
        storage.fill("a", 12)
        wanted = (3, 9, 5, 7)

        def run(number: int, storage: Any) -> int:
            return int(storage.prune("a", wanted[number], b"base %d" % wanted[number]))

        removed = self._race(4, run)
        same(sum(removed), storage.sound.prune("a", 9, b"base 9"), "How many records they removed")

    # Scan.

    @claim("scan")
    def test_a_scan_goes_up_and_down(self, storage: Probe) -> None:
        """From the first to the last and says `NotFound` where one is not there."""
        storage.fill("a", 12)
        for first, last in ((1, 12), (9, 11), (5, 5), (12, 1), (11, 9), (11, 14), (13, 14)):
            storage.scan("a", first, last)
        storage.scan("b", 1, 2)
        if storage.has("prune"):
            storage.prune("a", 4, b"base")
            storage.scan("a", 3, 5)
            storage.scan("a", 5, 3)

    @claim("scan", "prune")
    def test_a_scan_that_a_prune_overtakes_tells_no_lie(self, storage: Probe) -> None:
        """It hands out the right records, or says `NotFound` and never skips one."""
        storage.fill("a", 9)
        wanted = [*storage.sound.scan("a", 1, 9)]
        records = iter(storage.storage.scan("a", 1, 9))
        found = [next(records)]
        storage.prune("a", 5, b"base")
        try:
            found.extend(records)
        except NotFound:
            wanted = wanted[: len(found)]
        same(found, wanted, "What a scan hands out before it says NotFound, if it does,")

    # Acquire, renew, release and lease; append with a token, and without.

    @claim(*LEASING)
    def test_a_thread_that_is_owned_is_not_taken(self, storage: Probe) -> None:
        """Until the lease has ended, or was released, which may be repeated."""
        lease = storage.acquire("a_b", "worker-a", 60)
        for thread in ("a_b", "a-b"):
            storage.acquire(thread, "worker-b", 60)
        storage.lease("axb")
        for _ in range(2):
            storage.release(lease)
        storage.renew(lease, 60)
        storage.acquire("a_b", "worker-b", 60)
        storage.acquire("b", "worker-a", SHORT)
        storage.fill("b", 1, fence=storage.taken_over("b", "worker-b").token)

    @claim(*LEASING)
    def test_a_token_is_never_given_twice(self, storage: Probe) -> None:
        """Each is one higher than the one before, also after a release, an end, a prune."""
        for sequence in (1, 2):
            storage.acquire("a", "worker-a", 60)
            storage.release(storage.acquire("a", "worker-a", 60))
            storage.fill("a", sequence, sequence)
            storage.acquire("a", "worker-b", SHORT)
            lease = storage.taken_over("a", "worker-c")
            if storage.has("prune"):  # which needs no token: it writes no state
                storage.prune("a", sequence, b"base")
            storage.release(storage.renew(lease, 60))

    @claim(*LEASING)
    def test_to_renew_keeps_the_token(self, storage: Probe) -> None:
        """And moves the end, for everybody who looks, not under another name."""
        lease = storage.acquire("a", "worker-a", 60)
        renewed = storage.renew(lease, 3600)
        expect(renewed.expires > lease.expires, "To renew must move the end.")
        for each in storage.openings:
            same(each.lease("a"), renewed, "The lease that was renewed")
        stranger = replace(renewed, owner="worker-b")
        storage.renew(stranger, 60)
        storage.release(stranger)
        storage.fill("a", 1, fence=renewed.token)

    @claim(*LEASING)
    def test_one_of_many_racers_owns_a_thread(self, storage: Probe) -> None:
        """Eight workers want a free thread: one gets it, and seven are refused."""

        def run(number: int, storage: Any) -> Lease | None:
            with suppress(NotOwner):
                lease: Lease = storage.acquire("a", f"worker-{number}", 60)
                return lease
            return None

        won = [lease for lease in self._race(RACERS, run) if lease]
        same(len(won), 1, "The number of racers that own the thread")
        storage.sound.acquire("a", won[0].owner, 60)
        storage.lease("a")

    @claim(*LEASING)
    def test_a_save_without_the_token_is_refused(self, storage: Probe) -> None:
        """Without one, with a lower or a higher one, also after the lease ended or was released."""
        for thread, seconds in (("a", 60), ("b", SHORT)):
            storage.append(thread, 1, LATE, fence=1)
            storage.acquire(thread, "worker-a", seconds)
            lease = storage.acquire(thread, "worker-a", seconds)
            for fence in (None, lease.token - 1, lease.token + 1, 10**18):
                storage.append(thread, 1, LATE, fence=fence)
            storage.fill(thread, 1, fence=lease.token)
            storage.append(thread, 1, LATE, fence=lease.token)
            storage.release(lease)
            storage.append(thread, 2, LATE, fence=lease.token)
            storage.fill(thread, 2, first=2)

    @claim(*LEASING)
    def test_an_owner_goes_on_if_nobody_came(self, storage: Probe) -> None:
        """The token decides whose save counts, and the clock does not."""
        lease = storage.acquire("a", "worker-a", SHORT)
        storage.acquire("b", "worker-b", SHORT)
        storage.taken_over("b", "worker-c")  # by now, both have ended
        storage.fill("a", 1, fence=lease.token)
        storage.renew(lease, 60)
        storage.acquire("a", "worker-b", 60)

    @claim(*LEASING)
    def test_a_former_owner_can_do_nothing(self, storage: Probe) -> None:
        """Once another worker has the thread, or the same one again: no save, renewal, release."""
        for thread, old, new in (
            ("a", storage.acquire("a", "worker-a", SHORT), storage.taken_over("a", "worker-b")),
            ("b", storage.acquire("b", "worker-a", 60), storage.acquire("b", "worker-a", 60)),
        ):
            storage.fill(thread, 1, fence=new.token)
            for sequence in (1, 2):
                storage.append(thread, sequence, LATE, fence=old.token)
            storage.renew(old, 60)
            storage.release(old)

    @claim(*LEASING)
    def test_nothing_of_a_former_owner_lands_after_a_takeover(self, storage: Probe) -> None:
        """Token and record are looked at in one step: no save slips in between the two."""
        for thread in ("a", "b", "c"):
            old = storage.storage.acquire(thread, "worker-a", SHORT)
            saved, before = self._race(2, partial(_takeover, old))
            same(saved, before, "What landed of the former owner")
            head = storage.storage.head(thread)
            found = [storage.storage.read(thread, sequence) for sequence in range(1, head + 1)]
            same(found, [b"old"] * saved + [b"new"] * PLACES, "What was acknowledged, in order,")

    # Tenants.

    @claim("tenant")
    def test_tenants_do_not_mix(self, storage: Probe) -> None:
        """Each sees only its own threads, and each that has a record is listed at every opening."""
        expect(storage.has("tenants"), "A storage that has tenants must list them: tenants().")
        acme, other = (storage.tenant(name) for name in ("acme", "acme-2"))
        for number, each in enumerate((storage, other, acme), start=1):
            each.fill("a", number)
        if storage.has("acquire"):
            lease = acme.acquire("a", "worker-a", 60)
            for each in (acme, storage):
                each.append("a", 4, LATE)
            acme.release(lease)
        if storage.has("prune"):
            for first in (2, 1):
                other.prune("a", first, b"base")
        storage.tenant("acme").fill("a", 4, 4)

    # Under a ledger.

    @claim()
    def test_a_ledger_saves_and_verifies(self, storage: Probe) -> None:
        """A second ledger on the same records verifies and continues what the first one saved."""
        keys, anchor = Keyring(SigningKey.generate()), InMemoryAnchor()
        ledger, second = (
            Ledger(storage.openings[each], store="conformance", keys=keys, anchor=anchor)
            for each in (0, -1)
        )
        states = [{"number": number, "text": "\xe4\0"} for number in range(1, 4)]
        for state in states:
            ledger.save("a", state)
        same([each.state for each in second.history("a")], states, "The history")
        same(second.verify("a"), 3, "The number of records that verify")
        second.save("a", {"number": 4}, after=3)
        same(ledger.latest("a").sequence, 4, "The latest for the first ledger")


def _takeover(old: Lease, number: int, storage: Any) -> int:
    """Let racer 0 save under the old token for as long as it can, and racer 1 take the thread."""
    fence, record, saved, before, end = old.token, b"old", 0, 0, monotonic() + PATIENCE
    if number:
        while storage.head(old.thread) < 2 and monotonic() < end:
            sleep(0)
        fence, record = _taken_over(storage, old.thread, "worker-b").token, b"new"
        before = storage.head(old.thread)
    with suppress(NotOwner):
        while monotonic() < end and (saved < PLACES or not number):
            with suppress(Conflict):
                storage.append(old.thread, storage.head(old.thread) + 1, record, fence=fence)
                saved += 1
    return before if number else saved


def _each_place(thread: str, number: int, storage: Any) -> list[int]:
    won = []
    for sequence in range(1, PLACES + 1):
        try:
            storage.append(thread, sequence, b"%d" % number)
        except Conflict:
            expect(storage.head(thread) >= sequence, "After a Conflict the head must be visible.")
        else:
            won.append(sequence)
    return won
