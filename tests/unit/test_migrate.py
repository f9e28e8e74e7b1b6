"""Moving in from unsigned files: explicit, in one pass, read as data, and written down."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint import CheckpointError, Conflict, InMemoryAnchor, Ledger, LimitExceeded, Limits
from safepoint.core.errors import (
    ConfigurationError,
    DecodeError,
    StorageUnavailable,
    ThreadDeleted,
    WrongPlace,
)
from safepoint.migrate import Unsigned, json_files, migrate
from tests.unit.storage_helpers import fail
from tests.unit.tampered import STORE, THREAD, Memory, opened


def move(states: Iterable[Unsigned], ledger: Ledger, report: Path) -> int:
    return migrate(states, ledger, report=report, allow_unsigned_migration=True)


def entries(report: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report.read_text().splitlines()]


def outcomes(report: Path) -> list[tuple[str, int, str]]:
    return [(each["thread"], each["sequence"], each["outcome"]) for each in entries(report)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    return folder


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "migration.jsonl"


@pytest.fixture
def ledger() -> Ledger:
    return opened(Memory(), InMemoryAnchor())


# One pass, and what it leaves


def test_files_become_threads_and_the_report_names_each(
    old: Path, report: Path, ledger: Ledger
) -> None:
    text = b'{"secret": "canary", "amount": 42}'
    (old / "order-7.json").write_bytes(text)
    (old / "order-8.json").write_text('["a", 1.5, null, true, "\\u00e9 é"]')
    (old / "README.txt").write_text("not one of them")
    assert move(json_files(old, app="old/1"), ledger, report) == 2
    assert ledger.threads() == [THREAD, "order-8"]
    moved = ledger.latest(THREAD)
    assert (moved.state, moved.app) == (json.loads(text), "old/1")
    assert ledger.latest("order-8").state == ["a", 1.5, None, True, "é é"]
    begun = {
        "outcome": "begun",
        "source": "order-7.json",
        "source_digest": f"sha256:{hashlib.sha256(text).hexdigest()}",
        "store": STORE,
        "thread": THREAD,
        "sequence": 1,
    }
    assert entries(report)[:2] == [begun, {**begun, "outcome": "sealed", "digest": moved.digest}]
    assert "canary" not in report.read_text() + repr(Unsigned(THREAD, {"secret": "canary"}))
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert ledger._view.anchored(THREAD) is not None


def test_states_are_taken_one_at_a_time_and_follow_each_other(report: Path, ledger: Ledger) -> None:
    """What is read is sealed before the next is asked for, so a million files fit."""

    def states() -> Iterator[Unsigned]:
        for number in range(1, 4):
            assert ledger.storage.head("a") == number - 1
            yield Unsigned("a", number)
            yield Unsigned(f"b-{number}", "x")

    assert move(states(), ledger, report) == 6
    assert [each.state for each in ledger.history("a")] == [1, 2, 3]
    assert outcomes(report)[9] == ("a", 3, "sealed")


# Refusals


@pytest.mark.parametrize("vouched", [False, None, 1, "yes", "True", object()])
def test_only_a_literal_true_vouches(report: Path, ledger: Ledger, vouched: Any) -> None:
    read: list[str] = []
    states = (Unsigned(name, read.append(name)) for name in [THREAD])  # type: ignore[func-returns-value]
    with pytest.raises(ConfigurationError, match="carry no seal") as refusal:
        migrate(states, ledger, report=report, allow_unsigned_migration=vouched)
    assert "pass allow_unsigned_migration=True" in refusal.value.do
    assert read == ledger.threads() == []
    assert not report.exists()


@pytest.mark.parametrize(
    ("there", "given"),
    [(1, 1), (1, True), ([1], (1,))],
)
def test_a_thread_that_no_migration_began_is_not_added_to(
    report: Path, ledger: Ledger, there: Any, given: Any
) -> None:
    """Not even if its states agree, and not at the second try either."""
    ledger.save(THREAD, there)
    states = [Unsigned("order-6", 1), Unsigned(THREAD, given), Unsigned(THREAD, 5_000_000)]
    for _ in range(2):
        with pytest.raises(Conflict) as refusal:
            move(states, ledger, report)
    assert refusal.value.what == (
        "order-7 exists in store invoices, and this report did not begin it."
    )
    assert [each.state for each in ledger.history(THREAD)] == [there]
    assert outcomes(report)[:2] == [("order-6", 1, "begun"), ("order-6", 1, "sealed")]


@pytest.mark.parametrize(
    "other", [Unsigned(THREAD, True), Unsigned(THREAD, 1.0), Unsigned(THREAD, 1, app="other")]
)
def test_what_python_calls_equal_is_another_state(
    report: Path, ledger: Ledger, other: Unsigned
) -> None:
    move([Unsigned(THREAD, 1)], ledger, report)
    with pytest.raises(Conflict, match="another state at #1"):
        move([other], ledger, report)


def test_a_deleted_or_tampered_thread_does_not_come_back(report: Path, ledger: Ledger) -> None:
    ledger.save("gone", 1)
    ledger.delete("gone")
    for count in (1, 2):
        with pytest.raises(ThreadDeleted):
            move([Unsigned("gone", 1)] * count, ledger, report)
    storage = Memory()
    storage.append(THREAD, 1, ledger.storage.read("gone", 2))
    with pytest.raises(WrongPlace):
        move([Unsigned(THREAD, 1)], opened(storage), report)
    assert storage.head(THREAD) == 1


# Without a report, nothing


@pytest.mark.parametrize("kind", ["folder", "link", "pipe", "missing", "full"])
def test_nothing_is_sealed_without_a_report(tmp_path: Path, ledger: Ledger, kind: str) -> None:
    path = tmp_path / "odd"
    (tmp_path / "elsewhere").touch()
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    path = {"missing": path / "report", "full": Path("/dev/full")}.get(kind, path)
    with pytest.raises(StorageUnavailable, match=r"The report .* cannot be written"):
        move([Unsigned(THREAD, 1)], ledger, path)
    assert ledger.threads() == []


@pytest.mark.parametrize(
    ("call", "on"), [*(("write", on) for on in range(1, 7)), ("fsync", 1), ("fsync", 4)]
)
def test_what_the_report_does_not_name_is_not_sealed(
    report: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, call: str, on: int
) -> None:
    """The disk with the report fails at each moment of a migration of three states."""
    states = [Unsigned(name, 1) for name in ("a", "b", "c")]
    with monkeypatch.context() as patch:
        fail(patch, call, 28, on)
        with pytest.raises(StorageUnavailable, match=r"No space left.*Nothing more was sealed"):
            move(states, ledger, report)
    assert set(ledger.threads()) <= {thread for thread, _, _ in outcomes(report)}
    sealed = len(ledger.threads())
    assert move(states, ledger, report) == 3 - sealed
    assert {each[0] for each in outcomes(report) if each[2] != "begun"} == {"a", "b", "c"}


@pytest.mark.parametrize(
    "content",
    [b"\x80\x04N.", b'{"amount": 42}\n', b'{"outcome": "an earlier one"}\n', b"\n"],
)
def test_what_no_migration_wrote_is_not_added_to(
    report: Path, ledger: Ledger, content: bytes
) -> None:
    """Attack on yourself: report= names one of the originals."""
    report.write_bytes(content)
    with pytest.raises(ConfigurationError, match="is no report of a migration"):
        move([Unsigned("a", 1)], ledger, report)
    assert report.read_bytes() == content
    assert ledger.threads() == []


@pytest.mark.parametrize("size", [0, 1, 20, 90])
def test_a_report_whose_first_line_a_crash_cut_short_is_still_one(report: Path, size: int) -> None:
    move([Unsigned("a", 1)], opened(Memory()), report)
    report.write_bytes(report.read_bytes()[:size])
    ledger = opened(Memory())
    assert [move([Unsigned("a", 1)], ledger, report) for _ in range(3)] == [1, 0, 0]


# Run again


@pytest.mark.parametrize("done", [0, 1, 3, 6])
def test_an_interrupted_migration_goes_on_where_it_was(
    report: Path, ledger: Ledger, done: int
) -> None:
    states = [Unsigned(thread, n) for thread in ("a", "b") for n in (1, 2, 3)]

    def interrupted() -> Iterator[Unsigned]:
        yield from states[:done]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move(interrupted(), ledger, report)
    assert move(states, ledger, report) == 6 - done
    for thread in ("a", "b"):
        assert [each.state for each in ledger.history(thread)] == [1, 2, 3]
    again = [outcome for _, _, outcome in outcomes(report)[2 * done + 1 :: 2]]
    assert again == ["there already"] * done + ["sealed"] * (6 - done)


# Files, read as data


BROKEN = [
    *(b"", b"cos\nmkdir\n(S'here'\ntR.", b'{"secret": "canary"', b"{'a': 1}", b'{"a": 1} {"b": 2}'),
    *(b'{"amount": 42, "amount": 99}', b'{"a": {"b": 1, "b": 1}}', b"NaN", b"[Infinity]"),
    *(b"1" * 5000, b'"\xff"', b"\xef\xbb\xbf1", "1".encode("utf-16"), b'"a\x00b"'),
]


@pytest.mark.parametrize(
    ("text", "limits", "error"),
    [
        *((text, Limits(), DecodeError) for text in BROKEN),
        (b'"' + b"x" * 100 + b'"', Limits(state_bytes=100), LimitExceeded),
        (b"[" * 100_000, Limits(), LimitExceeded),
        (b"[" * 100_000 + b"]" * 100_000, Limits(), LimitExceeded),
        (b"[" + b"[]," * 100 + b"1]", Limits(items=50), LimitExceeded),
        (b'{"a":1,"b":2,"c":3}', Limits(items=2), LimitExceeded),
    ],
)
def test_a_file_that_is_not_strict_json_or_over_the_limits_is_refused(
    old: Path, text: bytes, limits: Limits, error: type[CheckpointError]
) -> None:
    (old / "order-7.json").write_bytes(text)
    with pytest.raises(error, match=r"order-7\.json") as refusal:
        list(json_files(old, limits=limits))
    if error is DecodeError:
        assert refusal.value.what == f"{old}/order-7.json is not strict JSON."
    cause: BaseException | None = refusal.value
    while cause is not None:  # it carries nothing of the file
        assert "canary" not in f"{cause} {vars(cause)}"
        cause = cause.__cause__ or cause.__context__


@pytest.mark.parametrize("kind", ["pipe", "link", "link to nowhere", "closed"])
def test_an_odd_file_is_refused_and_not_waited_for(
    old: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, secret = old / "order-7.json", tmp_path / "elsewhere.json"
    secret.write_text("1")
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "closed":
        file.touch()
        fail(monkeypatch, "open", 13)
    else:
        file.symlink_to(secret if kind == "link" else "nowhere")
    with pytest.raises(StorageUnavailable, match=r"order-7\.json cannot be read|Permission denied"):
        list(json_files(old))


# A file's name, and a thread's
