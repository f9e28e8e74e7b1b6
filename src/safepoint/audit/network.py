"""Is the way to a PostgreSQL private, encrypted, and narrow?"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final, NamedTuple

from safepoint.audit.databases import Database, looking
from safepoint.audit.finding import Finding
from safepoint.audit.hba import broad, sees_rules
from safepoint.errors import quoted

_UNPROVED: Final = ("disable", "allow", "prefer", "require")
_LETS: Final[dict[str, str]] = {
    "disable": "nothing is encrypted: whoever is on the way reads each record, and can change it",
    "allow": "it is encrypted if the server insists: whoever is on the way sees to it that it is"
    " not, and reads and changes each record",
    "prefer": "it goes on in the clear if the server has no TLS: whoever is on the way says so in"
    " its name, and reads and changes each record",
    "require": "it is encrypted, but unless there is an sslrootcert nobody looks with whom: whoever"
    " is on the way passes for the server",
    "verify-ca": "the certificate may be that of any host: whoever has one of the same authority"
    " passes for the server",
}
_LAGGING: Final = ("any", "read-only", "standby", "prefer-standby")
_EVERYWHERE: Final = ("*", "0.0.0.0", "::")  # noqa: S104  looked for, not listened on


class Way(NamedTuple):
    """How a connection comes to its server.

    Attributes:
        host: the host, as the connection string names it; a folder for a socket in a file.
        address: the address of the host; empty for a socket in a file.
        mode: the sslmode.
        here: whether the connection is encrypted on this side.
        there: whether it is encrypted on the server's side.
    """

    host: str
    address: str
    mode: str
    here: bool
    there: bool


def check_network(dsn: str, *, admin: str | None = None) -> list[Finding]:
    """Look at the way on which an application reaches its PostgreSQL.

    A socket in a file, and the loopback address, are no network. The check logs in, and changes
    nothing.

    ```python
    from safepoint.audit import check_network
    from safepoint.testing.postgres import Server

    with Server() as server:
        print(check_network(server.dsn()))
        #> []
        server.hba(["host all all 127.0.0.1/32 scram-sha-256", "host all all 0.0.0.0/0 trust"])
        for finding in check_network(server.dsn()):
            print(finding.rule, finding.severity, finding.what.split(":")[0])
            #> SP06 error Line 2 of pg_hba.conf (host all all 0.0.0.0/0 trust) is too broad
    ```

    Args:
        dsn: the connection string that the application uses.
        admin: one of a login that may read `pg_hba_file_rules`, if the application's may not, as
            it should be.

    Returns:
        Under SP06, an error if whoever is on the way could read records or pass for the server,
        for a connection that is not encrypted, and for a line of pg_hba.conf that asks for no
        password or lets one pass in the clear; a warning for a public address, for any other line
        that is too broad, and for an sslmode of verify-ca; a note if the server listens
        everywhere, or if a copy of it may be asked.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: an argument is no connection string.
        StorageUnavailable: there is no server, or it does not let the login in.
    """
    with looking(dsn) as database:
        found = [*judged(_way(database)), *_listens(database), *_lags(database)]
        if admin is None:
            found += broad(database) if sees_rules(database) else []
    if admin is not None:
        with looking(admin) as other:
            found += broad(other, database.name)
    return found


def may_see_rules(dsn: str) -> bool:
    """Tell whether a login may read `pg_hba_file_rules`.

    Raises:
        CheckpointError: as `check_network` does.
    """
    with looking(dsn) as database:
        return sees_rules(database)


def _way(database: Database) -> Way:
    info, pgconn = database.connection.info, database.connection.pgconn
    chosen = {option.keyword: option.val or b"" for option in pgconn.info}
    rows = database.rows(
        "select (select ssl from pg_stat_ssl where pid = pg_backend_pid()),"
        " (select encrypted from pg_stat_gssapi where pid = pg_backend_pid())"
    )
    tls, kerberos = (bool(each) for each in rows[0])
    address = "" if info.host.startswith("/") else info.hostaddr
    return Way(
        host=info.host,
        address=address,
        mode=chosen.get(b"sslmode", b"").decode("ascii", "replace"),
        here=bool(pgconn.ssl_in_use) or kerberos,
        there=tls or kerberos,
    )


def judged(way: Way) -> Iterator[Finding]:
    """Yield what is wrong with the way of a connection."""
    if not way.address or ip_address(way.address).is_loopback:
        return
    to = f"{quoted(way.host)} ({way.address})" if way.host != way.address else way.address
    if way.mode in _LETS:
        yield Finding(
            "SP06",
            "error" if way.mode in _UNPROVED else "warning",
            f"The connection to {to} has sslmode={way.mode}: {_LETS[way.mode]}.",
            "Write sslmode=verify-full into the connection string, and sslrootcert= with the"
            " authority of the server's certificate.",
            way.address,
        )
    if not way.here and way.mode != "disable":
        yield Finding(
            "SP06",
            "error",
            f"The connection to {to} is not encrypted.",
            "Turn ssl on at the server, and write sslmode=verify-full.",
            way.address,
        )
    if way.here and not way.there:
        yield Finding(
            "SP06",
            "warning",
            f"The connection to {to} is encrypted up to something in front of the server, and not"
            " from there on.",
            "If that is a pooler or a proxy of yours, let it reach the server with"
            " sslmode=verify-full, too. If you have none, find out what it is.",
            way.address,
        )
    if ip_address(way.address).is_global:
        yield Finding(
            "SP06",
            "warning",
            f"The server is at a public address, {to}, where everybody can try passwords.",
            "Give it an address in a private network, and let nothing but the workers into that.",
            way.address,
        )


def _listens(database: Database) -> Iterator[Finding]:
    (text,) = database.rows("show listen_addresses")[0]
    every = [each for each in map(str.strip, text.split(",")) if each in _EVERYWHERE]
    if every:
        yield Finding(
            "SP06",
            "note",
            f"The server listens on all addresses of its host (listen_addresses = '{every[0]}').",
            "Name the one of the private network, in postgresql.conf.",
            database.name,
        )


def _lags(database: Database) -> Iterator[Finding]:
    given = database.given.get("target_session_attrs")
    if given in _LAGGING:
        yield Finding(
            "SP06",
            "note",
            f"With target_session_attrs={given} a copy that lags may answer, and look like a store"
            " that was rolled back.",
            "Leave it out: safepoint asks for one that can be written.",
            database.name,
        )
