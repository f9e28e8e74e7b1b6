"""Pickles taken out of what holds them: a file, an archive, an array, JSON. Nothing is unpickled.

How much there is to look at was chosen by whoever wrote the file, so all of it is bounded. What is
not looked at is said.
"""

from __future__ import annotations

import base64
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    DecodeError,
    LimitExceeded,
    ModelMalformed,
    NotFound,
    PickleRefused,
    StorageUnavailable,
    quoted,
    shell,
)
from safepoint.migrate import strict_json
from safepoint.pickles._arrays import MOST
from safepoint.pickles.kinds import Kind, identify
from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits, out_of_memory
from safepoint.pickles.opcodes import too_large
from safepoint.pickles.scanning import scan
from safepoint.pickles.sniffing import asks_for_names, begins, is_whole
from safepoint.pickles.unzipping import LOOK, Piece, Taken, objects, unzip
from safepoint.pickles.walking import walk

PICKLED: Final = "__pickled__"
TYPE: Final = "__type__"
_DEPTH: Final = 200
_OF_ADDRESSES: Final = str.maketrans("-_", "+/")
_WORD: Final = re.compile(r"[A-Za-z_]\w{0,40}\Z", re.ASCII)
_OPEN: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_STACKED: Final = (Kind.PICKLE, Kind.PICKLES, Kind.TORCH_LEGACY)
_ZIPPED: Final = (Kind.TORCH_ZIP, Kind.TORCH_SCRIPT, Kind.ZIP, Kind.NPZ)
_CLOSED: Final = (Kind.GZIP, Kind.BZ2, Kind.XZ, Kind.ZSTD, Kind.TAR, Kind.TORCH_TAR)


def take(
    source: str | os.PathLike[str] | bytes, *, limits: PickleLimits = DEFAULT_PICKLE_LIMITS
) -> Taken:
    """Take the pickles out of a file, or out of the bytes of one.

    Raises:
        ConfigurationError: it is neither a path nor bytes.
        NotFound: there is no such file.
        StorageUnavailable: it is a folder, a pipe or a device, or cannot be read.
        PickleRefused: it is two things at once, or a damaged archive.
        LimitExceeded: a pickle in it is too large, or there is too much of it.
    """
    with opened(source) as file:
        return take_from(file, limits)


def take_from(file: BinaryIO, limits: PickleLimits) -> Taken:
    """Take the pickles out of a file that is open.

    Raises:
        PickleRefused: it is two things at once, or a damaged archive.
        LimitExceeded: a pickle in it is too large, or there is too much of it.
    """
    try:
        kind = identify(file)
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return _taken(file, Taken(kind, size), limits)
    except (ModelMalformed, DecodeError) as error:
        problem: CheckpointError = PickleRefused(error.what, error.do)
    except MemoryError:
        problem = out_of_memory()
    raise problem


