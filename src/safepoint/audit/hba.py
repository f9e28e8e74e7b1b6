"""What pg_hba.conf lets in: from where, as whom, and with what proof."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, NamedTuple

from safepoint.audit.databases import Database, shown
from safepoint.audit.finding import Finding
from safepoint.errors import quoted

_RULES: Final = (
    "select line_number, coalesce(type, ''), coalesce(database, '{}'), coalesce(user_name, '{}'),"
    " address, netmask, coalesce(auth_method, ''), error from pg_hba_file_rules order by 1"
)
_SEES: Final = (
    "select has_table_privilege('pg_hba_file_rules', 'SELECT')"
    " and has_function_privilege('pg_hba_file_rules()', 'EXECUTE')"
)
_PLAIN: Final = ("host", "hostnossl")
_ANY: Final = ("all", "sameuser", "samerole", "samegroup")


class _Line(NamedTuple):
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
        try:
            return ip_network(f"{self.address}/{_length(self.netmask)}", strict=False)
        except ValueError:
            return None

    @property
    def is_local(self) -> bool:
        """Whether nobody comes in by it from another host."""
        network = self.network
        return (
            self.type == "local"
            or self.address == "samehost"
            or bool(network is not None and network.is_loopback)
        )

    @property
    def is_everywhere(self) -> bool:
        network = self.network
        return self.address == "all" or bool(network is not None and network.prefixlen == 0)

    def __str__(self) -> str:
        network = self.network
        address = self.address or ""
        if network is not None:
            address = str(network)
        words = (self.type, ",".join(self.databases), ",".join(self.users), address, self.method)
        return " ".join(map(shown, filter(None, words)))


def sees_rules(database: Database) -> bool:
    """Tell whether the login may read the rules."""
    return database.rows(_SEES) == [(True,)]


def broad(database: Database, name: str | None = None) -> list[Finding]:
    """Find the lines that let more into a database than its workers need.

    Args:
        database: as one sees it who may read the rules.
        name: the database of the store, if it is another one.

    Raises:
        StorageRefused: the login may not read the rules.
    """
    lines = [_Line(*row) for row in database.rows(_RULES)]
    ours, found = name or database.name, list[Finding]()
    closed: list[_Line] = []
    for line in lines:
        if line.error is not None:
            found.append(_idle(line) if line.type else _broken(line))
        elif line.method == "reject":
            closed.append(line)
        elif not {ours, "replication", *_ANY}.isdisjoint(line.databases) or any(
            each.startswith(("/", "+")) for each in line.databases
        ):
            found += _judged(line, closed, ours)
    return found


def _judged(line: _Line, closed: list[_Line], ours: str) -> Iterator[Finding]:
    if any(_covers(each, line, line.type) for each in closed):
        return
    severe, loose = list[str](), list[str]()
    if line.method == "trust":
        severe.append("it asks for no password")
    if line.is_local:
        if line.method == "ident" and line.type != "local":
            severe.append("it believes whatever the client's host says of who comes")
    else:
        plain = line.type in _PLAIN and not any(_covers(e, line, "hostnossl") for e in closed)
        if line.method == "ident":
            severe.append("it believes whatever the client's host says of who comes")
        if line.method == "password" and plain:
            severe.append("the password passes in the clear")
        elif line.method == "password":
            loose.append("the server gets to see the password")
        if line.method == "md5":
            loose.append("it takes MD5 hashes for passwords")
        if line.type == "hostnossl" and plain:
            severe.append("it takes nothing but what is not encrypted")
        elif plain:
            loose.append("it takes what is not encrypted")
        if line.is_everywhere:
            loose.append("everybody may come from everywhere")
        if "all" in line.databases:
            loose.append("to every database")
        if "all" in line.users:
            loose.append("as every login")
    if severe or loose:
        yield Finding(
            "SP06",
            "error" if severe else "warning",
            f"Line {line.number} of pg_hba.conf ({line}) is too broad:"
            f" {', '.join([*severe, *loose])}.",
            f"Write as much as your workers need: {_narrow(line, ours)}",
            "pg_hba.conf",
        )


def _narrow(line: _Line, ours: str) -> str:
    """Return how the line could look."""
    if line.type == "local":
        return f"local {shown(ours)} worker_1 scram-sha-256"
    network = line.network
    if line.is_local:
        return f"host {shown(ours)} worker_1 {network or 'samehost'} scram-sha-256"
    address = network if network is not None and not line.is_everywhere else "10.0.3.0/24"
    return f"hostssl {shown(ours)} worker_1 {address} scram-sha-256"


def _covers(closed: _Line, line: _Line, kind: str) -> bool:
    """Tell whether a line that rejects comes before all that another one would let in."""
    kinds = {"host": ("host", "hostssl", "hostnossl"), closed.type: (closed.type,)}[closed.type]
    first, second = closed.network, line.network
    inside = closed.address == "all" or (
        first is not None
        and second is not None
        and first.version == second.version
        and second.subnet_of(first)  # type: ignore[arg-type]
    )
    return (
        kind in kinds
        and (inside or kind == "local")
        and ("all" in closed.databases or set(line.databases) <= set(closed.databases))
        and ("all" in closed.users or set(line.users) <= set(closed.users))
    )


def _idle(line: _Line) -> Finding:
    return Finding(
        "SP06",
        "warning",
        f"Line {line.number} of pg_hba.conf ({line}) lets nobody in: the server has no TLS.",
        "Turn ssl on, with a certificate of an authority that your workers know.",
        "pg_hba.conf",
    )


def _broken(line: _Line) -> Finding:
    return Finding(
        "SP06",
        "warning",
        f"The server does not understand line {line.number} of pg_hba.conf: {quoted(line.error)}.",
        "Correct it. Until then the server goes on with the rules from before, and would not start"
        " again.",
        "pg_hba.conf",
    )


def _length(netmask: str | None) -> int | str:
    """Return the length of a prefix: the server shows masks, and ipaddress takes none for IPv6."""
    if netmask is None or ":" not in netmask:
        return netmask or ""
    bits = int(ip_network(netmask).network_address)
    return bits.bit_count()
