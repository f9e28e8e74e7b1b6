"""The audit of a storage folder, for a terminal: `python -m safepoint.audit PATH`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from safepoint.audit.location import check_location
from safepoint.audit.pickles import check_pickles
from safepoint.audit.records import check_records
from safepoint.errors import CheckpointError, shell
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.storage.file import FileCheckpointStorage


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
        description="Check the folder of a file storage, and what it holds. Nothing is changed.",
        epilog="exit status: 0 nothing to mend, 1 an error or a warning, 2 it cannot be looked at",
    )
    parser.add_argument("path", metavar="PATH", help="the folder: the storage_path of your storage")
    parser.add_argument("--store", metavar="NAME", help="the store's name, to verify its records")
    parser.add_argument("--key", metavar="FILE", help="the key that sealed them")
    options = parser.parse_args(arguments)
    if (options.key is None) != (options.store is None):
        parser.error("--key and --store belong together")
    try:
        findings = check_location(options.path)
        if Path(options.path).is_dir():
            findings += check_pickles(options.path)
        if options.key is not None:
            keys = Keyring(SigningKey.from_file(options.key))
            storage = FileCheckpointStorage(options.path)
            findings += check_records(Ledger(storage, store=options.store, keys=keys))
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 2
    for finding in findings:
        print(finding)
    if not findings:
        rest = "" if options.key else " (records not verified: give --key and --store)"
        print(f"No findings: {shell(options.path)}{rest}")
    return int(any(finding.severity != "note" for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
