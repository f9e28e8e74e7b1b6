"""PostgresJournal: a line for each event, each after the one before it, and none is changed."""

# ruff: noqa: S608  the SQL of these tests is put together from their own words

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from safepoint import (
    FileAnchor,
    Head,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
)
from safepoint.anchor.postgres import PostgresAnchor
from safepoint.errors import (
    AnchorUnavailable,
    ConfigurationError,
    InvalidId,
    JournalBroken,
    JournalUnavailable,
    KeyRefused,
)
from safepoint.journal import InMemoryJournal, Journal
from safepoint.journal.postgres import PostgresJournal
from tests.harness.postgres import Database
from tests.unit.journal_helpers import ANA, KEY, KEYS, RESTORE, event, fill
from tests.unit.postgres_helpers import Network, Workers, refusal, without_guard

LINES = "safepoint_journal.lines"


@pytest.fixture
def journal(database: Database) -> Iterator[PostgresJournal]:
    with PostgresJournal(database.journal, keys=KEYS, wait_seconds=5) as opened:
        yield opened


def opened(database: Database, **options: Any) -> PostgresJournal:
    return PostgresJournal(database.journal, **{"keys": KEYS, "wait_seconds": 5.0, **options})


def tamper(database: Database, sql: str) -> None:
    """What the administrator of the server can do."""
    without_guard(database.server, database.name, LINES, sql)


def numbers(database: Database) -> list[int]:
    found = database.server.psql(f"select number from {LINES} order by 1", database=database.name)
    return [int(number) for number in found.split()]


def place(database: Database, who: str = "journal") -> str:
    return f"the journal in database '{database.name}' (login '{who}')"


# As every journal


def test_who_changed_what_when(journal: PostgresJournal) -> None:
    one = journal.record(event(1))
    two = journal.record(event(2, detail="again"))
    assert (one.number, one.previous) == (1, None)
    assert (two.number, two.previous) == (2, one.digest_of_entry)
    assert list(journal.show()) == [one, two] == journal.tail()
    assert [entry.actor for entry in journal.show(thread="order-7", what="save")] == [ANA, ANA]
    assert list(journal.show(thread="order-8")) == []
    assert journal.tail(1) == [two]
    assert journal.verify() == 2


def test_it_is_a_journal_and_goes_on_in_another_process(
    database: Database, journal: PostgresJournal
) -> None:
    contract: Journal = journal
    fill(contract, 3)
    with opened(database) as later:
        assert later.record(event()).number == 4
    assert journal.record(event()).number == 5
    assert journal.verify() == 5


def test_journals_of_one_database_are_apart(database: Database, journal: PostgresJournal) -> None:
    with opened(database, name="other") as other:
        fill(journal, 2)
        assert other.record(event()).number == 1
        assert (journal.verify(), other.verify()) == (2, 1)
        tamper(database, f"update {LINES} set journal = 'other', number = 2 where number = 2")
        assert refusal(JournalBroken, other.verify) == (
            f"The line after entry 1 in {place(database)} is an entry of the journal journal, not"
            f" of other. {RESTORE}"
        )


def test_an_empty_journal_is_whole(journal: PostgresJournal) -> None:
    assert (journal.verify(), journal.tail(), list(journal.show())) == (0, [], [])


def test_more_lines_than_come_at_once_are_all_there(
    database: Database, journal: PostgresJournal
) -> None:
    """They come in portions of 500."""
    memory = InMemoryJournal(KEYS)
    fill(memory, 1203)
    lines = [("journal", number, line) for number, line in enumerate(memory.lines, 1)]
    with psycopg.connect(database.journal, autocommit=True) as connection, connection.cursor() as c:
        c.executemany(f"insert into {LINES} (journal, number, line) values (%s, %s, %s)", lines)
    seen: list[tuple[int, int]] = []
    assert journal.verify(lambda done, last: seen.append((done, last))) == 1203
    assert seen[0] == (1, 1203)
    assert seen[-1] == (1203, 1203)
    assert [entry.number for entry in journal.tail(501)] == list(range(703, 1204))
    assert journal.record(event()).number == 1204


