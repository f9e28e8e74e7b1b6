"""Runs that went on: each forgery of a thief of the writer's key is found; honest ones are not.

A thief writes whatever the key can seal. What they cannot do is sign as dana or erin.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
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
    Keyring,
    Ledger,
    Limits,
    Policy,
    SigningKey,
    Tool,
    VerifyingKey,
    Workflow,
)
from safepoint.audit import Finding, audit
from safepoint.core.names import Head
from safepoint.core.record import Place, seal
from safepoint.resume.approval import Question, Reason
from safepoint.resume.asking import SPENT
from safepoint.resume.gate import May
from safepoint.resume.workflow import Call, Wanted
from tests.house import Toy
from tests.unit.desk import BANK, DANA, ERIN, WRITER, State, no, yes
from tests.unit.desk import Desk as Store

STRANGER = SigningKey.generate()
PEOPLE = Approvers({"dana": DANA.public, "erin": ERIN.public})
GATE = Gate(approvers=PEOPLE)
TWO = Gate(Policy({Reason.ASKED: 2, Reason.OLD_CHECKPOINT: 2}), PEOPLE)
LOOSE = Gate(Policy({Reason.OLD_CHECKPOINT: 0, Reason.TOOLS_ADDED: 0}), PEOPLE)
NEVER = Gate(Policy({Reason.ASKED: None, Reason.OLD_CHECKPOINT: None}), PEOPLE)
MAIL = Tool("mail", permissions=["read"])
ZERO = "sha256:" + "0" * 64
NEWER: State = {"version": "2", "migrations": {"1": dict}}


def without(key: SigningKey) -> Gate:
    people = {"dana": DANA.public, "erin": ERIN.public}
    return Gate(approvers=Approvers(people, revoked=[key]))


class Desk(Store):
    """A store with a run that asks twice, at #3 and at #6, and whoever has the writer's key."""

    def workflow(self, **options: Any) -> Workflow:
        def fetch(state: State) -> State:
            return {"amount": Decimal("42.00")}

        def ask(state: State) -> Ask:
            return Ask("pay", {"amount": state["amount"]}, within=DAY)

        def pay(state: State, call: Call) -> State:
            return {"paid": 1}

        def ask_more(state: State) -> Ask:
            return Ask("pay", {"amount": 5_000_000}, within=DAY)

        def pay_more(state: State, call: Call) -> State:
            return {"paid": 2}

        given = {"version": "1", "tools": [BANK], "gate": GATE, **options}
        return Workflow("invoice", [fetch, ask, pay, ask_more, pay_more], **given)

    def begin(self, thread: str = "order-7", **options: Any) -> Any:
        return self.workflow(**options).begin(self.ledger(), thread=thread)

    def asks(self, thread: str = "order-7") -> str:
        """Let a run pause at #3, and return dana's yes."""
        return yes(self.paused(thread).question)

    def resume(self, *texts: str, to: int | None = None, **options: Any) -> Any:
        workflow = self.workflow(**options)
        return workflow.rehydrate(self.ledger(), "order-7", to, approvals=texts)

    def write(self, tools: list[Tool] | None = None, app: str | None = None, **more: Any) -> None:
        """Append a record as whoever has the writer's key would."""
        last = self.ledger().latest("order-7")
        kept = {k: v for k, v in last.state.items() if k in ("done", "state", "tools")}
        digest = last.tools
        if tools is not None:
            made = Workflow("invoice", [_step], tools=tools).tools
            kept["tools"], digest = made.described, made.digest
        app = last.app if app is None else app
        self.ledger().save("order-7", {**kept, **more}, app=app, tools=digest)

    def junk(self, state: Any = "in between", app: str = "invoice@1") -> None:
        self.ledger().save("order-7", state, app=app)

    def asked(self, sequence: int | None = None, **options: Any) -> Question:
        """Return what is written down of a resume, whether or not people are asked."""
        wanted = Wanted(self.workflow(**options), self.ledger(), "order-7", sequence)
        question = wanted.question()
        assert question is not None
        return question

    def note(self, question: Question, *texts: str) -> None:
        """Note that a question was answered with these texts, as whoever has the key would."""
        value = {"question": question.text, "statements": list(texts)}
        self.ledger().note("order-7", value, label=SPENT)

    def step(self, *done: str, **more: Any) -> None:
        """Append what the next step leaves, or one after others."""
        last = self.ledger().latest("order-7").state["done"]
        self.write(done=[*done] if done else STEPS[: len(last) + 1], **more)

    def prune(self, keep: int = 1) -> None:
        """Remove what is older, as a thief does: a prune of the house keeps what was asked."""
        self.ledger().verify("order-7", anchor=True)
        states = [each.sequence for each in self.ledger().history("order-7")]
        ledger = self.ledger()
        ledger._cut(ledger._view.at("order-7", states[-keep:][0]))

    def found(self, gate: Gate = GATE) -> list[str]:
        """Return what is found under the rules of resuming."""
        return [each.id for each in self.checked(self.ledger(), gate)]

    def checked(self, ledger: Ledger, gate: Gate = GATE) -> list[Finding]:
        found = audit(ledger, gate=gate)
        return [each for rule in RESUMING for each in found if each.rule == rule]

    def unverified(self) -> set[str]:
        """Return what is found by one who knows nobody that approves."""
        found = audit(self.ledger())
        return {each.id for each in found if each.rule in RESUMING}


