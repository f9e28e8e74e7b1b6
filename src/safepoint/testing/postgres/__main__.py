"""`python -m safepoint.testing.postgres FOLDER`: run a PostgreSQL to try things on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from safepoint._command import Parser, print_lines
from safepoint.errors import CheckpointError, shell
from safepoint.testing.postgres import Server
from safepoint.testing.postgres._access import SUPERUSER
from safepoint.testing.postgres._passfile import conninfo


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a server until it is interrupted, and return the exit status."""
    parser = Parser(
        prog="python -m safepoint.testing.postgres",
        description="Run a PostgreSQL on 127.0.0.1 to try things on. It is kept for the next time.",
        epilog="exit status: 0 stopped by Ctrl-C, 2 it cannot be done",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a new folder, or one of an earlier run")
    parser.add_argument("--port", type=int, help="where it listens; a free port without it")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Server(options.folder, port=options.port) as server:
            dsn = conninfo(
                host=server.host,
                port=str(server.port),
                dbname="postgres",
                user=SUPERUSER,
                passfile=str(server.passfile),
            )
            print_lines(
                [
                    f"DSN   {dsn}",
                    f"psql  {shell(str(server.bin / 'psql'))} {shell(dsn)}",
                    "Ctrl-C stops it. The same command goes on with it.",
                ]
            )
            signal.pause()
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
