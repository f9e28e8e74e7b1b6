"""A stand-in for the index: its data types."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from safepoint.desk import Wait


class Row(NamedTuple):
    """A run that waits, verified when it was put on this page."""

    store: str
    tenant: str
    thread: str
    wait: Wait


class Alarm(NamedTuple):
    """A run that does not verify, or that the storage hides."""

    store: str
    tenant: str
    thread: str
    error: str
    text: str
    is_hidden: bool = False


class Filter(NamedTuple):
    """What somebody wants to see."""

    store: str = ""
    app: str = ""
    reason: str = ""
    state: str = "waiting"


class Page(NamedTuple):
    """One page of rows."""

    rows: list[Row]
    number: int
    pages: int
    total: int


class Status(NamedTuple):
    """The pass in the background."""

    looked: int
    threads: int
    passes: int
    finished: datetime | None
    took: float
