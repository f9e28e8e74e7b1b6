"""The evidence: one line per block that was evaluated, in a file that the site can show."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from tests.harness.blocks import Block

if sys.platform != "win32":
    import fcntl

Outcome = Literal["ran", "checked", "skipped", "failed"]
OUTCOMES: Final[Mapping[Outcome, str]] = MappingProxyType(
    {"ran": "ran", "checked": "checked only", "skipped": "skipped", "failed": "failed"}
)
"""How a block can end, with the words for it."""
_CLOCKS: Final = timedelta(hours=1)  # by which two machines may differ

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
_NOT_SOURCES: Final = frozenset({".pyc", ".svg", ".png", ".css", ".js"})


class Run(NamedTuple):
    """When and on what a process evaluated blocks."""

    id: str
    started: datetime
    commit: str | None
    python: str
    system: str
    versions: Mapping[str, str]
    sources: Mapping[str, str]


class Entry(NamedTuple):
    """What the evidence says about one block."""

    page: str
    line: int
    number: int
    language: str
    digest: str
    outcome: Outcome
    ms: float = 0.0
    python: str = ""
    versions: Mapping[str, str] = MappingProxyType({})
    run: str = ""

    @property
    def test(self) -> str:
        """The id by which pytest knows it."""
        return f"{self.page}::{self.line}-{self.language}"


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
            "commit": commit_of(self.root),
            "python": platform.python_version(),
            "system": platform.system(),
            "versions": versions(PACKAGES),
            "sources": sources(self.root),
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
    pages: dict[str, list[Entry]] = {}
    for data in _lines(file):
        if isinstance(data, Run):
            continue
        if data.page not in pages or pages[data.page][0].run != data.run:
            pages[data.page] = []
        pages[data.page].append(data)
    return [entry for entries in pages.values() for entry in entries]


def read_runs(file: Path) -> list[Run]:
    """Return the runs of the file.

    Raises:
        FileNotFoundError: nothing ran yet.
        ValueError: the file is not evidence.
    """
    return [data for data in _lines(file) if isinstance(data, Run)]


def _lines(file: Path) -> Iterator[Run | Entry]:
    if file.stat().st_size > _LARGEST:
        raise ValueError(f"{file.name} is too large to be evidence; run make test")
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            data = json.loads(line)
            yield _entry(data) if "page" in data else _run(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"{file.name}:{number} is not evidence; run make test") from None


def _entry(data: Mapping[str, Any]) -> Entry:
    return Entry(
        _word(data["page"], _PATH),
        _count(data["line"]),
        _count(data["block"]),
        _word(data["language"], _LANGUAGE),
        _word(data["sha256"], _DIGEST),
        _outcome(data["outcome"]),
        _milliseconds(data["ms"]),
        _word(data["python"]),
        _words(data["versions"]),
        _word(data["run"]),
    )


def _run(data: Mapping[str, Any]) -> Run:
    commit = data["commit"]
    return Run(
        _word(data["run"]),
        _moment(data["started"]),
        commit if commit is None else _word(commit),
        _word(data["python"]),
        _word(data["system"]),
        _words(data["versions"]),
        _words(data["sources"], _PATH),
    )


# It goes into pages, so nothing in it can be markup.
_WORD: Final = re.compile(r"[\w.+!-]{1,80}", re.ASCII)
_PATH: Final = re.compile(r"[\w./-]{1,200}", re.ASCII)
_LANGUAGE: Final = re.compile(r"[a-z]{0,20}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LARGEST: Final = 32 << 20


def _word(value: object, form: re.Pattern[str] = _WORD) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ValueError
    return value


def _words(value: Mapping[str, str], names: re.Pattern[str] = _WORD) -> Mapping[str, str]:
    return {_word(name, names): _word(each) for name, each in value.items()}


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _outcome(value: object) -> Outcome:
    for outcome in OUTCOMES:
        if value == outcome:
            return outcome
    raise ValueError


def _milliseconds(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:  # type: ignore[operator]
        raise ValueError
    return float(value)  # type: ignore[arg-type]


def _moment(value: str) -> datetime:
    """Read a time with its zone. Nothing ran in the future."""
    moment = datetime.fromisoformat(value).astimezone(UTC)
    if datetime.fromisoformat(value).tzinfo is None or moment > datetime.now(UTC) + _CLOCKS:
        raise ValueError
    return moment


def sources(root: Path) -> dict[str, str]:
    """Return a digest of each page, and of each folder that pages depend on, as they are now."""
    pages = [*(root / "docs").rglob("*.md"), root / "README.md", root / "CONTRIBUTING.md"]
    found = {file.relative_to(root).as_posix(): _digest([file], root) for file in sorted(pages)}
    for name in _SOURCES:
        place = root / name
        files = [place] if place.is_file() else sorted(place.rglob("*"))
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
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


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
