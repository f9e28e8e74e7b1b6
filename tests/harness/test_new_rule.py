"""The generator of rules: what it makes fails until it is written, and it makes all or nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from publish import new_rule
from publish.new_rule import left, main
from publish.skeleton import NewRule
from safepoint.attacks import NaiveTarget, Outcome
from tests.docs import test_pages
from tests.harness.blocks import ROOT, scan_page
from tests.harness.page import Failure
from tests.harness.prose import problems
from tests.harness.testing import run_page, run_tests

MADE = [
    "docs/security/lost-update.md",
    "snippets/lost_update.py",
    "src/safepoint/attacks/lost_update.py",
    "src/safepoint/audit/lost_update.py",
    "tests/attacks/test_lost_update.py",
]
CHANGED = [
    "docs/examples.md",
    "docs/reference/audit.md",
    "mkdocs.yml",
    "src/safepoint/attacks/catalogue.py",
    "src/safepoint/audit/__init__.py",
    "src/safepoint/rules.toml",
]
RULES = tomllib.loads((ROOT / "src/safepoint/rules.toml").read_text())["rule"]
THEMES = dict.fromkeys(rule["theme"] for rule in RULES)
NEW = f"SP{len(RULES) + 1:02d}"
GOOD = {
    "--title": "Two writers cannot both win",
    "--severity": "danger",
    "--theme": "Storage",
    "--page": "lost-update",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of what the generator reads and writes."""
    root = tmp_path / "project"
    for name in CHANGED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for name in ("docs/security", "snippets", "tests/attacks"):
        (root / name).mkdir(parents=True)
    attacks = "src/safepoint/attacks"
    shutil.copytree(
        ROOT / attacks,
        root / attacks,
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )
    return root


def make(root: Path, **changed: str) -> int:
    options = GOOD | {f"--{name}": text for name, text in changed.items()}
    return main([f"{name}={text}" for name, text in options.items()], root=root)


def tree(root: Path) -> dict[str, bytes]:
    files = [file for file in root.rglob("*") if file.is_file()]
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in files}


@pytest.fixture
def made(root: Path) -> Path:
    assert make(root) == 0
    return root


