"""SQLiteAnchor: monotonic, atomic, durable, of one store, and never silent."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from safepoint import Ledger, SQLiteAnchor, SQLiteCheckpointStorage
from safepoint.errors import (
    AnchorMismatch,
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    Forked,
    InvalidId,
    RolledBack,
    UnsafeLocation,
)
from safepoint.names import Head
from tests.harness.crash import killed
from tests.unit.tampered import KEYS, STORE, THREAD, fill


def head(sequence: int, digit: str = "a") -> Head:
    return Head(sequence, f"sha256:{digit * 64}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "anchor/heads.db"


@pytest.fixture
def anchor(path: Path) -> Iterator[SQLiteAnchor]:
    with SQLiteAnchor(path, create=True) as made:
        made.advance(STORE, "a", head(2))
        yield made


def said(error: type[CheckpointError], act: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        act()
    assert type(caught.value) is error
    return str(caught.value)


def calls(anchor: SQLiteAnchor, store: str = STORE) -> list[Callable[[], object]]:
    return [
        lambda: anchor.read(store, "a"),
        lambda: anchor.advance(store, "a", head(3)),
        lambda: anchor.threads(store),
        lambda: anchor.rewind(store, "a", None),
    ]


def test_a_head_moves_forward_and_back_by_name_alone(anchor: SQLiteAnchor, path: Path) -> None:
    anchor.advance(STORE, "b", head(9))
    for older in (head(2), head(1), head(1, "b")):
        anchor.advance(STORE, "a", older)
    assert anchor.read(STORE, "a") == head(2)
    said(Forked, lambda: anchor.advance(STORE, "a", head(2, "b")))
    assert anchor.read(STORE, "a") == head(2)
    anchor.advance(STORE, "a", head(5, "c"))
    with SQLiteAnchor(path) as again:
        assert (again.read(STORE, "a"), again.read(STORE, "c")) == (head(5, "c"), None)
        assert again.threads(STORE) == ["a", "b"]
        again.rewind(STORE, "a", head(1))
        again.rewind(STORE, "b", None)
    assert (anchor.read(STORE, "a"), anchor.threads(STORE)) == (head(1), ["a"])
    assert (anchor.path, repr(anchor)) == (path, f"SQLiteAnchor('{path}')")


def test_an_anchor_belongs_to_the_store_that_came_first(anchor: SQLiteAnchor, path: Path) -> None:
    for call in calls(anchor, "other"):
        assert f"{path} belongs to store {STORE}" in said(AnchorMismatch, call)
    anchor.rewind(STORE, "a", None)
    said(AnchorMismatch, lambda: anchor.read("other", "a"))


def test_bad_arguments_are_the_callers(anchor: SQLiteAnchor) -> None:
    wrong: Any = 5
    said(InvalidId, lambda: anchor.read("../x", "a"))
    said(InvalidId, lambda: anchor.advance(STORE, "A", head(3)))
    said(InvalidId, lambda: anchor.threads(wrong))
    said(ConfigurationError, lambda: anchor.advance(STORE, "a", wrong))
    said(ConfigurationError, lambda: anchor.rewind(STORE, "a", wrong))
    assert anchor.read(STORE, "a") == head(2)


def test_an_anchor_that_is_missing_is_never_begun_by_itself(path: Path) -> None:
    assert "does not exist, so no rollback would be noticed" in said(
        AnchorUnavailable, lambda: SQLiteAnchor(path.parent.parent / "heads.db")
    )
    said(AnchorUnavailable, lambda: SQLiteAnchor(path))
    assert not path.parent.exists()
    with SQLiteAnchor(path, create=True) as anchor:
        assert anchor.read("any", "a") is None
        path.rename(path.with_name("aside"))
        for call in calls(anchor):
            assert "is gone" in said(AnchorUnavailable, call)


def test_an_anchor_that_others_can_change_or_replace_is_refused(
    anchor: SQLiteAnchor, path: Path
) -> None:
    for place, wrong, right in ((path, 0o666, 0o600), (path.parent, 0o770, 0o700)):
        place.chmod(wrong)
        for call in calls(anchor):
            said(UnsafeLocation, call)
        place.chmod(right)
    above = path.parent.parent
    above.chmod(0o777)
    assert "could be replaced by an older copy" in said(UnsafeLocation, lambda: SQLiteAnchor(path))
    above.chmod(0o700)
    path.rename(path.with_name("aside"))
    path.symlink_to(path.with_name("aside"))
    said(UnsafeLocation, lambda: SQLiteAnchor(path))


WRONG = {
    "a digest": "UPDATE heads SET digest = 'sha256:x'",
    "a long digest": "UPDATE heads SET digest = hex(zeroblob(1000000))",
    "a name": "INSERT INTO heads VALUES ('../etc', 1, 'x')",
    "a long name": "INSERT INTO heads VALUES (hex(zeroblob(1000000)), 1, 'x')",
    "a store": "UPDATE store SET name = 'NOT A NAME'",
    "a rule": "CREATE TRIGGER t AFTER INSERT ON heads BEGIN SELECT 1; END",
    "a table": "DROP TABLE heads",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_anchor_that_nobody_of_us_wrote_is_not_believed(
    anchor: SQLiteAnchor, path: Path, wrong: str
) -> None:
    """Neither as a head nor as none: what cannot be told is refused."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(WRONG[wrong])
    read, advance, threads, _ = calls(anchor)
    for call in [threads] if wrong.endswith("name") else [read, advance]:
        said(AnchorUnavailable, call)


