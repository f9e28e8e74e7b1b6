"""Explain what an error means and what to do first, to anyone who reads its message.

`safepoint explain SealBroken` prints it; without a name it lists every error. For the id of a rule
it says where the rule is, and for that of a finding of the audit what it is and what to do. The
words are those of `errors.toml`, which the site shows under "By error", and of `findings.toml`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from safepoint.core.errors import NotFound
from safepoint.rules import RULES, Rule
from safepoint.shared.explanations import EXPLANATIONS, Explanation
from safepoint.shared.terminal import add, unknown

_FINDING: Final = re.compile(
    r"(?:.*[/#])?((?:SP\d\d|any|audit)\.[\w-]+|SL\d\d)(?![\w.-])", re.IGNORECASE
)

_LIST: Final = "List them all: safepoint explain"


_FOLDED: Final = {name.lower(): name for name in EXPLANATIONS}


def explanation(name: str) -> Explanation:
    """Return what an error means.

    ```python
    from safepoint.command.explain import explanation

    found = explanation("sealbroken")
    print(found.name, found.address, found.rules)
    #> SealBroken errors/#sealbroken ('SP12', 'SP14', 'SP08', 'SP02')
    ```

    Args:
        name: in capitals or not, also as a message has it, with its module in front and the rest
            behind it, or as an address of the site: `errors/#sealbroken`.

    Raises:
        NotFound: there is no such error.
    """
    wanted = _name(name)
    if wanted.lower() in _FOLDED:
        return EXPLANATIONS[_FOLDED[wanted.lower()]]
    raise unknown("error", wanted, EXPLANATIONS, _LIST)


def _name(pasted: str) -> str:
    return re.split("[.#/]", pasted.partition(": ")[0].strip())[-1]


def lines_of(found: Explanation) -> Iterator[str]:
    """Yield an explanation as it reads in a terminal."""
    kind = "" if found.parent is None else f" (a kind of {found.parent})"
    yield f"{found.name}{kind}: {found.says}"
    yield found.means
    yield "Possible causes:"
    yield from (f"  - {cause}" for cause in found.causes)
    yield f"First: {found.first}"
    yield "On the site:"
    yield f"  - {found.address}"
    yield from (f"  - {page.replace('.md#', '/#')}" for page in found.pages)
    yield from (f"  - rules/#{rule.lower()}: {RULES[rule].title}" for rule in found.rules)


def _lines(name: str) -> Iterator[str]:
    if found := _FINDING.match(name.strip()):
        yield from _of_finding(found[1])
        return
    wanted = _name(name).upper()
    rule = RULES.get(wanted)
    if rule is None:
        if re.fullmatch(r"SP\d\d", wanted):
            raise unknown("rule", wanted, (), _LIST)
        yield from lines_of(explanation(name))
        return
    yield f"{rule.id}: {rule.title}"
    yield rule.callout
    yield "On the site:"
    yield from _pages(rule)


def _pages(rule: Rule) -> Iterator[str]:
    yield f"  - rules/#{rule.id.lower()}"
    if rule.page is not None:
        yield f"  - {rule.page.replace('.md', '/')}"


def _of_finding(which: str) -> Iterator[str]:
    """Yield what the audit means by an id, or the linter: its own words, with their blanks."""
    from safepoint.audit.catalogue import CHECKS, check_of  # it needs what this module explains

    which = next((each for each in CHECKS if each.endswith(f".{which.lower()}")), which)
    check = check_of(which)
    rule, _, name = which.partition(".")
    rule = rule.upper() if rule.upper() in RULES else rule.lower()
    yield f"{rule}.{name.lower()} ({check.severity}): {check.says}"
    yield f"Looks at: {check.looks}"
    yield f"Do: {check.do}"
    known = RULES.get(rule)
    if known is not None:
        yield f"{rule}: {known.title}"
    yield "On the site:"
    yield f"  - {check.address}"
    if check.refusal is not None:
        yield f"  - {EXPLANATIONS[check.refusal].address}"
    if known is not None:
        yield from _pages(known)


def _listed() -> Iterator[str]:
    yield "Errors"
    width = max(map(len, EXPLANATIONS))
    yield from (f"  {name:{width}}  {each.says}" for name, each in EXPLANATIONS.items())
    from safepoint.audit.catalogue import CHECKS

    yield "Rules"
    yield from (f"  {rule.id}  {rule.title}" for rule in RULES.values())
    yield "Findings of safepoint audit, and of lint"
    yield from (f"  {name}" for name in CHECKS)
    yield "Explain one: safepoint explain NAME"


def commands(sub: Any) -> None:
    """Add `safepoint explain`."""
    parser = add(sub, "explain", "say what an error, a rule or a finding means", _explain)
    what = "as in the traceback: SealBroken; a rule: SP12; or a finding: SP04.mode"
    parser.add_argument("names", metavar="NAME", nargs="*", help=what)


def _explain(options: argparse.Namespace) -> int:
    status, blocks = 0, list[str]()
    for name in options.names or [None]:
        try:
            blocks.append("\n".join(_listed() if name is None else _lines(name)))
        except NotFound as error:
            print(error, file=sys.stderr)
            status = 2
    print(*blocks, sep="\n\n", end="\n" * bool(blocks))
    return status
