"""Pruning and deleting: what is left still verifies, and nothing goes without a signature."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from safepoint import InMemoryAnchor, Keyring, NotFound, SigningKey, SQLiteCheckpointStorage
from safepoint.core.errors import ConfigurationError, ThreadDeleted, Unavailable, Unsafe
from tests.house import KEY, STORE, THREAD, USES, Memory, base_of, fill, fill_ahead, opened, states

Anchored = InMemoryAnchor | None


def test_pruning_keeps_the_newest(storage: Memory, anchor: Anchored) -> None:
    fill(opened(storage, anchor), 10)
    fill(opened(storage, anchor), 5, "order-8")
    before = list(opened(storage, anchor).history(THREAD))
    removed = [opened(storage, anchor).prune(THREAD, keep=keep) for keep in (8, 8, 3, 9, 1000)]
    assert removed == [2, 0, 5, 0, 0]
    ledger = opened(storage, anchor)
    assert list(ledger.history(THREAD)) == before[7:]  # the first still names the one that is gone
    assert ledger.verify(THREAD) == 3
    assert ledger.load(THREAD, 8) == before[7]
    first, record = base_of(storage)
    assert (first, record.split(b" ")[1]) == (8, KEY.id.encode())
    for sequence in range(1, 8):
        with pytest.raises(NotFound, match="was pruned; the thread begins at 8 now"):
            ledger.load(THREAD, sequence)
    assert ledger.save(THREAD, {"n": 11}).sequence == 11
    assert states(opened(storage, anchor)) == [8, 9, 10, 11]
    assert ledger.verify("order-8") == 5
    assert storage.base("order-8") is None


@pytest.mark.parametrize("use", ["prune", "delete"])
def test_nothing_goes_without_a_thread_or_a_key_that_signs(
    storage: Memory, anchor: Anchored, use: str
) -> None:
    with pytest.raises(NotFound, match=f"no checkpoint of {THREAD} in store {STORE}"):
        USES[use](opened(storage, anchor))
    key = SigningKey.generate()
    fill(opened(storage, anchor, keys=Keyring(key)), 3)
    reader = opened(storage, anchor, keys=Keyring(verify=key.public))
    with pytest.raises(Unsafe, match="only verifies"):
        USES[use](reader)
    assert reader.verify(THREAD) == 3


def test_a_deleted_thread_says_so(storage: Memory, anchor: Anchored) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=3)
    last = ledger.latest(THREAD)
    with pytest.raises(ConfigurationError, match="order-7 is not deleted, so nothing of it is"):
        ledger.erase(THREAD)
    head = ledger.delete(THREAD)
    assert (head.sequence, storage.head(THREAD), ledger.verify(THREAD)) == (6, 6, 4)
    assert last.digest.encode() in storage.read(THREAD, 6)
    for again in (ledger, opened(storage, anchor)):
        for use in (
            *(USES[name] for name in ("latest", "load", "history", "save")),
            lambda ledger: ledger.load(THREAD, 6),
            lambda ledger: next(ledger.back(THREAD)),
            lambda ledger: ledger.save(THREAD, {}, after=6),
        ):
            with pytest.raises(
                ThreadDeleted, match=r"^order-7 was deleted on 2.* that is signed\."
            ):
                use(again)  # type: ignore[no-untyped-call]
        assert again.delete(THREAD) == head
        assert again.erase(THREAD) == (3 if again is ledger else 0)
        assert again.verify(THREAD) == 1
        assert again.threads() == [THREAD]
        assert again.prune(THREAD, keep=1) == 0
    if anchor is not None:
        assert anchor.read(STORE, THREAD) == head


def test_an_erasure_that_a_reader_keeps_in_the_log_is_told(tmp_path: Path) -> None:
    """The records are gone for everybody, and their bytes are not: the next call removes those."""
    with SQLiteCheckpointStorage(tmp_path / "store/db") as storage:
        ledger = opened(storage)
        for number in range(3):
            ledger.save(THREAD, f"canary-{number}")
        ledger.delete(THREAD)
        with closing(sqlite3.connect(storage.path, isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select count(*) from checkpoints").fetchone()
            with pytest.raises(Unavailable, match=r"are still in .*/db-wal, because"):
                ledger.erase(THREAD)
            assert ledger.verify(THREAD) == 1
            assert b"canary" in Path(f"{storage.path}-wal").read_bytes()
        assert ledger.erase(THREAD) == 0
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert not any(b"canary" in file.read_bytes() for file in files)


# Others at the same time: no false alarm, and nothing is lost


def once(patch: pytest.MonkeyPatch, thing: Any, name: str, first: Any, *, after: bool) -> None:
    """Let something else happen right before or after the next call of a method, and no other."""
    genuine = getattr(thing, name)

    def raced(*given: Any, **named: Any) -> Any:
        patch.setattr(thing, name, genuine)
        if after:
            result = genuine(*given, **named)
            first()
            return result
        first()
        return genuine(*given, **named)

    patch.setattr(thing, name, raced)


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda it: it.latest(THREAD).state, {"n": 6}),
        (lambda it: it.load(THREAD, 5).state, {"n": 5}),
        (lambda it: it.verify(THREAD), 2),
        (states, [5, 6]),
        (lambda it: it.save(THREAD, {}).sequence, 7),
        (lambda it: it.delete(THREAD).sequence, 7),
    ],
    ids=["latest", "load", "verify", "history", "save", "delete"],
)
def test_a_prune_of_another_process_is_no_alarm(
    storage: Memory, monkeypatch: pytest.MonkeyPatch, use: Any, expected: Any
) -> None:
    """It moves the anchor and removes records, right after this one has asked the anchor."""
    anchor = InMemoryAnchor()
    fill_ahead(storage, anchor, 5)
    rival = opened(storage, anchor)

    def prune() -> None:
        rival.save(THREAD, {"n": 6})
        assert rival.prune(THREAD, keep=2) == 4

    once(monkeypatch, anchor, "read", prune, after=True)
    assert use(opened(storage, anchor)) == expected