def test_a_ring_that_only_verifies_reads_and_does_not_write(database: Database) -> None:
    pair = SigningKey.generate("ed25519")
    with (
        opened(database, keys=Keyring(pair)) as journal,
        PostgresJournal(database.auditor, keys=Keyring(verify=pair.public)) as auditor,
    ):
        journal.record(event())
        assert auditor.verify() == 1
        with pytest.raises(KeyRefused, match="only verifies"):
            auditor.record(event())


def test_the_auditor_reads_and_cannot_write(database: Database, journal: PostgresJournal) -> None:
    journal.record(event())
    with PostgresJournal(database.auditor, keys=KEYS) as auditor:
        assert auditor.verify() == 1
        assert refusal(JournalUnavailable, lambda: auditor.record(event())) == (
            f"Database '{database.name}' (login 'auditor') refuses that: permission denied for"
            " table lines. Nothing was done. Use a login of the role that may do it, and keep it"
            " where only that job runs."
        )
    assert journal.verify() == 1


def test_bad_questions_are_refused_at_once(journal: PostgresJournal) -> None:
    with pytest.raises(InvalidId, match="'A' is not a store name"):
        journal.show(store="A")
    with pytest.raises(ConfigurationError, match="No event is called 'sing'"):
        journal.show(what="sing")
    for count in (0, True, "3"):
        with pytest.raises(ConfigurationError, match="is not a number of entries"):
            journal.tail(count)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        journal.record("save")  # type: ignore[arg-type]
    assert journal.verify() == 0


def test_older_keys_verify_after_a_rotation(database: Database, journal: PostgresJournal) -> None:
    fill(journal, 2)
    new = SigningKey.generate("ed25519")
    with opened(database, keys=KEYS.rotated(new)) as rotated:
        assert (rotated.record(event()).number, rotated.verify()) == (3, 3)
    with opened(database, keys=Keyring(new)) as only:
        assert f"It names key '{KEY.id}', which is not on this keyring." in refusal(
            JournalBroken, only.verify
        )


def test_a_ledger_writes_to_it_before_it_saves(
    database: Database, journal: PostgresJournal
) -> None:
    storage = InMemoryCheckpointStorage()
    ledger = Ledger(storage, store="invoices", keys=KEYS, journal=journal, actor=ANA)
    ledger.save("order-7", {"n": 1})
    first = next(journal.show())
    assert (first.what, first.outcome) == ("save", "intended")
    database.server.psql("revoke safepoint_journal from journal")
    try:
        with pytest.raises(JournalUnavailable):
            ledger.save("order-7", {"n": 2})
    finally:
        database.server.psql("grant safepoint_journal to journal")
    assert storage.head("order-7") == 1, "nothing is done that cannot be written down"


# Whoever administers the server

