"""What holds for every anchor: heads move forward alone, and two histories are seen."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safepoint.anchor import Anchor, FileAnchor, InMemoryAnchor, SQLiteAnchor, is_further
from safepoint.errors import AnchorMismatch, ConfigurationError, Forked, InvalidId
from safepoint.names import Head, Heads

Each = InMemoryAnchor | FileAnchor | SQLiteAnchor
KINDS = ["memory", "file", "sqlite"]


def head(sequence: int, digit: str = "a") -> Head:
    return Head(sequence, f"sha256:{digit * 64}")


def made(kind: str, folder: Path) -> Each:
    if kind == "memory":
        return InMemoryAnchor()
    if kind == "file":
        return FileAnchor(folder / "anchor", create=True)
    return SQLiteAnchor(folder / "anchor/heads.db", create=True)


@pytest.fixture(params=KINDS)
def anchor(request: pytest.FixtureRequest, tmp_path: Path) -> Each:
    return made(request.param, tmp_path)


def test_threads_are_apart_and_listed_in_order(anchor: Each) -> None:
    """Through both contracts, whose types fit (checked by mypy). None means never seen."""
    contract: Anchor = anchor
    known: Heads = anchor
    assert (known.read("s", "t"), list(contract.threads("s"))) == (None, [])
    for number, thread in enumerate(["b", "a-1", "store", "c" * 64], 1):
        contract.advance("s", thread, head(number))
    assert list(contract.threads("s")) == ["a-1", "b", "c" * 64, "store"]
    assert [known.read("s", thread) for thread in ("b", "store", "t")] == [head(1), head(3), None]


def test_rewind_sets_an_older_head_or_forgets_one_thread(anchor: Each) -> None:
    anchor.advance("s", "t", head(5))
    anchor.advance("s", "u", head(6))
    anchor.rewind("s", "t", head(2, "b"))
    assert anchor.read("s", "t") == head(2, "b")
    anchor.advance("s", "t", head(3))
    assert anchor.read("s", "t") == head(3)
    for _ in range(2):
        anchor.rewind("s", "t", None)
        assert (anchor.read("s", "t"), anchor.threads("s")) == (None, ["u"])


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a.head", "é", "a\n", "x" * 65, "con", 7])
def test_a_name_outside_the_grammar_never_reaches_a_file(anchor: Each, name: Any) -> None:
    for store, thread in ((name, "t"), ("s", name)):
        for call in (
            lambda store=store, thread=thread: anchor.read(store, thread),
            lambda store=store, thread=thread: anchor.advance(store, thread, head(1)),
            lambda store=store, thread=thread: anchor.rewind(store, thread, None),
            lambda: anchor.threads(name),
        ):
            with pytest.raises(InvalidId, match=r"name|device"):
                call()
    assert anchor.threads("s") == []


@pytest.mark.parametrize("wrong", [5, (5, "sha256:" + "a" * 64), "5"])
def test_what_is_not_a_head_is_refused(anchor: Each, wrong: Any) -> None:
    anchor.advance("s", "t", head(5))
    for call in (anchor.advance, anchor.rewind):
        with pytest.raises(ConfigurationError) as caught:
            call("s", "t", wrong)
        assert str(caught.value) == (
            f"A head was asked for, and {type(wrong).__name__} was given."
            " Pass safepoint.record.Head(sequence, digest)."
        )
    assert anchor.read("s", "t") == head(5)


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_an_anchor_belongs_to_the_store_that_came_first(tmp_path: Path, kind: str) -> None:
    """A call that is refused, or that only reads, binds it to none."""
    anchor, late = made(kind, tmp_path), made(kind, tmp_path)
    assert (anchor.read("orders", "a"), anchor.threads("orders")) == (None, [])
    with pytest.raises(InvalidId):
        anchor.advance("orders", "A", head(1))
    anchor.advance("invoices", "a", head(1))
    for each in (anchor, late, made(kind, tmp_path)):
        refused = pytest.raises(AnchorMismatch, match="belongs to store invoices, and was asked")
        with refused:
            each.read("orders", "a")
        with refused:
            each.advance("orders", "a", head(2))
        with refused:
            each.threads("orders")
        with refused:
            each.rewind("orders", "a", None)
    assert anchor.read("invoices", "a") == head(1)


def test_anchors_in_memory_hold_several_stores() -> None:
    anchor = InMemoryAnchor()
    anchor.advance("one", "t", head(1))
    anchor.advance("two", "t", head(2))
    anchor.rewind("two", "u", head(3))
    assert (anchor.read("one", "t"), anchor.read("two", "t")) == (head(1), head(2))
    assert (anchor.threads("one"), anchor.threads("two")) == (["t"], ["t", "u"])
    assert repr(anchor) == "InMemoryAnchor(<3 threads>)"


def test_threads_of_one_process_never_move_a_head_back(anchor: Each) -> None:
    """Each of 4 threads advances by its own order; a reader looks on."""
    seen: list[int] = []
    orders = [range(1, 16), range(15, 0, -1), range(1, 16, 2), range(2, 16, 3)]
    failed: list[BaseException] = []

    def advance(order: range) -> None:
        try:
            for sequence in order:
                anchor.advance("s", "t", head(sequence))
        except BaseException as error:  # noqa: BLE001  a thread's error is nobody's otherwise
            failed.append(error)

    writers = [Thread(target=advance, args=[order]) for order in orders]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        found = anchor.read("s", "t")
        seen.append(found.sequence if found else 0)
    for writer in writers:
        writer.join()
    assert failed == []
    assert seen == sorted(seen)
    assert anchor.read("s", "t") == head(15)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@given(st.lists(st.builds(head, st.integers(1, 6), st.sampled_from("ab")), max_size=12))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@pytest.mark.parametrize("kind", KINDS)
def test_any_sequence_of_heads_moves_forward_alone(
    folder: Path, kind: str, heads: list[Head]
) -> None:
    """The anchor holds the first record that it saw at the highest sequence that it saw."""
    (folder / kind).mkdir(exist_ok=True)
    anchor = made(kind, folder / kind)
    anchor.rewind("s", "t", None)
    known: Head | None = None
    for new in heads:
        if known is not None and new.sequence == known.sequence and new.digest != known.digest:
            with pytest.raises(Forked) as caught:
                anchor.advance("s", "t", new)
            assert str(caught.value) == (
                f"t {new} is not the record that the anchor has seen there. Two copies of the"
                " store are in use, or one was rewritten. The anchor was not moved: find out which"
                " copy is the right one before you save again."
            )
        else:
            anchor.advance("s", "t", new)
            if is_further("t", known, new):
                known = new
        assert anchor.read("s", "t") == known
