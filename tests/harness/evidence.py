"""The evidence: what ran and how it ended, line by line, in a file that the site can show.

A run of pytest writes a line when it begins, one for each block, one for each test that a rule
stands on, and one when it ends: how many passed, failed and were skipped, and its exit status. A
whole `make test` writes its plan first and its own end last (`pytests.py`). So a run that was
killed, stopped, or had only a part to do cannot look like one that passed.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import inspect
import json
import math
import platform
import re
import sqlite3
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from types import CodeType, MappingProxyType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

from safepoint.core.errors import CheckpointError
from safepoint.rules import LEGS, RULES
from tests.harness.blocks import Block, written_blocks

if TYPE_CHECKING:
    import pytest

Outcome = Literal["ran", "checked", "skipped", "failed"]
OUTCOMES: Final[Mapping[Outcome, str]] = MappingProxyType(
    {"ran": "ran", "checked": "checked only", "skipped": "skipped", "failed": "failed"}
)
"""How a block can end, with the words for it."""
Result = Literal["failed", "passed", "skipped"]
RESULTS: Final[tuple[Result, ...]] = get_args(Result)
"""How a test can end. Of several cases the first of these counts: what was skipped did not run."""
OTHERS: Final = {"check": "make check found something", "census": "the census found a difference"}
"""What a whole run has besides its pytests, and what it means if that fails."""
_CLOCKS: Final = timedelta(hours=1)  # by which two machines may differ
_LARGEST: Final = 32 << 20
_PLAIN: Final = re.compile(r"[\w./:,=+?!\[\] -]{0,300}", re.ASCII)


class Run(NamedTuple):
    """A pytest that began: when, on what, and for which arguments."""

    started: datetime
    run: str
    commit: str | None
    python: str
    system: str
    versions: Mapping[str, str]
    sources: Mapping[str, str]
    part: str = ""


class End(NamedTuple):
    """How a pytest ended.

    Attributes:
        exit: its exit status.
        run: which one.
        passed: tests that did.
        failed: tests that did not, and files that could not be collected.
        skipped: tests that were, with a reason.
        left: tests that it found and did not run, those for `make deep` aside.
        deep: tests that are for `make deep`.
        failures: the names of what failed.
    """

    exit: int
    run: str
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


class Proof(NamedTuple):
    """How a test ended that holds up a leg of a rule.

    Attributes:
        leg: `attack`, `defence`, `test` or `check`.
        name: what the rule names.
        test: the test, without the parameters of its cases.
        outcome: `passed` if all cases that ran have passed, of those that the rule names.
        ms: how long all cases took.
        run: the process that ran it.
    """

    leg: str
    name: str
    test: str
    outcome: Result
    ms: float = 0.0
    run: str = ""


_KINDS: Final[Mapping[str, Any]] = {kind._fields[0]: kind for kind in (Run, End, Plan, Done)} | {
    "sha256": Entry,
    "leg": Proof,
}
"""What a line is, by a name in it that no other has."""


class Evidence:
    """Appends to the evidence file. Several processes may do so at once."""

    def __init__(self, file: Path, root: Path, run: str = "", part: str = "") -> None:
        self.file = file
        self.root = root
        self.run = run or uuid.uuid4().hex
        self.counts: Counter[Outcome] = Counter()
        self._part = part
        self._held: dict[tuple[str, str, str], tuple[Result | None, float]] = {}
        self._started = datetime.now(UTC).isoformat(timespec="seconds")

    def begin(self) -> None:
        """Append that it began."""
        header = {
            "run": self.run,
            "started": self._started,
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
        count = Counter(results.values())
        failures = [plain(name) for name, result in results.items() if result == "failed"]
        numbers = count["passed"], count["failed"], count["skipped"], left, deep
        verdict = End(status, self.run, *numbers, failures)
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
    """What an evidence file says.

    Attributes:
        runs: the pytests, by name.
        entries: the blocks, from the last run that touched their page.
        proofs: the tests that rules stand on, each from its last run.
        ends: how the pytests ended.
        plan: which pytests a whole run consists of; None if this was none.
        done: how they ended for who started them; None if that did not come to its end.
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
    def status(self) -> int:
        """The exit status of the whole, as `make test` has it: 0 if all went well."""
        return int(bool(self.failed or self.partial))

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
            end, status = self.ends.get(name), (self.done or {}).get(name, 0)
            part = f"pytest {self.runs[name].part if name in self.runs else name}".strip()
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


