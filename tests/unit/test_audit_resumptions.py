"""check_resumptions and check_versions: who approved each way back, and each change of version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest

from safepoint import (
    Approver,
    Approvers,
    Ask,
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
    Workflow,
)
from safepoint.approval import Reason
from safepoint.audit import check_resumptions, check_versions
from safepoint.codec import Codec
from safepoint.errors import AnchorUnavailable, ConfigurationError, ResumeRefused
from safepoint.workflow import Migration

State = dict[str, Any]
PEOPLE = {name: SigningKey.generate("ed25519") for name in ("dana", "erin")}
APPROVERS = Approvers({name: key.public for name, key in PEOPLE.items()})
GATE = Gate(approvers=APPROVERS)
TWO = Gate(Policy({Reason.OLD_CHECKPOINT: 2}), APPROVERS)
KEY = SigningKey.generate()


@dataclass
class Desk:
    """A store with a workflow of two steps on it."""

    storage: InMemoryCheckpointStorage = field(default_factory=InMemoryCheckpointStorage)
    anchor: InMemoryAnchor = field(default_factory=InMemoryAnchor)

    def ledger(self, **options: Any) -> Ledger:
        given = {"anchor": self.anchor, "journal": InMemoryJournal(), **options}
        return Ledger(self.storage, store="invoices", keys=Keyring(KEY), **given)

    def workflow(self, version: str = "1", **options: Any) -> Workflow:
        def fetch(state: State) -> State:
            return {"amount": Decimal(42)}

        def pay(state: State) -> State:
            return {"paid": state["amount"]}

        return Workflow("invoice", [fetch, pay], version=version, **{"gate": GATE, **options})

    def go_back(self, sequence: int = 1, *who: str, **options: Any) -> None:
        workflow = self.workflow(**options)
        question = workflow.question(self.ledger(), "order-7", sequence)
        said = [] if question is None else [yes(question, name) for name in who or ("dana",)]
        workflow.resume(self.ledger(), "order-7", sequence, approvals=said)

    def write(self, app: str = "invoice@1", **changes: Any) -> None:
        """Save a changed copy of the newest checkpoint, as a holder of the writer's key could."""
        newest = self.ledger().latest("order-7")
        state = {**newest.state, **changes}
        self.ledger().save("order-7", state, app=app, tools=newest.tools)

    def resumptions(self, gate: Gate | None = GATE) -> list[str]:
        return [str(finding) for finding in check_resumptions(self.ledger(), gate)]

    def versions(self, *apps: str) -> list[str]:
        return [str(finding) for finding in check_versions(self.ledger(), *apps)]


def yes(question: Any, who: str = "dana") -> str:
    return Approver(who, PEOPLE[who]).approve(question)


@pytest.fixture
def desk() -> Desk:
    """A run that ended at #3."""
    made = Desk()
    made.workflow().start(made.ledger(), thread="order-7")
    return made


REPLACE = "Whoever wrote it had the writer's key, and not this package. Replace that key."
WENT_BACK = "SP16 note: order-7 #4 went back from #3 to #1"
MEANT = "If that was meant, there is nothing to do."


def test_a_run_that_went_on_has_no_finding(desk: Desk) -> None:
    assert desk.resumptions() == []
    assert desk.versions("invoice@1") == []


def test_a_way_back_is_a_note_that_says_who_approved_it(desk: Desk) -> None:
    desk.go_back()
    assert desk.resumptions() == [f"{WENT_BACK}, approved by dana. {MEANT}"]
    assert desk.resumptions(None) == [
        f"{WENT_BACK}, with 1 approval, which nobody verified here. {MEANT}"
    ]
    assert desk.versions("invoice@1") == []


def test_two_people_are_both_named(desk: Desk) -> None:
    desk.go_back(1, "erin", "dana", gate=TWO)
    assert desk.resumptions(TWO) == [f"{WENT_BACK}, approved by dana and erin. {MEANT}"]
    assert "with 2 approvals" in desk.resumptions(None)[0]


def test_a_way_back_with_tools_is_approved_with_these_tools(desk: Desk) -> None:
    desk.go_back(1, tools=[Tool("bank")])
    assert desk.resumptions() == [f"{WENT_BACK}, approved by dana. {MEANT}"]


