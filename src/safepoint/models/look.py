"""What a file is, and what the pickles in it would do: known by its content, without doing it.

This is the one path from bytes to a verdict. How much there is to look at was chosen by whoever
wrote the file, so everything is bounded; and what was not looked into is said and is never fine.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, StrEnum
from itertools import islice
from typing import IO, Any, Final, NamedTuple

from safepoint.core.errors import (
    CheckpointError,
    DecodeError,
    LimitExceeded,
    NotFound,
    Unavailable,
    quoted,
    shell,
)
from safepoint.core.files import open_regular
from safepoint.models.limits import (
    DEFAULT_MODEL_LIMITS,
    DEFAULT_PICKLE_LIMITS,
    ModelLimits,
    PickleLimits,
    over,
)
from safepoint.models.machine import Builder, run
from safepoint.models.opcodes import Scan, named, read_at, scan, scans
from safepoint.models.plain import FRAMEWORK, PLAIN, strict_json
from safepoint.models.reader import (
    advice,
    is_data,
    listed,
    named_tensors,
    needed,
    rank,
    read_model,
    wanting,
)
from safepoint.models.tensors import PREFIX, TensorSpec, read_table
from safepoint.models.zips import Member, content, ends_as_zip, read_directory, unclear

PICKLED: Final = "__pickled__"
"""The key under which Agent Framework keeps a pickle in base64."""

_HEAD: Final = 64 * 1024
_SMALL: Final = 1024 * 1024
_OLD: Final = 5  # pickles in an old PyTorch file, before the bytes of its tensors
_LISTED: Final = 1000  # of plain pickles in one file
# Instructions that the bytes of an honest file may happen to spell, such as "N." in a text.
_CHANCE: Final = 3
_EACH: Final = 50  # instructions take as long as one more pickle
_JSON: Final = re.compile(rb'[ \t\r\n]*(?:([{\[])|["\-0-9tfn]|\Z)')
_PROTO: Final = re.compile(rb"\x80[\x00-\x05]")
# Nobody escapes a letter, but to hide it.
_MAY_PICKLE: Final = re.compile(
    rb'(?is)\s*[{\[].*(?:__pickled__|"(?:auto_map|custom_pipelines)"|\\u00[4-7][0-9a-f])'
)
_STORAGE: Final = re.compile(r"[^/]+/data/\d+\Z")
_ARRAY: Final = b"\x93NUMPY"
# As NumPy writes it. It evaluates the header: '|\x4f' and 'object' are arrays of objects, too.
_NUMBERS: Final = re.compile(
    rb"\{'descr': '[<>|=]([?biufcSUVmM])([0-9]{1,9})(?:\[[^'\]]{0,20}\])?', 'fortran_order':"
    rb" (?:True|False), 'shape': \(([0-9, ]{0,600})\), \} *\n"
)
# Of files that are no text, those that nobody loads as state or as a model, by how they begin:
# pictures, fonts, sound, films, PDF, translations and the tokenizers of SentencePiece.
_HARMLESS: Final = re.compile(
    rb"(?s)\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF.{4}(?:WEBP|WAVE|AVI )|%PDF-"
    rb"|OTTO\0|\0\x01\0\0\0|ttcf\0|wOF[F2]|OggS\0|ID3[\x02-\x04]|fLaC\0|.{4}ftyp|\x1aE\xdf\xa3"
    rb"|\0\0\x01\0[^\0]\0|\xde\x12\x04\x95\0\0|\n.\n.<(?:unk|pad|s)>\x15"
)
_CONTROL: Final = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f\ufffd]")
_CONVERT: Final = (
    "Load it with load_checkpoint. To keep it as safetensors: safepoint convert FILE NEW --key KEY"
)
_PROGRAM: Final = "Ask for the weights: a state_dict, as safetensors."
_PICKLED: Final = (
    "Loading it runs what is in it. Ask for skops or safetensors. Open it only in a container"
    " without a network."
)
_PACKED: Final = "Unpack it, and scan that. If joblib wrote it, ask for skops or safetensors."
_UNKNOWN: Final = "Get it again: it may be cut short, or a web page in place of the file."
_NUMPY: Final = "Load it with numpy.load(path, allow_pickle=False), which refuses objects."
_H5PY: Final = "Load it with h5py, which runs nothing. "
_KERAS: Final = "Open it with keras >= 3.11.3 and safe_mode=True, in a container without a network."
_JOBLIB: Final = ("joblib.numpy_pickle", "NumpyArrayWrapper")
_LAMBDA: Final = re.compile(rb'"class_name":\s*"Lambda"')
_WORD: Final = re.compile(r"\w{1,40}\Z", re.ASCII)
_REMOTE: Final = ("auto_map", "custom_pipelines")  # of a config of Hugging Face
_CODE_NAME: Final = re.compile(r'"((?:[\w./-]+--)?\w+(?:\.\w+)+)"')  # repository--module.Class


class Format(Enum):
    """What a file is.

    Attributes:
        sentence: what it is, to go behind "is".
        do: what to do with it.
        seen: whether all of it is looked into.
    """

    def __init__(self, sentence: str, do: str, seen: bool = True) -> None:
        self.sentence, self.do, self.seen = sentence, do, seen

    EMPTY = "an empty file", "Copy it again: the save or the copy did not finish."
    POINTER = "a Git LFS pointer, not the file itself", "Fetch the file: git lfs pull", False
    SEALED = "a sealed record", "Name the model instead of its seal."
    SAFETENSORS = "a safetensors file", "Load it with load_checkpoint."
    TORCH_ZIP = "a PyTorch archive", _CONVERT
    TORCH_SCRIPT = "a program, saved by TorchScript", _PROGRAM, False
    TORCH_EXPORT = "a program, saved by torch.export", _PROGRAM, False
    TORCH_LEGACY = "a PyTorch file of the format before 1.6", _CONVERT
    PICKLE = "a pickle", _PICKLED
    PICKLES = "several pickles, one after another", _PICKLED
    JOBLIB = "a joblib file, a pickle with arrays between its instructions", _PICKLED
    ZIP = "a zip archive", "Unpack it, and scan what was in it."
    NPY = "a NumPy array", _NUMPY
    NPZ = "an archive of NumPy arrays", _NUMPY
    GGUF = "a GGUF model", "Load it with llama.cpp or gguf, which read no pickle.", False
    HDF5 = "an HDF5 file, such as Keras writes", _H5PY + _KERAS, False
    KERAS = "a Keras model", _KERAS, False
    ONNX = "an ONNX model", "Load it with onnxruntime, which reads no pickle.", False
    TFLITE = "a TensorFlow Lite model", "Load it with its own interpreter.", False
    SAVED_MODEL = "a program, a SavedModel of TensorFlow", _PROGRAM, False
    SKOPS = "a skops file", "Load it with skops.io.load, which asks which types you trust.", False
    PACKED = "packed data, such as tar or gzip", _PACKED, False
    JSON = "JSON", "It is text. Ask for the model itself."
    UNKNOWN = "of an unknown format", _UNKNOWN
    UNCLEAR = "of no clear format", "Find out what it is before you load it."


SEALED: Final = re.compile(rb"([0-9]{10}\n)?safepoint/([0-9]{1,9}) ")
"""How a record begins, or what `prune` left: a line with a sequence, and the format."""
_MARKS: Final = {
    Format.PACKED: re.compile(
        rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18"
        rb"|\x5d\0\0.{10}|\x89LZO\0|LZIP|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\x1f\x8b|\x02\x21\x4c\x18"
        rb"|\x1f\x9d[\x09-\x10\x89-\x90]|[\x50-\x5f]\x2a\x4d\x18|\xff\x06\0\0sNaPpY|ZF0x[0-9a-f]",
        re.DOTALL,
    ),
    Format.SEALED: SEALED,
    Format.POINTER: re.compile(rb"version https://git-lfs\.github\.com/spec/v1\s"),
    Format.NPY: re.compile(re.escape(_ARRAY)),
    Format.GGUF: re.compile(rb"GGUF[\1-\x0f]\0\0\0"),
    Format.HDF5: re.compile(rb"\x89HDF\r\n\x1a\n"),
    Format.TFLITE: re.compile(rb".{4}TFL3", re.DOTALL),
    # Of protobuf: the version of the format, and a graph or who wrote it.
    Format.SAVED_MODEL: re.compile(rb"\x08\x01\x12[\x80-\xff]{1,4}[\0-\x7f]\x0a", re.DOTALL),
    Format.ONNX: re.compile(rb"(?s)\x08[\1-\x1f](\x12.[\w .-]+[\x1a\x22:B]|:[\x80-\xff]{0,4}.\n)"),
    # The first pickle is a number.
    Format.TORCH_LEGACY: re.compile(
        rb"\x80[\x02-\x05](?:\x95.{8})?\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19(?:\x94)?\.", re.DOTALL
    ),
}
"""How files of some kinds begin. No two of them do alike."""
# The length of a header, and some of it. Whoever reads the tensors parses it, strictly.
_TABLE: Final = re.compile(rb'(?s).{5}\0{3}\{(?:\s*\}|.*"(?:data_offsets|__metadata__)")')
_ZLIB: Final = re.compile(rb"\x78[\x01\x5e\x9c\xda]")  # as joblib packs
_BLOCK: Final = 512
_TORCH: Final = (Format.TORCH_ZIP, Format.TORCH_LEGACY)
_MODELS: Final = (*_TORCH, Format.TORCH_SCRIPT)
_PICKLES: Final = (Format.PICKLE, Format.PICKLES, Format.JSON, *_MODELS)


def identified(
    file: IO[bytes],
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
    model: ModelLimits = DEFAULT_MODEL_LIMITS,
    known: dict[int, Scan] | None = None,
) -> tuple[Format, tuple[Member, ...]]:
    """Say what a file is, with its members if it is a zip archive.

    A file that two readers could take for two things is refused. So is one with bytes that belong
    to nothing: before the first or between the members of an archive, behind its end, behind a
    pickle. Some are known by their beginning alone; anyone who loads those measures the rest.

    Args:
        file: the file.
        limits: how much of a pickle is looked at.
        model: how large a model may be.
        known: what was found of its pickles, by where they begin; what it begins with is added.

    Raises:
        ModelRefused: it is two things at once, or has bytes that belong to none.
        LimitExceeded: it may be a pickle or JSON and is too large to tell.
        OSError: the file cannot be read.
    """
    size = file.seek(0, os.SEEK_END)
    head = read_at(file, 0, _HEAD)
    if not size:
        return Format.EMPTY, ()
    if head[:4] in (b"PK\3\4", b"PK\5\6"):
        members = read_directory(file, size, model)
        return _zipped([member.name for member in members]), members
    kind = next((kind for kind, mark in _MARKS.items() if mark.match(head)), None)
    kind = Format.PACKED if _is_packed(head) else kind  # first: the name in a tar is any bytes
    if kind is not Format.PACKED and ends_as_zip(file, size):
        raise unclear("The file does not begin as a zip archive, but ends as one")
    return kind or _unmarked(file, head, size, limits, {} if known is None else known), ()


def _is_packed(head: bytes) -> bool:
    """Tell what zlib packed, which may begin like a text, and a tar, by its checksum alone."""
    with suppress(zlib.error):
        if _ZLIB.match(head) and zlib.decompressobj().decompress(head[:_BLOCK]):
            return True
    with suppress(tarfile.HeaderError):
        tarfile.TarInfo.frombuf(head[:_BLOCK], "utf-8", "surrogateescape")
        return True
    return False


def _zipped(names: list[str]) -> Format:
    inner = {name.partition("/")[2] for name in names}
    if inner & {"constants.pkl", "bytecode.pkl"} or any(n.startswith("code/") for n in inner):
        return Format.TORCH_SCRIPT
    if "archive_format" in inner and any(name.startswith("models/") for name in inner):
        return Format.TORCH_EXPORT
    if "data.pkl" in inner:
        return Format.TORCH_ZIP
    if {"config.json", "metadata.json"} < {*names} and any(n.endswith(".h5") for n in names):
        return Format.KERAS
    if "schema.json" in names:
        return Format.SKOPS
    return Format.NPZ if names and all(name.endswith(".npy") for name in names) else Format.ZIP


def _unmarked(
    file: IO[bytes], head: bytes, size: int, limits: PickleLimits, known: dict[int, Scan]
) -> Format:
    """Tell what begins like anything: safetensors, pickles, JSON, or none of them."""
    end = count = opcodes = 0
    asks = False
    for found in scans(file, limits, known):
        known.setdefault(0, found)
        if isinstance(found.broken, LimitExceeded):
            raise found.broken
        if not (found.stopped or count) and _JOBLIB in found.asked:
            return Format.JOBLIB
        asks = asks or found.asks
        if found.stopped:
            count, opcodes, end = count + 1, opcodes + found.opcodes, found.end
        if opcodes + _EACH * count > limits.opcodes:
            raise over(limits, "opcodes")
    by_chance = opcodes <= _CHANCE and end < size and head[:1] != b"\x80"
    is_pickle = count > 0 and (asks or not by_chance)
    if _TABLE.match(head):
        if asks or is_pickle:
            raise unclear("The file is two things at once: a safetensors file, and a pickle")
        return Format.SAFETENSORS
    if is_pickle and end < size and not asks:
        raise unclear(f"The file is a pickle, and something else follows at byte {end}")
    if is_pickle:
        return Format.PICKLE if count == 1 else Format.PICKLES
    begins = _JSON.match(head)
    if begins and not asks and (begins[1] or size <= limits.data_bytes):
        with suppress(DecodeError):
            strict_json(read_at(file, 0, limits.data_bytes + 1), limits.data_bytes, limits.nodes)
            return Format.JSON
    return Format.UNKNOWN


def _array_ends(head: bytes) -> tuple[int, int | None]:
    """Return where the header of an array ends, and its numbers; None if it may hold objects."""
    width = 2 if head[6:7] == b"\1" else 4
    end = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    found = _NUMBERS.fullmatch(head[8 + width : end])
    if found is None or end > len(head):
        return end, None
    each = int(found[2]) * (4 if found[1] == b"U" else 1)
    return end, end + each * math.prod(map(int, re.findall(rb"[0-9]+", found[3])))


class Verdict(StrEnum):
    """What a file is to anyone who wants to load it, from the worst on."""

    RUNS_CODE = "runs code"
    NEEDS_CODE = "needs code"
    REFUSED = "refused"
    NOT_LOOKED_INTO = "not looked into"
    TORCH = "torch"
    PICKLE = "pickle"
    SAFETENSORS = "safetensors"
    NOT_A_MODEL = "not a model"


_WORST: Final = (Verdict.RUNS_CODE, Verdict.NEEDS_CODE, Verdict.REFUSED)
_NEXT: Final = {
    Verdict.NEEDS_CODE: _PICKLED,
    Verdict.REFUSED: "Do not load it. Ask for another copy, or for safetensors.",
    Verdict.PICKLE: "Read it as data, with safepoint.models.read_pickle, and save it as JSON.",
    Verdict.NOT_A_MODEL: "",
}
"""What to do, where the format does not decide."""
_VERDICTS: Final = {
    Format.TORCH_SCRIPT: Verdict.RUNS_CODE,
    **dict.fromkeys(_TORCH, Verdict.TORCH),
    Format.SAFETENSORS: Verdict.SAFETENSORS,
}
"""What a file is if nothing worse is in it."""


class Inspected(NamedTuple):
    """One pickle.

    Attributes:
        where: its place in the file, empty if it is the whole file.
        imports: what it asks for, such as `os.system`: what may run code first. A name that is only
            known when it runs is listed as such.
        wants: those of them that stand for no data.
        reason: why it is not data that can be read without running anything; empty if it is.
    """

    where: str
    imports: tuple[str, ...]
    wants: tuple[str, ...]
    reason: str

    @property
    def plain(self) -> bool:
        """Whether it is data."""
        return not self.reason

    @property
    def verdict(self) -> Verdict:
        """What it is to anyone who wants to load it."""
        if any(rank(name) < 2 for name in self.wants):
            return Verdict.RUNS_CODE
        needs = Verdict.NEEDS_CODE if self.wants else Verdict.REFUSED
        return needs if self.reason else Verdict.PICKLE


class Inspection(NamedTuple):
    """What is in a file.

    Attributes:
        kind: what the file is, by its content.
        size: its bytes.
        pickles: each pickle in it.
        unseen: what was not looked into, each as a sentence.
        refused: why it, or a member, is refused, such as that it is two things at once; and what
            to do.
        tensors: those of a model, by name, each with `dtype` and `shape`.
        code: what Transformers imports because of it with `trust_remote_code=True`.
    """

    kind: Format
    size: int
    pickles: list[Inspected]
    unseen: list[str]
    refused: list[tuple[str, str]]
    tensors: dict[str, Any]
    code: set[str]

    @property
    def plain(self) -> bool:
        """Whether everything was seen and is data."""
        return not self.unseen and self.verdict not in _WORST

    @property
    def what(self) -> str:
        """What it is to anyone who wants to load it, as a sentence about "it"."""
        if self.wants:
            code = needed(self.wants)
            asks = f"needs the code of {code}:" if code else "asks for"
            return f"It is {self.kind.sentence}, and {asks} {listed(self.wants)}."
        if self.code:
            return f"It names code that trust_remote_code=True runs: {listed(self.code)}."
        refused = (why for why, _ in self.refused)
        reasons = (*refused, *(pickle.reason for pickle in self.pickles), *self.unseen)
        return next(filter(None, reasons), f"It is {self.kind.sentence}.")

    @property
    def wants(self) -> set[str]:
        """What its pickles ask for that stands for no data."""
        return {name for pickle in self.pickles for name in pickle.wants}

    @property
    def do(self) -> str:
        """What to do with it; empty if it is not a model."""
        verdict, kind = self.verdict, self.kind
        if self.code and not self.wants:
            return "Read that code before you let it run, or leave trust_remote_code off."
        is_model = kind in _TORCH
        if self.wants and (verdict is Verdict.RUNS_CODE or is_model) and kind.do is not _PROGRAM:
            return advice(self.wants, has_tensors=is_model)
        if self.refused and verdict is Verdict.REFUSED:
            return self.refused[0][1]
        return _NEXT.get(verdict, kind.do)

    @property
    def verdict(self) -> Verdict:
        """What it is to anyone who wants to load it."""
        found = {_VERDICTS.get(self.kind, Verdict.NOT_A_MODEL)}
        found |= {pickle.verdict for pickle in self.pickles}
        found |= {Verdict.NEEDS_CODE} if self.code else set()
        found |= {Verdict.REFUSED} if self.refused else set()
        if self.unseen and (self.pickles or self.kind is not Format.UNKNOWN):
            found |= {Verdict.NOT_LOOKED_INTO}
        return next(verdict for verdict in Verdict if verdict in found)


def inspect(
    source: str | os.PathLike[str] | bytes, *, limits: PickleLimits = DEFAULT_PICKLE_LIMITS
) -> Inspection:
    r"""Say what any file is, and what the pickles in it would import and call. Nothing of it runs.

    Its content decides, never its name. It goes into PyTorch archives, zip archives, NumPy arrays
    of objects, and texts with pickles in base64. An archive in an archive, or what is compressed,
    is listed and not looked into. What two readers could take for two things is refused.

    ```python
    from safepoint.models import inspect

    found = inspect(b"cos\nsystem\n(S'id'\ntR.")
    print(found.kind.sentence, found.pickles[0].imports, found.plain)
    #> a pickle ('os.system',) False
    print(f"{found.verdict}: {found.what}")
    #> runs code: It is a pickle, and asks for os.system.
    ```

    Args:
        source: a path, or the bytes of a file.
        limits: how much is looked at.

    Raises:
        NotFound: it does not exist.
        Unavailable: it is a folder, a pipe or a device, or cannot be read.
    """
    with opened(source) as found:
        begins = found.read(_SMALL)
        # Many parts of a small file are looked at, here and there.
        file = io.BytesIO(begins) if len(begins) < _SMALL else found
        size = file.seek(0, os.SEEK_END)
        return _Inspector(file, size, limits).inspection()


@contextmanager
def opened(source: str | os.PathLike[str] | bytes) -> Iterator[IO[bytes]]:
    """Open a file for a look, once: anyone who swaps it meanwhile changes nothing.

    Raises:
        NotFound: it does not exist.
        Unavailable: it is a folder, a pipe or a device, or cannot be read.
    """
    if isinstance(source, bytes):
        yield io.BytesIO(source)
        return
    shown = shell(os.fsdecode(source))
    if "\0" in os.fsdecode(source):
        raise Unavailable(f"{shown} is not a path.", "Name a file.")
    try:
        with open_regular(os.path.realpath(source)) as file:
            yield file
    except FileNotFoundError:
        raise NotFound(f"{shown} does not exist.", "Check the path. Nothing was loaded.") from None
    except OSError as error:
        do = "Name a file that this user can read. Of a folder, safepoint scan lists them."
        raise Unavailable(f"{shown} cannot be read ({error.strerror}).", do) from None


class _Inspector:
    """One look at a file: each pickle in it, and what was not looked into."""

    def __init__(self, file: IO[bytes], size: int, limits: PickleLimits) -> None:
        self._file, self._limits = file, limits
        self._left = limits.data_bytes  # for all members together
        self._found = Inspection(Format.UNCLEAR, size, [], [], [], {}, set())

    def inspection(self) -> Inspection:
        """Look at everything."""
        with self._noting(""):
            self._found = self._found._replace(kind=self._look("", self._file))
        return self._found

    @contextmanager
    def _noting(self, about: str) -> Iterator[None]:
        """Note why a file, or a member of an archive, is refused or cannot be looked into."""
        try:
            yield
        except LimitExceeded as error:
            self._found.unseen.append(f"{about}{error.what}")
        except CheckpointError as error:
            self._found.refused.append((f"{about}{error.what}", error.do))
        except MemoryError:
            self._found.unseen.append(f"{about}There is not enough memory for it.")

    def _look(self, where: str, data: IO[bytes]) -> Format:
        """Look at the file, or at a member of an archive, and say what it is."""
        head = read_at(data, 0, _HEAD)
        known = {} if where else self._begins(data, head)
        kind, members = identified(data, self._limits, known=known)
        is_inner = where != "" and (members != () or kind in _VERDICTS)
        if is_inner or not kind.seen:
            self._found.unseen.append(
                f"{where or 'It'} is {kind.sentence}, which is not looked into."
            )
        if is_inner or kind in (Format.EMPTY, Format.SEALED):
            return kind
        if kind in _TORCH:
            with self._noting(""):
                model = read_model(data, members)
                self._found.tensors.update(named_tensors(model.state, TensorSpec))
                known[model.start] = model.scan()
                if model.left:
                    self._found.unseen.append("It holds a sparse tensor, which only a load checks.")
        if members:
            self._zipped(kind, members, known)
        elif kind is Format.SAFETENSORS:
            header = read_at(data, 0, PREFIX + DEFAULT_MODEL_LIMITS.header_bytes)
            self._found.tensors.update(read_table(header, data.seek(0, os.SEEK_END)))
        elif kind is Format.NPY:
            self._array(where, data, head)
        else:
            self._piece(where, data, kind, known)
        return kind

    def _begins(self, data: IO[bytes], head: bytes) -> dict[int, Scan]:
        """Read the pickle that a file begins with: as data, and if it is none, leniently."""
        if not _PROTO.match(head):
            return {}
        builder = Builder(PLAIN, self._limits)
        try:
            builder.read(read_at(data, 0, self._limits.data_bytes + 1))
            return {0: builder.scan()}
        except CheckpointError:
            return {0: scan(data, limits=self._limits)}

    def _zipped(self, kind: Format, members: tuple[Member, ...], known: dict[int, Scan]) -> None:
        for member in members:
            # A model that was read has numbers, words and the bytes of tensors besides its pickle.
            is_array = read_at(self._file, member.start, len(_ARRAY)) == _ARRAY
            if known and not (is_array or member.name.endswith(".pkl")):
                continue
            name = shell(member.name)
            if self._left <= 0:
                self._found.unseen.append(f"The archive was not looked at from {name} on.")
                return
            with self._noting(f"{name}: "):
                self._member(name, kind, member, known)

    def _member(self, name: str, kind: Format, member: Member, known: dict[int, Scan]) -> None:
        head = content(self._file, member, _HEAD, checked=False)
        is_array = head.startswith(_ARRAY)  # NumPy reads its arrays out of any archive
        is_storage = kind is Format.TORCH_ZIP and _STORAGE.match(member.name)
        if _array_ends(head)[1] == member.size if is_array else is_storage:
            return  # the bytes of a tensor are any bytes, and nobody unpickles them
        is_small = member.size <= _HEAD
        whole = head if is_small else content(self._file, member, self._left, checked=False)
        self._left -= min(member.size, self._left) if member.packed != member.size else 0
        if len(whole) < member.size:
            self._found.unseen.append(f"{name} is larger than was looked at.")
        if kind in _MODELS and member.name.endswith(".pkl"):
            self._stack(name, io.BytesIO(whole), kind, known)
        else:
            self._look(name, io.BytesIO(whole))

    def _piece(self, where: str, data: IO[bytes], kind: Format, known: dict[int, Scan]) -> None:
        """Look at what may be pickles, or a text with pickles in it."""
        text = read_at(data, 0, _HEAD)
        is_text = is_harmless(text)
        seen = kind is not Format.JSON and self._stack(where, data, kind, known, is_text=is_text)
        if kind is Format.UNKNOWN and not (seen or is_text):
            what = "is of an unknown format: find out which program reads it"
            self._found.unseen.append(f"{where or 'It'} {what}.")
        is_keras = kind is Format.HDF5 or where == "config.json"
        if is_keras and _LAMBDA.search(read_at(data, 0, self._limits.data_bytes)):
            code, reason = ("a Lambda layer",), "It has a Lambda layer, which is code."
            self._found.pickles.append(Inspected(where, code, code, reason))
        if not seen and _JSON.match(_as_utf8(text)):
            self._json(where, _as_utf8(read_at(data, 0, self._limits.data_bytes + 1)))

    def _stack(
        self,
        where: str,
        data: IO[bytes],
        kind: Format,
        known: dict[int, Scan],
        *,
        is_text: bool = False,
    ) -> bool:
        """Look at the pickles that stand one behind another, and tell whether there are some.

        Bytes of which it is not sure that they are pickles are some from the first that asks on. A
        text may begin with a c, and then asks for the name that its first two lines spell.
        """
        # Of an old PyTorch file, the bytes of the tensors follow.
        most = _OLD if kind is Format.TORCH_LEGACY else self._limits.opcodes
        start = steps = 0
        seen = kind in _PICKLES or _PROTO.match(read_at(data, 0, 2)) is not None
        for found in islice(scans(data, self._limits, known), most):
            if isinstance(found.broken, LimitExceeded) and not found.asks:
                raise found.broken
            seen = seen or (found.calls if is_text else found.asks)
            steps += _EACH + found.opcodes
            if seen:
                place = ", ".join(filter(None, (where, f"byte {start}" if start else "")))
                self._add(place, read_at(data, start, found.end - start), kind, found)
            if steps > self._limits.opcodes:
                raise over(self._limits, "opcodes")
            start = found.end
        # So that many pieces together are not looked at for longer than one.
        self._left -= max(start, steps * self._limits.data_bytes // self._limits.opcodes)
        return seen

    def _add(self, where: str, data: bytes, kind: Format, found: Scan) -> None:
        """Look at one pickle."""
        names = {
            pair: quoted(" ".join(pair)) if "." in pair[1] else named(*pair)  # of another module
            for pair in found.asked
        }
        is_model, functions = kind in _MODELS, FRAMEWORK if kind is Format.JSON else PLAIN
        wants = {
            names[pair] for pair in names if not (is_data(*pair) if is_model else pair in functions)
        }
        wanted = tuple(sorted(wants | {*found.unclear}))
        reason = ""
        if kind is Format.JOBLIB:
            reason = "It was not looked at beyond its first array, but joblib runs the rest."
        elif found.broken is not None:
            reason = found.broken.what
        elif wanted:
            reason = wanting("file" if is_model else "pickle", wanted)
        elif found.opcodes and not is_model:
            try:
                run(data, functions=functions, limits=self._limits)
            except CheckpointError as error:
                reason = error.what
        if reason or len(self._found.pickles) < _LISTED:
            imports = sorted({*names.values(), *found.unclear}, key=lambda name: (rank(name), name))
            self._found.pickles.append(Inspected(where, tuple(imports), wanted, reason))

    def _json(self, where: str, data: bytes) -> None:
        """Look at JSON with pickles in base64, as Agent Framework writes it."""
        items = sum(map(data.count, (b",", b"[", b"{")))  # many texts take as long as one of these
        self._left -= items * self._limits.data_bytes // self._limits.nodes
        try:
            value = strict_json(data, self._limits.data_bytes, self._limits.nodes)
        except DecodeError:
            if _MAY_PICKLE.match(data):
                raise unclear("It is not strict JSON: it may hold pickles or name code") from None
        else:
            self._walk(where, value)

    def _walk(self, where: str, value: Any, depth: int = 0, *, code: bool = True) -> None:
        """Look at what is marked as a pickle or, outermost, as code."""
        if depth > self._limits.depth:
            raise over(self._limits, "depth", "The JSON")
        if isinstance(value, list):
            value = {str(number): inner for number, inner in enumerate(value)}
        for key, inner in value.items() if isinstance(value, dict) else ():
            if key == PICKLED:
                pickled = unbased(inner)
                if pickled is None:
                    raise unclear(f"{where or 'It'} is marked as a pickle, but not base64")
                self._stack(where, io.BytesIO(pickled), Format.JSON, {})
                continue
            is_code = code and key in _REMOTE
            if is_code and inner:
                self._found.code.update(_CODE_NAME.findall(json.dumps(inner)) or [key])
            shown = key if _WORD.match(key) else quoted(key)
            self._walk(f"{where}.{shown}".lstrip("."), inner, depth + 1, code=code and not is_code)

    def _array(self, where: str, data: IO[bytes], head: bytes) -> None:
        """Look at the pickle behind the header of an array of Python objects."""
        start, end = _array_ends(head)
        if end == data.seek(0, os.SEEK_END):
            return
        if end is not None:
            raise unclear(f"{where or 'It'} is a NumPy array that is cut short, or bytes follow")
        body = io.BytesIO(read_at(data, start, self._limits.data_bytes + 1))
        # Every header of NumPy's own for an array of objects has this letter.
        kind = Format.PICKLE if b"O" in head[:start] else Format.NPY
        place = ", ".join(filter(None, (where, "the objects of the array")))
        if not self._stack(place, body, kind, {}):
            what = "is a NumPy array of an unknown form, so it may hold objects"
            self._found.unseen.append(f"{where or 'It'} {what}.")


def is_harmless(data: bytes) -> bool:
    """Tell a text, which has no more control characters than texts have, or a picture."""
    is_wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = data.decode("utf-16" if is_wide else "latin-1", "replace")
    return _HARMLESS.match(data) is not None or _CONTROL.search(text) is None


def _as_utf8(data: bytes) -> bytes:
    """Return JSON in UTF-8: parsers take it in UTF-16 and UTF-32, too, and find out which."""
    return data.decode(json.detect_encoding(data), "replace").encode()


def unbased(text: object) -> bytes | None:
    """Return what base64 says, None if it is none."""
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except ValueError:
        return None
