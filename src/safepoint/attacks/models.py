"""The adversary of those who load models: somebody who can hand them a file, or a change.

`safepoint attack models` runs each attack in a process and a temporary folder of its
own. Aim them at a loader of yours by writing a `ModelTarget`. Each payload does one harmless
thing: it leaves a marker.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import struct
import subprocess
import sys
import zipfile
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

from safepoint.attacks import naive
from safepoint.attacks.kit import Attack, Look, attacks, unnoticed
from safepoint.attacks.outcome import MARKER, Miss
from safepoint.attacks.payload import marker_pickle
from safepoint.attacks.target import Victim
from safepoint.audit import audit
from safepoint.core.errors import CheckpointError
from safepoint.core.keys import Keyring, SigningKey
from safepoint.models import load_checkpoint, save_checkpoint, seal_model
from safepoint.models.lint import check_source

WEIGHTS: Final = (1.0, 2.0, 3.0)
"""What the victim's model is made of."""
_EDITED: Final = (1.0, 2.0, 4.0)


class ModelTarget(Victim):
    """Somebody who saves and loads models.

    Two methods aim the attacks on files at a loader of your own. The others stand for what you do
    around it; an attack that needs one that you leave out is "not applicable", which proves
    nothing.

    Attributes:
        name: what the target is called in tables.
        refusals: the errors by which it refuses. Anything else counts as a crash.
        folder: a temporary folder.
        refused: what it said each time that it refused.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self.path.mkdir(mode=0o700, exist_ok=True)

    @property
    def path(self) -> Path:
        """The folder of the models, which the adversary can write."""
        return self.folder / "models"

    @abstractmethod
    def save(self, name: str, state: dict[str, Any]) -> Path:
        """The victim saves tensors."""

    @abstractmethod
    def load(self, file: Path) -> Any:
        """The victim loads what should be tensors, from a file that may be anybody's."""

    def keep(self, name: str, trusted: Any) -> Path:
        """The victim saves something of its own that only an unrestricted load brings back.

        Raises:
            Miss: it never does.
        """
        raise Miss

    def bring_back(self, file: Path) -> Any:
        """The victim loads it without restriction.

        Raises:
            Miss: it never does.
        """
        raise Miss

    def admit(self, folder: Path) -> None:
        """The victim looks at files before it takes them in, and raises if one could run code.

        Raises:
            Miss: nobody looks.
        """
        raise Miss

    def review(self, source: str) -> None:
        """The victim looks at a change of its code, and raises if it is not to be merged.

        Raises:
            Miss: nobody looks.
        """
        raise Miss

    def test(self, file: Path) -> None:
        """The victim runs a test file, and raises if a test in it fails.

        Raises:
            Miss: there are no tests.
        """
        raise Miss


def state() -> dict[str, Any]:
    """Return the victim's model."""
    import torch

    return {"weight": torch.tensor(WEIGHTS)}


def same(loaded: Any, weights: tuple[float, ...]) -> bool:
    """Tell whether what was loaded is a model of these weights."""
    return list(loaded) == ["weight"] and tuple(loaded["weight"].tolist()) == weights


def _works(target: ModelTarget) -> bool:
    """Let the victim save and load, with nobody attacking."""
    return same(target.load(target.save("control", state())), WEIGHTS)


MODEL_ATTACKS: Final[dict[str, Attack]] = {}
"""Every attack on models by its id, in the order of the rules."""

_attack = attacks("Attacks by a file, or by a change of the code.", MODEL_ATTACKS, control=_works)


@_attack("model-payload", "SP23")
def model_payload(target: ModelTarget) -> Iterator[Look]:
    """A model file runs code while it is loaded: a restricted load fails and is retried."""
    return _downloaded(target, "download.pt", marker_pickle(target.folder / MARKER))


@_attack("model-allow-list", "SP23")
def model_allow_list(target: ModelTarget) -> Iterator[Look]:
    """A library allowed one function for its own files, and now every file may call it."""
    import torch

    path = str(target.folder / MARKER).encode()
    calls = b"\x80\x02cposix\nmkdir\nX%b%b\x85R." % (len(path).to_bytes(4, "little"), path)
    # safepoint: allow SL05 what the attack is about
    with torch.serialization.safe_globals([(os.mkdir, "posix.mkdir")]):
        yield from _downloaded(target, "download.pt", calls)


