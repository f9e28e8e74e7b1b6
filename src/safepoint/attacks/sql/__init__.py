"""The adversary who has a worker's SQL login, and nothing else: no key, and no other login.

`safepoint attack --sql` starts a PostgreSQL of its own, runs each attack on two victims,
and prints what came of it.
"""

from __future__ import annotations

from safepoint.attacks.sql.catalogue import SQL_ATTACKS, SQL_VICTIMS, outcome_of
from safepoint.attacks.sql.kit import SqlAttack, SqlOutcome
from safepoint.attacks.sql.victim import SqlVictim
from safepoint.attacks.sql.victims import LeastPrivilege, OneRole

__all__ = [
    "SQL_ATTACKS",
    "SQL_VICTIMS",
    "LeastPrivilege",
    "OneRole",
    "SqlAttack",
    "SqlOutcome",
    "SqlVictim",
    "outcome_of",
]