def test_a_way_back_that_nobody_approved_is_an_error(desk: Desk) -> None:
    """A worker with a policy of its own let itself through."""
    loose = Gate(Policy({Reason.OLD_CHECKPOINT: 0}), APPROVERS)
    desk.go_back(gate=loose)
    for gate in (GATE, None):
        assert desk.resumptions(gate) == [
            (
                "SP16 error: order-7 #4 went back from #3 to #1, and nobody approved it. Look at"
                " which steps ran again. The journal says who resumed it."
            )
        ]
    assert desk.resumptions(loose) == [f"{WENT_BACK}, which your policy lets anybody do. {MEANT}"]


def test_a_way_back_that_too_few_approved_is_an_error(desk: Desk) -> None:
    desk.go_back()
    (line,) = desk.resumptions(TWO)
    assert line.startswith(
        "SP16 error: order-7 #4 went back from #3 to #1, and 1 of 2 people approved it."
    )


def test_a_policy_that_lets_nobody_go_back_today_does_not_undo_an_approval(desk: Desk) -> None:
    never = Gate(Policy({Reason.OLD_CHECKPOINT: None}), APPROVERS)
    desk.go_back()
    assert desk.resumptions(never) == [f"{WENT_BACK}, approved by dana. {MEANT}"]
    desk.go_back(gate=Gate(Policy({Reason.OLD_CHECKPOINT: 0}), APPROVERS))
    assert "#7 went back from #6 to #1, and nobody approved it." in desk.resumptions(never)[0]


def test_a_way_back_by_a_key_that_was_revoked_since_is_a_warning(desk: Desk) -> None:
    """Not an error for whatever somebody approved before they left."""
    desk.go_back(1, "dana", "erin", gate=TWO)
    people = {name: key.public for name, key in PEOPLE.items()}
    dana, erin = PEOPLE["dana"], PEOPLE["erin"]
    left = Gate(approvers=Approvers(people, revoked=[dana]))
    way = "SP16 warning: order-7 #4 went back from #3 to #1, approved by dana and erin, and"
    do = "If it was stolen after that, nothing is wrong. If not, look at what the run did."
    assert desk.resumptions(left) == [f"{way} key {dana.id} of dana was revoked. {do}"]
    carl = SigningKey.generate("ed25519").public
    gone = Gate(approvers=Approvers({**people, "carl": carl}, revoked=[dana, erin]))
    assert desk.resumptions(gone) == [
        f"{way} key {dana.id} of dana and key {erin.id} of erin were revoked. {do}"
    ]


def ended(where: str, sequence: int = 4) -> str:
    what = f"order-7 #{sequence} says that the last step ended {where}, and it did not."
    return f"SP16 error: {what} {REPLACE}"


@pytest.mark.parametrize("origin", [None, 0, -3, 1, 2, 4, 77])
def test_a_resumption_with_another_origin_is_an_error(desk: Desk, origin: int | None) -> None:
    """A step after it would act under a key that was not used yet, or that another used."""
    newest = desk.ledger().latest("order-7")
    told = {"app": "invoice@1", "digest": newest.digest, "reasons": ["tools-added"]}
    changes: State = {} if origin is None else {"origin": origin}
    desk.write(resumed={**told, "sequence": 3, "statements": []}, **changes)
    assert desk.resumptions() == [ended("here" if origin is None else f"at #{origin}")]


@pytest.mark.parametrize(("origin", "is_error"), [(1, False), (3, False), (4, True), (0, True)])
def test_of_a_resumption_whose_source_was_pruned_the_origin_is_before_it(
    desk: Desk, origin: int, *, is_error: bool
) -> None:
    newest = desk.ledger().latest("order-7")
    told = {"app": "invoice@1", "digest": newest.digest, "reasons": ["tools-added"]}
    desk.write(resumed={**told, "sequence": 3, "statements": []}, origin=origin)
    desk.ledger().prune("order-7", keep=1)
    assert desk.resumptions() == [ended(f"at #{origin}")] * is_error


