"""What is left out serves no page, and what is left looks the same."""

from __future__ import annotations

from pathlib import Path

from publish.lean import lean_page, lean_site

LINKS = (
    '<link rel="stylesheet" href="../assets/site.css">'
    '<link rel="stylesheet" href="../assets/checklist.css">'
    '<script src="../assets/checklist.js"></script>'
)


def test_a_page_keeps_the_styles_that_it_uses() -> None:
    assert lean_page(f'{LINKS}<div class="big checklist">') == f'{LINKS}<div class="big checklist">'
    assert lean_page(f"{LINKS}<p>checklist</p>") == (
        '<link rel="stylesheet" href="../assets/site.css"><p>checklist</p>'
    )


def test_spaces_go_where_they_show_nothing_and_stay_in_code() -> None:
    html = "<p>a\n   b&nbsp;\u00a0 c</p>\n\n<pre><code>x\n    y </textarea>\n</code></pre>\n  <p>"
    assert lean_page(html) == (
        "<p>a b&nbsp;\u00a0 c</p> <pre><code>x\n    y </textarea>\n</code></pre> <p>"
    )


def css(tmp_path: Path, text: str) -> str:
    """Return what is left of a style sheet of the theme."""
    (tmp_path / "assets/stylesheets").mkdir(parents=True)
    (tmp_path / "assets/own.css").write_text("p { color: var(--used-by-us) }", encoding="utf-8")
    (tmp_path / "bundle.js").write_text('add("from-script")', encoding="utf-8")
    (tmp_path / "index.html").write_text('<p class="here two">', encoding="utf-8")
    file = tmp_path / "assets/stylesheets/main.css"
    file.write_text(text, encoding="utf-8")
    lean_site(tmp_path)
    return file.read_text(encoding="utf-8")


def test_rules_for_classes_that_are_nowhere_are_left_out(tmp_path: Path) -> None:
    left = css(
        tmp_path,
        "/* c */.here{a:b}.gone{a:b}.here .gone,.two{a:b}.from-script{a:b}"
        "p:not(.gone){a:b}a[href]{a:b}[dir=rtl] .here{a:b}[dir=ltr] .here{a:b}"
        "[data-md-color-switching] *,[data-md-color-switching] :after{a:b}",
    )
    assert left == (
        ".here{a:b}.two{a:b}.from-script{a:b}p:not(.gone){a:b}a[href]{a:b}[dir=ltr] .here{a:b}"
    )


def test_what_stands_in_a_condition_is_looked_at_too(tmp_path: Path) -> None:
    left = css(
        tmp_path,
        '@charset "UTF-8";@media print{.gone{a:b}.here{a:b}}@media screen{.gone{a:b}}'
        "@keyframes gone{0%{a:b}to{a:c}}@font-face{a:b}",
    )
    assert left == (
        '@charset "UTF-8";@media print{.here{a:b}}@keyframes gone{0%{a:b}to{a:c}}@font-face{a:b}'
    )


def test_variables_that_nothing_asks_for_are_left_out(tmp_path: Path) -> None:
    left = css(
        tmp_path,
        ":root{--used-by-us:1;--icon:url('data:image/svg+xml;x={}');--a:var(--b);--b:2;--c:3}"
        "p{margin:var(--c)}",
    )
    assert left == ":root{--used-by-us:1;--c:3}p{margin:var(--c)}"


def test_an_odd_style_sheet_takes_no_longer(tmp_path: Path) -> None:
    """It would take years if each way to read it were tried."""
    assert css(tmp_path, ":root{--a:" + "url(x)" * 60 + '"}') is not None


def test_comments_of_our_own_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    style, script = tmp_path / "assets/own.css", tmp_path / "assets/own.js"
    style.write_text('/* why */\np {\n  color: red; /* so */\n}\n\na::after { content: "  " }\n')
    script.write_text('// why\n  // so\n  go("// not this");\n')
    lean_site(tmp_path)
    assert style.read_text() == 'p {\ncolor: red;\n}\na::after { content: "  " }\n'
    assert script.read_text() == '  go("// not this");\n'
