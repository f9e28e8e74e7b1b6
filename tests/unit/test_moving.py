"""Moving in: nothing without somebody who vouches, read as data, taken once, and written down."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import stat
from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from safepoint import Codec, InMemoryAnchor, Ledger, LimitExceeded
from safepoint.core.errors import ConfigurationError, DecodeError, SealBroken, Unavailable
from safepoint.core.ledger import with_codec
from safepoint.models.plain import strict_json
from safepoint.moving import MOVED, Moved, Unsigned, move, read_state, state_files
from tests.harness.crash import killed
from tests.house import STORE, THREAD, Memory, ledger_in, opened
from tests.unit.codec_types import Colour
from tests.unit.storage_helpers import fail


def moved(source: Any, ledger: Ledger, report: Path, vouched_by: str = "dora") -> list[Moved]:
    return move(source, ledger, report=report, vouched_by=vouched_by)


def outcomes(done: Iterable[Moved]) -> Counter[str]:
    return Counter(each.outcome for each in done)


def lines(report: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report.read_text().splitlines()]


def shown(report: Path) -> list[tuple[str, str]]:
    return [(each["source"], each["outcome"]) for each in lines(report)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    return folder


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "moved.jsonl"


@pytest.fixture
def ledger() -> Ledger:
    return opened(Memory(), InMemoryAnchor())


# One pass, and what it leaves


def test_a_file_becomes_a_thread_and_the_report_names_it(
    old: Path, report: Path, ledger: Ledger
) -> None:
    text = b'{"secret": "canary", "amount": 42}'
    (old / "order-7.json").write_bytes(text)
    (old / "Order 8").write_text('["a", 1.5, null, true, "\\u00e9 é"]')
    done = moved(state_files(old, app="old/1"), ledger, report)
    assert outcomes(done) == {"sealed": 2}
    assert ledger.threads() == [THREAD, "t--_4frder_208"]
    found = ledger.latest(THREAD)
    assert (found.state, found.app, found.label) == (json.loads(text), "old/1", MOVED)
    assert ledger.latest("t--_4frder_208").state == ["a", 1.5, None, True, "é é"]
    source = hashlib.sha256(text).hexdigest()
    digest = "sha256:" + hashlib.sha256(f"sha256:{source}".encode()).hexdigest()
    taken = Moved("order-7.json", "sealed", THREAD, 1, digest)
    assert done[1] == taken
    said = {"store": STORE, "vouched_by": "dora", "from": "old", **taken._asdict()}
    assert lines(report)[2:] == [{**said, "outcome": "begun"}, said]
    assert "canary" not in report.read_text() + repr(Unsigned(THREAD, {"secret": "canary"}))
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    note = next(ledger.back(THREAD))
    assert (note.label, note.state["vouched_by"], note.state["digest"]) == (MOVED, "dora", digest)
    assert ledger._view.anchored(THREAD) is not None


def test_without_a_name_nothing_is_written(old: Path, report: Path, ledger: Ledger) -> None:
    (old / "order-7.json").write_text("{}")
    (old / "order-8.json").write_text("{")
    done = moved(state_files(old), ledger, report, vouched_by="")
    assert outcomes(done) == {"would be sealed": 1, "refused": 1}
    assert ledger.threads() == []
    assert not report.exists()
    moved(state_files(old), ledger, report)
    done = moved(state_files(old), ledger, report, vouched_by="")
    assert outcomes(done) == {"there already": 1, "refused": 1}
    assert len(lines(report)) == 3


@pytest.mark.parametrize("name", [None, True, 1, b"dora", "a\nb", "x" * 257])
def test_what_is_no_name_does_not_vouch(report: Path, ledger: Ledger, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="not the name of a person"):
        moved([Unsigned(THREAD, 1)], ledger, report, vouched_by=name)
    assert ledger.threads() == []
    assert not report.exists()


# Refusals


def test_what_is_refused_has_a_reason_and_does_not_stop_the_rest(
    old: Path, report: Path, ledger: Ledger
) -> None:
    (old / "inner").mkdir()
    (old / "link").symlink_to(old / "order-7.pkl")
    os.mkfifo(old / "pipe")
    content = {
        "order-7.pkl": pickle.dumps({"due": date(2026, 1, 31), "at": Colour.RED}),
        "order-8.pkl": b"cos\nsystem\n(S'id'\ntR.",
        "twin.pkl": pickle.dumps(1),
        "twin.json": b"2",
        "notes.txt": b"hello",
        "two.pkl": pickle.dumps(1) * 2,
        "both.pkl": pickle.dumps(1) + b"PK\5\6" + b"\0" * 18,
    }
    for name, data in content.items():
        (old / name).write_bytes(data)
    ledger = with_codec(ledger, Codec([Colour]))
    done = {each.source: each for each in moved(state_files(old, types=[Colour]), ledger, report)}
    assert [name for name, each in done.items() if each.outcome == "sealed"] == ["order-7.pkl"]
    assert ledger.latest(THREAD).state == {"due": date(2026, 1, 31), "at": Colour.RED}
    assert ledger.threads() == [THREAD]
    for name, word in {
        "order-8.pkl": "The pickle wants os.system, which is not on the list",
        "twin.pkl": "would both become twin",
        "twin.json": "would both become twin",
        "notes.txt": "neither strict JSON nor a pickle",
        "two.pkl": "several pickles, one after another, and neither",
        "both.pkl": "something else follows",
        "inner": "inner cannot be read",
        "link": "link cannot be read",
        "pipe": "pipe cannot be read (not a regular file)",
    }.items():
        assert word in done[name].reason, name
        assert (done[name].thread, done[name].reason.count("\n")) == ("", 0)
        assert (name, "refused") in shown(report)
    assert {name: (old / name).read_bytes() for name in content} == content


def test_of_a_thread_all_is_taken_or_nothing(report: Path, ledger: Ledger) -> None:
    states = [Unsigned("a", 1, "a/1"), Unsigned("a", object(), "a/2"), Unsigned("b", 2, "b/1")]
    refused, other = moved(states, ledger, report)
    assert (refused.source, refused.outcome, other.outcome) == ("a/1", "refused", "sealed")
    assert refused.reason.startswith("'a/2': state is of the type builtins.object")
    assert ledger.threads() == ["b"]
    assert outcomes(moved([Unsigned("A b", 1)], ledger, report)) == {"refused": 1}


def test_a_deleted_or_tampered_thread_does_not_come_back(report: Path, ledger: Ledger) -> None:
    ledger.save("gone", 1)
    ledger.delete("gone")
    for _ in range(2):
        assert outcomes(moved([Unsigned("gone", 1)], ledger, report)) == {"refused": 1}
    storage = Memory()
    storage.append(THREAD, 1, ledger.storage.read("gone", 2))
    with pytest.raises(SealBroken, match="is the one of"):
        moved([Unsigned(THREAD, 1)], opened(storage), report)
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
    with pytest.raises(Unavailable, match=r"The report .* cannot be written"):
        moved([Unsigned(THREAD, 1)], ledger, path)
    assert ledger.threads() == []


@pytest.mark.parametrize(
    ("call", "on"), [*(("write", on) for on in range(1, 7)), ("fsync", 1), ("fsync", 4)]
)
def test_what_the_report_does_not_name_is_not_sealed(
    report: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, call: str, on: int
) -> None:
    """The disk with the report fails at each moment of a move of three threads."""
    states = [Unsigned(name, 1, name) for name in ("a", "b", "c")]
    with monkeypatch.context() as patch:
        fail(patch, call, 28, on)
        with pytest.raises(Unavailable, match=r"No space left.*Nothing more was sealed"):
            moved(states, ledger, report)
    assert {*ledger.threads()} <= {name for name, _ in shown(report)}
    sealed = len(ledger.threads())
    done = outcomes(moved(states, ledger, report))
    assert (done["there already"], done["sealed"]) == (sealed, 3 - sealed)
    assert {name for name, outcome in shown(report) if outcome != "begun"} == {"a", "b", "c"}


@pytest.mark.parametrize(
    "content",
    [b"\x80\x04N.", b'{"amount": 42}\n', b'{"outcome": 7}\n', b"\n", b'{\n  "outcome": "a"}\n'],
)
def test_what_is_no_report_is_not_added_to(report: Path, ledger: Ledger, content: bytes) -> None:
    """Attack on yourself: report= names one of the originals."""
    report.write_bytes(content)
    with pytest.raises(ConfigurationError, match="is not the report of a move"):
        moved([Unsigned("a", 1)], ledger, report)
    assert report.read_bytes() == content
    assert ledger.threads() == []


def test_the_report_is_not_written_into_the_folder(old: Path, ledger: Ledger) -> None:
    (old / "order-7.json").write_text("{}")
    for name in ("", "dora"):
        with pytest.raises(ConfigurationError, match="would be in the folder"):
            moved(state_files(old), ledger, old / "inner" / "moved.jsonl", vouched_by=name)
    assert [*old.iterdir()] == [old / "order-7.json"]


# Run again


# Files, read as data


BROKEN = [
    *(b"", b'{"secret": "canary"', b"{'a': 1}", b'{"a": 1} {"b": 2}'),
    *(b'{"amount": 42, "amount": 99}', b'{"a": {"b": 1, "b": 1}}', b"NaN", b"[Infinity]"),
    *(b"1" * 5000, b'"\xff"', b"\xef\xbb\xbf1", "1".encode("utf-16"), b'"a\x00b"'),
]


DEEP = [b"[" * 10**5, b"[" * 10**5 + b"]" * 10**5]


@pytest.mark.parametrize("text", BROKEN + DEEP)
def test_what_is_not_strict_json_is_refused(old: Path, text: bytes) -> None:
    (old / "order-7.json").write_bytes(text)
    kind = LimitExceeded if text in DEEP else DecodeError
    with pytest.raises(kind):
        read_state(old / "order-7.json", thread=THREAD)
    with pytest.raises(kind) as refusal:
        strict_json(text, 10**6, 10**6)
    cause: BaseException | None = refusal.value
    while cause is not None:  # it carries nothing of the file
        assert "canary" not in f"{cause} {vars(cause)}"
        cause = cause.__cause__ or cause.__context__
    for size, items in ((9, 99), (99, 2)):
        with pytest.raises(LimitExceeded):
            strict_json(b"[1, [2, 3]]", size, items)


def test_a_move_ends_no_lease_but_its_own(old: Path, report: Path) -> None:
    ledger = opened(Memory(), InMemoryAnchor(), worker="one")
    (old / "order-7.json").write_text("{}")
    first, *_ = moved(state_files(old), ledger, report)
    assert ledger.owners.threads == {}
    with ledger.own(first.thread, "one", seconds=60):
        for who in ("", "dora"):
            moved(state_files(old), ledger, report, who)
            assert len(ledger.owners.threads) == 1


def move_folder(folder: Path) -> None:
    to = ledger_in(folder, "files")
    moved(state_files(folder / "old"), to, folder / "report")


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.deep)])
def test_sigkill_after_each_step_of_a_move(tmp_path: Path, stride: int) -> None:
    """The next run finishes it, and seals nothing twice."""
    (tmp_path / "prepared" / "old").mkdir(parents=True, mode=0o700)
    for name in ("a", "b"):
        (tmp_path / "prepared" / "old" / f"{name}.pkl").write_bytes(pickle.dumps({"name": name}))
    for left in killed(move_folder, tmp_path, prepared=tmp_path / "prepared", stride=stride):
        move_folder(left.folder)
        to = ledger_in(left.folder, "files")
        assert {t: [c.state for c in to.history(t)] for t in to.threads()} == {
            name: [{"name": name}] for name in ("a", "b")
        }
