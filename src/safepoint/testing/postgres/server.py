"""A PostgreSQL server: its folder, its cluster, its logins."""

from __future__ import annotations

import os
import re
import secrets
import signal
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from safepoint.errors import (
    ConfigurationError,
    StorageUnavailable,
    quoted,
    shell,
)
from safepoint.testing.postgres._access import HOST, SUPERUSER, Access
from safepoint.testing.postgres._cluster import create, made, remove
from safepoint.testing.postgres._process import Postmaster, forget_memory
from safepoint.testing.postgres._wheel import User, installed, programs_for
from safepoint.testing.postgres.tls import TLSFront

_SETTINGS: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    # In the folder of the data, so that a killed server leaves nothing elsewhere.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_SECONDS: Final = 60.0
_PORT: Final = "port"
_RELOADED: Final = "received SIGHUP, reloading configuration files"
_NOT_RELOADED: Final = "pg_hba.conf was not reloaded"
_IN_USE: Final = re.compile(
    r'lock file "postmaster\.pid" already exists.*?\(PID (\d+)\)', re.DOTALL
)
# Its own file names the one that answers, also where two servers share folder and port.
_WHO: Final = "select split_part(pg_read_file('postmaster.pid'), chr(10), 1)"


class Server(Access):
    """A PostgreSQL server with a folder of its own, that listens on 127.0.0.1 alone.

    Everybody has a password (scram-sha-256), also the superuser. The server ends when this process
    does, however that ends.

    Attributes:
        folder: what belongs to it: its data, its log, and the passwords.
        bin: the folder with `psql` and the other programs.
        passfile: the passwords of the logins, as `PGPASSFILE` wants them.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        version: int = 18,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a server, which `start` or `with` starts.

        Args:
            folder: where it keeps its data. Without one it is temporary.
            version: 18 or 16.
            port: where it listens. Without one it finds a free port, and comes back to it.
            settings: more for the server: `{"fsync": "off"}`.

        Raises:
            MissingPackage: the wheel with the programs is not installed.
            ConfigurationError: the folder holds something else, or there is no such version.
            UnsafeLocation: the folder is somebody else's, or others can write it.
            StorageUnavailable: the user who runs the server cannot reach the folder.
        """
        self._temporary = folder is None
        self._user = User()
        self._port = port
        self._fixed = port is not None
        self._settings = {**_SETTINGS, **(settings or {})}
        self._postmaster: Postmaster | None = None
        self._fronts: list[TLSFront] = []
        install = installed(version)
        named = None if folder is None else Path(folder).absolute()
        self.folder = made(named, self._user)
        programs = programs_for(self._user, install, self.folder)
        super().__init__(programs, self.folder / "passfile")
        self._data = self.folder / "data"
        self._log = self.folder / "log"
        self._logged = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port on which it listens.

        Raises:
            StorageUnavailable: it does not run.
        """
        return self._running().port

    @property
    def runs(self) -> bool:
        """Whether it is there."""
        return self._postmaster is not None and self._postmaster.runs

    def start(self) -> None:
        """Start it, and wait until it answers. Its cluster is made if there is none.

        Raises:
            StorageUnavailable: it does not come up.
        """
        if self.runs:
            return
        if self.passfile.exists():
            self._logins.read()
        else:
            password = secrets.token_urlsafe(18)
            create(self.folder, self.bin, self._user, SUPERUSER, password, sync=not self._temporary)
            # Written last: a folder with it holds a cluster that is whole.
            self.remember(SUPERUSER, password)
        command = [str(self.bin / "postgres"), "-D", str(self._data)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        kept = self._kept_port() if self._port is None else None
        self._port = self._port or kept
        for _ in range(1 if self._fixed else 10):
            self._logged = self._log.stat().st_size if self._log.exists() else 0
            self._postmaster = Postmaster.start(
                self._user, command, self.folder, remove=self._temporary, port=self._port
            )
            port = self._postmaster.port
            if self._comes_up(self._postmaster):
                self._port = port  # for the next time: who is connected comes back to it
                (self.folder / _PORT).write_text(f"{port}\n", encoding="utf-8")
                return
            if port == kept:
                self._port = None  # somebody else has it by now
        raise StorageUnavailable(
            f"PostgreSQL does not start: port {port} is taken.", "Name another port, or none."
        )

    def stop(self) -> None:
        """Stop it as an operator would: who is connected is disconnected, nothing is lost."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill all its processes at once, as a crash of the machine would."""
        if self._postmaster is not None:
            self._postmaster.kill()
            self._postmaster = None

    def close(self) -> None:
        """Stop it and, if it is temporary, remove it."""
        for front in self._fronts:
            front.close()
        self._end(signal.SIGQUIT if self._temporary else signal.SIGINT)
        if self._temporary:
            forget_memory(self._user, self.folder / "data")
            remove(self.folder)

    def reload(self) -> None:
        """Let it read its configuration again, and wait until it has.

        Raises:
            ConfigurationError: it refuses the new `pg_hba.conf`, and goes on with the old one.
            StorageUnavailable: it does not run.
        """
        postmaster = self._running()
        before = self.log().count(_RELOADED)
        refused = self.log().count(_NOT_RELOADED)
        postmaster.send(signal.SIGHUP)
        end = time.monotonic() + _SECONDS
        while self.log().count(_RELOADED) == before and time.monotonic() < end:
            time.sleep(0.01)
        # It reads the file before it lets the next one connect.
        self._answers()
        if self.log().count(_NOT_RELOADED) > refused:
            raise ConfigurationError(
                "PostgreSQL refuses this pg_hba.conf.", f"Read its log: {shell(str(self._log))}."
            )

    def hba(self, lines: Iterable[str]) -> None:
        """Replace `pg_hba.conf`, which says who may connect from where and how, and reload."""
        text = "".join(f"{line}\n" for line in lines)
        # As its own user: a root that writes into the folder of another one can be led elsewhere.
        code, said = self._user.run(["tee", str(self._data / "pg_hba.conf")], self.folder, text)
        if code:
            raise StorageUnavailable(
                f"pg_hba.conf was not written: {quoted(said)}.", "Look at the folder of the server."
            )
        self.reload()

    def log(self) -> str:
        """What the server has said since it was started."""
        return self._log.read_bytes()[self._logged :].decode("utf-8", "backslashreplace")

    def tls(self, *names: str) -> TLSFront:
        """Open a second port that speaks TLS alone, with a certificate for these host names.

        The programs of the wheel know no TLS, so something in front of the server speaks it. It
        goes on to the port that the server has now, and ends with the server.

        Raises:
            StorageUnavailable: the server does not run.
        """
        folder = Path(tempfile.mkdtemp(prefix="tls-", dir=self.folder))
        front = TLSFront(self.port, names or ("localhost",), folder)
        self._fronts.append(front)
        return front

    def _kept_port(self) -> int | None:
        """Return the port that it had before, so that what was told to others stays true."""
        try:
            return int((self.folder / _PORT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _answers(self) -> bool:
        """Say whether this server answers, and not another one that took its port."""
        done = self._psql(_WHO, SUPERUSER, "postgres")
        return done.stdout.rstrip("\n") == str(self._running().process)

    def _comes_up(self, postmaster: Postmaster) -> bool:
        """Wait until it answers. Say whether it does: False if its port was taken meanwhile."""
        end = time.monotonic() + _SECONDS
        while postmaster.runs and time.monotonic() < end:
            if self._answers():
                return True
            time.sleep(0.02)
        self.kill()
        said = self.log()
        if "could not create any TCP/IP sockets" in said:
            return False
        other = _IN_USE.search(said)
        if other is not None:
            raise StorageUnavailable(
                f"A server runs on {shell(str(self.folder))} already (process {other[1]}).",
                "Stop it, or name another folder.",
            )
        last = " / ".join(said.splitlines()[-4:]).rstrip(".")
        raise StorageUnavailable(
            f"PostgreSQL does not start: {last or 'it says nothing'}.",
            "Look at its settings and at its folder.",
        )

    def _running(self) -> Postmaster:
        if self._postmaster is None:
            raise StorageUnavailable("This PostgreSQL does not run.", "Call start() first.")
        return self._postmaster

    def _end(self, how: signal.Signals) -> None:
        if self._postmaster is not None:
            self._postmaster.end(how)
            self._postmaster = None
