"""The grammar of names.

Thread and store names become file names and keys of a database, so the alphabet is the part on
which every system agrees: no case to fold, nothing to normalise, nothing to escape.
"""

from __future__ import annotations

import re

from safepoint.errors import InvalidId, quoted

MAX_SEQUENCE = 9_999_999_999
RESERVED = "safepoint-"
"""How the names of stores begin that no ledger may have. Seals of models are of one of them."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)


def check_name(kind: str, name: object) -> str:
    """Return `name` if it is one that every backend can hold.

    Args:
        kind: what the name is for, as it should read in the message: "thread" or "store".
        name: the value to check; anything but a string is refused too.

    Raises:
        InvalidId: the name is outside the grammar `[a-z0-9][a-z0-9_-]{0,63}`, or is a device name
            on Windows.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidId(
            f"{quoted(name)} is not {'an' if kind[0] in 'aeiou' else 'a'} {kind} name.",
            "Use 1 to 64 of a-z, 0-9, '-' and '_', and start with a letter or digit.",
        )
    if name in _DEVICES:
        raise InvalidId(
            f"{quoted(name)} is the name of a device on Windows.",
            f"Choose another {kind} name, for example '{name}-1'.",
        )
    return name


def check_store(name: object) -> str:
    """Return the name of a ledger's store.

    Raises:
        InvalidId: it is outside the grammar, or kept for this package.
    """
    store = check_name("store", name)
    if store.startswith(RESERVED):
        raise InvalidId(
            f"{quoted(store)} begins with {RESERVED!r}, which is kept for this package.",
            "Choose another store name.",
        )
    return store


def check_sequence(sequence: object) -> int:
    """Return `sequence` if it is a whole number from 1 up to `MAX_SEQUENCE`.

    Raises:
        InvalidId: it is anything else, `True` included.
    """
    if type(sequence) is not int or not 1 <= sequence <= MAX_SEQUENCE:
        raise InvalidId(
            f"{quoted(sequence)} is not a sequence number.",
            f"Sequences are whole numbers from 1 to {MAX_SEQUENCE}.",
        )
    return sequence
