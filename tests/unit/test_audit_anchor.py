"""check_anchor: is each head anchored, recently, and somewhere else?"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    FileAnchor,
    FileCheckpointStorage,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    NotFound,
    SigningKey,
)
from safepoint.audit import check_anchor
from safepoint.audit import ledger as anchors
from safepoint.names import Head
from safepoint.record import Place, seal
from safepoint.verify import View

KEY = SigningKey.generate()
KEYS = Keyring(KEY)


def ledger_of(storage: Any, anchor: Any = None, **options: Any) -> Ledger:
    return Ledger(storage, store="invoices", keys=KEYS, anchor=anchor, **options)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A thread of three checkpoints, anchored."""
    made = ledger_of(FileCheckpointStorage(tmp_path / "state"), InMemoryAnchor())
    for n in range(3):
        made.save("a", n)
    return made


def lines(ledger: Ledger) -> list[str]:
    return [str(finding) for finding in check_anchor(ledger)]


def test_an_anchored_store_has_no_finding(ledger: Ledger) -> None:
    """Pruned and deleted threads too, and a folder in which a first save never ended."""
    assert lines(ledger) == []
    ledger.save("b", 1)
    ledger.delete("b")
    ledger.prune("a", keep=1)
    (ledger.storage.path / "c").mkdir(mode=0o700)  # type: ignore[attr-defined]
    assert lines(ledger) == []


def test_a_thread_that_never_had_a_record_is_no_finding() -> None:
    class Listing(InMemoryCheckpointStorage):
        def threads(self) -> list[str]:
            return ["a"]

    assert lines(ledger_of(Listing(), InMemoryAnchor())) == []


def test_no_anchor_is_a_warning() -> None:
    assert lines(ledger_of(InMemoryCheckpointStorage())) == [
        (
            "SP15 warning: Store invoices has no anchor, so nobody notices when its newest"
            " checkpoints are cut off. Keep the heads where the storage's writer cannot write:"
            " Ledger(..., anchor=FileAnchor(path))."
        )
    ]


def test_a_thread_that_was_never_anchored_is_a_warning(ledger: Ledger) -> None:
    ledger_of(ledger.storage).save("b", 1)
    assert lines(ledger) == [
        (
            "SP15 warning: b was never anchored, so nobody would notice if it were gone. Verify it"
            " and anchor it once, with Ledger.anchor_now."
        )
    ]
    ledger.anchor_now("b")
    assert lines(ledger) == []


def test_an_anchor_that_is_far_behind_is_a_warning(ledger: Ledger) -> None:
    """One save may have ended between the two writes, so one is no finding."""
    bare = ledger_of(ledger.storage)
    bare.save("a", 4)
    assert lines(ledger) == []
    bare.save("a", 5)
    assert lines(ledger) == [
        (
            "SP15 warning: a is at #5 and anchored at #3: what is newer could be cut off unnoticed."
            " Find out which writer does not anchor every 1, and move it with Ledger.anchor_now."
        )
    ]
    assert lines(ledger_of(ledger.storage, ledger.anchor, anchor_every=2)) == []


def test_what_was_cut_off_is_an_error_in_the_words_of_the_refusal(
    ledger: Ledger, tmp_path: Path
) -> None:
    anchor = ledger.anchor
    (tmp_path / "state/a/0000000003.checkpoint").unlink()
    (finding,) = check_anchor(ledger_of(FileCheckpointStorage(tmp_path / "state"), anchor))
    assert (finding.rule, finding.severity, finding.where) == ("SP15", "error", "a")
    assert finding.what == "a ends at #2, and the anchor has seen #3."
    shutil.rmtree(tmp_path / "state/a")
    (finding,) = check_anchor(ledger_of(FileCheckpointStorage(tmp_path / "state"), anchor))
    assert finding.what == "a is gone, and the anchor has seen #3."


def test_another_record_where_the_anchored_one_stood_is_an_error(ledger: Ledger) -> None:
    anchor = InMemoryAnchor()
    anchor.advance("invoices", "a", Head(2, "sha256:" + "0" * 64))
    (finding,) = check_anchor(ledger_of(ledger.storage, anchor))
    assert finding.severity == "error"
    assert finding.what == "a #2 is not the record that the anchor has seen there."


