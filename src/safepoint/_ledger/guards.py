"""What a storage or an anchor of somebody else's may raise or return, made ours."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safepoint.errors import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    KeyRefused,
    StorageUnavailable,
    quoted,
    shell,
)
from safepoint.keys import Keyring

STORAGE = ("append", "read", "head", "threads")
RETENTION = ("base", "prune")
ANCHOR = ("read", "advance", "threads")
JOURNAL = ("record",)


@contextmanager
def storage_errors(doing: str, what: str) -> Iterator[None]:
    """Turn whatever a custom storage raises into an error of the tree."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise StorageUnavailable(
            f"The storage could not {doing} {what}: it raised {type(error).__name__}.",
            "See the error it came from, and make the storage raise errors of safepoint.errors.",
        ) from error


@contextmanager
def anchor_errors(doing: str, what: str) -> Iterator[None]:
    """Turn whatever a custom anchor raises into an error of the tree."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise AnchorUnavailable(
            f"The anchor could not {doing} {what}: it raised {type(error).__name__}.",
            "Nothing is loaded without it. See the error it came from, and mend the anchor.",
        ) from error


def texts(names: Iterable[object]) -> set[str]:
    """Return names as a set, if each is one.

    Raises:
        TypeError: one is something else.
    """
    found = set()
    for name in names:
        if type(name) is not str:
            raise TypeError
        found.add(name)
    return found


def check_kind(name: str, value: object, kind: type | tuple[type, ...], example: str) -> None:
    """Refuse an argument that is of another type.

    Raises:
        ConfigurationError: it is.
    """
    if not isinstance(value, kind):
        raise ConfigurationError(
            f"Ledger was given {type(value).__name__} as {name}.", f"Write {name}={example}."
        )


def check_count(name: str, value: object) -> None:
    """Refuse anything but a whole number from 1 up.

    Raises:
        ConfigurationError: it is something else.
    """
    if type(value) is not int or value < 1:
        raise ConfigurationError(
            f"{name} is {quoted(value)}, and must be a whole number from 1 up.",
            f"Write {name}=1, or more.",
        )


def has_methods(value: object, methods: tuple[str, ...]) -> bool:
    """Tell whether an object has all of the methods."""
    try:
        return all(callable(getattr(value, method, None)) for method in methods)
    except Exception:  # noqa: BLE001  a proxy whose other end is away
        return False


def check_methods(name: str, value: object, methods: tuple[str, ...], example: str) -> None:
    """Refuse an object that lacks one of the methods.

    Raises:
        ConfigurationError: it does.
    """
    if not has_methods(value, methods):
        raise ConfigurationError(
            f"Ledger takes {name}, and was given {type(value).__name__}.",
            f"Give it an object with the methods {', '.join(methods)}: {example}.",
        )


def check_apart(storage: Any, keys: Keyring, anchor: Any, journal: Any = None) -> None:
    """Refuse a key, an anchor or a journal that whoever can write the storage could write too.

    Raises:
        KeyRefused: a key's file is inside the storage folder.
        ConfigurationError: the anchor or the journal is inside the storage folder, or around it.
    """
    folder = _home(storage)
    if folder is None:
        return
    for key in keys:
        if key.path is not None and key.path.resolve().is_relative_to(folder):
            raise KeyRefused(
                f"The key {shell(str(key.path))} is inside the storage folder.",
                "Whoever reads the storage would hold the key. Move it to a folder of its own, and"
                " replace it if anyone may have read it.",
            )
    points = [revoked.until for revoked in map(keys.revoked, (key.id for key in keys)) if revoked]
    for apart in filter(None, map(_folder, [anchor, *points])):
        if apart.is_relative_to(folder) or folder.is_relative_to(apart):
            raise ConfigurationError(
                f"The anchor {shell(str(apart))} is in one place with the storage"
                f" {shell(str(folder))}.",
                "Whoever rolls back one would roll back the other. Give the anchor a folder"
                " elsewhere, best of another user or machine.",
            )
    notes = _folder(journal)
    if notes is not None and (notes.is_relative_to(folder) or folder.is_relative_to(notes)):
        raise ConfigurationError(
            f"The journal {shell(str(notes))} is in one place with the storage"
            f" {shell(str(folder))}.",
            "Whoever changes one could change the other. Give the journal a folder of its own.",
        )


def check_other(storage: object, target: object) -> None:
    """Refuse to copy a storage into itself, where every record would be left as it is.

    Raises:
        ConfigurationError: both are one.
    """
    folder = _folder(storage)
    if storage is target or (folder is not None and folder == _folder(target)):
        raise ConfigurationError(
            "Source and target are one storage, so nothing would be sealed anew.",
            "Copy into a new, empty storage, and use that one from then on.",
        )


def check_frozen(keys: Keyring, anchor: Any) -> None:
    """Refuse an anchor that moves as the point up to which a revoked key counts.

    Raises:
        ConfigurationError: a key is revoked until the ledger's own anchor, or there is none.
    """
    for key in keys:
        revoked = keys.revoked(key.id)
        until = None if revoked is None else revoked.until
        if until is None:
            continue
        if anchor is None:
            raise ConfigurationError(
                f"Key {key.id} is revoked from a point on, and this ledger has no anchor.",
                "Without one, a thief could rewrite what is before the point. Write Ledger(...,"
                " anchor=FileAnchor(path)).",
            )
        folder = _folder(anchor)
        if until is anchor or (folder is not None and folder == _folder(until)):
            raise ConfigurationError(
                f"Key {key.id} is revoked until the anchor that this ledger moves.",
                "Each save would move the point, too. Give a copy that nobody writes any more:"
                ' until=FileAnchor("anchor-before").',
            )


def _folder(value: object) -> Path | None:
    """Return the folder that a storage or an anchor of ours is in; others keep theirs to them."""
    try:
        path = getattr(value, "path", None)
        return Path(path).resolve() if isinstance(path, (str, os.PathLike)) else None
    except Exception:  # noqa: BLE001  a proxy, an odd path: then there is nothing to compare
        return None


def _home(storage: object) -> Path | None:
    """Return the folder in which whoever can write the storage can write: of a file, its own."""
    path = _folder(storage)
    with suppress(OSError):
        return path.parent if path is not None and path.is_file() else path
    return path
