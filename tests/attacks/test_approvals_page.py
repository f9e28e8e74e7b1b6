"""SP18, SP19: what the two pages claim with files, and with processes that share no secret."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    ApprovalNeeded,
    Approver,
    Approvers,
    Gate,
    Keyring,
    SigningKey,
    SQLiteJournal,
    Tool,
    ToolSet,
    Workflow,
)
from safepoint.audit import audit
from tests.attacks.helpers import THREAD, Shop, refused
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


def test_resume_into_a_tool_set_that_nobody_approved_is_refused(tmp_path: Path) -> None:
    """With a yes it goes on, its record names the new tools, and the audit has nothing to say."""

    def write(state: dict[str, Any]) -> dict[str, Any]:
        return state

    keys, dana = Keyring(SigningKey.generate()), SigningKey.generate()
    gate = Gate(approvers=Approvers({"dana": dana.public}))
    shop = Shop(
        tmp_path, journal=SQLiteJournal(tmp_path / "journal/journal.db", keys=keys, create=True)
    )
    mail, wide = Tool("mail"), [Tool("mail"), Tool("shell", permissions=["run"])]
    Workflow("errand", [write], tools=[mail], gate=gate).begin(shop.ledger(), THREAD)
    wider = Workflow("errand", [write], tools=wide, gate=gate)
    said = refused(ApprovalNeeded, lambda: wider.rehydrate(shop.ledger(), THREAD))
    assert "The tool shell is new. The tool shell comes with the permission run." in said
    question = wider.question(shop.ledger(), THREAD)
    assert question is not None
    yes = Approver("dana", dana).approve(question)
    wider.rehydrate(shop.ledger(), THREAD, approvals=[yes]).finish()
    assert shop.ledger().latest(THREAD).tools == ToolSet(wide).digest
    assert audit(shop.ledger(), gate=gate, rule="SP18") == []
