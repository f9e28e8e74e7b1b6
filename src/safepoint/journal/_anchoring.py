"""The journal's head in an anchor, if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from safepoint.anchor import Anchor
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Forked,
    JournalBroken,
    JournalUnavailable,
)
from safepoint.journal._chain import THREAD
from safepoint.names import Head


class Anchored:
    """Asks and moves the anchor of a journal, in the words of a journal.

    Args:
        anchor: the anchor, or None: then nothing is known, and nothing is moved.
        name: the journal's.

    Raises:
        ConfigurationError: the anchor is none.
    """

    def __init__(self, anchor: Anchor | None, name: str) -> None:
        for method in ("read", "advance"):
            if anchor is not None and not callable(getattr(anchor, method, None)):
                raise ConfigurationError(
                    f"The anchor of a journal is {type(anchor).__name__}, which has no method"
                    f" {method}.",
                    "Give a FileAnchor of its own, another Anchor, or None.",
                )
        self._anchor = anchor
        self._name = name

    def read(self) -> Head | None:
        """Return the newest entry that the anchor has seen.

        Raises:
            JournalUnavailable: it cannot be asked.
        """
        if self._anchor is None:
            return None
        with _errors("read"):
            head = self._anchor.read(self._name, THREAD)
            # One that was unpickled, or copied by hand, was never looked at.
            return None if head is None else Head(head.sequence, head.digest)

    def advance(self, head: Head) -> None:
        """Let the anchor see an entry.

        Raises:
            JournalBroken: it has seen another one of that number.
            JournalUnavailable: it cannot be moved.
        """
        if self._anchor is not None:
            with _errors("moved"):
                self._anchor.advance(self._name, THREAD, head)

    def lacks(self, head: Head) -> bool:
        """Tell whether the anchor has surely not seen that entry, so that it may be taken back."""
        try:
            known = self.read()
        except CheckpointError:
            return False
        return (
            known is None
            or known.sequence < head.sequence
            or (known.sequence == head.sequence and known.digest != head.digest)
        )


@contextmanager
def _errors(done: str) -> Iterator[None]:
    try:
        yield
    except Forked as refusal:
        raise JournalBroken(refusal.what, refusal.do) from refusal
    except CheckpointError as refusal:
        raise JournalUnavailable(
            f"The journal's anchor cannot be {done}. {refusal.what}", refusal.do
        ) from refusal
    except Exception as error:
        raise JournalUnavailable(
            f"The journal's anchor cannot be {done}: it raised {type(error).__name__}.",
            "Nothing is done without it. See the error it came from, and mend the anchor.",
        ) from error
