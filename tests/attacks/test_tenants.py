"""Whose thread: what a client may name, and what a record of another tenant is worth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safepoint.attacks import ATTACKS, Outcome, Target
from safepoint.attacks.rungs import GatedTarget
from safepoint.core.errors import CheckpointError
from tests.house import House


class WithoutTenants(GatedTarget):
    """All that this package has, in an application that takes the thread id from its client."""

    client = Target.client


def test_a_sealed_ledger_without_tenants_resumes_a_guessed_thread(tmp_path: Path) -> None:
    """Each record is genuine, and where it belongs: a seal does not say who may ask for it."""
    assert ATTACKS["guess-thread"].run(WithoutTenants(tmp_path)) is Outcome.ACCEPTED


def test_a_client_cannot_tell_whether_a_thread_of_others_exists() -> None:
    """Whatever is asked of the ledger of a tenant is answered as if there were no other."""
    house = House()
    journal, flow, ledger = house.journal, house.workflow(), house.ledger()
    acme, globex = ledger.tenant("acme"), ledger.tenant("globex")
    acme.save("order-7", {"amount": 42}, label="final")
    before = journal.counts()
    asks: list[Callable[[str], Any]] = [
        globex.latest,
        lambda thread: globex.load(thread, 1),
        lambda thread: list(globex.history(thread)),
        lambda thread: list(globex.back(thread)),
        lambda thread: globex.note(thread, 1),
        globex.delete,
        lambda thread: globex.prune(thread, keep=1),
        globex.anchored,
        globex.owners.keep,
        lambda thread: flow.resume(globex, thread),
    ]
    for ask in asks:
        assert _answer(ask, "order-7") == _answer(ask, "order-8")
    assert (globex.threads(), globex.tenants()) == ([], [])
    assert {chain: n for chain, n in journal.counts().items() if "@globex/" not in chain} == before
    globex.save("order-7", {"amount": 1})
    assert acme.latest("order-7").state == {"amount": 42}
    assert acme.verify("order-7") == 1


def _answer(ask: Callable[[str], Any], thread: str) -> str:
    try:
        return str(ask(thread))
    except CheckpointError as refusal:
        return f"{type(refusal).__name__}: {refusal}".replace(thread, "…")