def test_a_frozen_copy_is_asked_and_never_moved(anchor: SQLiteAnchor, path: Path) -> None:
    anchor.close()
    before = path.read_bytes()
    with SQLiteAnchor(path, read_only=True) as frozen:
        assert (frozen.read(STORE, "a"), frozen.threads(STORE)) == (head(2), ["a"])
        said(AnchorUnavailable, lambda: frozen.advance(STORE, "a", head(3)))
        assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_faults_are_the_anchors(anchor: SQLiteAnchor, path: Path) -> None:
    anchor.close()
    assert "was closed" in said(AnchorUnavailable, lambda: anchor.read(STORE, "a"))
    path.write_bytes(b"no database" * 500)
    assert "is not an SQLite database" in said(AnchorUnavailable, lambda: SQLiteAnchor(path))
    state = path.parent.parent / "state/checkpoints.db"
    SQLiteCheckpointStorage(state).close()
    assert "of another application" in said(AnchorUnavailable, lambda: SQLiteAnchor(state))


def test_a_ledger_notices_what_was_cut_off(anchor: SQLiteAnchor, tmp_path: Path) -> None:
    anchor.rewind(STORE, "a", None)
    path = tmp_path / "state/checkpoints.db"
    with SQLiteCheckpointStorage(path) as storage:
        ledger = Ledger(storage, store=STORE, keys=KEYS, anchor=anchor)
        fill(ledger, 3)
    for file in path.parent.iterdir():
        file.unlink()
    with SQLiteCheckpointStorage(path) as storage:
        ledger = Ledger(storage, store=STORE, keys=KEYS, anchor=anchor)
        said(RolledBack, lambda: ledger.latest(THREAD))
        beside = SQLiteAnchor(path.with_name("heads.db"), create=True)
        assert "is in one place with the storage" in said(
            ConfigurationError, lambda: Ledger(storage, store=STORE, keys=KEYS, anchor=beside)
        )


def three_heads(folder: Path) -> None:
    """Make an anchor, and move it three times."""
    with SQLiteAnchor(folder / "anchor/heads.db", create=True) as anchor:
        for sequence in (1, 2, 3):
            anchor.advance(STORE, "a", head(sequence))
            (folder / f"told-{sequence}").touch()


def test_sigkill_after_each_step(tmp_path: Path) -> None:
    """What was told is there, and at most the next one that was not."""
    seen = set()
    for left in killed(three_heads, tmp_path):
        told = len(list(left.folder.glob("told-*")))
        with SQLiteAnchor(left.folder / "anchor/heads.db", create=True) as anchor:
            found = anchor.read(STORE, "a")
            anchor.advance(STORE, "a", head(4))
        reached = 0 if found is None else found.sequence
        assert told <= reached <= told + 1
        seen.add(reached)
    assert seen == {0, 1, 2, 3}


RACE = """
    import json, sys
    from safepoint import SQLiteAnchor
    from safepoint.names import Head

    anchor = SQLiteAnchor(sys.argv[1], create=True)
    seen = []
    for sequence in range(int(sys.argv[2]), 60, 4):
        anchor.advance("invoices", "a", Head(sequence, "sha256:" + "a" * 64))
        seen.append(anchor.read("invoices", "a").sequence)
    print(json.dumps(seen))
"""


def test_processes_move_it_forward_together(path: Path) -> None:
    code = [sys.executable, "-c", textwrap.dedent(RACE), str(path)]
    workers = [
        subprocess.Popen([*code, str(number)], stdout=subprocess.PIPE) for number in (1, 2, 3, 4)
    ]
    for worker in workers:
        out, _ = worker.communicate()
        assert worker.returncode == 0
        seen = json.loads(out)
        assert seen == sorted(seen), "a head never moves back, for whoever looks"
    with SQLiteAnchor(path) as anchor:
        assert anchor.read("invoices", "a") == head(59)
