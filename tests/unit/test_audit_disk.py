"""A store on disk: each flaw is planted, and found by its check; an honest store has no finding."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey, SQLiteCheckpointStorage
from safepoint.audit import Finding, finding, folder
from safepoint.audit.finding import files
from safepoint.audit.folder import check_database, check_ownership, check_places
from safepoint.stores import disk
from tests.house import rewrite
from tests.unit.commands import said

if not disk.SUPPORTED:
    pytest.skip("modes and owners are POSIX", allow_module_level=True)

KEYS = Keyring(SigningKey.generate())
Plant = Callable[[Path], object]
Table = dict[str, tuple[str, Plant]]


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, and whoever runs them may be anywhere."""
    monkeypatch.setattr(folder, "temp_folders", list)
    monkeypatch.chdir("/")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A store with six checkpoints in one thread, and one in another."""
    store = ledger(tmp_path / "state")
    for n in range(1, 7):
        store.save("a", n)
    store.save("b", 1)
    yield tmp_path / "state"
    tmp_path.chmod(0o700)


def ledger(root: Path) -> Ledger:
    return Ledger(FileCheckpointStorage(root), store="invoices", keys=KEYS)


def record(root: Path, sequence: int) -> Path:
    return root / f"a/{sequence:010d}.checkpoint"


def made(path: Path, content: bytes = b"", mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def ids(found: Iterable[Finding]) -> str:
    return " ".join(sorted(each.id for each in found))


def located(path: str | Path) -> str:
    """What is found about the place of a storage."""
    return ids(check_places({"storage": str(path)}))


def cases(table: Table) -> pytest.MarkDecorator:
    """Return what is found of each plant of a table, and the plant."""
    return pytest.mark.parametrize(("expected", "plant"), table.values(), ids=table)


LOCATION: Table = {
    "above, sticky": ("", lambda r: r.parent.chmod(0o1770)),
    "a publish that a crash cut short": ("", lambda r: (r / "a/.next").hardlink_to(record(r, 6))),
    "what is no record": ("", lambda r: made(r / "a/stranger.txt", mode=0o666)),
    "a record that others write": ("SP04.writable", lambda r: record(r, 2).chmod(0o666)),
    "a record that is a link": ("SP04.link", lambda r: record(r, 7).symlink_to("/etc/passwd")),
    "above, everybody": ("SP04.replaceable", lambda r: r.parent.chmod(0o707)),
    "a record with a second name": (
        "SP04.hard-link",
        lambda r: (r.parent / "second").hardlink_to(record(r, 2)),
    ),
    "entered": ("SP01.readable", lambda r: r.chmod(0o701)),
    "a worktree": ("SP01.work-tree", lambda r: (r.parent / ".git").touch()),
}


@cases(LOCATION)
def test_a_location_that_is_not_private(root: Path, plant: Plant, expected: str) -> None:
    plant(root)
    assert located(root) == expected


def test_where_it_lies(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In what the system empties, and on a network."""
    monkeypatch.setattr(folder, "temp_folders", lambda: ["/elsewhere", str(root.parent), "/"])
    assert located(root) == "SP01.temporary"
    monkeypatch.setattr(folder, "temp_folders", list)
    monkeypatch.setattr(folder, "network_file_system", lambda _: "nfs4")
    assert located(root) == "SP01.network"


def close(monkeypatch: pytest.MonkeyPatch, *closed: Path) -> None:
    """Let folders be closed, as they would be for a user who is not root."""

    def closing_(real: Any) -> Any:
        def refuse(path: Any = ".", *rest: Any, **more: Any) -> Any:
            if str(path) in map(str, closed):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *rest, **more)

        return refuse

    for name in ("scandir", "listdir", "open"):
        monkeypatch.setattr(os, name, closing_(getattr(os, name)))


# --- the parts of a store


@pytest.mark.parametrize("where", ["/..", "-link"])
def test_parts_in_one_place(root: Path, where: str) -> None:
    path = Path(f"{root}{where}")
    if where == "-link":
        path.symlink_to(root)
    path.mkdir(mode=0o700, exist_ok=True)
    found = ids(check_places({"storage": str(root), "journal": str(path)}))
    assert "SP22.together" in found


# --- owners


