"""The gate and the tools that it compares: one table of decisions, one of what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from safepoint import Checkpoint, Gate, Policy, Tool, ToolSet
from safepoint.core.errors import ConfigurationError
from safepoint.core.names import Head
from safepoint.resume.approval import Reason
from safepoint.resume.gate import MAX_APPROVERS, Decision
from tests.unit.approval_helpers import DIGEST, NOW

LAST = Checkpoint(
    store="invoices",
    tenant="",
    thread="order-7",
    sequence=3,
    app="invoice@1",
    created=NOW,
    previous=DIGEST["a"],
    digest=DIGEST["b"],
    tools=None,
    kind="state",
    label="",
    state={},
)
MAIL = Tool("mail", version="1", permissions=["read"], schema={"to": "text"})
BANK = Tool("bank", permissions=["pay", "close"])


def tools(*given: Tool, had: tuple[Tool, ...] = (MAIL,)) -> dict[str, Any]:
    return {"has": ToolSet(given), "had": ToolSet(had)}


def mail(**changes: Any) -> Tool:
    return Tool(
        "mail", **{"version": "1", "permissions": ["read"], "schema": {"to": "text"}, **changes}
    )


def decided(changes: dict[str, Any], policy: Policy | None = None) -> Decision:
    given = {"head": Head(3, DIGEST["b"]), "app": "invoice@1", **tools(MAIL), **changes}
    return Gate(policy).decide(LAST, given.pop("head"), **given)


# What is different, the reasons in order, how many people by the strict default, and the sentences.
DECISIONS: dict[str, tuple[dict[str, Any], list[Reason], int | None, list[str]]] = {
    "nothing": ({}, [], 0, []),
    "less": (tools(mail(permissions=[]), had=(BANK, MAIL)), [], 0, []),
    "an old checkpoint": (
        {"head": Head(7, DIGEST["c"])},
        [Reason.OLD_CHECKPOINT],
        1,
        ["The run would go back from #7 to #3."],
    ),
    "a version with a migration": (
        {"app": "invoice@2", "migrates_from": {"1"}},
        [Reason.VERSION_CHANGED],
        0,
        ["The checkpoint was written by version '1', and would be resumed by version '2'."],
    ),
    "a version without": (
        {"app": "invoice@3", "migrates_from": {"0", "11"}},
        [Reason.VERSION_CHANGED, Reason.NO_MIGRATION],
        None,
        [
            "The checkpoint was written by version '1', and would be resumed by version '3'.",
            "No migration leads from version '1' to version '3'.",
        ],
    ),
    "a tool more": (
        tools(BANK, MAIL, Tool("clock")),
        [Reason.TOOLS_ADDED],
        1,
        [
            "The tool bank is new.",
            "The tool bank comes with the permissions close, pay.",
            "The tool clock is new.",
        ],
    ),
    "another version of a tool": (
        tools(mail(version="")),
        [Reason.TOOL_CHANGED],
        1,
        ["The tool mail has no version, and had version '1'."],
    ),
    "other arguments": (
        tools(mail(schema=None)),
        [Reason.TOOL_CHANGED],
        1,
        ["The tool mail has another schema."],
    ),
    "more permissions": (
        tools(mail(permissions=["send", "read"])),
        [Reason.PERMISSIONS_WIDENED],
        1,
        ["The tool mail gains the permission send."],
    ),
    "several": (
        {"asked": True, "head": Head(4, DIGEST["c"]), **tools(BANK, MAIL)},
        [Reason.OLD_CHECKPOINT, Reason.TOOLS_ADDED, Reason.ASKED],
        1,
        [
            "The run would go back from #4 to #3.",
            "The tool bank is new.",
            "The tool bank comes with the permissions close, pay.",
            "The run paused at #3 for a person's answer.",
        ],
    ),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_the_gate_decides(case: str) -> None:
    changes, reasons, people, details = DECISIONS[case]
    decision = decided(changes)
    assert (list(decision.reasons), decision.people) == (reasons, people)
    assert list(decision.details) == details
    for number in (2, None) if reasons else ():
        policy = Policy(dict.fromkeys(reasons, number))
        assert decided(changes, policy).people == number


@pytest.mark.parametrize(
    "given",
    [
        {Reason.ASKED: 0},
        {Reason.ASKED: True},
        {Reason.TOOLS_ADDED: MAX_APPROVERS + 1},
        {"Asked": 3},  # misspelled: one person would do
    ],
)
def test_a_policy_that_opens_what_stays_shut_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError):
        Policy(given)
    most = Policy({Reason.TOOLS_ADDED: MAX_APPROVERS})
    assert most.needs(Reason.TOOLS_ADDED) == MAX_APPROVERS
    assert Policy({Reason.OLD_CHECKPOINT: 0}).needs(Reason.OLD_CHECKPOINT) == 0


def test_an_approval_lives_for_up_to_90_days() -> None:
    assert Policy(lifetime=timedelta(days=90)).lifetime == timedelta(days=90)
    assert Policy().lifetime == timedelta(hours=24)
    for days in (-1, 0, 91):
        with pytest.raises(ConfigurationError, match="The lifetime of an approval is "):
            Policy(lifetime=timedelta(days=days))


# Tools: one description, one digest, and nothing that is taken for something else

GIVEN: dict[str, Any] = {
    "name": "mail",
    "permissions": ["read", "send"],
    "schema": None,
    "version": "2",
}


@pytest.mark.parametrize(
    "given",
    [
        {"name": ""},
        {"name": "x" * 129},
        {"name": 7},
        {"version": 2},
        {"permissions": "read"},
        {"permissions": {"send": False}},
        {"permissions": ["*"]},
        {"schema": object()},
    ],
)
def test_a_description_that_says_something_else_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError):
        Tool(**{**GIVEN, **given})


def test_a_tool_set_has_each_name_once_in_one_order() -> None:
    bank, tool = Tool("bank", schema={"to": "text"}), Tool(**GIVEN)
    found = ToolSet([tool, bank])
    assert [each.name for each in found] == ["bank", "mail"]
    assert len({found, ToolSet(iter([bank, tool])), ToolSet([bank])}) == 2
    assert found != ToolSet([bank])
    assert ("mail" in found, "clock" in found, found["mail"]) == (True, False, tool)
    assert (repr(found), repr(ToolSet())) == ("<ToolSet bank, mail>", "<ToolSet empty>")
    assert ToolSet.from_described(found.described) == found
    with pytest.raises(ConfigurationError, match="Two tools are named bank"):
        ToolSet([bank, tool, Tool("bank", version="2")])


@pytest.mark.parametrize(
    "value",
    [
        None,
        [GIVEN, {**GIVEN, "name": "bank"}],
        [{"name": "mail"}],
        [{**GIVEN, "more": 1}],
        [{**GIVEN, "permissions": ["send", "read"]}],
        [{**GIVEN, "schema": "sha256:0"}],
    ],
)
def test_what_no_tool_set_gave_is_no_description(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="This is not the description of a tool set"):
        ToolSet.from_described(value)