RESUMING = ("SP19", "SP18", "SP16", "SP17")
STEPS = ["fetch", "ask", "pay", "ask_more", "pay_more"]


def _step(state: State) -> None:
    pass


@pytest.fixture
def desk() -> Desk:
    return Desk()


# --- what a thief writes


def answered(desk: Desk) -> str:
    text = desk.asks()
    desk.resume(text).finish()
    return text


def denied(desk: Desk) -> str:
    desk.asks()
    text = no(desk.question())
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    return text


def forge(change: Callable[[Any], Any] = lambda q: q, key: SigningKey = DANA) -> Any:
    """Go on with a yes to something else, or of somebody else."""

    def plant(desk: Desk) -> None:
        desk.asks()
        question = desk.asked()
        desk.note(question, yes(change(question), key))
        desk.step()

    return plant


def lie(**fields: Any) -> Any:
    """Go on with a yes to a question that the run did not ask."""

    def plant(desk: Desk) -> None:
        desk.asks()
        question = replace(desk.asked(), **fields)
        desk.note(question, yes(question))
        desk.step()

    return plant


def resumed(*done: str, write: State | None = None, prune: int = 0, **fields: Any) -> Any:
    """Say that the run went on, as another version, after its first step."""

    def plant(desk: Desk) -> None:
        desk.begin().step()
        desk.note(replace(desk.asked(**NEWER), **fields))
        desk.step(*done, **{"app": "invoice@2", **(write or {})})
        if prune:
            desk.prune(prune)

    return plant


def after(begun: Callable[[Desk], Any], *acts: Callable[[Desk, Any], Any]) -> Any:
    """Let a run come so far, and then do more."""

    def plant(desk: Desk) -> None:
        so_far = begun(desk)
        for act in acts:
            act(desk, so_far)

    return plant


def wider(*tools: Tool) -> Any:
    return after(Desk.begin, lambda d, _: d.resume(gate=LOOSE, tools=[BANK, *tools]).step())


def outside(*tools: Tool) -> Any:
    return after(Desk.begin, lambda d, _: d.write(tools=list(tools)))


def of_the_first_day(desk: Desk) -> None:
    text = desk.asks()
    last, question = desk.ledger().latest("order-7"), desk.asked()
    record, _ = seal(
        Codec().encode({"question": question.text, "statements": [text]}),
        Place("invoices", "", "order-7", 4),
        WRITER,
        created=datetime(1, 1, 1, tzinfo=UTC),
        kind="note",
        label=SPENT,
        previous=last.digest,
    )
    desk.storage.append("order-7", 4, record)
    desk.step()


