"""A process killed at any instant: what was acknowledged is there, no alarm, and the next goes on.

The crash driver kills a save, a prune, a deletion, an erasure and a copy
after each of their steps.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from safepoint import SigningKey
from safepoint.core.errors import ThreadDeleted
from safepoint.core.names import Head
from tests.harness.crash import killed
from tests.house import KEY, THREAD, fill, ledger_in, opened, states

NEW = SigningKey(bytes(32))


def save(folder: Path, kind: str) -> None:
    ledger = ledger_in(folder, kind)
    ledger.save(THREAD, {"n": ledger.storage.head(THREAD) + 1})


def prune(folder: Path, kind: str) -> None:
    ledger_in(folder, kind).prune(THREAD, keep=2)


def delete(folder: Path, kind: str) -> None:
    ledger_in(folder, kind).delete(THREAD)


def erase(folder: Path, kind: str) -> None:
    ledger_in(folder, kind).erase(THREAD)


def copy(folder: Path, kind: str) -> None:
    ledger_in(folder, kind).copy_to(ledger_in(folder, kind, key=NEW))


SQLITE = pytest.param("sqlite", marks=pytest.mark.deep)  # it does hundreds of steps


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        ("files", 0),
        ("files", 2),
        pytest.param("sqlite", 0, marks=pytest.mark.deep),
        pytest.param("sqlite", 2, marks=pytest.mark.deep),
    ],
)
def test_a_save_that_is_killed(tmp_path: Path, kind: str, before: int) -> None:
    prepared = tmp_path / "prepared"
    prepared.mkdir(mode=0o700)
    if before:
        fill(ledger_in(prepared, kind), before)
    saved, ahead = set(), 0
    for left in killed(save, tmp_path, kind, prepared=prepared):
        count = ledger_in(left.folder, kind).verify(THREAD)
        saved.add(count)
        assert count > before or not left.whole
        assert states(ledger_in(left.folder, kind)) == list(range(1, count + 1))
        anchored = ledger_in(left.folder, kind)._view.anchored(THREAD)
        ahead += (anchored.sequence if anchored else 0) < count
        following = ledger_in(left.folder, kind).save(THREAD, {"n": count + 1})
        assert ledger_in(left.folder, kind).verify(THREAD) == following.sequence == count + 1
        head = Head(following.sequence, following.digest)
        assert ledger_in(left.folder, kind)._view.anchored(THREAD) == head
    assert saved == {before, before + 1}
    assert ahead, "no kill fell between the two writes, so this proves nothing"


@pytest.mark.parametrize("kind", ["files", SQLITE])
@pytest.mark.parametrize(
    ("act", "seen", "counts"),
    [
        (prune, {4, 2}, 2),
        (delete, {4, 5}, 5),
        (erase, {5, 1}, 1),
        pytest.param(copy, {4}, 4, marks=pytest.mark.deep),
    ],
)
def test_what_an_operator_does_that_is_killed_is_finished_by_the_next(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    act: object,
    seen: set[int],
    counts: int,
) -> None:
    prepared, found = tmp_path / "prepared", set()
    prepared.mkdir(mode=0o700)
    ledger = ledger_in(prepared, kind)
    fill(ledger, 1)
    fill(opened(ledger.storage), 3, first=2)  # as if those were not anchored yet
    if act is copy:
        for thread in ("pruned", "deleted"):
            fill(ledger, 3, thread)
        ledger.prune("pruned", keep=2)
        ledger.delete("deleted")
        ledger.erase("deleted")
    if act is erase:
        with monkeypatch.context() as down:
            down.setattr(ledger._view, "_move_after", lambda *_: 1 / 0)
            with suppress(ZeroDivisionError):  # whoever deleted it died before the anchor moved
                ledger.delete(THREAD)
    for left in killed(act, tmp_path, kind, prepared=prepared):  # type: ignore[arg-type]
        ledger = ledger_in(left.folder, kind)
        found.add(ledger.verify(THREAD))
        if ledger.storage.head(THREAD) == 5:
            with pytest.raises(ThreadDeleted):
                ledger.latest(THREAD)
        else:
            assert ledger.latest(THREAD).state == {"n": 4}
        act(left.folder, kind)  # type: ignore[operator]
        if act in (delete, erase):
            assert ledger._view.anchored(THREAD) == next(ledger._view.back(THREAD)).head
        done = ledger_in(left.folder, kind, key=NEW if act is copy else KEY)
        assert done.verify(THREAD) == counts
        if kind == "files":
            folder = left.folder / ("copy" if act is copy else "store") / THREAD
            assert len(list(folder.glob("*.checkpoint"))) == counts
        if act is copy:
            for thread in ledger.threads():
                assert done.verify(thread) == ledger.verify(thread)
                assert next(done._view.back(thread)).head == next(ledger._view.back(thread)).head
    assert found == seen if kind == "files" else found <= seen
