"""safepoint audit --fix: modes, of what was looked at and of nothing else."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteCheckpointStorage,
)
from safepoint.audit.command import look
from safepoint.audit.finding import Finding, finding
from safepoint.audit.fix import apply, planned
from safepoint.settings import Store
from tests.unit.commands import audit as main

NOBODY: Final = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture(autouse=True)
def _no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safepoint.audit.folder.temp_folders", list)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    keys = Keyring(SigningKey.from_file(tmp_path / "keys/key", create=True))
    ledger = Ledger(FileCheckpointStorage(tmp_path / "state"), store="invoices", keys=keys)
    for amount in range(2):
        ledger.save("order-7", {"amount": amount})
    return tmp_path / "state"


def record(state: Path, sequence: int = 1) -> Path:
    return state / f"order-7/{sequence:010d}.checkpoint"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_modes_are_set_and_looked_at_again(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is left is reported. A dry run shows the same, and changes nothing."""
    (state / "order-7").chmod(0o777)
    state.chmod(0o755)
    record(state).chmod(0o644)
    (state / "order-7/stray").write_text("x")
    options = [str(state), "--store", "invoices", "--key", str(state.parent / "keys/key"), "--fix"]
    assert main([*options, "--dry-run"]) == 1
    would = capsys.readouterr().err.splitlines()
    assert (mode(state), mode(state / "order-7"), mode(record(state))) == (0o755, 0o777, 0o644)
    assert main(options) == 1
    out, err = capsys.readouterr()
    done = [
        f"chmod 0777 → 0700 {state}/order-7",
        f"chmod 0755 → 0700 {state}",
        f"chmod 0644 → 0600 {record(state)}",
    ]
    assert sorted(err.splitlines()) == sorted(done)
    assert sorted(would) == sorted(f"would {each}" for each in done)
    assert (mode(state), mode(state / "order-7"), mode(record(state))) == (0o700, 0o700, 0o600)
    assert "SP04" not in out
    assert "SP13.stray warning" in out
    assert main([*options[:-1], "--dry-run"]) == 2


