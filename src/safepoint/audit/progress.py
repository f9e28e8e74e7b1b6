"""How far an audit is: one line on a terminal, gone at the end. Pipes and files never see it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

_EVERY: Final = 0.2  # seconds


class _Line:
    def __init__(self, stream: TextIO) -> None:
        self._stream, self._count, self._next, self._width = stream, 0, time.monotonic() + 1, 0

    def tick(self) -> None:
        self._count += 1
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            # No names: whoever chose them would write on the terminal.
            self.write(f"Looked at {self._count:,} files and records")

    def write(self, text: str) -> None:
        """Put a text in the place of the one before it."""
        with suppress(OSError, ValueError):
            self._stream.write(f"\r{text.ljust(self._width)}\r{text}")
            self._stream.flush()
        self._width = len(text)


_SHOWN: Final[list[_Line]] = []


@contextmanager
def progress() -> Iterator[None]:
    """Show how far it is while this lasts, if a person sits at a terminal."""
    stream = sys.__stderr__  # what commands print to hides control characters
    if stream is None or stream.closed or not stream.isatty():
        yield
        return
    _SHOWN.append(_Line(stream))
    try:
        yield
    finally:
        _SHOWN.pop().write("")


def tick() -> None:
    """Count one more file or record."""
    if _SHOWN:
        _SHOWN[-1].tick()
