"""Evaluating blocks: each planted defect fails with its message, and its good twin passes."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.harness import programs
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
    (tmp_path / "docs" / "vectors").mkdir()
    vectors = [{"record": "good\nrecord\n", "opens": {}}, {"record": "bad\n", "refused": "E"}]
    file = tmp_path / "docs" / "vectors" / "records.json"
    file.write_text(json.dumps({"vectors": vectors}))
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


def test_a_skip_and_a_command_that_would_recurse_are_counted_apart(root: Path) -> None:
    text = "'''{ .python data-skip=\"needs a GPU\" }\nbroken\n'''\n'''python\nx = 1\n'''"
    assert run_page(text, root) == ["skipped", "ran"]
    for module, outcome in (("nobody_has_this", "skipped"), ("json", "ran")):
        text = f"'''{{ .python data-needs=\"{module}\" }}\nx = 1\n'''"
        assert run_page(text, root) == [outcome]
    text = "<!-- block: data-check=\"make\" -->\n'''bash\nmake test\n'''"
    assert run_page(text, root, "README.md") == ["checked"]


def test_a_traceback_points_at_the_line_of_the_page(root: Path) -> None:
    """The writer sees where to look."""
    text = "# Title\n\n!!! note\n    '''python\n    x = 1\n\n    1 / 0\n    '''"
    with pytest.raises(Failure) as failure:
        run_page(text, root)
    assert f'File "{root / "docs" / "page.md"}", line 7, in <module>' in str(failure.value)
    assert "tests/harness" not in str(failure.value)


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


def test_a_page_has_its_own_folder_and_home_and_leaves_no_trace(root: Path) -> None:
    """Blocks of a page share what they change; the next page and the tests do not see it."""
    text = """
        '''python
        import os
        from pathlib import Path

        here = Path.cwd()
        os.environ["SAID"] = "yes"
        os.umask(0o077)
        Path("sub").mkdir()
        os.chdir("sub")
        print(Path.home() == here.parent / "home")
        #> True
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
    quick = {**(programs.run.__kwdefaults__ or {}), "timeout": 0.3}
    monkeypatch.setattr(programs.run, "__kwdefaults__", quick)
    with pytest.raises(Failure, match=r"still running after 0\.3 s"):
        run_page("'''bash\nsleep 60 | sleep 61\n'''", root)


def test_pages_run_in_the_temporary_folder_and_the_audit_says_so_everywhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever HOME, umask and the name of that folder are. Nothing is left there."""
    text = """
        '''python
        import os, stat, tempfile
        from pathlib import Path
        here = Path.cwd()
        print(here, tempfile.gettempdir(), here.parents[1] == Path(os.environ["TMPDIR"]))
        #> /home/you /tmp True
        for folder in (here, Path.home(), here.parent):
            print(oct(stat.S_IMODE(folder.stat().st_mode)))
            #> 0o700
            #> 0o700
            #> 0o700
        '''

        '''{ .bash data-exit="1" }
        mkdir -m 700 state
        safepoint audit state | grep -o ".* is inside the temporary folder"
        '''

        '''text
        SP01 warning: /home/you/state is inside the temporary folder
        '''

        '''bash
        echo "$TMPDIR"
        '''

        '''text
        /tmp
        '''
    """
    (tmp_path / "temp").mkdir()
    (tmp_path / "link").symlink_to("temp")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "link"))
    monkeypatch.setenv("HOME", str(root))
    umask = os.umask(0)
    try:
        assert run_page(text, root) == ["ran"] * 5
    finally:
        os.umask(umask)
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("make test && rm x", "&"),
        ("cd $(pwd)", "$("),
        ("git log ' # ' && rm x", "&"),
    ],
)
def test_what_stands_behind_a_checked_command_is_not_overlooked(
    line: str, more: str, root: Path
) -> None:
    """One simple command per line."""
    with pytest.raises(Failure) as failure:
        run_page(f"'''{{ .bash data-check=\"make\" }}\n{line}\n'''", root)
    assert str(failure.value) == f"{more} in {line}; write one simple command per line"
