"""TLS in front of a server whose programs were built without it."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST: Final = "127.0.0.1"
_SSL_REQUEST: Final = (8).to_bytes(4) + (80877103).to_bytes(4)


class TLSFront:
    """A port that speaks TLS 1.2 or newer, and nothing else, in front of one that speaks none.

    It hangs up on a client without TLS.

    Args:
        port: the port on 127.0.0.1 of the server behind it.
        names: host names for its certificate.
        folder: where its files are written.

    Attributes:
        port: where it listens, on 127.0.0.1.
        ca: the file with the certificate of its authority, which is what clients trust.
    """

    def __init__(self, port: int, names: Sequence[str], folder: Path) -> None:
        authority = issue("an authority for a trial")
        server = issue(names[0], names, authority)
        self.ca, chain = folder / "ca.pem", folder / "server.pem"
        self.ca.write_text(authority.pem, "ascii")
        chain.touch(0o600)
        chain.write_text(server.key_pem + server.pem, "ascii")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._context.load_cert_chain(chain)
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


class Issued(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """The certificate, as a file holds it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")

    @property
    def key_pem(self) -> str:
        """The key, as a file holds it."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode("ascii")


def issue(name: str, hosts: Sequence[str] = (), by: Issued | None = None) -> Issued:
    """Make a key and its certificate: an authority's own, or one that it signs for host names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, now = by.key if by else key, datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        # By this a client tells an authority from another one of the same name.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return Issued(builder.sign(signer, hashes.SHA256()), key)
