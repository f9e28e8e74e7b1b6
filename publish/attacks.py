"""The list of every attack, by what the attacker has: from the catalogues of the kit."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from publish.project import Project
from safepoint.attacks import ATTACKS, RESIDUE, TARGETS, Attack, Memory
from safepoint.attacks.models import MODEL_ATTACKS
from safepoint.attacks.network import NETWORK_ATTACKS
from safepoint.attacks.sql import SQL_ATTACKS
from safepoint.rules import Rule

_LADDER: Final = "ladder.md"
_HEADS: Final = re.compile(r"^\| attack \|(?P<heads>.*)\|$")
_ROW: Final = re.compile(r"^\| \[`(?P<attack>[\w-]+)`\]\S* .*?<br>.*?\|(?P<cells>(?: \*\*.*)+)\|$")
_CELL: Final = re.compile(r"\{ \.(?P<outcome>[\w-]+) \}")
_FALLS: Final = frozenset({"accepted", "executed", "crashed"})

_NAME: Final = "NAME"
_END: Final = re.compile(r"[:.] ?")
_LOGIN: Final = "Attacks with the login of a worker."

_WRITER: Final = ("edit", "forge", "place", "past", "rollback", "live", "location", "names")
_HOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "writer": (*_WRITER, "defaults"),
    "key": ("thief", "payload", "decoding"),
    "resumes": ("ownership", "resume", "approval", "journals"),
}
"""Who can do it, and the modules of the kit with what they do."""
_APART: Final = {"fork": "key"}
"""What somebody else can do than the rest of its module."""


class _Described(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def story(self) -> str: ...


@dataclass(frozen=True)
class Listed:
    """One attack, as the page and the data for programs list it.

    Attributes:
        id: its name, and its anchor on the page.
        story: what happens, in one line.
        rules: the rules that it shows the reason for.
        group: what the attacker has: `writer`, `key`, `resumes`, `sql`, `network`, `models`, or
            `residue` for what nothing detects.
        about: what the module that it is from says of itself, or what its group has in common.
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
    """Return every attack of every catalogue, once.

    Raises:
        ValueError: the ladder lacks one of them.
    """
    rungs = dict(_rungs(project.pages[_LADDER].text))
    found = [_of_store(kind, rungs, project) for kind in ATTACKS.values()]
    found += [
        _of(kind, "sql", " --sql", project, about=_LOGIN)
        for kind in SQL_ATTACKS.values()
        if not kind.residue
    ]
    found += [
        _of(
            kind,
            "network",
            " --network",
            project,
            about="The attack between a worker and its database.",
        )
        for kind in NETWORK_ATTACKS.values()
    ]
    found += [
        _of(
            kind,
            "models",
            " --models",
            project,
            about="Attacks by a file, or by a change of the code.",
        )
        for kind in MODEL_ATTACKS.values()
    ]
    found += [
        _of(kind, "residue", "", project, about="Attacks that no rung detects.")
        for kind in RESIDUE.values()
    ]
    found += [
        _of(kind, "residue", " --sql", project, about=_LOGIN)
        for kind in SQL_ATTACKS.values()
        if kind.residue
    ]
    return found


def markdown(project: Project) -> str:
    """Return the list, with a heading for each kind of attacker."""
    every = listed(project)
    parts: list[str] = []
    for group, (title, words) in _GROUPS.items():
        attacks = [each for each in every if each.group == group]
        usual = _pattern(attacks[0])
        which = f"Run one of them: `{usual}`." if _NAME in usual else f"Run it: `{usual}`."
        parts += [f"## {title} {{ #{group} }}", f"{words.strip()}\n{which}"]
        for about in dict.fromkeys(each.about for each in attacks):
            those = [each for each in attacks if each.about == about]
            head, rest = _END.split(about, maxsplit=1)
            parts += [f"### {head}", *([rest[0].upper() + rest[1:]] if rest else [])]
            items = "\n\n".join(_item(each, usual, project.rules) for each in those)
            parts.append(f'<div class="attacks" markdown>\n\n{items}\n\n</div>')
    return "\n\n".join(parts)


def _pattern(attack: Listed) -> str:
    """Return the command with a place for the name of any attack like it."""
    return re.sub(rf" {attack.id}\b", f" {_NAME}", attack.command)


