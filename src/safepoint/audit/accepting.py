"""Accepting: findings that somebody lives with, each with a reason and an end.

They stand in the settings, and are listed in every output all the same:

    [[audit.accept]]
    id = "SP25.pickle"
    place = "models/old/*.pkl"    # a path below the file's folder, PATH#THREAD, or a glob
    reason = "Read by the nightly job alone, which moves to safetensors."
    until = 2027-03-31            # the last day that it counts

One that is over, or that nothing matches, is a finding of its own.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from safepoint.audit.finding import CATALOGUE, Accepted, Finding, finding
from safepoint.core.errors import ConfigurationError, quoted, shell
from safepoint.rules import RULES
from safepoint.settings import Settings

_KEYS: Final = ("id", "place", "reason", "until")


@dataclass(frozen=True, slots=True)
class Entry:
    """One finding, or those of one kind at places alike, that somebody accepts.

    Attributes:
        id: what kind of finding it is, for example "SP04.mode".
        place: the path, below the settings' folder; of a thread `state/checkpoints.db#order-7`,
            or its name alone where there is one store. `*` and `?` stand for part of a name, and
            `**` for any number of folders.
        reason: why.
        until: the last day that it counts.
        file: the settings that say so.
    """

    id: str
    place: str
    reason: str
    until: date
    file: str


def entries(settings: Settings) -> list[Entry]:
    """Return what the settings accept.

    Raises:
        ConfigurationError: one of them is not whole, or does not say what it should.
    """
    told = settings.audit.get("accept", [])
    file = str(settings.file)
    if not isinstance(told, list):
        raise ConfigurationError(
            f"{shell(file)}: audit.accept is no list of tables.",
            "Write [[audit.accept]] above each.",
        )
    return [_entry(file, number, each) for number, each in enumerate(told, 1)]


def _entry(file: str, number: int, told: Any) -> Entry:
    if not isinstance(told, dict) or set(told) != set(_KEYS):
        given = set(told) if isinstance(told, dict) else set()
        missing = [name for name in _KEYS if name not in given]
        odd = sorted(given.difference(_KEYS))
        what = f"does not say {missing[0]}" if missing else f"says {quoted(odd[0])}"
        raise _refusal(file, number, what, f"Write {', '.join(_KEYS)}.")
    which, place, reason, until = (told[name] for name in _KEYS)
    if not _is_known(which):
        what = f"has the id {quoted(which)}, which is nothing that can be accepted"
        raise _refusal(
            file, number, what, "Copy the id of a finding: safepoint audit --format json"
        )
    if not isinstance(place, str) or not place:
        raise _refusal(file, number, f"has the place {quoted(place)}", "Name a path or a thread.")
    if not isinstance(reason, str) or len(reason.split()) < 2:
        raise _refusal(file, number, "gives a reason of fewer than two words", "Say why.")
    if not isinstance(until, date) or isinstance(until, datetime):
        do = "Write a date without quotes: until = 2027-03-31"
        raise _refusal(file, number, f"ends {quoted(until)}, which is no date", do)
    return Entry(which, place, " ".join(reason.split()), until, file)


def _refusal(file: str, number: int, what: str, do: str) -> ConfigurationError:
    return ConfigurationError(f"{shell(file)}: entry {number} of audit.accept {what}.", do)


def _is_known(which: Any) -> bool:
    rule, dot, name = which.partition(".") if isinstance(which, str) else ("", "", "")
    return bool(dot) and rule in RULES and (which in CATALOGUE or f"any.{name}" in CATALOGUE)


def accept(
    findings: Iterable[Finding],
    accepted: Sequence[Entry],
    folder: str | os.PathLike[str],
    today: date,
    *,
    complete: bool = True,
    alone: bool = True,
) -> list[Finding]:
    """Return the findings, those that somebody accepts with the reason, and what is over or idle.

    Args:
        findings: what was found.
        accepted: what the settings accept.
        folder: that of the settings.
        today: an entry counts up to its last day.
        complete: whether all was looked at that the settings name. If not, nobody can tell that
            nothing matches an entry.
        alone: whether there is no more than one store, so that a thread needs no other name.
    """
    valid = [entry for entry in accepted if entry.until >= today]
    used: set[Entry] = set()
    found = []
    for each in findings:
        matching = [entry for entry in valid if _matches(entry, each, folder, alone=alone)]
        used.update(matching)
        if matching:
            # The one that lasts longest: it does not come back before that.
            entry = max(matching, key=lambda entry: entry.until)
            each = replace(each, accepted=Accepted(entry.reason, entry.until))  # noqa: PLW2901
        found.append(each)
    return [*found, *_own(accepted, used, today, complete=complete)]


def _own(
    accepted: Iterable[Entry], used: set[Entry], today: date, *, complete: bool
) -> Iterator[Finding]:
    for entry in dict.fromkeys(accepted):
        which = {"id": entry.id, "place": quoted(entry.place)}
        if entry.until < today:
            yield finding("audit.expired", entry.file, **which, until=entry.until)
        elif complete and entry not in used:
            yield finding("audit.useless", entry.file, **which)


def _matches(entry: Entry, each: Finding, folder: str | os.PathLike[str], *, alone: bool) -> bool:
    """Tell whether an entry is about a finding: by its path, or its store and its thread."""
    if entry.id != each.id or not each.where:
        return False
    above = glob.escape(os.path.abspath(folder))  # noqa: PTH100  links are not followed
    path = os.path.normpath(Path(above, entry.place))
    places = [each.where] if alone or not each.store else []
    places += [f"{each.store}#{each.where}"] if each.store else []
    return any(
        _fits(place.split("/"), entry.place.split("/"))
        or _fits(os.path.abspath(place).split("/"), path.split("/"))  # noqa: PTH100
        for place in places
    )


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Tell whether each name fits, folder by folder."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_fits(names[at:], pattern[1:]) for at in range(len(names) + 1))
    first = bool(names) and (names[0] == pattern[0] or fnmatchcase(names[0], pattern[0]))
    return first and _fits(names[1:], pattern[1:])
