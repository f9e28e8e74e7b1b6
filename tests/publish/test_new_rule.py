"""The beginnings of a rule fail until they are written, and are made all or not at all."""

from __future__ import annotations

import runpy
import shutil
import tomllib
from pathlib import Path

import pytest

from publish.new_rule import ENTRIES, main
from safepoint.rules import RULES
from tests.harness.blocks import ROOT, scan_page

NEW = f"SP{int(max(RULES)[2:]) + 1:02d}"
MADE = [
    "docs/security/lost-update.md",
    "snippets/lost_update.py",
    "tests/attacks/test_lost_update.py",
]
GOOD = {
    "--title": "Two writers cannot both win",
    "--severity": "danger",
    "--theme": "Storage",
    "--page": "lost-update",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in (*MADE, ENTRIES):
        (tmp_path / name).parent.mkdir(parents=True)
    shutil.copy(ROOT / ENTRIES, tmp_path / ENTRIES)
    return tmp_path


def make(root: Path, **changed: str) -> int:
    options = GOOD | {f"--{name}": text for name, text in changed.items()}
    return main([f"{name}={text}" for name, text in options.items()], root=root)


def tree(root: Path) -> dict[str, bytes]:
    files = [file for file in sorted(root.rglob("*")) if file.is_file()]
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in files}


def test_it_makes_an_entry_a_page_an_example_and_tests_that_all_fail(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(root)
    assert make(root) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:5] == [
        f"{NEW}, which fails until you write it:",
        *(f"  {n}" for n in [*MADE, ENTRIES]),
    ]
    assert sorted(tree(root).keys() - before.keys()) == MADE
    rule = tomllib.loads((root / ENTRIES).read_text())["rule"][-1]
    assert [rule[name] for name in ("id", "title", "severity", "theme", "page")] == [
        *(NEW, GOOD["--title"], "danger", "Storage", "security/lost-update.md"),
    ]
    assert rule["legs"]["defence"] == ["snippets/lost_update.py"]
    assert rule["legs"]["test"] == [f"{MADE[2]}::test_lost_update_is_refused"]
    for name in MADE:
        text = (root / name).read_text()
        assert f"TODO({NEW})" in text
        assert "$" not in text.replace("$ ", "")
        compile(text, name, "exec") if name.endswith(".py") else scan_page(text, name, root=root)
    with pytest.raises(NotImplementedError, match=NEW):
        runpy.run_path(str(root / MADE[1]))
    tests = runpy.run_path(str(root / MADE[2]))
    for name in [name for name in tests if name.startswith("test_")]:
        with pytest.raises(pytest.fail.Exception, match=NEW):
            tests[name]()


WRONG = [
    *(("title", text) for text in ("two words", "Ends.", 'Quotes "it"', "A" + "a" * 72)),
    *(("page", text) for text in ("Lost", "../lost", "a" * 25)),
    ("severity", "fatal"),
    ("theme", "Mine"),
]


def test_what_cannot_be_is_refused_and_nothing_is_written_over_or_left_half_made(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(root)
    for name, text in WRONG:
        with pytest.raises(SystemExit, match="2"):
            make(root, **{name: text})
        assert f"argument --{name}: " in capsys.readouterr().err
    for taken in MADE:
        (root / taken).mkdir()
        assert make(root) == 2
        assert capsys.readouterr().err.endswith(". Nothing was changed.\n")
        (root / taken).rmdir()
    assert tree(root) == before
