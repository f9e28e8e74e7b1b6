"""The linter for a terminal and for CI: `python -m safepoint.lint PATH`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from safepoint._command import Parser, print_lines
from safepoint.lint.ids import IDS
from safepoint.lint.report import Report, as_github, as_json, as_text, check_paths

FORMATS: Final[dict[str, Callable[[Report], Iterator[str]]]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for each finding, and how many files were looked at.

    Returns:
        0 if all is clean, 1 if there are findings, 2 if something could not be looked at.
    """
    parser = Parser(
        prog="python -m safepoint.lint",
        description="Find loads that can run what a file says. Nothing is imported or run.",
        epilog="exit status: 0 clean, 1 findings, 2 something could not be looked at."
        " Allow one on its line: # safepoint: allow SL02 REASON",
    )
    parser.add_argument("paths", metavar="PATH", nargs="*", help="a file, or a folder of code")
    parser.add_argument("--format", choices=[*FORMATS], default="text", help="text, unless given")
    parser.add_argument(
        "--list", action="store_true", help="say what is looked for, and do no more"
    )
    options = parser.parse_args(arguments)
    if options.list:
        print_lines(f"{name} ({each.rule}) {each.title}" for name, each in IDS.items())
        return 0
    if not options.paths:
        parser.error("name a file or a folder")
    report = check_paths(options.paths)
    # A name in the code may have letters that the terminal has not.
    lines = FORMATS[options.format](report)
    print_lines(line.encode("ascii", "backslashreplace").decode() for line in lines)
    for failure in report.failures:
        print(*failure, file=sys.stderr)
    return report.exit_code
