"""A storage, an anchor or a thief that plays foul: what is refused, and by which name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    Conflict,
    FileAnchor,
    Head,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    KeyRevoked,
    Keyring,
    Ledger,
    RecordsMissing,
    RolledBack,
    SealBroken,
    SealError,
    SigningKey,
    StorageUnavailable,
    ThreadDeleted,
    WrongPlace,
)
from safepoint.record import Place, seal
from tests.unit.tampered import KEY, KEYS, STORE, THREAD, Files, Memory, fill, opened, states

USES: list[Callable[[Ledger], object]] = [
    lambda ledger: ledger.latest(THREAD),
    lambda ledger: ledger.load(THREAD, 1),
    lambda ledger: ledger.save(THREAD, {"n": 9}),
    lambda ledger: list(ledger.history(THREAD)),
]


def sealed_after(storage: Memory | Files, head: Head, key: SigningKey = KEY) -> bytes:
    """A genuine record that goes on after `head`, as a holder of the key can make it."""
    place = Place(STORE, THREAD, head.sequence + 1)
    return seal(b'{"n":99}', place, key, created=datetime.now(UTC), previous=head.digest)[0]


@pytest.mark.parametrize("use", USES)
def test_a_record_after_an_anchored_tombstone_revives_nothing(
    storage: Memory | Files, use: Callable[[Ledger], object]
) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 3)
    tombstone = opened(storage, anchor).delete(THREAD)
    storage.put(THREAD, 5, sealed_after(storage, tombstone))
    with pytest.raises(ThreadDeleted):
        use(opened(storage, anchor))
    with pytest.raises(WrongPlace, match="says that the thread was deleted, and others follow"):
        opened(storage, anchor).verify(THREAD)


def test_what_a_revoked_key_put_on_a_tombstone_revives_nothing(storage: Memory | Files) -> None:
    anchor, frozen = InMemoryAnchor(), InMemoryAnchor()
    ledger = opened(storage, anchor)
    fill(ledger, 3)
    kept = {n: storage.read(THREAD, n) for n in (1, 2, 3)}
    tombstone = ledger.delete(THREAD)
    frozen.advance(STORE, THREAD, tombstone)
    storage.put(THREAD, 5, sealed_after(storage, tombstone))
    storage.remove_base(THREAD)
    for number, record in kept.items():
        storage.put(THREAD, number, record)
    keys = Keyring(SigningKey.generate()).revoking(KEY, until=frozen)
    for use in (lambda it: it.load(THREAD, 2), lambda it: list(it.history(THREAD))):
        with pytest.raises(ThreadDeleted):
            use(opened(storage, anchor, keys=keys))


def test_history_of_a_deleted_thread_hands_out_nothing(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    """Its old records are back, genuine as they are, beside the tombstone."""
    ledger = opened(storage, anchor)
    fill(ledger, 3)
    kept = {n: storage.read(THREAD, n) for n in (1, 2, 3)}
    ledger.delete(THREAD)
    storage.remove_base(THREAD)
    for number, record in kept.items():
        storage.put(THREAD, number, record)
    with pytest.raises(ThreadDeleted):
        next(opened(storage, anchor).history(THREAD))


def test_a_record_that_is_gone_is_missed_and_not_unknown(storage: Memory | Files) -> None:
    """It lies between the anchored record and the head, where `latest` needs it."""
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor, every=100), 8)
    storage.remove(THREAD, 4)

    def load(ledger: Ledger) -> object:
        return ledger.load(THREAD, 4)

    for use in (load, USES[0], *USES[2:]):
        with pytest.raises(RecordsMissing):
            use(opened(storage, anchor, every=100))


def test_a_record_that_goes_while_it_is_looked_for_is_missed() -> None:
    class Vanishing(Memory):
        def head(self, thread: str) -> int:
            found = super().head(thread)
            self._records[thread].pop(found, None)
            return found

    storage, anchor = Vanishing(), InMemoryAnchor()
    plain = Memory()
    fill(opened(plain, anchor), 3)
    storage._records, storage._heads = plain._records, plain._heads
    with pytest.raises(RecordsMissing) as refusal:
        opened(storage, anchor).latest(THREAD)
    assert str(refusal.value) == (
        "order-7 #3 is gone, and nothing signed says that it was pruned. Somebody removed it."
        " Restore it from a copy that verifies."
    )


class Sly(bytes):
    """Bytes that hash as what they are, and slice as something else."""

    def __getitem__(self, key: Any) -> Any:
        return b'{"n":5000000}' if isinstance(key, slice) else super().__getitem__(key)


def test_bytes_that_are_more_than_bytes_are_refused() -> None:
    class Hostile(InMemoryCheckpointStorage):
        def read(self, thread: str, sequence: int) -> bytes:
            return Sly(super().read(thread, sequence))

    storage = Hostile()
    fill(opened(storage), 2)
    for use in (USES[0], USES[1], USES[3]):
        with pytest.raises(StorageUnavailable):
            use(opened(storage))


def test_the_moving_anchor_is_no_point_of_revocation(tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    again = FileAnchor(tmp_path / "anchor")
    for until in (anchor, again):
        keys = Keyring(SigningKey.generate()).revoking(KEY, until=until)
        with pytest.raises(ConfigurationError) as refusal:
            Ledger(Memory(), store=STORE, keys=keys, anchor=anchor)
        assert (
            refusal.value.what
            == f"Key {KEY.id} is revoked until the anchor that this ledger moves."
        )
        assert 'until=FileAnchor("anchor-before")' in refusal.value.do


def test_a_point_of_revocation_needs_an_anchor() -> None:
    """Without one, a thief could rewrite what is before the point, and cut it off there."""
    keys = Keyring(SigningKey.generate()).revoking(KEY, until=InMemoryAnchor())
    with pytest.raises(ConfigurationError, match="is revoked from a point on, and this ledger has"):
        opened(Memory(), keys=keys)
    opened(Memory(), keys=Keyring(SigningKey.generate()).revoking(KEY, until=None))


def test_a_thiefs_record_over_an_anchored_tombstone_revives_nothing(
    storage: Memory | Files,
) -> None:
    anchor, frozen = InMemoryAnchor(), InMemoryAnchor()
    new = SigningKey.generate()
    fill(opened(storage, anchor), 3)
    head = anchor.read(STORE, THREAD)
    assert head is not None
    frozen.advance(STORE, THREAD, head)
    kept = {n: storage.read(THREAD, n) for n in (1, 2, 3)}
    keys = Keyring(new).revoking(KEY, until=frozen)
    opened(storage, anchor, keys=keys).delete(THREAD)
    storage.remove_base(THREAD)
    for number, record in kept.items():
        storage.put(THREAD, number, record)
    storage.put(THREAD, 4, sealed_after(storage, head))
    for use in (lambda it: it.load(THREAD, 2), lambda it: list(it.history(THREAD))):
        with pytest.raises(SealBroken):
            use(opened(storage, anchor, keys=keys))


def test_a_base_stays_as_it_is_while_what_follows_does_not_verify(
    storage: Memory | Files,
) -> None:
    """Or a refusal would leave a thief's base under the new key."""
    frozen, anchor = InMemoryAnchor(), InMemoryAnchor()
    fill(opened(storage, frozen), 5)
    opened(storage, anchor).anchor_now(THREAD)
    opened(storage, anchor).prune(THREAD, keep=3)
    genuine, before = storage.read(THREAD, 4), storage.base(THREAD)
    storage.put(THREAD, 4, b"broken")
    keys = Keyring(SigningKey.generate()).revoking(KEY, until=frozen)
    with pytest.raises(SealError):
        opened(storage, anchor, keys=keys).accept_loss(THREAD)
    assert storage.base(THREAD) == before
    storage.put(THREAD, 4, genuine)
    opened(storage, anchor, keys=keys).accept_loss(THREAD)
    assert opened(storage, anchor, keys=keys).verify(THREAD) == 3


