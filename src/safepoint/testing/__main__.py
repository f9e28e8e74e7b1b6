"""`python -m safepoint.testing MODULE:FUNCTION`: try each claim of the suite on a storage."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from safepoint._command import Parser, print_lines
from safepoint.errors import CheckpointError, ConfigurationError, quoted
from safepoint.testing.storages import StorageSuite, check_storage


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of the claims.

    Returns:
        0 if each claim that the storage offers holds, 1 if one fails, 2 if it cannot be tried.
    """
    parser = Parser(
        prog="python -m safepoint.testing",
        description="Try what every storage must do on your own. Its module is imported, and runs.",
        epilog="exit status: 0 no claim failed, 1 one did, 2 it could not be tried.",
    )
    parser.add_argument(
        "storage",
        metavar="MODULE:NAME",
        help="a function that takes a folder and returns a storage, or a StorageSuite",
    )
    parser.add_argument(
        "--one-process", action="store_true", help="another opening does not see the same records"
    )
    parser.add_argument(
        "--one-thread", action="store_true", help="an opening belongs to the thread that made it"
    )
    parser.add_argument(
        "--unguarded", action="store_true", help="names and sequences are left to the ledger"
    )
    options = parser.parse_args(arguments)
    try:
        found = _found(options.storage)
        if isinstance(found, type) and issubclass(found, StorageSuite):
            report = found.check()
        else:
            report = check_storage(
                found,
                shared=not options.one_process,
                threadsafe=not options.one_thread,
                guarded=not options.unguarded,
            )
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 2
    print_lines(str(report).splitlines())
    return report.exit_code


def _found(named: str) -> Any:
    module, colon, name = named.partition(":")
    if not (module and colon and name):
        raise ConfigurationError(
            f"{quoted(named)} does not name a storage.", "Write app.storage:open_storage"
        )
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigurationError(
            f"{quoted(named)} cannot be imported: it raised {type(error).__name__}.",
            "Name a function that python -c 'import MODULE' finds.",
        ) from error
    return found


if __name__ == "__main__":
    sys.exit(main())