CALLS: dict[str, Callable[[PostgresJournal], object]] = {
    "record": lambda journal: journal.record(event()),
    "show": lambda journal: list(journal.show()),
    "tail": lambda journal: journal.tail(),
    "verify": lambda journal: journal.verify(),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@each_call
def test_an_edited_line_is_seen(
    database: Database, journal: PostgresJournal, call: Callable[[PostgresJournal], object]
) -> None:
    fill(journal, 3)
    tamper(
        database,
        f"update {LINES} set line ="
        " convert_to(replace(convert_from(line, 'UTF8'), 'ana', 'ben'), 'UTF8') where number = 2",
    )
    with opened(database) as later:
        assert refusal(JournalBroken, call, later) == (
            f"The line after entry 1 in {place(database)} was changed after it was written, or"
            f" somebody else wrote it. {RESTORE}"
        )
    assert numbers(database) == [1, 2, 3]


@each_call
def test_a_removed_line_is_seen(
    database: Database, journal: PostgresJournal, call: Callable[[PostgresJournal], object]
) -> None:
    fill(journal, 3)
    tamper(database, f"delete from {LINES} where number = 2")
    with opened(database) as later:
        assert refusal(JournalBroken, call, later) == (
            f"The line after entry 1 in {place(database)} is entry 3, where entry 2 belongs: lines"
            f" were removed, moved or repeated. {RESTORE}"
        )
    assert numbers(database) == [1, 3]


@each_call
def test_lines_that_changed_places_are_seen(
    database: Database, journal: PostgresJournal, call: Callable[[PostgresJournal], object]
) -> None:
    fill(journal, 3)
    tamper(
        database,
        f"update {LINES} l set line = o.line from {LINES} o"
        " where (l.number, o.number) in ((2, 3), (3, 2))",
    )
    with opened(database) as later:
        assert "is entry 3, where entry 2 belongs" in refusal(JournalBroken, call, later)


@pytest.mark.parametrize("left", [0, 1, 2])
@each_call
def test_the_anchor_sees_a_cut(
    database: Database, left: int, call: Callable[[PostgresJournal], object]
) -> None:
    with (
        PostgresAnchor(database.anchor) as anchor,
        opened(database, anchor=anchor) as journal,
        opened(database, anchor=anchor) as later,
    ):
        last = fill(journal, 3)[-1]
        assert anchor.read("journal", "journal") == Head(3, last.digest_of_entry)
        tamper(database, f"delete from {LINES} where number > {left}")
        ends = f"ends at entry {left}" if left else "is empty"
        for each in (journal, later):
            assert refusal(JournalBroken, call, each) == (
                f"The journal journal {ends}, and the anchor has seen entry 3. Its newest lines"
                " were cut off, or an old copy was restored. Put the whole journal back, and find"
                " out who did that."
            )
    assert numbers(database) == list(range(1, left + 1))


def test_without_an_anchor_a_process_remembers_what_it_wrote(
    database: Database, journal: PostgresJournal
) -> None:
    """And only that process: to another one, a cut end is an end."""
    fill(journal, 3)
    tamper(database, f"delete from {LINES} where number > 2")
    assert refusal(JournalBroken, lambda: journal.record(event())).startswith(
        "The journal journal ends at entry 2, and this process has seen entry 3. "
    )
    with opened(database) as later:
        assert later.verify() == 2


def test_another_history_of_the_same_length_is_seen(database: Database) -> None:
    with PostgresAnchor(database.anchor) as anchor, opened(database, anchor=anchor) as journal:
        fill(journal, 3)
        tamper(database, f"delete from {LINES}")
        with opened(database) as other:
            fill(other, 3)
        assert refusal(JournalBroken, journal.verify) == (
            "Entry 3 of the journal journal is not the one that the anchor has seen. Two copies of"
            " the journal are in use, or one was written anew. Find out which is the right one."
        )


def test_lines_under_other_numbers_are_seen_and_do_not_hang_a_writer(
    database: Database, journal: PostgresJournal
) -> None:
    """Each line is genuine and follows the one before it. Only its row has another number."""
    fill(journal, 30)
    tamper(
        database,
        f"delete from {LINES} where number = 10;"
        f" update {LINES} set number = number + 1000 where number > 10;"
        f" update {LINES} set number = number - 1001 + 2 where number > 1000;"
        f" insert into {LINES} select journal, 10, line, login, written from {LINES}"
        " where number = 9",
    )
    with opened(database) as later:
        for call in (lambda: later.record(event()), lambda: later.tail(5)):
            assert " is entry " in refusal(JournalBroken, call)
    assert numbers(database)[-1] == 31


# Whoever has its login


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"update {LINES} set line = ''", "permission denied for table lines"),
        (f"delete from {LINES}", "permission denied for table lines"),
        (f"truncate {LINES}", "permission denied for table lines"),
        (f"drop table {LINES}", "must be owner of table lines"),
        (f"alter table {LINES} disable trigger all", "must be owner of table lines"),
        ("set session_replication_role = replica", "permission denied to set parameter"),
        ("set role safepoint_owner", "permission denied to set role"),
        (
            f"insert into {LINES} (journal, number, line) values ('journal', 5, '')",
            "journal journal has no line 4, so 5 does not follow",
        ),
        (
            f"insert into {LINES} (journal, number, line) values ('journal', 3, '')",
            "duplicate key value violates unique constraint",
        ),
        (
            (
                f"insert into {LINES} (journal, number, line) values ('journal', 3, '')"
                " on conflict (journal, number) do update set line = ''"
            ),
            "permission denied for table lines",
        ),
        (
            f"insert into {LINES} (journal, number, line) values ('new', 0, '')",
            "journal new has no line -1, so 0 does not follow",
        ),
        (
            f"insert into {LINES} (journal, number, line) values ('A', 1, '')",
            "violates check constraint",
        ),
        (
            (
                f"insert into {LINES} (journal, number, line, login)"
                " values ('journal', 4, '', 'somebody')"
            ),
            "permission denied for table lines",
        ),
        (
            (
                f"insert into {LINES} (journal, number, line, written)"
                " values ('journal', 4, '', '2020-01-01')"
            ),
            "permission denied for table lines",
        ),
        ("select * from safepoint.checkpoints", "permission denied for schema safepoint"),
    ],
)
def test_its_login_can_only_add_the_next_line(
    database: Database, journal: PostgresJournal, statement: str, said: str
) -> None:
    fill(journal, 3)
    with psycopg.connect(database.journal, autocommit=True) as connection:
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(statement)
        assert said in str(caught.value)
    assert numbers(database) == [1, 2, 3]
    assert journal.verify() == 3


