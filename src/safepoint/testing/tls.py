"""TLS in front of a server whose programs were built without it."""

from __future__ import annotations

import secrets
import select
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HOST: Final = "127.0.0.1"
_SSL_REQUEST: Final = (8).to_bytes(4) + (80877103).to_bytes(4)


class TLSFront:
    """A port that speaks TLS 1.2 or newer and nothing else, in front of one that speaks none.

    It hangs up on a client without TLS.

    Args:
        port: the port on 127.0.0.1 of the server behind it.
        names: host names for its certificate.
        folder: where its files are written.

    Attributes:
        port: where it listens, on 127.0.0.1.
        ca: the file with its certificate, which no authority signed, and which clients trust.
    """

    def __init__(self, port: int, names: Sequence[str], folder: Path) -> None:
        self.ca = issue(names, folder)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._context.load_cert_chain(self.ca, folder / "server.key")
        self._behind = port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Let nobody else in."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which its thread sees, and closes it

    def _accept(self) -> None:
        with self._listener, suppress(OSError):  # until it is closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(10)
            # Read by its length alone: what the client sent too early, TLS refuses.
            if client.recv(len(_SSL_REQUEST), socket.MSG_WAITALL) != _SSL_REQUEST:
                return
            client.sendall(b"S")
            with (
                self._context.wrap_socket(client, server_side=True) as safe,
                socket.create_connection((HOST, self._behind)) as server,
            ):
                safe.settimeout(None)
                _pass_on(safe, server)


def _pass_on(safe: ssl.SSLSocket, server: socket.socket) -> None:
    while True:
        # What TLS has decrypted already is not seen by select.
        ready = [safe] if safe.pending() else select.select([safe, server], [], [])[0]
        for source in ready:
            data = source.recv(65_536)
            if not data:
                return
            (server if source is safe else safe).sendall(data)


def issue(hosts: Sequence[str], folder: Path) -> Path:
    """Make a key and a certificate for host names; write both, and return the latter's file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    # By this a client that trusts two of them tells one from the other.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, secrets.token_hex(16))])
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1))
    builder = builder.not_valid_after(now + timedelta(days=30)).add_extension(names, critical=False)
    certificate, kept = folder / "ca.pem", folder / "server.key"
    certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    kept.touch(0o600)
    kept.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate
