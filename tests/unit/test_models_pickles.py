"""Pickles read as data: what comes back, what is refused and why, and a folder that moves in."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Codec,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    LimitExceeded,
    SigningKey,
)
from safepoint.core import errors
from safepoint.core.errors import CodecError, ConfigurationError, PickleRefused
from safepoint.models import Moved, PickleLimits, migrate_pickles, read_pickle
from tests.harness.crash import killed
from tests.unit.archive_helpers import cases, made
from tests.unit.codec_types import VALUES, Colour, Invoice, Note, Point, Rights, same
from tests.unit.commands import said

TYPES = [Colour, Invoice, Note, Point, Rights]
KEY = SigningKey(bytes(range(32)))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_a_codec_can_hold_comes_back(protocol: int) -> None:
    read = 0
    values = [each for each in VALUES if "OrderedDict" not in repr(each)]  # read as a dict
    for value in values:
        try:
            found = read_pickle(pickle.dumps(value, protocol), types=TYPES)
        except PickleRefused:
            continue
        read += 1
        assert same(found, value)
    assert read > 0.8 * len(values)


def test_a_type_that_was_renamed_is_read_under_its_old_name() -> None:
    data = pickle.dumps(Colour.RED).replace(b"tests.unit.codec_types", b"older.unit.codec_types")
    assert read_pickle(data, types={"older.unit.codec_types.Colour": Colour}) == Colour.RED
    with pytest.raises(PickleRefused, match=r"wants older\.unit\.codec_types\.Colour"):
        read_pickle(data, types=[Colour])
    for types in (Colour, 7, {"Colour": Colour}, {7: Colour}):
        with pytest.raises((ConfigurationError, CodecError)):
            read_pickle(data, types=types)  # type: ignore[arg-type]


@pytest.mark.parametrize(("what", "error", "word"), cases("pickles"))
def test_a_pickle_that_is_more_than_data_is_refused(what: str, error: str, word: str) -> None:
    with pytest.raises(getattr(errors, error), match=word):
        read_pickle(made(what))


def test_each_limit_holds() -> None:
    data = pickle.dumps({"a": ["text" * 5, (1, 2)]})
    for name in ("data_bytes", "opcodes", "memo", "nodes", "text_bytes", "depth"):
        with pytest.raises(LimitExceeded):
            read_pickle(data, limits=PickleLimits(**{name: 1}))


class Restored:
    """What a class of ours would be asked to build, if anything were asked."""


def ledger(*types: type) -> Ledger:
    keys = Keyring(KEY)
    return Ledger(InMemoryCheckpointStorage(), store="old", keys=keys, codec=Codec(types))


def outcomes(done: list[Moved]) -> Counter[str]:
    return Counter(each.outcome for each in done)


def test_a_folder_moves_in_and_what_is_refused_does_not_stop_the_rest(tmp_path: Path) -> None:
    old = tmp_path / "old"
    (old / "inner").mkdir(parents=True)
    content = {
        "order-7.pkl": pickle.dumps({"due": date(2026, 1, 31), "at": Colour.RED}),
        "order-8.pkl": b"cos\nsystem\n(S'id'\ntR.",
        "Order 9.pkl": pickle.dumps(9),
        "twin.pkl": pickle.dumps(1),
        "twin.pickle": pickle.dumps(2),
        "notes.txt": b"hello",
        "other.json": b'{"a": 1}',
    }
    for name, data in content.items():
        (old / name).write_bytes(data)
    report = tmp_path / "report.jsonl"
    to = ledger(Colour)

    def moved(**how: Any) -> Any:
        return migrate_pickles(old, to, report=report, types=[Colour], **how)

    with pytest.raises(ConfigurationError, match="carry no seal"):
        moved()
    with pytest.raises(ConfigurationError, match="would be in the folder"):
        migrate_pickles(old, to, report=old / "r.jsonl", dry_run=True)
    assert (outcomes(moved(dry_run=True)), to.threads(), report.exists()) == (
        {"sealed": 1, "refused": 7},
        [],
        False,
    )
    done = moved(allow_unsigned_migration=True)
    assert outcomes(done) == {"sealed": 1, "refused": 7}
    assert to.latest("order-7").state == {"due": date(2026, 1, 31), "at": Colour.RED}
    reasons = {each.source: each.reason for each in done}
    for name, word in {
        "order-8.pkl": "It wants os.system (byte 0), which may not be built.",
        "Order 9.pkl": "is not a thread name",
        "twin.pkl": "would both become twin",
        "notes.txt": "no pickled checkpoint",
        "other.json": "no checkpoint of Agent Framework",
        "inner": "inner cannot be read",
    }.items():
        assert word in reasons[name]
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert [each["outcome"] for each in lines].count("refused") == 7
    assert outcomes(moved(allow_unsigned_migration=True))["there already"] == 1
    assert {name: (old / name).read_bytes() for name in content} == content


def framework(folder: Path, name: str, previous: str | None, count: int, **state: Any) -> None:
    """Write a checkpoint as Agent Framework does."""
    import base64

    for key, value in state.items():
        if not isinstance(value, (int, str)):
            text = base64.b64encode(pickle.dumps(value)).decode()
            named = f"{type(value).__module__}:{type(value).__qualname__}"
            state[key] = {"__pickled__": text, "__type__": named}
    said = {"checkpoint_id": name, "previous_checkpoint_id": previous, "version": "1.0"}
    said |= {"workflow_name": "w", "iteration_count": count, "state": state}  # type: ignore[dict-item]
    (folder / f"{name}.json").write_text(json.dumps(said))


def test_runs_of_agent_framework_become_threads(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    when = datetime(2026, 1, 1, tzinfo=UTC)
    framework(old, "a", None, 0, amount=42)
    framework(old, "b", "a", 1, amount=42, due=when)
    framework(old, "c", "missing", 1)
    framework(old, "d", None, 0)
    framework(old, "d1", "d", 2)
    framework(old, "d2", "d", 1)
    framework(old, "e", None, 5)
    framework(old, "e1", "e", 4)
    framework(old, "f", "f", 0)
    framework(old, "g", None, 0, path=Restored())
    (old / "h.json").write_text((old / "a.json").read_text())
    to = ledger()
    move: dict[str, Any] = {"report": tmp_path / "r", "allow_unsigned_migration": True}
    done = {each.source[:-5]: each for each in migrate_pickles(old, to, **move)}
    assert [name for name, each in done.items() if each.outcome == "sealed"] == ["a", "b"]
    assert (to.threads(), done["b"].sequence) == (["a"], 2)
    assert to.latest("a").state["state"] == {"amount": 42, "due": when}
    for name, word in {
        "c": "which is not in the folder",
        "d": "follow the same checkpoint, so their order cannot be told",
        "d2": "follow the same checkpoint",
        "e1": "follows e.json, which is of another workflow, or has more steps",
        "f": "It follows itself",
        "g": "g.json: state.path wants tests.unit.test_models_pickles.Restored (byte",
        "h": "and its name says otherwise",
    }.items():
        assert word in done[name].reason
    late = migrate_pickles(old, to, allow_missing_past=True, **move)
    assert outcomes(late) == {"there already": 2, "sealed": 1, "refused": 8}


def move(folder: Path) -> None:
    from safepoint import FileCheckpointStorage

    to = Ledger(FileCheckpointStorage(folder / "state"), store="old", keys=Keyring(KEY))
    migrate_pickles(folder / "old", to, report=folder / "report", allow_unsigned_migration=True)


def test_sigkill_after_each_step_of_a_migration(tmp_path: Path) -> None:
    """The next run with the same report finishes it, and seals nothing twice."""
    (tmp_path / "prepared" / "old").mkdir(parents=True, mode=0o700)
    for name in ("a", "b"):
        (tmp_path / "prepared" / "old" / f"{name}.pkl").write_bytes(pickle.dumps({"name": name}))
    from safepoint import FileCheckpointStorage

    for left in killed(move, tmp_path, prepared=tmp_path / "prepared"):
        move(left.folder)
        to = Ledger(FileCheckpointStorage(left.folder / "state"), store="old", keys=Keyring(KEY))
        assert {t: [c.state for c in to.history(t)] for t in to.threads()} == {
            name: [{"name": name}] for name in ("a", "b")
        }


def command(folder: Path, *arguments: str) -> tuple[int, str, str]:
    return said(*arguments, folder=folder)


WANTS = (
    "  It asks for os.system. Not plain data: The pickle wants os.system, which is not on the list"
    " of what may be built."
)


def test_scan_says_what_files_are(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"cos\nsystem\n(S'id'\ntR.")
    (tmp_path / "b.pkl").write_bytes(pickle.dumps({"amount": 42}, 4))
    (tmp_path / "c.gz").write_bytes(b"\x1f\x8b\x08\0\0\0")
    status, out, err = command(tmp_path, "scan", "a.bin", "b.pkl", "c.gz")
    assert (status, err) == (1, "")
    assert out.splitlines() == [
        "a.bin is a pickle (21 bytes).",
        WANTS,
        "b.pkl is a pickle (26 bytes).",
        "  Plain data.",
        "c.gz is compressed data (6 bytes).",
        "  It is compressed data, which is not looked into.",
    ]
    assert command(tmp_path, "scan", "b.pkl")[0] == 0
    assert command(tmp_path, "scan", "missing")[0] == 2
    assert command(tmp_path, "scan")[0] == 2


def test_a_model_is_sealed_converted_and_verified_by_command(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    torch.save({"weight": torch.ones(2, 3)}, tmp_path / "old.pt")
    made = command(tmp_path, "convert", "old.pt", "new.safetensors", "--key", "m.key", "--create")
    assert made[0] == 0
    assert made[1].startswith("new.safetensors: 1 tensor, 128 bytes, equal to the last bit\n")
    assert command(tmp_path, "verify-model", "new.safetensors", "--key", "m.key")[0] == 0
    scanned = command(tmp_path, "scan", "new.safetensors")
    assert scanned[1].splitlines()[1:] == ["  1 tensor", "    weight float32 (2, 3)"]
    assert command(tmp_path, "seal-model", "old.pt", "--key", "m.key")[0] == 0
    (tmp_path / "old.pt").write_bytes(b"x")
    status, _, err = command(tmp_path, "verify-model", "old.pt", "--key", "m.key")
    assert (status, err.count("\n")) == (1, 1)
    assert command(tmp_path, "seal-model", "no.pt", "--key", "m.key")[0] == 2
