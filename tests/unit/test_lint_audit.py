"""check_loads: the linter, as a check of the audit. And our own code, under the linter."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint import StorageUnavailable
from safepoint.audit.loads import check_loads
from safepoint.lint import check_paths

ROOT = Path(__file__).parents[2]


def test_each_finding_is_under_its_rule_and_says_where(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import os, pickle, torch\n"
        "torch.load(p)\n"
        "torch.load(p, weights_only=False)\n"
        "pickle.load(f)\n"
        "torch.load(p, pickle_module=pickle)\n"
        "os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = '1'\n"
        "torch.load = f\n"
    )
    (tmp_path / "b.py").write_text("def f(:")
    found = [
        (
            each.rule,
            each.severity,
            each.what.removeprefix(f"{tmp_path}/")[:18],
            Path(each.where).name,
        )
        for each in check_loads(tmp_path)
    ]
    assert found == [
        ("SP03", "warning", "a.py:4:1 has SL08:", "a.py"),
        ("SP23", "error", "a.py:5:1 has SL03:", "a.py"),
        ("SP23", "error", "a.py:6:1 has SL06:", "a.py"),
        ("SP23", "warning", "a.py:2:1 has SL01:", "a.py"),
        ("SP24", "error", "a.py:7:1 has SL11:", "a.py"),
        ("SP24", "warning", "a.py:3:1 has SL02:", "a.py"),
        ("SP26", "warning", "b.py:1:7 has SL90:", "b.py"),
    ]


def test_clean_code_has_no_findings(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.load(p, weights_only=True)\n")
    assert check_loads(tmp_path) == []


def test_of_many_the_first_twenty_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n" + "torch.load(p)\n" * 30)
    found = check_loads(tmp_path)
    assert len(found) == 21
    assert found[-1].what == f"There are 10 more findings like these about {tmp_path}."


def test_nothing_to_look_at_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable) as refused:
        check_loads(tmp_path)
    assert str(refused.value) == (
        f"There is no Python file in {tmp_path}, so nothing is known about it."
        " Name the folder that has the code."
    )
    with pytest.raises(StorageUnavailable) as refused:
        check_loads(tmp_path / "x. y")
    assert str(refused.value) == (
        f"'{tmp_path}/x. y' is not there. Name a file or a folder to look at."
    )


def test_our_own_package_loads_nothing_that_executes_but_where_it_says_so() -> None:
    report = check_paths([str(ROOT / "src"), str(ROOT / "snippets")])
    assert report.code > 250
    assert [str(each) for each in report.findings] == []
