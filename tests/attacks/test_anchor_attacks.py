"""SP15: what was anchored cannot be cut off, restored away, deleted or rewritten unnoticed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from safepoint import FileAnchor, InMemoryAnchor, Ledger, RolledBack
from safepoint.anchor import Anchor, is_further
from safepoint.errors import (
    AnchorMismatch,
    AnchorUnavailable,
    ConfigurationError,
    Forked,
    WrongPlace,
)
from safepoint.names import Head
from tests.attacks.helpers import THREAD, Shop, refused

WHAT_TO_DO = (
    "Checkpoints were cut off, or an older copy was restored. Nothing was loaded: put back what is"
    " missing, or accept the loss by name with Ledger.accept_loss."
)
USES: dict[str, Callable[[Ledger], object]] = {
    "latest": lambda ledger: ledger.latest(THREAD),
    "load": lambda ledger: ledger.load(THREAD, 1),
    "verify": lambda ledger: ledger.verify(THREAD),
    "history": lambda ledger: list(ledger.history(THREAD)),
    "save": lambda ledger: ledger.save(THREAD, {}),
    "anchor_now": lambda ledger: ledger.anchor_now(THREAD),
}


class DictAnchor:
    """The one that a reader writes, in ten lines."""

    def __init__(self) -> None:
        self._heads: dict[tuple[str, str], Head] = {}

    def read(self, store: str, thread: str) -> Head | None:
        return self._heads.get((store, thread))

    def advance(self, store: str, thread: str, head: Head) -> None:
        if is_further(thread, self.read(store, thread), head):
            self._heads[store, thread] = head

    def threads(self, store: str) -> Iterable[str]:
        return [thread for owner, thread in self._heads if owner == store]


@pytest.fixture(params=["file", "memory", "own"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """A store with three anchored checkpoints, and a copy of it with two."""
    anchors: dict[str, Anchor] = {"memory": InMemoryAnchor(), "own": DictAnchor()}
    shop = Shop(tmp_path)
    shop.options["anchor"] = anchors.get(request.param, shop.options["anchor"])
    shop.fill({"n": number} for number in (1, 2))
    copytree(tmp_path / "state", tmp_path / "snapshot")
    shop.fill([{"n": 3}])
    return shop


def restore(shop: Shop, copy: str = "snapshot", to: str = "state") -> None:
    rmtree(shop.path / to)
    copytree(shop.path / copy, shop.path / to)


@pytest.mark.parametrize("left", [2, 1, 0])
def test_cut_of_the_newest_is_refused(shop: Shop, left: int) -> None:
    for sequence in range(left + 1, 4):
        shop.file(sequence).unlink()
    gone = f"ends at #{left}" if left else "is gone"
    for use in USES.values():
        said = refused(RolledBack, use, shop.ledger())
        assert said == f"order-7 {gone}, and the anchor has seen #3. {WHAT_TO_DO}"
    assert len(list(shop.file(1).parent.glob("*.checkpoint"))) == left
    assert shop.ledger().threads() == [THREAD]


def test_restored_snapshot_is_refused(shop: Shop) -> None:
    restore(shop)
    said = refused(RolledBack, lambda: shop.ledger().latest(THREAD))
    assert said.startswith("order-7 ends at #2, and the anchor has seen #3.")


@pytest.mark.parametrize("length", [1, 2, 5])
def test_fork_is_refused(shop: Shop, length: int) -> None:
    """A second history by a holder of the key, as long as the anchored one or longer."""
    restore(shop)
    shop.fill([{"n": "other"}] * length, anchor=None)
    for name in ("latest", "verify", "history", "save", "anchor_now"):
        assert refused(Forked, USES[name], shop.ledger()) == (
            "order-7 #3 is not the record that the anchor has seen there. Two histories exist, and"
            " the store shows the other one. Nothing was loaded: restore the copy that the anchor"
            " knows, and replace the key if nobody rewrote it on purpose."
        )


def test_two_copies_in_use_cannot_both_move_the_anchor(shop: Shop, tmp_path: Path) -> None:
    other = Shop(tmp_path / "other", shop.key, anchor=shop.options["anchor"])
    copytree(tmp_path / "state", tmp_path / "other/state")
    two = other.ledger(anchor_every=9)
    two.save(THREAD, {"by": "two"})
    shop.ledger(anchor_every=9).save(THREAD, {"by": "one"}, anchor="now")
    refused(Forked, lambda: two.anchor_now(THREAD))
    assert shop.ledger().latest(THREAD).state == {"by": "one"}


def test_stolen_key_cannot_rewrite_the_anchored_past(shop: Shop) -> None:
    """Not from the first record on, with every link and signature made right."""
    rmtree(shop.file(1).parent)
    shop.fill([{"n": -number} for number in (1, 2, 3, 4)], anchor=None)
    assert shop.ledger(anchor=None).verify(THREAD) == 4
    for name in ("latest", "verify"):
        refused(Forked, USES[name], shop.ledger())


def test_unlinked_record_above_the_anchor_is_refused(shop: Shop, tmp_path: Path) -> None:
    """The head must extend the anchored record link by link, not only stand above it."""
    other = Shop(tmp_path / "other", shop.key, anchored=False)
    copytree(tmp_path / "state", tmp_path / "other/state")
    shop.fill([{}, {}], anchor=None)
    other.fill([{}, {}])
    shop.file(5).write_bytes(other.file(5).read_bytes())
    said = refused(WrongPlace, lambda: shop.ledger().latest(THREAD))
    assert said.startswith("order-7 #5 does not follow the #4 that is stored.")


KILLED = """
    import os, sys
    from safepoint import FileAnchor, FileCheckpointStorage, Keyring, Ledger, SigningKey

    class Dies(FileAnchor):
        def advance(self, store, thread, head):
            os.kill(os.getpid(), 9)

    home = sys.argv[1]
    ledger = Ledger(
        FileCheckpointStorage(home + "/state"),
        store="invoices",
        keys=Keyring(SigningKey.from_file(home + "/key")),
        anchor=Dies(home + "/anchor"),
    )
    ledger.save("order-7", {"n": "saved"})
