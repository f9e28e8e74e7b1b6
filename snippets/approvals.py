"""A run that waits for a person, and goes on with what they signed.

Run it in an empty folder: it plays the worker and the approver. In
production each of them has a machine, and a secret, of their own.
"""

# --8<-- [start:payment]
from datetime import timedelta
from pathlib import Path

from safepoint import (
    Approver,
    Approvers,
    Ask,
    FileAnchor,
    FileCheckpointStorage,
    FileJournal,
    Gate,
    Keyring,
    Ledger,
    SigningKey,
    VerifyingKey,
    Workflow,
)


def ask(state):
    order = {"payee": state["payee"], "amount": state["amount"]}
    return Ask("pay", order)


def pay(state, call):
    order = call.approved.arguments  # what was signed, not the state
    # Your bank's interface goes here: it drops a key that it has seen.
    return {"paid": order["amount"], "request": call.key}


def payment():
    """The same code on both machines, with dana's public half."""
    dana = VerifyingKey.from_file("people/dana.pub")
    gate = Gate(approvers=Approvers({"dana": dana}))
    return Workflow("payment", [ask, pay], version="1", gate=gate)


def open_ledger(keys, journal=None):
    """The same store and anchor, by whoever has which keys."""
    return Ledger(
        FileCheckpointStorage("state"),
        store="invoices",
        keys=keys,
        anchor=FileAnchor("anchor"),
        journal=journal,
    )
    # --8<-- [end:payment]


# --8<-- [start:worker]
def for_writing():
    writer = SigningKey.from_file("worker/writer.key")
    notes = Keyring(SigningKey.from_file("worker/journal.key"))
    journal = FileJournal("journal", keys=notes)
    return open_ledger(Keyring(writer), journal)


def start(thread, **order):
    """Run until somebody has to be asked."""
    return payment().start(for_writing(), thread=thread, **order)


def go_on(thread, *answers):
    """After a crash, without answers: what is spent stays spent."""
    return payment().resume(for_writing(), thread, approvals=answers)
    # --8<-- [end:worker]


# --8<-- [start:approver]
def question_about(thread):
    """From the store, verified with the writer's public half."""
    writer = VerifyingKey.from_file("people/writer.pub")
    ledger = open_ledger(Keyring(verify=writer))
    return payment().question(ledger, thread)


def answer(question, yes):
    dana = Approver("dana", SigningKey.from_file("dana/own.key"))
    if not yes:
        return dana.deny(question)
    return dana.approve(question, lifetime=timedelta(minutes=10))
    # --8<-- [end:approver]


# --8<-- [start:set-up]
def set_up():
    """Once, by hand: each secret on the machine of its owner."""
    Path("people").mkdir(mode=0o755)
    owners = {"writer": "worker/writer.key", "dana": "dana/own.key"}
    for name, file in owners.items():
        key = SigningKey.from_file(
            file, create=True, algorithm="ed25519"
        )
        key.public.to_file(f"people/{name}.pub")
    FileAnchor("anchor", create=True)
    key = SigningKey.from_file("worker/journal.key", create=True)
    FileJournal("journal", keys=Keyring(key), create=True)
    # --8<-- [end:set-up]


set_up()
run = start("order-7", payee="alice", amount=42)
print("waits for people:", run.paused)
#> waits for people: True

question = question_about("order-7")
for line in question.described[-4:]:  # let her read every line
    print(line)
    #> action: 'pay'
    #> arguments: 2
    #> argument 'amount': 42
    #> argument 'payee': 'alice'
signed = answer(question, yes=True)  # text: mail it, upload it

run = go_on("order-7", signed)
print(run.state["paid"], run.state["request"])
#> 42 invoices/order-7/2/pay
