"""`python -m safepoint.attacks`: run the attacks on the built-in targets and print the outcomes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from safepoint.attacks.catalogue import ATTACKS, RESIDUE
from safepoint.attacks.isolation import isolated_outcome_of
from safepoint.attacks.medium import Disk, Medium, Memory
from safepoint.attacks.outcome import Outcome
from safepoint.attacks.rungs import TARGETS, TOP
from safepoint.errors import CheckpointError

_EVERY = ATTACKS | RESIDUE
_Strike = Callable[[str, str], Outcome]


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
        "--storage",
        choices=("sqlite", "postgres"),
        help="attack the top rung on a database; postgres starts a server for it",
    )
    parser.add_argument(
        "--residue", action="store_true", help="run what nothing in a store can detect"
    )
    parser.add_argument("--list", action="store_true", help="say what the attacks are, run none")
    options = parser.parse_args()
    for name in options.attacks:
        if name not in _EVERY:
            parser.error(f"there is no attack {name!r}. Choose from {', '.join(_EVERY)}")
    if options.storage and (options.ladder or options.target or options.in_memory):
        parser.error("--storage goes with none of --ladder, --target and --in-memory")
    medium = None if options.storage else Memory if options.in_memory else Disk
    chosen = options.attacks or _applicable(medium, residue=options.residue)
    if options.list:
        for name in chosen:
            sys.stdout.write(f"{name} ({_EVERY[name].rule}): {_EVERY[name].story}\n")
        return 0
    if options.storage:
        try:
            return _on_database(chosen, options.storage)
        except CheckpointError as error:
            sys.stderr.write(f"{error}\n")
            return 2
    columns = list(TARGETS) if options.ladder else options.target or _compared(chosen)
    return _show(chosen, columns, partial(isolated_outcome_of, in_memory=options.in_memory))


def _on_database(attacks: Sequence[str], storage: str) -> int:
    """Compare the naive rung with the top on a database."""
    from safepoint.attacks.databases import on_database

    with on_database(storage) as strike:

        def either(attack: str, target: str) -> Outcome:
            return strike(attack) if target == storage else isolated_outcome_of(attack, target)

        return _show(attacks, ["naive", storage], either, top=storage)


def _applicable(medium: type[Medium] | None, *, residue: bool) -> list[str]:
    which = RESIDUE if residue else ATTACKS
    return [name for name, attack in which.items() if attack.needs in (None, medium)]


def _compared(attacks: Sequence[str]) -> list[str]:
    """Return what pages compare: what to leave, and what to come to for these attacks."""
    shown = {"naive"} | {_EVERY[attack].stopped_by for attack in attacks}
    return [rung for rung in TARGETS if rung in shown]


def _show(
    attacks: Sequence[str], columns: Sequence[str], strike: _Strike, *, top: str = TOP
) -> int:
    width = max(19, *(len(name) + 2 for name in attacks))
    widths = [max(10, len(name) + 2) for name in columns]
    through = False
    _write(["attack", *columns], [width, *widths])
    for attack in attacks:
        outcomes = {target: strike(attack, target) for target in columns}
        cells = [_cell(outcomes[target]) for target in columns]
        _write([attack, *cells], [width, *widths])
        should_stop = outcomes.keys() & {_EVERY[attack].stopped_by, top}
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