def test_not_even_its_administrator_changes_a_line_by_accident(
    database: Database, journal: PostgresJournal
) -> None:
    fill(journal, 3)
    with psycopg.connect(database.owner, autocommit=True) as connection:
        for statement in (
            f"update {LINES} set line = ''",
            f"delete from {LINES}",
            f"truncate {LINES}",
        ):
            with pytest.raises(psycopg.Error, match="lines is append-only"):
                connection.execute(statement)


def test_a_thief_of_its_login_shows(database: Database, journal: PostgresJournal) -> None:
    """They add the next line, and it is not genuine. The server noted who did."""
    fill(journal, 3)
    thief = database.dsn("thief", "safepoint_journal")
    with psycopg.connect(thief, autocommit=True) as connection:
        connection.execute(
            f"insert into {LINES} (journal, number, line) select journal, 4, line from {LINES}"
            " where number = 1"
        )
    assert refusal(JournalBroken, lambda: journal.record(event())) == (
        f"The line after entry 3 in {place(database)} is entry 1, where entry 4 belongs: lines were"
        f" removed, moved or repeated. {RESTORE}"
    )
    assert (
        database.server.psql(f"select login from {LINES} where number = 4", database=database.name)
        == "thief"
    )


def test_copies_of_old_lines_at_the_end_are_seen_by_who_looks_at_the_end_alone(
    database: Database, journal: PostgresJournal
) -> None:
    """As many as a new writer verifies: it sees genuine lines, each upon the one before it."""
    fill(journal, 20)
    with psycopg.connect(database.journal, autocommit=True) as connection:
        for number in range(1, 17):
            connection.execute(
                f"insert into {LINES} (journal, number, line) select journal, 20 + number, line"
                f" from {LINES} where number = {number}"
            )
    with opened(database) as later:
        assert refusal(JournalBroken, lambda: later.record(event())) == (
            f"Line 21 of {place(database)} is entry 1. {RESTORE}"
        )


# Anchored


