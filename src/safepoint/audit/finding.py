"""Finding: one thing that a check saw; the report of all; and how to look at planted files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from safepoint.core.errors import CheckpointError, NotFound, quoted, shell
from safepoint.core.files import open_regular
from safepoint.models.lint import IDS
from safepoint.rules import package_toml
from safepoint.shared.explanations import EXPLANATIONS
from safepoint.shared.terminal import tick

Severity = Literal["error", "warning", "note"]

DEEPEST: Final = 64
WORST_FIRST: Final[tuple[Severity, ...]] = ("error", "warning", "note")
_SEVERITIES: Final[dict[str, Severity]] = {each: each for each in WORST_FIRST}
# Of what `safepoint lint` finds, these take a protection away from other loads too.
_UNDOES: Final = frozenset({"SL03", "SL04", "SL06", "SL11"})


NO_FILE: Final = (
    "it is not a file, but a pipe, a socket or a device",
    "Find out who put it there. If nothing reads it as state, name a folder without it.",
)


@dataclass(frozen=True, slots=True)
class Waiver:
    """One finding, or those of one kind at places alike, that somebody accepts.

    Attributes:
        id: what kind of finding it is, for example "SP04.mode".
        place: the path, below the settings' folder, and what is in it if it is a folder; of a
            thread `state/checkpoints.db#order-7`.
        reason: why.
        until: the last day that it counts.
        file: the settings that say so.
    """

    id: str
    place: str
    reason: str
    until: date
    file: str

    def __str__(self) -> str:
        return f"{self.reason} (until {self.until})"


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of one rule.

    Attributes:
        id: what kind of finding it is, for example "SP04.mode"; it never changes its meaning.
        severity: "error" if it is unsafe, "warning" if it may be, "note" if you should know.
        what: what was found, as one sentence on one line.
        do: what to do, with the command to run where there is one.
        where: the path, or the thread, that it is about, as it is.
        seen: False if it says that something was not looked at.
        accepted: why somebody accepts it, and until when; None if nobody does.
        store: the place of the store, if `where` is no path: two stores may have a thread of the
            same name.
    """

    id: str
    severity: Severity
    what: str
    do: str
    where: str
    seen: bool = True
    accepted: Waiver | None = None
    store: str = ""

    @property
    def rule(self) -> str:
        """The id of the rule, for example "SP04"."""
        return self.id.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.id} {self.severity}: {self.what} {self.do}"


FAILED: Final = "audit.failed"
"""The id of a check that could not be made. Nobody knows what it would have found."""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of an audit, complete, for people and for programs.

    Attributes:
        looked: what was looked at, each with what it was found to be.
        findings: all of them, the worst first; those that somebody accepted are among them.
        settings: the file that said what to look at and what to accept, None if there is none.
    """

    looked: tuple[str, ...]
    findings: tuple[Finding, ...]
    settings: Path | None = None

    def status(self, fail_on: Severity = "warning") -> int:
        """Return the exit status: 0 nothing to do, 1 findings, 2 it could not look.

        It is never 0 if nothing was looked at, or if something that was named was not seen.
        """
        if not self.looked or any(each.id == FAILED for each in self.findings):
            return 2
        open_ones = [each for each in self.findings if each.accepted is None]
        most = WORST_FIRST.index(fail_on)
        if any(WORST_FIRST.index(each.severity) <= most for each in open_ones):
            return 1
        return 0 if all(each.seen for each in open_ones) else 2


def _catalogue() -> Mapping[str, Mapping[str, Any]]:
    words = package_toml("audit/findings.toml")
    found = {f"{rule}.{name}": each for rule in words for name, each in words[rule].items()}
    refusal, load = found.pop("any.refused"), found.pop("any.load")
    for explained in EXPLANATIONS.values():
        looks = f"What the library itself refuses here, as {explained.name}."
        found[f"any.{_name_of(explained.error)}"] = {"looks": looks, **refusal}
    for name, each in IDS.items():
        severity = "error" if name in _UNDOES else "note" if name == "SL15" else "warning"
        entry = {
            "looks": f"Code, for this: {each.title}.",
            **load,
            "severity": severity,
            "seen": name != "SL90",
        }
        found[f"{each.rule}.{name.lower()}"] = entry
    return MappingProxyType(found)


def _name_of(kind: type[CheckpointError]) -> str:
    """Return the name of an error as part of an id: seal-broken."""
    known = next(each for each in kind.__mro__ if each.__module__ == CheckpointError.__module__)
    return re.sub(r"(?<!^)(?=[A-Z])", "-", known.__name__).lower()


CATALOGUE: Final = _catalogue()
"""Each kind of finding by its id. What may be found under several rules stands under `any`."""


def entry_of(which: str) -> Mapping[str, Any]:
    """Return what the catalogue says of the id of a finding."""
    return CATALOGUE.get(which) or CATALOGUE[f"any.{which.partition('.')[2]}"]


def finding(which: str, where: str, /, **values: object) -> Finding:
    """Return a finding in the words of the catalogue.

    Args:
        which: its id; of one of `any` by the rule that it is found under.
        where: the path, or the thread, that it is about, as it is.
        values: what fits the blanks of its texts.
    """
    entry = entry_of(which)
    values |= {"where": where, "at": shell(where), "quoted": quoted(where)}
    severity, what, do = (entry[key].format_map(values) for key in ("severity", "what", "do"))
    seen: bool = entry.get("seen", True)
    return Finding(which, _SEVERITIES[severity], what, do, where, seen)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return errors before warnings before notes, and otherwise as they were found."""
    return sorted(findings, key=lambda each: WORST_FIRST.index(each.severity))


