"""check_approvals and check_tools: did people approve what the records say that they approved?"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Approver,
    Approvers,
    Ask,
    CheckpointError,
    Codec,
    FileCheckpointStorage,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    Ledger,
    Limits,
    Policy,
    SigningKey,
    Tool,
    VerifyingKey,
    Workflow,
)
from safepoint.approval import Reason
from safepoint.audit import check_resumptions, check_tools, check_versions
from safepoint.audit.runs import check_approvals
from safepoint.errors import ConfigurationError, StorageUnavailable
from safepoint.record import Place, seal
from safepoint.workflow import Call, Migration

State = dict[str, Any]
DANA, ERIN = SigningKey.generate("ed25519"), SigningKey.generate("ed25519")
WRITER = SigningKey.generate()
BANK, MAIL = Tool("bank", permissions=["pay"]), Tool("mail", permissions=["read"])
NOT_THERE = "says that it was resumed from a record that is not there."
OTHER = "error: order-7 #4 carries another approval than the one that it was resumed with."
REPLACE = "Whoever wrote it had the writer's key. Do not resume it; replace that key."


@dataclass
class Cart:
    """A type that the audit does not know."""

    items: int


@dataclass
class Desk:
    """A store with runs that ask twice, and whoever has the writer's key."""

    storage: InMemoryCheckpointStorage = field(default_factory=InMemoryCheckpointStorage)
    anchor: InMemoryAnchor = field(default_factory=InMemoryAnchor)
    journal: InMemoryJournal = field(default_factory=InMemoryJournal)

    def ledger(self, **options: Any) -> Ledger:
        given = {"anchor": self.anchor, "journal": self.journal, **options}
        return Ledger(self.storage, store="invoices", keys=Keyring(WRITER), **given)

    def workflow(self, *, gate: Gate | None = None, **options: Any) -> Workflow:
        def fetch(state: State) -> State:
            return {"amount": Decimal("42.00")}

        def ask(state: State) -> Ask:
            return Ask("pay", {"amount": state["amount"]})

        def pay(state: State, call: Call) -> State:
            return {"paid": 1}

        def ask_more(state: State) -> Ask:
            return Ask("pay", {"amount": 5_000_000})

        def pay_more(state: State, call: Call) -> State:
            return {"paid": 2}

        given = {"version": "1", "tools": [BANK], "gate": gate or GATE, **options}
        return Workflow("invoice", [fetch, ask, pay, ask_more, pay_more], **given)

    def paused(self, thread: str = "order-7") -> str:
        """Let a run pause at #3, and return dana's yes."""
        return yes(self.workflow().start(self.ledger(), thread=thread).question)

    def write(self, thread: str, *, tools: list[Tool] | None = None, **payload: Any) -> None:
        """Append a record as whoever has the writer's key would."""
        last = self.ledger().latest(thread)
        kept = {k: v for k, v in last.state.items() if k in ("done", "state", "tools")}
        digest = last.tools
        if tools is not None:
            made = Workflow("invoice", [_step], tools=tools).tools
            kept["tools"], digest = made.described, made.digest
        self.ledger().save(thread, {**kept, **payload}, app=last.app, tools=digest)


def _step(state: State) -> None:
    pass


GATE = Gate(approvers=Approvers({"dana": DANA.public, "erin": ERIN.public}))


def yes(question: Any, key: SigningKey = DANA, name: str = "dana") -> str:
    assert question is not None
    return Approver(name, key).approve(question)


def no(question: Any) -> str:
    assert question is not None
    return Approver("erin", ERIN).deny(question)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def said(desk: Desk, gate: Gate = GATE) -> list[str]:
    """List what the check of approvals says, without what to do."""
    return [f"{f.severity}: {f.what}" for f in check_approvals(desk.ledger(), gate)]


def tools_said(desk: Desk, gate: Gate = GATE) -> list[str]:
    return [f"{f.severity}: {f.what}" for f in check_tools(desk.ledger(), gate)]


def resumed(desk: Desk, statements: list[str], thread: str = "order-7", **fields: Any) -> State:
    """Return what a record of a resumption says, of the thread's end."""
    last = desk.ledger().latest(thread)
    return {
        "app": last.app,
        "digest": last.digest,
        "reasons": ["asked"],
        "sequence": last.sequence,
        "statements": statements,
        **fields,
    }


def test_a_store_of_every_honest_kind_of_run_has_no_finding(desk: Desk) -> None:
    """Paused, approved twice, denied, gone back, migrated, narrowed, widened, by two, deleted."""
    workflow, ledger = desk.workflow(), desk.ledger()
    text = desk.paused()
    run = workflow.resume(ledger, "order-7", approvals=[text])
    workflow.resume(ledger, "order-7", approvals=[yes(run.question)])
    back = workflow.question(ledger, "order-7", 4)
    workflow.resume(ledger, "order-7", 4, approvals=[yes(back)])
    desk.paused("order-8")
    denial = workflow.question(ledger, "order-8")
    assert denial is not None
    workflow.resume(ledger, "order-8", approvals=[Approver("erin", ERIN).deny(denial)])
    again = workflow.question(ledger, "order-8", 3)
    workflow.resume(ledger, "order-8", 3, approvals=[yes(again)])
    newer = desk.workflow(
        version="2", tools=[BANK, MAIL], migrations=[Migration("1", "2", lambda s: s)]
    )
    desk.paused("order-9")
    question = newer.question(ledger, "order-9")
    newer.resume(ledger, "order-9", approvals=[yes(question), yes(question, ERIN, "erin")])
    workflow.begin(ledger, thread="order-a")
    newer.rehydrate(ledger, "order-a", approvals=[yes(newer.question(ledger, "order-a"))])
    desk.paused("order-b")
    ledger.delete("order-b")
    ledger.save("notes", {"text": "no workflow wrote this"})
    assert said(desk) == []
    assert tools_said(desk) == []
    assert errors_of_resumptions(desk) == []


