"""PostgresAnchor: a head moves up alone, and the database itself holds to that."""

# ruff: noqa: S608  the SQL of these tests is put together from their own words

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safepoint import Head, Keyring, Ledger, SigningKey
from safepoint.anchor import Anchor
from safepoint.anchor.postgres import PostgresAnchor
from safepoint.errors import (
    AnchorUnavailable,
    ConfigurationError,
    Forked,
    InvalidId,
    RolledBack,
)
from safepoint.names import Heads
from safepoint.storage.postgres import PostgresCheckpointStorage
from tests.harness.postgres import Database
from tests.unit.postgres_helpers import Workers, head, refusal, without_guard

KEYS = Keyring(SigningKey.generate())


@pytest.fixture
def anchor(database: Database) -> Iterator[PostgresAnchor]:
    with PostgresAnchor(database.anchor, wait_seconds=5) as opened:
        yield opened


@pytest.fixture
def operator(database: Database) -> Iterator[PostgresAnchor]:
    with PostgresAnchor(database.anchor_operator, wait_seconds=5) as opened:
        yield opened


# As every anchor


def test_it_is_an_anchor_and_a_memory_of_heads(anchor: PostgresAnchor) -> None:
    """The types of both contracts fit (checked by mypy), and it works through them."""
    contract: Anchor = anchor
    known: Heads = anchor
    contract.advance("s", "t", head(1))
    assert known.read("s", "t") == head(1)
    assert known.read("s", "u") is None
    assert list(contract.threads("s")) == ["t"]


def test_a_head_moves_forward_by_any_distance(anchor: PostgresAnchor) -> None:
    for sequence in (1, 2, 57, 9_999_999_999):
        anchor.advance("s", "t", head(sequence))
        assert anchor.read("s", "t") == head(sequence)


@pytest.mark.parametrize("late", [head(1), head(4, "b"), head(5)], ids=["1", "4 of another", "5"])
def test_an_older_head_or_the_same_is_ignored(anchor: PostgresAnchor, late: Head) -> None:
    anchor.advance("s", "t", head(5))
    anchor.advance("s", "t", late)
    assert anchor.read("s", "t") == head(5)


def test_another_record_at_the_same_sequence_is_a_fork(anchor: PostgresAnchor) -> None:
    anchor.advance("s", "t", head(5))
    assert refusal(Forked, lambda: anchor.advance("s", "t", head(5, "b"))) == (
        "t #5 is not the record that the anchor has seen there. Two copies of the store are in"
        " use, or one was rewritten. The anchor was not moved: find out which copy is the right"
        " one before you save again."
    )
    assert anchor.read("s", "t") == head(5)


def test_threads_and_stores_are_apart_and_listed_in_order(anchor: PostgresAnchor) -> None:
    """In the order of their bytes, whatever the language of the database is."""
    assert anchor.threads("s") == []
    for number, thread in enumerate(["b", "a-1", "a1", "a_1", "store", "c" * 64], 1):
        anchor.advance("s", thread, head(number))
    anchor.advance("r", "b", head(9))
    assert anchor.threads("s") == ["a-1", "a1", "a_1", "b", "c" * 64, "store"]
    assert anchor.threads("r") == ["b"]
    assert (anchor.read("s", "b"), anchor.read("r", "b")) == (head(1), head(9))


CALLS: dict[str, Callable[[PostgresAnchor, Any, Any], object]] = {
    "read": lambda anchor, store, thread: anchor.read(store, thread),
    "advance": lambda anchor, store, thread: anchor.advance(store, thread, head(1)),
    "rewind": lambda anchor, store, thread: anchor.rewind(store, thread, None),
}


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a'b", "é", "a\n", "a\0", "x" * 65, 7])
def test_a_name_outside_the_grammar_never_reaches_the_server(
    anchor: PostgresAnchor, name: Any
) -> None:
    anchor.close()  # a call that asked the server would open a connection
    for call in CALLS.values():
        for store, thread in ((name, "t"), ("s", name)):
            with pytest.raises(InvalidId):
                call(anchor, store, thread)
    with pytest.raises(InvalidId):
        anchor.threads(name)
    assert anchor._server._idle == []


@pytest.mark.parametrize("wrong", [None, 5, (5, "sha256:" + "a" * 64), "5"])
def test_what_is_not_a_head_is_refused(anchor: PostgresAnchor, wrong: Any) -> None:
    said = (
        f"A head was asked for, and {type(wrong).__name__} was given."
        " Pass safepoint.record.Head(sequence, digest)."
    )
    assert refusal(ConfigurationError, lambda: anchor.advance("s", "t", wrong)) == said
    if wrong is not None:
        assert refusal(ConfigurationError, lambda: anchor.rewind("s", "t", wrong)) == said
    assert anchor.read("s", "t") is None


