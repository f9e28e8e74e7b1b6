"""The list on "What the audit looks at": each kind of finding, from `safepoint.audit.catalogue`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from publish.project import Project
from safepoint.audit.catalogue import CHECKS, Check

_ROLES: Final = {"error": "danger", "warning": "warning"}
_CODE: Final = re.compile(r"(`[^`]+`)")
_MARKUP: Final = re.compile(r"[*_\[\]<>{}]")
_COMMAND: Final = re.compile(r": (?P<command>(?:# safepoint: )?[a-z][\w-]* [^:]*[^.:])$")


def markdown(project: Project) -> str:
    """Return a heading for each rule that something is found under, and each kind of finding."""
    kinds = [each for each in CHECKS.values() if not _is_an_error(each)]
    parts: list[str] = []
    for rule in project.rules.values():
        if found := [each for each in kinds if each.rule == rule.id]:
            # Its title leads to the page that teaches it, here and in the search.
            title = f"[{rule.title}](../{rule.page or f'rules.md#{rule.id.lower()}'})."
            parts += _list(f"{rule.id} {{ #{rule.id.lower()} }}", title, found)
    said = "Found as `SP04.unseen`, `SP13.unseen` and so on."
    parts += _list("Under several rules", said, [each for each in kinds if each.rule == "any"])
    said = "See [Accept a finding](ci.md#accept-a-finding)."
    parts += _list("Of the audit itself", said, [each for each in kinds if each.rule == "audit"])
    return "\n\n".join(parts)


def refusals(project: Project) -> str:  # noqa: ARG001  every fill is given the project
    """Return the names of the library's errors as ids have them, each a link to what it means."""
    found = [each for each in CHECKS.values() if _is_an_error(each)]
    return ",\n".join(
        f"[`{each.id.removeprefix('any.')}`](../errors.md#{str(each.refusal).lower()})"
        f"{{ #{each.id} }}"
        for each in found
    )


def _is_an_error(each: Check) -> bool:
    """Whether it is an error of the library, and not one reason for one."""
    return each.id.replace("-", "") == f"any.{str(each.refusal).lower()}"


def _list(head: str, said: str, found: Iterable[Check]) -> Iterator[str]:
    yield from ('<div class="fold attacks" markdown>', f"### {head}", said)
    for each in found:
        yield f"#### {each.id} {{ #{each.id.lower()} }}"
        role = f"*{each.severity}*{{ .severity--{_ROLES.get(each.severity, 'info')} }}"
        unseen = "" if each.seen else ", not seen"
        head = f"{role}{unseen} · {_text(each.looks)}"
        yield f"{head}  \n{_text(each.says)}  \n**Do:** {_do(each.do)}"
    yield "</div>"


def _text(said: str) -> str:
    parts = _CODE.split(said)
    return "".join(p if _CODE.fullmatch(p) else _MARKUP.sub(r"\\\g<0>", p) for p in parts)


def _do(said: str) -> str:
    command = _COMMAND.search(said)
    if command is None:
        return _text(said)
    return f"{_text(said[: command.start('command')])}`{command['command']}`"