def test_a_cut_off_end_is_told_before_a_base_that_does_not_count(
    storage: Memory | Files,
) -> None:
    frozen, anchor = InMemoryAnchor(), InMemoryAnchor()
    fill(opened(storage, frozen), 5)
    opened(storage, anchor).anchor_now(THREAD)
    opened(storage, anchor).prune(THREAD, keep=3)
    storage.remove(THREAD, 5)
    keys = Keyring(SigningKey.generate()).revoking(KEY, until=frozen)
    with pytest.raises(RolledBack):
        opened(storage, anchor, keys=keys).verify(THREAD)


def test_a_thief_cannot_prune_once_the_key_is_revoked(storage: Memory | Files) -> None:
    anchor, frozen = InMemoryAnchor(), InMemoryAnchor()
    fill(opened(storage, anchor), 5)
    fill(opened(Memory(), frozen), 5)
    head = anchor.read(STORE, THREAD)
    assert head is not None
    frozen.rewind(STORE, THREAD, head)
    opened(storage, anchor).prune(THREAD, keep=1)
    keys = Keyring(SigningKey.generate()).revoking(KEY, until=frozen)
    for use in (Ledger.verify, states):
        with pytest.raises(KeyRevoked, match="The base of order-7 at #5 is sealed by key"):
            use(opened(storage, anchor, keys=keys), THREAD)


