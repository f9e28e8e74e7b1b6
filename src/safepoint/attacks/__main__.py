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
        command = [sys.executable, "-m", "safepoint.attacks", "--in", folder, attack, target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  our own module
    return Outcome(done.stdout.strip()) if done.returncode == 0 else Outcome.CRASHED


def main() -> int:
    """Print a table of attacks and outcomes; exit 1 if the sealed target lets one through."""
    parser = argparse.ArgumentParser(prog="python -m safepoint.attacks", description=__doc__)
    parser.add_argument("attack", nargs="?", choices=ATTACKS, help="one attack (default: all)")
    parser.add_argument("target", nargs="?", choices=TARGETS, help="one target (default: all)")
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        target = TARGETS[options.target](options.folder)
        sys.stdout.write(f"{ATTACKS[options.attack]().run(target)}\n")
        return 0
    attacks = [options.attack] if options.attack else list(ATTACKS)
    targets = [options.target] if options.target else list(TARGETS)
    sys.stdout.write(_row("attack", targets))
    through = False
    for attack in attacks:
        outcomes = [outcome_of(attack, target) for target in targets]
        sys.stdout.write(_row(attack, outcomes))
        through = through or (
            "sealed" in targets and outcomes[targets.index("sealed")] != Outcome.DETECTED
        )
    return 1 if through else 0


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<19}{''.join(f'{cell:<10}' for cell in cells)}".rstrip() + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
