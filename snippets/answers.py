"""Answers and holds that nobody on the way can drop.

Run it in an empty folder. In production the storage and the anchor of
the answers have logins of their own, and each person a machine.
"""

# --8<-- [start:all]

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
from safepoint.core.errors import NotOwner
from safepoint.resume.answers import Answers
from safepoint.resume.gate import May


def make_key(path):
    return SigningKey.from_file(path, create=True)


# Each makes their key where they work, and keeps it there.
dana, erin = make_key("dana/own.key"), make_key("erin/own.key")
omar = make_key("omar/own.key")  # an operator: he holds, and releases

# Once, when you set it up: a lost anchor must not begin anew.
SQLiteAnchor("answers-anchor/heads.db", create=True)

# --8<-- [start:gate]
answers = Answers(
    FileCheckpointStorage("answers"),
    SQLiteAnchor("answers-anchor/heads.db"),
)
gate = Gate(
    Policy(
        may={
            "pay": [
                May(up_to=1_000),
                May(up_to=50_000, people=2),
            ]
        }
    ),
    Approvers({"dana": dana.public, "erin": erin.public}),
    answers=answers,
    operators=Approvers({"omar": omar.public}),
)
# --8<-- [end:gate]


def ask(state):
    return Ask("pay", {"amount": state["amount"]})


def pay(state, call):
    return {"paid": call.approved.arguments["amount"]}


journal = SQLiteJournal(
    "journal/journal.db",
    keys=Keyring(make_key("worker/journal.key")),
    create=True,
)
ledger = Ledger(
    FileCheckpointStorage("state"),
    store="invoices",
    keys=Keyring(make_key("worker/writer.key")),
    anchor=SQLiteAnchor("anchor/heads.db", create=True),
    journal=journal,
)
payment = Workflow("payment", [ask, pay], gate=gate)


# --8<-- [start:people]
def say(approver, question, word):
    """On the approver's machine: sign, and put it there."""
    sign = approver.approve if word == "yes" else approver.deny
    answers.put(approver, sign(question))


def hold(thread, why):
    """On the operator's machine. Keep what it returns."""
    return answers.hold(
        Approver("omar", omar), "invoices", thread, why=why
    )


def release(thread, order):
    answers.release(
        Approver("omar", omar), "invoices", thread, order.hold
    )
    # --8<-- [end:people]
    # --8<-- [end:all]


# Both answer, and a worker looks by itself: a no comes first.
run = payment.start(ledger, thread="order-7", amount=42)
say(Approver("dana", dana), run.question, "yes")
say(Approver("erin", erin), run.question, "no")
run = payment.resume(ledger, "order-7")
print("denied:", run.denied)
#> denied: True

# 5,000 takes two.
run = payment.start(ledger, thread="order-8", amount=5_000)
say(Approver("dana", dana), run.question, "yes")
say(Approver("erin", erin), run.question, "yes")
order = hold("order-8", "is the payee right?")
try:
    payment.resume(ledger, "order-8")
except NotOwner as held:
    print(held.what.partition(" since ")[0])
    #> omar has held order-8
release("order-8", order)
print(payment.resume(ledger, "order-8").state["paid"])
#> 5000
