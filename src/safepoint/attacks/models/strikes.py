"""The attacks on models. Each payload does one harmless thing: it leaves a marker."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from pathlib import Path

from safepoint.attacks.kit import got, unnoticed
from safepoint.attacks.models.kit import WEIGHTS, ModelAttack, same, state
from safepoint.attacks.models.target import ModelTarget
from safepoint.attacks.outcome import MARKER, Miss, Outcome
from safepoint.attacks.payload import marker_pickle

_EDITED = (1.0, 2.0, 4.0)


class ModelPayload(ModelAttack):
    """Hand somebody a model that is a program."""

    id = "model-payload"
    rule = "SP23"
    story = "A model file runs code while it is loaded: a restricted load fails, and is retried."

    def strike(self, target: ModelTarget) -> Outcome:
        """Offer it for download."""
        file = target.path / "download.pt"
        file.write_bytes(archive_of(marker_pickle(target.folder / MARKER)))
        return unnoticed(target.load(file))


class ModelAllowList(ModelAttack):
    """Use what somebody in the process has allowed for all files."""

    id = "model-allow-list"
    rule = "SP23"
    story = "A library allowed one function for its own files, and now every file may call it."

    def strike(self, target: ModelTarget) -> Outcome:
        """Allow it, as the library does, then offer a file that calls it."""
        import torch

        file = target.path / "download.pt"
        file.write_bytes(archive_of(_calls_mkdir(target.folder / MARKER)))
        # safepoint: allow SL05 what the attack is about
        with torch.serialization.safe_globals([(os.mkdir, "posix.mkdir")]):
            return unnoticed(target.load(file))


class ModelSwapped(ModelAttack):
    """Swap a file that is loaded without restriction because it is the victim's own."""

    id = "model-swapped"
    rule = "SP24"
    story = "An artefact is trusted for its path, and whoever can write the path is trusted too."

    def control(self, target: ModelTarget) -> bool:
        """Bring something back that only an unrestricted load can."""
        file = target.keep("control", Path("vocabulary.txt"))
        return bool(target.bring_back(file) == Path("vocabulary.txt"))

    def strike(self, target: ModelTarget) -> Outcome:
        """Write the file anew."""
        file = target.keep("own", Path("vocabulary.txt"))
        file.write_bytes(archive_of(marker_pickle(target.folder / MARKER)))
        return unnoticed(target.bring_back(file))


class ModelEdited(ModelAttack):
    """Change a weight."""

    id = "model-edited"
    rule = "SP25"
    story = "A weight is changed in the file. It is as valid a model as before, and another one."

    def strike(self, target: ModelTarget) -> Outcome:
        """Edit the bytes of one number."""
        file = target.save("own", state())
        file.write_bytes(_edited(file.read_bytes()))
        return got(same(target.load(file), _EDITED))


class ModelDisguised(ModelAttack):
    """Name a pickle like a file that cannot execute."""

    id = "model-disguised"
    rule = "SP25"
    story = "A pickle is called model.safetensors, and who trusts the name loads it as something."

    def strike(self, target: ModelTarget) -> Outcome:
        """Offer it for download."""
        file = target.path / "download.safetensors"
        file.write_bytes(archive_of(marker_pickle(target.folder / MARKER)))
        return unnoticed(target.load(file))


class HiddenLoad(ModelAttack):
    """Write an unsafe load in a way that the reviewer does not look for."""

    id = "hidden-load"
    rule = "SP26"
    story = "A change loads models without the flag, under another name, and passes review."

    def control(self, target: ModelTarget) -> bool:
        """Have an honest change merged."""
        target.review("import torch\n\nstate = torch.load(path, weights_only=True)\n")
        return True

    def strike(self, target: ModelTarget) -> Outcome:
        """Ask for a review."""
        target.review("from torch import load\n\nstate = load(path)\n")
        return Outcome.ACCEPTED


class StrayPlugin(ModelAttack):
    """Let a plugin that nobody asked for decide what the safety test says."""

    id = "stray-plugin"
    rule = "SP27"
    story = "A plugin that came along with some package turns the failing safety test green."

    def control(self, target: ModelTarget) -> bool:
        """Run a test that passes."""
        file = target.folder / "control" / "test_gate.py"
        file.parent.mkdir()
        file.write_text("def test_gate():\n    assert True\n")
        target.test(file)
        return True

    def strike(self, target: ModelTarget) -> Outcome:
        """Break the gate, and install the plugin."""
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
        target.test(file)
        return Outcome.ACCEPTED


def archive_of(pickle: bytes) -> bytes:
    """Return a file as `torch.save` lays it out, with this pickle in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def _calls_mkdir(marker: Path) -> bytes:
    path = str(marker).encode()
    return b"\x80\x02cposix\nmkdir\nX%b%b\x85R." % (len(path).to_bytes(4, "little"), path)


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


ALL: tuple[type[ModelAttack], ...] = (
    ModelPayload,
    ModelAllowList,
    ModelSwapped,
    ModelEdited,
    ModelDisguised,
    HiddenLoad,
    StrayPlugin,
)
"""Every attack on models, in the order of the rules."""