def test_a_way_back_with_an_origin_is_an_error(desk: Desk) -> None:
    """It is meant to do again what was done, so nothing is left of the key from before."""
    forged(desk, lambda question: question, origin=1)
    assert desk.resumptions()[0] == ended("at #1")


def test_a_run_that_begins_with_an_origin_is_an_error() -> None:
    desk = Desk()
    desk.ledger().save("order-7", {"done": [], "origin": 1, "state": {}}, app="invoice@1")
    assert desk.resumptions() == [ended("at #1", 1)]


@pytest.mark.parametrize(
    ("done", "origin", "is_error"),
    [
        (["fetch", "pay"], 3, False),
        (["fetch", "pay"], 1, True),
        (["fetch", "pay", "tell"], 1, True),
        (["fetch", "pay", "tell"], 99, True),
    ],
)
def test_a_record_that_moves_its_origin_is_an_error(
    desk: Desk, done: list[str], origin: int, *, is_error: bool
) -> None:
    desk.write(done=done, origin=origin)
    assert desk.resumptions() == [ended(f"at #{origin}")] * is_error


def test_a_run_that_was_captured_twice_and_resumed_keeps_its_origin(desk: Desk) -> None:
    workflow = desk.workflow()
    run = workflow.begin(desk.ledger(), thread="order-8")
    run.step()
    run.capture()
    run.capture()
    wide = desk.workflow(tools=[Tool("bank")])
    text = yes(wide.question(desk.ledger(), "order-8"))
    wide.rehydrate(desk.ledger(), "order-8", approvals=[text]).capture()
    assert desk.ledger().latest("order-8").state["origin"] == 2
    assert desk.resumptions() == []
    desk.ledger().prune("order-8", keep=1)
    assert desk.resumptions() == []


