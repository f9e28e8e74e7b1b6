"""A LangGraph node that pays what a ledger says, not its state.

Run it in an empty folder. Whoever can edit graph/ can mislead the run,
and not the payment. Keep keys/ and anchor/ out of their reach.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from safepoint import (
    FileAnchor,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteCheckpointStorage,
)

SigningKey.from_file("keys/ledger.key", create=True)  # by hand, once
FileAnchor("anchor", create=True)  # then a lost one is refused

ledger = Ledger(
    SQLiteCheckpointStorage("state/ledger.db"),
    store="invoices",
    keys=Keyring(SigningKey.from_file("keys/ledger.key")),
    anchor=FileAnchor("anchor"),
)


class Invoice(TypedDict, total=False):
    payee: str  # a draft, to show to a person: pay
    amount: int  # reads neither of them
    note: str


def pay(state, config):
    name = config["configurable"]["thread_id"]  # from the caller
    seen = ledger.latest(name)  # verified, or an error
    order = seen.state
    if order["status"] != "approved":
        raise PermissionError(f"the yes to {name} is spent")
    spent = {**order, "status": "spent"}
    ledger.save(name, spent, after=seen.sequence, anchor="now")
    # Your bank goes here. If it fails, a person looks: never twice.
    return {"note": f"paid {order['amount']} to {order['payee']}"}


builder = StateGraph(Invoice)
builder.add_node("pay", pay)
builder.add_edge(START, "pay")
run: RunnableConfig = {"configurable": {"thread_id": "order-7"}}
strict = JsonPlusSerializer(allowed_msgpack_modules=None)
Path("graph").mkdir(mode=0o700)
file = "graph/checkpoints.sqlite"
with closing(sqlite3.connect(file, check_same_thread=False)) as rows:
    saver = SqliteSaver(rows, serde=strict)
    graph = builder.compile(saver, interrupt_before=["pay"])
    shown = graph.invoke({"payee": "alice", "amount": 42}, run)
    print("a person says yes to", shown)
    #> a person says yes to {'payee': 'alice', 'amount': 42}
    ledger.save("order-7", {**shown, "status": "approved"}, after=0)

    # Somebody edits the checkpoint, and then sends the run back.
    for edit in ({"payee": "mally", "amount": 5_000_000}, {}):
        graph.update_state(run, edit, as_node=START)
        try:
            print(graph.invoke(None, run)["note"])
            #> paid 42 to alice
        except PermissionError as refusal:
            print("refused:", refusal)
            #> refused: the yes to order-7 is spent
