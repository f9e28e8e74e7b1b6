"""The gate: one table of decisions, and one of policies that are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from safepoint import Approvers, Checkpoint, Gate, Policy, SigningKey, Tool, ToolSet
from safepoint.approval import Reason
from safepoint.errors import ConfigurationError
from safepoint.gate import MAX_APPROVERS, Situation
from safepoint.names import Head
from tests.unit.approval_helpers import DIGEST, NOW

LAST = Checkpoint("invoices", "order-7", 3, "invoice@1", NOW, DIGEST["a"], DIGEST["b"], None, {})
MAIL = Tool("mail", version="1", permissions=["read"], schema={"to": "text"})
QUIET = Situation(
    LAST, Head(3, DIGEST["b"]), had=ToolSet([MAIL]), has=ToolSet([MAIL]), app="invoice@1"
)


def tools(*given: Tool, had: tuple[Tool, ...] = (MAIL,)) -> dict[str, Any]:
    return {"has": ToolSet(given), "had": ToolSet(had)}


def mail(**changes: Any) -> Tool:
    was = {"version": "1", "permissions": ["read"], "schema": {"to": "text"}}
    return Tool("mail", **{**was, **changes})


BANK = Tool("bank", permissions=["pay", "close"])
# What is different, the reasons in order, how many people by the strict default, and the sentences.
DECISIONS: dict[str, tuple[dict[str, Any], list[Reason], int | None, list[str]]] = {
    "nothing": ({}, [], 0, []),
    "an old checkpoint": (
        {"head": Head(7, DIGEST["c"])},
        [Reason.OLD_CHECKPOINT],
        1,
        ["The run would go back from #7 to #3."],
    ),
    "a version with a migration": (
        {"app": "invoice@2", "migrates_from": frozenset({"1"})},
        [Reason.VERSION_CHANGED],
        0,
        ["The checkpoint was written by version '1', and would be resumed by version '2'."],
    ),
    "a version without": (
        {"app": "invoice", "migrates_from": frozenset({"0", "11"})},
        [Reason.VERSION_CHANGED, Reason.NO_MIGRATION],
        None,
        [
            (
                "The checkpoint was written by version '1', and would be resumed by an unnamed"
                " version."
            ),
            "No migration leads from version '1' to an unnamed version.",
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
    "a step that asks": (
        {"asked": True},
        [Reason.ASKED],
        1,
        ["The run paused at #3 for a person's answer."],
    ),
    "another owner": (
        {"owner": "w-2", "worker": "w-1"},
        [Reason.OWNED_BY_ANOTHER],
        None,
        ["Worker 'w-2' owns the thread, and worker 'w-1' wants to resume it."],
    ),
    "an owner, and nobody": (
        {"owner": "w-2"},
        [Reason.OWNED_BY_ANOTHER],
        None,
        ["Worker 'w-2' owns the thread, and a worker without a name wants to resume it."],
    ),
    "its own": ({"owner": "w-1", "worker": "w-1"}, [], 0, []),
    "free": ({"worker": "w-1"}, [], 0, []),
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
    decision = Gate().decide(replace(QUIET, **changes))
    assert list(decision.reasons) == reasons
    assert decision.approvers == people
    assert list(decision.details) == details
    assert decision.notes == ()


@pytest.mark.parametrize("case", [case for case, (_, reasons, *_) in DECISIONS.items() if reasons])
@pytest.mark.parametrize("people", [0, 2, None])
def test_a_policy_says_how_many_people_each_reason_takes(case: str, people: int | None) -> None:
    changes, reasons, strict, _ = DECISIONS[case]
    fixed = {Reason.OWNED_BY_ANOTHER} if people is not None else set()
    fixed |= {Reason.ASKED} if people == 0 else set()
    policy = Policy({reason: people for reason in reasons if reason not in fixed})
    decision = Gate(policy).decide(replace(QUIET, **changes))
    needed = [policy.needs(each) for each in reasons]
    assert decision.approvers == (None if None in needed else max(each or 0 for each in needed))
    assert fixed & set(reasons) or decision.approvers == people
    assert Policy().needs(*reasons) == strict


def test_what_is_less_is_said_and_stops_nothing() -> None:
    less = tools(mail(permissions=[]), had=(BANK, MAIL))
    decision = Gate().decide(replace(QUIET, **less))
    assert (decision.reasons, decision.approvers) == ((), 0)
    assert decision.notes == ("The tool bank is gone.", "The tool mail loses the permission read.")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"whim": 1}, "'whim' is not a reason."),
        ({Reason.OWNED_BY_ANOTHER: 1}, "A resume that is owned-by-another is refused, and no"),
        ({Reason.ASKED: 0}, "A step that asks for a person's yes does not go on without one."),
        ({Reason.ASKED: -1}, "The number of approvers for asked is -1, and must be a whole"),
        ({Reason.ASKED: True}, "The number of approvers for asked is True, and must be a whole"),
        ({Reason.TOOLS_ADDED: MAX_APPROVERS + 1}, "The number of approvers for tools-added is 17"),
    ],
)
def test_a_policy_that_opens_what_stays_shut_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Policy(given)
    assert refusal.value.what.startswith(message)
    most = Policy({Reason.TOOLS_ADDED: MAX_APPROVERS, Reason.OWNED_BY_ANOTHER: None})
    assert most.needs(Reason.TOOLS_ADDED) == MAX_APPROVERS


@pytest.mark.parametrize("days", [-1, 0, 90, 91])
def test_an_approval_lives_for_up_to_90_days(days: int) -> None:
    if days == 90:
        assert Policy(lifetime=timedelta(days=days)).lifetime == timedelta(days=90)
        return
    with pytest.raises(ConfigurationError, match="The lifetime of an approval is "):
        Policy(lifetime=timedelta(days=days))
    assert Policy().lifetime == timedelta(hours=24)


def test_a_gate_does_not_ask_for_more_people_than_there_are() -> None:
    dana = Approvers({"dana": SigningKey.generate("ed25519").public})
    both = Policy({Reason.TOOLS_ADDED: 2})
    with pytest.raises(ConfigurationError) as refusal:
        Gate(both, dana)
    assert refusal.value.what == (
        "The number of approvers is 1, and the policy wants 2 for tools-added."
    )
    assert Gate(both).approvers is None
    assert "approvers=['dana']" in repr(Gate(approvers=dana))
    assert "'asked': 1" in repr(Gate())
