"""Pruning and deleting, so that what is left still verifies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, cast

from safepoint._ledger.guards import RETENTION, has_methods, storage_errors
from safepoint._ledger.view import View
from safepoint._ledger.walk import Span, check_span
from safepoint.errors import ConfigurationError, KeyRevoked, NotFound
from safepoint.header import Kind, Place
from safepoint.seal import Opened, seal
from safepoint.storage.base import RetentionStorage

NOTHING: Final = b"null"
"""The state of a record that has none: a base, a tombstone."""


def retaining(view: View) -> RetentionStorage:
    """Return the storage as one that can forget.

    Raises:
        ConfigurationError: it cannot.
    """
    if not has_methods(view.storage, RETENTION):
        raise ConfigurationError(
            f"{type(view.storage).__name__} cannot remove records.",
            f"Add the methods {', '.join(RETENTION)} of RetentionStorage to it.",
        )
    return cast("RetentionStorage", view.storage)


def statement(view: View, place: Place, kind: Kind, previous: str | None) -> tuple[bytes, Opened]:
    """Seal a record that has no state."""
    return seal(
        NOTHING, place, view.keys.signing, created=datetime.now(UTC), kind=kind, previous=previous
    )


def seal_base_anew(view: View, thread: str) -> None:
    """Put a base of our own key in the place of one whose key was revoked.

    Raises:
        CheckpointError: what it stands before does not verify. It is left as it is then.
    """
    try:
        view.base(thread)
    except KeyRevoked:
        first = view.first(thread)
        previous = view.open(thread, first).header.previous
        check_span(view, thread, Span(first, view.reach(thread, None), previous, None))
        cut(view, thread, first)


def cut(view: View, thread: str, first: int) -> int:
    """Leave a signed base at `first`, and remove what is before it.

    Returns:
        How many records were removed: none if another process has pruned further already.
    """
    storage = retaining(view)
    try:
        previous = view.open(thread, first).header.previous
    except NotFound:
        further = view.base(thread)
        if further is None or further.header.sequence <= first:
            raise
        return 0
    base, _ = statement(view, Place(view.store, thread, first), "base", previous)
    with storage_errors("prune", thread):
        return storage.prune(thread, first, base)
