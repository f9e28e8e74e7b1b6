"""Sealing states that carry no seal."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from safepoint._ledger.noting import Notes
from safepoint.errors import ConfigurationError, Conflict, NotFound, ThreadDeleted
from safepoint.ledger import Ledger
from safepoint.migrate.report import Report
from safepoint.migrate.unsigned import Unsigned, check_thread

SEALED: Final = "sealed"
THERE_ALREADY: Final = "there already"


def migrate(
    states: Iterable[Unsigned],
    ledger: Ledger,
    *,
    report: str | os.PathLike[str],
    allow_unsigned_migration: bool = False,
) -> int:
    """Seal states that carry no seal as new threads, in one pass, and write down each.

    A thread that exists is not added to: a migration cannot reach into a run that goes on. A state
    that an interrupted migration sealed already is recognised and passed over, so run it again,
    with the same report.

    ```python
    import json
    from pathlib import Path

    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.migrate import json_files, migrate

    Path("old").mkdir()
    Path("old/order-7.json").write_text('{"amount": 42}')

    keys = Keyring(SigningKey.generate())
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
    sealed = migrate(
        json_files("old"),
        ledger,
        report="migration.jsonl",
        allow_unsigned_migration=True,
    )
    print(sealed, ledger.latest("order-7").state)
    #> 1 {'amount': 42}
    for line in Path("migration.jsonl").read_text().splitlines():
        entry = json.loads(line)
        print(entry["source"], entry["outcome"])
        #> order-7.json begun
        #> order-7.json sealed
    ```

    Args:
        states: what to seal; several of one thread become its checkpoints, in order.
        ledger: where to.
        report: a file of JSON lines that this adds to: for each state one before it is sealed,
            on disk, and one after it, with the checkpoint's digest.
        allow_unsigned_migration: that you vouch for these states. There is no default yes.

    Returns:
        How many were sealed.

    Raises:
        ConfigurationError: you did not say that you vouch for them, one is not `Unsigned`, or the
            report is a file of another kind.
        Conflict: a thread exists, and not because of this migration.
        StorageUnavailable: the report cannot be written. What it does not name is not sealed.
        CheckpointError: a state cannot be sealed. Those before it are.
    """
    check_vouched(allow_unsigned_migration)
    with Report(report) as lines:
        sealer = Sealer(ledger, lines)
        sealed = sum(sealer.seal(unsigned) == SEALED for unsigned in states)
        lines.sync()
    return sealed


def check_vouched(allow_unsigned_migration: object) -> None:
    """Refuse unless somebody vouches for the states.

    Raises:
        ConfigurationError: nobody does.
    """
    if allow_unsigned_migration is not True:
        raise ConfigurationError(
            "These states carry no seal, so whoever could write them decides what they say.",
            "Look at them first. If you vouch for them, pass allow_unsigned_migration=True.",
        )


class Sealer:
    """Seals states one after another, and writes each down: before, on disk, and after.

    Args:
        ledger: where to.
        lines: the report, open.
    """

    def __init__(self, ledger: Ledger, lines: Report) -> None:
        self._ledger = ledger
        self._lines = lines
        self._positions: dict[str, int] = {}

    def seal(self, unsigned: Unsigned) -> str:
        """Seal one as the next of its thread.

        Returns:
            `SEALED`, or `THERE_ALREADY` if an interrupted migration had done it.

        Raises:
            ConfigurationError: it is not `Unsigned`.
            Conflict: the thread exists, and not because of this migration.
            StorageUnavailable: the report cannot be written. What it does not name is not sealed.
            CheckpointError: the state cannot be sealed.
        """
        if not isinstance(unsigned, Unsigned):
            raise ConfigurationError(
                f"A migration takes Unsigned states, and was given {type(unsigned).__name__}.",
                "Write Unsigned(thread, state), or read a folder with json_files(path).",
            )
        ledger, lines = self._ledger, self._lines
        thread = check_thread(unsigned.thread, unsigned.source)
        sequence = self._positions[thread] = self._positions.get(thread, 0) + 1
        entry = {
            "outcome": "begun",
            "source": unsigned.source,
            "source_digest": unsigned.digest,
            "store": ledger.store,
            "thread": thread,
            "sequence": sequence,
        }
        if sequence == 1 and not lines.has_begun(ledger.store, thread):
            check_new(ledger, thread)
        lines.add(entry)
        lines.sync()
        digest = found(unsigned, ledger, sequence)
        outcome = SEALED if digest is None else THERE_ALREADY
        if digest is None:
            digest = _seal(unsigned, ledger, sequence)
        lines.add({**entry, "outcome": outcome, "digest": digest})
        return outcome


def check_new(ledger: Ledger, thread: str) -> None:
    """Refuse a thread that exists: a migration only makes new ones.

    Raises:
        Conflict: it exists.
        ThreadDeleted: it did, and its name stays taken.
    """
    try:
        ledger.latest(thread)
    except ThreadDeleted:
        raise
    except NotFound:
        return
    raise Conflict(
        f"{thread} exists in store {ledger.store}, and this report did not begin it.",
        "Nothing was overwritten. A migration only makes new threads: choose another name. To"
        " finish one that was interrupted, name its report.",
    )


def found(unsigned: Unsigned, ledger: Ledger, sequence: int) -> str | None:
    """Return the digest of the checkpoint that holds this very state there, None if none is there.

    Raises:
        Conflict: another state is there.
    """
    try:
        there = ledger.load(unsigned.thread, sequence)
    except ThreadDeleted:
        raise
    except NotFound:
        return None
    # As bytes: in Python 1, 1.0 and True are equal.
    encode = ledger.codec.encode
    if encode(there.state) != encode(unsigned.state) or there.app != unsigned.app:
        raise Conflict(
            f"{unsigned.thread} exists in store {ledger.store}, with another state at #{sequence}.",
            "Nothing was overwritten. A migration only makes new threads: choose another name.",
        )
    return there.digest


def _seal(unsigned: Unsigned, ledger: Ledger, sequence: int) -> str:
    detail = f"unsigned state {unsigned.digest} as #{sequence}"
    Notes.of(ledger).write("migrate", "intended", unsigned.thread, detail=detail)
    saved = ledger.save(unsigned.thread, unsigned.state, app=unsigned.app, after=sequence - 1)
    return saved.digest
