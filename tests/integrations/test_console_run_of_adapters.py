"""The page of a run of somebody else's framework, read without its code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safepoint import Keyring, Ledger
from safepoint.console.record import Record, record_of
from safepoint.core.codec import Codec
from safepoint.core.names import thread_name
from safepoint.resume.approval import Question
from safepoint.shared.desk import Desk
from tests.harness.optional import need

need("langgraph", "needs langgraph")
need("agent_framework", "needs safepoint[agent-framework]")

from tests.integrations.test_approvals import DANA, KEYS, OMAR, RUN, Agents, Graph, Office
from tests.integrations.test_questions_of_adapters import several
from tests.unit.console_runs import shown, told
from tests.unit.test_deciding import Office as Store


def look(office: Office) -> Record:
    """Look as an approver does: without the types of any framework."""
    keys = Keyring(verify=list(KEYS))
    ledger = Ledger(office.storage, store="orders", keys=keys, anchor=office.anchor, codec=Codec())
    return record_of(Desk(ledger, office.answers, office.gate), office.thread)


@pytest.mark.parametrize("kind", [Graph, Agents])
def test_a_run_of_a_framework_from_the_question_to_its_end(kind: type[Office]) -> None:
    office = kind()
    question = office.start()
    record = look(office)
    page, _ = shown(record, operator="omar")
    assert (record.alarm, page.lines) == ("", question.described)
    assert page.verbs == ["deny", "approve", "hold"]
    assert page.copied[0] == question.text.removesuffix("\n")

    hold = office.answers.hold(OMAR, "orders", office.thread, why="look")
    office.answers.release(OMAR, "orders", office.thread, hold.hold)
    office.answers.put(DANA, DANA.approve(question), why="fine")
    assert look(office).answers[-1].then == "no worker has found it yet"
    office.look()
    record = look(office)
    assert (record.waits, record.unread, len(record.checks)) == ([], {}, 4)
    said = {each.what: each for each in record.answers}
    assert said["approved"].why == "fine"
    assert (said["hold"].then, said["release"].then) == ("released", "")
    (spent,) = [each for each in record.history if each.header.label == "spent/"]
    assert spent.who[0].startswith("approved by dana, ")
    assert said["approved"].then.endswith(f"at #{spent.header.sequence}")
    assert "It waits for nobody." in shown(record, operator="omar")[0].text


def test_a_graph_asks_two_things_each_with_forms_of_its_own(tmp_path: Path) -> None:
    office, thread = Store(tmp_path), thread_name("Order 7")

    def graph() -> Any:
        return several(office.ledger(), office.flow().gate)

    found = graph().invoke({"amount": 42}, RUN)["__interrupt__"]
    texts = [each.value for each in found if isinstance(each.value, str)]
    record = told(office.folder, thread)
    asked = [each.question for each in record.waits]
    assert sorted(each.text for each in asked) == sorted(texts)
    page, held = shown(record)
    assert page.lines == [line for each in asked for line in each.described]
    each_of_them = [["deny", *["line"] * len(each.described), "approve"] for each in asked]
    assert page.seen == [*each_of_them[0], *each_of_them[1], "hold"]
    assert page.focus == ["deny"]
    assert [getattr(each, "question", None) for _, each in held] == [
        *(asked[0], asked[0]),
        *(asked[1], asked[1], None),
    ]
    assert "Run 'Order 7'" in page.text
    assert "stored as t--_4frder_207" in page.text
    assert Question.from_text(page.copied[1]) == asked[1]
    digest = record.waits[0].digest
    dana = ("approve", "invoices", "Order 7", "--key", "dana.key")
    assert office.run(*dana, "--digest", digest)[0] == 0
    page, _ = shown(told(office.folder, thread))
    assert page.verbs == ["deny", "deny", "approve", "hold"]
