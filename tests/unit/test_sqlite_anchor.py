"""SQLiteAnchor: monotonic, atomic, durable, of one store, and never silent."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from safepoint import SQLiteAnchor, SQLiteCheckpointStorage
from safepoint.errors import (
    AnchorUnavailable,
    CheckpointError,
    UnsafeLocation,
)
from safepoint.names import Head
from tests.harness.crash import killed
from tests.unit.tampered import STORE


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
    assert "Every user can rename" in said(UnsafeLocation, lambda: SQLiteAnchor(path))
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
