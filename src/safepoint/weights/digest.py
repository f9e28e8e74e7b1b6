"""The digest of a large file: SHA-256 over the SHA-256 of each MiB, so that all cores take part.

What is hashed at the end: the line `safepoint-tree/1`, the length in 8 bytes (big-endian), and the
32 bytes of each MiB in order.

The length and the first word keep the digest of one file from being that of another, or of a list
of digests that somebody stored as a file.
"""

from __future__ import annotations

import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

CHUNK: Final = 1024 * 1024
_FIRST: Final = b"safepoint-tree/1\n"
_THREADS: Final = 8
_ALONE: Final = 4  # chunks: with fewer, starting a thread takes longer than it saves


def digest(buffer: Any) -> str:
    """Return `sha256-tree:` and 64 hex digits.

    Args:
        buffer: bytes, a memoryview or a mapped file.
    """
    with memoryview(buffer) as whole, whole.cast("B") as data:
        length = len(data)

        def leaf(start: int) -> bytes:
            with data[start : start + CHUNK] as chunk:
                return hashlib.sha256(chunk).digest()

        starts = range(0, length, CHUNK)
        threads = min(_THREADS, len(starts), _cores())
        if threads < 2 or len(starts) < _ALONE:
            leaves = list(map(leaf, starts))
        else:
            with ThreadPoolExecutor(threads) as pool:
                leaves = list(pool.map(leaf, starts))
    root = hashlib.sha256(_FIRST + length.to_bytes(8, "big"))
    root.update(b"".join(leaves))
    return f"sha256-tree:{root.hexdigest()}"


_DIGEST: Final = re.compile(r"sha256-tree:[0-9a-f]{64}")


def is_digest(text: object) -> bool:
    """Tell whether `text` is what `digest` returns."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
