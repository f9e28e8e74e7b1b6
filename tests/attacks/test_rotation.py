"""SP08: a key that was replaced or stolen stops counting, and what you can vouch for is kept."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from safepoint import (
    Checkpoint,
    FileAnchor,
    FileCheckpointStorage,
    Keyring,
    Ledger,
    NotFound,
    RolledBack,
    SealError,
    SigningKey,
)
from safepoint.errors import (
    AnchorMismatch,
    AnchorUnavailable,
    KeyRevoked,
    StorageError,
    ThreadDeleted,
    UnknownKey,
    UnsafeLocation,
    WrongPlace,
)
from safepoint.names import Head
from safepoint.record import Place, seal
from tests.unit.commands import audit

STORE = "invoices"
THREAD = "order-7"
OLD = SigningKey.generate()
NEW = SigningKey.generate("ed25519")
ROTATED = Keyring(NEW, verify=[OLD])


def open_ledger(path: Path, keys: Keyring, state: str = "state") -> Ledger:
    """A worker as it starts."""
    anchor = FileAnchor(path / "anchor", create=True)
    return Ledger(FileCheckpointStorage(path / state), store=STORE, keys=keys, anchor=anchor)


def steal(path: Path) -> Ledger:
    """Whoever copied the old key, and can write the storage and not the anchor."""
    return Ledger(FileCheckpointStorage(path / "state"), store=STORE, keys=Keyring(OLD))


@pytest.fixture
def frozen(tmp_path: Path) -> FileAnchor:
    """Three checkpoints, and a copy of the anchor's folder as they stood."""
    ledger = open_ledger(tmp_path, Keyring(OLD))
    for number in (1, 2, 3):
        ledger.save(THREAD, {"n": number, "payee": "alice"})
    shutil.copytree(tmp_path / "anchor", tmp_path / "frozen")
    return FileAnchor(tmp_path / "frozen")


def revoking(frozen: FileAnchor | None) -> Keyring:
    return Keyring(NEW).revoking(OLD, until=frozen)


# A stolen key


def test_retired_key_of_a_thief_is_refused_after_the_point(
    tmp_path: Path, frozen: FileAnchor
) -> None:
    steal(tmp_path).save(THREAD, {"payee": "mally"})
    ledger = open_ledger(tmp_path, revoking(frozen))
    for use in (
        lambda: ledger.latest(THREAD),
        lambda: ledger.load(THREAD, 4),
        lambda: list(ledger.history(THREAD)),
        lambda: ledger.verify(THREAD),
        lambda: ledger.save(THREAD, {}),
        lambda: ledger.prune(THREAD, keep=1),
        lambda: ledger.delete(THREAD),
        lambda: ledger.copy_to(open_ledger(tmp_path, Keyring(NEW), "copy")),
    ):
        with pytest.raises(KeyRevoked) as refusal:
            use()
        assert refusal.value.what == (
            f"order-7 #4 is sealed by key {OLD.id}, which was revoked and does not count after #3."
        )
        assert "save with the new key" in refusal.value.do
    assert not (tmp_path / "copy" / THREAD).exists()


def test_what_was_there_before_the_point_still_loads(tmp_path: Path, frozen: FileAnchor) -> None:
    ledger = open_ledger(tmp_path, revoking(frozen))
    assert ledger.latest(THREAD).state["n"] == 3
    assert [each.state["n"] for each in ledger.history(THREAD)] == [1, 2, 3]
    assert ledger.verify(THREAD) == 3
    assert ledger.save(THREAD, {"n": 4}).sequence == 4
    assert open_ledger(tmp_path, revoking(frozen)).latest(THREAD).state == {"n": 4}


def test_record_of_a_thief_below_a_later_one_is_found(tmp_path: Path, frozen: FileAnchor) -> None:
    """A worker went on from it, with the new key and the anchor, before anybody knew."""
    steal(tmp_path).save(THREAD, {"payee": "mally"})
    open_ledger(tmp_path, ROTATED).save(THREAD, {"payee": "mally", "paid": True})
    ledger = open_ledger(tmp_path, revoking(frozen))
    with pytest.raises(KeyRevoked, match="order-7 #4"):
        ledger.verify(THREAD)
    with pytest.raises(KeyRevoked, match="order-7 #4"):
        list(ledger.history(THREAD))
    with pytest.raises(KeyRevoked, match="order-7 #4"):
        ledger.prune(THREAD, keep=1)


