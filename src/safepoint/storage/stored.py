"""StoredFolder: a file storage for those who only look."""

from __future__ import annotations

import os
from typing import NoReturn

from safepoint import _files as _posix
from safepoint._files import absolute, enforce, location_refusals
from safepoint.errors import ConfigurationError, UnsafeLocation
from safepoint.names import DEFAULT_LIMITS, Limits
from safepoint.storage._store import Store, is_thread
from safepoint.storage.file import RECORD_NAME, FileCheckpointStorage


class StoredFolder(FileCheckpointStorage):
    """Reads what a `FileCheckpointStorage` wrote, by the same rules, and changes nothing.

    The storage itself makes the folder if it is missing, and removes what a crash left behind. An
    audit and a dry run do neither.

    Args:
        path: the folder.
        limits: how large a record may be.

    Raises:
        UnsafeLocation: others could change what is stored there.
        StorageUnavailable: the folder is missing or cannot be opened, or the system is not POSIX.
    """

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> None:
        _posix.require_posix()
        found = absolute(path)
        self._limit = limits.record_bytes
        self._heads = {}
        with _posix.translated("open", found):
            self._store = _Found(found, self._limit)

    def append(self, *_: object, **__: object) -> NoReturn:
        """Refuse.

        Raises:
            ConfigurationError: always.
        """
        raise _refusal()

    def prune(self, *_: object, **__: object) -> NoReturn:
        """Refuse.

        Raises:
            ConfigurationError: always.
        """
        raise _refusal()

    def token(self, thread: str) -> int:
        """Return the highest token that was ever handed out for a thread, 0 if none was."""
        return self._ownership(thread).token

    def _change_ownership(self, *_: object, **__: object) -> NoReturn:
        raise _refusal()


class _Found(Store):
    def __init__(self, path: str, limit: int) -> None:
        enforce(location_refusals(path))
        self.path = path
        self._limit = limit
        with _posix.opened(path, _posix.FOLDER) as root:
            info = os.fstat(root)
        self._identity = (info.st_dev, info.st_ino)

    def threads(self) -> list[str]:
        """Return the name of each thread, and of each folder of which nobody can tell.

        One that is closed, or that others can write, must not keep anybody from the others: it
        is refused by itself, as soon as it is read.
        """
        found = []
        with self.root() as root:
            with os.scandir(root) as entries:
                names = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
            for name in filter(is_thread, names):
                try:
                    with self._folder(root, name) as folder, os.scandir(folder) as files:
                        if any(RECORD_NAME.match(file.name) for file in files):
                            found.append(name)
                except FileNotFoundError:
                    pass  # gone by now
                except (UnsafeLocation, OSError):
                    found.append(name)
        return found


def _refusal() -> ConfigurationError:
    return ConfigurationError(
        "This only looks, and changes nothing.", "Write with a FileCheckpointStorage of your own."
    )
