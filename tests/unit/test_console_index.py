"""The console's index: it finds what waits, and shows nothing that it did not verify right then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Approver,
    Ask,
    FileCheckpointStorage,
    Gate,
    Policy,
    SigningKey,
    SQLiteAnchor,
    Workflow,
)
from safepoint.console import index as indexing
from safepoint.console.index import PER_PAGE, Index, Spot
from safepoint.core.codec import Codec, Converter
from safepoint.core.names import ANSWERS, Head, digest_of
from safepoint.places import Store
from safepoint.resume.answers import Answers, _chain
from safepoint.resume.approval import QUESTION, Question, Reason
from safepoint.resume.workflow import Run
from safepoint.settings import read
from safepoint.shared import questions
from tests.house import Toy
from tests.unit.console_driver import until
from tests.unit.test_deciding import Office

HOUR = timedelta(hours=1)


class Shop(Office):
    """A store of files with its people, a worker, and somebody who can write the storage."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        super().__init__(folder)
        self.storage = FileCheckpointStorage(folder / "state")
        heads = SQLiteAnchor(folder / "answers-anchor/heads.db")
        self.answers = Answers(FileCheckpointStorage(folder / "answers"), heads)

    @property
    def store(self) -> Store:
        """What an approver opens, to read."""
        return replace(read(str(self.folder / "safepoint.toml")).store("invoices"), people=2)

    def person(self, name: str) -> Approver:
        return Approver(name, self.keys[name])

    def pays(self, app: str = "invoice", within: timedelta | None = None) -> Workflow:
        flow = self.flow(Ask("pay", {"amount": 42}, within=within))
        gate = Gate(Policy({Reason.ASKED: 2}), flow.gate.approvers)
        return Workflow(app, flow.steps.values(), gate=gate)

    def begin(self, thread: str, *, tenant: str = "", **options: Any) -> Run:
        ledger = self.ledger()
        return self.pays(**options).start(ledger.tenant(tenant) if tenant else ledger, thread)

    # --- what somebody does who can write the storage

    def tamper(self, thread: str) -> None:
        """Change the newest record."""
        self.change(thread, self.storage.head(thread), b"amount*", b"amount+")

    def change(self, thread: str, sequence: int, before: bytes, after: bytes) -> None:
        """Change a record."""
        file = self.folder / "state" / thread / f"{sequence:010}.checkpoint"
        file.write_bytes(file.read_bytes().replace(before, after))

    def cut(self, thread: str) -> None:
        """Remove the newest record, in which it asks."""
        max((self.folder / "state" / thread).glob("*.checkpoint")).unlink()

    def remove(self, thread: str) -> None:
        """Remove all of it."""
        (self.folder / "state" / thread).rename(self.folder / thread.replace("/", "-"))

    # --- what a worker does

    def graph(self, thread: str, questions: int) -> None:
        """Write what a graph leaves that asks several things."""
        made = Converter(QUESTION, Question, lambda asked: asked.text, Question.from_text)
        ledger = self.ledger(codec=Codec(converters=[made]))
        names = {"ns": "", "id": "1", "metadata": {"parents": {}}}
        saved = ledger.save(thread, {"checkpoint": {"v": 1}, **names}, app="g@1")
        head = Head(saved.sequence, saved.digest)
        about: Any = {"store": "invoices", "thread": thread, "checkpoint": head, "head": head}
        sealed: Any = {"app": "g@1", "tools": digest_of(b""), "reasons": (Reason.ASKED,)}
        asked = [
            Question(**about, **sealed, action="pay", arguments={}, scope=f"pay:{number}#0")
            for number in range(questions)
        ]
        ledger.note(thread, {"writes": asked}, label="x")

    def go_on(self, thread: str) -> None:
        question = self.pays().question(self.ledger(), thread)
        assert question is not None
        said = [self.person(name).approve(question) for name in ("dana", "erin")]
        self.pays().resume(self.ledger(), thread, approvals=said)

    def delete(self, thread: str) -> None:
        self.ledger().delete(thread)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Shop]:
    return lambda name="shop": Shop(tmp_path / name)


