"""The evidence: what ran and how it ended, line by line, in a file that the site can show.

A run of pytest writes a line when it begins, one for each block, one for each test that a rule
stands on, and one when it ends: how many passed, failed and were skipped, and its exit status. A
whole `make test` writes its plan first and its own end last (`pytests.py`). So a run that was
killed, stopped, or had only a part to do cannot look like one that passed.
"""

from __future__ import annotations

import fcntl
import json
import math
import platform
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar

from safepoint.rules import LEGS
from tests.harness.blocks import Block
from tests.harness.legs import RESULTS, Proof, Result, worst
from tests.harness.sources import commit_of, sources
from tests.harness.versions import PACKAGES, versions

Outcome = Literal["ran", "checked", "skipped", "failed"]
OUTCOMES: Final[Mapping[Outcome, str]] = MappingProxyType(
    {"ran": "ran", "checked": "checked only", "skipped": "skipped", "failed": "failed"}
)
"""How a block can end, with the words for it."""
_CLOCKS: Final = timedelta(hours=1)  # by which two machines may differ
_NAMED: Final = 100  # failures that a run names; all are counted
OTHERS: Final = {"check": "make check found something", "census": "the census found a difference"}
"""What a whole run has besides its pytests, and what it means if that fails."""
_LARGEST: Final = 32 << 20
_T = TypeVar("_T")


class Run(NamedTuple):
    """A pytest that began: when, on what, and for which arguments."""

    run: str
    started: datetime
    commit: str | None
    python: str
    system: str
    versions: Mapping[str, str]
    sources: Mapping[str, str]
    part: str = ""


class End(NamedTuple):
    """How a pytest ended.

    Attributes:
        run: which one.
        exit: its exit status.
        passed: tests that did.
        failed: tests that did not, and files that could not be collected.
        skipped: tests that were, with a reason.
        left: tests that it found and did not run, those for `make deep` aside.
        deep: tests that are for `make deep`.
        failures: the names of what failed, not more than a hundred.
    """

    run: str
    exit: int
    passed: int
    failed: int
    skipped: int
    left: int
    deep: int
    failures: Sequence[str]


class Plan(NamedTuple):
    """The pytests that a whole run consists of."""

    plan: Sequence[str]


class Done(NamedTuple):
    """The end of a whole run: the exit status of each of its pytests."""

    done: Mapping[str, int]


class Entry(NamedTuple):
    """What the evidence says about one block."""

    page: str
    line: int
    block: int
    language: str
    sha256: str
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

    def __init__(self, file: Path, root: Path, run: str = "", part: str = "") -> None:
        self.file = file
        self.root = root
        self.run = run or uuid.uuid4().hex
        self.counts: Counter[Outcome] = Counter()
        self._part = part
        self._held: dict[tuple[str, str, str], tuple[Result | None, float]] = {}
        self._started = datetime.now(UTC)
        self._begun = False

    def begin(self) -> None:
        """Append that it began, once."""
        if not self._begun:
            self._begun = True
            header = {
                "run": self.run,
                "started": self._started.isoformat(timespec="seconds"),
                "commit": commit_of(self.root),
                "python": platform.python_version(),
                "system": platform.system(),
                "versions": versions(PACKAGES),
                "sources": sources(self.root),
                "part": plain(self._part),
            }
            append(self.file, header)

    def record(
        self, block: Block, outcome: Outcome, seconds: float, imported: Iterable[str] = ()
    ) -> None:
        """Append what happened to a block, with the versions of what its page has imported."""
        self.counts[outcome] += 1
        entry = Entry(
            block.page,
            block.line,
            block.number,
            block.language,
            block.digest,
            outcome,
            round(seconds * 1000, 1),
            platform.python_version(),
            versions(imported),
            self.run,
        )
        self.begin()
        append(self.file, entry._asdict())

    def hold(
        self, leg: str, name: str, test: str, result: Result | None, seconds: float = 0.0
    ) -> None:
        """Remember how a case of a test went that holds up a leg of a rule; None: it goes on."""
        before, taken = self._held.get((leg, name, test), (None, 0.0))
        found = worst(each for each in (before, result) if each)
        self._held[leg, name, test] = found, taken + seconds

    def end(self, status: int, results: Mapping[str, Result], left: int, deep: int) -> None:
        """Append a line for each of these tests, and one with the verdict.

        Args:
            status: the exit status.
            results: how each test ended.
            left: how many tests were found and not run.
            deep: how many are for `make deep`.
        """
        proofs = [
            Proof(*held, result, round(seconds * 1000, 1), self.run)._asdict()
            for held, (result, seconds) in self._held.items()
            if result
        ]
        self._held.clear()
        count = Counter(results.values())
        failures = [plain(name) for name, result in results.items() if result == "failed"]
        numbers = count["passed"], count["failed"], count["skipped"], left, deep
        verdict = End(self.run, status, *numbers, failures[:_NAMED])
        self.begin()
        append(self.file, *proofs, verdict._asdict())


