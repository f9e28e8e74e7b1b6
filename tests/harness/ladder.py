"""The ladder, as it stands on its page: computed from the attacks, never typed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from safepoint.attacks import ATTACKS, RESIDUE, TARGETS, Outcome, matrix
from safepoint.attacks.ladder import Matrix
from safepoint.rules import RULES

MARKS: Final[Mapping[Outcome, str]] = {
    Outcome.DETECTED: "✓",
    Outcome.ACCEPTED: "✗",
    Outcome.EXECUTED: "‼",
    Outcome.CRASHED: "!",
    Outcome.NOT_APPLICABLE: "·",
}


SHORT: Final[Mapping[str, str]] = {
    "naive": "none",
    "allow-list": "types",
    "encrypted": "crypt",
    "hash-chain": "hash",
    "mac": "mac",
    "mac-place": "place",
    "signed-chain": "chain",
    "anchored": "anchor",
}
"""What fits above a column on a phone."""


@cache
def computed() -> Matrix:
    """Run every attack on every rung: on disk, or in memory where it needs that."""
    outcomes = matrix()
    for attack, row in outcomes.items():
        if set(row.values()) == {Outcome.NOT_APPLICABLE}:
            outcomes[attack] = matrix([attack], in_memory=True)[attack]
    return outcomes


def table_markdown() -> str:
    """Return the matrix, with the attacks that need the highest rung at the end."""
    outcomes = computed()
    heads = [f"{number}<br>{SHORT[name]}" for number, name in enumerate(TARGETS)]
    lines = [
        f"| attack | {' | '.join(heads)} |",
        f"|:---|{':---:|' * len(heads)}",
        *(_row(attack, outcomes[attack]) for attack in sorted(outcomes, key=_climb)),
    ]
    return '<div class="ladder" markdown>\n\n' + "\n".join(lines) + "\n\n</div>"


def rungs_markdown() -> str:
    """Return the legend: each rung, how many attacks it falls to, and how many it detects."""
    outcomes = computed()
    lines = ["| rung | what it is | falls to | detects |", "|:---:|:---|---:|---:|"]
    for number, (name, target) in enumerate(TARGETS.items()):
        falls = sum(row[name].succeeded for row in outcomes.values())
        detects = sum(row[name] is Outcome.DETECTED for row in outcomes.values())
        lines.append(f"| {number} | {target.title} (`{name}`) | {falls} | {detects} |")
    spared = "The rest finds nothing to strike"
    return "\n".join(lines) + (
        f"\n\nOf {len(outcomes)} attacks. {spared}. {len(RESIDUE)} more are not in these tables,"
        " because no rung detects them: see [what remains](#what-remains-at-the-top)."
    )


def residue_markdown() -> str:
    """Return what the top does not detect, each as it ended there."""
    top = list(TARGETS)[-1]
    outcomes = matrix(RESIDUE, [top])
    return "\n".join(
        f"- `{name}`, *{outcomes[name][top]}*. {attack.story} ({_rule(attack.rule)})"
        for name, attack in RESIDUE.items()
    )


CONTENTS: Final = {
    "ladder": table_markdown,
    "ladder rungs": rungs_markdown,
    "ladder residue": residue_markdown,
}


def _climb(attack: str) -> tuple[int, int, int]:
    """Sort by the rung from which on the attack is detected, then by how many fall to it."""
    row = list(computed()[attack].values())
    falls = [number for number, outcome in enumerate(row) if outcome.succeeded]
    return max(falls, default=-1), len(falls), list(ATTACKS).index(attack)


def _row(attack: str, row: Mapping[str, Outcome]) -> str:
    kind = ATTACKS[attack]
    cells = " | ".join(f"**{MARKS[outcome]}**{{ .{_class(outcome)} }}" for outcome in row.values())
    return f"| `{attack}` {_rule(kind.rule)}<br>{kind.story} | {cells} |"


def _rule(rule: str) -> str:
    page = RULES[rule].page
    return f"[{rule}]({page or f'rules.md#{rule.lower()}'})"


def _class(outcome: Outcome) -> str:
    return outcome.replace(" ", "-")
