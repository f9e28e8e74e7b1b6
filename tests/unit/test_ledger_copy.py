"""Copying a store under a new key: verified first, link for link, and never over another record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    Conflict,
    FileAnchor,
    FileCheckpointStorage,
    Forked,
    Head,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InvalidId,
    KeyRefused,
    KeyRevoked,
    Keyring,
    Ledger,
    NotFound,
    RecordsMissing,
    RolledBack,
    SealBroken,
    SealError,
    SigningKey,
    StorageUnavailable,
    ThreadDeleted,
    UnknownKey,
)
from safepoint.verify import View
from tests.unit.tampered import KEY, KEYS, STORE, THREAD, Files, Memory, fill, opened, states

NEW = SigningKey.generate("ed25519")
BOTH = Keyring(NEW, verify=KEY)
OTHER = "order-8"


@pytest.fixture(params=["memory", "files"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Memory | Files:
    return Memory() if request.param == "memory" else Files(tmp_path / "store")


@pytest.fixture
def target(storage: Memory | Files, tmp_path: Path) -> Memory | Files:
    """Where to copy, of the same kind."""
    return Memory() if isinstance(storage, Memory) else Files(tmp_path / "copy")


@pytest.fixture(params=[False, True], ids=["no anchor", "anchored"])
def anchor(request: pytest.FixtureRequest) -> InMemoryAnchor | None:
    return InMemoryAnchor() if request.param else None


def new(target: Any, anchor: InMemoryAnchor | None = None) -> Ledger:
    """The ledger to copy to: it signs with the new key, and trusts no other."""
    return opened(target, anchor, keys=Keyring(NEW))


def digests(ledger: Ledger, thread: str = THREAD) -> list[str]:
    return [each.digest for each in ledger.history(thread)]


# A copy


def test_a_copy_has_all_that_the_original_has(
    storage: Memory | Files, target: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    source = opened(storage, anchor)
    fill(source, 5)
    source.save(OTHER, {"n": 1}, app="app/1", tools=f"sha256:{'a' * 64}")
    assert source.copy_to(new(target, anchor)) == 6
    copy = new(target, anchor)
    assert copy.threads() == [THREAD, OTHER]
    for thread in (THREAD, OTHER):
        assert list(copy.history(thread)) == list(source.history(thread))
        assert copy.verify(thread) == source.verify(thread)
    assert copy.save(THREAD, {"n": 6}).sequence == 6


def test_a_copy_is_sealed_by_the_new_key_alone(
    storage: Memory | Files, target: Memory | Files
) -> None:
    source = opened(storage)
    fill(source, 3)
    source.copy_to(new(target))
    for sequence in (1, 2, 3):
        record = target.read(THREAD, sequence)
        assert record.split(b" ")[1] == NEW.id.encode()
        assert record.split(b"\n")[1:] == storage.read(THREAD, sequence).split(b"\n")[1:]
    with pytest.raises(UnknownKey):
        opened(target).latest(THREAD)


def test_the_source_is_left_as_it_was(storage: Memory | Files, target: Memory | Files) -> None:
    fill(opened(storage), 3)
    before = [storage.read(THREAD, n) for n in (1, 2, 3)]
    opened(storage).copy_to(new(target))
    assert [storage.read(THREAD, n) for n in (1, 2, 3)] == before


def test_the_anchor_of_the_source_vouches_for_the_copy(
    storage: Memory | Files, target: Memory | Files
) -> None:
    """A digest does not depend on the key, so a rotation moves no anchor."""
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 5)
    before = anchor.read(STORE, THREAD)
    opened(storage, anchor).copy_to(new(target, anchor))
    assert anchor.read(STORE, THREAD) == before
    assert new(target, anchor).verify(THREAD) == 5
    target.remove(THREAD, 5)
    with pytest.raises(RolledBack, match="ends at #4, and the anchor has seen #5"):
        new(target, anchor).latest(THREAD)


def test_a_copy_with_an_anchor_of_its_own(storage: Memory | Files, target: Memory | Files) -> None:
    """It moves, so that the end of the copy cannot be cut off unnoticed either."""
    fill(opened(storage), 5)
    anchor = InMemoryAnchor()
    opened(storage).copy_to(new(target, anchor))
    assert anchor.read(STORE, THREAD) == Head(5, opened(storage).latest(THREAD).digest)


def test_a_prune_of_the_source_during_a_copy_leaves_a_whole_copy(
    storage: Memory | Files, target: Memory | Files
) -> None:
    """It falls between the look at the whole thread and the copy itself."""
    fill(opened(storage), 6)

    source = opened(storage)
    real = View._records
    calls = 0

    def records(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            opened(storage).prune(THREAD, keep=3)
        return real(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(View, "_records", records)
        try:
            source.copy_to(new(target))
        except NotFound:
            source.copy_to(new(target))
    assert new(target).verify(THREAD) == 3


def test_files_and_file_anchors(tmp_path: Path) -> None:
    def ledger(name: str, key: SigningKey) -> Ledger:
        return Ledger(
            FileCheckpointStorage(tmp_path / name),
            store=STORE,
            keys=Keyring(key),
            anchor=FileAnchor(tmp_path / "anchor", create=True),
        )

    fill(ledger("old", KEY), 3)
    assert ledger("old", KEY).copy_to(ledger("new", NEW)) == 3
    assert states(ledger("new", NEW)) == [1, 2, 3]
    assert ledger("new", NEW).save(THREAD, {"n": 4}).sequence == 4
    with pytest.raises(RolledBack, match="the anchor has seen #4"):
        ledger("old", KEY).latest(THREAD)


def test_some_threads(storage: Memory | Files, target: Memory | Files) -> None:
    source = opened(storage)
    fill(source, 2)
    fill(source, 3, OTHER)
    assert source.copy_to(new(target), threads=iter([OTHER])) == 3
    assert list(target.threads()) == [OTHER]
    assert source.copy_to(new(target), threads=[]) == 0


def test_an_empty_store(storage: Memory | Files, target: Memory | Files) -> None:
    assert opened(storage).copy_to(new(target)) == 0


def test_progress_counts_each_record(storage: Memory | Files, target: Memory | Files) -> None:
    fill(opened(storage), 3)
    shown: list[tuple[int, int]] = []
    opened(storage).copy_to(new(target), progress=lambda *given: shown.append(given))
    assert shown == [(1, 3), (2, 3), (3, 3)]


def test_out_of_a_storage_with_four_methods(target: Memory | Files) -> None:
    class Four:
        def __init__(self, inner: InMemoryCheckpointStorage) -> None:
            self.append, self.read = inner.append, inner.read
            self.head, self.threads = inner.head, inner.threads

    source = opened(Four(InMemoryCheckpointStorage()))
    fill(source, 3)
    assert source.copy_to(new(target)) == 3
    into = Four(InMemoryCheckpointStorage())
    assert source.copy_to(new(into)) == 3
    assert states(new(into)) == [1, 2, 3]


# Rotation and revocation


def test_after_a_rotation_all_is_under_the_new_key(
    storage: Memory | Files, target: Memory | Files
) -> None:
    fill(opened(storage), 3)
    rotated = opened(storage, keys=BOTH)
    for number in (4, 5):
        rotated.save(THREAD, {"n": number})
    assert rotated.copy_to(new(target)) == 5
    assert states(new(target)) == [1, 2, 3, 4, 5]


def test_what_a_thief_wrote_is_not_sealed_anew(
    storage: Memory | Files, target: Memory | Files
) -> None:
    frozen = InMemoryAnchor()
    fill(opened(storage, frozen), 3)
    opened(storage).save(THREAD, {"n": 1_000_000})
    keys = KEYS.rotated(NEW).revoking(KEY, until=frozen)
    with pytest.raises(KeyRevoked, match="order-7 #4 is sealed by key"):
        opened(storage, InMemoryAnchor(), keys=keys).copy_to(new(target))
    assert list(target.threads()) == []


def test_what_a_thief_wrote_is_not_sealed_anew_even_if_it_was_anchored(
    storage: Memory | Files, target: Memory | Files
) -> None:
    """A worker saved on top of it, with the new key, before anybody knew."""
    anchor, frozen = InMemoryAnchor(), InMemoryAnchor()
    fill(opened(storage, frozen), 3)
    opened(storage, anchor).save(THREAD, {"n": 1_000_000})
    opened(storage, anchor, keys=BOTH).save(THREAD, {"n": 5})
    keys = KEYS.rotated(NEW).revoking(KEY, until=frozen)
    with pytest.raises(KeyRevoked, match="order-7 #4 is sealed by key"):
        opened(storage, anchor, keys=keys).copy_to(new(target))
    assert list(target.threads()) == []


# Pruned and deleted threads


def test_a_pruned_thread_begins_in_the_copy_where_it_began(
    storage: Memory | Files, target: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    source = opened(storage, anchor)
    fill(source, 6)
    source.prune(THREAD, keep=3)
    assert source.copy_to(new(target, anchor)) == 3
    copy = new(target, anchor)
    assert states(copy) == [4, 5, 6]
    assert digests(copy) == digests(source)
    assert copy.verify(THREAD) == 3
    assert copy.save(THREAD, {"n": 7}).sequence == 7
    assert copy.prune(THREAD, keep=2) == 2


def test_a_deleted_thread_stays_deleted_in_the_copy(
    storage: Memory | Files, target: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    source = opened(storage, anchor)
    fill(source, 3)
    source.delete(THREAD)
    assert source.copy_to(new(target, anchor)) == 1
    copy = new(target, anchor)
    assert copy.verify(THREAD) == 1
    for use in (Ledger.latest, lambda ledger, thread: ledger.save(thread, {})):
        with pytest.raises(ThreadDeleted):
            use(copy, THREAD)


def test_a_deletion_that_was_cut_off_can_be_finished_in_the_copy(
    storage: Memory | Files, target: Memory | Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> int:
        raise Killed

    source = opened(storage)
    fill(source, 3)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "prune", killed)
        with pytest.raises(Killed):
            source.delete(THREAD)
    assert source.copy_to(new(target)) == 4
    new(target).delete(THREAD)
    assert new(target).verify(THREAD) == 1


def test_a_pruned_thread_needs_a_target_that_can_keep_its_base(storage: Memory | Files) -> None:
    class Four:
        def __init__(self) -> None:
            inner = InMemoryCheckpointStorage()
            self.append, self.read = inner.append, inner.read
            self.head, self.threads = inner.head, inner.threads

    source = opened(storage)
    fill(source, 3)
    source.prune(THREAD, keep=2)
    into = Four()
    with pytest.raises(ConfigurationError, match="Four cannot remove records"):
        source.copy_to(new(into))
    assert list(into.threads()) == []


# What does not verify


@pytest.mark.parametrize("sequence", range(1, 6))
def test_of_a_tampered_thread_nothing_is_copied(
    storage: Memory | Files,
    target: Memory | Files,
    anchor: InMemoryAnchor | None,
    sequence: int,
) -> None:
    source = opened(storage, anchor)
    fill(source, 5)
    fill(source, 5, OTHER)
    storage.put(OTHER, sequence, storage.read(THREAD, sequence))
    with pytest.raises(SealError):
        opened(storage, anchor).copy_to(new(target))
    assert list(target.threads()) == [THREAD]
    assert states(new(target)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("sequence", range(1, 6))
def test_a_broken_signature_below_the_anchor_is_not_made_good(
    storage: Memory | Files, target: Memory | Files, sequence: int
) -> None:
    """`verify` trusts the links there; a copy signs anew, so it looks at each signature first."""
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 5)
    record = storage.read(THREAD, sequence)
    line_1, rest = record.split(b"\n", 1)
    signature = line_1[29:]
    broken = line_1[:29] + (b"A" if signature[:1] != b"A" else b"B") + signature[1:]
    storage.put(THREAD, sequence, broken + b"\n" + rest)
    with pytest.raises(SealBroken):
        opened(storage, anchor).copy_to(new(target))
    assert list(target.threads()) == []


def test_of_a_thread_that_was_rolled_back_nothing_is_copied(
    storage: Memory | Files, target: Memory | Files
) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 5)
    storage.remove(THREAD, 5)
    with pytest.raises(RolledBack):
        opened(storage, anchor).copy_to(new(target))
    assert list(target.threads()) == []


def test_of_a_fork_nothing_is_copied(storage: Memory | Files, target: Memory | Files) -> None:
    anchor = InMemoryAnchor()
    fill(opened(InMemoryCheckpointStorage(), anchor), 3)
    fill(opened(storage), 5)
    with pytest.raises(Forked):
        opened(storage, anchor).copy_to(new(target))
    assert list(target.threads()) == []


def test_a_thread_that_is_gone_is_missed(storage: Memory | Files, target: Memory | Files) -> None:
    """The anchor knows it, so a copy of all threads does not pass it over."""
    anchor = InMemoryAnchor()
    fill(opened(InMemoryCheckpointStorage(), anchor), 3, OTHER)
    fill(opened(storage, anchor), 2)
    with pytest.raises(RolledBack, match="order-8 is gone, and the anchor has seen #3"):
        opened(storage, anchor).copy_to(new(target))


# Interrupted, and others


class Interrupted(BaseException):
    """As a kill or Ctrl-C."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("pruned", [0, 2, "deleted"])
