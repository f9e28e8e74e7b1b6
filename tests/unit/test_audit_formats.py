"""check_formats: everything in a store is in the one format that its reader pins."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import pickle
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey, StorageUnavailable
from safepoint.audit import check_formats, formats
from safepoint.audit.formats import kind_of


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a pruned thread, a deleted one, and state that is full of odd names."""
    ledger = Ledger(
        FileCheckpointStorage(tmp_path / "state"),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
    )
    for n in range(3):
        ledger.save("a", {"__type__": n, "type": "msgpack", "bytes": pickle.dumps([n])})
        ledger.save("b", n)
    ledger.prune("a", keep=1)
    ledger.delete("b")
    return tmp_path / "state"


def kinds(path: Path) -> dict[str, str]:
    findings = check_formats(path)
    assert {(f.rule, f.severity) for f in findings} <= {("SP10", "warning")}
    return {Path(f.where).name: f.what.split(" is ", 1)[1].split(":")[0] for f in findings}


def test_a_store_of_sealed_records_has_no_finding(store: Path) -> None:
    assert check_formats(store) == []
    assert check_formats(str(store)) == []


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("a", "b")
    return file.getvalue()


def database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table checkpoints (type, checkpoint)")
        return connection.serialize()


CHOOSES = {
    "pickled": (
        b'{"a": {"__pickled__": "gA==", "__type__": "b:c"}}',
        '("__pickled__", "__type__")',
    ),
    "msgpack": (b'{"type": "msgpack", "value": "gA=="}', '("msgpack")'),
    "serializer": (b'[{"serializer" :\n"pickle"}]', '("pickle")'),
    "constructor": (b'{"lc":2,"type":"constructor","id":["os","system"]}', '("constructor")'),
    "jsonpickle": (b' {"py/object": "a.B"}', '("py/object")'),
    "escaped": (rb'{"\u005f_pi\u0063kled__": 1}', '("__pickled__")'),
    "bom": (b'\xef\xbb\xbf{"@class": "a.B"}', '("@class")'),
    "spaces": (b" " * 100 + b'{"@class": "a.B"}', '("@class")'),
    "utf-16": ('{"$type": "a"}'.encode("utf-16"), '("$type")'),
    "utf-16-be": ('{"$type": "a"}'.encode("utf-16-be"), '("$type")'),
}
OTHERS = {
    **{f"pickle-{n}": (pickle.dumps([1, {}], n), "a pickle") for n in range(6)},
    "long-pickle": (pickle.dumps(list(range(500_000)), 4), "a pickle"),
    "sqlite": (database(), "an SQLite database"),
    "newer": (b"safepoint/2 abc def\n{}", "a record of the format safepoint/2"),
    "older": (b"safepoint/0 abc def\n{}", "a record of the format safepoint/0"),
    "newer-base": (b"0000000007\nsafepoint/12 abc", "a record of the format safepoint/12"),
    "yaml": (b"a: !!python/object/apply:os.system [x]", "YAML that names Python objects"),
}
PLAIN = {
    "json": (b'{"amount": 42, "type": "invoice"}', "JSON"),
    "array": (b"\n [1, 2]", "JSON"),
    "in-a-string": (json.dumps({"a": '"__type__": 1'}).encode(), "JSON"),
    "zip": (archive(), "a zip archive"),
    "gzip": (gzip.compress(b"x"), "compressed data (gzip)"),
    "zstd": (b"\x28\xb5\x2f\xfdxx", "compressed data (zstd)"),
    "xz": (b"\xfd7zXZ\0x", "compressed data (xz)"),
    "bzip2": (b"BZh91AY", "compressed data (bzip2)"),
    "text": (b"# Notes\n", "in no format that this check knows"),
    "no-record": (b"safepoint/1\n", "in no format that this check knows"),
}


@pytest.mark.parametrize("name", CHOOSES)
def test_json_with_the_tag_of_a_decoder_is_found_anywhere(tmp_path: Path, name: str) -> None:
    content, tags = CHOOSES[name]
    (tmp_path / "order-7.txt").write_bytes(content)
    assert kinds(tmp_path) == {"order-7.txt": f"JSON that names its decoder {tags}"}


@pytest.mark.parametrize("name", OTHERS)
def test_what_chooses_its_decoder_is_found_anywhere(tmp_path: Path, name: str) -> None:
    content, kind = OTHERS[name]
    (tmp_path / "0000000001.checkpoint").write_bytes(content)
    assert kinds(tmp_path) == {"0000000001.checkpoint": kind}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_plain_is_found_beside_sealed_records_alone(
    store: Path, tmp_path: Path, name: str
) -> None:
    content, kind = PLAIN[name]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_bytes(content)
    assert check_formats(tmp_path / "elsewhere") == []
    (store / "a/0000000004.checkpoint").write_bytes(content)
    assert kinds(store) == {"0000000004.checkpoint": kind}


def test_a_finding_says_why_it_matters_and_what_to_do(store: Path) -> None:
    (store / "a/0000000004.checkpoint").write_bytes(b"safepoint/2 x")
    (finding,) = check_formats(store)
    assert str(finding) == (
        f"SP10 warning: {store}/a/0000000004.checkpoint is a record of the format safepoint/2: a"
        " reader that accepts it beside safepoint/1 lets the record choose. Pin one decoder in the"
        " reader, and keep every other file out of the folder."
    )


def test_what_is_no_file_or_empty_or_gone_is_no_finding(store: Path) -> None:
    (store / "a/0000000004.checkpoint").touch()
    (store / "a/link").symlink_to("/etc/passwd")
    os.mkfifo(store / "a/pipe")
    assert check_formats(store) == []


def test_a_file_that_ends_between_listing_and_reading_is_no_finding(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "files", lambda *_: [str(store / "gone")])
    assert check_formats(store) == []


def test_only_the_beginning_is_read_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "LOOKED_AT", 20)
    (tmp_path / "a").write_bytes(b"[" + b" " * 40 + b'{"__type__": 1}]')
    (finding,) = check_formats(tmp_path)
    assert str(finding) == (
        f"SP10 warning: {tmp_path}/a could not be looked at as a whole (57 bytes of JSON)."
        " Look at it yourself, as a user who can read it."
    )


def test_what_cannot_be_read_or_listed_is_a_warning(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def closed(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    def scandir(path: Any) -> Any:
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(formats, "content", closed)
    monkeypatch.setattr(os, "scandir", scandir)
    assert [str(finding).split(". ")[0] for finding in check_formats(store)] == [
        (
            f"SP10 warning: {store}/a/0000000003.checkpoint could not be looked at as a whole"
            " (Permission denied)"
        ),
        f"SP10 warning: {store}/a/base could not be looked at as a whole (Permission denied)",
        f"SP10 warning: {store}/b could not be looked at as a whole (Permission denied)",
    ]


def test_looking_builds_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    payload = b"cos\nmkdir\n(V" + str(marker).encode() + b"\ntR."
    tagged = {"__pickled__": base64.b64encode(payload).decode(), "__type__": "os:mkdir"}
    (tmp_path / "a").write_bytes(payload)
    (tmp_path / "b").write_text(json.dumps(tagged))
    assert len(check_formats(tmp_path)) == 2
    assert not marker.exists()


def test_kinds_are_told_from_a_few_bytes() -> None:
    assert kind_of(b"\x80\x04") == ("a pickle", True)
    assert kind_of(b"\x80\x09") == ("in no format that this check knows", False)


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="is not a folder"):
        check_formats(tmp_path / "nothing")
