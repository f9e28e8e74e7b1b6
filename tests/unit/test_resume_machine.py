"""Any order of steps, answers, resumes, crashes and attacks: money moves only as people said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from safepoint import CheckpointError, Codec, Ledger, ToolSet
from safepoint.core.names import Head
from safepoint.core.record import Kind, Place, seal
from safepoint.resume.approval import Question
from safepoint.resume.workflow import Run
from tests.unit.answer_account import OPERATORS, Desk, Shelf
from tests.unit.answer_account import PEOPLE as PERSONS
from tests.unit.answer_account import workflow_of as answering
from tests.unit.resume_account import (
    HOUR,
    KEYS,
    PEOPLE,
    STEPS,
    TOOLS,
    Death,
    Died,
    Kept,
    Signed,
    Wish,
    World,
    version_of,
    workflow_of,
)
from tests.unit.resume_helpers import STORE, WRITER

NEVER = timedelta()
slots = st.integers(0, 1)
workers = st.integers(0, 1)
variants = st.sampled_from(["1", "1", "2", "narrow", "wide"])
verdicts = st.sampled_from(["approved", "approved", "approved", "denied"])
deaths = st.sampled_from(
    [
        *[None] * 16,
        *[("pay", "after", 1)] * 3,
        *[(what, when, 1) for what in ("append", "anchor", "pay") for when in ("before", "after")],
        *[(what, "after", 2) for what in ("append", "anchor", "journal")],
        *[("journal", "before", number) for number in (1, 2, 3, 4, 5)],
    ]
)
"""None to live, or when to die: at the n-th change of a kind, right before or right after it."""
counts = st.integers(0, 3)
back = st.sampled_from([None, None, None, None, 0, 1, 2, 3])
"""How many checkpoints to go back; None for a resume that names none."""
voices = st.lists(st.tuples(st.sampled_from(list(PERSONS)), verdicts, st.booleans()), max_size=2)
"""Who answers what, and whether they put it where workers find it."""
ATTACKS = {"SealBroken", "RolledBack", "Unavailable"}
"""What nobody is told whom nobody attacks."""


@dataclass(frozen=True)
class Plan:
    """Who does something to which thread, as what, going back how far, and when they die."""

    worker: int
    slot: int
    variant: str
    death: Death | None
    count: int
    steps: int | None


plans = st.builds(
    Plan, worker=workers, slot=slots, variant=variants, death=deaths, count=counts, steps=back
)


@dataclass
class Worker:
    """A process: its ledger, and the runs that it has in its hands."""

    ledger: Ledger
    runs: dict[str, Run] = field(default_factory=dict)


def opened(world: World) -> Worker:
    """A process that has just begun."""
    return Worker(
        Ledger(
            world.storage,
            store=STORE,
            keys=KEYS,
            anchor=world.anchor,
            journal=world.journal,
        )
    )


class Resuming(RuleBasedStateMachine):
    """Two workers, two threads, two approvers, somebody who writes the storage, and a thief."""

    @initialize(
        quorum=st.integers(1, 2),
        amounts=st.tuples(*[st.integers(1, 2)] * 2),
    )
    def begin(self, quorum: int, amounts: tuple[int, int]) -> None:
        self.world = World()
        self.world.quorum = quorum
        self.workflows = {variant: workflow_of(self.world, variant) for variant in TOOLS}
        self.workers = [self.opened(), self.opened()]
        self.tampered: set[str] = set()
        self.stolen: set[str] = set()
        self.snapshots: list[dict[str, dict[int, bytes]]] = []
        self.threads = ["", ""]
        self.start(0, amounts[0], 2)
        self.start(1, amounts[1], 1)

    def opened(self) -> Worker:
        return opened(self.world)

    def start(self, slot: int, amount: int, steps: int) -> str:
        """Start a thread, in the place of one that is over."""
        thread = self.threads[slot] = f"order-{len(self.world.written) + 1}"
        run = self.workflows["1"].begin(self.opened().ledger, thread, amount=amount)
        for _ in range(steps):
            run.step()
        self.tell(thread, run.head)
        return thread

    def attempt(self, plan: Plan, action: Callable[[Worker], Any], *, must: bool = False) -> None:
        """Let a process do something. It may be refused, unless it must not; or it may die."""
        world = self.world
        world.death = plan.death
        try:
            action(self.workers[plan.worker])
        except Died:
            self.workers[plan.worker] = self.opened()
        except CheckpointError:
            if must and plan.death is None:
                raise
        finally:
            world.death, world.is_dead, world.wish, world.clock = None, False, None, world.now
            if world.verdict is not None:
                raise world.verdict
            if world.was_rewritten:
                self.workers, world.was_rewritten = [self.opened(), self.opened()], False

    def is_sound(self, thread: str) -> bool:
        """Nothing was done to it, so nothing may be refused that is right."""
        return thread not in self.tampered | self.stolen and not self.world.is_journal_down

    def tell(self, thread: str, sequence: int) -> None:
        """Somebody was told of this checkpoint, and so of all before it: what is anchored stays."""
        kept, anchored = self.world.written[thread], self.world.anchor.read(STORE, thread)
        assert anchored is not None
        for number in range(1, min(sequence, anchored.sequence) + 1):
            kept[number] = replace(kept[number], told=True)

    def sequence(self, thread: str, steps: int | None) -> int | None:
        if steps is None:
            return None
        kept, first = self.world.written[thread], self.pruned(thread) + 1
        states = [number for number in sorted(kept) if number >= first and not kept[number].is_note]
        return states[-1 - min(steps, len(states) - 1)] if states else None

    def pruned(self, thread: str) -> int:
        """How many checkpoints are gone."""
        base = self.world.storage.base(thread)
        return 0 if base is None else base[0] - 1

    def sign(self, question: Question, who: str, verdict: str, ago: timedelta = NEVER) -> Signed:
        person, then = PEOPLE[who], self.world.now - ago
        make = person.approve if verdict == "approved" else person.deny
        text = make(question, now=then, lifetime=HOUR)
        signed = Signed(text, question, who, verdict, then + HOUR)
        self.world.signed.append(signed)
        return signed

    def resume(self, plan: Plan, wish: Wish, *, must: bool = False) -> None:
        """Resume, hold what comes against the account, and run some steps."""
        world, thread = self.world, wish.thread

        def action(process: Worker) -> None:
            world.wish, world.clock = wish, wish.now
            run = self.workflows[wish.variant].rehydrate(
                process.ledger,
                thread,
                wish.sequence,
                approvals=[signed.text for signed in wish.signed],
                now=wish.now,
            )
            world.wish = None
            state = world.state(thread, world.end(thread))
            is_end = wish.sequence in (None, state.head.sequence)
            source = state if is_end else world.written[thread][wish.sequence or 0]
            if run.head != state.head.sequence:  # cut off before the anchor saw it
                assert thread in self.tampered
                return
            same = {**source.payload["state"], "migrations": 0}
            assert {**run.state, "migrations": 0} == same, "goes on from another state"
            assert list(run.done) == source.payload["done"]
            assert run.denied == (is_end and world.is_over(thread))
            assert not run.paused, "went on from a question without an answer"
            anchored = world.anchor.read(STORE, thread)
            assert anchored is not None
            assert anchored.sequence == world.end(thread), "resumed what can be cut off unnoticed"
            self.tell(thread, world.end(thread))
            process.runs[thread] = run
            for _, checkpoint in zip(range(plan.count), run, strict=False):
                self.tell(thread, checkpoint.sequence)

        self.attempt(plan, action, must=must)

    # What people and workers do.

    @rule(plan=plans)
    def go_on(self, plan: Plan) -> None:
        """As many people as it needs look at it now, and approve. If it is over, begin another."""
        self.heal()
        thread = self.threads[plan.slot]
        last = self.world.state(thread, self.world.end(thread))
        if self.world.is_over(thread) or last.payload["done"] == STEPS:
            thread = self.start(plan.slot, len(self.world.written), 1 + plan.slot)
        variant = self.world.state(thread, self.world.end(thread)).version
        self.answered(replace(plan, variant=variant, steps=None))

    @rule(plan=plans, verdict=verdicts, heals=st.booleans())
    def go_elsewhere(self, plan: Plan, verdict: str, heals: bool) -> None:
        """Back, on to another version, with other tools; or somebody says no."""
        if heals:
            self.heal()
        self.answered(plan, verdict=verdict)

    @rule(plan=plans, fault=st.sampled_from(["late", "missing"]))
    def go_on_wrongly(self, plan: Plan, fault: str) -> None:
        """It is too late, or somebody is missing."""
        self.answered(replace(plan, death=None, count=1), fault=fault)

    def answered(self, plan: Plan, *, verdict: str = "approved", fault: str = "") -> None:
        """Ask people, and resume with what they say. If all is right, nothing stands in the way."""
        thread, variant = self.threads[plan.slot], plan.variant
        sequence, must = self.sequence(thread, plan.steps), self.is_sound(thread)
        end = self.world.state(thread, self.world.end(thread))
        kept = self.world.written[thread][sequence] if sequence else end
        question = self.question(thread, variant, sequence)
        noes = [each for each in self.world.notes(thread, end) if each.is_denied]
        signed: list[Signed] = []
        if question is not None:
            people = list(PEOPLE)[: self.world.quorum if verdict == "approved" else 1]
            signed = [self.sign(question, who, verdict) for who in people]
            if fault == "missing":
                signed.pop()
        ends = "asked" in kept.payload and kept is end
        must = must and not fault and (verdict == "approved" or not signed or ends)
        must = must and not self.leads_nowhere(kept, variant) and not noes
        now = self.world.now + (HOUR if fault == "late" else timedelta())
        wish = Wish(thread, sequence, variant, tuple(signed), now)
        self.resume(plan, wish, must=must)

    def leads_nowhere(self, kept: Kept, variant: str) -> bool:
        """No migration leads back to the first version."""
        return kept.version == "2" != variant

    def question(self, thread: str, variant: str, sequence: int | None) -> Question | None:
        """What somebody is shown who looks at the store from a process of their own."""
        try:
            return self.workflows[variant].question(self.opened().ledger, thread, sequence)
        except CheckpointError:
            end = self.world.end(thread)
            kept = (
                self.world.written[thread][sequence] if sequence else self.world.state(thread, end)
            )
            assert not self.is_sound(thread) or self.leads_nowhere(kept, variant)
            return None

    @rule(
        plan=plans,
        picks=st.lists(st.integers(0, 5), max_size=2),
        minutes=st.sampled_from([0, 0, 0, 59, 61]),
    )
    def resume_anyhow(self, plan: Plan, picks: list[int], minutes: int) -> None:
        """With whatever texts there are: old ones, those of another thread."""
        thread = self.threads[plan.slot]
        signed = tuple(self.picked(picks))
        now = self.world.now + timedelta(minutes=minutes)
        wish = Wish(thread, self.sequence(thread, plan.steps), plan.variant, signed, now)
        self.resume(plan, wish)

    def picked(self, picks: list[int]) -> Iterator[Signed]:
        """The newest texts are the likeliest to be taken."""
        return (self.world.signed[-1 - pick] for pick in picks if pick < len(self.world.signed))

    @rule(plan=plans, who=st.sampled_from(list(PEOPLE)), verdict=verdicts)
    def answer(self, plan: Plan, who: str, verdict: str) -> None:
        """Somebody signs what they see, for later."""
        thread = self.threads[plan.slot]
        question = self.question(thread, plan.variant, self.sequence(thread, plan.steps))
        if question is not None:
            self.sign(question, who, verdict)

    @rule(plan=plans)
    def step(self, plan: Plan) -> None:
        """Go on with a run that a process has in its hands, whatever happened since."""
        thread = self.threads[plan.slot]
        run = self.workers[plan.worker].runs.get(thread)
        if run is None or run.next is None:
            return
        state = self.world.state(thread, self.world.end(thread))
        is_current = run.head == state.head.sequence and not run.paused

        def action(process: Worker) -> None:
            self.tell(thread, run.step().sequence)

        self.attempt(plan, action, must=is_current and self.is_sound(thread))

    @rule(plan=plans, keep=st.integers(1, 3))
    def prune(self, plan: Plan, keep: int) -> None:
        """Forget what is old. Nothing that is still to be done is in the way of it."""
        thread = self.threads[plan.slot]

        def action(process: Worker) -> None:
            process.ledger.prune(thread, keep=keep)

        self.attempt(plan, action, must=self.is_sound(thread))

    @rule(plan=plans)
    def crash(self, plan: Plan) -> None:
        """Begin the process anew, and look at everything with fresh eyes."""
        self.workers[plan.worker] = self.opened()
        self.look(self.threads[plan.slot])

    def look(self, thread: str) -> None:
        """Whoever reads gets what was written, or is told."""
        written, ledger = self.world.written[thread], self.opened().ledger
        try:
            found = [Head(each.sequence, each.digest) for each in ledger.history(thread)]
            count = ledger.verify(thread)
        except CheckpointError:
            if thread not in self.tampered:
                raise
            return
        pruned = self.pruned(thread)
        kept = [written[number] for number in sorted(written)][pruned : pruned + count]
        assert len(kept) == count
        assert found == [each.head for each in kept if not each.is_note]
        told = max((number for number, each in written.items() if each.told), default=0)
        assert pruned + count >= told

    # What somebody does who can write the storage.

    @rule(
        slot=slots,
        other=slots,
        how=st.sampled_from(["edit", "cut", "cut", "move", "snapshot", "restore", "restore"]),
        steps=st.integers(0, 3),
        at=st.integers(0, 2000),
    )
    def tamper(self, slot: int, other: int, how: str, steps: int, at: int) -> None:
        thread = self.threads[slot]
        records = self.world.storage.copied
        own, theirs = records.get(thread, {}), records.get(self.threads[other], {})
        numbers, tampered = sorted(own), {thread}
        if how == "snapshot":
            self.snapshots.append(records)
            return
        if how == "restore":
            if not self.snapshots:
                return
            records, tampered = self.snapshots[at % len(self.snapshots)], set(self.world.written)
        elif how == "cut":
            for number in numbers[-1 - steps :]:
                del own[number]
        elif how == "move" and own and theirs:
            own[numbers[-1] + steps % 2] = theirs[sorted(theirs)[-1 - at % len(theirs)]]
        elif how == "edit" and own:
            record = bytearray(own[numbers[-1 - steps % len(numbers)]])
            record[at % len(record)] ^= 1
            own[numbers[-1 - steps % len(numbers)]] = bytes(record)
        self.world.storage.replace(records)
        self.tampered |= tampered

    # What a thief of the writer's key does.

    @rule(
        plan=plans,
        done=st.sampled_from([None, None, None, 0, 1, 2, 3]),
        pick=st.integers(0, 2),
        kind=st.sampled_from(["taken", "taken", "answered", "answered", "expired", "asked"]),
        forges=st.sampled_from(
            ["", "", "state", "dated", "pruned", "note", "note", "deleted", "tenant"]
        ),
    )
    def write_with_the_stolen_key(
        self, plan: Plan, done: int | None, pick: int, kind: str, forges: str
    ) -> None:
        """Go on from the end, as any version and kind, with what people signed some time."""
        thread, world = self.threads[plan.slot], self.world
        self.heal()
        end = world.end(thread)
        last, state = world.written[thread][end], world.state(thread, end)
        version, tools = version_of(plan.variant), ToolSet(TOOLS[plan.variant])
        if kind in ("answered", "expired"):
            question, pick = self.question(thread, plan.variant, None), 0
            ago = 2 * HOUR if kind == "expired" else NEVER
            for who in PEOPLE:
                if question is not None:
                    self.sign(question, who, "approved", ago)
        taken: list[Signed] = []
        for who in list(PEOPLE)[: world.quorum]:
            own = [each for each in world.signed if each.by == who and each.is_yes(thread)]
            taken += own[-1 - pick : len(own) - pick]
        count = len(state.payload["done"]) if done is None else done
        payload: dict[str, Any] = {
            "done": STEPS[:count],
            "state": state.payload["state"],
            "tools": tools.described,
        }
        if forges in ("state", "note"):
            payload["state"] = {**state.payload["state"], "amount": 5_000_000, "payee": "mallory"}
        if kind == "asked":
            asked = {"action": "pay", "arguments": {"amount": 5_000_000}}
            payload["asked"] = {**asked, "next": "pay", "within": 0}
        spends = bool(taken) and kind != "asked" and forges in ("", "dated")
        if spends:
            shown = self.question(thread, plan.variant, None) if plan.count % 2 else None
            question = shown or taken[0].question
            payload = {"question": question.text, "statements": [each.text for each in taken]}
        fits = taken[0].expires - HOUR if taken and forges != "dated" else datetime.now(UTC)
        app, tenant = f"invoice@{version}", "acme" if forges == "tenant" else ""
        is_note = spends or forges == "note"
        of: Kind = "note" if is_note else "deleted" if forges == "deleted" else "state"
        label = "spent/" if is_note else ""
        head = self.put(thread, last.head, payload, app, tools, fits, of, tenant, label)
        self.workers[plan.worker] = self.opened()
        if forges in ("deleted", "tenant"):
            self.tampered.add(thread)
            self.must_refuse(plan, "went on from what is no state of this thread")
            self.heal()  # or else somebody who prunes lets the anchor see that it was deleted
            return
        self.stolen.add(thread)
        record = world.storage.read(thread, head.sequence)
        world.written[thread][head.sequence] = world.opened(thread, head.sequence, record)
        if forges == "pruned":
            self.cut_with_the_stolen_key(plan.slot, plan.count)
        wish = Wish(thread, None, plan.variant, (), world.now)
        self.resume(replace(plan, death=None), wish)

    def put(
        self,
        thread: str,
        after: Head | None,
        payload: dict[str, Any],
        app: str,
        tools: ToolSet,
        created: datetime,
        kind: Kind = "state",
        tenant: str = "",
        label: str = "",
    ) -> Head:
        """Seal a record by hand, and put it after another, whatever is there."""
        record, opened = seal(
            b"null" if kind == "deleted" else Codec().encode(payload),
            Place(STORE, tenant, thread, after.sequence + 1 if after else 1),
            WRITER,
            created=created,
            kind=kind,
            label=label,
            previous=None if after is None else after.digest,
            app=app,
            tools=tools.digest,
        )
        self.world.storage.put(thread, opened.header.sequence, record)
        return opened.head

    @rule(slot=slots, steps=st.integers(0, 3))
    def cut_with_the_stolen_key(self, slot: int, steps: int) -> None:
        """Prune whatever is in the way, and leave a genuine base."""
        thread, storage = self.threads[slot], self.world.storage
        numbers = sorted(storage.copied.get(thread, {}))
        if len(numbers) <= steps or thread in self.tampered:
            return
        first = numbers[-1 - steps]
        record, _ = seal(
            b"null",
            Place(STORE, "", thread, first),
            WRITER,
            created=datetime.now(UTC),
            kind="base",
            previous=self.world.written[thread][first - 1].head.digest if first > 1 else None,
        )
        storage.prune(thread, first, record)
        self.tampered.add(thread)

    @rule(plan=plans, steps=st.integers(0, 3), more=st.integers(0, 2))
    def begin_anew_with_the_stolen_key(self, plan: Plan, steps: int, more: int) -> None:
        """Write another past, from some point on, up to beyond the end: the anchor knows better."""
        self.heal()
        thread, world = self.threads[plan.slot], self.world
        anchored = world.anchor.read(STORE, thread)
        if anchored is None:
            return
        first = max(anchored.sequence - steps, 1)
        kept, head = world.written[thread], None
        for number in range(first, world.end(thread) + 1 + more):
            was = world.state(thread, min(number, world.end(thread)))
            head = kept[number - 1].head if number > 1 and number == first else head
            state = {**was.payload["state"], "amount": 5_000_000}
            payload, app = {**was.payload, "state": state}, f"invoice@{was.version}"
            head = self.put(thread, head, payload, app, was.tools, datetime.now(UTC))
        self.tampered.add(thread)
        self.workers[plan.worker] = self.opened()
        self.must_refuse(plan, "what was anchored was rewritten")

    def must_refuse(self, plan: Plan, otherwise: str) -> None:
        """Resume, and be refused."""
        process = self.workers[plan.worker]
        try:
            self.workflows[plan.variant].rehydrate(process.ledger, self.threads[plan.slot])
        except CheckpointError:
            return
        raise AssertionError(otherwise)

    @rule()
    def fill_the_disk_of_the_journal(self) -> None:
        self.world.is_journal_down = True

    def heal(self) -> None:
        """Put back what was there. Processes that saw something else begin anew."""
        world = self.world
        if self.tampered:
            world.storage.restore(
                {
                    thread: {number: each.record for number, each in kept.items()}
                    for thread, kept in world.written.items()
                }
            )
            self.tampered.clear()
            self.workers = [self.opened(), self.opened()]
        world.is_journal_down = False

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.heal()
        for thread in self.world.written:
            self.look(thread)
            left = self.world.end(thread) - self.pruned(thread)
            assert self.opened().ledger.verify(thread) == left
        assert self.world.journal.verify() == len(self.world.events)


TestResuming = Resuming.TestCase
_MANY = settings().max_examples // 20  # a run of a machine costs as much as many other examples
TestResuming.settings = settings(stateful_step_count=30, max_examples=max(24, _MANY))


answer_deaths = st.sampled_from(
    [
        *[None] * 12,
        *[(what, when, 1) for what in ("put", "mark") for when in ("before", "after")],
        *[
            (what, when, n)
            for what in ("append", "anchor")
            for when in ("before", "after")
            for n in (1, 2)
        ],
        *[("journal", "before", number) for number in (1, 3, 5, 7, 9, 11)],
        *[("pay", when, 1) for when in ("before", "after")],
    ]
)
between = st.one_of(
    st.none(),
    st.tuples(
        st.sampled_from(["append", "anchor", "journal", "put", "mark"]),
        st.sampled_from(["before", "after"]),
        st.integers(1, 4),
        st.sampled_from(["no", "no", "yes", "hold", "release", "resume", "step"]),
    ),
)
"""Nothing, or what somebody else does at the n-th change of a kind."""


class Answering(RuleBasedStateMachine):
    """Two workers, approvers up to amounts, operators, deadlines, a censor, and a thief."""

    @initialize(
        amounts=st.tuples(*[st.sampled_from([5, 5, 50, 500])] * 2),
        ends=st.tuples(st.booleans(), st.booleans()),
    )
    def begin(self, amounts: tuple[int, int], ends: tuple[bool, bool]) -> None:
        self.desk = Desk()
        self.workers, self.threads = [self.opened(), self.opened()], ["", ""]
        self.copies: list[tuple[dict[str, dict[int, bytes]], dict[str, dict[int, bytes]]]] = []
        self.is_censored = False
        for slot in (0, 1):
            self.start(slot, amounts[slot], ends[slot])

    def opened(self) -> Worker:
        return opened(self.desk)

    def start(self, slot: int, amount: int, ends: bool) -> None:
        thread = self.threads[slot] = f"order-{len(self.desk.amounts) + 1}"
        self.desk.amounts[thread] = amount
        self.acting(None)
        answering(self.desk).start(self.opened().ledger, thread, amount=amount, ends=ends)

    def is_sound(self, thread: str) -> bool:
        return not self.is_censored and thread not in self.desk.stolen

    def acting(self, death: Death | None) -> None:
        """A process begins to do something."""
        desk = self.desk
        desk.count += 1
        desk.started = desk.began = desk.count
        desk.death, desk.is_dead, desk.clock = death, False, desk.now

    def attempt(self, death: Death | None, action: Callable[[], Any]) -> str:
        """Let a process do something, and return the name of the error that it met, if any."""
        self.acting(death)
        try:
            action()
        except Died:
            return "died"
        except CheckpointError as error:
            return type(error).__name__
        finally:
            self.acting(None)
            self.desk.meanwhile = None
            if self.desk.verdict is not None:
                raise self.desk.verdict
        return ""

    def question(self, thread: str, sequence: int | None = None) -> Question | None:
        try:
            return answering(self.desk).question(self.opened().ledger, thread, sequence)
        except CheckpointError:
            assert not self.is_sound(thread) or self.is_too_much(thread)
            return None

    def is_too_much(self, thread: str) -> bool:
        return self.desk.amounts[thread] > 100

    def sign(self, question: Question, who: str, verdict: str) -> str:
        """They approve what they know to be right, and nothing else."""
        right = question.arguments in ({}, {"amount": self.desk.amounts[question.thread]})
        verdict = verdict if right else "denied"
        make = PERSONS[who].approve if verdict == "approved" else PERSONS[who].deny
        text = make(question, now=self.desk.now, lifetime=HOUR)
        self.desk.signed.append(Signed(text, question, who, verdict, self.desk.now + HOUR))
        return text

    def heard(self, question: Question | None, voices: list[tuple[str, str, bool]]) -> list[Signed]:
        """Let people answer, and return what they did not put where it belongs."""
        given = []
        for who, verdict, is_put in voices if question is not None else ():
            text = self.sign(cast("Question", question), who, verdict)
            if is_put:
                self.again(None, partial(self.desk.answers.put, PERSONS[who], text))
            else:
                given.append(self.desk.signed[-1])
        return given

    # What people do. Whoever was cut short does it again.

    def again(self, death: Death | None, action: Callable[[], Any]) -> None:
        how = self.attempt(death, action)
        if how == "died":
            how = self.attempt(None, action)
        assert not how or self.is_censored or how == "LimitExceeded", how

    @rule(slot=slots, who=st.sampled_from(list(PERSONS)), verdict=verdicts, death=answer_deaths)
    def answer(self, slot: int, who: str, verdict: str, death: Death | None) -> None:
        """Somebody signs what they see, and puts it where workers find it."""
        question = self.question(self.threads[slot])
        if question is not None:
            text = self.sign(question, who, verdict)
            action = partial(self.desk.answers.put, PERSONS[who], text)
            self.again(death, action)

    @rule(
        slot=slots,
        who=st.sampled_from(list(OPERATORS)),
        ends=st.booleans(),
        death=answer_deaths,
    )
    def order(self, slot: int, who: str, ends: bool, death: Death | None) -> None:
        """Hold a thread, or release it."""
        thread, answers, operator = self.threads[slot], self.desk.answers, OPERATORS[who]
        holds = self.desk.holds(thread)
        if holds and ends:
            action = partial(answers.release, operator, STORE, thread, holds[0].digest)
            self.again(death, action)
            assert len(self.desk.holds(thread)) == len(holds) - 1 or self.is_censored
            return
        self.again(death, partial(answers.hold, operator, STORE, thread))
        more = len(self.desk.holds(thread)) - len(holds)
        assert 1 <= more <= 2 or self.is_censored, f"{who} held it, and it is held {more} times"

    def wait(self, minutes: int) -> None:
        self.desk.waited += timedelta(minutes=minutes)
        self.desk.now = self.desk.clock = self.desk.start + self.desk.waited

    @rule(who=st.sampled_from(["dana", "finn", ""]), clerks=st.sampled_from([10, 10, 4]))
    def change_the_policy(self, who: str, clerks: int) -> None:
        self.desk.revoked, self.desk.clerks = {who} - {""}, clerks
        self.desk.ever_revoked |= self.desk.revoked

    # What workers do.

    @rule(
        worker=workers,
        slot=slots,
        death=answer_deaths,
        other=between,
        voices=voices,
        later=st.sampled_from([0, 0, 0, 30, 61, 125]),
        steps=st.integers(0, 2),
    )
    def resume(
        self,
        worker: int,
        slot: int,
        death: Death | None,
        other: tuple[str, str, int, str] | None,
        voices: list[tuple[str, str, bool]],
        later: int,
        steps: int,
    ) -> None:
        """Some people answer; and a worker goes on, with what is put, and what somebody brought."""
        thread, desk = self.threads[slot], self.desk
        question = self.question(thread)
        given = self.heard(question, voices)
        self.wait(later)
        if other is not None:
            desk.meanwhile = (*other[:3], partial(self.other, other[3], thread, 1 - worker))
        expected = self.expected(thread, question, given)
        is_denied = question is not None and bool(desk.noes(question)) and "" in expected

        def action() -> None:
            process = self.workers[worker]
            run = answering(desk).rehydrate(
                process.ledger, thread, approvals=[each.text for each in given], now=desk.now
            )
            process.runs[thread] = run
            for _, _ in zip(range(steps), run, strict=False):
                pass

        how = self.attempt(death, action)
        if how == "died":
            self.workers[worker] = self.opened()
        if self.is_sound(thread):
            assert how not in ATTACKS, f"nobody attacked, and it says {how}"
            if death is None and other is None:
                assert how in expected, f"{how or 'all is well'}, and not one of {expected}"
                assert desk.is_over(thread) or not is_denied, "somebody had said no in time"

    def expected(
        self, thread: str, question: Question | None, given: list[Signed]
    ) -> tuple[str, ...]:
        """What may come of a resume, by what people did."""
        desk = self.desk
        last = desk.state(thread, desk.end(thread))
        if desk.holds(thread):
            return ("NotOwner",)
        over = desk.is_over(thread) and not given
        if "asked" not in last.payload or over:
            # A no whose key was revoked before the journal had its use does not count.
            return ("", "ApprovalNeeded") if over and desk.revoked else ("",)
        if question is None:  # it is answered, unless it is too much for anybody
            lapsed = ("ApprovalNeeded", "ApprovalRefused")
            # Of what nobody can approve the wait may have ended: it goes on, and pays nothing.
            return ("ResumeRefused", "") if desk.amounts[thread] > 100 else ("", *lapsed)
        if desk.noes(question):
            return ("",)
        if question.is_over(desk.now):
            return ("ResumeRefused",) if given else ("",)
        wrong = [s for s in given if s.by in desk.revoked or s.expires <= desk.now]
        if wrong:
            return ("ApprovalRefused", "ApprovalRefused")
        names = desk.yeses(question) | {s.by for s in given}
        if any(s.verdict == "denied" for s in given):
            return ("",)
        amount = desk.amounts[thread]
        if amount > 100:
            return ("ResumeRefused",)
        # Who wrote it may be a thief, whose note the journal was not told of.
        spent = [each for each in desk.notes(thread, last) if each.statements]
        if spent and not given:
            return ("", "ApprovalNeeded")
        return ("",) if desk.enough(amount, names, desk.clerks) else ("ApprovalNeeded",)

    def other(self, what: str, thread: str, worker: int) -> None:
        """Do something while a worker is at work."""
        desk, process = self.desk, self.workers[worker]
        if what in ("no", "yes"):
            question = answering(desk).question(self.opened().ledger, thread)
            asked = [s.question for s in desk.signed if s.question.thread == thread]
            question = question or (asked[-1] if asked else None)
            if question is not None:
                text = self.sign(question, "erin", "denied" if what == "no" else "approved")
                desk.answers.put(PERSONS["erin"], text)
        elif what == "hold":
            desk.answers.hold(OPERATORS["omar"], STORE, thread)
        elif what == "release":
            for said in desk.holds(thread)[:1]:
                desk.answers.release(OPERATORS["olga"], STORE, thread, said.digest)
        elif what == "resume":
            answering(desk).resume(process.ledger, thread, now=desk.now)
        elif (run := process.runs.get(thread)) is not None and run.next and not run.paused:
            run.step()

    @rule(worker=workers, slot=slots, death=answer_deaths, other=between)
    def step(
        self,
        worker: int,
        slot: int,
        death: Death | None,
        other: tuple[str, str, int, str] | None,
    ) -> None:
        """Go on with a run that a process has in its hands, whatever happened since."""
        thread, process = self.threads[slot], self.workers[worker]
        run = process.runs.get(thread)
        if run is None or run.next is None or run.paused:
            return
        if other is not None:
            self.desk.meanwhile = (*other[:3], partial(self.other, other[3], thread, 1 - worker))
        how = self.attempt(death, run.step)
        if how:
            self.workers[worker] = self.opened()
        assert how not in ATTACKS or not self.is_sound(thread), f"nobody attacked: {how}"

    @rule(slot=slots, steps=st.integers(1, 3), who=st.sampled_from(list(PERSONS)))
    def go_back(self, slot: int, steps: int, who: str) -> None:
        """Somebody goes back, over a no or the end of a wait, and others approve that."""
        thread = self.threads[slot]
        sequence = max(self.desk.end(thread) - steps, 1)
        question = self.question_at(thread, sequence)
        if question is None:
            return
        texts = [self.sign(question, name, "approved") for name in (who, "erin", "gus")]

        def action() -> None:
            ledger, now = self.opened().ledger, self.desk.now
            answering(self.desk).resume(ledger, thread, sequence, approvals=texts, now=now)

        how = self.attempt(None, action)
        assert how not in ATTACKS or not self.is_sound(thread), f"nobody attacked: {how}"

    def question_at(self, thread: str, sequence: int) -> Question | None:
        try:
            return answering(self.desk).question(self.opened().ledger, thread, sequence)
        except CheckpointError:
            return None

    @rule(slot=slots, amount=st.sampled_from([5, 50]), ends=st.booleans())
    def start_another(self, slot: int, amount: int, ends: bool) -> None:
        self.heal()
        self.start(slot, amount, ends)

    @rule(slot=slots, ends=st.booleans(), death=answer_deaths, later=st.sampled_from([0, 61, 125]))
    def say_no_before(self, slot: int, ends: bool, death: Death | None, later: int) -> None:
        """Somebody says no, and others yes, before a worker goes on."""
        self.start_another(slot, 5, ends)
        people = [("gus", "denied", True), ("erin", "approved", True)]
        self.resume(0, slot, death, None, people, later, 1)

    @rule(
        slot=slots,
        ends=st.booleans(),
        other=between,
        later=st.sampled_from([0, 61, 125]),
        ours=workers,
    )
    def say_no_after(
        self,
        slot: int,
        ends: bool,
        other: tuple[str, str, int, str] | None,
        later: int,
        ours: int,
    ) -> None:
        """Somebody says no after the record that spends a yes, and before a worker acts upon it."""
        self.start_another(slot, 5, ends)
        question = self.question(self.threads[slot])
        self.resume(0, slot, None, other, [("erin", "approved", True)], 0, 0)
        self.heard(question, [("gus", "denied", True)])
        if ours:
            self.step(0, slot, None, None)
        self.resume(1, slot, None, None, [], later, 1)

    # What a censor does, who can write both storages and neither of the anchors.

    @rule(
        slot=slots,
        what=st.sampled_from(["copy", "restore", "cut", "cut", "drop", "swap", "move", "edit"]),
        where=st.sampled_from(["answers", "answers", "threads"]),
        at=st.integers(0, 50),
    )
    def censor(self, slot: int, what: str, where: str, at: int) -> None:
        shelf = cast("Shelf", self.desk.answers.storage)
        answers, threads = shelf.chains, self.desk.storage.copied
        if what == "copy":
            self.copies.append((answers, threads))
            return
        if what == "restore" and self.copies:
            old = self.copies[at % len(self.copies)]
            answers, threads = (old[0], threads) if where == "answers" else (answers, old[1])
        records = answers if where == "answers" else threads
        names = sorted(name for name, kept in records.items() if kept)
        if not names:
            return
        name, second = names[at % len(names)], names[(at // 7) % len(names)]
        kept, last = records[name], max(records[name])
        if what == "cut":
            del kept[last]
        elif what == "drop":
            del records[name]
        elif what == "swap":
            records[name], records[second] = records[second], kept
        elif what == "move":
            kept[last + at % 2] = records[second][max(records[second])]
        elif what == "edit":
            kept[last] = kept[last][:-2] + bytes([kept[last][-2] ^ 1]) + kept[last][-1:]
        shelf.chains = {chain: each for chain, each in answers.items() if each}
        self.desk.storage.replace(threads)
        self.is_censored = True

    @rule()
    def heal(self) -> None:
        """What was only delayed is there again."""
        if not self.is_censored:
            return
        desk, answers = self.desk, defaultdict[str, dict[int, bytes]](dict)
        for (chain, number), said in desk.said.items():
            answers[chain][number] = said.record
        cast("Shelf", desk.answers.storage).chains = answers
        desk.storage.restore(
            {
                name: {n: each.record for n, each in kept.items()}
                for name, kept in desk.written.items()
            }
        )
        self.workers, self.is_censored = [self.opened(), self.opened()], False

    # What a thief of the writer's key does.

    @rule(
        slot=slots,
        what=st.sampled_from(
            ["spend", "spend", "spend", "instead", "expire", "deny", "asked", "note"]
        ),
        pick=st.integers(0, 3),
        label=st.sampled_from(["other/", "spent/"]),
        voices=voices,
    )
    def seal_with_the_stolen_key(
        self, slot: int, what: str, pick: int, label: str, voices: list[tuple[str, str, bool]]
    ) -> None:
        """Anything at the end of a thread: an answer spent, the end of a wait, a note."""
        self.heal()
        thread, desk = self.threads[slot], self.desk
        self.heard(self.question(thread), voices)
        end = desk.end(thread)
        last, state = desk.written[thread][end], desk.state(thread, end)
        payload = {name: state.payload[name] for name in ("done", "state")}
        mine = [s for s in desk.signed if s.question.thread == thread]
        yes = [s.text for s in mine if s.verdict == "approved"][-1 - pick :]
        noes = [s.text for s in mine if s.verdict == "denied"][-1 - pick :]
        texts = noes[:1] if what == "deny" else yes if what == "spend" else []
        if what == "instead":
            texts = [text.replace('"approved"}', '"denied"}') for text in yes[:1]]
        if what in ("spend", "deny", "instead", "expire"):
            if not mine or (not texts and what != "expire"):
                return
            asked = mine[-1 - pick % len(mine)].question
            payload = {"question": asked.text, "statements": texts}
        elif what == "asked":
            forged = {"action": "pay", "arguments": {"amount": 5_000_000}, "next": "pay"}
            payload["asked"] = {**forged, "within": (0, 1, 10**9, 10**12)[pick]}
        else:
            junk: list[Any] = [None, [], {}, {"statements": 7}]
            payload = junk[pick]
        kind: Kind = "state" if what == "asked" else "note"
        record, _ = seal(
            Codec().encode(payload),
            Place(STORE, "", thread, end + 1),
            WRITER,
            created=desk.now if pick % 2 else datetime.now(UTC),
            kind=kind,
            previous=last.head.digest,
            app="invoice@1",
            label="" if what == "asked" else label if what == "note" else "spent/",
        )
        desk.storage.put(thread, end + 1, record)
        with desk.judging():
            desk.append(thread, end + 1, record)
        desk.stolen.add(thread)
        self.workers = [self.opened(), self.opened()]
        self.resume(0, slot, None, None, [], 0, 2)

    def teardown(self) -> None:
        """Everything is still there, and whoever released all holds goes on as people said."""
        if not hasattr(self, "desk"):
            return
        self.heal()
        for thread in self.desk.written:
            assert self.opened().ledger.verify(thread) == self.desk.end(thread)
        for thread in filter(self.is_sound, self.desk.amounts):
            for said in self.desk.holds(thread):
                self.desk.answers.release(OPERATORS["olga"], STORE, thread, said.digest)
            self.threads[0] = thread
            for _ in range(2):
                self.resume(0, 0, None, None, [], 0, 9)
        assert self.desk.journal.verify() == len(self.desk.events)


TestAnswering = Answering.TestCase
TestAnswering.settings = settings(stateful_step_count=25, max_examples=max(16, _MANY))
