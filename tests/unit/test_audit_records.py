"""check_records and check_pickles: the audit of what a store holds."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Codec,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    StorageUnavailable,
)
from safepoint.attacks import NaiveTarget
from safepoint.attacks.payload import marker_pickle, marker_pickle_of_type
from safepoint.audit import check_pickles, check_records
from safepoint.audit.__main__ import main
from safepoint.audit.pickles import is_pickle


@dataclass
class Invoice:
    amount: int


def test_a_store_that_verifies_has_no_finding(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path / "state")
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    for thread in ("a", "b"):
        for n in range(3):
            ledger.save(thread, n)
    assert check_records(ledger) == []


def test_each_thread_that_does_not_verify_is_named() -> None:
    storage = InMemoryCheckpointStorage()
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    ledger.save("good", 1)
    storage.append("bad", 1, b"plain")
    storage.append("moved", 1, storage.read("good", 1))
    findings = check_records(ledger)
    assert [(f.where, f.rule, f.severity) for f in findings] == [
        ("bad", "SP02", "error"),
        ("moved", "SP02", "error"),
    ]
    assert findings[0].what == "bad #1 is not a sealed record."


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def as_json(pickled: bytes) -> bytes:
    return json.dumps({"state": {"__pickled__": base64.b64encode(pickled).decode()}}).encode()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_of_any_protocol_is_found_by_its_content(tmp_path: Path, protocol: int) -> None:
    (tmp_path / "notes.txt").write_bytes(pickle.dumps({"a": [1, 2]}, protocol=protocol))
    (finding,) = check_pickles(tmp_path)
    assert str(finding) == (
        f"SP03 warning: {tmp_path}/notes.txt is a pickle. "
        "Keep other writers out, and move the state to a format that cannot execute."
    )


def test_pickles_inside_archives_and_json_are_found(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(archive(version=b"3", data=pickle.dumps([1])))
    (tmp_path / "state.json").write_bytes(as_json(pickle.dumps({"a": 1})))
    whats = [finding.what.removeprefix(f"{tmp_path}/") for finding in check_pickles(tmp_path)]
    assert whats == [
        "model.pt is an archive that carries a pickle.",
        "state.json carries a pickle in base64.",
    ]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_in_json_is_found_whatever_its_protocol(tmp_path: Path, protocol: int) -> None:
    (tmp_path / "state.json").write_bytes(as_json(pickle.dumps({"a": 1}, protocol=protocol)))
    assert len(check_pickles(tmp_path)) == 1


@pytest.mark.parametrize("make", [marker_pickle, marker_pickle_of_type])
def test_the_check_sees_what_the_attacks_plant(tmp_path: Path, make: Any) -> None:
    target = NaiveTarget(tmp_path)
    (tmp_path / "planted.json").write_bytes(target.pickled(make(tmp_path / "marker"), "a:b"))
    assert [finding.rule for finding in check_pickles(tmp_path)] == ["SP03"]


def test_looking_runs_nothing(tmp_path: Path) -> None:
    payload = marker_pickle(tmp_path / "marker")
    (tmp_path / "a").write_bytes(payload)
    (tmp_path / "b").write_bytes(archive(x=payload))
    assert len(check_pickles(tmp_path)) == 2
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nmkdir\n(Vmarker\ntR",
        b"cos\nmkdir\n(Vmarker\ntR\xff\xff",
        b'{"a":"'
        + base64.b64encode(b"cos\nmkdir\n(Vmarker\ntR.").replace(b"Y", b"\\u0059")
        + b'"}',
    ],
    ids=["no-stop", "breaks-after-the-call", "escaped-in-json"],
)
def test_what_acts_before_it_breaks_is_found(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert [finding.severity for finding in check_pickles(tmp_path)] == ["warning"]


def test_an_archive_behind_other_bytes_is_found(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"#!/bin/sh\n" + archive(data=pickle.dumps([1])))
    assert [finding.severity for finding in check_pickles(tmp_path)] == ["warning"]


def test_what_cannot_be_looked_at_is_noted_and_the_rest_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged archive, one that is too large unpacked, a closed file and folder."""
    good = archive(a=b"x" * 500)
    (tmp_path / "a-damaged").write_bytes(good.replace(b"x" * 500, b"y" * 500))
    (tmp_path / "b-closed").touch()
    (tmp_path / "c-pickle").write_bytes(pickle.dumps([1]))
    real = os.open

    def refuse(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith("b-closed"):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    notes = [(f.severity, f.what.split(" ", 1)[1]) for f in check_pickles(tmp_path)]
    assert notes == [
        ("note", "cannot be looked at as a whole (a damaged archive)."),
        ("note", "cannot be looked at as a whole (Permission denied)."),
        ("warning", "is a pickle."),
    ]
    monkeypatch.setattr("safepoint.audit.pickles.LOOKED_AT", 900)
    (tmp_path / "a-damaged").write_bytes(archive(a=b"x" * 400, b=b"x" * 400)[:])
    assert "(too large" in check_pickles(tmp_path)[0].what


def test_what_is_not_a_pickle_is_left_alone(tmp_path: Path) -> None:
    ledger = Ledger(
        FileCheckpointStorage(tmp_path / "state"),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
    )
    ledger.save("order-7", {"raw": b"\x80" * 40, "text": "hello."})
    (tmp_path / "empty").touch()
    (tmp_path / "dot").write_text(".")
    (tmp_path / "readme.md").write_text("# A page\n\nWith a sentence.\n")
    (tmp_path / "one").write_text("one record\nor two\n")
    (tmp_path / "code.py").write_text("class Invoice:\n    pass\n")
    (tmp_path / "import.py").write_text("import os\nimport sys\n")
    (tmp_path / "data.json").write_text('{"a": ["aGVsbG8gd29ybGQ="]}')
    (tmp_path / "code.zip").write_bytes(archive(a=b"print(1)"))
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 not a zip")
    (tmp_path / "link").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    assert check_pickles(tmp_path) == []


def test_what_goes_on_for_ever_counts_as_a_pickle() -> None:
    assert is_pickle(b"N" * 300_000)
    assert not is_pickle(b"N" * 100)


def test_a_file_too_large_to_look_at_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safepoint.audit.pickles.LOOKED_AT", 10)
    (tmp_path / "large").write_bytes(b"x" * 11)
    (finding,) = check_pickles(tmp_path)
    assert finding.severity == "note"
    assert finding.what == f"{tmp_path}/large cannot be looked at as a whole (too large)."


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match=r"is not a folder\. Name the folder to look at\."):
        check_pickles(tmp_path / "nothing")