def _brings_back(target: ModelTarget) -> bool:
    """Let the victim bring something back that only an unrestricted load can."""
    file = target.keep("control", Path("vocabulary.txt"))
    return bool(target.bring_back(file) == Path("vocabulary.txt"))


@_attack("model-swapped", "SP24", control=_brings_back)
def model_swapped(target: ModelTarget) -> Iterator[Look]:
    """An artefact is trusted for its path, so anyone who can write the path is trusted."""
    file = target.keep("own", Path("vocabulary.txt"))
    file.write_bytes(archive_of(marker_pickle(target.folder / MARKER)))
    yield unnoticed(lambda: target.bring_back(file))


@_attack("model-edited", "SP25")
def model_edited(target: ModelTarget) -> Iterator[Look]:
    """A weight is changed in the file. It is as valid a model as before, and another one."""
    file = target.save("own", state())
    file.write_bytes(_edited(file.read_bytes()))
    yield lambda: same(target.load(file), _EDITED)


@_attack("model-disguised", "SP25")
def model_disguised(target: ModelTarget) -> Iterator[Look]:
    """A pickle is called model.safetensors, and who trusts the name loads it as something."""
    return _downloaded(target, "download.safetensors", marker_pickle(target.folder / MARKER))


def _admits(target: ModelTarget) -> bool:
    """Have an honest model taken in."""
    target.save("control", state())
    target.admit(target.path)
    return True


@_attack("model-unnamed", "SP25", control=_admits)
def model_unnamed(target: ModelTarget) -> Iterator[Look]:
    """A pickle has another ending than models have, so the gate never looks at it."""
    offered = target.folder / "offered"
    offered.mkdir()
    for name in ("model", "weights.dat", "model.joblib"):
        (offered / name).write_bytes(marker_pickle(target.folder / MARKER))
    yield unnoticed(lambda: target.admit(offered))


@_attack("model-nested", "SP25", control=_admits)
def model_nested(target: ModelTarget) -> Iterator[Look]:
    """A pickle lies compressed in an archive, and what was not looked into is called clean."""
    with zipfile.ZipFile(target.path / "download.pt", "w") as archive:
        archive.writestr("weights.gz", gzip.compress(marker_pickle(target.folder / MARKER)))
    yield unnoticed(lambda: target.admit(target.path))


def _merges(target: ModelTarget) -> bool:
    """Have an honest change merged."""
    target.review("import torch\n\nstate = torch.load(path, weights_only=True)\n")
    return True


@_attack("hidden-load", "SP26", control=_merges)
def hidden_load(target: ModelTarget) -> Iterator[Look]:
    """A change loads models without the flag, under another name, and passes review."""
    yield unnoticed(lambda: target.review("from torch import load\n\nstate = load(path)\n"))


def _tests(target: ModelTarget) -> bool:
    """Run a test that passes."""
    file = target.folder / "control" / "test_gate.py"
    file.parent.mkdir()
    file.write_text("def test_gate():\n    assert True\n")
    target.test(file)
    return True


@_attack("stray-plugin", "SP27", control=_tests)
def stray_plugin(target: ModelTarget) -> Iterator[Look]:
    """A plugin that came along with some package turns the failing safety test green."""
    file = target.folder / "project" / "test_gate.py"
    metadata = file.parent / "stray-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stray\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\nstray = stray\n")
    (file.parent / "stray.py").write_text(
        "def pytest_collection_modifyitems(items):\n    items.clear()\n\n\n"
        "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n"
    )
    file.write_text("def test_gate():\n    assert False\n")
    yield unnoticed(lambda: target.test(file))