def errors_of_resumptions(desk: Desk) -> list[str]:
    found = check_resumptions(desk.ledger(), GATE)
    return [finding.what for finding in found if finding.severity == "error"]


def test_a_run_that_is_captured_where_it_is_has_no_finding(desk: Desk) -> None:
    """At its beginning, while it waits, and before a no that a newer version went back from."""
    workflow, ledger = desk.workflow(), desk.ledger()
    run = workflow.begin(ledger, thread="order-7")
    run.capture()
    run.finish()
    run.capture()
    question = workflow.question(ledger, "order-7")
    assert question is not None
    assert workflow.resume(ledger, "order-7", approvals=[no(question)]).head == 6
    fewer = Migration("1", "2", lambda s: s, steps={"ask": None})
    newer = desk.workflow(version="2", migrations=[fewer])
    back = newer.question(ledger, "order-7", 5)
    newer.rehydrate(ledger, "order-7", 5, approvals=[yes(back)])
    assert said(desk) == []
    assert errors_of_resumptions(desk) == []


NEWER: State = {"version": "2", "migrations": [Migration("1", "2", dict)]}


@pytest.mark.parametrize(
    "options",
    [{}, NEWER, {"tools": [BANK, MAIL]}, {"tools": []}, {**NEWER, "tools": [MAIL]}],
)
def test_a_no_to_another_version_or_other_tools_has_no_finding(desk: Desk, options: State) -> None:
    """The run ends as it was, and the no names what would have gone on."""
    desk.paused()
    other = desk.workflow(**options)
    denied = other.resume(
        desk.ledger(), "order-7", approvals=[no(other.question(desk.ledger(), "order-7"))]
    )
    assert denied.denied
    assert desk.ledger().latest("order-7").app == "invoice@1"
    assert (said(desk), tools_said(desk), errors_of_resumptions(desk)) == ([], [], [])
    desk.ledger().prune("order-7", keep=1)
    (line,) = said(desk)
    assert line.startswith("note: order-7 #4 was resumed from #3, which was pruned, ")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda q: replace(q, arguments={"amount": 1}), "has the argument 'amount': 1, and "),
        (lambda q: replace(q, action="tell"), "has the action 'tell', and "),
        (lambda q: replace(q, thread="order-8"), "has the thread 'order-8', and "),
        (lambda q: replace(q, store="other"), "has the store 'other', and "),
        (lambda q: replace(q, head=replace(q.head, sequence=9)), "has the head #9 "),
        (lambda q: replace(q, checkpoint=replace(q.head, sequence=2)), "has the checkpoint #2 "),
        (lambda q: replace(q, reasons=("asked",)), "has the reasons ('asked',), and "),
        (lambda q: replace(q, app="refund@2"), "was not written by the workflow refund but "),
    ],
)
def test_a_no_to_something_else_is_an_error(
    desk: Desk, change: Callable[[Any], Any], what: str
) -> None:
    """Whoever has the writer's key ends a run with it."""
    desk.paused()
    other = desk.workflow(**NEWER, tools=[BANK, MAIL])
    text = no(change(other.question(desk.ledger(), "order-7")))
    reasons = ["version-changed", "tools-added", "asked"]
    desk.write("order-7", denied=text, resumed=resumed(desk, [text], reasons=reasons), origin=3)
    assert said(desk)[0].startswith("error: order-7 #4 ")
    assert what in said(desk)[0]


def test_a_no_that_brings_other_tools_is_an_error(desk: Desk) -> None:
    desk.paused()
    wide = desk.workflow(tools=[BANK, MAIL])
    text = no(wide.question(desk.ledger(), "order-7"))
    record = resumed(desk, [text], reasons=["tools-added", "asked"])
    desk.write("order-7", tools=[BANK, MAIL], denied=text, resumed=record, origin=3)
    assert said(desk) == ["error: order-7 #4 ends with a denial, and is not as #3 was."]
    (line,) = tools_said(desk)
    assert line.startswith("error: order-7 #4 was resumed from #3. The tool mail is new. ")
    assert line.endswith(" It needed 1 to approve it, and 0 did.")


def test_a_pruned_no_is_held_to_what_was_signed(desk: Desk) -> None:
    desk.paused()
    text = no(desk.workflow().question(desk.ledger(), "order-7"))
    desk.write("order-7", resumed=resumed(desk, [text]), origin=3)
    desk.ledger().prune("order-7", keep=1)
    assert said(desk)[0] == (
        "error: order-7 #4 carries another denial than the one that was signed."
    )


def test_a_no_that_is_written_once_more_is_an_error(desk: Desk) -> None:
    desk.paused()
    text = no(desk.workflow().question(desk.ledger(), "order-7"))
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    desk.write("order-7", denied=text)
    assert said(desk) == ["error: order-7 #5 goes on, and the run was denied at #4."]


def test_a_no_by_a_key_that_was_revoked_since_is_a_warning(desk: Desk) -> None:
    desk.paused()
    text = no(desk.workflow().question(desk.ledger(), "order-7"))
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    assert said(desk, gate_without(ERIN)) == [
        f"warning: order-7 #4 ends with a denial by key {ERIN.id} of erin, which was revoked."
    ]


TWO = Gate(Policy({Reason.ASKED: 2}), GATE.approvers)


def gate_without(key: SigningKey) -> Gate:
    people = {"dana": DANA.public, "erin": ERIN.public}
    return Gate(approvers=Approvers(people, revoked=[key]))


