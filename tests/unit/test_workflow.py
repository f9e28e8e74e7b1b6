"""Workflows: enable, capture, resume, rehydrate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from safepoint import (
    Codec,
    Conflict,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    Workflow,
)
from safepoint.errors import ConfigurationError, InvalidId, WorkflowError, WorkflowMismatch
from safepoint.workflow import Call, Migration

State = dict[str, Any]


def fetch(state: State) -> State:
    return {"amount": 42}


def approve(state: State) -> State:
    return {"approved": state["amount"] < 100}


def pay(state: State) -> State:
    return {"paid": state["amount"]}


def pay_given(state: State) -> State:
    return {"paid": state["given"]["amount"]}


STEPS = [fetch, approve, pay]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(
        InMemoryCheckpointStorage(), store="invoices", keys=Keyring(SigningKey.generate())
    )


def test_a_checkpoint_is_captured_before_the_first_step_and_after_each(ledger: Ledger) -> None:
    run = Workflow("invoice", STEPS).start(ledger, thread="order-7", order=7)
    assert run.state == {"order": 7, "amount": 42, "approved": True, "paid": 42}
    assert run.next is None
    done = [c.state["done"] for c in ledger.history("order-7")]
    assert done == [[], ["fetch"], ["fetch", "approve"], ["fetch", "approve", "pay"]]


def test_resume_runs_only_what_is_left(ledger: Ledger) -> None:
    calls = []

    def count(state: State) -> State:
        calls.append("count")
        return {}

    def fail_once(state: State) -> State:
        calls.append("fail")
        if len(calls) == 2:
            raise ConnectionError
        return {}

    workflow = Workflow("w", [count, fail_once])
    with pytest.raises(ConnectionError):
        workflow.start(ledger, thread="t")
    assert workflow.resume(ledger, thread="t").next is None
    assert calls == ["count", "fail", "fail"]


def test_a_step_that_raises_leaves_the_run_and_the_thread_as_they_were(ledger: Ledger) -> None:
    def spoil(state: State) -> State:
        state["items"].append("spoilt")
        raise ConnectionError

    run = Workflow("w", [spoil]).begin(ledger, thread="t", items=[])
    with pytest.raises(ConnectionError):
        run.step()
    assert run.state == {"items": []}
    assert ledger.latest("t").sequence == 1


def test_a_capture_that_is_refused_takes_the_step_back(ledger: Ledger) -> None:
    def unsavable(state: State) -> State:
        return {"handle": object()}

    run = Workflow("w", [unsavable]).begin(ledger, thread="t")
    with pytest.raises(TypeError):
        run.step()
    assert (run.done, run.state, run.next) == ((), {}, "unsavable")


@pytest.mark.parametrize("place", ["top", "nested", "gone"])
def test_a_change_in_place_that_is_not_returned_is_refused(ledger: Ledger, place: str) -> None:
    """It would be lost without a word."""

    def in_place(state: State) -> None:
        if place == "top":
            state["amount"] = 42
        elif place == "nested":
            state["items"].append(1)
        else:
            del state["items"]

    run = Workflow("w", [in_place]).begin(ledger, thread="t", items=[])
    with pytest.raises(WorkflowError) as refusal:
        run.step()
    assert str(refusal.value) == (
        "The step in_place changed the state in place, which is not kept. "
        'Return what changes instead: return {"amount": 42}'
    )
    assert (run.state, ledger.latest("t").sequence) == ({"items": []}, 1)


def test_a_class_without_a_comparison_raises_no_alarm() -> None:
    @dataclass(eq=False)
    class Handle:
        number: int

    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
        codec=Codec([Handle]),
    )
    run = Workflow("w", [fetch]).start(ledger, thread="t", handle=Handle(7))
    assert (run.state["amount"], run.state["handle"].number) == (42, 7)


def test_a_change_in_place_that_is_returned_is_kept(ledger: Ledger) -> None:
    def collect(state: State) -> State:
        state["items"].append(1)
        return {"items": state["items"]}

    assert Workflow("w", [collect]).start(ledger, thread="t", items=[]).state == {"items": [1]}


@pytest.mark.parametrize("result", ["text", 7, [("a", 1)]])
def test_a_step_returns_a_mapping_or_nothing(ledger: Ledger, result: Any) -> None:
    def odd(state: State) -> Any:
        return result

    with pytest.raises(WorkflowError, match=r"The step odd returned \w+\. Return a dict"):
        Workflow("w", [odd]).start(ledger, thread="t")


def test_nothing_handed_out_is_the_state_of_the_run(ledger: Ledger) -> None:
    """Neither a checkpoint, nor what was given to start, nor what a step returned."""
    shared: list[int] = []

    def keep(state: State) -> State:
        return {"shared": shared}

    given = {"amount": 1}
    run = Workflow("w", [keep, pay_given]).begin(ledger, thread="t", given=given)
    for checkpoint in run:
        checkpoint.state["state"]["given"]["amount"] = "redacted"
        given["amount"] = 5_000_000
        shared.append(1)
    assert run.state == {"given": {"amount": 1}, "shared": [], "paid": 1}


def test_rehydrate_rebuilds_a_run_in_a_fresh_instance_and_runs_nothing(ledger: Ledger) -> None:
    Workflow("invoice", STEPS).begin(ledger, thread="order-7", order=7).step()
    run = Workflow("invoice", STEPS).rehydrate(ledger, thread="order-7")
    assert (run.done, run.next, run.state) == (("fetch",), "approve", {"order": 7, "amount": 42})
    assert ledger.latest("order-7").sequence == 2
    assert [c.sequence for c in run] == [3, 4]


def test_resuming_a_finished_thread_does_nothing(ledger: Ledger) -> None:
    workflow = Workflow("invoice", STEPS)
    workflow.start(ledger, thread="order-7")
    run = workflow.resume(ledger, thread="order-7")
    assert (run.next, run.head) == (None, 4)
    with pytest.raises(WorkflowError, match="order-7 has run every step"):
        run.step()


def test_starting_a_thread_twice_is_refused(ledger: Ledger) -> None:
    workflow = Workflow("invoice", STEPS)
    workflow.start(ledger, thread="order-7")
    with pytest.raises(Conflict) as refusal:
        workflow.start(ledger, thread="order-7")
    assert str(refusal.value) == (
        "order-7 has started already. "
        "Nothing was overwritten. Go on with resume, or start a thread of another name."
    )


def test_two_workers_that_resume_the_same_thread_do_not_both_win(ledger: Ledger) -> None:
    Workflow("invoice", STEPS).begin(ledger, thread="order-7")
    one = Workflow("invoice", STEPS).rehydrate(ledger, thread="order-7")
    two = Workflow("invoice", STEPS).rehydrate(ledger, thread="order-7")
    one.step()
    with pytest.raises(Conflict):
        two.step()


def test_a_checkpoint_of_another_workflow_is_refused(ledger: Ledger) -> None:
    Workflow("refund", STEPS).start(ledger, thread="order-7")
    with pytest.raises(WorkflowMismatch) as refusal:
        Workflow("invoice", STEPS).resume(ledger, thread="order-7")
    assert str(refusal.value) == (
        "order-7 #4 was not written by the workflow invoice but by 'refund'. "
        "Resume it with the workflow that wrote it."
    )


def test_a_workflow_needs_named_and_different_steps() -> None:
    async def later(state: State) -> State:
        return {}

    with pytest.raises(WorkflowError, match="needs one or more steps"):
        Workflow("w", [])
    with pytest.raises(WorkflowError, match="needs one or more steps"):
        Workflow("w", [fetch, fetch])
    with pytest.raises(WorkflowError, match="'<lambda>' cannot name a step"):
        Workflow("w", [lambda state: state])
    with pytest.raises(WorkflowError, match=r"The step later is async\. Steps are plain functions"):
        Workflow("w", [later])  # type: ignore[list-item]
    with pytest.raises(InvalidId):
        Workflow("Not A Name", [fetch])

    def three(state: State, call: Call, more: Any) -> State:
        return {}

    def keyword(state: State, *, call: Call) -> State:
        return {}

    def none() -> State:
        return {}

    steps: list[Any] = [three, keyword, none]
    for step in steps:
        with pytest.raises(WorkflowError, match="takes other arguments than a step does"):
            Workflow("w", [step])


def test_a_step_with_a_second_argument_is_told_what_it_is(ledger: Ledger) -> None:
    seen: list[Any] = []

    def told(state: State, call: Call) -> None:
        seen.append((call.thread, call.step, call.sequence, call.key, call.was_approved))

    def untold(state: State, note: str = "no call") -> None:
        seen.append(note)

    Workflow("w", [told, untold]).start(ledger, thread="t")
    assert seen == [("t", "told", 1, "invoices/t/1/told", False), "no call"]


LEADS = "Register one for each version on the way."


@pytest.mark.parametrize(
    ("version", "migrations", "message"),
    [
        ("1 ", [], "'1 ' is not a version."),
        ("x" * 41, [], "is not a version."),
        ("3", [("1 ", "3")], "'1 ' is not a version."),
        ("3", [("1", "2"), ("1", "3")], "Two migrations begin at version '1'."),
        ("3", [("1", "2")], f"The migrations from version '1' do not lead to '3'. {LEADS}"),
        ("3", [("1", "2"), ("2", "1")], "The migrations from version '1' do not lead to '3'."),
    ],
)
def test_migrations_that_lead_nowhere_are_refused_at_once(
    version: str, migrations: list[tuple[str, str]], message: str
) -> None:
    listed = [Migration(before, after, dict) for before, after in migrations]
    with pytest.raises(ConfigurationError) as refusal:
        Workflow("w", [fetch], version=version, migrations=listed)
    assert message in str(refusal.value)


def test_the_checkpoint_before_a_step_that_cannot_be_undone_is_anchored() -> None:
    anchor = InMemoryAnchor()
    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
        anchor=anchor,
        anchor_every=100,
    )
    seen = []

    def fetch(state: dict[str, Any]) -> dict[str, Any]:
        return {"amount": 42}

    def approve(state: dict[str, Any]) -> dict[str, Any]:
        return {"approved": True}

    def pay(state: dict[str, Any]) -> dict[str, Any]:
        seen.append(anchor.read("invoices", "order-7"))
        return {"paid": True}

    workflow = Workflow("invoice", [fetch, approve, pay], anchor_before=[pay])
    run = workflow.start(ledger, thread="order-7")
    assert [head.sequence for head in seen if head] == [3]
    assert run.head == 4


def test_only_a_step_of_the_workflow_can_be_anchored_before() -> None:
    def other(state: dict[str, Any]) -> None:
        pass

    with pytest.raises(WorkflowError, match="has no step to anchor before"):
        Workflow("invoice", [nothing], anchor_before=[other])


def nothing(state: dict[str, Any]) -> None:
    pass
