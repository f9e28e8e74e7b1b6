"""`safepoint attack`: run the attacks on what is built in or on yours, and print the outcomes."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from safepoint.attacks import own
from safepoint.attacks.kit import Attack
from safepoint.attacks.ladder import ATTACKS, RESIDUE, outcome_of
from safepoint.attacks.outcome import Outcome
from safepoint.attacks.rungs import TARGETS
from safepoint.attacks.target import Victim
from safepoint.core.errors import ConfigurationError
from safepoint.shared.terminal import add, flag, imported


class _Kit(NamedTuple):
    """Some attacks, by the word that stands for several of them, and what they are run on.

    No attack should get through the last of these.
    """

    groups: Mapping[str, Mapping[str, Attack]]
    targets: Mapping[str, Callable[[str], Victim]]

    @property
    def attacks(self) -> dict[str, Attack]:
        """All of them, by name."""
        return {name: attack for group in self.groups.values() for name, attack in group.items()}


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
    what = "a name from --list, or a group: stores (the default), residue, models, network"
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=what)
    flag(parser, "--list", "say what the attacks are, run none")
    what = (
        "MODULE:FACTORY, which opens a store of yours and is imported; ladder; or, again for each:"
    )
    shown = f"{what} {', '.join(TARGETS)}"
    parser.add_argument("--target", action="append", metavar="NAME", help=shown)


def _attack(options: argparse.Namespace) -> int:
    if any(":" in name for name in options.target or ()):
        return _on_yours(options)
    kit, chosen = _kit(options)
    if options.list:
        for name in chosen:
            print(f"{name} ({kit.attacks[name].rule}): {kit.attacks[name].story}")
        return 0
    columns = _columns(options, kit, chosen)
    widths = [_first(chosen), *(max(10, len(name) + 2) for name in columns)]
    through = False
    _row(["attack", *columns], widths)
    for name in chosen:
        attack = kit.attacks[name]
        outcomes = {each: outcome_of(attack, target) for each, target in columns.items()}
        _row([name, *map(_cell, outcomes.values())], widths)
        stop = {attack.stopped_by, [*kit.targets][-1]} if not attack.residue else set()
        through |= any(outcomes[each].succeeded for each in outcomes.keys() & stop)
    return int(through)


def _on_yours(options: argparse.Namespace) -> int:
    """Attack one store of the user's, and count how the attacks ended."""
    names = options.attacks
    if options.list or len(options.target) > 1:
        options.refuse("a store of yours takes names of attacks, but no other option")
    _check(options, ATTACKS)
    (named,) = options.target
    factory = imported(named, "app.storage:open_store")
    own.check(named, factory)
    tried = names or [name for name in ATTACKS if own.reaches(factory, name)]
    ended: Counter[Outcome] = Counter()
    widths = [_first(tried), 10, 0]
    _row(["attack", named, ""], widths)
    for name in tried:
        outcome, said = own.strike(factory, name)
        ended[outcome] += 1
        _row([name, _cell(outcome), said], widths)
    ended.pop(Outcome.NOT_APPLICABLE, None)
    counts = ", ".join(f"{ended[each]} {each}" for each in Outcome if ended[each])
    print(f"{ended.total()} of {len(names or ATTACKS)} attacks were run: {counts or 'none'}")
    if not ended:
        raise ConfigurationError(
            f"No attack could be run on {named}, so nothing is known about it.",
            "Write a Target of safepoint.attacks for it.",
        )
    return int(any(outcome.succeeded for outcome in ended))


def _kit(options: argparse.Namespace) -> tuple[_Kit, list[str]]:
    """Return the kit that has the attacks that were named, and these."""
    named = options.attacks or ["stores"]
    for make in (_stores, _models, _network, _stores):  # and those if it is no attack at all
        kit = make(options)
        if named[0] in kit.groups or named[0] in kit.attacks:
            break
    _check(options, [*kit.groups, *kit.attacks])
    return kit, [each for name in named for each in kit.groups.get(name, [name])]


def _columns(
    options: argparse.Namespace, kit: _Kit, chosen: Iterable[str]
) -> dict[str, Callable[[str], Victim]]:
    """Return the targets that are named; of a ladder what to leave, and what to come to."""
    named = {*(options.target or kit.targets)}
    if options.target is None and kit.targets is TARGETS:
        named = {"naive", *(kit.attacks[name].stopped_by for name in chosen)}
    for name in named - {*kit.targets, "ladder"}:
        options.refuse(f"unknown target {name!r}. Choose from {', '.join(kit.targets)}")
    return {name: each for name, each in kit.targets.items() if {name, "ladder"} & named}


def _stores(_: argparse.Namespace) -> _Kit:
    return _Kit({"stores": ATTACKS, "residue": RESIDUE}, TARGETS)


def _models(options: argparse.Namespace) -> _Kit:
    from safepoint.attacks.models import MODEL_ATTACKS, MODEL_TARGETS

    if not options.list:
        with suppress(ImportError):
            import torch  # noqa: F401  once, here, and not in each process
    return _Kit({"models": MODEL_ATTACKS}, MODEL_TARGETS)


def _network(_: argparse.Namespace) -> _Kit:
    from safepoint.attacks.network import NETWORK_ATTACKS, SSL_MODES

    return _Kit({"network": NETWORK_ATTACKS}, SSL_MODES)


def _check(options: argparse.Namespace, attacks: Iterable[str]) -> None:
    """Refuse the name of an attack that is none of these."""
    for name in options.attacks:
        if name not in attacks:
            options.refuse(f"unknown attack {name!r}. Choose from {', '.join(attacks)}")


def _cell(outcome: Outcome) -> str:
    return "-" if outcome is Outcome.NOT_APPLICABLE else outcome


def _first(names: Iterable[str]) -> int:
    return max(19, *(len(name) + 2 for name in names))


def _row(cells: Iterable[str], widths: Iterable[int]) -> None:
    row = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    print("".join(row).rstrip())