@pytest.mark.parametrize("options", [{}, NEWER, {"tools": [BANK, MAIL]}])
@pytest.mark.parametrize("lapsed", [TWO, gate_without(DANA)])
def test_an_approval_that_lapsed_and_was_given_again_has_no_finding(
    desk: Desk, lapsed: Gate, options: State
) -> None:
    """Whatever this check is told of today's policy: people signed what they were asked then."""
    text, ledger = desk.paused(), desk.ledger()
    desk.workflow().rehydrate(ledger, "order-7", approvals=[text])
    strict = desk.workflow(gate=lapsed, **options)
    question = strict.question(ledger, "order-7")
    assert question is not None
    assert "asked" in question.reasons
    both = [yes(question, ERIN, "erin"), *([yes(question)] if lapsed is TWO else [])]
    strict.resume(ledger, "order-7", approvals=both)
    assert (said(desk), tools_said(desk), errors_of_resumptions(desk)) == ([], [], [])
    (line,) = said(desk, lapsed)
    assert line.startswith("warning: order-7 #4 ")


def test_a_lapse_that_nobody_answered_is_an_error(desk: Desk) -> None:
    text = desk.paused()
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    desk.write("order-7", resumed=resumed(desk, []), origin=3)
    (line,) = said(desk)
    assert line.startswith("error: order-7 #5 was resumed from #4. It was approved before, at #4,")
    assert line.endswith(" It needed 1 to approve it, and 0 did.")


def test_an_approval_that_is_given_again_under_a_policy_of_before_is_a_warning(desk: Desk) -> None:
    text, ledger = desk.paused(), desk.ledger()
    desk.workflow().rehydrate(ledger, "order-7", approvals=[text])
    newer = desk.workflow(**NEWER)
    again = yes(newer.question(ledger, "order-7"), ERIN, "erin")
    newer.rehydrate(ledger, "order-7", approvals=[again])
    assert said(desk) == []
    lines = said(desk, TWO)
    assert [line.partition(" was")[0] for line in lines] == [
        "warning: order-7 #4",
        "warning: order-7 #5",
    ]
    assert all(line.endswith(" It needed 2 to approve it, and 1 did.") for line in lines)


def test_a_resumption_without_a_reason_is_an_error(desk: Desk) -> None:
    """No workflow writes one: what needs no reason goes on from the record that there is."""
    desk.workflow().begin(desk.ledger(), thread="order-7")
    desk.write("order-7", resumed=resumed(desk, [], reasons=[]), origin=1)
    (finding,) = check_approvals(desk.ledger(), GATE)
    assert (
        str(finding) == f"SP19 error: order-7 #2 says that it was resumed, and not why. {REPLACE}"
    )
    assert errors_of_resumptions(desk) == [finding.what]


@pytest.mark.parametrize("seed", range(25))
def test_an_honest_history_of_any_kind_has_no_error_and_no_warning(desk: Desk, seed: int) -> None:
    """Answers of all kinds, ways back, versions, tools, prunes, and approvals that lapse."""
    chance = random.Random(seed)  # noqa: S311  it only mixes what is done
    signers = {"dana": DANA, "erin": ERIN}
    tools: list[list[Tool]] = [[], [BANK], [BANK, MAIL]]
    gates = [GATE, GATE, TWO, gate_without(DANA)]
    steps = [Migration("1", "2", dict), Migration("2", "3", dict)]
    version, used, gate, ledger = 1, tools[0], GATE, desk.ledger()
    desk.workflow(tools=used).begin(ledger, thread="order-7")
    done = 0
    for _ in range(16):
        workflow = desk.workflow(
            version=str(version), tools=used, gate=gate, migrations=steps[: version - 1]
        )
        what = chance.choice(["on", "on", "yes", "yes", "no", "back", "capture", "other", "prune"])
        end = ledger.latest("order-7").sequence
        to = chance.randint(1, end) if what == "back" else None
        with suppress(CheckpointError):
            if what == "other":
                version, used = chance.randint(version, 3), chance.choice(tools)
                gate = chance.choice(gates)
            elif what == "prune":
                ledger.prune("order-7", keep=chance.randint(2, 5))
            elif what == "capture":
                workflow.rehydrate(ledger, "order-7").capture()
            else:
                question = None if what == "on" else workflow.question(ledger, "order-7", to)
                assert gate.approvers is not None
                names = gate.approvers.names if question is not None else ()
                answers = [yes(question, signers[name], name) for name in names]
                answers = [no(question)] if what == "no" and question is not None else answers
                run = workflow.rehydrate(ledger, "order-7", to, approvals=answers)
                if chance.random() < 0.6:
                    run.step()
            done += 1
    assert done > 3
    found = [
        *check_approvals(ledger, GATE),
        *check_tools(ledger, GATE),
        *check_resumptions(ledger, GATE),
        *check_versions(ledger),
    ]
    assert [str(finding) for finding in found if finding.severity != "note"] == []


@pytest.mark.parametrize("approved", [True, False])
def test_a_way_back_to_more_tools_that_was_pruned_since_is_held_to_its_approval(
    desk: Desk, *, approved: bool
) -> None:
    ledger, fewer = desk.ledger(), desk.workflow(tools=[])
    desk.workflow().begin(ledger, thread="order-7")
    for _ in range(2):
        fewer.rehydrate(ledger, "order-7").step()
    text = yes(desk.workflow().question(ledger, "order-7", 1))
    if approved:
        desk.workflow().rehydrate(ledger, "order-7", 1, approvals=[text])
    else:
        other = resumed(desk, [], reasons=["old-checkpoint"], sequence=1)
        desk.write("order-7", tools=[BANK], done=[], resumed=other)
    ledger.prune("order-7", keep=2)
    errors = [line for line in tools_said(desk) if line.startswith("error")]
    assert errors == ["error: order-7 #4 has more than #3 had, and nobody approved it: bank."] * (
        not approved
    )


