"""check_bounds: what is too large, too deep or too much is counted, and never parsed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileCheckpointStorage, Keyring, Ledger, Limits, SigningKey
from safepoint.audit import bounds, check_bounds, files
from safepoint.codec import Codec

WIDE = Limits(state_bytes=100_000, depth=1000, items=100_000)
SMALL = Limits(state_bytes=10_000, depth=8, items=100)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger whose writer allows more than a reader might."""
    return Ledger(
        FileCheckpointStorage(tmp_path / "state", limits=WIDE),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
        codec=Codec(limits=WIDE),
    )


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def lines(path: Path, limits: Limits = SMALL) -> list[str]:
    return [str(finding) for finding in check_bounds(path, limits)]


def test_what_is_within_the_limits_has_no_finding(ledger: Ledger, tmp_path: Path) -> None:
    """Whatever it holds: brackets and commas in strings, a pruned thread."""
    ledger.save("a", {"text": "[" * 500 + ',"' * 300 + "\\", "deep": nested(7)})
    ledger.save("a", list(range(99)))
    ledger.prune("a", keep=1)
    assert lines(tmp_path / "state") == []
    assert check_bounds(tmp_path / "state") == []


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (nested(40), "The encoded state is nested deeper than 8 levels."),
        (list(range(101)), "The encoded state holds more than 100 values."),
        ("x" * 9999, "The encoded state has 10001 bytes, and the limit is 10000."),
    ],
    ids=["deep", "many", "large"],
)
def test_a_state_over_a_limit_is_an_error(
    ledger: Ledger, tmp_path: Path, state: Any, what: str
) -> None:
    ledger.save("a", state)
    record = tmp_path / "state/a/0000000001.checkpoint"
    assert lines(tmp_path / "state") == [
        f"SP11 error: {record}: {what} {what_to_do(what)}",
    ]
    assert check_bounds(tmp_path / "state") == []


def what_to_do(what: str) -> str:
    for limit, expected in (("depth", "nesting"), ("items", "many"), ("state_bytes", "size")):
        if {"depth": "deeper", "items": "values", "state_bytes": "bytes"}[limit] in what:
            return (
                f"Restore an earlier checkpoint, or raise Limits.{limit} if you expect this"
                f" {expected}."
            )
    raise AssertionError(what)


@pytest.mark.parametrize("content", [b"safepoint/1 x\n", b"0000000001\nsafepoint/1 x", b"\1"])
def test_a_record_over_the_size_limit_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    (tmp_path / "a").mkdir()
    record = tmp_path / "a/0000000001.checkpoint"
    most = SMALL.record_bytes + 11 * content.startswith(b"0")
    record.write_bytes(content.ljust(most, b"0"))
    assert lines(tmp_path) == []
    record.write_bytes(content.ljust(most + 1, b"0"))
    real, reads = files.content, []

    def counted(file: str, most: int) -> Any:
        reads.append(most)
        return real(file, most)

    monkeypatch.setattr(bounds, "content", counted)
    assert lines(tmp_path) == [
        (
            f"SP11 error: {record} has {most + 1} bytes or more, and the limit is {most}."
            " Find out who wrote it; if it was you, pass the same Limits here as there."
        )
    ]
    assert max(reads) < 100


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


def test_what_cannot_be_read_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a").touch()
    monkeypatch.setattr(bounds, "content", closed)
    assert lines(tmp_path) == [
        (
            f"SP11 warning: {tmp_path}/a could not be looked at as a whole (Permission denied)."
            " Look at it yourself, as a user who can read it."
        )
    ]
