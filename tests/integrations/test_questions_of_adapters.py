"""What a graph or a workflow of somebody else asks, read without its code and its framework."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from safepoint import Gate, Keyring, Ledger, Policy
from safepoint.core import ledger
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
from tests.house import DANA, ERIN, KEYS
from tests.integrations.test_approvals import (
    ALL,
    BOTH,
    RUN,
    Agents,
    Graph,
    Office,
    Order,
    _ago,
    _at_time,
)
from tests.unit.test_deciding import Office as Store


def asked(office: Office, thread: str = "", journal: Any = None) -> list[str]:
    """Look as an approver does: without the types of any framework, and without a journal."""
    reader = office.ledger(keys=Keyring(verify=list(KEYS)), journal=journal, codec=Codec())
    found = open_questions(reader, thread or office.thread, office.gate)
    return [each.text for each in found]


@BOTH
def test_the_records_ask_what_the_framework_asks(kind: type[Office]) -> None:
    office = kind(within=timedelta(hours=1))
    question = office.start()
    assert asked(office) == [question.text]
    office.answers.put(DANA, DANA.approve(question))
    assert asked(office) == [question.text]  # until a worker has found it
    assert office.look() == "42 by dana"
    assert asked(office) == []


@ALL
def test_a_thief_of_the_writers_key_hides_no_question(kind: type[Office]) -> None:
    """Nor does an approval that expired before a worker used it; an answer that counts does."""
    office = kind(policy=Policy({Reason.ASKED: 2}), within=timedelta(hours=1))
    question = office.start()
    short = DANA.approve(question, lifetime=timedelta(minutes=9), now=_ago(minutes=10))
    forged = DANA.approve(question).replace('"approved"', '"denied"')
    other = ERIN.approve(question, now=_ago(minutes=10))
    for texts in ([], [forged], [short, other], [other], [7]):
        note = {"question": question.text, "statements": texts}
        for minutes in (120, -5):  # as the thief would have it
            with _at_time(ledger, minutes=minutes):
                office.ledger().note(office.thread, note, label=SPENT)
        assert asked(office) == [question.text]
    note["statements"] = [DANA.deny(question)]
    office.ledger().note(office.thread, note, label=SPENT)
    assert asked(office) == []


@pytest.mark.parametrize("verdict", ["approve", "deny", "end"])
@ALL
def test_nothing_waits_after_its_answer(kind: type[Office], verdict: str) -> None:
    """A worker died with it, and the desk does not read the journal, which knows that."""
    ends = verdict == "end"
    office = kind(dies=True, within=timedelta(hours=1) if ends else None)
    question = office.start()
    assert asked(office) == [question.text]
    with _at_time(hours=2 if ends else 0):
        with suppress(MemoryError):
            office.look("" if ends else getattr(ERIN, verdict)(question))
        assert asked(office) == []
    with _at_time(days=3):  # it has expired, and only the journal knows that it was used
        assert asked(office, journal=office.journal) == []


def test_a_text_of_a_client_is_no_question_of_a_graph() -> None:
    """Not even one that fits: of a real question, with another amount."""
    office = Graph()
    told = several(office.ledger(), office.gate).invoke({"amount": 42}, RUN)["__interrupt__"]
    texts = [each.value for each in told if isinstance(each.value, str)]
    [waits] = [each.id for each in told if not isinstance(each.value, str)]
    forged = replace(Question.from_text(texts[0]), arguments={"amount": 4200}).text
    several(office.ledger(), office.gate).invoke(Command(resume={waits: forged}), RUN)
    assert sorted(asked(office)) == sorted(texts)


def test_each_run_of_a_workflow_has_a_question_of_its_own() -> None:
    office = Agents()
    first, second = office.start(), office.start()
    assert asked(office) == [first.text, second.text]
    office.look(DANA.approve(second))
    assert asked(office) == [first.text]


def several(book: Ledger, gate: Gate) -> Any:
    """A graph that asks in a node, and in a subgraph at the same time; and waits for something."""
    saver = SealedSaver(book, gate=gate)

    def ask(action: str) -> Any:
        def node(_: Any) -> Order:
            saver.ask(action, {"amount": 42})
            return {}

        return node

    def wait(_: Any) -> Order:
        interrupt(interrupt({"question": "not one that people sign"}))
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


def test_what_was_approved_and_did_not_end_is_listed_until_it_does(tmp_path: Path) -> None:
    """A node died after its answer was used: nothing else says that the run has to be resumed."""
    office = Store(tmp_path)
    dies = [True]

    def pay() -> dict[str, Any]:
        if dies:
            raise MemoryError
        return {"paid": 42}

    def go(given: Any = None) -> None:
        saver = SealedSaver(office.ledger(), gate=gate)
        graph = StateGraph(Order)
        graph.add_node("pay", lambda _: (saver.ask("pay", {"amount": 42}), pay())[1])
        graph.add_edge(START, "pay")
        with suppress(MemoryError):
            graph.compile(saver).invoke(given or Command(resume=""), RUN)

    gate = office.flow().gate
    office.ledger().save("order-8", {"early": 5, "writes": 5})  # no graph's
    go({"amount": 42})
    [asked] = office.waiting()
    assert asked["state"] == "waiting"
    dana = ("approve", "invoices", asked["thread"], "--key", "dana.key", "--digest")
    assert office.run(*dana, asked["digest"])[0] == 0
    go()
    [left] = office.waiting()
    assert (left["state"], left["digest"]) == ("approved, not finished", asked["digest"])
    out = office.run("waiting", "invoices")[1]
    assert "  approved, not finished  " in out
    out = office.run("waiting", "invoices", asked["thread"])[1]
    assert "resume the run, and its step gets the same key" in out
    with _at_time(days=3):  # the desk does not read the journal
        assert [each["state"] for each in office.waiting()] == ["waiting"]
    status, _, err = office.run(*dana, asked["digest"])
    assert (status, "waits for nobody" in err) == (1, True), err
    dies.clear()
    go()
    assert office.run("waiting", "invoices")[:2] == (0, "Nothing waits in invoices.\n")