@pytest.fixture
def opened() -> Iterator[Callable[..., Index]]:
    made = list[Index]()

    def of(**shops: Shop) -> Index:
        made.append(Index({name: shop.store for name, shop in shops.items()}))
        return made[-1]

    yield of
    for each in made:
        each.close()


def threads(index: Index, state: Any = "waiting") -> list[str]:
    return [row.spot.thread for row in index.page(state).rows]


def alarms(index: Index) -> list[tuple[str, str, bool]]:
    return [(each.spot.thread, each.error, each.is_hidden) for each in index.alarms()]


def test_oldest_deadline_first_by_pages_and_states(make: Any, opened: Any) -> None:
    shop, other = make(), make("other")
    for number in range(PER_PAGE + 2):
        shop.begin(f"order-{number:02}", within=HOUR * (100 - number) if number else None)
    other.begin("report-1", app="report", within=HOUR)
    index = opened(orders=shop, reports=other)
    index.look(whole=True)
    assert index.status()[:3] == (PER_PAGE + 3, PER_PAGE + 3, 1)
    first, second = index.page("waiting", 1), index.page("waiting", 2)
    assert first[1:] == (1, 2)
    assert [row.spot for row in index.page("waiting", 9).rows] == [r.spot for r in second.rows]
    found = [row.spot.thread for row in (*first.rows, *second.rows)]
    assert found == ["report-1", *(f"order-{n:02}" for n in range(PER_PAGE + 1, 0, -1)), "order-00"]
    assert {row.wait.needed for row in first.rows} == {2}

    question = shop.pays().question(shop.ledger(), "order-07")
    shop.answers.put(shop.person("dana"), shop.person("dana").deny(question))
    shop.answers.hold(shop.person("opal"), "invoices", "order-08", why="odd")
    index.look_again(Spot("orders", "", "order-07"))
    index.look_again(Spot("orders", "", "order-08"))
    index.look(whole=False)
    assert index.counts() == {"waiting": PER_PAGE + 1, "held": 1, "denied": 1, "expired": 0}
    assert (threads(index, "denied"), threads(index, "held")) == (["order-07"], ["order-08"])


def found(index: Index, find: str, order: Any = "deadline") -> list[str]:
    return [row.spot.thread for row in index.page("waiting", 1, find, order).rows]


def test_words_find_a_run_and_an_order_sorts_it(make: Any, opened: Any) -> None:
    """By tenant, action, amount and person, as the list shows them; a long text hides nothing."""
    shop = make()
    asks = {
        "order-1": Ask("refund", {"amount": Decimal("39.0"), "to": "Ann <b>"}, HOUR),
        "order-2": Ask("pay", {"amount": 10**40, "a": "x" * 9_000, "tenant": "acme"}, 2 * HOUR),
        "order-3": Ask("pay", {"amount": "99", "to": "\u0430nn"}, 3 * HOUR),
        "order-4": Ask("pay", {"amount": Decimal("7.5")}, 4 * HOUR),
        "order-5": Ask("close", {}, 5 * HOUR),
    }
    for thread, ask in asks.items():
        shop.flow(ask).start(
            shop.ledger().tenant("globex" if ask.action == "refund" else "acme"), thread
        )
    index, dana = opened(orders=shop), shop.person("dana")
    question = shop.flow(asks["order-4"]).question(shop.ledger().tenant("acme"), "order-4")
    shop.answers.put(dana, dana.approve(question))
    index.look(whole=True)
    every = [*asks]
    for find, threads in {
        "tenant:globex": every[:1],
        "action:pay tenant:acme amount:1000": every[1:2],
        "AMOUNT:39.0 ann": every[:1],
        r"\u0430nn": every[2:3],
        "by:dana": every[3:4],
        "refund dana": [],
    }.items():
        assert found(index, find) == threads, find
    assert found(index, "", "newest") == every[::-1]
    assert found(index, "", "amount") == ["order-2", "order-1", "order-4", "order-3", "order-5"]
    after = index.next(Spot("orders", "acme", "order-3"), {"orders": "dana"})
    assert getattr(after, "thread", "") == "order-5"  # the one before has a yes of dana


