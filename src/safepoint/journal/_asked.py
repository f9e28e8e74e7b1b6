"""What a reader of the journal asks for, checked."""

from __future__ import annotations

from collections.abc import Callable

from safepoint.errors import ConfigurationError, quoted
from safepoint.journal.event import WHATS, Entry
from safepoint.names import check_name


def matches(store: str | None, thread: str | None, what: str | None) -> Callable[[Entry], bool]:
    """Return what tells whether an entry is asked for. None asks for all.

    Raises:
        InvalidId: a name is outside the grammar.
        ConfigurationError: there is no such event.
    """
    if store is not None:
        check_name("store", store)
    if thread is not None:
        check_name("thread", thread)
    if what is not None and what not in WHATS:
        raise ConfigurationError(
            f"No event is called {quoted(what)}.", f"Choose one of: {', '.join(WHATS)}."
        )

    def matching(entry: Entry) -> bool:
        return (
            store in (None, entry.store)
            and thread in (None, entry.thread)
            and what in (None, entry.what)
        )

    return matching


def check_count(count: object) -> int:
    """Return how many entries are asked for, if that is a whole number from 1 up.

    Raises:
        ConfigurationError: it is something else.
    """
    if type(count) is not int or count < 1:
        raise ConfigurationError(
            f"{quoted(count)} is not a number of entries.", "Give a whole number from 1 up."
        )
    return count
