"""`python -m safepoint.postgres`: make the schema and its roles, or print the SQL."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from safepoint._command import Parser, print_lines
from safepoint.errors import CheckpointError
from safepoint.postgres.schema import PARTS, migrate, statements


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the schema, or print it; exit 1 if the server refuses."""
    parser = Parser(prog="python -m safepoint.postgres", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    making = commands.add_parser("migrate", help="make the schema and the roles in a database")
    making.add_argument("dsn", help="a login that may create roles, as psql takes it")
    printing = commands.add_parser("sql", help="print what migrate would run")
    for command in (making, printing):
        command.add_argument(
            "--part",
            action="append",
            choices=PARTS,
            help="only this part; give it again for another (default: all)",
        )
        command.add_argument(
            "--prefix", default="safepoint", help="how the names of the roles begin"
        )
    options = parser.parse_args(arguments)
    parts = tuple(options.part or PARTS)
    try:
        if options.command == "sql":
            print_lines([statements(parts=parts, prefix=options.prefix)])
            return 0
        made = migrate(options.dsn, parts=parts, prefix=options.prefix)
    except CheckpointError as refusal:
        print(refusal, file=sys.stderr)
        return 1
    print_lines([f"Made: {', '.join(made)}." if made else "All of it is there already."])
    return 0


if __name__ == "__main__":
    sys.exit(main())
