"""`python -m safepoint.attacks.models`: run the attacks on models, and print the outcomes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress

from safepoint._command import Parser, print_lines
from safepoint.attacks.models.catalogue import MODEL_ATTACKS, MODEL_TARGETS, outcome_of
from safepoint.attacks.models.victims import CarefulModels
from safepoint.attacks.outcome import Outcome


def main() -> int:
    """Print a table of attacks and outcomes; exit 1 if one gets through."""
    parser = Parser(prog="python -m safepoint.attacks.models", description=__doc__)
    parser.add_argument(
        "attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(MODEL_ATTACKS)} (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="say what the attacks are, run none")
    options = parser.parse_args()
    for name in options.attacks:
        if name not in MODEL_ATTACKS:
            parser.error(f"there is no attack {name!r}. Choose from {', '.join(MODEL_ATTACKS)}")
    chosen = options.attacks or list(MODEL_ATTACKS)
    if options.list:
        kinds = [MODEL_ATTACKS[name] for name in chosen]
        print_lines(f"{kind.id} ({kind.rule}): {kind.story}" for kind in kinds)
        return 0
    with suppress(ImportError):
        import torch  # noqa: F401  once, here, and not in each process
    width = max(18, *(len(name) + 2 for name in chosen))
    print_lines([_row("attack", MODEL_TARGETS, width)])
    through = False
    for name in chosen:
        outcomes = {target: outcome_of(name, target) for target in MODEL_TARGETS}
        cells = ("-" if each is Outcome.NOT_APPLICABLE else each for each in outcomes.values())
        print_lines([_row(name, cells, width)])
        through = through or outcomes[CarefulModels.name].succeeded
    return int(through)


def _row(first: str, cells: Iterable[str], width: int) -> str:
    return f"{first:<{width}}{''.join(f'{cell:<10}' for cell in cells)}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
