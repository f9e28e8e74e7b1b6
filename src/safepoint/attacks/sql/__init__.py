"""The adversary who has a worker's SQL login, and nothing else: no key, and no other login.

`safepoint attack --sql` starts a PostgreSQL of its own, runs each attack on two victims,
and prints what came of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any, Final, Literal, cast

from safepoint.attacks.rows_postgres import Trial
from safepoint.attacks.sql.victims import THEIRS, LeastPrivilege, OneRole, SqlVictim
from safepoint.errors import CheckpointError
from safepoint.postgres.connection import psycopg

__all__ = [
    "SQL_ATTACKS",
    "SQL_VICTIMS",
    "LeastPrivilege",
    "OneRole",
    "SqlAttack",
    "SqlOutcome",
    "SqlVictim",
    "outcome_of",
]

Try = tuple[str, ...]
Wants = Literal["change", "answer", "block"]


class SqlOutcome(StrEnum):
    """How an attack ended."""

    NO_EFFECT = "no effect"
    """The server did what was asked, and nothing came of it."""
    REFUSED = "refused"
    """The server did nothing of it, and said why."""
    DETECTED = "detected"
    """The server did it, and the ledger with its anchor says so. What was there may be lost."""
    CRASHED = "crashed"
    """The victim did not work even before, or failed in a way that it did not mean to."""
    ACCEPTED = "accepted"
    """The server did it, and nobody can tell."""


FROM_BEST_TO_WORST: Final = tuple(SqlOutcome)


@dataclass(frozen=True)
class SqlAttack:
    """One thing that somebody can do in SQL who has a worker's login, and nothing else.

    Attributes:
        id: a stable name.
        rule: the rule that it shows the reason for.
        story: what happens, in one line.
        tries: ways to do it, each as statements that one connection runs in turn. The worst of
            them counts.
        wants: what the attacker is after: that the database is another one than before, an answer,
            or that the honest workers stand still for as long as the connection is there.
        residue: whether a server with least privilege lets it happen. The pages say so.
        spoils: whether the honest worker with the same login has to be given another one.
    """

    id: str
    rule: str
    story: str
    tries: tuple[Try, ...]
    wants: Wants = "change"
    residue: bool = False
    spoils: bool = False

    def run(self, victim: SqlVictim) -> SqlOutcome:
        """Let the victim work without an attack, then strike, and tell how it ended."""
        try:
            victim.begin()
            if not victim.works():
                return SqlOutcome.CRASHED
        except CheckpointError:
            return SqlOutcome.CRASHED
        known, found = victim.known(), SqlOutcome.NO_EFFECT
        before = victim.fingerprint()
        for statements in self.tries:
            ended = self._attempt(victim, statements, known, before)
            found = max(found, ended, key=FROM_BEST_TO_WORST.index)
            if found is FROM_BEST_TO_WORST[-1]:
                break
            if ended is not SqlOutcome.REFUSED:  # the honest workers may have gone on meanwhile
                before = victim.fingerprint()
        return found

    def _attempt(
        self, victim: SqlVictim, statements: Try, known: dict[str, Any], before: list[Any]
    ) -> SqlOutcome:
        with _said(victim) as refused, victim.leaked() as connection:
            answered = False
            for statement in statements:
                answered = _execute(connection, statement, known)
            if self.wants == "answer":
                return SqlOutcome.ACCEPTED if answered else SqlOutcome.NO_EFFECT
            if self.wants == "block":
                return SqlOutcome.NO_EFFECT if victim.works() else SqlOutcome.ACCEPTED
        if victim.fingerprint() == before:
            return SqlOutcome.REFUSED if refused else SqlOutcome.NO_EFFECT
        return _seen(victim)


def _seen(victim: SqlVictim) -> SqlOutcome:
    """Let somebody honest look at everything."""
    try:
        victim.look()
    except CheckpointError as error:
        victim.refused.append(f"{type(error).__name__}: {error}")
        return SqlOutcome.DETECTED
    except Exception:  # noqa: BLE001  whatever else escapes is a crash
        return SqlOutcome.CRASHED
    return SqlOutcome.ACCEPTED


@contextmanager
def _said(victim: SqlVictim) -> Iterator[list[str]]:
    """Keep what the server says when it refuses, and go on."""
    said: list[str] = []
    try:
        yield said
    except psycopg.Error as error:
        said.append(f"{error.sqlstate}: {error.diag.message_primary or error}")
        victim.refused.extend(said)


def _execute(connection: Any, statement: str, known: dict[str, Any]) -> bool:
    """Run a statement, and tell whether there was an answer."""
    if statement.startswith("copy") and "from stdin" in statement:
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write_row((THEIRS, 99, known[THEIRS]))
        return False
    done = connection.execute(statement, known if "%(" in statement else None)
    return done.description is not None and any(map(any, done.fetchall()))


FILES: Final = ("records", "ownership", "rights", "residue")
_HEADING: Final = re.compile(r"^-- # ", re.MULTILINE)
_WANTS: Final = ("answer", "block")


def attacks() -> Iterator[SqlAttack]:
    """Yield every attack, in the order of the files in which they stand as SQL.

    A line `-- # id rule` begins one, with words after it that say what is special. The lines after
    it are its story. Tries are parted by an empty line, and each statement ends with a line that
    ends in a semicolon.
    """
    for name in FILES:
        text = files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
        yield from map(_attack, _HEADING.split(text)[1:])


def _attack(text: str) -> SqlAttack:
    heading, *lines = text.splitlines()
    name, rule, *special = heading.split()
    story = " ".join(line.removeprefix("-- ") for line in lines if line.startswith("--"))
    body = "\n".join(line for line in lines if not line.startswith("--"))
    return SqlAttack(
        name,
        rule,
        story,
        tuple(_try(block) for block in re.split(r"\n\s*\n", body.strip())),
        wants=cast("Wants", next((word for word in special if word in _WANTS), "change")),
        residue="residue" in special,
        spoils="spoils" in special,
    )


def _try(block: str) -> Try:
    return tuple(each.strip() for each in f"{block}\n".split(";\n") if each.strip())


SQL_ATTACKS: dict[str, SqlAttack] = {each.id: each for each in attacks()}
"""Every attack by its id."""

SQL_VICTIMS: dict[str, type[SqlVictim]] = {each.name: each for each in (OneRole, LeastPrivilege)}
"""The built-in victims by name."""


def outcome_of(attack: str, victim: str, trial: Trial) -> SqlOutcome:
    """Run one attack on a built-in victim, in a database of its own."""
    with SQL_VICTIMS[victim](trial) as attacked:
        return SQL_ATTACKS[attack].run(attacked)