def append(file: Path, *lines: Mapping[str, Any]) -> None:
    """Append lines, all at once or none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines).encode())


def plain(name: str) -> str:
    """Return a name with a question mark for whatever a page could take for markup."""
    return re.sub(r"[^\w./:,=+\[\] -]", "?", name, flags=re.ASCII)[:300]


@dataclass(frozen=True)
class Read:
    """What an evidence file holds.

    Attributes:
        runs: the pytests that began, by their names.
        entries: the blocks of each page, from the last run that touched the page.
        proofs: how the tests ended that the rules stand on, each from the last run that had it.
        ends: how pytests ended, by their names.
        plan: the names of those that a whole run consists of, or None if there was none.
        done: the exit status that each of these was seen to have, or None if it has not ended.
    """

    runs: Mapping[str, Run] = field(default_factory=dict)
    entries: Sequence[Entry] = ()
    proofs: Sequence[Proof] = ()
    ends: Mapping[str, End] = field(default_factory=dict)
    plan: Sequence[str] | None = None
    done: Mapping[str, int] | None = None

    def total(self, name: Literal["passed", "failed", "skipped", "left", "deep"]) -> int:
        """Add up what the pytests say."""
        return sum(getattr(end, name) for end in self.ends.values())

    @property
    def failures(self) -> list[str]:
        """The names of the tests that failed."""
        return sorted({name for end in self.ends.values() for name in end.failures})

    @cached_property
    def failed(self) -> list[str]:
        """Why this is no run that passed, as clauses; empty if nothing failed."""
        said = []
        if count := self.total("failed"):
            said.append(f"{count:,} of {count + self.total('passed'):,} tests failed")
        for name in {**self.ends, **(self.done or {})}:
            end, part = self.ends.get(name), self._part(name)
            status = (self.done or {}).get(name, 0)
            if name in OTHERS:
                said += [OTHERS[name]] if status else []
            elif status < 0:
                said.append(f"{part} was ended by signal {-status}")
            elif end is None:
                said.append(f"{part} ended before its tests did, with exit status {status}")
            elif (status or end.exit) and not end.failed:
                said.append(f"{part} ended with exit status {status or end.exit}")
        return said

    @cached_property
    def partial(self) -> list[str]:
        """Why this is no whole run, as clauses; empty if it is one."""
        plan, done = self.plan or (), self.done or {}
        said = []
        if self.plan is None:
            said.append("only chosen tests ran")
        elif self.done is None:
            said.append("the run has not come to its end")
        elif never := [name for name in plan if name not in done]:
            said.append(f"{len(never)} of {len(plan)} pytests never ran")
        if left := sum(end.left for name, end in self.ends.items() if name in plan):
            said.append(f"{left:,} tests were left out")
        if any(name not in {*plan, *self.ends} for name in self.runs):
            said.append("a later pytest did not come to its end")
        return said

    def _part(self, name: str) -> str:
        part = self.runs[name].part if name in self.runs else name
        return f"pytest {part}".strip()


def read(file: Path) -> Read:
    """Read an evidence file.

    Raises:
        FileNotFoundError: nothing ran yet.
        ValueError: the file is not evidence.
    """
    if file.stat().st_size > _LARGEST:
        raise ValueError(f"{file.name} is too large to be evidence; run make test")
    lines: list[Any] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            lines.append(_line(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"{file.name}:{number} is not evidence; run make test") from None
    return Read(
        {run.run: run for run in _kind(lines, Run)},
        _last(_kind(lines, Entry), lambda entry: entry.page),
        _last(_kind(lines, Proof), lambda proof: proof[:3]),
        {end.run: end for end in _kind(lines, End)},
        next((plan.plan for plan in _kind(lines, Plan)), None),
        next((done.done for done in _kind(lines, Done)), None),
    )


def find(entries: list[Entry], sought: str, *, take: bool = False) -> Entry | None:
    """Return the first entry of a block with that digest, and take it out of the list if asked."""
    for index, entry in enumerate(entries):
        if entry.sha256 == sought:
            return entries.pop(index) if take else entry
    return None


def _kind(lines: Iterable[object], kind: type[_T]) -> list[_T]:
    return [line for line in lines if isinstance(line, kind)]


def _last(lines: Iterable[Any], key: Callable[[Any], object]) -> list[Any]:
    """Of the lines about the same thing keep those of the last run."""
    found: dict[object, list[Any]] = {}
    for line in lines:
        same = found.setdefault(key(line), [])
        if same and same[0].run != line.run:
            same.clear()
        same.append(line)
    return [line for same in found.values() for line in same]


def _line(data: Any) -> NamedTuple:
    """Make of a line what it is, or raise."""
    for kind in _KINDS:
        if _TOLD_BY.get(kind, kind._fields[0]) in data:
            if set(data) != set(kind._fields):
                raise ValueError
            forms = {name: _FORMS.get(f"{kind.__name__}.{name}", _FORMS.get(name)) for name in data}
            made: NamedTuple = kind(**{name: _checked(forms[name], data[name]) for name in data})
            return made
    raise ValueError


def _checked(form: Any, value: Any) -> Any:
    """Return a value if it has the form. Words go into pages, so nothing in them can be markup."""
    match form, value:
        case (str(), str()) if re.fullmatch(form, value, re.ASCII):
            return value
        case (int(), int()) if type(value) is int and form <= value <= 1 << 31:
            return value
        case (float(), int() | float()) if type(value) is not bool and 0 <= value < math.inf:
            return float(value)
        case (tuple(), list()):
            return tuple(_checked(form[0], each) for each in value)
        case (dict(), dict()):
            [(names, values)] = form.items()
            return {_checked(names, name): _checked(values, each) for name, each in value.items()}
        case _ if callable(form):
            return form(value)
    raise ValueError


def _moment(value: str) -> datetime:
    """Read a time with its zone. Nothing ran in the future."""
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None or moment > datetime.now(UTC) + _CLOCKS:
        raise ValueError
    return moment.astimezone(UTC)


_KINDS: Final[tuple[Any, ...]] = (Entry, Proof, Run, End, Plan, Done)
_TOLD_BY: Final = {Run: "started", End: "exit"}
_WORD: Final = r"[\w.+!-]{1,80}"
_PATH: Final = r"[\w./-]{1,200}"
_NAME: Final = r"[\w./:-]{1,200}"
_TEST: Final = r"[\w./:,=+?\[\] -]{0,300}"
_STATUS: Final = -255
# A text is a pattern, an integer the least one, a float any time that it took, and a tuple or a
# mapping says what is in it.
_FORMS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("run", "python", "system"), _WORD),
    "commit": lambda value: value if value is None else _checked(_WORD, value),
    **dict.fromkeys(("line", "block", "passed", "failed", "skipped", "left", "deep"), 0),
    "page": _PATH,
    "language": "[a-z]{0,20}",
    "sha256": "[0-9a-f]{64}",
    "outcome": "|".join(OUTCOMES),
    "Proof.outcome": "|".join(RESULTS),
    "ms": 0.0,
    "versions": {_WORD: _WORD},
    "sources": {_PATH: _WORD},
    "started": _moment,
    "part": _TEST,
    "leg": "|".join(LEGS),
    "name": _NAME,
    "test": _NAME,
    "exit": _STATUS,
    "failures": (_TEST,),
    "plan": (_WORD,),
    "done": {_WORD: _STATUS},
}
