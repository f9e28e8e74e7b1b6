"""SP08: a key that was replaced or stolen stops counting, and what you can vouch for is kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from safepoint import FileAnchor, Keyring, NotFound, RolledBack, SigningKey
from safepoint.errors import (
    AnchorMismatch,
    AnchorUnavailable,
    KeyRevoked,
    SealBroken,
    StorageUnavailable,
    ThreadDeleted,
    UnknownKey,
    UnsafeLocation,
    WrongPlace,
)
from safepoint.names import Head
from safepoint.record import Place, seal
from tests.attacks.helpers import THREAD, Shop, refused
from tests.unit.commands import audit

OLD = SigningKey.generate()
NEW = SigningKey.generate("ed25519")
ROTATED = Keyring(NEW, verify=[OLD])


class Night(Shop):
    """A store whose workers have the old key, and a thief who copied it."""

    def at(self, folder: str) -> Shop:
        """The same store, with the same anchor, in another folder."""
        (self.path / folder).mkdir(exist_ok=True)
        return Shop(self.path / folder, NEW, **self.options)

    def steal(self, state: object, thread: str = THREAD) -> None:
        """Whoever copied the old key can write the storage, and not the anchor."""
        self.ledger(anchor=None).save(thread, state)

    def freeze(self) -> FileAnchor:
        """Copy the anchor's folder as it stands."""
        shutil.copytree(self.path / "anchor", self.path / "frozen")
        return FileAnchor(self.path / "frozen")

    def forge(self, sequence: int, previous: str) -> bytes:
        """Seal a record that says it was written long ago."""
        place, then = Place("invoices", THREAD, sequence), datetime(1999, 12, 31, tzinfo=UTC)
        return seal(b'{"payee":"mally"}', place, OLD, created=then, previous=previous)[0]


@pytest.fixture
def night(tmp_path: Path) -> Night:
    """Three checkpoints."""
    night = Night(tmp_path, OLD)
    night.fill({"n": number, "payee": "alice"} for number in (1, 2, 3))
    return night


def revoking(until: FileAnchor | None) -> Keyring:
    return Keyring(NEW).revoking(OLD, until=until)


# A stolen key


def test_retired_key_of_a_thief_is_refused_after_the_point(night: Night) -> None:
    keys = revoking(night.freeze())
    night.steal({"payee": "mally"})
    copy = night.at("copy")
    for use in (
        lambda: night.ledger(keys=keys).latest(THREAD),
        lambda: night.ledger(keys=keys).load(THREAD, 4),
        lambda: list(night.ledger(keys=keys).history(THREAD)),
        lambda: night.ledger(keys=keys).verify(THREAD),
        lambda: night.ledger(keys=keys).save(THREAD, {}),
        lambda: night.ledger(keys=keys).prune(THREAD, keep=1),
        lambda: night.ledger(keys=keys).delete(THREAD),
        lambda: night.ledger(keys=keys).copy_to(copy.ledger()),
    ):
        said = refused(KeyRevoked, use)
        assert said.startswith(
            f"order-7 #4 is sealed by key {OLD.id}, which was revoked and does not count after #3."
        )
        assert "save with the new key" in said
    assert not copy.file(1).exists()
    night.steal({"payee": "mally"}, "order-8")
    said = refused(KeyRevoked, lambda: night.ledger(keys=keys).latest("order-8"))
    assert "does not count here" in said


def test_what_was_there_before_the_point_still_loads_and_without_one_nothing_does(
    night: Night,
) -> None:
    keys = revoking(night.freeze())
    assert [each.state["n"] for each in night.ledger(keys=keys).history(THREAD)] == [1, 2, 3]
    assert night.ledger(keys=keys).verify(THREAD) == 3
    for use in (
        lambda: night.ledger(keys=revoking(None)).latest(THREAD),
        lambda: night.ledger(keys=revoking(None)).load(THREAD, 1),
    ):
        assert "does not count here" in refused(KeyRevoked, use)
    assert night.ledger(keys=keys).save(THREAD, {"n": 4}).sequence == 4
    assert night.ledger(keys=keys).latest(THREAD).state == {"n": 4}


