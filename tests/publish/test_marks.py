"""The mark of a block says what the evidence says, and never more."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from publish.evidence import Evidence
from publish.marks import counted, marked
from publish.project import Page
from tests.harness.blocks import digest
from tests.harness.evidence import Entry, Read, Run

RUN = Run(
    datetime(2026, 11, 15, 14, 48, tzinfo=UTC),
    "r1",
    "e834a6c76f" + "0" * 30,
    "3.11.7",
    "Linux",
    {},
    {"docs/guide.md": "a", "src/safepoint": "b"},
)
HTML = (
    '<article>\n<div class="highlight"><pre><span></span><code>a &lt; 1\n</code></pre></div>'
    '<p>words</p><div class="highlight"><pre><code>b</code></pre></div></article>'
)


def page(text: str = "") -> Page:
    return Page("guide.md", "guide/", "Guide", "", text)


def entry(text: str, **changed: Any) -> Entry:
    values: dict[str, Any] = {
        "page": "docs/guide.md",
        "line": 7,
        "block": 1,
        "language": "python",
        "sha256": digest(text),
        "outcome": "ran",
        "ms": 12.3,
        "python": "3.11.7",
        "versions": {"torch": "2.13.0"},
        "run": "r1",
    }
    return Entry(**(values | changed))


def evidence(*entries: Entry, changed: tuple[str, ...] = ()) -> Evidence:
    return Evidence("stale" if changed else "current", "", Read({"r1": RUN}, entries), changed)


def test_a_block_that_ran_says_when_on_what_how_long_and_as_which_test() -> None:
    found = evidence(entry("a < 1"), entry("b", outcome="checked"))
    html, counts = marked(HTML, page(), found)
    assert (
        '</code></pre><details class="proof proof--ran"><summary>Ran<span> in 12 ms</span>'
        "</summary><p>2026-11-15 14:48 UTC · Python 3.11.7, torch 2.13.0 · "
        "test docs/guide.md::7-python · commit e834a6c76f</p></details></div><p>words</p>"
    ) in html
    assert '<pre><code>b</code></pre><details class="proof proof--checked">' in html
    assert "<summary>Checked only: it cannot run inside its own test</summary>" in html
    assert counted(counts) == (
        "2 blocks shown, 1 ran, 1 checked only, 0 skipped, 0 without a good run"
    )


def test_a_block_without_a_run_says_so() -> None:
    html, counts = marked(HTML, page(), evidence(entry("a < 1")))
    assert '<code>b</code></pre><p class="proof proof--never">Not run since it was written' in html
    assert counts["never"] == 1


def test_one_run_does_not_count_for_two_blocks() -> None:
    twice = HTML.replace("<code>b</code>", "<code>a &lt; 1</code>")
    html, counts = marked(twice, page(), evidence(entry("a < 1")))
    assert html.count("proof--ran") == 1
    assert counts == {"ran": 1, "never": 1}


def test_the_same_text_counts_for_a_docstring_on_a_page_of_the_reference_alone() -> None:
    found = evidence(entry("a < 1", page="src/safepoint/x.py"))
    assert "proof--ran" not in marked(HTML, page("`::: x`"), found)[0]
    assert "proof--ran" in marked(HTML, page("::: safepoint.x"), found)[0]


def test_a_page_that_changed_since_says_so_at_each_block() -> None:
    for name in ("docs/guide.md", "src/safepoint"):
        html, _ = marked(HTML, page(), evidence(entry("b"), changed=(name,)))
        assert "<summary>Ran<span> in 12 ms</span>, before later changes</summary>" in html
    html, _ = marked(HTML, page(), evidence(entry("b"), changed=("docs/other.md",)))
    assert "later changes" not in html


def test_without_evidence_there_are_no_marks_and_all_is_counted() -> None:
    html, counts = marked(HTML, page(), Evidence("missing", ""))
    assert html == HTML
    assert counts == {"never": 2}


def test_what_the_evidence_holds_is_text_and_not_markup() -> None:
    found = evidence(entry("b", versions={"<b>": "<script>"}))
    html, _ = marked(HTML, page(), found)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
