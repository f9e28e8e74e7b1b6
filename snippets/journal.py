"""Write down who does what, before it is done, and ask afterwards.

Run it in an empty folder.
"""

from safepoint import (
    Actor,
    CheckpointError,
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteJournal,
)

# Its own key, its own folder, and an anchor for its own end.
journal = SQLiteJournal(
    "journal/journal.db",
    keys=Keyring(SigningKey.from_file("keys/journal.key", create=True)),
    anchor=SQLiteAnchor("journal-anchor/heads.db", create=True),
    create=True,
)
ledger = Ledger(
    FileCheckpointStorage("state"),
    store="invoices",
    keys=Keyring(SigningKey.from_file("keys/writer.key", create=True)),
    anchor=SQLiteAnchor("anchor/heads.db", create=True),
    journal=journal,
    actor=Actor("worker-1", how="client certificate"),
)

ledger.save("order-7", {"amount": 42})
try:
    ledger.save("order-7", {"amount": 43}, after=0)
except CheckpointError as refusal:
    print(refusal.what)
    #> order-7 is at #1, and this save builds on #0.

for entry in journal.show(thread="order-7"):
    print(entry.number, entry.what, entry.outcome, entry.actor.name)
    #> 1 save intended worker-1
    #> 2 save refused worker-1
print("verified", journal.verify())
#> verified 2
