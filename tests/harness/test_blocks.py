"""Finding blocks: what is found, and what is refused with page, line and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.blocks import PageError, digest, find_blocks
from tests.harness.docstrings import scan_docstrings
from tests.harness.testing import page


def found(text: str, root: Path = Path()) -> list[tuple[str, int, str]]:
    blocks = find_blocks(page(text), "docs/x.md", root=root)
    return [(block.language, block.line, block.text) for block in blocks]


def test_every_form_of_fence_is_found_where_it_stands() -> None:
    """Plain, with options, in braces, in a callout, a tab and a list."""
    text = """
        '''python
        a = 1
        '''

        '''python title="x y"
        b = 2
        '''

        '''{ .python .no-copy title="x" data-raises="KeyError: 'x'" }
        c = 3
        '''

        !!! note
            '''python

            d = 4

              # kept
            '''

        ???+ tip "More"

            === "Tab"

                '''bash
                echo e
                '''

        - item

            '''json
            []
            '''
    """
    assert found(text) == [
        ("python", 1, "a = 1"),
        ("python", 5, "b = 2"),
        ("python", 9, "c = 3"),
        ("python", 14, "d = 4\n\n  # kept"),
        ("bash", 25, "echo e"),
        ("json", 31, "[]"),
    ]


def test_attributes_and_classes_are_read_from_braces_and_from_a_comment_above() -> None:
    """Both forms mean the same."""
    words = '.no-copy data-raises="KeyError: x" title="A title"'
    for text in (
        f"'''{{ .python {words} }}\n1\n'''",
        f"'''python {{ {words} }}\n1\n'''",
        f"<!-- block: {words} -->\n'''python\n1\n'''",
    ):
        (block,) = find_blocks(page(text), "docs/x.md")
        assert block.language == "python"
        assert block.classes == ("no-copy",)
        assert block.attributes == {"data-raises": "KeyError: x", "title": "A title"}


def test_prose_that_only_mentions_fences_is_left_alone() -> None:
    """Inline code, front matter and finished comments are not blocks."""
    text = """
        ---
        title: "```x"
        ---
        A `<pre>` and ```` ```python ```` and `<!--` in a line. <!-- rule SP01 -->
        1 < 2, `dict<str>`, <https://example.org/>, H<sub>2</sub>O<br> and <kbd>Esc</kbd>.
        <a id="here"></a>
        <figure class="diagram wide" id="one" markdown>
        <figcaption markdown>
        </figcaption>
        </figure>
        <div markdown>
        </div>
        > quoted
    """
    assert found(text) == []


RAW = (
    *("xmp", "listing", "plaintext", "textarea", "script", "style", "iframe", "code", "samp"),
    *("article", "svg", "p", "table", "details", "a", "x-y", "?php", "![cdata["),
)
REFUSED = [
    ("unknown language", "'''pyhton\nx\n'''", 1, "unknown language 'pyhton'; use one of: bash"),
    ("alias", "'''py\nx\n'''", 1, "unknown language 'py'; write python"),
    ("mermaid", "'''mermaid\nx\n'''", 1, "diagrams are SVG files in docs/assets"),
    ("no language", "text\n\n'''\nx\n'''", 3, "no language; write one"),
    ("tildes", "~~~python\nx\n~~~", 1, "a fence of ~~~; write ```"),
    ("four ticks", "'''`python\nx\n'''`", 1, "a fence of four or more backticks"),
    ("nested", "'''text\n'''python\nx\n'''", 2, "a fence inside a fence"),
    ("nested deeper", "'''python\nx = 1\n  '''\n'''", 3, "a fence inside a fence"),
    ("quote", "> '''python\n> x\n> '''", 1, "a fence in a block quote; move it out"),
    ("unclosed", "'''python\nx = 1\n", 1, "this fence is never closed; add ```"),
    ("less indented", "!!! n\n    '''python\n  x\n    '''", 3, "indented less than its fence"),
    ("commented", "<!--\n'''python\nx\n'''\n-->", 1, "not a comment on one line"),
    ("endless comment", "<!-- x\n", 1, "not a comment on one line"),
    ("comment that ends at once", "<!-->\n<pre>x</pre>\n-->", 1, "not a comment on one line"),
    ("the same with a dash", "<!---><xmp>x</xmp> -->", 1, "not a comment on one line"),
    ("comment that ends early", "<!-- --!> <xmp>x</xmp> -->", 1, "not a comment on one line"),
    ("hint that ends early", '<!-- block: title="--!> x" -->', 1, "not a comment on one line"),
    ("comments around ticks", "<!-- ` --> x <!-- ` -->", 1, "not a comment on one line"),
    ("raw pre", "x <pre>y</pre>", 1, "raw <pre>; write a fenced block"),
    ("raw pre with class", '<PRE class="a">', 1, "raw <pre>; write a fenced block"),
    *((f"raw {name}", f"a\n\nb <{name}>x", 3, f"raw <{name}>;") for name in RAW),
    ("raw in two lines", "<p\nre>x", 1, "raw <p>"),
    ("closing what is not ours", "</article>", 1, "raw </article>"),
    ("div without Markdown", "<div>\n`<xmp>`\n</div>", 1, "raw <div>"),
    ("div with a style", '<div style="x" markdown>', 1, "raw <div>"),
    (
        "class of a signature",
        '<div class="doc-signature" markdown>',
        1,
        "hide code from the census",
    ),
    ("the same on a paragraph", "x\n{ .mkdocstrings-source }", 2, "hide code from the census"),
    ("style on a paragraph", "x\n{ style='white-space: pre' }", 2, "hide code from the census"),
    ("escaped ticks", "\\`<xmp>x</xmp>`", 1, "inline code that ends on another line"),
    ("ticks of other lines", "`a\n` <xmp>x</xmp> `\nb`", 1, "inline code that ends on another"),
    ("front matter", "---\na: <xmp>\n---", 2, "raw <xmp>"),
    ("unfenced doctest", ">>> 1", 1, ">>> outside of a fence"),
    ("fence in a list line", "- '''python\n  x\n  '''", 1, "in the middle of a line"),
    ("inline triple", "'''x'''", 1, "inline code with a single backtick"),
    ("bare option", "'''python test\nx\n'''", 1, "with 'test' the site does not render this"),
    ("option with value", "'''python test=\"a\"\nx\n'''", 1, "the site does not render this"),
    ("bare data option", "'''python data-exit=\"1\"\nx\n'''", 1, "does not render this as code"),
    ("unknown attribute", "'''{ .python data-x=\"1\" }\nx\n'''", 1, "unknown attribute data-x"),
    ("unknown class", "'''{ .python .safe }\nx\n'''", 1, "unknown class .safe; known: "),
    ("misplaced attribute", "'''{ .json data-exit=\"1\" }\n[]\n'''", 1, "means nothing on json"),
    ("misplaced class", "'''{ .bash .unsafe .no-copy }\nx\n'''", 1, "means nothing on bash"),
    ("wrapped code", "'''{ .python .wrap }\nx\n'''", 1, ".wrap means nothing on python"),
    ("unreadable braces", "'''{ .python title=x }\nx\n'''", 1, "cannot read 'title=x'"),
    ("twice", "'''{ .python title=\"x\" title=\"y\" }\nx\n'''", 1, "title stands twice"),
    ("no login", "'''sql\nselect 1;\n'''", 1, "SQL runs on PostgreSQL, as a login; add data-login"),
    ("a session", "'''console\n$ ls\n'''", 1, "write bash, and what it prints as text"),
    ("skip without reason", "'''{ .python data-skip=\" \" }\nx\n'''", 1, "a skip without a reason"),
    ("exit zero", "'''{ .bash data-exit=\"0\" }\nx\n'''", 1, "data-exit is the exit code"),
    ("raises nonsense", "'''{ .python data-raises=\"a b\" }\nx\n'''", 1, "write data-raises="),
    ("unknown check", "'''{ .bash data-check=\"x\" }\nx\n'''", 1, "unknown data-check='x'"),
    ("tree of what", "'''{ .text data-check=\"subclasses\" }\nx\n'''", 1, "go together"),
    ("copyable", "'''{ .python .unsafe }\n# UNSAFE: x\n'''", 1, "also needs .no-copy"),
    ("marker on safe code", "'''{ .python data-marker=\"m\" }\n1\n'''", 1, "needs .unsafe"),
    (
        "marker elsewhere",
        "'''{ .python .unsafe .no-copy data-marker=\"../m\" }\n1\n'''",
        1,
        "plain",
    ),
    ("alone twice", "'''{ .python .unsafe .no-copy .alone }\n1\n'''", 1, "run alone already"),
    ("refused what", "'''{ .python .refused }\n1\n'''", 1, "add data-raises"),
    ("write elsewhere", "'''{ .python data-write=\"/m\" }\n1\n'''", 1, "plain file name"),
    (
        "write and raise",
        "'''{ .python data-write=\"m\" data-raises=\"E\" }\n1\n'''",
        1,
        "for later",
    ),
    ("write text", "'''{ .text data-write=\"m\" }\n1\n'''", 1, "means nothing on text"),
    ("unsafe by comment", "<!-- block: .unsafe .no-copy -->\n'''python\n1\n'''", 2, "copy button"),
    ("hint above nothing", "<!-- block: .no-copy -->\n\n'''python\nx\n'''", 1, "above no fence"),
    ("hint at the end", "<!-- block: .no-copy -->", 1, "above no fence"),
    ("empty", "'''python\n\n'''", 1, "an empty block"),
    ("tab", "'''bash\n\techo\n'''", 2, "a tab; the site shows spaces"),
    ("tab before", "- x\n\t'''bash\n\techo\n\t'''", 2, "indented with a tab"),
    ("no such include", "'''python\n--8<-- \"no.py\"\n'''", 2, "'no.py' does not exist"),
    ("include from above", "'''python\n--8<-- \"../a.md\"\n'''", 2, "does not exist"),
    ("no such section", "'''python\n--8<-- \"a.py:no\"\n'''", 2, "a.py has no section 'no'"),
    ("open section", "'''python\n--8<-- \"a.py:open\"\n'''", 2, "'open' of a.py has no end"),
    ("line numbers", "'''python\n--8<-- \"a.py:1:2\"\n'''", 2, "write an include as"),
    ("block include", "'''python\n--8<--\na.py\n--8<--\n'''", 2, "write an include as"),
    ("include in prose", '--8<-- "a.py"', 1, "an include outside of a fence"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    snippets = tmp_path / "snippets"
    snippets.mkdir()
    (snippets / "a.py").write_text(
        "import os\n\n# --8<-- [start:one]\nx = 1\n# --8<-- [start:in]\ny = 2\n# --8<-- [end:in]\n"
        "# --8<-- [end:one]\n# --8<-- [start:open]\n",
        encoding="utf-8",
    )
    (tmp_path / "a.md").write_text("above", encoding="utf-8")
    assets = tmp_path / "docs" / "assets"
    assets.mkdir(parents=True)
    (assets / "d.svg").write_text("<svg/>", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "line", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_refused_with_page_line_and_what_to_do(
    text: str, line: int, message: str, root: Path
) -> None:
    """Each planted defect is reported once, on its line."""
    with pytest.raises(PageError) as error:
        find_blocks(page(text), "docs/x.md", root=root)
    first = str(error.value).splitlines()[0]
    assert first.startswith(f"docs/x.md:{line}: ")
    assert message in first


def test_every_problem_of_a_page_is_reported_at_once() -> None:
    """A writer corrects a page in one go."""
    with pytest.raises(PageError) as error:
        find_blocks(page("'''py\nx\n'''\n\n<pre>\n\n'''\nx\n'''"), "docs/x.md")
    lines = [line.split(": ")[0] for line in str(error.value).splitlines()]
    assert lines == ["docs/x.md:1", "docs/x.md:5", "docs/x.md:7"]


def test_includes_are_expanded_as_the_site_does(root: Path) -> None:
    """Whole files and sections, without the marks; a drawing may stand in the prose."""
    text = """
        --8<-- "d.svg"

        '''python
        --8<-- "a.py:one"
        '''

        - x

            '''python
            --8<-- "a.py"
            if x:
                --8<-- "a.py:in"
            '''
    """
    section, whole = find_blocks(page(text), "docs/x.md", root=root)
    assert section.text == "x = 1\ny = 2"
    assert (section.file, section.first) == (root / "snippets" / "a.py", 4)
    assert whole.text == "import os\n\nx = 1\ny = 2\nif x:\n    y = 2"


def test_a_digest_ignores_only_what_html_does_not_show() -> None:
    """Blank lines around and spaces at line ends; nothing else."""
    assert digest("\na  \n\nb\n\n") == digest("a\n\nb")
    assert digest("a\nb") != digest("a\n\nb")
    assert digest(" a") != digest("a")


DOCSTRINGS = '''\
"""Module.

```python
a = 1
```
"""

X = 1
"""About X.

```bash
true
```
"""


class C:
    def f(self):
        """Do.

        Examples:
            Like this:

            ```python
            b = 2
            ```
        """

    def raw(self):
        r"""Do.

        ```python
        print("\\n")
        ```
        """
'''


def test_blocks_in_docstrings_have_the_lines_of_the_file() -> None:
    """Modules, classes, functions and attributes; numbered through the file."""
    scans = scan_docstrings(DOCSTRINGS, "src/safepoint/x.py")
    blocks = [block for scan in scans for block in scan.blocks]
    lines = DOCSTRINGS.split("\n")
    assert [block.text for block in blocks] == ["a = 1", "true", "b = 2", 'print("\\n")']
    assert [block.number for block in blocks] == [1, 2, 3, 4]
    assert all(lines[block.line - 1].strip().startswith("```") for block in blocks)
    assert all(lines[block.first - 1].strip() == block.text for block in blocks)


def test_a_docstring_whose_escapes_move_its_lines_is_refused() -> None:
    """Its line numbers would be wrong."""
    source = '"""X\\n\n```python\n1\n```\n"""\n'
    (scan,) = scan_docstrings(source, "src/safepoint/x.py")
    assert [str(problem) for problem in scan.problems] == [
        'src/safepoint/x.py:1: escapes move the lines of this docstring; write r"""'
    ]


def test_a_docstring_has_placeholders_and_no_elements_that_show_code() -> None:
    """`<thread>` stands for a name."""
    source = '"""X\n\n<thread> <key, id> <xmp>x</xmp>\n<b style="x">\n<!-->\n"""\n'
    (scan,) = scan_docstrings(source, "src/safepoint/x.py")
    assert [(problem.line, problem.message.split(";")[0]) for problem in scan.problems] == [
        (3, "raw <xmp>"),
        (3, "raw </xmp>"),
        (4, "raw <b>"),
        (4, "a style or class that could hide code from the census"),
        (5, "not a comment on one line"),
    ]