def late(seconds: int) -> Any:
    def plant(desk: Desk) -> None:
        desk.asks()
        then = datetime.now(UTC) - timedelta(hours=1, seconds=seconds)
        desk.note(desk.asked(), Approver("dana", DANA).approve(desk.asked(), now=then))
        desk.step()

    return plant


def used_again(desk: Desk) -> None:
    """The yes to 42, for the 5,000,000 after it."""
    desk.asks()
    question, text = desk.asked(), yes(desk.asked())
    desk.resume(text).finish()
    desk.note(question, text)
    desk.step()


def narrowed_and_back(desk: Desk) -> None:
    """Back to more tools, which nobody approved, and what they were is gone."""
    desk.begin()
    for _ in range(2):
        desk.resume(tools=[]).step()
    desk.note(desk.asked(1))
    desk.step("fetch", tools=[BANK])
    desk.prune(2)


def of_a_framework(desk: Desk) -> None:
    """It saves more states while it waits for people, and then prunes what it asked about."""
    at = desk.ledger().save("order-7", "asks")
    head = Head(at.sequence, at.digest)
    asked = replace(desk.starts("e"), thread="order-7", checkpoint=head, head=head)
    desk.junk()
    desk.note(asked, yes(asked))
    desk.prune()


DAY = timedelta(days=1)
ON: Any = lambda d, _: d.step()  # noqa: E731
USED = after(Desk.asks, lambda d, t: d.resume(t).step())
WENT_BACK = after(Desk.asks, lambda d, _: d.resume(yes(d.question(1)), to=1).step())
LET_BACK = after(Desk.asks, lambda d, _: d.resume(to=1, gate=LOOSE).step())
# What a thief does, by what is found.
FORGED: dict[str, tuple[str, Callable[[Desk], Any]]] = {
    "a pause left out": ("SP19.unanswered", after(Desk.asks, ON)),
    "noted without an answer": (
        "SP19.not-counted SP19.too-few",
        after(Desk.asks, lambda d, _: d.note(replace(d.asked(), until="")), ON),
    ),
    "signed by a stranger": ("SP19.not-counted SP19.too-few", forge(key=STRANGER)),
    "with nobody to check it": ("SP19.not-counted SP19.too-few", USED),
    "ended early": ("SP19.denied", after(Desk.asks, lambda d, _: d.note(d.asked()), ON)),
    "on after a no": ("SP19.denied", after(denied, ON)),
    "used again": ("SP19.not-counted SP19.unanswered", used_again),
    "of another end": ("SP19.not-counted SP19.unanswered", lie(head=Head(3, ZERO))),
    "too few": ("SP19.too-few", USED),
    "what nobody may approve": ("SP19.too-few", USED),
    "back, and nobody approved it": ("SP19.too-few", LET_BACK),
    "a new tool": ("SP19.too-few", wider(MAIL)),
    "an amount that takes two": ("SP19.not-allowed", USED),
    "later": ("SP19.late", late(61)),
    "of the first day": ("SP19.late", of_the_first_day),
    "by a key that was revoked": ("SP19.revoked", USED),
    "a minute late": ("", late(59)),
    "another version": ("", resumed()),
    "a new tool, as the policy lets": ("", wider(MAIL)),
    "from #9": ("SP16.not-there", lie(checkpoint=Head(9, ZERO))),
    "of another amount": ("SP19.not-counted", lie(arguments={"amount": 5_000_000})),
    "of a tenant": ("SP19.not-counted SP19.not-counted", lie(tenant="acme")),
    "another version, for another reason": (
        "SP19.not-counted SP17.unexplained",
        resumed(reasons=("tools-added",)),
    ),
    "another workflow": ("SP17.unexplained", resumed(app="refund@2", write={"app": "refund@2"})),
    "another version, not said": (
        "SP17.unexplained",
        after(Desk.begin, lambda d, _: d.step(app="invoice@2")),
    ),
    "behind junk": (
        "SP16.unbegun",
        after(Desk.junk, lambda d, _: d.junk({"done": [], "state": {"amount": 5}})),
    ),
    "after junk": (
        "SP16.no-resume SP16.no-run",
        after(
            Desk.begin, lambda d, _: d.junk(), lambda d, _: d.junk({"done": ["fetch"], "state": {}})
        ),
    ),
    "steps left out": ("SP16.no-resume", after(Desk.begin, lambda d, _: d.write(done=STEPS[:2]))),
    "back": ("SP16.back", WENT_BACK),
    "back, as the policy lets anybody": ("SP16.back", LET_BACK),
    "back, pruned": ("SP19.first-kept SP19.pruned", after(WENT_BACK, lambda d, _: d.prune(2))),
    "a new tool outside of the gate": ("SP18.wider SP16.no-resume", outside(BANK, MAIL)),
    "back to tools that were pruned": ("SP19.first-kept SP19.pruned SP18.wider", narrowed_and_back),
    "of a framework, pruned since": ("SP19.pruned", of_a_framework),
    "pruned": ("SP19.first-kept", after(USED, lambda d, _: d.prune())),
}
# Whom the audit is told of, where it is not dana or erin, one of them, within an hour.
GATES: dict[str, Gate] = {
    "too few": TWO,
    "what nobody may approve": NEVER,
    "an amount that takes two": Gate(Policy(may={"pay": [May(people=2)]}), PEOPLE),
    "by a key that was revoked": without(DANA),
    "with nobody to check it": Gate(),
    "back, as the policy lets anybody": LOOSE,
    "a new tool, as the policy lets": LOOSE,
}


