"""Is anything in a folder sealed at all?"""

from __future__ import annotations

import os
from contextlib import suppress

from safepoint.audit.files import Closed, content, existing_folder, files
from safepoint.audit.finding import Finding
from safepoint.audit.formats import SEALED
from safepoint.errors import shell


def unsealed(path: str | os.PathLike[str]) -> list[Finding]:
    """Say of a folder that holds files, and not one sealed record, that nothing there is sealed.

    Returns:
        One note under SP02, or nothing.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    root = existing_folder(path)
    anything = False
    for file in files(root, Closed()):  # the other checks say what is closed
        with suppress(OSError):
            found = content(file, 64)
            if found is not None and found[0]:
                anything = True
                if SEALED.match(found[0]):
                    return []
    if not anything:
        return []
    return [
        Finding(
            "SP02",
            "note",
            f"Nothing in {shell(root)} is sealed, so an edit of what is there would not show.",
            "If these are checkpoints, read them once as data and seal them, with"
            " safepoint.migrate.",
            root,
        )
    ]
