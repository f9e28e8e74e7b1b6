"""Replace a signing key: all can verify it, then all sign with it.

Run it in an empty folder: it makes the keys and the store.
"""

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
)

OLD, NEW = "keys/2026.key", "keys/2027.key"


def worker(*, signs, verifies=(), state="state"):
    """A worker as it starts: its ring comes from key files."""
    older = [SigningKey.from_file(file) for file in verifies]
    return Ledger(
        FileCheckpointStorage(state),
        store="invoices",
        keys=Keyring(SigningKey.from_file(signs), verify=older),
        anchor=SQLiteAnchor("anchor/heads.db"),
    )


# As it was: two workers, one key.
SigningKey.from_file(OLD, create=True)
SQLiteAnchor("anchor/heads.db", create=True)
first, second = worker(signs=OLD), worker(signs=OLD)
first.save("order-7", {"step": 1})

# 1. Make the new key. Restart the workers, one at a time, so that each
#    of them can verify it. All still sign with the old one.
SigningKey.from_file(NEW, create=True)
first = worker(signs=OLD, verifies=[NEW])
second = worker(signs=OLD, verifies=[NEW])

# 2. Restart them again, one at a time. Now they sign with it. Between
#    the two, none stops: here the second reads what the first saved.
first = worker(signs=NEW, verifies=[OLD])
first.save("order-7", {"step": 2})
print(second.latest("order-7").state)
#> {'step': 2}
second = worker(signs=NEW, verifies=[OLD])
second.save("order-7", {"step": 3})

# 3. When a stop suits you: stop them all, and seal all there is with
#    the new key, in a new folder. Each record is verified first.
fresh = worker(signs=NEW, state="state-2027")
print(second.copy_to(fresh), "records sealed anew")
#> 3 records sealed anew

# 4. Start them on the new folder, and lock the old key away.
ledger = worker(signs=NEW, state="state-2027")
print(ledger.verify("order-7"), ledger.latest("order-7").state)
#> 3 {'step': 3}
