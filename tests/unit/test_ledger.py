"""The ledger: what it promises to an application."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from safepoint import (
    CheckpointStorage,
    Conflict,
    DecodeError,
    EncodeError,
    InMemoryCheckpointStorage,
    InvalidId,
    Keyring,
    Ledger,
    LimitExceeded,
    NotFound,
    RolledBack,
    SealBroken,
    SealError,
    SigningKey,
    StorageUnavailable,
    WrongPlace,
)
from safepoint.record import Place, seal

KEYS = Keyring(SigningKey.generate())


class Tampered(InMemoryCheckpointStorage):
    """A storage whose owner can replace what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: dict[tuple[str, int], bytes] = {}

    def read(self, thread: str, sequence: int) -> bytes:
        planted = self.replaced.get((thread, sequence))
        return super().read(thread, sequence) if planted is None else planted


def open_ledger(storage: CheckpointStorage | None = None, store: str = "invoices") -> Ledger:
    return Ledger(storage or InMemoryCheckpointStorage(), store=store, keys=KEYS)


def test_what_was_saved_is_loaded() -> None:
    ledger = open_ledger()
    saved = ledger.save("order-7", {"amount": 42}, app="invoice")
    loaded = ledger.latest("order-7")
    assert loaded == saved
    assert (loaded.sequence, loaded.previous, loaded.app) == (1, None, "invoice")
    assert loaded.state == {"amount": 42}
    assert datetime.now(UTC) - loaded.created < timedelta(minutes=1)


def test_sequences_count_and_link() -> None:
    ledger = open_ledger()
    checkpoints = [ledger.save("order-7", n) for n in range(5)]
    assert [c.sequence for c in checkpoints] == [1, 2, 3, 4, 5]
    assert [c.previous for c in checkpoints[1:]] == [c.digest for c in checkpoints[:-1]]
    assert list(ledger.history("order-7")) == checkpoints


def test_threads_do_not_meet() -> None:
    ledger = open_ledger()
    ledger.save("b", 1)
    ledger.save("a", 2)
    assert (ledger.latest("a").state, ledger.latest("b").state) == (2, 1)
    assert ledger.threads() == ["a", "b"]


def test_changing_a_loaded_state_changes_nothing_stored() -> None:
    ledger = open_ledger()
    state = {"items": [1]}
    ledger.save("order-7", state)
    state["items"].append(2)
    ledger.latest("order-7").state["items"].append(3)
    assert ledger.latest("order-7").state == {"items": [1]}


def test_a_thread_without_a_checkpoint_is_not_found() -> None:
    with pytest.raises(NotFound) as refusal:
        open_ledger().latest("order-7")
    assert str(refusal.value) == (
        "There is no checkpoint of order-7 in store invoices. "
        "Start the workflow, or check the name of the thread and the storage's path."
    )


def test_a_broken_newest_checkpoint_is_never_passed_over() -> None:
    """The older one is intact, and is not handed out instead."""
    storage = Tampered()
    ledger = open_ledger(storage)
    ledger.save("order-7", "old")
    ledger.save("order-7", "new")
    storage.replaced["order-7", 2] = b"garbage"
    with pytest.raises(SealError):
        ledger.latest("order-7")


def test_nothing_is_saved_on_top_of_a_checkpoint_that_does_not_verify() -> None:
    storage = Tampered()
    open_ledger(storage).save("order-7", "old")
    storage.replaced["order-7", 1] = storage.read("order-7", 1).replace(b'"old"', b'"bad"')
    with pytest.raises(SealBroken):
        open_ledger(storage).save("order-7", "new")
    assert storage.head("order-7") == 1


def test_a_record_of_another_store_under_the_same_key_is_refused() -> None:
    storage = InMemoryCheckpointStorage()
    open_ledger(storage, store="staging").save("order-7", 42)
    with pytest.raises(WrongPlace):
        open_ledger(storage, store="production").latest("order-7")


