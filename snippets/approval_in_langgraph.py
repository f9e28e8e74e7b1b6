"""A LangGraph node that pays what a person signed, and nothing else.

Run it in an empty folder: it plays the worker and the approver. In
production each of them has a machine, and a secret, of their own.
"""

# --8<-- [start:all]
from pathlib import Path
from typing import TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from safepoint import (
    Approver,
    Approvers,
    CheckpointError,
    Gate,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
    SQLiteJournal,
    VerifyingKey,
)
from safepoint.core.errors import ResumeRefused
from safepoint.langgraph import SealedSaver
from safepoint.resume.approval import Question


# --8<-- [start:node]
class Invoice(TypedDict, total=False):
    payee: str
    amount: int
    paid: str


def send(order, key):
    """Your bank's interface. It drops a key that it has seen."""


def payment(saver):
    def pay(invoice):
        order = {key: invoice[key] for key in ("payee", "amount")}
        try:
            yes = saver.ask("pay", order)  # waits, as interrupt does
        except ResumeRefused:  # somebody said no
            return {"paid": "nothing"}
        order = yes.arguments  # signed, not the state
        send(order, yes.key)
        return {"paid": f"{order['amount']} to {order['payee']}"}

    builder = StateGraph(Invoice)
    builder.add_node("pay", pay)
    builder.add_edge(START, "pay")
    return builder.compile(saver)
    # --8<-- [end:node]


def set_up():
    """Each secret belongs on the machine of its owner."""
    Path("people").mkdir(mode=0o755, exist_ok=True)
    dana = SigningKey.from_file("dana/own.key", create=True)
    if not Path("people/dana.pub").exists():
        dana.public.to_file("people/dana.pub")
    SigningKey.from_file("worker/writer.key", create=True)
    SQLiteAnchor("anchor/heads.db", create=True)
    key = SigningKey.from_file("worker/journal.key", create=True)
    SQLiteJournal("journal/journal.db", keys=Keyring(key), create=True)


def opened():
    """As each process of the worker does."""
    journal_key = SigningKey.from_file("worker/journal.key")
    ledger = Ledger(
        SQLiteCheckpointStorage("state/checkpoints.db"),
        store="invoices",
        keys=Keyring(SigningKey.from_file("worker/writer.key")),
        anchor=SQLiteAnchor("anchor/heads.db"),
        journal=SQLiteJournal(
            "journal/journal.db", keys=Keyring(journal_key)
        ),
    )
    dana = VerifyingKey.from_file("people/dana.pub")
    gate = Gate(approvers=Approvers({"dana": dana}))
    return payment(SealedSaver(ledger, app="invoices@1", gate=gate))


def approve(text):
    """As Dana does, where she reads all of it and has her key."""
    question = Question.from_text(text)
    Path("question.txt").write_text("\n".join(question.described))
    dana = Approver("dana", SigningKey.from_file("dana/own.key"))
    return dana.approve(question)
    # --8<-- [end:all]


def run(order: str) -> RunnableConfig:
    return {"configurable": {"thread_id": order}}


set_up()
bill: Invoice = {"payee": "alice", "amount": 42}
asked = opened().invoke(bill, run("order-7"))
signed = approve(asked["__interrupt__"][0].value)

for forged in (True, signed.replace("alice", "mally")):
    try:
        opened().invoke(Command(resume=forged), run("order-7"))
    except CheckpointError as refusal:
        print(type(refusal).__name__)
        #> ApprovalRefused
        #> ApprovalRefused

print(opened().invoke(Command(resume=signed), run("order-7"))["paid"])
#> 42 to alice

opened().invoke(bill, run("order-8"))
try:  # a yes counts once, and for what it was given
    opened().invoke(Command(resume=signed), run("order-8"))
except CheckpointError as refusal:
    print(type(refusal).__name__)
    #> ApprovalRefused