def test_destroyed_signatures_show_when_every_one_is_asked_for(storage: Memory | Files) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 4)
    line_1, rest = storage.read(THREAD, 2).split(b"\n", 1)
    storage.put(THREAD, 2, line_1[:-5] + b"AAAA=\n" + rest)
    assert opened(storage, anchor).verify(THREAD) == 4
    with pytest.raises(SealBroken):
        opened(storage, anchor).verify(THREAD, every_signature=True)


@pytest.mark.parametrize("names", [[None], ["a", 7], 5])
def test_threads_that_are_no_names_are_refused(names: Any) -> None:
    class Storage(InMemoryCheckpointStorage):
        def threads(self) -> list[str]:
            return names  # type: ignore[no-any-return]

    class Anchor(InMemoryAnchor):
        def threads(self, store: str) -> list[str]:
            return names  # type: ignore[no-any-return]

    with pytest.raises(StorageUnavailable, match="could not list the threads"):
        opened(Storage()).threads()
    with pytest.raises(AnchorUnavailable, match="could not list the threads"):
        opened(Memory(), Anchor()).threads()


def test_a_storage_whose_attributes_fail_stays_inside_the_tree() -> None:
    class Proxy(InMemoryCheckpointStorage):
        away = False

        def __getattribute__(self, name: str) -> Any:
            if name in ("base", "scan", "prune", "path") and Proxy.away:
                raise ConnectionError
            return super().__getattribute__(name)

    storage = Proxy()
    ledger = opened(storage)
    fill(ledger, 2)
    Proxy.away = True
    for use in (ledger.verify, lambda thread: ledger.prune(thread, keep=1), ledger.delete):
        with pytest.raises(CheckpointError):
            use(THREAD)
    opened(storage).latest(THREAD)


def test_an_absurd_number_to_build_on_is_a_conflict() -> None:
    with pytest.raises(Conflict, match="this save builds on #"):
        opened(Memory()).save(THREAD, {}, after=10**5000)


def test_a_prune_and_a_save_between_two_questions_are_no_alarm() -> None:
    """Without an anchor, too: the head that was asked for is gone, and a later one is there."""

    class Busy(Memory):
        rounds = 0

        def read(self, thread: str, sequence: int) -> bytes:
            if self.rounds:
                self.rounds -= 1
                other = opened(self)
                rounds, self.rounds = self.rounds, 0
                other.save(thread, {"n": sequence + 1})
                other.prune(thread, keep=1)
                self.rounds = rounds
            return super().read(thread, sequence)

    storage = Busy()
    fill(opened(storage), 3)
    storage.rounds = 2
    assert opened(storage).latest(THREAD).state == {"n": 5}


def test_verify_does_not_follow_a_storage_that_changes_its_beginning_for_ever() -> None:
    class Turning(Memory):
        turn = 0
        bases: tuple[tuple[int, bytes], ...] = ()

        def base(self, thread: str) -> tuple[int, bytes] | None:
            self.turn += 1
            return self.bases[self.turn % 2] if self.bases else super().base(thread)

    storage = Turning()
    ledger = Ledger(storage, store=STORE, keys=KEYS)
    fill(ledger, 6)
    found = []
    for keep in (4, 2):
        ledger.prune(THREAD, keep=keep)
        base = Memory.base(storage, THREAD)
        assert base is not None
        found.append(base)
    storage.bases = (found[0], found[1])
    with suppress(CheckpointError):
        opened(storage).verify(THREAD)
    assert storage.turn < 200
