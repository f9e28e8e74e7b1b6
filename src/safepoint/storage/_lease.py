r"""The text of the file `lease` of a thread: one line.

    safepoint-lease/1 7 worker-a 2026-01-31T09:30:00.000000Z
    safepoint-lease/1 7 - -

The second is a thread that was released: nobody owns it, and its tokens go on from 7.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime

from safepoint.errors import StorageUnavailable, shell
from safepoint.names import spelled
from safepoint.storage.base import Lease, Ownership

LEASE = "lease"
FORMAT = "safepoint-lease/1"
LIMIT = 256
_LINE = re.compile(
    rb"safepoint-lease/1 ([1-9][0-9]{0,17}) (?:- -|([a-z0-9][a-z0-9_-]{0,63})"
    rb" ([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{6}Z))\n\Z"
)
_OTHER = re.compile(rb"safepoint-lease/(?!1[ \n])[0-9]{1,9}[ \n]")


def write_lease(ownership: Ownership) -> bytes:
    """Return the text of the file."""
    holder = ownership.holder
    rest = "- -" if holder is None else f"{holder.owner} {spelled(holder.expires)}"
    return f"{FORMAT} {ownership.token} {rest}\n".encode()


def read_lease(path: str, thread: str, text: bytes) -> Ownership:
    """Return what the text says.

    Raises:
        StorageUnavailable: it is not what `write_lease` writes.
    """
    found = _LINE.match(text)
    if found is not None:
        token = int(found[1])
        if found[2] is None:
            return Ownership(thread, token)
        with suppress(ValueError):  # no such day, or the name of a device
            expires = datetime.fromisoformat(found[3].decode())
            return Ownership(thread, token, Lease(thread, found[2].decode(), token, expires))
    if _OTHER.match(text):
        raise StorageUnavailable(
            f"{shell(path)} was written by another version of safepoint.",
            f"This one reads {FORMAT}. Use the version that wrote it; until then nothing of the"
            " thread is saved.",
        )
    raise StorageUnavailable(
        f"{shell(path)} does not say who owns its thread, so nothing of the thread is saved.",
        "Somebody else wrote it, or the disk failed. Stop every worker of the thread, then remove"
        f" the file: rm {shell(path)}",
    )


def is_lease(text: bytes) -> bool:
    """Tell whether this is the whole text of such a file."""
    return _LINE.match(text) is not None
