"""The top rung on databases, and the adversary's hands there: records as rows.

The adversary owns the database. No trigger stops them, and no constraint: they switch those off,
edit, and leave everything as it was. They know what belongs together, so the row of a thread always
fits its records.
"""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from safepoint.attacks import GatedTarget, Medium, medium
from safepoint.core.anchor import Anchor
from safepoint.core.ledger import Ledger
from safepoint.core.names import stamp
from safepoint.core.storage import Lease, read_lease, write_lease
from safepoint.stores.files import LEASE
from safepoint.stores.postgres import PostgresAnchor, PostgresCheckpointStorage
from safepoint.stores.sqlite import SQLiteCheckpointStorage
from safepoint.testing.postgres import Server
from tests.harness.postgres import TEMPLATE, Database

BASE: Final = "base"
RECORD: Final = ".checkpoint"
_CLEAR: Final = """
    select format('delete from %I.%I', schemaname, tablename) from pg_tables
    where schemaname like 'safepoint%' and tablename <> 'logins'
"""
_WHERE: Final = "tenant = ? and thread = ?"
Row = tuple[Any, ...]
_Result = TypeVar("_Result")


class Rows(Medium):
    """Records as rows of a database, under the names that the files would have.

    `thread/0000000007.checkpoint` is a row of the table of records; `thread/base` and
    `thread/lease` are columns of the thread's own row.

    Attributes:
        begins: what the row of a thread says of its beginning if it was never pruned.
        none: what it says of its end if it has no record.
        more: what the row of a record says besides.
        free: what a row says of a thread that was never leased.
    """

    begins: ClassVar[int] = 0
    none: ClassVar[dict[str, int]] = {}
    more: ClassVar[dict[str, str]] = {}
    free: ClassVar[str] = "token = 0"

    @abstractmethod
    def ask(self, statement: str, *values: Any) -> list[Row]:
        """Run a statement as the owner of the database. A value stands where it has a `?`."""

    @abstractmethod
    def turn(self) -> AbstractContextManager[object]:
        """Let what is asked in it happen at once, with every rule of the tables switched off."""

    @abstractmethod
    def storage(self) -> Any:
        """Return the storage, opened as the victim opens it."""

    def names(self) -> list[str]:
        """Return the name of each row, and of what a thread's own row holds."""
        records = self.ask("select tenant, thread, sequence from {checkpoints}")
        found = [f"{_of(*place)}/{number:010d}{RECORD}" for *place, number in records]
        owned = self.ask(f"select tenant, thread, base is not null, {self.free} from {{threads}}")  # noqa: S608
        for *place, based, free in owned:
            thread = _of(*place)
            found += [f"{thread}/{BASE}"] * bool(based) + [f"{thread}/{LEASE}"] * (not free)
        return sorted(found)

    def _read(self, name: str) -> bytes:
        thread, sequence = _parts(name)
        if isinstance(sequence, int):
            query = f"select record from {{checkpoints}} where {_WHERE} and sequence = ?"  # noqa: S608
            ((record,),) = self.ask(query, *_place(thread), sequence)
            return bytes(record)
        if sequence != BASE:
            return self.lease(thread)
        query = f"select first, base from {{threads}} where {_WHERE}"  # noqa: S608
        ((first, base),) = self.ask(query, *_place(thread))
        return b"%010d\n%b" % (first, base)

    def lease(self, thread: str) -> bytes:
        """Return the lease of a thread, as a file would hold it."""
        query = f"select token, owner, expires from {{threads}} where {_WHERE}"  # noqa: S608
        ((token, owner, expires),) = self.ask(query, *_place(thread))
        free = Lease(thread, token=token)
        return write_lease(free if owner is None else Lease(thread, owner, token, expires))

    def leased(self, thread: str, lease: bytes | None) -> dict[str, Any]:
        """Return the columns that say such a lease of a thread."""
        last = Lease(thread) if lease is None else read_lease(LEASE, thread, lease)
        owner, ends = (last.owner, stamp(last.expires)) if last.owner else (None, None)
        return {"token": last.token, "owner": owner, "expires": ends}

    def write(self, name: str, data: bytes) -> None:
        """Write a row over what is there, and let the thread's own row fit it."""
        thread, sequence = _parts(name)
        with self.turn():
            self.place(thread)
            if isinstance(sequence, int):
                self._forget(thread, sequence)
                record = {**_columns_of(thread), "sequence": sequence, "record": data, **self.more}
                self.ask(_insert("checkpoints", record), *record.values())
            elif sequence == BASE:
                first, _, base = data.partition(b"\n")
                self.set(thread, first=int(first), base=base)
            else:
                self.set(thread, **self.leased(thread, data))
            self._fit(thread)

    def delete(self, name: str) -> None:
        """Remove a row, and let the thread's own row fit what is left."""
        thread, sequence = _parts(name)
        with self.turn():
            if isinstance(sequence, int):
                self._forget(thread, sequence)
            elif sequence == BASE:
                self.set(thread, first=self.begins, base=None)
            else:
                self.set(thread, **self.leased(thread, None))
            self._fit(thread)

    def place(self, thread: str) -> None:
        """Let a thread have a row, which is the victim's."""
        mine = {column: self.more[column] for column in self.more if column == "login"}
        row = {**_columns_of(thread), **self.none, **mine}
        self.ask(_insert("threads", row) + " on conflict do nothing", *row.values())
        self.set(thread, **mine)

    def set(self, thread: str, **columns: Any) -> None:
        """Change what the row of a thread says, fitting or not."""
        changes = ", ".join(f"{column} = ?" for column in columns) or "thread = thread"
        text = f"update {{threads}} set {changes} where {_WHERE}"  # noqa: S608  our own names
        self.ask(text, *columns.values(), *_place(thread))

    def _forget(self, thread: str, sequence: int) -> None:
        text = f"delete from {{checkpoints}} where {_WHERE} and sequence = ?"  # noqa: S608
        self.ask(text, *_place(thread), sequence)

    def _fit(self, thread: str) -> None:
        """Let the head be the newest record, and no row be left of a thread that has nothing."""
        newest = f"select coalesce(max(sequence), 0) from {{checkpoints}} where {_WHERE}"  # noqa: S608
        ((head,),) = self.ask(newest, *_place(thread))
        self.set(thread, **dict.fromkeys(self.none, head))
        if not head:
            gone = f"delete from {{threads}} where {_WHERE} and base is null and {self.free}"  # noqa: S608
            self.ask(gone, *_place(thread))