def _of_store(
    kind: type[Attack], rungs: Mapping[str, tuple[int | None, bool]], project: Project
) -> Listed:
    module = kind.__module__.rpartition(".")[2]
    holders = [holder for holder, modules in _HOLDERS.items() if module in modules]
    # A new module has a place while it is written; a test asks for its own.
    holder = _APART.get(kind.id) or next(iter(holders), "writer")
    if kind.id not in rungs:
        raise ValueError(f"docs/{_LADDER}: {kind.id} is not in its tables; run make fix")
    rung, seen = rungs[kind.id]
    return _of(
        kind,
        holder,
        "",
        project,
        about=(sys.modules[kind.__module__].__doc__ or "").partition("\n")[0],
        more=" --in-memory" if kind.needs is Memory else "",
        rung=rung,
        seen=seen,
    )


def _of(
    kind: _Described,
    group: str,
    option: str,
    project: Project,
    *,
    about: str = "",
    more: str = "",
    rung: int | None = None,
    seen: bool = False,
) -> Listed:
    others = [rule.id for rule in project.rules.values() if kind.id in rule.legs["attack"]]
    return Listed(
        id=kind.id,
        story=kind.story,
        rules=tuple(dict.fromkeys([kind.rule, *others])),
        group=group,
        about=about,
        command=f"safepoint attack{option} {kind.id}{more}",
        rung=rung,
        seen=seen,
    )


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


def _item(attack: Listed, usual: str, rules: Mapping[str, Rule]) -> str:
    """Return one attack, under a heading that the search knows and the contents leave out."""
    links = ", ".join(_link(rules[rule]) for rule in attack.rules)
    own = "" if _pattern(attack) == usual else f" · `{attack.command}`"
    return f"#### {attack.id} {{ #{attack.id} }}\n\n{attack.story}  \n{links}{_rung(attack)}{own}"


def _link(rule: Rule) -> str:
    return f"[{rule.id}]({rule.page or f'rules.md#{rule.id.lower()}'})"


def _rung(attack: Listed) -> str:
    if attack.rung is None:
        # A test refuses this once it is written; until then the page can be looked at.
        return " · no rung holds it yet" if attack.id in ATTACKS else ""
    title = list(TARGETS.values())[attack.rung].title
    what = "detected" if attack.seen else "nothing to strike"
    return f" · {what} from rung {attack.rung} on, {title}"


_GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "writer": (
        "A writer of the store",
        """
They can write the folder, the file or the tables that hold your checkpoints, and have read your
code. They have no key. A leaked password, a job with too many rights, or a backup that anybody may
restore is enough.""",
    ),
    "key": (
        "Who holds the key",
        """
A thief of the signing key, or a writer inside who has it anyway. The records are sealed as they
should be, so the decoder itself must refuse, and the anchor must remember. Where a store has no
key, anybody can do this.""",
    ),
    "resumes": (
        "Who resumes, or says yes",
        """
Most of the records are genuine here. What is wrong is who goes on from them, as what, on whose
word, and what the journal says about it.""",
    ),
    "sql": (
        "A worker's SQL login",
        """
They have the password of one worker, and no key. With the logins of
[SP05](security/credentials.md) the server refuses it, or the ledger detects it. With one role that
owns the tables, much gets through, and more is lost before it is missed. The command starts a
PostgreSQL of its own, which takes `pip install '.[try-postgres]'`.""",
    ),
    "network": (
        "Somebody on the network",
        """
They stand between a worker and its database. The command shows who believes them, for each
`sslmode`. It takes `pip install '.[postgres]'`.""",
    ),
    "models": (
        "Who hands you a model, or a change",
        """
They can hand you a file, write where your models lie, or propose a change of your code. The command
compares somebody who does what is common with somebody who does what the page of the rule says. It
takes `pip install '.[torch]'`.""",
    ),
    "residue": (
        "What nobody detects",
        """
No rung of the ladder detects these, or no server can refuse them to a worker's login. They run as
well, so that nobody claims otherwise. What helps is elsewhere: the page of the rule says where.""",
    ),
}
"""Each kind of attacker: the heading, and what to know before the list."""
