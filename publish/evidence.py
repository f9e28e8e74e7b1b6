"""What is known about the blocks, and whether it is about these pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from tests.harness.evidence import Entry, Outcome, Run, read_evidence, read_runs, sources

State = Literal["current", "stale", "other commit", "missing", "unreadable"]


@dataclass(frozen=True)
class Evidence:
    """The evidence that the site was built with.

    Attributes:
        state: `current`, or why it does not count as that.
        said: the same as one sentence, with what to do.
        entries: one for each block, from the last run that touched its page.
        runs: the processes that wrote them.
        changed: the pages and folders that are not as they were when the blocks ran.
    """

    state: State
    said: str
    entries: Sequence[Entry] = ()
    runs: Mapping[str, Run] = field(default_factory=dict)
    changed: Sequence[str] = ()

    @cached_property
    def counts(self) -> Counter[Outcome]:
        """How many blocks ended how, wherever they stand."""
        return Counter(entry.outcome for entry in self.entries if entry.number)

    @cached_property
    def versions(self) -> dict[str, str]:
        """What the blocks ran on."""
        found: dict[str, str] = {}
        for run in self.runs.values():
            found |= {"Python": run.python, **run.versions}
        return found

    @property
    def started(self) -> datetime | None:
        """When the first of the runs began."""
        return min((run.started for run in self.runs.values()), default=None)

    @property
    def commit(self) -> str | None:
        """The commit of the runs, if they agree."""
        commits = {run.commit for run in self.runs.values()}
        return commits.pop() if len(commits) == 1 else None

    def of(self, page: str) -> list[Entry]:
        """Return what is known about the blocks of a page, or of all docstrings for `src/`."""
        return [entry for entry in self.entries if entry.number and entry.page.startswith(page)]


def read(file: Path, root: Path, commit: str | None) -> Evidence:
    """Return the evidence of a project whose checked-out commit is `commit`."""
    again = "Run make test, then build again."
    try:
        entries = read_evidence(file)
        used = {entry.run for entry in entries}
        runs = {run.id: run for run in read_runs(file) if run.id in used}
    except FileNotFoundError:
        return Evidence("missing", f"No evidence: this site claims nothing of its blocks. {again}")
    except (ValueError, OSError):
        return Evidence("unreadable", f"The evidence cannot be read, so it is left out. {again}")
    if not entries or used - set(runs):
        return Evidence("unreadable", f"The evidence names no run, so it is left out. {again}")
    now = sources(root)
    changed = sorted(
        name
        for run in runs.values()
        for name in {*now, *run.sources}
        if now.get(name) != run.sources.get(name)
    )
    changed = list(dict.fromkeys(changed))
    total = sum(1 for entry in entries if entry.number)
    if not changed:
        said = f"Evidence of this very text: {total} blocks, each as it was run."
        return Evidence("current", said, entries, runs)
    shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    other = {run.commit for run in runs.values()} != {commit}
    if other:
        said = f"The evidence is of another commit, and {shown} changed since. {again}"
        return Evidence("other commit", said, entries, runs, changed)
    said = f"The evidence is older than {shown}. {again}"
    return Evidence("stale", said, entries, runs, changed)
