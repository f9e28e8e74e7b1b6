"""check_records: the first refusal of each thread, under the rule that it breaks."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from safepoint import (
    FileAnchor,
    FileCheckpointStorage,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    Limits,
    SigningKey,
)
from safepoint.audit import check_records
from safepoint.codec import Codec
from safepoint.errors import StorageUnavailable
from safepoint.keys import Revoked
from safepoint.names import Head, digest_of
from safepoint.record import Place, seal

KEY = SigningKey.generate()
KEYS = Keyring(KEY)


def ledger_in(path: Path, keys: Keyring = KEYS, **options: object) -> Ledger:
    return Ledger(FileCheckpointStorage(path), store="invoices", keys=keys, **options)  # type: ignore[arg-type]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two threads of three checkpoints."""
    made = ledger_in(tmp_path / "state")
    for thread in ("a", "b"):
        for n in range(3):
            made.save(thread, {"amount": n})
    return made


def record(tmp_path: Path, sequence: int, thread: str = "a") -> Path:
    return tmp_path / f"state/{thread}/{sequence:010d}.checkpoint"


def found(ledger: Ledger) -> list[tuple[str, str]]:
    findings = check_records(ledger)
    assert {finding.severity for finding in findings} <= {"error"}
    return [(finding.where, finding.rule) for finding in findings]


def sealed(sequence: int, previous: str | None, key: SigningKey = KEY) -> bytes:
    """A record that a holder of the key forged."""
    place = Place("invoices", "a", sequence)
    forged, _ = seal(b'{"amount":9}', place, key, created=datetime.now(UTC), previous=previous)
    return forged


def link(path: Path) -> str:
    """The digest by which the next record names this one."""
    return digest_of(path.read_bytes().split(b"\n")[1])


def test_a_store_that_verifies_has_no_finding(ledger: Ledger) -> None:
    assert check_records(ledger) == []


def test_pruned_and_deleted_threads_verify(ledger: Ledger) -> None:
    ledger.prune("a", keep=1)
    ledger.delete("b")
    assert check_records(ledger) == []


def test_one_finding_per_thread_in_the_words_of_the_refusal() -> None:
    storage = InMemoryCheckpointStorage()
    ledger = Ledger(storage, store="invoices", keys=KEYS)
    ledger.save("good", 1)
    storage.append("bad", 1, b"plain")
    storage.append("bad", 2, b"plain too")
    storage.append("moved", 1, storage.read("good", 1))
    findings = check_records(ledger)
    assert [(f.where, f.rule, f.severity) for f in findings] == [
        ("bad", "SP02", "error"),
        ("moved", "SP12", "error"),
    ]
    assert findings[0].what == "bad #1 is not a sealed record."


def test_what_nobody_you_trust_sealed_is_sp02(ledger: Ledger, tmp_path: Path) -> None:
    record(tmp_path, 3).write_bytes(b'{"amount": 2}')
    stranger = SigningKey.generate()
    record(tmp_path, 3, "b").write_bytes(sealed(3, "sha256:" + "0" * 64, stranger))
    assert found(ledger) == [("a", "SP02"), ("b", "SP02")]


def test_a_broken_seal_and_another_place_are_sp12(ledger: Ledger, tmp_path: Path) -> None:
    edited = record(tmp_path, 2)
    edited.write_bytes(edited.read_bytes().replace(b":1}", b":9}"))
    shutil.copy(record(tmp_path, 1, "b"), record(tmp_path, 2, "b"))
    assert found(ledger) == [("a", "SP12"), ("b", "SP12")]


def test_a_link_that_a_holder_of_the_key_broke_is_sp14(ledger: Ledger, tmp_path: Path) -> None:
    record(tmp_path, 2).write_bytes(sealed(2, link(record(tmp_path, 1))))
    assert found(ledger) == [("a", "SP14")]
    assert check_records(ledger)[0].what == "a #3 does not follow the #2 that is stored."


def test_a_broken_link_is_sp14_before_the_anchored_record_too(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path / "state", anchor=InMemoryAnchor())
    for n in range(3):
        ledger.save("a", {"amount": n})
    edited = record(tmp_path, 2)
    genuine = edited.read_bytes()
    edited.write_bytes(sealed(2, link(record(tmp_path, 1))))
    assert found(ledger) == [("a", "SP14")]
    edited.write_bytes(genuine.replace(b":1}", b":9}"))
    assert found(ledger) == [("a", "SP12")]


