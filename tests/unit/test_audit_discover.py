"""A path is found out by its content; what was not seen is never green; settings say the rest."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey, SQLiteCheckpointStorage
from safepoint.audit.looking import CHECKS, look
from tests.unit.commands import said
from tests.zoo.build import PLAIN, Deployed, zipped
from tests.zoo.others import agent

KEY = SigningKey.generate()
LOAD = "import torch\ntorch.load(path, weights_only=False)\n"
RUNS = b"cos\nsystem\n(S'id'\ntR."


@pytest.fixture(autouse=True)
def _no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safepoint.audit.folder.temp_folders", list)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir(mode=0o700)
    return folder


def store(folder: Path, tenant: str = "") -> Path:
    folder.parent.mkdir(exist_ok=True)
    ledger = Ledger(FileCheckpointStorage(folder), store="invoices", keys=Keyring(KEY))
    (ledger.tenant(tenant) if tenant else ledger).save("order-7", {"amount": 42})
    return folder


def ids(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines() if line.startswith("SP")]


def database(file: Path) -> Path:
    with SQLiteCheckpointStorage(file) as storage:
        Ledger(storage, store="invoices", keys=Keyring(KEY)).save("order-7", {"amount": 42})
    return file


def renumbered(root: Path) -> None:
    with closing(sqlite3.connect(database(root / "state/x.db"))) as connection:
        connection.execute("pragma application_id = 7")


def at_work(root: Path) -> None:
    agent(root / "any name%20#?.db")
    (root / "any name%20#?.db-wal").write_text("7\x7f\6 newer")


def cut_off(root: Path) -> None:
    agent(root / "x.db")
    os.truncate(root / "x.db", 5000)


def left_out(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git/x").write_bytes(RUNS)
    (root / "ok.py").touch()


def torch_file(root: Path) -> None:
    (root / "net.pt").write_bytes(zipped({"net/data.pkl": PLAIN, "net/version": b"3"}))
    (root / "scaler.pkl").write_bytes(PLAIN)


CASES: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "a database of others, at work": (at_work, 1, "SP04.mode SP02.unseen SP12.unsealed-state"),
    "a database of others, cut off": (cut_off, 1, "SP02.unseen"),
    "ours, by another number": (renumbered, 2, "SP02.no-key"),
    "a pickle that is called code": (
        lambda r: (r / "x.py").write_bytes(RUNS),
        1,
        "SP24.runs-code SP26.sl90",
    ),
    "a script without an ending": (
        lambda r: (r / "load").write_text(f"#!/usr/bin/env -S uv run --script\n{LOAD}"),
        1,
        "SP24.sl02 SP27.no-test",
    ),
    "code that begins as a compressed file does": (
        lambda r: (r / "x.py").write_text(f"LZIP = 1\n{LOAD}"),
        1,
        "SP25.unknown SP24.sl02 SP27.no-test SP24.unsealed",
    ),
    "any bytes": (
        lambda r: Path(os.fsdecode(os.fsencode(r) + b"/\xff\n")).write_bytes(RUNS),
        1,
        "SP24.runs-code",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_path_is_found_out_by_what_is_there(root: Path, name: str) -> None:
    plant, status, expected = CASES[name]
    before = os.umask(0o022)
    plant(root)
    os.umask(before)
    report = look([str(root)])
    found = list(dict.fromkeys(each.id for each in report.findings))
    assert found == list(dict.fromkeys(expected.split()))
    assert [each for each in (*report.looked, *map(str, report.findings)) if "\n" in each] == []
    assert report.status() == status
    told = said("audit", root)
    assert (told[0], told[2]) == (status, "")


@pytest.mark.parametrize("plant", [torch_file, left_out])
def test_where_there_are_files_of_pytorch_the_installed_one_is_looked_at(
    root: Path, plant: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    plant(root)
    assert "SP23.unsafe" not in {each.id for each in look([str(root)]).findings}
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    found = {each.id for each in look([str(root)]).findings}
    assert ("SP23.unsafe" in found) == (plant is torch_file)


def test_the_environment_that_runs_it_is_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "env").mkdir()
    (root / "env/pyvenv.cfg").touch()
    (root / "ok.py").touch()
    (root / "safepoint.toml").touch()
    assert look([str(root)]).status() == 2
    monkeypatch.setattr("sys.prefix", str(root / "env"))
    report = look([str(root)])
    (skipped,) = report.findings
    assert (skipped.id, report.status()) == ("SP25.skipped", 0)
    assert "safepoint.toml" not in skipped.what


def test_a_file_alone_is_the_same(root: Path) -> None:
    database(root / "db")
    (root / "x.pt").write_bytes(RUNS)
    (root / "x.py").touch()
    for name, expected in (("db", "SP02.no-key"), ("x.pt", "SP24.runs-code"), ("x.py", "")):
        found = look([str(root / name)]).findings
        assert [each.id for each in found] == expected.split()
    store(root / "state", "acme")
    (root / "link").symlink_to("state")
    found = look([str(root / "link")]).findings
    assert [each.id for each in found if each.rule == "SP04"][:1] == ["SP04.link"]


def test_a_pipe_or_a_device_is_not_even_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open one may do something: rewind a tape, or begin to watch over the machine."""
    os.mkfifo(root / "fifo")
    monkeypatch.setattr("safepoint.audit.discover.inspect", None)
    found = look([str(root)]).findings[0]
    assert "a pipe, a socket or a device" in found.what


