"""A workflow of Agent Framework that pays what a person signed, once.

Run it in an empty folder: it plays the worker and the approver. In
production each of them has a machine, and a secret, of their own.
"""

# --8<-- [start:all]
import asyncio

import agent_framework as af

from safepoint import (
    Approver,
    Approvers,
    Gate,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
    SQLiteJournal,
)
from safepoint.agent_framework import SealedCheckpointStorage
from safepoint.core.errors import ApprovalRefused
from safepoint.resume.approval import Question


def key_of(file):  # create=True by hand, once
    return SigningKey.from_file(file, create=True)


writer_key = key_of("worker/ledger.key")
dana_key = key_of("dana/own.key")
log_keys = Keyring(key_of("worker/log.key"))
SQLiteAnchor("anchor/heads.db", create=True)
SQLiteJournal("journal/journal.db", keys=log_keys, create=True)
Out = af.WorkflowContext[None, str]


class Payment(af.Executor):
    def __init__(self, storage):
        super().__init__("payment")
        self.storage = storage

    @af.handler
    async def draft(self, order: dict[str, object], ctx: Out) -> None:
        await self.storage.ask(self, ctx, "pay", order)

    @af.response_handler
    async def pay(
        self, question: Question, answer: object, ctx: Out
    ) -> None:
        yes = await self.storage.answered(self, question, answer)
        order = yes.arguments  # signed, not the state
        # Your bank goes here. It drops a yes.key that it has seen.
        await ctx.yield_output(f"{order['amount']} to {order['payee']}")


def payments():
    """Build all of it, as each process does."""
    ledger = Ledger(
        SQLiteCheckpointStorage("state/ledger.db"),
        store="invoices",
        keys=Keyring(writer_key),
        anchor=SQLiteAnchor("anchor/heads.db"),
        journal=SQLiteJournal("journal/journal.db", keys=log_keys),
    )
    gate = Gate(approvers=Approvers({"dana": dana_key.public}))
    storage = SealedCheckpointStorage(ledger, gate=gate)
    storage = storage.scope("payments")  # the workflow's name
    built = af.WorkflowBuilder(
        name="payments",
        start_executor=Payment(storage),
        checkpoint_storage=storage,
    )
    return built.build(), storage


async def go_on(paused, answer):
    workflow, _ = payments()  # another process, another day
    at, asked = paused.checkpoint_id, paused.pending_request_info_events
    answers = dict.fromkeys(asked, answer)
    return await workflow.run(checkpoint_id=at, responses=answers)
    # --8<-- [end:all]


async def main():
    workflow, storage = payments()
    await workflow.run({"payee": "alice", "amount": 42})
    paused = await storage.get_latest(workflow_name="payments")
    (asked,) = paused.pending_request_info_events.values()
    print(asked.data.arguments)  # she reads all of data.described
    #> {'amount': 42, 'payee': 'alice'}
    signed = Approver("dana", dana_key).approve(asked.data)
    for answer in (True, signed, signed):
        try:
            (said,) = (await go_on(paused, answer)).get_outputs()
        except ApprovalRefused as refused:
            said = type(refused).__name__
        print(said)
        #> ApprovalRefused
        #> 42 to alice
        #> ApprovalRefused


asyncio.run(main())
