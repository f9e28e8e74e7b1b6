"""Any order of steps, answers, resumes, crashes and attacks: money moves only as people said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from safepoint import CheckpointError, Codec, Ledger, ToolSet
from safepoint.approval import Question
from safepoint.names import Head
from safepoint.record import Kind, Place, seal
from safepoint.workflow import Run
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


class Resuming(RuleBasedStateMachine):
    """Two workers, two threads, two approvers, somebody who writes the storage, and a thief."""

    @initialize(
        quorum=st.integers(1, 2),
        amounts=st.tuples(*[st.integers(1, 2)] * 2),
        anchor_every=st.sampled_from([1, 3, "step"]),
    )
    def begin(
        self, quorum: int, amounts: tuple[int, int], anchor_every: int | Literal["step"]
    ) -> None:
        self.world, self.anchor_every = World(), anchor_every
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
        """A process that has just begun."""
        world = self.world
        return Worker(
            Ledger(
                world.storage,
                store=STORE,
                keys=KEYS,
                anchor=world.anchor,
                anchor_every=self.anchor_every,
                journal=world.journal,
            )
        )

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
        first = self.pruned(thread) + 1
        return None if steps is None else max(self.world.end(thread) - steps, first)

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
        head = world.end(thread)

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
            kept = world.written[thread][run.head]
            ends = (world.state(thread, head).head.sequence, head + 1)
            assert run.head in ends or thread in self.tampered
            assert run.state == kept.payload["state"]
            assert list(run.done) == kept.payload["done"]
            assert run.denied == kept.is_denied
            assert not run.paused, "went on from a question without an answer"
            assert "asked" not in kept.payload
            anchored = world.anchor.read(STORE, thread)
            assert anchored is not None
            assert anchored.sequence >= run.head, "resumed what can be cut off unnoticed"
            self.tell(thread, run.head)
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
        last = self.world.written[thread][self.world.end(thread)]
        if last.is_denied or last.payload["done"] == STEPS:
            thread = self.start(plan.slot, len(self.world.written), 1 + plan.slot)
        variant = self.world.written[thread][self.world.end(thread)].version
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
        kept = self.world.written[thread][sequence or self.world.end(thread)]
        question = self.question(thread, variant, sequence)
        signed: list[Signed] = []
        if question is not None:
            people = list(PEOPLE)[: self.world.quorum if verdict == "approved" else 1]
            signed = [self.sign(question, who, verdict) for who in people]
            if fault == "missing":
                signed.pop()
        ends = "asked" in kept.payload and kept.head.sequence == self.world.end(thread)
        must = must and not fault and (verdict == "approved" or not signed or ends)
        must = must and not self.leads_nowhere(thread, kept, variant)
        now = self.world.now + (HOUR if fault == "late" else timedelta())
        wish = Wish(thread, sequence, variant, tuple(signed), now)
        self.resume(plan, wish, must=must)

    def leads_nowhere(self, thread: str, kept: Kept, variant: str) -> bool:
        """No migration leads back to the first version, and nothing goes on from an old denial."""
        is_old = kept.head.sequence < self.world.end(thread)
        return kept.version == "2" != variant or (is_old and kept.is_denied)

    def question(self, thread: str, variant: str, sequence: int | None) -> Question | None:
        """What somebody is shown who looks at the store from a process of their own."""
        try:
            return self.workflows[variant].question(self.opened().ledger, thread, sequence)
        except CheckpointError:
            kept = self.world.written[thread][sequence or self.world.end(thread)]
            assert not self.is_sound(thread) or self.leads_nowhere(thread, kept, variant)
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
        is_current = run.head == self.world.end(thread) and not run.paused

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
            count = ledger.verify(thread, every_signature=True)
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
            ["", "", "state", "origin", "dated", "pruned", "note", "note", "deleted", "tenant"]
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
        count = len(last.payload["done"]) if done is None else done
        payload: dict[str, Any] = {
            "done": STEPS[:count],
            "state": last.payload["state"],
            "tools": tools.described,
        }
        if forges in ("state", "note"):
            payload["state"] = {**last.payload["state"], "amount": 5_000_000, "payee": "mallory"}
        if kind == "asked":
            asked = {"action": "pay", "arguments": {"amount": 5_000_000}}
            payload["asked"] = {**asked, "tell": [], "then": "deny", "within": 0}
        elif taken:
            origin = last.payload.get("origin", state.head.sequence)
            payload["origin"] = 1 if forges == "origin" else origin
            payload["resumed"] = {
                "app": f"invoice@{last.version}",
                "digest": state.head.digest,
                "reasons": ["asked"],
                "sequence": state.head.sequence,
                "statements": [each.text for each in taken],
            }
        fits = taken[0].expires - HOUR if taken and forges != "dated" else datetime.now(UTC)
        app, tenant = f"invoice@{version}", "acme" if forges == "tenant" else ""
        of: Kind = "note" if forges == "note" else "deleted" if forges == "deleted" else "state"
        head = self.put(thread, last.head, payload, app, tools, fits, of, tenant)
        self.workers[plan.worker] = self.opened()
        if forges in ("deleted", "tenant"):
            self.tampered.add(thread)
            self.must_refuse(plan, "went on from what is no state of this thread")
            self.heal()  # or else somebody who prunes lets the anchor see that it was deleted
            return
        self.stolen.add(thread)
        record = world.storage.read(thread, head.sequence)
        if forges == "note":
            note = replace(last, record=record, head=head, told=False, is_note=True)
            world.written[thread][head.sequence] = note
        else:
            kept = world.opened(thread, head.sequence, record)
            # The key that the next step acts under comes from this record, too.
            asked_at = last.asked_at if "resumed" in payload else head.sequence
            world.written[thread][head.sequence] = replace(kept, asked_at=asked_at)
            if kind != "asked":  # which is what a worker would do with them, if they are for this
                fresh = [each for each in taken if each.question.head == state.head]
                world.spent |= {each.text: (thread, head.sequence) for each in fresh}
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
    ) -> Head:
        """Seal a record by hand, and put it after another, whatever is there."""
        record, opened = seal(
            b"null" if kind == "deleted" else Codec().encode(payload),
            Place(STORE, tenant, thread, after.sequence + 1 if after else 1),
            WRITER,
            created=created,
            kind=kind,
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
            was = kept[min(number, world.end(thread))]
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
_MANY = settings().max_examples  # 100, or those of `make fuzz`
TestResuming.settings = settings(stateful_step_count=30, max_examples=40 if _MANY == 100 else _MANY)
