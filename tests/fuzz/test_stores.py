"""A whole store in the hands of somebody who can write it: the truth, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safepoint import (
    CheckpointError,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
)
from tests.house import Memory

KEYS = Keyring(SigningKey.generate())
THREADS = ("order-7", "order-8")
LENGTH = 5

Records = dict[tuple[str, int], bytes]


def build(branch: str) -> tuple[InMemoryCheckpointStorage, InMemoryAnchor]:
    storage, anchor = InMemoryCheckpointStorage(), InMemoryAnchor()
    ledger = Ledger(storage, store="invoices", keys=KEYS, anchor=anchor)
    for thread in THREADS:
        for number in range(1, LENGTH + 1):
            ledger.save(thread, {"thread": thread, "n": number, "branch": branch})
    return storage, anchor


def records_of(storage: InMemoryCheckpointStorage) -> Records:
    return {
        (thread, sequence): storage.read(thread, sequence)
        for thread in THREADS
        for sequence in range(1, LENGTH + 1)
    }


STORAGE, ANCHOR = build("ours")
OURS = records_of(STORAGE)
THEIRS = records_of(build("theirs")[0])
PLACES = sorted(OURS)
ANY_PLACE = st.sampled_from([*PLACES, *((thread, LENGTH + 1) for thread in THREADS)])

Change = Callable[[Records], None]


def copy(source: Records, origin: tuple[str, int], place: tuple[str, int]) -> Change:
    return lambda records: records.__setitem__(place, source[origin])


def remove(place: tuple[str, int]) -> Change:
    return lambda records: (records.pop(place, None), None)[1]


def flip(place: tuple[str, int], at: int, bit: int) -> Change:
    def change(records: Records) -> None:
        record = bytearray(records.get(place, b""))
        if record:
            record[at % len(record)] ^= 1 << bit
            records[place] = bytes(record)

    return change


CHANGES = st.lists(
    st.one_of(
        st.builds(copy, st.sampled_from([OURS, THEIRS]), st.sampled_from(PLACES), ANY_PLACE),
        st.builds(remove, ANY_PLACE),
        st.builds(flip, ANY_PLACE, st.integers(0, 2_000), st.integers(0, 7)),
    ),
    min_size=1,
    max_size=8,
)


def tampered(changes: list[Change]) -> Memory:
    records = dict(OURS)
    for change in changes:
        change(records)
    storage = Memory()
    for (thread, sequence), record in records.items():
        storage.put(thread, sequence, record)
    return storage


def asked(question: Callable[[], Any]) -> Any:
    """The answer, or None if the ledger refused."""
    try:
        return question()
    except CheckpointError:
        return None


@given(CHANGES)
def test_an_anchored_ledger_says_the_truth_or_nothing(changes: list[Change]) -> None:
    storage = tampered(changes)
    for thread in THREADS:
        ledger = Ledger(storage, store="invoices", keys=KEYS, anchor=ANCHOR)
        truth = [
            {"thread": thread, "n": number, "branch": "ours"} for number in range(1, LENGTH + 1)
        ]
        latest = asked(lambda: ledger.latest(thread).state)  # noqa: B023  used at once
        assert latest in (None, truth[-1])
        whole = asked(lambda: [c.state for c in ledger.history(thread)])  # noqa: B023
        assert whole in (None, truth)
        if asked(lambda: ledger.verify(thread)) is not None:  # noqa: B023
            untouched = all(
                storage.read(thread, n).split(b"\n", 1)[1] == OURS[thread, n].split(b"\n", 1)[1]
                for n in range(1, LENGTH + 1)
            )
            assert untouched, "verify passed over a record that is not ours"


@given(CHANGES)
def test_a_signed_chain_without_an_anchor_never_shows_a_thread_as_another(
    changes: list[Change],
) -> None:
    storage = tampered(changes)
    for thread in THREADS:
        ledger = Ledger(storage, store="invoices", keys=KEYS)
        latest = asked(lambda: ledger.latest(thread).state)  # noqa: B023  used at once
        assert latest is None or latest["thread"] == thread
        whole = asked(lambda: [c.state for c in ledger.history(thread)])  # noqa: B023
        if whole:
            assert [state["n"] for state in whole] == list(range(1, len(whole) + 1))
            assert len({state["branch"] for state in whole}) == 1, "two branches were spliced"
