"""What a caller, a step or a record got wrong: one clear refusal each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from safepoint import (
    Ask,
    CheckpointError,
    ConfigurationError,
    InvalidId,
    Workflow,
    WorkflowError,
    WorkflowMismatch,
)
from tests.unit.desk import (
    Desk,
    State,
    refused,
    yes,
)


def test_approvals_without_approvers_are_a_mistake(desk: Desk) -> None:
    text = yes(desk.paused().question)
    lonely = desk.workflow(gate=None)
    assert refused(
        ConfigurationError, lambda: lonely.resume(desk.ledger(), "order-7", approvals=[text])
    ) == (
        "order-7 #3 was given an approval, and its workflow has no approvers. Say who may approve:"
        ' Workflow(..., gate=Gate(approvers=Approvers({"dana": key}))).'
    )
    with pytest.raises(ConfigurationError, match=r"given as str\. Give a list"):
        desk.workflow().resume(desk.ledger(), "order-7", approvals=text)


def test_a_step_that_asks_where_nobody_could_answer_is_refused_at_once(desk: Desk) -> None:
    lonely = desk.workflow(gate=None)
    assert refused(ConfigurationError, lambda: lonely.start(desk.ledger(), thread="order-7")) == (
        "The step ask asks people, and the workflow invoice has no approvers. Write Workflow(...,"
        ' gate=Gate(approvers=Approvers({"dana": key}))).'
    )
    bare = desk.ledger(journal=None)
    assert refused(ConfigurationError, lambda: desk.workflow().start(bare, thread="order-8")) == (
        "The step ask asks people, and the ledger has no journal to write the answer down. Write"
        " Ledger(..., journal=FileJournal(path, keys=...))."
    )


@pytest.mark.parametrize("now", [datetime(2026, 1, 1), "today", None])  # noqa: DTZ001
def test_a_time_without_a_time_zone_is_refused(desk: Desk, now: Any) -> None:
    desk.paused()
    with pytest.raises(ConfigurationError):
        desk.workflow().rehydrate(desk.ledger(), "order-7", now=now)


@pytest.mark.parametrize("sequence", [True, 0, -1, "3", 1.0])
def test_a_sequence_that_is_none_is_refused(desk: Desk, sequence: Any) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    with pytest.raises(InvalidId):
        desk.workflow().resume(desk.ledger(), "order-7", sequence)


def test_more_approvals_than_people_is_a_mistake(desk: Desk) -> None:
    question = desk.paused().question
    texts = [yes(question) for _ in range(17)]
    act = partial(desk.workflow().resume, desk.ledger(), "order-7", approvals=texts)
    assert refused(ConfigurationError, act) == (
        "More than 16 approvals were given. Give one of each person whom the policy asks for."
    )


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda text: text[:-10], "ApprovalUntrusted"),
        (lambda text: text.replace("alice", "mally"), "ApprovalUntrusted"),
        (lambda text: text.split("\n")[1], "ApprovalMalformed"),
        (lambda _: "approved", "ApprovalMalformed"),
        (lambda _: 7, "ApprovalMalformed"),
    ],
)
def test_each_bad_approval_is_refused_and_that_is_written_down(
    desk: Desk, spoil: Callable[[str], Any], error: str
) -> None:
    text = spoil(yes(desk.paused().question))
    with pytest.raises(CheckpointError) as refusal:
        desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    assert type(refusal.value).__name__ == error
    last = list(desk.journal.show())[-1]
    assert (last.what, last.outcome) == ("resume", "refused")
    assert last.detail.startswith(f"{error}: ")
    assert desk.paid == []


UNSIGNABLE = "What pay is asked with cannot be signed. "


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("pay now",), "'pay now' cannot name what is asked."),
        ((7,), "7 cannot name what is asked."),
        (("pay", [42]), "The arguments of pay are list."),
        (("pay", {}, [1]), "The changes of pay are list."),
        (("pay", {7: 42}), UNSIGNABLE + "7 is not the name of an argument."),
        (
            ("pay", {"to": object()}),
            (
                f"{UNSIGNABLE}arguments['to'] is of the type builtins.object, which this codec"
                " does not know."
            ),
        ),
        (
            ("pay", {"letter": "x" * 50_000}),
            UNSIGNABLE + "The arguments of a question are more than a person could read.",
        ),
    ],
)
def test_an_ask_of_the_wrong_kind_is_refused_in_the_step(
    given: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(WorkflowError) as refusal:
        Ask(*given)
    assert refusal.value.what == message


def test_what_is_asked_cannot_be_changed_afterwards() -> None:
    arguments = {"amounts": [42]}
    ask = Ask("pay", arguments)
    arguments["amounts"].append(5_000_000)
    assert ask.arguments == {"amounts": [42]}


@pytest.mark.parametrize("payload", [{"done": []}, {"state": {}}, [], {"done": [], "state": 7}])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"strange": 1},
        {"asked": {"action": "pay"}, "approved": "x"},
        {"origin": True},
        {"resumed": {"app": 7}},
        {"tools": [{"name": "bank"}]},
        {"denied": 7},
    ],
)
def test_what_is_not_a_workflows_payload_is_refused(desk: Desk, payload: Any, more: State) -> None:
    whole = {"done": [], "state": {}, **more} if more else payload
    ledger = desk.ledger()
    ledger.save("order-7", whole, app="invoice@1")
    assert refused(WorkflowMismatch, lambda: desk.workflow().resume(ledger, "order-7")) == (
        "order-7 #1 does not hold a workflow's state. Load it with Ledger.load, if you wrote it"
        " with Ledger.save."
    )


def test_a_step_takes_the_state_and_perhaps_a_call() -> None:
    def three(a: Any, b: Any, c: Any) -> None:
        pass

    with pytest.raises(WorkflowError) as refusal:
        Workflow("invoice", [three])
    assert str(refusal.value) == (
        "The step three takes other arguments than a step does. Define it as def step(state), or"
        " def step(state, call)."
    )
