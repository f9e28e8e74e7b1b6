"""The command line for pickles: its options, and what they name."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from safepoint._command import Parser
from safepoint.anchor import FileAnchor
from safepoint.codec import Codec
from safepoint.errors import CheckpointError, ConfigurationError, quoted
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.storage import FileCheckpointStorage, InMemoryCheckpointStorage
from safepoint.storage.file import StoredFolder

_STATUS: Final = "exit status: 0 fine, 1 something to look at or refused, 2 it cannot be done"
_FOLDER: Final = (
    "Nothing in the files is run or imported. In a folder that you do not trust, start Python with"
    " -P, so that it takes no module from there."
)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options, or end the process with a line that says what is wrong."""
    parser = Parser(
        prog="python -m safepoint.pickles",
        description="Look at pickles, and move states out of them. " + _FOLDER,
        epilog=_STATUS,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, what in (
        ("inspect", "say what files are, and what the pickles in them would import and call"),
        ("decompile", "print the pickles in files as Python code (needs fickling)"),
        ("trace", "print what each instruction of the pickles would do (needs fickling)"),
        ("check", "print what fickling's checks say (needs fickling)"),
    ):
        command = commands.add_parser(
            name, help=what, description=f"{what[:1].upper()}{what[1:]}. {_FOLDER}", epilog=_STATUS
        )
        command.add_argument("paths", metavar="PATH", nargs="+", help="a file")
    _add_migrate(commands)
    return parser.parse_args(arguments)


def _add_migrate(commands: Any) -> None:
    what = "seal the pickled checkpoints of a folder as new threads"
    migrate = commands.add_parser(
        "migrate",
        help=what,
        description=f"{what[:1].upper()}{what[1:]}. The files stay as they are. Interrupted, run it"
        f" again with the same report. {_FOLDER}",
        epilog=_STATUS,
    )
    migrate.add_argument("folder", metavar="FOLDER", help="the folder of the old files")
    migrate.add_argument("--to", metavar="PATH", required=True, help="the folder of the new store")
    migrate.add_argument("--store", metavar="NAME", required=True, help="the name of the store")
    migrate.add_argument("--key", metavar="FILE", required=True, help="the key that seals them")
    migrate.add_argument("--anchor", metavar="PATH", help="the folder of the store's anchor")
    migrate.add_argument(
        "--report", metavar="FILE", required=True, help="where to write down what was done"
    )
    migrate.add_argument("--app", metavar="NAME", default="", help="what wrote the old files")
    migrate.add_argument(
        "--type",
        metavar="MODULE:CLASS",
        action="append",
        default=[],
        help="a dataclass, an Enum or a pydantic model of yours that is in the files; its module is"
        " imported, and so runs; again for each",
    )
    migrate.add_argument(
        "--dry-run", action="store_true", help="write nothing, and say what would happen"
    )
    migrate.add_argument(
        "--allow-missing-past",
        action="store_true",
        help="take a checkpoint for the first if the one that it follows is gone",
    )
    migrate.add_argument(
        "--allow-unsigned-migration",
        action="store_true",
        help="that you vouch for these files: nobody signed them, so whoever could write them"
        " decides what they say",
    )


def types_of(named: Sequence[str]) -> list[type]:
    """Import the types that the user names: their own code, and nothing of a file's.

    Raises:
        ConfigurationError: one is not written as MODULE:CLASS, or cannot be imported.
    """
    types = []
    for each in named:
        module, colon, name = each.partition(":")
        if not (colon and module and name):
            raise ConfigurationError(
                f"{quoted(each)} does not name a type.", "Write --type app.models:Invoice"
            )
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except Exception as error:  # noqa: BLE001  the module is the user's, and may raise anything
            problem = ConfigurationError(
                f"{quoted(each)} cannot be imported: it raised {type(error).__name__}.",
                "Name a class that python -c 'import MODULE' finds.",
            )
        else:
            if not isinstance(found, type):
                problem = ConfigurationError(
                    f"{quoted(each)} is no class.", "Write --type app.models:Invoice"
                )
            else:
                types.append(found)
                continue
        raise problem
    return types


def ledger_of(options: argparse.Namespace, types: list[type]) -> Ledger:
    """Open the ledger that the states go to. For a dry run, one that cannot be written.

    Raises:
        CheckpointError: the key, the store or the anchor is refused.
    """
    anchor = None if options.anchor is None else FileAnchor(options.anchor)
    storage: Any
    if not options.dry_run:
        storage = FileCheckpointStorage(options.to)
    elif os.path.lexists(options.to):
        storage = StoredFolder(options.to)
    else:
        storage = InMemoryCheckpointStorage()  # where nothing is yet
    return Ledger(
        storage,
        store=options.store,
        keys=Keyring(SigningKey.from_file(options.key)),
        codec=Codec(types),
        anchor=anchor,
    )


def complain(error: CheckpointError | str) -> None:
    """Print a problem, on one line, where problems go."""
    print(error, file=sys.stderr)
