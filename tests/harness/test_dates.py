"""The date at the foot of a page is that of its last commit, or there is none."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from publish.dates import reviewed
from publish.git import git as asked

JANUARY, FEBRUARY, MARCH = date(2026, 1, 31), date(2026, 2, 28), date(2026, 3, 15)


def git(folder: Path, *arguments: str, day: date | None = None) -> str:
    """Run git as a person who has no settings, at noon of a day."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    environment |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "dana",
        "GIT_AUTHOR_EMAIL": "dana@example.org",
        "GIT_COMMITTER_NAME": "dana",
        "GIT_COMMITTER_EMAIL": "dana@example.org",
    }
    if day:
        environment |= dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{day}T12:00:00Z")
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with two pages, one of which was changed in February."""
    root = tmp_path / "project"
    (root / "docs/security").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    write(root, {"docs/index.md": "one", "docs/security/bounds.md": "one", "README.md": "one"})
    commit(root, JANUARY)
    write(root, {"docs/security/bounds.md": "two"})
    commit(root, FEBRUARY)
    return root


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def commit(root: Path, day: date) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x", day=day)


def test_a_page_has_the_date_of_the_last_commit_that_touched_it(root: Path) -> None:
    assert reviewed(root) == {"index.md": JANUARY, "security/bounds.md": FEBRUARY}


def test_a_commit_that_touches_other_files_changes_no_date(root: Path) -> None:
    write(root, {"README.md": "two", "snippets/bounds.py": "two"})
    commit(root, MARCH)
    assert reviewed(root) == {"index.md": JANUARY, "security/bounds.md": FEBRUARY}


def test_a_page_that_is_not_committed_as_it_is_has_no_date(root: Path) -> None:
    write(root, {"docs/index.md": "edited", "docs/new.md": "new"})
    assert reviewed(root) == {"index.md": None, "new.md": None, "security/bounds.md": FEBRUARY}
    git(root, "add", "-A")
    assert reviewed(root) == {"index.md": None, "new.md": None, "security/bounds.md": FEBRUARY}
    write(root, {"docs/index.md": "one"})
    assert reviewed(root)["index.md"] == JANUARY


def test_a_page_that_was_removed_and_lies_there_again_has_no_date(root: Path) -> None:
    (root / "docs/index.md").unlink()
    commit(root, MARCH)
    write(root, {"docs/index.md": "one"})
    assert reviewed(root)["index.md"] is None


def test_a_page_that_was_renamed_has_the_date_of_that(root: Path) -> None:
    (root / "docs/index.md").rename(root / "docs/start.md")
    commit(root, MARCH)
    assert reviewed(root) == {"security/bounds.md": FEBRUARY, "start.md": MARCH}


def test_a_name_with_other_letters_is_found(root: Path) -> None:
    write(root, {'docs/a "größe".md': "one"})
    commit(root, MARCH)
    assert reviewed(root)['a "größe".md'] == MARCH


def test_a_merge_counts_for_what_it_changed_itself(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "other")
    write(root, {"docs/index.md": "theirs"})
    commit(root, FEBRUARY)
    git(root, "checkout", "-q", "main")
    write(root, {"docs/index.md": "ours"})
    commit(root, FEBRUARY)
    git(root, "merge", "-q", "-s", "ours", "--no-commit", "other")
    assert reviewed(root)["index.md"] == FEBRUARY
    write(root, {"docs/index.md": "both"})
    commit(root, MARCH)
    assert reviewed(root) == {"index.md": MARCH, "security/bounds.md": FEBRUARY}


def test_a_shallow_clone_has_no_dates(root: Path, tmp_path: Path) -> None:
    """Its one commit seems to have written every page."""
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", root.as_uri(), str(shallow))
    assert git(shallow, "log", "--format=%as", "--", "docs/index.md").strip() == str(FEBRUARY)
    assert reviewed(shallow) == {"index.md": None, "security/bounds.md": None}


def test_a_folder_without_history_has_no_dates(tmp_path: Path) -> None:
    write(tmp_path, {"docs/index.md": "one"})
    assert reviewed(tmp_path) == {"index.md": None}
    git(tmp_path, "init", "-q")
    assert reviewed(tmp_path) == {"index.md": None}


def test_a_copy_that_lies_inside_another_repository_has_no_dates(root: Path) -> None:
    write(root, {"copy/docs/index.md": "one", ".gitignore": "copy\n"})
    assert reviewed(root / "copy") == {"index.md": None}


def test_a_project_below_the_top_of_its_repository_has_its_own_dates(root: Path) -> None:
    write(root, {"part/docs/index.md": "one"})
    commit(root, MARCH)
    assert reviewed(root / "part") == {"index.md": MARCH}
    assert reviewed(root)["index.md"] == JANUARY


def test_without_git_there_are_no_dates(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    assert reviewed(root) == {"index.md": None, "security/bounds.md": None}


def test_another_repository_in_the_environment_is_not_asked(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a git hook, which sets these."""
    other = tmp_path / "other"
    write(other, {"docs/index.md": "one"})
    git(other, "init", "-q")
    commit(other, MARCH)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert reviewed(root) == {"index.md": JANUARY, "security/bounds.md": FEBRUARY}


