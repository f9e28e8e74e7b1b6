"""SP15: what was anchored cannot be cut off, restored away, deleted or rewritten unnoticed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from safepoint import (
    FileAnchor,
    FileCheckpointStorage,
    InMemoryAnchor,
    Keyring,
    Ledger,
    RolledBack,
    SigningKey,
)
from safepoint.anchor import Anchor, is_further
from safepoint.errors import (
    AnchorMismatch,
    AnchorUnavailable,
    ConfigurationError,
    Forked,
    WrongPlace,
)
from safepoint.names import Head

KEYS = Keyring(SigningKey.generate())
WHAT_TO_DO = (
    "Checkpoints were cut off, or an older copy was restored. Nothing was loaded: put back what is"
    " missing, or accept the loss by name with Ledger.accept_loss."
)
USES: list[Callable[[Ledger], object]] = [
    lambda ledger: ledger.latest("order-7"),
    lambda ledger: ledger.load("order-7", 1),
    lambda ledger: ledger.verify("order-7"),
    lambda ledger: list(ledger.history("order-7")),
    lambda ledger: ledger.save("order-7", {}),
    lambda ledger: ledger.anchor_now("order-7"),
]


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
def anchor(request: pytest.FixtureRequest, tmp_path: Path) -> Anchor:
    if request.param == "file":
        return FileAnchor(tmp_path / "anchor", create=True)
    return InMemoryAnchor() if request.param == "memory" else DictAnchor()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "state"


def ledger_at(store: Path, anchor: Anchor | None = None, every: int = 1) -> Ledger:
    """As a new process would open it."""
    return Ledger(
        FileCheckpointStorage(store), store="invoices", keys=KEYS, anchor=anchor, anchor_every=every
    )


def fill(store: Path, anchor: Anchor | None, count: int, every: int = 1) -> None:
    ledger = ledger_at(store, anchor, every)
    for number in range(1, count + 1):
        ledger.save("order-7", {"n": number})


def cut(store: Path, left: int) -> None:
    for file in (store / "order-7").glob("*.checkpoint"):
        if int(file.stem) > left:
            file.unlink()


def restore(copy: Path, store: Path) -> None:
    rmtree(store)
    copytree(copy, store)


@pytest.mark.parametrize("left", [3, 2, 1, 0])
def test_cut_of_the_newest_is_refused(store: Path, anchor: Anchor, left: int) -> None:
    fill(store, anchor, 4)
    cut(store, left)
    for use in USES:
        with pytest.raises(RolledBack) as refusal:
            use(ledger_at(store, anchor))
        gone = f"ends at #{left}" if left else "is gone"
        assert str(refusal.value) == (f"order-7 {gone}, and the anchor has seen #4. {WHAT_TO_DO}")
    assert len(list(store.glob("order-7/*.checkpoint"))) == left


def test_restored_snapshot_is_refused(store: Path, anchor: Anchor, tmp_path: Path) -> None:
    fill(store, anchor, 2)
    copytree(store, tmp_path / "snapshot")
    fill(store, anchor, 1)
    restore(tmp_path / "snapshot", store)
    with pytest.raises(RolledBack) as refusal:
        ledger_at(store, anchor).latest("order-7")
    assert refusal.value.what == "order-7 ends at #2, and the anchor has seen #3."


def test_deleted_thread_is_missed(store: Path, anchor: Anchor) -> None:
    fill(store, anchor, 3)
    rmtree(store / "order-7")
    ledger = ledger_at(store, anchor)
    assert ledger.threads() == ["order-7"]
    with pytest.raises(RolledBack) as refusal:
        ledger.latest("order-7")
    assert refusal.value.what == "order-7 is gone, and the anchor has seen #3."


@pytest.mark.parametrize("length", [1, 2, 5])
def test_fork_is_refused(store: Path, anchor: Anchor, tmp_path: Path, length: int) -> None:
    """A second history by a holder of the key, as long as the anchored one or longer."""
    fill(store, anchor, 2)
    copytree(store, tmp_path / "snapshot")
    fill(store, anchor, 1)
    restore(tmp_path / "snapshot", store)
    fill(store, None, length)
    for use in (*USES[:1], *USES[2:]):
        with pytest.raises(Forked) as refusal:
            use(ledger_at(store, anchor))
        assert str(refusal.value) == (
            "order-7 #3 is not the record that the anchor has seen there. Two histories exist, and"
            " the store shows the other one. Nothing was loaded: restore the copy that the anchor"
            " knows, and replace the key if nobody rewrote it on purpose."
        )


def test_two_copies_in_use_cannot_both_move_the_anchor(
    store: Path, anchor: Anchor, tmp_path: Path
) -> None:
    fill(store, anchor, 1)
    copytree(store, tmp_path / "copy")
    one, two = ledger_at(store, anchor, every=9), ledger_at(tmp_path / "copy", anchor, every=9)
    two.save("order-7", {"by": "two"})
    one.save("order-7", {"by": "one"}, anchor="now")
    with pytest.raises(Forked):
        two.anchor_now("order-7")
    assert ledger_at(store, anchor).latest("order-7").state == {"by": "one"}


def test_stolen_key_cannot_rewrite_the_anchored_past(store: Path, anchor: Anchor) -> None:
    """Not from the first record on, with every link and signature made right."""
    fill(store, anchor, 3)
    rmtree(store / "order-7")
    thief = ledger_at(store)
    for number in (1, 2, 3, 4):
        thief.save("order-7", {"n": -number})
    assert ledger_at(store).verify("order-7") == 4
    for use in (USES[0], USES[2]):
        with pytest.raises(Forked):
            use(ledger_at(store, anchor))


def test_unlinked_record_above_the_anchor_is_refused(
    store: Path, anchor: Anchor, tmp_path: Path
) -> None:
    """The head must extend the anchored record link by link, not only stand above it."""
    fill(store, anchor, 1)
    copytree(store, tmp_path / "other")
    fill(store, None, 2)
    fill(tmp_path / "other", None, 2)
    name = "order-7/0000000003.checkpoint"
    (store / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(WrongPlace) as refusal:
        ledger_at(store, anchor).latest("order-7")
    assert refusal.value.what == "order-7 #3 does not follow the #2 that is stored."


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
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    KEYS.signing.to_file(tmp_path / "key")
    fill(tmp_path / "state", anchor, before)
    script = textwrap.dedent(KILLED)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == -9
    known = anchor.read("invoices", "order-7")
    assert (known.sequence if known else 0) == before
    ledger = ledger_at(tmp_path / "state", anchor)
    assert ledger.latest("order-7").state == {"n": "saved"}
    assert ledger.verify("order-7") == before + 1
    saved = ledger.save("order-7", {"n": "next"})
    assert anchor.read("invoices", "order-7") == Head(before + 2, saved.digest)


def test_anchoring_of_an_existing_store(store: Path, anchor: Anchor) -> None:
    """Before it, nothing is known; after it, what was there is safe."""
    fill(store, None, 3)
    ledger = ledger_at(store, anchor)
    assert list(anchor.threads("invoices")) == []
    assert ledger.anchor_now("order-7") == Head(3, ledger.latest("order-7").digest)
    cut(store, 2)
    with pytest.raises(RolledBack):
        ledger_at(store, anchor).latest("order-7")


def test_a_thread_that_does_not_verify_is_not_anchored(store: Path, anchor: Anchor) -> None:
    fill(store, None, 3)
    names = [store / f"order-7/000000000{n}.checkpoint" for n in (1, 2)]
    first, second = (name.read_bytes() for name in names)
    names[0].write_bytes(second)
    names[1].write_bytes(first)
    with pytest.raises(WrongPlace):
        ledger_at(store, anchor).anchor_now("order-7")
    assert anchor.read("invoices", "order-7") is None


def test_anchor_inside_the_storage_is_refused(store: Path) -> None:
    fill(store, None, 1)
    with pytest.raises(ConfigurationError, match="is in one place with the storage"):
        ledger_at(store, FileAnchor(store / "anchor", create=True))


def test_removed_anchor_is_refused_and_not_begun_anew(store: Path, tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    fill(store, anchor, 2)
    rmtree(tmp_path / "anchor")
    with pytest.raises(AnchorUnavailable, match="is gone, and with it the anchor"):
        ledger_at(store, anchor).latest("order-7")
    with pytest.raises(AnchorUnavailable, match="so no rollback would be noticed"):
        FileAnchor(tmp_path / "anchor")


def test_anchor_of_another_store_is_refused(store: Path, tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    fill(store, anchor, 2)
    other = Ledger(FileCheckpointStorage(store), store="payments", keys=KEYS, anchor=anchor)
    with pytest.raises(AnchorMismatch, match="belongs to store invoices"):
        other.latest("order-7")


def test_an_anchor_that_is_restored_with_the_storage_notices_nothing(
    store: Path, tmp_path: Path
) -> None:
    """Where it stops helping, as the page says."""
    fill(store, FileAnchor(tmp_path / "anchor", create=True), 1)
    for name in ("state", "anchor"):
        copytree(tmp_path / name, tmp_path / f"{name}-copy")
    fill(store, FileAnchor(tmp_path / "anchor"), 1)
    for name in ("state", "anchor"):
        restore(tmp_path / f"{name}-copy", tmp_path / name)
    assert ledger_at(store, FileAnchor(tmp_path / "anchor")).latest("order-7").sequence == 1
