"""Version 2 goes on with what version 1 began, by a migration.

Run it in an empty folder.
"""

from decimal import Decimal

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteJournal,
    Workflow,
)
from safepoint.resume.approval import Question

writer = SigningKey.from_file("keys/writer.key", create=True)
journal_key = SigningKey.from_file("keys/journal.key", create=True)
ledger = Ledger(
    FileCheckpointStorage("state"),
    store="invoices",
    keys=Keyring(writer),
    anchor=SQLiteAnchor("anchor/heads.db", create=True),
    journal=SQLiteJournal(
        "journal/journal.db", keys=Keyring(journal_key), create=True
    ),
)


# In both versions. A step's name is part of call.key, so it stays.
def pay(state, call):
    return {"paid": state["amount"], "request": call.key}


# Version 1, in last month's release: amounts are in cents.
def last_month():
    def fetch(state):
        return {"amount": 4200, "payee": "alice"}

    return Workflow("invoice", [fetch, pay], version="1")


last_month().begin(ledger, thread="order-7").step()  # then the release


# Version 2: amounts are in euros.
def to_euros(state):
    """Take a state of version 1, return the whole state of 2."""
    return {**state, "amount": Decimal(state["amount"]) / 100}


def fetch(state):
    return {"amount": Decimal(42), "payee": "alice"}


new = Workflow(
    "invoice",
    [fetch, pay],
    version="2",
    migrations={"1": to_euros},
)

# In the tests of version 2: by example, before it meets real money.
assert to_euros({"amount": 4200})["amount"] == Decimal("42.00")

run = new.resume(ledger, thread="order-7")
print(run.done, "paid:", run.state["paid"])
#> ('fetch', 'pay') paid: 42
print(run.state["request"])  # #2, as version 1 would have asked
#> invoices/order-7/2/pay

for checkpoint in ledger.history("order-7"):
    amount = checkpoint.state["state"].get("amount")
    print(checkpoint.sequence, checkpoint.app, amount)
    #> 1 invoice@1 None
    #> 2 invoice@1 4200
    #> 4 invoice@2 42

note = ledger.load("order-7", 3)  # why version 2 went on from there
question = Question.from_text(note.state["question"])
print(question.app, question.checkpoint, question.reasons)
#> invoice@2 #2 ('version-changed',)
