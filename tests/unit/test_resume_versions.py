"""Resuming with another version, or with other tools."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from safepoint import (
    ApprovalNeeded,
    Approver,
    CheckpointError,
    ConfigurationError,
    Migration,
    MigrationFailed,
    ResumeRefused,
    Tool,
    Workflow,
    WorkflowMismatch,
)
from tests.unit.desk import (
    BANK,
    ERIN,
    Desk,
    State,
    last,
    refused,
    yes,
)


def test_another_version_asks_again_before_it_acts_on_an_approval(desk: Desk) -> None:
    """An amount in cents that was approved for one version may be euros to the next."""
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])  # and dies here
    newer = desk.workflow(version="2", migrations=[Migration("1", "2", dict)])
    refused(ApprovalNeeded, lambda: newer.resume(desk.ledger(), "order-7"))
    question = newer.question(desk.ledger(), "order-7")
    assert question is not None
    assert (question.app, question.reasons) == ("invoice@2", ("version-changed", "asked"))
    newer.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert len(desk.paid) == 1


@pytest.mark.parametrize("more", [{"tools": [BANK, Tool("mail")]}, {"tools": [Tool("bank")]}])
def test_a_changed_run_asks_again_before_it_acts_on_an_approval(desk: Desk, more: State) -> None:
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])  # and dies here
    other = desk.workflow(**more)
    question = other.question(desk.ledger(), "order-7")
    assert question is not None
    assert question.reasons[-1] == "asked"
    other.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert [key for key, _ in desk.paid] == ["invoices/order-7/3/pay"]


def test_an_ended_run_is_over_for_every_version_and_tool_set(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    no = Approver("erin", ERIN).deny(question)
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[no])
    lines = len(desk.journal.lines)
    for other in (desk.workflow(tools=[Tool("mail")]), desk.workflow(version="2")):
        assert other.resume(desk.ledger(), "order-7").denied
        assert other.question(desk.ledger(), "order-7") is None
    assert len(desk.journal.lines) == lines


def test_a_migration_cannot_change_the_checkpoint_that_it_came_from(desk: Desk) -> None:
    def change(state: State) -> State:
        state["amounts"].append(5_000_000)
        raise ConnectionError

    plain = Workflow("plain", [last], version="1")
    plain.begin(desk.ledger(), thread="plain", amounts=[42])
    newer = Workflow("plain", [last], version="2", migrations=[Migration("1", "2", change)])
    refused(MigrationFailed, lambda: newer.resume(desk.ledger(), "plain"))
    assert desk.ledger().latest("plain").state["state"] == {"amounts": [42]}


def test_a_wider_tool_set_needs_a_person(desk: Desk) -> None:
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    wider = desk.workflow(tools=[Tool("bank", version="1", permissions=["pay", "all"])])
    assert "The tool bank gains the permission all." in refused(
        ApprovalNeeded, lambda: wider.resume(desk.ledger(), "order-7")
    )
    assert desk.paid == []
    question = wider.question(desk.ledger(), "order-7")
    wider.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert desk.ledger().latest("order-7").tools == wider.tools.digest
    assert len(desk.paid) == 1


def test_a_narrower_tool_set_is_allowed_and_said(desk: Desk) -> None:
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    narrower = desk.workflow(tools=[])
    run = narrower.resume(desk.ledger(), "order-7")
    assert run.notes == ("The tool bank is gone.",)
    assert [e.detail for e in desk.journal.show(what="resume")][-1] == "The tool bank is gone."
    assert desk.ledger().latest("order-7").tools is None


def test_a_tool_that_was_left_out_for_a_while_is_new_again(desk: Desk) -> None:
    text = yes(desk.paused().question)
    more = Workflow(
        "invoice",
        [*desk.workflow().steps.values(), last],
        version="1",
        tools=[],
        gate=desk.workflow().gate,
    )
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    more.rehydrate(desk.ledger(), "order-7").step()
    assert more.rehydrate(desk.ledger(), "order-7").next == "last"
    back = Workflow("invoice", more.steps.values(), version="1", tools=[BANK], gate=more.gate)
    assert "The tool bank is new." in refused(
        ApprovalNeeded, lambda: back.resume(desk.ledger(), "order-7")
    )


def test_another_version_needs_a_migration(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    newer = desk.workflow(version="2")
    assert refused(ResumeRefused, lambda: newer.resume(desk.ledger(), "order-7")) == (
        "order-7 #1 cannot be resumed. The checkpoint was written by version '1', and would be"
        " resumed by version '2'. No migration leads from version '1' to version '2'. Register a"
        " migration from the version that wrote it, or resume it with that version."
    )


def test_migrations_are_chained_and_the_result_says_where_it_came_from(desk: Desk) -> None:
    def load(state: State) -> State:
        raise AssertionError("it is done")

    def check(state: State) -> State:
        return {"checked": state["total"], "currency": state["currency"]}

    before = Workflow("invoice", [desk.workflow().steps["fetch"], check], version="1")
    before.begin(desk.ledger(), thread="order-7").step()
    wrote = desk.ledger().latest("order-7")
    after = Workflow(
        "invoice",
        [load, check],
        version="3",
        migrations=[
            Migration("2", "3", lambda s: {**s, "currency": "EUR"}, steps={"get": "load"}),
            Migration("1", "2", lambda s: {"total": s["amount"]}, steps={"fetch": "get"}),
        ],
    )
    run = after.resume(desk.ledger(), "order-7")
    assert run.state["checked"] == Decimal("42.00")
    migrated = desk.ledger().load("order-7", 3)
    assert migrated.app == "invoice@3"
    assert migrated.state["resumed"] == {
        "app": "invoice@1",
        "digest": wrote.digest,
        "reasons": ["version-changed"],
        "sequence": 2,
        "statements": [],
    }
    assert "migrate done #3" in desk.told()


@pytest.mark.parametrize(
    ("change", "steps", "error", "message"),
    [
        (
            lambda s: s["nothing"],
            {},
            MigrationFailed,
            (
                "The migration from '1' to '2' raised KeyError. The checkpoint is as it was."
                " Mend the"
                " migration, and resume again."
            ),
        ),
        (
            lambda s: [s],
            {},
            MigrationFailed,
            "The migration from '1' to '2' returned list. Return the whole state, as a dict.",
        ),
        (
            dict,
            {"fetch": None},
            WorkflowMismatch,
            (
                "order-7 #3 was written by other steps than those of invoice today. Resume it"
                " with the"
                " code that wrote it, or give the workflow a new version and a migration that says"
                " which steps are done."
            ),
        ),
    ],
)
def test_a_migration_that_fails_changes_nothing(
    desk: Desk,
    change: Callable[[State], Any],
    steps: dict[str, str | None],
    error: type[CheckpointError],
    message: str,
) -> None:
    text = yes(desk.paused().question)
    migration = Migration("1", "2", change, steps=steps)
    newer = desk.workflow(version="2", migrations=[migration])
    text = yes(newer.question(desk.ledger(), "order-7"))
    assert refused(error, lambda: newer.resume(desk.ledger(), "order-7", approvals=[text])) == (
        message
    )
    assert desk.ledger().latest("order-7").sequence == 3
    assert desk.told()[-2:] == ["migrate refused #3", "resume refused #3"]


@pytest.mark.parametrize(
    ("migrations", "message"),
    [
        (
            [Migration("1", "2", dict), Migration("1", "3", dict)],
            (
                "Two migrations begin at version '1'. Keep one:"
                " which of them to take would be a guess."
            ),
        ),
        (
            [Migration("1", "2", dict)],
            (
                "The migrations from version '1' do not lead to '3'. Register one for each"
                " version on"
                " the way."
            ),
        ),
        (
            [Migration("1", "2", dict), Migration("2", "1", dict)],
            (
                "The migrations from version '1' do not lead to '3'. Register one for each"
                " version on"
                " the way."
            ),
        ),
        (
            [dict],
            'A migration was given as type. Write Migration("1", "2", change).',
        ),
        (
            "1",
            'The migrations are str. Give a list: migrations=[Migration("1", "2", change)].',
        ),
    ],
)
def test_migrations_that_lead_nowhere_are_refused_at_once(migrations: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Desk().workflow(version="3", migrations=migrations)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1", "1", dict), "A migration leads from version '1' to itself."),
        (("1 ", "2", dict), "'1 ' is not a version."),
        (("1", 2, dict), "2 is not a version."),
        (("1", "2", None), "The migration from '1' to '2' needs a function"),
    ],
)
def test_a_migration_of_the_wrong_kind_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Migration(*arguments)
    assert str(refusal.value).startswith(message)


def test_a_tool_set_that_is_not_the_one_in_the_header_is_refused(desk: Desk) -> None:
    ledger = desk.ledger()
    tools = desk.workflow().tools
    payload = {"done": [], "state": {}, "tools": tools.described}
    ledger.save("order-7", payload, app="invoice@1")
    refused(WorkflowMismatch, lambda: desk.workflow().resume(ledger, "order-7"))
