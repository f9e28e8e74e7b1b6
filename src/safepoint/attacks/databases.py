"""Each attack on the top rung on a database, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from safepoint.attacks.catalogue import ATTACKS, RESIDUE
from safepoint.attacks.isolation import in_a_process
from safepoint.attacks.outcome import Outcome
from safepoint.attacks.rungs.databases import SQLiteTarget

_EVERY = ATTACKS | RESIDUE


@contextmanager
def on_database(storage: str) -> Iterator[Callable[[str], Outcome]]:
    """Return what runs an attack by its name on a database of its own.

    Args:
        storage: `sqlite`, or `postgres`, for which a server is started, and stopped at the end.

    Raises:
        MissingPackage: psycopg, or the wheel with PostgreSQL, is not installed.
        StorageUnavailable: the server does not start.
    """
    if storage == "sqlite":
        yield lambda attack: in_a_process(lambda folder: _EVERY[attack]().run(SQLiteTarget(folder)))
        return
    from safepoint.attacks.rows_postgres import PostgresRows, Trial
    from safepoint.attacks.rungs.postgres import PostgresTarget

    with Trial() as trial:

        def strike(folder: str, attack: str) -> Outcome:
            return _EVERY[attack]().run(PostgresTarget(folder, PostgresRows(trial)))

        yield lambda attack: in_a_process(lambda folder: strike(folder, attack))
