"""The two files that keep the fact that decides in a ledger: what they claim, under attack."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from safepoint import NotFound, RolledBack, SealBroken
from safepoint.errors import WrongPlace
from tests.harness.blocks import ROOT
from tests.harness.optional import need

need("agent_framework", "needs safepoint[agent-framework]")
need("langgraph.checkpoint.sqlite", "needs langgraph-checkpoint-sqlite")

import agent_framework

FILES = ("ledger_in_langgraph", "ledger_in_agent_framework")
SEEN = "a person says yes to {'payee': 'alice', 'amount': 42}"
FORGED = {"payee": "mally", "amount": 5_000_000}
LEDGER = "state/ledger.db"
VERIFIED = re.compile(r'^ +seen = .*?anchor="now"\)\n', re.MULTILINE | re.DOTALL)
NAIVE = {
    "ledger_in_langgraph": "    order = state\n",
    "ledger_in_agent_framework": '        order = ctx.get_state("draft")\n',
}
"""What the node would read if it trusted the checkpoint of its framework."""

each_file = pytest.mark.parametrize("name", FILES)


def source(name: str) -> str:
    return (ROOT / "snippets" / f"{name}.py").read_text(encoding="utf-8")


def printed(code: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@each_file
def test_an_edited_checkpoint_pays_what_was_approved_and_only_once(
    name: str, tmp_path: Path
) -> None:
    assert printed(source(name), tmp_path) == [
        SEEN,
        "paid 42 to alice",
        "refused: the yes to order-7 is spent",
    ]


@each_file
def test_without_the_ledger_the_same_edit_pays_somebody_else_twice(
    name: str, tmp_path: Path
) -> None:
    """The very same file, run and attack, with the state of the framework read instead."""
    naive, replaced = VERIFIED.subn(NAIVE[name], source(name))
    assert replaced == 1
    assert printed(naive, tmp_path) == [SEEN, "paid 5000000 to mally", "paid 5000000 to mally"]


class Example:
    """A file after it ran, with runs of other orders through the same code."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.ledger = module.ledger

    def pause(self, order: str, **draft: Any) -> None:
        raise NotImplementedError

    def resume(self, order: str) -> str:
        raise NotImplementedError

    def approve(self, order: str, **facts: Any) -> None:
        self.ledger.save(order, {**facts, "status": "approved"}, after=0)


class OnLangGraph(Example):
    @contextmanager
    def graph(self) -> Iterator[Any]:
        from langgraph.checkpoint.sqlite import SqliteSaver

        with closing(sqlite3.connect(self.module.file, check_same_thread=False)) as rows:
            saver = SqliteSaver(rows, serde=self.module.strict)
            yield self.module.builder.compile(saver, interrupt_before=["pay"])

    @staticmethod
    def run(order: str) -> dict[str, Any]:
        return {"configurable": {"thread_id": order}}

    def pause(self, order: str, **draft: Any) -> None:
        with self.graph() as graph:
            graph.invoke(draft, self.run(order))

    def resume(self, order: str) -> str:
        """Resume it before its node, also if that ran already."""
        with self.graph() as graph:
            graph.update_state(self.run(order), {}, as_node="__start__")
            return str(graph.invoke(None, self.run(order))["note"])


class OnAgentFramework(Example):
    storage = agent_framework.FileCheckpointStorage

    def pause(self, order: str, **draft: Any) -> None:
        """Pause it, and write what it says into its file, as whoever can write the file does."""
        storage = self.storage("workflow")
        asyncio.run(self.module.payment(order, storage).run(1))
        file = Path(f"workflow/{self.paused(order)}.json")
        checkpoint = json.loads(file.read_text())
        checkpoint["state"]["draft"] = draft
        file.write_text(json.dumps(checkpoint))

    def paused(self, order: str) -> str:
        found = asyncio.run(self.storage("workflow").list_checkpoints(workflow_name=order))
        (paused,) = (each.checkpoint_id for each in found if each.pending_request_info_events)
        return paused

    def resume(self, order: str) -> str:
        async def answer() -> str:
            flow = self.module.payment(order, self.storage("workflow"))
            run = await flow.run(checkpoint_id=at, responses={order: True})
            return str(run.get_outputs()[0])

        at = self.paused(order)
        return asyncio.run(answer())


KINDS: dict[str, Callable[[ModuleType], Example]] = {
    "ledger_in_langgraph": OnLangGraph,
    "ledger_in_agent_framework": OnAgentFramework,
}


@pytest.fixture(params=FILES)
def example(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Example:
    monkeypatch.chdir(tmp_path)
    name = request.param
    spec = importlib.util.spec_from_file_location(name, ROOT / "snippets" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return KINDS[name](module)


def ask(query: str, *values: Any) -> list[Any]:
    """Write the ledger's own database, with its triggers out of the way for the moment."""
    with closing(sqlite3.connect(LEDGER, isolation_level=None)) as connection:
        listed = "select name, sql from sqlite_master where type = 'trigger'"
        triggers = connection.execute(listed).fetchall()
        for name, _ in triggers:
            connection.execute(f"drop trigger {name}")
        found = connection.execute(query, values).fetchall()
        for _, made in triggers:
            connection.execute(made)
        return found


def test_an_honest_order_is_paid(example: Example) -> None:
    """Without this, the refusals below would prove nothing."""
    example.pause("order-8", payee="bob", amount=7)
    example.approve("order-8", payee="bob", amount=7)
    assert example.resume("order-8") == "paid 7 to bob"


def test_what_nobody_approved_is_not_paid_whatever_the_checkpoint_says(example: Example) -> None:
    """Also if the checkpoint says that somebody did."""
    example.pause("order-8", **FORGED)
    with pytest.raises(NotFound):
        example.resume("order-8")


def test_an_edit_of_the_ledger_is_refused(example: Example) -> None:
    example.pause("order-8", payee="bob", amount=7)
    example.approve("order-8", payee="bob", amount=7)
    [(record,)] = ask("select record from checkpoints where thread = 'order-8'")
    edited = record.replace(b"bob", b"eve")
    assert edited != record
    ask("update checkpoints set record = ? where thread = 'order-8'", edited)
    with pytest.raises(SealBroken):
        example.resume("order-8")


def test_the_approval_of_another_order_is_refused(example: Example) -> None:
    example.pause("order-8", payee="bob", amount=7)
    example.approve("order-8", payee="bob", amount=7)
    example.approve("order-9", payee="carol", amount=900)
    [(record,)] = ask("select record from checkpoints where thread = 'order-9'")
    ask("update checkpoints set record = ? where thread = 'order-8'", record)
    with pytest.raises(WrongPlace):
        example.resume("order-8")


def test_an_old_copy_of_the_ledger_does_not_bring_the_yes_back(example: Example) -> None:
    """The anchor has seen that it was spent."""
    example.pause("order-8", payee="bob", amount=7)
    example.approve("order-8", payee="bob", amount=7)
    with closing(sqlite3.connect(LEDGER)) as now, closing(sqlite3.connect("old.db")) as old:
        now.backup(old)
    assert example.resume("order-8") == "paid 7 to bob"
    with closing(sqlite3.connect("old.db")) as old, closing(sqlite3.connect(LEDGER)) as now:
        old.backup(now)
    with pytest.raises(RolledBack):
        example.resume("order-8")
