"""The files of a folder on their way into a ledger, one thread after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from safepoint.errors import (
    CheckpointError,
    CodecError,
    Conflict,
    InvalidId,
    LimitExceeded,
    NotFound,
    StorageUnavailable,
    shell,
)
from safepoint.ledger import Ledger
from safepoint.migrate import SEALED, THERE_ALREADY, Unsigned, check_new, found
from safepoint.pickles.stored import PickledFolder, Stored, Thread

REFUSED: Final = "refused"

# What is wrong with a file or with its thread. Anything else is wrong with the ledger.
_OF_THE_FILE: Final = (CodecError, LimitExceeded, InvalidId, Conflict, NotFound)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a file, or would.

    Attributes:
        source: its name.
        outcome: `"sealed"`, `"there already"` or `"refused"`.
        thread: the thread that it is part of, empty if it could not be told.
        sequence: its place there, 0 if it has none.
        reason: why it was refused, and what to do.
        source_digest: the sha256 of its bytes, empty if they could not be read.
    """

    source: str
    outcome: str
    thread: str = ""
    sequence: int = 0
    reason: str = ""
    source_digest: str = ""


class Outlook:
    """Tells what a `Sealer` would do, and does nothing.

    Args:
        ledger: where the states would go.
        begun: the threads that the report names.
    """

    def __init__(self, ledger: Ledger, begun: set[tuple[str, str]]) -> None:
        self._ledger = ledger
        self._begun = begun
        self._positions: dict[str, int] = {}

    def seal(self, unsigned: Unsigned) -> str:
        """Return what would become of a state.

        Raises:
            Conflict: the thread exists, and not because of this migration.
        """
        ledger, thread = self._ledger, unsigned.thread
        sequence = self._positions[thread] = self._positions.get(thread, 0) + 1
        if (ledger.store, thread) in self._begun:
            return SEALED if found(unsigned, ledger, sequence) is None else THERE_ALREADY
        if sequence == 1:
            check_new(ledger, thread)
        return SEALED


def outcomes(
    reader: PickledFolder,
    ledger: Ledger,
    app: str,
    seal: Callable[[Unsigned], str],
    progress: Callable[[int, int], None],
) -> Iterator[Outcome]:
    """Seal what a folder holds, and return what became of each file.

    Args:
        reader: the folder.
        ledger: whose codec has to take the states.
        app: what wrote the files.
        seal: seals a state, or tells what would become of it.
        progress: called with how much is done, of how much.

    Raises:
        StorageUnavailable: the folder cannot be read.
        CheckpointError: what `seal` raises, and what is not the fault of a file.
    """
    survey = reader.survey(lambda done, files: progress(done, 2 * files))
    done = survey.files
    for source, error in survey.refused.items():
        done += 1
        digest = survey.digests.get(source, "")
        yield Outcome(source, REFUSED, reason=str(error), source_digest=digest)
    for thread in survey.threads:
        for outcome in _moved(thread, reader, ledger, app, seal):
            done += 1
            progress(done, 2 * survey.files)
            yield outcome


def _moved(
    thread: Thread,
    reader: PickledFolder,
    ledger: Ledger,
    app: str,
    seal: Callable[[Unsigned], str],
) -> Iterator[Outcome]:
    """Seal the files of one thread: all, or none if one of them is refused."""
    refusals = _refusals(thread, reader, ledger)
    for sequence, stored in enumerate(thread.files, 1):
        outcome, reason = REFUSED, ""
        if not refusals:
            try:
                state = _read(reader, stored)
                outcome = seal(Unsigned(thread.name, state, stored.source, stored.digest, app))
            except _OF_THE_FILE as error:
                refusals = {stored.source: str(error)}
        if refusals:
            reason = refusals.get(stored.source) or _of_the_same(next(iter(refusals)))
        place = 0 if refusals else sequence
        yield Outcome(stored.source, outcome, thread.name, place, reason, stored.digest)


def _read(reader: PickledFolder, stored: Stored) -> Any:
    try:
        return reader.read(stored)
    except StorageUnavailable as error:
        problem = Conflict(error.what, error.do)  # of the file, and not of the ledger
    raise problem


def _refusals(thread: Thread, reader: PickledFolder, ledger: Ledger) -> dict[str, str]:
    """Return why files of a thread cannot be sealed, before the first one of it is."""
    refusals = {}
    for stored in thread.files:
        try:
            ledger.codec.encode(reader.read(stored))
        except CheckpointError as error:
            refusals[stored.source] = str(error)
    return refusals


def _of_the_same(source: str) -> str:
    return (
        f"It is of one thread with {shell(source)}, which is refused."
        " Nothing of it was sealed. Mend that one first."
    )