def test_an_anchored_record_that_was_pruned_away_is_an_error(ledger: Ledger) -> None:
    """By a ledger that did not know of the anchor."""
    bare = ledger_of(ledger.storage)
    for n in range(3):
        bare.save("a", n)
    bare.prune("a", keep=1)
    (finding,) = check_anchor(ledger)
    assert (finding.rule, finding.severity) == ("SP15", "error")
    assert finding.what.startswith("a #3, which the anchor has seen, is not in the storage")


def test_a_gap_that_holds_the_anchored_record_is_an_error_and_another_is_not(
    tmp_path: Path, ledger: Ledger
) -> None:
    bare = ledger_of(ledger.storage)
    for n in range(3):
        bare.save("a", n)
    record = tmp_path / "state/a/0000000005.checkpoint"
    record.rename(tmp_path / "kept")
    fresh = ledger_of(FileCheckpointStorage(tmp_path / "state"), ledger.anchor)
    assert [finding.severity for finding in check_anchor(fresh)] == ["note"]
    (tmp_path / "kept").rename(record)
    (tmp_path / "state/a/0000000003.checkpoint").unlink()
    fresh = ledger_of(FileCheckpointStorage(tmp_path / "state"), ledger.anchor)
    assert [finding.severity for finding in check_anchor(fresh)] == ["error"]


def test_an_anchored_record_that_goes_while_it_is_looked_for_is_an_error(ledger: Ledger) -> None:
    """The storage says that it is there, and then does not have it."""

    class Vanishing(InMemoryCheckpointStorage):
        def read(self, thread: str, sequence: int) -> bytes:
            raise NotFound("It is not there.", "Look elsewhere.")

    storage = Vanishing()
    storage.append("a", 1, ledger.storage.read("a", 1))
    anchor = InMemoryAnchor()
    anchor.advance("invoices", "a", Head(1, "sha256:" + "0" * 64))
    (finding,) = check_anchor(ledger_of(storage, anchor))
    assert (finding.severity, finding.where) == ("error", "a")