def said(index: Index) -> list[tuple[str, str, str, str]]:
    return [(each.spot.thread, each.result, each.by, each.why) for each in index.done()[0]]


def test_what_is_done_is_listed_newest_first(make: Any, opened: Any) -> None:
    """What people signed, also after the run went on, and what ended; and what is left out."""
    shop = make()
    dana, erin = shop.person("dana"), shop.person("erin")
    runs = [shop.begin(f"order-{number}", tenant="acme" * (number == 2)) for number in (1, 2, 3)]
    shop.begin("order-4", within=timedelta(seconds=1))
    shop.answers.put(dana, dana.approve(runs[0].question))
    shop.answers.put(erin, erin.approve(runs[0].question))
    shop.go_on("order-1")
    index = opened(orders=shop)
    time.sleep(1)
    index.look(whole=True)
    shop.answers.put(dana, dana.deny(runs[1].question), why="no")
    shop.answers.hold(shop.person("opal"), "invoices", "order-3", why="odd")
    assert "order-2" not in [each[0] for each in said(index)]
    index.look_again(Spot("orders", "acme", "order-2"))
    index.look(whole=False)
    assert sorted(said(index), key=lambda each: each[1:]) == [
        ("order-1", "approved", "dana", ""),
        ("order-1", "approved", "erin", ""),
        ("order-2", "denied", "dana", "no"),
        ("order-4", "expired", "", ""),
    ]
    times = [each.at for each in index.done()[0]]
    assert times == sorted(times, reverse=True)
    assert [each.spot.thread for each in index.done("by:dana tenant:acme")[0]] == ["order-2"]
    assert index.done()[1] == {"orders": ""}

    chain = _chain("answer", shop.keys["erin"], runs[2].question.subject)
    shop.answers.anchor.advance(ANSWERS, chain, Head(1, f"sha256:{'a' * 64}"))  # which is dropped
    shop.cut("order-1")
    index.look(whole=True)
    assert [each.is_open for each in index.done()[0]].count(None) == 3  # but order-2
    assert index.done()[1]["orders"].startswith("1 answer cannot be shown. The answers do not ver")
    old = Approver("erin", shop.keys["mally"])  # which is revoked
    shop.answers.put(old, old.approve(runs[2].question))
    index.look(whole=True)
    assert [each.spot.thread for each in index.done("by:erin run:order-3")[0]] == ["order-3"]


def test_an_answer_in_another_place_is_not_shown(make: Any, opened: Any) -> None:
    """Not one that is about another question than its chain, and not one of nobody."""
    shop = make()
    one, other = shop.begin("order-1").question, shop.begin("order-2").question
    dana, mally = shop.person("dana"), Approver("erin", SigningKey.generate())
    shop.answers._append(
        dana, "", _chain("answer", dana.key, one.subject), {"answer": dana.approve(other)}, 9
    )
    shop.answers.put(mally, mally.approve(one))
    index = opened(orders=shop)
    index.look(whole=True)
    assert (said(index), index.done()[1]["orders"][:26]) == ([], "2 answers cannot be shown.")


DONE: dict[str, tuple[bool, list[tuple[str, str, bool]]]] = {
    "tamper": (True, [("order-2", "SealBroken", False)]),
    "cut": (True, [("order-2", "RolledBack", True)]),
    "remove": (True, [("order-2", "RolledBack", True)]),
    "go_on": (False, []),
    "delete": (False, []),
}


@pytest.mark.parametrize("done", DONE)
def test_a_row_is_verified_when_its_page_is_made(done: str, make: Any, opened: Any) -> None:
    """Whatever came between the pass and the page. A pass that comes after it finds the same."""
    shop, told = make(), DONE[done][1]
    for number in (1, 2, 3):
        shop.begin(f"order-{number}")
    index, later = opened(orders=shop), opened(orders=shop)
    index.look(whole=True)
    assert (threads(index), alarms(index)) == (["order-1", "order-2", "order-3"], [])
    getattr(shop, done)("order-2")
    assert (threads(index), alarms(index)) == (["order-1", "order-3"], told)
    index.look(whole=False)
    later.look(whole=True)
    for each in (index, later):
        assert (alarms(each), threads(each)) == (told, ["order-1", "order-3"])
    assert later.status().looked == 3  # the anchor's, too, that the storage does not name