def test_it_makes_the_page_and_four_legs_and_says_what_comes_next(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(root)
    assert make(root, id=NEW) == 0
    after = tree(root)
    assert sorted(after.keys() - before.keys()) == MADE
    assert sorted(name for name in before if before[name] != after[name]) == CHANGED
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{NEW}, which fails until you write it:"
    assert sorted(line.split()[1] for line in said[1:12]) == sorted([*MADE, *CHANGED])
    assert said[12:] == [
        "Next, until all four are green:",
        "  make fix    # the callout, the list of rules, the ladder",
        '  make test ARGS="tests/attacks/test_lost_update.py"    # attack, test, check',
        '  make test ARGS="docs/security/lost-update.md"    # the page, with its snippet',
        "  make test    # everything; it also names the numbers that are published",
        "What is left to write: make new-rule ARGS=--left",
    ]


def test_nothing_that_it_makes_is_taken_for_finished(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each made file has a place that is listed, and so have the lists that show text of it."""
    places = left(made)
    named = {place.partition(":")[0] for place in places}
    assert named == {*MADE, "docs/examples.md", "src/safepoint/rules.toml"}
    assert all(f"TODO({NEW})" in place for place in places)
    capsys.readouterr()
    typed = [f"{name}=" for name in GOOD]  # what make gives it for `make new-rule ARGS=--left`
    assert main([*typed, "--left"], root=made) == 1
    assert capsys.readouterr().out.splitlines() == places


def test_nothing_is_left_to_write_in_this_project() -> None:
    assert left(ROOT) == []


def test_the_entry_is_the_next_rule_and_says_that_its_callout_is_missing(made: Path) -> None:
    rule = tomllib.loads((made / "src/safepoint/rules.toml").read_text())["rule"][-1]
    assert {name: rule[name] for name in ("id", "title", "severity", "theme", "source")} == {
        "id": NEW,
        "title": "Two writers cannot both win",
        "severity": "danger",
        "theme": "Storage",
        "source": "own",
    }
    assert rule["callout"].strip().startswith(f"TODO({NEW}): say in two or three sentences")
    assert sorted(rule["legs"]) == ["attack", "check", "defence", "test"]


def test_its_tests_fail_and_each_says_in_one_line_what_to_write(made: Path) -> None:
    (made / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    code, output = run_tests(made, "-p", "no:cacheprovider", "tests/attacks/test_lost_update.py")
    assert code == 1
    assert "3 failed" in output
    assert [line for line in output.splitlines() if line.startswith("TODO")] == [
        f"TODO({NEW}): assert that lost-update succeeds (isolated_outcome_of, naive)",
        f"TODO({NEW}): strike a sealed ledger, and compare the whole message of the refusal",
        f"TODO({NEW}): compare check_lost_update before and after the attack",
    ]
    claimed = tomllib.loads((made / "src/safepoint/rules.toml").read_text())["rule"][-1]["legs"]
    [test] = claimed["test"]
    assert f"def {test.partition('::')[2]}(" in (made / test.partition("::")[0]).read_text()


def test_its_snippet_its_attack_and_its_check_do_not_pass(made: Path, tmp_path: Path) -> None:
    snippet = made / "snippets/lost_update.py"
    ran = subprocess.run([sys.executable, snippet], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert f"NotImplementedError: TODO({NEW}): write the defence, whole" in ran.stderr
    attack = loaded(made / "src/safepoint/attacks/lost_update.py")["LostUpdate"]
    assert attack().run(NaiveTarget(tmp_path)) == Outcome.CRASHED
    check = loaded(made / "src/safepoint/audit/lost_update.py")["check_lost_update"]
    with pytest.raises(NotImplementedError, match=rf"TODO\({NEW}\): see check_bounds"):
        check(tmp_path)


# What the hook does with the pages before MkDocs renders them, without the time that takes.
BUILT = """
from pathlib import Path
from publish.check import check
from publish.fill import fill
from publish.project import Project

project = Project(Path.cwd())
check(project)
for page in project.pages.values():
    print(fill(page.text, project))
"""


def test_the_site_can_be_looked_at_while_it_is_written(tmp_path: Path) -> None:
    """After `make fix`, no rung holds the attack, and no page stops the build for that."""
    whole = tmp_path / "project"
    for name in ("docs", "overrides", "publish", "snippets", "src", "tests"):
        shutil.copytree(ROOT / name, whole / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "mkdocs.yml"):
        shutil.copy(file, whole)
    assert make(whole) == 0
    of_the_copy = {"PYTHONPATH": f"{whole / 'src'}{os.pathsep}{whole}", "EVIDENCE": "none"}
    for command in (["-m", "tests.harness.callouts"], ["-c", BUILT]):
        ran = subprocess.run(
            [sys.executable, *command],
            cwd=whole,
            env={**os.environ, **of_the_copy},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
    assert re.search(rf"^\[{NEW}\]\S+ · no rung holds it yet$", ran.stdout, re.MULTILINE)
    assert f"TODO({NEW})" in ran.stdout


def loaded(file: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": file.stem}
    exec(compile(file.read_text(), file, "exec"), names)  # noqa: S102  what the generator wrote
    return names


def test_its_page_has_the_form_and_neither_its_blocks_nor_its_prose_pass(made: Path) -> None:
    file = made / "docs/security/lost-update.md"
    text = file.read_text()
    test_pages.test_a_security_page_has_the_page_form(file)
    assert scan_page(text, "docs/security/lost-update.md", root=made).problems == []
    with pytest.raises(Failure, match=rf"NotImplementedError: TODO\({NEW}\): let the attack succ"):
        run_page(text, made)
    todo = "TODO is left; write what it asks for, and remove it"
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "TODO" in line]
    assert len(lines) > 10
    found = problems(text, "docs/security/lost-update.md")
    assert found == [f"docs/security/lost-update.md:{number}: {todo}" for number in lines]


def test_a_page_that_is_filled_in_passes(made: Path) -> None:
    file = made / "docs/security/lost-update.md"
    block = re.compile(r'raise NotImplementedError\("[^"]*"\)')
    text = file.read_text()
    text = re.sub(
        r'(?<=description: )".*"',
        "What happens on this page, told in one sentence to everybody.",
        text,
    )
    text = text.replace('data-raises="SealBroken"', 'data-raises="ValueError"')
    text = block.sub("print('paid twice')\n#> paid twice", text, count=1)
    text = block.sub("raise ValueError('Paid once.')", text)
    text = re.sub(r"TODO\(\w+\): the refusal, word for word", "ValueError: Paid once.", text)
    text = re.sub(r"TODO\(\w+\)(?:: )?", "Now ", text)
    text = text.replace("safepoint attack lost-update", "echo safepoint attack")
    text = text.replace("Now the table that the command prints", "safepoint attack")
    file.write_text(text)
    (made / "snippets/lost_update.py").write_text("print('paid once')\n#> paid once\n")
    assert problems(text, "docs/security/lost-update.md") == []
    test_pages.test_a_security_page_has_the_page_form(file)
    assert run_page(text, made) == ["ran"] * 6
    assert [place for place in left(made) if place.startswith(("docs/security", "snippets"))] == []


@pytest.mark.parametrize("page", ["a", "lost-update", "aaaaaaaaaaa-aaaaaaaaaaaa", "zebra"])
def test_what_it_makes_is_clean_otherwise(page: str, root: Path) -> None:
    """So the gate names what is to be written, and nothing else. The first command formats."""
    title = "A" * new_rule.LONGEST_TITLE
    assert make(root, page=page, title=title) == 0
    shutil.copy(ROOT / "pyproject.toml", root)
    written = [root / "src", root / "tests", root / "snippets"]
    ours = 'lint.isort.known-first-party=["safepoint"]'  # most of which is not in the copy
    for command in (["format", "-q"], ["check", "--no-cache", "--config", ours]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *written],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


@pytest.mark.parametrize(
    ("theme", "section", "before"),
    [
        ("Storage", "Stored state", "security/location.md"),
        ("Models", "Model files", "security/linting.md"),
    ],
)
def test_the_navigation_has_the_page_among_those_of_its_theme(
    theme: str, section: str, before: str, root: Path
) -> None:
    assert make(root, theme=theme) == 0
    text = (root / "mkdocs.yml").read_text().replace("!ENV", "")
    [entries] = [each[section] for each in yaml.safe_load(text)["nav"] if section in each]
    pages = [page for entry in entries for page in entry.values()]
    assert pages[pages.index(before) + 1] == "security/lost-update.md"
    assert {"Lost update": "security/lost-update.md"} in entries


@pytest.mark.parametrize("page", ["false", "n", "no", "none", "null", "off", "on", "true", "yes"])
def test_a_label_that_yaml_would_take_for_something_else_is_quoted(page: str) -> None:
    label = NewRule(NEW, "", "", "", page).label
    assert yaml.safe_load(f"- {label}: x.md") == [{page.capitalize(): "x.md"}]
    assert label.strip('"') == page.capitalize()


def test_a_label_that_is_quoted_stays_so_in_the_navigation(root: Path) -> None:
    assert make(root, page="off") == 0
    assert '- "Off": security/off.md' in (root / "mkdocs.yml").read_text()


@pytest.mark.parametrize("page", ["any", "final", "mapping", "null"])
def test_what_it_makes_can_be_imported_whatever_its_name_means_elsewhere(
    page: str, root: Path
) -> None:
    assert make(root, page=page) == 0
    script = "from safepoint.attacks.catalogue import ATTACKS; import sys; ATTACKS[sys.argv[1]]"
    shutil.copytree(
        ROOT / "src",
        root / "whole",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copytree(root / "src", root / "whole", dirs_exist_ok=True)
    ran = subprocess.run(
        [sys.executable, "-c", script, page],
        env={**os.environ, "PYTHONPATH": str(root / "whole")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_its_example_is_listed_as_the_others_are(made: Path) -> None:
    lines = (made / "docs/examples.md").read_text().splitlines()
    [line] = [line for line in lines if "lost_update.py" in line]
    assert line == (
        "| [`lost_update.py`](examples/lost_update.py) |"
        f" TODO({NEW}): what it gives you |"
        f" [{NEW}](security/lost-update.md#what-to-write) |"
    )


TITLE = (
    " is no title. Write one line of at most 72 letters, digits and common punctuation, with a"
    " capital first and no period at its end."
)
TAKEN = ", which is taken. Take another name."
PAGE = (
    " is no name of a page. Write at most 24 lower-case letters, with single hyphens between words."
)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"id": "SP1"}, f"'SP1' is no id. Write SP and two digits, or leave it out: {NEW}."),
        ({"id": "sp99"}, f"'sp99' is no id. Write SP and two digits, or leave it out: {NEW}."),
        ({"id": "SP03"}, f"SP03 is taken, and an id keeps its meaning. Leave it out: {NEW}."),
        ({"id": "SP99"}, f"SP99 would leave a gap. Leave it out: {NEW}."),
        (
            {"severity": "fatal"},
            "'fatal' is no severity. Choose from danger, warning, info.",
        ),
        (
            {"theme": "storage"},
            f"'storage' is no theme. Choose from {', '.join(THEMES)}.",
        ),
        ({"title": "It ends."}, f"'It ends.'{TITLE}"),
        ({"title": "small letters"}, f"'small letters'{TITLE}"),
        ({"title": 'A "quote"'}, f"""'A "quote"'{TITLE}"""),
        ({"title": "Two\nlines"}, f"'Two\\nlines'{TITLE}"),
        ({"title": "A | cell"}, f"'A | cell'{TITLE}"),
        ({"title": "A" * 73}, f"'{'A' * 73}'{TITLE}"),
        (
            {"title": "As in SP12"},
            "'As in SP12' names a rule by its id. Say in words what it is about.",
        ),
        (
            {"title": "Append-Only and versioned"},
            "There is a rule 'Append-Only and versioned' already. Write there what you would add.",
        ),
        ({"page": "../outside"}, f"'../outside'{PAGE}"),
        ({"page": "lost_update"}, f"'lost_update'{PAGE}"),
        ({"page": "Lost"}, f"'Lost'{PAGE}"),
        ({"page": "-x"}, f"'-x'{PAGE}"),
        ({"page": "a" * 25}, f"'{'a' * 25}'{PAGE}"),
        ({"page": "import"}, "import is a word of Python. Take another name."),
        ({"page": "false"}, "false is a word of Python. Take another name."),
        ({"page": "none"}, "none is a word of Python. Take another name."),
        ({"page": "true"}, "true is a word of Python. Take another name."),
        ({"page": "attack"}, f"The class of attack would be Attack{TAKEN}"),
        ({"page": "exception"}, f"The class of exception would be Exception{TAKEN}"),
        ({"page": "json"}, "json is a module that others import. Take another name."),
        ({"page": "cut-newest"}, "There is an attack cut-newest already. Take another name."),
        ({"page": "model-payload"}, "There is an attack model-payload already. Take another name."),
        (
            {"page": "residue"},
            "src/safepoint/attacks/residue.py is there already. Take another name, or edit it.",
        ),
    ],
)
def test_bad_input_gets_one_line_and_changes_nothing(
    changed: dict[str, str], line: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(root)
    assert make(root, **changed) == 2
    assert capsys.readouterr() == ("", f"{line}\n")
    assert tree(root) == before


@pytest.mark.parametrize("name", GOOD)
def test_an_option_that_is_missing_is_named(
    name: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make(root, **{name.removeprefix("--"): ""}) == 2
    assert capsys.readouterr().err == (
        f"{name.removeprefix('--').upper()} ({name}) is missing. Try:"
        ' make new-rule TITLE="…" SEVERITY=danger THEME=Storage PAGE=name\n'
    )


@pytest.mark.parametrize("name", MADE)
def test_a_file_that_is_there_stays_as_it_is(
    name: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / name).write_text("mine")
    before = tree(root)
    assert make(root) == 2
    assert capsys.readouterr().err == (f"{name} is there already. Take another name, or edit it.\n")
    assert tree(root) == before


def test_a_second_run_makes_the_next_rule_or_nothing(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(made)
    assert make(made) == 2
    assert "There is a rule 'Two writers cannot both win' already." in capsys.readouterr().err
    assert tree(made) == before
    assert make(made, title="Another one", page="another-one") == 0
    assert f"SP{int(NEW[2:]) + 1}, which" in capsys.readouterr().out


@pytest.mark.parametrize("failing", range(len(CHANGED)))
def test_all_or_nothing_when_the_disk_is_full(
    failing: int, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(root)
    replace = new_rule._replace
    calls = iter(range(100))

    def fails(path: Path, text: str) -> None:
        if next(calls) == failing:
            raise OSError(28, "No space left on device", path.name)
        replace(path, text)

    monkeypatch.setattr(new_rule, "_replace", fails)
    assert make(root) == 2
    assert capsys.readouterr().err.endswith(": No space left on device. Nothing was changed.\n")
    assert tree(root) == before


def test_an_edit_at_the_same_time_is_not_lost(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = new_rule.write

    def edited(root: Path, made: Any) -> None:
        with (root / "mkdocs.yml").open("a") as file:
            file.write("# mine\n")
        write(root, made)

    monkeypatch.setattr(new_rule, "write", edited)
    before = tree(root)
    assert make(root) == 2
    assert capsys.readouterr().err == "mkdocs.yml was changed at the same time. Run this again.\n"
    assert tree(root) == before | {"mkdocs.yml": before["mkdocs.yml"] + b"# mine\n"}


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("src/safepoint/rules.toml", "[", "src/safepoint/rules.toml cannot be read (Invalid"),
        ("docs/examples.md", "# None\n", "docs/examples.md has no list for this any more. Teach"),
        ("mkdocs.yml", "nav: []\n", "mkdocs.yml lists no page of Storage. Teach publish/skeleton"),
        ("src/safepoint/attacks/catalogue.py", "", "src/safepoint/attacks/catalogue.py has no "),
        ("src/safepoint/audit/__init__.py", "", "src/safepoint/audit/__init__.py exports no "),
    ],
)
def test_a_project_without_a_place_for_it_gets_one_line(
    name: str, text: str, line: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / name).write_text(text)
    before = tree(root)
    assert make(root) == 2
    said = capsys.readouterr().err
    assert said.startswith(line)
    assert said.count("\n") == 1
    assert tree(root) == before
