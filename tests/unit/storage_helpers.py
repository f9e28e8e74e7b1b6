"""What the tests of the storages share."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

from safepoint.stores.files import FileCheckpointStorage
from safepoint.testing import StorageSuite

CLAIMS = [name for name in vars(StorageSuite) if name.startswith("test_")]


def try_claim(suite: type[StorageSuite], claim: str) -> str:
    """Run one claim of the suite; return why it was skipped, if it was."""
    tried = suite()
    tried.setup_method()
    try:
        getattr(tried, claim)()
    except SkipTest as reason:
        return str(reason)
    finally:
        tried.teardown_method()
    return ""


def python(code: str, *arguments: str) -> str:
    """Run code in a process of its own; its last line of output comes back."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def fail(monkeypatch: pytest.MonkeyPatch, name: str, code: int, on: int = 1) -> list[int]:
    """Let the n-th call of os.<name> fail, and all after it; return the list of calls seen."""
    real: Callable[..., Any] = getattr(os, name)
    seen: list[int] = []

    def step(*args: Any, **kwargs: Any) -> Any:
        seen.append(len(seen))
        if len(seen) >= on:
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, step)
    return seen


def fill(storage: FileCheckpointStorage, root: Path, last: int, thread: str = "a") -> None:
    """Make a thread; all but its first record without the cost of a sync."""
    storage.append(thread, 1, b"record 1")
    for sequence in range(2, last + 1):
        plant(root, sequence, thread)


def plant(root: Path, sequence: int, thread: str = "a") -> None:
    record = root / f"{thread}/{sequence:010d}.checkpoint"
    record.write_bytes(b"record %d" % sequence)
    record.chmod(0o600)


def every_look(storage: FileCheckpointStorage) -> list[Callable[[], object]]:
    """All that depends on where the thread begins, for a thread of nine records."""
    return [
        lambda: storage.base("a"),
        lambda: storage.head("a"),
        lambda: storage.read("a", 9),
        lambda: list(storage.scan("a", 9, 9)),
        lambda: storage.append("a", 10, b"ten"),
        lambda: storage.prune("a", 9, b"base"),
    ]


def planted(kind: str, place: Path, outside: Path) -> str:
    """Put something in the place of a base or a record. Return what the refusal must say."""
    content = b"0000000001\nbase"
    if kind == "link":
        outside.write_bytes(content)
        place.symlink_to(outside)
        return "is a symbolic link"
    if kind == "fifo":
        os.mkfifo(place, 0o600)
        return "is not a regular file"
    place.write_bytes(content)
    place.chmod(0o600)
    if kind == "second name":
        outside.hardlink_to(place)
        return r"has a second name \(hard link\)"
    place.chmod(0o620)
    return r"can be written by others \(mode 0620\)"
