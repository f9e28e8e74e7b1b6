"""Reading old files as data: bounded, strict, and nothing left out unsaid."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    DecodeError,
    LimitExceeded,
    StorageUnavailable,
    quoted,
    shell,
)
from safepoint.limits import DEFAULT_LIMITS, Limits
from safepoint.migrate.unsigned import Unsigned, check_thread

PLAIN: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""How a file is opened: no link is followed, and a pipe is refused instead of waited for."""


def json_files(
    folder: str | os.PathLike[str],
    *,
    thread: Callable[[str], str] | None = None,
    app: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Unsigned]:
    """Read the `.json` files of a folder, as data, in the order of their names.

    A file is a thread with one checkpoint. Names are checked before the first file is read, so
    that a migration does not stop half-way because of the last one.

    Args:
        folder: where they are. Files that end otherwise are left out.
        thread: makes the name of the thread of the file's name without its end. Left out, they
            are the same.
        app: what wrote them, as it should stand in the checkpoints.
        limits: for the size of each file, and for how many values it has.

    Raises:
        ConfigurationError: there are folders in the folder, and what is in them would be left
            out; or `thread` is no function.
        Conflict: two files would become one thread.
        InvalidId: a file's name cannot be that of a thread. The message says how to map it.
        DecodeError: a file is not JSON, has a key twice, or a number that JSON does not have.
        LimitExceeded: a file has more bytes or values than the limits, or is nested too deep.
        StorageUnavailable: the folder or a file cannot be read, or is not a regular file.
    """
    if thread is not None and not callable(thread):
        raise ConfigurationError(
            f"json_files was given {type(thread).__name__} as thread.",
            "Give a function that makes a thread's name of a file's: thread=str.lower.",
        )
    threads: dict[str, Path] = {}
    for file in _files(folder):
        name = check_thread(thread(file.stem) if thread else file.stem, str(file))
        if name in threads:
            raise Conflict(
                f"{shell(str(threads[name]))} and {shell(str(file))} would both become {name}.",
                "Nothing was read. Give each a name of its own.",
            )
        threads[name] = file
    for name, file in threads.items():
        text = read_file(file, limits.state_bytes + 1)
        state = strict_json(text, shell(str(file)), limits.state_bytes, limits.items)
        digest = hashlib.sha256(text).hexdigest()
        yield Unsigned(name, state, file.name, f"sha256:{digest}", app)


def _files(folder: str | os.PathLike[str]) -> list[Path]:
    try:
        with os.scandir(os.fspath(folder)) as entries:  # None would be the current folder
            found = sorted((e.name, e.is_dir()) for e in entries)
    except OSError as error:
        raise unreadable(folder, error.strerror) from error
    except (ValueError, TypeError):
        raise ConfigurationError(
            f"{quoted(folder)} is not the path of a folder.", 'Write json_files("old").'
        ) from None
    for name, is_folder in found:
        if is_folder:
            raise ConfigurationError(
                f"{shell(str(Path(folder, name)))} is a folder, and json_files reads files alone.",
                "Nothing was read. Read each folder by itself, and give its states the thread that"
                " they belong to; or move it elsewhere.",
            )
    files = [Path(folder, name) for name, _ in found]
    return [file for file in files if file.suffix.lower() == ".json"]


def read_file(file: Path, most: int) -> bytes:
    """Return the first bytes of a regular file. No link is followed, and no pipe waited for.

    Raises:
        StorageUnavailable: it cannot be read, or is something else.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | PLAIN)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise unreadable(file, "not a regular file")
            return opened.read(most)
    except OSError as error:
        raise unreadable(file, error.strerror) from error


def unreadable(path: str | os.PathLike[str], reason: str | None) -> StorageUnavailable:
    """Return the error for a folder or a file that cannot be read."""
    return StorageUnavailable(
        f"{shell(os.fspath(path))} cannot be read ({reason}).",
        "Name a folder of files that this user can read. Links are not followed.",
    )


def strict_json(text: bytes, shown: str, size: int, items: int) -> Any:
    """Return what a text says, if it is JSON without a second meaning.

    Args:
        text: the bytes.
        shown: what a message calls them.
        size: how many there may be.
        items: how many values there may be.

    Raises:
        DecodeError: it is not JSON, has a key twice, or a number that JSON does not have.
        LimitExceeded: it has more bytes or values, or is nested too deep.
    """
    if len(text) > size:
        raise LimitExceeded(
            f"{shown} is over the limit of {size} bytes.",
            "Look what it is before you raise Limits.state_bytes.",
        )
    # Before a parser builds them. Those in a text count too, and few texts have as many.
    if text.count(b",") + text.count(b"[") + text.count(b"{") > items:
        raise LimitExceeded(
            f"{shown} has more than {items} values.",
            "Look what it is before you raise Limits.items.",
        )
    problem: CheckpointError  # raised below: the error of the parser carries the text along
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError:
        problem = LimitExceeded(f"{shown} is nested too deep.", "Look who wrote it.")
    except ValueError:
        problem = DecodeError(
            f"{shown} is not strict JSON.",
            "Nothing of it was sealed. Repair it, or leave it out.",
        )
    raise problem


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse(constant: str) -> float:
    raise ValueError(constant)
