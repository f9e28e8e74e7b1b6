"""The mark at each block: whether it ran, when, on what, and as which test."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import Final

from publish.evidence import Evidence
from publish.project import Page
from tests.harness.blocks import digest
from tests.harness.census import is_generated, rendered_blocks
from tests.harness.evidence import Entry, find

_SAID: Final = {
    "ran": "Ran",
    "checked": "Checked only: it cannot run inside its own test",
    "text": "Checked only: it is text, compared with what it shows",
    "skipped": "Skipped",
    "failed": "Failed",
}


def marked(html: str, page: Page, evidence: Evidence) -> tuple[str, Counter[str]]:
    """Return a page's HTML with a mark in each block, and how many blocks ended how.

    `never` is what was not run since it was written.
    """
    is_reference = is_generated(page.text)
    expected = evidence.of(f"docs/{page.src}")
    docstrings = evidence.of("src/") if is_reference else []
    parts: list[str] = []
    counts: Counter[str] = Counter()
    done = 0
    for text, end in rendered_blocks(html, reference=is_reference):
        entry = find(expected, digest(text), take=True) or find(docstrings, digest(text))
        counts[entry.outcome if entry else "never"] += 1
        parts += [html[done:end], mark(entry, evidence) if evidence.entries else ""]
        done = end
    return "".join([*parts, html[done:]]), counts


def mark(entry: Entry | None, evidence: Evidence) -> str:
    """Return the mark of one block, folded up: a word, and behind it the proof."""
    run = evidence.run
    if entry is None or run is None:
        return '<p class="proof proof--never">Not run since it was written</p>'
    proof = " · ".join(
        (
            f"{run.started:%Y-%m-%d %H:%M} UTC",
            f"Python {run.python}",
            f"test {entry.test}",
            f"commit {run.commit[:10]}" if run.commit else "no commit",
        )
    )
    is_text = entry.outcome == "checked" and entry.language == "text"
    said = _SAID["text" if is_text else entry.outcome]
    if evidence.is_late(entry.page):
        said += "; the page has changed since"
    return (
        f'<details class="proof proof--{entry.outcome}"><summary>{said}</summary>'
        f"<p>{escape(proof)}</p></details>"
    )
