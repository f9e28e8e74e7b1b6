"""What a file is, told by its content and never by its name."""

from __future__ import annotations

import io
import os
import re
from enum import StrEnum
from typing import BinaryIO, Final

from safepoint.errors import ConfigurationError, ModelMalformed
from safepoint.pickles._formats import is_array, is_json, is_safetensors, tar_names
from safepoint.pickles._sequence import HEAD, Pickles, pickles_in
from safepoint.pickles._zips import AGAIN, ends_as_zip, member_names, read_at
from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits, out_of_memory
from safepoint.pickles.walking import walk

# Instructions that the bytes of an honest file may happen to spell before a full stop.
_CHANCE: Final = 4
_SEALED: Final = re.compile(rb"([0-9]{10}\n)?safepoint/[0-9]{1,9} ")


class Kind(StrEnum):
    """What a file is."""

    EMPTY = "empty"
    SEALED = "sealed"
    SAFETENSORS = "safetensors"
    TORCH_ZIP = "torch-zip"
    TORCH_SCRIPT = "torch-script"
    TORCH_LEGACY = "torch-legacy"
    TORCH_TAR = "torch-tar"
    PICKLE = "pickle"
    PICKLES = "pickles"
    ZIP = "zip"
    NPY = "npy"
    NPZ = "npz"
    GZIP = "gzip"
    BZ2 = "bz2"
    XZ = "xz"
    ZSTD = "zstd"
    TAR = "tar"
    JSON = "json"
    UNKNOWN = "unknown"

    @property
    def sentence(self) -> str:
        """What it is, to go behind "is"."""
        return _SENTENCES[self]


_SENTENCES: Final = {
    Kind.EMPTY: "an empty file",
    Kind.SEALED: "a sealed record",
    Kind.SAFETENSORS: "a safetensors file",
    Kind.TORCH_ZIP: "a PyTorch archive",
    Kind.TORCH_SCRIPT: "a TorchScript archive",
    Kind.TORCH_LEGACY: "a PyTorch file of the format before 1.6",
    Kind.TORCH_TAR: "a PyTorch tar file of the format before 0.1.10",
    Kind.PICKLE: "a pickle",
    Kind.PICKLES: "several pickles, one after another",
    Kind.ZIP: "a zip archive",
    Kind.NPY: "a NumPy array",
    Kind.NPZ: "an archive of NumPy arrays",
    Kind.GZIP: "compressed data (gzip)",
    Kind.BZ2: "compressed data (bzip2)",
    Kind.XZ: "compressed data (xz)",
    Kind.ZSTD: "compressed data (zstd)",
    Kind.TAR: "a tar archive",
    Kind.JSON: "JSON",
    Kind.UNKNOWN: "of no format that is known here",
}
_MAGIC: Final = (
    (b"\x1f\x8b\x08", Kind.GZIP),
    (b"BZh", Kind.BZ2),
    (b"\xfd7zXZ\0", Kind.XZ),
    (b"\x28\xb5\x2f\xfd", Kind.ZSTD),
)


def identify(file: BinaryIO | bytes, *, limits: PickleLimits = DEFAULT_PICKLE_LIMITS) -> Kind:
    r"""Say what a file is, and leave it at its beginning.

    A file that two readers could take for two things is refused. So is one with bytes that belong
    to nothing: before the first or between the members of an archive, behind its end, behind the
    tensors of safetensors, behind a pickle. Two are told by their beginning alone: compressed
    data, and PyTorch's format before 1.6, whose storages only its plan can measure.

    Of a large file, the parts that tell are read, and at most as much as a pickle may have.

    ```python
    import pickle

    from safepoint.errors import ModelMalformed
    from safepoint.pickles.kinds import identify

    print(identify(pickle.dumps([1, 2])).sentence)
    #> a pickle
    try:
        identify(pickle.dumps([1, 2]) + b"PK\x03\x04")
    except ModelMalformed as error:
        print(error.what)
        #> The file is a pickle, and something else follows at byte 20.
    ```

    Args:
        file: a file that is open for reading, or its content.
        limits: how much of it may be a pickle.

    Raises:
        ModelMalformed: it is two things at once, or has bytes that belong to none.
        LimitExceeded: it may be a pickle or JSON, and is too large to tell.
        OSError: the file cannot be read.
        ConfigurationError: it is no file, and no bytes.
    """
    if isinstance(file, str | os.PathLike) or not (
        isinstance(file, bytes) or hasattr(file, "seek")
    ):
        raise ConfigurationError(
            "identify takes an open file or bytes.", 'Write identify(open("model.pt", "rb")).'
        )
    stream = io.BytesIO(file) if isinstance(file, bytes) else file
    size = stream.seek(0, os.SEEK_END)
    try:
        return _identify(stream, size, limits)
    except MemoryError:
        problem = out_of_memory()
    finally:
        stream.seek(0)
    raise problem


