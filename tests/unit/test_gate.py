"""The gate: every reason, alone and together, under several policies, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, combinations
from typing import Any

import pytest

from safepoint.approval import Approvers, Reason
from safepoint.errors import ConfigurationError, InvalidId
from safepoint.gate import (
    DEFAULT_POLICY,
    Decision,
    Gate,
    Policy,
    Runtime,
    Situation,
    Verdict,
    decide,
)
from safepoint.keys import SigningKey, VerifyingKey
from safepoint.names import Head
from safepoint.record import Checkpoint
from safepoint.tools import Tool, ToolSet

DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
MAIL = Tool("mail", version="1", permissions=["read"])
TOOLS = ToolSet([MAIL])
CHECKPOINT = Checkpoint(
    store="invoices",
    thread="order-7",
    sequence=7,
    app="invoice@1",
    created=datetime(2026, 1, 31, tzinfo=UTC),
    previous=OTHER,
    digest=DIGEST,
    tools=TOOLS.digest,
    state={"amount": 42},
)
SAME = Situation(
    checkpoint=CHECKPOINT,
    head=Head(7, DIGEST),
    tools=TOOLS,
    asked=False,
    owner="worker-1",
    runtime=Runtime("invoice@1", TOOLS, worker="worker-1"),
)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        call()
    return str(caught.value)


def into(situation: Situation = SAME, **runtime: Any) -> Situation:
    return replace(situation, runtime=replace(situation.runtime, **runtime))


def test_the_same_worker_with_the_same_tools_at_the_end_of_the_thread_goes_on() -> None:
    assert decide(SAME) == Decision(Verdict.ALLOWED, (), 0, (), ())
    assert decide(replace(SAME, owner=None)) == Decision(Verdict.ALLOWED, (), 0, (), ())
    nobody = into(replace(SAME, owner=None), worker=None)
    assert decide(nobody) == Decision(Verdict.ALLOWED, (), 0, (), ())


def test_a_reason_is_what_it_is_written_as() -> None:
    assert [str(reason) for reason in Reason] == [
        "old-checkpoint",
        "version-changed",
        "no-migration",
        "tools-added",
        "tool-changed",
        "permissions-widened",
        "asked",
        "owned-by-another",
        "unverified",
    ]
    assert all(str(reason) == reason.name.lower().replace("_", "-") for reason in Reason)


def test_a_reason_is_one_sentence() -> None:
    assert {reason: reason.sentence for reason in Reason} == {
        "old-checkpoint": "The checkpoint is not the end of its thread, so steps that already ran"
        " would run again.",
        "version-changed": "Another version of the workflow wrote the checkpoint, and its state"
        " may mean something else to this one.",
        "no-migration": "No migration leads from the version that wrote the checkpoint to this"
        " one, so its state would be read as it is.",
        "tools-added": "The run would get tools that it did not have at this checkpoint.",
        "tool-changed": "A tool has the name that it had at this checkpoint, and another version"
        " or schema.",
        "permissions-widened": "A tool would be allowed more than it was at this checkpoint.",
        "asked": "A step of the workflow asks for a person's yes.",
        "owned-by-another": "Another worker owns the thread, and with two at work its steps could"
        " run twice.",
        "unverified": "The checkpoint or the end of its thread could not be verified, so nothing"
        " in it is trusted.",
    }


# Each way to meet a reason. The gate itself has no say here: this is what happened outside.
def situation_of(reasons: frozenset[Reason]) -> Situation:
    """Build the situation that has these reasons and no other, from what would bring it about."""
    tools = {"mail": {"version": "1", "permissions": ["read"]}}
    if Reason.TOOLS_ADDED in reasons:
        tools["bank"] = {}
    if Reason.TOOL_CHANGED in reasons:
        tools["mail"]["version"] = "2"
    if Reason.PERMISSIONS_WIDENED in reasons:
        tools["mail"]["permissions"] = ["read", "send"]
    changed = Reason.VERSION_CHANGED in reasons
    orphaned = Reason.NO_MIGRATION in reasons
    return Situation(
        checkpoint=None if Reason.UNVERIFIED in reasons else CHECKPOINT,
        head=Head(9, OTHER) if Reason.OLD_CHECKPOINT in reasons else Head(7, DIGEST),
        tools=TOOLS,
        asked=Reason.ASKED in reasons,
        owner="worker-2" if Reason.OWNED_BY_ANOTHER in reasons else None,
        runtime=Runtime(
            "invoice@2" if changed else "invoice@1",
            ToolSet(Tool.from_dict({"name": name, **rest}) for name, rest in tools.items()),
            worker="worker-1",
            migrates_from=frozenset() if orphaned else frozenset({"1"}),
        ),
    )


def possible(reasons: frozenset[Reason]) -> bool:
    """Tell which reasons can occur together.

    - What was not verified is not looked into. Age, version, tools and what a step asked are read
      from the checkpoint, so none of them is known; who owns the thread is read from the lease.
    - A migration is missing only between two different versions.
    """
    if Reason.UNVERIFIED in reasons:
        return reasons <= {Reason.UNVERIFIED, Reason.OWNED_BY_ANOTHER}
    return Reason.NO_MIGRATION not in reasons or Reason.VERSION_CHANGED in reasons


COMBINATIONS = [frozenset(some) for size in range(10) for some in combinations(Reason, size)]
NEVER = None
POLICIES: dict[str, tuple[dict[Reason, int | None], list[int | None]]] = {
    # What is overridden, and then, written out in the order of Reason, what each reason needs.
    "strict": ({}, [1, 0, NEVER, 1, 1, 1, 1, NEVER, NEVER]),
    "open": (
        {
            Reason.OLD_CHECKPOINT: 0,
            Reason.NO_MIGRATION: 0,
            Reason.TOOLS_ADDED: 0,
            Reason.TOOL_CHANGED: 0,
            Reason.PERMISSIONS_WIDENED: 0,
        },
        [0, 0, 0, 0, 0, 0, 1, NEVER, NEVER],
    ),
    "several": (
        {
            Reason.OLD_CHECKPOINT: 2,
            Reason.VERSION_CHANGED: 1,
            Reason.NO_MIGRATION: 4,
            Reason.TOOLS_ADDED: 3,
            Reason.PERMISSIONS_WIDENED: 16,
        },
        [2, 1, 4, 3, 1, 16, 1, NEVER, NEVER],
    ),
    "shut": (
        dict.fromkeys(Reason),
        [NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER],
    ),
}


def oracle(needs: Iterable[int | None]) -> tuple[str, int]:
    """Say, from what each reason that is there needs, how it must end."""
    numbers = sorted(17 if need is NEVER else need for need in needs)
    match numbers[-1:]:
        case [] | [0]:
            return "allowed", 0
        case [17]:
            return "refused", 0
        case [most]:
            return "needs-approval", most
    raise AssertionError(numbers)


def test_of_512_combinations_194_can_occur() -> None:
    assert len(set(COMBINATIONS)) == 512
    assert sum(map(possible, COMBINATIONS)) == 2 * 3 * 2 * 2 * 2 * 2 * 2 + 2 == 194


@pytest.mark.parametrize("name", POLICIES)
def test_every_combination_of_reasons_is_decided_as_the_policy_says(name: str) -> None:
    overrides, needs = POLICIES[name]
    policy = Policy(overrides)
    table = dict(zip(Reason, needs, strict=True))
    assert {reason: policy.needs(reason) for reason in Reason} == table
    for reasons in filter(possible, COMBINATIONS):
        decision = decide(situation_of(reasons), policy)
        expected = oracle(table[reason] for reason in reasons)
        assert decision.reasons == tuple(reason for reason in Reason if reason in reasons)
        assert (decision.verdict, decision.approvers) == expected, reasons
        assert bool(decision.details) is bool(reasons)
        assert Gate(policy).decide(situation_of(reasons)) == decision


def test_a_combination_that_cannot_occur_is_not_reported() -> None:
    """Its ingredients give the part of it that can be known, and never fewer refusals."""
    for reasons in COMBINATIONS:
        if possible(reasons):
            continue
        decision = decide(situation_of(reasons))
        if Reason.UNVERIFIED in reasons:
            known = reasons & {Reason.UNVERIFIED, Reason.OWNED_BY_ANOTHER}
            assert set(decision.reasons) == known
            assert decision.verdict is Verdict.REFUSED
            assert decision.notes == ()
        else:
            assert set(decision.reasons) == reasons - {Reason.NO_MIGRATION}


def test_no_approver_could_help_what_is_refused() -> None:
    """A refusal does not say how many people would have been needed for the rest."""
    both = frozenset({Reason.TOOLS_ADDED, Reason.UNVERIFIED, Reason.OWNED_BY_ANOTHER})
    assert decide(situation_of(both)).approvers == 0


@pytest.mark.parametrize(
    ("situation", "detail"),
    [
        (replace(SAME, checkpoint=None), "The checkpoint was not verified."),
        (replace(SAME, head=None), "The end of the thread was not verified."),
        (replace(SAME, checkpoint=None, head=None), "The checkpoint was not verified."),
        (
            replace(SAME, head=Head(6, OTHER)),
            "Checkpoint #7 is beyond the end of the thread, #6.",
        ),
        (
            replace(SAME, head=Head(7, OTHER)),
            "Another record than this checkpoint ends the thread at #7.",
        ),
    ],
)
def test_what_is_not_verified_is_refused_and_nothing_else_is_said(
    situation: Situation, detail: str
) -> None:
    worse = into(replace(situation, asked=True, tools=ToolSet([Tool("old")])), app="invoice@9")
    for one in (situation, worse):
        assert decide(one) == Decision(Verdict.REFUSED, (Reason.UNVERIFIED,), 0, (detail,), ())


def test_an_older_checkpoint_says_from_where_to_where() -> None:
    decision = decide(replace(SAME, head=Head(9, OTHER)))
    assert decision == Decision(
        Verdict.NEEDS_APPROVAL,
        (Reason.OLD_CHECKPOINT,),
        1,
        ("The run would go back from #9 to #7.",),
        (),
    )


@pytest.mark.parametrize(
    ("before", "now", "old", "new"),
    [
        ("invoice@1", "invoice@2", "version '1'", "version '2'"),
        ("invoice", "invoice@2", "an unnamed version", "version '2'"),
        ("invoice@1", "invoice", "version '1'", "an unnamed version"),
        ("invoice@1", "invoice@1@1", "version '1'", "version '1@1'"),
        ("invoice@a@1", "invoice@b@1", "version 'a@1'", "version 'b@1'"),
        ("invoice@1", "invoice@1.0", "version '1'", "version '1.0'"),
    ],
)
def test_another_version_is_said_and_without_a_migration_refused(
    before: str, now: str, old: str, new: str
) -> None:
    situation = into(replace(SAME, checkpoint=replace(CHECKPOINT, app=before)), app=now)
    version = f"The checkpoint was written by {old}, and would be resumed by {new}."
    assert decide(situation) == Decision(
        Verdict.REFUSED,
        (Reason.VERSION_CHANGED, Reason.NO_MIGRATION),
        0,
        (version, f"No migration leads from {old} to {new}."),
        (),
    )
    migrated = into(situation, migrates_from=frozenset({before.partition("@")[2]}))
    assert decide(migrated) == Decision(
        Verdict.ALLOWED, (Reason.VERSION_CHANGED,), 0, (version,), ()
    )
    astray = into(situation, migrates_from=frozenset({now.partition("@")[2], before, "0"}))
    assert decide(astray).verdict is Verdict.REFUSED


@pytest.mark.parametrize("app", ["invoice@1", "payment@1", "@1"])
def test_the_name_of_the_app_is_not_for_the_gate_to_judge(app: str) -> None:
    """A workflow of another name is refused by the workflow itself, before any gate."""
    assert decide(into(app=app)).reasons == ()


def test_an_empty_version_is_no_version() -> None:
    checkpoint = replace(CHECKPOINT, app="invoice@")
    assert decide(into(replace(SAME, checkpoint=checkpoint), app="invoice")).reasons == ()


@pytest.mark.parametrize(
    ("now", "reasons", "details"),
    [
        ([MAIL, Tool("bank")], (Reason.TOOLS_ADDED,), ("The tool bank is new.",)),
        (
            [MAIL, Tool("bank", permissions=["pay"])],
            (Reason.TOOLS_ADDED,),
            ("The tool bank is new.", "The tool bank comes with the permission pay."),
        ),
        (
            [MAIL, Tool("web"), Tool("bank", permissions=["pay", "list"])],
            (Reason.TOOLS_ADDED,),
            (
                "The tool bank is new.",
                "The tool bank comes with the permissions list, pay.",
                "The tool web is new.",
            ),
        ),
        (
            [Tool("mail", version="2", permissions=["read"])],
            (Reason.TOOL_CHANGED,),
            ("The tool mail has version '2', and had version '1'.",),
        ),
        (
            [Tool("mail", permissions=["read"])],
            (Reason.TOOL_CHANGED,),
            ("The tool mail has no version, and had version '1'.",),
        ),
        (
            [Tool("mail", version="1", permissions=["read"], schema={})],
            (Reason.TOOL_CHANGED,),
            ("The tool mail has another schema.",),
        ),
        (
            [Tool("mail", version="2", permissions=["read"], schema={})],
            (Reason.TOOL_CHANGED,),
            (
                "The tool mail has version '2', and had version '1'.",
                "The tool mail has another schema.",
            ),
        ),
        (
            [Tool("mail", version="1", permissions=["read", "send"])],
            (Reason.PERMISSIONS_WIDENED,),
            ("The tool mail gains the permission send.",),
        ),
        (
            [Tool("mail", version="1", permissions=["read", "send", "delete"])],
            (Reason.PERMISSIONS_WIDENED,),
            ("The tool mail gains the permissions delete, send.",),
        ),
    ],
)
def test_more_than_before_needs_approval_and_says_what(
    now: list[Tool], reasons: tuple[Reason, ...], details: tuple[str, ...]
) -> None:
    decision = decide(into(tools=ToolSet(now)))
    assert decision == Decision(Verdict.NEEDS_APPROVAL, reasons, 1, details, ())


WIDE = ToolSet([Tool("bank"), Tool("mail", permissions=["delete", "read", "send"]), Tool("web")])


@pytest.mark.parametrize(
    ("now", "notes"),
    [
        ([], ("The tool bank is gone.", "The tool mail is gone.", "The tool web is gone.")),
        (
            [Tool("bank"), Tool("mail", permissions=["delete", "read"]), Tool("web")],
            ("The tool mail loses the permission send.",),
        ),
        (
            [Tool("mail", permissions=["read"]), Tool("web")],
            ("The tool bank is gone.", "The tool mail loses the permissions delete, send."),
        ),
    ],
)
def test_a_narrower_tool_set_is_allowed_and_said(now: list[Tool], notes: tuple[str, ...]) -> None:
    situation = into(replace(SAME, tools=WIDE), tools=ToolSet(now))
    assert decide(situation) == Decision(Verdict.ALLOWED, (), 0, (), notes)


def test_a_permission_for_another_one_is_wider_and_narrower() -> None:
    now = ToolSet([Tool("mail", version="1", permissions=["send"])])
    assert decide(into(tools=now)) == Decision(
        Verdict.NEEDS_APPROVAL,
        (Reason.PERMISSIONS_WIDENED,),
        1,
        ("The tool mail gains the permission send.",),
        ("The tool mail loses the permission read.",),
    )


def test_a_wider_tool_under_a_new_name_does_not_slip_through() -> None:
    """The attack: take a tool away, and give it back as another one that is allowed more."""
    now = ToolSet([Tool("Mail", version="1", permissions=["read", "send"])])
    decision = decide(into(tools=now))
    assert decision.reasons == (Reason.TOOLS_ADDED,)
    assert decision.notes == ("The tool mail is gone.",)


def test_what_a_step_asks_for_needs_an_answer() -> None:
    assert decide(replace(SAME, asked=True)) == Decision(
        Verdict.NEEDS_APPROVAL,
        (Reason.ASKED,),
        1,
        ("The run paused at #7 for a person's answer.",),
        (),
    )


@pytest.mark.parametrize(
    ("owner", "worker", "who"),
    [
        ("worker-2", "worker-1", "worker 'worker-1'"),
        ("worker-2", None, "a worker without a name"),
        ("worker-1 ", "worker-1", "worker 'worker-1'"),
        ("WORKER-1", "worker-1", "worker 'worker-1'"),
        ("", None, "a worker without a name"),
    ],
)
def test_the_thread_of_another_worker_is_refused(owner: str, worker: str | None, who: str) -> None:
    assert decide(into(replace(SAME, owner=owner), worker=worker)) == Decision(
        Verdict.REFUSED,
        (Reason.OWNED_BY_ANOTHER,),
        0,
        (f"Worker {owner!r} owns the thread, and {who} wants to resume it.",),
        (),
    )


def test_everything_at_once_is_said_in_the_order_of_the_reasons() -> None:
    everything = frozenset(Reason) - {Reason.UNVERIFIED}
    situation = situation_of(everything)
    situation = replace(situation, tools=ToolSet([*situation.tools, Tool("web")]))
    assert decide(situation) == Decision(
        Verdict.REFUSED,
        tuple(Reason)[:-1],
        0,
        (
            "The run would go back from #9 to #7.",
            "The checkpoint was written by version '1', and would be resumed by version '2'.",
            "No migration leads from version '1' to version '2'.",
            "The tool bank is new.",
            "The tool mail has version '2', and had version '1'.",
            "The tool mail gains the permission send.",
            "The run paused at #7 for a person's answer.",
            "Worker 'worker-2' owns the thread, and worker 'worker-1' wants to resume it.",
        ),
        ("The tool web is gone.",),
    )


def test_text_from_outside_cannot_break_out_of_its_line() -> None:
    checkpoint = replace(CHECKPOINT, app="invoice@1\n\u202eapproved")
    decision = decide(replace(SAME, checkpoint=checkpoint, owner="x\nanna approved"))
    for text in chain(decision.details, decision.notes):
        assert text.isascii()
        assert text.isprintable()


def test_a_decision_shows_no_state() -> None:
    assert CHECKPOINT.state == {"amount": 42}
    for text in (repr(SAME), repr(decide(replace(SAME, asked=True)))):
        assert "amount" not in text


@pytest.mark.parametrize(
    "thing",
    [SAME, SAME.runtime, decide(SAME)],
    ids=["situation", "runtime", "decision"],
)
def test_what_was_decided_on_does_not_change(thing: Any) -> None:
    for field in thing.__dataclass_fields__:
        with pytest.raises(FrozenInstanceError):
            setattr(thing, field, None)


REASONS = (
    "The reasons are old-checkpoint, version-changed, no-migration, tools-added, tool-changed,"
    " permissions-widened, asked, owned-by-another, unverified."
)


def test_the_default_policy_is_the_strict_one() -> None:
    for policy in (DEFAULT_POLICY, Policy(), Policy({}), Gate().policy):
        assert [policy.needs(reason) for reason in Reason] == POLICIES["strict"][1]
        assert policy.lifetime == timedelta(hours=24)


def test_a_reason_may_be_named_by_its_word() -> None:
    words: Any = {"tools-added": 2}
    assert Policy(words).needs(Reason.TOOLS_ADDED) == 2


@pytest.mark.parametrize(
    ("key", "shown"), [("tools", "'tools'"), (None, "None"), (1, "1"), ("ASKED", "'ASKED'")]
)
def test_an_unknown_reason_is_refused(key: Any, shown: str) -> None:
    assert refusal(lambda: Policy({key: 1})) == f"{shown} is not a reason. {REASONS}"


@pytest.mark.parametrize(
    ("number", "shown"),
    [(-1, "-1"), (True, "True"), (False, "False"), (17, "17"), (1.0, "1.0"), ("1", "'1'")],
)
def test_a_number_of_approvers_that_is_none_is_refused(number: Any, shown: str) -> None:
    for reason in set(Reason) - {Reason.OWNED_BY_ANOTHER, Reason.UNVERIFIED}:
        assert refusal(partial(Policy, {reason: number})) == (
            f"The number of approvers for {reason} is {shown}, and must be a whole number from 0"
            f" to 16, or None. Write Reason.{reason.name}: 1 for one person, or None for never."
        )


@pytest.mark.parametrize("number", [0, 1, 16, -1, True])
@pytest.mark.parametrize("reason", [Reason.OWNED_BY_ANOTHER, Reason.UNVERIFIED])
def test_no_policy_opens_what_is_always_refused(reason: Reason, number: int) -> None:
    assert refusal(lambda: Policy({reason: number})) == (
        f"A resume that is {reason} is refused, and no policy changes that."
        f" Leave Reason.{reason.name} out of the policy."
    )
    assert Policy({reason: None}).needs(reason) is None


def test_what_a_step_asks_for_cannot_go_on_by_itself() -> None:
    assert refusal(lambda: Policy({Reason.ASKED: 0})) == (
        "A step that asks for a person's yes does not go on without one."
        " Write Reason.ASKED: 1 or more, or leave it out of the policy."
    )
    assert Policy({Reason.ASKED: None}).needs(Reason.ASKED) is None


@pytest.mark.parametrize(
    ("lifetime", "shown"),
    [
        (timedelta(0), "datetime.timedelta(0)"),
        (timedelta(seconds=-1), "datetime.timedelta(days=-1, seconds=86399)"),
        (timedelta(days=90, microseconds=1), "datetime.timedelta(days=90, microseconds=1)"),
        (timedelta.max, "datetime.timedelta(days=999999999, seconds=86399, microse..."),
        (3600, "3600"),
        (None, "None"),
        (float("nan"), "nan"),
    ],
)
def test_a_lifetime_that_is_none_is_refused(lifetime: Any, shown: str) -> None:
    assert refusal(lambda: Policy(lifetime=lifetime)) == (
        f"The lifetime of an approval is {shown}, and must be a timedelta above 0 and of at most"
        " 90 days. Write lifetime=timedelta(hours=24)."
    )


@pytest.mark.parametrize("lifetime", [timedelta(microseconds=1), timedelta(days=90)])
def test_a_lifetime_may_be(lifetime: timedelta) -> None:
    assert Policy(lifetime=lifetime).lifetime == lifetime


def test_a_policy_of_something_else_is_refused() -> None:
    pairs: Any = [(Reason.ASKED, 2)]
    assert refusal(lambda: Policy(pairs)) == (
        "Policy takes a mapping of reasons, and was given list."
        " Write Policy({Reason.TOOLS_ADDED: 2})."
    )


def test_a_policy_does_not_change() -> None:
    given: dict[Reason, int | None] = {Reason.TOOLS_ADDED: 2}
    policy = Policy(given)
    given[Reason.TOOLS_ADDED] = 0
    assert policy.needs(Reason.TOOLS_ADDED) == 2
    with pytest.raises(AttributeError):
        policy.lifetime = timedelta(days=1)  # type: ignore[misc]
    assert Policy().needs(Reason.TOOLS_ADDED) == 1


def public(number: int) -> VerifyingKey:
    return SigningKey(bytes([number]) * 32, "ed25519").public


def people(count: int) -> Approvers:
    """Return so many who count: each has two keys, and there is one more whose key is revoked."""
    keys = {f"person-{n}": [public(n), public(100 + n)] for n in range(count)}
    return Approvers({**keys, "gone": [public(99)]}, revoked=[public(99)])


@pytest.mark.parametrize(
    ("policy", "count", "message"),
    [
        (Policy(), 0, "The number of approvers is 0, and the policy wants 1 for old-checkpoint."),
        (
            Policy({Reason.PERMISSIONS_WIDENED: 3}),
            2,
            "The number of approvers is 2, and the policy wants 3 for permissions-widened.",
        ),
        (
            Policy({Reason.NO_MIGRATION: 2}),
            1,
            "The number of approvers is 1, and the policy wants 2 for no-migration.",
        ),
    ],
)
def test_a_policy_that_wants_more_people_than_there_are_is_refused(
    policy: Policy, count: int, message: str
) -> None:
    assert refusal(lambda: Gate(policy, people(count))) == (
        f"{message} Want fewer in the policy, or add people to Approvers."
    )


def test_as_many_people_as_the_policy_wants_are_enough() -> None:
    three = people(3)
    policy = Policy({Reason.PERMISSIONS_WIDENED: 3, Reason.OLD_CHECKPOINT: None})
    gate = Gate(policy, three)
    assert gate.approvers is three
    assert gate.policy is policy


def test_a_gate_without_approvers_decides_all_the_same() -> None:
    gate = Gate(Policy({Reason.ASKED: 16}))
    assert gate.approvers is None
    decision = gate.decide(replace(SAME, asked=True))
    assert (decision.verdict, decision.approvers) == (Verdict.NEEDS_APPROVAL, 16)


@pytest.mark.parametrize("approvers", [{"anna": "key"}, ["anna"], "anna", 3])
def test_approvers_of_something_else_are_refused(approvers: Any) -> None:
    assert refusal(lambda: Gate(Policy(), approvers)) == (
        f"Gate was given {type(approvers).__name__} as approvers."
        ' Write approvers=Approvers({"anna": key}).'
    )


@pytest.mark.parametrize(
    ("part", "name", "value", "wanted"),
    [
        (SAME, "checkpoint", {}, "Checkpoint or None"),
        (SAME, "head", 7, "Head or None"),
        (SAME, "tools", None, "ToolSet"),
        (SAME, "asked", None, "bool"),
        (SAME, "asked", 0, "bool"),
        (SAME, "owner", b"worker-1", "str or None"),
        (SAME, "runtime", None, "Runtime"),
        (SAME.runtime, "app", None, "str"),
        (SAME.runtime, "tools", [MAIL], "ToolSet"),
        (SAME.runtime, "migrates_from", "12", "frozenset"),
    ],
)
def test_a_part_of_another_kind_is_refused(part: Any, name: str, value: Any, wanted: str) -> None:
    """So that nothing missing, such as `asked=None`, is taken for a no."""
    assert refusal(lambda: replace(part, **{name: value})) == (
        f"{type(part).__name__} was given {type(value).__name__} as {name}. Give it {wanted}."
    )


@pytest.mark.parametrize("nothing", [None, {}])
def test_an_argument_of_another_kind_is_refused(nothing: Any) -> None:
    kind = type(nothing).__name__
    assert refusal(lambda: Gate(nothing)) == f"Gate was given {kind} as policy. Give it Policy."
    assert refusal(lambda: decide(SAME, nothing)) == (
        f"decide was given {kind} as policy. Give it Policy."
    )
    assert refusal(lambda: decide(nothing)) == (
        f"decide was given {kind} as situation. Give it Situation."
    )


def test_a_worker_has_a_name_that_a_lease_can_hold() -> None:
    with pytest.raises(InvalidId) as caught:
        into(worker="Worker 1")
    assert str(caught.value) == (
        "'Worker 1' is not a worker name."
        " Use 1 to 64 of a-z, 0-9, '-' and '_', and start with a letter or digit."
    )


def test_a_gate_shows_what_it_asks_for_and_of_whom() -> None:
    key = SigningKey.generate("ed25519")
    gate = Gate(Policy({Reason.ASKED: 1}), Approvers({"dana": key.public}))
    assert repr(gate).startswith("Gate(Policy({'old-checkpoint': 1, 'version-changed': 0, ")
    assert repr(gate).endswith("approvers=['dana'])")
