"""`safepoint attack`: run the attacks on what is built in, and print the outcomes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

from safepoint.attacks.catalogue import ATTACKS, RESIDUE
from safepoint.attacks.ladder import isolated_outcome_of
from safepoint.attacks.medium import Disk, Memory
from safepoint.attacks.outcome import Outcome
from safepoint.attacks.rungs import TARGETS, TOP

_EVERY = ATTACKS | RESIDUE


class _Kit(NamedTuple):
    """Some attacks, what they are run on, and which outcomes are a failure of ours."""

    columns: Sequence[str]
    strike: Callable[[str, str], str]
    passed: Callable[[str, Mapping[str, Any]], bool]


def commands(sub: Any) -> None:
    """Add `safepoint attack`."""
    parser = sub.add_parser(
        "attack",
        help="run the attacks and print the outcomes",
        description="Run the attacks on the built-in targets and print the outcomes.",
        epilog="exit status: 0 none gets through that should not, 1 one does, 2 it cannot be run",
    )
    parser.set_defaults(run=_attack)
    parser.add_argument(
        "attacks", nargs="*", metavar="ATTACK", help="its name, as --list has it (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="say what the attacks are, run none")
    on = parser.add_mutually_exclusive_group()
    on.add_argument("--ladder", action="store_true", help="show every rung, not only two")
    on.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        choices=list(TARGETS),
        help=f"show this rung, one of {', '.join(TARGETS)}; may be repeated",
    )
    on.add_argument(
        "--storage",
        choices=("sqlite", "postgres"),
        help="attack the top rung on a database; postgres starts a server for it",
    )
    on.add_argument("--models", action="store_true", help="attack those who load models")
    on.add_argument(
        "--sql", action="store_true", help="attack a PostgreSQL with a worker's login to it"
    )
    on.add_argument(
        "--network", action="store_true", help="pretend to be the server, see who believes it"
    )
    parser.add_argument("--in-memory", action="store_true", help="keep the records in memory")
    parser.add_argument(
        "--residue", action="store_true", help="run what nothing in a store can detect"
    )


def _attack(options: argparse.Namespace) -> int:
    elsewhere = options.models or options.sql or options.network
    if options.in_memory and (options.storage or elsewhere):
        options.refuse("--in-memory goes with none of --storage, --models, --sql and --network")
    every, usual = _attacks(options)
    for name in options.attacks:
        if name not in every:
            options.refuse(f"there is no attack {name!r}. Choose from {', '.join(every)}")
    chosen = options.attacks or usual
    if options.list:
        for name in chosen:
            print(f"{name} ({every[name].rule}): {every[name].story}")
        return 0
    with ExitStack() as stack:
        return _show(chosen, _kit(options, chosen, stack))


def _attacks(options: argparse.Namespace) -> tuple[Mapping[str, Any], list[str]]:
    """Return all that can be named, and those that run if none is."""
    if options.models:
        from safepoint.attacks.models import MODEL_ATTACKS

        return MODEL_ATTACKS, list(MODEL_ATTACKS)
    if options.sql:
        from safepoint.attacks.sql import SQL_ATTACKS

        return SQL_ATTACKS, list(SQL_ATTACKS)
    if options.network:
        from safepoint.attacks.network import NETWORK_ATTACKS

        return NETWORK_ATTACKS, list(NETWORK_ATTACKS)
    medium = None if options.storage else Memory if options.in_memory else Disk
    which = RESIDUE if options.residue else ATTACKS
    return _EVERY, [name for name in which if which[name].needs in (None, medium)]


def _kit(options: argparse.Namespace, chosen: Sequence[str], stack: ExitStack) -> _Kit:
    if options.models:
        return _models()
    if options.sql:
        return _sql(stack)
    if options.network:
        from safepoint.attacks.network import NETWORK_ATTACKS, SSL_MODES

        return _Kit(
            SSL_MODES,
            lambda attack, mode: NETWORK_ATTACKS[attack].run(mode),
            lambda _, outcomes: outcomes[SSL_MODES[-1]] == "accepted",
        )
    if options.storage:
        return _database(options.storage, stack)
    strike = partial(isolated_outcome_of, in_memory=options.in_memory)
    # What to leave, and what to come to for these attacks.
    compared = {"naive"} | {_EVERY[attack].stopped_by for attack in chosen}
    few = [rung for rung in TARGETS if rung in compared]
    columns = list(TARGETS) if options.ladder else options.target or few
    return _Kit(columns, strike, partial(_passed, top=TOP))


def _models() -> _Kit:
    from safepoint.attacks.models import MODEL_TARGETS, CarefulModels, outcome_of

    with suppress(ImportError):
        import torch  # noqa: F401  once, here, and not in each process
    ours = CarefulModels.name
    return _Kit(list(MODEL_TARGETS), outcome_of, lambda _, outcomes: outcomes[ours].succeeded)


def _sql(stack: ExitStack) -> _Kit:
    from safepoint.attacks.rows_postgres import Trial
    from safepoint.attacks.sql import (
        SQL_ATTACKS,
        SQL_VICTIMS,
        LeastPrivilege,
        SqlOutcome,
        outcome_of,
    )

    trial = stack.enter_context(Trial())

    def passed(attack: str, outcomes: Mapping[str, SqlOutcome]) -> bool:
        bad = outcomes[LeastPrivilege.name] in (SqlOutcome.ACCEPTED, SqlOutcome.CRASHED)
        return bad and not SQL_ATTACKS[attack].residue

    return _Kit(list(SQL_VICTIMS), lambda attack, on: outcome_of(attack, on, trial), passed)


def _database(storage: str, stack: ExitStack) -> _Kit:
    """Compare the naive rung with the top on a database."""
    from safepoint.attacks.rungs.databases import on_database

    on = stack.enter_context(on_database(storage))

    def either(attack: str, target: str) -> Outcome:
        return on(attack) if target == storage else isolated_outcome_of(attack, target)

    return _Kit(["naive", storage], either, partial(_passed, top=storage))


def _passed(attack: str, outcomes: Mapping[str, Outcome], top: str) -> bool:
    should_stop = outcomes.keys() & {_EVERY[attack].stopped_by, top}
    return attack in ATTACKS and any(outcomes[rung].succeeded for rung in should_stop)


def _show(attacks: Sequence[str], kit: _Kit) -> int:
    widths = [max(19, *(len(name) + 2 for name in attacks))]
    widths += [max(10, len(name) + 2) for name in kit.columns]
    through = False
    _row(["attack", *kit.columns], widths)
    for attack in attacks:
        outcomes = {target: kit.strike(attack, target) for target in kit.columns}
        cells = ["-" if each == Outcome.NOT_APPLICABLE else each for each in outcomes.values()]
        _row([attack, *cells], widths)
        through = kit.passed(attack, outcomes) or through
    return int(through)


def _row(cells: Iterable[str], widths: Iterable[int]) -> None:
    row = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    print("".join(row).rstrip())
