"""TLS in front of a server whose programs were built without it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import socket
import ssl
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_HOST: Final = "127.0.0.1"
_SSL_REQUEST: Final = 80877103
_GSS_REQUEST: Final = 80877104
_HANDSHAKE: Final = b"\x16"
_LARGEST: Final = 10_000
_PIECE: Final = 65_536
_SECONDS: Final = 10.0


class TLSFront:
    """A port that speaks TLS 1.2 or newer, and nothing else, in front of one that speaks none.

    A client without TLS gets the refusal of a server whose `pg_hba.conf` has `hostssl` alone.

    Attributes:
        port: where it listens, on 127.0.0.1.
        names: the host names that its certificate is for.
        ca: the file with the certificate of its authority, which is what clients trust.
    """

    def __init__(self, port: int, names: Sequence[str], folder: Path) -> None:
        """Listen.

        Args:
            port: the port on 127.0.0.1 of the server behind it.
            names: host names and addresses for its certificate.
            folder: where its files are written.
        """
        self.names = tuple(names)
        self.ca = folder / "ca.pem"
        self._behind = port
        self._context = _context(self.names, folder, self.ca)
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((_HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and end every connection."""
        for each in (self._listener, *list(self._open)):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # which its thread sees, and closes it

    def _accept(self) -> None:
        with self._listener, contextlib.suppress(OSError):  # until it is closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        try:
            with client, contextlib.suppress(OSError, EOFError):
                client.settimeout(_SECONDS)
                if not _wants_tls(client):
                    return
                with self._context.wrap_socket(client, server_side=True) as safe:
                    safe.settimeout(None)
                    self._open.add(safe)
                    with socket.create_connection((_HOST, self._behind)) as server:
                        self._open.add(server)
                        _pass_on(safe, server)
                        self._open.discard(server)
                    self._open.discard(safe)
        finally:
            self._open.discard(client)


def _wants_tls(client: socket.socket) -> bool:
    """Answer a client until it begins with TLS. Say False to one that goes on without it."""
    while client.recv(1, socket.MSG_PEEK) != _HANDSHAKE:
        length = int.from_bytes(_exactly(client, 4))
        if not 8 <= length <= _LARGEST:
            return False
        message = _exactly(client, length - 4)
        code = int.from_bytes(message[:4])
        if code == _SSL_REQUEST:
            client.sendall(b"S")
            # Nothing of the client's is in a buffer here: what it sent too early, TLS refuses.
            return True
        if code != _GSS_REQUEST:
            client.sendall(_refusal(client, message[4:]))
            return False
        client.sendall(b"N")
    return True


def _refusal(client: socket.socket, words: bytes) -> bytes:
    pieces = words.decode("utf-8", "replace").split("\0")
    said = dict(zip(pieces[::2], pieces[1::2], strict=False))
    user = said.get("user", "")
    message = (
        f'no pg_hba.conf entry for host "{client.getpeername()[0]}", user "{user}",'
        f' database "{said.get("database", user)}", no encryption'
    )
    fields = {"S": "FATAL", "V": "FATAL", "C": "28000", "M": message}
    body = b"".join(f"{name}{value}\0".encode() for name, value in fields.items()) + b"\0"
    return b"E" + (len(body) + 4).to_bytes(4) + body


def _pass_on(safe: ssl.SSLSocket, server: socket.socket) -> None:
    while True:
        # What TLS has decrypted already is not seen by select.
        ready = [safe] if safe.pending() else select.select([safe, server], [], [])[0]
        for source in ready:
            data = source.recv(_PIECE)
            if not data:
                return
            (server if source is safe else safe).sendall(data)


def _exactly(client: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = client.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _context(names: Sequence[str], folder: Path, ca: Path) -> ssl.SSLContext:
    authority = issue("an authority for a trial")
    server = issue(names[0], names, authority)
    ca.write_text(authority.pem, "ascii")
    key, chain = folder / "server.key", folder / "server.pem"
    write_secret(key, server.key_pem)
    chain.write_text(server.pem, "ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["postgresql"])  # which a client that begins with TLS insists on
    context.load_cert_chain(chain, key)
    return context


def write_secret(path: Path, text: str) -> None:
    """Write a new file that is for its owner alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


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
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
    )
    signer = by.key if by else key
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=by is None, path_length=None), True),
        (_usage(authority=by is None), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        # By this a client tells an authority from another one of the same name.
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
    ]
    if by is not None:
        extensions += [
            (x509.SubjectAlternativeName([_general(host) for host in hosts]), False),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        ]
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return Issued(builder.sign(signer, hashes.SHA256()), key)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