def test_threads_of_one_process_never_move_a_head_back(anchor: PostgresAnchor) -> None:
    """Each of 4 threads advances by its own order; a reader looks on."""
    seen: list[int] = []
    orders = [range(1, 26), range(25, 0, -1), range(1, 26, 2), range(2, 26, 3)]
    failed: list[BaseException] = []

    def advance(order: range) -> None:
        try:
            for sequence in order:
                anchor.advance("s", "t", head(sequence))
        except BaseException as error:  # noqa: BLE001  a thread's error is nobody's otherwise
            failed.append(error)

    writers = [Thread(target=advance, args=[order]) for order in orders]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        found = anchor.read("s", "t")
        seen.append(found.sequence if found else 0)
    for writer in writers:
        writer.join()
    assert failed == []
    assert seen == sorted(seen)
    assert anchor.read("s", "t") == head(25)


@given(heads=st.lists(st.builds(head, st.integers(1, 6), st.sampled_from("ab")), max_size=12))
@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
def test_any_sequence_of_heads_moves_forward_alone(
    anchor: PostgresAnchor, operator: PostgresAnchor, heads: list[Head]
) -> None:
    """The anchor holds the first record that it saw at the highest sequence that it saw."""
    operator.rewind("s", "t", None)
    known: Head | None = None
    for new in heads:
        if known is not None and new.sequence == known.sequence and new.digest != known.digest:
            with pytest.raises(Forked):
                anchor.advance("s", "t", new)
        else:
            anchor.advance("s", "t", new)
            if known is None or new.sequence > known.sequence:
                known = new
        assert anchor.read("s", "t") == known


# Whoever has its login

BACK = "a head of the anchor never goes back"
D = f"'sha256:{'b' * 64}'"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("update safepoint_anchor.heads set sequence = 4", BACK),
        ("update safepoint_anchor.heads set sequence = sequence", BACK),
        (f"update safepoint_anchor.heads set digest = {D}", BACK),
        (f"update safepoint_anchor.heads set sequence = 4, digest = {D}", BACK),
        ("update safepoint_anchor.heads set store = 'x'", "permission denied for table heads"),
        ("update safepoint_anchor.heads set thread = 'x'", "permission denied for table heads"),
        ("delete from safepoint_anchor.heads", "permission denied for table heads"),
        ("truncate safepoint_anchor.heads", "permission denied for table heads"),
        ("drop table safepoint_anchor.heads", "must be owner of table heads"),
        (
            "alter table safepoint_anchor.heads disable trigger all",
            "must be owner of table heads",
        ),
        ("set session_replication_role = replica", "permission denied to set parameter"),
        ("select safepoint_anchor.rewind('s', 't', 1, null)", "permission denied for function"),
        ("select * from safepoint_anchor.rewinds", "permission denied for table rewinds"),
        ("update safepoint_anchor.version set number = 9", "permission denied for table version"),
        ("set role safepoint_owner", "permission denied to set role"),
        (
            (
                f"insert into safepoint_anchor.heads values ('s', 't', 3, {D})"
                " on conflict (store, thread) do update set sequence = excluded.sequence"
            ),
            BACK,
        ),
        (f"insert into safepoint_anchor.heads values ('s', 't', 9, {D})", "duplicate key value"),
        (f"insert into safepoint_anchor.heads values ('s', 'u', 0, {D})", "violates check"),
        (f"insert into safepoint_anchor.heads values ('S', 'u', 1, {D})", "violates check"),
        ("insert into safepoint_anchor.heads values ('s', 'u', 1, 'x')", "violates check"),
    ],
)
def test_its_login_cannot_set_a_head_back(
    database: Database, anchor: PostgresAnchor, statement: str, said: str
) -> None:
    anchor.advance("s", "t", head(5))
    with psycopg.connect(database.anchor, autocommit=True) as connection:
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(statement)
        assert said in str(caught.value)
    assert anchor.read("s", "t") == head(5)
    assert anchor.threads("s") == ["t"]


def test_not_even_its_administrator_sets_a_head_back_by_accident(
    database: Database, anchor: PostgresAnchor
) -> None:
    anchor.advance("s", "t", head(5))
    with psycopg.connect(database.owner, autocommit=True) as connection:
        for statement in (
            "update safepoint_anchor.heads set sequence = 4",
            "delete from safepoint_anchor.heads",
            "truncate safepoint_anchor.heads",
        ):
            with pytest.raises(psycopg.Error, match=BACK):
                connection.execute(statement)
    assert anchor.read("s", "t") == head(5)


