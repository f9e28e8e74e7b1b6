"""Restore a backup, and let the anchor say what is missing.

Run it in an empty folder: it makes the key, the store and the loss.
"""

import shutil

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    RolledBack,
    SigningKey,
    SQLiteAnchor,
)

SQLiteAnchor("anchor/heads.db", create=True)
keys = Keyring(SigningKey.from_file("keys/signing.key", create=True))


def opened(state):
    return Ledger(
        FileCheckpointStorage(state),
        store="invoices",
        keys=keys,
        anchor=SQLiteAnchor(
            "anchor/heads.db"
        ),  # as it is today, never restored
    )


def missing(ledger):
    """Verify each thread, and say which of them end too early."""
    found = {}
    for thread in ledger.threads():
        try:
            ledger.verify(thread)
        except RolledBack as refusal:
            found[thread] = refusal.what
    return found


# A backup at midnight, a replica at noon, and at one the disk is gone.
ledger = opened("state")
ledger.save("order-7", {"amount": 42})
shutil.copytree("state", "backup")
ledger.save("order-7", {"amount": 42, "paid": True})
shutil.copytree("state", "replica")
ledger.save("order-8", {"amount": 99})
shutil.rmtree("state")

# 1. Put the backup in place. The anchor says what it lacks.
shutil.copytree("backup", "state")
lost = missing(opened("state"))
for what in lost.values():
    print(what)
    #> order-7 ends at #1, and the anchor has seen #2.
    #> order-8 is gone, and the anchor has seen #1.

# 2. Look for it elsewhere. A copy is verified record by record, and
#    what is there already stays.
replica = opened("replica")
replica.copy_to(opened("state"), threads=["order-7"])
lost = missing(opened("state"))
print(lost["order-8"])
#> order-8 is gone, and the anchor has seen #1.

# 3. What is nowhere to be found, somebody gives up, by name.
for thread in lost:
    before, after = opened("state").accept_loss(thread)
    print(f"{thread}: was at {before}, is at {after}")
    #> order-8: was at #1, is at None
print(len(missing(opened("state"))), "threads end too early")
#> 0 threads end too early
