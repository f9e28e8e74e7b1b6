"""A line does not break inside a short name."""

from __future__ import annotations

from publish.names import unbroken


def test_a_short_name_is_marked_and_a_long_one_may_break() -> None:
    short, long = "a" * 26, "a" * 27
    assert unbroken(f"<p><code>{short}</code></p>") == f'<p><code class="whole">{short}</code></p>'
    assert unbroken(f"<p><code>{long}</code></p>") == f"<p><code>{long}</code></p>"


def test_a_cell_has_less_room() -> None:
    html = f"<table><td><code>{'a' * 17}</code></table><code>{'a' * 17}</code>"
    assert unbroken(html).count("whole") == 1
    assert unbroken(f"<table><td><code>{'a' * 16}</code></table>").count("whole") == 1


def test_what_counts_is_what_is_seen() -> None:
    assert "whole" in unbroken(f"<code>{'&lt;' * 26}</code>")


def test_a_block_is_left_alone() -> None:
    for html in ("<pre><span></span><code>x</code></pre>", '<code class="y">x</code>'):
        assert unbroken(html) == html
