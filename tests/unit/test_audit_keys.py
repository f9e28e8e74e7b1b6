"""check_keys: their age, where they lie, and what they still seal."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
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
    SigningKey,
)
from safepoint.audit import check_keys
from safepoint.audit import contents as audited
from safepoint.errors import ConfigurationError, StorageUnavailable
from safepoint.keys import Revoked

OLD, NEW = SigningKey.generate(), SigningKey.generate("ed25519")


def ledger_with(keys: Keyring, storage: Any = None, **options: Any) -> Ledger:
    return Ledger(storage or InMemoryCheckpointStorage(), store="invoices", keys=keys, **options)


def lines(*arguments: Any, **options: Any) -> list[str]:
    return [str(finding) for finding in check_keys(*arguments, **options)]


def in_days(days: int) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def test_a_young_key_apart_from_its_store_has_no_finding(tmp_path: Path) -> None:
    keys = Keyring(SigningKey.from_file(tmp_path / "keys/key", create=True))
    ledger = ledger_with(keys, FileCheckpointStorage(tmp_path / "state"))
    ledger.save("a", 1)
    assert lines(keys) == []
    assert lines(keys, tmp_path / "state", ledger=ledger) == []
    assert lines(keys, now=in_days(364)) == []
    assert lines(Keyring(NEW), now=in_days(4000)) == []  # of no file, so of no age


def test_an_old_key_file_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "keys/key"
    keys = Keyring(SigningKey.from_file(path, create=True))
    assert lines(keys, now=in_days(366)) == [
        (
            f"SP08 warning: By the time of its file, the key {path} is 366 days old, and the limit"
            " is 365. Practise the rotation: seal with a new key, and keep this one to verify, by"
            " keyring.rotated(SigningKey.generate())."
        )
    ]
    assert lines(keys, now=in_days(366), max_age_days=400) == []
    os.utime(path, (0, 0))
    assert len(lines(keys)) == 1
    path.unlink()
    assert lines(keys) == []


def test_the_age_of_a_retired_or_revoked_key_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "keys/key"
    old = SigningKey.from_file(path, create=True)
    os.utime(path, (0, 0))
    assert lines(Keyring(NEW, verify=[old])) == []
    assert lines(Keyring(verify=[NEW], revoked=Revoked(old, until=None))) == []
    assert lines(Keyring(revoked=Revoked(old, until=None))) == []
    assert len(lines(Keyring(old))) == 1


@pytest.mark.parametrize(
    ("content", "do"),
    [
        (b"safepoint-key/1 hmac-sha256 AAAA", "Whoever reads the storage would hold the key."),
        (b"\nsafepoint-key/7 new", "Whoever reads the storage would hold the key."),
        (b"-----BEGIN PRIVATE KEY-----\nMC4", "Whoever reads the storage would hold the key."),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\n", "Whoever reads the storage would hold the key."),
        (b"safepoint-public-key/1 ed25519 A", "Whoever writes the storage could put another"),
    ],
)
def test_a_key_in_the_storage_folder_is_an_error_by_what_it_holds(
    tmp_path: Path, content: bytes, do: str
) -> None:
    (tmp_path / "a").mkdir()
    file = tmp_path / "a/notes.txt"
    file.write_bytes(content)
    (line,) = lines(Keyring(NEW), tmp_path)
    assert line.startswith(f"SP08 error: The key {file} is inside the storage folder. {do}")


def test_what_is_no_key_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"-----BEGIN PUBLIC KEY-----\n")
    (tmp_path / "b").write_bytes(b"safepoint/1 x")
    (tmp_path / "c").write_bytes(b"about safepoint-key/1 x")
    os.mkfifo(tmp_path / "d")
    assert lines(Keyring(NEW), tmp_path) == []


def test_a_key_of_the_ring_is_found_by_its_path_once(tmp_path: Path) -> None:
    """Also through a link to the folder, and if somebody removed the file meanwhile."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("state")
    NEW.public.to_file(tmp_path / "state/public")
    key = SigningKey.from_file(tmp_path / "state/key", create=True)
    ring = Keyring(key)
    for folder in ("state", "link"):
        found = check_keys(ring, tmp_path / folder)
        assert [Path(finding.where).name for finding in found] == ["key", "public"]
        assert [finding.severity for finding in found] == ["error", "error"]
    (tmp_path / "state/key").unlink()
    assert len(check_keys(ring, tmp_path / "state")) == 2


def test_what_cannot_be_read_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a").touch()
    monkeypatch.setattr(audited, "content", closed)
    (line,) = lines(Keyring(NEW), tmp_path)
    assert line.startswith(f"SP08 warning: {tmp_path}/a could not be looked at as a whole")


def test_records_of_a_retired_key_are_counted_in_a_note() -> None:
    ledger = ledger_with(Keyring(OLD))
    ledger.save("a", 1)
    ledger.save("b", 1)
    rotated = ledger_with(Keyring(OLD).rotated(NEW), ledger.storage)
    rotated.save("a", 2)
    assert lines(rotated.keys, ledger=rotated) == [
        (
            f"SP08 note: 2 records of store invoices still name key {OLD.id}, which is retired."
            " Keep it on the ring to verify them, or seal them anew with Ledger.copy_to."
        )
    ]
    assert lines(Keyring(OLD), ledger=ledger) == []


def test_a_retired_key_that_seals_nothing_is_a_note() -> None:
    ledger = ledger_with(Keyring(NEW, verify=[OLD]))
    ledger.save("a", 1)
    assert lines(ledger.keys, ledger=ledger) == [
        (
            f"SP08 note: Key {OLD.id} seals no record of store invoices any more. Take it off the"
            " ring: a key that nobody needs can only be stolen."
        )
    ]