def test_history_refuses_a_replaced_middle_even_by_a_holder_of_the_key() -> None:
    storage = Tampered()
    ledger = open_ledger(storage)
    first = ledger.save("order-7", "a")
    ledger.save("order-7", "b")
    ledger.save("order-7", "c")
    place = Place("invoices", "order-7", 2)
    storage.replaced["order-7", 2], _ = seal(
        b'"x"', place, KEYS.signing, created=datetime.now(UTC), previous=first.digest
    )
    with pytest.raises(WrongPlace) as refusal:
        list(ledger.history("order-7"))
    assert str(refusal.value) == (
        "order-7 #3 does not follow the #2 that is stored. "
        "One of the two was replaced. Restore both from a copy that verifies."
    )


def test_a_save_that_builds_on_an_old_checkpoint_is_refused() -> None:
    ledger = open_ledger()
    ledger.save("order-7", 1, after=0)
    ledger.save("order-7", 2, after=1)
    with pytest.raises(Conflict) as refusal:
        ledger.save("order-7", 3, after=1)
    assert str(refusal.value) == (
        "order-7 is at #2, and this save builds on #1. "
        "Nothing was overwritten. Load the latest, and decide again."
    )
    assert ledger.latest("order-7").state == 2


def test_two_ledgers_on_one_storage_follow_each_other() -> None:
    """Neither trusts what it remembers of a head that the other has moved."""
    storage = InMemoryCheckpointStorage()
    one, two = open_ledger(storage), open_ledger(storage)
    for n in range(6):
        (one if n % 2 else two).save("order-7", n)
    assert [c.state for c in open_ledger(storage).history("order-7")] == [0, 1, 2, 3, 4, 5]


def test_many_threads_do_not_grow_the_memory_of_heads() -> None:
    ledger = open_ledger()
    for n in range(1100):
        ledger.save(f"t-{n}", n)
    ledger.save("t-0", "again")
    assert len(ledger._view._seen) <= 1024
    assert [c.state for c in ledger.history("t-0")] == [0, "again"]


@pytest.mark.parametrize("thread", ["", "..", "A", "a/b", "a\nb", None, 7])
def test_a_bad_name_reaches_no_storage(thread: str) -> None:
    class Untouchable:
        def __getattr__(self, name: str) -> object:
            def touched(*_: object) -> None:
                raise AssertionError(name)

            return touched

    ledger = Ledger(Untouchable(), store="invoices", keys=KEYS)  # type: ignore[arg-type]
    for act in (
        lambda: ledger.save(thread, 1),
        lambda: ledger.load(thread, 1),
        lambda: ledger.latest(thread),
        lambda: list(ledger.history(thread)),
    ):
        with pytest.raises(InvalidId):
            act()


@pytest.mark.parametrize("sequence", [0, -1, 1.0, "1", None, True, 10**10])
def test_a_bad_sequence_is_refused(sequence: int) -> None:
    with pytest.raises(InvalidId, match="is not a sequence number"):
        open_ledger().load("order-7", sequence)


def test_a_bad_store_name_is_refused() -> None:
    with pytest.raises(InvalidId, match="'My Store' is not a store name"):
        open_ledger(store="My Store")


@pytest.mark.parametrize("store", ["safepoint-models", "safepoint-x", "safepoint-"])
def test_a_store_name_that_is_kept_is_refused(store: str) -> None:
    """Seals of models are records of such a store: no record of a ledger may pass for one."""
    with pytest.raises(InvalidId) as caught:
        open_ledger(store=store)
    assert str(caught.value) == (
        f"'{store}' begins with 'safepoint-', which is kept for this package. Choose another store"
        " name."
    )
    open_ledger(store="safepoint")


def test_state_that_cannot_be_restored_is_not_saved() -> None:
    ledger = open_ledger()
    with pytest.raises(EncodeError):
        ledger.save("order-7", object())
    with pytest.raises(NotFound):
        ledger.latest("order-7")


def test_a_genuine_record_with_an_unregistered_type_is_refused() -> None:
    storage = InMemoryCheckpointStorage()
    place = Place("invoices", "order-7", 1)
    payload = b'{"$Invoice":{"amount":42}}'
    record, _ = seal(payload, place, KEYS.signing, created=datetime.now(UTC))
    storage.append("order-7", 1, record)
    with pytest.raises(DecodeError):
        open_ledger(storage).latest("order-7")


