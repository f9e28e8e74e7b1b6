"""`make serve` is for this machine, and installs what a reader needs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OF_MAKE = re.compile(r"MAKE|MFLAGS$|(PYTHON|HOST|PORT|ARGS)$")


def make(*arguments: str, **environment: str) -> str:
    """Return what was said."""
    env = {name: value for name, value in os.environ.items() if not OF_MAKE.match(name)}
    return subprocess.check_output(["make", *arguments], cwd=ROOT, env=env | environment, text=True)


def test_serve_is_for_this_machine() -> None:
    """Only a host that is typed as an argument of make opens the site to others."""
    for flags in ([], ["-e"]):
        plan = make("-n", *flags, "serve", HOST="192.0.2.9", PORT="8765")
        assert '"127.0.0.1:8765"' in plan
        assert "192.0.2.9" not in plan
    assert '"192.0.2.1:8765"' in make("-n", "serve", "HOST=192.0.2.1", "PORT=8765")