def test_a_new_key_that_has_sealed_nothing_yet_is_no_finding() -> None:
    ledger = ledger_with(Keyring(OLD))
    ledger.save("a", 1)
    assert not any(NEW.id in line for line in lines(Keyring(NEW, verify=[OLD]), ledger=ledger))


def test_a_base_counts_as_a_record() -> None:
    """A retired key that sealed nothing else is still needed."""
    ledger = ledger_with(Keyring(OLD, verify=[NEW]))
    for n in range(3):
        ledger.save("a", n)
    ledger.prune("a", keep=1)
    resealed = ledger_with(Keyring(NEW), InMemoryCheckpointStorage())
    ledger.copy_to(resealed)
    assert lines(Keyring(NEW, verify=[OLD]), ledger=resealed)[0].startswith(
        f"SP08 note: Key {OLD.id} seals no record"
    )
    first, base = ledger.storage.base("a")  # type: ignore[attr-defined]
    resealed.storage._bases["a"] = first, base  # type: ignore[attr-defined]
    assert lines(Keyring(NEW, verify=[OLD]), ledger=resealed)[0].startswith(
        f"SP08 note: 1 record of store invoices still names key {OLD.id}, which is retired."
    )


def test_records_of_a_revoked_key_are_a_warning() -> None:
    """Whether they count or not, and although the store does not verify any more."""
    anchor = InMemoryAnchor()
    ledger = ledger_with(Keyring(OLD), anchor=anchor)
    for n in range(3):
        ledger.save("a", n)
    for until in (anchor, None):
        keys = Keyring(NEW, revoked=Revoked(OLD, until=until))
        assert lines(keys, ledger=ledger_with(keys, ledger.storage, anchor=InMemoryAnchor())) == [
            (
                f"SP08 warning: 3 records of store invoices still name key {OLD.id}, which is"
                " revoked. Those from before the theft count. Seal them anew under your key, with"
                " Ledger.copy_to, and take this one off the ring."
            )
        ]


def test_nothing_is_called_unused_while_a_thread_cannot_be_read(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path / "state")
    ledger = ledger_with(Keyring(NEW, verify=[OLD]), storage)
    ledger.save("a", 1)
    ledger.save("b", 1)
    (tmp_path / "state/a/0000000001.checkpoint").chmod(0o666)
    assert lines(ledger.keys, ledger=ledger) == []


def forged(record: bytes, key: SigningKey) -> bytes:
    """The record, with another key's name and no signature of it."""
    _, rest = record.split(b"\n", 1)
    return b"safepoint/1 " + key.id.encode() + b" " + b"A" * 43 + b"=\n" + rest


def test_a_key_is_not_called_unused_because_records_name_another(tmp_path: Path) -> None:
    """Whoever can write the storage would talk you into taking a key off that you need."""
    anchor = InMemoryAnchor()
    storage = FileCheckpointStorage(tmp_path / "state")
    ledger_with(Keyring(OLD), storage, anchor=anchor).save("a", 1)
    ledger = ledger_with(Keyring(NEW, verify=[OLD]), storage, anchor=anchor)
    ledger.save("a", 2)
    (genuine,) = lines(ledger.keys, ledger=ledger)
    assert f"1 record of store invoices still names key {OLD.id}" in genuine
    file = tmp_path / "state/a/0000000001.checkpoint"
    file.write_bytes(forged(file.read_bytes(), NEW))
    assert lines(ledger.keys, ledger=ledger) == []


def test_a_record_that_names_a_key_and_is_not_of_it_does_not_count() -> None:
    ledger = ledger_with(Keyring(NEW, verify=[OLD]))
    ledger.save("a", 1)
    ledger.storage.append("b", 1, forged(ledger.storage.read("a", 1), OLD))
    ledger_with(Keyring(OLD), ledger.storage).save("c", 1)
    (line,) = lines(ledger.keys, ledger=ledger)
    assert line.startswith(f"SP08 note: 1 record of store invoices still names key {OLD.id}")


def test_nothing_is_called_unused_while_the_anchor_has_seen_more(tmp_path: Path) -> None:
    """Nor while it cannot be asked: what is gone may come back from a backup."""
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    ledger_with(Keyring(OLD), anchor=anchor).save("a", 1)
    emptied = ledger_with(Keyring(NEW, verify=[OLD]), anchor=anchor)
    assert lines(emptied.keys, ledger=emptied) == []
    (tmp_path / "anchor/store").unlink()
    assert lines(emptied.keys, ledger=emptied) == []
    alone = ledger_with(emptied.keys, emptied.storage)
    assert len(lines(emptied.keys, ledger=alone)) == 1


def test_a_storage_that_fails_is_one_clear_error() -> None:
    class Broken(InMemoryCheckpointStorage):
        def threads(self) -> list[str]:
            raise ValueError

    ledger = ledger_with(Keyring(NEW, verify=[OLD]), Broken())
    with pytest.raises(StorageUnavailable):
        check_keys(ledger.keys, ledger=ledger)


def test_a_reader_with_an_hmac_key_is_a_note() -> None:
    assert lines(Keyring(verify=[OLD, NEW.public])) == [
        (
            f"SP08 note: This ring only verifies, and key {OLD.id} on it is an HMAC key, with which"
            " a reader could also seal. Seal with an Ed25519 key, and give readers its public half:"
            " key.public."
        )
    ]
    assert lines(Keyring(verify=NEW.public)) == []
    assert lines(Keyring(OLD)) == []


def test_wrong_arguments_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"was given SigningKey as keys\. Give it a Key"):
        check_keys(NEW)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"no time zone\. Write now=datetime"):
        check_keys(Keyring(NEW), now=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(StorageUnavailable, match="is not a folder"):
        check_keys(Keyring(NEW), tmp_path / "nothing")
