"""The ladder, as it stands on its page: computed from the attacks, never typed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

from safepoint.attacks import ATTACKS, RESIDUE, TARGETS, Outcome
from safepoint.attacks.ladder import scratch
from safepoint.attacks.rungs import TOP
from safepoint.rules import RULES
from tests.harness.shared import shared

Matrix = dict[str, dict[str, Outcome]]
"""Attack, then rung, then how it ended."""

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
    "gated": "gate",
}
"""What fits above a column on a phone."""

STORE: Final = [name for name in TARGETS if name != TOP]
"""The rungs on which attacks on a store end in different ways. At the top they end as below it."""

RUNS: Final = ["naive", "mac-place", "anchored", "gated"]
"""The rungs of the smaller table: from nothing to the top, and where a place and an anchor help."""


@cache
def _found() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared("ladder", _run) / "found.json").read_text())
    return found


@cache
def every() -> Matrix:
    """Return how every attack ended on every rung. They run once for all tests of a run."""
    rows = _found()["outcomes"].items()
    return {name: {rung: Outcome(end) for rung, end in row.items()} for name, row in rows}


def strays() -> list[str]:
    """Return every file that an attack left outside its own folder."""
    return list(_found()["strays"])


def reasons() -> dict[str, list[str]]:
    """Return what the top said each time that it refused, by attack."""
    return {name: _found()["refused"][name] for name in ATTACKS}


@cache
def computed() -> Matrix:
    """Return the matrix that pages show."""
    return {name: every()[name] for name in ATTACKS}


def _run(folder: Path) -> None:
    outcomes: Matrix = {}
    strays: list[str] = []
    refused: dict[str, list[str]] = {}
    for attack, rung in product([*ATTACKS, *RESIDUE], TARGETS):
        with scratch() as outer:
            cell = Path(outer, "cell")
            cell.mkdir(mode=0o700)
            target = TARGETS[rung](cell)
            outcomes.setdefault(attack, {})[rung] = (ATTACKS | RESIDUE)[attack].run(target)
            refused[attack] = target.refused  # of the top, which is the last one
            strays += [f"{attack}/{rung}/{p.name}" for p in Path(outer).iterdir() if p != cell]
    found = {"outcomes": outcomes, "strays": strays, "refused": refused}
    (folder / "found.json").write_text(json.dumps(found))


def table_markdown() -> str:
    """Return the attacks on a store, with those that need the highest rung at the end."""
    return _table([name for name, kind in ATTACKS.items() if kind.stopped_by != TOP], STORE)


def runs_markdown() -> str:
    """Return the attacks on a run that is resumed, in the same order."""
    return _table([name for name, kind in ATTACKS.items() if kind.stopped_by == TOP], RUNS)


def _table(attacks: Iterable[str], rungs: Sequence[str]) -> str:
    outcomes, numbers = computed(), list(TARGETS)
    heads = [f"{numbers.index(name)}<br> {SHORT[name]}" for name in rungs]
    lines = [
        f"| attack | {' | '.join(heads)} |",
        f"|:---|{':---:|' * len(heads)}",
        *(
            _row(name, [outcomes[name][rung] for rung in rungs])
            for name in sorted(attacks, key=_climb)
        ),
    ]
    kind = "ladder" if len(rungs) == len(STORE) else "ladder ladder--short"
    return f'<div class="{kind}" markdown>\n\n' + "\n".join(lines) + "\n\n</div>"


def rungs_markdown() -> str:
    """Return the legend: each rung, how many attacks it falls to, and how many it detects."""
    outcomes = computed()
    lines = [
        "| rung | what it is | falls to | detects | no target |",
        "|:---:|:---|---:|:---|---:|",
    ]
    for number, (name, target) in enumerate(TARGETS.items()):
        falls = sum(row[name].succeeded for row in outcomes.values())
        detects = sum(row[name] is Outcome.DETECTED for row in outcomes.values())
        cells = [
            str(number),
            f"{target.title} (`{name}`)",
            _bar(falls, len(outcomes), "falls"),
            _bar(detects, len(outcomes), "detects"),
            str(len(outcomes) - falls - detects),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    table = '<div class="rungs" markdown>\n\n' + "\n".join(lines) + "\n\n</div>"
    return table + (
        f"\n\nEach row adds up to {len(outcomes)} attacks. *No target*: the attack did not apply,"
        " for example because there is no signature to forge. That is not a point in the design's"
        f" favour. The table leaves out {len(RESIDUE)} more, which no rung detects: see"
        " [what remains at the top](#what-remains-at-the-top)."
    )


def residue_markdown() -> str:
    """Return what the top does not detect, each as it ended there."""
    outcomes = every()
    return "\n".join(
        f"- {_name(name)}, *{outcomes[name][TOP]}*. {attack.story} ({_rule(attack.rule)})"
        for name, attack in RESIDUE.items()
    )


CONTENTS: Final = {
    "ladder": table_markdown,
    "ladder runs": runs_markdown,
    "ladder rungs": rungs_markdown,
    "ladder residue": residue_markdown,
}


def _climb(attack: str) -> tuple[int, int, int]:
    """Sort by the rung from which on the attack is detected, then by how many fall to it."""
    row = list(computed()[attack].values())
    falls = [number for number, outcome in enumerate(row) if outcome.succeeded]
    return max(falls, default=-1), len(falls), list(ATTACKS).index(attack)


def _row(attack: str, row: Iterable[Outcome]) -> str:
    kind = ATTACKS[attack]
    cells = " | ".join(f"**{MARKS[outcome]}**{{ .{_class(outcome)} }}" for outcome in row)
    # The space keeps the two apart for whoever reads no line break: the search.
    return f"| {_name(attack)} {_rule(kind.rule)}<br> {kind.story} | {cells} |"


def _bar(count: int, whole: int, kind: str) -> str:
    """Return a number with how long its bar is, in twentieths: a policy allows no styles."""
    return f"**{count}**{{ .bar .bar--{kind} .bar--{round(20 * count / whole)} }}"


def _name(attack: str) -> str:
    return f"[`{attack}`](attacks.md#{attack})"


def _rule(rule: str) -> str:
    page = RULES[rule].page
    return f"[{rule}]({page or f'rules.md#{rule.lower()}'})"


def _class(outcome: Outcome) -> str:
    return outcome.replace(" ", "-")
