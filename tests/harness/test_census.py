"""The census: what the site shows and what ran are the same, or it says where not."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.harness.blocks import digest
from tests.harness.census import judge, rendered_blocks, take_census
from tests.harness.evidence import (
    END,
    FILE,
    Case,
    Read,
    describe_run,
    not_run,
    pretend,
    read,
    write,
)
from tests.harness.shared import build
from tests.harness.testing import make_project, run_tests

GOOD: Final = """
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

    - A list

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

    '''{ .toml data-needs="nobody_has_this" }
    a = 1
    '''
"""
MODULE: Final = '''\
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
FILES: Final = {
    "docs/index.md": GOOD,
    "docs/reference.md": "# Reference\n\n'''python\nown = 1\n'''\n\n::: safepoint\n",
    "snippets/s.py": "# --8<-- [start:part]\nshown = 1\n# --8<-- [end:part]\n",
    "src/safepoint/__init__.py": MODULE,
    "README.md": "'''json\n[]\n'''",
    "Makefile": "test:\n\techo\n",
}
NEVER: Final = "rendered but never ran, so write it as a fence"
BAD: Final = {
    "indented": ("Text:\n\n    x = 'nobody'", [f": {NEVER}: x = 'nobody'"]),
    "reverted": (
        "Text:\n\n    '''python\n    x = 1\n    '''",
        [f": {NEVER}: ```python", ":5: ran but is not rendered: a block of python"],
    ),
    "raw": ("<pre>raw = 1</pre>", [f": {NEVER}: raw = 1"]),
    "hidden": (
        "> Text.\n>\n>     hidden = 1\n{ .doc-signature }",
        [f": {NEVER}: hidden = 1"],
    ),
    "closed": ("</article>\n\nText.\n\n    c = 1", [f": {NEVER}: c = 1"]),
}
"""Pages that show what nobody ran, and what the census says of each."""


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose blocks ran and whose site was built: a good page, and bad ones."""
    pages = {f"docs/{name}.md": f"# T\n\n{text}\n" for name, (text, _) in BAD.items()}
    root = make_project(tmp_path_factory.mktemp("bad"), FILES | pages)
    run_tests(root, "docs", "src", "README.md", f"--junitxml={FILE}")
    build(root, root / "build/site", root / "none")
    return root


@pytest.fixture
def good(bad: Path, tmp_path: Path) -> Path:
    """A copy of it without the bad pages, to spoil."""
    root = Path(shutil.copytree(bad, tmp_path / "copy"))
    for name in BAD:
        (root / f"docs/{name}.md").unlink()
        shutil.rmtree(root / "build/site" / name)
    run = [*describe_run(root), *END.items()]
    kept = [case for case in cases(root) if not case.test.startswith(tuple(BAD), len("docs/"))]
    write(root / FILE, run, kept)
    return root


def cases(root: Path) -> Sequence[Case]:
    return read(root / FILE).cases


def problems(root: Path, *given: Case) -> list[str]:
    """Take the census of the cases that are given, or of all."""
    found = Read(None, given or cases(root))
    return take_census(root, found.entries, root / "build/site").problems


def test_what_the_site_shows_and_nobody_ran_is_found(bad: Path) -> None:
    expected = [f"docs/{name}.md{said}" for name, (_, ends) in BAD.items() for said in ends]
    assert sorted(problems(bad)) == sorted(expected)


def test_a_good_site_is_counted_to_the_last_block(good: Path) -> None:
    """Titles, callouts, lists, includes, docstrings; no signatures."""
    entries = read(good / FILE).entries
    total = take_census(good, entries, good / "build/site").total
    assert total == "blocks: 11 rendered, 9 ran, 1 checked only, 1 skipped, 0 missing"


def test_blocks_are_counted_and_not_looked_up(good: Path) -> None:
    """The same text may stand twice on a page, and not each page is on the site."""
    whole = list(cases(good))
    same = next(case for case in whole if ("sha256", digest('{"a": 1}')) in case.properties)
    fewer = [case for case in whole if case is not same and "README" not in case.test]
    assert problems(good, *fewer) == [
        f'docs/index.md: {NEVER}: {{"a": 1}}',
        "README.md: 1 of its blocks did not run",
    ]


def test_what_a_rule_names_and_nothing_ran_is_found(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing was skipped. A file that does not run by itself is not asked for."""
    monkeypatch.setattr("tests.harness.census.ROOT", good)
    [*blocks, named] = read(pretend(good / FILE, good)).cases
    assert not_run(Read(None, [named]).proofs) == []
    fewer = [(leg, name) for leg, name in named.properties if "edit-state" not in name]
    problems, said = judge(good, Read(None, [*blocks, named._replace(properties=fewer)]))
    assert problems == 2
    text = "src/safepoint/rules.toml: nothing ran the {}; name what runs"
    assert said[0] == text.format("attack edit-state")
    assert said[1].endswith("_for_its_own_reason[edit-state]; name what runs")


def test_a_page_that_no_source_explains_or_nobody_can_read_is_found(good: Path) -> None:
    """Nor is a site counted that does not build."""
    (good / "build/site/extra.html").write_text("<body><pre>x = 1</pre></body>")
    for name in ("EXTRA.HTM", "extra.markdown"):
        (good / "docs" / name).write_text("nothing")
    assert problems(good) == [
        f"extra.html: {NEVER}: x = 1",
        "docs/EXTRA.HTM: a page that is not .md, so nothing in it runs",
        "docs/extra.markdown: a page that is not .md, so nothing in it runs",
    ]
    shutil.move(good / "docs/index.md", good / "docs/gone.txt")
    assert "docs/index.md: its blocks ran, but the site has no such page" in problems(good)
    (good / "docs/index.md").write_text("[x](missing.md)\n")
    found, [said] = judge(good, Read())
    assert (found, said.partition("\n")[0]) == (1, "the site does not build; correct this first:")


def test_blocks_are_read_from_the_whole_page() -> None:
    """Only the reference has signatures and source that nobody wrote as a block."""
    html = """<pre>menu</pre><article><p>a<br>b<pre><span></span><code>x &lt; <b>1</b>
        </code></pre><details class="mkdocstrings-source"><pre>source</pre></details>
        <div class="doc-signature highlight"><pre>f()</pre></div></article><pre>y</pre>
        <xmp>z</xmp><plaintext>the rest"""
    everything = ["menu", "x < 1", "source", "f()", "y", "z", "the rest"]
    written = [text for text in everything if text not in ("source", "f()")]
    assert [text.strip() for text, _ in rendered_blocks(html)] == everything
    assert [text.strip() for text, _ in rendered_blocks(html, reference=True)] == written
    with pytest.raises(ValueError, match="a comment that a browser ends elsewhere"):
        rendered_blocks("<!--> <pre>hidden</pre> -->")
