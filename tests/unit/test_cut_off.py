"""Cut off the last record, once for each thing that it can be: nothing is undone unseen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from safepoint import InMemoryAnchor, Keyring, Ledger, RolledBack, SigningKey, SQLiteAnchor
from safepoint.core.errors import ApprovalRefused, NotOwner, SealBroken
from safepoint.core.journal import Journal
from safepoint.core.names import Head, stamp
from safepoint.resume.approval import Answer, Question
from safepoint.resume.asking import Asking, check_held
from tests.house import DANA, KEYS, OPAL, STORE, THREAD, House, Memory, opened


class Case(House):
    """A thread that asks, with people who answer, and the storage in somebody's hands."""

    def __init__(self) -> None:
        super().__init__()
        self.book = self.ledger()
        self.book.save(THREAD, {"n": 1})
        saved = self.book.save(THREAD, {"n": 2})
        head, tools = Head(saved.sequence, saved.digest), "sha256:" + "b" * 64
        self.question = Question(
            STORE, THREAD, head, head, "invoice", tools, ("asked",), "pay", {"amount": 42}
        )

    def spend(self, text: str | None) -> tuple[Answer, ...]:
        return Asking(self.book, self.gate, self.question, lambda _: False, {}).spend(text)

    def expire(self) -> None:
        ended = stamp(datetime.now(UTC) - timedelta(hours=1))
        self.question = replace(self.question, until=ended)
        assert self.spend(None) == ()

    def prune(self) -> None:
        self.book.note(THREAD, {"written": 1}, rides_along=True)
        assert self.book.prune(THREAD, keep=1) == 1


DONE: dict[str, Callable[[Case], object]] = {
    "save": lambda case: case.book.save(THREAD, {"n": 3}),
    "note": lambda case: case.book.note(THREAD, {"payment": "begun"}),
    "spend": lambda case: case.spend(DANA.approve(case.question)),
    "deny": lambda case: case.spend(DANA.deny(case.question)),
    "expire": Case.expire,
    "delete": lambda case: case.book.delete(THREAD),
    "prune": Case.prune,
}


@pytest.mark.parametrize("what", DONE)
def test_what_was_done_is_anchored_before_the_call_returns(what: str) -> None:
    case = Case()
    before = case.storage.head(THREAD)
    DONE[what](case)
    assert case.storage.head(THREAD) == before + 1
    case.storage.remove(THREAD, before + 1)
    with pytest.raises(RolledBack, match="the anchor has seen"):
        opened(case.storage, case.anchor).latest(THREAD)


@pytest.mark.parametrize("released", [False, True])
def test_what_an_operator_did_is_anchored_before_the_call_returns(*, released: bool) -> None:
    case = Case()
    held = case.answers.hold(OPAL, STORE, THREAD)
    with pytest.raises(NotOwner, match="has held"):
        check_held(case.gate, case.book, THREAD)
    if released:
        case.answers.release(OPAL, STORE, THREAD, held.hold)
        check_held(case.gate, case.book, THREAD)
    (chain,) = case.answers.storage.threads()
    case.answers.storage.remove(chain, 1 + released)  # type: ignore[attr-defined]
    with pytest.raises(SealBroken):
        check_held(case.gate, case.book, THREAD)


def test_what_was_asked_in_another_history_is_not_answered_in_this_one() -> None:
    case, other = Case(), Head(2, "sha256:" + "c" * 64)
    case.question = replace(case.question, checkpoint=other, head=other)
    with pytest.raises(ApprovalRefused, match="was pruned, or is of another history"):
        case.spend(DANA.approve(case.question))
    assert case.storage.head(THREAD) == 2


@pytest.mark.parametrize("name", ["journal", "audit", STORE])
def test_two_stores_may_share_an_anchor_and_a_journal_may_have_any_name(name: str) -> None:
    """Each journal without an anchor of its own is anchored by its store, and not by its name."""
    anchor = InMemoryAnchor()
    for store in (STORE, "refunds"):
        case = Case()
        journal = Journal(Memory(), keys=Keyring(SigningKey.generate()), name=name)
        case.book = Ledger(Memory(), store=store, keys=KEYS, anchor=anchor, journal=journal)
        head = case.book.save(THREAD, {"n": 3})
        at = Head(head.sequence, head.digest)
        case.question = replace(case.question, store=store, checkpoint=at, head=at)
        assert case.spend(DANA.approve(case.question))
        assert case.book.accept_loss(THREAD)[1] == anchor.read(store, THREAD)


def test_an_accepted_loss_gives_a_new_anchor_to_the_store_and_not_to_its_journal(
    tmp_path: Path,
) -> None:
    case = Case()
    anchor = SQLiteAnchor(tmp_path / "anchor" / "heads.db", create=True)
    _, after = case.ledger(anchor=anchor).accept_loss(THREAD)
    assert case.ledger(anchor=anchor).anchored(THREAD) == after


def test_after_an_accepted_loss_nothing_is_cut_off_the_journal_unseen() -> None:
    case = Case()
    case.spend(DANA.approve(case.question))
    case.book.accept_loss(THREAD)
    entries = case.journal._view.storage
    entries._heads["", THREAD] -= 2  # type: ignore[attr-defined]
    case.journal._view.known.clear()  # as in another process
    case.book = case.ledger()
    with pytest.raises(SealBroken, match="the anchor has seen"):
        case.spend(DANA.approve(case.question))
