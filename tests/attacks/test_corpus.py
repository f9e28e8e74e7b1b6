"""SP03, SP23: no gadget executes in any path of ours, and honest files are kept or refused."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.corpus import acts, sources
from tests.corpus.benign import BENIGN, Benign
from tests.corpus.benign_types import REGISTERED
from tests.corpus.dos import EXHAUSTING, GIB, Exhausting
from tests.corpus.embed import as_archive, as_legacy
from tests.corpus.forked import Limits, Tried, attempt
from tests.corpus.gadgets import GADGETS, Gadget
from tests.harness.optional import need

need("torch", "needs safepoint[torch]")
need("fickling", "needs safepoint[pickle]")

READY = (
    *("torch", "numpy.f2py", "numpy.testing", "torch.fx.experimental.symbolic_shapes"),
    "safepoint.models",
)
"""What takes seconds to import: one process does it, for all tests of this module."""
ADVISORY = re.compile(r"https://github\.com/advisories/GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}")


def title(item: Gadget | Benign) -> str:
    return f"{item.family}: {item.name}"


def write_gadget(folder: Path, gadget: Gadget) -> Path:
    """Write a gadget in each form, and return the plain one."""
    (folder / "left").mkdir(parents=True)
    data = gadget.pickle(folder / "left" / "marker")
    forms = {acts.ARCHIVE: as_archive(data), acts.LEGACY: as_legacy(data), acts.BARE: data}
    for name, content in forms.items():
        (folder / name).write_bytes(content)
    path = folder / (acts.SEVERAL if gadget.several else acts.PICKLE)
    path.write_bytes(data)
    return path


def write_all(folder: Path, items: Iterable[Benign | Exhausting]) -> dict[str, Path]:
    paths = {}
    for number, item in enumerate(items):
        inside = folder / str(number)
        (inside / "left").mkdir(parents=True)
        paths[item.name if isinstance(item, Exhausting) else title(item)] = inside / (
            "x" + item.suffix
        )
        (inside / f"x{item.suffix}").write_bytes(item.make())
    return paths


@pytest.fixture(scope="module")
def gadgets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every gadget, for those who must not run it."""
    folder = tmp_path_factory.mktemp("gadgets")
    return {title(g): write_gadget(folder / str(n), g) for n, g in enumerate(GADGETS)}


def nothing_ran(tried: dict[str, Tried]) -> None:
    assert [name for name, one in tried.items() if one.ran] == []


def test_the_corpus_has_each_kind_and_nothing_twice() -> None:
    assert len({title(g) for g in GADGETS}) == len(GADGETS)
    assert len({title(b) for b in BENIGN}) == len(BENIGN)


@pytest.mark.parametrize("share", [12, pytest.param(1, marks=pytest.mark.deep)])
def test_every_gadget_executes_in_a_careless_reader(share: int, tmp_path: Path) -> None:
    """Plain pickle runs each; so does PyTorch without restriction, its two formats in turn.

    PyTorch reads a share of them: it decodes with the same pickle.
    """
    plain, loaded = dict[str, Path](), dict[str, Path]()
    heavy = {title(gadget) for gadget in GADGETS if gadget.family in ("numpy", "torch")}
    for number, gadget in enumerate(GADGETS):
        plain[title(gadget)] = write_gadget(tmp_path / str(number), gadget)
        if number % share == 0 and not gadget.several:  # it reads one pickle, and what else it has
            form = (acts.ARCHIVE, acts.LEGACY)[number // share % 2]
            write_gadget(tmp_path / f"{number}-{form}", gadget)
            loaded[f"{title(gadget)}, {form}"] = tmp_path / f"{number}-{form}" / form
    light = {name: path for name, path in plain.items() if name not in heavy}
    rest = {name: path for name, path in plain.items() if name in heavy} | loaded
    assert len(loaded) >= len(GADGETS) // share - 5
    tried = attempt("tests.corpus.acts:careless", light, runs=True)
    tried |= attempt("tests.corpus.acts:careless", rest, imports=READY, runs=True)
    assert [(name, one) for name, one in tried.items() if not one.ran] == []


def test_every_gadget_was_public_before() -> None:
    """It names an advisory, a text, or a list of names that a scanner publishes."""
    known = {value for name, value in vars(sources).items() if name.isupper()}
    for gadget in GADGETS:
        assert gadget.source in known or ADVISORY.fullmatch(gadget.source), gadget.name


def test_nothing_of_ours_executes_a_gadget(gadgets: dict[str, Path]) -> None:
    """Neither as a pickle nor in a model file; and none is taken for data."""
    tried = attempt("tests.corpus.acts:every_guard", gadgets, imports=READY)
    nothing_ran(tried)
    assert [(name, one) for name, one in tried.items() if one.error or one.ended] == []
    for name, one in tried.items():
        told = json.loads(one.said)
        assert len(told) == 9
        passed = {guard: said for guard, said in told.items() if not refuses(said)}
        assert passed == {}, name
    assert not [*Path(min(gadgets.values())).parents[1].rglob("*.safetensors")]


def refuses(said: str) -> bool:
    return said == "False" or said.startswith("CheckpointError: ")


def test_a_move_executes_none_and_keeps_none(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    (tmp_path / "old").mkdir()
    for number, gadget in enumerate(GADGETS):
        data = gadget.pickle(tmp_path / "left" / f"marker-{number}")
        (tmp_path / "old" / f"{number}.pkl").write_bytes(data)
    tried = attempt("tests.corpus.acts:folder", {"all": tmp_path / "x"})
    nothing_ran(tried)
    assert tried["all"].said == str((0, len(GADGETS), 0)), tried


def test_honest_files_are_kept_or_refused_with_a_reason(tmp_path: Path) -> None:
    files = write_all(tmp_path, BENIGN)
    tried = attempt("tests.corpus.acts:moved", files, imports=READY)
    kept = [name for name, one in tried.items() if one.said]
    refused = [one for one in tried.values() if "CheckpointError" in one.error]
    assert kept == [title(b) for b in BENIGN if b.moves]
    assert len(kept) + len(refused) == len(BENIGN)
    for one in refused:
        what, do = one.message.split(". ", 1)
        assert what
        assert do


def test_what_is_kept_is_what_was_stored() -> None:
    from safepoint.models import read_pickle

    for benign in BENIGN:
        if benign.moves and benign.suffix == ".pkl":
            data = benign.make()
            assert read_pickle(data, types=REGISTERED) == pickle.loads(data), title(benign)


TIGHT = Limits(memory=GIB, cpu=20)


def test_files_that_exhaust_end_as_our_error(tmp_path: Path) -> None:
    """Read, loaded or looked at: no crash, no raw exception, and none is taken for data."""
    files = write_all(tmp_path, EXHAUSTING)
    tried = attempt("tests.corpus.acts:every_look", files, imports=READY, limits=TIGHT)
    assert [(name, one) for name, one in tried.items() if one.error or one.ended] == []
    for name, one in tried.items():
        told = json.loads(one.said)
        assert len(told) == 3
        assert {look: said for look, said in told.items() if not refuses(said)} == {}, name
