"""The driver, if it is installed, and what a connection string says that may be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safepoint.errors import ConfigurationError, MissingPackage, quoted

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]


def driver() -> Any:
    """Return psycopg.

    Raises:
        MissingPackage: it is not installed, or finds no libpq.
    """
    try:
        import psycopg
    except ImportError as error:
        raise MissingPackage(
            "PostgreSQL needs the package psycopg.", "Run: pip install 'safepoint[postgres]'"
        ) from error
    return psycopg


class Address:
    """Where a server is and who comes, parsed from a connection string. It shows no password.

    Args:
        dsn: a connection string as libpq takes it: `postgresql://…`, or `dbname=… user=…`. What it
            leaves out comes from the environment (`PGHOST`, `PGPASSFILE`), as with `psql`.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: it is no connection string.
    """

    __slots__ = ("_given", "conninfo")

    def __init__(self, dsn: object) -> None:
        psycopg = driver()
        if not isinstance(dsn, str):
            raise ConfigurationError(
                f"A connection string was asked for, and {type(dsn).__name__} was given.",
                'Write "host=db.internal dbname=checkpoints user=worker_1".',
            )
        try:
            given = psycopg.conninfo.conninfo_to_dict(dsn)
        except (psycopg.Error, UnicodeError):
            given = None
        # What libpq says may quote the string, and the string may hold a password.
        if given is None or "\0" in dsn:
            raise ConfigurationError(
                "This is not a connection string for PostgreSQL.",
                'Write "host=db.internal dbname=checkpoints user=worker_1", or postgresql://…, and'
                " keep the password in a file that PGPASSFILE names.",
            )
        self._given = {key: str(value) for key, value in given.items() if value is not None}
        # In postgresql://me:a/b@host the part after a slash of the password is the database.
        if any("@" in self.get(key) for key in ("host", "port", "dbname")):
            raise ConfigurationError(
                "This connection string has an '@' where none belongs: in a host or a database.",
                "Keep the password in a file that PGPASSFILE names, or write its '/' as %2F and its"
                " '@' as %40.",
            )
        self.conninfo = dsn

    def get(self, key: str, default: str = "") -> str:
        """Return a parameter of the string."""
        return self._given.get(key, default)

    def known(self, connection: psycopg.Connection[Any] | None = None) -> str:
        """Say which database and which login, as far as it is known."""
        database, user = self.get("dbname"), self.get("user")
        if connection is not None:
            database, user = connection.info.dbname, connection.info.user
        shown = f"database {quoted(database)}" if database else "the database"
        return f"{shown} (login {quoted(user)})" if user else shown
