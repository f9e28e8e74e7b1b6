"""The evidence: one line per block that was evaluated, in a file that the site can show."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from tests.harness.blocks import Block

if sys.platform != "win32":
    import fcntl

Outcome = Literal["ran", "checked", "skipped", "failed"]

PACKAGES: Final = {
    "safepoint": "safepoint",
    "agent_framework": "agent-framework-core",
    "fickling": "fickling",
    "cryptography": "cryptography",
    "torch": "torch",
    "langgraph": "langgraph",
    "pydantic": "pydantic",
}
"""Modules whose versions matter, with the names of their distributions."""


class Entry(NamedTuple):
    """What the evidence says about one block."""

    page: str
    line: int
    number: int
    language: str
    digest: str
    outcome: Outcome


class Evidence:
    """Appends to the evidence file. Several processes may do so at once."""

    def __init__(self, file: Path, root: Path) -> None:
        self.file = file
        self.root = root
        self.run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
        self.counts: Counter[Outcome] = Counter()
        self._started = datetime.now(UTC)
        self._header_written = False

    def record(
        self, block: Block, outcome: Outcome, seconds: float, imported: Iterable[str] = ()
    ) -> None:
        """Append what happened to a block, with the versions of what its page has imported."""
        self.counts[outcome] += 1
        lines = [] if self._header_written else [self._header()]
        self._header_written = True
        lines.append(
            {
                "run": self.run,
                "page": block.page,
                "line": block.line,
                "block": block.number,
                "language": block.language,
                "sha256": block.digest,
                "outcome": outcome,
                "ms": round(seconds * 1000, 1),
                "python": platform.python_version(),
                "versions": versions(imported),
            }
        )
        self._append("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))

    def _header(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "started": self._started.isoformat(timespec="seconds"),
            "commit": _commit(self.root),
            "python": platform.python_version(),
            "system": platform.system(),
            "versions": versions(PACKAGES),
        }

    def _append(self, text: str) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab") as stream:
            if sys.platform != "win32":
                fcntl.flock(stream, fcntl.LOCK_EX)
            stream.write(text.encode())


def versions(modules: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages among `modules` that matter."""
    found = {PACKAGES[name]: _version(PACKAGES[name]) for name in set(modules) & set(PACKAGES)}
    return {name: version for name, version in sorted(found.items()) if version}


def read_evidence(file: Path) -> list[Entry]:
    """Return the entries of each page from the last run that touched the page.

    Raises:
        FileNotFoundError: nothing ran yet.
        ValueError: the file is not evidence.
    """
    pages: dict[str, tuple[str, list[Entry]]] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            data = json.loads(line)
            run = data["run"]
            if "page" not in data:
                continue
            entry = Entry(
                data["page"],
                data["line"],
                data["block"],
                data["language"],
                data["sha256"],
                data["outcome"],
            )
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{file.name}:{number} is not evidence; run make test") from None
        if entry.page not in pages or pages[entry.page][0] != run:
            pages[entry.page] = (run, [])
        pages[entry.page][1].append(entry)
    return [entry for _, entries in pages.values() for entry in entries]


@cache
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@cache
def _commit(root: Path) -> str | None:
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
