r"""The text of an anchor's files: one line each, which names all that it is about.

    safepoint-anchor/1 invoices
    safepoint-anchor/1 invoices order-7 57 sha256:…

A line says to which store and thread it belongs, so that a file under another's name is seen.
"""

from __future__ import annotations

import re

from safepoint.errors import AnchorMismatch, AnchorUnavailable, shell
from safepoint.names import Head

FORMAT = "safepoint-anchor/1"
LIMIT = 256
_NAME = rb"[a-z0-9][a-z0-9_-]{0,63}"
_MARK = re.compile(rb"safepoint-anchor/1(?: (%b))?\n\Z" % _NAME)
_HEAD = re.compile(
    rb"safepoint-anchor/1 (%b) (%b) ([1-9][0-9]{0,9}) (sha256:[0-9a-f]{64})\n\Z" % (_NAME, _NAME)
)
_OTHER = re.compile(rb"safepoint-anchor/(?!1[ \n])[0-9]{1,9}[ \n]")


def write_mark(store: str | None) -> bytes:
    """Return the text of the file that makes a folder an anchor, and names its store."""
    return f"{FORMAT}\n".encode() if store is None else f"{FORMAT} {store}\n".encode()


def read_mark(path: str, text: bytes) -> str | None:
    """Return the store that the text names, or None if the anchor belongs to none yet.

    Raises:
        AnchorUnavailable: the text is not what `write_mark` writes.
    """
    match = _MARK.match(text)
    if not match:
        raise _unreadable(path, text, "the name of a store")
    return match[1].decode() if match[1] else None


def write_head(store: str, thread: str, head: Head) -> bytes:
    """Return the text of the file that holds the head of a thread."""
    return f"{FORMAT} {store} {thread} {head.sequence} {head.digest}\n".encode()


def read_head(path: str, text: bytes, store: str, thread: str) -> Head:
    """Return the head that the text holds, if it is one of that store and thread.

    Raises:
        AnchorUnavailable: the text is not what `write_head` writes, or is of another thread.
        AnchorMismatch: it is of another store.
    """
    match = _HEAD.match(text)
    if not match:
        raise _unreadable(path, text, "the head of a thread")
    if match[1] != store.encode():
        raise of_another_store(path, match[1].decode(), store)
    if match[2] != thread.encode():
        raise AnchorUnavailable(
            f"{shell(path)} holds the head of thread {match[2].decode()}, not of {thread}.",
            "Somebody copied or renamed it. Put the right file back from a copy of the anchor.",
        )
    return Head(int(match[3]), match[4].decode())


def of_another_store(path: str, owner: str, store: str) -> AnchorMismatch:
    """Return the error that names both stores."""
    return AnchorMismatch(
        f"{shell(path)} belongs to store {owner}, and was asked about store {store}.",
        "Give each store an anchor of its own, in a folder of its own.",
    )


def _unreadable(path: str, text: bytes, kind: str) -> AnchorUnavailable:
    shown = shell(path)
    restore = (
        "Nothing is loaded without it. Put the file back from a copy of the anchor, and find out"
        " what happened to the disk."
    )
    if not text:
        return AnchorUnavailable(f"{shown} is empty.", restore)
    if len(text) > LIMIT:
        return AnchorUnavailable(f"{shown} has more than {LIMIT} bytes.", restore)
    if _OTHER.match(text):
        return AnchorUnavailable(
            f"{shown} was written by another version of safepoint.",
            f"This one reads {FORMAT}. Use the version that wrote it.",
        )
    if not text.endswith(b"\n"):
        return AnchorUnavailable(f"{shown} is cut short.", restore)
    return AnchorUnavailable(f"{shown} does not hold {kind}.", restore)
