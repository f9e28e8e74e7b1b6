"""`python -m safepoint.attacks.sql`: attack a PostgreSQL with a worker's login."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from safepoint._command import Parser, print_lines
from safepoint.attacks.rows_postgres import Trial
from safepoint.attacks.sql.catalogue import SQL_ATTACKS, SQL_VICTIMS, outcome_of
from safepoint.attacks.sql.kit import SqlOutcome
from safepoint.attacks.sql.victims import LeastPrivilege
from safepoint.errors import CheckpointError


def main() -> int:
    """Print a table of attacks and outcomes; exit 1 if one gets through that should not."""
    parser = Parser(
        prog="python -m safepoint.attacks.sql",
        description="Attack a PostgreSQL, which is started for it, with a worker's SQL login.",
        epilog="exit status: 0 each is refused, detected, or known to be possible; 1 one is not;"
        " 2 it cannot be run",
    )
    parser.add_argument(
        "attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(SQL_ATTACKS)} (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="say what the attacks are, run none")
    options = parser.parse_args()
    for name in options.attacks:
        if name not in SQL_ATTACKS:
            parser.error(f"there is no attack {name!r}. Choose from {', '.join(SQL_ATTACKS)}")
    chosen = options.attacks or list(SQL_ATTACKS)
    if options.list:
        attacks = [SQL_ATTACKS[name] for name in chosen]
        print_lines(f"{each.id} ({each.rule}): {each.story}" for each in attacks)
        return 0
    try:
        return _show(chosen)
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 2


def _show(attacks: list[str]) -> int:
    width = max(18, *(len(name) + 2 for name in attacks))
    through = False
    with Trial() as trial:
        print_lines([_row("attack", SQL_VICTIMS, width)])
        for name in attacks:
            outcomes = {victim: outcome_of(name, victim, trial) for victim in SQL_VICTIMS}
            print_lines([_row(name, outcomes.values(), width)])
            ours = outcomes[LeastPrivilege.name]
            bad = ours in (SqlOutcome.ACCEPTED, SqlOutcome.CRASHED)
            through = through or (bad and not SQL_ATTACKS[name].residue)
    return int(through)


def _row(first: str, cells: Iterable[str], width: int) -> str:
    return f"{first:<{width}}{''.join(f'{cell:<12}' for cell in cells)}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
