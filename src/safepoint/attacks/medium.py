"""The adversary's hands: what somebody who can write a store can do to its records.

On disk a record is a file below a folder; in memory it is an entry of a dict. An attack that is
written for a medium runs on both.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path


class Medium(ABC):
    """Where records lie, as the adversary sees it: bytes under names, all of them writable.

    Attributes:
        tap: what the adversary does to bytes on their way out, for as long as it is set.
    """

    tap: Callable[[str, bytes], bytes] | None = None

    def read(self, name: str) -> bytes:
        """Return the bytes of a record, as they are or as the tap gives them."""
        data = self._read(name)
        return data if self.tap is None else self.tap(name, data)

    def everything(self) -> dict[str, bytes]:
        """Return each record as it is, by its name."""
        return {name: self._read(name) for name in self.names()}

    @abstractmethod
    def names(self) -> list[str]:
        """Return the name of every record, sorted."""

    @abstractmethod
    def _read(self, name: str) -> bytes:
        """Return the bytes of a record."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a record, over another if need be."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a record."""

    @abstractmethod
    def beside(self) -> Medium:
        """Return an empty medium of the same kind."""

    def rename(self, old: str, new: str) -> None:
        """Move a record, over another if need be."""
        self.write(new, self._read(old))
        self.delete(old)

    def copy(self) -> Medium:
        """Return a copy that stays as it is: a snapshot, a backup, a replica."""
        copy = self.beside()
        copy.restore(self)
        return copy

    def restore(self, snapshot: Medium) -> None:
        """Make this medium hold what the snapshot holds, and nothing else."""
        kept = snapshot.everything()
        for name in self.names():
            if name not in kept:
                self.delete(name)
        for name, data in kept.items():
            self.write(name, data)


class Memory(Medium):
    """Records in a dict."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """Return the keys."""
        return sorted(self.records)

    def _read(self, name: str) -> bytes:
        return self.records[name]

    def write(self, name: str, data: bytes) -> None:
        """Set an entry."""
        self.records[name] = data

    def delete(self, name: str) -> None:
        """Drop an entry."""
        del self.records[name]

    def beside(self) -> Memory:
        """Return an empty dict of records."""
        return Memory()


class Disk(Medium):
    """Records as files below a folder; a name is a path, seen from there.

    It follows links and overwrites, as `open(path, "wb")` does. New files and folders are made
    for their owner alone, so that no store refuses an attack for the mode of a file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Return the path of every file below the folder, links included."""
        found = [path for path in self.folder.rglob("*") if path.is_symlink() or not path.is_dir()]
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def _read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Write a file, and make the folders above it."""
        path = self.folder / name
        for folder in reversed([path.parent, *path.parent.parents]):
            if not folder.exists():
                folder.mkdir(mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)

    def delete(self, name: str) -> None:
        """Remove a file."""
        (self.folder / name).unlink()

    def beside(self) -> Disk:
        """Return a folder next to this one that does not exist yet."""
        number = 2
        while (path := self.folder.with_name(f"{self.folder.name}-{number}")).exists():
            number += 1
        return Disk(path)

    def lose(self) -> None:
        """Let nothing be written here any more, as on a disk that is full or gone."""
        if self.folder.exists():
            self.folder.rename(self.beside().folder)
        self.folder.touch(mode=0o600)
