"""A folder of pickled checkpoints, read as data: which files make a thread, and what each holds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    InvalidId,
    LimitExceeded,
    PickleRefused,
    quoted,
    shell,
)
from safepoint.migrate import Link, chains, read_file, strict_json, unreadable
from safepoint.names import check_name
from safepoint.pickles.framework import link_of
from safepoint.pickles.kinds import Kind, identify
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.reviving import Reviver, Types

_MOVE: Final = "Nothing of it was sealed. Move it to another folder if it does not belong here."


@dataclass(frozen=True, slots=True)
class Stored:
    """A file with a checkpoint.

    Attributes:
        source: its name.
        digest: the sha256 of its bytes.
        link: what it says about its place, None for a pickle, which says nothing.
    """

    source: str
    digest: str
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """Files that become one thread.

    Attributes:
        name: the thread's.
        files: its checkpoints, in order.
    """

    name: str
    files: tuple[Stored, ...]


@dataclass(slots=True)
class Survey:
    """What is in a folder.

    Attributes:
        files: how many there are.
        threads: what they become.
        refused: why the others become nothing, by their names.
        digests: the sha256 of each that could be read.
    """

    files: int = 0
    threads: list[Thread] = field(default_factory=list)
    refused: dict[str, CheckpointError] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


class PickledFolder:
    """Reads the files of a folder. They are opened for reading alone, and no link is followed.

    Args:
        folder: where they are.
        types: the types of yours that may occur in them.
        thread: makes a thread's name of a pickle's name without its end, or of the id of the first
            checkpoint of a run.
        limits: for each file, and for each pickle.
        allow_missing_past: take a checkpoint for the first if the one that it follows is gone.

    Raises:
        ConfigurationError: an argument is of the wrong kind.
        CodecError: a type could not be restored faithfully.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        types: Types,
        thread: Callable[[str], str] | None,
        limits: PickleLimits,
        allow_missing_past: bool,
    ) -> None:
        if thread is not None and not callable(thread):
            raise ConfigurationError(
                f"A migration was given {type(thread).__name__} as thread.",
                "Give a function that makes a thread's name of a file's: thread=str.lower.",
            )
        if not isinstance(folder, (str, os.PathLike)):
            raise ConfigurationError(
                f"{quoted(folder)} is not the path of a folder.", 'Write pickled_files("old").'
            )
        self._folder = Path(folder)
        self._reviver = Reviver(types, limits)
        self._thread = thread
        self._limits = limits
        self._without_past = allow_missing_past

    def survey(self, progress: Callable[[int, int], None] = lambda _, __: None) -> Survey:
        """Read each file once, and tell which of them make a thread.

        Args:
            progress: called with how many were read, of how many.

        Raises:
            StorageUnavailable: the folder cannot be read.
        """
        found = Survey()
        single: list[Stored] = []
        linked: list[Stored] = []
        names = self._names()
        found.files = len(names)
        for number, (name, is_folder) in enumerate(names, 1):
            try:
                stored = self._looked_at(name, is_folder, found.digests)
            except CheckpointError as error:
                found.refused[name] = error
            else:
                (single if stored.link is None else linked).append(stored)
            progress(number, found.files)
        self._arrange(found, single, linked)
        return found

    def path(self, stored: Stored) -> str:
        """Return where a file is, ready to paste."""
        return shell(str(self._folder / stored.source))

    def read(self, stored: Stored) -> Any:
        """Return the state in a file.

        Raises:
            PickleRefused: it is more than data. The message says what, and where.
            LimitExceeded: it is too large.
            Conflict: it is not what it was when the folder was surveyed.
            StorageUnavailable: it cannot be read.
        """
        data = self._content(stored.source)
        if _digest(data) != stored.digest:
            raise Conflict(
                "It changed while it was migrated.",
                "Stop whatever writes it, and run the migration again.",
            )
        if stored.link is None:
            return self._reviver.unpickled(data)
        return self._reviver.revived(self._parsed(data))

    def _names(self) -> list[tuple[str, bool]]:
        try:
            with os.scandir(self._folder) as entries:
                return sorted((each.name, each.is_dir(follow_symlinks=False)) for each in entries)
        except OSError as error:
            raise unreadable(self._folder, error.strerror) from error
        except ValueError:
            raise unreadable(self._folder, "not a path") from None

    def _content(self, name: str) -> bytes:
        data = read_file(self._folder / name, self._limits.data_bytes + 1)
        if len(data) > self._limits.data_bytes:
            raise LimitExceeded(
                f"It is over the limit of {self._limits.data_bytes} bytes.",
                "Look what it is before you raise PickleLimits.data_bytes.",
            )
        return data

    def _looked_at(self, name: str, is_folder: bool, digests: dict[str, str]) -> Stored:
        if is_folder:
            raise ConfigurationError(
                "It is a folder, and this reads the files of one folder.",
                "Migrate each folder by itself, or move it elsewhere.",
            )
        data = self._content(name)
        digests[name] = _digest(data)
        kind = identify(data)
        if kind is Kind.PICKLE:
            return Stored(name, digests[name])
        if kind is Kind.JSON:
            return Stored(name, digests[name], link_of(name, self._parsed(data)))
        raise PickleRefused(f"It is {kind.sentence}, and no pickled checkpoint.", _MOVE)

    def _parsed(self, data: bytes) -> Any:
        return strict_json(data, "It", self._limits.data_bytes, self._limits.nodes)

    def _arrange(self, found: Survey, single: list[Stored], linked: list[Stored]) -> None:
        by_name = {stored.source: stored for stored in linked}
        links = (stored.link for stored in linked if stored.link is not None)
        groups: list[tuple[str, tuple[Stored, ...]]] = [
            (Path(stored.source).stem, (stored,)) for stored in single
        ]
        for chain in chains(links, allow_missing_past=self._without_past):
            files = tuple(by_name[link.source] for link in chain.links)
            if chain.refusal is not None:
                found.refused.update((stored.source, chain.refusal) for stored in files)
            else:
                groups.append((chain.links[0].identity, files))
        threads: dict[str, list[tuple[Stored, ...]]] = {}
        for name, files in groups:
            try:
                threads.setdefault(self._named(name), []).append(files)
            except InvalidId as error:
                found.refused.update((stored.source, error) for stored in files)
        for name, several in sorted(threads.items()):
            if len(several) == 1:
                found.threads.append(Thread(name, several[0]))
            else:
                first = " and ".join(shell(files[0].source) for files in several[:2])
                clash = Conflict(f"{first} would both become {name}.", "Give each its own name.")
                found.refused.update((each.source, clash) for files in several for each in files)

    def _named(self, name: str) -> str:
        try:
            return check_name("thread", self._thread(name) if self._thread else name)
        except InvalidId as error:
            raise InvalidId(
                f"It would become a thread, and {error.what}",
                f"{error.do} Map old names to new ones: thread=function.",
            ) from None


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def numbered(threads: Iterable[Thread]) -> Iterator[tuple[Thread, int, Stored]]:
    """Return each file with its thread and its sequence in it."""
    for thread in threads:
        for sequence, stored in enumerate(thread.files, 1):
            yield thread, sequence, stored
