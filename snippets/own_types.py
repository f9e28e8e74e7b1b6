"""State with types of your own: register them, once, by name."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from safepoint import (
    Codec,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
)


@dataclass
class Invoice:
    number: int
    total: Decimal
    due: date


typed = Ledger(
    InMemoryCheckpointStorage(),
    store="invoices",
    keys=Keyring(SigningKey.generate()),
    codec=Codec([Invoice]),
)
typed.save("order-7", Invoice(7, Decimal("42.00"), date(2026, 12, 1)))
print(typed.latest("order-7").state.total)
#> 42.00
