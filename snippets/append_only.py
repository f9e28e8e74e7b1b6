"""Build on what you read, or not at all; and keep what you need."""

from safepoint import (
    Conflict,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
)


def spend(ledger, thread, amount):
    """Take `amount` off a balance that others change as well."""
    for _ in range(10):
        before = ledger.latest(thread)
        state = {"balance": before.state["balance"] - amount}
        try:
            return ledger.save(thread, state, after=before.sequence)
        except Conflict:
            continue  # somebody was first: look again, decide again
    raise TimeoutError(f"{thread} is busy; try again later")


ledger = Ledger(
    InMemoryCheckpointStorage(),
    store="accounts",
    keys=Keyring(SigningKey.generate()),
)
ledger.save("account-7", {"balance": 100}, after=0)
for amount in (30, 20, 10, 5):
    spend(ledger, "account-7", amount)

# Every version is there, until you say how many to keep.
print([c.state["balance"] for c in ledger.history("account-7")])
#> [100, 70, 50, 40, 35]
print("removed", ledger.prune("account-7", keep=2))
#> removed 3
print("verified", ledger.verify("account-7"))
#> verified 2
