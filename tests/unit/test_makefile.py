"""`make serve` is for this machine, and installs what a reader needs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OF_MAKE = re.compile(r"MAKE|MFLAGS$|(PYTHON|HOST|PORT|ARGS)$")


def make(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Return the exit status, and what was said and complained."""
    inherited = {name: value for name, value in os.environ.items() if not OF_MAKE.match(name)}
    command, env = ["make", *arguments], inherited | environment
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    # The last line of a failure is make's own, and cannot be turned off.
    complained = re.sub(r"^make.*: .*\n", "", done.stderr, flags=re.MULTILINE)
    return done.returncode, done.stdout, complained


def test_serve_is_for_this_machine() -> None:
    """Only a host that is typed as an argument of make opens the site to others."""
    for flags in ([], ["-e"]):
        plan = make("-n", *flags, "serve", HOST="192.0.2.9", PORT="8765")[1]
        assert '"127.0.0.1:8765"' in plan
        assert "192.0.2.9" not in plan
    assert '"192.0.2.1:8765"' in make("-n", "serve", "HOST=192.0.2.1", "PORT=8765")[1]
