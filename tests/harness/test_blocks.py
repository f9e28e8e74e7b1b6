"""Finding blocks: what is found, and what is refused with page, line and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.blocks import PageError, digest, find_blocks, scan_docstrings
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


RAW = ("xmp", "textarea", "script", "style", "iframe", "code", "svg", "details", "a", "?php")
REFUSED = [
    ("unknown language", "'''pyhton\nx\n'''", 1, "unknown language 'pyhton'; use one of: bash"),
    ("no language", "text\n\n'''\nx\n'''", 3, "no language; use one of"),
    ("tildes", "~~~python\nx\n~~~", 1, "a fence of ~~~; write ```"),
    ("four ticks", "'''`python\nx\n'''`", 1, "a fence of four or more backticks"),
    ("nested", "'''text\n'''python\nx\n'''", 2, "a fence inside a fence"),
    ("quote", "> '''python\n> x\n> '''", 1, "a fence in a block quote; move it out"),
    ("unclosed", "'''python\nx = 1\n", 1, "this fence is never closed; add ```"),
    ("less indented", "!!! n\n    '''python\n  x\n    '''", 3, "indented less than its fence"),
    ("commented", "<!--\n'''python\nx\n'''\n-->", 1, "not a comment on one line"),
    ("endless comment", "<!-- x\n", 1, "not a comment on one line"),
    ("comment that ends early", "<!-- --!> <xmp>x</xmp> -->", 1, "not a comment on one line"),
    ("comments around ticks", "<!-- ` --> x <!-- ` -->", 1, "not a comment on one line"),
    ("raw pre", "x <pre>y</pre>", 1, "raw <pre>; write a fenced block"),
    *((f"raw {name}", f"a\n\nb <{name}>x", 3, f"raw <{name}>;") for name in RAW),
    ("closing what is not ours", "</article>", 1, "raw </article>"),
    ("div without Markdown", "<div>\n`<xmp>`\n</div>", 1, "raw <div>"),
    (
        "class of a signature",
        '<div class="doc-signature" markdown>',
        1,
        "hide code from the census",
    ),
    ("ticks of other lines", "`a\n` <xmp>x</xmp> `\nb`", 1, "inline code that ends on another"),
    ("unfenced doctest", ">>> 1", 1, ">>> outside of a fence"),
    ("bare option", "'''python test\nx\n'''", 1, "with 'test' the site does not render this"),
    ("unknown attribute", "'''{ .python data-x=\"1\" }\nx\n'''", 1, "unknown attribute data-x"),
    ("unknown class", "'''{ .python .safe }\nx\n'''", 1, "unknown class .safe; known: "),
    ("misplaced attribute", "'''{ .json data-exit=\"1\" }\n[]\n'''", 1, "means nothing on json"),
    ("no login", "'''sql\nselect 1;\n'''", 1, "SQL runs on PostgreSQL, as a login; add data-login"),
    ("skip without reason", "'''{ .python data-skip=\" \" }\nx\n'''", 1, "data-skip is a reason"),
    ("tree of what", "'''{ .text data-check=\"subclasses\" }\nx\n'''", 1, "go together"),
    ("copyable", "'''{ .python .unsafe }\n# UNSAFE: x\n'''", 1, "also needs .no-copy"),
    ("refused what", "'''{ .python .refused }\n1\n'''", 1, "add data-raises"),
    ("unsafe by comment", "<!-- block: .unsafe .no-copy -->\n'''python\n1\n'''", 2, "copy button"),
    ("hint above nothing", "<!-- block: .no-copy -->\n\n'''python\nx\n'''", 1, "above no fence"),
    ("empty", "'''python\n\n'''", 1, "an empty block"),
    ("tab", "'''bash\n\techo\n'''", 2, "a tab; the site shows spaces"),
    ("no such include", "'''python\n--8<-- \"no.py\"\n'''", 2, "'no.py' does not exist"),
    ("include from above", "'''python\n--8<-- \"../a.md\"\n'''", 2, "does not exist"),
    ("open section", "'''python\n--8<-- \"a.py:open\"\n'''", 2, "'open' of a.py has no end"),
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