def _identify(file: BinaryIO, size: int, limits: PickleLimits) -> Kind:
    if not size:
        return Kind.EMPTY
    head = read_at(file, 0, HEAD)
    if head[:4] in (b"PK\3\4", b"PK\5\6"):
        found = [_zipped(member_names(file, size))]
    else:
        if ends_as_zip(file, size):
            raise ModelMalformed(
                "The file does not begin as a zip archive, and ends as one.", AGAIN
            )
        found = _marked(file, head, size)
        if found == [Kind.SAFETENSORS]:
            _check_no_pickle(file, limits)
        elif not found:
            found = _pickled(pickles_in(file, size, limits), size)
    names = tar_names(file, head, size)
    if names is not None:
        found.append(Kind.TORCH_TAR if "storages" in names and "pickle" in names else Kind.TAR)
    if not found and is_json(file, head, size, limits.data_bytes):
        return Kind.JSON
    if len(found) > 1:
        raise ModelMalformed(
            f"The file is two things at once: {found[0].sentence}, and {found[1].sentence}.",
            AGAIN,
        )
    return found[0] if found else Kind.UNKNOWN


def _marked(file: BinaryIO, head: bytes, size: int) -> list[Kind]:
    """Tell by the first bytes, which no two of these formats share."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return [kind]
    if _SEALED.match(head):
        return [Kind.SEALED]
    if is_array(head, size):
        return [Kind.NPY]
    return [Kind.SAFETENSORS] if is_safetensors(file, head, size) else []


def _check_no_pickle(file: BinaryIO, limits: PickleLimits) -> None:
    """Refuse a safetensors file that an unpickler would follow to somewhere.

    The length of the header is any number, and reads as one or two instructions. What goes on for
    longer than is looked at, as one long line does, is no reason to refuse a file of tensors.
    """
    walked = walk(file, limits)
    if walked.asks:
        raise ModelMalformed(
            "The file is two things at once: a safetensors file, and a pickle that asks for"
            f" something by byte {walked.end}.",
            AGAIN,
        )
    if walked.stopped and walked.opcodes > _CHANCE:
        raise ModelMalformed(
            f"The file is a pickle, and something else follows at byte {walked.end}.", AGAIN
        )


def _zipped(names: list[str]) -> Kind:
    inner = {name.partition("/")[2] for name in names}
    if inner & {"constants.pkl", "bytecode.pkl"} or any(n.startswith("code/") for n in inner):
        return Kind.TORCH_SCRIPT
    if "data.pkl" in inner:
        return Kind.TORCH_ZIP
    return Kind.NPZ if names and all(name.endswith(".npy") for name in names) else Kind.ZIP


def _pickled(found: Pickles | None, size: int) -> list[Kind]:
    if found is None:
        return []
    if found.is_torch:
        return [Kind.TORCH_LEGACY]
    if found.end < size:
        raise ModelMalformed(
            f"The file is a pickle, and something else follows at byte {found.end}.", AGAIN
        )
    return [Kind.PICKLE if found.count == 1 else Kind.PICKLES]
