"""What the files of a store hold: pickles, other formats, too much, keys. Told, never decoded."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import pickle
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileCheckpointStorage, Keyring, Ledger, Limits, SigningKey
from safepoint.attacks import NaiveTarget
from safepoint.attacks.payload import marker_pickle, marker_pickle_of_type
from safepoint.audit import check_bounds, check_formats, check_pickles, contents
from safepoint.audit.contents import check_contents, is_pickle, kind_of
from safepoint.codec import Codec
from safepoint.errors import StorageUnavailable

WIDE = Limits(state_bytes=100_000, depth=1000, items=100_000)
SMALL = Limits(state_bytes=10_000, depth=8, items=100)
LEFT = "Look at it yourself, as a user who can read it."


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger whose writer allows more than a reader might."""
    return Ledger(
        FileCheckpointStorage(tmp_path / "state", limits=WIDE),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
        codec=Codec(limits=WIDE),
    )


@pytest.fixture
def store(ledger: Ledger, tmp_path: Path) -> Path:
    """A store with a pruned thread, a deleted one, and state that is full of odd names."""
    for n in range(3):
        ledger.save("a", {"__type__": n, "type": "msgpack", "bytes": pickle.dumps([n])})
        ledger.save("b", n)
    ledger.prune("a", keep=1)
    ledger.delete("b")
    return tmp_path / "state"


def test_a_store_of_sealed_records_has_no_finding(store: Path) -> None:
    (store / "a/empty").touch()
    (store / "a/link").symlink_to("/etc/passwd")
    os.mkfifo(store / "a/pipe")
    for check in (check_contents, check_formats, check_pickles, check_bounds):
        assert check(store) == []


@pytest.mark.parametrize("check", [check_contents, check_formats, check_pickles, check_bounds])
def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path, check: Any) -> None:
    with pytest.raises(StorageUnavailable, match=r"is not a folder\. Name the folder to look at\."):
        check(tmp_path / "nothing")


