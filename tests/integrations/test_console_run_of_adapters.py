"""The page of a run of somebody else's framework, read without its code."""

from __future__ import annotations

import pytest

from safepoint import Keyring, Ledger
from safepoint.console.record import Record, record_of
from safepoint.core.codec import Codec
from safepoint.shared.desk import Desk
from tests.harness.optional import need

need("langgraph", "needs langgraph")
need("agent_framework", "needs safepoint[agent-framework]")

from tests.house import DANA, KEYS, OPAL, STORE
from tests.integrations.test_approvals import Agents, Graph, Office
from tests.unit.console_runs import shown


def look(office: Office) -> Record:
    """Look as an approver does: without the types of any framework."""
    keys = Keyring(verify=list(KEYS))
    ledger = Ledger(office.storage, store=STORE, keys=keys, anchor=office.anchor, codec=Codec())
    return record_of(Desk(ledger, office.answers, office.gate), office.thread)


@pytest.mark.parametrize("kind", [Graph, Agents])
def test_a_run_of_a_framework_from_the_question_to_its_end(kind: type[Office]) -> None:
    office = kind()
    question = office.start()
    record = look(office)
    page, _ = shown(record, operator="opal")
    assert (record.alarm, page.lines) == ("", question.described)
    assert page.verbs == ["deny", "approve", "hold"]
    assert page.copied[0] == question.text.removesuffix("\n")

    hold = office.answers.hold(OPAL, STORE, office.thread, why="look")
    office.answers.release(OPAL, STORE, office.thread, hold.hold)
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
    assert "It waits for nobody." in shown(record, operator="opal")[0].text
