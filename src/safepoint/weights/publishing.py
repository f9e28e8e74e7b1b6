"""A model and its seal appear together, or not at all, and never over another.

The tensors are written and synced under a name that begins with `.safepoint-model-`. Then comes
the seal, under its own name, and last the model's name: from that instant on there is a checkpoint.
A crash before it leaves a seal without a model, which is nothing; the next save sets it aside.
What a crash leaves under a temporary name, the next save in that folder removes.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from safepoint import _files as _posix
from safepoint.errors import Conflict, StorageUnavailable, shell
from safepoint.weights.seals import ENDING

_TEMP: Final = ".safepoint-model-"
_TEMP_NAME: Final = re.compile(re.escape(_TEMP) + r"[0-9a-f]{32}\Z")
_CREATE: Final = (
    os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
_PATIENCE: Final = 60.0


class Slot:
    """A file in the making, beside where it will be.

    Attributes:
        path: where it will be.
        file: where to write it.
    """

    def __init__(self, path: str, folder: int, temp: str, file: BinaryIO) -> None:
        self.file = file
        self.path = path
        self._folder = folder
        self._temp = temp

    def publish(self, seal: bytes) -> None:
        """Give the file its name, and put its seal beside it.

        Raises:
            Conflict: something of that name appeared meanwhile.
            StorageFull: there is no room.
            StorageUnavailable: another step failed. Nothing appears under the name.
        """
        with _posix.translated("save to", self.path):
            os.fsync(self.file.fileno())
            with _locked(self._folder):
                name = Path(self.path).name
                # By descriptor: the path may lead elsewhere by now.
                _check_free(self.path, name, self._folder)
                with _set_aside(name + ENDING, self._folder):
                    _put_seal(self._folder, name, seal)
                    try:
                        self._put_model(name)
                    except BaseException:
                        _remove(name + ENDING, self._folder)
                        raise

    def _put_model(self, name: str) -> None:
        try:
            os.link(self._temp, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileExistsError:
            raise _taken(self.path) from None
        try:
            os.fsync(self._folder)
        except BaseException:
            _remove(name, self._folder)
            raise


@contextmanager
def slot(path: str) -> Iterator[Slot]:
    """Make room for a model file: a temporary one in the same folder, gone at the end.

    Raises:
        Conflict: there is a file of that name.
        StorageFull: there is no room.
        StorageUnavailable: the folder is missing or cannot be written, or this is not POSIX.
    """
    _posix.require_posix()
    with _folder_of(path) as folder:
        _check_free(path, Path(path).name, folder)
        temp = _temp()
        with _posix.translated("save to", path), _locked(folder):
            _clean(folder)
            fd = os.open(temp, _CREATE, 0o600, dir_fd=folder)
            _posix.try_lock(fd)  # so that nobody takes it for a left-over
        try:
            with os.fdopen(fd, "r+b", buffering=0) as file:
                os.fchmod(fd, 0o600)  # whatever the umask
                yield Slot(path, folder, temp, file)
        finally:
            _remove(temp, folder)


def publish_seal(path: str, seal: bytes) -> None:
    """Put a seal beside a file that is there.

    Raises:
        Conflict: it has one.
        StorageFull: there is no room.
        StorageUnavailable: the folder cannot be written.
    """
    _posix.require_posix()
    with _folder_of(path) as folder, _posix.translated("save to", path + ENDING), _locked(folder):
        try:
            _put_seal(folder, Path(path).name, seal)
        except FileExistsError:
            raise Conflict(
                f"{shell(path)} has a seal already.",
                f"Verify it instead; to seal the file anew, move {shell(path + ENDING)} away.",
            ) from None


def _temp() -> str:
    return f"{_TEMP}{secrets.token_hex(16)}"


def _clean(folder: int) -> None:
    """Remove what crashed savers left. A living one holds a lock on its own."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if _TEMP_NAME.match(entry.name)]
    for name in names:
        # A left-over harms nobody, so one that cannot be removed is no reason to stop.
        with suppress(OSError), _posix.opened(name, _posix.READ, folder) as fd:
            if _posix.try_lock(fd):
                os.unlink(name, dir_fd=folder)


def _put_seal(folder: int, name: str, seal: bytes) -> None:
    """Make a seal appear, whole and on disk, and never over another.

    Raises:
        FileExistsError: there is one.
        OSError: another step failed. Nothing is left behind.
    """
    temp = _temp()
    try:
        with _posix.opened(temp, _CREATE, folder) as descriptor:
            os.fchmod(descriptor, 0o600)  # whatever the umask
            _posix.write_all(descriptor, seal)
            os.fsync(descriptor)
        os.link(temp, name + ENDING, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        try:
            os.fsync(folder)
        except BaseException:
            _remove(name + ENDING, folder)
            raise
    finally:
        _remove(temp, folder)


@contextmanager
def _set_aside(name: str, folder: int) -> Iterator[None]:
    """Keep a seal whose model is gone under another name: it may hold the rest of a checkpoint."""
    aside = f"{name}.{secrets.token_hex(4)}"
    if not _is_file(name, folder):
        yield  # nothing; or something that no seal can take the place of
        return
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.link(aside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(aside, dir_fd=folder)
        raise


def _is_file(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _remove(name: str, folder: int) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


@contextmanager
def _locked(folder: int) -> Iterator[None]:
    if not _posix.wait_for_lock(folder, _PATIENCE):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    try:
        yield
    finally:
        _posix.unlock(folder)


@contextmanager
def _folder_of(path: str) -> Iterator[int]:
    folder = str(Path(path).parent)
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError as error:
        raise StorageUnavailable(
            f"The folder {shell(folder)} cannot be opened ({error.strerror}).",
            f"Make it first: mkdir -p -m 700 {shell(folder)}",
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_free(path: str, name: str, folder: int) -> None:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _posix.translate(error, "save to", path) from None
    raise _taken(path)


def _taken(path: str) -> Conflict:
    return Conflict(
        f"{shell(path)} exists, and a checkpoint is never overwritten.",
        "Nothing was saved. Give the new one a name of its own, with the epoch or the date in it.",
    )
