"""Every storage of this package, and the one on the page, keeps the claims of the suite.

What a storage does not offer is listed here claim by claim, so that nothing is skipped unseen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safepoint.core.storage import InMemoryCheckpointStorage
from safepoint.stores.files import FileCheckpointStorage
from safepoint.stores.sqlite import SQLiteCheckpointStorage
from safepoint.testing import StorageSuite
from tests.harness.blocks import ROOT, expand
from tests.unit.storage_helpers import CLAIMS, try_claim

OF_FOUR_METHODS = {
    "test_methods_come_in_whole_sets",
    "test_a_record_comes_back_byte_for_byte",
    "test_a_second_record_at_a_place_is_refused",
    "test_threads_do_not_mix",
    "test_another_opening_goes_on",
    "test_racers_fill_each_place_once",
    "test_a_reader_sees_whole_records",
    "test_a_ledger_saves_and_verifies",
    "test_a_record_goes_behind_the_last_alone",
}


class Memory(StorageSuite):
    shared = False

    def open(self, folder: Path) -> InMemoryCheckpointStorage:
        return InMemoryCheckpointStorage()


class File(StorageSuite):
    def open(self, folder: Path) -> FileCheckpointStorage:
        return FileCheckpointStorage(folder / "store")


class SQLite(StorageSuite):
    def open(self, folder: Path) -> SQLiteCheckpointStorage:
        return SQLiteCheckpointStorage(folder / "checkpoints.db")


class Postgres(StorageSuite):
    """Under the operator's login, which may prune as well."""

    dsn: str

    def open(self, folder: Path) -> Any:
        from safepoint.stores.postgres import PostgresCheckpointStorage

        return PostgresCheckpointStorage(self.dsn)


class OnThePage(StorageSuite):
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


LACKS: dict[type[StorageSuite], set[str]] = {
    Memory: {"test_another_opening_goes_on"},
    File: set(),
    SQLite: set(),
    Postgres: set(),
    OnThePage: {*CLAIMS} - OF_FOUR_METHODS,
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("suite", [pytest.param(each, id=each.__name__) for each in LACKS])
def test_a_storage_keeps_the_claim(
    suite: type[StorageSuite], claim: str, request: pytest.FixtureRequest
) -> None:
    if suite is Postgres:
        database = request.getfixturevalue("database")
        suite.dsn = database.of_every_tenant(database.operator)
    lacking = try_claim(suite, claim)
    assert bool(lacking) == (claim in LACKS[suite]), lacking or "it has this: change LACKS"
