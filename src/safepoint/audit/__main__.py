"""The audit of a storage folder, for a terminal: `python -m safepoint.audit PATH`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from safepoint.audit.location import check_location
from safepoint.errors import CheckpointError, shell


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        line = ascii(message)[1:-1]
        self.exit(2, f"{self.prog}: {line}. Try: {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per finding.

    Returns:
        0 if there is nothing to mend, 1 if there is an error or a warning, 2 if the path cannot
        be looked at.
    """
    parser = _Parser(
        prog="python -m safepoint.audit",
        description="Check the folder of a file storage. Nothing is changed.",
        epilog="exit status: 0 nothing to mend, 1 an error or a warning, 2 no such folder",
    )
    parser.add_argument("path", metavar="PATH", help="the folder: the storage_path of your storage")
    path: str = parser.parse_args(arguments).path
    try:
        findings = check_location(path)
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 2
    for finding in findings:
        print(finding)
    if not findings:
        print(f"No findings: {shell(path)}")
    return int(any(finding.severity != "note" for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
