"""A store of one's own under attack: by the command, and as tests of pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from safepoint.attacks import ATTACKS, own
from safepoint.command.cli import main
from tests.attacks import own_stores

ROOT = Path(__file__).resolve().parents[2]
STORES = "tests.attacks.own_stores"
FEW = "edit-state swap-threads replay-old-on-top torn-record restore-snapshot cut-newest"
deep = partial(pytest.param, marks=pytest.mark.deep)
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error")


@pytest.mark.parametrize(
    ("store", "attacks", "status", "summary"),
    [
        ("Naive", "", 1, "30: 2 detected, 1 crashed, 23 accepted, 4 executed"),
        deep("PickleRows", "", 1, "15: 2 detected, 10 accepted, 3 executed"),
        deep("Sealed", "", 0, "32: 32 detected"),  # a page runs this, too
        ("sealed_sqlite", f"{FEW} undelete-thread", 0, "7: 7 detected"),
        ("Sealed", "delete-thread", 0, "1: 1 detected"),
        ("PlainTarget", f"{FEW} wider-tools", 1, "7: 1 detected, 6 accepted"),
        ("Sealed", "edit-state wider-tools", 0, "1: 1 detected"),
        ("First", "torn-record row-chooses-decoder", 1, "2: 1 detected, 1 crashed"),
    ],
)
def test_a_store_is_attacked_and_every_attack_accounted_for(
    store: str, attacks: str, status: int, summary: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attack", "--target", f"{STORES}:{store}", *attacks.split()]) == status
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["attack", f"{STORES}:{store}"]
    run, ends = summary.split(": ")
    among = len(attacks.split()) or len(ATTACKS)
    assert rows.pop() == f"{run} of {among} attacks were run: {ends}"
    shown = [row.split()[0] for row in rows]
    tried = [name for name in ATTACKS if own.reaches(getattr(own_stores, store), name)]
    assert shown == (attacks.split() or tried)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--target {}:raises", "factory raised OSError: the disk is gone."),
        ("--target {}:ReadOnly", "save raised PermissionError: read-only."),
        ("--target {}:Forgetful", "load returned something else than what was saved."),
        ("--target {}:Nowhere", "save wrote nothing into the folder that it was given."),
        ("--target {}:dies", "its process died, or did not end."),
        ("--target {}:NOT_CALLABLE", "it cannot be called."),
        ("--target {}:Sealed wider-tools", "No attack could be run on"),
        ("--target {}:nothing", "cannot be imported: it raised AttributeError."),
        ("--target :", "':' is not MODULE:NAME. Write app.storage:open_store"),
        ("--target {}:Sealed --target naive", "a store of yours takes names of attacks, but no"),
        ("--target {}:Sealed nothing", "unknown attack 'nothing'. Choose from"),
    ],
)
def test_what_cannot_be_attacked_is_one_line(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And never 0: its refusals would prove nothing."""
    assert main(["attack", *arguments.format(STORES, STORES).split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_the_page_lists_the_attacks_that_can_be_tried() -> None:
    page = (ROOT / "docs/command/attack.md").read_text(encoding="utf-8")
    section = page.partition("## Which attacks are run")[2].partition("\n## ")[0]
    tried = {name for name in ATTACKS if own.reaches(own_stores.Naive, name)}
    assert {*re.findall(r"`([a-z-]+)`", section)} & {*ATTACKS} == tried, (
        "list what can be tried under 'Which attacks are run', or name it in own._BEYOND"
    )


def pytests(*arguments: str) -> tuple[int, str]:
    """Run pytest with the plugin alone, in the folder of the stores."""
    run = [*PYTEST, "-p", "pytest_safepoint", "--noconftest", "-c", "/dev/null", *arguments]
    ended = subprocess.run(
        [*run, f"--rootdir={ROOT}"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("store", "attacks", "status", "said"),
    [
        ("Sealed", "edit-state or cut-newest", 0, f"2 passed, {len(ATTACKS) - 2} deselected"),
        ("Sealed", "reorder", 5, "it takes more than this store has"),
        ("raises", "edit-state", 4, "factory raised OSError: the disk is gone."),
    ],
)
def test_each_attack_is_a_test_of_pytest(store: str, attacks: str, status: int, said: str) -> None:
    """If none could be run, it does not end well. A page shows one that fails and one skipped."""
    target = f"--safepoint-target={STORES}:{store}"
    code, output = pytests(target, "-rfs", "-k", attacks, "src/pytest_safepoint.py")
    assert (code, said in output) == (status, True), output


def test_the_plugin_costs_nothing_until_it_is_asked_for() -> None:
    """Every pytest beside an installed safepoint imports it."""
    code = "import sys, pytest; before = {*sys.modules}; import pytest_safepoint; "
    run = [sys.executable, "-c", code + "print(*({*sys.modules} - before))"]
    ended = subprocess.run(run, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["pytest_safepoint"]
    assert "no tests ran" in pytests("src/pytest_safepoint.py")[1]
