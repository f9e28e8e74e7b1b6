"""Files: what of a folder is looked at, and what is left out by name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Final

CODE: Final = frozenset({".py", ".pyw", ".ipynb"})
TEXT: Final = frozenset(
    {".bash", ".cfg", ".conf", ".env", ".ini", ".mk", ".service", ".sh", ".tf", ".toml"}
    | {".yaml", ".yml", ".zsh", ".dockerfile", ".bat", ".cmd", ".ps1"}
)
NAMED: Final = ("containerfile", "dockerfile", "makefile", "jenkinsfile", ".env", "procfile")
_HISTORY: Final = frozenset({".git", ".hg", ".svn"})
_OF_OTHERS: Final = frozenset({".tox", ".nox", ".eggs", "node_modules", "site-packages"})
_ENVIRONMENT: Final = ("pyvenv.cfg", "conda-meta")
_SHEBANG: Final = 200
# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
_OPEN: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Walk:
    """Walks folders, and remembers what it could not list or left out.

    Attributes:
        left_out: the folders that are not entered: installed packages, environments and links.
        failed: what could not be listed or read, with the reason.
    """

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self.failed: list[tuple[str, str]] = []

    def files(self, path: str) -> Iterator[str]:
        """Yield the files below a folder that may hold a load, sorted; or the file itself."""
        if not Path(path).is_dir():
            yield path
            return
        waiting = [path]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(folder) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                self.failed.append((folder, str(error.strerror)))
                continue
            folders: list[str] = []
            for entry in found:
                if entry.is_dir():
                    if entry.name in _HISTORY:
                        continue
                    (folders if _is_own(entry) else self.left_out).append(entry.path)
                elif is_looked_at(entry.path):
                    yield entry.path
            waiting += reversed(folders)


def _is_own(entry: os.DirEntry[str]) -> bool:
    if entry.name in _OF_OTHERS or entry.is_symlink():
        return False
    return not any(os.path.lexists(Path(entry.path, name)) for name in _ENVIRONMENT)


def is_looked_at(path: str) -> bool:
    """Tell whether a file of a folder may hold a load, by its name or by its first line."""
    name = PurePath(path).name.lower()
    suffix = PurePath(name).suffix
    if suffix in CODE or suffix in TEXT or name.startswith(NAMED):
        return True
    return not suffix and is_code(path)


def is_code(path: str) -> bool:
    """Tell whether a file is Python, by its name or by its first line."""
    suffix = PurePath(path).suffix.lower()
    if suffix in CODE:
        return True
    if suffix in TEXT:
        return False
    try:
        first = read(path, _SHEBANG)[0].split(b"\n", 1)[0]
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def read(path: str, most: int) -> tuple[bytes, int]:
    """Return the first bytes of a regular file, and how many it has.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    fd = os.open(path, _OPEN)
    with os.fdopen(fd, "rb") as opened:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(0, "it is not a file")
        return opened.read(most), info.st_size
