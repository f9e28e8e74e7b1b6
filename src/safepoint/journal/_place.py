"""Where a journal may be kept, and what the system says about it, in words of the error tree."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from safepoint import _files as _posix
from safepoint.errors import (
    AnchorUnavailable,
    JournalUnavailable,
    StorageFull,
    StorageUnavailable,
    UnsafeLocation,
    shell,
)

WHAT: Final = "The path of the journal"


@contextmanager
def translated(doing: str, path: str) -> Iterator[None]:
    """Turn what the system reports into the error tree.

    Raises:
        JournalUnavailable: in place of any OSError, and of the words of others for one.
    """
    try:
        yield
    except (StorageUnavailable, StorageFull, AnchorUnavailable) as refusal:
        raise JournalUnavailable(refusal.what, refusal.do) from refusal
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise JournalUnavailable(
                f"{shell(path)} is gone, and with it the journal.",
                "Mount it again or put it back from a copy: until then nothing is written down, so"
                " nothing is done.",
            ) from error
        told = _posix.translate(error, doing, path)
        raise JournalUnavailable(told.what, told.do) from error


@contextmanager
def unavailable(doing: str, path: str) -> Iterator[None]:
    """Do the same once the journal is in use: from then on, an unsafe place is no journal either.

    Raises:
        JournalUnavailable: in place of all that `translated` turns, and of UnsafeLocation.
    """
    try:
        with translated(doing, path):
            yield
    except UnsafeLocation as refusal:
        raise JournalUnavailable(refusal.what, refusal.do) from refusal
