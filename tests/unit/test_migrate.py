"""Moving in from unsigned files: explicit, in one pass, read as data, and written down."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    DecodeError,
    EncodeError,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InvalidId,
    Keyring,
    Ledger,
    LimitExceeded,
    Limits,
    SigningKey,
    StorageUnavailable,
    ThreadDeleted,
    WrongPlace,
)
from safepoint.errors import shell
from safepoint.migrate import Unsigned, begun_by, json_files, migrate

KEYS = Keyring(SigningKey.generate())


def new_ledger() -> Ledger:
    return Ledger(InMemoryCheckpointStorage(), store="invoices", keys=KEYS)


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


# One pass, and what it leaves


def test_files_become_threads(old: Path, report: Path) -> None:
    (old / "order-7.json").write_text('{"amount": 42}')
    (old / "order-8.json").write_text('["a", 1.5, null, true, "\\u00e9 é"]')
    (old / "README.txt").write_text("not one of them")
    ledger = new_ledger()
    files = json_files(old, app="old/1")
    assert migrate(files, ledger, report=report, allow_unsigned_migration=True) == 2
    assert ledger.threads() == ["order-7", "order-8"]
    assert ledger.latest("order-7").state == {"amount": 42}
    assert ledger.latest("order-7").app == "old/1"
    assert ledger.latest("order-8").state == ["a", 1.5, None, True, "é é"]


def test_the_report_names_each_state_before_and_after(old: Path, report: Path) -> None:
    text = b'{"amount": 42}'
    (old / "order-7.json").write_bytes(text)
    ledger = new_ledger()
    migrate(json_files(old), ledger, report=report, allow_unsigned_migration=True)
    begun = {
        "outcome": "begun",
        "source": "order-7.json",
        "source_digest": f"sha256:{hashlib.sha256(text).hexdigest()}",
        "store": "invoices",
        "thread": "order-7",
        "sequence": 1,
    }
    digest = ledger.latest("order-7").digest
    assert entries(report) == [begun, {**begun, "outcome": "sealed", "digest": digest}]


def test_the_report_holds_no_state_and_is_closed_to_others(old: Path, report: Path) -> None:
    (old / "order-7.json").write_text('{"secret": "canary-4711"}')
    migrate(json_files(old), new_ledger(), report=report, allow_unsigned_migration=True)
    assert "canary" not in report.read_text()
    assert stat.S_IMODE(report.stat().st_mode) == 0o600


def test_a_report_is_added_to(report: Path) -> None:
    earlier = {"source": "a", "source_digest": "", "store": "s", "thread": "a", "sequence": 1}
    report.write_text(json.dumps({"outcome": "an earlier one", **earlier}) + "\n")
    states = [Unsigned("order-7", 1)]
    migrate(states, new_ledger(), report=report, allow_unsigned_migration=True)
    assert [entry["outcome"] for entry in entries(report)] == [
        "an earlier one",
        "begun",
        "sealed",
    ]


def test_several_states_of_one_thread_become_its_checkpoints(report: Path) -> None:
    ledger = new_ledger()
    states = [Unsigned("a", 1), Unsigned("b", "x"), Unsigned("a", 2), Unsigned("a", 3)]
    assert migrate(states, ledger, report=report, allow_unsigned_migration=True) == 4
    assert [each.state for each in ledger.history("a")] == [1, 2, 3]
    assert outcomes(report)[1::2] == [
        ("a", 1, "sealed"),
        ("b", 1, "sealed"),
        ("a", 2, "sealed"),
        ("a", 3, "sealed"),
    ]


def test_states_are_taken_one_at_a_time(report: Path) -> None:
    """One pass: what is read is sealed before the next is asked for, so a million files fit."""
    ledger = new_ledger()

    def states() -> Iterator[Unsigned]:
        for number in range(1, 4):
            assert ledger.storage.head("order-7") == number - 1
            yield Unsigned("order-7", number)

    assert migrate(states(), ledger, report=report, allow_unsigned_migration=True) == 3


def test_it_seals_for_the_anchor_too(report: Path) -> None:
    anchor = InMemoryAnchor()
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=KEYS, anchor=anchor)
    migrate([Unsigned("order-7", 1)], ledger, report=report, allow_unsigned_migration=True)
    head = anchor.read("invoices", "order-7")
    assert head is not None
    assert head.digest == ledger.latest("order-7").digest


def test_an_unsigned_state_does_not_show_itself() -> None:
    assert "canary" not in repr(Unsigned("order-7", {"secret": "canary"}))


# Refusals


@pytest.mark.parametrize("vouched", [False, None, 1, "yes", "True", object()])
def test_only_a_literal_true_vouches(report: Path, vouched: Any) -> None:
    ledger = new_ledger()
    with pytest.raises(ConfigurationError) as refusal:
        migrate([Unsigned("order-7", 1)], ledger, report=report, allow_unsigned_migration=vouched)
    assert "pass allow_unsigned_migration=True" in refusal.value.do
    assert ledger.threads() == []
    assert not report.exists()


def test_without_a_word_nothing_is_read(report: Path) -> None:
    read: list[str] = []
    states = (Unsigned(name, read.append(name)) for name in ["order-7"])  # type: ignore[func-returns-value]
    with pytest.raises(ConfigurationError, match="carry no seal"):
        migrate(states, new_ledger(), report=report)
    assert read == []


def test_an_existing_thread_is_not_added_to(report: Path) -> None:
    ledger = new_ledger()
    ledger.save("order-7", {"amount": 42})
    states = [Unsigned("order-6", 1), Unsigned("order-7", {"amount": 99}), Unsigned("order-8", 1)]
    with pytest.raises(Conflict) as refusal:
        migrate(states, ledger, report=report, allow_unsigned_migration=True)
    assert refusal.value.what == (
        "order-7 exists in store invoices, and this report did not begin it."
    )
    assert [each.state for each in ledger.history("order-7")] == [{"amount": 42}]
    assert ledger.threads() == ["order-6", "order-7"]
    assert outcomes(report) == [
        ("order-6", 1, "begun"),
        ("order-6", 1, "sealed"),
    ]


@pytest.mark.parametrize(
    ("there", "given"),
    [(1, True), (1, 1.0), (0, False), ([1], (1,)), ({"n": 1}, {"n": 1.0}), (1, Decimal(1))],
)
def test_what_python_calls_equal_is_another_state(report: Path, there: Any, given: Any) -> None:
    ledger = new_ledger()
    ledger.save("order-7", there)
    with pytest.raises(Conflict):
        migrate([Unsigned("order-7", given)], ledger, report=report, allow_unsigned_migration=True)


def test_the_same_state_of_another_app_is_another_state(report: Path) -> None:
    ledger = new_ledger()
    ledger.save("order-7", 1, app="run")
    with pytest.raises(Conflict):
        migrate(
            [Unsigned("order-7", 1, app="old")],
            ledger,
            report=report,
            allow_unsigned_migration=True,
        )


def test_a_deleted_thread_does_not_come_back(report: Path) -> None:
    ledger = new_ledger()
    ledger.save("order-7", 1)
    ledger.delete("order-7")
    for states in ([Unsigned("order-7", 1)], [Unsigned("order-7", 1), Unsigned("order-7", 2)]):
        with pytest.raises(ThreadDeleted):
            migrate(states, ledger, report=report, allow_unsigned_migration=True)


def test_a_tampered_thread_is_not_added_to(report: Path) -> None:
    ledger = new_ledger()
    other = new_ledger()
    other.save("order-8", 1)
    ledger.storage.append("order-7", 1, other.storage.read("order-8", 1))
    with pytest.raises(WrongPlace):
        migrate([Unsigned("order-7", 1)], ledger, report=report, allow_unsigned_migration=True)
    assert ledger.storage.head("order-7") == 1


@pytest.mark.parametrize("thread", ["../order", "Order 7", "", "a.b", 7, None])
def test_a_name_outside_the_grammar_is_refused(report: Path, thread: Any) -> None:
    ledger = new_ledger()
    with pytest.raises(InvalidId):
        migrate([Unsigned(thread, 1)], ledger, report=report, allow_unsigned_migration=True)
    assert ledger.threads() == []


@pytest.mark.parametrize("state", [object(), float("inf"), {1, object()}, "\ud800"])
def test_a_state_that_cannot_be_restored_is_refused(report: Path, state: Any) -> None:
    ledger = new_ledger()
    with pytest.raises(EncodeError):
        migrate([Unsigned("order-7", state)], ledger, report=report, allow_unsigned_migration=True)
    assert ledger.threads() == []


@pytest.mark.parametrize("states", [[{"amount": 42}], ["order-7"], [None], [("order-7", 1)]])
def test_what_is_not_unsigned_is_refused_with_what_to_write(report: Path, states: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Write Unsigned\(thread, state\)"):
        migrate(states, new_ledger(), report=report, allow_unsigned_migration=True)


def test_an_error_of_the_states_is_not_blamed_on_the_report(report: Path) -> None:
    def states() -> Iterator[Unsigned]:
        yield Unsigned("order-7", 1)
        raise OSError(5, "the old disk")

    with pytest.raises(OSError, match="the old disk"):
        migrate(states(), new_ledger(), report=report, allow_unsigned_migration=True)
    assert outcomes(report) == [("order-7", 1, "begun"), ("order-7", 1, "sealed")]


# Without a report, nothing


def missing_folder(ground: Path) -> Any:
    return ground / "missing" / "report"


def a_folder(ground: Path) -> Any:
    (ground / "folder").mkdir()
    return ground / "folder"


def a_link(ground: Path) -> Any:
    (ground / "elsewhere").touch()
    (ground / "link").symlink_to("elsewhere")
    return ground / "link"


def a_pipe(ground: Path) -> Any:
    os.mkfifo(ground / "pipe")
    return ground / "pipe"


def a_full_disk(_: Path) -> Any:
    return "/dev/full"


def an_impossible_name(_: Path) -> Any:
    return "a\0b"


def a_number(_: Path) -> Any:
    return 7


def nothing(_: Path) -> Any:
    return None


@pytest.mark.parametrize(
    "place",
    [
        missing_folder,
        a_folder,
        a_link,
        a_pipe,
        a_full_disk,
        an_impossible_name,
        a_number,
        nothing,
    ],
    ids=lambda place: place.__name__,
)
def test_nothing_is_sealed_without_a_report(tmp_path: Path, place: Callable[[Path], Any]) -> None:
    ledger = new_ledger()
    path = place(tmp_path)
    with pytest.raises((StorageUnavailable, ConfigurationError)) as refusal:
        migrate([Unsigned("order-7", 1)], ledger, report=path, allow_unsigned_migration=True)
    assert "report" in refusal.value.what.lower()
    assert ledger.threads() == []


@pytest.mark.parametrize(
    ("call", "fails_at"),
    [("write", number) for number in range(1, 7)] + [("fsync", number) for number in range(1, 5)],
)
def test_what_the_report_does_not_name_is_not_sealed(
    report: Path, monkeypatch: pytest.MonkeyPatch, call: str, fails_at: int
) -> None:
    """The disk with the report fails at each moment of a migration of three states."""
    genuine, calls = getattr(os, call), []

    def failing(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == fails_at:
            raise OSError(28, "No space left on device")
        return genuine(*given)

    ledger = new_ledger()
    states = [Unsigned(name, 1) for name in ("a", "b", "c")]
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(StorageUnavailable, match=r"No space left.*Nothing more was sealed"):
            migrate(states, ledger, report=report, allow_unsigned_migration=True)
    assert set(ledger.threads()) <= {thread for thread, _, _ in outcomes(report)}
    sealed = len(ledger.threads())
    assert migrate(states, ledger, report=report, allow_unsigned_migration=True) == 3 - sealed
    ended = {thread for thread, _, outcome in outcomes(report) if outcome != "begun"}
    assert ended == {"a", "b", "c"}


def test_a_line_is_written_whole_even_if_the_disk_takes_it_in_pieces(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: genuine(fd, bytes(data[:10])))
    migrate([Unsigned("a", 1)], new_ledger(), report=report, allow_unsigned_migration=True)
    assert outcomes(report) == [("a", 1, "begun"), ("a", 1, "sealed")]


# Run again


class Interrupted(BaseException):
    """As a kill or Ctrl-C."""


@pytest.mark.parametrize("done", range(6))
def test_an_interrupted_migration_goes_on_where_it_was(report: Path, done: int) -> None:
    states = [Unsigned(thread, n) for thread in ("a", "b") for n in (1, 2, 3)]

    def interrupted() -> Iterator[Unsigned]:
        yield from states[:done]
        raise Interrupted

    ledger = new_ledger()
    with pytest.raises(Interrupted):
        migrate(interrupted(), ledger, report=report, allow_unsigned_migration=True)
    assert migrate(states, ledger, report=report, allow_unsigned_migration=True) == 6 - done
    for thread in ("a", "b"):
        assert [each.state for each in ledger.history(thread)] == [1, 2, 3]
    again = [outcome for _, _, outcome in outcomes(report)[2 * done + 1 :: 2]]
    assert again == ["there already"] * done + ["sealed"] * (6 - done)


def test_run_again_after_the_end_it_changes_nothing(old: Path, report: Path) -> None:
    (old / "order-7.json").write_text('{"b": 1, "a": [1, 2]}')
    ledger = new_ledger()
    for expected in (1, 0, 0):
        files = json_files(old)
        assert migrate(files, ledger, report=report, allow_unsigned_migration=True) == expected
    assert ledger.verify("order-7") == 1


def test_run_again_while_the_thread_goes_on_it_changes_nothing(report: Path) -> None:
    ledger = new_ledger()
    states = [Unsigned("order-7", 1)]
    migrate(states, ledger, report=report, allow_unsigned_migration=True)
    ledger.save("order-7", "the run")
    assert migrate(states, ledger, report=report, allow_unsigned_migration=True) == 0
    assert [each.state for each in ledger.history("order-7")] == [1, "the run"]


def test_a_second_folder_does_not_reach_into_a_run_that_goes_on(report: Path) -> None:
    ledger = new_ledger()
    migrate([Unsigned("order-7", 1)], ledger, report=report, allow_unsigned_migration=True)
    ledger.save("order-7", "the run")
    states = [Unsigned("order-7", 1), Unsigned("order-7", "not the run")]
    with pytest.raises(Conflict, match="another state at #2"):
        migrate(states, ledger, report=report, allow_unsigned_migration=True)


def test_a_writer_that_is_faster_is_not_overwritten(report: Path) -> None:
    elsewhere = InMemoryCheckpointStorage()
    Ledger(elsewhere, store="invoices", keys=KEYS).save("order-7", "rival")

    class Raced(InMemoryCheckpointStorage):
        def append(
            self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
        ) -> None:
            super().append(thread, 1, elsewhere.read(thread, 1))
            super().append(thread, sequence, record)

    ledger = Ledger(Raced(), store="invoices", keys=KEYS)
    with pytest.raises(Conflict):
        migrate([Unsigned("order-7", 1)], ledger, report=report, allow_unsigned_migration=True)
    assert ledger.latest("order-7").state == "rival"


# Files, read as data


class Payload:
    """Leaves a folder where a pickle of it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def test_a_pickle_is_not_executed(old: Path, report: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (old / "order-7.json").write_bytes(pickle.dumps(Payload(marker)))
    (old / "order-8.pkl").write_bytes(pickle.dumps(Payload(marker)))
    ledger = new_ledger()
    with pytest.raises(DecodeError, match="is not strict JSON"):
        migrate(json_files(old), ledger, report=report, allow_unsigned_migration=True)
    assert not marker.exists()
    assert ledger.threads() == []
    pickle.loads((old / "order-7.json").read_bytes())  # it would have been
    assert marker.exists()


@pytest.mark.parametrize(
    "state",
    [
        {"$date": "2026-11-15"},
        {"$int": "0x10"},
        {"$path": "/etc/passwd"},
        {"$pickle": "gASVIAAA"},
        {"__pickled__": "gASVIAAA", "__type__": "builtins:dict"},
        {"__class__": "os.system", "args": ["true"]},
        {"py/object": "os.system"},
        {"$dict": [["a", 1]]},
    ],
)
def test_a_tag_in_a_file_stays_a_dict(old: Path, report: Path, state: Any) -> None:
    """What looks like a tag, of this codec or another, names no type on the way in."""
    (old / "order-7.json").write_text(json.dumps(state))
    ledger = new_ledger()
    migrate(json_files(old), ledger, report=report, allow_unsigned_migration=True)
    found = ledger.latest("order-7").state
    assert type(found) is dict
    assert found == state


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{'a': 1}",
        b'{"a": 1} {"b": 2}',
        b'{"amount": 42, "amount": 99}',
        b'{"a": {"b": 1, "b": 1}}',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1" * 5000,
        b'"\xff"',
        b"\xef\xbb\xbf1",
        "1".encode("utf-16"),
        b'"a\x00b"',
        b"safepoint/1 0123456789abcdef AAAA\n{}\n{}\n",
    ],
)
def test_a_file_that_is_not_strict_json_is_refused(old: Path, text: bytes) -> None:
    (old / "order-7.json").write_bytes(text)
    with pytest.raises(DecodeError) as refusal:
        list(json_files(old))
    assert refusal.value.what == f"{old}/order-7.json is not strict JSON."


