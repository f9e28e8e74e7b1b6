"""Evaluating blocks: each planted defect fails with its message, and its good twin passes."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.harness.languages import process
from tests.harness.page import Failure
from tests.harness.testing import run_page


def _read_twins() -> dict[str, tuple[str, str, str]]:
    text = Path(__file__).with_name("twins.txt").read_text(encoding="utf-8")
    twins = {}
    for part in text.split("\n@@ ")[1:]:
        head, _, pages = part.partition("\n")
        name, _, message = head.partition(": ")
        bad, _, good = pages.partition("--- right\n")
        twins[name] = (bad, message, good)
    return twins


TWINS = _read_twins()


class Trunk:
    """For the tree above."""


class Branch(Trunk):
    """For the tree above."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "Makefile").write_text(".PHONY: test\nhelp test:\n\t@echo $(ARGS)\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").touch()
    return tmp_path


@pytest.mark.parametrize(("bad", "message", "good"), TWINS.values(), ids=TWINS)
def test_the_defect_fails_and_its_twin_passes(
    bad: str, message: str, good: str, root: Path
) -> None:
    """One twin is wrong in one way, the other is right."""
    with pytest.raises(Failure) as failure:
        run_page(bad, root)
    assert message in str(failure.value)
    outcomes = run_page(good, root)
    assert outcomes
    assert set(outcomes) <= {"ran", "checked"}


def test_a_skip_with_a_reason_is_counted_and_not_run(root: Path) -> None:
    """And what follows does not see its output."""
    text = "'''{ .python data-skip=\"needs a GPU\" }\nbroken\n'''\n'''python\nx = 1\n'''"
    assert run_page(text, root) == ["skipped", "ran"]


def test_commands_that_would_recurse_are_checked_and_not_run(root: Path) -> None:
    """They are counted apart."""
    text = "<!-- block: data-check=\"make\" -->\n'''bash\nmake test\n'''"
    assert run_page(text, root, "README.md") == ["checked"]


def test_a_traceback_points_at_the_line_of_the_page(root: Path) -> None:
    """The writer sees where to look."""
    text = "# Title\n\n!!! note\n    '''python\n    x = 1\n\n    1 / 0\n    '''"
    with pytest.raises(Failure) as failure:
        run_page(text, root)
    assert f'File "{root / "docs" / "page.md"}", line 7, in <module>' in str(failure.value)
    assert "tests/harness" not in str(failure.value)


def test_a_traceback_points_at_the_snippet_that_was_included(root: Path) -> None:
    """The include's own file and line."""
    snippet = root / "snippets" / "a.py"
    snippet.parent.mkdir()
    snippet.write_text("\n# --8<-- [start:x]\n1 / 0\n# --8<-- [end:x]\n")
    with pytest.raises(Failure) as failure:
        run_page("'''python\n--8<-- \"a.py:x\"\n'''", root)
    assert f'File "{snippet}", line 3, in <module>' in str(failure.value)


def test_classes_of_a_page_pickle_and_dataclasses_work(root: Path) -> None:
    """The page is a real module."""
    text = """
        '''python
        from __future__ import annotations
        import pickle
        from dataclasses import dataclass

        @dataclass
        class Order:
            number: int
        '''

        '''python
        print(pickle.loads(pickle.dumps(Order(7))))
        #> Order(number=7)
        print(Order.__annotations__)
        #> {'number': 'int'}
        def f(x: int): ...
        print(f.__annotations__)
        #> {'x': <class 'int'>}
        '''
    """
    main = sys.modules["__main__"]
    assert run_page(text, root) == ["ran", "ran"]
    assert sys.modules["__main__"] is main


def test_a_page_has_its_own_folder_home_and_temp_and_leaves_no_trace(root: Path) -> None:
    """Blocks of a page share what they change; the next page and the tests do not see it."""
    text = """
        '''python
        import os, tempfile
        from pathlib import Path

        here = Path.cwd()
        os.environ["SAID"] = "yes"
        os.umask(0o077)
        Path("sub").mkdir()
        os.chdir("sub")
        base = here.parent
        print(Path.home() == base / "home", Path(tempfile.mkdtemp()).parent == base / "tmp")
        #> True True
        '''

        '''python
        print(os.environ["SAID"], Path.cwd() == here / "sub", oct(os.umask(0o077)))
        #> yes True 0o77
        '''

        '''bash
        test "$HOME" = "$(dirname "$PWD")/home"
        test "$(python -c 'import sys; print(sys.executable)')" = "$(command -v python)"
        echo "${PYTHONPATH-unset} ${SAID-unset} $LANG"
        '''

        '''text
        unset unset C.UTF-8
        '''
    """
    umask = os.umask(0o022)
    os.umask(umask)
    before = (dict(os.environ), Path.cwd(), tempfile.gettempdir())
    assert run_page(text, root) == ["ran"] * 4
    assert (dict(os.environ), Path.cwd(), tempfile.gettempdir()) == before
    assert os.umask(umask) == umask


def test_a_program_that_does_not_end_is_ended(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything that it started."""
    monkeypatch.setattr(process.run, "__kwdefaults__", {"timeout": 0.3})
    with pytest.raises(Failure, match=r"still running after 0\.3 s"):
        run_page("'''bash\nsleep 60 | sleep 61\n'''", root)


def test_pages_run_in_the_cache_and_without_one_in_the_project(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left there."""
    where = (
        "'''python\nfrom pathlib import Path\nprint(Path.cwd().parents[2])\n'''\n'''text\n{}\n'''"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run_page(where.format(tmp_path / "cache"), root) == ["ran", "ran"]
    assert list((tmp_path / "cache").iterdir()) == []
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run_page(where.format(root / "build"), root) == ["ran", "ran"]