def _insert(table: str, row: dict[str, Any]) -> str:
    columns, values = ", ".join(row), ", ".join("?" * len(row))
    return f"insert into {{{table}}} ({columns}) values ({values})"  # noqa: S608


def _of(tenant: str, thread: str) -> str:
    return f"@{tenant}/{thread}" if tenant else thread


def _place(thread: str) -> tuple[str, str]:
    """Return the tenant and the thread that the name of a folder means."""
    tenant, _, rest = thread.rpartition("/")
    return tenant.removeprefix("@"), rest


def _columns_of(thread: str) -> dict[str, Any]:
    return dict(zip(("tenant", "thread"), _place(thread), strict=True))


def _parts(name: str) -> tuple[str, int | str]:
    thread, _, rest = name.rpartition("/")
    return thread, int(rest.removesuffix(RECORD)) if rest.endswith(RECORD) else rest


class SQLiteRows(Rows):
    """Records in a file of SQLite, which the adversary opens as anybody can who may write it."""

    free = "lease is null"

    def lease(self, thread: str) -> bytes:
        """Return the lease of a thread, which is a column as it is."""
        query = f"select lease from {{threads}} where {_WHERE}"  # noqa: S608
        return bytes(self.ask(query, *_place(thread))[0][0])

    def leased(self, thread: str, lease: bytes | None) -> dict[str, Any]:
        """Return the column that says such a lease."""
        return {"lease": lease}

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: sqlite3.Connection | None = None
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.storage().close()  # it makes the tables

    def storage(self) -> SQLiteCheckpointStorage:
        """Open the file anew."""
        return SQLiteCheckpointStorage(self.path)

    def beside(self) -> SQLiteRows:
        """Return a new file next to this one."""
        number = len(list(self.path.parent.glob("*.db"))) + 1
        return SQLiteRows(self.path.with_name(f"copy-{number}.db"))

    def ask(self, statement: str, *values: Any) -> list[Row]:
        """Run a statement, in a turn of its own if there is none."""
        text = statement.format(checkpoints="checkpoints", threads="threads")
        if self._open is not None:
            return self._open.execute(text, values).fetchall()
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(text, values).fetchall()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Drop every trigger, and put each back as it was."""
        with medium.Rows(self.path.parent).turn(self.path.name) as connection:
            self._open = connection
            try:
                yield
            finally:
                self._open = None


class Pool:
    """Databases of a server, each with the schema and nothing else, to be taken again and again."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._made = self._taken = 0
        self._opened: list[Any] = []

    def take(self) -> Database:
        """Return the next one, cleared if it was taken before."""
        self._taken += 1
        found = Database(self.server, f"trial_{self._taken}")
        if self._taken > self._made:
            self._made = self._taken
            self.server.database(found.name, template=TEMPLATE)
            # One application serves all of them: a login for each is another net's.
            for login in (found.worker(1), found.operator, found.anchor, found.anchor_operator):
                found.of_every_tenant(login)
            return found
        with self.superuser(found) as connection:
            for (statement,) in connection.execute(_CLEAR).fetchall():
                connection.execute(statement)
        return found

    def superuser(self, database: Database) -> Any:
        """Connect as one for whom no trigger fires."""
        import psycopg

        options = "-c session_replication_role=replica"
        return psycopg.connect(database.owner, autocommit=True, options=options)

    def opened(self, closable: Any) -> Any:
        """Remember what to close when the databases are taken anew."""
        self._opened.append(closable)
        return closable

    def reset(self) -> None:
        """Close what was opened, and let the databases be taken anew."""
        while self._opened:
            self._opened.pop().close()
        self._taken = 0


