"""Record: what a workflow kept in a verified record, read without your types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from safepoint.audit.finding import Finding
from safepoint.codec import Codec, check_shape
from safepoint.errors import CheckpointError, LimitExceeded, NotFound, WorkflowMismatch
from safepoint.names import Limits, check_name
from safepoint.record import Checkpoint, Opened
from safepoint.verify import View
from safepoint.workflow import Payload, Resumed

_CODEC: Final = Codec()
SEE_RECORDS: Final = "See what check_records says of it."


@dataclass(frozen=True, slots=True)
class Record:
    """A verified record, and what a workflow kept in it.

    Attributes:
        view: where it was read.
        opened: the record.
        payload: what a workflow kept, without its state; None if none wrote it.
    """

    view: View
    opened: Opened
    payload: Payload | None

    @property
    def app(self) -> str:
        """What wrote it."""
        return self.opened.header.app

    @property
    def sequence(self) -> int:
        """Its place in the thread."""
        return self.opened.header.sequence

    @property
    def thread(self) -> str:
        """The thread."""
        return self.opened.header.thread

    @property
    def resumed(self) -> Resumed | None:
        """Where it says that it was resumed from, or None if it went on from the one before."""
        return None if self.payload is None else self.payload.resumed

    def source(self) -> Opened | None:
        """Return the record that it says it was resumed from, or None if that is not there.

        Raises:
            CheckpointError: that one does not verify.
        """
        if self.resumed is None or not 0 < self.resumed.sequence < self.sequence:
            return None
        try:
            return self.view.open(self.thread, self.resumed.sequence)
        except NotFound:
            return None

    def __str__(self) -> str:
        return f"{self.thread} #{self.sequence}"


def records_of(view: View, thread: str, limits: Limits) -> Iterator[Record]:
    """Return each record of a thread, oldest first, after its seal and its link were verified.

    Raises:
        CheckpointError: one does not verify. Those before it were already handed out.
    """
    for opened in view.walk(check_name("thread", thread)):
        if opened.header.kind == "state":
            yield Record(view, opened, payload_of(opened, limits))


def unverified(rule: str, thread: str, what: str) -> Finding:
    """Say that a thread was not looked at."""
    return Finding(
        rule,
        "note",
        f"{thread} does not verify, so its {what} were not looked at.",
        SEE_RECORDS,
        thread,
    )


def payload_of(opened: Opened, limits: Limits) -> Payload | None:
    """Return what a workflow kept in a record, or None if none wrote it.

    Raises:
        LimitExceeded: it is too deep, or too much.
    """
    header = opened.header
    try:
        return Payload.unpack(
            Checkpoint(
                store=header.store,
                thread=header.thread,
                sequence=header.sequence,
                app=header.app,
                created=datetime.fromisoformat(header.created),
                previous=header.previous,
                digest=opened.digest,
                tools=header.tools,
                state=without_state(opened.payload, limits),
            )
        )
    except WorkflowMismatch:
        return None


def without_state(payload: bytes, limits: Limits) -> Any:
    """Return what a workflow keeps besides the state, whose types only the application knows.

    Raises:
        LimitExceeded: it is too deep, or too much.
    """
    try:
        check_shape(payload, limits)
        found = json.loads(payload)
        if type(found) is not dict or type(found.get("state")) is not dict:
            return None
        text = json.dumps({**found, "state": {}}, sort_keys=True, separators=(",", ":"))
        return _CODEC.decode(text.encode("ascii"))
    except LimitExceeded:
        raise
    except (CheckpointError, ValueError):
        return None
