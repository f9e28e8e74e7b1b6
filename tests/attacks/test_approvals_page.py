"""SP18, SP19: what the two pages claim, with files, with processes, and with the writer's key."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    ApprovalNeeded,
    Approver,
    Approvers,
    Ask,
    CheckpointError,
    FileJournal,
    Gate,
    Keyring,
    SigningKey,
    Tool,
    ToolSet,
    Workflow,
)
from safepoint.approval import Question
from safepoint.audit import check_tools
from safepoint.errors import ApprovalMalformed, ApprovalMismatch, ApprovalUntrusted
from safepoint.workflow import Call
from tests.attacks.helpers import Shop, refused

SNIPPETS = Path(__file__).parents[2] / "snippets"
State = dict[str, Any]
WRITER, DANA, ERIN, MALLY = (SigningKey.generate("ed25519") for _ in range(4))
PEOPLE = Approvers({"dana": DANA.public, "erin": ERIN.public})
GATE = Gate(approvers=PEOPLE)
BANK = Tool("bank", version="1", permissions=["pay"], schema={"to": "text"})
HONEST, FORTUNE = {"amount": 42, "payee": "alice"}, {"amount": 5_000_000, "payee": "alice"}
REPLACE = "Do not use it; replace that key."


class Desk(Shop):
    """A store in files, and what its runs paid."""

    def __init__(self, path: Path) -> None:
        journal = FileJournal(path / "journal", keys=Keyring(WRITER), create=True)
        super().__init__(path, WRITER, journal=journal)
        self.paid: list[State] = []

    def payment(self, *tools: Tool) -> Workflow:
        """Ask for what the state says, and pay what was approved."""

        def ask(state: State) -> Ask:
            return Ask("pay", dict(state))

        def pay(state: State, call: Call) -> State:
            self.paid.append(call.approved.arguments)
            return {}

        return Workflow("payment", [ask, pay], tools=tools or [BANK], gate=GATE)

    def asked(self, thread: str, order: State) -> Question:
        """Let a run pause at #2, and return what it asks."""
        question = self.payment().start(self.ledger(), thread=thread, **order).question
        assert question is not None
        return question

    def resume(self, thread: str, *answers: str, tools: tuple[Tool, ...] = ()) -> None:
        self.payment(*tools).resume(self.ledger(), thread, approvals=answers)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def yes(question: Question, key: SigningKey = DANA) -> str:
    return Approver("dana", key).approve(question)


def forged(question: Question) -> list[str]:
    """Every yes that can be made without dana's key."""
    own = yes(question)
    line, body = own.split("\n", 1)
    label, key, signature = line.split(" ")
    denial = Approver("erin", ERIN).deny(question)
    return [
        "",
        "approved",
        body,
        f"{label} {key}\n{body}",
        f"{label} {key} {'A' * 86}==\n{body}",
        f"{label} {key} {yes(question, MALLY).split(' ')[2]}",
        yes(question, MALLY),
        own.replace("dana", "erin"),
        denial.replace("denied", "approved"),
        f"{label} {key} {signature}\n{denial.split(chr(10), 1)[1]}",
        *(
            own[:at] + ("x" if own[at] != "x" else "y") + own[at + 1 :]
            for at in range(0, len(own) - 1, 90)
        ),
    ]


def test_a_forged_approval_pays_nobody(desk: Desk) -> None:
    """And the journal tells of each try."""
    texts = forged(desk.asked("order-7", HONEST))
    for text in texts:
        with pytest.raises((ApprovalMalformed, ApprovalUntrusted)):
            desk.resume("order-7", text)
    told = list(FileJournal(desk.path / "journal", keys=Keyring(WRITER)).show(what="resume"))
    assert [entry.outcome for entry in told] == ["refused"] * len(texts)
    assert all(entry.detail.startswith("Approval") for entry in told)
    assert desk.paid == []


