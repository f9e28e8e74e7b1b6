"""What a journal is, for those who use one and for those who write one."""

from __future__ import annotations

from typing import Protocol

from safepoint.journal.event import Entry, Event


class Journal(Protocol):
    """Writes down who did what, when, before it counts as done.

    What one of your own must guarantee:

    - **Fails closed**: `record` returns when the entry is durable, and raises if it is not. What
      could not be written down is then not done.
    - **Append-only**: an entry is never changed, and those who act cannot remove one unseen.
    - **One order**: entries of all writers follow upon each other.
    """

    def record(self, event: Event) -> Entry:
        """Write an event down, durably.

        Raises:
            JournalBroken: what is there does not verify. Nothing was written.
            JournalUnavailable: it could not be written.
        """