def read(file: Path) -> Read:
    """Read an evidence file.

    Raises:
        FileNotFoundError: nothing ran yet.
        ValueError: the file is not evidence.
    """
    if file.stat().st_size > _LARGEST:
        raise ValueError(f"{file.name} is too large to be evidence; run make test")
    found: dict[Any, list[Any]] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            made = _line(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"{file.name}:{number} is not evidence; run make test") from None
        found.setdefault(type(made), []).append(made)
    return Read(
        {run.run: run for run in found.get(Run, ())},
        _last(found.get(Entry, ()), lambda entry: entry.page),
        _last(found.get(Proof, ()), lambda proof: proof[:3]),
        {end.run: end for end in found.get(End, ())},
        next((plan.plan for plan in found.get(Plan, ())), None),
        next((done.done for done in found.get(Done, ())), None),
    )


def find(entries: list[Entry], sought: str, *, take: bool = False) -> Entry | None:
    """Return the first entry of a block with that digest, and take it out of the list if asked."""
    for index, entry in enumerate(entries):
        if entry.sha256 == sought:
            return entries.pop(index) if take else entry
    return None


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
    kind: Any = next((kind for name, kind in _KINDS.items() if name in data), None)
    hints = _hints(kind)
    if set(data) != set(hints):
        raise ValueError
    made: NamedTuple = kind(**{name: _made(hints[name], data[name]) for name in data})
    return made


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _made(hint: Any, value: Any) -> Any:
    """Return a value as its type says, or raise. Words go into pages, so none can be markup."""
    given, kind = get_args(hint), get_origin(hint) or hint
    if kind is UnionType:
        return None if value is None else _made(given[0], value)
    if kind is Literal and value in given:
        return value
    if kind is str and isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    if kind is int and type(value) is int and -255 <= value <= 1 << 31:
        return value
    if kind is float and type(value) in (int, float) and 0 <= value < math.inf:
        return float(value)
    if kind is Sequence and isinstance(value, list):
        return tuple(_made(given[0], each) for each in value)
    if kind is Mapping and isinstance(value, dict):
        return {_made(str, name): _made(given[1], each) for name, each in value.items()}
    if kind is datetime:
        moment = datetime.fromisoformat(value).astimezone(UTC)
        if value.endswith("+00:00") and moment <= datetime.now(UTC) + _CLOCKS:
            return moment
    raise ValueError


# Which tests hold up what a rule stands on: its attacks, its examples, its tests, its checks.

ATTACKING: Final = frozenset(
    {
        "tests/attacks/test_ladder.py::test_an_attack_hurts_a_rung_below_the_top",
        "tests/attacks/test_ladder.py::test_the_top_detects_every_attack_that_applies",
        "tests/attacks/test_sql_credential.py::test_an_attack_ends_so_and_these_words_are_said",
    }
)
"""The tests that run the attack which is their parameter."""
STRIKING: Final = ("tests/attacks/test_models.py::", "tests/attacks/test_network.py::")
"""Where a test runs the attack that its code names."""
COPYING: Final = "tests/docs/test_snippets.py::test_a_snippet_runs_by_itself"
"""The test that runs the example which is its parameter, unless a block of a page does, alone."""
NAMED: Final = {
    leg: frozenset(name for rule in RULES.values() for name in rule.legs[leg]) for leg in LEGS
}
"""What the rules name, by leg."""


