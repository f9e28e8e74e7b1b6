"""SP16 to SP18: a run does not wake up as something else, and goes back only on purpose."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    ApprovalMismatch,
    ApprovalNeeded,
    ResumeRefused,
    SealBroken,
    Tool,
    ToolSet,
    Workflow,
)
from safepoint.attacks.naive import NaiveLedger
from safepoint.gate import Gate
from safepoint.ledger import Ledger
from tests.unit.resume_helpers import APPROVERS, DANA, Place

MAIL = Tool("mail", version="1", permissions=["read"])
BANK = Tool("bank", version="1", permissions=["pay"])


class Errand:
    """A run of one step, in a process with some tools and a version. It notes what it did."""

    def __init__(self, tools: Iterable[Tool] = (MAIL,), version: str = "1") -> None:
        self.did: list[Any] = []

        def act(state: dict[str, Any]) -> None:
            self.did.append(state["amount"])

        self.workflow = Workflow(
            "errand", [act], version=version, tools=tools, gate=Gate(approvers=APPROVERS)
        )

    def begin(self, ledger: Ledger) -> None:
        self.workflow.begin(ledger, "order-7", amount=42)

    def resume(self, ledger: Ledger, *approvals: str, sequence: int | None = None) -> None:
        self.workflow.resume(ledger, "order-7", sequence, approvals=approvals)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.create(tmp_path / "place")


@pytest.fixture
def naive(tmp_path: Path) -> NaiveLedger:
    return NaiveLedger(tmp_path / "naive")


WIDER = {
    "a tool more": [BANK, MAIL],
    "another tool of that name": [Tool("mail", version="2", permissions=["read"])],
    "more permissions": [Tool("mail", version="1", permissions=["read", "send"])],
    "other arguments": [Tool("mail", version="1", permissions=["read"], schema={"to": "any"})],
}
each_wider = pytest.mark.parametrize("tools", WIDER.values(), ids=WIDER)


@each_wider
def test_a_run_does_not_wake_up_with_other_tools(place: Place, tools: list[Tool]) -> None:
    Errand().begin(place.ledger())
    other = Errand(tools)
    with pytest.raises(ApprovalNeeded):
        other.resume(place.ledger())
    assert other.did == []


@each_wider
def test_whoever_can_write_the_naive_twin_writes_which_tools_there_were(
    naive: NaiveLedger, tools: list[Tool]
) -> None:
    """A gate is as good as what it is told: the same edit of a sealed record is refused."""
    Errand().begin(naive)
    other = Errand(tools)
    with pytest.raises(ApprovalNeeded):
        other.resume(naive)
    file = naive.path / "order-7.1.json"
    record = json.loads(file.read_text())
    record["tools"] = ToolSet(tools).digest
    record["state"]["tools"] = ToolSet(tools).described
    file.write_text(json.dumps(record))
    other.resume(naive)
    assert other.did == [42]


def test_whoever_can_write_the_store_does_not_write_which_tools_there_were(place: Place) -> None:
    Errand().begin(place.ledger())
    file = place.path / "store" / "order-7" / "0000000001.checkpoint"
    wider = file.read_bytes().replace(b'"permissions":["read"]', b'"permissions":["read","send"]')
    file.write_bytes(wider.replace(ToolSet([MAIL]).digest.encode(), b"sha256:" + b"0" * 64))
    other = Errand(WIDER["more permissions"])
    with pytest.raises(SealBroken):
        other.resume(place.ledger())
    assert other.did == []


def test_the_yes_to_one_tool_is_none_to_what_takes_its_place(place: Place) -> None:
    Errand().begin(place.ledger())
    shown = Errand([BANK, MAIL])
    question = shown.workflow.question(place.ledger(), "order-7")
    assert question is not None
    yes = DANA.approve(question)
    other = Errand([Tool("bank", version="1", permissions=["pay", "close"]), MAIL])
    with pytest.raises(ApprovalMismatch, match="The approval by dana has the tools sha256:"):
        other.resume(place.ledger(), yes)
    assert other.did == []
    shown.resume(place.ledger(), yes)
    assert shown.did == [42]


@pytest.mark.parametrize("version", ["2", "0", "", "1.0"])
def test_a_run_does_not_wake_up_in_another_version(place: Place, version: str) -> None:
    Errand().begin(place.ledger())
    other = Errand(version=version)
    with pytest.raises(ResumeRefused) as refusal:
        other.resume(place.ledger())
    assert "No migration leads from version '1' to" in refusal.value.what
    assert other.did == []


def test_the_naive_twin_says_that_it_was_written_by_this_version(naive: NaiveLedger) -> None:
    Errand().begin(naive)
    file = naive.path / "order-7.1.json"
    file.write_text(file.read_text().replace("errand@1", "errand@2"))
    other = Errand(version="2")
    other.resume(naive)
    assert other.did == [42]


def test_nobody_goes_back_by_accident(place: Place) -> None:
    Errand().begin(place.ledger())
    Errand().resume(place.ledger())
    again = Errand()
    with pytest.raises(ApprovalNeeded) as refusal:
        again.resume(place.ledger(), sequence=1)
    assert refusal.value.what == (
        "order-7 #1 needs the approval of one person. The run would go back from #2 to #1."
    )
    assert again.did == []


def test_the_yes_to_go_back_is_for_that_end_of_the_thread(place: Place) -> None:
    """Once somebody went back with it, the thread is longer, and the same yes is spent."""
    Errand().begin(place.ledger())
    Errand().resume(place.ledger())
    question = Errand().workflow.question(place.ledger(), "order-7", 1)
    assert question is not None
    yes = DANA.approve(question)
    once, twice = Errand(), Errand()
    once.resume(place.ledger(), yes, sequence=1)
    with pytest.raises(Exception, match="This approval of dana was used for order-7 #3"):
        twice.resume(place.ledger(), yes, sequence=1)
    assert (once.did, twice.did) == ([42], [])


def test_the_naive_twin_forgets_what_came_after(naive: NaiveLedger) -> None:
    """What is newer is deleted, so there is no older checkpoint to go back to."""
    Errand().begin(naive)
    Errand().resume(naive)
    (naive.path / "order-7.2.json").unlink()
    again = Errand()
    again.resume(naive)
    assert again.did == [42]
