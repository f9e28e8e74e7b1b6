"""SARIF: findings for the programs that show them, and the same as lines of GitHub Actions.

Anyone who names a file must not write a line, a link or a command of their own by it, and must not
make the output unreadable.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from safepoint.audit.finding import FAILED, Finding, Report, entry_of
from safepoint.core.errors import shell
from safepoint.rules import RULES
from safepoint.settings import FILE

_GITHUB: Final = {"error": "error", "warning": "warning", "note": "notice"}
_DATA: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY: Final = {**_DATA, ":": "%3A", ",": "%2C"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def tool() -> dict[str, str]:
    """Return the name and the version of what looked."""
    from importlib import metadata  # it takes long, and most commands do not ask

    try:
        return {"name": "safepoint", "version": metadata.version("safepoint")}
    except metadata.PackageNotFoundError:  # it runs out of a folder
        return {"name": "safepoint", "version": "unknown"}


def readable(text: str) -> str:
    """Return a text as one that every reader of JSON takes: half a character is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def github_line(each: Finding) -> str:
    """Return the line that GitHub Actions shows in a pull request: a notice, if it is accepted."""
    level = "notice" if each.accepted else _GITHUB[each.severity]
    text = f"{each.what} {each.do}{f' Accepted: {each.accepted}' if each.accepted else ''}"
    properties: dict[str, object] = {"title": each.id}
    if is_path(each.where):
        line, column = _position(each)
        place = {"line": line, "col": column} if line else {}
        properties = {"file": _shown(each.where), **place, **properties}
    said = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in properties.items())
    return f"::{level} {said}::{_escaped(text, _DATA)}"


def _position(each: Finding) -> tuple[int, int]:
    """Return the line and the column, from 1; 0 if it is about all of a file."""
    # What is found in code begins with its place, as the linter writes it.
    found = re.match(rf"{re.escape(shell(each.where))}:(\d+):(\d+)\b", each.what)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _escaped(value: object, codes: Mapping[str, str]) -> str:
    return "".join(codes.get(character, character) for character in str(value))


def is_path(where: str) -> bool:
    """Tell a path from a thread, a login or a server: it is absolute, or it is there."""
    return bool(where) and (os.path.isabs(where) or os.path.lexists(where))  # noqa: PTH117


def _shown(where: str) -> str:
    """Return a path relative to the current folder if it is below that, and else absolute."""
    path, here = os.path.abspath(where), f"{os.getcwd()}/"  # noqa: PTH100, PTH109  as it is named
    return path.removeprefix(here) if path.startswith(here) else path


def log(report: Report, status: int) -> str:
    """Return a log of SARIF 2.1.0, an OASIS standard."""
    results, seen = [], Counter[tuple[str, str]]()
    for each in report.findings:
        if each.id != FAILED:
            # By its number at the place, and not by its words: those may count, or name a time.
            place = (each.id, _shown(each.where) if is_path(each.where) else each.where)
            seen[place] += 1
            results.append(_result(each, readable("\0".join([*place, str(seen[place])]))))
    failures = [f"{each.what} {each.do}" for each in report.findings if each.id == FAILED]
    notes = [{"level": "error", "message": {"text": _message(why)}} for why in failures]
    rules = [_rule(name) for name in dict.fromkeys(result["ruleId"] for result in results)]
    run = {
        "tool": {"driver": {**tool(), "rules": rules}},
        "invocations": [
            {
                "executionSuccessful": status != 2,
                "exitCode": status,
                "toolExecutionNotifications": notes,
            }
        ],
        "results": results,
        "columnKind": "unicodeCodePoints",
        "properties": {"lookedAt": [readable(each) for each in report.looked]},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _rule(which: str) -> dict[str, Any]:
    """Return what the catalogue and the rule say of a kind of finding."""
    rule = RULES.get(which.partition(".")[0])
    about, cwe = (f"{rule.callout} ", rule.cwe) if rule else ("", ())
    return {
        "id": which,
        "shortDescription": {"text": readable(entry_of(which)["looks"])},
        "help": {"text": readable(f"{about}Learn more: safepoint explain {which}")},
        "properties": {"tags": ["security", *(f"external/cwe/cwe-{each:03}" for each in cwe)]},
    }


def _result(each: Finding, place: str) -> dict[str, Any]:
    accepted = {"kind": "external", "status": "accepted", "justification": f"{each.accepted}"}
    return {
        "ruleId": each.id,
        "level": each.severity,
        "message": {"text": _message(f"{each.what} {each.do}")},
        "locations": [_location(each)],
        "partialFingerprints": {"place/v1": hashlib.sha256(place.encode()).hexdigest()},
        "suppressions": [accepted] if each.accepted else [],
        "properties": {"rule": each.rule, "seen": each.seen, "store": readable(each.store)},
    }


def _message(text: str) -> str:
    """Return a text without the links that SARIF lets a text have."""
    return readable(re.sub(r"\]\(", "] (", text))


def _location(each: Finding) -> dict[str, Any]:
    # GitHub refuses the whole log if one result is at no file, and wants a line. What is at none,
    # such as a thread, is shown at the settings, which name its store.
    uri = _uri(each.where if is_path(each.where) else FILE)
    line, column = _position(each)
    region = {"startLine": line or 1, **({"startColumn": column} if line else {})}
    physical = {"artifactLocation": {"uri": uri}, "region": region}
    logical = [] if is_path(each.where) or not each.where else [readable(each.where)]
    named = {"logicalLocations": [{"fullyQualifiedName": name} for name in logical]}
    return {"physicalLocation": physical, **(named if logical else {})}


def _uri(where: str) -> str:
    shown = _shown(where)
    try:
        encoded = os.fsencode(shown)
    except UnicodeEncodeError:  # no file can have this name
        encoded = readable(shown).encode()
    return f"file://{quote(encoded)}" if shown.startswith("/") else quote(encoded)
