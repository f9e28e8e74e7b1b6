"""Every storage of this package, and the one on the page, keeps the claims of the suite.

What a storage does not offer is listed here claim by claim, so that nothing is skipped unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from safepoint.storage import FileCheckpointStorage, InMemoryCheckpointStorage
from safepoint.testing import NotOffered, StorageSuite
from safepoint.testing.storages import claims
from tests.harness.blocks import ROOT, expand

if TYPE_CHECKING:
    from safepoint.postgres import PostgresCheckpointStorage
    from safepoint.storage.sqlite import SQLiteCheckpointStorage
    from tests.harness.postgres import Database

Suite = TypeVar("Suite", bound=type[StorageSuite])
ORDER = "a_place_out_of_order_is_refused"
ALL = set(claims())
RECORDS = {
    "methods_come_in_whole_sets",
    "a_record_comes_back_byte_for_byte",
    "a_second_record_at_a_place_is_refused",
    "threads_do_not_mix",
    "the_head_is_the_highest_sequence",
    "each_thread_is_listed_once",
    "what_is_not_there_is_not_found",
    "a_buffer_is_copied",
    "another_opening_sees_each_record",
    "it_is_all_there_when_it_is_opened_again",
    "one_of_two_racers_gets_a_place",
    "openings_that_race_leave_no_gap",
    "a_reader_sees_whole_records",
    "a_ledger_saves_and_verifies",
}
"""What holds for four methods on a store that several processes open."""

PRUNING = {
    "a_base_before_no_record_is_refused",
    "a_base_comes_back_byte_for_byte",
    "a_ledger_prunes_and_deletes_a_thread",
    "a_pruned_thread_goes_on",
    "a_pruned_thread_is_copied_into_it",
    "a_scan_stops_at_the_base",
    "a_scan_that_a_prune_overtakes_tells_no_lie",
    "a_thread_may_begin_at_any_sequence",
    "a_thread_never_moves_backwards",
    "another_opening_sees_the_prune",
    "of_prunes_that_race_the_highest_counts",
    "prune_removes_what_is_below",
    "tokens_go_on_after_a_prune",
}
"""What is about a thread that was pruned."""


def lacks(*names: str) -> Callable[[Suite], Suite]:
    """Let a suite say that the storage does not offer what these claims are about."""

    def overridden(claim: Callable[[Any], None]) -> Callable[[Any], None]:
        def test(self: Any) -> None:
            with pytest.raises(NotOffered):
                claim(self)

        return test

    def decorate(suite: Suite) -> Suite:
        for name in names:
            setattr(suite, f"test_{name}", overridden(getattr(suite, f"test_{name}")))
        return suite

    return decorate


@lacks(
    ORDER,
    "another_opening_sees_each_record",
    "it_is_all_there_when_it_is_opened_again",
    "openings_that_race_leave_no_gap",
    "another_opening_sees_the_prune",
    "another_opening_sees_the_owner",
)
class TestInMemory(StorageSuite):
    shared = False

    def open(self, folder: Path) -> InMemoryCheckpointStorage:
        return InMemoryCheckpointStorage()


class TestFile(StorageSuite):
    def open(self, folder: Path) -> FileCheckpointStorage:
        return FileCheckpointStorage(folder / "store")


class TestSQLite(StorageSuite):
    def open(self, folder: Path) -> SQLiteCheckpointStorage:
        from safepoint.storage.sqlite import SQLiteCheckpointStorage

        return SQLiteCheckpointStorage(folder / "checkpoints.db")


class TestPostgres(StorageSuite):
    """Under the operator's login, which may prune as well."""

    @pytest.fixture(autouse=True)
    def _database(self, database: Database) -> None:
        self.dsn = database.operator

    def open(self, folder: Path) -> PostgresCheckpointStorage:
        from safepoint.postgres import PostgresCheckpointStorage

        return PostgresCheckpointStorage(self.dsn)


@lacks(*PRUNING)
class TestPostgresUnderAWorkersLogin(StorageSuite):
    """Under the login that a worker has. What it lacks is to prune: the server refuses it that."""

    @pytest.fixture(autouse=True)
    def _database(self, database: Database) -> None:
        self.dsn = database.worker(1)

    def open(self, folder: Path) -> PostgresCheckpointStorage:
        from safepoint.postgres import PostgresCheckpointStorage

        class OfAWorker(PostgresCheckpointStorage):
            def __getattribute__(self, name: str) -> Any:
                if name in ("base", "prune"):
                    raise AttributeError(name)
                return super().__getattribute__(name)

        return OfAWorker(self.dsn)


@lacks(*ALL - RECORDS)
class TestTheOneOnThePage(StorageSuite):
    """Four short methods. Names are the ledger's, and a connection belongs to its thread."""

    threadsafe = False
    guarded = False

    def open(self, folder: Path) -> Any:
        lines = expand('--8<-- "custom_storage.py:storage"', (ROOT / "snippets",))
        assert lines is not None
        names: dict[str, Any] = {}
        exec("\n".join(line.text for line in lines), names)  # noqa: S102  it is our own page
        return names["TableStorage"](folder / "checkpoints.db")

    def close(self, storage: Any) -> None:
        storage.db.close()
