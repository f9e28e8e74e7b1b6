"""SP18, SP19: what the two pages claim with files, and with processes that share no secret."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.blocks import ROOT


def part_of(name: str) -> str:
    """Return a section of the snippet, as the page includes it."""
    lines = (ROOT / "snippets/approvals.py").read_text(encoding="utf-8").splitlines()
    start = lines.index(f"# --8<-- [start:{name}]")
    end = next(n for n, line in enumerate(lines) if line.strip() == f"# --8<-- [end:{name}]")
    return "\n".join(line for line in lines[start + 1 : end] if "--8<--" not in line)


@pytest.mark.parametrize("word", ["yes", "no"])
def test_worker_and_approver_are_processes_that_share_no_secret(tmp_path: Path, word: str) -> None:
    """Each runs where the other's secret is not, and twice, and the run ends as was signed."""

    def run(code: str, without: str = "") -> str:
        away = tmp_path / "elsewhere"
        if without:
            (tmp_path / without).rename(away)
        done = subprocess.run(
            [sys.executable, "-c", f"{part_of('all')}\n{code}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        if without:
            away.rename(tmp_path / without)
        return done.stdout

    for _ in range(2):
        run("set_up()")
    run("start('order-7', payee='alice', amount=42)", without="dana")
    text = run(f"print(answer(question_about('order-7'), {word!r}), end='')", without="worker")
    for _ in range(2):
        code = f"r = go_on('order-7', {text!r}); print(r.denied, r.state.get('paid'))"
        assert run(code, without="dana") == ("False 42\n" if word == "yes" else "True None\n")
