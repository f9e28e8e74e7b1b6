"""The evidence: what ran and how it ended, in the JUnit XML of a run, which the site can show.

`make test` lets pytest write it at the end, and removes the old one at the beginning: a run that
was killed has none. A test says in its properties which block it was and what a rule names that it
holds up; the run says on what it ran, how it ended, and how many tests it found and left out. So a
run that was stopped, or had only a part to do, cannot look like one that passed.
"""

from __future__ import annotations

import hashlib
import inspect
import platform
import re
import sqlite3
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from safepoint.core.errors import CheckpointError
from safepoint.rules import LEGS, RULES
from tests.harness.blocks import Block, written_blocks

if TYPE_CHECKING:
    import pytest

FILE: Final = "build/evidence.xml"
Outcome = Literal["ran", "checked", "skipped", "failed"]
OUTCOMES: Final[Mapping[Outcome, str]] = MappingProxyType(
    {"ran": "ran", "checked": "checked only", "skipped": "skipped", "failed": "failed"}
)
"""How a block can end, with the words for it."""
Result = Literal["failed", "passed", "skipped"]
RESULTS: Final[tuple[Result, ...]] = get_args(Result)
"""How a test can end. Of several cases the first of these counts: what was skipped did not run."""
Properties = Sequence[tuple[str, str]]
END: Final = {"exit": "0", "left": "0", "deep": "0", "chosen": "", "census": "0"}
"""What a run says of itself when all went well."""
_CLOCKS: Final = timedelta(hours=1)  # by which two machines may differ
_BLOCK: Final = re.compile(r"(?P<page>.+)::(?P<line>\d+)-(?P<language>\w+)")


class Run(NamedTuple):
    """What a run says of itself.

    Attributes:
        started: when it began.
        commit: what was checked out.
        python: the version of Python.
        system: the name of the system.
        versions: those of the packages that matter.
        sources: a digest of each page, and of each folder that a test depends on.
        chosen: the files that it was asked for, if not for all.
        exit: its exit status.
        left: how many tests it found and did not run, those for `make deep` aside.
        deep: how many are for `make deep`.
        census: how many differences to the site the census found.
    """

    started: datetime
    commit: str | None
    python: str
    system: str
    versions: Mapping[str, str]
    sources: Mapping[str, str]
    chosen: str = ""
    exit: int = 0
    left: int = 0
    deep: int = 0
    census: int = 0


class Case(NamedTuple):
    """How a test ended, and what it says of itself."""

    test: str
    result: Result
    properties: Properties


