"""What a graph or a workflow of somebody else asks, read without its code and its framework."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from safepoint import Gate, Keyring, Ledger, Policy
from safepoint.core.codec import Codec
from safepoint.resume.approval import Question, Reason
from safepoint.resume.asking import SPENT
from safepoint.shared.questions import open_questions
from tests.harness.optional import need

need("langgraph", "needs langgraph")
need("agent_framework", "needs safepoint[agent-framework]")

from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from safepoint.langgraph import SealedSaver
from tests.integrations.test_approvals import (
    ALL,
    BOTH,
    DANA,
    ERIN,
    KEYS,
    RUN,
    Agents,
    Graph,
    Office,
    Order,
    _ago,
)
from tests.unit.test_deciding import Office as Store


def asked(office: Office, thread: str = "") -> list[str]:
    """Look as an approver does: without the types of any framework, and without a journal."""
    keys = Keyring(verify=list(KEYS))
    reader = Ledger(office.storage, store="orders", keys=keys, anchor=office.anchor, codec=Codec())
    found = open_questions(reader, thread or office.thread, office.gate)
    return [each.text for each in found]


@BOTH
def test_the_records_ask_what_the_framework_asks(kind: type[Office]) -> None:
    office = kind(within=timedelta(hours=1))
    question = office.start()
    assert asked(office) == [question.text]
    office.answers.put(DANA, DANA.approve(question))
    assert asked(office) == [question.text]  # until a worker has found it
    office.look()
    assert asked(office) == []


@ALL
def test_a_thief_of_the_writers_key_hides_no_question(kind: type[Office]) -> None:
    """Nor does an approval that expired before a worker used it; an answer that counts does."""
    office = kind(policy=Policy({Reason.ASKED: 2}))
    question = office.start()
    short = DANA.approve(question, lifetime=timedelta(minutes=9), now=_ago(minutes=10))
    forged = DANA.approve(question).replace('"approved"', '"denied"')
    for texts in ([], [forged], [short, ERIN.approve(question)], [ERIN.approve(question)], [7]):
        note = {"question": question.text, "statements": texts}
        office.ledger().note(office.thread, note, label=SPENT)
        assert asked(office) == [question.text]
    note["statements"] = [DANA.deny(question)]
    office.ledger().note(office.thread, note, label=SPENT)
    assert asked(office) == []


@BOTH
def test_nothing_waits_after_a_no_or_after_its_end(kind: type[Office]) -> None:
    office = kind()
    question = office.start()
    assert office.look(DANA.deny(question)) == "ResumeRefused"
    assert asked(office) == []


def test_each_run_of_a_workflow_has_a_question_of_its_own() -> None:
    office = Agents()
    first, second = office.start(), office.start()
    assert asked(office) == [first.text, second.text]
    office.look(DANA.approve(second))
    assert asked(office) == [first.text]


def several(ledger: Ledger, gate: Gate) -> Any:
    """A graph that asks in a node, and in a subgraph at the same time; and waits for something."""
    saver = SealedSaver(ledger, gate=gate)

    def ask(action: str) -> Any:
        def node(_: Any) -> Order:
            saver.ask(action, {"amount": 42})
            return {}

        return node

    def wait(_: Any) -> Order:
        interrupt({"question": "not one that people sign"})
        return {}

    inner = StateGraph(Order).add_node("in", ask("inside")).add_edge(START, "in").compile()
    outer = StateGraph(Order).add_node("sub", inner).add_node("out", ask("outside"))
    waits: Any = wait
    outer.add_node("wait", waits)
    for name in ("sub", "out", "wait"):
        outer.add_edge(START, name)
    return outer.compile(checkpointer=saver)


def test_a_graph_asks_several_things_at_once() -> None:
    office = Graph()
    told = several(office.ledger(), office.gate).invoke({"amount": 42}, RUN)["__interrupt__"]
    texts = {each.value: each.id for each in told if isinstance(each.value, str)}
    assert len(texts) == 2
    assert sorted(asked(office)) == sorted(texts)
    for text, ident in texts.items():  # one by one, and the other still waits
        answer = DANA.approve(Question.from_text(text))
        rest = set(asked(office)) - {text}
        several(office.ledger(), office.gate).invoke(Command(resume={ident: answer}), RUN)
        assert set(asked(office)) == rest
    assert asked(office) == []


def test_people_answer_a_graph_from_the_terminal(tmp_path: Path) -> None:
    office = Store(tmp_path)

    def graph() -> Any:
        return several(office.ledger(), office.flow().gate)

    graph().invoke({"amount": 42}, RUN)
    dana = ("approve", "invoices", "Order 7", "--as", "dana", "--key", "dana.key")
    status, _, err = office.run(*dana)
    assert (status, err.count("\n"), " asks 2 things." in err) == (2, 1, True)
    out = office.run("waiting", "invoices", "--full")[1]
    for digest in re.findall(r"digest: (\S+)", out):
        assert office.run(*dana, "--digest", digest)[0] == 0
    assert office.run("waiting", "invoices")[1].count("1 of 1 yes by your settings, of dana") == 2
    waiting = graph().get_state(RUN, subgraphs=True).interrupts
    graph().invoke(Command(resume={each.id: "" for each in waiting}), RUN)
    assert office.run("waiting", "invoices")[:2] == (0, "Nothing waits in invoices.\n")