def test_one_walk_makes_all_checks(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[" * 500)
    (tmp_path / "b").write_bytes(pickle.dumps([1]))
    SigningKey.from_file(tmp_path / "own.key", create=True)
    found = [f"{each.rule} {each.severity}" for each in check_contents(tmp_path)]
    assert found == ["SP11 error", "SP08 error", "SP03 warning", "SP10 warning", "SP02 note"]


@pytest.mark.parametrize(
    ("check", "rule"),
    [(check_contents, "SP03"), (check_formats, "SP10"), (check_bounds, "SP11")],
)
def test_what_cannot_be_read_or_listed_is_a_warning(
    store: Path, monkeypatch: pytest.MonkeyPatch, check: Any, rule: str
) -> None:
    scandir = os.scandir

    def unreadable(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    def unlisted(path: Any) -> Any:
        return unreadable() if str(path).endswith("/b") else scandir(path)

    monkeypatch.setattr(contents, "content", unreadable)
    monkeypatch.setattr(os, "scandir", unlisted)
    assert [str(finding) for finding in check(store)] == [
        f"{rule} warning: {store}/{name} could not be looked at as a whole (Permission denied)."
        f" {LEFT}"
        for name in ("a/0000000003.checkpoint", "a/base", "b")
    ]


# --- pickles


def found_pickles(path: Path) -> dict[str, str]:
    findings = check_pickles(path)
    assert {(each.rule, each.severity) for each in findings} <= {("SP03", "warning")}
    return {Path(each.where).name: each.what.partition(" ")[2] for each in findings}


def as_json(pickled: bytes) -> bytes:
    return json.dumps({"state": {"__pickled__": base64.b64encode(pickled).decode()}}).encode()


def zipped(data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        made.writestr("a", data)
    return file.getvalue()


ACTS = b"cos\nmkdir\n(Vmarker\ntR"
UNSEEN = "could not be looked at as a whole "
PICKLES: dict[str, tuple[Callable[[], bytes], str]] = {
    **{f"alone-{n}": (partial(pickle.dumps, {"a": [1]}, n), "is a pickle.") for n in range(6)},
    **{
        f"json-{n}": (partial(as_json, pickle.dumps([1], n)), "carries a pickle in base64.")
        for n in range(6)
    },
    "zip": (lambda: zipped(pickle.dumps([1])), "is an archive that carries a pickle."),
    "no-stop": (lambda: ACTS, "is a pickle."),
    "breaks-after-the-call": (lambda: ACTS + b"\xff\xff", "is a pickle."),
    "behind-other-bytes": (lambda: b"#!/bin/sh\n" + zipped(pickle.dumps([1])), UNSEEN),
    "two-things": (lambda: pickle.dumps([1]) + b"PK\x03\x04", "is a pickle."),
    "compressed": (lambda: gzip.compress(pickle.dumps([1])), UNSEEN),
    "packed-in-a-rare-way": (lambda: zipped(bytes(1000), zipfile.ZIP_LZMA), UNSEEN),
    "not-a-zip": (lambda: b"PK\x03\x04 not a zip", UNSEEN),
    "gap": (lambda: b'{"a":          "' + base64.b64encode(ACTS + b".") + b'"', "carries a"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_is_found_by_content(tmp_path: Path, name: str) -> None:
    made, what = PICKLES[name]
    (tmp_path / "notes.txt").write_bytes(made())
    assert found_pickles(tmp_path)["notes.txt"].startswith(what)


@pytest.mark.parametrize("make", [marker_pickle, marker_pickle_of_type])
def test_what_the_attacks_plant_is_seen_and_not_run(tmp_path: Path, make: Any) -> None:
    target = NaiveTarget(tmp_path)
    (tmp_path / "planted").write_bytes(target.pickled(make(tmp_path / "marker"), "a:b"))
    assert [*found_pickles(tmp_path)] == ["planted"]
    assert not (tmp_path / "marker").exists()


def test_what_is_not_a_pickle_is_left_alone(tmp_path: Path) -> None:
    for name, data in {
        "dot": b".",
        "readme.md": b"# A page\n\nWith a sentence.\n",
        "one": b"one record\nor two\n",
        "code.py": b"class Invoice:\n    pass\n",
        "import.py": b"import os\nimport sys\n",
        "data.json": b'{"a": ["aGVsbG8gd29ybGQ="]}',
        "code.zip": zipped(b"print(1)"),
    }.items():
        (tmp_path / name).write_bytes(data)
    assert check_pickles(tmp_path) == []
    assert is_pickle(b"N" * 300_000)
    assert not is_pickle(b"N" * 100)


@pytest.mark.parametrize(
    ("bound", "content", "reason"),
    [
        ("OPCODES", [base64.b64encode(b"(0" * 30).decode()], "50 opcodes of a pickle"),
        ("OPCODES", ["abcd efgh"] * 51, "50 opcodes of a pickle"),
        ("STRINGS", [""] * 51, "50 strings"),
        ("STRINGS", ["\u0001" * 51], "50 escapes"),
    ],
)
def test_what_is_too_much_to_look_at_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, content: list[str], reason: str
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert found_pickles(tmp_path) == {}
    monkeypatch.setattr(contents, bound, 50)
    assert found_pickles(tmp_path) == {
        "a.json": f"{UNSEEN}(too large to look at: more than {reason})."
    }


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
    assert found_pickles(tmp_path) == {"a": "carries a pickle in base64."}


# --- formats


def kinds(path: Path) -> dict[str, str]:
    findings = check_formats(path)
    assert {(f.rule, f.severity) for f in findings} <= {("SP10", "warning")}
    return {Path(f.where).name: f.what.split(" is ", 1)[1].split(":")[0] for f in findings}


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
    "zip": (zipped(b"b"), "a zip archive"),
    "gzip": (gzip.compress(b"x"), "compressed data (gzip)"),
    "zstd": (b"\x28\xb5\x2f\xfdxx", "compressed data (zstd)"),
    "xz": (b"\xfd7zXZ\0x", "compressed data (xz)"),
    "bzip2": (b"BZh91AY", "compressed data (bzip2)"),
    "text": (b"# Notes\n", "in no format that this check knows"),
    "no-record": (b"safepoint/1\n", "in no format that this check knows"),
}


@pytest.mark.parametrize("name", [*CHOOSES, *OTHERS])
def test_what_chooses_its_decoder_is_found_anywhere(tmp_path: Path, name: str) -> None:
    data, kind = {**CHOOSES, **OTHERS}[name]
    (tmp_path / "0000000001.checkpoint").write_bytes(data)
    named = f"JSON that names its decoder {kind}" if name in CHOOSES else kind
    assert kinds(tmp_path) == {"0000000001.checkpoint": named}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_plain_is_found_beside_sealed_records_alone(
    store: Path, tmp_path: Path, name: str
) -> None:
    data, kind = PLAIN[name]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_bytes(data)
    assert check_formats(tmp_path / "elsewhere") == []
    (store / "a/0000000004.checkpoint").write_bytes(data)
    assert kinds(store) == {"0000000004.checkpoint": kind}


def test_kinds_are_told_from_a_few_bytes_and_the_rest_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kind_of(b"\x80\x04") == ("a pickle", True)
    assert kind_of(b"\x80\x09") == ("in no format that this check knows", False)
    monkeypatch.setattr(contents, "BEGINNING", 20)
    (tmp_path / "a").write_bytes(b"[" + b" " * 40 + b'{"__type__": 1}]')
    assert [finding.what for finding in check_formats(tmp_path)] == [
        f"{tmp_path}/a {UNSEEN}(57 bytes of JSON)."
    ]


# --- bounds


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def lines(path: Path, limits: Limits = SMALL) -> list[str]:
    return [str(finding) for finding in check_bounds(path, limits)]


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (nested(40), "The encoded state is nested deeper than 8 levels."),
        (list(range(101)), "The encoded state holds more than 100 values."),
        ("x" * 9999, "The encoded state has 10001 bytes, and the limit is 10000."),
        ({"text": "[" * 500 + ',"' * 300 + "\\", "deep": nested(7)}, None),
    ],
)
def test_a_state_over_a_limit_is_an_error(
    ledger: Ledger, tmp_path: Path, state: Any, what: str | None
) -> None:
    ledger.save("a", state)
    begins = f"SP11 error: {tmp_path}/state/a/0000000001.checkpoint: {what}"
    assert [line.startswith(begins) for line in lines(tmp_path / "state")] == [True] * bool(what)
    assert check_bounds(tmp_path / "state") == []


@pytest.mark.parametrize("data", [b"safepoint/1 x\n", b"0000000001\nsafepoint/1 x", b"\1"])
def test_a_record_over_the_size_limit_is_an_error(tmp_path: Path, data: bytes) -> None:
    record = tmp_path / "0000000001.checkpoint"
    most = SMALL.record_bytes + 11 * data.startswith(b"0")
    record.write_bytes(data.ljust(most, b"0"))
    assert lines(tmp_path) == []
    record.write_bytes(data.ljust(most + 1, b"0"))
    (line,) = lines(tmp_path)
    assert line.startswith(
        f"SP11 error: {record} has {most + 1} bytes or more, and the limit is {most}."
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_of_others_is_counted_too(tmp_path: Path, indent: int | None, encoding: str) -> None:
    """In spite of spaces, letters of any script, long numbers and quotes in strings."""
    rest = {'é"\\': "b\\", "n": 10**40}
    for state, rule in ((nested(40), "deeper"), (list(range(120)), "more than 100 values")):
        text = json.dumps([rest, state], indent=indent, ensure_ascii=False)
        (tmp_path / "order-7").write_bytes(text.encode(encoding))
        (line,) = lines(tmp_path)
        assert rule in line
    fine = json.dumps([rest, nested(6), list(range(80)), "[" * 300], indent=indent)
    (tmp_path / "order-7").write_bytes(fine.encode(encoding))
    assert lines(tmp_path) == []


def test_a_deep_file_costs_no_recursion(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[" * 1_000_000)
    (tmp_path / "b.json").write_bytes(b"[" + b"{}," * 1_100_000 + b"]")
    assert [finding.what.split(": ")[1] for finding in check_bounds(tmp_path)] == [
        "The encoded state is nested deeper than 64 levels.",
        "The encoded state holds more than 1000000 values.",
    ]


def test_space_in_front_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b" \n" * 50 + b"[" * 90)
    (line,) = lines(tmp_path)
    assert "deeper than 8 levels" in line


def test_what_is_neither_a_record_nor_json_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\1[" * 5000)
    (tmp_path / "0000000001.checkpoint").write_bytes(b"\1[" * 900)
    (tmp_path / "link").symlink_to("model.bin")
    os.mkfifo(tmp_path / "pipe")
    assert lines(tmp_path) == []