class Entry(NamedTuple):
    """What the evidence says about one block."""

    page: str
    line: int
    block: int
    language: str
    sha256: str
    outcome: Outcome

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
    """

    leg: str
    name: str
    test: str
    outcome: Result


@dataclass(frozen=True)
class Read:
    """What the evidence says: of the run, and of each case of each test."""

    run: Run | None = None
    cases: Sequence[Case] = ()

    @cached_property
    def entries(self) -> list[Entry]:
        """The blocks."""
        return [made for case in self.cases if (made := _entry(case))]

    @cached_property
    def proofs(self) -> list[Proof]:
        """The tests that rules stand on."""
        held: defaultdict[tuple[str, str, str], list[Case]] = defaultdict(list)
        for case in self.cases:
            for leg, name in case.properties:
                if leg in LEGS:
                    held[leg, name, case.test.partition("[")[0]].append(case)
        return [
            Proof(*key, worst(case.result for case in cases) or "failed")
            for key, cases in held.items()
        ]

    @cached_property
    def results(self) -> Mapping[str, Result]:
        """How each test ended."""
        found: dict[str, Result] = {}
        for case in self.cases:
            found[case.test] = worst((case.result, found.get(case.test, case.result))) or "failed"
        return found

    @cached_property
    def totals(self) -> Counter[Result]:
        """How many tests ended how."""
        return Counter(self.results.values())

    @property
    def status(self) -> int:
        """The exit status of the whole, as `make test` has it: 0 if all went well."""
        return int(bool(self.failed or self.partial))

    @property
    def failures(self) -> list[str]:
        """The names of the tests that failed."""
        return sorted(name for name, result in self.results.items() if result == "failed")

    @cached_property
    def failed(self) -> list[str]:
        """Why this is no run that passed, as clauses; empty if nothing failed."""
        said = []
        if count := self.totals["failed"]:
            said.append(f"{count:,} of {count + self.totals['passed']:,} tests failed")
        if self.run and self.run.census:
            said.append("the census found a difference")
        if self.run and self.run.exit and not said:
            said.append(f"pytest ended with exit status {self.run.exit}")
        return said

    @cached_property
    def partial(self) -> list[str]:
        """Why this is no whole run, as clauses; empty if it is one."""
        said = []
        if self.run and self.run.chosen:
            said.append("only chosen tests ran")
        if self.run and self.run.left:
            said.append(f"{self.run.left:,} tests were left out")
        return said


def read(file: Path) -> Read:
    """Read an evidence file.

    Raises:
        FileNotFoundError: nothing ran yet.
        ValueError: the file is not evidence.
    """
    try:
        (suite,) = ET.parse(file).getroot()  # noqa: S314  a test wrote it, and expat has bounds
        return Read(_run(suite), [_case(each) for each in suite.iter("testcase")])
    except (ET.ParseError, ValueError, LookupError, TypeError):
        raise ValueError(f"{file.name} is not evidence; run make test") from None


def plain(name: str) -> str:
    """Return a name with a question mark for whatever a page could take for markup."""
    return re.sub(r"[^\w./:,=+?!\[\] -]", "?", name, flags=re.ASCII)[:300]


def _properties(element: ET.Element) -> list[tuple[str, str]]:
    found = element.findall("properties/property")
    return [(each.attrib["name"], plain(each.attrib["value"])) for each in found]


def _run(suite: ET.Element) -> Run:
    said = _properties(suite)
    one = dict(said)
    started = datetime.fromisoformat(suite.attrib["timestamp"]).astimezone(UTC)
    if started > datetime.now(UTC) + _CLOCKS:
        raise ValueError
    software = one["python"], one["system"], _pairs(said, "version"), _pairs(said, "source")
    numbers = [int(one[name]) for name in ("exit", "left", "deep", "census")]
    return Run(started, one["commit"] or None, *software, one["chosen"], *numbers)


def _pairs(properties: Properties, name: str) -> dict[str, str]:
    """Return what has a name of its own behind the same name: `version` of `torch` is `2.13.0`."""
    pairs = (value.rpartition(" ") for key, value in properties if key == name)
    return {key: value for key, _, value in pairs}


def _case(element: ET.Element) -> Case:
    properties = _properties(element)
    skipped = element.find("skipped")
    result: Result = "passed"
    if element.find("failure") is not None or element.find("error") is not None:
        result = "failed"
    elif skipped is not None and skipped.get("type") != "pytest.xfail":
        result = "skipped"
    # One whose process died, or a file that cannot be read, has no properties.
    name, file = element.attrib["name"], element.get("file", "")
    test = dict(properties).get("id") or (f"{file}::{name}" if element.get("classname") else file)
    return Case(plain(test), result, properties)


def _entry(case: Case) -> Entry | None:
    said = dict(case.properties)
    if "sha256" not in said:
        return None
    place = _BLOCK.fullmatch(case.test)
    if place is None:
        raise ValueError(f"{case.test} is no block")
    ended: Outcome = "checked" if "checked" in said else "ran"
    outcome: Outcome = ended if case.result == "passed" else case.result
    page, line, language = place.groups()
    return Entry(page, int(line), int(said["block"]), language, said["sha256"], outcome)


def find(entries: list[Entry], sought: str, *, take: bool = False) -> Entry | None:
    """Return the first entry of a block with that digest, and take it out of the list if asked."""
    for index, entry in enumerate(entries):
        if entry.sha256 == sought:
            return entries.pop(index) if take else entry
    return None


def describe_run(root: Path) -> list[tuple[str, str]]:
    """Return what a run says of itself when it begins: what is there, and on what it runs."""
    return [
        ("commit", commit_of(root) or ""),
        ("python", platform.python_version()),
        ("system", platform.system()),
        *(("version", f"{name} {version}") for name, version in versions().items()),
        *(("source", f"{name} {digest}") for name, digest in sources(root).items()),
    ]


def describe_block(block: Block) -> list[tuple[str, str]]:
    """Return what the test of a block says of itself."""
    return [
        ("block", str(block.number)),
        ("sha256", block.digest),
        *([("checked", "only")] if "data-check" in block.attributes else []),
    ]


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
PACKAGES: Final = (
    *("PostgreSQL", "SQLite", "agent-framework-core", "bandit", "cryptography", "fickling"),
    *("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-postgres"),
    *("langgraph-checkpoint-sqlite", "modelscan", "numpy", "picklescan", "psycopg", "pydantic"),
    *("ruff", "safepoint", "safetensors", "torch"),
)
"""The distributions and the databases whose versions matter."""


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


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter."""
    return {name: version for name in PACKAGES if (version := _version(name))}


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


def pretend(file: Path, root: Path) -> Path:
    """Write evidence as if all had run, so that the marks can be looked at before anything has."""
    blocks = [block for page in written_blocks(root).values() for block in page]
    ran = {f"{b.page}::{b.line}-{b.language}": describe_block(b) for b in blocks}
    cases = {test: [each for each in said if each[0] != "checked"] for test, said in ran.items()}
    cases |= {"pretended": [(leg, name) for leg, names in NAMED.items() for name in sorted(names)]}
    said = [("commit", ""), *describe_run(root)[1:], *END.items()]  # no commit stands for it
    return write(file, said, [Case(test, "passed", has) for test, has in cases.items()])


def write(file: Path, run: Properties, cases: Iterable[Case]) -> Path:
    """Write evidence as pytest does."""
    whole = ET.Element("testsuites")
    suite = ET.SubElement(whole, "testsuite", timestamp=datetime.now(UTC).isoformat())
    _add(suite, run)
    for test, result, properties in cases:
        case = ET.SubElement(suite, "testcase", classname="x", name="x")
        _add(case, [("id", test), *properties])
        if result != "passed":
            ET.SubElement(case, {"failed": "failure"}.get(result, result))
    file.parent.mkdir(parents=True, exist_ok=True)
    ET.ElementTree(whole).write(file, encoding="utf-8")
    return file


def _add(element: ET.Element, properties: Properties) -> None:
    all_of_them = ET.SubElement(element, "properties")
    for name, value in properties:
        ET.SubElement(all_of_them, "property", name=name, value=value)