def test_a_destroyed_signature_is_sp12_before_the_anchored_record_too(tmp_path: Path) -> None:
    """The links hold, and still nobody could load that record."""
    ledger = ledger_in(tmp_path / "state", anchor=InMemoryAnchor())
    for n in range(3):
        ledger.save("a", {"amount": n})
    line_1, rest = record(tmp_path, 2).read_bytes().split(b"\n", 1)
    record(tmp_path, 2).write_bytes(line_1[:29] + b"A" * 43 + b"=\n" + rest)
    assert ledger.verify("a") == 3
    assert found(ledger) == [("a", "SP12")]


def test_a_thread_that_cannot_be_read_is_sp13_and_the_others_are_verified() -> None:
    class Closed(InMemoryCheckpointStorage):
        def head(self, thread: str) -> int:
            if thread == "a":
                raise StorageUnavailable("It is closed.", "Open it.")
            return super().head(thread)

    ledger = Ledger(Closed(), store="invoices", keys=KEYS)
    for thread in ("a", "b"):
        ledger.storage.append(thread, 1, b"plain")
    assert found(ledger) == [("a", "SP13"), ("b", "SP02")]


def test_a_base_that_does_not_fit_is_sp14(tmp_path: Path) -> None:
    """Whether the head is anchored or not."""
    for anchor in (None, InMemoryAnchor()):
        path = tmp_path / type(anchor).__name__ / "state"
        path.parent.mkdir()
        ledger = ledger_in(path, anchor=anchor)
        for n in range(3):
            ledger.save("a", n)
        ledger.prune("a", keep=2)
        place = Place("invoices", "a", 2)
        other = "sha256:" + "0" * 64
        base, _ = seal(b"null", place, KEY, created=datetime.now(UTC), kind="base", previous=other)
        (path / "a/base").write_bytes(b"0000000002\n" + base)
        assert found(ledger) == [("a", "SP14")]


def test_a_revoked_key_is_sp08(ledger: Ledger, tmp_path: Path) -> None:
    keys = Keyring(SigningKey.generate(), revoked=Revoked(KEY, until=None))
    assert found(ledger_in(tmp_path / "state", keys)) == [("a", "SP08"), ("b", "SP08")]


def test_what_is_over_a_limit_is_sp11(ledger: Ledger, tmp_path: Path) -> None:
    ledger.save("a", "x" * 5000)
    limits = Limits(state_bytes=100)
    small = Ledger(
        FileCheckpointStorage(tmp_path / "state", limits=limits),
        store="invoices",
        keys=KEYS,
        codec=Codec(limits=limits),
    )
    assert found(small) == [("a", "SP11")]


def test_what_is_missing_is_sp13(ledger: Ledger, tmp_path: Path) -> None:
    record(tmp_path, 2).unlink()
    ledger.prune("b", keep=1)
    record(tmp_path, 3, "b").unlink()
    assert found(ledger_in(tmp_path / "state")) == [("a", "SP13"), ("b", "SP13")]


def test_what_the_anchor_contradicts_is_sp15(ledger: Ledger, tmp_path: Path) -> None:
    """Cut off, gone, replaced by a holder of the key, or of another store."""
    anchor = InMemoryAnchor()
    for thread in ("a", "b"):
        digest = link(record(tmp_path, 3, thread))
        anchor.advance("invoices", thread, Head(3, digest))
    assert found(ledger_in(tmp_path / "state", anchor=anchor)) == []
    genuine = record(tmp_path, 3).read_bytes()
    record(tmp_path, 3).unlink()
    shutil.rmtree(tmp_path / "state/b")
    assert found(ledger_in(tmp_path / "state", anchor=anchor)) == [("a", "SP15"), ("b", "SP15")]
    record(tmp_path, 3).write_bytes(sealed(3, link(record(tmp_path, 2))))
    record(tmp_path, 3).chmod(0o600)
    assert record(tmp_path, 3).read_bytes() != genuine
    assert found(ledger_in(tmp_path / "state", anchor=anchor))[0] == ("a", "SP15")


def test_an_anchor_that_cannot_be_asked_is_one_finding(ledger: Ledger, tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    ledger = ledger_in(tmp_path / "state", anchor=anchor)
    ledger.anchor_now("a")
    (tmp_path / "anchor/store").unlink()
    (finding,) = check_records(ledger)
    assert (finding.rule, finding.where) == ("SP15", "invoices")


def test_a_file_that_others_could_change_is_sp04(ledger: Ledger, tmp_path: Path) -> None:
    record(tmp_path, 1).chmod(0o666)
    assert found(ledger) == [("a", "SP04")]


def test_progress_counts_through_all_threads_and_past_what_was_pruned(ledger: Ledger) -> None:
    seen: list[tuple[int, int]] = []
    check_records(ledger, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(n, 6) for n in range(1, 7)]
    seen.clear()
    ledger.prune("a", keep=1)
    check_records(ledger, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(n, 6) for n in range(3, 7)]