def test_thread_that_a_thief_begins_is_refused(tmp_path: Path, frozen: FileAnchor) -> None:
    steal(tmp_path).save("order-8", {"payee": "mally"})
    with pytest.raises(KeyRevoked, match=r"order-8 #1 .* does not count here"):
        open_ledger(tmp_path, revoking(frozen)).latest("order-8")


@pytest.mark.usefixtures("frozen")
def test_without_a_point_nothing_of_the_key_counts(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path, revoking(None))
    with pytest.raises(KeyRevoked, match="does not count here"):
        ledger.latest(THREAD)
    with pytest.raises(KeyRevoked, match="does not count here"):
        ledger.load(THREAD, 1)


def forged(sequence: int, previous: str) -> bytes:
    """A record that says it was written long ago."""
    record, _ = seal(
        b'{"payee":"mally"}',
        Place(STORE, THREAD, sequence),
        OLD,
        created=datetime(1999, 12, 31, tzinfo=UTC),
        previous=previous,
    )
    return record


def test_backdated_record_of_a_stolen_key_is_refused(tmp_path: Path, frozen: FileAnchor) -> None:
    """A date is what the thief writes, so it decides nothing."""
    thief = steal(tmp_path)
    record = forged(4, thief.latest(THREAD).digest)
    thief.storage.append(THREAD, 4, record)
    assert thief.latest(THREAD).created.year == 1999
    with pytest.raises(KeyRevoked):
        open_ledger(tmp_path, revoking(frozen)).latest(THREAD)


def test_replaced_last_record_before_the_point_is_refused(
    tmp_path: Path, frozen: FileAnchor
) -> None:
    """At the point itself only the very record counts that the anchor had seen."""
    thief = steal(tmp_path)
    record = forged(3, thief.load(THREAD, 2).digest)
    (tmp_path / "state" / THREAD / "0000000003.checkpoint").write_bytes(record)
    ledger = Ledger(
        FileCheckpointStorage(tmp_path / "state"),
        store=STORE,
        keys=revoking(frozen),
        anchor=FileAnchor(tmp_path / "new-anchor", create=True),
    )
    with pytest.raises(KeyRevoked, match="does not count after #3"):
        ledger.latest(THREAD)


def test_rewritten_past_of_a_stolen_key_is_refused(tmp_path: Path, frozen: FileAnchor) -> None:
    """Below the point a seal alone proves nothing any more; the links do."""
    thief = steal(tmp_path)
    record = forged(2, thief.load(THREAD, 1).digest)
    (tmp_path / "state" / THREAD / "0000000002.checkpoint").write_bytes(record)
    ledger = open_ledger(tmp_path, revoking(frozen))
    assert ledger.load(THREAD, 2).state == {"payee": "mally"}  # as the page says
    with pytest.raises(SealError, match="#2"):
        ledger.verify(THREAD)
    with pytest.raises(WrongPlace, match="#3 does not follow the #2"):
        list(ledger.history(THREAD))
    with pytest.raises(WrongPlace):
        ledger.copy_to(open_ledger(tmp_path, Keyring(NEW), "copy"))
    assert not (tmp_path / "copy" / THREAD).exists()


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (shutil.rmtree, AnchorUnavailable),
        (lambda folder: (folder / "order-7.head").write_text("x\n"), AnchorUnavailable),
        (lambda folder: (folder / "order-7.head").unlink(), KeyRevoked),
        (
            lambda folder: (folder / "order-7.head").write_text(
                (folder / "order-7.head").read_text().replace("invoices", "staging")
            ),
            AnchorMismatch,
        ),
    ],
    ids=["gone", "damaged", "thread unknown", "of another store"],
)
def test_a_point_that_cannot_be_read_lets_nothing_through(
    tmp_path: Path, frozen: FileAnchor, damage: object, error: type[Exception]
) -> None:
    assert callable(damage)
    damage(tmp_path / "frozen")
    with pytest.raises(error):
        open_ledger(tmp_path, revoking(frozen)).latest(THREAD)


# The day of the theft


