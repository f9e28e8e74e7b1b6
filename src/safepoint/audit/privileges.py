"""Has each login of a store in PostgreSQL the privileges that its job needs, and no others?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations, permutations, product

from safepoint.audit.databases import SCHEMAS, Database, Roles, looking
from safepoint.audit.finding import Finding
from safepoint.audit.grants import everybody, excess
from safepoint.audit.others import beginnings, strangers
from safepoint.audit.ownerships import Names, defaults, members, owners
from safepoint.audit.powers import operators, owned, powers, settings
from safepoint.audit.protections import changed
from safepoint.audit.schema import altered
from safepoint.errors import StorageUnavailable, quoted

_JOBS = {"store": "the store", "anchor": "the anchor", "journal": "the journal"}


def check_privileges(
    dsn: str, *, anchor: str | None = None, journal: str | None = None
) -> list[Finding]:
    """Look at what the logins of a store may do, and at what the server would refuse them.

    Each connection string is the one that the application uses: the check logs in with it, reads
    the catalogs, and changes nothing.

    ```python
    from safepoint.audit import check_privileges
    from safepoint.postgres import migrate
    from safepoint.testing.postgres import Server

    with Server() as server:
        server.database("checkpoints")
        migrate(server.dsn(database="checkpoints"))
        server.login("worker_1", "safepoint_writer")
        server.psql("grant delete on safepoint.checkpoints to worker_1", database="checkpoints")
        for finding in check_privileges(server.dsn("worker_1", "checkpoints")):
            if finding.severity == "error":
                print(finding.rule, finding.what.split(";")[0])
                #> SP05 Login 'worker_1' may DELETE in safepoint.checkpoints
    ```

    Args:
        dsn: with which workers reach the store.
        anchor: with which they reach the anchor, if it is in PostgreSQL.
        journal: with which they reach the journal, if it is in PostgreSQL.

    Returns:
        Under SP05, an error for a superuser, an owner, and each privilege that lets a login change
        what is kept, or act in the place of another; a warning for what it does not need, for what
        every login of the server may do, and for a password in a connection string; an error for
        whatever others own, may do, or can act as; a note of who the operators are, of what is set
        for the sessions of the logins, and if the anchor is on the server of the store. Under SP13,
        SP15 and SP20, an error for each function, trigger, table, column and constraint of store,
        anchor and journal that is not as `migrate` made it.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: an argument is no connection string.
        StorageUnavailable: there is no server, it does not let the login in, or there is no schema
            of safepoint in the database.
    """
    named = {"store": dsn, "anchor": anchor, "journal": journal}
    with ExitStack() as stack:
        seen = {
            part: stack.enter_context(looking(each))
            for part, each in named.items()
            if each is not None
        }
        for part, database in seen.items():
            if not database.has_schema(part):
                raise _no_schema(part, database)
        found = [finding for each in _checks(seen) for finding in each]
    return list({finding.what: finding for finding in found}.values())


def _checks(seen: dict[str, Database]) -> Iterator[Iterator[Finding]]:
    known: set[tuple[str, str]] = set()
    named: dict[str, set[str]] = {}
    for part, database in seen.items():
        yield _password(part, database)
        if (database.server, database.login) in known:
            continue  # one login for two jobs, which is said below
        known.add((database.server, database.login))
        roles = Roles(database, database.login)
        named.setdefault(database.server, set()).update(roles.names)
        yield powers(database, roles)
        yield owned(database, roles)
        yield excess(database, roles, part)
        yield settings(database, roles)
    for (part, database), (_, other) in permutations(seen.items(), 2):
        if (
            database.server == other.server
            and database.name != other.name
            and database.login != other.login
        ):
            roles = Roles(other, database.login)
            yield owned(other, roles)
            yield excess(other, roles, part)
    yield _together(seen)
    databases = {(each.server, each.name): each for each in seen.values()}.values()
    for store, apart in product(databases, repeat=2):
        if (
            store.server == apart.server
            and store.has_schema("store")
            and apart.has_schema("anchor")
        ):
            yield operators(store, apart)
    for database in databases:
        names, told = Names(database), named[database.server]
        yield everybody(database)
        yield owners(database, names, told)
        yield members(database, names, told)
        yield strangers(database, names, told)
        yield defaults(database, names)
        yield beginnings(database, names, told)
        for part in SCHEMAS:
            if database.has_schema(part):
                yield changed(database, part)
                yield altered(database, part)


def _no_schema(part: str, database: Database) -> StorageUnavailable:
    from safepoint.postgres.connection import place

    return StorageUnavailable(
        f"There is no schema {SCHEMAS[part]} in {place(database.given)}.",
        f"Correct the connection string of {_JOBS[part]}, or make it, as one who may create roles:"
        " safepoint postgres migrate DSN",
    )


def _password(part: str, database: Database) -> Iterator[Finding]:
    """Look for a password where it is logged, shown by ps, and kept in configuration."""
    if database.given.get("password"):
        yield Finding(
            "SP05",
            "warning",
            f"The connection string of {_JOBS[part]} holds the password of login"
            f" {quoted(database.login)}, and goes wherever the string goes.",
            "Take it out, put it into a file of mode 0600, and name that with passfile= or"
            " PGPASSFILE. Change it if the string was ever logged.",
            database.login,
        )


def _together(seen: dict[str, Database]) -> Iterator[Finding]:
    for (one, first), (other, second) in combinations(seen.items(), 2):
        jobs = f"{_JOBS[one]} and {_JOBS[other]}"
        if first.server == second.server and first.login == second.login:
            yield Finding(
                "SP05",
                "error",
                f"{jobs.capitalize()} are reached with one login, {quoted(first.login)}: whoever"
                " steals it has both.",
                f"Make a login for {_JOBS[other]} alone: create role {other}_1 login in role"
                f" safepoint_{other}",
                first.login,
            )
        elif first.connection.info.password and (
            first.connection.info.password == second.connection.info.password
        ):
            yield Finding(
                "SP05",
                "error",
                f"The logins of {jobs} have one password.",
                "Whoever steals one has both. Give each its own: \\password in psql.",
                second.login,
            )
    apart = seen.get("anchor")
    if apart is not None and apart.server == seen["store"].server:
        yield Finding(
            "SP05",
            "note",
            "The anchor is on the server of the store: a stolen login of the store cannot move it,"
            " but whoever administers the server, or restores its backup, takes back both.",
            "If you fear that, keep it on another server: migrate(dsn, parts=('anchor',)).",
            apart.name,
        )
