"""Which tests hold up what a rule stands on: its attacks, its examples, its tests, its checks."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from safepoint.rules import LEGS, RULES

if TYPE_CHECKING:
    import pytest

Result = Literal["failed", "passed", "skipped"]
RESULTS: Final[tuple[Result, ...]] = ("failed", "passed", "skipped")
"""How a test can end. Of several cases the first of these counts: what was skipped did not run."""

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
"""The test that runs the example which is its parameter."""

NAMED: Final = {
    leg: frozenset(name for rule in RULES.values() for name in rule.legs[leg]) for leg in LEGS
}
"""What the rules name, by leg."""


class Proof(NamedTuple):
    """How a test ended that holds up a leg.

    Attributes:
        leg: `attack`, `defence`, `test` or `check`.
        name: what the rule names.
        test: the test, without the parameters of its cases.
        outcome: `passed` if all cases that ran have passed.
        ms: how long all cases took.
        run: the process that ran it.
    """

    leg: str
    name: str
    test: str
    outcome: Result
    ms: float = 0.0
    run: str = ""


def held_by(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """Yield each leg, and the name in it, that a test holds up."""
    if not hasattr(item, "function"):
        return
    test = name_of(item)
    code = inspect.unwrap(item.function).__code__
    if test in NAMED["test"]:
        yield "test", test
    for attack in sorted(_attacks(item, test, code.co_consts) & NAMED["attack"]):
        yield "attack", attack
    if test == COPYING:
        file = _parameter(item, "file")
        name = f"snippets/{file.name}" if isinstance(file, Path) else ""
        if name in NAMED["defence"]:
            yield "defence", name
    for check in sorted(NAMED["check"]):
        if check.rpartition(":")[2] in code.co_names:
            yield "check", check


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


def _attacks(item: pytest.Item, test: str, constants: Iterable[object]) -> set[str]:
    if test in ATTACKING:
        return {str(_parameter(item, "attack"))}
    if test.startswith(STRIKING):
        return {constant for constant in constants if isinstance(constant, str)}
    return set()


def _parameter(item: pytest.Item, name: str) -> Any:
    return item.callspec.params.get(name) if hasattr(item, "callspec") else None
