"""An Agent Framework executor that pays what a ledger says.

Run it in an empty folder. Whoever can edit workflow/ can mislead the
run, and not the payment. Keep keys/ and anchor/ out of their reach.
Its files also hold pickles, which may run code: see SP03.
"""

import asyncio
import json
from pathlib import Path

from agent_framework import (
    Executor,
    FileCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)

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


class Payment(Executor):
    """Its id is the name of the order, and comes from the caller."""

    @handler
    async def draft(self, amount: int, ctx: WorkflowContext) -> None:
        ctx.set_state("draft", {"payee": "alice", "amount": amount})
        await ctx.request_info("Pay?", bool, request_id=self.id)

    @response_handler
    async def pay(
        self, question: str, yes: bool, ctx: WorkflowContext[None, str]
    ) -> None:
        seen = ledger.latest(self.id)  # verified, or an error
        order = seen.state  # and not ctx.get_state("draft")
        if order["status"] != "approved":
            raise PermissionError(f"the yes to {self.id} is spent")
        spent = {**order, "status": "spent"}
        ledger.save(self.id, spent, after=seen.sequence, anchor="now")
        # Your bank goes here. If it fails, a person looks.
        note = f"paid {order['amount']} to {order['payee']}"
        await ctx.yield_output(note)


def payment(name, storage):
    return WorkflowBuilder(
        name=name,
        start_executor=Payment(name),
        checkpoint_storage=storage,
    ).build()


async def main(storage):
    await payment("order-7", storage).run(42)
    paused = await storage.get_latest(workflow_name="order-7")
    shown, at = paused.state["draft"], paused.checkpoint_id
    print("a person says yes to", shown)
    #> a person says yes to {'payee': 'alice', 'amount': 42}
    approved = {**shown, "status": "approved", "resume": at}
    ledger.save("order-7", approved, after=0)

    # Somebody edits the checkpoint, and has it resumed twice.
    file = Path(f"workflow/{at}.json")
    edited = json.loads(file.read_text())
    edited["state"]["draft"] = {"payee": "mally", "amount": 5_000_000}
    file.write_text(json.dumps(edited))
    for _ in range(2):
        at = ledger.latest("order-7").state["resume"]  # not "latest"
        run = payment("order-7", storage).run(
            checkpoint_id=at, responses={"order-7": True}
        )
        try:
            print(*(await run).get_outputs())
            #> paid 42 to alice
        except PermissionError as refusal:
            print("refused:", refusal)
            #> refused: the yes to order-7 is spent


Path("workflow").mkdir(mode=0o700)
asyncio.run(main(FileCheckpointStorage("workflow")))
