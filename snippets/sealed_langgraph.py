"""A LangGraph application whose checkpoints are sealed and anchored.

Run it in an empty folder. Keep keys/ and anchor/ where whoever can
write state/ cannot write.
"""

import sqlite3
from contextlib import closing
from typing import TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from safepoint import (
    CheckpointError,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
)
from safepoint.langgraph import SealedSaver

SigningKey.from_file("keys/writer.key", create=True)  # by hand, once
SQLiteAnchor("anchor/heads.db", create=True)  # then a lost one shows


class Invoice(TypedDict, total=False):
    payee: str
    amount: int
    paid: str


def approve(invoice):
    if interrupt({"pay": invoice["amount"], "to": invoice["payee"]}):
        return {"paid": f"{invoice['amount']} to {invoice['payee']}"}
    return {"paid": "nothing"}


builder = StateGraph(Invoice)
builder.add_node("approve", approve)
builder.add_edge(START, "approve")


def opened():
    """As each process does. These are the lines that change."""
    ledger = Ledger(
        SQLiteCheckpointStorage("state/checkpoints.db"),
        store="invoices",
        keys=Keyring(SigningKey.from_file("keys/writer.key")),
        anchor=SQLiteAnchor("anchor/heads.db"),
    )
    return builder.compile(SealedSaver(ledger, app="invoices@1"))


def run(order: str) -> RunnableConfig:
    return {"configurable": {"thread_id": order}}


for order in ("order-7", "order-8"):
    draft: Invoice = {"payee": "alice", "amount": 42}
    asked = opened().invoke(draft, run(order))
    print(asked["__interrupt__"][0].value)
    #> {'pay': 42, 'to': 'alice'}
    #> {'pay': 42, 'to': 'alice'}

print(opened().invoke(Command(resume=True), run("order-7"))["paid"])
#> 42 to alice

# Somebody who can write the database has another payee in mind.
with closing(sqlite3.connect("state/checkpoints.db")) as rows, rows:
    guard = "name = 'checkpoints_update'"
    find = f"SELECT sql FROM sqlite_master WHERE {guard}"
    (trigger,) = rows.execute(find).fetchone()
    rows.execute("DROP TRIGGER checkpoints_update")
    rows.execute(
        "UPDATE checkpoints SET record = CAST(replace(CAST(record AS"
        " TEXT), 'alice', 'mally') AS BLOB) WHERE thread = 'order-8'"
    )
    rows.execute(trigger)

try:
    opened().invoke(Command(resume=True), run("order-8"))
except CheckpointError as refusal:
    print(type(refusal).__name__)
    #> SealBroken