@pytest.mark.parametrize("name", FORGED)
def test_what_a_thief_of_the_writers_key_forges_is_found(desk: Desk, name: str) -> None:
    found, plant = FORGED[name]
    plant(desk)
    assert " ".join(desk.found(GATES.get(name, GATE))) == found


# --- what is honest


@pytest.mark.parametrize("seed", range(6))
def test_an_honest_history_of_any_kind_has_no_error_and_no_warning(seed: int) -> None:
    """Answers of all kinds, ways back, versions, tools, prunes, notes, approvals that lapse.

    Beside it are a thread that was deleted, and one that no workflow wrote.
    """
    desk = Desk()
    desk.asks("e")
    desk.ledger().delete("e")
    for state in ({"text": "no workflow wrote this"}, {"done": ["a"]}, [1], "text"):
        desk.ledger().save("notes", state)
    chance = random.Random(seed)  # noqa: S311  it only mixes what is done
    signers = {"dana": DANA, "erin": ERIN}
    tools: list[list[Tool]] = [[], [BANK], [BANK, MAIL]]
    gates = [GATE, GATE, TWO, without(DANA)]
    version, used, gate, ledger = 1, tools[0], GATE, desk.ledger()
    desk.begin(tools=used)
    done = 0
    for _ in range(16):
        workflow = desk.workflow(
            version=str(version), tools=used, gate=gate, migrations={"1": dict, "2": dict}
        )
        what = chance.choice(["on", "on", "yes", "yes", "no", "back", "other", "prune"])
        to = chance.randint(1, ledger.latest("order-7").sequence) if what == "back" else None
        with suppress(CheckpointError):
            if what == "other":
                version, used = chance.randint(version, 3), chance.choice(tools)
                gate = chance.choice(gates)
            elif what == "prune":
                desk.prune(chance.randint(2, 5))
            else:
                question = None if what == "on" else workflow.question(ledger, "order-7", to)
                names = gate.approvers.names if question is not None else ()
                answers = [yes(question, signers[name], name) for name in names]
                answers = [no(question)] if what == "no" and question is not None else answers
                run = workflow.rehydrate(ledger, "order-7", to, approvals=answers)
                if chance.random() < 0.6:
                    run.step()
            done += 1
    assert done > 3
    notes = {"SP16.back", "SP19.first-kept", "SP19.pruned"}
    assert {*desk.found(), *desk.unverified()} <= notes