def test_a_custom_storage_that_raises_is_reported_as_one_error() -> None:
    class Broken:
        def append(self, thread: str, sequence: int, record: bytes) -> None:
            raise KeyError(thread)

        def read(self, thread: str, sequence: int) -> bytes:
            raise ConnectionResetError

        def head(self, thread: str) -> int:
            return 1 if thread == "there" else 0

        def threads(self) -> Iterable[str]:
            raise RuntimeError

    ledger = Ledger(Broken(), store="invoices", keys=KEYS)
    with pytest.raises(StorageUnavailable) as refusal:
        ledger.save("order-7", 1)
    assert str(refusal.value) == (
        "The storage could not keep order-7: it raised KeyError. "
        "See the error it came from, and make the storage raise errors of safepoint.errors."
    )
    with pytest.raises(StorageUnavailable, match="could not read there #1"):
        ledger.latest("there")
    with pytest.raises(StorageUnavailable, match="could not list the threads"):
        ledger.threads()


def test_a_storage_that_returns_something_else_than_bytes_is_refused() -> None:
    class Odd(InMemoryCheckpointStorage):
        def read(self, thread: str, sequence: int) -> bytes:
            return "text"  # type: ignore[return-value]

        def head(self, thread: str) -> int:
            return 1

    with pytest.raises(StorageUnavailable, match="it raised TypeError"):
        open_ledger(Odd()).latest("order-7")


def test_a_huge_record_is_refused() -> None:
    class Endless(InMemoryCheckpointStorage):
        def read(self, thread: str, sequence: int) -> bytes:
            return b"x" * (17 * 1024 * 1024)

        def head(self, thread: str) -> int:
            return 1

    with pytest.raises(LimitExceeded):
        open_ledger(Endless()).latest("order-7")


def test_no_refusal_shows_state_or_key() -> None:
    """A canary in the state and in the key appears in no message, repr or traceback."""
    key = SigningKey(b"canary-canary-canary-canary-1234")
    storage = Tampered()
    ledger = Ledger(storage, store="invoices", keys=Keyring(key))
    saved = ledger.save("order-7", {"secret": "canary"})
    genuine = storage.read("order-7", 1)
    shown = f"{saved!r} {ledger!r}"
    planted = [b"", b"canary", genuine[:-3], genuine.replace(b"canary", b"canarY"), genuine + b"x"]
    for record in planted:
        storage.replaced["order-7", 1] = record
        try:
            ledger.latest("order-7")
        except SealError:
            shown += traceback.format_exc()
    assert shown.count("Traceback") == len(planted)
    assert "canary" not in shown


def test_a_thread_that_shrinks_while_the_process_runs_is_refused() -> None:
    """The ledger remembers what it wrote: an older end is not taken for the end."""
    storage = InMemoryCheckpointStorage()
    ledger = open_ledger(storage)
    for n in range(3):
        ledger.save("order-7", n)
    older = InMemoryCheckpointStorage()
    older.append("order-7", 1, storage.read("order-7", 1))
    ledger._view.storage = older
    with pytest.raises(RolledBack) as refusal:
        ledger.latest("order-7")
    assert str(refusal.value) == (
        "order-7 ends at #1, and this process has seen #3. Checkpoints were cut off, or an older "
        "copy was restored, while it ran. Put back what is missing; if you restored on purpose, "
        "open the ledger anew."
    )
    with pytest.raises(RolledBack):
        ledger.save("order-7", 9)


def test_a_storage_whose_head_is_no_number_is_refused() -> None:
    class Headless(InMemoryCheckpointStorage):
        def head(self, thread: str) -> int:
            return None  # type: ignore[return-value]

    with pytest.raises(StorageUnavailable, match="could not find the latest of order-7"):
        open_ledger(Headless()).latest("order-7")


@pytest.mark.parametrize("given", [[], [b"x"], ["text", "text"]])
def test_a_storage_that_scans_too_little_is_refused(given: list[Any]) -> None:
    class Short(InMemoryCheckpointStorage):
        def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
            return iter([self.read(thread, 1), *given[1:]] if given else [])

    ledger = open_ledger(Short())
    for n in range(3):
        ledger.save("order-7", n)
    with pytest.raises(StorageUnavailable, match="could not read order-7"):
        ledger.verify("order-7")
