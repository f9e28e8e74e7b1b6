"""The folder of a key file: nobody else may put another key in its place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from safepoint.errors import KeyRefused, StorageError, UnsafeLocation, shell
from safepoint.location import replaceable_refusals


def reason(error: OSError | ValueError) -> str | None:
    """Say in a few words why a path did not work."""
    return error.strerror if isinstance(error, OSError) else "not a path"


def real(path: str | os.PathLike[str]) -> Path:
    """Return the path, absolute, with the links in its folder resolved."""
    return Path(os.path.realpath(Path(path).parent), Path(path).name)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a folder in which others could put another key in place of this one.

    Raises:
        KeyRefused: they could.
    """
    folder = Path(path).absolute().parent
    for refusal in _folder_refusals(folder):
        raise KeyRefused(f"The key in {shell(str(folder))} is not safe. {refusal.what}", refusal.do)


def _folder_refusals(folder: Path) -> Iterator[StorageError]:
    shown = shell(str(folder))
    if folder.is_symlink():
        yield UnsafeLocation(
            f"{shown} is a symbolic link.", f"Name the folder that it leads to: readlink -f {shown}"
        )
    yield from replaceable_refusals(str(folder))


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make the folder, for its owner alone, in one that exists.

    Raises:
        KeyRefused: it cannot be made.
    """
    folder = Path(path).parent
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except (OSError, ValueError) as error:
        shown = shell(str(folder))
        raise KeyRefused(
            f"The folder {shown} for the key cannot be made ({reason(error)}).",
            f"Run: mkdir -p -m 700 {shown}",
        ) from None