def test_a_wait_for_people_that_never_ends_is_found() -> None:
    store = Store()
    store.paused()
    assert [each.id for each in audit(store.ledger(), gate=GATE, rule="SP31")] == ["SP31.no-end"]


# --- what cannot be read


def test_a_thread_that_does_not_verify_is_an_error(desk: Desk) -> None:
    desk.asks()
    records = desk.storage._records["", "order-7"]
    genuine, records[2] = records[2], records[2].replace(b"42.00", b"99.00")
    assert [each.id for each in audit(desk.ledger(), rule="SP12")] == ["SP12.seal-broken"]
    records[2] = genuine
    assert desk.found() == []
    small = desk.ledger(codec=Codec(limits=Limits(items=3)))
    assert [each.rule for each in audit(small, gate=GATE)][:1] == ["SP11"]
    del records[3]
    assert audit(desk.ledger())[0].id == "SP13.rolled-back"


def test_what_is_encrypted_is_verified_and_is_not_said_to_be_right(desk: Desk) -> None:
    """Nor does a thief hide what came before by a record that says it is encrypted."""

    def found(**options: Any) -> list[tuple[str, str]]:
        ledger = desk.ledger(**options)
        every = [*desk.checked(ledger), *audit(ledger, rule="SP10"), *audit(ledger, rule="SP12")]
        return [(each.id, each.severity) for each in every]

    def hidden(severity: str) -> list[tuple[str, str]]:
        return [("SP10.hidden", severity)]

    closed = partial(desk.ledger, cipher=Toy())
    run = desk.workflow().start(closed(), thread="order-7")
    desk.workflow().resume(closed(), "order-7", approvals=[yes(run.question)])
    assert (found(cipher=Toy()), found()) == ([], hidden("warning"))
    assert found(cipher=Toy("f" * 16)) == []  # the record names the key
    [first] = audit(desk.ledger(), rule="SP10")
    assert first.what.startswith("6 of the states of order-7 could not be looked into")
    forged = {"done": ["fetch", "ask", "pay", "ask_more", "pay_more"], "state": {}}
    desk.ledger().save("order-7", forged, app="invoice@1")
    assert found(cipher=Toy()) == hidden("error")  # it chose plaintext
    records = desk.storage._records["", "order-7"]
    records[2] = records[2][:-9] + b"x" + records[2][-8:]
    assert ("SP12.seal-broken", "error") in found()


# --- the approvers' keys


@pytest.mark.parametrize("place", ["people/secret", "keys/link"])
def test_an_approvers_secret_on_the_workers_machine_is_an_error(tmp_path: Path, place: str) -> None:
    """A file that is no key, because others can read it, is a secret all the same."""
    for each in ("people", "away"):
        (tmp_path / each).mkdir(mode=0o700)
    DANA.public.to_file(tmp_path / "people/dana.pub")
    DANA.to_file(tmp_path / "away/dana")
    keys = Keyring(SigningKey.from_file(tmp_path / "keys/writer.key", create=True))
    ledger = Ledger(FileCheckpointStorage(tmp_path / "state"), store="invoices", keys=keys)
    ERIN.to_file(tmp_path / "keys/somebody-else")
    gate = Gate(approvers=Approvers({"dana": VerifyingKey.from_file(tmp_path / "people/dana.pub")}))
    if place.endswith("link"):
        (tmp_path / place).symlink_to(tmp_path / "away/dana")
    else:
        text = (tmp_path / "away/dana").read_text()
        (tmp_path / place).write_text(f"# for the worker\nKEY={text}KEY={text}")
        (tmp_path / place).chmod(0o666)
    assert [each.id for each in audit(ledger, gate=gate, rule="SP19")] == ["SP19.secret-here"]


def test_an_approvers_key_on_the_writers_ring_is_an_error(desk: Desk) -> None:
    keys = Keyring(WRITER, verify=[DANA.public])
    [finding] = audit(Ledger(desk.storage, store="invoices", keys=keys), gate=GATE, rule="SP19")
    assert finding.id == "SP19.on-keyring"
