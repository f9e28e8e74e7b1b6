"""The ledger and its anchor: what extends it is accepted, what does not is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint import (
    AnchorUnavailable,
    ConfigurationError,
    FileAnchor,
    FileCheckpointStorage,
    Forked,
    Head,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    KeyRefused,
    Keyring,
    Ledger,
    NotFound,
    RecordsMissing,
    RolledBack,
    SigningKey,
    UnsafeLocation,
    WrongPlace,
)

KEYS = Keyring(SigningKey.generate())
STORE = "invoices"


class Storage(InMemoryCheckpointStorage):
    """A storage in the hands of somebody who can write it."""

    def cut(self, thread: str, head: int) -> None:
        for sequence in [n for n in self._records[thread] if n > head]:
            del self._records[thread][sequence]
        self._heads[thread] = head

    def put(self, thread: str, sequence: int, record: bytes) -> None:
        self._records[thread][sequence] = record

    def copy(self) -> Storage:
        copied = Storage()
        copied._records = {name: dict(records) for name, records in self._records.items()}
        copied._heads = dict(self._heads)
        return copied


class CountingStorage(Storage):
    """A storage that counts how often it was read."""

    reads = 0

    def read(self, thread: str, sequence: int) -> bytes:
        self.reads += 1
        return super().read(thread, sequence)


class BrokenAnchor(InMemoryAnchor):
    """An anchor that fails when told to."""

    fails_to_read = fails_to_move = False

    def read(self, store: str, thread: str) -> Head | None:
        if self.fails_to_read:
            raise OSError(5, "the witness is away")
        return super().read(store, thread)

    def advance(self, store: str, thread: str, head: Head) -> None:
        if self.fails_to_move:
            raise OSError(5, "the witness is away")
        super().advance(store, thread, head)


def ledger_on(storage: InMemoryCheckpointStorage, anchor: InMemoryAnchor, every: int = 1) -> Ledger:
    """A ledger as a new process would open it."""
    return Ledger(storage, store=STORE, keys=KEYS, anchor=anchor, anchor_every=every)


def filled(count: int, every: int = 1) -> tuple[Storage, InMemoryAnchor]:
    storage, anchor = Storage(), InMemoryAnchor()
    ledger = ledger_on(storage, anchor, every)
    for number in range(1, count + 1):
        ledger.save("order-7", {"n": number})
    return storage, anchor


def test_each_save_moves_the_anchor() -> None:
    anchor = InMemoryAnchor()
    ledger = ledger_on(Storage(), anchor)
    for _ in range(3):
        saved = ledger.save("order-7", {})
        assert anchor.read(STORE, "order-7") == Head(saved.sequence, saved.digest)


def test_an_interval_anchors_the_first_and_then_each_nth() -> None:
    anchor = InMemoryAnchor()
    ledger = ledger_on(Storage(), anchor, every=3)
    seen = []
    for _ in range(8):
        ledger.save("order-7", {})
        head = anchor.read(STORE, "order-7")
        assert head is not None
        seen.append(head.sequence)
    assert seen == [1, 1, 1, 4, 4, 4, 7, 7]


def test_anchor_now_overrides_the_interval() -> None:
    anchor = InMemoryAnchor()
    ledger = ledger_on(Storage(), anchor, every=100)
    ledger.save("order-7", {})
    saved = ledger.save("order-7", {"about to": "pay"}, anchor="now")
    assert anchor.read(STORE, "order-7") == Head(2, saved.digest)


def test_anchor_now_without_an_anchor_is_refused_before_anything_is_saved() -> None:
    storage = Storage()
    ledger = Ledger(storage, store=STORE, keys=KEYS)
    with pytest.raises(ConfigurationError, match="no anchor"):
        ledger.save("order-7", {}, anchor="now")
    assert storage.head("order-7") == 0


@pytest.mark.parametrize("left", range(5))
def test_a_cut_of_any_length_is_refused(left: int) -> None:
    storage, anchor = filled(5)
    storage.cut("order-7", left)
    for use in (
        lambda ledger: ledger.latest("order-7"),
        lambda ledger: ledger.load("order-7", 1),
        lambda ledger: ledger.verify("order-7"),
        lambda ledger: list(ledger.history("order-7")),
        lambda ledger: ledger.save("order-7", {}),
        lambda ledger: ledger.prune("order-7", keep=1),
        lambda ledger: ledger.delete("order-7"),
    ):
        with pytest.raises(RolledBack) as refusal:
            use(ledger_on(storage, anchor))
        gone = f"ends at #{left}" if left else "is gone"
        assert refusal.value.what == f"order-7 {gone}, and the anchor has seen #5."
        assert "accept_loss" in refusal.value.do
    assert storage.head("order-7") == left


def test_a_thread_that_was_removed_is_still_listed() -> None:
    storage, anchor = filled(1)
    storage.cut("order-7", 0)
    del storage._heads["order-7"]
    assert list(storage.threads()) == []
    assert ledger_on(storage, anchor).threads() == ["order-7"]


def test_a_fork_is_refused() -> None:
    storage, anchor = filled(3)
    other = storage.copy()
    ledger_on(storage, anchor).save("order-7", {"denied": True})
    Ledger(other, store=STORE, keys=KEYS).save("order-7", {"approved": True})
    with pytest.raises(Forked, match="order-7 #4 is not the record that the anchor has seen there"):
        ledger_on(other, anchor).latest("order-7")
    with pytest.raises(Forked):
        ledger_on(other, anchor).load("order-7", 4)
    with pytest.raises(Forked):
        ledger_on(other, anchor).save("order-7", {})
    with pytest.raises(Forked):
        list(ledger_on(other, anchor).history("order-7"))


def test_a_fork_that_went_on_is_refused() -> None:
    storage, anchor = filled(3)
    other = storage.copy()
    ledger_on(storage, anchor).save("order-7", {"denied": True})
    forked = Ledger(other, store=STORE, keys=KEYS)
    for _ in range(3):
        forked.save("order-7", {"approved": True})
    for sequence in (5, 6):
        with pytest.raises(Forked):
            ledger_on(other, anchor).load("order-7", sequence)
    with pytest.raises(Forked):
        ledger_on(other, anchor).latest("order-7")
    with pytest.raises(Forked):
        ledger_on(other, anchor).verify("order-7")


def test_a_splice_behind_the_anchor_is_refused() -> None:
    """Records of two genuine branches, put together behind what was anchored."""
    storage, anchor = filled(4, every=100)
    other = storage.copy()
    ledger_on(storage, anchor, every=100).save("order-7", {"a": 5})
    ledger_on(storage, anchor, every=100).save("order-7", {"a": 6})
    branch = Ledger(other, store=STORE, keys=KEYS)
    branch.save("order-7", {"b": 5})
    branch.save("order-7", {"b": 6})
    storage.put("order-7", 5, other.read("order-7", 5))
    with pytest.raises(WrongPlace, match="order-7 #6 does not follow the #5"):
        ledger_on(storage, anchor, every=100).latest("order-7")


def test_a_crash_between_the_two_writes_is_no_alarm() -> None:
    """The storage is ahead of the anchor by one, as after a kill right after the append."""
    storage, anchor = filled(3)
    unanchored = Ledger(storage, store=STORE, keys=KEYS)
    unanchored.save("order-7", {"n": 4})
    assert ledger_on(storage, anchor).latest("order-7").state == {"n": 4}
    assert ledger_on(storage, anchor).load("order-7", 4).state == {"n": 4}
    assert ledger_on(storage, anchor).verify("order-7") == 4
    saved = ledger_on(storage, anchor).save("order-7", {"n": 5})
    assert anchor.read(STORE, "order-7") == Head(5, saved.digest)


def test_a_crash_before_the_first_anchor_is_no_alarm() -> None:
    storage, anchor = Storage(), InMemoryAnchor()
    Ledger(storage, store=STORE, keys=KEYS).save("order-7", {"n": 1})
    ledger = ledger_on(storage, anchor)
    assert ledger.latest("order-7").state == {"n": 1}
    ledger.save("order-7", {"n": 2})
    assert anchor.read(STORE, "order-7") is not None


def test_the_anchor_is_asked_before_the_storage() -> None:
    """A save that ends between the two questions must not look like a rollback."""
    storage, anchor = filled(3)

    class Busy(InMemoryAnchor):
        def read(self, store: str, thread: str) -> Head | None:
            head = anchor.read(store, thread)
            ledger_on(storage, anchor).save(thread, {"by": "another process"})
            return head

    ledger = ledger_on(storage, Busy())
    for expected in (4, 5, 6):
        assert ledger.latest("order-7").sequence == expected


def test_an_anchor_that_cannot_be_read_lets_nothing_through() -> None:
    storage, anchor = Storage(), BrokenAnchor()
    ledger_on(storage, anchor).save("order-7", {})
    anchor.fails_to_read = True
    ledger = ledger_on(storage, anchor)
    for use in (
        lambda: ledger.latest("order-7"),
        lambda: ledger.load("order-7", 1),
        lambda: ledger.verify("order-7"),
        lambda: ledger.save("order-7", {}),
    ):
        with pytest.raises(AnchorUnavailable, match="could not be asked about order-7: it raised"):
            use()
    assert storage.head("order-7") == 1


def test_an_anchor_that_cannot_be_written_says_that_the_checkpoint_is_saved() -> None:
    storage, anchor = Storage(), BrokenAnchor()
    ledger = ledger_on(storage, anchor)
    ledger.save("order-7", {"n": 1})
    anchor.fails_to_move = True
    with pytest.raises(AnchorUnavailable) as refusal:
        ledger.save("order-7", {"n": 2})
    assert refusal.value.what.startswith("order-7 #2 is saved, but not anchored.")
    anchor.fails_to_move = False
    assert ledger.latest("order-7").state == {"n": 2}
    ledger.save("order-7", {"n": 3})
    head = anchor.read(STORE, "order-7")
    assert head is not None
    assert head.sequence == 3


def test_whatever_keeps_the_anchor_from_moving_the_checkpoint_is_said_to_be_saved() -> None:
    class Opened(InMemoryAnchor):
        def advance(self, store: str, thread: str, head: Head) -> None:
            raise UnsafeLocation("The folder is open.", "Close it.")

    with pytest.raises(AnchorUnavailable, match="order-7 #1 is saved, but not anchored"):
        ledger_on(Storage(), Opened()).save("order-7", {})


def test_an_answer_that_is_no_head_is_refused() -> None:
    class Careless(InMemoryAnchor):
        def read(self, store: str, thread: str) -> Head | None:
            return (1, "sha256:0")  # type: ignore[return-value]

    with pytest.raises(AnchorUnavailable, match="answered with tuple"):
        ledger_on(Storage(), Careless()).latest("order-7")


@pytest.mark.parametrize("every", [0, -1, True, 1.0, "2", None])
def test_an_interval_is_a_whole_number(every: object) -> None:
    with pytest.raises(ConfigurationError, match="anchor_every"):
        Ledger(Storage(), store=STORE, keys=KEYS, anchor_every=every)  # type: ignore[arg-type]


def test_latest_reads_one_record_however_long_the_thread() -> None:
    storage, anchor = CountingStorage(), InMemoryAnchor()
    ledger = ledger_on(storage, anchor)
    for number in range(50):
        ledger.save("order-7", number)
    assert storage.reads == 0
    ledger_on(storage, anchor).latest("order-7")
    assert storage.reads == 1


def test_latest_follows_no_link_twice() -> None:
    storage, anchor = CountingStorage(), InMemoryAnchor()
    for number in range(10):
        ledger_on(storage, anchor, every=100).save("order-7", number)
    ledger = ledger_on(storage, anchor, every=100)
    storage.reads = 0
    ledger.latest("order-7")
    assert storage.reads == 10
    ledger.latest("order-7")
    assert storage.reads == 11


def test_verify_needs_no_signature_below_the_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, anchor = filled(20)
    checked = []
    genuine = SigningKey.verify

    def counted(key: SigningKey, message: bytes, signature: bytes) -> bool:
        checked.append(message)
        return genuine(key, message, signature)

    monkeypatch.setattr(SigningKey, "verify", counted)
    assert ledger_on(storage, anchor).verify("order-7") == 20
    assert len(checked) == 1


def test_verify_sees_a_key_thief_rewrite_the_anchored_past() -> None:
    storage, anchor = filled(5)
    thief = Ledger(Storage(), store=STORE, keys=KEYS)
    for number in range(1, 6):
        thief.save("order-7", {"n": number * 1000})
    storage.put("order-7", 2, thief.storage.read("order-7", 2))
    ledger = ledger_on(storage, anchor)
    with pytest.raises(Exception, match="order-7 #2 is not the one that #3 was sealed upon"):
        ledger.verify("order-7")
    with pytest.raises(WrongPlace):
        list(ledger.history("order-7"))


def test_anchoring_can_be_turned_on_for_a_store_that_exists() -> None:
    storage, anchor = Storage(), InMemoryAnchor()
    plain = Ledger(storage, store=STORE, keys=KEYS)
    for number in range(4):
        last = plain.save("order-7", number)
    assert ledger_on(storage, anchor).anchor_now("order-7") == Head(4, last.digest)
    storage.cut("order-7", 3)
    with pytest.raises(RolledBack):
        ledger_on(storage, anchor).latest("order-7")


def test_anchor_now_anchors_nothing_that_does_not_verify() -> None:
    storage, anchor = Storage(), InMemoryAnchor()
    plain = Ledger(storage, store=STORE, keys=KEYS)
    for number in range(4):
        plain.save("order-7", number)
    storage.put("order-7", 2, storage.read("order-7", 1))
    with pytest.raises(WrongPlace):
        ledger_on(storage, anchor).anchor_now("order-7")
    assert anchor.read(STORE, "order-7") is None


def test_a_loss_is_accepted_by_name_only() -> None:
    storage, anchor = filled(5)
    before = anchor.read(STORE, "order-7")
    storage.cut("order-7", 3)
    ledger = ledger_on(storage, anchor)
    assert ledger.accept_loss("order-7") == (before, anchor.read(STORE, "order-7"))
    assert ledger.latest("order-7").state == {"n": 3}
    assert ledger.save("order-7", {"n": 4}).sequence == 4


def test_a_loss_of_all_is_accepted_by_name_only() -> None:
    storage, anchor = filled(2)
    storage.cut("order-7", 0)
    ledger = ledger_on(storage, anchor)
    assert ledger.accept_loss("order-7")[1] is None
    with pytest.raises(NotFound):
        ledger.latest("order-7")


def test_a_loss_is_not_accepted_if_what_is_left_does_not_verify() -> None:
    storage, anchor = filled(5)
    before = anchor.read(STORE, "order-7")
    storage.cut("order-7", 3)
    storage.put("order-7", 2, storage.read("order-7", 1))
    with pytest.raises(WrongPlace):
        ledger_on(storage, anchor).accept_loss("order-7")
    assert anchor.read(STORE, "order-7") == before


def test_an_anchored_record_that_was_pruned_without_the_anchor_is_missed() -> None:
    storage, anchor = filled(5)
    plain = Ledger(storage, store=STORE, keys=KEYS)
    for number in range(6, 11):
        plain.save("order-7", {"n": number})
    plain.prune("order-7", keep=2)
    ledger = ledger_on(storage, anchor)
    for use in (lambda: ledger.latest("order-7"), lambda: ledger.verify("order-7")):
        with pytest.raises(RecordsMissing, match="order-7 #5, which the anchor has seen"):
            use()
    ledger.accept_loss("order-7")
    assert ledger.latest("order-7").state == {"n": 10}


def test_a_key_inside_the_storage_folder_is_refused(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path / "store")
    key = SigningKey.from_file(tmp_path / "store" / "signing.key", create=True)
    for keys in (Keyring(key), Keyring(SigningKey.generate(), verify=[key])):
        with pytest.raises(KeyRefused, match="is inside the storage folder"):
            Ledger(storage, store=STORE, keys=keys)


def test_a_key_that_was_written_into_the_storage_folder_is_refused(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path / "store")
    key = SigningKey.generate()
    key.to_file(tmp_path / "store" / "signing.key")
    with pytest.raises(KeyRefused, match="is inside the storage folder"):
        Ledger(storage, store=STORE, keys=Keyring(key))


def test_a_key_beside_the_storage_folder_is_fine(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path / "store")
    key = SigningKey.from_file(tmp_path / "store-keys" / "signing.key", create=True)
    Ledger(storage, store=STORE, keys=Keyring(key))


@pytest.mark.parametrize(("store", "anchor"), [("a", "a/b"), ("a/b", "a"), ("a", "a")])
def test_an_anchor_in_one_place_with_the_storage_is_refused(
    tmp_path: Path, store: str, anchor: str
) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    anchored = FileAnchor(tmp_path / anchor, create=True)
    storage = FileCheckpointStorage(tmp_path / store)
    with pytest.raises(ConfigurationError, match="in one place with the storage"):
        Ledger(storage, store=STORE, keys=KEYS, anchor=anchored)


def test_files_and_a_file_anchor_work_together(tmp_path: Path) -> None:
    def opened() -> Ledger:
        return Ledger(
            FileCheckpointStorage(tmp_path / "store"),
            store=STORE,
            keys=KEYS,
            anchor=FileAnchor(tmp_path / "anchor", create=True),
        )

    for number in range(1, 6):
        opened().save("order-7", {"n": number})
    assert opened().latest("order-7").state == {"n": 5}
    assert opened().verify("order-7") == 5
    (tmp_path / "store" / "order-7" / "0000000005.checkpoint").unlink()
    with pytest.raises(RolledBack):
        opened().latest("order-7")


def test_a_splice_in_the_middle_of_what_is_newer_is_refused() -> None:
    """The break is neither at the anchored record nor at the head."""
    storage, anchor = filled(7, every=100)
    branch = Storage()
    other = Ledger(branch, store=STORE, keys=KEYS)
    for number in range(1, 8):
        other.save("order-7", {"n": -number})
    storage.put("order-7", 4, branch.read("order-7", 4))
    storage.put("order-7", 5, branch.read("order-7", 5))
    with pytest.raises(WrongPlace, match="order-7 #4 does not follow the #3"):
        ledger_on(storage, anchor, every=100).latest("order-7")


def test_a_record_that_is_replaced_while_the_process_runs_is_refused() -> None:
    storage = Storage()
    ledger = Ledger(storage, store=STORE, keys=KEYS)
    ledger.save("order-7", {"denied": True})
    other = Storage()
    Ledger(other, store=STORE, keys=KEYS).save("order-7", {"approved": True})
    storage.put("order-7", 1, other.read("order-7", 1))
    with pytest.raises(Forked) as refusal:
        ledger.latest("order-7")
    assert refusal.value.what == ("order-7 #1 is not the record that this process has seen there.")
    assert "open the ledger anew" in refusal.value.do


def test_what_the_anchor_says_counts_for_a_save_of_the_process_that_made_the_head() -> None:
    storage, anchor = filled(3)
    ledger = ledger_on(storage, anchor)
    ledger.save("order-7", {"n": 4})
    anchor.rewind(STORE, "order-7", Head(4, "sha256:" + "0" * 64))
    with pytest.raises(Forked):
        ledger.save("order-7", {"n": 5})


def test_what_the_anchor_says_counts_for_a_head_that_was_looked_at_before() -> None:
    storage, anchor = filled(5, every=100)
    ledger = ledger_on(storage, anchor, every=100)
    ledger.latest("order-7")
    anchor.rewind(STORE, "order-7", Head(3, "sha256:" + "0" * 64))
    with pytest.raises(Forked):
        ledger.latest("order-7")


def test_a_loss_is_accepted_in_the_process_that_had_seen_more() -> None:
    storage, anchor = filled(5)
    ledger = ledger_on(storage, anchor)
    ledger.latest("order-7")
    storage.cut("order-7", 3)
    ledger.accept_loss("order-7")
    assert ledger.latest("order-7").state == {"n": 3}


def test_a_fork_that_the_anchor_finds_while_it_moves_is_told_as_one() -> None:
    class Racing(InMemoryAnchor):
        def advance(self, store: str, thread: str, head: Head) -> None:
            super().advance(store, thread, Head(head.sequence, "sha256:" + "0" * 64))
            super().advance(store, thread, head)

    with pytest.raises(Forked):
        ledger_on(Storage(), Racing()).save("order-7", {})


def test_progress_counts_what_is_newer_than_the_anchor() -> None:
    storage, anchor = filled(7, every=5)
    told: list[tuple[int, int]] = []
    ledger_on(storage, anchor).verify("order-7", progress=lambda *given: told.append(given))
    assert told == [(2, 7), (3, 7), (4, 7), (5, 7), (6, 7), (7, 7)]


def test_a_point_of_revocation_inside_the_storage_is_refused(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path / "store")
    until = FileAnchor(tmp_path / "store" / "until", create=True)
    keys = Keyring(SigningKey.generate()).revoking(KEYS.signing, until=until)
    with pytest.raises(ConfigurationError, match="in one place with the storage"):
        Ledger(storage, store=STORE, keys=keys)
