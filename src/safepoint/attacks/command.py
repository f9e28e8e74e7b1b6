"""`safepoint attack`: run the attacks on what is built in or on yours, and print the outcomes."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from safepoint.attacks import own
from safepoint.attacks.ladder import ATTACKS, RESIDUE, isolated_outcome_of
from safepoint.attacks.outcome import Outcome
from safepoint.attacks.rungs import TARGETS, TOP
from safepoint.core.errors import ConfigurationError
from safepoint.shared.terminal import add, flag, imported

_EVERY = ATTACKS | RESIDUE
_FALLS = [outcome for outcome in Outcome if outcome.succeeded]


class _Kit(NamedTuple):
    """Some attacks, those that run if none is named, what they are run on, and how.

    `guards` names the columns in which an attack should end without success.
    """

    attacks: Mapping[str, Any]
    usual: Iterable[str]
    columns: Sequence[str]
    strike: Callable[[str, str], str]
    guards: Callable[[str], Iterable[str]]


def commands(sub: Any) -> None:
    """Add `safepoint attack`."""
    parser = add(
        sub,
        "attack",
        "run the attacks and print the outcomes",
        _attack,
        description="Run the attacks on the built-in targets, or on a store of yours, and print the"
        " outcomes.",
        epilog="exit status: 0 none gets through that should not, 1 one does, 2 it cannot be run",
    )
    parser.add_argument(
        "attacks", nargs="*", metavar="ATTACK", help="its name, as --list has it (default: all)"
    )
    flag(parser, "--list", "say what the attacks are, run none")
    on = parser.add_mutually_exclusive_group()
    flag(on, "--ladder", "show every rung, not only two")
    on.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="MODULE:FACTORY, which opens a store of yours in a folder and is imported; or a rung,"
        f" one of {', '.join(TARGETS)}, which may be repeated",
    )
    flag(on, "--models", "attack those who load models")
    flag(on, "--network", "pretend to be the server, see who believes it")
    flag(parser, "--residue", "run what nothing in a store can detect")


def _attack(options: argparse.Namespace) -> int:
    if any(":" in name for name in options.target or ()):
        return _on_yours(options)
    kit = (_models if options.models else _network if options.network else _stores)(options)
    for name in options.attacks:
        if name not in kit.attacks:
            options.refuse(f"there is no attack {name!r}. Choose from {', '.join(kit.attacks)}")
    chosen = options.attacks or list(kit.usual)
    if options.list:
        for name in chosen:
            print(f"{name} ({kit.attacks[name].rule}): {kit.attacks[name].story}")
        return 0
    widths = [_first(chosen)]
    widths += [max(10, len(name) + 2) for name in kit.columns]
    through = False
    _row(["attack", *kit.columns], widths)
    for attack in chosen:
        outcomes = {target: kit.strike(attack, target) for target in kit.columns}
        cells = ["-" if each == Outcome.NOT_APPLICABLE else each for each in outcomes.values()]
        _row([attack, *cells], widths)
        through |= any(outcomes.get(each) in _FALLS for each in kit.guards(attack))
    return int(through)


def _on_yours(options: argparse.Namespace) -> int:
    """Attack one store of the user's, and account for what was not run."""
    for name in options.attacks:
        if name not in ATTACKS:
            options.refuse(f"there is no attack {name!r}. Choose from {', '.join(ATTACKS)}")
    if options.list or options.residue or len(options.target) > 1:
        options.refuse("a store of yours goes alone: with names of attacks, and no other option")
    (named,) = options.target
    factory = imported(named, "app.storage:open_store")
    own.check(named, factory)
    chosen = options.attacks or list(ATTACKS)
    # What no store with save and load has is counted, and a row for whoever asks for it by name.
    away = {} if options.attacks else {name: own.out_of_reach(factory, name) for name in chosen}
    shown = [name for name in chosen if not away.get(name)]
    ended: Counter[Outcome] = Counter()
    widths = [_first(shown), 10, 0]
    _row(["attack", named, ""], widths)
    for name in shown:
        outcome, said = own.strike(factory, name)
        ended[outcome] += 1
        if outcome is Outcome.NOT_APPLICABLE:
            _row([name, "-", f"takes {said}"], widths)
        else:
            _row([name, outcome, said], widths)
    ended.pop(Outcome.NOT_APPLICABLE, None)
    counts = ", ".join(f"{ended[each]} {each}" for each in Outcome if ended[each])
    print(f"{ended.total()} of {len(chosen)} attacks were run: {counts or 'none'}")
    for why, count in Counter(filter(None, away.values())).items():
        print(f"{count:>2} not run: it takes {why}")
    if not ended:
        raise ConfigurationError(
            f"No attack could be run on {named}, so nothing is known about it.",
            "Write a Target of safepoint.attacks for it.",
        )
    return int(any(outcome.succeeded for outcome in ended))


def _stores(options: argparse.Namespace) -> _Kit:
    for name in options.target or ():
        if name not in TARGETS:
            options.refuse(f"there is no target {name!r}. Choose from {', '.join(TARGETS)}")
    usual = list(RESIDUE if options.residue else ATTACKS)
    # What to leave, and what to come to for these attacks.
    chosen = [_EVERY[name] for name in options.attacks or usual if name in _EVERY]
    compared = {"naive"} | {attack.stopped_by for attack in chosen}
    few = [rung for rung in TARGETS if rung in compared]
    columns = list(TARGETS) if options.ladder else options.target or few
    guards = {name: (ATTACKS[name].stopped_by, TOP) for name in ATTACKS}
    return _Kit(_EVERY, usual, columns, isolated_outcome_of, lambda attack: guards.get(attack, ()))


def _models(options: argparse.Namespace) -> _Kit:
    from safepoint.attacks.models import MODEL_ATTACKS, MODEL_TARGETS, CarefulModels, outcome_of

    if not options.list:
        with suppress(ImportError):
            import torch  # noqa: F401  once, here, and not in each process
    columns, guards = list(MODEL_TARGETS), (CarefulModels.name,)
    return _Kit(MODEL_ATTACKS, MODEL_ATTACKS, columns, outcome_of, lambda _: guards)


def _network(options: argparse.Namespace) -> _Kit:
    from safepoint.attacks.network import NETWORK_ATTACKS, SSL_MODES

    def strike(attack: str, mode: str) -> str:
        return NETWORK_ATTACKS[attack].run(mode)

    return _Kit(NETWORK_ATTACKS, NETWORK_ATTACKS, SSL_MODES, strike, lambda _: SSL_MODES[-1:])


def _first(names: Iterable[str]) -> int:
    return max(19, *(len(name) + 2 for name in names))


def _row(cells: Iterable[str], widths: Iterable[int]) -> None:
    row = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    print("".join(row).rstrip())
