"""`python -m safepoint.attacks`: run the attacks on the built-in targets and print the outcomes."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from safepoint.attacks import ATTACKS, TARGETS, Outcome


def outcome_of(attack: str, target: str) -> Outcome:
    """Run one attack in a process and a temporary folder of its own."""
    with tempfile.TemporaryDirectory(prefix="safepoint-attack-") as folder:
        command = [sys.executable, "-m", "safepoint.attacks", attack, "--in", folder, target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  our own module
    return Outcome(done.stdout.strip()) if done.returncode == 0 else Outcome.CRASHED


def main() -> int:
    """Print a table of attacks and outcomes; exit 1 if the sealed target lets one through."""
    parser = argparse.ArgumentParser(prog="python -m safepoint.attacks", description=__doc__)
    parser.add_argument(
        "attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)} (default: all)"
    )
    parser.add_argument("--in", dest="inside", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in options.attacks:
        if name not in ATTACKS:
            parser.error(f"there is no attack {name!r}. Choose from {', '.join(ATTACKS)}")
    if options.inside is not None:
        folder, target = options.inside
        outcome = ATTACKS[options.attacks[0]]().run(TARGETS[target](Path(folder)))
        sys.stdout.write(f"{outcome}\n")
        return 0
    through = False
    sys.stdout.write(_row("attack", list(TARGETS)))
    for attack in options.attacks or ATTACKS:
        outcomes = {target: outcome_of(attack, target) for target in TARGETS}
        sys.stdout.write(_row(attack, list(outcomes.values())))
        through = through or outcomes["sealed"] != Outcome.DETECTED
    return 1 if through else 0


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<19}{''.join(f'{cell:<10}' for cell in cells)}".rstrip() + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
