"""The mark at each block: whether it ran, when, on what, for how long, and as which test."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Final

from publish.evidence import Evidence
from publish.project import Page
from tests.harness.blocks import digest
from tests.harness.evidence import Entry
from tests.harness.rendered import rendered_blocks

_REFERENCE: Final = re.compile(r"^ *::: ", re.MULTILINE)
_SAID: Final = {
    "ran": "Ran",
    "checked": "Checked, not run",
    "skipped": "Skipped",
    "failed": "Failed",
}


@dataclass
class Count:
    """What the pages show, by how it ended; `never` is what nobody ran."""

    shown: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """How many blocks there are."""
        return self.shown.total()

    def __str__(self) -> str:
        ran, checked, skipped = (self.shown[name] for name in ("ran", "checked", "skipped"))
        never = self.shown["never"] + self.shown["failed"]
        return (
            f"{self.total} blocks shown, {ran} ran, {checked} checked only, "
            f"{skipped} skipped, {never} without a run"
        )


def marked(html: str, page: Page, evidence: Evidence, count: Count) -> str:
    """Return a page's HTML with a mark in each block, and count the blocks."""
    is_reference = bool(_REFERENCE.search(page.text)) or "<!-- fill errors -->" in page.text
    expected = evidence.of(f"docs/{page.src}")
    docstrings = evidence.of("src/") if is_reference else []
    parts: list[str] = []
    done = 0
    for text, end in rendered_blocks(html, reference=is_reference):
        entry = _find(expected, digest(text), take=True) or _find(docstrings, digest(text))
        count.shown[entry.outcome if entry else "never"] += 1
        parts += [html[done:end], mark(entry, evidence) if evidence.entries else ""]
        done = end
    return "".join([*parts, html[done:]])


def mark(entry: Entry | None, evidence: Evidence) -> str:
    """Return the mark of one block, folded up: a word, and behind it the proof."""
    if entry is None:
        return '<p class="proof proof--never">Not run since it was written</p>'
    run = evidence.runs[entry.run]
    late = bool({entry.page, *_shared(evidence)} & set(evidence.changed))
    software = ", ".join(
        [
            "Python " + entry.python,
            *(f"{name} {version}" for name, version in entry.versions.items()),
        ]
    )
    proof = " · ".join(
        (
            f"{run.started:%Y-%m-%d %H:%M} UTC",
            software,
            f"test {entry.test}",
            f"commit {run.commit[:10]}" if run.commit else "no commit",
        )
    )
    said = f"{_SAID[entry.outcome]}<span> in {_duration(entry.ms)}</span>"
    if late:
        said += ", before later changes"
    return (
        f'<details class="proof proof--{entry.outcome}"><summary>{said}</summary>'
        f"<p>{escape(proof)}</p></details>"
    )


def _shared(evidence: Evidence) -> Iterable[str]:
    """Name what every page depends on."""
    return (name for run in evidence.runs.values() for name in run.sources if name[-3:] != ".md")


def _find(entries: list[Entry], sought: str, *, take: bool = False) -> Entry | None:
    for index, entry in enumerate(entries):
        if entry.digest == sought:
            return entries.pop(index) if take else entry
    return None


def _duration(ms: float) -> str:
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"