def test_one_run_mends_the_parts_of_a_store_that_the_settings_name(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that is refused hides neither itself nor the storage; afterwards all is verified."""
    key, told = state.parent / "keys/key", state.parent / "safepoint.toml"
    told.write_text('[stores.invoices]\nstorage = "state"\nkey = ["keys/key"]\n')
    key.chmod(0o644)
    state.chmod(0o777)
    options = ["--config", str(told), "--fail-on", "error"]
    assert main(options) == 1
    assert "SP22.key-mode" in capsys.readouterr().out
    assert main([*options, "--fix"]) == 0
    out, err = capsys.readouterr()
    done = [f"chmod 0644 → 0600 {key}", f"chmod 0777 → 0700 {state}"]
    assert sorted(err.splitlines()) == sorted(done)
    assert (mode(key), mode(state)) == (0o600, 0o700)
    assert "not verified" not in out


def link(path: Path, elsewhere: Path) -> None:
    path.unlink()
    path.symlink_to(elsewhere)


def another(path: Path, elsewhere: Path) -> None:
    path.unlink()
    path.write_bytes(elsewhere.read_bytes())
    path.chmod(0o644)


def second_name(path: Path, elsewhere: Path) -> None:
    os.link(path, elsewhere.with_name("second"))


def parent_swapped(path: Path, elsewhere: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))
    elsewhere.rename(elsewhere.with_name(path.name))
    path.parent.symlink_to(elsewhere.parent)


SWAPS: Final[dict[str, Callable[[Path, Path], None]]] = {
    "a link": link,
    "another file": another,
    "a hard link": second_name,
    "a folder above it": parent_swapped,
}


@pytest.mark.parametrize("swap", SWAPS)
def test_what_is_put_there_between_the_look_and_the_change_is_left_alone(
    state: Path, swap: str
) -> None:
    (state.parent / "etc").mkdir()
    passwd = state.parent / "etc/passwd"
    passwd.write_text("root")
    passwd.chmod(0o644)
    record(state).chmod(0o644)
    (fix,) = planned([finding("SP04.mode", str(record(state)), mode=0o644)], [str(state)])
    SWAPS[swap](record(state), passwd)
    lines = list(apply([fix]))
    assert lines[0] == f"chmod 0644 → 0600 {record(state)}"
    assert lines[1].startswith(f"Left alone: {record(state)}: it c")
    assert {mode(each) for each in (state.parent / "etc").iterdir()} == {0o644}


def about(kind: str, path: Path) -> Finding:
    return Finding(f"SP04.{kind}", "error", "", "", str(path))


def test_what_has_a_second_name_or_is_shared_is_left_alone(state: Path, tmp_path: Path) -> None:
    """A name in the store for somebody's other file must not decide who reads that."""
    passwd, shared = tmp_path / "passwd", tmp_path / "shared"
    passwd.write_text("root")
    passwd.chmod(0o644)
    os.link(passwd, record(state, 3))
    shared.mkdir()
    shared.chmod(0o1777)
    (tmp_path / "link").symlink_to(passwd)
    os.mkfifo(tmp_path / "pipe")
    found = [about("mode", record(state, 3)), about("writable", shared)]
    found += [about("writable", tmp_path / each) for each in ("link", "pipe", "gone")]
    lines = list(apply(planned([*found, about("mode", Path("order-7"))], [str(tmp_path)])))
    assert [each.partition(": it ")[2][:12] for each in lines] == [
        "has a second",
        "is a folder ",
        "is a link, a",
        "is a link, a",
    ]
    assert (mode(passwd), mode(shared)) == (0o644, 0o1777)


@as_root
def test_what_is_somebody_elses_stays_theirs(state: Path) -> None:
    """Else a record that they put there would pass for one that a worker of root's wrote."""
    file = record(state)
    file.chmod(0o4755)
    os.chown(file, NOBODY, -1)
    file.chmod(0o4755)
    os.chown(state, NOBODY, -1)
    found = look([], [Store(storage=str(state))]).findings
    left = f"it belongs to user {NOBODY}, and this process is user 0; find out who wrote it"
    assert sorted(apply(planned(found, [str(state)]))) == [
        f"Left alone: {each}: {left} before you chown it." for each in (file, state)
    ]
    assert (file.lstat().st_uid, mode(file), state.lstat().st_uid) == (NOBODY, 0o4755, NOBODY)


def test_a_folder_that_others_can_write_is_closed_to_them_if_it_was_named(state: Path) -> None:
    state.parent.chmod(0o772)
    found = look([], [Store(storage=str(state))]).findings
    left = "it is no part of what was named; change it yourself, or name it."
    assert list(apply(planned(found, [str(state)]))) == [f"Left alone: {state.parent}: {left}"]
    assert mode(state.parent) == 0o772
    assert list(apply(planned(found, [str(state.parent)]))) == [f"chmod 0772 → 0750 {state.parent}"]
    assert mode(state.parent) == 0o750


def foreign(file: Path) -> None:
    with closing(sqlite3.connect(file)) as rows:
        rows.execute("CREATE TABLE t(a)")


def begun(file: Path) -> None:
    SQLiteCheckpointStorage(file).close()


def test_a_file_is_named_without_its_folder(tmp_path: Path) -> None:
    """Which may be one of the system. That of a store is its own, if nothing else is there."""
    (etc := tmp_path / "etc").mkdir(mode=0o755)
    (link := tmp_path / "link").symlink_to(etc)
    for make in (foreign, begun):
        make(etc / "a.db")
        (etc / "a.db").chmod(0o644)
        etc.chmod(0o755)
        assert main([str(link / "a.db"), "--fix"]) != 0
        assert (mode(etc), mode(etc / "a.db")) == (0o755, 0o600)
        known = Store(storage=str(etc / "a.db")).parts
        assert known == [str(etc / "a.db"), str(etc)]
        (etc / "a.db").unlink()
