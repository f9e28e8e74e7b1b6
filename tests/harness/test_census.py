"""The census: what the site shows and what ran are the same, or it says where not."""

from __future__ import annotations

import json
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

    '''python title="a.py"
    x = "<a> & b"

    print(x)
    #> <a> & b
    '''

    '''{ .python .unsafe .no-copy data-marker="m" title="Don't" }
    # UNSAFE: writes a file
    open("m", "w").close()
    '''

    !!! danger "Callout"
        '''bash

        echo one

        '''

        '''text
        one
        '''

    === "Tab"

        '''python
        --8<-- "s.py:part"
        '''

    - a list

        <!-- block: data-exit="2" -->
        '''bash
        exit 2
        '''

    <!-- rule SP01 -->
    <div class="rule" markdown>

    '''json
    {"a": 1}
    '''
    </div>

    ??? note
        The same twice:

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
REFERENCE = """
    # Reference

    '''python
    own = 1
    '''

    ::: safepoint
"""
MODULE = '''\
"""A package.

```python
in_module = 1
```
"""

X: int = 1
"""A value.

```python
in_attribute = 1
```
"""


def f(a: int, b: str = "a long default, so that the signature stands by itself") -> int:
    """Do.

    Examples:
        Like so:

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
    "docs/reference.md": REFERENCE,
    "snippets/s.py": "# --8<-- [start:part]\nshown = 1\n# --8<-- [end:part]\n",
    "src/safepoint/__init__.py": MODULE,
    "README.md": "'''json\n[]\n'''",
    "Makefile": "test:\n\techo\n",
}
BAD = {
    "docs/indented.md": "# T\n\nText:\n\n    x = 'nobody ran this'\n",
    "docs/reverted.md": "# T\n\nText:\n\n    '''python\n    x = 1\n    '''\n",
    "docs/raw.md": "# T\n\n<pre>raw = 1</pre>\n",
    "docs/hidden.md": "# T\n\n> Text.\n>\n>     hidden = 1\n{ .doc-signature }\n",
    "docs/closed.md": "# T\n\n</article>\n\nText.\n\n    closed = 1\n",
    "docs/prose.md": "# T\n\n'''python\nx = 1\n'''\n\n::: safepoint.f\n",
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
    """Titles, callouts, tabs, lists, includes, docstrings; no signatures."""
    assert main([f"--root={good}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "blocks: 14 rendered, 12 ran, 1 checked only, 1 skipped, 0 missing"
    assert lines[-2].endswith(": 1 in README.md, 1 in docstrings")
    assert [line.split() for line in lines[:-2]] == [
        ["bash", "3"],
        ["json", "2"],
        ["python", "7"],
        ["text", "1"],
        ["toml", "1"],
    ]


def test_what_the_site_shows_and_nobody_ran_is_found(tmp_path: Path) -> None:
    """Indented code, a fence that became indented code, raw HTML."""
    root = make_project(tmp_path, {**FILES, **BAD})
    run_tests(root, "docs", "src", "README.md")
    build(root, root / SITE, root / "none")
    found = problems(root)
    for expected in (
        "docs/indented.md: rendered but never ran, so write it as a fence: x = 'nobody ran this'",
        "docs/reverted.md: rendered but never ran, so write it as a fence: ```python",
        "docs/reverted.md:5: ran but is not rendered: x = 1",
        "docs/raw.md: rendered but never ran, so write it as a fence: raw = 1",
        "docs/raw.md:3: failed; correct it and run make test",
        "docs/hidden.md: rendered but never ran, so write it as a fence: hidden = 1",
        "docs/hidden.md:6: failed; correct it and run make test",
        "docs/closed.md: rendered but never ran, so write it as a fence: closed = 1",
        "docs/closed.md:3: failed; correct it and run make test",
    ):
        assert expected in found
        found.remove(expected)
    assert found == []


def test_evidence_that_is_missing_or_broken_is_refused(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file, no line for a page, a line that is not evidence."""
    file = copy / "build" / "evidence.jsonl"
    text = file.read_text()
    file.write_text("".join(x for x in text.splitlines(True) if "docs/index.md" not in x))
    found = problems(copy)
    assert found[0].startswith("docs/index.md:3: no evidence, so run make test again: x = ")
    assert sum("rendered but never ran" in problem for problem in found) == 10
    file.write_text("nonsense\n")
    assert main([f"--root={copy}"]) == 1
    assert "evidence.jsonl:1 is not evidence" in capsys.readouterr().out
    file.unlink()
    assert main([f"--root={copy}"]) == 1
    assert capsys.readouterr().out == "There is no evidence at evidence.jsonl. Run make test.\n"


def test_evidence_of_one_block_less_is_found(copy: Path) -> None:
    """Also when the same text stands twice on the page: they are counted, not looked up."""
    file = copy / "build" / "evidence.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    twice = [line for line in lines if digest('{"a": 1}') in line]
    assert len(twice) == 2
    lines.remove(twice[1])
    file.write_text("".join(lines))
    found = problems(copy)
    assert 'docs/index.md: rendered but never ran, so write it as a fence: {"a": 1}' in found


def test_evidence_of_a_failure_is_found(copy: Path) -> None:
    """A census is not green after a red run."""
    file = copy / "build" / "evidence.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    next(line for line in lines if "page" in line)["outcome"] = "failed"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [p for p in problems(copy) if p.endswith(": failed; correct it and run make test")]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("docs/index.md", "echo one", "echo two"),
        ("snippets/s.py", "shown = 1", "shown = 2"),
        ("src/safepoint/__init__.py", "hidden = 1", "hidden = 2"),
        ("README.md", "[]", "[1]"),
    ],
)
def test_stale_evidence_is_found(name: str, old: str, new: str, copy: Path) -> None:
    """A page, a snippet, a docstring or README that changed after it ran."""
    file = copy / name
    file.write_text(file.read_text().replace(old, new))
    (found,) = problems(copy)
    assert "stale evidence, so run make test again" in found
    assert new in found


def test_a_page_that_the_site_leaves_out_is_found(copy: Path) -> None:
    """Its blocks ran, and nobody can read them."""
    shutil.move(copy / "docs" / "index.md", copy / "docs" / "gone.txt")
    assert "docs/index.md: its blocks ran, but the site has no such page" in problems(copy)


def test_a_page_of_the_site_that_no_source_explains_is_found(copy: Path) -> None:
    """Whatever wrote it."""
    (copy / SITE / "extra.html").write_text("<body><pre>x = 1</pre></body>")
    (found,) = problems(copy)
    assert found.startswith("extra.html: rendered but never ran")


def test_a_site_that_does_not_build_is_reported(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what mkdocs said."""
    (copy / "docs" / "index.md").write_text("[x](missing.md)\n")
    assert main([f"--root={copy}"]) == 1
    assert "the site does not build; correct this first" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["assets/extra.html", "x/EXTRA.HTM", "extra.markdown"])
def test_a_page_that_the_tests_do_not_collect_is_found(name: str, copy: Path) -> None:
    """Its code would stand on the site all the same."""
    file = copy / "docs" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("nothing")
    assert problems(copy) == [f"docs/{name}: a page that is not .md, so nothing in it runs"]


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
