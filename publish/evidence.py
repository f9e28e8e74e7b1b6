"""What is known about the blocks, and whether it is about these pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from tests.harness.evidence import OUTCOMES, Entry, Outcome, Run, read_evidence, read_runs, sources
from tests.harness.written import written_blocks

State = Literal["current", "failed", "partial", "stale", "other commit", "missing", "unreadable"]


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

    def is_late(self, page: str) -> bool:
        """Tell whether a page, or what every page depends on, changed since its blocks ran."""
        return any(name == page or not name.endswith(".md") for name in self.changed)

    def of(self, page: str) -> list[Entry]:
        """Return what is known about the blocks of a page, or of all docstrings for `src/`."""
        return [entry for entry in self.entries if entry.number and entry.page.startswith(page)]


def read(file: Path, root: Path, commit: str | None) -> Evidence:
    """Return the evidence of a project whose checked-out commit is `commit`.

    What the file says of a block that is not written anywhere, or says twice, is left out.
    """
    again = "Run make test, then build again."
    try:
        entries = read_evidence(file)
        used = {entry.run for entry in entries}
        headers = [run for run in read_runs(file) if run.id in used]
    except FileNotFoundError:
        return Evidence("missing", f"No evidence: this site claims nothing of its blocks. {again}")
    except (ValueError, OSError) as error:
        said = f"The evidence cannot be read, so it is left out ({error}). {again}"
        return Evidence("unreadable", said)
    runs = {run.id: run for run in headers}
    entries, lacking = _matched(entries, root)
    if not entries or used - set(runs):
        return Evidence("unreadable", f"The evidence names no run, so it is left out. {again}")
    now = sources(root)
    changed = sorted(
        {
            name
            for run in headers
            for name in {*now, *run.sources}
            if now.get(name) != run.sources.get(name)
        }
    )
    state, said = _judged(entries, headers, changed, lacking, commit)
    said = said if state == "current" else f"{said} {again}"
    return Evidence(state, said, entries, runs, changed)


def _matched(entries: Iterable[Entry], root: Path) -> tuple[list[Entry], list[str]]:
    """Return what is about a block that is written, once for each, and the pages that lack some."""
    left = {
        page: Counter(block.digest for block in blocks)
        for page, blocks in written_blocks(root).items()
    }
    matched = []
    for entry in entries:
        page = left.get(entry.page, Counter())
        if page[entry.digest] > 0:
            page[entry.digest] -= 1
            matched.append(entry)
        elif entry.outcome == "failed":
            matched.append(entry)
    return matched, sorted(page for page, blocks in left.items() if blocks.total())


def _judged(
    entries: Sequence[Entry],
    runs: Iterable[Run],
    changed: Sequence[str],
    lacking: Sequence[str],
    commit: str | None,
) -> tuple[State, str]:
    """Say what the evidence is worth, the gravest thing first."""
    failed = sum(entry.outcome == "failed" for entry in entries)
    if failed:
        return "failed", f"{failed} of the blocks failed when they were last run."
    if changed and {run.commit for run in runs} != {commit}:
        return (
            "other commit",
            f"The evidence is of another commit, and {_some(changed)} changed since.",
        )
    if changed:
        return "stale", f"The evidence is older than {_some(changed)}."
    if lacking:
        return "partial", f"The evidence leaves out blocks of {_some(lacking)}."
    counts = told(Counter(entry.outcome for entry in entries))
    commits = sorted({run.commit or "unknown" for run in runs})
    at = "" if commits == [commit] else f" The commit of the run: {', '.join(commits)}."
    return "current", f"Evidence of this very text: {counts}.{at}"


def told(counts: Mapping[Outcome, int]) -> str:
    """Return counts as words: what there is none of is left out, except for what ran."""
    blocks = "block" if counts["ran"] == 1 else "blocks"
    rest = [
        f"{counts[outcome]} {word}"
        for outcome, word in OUTCOMES.items()
        if counts[outcome] and outcome != "ran"
    ]
    return ", ".join([f"{counts['ran']} {blocks} ran", *rest])


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
