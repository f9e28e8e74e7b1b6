"""Any order of steps, answers, resumes, crashes and attacks: money moves only as people said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from safepoint import CheckpointError, Codec, Ledger, ToolSet
from safepoint.core.record import Kind, Place, seal
from safepoint.resume.approval import Question
from safepoint.resume.workflow import Run
from tests.unit.resume_account import (
    HOUR,
    KEYS,
    OPERATORS,
    PEOPLE,
    TOOLS,
    Death,
    Died,
    Signed,
    Storage,
    World,
    is_wider,
    version_of,
    workflow_of,
)
from tests.unit.resume_helpers import STORE, WRITER

slots = st.integers(0, 1)
workers = st.integers(0, 1)
verdicts = st.sampled_from(["approved", "approved", "approved", "denied"])
voices = st.lists(st.tuples(st.sampled_from(list(PEOPLE)), verdicts, st.booleans()), max_size=2)
"""Who answers what, and whether they put it where workers find it."""
ATTACKS = {"SealBroken", "RolledBack", "Unavailable"}
"""What nobody is told whom nobody attacks."""


@dataclass
class Worker:
    """A process: its ledger, and the runs that it has in its hands."""

    ledger: Ledger
    runs: dict[str, Run] = field(default_factory=dict)


def opened(world: World) -> Worker:
    """A process that has just begun."""
    return Worker(
        Ledger(world.storage, store=STORE, keys=KEYS, anchor=world.anchor, journal=world.journal)
    )


deaths = st.sampled_from(
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


class Resuming(RuleBasedStateMachine):
    """Two workers, approvers up to amounts, operators, deadlines, a censor, and a thief."""

    @initialize(
        amounts=st.tuples(*[st.sampled_from([5, 5, 50, 500])] * 2),
        ends=st.tuples(st.booleans(), st.booleans()),
    )
    def begin(self, amounts: tuple[int, int], ends: tuple[bool, bool]) -> None:
        self.world = World()
        self.workers, self.threads = [self.opened(), self.opened()], ["", ""]
        self.copies: list[tuple[dict[str, dict[int, bytes]], dict[str, dict[int, bytes]]]] = []
        self.is_censored = False
        for slot in (0, 1):
            self.start(slot, amounts[slot], ends[slot])

    def opened(self) -> Worker:
        return opened(self.world)

    def start(self, slot: int, amount: int, ends: bool, steps: int = 2) -> None:
        thread = self.threads[slot] = f"order-{len(self.world.amounts) + 1}"
        self.world.amounts[thread] = amount
        self.acting(None)
        workflow = workflow_of(self.world)
        run = workflow.begin(self.opened().ledger, thread, amount=amount, ends=ends)
        for _ in range(steps):
            run.step()
        self.world.tell(thread)

    def is_sound(self, thread: str) -> bool:
        return not self.is_censored and thread not in self.world.stolen

    def acting(self, death: Death | None) -> None:
        """A process begins to do something."""
        world = self.world
        world.count += 1
        world.started = world.began = world.count
        world.death, world.is_dead, world.clock = death, False, world.now

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
            self.world.meanwhile = None
            if self.world.verdict is not None:
                raise self.world.verdict
        return ""

    def question(self, thread: str, sequence: int | None = None) -> Question | None:
        try:
            return workflow_of(self.world).question(self.opened().ledger, thread, sequence)
        except CheckpointError:
            assert not self.is_sound(thread) or self.is_too_much(thread) or self.is_other(thread)
            return None

    def is_other(self, thread: str) -> bool:
        """Whether what is deployed is of another version than the end of a thread, or has more."""
        last, variant = self.world.state(thread, self.world.end(thread)), self.world.variant
        return last.version != version_of(variant) or is_wider(ToolSet(TOOLS[variant]), last.tools)

    def is_too_much(self, thread: str) -> bool:
        return self.world.amounts[thread] > 100

    def sign(self, question: Question, who: str, verdict: str) -> str:
        """They approve what they know to be right, and nothing else."""
        right = question.arguments in ({}, {"amount": self.world.amounts[question.thread]})
        verdict = verdict if right else "denied"
        make = PEOPLE[who].approve if verdict == "approved" else PEOPLE[who].deny
        text = make(question, now=self.world.now, lifetime=HOUR)
        self.world.signed.append(Signed(text, question, who, verdict, self.world.now + HOUR))
        return text

    def heard(self, question: Question | None, voices: list[tuple[str, str, bool]]) -> list[Signed]:
        """Let people answer, and return what they did not put where it belongs."""
        given = []
        for who, verdict, is_put in voices if question is not None else ():
            text = self.sign(cast("Question", question), who, verdict)
            if is_put:
                self.again(None, partial(self.world.answers.put, PEOPLE[who], text))
            else:
                given.append(self.world.signed[-1])
        return given

    # What people do. Whoever was cut short does it again.

    def again(self, death: Death | None, action: Callable[[], Any]) -> None:
        how = self.attempt(death, action)
        if how == "died":
            how = self.attempt(None, action)
        assert not how or self.is_censored or how == "LimitExceeded", how

    @rule(slot=slots, who=st.sampled_from(list(PEOPLE)), verdict=verdicts, death=deaths)
    def answer(self, slot: int, who: str, verdict: str, death: Death | None) -> None:
        """Somebody signs what they see, and puts it where workers find it."""
        question = self.question(self.threads[slot])
        if question is not None:
            text = self.sign(question, who, verdict)
            action = partial(self.world.answers.put, PEOPLE[who], text)
            self.again(death, action)

    @rule(slot=slots, who=st.sampled_from(list(OPERATORS)), ends=st.booleans(), death=deaths)
    def order(self, slot: int, who: str, ends: bool, death: Death | None) -> None:
        """Hold a thread, or release it."""
        thread, answers, operator = self.threads[slot], self.world.answers, OPERATORS[who]
        holds = self.world.holds(thread)
        if holds and ends:
            action = partial(answers.release, operator, STORE, thread, holds[0].digest)
            self.again(death, action)
            assert len(self.world.holds(thread)) == len(holds) - 1 or self.is_censored
            return
        self.again(death, partial(answers.hold, operator, STORE, thread))
        more = len(self.world.holds(thread)) - len(holds)
        assert 1 <= more <= 2 or self.is_censored, f"{who} held it, and it is held {more} times"

    def wait(self, minutes: int) -> None:
        self.world.waited += timedelta(minutes=minutes)
        self.world.now = self.world.clock = self.world.start + self.world.waited

    @rule(
        who=st.sampled_from(["dana", "finn", ""]),
        clerks=st.sampled_from([10, 10, 4]),
        variant=st.sampled_from(["1", "1", "1", *TOOLS]),
    )
    def deploy(self, who: str, clerks: int, variant: str) -> None:
        self.world.variant = variant
        self.world.revoked, self.world.clerks = {who} - {""}, clerks
        self.world.ever_revoked |= self.world.revoked

    # What workers do.

    @rule(
        worker=workers,
        slot=slots,
        death=deaths,
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
        thread, world = self.threads[slot], self.world
        question = self.question(thread)
        given = self.heard(question, voices)
        self.wait(later)
        if other is not None:
            world.meanwhile = (*other[:3], partial(self.other, other[3], thread, 1 - worker))
        expected = self.expected(thread, question, given)
        is_denied = question is not None and bool(world.noes(question)) and "" in expected

        def action() -> None:
            process = self.workers[worker]
            run = workflow_of(world).rehydrate(
                process.ledger, thread, approvals=[each.text for each in given], now=world.now
            )
            process.runs[thread] = run
            world.tell(thread)
            state = world.state(thread, world.end(thread))
            if run.head == state.head.sequence:
                same = {**state.payload["state"], "migrations": 0}
                assert {**run.state, "migrations": 0} == same, "goes on from another state"
            for _, _ in zip(range(steps), run, strict=False):
                world.tell(thread)

        how = self.attempt(death, action)
        if how == "died":
            self.workers[worker] = self.opened()
        if self.is_sound(thread):
            assert how not in ATTACKS, f"nobody attacked, and it says {how}"
            if death is None and other is None and expected:
                assert how in expected, f"{how or 'all is well'}, and not one of {expected}"
                assert world.is_over(thread) or not is_denied, "somebody had said no in time"

    def expected(
        self, thread: str, question: Question | None, given: list[Signed]
    ) -> tuple[str, ...]:
        """What may come of a resume, by what people did; nothing if another version looks."""
        world = self.world
        last = world.state(thread, world.end(thread))
        if self.is_other(thread):
            return ()
        if world.holds(thread):
            return ("NotOwner",)
        over = world.is_over(thread) and not given
        if "asked" not in last.payload or over:
            # A no whose key was revoked before the journal had its use does not count.
            return ("", "ApprovalNeeded") if over and world.revoked else ("",)
        if question is None:  # it is answered, unless it is too much for anybody
            lapsed = ("ApprovalNeeded", "ApprovalRefused")
            # Of what nobody can approve the wait may have ended: it goes on, and pays nothing.
            return ("ResumeRefused", "") if world.amounts[thread] > 100 else ("", *lapsed)
        if world.noes(question):
            return ("",)
        if question.is_over(world.now):
            return ("ResumeRefused",) if given else ("",)
        wrong = [s for s in given if s.by in world.revoked or s.expires <= world.now]
        if wrong:
            return ("ApprovalRefused", "ApprovalRefused")
        names = world.yeses(question) | {s.by for s in given}
        if any(s.verdict == "denied" for s in given):
            return ("",)
        amount = world.amounts[thread]
        if amount > 100:
            return ("ResumeRefused",)
        # Who wrote it may be a thief, whose note the journal was not told of.
        spent = [each for each in world.notes(thread, last) if each.statements]
        if spent and not given:
            return ("", "ApprovalNeeded")
        return ("",) if world.enough(amount, names, world.clerks) else ("ApprovalNeeded",)

    def other(self, what: str, thread: str, worker: int) -> None:
        """Do something while a worker is at work."""
        world, process = self.world, self.workers[worker]
        if what in ("no", "yes"):
            question = workflow_of(world).question(self.opened().ledger, thread)
            asked = [s.question for s in world.signed if s.question.thread == thread]
            question = question or (asked[-1] if asked else None)
            if question is not None:
                text = self.sign(question, "erin", "denied" if what == "no" else "approved")
                world.answers.put(PEOPLE["erin"], text)
        elif what == "hold":
            world.answers.hold(OPERATORS["omar"], STORE, thread)
        elif what == "release":
            for said in world.holds(thread)[:1]:
                world.answers.release(OPERATORS["olga"], STORE, thread, said.digest)
        elif what == "resume":
            workflow_of(world).resume(process.ledger, thread, now=world.now)
        elif (run := process.runs.get(thread)) is not None and run.next and not run.paused:
            run.step()

    @rule(worker=workers, slot=slots, death=deaths, other=between)
    def step(
        self, worker: int, slot: int, death: Death | None, other: tuple[str, str, int, str] | None
    ) -> None:
        """Go on with a run that a process has in its hands, whatever happened since."""
        thread, process = self.threads[slot], self.workers[worker]
        run = process.runs.get(thread)
        if run is None or run.next is None or run.paused:
            return
        if other is not None:
            self.world.meanwhile = (*other[:3], partial(self.other, other[3], thread, 1 - worker))
        how = self.attempt(death, run.step)
        if how:
            self.workers[worker] = self.opened()
        assert how not in ATTACKS or not self.is_sound(thread), f"nobody attacked: {how}"

    @rule(slot=slots, steps=st.integers(1, 3), who=st.sampled_from(list(PEOPLE)))
    def go_back(self, slot: int, steps: int, who: str) -> None:
        """Somebody goes back, over a no or the end of a wait, and others approve that."""
        thread = self.threads[slot]
        sequence = max(self.world.end(thread) - steps, 1)
        question = self.question_at(thread, sequence)
        if question is None:
            return
        texts = [self.sign(question, name, "approved") for name in (who, "erin", "gus")]

        def action() -> None:
            ledger, now = self.opened().ledger, self.world.now
            workflow_of(self.world).resume(ledger, thread, sequence, approvals=texts, now=now)

        how = self.attempt(None, action)
        assert how not in ATTACKS or not self.is_sound(thread), f"nobody attacked: {how}"

    def question_at(self, thread: str, sequence: int) -> Question | None:
        try:
            return workflow_of(self.world).question(self.opened().ledger, thread, sequence)
        except CheckpointError:
            return None

    @rule(slot=slots, amount=st.sampled_from([5, 50]), ends=st.booleans(), steps=st.integers(0, 2))
    def start_another(self, slot: int, amount: int, ends: bool, steps: int = 2) -> None:
        self.heal()
        self.start(slot, amount, ends, steps)

    @rule(worker=workers, slot=slots, death=deaths, keep=st.integers(1, 3))
    def prune(self, worker: int, slot: int, death: Death | None, keep: int) -> None:
        """Forget what is old. Nothing that is still to be done is in the way of it."""
        thread = self.threads[slot]
        ledger = self.workers[worker].ledger
        how = self.attempt(death, partial(ledger.prune, thread, keep=keep))
        if how == "died":
            self.workers[worker] = self.opened()
        assert how in ("", "died") or not self.is_sound(thread), how

    @rule(slot=slots, ends=st.booleans(), death=deaths, later=st.sampled_from([0, 61, 125]))
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
        self, slot: int, ends: bool, other: tuple[str, str, int, str] | None, later: int, ours: int
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
        shelf = cast("Storage", self.world.answers.storage)
        answers, threads = shelf.copied, self.world.storage.copied
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
        shelf.replace({chain: each for chain, each in answers.items() if each})
        self.world.storage.replace(threads)
        self.is_censored = True

    @rule()
    def heal(self) -> None:
        """What was only delayed is there again."""
        if not self.is_censored:
            return
        world, answers = self.world, defaultdict[str, dict[int, bytes]](dict)
        for (chain, number), said in world.said.items():
            answers[chain][number] = said.record
        cast("Storage", world.answers.storage).replace(answers)
        world.storage.restore(
            {
                name: {n: each.record for n, each in kept.items()}
                for name, kept in world.written.items()
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
        thread, world = self.threads[slot], self.world
        self.heard(self.question(thread), voices)
        end = world.end(thread)
        last, state = world.written[thread][end], world.state(thread, end)
        payload = {name: state.payload[name] for name in ("done", "state", "tools")}
        mine = [s for s in world.signed if s.question.thread == thread]
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
            created=world.now if pick % 2 else datetime.now(UTC),
            kind=kind,
            previous=last.head.digest,
            app=f"invoice@{state.version}",
            tools=state.tools.digest,
            label="" if what == "asked" else label if what == "note" else "spent/",
        )
        world.storage.put(thread, end + 1, record)
        world.keep(thread, end + 1, world.opened(thread, end + 1, record))
        world.stolen.add(thread)
        self.workers = [self.opened(), self.opened()]
        self.resume(0, slot, None, None, [], 0, 2)

    def teardown(self) -> None:
        """Everything is still there, and whoever released all holds goes on as people said."""
        if not hasattr(self, "world"):
            return
        self.heal()
        for thread in self.world.written:
            left = self.world.end(thread) - self.world.pruned(thread)
            assert self.opened().ledger.verify(thread) == left
        for thread in filter(self.is_sound, self.world.amounts):
            for said in self.world.holds(thread):
                self.world.answers.release(OPERATORS["olga"], STORE, thread, said.digest)
            self.threads[0] = thread
            for _ in range(2):
                self.resume(0, 0, None, None, [], 0, 9)
        assert self.world.journal.verify() == len(self.world.events)


TestResuming = Resuming.TestCase
_MANY = settings().max_examples // 20  # a run of a machine costs as much as many other examples
TestResuming.settings = settings(stateful_step_count=25, max_examples=max(25, _MANY))
