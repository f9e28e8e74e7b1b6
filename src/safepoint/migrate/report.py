"""The file that says what a migration did."""

from __future__ import annotations

import json
import os
import stat
from typing import Any, Final, Self

from safepoint.errors import ConfigurationError, StorageUnavailable, shell
from safepoint.migrate.reading import PLAIN

_KEYS: Final = {"outcome", "source", "source_digest", "store", "thread", "sequence"}
_OPENINGS: Final = (b'{"outcome": "begun", "source": "', b'{"store": "')
_LINE: Final = 1024 * 1024


class Report:
    """Lines of JSON, added to a file that only its owner can read.

    Raises:
        ConfigurationError: the path is no path, or there is a file of another kind.
        StorageUnavailable: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = _path(path)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | PLAIN
            self._descriptor = os.open(self._path, flags, 0o600)
        except (OSError, ValueError) as error:
            raise self._refusal(error) from error
        try:
            self._begun, whole = _earlier(self._descriptor, self._path)
            if not whole:  # a crash cut its last line short
                os.write(self._descriptor, b"\n")
        except OSError as error:
            os.close(self._descriptor)
            raise self._refusal(error) from error
        except BaseException:
            os.close(self._descriptor)
            raise

    def has_begun(self, store: str, thread: str) -> bool:
        """Tell whether an earlier run that wrote this report began the thread."""
        return (store, thread) in self._begun

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def add(self, entry: dict[str, Any]) -> None:
        """Write one line.

        Raises:
            StorageUnavailable: it cannot be written.
        """
        try:
            text = memoryview(json.dumps(entry).encode() + b"\n")
        except (TypeError, ValueError):
            raise ConfigurationError(
                "The source and the digest of an Unsigned state are texts.",
                'Write Unsigned(thread, state, source="order-7.json").',
            ) from None
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError as error:
            raise self._refusal(error) from error

    def sync(self) -> None:
        """Put on disk what was written.

        Raises:
            StorageUnavailable: the disk refused.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError | ValueError) -> StorageUnavailable:
        return _refusal(self._path, error, "written")


def begun_by(path: str | os.PathLike[str]) -> set[tuple[str, str]]:
    """Return the store and the name of each thread that earlier runs with this report began.

    Nothing is written: there may be no such file yet.

    Raises:
        ConfigurationError: the path is no path, or there is a file of another kind.
        StorageUnavailable: there is one, and it cannot be read.
    """
    name = _path(path)
    try:
        descriptor = os.open(name, os.O_RDONLY | PLAIN)
    except FileNotFoundError:
        return set()
    except (OSError, ValueError) as error:
        raise _refusal(name, error, "read") from error
    try:
        return _earlier(descriptor, name)[0]
    except OSError as error:
        raise _refusal(name, error, "read") from error
    finally:
        os.close(descriptor)


def _path(path: object) -> str:
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise ConfigurationError(
            f"A report was asked for at {type(path).__name__}, which is not a path.",
            'Write report="migration.jsonl".',
        )
    return text


def _refusal(path: str, error: OSError | ValueError, doing: str) -> StorageUnavailable:
    reason = error.strerror if isinstance(error, OSError) else "not a path"
    return StorageUnavailable(
        f"The report {shell(path)} cannot be {doing} ({reason}).",
        "Nothing more was sealed. Name a file in a folder that this user can write.",
    )


def _earlier(descriptor: int, path: str) -> tuple[set[tuple[str, str]], bool]:
    """Return which threads earlier runs began, and whether their last line is whole."""
    begun, line = set(), b"\n"
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        with os.fdopen(os.dup(descriptor), "rb") as lines:
            _check_ours(lines.readline(_LINE), path)
            lines.seek(0)
            for line in lines:
                begun.add(_begun(line))
    return {key for key in begun if key is not None}, line.endswith(b"\n")


def _check_ours(first: bytes, path: str) -> None:
    """Refuse to add to a file that no migration wrote: it may be one of the originals."""
    try:
        entry = json.loads(first or "null")
        is_ours = not first or (isinstance(entry, dict) and entry.keys() >= _KEYS)
    except (ValueError, RecursionError):  # a crash may have cut the first line short
        begin = first.rstrip(b"\n")
        is_ours = any(begin.startswith(o) or o.startswith(begin or b"?") for o in _OPENINGS)
    if not is_ours:
        raise ConfigurationError(
            f"{shell(path)} exists, and is no report of a migration.",
            "Nothing was written to it. Name a new file as the report, or that of an earlier run.",
        )


def _begun(line: bytes) -> tuple[str, str] | None:
    try:
        entry = json.loads(line)
        if entry["outcome"] != "begun":
            return None
        return str(entry["store"]), str(entry["thread"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None  # cut short by a crash, or not of ours
