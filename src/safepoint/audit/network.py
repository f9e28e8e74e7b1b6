"""Is the way to a PostgreSQL private, encrypted, and narrow?"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from safepoint.audit.finding import CATALOGUE, Finding, finding
from safepoint.audit.postgres import Database, looking, shown
from safepoint.core.errors import quoted

_EVERYWHERE: Final = ("*", "0.0.0.0", "::")  # noqa: S104  looked for, not listened on
_ENCRYPTED: Final = (
    "select (select ssl from pg_stat_ssl where pid = pg_backend_pid()),"
    " (select encrypted from pg_stat_gssapi where pid = pg_backend_pid())"
)
# As the server goes through them: the lines of a file that is included stand where it is.
_RULES: Final = (
    "select coalesce(substring(to_jsonb(r)->>'file_name' from '[^/\\\\]+$'), 'pg_hba.conf'),"
    " line_number, coalesce(type, ''), coalesce(database, '{}'), coalesce(user_name, '{}'),"
    " address, netmask, coalesce(auth_method, ''), error from pg_hba_file_rules r"
)
_SEES: Final = (
    "select has_table_privilege('pg_hba_file_rules', 'SELECT')"
    " and has_function_privilege('pg_hba_file_rules()', 'EXECUTE')"
)
_PLAIN: Final = ("host", "hostnossl", "hostnogssenc")
_CLEAR: Final = ("password", "ldap", "radius", "pam", "bsd")
_ANY: Final = ("all", "sameuser", "samerole", "samegroup", "replication")


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
        that is too broad, or that the server leaves out, and for an sslmode of verify-ca; a note
        if the server listens everywhere.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: an argument is no connection string.
        Unavailable: there is no server, or it does not let the login in.
    """
    with looking(dsn) as database:
        found = [*judged(_way(database)), *_server(database)]
        if admin is None:
            found += broad(database) if _sees_rules(database) else []
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
        return _sees_rules(database)


def _sees_rules(database: Database) -> bool:
    return database.rows(_SEES) == [(True,)]


def _way(database: Database) -> Way:
    info, pgconn = database.connection.info, database.connection.pgconn
    modes = [each.val or b"" for each in pgconn.info if each.keyword == b"sslmode"]
    tls, kerberos = database.rows(_ENCRYPTED)[0]
    return Way(
        host=info.host,
        address="" if info.host.startswith("/") else info.hostaddr,
        mode=b"".join(modes).decode("ascii", "replace"),
        here=bool(pgconn.ssl_in_use or kerberos),
        there=bool(tls or kerberos),
    )


def judged(way: Way) -> Iterator[Finding]:
    """Yield what is wrong with the way of a connection."""
    if not way.address or ip_address(way.address).is_loopback:
        return
    to = f"{quoted(way.host)} ({way.address})" if way.host != way.address else way.address
    if f"SP06.sslmode-{way.mode}" in CATALOGUE:
        yield finding(f"SP06.sslmode-{way.mode}", way.address, to=to)
    if not way.here and way.mode != "disable":
        yield finding("SP06.clear", way.address, to=to)
    if way.here and not way.there:
        yield finding("SP06.in-front", way.address, to=to)
    if ip_address(way.address).is_global:
        yield finding("SP06.public", way.address, to=to)


def _server(database: Database) -> Iterator[Finding]:
    (text,) = database.rows("show listen_addresses")[0]
    every = [each for each in map(str.strip, text.split(",")) if each in _EVERYWHERE]
    if every:
        yield finding("SP06.listens", database.name, address=every[0])


