"""Pickles read as data: what comes back, what is refused, and why."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from safepoint import LimitExceeded, SigningKey
from safepoint.core import errors
from safepoint.core.errors import ConfigurationError, DecodeError
from safepoint.models import PickleLimits, machine, read_pickle
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
    shared = pickle.dumps(["text" * 5] * 3)
    for data, limit, most in (
        *((pickle.dumps({"a": ["text" * 5, (1, 2)]}), each, 1) for each in PickleLimits.__slots__),
        (shared, "data_bytes", len(shared)),
        (pickle.dumps([0] * 900), "nodes", 2),
        (pickle.dumps(["a", "b", "c", "d", "e"], 1), "nodes", 2),
    ):
        with pytest.raises(LimitExceeded, match=rf"raise PickleLimits\.{limit}"):
            read_pickle(data, limits=PickleLimits(**{limit: most}))


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
    with pytest.raises(LimitExceeded, match="more than 1000 values"):
        read_pickle(proto(b"](" + empty * 500 + b"e"), limits=most)
    assert len(drawn) == 1


EVIL = b"cos\nsystem\n(S'id'\ntR."


def test_the_commands_on_models_end_as_they_must(tmp_path: Path) -> None:
    """What they say otherwise, the pages show."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    torch.save({"weight": torch.ones(2, 3)}, tmp_path / "old.pt")
    (tmp_path / "evil.pkl").write_bytes(EVIL)
    (tmp_path / "b.pkl").write_bytes(pickle.dumps({"amount": 42}, 4))
    (tmp_path / "page.gguf").write_text("<html>404</html>")
    (tmp_path / "pointer.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "empty").mkdir()
    for status, line in (
        *((2, f"scan {each}") for each in ("page.gguf", "pointer.gguf", "empty", "missing", "")),
        (1, "scan evil.pkl b.pkl"),
        (0, "scan b.pkl"),
        (0, "convert old.pt new.safetensors --key m.key --create"),
        (0, "verify-model new.safetensors --key m.key.pub"),
        (0, "convert old.pt b.safetensors --key m.key --name B.ckpt"),
        (0, "verify-model b.safetensors --key m.key --name B.ckpt"),
        (0, "seal-model old.pt --key m.key"),
        (2, "seal-model no.pt --key m.key"),
        (0, "verify-model old.pt --key m.key"),
        (1, "verify-model old.pt --key m.key --name new"),
    ):
        assert said(*line.split(), folder=tmp_path)[0] == status, line
    (tmp_path / "old.pt").write_bytes(b"GGUF\3\0\0\0")
    changed = said("verify-model", "old.pt", "--key", "m.key", folder=tmp_path)
    assert "is not the file that was sealed" in changed[2]
    says = "A seal does not make a file safe. It is a pickle, and asks for os.system.\n"
    assert said("seal-model", "evil.pkl", "--key", "m.key", folder=tmp_path)[2] == says
    for command in ("seal-model evil.pkl", "convert old.pt c.safetensors"):
        assert "add --create" in said(*command.split(), "--key", "no.key", folder=tmp_path)[2]
    (tmp_path / "code.py").write_text("import torch\n")
    assert said("scan", "code.py", folder=tmp_path)[1] == "code.py is Python code (13 bytes).\n"
    (tmp_path / "empty/aa").write_bytes(EVIL)  # as in a hub's cache
    (tmp_path / "empty/b.pkl").symlink_to("aa")
    assert said("scan", "empty", folder=tmp_path)[1].startswith("empty/b.pkl is a pickle")
