"""The version of the schema, and what to do about another one."""

from __future__ import annotations

from typing import Final

from safepoint.errors import quoted

VERSION: Final = 1


def wrong_version(found: object) -> tuple[str, str]:
    """Return how a version that is not ours is shown, and what to do about it.

    A schema has the version of the package that made it, from 1 up. Whatever is no such number was
    put there by somebody else, and `migrate` would not mend it.
    """
    if type(found) is int and found > VERSION:
        return f"version {found}", "Upgrade safepoint: pip install -U safepoint"
    return (
        "no version" if found is None else f"version {quoted(found)}",
        "Somebody changed it: restore the database from a backup, and find out who did.",
    )
