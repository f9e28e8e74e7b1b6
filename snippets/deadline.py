"""A run that waits for people, and not for ever.

Run it in an empty folder.
"""

from datetime import UTC, datetime, timedelta

from safepoint import (
    Approver,
    Approvers,
    Ask,
    FileCheckpointStorage,
    Gate,
    Keyring,
    Ledger,
    Policy,
    SigningKey,
    SQLiteAnchor,
    SQLiteJournal,
    Workflow,
)
from safepoint.core.errors import ResumeRefused


# --8<-- [start:steps]
def ask(state):
    return Ask(
        "pay",
        {"payee": state["payee"], "amount": state["amount"]},
        within=timedelta(hours=24),  # then it counts as denied
    )


def pay(state, call):
    return {"paid": call.approved.arguments["amount"]}
    # --8<-- [end:steps]


# Dana makes her key where she works, and keeps it there.
dana = SigningKey.from_file("dana/own.key", create=True)
writer = SigningKey.from_file("worker/writer.key", create=True)
journal_key = SigningKey.from_file("worker/journal.key", create=True)
ledger = Ledger(
    FileCheckpointStorage("state"),
    store="invoices",
    keys=Keyring(writer),
    anchor=SQLiteAnchor("anchor/heads.db", create=True),
    journal=SQLiteJournal(
        "journal/journal.db", keys=Keyring(journal_key), create=True
    ),
)
gate = Gate(
    Policy(lifetime=timedelta(days=30)),  # a yes may last that long
    Approvers({"dana": dana.public}),
)
payment = Workflow("payment", [ask, pay], gate=gate)


# --8<-- [start:round]
def look_round(now=None):
    """Call it from cron, or a timer: nothing here keeps a clock."""
    for question in payment.waiting(ledger):
        if question.is_over(now):
            run = payment.resume(ledger, question.thread, now=now)
            print(question.thread, "denied:", run.denied)
        # --8<-- [end:round]


payment.start(ledger, thread="order-7", payee="alice", amount=42)
question = next(payment.waiting(ledger))
kept = Approver("dana", dana).approve(
    question, lifetime=timedelta(days=20)
)

now = datetime.now(UTC)
look_round(now)  # there is time
look_round(now + timedelta(hours=23))
look_round(now + timedelta(hours=25))
#> order-7 denied: True

try:
    payment.resume(ledger, "order-7", approvals=[kept])
except ResumeRefused as refusal:
    print(type(refusal).__name__)
    #> ResumeRefused