def test_types_of_your_own_are_not_needed(desk: Desk) -> None:
    def fill(state: State) -> Ask:
        return Ask("pay", {"amount": Decimal("42.00")}, {"cart": Cart(7)})

    def pay(state: State) -> None:
        pass

    workflow = Workflow("shop", [fill, pay], gate=GATE)
    own = desk.ledger(codec=Codec([Cart]))
    run = workflow.start(own, thread="order-7")
    workflow.resume(own, "order-7", approvals=[yes(run.question)])
    assert said(desk) == []


def test_a_pause_that_was_left_out_is_an_error(desk: Desk) -> None:
    desk.paused()
    desk.write("order-7")
    (finding,) = check_approvals(desk.ledger(), GATE)
    assert (finding.rule, finding.where) == ("SP19", "order-7")
    assert str(finding) == (
        f"SP19 error: order-7 #4 goes on without an answer to what #3 asked. {REPLACE}"
    )


def test_the_field_approved_without_a_resumption_is_an_error(desk: Desk) -> None:
    text = desk.paused()
    desk.write("order-7", approved=[text])
    assert said(desk) == ["error: order-7 #4 goes on without an answer to what #3 asked."]


def test_a_genuine_approval_carried_on_to_the_next_pause_is_an_error(desk: Desk) -> None:
    """A thief of the writer's key uses the yes to 42 for the 5,000,000 after it."""
    text = desk.paused()
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    end = desk.ledger().latest("order-7")
    assert end.state["asked"]["arguments"] == {"amount": 5_000_000}
    desk.write("order-7", approved=[text], resumed=resumed(desk, [text]))
    assert said(desk) == [
        "error: order-7 #7 goes on from an approval that was used for order-7 #4.",
        (
            "error: order-7 #7 was resumed from #6. The run paused at #6 for a person's answer. It"
            " needed 1 to approve it, and 0 did."
        ),
    ]


def test_an_approval_that_comes_back_later_is_an_error(desk: Desk) -> None:
    text = desk.paused()
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text]).step()
    desk.write("order-7")
    assert said(desk) == []
    desk.write("order-7", approved=[text])
    assert said(desk) == ["error: order-7 #7 carries an approval, and was not resumed with it."]


def test_a_forged_approval_in_a_record_is_an_error(desk: Desk) -> None:
    desk.paused()
    question = desk.workflow().question(desk.ledger(), "order-7")
    stranger = SigningKey.generate("ed25519")
    text = yes(question, stranger)
    desk.write("order-7", approved=[text], resumed=resumed(desk, [text]))
    assert said(desk)[0] == (
        "error: order-7 #4 goes on from an approval that does not count. The approval names"
        f" key {stranger.id}, which is no approver's."
    )
    assert "needed 1 to approve it, and 0 did" in said(desk)[1]


def test_an_approval_of_other_arguments_is_an_error(desk: Desk) -> None:
    """The approval of 42 in a record that paid 5,000,000."""
    desk.paused()
    question = desk.workflow().question(desk.ledger(), "order-7")
    assert question is not None
    text = yes(replace(question, arguments={"amount": 5_000_000}))
    desk.write("order-7", approved=[text], resumed=resumed(desk, [text]))
    assert said(desk)[0] == (
        "error: order-7 #4 goes on from an approval that does not count. The approval by dana has"
        " the argument 'amount': 5000000, and the question has Decimal('42.00')."
    )


def test_an_approval_of_another_thread_is_an_error_and_that_one_is_not(desk: Desk) -> None:
    text = desk.paused("order-9")
    desk.paused("order-7")
    desk.write("order-7", approved=[text], resumed=resumed(desk, [text]))
    desk.workflow().rehydrate(desk.ledger(), "order-9", approvals=[text])
    assert said(desk)[0] == (
        "error: order-7 #4 goes on from an approval that does not count. The approval by dana has"
        " the thread 'order-9', and the question has 'order-7'."
    )
    assert not any("order-9 #" in line for line in said(desk))


def test_fewer_people_than_the_policy_asks_for_are_a_warning(desk: Desk) -> None:
    text = desk.paused()
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    two = Gate(Policy({Reason.ASKED: 2}), GATE.approvers)
    assert said(desk, two) == [
        (
            "warning: order-7 #4 was resumed from #3. The run paused at #3 for a person's answer."
            " It needed 2 to approve it, and 1 did."
        )
    ]
    never = Gate(Policy({Reason.ASKED: None}), GATE.approvers)
    assert "The policy lets nobody approve that." in said(desk, never)[0]


def test_a_run_that_goes_on_after_a_denial_is_an_error(desk: Desk) -> None:
    desk.paused()
    question = desk.workflow().question(desk.ledger(), "order-7")
    text = no(question)
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    assert said(desk) == []
    desk.write("order-7")
    assert said(desk) == ["error: order-7 #5 goes on, and the run was denied at #4."]


def test_a_denied_run_that_says_it_was_resumed_is_an_error(desk: Desk) -> None:
    desk.paused()
    question = desk.workflow().question(desk.ledger(), "order-7")
    text = no(question)
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    desk.write("order-7", resumed=resumed(desk, [], reasons=[]))
    assert said(desk) == ["error: order-7 #5 goes on, and the run was denied at #4."]


def test_a_resumption_that_drops_what_was_approved_is_an_error(desk: Desk) -> None:
    text = desk.paused()
    desk.write("order-7", resumed=resumed(desk, [text]))
    assert said(desk) == [OTHER]


def test_a_denial_that_was_turned_into_an_approval_is_an_error(desk: Desk) -> None:
    desk.paused()
    question = desk.workflow().question(desk.ledger(), "order-7")
    text = no(question)
    desk.write("order-7", approved=[text], resumed=resumed(desk, [text]))
    assert said(desk) == ["error: order-7 #4 carries another denial than the one that was signed."]


