"""Does every record in a store verify, and does each follow the one before it?"""

from __future__ import annotations

from safepoint.audit.finding import Finding
from safepoint.errors import CheckpointError
from safepoint.ledger import Ledger


def check_records(ledger: Ledger) -> list[Finding]:
    """Verify each thread of a store from its first checkpoint to its last.

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

    Returns:
        The first refusal of each thread that has one, as an error under SP02.

    Raises:
        StorageError: the storage cannot be listed.
    """
    findings = []
    for thread in ledger.threads():
        try:
            ledger.verify(thread)
        except CheckpointError as refusal:
            findings.append(Finding("SP02", "error", refusal.what, refusal.do, thread))
    return findings
