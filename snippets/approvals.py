"""A run that waits for a person, and goes on with what they signed.

Run it in an empty folder: it plays the worker and the approver. In
production each of them has a machine, and a secret, of their own.
"""

# --8<-- [start:all]
import os
import re
import socket
from datetime import timedelta
from pathlib import Path

from safepoint import (
    Approver,
    Approvers,
    Ask,
    FileCheckpointStorage,
    Gate,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteJournal,
    VerifyingKey,
    Workflow,
)
from safepoint.core.errors import ApprovalRefused


# --8<-- [start:payment]
def ask(state):
    order = {"payee": state["payee"], "amount": state["amount"]}
    return Ask("pay", order)


def send(order, key):
    """Your bank's interface. It drops a key that it has seen."""


def pay(state, call):
    order = call.approved.arguments  # signed, not the state
    send(order, call.key)
    return {"paid": order["amount"], "request": call.key}


def payment():
    dana = VerifyingKey.from_file("people/dana.pub")
    gate = Gate(approvers=Approvers({"dana": dana}))
    return Workflow("payment", [ask, pay], version="1", gate=gate)


def opened(keys, journal=None):
    return Ledger(
        FileCheckpointStorage("state"),
        store="invoices",
        keys=keys,
        anchor=SQLiteAnchor("anchor/heads.db"),
        journal=journal,
    )
    # --8<-- [end:payment]


# --8<-- [start:worker]
def for_writing():
    writer_key = SigningKey.from_file("worker/writer.key")
    journal_key = SigningKey.from_file("worker/journal.key")
    journal = SQLiteJournal(
        "journal/journal.db", keys=Keyring(journal_key)
    )
    return opened(Keyring(writer_key), journal)


def start(thread, **order):
    """Run until somebody has to be asked."""
    return payment().start(for_writing(), thread=thread, **order)


def my_name():
    """No two live workers have one name: the host and the process."""
    host = re.sub("[^a-z0-9]", "-", socket.gethostname().lower())
    return f"worker-{host[:40]}-{os.getpid()}"


def go_on(thread, signed):
    """Safe to run again, with the same answer."""
    flow, ledger = payment(), for_writing()
    with ledger.own(thread, my_name(), seconds=60):
        try:
            return flow.resume(ledger, thread, approvals=[signed])
        except ApprovalRefused as refusal:
            if refusal.kind != "used":  # by an earlier try
                raise
            return flow.resume(ledger, thread)
    # --8<-- [end:worker]


# --8<-- [start:approver]
def question_about(thread):
    """From the store, verified with the writer's public half."""
    writer = VerifyingKey.from_file("people/writer.pub")
    ledger = opened(Keyring(verify=writer))
    return payment().question(ledger, thread)


def answer(question, word):
    dana_key = SigningKey.from_file("dana/own.key")
    dana = Approver("dana", dana_key)
    if word == "yes":
        ten_minutes = timedelta(minutes=10)
        return dana.approve(question, lifetime=ten_minutes)
    if word == "no":
        return dana.deny(question)
    raise SystemExit("Nothing was signed. Type yes or no.")
    # --8<-- [end:approver]


def set_up():
    """Each secret belongs on the machine of its owner."""
    Path("people").mkdir(mode=0o755, exist_ok=True)
    owners = {"writer": "worker/writer.key", "dana": "dana/own.key"}
    for name, file in owners.items():
        key = SigningKey.from_file(file, create=True)
        public = Path("people", f"{name}.pub")
        if not public.exists():
            key.public.to_file(public)
    SQLiteAnchor("anchor/heads.db", create=True)
    key = SigningKey.from_file("worker/journal.key", create=True)
    SQLiteJournal("journal/journal.db", keys=Keyring(key), create=True)
    # --8<-- [end:all]


set_up()
run = start("order-7", payee="alice", amount=42)
print("waits for people:", run.paused)
#> waits for people: True

question = question_about("order-7")
shown = "\n".join(question.described)
Path("question.txt").write_text(shown)  # she reads and signs all of it
signed = answer(question, "yes")  # text: mail it, upload it

run = go_on("order-7", signed)
print("denied" if run.denied else run.state["request"])
#> invoices/order-7/2/pay
run = go_on("order-7", signed)  # once more: nothing is paid
print("denied" if run.denied else run.state["request"])
#> invoices/order-7/2/pay