def test_record_of_a_thief_below_a_later_one_is_found(night: Night) -> None:
    """A worker went on from it, with the new key and the anchor, before anybody knew."""
    keys = revoking(night.freeze())
    night.steal({"payee": "mally"})
    night.ledger(keys=ROTATED).save(THREAD, {"payee": "mally", "paid": True})
    for use in (
        lambda: night.ledger(keys=keys).verify(THREAD),
        lambda: list(night.ledger(keys=keys).history(THREAD)),
        lambda: night.ledger(keys=keys).prune(THREAD, keep=1),
    ):
        assert refused(KeyRevoked, use).startswith("order-7 #4 ")


def test_backdated_record_of_a_stolen_key_is_refused(night: Night) -> None:
    """A date is what the thief writes, so it decides nothing. Nor does the place of the last."""
    keys = revoking(night.freeze())
    thief = night.ledger(anchor=None)
    thief.storage.append(THREAD, 4, night.forge(4, thief.latest(THREAD).digest))
    assert thief.latest(THREAD).created.year == 1999
    refused(KeyRevoked, lambda: night.ledger(keys=keys).latest(THREAD))
    night.file(4).unlink()
    night.file(3).write_bytes(night.forge(3, night.ledger(anchor=None).load(THREAD, 2).digest))
    new = FileAnchor(night.path / "new-anchor", create=True)
    said = refused(KeyRevoked, lambda: night.ledger(keys=keys, anchor=new).latest(THREAD))
    assert "does not count after #3" in said


def test_rewritten_past_of_a_stolen_key_is_refused(night: Night) -> None:
    """Below the point a seal alone proves nothing any more; the links do."""
    keys, copy = revoking(night.freeze()), night.at("copy")
    night.file(2).write_bytes(night.forge(2, night.ledger().load(THREAD, 1).digest))
    assert night.ledger(keys=keys).load(THREAD, 2).state == {"payee": "mally"}  # as the page says
    assert "#2" in refused(SealBroken, lambda: night.ledger(keys=keys).verify(THREAD))
    said = refused(WrongPlace, lambda: list(night.ledger(keys=keys).history(THREAD)))
    assert "#3 does not follow the #2" in said
    refused(WrongPlace, lambda: night.ledger(keys=keys).copy_to(copy.ledger()))
    assert not copy.file(1).exists()


def to_staging(head: Path) -> None:
    head.write_text(head.read_text().replace("invoices", "staging"))


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda head: shutil.rmtree(head.parent), AnchorUnavailable),
        (lambda head: head.write_text("x\n"), AnchorUnavailable),
        (lambda head: head.unlink(), KeyRevoked),
        (to_staging, AnchorMismatch),
    ],
    ids=["gone", "damaged", "thread unknown", "of another store"],
)
def test_a_point_that_cannot_be_read_lets_nothing_through(
    night: Night, damage: Callable[[Path], object], error: type[Exception]
) -> None:
    keys = revoking(night.freeze())
    damage(night.path / "frozen" / "order-7.head")
    with pytest.raises(error):
        night.ledger(keys=keys).latest(THREAD)


# The day of the theft


