"""SP14: a past that was changed does not link up, whatever it is changed into."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from shutil import copytree

import pytest

from safepoint import (
    CheckpointError,
    FileCheckpointStorage,
    InMemoryAnchor,
    Keyring,
    Ledger,
    SealBroken,
    SigningKey,
)
from safepoint.errors import WrongPlace
from safepoint.names import digest_of
from safepoint.record import Place, open_sealed, seal

KEYS = Keyring(SigningKey.generate())
NOT_LINKED = "One of the two was replaced. Restore both from a copy that verifies."


def ledger_at(path: Path, anchor: InMemoryAnchor | None = None) -> Ledger:
    """As a new process would open it."""
    return Ledger(FileCheckpointStorage(path), store="invoices", keys=KEYS, anchor=anchor)


def record(path: Path, sequence: int) -> Path:
    return path / "order-7" / f"{sequence:010}.checkpoint"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with order-7 at #5, and another history of it, from #3 on, in a folder `other`."""
    path = tmp_path / "state"
    for answer in ("start", "ask"):
        ledger_at(path).save("order-7", {"answer": answer})
    copytree(path, tmp_path / "other")
    for branch, answer in ((path, "no"), (tmp_path / "other", "yes")):
        ledger = ledger_at(branch)
        for _ in range(3):
            ledger.save("order-7", {"answer": answer})
    return path


def test_edit_and_rehash_is_refused(store: Path) -> None:
    """Every digest is made right again, up to the head, and no signature can be."""
    header, state = record(store, 3).read_bytes().split(b"\n")[1:3]
    edited = state.replace(b"no", b"yes")
    previous = header.replace(digest_of(state + b"\n").encode(), digest_of(edited + b"\n").encode())
    old, new = digest_of(header).encode(), digest_of(previous).encode()
    record(store, 3).write_bytes(
        record(store, 3).read_bytes().replace(header, previous).replace(state, edited)
    )
    for sequence in (4, 5):
        line_2 = record(store, sequence).read_bytes().split(b"\n")[1]
        relinked = line_2.replace(old, new)
        assert relinked != line_2
        text = record(store, sequence).read_bytes().replace(line_2, relinked)
        record(store, sequence).write_bytes(text)
        old, new = digest_of(line_2).encode(), digest_of(relinked).encode()
    with pytest.raises(SealBroken) as refusal:
        ledger_at(store).verify("order-7")
    assert refusal.value.what == "order-7 #3 was changed after it was sealed, or was never sealed."
    with pytest.raises(SealBroken):
        ledger_at(store).latest("order-7")


@pytest.mark.parametrize("spliced", [3, 4])
def test_splice_of_two_histories_is_refused(store: Path, tmp_path: Path, spliced: int) -> None:
    """Both records are genuine, and of this place; only the links tell."""
    record(store, spliced).write_bytes(record(tmp_path / "other", spliced).read_bytes())
    broken = 4 if spliced == 4 else spliced + 1
    for use in (
        lambda ledger: ledger.verify("order-7"),
        lambda ledger: list(ledger.history("order-7")),
        lambda ledger: ledger.prune("order-7", keep=1),
        lambda ledger: ledger.delete("order-7"),
    ):
        with pytest.raises(WrongPlace) as refusal:
            use(ledger_at(store))
        assert str(refusal.value) == (
            f"order-7 #{broken} does not follow the #{broken - 1} that is stored. {NOT_LINKED}"
        )


def test_history_ends_at_the_broken_link(store: Path, tmp_path: Path) -> None:
    """What it handed out before is not vouched for by anything later: go to the end, then act."""
    record(store, 3).write_bytes(record(tmp_path / "other", 3).read_bytes())
    history = ledger_at(store).history("order-7")
    assert [c.state["answer"] for c in islice(history, 3)] == ["start", "ask", "yes"]
    with pytest.raises(WrongPlace):
        next(history)


def test_splice_below_an_anchored_head_is_refused(store: Path, tmp_path: Path) -> None:
    """The links are followed back from the head; a genuine signature does not help."""
    anchor = InMemoryAnchor()
    ledger_at(store, anchor).anchor_now("order-7")
    record(store, 3).write_bytes(record(tmp_path / "other", 3).read_bytes())
    with pytest.raises(SealBroken) as refusal:
        ledger_at(store, anchor).verify("order-7")
    assert refusal.value.what == "order-7 #3 is not the one that #4 was sealed upon."


def exchanged(store: Path) -> None:
    first, second = record(store, 3).read_bytes(), record(store, 4).read_bytes()
    record(store, 3).write_bytes(second)
    record(store, 4).write_bytes(first)


def removed(store: Path) -> None:
    record(store, 3).unlink()


def removed_and_closed(store: Path) -> None:
    for sequence in (4, 5):
        record(store, sequence).rename(record(store, sequence - 1))


@pytest.mark.parametrize("change", [exchanged, removed, removed_and_closed])
def test_reordered_or_missing_middle_is_refused(
    store: Path, change: Callable[[Path], None]
) -> None:
    change(store)
    for anchor in (None, InMemoryAnchor()):
        with pytest.raises(CheckpointError, match=r"order-7.*3"):
            ledger_at(store, anchor).verify("order-7")
        with pytest.raises(CheckpointError, match=r"order-7.*3"):
            list(ledger_at(store, anchor).history("order-7"))


def test_middle_rewritten_with_a_stolen_key_is_refused(store: Path) -> None:
    """A thief who signs a new #3, linked to #2, cannot make #4 name it."""
    place = Place("invoices", "order-7", 3)
    genuine = open_sealed(record(store, 3).read_bytes(), place, KEYS)
    forged, _ = seal(
        b'{"answer":"yes"}',
        place,
        KEYS.signing,
        created=ledger_at(store).load("order-7", 3).created,
        previous=genuine.header.previous,
    )
    record(store, 3).write_bytes(forged)
    assert ledger_at(store).load("order-7", 3).state == {"answer": "yes"}
    with pytest.raises(WrongPlace) as refusal:
        ledger_at(store).verify("order-7")
    assert refusal.value.what == "order-7 #4 does not follow the #3 that is stored."


def test_load_of_an_old_one_does_not_follow_the_links(store: Path, tmp_path: Path) -> None:
    """Where it stops helping, as the page says: a genuine record of another history."""
    record(store, 3).write_bytes(record(tmp_path / "other", 3).read_bytes())
    assert ledger_at(store).load("order-7", 3).state == {"answer": "yes"}
    assert ledger_at(store).latest("order-7").state == {"answer": "no"}