@pytest.mark.parametrize("calls", range(1, 8))
def test_an_interrupted_copy_goes_on_where_it_was(
    storage: Memory | Files,
    target: Memory | Files,
    monkeypatch: pytest.MonkeyPatch,
    calls: int,
    pruned: int | str,
    *,
    after: bool,
) -> None:
    source = opened(storage)
    fill(source, 3, "order-6")
    fill(source, 4)
    if pruned == "deleted":
        source.delete(THREAD)
    elif pruned:
        source.prune(THREAD, keep=2)
    writes = 0

    def interrupted(genuine: Any) -> Any:
        def write(*given: Any) -> Any:
            nonlocal writes
            writes += 1
            if writes == calls and not after:
                raise Interrupted
            result = genuine(*given)
            if writes == calls:
                raise Interrupted
            return result

        return write

    with monkeypatch.context() as patch:
        patch.setattr(target, "append", interrupted(target.append))
        patch.setattr(target, "prune", interrupted(target.prune))
        try:
            source.copy_to(new(target))
        except Interrupted:
            pass
        else:
            assert writes < calls
    expected = 3 + source.verify(THREAD)
    assert opened(storage).copy_to(new(target)) == expected
    copy = new(target)
    assert digests(copy, "order-6") == digests(source, "order-6")
    assert copy.verify(THREAD) == source.verify(THREAD)
    if pruned != "deleted":
        assert digests(copy) == digests(source)