def held_by(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """Yield each leg, and the name in it, that a test holds up."""
    block = getattr(getattr(item, "example", None), "parsed", None)
    if isinstance(block, Block) and "alone" in block.classes:
        shown = {f"snippets/{block.file.name}"} & NAMED["defence"]
        yield from (("defence", name) for name in shown)
    if not hasattr(item, "function"):
        return
    test = name_of(item)
    function = inspect.unwrap(item.function)
    code = function.__code__
    given = item.callspec.params if hasattr(item, "callspec") else {}
    names = {
        "test": {test, item.nodeid},
        "attack": {str(given.get("attack"))} if test in ATTACKING else set(),
        "defence": {f"snippets/{given['file'].name}"} if test == COPYING else set(),
        "check": {word for text in texts_in(code, given) for word in text.split()},
    }
    if test.startswith(STRIKING):
        names["attack"] = {constant for constant in code.co_consts if isinstance(constant, str)}
    for leg, found in names.items():
        for name in sorted(found & NAMED[leg]):
            yield leg, name


def texts_in(code: CodeType, given: Mapping[str, Any]) -> list[str]:
    """Return the texts in a test, in what it is given, and in what the zoo expects."""
    texts = [*code.co_consts, *given.values(), *getattr(given.get("case"), "found", ())]
    inner = [each for text in texts if isinstance(text, tuple) for each in text]
    return [each for each in (*texts, *inner) if isinstance(each, str)]


def not_run(proofs: Iterable[Proof]) -> list[str]:
    """Return what the rules name and nothing ran. Only Python runs by itself."""
    held = {proof[:2] for proof in proofs}
    named = [(leg, name) for leg in LEGS for name in sorted(NAMED[leg])]
    runs = [each for each in named if each[0] != "defence" or each[1].endswith(".py")]
    return [f"{leg} {name}" for leg, name in runs if (leg, name) not in held]


def name_of(item: pytest.Item) -> str:
    """Return the name of a test, without the parameters of this case."""
    return item.nodeid.partition("[")[0]


def result_of(report: pytest.TestReport) -> Result | None:
    """Return how a case ended, or None if it goes on."""
    if report.failed:
        return "failed"
    if report.skipped:
        return "skipped"
    return "passed" if report.when == "call" else None


def worst(results: Iterable[Result]) -> Result | None:
    """Return the result that counts, or None if there is none."""
    return min(results, key=RESULTS.index, default=None)


# What the outcome of blocks and tests depends on, as it is now.

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
PACKAGES: Final = {
    "safepoint": "safepoint",
    "agent_framework": "agent-framework-core",
    "bandit": "bandit",
    "cryptography": "cryptography",
    "fickling": "fickling",
    "langgraph.checkpoint": "langgraph-checkpoint",
    "langgraph.checkpoint.postgres": "langgraph-checkpoint-postgres",
    "langgraph.checkpoint.sqlite": "langgraph-checkpoint-sqlite",
    "langgraph.graph": "langgraph",
    "modelscan": "modelscan",
    "numpy": "numpy",
    "picklescan": "picklescan",
    "psycopg": "psycopg",
    "pydantic": "pydantic",
    "ruff": "ruff",
    "safepoint.testing.postgres": "PostgreSQL",
    "safetensors": "safetensors",
    "sqlite3": "SQLite",
    "torch": "torch",
}
"""Modules whose versions matter, with the names of their distributions, or of their databases."""


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


def _said(*command: str | Path, cwd: Path | None = None) -> str | None:
    """Return what a program says, or None if it fails or is not there."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@cache
def commit_of(root: Path) -> str | None:
    """Return the commit that is checked out, or None."""
    return _said("git", "rev-parse", "--verify", "HEAD", cwd=root)


def versions(modules: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages among `modules` that matter."""
    found = {PACKAGES[name]: _version(PACKAGES[name]) for name in set(modules) & set(PACKAGES)}
    return {name: version for name, version in sorted(found.items()) if version}


@cache
def _version(distribution: str) -> str | None:
    if distribution == "SQLite":
        return sqlite3.sqlite_version
    try:
        if distribution == "PostgreSQL":
            from safepoint.testing.postgres import installed

            said = _said(installed(18) / "bin" / "postgres", "--version")
            return said.split()[-1] if said else None
        return metadata.version(distribution)
    except (CheckpointError, ImportError):  # not installed
        return None


def imported_by(block: Block) -> set[str]:
    """Return the modules that a block imports or starts, by their first names, or as PACKAGES."""
    if "data-check" in block.attributes:
        return set()
    if block.language == "sql":
        return {"safepoint.testing.postgres"}
    if block.language == "bash":
        programs = set(re.findall(r"(?:^|[|;&(])[ \t]*([\w.-]+)", block.text, re.MULTILINE))
        started = {module for module, name in PACKAGES.items() if name in programs}
        return started | set(re.findall(r"\bpython3? +-m +(\w+)", block.text))
    if block.language != "python":
        return set()
    try:
        nodes = list(ast.walk(ast.parse(block.text)))
    except SyntaxError:
        return set()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    known = {key for name in names for key in PACKAGES if f"{name}.".startswith(f"{key}.")}
    return known | {name.partition(".")[0] for name in names} - {""}


def pretend(file: Path, root: Path) -> Path:
    """Write evidence as if all had run, so that the marks can be looked at before anything has."""
    file.unlink(missing_ok=True)
    evidence = Evidence(file, root, "all")
    append(file, Plan(["all"])._asdict())
    evidence.begin()
    for blocks in written_blocks(root).values():
        for block in blocks:
            evidence.record(block, "ran", 0.0123)
    for leg, names in NAMED.items():
        for name in sorted(names):
            evidence.hold(leg, name, "pretended", "passed")
    evidence.end(0, {"pretended": "passed"}, 0, 0)
    append(file, Done({"all": 0})._asdict())
    plan, begun, *lines = file.read_text(encoding="utf-8").splitlines()
    begun = json.dumps(json.loads(begun) | {"commit": None})  # no commit stands for it
    file.write_text("\n".join([plan, begun, *lines, ""]), encoding="utf-8")
    return file
