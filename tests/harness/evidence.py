"""The evidence: one line per block that was evaluated, in a file that the site can show."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from safepoint.rules import LEGS
from tests.harness.blocks import Block
from tests.harness.legs import RESULTS, Proof, Result, worst
from tests.harness.sources import commit_of, sources
from tests.harness.versions import PACKAGES, versions

if sys.platform != "win32":
    import fcntl

Outcome = Literal["ran", "checked", "skipped", "failed"]
OUTCOMES: Final[Mapping[Outcome, str]] = MappingProxyType(
    {"ran": "ran", "checked": "checked only", "skipped": "skipped", "failed": "failed"}
)
"""How a block can end, with the words for it."""
_CLOCKS: Final = timedelta(hours=1)  # by which two machines may differ


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
        self._held: dict[tuple[str, str, str], tuple[Result | None, float]] = {}
        self._started = datetime.now(UTC)
        self._header_written = False

    def record(
        self, block: Block, outcome: Outcome, seconds: float, imported: Iterable[str] = ()
    ) -> None:
        """Append what happened to a block, with the versions of what its page has imported."""
        self.counts[outcome] += 1
        self._write(
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

    def hold(
        self, leg: str, name: str, test: str, result: Result | None, seconds: float = 0.0
    ) -> None:
        """Remember how a case of a test went that holds up a leg of a rule; None: it goes on."""
        before, taken = self._held.get((leg, name, test), (None, 0.0))
        found = worst(each for each in (before, result) if each)
        self._held[leg, name, test] = found, taken + seconds

    def write_held(self) -> None:
        """Append a line for each of these tests, all at once."""
        self._write(
            *(
                {
                    "run": self.run,
                    "leg": leg,
                    "name": name,
                    "test": test,
                    "outcome": result,
                    "ms": round(seconds * 1000, 1),
                }
                for (leg, name, test), (result, seconds) in self._held.items()
                if result
            )
        )
        self._held.clear()

    def _write(self, *lines: dict[str, Any]) -> None:
        if not lines:
            return
        header = () if self._header_written else (self._header(),)
        self._header_written = True
        self._append("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in (*header, *lines)))

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


def read_evidence(file: Path) -> list[Entry]:
    """Return the entries of each page from the last run that touched the page.

    Raises:
        FileNotFoundError: nothing ran yet.
        ValueError: the file is not evidence.
    """
    pages: dict[str, list[Entry]] = {}
    for data in _lines(file):
        if not isinstance(data, Entry):
            continue
        if data.page not in pages or pages[data.page][0].run != data.run:
            pages[data.page] = []
        pages[data.page].append(data)
    return [entry for entries in pages.values() for entry in entries]


def find(entries: list[Entry], sought: str, *, take: bool = False) -> Entry | None:
    """Return the first entry of a block with that digest, and take it out of the list if asked."""
    for index, entry in enumerate(entries):
        if entry.digest == sought:
            return entries.pop(index) if take else entry
    return None


def read_runs(file: Path) -> list[Run]:
    """Return the runs of the file.

    Raises:
        FileNotFoundError: nothing ran yet.
        ValueError: the file is not evidence.
    """
    return [data for data in _lines(file) if isinstance(data, Run)]


def read_proofs(file: Path) -> list[Proof]:
    """Return how the tests ended that the rules stand on, each from the last run that had it.

    Raises:
        FileNotFoundError: nothing ran yet.
        ValueError: the file is not evidence.
    """
    found: dict[tuple[str, str, str], Proof] = {}
    for data in _lines(file):
        if not isinstance(data, Proof):
            continue
        before = found.get(data[:3])
        if before is None or before.run != data.run:
            found[data[:3]] = data
        else:  # workers share the name of their run
            both = worst((before.outcome, data.outcome)) or data.outcome
            found[data[:3]] = data._replace(outcome=both, ms=before.ms + data.ms)
    return list(found.values())


def _lines(file: Path) -> Iterator[Run | Entry | Proof]:
    if file.stat().st_size > _LARGEST:
        raise ValueError(f"{file.name} is too large to be evidence; run make test")
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            data = json.loads(line)
            if "page" in data:
                yield _entry(data)
            else:
                yield _proof(data) if "leg" in data else _run(data)
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


def _proof(data: Mapping[str, Any]) -> Proof:
    if data["leg"] not in LEGS or data["outcome"] not in RESULTS:
        raise ValueError
    return Proof(
        data["leg"],
        _word(data["name"], _NAME),
        _word(data["test"], _NAME),
        data["outcome"],
        _milliseconds(data["ms"]),
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
_NAME: Final = re.compile(r"[\w./:-]{1,200}", re.ASCII)
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
