"""Does every record in a store verify, and does each follow the one before it?"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from safepoint.audit.finding import Finding
from safepoint.errors import (
    AnchorError,
    CheckpointError,
    KeyRevoked,
    LimitExceeded,
    NotFound,
    RecordsMissing,
    SealBroken,
    StorageUnavailable,
    UnsafeLocation,
    WrongPlace,
)
from safepoint.keys import Keyring
from safepoint.ledger import Ledger
from safepoint.verify import Progress, View

_RULES: Final[tuple[tuple[type[CheckpointError], str], ...]] = (
    (UnsafeLocation, "SP04"),
    (KeyRevoked, "SP08"),
    (LimitExceeded, "SP11"),
    (SealBroken, "SP12"),
    (WrongPlace, "SP12"),
    (RecordsMissing, "SP13"),
    (NotFound, "SP13"),
    (StorageUnavailable, "SP13"),
    (AnchorError, "SP15"),
)
_SEQUENCE: Final = re.compile(r"#([1-9][0-9]{0,9})\b")


def check_records(ledger: Ledger, *, progress: Progress | None = None) -> list[Finding]:
    """Verify each thread of a store from its first checkpoint to its last, each by its own seal.

    Nothing is changed, and no state is decoded: the ledger needs the keys, but not your types.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.audit import check_records

    storage = InMemoryCheckpointStorage()
    storage.append("order-7", 1, b'{"amount": 42}')
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    for finding in check_records(ledger):
        print(finding.rule, finding.severity, finding.what)
        #> SP02 error order-7 #1 is not a sealed record.
    ```

    Args:
        ledger: the store, with its keys and its anchor.
        progress: called with how many checkpoints are done and how many there are, as `Bar` takes
            it.

    Returns:
        The first refusal of each thread that has one, as an error under the rule that it breaks:
        SP02 if nobody you trust sealed the record, SP08 if a key did that is revoked, SP11 if it
        is over a limit, SP12 if the seal is broken or of another place, SP13 if records are
        missing or cannot be read, SP14 if a genuine record does not follow the one before it, SP15
        if the anchor knows better or cannot be asked, and SP04 if others could change the file.

    Raises:
        StorageError: the storage cannot be listed.
    """
    findings = []
    try:
        heads = dict.fromkeys(ledger.threads(), 0)
    except AnchorError as refusal:
        return [Finding("SP15", "error", refusal.what, refusal.do, ledger.store)]
    if progress is not None:
        for thread in heads:
            with suppress(CheckpointError):
                heads[thread] = view_of(ledger).reach(thread, None)
    done, total = 0, sum(heads.values())
    for thread, head in heads.items():
        try:
            ledger.verify(
                thread, progress=_from(progress, done + head, total), every_signature=True
            )
        except CheckpointError as refusal:
            rule = _rule(ledger, thread, refusal)
            findings.append(Finding(rule, "error", refusal.what, refusal.do, thread))
        done += head
    return findings


def view_of(ledger: Ledger, keys: Keyring | None = None) -> View:
    """Return a view of the ledger's storage that remembers nothing of what it saw before."""
    trusted = ledger.keys if keys is None else keys
    return View(ledger.storage, ledger.store, trusted, ledger.anchor, ledger.codec.limits)


def _from(progress: Progress | None, end: int, total: int) -> Progress | None:
    """Return how to count within a thread after which `end` of `total` are done."""
    if progress is None:
        return None
    return lambda done, of: progress(max(end - of + done, done), max(total, done))


def _rule(ledger: Ledger, thread: str, refusal: CheckpointError) -> str:
    for kind, rule in _RULES:
        if isinstance(refusal, kind):
            return "SP14" if rule == "SP12" and _stands_alone(ledger, thread, refusal) else rule
    return "SP02"


def _stands_alone(ledger: Ledger, thread: str, refusal: CheckpointError) -> bool:
    """Tell whether the refused record verifies by itself, so that it is its link that is broken."""
    named = _SEQUENCE.search(refusal.what)
    if named is None:
        return False
    try:
        view_of(ledger).open(thread, int(named[1]))
    except CheckpointError:
        return False
    return True
