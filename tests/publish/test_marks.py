"""The mark of a block says what the evidence says, and never more."""

from __future__ import annotations

from datetime import UTC, datetime

from publish.evidence import Evidence, counted
from publish.marks import marked
from publish.project import Page
from tests.harness.blocks import digest
from tests.harness.evidence import Entry, Run

SOURCES = {"docs/guide.md": "a", "src/safepoint": "b"}
MOMENT = datetime(2026, 11, 15, 14, 48, tzinfo=UTC)
RUN = Run(MOMENT, "e834a6c76f" + "0" * 30, "3.<11>", "Linux", {}, SOURCES)
RAN = Entry("docs/guide.md", 7, 1, "python", digest("a < 1"), "ran")
OTHER = RAN._replace(sha256=digest("b"), outcome="checked")
HTML = (
    '<article>\n<div class="highlight"><pre><span></span><code>a &lt; 1\n</code></pre></div>'
    '<p>words</p><div class="highlight"><pre><code>b</code></pre></div></article>'
)


def shown(*entries: Entry, changed: str = "", text: str = "", html: str = HTML) -> tuple[str, str]:
    found = Evidence(RUN, changed=[changed] if changed else [], written=entries)
    html, counts = marked(html, Page("guide.md", "guide/", "Guide", "", text), found)
    return html, counted(counts)


def test_a_block_says_when_on_what_and_as_which_test_it_ran() -> None:
    html, counts = shown(RAN, OTHER)
    assert (
        '</code></pre><details class="proof proof--ran"><summary>Ran</summary>'
        "<p>2026-11-15 14:48 UTC · Python 3.&lt;11&gt; · "
        "test docs/guide.md::7-python · commit e834a6c76f</p></details></div><p>words</p>"
    ) in html
    assert '<pre><code>b</code></pre><details class="proof proof--checked">' in html
    assert counts == "1 ran, 1 checked only"


def test_a_block_without_a_run_of_its_own_says_so() -> None:
    """One run does not count for two blocks, nor that of a docstring for a page of prose."""
    twice = HTML.replace("<code>b</code>", "<code>a &lt; 1</code>")
    for html, counts in (shown(RAN), shown(RAN, html=twice)):
        assert html.count("proof--ran") == 1
        assert '</code></pre><p class="proof proof--never">Not run since it was written' in html
        assert counts == "1 ran, 1 not run"
    docstring = RAN._replace(page="src/safepoint/x.py")
    assert "proof--ran" not in shown(docstring, text="`::: x`")[0]
    assert "proof--ran" in shown(docstring, text="::: safepoint.x")[0]
    assert shown()[0] == HTML, "without evidence there are no marks"


def test_a_page_that_changed_since_says_so_at_each_block() -> None:
    for name, is_said in {**dict.fromkeys(SOURCES, True), "docs/other.md": False}.items():
        assert ("Ran; the page has changed since" in shown(RAN, changed=name)[0]) == is_said
