"""Pretend to be the server, and see who believes it."""

from __future__ import annotations

import socket
import tempfile
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from safepoint.core.errors import Unavailable
from safepoint.stores.postgres import PostgresCheckpointStorage
from safepoint.testing.tls import TLSFront

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


@dataclass(frozen=True)
class NetworkAttack:
    """One thing that somebody between a worker and its server can do.

    Attributes:
        id: a stable name.
        rule: the rule that it shows the reason for.
        story: what happens, in one line.
    """

    id: str
    rule: str
    story: str

    def run(self, sslmode: str) -> Literal["accepted", "refused"]:
        """Let a worker connect, and tell whether it gave its password away.

        Args:
            sslmode: how the worker's connection string asks for TLS.

        Raises:
            MissingPackage: psycopg is not installed.
        """
        with tempfile.TemporaryDirectory() as folder:
            real = Path(folder, "real")
            real.mkdir()
            with (
                closing(TLSFront(1, [HOST], real)) as honest,
                closing(FalseServer(Path(folder))) as false,
            ):
                trusted = f"sslrootcert={honest.ca}" if sslmode.startswith("verify") else ""
                with suppress(Unavailable):
                    PostgresCheckpointStorage(
                        false.dsn(f"sslmode={sslmode}", trusted), wait_seconds=5
                    )
                return "accepted" if _PASSWORD in false.heard else "refused"


NETWORK_ATTACKS: Final = {
    each.id: each
    for each in (
        NetworkAttack(
            "false-server",
            "SP06",
            "Somebody pretends to be the database, with a certificate of their own, and asks for"
            " the worker's password.",
        ),
    )
}
"""Every attack by its id."""
SSL_MODES: Final = ("prefer", "require", "verify-ca", "verify-full")
