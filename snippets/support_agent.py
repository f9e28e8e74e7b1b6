"""A support agent for two customers, whose refunds a person signs.

Serve it with `uvicorn support_agent:app --workers 2`. Run as a script
in an empty folder it plays everybody: two clients at a time, an
approver on the terminal, and somebody who can write the database.
"""

import os
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from contextvars import ContextVar
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from safepoint import CheckpointError, settings
from safepoint.core.errors import Conflict, NotOwner, ResumeRefused
from safepoint.langgraph import SealedSaver

tenant: ContextVar[str] = ContextVar("tenant")


class Order(BaseModel):
    number: int
    customer: str
    paid: Decimal


class Ticket(BaseModel):
    text: str = ""
    number: int = 0
    order: Order | None = None
    reply: str = ""


TOKENS = {"token-a": "acme", "token-g": "globex"}  # your login
ORDERS = {
    "acme": Order(number=13, customer="ann", paid=Decimal("39.90")),
    "globex": Order(number=13, customer="gil", paid=Decimal("5.00")),
}


def send(order, key):
    """Your bank's interface. It drops a key that it has seen."""


def refunds(saver):
    async def pay(ticket):
        order = {"order": ticket.number, "to": ticket.order.customer}
        order |= {"amount": ticket.order.paid}
        day = timedelta(hours=24)
        try:
            yes = await saver.aask("refund", order, within=day)
        except ResumeRefused as refusal:
            return {"reply": f"No refund: {refusal.reason}"}
        send(yes.arguments, yes.key)  # what was signed, not the state
        return {"reply": f"{yes.arguments['amount']} is on its way."}

    graph = StateGraph(Ticket).add_node("pay", pay)
    return graph.add_edge(START, "pay").compile()


def support(saver):
    async def read(ticket):  # your model decides here
        order = ORDERS[tenant.get()]
        found = (
            "refund" in ticket.text and order.number == ticket.number
        )
        if not found:
            return Command(update={"reply": "How can I help?"})
        return Command(update={"order": order}, goto="refund")

    graph = StateGraph(Ticket).add_node("refund", refunds(saver))
    graph.add_node("read", read, destinations=("refund",))
    return graph.add_edge(START, "read").compile(saver)


@asynccontextmanager
async def lifespan(app):
    # The store as the command sees it.
    saver = SealedSaver.from_settings(
        "support",
        worker=f"agent-{os.getpid()}",
        types=[Ticket, Order],
        tenant=tenant.get,
    )
    yield {"agent": support(saver), "saver": saver}


async def handle(request):
    name = TOKENS.get(request.headers.get("authorization", ""))
    if name is None:
        return JSONResponse({"error": "Log in."}, 401)
    tenant.set(name)  # who logged in, not what was sent
    thread = request.path_params["thread"]
    run: RunnableConfig = {"configurable": {"thread_id": thread}}
    agent, saver = request.state.agent, request.state.saver
    if request.method == "POST":
        sent = await request.json()
        number = int(sent.get("number", 0))
        ticket = Ticket(text=str(sent.get("text", "")), number=number)
        await agent.ainvoke(ticket, run)
    elif any(there for _, there in await saver.awaiting(thread)):
        await agent.ainvoke(Command(resume=""), run)
    waits = [asked.action for asked, _ in await saver.awaiting(thread)]
    reply = (await agent.aget_state(run)).values.get("reply")
    return JSONResponse({"reply": reply, "waits for": waits})


async def refuse(request, error):
    print("refused:", type(error).__name__)  # log the error
    status = 409 if isinstance(error, Conflict | NotOwner) else 503
    return JSONResponse({"error": "Try again later."}, status)


app = Starlette(
    routes=[
        Route("/tickets/{thread}", handle, methods=["GET", "POST"])
    ],
    exception_handlers={CheckpointError: refuse},
    lifespan=lifespan,
)


def command(*words):
    """What somebody types on a terminal."""
    line = ["safepoint", *words]
    return subprocess.check_output(line, text=True, stderr=-1)


def sign(thread):
    """Dana reads the whole question, and signs it by its digest."""
    digest = command("waiting", "support", thread).split()[-1]
    how = ("--key", "dana/own.key", "--digest", digest)
    print(command("approve", "support", thread, *how).split("\n")[0])


def edit(old, new):
    """Somebody changes the rows, with SQL and without a key."""
    file = str(settings.read().store("support").storage)
    with closing(sqlite3.connect(file)) as rows, rows:
        guard = "name = 'checkpoints_update'"
        find = f"SELECT sql FROM sqlite_master WHERE {guard}"
        (trigger,) = rows.execute(find).fetchone()
        rows.execute("DROP TRIGGER checkpoints_update")
        rows.execute(
            "UPDATE checkpoints SET record = CAST(replace("
            "CAST(record AS TEXT), ?, ?) AS BLOB)",
            (old, new),
        )
        rows.execute(trigger)


if __name__ == "__main__":
    command("init", "support")  # once, with the key of each approver
    Path("dana").mkdir(mode=0o700)
    command("new-key", "dana/own.key")
    command("people", "support", "--add", "dana", "dana/own.key.pub")

    with TestClient(app) as client, ThreadPoolExecutor(2) as two:

        def call(token, ticket):
            ask = client.post if ticket else client.get
            more = {"json": ticket} if ticket else {}
            who = {"authorization": token}
            got = ask("/tickets/t-1", headers=who, **more)
            return got.status_code, got.json()

        def both(ticket=None):
            """Send both at the same time, on a thread of one name."""
            print(*two.map(call, TOKENS, [ticket] * 2), sep="\n")

        both({"text": "I want a refund", "number": 13})
        #> (200, {'reply': '', 'waits for': ['refund']})
        #> (200, {'reply': '', 'waits for': ['refund']})
        sign("@acme/t-1")
        #> dana approved 'refund' in @acme/t-1.
        both()
        #> (200, {'reply': '39.90 is on its way.', 'waits for': []})
        #> (200, {'reply': '', 'waits for': ['refund']})
        sign("@globex/t-1")
        #> dana approved 'refund' in @globex/t-1.
        edit("gil", "mal")
        both()
        #> refused: SealBroken
        #> (200, {'reply': '39.90 is on its way.', 'waits for': []})
        #> (503, {'error': 'Try again later.'})