def test_a_copy_that_went_on_is_left_alone(storage: Memory | Files, target: Memory | Files) -> None:
    source = opened(storage)
    fill(source, 3)
    source.copy_to(new(target))
    new(target).save(THREAD, {"n": 4})
    assert source.copy_to(new(target)) == 3
    assert states(new(target)) == [1, 2, 3, 4]


def test_a_source_that_went_on_is_followed(storage: Memory | Files, target: Memory | Files) -> None:
    """Copy while workers run, stop them, copy the rest."""
    source = opened(storage)
    fill(source, 3)
    source.copy_to(new(target))
    source.save(THREAD, {"n": 4})
    assert source.copy_to(new(target)) == 4
    assert states(new(target)) == [1, 2, 3, 4]


def test_a_target_that_went_its_own_way_is_a_conflict(
    storage: Memory | Files, target: Memory | Files
) -> None:
    source = opened(storage)
    fill(source, 2)
    source.copy_to(new(target))
    source.save(THREAD, {"n": 3})
    own = new(target).save(THREAD, {"n": 3})
    with pytest.raises(Conflict) as refusal:
        source.copy_to(new(target))
    assert refusal.value.what.startswith("order-7 #3 is another record in the storage to copy to")
    assert refusal.value.do == "Nothing was overwritten. Copy into a new, empty storage."
    assert new(target).latest(THREAD) == own


