"""The attacks on SQLite and PostgreSQL: each ends as it does on files, and for the same reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from safepoint.attacks import ATTACKS, RESIDUE, Disk, Outcome
from safepoint.attacks.ladder import scratch
from safepoint.attacks.outcome import step
from safepoint.attacks.rungs import TOP
from safepoint.core.errors import CheckpointError
from tests.harness.ladder import every, reasons
from tests.harness.optional import need

need("psycopg", "psycopg: pip install '.[postgres]'")

from tests.attacks.databases import DatabaseTarget, Pool, PostgresTarget, Rows, SQLiteTarget

EVERY = ATTACKS | RESIDUE

# What there is no such attack for, and why.
FILES_ONLY = {
    "plant-symlink": "a row is no file; that of SQLite itself is a test of its storage",
    "plant-hard-link": "the same",
    "plant-temp": "a row has no name before it is there",
    "open-folder": "who may write is for the server to say; for SQLite, a test of its storage",
    "everything-in-one-folder": "a database is named by whoever opens it, and holds no key",
}
# They need a disk to hurt; the names that they try are refused before they could be rows.
BY_NAME = {"traverse-id", "case-fold-id", "unicode-id", "device-name-id", "newline-id"}

STORAGES = ("sqlite", "postgres")
each_storage = pytest.mark.parametrize("storage", STORAGES)


@pytest.fixture(scope="module")
def pools() -> dict[str, Pool]:
    return {}


@pytest.fixture
def target(
    storage: str, pools: dict[str, Pool], request: pytest.FixtureRequest
) -> Iterator[DatabaseTarget]:
    with scratch() as folder:
        if storage == "sqlite":
            yield SQLiteTarget(folder)
            return
        pool = pools.setdefault(storage, Pool(request.getfixturevalue("postgres")))
        yield PostgresTarget(folder, pool)
        pool.reset()


def kinds(refusals: list[str]) -> set[str]:
    return {line.partition(":")[0] for line in refusals}


def by_turns() -> Iterator[Any]:
    """Every attack on a store on one of the two, in turn. It is the same ledger: the rest is deep.

    So are the attacks that the gate stops, which asks no storage.
    """
    for number, attack in enumerate(EVERY):
        for place, storage in enumerate(STORAGES):
            is_turn = number % 2 == place and EVERY[attack].stopped_by != TOP
            marks = [] if is_turn else [pytest.mark.deep]
            yield pytest.param(attack, storage, marks=marks)


@pytest.mark.parametrize(("attack", "storage"), [*by_turns()])
def test_an_attack_ends_as_on_files(attack: str, storage: str, target: DatabaseTarget) -> None:
    if attack in FILES_ONLY:
        assert ATTACKS[attack].needs is Disk
        assert ATTACKS[attack].run(target) is Outcome.NOT_APPLICABLE
        return
    strike = replace(EVERY[attack], needs=None) if attack in BY_NAME else EVERY[attack]
    assert strike.run(target) is every()[attack][TOP]
    # A database says what its newest record is, so the gap before it is not what is found.
    unseen = {"RolledBack"} if attack == "fast-forward" else set()
    assert kinds(target.refused) == kinds(reasons().get(attack, [])) - unseen


def saved(target: DatabaseTarget) -> Rows:
    for number in (1, 2, 3):
        target.save("victim", step(number))
    return target.medium


ROWS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a lower head": ({"head": 2}, {"RolledBack"}),
    "a higher head": ({"head": 9}, {"RolledBack"}),
    "no head": ({"head": 0}, {"RolledBack"}),
    "a base that is none": ({"first": 2, "base": b"x"}, {"SealBroken"}),
    "a base without a beginning": ({"first": 3, "base": b""}, {"SealBroken"}),
    "a base beyond the end": (
        {"first": 4, "base": b"x"},
        {"SealBroken", "RolledBack", "Unavailable"},
    ),
}


@each_storage
@pytest.mark.parametrize("change", ROWS)
def test_a_row_of_a_thread_that_does_not_fit_is_refused(
    change: str, storage: str, target: DatabaseTarget
) -> None:
    """It takes no record to roll a database back: one number does, and the anchor sees it."""
    rows = saved(target)
    columns, refusals = ROWS[change]
    if not {"head"} & columns.keys() <= rows.none.keys():
        return  # its newest record says where a thread ends
    with rows.turn():
        rows.place("victim")
        rows.set("victim", **columns)
    with pytest.raises(CheckpointError) as caught:
        target.history("victim")
    assert type(caught.value).__name__ in refusals
    with suppress(CheckpointError):
        assert target.latest("victim") == step(3)