def test_a_refusal_carries_nothing_of_the_file(old: Path) -> None:
    (old / "order-7.json").write_bytes(b'{"secret": "canary-4711"')
    with pytest.raises(DecodeError) as refusal:
        list(json_files(old))
    error: BaseException | None = refusal.value
    while error is not None:
        assert "canary" not in f"{error} {vars(error)}"
        error = error.__cause__ or error.__context__


def test_a_number_that_overflows_is_refused_before_it_is_sealed(old: Path, report: Path) -> None:
    (old / "order-7.json").write_bytes(b"1e999")
    ledger = new_ledger()
    with pytest.raises(EncodeError, match="not finite"):
        migrate(json_files(old), ledger, report=report, allow_unsigned_migration=True)
    assert ledger.threads() == []


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (b'"' + b"x" * 100 + b'"', Limits(state_bytes=100)),
        (b"[" * 100_000, Limits()),
        (b"[" * 100_000 + b"]" * 100_000, Limits()),
        (b"[" + b"[]," * 100 + b"1]", Limits(items=50)),
        (b'{"a":1,"b":2,"c":3}', Limits(items=2)),
    ],
    ids=["size", "open", "nesting", "lists", "keys"],
)
def test_a_file_over_the_limits_is_refused(old: Path, text: bytes, limits: Limits) -> None:
    (old / "order-7.json").write_bytes(text)
    with pytest.raises(LimitExceeded, match=r"order-7\.json"):
        list(json_files(old, limits=limits))