@pytest.mark.parametrize(
    ("lie", "what"),
    [
        ({"sequence": 9}, NOT_THERE),
        ({"digest": "sha256:" + "0" * 64}, NOT_THERE),
        ({"app": "invoice@7"}, NOT_THERE),
        (
            {"reasons": ["version-changed"]},
            "says that it was resumed for version-changed, and that was for asked.",
        ),
        ({"reasons": []}, "says that it was resumed for nothing, and that was for asked."),
    ],
)
def test_a_record_that_lies_about_its_resumption_is_an_error(
    desk: Desk, lie: State, what: str
) -> None:
    text = desk.paused()
    desk.write("order-7", approved=[text], resumed=resumed(desk, [text], **lie))
    assert said(desk) == [f"error: order-7 #4 {what}"]


def test_a_record_of_another_workflow_could_not_have_been_resumed(desk: Desk) -> None:
    text = desk.paused()
    last = desk.ledger().latest("order-7")
    payload = {k: v for k, v in last.state.items() if k != "asked"}
    payload |= {"approved": [text], "resumed": resumed(desk, [text])}
    desk.ledger().save("order-7", payload, app="other@1", tools=last.tools)
    (line,) = said(desk)
    assert line.startswith("error: order-7 #4 could not have been resumed. order-7 #3 was not")


def test_a_run_that_begins_with_an_approval_or_a_denial_is_an_error(desk: Desk) -> None:
    text = desk.paused()
    for thread, more in (("a", {"approved": [text]}), ("b", {"denied": text})):
        desk.ledger().save(thread, {"done": [], "state": {}, **more}, app="invoice@1")
    assert said(desk) == [
        "error: a #1 carries an approval, and was not resumed with it.",
        "error: b #1 carries a denial that answers nothing.",
    ]


def test_a_record_that_is_no_workflows_is_a_warning_and_hides_nothing(desk: Desk) -> None:
    desk.paused()
    kept = desk.ledger().latest("order-7")
    desk.ledger().save("order-7", {"text": "in between"})
    payload = {k: v for k, v in kept.state.items() if k != "asked"}
    desk.ledger().save("order-7", payload, app=kept.app, tools=kept.tools)
    assert said(desk) == [
        "error: order-7 #5 goes on without an answer to what #3 asked.",
        "warning: order-7 #4 does not hold a workflow's state, and #3 does.",
    ]


UNBEGUN = "order-7 #2 does not begin a run, and goes on from no record of one."


@pytest.mark.parametrize("done", [[], ["fetch", "ask"]])
def test_a_run_does_not_hide_behind_a_record_that_is_no_workflows(
    desk: Desk, done: list[str]
) -> None:
    """With such a first record, the ask is left out, and nothing seems to be a run."""
    ledger = desk.ledger()
    ledger.save("order-7", {"hello": 1}, app="invoice@1")
    ledger.save("order-7", {"done": done, "state": {"amount": 5_000_000}}, app="invoice@1")
    desk.write("order-7", done=[*done, "x"], approved=["forged"])
    assert said(desk) == [
        f"error: {UNBEGUN}",
        "error: order-7 #3 carries an approval, and was not resumed with it.",
    ]
    assert tools_said(desk)[0] == f"error: {UNBEGUN}"
    assert errors_of_resumptions(desk) == [UNBEGUN]


def test_a_run_that_begins_in_the_middle_is_an_error(desk: Desk) -> None:
    desk.ledger().save("order-7", {"done": ["fetch", "ask"], "state": {}}, app="invoice@1")
    (finding,) = check_approvals(desk.ledger(), GATE)
    assert str(finding) == (
        "SP19 error: order-7 #1 does not begin a run, and goes on from no record of one. Find out"
        " what wrote it: a migration of states without a seal, which its report names, or whoever"
        " has the writer's key."
    )
    assert errors_of_resumptions(desk) == [finding.what]


