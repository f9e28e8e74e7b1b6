"""A progress bar for long work in a terminal, and silence everywhere else."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self, TextIO

_WIDTH = 30
_PAUSE = 0.1
_PATIENCE = 0.5


class Bar:
    """Shows how far `verify` or a copy has come, on standard error, if that is a terminal.

    Work that ends within half a second shows nothing. A terminal that goes away ends the bar, and
    not the work.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.progress import Bar

    keys = Keyring(SigningKey.generate())
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys)
    ledger.save("order-7", {"amount": 42})
    with Bar("order-7") as bar:
        print(ledger.verify("order-7", progress=bar))
        #> 1
    ```

    Args:
        label: what is being worked on.
        stream: where to show it, standard error if None.
    """

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self._label = label
        self._stream: TextIO | None = sys.stderr if stream is None else stream
        if self._stream is not None and not self._stream.isatty():
            self._stream = None
        self._next = time.monotonic() + _PATIENCE
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` are done, a few times a second."""
        if self._stream is None or (now := time.monotonic()) < self._next:
            return
        self._next = now + _PAUSE
        self._shown = True
        share = min(done / total, 1.0) if total else 1.0
        full, empty = _glyphs(self._stream)
        bar = full * round(share * _WIDTH)
        line = f" {bar:{empty}<{_WIDTH}} {done:,} of {total:,}"
        # A line that wraps could not be written over.
        room = max(shutil.get_terminal_size().columns - 1 - len(line), 0)
        self._write(f"\r{self._label[:room]}{line}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # hung up, or closed
            self._stream = None


def _glyphs(stream: TextIO) -> tuple[str, str]:
    try:
        "█·".encode(getattr(stream, "encoding", None) or "ascii")
    except (LookupError, UnicodeEncodeError):
        return "#", "."
    return "█", "·"
