"""The list of every attack, by what the attacker has: from the catalogues of the kit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from publish.project import Project
from safepoint.attacks import ATTACKS, RESIDUE, TARGETS
from safepoint.attacks.models import MODEL_ATTACKS
from safepoint.attacks.network import NETWORK_ATTACKS
from tests.attacks.sql import SQL_ATTACKS

_LADDER: Final = "ladder.md"
_HEADS: Final = re.compile(r"^\| attack \|(?P<heads>.*)\|$")
_ROW: Final = re.compile(r"^\| \[`(?P<attack>[\w-]+)`\]\S* .*?<br>.*?\|(?P<cells>(?: \*\*.*)+)\|$")
_CELL: Final = re.compile(r"\{ \.(?P<outcome>[\w-]+) \}")
_FALLS: Final = frozenset({"accepted", "executed", "crashed"})
_END: Final = re.compile(r"[:.] ?")

GROUPS: Final = ("writer", "key", "resumes", "sql", "network", "models", "residue")
"""What the attacker has, in the order of the page."""


@dataclass(frozen=True)
class Listed:
    """One attack, as the page and the data for programs list it.

    Attributes:
        id: its name, and its anchor on the page.
        story: what happens, in one line.
        rules: the rules that it shows the reason for.
        group: what the attacker has: `writer`, `key`, `resumes`, `sql`, `network`, `models`, or
            `residue` for what nothing detects.
        about: what it has in common with those beside it.
        command: what runs it.
        rung: the number of the first rung that detects it and has none above that falls to it;
            if no rung detects it, of the first with nothing to strike; None off the ladder, and
            while no rung holds it.
        seen: whether that rung detects it.
    """

    id: str
    story: str
    rules: tuple[str, ...]
    group: str
    about: str
    command: str
    rung: int | None = None
    seen: bool = False


def listed(project: Project) -> list[Listed]:
    """Return every attack of every catalogue, once."""
    rungs = dict(_rungs(project.pages[_LADDER].text))
    found = []
    for kind in ATTACKS.values():
        command = f"safepoint attack {kind.id}"
        found.append(_of(kind, kind.attacker, kind.about, command, project, *rungs[kind.id]))
    for group, (catalogue, command, about) in _CATALOGUES.items():
        for other in catalogue.values():
            group_of = "residue" if getattr(other, "residue", False) else group
            found.append(_of(other, group_of, about, f"{command} {other.id}", project))
    return found


_CATALOGUES: Final[Mapping[str, tuple[Mapping[str, Any], str, str]]] = {
    "residue": (RESIDUE, "safepoint attack", "Attacks that no rung detects."),
    "sql": (
        SQL_ATTACKS,
        "python -m pytest tests/attacks/test_sql_credential.py -k",
        "Attacks with the login of a worker.",
    ),
    "network": (
        NETWORK_ATTACKS,
        "safepoint attack network",
        "The attack between a worker and its database.",
    ),
    "models": (
        MODEL_ATTACKS,
        "safepoint attack models",
        "Attacks by a file, or by a change of the code.",
    ),
}
"""The catalogues off the ladder: what is in them, what runs it, what it has in common."""


def _of(
    kind: Any,
    group: str,
    about: str,
    command: str,
    project: Project,
    rung: int | None = None,
    seen: bool = False,
) -> Listed:
    others = [rule.id for rule in project.rules.values() if kind.id in rule.legs["attack"]]
    rules = tuple(dict.fromkeys([kind.rule, *others]))
    return Listed(kind.id, kind.story, rules, group, about, command, rung, seen)


def markdown(project: Project, group: str) -> str:
    """Return the attacks of one kind of attacker, those with something in common in one fold."""
    attacks = [each for each in listed(project) if each.group == group]
    parts: list[str] = []
    for about in dict.fromkeys(each.about for each in attacks):
        head, rest = _END.split(about, maxsplit=1)
        parts += ['<div class="fold attacks" markdown>', f"### {head}"]
        parts += [rest[0].upper() + rest[1:]] if rest else []
        parts += [_item(each, project) for each in attacks if each.about == about] + ["</div>"]
    return "\n\n".join(parts)


def _rungs(page: str) -> Iterator[tuple[str, tuple[int | None, bool]]]:
    """Read the ladder, which the tests hold: what is above the last rung that falls."""
    numbers: list[int] = []
    for line in page.split("\n"):
        heads, row = _HEADS.match(line), _ROW.match(line)
        if heads:
            numbers = [int(number) for number in re.findall(r"(\d+)<br>", heads["heads"])]
        elif row:
            outcomes = _CELL.findall(row["cells"])
            falls = [index for index, outcome in enumerate(outcomes) if outcome in _FALLS]
            above = max(falls, default=-1) + 1
            seen = [i for i, each in enumerate(outcomes) if i >= above and each == "detected"]
            holds = seen[0] if seen else above
            rung = numbers[holds] if holds < len(numbers) else None
            yield row["attack"], (rung, bool(seen))


def _item(attack: Listed, project: Project) -> str:
    """Return one attack, under a heading that the search knows and the contents leave out."""
    rules = [project.rules[rule] for rule in attack.rules]
    said = ", ".join(f"[{rule.id}]({rule.page or f'rules.md#{rule.id.lower()}'})" for rule in rules)
    if attack.rung is not None:
        what = "detected" if attack.seen else "nothing to strike"
        title = list(TARGETS.values())[attack.rung].title
        said += f" · {what} from rung {attack.rung} on, {title}"
    return f"#### {attack.id} {{ #{attack.id} }}\n\n{attack.story}  \n{said} · `{attack.command}`"