def test_yes_written_into_the_record_by_the_writer_is_refused(desk: Desk) -> None:
    """What a step is told comes out of what a person signed, whatever the sealed record says."""
    question = desk.asked("order-7", FORTUNE)
    last = desk.ledger().latest("order-7")
    kept = {k: v for k, v in last.state.items() if k != "asked"}
    went = {"app": last.app, "digest": last.digest, "reasons": ["asked"], "sequence": 2}

    def write(text: str) -> None:
        forged = {**kept, "resumed": {**went, "statements": [text]}}
        desk.ledger().save("order-7", forged, app=last.app, tools=last.tools)

    for text in (yes(question, WRITER), yes(question, MALLY)):
        write(text)
        assert "which is no approver's." in refused(
            ApprovalUntrusted, partial(desk.resume, "order-7")
        )
    write(yes(desk.asked("order-8", FORTUNE)))
    assert refused(ApprovalMismatch, partial(desk.resume, "order-7")).endswith(REPLACE)
    assert desk.paid == []


@pytest.mark.parametrize(
    ("tools", "detail"),
    [
        (
            (BANK, Tool("shell", permissions=["run"])),
            "The tool shell is new. The tool shell comes with the permission run.",
        ),
        ((Tool("shell"),), "The tool shell is new."),
        (
            (Tool("bank", version="1", permissions=["pay", "all"], schema={"to": "text"}),),
            "The tool bank gains the permission all.",
        ),
        (
            (Tool("bank", version="2", permissions=["pay"], schema={"to": "text"}),),
            "The tool bank has version '2', and had version '1'.",
        ),
        (
            (Tool("bank", version="1", permissions=["pay"], schema={"to": "any"}),),
            "The tool bank has another schema.",
        ),
    ],
)
def test_resume_into_a_tool_set_that_nobody_approved_is_refused(
    desk: Desk, tools: tuple[Tool, ...], detail: str
) -> None:
    desk.payment().begin(desk.ledger(), thread="order-7", **HONEST)
    assert refused(ApprovalNeeded, lambda: desk.resume("order-7", tools=tools)) == (
        f"order-7 #1 needs the approval of one person. {detail} Show them this error's question,"
        " and pass what they sign: resume(..., approvals=[text])."
    )
    assert desk.ledger().latest("order-7").sequence == 1
    question = desk.payment(*tools).question(desk.ledger(), "order-7")
    assert question is not None
    desk.resume("order-7", yes(question), tools=tools)
    assert desk.ledger().latest("order-7").tools == ToolSet(tools).digest
    assert check_tools(desk.ledger(), GATE) == []


def test_tool_set_in_a_record_that_is_not_the_sealed_one_is_refused(desk: Desk) -> None:
    """Who has the key and describes other tools than the header names gets no further."""
    desk.payment().begin(desk.ledger(), thread="order-7", **HONEST)
    last = desk.ledger().latest("order-7")
    wide = {**last.state, "tools": ToolSet([BANK, Tool("shell")]).described}
    desk.ledger().save("order-7", wide, app=last.app, tools=last.tools)
    with pytest.raises(CheckpointError, match="does not hold a workflow's state"):
        desk.resume("order-7")


def part_of(name: str) -> str:
    """Return a section of the snippet, as the page includes it."""
    lines = (SNIPPETS / "approvals.py").read_text(encoding="utf-8").splitlines()
    start = lines.index(f"# --8<-- [start:{name}]")
    end = next(n for n, line in enumerate(lines) if line.strip() == f"# --8<-- [end:{name}]")
    return "\n".join(line for line in lines[start + 1 : end] if "--8<--" not in line)


@pytest.mark.parametrize("word", ["yes", "no"])
def test_worker_and_approver_are_processes_that_share_no_secret(tmp_path: Path, word: str) -> None:
    """Each runs where the other's secret is not, and twice, and the run ends as was signed."""

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", f"{part_of('all')}\n{code}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    worker, dana = tmp_path / "worker", tmp_path / "dana"
    for _ in range(2):
        run("set_up()")
    dana.rename(tmp_path / "elsewhere")
    run("start('order-7', payee='alice', amount=42)")
    (tmp_path / "elsewhere").rename(dana)
    worker.rename(tmp_path / "elsewhere")
    text = run(f"print(answer(question_about('order-7'), {word!r}), end='')")
    (tmp_path / "elsewhere").rename(worker)
    dana.rename(tmp_path / "elsewhere")
    for _ in range(2):
        ended = run(f"r = go_on('order-7', {text!r}); print(r.denied, r.state.get('paid'))")
        assert ended == ("False 42\n" if word == "yes" else "True None\n")
