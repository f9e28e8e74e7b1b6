"""A safetensors file: one buffer that is verified, read as a table, and viewed as tensors."""

from __future__ import annotations

import io
import mmap
import os
from typing import TYPE_CHECKING, Any, BinaryIO

from safepoint.errors import LimitExceeded, ModelMalformed, quoted
from safepoint.weights import _packages
from safepoint.weights.digest import digest
from safepoint.weights.dtypes import check_byte_order
from safepoint.weights.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.weights.table import Table, read_table

if TYPE_CHECKING:
    import torch


class TensorFile:
    """The bytes of a safetensors file, in memory that nobody else can change.

    The order of work: `digest` against what was sealed, then `table` against a schema, then
    `tensors`. All three look at the same bytes.
    """

    __slots__ = ("_buffer", "_limits", "_table")

    def __init__(self, buffer: Any, limits: ModelLimits = DEFAULT_MODEL_LIMITS) -> None:
        if memoryview(buffer).readonly:
            buffer = bytearray(buffer)  # a tensor on memory that it may not write is no safe tensor
        self._buffer = buffer
        self._limits = limits
        self._table: Table | None = None

    @property
    def buffer(self) -> Any:
        """The bytes."""
        return self._buffer

    def digest(self) -> str:
        """Return the digest of all bytes: `sha256-tree:…`."""
        return digest(self._buffer)

    def table(self) -> Table:
        """Return which tensors it holds.

        Raises:
            ModelMalformed: it is not a safetensors file, or has a second meaning.
            LimitExceeded: it has too many or too large tensors.
        """
        if self._table is None:
            self._table = read_table(self._buffer, len(self._buffer), self._limits)
        return self._table

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by name. They are views of the buffer, which lives as long as they do.

        Raises:
            MissingPackage: torch is not installed.
            ModelUnsupported: this machine stores the high byte of a number first.
            ModelMalformed: it is not a safetensors file, or has a second meaning.
            LimitExceeded: it has too many or too large tensors.
        """
        check_byte_order()
        torch = _packages.torch()
        buffer = self._buffer
        view = torch.frombuffer
        address = view(buffer, dtype=torch.uint8, count=1).data_ptr()
        widths: dict[str, tuple[Any, int]] = {}
        tensors = {}
        for name, (kind, shape, begin, end) in self.table().tensors.items():
            if kind not in widths:
                dtype = getattr(torch, kind)
                widths[kind] = dtype, dtype.itemsize
            dtype, width = widths[kind]
            if begin == end:
                tensors[name] = torch.empty(shape, dtype=dtype)
            elif (address + begin) % width:
                raw = view(buffer, dtype=torch.uint8, count=end - begin, offset=begin)
                tensors[name] = raw.clone().view(dtype).view(shape)
            else:
                tensor = view(buffer, dtype=dtype, count=(end - begin) // width, offset=begin)
                tensors[name] = tensor if len(shape) == 1 else tensor.view(shape)
            if kind == "bool" and begin != end:
                self._check_truth(torch, name, begin, end)
        return tensors

    def _check_truth(self, torch: Any, name: str, begin: int, end: int) -> None:
        """Refuse a third truth value: what code compiled for two does with it is undefined."""
        raw = torch.frombuffer(self._buffer, dtype=torch.uint8, count=end - begin, offset=begin)
        if int(raw.max()) > 1:
            raise ModelMalformed(
                f"The tensor {quoted(name)} holds a byte that is neither true nor false.",
                "Nothing was loaded. Save the model again with safetensors or save_checkpoint.",
            )


def open_tensorfile(
    file: BinaryIO, limits: ModelLimits = DEFAULT_MODEL_LIMITS, *, private: bool
) -> TensorFile:
    """Take the bytes of an open file: mapped if nobody else can write it, else read once.

    A mapping is private, so that a change of a tensor never reaches the file. It is not a copy:
    whoever can write the file may change a page that was not touched yet, or cut it off.

    Args:
        file: a file, or an `io.BytesIO` whose content is used as it is.
        limits: what is too large.
        private: whether nobody but this user and root can write it.

    Raises:
        ModelMalformed: it is empty, or became shorter while it was read.
        LimitExceeded: it is too large.
        OSError: it cannot be read.
    """
    if isinstance(file, io.BytesIO):
        buffer: Any = file.getbuffer()
        size = len(buffer)
    else:
        buffer = None
        size = os.fstat(file.fileno()).st_size
    if size > limits.file_bytes:
        raise LimitExceeded(
            f"The safetensors file is {size} bytes, over the limit of {limits.file_bytes}.",
            "If it is meant to be that large, raise ModelLimits.file_bytes.",
        )
    if not size:
        raise ModelMalformed(
            "The safetensors file is empty.", "Copy it again: the save or the copy did not finish."
        )
    if buffer is None:
        buffer = _mapped(file, size) if private else _read(file, size)
    return TensorFile(buffer, limits)


def open_tensors(
    file: BinaryIO, limits: ModelLimits = DEFAULT_MODEL_LIMITS, *, private: bool
) -> dict[str, torch.Tensor]:
    """Return the tensors of an open safetensors file by name. See `open_tensorfile`.

    Raises:
        MissingPackage: torch is not installed.
        ModelUnsupported: this machine stores the high byte of a number first.
        ModelMalformed: it is not a safetensors file, or has a second meaning.
        LimitExceeded: it is too large, or has too many or too large tensors.
        OSError: it cannot be read.
    """
    return open_tensorfile(file, limits, private=private).tensors()


def _mapped(file: BinaryIO, size: int) -> mmap.mmap:
    try:
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    except ValueError:
        raise _shorter() from None


def _read(file: BinaryIO, size: int) -> mmap.mmap:
    # Memory of the system, not a bytearray: its pages are not zeroed twice, and it is aligned.
    # ACCESS_COPY, or a process that is forked later would write into the same tensors.
    buffer = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
    with memoryview(buffer) as room:
        file.seek(0)
        filled = 0
        while filled < size:
            with room[filled:] as rest:
                count = file.readinto(rest)  # type: ignore[attr-defined]
            if not count:
                raise _shorter()
            filled += count
    return buffer


def _shorter() -> ModelMalformed:
    return ModelMalformed(
        "The safetensors file became shorter while it was read.",
        "Nothing was loaded. Load it again once nobody writes it.",
    )
