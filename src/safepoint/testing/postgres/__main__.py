"""`python -m safepoint.testing.postgres FOLDER`: run a PostgreSQL to try things on."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence

from safepoint._command import Parser, print_lines
from safepoint.errors import CheckpointError, quoted, shell
from safepoint.testing.postgres import Server
from safepoint.testing.postgres._access import SUPERUSER


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a server until it is interrupted, and return the exit status."""
    parser = Parser(
        prog="python -m safepoint.testing.postgres",
        description="Run a PostgreSQL on 127.0.0.1 to try things on. It is kept for the next time.",
        epilog="exit status: 0 stopped by Ctrl-C, 2 it cannot be done",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a new folder, or one of an earlier run")
    parser.add_argument("--port", type=_port, help="where it listens; a free port without it")
    parser.add_argument(
        "--database", metavar="NAME", help="a database to work in, which is made if it is missing"
    )
    parser.add_argument(
        "--tls", metavar="HOST", help="speak TLS alone, with a certificate for this host name"
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Server(options.folder, port=options.port) as server:
            print_lines(_told(server, options.database, options.tls))
            signal.pause()
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


def _told(server: Server, database: str | None, tls: str | None) -> Iterator[str]:
    """Say how to reach the server, as lines for a shell. What is no command is a comment."""
    if database is not None and not server.has(database):
        server.database(database)
    environ = server.environ(database or SUPERUSER)
    yield "# Paste these into another terminal:"
    if tls is not None:
        front = server.tls(tls)
        environ |= {"PGHOST": tls, "PGHOSTADDR": server.host, "PGPORT": str(front.port)}
        environ["PGSSLROOTCERT"] = str(front.ca)
    for name, value in environ.items():
        yield f"export {name}={shell(value)}"
    yield f'export PATH={shell(str(server.bin))}:"$PATH"'
    yield f"# Then: psql -U {SUPERUSER}"
    if tls is not None:
        yield f"# psql of this server has no TLS: psql -h {server.host} -p {server.port}"
    yield f"# To log in as another one: echo '*:*:*:NAME:PASSWORD' >> {shell(str(server.passfile))}"
    yield "# Ctrl-C stops it. The same command goes on with it, on the same port."


def _port(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if not 1 <= number <= 65535:
        raise ArgumentTypeError(f"{quoted(text)} is not a port, which is a number from 1 to 65535")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
