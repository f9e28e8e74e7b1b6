"""Go back to an older checkpoint: one asks, another one signs.

Run it in an empty folder.
"""

from pathlib import Path

from safepoint import (
    Approver,
    Approvers,
    FileCheckpointStorage,
    Gate,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteJournal,
    Workflow,
)
from safepoint.audit import audit


def make_key(path):
    return SigningKey.from_file(path, create=True)


# Dana makes her key where she works, and keeps it there.
writer, dana = make_key("keys/writer.key"), make_key("dana/dana.key")
gate = Gate(approvers=Approvers({"dana": dana.public}))
journal = SQLiteJournal(
    "journal/journal.db",
    keys=Keyring(make_key("keys/journal.key")),
    create=True,
)
anchor = SQLiteAnchor("anchor/heads.db", create=True)
bank: list[str] = []  # the keys of the payments that it has seen


def opened(keys, **options):
    storage = FileCheckpointStorage("state")
    return Ledger(
        storage, store="invoices", keys=keys, anchor=anchor, **options
    )


def fetch(state):
    return {"amount": 42, "payee": "alice"}


def pay(state, call):
    bank.append(call.key)
    return {"paid": state["amount"]}


invoice = Workflow("invoice", [fetch, pay], gate=gate)
ledger = opened(Keyring(writer), journal=journal)
invoice.start(ledger, thread="order-7")  # and the payment bounces


def approve(thread, sequence):
    """Dana, with no key of the store: look for yourself, then sign."""
    reader = opened(Keyring(verify=writer.public))
    question = invoice.question(reader, thread, sequence)
    if question is None:
        raise SystemExit("there is nothing to approve")
    shown = "\n".join(question.described)  # all of it is signed
    Path("question.txt").write_text(shown)
    return Approver("dana", dana).approve(question)


yes = approve("order-7", 2)
invoice.resume(ledger, "order-7", sequence=2, approvals=[yes])
print(bank)
#> ['invoices/order-7/2/pay', 'invoices/order-7/3-from-2/pay']

for finding in audit(ledger, gate=gate, rule="SP16"):
    print(finding.what)
    #> order-7 #5 went back from #3 to #2, approved by dana.
