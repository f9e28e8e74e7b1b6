"""`safepoint try-postgres`."""

from __future__ import annotations

import argparse
import signal
from argparse import ArgumentTypeError
from collections.abc import Iterator
from typing import Any

from safepoint.errors import quoted, shell


def commands(sub: Any) -> None:
    """Add it."""
    server = sub.add_parser(
        "try-postgres",
        help="run a PostgreSQL to try things on",
        description="Run a PostgreSQL on 127.0.0.1 to try things on. It is kept for the next time.",
        epilog="exit status: 0 stopped by Ctrl-C, 2 it cannot be done",
    )
    server.set_defaults(run=_try_postgres)
    server.add_argument("folder", metavar="FOLDER", help="a new folder, or one of an earlier run")
    server.add_argument("--port", type=_port, help="where it listens; a free port without it")
    server.add_argument(
        "--database", metavar="NAME", help="a database to work in, which is made if it is missing"
    )
    server.add_argument(
        "--tls", metavar="HOST", help="speak TLS alone, with a certificate for this host name"
    )


def _try_postgres(options: argparse.Namespace) -> int:
    from safepoint.testing.postgres import Server

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Server(options.folder, port=options.port) as server:
            for line in _told(server, options.database, options.tls):
                print(line)
            signal.pause()
    except KeyboardInterrupt:
        pass
    return 0


def _told(server: Any, database: str | None, tls: str | None) -> Iterator[str]:
    """Say how to reach the server, as lines for a shell. What is no command is a comment."""
    from safepoint.testing.postgres import SUPERUSER

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
