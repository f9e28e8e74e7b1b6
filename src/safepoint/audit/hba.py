"""What pg_hba.conf lets in: from where, as whom, and with what proof."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import product
from typing import Final, NamedTuple

from safepoint.audit.databases import Database, shown
from safepoint.audit.finding import Finding
from safepoint.errors import quoted

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
_REPLICATION: Final = "replication"
_TAKES: Final[dict[str, frozenset[str]]] = {
    "local": frozenset({"local"}),
    "host": frozenset({"tls", "kerberos", "plain"}),
    "hostssl": frozenset({"tls"}),
    "hostnossl": frozenset({"kerberos", "plain"}),
    "hostgssenc": frozenset({"kerberos"}),
    "hostnogssenc": frozenset({"tls", "plain"}),
}
_CLEAR: Final = ("password", "ldap", "radius", "pam", "bsd")
_ANY: Final = ("all", "sameuser", "samerole", "samegroup")


class _Line(NamedTuple):
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
        return self.address == "all" or bool(
            network is not None and network.prefixlen < 8 and not network.is_private
        )

    @property
    def place(self) -> str:
        return f"{self.number} of {shown(self.file)}"

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
            if line.method != "reject":
                found.append(_idle(line) if line.type else _broken(line))
        elif line.method == "reject":
            closed.append(line)
        elif not {ours, _REPLICATION, *_ANY}.isdisjoint(line.databases) or any(
            each.startswith(("/", "+")) for each in line.databases
        ):
            found += _judged(line, closed, ours)
    return found


def _judged(line: _Line, closed: list[_Line], ours: str) -> Iterator[Finding]:
    takes = {way for way in _TAKES[line.type] if not _is_closed(line, closed, way)}
    if not takes:
        return
    severe, loose = list[str](), list[str]()
    if line.method == "trust":
        severe.append("it asks for no password")
    if line.method == "ident" and line.type != "local":
        severe.append("it believes whatever the client's host says of who comes")
    if not line.is_local:
        if line.method in _CLEAR and "plain" in takes:
            severe.append("the password passes in the clear")
        elif line.method in _CLEAR:
            loose.append("the server gets to see the password")
        if line.method == "md5":
            loose.append("it takes MD5 hashes for passwords")
        if "plain" in takes and "tls" not in takes:
            severe.append("it takes nothing but what is not encrypted")
        elif "plain" in takes:
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
            f"Line {line.place} ({line}) is too broad: {', '.join([*severe, *loose])}.",
            _narrow(line, ours),
            line.file,
        )


def _narrow(line: _Line, ours: str) -> str:
    """Say how the line could look."""
    copies = line.databases == [_REPLICATION]
    who = f"{_REPLICATION} standby_1" if copies else f"{shown(ours)} worker_1"
    network = line.network
    if line.type == "local":
        narrow = f"local {who} scram-sha-256"
    elif line.is_local:
        narrow = f"host {who} {network or 'samehost'} scram-sha-256"
    else:
        address = network if network is not None and not line.is_everywhere else "10.0.3.0/24"
        narrow = f"hostssl {who} {address} scram-sha-256"
    need = "a copy of the server needs, or take it out" if copies else "your workers need"
    return f"Write as much as {need}: {narrow}"


def _is_closed(line: _Line, closed: list[_Line], way: str) -> bool:
    """Tell whether all that a line would let in on a way was rejected before, for each whom."""
    return all(
        any(_rejects(each, line, way, database, user) for each in closed)
        for database, user in product(line.databases, line.users)
    )


def _rejects(closed: _Line, line: _Line, way: str, database: str, user: str) -> bool:
    # "all" are all databases, and a copy of the whole server is none.
    every = "all" in closed.databases and database != _REPLICATION
    return (
        way in _TAKES[closed.type]
        and (every or database in closed.databases)
        and ("all" in closed.users or user in closed.users)
        and _is_inside(line, closed)
    )


def _is_inside(line: _Line, closed: _Line) -> bool:
    """Tell whether whoever comes from where one line says comes from where the other says."""
    if line.type == "local" or closed.address == "all":
        return True
    if closed.address in ("samehost", "samenet"):
        return line.address in ("samehost", closed.address)
    first, second = closed.network, line.network
    return (
        first is not None
        and second is not None
        and first.version == second.version
        and second.subnet_of(first)  # type: ignore[arg-type]
    )


def _idle(line: _Line) -> Finding:
    kerberos = line.type == "hostgssenc"
    return Finding(
        "SP06",
        "warning",
        f"Line {line.place} ({line}) lets nobody in: the server has no"
        f" {'GSSAPI' if kerberos else 'TLS'}.",
        "Take it out, or let them come by hostssl."
        if kerberos
        else "Turn ssl on, with a certificate of an authority that your workers know.",
        line.file,
    )


def _broken(line: _Line) -> Finding:
    return Finding(
        "SP06",
        "warning",
        f"The server does not understand line {line.place}: {quoted(line.error)}.",
        "Correct it. Until then the server goes on with the rules from before, and would not start"
        " again.",
        line.file,
    )


def _length(netmask: str | None) -> int | str:
    """Return the length of a prefix: the server shows masks, and ipaddress takes none for IPv6."""
    if netmask is None or ":" not in netmask:
        return netmask or ""
    bits = int(ip_network(netmask).network_address)
    return bits.bit_count()
