"""Agent Framework with its checkpoints in a ledger.

A workflow asks a person, the process ends, and another one goes on.
Run it in an empty folder. In earnest, open_ledger("invoices") keeps
store, key and anchor in better places.
"""

import asyncio
from dataclasses import dataclass

from agent_framework import (
    Executor,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)

from safepoint import (
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
)
from safepoint.agent_framework import (
    NotCheckpointed,
    SealedCheckpointStorage,
)

SigningKey.from_file("keys/ledger.key", create=True)  # by hand, once
SQLiteAnchor(
    "anchor/heads.db", create=True
)  # then a lost one is refused


@dataclass
class Invoice:
    payee: str
    amount: int


@dataclass
class Order:  # is not in types=[...] below
    number: int


class Payment(Executor):
    @handler
    async def ask(self, bill: Invoice, ctx: WorkflowContext) -> None:
        await ctx.request_info(bill, bool, request_id="pay")

    @handler
    async def order(self, order: Order, ctx: WorkflowContext) -> None:
        print("this must not run before it is saved")

    @response_handler
    async def pay(
        self, bill: Invoice, yes: bool, ctx: WorkflowContext[None, str]
    ) -> None:
        if yes:  # your bank goes here
            paid = f"paid {bill.amount} to {bill.payee}"
            await ctx.yield_output(paid)


def payments():
    """Build all of it, as each process does."""
    ledger = Ledger(
        SQLiteCheckpointStorage("state/ledger.db"),
        store="invoices",
        keys=Keyring(SigningKey.from_file("keys/ledger.key")),
        anchor=SQLiteAnchor("anchor/heads.db"),
    )
    storage = SealedCheckpointStorage(ledger, types=[Invoice])
    workflow = WorkflowBuilder(
        name="payments",
        start_executor=Payment("payment"),
        checkpoint_storage=storage,
    ).build()
    return workflow, storage


async def main():
    workflow, _ = payments()
    await workflow.run(Invoice("alice", 42))

    workflow, storage = payments()  # another process, another day
    paused = await storage.get_latest(workflow_name="payments")
    for request in paused.pending_request_info_events.values():
        print("a person says yes to", request.data)
        #> a person says yes to Invoice(payee='alice', amount=42)
    run = await workflow.run(
        checkpoint_id=paused.checkpoint_id, responses={"pay": True}
    )
    print(*run.get_outputs())
    #> paid 42 to alice

    workflow, _ = payments()
    try:
        await workflow.run(Order(7))
    except NotCheckpointed as stopped:  # it is no Exception
        print(str(stopped).split(". ")[-1])  # the line to write
        #> Register it: types=[Order].


asyncio.run(main())
