"""What is in a PyTorch archive, known before PyTorch sees it.

`torch.save` writes a zip: one pickle that describes the tensors, one member per storage with the
bytes of the tensors, and a few small members about the format. Anything else is refused.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from safepoint.errors import UnsafeModel, quoted
from safepoint.weights.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.weights.refusals import malformed, over_limit
from safepoint.weights.zipdirectory import read_directory
from safepoint.weights.zipmember import Member, read_exactly

_PICKLE: Final = "data.pkl"
_STORAGE: Final = re.compile(r"data/([0-9]{1,20})")
# What the small members may say. Each is read by PyTorch before the pickle.
_SMALL: Final[Mapping[str, re.Pattern[bytes]]] = {
    "version": re.compile(rb"[0-9]{1,4}\n?"),
    "byteorder": re.compile(rb"little|big"),
    ".format_version": re.compile(rb"[0-9]{1,4}"),
    ".storage_alignment": re.compile(rb"[0-9]{1,9}"),
    ".data/serialization_id": re.compile(rb"[0-9]{1,64}"),
}
_SMALL_BYTES: Final = 64
_SCRIPT: Final = re.compile(r"constants\.pkl|code/.*|constants/.*|.*\.debug_pkl", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Archive:
    """The contents of a PyTorch archive.

    Attributes:
        prefix: the folder that all members are in.
        pickle: the bytes that describe the tensors. Not trusted.
        storages: the bytes of each storage, by its key.
        byteorder: "little" or "big".
    """

    prefix: str
    pickle: bytes = field(repr=False)
    storages: Mapping[str, int]
    byteorder: str


def read_archive(file: BinaryIO, limits: ModelLimits = DEFAULT_MODEL_LIMITS) -> Archive:
    """Check a PyTorch archive and take its pickle out. No tensor is read.

    Args:
        file: the archive, open for reading in binary mode, and seekable.
        limits: how large it may be.

    Raises:
        ModelMalformed: it is not as `torch.save` writes it: damaged, ambiguous, or with more in it.
        UnsafeModel: it is TorchScript, which is code.
        LimitExceeded: it is too large, or has too many members.
    """
    members = read_directory(file, limits)
    prefix, inner = _named(members)
    if any(_SCRIPT.fullmatch(name) for name in inner):
        raise UnsafeModel(
            "The file is a TorchScript archive, which holds code.",
            "Save the state_dict of the model with safepoint.weights.save_checkpoint instead.",
        )
    storages = {}
    small = {}
    for name, member in inner.items():
        if match := _STORAGE.fullmatch(name):
            storages[match[1]] = member.size
        elif name in _SMALL:
            small[name] = _small(file, name, member)
        elif name != _PICKLE:
            raise malformed(
                f"The archive has a member that torch.save does not write: {quoted(name)}."
            )
    if _PICKLE not in inner or "version" not in small:
        raise malformed(
            "The archive has no data.pkl or no version, so torch.save did not write it."
        )
    pickle = inner[_PICKLE]
    if pickle.size > limits.pickle_bytes:
        raise over_limit(
            f"The pickle in the archive is {pickle.size} bytes, over the limit of "
            f"{limits.pickle_bytes}.",
            "pickle_bytes",
        )
    byteorder = small.get("byteorder", b"little").decode("ascii")
    return Archive(prefix, _content(file, pickle), storages, byteorder)


def _named(members: tuple[Member, ...]) -> tuple[str, dict[str, Member]]:
    """Return the one folder that all members are in, and the members by their name in it."""
    if not members:
        raise malformed("The archive is empty.")
    prefix, _, _ = members[0].name.partition("/")
    inner = {}
    for member in members:
        folder, _, name = member.name.partition("/")
        if folder != prefix or not name:
            raise malformed(
                f"The members of the archive are not all in one folder: {quoted(member.name)}."
            )
        if prefix in ("", ".", "..") or "\\" in member.name or not member.name.isprintable():
            raise malformed(f"A member of the archive has an unsafe name: {quoted(member.name)}.")
        inner[name] = member
    return prefix, inner


def _small(file: BinaryIO, name: str, member: Member) -> bytes:
    content = _content(file, member) if member.size <= _SMALL_BYTES else b""
    if not _SMALL[name].fullmatch(content):
        raise malformed(f"The member {name} of the archive does not say what PyTorch writes there.")
    return content


def _content(file: BinaryIO, member: Member) -> bytes:
    """Return the bytes of a member whose size was checked."""
    data = read_exactly(file, member.start, member.packed)
    if member.deflated:
        data = _inflated(data, member)
    if member.crc and zlib.crc32(data) != member.crc:
        raise malformed(f"The member {quoted(member.name)} does not match its checksum.")
    return data


def _inflated(packed: bytes, member: Member) -> bytes:
    reader = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = reader.decompress(packed, member.size + 1)
    except zlib.error:
        data = b""
    if len(data) != member.size or not reader.eof or reader.unused_data:
        raise malformed(f"The member {quoted(member.name)} is not compressed as its entry says.")
    return data
