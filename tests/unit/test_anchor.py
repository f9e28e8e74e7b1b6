"""What holds for every anchor: heads move forward alone, and two histories are seen."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safepoint.anchor import Anchor, FileAnchor, InMemoryAnchor, is_further, memory
from safepoint.anchor.base import checked
from safepoint.errors import ConfigurationError, Forked, InvalidId
from safepoint.names import Head, Heads


def head(sequence: int, digit: str = "a") -> Head:
    return Head(sequence, f"sha256:{digit * 64}")


@pytest.fixture(params=["memory", "file"])
def anchor(request: pytest.FixtureRequest, tmp_path: Path) -> InMemoryAnchor | FileAnchor:
    if request.param == "memory":
        return InMemoryAnchor()
    return FileAnchor(tmp_path / "anchor", create=True)


def test_it_is_an_anchor_and_a_memory_of_heads(anchor: InMemoryAnchor | FileAnchor) -> None:
    """The types of both contracts fit (checked by mypy), and it works through them."""
    contract: Anchor = anchor
    known: Heads = anchor
    contract.advance("s", "t", head(1))
    assert known.read("s", "t") == head(1)
    assert list(contract.threads("s")) == ["t"]


def test_a_thread_that_was_never_seen_has_no_head(anchor: Anchor) -> None:
    assert anchor.read("s", "t") is None
    anchor.advance("s", "t", head(1))
    assert anchor.read("s", "u") is None


def test_a_head_moves_forward_by_any_distance(anchor: Anchor) -> None:
    for sequence in (1, 2, 57, 9_999_999_999):
        anchor.advance("s", "t", head(sequence))
        assert anchor.read("s", "t") == head(sequence)


@pytest.mark.parametrize("late", [head(1), head(4, "b"), head(5)], ids=["1", "4 of another", "5"])
def test_an_older_head_or_the_same_is_ignored(anchor: Anchor, late: Head) -> None:
    anchor.advance("s", "t", head(5))
    anchor.advance("s", "t", late)
    assert anchor.read("s", "t") == head(5)


def test_another_record_at_the_same_sequence_is_a_fork(anchor: Anchor) -> None:
    anchor.advance("s", "t", head(5))
    with pytest.raises(Forked) as caught:
        anchor.advance("s", "t", head(5, "b"))
    assert str(caught.value) == (
        "t #5 is not the record that the anchor has seen there. Two copies of the store are in"
        " use, or one was rewritten. The anchor was not moved: find out which copy is the right"
        " one before you save again."
    )
    assert anchor.read("s", "t") == head(5)


def test_threads_are_apart_and_listed_in_order(anchor: Anchor) -> None:
    assert list(anchor.threads("s")) == []
    for number, thread in enumerate(["b", "a-1", "store", "c" * 64], 1):
        anchor.advance("s", thread, head(number))
    assert list(anchor.threads("s")) == ["a-1", "b", "c" * 64, "store"]
    assert anchor.read("s", "b") == head(1)
    assert anchor.read("s", "store") == head(3)


def test_rewind_sets_an_older_head(anchor: InMemoryAnchor | FileAnchor) -> None:
    anchor.advance("s", "t", head(5))
    anchor.rewind("s", "t", head(2, "b"))
    assert anchor.read("s", "t") == head(2, "b")
    anchor.advance("s", "t", head(3))
    assert anchor.read("s", "t") == head(3)


def test_rewind_to_none_forgets_one_thread(anchor: InMemoryAnchor | FileAnchor) -> None:
    anchor.advance("s", "t", head(5))
    anchor.advance("s", "u", head(6))
    for _ in range(2):
        anchor.rewind("s", "t", None)
        assert anchor.read("s", "t") is None
    assert anchor.threads("s") == ["u"]
    assert anchor.read("s", "u") == head(6)


CALLS: dict[str, Callable[[InMemoryAnchor | FileAnchor, str, str], object]] = {
    "read": lambda anchor, store, thread: anchor.read(store, thread),
    "advance": lambda anchor, store, thread: anchor.advance(store, thread, head(1)),
    "rewind": lambda anchor, store, thread: anchor.rewind(store, thread, None),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a.head", "é", "a\n", "x" * 65, "con", 7])
def test_a_name_outside_the_grammar_never_reaches_a_file(
    anchor: InMemoryAnchor | FileAnchor,
    call: Callable[[InMemoryAnchor | FileAnchor, str, str], object],
    name: str,
) -> None:
    for store, thread, kind in ((name, "t", "store"), ("s", name, "thread")):
        with pytest.raises(InvalidId, match=f"{kind} name|device"):
            call(anchor, store, thread)
    with pytest.raises(InvalidId):
        anchor.threads(name)
    assert anchor.threads("s") == []


@pytest.mark.parametrize("wrong", [None, 5, (5, "sha256:" + "a" * 64), "5"])
def test_what_is_not_a_head_is_refused(anchor: Anchor, wrong: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        anchor.advance("s", "t", wrong)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"A head was asked for, and {type(wrong).__name__} was given."
        " Pass safepoint.record.Head(sequence, digest)."
    )
    assert anchor.read("s", "t") is None


def test_rewind_to_what_is_not_a_head_is_refused(anchor: InMemoryAnchor | FileAnchor) -> None:
    anchor.advance("s", "t", head(5))
    with pytest.raises(ConfigurationError):
        anchor.rewind("s", "t", 4)  # type: ignore[arg-type]
    assert anchor.read("s", "t") == head(5)


def test_a_subclass_or_a_copy_of_a_head_counts_by_what_it_says() -> None:
    assert is_further("t", None, head(1))
    assert not is_further("t", head(1), Head(1, head(1).digest))
    assert checked(head(1)) == head(1)


def test_anchors_in_memory_hold_several_stores() -> None:
    anchor = InMemoryAnchor()
    anchor.advance("one", "t", head(1))
    anchor.advance("two", "t", head(2))
    anchor.rewind("two", "u", head(3))
    assert (anchor.read("one", "t"), anchor.read("two", "t")) == (head(1), head(2))
    assert (anchor.threads("one"), anchor.threads("two")) == (["t"], ["t", "u"])
    assert repr(anchor) == "InMemoryAnchor(<3 threads>)"


def test_threads_of_one_process_never_move_a_head_back(
    anchor: InMemoryAnchor | FileAnchor,
) -> None:
    """Each of 4 threads advances by its own order; a reader looks on."""
    seen: list[int] = []
    orders = [range(1, 26), range(25, 0, -1), range(1, 26, 2), range(2, 26, 3)]
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
    assert anchor.read("s", "t") == head(25)


def test_in_memory_the_comparison_and_the_write_are_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The older head is compared first, and would be written last."""
    anchor, compared = InMemoryAnchor(), Event()

    def slow(thread: str, known: Head | None, new: Head) -> bool:
        further = is_further(thread, known, new)
        compared.set()
        time.sleep(0.05 if new == head(1) else 0)
        return further

    monkeypatch.setattr(memory, "is_further", slow)
    older = Thread(target=anchor.advance, args=["s", "t", head(1)])
    older.start()
    assert compared.wait(5)
    anchor.advance("s", "t", head(2))
    older.join()
    assert anchor.read("s", "t") == head(2)


HEADS = st.lists(st.builds(head, st.integers(1, 6), st.sampled_from("ab")), max_size=12)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@given(heads=HEADS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_any_sequence_of_heads_moves_forward_alone(
    folder: Path, kind: str, heads: list[Head]
) -> None:
    """The anchor holds the first record that it saw at the highest sequence that it saw."""
    anchor: InMemoryAnchor | FileAnchor
    anchor = InMemoryAnchor() if kind == "memory" else FileAnchor(folder / "a", create=True)
    anchor.rewind("s", "t", None)
    known: Head | None = None
    for new in heads:
        fork = known is not None and new.sequence == known.sequence and new.digest != known.digest
        if fork:
            with pytest.raises(Forked):
                anchor.advance("s", "t", new)
        else:
            anchor.advance("s", "t", new)
            if known is None or new.sequence > known.sequence:
                known = new
        assert anchor.read("s", "t") == known
