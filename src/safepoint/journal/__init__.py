"""The journal: who did what, when, in lines that are signed and chained."""

from __future__ import annotations

from safepoint.journal.actor import Actor
from safepoint.journal.base import Journal
from safepoint.journal.event import Entry, Event, Outcome, What
from safepoint.journal.file import FileJournal
from safepoint.journal.memory import InMemoryJournal

__all__ = [
    "Actor",
    "Entry",
    "Event",
    "FileJournal",
    "InMemoryJournal",
    "Journal",
    "Outcome",
    "What",
]
