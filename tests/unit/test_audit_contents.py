"""What the files of a store hold: pickles, other formats, too much, keys. Told, never decoded."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileCheckpointStorage, Keyring, Ledger, Limits, SigningKey
from safepoint.audit import contents
from safepoint.audit.contents import Contents
from safepoint.audit.finding import content
from safepoint.models import inspect
from tests.zoo.build import zipped

SMALL = Limits(state_bytes=10_000, depth=8, items=100)


def check_contents(folder: Path) -> list[Any]:
    return Contents(str(folder)).findings


def ids(findings: list[Any]) -> str:
    return " ".join(each.id for each in findings)


def test_a_store_of_sealed_records_has_no_finding(tmp_path: Path) -> None:
    """Whatever odd names its states have, and whatever was deleted."""
    storage, keys = FileCheckpointStorage(tmp_path / "state"), Keyring(SigningKey.generate())
    ledger, store = Ledger(storage, store="invoices", keys=keys), tmp_path / "state"
    for thread in ("a", "b"):
        ledger.save(thread, {"__type__": 1, "type": "msgpack", "bytes": pickle.dumps([1])})
    ledger.delete("b")
    ledger.erase("b")
    (store / "a/empty").touch()
    assert check_contents(store) == []
    (store / "a/link").symlink_to("/etc/passwd")
    os.mkfifo(store / "a/pipe")
    assert ids(check_contents(store)) == "SP03.unseen-link SP03.unseen"


def test_what_cannot_be_looked_at_is_a_warning_and_hides_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(pickle.dumps([1]))
    scandir = os.scandir

    def unreadable(path: Any, *rest: Any) -> Any:
        if str(path).endswith(("/a", "/closed")):
            raise PermissionError(13, "Permission denied")
        return content(path, *rest) if rest else scandir(path)

    def broken(path: str) -> Any:
        return inspect(path) if path.endswith("/c") else 1 / 0

    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(contents, "content", unreadable)
    monkeypatch.setattr(contents, "inspect", broken)
    monkeypatch.setattr(os, "scandir", unreadable)
    found = {Path(each.where).name: each.id for each in check_contents(tmp_path)[:-1]}
    unseen = dict.fromkeys(("a", "b", "closed"), "SP03.unseen")
    assert {name: which for name, which in found.items() if name != "c"} == unseen
    assert found["c"] == "SP03.pickle"


# --- one file in a folder: what all checks find


def database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table checkpoints (type, checkpoint)")
        return connection.serialize()


ACTS = b"cos\nmkdir\n(Vmarker\ntR"
BASE64 = base64.b64encode(ACTS + b".").decode()
PICKLE, SAYS_PICKLE, TAG = "SP03.pickle SP10.format", "SP03.pickle", "SP10.format"
UNSEEN = "SP03.unseen"
FILES: dict[str, list[bytes]] = {
    PICKLE: [
        *(pickle.dumps({"a": [1]}, n) for n in range(6)),
        json.dumps({"__pickled__": base64.b64encode(pickle.dumps([1], 4)).decode()}).encode(),
    ],
    SAYS_PICKLE: [
        ACTS,
        ACTS + b"\xff\xff",
        zipped({"a": pickle.dumps([1])}),
        json.dumps([BASE64]).encode(),
        json.dumps([BASE64]).replace("Y", "\\u0059").encode(),
        json.dumps({"a b": ["short", "é", BASE64[:6] + " " + BASE64[6:]]}).encode(),
        b'{"a":          "' + BASE64.encode() + b'"',
        json.dumps([BASE64]).encode("utf-16"),
    ],
    TAG: [
        b'{"a": {"__type__": "b:c"}}',
        b'{"type": "msgpack", "value": "gA=="}',
        b'[{"serializer" :\n"pickle"}]',
        b'{"lc":2,"type":"constructor","id":["os","system"]}',
        b' {"py/object": "a.B"}',
        rb'{"\u005f_type\u005f_": 1}',
        b" " * 100 + b'{"@class": "a.B"}',
        database(),
        b"safepoint/2 abc def\n{}",
        b"safepoint/0 abc def\n{}",
        b"0000000007\nsafepoint/12 abc",
        b"a: !!python/object/apply:os.system [x]",
    ],
    f"{UNSEEN} {TAG}": ['{"$type": "a"}'.encode("utf-16"), '{"$type": "a"}'.encode("utf-16-be")],
    UNSEEN: [
        b"#!/bin/sh\n" + zipped({"a": pickle.dumps([1])}),
        pickle.dumps([1]) + b"PK\x03\x04",
        gzip.compress(pickle.dumps([1])),
        b"PK\x03\x04 not a zip",
    ],
    "": [
        b".",
        b"# A page\n\nWith a sentence.\n",
        b"class Invoice:\n    pass\n",
        b'{"a": ["aGVsbG8gd29ybGQ="], "type": "invoice"}',
        json.dumps({"a": '"__type__": 1'}).encode(),
        zipped({"a": b"print(1)"}),
        b"safepoint/1\n",
    ],
}


@pytest.mark.parametrize("found", FILES)
def test_content_decides_what_a_file_is(tmp_path: Path, found: str) -> None:
    for number, data in enumerate(FILES[found]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "notes.txt").write_bytes(data)
        told = ids(check_contents(folder)).split()
        assert sorted(told) == sorted({*found.split(), TAG, "SP02.unsealed"}), data


def test_json_that_is_larger_than_what_is_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "DEFAULT_LIMITS", SMALL)
    (tmp_path / "a").write_bytes(b"[" + b" " * SMALL.record_bytes + b'{"__type__": 1}]')
    assert ids(check_contents(tmp_path)) == "SP10.format SP11.size SP02.unsealed"


@pytest.mark.parametrize("data", [b"safepoint/1 x\n", b"0000000001\nsafepoint/1 x", b"\1"])
def test_a_record_over_the_size_limit_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(contents, "DEFAULT_LIMITS", SMALL)
    record = tmp_path / "0000000001.checkpoint"
    most = SMALL.record_bytes + 11 * data.startswith(b"0")
    record.write_bytes(data.ljust(most, b"0"))
    assert "SP11" not in ids(check_contents(tmp_path))
    record.write_bytes(data.ljust(most + 1, b"0"))
    assert "SP11.size" in ids(check_contents(tmp_path))