def test_a_target_that_was_pruned_further_is_a_conflict(
    storage: Memory | Files, target: Memory | Files
) -> None:
    source = opened(storage)
    fill(source, 3)
    source.copy_to(new(target))
    new(target).prune(THREAD, keep=1)
    with pytest.raises(Conflict, match=r"order-7 #1 .* was pruned there"):
        source.copy_to(new(target))
    assert states(new(target)) == [3]


def test_a_target_with_somebody_elses_record_is_not_trusted(
    storage: Memory | Files, target: Memory | Files
) -> None:
    source = opened(storage)
    fill(source, 2)
    stranger = Memory()
    fill(opened(stranger, keys=Keyring(SigningKey.generate())), 2)
    target.append(THREAD, 1, stranger.read(THREAD, 1))
    with pytest.raises(UnknownKey):
        source.copy_to(new(target))
    assert target.head(THREAD) == 1


def test_a_copy_into_its_own_storage_is_refused(storage: Memory | Files) -> None:
    """It would leave every record under the old key, and look like a rotation."""
    source = opened(storage)
    fill(source, 2)
    same = [storage] if isinstance(storage, Memory) else [storage, Files(storage.path)]
    for each in same:
        with pytest.raises(ConfigurationError, match="Source and target are one storage"):
            source.copy_to(opened(each, keys=BOTH))


