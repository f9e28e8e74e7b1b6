"""check_pickles: which files of a folder carry a pickle."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import tracemalloc
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


def test_what_cannot_be_looked_at_is_a_warning_and_the_rest_is_looked_at(
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
        ("warning", "is a pickle."),
        ("warning", "could not be looked at as a whole (a damaged archive)."),
        ("warning", "could not be looked at as a whole (Permission denied)."),
    ]
    monkeypatch.setattr("safepoint.audit.pickles.LOOKED_AT", 900)
    (tmp_path / "a-damaged").write_bytes(archive(a=b"x" * 400, b=b"x" * 400))
    assert "(too large" in check_pickles(tmp_path)[1].what


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


def test_a_file_too_large_to_look_at_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safepoint.audit.pickles.LOOKED_AT", 10)
    (tmp_path / "large").write_bytes(b"x" * 11)
    (finding,) = check_pickles(tmp_path)
    assert finding.severity == "warning"
    assert finding.what == (
        f"{tmp_path}/large could not be looked at as a whole (too large to look at)."
    )


def reasons(path: Path) -> list[str]:
    findings = check_pickles(path)
    assert {(finding.rule, finding.severity) for finding in findings} <= {("SP03", "warning")}
    return [finding.what.partition(" as a whole ")[2] for finding in findings]


@pytest.mark.parametrize(
    ("bound", "content", "reason"),
    [
        ("OPCODES", [base64.b64encode(b"(0" * 30).decode()], "50 opcodes of a pickle"),
        ("OPCODES", ["abcd efgh"] * 51, "50 opcodes of a pickle"),
        ("STRINGS", [""] * 51, "50 strings"),
        ("STRINGS", ["\u0001" * 51], "50 escapes"),
    ],
    ids=["opcodes", "many", "strings", "escapes"],
)
def test_what_is_too_much_to_look_at_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, content: list[str], reason: str
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content))
    (tmp_path / "b.json").write_text(json.dumps(content[:49] if len(content) > 1 else ["x" * 40]))
    assert reasons(tmp_path) == []
    monkeypatch.setattr(f"safepoint.audit.pickles.{bound}", 50)
    assert reasons(tmp_path) == [f"(too large to look at: more than {reason})."]


def test_an_archive_of_too_many_members_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safepoint.audit.pickles.MEMBERS", 3)
    (tmp_path / "three").write_bytes(archive(a=b"", b=b"", c=b""))
    assert reasons(tmp_path) == []
    (tmp_path / "four").write_bytes(archive(a=b"", b=b"", c=b"", d=b""))
    opened: list[Any] = []
    real = zipfile.ZipFile

    def counted(file: Any) -> Any:
        opened.append(file)
        return real(file)

    monkeypatch.setattr(zipfile, "ZipFile", counted)
    (reason,) = reasons(tmp_path)
    assert reason == "(too large to look at: an archive of more than 3 members)."
    assert len(opened) == 1


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_that_would_be_unpacked_whole_is_not(tmp_path: Path, method: int) -> None:
    """A few bytes of it can stand for gigabytes. What else is in the archive is looked at."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("a", bytes(1000), method)
    assert reasons(tmp_path) == ["(an archive that is compressed in a rare way)."]
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as made:
        made.writestr("b", pickle.dumps([1]))
    (finding,) = check_pickles(tmp_path)
    assert finding.what.endswith(" is an archive that carries a pickle.")


def test_a_file_that_would_be_costly_to_parse_is_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million lists would take eighty megabytes."""
    content = b"[" + b"[]," * 1_000_000 + b"[]]"
    monkeypatch.setattr("safepoint.audit.pickles.LOOKED_AT", len(content))
    (tmp_path / "a.json").write_bytes(content)
    tracemalloc.start()
    try:
        assert check_pickles(tmp_path) == []
        assert tracemalloc.get_traced_memory()[1] < 10 * len(content)
    finally:
        tracemalloc.stop()


GLOBAL = base64.b64encode(b"cos\nmkdir\n(V?>?\ntR.").decode()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([GLOBAL]),
        json.dumps([GLOBAL]).replace("/", "\\/"),
        json.dumps([GLOBAL]).replace("b", "\\u0062"),
        json.dumps([GLOBAL[:6] + "\n" + GLOBAL[6:]]),
        json.dumps([GLOBAL[:6] + '\\" \x01' + GLOBAL[6:]]),
        json.dumps([GLOBAL[:6] + "?" + GLOBAL[6:]]).replace("?", "\\u0022"),
        json.dumps({"a b": ["short", 12345678, "é", GLOBAL[:6] + " " + GLOBAL[6:]]}),
        " " * 100 + json.dumps(GLOBAL[:6] + "-" + GLOBAL[6:]),
        json.dumps(GLOBAL[:6] + "-" + GLOBAL[6:]),
    ],
    ids=["plain", "slash", "escape", "lines", "dropped", "quote", "spaces", "far", "alone"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_base64_is_found_however_json_spells_it(tmp_path: Path, text: str, encoding: str) -> None:
    assert "/" in GLOBAL
    (tmp_path / "a").write_bytes(text.encode(encoding))
    (finding,) = check_pickles(tmp_path)
    assert finding.what.endswith(" carries a pickle in base64.")


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match=r"is not a folder\. Name the folder to look at\."):
        check_pickles(tmp_path / "nothing")
