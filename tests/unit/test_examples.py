"""`safepoint examples`: a copy says what it is, and what became of it is known without a network.

The states are those of a repository that really released a version, changed one example after it
and withdrew another.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from publish import released
from publish.machine.examples import copies, described
from publish.project import Project
from safepoint.command import examples
from safepoint.command.examples import Catalogue, digest, marked
from tests.unit.commands import said

ROOT = Path(__file__).parents[2]
TOLD = "src/safepoint/command/examples.toml"
PAY = b'"""Pay, once."""\n\n# --8<-- [start:pay]\nprint("paid")\n# --8<-- [end:pay]\n'
TREE = {
    "CHANGELOG.md": b"# Changelog\n\n## Unreleased\n",
    "pyproject.toml": b'[project]\nversion = "0.1.0"\n',
    "mkdocs.yml": b"nav: []\n",
    "docs/index.md": b"# Home\n",
    TOLD: b"# What was released.\n",
    "snippets/pay.py": PAY,
    "snippets/old.py": b'"""Pay, and ask later."""\n\nprint("paid?")\n',
    "snippets/run.sh": b"#!/bin/sh\n# Runs it.\nexit 0\n",
}
REASON = 'reason = "It pays before it asks."\nsuccessor = "pay.py"\n'


class History(NamedTuple):
    """A repository, and the copies that somebody took of its first release."""

    root: Path
    copies: dict[str, bytes]


def write(root: Path, name: str, content: bytes) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content)


def replace(root: Path, name: str, old: str, new: str) -> None:
    file = root / name
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def commit(root: Path) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    for each in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "x")):
        subprocess.run(["git", *each], cwd=root, check=True, env=environment)


def catalogue(root: Path) -> Catalogue:
    told = tomllib.loads((root / TOLD).read_text())
    return Catalogue(root / "snippets", told, _version(root))


def _version(root: Path) -> str:
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def release(root: Path, version: str) -> None:
    replace(
        root, "CHANGELOG.md", "## Unreleased\n", f"## Unreleased\n\n## {version} - 2030-01-01\n"
    )
    assert released.main(check=True, root=root) == 1
    assert released.main(check=False, root=root) == 0
    assert released.main(check=True, root=root) == 0
    commit(root)


@pytest.fixture
def first(tmp_path: Path) -> History:
    """Release 0.1.0."""
    root = tmp_path / "repository"
    for name, content in TREE.items():
        write(root, name, content)
    assert released.main(check=True, root=root) == 0  # what was never released is in no list
    release(root, "0.1.0")
    was = catalogue(root)
    return History(root, {name: was.copy_of(name) for name in was.current})


@pytest.fixture
def history(first: History, monkeypatch: pytest.MonkeyPatch) -> History:
    """Release 0.2.0 as well, and let the command be the one of that version."""
    root = first.root
    replace(root, "pyproject.toml", "0.1.0", "0.2.0")
    replace(root, "snippets/pay.py", '"paid"', '"paid once"')
    (root / "snippets/old.py").unlink()
    gone = f'sha256 = "{digest(TREE["snippets/old.py"])}"\n'
    replace(root, TOLD, gone, gone + REASON)
    release(root, "0.2.0")
    monkeypatch.setattr(examples, "_folder", lambda: root / "snippets")
    told = tomllib.loads((root / TOLD).read_text())
    monkeypatch.setattr(examples, "package_toml", lambda _: told)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.2.0")
    return first


# --- what a release leaves ----------------------------------------------------------------------


def test_the_examples_of_this_repository_are_written_down() -> None:
    assert released.main(check=True) == 0


def test_a_release_lists_what_is_new_and_keeps_what_was(history: History) -> None:
    found = catalogue(history.root).releases
    assert {name: [each.version for each in past] for name, past in found.items()} == {
        "pay.py": ["0.1.0", "0.2.0"],
        "old.py": ["0.1.0"],
        "run.sh": ["0.1.0"],
    }
    kept = {file.name: file.read_bytes() for file in history.root.glob("snippets/.earlier/*")}
    gone = [found["pay.py"][0].sha256, found["old.py"][0].sha256]
    assert sorted(kept) == sorted(gone)
    assert all(digest(content) == name for name, content in kept.items())
    assert b"--8<--" not in b"".join(kept.values())


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (
            lambda root: replace(root, "snippets/pay.py", "paid", "sent"),
            "snippets/pay.py: 0.1.0 is released; raise the version, then change it",
        ),
        (
            lambda root: (root / "snippets/pay.py").unlink(),
            f"{TOLD}: pay.py 0.1.0: give it a reason and remove its file, or do neither",
        ),
        (
            lambda root: replace(root, TOLD, 'y"]]\n', 'y"]]\nreason = "No."\n'),
            f"{TOLD}: pay.py 0.1.0: give it a reason and remove its file, or do neither",
        ),
        (
            lambda root: replace(root, TOLD, 'y"]]\n', 'y"]]\nreason = "no"\nsuccessor = "x"\n'),
            f"{TOLD}: pay.py 0.1.0: its successor is no example\n{TOLD}: pay.py 0.1.0: its reason",
        ),
        (
            lambda root: replace(root, TOLD, 'sha256 = "', 'sha256 = "0'),
            f"{TOLD}: pay.py 0.1.0: neither git nor .earlier has this content",
        ),
    ],
    ids=["changed", "removed", "still there", "no words", "unknown content"],
)
def test_what_only_a_person_can_mend_is_said_and_nothing_is_written(
    first: History,
    mistake: Callable[[Path], Any],
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mistake(first.root)
    before = (first.root / TOLD).read_bytes()
    capsys.readouterr()
    assert released.main(check=False, root=first.root) == 1
    assert line in capsys.readouterr().out
    assert (first.root / TOLD).read_bytes() == before
    assert not (first.root / "snippets/.earlier").exists()


# --- what became of a copy ----------------------------------------------------------------------

WRONG = ", which is wrong: copy it anew."
WITHDRAWN = "It pays before it asks. Instead: safepoint examples copy pay.py"


def states(history: History) -> dict[str, tuple[bytes, str, int]]:
    """What may be found: its content, what is said about it, and the exit status."""
    was, now = history.copies, catalogue(history.root).copy_of
    pay, old, mine = now("pay.py"), was["old.py"], b"mine = 1\n"
    line, _, body = pay.partition(b"\n")
    _, _, old_body = old.partition(b"\n")
    digest_of = catalogue(history.root).releases["pay.py"][-1].sha256
    newest = "The newest is 0.2.0."
    do = "Update safepoint if the copy is newer, or copy it anew."
    return {
        "current": (pay, "current (pay.py 0.2.0).", 0),
        "by-content": (body, "current (pay.py 0.2.0).", 0),
        "crlf": (b"\xef\xbb\xbf" + pay.replace(b"\n", b"\r\n"), "current (pay.py 0.2.0).", 0),
        "end": (pay.rstrip(), "current (pay.py 0.2.0).", 0),
        "for a linter": (line + b"  # noqa: E501\n" + body, "current (pay.py 0.2.0).", 0),
        "never changed": (was["run.sh"], "current (run.sh 0.1.0).", 0),
        "outdated": (was["pay.py"], f"outdated (pay.py 0.1.0). {newest}", 0),
        "changed": (pay + mine, "changed by you (pay.py 0.2.0).", 0),
        "licence": (b"# Ours.\n" + pay, "changed by you (pay.py 0.2.0).", 0),
        "both": (
            was["pay.py"] + mine,
            f"changed by you and outdated (pay.py 0.1.0). {newest}",
            0,
        ),
        "withdrawn": (old, f"withdrawn (old.py 0.1.0). {WITHDRAWN}", 1),
        "withdrawn, by content": (old_body, f"withdrawn (old.py 0.1.0). {WITHDRAWN}", 1),
        "withdrawn, changed": (
            old + mine,
            f"changed by you and withdrawn (old.py 0.1.0). {WITHDRAWN}",
            1,
        ),
        "withdrawn, disguised": (
            line + b"\n" + old_body,
            f"withdrawn (old.py 0.1.0). {WITHDRAWN} Its first line says 'pay.py 0.2.0'{WRONG}",
            1,
        ),
        "another file's": (
            line.replace(b"pay.py", b"run.sh") + b"\n" + body + mine,
            f"changed by you (pay.py 0.2.0). Its first line says 'run.sh 0.2.0'{WRONG}",
            1,
        ),
        "another version": (
            line.replace(b"0.2.0", b"\x1b[2J9") + b"\n" + body,
            f"current (pay.py 0.2.0). Its first line says 'pay.py \\x1b[2J9'{WRONG}",
            1,
        ),
        "unknown": (
            line.replace(digest_of.encode(), b"junk") + b"\n" + body + mine,
            f"unknown. Its first line says 'pay.py 0.2.0', and no release has that digest. {do}",
            1,
        ),
    }


def test_the_state_of_each_copy(history: History, tmp_path: Path) -> None:
    for name, (content, line, status) in states(history).items():
        folder = tmp_path / "app"
        write(folder, "copy.py", content)
        state = line.partition(" (")[0].partition(".")[0]
        wanted = f"copy.py: {line}\nIn all: 1 {state}.\n"
        assert said("examples", "status", folder=folder) == (status, wanted, ""), name
        assert said("examples", "status", "copy.py", folder=folder)[0] == status
        shutil.rmtree(folder)


def test_one_that_is_withdrawn_among_many_decides(history: History, tmp_path: Path) -> None:
    pay, old = history.copies["pay.py"], history.copies["old.py"]
    files = {"a/pay.py": pay, "b/two.py": pay + old, "c/run.sh": history.copies["run.sh"]}
    for name, content in (files | {".venv/pyvenv.cfg": b"", ".venv/old.py": old}).items():
        write(tmp_path / "app", name, content)
    status, out, err = said("examples", "status", folder=tmp_path / "app")
    assert (status, err) == (1, "")
    both, gone = "changed by you and outdated", "changed by you and withdrawn"
    assert [line.partition(").")[0] for line in out.splitlines()] == [
        "a/pay.py: outdated (pay.py 0.1.0",
        f"b/two.py: {both} (pay.py 0.1.0",
        f"b/two.py: {gone} (old.py 0.1.0",
        "c/run.sh: current (run.sh 0.1.0",
        f"In all: 1 outdated, 1 {both}, 1 {gone}, 1 current.",
        "Left out, as no code of yours: .venv.",
    ]


def test_the_differences_are_yours_and_ours_since_the_base(
    history: History, tmp_path: Path
) -> None:
    write(tmp_path, "copy.py", history.copies["pay.py"] + b"mine = 1\n")
    status, out, _ = said("examples", "status", "--diff", "copy.py", folder=tmp_path)
    assert status == 0
    changed = [line for line in out.splitlines() if line.startswith(("+", "-"))]
    assert changed == [
        "--- pay.py 0.1.0",
        "+++ copy.py",
        "+mine = 1",
        "--- pay.py 0.1.0",
        "+++ pay.py 0.2.0",
        '-print("paid")',
        '+print("paid once")',
    ]
    shutil.rmtree(history.root / "snippets/.earlier")
    out = said("examples", "status", "--diff", "copy.py", folder=tmp_path)[1]
    assert "\nThe content of pay.py 0.1.0 is not in this installation.\n" in out


def test_what_was_not_looked_at_is_2(history: History, tmp_path: Path) -> None:
    none = "No copy of an example was found. Name where they are.\n"
    write(tmp_path, "app/other.py", b"# safepoint example of something\n")
    write(tmp_path, "app/odd.py", b"\xff\0" * 100)
    assert said("examples", "status", tmp_path / "app") == (2, "", none)
    write(tmp_path, "app/copy.py", history.copies["pay.py"])
    (tmp_path / "app/loop.py").symlink_to("loop.py")
    os.mkfifo(tmp_path / "app/pipe.py")
    for odd in ("app", "nowhere.py"):
        status, _, err = said("examples", "status", odd, folder=tmp_path)
        assert (status, err.count("\n")) == (2, 1)
        assert "was not looked at (" in err


def test_programs_read_the_same(history: History) -> None:
    found = {each["name"]: each for each in described(Project(history.root))}
    assert sorted(copies(Project(history.root))) == ["examples/pay.py", "examples/run.sh"]
    old, pay = found["old.py"], found["pay.py"]
    assert [old[name] for name in ("withdrawn", "reason", "successor", "address", "title")] == [
        *(True, "It pays before it asks.", "pay.py", None, "Pay, and ask later."),
    ]
    assert [pay[name] for name in ("withdrawn", "reason", "version")] == [False, None, "0.2.0"]
    assert [(each["version"], each["withdrawn"]) for each in pay["earlier"]] == [("0.1.0", False)]
    assert pay["earlier"][0]["sha256"] == digest(history.copies["pay.py"].partition(b"\n")[2])


# --- list, show, copy ---------------------------------------------------------------------------


def test_each_is_listed_with_its_rules_and_shown_as_it_is_copied(tmp_path: Path) -> None:
    status, out, err = said("examples", "list")
    lines = out.splitlines()
    names = [line.split()[0] for line in lines]
    assert (status, err) == (0, "")
    assert names == sorted(file.name for file in (ROOT / "snippets").glob("*.*"))
    assert [line.split()[1:4] for line in lines if line.startswith("strict_codec.py ")] == [
        ["SP03", "SP09", "An"]
    ]
    for name in names:
        _, shown, _ = said("examples", "show", name)
        assert said("examples", "copy", name, tmp_path)[0] == 0
        assert (tmp_path / name).read_text() == shown
        source = (ROOT / "snippets" / name).read_text().splitlines(keepends=True)
        vetted = [line for line in source if "# --8<--" not in line]
        line = [each for each in shown.splitlines(keepends=True) if each not in vetted]
        assert len(line) == 1
        assert shown.replace(line[0], "") == "".join(vetted)
        assert line[0].startswith(f"# safepoint example {name} ")
        assert shown.splitlines(keepends=True).index(line[0]) == vetted[0].startswith("#!")
        mode = 0o755 if name.endswith(".sh") else 0o644
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    assert said("examples", "status", tmp_path)[0] == 0


def test_a_copy_is_whole_or_not_there_and_never_over_another(tmp_path: Path) -> None:
    write(tmp_path, "mine.py", b"mine = 1\n")
    (tmp_path / "folder").mkdir()
    for target, why in {
        "mine.py": "mine.py exists, and nothing was copied. Name another file, or give --force to",
        "mine.py/": "The system could not save to mine.py/anchored.py (ENOTDIR), so nothing was",
        "nowhere/": "There is no folder nowhere. Make it: mkdir -p nowhere",
    }.items():
        status, out, err = said("examples", "copy", "anchored.py", target, folder=tmp_path)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(why)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "mine.py"]
    assert (tmp_path / "mine.py").read_bytes() == b"mine = 1\n"
    copied = (0, "Copied anchored.py 0.1.0 to mine.py.\n", "")
    command = ("examples", "copy", "anchored.py", "mine.py", "--force")
    assert said(*command, folder=tmp_path) == copied
    assert said("examples", "copy", "anchored.py", "folder", folder=tmp_path)[0] == 0
    assert (tmp_path / "folder/anchored.py").read_bytes() == (tmp_path / "mine.py").read_bytes()


def test_a_name_that_is_none_says_what_to_do(history: History, tmp_path: Path) -> None:
    for name, line in {
        "pya.py": "There is no example 'pya.py'. Near it: pay.py.\n",
        "\x1b": "There is no example '\\x1b'. List them: safepoint examples list\n",
        "old.py": f"old.py 0.1.0 was withdrawn. {WITHDRAWN}\n",
    }.items():
        for command in ("show", "copy"):
            assert said("examples", command, name, folder=tmp_path) == (2, "", line)
    assert marked(b"x\n", catalogue(history.root).newest("pay.py")).endswith(b"\nx\n")


# --- what is installed --------------------------------------------------------------------------


def test_an_installed_package_has_them_and_their_past(tmp_path: Path) -> None:
    """Built as pip does it: a wheel, from the source distribution."""
    tree = tmp_path / "tree"
    for name in ("src", "snippets"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, tree / name)
    write(tree, "snippets/.earlier/abc", b"what it was\n")

    def build(folder: Path, target: str) -> Path:
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(tmp_path)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return next(tmp_path.glob("*.whl" if target == "wheel" else "*.gz"))

    with tarfile.open(build(tree, "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    there = tmp_path / "there"
    with zipfile.ZipFile(build(next((tmp_path / "source").iterdir()), "wheel")) as wheel:
        wheel.extractall(there)  # noqa: S202  our own
    assert (there / "safepoint/_examples/.earlier/abc").read_bytes() == b"what it was\n"
    code = "import sys, safepoint.command.cli as c; print(c.__file__); sys.exit(c.main())"
    command = [sys.executable, "-P", "-c", code, "examples", "copy", "anchored.py"]
    environment = os.environ | {"PYTHONPATH": str(there)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert (
        done.stdout
        == f"{there}/safepoint/command/cli.py\nCopied anchored.py 0.1.0 to anchored.py.\n"
    )
    assert (tmp_path / "anchored.py").read_bytes() == Catalogue().copy_of("anchored.py")