def test_a_commit_from_a_year_of_five_digits_gives_no_date(root: Path) -> None:
    """Git prints 10000-01-01, which is no date here. The page has no other either."""
    commit_at(root, "@253402300800 +0000")
    assert git(root, "log", "-1", "--format=%as") == "10000-01-01\n"
    assert reviewed(root) == {"index.md": None, "security/bounds.md": FEBRUARY}


@pytest.mark.parametrize(("days", "is_kept"), [(0, True), (1, True), (3, False), (9_000, False)])
def test_a_day_that_has_not_come_yet_is_no_date(root: Path, days: int, is_kept: bool) -> None:
    """Tomorrow has come, further east."""
    day = datetime.now(UTC).date() + timedelta(days)
    commit_at(root, f"{day}T12:00:00Z")
    assert reviewed(root)["index.md"] == (day if is_kept else None)


def commit_at(root: Path, moment: str) -> None:
    """Commit a change of the home page as somebody whose clock says this."""
    write(root, {"docs/index.md": "late"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x", "--date", moment)


def test_a_file_name_cannot_date_others(root: Path) -> None:
    """One that looks like the head of an entry in what git prints."""
    write(root, {"docs/a\0012020-01-01": "x", "docs/index.md": "two"})
    commit(root, MARCH)
    assert reviewed(root)["index.md"] == MARCH


def test_a_repository_of_longer_ids_has_dates(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256")
    write(tmp_path, {"docs/index.md": "one", "docs/other.md": "one"})
    commit(tmp_path, MARCH)
    write(tmp_path, {"docs/other.md": "two"})
    assert reviewed(tmp_path) == {"index.md": MARCH, "other.md": None}


def program(root: Path) -> str:
    """A command that leaves a marker."""
    file = root.parent / "program"
    file.write_text(f"#!/bin/sh\ntouch '{root.parent}/marker'\n")
    file.chmod(0o700)
    return str(file)


def test_a_filter_of_the_repository_is_not_run(root: Path) -> None:
    """`git diff` runs it on each file whose time differs from the index."""
    write(root, {".git/info/attributes": "*.md filter=evil\n"})
    git(root, "config", "filter.evil.clean", program(root))
    write(root, {"docs/index.md": "edited"})
    assert reviewed(root) == {"index.md": None, "security/bounds.md": FEBRUARY}
    assert not (root.parent / "marker").exists()
    git(root, "diff", "HEAD")
    assert (root.parent / "marker").exists()


def test_what_the_repository_names_to_check_signatures_is_not_run(root: Path) -> None:
    signed = git(root, "cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    write(root, {"../commit": signed})
    made = git(root, "hash-object", "-t", "commit", "-w", "../commit").strip()
    git(root, "reset", "-q", "--hard", made)
    git(root, "config", "log.showSignature", "true")
    git(root, "config", "gpg.program", program(root))
    assert asked(root, "log", "-1", "--format=%ct") == f"{noon(FEBRUARY)}\n"
    assert reviewed(root) == {"index.md": JANUARY, "security/bounds.md": FEBRUARY}
    assert not (root.parent / "marker").exists()
    git(root, "log", "-1")
    assert (root.parent / "marker").exists()


def noon(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp())


def test_what_is_missing_is_not_fetched_by_a_command_of_the_repository(root: Path) -> None:
    missing = git(root, "rev-parse", "HEAD^{tree}").strip()
    (root / ".git/objects" / missing[:2] / missing[2:]).unlink()
    for name, text in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{program(root)}",
        "protocol.ext.allow": "always",
    }.items():
        git(root, "config", name, text)
    assert reviewed(root) == {"index.md": None, "security/bounds.md": None}
    assert not (root.parent / "marker").exists()
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "ls-tree", "-r", "HEAD")
    assert (root.parent / "marker").exists()