# --- what goes wrong on the way


@pytest.mark.parametrize(
    ("part", "at", "which"), [("anchor", "none", "SP15"), ("approvers", "keys", "SP19")]
)
def test_a_part_that_is_refused_hides_nothing_else(
    root: Path, part: str, at: str, which: str
) -> None:
    deployed = Deployed(root)
    deployed.record(2).chmod(0o644)
    (root / "keys/dana.pub").write_text("no key")
    code, out, err = said("audit", *deployed.arguments(**{part: root / at}))
    assert (code, err) == (1, "")
    assert {which, "SP04"} <= {each[:4] for each in ids(out)}


def test_a_refused_key_does_not_hide_an_approvers_secret_key(root: Path) -> None:
    deployed = Deployed(root)
    (root / "keys/key").chmod(0o644)
    dana = SigningKey.from_file(root / "people/dana.key", create=True)
    dana.public.to_file(root / "people/dana.pub")
    code, out, _ = said("audit", *deployed.arguments(approvers=root / "people"))
    assert code == 1
    assert {"SP22.key-mode", "SP19.secret-here"} <= set(ids(out))


@pytest.mark.parametrize("name", ["places", "contents", "records"])
def test_a_check_that_fails_is_said_and_the_others_are_made(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whoever writes a record that one of them stumbles upon must not silence them all."""

    def fails(_: object) -> None:
        raise OverflowError

    deployed = Deployed(root)
    (deployed.storage / "deep.json").write_bytes(b"[" * 500)
    monkeypatch.setitem(CHECKS, name, fails)
    code, out, err = said("audit", *deployed.arguments())
    failed = f"was not checked ({name}): It failed with OverflowError. Report it."
    assert (code, err) == (2, "")
    assert f"audit.failed error: {deployed.storage} {failed}" in out.splitlines()
    lost = {"contents": "SP10", "records": "SP15"}.get(name)
    assert {"SP15", "SP10"} - {lost} <= {each[:4] for each in ids(out)}


# --- settings


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings, which are named, and some code."""
    monkeypatch.setenv("SAFEPOINT_CONFIG", str(tmp_path / "safepoint.toml"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("import pickle\n\npickle.load(f)\n")
    (tmp_path / "safepoint.toml").write_text('[audit]\npaths = ["src"]\n')
    return tmp_path


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[audit]\npath = []", "says 'path' of the audit. It may say: paths, fail-on, accept."),
        ('[audit]\nfail-on = "all"', "has 'all' as fail-on. It may say: error, warning, note."),
    ],
)
def test_settings_that_say_nothing_are_one_line(told: Path, text: str, why: str) -> None:
    (told / "safepoint.toml").write_text(text)
    code, out, err = said("audit", folder=told)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert why in err


def test_the_settings_say_what_to_look_at_and_how_bad_is_bad(told: Path) -> None:
    code, out, err = said("audit", folder=told)
    assert (code, ids(out), err) == (1, ["SP03.sl08"], "")
    file = told / "safepoint.toml"
    file.write_text(file.read_text().replace("[audit]", '[audit]\nfail-on = "error"'))
    assert said("audit", folder=told)[0] == 0
