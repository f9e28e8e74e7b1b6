"""Pretend to be the server, and see who believes it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from safepoint.attacks.kit import Attack, Look, attacks
from safepoint.attacks.target import Victim
from safepoint.core.errors import Unavailable
from safepoint.stores.postgres import PostgresCheckpointStorage
from safepoint.testing.tls import TLSFront, issue

HOST: Final = "db.internal"
_PASSWORD: Final = "sesame"  # noqa: S105  of nobody
_IN_CLEAR: Final = b"R\0\0\0\x08\0\0\0\x03"  # the request for a password as it is


class FalseServer:
    """A server that is none: it asks for the password in clear, and hangs up.

    Attributes:
        heard: the passwords that it was given.
        front: its port, with a certificate of its own for the name of the real one.
    """

    def __init__(self, folder: Path) -> None:
        self.heard: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._listen, daemon=True).start()
        self.front = TLSFront(self._listener.getsockname()[1], [HOST], folder)

    def close(self) -> None:
        """Stop listening."""
        self.front.close()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def dsn(self, *more: str) -> str:
        """Return what leads here, as a forged answer of a name server would."""
        way = (f"host={HOST}", "hostaddr=127.0.0.1", f"port={self.front.port}", "user=worker_1")
        return " ".join((*way, f"password={_PASSWORD}", *more))

    def _listen(self) -> None:
        with suppress(OSError):  # until it is closed
            while True:
                client, _ = self._listener.accept()
                with client, suppress(OSError):
                    client.recv(10_000)
                    client.sendall(_IN_CLEAR)
                    said = client.recv(10_000)[5:-1]
                    if said:
                        self.heard.append(said.decode("utf-8", "replace"))


class Worker(Victim):
    """A worker, whose connection string asks for TLS in one of the modes of libpq.

    Raises:
        MissingPackage: psycopg is not installed.
    """

    refusals = (Unavailable,)

    def __init__(self, sslmode: str, folder: str | Path) -> None:
        super().__init__(folder)
        self.sslmode = sslmode

    def connect(self, server: FalseServer, authority: Path) -> None:
        """Connect to what pretends to be the server, and believe one authority."""
        trusted = f"sslrootcert={authority}" if self.sslmode.startswith("verify") else ""
        dsn = server.dsn(f"sslmode={self.sslmode}", trusted)
        PostgresCheckpointStorage(dsn, wait_seconds=5)


NETWORK_ATTACKS: Final[dict[str, Attack]] = {}
"""Every attack by its id."""
SSL_MODES: Final = {
    mode: partial(Worker, mode) for mode in ("prefer", "require", "verify-ca", "verify-full")
}
"""A worker for each mode."""

_attack = attacks(
    "The attack between a worker and its database.", NETWORK_ATTACKS, control=lambda _: True
)


@_attack("false-server", "SP06")
def false_server(worker: Worker) -> Iterator[Look]:
    """Somebody pretends to be the database and asks for the worker's password."""

    def gives_it_away() -> bool:
        try:
            worker.connect(false, trusted)
        except Unavailable:
            if _PASSWORD not in false.heard:
                raise
        return True

    real = worker.folder / "real"
    real.mkdir()
    trusted = issue([HOST], real)
    with closing(FalseServer(worker.folder)) as false:
        yield gives_it_away