def archive_of(pickle: bytes) -> bytes:
    """Return a file as `torch.save` lays it out, with this pickle in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def _downloaded(target: ModelTarget, name: str, pickle: bytes) -> Iterator[Look]:
    """Offer a pickle as a model, and let the victim load it."""
    file = target.path / name
    file.write_bytes(archive_of(pickle))
    yield unnoticed(lambda: target.load(file))


def _edited(file: bytes) -> bytes:
    """Return a file of the victim's model with its last weight changed, and its checksums mended.

    Raises:
        Miss: the weights are not in it.
    """
    old, new = (struct.pack("<3f", *each) for each in (WEIGHTS, _EDITED))
    if old not in file:
        raise Miss
    if not file.startswith(b"PK"):
        return file.replace(old, new)
    buffer, members = io.BytesIO(), zipfile.ZipFile(io.BytesIO(file))
    with zipfile.ZipFile(buffer, "w") as archive:
        for member in members.namelist():
            archive.writestr(member, members.read(member).replace(old, new))
    return buffer.getvalue()


def _torch_saved(file: Path, what: Any) -> Path:
    import torch

    torch.save(what, file)
    return file


class Rejected(Exception):
    """A file is not taken in, a change is not merged, or a test failed."""


class NaiveModels(ModelTarget):
    """UNSAFE: loads whatever comes, and looks at little."""

    name = "naive"
    refusals = (Rejected,)

    def save(self, name: str, state: dict[str, Any]) -> Path:
        """Save with `torch.save`."""
        return self.keep(name, state)

    def load(self, file: Path) -> Any:
        """UNSAFE: fall back to the unrestricted way."""
        return naive.load_model(file)

    def keep(self, name: str, trusted: Any) -> Path:
        """Save with `torch.save`."""
        return _torch_saved(self.path / f"{name}.pt", trusted)

    def bring_back(self, file: Path) -> Any:
        """UNSAFE: load without restriction, because the file has the right name."""
        return naive.load_model(file)

    def admit(self, folder: Path) -> None:
        """Look for what runs in whatever is called a model."""
        for file in folder.glob("*.pt"):
            if b"os\nmkdir" in file.read_bytes():
                raise Rejected(file.name)

    def review(self, source: str) -> None:
        """Look for the one spelling that everybody knows."""
        if re.search(r"torch\.load\((?!.*weights_only=True)", source):
            raise Rejected

    def test(self, file: Path) -> None:
        """Run pytest, with whatever plugins are around."""
        _test(file, {})


class CarefulModels(ModelTarget):
    """Does what the pages say."""

    name = "careful"
    refusals: ClassVar[tuple[type[Exception], ...]] = (CheckpointError, Rejected)

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self._key = SigningKey.generate()

    def save(self, name: str, state: dict[str, Any]) -> Path:
        """Save sealed safetensors."""
        file = self.path / f"{name}.safetensors"
        save_checkpoint(file, state, key=self._key)
        return file

    def load(self, file: Path) -> Any:
        """Verify what is its own; load what is not without code, or not at all."""
        keys = Keyring(self._key) if Path(f"{file}.seal").exists() else None
        return load_checkpoint(file, keys=keys)

    def keep(self, name: str, trusted: Any) -> Path:
        """Save with `torch.save`, and seal."""
        file = _torch_saved(self.path / f"{name}.pt", trusted)
        seal_model(file, key=self._key)
        return file

    def bring_back(self, file: Path) -> Any:
        """Load without restriction what its own seal vouches for."""
        return load_checkpoint(file, safe=False, keys=Keyring(self._key))

    def admit(self, folder: Path) -> None:
        """Ask safepoint's own audit and take in nothing that it could not look at."""
        for finding in audit(folder):
            if finding.severity != "note":
                raise Rejected(finding.what)

    def review(self, source: str) -> None:
        """Ask safepoint's own lint."""
        if check_source(source, "change.py"):
            raise Rejected

    def test(self, file: Path) -> None:
        """Run pytest without stray plugins."""
        _test(file, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


def _test(file: Path, settings: dict[str, str]) -> None:
    """Run a test file in a process of its own, with the folder of the file on the path."""
    done = subprocess.run(  # noqa: S603 -- pytest, on a file of ours
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", file.name],
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": str(file.parent), "PYTEST_ADDOPTS": "", **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if b"No module named pytest" in done.stderr:
        raise Miss
    if done.returncode == 1:
        raise Rejected
    if done.returncode:
        raise RuntimeError(done.stdout)


MODEL_TARGETS: Final[dict[str, type[ModelTarget]]] = {
    each.name: each for each in (NaiveModels, CarefulModels)
}
"""The built-in victims by name."""