def test_a_step_after_a_record_that_is_no_workflows_is_an_error(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    kept = desk.ledger().latest("order-7")
    desk.ledger().save("order-7", {"text": "in between"})
    payload = {**kept.state, "done": ["fetch"]}
    desk.ledger().save("order-7", payload, app=kept.app, tools=kept.tools)
    assert said(desk) == [
        "error: order-7 #3 goes on from what no workflow wrote.",
        "warning: order-7 #2 does not hold a workflow's state, and #1 does.",
    ]
    assert errors_of_resumptions(desk) == [
        "order-7 #3 does not go on from #2, and no record says who resumed it."
    ]


def test_an_approval_that_a_step_carries_on_is_an_error(desk: Desk) -> None:
    """It is for one step: a thief who lets the next one have it pays twice."""
    text = desk.paused()
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    done = desk.ledger().latest("order-7").state["done"]
    desk.write("order-7", done=[*done, "pay"], approved=[text])
    assert said(desk) == ["error: order-7 #5 carries an approval, and was not resumed with it."]
    desk.write("order-7", done=[*done, "pay"], approved=[text], resumed=resumed(desk, []))
    assert any(line.startswith("error: order-7 #6 ") for line in said(desk))


def test_a_resumption_after_a_prune_keeps_what_was_approved(desk: Desk) -> None:
    text = desk.paused()
    desk.write("order-7", resumed=resumed(desk, [text]))
    desk.ledger().prune("order-7", keep=1)
    assert said(desk)[0] == OTHER


def test_a_pause_that_is_the_first_that_is_kept_is_a_note_if_steps_are_before_it(
    desk: Desk,
) -> None:
    desk.paused()
    desk.ledger().prune("order-7", keep=1)
    (line,) = said(desk)
    assert line.startswith("note: order-7 #3 is the first that is kept, ")
    desk.workflow().begin(desk.ledger(), thread="order-8").capture()
    desk.ledger().prune("order-8", keep=1)

    def ask(state: State) -> Ask:
        return Ask("pay", {"amount": 42})

    Workflow("first", [ask], gate=GATE).start(desk.ledger(), thread="order-9")
    desk.ledger().prune("order-9", keep=1)
    assert len(said(desk)) == 1


def test_a_denial_that_answers_no_step_at_the_end_is_an_error(desk: Desk) -> None:
    """A no to a way back leaves the run as it is. Whoever ends it with that wants it ended."""
    workflow = desk.workflow()
    workflow.begin(desk.ledger(), thread="order-7").step()
    question = workflow.question(desk.ledger(), "order-7", 1)
    text = no(question)
    first = desk.ledger().load("order-7", 1)
    record = resumed(desk, [text], reasons=["old-checkpoint"], sequence=1, digest=first.digest)
    desk.write("order-7", done=[], denied=text, resumed=record)
    assert said(desk) == [
        "error: order-7 #3 ends the run with a denial that answers no step at its end."
    ]


@pytest.mark.parametrize("year", [1, 9999])
def test_an_approval_in_a_record_of_any_year_is_a_warning(desk: Desk, year: int) -> None:
    """The first day there is has none before it."""
    text = desk.paused()
    ledger, last = desk.ledger(), desk.ledger().latest("order-7")
    kept = {k: v for k, v in last.state.items() if k != "asked"}
    payload = {**kept, "approved": [text], "resumed": resumed(desk, [text])}
    record, _ = seal(
        ledger.codec.encode(payload),
        Place("invoices", "order-7", 4),
        WRITER,
        created=datetime(year, 1, 1, tzinfo=UTC) if year == 1 else datetime.max.replace(tzinfo=UTC),
        previous=last.digest,
        app=last.app,
        tools=last.tools,
    )
    desk.storage.append("order-7", 4, record)
    (line,) = said(desk)
    assert line.startswith(
        "warning: order-7 #4 goes on from an approval outside of its time. The approval by dana "
    )


@pytest.mark.parametrize(("late", "found"), [(59, 0), (61, 1)])
def test_an_approval_used_after_its_time_is_a_warning(desk: Desk, late: int, found: int) -> None:
    """By the record's own time, and with a minute for clocks."""
    desk.paused()
    question = desk.workflow().question(desk.ledger(), "order-7")
    assert question is not None
    then = datetime.now(UTC) - timedelta(hours=1, seconds=late)
    text = Approver("dana", DANA).approve(question, now=then)
    desk.write("order-7", approved=[text], resumed=resumed(desk, [text]))
    lines = said(desk)
    assert len(lines) == found
    for line in lines:
        assert line.startswith(
            "warning: order-7 #4 goes on from an approval outside of its time. The approval by dana"
            " expired at "
        )


def test_an_approval_that_is_valid_for_too_long_is_a_warning(desk: Desk) -> None:
    text = desk.paused()
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    short = Gate(Policy(lifetime=timedelta(minutes=1)), GATE.approvers)
    assert said(desk, short) == [
        (
            "warning: order-7 #4 goes on from an approval outside of its time. The approval by dana"
            " is valid for 1:00:00, and the policy allows 0:01:00."
        )
    ]


def test_an_approval_by_a_key_that_was_revoked_since_is_a_warning(desk: Desk) -> None:
    """Not an error for every run that somebody approved before they left."""
    text = desk.paused()
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    people = {"dana": DANA.public, "erin": ERIN.public}
    gate = Gate(approvers=Approvers(people, revoked=[DANA]))
    (finding,) = check_approvals(desk.ledger(), gate)
    assert str(finding) == (
        f"SP19 warning: order-7 #4 goes on from an approval by key {DANA.id} of dana, which was"
        " revoked. If it was stolen after that, nothing is wrong. If not, look at what the run did."
    )


def test_without_approvers_no_approval_counts(desk: Desk) -> None:
    text = desk.paused()
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    assert said(desk, Gate())[0] == (
        "error: order-7 #4 goes on from an approval that does not count. There are no approvers to"
        " check it."
    )


def test_what_was_pruned_is_a_note_and_the_rest_is_looked_at(desk: Desk) -> None:
    text = desk.paused()
    run = desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    desk.ledger().prune("order-7", keep=1)
    assert said(desk) == [
        (
            "note: order-7 #4 was resumed from #3, which was pruned, so nobody can tell who had to"
            " approve it."
        )
    ]
    run.step()
    desk.ledger().prune("order-7", keep=1)
    (finding,) = check_approvals(desk.ledger(), GATE)
    assert str(finding) == (
        "SP19 note: order-7 #5 is the first that is kept, so nobody can tell whether people"
        " answered what the run asked before it. Look for it in a copy from before. Keep the"
        " checkpoints that people were asked about."
    )


def test_a_record_before_the_first_is_not_taken_for_a_pruned_one(desk: Desk) -> None:
    text = desk.paused()
    desk.write("order-7", approved=[text], resumed=resumed(desk, [text], sequence=0))
    desk.ledger().prune("order-7", keep=1)
    assert said(desk) == [f"error: order-7 #4 {NOT_THERE}"]


def test_a_forgery_does_not_hide_behind_a_prune(desk: Desk) -> None:
    text = desk.paused("order-9")
    forged = yes(desk.workflow().question(desk.ledger(), "order-9"), SigningKey.generate("ed25519"))
    for thread, statement in (("order-7", text), ("order-8", forged)):
        desk.paused(thread)
        record = resumed(desk, [statement], thread)
        desk.write(thread, approved=[statement], resumed=record)
        desk.ledger().prune(thread, keep=1)
    errors = [line for line in said(desk) if line.startswith("error")]
    assert errors[0] == (
        "error: order-7 #4 goes on from an approval that does not count. It was given for something"
        " else."
    )
    assert errors[1].startswith("error: order-8 #4 goes on from an approval that does not count.")


def test_a_thread_that_does_not_verify_is_a_note(desk: Desk) -> None:
    desk.paused()
    records = desk.storage._records["order-7"]
    records[2] = records[2].replace(b"42.00", b"99.00")
    assert said(desk) == ["note: order-7 does not verify, so its approvals were not looked at."]
    assert tools_said(desk) == ["note: order-7 does not verify, so its tools were not looked at."]


def test_a_record_over_a_limit_of_the_audit_is_a_note(desk: Desk) -> None:
    desk.paused()
    small = desk.ledger(codec=Codec(limits=Limits(items=3)))
    (finding,) = check_approvals(small, GATE)
    assert finding.severity == "note"


def test_a_thread_whose_deletion_was_interrupted_has_no_finding(desk: Desk) -> None:
    class Stuck(InMemoryCheckpointStorage):
        def prune(self, *_: Any, **__: Any) -> int:
            raise OSError

    desk.storage = Stuck()
    desk.paused()
    with pytest.raises(StorageUnavailable):
        desk.ledger().delete("order-7")
    assert desk.storage.head("order-7") == 4
    assert said(desk) == []


def test_a_cut_that_the_anchor_misses_is_not_taken_for_a_clean_store(desk: Desk) -> None:
    """A rollback to before the denial: the anchor has seen more."""
    desk.paused()
    question = desk.workflow().question(desk.ledger(), "order-7")
    text = no(question)
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    del desk.storage._records["order-7"][4]
    assert said(desk) == ["note: order-7 does not verify, so its approvals were not looked at."]


def test_an_anchor_that_cannot_be_asked_is_an_error(desk: Desk) -> None:
    class Down(InMemoryAnchor):
        def threads(self, store: str) -> list[str]:
            raise OSError

    (finding,) = check_approvals(desk.ledger(anchor=Down()), GATE)
    assert (finding.rule, finding.severity) == ("SP15", "error")


@pytest.mark.parametrize("check", [check_approvals, check_tools])
def test_something_else_than_a_gate_is_refused(
    desk: Desk, check: Callable[[Ledger, Any], object]
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        check(desk.ledger(), GATE.approvers)
    assert str(refusal.value) == (
        "The check was given Approvers as gate. Give it the gate of your workflow: workflow.gate."
    )


# Keys


def test_an_approvers_key_on_the_writers_ring_is_an_error(desk: Desk) -> None:
    keys = Keyring(WRITER, verify=[DANA.public])
    ledger = Ledger(desk.storage, store="invoices", keys=keys)
    (finding,) = check_approvals(ledger, GATE)
    assert finding.what == (
        f"Key {DANA.id} of the approver dana is on the keyring of the ledger, so a writer could"
        " approve its own work."
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "people").mkdir(mode=0o700)
    DANA.public.to_file(tmp_path / "people/dana.pub")
    return tmp_path


def at(folder: Path) -> tuple[Ledger, Gate]:
    """Open a store whose approver is known by a file."""
    dana = VerifyingKey.from_file(folder / "people/dana.pub")
    keys = Keyring(SigningKey.from_file(folder / "keys/writer.key", create=True))
    ledger = Ledger(FileCheckpointStorage(folder / "state"), store="invoices", keys=keys)
    return ledger, Gate(approvers=Approvers({"dana": dana}))


def test_a_public_key_in_a_folder_of_its_own_is_no_finding(folder: Path) -> None:
    assert check_approvals(*at(folder)) == []


def test_a_public_key_that_others_can_write_is_an_error(folder: Path) -> None:
    ledger, gate = at(folder)
    (folder / "people/dana.pub").chmod(0o666)
    (finding,) = check_approvals(ledger, gate)
    assert (finding.rule, finding.severity) == ("SP19", "error")
    assert finding.what.endswith("can be changed by other users (mode 0666).")


def test_a_public_key_that_was_replaced_is_an_error(folder: Path) -> None:
    ledger, gate = at(folder)
    (folder / "people/dana.pub").unlink()
    ERIN.public.to_file(folder / "people/dana.pub")
    (finding,) = check_approvals(ledger, gate)
    assert finding.what.endswith("people/dana.pub holds another key of dana by now.")


def test_a_public_key_in_the_storage_folder_is_an_error(folder: Path) -> None:
    ledger, _ = at(folder)
    (folder / "people/dana.pub").rename(folder / "state/dana.pub")
    dana = VerifyingKey.from_file(folder / "state/dana.pub")
    (finding,) = check_approvals(ledger, Gate(approvers=Approvers({"dana": dana})))
    assert "is inside the storage folder." in finding.what


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
@pytest.mark.parametrize("place", ["people/secret", "keys/dana"])
def test_an_approvers_secret_on_the_workers_machine_is_an_error(
    folder: Path, place: str, mode: int
) -> None:
    """A file that is no key, because others can read it, is a secret all the same."""
    ledger, gate = at(folder)
    DANA.to_file(folder / place)
    ERIN.to_file(folder / "keys/somebody-else")
    (folder / "keys/broken").write_text("safepoint-key/1 nonsense")
    (folder / "keys/folder").mkdir()
    (folder / place).chmod(mode)
    (finding,) = check_approvals(ledger, gate)
    assert str(finding) == (
        f"SP19 error: The secret key of dana is here, in {folder / place}, so whoever runs here"
        " could approve in their name. Let them make a new key where nobody else is, send its"
        f" public half, and revoke this one: Approvers(..., revoked=['{DANA.id}'])."
    )


def test_an_approvers_secret_that_is_linked_or_inside_another_file_is_an_error(
    folder: Path,
) -> None:
    ledger, gate = at(folder)
    (folder / "away").mkdir(mode=0o700)
    DANA.to_file(folder / "away/dana")
    (folder / "keys/link").symlink_to(folder / "away/dana")
    text = (folder / "away/dana").read_text()
    (folder / "keys/notes").write_text(f"# for the worker\nKEY={text}KEY={text}")
    (folder / "keys/pipe").symlink_to(folder / "nowhere")
    found = check_approvals(ledger, gate)
    assert [Path(finding.where).name for finding in found] == ["link", "notes"]


# Tools


def wider(desk: Desk, *tools: Tool, gate: Gate = GATE) -> Workflow:
    return desk.workflow(tools=tools, gate=gate)


@pytest.mark.parametrize(
    ("tools", "detail", "reason"),
    [
        (
            [BANK, MAIL],
            "The tool mail is new. The tool mail comes with the permission read.",
            Reason.TOOLS_ADDED,
        ),
        (
            [Tool("bank", version="2", permissions=["pay"])],
            "The tool bank has version '2', and had no version.",
            Reason.TOOL_CHANGED,
        ),
        (
            [Tool("bank", permissions=["pay", "all"])],
            "The tool bank gains the permission all.",
            Reason.PERMISSIONS_WIDENED,
        ),
    ],
)
def test_a_wider_tool_set_that_nobody_approved_is_an_error(
    desk: Desk, tools: list[Tool], detail: str, reason: Reason
) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    careless = Gate(Policy({reason: 0}), GATE.approvers)
    wider(desk, *tools, gate=careless).rehydrate(desk.ledger(), "order-7")
    (finding,) = check_tools(desk.ledger(), GATE)
    assert str(finding) == (
        f"SP18 error: order-7 #2 was resumed from #1. {detail} It needed 1 to approve it, and 0"
        f" did. {REPLACE} If your policy was looser at the time, give this check that one."
    )
    assert tools_said(desk, careless) == []
    assert said(desk) == []


@pytest.mark.parametrize(
    ("tools", "name"),
    [
        ([BANK, MAIL], "mail"),
        ([Tool("bank", version="2", permissions=["pay"])], "bank"),
        ([Tool("bank", permissions=["pay", "all"])], "bank"),
    ],
)
def test_a_wider_tool_set_outside_of_the_gate_is_an_error(
    desk: Desk, tools: list[Tool], name: str
) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    desk.write("order-7", tools=tools)
    (finding,) = check_tools(desk.ledger(), GATE)
    assert str(finding) == (
        f"SP18 error: order-7 #2 has more than #1 had, and did not go through the gate: {name}."
        f" {REPLACE}"
    )


def test_what_is_not_about_tools_is_no_finding_about_them(desk: Desk) -> None:
    """A pause without an answer, and a denial of more tools."""
    desk.paused()
    desk.write("order-7", resumed=resumed(desk, []))
    assert "needed 1 to approve it, and 0 did" in said(desk)[0]
    desk.paused("order-8")
    more = wider(desk, BANK, MAIL)
    question = more.question(desk.ledger(), "order-8")
    text = no(question)
    assert more.resume(desk.ledger(), "order-8", approvals=[text]).denied
    assert tools_said(desk) == []


def test_an_unanswered_pause_with_more_tools_breaks_both_rules(desk: Desk) -> None:
    desk.paused()
    record = resumed(desk, [], reasons=["tools-added", "asked"])
    desk.write("order-7", tools=[BANK, MAIL], resumed=record)
    assert said(desk) == tools_said(desk)
    assert len(said(desk)) == 1


def test_an_approval_of_another_tool_set_is_none(desk: Desk) -> None:
    """The thief has a genuine yes to one tool, and uses it for another."""
    desk.workflow().begin(desk.ledger(), thread="order-7")
    question = wider(desk, BANK, MAIL).question(desk.ledger(), "order-7")
    text = yes(question)
    record = resumed(desk, [text], reasons=["tools-added"])
    desk.write("order-7", tools=[BANK, Tool("shell")], resumed=record)
    (line,) = tools_said(desk)
    assert line.endswith("The tool shell is new. It needed 1 to approve it, and 0 did.")
    assert "the tools sha256:" in said(desk)[0]


def test_a_wider_tool_set_whose_source_is_not_there_is_an_error(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    record = resumed(desk, [], reasons=["tools-added"], sequence=7)
    desk.write("order-7", tools=[BANK, MAIL], resumed=record)
    assert "did not go through the gate: mail." in tools_said(desk)[0]


def test_more_tools_than_a_question_can_hold_are_an_error_of_one_line(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    many = [Tool(f"tool-{number:03}") for number in range(300)]
    careless = Gate(Policy({Reason.TOOLS_ADDED: 0}), GATE.approvers)
    wider(desk, BANK, *many, gate=careless).rehydrate(desk.ledger(), "order-7")
    (line,) = tools_said(desk)
    assert line.startswith("error: order-7 #2 was resumed from #1. The tool tool-000 is new. ")
    assert line.endswith(
        " The tool tool-009 is new. And 290 more like these. It needed 1 to approve it, and 0 did."
    )
    assert said(desk, careless) == []


def test_what_could_not_have_been_resumed_breaks_the_rule_of_tools_too(desk: Desk) -> None:
    """A refusal while looking is a finding, and not nothing."""
    desk.workflow().begin(desk.ledger(), thread="order-7")
    last = desk.ledger().latest("order-7")
    made = Workflow("invoice", [_step], tools=[BANK, MAIL]).tools
    payload = {**last.state, "tools": made.described, "resumed": resumed(desk, [], reasons=[])}
    desk.ledger().save("order-7", payload, app="other@1", tools=made.digest)
    (line,) = tools_said(desk)
    assert line.startswith("error: order-7 #2 could not have been resumed. order-7 #1 was not")
    assert said(desk) == [line]


def test_a_store_whose_runs_have_no_tools_is_told(desk: Desk) -> None:
    desk.workflow(tools=[]).begin(desk.ledger(), thread="order-7")
    (finding,) = check_tools(desk.ledger(), GATE)
    assert str(finding) == (
        "SP18 note: No run of store invoices says which tools it has, so a wider set would not"
        ' show. Describe them: Workflow(..., tools=[Tool("mail", permissions=["read"])]).'
    )
    assert check_tools(Desk().ledger(), GATE) == []
