"""The command `safepoint console`."""

from __future__ import annotations

import argparse
from typing import Any

from safepoint.errors import ConfigurationError


def commands(sub: Any) -> None:
    """Add the command."""
    what = "show what waits on a page of your own, and sign it on this terminal"
    parser = sub.add_parser("console", help=what, description=f"{what[:1].upper()}{what[1:]}.")
    parser.set_defaults(run=_console)


def _console(options: argparse.Namespace) -> int:
    raise ConfigurationError("The console is not there yet.", "Use safepoint waiting.")
