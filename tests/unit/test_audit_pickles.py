"""check_pickles: which files of a folder carry a pickle."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey, StorageUnavailable
from safepoint.attacks import NaiveTarget
from safepoint.attacks.payload import marker_pickle, marker_pickle_of_type
from safepoint.audit import check_pickles
from safepoint.audit.pickles import is_pickle


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
