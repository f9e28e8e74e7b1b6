"""The rules as data, and the legs that they claim to stand on."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from safepoint.attacks import ATTACKS
from safepoint.attacks.models import MODEL_ATTACKS
from safepoint.attacks.network import NETWORK_ATTACKS
from safepoint.audit.finding import entry_of
from safepoint.rules import LEGS, RULES, Rule, package_toml
from tests.attacks.sql import SQL_ATTACKS

ROOT = Path(__file__).parents[2]
EVERY_ATTACK: dict[str, Any] = {**ATTACKS, **MODEL_ATTACKS, **SQL_ATTACKS, **NETWORK_ATTACKS}


def test_every_rule_stands_on_all_legs() -> None:
    """Change this together with rules.toml: it is published."""
    assert [rule.id for rule in RULES.values() if rule.missing] == []


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_is_fit_to_be_shown(rule: Rule) -> None:
    assert rule.severity in ("danger", "warning", "info")
    assert rule.source
    assert rule.callout.endswith(".")
    assert "\n" not in rule.callout
    assert not rule.title.endswith(".")
    for shout in ("simply", "just ", "!"):
        assert shout not in rule.callout
    assert rule.page
    assert f"<!-- rule {rule.id} -->" in (ROOT / "docs" / rule.page).read_text()


def test_the_threat_model_names_the_same_weaknesses() -> None:
    rows = [line.split("|") for line in (ROOT / "docs/threat-model.md").read_text().splitlines()]
    told = {
        rule: [int(each) for each in re.findall(r"definitions/(\d+)", row[2])]
        for row in rows
        if len(row) > 2
        for rule in re.findall(r"\[(SP\d\d)\]\(rules", row[1])
    }
    assert told == {rule.id: rule.cwe for rule in RULES.values() if rule.cwe}


def test_a_rule_stands_once_in_its_file_and_on_known_legs() -> None:
    entries = package_toml("rules.toml")["rule"]
    assert len(entries) == len(RULES)
    assert all(set(entry.get("legs", {})) <= set(LEGS) for entry in entries)


LEGS_THERE = [(rule, leg, ref) for rule in RULES.values() for leg in LEGS for ref in rule.legs[leg]]


@pytest.mark.parametrize(
    ("rule", "leg", "reference"), LEGS_THERE, ids=[f"{r.id}-{ref}" for r, _, ref in LEGS_THERE]
)
def test_a_leg_is_there(rule: Rule, leg: str, reference: str) -> None:
    """What rules.toml names exists: an attack, a snippet, a test function, a check."""
    if leg == "attack":
        assert EVERY_ATTACK[reference].rule == rule.id
    elif leg == "defence":
        assert (ROOT / reference).is_file()
    elif leg == "test":
        file, _, name = reference.partition("[")[0].partition("::")
        tree = ast.parse((ROOT / file).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in names
        assert name.startswith("test_")
    else:
        assert reference.startswith(f"{rule.id}.")
        assert entry_of(reference)