def test_not_found_says_nothing_about_a_thread_that_is_anchored(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def latest(view: View, thread: str) -> None:
        raise NotFound(f"There is no {thread}.", "Look elsewhere.")

    monkeypatch.setattr(View, "latest", latest)
    assert lines(ledger) == [
        (
            "SP15 error: The newest record of a is gone, and the anchor has seen #3. Somebody"
            " removed it. Restore it from a backup that verifies."
        )
    ]
    assert lines(ledger_of(ledger.storage, InMemoryAnchor())) == []


def test_an_anchor_that_is_lost_after_a_refusal_is_an_error(ledger: Ledger, tmp_path: Path) -> None:
    class Failing(InMemoryAnchor):
        calls = 0

        def read(self, store: str, thread: str) -> Head | None:
            self.calls += 1
            if self.calls > 1:
                raise ConnectionError
            return None

    (tmp_path / "state/a/0000000003.checkpoint").write_bytes(b"plain")
    (finding,) = check_anchor(ledger_of(ledger.storage, Failing()))
    assert finding.severity == "error"
    assert finding.what == "The anchor could not be asked about a: it raised ConnectionError."


def test_what_does_not_verify_is_a_note_here(ledger: Ledger, tmp_path: Path) -> None:
    record = tmp_path / "state/a/0000000003.checkpoint"
    record.write_bytes(record.read_bytes().replace(b"\n2\n", b"\n9\n"))
    assert lines(ledger) == [
        (
            "SP15 note: The end of a does not verify, so it was not compared with the anchor."
            " See what check_records says of it."
        )
    ]


def test_a_forged_link_after_the_anchored_record_is_a_note_here(
    ledger: Ledger, tmp_path: Path
) -> None:
    place = Place("invoices", "a", 4)
    previous = "sha256:" + "0" * 64
    forged, _ = seal(b"1", place, KEY, created=datetime.now(UTC), previous=previous)
    ledger.storage.append("a", 4, forged)
    assert [finding.severity for finding in check_anchor(ledger)] == ["note"]


def test_the_anchor_of_another_store_is_an_error(tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    anchor.advance("orders", "a", Head(1, "sha256:" + "0" * 64))
    storage = InMemoryCheckpointStorage()
    ledger_of(storage).save("a", 1)
    (finding,) = check_anchor(ledger_of(storage, anchor))
    assert (finding.rule, finding.severity) == ("SP15", "error")
    assert finding.what == (
        f"{tmp_path}/anchor belongs to store orders, and was asked about store invoices."
    )


def test_an_anchor_that_fails_for_one_thread_is_an_error_for_that_thread(tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    ledger = ledger_of(InMemoryCheckpointStorage(), anchor)
    for thread in ("a", "b"):
        ledger.save(thread, 1)
    (tmp_path / "anchor/a.head").write_bytes(b"nonsense\n")
    (finding,) = check_anchor(ledger)
    assert (finding.where, finding.severity) == ("a", "error")


def test_one_owner_and_one_device_are_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And neither is said of an anchor that nobody can write, on another device."""
    state, apart = tmp_path / "state", tmp_path / "anchor"
    ledger = ledger_of(FileCheckpointStorage(state), FileAnchor(apart, create=True))
    ledger.save("a", 1)
    user = os.geteuid()
    assert lines(ledger) == [
        (
            f"SP15 note: The anchor {apart} can be written by user {user}, who owns the storage"
            f" {state} too and could roll back both. If you fear that, keep the heads under a"
            " credential of their own, with an Anchor of ten lines. This is a courtesy: the check"
            " sees owners, not who holds a password."
        ),
        (
            f"SP15 note: The anchor {apart} and the storage {state} are on one device: a snapshot"
            " that is restored takes both back. Keep the anchor on another volume, and out of the"
            " storage's backup."
        ),
    ]
    apart.chmod(0o500)
    assert [" on one device: " in line for line in lines(ledger)] == [True]
    apart.chmod(0o700)
    real = Path.stat

    def other_device(path: Path, **options: Any) -> os.stat_result:
        found = list(real(path, **options))
        if path == apart:
            found[2] += 1
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", other_device)
    assert [" can be written by user " in line for line in lines(ledger)] == [True]

    def other_owner(path: Path, **options: Any) -> os.stat_result:
        found = list(other_device(path, **options))
        found[4] += path == apart
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", other_owner)
    assert lines(ledger) == []


def test_a_save_during_the_check_is_no_finding(ledger: Ledger) -> None:
    """Three saves end after the storage was asked and before the anchor is."""

    class Busy(InMemoryAnchor):
        calls = 0

        def read(self, store: str, thread: str) -> Head | None:
            found = super().read(store, thread)
            Busy.calls += 1
            if Busy.calls == 1:  # the check has its first answer, and the writer goes on
                for n in range(3):
                    writer.save("a", n)
            return found

    anchor = Busy()
    writer = ledger_of(ledger.storage, anchor)
    Busy.calls = 1
    writer.anchor_now("a")
    Busy.calls = 0
    assert lines(ledger_of(ledger.storage, anchor)) == []
    assert writer.latest("a").sequence == 6


def test_a_writer_that_is_about_to_anchor_is_given_a_moment(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several writers at once, each may have saved and not anchored yet."""
    bare = ledger_of(ledger.storage)
    for n in range(3):
        bare.save("a", n)
    bare.save("b", 1)
    waited: list[float] = []

    def meanwhile(seconds: float) -> None:
        waited.append(seconds)
        ledger.anchor_now("a")
        ledger.anchor_now("b")

    monkeypatch.setattr("safepoint.audit.ledger.time.sleep", meanwhile)
    assert lines(ledger) == []
    assert len(waited) == 1
    assert lines(ledger) == []
    assert len(waited) == 1


def test_an_anchor_that_is_lost_half_way_is_an_error(ledger: Ledger) -> None:
    class Failing(InMemoryAnchor):
        calls = 0

        def read(self, store: str, thread: str) -> Head | None:
            self.calls += 1
            if self.calls > 1:
                raise ConnectionError
            return None

    (finding,) = check_anchor(ledger_of(ledger.storage, Failing()))
    assert (finding.severity, finding.where) == ("error", "a")
    assert finding.what == ("The anchor could not be asked about a: it raised ConnectionError.")


def test_where_files_have_no_owner_the_place_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_of(
        FileCheckpointStorage(tmp_path / "state"), FileAnchor(tmp_path / "anchor", create=True)
    )
    monkeypatch.setattr(anchors, "SUPPORTED", False)
    assert lines(ledger) == []
