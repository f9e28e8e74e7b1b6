"""Suite: opens the storage under test, and says in a sentence what it should have done."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar
from unittest import SkipTest

from safepoint.errors import CheckpointError, NotOwner, quoted
from safepoint.storage.base import Lease

FORGETTING = ("base", "prune")
LEASING = ("acquire", "renew", "release", "lease")
PATIENCE = 60.0
"""After how many seconds a storage that does not answer has failed."""

T = TypeVar("T")


class NotOffered(SkipTest):
    """The storage does not offer what a claim is about. A test runner takes it for a skip."""


class Suite:
    """What each claim needs: a folder, the storage, another opening of it, and racers.

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
        self.folder.mkdir()

    def teardown_method(self) -> None:
        """Close what was opened, and remove the folder."""
        try:
            while self._opened:
                self.close(self._opened.pop())
        finally:
            self._temp.cleanup()

    def storage(self) -> Any:
        """Open the storage for this claim."""
        self._opened.append(self.open(self.folder))
        return self._opened[-1]

    def another(self) -> Any:
        """Open it once more, as another process would."""
        if not self.shared:
            raise NotOffered("It lives in one process: shared = False.")
        return self.storage()

    def closed(self, storage: Any) -> None:
        """Close an opening before the end of the claim."""
        self._opened.remove(storage)
        self.close(storage)

    def forgetting(self) -> Any:
        """Open a storage that can prune."""
        return self._with(FORGETTING)

    def scanning(self) -> Any:
        """Open a storage that can scan."""
        return self._with(("scan",))

    def leasing(self) -> Any:
        """Open a storage that can lease."""
        return self._with(LEASING)

    def leasing_of(self, storage: Any) -> Any:
        """Return the storage if it can lease."""
        return _offering(storage, LEASING)

    def guarding(self, storage: Any) -> Any:
        """Return the storage if it refuses by itself what it should not be given."""
        if not self.guarded:
            raise NotOffered("It leaves such arguments to the ledger: guarded = False.")
        return storage

    def race(self, count: int, run: Callable[[int, Any], T], one: Any = None) -> list[T]:
        """Let racers start at one moment, each in a thread. Return what each of them returned.

        Args:
            count: how many.
            run: what each does, with its number and its storage.
            one: the opening that all of them share; each has one of its own if it is left out.
        """
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

        racers = [
            threading.Thread(target=compete, args=(number,), daemon=True) for number in range(count)
        ]
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
        expect(len(results) == count, f"Racers must come to an end within {PATIENCE:.0f} seconds.")
        return [results[number] for number in range(count)]

    def rivals(self, storage: Any) -> Any:
        """Return what racers share: nothing if each can open it, else this opening."""
        if self.shared:
            return None
        if not self.threadsafe:
            raise NotOffered("One thread of one process uses it: nobody can race.")
        return storage

    def _with(self, methods: tuple[str, ...]) -> Any:
        return _offering(self.storage(), methods)


def _offering(storage: Any, methods: tuple[str, ...]) -> Any:
    if not all(callable(getattr(storage, method, None)) for method in methods):
        raise NotOffered(f"It has no {' and no '.join(methods)}.")
    return storage


def expect(condition: bool, sentence: str) -> None:
    """Fail with the sentence unless the condition holds. It works under `python -O` as well."""
    if not condition:
        raise AssertionError(sentence)


def same(found: object, wanted: object, sentence: str) -> None:
    """Fail with the sentence unless both are equal and of one type, and so is what is in them."""
    expect(
        found == wanted and _kinds(found) == _kinds(wanted),
        f"{sentence} Wanted {quoted(wanted)}, found {quoted(found)}.",
    )


def _kinds(value: object) -> object:
    inner = [_kinds(each) for each in value] if isinstance(value, (list, tuple)) else []
    return type(value), inner


def refused(
    kind: type[CheckpointError], what: str, call: Callable[..., object], *args: Any, **options: Any
) -> str:
    """Return the message of a refusal; fail if there is none, or it is another one.

    Args:
        kind: the error that must come.
        what: what must be refused, as the message should say it.
        call: what is called.
        args: with what.
        options: with what by name.
    """
    try:
        call(*args, **options)
    except kind as error:
        said = str(error)
        worded = all(isinstance(part, str) and part.strip() for part in (error.what, error.do))
        expect(
            worded and said.isprintable(),
            f"A refusal must say on one line what happened and what to do: {quoted(said)}.",
        )
        return said
    except Exception as error:
        raise AssertionError(
            f"{what} must be refused with {kind.__name__}, and {type(error).__name__} came."
        ) from error
    raise AssertionError(f"{what} must be refused with {kind.__name__}, and was accepted.")


def fill(storage: Any, last: int, first: int = 1, thread: str = "a", **options: Any) -> None:
    """Append records that tell their places."""
    for sequence in range(first, last + 1):
        storage.append(thread, sequence, b"record %d" % sequence, **options)


def taken_over(storage: Any, thread: str, owner: str) -> Lease:
    """Acquire a thread whose lease is about to end."""
    end = monotonic() + PATIENCE
    while True:
        try:
            lease: Lease = storage.acquire(thread, owner, 60)
        except NotOwner:
            if monotonic() > end:
                raise AssertionError("A lease that has ended must be taken over.") from None
            sleep(0.002)
        else:
            return lease
