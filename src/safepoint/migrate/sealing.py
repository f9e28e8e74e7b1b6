"""Sealing states that carry no seal."""

from __future__ import annotations

import os
from collections.abc import Iterable

from safepoint._ledger.noting import Notes
from safepoint.errors import ConfigurationError, Conflict, NotFound, ThreadDeleted
from safepoint.ledger import Ledger
from safepoint.migrate.report import Report
from safepoint.migrate.unsigned import Unsigned, check_thread


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
        ConfigurationError: you did not say that you vouch for them, or one is not `Unsigned`.
        Conflict: a thread exists, and not because of this migration.
        StorageUnavailable: the report cannot be written. What it does not name is not sealed.
        CheckpointError: a state cannot be sealed. Those before it are.
    """
    if allow_unsigned_migration is not True:
        raise ConfigurationError(
            "These states carry no seal, so whoever could write them decides what they say.",
            "Look at them first. If you vouch for them, pass allow_unsigned_migration=True.",
        )
    positions: dict[str, int] = {}
    sealed = 0
    with Report(report) as lines:
        for unsigned in states:
            if not isinstance(unsigned, Unsigned):
                raise ConfigurationError(
                    f"A migration takes Unsigned states, and was given {type(unsigned).__name__}.",
                    "Write Unsigned(thread, state), or read a folder with json_files(path).",
                )
            thread = check_thread(unsigned.thread, unsigned.source)
            sequence = positions[thread] = positions.get(thread, 0) + 1
            entry = {
                "outcome": "begun",
                "source": unsigned.source,
                "source_digest": unsigned.digest,
                "store": ledger.store,
                "thread": thread,
                "sequence": sequence,
            }
            again = lines.has_begun(ledger.store, thread)
            if sequence == 1 and not again:
                _check_new(ledger, thread)
            lines.add(entry)
            lines.sync()
            outcome, digest = _seal(unsigned, ledger, sequence)
            sealed += outcome == "sealed"
            lines.add({**entry, "outcome": outcome, "digest": digest})
        lines.sync()
    return sealed


def _check_new(ledger: Ledger, thread: str) -> None:
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


def _seal(unsigned: Unsigned, ledger: Ledger, sequence: int) -> tuple[str, str]:
    thread = unsigned.thread
    try:
        there = ledger.load(thread, sequence)
    except NotFound:
        detail = f"unsigned state {unsigned.digest} as #{sequence}"
        Notes.of(ledger).write("migrate", "intended", thread, detail=detail)
        saved = ledger.save(thread, unsigned.state, app=unsigned.app, after=sequence - 1)
        return "sealed", saved.digest
    # As bytes: in Python 1, 1.0 and True are equal.
    encode = ledger.codec.encode
    if encode(there.state) != encode(unsigned.state) or there.app != unsigned.app:
        raise Conflict(
            f"{thread} exists in store {ledger.store}, with another state at #{sequence}.",
            "Nothing was overwritten. A migration only makes new threads: choose another name.",
        )
    return "there already", there.digest
