"""The catalogue of findings: what it holds is found, what is found it holds, and it can be read."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

from safepoint import audit
from safepoint.audit.finding import CATALOGUE, finding
from safepoint.core import errors, files
from safepoint.models.lint import IDS
from safepoint.stores import disk

WHOLE = re.compile(r"(?:SP[0-9]{2}|audit)\.[a-z0-9-]*[a-z0-9]")
BEGIN = re.compile(r"SP[0-9]{2}\.[a-z-]+-")
GIVEN = {"where", "at", "quoted"}
TREES = [
    ast.parse(file.read_text(encoding="utf-8"))
    for file in sorted(Path(audit.__file__).parent.glob("*.py"))
]
NODES = [node for tree in TREES for node in ast.walk(tree)]


def ids(node: ast.AST) -> Iterator[str]:
    """The ids that it may stand for: "SP04.mode", f"{rule}.unseen", f"SP05.in-{role}"."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and WHOLE.fullmatch(str(each.value)):
            yield str(each.value)
        elif isinstance(each, ast.JoinedStr) and len(each.values) == 2:
            begin, end = (str(getattr(value, "value", "")) for value in each.values)
            if BEGIN.fullmatch(begin):
                yield from (which for which in CATALOGUE if which.startswith(begin))
            elif re.fullmatch(r"\.[a-z-]+", end):
                yield f"any{end}"


def blanks(which: str) -> set[str]:
    texts = "".join(CATALOGUE[which][key] for key in ("severity", "what", "do"))
    names = [name for _, name, _, _ in string.Formatter().parse(texts) if name is not None]
    return {name.partition(".")[0] for name in names}


def kinds() -> set[str]:
    """What the library says of its own refusals: the kinds of a place, and the errors."""
    source = "".join(Path(str(each.__file__)).read_text(encoding="utf-8") for each in (disk, files))
    said = [
        call.args[2].value
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Unsafe"
        if isinstance(call.args[2], ast.Constant)
    ]
    named = [name for name, kind in vars(errors).items() if isinstance(kind, type)]
    return {*map(str, said), *(re.sub(r"\B(?=[A-Z])", "-", name).lower() for name in named)}


def test_what_is_found_is_in_the_catalogue_and_the_other_way_round() -> None:
    linted = {f"{each.rule}.{name.lower()}" for name, each in IDS.items()}
    refusals = {f"any.{kind}" for kind in kinds()} - {"any.any"}
    found = {each for tree in TREES for each in ids(tree)}
    assert refusals.isdisjoint(found)
    assert found | refusals | linted == set(CATALOGUE)


def test_each_call_fills_the_blanks_and_no_others() -> None:
    seen = set[str]()
    for call in (node for node in NODES if isinstance(node, ast.Call)):
        name = getattr(call.func, "id", None) or getattr(call.func, "attr", None)
        given = {each.arg for each in call.keywords}
        if name not in ("finding", "found") or None in given:
            continue  # what is unpacked, the texts of the other tests show
        more = {"entry"} if name == "found" else set()
        for which in ids(call.args[0]) if call.args else ():
            seen.add(which)
            assert given | more == (blanks(which) | more) - GIVEN, which
    assert len(seen) > 50


def test_a_finding_of_any_rule_has_the_rule_that_it_is_found_under() -> None:
    """And words from outside are no blanks."""
    found = finding("SP13.unseen", "/x {do}", reason="{where}")
    assert (found.id, found.rule, found.severity) == ("SP13.unseen", "SP13", "warning")
    assert found.what == "'/x {do}' could not be looked at as a whole ({where})."
