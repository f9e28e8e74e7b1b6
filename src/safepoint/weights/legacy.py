"""The format that `torch.save` wrote before 1.6, and writes on request: five pickles, then bytes.

A magic number, a version, a description of the machine, the value itself, and the list of its
storages; after that each storage, as a count of its elements and its bytes, up to the end.
"""

from __future__ import annotations

import struct
import tarfile
from typing import Any, BinaryIO, Final

from safepoint.errors import ModelMalformed
from safepoint.pickles.opcodes import CUT
from safepoint.weights.limits import ModelLimits
from safepoint.weights.reciting import Reciter
from safepoint.weights.refusals import malformed, over_limit
from safepoint.weights.tensorplan import SIZES, Storage
from safepoint.weights.zipmember import read_exactly

_MAGIC: Final = 0x1950A86A20F9469CFC6C
_VERSION: Final = 1001
_COUNT: Final = struct.Struct("<q")
_TAR_BLOCK: Final = tarfile.BLOCKSIZE


def read_legacy(file: BinaryIO, reciter: Reciter, limits: ModelLimits) -> Any:
    """Return what a file of the old format describes, and check its storages.

    Raises:
        UnsafeModel: it wants a name that is not on the list.
        ModelMalformed: it is damaged, or not as `torch.save` writes it.
        LimitExceeded: it is too large.
    """
    size = file.seek(0, 2)
    if size > limits.file_bytes:
        raise over_limit(
            f"The file is {size} bytes, over the limit of {limits.file_bytes}.", "file_bytes"
        )
    head = read_exactly(file, 0, min(size, limits.pickle_bytes))
    if _is_tar(head):
        raise malformed("The file is a tar archive, too. PyTorch looks for that first.")
    try:
        value, keys, end = _recited(head, reciter)
    except ModelMalformed as error:
        if error.what != CUT or len(head) == size:
            raise
    else:
        _check_storages(file, size, end, keys, reciter.rebuilder.storages)
        return value
    raise over_limit(
        f"The pickles in the file are over the limit of {limits.pickle_bytes} bytes.",
        "pickle_bytes",
    )


def _recited(head: bytes, reciter: Reciter) -> tuple[Any, Any, int]:
    """Return the value, the list of its storages, and where the storages begin."""
    magic, end = reciter.next(head, 0, None)
    version, end = reciter.next(head, end, None)
    if (magic, version) != (_MAGIC, _VERSION):
        raise malformed("The file does not begin with the number of a PyTorch file.")
    _, end = reciter.next(head, end, None)
    value, end = reciter.next(head, end, lambda pid: _storage(reciter, pid))
    keys, end = reciter.next(head, end, None)
    return value, keys, end


def _storage(reciter: Reciter, identifier: object) -> Storage:
    storage = reciter.rebuilder.storage(identifier, 6)
    if storage.dtype is None:
        raise malformed("The old format cannot hold a type of elements that came after 2021.")
    return storage


def _check_storages(
    file: BinaryIO, size: int, at: int, keys: object, storages: dict[str, Storage]
) -> None:
    """Compare what the pickle says of the storages with the bytes that are left."""
    if (
        type(keys) is not list
        or any(type(key) is not str for key in keys)
        or len(keys) != len(storages)
        or set(keys) != storages.keys()
    ):
        raise malformed("The list of storages is not that of the tensors.")
    for key in keys:
        storage = storages[key]
        if size - at < _COUNT.size:
            raise malformed("The file is cut short.")
        (count,) = _COUNT.unpack(read_exactly(file, at, _COUNT.size))
        if count * SIZES[storage.dtype or "uint8"] != storage.nbytes:
            raise malformed(
                f"The storage {key} has {count} elements, and is {storage.nbytes} bytes in the"
                " pickle."
            )
        at += _COUNT.size + storage.nbytes
    if at != size:
        raise malformed("The file is cut short, or is followed by more.")


def _is_tar(head: bytes) -> bool:
    """Tell whether a reader of tar archives would take the first block for one of its headers."""
    try:
        tarfile.TarInfo.frombuf(head[:_TAR_BLOCK], "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True
