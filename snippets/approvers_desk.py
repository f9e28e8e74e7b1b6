"""An approver's desk: verify, show all of it, sign what was shown.

Run it in an empty folder. In production the two halves run on two
machines: the worker has no key of a person, and the desk no key of
the worker.
"""

# --8<-- [start:all]

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
from safepoint.core.errors import ResumeRefused
from safepoint.resume.answers import Answers
from safepoint.shared.desk import Desk


def make_key(path):
    return SigningKey.from_file(path, create=True)


# Each makes their key where they work, and hands out its public half.
writer = make_key("worker/writer.key")
dana, erin = make_key("dana/own.key"), make_key("erin/own.key")
writer.public.to_file("dana/writer.pub")

# Once, when you set it up: a lost anchor must not begin anew.
for name in ("anchor", "answers-anchor"):
    SQLiteAnchor(f"{name}/heads.db", create=True)

answers = Answers(
    FileCheckpointStorage("answers"),
    SQLiteAnchor("answers-anchor/heads.db"),
)
gate = Gate(
    approvers=Approvers({"dana": dana.public, "erin": erin.public}),
    answers=answers,
)


# --8<-- [start:worker]
def ask(state):
    return Ask("pay", state["request"])


def pay(state, call):
    return {"paid": call.approved.arguments["amount"]}


ledger = Ledger(
    FileCheckpointStorage("state"),
    store="invoices",
    keys=Keyring(writer),
    anchor=SQLiteAnchor("anchor/heads.db"),
    journal=SQLiteJournal(
        "journal/journal.db",
        keys=Keyring(make_key("worker/journal.key")),
        create=True,
    ),
)
payment = Workflow("payment", [ask, pay], gate=gate)
# --8<-- [end:worker]


# --8<-- [start:desk]
def open_desk():
    """Verify with the public key, and with the live anchor."""
    known = VerifyingKey.from_file("dana/writer.pub")
    ledger = Ledger(
        FileCheckpointStorage("state"),
        store="invoices",
        keys=Keyring(verify=known),
        anchor=SQLiteAnchor("anchor/heads.db"),
    )
    return Desk(ledger, answers, gate)


def decide(thread, person, read):
    """Let a person read all that a run asks; sign that, or nothing.

    `read` is your screen. It gets every line that will be signed, and
    returns "approve", "deny", or "" for neither. However long that
    takes: `answer` verifies the run and the anchor once more, and
    refuses if the run asks something else by then.
    """
    desk = open_desk()
    for wait in desk.waits(thread):
        verb = read(wait.question.described)
        if verb:
            desk.answer(wait.question, verb, person)
    # --8<-- [end:desk]
    # --8<-- [end:all]


def screen(lines):
    """Here it is a file, and she approves. Never leave a line out."""
    Path("screen.txt").write_text("\n".join(lines))
    return "approve"


# Dana reads it and approves. A worker finds her answer by itself.
payment.start(ledger, thread="order-7", request={"amount": 42})
decide("order-7", Approver("dana", dana), screen)
print(payment.resume(ledger, "order-7").state["paid"])
#> 42


def too_long(lines):
    """While erin reads, dana approves and the run continues."""
    decide("order-8", Approver("dana", dana), screen)
    payment.resume(ledger, "order-8")
    return "approve"


payment.start(ledger, thread="order-8", request={"amount": 42})
try:
    decide("order-8", Approver("erin", erin), too_long)
except ResumeRefused as refusal:
    print(refusal.what)
    #> order-8 waits for nobody.
