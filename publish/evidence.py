"""What is known about the blocks, and whether it is about these pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from tests.harness.evidence import (
    OUTCOMES,
    Entry,
    Outcome,
    Run,
    read_evidence,
    read_proofs,
    read_runs,
)
from tests.harness.legs import Proof, Result, worst
from tests.harness.sources import TESTS, sources
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
        proofs: how the tests ended that the rules stand on.
    """

    state: State
    said: str
    entries: Sequence[Entry] = ()
    runs: Mapping[str, Run] = field(default_factory=dict)
    changed: Sequence[str] = ()
    proofs: Sequence[Proof] = ()

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
        others = [name for name in self.changed if not name.endswith(".md") and name not in TESTS]
        return bool(others) or page in self.changed

    def held(self, leg: str, name: str) -> Result | None:
        """Return how the tests of what a rule names ended, or None if none ran."""
        return worst(each.outcome for each in self.proofs if each[:2] == (leg, name))

    def of(self, page: str) -> list[Entry]:
        """Return what is known about the blocks of a page, or of all docstrings for `src/`."""
        return [
            entry
            for entry in self.entries
            if entry.number
            and (entry.page == page or (page == "src/" and entry.page.startswith(page)))
        ]


def read(file: Path, root: Path, commit: str | None) -> Evidence:
    """Return the evidence of a project whose checked-out commit is `commit`.

    What the file says of a block that is not written anywhere, or says twice, is left out.
    """
    again = "Run make test, then build again."
    none = Evidence("missing", f"No evidence: this site claims nothing of its blocks. {again}")
    try:
        entries = read_evidence(file)
        proofs = read_proofs(file)
        used = {entry.run for entry in entries} | {proof.run for proof in proofs}
        headers = [run for run in read_runs(file) if run.id in used]
    except FileNotFoundError:
        return none
    except (ValueError, OSError) as error:
        said = f"The evidence cannot be read, so it is left out ({error}). {again}"
        return Evidence("unreadable", said)
    runs = {run.id: run for run in headers}
    if proofs and not entries:  # only tests that are no blocks have run
        return none
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
    state, said = _judged(entries, proofs, headers, changed, lacking, commit)
    if lacking:
        said += f" {_blocks(lacking.total())} {'was' if lacking.total() == 1 else 'were'} not run."
    said = said if state == "current" else f"{said} {again}"
    return Evidence(state, said, entries, runs, changed, proofs)


def _matched(entries: Iterable[Entry], root: Path) -> tuple[list[Entry], Counter[str]]:
    """Return what is about a block that is written, once for each, and how many pages lack."""
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
    return matched, Counter({page: n for page, blocks in left.items() if (n := blocks.total())})


def _judged(
    entries: Sequence[Entry],
    proofs: Sequence[Proof],
    runs: Iterable[Run],
    changed: Sequence[str],
    lacking: Iterable[str],
    commit: str | None,
) -> tuple[State, str]:
    """Say what the evidence is worth, the gravest thing first."""
    failed = {
        "blocks": sum(entry.outcome == "failed" for entry in entries),
        "tests that the rules stand on": len({p.test for p in proofs if p.outcome == "failed"}),
    }
    if any(failed.values()):
        which = " and ".join(f"{count} of the {what}" for what, count in failed.items() if count)
        return "failed", f"{which} failed when they were last run."
    commits = {run.commit for run in runs}
    if changed and commits != {commit}:
        return (
            "other commit",
            f"The evidence is of another commit, and {_some(changed)} changed since.",
        )
    if changed:
        return "stale", f"The evidence is older than {_some(changed)}."
    if lacking:
        return "partial", f"The evidence leaves out blocks of {_some(sorted(lacking))}."
    counts = told(Counter(entry.outcome for entry in entries))
    return "current", f"Evidence of this very text{_from(commits - {commit})}: {counts}."


def _from(others: set[str | None]) -> str:
    """Say of which commits the runs were, if not of this one."""
    names = sorted(f"{other:.7}" for other in others if other)
    if names:
        which = "another commit" if len(names) == 1 else "other commits"
        return f", from {which}, {' and '.join(names)}"
    return ", from a run without a commit" if None in others else ""


def told(counts: Mapping[Outcome, int]) -> str:
    """Return counts as words: what there is none of is left out, except for what ran."""
    rest = [
        f"{counts[outcome]} {word}"
        for outcome, word in OUTCOMES.items()
        if counts[outcome] and outcome != "ran"
    ]
    return ", ".join([f"{_blocks(counts['ran'])} ran", *rest])


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