def listed(names: list[str], most: int = 5) -> str:
    """Return the first of some names, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def refused(rule: str, refusal: CheckpointError, where: str) -> Finding:
    """Return what the library itself refuses, in its words."""
    kind = refusal.kind if f"any.{refusal.kind}" in CATALOGUE else _name_of(type(refusal))
    return finding(f"{rule}.{kind}", where, what=refusal.what, do=refusal.do)


def of_tenant(tenant: str, findings: Iterable[Finding]) -> list[Finding]:
    """Return findings that say whose they are: each tenant may have a thread of the same name."""
    if not tenant:
        return list(findings)
    return [
        replace(
            each,
            what=f"Tenant {tenant}: {each.what}",
            where=each.where if Path(each.where).is_absolute() else f"@{tenant}/{each.where}",
        )
        for each in findings
    ]


def unseen(rule: str, path: str, reason: object, do: str = "") -> Finding:
    """Return the warning that says why a file or a folder was not looked at.

    It is not a note: anyone who closes a folder must not silence the audit by it.
    """
    if os.path.islink(path):  # noqa: PTH114  that of Path may raise
        return finding(f"{rule}.unseen-link", path, reason=reason)
    found = finding(f"{rule}.unseen", path, reason=reason)
    return replace(found, do=do or found.do)


@contextmanager
def guard(rule: str, path: str, found: list[Finding]) -> Iterator[None]:
    """Keep why a path could not be looked at: it must never hide the others."""
    try:
        yield
    except (FileNotFoundError, NotFound):
        if os.path.lexists(path):  # and otherwise it is gone by now: a prune may have removed it
            found.append(unseen(rule, path, "what it leads to is not there"))
    except OSError as error:
        found.append(unseen(rule, path, error.strerror))
    except CheckpointError as error:
        found.append(unseen(rule, path, error.what.rstrip(".")))
    except Exception as error:  # noqa: BLE001  whoever wrote it may have meant it to
        why = f"{type(error).__name__}, which is a bug in safepoint"
        found.append(unseen(rule, path, why))


def guarded(rule: str, path: str, findings: Iterable[Finding]) -> list[Finding]:
    """Return what is found, and a warning at the point where the system refuses to continue."""
    found: list[Finding] = []
    with guard(rule, path, found):
        found.extend(findings)
    return found


def files(
    path: str, found: list[Finding], enters: Callable[[str], bool] = lambda _: True
) -> Iterator[str]:
    """Return the path of each file below a folder, sorted. Links are not followed.

    Args:
        path: the folder, absolute.
        found: where to say of a folder that it cannot be listed, or lies deeper than this looks.
        enters: tells of each folder whether to look into it.
    """
    waiting = [(path, 0)]
    while waiting:
        folder, depth = waiting.pop()
        if depth > DEEPEST:
            do = f"Give its path as well: safepoint audit {shell(folder)}"
            found.append(unseen("SP03", folder, f"it is {depth} folders deep", do))
            continue
        if not enters(folder):
            continue
        listing: list[tuple[str, bool]] = []
        with guard("SP03", folder, found), os.scandir(folder) as entries:
            listing = sorted((each.path, each.is_dir(follow_symlinks=False)) for each in entries)
        for file in [each for each, is_folder in listing if not is_folder]:
            tick()
            yield file
        waiting += [(each, depth + 1) for each, is_folder in reversed(listing) if is_folder]


def content(file: str, most: int) -> tuple[bytes, int] | None:
    """Return the first bytes of a regular file, and how many it has.

    Returns:
        None if it is something else, or is gone by now, as files of a busy store are.

    Raises:
        OSError: it cannot be read.
    """
    try:
        if not stat.S_ISREG(os.lstat(file).st_mode):
            return None
        with open_regular(file) as opened:
            return opened.read(most), os.fstat(opened.fileno()).st_size
    except FileNotFoundError:
        return None
