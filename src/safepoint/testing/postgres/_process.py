"""The process of a PostgreSQL server, its children, and the shell that watches over them."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from safepoint.errors import StorageUnavailable, shell
from safepoint.testing.postgres._wheel import User

_SECONDS: Final = 60.0
# Below those that a system hands out by itself: to a client, or to a server that takes any.
_PORTS: Final = range(20_000, 32_000)

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


class Postmaster:
    """A server that runs, with all its processes. It ends when this process does.

    Attributes:
        port: where it listens, on 127.0.0.1.
        process: the number of the first of its processes.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.port = port
        # From the shell: a file of the cluster's could name any process, for a root to kill.
        said = process.stdout.readline() if process.stdout is not None else b""
        self.process = int(said)

    @classmethod
    def start(
        cls, user: User, command: Sequence[str], folder: Path, *, remove: bool, port: int | None
    ) -> Postmaster:
        """Start it on a port that is free, or on the one that you name. It may not be ready yet.

        Raises:
            StorageUnavailable: its log cannot be opened, or is a link.
        """
        port = free_port() if port is None else port
        shell_command = ["sh", "-c", _WATCH, "sh", str(folder) if remove else ""]
        # An error shows its statement, and in that a password may stand.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        try:
            fd = os.open(folder / "log", flags, 0o600)
        except OSError as error:
            path = shell(str(folder / "log"))
            raise StorageUnavailable(
                f"The log {path} cannot be opened: {error.strerror}.",
                f"This server makes a file there. See what is there instead: ls -l {path}",
            ) from None
        with os.fdopen(fd, "ab") as log:
            process = user.start([*shell_command, *command, "-p", str(port)], folder, log)
        return cls(process, port)

    @property
    def runs(self) -> bool:
        """Whether it is there."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the first of its processes."""
        if self.runs:
            os.kill(self.process, number)

    def end(self, number: signal.Signals) -> None:
        """Ask it to end, in the way of a signal, and wait until it has."""
        self.send(number)
        try:
            self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def kill(self) -> None:
        """End all its processes at once, as a crash of the machine would."""
        if self.runs:
            # A stopped parent starts no child and cleans up after none.
            os.kill(self.process, signal.SIGSTOP)
            for process in (*_children(self.process), self.process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.read()  # which all of them hold, until the last is gone
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def forget_memory(user: User, data: Path) -> None:
    """Remove the shared memory that a killed server left, for a cluster that goes away."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        memory = int((data / "postmaster.pid").read_text().splitlines()[6].split()[1])
        user.run(["ipcrm", "-m", str(memory)], Path("/"))


def free_port() -> int:
    """Return a port that stays free while a server is away, but for who asks for that very one."""
    for _ in range(1000):
        port = secrets.choice(_PORTS)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise StorageUnavailable("No port is free.", "End what listens on so many of them.")


def _children(parent: int) -> list[int]:
    return [process for process, of in _processes() if of == parent]


def _processes() -> Iterator[tuple[int, int]]:
    """Each process and its parent."""
    listing = ["ps", "-A", "-o", "pid=,ppid="]
    if not Path("/proc/self/stat").exists():
        done = subprocess.run(  # noqa: S603 -- where there is no /proc
            listing, check=True, stdout=subprocess.PIPE, encoding="ascii"
        )
        for line in done.stdout.splitlines():
            process, parent = line.split()
            yield int(process), int(parent)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended since
            # The name of a program stands in parentheses, and may hold some.
            _, _, rest = (folder / "stat").read_text("utf-8", "replace").rpartition(")")
            yield int(folder.name), int(rest.split()[1])