@contextmanager
def opened(source: object) -> Iterator[BinaryIO]:
    """Open a file for a look, once: whoever swaps it meanwhile changes nothing.

    Raises:
        ConfigurationError: it is neither a path nor bytes.
        NotFound: there is no such file.
        StorageUnavailable: it is a folder, a pipe or a device, or cannot be read.
    """
    if isinstance(source, bytes):
        yield io.BytesIO(source)
        return
    if not isinstance(source, (str, os.PathLike)):
        raise ConfigurationError(
            f"A path or bytes can be looked at, and this is {type(source).__name__}.",
            'Write inspect("model.pt").',
        )
    try:
        descriptor = os.open(source, _OPEN)
    except FileNotFoundError:
        raise NotFound(f"There is no file {_shown(source)}.", "Check the path.") from None
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StorageUnavailable(
                f"{_shown(source)} is a folder, a pipe or a device.", "Name a file."
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    except OSError as error:
        raise _unreadable(source, error) from None
    finally:
        os.close(descriptor)


def _unreadable(source: str | os.PathLike[str], error: OSError | ValueError) -> StorageUnavailable:
    reason = error.strerror if isinstance(error, OSError) else "not a path"
    return StorageUnavailable(
        f"{_shown(source)} cannot be read ({reason}).", "Name a file that this user can read."
    )


def _shown(source: str | os.PathLike[str]) -> str:
    return shell(os.fsdecode(source))


def _taken(file: BinaryIO, taken: Taken, limits: PickleLimits) -> Taken:
    kind = taken.kind
    if kind in _STACKED:
        data = file.read(limits.data_bytes + 1)
        if kind is not Kind.TORCH_LEGACY and len(data) > limits.data_bytes:
            raise too_large(limits)
        _stacked(data, taken, limits)
    elif kind in _ZIPPED:
        unzip(file, taken, limits)
    elif kind is Kind.NPY:
        objects("", file.read(MOST), taken.size, file, taken, limits)
    elif kind is Kind.JSON:
        text = file.read(limits.data_bytes + 1)
        value = strict_json(text, "The file", limits.data_bytes, limits.nodes)
        taken.pieces += embedded(value, limits)
    elif kind is Kind.SAFETENSORS:
        if walk(file, limits).over:
            taken.unseen.append("It reads as a pickle, too, for longer than was looked at.")
    elif kind in _CLOSED:
        taken.unseen.append(f"It is {kind.sentence}, which is not entered.")
    elif kind is Kind.UNKNOWN:
        data = file.read(limits.data_bytes)
        if begins(data, limits):
            taken.pieces.append(Piece("", data))
        else:
            taken.unseen.append(f"It is {kind.sentence}.")
    return taken


def _stacked(data: bytes, taken: Taken, limits: PickleLimits) -> None:
    start, most = 0, 5 if taken.kind is Kind.TORCH_LEGACY else limits.opcodes
    while start < len(data) and len(taken.pieces) < most:
        found = scan(data, start, limits=limits)
        where = f"pickle {len(taken.pieces) + 1} (byte {start})"
        taken.pieces.append(Piece(where, data[start : found.end]))
        if found.broken is not None:
            break
        start = found.end
    if len(taken.pieces) == 1:
        taken.pieces = [Piece("", taken.pieces[0].data)]
    taken.trailing = taken.size - start


def embedded(value: Any, limits: PickleLimits) -> Iterator[Piece]:
    """Return each pickle that JSON carries in base64, as Agent Framework writes it.

    Raises:
        LimitExceeded: it is nested too deep.
        PickleRefused: what is marked as a pickle is no base64.
    """
    for where, key, text in _texts(value, "", 0):
        data = _decoded(text, strict=key == PICKLED)
        if data is None:
            if key == PICKLED:
                raise PickleRefused(f"{where} is marked as a pickle, and is no base64.", LOOK)
        # A pickle of protocol 2 or later begins with PROTO. Few texts do by chance.
        elif (
            key == PICKLED
            or (data[:1] == b"\x80" and is_whole(data, limits))
            or asks_for_names(data, limits)
        ):
            yield Piece(where, data)


def _decoded(text: str, *, strict: bool) -> bytes | None:
    """Return what base64 says, None if it is none. Readers forgive spaces and a missing end."""
    if not strict:
        text = "".join(text.split()).translate(_OF_ADDRESSES).rstrip("=")
        text += "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def _texts(value: Any, where: str, depth: int) -> Iterator[tuple[str, str, str]]:
    """Return where each text is, the key that it stands under, and the text."""
    if depth > _DEPTH:
        raise LimitExceeded(f"The file is nested deeper than {_DEPTH} levels.", LOOK)
    if isinstance(value, dict):
        for key, inner in value.items():
            inside = where if key == PICKLED else step(where, key)
            if isinstance(inner, str):
                yield inside, key, inner
            else:
                yield from _texts(inner, inside, depth + 1)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, f"{where}[{number}]", depth + 1)
    elif isinstance(value, str):
        yield where, "", value


def step(where: str, key: str) -> str:
    """Return the place of a key, for a message: `state.x`, or `state['...']` for an odd one."""
    return f"{where}.{key}".lstrip(".") if _WORD.match(key) else f"{where}[{quoted(key)}]"
