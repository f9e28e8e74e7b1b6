"""The date at the foot of a page is that of its last commit, or there is none."""

from __future__ import annotations

import os
import subprocess
from datetime import date
from pathlib import Path

import pytest

from publish.git import reviewed
from tests.publish.conftest import write

JANUARY, FEBRUARY, MARCH = date(2026, 1, 31), date(2026, 2, 28), date(2026, 3, 15)
BOTH = {"index.md": JANUARY, "security/bounds.md": FEBRUARY}


def git(folder: Path, *arguments: str, day: date | str = MARCH) -> str:
    """Run git as a person who has no settings, at noon of a day."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    moment = day if isinstance(day, str) else f"{day}T12:00:00Z"
    for name in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{name}_NAME": "dana", f"GIT_{name}_EMAIL": "dana@example.org"}
        environment[f"GIT_{name}_DATE"] = moment
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with two pages, one of which was changed in February."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    files = {"docs/index.md": "one", "docs/security/bounds.md": "one", "README.md": "one"}
    commit(root, JANUARY, files)
    commit(root, FEBRUARY, {"docs/security/bounds.md": "two"})
    return root


def commit(root: Path, day: date | str, files: dict[str, str]) -> None:
    for name, text in files.items():
        write(root, name, text)
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "x", day=day)


def test_a_page_has_the_date_of_the_last_commit_that_touched_it(root: Path) -> None:
    commit(root, MARCH, {"README.md": "two", "snippets/bounds.py": "two"})
    assert reviewed(root) == BOTH


def test_a_page_that_is_not_committed_as_it_is_has_no_date(root: Path) -> None:
    write(root, "docs/index.md", "edited")
    write(root, "docs/new.md", "new")
    assert reviewed(root) == {"security/bounds.md": FEBRUARY}
    git(root, "add", "-A")
    assert reviewed(root) == {"security/bounds.md": FEBRUARY}


def test_without_a_whole_history_there_are_no_dates(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one commit of a shallow clone seems to have written every page."""
    git(tmp_path, "clone", "-q", "--depth=1", root.as_uri(), "shallow")
    write(tmp_path, "bare/docs/index.md", "one")
    write(root, "copy/docs/index.md", "one")
    assert [reviewed(folder) for folder in (tmp_path / "shallow", tmp_path / "bare")] == [{}, {}]
    assert reviewed(root / "copy") == {}
    monkeypatch.setenv("GIT_DIR", str(root / "nothing"))
    assert reviewed(root) == BOTH, "a hook has another repository in its environment"
    monkeypatch.setenv("PATH", str(root))
    assert reviewed(root) == {}