class Failing(InMemoryAnchor):
    error: Exception | None = None

    def advance(self, store: str, thread: str, head: Head) -> None:
        if self.error is not None:
            raise self.error
        super().advance(store, thread, head)


def test_an_anchor_that_cannot_be_moved_stops_the_writer_and_is_no_alarm(
    database: Database,
) -> None:
    """The line stays, since nobody can take it back; the next one moves the anchor over both."""
    anchor = Failing()
    with opened(database, anchor=anchor) as journal:
        fill(journal, 2)
        anchor.error = AnchorUnavailable("It is down.", "Wait.")
        assert refusal(JournalUnavailable, lambda: journal.record(event())) == (
            "The journal's anchor cannot be moved. It is down. Wait."
        )
        anchor.error = None
        assert journal.verify() == 3
        last = journal.record(event())
        assert anchor.read("journal", "journal") == Head(4, last.digest_of_entry)


def test_an_anchor_that_is_far_behind_is_compared_all_the_same(
    database: Database, journal: PostgresJournal
) -> None:
    first = fill(journal, 40)[0]
    right, wrong = InMemoryAnchor(), InMemoryAnchor()
    right.advance("journal", "journal", Head(1, first.digest_of_entry))
    wrong.advance("journal", "journal", Head(1, "sha256:" + "0" * 64))
    with opened(database, anchor=wrong) as later:
        for call in (lambda: later.record(event()), lambda: later.tail(2)):
            assert "Entry 1 of the journal" in refusal(JournalBroken, call)
    with opened(database, anchor=right) as later:
        assert later.record(event()).number == 41


def test_a_file_anchor_on_this_machine_sees_what_the_server_lost(
    database: Database, tmp_path: Any
) -> None:
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    with opened(database, anchor=anchor) as journal:
        fill(journal, 3)
        tamper(database, f"delete from {LINES} where number = 3")
        assert "ends at entry 2, and the anchor has seen entry 3" in refusal(
            JournalBroken, journal.verify
        )


# Several writers

WRITER = """
    import json, sys
    from safepoint import Keyring, SigningKey
    from safepoint.anchor.postgres import PostgresAnchor
    from safepoint.journal import Actor, Event
    from safepoint.journal.postgres import PostgresJournal

    dsn, heads, writer = sys.argv[1:]
    keys = Keyring(SigningKey(bytes(range(32))))
    journal = PostgresJournal(dsn, keys=keys, anchor=PostgresAnchor(heads))
    print("ready", flush=True)
    sys.stdin.readline()
    told = []
    for number in range(1, 51):
        event = Event("save", "intended", Actor(writer, how="login"), "s", "t", number)
        told.append(journal.record(event).number)
    print(json.dumps(told))
"""


def test_4_processes_write_50_lines_each_and_none_is_lost(database: Database) -> None:
    writers = [f"w{number}" for number in range(4)]
    arguments = [[database.journal, database.anchor, writer] for writer in writers]
    with Workers(WRITER, arguments) as workers:
        workers.go()
        told = dict(zip(writers, map(json.loads, workers.ends()), strict=True))
    assert sorted(number for each in told.values() for number in each) == list(range(1, 201))
    keys = Keyring(SigningKey(bytes(range(32))))
    with (
        PostgresAnchor(database.anchor) as anchor,
        opened(database, keys=keys, anchor=anchor) as journal,
    ):
        entries = list(journal.show())
        assert [entry.number for entry in entries] == list(range(1, 201))
        for writer in writers:
            own = [entry for entry in entries if entry.actor.name == writer]
            assert [entry.number for entry in own] == told[writer], "as it was told"
            assert [entry.sequence for entry in own] == list(range(1, 51)), "in its order"
        assert anchor.read("journal", "journal") == Head(200, entries[-1].digest_of_entry)


