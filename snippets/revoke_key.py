"""A key was stolen: keep what counts, and what you can vouch for.

Run it in an empty folder: it makes the keys, the day and the theft.
"""

# --8<-- [start:theft]
import json
import shutil
from pathlib import Path

from safepoint import (
    CheckpointError,
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
)


def opened(keys, state="state", anchor="anchor"):
    """As a new process would."""
    return Ledger(
        FileCheckpointStorage(state),
        store="invoices",
        keys=keys,
        anchor=SQLiteAnchor(f"{anchor}/heads.db"),
    )


SQLiteAnchor("anchor/heads.db", create=True)
old = SigningKey.from_file("keys/2026.key", create=True)
worker = opened(Keyring(old))
worker.save("order-7", {"payee": "alice"})
worker.save("order-8", {"payee": "bob"})

# At midnight both folders are copied, as every night.
shutil.copytree("anchor", "night/anchor")
shutil.copytree("state", "night/state")

# A day of work, in old threads and in a new one.
worker.save("order-7", {"payee": "alice", "amount": 42})
worker.save("order-8", {"payee": "bob", "amount": 99})
worker.save("order-9", {"payee": "carol"})

# And somebody who copied the key, and can write the storage.
thief = Ledger(
    FileCheckpointStorage("state"), store="invoices", keys=Keyring(old)
)
thief.save("order-7", {"payee": "mally", "amount": 42})
# --8<-- [end:theft]

# --8<-- [start:stop]
Path("state").rename("evidence")
Path("state").write_text("Stopped on purpose. Ask Dana.\n")
shutil.copytree("anchor", "anchor-tonight")
new = SigningKey.from_file("keys/2027.key", create=True)
# --8<-- [end:stop]

# --8<-- [start:copied]
# (a) The copy of the anchor from before the theft.
before = SQLiteAnchor("night/anchor/heads.db")
# --8<-- [end:copied]

# --8<-- [start:backup]
# (b) No such copy, but a backup of the storage: make one from it.
SQLiteAnchor("night/heads/heads.db", create=True)
backup = opened(
    Keyring(verify=[old]), state="night/state", anchor="night/heads"
)
for thread in backup.threads():
    backup.verify(thread, anchor=True)
    print(thread, "counts up to", backup.anchored(thread))
    #> order-7 counts up to #1
    #> order-8 counts up to #1
before = SQLiteAnchor("night/heads/heads.db")
# --8<-- [end:backup]


# --8<-- [start:list]
def after(before, ledger):
    """Return what came after the point, by thread."""
    found = {}
    for thread in ledger.threads():
        head = before.read(ledger.store, thread)
        last = head.sequence if head else 0
        try:
            all_of_it = list(ledger.history(thread))
        except CheckpointError as refusal:
            print(f"{type(refusal).__name__}: {refusal.what}")
            continue
        if all_of_it and all_of_it[0].sequence > 1:
            print(thread, "was pruned to", all_of_it[0].sequence)
        newer = [c for c in all_of_it if c.sequence > last]
        if newer:
            found[thread] = newer
    return found


trusting = Keyring(verify=[old])  # it reads, and signs nothing
evidence = opened(trusting, "evidence", "anchor-tonight")
late = after(before, evidence)
for thread, checkpoints in late.items():
    for each in checkpoints:
        print(thread, each.sequence, each.state)
        #> order-7 2 {'payee': 'alice', 'amount': 42}
        #> order-7 3 {'payee': 'mally', 'amount': 42}
        #> order-8 2 {'payee': 'bob', 'amount': 99}
        #> order-9 1 {'payee': 'carol'}
# --8<-- [end:list]

# --8<-- [start:vouch]
vouched = {"order-7": [2], "order-8": [2], "order-9": [1]}
left_out: list[str] = []  # pruned, and not by you
decision = {
    "by": "Dana",
    "why": "the bank's list of today's orders",
}
# --8<-- [end:vouch]

# --8<-- [start:keep]
ledger = opened(Keyring(new), "state-2027")
# --8<-- [start:copy]
for thread in evidence.threads():
    if thread in left_out:
        late.pop(thread, None)
        continue
    try:
        evidence.copy_to(ledger, threads=[thread], up_to=before)
    except CheckpointError as refusal:
        print(f"{type(refusal).__name__}: {refusal.what}")
        late.pop(thread, None)
# --8<-- [end:copy]

for thread in late:
    was, now = ledger.accept_loss(thread)
    print(f"{thread}: the anchor was at {was}, is at {now}")
    #> order-7: the anchor was at #2, is at #1
    #> order-8: the anchor was at #2, is at #1
    #> order-9: the anchor was at #1, is at None
# --8<-- [end:keep]

# --8<-- [start:save]
with Path("decided.jsonl").open("a") as decided:
    for thread, checkpoints in late.items():
        for was in checkpoints:
            note = {**decision, "thread": thread, "was": was.digest}
            if was.sequence in vouched.get(thread, []):
                now = ledger.save(
                    thread,
                    was.state,
                    label=was.label,
                    app=was.app,
                    tools=was.tools,
                )
                note["is"] = now.digest
            decided.write(json.dumps(note) + "\n")
# --8<-- [end:save]

# --8<-- [start:look]
ledger = opened(Keyring(new), "state-2027")
for thread in ledger.threads():
    print(thread, "verifies:", ledger.verify(thread))
    #> order-7 verifies: 2
    #> order-8 verifies: 2
    #> order-9 verifies: 1
print(ledger.latest("order-7").state)
#> {'payee': 'alice', 'amount': 42}
# --8<-- [end:look]
