"""What is known about the blocks, and whether it is about these pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from tests.harness import evidence as harness
from tests.harness.blocks import written_blocks
from tests.harness.evidence import OUTCOMES, TESTS, Entry, Outcome, Read, Result, sources, worst

State = Literal["current", "failed", "partial", "stale", "missing", "unreadable"]
AGAIN: Final = "Run make test, then build again."


@dataclass(frozen=True)
class Evidence(Read):
    """The evidence that the site was built with: of blocks that are written as they ran.

    Attributes:
        state: `current`, or why it does not count as that.
        said: the same as one sentence, with what to do.
        changed: the pages and folders that are not as they were when the blocks ran.
    """

    state: State = "missing"
    said: str = f"No evidence: this site claims nothing of its blocks. {AGAIN}"
    changed: Sequence[str] = ()
    written: Sequence[Entry] = ()

    @cached_property
    def entries(self) -> list[Entry]:
        """What is said of blocks that are written as they ran."""
        return list(self.written)

    @cached_property
    def counts(self) -> Counter[Outcome]:
        """How many blocks ended how, wherever they stand."""
        return Counter(entry.outcome for entry in self.entries if entry.block)

    @cached_property
    def versions(self) -> dict[str, str]:
        """What the blocks ran on."""
        return {"Python": self.run.python, **self.run.versions} if self.run else {}

    def is_late(self, page: str) -> bool:
        """Tell whether a page, or what every page depends on, changed since its blocks ran."""
        others = [name for name in self.changed if not name.endswith(".md") and name != TESTS]
        return bool(others) or page in self.changed

    def held(self, leg: str, name: str) -> Result | None:
        """Return how the tests of what a rule names ended, or None if none ran."""
        return worst(each.outcome for each in self.proofs if each[:2] == (leg, name))

    def of(self, page: str) -> list[Entry]:
        """Return what is known about the blocks of a page, or of all docstrings for `src/`."""
        folder = page if page.endswith("/") else "\0"
        blocks = [entry for entry in self.entries if entry.block]
        return [each for each in blocks if each.page == page or each.page.startswith(folder)]

    def failed_on(self, page: str, named: Iterable[str] = ()) -> list[str]:
        """Return what failed of a page: its blocks, and the tests and files that it names."""
        names = {page, *named}
        return [
            failed
            for failed in self.failures
            if {failed.partition("::")[0], failed.partition("[")[0]} & names
        ]


def read(file: Path, root: Path) -> Evidence:
    """Return the evidence of a project.

    What the file says of a block that is not written anywhere, or says twice, is left out.
    """
    try:
        found = harness.read(file)
        entries, lacking = _matched(found.entries, root)
    except FileNotFoundError:
        return Evidence()
    except (ValueError, OSError) as error:
        said = f"The evidence cannot be read, so it is left out ({error}). {AGAIN}"
        return Evidence(state="unreadable", said=said)
    now, then = sources(root), found.run.sources if found.run else {}
    changed = sorted(name for name in {*now, *then} if now.get(name) != then.get(name))
    state, said = _judged(found, entries, changed, lacking)
    if lacking:
        said += f" {_blocks(lacking.total())} {'was' if lacking.total() == 1 else 'were'} not run."
    said = said if state == "current" else f"{said} {AGAIN}"
    return Evidence(found.run, found.cases, state, said, changed, entries)


def _matched(entries: Iterable[Entry], root: Path) -> tuple[list[Entry], Counter[str]]:
    """Return what is about a block that is written, once for each, and how many pages lack."""
    left = {
        page: Counter(block.digest for block in blocks)
        for page, blocks in written_blocks(root).items()
    }
    matched = []
    for entry in entries:
        page = left.get(entry.page, Counter())
        if page[entry.sha256] > 0:
            page[entry.sha256] -= 1
            matched.append(entry)
        elif entry.outcome == "failed":
            matched.append(entry)
    return matched, Counter({page: n for page, blocks in left.items() if (n := blocks.total())})


def _judged(
    found: Read, entries: Iterable[Entry], changed: Sequence[str], lacking: Iterable[str]
) -> tuple[State, str]:
    """Say what the evidence is worth, the gravest thing first."""
    if found.failed:
        said = "; ".join(found.failed + found.partial)
        return "failed", f"The last run of the tests failed: {said}."
    if found.partial:
        return "partial", f"This is no whole run of the tests: {'; '.join(found.partial)}."
    if changed:
        return "stale", f"The evidence is older than {_some(changed)}."
    if lacking:
        return "partial", f"The evidence leaves out blocks of {_some(sorted(lacking))}."
    counts = counted(Counter(entry.outcome for entry in entries))
    return "current", f"Evidence of this very text. Blocks: {counts}."


def counted(counts: Mapping[str, int]) -> str:
    """Return how many blocks ended how, as words."""
    words = [*OUTCOMES.items(), ("never", "not run")]
    return ", ".join(f"{counts[each]} {word}" for each, word in words if counts.get(each))


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
