"""Accepting: findings that somebody lives with, each with a reason and an end.

They are in the settings and are listed in every output all the same:

    [[audit.accept]]
    id = "SP25.pickle"
    place = "models/old"          # a path below the file's folder, or PATH#THREAD
    reason = "Read by the nightly job alone, which moves to safetensors."
    until = 2027-03-31            # the last day that it counts

One that is over is a finding of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final

from safepoint.audit.finding import CATALOGUE, Finding, Waiver, finding
from safepoint.core.errors import ConfigurationError, quoted, shell
from safepoint.rules import RULES
from safepoint.settings import Settings


def _is_known(which: Any) -> bool:
    rule, dot, name = which.partition(".") if isinstance(which, str) else ("", "", "")
    return bool(dot) and rule in RULES and (which in CATALOGUE or f"any.{name}" in CATALOGUE)


_FITS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "id": (_is_known, "the id of a finding: safepoint audit --format json"),
    "place": (lambda value: isinstance(value, str) and value != "", "a path, or PATH#THREAD"),
    "reason": (
        lambda value: isinstance(value, str) and len(value.split()) > 1,
        "why, in two words or more",
    ),
    "until": (lambda value: type(value) is date, "a date without quotes: until = 2027-03-31"),
}
"""What an entry says, each with a test of it and what to write."""


def entries(settings: Settings) -> list[Waiver]:
    """Return what the settings accept.

    Raises:
        ConfigurationError: one of them is not whole, or does not say what it should.
    """
    listed = settings.audit.get("accept", [])
    file = str(settings.file)
    if not isinstance(listed, list):
        raise ConfigurationError(
            f"{shell(file)}: audit.accept is not a list of tables.",
            "Write [[audit.accept]] above each.",
        )
    return [_entry(file, number, each) for number, each in enumerate(listed, 1)]


def _entry(file: str, number: int, value: Any) -> Waiver:
    fields = value if isinstance(value, dict) else {}
    for name in [*_FITS, *fields]:
        fits, wanted = _FITS.get(name, (lambda _: False, f"{', '.join(_FITS)}, and nothing else"))
        if not fits(fields.get(name)):
            said = f"has {quoted(fields[name])} as {name}" if name in fields else f"has no {name}"
            what = f"{shell(file)}: entry {number} of audit.accept {said}."
            raise ConfigurationError(what, f"Write {wanted}.")
    return Waiver(**{**fields, "reason": " ".join(fields["reason"].split())}, file=file)


def accept(
    findings: Iterable[Finding],
    accepted: Sequence[Waiver],
    folder: str | os.PathLike[str],
    today: date,
) -> list[Finding]:
    """Return the findings, those that somebody accepts with the reason, and what is over.

    Args:
        findings: what was found.
        accepted: what the settings accept.
        folder: that of the settings.
        today: an entry counts up to its last day.
    """
    valid = [entry for entry in accepted if entry.until >= today]
    found = []
    for each in findings:
        matching = [entry for entry in valid if _matches(entry, each, folder)]
        if matching:
            # The one that lasts longest: it does not come back before that.
            lasts = max(matching, key=lambda entry: entry.until)
            each = replace(each, accepted=lasts)  # noqa: PLW2901
        found.append(each)
    for entry in dict.fromkeys(accepted):
        if entry.until < today:
            which = {"id": entry.id, "place": quoted(entry.place), "until": entry.until}
            found.append(finding("audit.expired", entry.file, **which))
    return found


def _matches(entry: Waiver, each: Finding, folder: str | os.PathLike[str]) -> bool:
    """Tell whether an entry is about a finding: by its path, or its store and its thread."""
    if entry.id != each.id or not each.where:
        return False
    where = f"{each.store}#{each.where}" if each.store else each.where
    place = os.path.normpath(Path(os.path.abspath(folder), entry.place))  # noqa: PTH100  no links
    return where == entry.place or Path(os.path.normpath(where)).is_relative_to(place)
