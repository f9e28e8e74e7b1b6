"""What the files of a store hold: pickles, other formats, too much, keys. Told, never decoded."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from safepoint import Limits
from safepoint.audit import contents
from safepoint.audit.contents import Contents
from tests.zoo.build import zipped

SMALL = Limits(state_bytes=10_000, depth=8, items=100)


def check_contents(folder: Path) -> list[Any]:
    return Contents(str(folder)).findings


def ids(findings: list[Any]) -> str:
    return " ".join(each.id for each in findings)


# --- one file in a folder: what all checks find


ACTS = b"cos\nmkdir\n(Vmarker\ntR"
PICKLE, SAYS_PICKLE, TAG = "SP03.pickle SP10.format", "SP03.pickle", "SP10.format"
RUNS = "SP03.runs-code"
UNSEEN = "SP03.unseen"
FILES: dict[str, list[bytes]] = {
    PICKLE: [
        *(pickle.dumps({"a": [1]}, n) for n in range(6)),
        json.dumps({"__pickled__": base64.b64encode(pickle.dumps([1], 4)).decode()}).encode(),
    ],
    SAYS_PICKLE: [zipped({"a": pickle.dumps([1])})],
    RUNS: [
        *(ACTS, ACTS + b"\xff\xff"),
        json.dumps({"__pickled__": base64.b64encode(ACTS).decode()}).encode(),
    ],
    TAG: [
        b'{"a": {"__type__": "b:c"}}',
        b'{"type": "msgpack", "value": "gA=="}',
        b'[{"serializer" :\n"pickle"}]',
        rb'{"\u005f_type\u005f_": 1}',
        b" " * 100 + b'{"@class": "a.B"}',
        b"safepoint/2 abc def\n{}",
        b"0000000007\nsafepoint/12 abc",
        b"a: !!python/object/apply:os.system [x]",
    ],
    f"{UNSEEN} {TAG}": ['{"$type": "a"}'.encode("utf-16"), '{"$type": "a"}'.encode("utf-16-be")],
    UNSEEN: [
        b"#!/bin/sh\n" + zipped({"a": pickle.dumps([1])}),
        pickle.dumps([1]) + b"PK\x03\x04",
        gzip.compress(pickle.dumps([1])),
    ],
    "": [
        b".",
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
