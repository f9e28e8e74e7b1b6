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
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import IO, Any, Final, NamedTuple, Self

from safepoint.core.errors import (
    CheckpointError,
    DecodeError,
    LimitExceeded,
    ModelRefused,
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
from safepoint.models.machine import Builder, Functions, run
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
from safepoint.models.zips import (
    DEFLATED,
    ENCRYPTED,
    STORED,
    Member,
    content,
    ends_as_zip,
    read_directory,
    unclear,
)

PICKLED: Final = "__pickled__"
"""The key under which Agent Framework keeps a pickle in base64."""

_LOOK: Final = "Nothing was run. Do not load it. Ask who wrote it."
_HEAD: Final = 64 * 1024
_SMALL: Final = 1024 * 1024
_DEPTH: Final = 200
_FOURTH: Final = 4  # of the pickles of an old PyTorch file, which describes its tensors
_LISTED: Final = 1000  # of plain pickles in one file
# Instructions that the bytes of an honest file may happen to spell before a full stop.
_CHANCE: Final = 4
_JSON: Final = re.compile(rb'[ \t\r\n]*(?:([{\[])|["\-0-9tfn]|\Z)')
_OBJECT: Final = re.compile(rb"\s*[{\[]")  # not a text that speaks of pickles
_PROTO: Final = re.compile(rb"\x80[\x00-\x05]")
# Nobody escapes a letter, but to hide it.
_MAY_PICKLE: Final = re.compile(
    rb'__pickled__|"(?:auto_map|custom_pipelines)"|\\u00[4-7][0-9a-f]', re.IGNORECASE
)
_STORAGE: Final = re.compile(r"[^/]+/data/\d+\Z")
_ARRAY: Final = b"\x93NUMPY"
# As NumPy writes it. It evaluates the header: '|\x4f' and 'object' are arrays of objects, too.
_NUMBERS: Final = re.compile(
    rb"\{'descr': '[<>|=]([?biufcSUVmM])([0-9]{1,9})(?:\[[^'\]]{0,20}\])?', 'fortran_order':"
    rb" (?:True|False), 'shape': \(([0-9, ]{0,600})\), \} *\n"
)
# Of files that are no text, those that nobody loads as state or as a model, by how they begin:
# pictures, fonts, sound, films, PDF and translations.
_HARMLESS: Final = re.compile(
    rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF.{4}(?:WEBP|WAVE|AVI )|%PDF-|\0\0\x01\0[^\0]\0"
    rb"|OTTO\0|\0\x01\0\0\0|ttcf\0|wOF[F2]|OggS\0|ID3[\x02-\x04]|fLaC\0|.{4}ftyp|\x1aE\xdf\xa3"
    rb"|\xde\x12\x04\x95\0\0",
    re.DOTALL,
)
_CONTROL: Final = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_CONVERT: Final = "Convert it once: safepoint convert FILE NEW --key KEY"
# What a PyTorch file may hold and safetensors and the codec may not.
_LOADED_ONLY: Final = re.compile(
    r"^(?P<NumPy_values>numpy)\.|(?P<sparse_tensors>_rebuild_sparse)|(?P<layouts>_get_layout)"
    r"|(?P<quantized_tensors>_rebuild_q|_affine)|(?P<meta_tensors>_rebuild_meta)|^torch\.device"
    r"|(?P<complex128>ComplexDouble)|^(?P<pure_paths>pathlib.*\.Pure)"
    r"|(?<=\.)(deque|range|xrange|slice|complex|bytearray)\Z"
)
_PROGRAM: Final = "Ask for the weights: a state_dict, as safetensors."
_PICKLED: Final = (
    "Loading it runs what is in it. Ask for skops or safetensors. Open it only in a container"
    " without a network."
)
_PACKED: Final = "Unpack it, and scan that. If joblib wrote it, ask for skops or safetensors."
_UNKNOWN: Final = "Get it again: it may be cut short, or a web page in place of the file."
_NUMPY: Final = "Load it with numpy.load(path, allow_pickle=False)."
_H5PY: Final = "Load it with h5py, which runs nothing. "
_KERAS: Final = "Open it with keras >= 3.11.3 and safe_mode=True, in a container without a network."
_JOBLIB: Final = ("joblib.numpy_pickle", "NumpyArrayWrapper")
_LAMBDA: Final = re.compile(rb'"class_name":\s*"Lambda"')
_WORD: Final = re.compile(r"[A-Za-z_]\w{0,40}\Z", re.ASCII)
_REMOTE: Final = ("auto_map", "custom_pipelines")  # of a config of Hugging Face
_CODE_NAME: Final = re.compile(r'"((?:[\w./-]+--)?\w+(?:\.\w+)+)"')  # repository--module.Class


class Format(StrEnum):
    """What a file is.

    Attributes:
        sentence: what it is, to go behind "is".
        do: what to do with it; empty if that depends on what is in it.
    """

    sentence: str
    do: str

    def __new__(cls, value: str, sentence: str, do: str = "") -> Self:
        """Keep the texts next to the value."""
        kind = str.__new__(cls, value)
        kind._value_, kind.sentence, kind.do = value, sentence, do
        return kind

    EMPTY = "empty", "an empty file", "Copy it again: the save or the copy did not finish."
    POINTER = "lfs", "a Git LFS pointer, not the file itself", "Fetch the file: git lfs pull"
    SEALED = "sealed", "a sealed record", "Name the model instead of its seal."
    SAFETENSORS = "safetensors", "a safetensors file", "Load it with load_checkpoint."
    TORCH_ZIP = "torch-zip", "a PyTorch archive", _CONVERT
    TORCH_SCRIPT = "torch-script", "a program, saved by TorchScript", _PROGRAM
    TORCH_EXPORT = "torch-export", "a program, saved by torch.export", _PROGRAM
    TORCH_LEGACY = "torch-legacy", "a PyTorch file of the format before 1.6", _CONVERT
    PICKLE = "pickle", "a pickle", _PICKLED
    PICKLES = "pickles", "several pickles, one after another", _PICKLED
    JOBLIB = "joblib", "a joblib file, a pickle with arrays between its instructions", _PICKLED
    ZIP = "zip", "a zip archive", "Unpack it, and scan what was in it."
    NPY = "npy", "a NumPy array", _NUMPY
    NPZ = "npz", "an archive of NumPy arrays", _NUMPY
    GGUF = "gguf", "a GGUF model", "Load it with llama.cpp or gguf, which read no pickle."
    HDF5 = "hdf5", "an HDF5 file, such as Keras writes", _H5PY + _KERAS
    KERAS = "keras", "a Keras model", _KERAS
    ONNX = "onnx", "an ONNX model", "Load it with onnxruntime, which reads no pickle."
    TFLITE = "tflite", "a TensorFlow Lite model", "Load it with its own interpreter."
    SAVED_MODEL = "saved-model", "a program, a SavedModel of TensorFlow", _PROGRAM
    SKOPS = "skops", "a skops file", "Load it with skops.io.load, which asks which types you trust."
    PACKED = "packed", "packed data, such as tar or gzip", _PACKED
    JSON = "json", "JSON", "It is text. Ask for the model itself."
    UNKNOWN = "unknown", "of an unknown format", _UNKNOWN
    UNCLEAR = "unclear", "of no clear format"


SEALED: Final = re.compile(rb"([0-9]{10}\n)?safepoint/([0-9]{1,9}) ")
"""How a record begins, or what `prune` left: a line with a sequence, and the format."""
_MARKS: Final = {
    Format.PACKED: re.compile(
        rb".{257}ustar|BZh[1-9](?:1AY&SY|\x17rE8P\x90)|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18"
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
_ZLIB: Final = re.compile(rb"\x78[\x01\x5e\x9c\xda]")  # as joblib packs
_ELSEWHERE: Final = {
    *(Format.GGUF, Format.HDF5, Format.KERAS, Format.ONNX, Format.TFLITE, Format.SKOPS),
    *(Format.PACKED, Format.TORCH_EXPORT, Format.SAVED_MODEL, Format.POINTER),
}
"""What has no pickle at its beginning, and is not looked into."""


def identified(
    file: IO[bytes],
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
    model: ModelLimits = DEFAULT_MODEL_LIMITS,
    known: Mapping[int, Scan] = MappingProxyType({}),
) -> tuple[Format, tuple[Member, ...]]:
    """Say what a file is, with its members if it is a zip archive. It is left at its beginning.

    A file that two readers could take for two things is refused. So is one with bytes that belong
    to nothing: before the first or between the members of an archive, behind its end, behind a
    pickle. Some are known by their beginning alone; anyone who loads those measures the rest.

    Args:
        file: the file.
        limits: how much of a pickle is looked at.
        model: how large a model may be.
        known: what was found of its pickles before, by where they begin.

    Raises:
        ModelRefused: it is two things at once, or has bytes that belong to none.
        LimitExceeded: it may be a pickle or JSON and is too large to tell.
        OSError: the file cannot be read.
    """
    size = file.seek(0, os.SEEK_END)
    if not size:
        return Format.EMPTY, ()
    members: tuple[Member, ...] = ()
    try:
        head = read_at(file, 0, _HEAD)
        if head[:4] in (b"PK\3\4", b"PK\5\6"):
            members = read_directory(file, size, model)
            kind = _zipped([member.name for member in members])
        else:
            kind = _marked(file, head, size, limits) or _pickled(file, head, size, limits, known)
            if kind is not Format.PACKED and ends_as_zip(file, size):
                raise unclear("The file does not begin as a zip archive, but ends as one")
        if kind is Format.UNKNOWN and _is_json(file, head, size, limits):
            kind = Format.JSON
    finally:
        file.seek(0)
    return kind, members


def _marked(file: IO[bytes], head: bytes, size: int, limits: PickleLimits) -> Format | None:
    """Tell by the first bytes."""
    kind = next((kind for kind, mark in _MARKS.items() if mark.match(head)), None)
    if kind is None and _ZLIB.match(head):  # which two letters of a text may be, too
        with suppress(zlib.error):
            if _PROTO.match(zlib.decompressobj().decompress(head, 2)):
                return Format.PACKED
    if kind is Format.NPY:
        start, end = _array_ends(head)
        if start > size or end not in (None, size):
            raise unclear(
                "The NumPy array does not end where its last item does: it is cut short, or bytes"
                " follow"
            )
    length = int.from_bytes(head[:PREFIX], "little")
    if kind is None and head[PREFIX : PREFIX + 1] == b"{" and 1 < length <= size - PREFIX:
        # Whoever reads the tensors parses it, strictly. Here it is only told apart.
        text = read_at(file, PREFIX, min(length, DEFAULT_MODEL_LIMITS.header_bytes))
        if b'"data_offsets"' in text or b'"__metadata__"' in text or text.strip() == b"{}":
            kind = Format.SAFETENSORS
            # The length of the header is any number, and reads as one or two instructions.
            found = scan(file, limits=limits)
            if isinstance(found.broken, LimitExceeded):
                raise found.broken
            if found.asks or (found.stopped and found.opcodes > _CHANCE):
                raise unclear(
                    "The file is two things at once: a safetensors file, and a pickle up to byte"
                    f" {found.end}"
                )
    return kind


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


def _pickled(
    file: IO[bytes], head: bytes, size: int, limits: PickleLimits, known: Mapping[int, Scan]
) -> Format:
    end = count = opcodes = 0
    for found in scans(file, limits, known):
        if isinstance(found.broken, LimitExceeded):
            raise found.broken
        if not (found.stopped or count) and _JOBLIB in found.asked:
            return Format.JOBLIB
        if found.stopped:
            count, opcodes, end = count + 1, opcodes + found.opcodes, found.end
        if opcodes > limits.opcodes:
            raise over(limits, "opcodes")
    if not count or (end < size and count == 1 and opcodes == 2 and head[:1] != b"\x80"):
        return Format.UNKNOWN  # or two letters of a text, such as "N."
    if end < size:
        raise unclear(f"The file is a pickle, and something else follows at byte {end}")
    return Format.PICKLE if count == 1 else Format.PICKLES


def _is_json(file: IO[bytes], head: bytes, size: int, limits: PickleLimits) -> bool:
    begins = _JSON.match(head)
    if begins is None or (begins[1] is None and size > limits.data_bytes):
        return False
    try:
        strict_json(read_at(file, 0, limits.data_bytes + 1), limits.data_bytes, limits.nodes)
    except DecodeError:
        return False
    return True


def _array_ends(head: bytes) -> tuple[int, int | None]:
    """Return where the header of an array ends, and its numbers; None if it may hold objects."""
    width = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}.get(head[6:8], 0)
    end = 8 + width + int.from_bytes(head[8 : 8 + width], "little") if width else 0
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
    PICKLE = "pickle"
    TORCH = "torch"
    SAFETENSORS = "safetensors"
    NOT_A_MODEL = "not a model"


_NEXT: Final = {
    Verdict.NEEDS_CODE: _PICKLED,
    Verdict.REFUSED: "Do not load it. Ask for an intact copy.",
    Verdict.PICKLE: "Read it as data, with safepoint.models.read_pickle, and save it as JSON.",
    Verdict.NOT_A_MODEL: "",
}
"""What to do, where the format does not decide."""


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

    @property
    def said(self) -> str:
        """The verdict in words. Of a name that nobody here knows it is not known what it runs."""
        if self.verdict is Verdict.NEEDS_CODE:
            return f"{self.verdict} of {needed(self.wants)}"
        unsure = self.wants and min(map(rank, self.wants)) == 1
        return "may run code" if unsure else str(self.verdict)


class Inspection(NamedTuple):
    """What is in a file.

    Attributes:
        kind: what the file is, by its content.
        size: its bytes.
        pickles: each pickle in it.
        unseen: what was not looked into, each as a sentence.
        refused: why it is refused as a whole: it is two things at once, or damaged.
        tensors: those of a model, by name, each with `dtype` and `shape`.
        code: what Transformers imports because of it with `trust_remote_code=True`.
    """

    kind: Format
    size: int
    pickles: tuple[Inspected, ...] = ()
    unseen: tuple[str, ...] = ()
    refused: str = ""
    tensors: Mapping[str, Any] = MappingProxyType({})
    code: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether everything was seen and is data."""
        odd = self.unseen or self.refused or self.code
        return not odd and all(pickle.plain for pickle in self.pickles)

    @property
    def what(self) -> str:
        """What it is to anyone who wants to load it, as a sentence about "it"."""
        if self.code and not self.wants:
            return f"It names code that trust_remote_code=True runs: {listed(self.code)}."
        reasons = (self.refused, *(pickle.reason for pickle in self.pickles), *self.unseen)
        if not self.wants and any(reasons):
            return next(filter(None, reasons))
        code = needed(self.wants)
        asks = f"needs the code of {code}:" if code else "asks for"
        asks = f", and {asks} {listed(self.wants)}" if self.wants else ""
        return f"It is {self.kind.sentence}{asks}."

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
        is_model = kind.do is _CONVERT
        if self.wants and (verdict is Verdict.RUNS_CODE or is_model) and kind.do is not _PROGRAM:
            return advice(self.wants, has_tensors=is_model)
        names = (_LOADED_ONLY.search(name) for each in self.pickles for name in each.imports)
        only = {(name.lastgroup or name[0]).replace("_", " ") for name in names if name}
        if is_model and only and verdict not in _NEXT:
            return f"Load it with load_checkpoint. convert does not keep {listed(only)}."
        return _NEXT.get(verdict, kind.do or "Find out what it is before you load it.")

    @property
    def verdict(self) -> Verdict:
        """What it is to anyone who wants to load it."""
        found = {pickle.verdict for pickle in self.pickles}
        if self.kind is Format.TORCH_SCRIPT or Verdict.RUNS_CODE in found:
            return Verdict.RUNS_CODE
        if self.code or Verdict.NEEDS_CODE in found:
            return Verdict.NEEDS_CODE
        if self.refused or Verdict.REFUSED in found:
            return Verdict.REFUSED
        if self.kind is Format.UNKNOWN and not self.pickles:
            return Verdict.NOT_A_MODEL
        if self.unseen:
            return Verdict.NOT_LOOKED_INTO
        if self.kind in (Format.TORCH_ZIP, Format.TORCH_LEGACY):
            return Verdict.TORCH
        if self.kind is Format.SAFETENSORS:
            return Verdict.SAFETENSORS
        return Verdict.PICKLE if self.pickles else Verdict.NOT_A_MODEL


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
        try:
            return _Inspector(file, size, limits).inspection()
        except LimitExceeded as error:
            return Inspection(Format.UNCLEAR, size, unseen=(error.what,))
        except (ModelRefused, DecodeError) as error:
            return Inspection(Format.UNCLEAR, size, refused=error.what)
        except MemoryError:
            return Inspection(Format.UNCLEAR, size, unseen=("There is not enough memory for it.",))


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
    do = "Name a file that this user can read."
    if "\0" in os.fsdecode(source):
        raise Unavailable(f"{shown} is not a path.", do)
    try:
        with open_regular(os.path.realpath(source)) as file:
            yield file
    except FileNotFoundError:
        raise NotFound(f"{shown} does not exist.", "Check the path. Nothing was loaded.") from None
    except OSError as error:
        if isinstance(error, IsADirectoryError):
            do = f"Name a file in it. See what they are: safepoint scan {shown}"
        raise Unavailable(f"{shown} cannot be read ({error.strerror}).", do) from None


class _Inspector:
    """One look at a file: what it is, each pickle in it, and what was not looked into."""

    def __init__(self, file: IO[bytes], size: int, limits: PickleLimits) -> None:
        self._file, self._size, self._limits = file, size, limits
        self._known: dict[int, Scan] = {}  # what was found of its pickles, by where they begin
        self._begins()
        self._kind, self._members = identified(file, limits, known=self._known)
        self._pickles: list[Inspected] = []
        self._unseen: list[str] = []
        self._left = limits.data_bytes  # for all that is in it, together
        self._tensors: Mapping[str, Any] = {}
        self._code = set[str]()
        self._model: str | None = None  # why a PyTorch file is more than tensors
        self._describes = False  # whether this is the pickle that describes the tensors

    def _begins(self) -> None:
        """Read the pickle that the file begins with: as data, and if it is none, leniently."""
        head = read_at(self._file, 0, _HEAD)
        if _PROTO.match(head) and not _MARKS[Format.TORCH_LEGACY].match(head):
            builder = Builder(PLAIN, self._limits)
            try:
                builder.read(read_at(self._file, 0, self._limits.data_bytes + 1))
                self._known[0] = builder.scan()
            except CheckpointError:
                self._known[0] = scan(self._file, limits=self._limits)

    def inspection(self) -> Inspection:
        """Look at everything."""
        kind = self._kind
        if kind in (Format.TORCH_ZIP, Format.TORCH_LEGACY):
            try:
                model = read_model(self._file, self._members)
                self._tensors, self._model = named_tensors(model.state, TensorSpec), ""
                self._known[model.start] = model.scan()
                if model.left:
                    self._unseen.append("It holds a sparse tensor, which only a load checks.")
            except CheckpointError as error:
                self._model = error.what
        if kind in (Format.HDF5, Format.KERAS) and _LAMBDA.search(self._config()):
            code = ("a Lambda layer",)
            self._pickles.append(Inspected("", code, code, "It has a Lambda layer, which is code."))
        if kind in _ELSEWHERE:
            self._unseen.append(f"It is {kind.sentence}, which is not looked into.")
        if self._members:
            self._zipped()
        elif kind is Format.SAFETENSORS:
            most = PREFIX + DEFAULT_MODEL_LIMITS.header_bytes
            self._tensors = read_table(read_at(self._file, 0, most), self._size)
        elif kind not in (Format.EMPTY, Format.SEALED):
            pickled = kind in (Format.PICKLE, Format.PICKLES, Format.TORCH_LEGACY)
            self._piece("", self._file, pickled=pickled)
            head = read_at(self._file, 0, _HEAD)
            if kind is Format.UNKNOWN and not self._pickles and not is_harmless(head):
                self._unseen.append(f"It is {kind.sentence}.")
        if kind is Format.TORCH_SCRIPT:
            self._unseen.append("It holds code of TorchScript, which is not looked into.")
        if self._model and all(pickle.plain for pickle in self._pickles):
            self._unseen.append(self._model)
        seen = tuple(self._pickles), tuple(self._unseen)
        return Inspection(kind, self._size, *seen, "", self._tensors, tuple(sorted(self._code)))

    def _config(self) -> bytes:
        """Return what says of which layers a model of Keras is."""
        most = self._limits.data_bytes
        found = [each for each in self._members if each.name == "config.json"]
        return content(self._file, found[0], most) if found else read_at(self._file, 0, most)

    def _zipped(self) -> None:
        model = self._kind is Format.TORCH_ZIP
        for member in self._members:
            is_storage = model and _STORAGE.match(member.name) is not None
            self._describes = model and member.name.endswith("/data.pkl")
            if self._model == "" and not (self._describes or is_storage):
                continue  # a number or a word on the format, as the plan has seen
            name = shell(member.name)
            if self._left <= 0:
                self._unseen.append(f"The archive was not looked at from {name} on.")
                return
            if member.flags & ENCRYPTED or member.method not in (STORED, DEFLATED):
                self._unseen.append(f"{name} is encrypted, or packed in a rare way.")
                continue
            try:
                self._member(name, member, is_storage=is_storage)
            except (DecodeError, LimitExceeded, ModelRefused) as error:
                self._unseen.append(f"{name}: {error.what}")

    def _member(self, name: str, member: Member, *, is_storage: bool) -> None:
        head = self._read(member, _HEAD)
        is_array = head.startswith(_ARRAY)  # NumPy reads its arrays out of any archive
        if (is_storage and not is_array) or (is_array and _array_ends(head)[1] == member.size):
            return  # the bytes of a tensor are any bytes, and nobody unpickles them
        whole = self._read(member, self._left)
        self._left -= len(whole) if member.method == DEFLATED else 0
        if len(whole) < member.size:
            self._unseen.append(f"{name} is larger than was looked at.")
        before, data = len(self._pickles), io.BytesIO(whole)
        if _is_packed(data, head):
            self._unseen.append(f"{name} is packed data, which is not looked into.")
            self._stack(name, data, sure=False)
            return
        self._piece(name, data, pickled=name.endswith((".pkl", ".pickle")))
        seen = is_harmless(head) or is_array or len(self._pickles) > before
        if self._kind is Format.ZIP and not seen:
            self._unseen.append(f"{name} is {Format.UNKNOWN.sentence}.")

    def _read(self, member: Member, most: int) -> bytes:
        if member.method == DEFLATED:
            return content(self._file, member, most)
        return read_at(self._file, member.start, min(member.size, most))  # whatever its checksum

    def _piece(self, where: str, data: IO[bytes], *, pickled: bool) -> None:
        """Look at a file, or at a member of an archive.

        Args:
            where: its place, empty for a file.
            data: its bytes.
            pickled: whether it is said to be a pickle.
        """
        head = read_at(data, 0, _HEAD)
        if head.startswith(_ARRAY):
            self._array(where, data, head)
            return
        asks = self._stack(where, data, sure=pickled or _PROTO.match(head) is not None)
        if not asks and _JSON.match(_as_utf8(head)):
            self._json(where, _as_utf8(read_at(data, 0, self._limits.data_bytes + 1)))

    def _stack(
        self, where: str, data: IO[bytes], functions: Functions = PLAIN, *, sure: bool = True
    ) -> bool:
        """Look at the pickles that stand one behind another, and tell whether one asks for a name.

        Bytes of which it is not sure that they are pickles are some if one of them asks, or if they
        end where the last one does.
        """
        # Of an old PyTorch file, the bytes of the tensors follow.
        most = _FOURTH + 1 if self._kind is Format.TORCH_LEGACY else self._limits.opcodes
        before, start, steps, asks = len(self._pickles), 0, 0, False
        size = data.seek(0, os.SEEK_END)
        known = self._known if data is self._file or self._describes else {}
        for count, found in enumerate(islice(scans(data, self._limits, known), most), 1):
            steps, asks = steps + found.opcodes, asks or found.asks
            too_many = steps > self._limits.opcodes or isinstance(found.broken, LimitExceeded)
            if too_many and not asks:
                what = "reads as a pickle for longer than was looked at"
                self._unseen.append(f"{where or 'It'} {what}.")
                break
            several = count > 1 or found.end < size
            numbered = f"pickle {count} (byte {start})" if several else ""
            place = ", ".join(filter(None, (where, numbered)))
            if self._kind is Format.TORCH_LEGACY:
                self._describes = count == _FOURTH
            self._add(place, read_at(data, start, found.end - start), found, functions)
            start = found.end
        if not (sure or asks or (found.stopped and start == size and steps > 1)):
            del self._pickles[before:]
        # So that many pieces together are not looked at for longer than one.
        self._left -= max(start, steps * self._limits.data_bytes // self._limits.opcodes)
        return asks

    def _add(self, where: str, data: bytes, found: Scan, functions: Functions) -> None:
        """Look at one pickle."""
        if isinstance(found.broken, LimitExceeded):
            raise found.broken
        model, reason = self._describes or self._kind is Format.TORCH_SCRIPT, ""
        wants = {
            quoted(" ".join(pair)) if "." in pair[1] else named(*pair)  # such as another module's
            for pair in found.asked
            if not (is_data(*pair) if model else pair in functions)
        }
        wanted = tuple(sorted(wants | {*found.unclear}))
        if self._kind is Format.JOBLIB:
            reason = "It was not looked at beyond its first array, but joblib runs the rest."
        elif found.broken is not None:
            reason = found.broken.what
        elif self._describes and self._model is not None:
            reason = self._model
        elif wanted:
            reason = wanting("pickle", wanted)
        elif found.opcodes:
            try:
                run(data, functions=functions, limits=self._limits)
            except CheckpointError as error:
                reason = error.what
        if reason or len(self._pickles) < _LISTED:
            imports = {named(*pair) for pair in found.asked} | {*found.unclear}
            ranked = tuple(sorted(imports, key=lambda name: (rank(name), name)))
            self._pickles.append(Inspected(where, ranked, wanted, reason))

    def _json(self, where: str, data: bytes) -> None:
        """Look at JSON with pickles in base64, as Agent Framework writes it."""
        try:
            value = strict_json(data, self._limits.data_bytes, self._limits.nodes)
        except DecodeError:
            if _MAY_PICKLE.search(data) and (self._members or _OBJECT.match(data)):
                what = "It is not strict JSON, so it may hold pickles or name code."
                raise DecodeError(what, _LOOK) from None
            return
        for key, place, text in _marked_in(value, where, 0, PICKLED, *_REMOTE):
            if key != PICKLED:
                self._code |= {*_CODE_NAME.findall(json.dumps(text))} or {key} if text else set()
                continue
            pickled = unbased(text, strict=True) if type(text) is str else None
            if pickled is None:
                raise DecodeError(f"{place or 'It'} is marked as a pickle, but not base64.", _LOOK)
            self._stack(place, io.BytesIO(pickled), FRAMEWORK)

    def _array(self, where: str, data: IO[bytes], head: bytes) -> None:
        """Look at the pickle behind the header of an array of Python objects."""
        start, end = _array_ends(head)
        size = data.seek(0, os.SEEK_END)
        if end == size:
            return
        objects = read_at(data, min(start, size), self._limits.data_bytes + 1)
        body = io.BytesIO(objects)
        # Every header of NumPy's own for an array of objects has this letter.
        sure = b"O" in head[:start] or _PROTO.match(objects) is not None
        place = ", ".join(filter(None, (where, "the objects of the array")))
        if not self._stack(place, body, sure=sure) and not sure:
            self._unseen.append(
                f"{where or 'It'} is a NumPy array of an unknown form, so it may hold objects."
            )
        self._left -= len(objects)


def _is_packed(data: IO[bytes], head: bytes) -> bool:
    """Tell whether a member holds others. Readers look for a zip's directory from the end."""
    size = data.seek(0, os.SEEK_END)
    tail = read_at(data, max(0, size - 2 * _HEAD), 2 * _HEAD)
    is_zip = head[:4] == b"PK\3\4" or b"PK\5\6" in tail
    return is_zip or _MARKS[Format.PACKED].match(head) is not None


def is_harmless(data: bytes) -> bool:
    """Tell a text, in UTF-8 or with no more control characters than texts have, or a picture."""
    if _HARMLESS.match(data):
        return True
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = data.decode("utf-16" if wide else "utf-8")
    except UnicodeDecodeError:
        return not wide and _CONTROL.search(data) is None
    return "\0" not in text


def _as_utf8(data: bytes) -> bytes:
    """Return JSON in UTF-8: parsers take it in UTF-16 and UTF-32, too, and find out which."""
    return data.decode(json.detect_encoding(data), "replace").encode()


def unbased(text: str, *, strict: bool) -> bytes | None:
    """Return what base64 says, None if it is none."""
    try:
        return base64.b64decode(text, validate=strict)
    except ValueError:
        return None


def _marked_in(value: Any, where: str, depth: int, *keys: str) -> Iterator[tuple[str, str, Any]]:
    """Return what is marked as a pickle or, outermost, as code, each with its key and its place."""
    if depth > _DEPTH:
        raise LimitExceeded(f"The file is nested deeper than {_DEPTH} levels.", _LOOK)
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != PICKLED:
                within = keys[:1] if key in _REMOTE else keys
                yield from _marked_in(inner, step(where, key), depth + 1, *within)
            if key in keys:
                yield key, where, inner
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _marked_in(inner, f"{where}[{number}]", depth + 1, *keys)


def step(where: str, key: str) -> str:
    """Return the place of a key, for a message: `state.x`, or `state['...']` for an odd one."""
    return f"{where}.{key}".lstrip(".") if _WORD.match(key) else f"{where}[{quoted(key)}]"
