"""What the outcome of blocks and tests depends on, as it is now."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

# What a block's outcome depends on, besides its own page.
_SOURCES: Final = (
    "src/safepoint",
    "snippets",
    "docs/vectors",
    "tests/harness",
    "publish",
    "conftest.py",
    "Makefile",
    "mkdocs.yml",
    "pyproject.toml",
    "requirements.txt",
)
TESTS: Final = "tests"
"""All other tests. No block depends on them."""
_NOT_SOURCES: Final = frozenset({".pyc", ".svg", ".png", ".css", ".js"})


def sources(root: Path) -> dict[str, str]:
    """Return a digest of each page, and of each folder that a test depends on, as they are now."""
    pages = [*(root / "docs").rglob("*.md"), root / "README.md", root / "CONTRIBUTING.md"]
    found = {file.relative_to(root).as_posix(): _digest([file], root) for file in sorted(pages)}
    for name in (*_SOURCES, TESTS):
        place, harness = root / name, root / "tests" / "harness"
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        if name == TESTS:
            files = [file for file in files if not file.is_relative_to(harness)]
        found[name] = _digest([f for f in files if f.suffix not in _NOT_SOURCES], root)
    return found


def _digest(files: Iterable[Path], root: Path) -> str:
    total = hashlib.sha256()
    for file in files:
        if file.is_file():
            total.update(f"{file.relative_to(root).as_posix()}\0".encode())
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


@cache
def commit_of(root: Path) -> str | None:
    """Return the commit that is checked out, or None."""
    try:
        result = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return result.stdout.strip() or None