# Up to a head


def remembered(anchor: InMemoryAnchor, *threads: str) -> InMemoryAnchor:
    """A copy of the anchor that nobody writes any more."""
    frozen = InMemoryAnchor()
    for thread in threads or anchor.threads(STORE):
        head = anchor.read(STORE, thread)
        assert head is not None
        frozen.advance(STORE, thread, head)
    return frozen


def test_a_copy_up_to_a_head_ends_there(storage: Memory | Files, target: Memory | Files) -> None:
    anchor = InMemoryAnchor()
    source = opened(storage, anchor)
    fill(source, 3)
    before = remembered(anchor)
    fill(source, 2)
    fill(source, 2, OTHER)
    seen: list[tuple[int, int]] = []
    progress = lambda done, of: seen.append((done, of))  # noqa: E731
    assert source.copy_to(new(target), up_to=before, progress=progress) == 3
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert list(target.threads()) == [THREAD]
    assert list(new(target).history(THREAD)) == list(source.history(THREAD))[:3]
    with pytest.raises(RolledBack, match="ends at #3, and the anchor has seen #5"):
        new(target, anchor).latest(THREAD)
    assert new(target, anchor).accept_loss(THREAD)[1] == before.read(STORE, THREAD)
    assert new(target, anchor).save(THREAD, {"n": 4}).sequence == 4


def test_what_a_thief_wrote_after_the_head_is_not_looked_at(
    storage: Memory | Files, target: Memory | Files
) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 3)
    before = remembered(anchor)
    fill(opened(storage), 1)
    storage.put(THREAD, 5, b"not even a record")
    revoking = opened(storage, anchor, keys=Keyring(NEW).revoking(KEY, until=before))
    with pytest.raises(KeyRevoked):
        revoking.copy_to(new(target))
    assert revoking.copy_to(new(target), up_to=before) == 3
    assert states(new(target)) == [1, 2, 3]


