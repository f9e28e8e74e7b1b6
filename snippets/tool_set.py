"""A run that wakes up with the tools it had, or asks two people."""

from safepoint import (
    ApprovalNeeded,
    Approver,
    Approvers,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    Ledger,
    Policy,
    SigningKey,
    Tool,
    Workflow,
)
from safepoint.resume.approval import Reason

MAIL = {
    "name": "mail",
    "version": "2.1",
    "permissions": ["read"],
    "schema": {"folder": "text"},
}
BANK = {"name": "bank", "version": "1", "permissions": ["transfer"]}
TOOLBOX = {"mail": lambda: "3 letters", "bank": lambda: "transferred"}


def agent(settings, approvers):
    """What is not described is not there: steps see `tools` alone."""
    described = [Tool(**each) for each in settings]
    tools = {tool.name: TOOLBOX[tool.name] for tool in described}

    def read(state):
        return {"mail": tools["mail"]()}

    def act(state):
        return {"used": sorted(tools)}

    policy = Policy(
        {Reason.TOOLS_ADDED: 2, Reason.PERMISSIONS_WIDENED: 2}
    )
    gate = Gate(policy, approvers)
    return Workflow("agent", [read, act], tools=described, gate=gate)


# In production, files and people as in approvals.py.
keys = {n: SigningKey.generate() for n in ("dana", "erin")}
people = Approvers({name: key.public for name, key in keys.items()})
ledger = Ledger(
    InMemoryCheckpointStorage(),
    store="agents",
    keys=Keyring(SigningKey.generate()),
    anchor=InMemoryAnchor(),
    journal=InMemoryJournal(),
)

monday = agent([MAIL], people)
monday.begin(ledger, thread="run-1").step()

tuesday = agent([MAIL, BANK], people)  # somebody deployed a new tool
try:
    tuesday.resume(ledger, thread="run-1")
except ApprovalNeeded as refusal:
    question = refusal.question
    for line in question.details:
        print(line)
        #> The tool bank is new.
        #> The tool bank comes with the permission transfer.

yes = [Approver(name, keys[name]).approve(question) for name in keys]
run = tuesday.resume(ledger, thread="run-1", approvals=yes)
print(run.state["used"])
#> ['bank', 'mail']
