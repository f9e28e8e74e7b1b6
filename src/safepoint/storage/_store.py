"""Store: the folder of a file storage, opened and looked at anew for each call."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from safepoint import _files as _posix
from safepoint._files import enforce, location_refusals
from safepoint.errors import InvalidId, StorageUnavailable, UnsafeLocation, shell
from safepoint.names import check_name
from safepoint.storage._temps import Lost, clean
from safepoint.storage._thread import RECORD_NAME, TEMPS, ThreadFolder, exists

_ATTEMPTS = 5
_T = TypeVar("_T")


class Absent(Exception):
    """The store has no folder of that thread."""


class Store:
    """Opens the folders of a store, by descriptor, and remembers which folder it is.

    Args:
        path: the folder, absolute. It is created if it is missing, and left-overs are removed.
        limit: how many bytes a record may have.

    Raises:
        UnsafeLocation: others could change what is stored there.
        StorageUnavailable: the folder cannot be made.
        OSError: the folder cannot be opened.
    """

    __slots__ = ("_identity", "_limit", "path")

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self._limit = limit
        enforce(location_refusals(path))
        _posix.create_root(path)
        root = _posix.folder(path, path)
        self._identity = _identity(root.info)
        with root, suppress(FileNotFoundError), self._folder(root.fd, TEMPS) as temps:
            clean(temps)

    def root(self) -> _posix.Descriptor:
        """Open the folder of the store.

        Raises:
            UnsafeLocation: others could change it, or it is another folder than before.
            OSError: it cannot be opened.
        """
        root = _posix.folder(self.path, self.path)
        if _identity(root.info) != self._identity:
            with root:
                raise UnsafeLocation(
                    f"{shell(self.path)} is not the folder that this storage was opened on.",
                    "Find out who replaced it, and construct the storage again if that is right:"
                    f" ls -ld {shell(self.path)}",
                )
        return root

    def thread(self, name: str, *, create: bool = False) -> ThreadFolder:
        """Open the folder of a thread.

        Raises:
            Absent: there is none.
            UnsafeLocation: others could change what is stored there.
            OSError: it cannot be opened.
        """
        root = self.root()
        try:
            if create and not exists(name, root.fd):
                _posix.make_folder(name, root.fd)
            try:
                folder = self._folder(root.fd, name)
            except FileNotFoundError:
                raise Absent from None
        except BaseException:
            os.close(root.fd)
            raise
        return ThreadFolder(self.path, name, root.fd, folder.fd, self._limit)

    def temps(self, root: int) -> _posix.Descriptor:
        """Open the folder for files on their way in, which is made if it is missing.

        Raises:
            UnsafeLocation: others could change what is in it.
            OSError: it cannot be opened.
        """
        if not exists(TEMPS, root):
            _posix.make_folder(TEMPS, root)
        return self._folder(root, TEMPS)

    def persist(self, done: str, write: Callable[[], _T]) -> _T:
        """Let a write that lost its temporary file be tried again, a few times.

        Raises:
            StorageUnavailable: it was tried often enough.
        """
        for _ in range(_ATTEMPTS):
            with suppress(Lost):
                return write()
        raise StorageUnavailable(
            f"Something interferes with the files in {shell(f'{self.path}/{TEMPS}')},"
            f" so nothing was {done}.",
            "Find out what it is, and keep it away from the folder.",
        )

    def threads(self) -> list[str]:
        """Return the name of each thread that has a file of its own.

        Raises:
            UnsafeLocation: others could change what is stored there.
            OSError: a folder cannot be listed.
        """
        found = []
        with self.root() as root:
            with os.scandir(root) as entries:
                names = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
            for name in filter(is_thread, names):
                with (
                    suppress(FileNotFoundError),
                    self._folder(root, name) as folder,
                    os.scandir(folder) as files,
                ):
                    if any(RECORD_NAME.match(file.name) for file in files):
                        found.append(name)
        return found

    def _folder(self, root: int, name: str) -> _posix.Descriptor:
        return _posix.folder(f"{self.path}/{name}", name, root)


def is_thread(name: str) -> bool:
    """Tell whether a name found in the folder is one that a thread can have."""
    try:
        check_name("thread", name)
    except InvalidId:
        return False
    return True


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino
