"""The census: what the site shows and what ran are the same, or it says where not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.harness.blocks import digest
from tests.harness.census import main, take_census
from tests.harness.evidence import read
from tests.harness.rendered import rendered_blocks
from tests.harness.shared import build
from tests.harness.testing import make_project, run_tests

SITE = "build/site"
GOOD = """
    # Good

    '''{ .python .unsafe .no-copy data-marker="m" title="Don't" }
    # UNSAFE: writes a file
    open("m", "w").close()
    '''

    !!! danger "Callout"
        '''bash

        echo "<a> & one"

        '''

        '''text
        <a> & one
        '''

    === "Tab"

        '''python
        --8<-- "s.py:part"
        '''

    ??? note
        The same twice:

        '''json
        {"a": 1}
        '''

        '''json
        {"a": 1}
        '''

    <!-- block: data-check="make" -->
    '''bash
    make test
    '''

    '''{ .toml data-skip="later" }
    a = 1
    '''
"""
MODULE = '''\
"""A package.

```python
in_module = 1
```
"""


def f(a: int, b: str = "a long default, so that the signature stands by itself") -> int:
    """Do.

    ```{ .python data-raises="ValueError: x" }
    raise ValueError("x")
    ```
    """


def _private():
    """Hidden.

    ```python
    hidden = 1
    ```
    """
'''
FILES = {
    "docs/index.md": GOOD,
    "docs/reference.md": "# Reference\n\n'''python\nown = 1\n'''\n\n::: safepoint\n",
    "snippets/s.py": "# --8<-- [start:part]\nshown = 1\n# --8<-- [end:part]\n",
    "src/safepoint/__init__.py": MODULE,
    "README.md": "'''json\n[]\n'''",
    "Makefile": "test:\n\techo\n",
}
NEVER = "rendered but never ran, so write it as a fence"
FAILED = "failed; correct it and run make test"
BAD = {
    "docs/indented.md": ("Text:\n\n    x = 'nobody'", [f": {NEVER}: x = 'nobody'"]),
    "docs/reverted.md": (
        "Text:\n\n    '''python\n    x = 1\n    '''",
        [f": {NEVER}: ```python", ":5: ran but is not rendered: x = 1"],
    ),
    "docs/raw.md": ("<pre>raw = 1</pre>", [f": {NEVER}: raw = 1", f":3: {FAILED}"]),
    "docs/hidden.md": (
        "> Text.\n>\n>     hidden = 1\n{ .doc-signature }",
        [f": {NEVER}: hidden = 1", f":6: {FAILED}"],
    ),
    "docs/closed.md": (
        "</article>\n\nText.\n\n    closed = 1",
        [f": {NEVER}: closed = 1", f":3: {FAILED}"],
    ),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose blocks ran and whose site was built."""
    root = make_project(tmp_path_factory.mktemp("good"), FILES)
    code, output = run_tests(root, "docs", "src", "README.md")
    assert code == 0, output
    build(root, root / SITE, root / "none")
    return root


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """The same, to spoil."""
    return Path(shutil.copytree(good, tmp_path / "copy"))


def problems(root: Path) -> list[str]:
    return take_census(root, read(root / "build" / "evidence.jsonl").entries, root / SITE).problems


def test_a_good_project_is_counted_to_the_last_block(
    good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Titles, callouts, tabs, includes, docstrings; no signatures."""
    assert main([f"--root={good}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "blocks: 11 rendered, 9 ran, 1 checked only, 1 skipped, 0 missing"
    assert lines[-2].endswith(": 1 in README.md, 1 in docstrings")
    counts = {"bash": "2", "json": "2", "python": "5", "text": "1", "toml": "1"}
    assert [tuple(line.split()) for line in lines[:-2]] == [*counts.items()]


def test_what_the_site_shows_and_nobody_ran_is_found(tmp_path: Path) -> None:
    """Indented code, a fence that became indented code, raw HTML."""
    pages = {name: f"# T\n\n{text}\n" for name, (text, _) in BAD.items()}
    root = make_project(tmp_path, {**FILES, **pages})
    run_tests(root, "docs", "src", "README.md")
    build(root, root / SITE, root / "none")
    expected = [f"{name}{said}" for name, (_, ends) in BAD.items() for said in ends]
    assert sorted(problems(root)) == sorted(expected)


def test_evidence_that_is_missing_broken_red_or_one_block_short_is_refused(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks are counted, not looked up: the same text may stand twice on a page."""
    file = copy / "build" / "evidence.jsonl"
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    twice = [line for line in lines if digest('{"a": 1}') in line]
    lines.remove(twice[1])
    file.write_text("".join(lines))
    assert f'docs/index.md: {NEVER}: {{"a": 1}}' in problems(copy)
    file.write_text(text.replace('"outcome": "ran"', '"outcome": "failed"', 1))
    assert [said for said in problems(copy) if said.endswith(FAILED)]
    file.write_text("".join(x for x in text.splitlines(True) if "docs/index.md" not in x))
    found = problems(copy)
    assert found[0].startswith("docs/index.md:3: no evidence, so run make test again: # UNSAFE")
    assert sum(NEVER in problem for problem in found) == 8
    file.write_text("nonsense\n")
    assert main([f"--root={copy}"]) == 1
    assert "evidence.jsonl:1 is not evidence" in capsys.readouterr().out
    file.unlink()
    assert main([f"--root={copy}"]) == 1
    assert capsys.readouterr().out == "There is no evidence at evidence.jsonl. Run make test.\n"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("docs/index.md", "& one", "& two"),
        ("snippets/s.py", "shown = 1", "shown = 2"),
        ("src/safepoint/__init__.py", "hidden = 1", "hidden = 2"),
        ("README.md", "[]", "[1]"),
    ],
)
def test_stale_evidence_is_found(name: str, old: str, new: str, copy: Path) -> None:
    """A page, a snippet, a docstring or README that changed after it ran."""
    file = copy / name
    file.write_text(file.read_text().replace(old, new, 1))
    (found,) = problems(copy)
    assert "stale evidence, so run make test again" in found
    assert new in found


def test_a_page_that_no_source_explains_or_nobody_can_read_is_found(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is a site counted that does not build."""
    (copy / SITE / "extra.html").write_text("<body><pre>x = 1</pre></body>")
    for name in ("EXTRA.HTM", "extra.markdown"):
        (copy / "docs" / name).write_text("nothing")
    assert problems(copy) == [
        f"extra.html: {NEVER}: x = 1",
        "docs/EXTRA.HTM: a page that is not .md, so nothing in it runs",
        "docs/extra.markdown: a page that is not .md, so nothing in it runs",
    ]
    shutil.move(copy / "docs" / "index.md", copy / "docs" / "gone.txt")
    assert "docs/index.md: its blocks ran, but the site has no such page" in problems(copy)
    (copy / "docs" / "index.md").write_text("[x](missing.md)\n")
    assert main([f"--root={copy}"]) == 1
    assert "the site does not build; correct this first" in capsys.readouterr().out


SHOWN = """
    <pre>menu</pre><article><p>a<br>b<pre><span></span><code>x &lt; <b>1</b>
    </code></pre><details class="mkdocstrings-source"><pre>source</pre></details>
    <div class="doc-signature highlight"><pre>f()</pre></div>
    <div class="linenos"><pre>1</pre></div></article><pre>y</pre>
    <xmp>z</xmp><plaintext>the rest
"""


def test_blocks_are_read_from_the_whole_page() -> None:
    """Only the reference has signatures and source that nobody wrote as a block."""
    everything = ["menu", "x < 1", "source", "f()", "1", "y", "z", "the rest"]
    written = [text for text in everything if text not in ("source", "f()")]
    assert [text.strip() for text, _ in rendered_blocks(SHOWN)] == everything
    assert [text.strip() for text, _ in rendered_blocks(SHOWN, reference=True)] == written
