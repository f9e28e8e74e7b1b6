"""Who connects to a server: its logins and their passwords, its databases, and `psql`."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from typing import Final

from safepoint.errors import ConfigurationError, StorageRefused, quoted
from safepoint.testing.postgres._passfile import Passfile, check_line, conninfo, identifier

HOST: Final = "127.0.0.1"
SUPERUSER: Final = "postgres"


class Access:
    """What a server offers to those who use it.

    Attributes:
        bin: the folder with `psql` and the other programs.
        passfile: the passwords of the logins, as `PGPASSFILE` wants them.
    """

    def __init__(self, programs: Path, passfile: Path) -> None:
        self.bin = programs
        self.passfile = passfile
        self._logins = Passfile(passfile)

    @property
    def host(self) -> str:
        """The address on which it listens."""
        return HOST

    @property
    def port(self) -> int:
        """The port on which it listens."""
        raise NotImplementedError

    @property
    def logins(self) -> frozenset[str]:
        """The logins whose passwords it knows."""
        return frozenset(self._logins.passwords)

    def dsn(self, user: str = SUPERUSER, database: str = "postgres") -> str:
        """Return what libpq wants to know to connect, with the password.

        Raises:
            ConfigurationError: this object made no such login.
        """
        if user not in self._logins.passwords:
            raise ConfigurationError(
                f"There is no login {quoted(user)}.", "Make it first: server.login(name, role)."
            )
        return conninfo(
            host=HOST,
            port=str(self.port),
            dbname=database,
            user=user,
            password=self._logins.passwords[user],
        )

    def login(self, name: str, *roles: str, database: str = "postgres") -> str:
        """Create a login with a random password as a member of roles, and return its DSN.

        Raises:
            ConfigurationError: the name holds a control character.
            StorageRefused: the server refuses.
        """
        check_line("login", name)
        password = secrets.token_urlsafe(18)
        member = f" in role {', '.join(map(identifier, roles))}" if roles else ""
        self.psql(f"create role {identifier(name)} login password '{password}'{member}")
        self.remember(name, password)
        return self.dsn(name, database)

    def remember(self, user: str, password: str) -> None:
        """Keep the password of a login that was made by other means, for `dsn` and `passfile`.

        Raises:
            ConfigurationError: one of the two holds a control character.
        """
        self._logins.add(user, password)

    def database(self, name: str, *, template: str | None = None) -> None:
        """Create a database, as a copy of another one if you name it.

        Raises:
            StorageRefused: the server refuses.
        """
        # As files: a template is small, and what is copied so is not written to the log as well.
        copied = f" template {identifier(template)} strategy file_copy" if template else ""
        self.psql(f"create database {identifier(name)}{copied}")

    def has(self, database: str) -> bool:
        """Tell whether there is a database of that name."""
        names = self.psql("select datname from pg_database")
        return database in names.split("\n")

    def psql(self, sql: str, *, user: str = SUPERUSER, database: str = "postgres") -> str:
        """Run SQL through `psql`, and return the rows without any decoration.

        Raises:
            StorageRefused: the server refuses it, or the connection.
        """
        done = self._psql(sql, user, database)
        if done.returncode:
            raise StorageRefused(
                f"PostgreSQL refuses: {quoted(' '.join(done.stderr.split()))}.",
                "Look at the statement, and at who runs it.",
            )
        return done.stdout.rstrip("\n")

    def environ(self, database: str = "postgres") -> dict[str, str]:
        """What a program that uses libpq reads from its environment to connect."""
        return {
            "PGHOST": HOST,
            "PGPORT": str(self.port),
            "PGDATABASE": database,
            "PGPASSFILE": str(self.passfile),
        }

    def _psql(self, sql: str, user: str, database: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 -- psql of the wheel
            [str(self.bin / "psql"), "-XqAtw", "-v", "ON_ERROR_STOP=1", "-U", user],
            check=False,
            env={"LC_ALL": "C", **self.environ(database)},
            input=sql,
            capture_output=True,
            encoding="utf-8",
        )
