"""`python -m safepoint.attacks`: run the attacks on the built-in targets and print the outcomes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from safepoint.attacks.catalogue import ATTACKS, RESIDUE
from safepoint.attacks.isolation import isolated_outcome_of
from safepoint.attacks.medium import Disk, Memory
from safepoint.attacks.outcome import Outcome
from safepoint.attacks.rungs import TARGETS, TOP

_EVERY = ATTACKS | RESIDUE


def main() -> int:
    """Print a table of attacks and outcomes; exit 1 if one passes the rung that should stop it."""
    parser = argparse.ArgumentParser(prog="python -m safepoint.attacks", description=__doc__)
    parser.add_argument(
        "attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(_EVERY)} (default: all)"
    )
    parser.add_argument("--ladder", action="store_true", help="show every rung, not only two")
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        choices=list(TARGETS),
        help=f"show this rung, one of {', '.join(TARGETS)}; may be repeated",
    )
    parser.add_argument("--in-memory", action="store_true", help="keep the records in memory")
    parser.add_argument(
        "--residue", action="store_true", help="run what nothing in a store can detect"
    )
    parser.add_argument("--list", action="store_true", help="say what the attacks are, run none")
    options = parser.parse_args()
    for name in options.attacks:
        if name not in _EVERY:
            parser.error(f"there is no attack {name!r}. Choose from {', '.join(_EVERY)}")
    chosen = options.attacks or _applicable(options.in_memory, options.residue)
    if options.list:
        for name in chosen:
            sys.stdout.write(f"{name} ({_EVERY[name].rule}): {_EVERY[name].story}\n")
        return 0
    columns = list(TARGETS) if options.ladder else options.target or _compared(chosen)
    return _show(chosen, columns, in_memory=options.in_memory)


def _applicable(in_memory: bool, residue: bool) -> list[str]:
    medium = Memory if in_memory else Disk
    which = RESIDUE if residue else ATTACKS
    return [name for name, attack in which.items() if attack.needs in (None, medium)]


def _compared(attacks: Sequence[str]) -> list[str]:
    """Return what pages compare: what to leave, and what to come to for these attacks."""
    shown = {"naive"} | {_EVERY[attack].stopped_by for attack in attacks}
    return [rung for rung in TARGETS if rung in shown]


def _show(attacks: Sequence[str], columns: Sequence[str], *, in_memory: bool) -> int:
    width = max(19, *(len(name) + 2 for name in attacks))
    widths = [max(10, len(name) + 2) for name in columns]
    through = False
    _write(["attack", *columns], [width, *widths])
    for attack in attacks:
        outcomes = {
            target: isolated_outcome_of(attack, target, in_memory=in_memory) for target in columns
        }
        cells = [_cell(outcomes[target]) for target in columns]
        _write([attack, *cells], [width, *widths])
        should_stop = outcomes.keys() & {_EVERY[attack].stopped_by, TOP}
        passed = any(outcomes[rung].succeeded for rung in should_stop)
        through = through or (attack in ATTACKS and passed)
    return 1 if through else 0


def _cell(outcome: Outcome) -> str:
    return "-" if outcome is Outcome.NOT_APPLICABLE else outcome


def _write(cells: Iterable[str], widths: Iterable[int]) -> None:
    row = "".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    sys.stdout.write(row.rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