def test_a_file_is_not_read_beyond_the_limit(old: Path) -> None:
    with (old / "order-7.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(LimitExceeded, match="is over the limit of 1000 bytes"):
        list(json_files(old, limits=Limits(state_bytes=1000)))


@pytest.mark.parametrize("kind", ["pipe", "link", "link to nowhere"])
def test_an_odd_file_is_refused_and_not_waited_for(old: Path, tmp_path: Path, kind: str) -> None:
    file, secret = old / "order-7.json", tmp_path / "elsewhere.json"
    secret.write_text("1")
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(secret if kind == "link" else "nowhere")
    with pytest.raises(StorageUnavailable, match=r"order-7\.json cannot be read"):
        list(json_files(old))


@pytest.mark.parametrize("name", ["order-8", "order-8.json", ".hidden"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_in_the_folder_is_refused_and_not_left_out(
    old: Path, report: Path, tmp_path: Path, name: str, linked: bool
) -> None:
    """Whoever keeps a folder for each thread would believe that all of them moved in."""
    (old / "order-7.json").write_text("1")
    inner = tmp_path / "inner" if linked else old / name
    inner.mkdir()
    (inner / "0001.json").write_text("1")
    if linked:
        (old / name).symlink_to(inner)
    ledger = new_ledger()
    with pytest.raises(ConfigurationError) as refusal:
        migrate(json_files(old), ledger, report=report, allow_unsigned_migration=True)
    assert refusal.value.what == f"{old}/{name} is a folder, and json_files reads files alone."
    assert "Read each folder by itself" in refusal.value.do
    assert ledger.threads() == []


# A file's name, and a thread's


def test_a_folder_for_each_thread_is_read_folder_by_folder(old: Path, report: Path) -> None:
    for thread in ("order-7", "order-8"):
        (old / thread).mkdir()
        for number in (1, 2, 10):
            (old / thread / f"{number:04}.json").write_text(f"{number}")
    states = (
        replace(each, thread=folder.name, source=f"{folder.name}/{each.source}")
        for folder in sorted(old.iterdir())
        for each in json_files(folder)
    )
    ledger = new_ledger()
    assert migrate(states, ledger, report=report, allow_unsigned_migration=True) == 6
    assert [each.state for each in ledger.history("order-8")] == [1, 2, 10]
    assert entries(report)[-1]["source"] == "order-8/0010.json"


def test_a_file_whose_name_is_no_threads_is_named_before_any_is_read(
    old: Path, report: Path
) -> None:
    (old / "a.json").write_text("1")
    (old / "Order 7.json").write_text("not even JSON")
    ledger = new_ledger()
    with pytest.raises(InvalidId) as refusal:
        migrate(json_files(old), ledger, report=report, allow_unsigned_migration=True)
    assert refusal.value.what == (
        f"'{old}/Order 7.json' becomes a thread, and 'Order 7' is not a thread name."
    )
    assert refusal.value.do.endswith(
        "Map old names to new ones: json_files(path, thread=function), or"
        " Unsigned(new_name, state)."
    )
    assert ledger.threads() == []


def test_names_are_mapped(old: Path, report: Path) -> None:
    (old / "Order 7.json").write_text("7")
    (old / "order-8.JSON").write_text("8")
    ledger = new_ledger()
    files = json_files(old, thread=lambda name: name.lower().replace(" ", "-"))
    assert migrate(files, ledger, report=report, allow_unsigned_migration=True) == 2
    assert [ledger.latest(thread).state for thread in ledger.threads()] == [7, 8]
    assert entries(report)[0]["source"] == "Order 7.json"


def test_two_files_do_not_become_one_thread(old: Path) -> None:
    """The second would look like the next step of the first."""
    (old / "Order-7.json").write_text("1")
    (old / "order-7.json").write_text("2")
    with pytest.raises(Conflict) as refusal:
        list(json_files(old, thread=str.lower))
    assert refusal.value.what == (
        f"{old}/Order-7.json and {old}/order-7.json would both become order-7."
    )


@pytest.mark.parametrize("made", ["../up", "", None, 7])
def test_a_map_to_no_name_is_refused(old: Path, made: Any) -> None:
    (old / "order-7.json").write_text("1")
    with pytest.raises(InvalidId, match=r"order-7\.json becomes a thread"):
        list(json_files(old, thread=lambda _: made))


def test_a_map_that_is_no_function_is_refused(old: Path) -> None:
    wrong: Any = "order-7"
    with pytest.raises(ConfigurationError, match=r"given str as thread.*thread=str\.lower"):
        list(json_files(old, thread=wrong))


def test_a_name_of_your_own_is_refused_with_its_source(report: Path) -> None:
    states = [Unsigned("Order 7", 1, source="row 12")]
    with pytest.raises(InvalidId, match=r"^'row 12' becomes a thread, and 'Order 7' is not"):
        migrate(states, new_ledger(), report=report, allow_unsigned_migration=True)


@pytest.mark.parametrize("kind", ["missing", "a file"])
def test_a_folder_that_is_none_is_refused(tmp_path: Path, kind: str) -> None:
    """An empty answer would look like a migration with nothing to do."""
    path = tmp_path / "old"
    if kind == "a file":
        path.touch()
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        list(json_files(path))


def test_a_file_that_cannot_be_read_is_refused(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (old / "order-7.json").write_text("1")

    def closed(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", closed)
    with pytest.raises(StorageUnavailable, match="Permission denied"):
        list(json_files(old))


def test_the_first_bad_file_stops_the_migration_after_those_before_it(
    old: Path, report: Path
) -> None:
    (old / "a.json").write_text("1")
    (old / "b.json").write_text("not json")
    (old / "c.json").write_text("3")
    ledger = new_ledger()
    with pytest.raises(CheckpointError, match=r"b\.json is not strict JSON"):
        migrate(json_files(old), ledger, report=report, allow_unsigned_migration=True)
    assert ledger.threads() == ["a"]
    (old / "b.json").write_text("2")
    assert migrate(json_files(old), ledger, report=report, allow_unsigned_migration=True) == 2
    assert ledger.threads() == ["a", "b", "c"]


def test_a_thread_that_no_migration_began_is_not_added_to_even_if_its_states_agree(
    report: Path,
) -> None:
    ledger = new_ledger()
    ledger.save("order-7", {"amount": 42})
    states = [Unsigned("order-7", {"amount": 42}), Unsigned("order-7", {"amount": 5_000_000})]
    with pytest.raises(Conflict, match="this report did not begin it"):
        migrate(states, ledger, report=report, allow_unsigned_migration=True)
    with pytest.raises(Conflict, match="this report did not begin it"):  # nor at the second try
        migrate(states, ledger, report=report, allow_unsigned_migration=True)
    assert ledger.verify("order-7") == 1


# What a report says, read without writing it


def test_a_report_that_is_not_there_began_nothing_and_is_not_made(report: Path) -> None:
    assert begun_by(report) == set()
    assert not report.exists()


def test_a_report_says_which_threads_it_began(report: Path) -> None:
    ledger = new_ledger()
    migrate(
        [Unsigned("a", 1), Unsigned("b", 2)], ledger, report=report, allow_unsigned_migration=True
    )
    with report.open("ab") as file:
        file.write(b'{"outcome": "begun", "store": "invoices", "thr')
    before = report.read_bytes()
    assert begun_by(report) == {("invoices", "a"), ("invoices", "b")}
    assert report.read_bytes() == before


@pytest.mark.parametrize("kind", ["link", "path"])
def test_a_report_that_cannot_be_read_is_refused(report: Path, kind: str) -> None:
    if kind == "link":
        report.symlink_to("elsewhere")
        reason = "Too many levels of symbolic links"
    else:
        report = Path("a\0b")
        reason = "not a path"
    with pytest.raises(StorageUnavailable) as refusal:
        begun_by(report)
    assert f"cannot be read ({reason})" in refusal.value.what
    wrong: Any = 7
    with pytest.raises(ConfigurationError, match="A report was asked for at int"):
        begun_by(wrong)


# A report is added to no file of another kind


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04N.",
        b'{"amount": 42}\n',
        b'{"store": "invoices", "amount": 42}',
        b'{"outcome": "an earlier one"}\n',
        b"[]\n",
        b"null\n",
        b"\n",
        b"[" * 100_000,
        b"x" * 3_000_000,
    ],
    ids=lambda content: str(content[:12]),
)
def test_what_no_migration_wrote_is_not_added_to(report: Path, content: bytes) -> None:
    """Attack on yourself: report= names one of the originals."""
    report.write_bytes(content)
    ledger = new_ledger()
    message = (
        f"{shell(str(report))} exists, and is no report of a migration. Nothing was written to it."
        " Name a new file as the report, or that of an earlier run."
    )
    with pytest.raises(ConfigurationError) as refusal:
        migrate([Unsigned("a", 1)], ledger, report=report, allow_unsigned_migration=True)
    assert str(refusal.value) == message
    with pytest.raises(ConfigurationError) as refusal:
        begun_by(report)
    assert str(refusal.value) == message
    assert report.read_bytes() == content
    assert ledger.threads() == []


@pytest.mark.parametrize("size", [0, 1, 20, 40, 90])
def test_a_report_whose_first_line_a_crash_cut_short_is_still_one(report: Path, size: int) -> None:
    migrate([Unsigned("a", 1)], new_ledger(), report=report, allow_unsigned_migration=True)
    report.write_bytes(report.read_bytes()[:size])
    ledger = new_ledger()
    for sealed in (1, 0, 0):
        migrated = migrate([Unsigned("a", 1)], ledger, report=report, allow_unsigned_migration=True)
        assert migrated == sealed
