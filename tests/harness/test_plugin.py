"""The plugin: blocks are collected as tests, failures name page and line, skips are public."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.evidence import read
from tests.harness.optional import need
from tests.harness.testing import make_project, run_tests

MODULE = '''\
"""A module.

```python
x = 1
```
"""


def f():
    """Do.

    ```python
    print(x)
    #> 1
    ```
    """
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """One run over a project with good and bad pages."""
    root = make_project(
        tmp_path_factory.mktemp("project"),
        {
            "docs/good.md": "'''python\nx = 1\n'''\n\n'''python\nprint(x)\n#> 1\n'''",
            "docs/deep/callout.md": "!!! note\n    '''python\n    1 / 0\n    '''",
            "docs/broken.md": "'''pyhton\nx\n'''\n\n'''json\n[]\n'''\n\n<pre>",
            "README.md": "<!-- block: data-check=\"make\" -->\n'''bash\nmake test\n'''",
            "NOTES.md": "'''python\n1 / 0\n'''",
            "Makefile": "test:\n\techo\n",
            "src/safepoint/m.py": MODULE,
            "src/other/m.py": MODULE,
        },
    )
    code, output = run_tests(root)
    return root, code, output


def test_every_block_is_one_test_and_failures_name_page_line_and_what_to_do(
    run: tuple[Path, int, str],
) -> None:
    """Pages, README and src/safepoint; each docstring has a namespace of its own."""
    root, code, output = run
    assert code == 1
    assert "docs/deep/callout.md:2: raises ZeroDivisionError: division by zero" in output
    assert "docs/broken.md:1: unknown language 'pyhton'; use one of" in output
    assert "docs/broken.md:9: raw <pre>; write a fenced block" in output
    assert "src/safepoint/m.py:12: raises NameError: name 'x' is not defined" in output
    assert "4 failed, 5 passed" in output
    assert "blocks: 4 ran, 1 checked only, 0 skipped, 4 failed" in output
    assert [each for each in ("NOTES.md", "src/other", "INTERNALERROR") if each in output] == []
    lines = map(json.loads, (root / "build" / "evidence.jsonl").read_text().splitlines())
    assert sorted((e["page"], e["outcome"]) for e in lines if "page" in e) == [
        ("README.md", "checked"),
        ("docs/broken.md", "failed"),
        ("docs/broken.md", "failed"),
        ("docs/broken.md", "ran"),
        ("docs/deep/callout.md", "failed"),
        ("docs/good.md", "ran"),
        ("docs/good.md", "ran"),
        ("src/safepoint/m.py", "failed"),
        ("src/safepoint/m.py", "ran"),
    ]


BOUNDS = """\
import pytest
from safepoint.audit import check_pickles


@pytest.mark.parametrize("number", [1, 2])
def test_oversized_record_is_refused_without_reading_it(number):
    if number == 2:
        pytest.skip("not here")


@pytest.mark.parametrize("number", [1, 2])
def test_deep_nesting_is_refused_before_it_is_parsed(number):
    assert number == 1


def test_many_values_do_not_fill_the_memory(nothing):
    pass


def test_a_check():
    assert check_pickles


def test_another():
    pass
"""
LADDER = """\
import pytest


@pytest.mark.parametrize("attack", ["edit-state", "unheard-of"])
def test_the_top_detects_every_attack_that_applies(attack):
    pass


@pytest.mark.parametrize("attack", ["fork"])
def test_an_attack_has_a_story(attack):
    pass
"""
MODELS = """\
def test_it(tmp_path):
    strike = [].append
    strike("stray-plugin")
"""
SNIPPETS = """\
import pytest
from pathlib import Path


@pytest.mark.parametrize("file", [Path("snippets/journal.py"), Path("snippets/other.py")])
def test_a_snippet_runs_by_itself(file):
    pass
"""


def test_the_run_left_evidence_of_what_the_rules_stand_on(tmp_path: Path) -> None:
    """Of the tests that a rule names, and of those that try its attacks, examples and checks."""
    files = {"bounds": BOUNDS, "ladder": LADDER, "models": MODELS}
    root = make_project(
        tmp_path,
        {f"tests/attacks/test_{name}.py": text for name, text in files.items()}
        | {"tests/docs/test_snippets.py": SNIPPETS},
    )
    _, output = run_tests(root, "tests")
    assert "1 failed, 10 passed, 1 skipped, 1 error" in output
    found = {
        (proof.leg, proof.name.rpartition("::")[2], proof.outcome)
        for proof in read(root / "build" / "evidence.jsonl").proofs
    }
    assert found == {
        ("test", "test_oversized_record_is_refused_without_reading_it", "passed"),
        ("test", "test_deep_nesting_is_refused_before_it_is_parsed", "failed"),
        ("test", "test_many_values_do_not_fill_the_memory", "failed"),
        ("test", "test_the_top_detects_every_attack_that_applies", "passed"),
        ("check", "safepoint.audit:check_pickles", "passed"),
        ("attack", "edit-state", "passed"),
        ("attack", "stray-plugin", "passed"),
        ("defence", "snippets/journal.py", "passed"),
    }


SKIPPING = {
    "docs/a.md": "'''{ .python data-skip=\"needs a GPU\" }\n1 / 0\n'''",
    "test_a.py": "import pytest\ndef test_a(): pytest.skip('no network')\n",
    "test_b.py": "import pytest\npytest.skip('no such package', allow_module_level=True)\n",
}


def test_a_skip_is_printed_with_its_reason_and_fails_the_run_in_ci(tmp_path: Path) -> None:
    """An expected failure is no skip."""
    root = make_project(tmp_path, SKIPPING)
    code, output = run_tests(root, "--evidence", "there/e.jsonl")
    assert code == 0
    expected = "skipped: 3 (1 x docs/a.md:1: needs a GPU; 1 x no network; 1 x no such package)"
    assert expected in output
    assert '"outcome": "skipped"' in (root / "there" / "e.jsonl").read_text()
    code, output = run_tests(root, ci=True)
    assert code == 1
    assert "CI skips nothing: install what is missing, or remove the skip." in output
    (root / "docs" / "a.md").unlink()
    (root / "test_b.py").unlink()
    (root / "test_a.py").write_text(
        "import pytest\n@pytest.mark.xfail\ndef test_a(): assert False\n"
    )
    code, output = run_tests(root, ci=True)
    assert (code, "skipped: 0" in output) == (0, True)


def test_need_goes_on_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on if the thing is there; else it skips here and fails in CI."""
    monkeypatch.delenv("CI", raising=False)
    need("json", "never missing")
    need(lambda: True, "never missing")
    # Either would end this test as if it had passed, so both are caught and told apart.
    either = (pytest.skip.Exception, pytest.fail.Exception)
    with pytest.raises(either, match="install it") as skipped:
        need("no_such_module", "install it")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(either, match="missing in CI: install it") as failed:
        need(lambda: False, "install it")
    assert (skipped.type, failed.type) == either
