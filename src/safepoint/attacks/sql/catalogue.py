"""Every attack with a leaked login, every built-in victim, and how one ends on the other."""

from __future__ import annotations

from safepoint.attacks.rows_postgres import Trial
from safepoint.attacks.sql.kit import SqlAttack, SqlOutcome
from safepoint.attacks.sql.reading import attacks
from safepoint.attacks.sql.victim import SqlVictim
from safepoint.attacks.sql.victims import LeastPrivilege, OneRole

SQL_ATTACKS: dict[str, SqlAttack] = {each.id: each for each in attacks()}
"""Every attack by its id."""

SQL_VICTIMS: dict[str, type[SqlVictim]] = {each.name: each for each in (OneRole, LeastPrivilege)}
"""The built-in victims by name."""


def outcome_of(attack: str, victim: str, trial: Trial) -> SqlOutcome:
    """Run one attack on a built-in victim, in a database of its own."""
    with SQL_VICTIMS[victim](trial) as attacked:
        return SQL_ATTACKS[attack].run(attacked)