def test_the_command_verifies_records_and_looks_for_pickles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the key it verifies, without decoding: types that it does not know are no finding."""
    monkeypatch.setattr("safepoint.audit.location.temp_folders", list)
    key, state = tmp_path / "keys/key", tmp_path / "state"
    keys = Keyring(SigningKey.from_file(key, create=True))
    ledger = Ledger(
        FileCheckpointStorage(state), store="invoices", keys=keys, codec=Codec([Invoice])
    )
    ledger.save("order-7", Invoice(42))
    arguments = [str(state), "--key", str(key), "--store", "invoices"]
    assert (main(arguments), capsys.readouterr().out) == (0, f"No findings: {state}\n")

    record = state / "order-7/0000000001.checkpoint"
    record.write_bytes(record.read_bytes().replace(b":42", b":43"))
    (state / "stray").write_bytes(pickle.dumps([1]))
    assert main(arguments) == 1
    printed = capsys.readouterr().out
    assert "SP02 error: The state of order-7 #1 is not the one that was sealed." in printed
    assert f"SP03 warning: {state}/stray is a pickle." in printed


@pytest.mark.parametrize("arguments", [["--key", "x"], ["--store", "x"]])
def test_the_command_wants_key_and_store_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path), *arguments])
    assert stop.value.code == 2
    assert "--key and --store belong together." in capsys.readouterr().err


def test_the_command_refuses_a_bad_key_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--key", str(tmp_path / "none"), "--store", "a"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