"""


@pytest.mark.parametrize("before", [0, 3])
def test_crash_between_save_and_anchor_is_no_alarm(tmp_path: Path, before: int) -> None:
    shop = Shop(tmp_path)
    shop.key.to_file(tmp_path / "key")
    shop.fill([{}] * before)
    script = textwrap.dedent(KILLED)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == -9
    known = FileAnchor(tmp_path / "anchor").read("invoices", THREAD)
    assert (known.sequence if known else 0) == before
    assert shop.ledger().latest(THREAD).state == {"n": "saved"}
    assert shop.ledger().verify(THREAD) == before + 1
    saved = shop.ledger().save(THREAD, {"n": "next"})
    assert FileAnchor(tmp_path / "anchor").read("invoices", THREAD) == Head(
        before + 2, saved.digest
    )


def test_anchoring_of_an_existing_store(shop: Shop) -> None:
    """Before it, nothing is known; what does not verify is not anchored; after it, all is safe."""
    shop.options["anchor"] = anchor = InMemoryAnchor()
    first, second = (shop.file(sequence).read_bytes() for sequence in (1, 2))
    shop.file(1).write_bytes(second)
    shop.file(2).write_bytes(first)
    refused(WrongPlace, lambda: shop.ledger().anchor_now(THREAD))
    assert anchor.read("invoices", THREAD) is None
    shop.file(1).write_bytes(first)
    shop.file(2).write_bytes(second)
    assert shop.ledger().anchor_now(THREAD) == Head(3, shop.ledger().latest(THREAD).digest)
    shop.file(3).unlink()
    refused(RolledBack, lambda: shop.ledger().latest(THREAD))


def test_anchor_that_is_gone_misplaced_or_of_another_store_is_refused(tmp_path: Path) -> None:
    """And never begun anew: no rollback would be noticed."""
    shop = Shop(tmp_path)
    shop.fill([{}, {}])
    inside = FileAnchor(tmp_path / "state" / "anchor", create=True)
    refused(ConfigurationError, lambda: shop.ledger(anchor=inside))
    refused(AnchorMismatch, lambda: shop.ledger(store="payments").latest(THREAD))
    rmtree(tmp_path / "anchor")
    said = refused(AnchorUnavailable, lambda: shop.ledger().latest(THREAD))
    assert "is gone, and with it the anchor" in said
    said = refused(AnchorUnavailable, lambda: FileAnchor(tmp_path / "anchor"))
    assert "so no rollback would be noticed" in said


def test_an_anchor_that_is_restored_with_the_storage_notices_nothing(tmp_path: Path) -> None:
    """Where it stops helping, as the page says."""
    shop = Shop(tmp_path)
    shop.fill([{}])
    for name in ("state", "anchor"):
        copytree(tmp_path / name, tmp_path / f"{name}-copy")
    shop.fill([{}])
    for name in ("state", "anchor"):
        restore(shop, f"{name}-copy", name)
    assert shop.ledger(anchor=FileAnchor(tmp_path / "anchor")).latest(THREAD).sequence == 1