@pytest.mark.parametrize("how", ["copy", "backup", "neither"])
@pytest.mark.parametrize("interrupted", [False, True])
def test_honest_day_after_a_theft_is_kept_by_those_who_vouch(
    tmp_path: Path, how: str, interrupted: bool
) -> None:
    """The three branches of the page. A thread that the thief cut is not given up with the day."""
    night = Night(tmp_path, OLD)
    for thread in ("order-1", THREAD, "order-8"):
        night.ledger().save(thread, {"thread": thread}, app="run/1")
    before = night.freeze() if how == "copy" else FileAnchor(tmp_path / "made", create=True)
    if how == "backup":
        backup = night.ledger(anchor=before)
        for thread in backup.threads():
            backup.anchor_now(thread)
    for thread in (THREAD, "order-8", "order-9"):
        night.ledger().save(thread, {"thread": thread, "today": True}, app="run/1")
    night.steal({"payee": "mally"})
    night.steal({"payee": "mally"}, "order-66")
    trusting = night.ledger(keys=Keyring(verify=[OLD]), anchor=None)
    late = {}
    for thread in trusting.threads():
        head = before.read("invoices", thread)
        late[thread] = list(trusting.history(thread))[head.sequence if head else 0 :]
    late = {thread: newer for thread, newer in late.items() if newer}
    assert ("order-1" in late) == (how == "neither")

    def carry_over(stop_after: int) -> None:
        ledger = night.at("fresh").ledger()
        evidence = night.ledger(keys=revoking(before))
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
    ledger = night.at("fresh").ledger()
    kept = {t: [each.state for each in ledger.history(t)] for t in ledger.threads()}
    assert kept == {
        "order-1": [{"thread": "order-1"}],
        THREAD: [{"thread": THREAD}, {"thread": THREAD, "today": True}],
        "order-8": [{"thread": "order-8"}, {"thread": "order-8", "today": True}],
        "order-9": [{"thread": "order-9", "today": True}],
    }
    assert {ledger.latest(thread).app for thread in ledger.threads()} == {"run/1"}


def test_thread_that_was_pruned_or_deleted_before_the_theft_is_kept_by_who_pruned_it(
    night: Night,
) -> None:
    """Its base proves nothing any more. Up to the point the links do, whoever has the key."""
    night.ledger().prune(THREAD, keep=2)
    night.fill([{}], "order-8")
    night.ledger().delete("order-8")
    before = night.freeze()
    night.steal({"payee": "mally"})
    ledger = night.at("fresh").ledger()
    assert night.ledger(keys=Keyring(verify=[OLD])).copy_to(ledger, up_to=before) == 3
    assert [each.state["n"] for each in ledger.history(THREAD)] == [2, 3]
    refused(ThreadDeleted, lambda: ledger.latest("order-8"))


# A quiet day


def test_workers_rotate_one_after_another_without_a_refusal(tmp_path: Path) -> None:
    """Each worker learns the new key before any worker signs with it."""
    night = Night(tmp_path, OLD)
    rings = [Keyring(OLD), Keyring(OLD, verify=[NEW]), ROTATED]
    at = {"a": 0, "b": 0, "c": 0}
    for step in (0, 1, 2):
        for name in at:
            at[name] = step
            for worker, ring in at.items():
                saved = night.ledger(keys=rings[ring]).save(THREAD, {"by": worker})
                read = [night.ledger(keys=rings[each]).latest(THREAD) for each in at.values()]
                assert read == [saved] * 3
    assert night.ledger(keys=ROTATED).verify(THREAD) == 27
    sealers = {night.file(n).read_text().split()[1] for n in range(1, 28)}
    assert sealers == {OLD.id, NEW.id}


def test_worker_that_does_not_know_the_new_key_refuses_it(night: Night) -> None:
    """Why the order matters. A reader needs the public half alone."""
    night.ledger(keys=ROTATED).save(THREAD, {"n": 4})
    said = refused(UnknownKey, lambda: night.ledger().latest(THREAD))
    assert "If that key is one of yours, add it" in said
    refused(UnknownKey, lambda: night.ledger().save(THREAD, {"n": 5}))
    reader = night.ledger(keys=Keyring(verify=[OLD, NEW.public]))
    assert [each.state["n"] for each in reader.history(THREAD)] == [1, 2, 3, 4]


def test_retired_key_seals_nothing_that_counts_after_all_was_sealed_anew(night: Night) -> None:
    fresh = night.at("fresh")
    assert night.ledger(keys=revoking(night.freeze())).copy_to(fresh.ledger()) == 3
    assert [each.state["n"] for each in fresh.ledger().history(THREAD)] == [1, 2, 3]
    record = night.forge(4, fresh.ledger().latest(THREAD).digest)
    fresh.ledger().storage.append(THREAD, 4, record)
    said = refused(UnknownKey, lambda: fresh.ledger().latest(THREAD))
    assert f"names key '{OLD.id}'" in said