def test_a_copy_up_to_the_head_of_another_history_is_refused(
    storage: Memory | Files, target: Memory | Files
) -> None:
    anchor = InMemoryAnchor()
    elsewhere = opened(Memory(), anchor)
    for number in (1, 2):
        elsewhere.save(THREAD, {"n": number, "genuine": True})
    fill(opened(storage), 4)
    with pytest.raises(Forked, match="order-7 #2 is not the record"):
        opened(storage).copy_to(new(target), up_to=anchor)
    assert list(target.threads()) == []


def test_a_copy_up_to_a_head_that_is_not_there_is_refused(
    storage: Memory | Files, target: Memory | Files
) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 3)
    storage.remove(THREAD, 3)
    with pytest.raises(RolledBack, match="ends at #2, and the anchor has seen #3"):
        opened(storage).copy_to(new(target), up_to=anchor)
    assert list(target.threads()) == []


def test_a_copy_up_to_a_head_that_was_pruned_is_refused(
    storage: Memory | Files, target: Memory | Files
) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 2)
    before = remembered(anchor)
    fill(opened(storage, anchor), 3)
    opened(storage, anchor).prune(THREAD, keep=3)
    with pytest.raises(RecordsMissing, match="order-7 #2, which the anchor has seen, is not in"):
        opened(storage, anchor).copy_to(new(target), up_to=before)
    assert list(target.threads()) == []


def test_a_pruned_thread_is_copied_up_to_a_head(
    storage: Memory | Files, target: Memory | Files
) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 4)
    opened(storage, anchor).prune(THREAD, keep=2)
    before = remembered(anchor)
    fill(opened(storage, anchor), 2)
    assert opened(storage, anchor).copy_to(new(target), up_to=before) == 2
    assert states(new(target)) == [3, 4]
    assert new(target).verify(THREAD) == 2


class Failing:
    """Heads that cannot be asked, or answer with something else."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def read(self, _: str, __: str) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [OSError(5, "the disk"), 3, "sha256:", (3, "sha256:")])
def test_heads_that_cannot_be_read_let_nothing_through(
    storage: Memory | Files, target: Memory | Files, answer: Any
) -> None:
    fill(opened(storage), 3)
    with pytest.raises(AnchorUnavailable):
        opened(storage).copy_to(new(target), up_to=Failing(answer))
    assert list(target.threads()) == []


# What to write


def test_another_store_is_refused(storage: Memory | Files, target: Memory | Files) -> None:
    fill(opened(storage), 2)
    with pytest.raises(ConfigurationError) as refusal:
        opened(storage).copy_to(Ledger(target, store="staging", keys=KEYS))
    assert refusal.value.what == "A record of store invoices means nothing in store staging."
    assert refusal.value.do == "Open the target with store='invoices'."
    assert list(target.threads()) == []


def test_a_name_outside_the_grammar_is_refused(
    storage: Memory | Files, target: Memory | Files
) -> None:
    with pytest.raises(InvalidId):
        opened(storage).copy_to(new(target), threads=["../up"])


def test_a_target_that_cannot_sign_is_refused(
    storage: Memory | Files, target: Memory | Files
) -> None:
    fill(opened(storage), 2)
    reader = opened(target, keys=Keyring(verify=NEW.public))
    with pytest.raises(KeyRefused, match="only verifies"):
        opened(storage).copy_to(reader)
    assert list(target.threads()) == []


def test_a_target_that_fails_is_named(
    storage: Memory | Files, target: Memory | Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(opened(storage), 2)

    def failing(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(target, "append", failing)
    with pytest.raises(StorageUnavailable, match="could not keep order-7: it raised ZeroDiv"):
        opened(storage).copy_to(new(target))


def test_every_refusal_is_of_the_tree(target: Memory | Files) -> None:
    class Broken(Memory):
        def scan(self, thread: str, first: int, last: int) -> Any:
            raise RuntimeError

    storage = Broken()
    fill(opened(storage), 2)
    with pytest.raises(CheckpointError, match="could not read order-7: it raised RuntimeError"):
        opened(storage).copy_to(new(target))