def test_threads_that_nobody_owns_or_that_nobody_released(tmp_path: Path) -> None:
    """A lease lasts a day; clocks may differ by an hour."""
    state = tmp_path / "state"
    store = ledger(state)
    store.save("order-7", {})
    storage = FileCheckpointStorage(state, read_only=True)
    assert [*check_ownership(storage)] == []
    lease = store.own("order-7", "worker-1", seconds=60)
    found = storage.lease("order-7")
    assert found is not None
    for hours, expected in ((25, ""), (26, "SP07.too-long"), (0, "SP07.abandoned")):
        assert ids(check_ownership(storage, found.expires - timedelta(hours=hours))) == expected
    lease.release()
    assert [*check_ownership(storage)] == []
    (state / "order-7/lease").write_text("worker-2\n")
    assert ids(check_ownership(storage)) == "SP07.unavailable"


# --- SQLite


def put(record: str) -> Plant:
    """Put something else in the place of a record, past the rules."""
    change = f"UPDATE checkpoints SET record = {record} WHERE thread = 'order-7' AND sequence = 2"  # noqa: S608
    return lambda path: rewrite(path, change)


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)


def unruled(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER checkpoints_update")


DATABASE: Table = {
    "beside": ("SP04.mode", lambda p: made(p.with_name("c.db-journal"), mode=0o644)),
    "damaged": ("SP13.damaged", damage),
    "no record": ("SP10.record", put("x'78'")),
    "too large": ("SP11.limit-exceeded", put("zeroblob(17000000)")),
    "no rules": ("SP13.unavailable", unruled),
}


@cases(DATABASE)
def test_a_database_that_was_changed(tmp_path: Path, plant: Plant, expected: str) -> None:
    """The triggers are back in their place, so that nothing but the rows themselves tells."""
    path = tmp_path / "state/c.db"
    with SQLiteCheckpointStorage(path) as storage:
        store = Ledger(storage, store="invoices", keys=KEYS)
        for thread in ("order-7", "order-8"):
            for amount in range(4):
                store.save(thread, {"amount": amount})
        store.prune("order-8", keep=1)
        store.own("order-8", "worker-1")
        assert check_database(str(path)) == []
    assert [each.name for each in path.parent.iterdir()] == ["c.db"]
    later = datetime.now(UTC) + timedelta(hours=1)
    with SQLiteCheckpointStorage(path, read_only=True) as storage:
        assert ids(check_ownership(storage, later)) == "SP07.abandoned"
    plant(path)
    found = {each.what: each for each in check_database(str(path))}
    found |= {each.what: each for each in check_places({"storage": str(path)})}
    assert ids(found.values()) == expected


# --- what all of them share


def test_the_files_below_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted, files before folders, bounded, and no link to a folder is followed."""
    monkeypatch.setattr(finding, "DEEPEST", 2)
    for name in ("z", "a/2", "a/1", "b/y", "b/c/x", "b/c/d/w", "shut/v"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "self").symlink_to(tmp_path)
    close(monkeypatch, tmp_path / "shut")
    unseen = list[Finding]()
    found = [os.path.relpath(file, tmp_path) for file in files(str(tmp_path), unseen)]
    assert found == ["self", "z", "a/1", "a/2", "b/y", "b/c/x"]
    for name, why in {"b/c/d": "it is 3 folders deep", "shut": "Permission denied"}.items():
        assert [each.what.endswith(f"({why}).") for each in unseen if each.where.endswith(name)]


# --- what a finding says to do


def test_the_commands_that_findings_print_mend_the_modes(tmp_path: Path) -> None:
    """A key that is refused hides neither itself nor the storage; afterwards all is verified."""
    tmp_path.chmod(0o700)
    key, state = tmp_path / "keys/key", tmp_path / "state"
    keys = Keyring(SigningKey.from_file(key, create=True))
    Ledger(FileCheckpointStorage(state), store="invoices", keys=keys).save("a", 1)
    told = made(
        tmp_path / "safepoint.toml", b'[stores.invoices]\nstorage = "state"\nkey = ["keys/key"]\n'
    )
    opened = {key: 0o644, state: 0o777, state / "a": 0o775, record(state, 1): 0o644}
    for path, mode in opened.items():
        path.chmod(mode)
    audit = ("audit", "--config", told, "--fail-on", "error")
    status, out, _ = said(*audit)
    assert (status, "not verified" in out) == (1, True)
    commands = set(re.findall(r"Run: (chmod \S+ [^\s,]+)", out))
    assert {each.split()[-1] for each in commands} == {*map(str, opened)}
    for command in commands:
        subprocess.run(command.split(), check=True)
    status, out, _ = said(*audit)
    assert (status, "not verified" in out, "chmod" in out) == (0, False, False)