def test_a_pass_verifies_each_record(make: Any, opened: Any) -> None:
    """Also those that no question is read from. What only looks at an end mends no alarm."""
    shop = make()
    for number in (1, 2):
        shop.begin(f"order-{number}")
    index = opened(orders=shop)
    index.look(whole=True)
    assert index.status().unanchored == 0
    shop.change("order-1", 1, b"done", b"dane")
    shop.storage.append("aaa", 1, b"junk")  # by which somebody would hide it among others
    index.look(whole=True)
    index.look_again(Spot("orders", "", "order-1"))
    for _ in range(2):
        assert [each[:1] for each in alarms(index)] == [("order-1",), ("aaa",)]
        assert (threads(index), index.status().unanchored) == (["order-2"], 1)
        index.look(whole=False)
    shop.change("order-1", 1, b"dane", b"done")
    index.look(whole=False)
    assert (threads(index), len(alarms(index))) == (["order-1", "order-2"], 1)


LONG: dict[str, tuple[int, list[int], str]] = {
    "several things": (5, [0, 0, 2], ""),
    "too many things": (101, [], "LimitExceeded"),
}


@pytest.mark.parametrize("case", LONG)
def test_no_run_takes_the_place_of_others(case: str, make: Any, opened: Any) -> None:
    """Whatever it asks: three rows at most, or an alarm that says where to look at it alone."""
    shop, (count, rows, error) = make(), LONG[case]
    shop.begin("order-1")
    shop.graph("graph", count)
    index = opened(orders=shop)
    index.look(whole=True)
    found = [row.more for row in index.page("waiting").rows if row.spot.thread == "graph"]
    assert (found, "order-1" in threads(index)) == (rows, True)
    assert [each.error for each in index.alarms()] == [error] * bool(error)
    assert len(questions.open_questions(shop.ledger(), "graph")) == count


@pytest.mark.parametrize("part", ["state", "anchor", "answers", "answers-anchor"])
def test_a_store_that_is_away_is_an_alarm_and_is_tried_again(
    part: str, make: Any, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "_PAUSE", 0.01)
    shop, other = make(), make("other")
    shop.begin("order-1")
    other.begin("order-2")
    index = opened(orders=shop, others=other)
    index.start()
    until(lambda: index.status().passes > 0)
    assert threads(index) == ["order-1", "order-2"]
    (shop.folder / part).rename(shop.folder / "away")
    assert threads(index) == ["order-2"]
    until(lambda: len(index.alarms()) == 1)
    (alarm,) = index.alarms()
    assert (alarm.spot, alarm.error[-11:]) == (("orders", "", ""), "Unavailable")
    assert index.counts()["waiting"] == 1
    (shop.folder / "away").rename(shop.folder / part)
    until(lambda: not index.alarms())
    assert threads(index) == ["order-1", "order-2"]


def test_stores_and_tenants_are_kept_apart(make: Any, opened: Any) -> None:
    """What is done to one is no other's, though the names are the same. One is encrypted."""
    shop, other = make(), make("other")
    for each in (shop, other):
        for tenant in ("", "acme", "globex"):
            each.begin("order-7", tenant=tenant)
    shop.pays().start(shop.ledger(cipher=Toy()).tenant("dark"), "order-7")
    index = opened(orders=shop, others=other)
    index.look(whole=True)
    rows = [row.spot for row in index.page("waiting").rows]
    wanted = [(s, t, "order-7") for s in ("orders", "others") for t in ("", "acme", "globex")]
    assert sorted(rows) == wanted
    (dark,) = index.alarms()
    assert dark[:2] == (("orders", "dark", ""), "DecodeError")
    assert dark.text.startswith("1 threads are encrypted")

    opal = other.person("opal")
    other.answers.hold(opal, "invoices", "order-7", tenant="globex", why="odd")
    index.look(whole=True)
    rows = [row.spot for row in index.page("waiting").rows]
    assert sorted(rows) == wanted[:5]
    assert index.counts()["held"] == 1