@pytest.mark.parametrize("who", ["worker", "reader", "journal"])
def test_the_logins_of_the_store_cannot_even_look(
    database: Database, anchor: PostgresAnchor, who: str
) -> None:
    anchor.advance("s", "t", head(5))
    dsn = database.worker(1) if who == "worker" else getattr(database, who)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in (
            "select * from safepoint_anchor.heads",
            "update safepoint_anchor.heads set sequence = 9",
            "select safepoint_anchor.rewind('s', 't', null, null)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


# The operator


def test_rewind_takes_an_operator(database: Database, anchor: PostgresAnchor) -> None:
    anchor.advance("s", "t", head(5))
    assert refusal(AnchorUnavailable, lambda: anchor.rewind("s", "t", head(2))) == (
        f"Database '{database.name}' (login 'anchor') refuses that: permission denied for function"
        " rewind. Nothing was done. Use a login of the role that may do it, and keep it where only"
        " that job runs."
    )
    assert anchor.read("s", "t") == head(5)


def test_the_operators_of_the_store_see_heads_and_set_none_back(
    database: Database, anchor: PostgresAnchor
) -> None:
    """They can discard records; that it was done shows for as long as the anchor is another's."""
    anchor.advance("s", "t", head(5))
    with PostgresAnchor(database.operator, wait_seconds=5) as of_store:
        assert of_store.read("s", "t") == head(5)
        assert of_store.threads("s") == ["t"]
        for call in (
            lambda: of_store.rewind("s", "t", head(2)),
            lambda: of_store.rewind("s", "t", None),
        ):
            assert refusal(AnchorUnavailable, call) == (
                f"Database '{database.name}' (login 'operator') refuses that: permission denied"
                " for function rewind. Nothing was done. Use a login of the role that may do it,"
                " and keep it where only that job runs."
            )
        assert "permission denied for table heads" in refusal(
            AnchorUnavailable, lambda: of_store.advance("s", "t", head(6))
        )
    assert anchor.read("s", "t") == head(5)


def test_the_operators_of_the_anchor_cannot_touch_the_store(database: Database) -> None:
    with psycopg.connect(database.anchor_operator, autocommit=True) as connection:
        for statement in (
            "select * from safepoint.checkpoints",
            "select safepoint.discard('t', 1)",
            "select safepoint.prune('t', 1, 'x')",
            "select safepoint.break_lease('t')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_rewind_sets_an_older_head_and_is_written_down(
    database: Database, anchor: PostgresAnchor, operator: PostgresAnchor
) -> None:
    anchor.advance("s", "t", head(5))
    anchor.advance("s", "u", head(6))
    operator.rewind("s", "t", head(2, "b"))
    assert anchor.read("s", "t") == head(2, "b")
    anchor.advance("s", "t", head(3))
    assert anchor.read("s", "t") == head(3)
    operator.rewind("s", "t", head(3, "c"))
    for _ in range(2):
        operator.rewind("s", "t", None)
        assert anchor.read("s", "t") is None
    operator.rewind("s", "new", head(4))
    assert anchor.threads("s") == ["new", "u"]
    assert anchor.read("s", "u") == head(6)
    rows = database.server.psql(
        "select thread, from_sequence, left(from_digest, 8), to_sequence, left(to_digest, 8), login"
        " from safepoint_anchor.rewinds order by rewound",
        database=database.name,
    )
    assert rows.split("\n") == [
        "t|5|sha256:a|2|sha256:b|anchor_operator",
        "t|3|sha256:a|3|sha256:c|anchor_operator",
        "t|3|sha256:c|||anchor_operator",
        "t|||||anchor_operator",
        "new|||4|sha256:a|anchor_operator",
    ]


def test_what_was_rewound_cannot_be_hidden(
    database: Database, anchor: PostgresAnchor, operator: PostgresAnchor
) -> None:
    anchor.advance("s", "t", head(5))
    operator.rewind("s", "t", None)
    attempts = [
        "delete from safepoint_anchor.rewinds",
        "update safepoint_anchor.rewinds set login = 'anchor'",
        "truncate safepoint_anchor.rewinds",
    ]
    for dsn, said in (
        (database.anchor_operator, "permission denied"),
        (database.operator, "permission denied"),
        (database.owner, "append-only"),
    ):
        with psycopg.connect(dsn, autocommit=True) as connection:
            for statement in attempts:
                with pytest.raises(psycopg.Error, match=said):
                    connection.execute(statement)
    with psycopg.connect(database.auditor) as connection:
        assert connection.execute("select login from safepoint_anchor.rewinds").fetchall() == [
            ("anchor_operator",)
        ]


def test_an_operator_cannot_move_a_head_without_a_trace(
    database: Database, anchor: PostgresAnchor, operator: PostgresAnchor
) -> None:
    anchor.advance("s", "t", head(5))
    assert "permission denied for table heads" in refusal(
        AnchorUnavailable, lambda: operator.advance("s", "t", head(6))
    )


# Several processes

RACE = """
    import json, sys
    from safepoint import Head
    from safepoint.anchor.postgres import PostgresAnchor
    from safepoint.errors import Forked

    dsn, writer = sys.argv[1], sys.argv[2]
    anchor = PostgresAnchor(dsn)
    print("ready", flush=True)
    sys.stdin.readline()
    lost = []
    for sequence in range(1, 101):
        try:
            anchor.advance("s", "t", Head(sequence, "sha256:" + writer * 64))
        except Forked:
            lost.append(sequence)
    print(json.dumps(lost))
"""


def test_two_processes_that_race_with_two_histories_are_told(database: Database) -> None:
    """Of the two records at the end, one counts, and who brought the other one is told."""
    with Workers(RACE, [[database.anchor, digit] for digit in "ab"]) as workers:
        workers.go()
        lost = {digit: json.loads(said) for digit, said in zip("ab", workers.ends(), strict=True)}
    with PostgresAnchor(database.anchor) as anchor:
        last = anchor.read("s", "t")
    assert last is not None
    assert {digit: head(100, digit) != last for digit in "ab"} == {
        digit: 100 in lost[digit] for digit in "ab"
    }
    assert last.sequence == 100


# With a ledger


@pytest.fixture
def ledger(database: Database, anchor: PostgresAnchor) -> Iterator[Ledger]:
    with PostgresCheckpointStorage(database.worker(1)) as storage:
        yield Ledger(storage, store="invoices", keys=KEYS, anchor=anchor)


def again(ledger: Ledger, anchor: Anchor) -> Ledger:
    """A process that comes later, and remembers nothing."""
    return Ledger(ledger.storage, store="invoices", keys=KEYS, anchor=anchor)


def cut(database: Database, last: int) -> None:
    """What the administrator of the store can do: put an old state back, with all that counts."""
    without_guard(
        database.server,
        database.name,
        "safepoint.checkpoints",
        f"delete from safepoint.checkpoints where sequence > {last};"
        " alter table safepoint.threads disable trigger user;"
        f" update safepoint.threads set head = {last};"
        " alter table safepoint.threads enable trigger user",
    )


def test_a_rollback_by_the_administrator_of_the_store_is_seen(
    database: Database, ledger: Ledger, anchor: PostgresAnchor
) -> None:
    for number in range(1, 6):
        ledger.save("order-7", {"n": number})
    cut(database, 3)
    for call in (
        lambda: again(ledger, anchor).latest("order-7"),
        lambda: again(ledger, anchor).save("order-7", {"n": 4}),
        lambda: again(ledger, anchor).verify("order-7"),
    ):
        with pytest.raises(RolledBack, match="order-7") as caught:
            call()
        assert "#5" in str(caught.value)
    assert ledger.storage.head("order-7") == 3
    without = Ledger(ledger.storage, store="invoices", keys=KEYS)
    assert without.latest("order-7").state == {"n": 3}, "what it would be without an anchor"


def test_an_operator_who_accepts_the_loss_goes_on(
    database: Database, ledger: Ledger, anchor: PostgresAnchor, operator: PostgresAnchor
) -> None:
    saved = [ledger.save("order-7", {"n": number}) for number in range(1, 6)]
    cut(database, 3)
    operator.rewind("invoices", "order-7", Head(3, saved[2].digest))
    after = again(ledger, anchor)
    assert after.latest("order-7").state == {"n": 3}
    assert after.save("order-7", {"n": 4}).sequence == 4


def test_a_crash_between_the_save_and_the_anchor_is_no_alarm(
    ledger: Ledger, anchor: PostgresAnchor
) -> None:
    ledger.save("order-7", {"n": 1})
    # A worker that died right after it had saved: the record is there, the anchor did not move.
    Ledger(ledger.storage, store="invoices", keys=KEYS).save("order-7", {"n": 2})
    after = again(ledger, anchor)
    assert after.latest("order-7").state == {"n": 2}
    assert after.verify("order-7") == 2
    assert after.save("order-7", {"n": 3}).sequence == 3
    known = anchor.read("invoices", "order-7")
    assert known is not None
    assert known.sequence == 3
