"""From a folder of pickled checkpoints to a ledger: read as data, looked at first, sealed once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from safepoint.errors import CheckpointError, ConfigurationError, shell
from safepoint.ledger import Ledger
from safepoint.migrate import (
    SEALED,
    THERE_ALREADY,
    Report,
    Sealer,
    Unsigned,
    begun_by,
    check_vouched,
)
from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits
from safepoint.pickles.moving import REFUSED, Outcome, Outlook, outcomes
from safepoint.pickles.reviving import Types
from safepoint.pickles.stored import PickledFolder, Stored, numbered

__all__ = ["Outcome", "Summary", "migrate_pickles", "pickled_files"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a migration did, or would do.

    Attributes:
        outcomes: one for each file.
        dry_run: whether nothing was written.
    """

    outcomes: tuple[Outcome, ...]
    dry_run: bool = False

    @property
    def found(self) -> int:
        """How many files there are."""
        return len(self.outcomes)

    @property
    def sealed(self) -> int:
        """How many were sealed, or would be."""
        return self._count(SEALED)

    @property
    def there_already(self) -> int:
        """How many an earlier run had sealed."""
        return self._count(THERE_ALREADY)

    @property
    def refused(self) -> int:
        """How many were refused."""
        return self._count(REFUSED)

    def _count(self, outcome: str) -> int:
        return sum(each.outcome == outcome for each in self.outcomes)


def pickled_files(
    folder: str | os.PathLike[str],
    *,
    types: Types = (),
    thread: Callable[[str], str] | None = None,
    app: str = "",
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
    allow_missing_past: bool = False,
) -> Iterator[Unsigned]:
    """Read the pickled checkpoints of a folder, as data, for `safepoint.migrate.migrate`.

    A file is a pickle, whatever its name, and becomes a thread with one checkpoint; or it is a
    checkpoint of Microsoft Agent Framework, JSON with pickles in base64. Those become a thread for
    each run, in the order in which they name one another. Nothing in them is unpickled.

    All files are looked at before the first one is handed out. `migrate_pickles` goes on where one
    is refused; this does not.

    Args:
        folder: where they are.
        types: the dataclasses, Enums, Flags and pydantic models of yours that may occur in them.
            Give a mapping for those that had another name: `{"old.module.Invoice": Invoice}`.
        thread: makes a thread's name of a pickle's name without its end, or of the id of the first
            checkpoint of a run. Left out, they are the same.
        app: what wrote them, as it should stand in the checkpoints.
        limits: for each file, and for each pickle.
        allow_missing_past: take a checkpoint for the first if the one that it follows is gone.

    Raises:
        ConfigurationError: an argument is of the wrong kind.
        CheckpointError: a file is refused. The message says which, and why.
    """
    reader = PickledFolder(
        folder, types=types, thread=thread, limits=limits, allow_missing_past=allow_missing_past
    )
    survey = reader.survey()
    for source, error in sorted(survey.refused.items()):
        raise type(error)(f"{reader.path(Stored(source, ''))}: {error.what}", error.do)
    for each, _, stored in numbered(survey.threads):
        try:
            state = reader.read(stored)
        except CheckpointError as error:
            problem = type(error)(f"{reader.path(stored)}: {error.what}", error.do)
        else:
            yield Unsigned(each.name, state, stored.source, stored.digest, app)
            continue
        raise problem


def migrate_pickles(
    folder: str | os.PathLike[str],
    ledger: Ledger,
    *,
    report: str | os.PathLike[str],
    types: Types = (),
    thread: Callable[[str], str] | None = None,
    app: str = "",
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
    allow_unsigned_migration: bool = False,
    allow_missing_past: bool = False,
) -> Summary:
    r"""Seal the pickled checkpoints of a folder as new threads. The files stay as they are.

    Nothing in them is unpickled. A file that is refused does not stop the others; of a thread, all
    is sealed or nothing. After an interrupt, run it again with the same report: what was sealed is
    recognised.

    ```python
    import pickle
    from pathlib import Path

    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.pickles.migration import migrate_pickles

    Path("old").mkdir()
    Path("old/order-7.pkl").write_bytes(pickle.dumps({"amount": 42}))
    Path("old/order-8.pkl").write_bytes(b"cos\nsystem\n(S'id'\ntR.")

    keys = Keyring(SigningKey.generate())
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
    summary = migrate_pickles("old", ledger, report="moved.jsonl", dry_run=True)
    for each in summary.outcomes:
        print(each.source, each.outcome)
        #> order-7.pkl sealed
        #> order-8.pkl refused
    print(summary.outcomes[1].reason.partition(",")[0])
    #> It wants os.system (byte 0)
    print(ledger.threads(), Path("moved.jsonl").exists())
    #> [] False
    ```

    Args:
        folder: where they are. See `pickled_files`.
        ledger: where to. Its codec has to know the same types.
        report: a file of JSON lines that this adds to: one before each state is sealed, on disk,
            one after it, and one for each file that is refused.
        types: as for `pickled_files`.
        thread: as for `pickled_files`.
        app: as for `pickled_files`.
        limits: as for `pickled_files`.
        dry_run: write nothing, and say what would happen.
        progress: called with how much is done, and how much there is. Each file is read twice.
        allow_unsigned_migration: that you vouch for these states. There is no default yes, and a
            dry run needs none.
        allow_missing_past: as for `pickled_files`.

    Returns:
        What became of each file.

    Raises:
        ConfigurationError: you did not say that you vouch for them, or an argument is of the wrong
            kind, or the report is in the folder or is a file of another kind.
        StorageUnavailable: the folder cannot be read, or the report cannot be written. What the
            report does not name is not sealed.
        CheckpointError: the ledger refuses. What was sealed before is in the report.
    """
    if not isinstance(dry_run, bool):
        raise ConfigurationError(
            f"A migration was given {type(dry_run).__name__} as dry_run.", "Write dry_run=True."
        )
    if not dry_run:
        check_vouched(allow_unsigned_migration)
    reader = PickledFolder(
        folder, types=types, thread=thread, limits=limits, allow_missing_past=allow_missing_past
    )
    _check_elsewhere(report, folder)
    tell = progress or (lambda _, __: None)
    if dry_run:
        seal = Outlook(ledger, begun_by(report)).seal
        return _summary(outcomes(reader, ledger, app, seal, tell), dry_run=True)
    done = []
    with Report(report) as lines:
        for each in outcomes(reader, ledger, app, Sealer(ledger, lines).seal, tell):
            done.append(each)
            if each.outcome == REFUSED:
                lines.add({"store": ledger.store, **asdict(each)})
        lines.sync()
    return _summary(done, dry_run=False)


def _summary(outcomes: Iterable[Outcome], *, dry_run: bool) -> Summary:
    return Summary(tuple(sorted(outcomes, key=lambda each: each.source)), dry_run)


def _check_elsewhere(report: object, folder: str | os.PathLike[str]) -> None:
    """Refuse a report among the files that it is about."""
    if not isinstance(report, (str, os.PathLike)):
        return  # whoever opens it says so
    try:
        named, linked = Path(report).parent.resolve(), Path(report).resolve()
        places = [named, *named.parents, *linked.parents]
        is_inside = any(place.exists() and place.samefile(folder) for place in places)
    except (OSError, ValueError, RuntimeError):
        return  # whoever opens them says so
    if is_inside:
        raise ConfigurationError(
            f"The report {shell(os.fspath(report))} would be in the folder that is migrated.",
            "Nothing was sealed. Name a file elsewhere: the originals stay as they are.",
        )
