"""Pickles read as data: what comes back, what is refused, and why."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from safepoint import LimitExceeded, SigningKey
from safepoint.core import errors
from safepoint.core.errors import ConfigurationError, DecodeError
from safepoint.models import PickleLimits, inspect, machine, read_pickle
from tests.unit.archive_helpers import cases, made, proto
from tests.unit.codec_types import VALUES, Colour, Invoice, Note, Point, Rights, same
from tests.unit.commands import said

TYPES = [Colour, Invoice, Note, Point, Rights]
KEY = SigningKey(bytes(range(32)))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_a_codec_can_hold_comes_back(protocol: int) -> None:
    read = 0
    frames = [*range(50_000)]  # more than one, each of 64 KiB
    values = [each for each in (*VALUES, frames) if "OrderedDict" not in repr(each)]  # now a dict
    for value in values:
        try:
            found = read_pickle(pickle.dumps(value, protocol), types=TYPES)
        except DecodeError:
            continue
        read += 1
        assert same(found, value)
    assert len(values) - read <= 7  # of types that a pickle builds by a call


def test_a_type_that_was_renamed_is_read_under_its_old_name() -> None:
    data = pickle.dumps(Colour.RED).replace(b"tests.unit.codec_types", b"older.unit.codec_types")
    assert read_pickle(data, types={"older.unit.codec_types.Colour": Colour}) == Colour.RED
    with pytest.raises(DecodeError, match=r"wants older\.unit\.codec_types\.Colour"):
        read_pickle(data, types=[Colour])
    with pytest.raises(ConfigurationError, match="is not the name of a type"):
        read_pickle(data, types={"Colour": Colour})


@pytest.mark.parametrize(("what", "error", "word"), cases("pickles"))
def test_a_pickle_that_is_more_than_data_is_refused(what: str, error: str, word: str) -> None:
    with pytest.raises(getattr(errors, error), match=word):
        read_pickle(made(what))


def test_each_limit_holds() -> None:
    data = pickle.dumps({"a": ["text" * 5, (1, 2)]})
    for limit in ("data_bytes", "opcodes", "memo", "nodes", "text_bytes", "depth"):
        with pytest.raises(LimitExceeded):
            read_pickle(data, limits=PickleLimits(**{limit: 1}))


@pytest.mark.parametrize("empty", [b"}", b"]", b"\x8f", b"N\x85"])
def test_empty_values_are_refused_before_one_is_built(
    empty: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two million dicts in as many bytes took 18 seconds and 757 MB."""
    drawn = []
    monkeypatch.setattr(machine, "unpickled", lambda code, *_: drawn.append(len(code)))
    most = PickleLimits(nodes=1000)
    read_pickle(proto(b"](" + empty * 499 + b"e"), limits=most)
    assert len(drawn) == 1
    with pytest.raises(LimitExceeded, match="more than 500 values"):
        read_pickle(proto(b"](" + empty * 500 + b"e"), limits=most)
    assert len(drawn) == 1


def command(folder: Path, *arguments: str) -> tuple[int, str, str]:
    return said(*arguments, folder=folder)


WANTS = (
    "  It asks for os.system. Runs code: The pickle wants os.system, which is not on the list"
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
        f"  {inspect(tmp_path / 'a.bin').do}",
        "b.pkl is a pickle (26 bytes).",
        "  Plain data.",
        "  Read it as data, with safepoint.models.read_pickle, and save it as JSON.",
        "c.gz is compressed data (6 bytes).",
        "  It is compressed data, which is not looked into.",
        "  Unpack it, and scan that. If joblib wrote it, ask for skops or safetensors.",
    ]
    assert command(tmp_path, "scan", "b.pkl")[0] == 0
    assert command(tmp_path, "scan", "missing")[0] == 2
    assert command(tmp_path, "scan")[0] == 2


def test_a_model_is_sealed_and_converted_by_command(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    torch.save({"weight": torch.ones(2, 3)}, tmp_path / "old.pt")
    made = command(tmp_path, "convert", "old.pt", "new.safetensors", "--key", "m.key", "--create")
    assert made[0] == 0
    assert made[1].startswith("new.safetensors: 1 tensor, 128 bytes, equal to the last bit\n")
    scanned = command(tmp_path, "scan", "new.safetensors")
    assert scanned[1].splitlines()[1:3] == ["  1 tensor", "    weight float32 (2, 3)"]
    assert command(tmp_path, "seal-model", "old.pt", "--key", "m.key")[0::2] == (0, "")
    verify = "verify-model", "old.pt", "--key", "m.key"
    assert command(tmp_path, *verify)[:2] == (0, "old.pt is the file that was sealed.\n")
    assert command(tmp_path, *verify, "--name", "new")[0] == 1
    (tmp_path / "old.pt").write_bytes(b"GGUF\3\0\0\0")
    assert "is not the file that was sealed" in command(tmp_path, *verify)[2]
    (tmp_path / "evil.pkl").write_bytes(b"cos\nsystem\n(S'id'\ntR.")
    sealed = command(tmp_path, "seal-model", "evil.pkl", "--key", "m.key")
    assert (
        sealed[2] == "A seal does not make a file safe. It is a pickle, and asks for os.system.\n"
    )
    assert command(tmp_path, "seal-model", "no.pt", "--key", "m.key")[0] == 2
