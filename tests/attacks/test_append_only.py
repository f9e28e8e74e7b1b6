"""SP13: nothing is written over, two writers cannot both win, and forgetting is signed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from safepoint import CheckpointError, Conflict, NotFound, SealBroken
from safepoint.errors import RecordsMissing, ThreadDeleted, UnknownKey, WrongPlace
from tests.attacks.helpers import THREAD, Shop, refused


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A store with order-7 at #5."""
    shop = Shop(tmp_path, anchored=False)
    shop.fill({"balance": balance} for balance in (100, 70, 60, 40, 10))
    return shop


def test_second_of_two_writers_is_refused(shop: Shop) -> None:
    one, two = shop.ledger(), shop.ledger()
    seen = two.latest(THREAD).sequence
    one.save(THREAD, {"balance": 70}, after=seen)
    assert refused(Conflict, lambda: two.save(THREAD, {"balance": 50}, after=seen)) == (
        "order-7 is at #6, and this save builds on #5."
        " Nothing was overwritten. Load the latest, and decide again."
    )
    assert two.latest(THREAD).state == {"balance": 70}


WORKER = """
    import sys
    from safepoint import Conflict, FileCheckpointStorage, Keyring, Ledger, SigningKey

    keys = Keyring(SigningKey.from_file(sys.argv[1] + "/key"))
    ledger = Ledger(FileCheckpointStorage(sys.argv[1] + "/state"), store="invoices", keys=keys)
    print("ready", flush=True)
    sys.stdin.readline()
    for sequence in range(20):
        try:
            ledger.save("order-8", {"by": sys.argv[2]}, after=sequence)
            print("won", sequence + 1)
        except Conflict:
            pass
"""


def test_race_of_processes_has_one_winner_for_each_sequence(shop: Shop) -> None:
    shop.key.to_file(shop.path / "key")
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(shop.path)]
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
    assert shop.ledger().verify("order-8") == 20


def test_pruned_thread_verifies_and_says_what_was_pruned(shop: Shop) -> None:
    """Also if a record comes back from a copy."""
    old = shop.file(1).read_bytes()
    assert shop.ledger().prune(THREAD, keep=2) == 3
    shop.file(1).write_bytes(old)
    assert shop.ledger().verify(THREAD) == 2
    assert [each.sequence for each in shop.ledger().history(THREAD)] == [4, 5]
    assert refused(NotFound, lambda: shop.ledger().load(THREAD, 1)) == (
        "Checkpoint 1 of thread 'order-7' was pruned; the thread begins at 4 now."
        " Ask for 4 or a later one, or look for 1 in a backup."
    )
    assert shop.ledger().save(THREAD, {"balance": 0}).sequence == 6


def test_beginning_cut_off_without_a_signed_base_is_refused(shop: Shop) -> None:
    for sequence in (1, 2, 3):
        shop.file(sequence).unlink()
    with pytest.raises(RecordsMissing, match="has checkpoint 5 but not 1"):
        shop.ledger().verify(THREAD)


def test_base_that_nobody_sealed_for_this_thread_is_refused(shop: Shop, tmp_path: Path) -> None:
    """Nobody without the key can declare the past pruned."""
    mallory = Shop(tmp_path / "forged")
    mallory.fill([{"balance": number} for number in range(5)])
    shop.fill([{"balance": number} for number in range(5)], "order-8")
    for other, thread in ((mallory, THREAD), (shop, THREAD), (shop, "order-8")):
        other.ledger().prune(thread, keep=2)
    base = shop.file(1).with_name("base")
    genuine = base.read_bytes()
    changes: list[tuple[bytes, type[CheckpointError]]] = [
        (genuine.replace(b'"kind":"base"', b'"kind":"base" '), SealBroken),
        (genuine.replace(b"0000000004\n", b"0000000005\n", 1), WrongPlace),
        (mallory.file(1).with_name("base").read_bytes(), UnknownKey),
        (shop.file(1, "order-8").with_name("base").read_bytes(), WrongPlace),
    ]
    for content, error in changes:
        assert content != genuine
        base.write_bytes(content)
        refused(error, lambda: shop.ledger().verify(THREAD))


def test_deleted_thread_says_so_and_its_name_stays_taken(shop: Shop) -> None:
    shop.ledger().delete(THREAD)
    uses: list[Callable[[], object]] = [
        lambda: shop.ledger().latest(THREAD),
        lambda: list(shop.ledger().history(THREAD)),
        lambda: shop.ledger().save(THREAD, {"balance": 1_000_000}),
        lambda: shop.ledger().save(THREAD, {"balance": 1_000_000}, after=0),
    ]
    for use in uses:
        said = refused(ThreadDeleted, use)
        assert said.startswith("order-7 was deleted on 2")
        assert said.endswith(
            "Z, by a record that is signed. Its name stays taken, so that nobody can pass another"
            " thread off as this one. Start a thread of another name."
        )
    assert shop.ledger().verify(THREAD) == 1
    assert not shop.file(5).exists()


def test_tombstone_of_another_thread_is_refused(shop: Shop) -> None:
    """Nobody without the key can declare a thread deleted."""
    shop.fill([{"balance": 1}], "order-8")
    shop.ledger().delete("order-8")
    shop.file(6).write_bytes(shop.file(2, "order-8").read_bytes())
    shop.file(6).chmod(0o600)
    said = refused(WrongPlace, lambda: shop.ledger().latest(THREAD))
    assert "is the one of order-8 #2" in said