class PostgresRows(Rows):
    """Records in a database of PostgreSQL, in the hands of a superuser."""

    begins = 1
    more: ClassVar[dict[str, str]] = {"login": "worker_1", "written": "now"}

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.database = pool.take()
        self._hands = pool.opened(pool.superuser(self.database))
        self._storages: dict[str, PostgresCheckpointStorage] = {}

    def storage(self, dsn: str | None = None) -> PostgresCheckpointStorage:
        """Return the storage. It keeps connections, and nothing of what it has read."""
        dsn = dsn or self.database.worker(1)
        if dsn not in self._storages:
            self._storages[dsn] = self.pool.opened(PostgresCheckpointStorage(dsn))
        return self._storages[dsn]

    def beside(self) -> PostgresRows:
        """Return another database."""
        return PostgresRows(self.pool)

    def ask(self, statement: str, *values: Any) -> list[Row]:
        """Run a statement."""
        text = statement.format(checkpoints="safepoint.records", threads="safepoint.threads")
        done = self._hands.execute(text.replace("?", "%s"), values)
        return [] if done.description is None else list(done.fetchall())

    def turn(self) -> AbstractContextManager[object]:
        """Let it be one transaction. Triggers do not fire for this connection."""
        return self._hands.transaction()  # type: ignore[no-any-return]


class DatabaseTarget(GatedTarget):
    """The ledger on a database that the adversary owns."""

    medium: Rows

    def use(self, act: Callable[[Ledger], _Result]) -> _Result:
        """Open the database as a new process does, and use it once."""
        return act(self._ledger(self.medium.storage()))

    def point(self, thread: str, label: str, sequence: int) -> None:
        """Do nothing: a database has no index of labels."""


class SQLiteTarget(DatabaseTarget):
    """The ledger on a file of SQLite, with an anchor in a folder elsewhere."""

    name = "sqlite"

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder, SQLiteRows(Path(folder) / "store" / "checkpoints.db"))


class PostgresTarget(DatabaseTarget):
    """The ledger on PostgreSQL, with an anchor in another database and under another login.

    The worker's login adds records. To prune, to delete and to accept a loss takes an operator's.
    """

    name = "postgres"
    medium: PostgresRows

    def __init__(self, folder: str | Path, pool: Pool) -> None:
        super().__init__(folder, PostgresRows(pool))
        elsewhere = pool.take()
        self.anchor: Anchor = pool.opened(PostgresAnchor(elsewhere.anchor, connections=1))
        self._rewinding = pool.opened(PostgresAnchor(elsewhere.anchor_operator, connections=1))

    def prune(self, thread: str, keep: int) -> None:
        """Leave a signed base, as an operator."""
        self._operate(lambda ledger: ledger.prune(thread, keep=keep))

    def delete(self, thread: str) -> None:
        """Leave a tombstone and nothing before it, as an operator who has taken the thread."""

        def delete(ledger: Ledger) -> None:
            with ledger.own(thread, "operator"):
                ledger.delete(thread)
                ledger.erase(thread)

        self._operate(delete)

    def go_back(self, thread: str, sequence: int) -> None:
        """Drop the records, and accept the loss by name, as an operator."""
        for name in self.records(thread)[sequence:]:
            self.medium.delete(name)
        anchor, self.anchor = self.anchor, self._rewinding
        try:
            self._operate(lambda ledger: ledger.accept_loss(thread))
        finally:
            self.anchor = anchor

    def _operate(self, act: Callable[[Ledger], object]) -> None:
        act(self._ledger(self.medium.storage(self.medium.database.operator)))