def test_8_threads_of_one_process_share_a_journal(journal: PostgresJournal) -> None:
    told: list[int] = []
    failed: list[BaseException] = []

    def write() -> None:
        try:
            told.extend(journal.record(event()).number for _ in range(10))
        except BaseException as error:  # noqa: BLE001  told below
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(told) == list(range(1, 81))
    assert journal.verify() == 80


def test_a_writer_who_always_comes_too_late_gives_up(
    database: Database, journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else writes each time between its look at the end and its own line."""
    with opened(database, wait_seconds=0.5) as slow:
        look = slow._newest

        def late(*args: Any) -> Any:
            found = look(*args)
            journal.record(event(detail="other"))
            return found

        monkeypatch.setattr(slow, "_newest", late)
        assert refusal(JournalUnavailable, lambda: slow.record(event(detail="slow"))) == (
            f"Others write to {place(database)} all the time: for 0.5 seconds each place at its end"
            " was taken before this line was there. Nothing was written. Wait for longer with"
            " wait_seconds=, or let fewer writers share one journal: name= tells them apart."
        )
        monkeypatch.undo()
        assert {entry.detail for entry in journal.show()} == {"other"}
        assert slow.record(event(detail="slow")).detail == "slow"


# A bad network


def through(database: Database, network: Network) -> str:
    return psycopg.conninfo.make_conninfo(database.journal, port=str(network.port))


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("first", [0, 3], ids=["the first line", "the fourth"])
def test_an_answer_that_is_lost_does_not_write_an_event_twice(
    database: Database, how: str, first: int
) -> None:
    with (
        Network(database.server.port) as network,
        PostgresJournal(through(database, network), keys=KEYS) as journal,
    ):
        fill(journal, first)
        network.lose(b"insert into safepoint_journal.lines", how)
        entry = journal.record(event(detail="once"))
        assert (network.lost, entry.number) == (1, first + 1)
        assert [each.detail for each in journal.show()] == [""] * first + ["once"]


@pytest.mark.parametrize("known", [True, False], ids=["in this process", "in others"])
def test_nor_if_others_wrote_meanwhile(database: Database, known: bool) -> None:
    """More lines than a new writer looks at, so that its own lies behind them all."""
    others: list[int] = []
    with opened(database) as other:

        class Busy(Network):
            def _cuts(self, data: bytes, server: Any) -> bool:
                cut = super()._cuts(data, server)
                if cut:
                    writer = shared if known else other
                    others.extend(entry.number for entry in fill(writer, 40))
                return cut

        with Busy(database.server.port) as network:
            shared = PostgresJournal(through(database, network), keys=KEYS)
            with shared:
                network.lose(b"insert into safepoint_journal.lines", "after")
                entry = shared.record(event(detail="once"))
    assert (network.lost, entry.number, others) == (1, 1, list(range(2, 42)))
    with opened(database) as later:
        assert [each.number for each in later.show() if each.detail == "once"] == [1]
        assert later.verify() == 41


def test_a_line_that_is_too_long_is_neither_taken_nor_read(database: Database) -> None:
    """The attack: lines that fill the memory of whoever reads them."""
    with (
        psycopg.connect(database.journal, autocommit=True) as connection,
        pytest.raises(psycopg.errors.CheckViolation),
    ):
        connection.execute(
            "insert into safepoint_journal.lines (journal, number, line)"
            " values ('journal', 1, convert_to(repeat('x', 32769), 'UTF8'))"
        )
    with psycopg.connect(database.owner, autocommit=True) as connection:
        connection.execute("alter table safepoint_journal.lines drop constraint lines_line_check")
        connection.execute(
            "insert into safepoint_journal.lines (journal, number, line)"
            " values ('journal', 1, convert_to(repeat('x', 32769), 'UTF8'))"
        )
    with PostgresJournal(database.journal, keys=Keyring(SigningKey.generate())) as journal:
        assert "is not a line of a journal." in refusal(JournalBroken, journal.verify)
