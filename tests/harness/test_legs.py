"""What the rules stand on is tied to tests that there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from safepoint.attacks import ATTACKS
from tests.attacks.sql import SQL_ATTACKS
from tests.harness.blocks import ROOT
from tests.harness.legs import ATTACKING, COPYING, NAMED, STRIKING
from tests.harness.sources import TESTS


def functions(file: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: node for node in found if node.name.startswith("test_")}


def every_file() -> Iterator[str]:
    for file in sorted((ROOT / TESTS).rglob("test_*.py")):
        yield file.relative_to(ROOT).as_posix()


def parameters(test: str) -> set[str]:
    file, _, name = test.partition("::")
    return {each.arg for each in functions(file)[name].args.args}


def test_the_tests_that_run_what_is_their_parameter_have_it() -> None:
    assert all("attack" in parameters(test) for test in ATTACKING)
    assert "file" in parameters(COPYING)


def test_every_attack_is_run_by_a_test() -> None:
    """By its parameter, or by its name in the code of the test."""
    named = {
        node.value
        for prefix in STRIKING
        for function in functions(prefix.removesuffix("::")).values()
        for node in ast.walk(function)
        if isinstance(node, ast.Constant)
    }
    assert NAMED["attack"] - {*ATTACKS, *SQL_ATTACKS} <= named


def test_every_check_is_called_by_a_test() -> None:
    called = {
        node.id
        for file in every_file()
        for function in functions(file).values()
        for node in ast.walk(function)
        if isinstance(node, ast.Name)
    }
    assert {name.rpartition(":")[2] for name in NAMED["check"]} <= called


def test_a_change_of_a_test_that_is_named_is_noticed() -> None:
    """Each is below the folder whose digest is in the evidence."""
    tests = {*NAMED["test"], *ATTACKING, *STRIKING, COPYING}
    assert [test for test in tests if not test.startswith(f"{TESTS}/")] == []
