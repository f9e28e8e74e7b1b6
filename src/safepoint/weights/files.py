"""Opening a model file: a regular file within the limit, seen once, told apart by its content."""

from __future__ import annotations

import errno
import io
import mmap
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from safepoint.errors import (
    ConfigurationError,
    LimitExceeded,
    ModelError,
    ModelMalformed,
    NotFound,
    StorageUnavailable,
    shell,
)
from safepoint.pickles.kinds import Kind, identify
from safepoint.weights.digest import digest
from safepoint.weights.limits import ModelLimits
from safepoint.weights.tensorfile import open_tensorfile

SAFETENSORS: Final = ".safetensors"
# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
_READ: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_LFS: Final = b"version https://git-lfs.github.com/spec/v1"
_ABOUT: Final = re.compile(r"\AThe (?:safetensors file|file|archive)\b")
_TORCH_NAMES: Final = frozenset([".pt", ".pth", ".ckpt", ".bin"])


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model file, open.

    Attributes:
        path: where it is.
        file: its bytes. If others could write the file, they are a copy in memory.
        size: how many.
        private: whether nobody but this user can write the file.
        kind: what it is, by its content.
    """

    path: str
    file: BinaryIO
    size: int
    private: bool
    kind: Kind

    @property
    def shown(self) -> str:
        """The path, for a message."""
        return shell(self.path)

    def digest(self) -> str:
        """Return the digest of all its bytes."""
        if isinstance(self.file, io.BytesIO):
            return digest(self.file.getbuffer())
        try:
            with mmap.mmap(self.file.fileno(), self.size, access=mmap.ACCESS_READ) as mapped:
                return digest(mapped)
        except OSError as error:
            raise _unreadable(self.path, error) from None
        except ValueError:
            raise ModelMalformed(
                f"{self.shown} became shorter while it was read.",
                "Nothing was loaded. Wait until whoever writes it is done.",
            ) from None


@contextmanager
def open_model(path: str | os.PathLike[str], limits: ModelLimits) -> Iterator[ModelFile]:
    """Open a model file.

    Everything after this looks at the same bytes: the same open file if nobody else can write it,
    else a copy. Whoever swaps or edits the file meanwhile changes nothing.

    Raises:
        ConfigurationError: the path is no path.
        NotFound: there is no such file.
        StorageUnavailable: it is a folder, a pipe or a device, or cannot be read.
        LimitExceeded: it is larger than `limits.file_bytes`.
        ModelMalformed: it is empty, two things at once, or not what its name says.
    """
    name = path_of(path)
    with _opened(name) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limits.file_bytes:
            raise LimitExceeded(
                f"{shell(name)} is {size} bytes, over the limit of {limits.file_bytes}.",
                "If it is meant to be that large, raise ModelLimits.file_bytes.",
            )
        private = is_private(file.fileno())
        seen: BinaryIO = file if private else io.BytesIO(_copied(file, name, size))
        with about(shell(name)):
            kind = _told_apart(seen, name, limits)
        yield ModelFile(name, seen, size, private, kind)


@contextmanager
def about(shown: str) -> Iterator[None]:
    """Let a refusal say which file it is about."""
    try:
        yield
    except (ModelError, LimitExceeded) as error:
        if shown in error.what:
            raise
        what = error.what
        begins = _ABOUT.match(what)
        what = f"{shown}{what[begins.end() :]}" if begins else f"{shown}: {what}"
        raise type(error)(what, error.do) from None


def path_of(path: object) -> str:
    """Return the path as text.

    Raises:
        ConfigurationError: it is none.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigurationError(
            f"A model's path is a text or a Path, not {type(path).__name__}."
            if text is None
            else "This cannot be the path of a file.",
            'Write load_checkpoint("model.safetensors").',
        )
    return text


def is_private(descriptor: int) -> bool:
    """Tell whether this user alone can write the file that is open.

    Root can, always. Whoever writes as this user can reach into the process itself.
    """
    information = os.fstat(descriptor)
    return (
        os.name == "posix"
        and information.st_uid in (os.geteuid(), 0)
        and not information.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(name, _READ)
    except FileNotFoundError:
        raise NotFound(
            f"There is no file {shell(name)}.", "Check the path. Nothing was loaded."
        ) from None
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None
    try:
        _check_regular(name, os.fstat(descriptor).st_mode)
        # Buffered: a bare read gives at most 2 GiB, and PyTorch does not ask for the rest.
        file = os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
    with file:
        yield file


def _check_regular(name: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise StorageUnavailable(f"{shell(name)} is a folder.", "Name the file of the model in it.")
    if not stat.S_ISREG(mode):
        raise StorageUnavailable(
            f"{shell(name)} is not a regular file.", "Name a file; nothing else is read."
        )


def _unreadable(name: str, error: OSError | ValueError) -> StorageUnavailable:
    code = errno.errorcode.get(getattr(error, "errno", None) or 0, "not a path")
    return StorageUnavailable(
        f"{shell(name)} cannot be read ({code}).", "Name a file that this user can read."
    )


def _copied(file: BinaryIO, name: str, size: int) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise _unreadable(name, error) from None


def unknown(name: str) -> ModelMalformed:
    """Return the error for a file that nobody knows."""
    return ModelMalformed(
        f"{shell(name)} is of no format that is known here.",
        "Nothing was loaded. It may be damaged or cut short: copy it again, and check that it is"
        " the model.",
    )


def _say_what_is_wrong(file: BinaryIO, name: str, limits: ModelLimits) -> None:
    """Name what keeps a file from being a model, if it looks as if it should be one."""
    head = file.read(len(_LFS))
    file.seek(0)
    if head == _LFS:
        raise ModelMalformed(
            f"{shell(name)} is a pointer of Git LFS, and not the model itself.",
            "Nothing was loaded. Fetch the model: git lfs pull",
        )
    if head[8:9] == b"{" and Path(name).suffix.lower() == SAFETENSORS:
        open_tensorfile(file, limits, private=False).table()


def _told_apart(file: BinaryIO, name: str, limits: ModelLimits) -> Kind:
    """Return what the file is, and refuse a name that says otherwise.

    Tools choose a loader by the name, and people trust a file by it.
    """
    try:
        kind = identify(file)
    except ModelMalformed as error:
        raise ModelMalformed(f"{shell(name)}: {error.what}", error.do) from None
    except OSError as error:
        raise _unreadable(name, error) from None
    file.seek(0)
    if kind is Kind.EMPTY:
        raise ModelMalformed(
            f"{shell(name)} is empty.", "Copy it again: the save or the copy did not finish."
        )
    ending = Path(name).suffix.lower()
    if kind is Kind.UNKNOWN:
        _say_what_is_wrong(file, name, limits)
        if ending == SAFETENSORS:
            raise unknown(name)
    if (ending == SAFETENSORS) != (kind is Kind.SAFETENSORS) and (
        ending == SAFETENSORS or ending in _TORCH_NAMES
    ):
        raise ModelMalformed(
            f"{shell(name)} is {kind.sentence}, whatever its name says.",
            "Nothing was loaded. Ask who named it; if that was you, give it the right ending.",
        )
    return kind