def a_day(path: Path) -> dict[str, list[Checkpoint]]:
    """Three threads on the night before, a day of work, and a thief. Return what came after."""
    worker = open_ledger(path, Keyring(OLD))
    for thread in ("order-1", THREAD, "order-8"):
        worker.save(thread, {"thread": thread}, app="run/1")
    shutil.copytree(path / "anchor", path / "frozen")
    shutil.copytree(path / "state", path / "backup")
    for thread in (THREAD, "order-8", "order-9"):
        worker.save(thread, {"thread": thread, "today": True}, app="run/1")
    steal(path).save(THREAD, {"payee": "mally"})
    steal(path).save("order-66", {"payee": "mally"})
    (path / "state").rename(path / "evidence")
    (path / "state").write_text("Stopped on purpose.")
    trusting = Ledger(
        FileCheckpointStorage(path / "evidence"), store=STORE, keys=Keyring(verify=[OLD])
    )
    return {thread: list(trusting.history(thread)) for thread in trusting.threads()}


def point(path: Path, how: str) -> FileAnchor:
    """The three branches of the page."""
    if how == "copy":
        return FileAnchor(path / "frozen")
    made = FileAnchor(path / "made", create=True)
    if how == "backup":
        storage = FileCheckpointStorage(path / "backup")
        backup = Ledger(storage, store=STORE, keys=Keyring(verify=[OLD]), anchor=made)
        for thread in backup.threads():
            backup.anchor_now(thread)
    return made


@pytest.mark.parametrize("how", ["copy", "backup", "neither"])
@pytest.mark.parametrize("interrupted", [False, True])
def test_honest_day_after_a_theft_is_kept_by_those_who_vouch(
    tmp_path: Path, how: str, interrupted: bool
) -> None:
    found = a_day(tmp_path)
    before = point(tmp_path, how)
    late = {
        thread: [each for each in all_of_it if head is None or each.sequence > head.sequence]
        for thread, all_of_it in found.items()
        for head in [before.read(STORE, thread)]
    }
    late = {thread: newer for thread, newer in late.items() if newer}
    assert ("order-1" in late) == (how == "neither")

    def carry_over(stop_after: int) -> None:
        evidence = open_ledger(tmp_path, revoking(before), "evidence")
        ledger = open_ledger(tmp_path, Keyring(NEW), "fresh")
        assert evidence.copy_to(ledger, up_to=before) == (0 if how == "neither" else 3)
        for thread in late:
            ledger.accept_loss(thread)
        for each in [each for newer in late.values() for each in newer][:stop_after]:
            if each.state.get("payee") != "mally":
                ledger.save(each.thread, each.state, app=each.app, tools=each.tools)

    if interrupted:
        carry_over(stop_after=2)
        shutil.rmtree(tmp_path / "fresh")
    carry_over(stop_after=100)

    ledger = open_ledger(tmp_path, Keyring(NEW), "fresh")
    kept = {t: [each.state for each in ledger.history(t)] for t in ledger.threads()}
    assert kept == {
        "order-1": [{"thread": "order-1"}],
        THREAD: [{"thread": THREAD}, {"thread": THREAD, "today": True}],
        "order-8": [{"thread": "order-8"}, {"thread": "order-8", "today": True}],
        "order-9": [{"thread": "order-9", "today": True}],
    }
    assert [ledger.verify(thread) for thread in ledger.threads()] == [1, 2, 2, 1]
    assert {ledger.latest(thread).app for thread in ledger.threads()} == {"run/1"}


def test_thread_that_a_thief_cut_is_not_given_up_along_with_the_day(tmp_path: Path) -> None:
    """Only the threads on the list are accepted; this one still raises."""
    a_day(tmp_path)
    shutil.rmtree(tmp_path / "evidence" / "order-1")
    before = point(tmp_path, "copy")
    evidence = open_ledger(tmp_path, revoking(before), "evidence")
    ledger = open_ledger(tmp_path, Keyring(NEW), "fresh")
    with pytest.raises(RolledBack, match="order-1 is gone, and the anchor has seen #1"):
        evidence.copy_to(ledger, up_to=before)
    backup = open_ledger(tmp_path, revoking(before), "backup")
    assert backup.copy_to(ledger, threads=["order-1"]) == 1
    assert ledger.verify("order-1") == 1


def test_thread_that_was_pruned_or_deleted_before_the_theft_is_kept_by_who_pruned_it(
    tmp_path: Path,
) -> None:
    """Its base proves nothing any more. Up to the point the links do, whoever has the key."""
    worker = open_ledger(tmp_path, Keyring(OLD))
    for number in (1, 2, 3):
        worker.save(THREAD, {"n": number})
    worker.prune(THREAD, keep=2)
    worker.save("order-8", {})
    worker.delete("order-8")
    shutil.copytree(tmp_path / "anchor", tmp_path / "frozen")
    before = FileAnchor(tmp_path / "frozen")
    steal(tmp_path).save(THREAD, {"payee": "mally"})
    (tmp_path / "state").rename(tmp_path / "evidence")
    trusting = open_ledger(tmp_path, Keyring(verify=[OLD]), "evidence")
    ledger = open_ledger(tmp_path, Keyring(NEW), "fresh")
    assert trusting.copy_to(ledger, up_to=before) == 3
    assert [each.state["n"] for each in ledger.history(THREAD)] == [2, 3]
    assert ledger.verify("order-8") == 1
    with pytest.raises(ThreadDeleted):
        ledger.latest("order-8")


