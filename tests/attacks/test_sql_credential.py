"""A worker's SQL login in the wrong hands: what a server with one role does, and what ours does.

`sql_words.txt` holds how each attack ends on each victim, and every word that the server or the
ledger said. It is what somebody reads who looks for one of these messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.attacks.sql import SQL_ATTACKS, SQL_VICTIMS, SqlAttack, SqlOutcome, Victim
from tests.harness.blocks import ROOT

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

WORDS = Path(__file__).with_name("sql_words.txt")
RESIDUE = {name for name, attack in SQL_ATTACKS.items() if attack.residue}
# What the server does not know to be wrong, because only the seal can tell.
FOR_THE_SEAL = {"forge-own", "replay-into-own", "take-free", "junk-thread"}
# What no owner of tables may do either.
FOR_SUPERUSERS = {"run-program", "read-passwords", "prepare-transaction"}


@pytest.fixture
def ours(postgres: Server) -> Iterator[Victim]:
    with Victim(postgres) as victim:
        yield victim


def words() -> dict[tuple[str, str], list[str]]:
    """The outcome of each attack on each victim, and what was said."""
    found: dict[tuple[str, str], list[str]] = {}
    for block in WORDS.read_text(encoding="utf-8").strip().split("\n\n"):
        heading, *said = block.split("\n")
        attack, victim, outcome = heading.split(maxsplit=2)
        found[attack, victim] = [outcome, *(line.strip() for line in said)]
    return found


def shown(victim: Victim) -> list[str]:
    """What was said, without what differs from run to run."""
    lines = [" ".join(line.split()) for line in victim.refused]
    lines = [re.sub(r"\d{4}-\d\d-\d\d \d\d:[\d:.]+\+00", "TIME", line) for line in lines]
    lines = [re.sub(r"port \d+ failed", "port PORT failed", line) for line in lines]
    return [re.sub(r"'[0-9a-f]{16}'", "KEY", line) for line in lines]


def on_pages() -> list[tuple[str, list[str]]]:
    """Return the attacks that pages show, and how they say that each ends."""
    found: list[tuple[str, list[str]]] = []
    for page in ("credentials", "leak"):
        text = (ROOT / f"docs/security/{page}.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \| (\w+) \|$", text, re.MULTILINE)
        assert rows
        found += [(attack, outcomes) for attack, *outcomes in rows]
    return found


def tried() -> Iterator[Any]:
    """Every attack on ours; on the other one, those that pages show. The rest is deep."""
    shown = dict(on_pages())
    for attack, victim in product(SQL_ATTACKS, SQL_VICTIMS):
        rest = victim != Victim.name and attack not in shown
        yield pytest.param(attack, victim, marks=[pytest.mark.deep] if rest else [])


@pytest.mark.parametrize(("attack", "victim"), [*tried()])
def test_an_attack_ends_so_and_these_words_are_said(
    attack: str, victim: str, postgres: Server
) -> None:
    with SQL_VICTIMS[victim](postgres) as attacked:
        outcome = SQL_ATTACKS[attack].run(attacked)
        assert [str(outcome), *shown(attacked)] == words()[attack, victim]
        if victim == Victim.name:
            assert attacked.works("theirs"), "the other worker goes on"
            assert attacked.works("mine") is ("spoils" not in SQL_ATTACKS[attack].special)


def test_ours_refuses_each_attack_or_the_ledger_detects_it_and_one_role_refuses_none() -> None:
    assert list(words()) == [(attack, victim) for attack in SQL_ATTACKS for victim in SQL_VICTIMS]
    ended: dict[tuple[str, str], set[str]] = {}
    for (attack, victim), (outcome, *_) in words().items():
        ended.setdefault((victim, outcome), set()).add(attack)
    assert ended["least-privilege", "accepted"] == RESIDUE
    assert ended["least-privilege", "detected"] == FOR_THE_SEAL
    rest = SQL_ATTACKS.keys() - RESIDUE - FOR_THE_SEAL
    assert ended["least-privilege", "refused"] == rest
    assert ended["one-role", "refused"] == FOR_SUPERUSERS
    assert {"roll-back", "move-anchor", "empty-log"} <= ended["one-role", "accepted"]


def test_what_ours_says_is_a_missing_right_or_a_rule_of_the_schema() -> None:
    """No attack is stopped by a slip in its own SQL."""
    said = [line for (_, on), lines in words().items() for line in lines[1:] if on == Victim.name]
    codes = {line.partition(":")[0] for line in said}
    ledger = {"SealBroken"}
    right, null, check, off = "42501", "23502", "23514", "55000"
    copy = "0A000"  # into a table with row-level security
    rules = {"SP001", "SP002", "SP004", "23505"}  # not the owner, not the next one, there already
    assert codes == {right, null, check, off, copy, *rules, *ledger}


def test_the_pages_show_how_the_attacks_end() -> None:
    for attack, outcomes in on_pages():
        assert outcomes == [words()[attack, victim][0] for victim in SQL_VICTIMS]


def test_the_worst_try_counts_and_a_refusal_hides_nothing(ours: Victim) -> None:
    (forge,) = SQL_ATTACKS["forge-own"].tries
    refused = ("drop schema safepoint",)
    tries = (refused, (*forge, *refused), ("select 1",))
    assert SqlAttack("x", "SP05", "x.", tries).run(ours) is SqlOutcome.DETECTED
    assert shown(ours)[0] == "42501: must be owner of schema safepoint"


def test_a_fingerprint_sees_every_change(ours: Victim) -> None:
    before = ours.fingerprint()
    for statement in (
        "alter table safepoint.records disable trigger keep",
        "alter function safepoint.keep() set search_path = public",
        "grant update (record) on safepoint.records to public",
        "grant safepoint_owner to worker_1",
        "alter role worker_1 set statement_timeout = 1",
        "update safepoint_anchor.heads set sequence = sequence + 1",
        "select lo_create(0)",
        "create table public.x (y int)",
        "set session_replication_role = replica; delete from safepoint.discarded",
    ):
        with ours.superuser() as connection:
            connection.execute(statement)
        after = ours.fingerprint()
        assert after != before, statement
        before = after
    with ours.superuser("postgres") as connection:
        connection.execute("revoke safepoint_owner from worker_1")


def test_a_new_password_ends_a_leak_and_lets_the_worker_in_again(ours: Victim) -> None:
    """A leaked login can change its own password: that is how the leak is noticed, and ended."""
    assert SQL_ATTACKS["own-password"].run(ours) is SqlOutcome.ACCEPTED
    assert not ours.works("mine")
    with ours.superuser() as connection:
        connection.execute("alter role worker_1 password 'rotated'")
    ours.server.remember("worker_1", "rotated")
    assert ours.works()


@pytest.mark.parametrize(("attack", "thread"), [("hold-own", "mine"), ("squat", "order-8")])
def test_who_took_a_thread_is_written_down(attack: str, thread: str, ours: Victim) -> None:
    assert SQL_ATTACKS[attack].run(ours) is SqlOutcome.ACCEPTED
    query = "select owner, login from safepoint.actions where thread = %s order by number desc"
    with ours.superuser() as connection:
        assert connection.execute(query, (thread,)).fetchone() == ("mallory", "worker_1")
