"""SP13: nothing is written over, two writers cannot both win, and forgetting is signed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from safepoint import (
    CheckpointError,
    Conflict,
    FileCheckpointStorage,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    NotFound,
    SealBroken,
    SigningKey,
)
from safepoint.errors import RecordsMissing, ThreadDeleted, UnknownKey, WrongPlace

KEYS = Keyring(SigningKey.generate())


def ledger_at(path: Path, keys: Keyring = KEYS, anchor: InMemoryAnchor | None = None) -> Ledger:
    """As a new process would open it."""
    return Ledger(FileCheckpointStorage(path), store="accounts", keys=keys, anchor=anchor)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder with account-7 at #5."""
    path = tmp_path / "state"
    ledger = ledger_at(path)
    for balance in (100, 70, 60, 40, 10):
        ledger.save("account-7", {"balance": balance})
    return path


def record(store: Path, sequence: int, thread: str = "account-7") -> Path:
    return store / thread / f"{sequence:010}.checkpoint"


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_second_of_two_writers_is_refused(kind: str, tmp_path: Path) -> None:
    storage = (
        FileCheckpointStorage(tmp_path / "state") if kind == "file" else InMemoryCheckpointStorage()
    )
    ledgers = [Ledger(storage, store="accounts", keys=KEYS) for _ in range(2)]
    ledgers[0].save("account-7", {"balance": 100})
    seen = [ledger.latest("account-7").sequence for ledger in ledgers]
    ledgers[0].save("account-7", {"balance": 70}, after=seen[0])
    with pytest.raises(Conflict) as refusal:
        ledgers[1].save("account-7", {"balance": 50}, after=seen[1])
    assert str(refusal.value) == (
        "account-7 is at #2, and this save builds on #1."
        " Nothing was overwritten. Load the latest, and decide again."
    )
    assert [c.state["balance"] for c in ledgers[1].history("account-7")] == [100, 70]


WORKER = """
    import sys
    from safepoint import Conflict, FileCheckpointStorage, Keyring, Ledger, SigningKey

    keys = Keyring(SigningKey.from_file(sys.argv[2]))
    ledger = Ledger(FileCheckpointStorage(sys.argv[1]), store="accounts", keys=keys)
    print("ready", flush=True)
    sys.stdin.readline()
    for sequence in range(20):
        try:
            ledger.save("account-8", {"by": sys.argv[3]}, after=sequence)
            print("won", sequence + 1)
        except Conflict:
            pass
"""


def test_race_of_processes_has_one_winner_for_each_sequence(tmp_path: Path) -> None:
    key = SigningKey.generate()
    key.to_file(tmp_path / "key")
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(WORKER),
        f"{tmp_path}/state",
        f"{tmp_path}/key",
    ]
    workers = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("one", "two", "three")
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    answers = [worker.communicate("\n", timeout=60)[0].splitlines() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    won = sorted(int(line.split()[1]) for lines in answers for line in lines)
    assert won == list(range(1, 21))
    assert ledger_at(tmp_path / "state", Keyring(key)).verify("account-8") == 20


def test_pruned_thread_verifies_and_says_what_was_pruned(store: Path) -> None:
    assert ledger_at(store).prune("account-7", keep=2) == 3
    ledger = ledger_at(store)
    assert ledger.verify("account-7") == 2
    assert [c.sequence for c in ledger.history("account-7")] == [4, 5]
    with pytest.raises(NotFound) as refusal:
        ledger.load("account-7", 1)
    assert str(refusal.value) == (
        "Checkpoint 1 of thread 'account-7' was pruned; the thread begins at 4 now."
        " Ask for 4 or a later one, or look for 1 in a backup."
    )
    assert ledger.save("account-7", {"balance": 0}).sequence == 6


def test_beginning_cut_off_without_a_signed_base_is_refused(store: Path) -> None:
    for sequence in (1, 2, 3):
        record(store, sequence).unlink()
    with pytest.raises(RecordsMissing, match="has checkpoint 5 but not 1"):
        ledger_at(store).verify("account-7")


def forged(base: bytes) -> bytes:
    return base.replace(b'"kind":"base"', b'"kind":"base" ')


def moved_forward(base: bytes) -> bytes:
    return base.replace(b"0000000004\n", b"0000000005\n", 1)


@pytest.mark.parametrize(("change", "error"), [(forged, SealBroken), (moved_forward, WrongPlace)])
def test_edited_base_is_refused(
    store: Path, change: Callable[[bytes], bytes], error: type[CheckpointError]
) -> None:
    ledger_at(store).prune("account-7", keep=2)
    base = store / "account-7" / "base"
    edited = change(base.read_bytes())
    assert edited != base.read_bytes()
    base.write_bytes(edited)
    with pytest.raises(error):
        ledger_at(store).verify("account-7")


def test_base_of_another_key_or_thread_is_refused(store: Path, tmp_path: Path) -> None:
    """Nobody without the key can declare the past pruned."""
    mallory = ledger_at(tmp_path / "forged", Keyring(SigningKey.generate()))
    ours = ledger_at(store)
    for balance in range(5):
        mallory.save("account-7", {"balance": balance})
        ours.save("account-8", {"balance": balance})
    mallory.prune("account-7", keep=2)
    ours.prune("account-8", keep=2)
    base = store / "account-7" / "base"
    base.write_bytes((tmp_path / "forged/account-7/base").read_bytes())
    base.chmod(0o600)
    with pytest.raises(UnknownKey):
        ledger_at(store).verify("account-7")
    base.write_bytes((store / "account-8/base").read_bytes())
    with pytest.raises(WrongPlace, match="is the one of account-8 #4"):
        ledger_at(store).verify("account-7")


def test_pruned_record_put_back_is_not_handed_out(store: Path) -> None:
    old = record(store, 1).read_bytes()
    ledger_at(store).prune("account-7", keep=2)
    record(store, 1).write_bytes(old)
    with pytest.raises(NotFound, match="was pruned"):
        ledger_at(store).load("account-7", 1)
    assert [c.sequence for c in ledger_at(store).history("account-7")] == [4, 5]


def test_deleted_thread_says_so_and_its_name_stays_taken(store: Path) -> None:
    ledger_at(store).delete("account-7")
    uses: list[Callable[[Ledger], object]] = [
        lambda ledger: ledger.latest("account-7"),
        lambda ledger: list(ledger.history("account-7")),
        lambda ledger: ledger.save("account-7", {"balance": 1_000_000}),
        lambda ledger: ledger.save("account-7", {"balance": 1_000_000}, after=0),
    ]
    for use in uses:
        with pytest.raises(ThreadDeleted) as refusal:
            use(ledger_at(store))
        assert refusal.value.what.startswith("account-7 was deleted on 2")
        assert refusal.value.what.endswith("Z, by a record that is signed.")
        assert refusal.value.do == (
            "Its name stays taken, so that nobody can pass another thread off as this one."
            " Start a thread of another name."
        )
    assert ledger_at(store).verify("account-7") == 1
    assert not record(store, 5).exists()


def test_tombstone_of_another_thread_is_refused(store: Path) -> None:
    """Nobody without the key can declare a thread deleted."""
    ledger_at(store).save("account-8", {"balance": 1})
    ledger_at(store).delete("account-8")
    tombstone = record(store, 2, "account-8").read_bytes()
    record(store, 6).write_bytes(tombstone)
    record(store, 6).chmod(0o600)
    with pytest.raises(WrongPlace, match="is the one of account-8 #2"):
        ledger_at(store).latest("account-7")