def test_a_step_that_is_saved_late_because_the_anchor_was_away_has_no_finding(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise ConnectionError

    run = desk.workflow().begin(desk.ledger(), thread="order-8")
    with monkeypatch.context() as patch:
        patch.setattr(InMemoryAnchor, "read", away)
        with pytest.raises(AnchorUnavailable):
            run.step()
    run.capture()
    assert desk.resumptions() == []


def forged(
    desk: Desk, change: Callable[[Any], Any], who: SigningKey = PEOPLE["dana"], **more: Any
) -> None:
    """Write a way back from #3 to #1 with an approval that was signed for something else."""
    question = desk.workflow().question(desk.ledger(), "order-7", 1)
    text = Approver("dana", who).approve(change(question))
    first = desk.ledger().load("order-7", 1)
    resumed = {
        "app": "invoice@1",
        "digest": first.digest,
        "reasons": ["old-checkpoint"],
        "sequence": 1,
        "statements": [text],
    }
    desk.write(done=[], resumed=resumed, **more)


BEGINS = "SP16 error: order-7 #4 went back from #3 to #1 with an approval that does not count: dana"


@pytest.mark.parametrize(
    "change",
    [
        lambda q: replace(q, thread="order-8"),
        lambda q: replace(q, store="payments"),
        lambda q: replace(q, app="invoice@2"),
        lambda q: replace(q, tools="sha256:" + "0" * 64),
        lambda q: replace(q, checkpoint=q.head),
        lambda q: replace(q, head=replace(q.head, sequence=9)),
        lambda q: replace(q, head=replace(q.head, digest="sha256:" + "0" * 64)),
        lambda q: replace(q, reasons=("tools-added",)),
    ],
)
def test_an_approval_of_something_else_is_an_error(
    desk: Desk, change: Callable[[Any], Any]
) -> None:
    forged(desk, change)
    assert desk.resumptions() == [
        (
            f"{BEGINS} signed it for something else. Look at which steps ran again, and ask whoever"
            " is said to have signed it."
        )
    ]


def test_an_approval_that_nobody_signed_is_an_error(desk: Desk) -> None:
    stranger = SigningKey.generate("ed25519")
    forged(desk, lambda question: question, stranger)
    (line,) = desk.resumptions()
    assert f"does not count: The approval names key {stranger.id}, which is no approver's." in line


def test_a_denial_that_is_passed_off_as_an_approval_is_an_error(desk: Desk) -> None:
    question = desk.workflow().question(desk.ledger(), "order-7", 1)
    assert question is not None
    no = Approver("dana", PEOPLE["dana"]).deny(question)
    first = desk.ledger().load("order-7", 1)
    told = {"app": "invoice@1", "digest": first.digest, "reasons": [], "sequence": 1}
    desk.write(done=[], resumed={**told, "statements": [no]})
    assert desk.resumptions()[0].startswith(BEGINS)


def test_a_denied_way_back_is_none(desk: Desk) -> None:
    question = desk.workflow().question(desk.ledger(), "order-7", 1)
    assert question is not None
    no = Approver("dana", PEOPLE["dana"]).deny(question)
    with pytest.raises(ResumeRefused):
        desk.workflow().resume(desk.ledger(), "order-7", 1, approvals=[no])
    assert desk.ledger().latest("order-7").sequence == 3
    assert desk.resumptions() == []


def test_steps_that_are_no_longer_done_without_a_record_of_a_resumption_are_an_error(
    desk: Desk,
) -> None:
    desk.write(done=["fetch"])
    assert desk.resumptions() == [
        (
            "SP16 error: order-7 #4 does not go on from #3, and no record says who resumed it. Find"
            " out what wrote it: a workflow of this package would have said so."
        )
    ]


def test_a_record_in_between_that_is_no_workflows_hides_no_way_back(desk: Desk) -> None:
    first = desk.ledger().load("order-7", 1)
    desk.ledger().save("order-7", {"text": "in between"}, app="invoice@1")
    desk.ledger().save("order-7", first.state, app="invoice@1")
    assert desk.resumptions() == [
        (
            "SP16 error: order-7 #5 does not go on from #4, and no record says who resumed it. Find"
            " out what wrote it: a workflow of this package would have said so."
        )
    ]


def test_a_record_in_between_that_is_no_workflows_hides_no_denial(desk: Desk) -> None:
    state = desk.ledger().latest("order-7").state
    desk.write(denied="no")
    desk.ledger().save("order-7", {"text": "in between"}, app="invoice@1")
    desk.ledger().save("order-7", state, app="invoice@1")
    assert desk.resumptions()[-1] == (
        f"SP16 error: order-7 #6 goes on, and somebody denied that at #4. {REPLACE}"
    )


def test_a_way_back_from_a_record_that_is_no_workflows_can_be_approved(desk: Desk) -> None:
    desk.ledger().save("order-7", {"text": "by mistake"}, app="invoice@1")
    desk.go_back(3)
    assert desk.resumptions() == [
        f"SP16 note: order-7 #5 went back from #4 to #3, approved by dana. {MEANT}"
    ]


def test_steps_that_left_no_record_are_an_error(desk: Desk) -> None:
    desk.write(done=["fetch", "pay", "tell"])
    assert desk.resumptions() == []
    desk.write(done=["fetch", "pay", "tell", "refund", "pay"])
    assert desk.resumptions() == [
        (
            "SP16 error: order-7 #5 is 2 steps after #4, and each leaves a record. Find out what"
            " wrote it: a workflow of this package would have said so."
        )
    ]


@pytest.mark.parametrize(
    ("app", "done", "more", "is_error"),
    [
        ("invoice@1", ["fetch", "pay"], {}, False),
        ("invoice@1", ["fetch"], {}, True),
        ("invoice@1", ["fetch", "pay", "tell"], {}, True),
        ("invoice@1", ["pay", "fetch"], {}, True),
        ("invoice@1", ["fetch", "pay"], {"asked": {"action": "pay", "arguments": {}}}, True),
        ("invoice@2", ["load"], {}, False),
        ("invoice@2", ["fetch", "pay", "tell"], {}, True),
        ("invoice@2", ["fetch"], {"denied": "no"}, True),
    ],
)
def test_a_resumption_that_says_that_other_steps_are_done_is_an_error(
    desk: Desk, app: str, done: list[str], more: State, *, is_error: bool
) -> None:
    """No step runs between the two. Another version may know fewer, by other names."""
    newest = desk.ledger().latest("order-7")
    told = {"app": "invoice@1", "digest": newest.digest, "reasons": ["version-changed"]}
    resumed = {**told, "sequence": 3, "statements": []}
    desk.write(app, done=done, resumed=resumed, origin=3, **more)
    assert (
        desk.resumptions()
        == [
            (
                "SP16 error: order-7 #4 says that it was resumed from #3, and other steps are done"
                f" there. {REPLACE}"
            )
        ]
        * is_error
    )


def test_a_resumption_of_what_no_workflow_wrote_is_an_error(desk: Desk) -> None:
    state = desk.ledger().latest("order-7").state
    junk = desk.ledger().save("order-7", {"text": "in between"}, app="invoice@1")
    told = {"app": "invoice@1", "digest": junk.digest, "reasons": [], "sequence": 4}
    resumed = {**told, "statements": []}
    desk.ledger().save("order-7", {**state, "resumed": resumed}, app="invoice@1")
    (line,) = desk.resumptions()
    assert line.startswith("SP16 error: order-7 #5 says that it was resumed from #4, and other")


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_that_goes_on_after_a_denial_is_an_error(desk: Desk, *, resumed: bool) -> None:
    desk.write(denied="no")
    denied = desk.ledger().latest("order-7")
    state = {name: value for name, value in denied.state.items() if name != "denied"}
    if resumed:
        told = {"app": "invoice@1", "digest": denied.digest, "reasons": [], "sequence": 4}
        state["resumed"] = {**told, "statements": []}
    desk.ledger().save("order-7", state, app="invoice@1")
    assert desk.resumptions() == [
        (
            "SP16 error: order-7 #4 does not go on from #3, and no record says who resumed it. Find"
            " out what wrote it: a workflow of this package would have said so."
        ),
        f"SP16 error: order-7 #5 goes on, and somebody denied that at #4. {REPLACE}",
    ]


@pytest.mark.parametrize("sequence", [0, 1, 3, 4, 9])
def test_a_resumption_of_a_record_that_is_not_there_is_an_error(desk: Desk, sequence: int) -> None:
    told = {"app": "invoice@1", "digest": "sha256:" + "0" * 64, "reasons": ["old-checkpoint"]}
    desk.write(done=[], resumed={**told, "sequence": sequence, "statements": []})
    assert desk.resumptions() == [
        (
            f"SP16 error: order-7 #4 says that it was resumed from #{sequence}, and that is not the"
            f" record there. {REPLACE}"
        )
    ]


def test_what_was_pruned_is_taken_from_the_record_that_is_left(desk: Desk) -> None:
    desk.go_back()
    desk.ledger().prune("order-7", keep=3)  # and #1 to #3 are gone
    assert desk.resumptions() == [f"{WENT_BACK}, approved by dana. {MEANT}"]
    newer = desk.workflow("2", migrations=[Migration("1", "2", dict)])
    newer.rehydrate(desk.ledger(), "order-7")
    desk.ledger().prune("order-7", keep=1)
    assert desk.versions("invoice@2") == []


def test_a_thread_that_another_version_wrote_is_a_note(desk: Desk) -> None:
    assert desk.versions("invoice@2", "refund@7") == [
        (
            "SP17 note: order-7 ends at #3, which invoice@1 wrote, and you run invoice@2. If it is"
            " not over, keep a migration from that version, or let that version end it."
        )
    ]
    assert desk.versions() == []
    assert desk.versions("refund@7") == []


def test_a_migration_explains_a_change_of_version(desk: Desk) -> None:
    newer = desk.workflow("2", migrations=[Migration("1", "2", dict)])
    newer.resume(desk.ledger(), "order-7")
    assert desk.versions("invoice@2") == []
    assert len(desk.versions("invoice@1")) == 1
    assert desk.resumptions() == []


def test_a_way_back_to_an_older_version_is_no_change_of_it(desk: Desk) -> None:
    """#4 is of version 2, and #5 goes back to #1 with version 1."""
    newer = desk.workflow("2", migrations=[Migration("1", "2", dict)])
    newer.resume(desk.ledger(), "order-7")
    desk.go_back()
    assert desk.versions("invoice@1") == []


UNEXPLAINED = (
    " upon a state of invoice@1, and no record says that it was resumed across versions. Find out"
    " what wrote it: its state may mean something else than it says."
)


@pytest.mark.parametrize(
    ("app", "shown"),
    [
        ("invoice@2", "invoice@2"),
        ("invoice", "invoice"),
        ("refund@1", "refund@1"),
        ("", "something without a name"),
    ],
)
def test_a_change_that_nothing_explains_is_an_error(desk: Desk, app: str, shown: str) -> None:
    desk.write(app)
    assert desk.versions() == [f"SP17 error: order-7 #4 was written by {shown}{UNEXPLAINED}"]


@pytest.mark.parametrize(
    ("app", "changes"),
    [
        ("invoice@2", {"reasons": ["tools-added"]}),
        ("invoice@2", {"app": "invoice@0"}),
        ("refund@2", {}),
    ],
)
def test_a_resumption_that_says_something_else_explains_nothing(
    desk: Desk, app: str, changes: State
) -> None:
    newest = desk.ledger().latest("order-7")
    told = {"app": "invoice@1", "digest": newest.digest, "reasons": ["version-changed"]}
    desk.write(app, resumed={**told, "sequence": 3, "statements": [], **changes})
    assert desk.versions() == [f"SP17 error: order-7 #4 was written by {app}{UNEXPLAINED}"]


def test_no_type_of_yours_is_needed(desk: Desk) -> None:
    """And no state is rebuilt: a pause with an argument of such a type is looked at too."""

    @dataclass
    class Secret:
        amount: int

    def ask(state: State) -> Ask:
        return Ask("pay", {"amount": Decimal(42)}, {"secret": Secret(42)})

    storage = InMemoryCheckpointStorage()
    typed = Ledger(
        storage,
        store="invoices",
        keys=Keyring(KEY),
        codec=Codec([Secret]),
        journal=InMemoryJournal(),
    )
    Workflow("invoice", [ask], version="1", gate=GATE).start(typed, thread="order-8")
    plain = Ledger(storage, store="invoices", keys=Keyring(KEY))
    assert check_resumptions(plain) == []
    (finding,) = check_versions(plain, "invoice@2")
    assert finding.where == "order-8"


def test_what_no_workflow_wrote_has_no_resumptions(desk: Desk) -> None:
    states: list[Any] = [{"done": ["a"]}, {"done": []}, [1], "text"]
    for state in states:
        desk.ledger().save("plain", state)
    desk.ledger().save("gone", 1)
    desk.ledger().delete("gone")
    assert desk.resumptions() == []
    assert desk.versions("invoice@1") == []


def test_a_state_over_the_limits_is_a_note(desk: Desk) -> None:
    desk.ledger().save("deep", list(range(99)))
    small = desk.ledger(codec=Codec(limits=Limits(items=50)))
    (finding,) = check_resumptions(small)
    assert str(finding) == (
        "SP16 note: deep does not verify, so its resumptions were not looked at. See what"
        " check_records says of it."
    )


def test_a_thread_that_does_not_verify_is_a_note(desk: Desk) -> None:
    record = desk.storage._records["order-7"][3]
    desk.storage._records["order-7"][3] = record.replace(b"42", b"43")
    rest = "does not verify, so its {} were not looked at. See what check_records says of it."
    assert desk.resumptions() == [f"SP16 note: order-7 {rest.format('resumptions')}"]
    assert desk.versions("invoice@2") == [f"SP17 note: order-7 {rest.format('versions')}"]


def test_an_anchor_that_cannot_be_asked_is_an_error(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threads(_: InMemoryAnchor, store: str) -> list[str]:
        raise ConnectionError

    monkeypatch.setattr(InMemoryAnchor, "threads", threads)
    for check in (check_resumptions, check_versions):
        (finding,) = check(desk.ledger())
        assert (finding.rule, finding.severity) == ("SP15", "error")


@pytest.mark.parametrize("app", ["", 7, None])
def test_an_app_that_is_none_is_refused(desk: Desk, app: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        check_versions(desk.ledger(), app)
    assert str(refusal.value) == (
        f'{app!r} is not the name of a workflow. Give Workflow.app: "invoice@2".'
    )
