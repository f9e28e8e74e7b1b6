"""The linter for a terminal and for CI: `python -m safepoint.lint PATH`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from safepoint.lint.ids import IDS
from safepoint.lint.report import Report, as_github, as_json, as_text, check_paths

FORMATS: Final[dict[str, Callable[[Report], Iterator[str]]]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
}


def commands(sub: Any) -> None:
    """Add `safepoint lint`."""
    parser = sub.add_parser(
        "lint",
        help="find loads in code that can run what a file says",
        description="Find loads that can run what a file says. Nothing is imported or run.",
        epilog="exit status: 0 clean, 1 findings, 2 something could not be looked at."
        " Allow one on its line: # safepoint: allow SL02 REASON",
    )
    parser.set_defaults(run=_lint, refuse=parser.error)
    parser.add_argument("paths", metavar="PATH", nargs="*", help="a file, or a folder of code")
    parser.add_argument("--format", choices=[*FORMATS], default="text", help="text, unless given")
    parser.add_argument(
        "--list", action="store_true", help="say what is looked for, and do no more"
    )


def _lint(options: argparse.Namespace) -> int:
    if options.list:
        for name, each in IDS.items():
            print(f"{name} ({each.rule}) {each.title}")
        return 0
    if not options.paths:
        options.refuse("name a file or a folder")
    report = check_paths(options.paths)
    for line in FORMATS[options.format](report):
        print(line)
    for failure in report.failures:
        print(*failure, file=sys.stderr)
    return report.exit_code