# A quiet day


def test_workers_rotate_one_after_another_without_a_refusal(tmp_path: Path) -> None:
    """Each worker learns the new key before any worker signs with it."""
    rings = [
        Keyring(OLD),
        Keyring(OLD, verify=[NEW]),
        Keyring(NEW, verify=[OLD]),
    ]
    at = {"a": 0, "b": 0, "c": 0}

    def turn() -> None:
        for name, step in at.items():
            ledger = open_ledger(tmp_path, rings[step])
            saved = ledger.save(THREAD, {"by": name})
            for reader in at.values():
                latest = open_ledger(tmp_path, rings[reader]).latest(THREAD)
                assert latest == saved

    turn()
    for step in (1, 2):
        for name in at:
            at[name] = step
            turn()
    sealers = {open_ledger(tmp_path, ROTATED)._view.open(THREAD, n).key for n in range(1, 22)}
    assert sealers == {OLD.id, NEW.id}
    assert open_ledger(tmp_path, ROTATED).verify(THREAD) == 21


def test_worker_that_does_not_know_the_new_key_refuses_it(tmp_path: Path) -> None:
    """Why the order matters: the other way round, a rotation stops the workers."""
    forgotten = open_ledger(tmp_path, Keyring(OLD))
    forgotten.save(THREAD, {"n": 1})
    open_ledger(tmp_path, ROTATED).save(THREAD, {"n": 2})
    with pytest.raises(UnknownKey, match="If that key is one of yours, add it"):
        forgotten.latest(THREAD)
    with pytest.raises(UnknownKey):
        forgotten.save(THREAD, {"n": 3})


def test_readers_rotate_with_the_public_half_alone(tmp_path: Path) -> None:
    first, second = SigningKey.generate("ed25519"), SigningKey.generate("ed25519")
    open_ledger(tmp_path, Keyring(first)).save(THREAD, {"n": 1})
    open_ledger(tmp_path, Keyring(second, verify=[first])).save(THREAD, {"n": 2})
    reader = open_ledger(tmp_path, Keyring(verify=[first.public, second.public]))
    assert [each.state["n"] for each in reader.history(THREAD)] == [1, 2]


def test_retired_key_seals_nothing_that_counts_after_all_was_sealed_anew(
    tmp_path: Path, frozen: FileAnchor
) -> None:
    before = FileAnchor(tmp_path / "anchor").read(STORE, THREAD)
    source = open_ledger(tmp_path, revoking(frozen))
    assert source.copy_to(open_ledger(tmp_path, Keyring(NEW), "fresh")) == 3
    assert FileAnchor(tmp_path / "anchor").read(STORE, THREAD) == before
    fresh = open_ledger(tmp_path, Keyring(NEW), "fresh")
    assert [each.state["n"] for each in fresh.history(THREAD)] == [1, 2, 3]
    assert fresh.verify(THREAD) == 3
    record = forged(4, fresh.latest(THREAD).digest)
    fresh.storage.append(THREAD, 4, record)
    with pytest.raises(UnknownKey, match=f"names key '{OLD.id}'"):
        open_ledger(tmp_path, Keyring(NEW), "fresh").latest(THREAD)


# A backup


def test_old_backup_is_refused_until_the_loss_is_accepted_by_name(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path, Keyring(OLD))
    ledger.save(THREAD, {"n": 1})
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    last = ledger.save(THREAD, {"n": 2})
    ledger.save("order-8", {"n": 1})
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")

    restored = open_ledger(tmp_path, Keyring(OLD))
    assert restored.threads() == [THREAD, "order-8"]
    with pytest.raises(RolledBack) as refusal:
        restored.latest(THREAD)
    assert refusal.value.what == "order-7 ends at #1, and the anchor has seen #2."
    assert "accept the loss by name with Ledger.accept_loss" in refusal.value.do
    with pytest.raises(RolledBack, match="order-8 is gone, and the anchor has seen #1"):
        restored.verify("order-8")

    first = Ledger(restored.storage, store=STORE, keys=Keyring(OLD)).load(THREAD, 1)
    assert restored.accept_loss(THREAD) == (Head(2, last.digest), Head(1, first.digest))
    assert open_ledger(tmp_path, Keyring(OLD)).latest(THREAD).state == {"n": 1}
    with pytest.raises(RolledBack, match="order-8 is gone"):
        restored.latest("order-8")
    assert restored.accept_loss("order-8")[1] is None
    with pytest.raises(NotFound):
        restored.latest("order-8")


