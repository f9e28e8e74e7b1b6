"""SARIF: findings for the programs that show them, and the same as lines of GitHub Actions.

The audit and the linter both write them here. Whoever names a file must not write a line, a link or
a command of their own by it, and must not make the output unreadable.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from safepoint.settings import FILE

_GITHUB: Final = {"error": "error", "warning": "warning", "note": "notice"}
_DATA: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY: Final = {**_DATA, ":": "%3A", ",": "%2C"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


class Annotation(NamedTuple):
    """What a program shows of one finding.

    Attributes:
        id: what kind of finding it is, for example "SP04.mode".
        level: "error", "warning" or "note".
        text: what was found and what to do.
        where: the path, or the thread, that it is about; "" if it is about neither.
        line: the line of a file, from 1; 0 if it is about all of it.
        column: the column of that line, from 1.
        accepted: why it is accepted, and until when; "" if it is not.
        more: what else a program may want to know.
    """

    id: str
    level: str
    text: str
    where: str = ""
    line: int = 0
    column: int = 0
    accepted: str = ""
    more: Mapping[str, Any] = {}


class Described(NamedTuple):
    """What a kind of finding is about: in one sentence, and with what helps."""

    short: str
    help: str


def tool() -> dict[str, str]:
    """Return the name and the version of what looked."""
    try:
        return {"name": "safepoint", "version": version("safepoint")}
    except PackageNotFoundError:  # it runs out of a folder
        return {"name": "safepoint", "version": "unknown"}


def readable(text: str) -> str:
    """Return a text as one that every reader of JSON takes: half a character is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def github_line(each: Annotation, title: str = "") -> str:
    """Return the line that GitHub Actions shows in a pull request.

    Args:
        each: the finding. One that is accepted is a notice.
        title: instead of its id.
    """
    level = "notice" if each.accepted else _GITHUB[each.level]
    text = f"{each.text} Accepted: {each.accepted}" if each.accepted else each.text
    properties: dict[str, object] = {"title": title or each.id}
    if is_path(each.where):
        place = {"line": each.line, "col": each.column} if each.line else {}
        properties = {"file": _shown(each.where), **place, **properties}
    said = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in properties.items())
    return f"::{level} {said}::{_escaped(text, _DATA)}"


def _escaped(value: object, codes: Mapping[str, str]) -> str:
    return "".join(codes.get(character, character) for character in str(value))


def is_path(where: str) -> bool:
    """Tell a path from a thread, a login or a server: it is absolute, or it is there."""
    return bool(where) and (os.path.isabs(where) or os.path.lexists(where))  # noqa: PTH117


def _shown(where: str) -> str:
    """Return a path relative to the current folder if it is below that, and else absolute."""
    path, here = os.path.abspath(where), f"{os.getcwd()}/"  # noqa: PTH100, PTH109  as it is named
    return path.removeprefix(here) if path.startswith(here) else path


def log(
    annotations: Iterable[Annotation],
    described: Mapping[str, Described],
    *,
    status: int,
    failures: Iterable[str] = (),
    looked_at: Iterable[str] = (),
) -> str:
    """Return a log of SARIF 2.1.0, an OASIS standard.

    Args:
        annotations: the findings.
        described: what each of their ids is about.
        status: the exit status.
        failures: what could not be looked at, and why.
        looked_at: what was.
    """
    results, seen = [], Counter[tuple[str, str]]()
    for each in annotations:
        # By its number at the place, and not by its words: those may count, or name a time.
        place = (each.id, _shown(each.where) if is_path(each.where) else each.where)
        seen[place] += 1
        results.append(_result(each, readable("\0".join([*place, str(seen[place])]))))
    ids = dict.fromkeys(result["ruleId"] for result in results)
    rules = [
        {
            "id": name,
            "shortDescription": {"text": readable(described[name].short)},
            "help": {"text": readable(described[name].help)},
            "properties": {"tags": ["security"]},
        }
        for name in ids
    ]
    notes = [{"level": "error", "message": {"text": _message(why)}} for why in failures]
    run = {
        "tool": {"driver": {**tool(), "rules": rules}},
        "invocations": [
            {
                "executionSuccessful": not notes,
                "exitCode": status,
                "toolExecutionNotifications": notes,
            }
        ],
        "results": results,
        "columnKind": "unicodeCodePoints",
        "properties": {"lookedAt": [readable(each) for each in looked_at]},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _result(each: Annotation, place: str) -> dict[str, Any]:
    accepted = {"kind": "external", "status": "accepted", "justification": readable(each.accepted)}
    return {
        "ruleId": each.id,
        "level": each.level,
        "message": {"text": _message(each.text)},
        "locations": [_location(each)],
        "partialFingerprints": {"place/v1": hashlib.sha256(place.encode()).hexdigest()},
        "suppressions": [accepted] if each.accepted else [],
        "properties": dict(each.more),
    }


def _message(text: str) -> str:
    """Return a text without the links that SARIF lets a text have."""
    return readable(re.sub(r"\]\(", "] (", text))


def _location(each: Annotation) -> dict[str, Any]:
    # GitHub refuses the whole log if one result is at no file, and wants a line. What is at none,
    # such as a thread, is shown at the settings, which name its store.
    uri = _uri(each.where if is_path(each.where) else FILE)
    region = {"startLine": each.line or 1, **({"startColumn": each.column} if each.line else {})}
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