class _Line(NamedTuple):
    """A line of pg_hba.conf, or of a file that it includes."""

    file: str
    number: int
    type: str
    databases: list[str]
    users: list[str]
    address: str | None
    netmask: str | None
    method: str
    error: str | None

    @property
    def network(self) -> IPv4Network | IPv6Network | None:
        mask: str | int = self.netmask or ""
        if ":" in str(mask):  # ipaddress takes no masks for IPv6
            mask = int(ip_address(mask)).bit_count()
        try:
            return ip_network(f"{self.address}/{mask}", strict=False)
        except ValueError:
            return None

    @property
    def is_local(self) -> bool:
        """Whether nobody comes in by it from another host."""
        network = self.network
        is_loopback = network is not None and network.is_loopback
        return self.type == "local" or self.address == "samehost" or is_loopback

    @property
    def is_everywhere(self) -> bool:
        network = self.network
        if network is None:
            return self.address == "all"
        return network.prefixlen < 8 and not network.is_private

    def __str__(self) -> str:
        where = str(self.network or self.address or "")
        words = (self.type, ",".join(self.databases), ",".join(self.users), where, self.method)
        return f"{self.number} of {shown(self.file)} ({' '.join(map(shown, filter(None, words)))})"


def broad(database: Database, name: str | None = None) -> Iterator[Finding]:
    """Yield the lines that let more into a database than its workers need.

    Args:
        database: as one sees it who may read the rules.
        name: the database of the store, if it is another one.

    Raises:
        Unavailable: the login may not read the rules.
    """
    ours = name or database.name
    closed: list[_Line] = []
    for line in (_Line(*row) for row in database.rows(_RULES)):
        odd = any(each.startswith(("/", "+")) for each in line.databases)
        if line.method == "reject":
            closed += [line] if line.error is None else []
        elif line.error is not None:
            yield finding("SP06.idle", line.file, line=line, error=quoted(line.error))
        elif odd or not {ours, *_ANY}.isdisjoint(line.databases):
            yield from _loose(line, closed, ours)


def _loose(line: _Line, closed: list[_Line], ours: str) -> Iterator[Finding]:
    whole = {line.type, "host"} if line.type != "local" else {"local"}
    if any(_covers(each, line, whole) for each in closed):
        return
    plain = line.type in _PLAIN and not any(_covers(each, line, _PLAIN) for each in closed)
    severe = {
        "it asks for no password": line.method == "trust",
        "it believes whatever the client's host says of who comes": line.method == "ident"
        and line.type != "local",
        "the password passes in the clear": line.method in _CLEAR and plain and not line.is_local,
    }
    loose = {
        "it takes MD5 hashes for passwords": line.method == "md5",
        "it takes what is not encrypted": plain,
        "everybody may come from everywhere": line.is_everywhere,
        "to every database": "all" in line.databases,
        "as every login": "all" in line.users,
    }
    found = [why for why, is_so in severe.items() if is_so]
    severity = "error" if found else "warning"
    found += [why for why, is_so in loose.items() if is_so and not line.is_local]
    if found:
        why, how = ", ".join(found), "local" if line.type == "local" else "hostssl"
        where = "" if how == "local" else f" {line.network or '10.0.3.0/24'}"
        where = " 10.0.3.0/24" if line.is_everywhere else where
        write = f"{how} {shown(ours)} worker_1{where} scram-sha-256"
        yield finding("SP06.line", line.file, severity=severity, line=line, why=why, write=write)


def _covers(closed: _Line, line: _Line, types: Collection[str]) -> bool:
    """Tell whether all that a line would let in was rejected before, by one of some types.

    What several lines reject together is not put together, so more may be said than need be.
    """
    # "all" are all databases, and a copy of the whole server is none.
    every = "all" in closed.databases and "replication" not in line.databases
    return (
        closed.type in types
        and (every or set(line.databases) <= set(closed.databases))
        and ("all" in closed.users or set(line.users) <= set(closed.users))
        and _is_inside(line, closed)
    )


def _is_inside(line: _Line, closed: _Line) -> bool:
    """Tell whether whoever comes from where one line says comes from where the other says."""
    first, second = closed.network, line.network
    if first is None or second is None or first.version != second.version:
        return closed.address in ("all", line.address)
    return second.subnet_of(first)  # type: ignore[arg-type]