def test_what_a_backup_lacks_is_filled_in_from_another_copy(tmp_path: Path) -> None:
    """Verified record by record; what is there stays."""
    ledger = open_ledger(tmp_path, Keyring(OLD))
    for number in (1, 2, 3):
        ledger.save(THREAD, {"n": number})
        shutil.copytree(tmp_path / "state", tmp_path / f"copy-{number}")
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy-1").rename(tmp_path / "state")
    restored = open_ledger(tmp_path, Keyring(OLD))
    with pytest.raises(RolledBack, match="ends at #2"):
        open_ledger(tmp_path, Keyring(OLD), "copy-2").copy_to(restored)
    assert open_ledger(tmp_path, Keyring(OLD), "copy-3").copy_to(restored) == 3
    history = open_ledger(tmp_path, Keyring(OLD)).history(THREAD)
    assert [each.state["n"] for each in history] == [1, 2, 3]


# At night


def test_worker_that_was_forgotten_is_stopped_by_taking_the_folder_away(tmp_path: Path) -> None:
    forgotten = open_ledger(tmp_path, Keyring(OLD))
    forgotten.save(THREAD, {"n": 1})
    (tmp_path / "state").rename(tmp_path / "evidence")
    with pytest.raises(StorageError):
        forgotten.latest(THREAD)
    with pytest.raises(StorageError):
        forgotten.save(THREAD, {"n": 2})
    assert len(list((tmp_path / "evidence" / THREAD).iterdir())) == 1


def test_worker_that_is_restarted_begins_no_thread_where_a_file_was_left(tmp_path: Path) -> None:
    """Without the file it makes an empty folder: old threads are refused, and new ones begin."""
    forgotten = open_ledger(tmp_path, Keyring(OLD))
    forgotten.save(THREAD, {"n": 1})
    (tmp_path / "state").rename(tmp_path / "evidence")
    restarted = open_ledger(tmp_path, Keyring(OLD))
    with pytest.raises(RolledBack, match="order-7 is gone, and the anchor has seen #1"):
        restarted.save(THREAD, {"n": 1})
    assert restarted.save("order-9", {"n": 1}).sequence == 1  # why the page leaves a file
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state").write_text("Stopped on purpose.")
    for use in (
        lambda: open_ledger(tmp_path, Keyring(OLD)),
        lambda: forgotten.save("order-10", {"n": 1}),
        lambda: forgotten.latest(THREAD),
    ):
        with pytest.raises(UnsafeLocation, match="state is not a folder"):
            use()
    assert (tmp_path / "state").read_text() == "Stopped on purpose."


def test_audit_leaves_the_evidence_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SigningKey.from_file(tmp_path / "keys" / "signing.key", create=True)
    keys = Keyring(SigningKey.from_file(tmp_path / "keys" / "signing.key"))
    ledger = open_ledger(tmp_path, keys)
    for number in (1, 2, 3):
        ledger.save(THREAD, {"n": number})
    ledger.prune(THREAD, keep=2)
    file = tmp_path / "state" / THREAD / "0000000003.checkpoint"
    file.write_bytes(file.read_bytes().replace(b'"n":3', b'"n":9'))

    def seen() -> dict[str, tuple[bytes, int, int, int]]:
        found = {}
        for folder in ("state", "anchor"):
            for each in sorted((tmp_path / folder).rglob("*")):
                info = each.stat()
                content = each.read_bytes() if each.is_file() else b""
                found[str(each)] = content, info.st_mode, info.st_mtime_ns, info.st_ctime_ns
        return found

    before = seen()
    options = ["--store", STORE, "--key", str(tmp_path / "keys" / "signing.key")]
    assert audit([str(tmp_path / "state"), *options, "--anchor", str(tmp_path / "anchor")]) == 1
    shown = capsys.readouterr().out
    assert "SP12 error: The state of order-7 #3 is not the one that was sealed." in shown
    assert seen() == before