# A backup


def test_old_backup_is_refused_until_the_loss_is_accepted_by_name(tmp_path: Path) -> None:
    night = Night(tmp_path, OLD)
    night.fill([{"n": 1}])
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    night.fill([{"n": 2}])
    last = night.ledger().latest(THREAD)
    night.fill([{"n": 1}], "order-8")
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    assert night.ledger().threads() == [THREAD, "order-8"]
    said = refused(RolledBack, lambda: night.ledger().latest(THREAD))
    assert said.startswith("order-7 ends at #1, and the anchor has seen #2.")
    assert "accept the loss by name with Ledger.accept_loss" in said
    first = night.ledger(anchor=None).load(THREAD, 1)
    assert night.ledger().accept_loss(THREAD) == (Head(2, last.digest), Head(1, first.digest))
    assert night.ledger().latest(THREAD).state == {"n": 1}
    said = refused(RolledBack, lambda: night.ledger().verify("order-8"))
    assert said.startswith("order-8 is gone, and the anchor has seen #1")
    assert night.ledger().accept_loss("order-8")[1] is None
    refused(NotFound, lambda: night.ledger().latest("order-8"))


def test_what_a_backup_lacks_is_filled_in_from_another_copy(night: Night) -> None:
    """Verified record by record; what is there stays. Neither copy has to be whole."""
    whole = night.at("whole")
    shutil.copytree(night.path / "state", night.path / "whole/state")
    for sequence in (2, 3):
        night.file(sequence).unlink()
    assert whole.ledger(keys=Keyring(verify=OLD)).copy_to(night.ledger()) == 3
    assert [each.state["n"] for each in night.ledger().history(THREAD)] == [1, 2, 3]


# At night


def test_worker_that_was_forgotten_is_stopped_by_a_file_in_place_of_the_folder(
    night: Night,
) -> None:
    """Without the file it makes an empty folder: old threads are refused, and new ones begin."""
    forgotten, state = night.ledger(), night.path / "state"
    state.rename(night.path / "evidence")
    for use in (lambda: forgotten.latest(THREAD), lambda: forgotten.save(THREAD, {"n": 2})):
        refused(StorageUnavailable, use)
    said = refused(RolledBack, lambda: night.ledger().save(THREAD, {"n": 1}))
    assert said.startswith("order-7 is gone, and the anchor has seen #3")
    assert night.ledger().save("order-9", {"n": 1}).sequence == 1  # why the page leaves a file
    shutil.rmtree(state)
    state.write_text("Stopped on purpose.")
    for use in (lambda: night.ledger().latest(THREAD), lambda: forgotten.latest(THREAD)):
        assert "state is not a folder" in refused(UnsafeLocation, use)
    assert state.read_text() == "Stopped on purpose."


def test_audit_leaves_the_evidence_as_it_is(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    (night.path / "keys").mkdir(mode=0o700)
    OLD.to_file(night.path / "keys" / "signing.key")
    night.ledger().prune(THREAD, keep=2)
    night.edit(3, '"n":3', '"n":9')

    def seen() -> dict[str, tuple[bytes, int, int, int]]:
        found = {}
        for folder in ("state", "anchor"):
            for each in sorted((night.path / folder).rglob("*")):
                info, content = each.stat(), each.read_bytes() if each.is_file() else b""
                found[str(each)] = content, info.st_mode, info.st_mtime_ns, info.st_ctime_ns
        return found

    before = seen()
    options = ["--store", "invoices", "--key", str(night.path / "keys" / "signing.key")]
    anchor = ["--anchor", str(night.path / "anchor")]
    assert audit([str(night.path / "state"), *options, *anchor]) == 1
    shown = capsys.readouterr().out
    assert "SP12 error: The state of order-7 #3 is not the one that was sealed." in shown
    assert seen() == before
