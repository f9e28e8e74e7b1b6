"""What other frameworks keep, recognised by its content."""

from __future__ import annotations

from collections.abc import Iterable

from safepoint.audit.finding import Finding


def recognise_database(path: str) -> Iterable[Finding] | None:
    """Return what is found in an SQLite file of others, None if nothing is known of it."""
    del path
    return None


def recognise_folder(path: str) -> Iterable[Finding] | None:
    """Return what is found in a folder of others, None if nothing is known of it."""
    del path
    return None
